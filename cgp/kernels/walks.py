"""Random walks: a level, or a slope, that adds up white noise."""

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels import markov
from cgp.kernels.base import Kernel
from cgp.kernels.points import one_number
from cgp.training.parameters import POSITIVE


class _FromStart(Kernel):
    """A process that is zero at a start, and of which nothing is said before it."""

    is_real = True
    is_markov = True

    def __init__(self, start, *, name=None, dtype="float64", **kwargs):
        super().__init__(name=name, dtype=dtype, **kwargs)
        if np.iscomplexobj(one_number(start, "start")) or not np.isfinite(start):
            raise ValueError(f"start must be a finite real number, got {start!r}")
        self.start = float(start)

    def since(self, x: tf.Tensor) -> tf.Tensor:
        """`x − start` of points `[..., 1]`, `[...]`; NaN before the start."""
        if x.shape[-1] not in (1, None):
            raise ValueError(f"a random walk needs inputs of one dimension, got {x.shape[-1]}")
        since = x[..., 0] - self.start
        if tf.executing_eagerly() and bool(tf.reduce_any(since < 0)):
            raise ValueError(
                f"{self!r} starts at {self.start}, but x goes back to "
                f"{float(tf.reduce_min(x)):g}: give it an earlier start"
            )
        return tf.where(since < 0, tf.constant(np.nan, since.dtype), since)

    def get_config(self):
        """The constructor's arguments."""
        return {**super().get_config(), "start": self.start}

    def __repr__(self):
        return f"{super().__repr__()[:-1]}, start={self.start:g})"


@keras.saving.register_keras_serializable(package="cgp.kernels")
class RandomWalk(_FromStart):
    """The random walk, `variance · min(x1 − start, x2 − start)`: a level that drifts.

    It is zero at the start; `+ Constant(...)` for a level that is not known there.

    Args:
        variance: Of the change over a unit of x, positive: in units of |z|² over those of x.
        start: Before all x.
        fixed: Names of parameters that training leaves alone.
        priors: TFP distributions of parameters, by name.
        name: A name for its parameters.
        dtype: "float64" or "float32".

    Example:
        >>> from cgp.kernels import RandomWalk
        >>> RandomWalk(variance=2.0).covariance([1.0, 3.0]).numpy().real
        array([[2., 2.],
               [2., 6.]])
    """

    def __init__(
        self, variance=1.0, start=0.0, *, fixed=(), priors=None, name=None, dtype="float64", **kw
    ):
        super().__init__(start, name=name, dtype=dtype, **kw)
        values = {"variance": (one_number(variance, "variance"), POSITIVE)}
        self.declare_parameters(values, fixed, priors)

    def moments(self, x1, x2):
        """See `Kernel.moments`."""
        return self.variance.value * tf.minimum(self.since(x1), self.since(x2)), None

    def markov_form(self):
        """See `Kernel.markov_form`."""
        return markov.random_walk(self.variance.value, self.start)


@keras.saving.register_keras_serializable(package="cgp.kernels")
class IntegratedRandomWalk(_FromStart):
    """A trend: the integral of a slope that is a random walk.

    With a and b the smaller and the larger of `x1 − start` and `x2 − start`, it is
    `variance · a² (3b − a) / 6 + slope_variance · a b`: zero at the start, `+ Constant(...)` for a
    level that is not known there, `+ RandomWalk(...)` for one that drifts by itself.

    Args:
        variance: Of the change of the slope over a unit of x, positive: in units of |z|² over the
            cube of those of x.
        slope_variance: Of the slope at the start, positive: |z|² over the square.
        start: Before all x.
        fixed: Names of parameters that training leaves alone.
        priors: TFP distributions of parameters, by name.
        name: A name for its parameters.
        dtype: "float64" or "float32".

    Example:
        >>> from cgp.kernels import IntegratedRandomWalk
        >>> kernel = IntegratedRandomWalk(variance=3.0, slope_variance=1.0)
        >>> kernel.covariance([1.0, 2.0]).numpy().real
        array([[ 2. ,  4.5],
               [ 4.5, 12. ]])
    """

    def __init__(
        self,
        variance=1.0,
        slope_variance=1.0,
        start=0.0,
        *,
        fixed=(),
        priors=None,
        name=None,
        dtype="float64",
        **kwargs,
    ):
        super().__init__(start, name=name, dtype=dtype, **kwargs)
        values = {
            "variance": (one_number(variance, "variance"), POSITIVE),
            "slope_variance": (one_number(slope_variance, "slope_variance"), POSITIVE),
        }
        self.declare_parameters(values, fixed, priors)

    def moments(self, x1, x2):
        """See `Kernel.moments`."""
        first, second = self.since(x1), self.since(x2)
        a, b = tf.minimum(first, second), tf.maximum(first, second)
        bend = self.variance.value * a**2 * (3.0 * b - a) / 6.0
        return bend + self.slope_variance.value * a * b, None

    def markov_form(self):
        """See `Kernel.markov_form`."""
        variances = self.variance.value, self.slope_variance.value
        return markov.integrated_random_walk(*variances, self.start)
