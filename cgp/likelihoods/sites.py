"""The normal observation that stands for another one, where the signal is normal.

With q the normal approximation of the posterior of a signal g, of mean m and covariance V, and
E(m, V) the expected log density of an observation under it, the normal density whose derivatives by
m and V under the same expectation are those of E has the precision and the mean

    Λ = −2 ∂E/∂V,    ỹ = m + Λ⁻¹ ∂E/∂m.

Where q is the posterior that these *sites* give, it is the variational one (Khan & Lin, AISTATS
2017; Opper & Archambeau, Neural Comput. 21, 2009). The log likelihood of the model is then bounded
by that of the sites as data, plus `correction`.
"""

import math
from typing import NamedTuple

import tensorflow as tf

from cgp.likelihoods.base import Likelihood

_LEAST = 1e-8
"""The least precision of a site in any direction, as a share of that of q: an observation that
tells next to nothing is one of large variance."""


class Moments(NamedTuple):
    """Moments of a normal in real coordinates."""

    mean: tf.Tensor
    """`[d, ...]`."""
    covariance: tf.Tensor
    """`[d, d, ...]`."""


class Site(NamedTuple):
    """A normal observation of the signal, in real coordinates."""

    target: tf.Tensor
    """ỹ, `[d, ...]`."""
    precision: tf.Tensor
    """Λ, `[d, d, ...]`, positive."""

    @property
    def covariance(self) -> tf.Tensor:
        """Λ⁻¹, `[d, d, ...]`, the covariance of its noise."""
        return inverse(self.precision)


def site_of(likelihood: Likelihood, z: tf.Tensor, q: Moments, variance: tf.Tensor) -> Site:
    """The site of an observation.

    Args:
        likelihood: The likelihood.
        z: Real coordinates, `[d, ...]`.
        q: The moments of g.
        variance: Of the noise, `[...]`.
    """
    with tf.GradientTape() as tape:
        tape.watch(q)
        expected = likelihood.expected_log_density(z, *q, variance)
    by_mean, by_covariance = tape.gradient(expected, q)
    precision = -(by_covariance + tf.einsum("ij...->ji...", by_covariance))
    d = z.shape[0]
    least = _LEAST * d / sum(q.covariance[i, i] for i in range(d))
    precision = _at_least(precision, least)
    return Site(q.mean + _product(inverse(precision), by_mean), precision)


def correction(
    likelihood: Likelihood, z: tf.Tensor, q: Moments, site: Site, variance: tf.Tensor
) -> tf.Tensor:
    """What an observation adds to the log likelihood beside its site, `[...]`.

    Args:
        likelihood: The likelihood.
        z: Real coordinates, `[d, ...]`.
        q: The moments of g given all sites.
        site: That of the observation.
        variance: Of the noise, `[...]`.
    """
    d = z.shape[0]
    deviation = site.target - q.mean
    square = tf.reduce_sum(deviation * _product(site.precision, deviation), axis=0)
    square += tf.einsum("ij...,ji...->...", site.precision, q.covariance)
    normal = 0.5 * (_log_determinant(site.precision) - square - d * math.log(2.0 * math.pi))
    return likelihood.expected_log_density(z, *q, variance) - normal


def between(last: Site, following: Site, step: float) -> Site:
    """Sites a step from the last to the following ones, in their natural parameters."""
    precision = last.precision + step * (following.precision - last.precision)
    one, other = (_product(site.precision, site.target) for site in (last, following))
    linear = one + step * (other - one)
    return Site(_product(inverse(precision), linear), precision)


def inverse(a: tf.Tensor) -> tf.Tensor:
    """The inverse of symmetric matrices `[d, d, ...]`, d being 1 or 2."""
    if a.shape[0] == 1:
        return 1.0 / a
    scale = 1.0 / (a[0, 0] * a[1, 1] - a[1, 0] * a[1, 0])
    return tf.stack(
        [
            tf.stack([a[1, 1] * scale, -a[1, 0] * scale]),
            tf.stack([-a[1, 0] * scale, a[0, 0] * scale]),
        ]
    )


def _log_determinant(a: tf.Tensor) -> tf.Tensor:
    if a.shape[0] == 1:
        return tf.math.log(a[0, 0])
    return tf.math.log(a[0, 0] * a[1, 1] - a[1, 0] * a[1, 0])


def _product(a: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    return tf.einsum("ij...,j...->i...", a, x)


def _at_least(a: tf.Tensor, least: tf.Tensor) -> tf.Tensor:
    """Symmetric matrices `[d, d, ...]` with eigenvalues raised to at least `least`, `[...]`."""
    if a.shape[0] == 1:
        return tf.maximum(a, least)
    middle, half = 0.5 * (a[0, 0] + a[1, 1]), 0.5 * (a[0, 0] - a[1, 1])
    square = half * half + a[1, 0] * a[1, 0]
    is_round = square <= 1e-24 * middle * middle  # where the eigenvectors are any
    radius = tf.sqrt(tf.where(is_round, tf.ones_like(square), square))
    high, low = tf.maximum(middle + radius, least), tf.maximum(middle - radius, least)
    # high P + low (1 − P), with P = ½ (1 + a'/radius) and a' = a less its half trace
    centre, slope = 0.5 * (high + low), 0.5 * (high - low) / radius
    round_one = tf.maximum(middle, least)
    first = tf.where(is_round, round_one, centre + slope * half)
    second = tf.where(is_round, round_one, centre - slope * half)
    off = tf.where(is_round, tf.zeros_like(half), slope * a[1, 0])
    return tf.stack([tf.stack([first, off]), tf.stack([off, second])])
