"""Inverses from a Cholesky factor, by recursion on half-size blocks.

Nearly all of the work is then in matrix products. They run on all cores, which TensorFlow's
triangular solve does not, and leave out the zero blocks of triangles.
"""

import tensorflow as tf

from cgp.linalg.arguments import ArrayLike
from cgp.linalg.cholesky import as_factor

# Below this size the overhead of launching operations outweighs the gain.
_BLOCK = 128


def inverse(chol: ArrayLike) -> tf.Tensor:
    """The inverse of `A = L Lᴴ`, given its Cholesky factor: `L⁻ᴴ L⁻¹`.

    For `A⁻¹ b` alone, `solve` is cheaper and more accurate.

    Args:
        chol: `L`, `[..., n, n]`, lower triangular; complex128, complex64, float64 or float32.

    Returns:
        `A⁻¹`, `[..., n, n]`, Hermitian.

    Raises:
        TypeError: Another dtype.
        ValueError: Not square.
        NotPositiveDefiniteError: Eagerly, the diagonal of `chol` is not real and positive.

    Example:
        >>> import numpy as np
        >>> import cgp
        >>> a = np.array([[4.0, 2.0j], [-2.0j, 5.0]])
        >>> bool(np.allclose(cgp.linalg.inverse(cgp.linalg.cholesky(a)) @ a, np.eye(2)))
        True
    """
    return _gram(triangular_inverse(as_factor(chol)))


def triangular_inverse(chol: tf.Tensor) -> tf.Tensor:
    """The inverse of a lower triangular matrix, `[..., n, n]`."""
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


def _blocks(
    top_left: tf.Tensor, top_right: tf.Tensor, bottom_left: tf.Tensor, bottom_right: tf.Tensor
) -> tf.Tensor:
    top = tf.concat([top_left, top_right], axis=-1)
    return tf.concat([top, tf.concat([bottom_left, bottom_right], axis=-1)], axis=-2)
