"""Decorrelation of the observation noise, for updates one component at a time."""

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import real_as

# A pivot below this many rounding errors of its diagonal element counts as zero.
_ROUNDING = 8.0


def decorrelated(
    H: tf.Tensor, R: tf.Tensor, z: tf.Tensor, observed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Transforms observations so that the noise of their components is uncorrelated.

    With `R = U D Uᴴ` of the observed components, U unit lower triangular and D diagonal, the result
    is `U⁻¹ H`, D and `U⁻¹ z`. Elimination computes it without an inverse of R, which may be
    singular. As |U| = 1, the density is the same. Arrays are those of a `KalmanSystem`.

    Args:
        H: `[m, n]`, or `[T, m, n, B]`.
        R: `[m, m]`, or `[T, m, m, B]`.
        z: `[B, T, m]`, zero where missing.
        observed: Real, 0 or 1, `[m]`, or `[T, m, B]`.

    Returns:
        Rows h, `[m, n]`, or `[T, m, n, B]`; variances r, real, `[m]`, or `[T, m, B]`; values z,
        `[B, T, m]`.
    """
    m = z.shape[-1]
    if m == 1:
        return H, tf.squeeze(tf.math.real(R), axis=0 if R.shape.rank == 2 else 2), z
    H, R = (a[None, ..., None] if a.shape.rank == 2 else a for a in (H, R))
    observed = observed[None, :, None] if observed.shape.rank == 1 else observed
    diagonal = tf.stack([tf.math.real(R[:, i, i]) for i in range(m)], axis=1)
    # Makes the gradient with respect to R Hermitian. A diagonal R takes this path too, because its
    # derivatives with respect to the off-diagonal elements are not zero.
    R = 0.5 * (R + tf.math.conj(tf.einsum("tijb->tjib", R)))
    # Noise of unit variance: otherwise the square of a pivot, in its derivative, may under- or
    # overflow.
    noisy = diagonal > 0
    unit = tf.stop_gradient(tf.where(noisy, tf.sqrt(tf.where(noisy, diagonal, 1.0)), 1.0))
    scale = real_as(1.0 / unit, R.dtype)
    is_observed = real_as(observed, R.dtype)
    R = R * (scale * is_observed)[:, :, None] * (scale * is_observed)[:, None]
    H, z = H * scale[:, :, None], z * _by_series(scale)
    eps = np.finfo(R.dtype.real_dtype.as_numpy_dtype).eps
    size, variances = tf.abs(H), []
    for j in range(m):
        pivot = tf.math.real(R[:, j, j])
        sound = pivot > _ROUNDING * m * eps
        # A zero pivot: only its value is set to zero, its derivative is kept.
        pivot += tf.stop_gradient(tf.where(sound, pivot, tf.zeros_like(pivot)) - pivot)
        inverse = tf.where(sound, 1.0 / tf.where(sound, pivot, 1.0), tf.zeros_like(pivot))
        below = np.arange(m)[:, None] > j
        factors = R[:, :, j] * real_as(inverse, R.dtype)[:, None]
        factors = tf.where(below, factors, tf.zeros_like(factors))
        variances.append(pivot)
        R = R - factors[:, :, None] * R[:, None, j]
        z = z - _by_series(factors) * z[..., j, None]
        size = size + tf.abs(factors)[:, :, None] * tf.abs(H[:, None, j])
        H = H - factors[:, :, None] * H[:, None, j]
        # Rounding errors of rows that cancel would count as noise-free observations. Only the
        # value is set to zero, the derivative is kept.
        rows = tf.where(tf.abs(H) > _ROUNDING * eps * size, H, tf.zeros_like(H))
        H += tf.stop_gradient(rows - H)
    variance = tf.stack(variances, axis=1) * unit * unit
    unit = real_as(unit, R.dtype)
    return H * unit[:, :, None], variance, z * _by_series(unit)


def leaves_no_exact_observation(R: tf.Tensor) -> bool:
    """Whether noise of covariances `[..., m, m]` reaches every combination of the components."""
    R = np.asarray(R)
    size = np.sqrt(np.diagonal(R, axis1=-2, axis2=-1).real)
    if not np.all(size > 0.0):
        return False
    unit = R / (size[..., None] * size[..., None, :])
    return bool(np.all(np.linalg.eigvalsh(unit) > _ROUNDING * R.shape[-1] * np.finfo(R.dtype).eps))


def _by_series(a: tf.Tensor) -> tf.Tensor:
    """`[T, m, B]` -> `[B, T, m]`."""
    return tf.experimental.numpy.moveaxis(a, -1, 0)
