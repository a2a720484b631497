"""Complex autoregressions with a moving average, over a regular grid."""

from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.data_scales import StartRules
from cgp.kernels.levinson import levinson, reflections_of
from cgp.kernels.on_grid import (
    Companion,
    OnGrid,
    companion,
    order_of,
    step_or_none,
    vector_of,
)
from cgp.linalg.arguments import ArrayLike
from cgp.training.hyperparameters import Hyperparameter, declared, setting
from cgp.training.parameters import POSITIVE, UNIT_DISK


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class ARMA(OnGrid):
    """A complex ARMA process, `z[t] = Σ a[k] z[t−k] + w[t] + Σ b[j] w[t−j]`, over a regular grid.

    k = 1 … ar_order, j = 1 … ma_order. Both are learned by their reflection coefficients, as
    that of `Autoregressive` is: all values in the unit disk make a stable and invertible process.
    Of an autoregression u of coefficients a it is `z[t] = u[t] + Σ b[j] u[t−j]` (Brockwell & Davis,
    *Time Series: Theory and Methods*, 1991, §12.1).

    Args:
        ar_order: The number of coefficients a.
        ma_order: The number of coefficients b.
        variance: `E|z|²`, positive; in squared units of z.
        ar_reflections: Complex, `[ar_order]`, of modulus at most 1; None for zeros.
        ma_reflections: Complex, `[ma_order]`, of modulus at most 1: those of the autoregression of
            coefficients −b; None for zeros.
        step: The spacing of the grid, positive, in units of x; if None, the first fit takes that
            of a regular x.
        fixed: Names of parameters that training leaves alone.
        priors: TFP distributions of parameters, by name; of reflections, of their [re, im].
        name: A name for its parameters.
        dtype: "float64" or "float32".

    Raises:
        ValueError: As for `Autoregressive`.

    Example:
        >>> from cgp.kernels import ARMA
        >>> kernel = ARMA.from_coefficients([0.5j], [0.2], innovation_variance=1.0)
        >>> kernel.ar_coefficients.round(12), kernel.ma_coefficients.round(12)
        (array([0.+0.5j]), array([0.2-0.j]))
        >>> kernel.covariance([0.0], [0.0, 1.0]).numpy().round(4)
        array([[1.3867+0.j    , 0.2   -0.6933j]])
    """

    ar_order: int = setting(order_of)
    ma_order: int = setting(order_of)
    variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    ar_reflections: Hyperparameter = Hyperparameter(
        UNIT_DISK, default=None, length=lambda kernel: kernel.ar_order
    )
    ma_reflections: Hyperparameter = Hyperparameter(
        UNIT_DISK, default=None, length=lambda kernel: kernel.ma_order
    )
    step: float | None = setting(step_or_none, default=None)

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The starting values: reflections of the autoregression by Burg's method, others zero."""
        if name == "ar_reflections":
            return self.start_of_reflections(rules, self.ar_order)
        if name == "ma_reflections":
            return 0.5 * (rules.uniform() - 0.5) * np.ones(self.ma_order)
        return super().start_of(name, rules)

    @classmethod
    def from_coefficients(
        cls,
        ar_coefficients: ArrayLike,
        ma_coefficients: ArrayLike,
        innovation_variance: float = 1.0,
        step: float = 1.0,
        **kwargs: Any,
    ) -> Self:
        """The process of known coefficients.

        Args:
            ar_coefficients: a[1 …], complex, `[ar_order]`.
            ma_coefficients: b[1 …], complex, `[ma_order]`.
            innovation_variance: `E|w|²`, positive; in squared units of z.
            step: The spacing of the grid, in units of x.
            **kwargs: As for the constructor.

        Raises:
            ValueError: Coefficients that are not stable or not invertible, or no vectors.
        """
        ar = reflections_of(vector_of(ar_coefficients, "ar_coefficients"), "ar_coefficients")
        ma = reflections_of(-vector_of(ma_coefficients, "ma_coefficients"), "-ma_coefficients")
        unit = cls(len(ar), len(ma), 1.0, ar, ma)
        variance = innovation_variance / unit.innovation_variance
        return cls(len(ar), len(ma), variance, ar, ma, step, **kwargs)

    @property
    def ar_coefficients(self) -> np.ndarray:
        """a[1 … ar_order], complex, `[ar_order]`."""
        return levinson(self.ar_reflections.value).coefficients.numpy()

    @property
    def ma_coefficients(self) -> np.ndarray:
        """b[1 … ma_order], complex, `[ma_order]`."""
        return -levinson(self.ma_reflections.value).coefficients.numpy()

    @property
    def innovation_variance(self) -> float:
        """`E|w|²`, the variance of one-step predictions from all of the past."""
        return float(self.companion().innovation)

    def companion(self) -> Companion:
        """The companion form of the process at the present hyperparameters."""
        ar, ma = self.ar_reflections.value, self.ma_reflections.value
        n = max(self.ar_order, self.ma_order + 1)
        # An autoregression of order n whose last coefficients are zero.
        process = levinson(tf.pad(ar, [[0, n - self.ar_order]]))
        b = -levinson(ma).coefficients
        h = tf.concat(
            [tf.ones([1], b.dtype), b, tf.zeros([n - 1 - self.ma_order], b.dtype)], axis=0
        )
        return companion(process, self.variance.value, h)
