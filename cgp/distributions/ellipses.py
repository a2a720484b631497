"""The ellipses in the complex plane that hold a complex normal component with a probability."""

import math
from typing import NamedTuple

import tensorflow as tf


class Ellipses(NamedTuple):
    """Credible ellipses in the complex plane, one for each component; see `ComplexNormal`."""

    center: tf.Tensor
    """Complex, `[..., n]`."""
    semi_major: tf.Tensor
    """Real, `[..., n]`, in the units of z."""
    semi_minor: tf.Tensor
    """Real, `[..., n]`, in the units of z."""
    angle: tf.Tensor
    """Real, `[..., n]`: of the major axis from the real axis, radians, in (−π/2, π/2]."""


class PrincipalAxes(NamedTuple):
    """The 2×2 covariances of components as vectors of the plane, each diagonalised."""

    larger: tf.Tensor
    """Variance along the major axis, real, `[...]`."""
    smaller: tf.Tensor
    """Variance along the minor axis, real, `[...]`, not negative."""
    angle: tf.Tensor
    """Of the major axis from the real axis, radians, in (−π/2, π/2]; 0 when proper."""


def principal_axes(variance, pseudo_variance) -> PrincipalAxes:
    """The principal axes of components of given variances.

    The eigenvalues of the covariance of [Re z; Im z] are `(variance ± |pseudo_variance|)/2`, the
    larger one along `½ arg(pseudo_variance)` (Schreier & Scharf, 2010, §1.3).

    Args:
        variance: `E|z−m|²`, real, `[...]`.
        pseudo_variance: `E[(z−m)²]`, complex, `[...]`, of the precision of the result.

    Example:
        >>> import numpy as np
        >>> from cgp.distributions import principal_axes
        >>> larger, smaller, angle = principal_axes(np.array([3.0]), np.array([1.0j]))
        >>> larger.numpy(), smaller.numpy(), angle.numpy().round(3)  # π/4
        (array([2.]), array([1.]), array([0.785]))
    """
    modulus = tf.abs(pseudo_variance)
    variance = tf.cast(variance, modulus.dtype)
    return PrincipalAxes(
        larger=0.5 * (variance + modulus),
        # Of a line segment rounding may leave −1e-17, or −0.0.
        smaller=0.5 * tf.maximum(variance - modulus, 0.0),
        angle=0.5 * tf.math.angle(pseudo_variance),
    )


def ellipses(center, variance, pseudo_variance, probability: float) -> Ellipses:
    """The ellipse about each centre that holds its component with a probability.

    Its semi-axes are the standard deviations along the principal axes times `squared_radius`^½.

    Args:
        center: Means, complex, `[...]`.
        variance: `E|z−m|²`, real, `[...]`.
        pseudo_variance: `E[(z−m)²]`, complex, `[...]`.
        probability: Between 0 and 1, exclusive.

    Example:
        >>> import numpy as np
        >>> from cgp.distributions import ellipses
        >>> drawn = ellipses(np.array([0j]), np.array([3.0]), np.array([1.0j]), probability=0.95)
        >>> (drawn.semi_major / drawn.semi_minor).numpy().round(3)  # of variances 2 and 1
        array([1.414])
    """
    factor = squared_radius(probability)
    larger, smaller, angle = principal_axes(variance, pseudo_variance)
    return Ellipses(center, tf.sqrt(factor * larger), tf.sqrt(factor * smaller), angle)


def squared_radius(probability: float) -> float:
    """The squared radius that holds a two-dimensional unit normal with a probability.

    It is the quantile `−2 ln(1−p)` of the chi-squared distribution with two degrees of freedom.

    Raises:
        ValueError: A probability that is not between 0 and 1.

    Example:
        >>> from cgp.distributions import squared_radius
        >>> round(squared_radius(0.95), 3)
        5.991
    """
    check_probability(probability)
    return -2.0 * math.log1p(-probability)


def check_probability(probability: float) -> None:
    """Raises for what is no probability, or one of 0 or 1."""
    if not 0.0 < probability < 1.0:
        raise ValueError(f"probability must lie between 0 and 1, got {probability}")
