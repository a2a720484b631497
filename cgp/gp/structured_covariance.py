"""The likelihood and the trend of data whose covariance has structure, and is never a full matrix.

A covariance K of a regular line (`cgp.gp.line`) or of a grid (`cgp.gp.grid`) whitens vectors and
solves systems, and its cotangent reaches the parameters that it is made of. The formulas are in
`cgp.gp.signal_plus_noise`. Vectors are rows here, `[S, n]`, with zeros where samples are missing.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from cgp.gp.signal_plus_noise import orthonormal
from cgp.linalg import cholesky
from cgp.linalg.arguments import squared_modulus

_MOST_REFINEMENTS = 8
_REFINED = 1e-8  # the last change of a solution, relative to it: its square is below rounding


class StructuredCovariance(Protocol):
    """The covariance K of the samples that are not missing, factorised."""

    log_det: tf.Tensor
    """`log|K|`, a real scalar."""
    white: tf.Tensor
    """The vectors that it was made with, whitened: their inner products are those of K⁻¹."""

    def solve(self, vectors: tf.Tensor) -> tf.Tensor:
        """`K⁻¹` times vectors `[S, n]`, zero where samples are missing."""

    def cotangents(self, total: tf.Tensor, left: tf.Tensor, right: tf.Tensor) -> list[tf.Tensor]:
        """The cotangents of the parameters of K, of `K̄ = total K⁻¹ − Σ left rightᴴ`.

        The vectors are `[P, n]`, and their sum of products is Hermitian.
        """


def log_density(
    make: Callable[[Sequence[tf.Tensor], tf.Tensor], StructuredCovariance],
    parameters: Sequence[tf.Tensor],
    targets: tf.Tensor,
    basis: tf.Tensor | None,
    scale: float,
    second_derivatives: str,
) -> tf.Tensor:
    """The log marginal likelihood of each series, but for its constant.

    Args:
        make: Factorises the covariance of parameters, with vectors to be whitened.
        parameters: Those of the covariance.
        targets: y, `[S, n]`, zero where missing.
        basis: Of a trend, `[q, n]`, zero where missing, or None.
        scale: s, 1 for complex and ½ for real normals.
        second_derivatives: What to do where second derivatives are asked for, which is an error.

    Returns:
        `−s (yᴴ P y + log|K| + log|A|)`, real, `[S]`, as `cgp.gp.signal_plus_noise.log_density`,
        with gradients by parameters, targets and basis, once.
    """
    message = f"this likelihood has first derivatives alone; second ones are {second_derivatives}"

    def evaluate(*tensors: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        # A tape would record all that follows, and keep its arrays.
        arguments = tuple(map(tf.stop_gradient, tensors))
        of_covariance, vectors = arguments[: len(parameters)], arguments[len(parameters) :]

        def of_first_order(cotangent: tf.Tensor) -> tf.Tensor:
            """A cotangent whose own derivative, which would lack terms, is an error."""
            # What is zero reaches the tensors, which nothing else here does.
            zeros = [tf.reduce_sum(tf.math.real(tensor)) * 0.0 for tensor in tensors]
            cotangent += tf.cast(tf.add_n(zeros), cotangent.dtype)
            return tf.raw_ops.PreventGradient(input=cotangent, message=message)

        targets, *bases = vectors
        count = tf.shape(targets)[0]
        covariance = make(of_covariance, tf.concat(vectors, axis=0))
        value, residual, trend = covariance.log_det, covariance.white[:count], targets
        if bases:
            q, r = orthonormal(tf.transpose(covariance.white[count:]))
            inside = tf.linalg.matmul(q, tf.transpose(residual), adjoint_a=True)
            residual -= tf.transpose(tf.linalg.matmul(q, inside))
            coefficients = tf.linalg.triangular_solve(r, inside, lower=False)
            trend = targets - tf.linalg.matmul(coefficients, bases[0], transpose_a=True)
            value += 2.0 * tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(r))))
        value += tf.reduce_sum(squared_modulus(residual), axis=-1)

        def backward(dy: tf.Tensor) -> list[tf.Tensor]:
            a, total = covariance.solve(trend), tf.cast(tf.reduce_sum(dy), targets.dtype)
            weighted = a * tf.cast(dy, a.dtype)[:, None]
            left, right, of_vectors = weighted, a, [-2.0 * scale * weighted]
            if bases:
                # The rows of K⁻¹ H R⁻¹, and of K⁻¹ H A⁻¹ = (K⁻¹ H R⁻¹) R⁻ᴴ.
                u = tf.linalg.triangular_solve(tf.transpose(r), covariance.solve(bases[0]))
                left, right = tf.concat([left, total * u], axis=0), tf.concat([right, u], axis=0)
                leverage = tf.linalg.triangular_solve(tf.math.conj(r), u, lower=False)
                fitted = tf.linalg.matmul(tf.math.conj(coefficients), weighted)
                of_vectors.append(-2.0 * scale * (total * leverage - fitted))
            cotangents = covariance.cotangents(total, left, right)
            bars = [*(-scale * bar for bar in cotangents), *of_vectors]
            return [of_first_order(bar) for bar in bars]

        return -scale * value, backward

    rows = (targets,) if basis is None else (targets, basis)
    return tf.custom_gradient(evaluate)(*parameters, *rows)


def refined(
    inverse_times: Callable[[tf.Tensor], tf.Tensor],
    times: Callable[[tf.Tensor], tf.Tensor],
    vectors: tf.Tensor,
) -> tf.Tensor:
    """Solutions of systems by iterative refinement, of an inverse that has more rounding than K.

    Refined until the solutions, `[S, ...]`, have settled; `times` is K times vectors.
    """
    first = inverse_times(vectors)
    axes = range(1, first.shape.rank)
    tiny = tf.constant(np.finfo(np.float64).tiny, first.dtype.real_dtype)

    def refine(count: tf.Tensor, error: tf.Tensor, solution: tf.Tensor) -> tuple:
        change = inverse_times(vectors - times(solution))
        squares = (tf.reduce_sum(squared_modulus(a), axis=axes) for a in (change, solution))
        of_change, of_solution = squares
        share = of_change / tf.maximum(of_solution, tiny)
        return count + 1, tf.sqrt(tf.reduce_max(share)), solution + change

    def goes_on(count: tf.Tensor, error: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
        return (count < _MOST_REFINEMENTS) & (error > _REFINED)

    start = tf.constant(0), tf.constant(np.inf, tiny.dtype), first
    return tf.while_loop(goes_on, refine, start)[2]


class Trend(NamedTuple):
    """A trend given data: A = Rᴴ R of generalised least squares."""

    r: tf.Tensor
    """R, `[q, q]`, upper triangular."""
    rows: tf.Tensor
    """K⁻¹ H R⁻¹, transposed, `[q, n]`."""

    def coefficients(self, targets: tf.Tensor) -> tf.Tensor:
        """The coefficients of targets `[S, n]` by generalised least squares, `[q, S]`."""
        inside = tf.linalg.matmul(tf.math.conj(self.rows), targets, transpose_b=True)
        return tf.linalg.triangular_solve(self.r, inside, lower=False)

    def uncertainty(self, cross: tf.Tensor, basis: tf.Tensor | None) -> tf.Tensor:
        """U of `cgp.gp.posterior`, `[1, q, m]`, from covariances with new points `[1, n, m]`."""
        return self.uncertainty_of(tf.linalg.matmul(tf.math.conj(self.rows), cross), basis)

    def uncertainty_of(self, explained: tf.Tensor, basis: tf.Tensor | None) -> tf.Tensor:
        """U from `(K⁻¹ H R⁻¹)ᴴ` times the covariances with new points, `[..., q, m]`."""
        if basis is None:
            return -explained
        h = tf.linalg.adjoint(basis)
        return tf.linalg.triangular_solve(self.r, h, lower=False, adjoint=True) - explained


def trend_of(solve: Callable[[tf.Tensor], tf.Tensor], basis: tf.Tensor) -> Trend:
    """The trend of a basis by Cholesky QR twice, with inner products of K⁻¹ (see `orthonormal`)."""
    h, rows = basis, solve(basis)
    r = tf.eye(tf.shape(basis)[0], dtype=basis.dtype)
    for _ in range(2):
        gram = tf.linalg.matmul(tf.math.conj(h), rows, transpose_b=True)
        gram = 0.5 * (gram + tf.linalg.adjoint(gram))
        squares = tf.math.real(tf.linalg.diag_part(gram))
        squares = tf.where(squares > 0.0, squares, tf.ones_like(squares))  # of columns of zeros
        lengths = tf.cast(tf.sqrt(squares), basis.dtype)
        gram = gram / (lengths[:, None] * lengths)
        zeros = tf.cast(tf.linalg.diag_part(gram) == 0.0, gram.dtype)
        factor = tf.linalg.adjoint(cholesky(gram + tf.linalg.diag(zeros))) * lengths
        h, rows = (tf.linalg.triangular_solve(tf.transpose(factor), a) for a in (h, rows))
        r = tf.linalg.matmul(factor, r)
    return Trend(r, rows)
