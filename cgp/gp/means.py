"""Mean functions of a Gaussian process: constants and polynomial trends, with complex values."""

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.points import one_number, optional_number
from cgp.linalg.arguments import ArrayLike, as_complex
from cgp.training.hyperparameters import HyperparameterLayer
from cgp.training.parameters import COMPLEX, in_steps_of


class Mean(HyperparameterLayer):
    """The base class of mean functions. Models given the same mean share its coefficients.

    Args:
        name: A name for its parameters, as in `gp.parameters()`; "mean" by default.
        dtype: "float64" (complex128 values) or "float32" (complex64).
    """

    def evaluate(self, x: tf.Tensor) -> tf.Tensor | None:
        """Evaluates the mean at points `[..., N, D]`: complex, `[..., N]`, or None for zero."""
        return None

    def basis(self, x: tf.Tensor) -> tf.Tensor | None:
        """The basis functions of a marginalised trend: complex, `[..., N, q]`, or None."""
        return None

    def check_determined(
        self, x: tf.Tensor, present: np.ndarray, *, leave_out: bool = False
    ) -> None:
        """Raises, eagerly, where data do not determine the marginalised coefficients.

        Args:
            x: Inputs, `[X, N, D]`, X being 1 or G.
            present: Bool, `[G, N]`: where there are targets, for each covariance.
            leave_out: Whether all but any one of the points must determine them too.

        Raises:
            ValueError: Fewer different x than coefficients.
        """
        basis = self.basis(x)
        if basis is None:
            return
        bases = np.broadcast_to(basis.numpy(), (len(present), *basis.shape[1:]))
        for columns, keep in zip(bases, present, strict=True):
            columns = columns[keep] / np.maximum(np.abs(columns).max(axis=0), 1e-300)
            points, needed = columns.shape
            rank = np.linalg.matrix_rank(columns)
            if rank < needed:
                raise ValueError(
                    f"a trend of {needed} coefficients needs as many different x, got {rank} among "
                    f"{points} points"
                )
            # A point of leverage 1 is alone in determining some part of the trend.
            leverage = np.sum(np.abs(np.linalg.qr(columns)[0]) ** 2, axis=1)
            if leave_out and leverage.max() > 1.0 - 1e-9:
                raise ValueError(
                    f"a trend of {needed} coefficients is not determined without the point at "
                    f"position {int(leverage.argmax())} of those present: it cannot be left out"
                )

    def at(self, x: np.ndarray, z: np.ndarray) -> np.ndarray:
        """The mean at `[N, D]`, eagerly, `[B, N]`; a marginalised trend by least squares from z."""
        points = tf.constant(x, self.variable_dtype)
        function, basis = self.evaluate(points), self.basis(points)
        found = np.zeros(z.shape, complex)
        if function is not None:
            found += function.numpy()
        if basis is not None:
            columns = basis.numpy()
            for series, row in zip(z, found, strict=True):
                present = ~np.isnan(series)
                solved = np.linalg.lstsq(columns[present], (series - row)[present], rcond=None)[0]
                row += columns @ solved
        return found

    def start_of(self, name: str, x: np.ndarray, z: np.ndarray) -> ArrayLike | None:
        """The value from which a hyperparameter starts that was left out; None without a rule.

        Args:
            name: Its name.
            x: Inputs, `[N, D]`.
            z: The targets there, complex `[N]`.
        """
        return None

    @property
    def prefix(self) -> str:
        """The name under which `gp.parameters()` lists this mean."""
        return self._given_name or "mean"


@keras.saving.register_keras_serializable(package="cgp.means")
class Constant(Mean):
    """A constant complex mean, learned with the hyperparameters.

    Args:
        value: Its initial value, in units of z; if None zero, until a fit starts it from the mean
            of the data.
        fixed: `("value",)` to keep it there.
        priors: `{"value": ...}`, a TFP distribution of its [re, im].
        name: A name for its parameters.
        dtype: "float64" or "float32".

    Example:
        >>> import cgp
        >>> gp = cgp.ExactGP(cgp.kernels.RBF(), 0.1, mean=cgp.means.Constant(1 + 2j))
        >>> gp.predict([0.0])["mean"]
        array([1.+2.j])
    """

    def __init__(
        self,
        value: complex | None = None,
        *,
        fixed: str | Iterable[str] = (),
        priors: Mapping[str, Any] | None = None,
        name: str | None = None,
        dtype: str = "float64",
        **kwargs: Any,
    ):
        super().__init__(name=name, dtype=dtype, **kwargs)
        values = {"value": (optional_number(value, "value"), in_steps_of(1.0, COMPLEX))}
        self.declare_parameters(values, fixed, priors)

    def start_of(self, name: str, x: np.ndarray, z: np.ndarray) -> ArrayLike | None:
        """See `Mean.start_of`."""
        return z.mean()

    def evaluate(self, x: tf.Tensor) -> tf.Tensor | None:
        """See `Mean.evaluate`."""
        return tf.broadcast_to(self.value.value, tf.shape(x)[:-1])


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
        coefficients: Initial values of β, `[degree + 1]`, complex; if None zeros, until a fit
            starts them from those of least squares. Not for a marginalised trend.
        marginalized: Whether the coefficients are marginalised instead of learned.
        center: In units of x.
        scale: In units of x, positive.
        fixed: `("coefficients",)` to keep them.
        priors: `{"coefficients": ...}`, a TFP distribution of their [re, im], `[degree + 1, 2]`.
        name: A name for its parameters.
        dtype: "float64" or "float32".

    Raises:
        ValueError: A degree that is no whole number, a scale that is not positive; coefficients, or
            `fixed` or `priors` of them, for a marginalised trend.

    Example:
        >>> import cgp, numpy as np
        >>> trend = cgp.means.Polynomial(1, marginalized=True, center=5.0, scale=5.0)
        >>> gp = cgp.ExactGP(cgp.kernels.RBF(), 0.1, mean=trend)
        >>> x = np.arange(10.0)
        >>> gp.condition(x, (1 + 1j) * x)
        >>> gp.predict([20.0])["mean"].round(4)
        array([20.+20.j])
    """

    def __init__(
        self,
        degree: int,
        coefficients: ArrayLike | None = None,
        *,
        marginalized: bool = False,
        center: float = 0.0,
        scale: float = 1.0,
        fixed: str | Iterable[str] = (),
        priors: Mapping[str, Any] | None = None,
        name: str | None = None,
        dtype: str = "float64",
        **kwargs: Any,
    ):
        super().__init__(name=name, dtype=dtype, **kwargs)
        is_number = isinstance(degree, int | float | np.integer | np.floating)
        if not (is_number and 0 <= degree < np.inf and degree == int(degree)):
            raise ValueError(f"degree must be a whole number, at least 0, got {degree!r}")
        for argument, number in (("center", center), ("scale", scale)):
            if np.iscomplexobj(one_number(number, argument)):
                raise TypeError(f"{argument} must be real, got {number!r}")
        if not (np.isfinite(center) and np.isfinite(scale) and scale > 0):
            raise ValueError(f"scale must be positive and center finite, got {scale} and {center}")
        self.degree, self.marginalized = int(degree), bool(marginalized)
        self.center, self.scale = float(center), float(scale)
        if marginalized and coefficients is not None:
            raise ValueError("a marginalised trend has no coefficients to start from")
        if coefficients is not None and np.shape(coefficients) != (self.degree + 1,):
            raise ValueError(
                f"a polynomial of degree {degree} has {self.degree + 1} coefficients, got shape "
                f"{np.shape(coefficients)}"
            )
        constraint = in_steps_of(1.0, COMPLEX)._replace(placeholder=np.zeros(self.degree + 1))
        values = {} if marginalized else {"coefficients": (coefficients, constraint)}
        self.declare_parameters(values, fixed, priors)

    def start_of(self, name: str, x: np.ndarray, z: np.ndarray) -> ArrayLike | None:
        """See `Mean.start_of`."""
        powers = self._powers(tf.constant(x, self.variable_dtype)).numpy()
        return np.linalg.lstsq(powers, z, rcond=None)[0]

    def _powers(self, x: tf.Tensor) -> tf.Tensor:
        if x.shape[-1] not in (1, None):
            raise ValueError(f"a polynomial trend needs inputs of one dimension, got {x.shape[-1]}")
        t = (x[..., 0] - self.center) / self.scale
        powers = [tf.ones_like(t)]  # products: the derivative of 0⁰ that TensorFlow takes is NaN
        for _ in range(self.degree):
            powers.append(powers[-1] * t)
        return as_complex(tf.stack(powers, axis=-1))

    def evaluate(self, x: tf.Tensor) -> tf.Tensor | None:
        """See `Mean.evaluate`."""
        if self.marginalized:
            return None
        return tf.linalg.matvec(self._powers(x), self.coefficients.value)

    def basis(self, x: tf.Tensor) -> tf.Tensor | None:
        """See `Mean.basis`."""
        return self._powers(x) if self.marginalized else None

    def get_config(self) -> dict[str, Any]:
        """See `Mean.get_config`."""
        names = ("degree", "marginalized", "center", "scale")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}

    def __repr__(self) -> str:
        inside = "marginalized" if self.marginalized else repr(self.coefficients)
        return f"Polynomial({self.degree}, {inside})"
