"""The posterior of a Gaussian process at new points, computed as far as it is asked for."""

import functools
from collections.abc import Callable

import tensorflow as tf

from cgp.distributions import ComplexNormal
from cgp.distributions.forms import Form, SecondMoments
from cgp.linalg import semidefinite_factor


class Posterior(ComplexNormal):
    """A `ComplexNormal` whose mean and variances are known, and whose covariance follows.

    Means and variances at M points take O(N²M), their covariance and its factor O(M³) more. The
    latter are worked out when something (`covariance`, `sample`, `log_prob`, …) first needs them.

    Args:
        mean: Complex, `[..., M]`.
        marginal: Variance, complex with zero imaginary part, and pseudo-variance, None when proper;
            each `[..., M]`.
        joint: Function without arguments that returns the working covariance of the form.
        form: Complex or real composite.
        scale: The magnitude that the rounding of the covariance is relative to, `[...]`: what a
            posterior covariance is the difference of is much larger than itself.
    """

    def __init__(
        self,
        mean: tf.Tensor,
        marginal: SecondMoments,
        joint: Callable[[], tf.Tensor],
        form: Form,
        scale: tf.Tensor,
    ):
        self._loc, self._marginal, self._form, self._scale = mean, marginal, form, scale
        # a tensor of a graph must not outlive it
        self._joint = functools.cache(joint) if tf.executing_eagerly() else joint

    @property
    def is_proper(self) -> bool:
        """Whether the pseudo-covariance is zero."""
        return self._marginal.c is None

    def variance(self) -> tf.Tensor:
        """See `ComplexNormal.variance`."""
        # Where the data pin the signal down rounding may leave −1e-17.
        return self._to_batch(tf.maximum(tf.math.real(self._marginal.k), 0.0), 1)

    def pseudo_variance(self) -> tf.Tensor:
        """See `ComplexNormal.pseudo_variance`."""
        if self._marginal.c is None:
            return tf.zeros_like(self.mean())
        return self._to_batch(self._marginal.c, 1)

    def covariance(self) -> tf.Tensor:
        """See `ComplexNormal.covariance`."""
        return self._to_batch(self._form.moments(self._joint()).k, 2)

    def pseudo_covariance(self) -> tf.Tensor:
        """See `ComplexNormal.pseudo_covariance`."""
        return self._to_batch(self._form.moments(self._joint()).c_or_zeros(), 2)

    def _to_batch(self, moment: tf.Tensor, event_rank: int) -> tf.Tensor:
        # In a graph that does not know how many batch axes there are, `Data.spread` has given all.
        return moment if moment.shape.rank is None else super()._to_batch(moment, event_rank)

    def _factor(self) -> tf.Tensor:
        return semidefinite_factor(self._joint(), self._scale)
