"""A stationary process over a regular line: a Toeplitz covariance in place of a dense one.

Let K be the covariance of all n samples of the line, P = K⁻¹, S the samples that are missing and O
the others. By the inverse of a partitioned matrix (Rasmussen & Williams, 2006, eq. A.11-A.12), with
zeros in S,

    K_OO⁻¹ = P − P_:S P_SS⁻¹ P_S:,    log|K_OO| = log|K| + log|P_SS|.

A vector that is zero in S is *filled* by z_S ← −P_SS⁻¹ (P z)_S, its prediction from O. Then
K_OO⁻¹ z = P z, so that L⁻¹, L Lᴴ = K, whitens filled vectors: their inner products are those of
K_OO⁻¹. One such step from zero loses the digits of z/noise, and a second one brings them back (see
`cgp.gp.interpolation`).

The gradient reaches the first column of K through sums over the diagonals of its cotangent, which
are correlations. Memory is O(n) for n samples, and O(n k) where k of them are missing.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from cgp.distributions.forms import Form, SecondMoments
from cgp.gp.data import Data
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.gp.structured_covariance import Trend, log_density, refined, trend_of
from cgp.linalg import cholesky, log_det, solve, toeplitz
from cgp.linalg.arguments import as_complex, squared_modulus

_ROWS = 16  # of missing samples, whose correlations are computed at once


def first_column(process: SignalPlusNoise, data: Data) -> tf.Tensor:
    """The first column of the covariance of a line of data, complex, `[n]`."""
    return process.covariance(data)[0, :, 0]


def condition_number(column: tf.Tensor, noise_variance: tf.Tensor) -> tf.Tensor:
    """A bound of the condition number of the covariance of a line: sums of rows over the noise."""
    return 2.0 * tf.reduce_sum(tf.abs(column)) / noise_variance


class LineCovariance:
    """The covariance of the samples of a line that are not missing, by its inverse.

    Vectors are `[S, n]`, with zeros where samples are missing.

    Args:
        column: The first column of K, complex, `[n]`, noise included.
        inverse_column: The first column of K⁻¹, `[n]`.
        missing: Numbers of the missing samples, int32, `[k]`; None for none.
    """

    log_det: tf.Tensor
    white: tf.Tensor

    def __init__(self, column: tf.Tensor, inverse_column: tf.Tensor, missing: tf.Tensor | None):
        self._column = column
        self._inverse_column = tf.stop_gradient(inverse_column)
        self._gaps = None if missing is None else _gaps(self._inverse_column, missing)

    @classmethod
    def factorized(
        cls, column: tf.Tensor, vectors: tf.Tensor, missing: tf.Tensor | None
    ) -> "LineCovariance":
        """The covariance with its determinant, and with vectors whitened."""
        factor = toeplitz.factorize(column, vectors)
        covariance = cls(column, factor.inverse_column, missing)
        covariance.log_det, covariance.white = factor.log_det, factor.white
        if covariance._gaps is not None:
            covariance.log_det += log_det(covariance._gaps.chol)
            covariance.white = toeplitz.factorize(column, covariance.filled(vectors)).white
        return covariance

    def filled(self, vectors: tf.Tensor) -> tf.Tensor:
        """Vectors with the missing elements predicted from the others, without gradient."""
        if self._gaps is None:
            return vectors
        missing, chol = self._gaps
        for _ in range(2):
            weights = toeplitz.inverse_times(self._inverse_column, vectors)
            change = solve(chol, tf.transpose(tf.gather(weights, missing, axis=1)))
            columns = tf.tensor_scatter_nd_sub(tf.transpose(vectors), missing[:, None], change)
            vectors = tf.transpose(columns)
        return vectors

    def _kept(self, vectors: tf.Tensor) -> tf.Tensor:
        """Vectors with zeros where samples are missing."""
        if self._gaps is None:
            return vectors
        at, size = self._gaps.missing[:, None], tf.shape(vectors)[-1:]
        is_missing = tf.scatter_nd(at, tf.ones_like(at[:, 0], vectors.dtype), size)
        return vectors * (1.0 - is_missing)

    def solve(self, vectors: tf.Tensor) -> tf.Tensor:
        """`K_OO⁻¹` times vectors, zero where samples are missing; differentiable."""

        @tf.custom_gradient
        def solve_by_column(column: tf.Tensor, vectors: tf.Tensor) -> tuple[tf.Tensor, Callable]:
            solution = self._solve(vectors)

            def backward(bar: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                # K̄ = −λ xᴴ, whose Hermitian part counts.
                back = self.solve(bar)
                pairs = toeplitz.correlation(back, solution)
                pairs += toeplitz.correlation(solution, back)
                subdiagonals = -0.5 * tf.reduce_sum(pairs, axis=0)
                return toeplitz.column_cotangent(subdiagonals), back

            return solution, backward

        return solve_by_column(self._column, vectors)

    def _solve(self, vectors: tf.Tensor) -> tf.Tensor:
        """Solutions by iterative refinement: the inverse has the rounding of its first column."""

        def apply_inverse(vectors: tf.Tensor) -> tf.Tensor:
            filled = self.filled(vectors)
            return self._kept(toeplitz.inverse_times(self._inverse_column, filled))

        def times(vectors: tf.Tensor) -> tf.Tensor:
            return self._kept(toeplitz.times(self._column, vectors))

        return refined(apply_inverse, times, self._kept(vectors))

    def diagonal(self) -> tf.Tensor:
        """The diagonal of `K_OO⁻¹`, real, `[n]`; zero where samples are missing."""
        g = self._inverse_column
        squares = squared_modulus(g)
        turned = tf.concat([tf.zeros_like(squares[:1]), tf.reverse(squares[1:], axis=[0])], axis=0)
        diagonal = tf.cumsum(squares - turned) / tf.math.real(g[0])
        if self._gaps is not None:
            diagonal -= tf.reduce_sum(squared_modulus(self._white_rows(self._gaps)), axis=0)
        return self._kept(diagonal)

    def cotangents(self, total: tf.Tensor, left: tf.Tensor, right: tf.Tensor) -> list[tf.Tensor]:
        """The cotangent of the column, as of a `StructuredCovariance`."""
        pairs = tf.reduce_sum(toeplitz.correlation(left, right), axis=0)
        return [toeplitz.column_cotangent(total * self.diagonal_sums() - pairs)]

    def _white_rows(self, gaps: "_Gaps") -> tf.Tensor:
        """W, `[k, n]`, with `Wᴴ W = P_:S P_SS⁻¹ P_S:`."""
        return toeplitz.white_inverse_rows(self._inverse_column, *gaps)

    def diagonal_sums(self) -> tf.Tensor:
        """The sums over the subdiagonals of `K_OO⁻¹`, `[n]`."""
        sums = toeplitz.diagonal_sums(self._inverse_column)
        if self._gaps is None:
            return sums
        white = self._white_rows(self._gaps)

        def subtract(first: tf.Tensor, sums: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            block = white[first : first + _ROWS]
            pairs = tf.reduce_sum(toeplitz.correlation(block, block), axis=0)
            return first + _ROWS, sums - tf.math.conj(pairs)  # Wᴴ W, whose columns are conjugates

        count, start = tf.shape(white)[0], (tf.constant(0), sums)
        return tf.while_loop(lambda first, _: first < count, subtract, start)[1]


class _Gaps(NamedTuple):
    """The missing samples S of a line."""

    missing: tf.Tensor
    """Their numbers, int32, `[k]`."""
    chol: tf.Tensor
    """The factor of P_SS, `[k, k]`."""


def _gaps(inverse_column: tf.Tensor, missing: tf.Tensor) -> _Gaps:
    block = toeplitz.inverse_block(inverse_column, missing)
    return _Gaps(missing, cholesky(0.5 * (block + tf.linalg.adjoint(block))))


def log_likelihood(process: SignalPlusNoise, data: Data, column: tf.Tensor) -> tf.Tensor:
    """The log marginal likelihood of each series of a line, real, `[B]`, by `first_column`."""
    targets, basis, missing = _vectors_of(process, data)

    def make(parameters: Sequence[tf.Tensor], vectors: tf.Tensor) -> LineCovariance:
        return LineCovariance.factorized(parameters[0], vectors, missing)

    second = "parameter_covariance(), or of samples whose x is a tensor"
    density = log_density(make, [column], targets, basis, process.form.scale, second)
    return process.normalized(density, data, process.data_basis(data))


class ConditionedLine(NamedTuple):
    """A process given a line of data, with the methods of `cgp.gp.posterior.Conditioned`.

    Everything is computed from solutions of systems, as a line has no factor.
    """

    form: Form
    line: LineCovariance
    variance: tf.Tensor
    """The variance of a sample, noise included, a real scalar."""
    solution: tf.Tensor
    """`P y`, `[S, n]`."""
    trend: Trend | None = None
    coefficients: tf.Tensor | None = None
    """The coefficients of the trend, `[q, S]`."""

    @property
    def total_variance(self) -> tf.Tensor:
        """The trace of the covariance of the data, `[1]`."""
        size = tf.cast(tf.shape(self.solution)[-1], self.variance.dtype)
        return (size * self.variance)[None]

    def mean(self, cross: tf.Tensor, basis: tf.Tensor | None) -> tf.Tensor:
        """The posterior mean without the mean function; arguments as for `Conditioned`."""
        mean = tf.linalg.matmul(cross, tf.transpose(self.solution), adjoint_a=True)
        if basis is None or self.coefficients is None:
            return mean
        return mean + tf.linalg.matmul(basis, self.coefficients)

    def _solved(self, cross: tf.Tensor) -> tf.Tensor:
        """K⁻¹ k, `[1, n, m]`."""
        rows = tf.linalg.matrix_transpose(cross[0])
        return tf.linalg.matrix_transpose(self.line.solve(rows))[None]

    def marginal(
        self, prior: SecondMoments, cross: tf.Tensor, basis: tf.Tensor | None
    ) -> SecondMoments:
        """Posterior variance of each new point, from the prior one."""
        explained = tf.math.real(tf.math.conj(cross) * self._solved(cross))
        k = prior.k - as_complex(tf.reduce_sum(explained, axis=-2))
        if self.trend is not None:
            u = self.trend.uncertainty(cross, basis)
            k += as_complex(tf.reduce_sum(squared_modulus(u), axis=-2))
        return SecondMoments(k, None)

    def joint(self, prior: tf.Tensor, cross: tf.Tensor, basis: tf.Tensor | None) -> tf.Tensor:
        """The posterior covariance of the new points, `[..., m, m]`, from the prior one."""
        explained = tf.linalg.matmul(cross, self._solved(cross), adjoint_a=True)
        covariance = prior - 0.5 * (explained + tf.linalg.adjoint(explained))
        if self.trend is None:
            return covariance
        u = self.trend.uncertainty(cross, basis)
        return covariance + tf.linalg.matmul(u, u, adjoint_a=True)

    def leave_one_out(self) -> tuple[tf.Tensor, SecondMoments]:
        """Leave-one-out residuals and their variances; 1 where the sample is missing."""
        precision = self.line.diagonal()
        if self.trend is not None:
            precision -= tf.reduce_sum(squared_modulus(self.trend.rows), axis=0)
        precision = as_complex(tf.where(precision > 0.0, precision, tf.ones_like(precision)))
        deviation = tf.transpose(self.solution / precision)[None]
        return deviation, SecondMoments((1.0 / precision)[None], None)


class _LineOfData(NamedTuple):
    """Targets and trend at a line of data, as vectors."""

    targets: tf.Tensor
    basis: tf.Tensor | None
    missing: tf.Tensor | None


def _vectors_of(process: SignalPlusNoise, data: Data) -> _LineOfData:
    """Targets and trend of a process at a line of data, as vectors."""
    targets, basis = data.vectors(process.targets(data)), process.data_basis(data)
    basis = None if basis is None else tf.linalg.matrix_transpose(basis[0])
    return _LineOfData(targets, basis, None if data.line is None else data.line.missing)


def condition(process: SignalPlusNoise, data: Data, inverse_column: tf.Tensor) -> ConditionedLine:
    """A process given a line of data, by the first column of the inverse of their covariance."""
    targets, basis, missing = _vectors_of(process, data)
    column, form = first_column(process, data), process.form
    line = LineCovariance(column, inverse_column, missing)
    variance = tf.math.real(column[0])
    if basis is None:
        return ConditionedLine(form, line, variance, line.solve(targets))
    trend = trend_of(line.solve, basis)
    coefficients = trend.coefficients(targets)
    residual = targets - tf.linalg.matmul(coefficients, basis, transpose_a=True)
    return ConditionedLine(form, line, variance, line.solve(residual), trend, coefficients)
