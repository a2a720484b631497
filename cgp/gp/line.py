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

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.distributions.forms import Form, SecondMoments
from cgp.gp.data import Data
from cgp.gp.signal_plus_noise import SignalPlusNoise, orthonormal
from cgp.linalg import cholesky, log_det, solve, toeplitz
from cgp.linalg.arguments import as_complex, squared_modulus

_MOST_REFINEMENTS = 8
_REFINED = 1e-8  # the last change of a solution, relative to it: its square is below rounding
_ROWS = 16  # of missing samples, whose correlations are computed at once


class LineCovariance:
    """The covariance of the samples of a line that are not missing, by its inverse.

    Vectors are `[S, n]`, with zeros where samples are missing.

    Args:
        column: The first column of K, complex, `[n]`, noise included.
        inverse_column: The first column of K⁻¹, `[n]`.
        missing: Numbers of the missing samples, int32, `[k]`; None for none.
    """

    def __init__(self, column: tf.Tensor, inverse_column: tf.Tensor, missing: tf.Tensor | None):
        self._column = column
        self._inverse_column = tf.stop_gradient(inverse_column)
        self._gaps = None if missing is None else _gaps(self._inverse_column, missing)

    def log_det_of_missing(self) -> tf.Tensor:
        """`log|P_SS|`, 0 for none."""
        if self._gaps is None:
            return tf.zeros([], self._column.dtype.real_dtype)
        return log_det(self._gaps.chol)

    def filled(self, vectors: tf.Tensor) -> tf.Tensor:
        """Vectors with the missing elements predicted from the others, without gradient."""
        if self._gaps is None:
            return vectors
        missing, _, chol = self._gaps
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

        def refine(count: tf.Tensor, error: tf.Tensor, solution: tf.Tensor) -> tuple:
            residual = self._kept(vectors - toeplitz.times(self._column, solution))
            change = apply_inverse(residual)
            squares = _squared_lengths(change) / tf.maximum(_squared_lengths(solution), tiny)
            return count + 1, tf.sqrt(tf.reduce_max(squares)), solution + change

        def goes_on(count: tf.Tensor, error: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
            return (count < _MOST_REFINEMENTS) & (error > _REFINED)

        first = apply_inverse(vectors)
        tiny = tf.constant(np.finfo(np.float64).tiny, first.dtype.real_dtype)
        start = tf.constant(0), tf.constant(np.inf, tiny.dtype), first
        return tf.while_loop(goes_on, refine, start)[2]

    def diagonal(self) -> tf.Tensor:
        """The diagonal of `K_OO⁻¹`, real, `[n]`; zero where samples are missing."""
        g = self._inverse_column
        squares = squared_modulus(g)
        turned = tf.concat([tf.zeros_like(squares[:1]), tf.reverse(squares[1:], axis=[0])], axis=0)
        diagonal = tf.cumsum(squares - turned) / tf.math.real(g[0])
        if self._gaps is not None:
            diagonal -= tf.reduce_sum(squared_modulus(self._gaps.white_rows()), axis=0)
        return self._kept(diagonal)

    def diagonal_sums(self) -> tf.Tensor:
        """The sums over the subdiagonals of `K_OO⁻¹`, `[n]`."""
        sums = toeplitz.diagonal_sums(self._inverse_column)
        if self._gaps is None:
            return sums
        white = self._gaps.white_rows()

        def subtract(first: tf.Tensor, sums: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            block = white[first : first + _ROWS]
            pairs = tf.reduce_sum(toeplitz.correlation(block, block), axis=0)
            return first + _ROWS, sums - tf.math.conj(pairs)  # Wᴴ W, whose columns are conjugates

        count, start = tf.shape(white)[0], (tf.constant(0), sums)
        return tf.while_loop(lambda first, _: first < count, subtract, start)[1]


def _squared_lengths(vectors: tf.Tensor) -> tf.Tensor:
    """The squared lengths of vectors, `[...]`."""
    return tf.reduce_sum(squared_modulus(vectors), axis=-1)


class _Gaps(NamedTuple):
    """The missing samples S of a line."""

    missing: tf.Tensor
    """Their numbers, int32, `[k]`."""
    rows: tf.Tensor
    """P_S:, `[k, n]`."""
    chol: tf.Tensor
    """The factor of P_SS, `[k, k]`."""

    def white_rows(self) -> tf.Tensor:
        """W, `[k, n]`, with `Wᴴ W = P_:S P_SS⁻¹ P_S:`."""
        return tf.linalg.triangular_solve(self.chol, self.rows)


def _gaps(inverse_column: tf.Tensor, missing: tf.Tensor) -> _Gaps:
    rows = toeplitz.inverse_rows(inverse_column, missing)
    block = tf.gather(rows, missing, axis=1)
    return _Gaps(missing, rows, cholesky(0.5 * (block + tf.linalg.adjoint(block))))


def log_likelihood(process: SignalPlusNoise, data: Data) -> tf.Tensor:
    """The log marginal likelihood of each series of a line, real, `[B]`."""
    density = log_density(*_vectors_of(process, data))
    return process.normalized(density, data, process.data_basis(data))


def _of_first_order(cotangent: tf.Tensor) -> tf.Tensor:
    """A cotangent whose own derivative, which would lack terms, is an error."""
    message = (
        "the likelihood of a regular line has first derivatives alone; second ones are "
        "parameter_covariance(), or of samples whose x is a tensor"
    )
    return tf.raw_ops.PreventGradient(input=cotangent, message=message)


def log_density(
    column: tf.Tensor, targets: tf.Tensor, basis: tf.Tensor | None, missing: tf.Tensor | None
) -> tf.Tensor:
    """The log marginal likelihood of each series, but for its constant.

    Args:
        column: The first column of K, complex, `[n]`, noise included.
        targets: y, `[S, n]`, zero where missing.
        basis: Of a trend, `[q, n]`, zero where missing, or None.
        missing: Numbers of the missing samples, int32, `[k]`; None for none.

    Returns:
        `−(yᴴ P y + log|K| + log|A|)`, real, `[S]`, as `cgp.gp.signal_plus_noise.log_density`, with
        gradients by column, targets and basis, once.
    """

    def evaluate(
        column: tf.Tensor, targets: tf.Tensor, *bases: tf.Tensor
    ) -> tuple[tf.Tensor, Callable]:
        count = tf.shape(targets)[0]
        vectors = tf.concat([targets, *bases], axis=0)
        factor = toeplitz.factorize(column, vectors)
        line, white = LineCovariance(column, factor.inverse_column, missing), factor.white
        if missing is not None:
            white = toeplitz.factorize(column, line.filled(vectors)).white
        value = factor.log_det + line.log_det_of_missing()
        residual, trend = white[:count], targets
        if bases:
            q, r = orthonormal(tf.transpose(white[count:]))
            inside = tf.linalg.matmul(q, tf.transpose(residual), adjoint_a=True)
            residual -= tf.transpose(tf.linalg.matmul(q, inside))
            coefficients = tf.linalg.triangular_solve(r, inside, lower=False)
            trend = targets - tf.linalg.matmul(coefficients, bases[0], transpose_a=True)
            value += 2.0 * tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(r))))
        value += tf.reduce_sum(squared_modulus(residual), axis=-1)

        def backward(dy: tf.Tensor) -> list[tf.Tensor]:
            a, total = line.solve(trend), as_complex(tf.reduce_sum(dy))
            weighted = a * as_complex(dy)[:, None]
            sums = total * line.diagonal_sums()
            sums -= tf.reduce_sum(toeplitz.correlation(weighted, a), axis=0)
            bars = [-2.0 * weighted]
            if bases:
                # The rows of K⁻¹ H R⁻¹, and of K⁻¹ H A⁻¹ = (K⁻¹ H R⁻¹) R⁻ᴴ.
                u = tf.linalg.triangular_solve(tf.transpose(r), line.solve(bases[0]))
                sums -= total * tf.reduce_sum(toeplitz.correlation(u, u), axis=0)
                leverage = tf.linalg.triangular_solve(tf.math.conj(r), u, lower=False)
                fitted = tf.linalg.matmul(tf.math.conj(coefficients), weighted)
                bars.append(-2.0 * (total * leverage - fitted))
            return [_of_first_order(-toeplitz.column_cotangent(sums)), *bars]

        return -value, backward

    arguments = (column, targets) if basis is None else (column, targets, basis)
    return tf.custom_gradient(evaluate)(*arguments)


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
    trend: "_Trend | None"

    @property
    def total_variance(self) -> tf.Tensor:
        """The trace of the covariance of the data, `[1]`."""
        size = tf.cast(tf.shape(self.solution)[-1], self.variance.dtype)
        return (size * self.variance)[None]

    def mean(self, cross: tf.Tensor, basis: tf.Tensor | None) -> tf.Tensor:
        """The posterior mean without the mean function; arguments as for `Conditioned`."""
        mean = tf.linalg.matmul(cross, tf.transpose(self.solution), adjoint_a=True)
        if basis is None or self.trend is None:
            return mean
        return mean + tf.linalg.matmul(basis, self.trend.coefficients)

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


class _Trend(NamedTuple):
    """A trend given a line of data: A = Rᴴ R of generalised least squares."""

    r: tf.Tensor
    """R, `[q, q]`, upper triangular."""
    rows: tf.Tensor
    """K⁻¹ H R⁻¹, transposed, `[q, n]`."""
    coefficients: tf.Tensor
    """`[q, S]`."""

    def uncertainty(self, cross: tf.Tensor, basis: tf.Tensor | None) -> tf.Tensor:
        """U of `cgp.gp.posterior`, `[1, q, m]`."""
        u = -tf.linalg.matmul(tf.math.conj(self.rows), cross)
        if basis is None:
            return u
        h = tf.linalg.adjoint(basis)
        return u + tf.linalg.triangular_solve(self.r, h, lower=False, adjoint=True)


class _LineOfData(NamedTuple):
    """The arguments of `log_density`."""

    column: tf.Tensor
    targets: tf.Tensor
    basis: tf.Tensor | None
    missing: tf.Tensor | None


def _vectors_of(process: SignalPlusNoise, data: Data) -> _LineOfData:
    """Targets and trend of a process at a line of data, as vectors."""
    column, targets = process.covariance(data)[0, :, 0], data.vectors(process.targets(data))
    basis = process.data_basis(data)
    basis = None if basis is None else tf.linalg.matrix_transpose(basis[0])
    return _LineOfData(column, targets, basis, None if data.line is None else data.line.missing)


def condition(process: SignalPlusNoise, data: Data, inverse_column: tf.Tensor) -> ConditionedLine:
    """A process given a line of data, by the first column of the inverse of their covariance."""
    column, targets, basis, missing = _vectors_of(process, data)
    form = process.form
    line = LineCovariance(column, inverse_column, missing)
    variance = tf.math.real(column[0])
    if basis is None:
        return ConditionedLine(form, line, variance, line.solve(targets), None)
    trend = _trend(line, targets, basis)
    fitted = tf.linalg.matmul(trend.coefficients, basis, transpose_a=True)
    return ConditionedLine(form, line, variance, line.solve(targets - fitted), trend)


def _trend(line: LineCovariance, targets: tf.Tensor, basis: tf.Tensor) -> _Trend:
    """The trend by Cholesky QR twice in the inner product of K⁻¹ (see `orthonormal`)."""
    h, rows = basis, line.solve(basis)
    r = tf.eye(tf.shape(basis)[0], dtype=basis.dtype)
    for _ in range(2):
        gram = tf.linalg.matmul(tf.math.conj(h), rows, transpose_b=True)
        gram = 0.5 * (gram + tf.linalg.adjoint(gram))
        squares = tf.math.real(tf.linalg.diag_part(gram))
        squares = tf.where(squares > 0.0, squares, tf.ones_like(squares))  # of columns of zeros
        lengths = as_complex(tf.sqrt(squares))
        gram = gram / (lengths[:, None] * lengths)
        zeros = tf.cast(tf.linalg.diag_part(gram) == 0.0, gram.dtype)
        factor = tf.linalg.adjoint(cholesky(gram + tf.linalg.diag(zeros))) * lengths
        h, rows = (tf.linalg.triangular_solve(tf.transpose(factor), a) for a in (h, rows))
        r = tf.linalg.matmul(factor, r)
    inside = tf.linalg.matmul(tf.math.conj(rows), targets, transpose_b=True)
    return _Trend(r, rows, tf.linalg.triangular_solve(r, inside, lower=False))
