"""Cotangents of Hermitian matrices and their factors, from those of what was computed of them."""

import tensorflow as tf

from cgp.linalg.arguments import real_as, real_diagonal


def cholesky_pullback(chol: tf.Tensor, chol_bar: tf.Tensor) -> tf.Tensor:
    """The cotangent Ā of A from that of its factor, L̄ (Murray, arXiv 1602.07527, with adjoints).

    From dL = L Φ(L⁻¹ dA L⁻ᴴ), where Φ takes the lower triangle and half of the diagonal, Ā is the
    Hermitian part of L⁻ᴴ Φ(Lᴴ L̄) L⁻¹. The diagonal of L is real, hence the real part in Φ.
    """
    p = tf.linalg.band_part(tf.linalg.matmul(chol, chol_bar, adjoint_a=True), -1, 0)
    phi = tf.linalg.set_diag(p, real_as(0.5 * real_diagonal(p), p.dtype))
    half = tf.linalg.triangular_solve(chol, phi + tf.linalg.adjoint(phi), adjoint=True)
    return 0.5 * tf.linalg.adjoint(
        tf.linalg.triangular_solve(chol, tf.linalg.adjoint(half), adjoint=True)
    )


def inverse_pullback(chol: tf.Tensor, inverse: tf.Tensor, inverse_bar: tf.Tensor) -> tf.Tensor:
    """The cotangent L̄ of a factor from that of X = (L Lᴴ)⁻¹, all `[..., n, n]`.

    From dX = −X (dL Lᴴ + L dLᴴ) X, L̄ is the lower triangle of −X (X̄ + X̄ᴴ) X L.
    """
    both = inverse_bar + tf.linalg.adjoint(inverse_bar)
    full = tf.linalg.matmul(inverse, tf.linalg.matmul(both, tf.linalg.matmul(inverse, chol)))
    return -tf.linalg.band_part(full, -1, 0)
