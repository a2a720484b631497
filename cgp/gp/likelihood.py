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

from cgp.linalg import cholesky, inverse, log_det, stored_cholesky
from cgp.linalg.arguments import squared_modulus


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
    q, r = _orthonormal(tf.linalg.triangular_solve(chol, basis))
    inside = tf.linalg.matmul(q, white, adjoint_a=True)
    coefficients = tf.linalg.triangular_solve(r, inside, lower=False)
    return Whitened(white - tf.linalg.matmul(q, inside), q, r, coefficients)


def _orthonormal(a: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """`a = Q R` by two rounds of Cholesky, `[..., n, q]`; of columns that are independent.

    As accurate as Householder's way where the columns, brought to one length, have a condition of
    less than 1e8 (Yamamoto et al., ETNA 44, 2015), and differentiable for any n: TensorFlow's
    gradient of a QR factorisation wants to know the shape.
    """
    lengths = tf.sqrt(tf.reduce_sum(squared_modulus(a), axis=-2, keepdims=True))
    q = a / tf.cast(lengths, a.dtype)
    r = tf.linalg.diag(tf.cast(lengths[..., 0, :], a.dtype))
    for _ in range(2):
        factor = tf.linalg.adjoint(cholesky(tf.linalg.matmul(q, q, adjoint_a=True)))
        # q R⁻¹ = (R⁻ᴴ qᴴ)ᴴ
        q = tf.linalg.adjoint(
            tf.linalg.triangular_solve(factor, tf.linalg.adjoint(q), lower=False, adjoint=True)
        )
        r = tf.linalg.matmul(factor, r)
    return q, r


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
        value = tf.reduce_sum(squared_modulus(white.residual), axis=-2) + log_det(chol)[..., None]
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
    precision = inverse(chol)
    if white.q is None:
        return precision
    u = tf.linalg.triangular_solve(chol, white.q, adjoint=True)
    return precision - tf.linalg.matmul(u, u, adjoint_b=True)
