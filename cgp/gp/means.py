"""Mean functions of a Gaussian process: constants and polynomial trends, with complex values."""

import keras
import numpy as np
import tensorflow as tf

from cgp.training.parameters import COMPLEX, Parameterized, complex_from_config
from cgp.training.sharing import Shareable


class Mean(Shareable, Parameterized, keras.layers.Layer):
    """The base of mean functions. Sharing one shares its coefficients.

    Args:
        name: A name for its parameters, as in `gp.parameters()`; by default the class's.
        dtype: "float64" (complex128 values) or "float32" (complex64).
    """

    def __init__(self, *, name=None, dtype="float64", **kwargs):
        super().__init__(name=name, dtype=dtype, **kwargs)
        self._given_name = name
        self.built = True

    def evaluate(self, x: tf.Tensor) -> tf.Tensor | None:
        """The mean at points `[..., N, D]`: complex, `[..., N]`, or None for zero."""
        return None

    def basis(self, x: tf.Tensor) -> tf.Tensor | None:
        """The functions whose coefficients are marginalised: complex, `[..., N, q]`, or None."""
        return None

    @property
    def prefix(self) -> str:
        """The name under which `gp.parameters()` lists this mean."""
        return self._given_name or "mean"

    def get_config(self):
        """The constructor's arguments, complex numbers as [re, im]."""
        own = {"name": self._given_name, "dtype": self.variable_dtype}
        return {**super().get_config(), **own, **self.parameters_config()}


@keras.saving.register_keras_serializable(package="cgp.means")
class Constant(Mean):
    """A constant complex mean, learned with the hyperparameters.

    Args:
        value: Where it starts; in units of z.
        fixed: `("value",)` to keep it there.
        name: A name for its parameters.
        dtype: "float64" or "float32".
    """

    def __init__(self, value=0.0, *, fixed=(), priors=None, name=None, dtype="float64", **kwargs):
        super().__init__(name=name, dtype=dtype, **kwargs)
        self.declare_parameters({"value": (complex(value), COMPLEX)}, fixed, priors)

    def evaluate(self, x):
        """See `Mean.evaluate`."""
        return tf.broadcast_to(self.value.value, tf.shape(x)[:-1])

    @classmethod
    def from_config(cls, config):
        """The mean of a config."""
        return super().from_config({**config, "value": complex_from_config(config["value"])})


@keras.saving.register_keras_serializable(package="cgp.means")
class Polynomial(Mean):
    """A polynomial trend `Σ_k β_k ((x − center)/scale)^k` over one-dimensional inputs.

    Its complex coefficients are either learned with the hyperparameters, or marginalised under a
    flat prior: the trend is then estimated from the data at each prediction, its uncertainty is
    part of the posterior, and the likelihood is the restricted one, of what the trend leaves
    (Rasmussen & Williams, *Gaussian Processes for Machine Learning*, 2006, §2.7).

    Choose center and scale so that x comes to about −1 … 1: powers of a date lose all digits.

    Args:
        degree: Of the polynomial, at least 0.
        coefficients: Where β starts, `[degree + 1]`, complex; zeros if None. Not for a marginalised
            trend.
        marginalized: Whether the coefficients are marginalised instead of learned.
        center: In units of x.
        scale: In units of x, positive.
        fixed: `("coefficients",)` to keep them.
        priors: TFP distributions of parameters, by name.
        name: A name for its parameters.
        dtype: "float64" or "float32".
    """

    def __init__(
        self,
        degree,
        coefficients=None,
        *,
        marginalized=False,
        center=0.0,
        scale=1.0,
        fixed=(),
        priors=None,
        name=None,
        dtype="float64",
        **kwargs,
    ):
        super().__init__(name=name, dtype=dtype, **kwargs)
        if int(degree) != degree or degree < 0:
            raise ValueError(f"degree must be a whole number, at least 0, got {degree}")
        if not (np.isfinite(center) and np.isfinite(scale) and scale > 0):
            raise ValueError(f"scale must be positive and center finite, got {scale} and {center}")
        self.degree, self.marginalized = int(degree), bool(marginalized)
        self.center, self.scale = float(center), float(scale)
        if marginalized:
            if coefficients is not None:
                raise ValueError("a marginalised trend has no coefficients to start from")
            return
        if coefficients is None:
            coefficients = np.zeros(self.degree + 1)
        if np.shape(coefficients) != (self.degree + 1,):
            raise ValueError(
                f"a polynomial of degree {degree} has {self.degree + 1} coefficients, got shape "
                f"{np.shape(coefficients)}"
            )
        values = {"coefficients": (np.asarray(coefficients, np.complex128), COMPLEX)}
        self.declare_parameters(values, fixed, priors)

    def _powers(self, x):
        if x.shape[-1] != 1:
            raise ValueError(f"a polynomial trend needs inputs of one dimension, got {x.shape[-1]}")
        powers = ((x - self.center) / self.scale) ** tf.range(self.degree + 1, dtype=x.dtype)
        return tf.complex(powers, tf.zeros_like(powers))

    def evaluate(self, x):
        """See `Mean.evaluate`."""
        if self.marginalized:
            return None
        return tf.linalg.matvec(self._powers(x), self.coefficients.value)

    def basis(self, x):
        """See `Mean.basis`."""
        return self._powers(x) if self.marginalized else None

    def get_config(self):
        """See `Mean.get_config`."""
        names = ("degree", "marginalized", "center", "scale")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}

    @classmethod
    def from_config(cls, config):
        """The mean of a config."""
        coefficients = complex_from_config(config.get("coefficients"))
        return super().from_config({**config, "coefficients": coefficients})
