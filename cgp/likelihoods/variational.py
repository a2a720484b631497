"""Sites of the normal posterior that comes nearest in the sense of variational inference."""

import functools
import math
from abc import abstractmethod

import numpy as np
import tensorflow as tf

from cgp.likelihoods.base import (
    LEAST,
    Likelihood,
    Moments,
    Site,
    at_least,
    inverse,
    log_determinant,
    product,
    quadratic,
    trace,
)


class Variational(Likelihood):
    """A likelihood by its expected log density.

    With m and V the moments of q, and E(m, V) the expected log density of an observation under q,
    the normal density whose expected logarithm has the same derivatives by m and V has the
    precision and the mean

        Λ = −2 ∂E/∂V,    ỹ = m + Λ⁻¹ ∂E/∂m.

    Where q is the posterior that these sites give, it is the variational one (Khan & Lin, AISTATS
    2017; Opper & Archambeau, Neural Comput. 21, 2009), and the log likelihood is a lower bound.
    """

    @abstractmethod
    def expected_log_density(
        self, z: tf.Tensor, mean: tf.Tensor, covariance: tf.Tensor, variance: tf.Tensor
    ) -> tf.Tensor:
        """E log p(z | g), or a lower bound of it, for g normal, real, `[...]`.

        Args:
            z: Observations, real coordinates, `[d, ...]`, d being 1 or 2.
            mean: Of g, `[d, ...]`.
            covariance: Of g, `[d, d, ...]`.
            variance: σ² = E|n|² of the noise, of all coordinates together, `[...]`.
        """

    def site(self, z: tf.Tensor, q: Moments, last: Site, variance: tf.Tensor) -> Site:
        """The site of the derivatives of the expected log density by the moments of q."""
        del last
        with tf.GradientTape() as tape:
            tape.watch(q)
            expected = self.expected_log_density(z, *q, variance)
        by_mean, by_covariance = tape.gradient(expected, q)
        precision = -(by_covariance + tf.einsum("ij...->ji...", by_covariance))
        precision = at_least(precision, LEAST * z.shape[0] / trace(q.covariance))
        return Site(q.mean + product(inverse(precision), by_mean), precision)

    def correction(self, z: tf.Tensor, q: Moments, site: Site, variance: tf.Tensor) -> tf.Tensor:
        """The expected log density of the observation minus that of its site."""
        square = quadratic(site.precision, site.target - q.mean)
        square += tf.einsum("ij...,ji...->...", site.precision, q.covariance)
        constant = z.shape[0] * math.log(2.0 * math.pi)
        normal = 0.5 * (log_determinant(site.precision) - square - constant)
        return self.expected_log_density(z, *q, variance) - normal


@functools.cache
def _rule(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights for the standard normal, `[K]`."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    return nodes, weights / weights.sum()


def points_1d(mean: tf.Tensor, variance: tf.Tensor, order: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Points `[K, ...]` of a normal of moments `[...]`, and their weights, `[K]`."""
    nodes, weights = _rule(order)
    return mean + tf.sqrt(variance) * _column(nodes, mean), tf.constant(weights, mean.dtype)


def points_2d(
    mean: tf.Tensor, covariance: tf.Tensor, orders: tuple[int, int]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Points `[2, K L, ...]` of a normal of two dimensions, and their weights, `[K L]`.

    The mean is `[2, ...]`, the covariance `[2, 2, ...]`. The orders are K for the first coordinate
    and L for the second, given the first.
    """
    nodes, weights = zip(*map(_rule, orders), strict=True)
    x, y = (_column(a.ravel(), mean[0]) for a in np.meshgrid(*nodes, indexing="ij"))
    first = tf.sqrt(covariance[0, 0])
    slope = covariance[1, 0] / first
    # Rounding may leave a little less than zero.
    second = tf.sqrt(tf.maximum(covariance[1, 1] - slope * slope, 0.0))
    points = tf.stack([mean[0] + first * x, mean[1] + slope * x + second * y])
    return points, tf.constant(np.outer(*weights).ravel(), mean.dtype)


def _column(nodes: np.ndarray, like: tf.Tensor) -> tf.Tensor:
    """Nodes `[K, 1, …]`, to broadcast against moments."""
    return tf.reshape(tf.constant(nodes, like.dtype), [-1] + [1] * like.shape.rank)


def log_i0(x: tf.Tensor) -> tf.Tensor:
    """Log I₀(x) for real x."""
    return tf.math.log(tf.math.bessel_i0e(x)) + tf.abs(x)
