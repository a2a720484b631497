"""Metrics of complex predictions and of their uncertainty.

Keras's own metrics cast to float and drop the imaginary part. Targets that are NaN are missing, and
are left out.
"""

import warnings
from collections.abc import Mapping
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions import marginals, principal_axes, squared_radius
from cgp.distributions.calibration import band, running_sums, squares_and_degrees
from cgp.distributions.marginals import Prediction, Step, labelled_moments, within_gate
from cgp.linalg.arguments import ArrayLike, as_numbers, is_missing, squared_modulus
from cgp.linalg.short_repr import short_repr
from cgp.observations import check_no_infinity, check_same_labels
from cgp.statespace.models.model_base import whole_steps

_SPAN = 100  # windows in which a right model leaves the band of `RunningCalibration` ...
_FALSE_ALARMS = 0.05  # ... with at most this probability


def mean_squared_modulus(z: ArrayLike, predicted: ArrayLike) -> float:
    """The mean squared error of complex predictions, the mean of `|z − predicted|²`.

    Args:
        z: Complex targets, any shape; NaN where missing.
        predicted: Complex, of the same shape.

    Returns:
        The error, in squared units of z.

    Raises:
        TypeError: Targets or predictions are not complex.
        ValueError: Shapes differ, or every target is missing.

    Example:
        >>> import numpy as np
        >>> from cgp.metrics import mean_squared_modulus
        >>> mean_squared_modulus(np.array([1 + 1j, np.nan]), np.array([0j, 0j]))
        2.0
    """
    error, _, count = _squared_sums(z, predicted)
    _require_some(count)
    return float(error / count)


def normalized_error_db(z: ArrayLike, predicted: ArrayLike) -> float:
    """The squared error relative to the signal power, `10 log10(Σ|z − predicted|² / Σ|z|²)`.

    Args:
        z: As for `mean_squared_modulus`.
        predicted: As for `mean_squared_modulus`.

    Returns:
        The error in decibels; −inf for a perfect prediction.

    Raises:
        TypeError, ValueError: As for `mean_squared_modulus`; targets that are all zero.

    Example:
        >>> import numpy as np
        >>> from cgp.metrics import normalized_error_db
        >>> z = np.array([1.0, 1.0j])
        >>> round(normalized_error_db(z, 0.9 * z), 9)
        -20.0
    """
    error, power, count = _squared_sums(z, predicted)
    _require_some(count)
    if not power > 0:
        raise ValueError("the targets are all zero: they have no power to divide the error by")
    return float(_decibels(error, power))


def negative_log_predictive_density(z: ArrayLike, prediction: Prediction) -> float:
    """The mean negative log predictive density, `−log p(z_i)` under each point's own prediction.

    With variance v, pseudo-variance w, and a and b the parts of `z − mean` along and across
    `½ arg w`: `log p = −log 2π − ½ log(λ₁ λ₂) − ½ (a²/λ₁ + b²/λ₂)`, `λ = (v ± |w|)/2`. For w = 0
    this is `−log π − log v − |z − mean|²/v`.

    Args:
        z: Complex targets, any shape; NaN where missing.
        prediction: The prediction of `z`, noise included (`observed=True`), shaped like `z`, or
            with an axis of one component more, as `cgp.distributions.marginals` takes it. For a
            filter it is the one-step prediction.

    Returns:
        The mean over points, in nats.

    Raises:
        TypeError: Real targets, or not a prediction.
        ValueError: Shapes differ, keys are missing, every target is missing, or a variance is so
            small that no density exists.

    Example:
        >>> import numpy as np
        >>> from cgp.metrics import negative_log_predictive_density
        >>> zero, one = np.zeros(3, complex), np.ones(3)
        >>> prediction = {"mean": zero, "variance": one, "pseudo_variance": zero}
        >>> bool(np.isclose(negative_log_predictive_density(zero, prediction), np.log(np.pi)))
        True
    """
    return -float(np.mean(log_predictive_densities(z, prediction)))


def log_predictive_densities(z: ArrayLike, prediction: Prediction) -> np.ndarray:
    """The log predictive density of each point, averaged in `negative_log_predictive_density`.

    Args:
        z: As for `negative_log_predictive_density`.
        prediction: As for `negative_log_predictive_density`.

    Returns:
        Real, `[points]`, in nats; targets that are missing are left out.

    Raises:
        TypeError, ValueError: As for `negative_log_predictive_density`.

    Example:
        >>> import numpy as np
        >>> from cgp.metrics import log_predictive_densities
        >>> zero = np.zeros(2, complex)
        >>> prediction = {"mean": zero, "variance": np.ones(2), "pseudo_variance": zero}
        >>> log_predictive_densities(np.array([0.0, 1j]), prediction).round(4)
        array([-1.1447, -2.1447])
    """
    along, across, larger, smaller = _principal(z, prediction)
    if not np.all(smaller > 0):
        points = f"{np.sum(smaller == 0)} of {smaller.size} points have no predictive density"
        raise ValueError(f"{points}: their variance is zero in some direction")
    distance = along**2 / larger + across**2 / smaller
    return -np.log(2 * np.pi) - 0.5 * (np.log(larger) + np.log(smaller) + distance)


def gate(step: Step, probability: float) -> np.ndarray:
    """Whether the observations of a step lie inside their gate: an ellipsoid around the prediction.

    `step.nis ≤ χ²⁻¹(probability)`, with two degrees of freedom for each observed component, of a
    real series one. A right observation of a right model lies inside with this probability
    (Bar-Shalom, Li & Kirubarajan, *Estimation with Applications to Tracking and Navigation*, 2001,
    §1.5). `step(z, gate=probability)` of the filters skips what lies outside.

    Args:
        step: The result of `step` or `process`.
        probability: The probability of the gate, between 0 and 1, such as 0.999.

    Returns:
        Bool, one for each observation, `[...]`; True where nothing is observed.

    Raises:
        TypeError: Not a `Step`.
        ValueError: A probability that is not between 0 and 1.

    Example:
        >>> import cgp
        >>> model = cgp.statespace.LinearGaussian([[0j]], [[1.0]], [[1.0]], [[1.0]])
        >>> step = cgp.KalmanFilter(model).step(3.0 + 3.0j)
        >>> float(step.nis), [bool(cgp.metrics.gate(step, p)) for p in (0.99, 0.9999)]
        (18.0, [False, True])
    """
    if not isinstance(step, Step):
        raise TypeError(f"step must be the Step of a filter, got {type(step).__name__}")
    return within_gate(step, probability)


@short_repr
class Calibration(NamedTuple):
    """How the innovations of the last samples compare with what the model predicts."""

    ratio: np.ndarray
    """The sum of NIS over its degrees of freedom, real, `[...]`; NaN where nothing is observed."""
    low: np.ndarray
    """The lower edge of the band of a right model; likewise."""
    high: np.ndarray
    """The upper edge."""
    is_inside: np.ndarray
    """Whether the ratio is in the band, bool; True where nothing is observed."""


class RunningCalibration:
    """Says whether the model of an online filter is still right, by its last innovations.

    The sum of the normalised innovations squared (`Step.nis`) over a window is χ² if the model is
    right, with two degrees of freedom for each observed component, of real series with one
    (Bar-Shalom, Li & Kirubarajan, *Estimation with Applications to Tracking and Navigation*, 2001,
    §5.4). A ratio to the degrees of freedom above the band shows predictions that are too sure, and
    below it predictions that are too cautious. The band is so wide that a right model leaves it in
    less than 5 % of spans of 100 windows, in any of the series that are followed together. Until
    the window is full, and where samples are missing, it is wider.

    Hyperparameters that were learned from few samples are not exactly right, and a long window
    shows it. Observations that a gate skips count, so that a filter that has lost its track is
    seen. Under a likelihood that is not normal innovations are not what is assumed here.

    Args:
        window: The number of the last samples that are compared, at least 2, missing ones included.
            A window of n shows a power that is wrong by a factor of about `1 + 5/√n`.

    Raises:
        TypeError, ValueError: A window that is not a whole number of at least 2.

    Example:
        >>> import numpy as np, cgp
        >>> kernel, x = cgp.kernels.Matern12(1.0, 5.0), np.arange(100.0)
        >>> gp = cgp.StateSpaceGP(kernel, noise_variance=1.0)
        >>> [z] = gp.sample(x, seed=0, observed=True)
        >>> health = cgp.metrics.RunningCalibration(window=50)
        >>> result = [health.update(gp.step(x_t, z_t)) for x_t, z_t in zip(x, z)][-1]
        >>> print(f"{result.low:.2f} < {result.ratio:.2f} < {result.high:.2f}")
        0.49 < 1.18 < 1.75
        >>> bool(result.is_inside)
        True
    """

    def __init__(self, window: int = 100) -> None:
        self.window = whole_steps(window, "window", least=2)
        self._squares = self._degrees = np.zeros(0)
        self._count = 0

    def update(self, step: Step) -> Calibration:
        """Takes the result of `step`, of one sample, or of one of each of several series.

        Returns:
            The calibration of the last samples, arrays `[...]` of the series, as `step.nis`.

        Warns:
            RuntimeWarning: A series has left its band. It is said again only after the series has
                been inside for as many samples as the window has.

        Raises:
            TypeError: Not a `Step`.
            ValueError: Another number of series than before.
        """
        squares, degrees = _squares_and_degrees(step)
        running = self._updated(squares[..., None], degrees[..., None])
        return Calibration(*(a[..., -1][()] for a in running))

    def update_block(self, steps: Step) -> Calibration:
        """Takes the result of `process`, or of `Step.stack`, of a block of T samples.

        Returns:
            The calibration after each sample of the block, arrays `[..., T]`, as `steps.nis`.

        Warns:
            RuntimeWarning: As `update`, once for a block.

        Raises:
            TypeError: Not a `Step`.
            ValueError: The result of `step` for one sample; another number of series than before.
        """
        squares, degrees = _squares_and_degrees(steps)
        if not squares.ndim:
            raise ValueError(
                "expected the result of process, [..., T], got that of step, of one sample, which "
                "update takes"
            )
        return self._updated(squares, degrees)

    def _updated(self, squares: np.ndarray, degrees: np.ndarray) -> Calibration:
        """The calibration after each of the samples `[..., T]`."""
        series = squares.shape[:-1]
        if not self._count:
            self._squares = self._degrees = np.zeros((*series, self.window - 1))
            self._since_outside = np.full(series, self.window)
        if series != self._since_outside.shape:
            raise ValueError(
                f"expected steps of series {self._since_outside.shape}, as before, got {series}: "
                "update takes the result of step, update_block that of process, and another "
                "filter needs a RunningCalibration of its own"
            )
        self._count += squares.shape[-1]
        self._squares = np.concatenate([self._squares, squares], axis=-1)
        self._degrees = np.concatenate([self._degrees, degrees], axis=-1)
        totals, freedom = (running_sums(a, self.window) for a in (self._squares, self._degrees))
        keep = self._squares.shape[-1] - (self.window - 1)
        self._squares, self._degrees = self._squares[..., keep:], self._degrees[..., keep:]
        ratio = np.where(freedom > 0, totals / np.maximum(freedom, 1.0), np.nan)
        windows = _SPAN * self.window * max(self._since_outside.size, 1)
        low, high = band(freedom, 0.5 * _FALSE_ALARMS / windows)
        result = Calibration(ratio, low, high, (freedom == 0) | ((low <= ratio) & (ratio <= high)))
        self._warn(result)
        return result

    def _warn(self, of: Calibration) -> None:
        """Warns of the series that leave their band, at the first sample where one does."""
        if of.is_inside.all() and np.all(self._since_outside >= self.window):
            return
        leaving = np.zeros(of.is_inside.shape, bool)
        for t in range(of.is_inside.shape[-1]):
            outside = ~of.is_inside[..., t]
            leaving[..., t] = outside & (self._since_outside >= self.window)
            self._since_outside = np.where(outside, 0, self._since_outside + 1)
        if not leaving.any():
            return
        t = int(np.argmax(leaving.any(axis=tuple(range(leaving.ndim - 1)))))
        number = np.argwhere(leaving[..., t])[0]
        ratio, low, high = (float(a[(*number, t)]) for a in of[:3])
        of_series = ""
        if number.size:
            count = np.count_nonzero(leaving.any(axis=-1)) - 1
            of_series = f" of series {', '.join(map(str, number))}"
            of_series += f" (and of {count} more)" if count else ""
        verdict, regions = ("too sure", "narrow") if ratio > 1.0 else ("too cautious", "wide")
        sample = self._count - of.is_inside.shape[-1] + t
        warnings.warn(
            f"the predictions{of_series} are {verdict}, their regions too {regions}: up to sample "
            f"{sample} the innovations of the last {min(self.window, sample + 1)} have {ratio:.3g} "
            f"times the power that the model predicts, and a right model has {low:.3g} to "
            f"{high:.3g} times. Learn the hyperparameters again from recent samples",
            RuntimeWarning,
            stacklevel=4,
        )


def _squares_and_degrees(step: Step) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(step, Step):
        raise TypeError(f"step must be the Step of a filter, got {type(step).__name__}")
    return squares_and_degrees(step)


def coverage(z: ArrayLike, prediction: Prediction, probability: float = 0.95) -> float:
    """The fraction of targets inside their credible ellipse.

    It is close to `probability` where the predicted uncertainty is right.

    Args:
        z: As for `negative_log_predictive_density`.
        prediction: As for `negative_log_predictive_density`.
        probability: The probability of the ellipse; see `ComplexNormal.ellipses`.

    Returns:
        The fraction, between 0 and 1.

    Raises:
        TypeError: Real targets, or not a prediction.
        ValueError: Shapes differ, keys are missing, every target is missing, or a probability is
            out of range.

    Example:
        >>> import numpy as np
        >>> from cgp.metrics import coverage
        >>> zero = np.zeros(2, complex)
        >>> prediction = {"mean": zero, "variance": np.ones(2), "pseudo_variance": zero}
        >>> coverage(np.array([0.5j, 2.0]), prediction)  # the circle's radius is 1.73
        0.5
    """
    limit = squared_radius(probability)
    along, across, larger, smaller = _principal(z, prediction)
    # Multiplied out instead of divided, as an ellipse may be a line segment or a point.
    distance = along**2 * smaller + across**2 * larger
    inside = (along**2 <= limit * larger) & (across**2 <= limit * smaller)
    return float(np.mean(inside & (distance <= limit * larger * smaller)))


class _SquaredError(keras.metrics.Metric):
    """Base of metrics that are functions of sums over an epoch."""

    def __init__(self, name: str, dtype: str = "float64") -> None:
        super().__init__(name=name, dtype=dtype)
        self.error, self.power, self.count = (
            self.add_weight(name=sum_, initializer="zeros", dtype=self.dtype)
            for sum_ in ("error", "power", "count")
        )

    def update_state(
        self, y_true: ArrayLike, y_pred: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> None:
        """Adds the sums of a batch."""
        sums = _squared_sums(y_true, y_pred, sample_weight)
        for total, batch_sum in zip((self.error, self.power, self.count), sums, strict=True):
            total.assign_add(tf.cast(batch_sum, self.dtype))


@keras.saving.register_keras_serializable(package="cgp")
class MeanSquaredModulus(_SquaredError):
    """`mean_squared_modulus` over the batches of an epoch, for `compile(metrics=[...])`.

    Args:
        name: Name of the metric in the training history.
        dtype: Dtype of the sums; "float64" whatever Keras's global floatx.

    Call arguments:
        y_true: Complex targets; NaN where missing.
        y_pred: Complex, of the same shape.
        sample_weight: Real, shaped like `y_true` or its leading axes.

    Example:
        >>> import numpy as np
        >>> from cgp.metrics import MeanSquaredModulus
        >>> metric = MeanSquaredModulus()
        >>> metric.update_state(np.array([1j, 2j]), np.array([0j, 0j]))
        >>> float(metric.result())
        2.5
    """

    def __init__(self, name: str = "mean_squared_modulus", dtype: str = "float64") -> None:
        super().__init__(name, dtype)

    def result(self) -> tf.Tensor:
        """The mean so far, a real scalar; NaN where no target has come, or all were missing."""
        return self.error.value / self.count.value


@keras.saving.register_keras_serializable(package="cgp")
class NormalizedErrorDB(_SquaredError):
    """`normalized_error_db` over the batches of an epoch, for `compile(metrics=[...])`.

    This is the ratio of sums over the epoch, not the mean of the decibels of its batches.

    Args:
        name: Name of the metric in the training history.
        dtype: Dtype of the sums; "float64" whatever Keras's global floatx.

    Call arguments: As for `MeanSquaredModulus`.

    Example:
        >>> import numpy as np
        >>> from cgp.metrics import NormalizedErrorDB
        >>> metric = NormalizedErrorDB()
        >>> metric.update_state(np.array([1j, 1.0]), np.array([0.9j, 0.9]))
        >>> round(float(metric.result()), 9)
        -20.0
    """

    def __init__(self, name: str = "normalized_error_db", dtype: str = "float64") -> None:
        super().__init__(name, dtype)

    def result(self) -> tf.Tensor:
        """The ratio so far in decibels, a real scalar; NaN before the first batch."""
        return _decibels(self.error.value, self.power.value)


def _squared_sums(
    z: ArrayLike, predicted: ArrayLike, sample_weight: ArrayLike | None = None
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """`Σ|z − predicted|²`, `Σ|z|²` and the number of targets that are not missing; float64."""
    check_same_labels(z=(z, 0), predicted=(predicted, 0))
    if sample_weight is not None:
        unpaired = np.ndim(z) - np.ndim(sample_weight)
        check_same_labels(z=(z, unpaired), sample_weight=(sample_weight, 0))
    _refuse_mask(z)
    z, predicted = _as_complex(z, "the target"), _as_complex(predicted, "the prediction")
    if tf.executing_eagerly():
        check_no_infinity(np.asarray(z), "the target")
    shapes = f"{z.shape} and {predicted.shape}"
    if not z.shape.is_compatible_with(predicted.shape):
        raise ValueError(f"target and prediction must have one shape, got {shapes}")
    error = predicted - z
    observed = ~is_missing(z)
    weight = tf.cast(observed, tf.float64)
    if sample_weight is not None:
        weight *= _as_weight(sample_weight, z.shape)

    def total(values: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.where(observed, weight * squared_modulus(values), 0.0))

    return total(error), total(z), tf.reduce_sum(weight)


def _as_weight(sample_weight: ArrayLike, shape: tf.TensorShape) -> tf.Tensor:
    """Weights of targets of a shape, or of its leading axes, with all its axes; float64."""
    weight = tf.convert_to_tensor(as_numbers(sample_weight, "sample_weight"))
    if weight.dtype.is_complex:
        raise TypeError(f"sample_weight must be real, got {weight.dtype.name}")
    rank = min(weight.shape.rank, shape.rank)
    leading = shape[:rank]
    try:
        fits = leading.is_compatible_with(tf.broadcast_static_shape(weight.shape, leading))
    except ValueError:
        fits = False
    if not fits:
        expected = f"the shape of the target, {shape}, or of its leading axes"
        raise ValueError(f"sample_weight must have {expected}, got {weight.shape}")
    weight = tf.cast(weight, tf.float64)
    known_weight = tf.get_static_value(weight)
    if known_weight is not None and not np.all((known_weight >= 0) & np.isfinite(known_weight)):
        raise ValueError("sample_weight must be finite and not negative")
    return tf.reshape(weight, tf.concat([tf.shape(weight), [1] * (shape.rank - rank)], axis=0))


def _as_complex(values: ArrayLike, name: str) -> tf.Tensor:
    """Converts targets or predicted values to complex128; a real dtype is an error."""
    if isinstance(values, Mapping):
        kind = type(values).__name__
        remedy = 'of a prediction, give prediction["mean"]'
        raise TypeError(f"{name} must be complex, got a {kind}: {remedy}")
    numbers = tf.convert_to_tensor(as_numbers(values, name))
    if not numbers.dtype.is_complex:
        raise TypeError(f"{name} must be complex, got {numbers.dtype.name}")
    return tf.cast(numbers, tf.complex128)


def _refuse_mask(z: ArrayLike) -> None:
    if np.ma.is_masked(z):
        remedy = "give NaN where it is missing, np.ma.filled(z, np.nan)"
        raise ValueError(f"the target has masked elements: {remedy}")


def _decibels(error: tf.Tensor, power: tf.Tensor) -> tf.Tensor:
    """`10 log10(error / power)`."""
    return 10.0 / np.log(10.0) * tf.math.log(error / power)


def _require_some(count: float | tf.Tensor) -> None:
    """Raises a ValueError if no target is left."""
    if not count > 0:
        raise ValueError("there is nothing to compare: every target is missing (NaN)")


def _principal(
    z: ArrayLike, prediction: Prediction
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Errors along each point's major and minor axis, and the variances along these.

    Each is real, `[points]`; missing targets are left out.
    """
    mean, variance, pseudo_variance = marginals(prediction)
    components = max(mean.ndim - getattr(z, "ndim", 0), 0)
    moments = {name: (a, components) for name, a in labelled_moments(prediction).items()}
    check_same_labels(z=(z, 0), **moments)
    _refuse_mask(z)
    z = np.asarray(as_numbers(z, "the target"))
    if not np.iscomplexobj(z):
        raise TypeError(f"the target must be complex, got {z.dtype}")
    if mean.shape == (*z.shape, 1):
        z = z[..., None]
    shapes = f"{z.shape} and {mean.shape}"
    if z.shape != mean.shape:
        raise ValueError(f"target and prediction must have one shape, got {shapes}")
    check_no_infinity(z, "the target")
    observed = ~np.isnan(z)
    _require_some(np.sum(observed))
    z, mean, v, w = (values[observed] for values in (z, mean, variance, pseudo_variance))
    if not np.all(np.isfinite(mean) & np.isfinite(v) & np.isfinite(w)):
        raise ValueError("the prediction has elements that are NaN or infinite")
    larger, smaller, angle = map(np.asarray, principal_axes(v, w))
    turned = (z - mean) * np.exp(-1j * angle)
    return turned.real, turned.imag, larger, smaller
