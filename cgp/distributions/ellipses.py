"""Principal axes and credible ellipses of complex normal components."""

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import ArrayLike, as_numbers
from cgp.linalg.short_repr import short_repr


@short_repr
class Ellipses(NamedTuple):
    """Credible ellipses in the complex plane, one for each component."""

    center: tf.Tensor
    """The mean, complex, `[..., n]`."""
    semi_major: tf.Tensor
    """The semi-major axis, real, `[..., n]`, in the units of z."""
    semi_minor: tf.Tensor
    """The semi-minor axis, real, `[..., n]`, in the units of z."""
    angle: tf.Tensor
    """Angle of the major axis from the real axis, real, `[..., n]`, radians, in (−π/2, π/2]."""


@short_repr
class PrincipalAxes(NamedTuple):
    """The principal axes of the covariances of [Re z; Im z], one for each component."""

    larger: tf.Tensor
    """Variance along the major axis, real, `[...]`."""
    smaller: tf.Tensor
    """Variance along the minor axis, real, `[...]`, not negative."""
    angle: tf.Tensor
    """Angle of the major axis from the real axis, radians, in (−π/2, π/2]; 0 if proper."""


def principal_axes(variance: ArrayLike, pseudo_variance: ArrayLike) -> PrincipalAxes:
    """The principal axes of components of given variance and pseudo-variance.

    The eigenvalues of the covariance of [Re z; Im z] are `(variance ± |pseudo_variance|)/2`, the
    larger one along `½ arg(pseudo_variance)` (Schreier & Scharf, 2010, §1.3).

    Args:
        variance: `E|z−m|²`, real, `[...]`.
        pseudo_variance: `E[(z−m)²]`, complex, `[...]`. The result has its precision.

    Returns:
        `PrincipalAxes(larger, smaller, angle)`, each real, `[...]`.

    Raises:
        TypeError: A complex variance, or not numbers.
        ValueError: Two shapes; eagerly, a variance that is negative, or below the modulus of the
            pseudo-variance, beyond rounding.

    Example:
        >>> import numpy as np
        >>> from cgp.distributions import principal_axes
        >>> larger, smaller, angle = principal_axes(np.array([3.0]), np.array([1.0j]))
        >>> larger.numpy(), smaller.numpy(), angle.numpy().round(3)  # π/4
        (array([2.]), array([1.]), array([0.785]))
    """
    variance, pseudo_variance = _as_variances(variance, pseudo_variance)
    modulus = tf.abs(pseudo_variance)
    return PrincipalAxes(
        # Rounding may leave −1e-17, or −0.0, where the ellipse is a point or a line segment.
        larger=0.5 * tf.maximum(variance + modulus, 0.0),
        smaller=0.5 * tf.maximum(variance - modulus, 0.0),
        angle=0.5 * tf.math.angle(pseudo_variance),
    )


def _as_variances(variance: ArrayLike, pseudo_variance: ArrayLike) -> tuple[tf.Tensor, tf.Tensor]:
    """A variance and a pseudo-variance of one component, checked, as tensors of one precision."""
    v = tf.convert_to_tensor(as_numbers(variance, "variance"))
    w = tf.convert_to_tensor(as_numbers(pseudo_variance, "pseudo_variance"))
    if v.dtype.is_complex:
        raise TypeError(f"variance must be real, got {v.dtype.name}")
    shapes = f"{v.shape} and {w.shape}"
    if not v.shape.is_compatible_with(w.shape):
        raise ValueError(f"variance and pseudo_variance must have one shape, got {shapes}")
    if w.dtype.is_integer:
        w = tf.cast(w, tf.float64)
    v = tf.cast(v, w.dtype.real_dtype)
    if tf.executing_eagerly() and tf.size(v):
        # Wide, because a posterior variance has the rounding of the prior variance.
        tolerance = (1e-6 if v.dtype == tf.float64 else 1e-3) * tf.reduce_max(tf.abs(v))
        impossible = tf.math.count_nonzero(tf.abs(w) - v > tolerance)
        if impossible:
            raise ValueError(
                f"{int(impossible)} of {int(tf.size(v))} points have a variance that is negative, "
                "or less than the modulus of their pseudo-variance"
            )
    return v, w


def ellipses(
    center: ArrayLike, variance: ArrayLike, pseudo_variance: ArrayLike, probability: float
) -> Ellipses:
    """The credible ellipses of components of given mean, variance and pseudo-variance.

    The semi-axes are the standard deviations along the principal axes times the root of
    `squared_radius`.

    Args:
        center: Means, complex, `[...]`.
        variance: As for `principal_axes`.
        pseudo_variance: As for `principal_axes`.
        probability: Of the ellipse, between 0 and 1, exclusive.

    Returns:
        `Ellipses(center, semi_major, semi_minor, angle)`, each `[...]`.

    Raises:
        TypeError, ValueError: As for `principal_axes`; a probability out of range.

    Example:
        >>> import numpy as np
        >>> from cgp.distributions import ellipses
        >>> drawn = ellipses(np.array([0j]), np.array([3.0]), np.array([1.0j]), probability=0.95)
        >>> (drawn.semi_major / drawn.semi_minor).numpy().round(3)  # of variances 2 and 1
        array([1.414])
    """
    factor = squared_radius(probability)
    larger, smaller, angle = principal_axes(variance, pseudo_variance)
    center = tf.convert_to_tensor(as_numbers(center, "center"))
    if not center.shape.is_compatible_with(larger.shape):
        shapes = f"{larger.shape}, got {center.shape}"
        raise ValueError(f"center must have the shape of the variances, {shapes}")
    return Ellipses(center, tf.sqrt(factor * larger), tf.sqrt(factor * smaller), angle)


def squared_radius(probability: float) -> float:
    """The squared radius of the circle that holds a standard normal of two dimensions.

    This is the quantile `−2 ln(1−p)` of the chi-squared distribution with two degrees of freedom.

    Args:
        probability: p, between 0 and 1, exclusive.

    Raises:
        ValueError: A probability out of range.

    Example:
        >>> from cgp.distributions import squared_radius
        >>> round(squared_radius(0.95), 3)
        5.991
    """
    check_probability(probability)
    return -2.0 * math.log1p(-probability)


def check_probability(probability: float, name: str = "probability") -> None:
    """Raises unless a probability is a number between 0 and 1, exclusive."""
    if not isinstance(probability, int | float | np.number):
        raise TypeError(f"{name} must be a number between 0 and 1, got {probability!r}")
    if not 0.0 < probability < 1.0:
        percent = f": as a fraction, {probability / 100:g}" if 2 <= probability < 100 else ""
        raise ValueError(f"{name} must lie between 0 and 1, got {probability}{percent}")
