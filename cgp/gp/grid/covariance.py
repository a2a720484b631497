"""The covariance of the cells of a grid: a Kronecker product of matrices of the axes, plus noise.

With A_i = Q_i Λ_i Q_iᴴ the covariance is diagonal in the basis Q = ⊗ Q_i (Saatçi, *Scalable
Inference for Structured Gaussian Process Models*, 2011, ch. 5),

    K = ⊗ A_i + σ² I = Q (⊗ Λ_i + σ² I) Qᴴ.

A long axis that is a regular line is not diagonalised: in the basis of the others K is then a
Toeplitz matrix `λ T + σ² I` for each of their eigenvalues λ (see `cgp.linalg.toeplitz`). The
cotangent of A_i has a closed form; a tape through an eigendecomposition would divide by differences
of eigenvalues, of which regular axes have many that are nearly zero.

Cells S that are missing are a Schur complement, as in `cgp.gp.line`: with P = K⁻¹ of all cells,

    K_OO⁻¹ = P − P_:S P_SS⁻¹ P_S:,    log|K_OO| = log|K| + log|P_SS|.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.gp.data import length_of
from cgp.gp.structured_covariance import refined
from cgp.linalg import cholesky, log_det, solve, toeplitz
from cgp.linalg.arguments import as_complex
from cgp.linalg.cholesky import assert_positive_definite

_ELEMENTS = 250_000  # of arrays of all cells that are in work at once
_BELOW_ROUNDING = (
    "the noise variance of a grid is below the rounding of its covariance (give it more noise, or "
    "check the kernel)"
)


class Eigenvalues:
    """`λ + σ²` of all axes: K where every axis is diagonalised."""

    def __init__(self, eigenvalues: tf.Tensor, noise: tf.Tensor):
        self._values, self.shape = eigenvalues + noise, eigenvalues.shape
        self.log_det = tf.reduce_sum(tf.math.log(self._values))

    def inverse_times(self, a: tf.Tensor) -> tf.Tensor:
        """`K⁻¹` times arrays in the basis."""
        return a / tf.cast(self._values, a.dtype)

    def solve(self, a: tf.Tensor) -> tf.Tensor:
        """`K⁻¹` times arrays in the basis."""
        return self.inverse_times(a)

    def whitened(self, a: tf.Tensor) -> tf.Tensor:
        """Arrays in the basis, with inner products of K⁻¹."""
        return a / tf.cast(tf.sqrt(self._values), a.dtype)

    def line_times(self, a: tf.Tensor) -> tf.Tensor:
        """T times arrays in the basis: there is no line."""
        return a

    def sums(self) -> "PrecisionSums":
        """The sums of `P_λ`, which is a number here."""
        return PrecisionSums(1.0 / self._values, 1.0 / self._values, None)


class Lines:
    """`λ T + σ² I` for each eigenvalue λ of the other axes.

    Args:
        column: The first column of T, complex, `[n]`.
        eigenvalues: λ, real, of any shape `[...]`.
        noise: σ², a real scalar.
    """

    def __init__(self, column: tf.Tensor, eigenvalues: tf.Tensor, noise: tf.Tensor):
        self._column = column
        is_first = tf.one_hot(0, tf.shape(column)[0], dtype=column.dtype)
        self._columns = as_complex(eigenvalues)[..., None] * column + as_complex(noise) * is_first
        factor = toeplitz.factorize(self._columns, self._columns[..., None, :][..., :0, :])
        self._inverse_columns, self.shape = factor.inverse_column, eigenvalues.shape
        self.log_det = tf.reduce_sum(factor.log_det)

    def inverse_times(self, a: tf.Tensor) -> tf.Tensor:
        """`K⁻¹` times arrays in the basis, with the rounding of the inverse."""
        return toeplitz.inverse_times(self._inverse_columns, a)

    def solve(self, a: tf.Tensor) -> tf.Tensor:
        """`K⁻¹` times arrays in the basis, refined."""
        times = functools.partial(toeplitz.times, self._columns)
        return refined(self.inverse_times, times, a)

    def whitened(self, a: tf.Tensor) -> tf.Tensor:
        """Arrays in the basis, with inner products of K⁻¹."""
        axes = a.shape.rank
        vectors = tf.transpose(a, [*range(1, axes - 1), 0, axes - 1])  # no numbers change
        white = toeplitz.factorize(self._columns, vectors).white
        return tf.transpose(white, [axes - 2, *range(axes - 2), axes - 1])

    def line_times(self, a: tf.Tensor) -> tf.Tensor:
        """T times arrays in the basis."""
        return toeplitz.times(self._column, a)

    def sums(self) -> "PrecisionSums":
        """The sums of `P_λ`."""
        diagonals = toeplitz.diagonal_sums(self._inverse_columns)
        products = tf.math.real(diagonals * tf.math.conj(self._column))
        trace_with_line = 2.0 * tf.reduce_sum(products, axis=-1) - products[..., 0]
        return PrecisionSums(tf.math.real(diagonals[..., 0]), trace_with_line, diagonals)


class PrecisionSums(NamedTuple):
    """Sums of `P_λ`, the inverse of `λ T + σ² I`, for each eigenvalue λ of the other axes."""

    trace: tf.Tensor
    """The trace of P_λ, real, `[...]`."""
    trace_with_line: tf.Tensor
    """The trace of T P_λ, real, `[...]`."""
    diagonals: tf.Tensor | None
    """The sums over the subdiagonals of P_λ, `[..., n]`; None where there is no line."""


class GridCovariance:
    """The covariance K of the cells of a grid that are not missing, factorised.

    Arrays of cells are `[S, n_1, …, n_D]`, with zeros where cells are missing, and rows of them
    `[S, N]`, in C order.

    Args:
        matrices: A_i of each axis, Hermitian or real symmetric, `[n_i, n_i]`; the last one may be
            the first column of a Toeplitz matrix T, complex, `[n_D]`.
        noise: σ², a real scalar.
        dtype: The dtype of arrays of cells, complex, or real where all matrices are.
        missing: Numbers of the missing cells, int32, `[k]`; None for none.
    """

    white: tf.Tensor

    def __init__(
        self,
        matrices: Sequence[tf.Tensor],
        noise: tf.Tensor,
        dtype: tf.DType,
        missing: tf.Tensor | None = None,
    ):
        self._matrices = [tf.stop_gradient(a) for a in matrices]
        self.sizes, self._dtype = [length_of(a) for a in matrices], dtype
        self.has_line = matrices[-1].shape.rank == 1
        diagonalised = self._matrices[: len(matrices) - self.has_line]
        decompositions = [_eigh(a) for a in diagonalised]
        # Rounding makes some that are zero negative.
        self.values = [tf.maximum(values, 0.0) for values, _ in decompositions]
        self.vectors = [tf.cast(vectors, dtype) for _, vectors in decompositions]
        self.noise, self._missing = noise, missing
        eigenvalues = self._checked(self._outer(self.values))
        self.spectrum: Eigenvalues | Lines = (
            Lines(self._matrices[-1], eigenvalues, noise)
            if self.has_line
            else Eigenvalues(eigenvalues, noise)
        )
        self.log_det = self.spectrum.log_det
        self.chol_of_missing = None if missing is None else self._factor_of_missing(missing)
        if self.chol_of_missing is not None:
            self.log_det += log_det(self.chol_of_missing)

    def _checked(self, eigenvalues: tf.Tensor) -> tf.Tensor:
        """Eigenvalues, where noise is above their rounding; as for `cgp.linalg.cholesky` if not."""
        rounding = 2.0 * np.finfo(self._dtype.real_dtype.as_numpy_dtype).eps
        is_above = self.noise > rounding * tf.reduce_max(eigenvalues)  # False for NaN
        flat = tf.reshape(eigenvalues, [1, -1])
        return tf.reshape(
            assert_positive_definite(is_above, flat, _BELOW_ROUNDING), tf.shape(eigenvalues)
        )

    @classmethod
    def factorized(
        cls,
        matrices: Sequence[tf.Tensor],
        noise: tf.Tensor,
        rows: tf.Tensor,
        missing: tf.Tensor | None,
    ) -> "GridCovariance":
        """The covariance with vectors whitened, as a `StructuredCovariance`."""
        covariance = cls(matrices, noise, rows.dtype, missing)
        filled = covariance._filled(covariance.cells(rows))
        white = covariance.spectrum.whitened(covariance.to_basis(filled))
        covariance.white = covariance.rows(white)
        return covariance

    # --- arrays of cells, and the basis of the eigenvectors --------------------------------------

    @property
    def count(self) -> Any:
        """The number of cells, the missing ones included."""
        return math.prod(self.sizes)

    @property
    def rows_at_once(self) -> tf.Tensor:
        """The number of arrays of all cells that are in work at once."""
        return tf.maximum(1, _ELEMENTS // self.count)

    def cells(self, rows: tf.Tensor) -> tf.Tensor:
        """Rows as arrays of cells."""
        return tf.reshape(rows, [-1, *self.sizes])

    def rows(self, cells: tf.Tensor) -> tf.Tensor:
        """Arrays of cells as rows."""
        return tf.reshape(cells, [-1, self.count])

    def to_basis(self, cells: tf.Tensor) -> tf.Tensor:
        """Arrays of cells in the basis of the eigenvectors; a line stays as it is."""
        for axis, vectors in enumerate(self.vectors):
            cells = times_along(tf.linalg.adjoint(vectors), cells, axis + 1)
        return cells

    def from_basis(self, a: tf.Tensor) -> tf.Tensor:
        """Arrays in the basis as arrays of cells."""
        for axis, vectors in enumerate(self.vectors):
            a = times_along(vectors, a, axis + 1)
        return a

    def _outer(self, factors: Sequence[tf.Tensor]) -> tf.Tensor:
        """The outer product of a real vector of each axis that is diagonalised."""
        product = tf.ones([], self._dtype.real_dtype)
        for factor in factors:
            product = product[..., None] * factor
        return product

    def _eigenvalues_but_of(self, axis: int) -> tf.Tensor:
        """The products of the eigenvalues of all other axes, to broadcast against arrays."""
        factors = [
            tf.ones([1], values.dtype) if number == axis else values
            for number, values in enumerate(self.values)
        ]
        return self._outer(factors)

    # --- systems ---------------------------------------------------------------------------------

    def solve(self, rows: tf.Tensor) -> tf.Tensor:
        """`K⁻¹` times rows, zero where cells are missing."""
        cells = self.cells(rows)
        if not self.has_line:  # whose eigenvectors are as accurate as a factor
            return self.rows(self._inverse_times(cells))
        return self.rows(refined(self._inverse_times, self._times, cells))

    def _inverse_times(self, cells: tf.Tensor) -> tf.Tensor:
        solution = self.spectrum.inverse_times(self.to_basis(self._filled(cells)))
        return self.kept(self.from_basis(solution))

    def _times(self, cells: tf.Tensor) -> tf.Tensor:
        a = self.to_basis(cells)
        eigenvalues = self._outer(self.values)[..., None]
        product = as_complex(eigenvalues) * self.spectrum.line_times(a) + as_complex(self.noise) * a
        return self.kept(self.from_basis(product))

    # --- missing cells ---------------------------------------------------------------------------

    def kept(self, cells: tf.Tensor) -> tf.Tensor:
        """Arrays with zeros where cells are missing."""
        if self._missing is None:
            return cells
        at = self._missing[:, None]
        is_missing = tf.scatter_nd(at, tf.ones_like(at[:, 0], self._dtype), [self.count])
        return cells * tf.reshape(1.0 - is_missing, self.sizes)

    def _filled(self, cells: tf.Tensor) -> tf.Tensor:
        """Arrays with the missing cells predicted from the others (see `cgp.gp.line`)."""
        if self._missing is None:
            return cells
        for _ in range(2):
            weights = self.from_basis(self.spectrum.inverse_times(self.to_basis(cells)))
            change = solve(self.chol_of_missing, tf.transpose(self._at_missing(weights)))
            cells -= self._scattered(tf.transpose(change))
        return cells

    def _at_missing(self, cells: tf.Tensor) -> tf.Tensor:
        """Arrays at the missing cells, `[S, k]`."""
        return tf.gather(self.rows(cells), self._missing, axis=1)

    def _scattered(self, values: tf.Tensor) -> tf.Tensor:
        """Arrays of cells from their values at the missing ones, `[S, k]`, and zeros."""
        shape = tf.stack([self.count, tf.shape(values)[0]])
        columns = tf.scatter_nd(tf.expand_dims(self._missing, axis=1), tf.transpose(values), shape)
        return self.cells(tf.transpose(columns))

    def blocks_of_missing(self, add: Callable[[Any, tf.Tensor, tf.Tensor], Any], start: Any) -> Any:
        """Adds up blocks of missing cells: `add(total, first, last)`, from `start` on."""
        count, size = tf.size(self._missing), self.rows_at_once

        def step(first: tf.Tensor, total: Any) -> tuple[tf.Tensor, Any]:
            last = tf.minimum(first + size, count)
            return last, add(total, first, last)

        return tf.while_loop(lambda first, _: first < count, step, (tf.constant(0), start))[1]

    def _factor_of_missing(self, missing: tf.Tensor) -> tf.Tensor:
        """The factor of P_SS, `[k, k]`."""
        count = tf.size(missing)

        def rows_of_block(first: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
            units = tf.one_hot(tf.range(first, last), count, dtype=self._dtype)
            columns = self.spectrum.inverse_times(self.to_basis(self._scattered(units)))
            return tf.math.conj(self._at_missing(self.from_basis(columns)))

        # A graph may have none, of which rows of no known length cannot be stacked.
        block = tf.cond(
            count > 0,
            lambda: in_blocks(rows_of_block, count, self.rows_at_once, [None], self._dtype),
            lambda: tf.zeros([0, 0], self._dtype),
        )
        block = tf.ensure_shape(block, [missing.shape[0], missing.shape[0]])
        return cholesky(0.5 * (block + tf.linalg.adjoint(block)))

    def white_columns(self, first: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
        """Columns of W in the basis, with `W Wᴴ = P_:S P_SS⁻¹ P_S:`.

        W is `P_:S L⁻ᴴ`, L Lᴴ = P_SS, and column r of L⁻ᴴ the conjugate of row r of L⁻¹.
        """
        units = tf.one_hot(tf.range(first, last), tf.size(self._missing), dtype=self._dtype)
        inverse_rows = tf.linalg.triangular_solve(
            self.chol_of_missing, tf.transpose(units), adjoint=True
        )
        scattered = self._scattered(tf.transpose(inverse_rows))
        return self.spectrum.inverse_times(self.to_basis(scattered))

    # --- cotangents ------------------------------------------------------------------------------

    def cotangents(self, total: tf.Tensor, left: tf.Tensor, right: tf.Tensor) -> list[tf.Tensor]:
        """The cotangents of the matrices and of the noise, as of a `StructuredCovariance`."""
        left, right = (self.to_basis(self.cells(rows)) for rows in (left, right))
        pairs = self._contracted(left, right)
        if self._missing is not None:

            def add(total: list[tf.Tensor], first: tf.Tensor, last: tf.Tensor) -> list[tf.Tensor]:
                white = self.white_columns(first, last)
                return [a + b for a, b in zip(total, self._contracted(white, white), strict=True)]

            of_missing = self.blocks_of_missing(add, [tf.zeros_like(a) for a in pairs])
            pairs = [a + total * b for a, b in zip(pairs, of_missing, strict=True)]
        of_precision = self._contracted_precision()
        *axes, noise = (total * p - a for p, a in zip(of_precision, pairs, strict=True))
        cotangents = []
        for number, matrix in enumerate(self._matrices):
            if matrix.shape.rank == 1:
                cotangents.append(toeplitz.column_cotangent(axes[number]))
                continue
            q, a = self.vectors[number], axes[number]
            cotangent = tf.linalg.matmul(tf.linalg.matmul(q, a), q, adjoint_b=True)
            cotangent = 0.5 * (cotangent + tf.linalg.adjoint(cotangent))
            is_real = not matrix.dtype.is_complex
            cotangents.append(tf.math.real(cotangent) if is_real else cotangent)
        return [*cotangents, tf.math.real(noise)]

    def _contracted(self, left: tf.Tensor, right: tf.Tensor) -> list[tf.Tensor]:
        """`Σ left rightᴴ`, contracted with all matrices but that of each axis, and with the noise.

        Of `Σ aᴴ (⊗ A) b` the derivative by an element of A_i is a sum over all other axes, on which
        the matrices are eigenvalues in the basis; of a line it is by the subdiagonals.
        """
        contracted, along_line = [], self.spectrum.line_times(right)
        for axis in range(len(self.values)):
            weights = self._eigenvalues_but_of(axis)
            weights = weights[..., None] if self.has_line else weights
            a, b = (
                tf.reshape(_axis_first(c, axis + 1), [self.sizes[axis], -1])
                for c in (left, tf.cast(weights, self._dtype) * along_line)
            )
            contracted.append(tf.linalg.matmul(a, b, adjoint_b=True))
        if self.has_line:
            pairs = toeplitz.correlation(left, right)
            pairs *= as_complex(self._outer(self.values))[..., None]
            contracted.append(tf.reduce_sum(pairs, axis=range(left.shape.rank - 1)))
        return [*contracted, tf.reduce_sum(left * tf.math.conj(right))]

    def _contracted_precision(self) -> list[tf.Tensor]:
        """P of all cells, contracted as the sums of `_contracted`."""
        trace, trace_with_line, diagonals = self.spectrum.sums()
        contracted = []
        for axis in range(len(self.values)):
            others = [other for other in range(trace.shape.rank) if other != axis]
            weighted = self._eigenvalues_but_of(axis) * trace_with_line
            diagonal = tf.linalg.diag(tf.reduce_sum(weighted, axis=others))
            contracted.append(tf.cast(diagonal, self._dtype))
        if diagonals is not None:
            sums = as_complex(self._outer(self.values))[..., None] * diagonals
            contracted.append(tf.reduce_sum(sums, axis=range(sums.shape.rank - 1)))
        return [*contracted, tf.cast(tf.reduce_sum(trace), self._dtype)]


def in_blocks(
    rows_of: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    count: tf.Tensor | int,
    size: tf.Tensor | int,
    shape: Sequence[int | None],
    dtype: tf.DType,
) -> tf.Tensor:
    """Rows `[count, *shape]`, of which a function computes those from one number to before another.

    So many of them are computed at once.
    """

    def write(first: tf.Tensor, rows: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        last = tf.minimum(first + size, count)
        return last, rows.scatter(tf.range(first, last), rows_of(first, last))

    rows = tf.TensorArray(dtype, count, element_shape=shape)
    start = tf.constant(0), rows
    return tf.while_loop(lambda first, _: first < count, write, start)[1].stack()


def _eigh(matrix: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Real eigenvalues and eigenvectors of a Hermitian matrix; NaN for one that is not finite."""
    is_finite = tf.reduce_all(tf.math.is_finite(tf.math.real(matrix) + tf.math.imag(matrix)))
    identity = tf.eye(tf.shape(matrix)[0], dtype=matrix.dtype)
    values, vectors = tf.linalg.eigh(tf.where(is_finite, matrix, identity))
    values = tf.math.real(values)
    return tf.where(is_finite, values, np.nan * values), vectors


def times_along(matrix: tf.Tensor, a: tf.Tensor, axis: int) -> tf.Tensor:
    """The product of a matrix `[m, n]` with each vector along an axis of `a`, `[…, n, …]`."""
    shape = [size if size is not None else tf.shape(a)[i] for i, size in enumerate(a.shape)]
    before, after = shape[:axis], shape[axis + 1 :]
    if after:
        rows = tf.reshape(a, [-1, shape[axis], math.prod(after)])
        product = tf.linalg.matmul(matrix, rows)
    else:  # one product in place of many
        rows = tf.reshape(a, [-1, shape[axis]])
        product = tf.linalg.matmul(rows, matrix, transpose_b=True)  # not conjugated
    return tf.reshape(product, [*before, length_of(matrix), *after])


def _axis_first(a: tf.Tensor, axis: int) -> tf.Tensor:
    """An array with one of its axes in front of the others."""
    others = [other for other in range(a.shape.rank) if other != axis]
    return tf.transpose(a, [axis, *others])  # no numbers change
