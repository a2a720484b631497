"""Inverses from a factor, by halves: nearly all the work is in matrix products.

Matrix products run on all cores, which TensorFlow's triangular solve does not; and one that knows
where the zeros of a triangle are does not multiply with them.
"""

import tensorflow as tf

from cgp.linalg.cholesky import as_factor

# Below this size there is more to lose by launching many operations.
_BLOCK = 128


def inverse(chol) -> tf.Tensor:
    """The inverse of `A = L Lᴴ`, given its factor: `L⁻ᴴ L⁻¹`.

    For `A⁻¹ b` alone, `solve` is cheaper and more accurate.

    Args:
        chol: `L`, `[..., n, n]`, lower triangular; complex128, complex64, float64 or float32.

    Returns:
        `A⁻¹`, `[..., n, n]`, Hermitian.

    Raises:
        TypeError: Another dtype.
        ValueError: Not square.

    Example:
        >>> import numpy as np
        >>> import cgp
        >>> a = np.array([[4.0, 2.0j], [-2.0j, 5.0]])
        >>> bool(np.allclose(cgp.linalg.inverse(cgp.linalg.cholesky(a)) @ a, np.eye(2)))
        True
    """
    return _gram(triangular_inverse(as_factor(chol)))


def triangular_inverse(chol: tf.Tensor) -> tf.Tensor:
    """The inverse of a lower triangular matrix, `[..., n, n]`, lower triangular too."""
    n = chol.shape[-1]
    if n is None or n <= _BLOCK:
        identity = tf.eye(tf.shape(chol)[-1], dtype=chol.dtype)
        return tf.linalg.triangular_solve(chol, tf.broadcast_to(identity, tf.shape(chol)))
    half = n // 2
    top = triangular_inverse(chol[..., :half, :half])
    bottom = triangular_inverse(chol[..., half:, half:])
    corner = -tf.linalg.matmul(bottom, tf.linalg.matmul(chol[..., half:, :half], top))
    return _blocks(top, tf.zeros_like(tf.linalg.adjoint(corner)), corner, bottom)


def _gram(x: tf.Tensor) -> tf.Tensor:
    """`Xᴴ X` of a lower triangular X."""
    n = x.shape[-1]
    if n is None or n <= _BLOCK:
        return tf.linalg.matmul(x, x, adjoint_a=True)
    half = n // 2
    corner, bottom = x[..., half:, :half], x[..., half:, half:]
    first = _gram(x[..., :half, :half]) + tf.linalg.matmul(corner, corner, adjoint_a=True)
    cross = tf.linalg.matmul(bottom, corner, adjoint_a=True)
    return _blocks(first, tf.linalg.adjoint(cross), cross, _gram(bottom))


def _blocks(top_left, top_right, bottom_left, bottom_right) -> tf.Tensor:
    top = tf.concat([top_left, top_right], axis=-1)
    return tf.concat([top, tf.concat([bottom_left, bottom_right], axis=-1)], axis=-2)
