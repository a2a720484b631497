"""Random walks: the integral of white noise, and the integral of that."""

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.base import Kernel
from cgp.kernels.data_scales import StartRules
from cgp.kernels.markov import (
    Generator,
    MarkovForm,
    Pair,
    emission_of_last,
    over_points,
    stack_matrices,
)
from cgp.linalg.arguments import ArrayLike, as_complex
from cgp.training.hyperparameters import Hyperparameter, declared, one_number, setting
from cgp.training.parameters import POSITIVE, Parameter


class _FromStart(Kernel):
    """A process that is zero at a start, and not defined before it."""

    is_real = True
    is_walk = True
    start: float

    def since(self, x: tf.Tensor) -> tf.Tensor:
        """The distance `x − start` of points `[..., 1]`, `[...]`; NaN before the start."""
        if x.shape[-1] not in (1, None):
            raise ValueError(f"a random walk needs inputs of one dimension, got {x.shape[-1]}")
        since = x[..., 0] - self.start
        if tf.executing_eagerly() and bool(tf.reduce_any(since < 0)):
            raise ValueError(
                f"{self!r} starts at {self.start}, but x goes back to "
                f"{float(tf.reduce_min(x)):g}: give it an earlier start"
            )
        return _nan_if_negative(since)

    def has_level(self, x: np.ndarray) -> bool:
        """Whether a large constant is likely: yes if it began over a span of x ago."""
        return bool(np.min(x) - self.start > np.ptp(x))

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, start={self.start:g})"


def finite_number(number: float, name: str) -> float:
    """Returns a finite real number, or raises an error."""
    if np.iscomplexobj(one_number(number, name)) or not np.isfinite(number):
        raise ValueError(f"{name} must be a finite real number, got {number!r}")
    return float(number)


def _nan_if_negative(since: tf.Tensor) -> tf.Tensor:
    return tf.where(since < 0, tf.constant(np.nan, since.dtype), since)


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class RandomWalk(_FromStart):
    """The random walk, `variance · min(x1 − start, x2 − start)`: a level that drifts.

    It is zero at the start; `+ Constant(...)` for a level that is not known there.

    Args:
        variance: Of the change over a unit of x, positive; in squared units of z per unit of x.
        start: Where the walk is zero; all x are at or beyond it.
        fixed, priors, name, dtype: As for `RBF`.

    Example:
        >>> from cgp.kernels import RandomWalk
        >>> RandomWalk(variance=2.0).covariance([1.0, 3.0]).numpy().real
        array([[2., 2.],
               [2., 6.]])
    """

    variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    start: float = setting(finite_number, default=0.0)

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        return self.variance.value * tf.minimum(self.since(x1), self.since(x2)), None

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The starting variance, with which the walk reaches the size of z over the span of x."""
        return rules.variance() / rules.scales.span

    def markov_form(self) -> MarkovForm:
        """The state-space form, of one state, the sum of white noise."""
        variance = self.variance.value
        identity = tf.ones([1, 1], as_complex(variance).dtype)
        return MarkovForm(
            lambda step: over_points(identity, step),
            lambda x, step: (over_points(identity, step), stack_matrices([[variance * step]])),
            lambda x: stack_matrices([[variance * _nan_if_negative(x - self.start)]]),
            identity[0],
            generator=Generator(tf.zeros_like(identity), stack_matrices([[variance]])),
            is_stationary=False,
        )


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class IntegratedRandomWalk(_FromStart):
    """A trend: the integral of a slope that is a random walk.

    With a and b the smaller and the larger of `x1 − start` and `x2 − start`, it is
    `variance · a² (3b − a) / 6 + slope_variance · a b`: zero at the start, `+ Constant(...)` for a
    level that is not known there, `+ RandomWalk(...)` for one that drifts by itself.

    Args:
        variance: Of the change of slope over a unit of x, positive; in squared units of z per x³.
        slope_variance: Of the slope at the start, positive; in squared units of z per x².
        start: Where the level is zero; all x are at or beyond it.
        fixed, priors, name, dtype: As for `RBF`.

    Example:
        >>> from cgp.kernels import IntegratedRandomWalk
        >>> kernel = IntegratedRandomWalk(variance=3.0, slope_variance=1.0)
        >>> kernel.covariance([1.0, 2.0]).numpy().real
        array([[ 2. ,  4.5],
               [ 4.5, 12. ]])
    """

    trend_degree = 1  # it follows a line
    variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    slope_variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    start: float = setting(finite_number, default=0.0)

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        first, second = self.since(x1), self.since(x2)
        a, b = tf.minimum(first, second), tf.maximum(first, second)
        bend = self.variance.value * a**2 * (3.0 * b - a) / 6.0
        return bend + self.slope_variance.value * a * b, None

    def scale_parameters(self) -> list[Parameter] | None:
        """The parameters that scale all moments, both variances."""
        return [self.variance, self.slope_variance]

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The starting variances, with which slope and bend take z to its size over the span."""
        if name == "slope_variance":
            return rules.trend_variance(1) / rules.scales.span**2
        return rules.variance() / rules.scales.span**3

    def markov_form(self) -> MarkovForm:
        """The state-space form: the slope, a random walk, and the level, its integral."""
        variance, slope_variance = self.variance.value, self.slope_variance.value

        def transition(step: tf.Tensor) -> tf.Tensor:
            diagonal, zero = tf.ones_like(step), tf.zeros_like(step)
            return stack_matrices([[diagonal, zero], [step, diagonal]])

        def noise(step: tf.Tensor) -> tf.Tensor:
            rows = [[step, step**2 / 2.0], [step**2 / 2.0, step**3 / 3.0]]
            return as_complex(variance) * stack_matrices(rows)

        def covariance(x: tf.Tensor) -> tf.Tensor:
            since = _nan_if_negative(x - self.start)
            first = stack_matrices([[tf.ones_like(since), since], [since, since**2]])
            return noise(since) + as_complex(slope_variance) * first

        zero, unit = tf.zeros_like(variance), tf.ones_like(variance)
        generator = Generator(
            stack_matrices([[zero, zero], [unit, zero]]),
            stack_matrices([[variance, zero], [zero, zero]]),
        )
        return MarkovForm(
            transition,
            lambda x, step: (transition(step), noise(step)),
            covariance,
            emission_of_last(2, as_complex(variance).dtype),
            generator=generator,
            is_stationary=False,
        )
