"""Observations with noise of any covariance, as ones whose components have noise of their own."""

import numpy as np
import tensorflow as tf

from cgp.linalg.composite import real_as

# A pivot below so many times the rounding of its diagonal element is none.
_ROUNDING = 8.0


def decorrelated(
    H: tf.Tensor, R: tf.Tensor, z: tf.Tensor, observed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Rows, variances and values of components whose noise is uncorrelated.

    With `R = U D Uᴴ`, U unit lower triangular and D diagonal, of the components observed, these are
    `U⁻¹ H`, D and `U⁻¹ z`: by elimination, which asks for no inverse of a singular R. As |U| = 1,
    the density is the same. Time comes first, and the batch last.

    Args:
        H: `[T, m, n, B]`.
        R: `[T, m, m, B]`.
        z: `[T, m, B]`, zero where missing.
        observed: Real, 0 or 1, `[T, m, B]`.

    Returns:
        h, `[T, m, n, B]`; r, real, `[T, m, B]`; z.
    """
    m = R.shape[1]
    diagonal = tf.stack([tf.math.real(R[:, i, i]) for i in range(m)], axis=1)
    if m == 1:
        return H, diagonal, z
    # Gradients are then Hermitian too. A diagonal R goes this way as well: it has derivatives by
    # what is off the diagonal.
    R = 0.5 * (R + tf.math.conj(tf.einsum("tijb->tjib", R)))
    # In units of the noise: the square of a pivot, in its derivative, may have no number.
    noisy = diagonal > 0
    unit = tf.stop_gradient(tf.where(noisy, tf.sqrt(tf.where(noisy, diagonal, 1.0)), 1.0))
    scale = real_as(1.0 / unit, R.dtype)
    seen = real_as(observed, R.dtype)
    R = R * (scale * seen)[:, :, None] * (scale * seen)[:, None]
    H, z = H * scale[:, :, None], z * scale
    eps = np.finfo(R.dtype.real_dtype.as_numpy_dtype).eps
    size, variances = tf.abs(H), []
    for j in range(m):
        pivot = tf.math.real(R[:, j, j])
        sound = pivot > _ROUNDING * m * eps
        # Of a pivot that is zero the value alone is cut off, and not the derivative.
        pivot += tf.stop_gradient(tf.where(sound, pivot, tf.zeros_like(pivot)) - pivot)
        inverse = tf.where(sound, 1.0 / tf.where(sound, pivot, 1.0), tf.zeros_like(pivot))
        below = np.arange(m)[:, None] > j
        factors = R[:, :, j] * real_as(inverse, R.dtype)[:, None]
        factors = tf.where(below, factors, tf.zeros_like(factors))
        variances.append(pivot)
        R = R - factors[:, :, None] * R[:, None, j]
        z = z - factors * z[:, None, j]
        size = size + tf.abs(factors)[:, :, None] * tf.abs(H[:, None, j])
        H = H - factors[:, :, None] * H[:, None, j]
        # What rounding leaves of rows that cancel would be seen without noise. The value alone is
        # cut off, and not the derivative.
        left = tf.where(tf.abs(H) > _ROUNDING * eps * size, H, tf.zeros_like(H))
        H += tf.stop_gradient(left - H)
    variance = tf.stack(variances, axis=1) * unit * unit
    unit = real_as(unit, R.dtype)
    return H * unit[:, :, None], variance, z * unit
