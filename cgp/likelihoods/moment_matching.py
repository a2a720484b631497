"""Sites by which the posterior has the moments of the true one, observation by observation."""

import math
from abc import abstractmethod
from typing import ClassVar

import tensorflow as tf

from cgp.likelihoods.base import Likelihood
from cgp.likelihoods.sites import LEAST, Moments, Site

_LEAST_CAVITY = 1e-6
"""The least share of the precision of q that belongs to the cavity: rounding may leave none."""


class MomentMatched(Likelihood):
    """A likelihood of one real coordinate by its evidence.

    The *cavity* is q without the site, of mean m and variance V. Its product with the density has
    the normalizer Z(m, V), and, with α = ∂ log Z/∂m and β = −∂² log Z/∂m², the mean m + V α and the
    variance V − V² β. The site that gives q these moments has

        Λ = β / (1 − V β),    ỹ = m + (V + 1/Λ) α.

    That is expectation propagation (Minka, UAI 2001; Rasmussen & Williams, *Gaussian Processes for
    Machine Learning*, 2006, §3.6), in a filter of one observation a step assumed density filtering.
    """

    is_of_parts: ClassVar[bool] = True

    @abstractmethod
    def log_evidence(
        self, z: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, noise: tf.Tensor
    ) -> tf.Tensor:
        """The log evidence log E p(z | g), for g normal, all of one real coordinate, `[...]`.

        Args:
            z: Observations.
            mean: Of g.
            variance: Of g.
            noise: The variance of the noise.
        """

    def site(self, z: tf.Tensor, q: Moments, last: Site, variance: tf.Tensor) -> Site:
        """The site by which q gets the moments of the cavity times the density."""
        mean, spread = _cavity(q, last)
        with tf.GradientTape() as tape:
            tape.watch((mean, spread))
            evidence = self.log_evidence(z[0], mean, spread, variance)
        by_mean, by_variance = tape.gradient(evidence, (mean, spread))
        # The heat equation: 2 ∂Z/∂V = ∂²Z/∂m².
        share = spread * (tf.square(by_mean) - 2.0 * by_variance)
        share = tf.clip_by_value(share, LEAST, 1.0 - _LEAST_CAVITY)
        precision = share / (spread * (1.0 - share))
        target = mean + (spread + 1.0 / precision) * by_mean
        return Site(target[None], precision[None, None])

    def correction(self, z: tf.Tensor, q: Moments, site: Site, variance: tf.Tensor) -> tf.Tensor:
        """The log evidence of the observation minus that of its site."""
        mean, spread = _cavity(q, site)
        total = spread + 1.0 / site.precision[0, 0]
        square = tf.square(site.target[0] - mean) / total
        normal = -0.5 * (tf.math.log(2.0 * math.pi * total) + square)
        return self.log_evidence(z[0], mean, spread, variance) - normal


def _cavity(q: Moments, site: Site) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance of the cavity, q without the site, `[...]`."""
    mean, variance, precision = q.mean[0], q.covariance[0, 0], site.precision[0, 0]
    share = tf.maximum(1.0 - precision * variance, _LEAST_CAVITY)
    spread = variance / share
    return mean + spread * precision * (mean - site.target[0]), spread
