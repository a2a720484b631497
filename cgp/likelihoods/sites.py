"""The normal observation that stands for another one, where the signal is normal.

A *site* is a normal observation ỹ of the signal g, of precision Λ. Sites and the posterior q that
they give together with the prior of g are found in turns: q by the sites, the sites by q.
"""

from typing import NamedTuple

import tensorflow as tf

LEAST = 1e-8
"""The least precision of a site in any direction, as a share of that of q: an observation without
information is one of large variance."""


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

    @property
    def linear(self) -> tf.Tensor:
        """Λ ỹ, `[d, ...]`, the natural parameter beside the precision."""
        return product(self.precision, self.target)


def between(last: Site, following: Site, step: tf.Tensor) -> Site:
    """The site at a fraction `step` of the way to the following one, in natural parameters."""
    precision = last.precision + step * (following.precision - last.precision)
    linear = last.linear + step * (following.linear - last.linear)
    return Site(product(inverse(precision), linear), precision)


def distance(last: Site, following: Site, q: Moments) -> tf.Tensor:
    """The distance by which q moves where its site becomes the following one, `[...]`.

    In standard deviations of q, and in shares of its covariance.
    """
    precision = following.precision - last.precision
    linear = following.linear - last.linear - product(precision, q.mean)
    square = quadratic(q.covariance, linear)
    share = tf.einsum("ij...,jk...->ik...", precision, q.covariance)
    d = share.shape[0]
    square += tf.add_n([tf.square(share[i, j]) for i in range(d) for j in range(d)])
    return tf.sqrt(square)


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


def log_determinant(a: tf.Tensor) -> tf.Tensor:
    """The log determinants of symmetric positive matrices `[d, d, ...]`, `[...]`."""
    if a.shape[0] == 1:
        return tf.math.log(a[0, 0])
    return tf.math.log(a[0, 0] * a[1, 1] - a[1, 0] * a[1, 0])


def product(a: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """The products of matrices `[d, d, ...]` and vectors `[d, ...]`."""
    return tf.einsum("ij...,j...->i...", a, x)


def quadratic(a: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """The quadratic form xᵀ A x, `[...]`."""
    d, y = x.shape[0], product(a, x)
    return tf.add_n([x[i] * y[i] for i in range(d)])  # a sum over the axis XLA cannot take back


def trace(a: tf.Tensor) -> tf.Tensor:
    """The traces of matrices `[d, d, ...]`, `[...]`."""
    return tf.add_n([a[i, i] for i in range(a.shape[0])])


def at_least(a: tf.Tensor, least: tf.Tensor) -> tf.Tensor:
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
