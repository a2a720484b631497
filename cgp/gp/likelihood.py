"""The log marginal likelihood from a stored factor, with its closed gradient.

With y the targets, K their covariance and H the basis of a trend whose coefficients have a flat
prior (Rasmussen & Williams, 2006, §2.7; without a trend P = K⁻¹, and A is absent),

    log p = −s (yᴴ P y + log|K| + log|A|) + constant,    A = Hᴴ K⁻¹ H,
    P = K⁻¹ − K⁻¹ H A⁻¹ Hᴴ K⁻¹,

s being 1 for a proper complex normal and ½ for a real one. Its gradient by K is −s (P − a aᴴ) with
a = P y: one inverse from the factor that is there anyway, where a tape through the factorisation
would cost several. Everything is computed from the factor, L Lᴴ = K, and in whitened coordinates,
where H becomes L⁻¹ H = Q R with orthonormal columns Q.
"""

from typing import NamedTuple

import tensorflow as tf

from cgp.linalg import log_det, stored_cholesky


class Whitened(NamedTuple):
    """Targets and trend in the coordinates in which the data are white."""

    residual: tf.Tensor
    """`(I − Q Qᴴ) L⁻¹ y`, `[..., n, S]`: the targets of S series without their trend."""
    q: tf.Tensor | None
    """`[..., n, q]`, or None without a trend."""
    r: tf.Tensor | None
    """`[..., q, q]`, upper triangular, or None without a trend."""
    coefficients: tf.Tensor | None
    """Those of the trend by generalised least squares, `[..., q, S]`, or None."""


def whiten(chol: tf.Tensor, targets: tf.Tensor, basis: tf.Tensor | None) -> Whitened:
    """Targets `[..., n, S]` and basis `[..., n, q]` whitened by a factor `[..., n, n]`."""
    white = tf.linalg.triangular_solve(chol, targets)
    if basis is None:
        return Whitened(white, None, None, None)
    q, r = tf.linalg.qr(tf.linalg.triangular_solve(chol, basis))
    inside = tf.linalg.matmul(q, white, adjoint_a=True)
    coefficients = tf.linalg.triangular_solve(r, inside, lower=False)
    return Whitened(white - tf.linalg.matmul(q, inside), q, r, coefficients)


def dual(chol: tf.Tensor, white: Whitened) -> tf.Tensor:
    """The dual weights `a = P y`, `[..., n, S]`."""
    return tf.linalg.triangular_solve(chol, white.residual, adjoint=True)


def log_density(
    covariance: tf.Tensor,
    targets: tf.Tensor,
    basis: tf.Tensor | None,
    chol: tf.Tensor,
    scale: float,
) -> tf.Tensor:
    """The log marginal likelihood of each series, but for its constant.

    Args:
        covariance: K, `[..., n, n]`. Only the gradient passes through it.
        targets: y, `[..., n, S]`.
        basis: H, `[..., n, q]`, or None.
        chol: The factor of K, taken on trust.
        scale: s, 1 for complex and ½ for real normals.

    Returns:
        `−s (yᴴ P y + log|K| + log|A|)`, real, `[..., S]`, with gradients by covariance, targets and
        basis, which may be differentiated again.
    """
    chol = tf.stop_gradient(chol)

    def evaluate(covariance, targets, *bases):
        white = whiten(chol, targets, bases[0] if bases else None)
        value = tf.reduce_sum(tf.abs(white.residual) ** 2, axis=-2) + log_det(chol)[..., None]
        if bases:
            value += 2.0 * tf.reduce_sum(_log_diagonal(white.r), axis=-1)[..., None]

        def backward(dy):
            # A factor that leads back to the covariance, for whoever differentiates twice.
            factor = stored_cholesky(chol, covariance)
            white = whiten(factor, targets, bases[0] if bases else None)
            a = dual(factor, white)
            weighted = a * tf.cast(dy[..., None, :], a.dtype)
            total = tf.cast(tf.reduce_sum(dy, axis=-1)[..., None, None], a.dtype)
            precision = projected_precision(factor, white)
            covariance_bar = -scale * (
                total * precision - tf.linalg.matmul(weighted, a, adjoint_b=True)
            )
            bars = [covariance_bar, -2.0 * scale * weighted]
            if bases:
                # K⁻¹ H A⁻¹ = L⁻ᴴ Q R⁻ᴴ
                leverage = tf.linalg.triangular_solve(
                    factor,
                    tf.linalg.adjoint(
                        tf.linalg.triangular_solve(white.r, tf.linalg.adjoint(white.q), lower=False)
                    ),
                    adjoint=True,
                )
                fitted = tf.linalg.matmul(weighted, white.coefficients, adjoint_b=True)
                bars.append(-2.0 * scale * (total * leverage - fitted))
            return bars

        return -scale * value, backward

    arguments = (covariance, targets) if basis is None else (covariance, targets, basis)
    return tf.custom_gradient(evaluate)(*arguments)


def _log_diagonal(r: tf.Tensor) -> tf.Tensor:
    return tf.math.log(tf.abs(tf.linalg.diag_part(r)))


def projected_precision(chol: tf.Tensor, white: Whitened) -> tf.Tensor:
    """P, `[..., n, n]`: the inverse covariance, with the trend projected out."""
    inverse = triangular_inverse(chol)
    precision = _gram(inverse)
    if white.q is None:
        return precision
    u = tf.linalg.matmul(inverse, white.q, adjoint_a=True)
    return precision - tf.linalg.matmul(u, u, adjoint_b=True)


_BLOCK = 128


def triangular_inverse(chol: tf.Tensor) -> tf.Tensor:
    """The inverse of a lower triangular matrix, `[..., n, n]`, by halves.

    Matrix products run on all cores, which TensorFlow's triangular solve does not.
    """
    n = chol.shape[-1]
    if n is None or n <= _BLOCK:
        identity = tf.eye(tf.shape(chol)[-1], dtype=chol.dtype)
        identity = tf.broadcast_to(identity, tf.shape(chol))
        return tf.linalg.triangular_solve(chol, identity)
    half = n // 2
    top = triangular_inverse(chol[..., :half, :half])
    bottom = triangular_inverse(chol[..., half:, half:])
    corner = -tf.linalg.matmul(bottom, tf.linalg.matmul(chol[..., half:, :half], top))
    zeros = tf.zeros_like(tf.linalg.adjoint(corner))
    return tf.concat(
        [tf.concat([top, zeros], axis=-1), tf.concat([corner, bottom], axis=-1)], axis=-2
    )


def _gram(x: tf.Tensor) -> tf.Tensor:
    """`Xᴴ X` of a lower triangular X, by halves: no product with the zeros above the diagonal."""
    n = x.shape[-1]
    if n is None or n <= _BLOCK:
        return tf.linalg.matmul(x, x, adjoint_a=True)
    half = n // 2
    corner, bottom = x[..., half:, :half], x[..., half:, half:]
    first = _gram(x[..., :half, :half]) + tf.linalg.matmul(corner, corner, adjoint_a=True)
    cross = tf.linalg.matmul(bottom, corner, adjoint_a=True)
    return tf.concat(
        [
            tf.concat([first, tf.linalg.adjoint(cross)], axis=-1),
            tf.concat([cross, _gram(bottom)], axis=-1),
        ],
        axis=-2,
    )
