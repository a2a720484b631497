"""Lower triangular factors of wide matrices: the time update of a square-root filter."""

from collections.abc import Callable

import tensorflow as tf

from cgp.linalg.arguments import ArrayLike, as_matrix, is_finite, real_as, real_diagonal


def triangularize(a: ArrayLike) -> tf.Tensor:
    """The lower triangular `L` with `L Lᴴ = a aᴴ`, by a QR factorisation of `aᴴ`.

    `a aᴴ` is never formed, which would square the condition number. In a Kalman filter,
    `triangularize([F L, L_Q])` is a factor of `F P Fᴴ + Q`.

    Args:
        a: `[..., n, m]`, m ≥ n; complex128, complex64, float64 or float32.

    Returns:
        `L`, `[..., n, n]`, its upper part zero, its diagonal real and not negative: positive
        where `a` has full row rank. Differentiable there; the factor of a matrix of lower rank has
        no derivative, and the gradient is then NaN or infinite.

    Raises:
        TypeError: Another dtype.
        ValueError: Fewer columns than rows, or (eagerly) NaN.

    Example:
        >>> import numpy as np
        >>> import cgp
        >>> bool(np.allclose(cgp.linalg.triangularize(np.array([[3.0j, 4.0]])), 5.0))
        True
    """
    a = as_matrix(a, "a")
    n, m = a.shape[-2:]
    if n is not None and m is not None and m < n:
        raise ValueError(f"a must be [..., n, m] with m >= n, got shape {a.shape}")
    if tf.executing_eagerly() and not is_finite(a):
        raise ValueError(f"a, of shape {a.shape}, has elements that are NaN or infinite")
    return _triangularize(a)


def lq(a: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The LQ factorisation `a = L Qᴴ`, the diagonal of L real and not negative.

    Args:
        a: `[..., n, m]`, m ≥ n.

    Returns:
        `(L, Q)`: L `[..., n, n]`, lower triangular; Q `[..., m, n]`, with orthonormal columns.
    """
    # aᴴ = Q R, so a = Rᴴ Qᴴ; a unit phase for each column makes the diagonal real.
    q, r = tf.linalg.qr(tf.linalg.adjoint(a))
    diagonal = tf.linalg.diag_part(r)
    modulus = tf.abs(diagonal)
    phase = tf.where(
        modulus > 0, diagonal / real_as(tf.where(modulus > 0, modulus, 1.0), a.dtype), 1.0
    )
    chol = tf.linalg.adjoint(r) * phase[..., None, :]
    chol = tf.linalg.set_diag(tf.linalg.band_part(chol, -1, 0), real_as(modulus, a.dtype))
    return chol, q * phase[..., None, :]


@tf.custom_gradient
def _triangularize(a: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    chol, q = lq(a)

    def backward(bar: tf.Tensor) -> tf.Tensor:
        """The cotangent ā of `a`, from `dL = L (tril S − ½ diag S)`, `S = K + Kᴴ`, `K = L⁻¹ da Q`.

        With P = tril(Lᴴ L̄), its diagonal halved and real, Re⟨L̄, dL⟩ = Re⟨P + Pᴴ, K⟩, so that
        ā = L⁻ᴴ (P + Pᴴ) Qᴴ.
        """
        p = tf.linalg.band_part(tf.linalg.matmul(chol, bar, adjoint_a=True), -1, 0)
        p = tf.linalg.set_diag(p, real_as(0.5 * real_diagonal(p), p.dtype))
        right = tf.linalg.matmul(p + tf.linalg.adjoint(p), q, adjoint_b=True)
        return tf.linalg.triangular_solve(chol, right, adjoint=True)

    return chol, backward
