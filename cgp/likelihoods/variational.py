"""Sites of the normal posterior that comes nearest in the sense of variational inference."""

import math
from abc import abstractmethod

import tensorflow as tf

from cgp.likelihoods.base import Likelihood
from cgp.likelihoods.sites import (
    LEAST,
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

    With m and V the moments of q, and E(m, V) the expected log density of an observation under it,
    the normal density whose derivatives by m and V under the same expectation are those of E has
    the precision and the mean

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
