"""Complex autoregressions over a regular grid, with and without a moving average."""

from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.data_scales import StartRules
from cgp.kernels.levinson import Autoregression, burg, levinson, reflections_of
from cgp.kernels.on_grid import (
    Companion,
    OnGrid,
    companion,
    order_of,
    step_of_grid,
    step_or_none,
    vector_of,
)
from cgp.kernels.points import as_array
from cgp.linalg.arguments import ArrayLike
from cgp.observations import as_observations, check_same_labels
from cgp.training.hyperparameters import Hyperparameter, declared, setting
from cgp.training.parameters import POSITIVE, UNIT_DISK


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class Autoregressive(OnGrid):
    """A complex autoregression over a regular grid, `z[t] = Σ a[k] z[t−k] + w[t]`, k = 1 … order.

    It is learned by its reflection coefficients (partial autocorrelations): all values in the unit
    disk make a stable process, the unit circle being that of tones without noise. Samples may be
    missing and repeated; a gap of k steps takes log k products of matrices.

    Args:
        order: The number of coefficients.
        variance: `E|z|²`, positive; in squared units of z.
        reflections: Complex, `[order]`, of modulus at most 1; None for zeros, white noise over the
            grid.
        step: The spacing of the grid, positive, in units of x; if None, the first fit takes that
            of a regular x.
        fixed: Names of parameters that training leaves alone.
        priors: TFP distributions of parameters, by name; of reflections, of their [re, im].
        name: A name for its parameters.
        dtype: "float64" or "float32".

    Raises:
        ValueError: An order below 1, reflections of another number or outside the unit disk, a
            step that is not positive; eagerly, when it is used, points that are no whole multiples
            of the step apart.

    Example:
        >>> import numpy as np
        >>> from cgp.kernels import Autoregressive
        >>> kernel = Autoregressive.from_coefficients([0.5j, 0.2], innovation_variance=1.0)
        >>> kernel.coefficients.round(12), round(kernel.innovation_variance, 12)
        (array([0. +0.5j, 0.2+0.j ]), 1.0)
        >>> kernel.covariance([0.0, 1.0, 7.0]).shape
        TensorShape([3, 3])
    """

    order: int = setting(order_of)
    variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    reflections: Hyperparameter = Hyperparameter(
        UNIT_DISK, default=None, length=lambda kernel: kernel.order
    )
    step: float | None = setting(step_or_none, default=None)

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The starting values: reflections by Burg's method."""
        if name == "reflections":
            return self.start_of_reflections(rules, self.order)
        return super().start_of(name, rules)

    @classmethod
    def from_coefficients(
        cls,
        coefficients: ArrayLike,
        innovation_variance: float = 1.0,
        step: float = 1.0,
        **kwargs: Any,
    ) -> Self:
        """The autoregression of known coefficients.

        Args:
            coefficients: a[1 … order], complex, `[order]`.
            innovation_variance: `E|w|²`, positive; in squared units of z.
            step: The spacing of the grid, in units of x.
            **kwargs: As for the constructor.

        Raises:
            ValueError: Coefficients that are not stable, or no vector.
        """
        reflections = reflections_of(vector_of(coefficients, "coefficients"), "coefficients")
        variance = innovation_variance / np.prod(1.0 - np.abs(reflections) ** 2)
        return cls(len(reflections), variance, reflections, step, **kwargs)

    @classmethod
    def from_data(
        cls, x: ArrayLike, z: ArrayLike, order: int, step: float | None = None, **kwargs: Any
    ) -> Self:
        """The autoregression that Burg's method finds in a series, gaps and all.

        Runs of samples without a gap are taken together (`burg` for segments). Noise of the
        measurement counts as signal: this is where a fit starts, or an estimate for clean data.

        Args:
            x: Points, `[N]`, in any order, no two of them equal, whole multiples of a step apart.
            z: Complex series of mean zero, `[N]`; NaN, or hidden by a mask, where missing.
            order: The number of coefficients.
            step: The spacing of the grid; None for that of a regular x.
            **kwargs: As for the constructor.

        Raises:
            TypeError: Complex x or real z.
            ValueError: Shapes that are not `[N]`, repeated points, steps that are no whole
                multiples, no run of samples longer than the order, or a series of zeros.
        """
        check_same_labels(x=(x, 0), z=(z, 0))
        x = np.asarray(as_array(x, "x"), float)
        z = np.asarray(as_observations(z, None, "complex128"))
        if x.ndim != 1 or x.shape != z.shape or x.size < 2:
            raise ValueError(f"x and z must be [N], N > 1, got {x.shape} and {z.shape}")
        by_place = np.argsort(x)
        x, z = x[by_place], z[by_place]
        step = step_of_grid(x[:, None]) if step is None else step
        kernel = cls(order, step=step, **kwargs)
        kernel.check_points(tf.constant(x[:, None]))
        counts = np.rint(np.diff(x) / step)
        if np.any(counts == 0):
            raise ValueError("x must not repeat points: average the samples there first")
        is_present = ~np.isnan(z)
        x, z = x[is_present], z[is_present]
        power = np.mean(np.abs(z) ** 2) if z.size else 0.0
        if not power > 0.0:
            raise ValueError("z must have samples that are not zero")
        runs = np.split(z, 1 + np.flatnonzero(np.rint(np.diff(x) / step) > 1))
        return cls(kernel.order, power, burg(runs, kernel.order), step, **kwargs)

    def _autoregression(self) -> Autoregression:
        return levinson(self.reflections.value)

    @property
    def coefficients(self) -> np.ndarray:
        """a[1 … order], complex, `[order]`."""
        return self._autoregression().coefficients.numpy()

    @property
    def innovation_variance(self) -> float:
        """`E|w|²`, the variance of one-step predictions from all of the past."""
        return float(self.variance.value * self._autoregression().innovation)

    def companion(self) -> Companion:
        """The companion form of the process at the present hyperparameters."""
        process = self._autoregression()
        h = tf.one_hot(0, self.order, dtype=process.coefficients.dtype)
        return companion(process, self.variance.value, h)


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
