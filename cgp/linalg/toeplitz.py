"""Hermitian Toeplitz matrices, the covariances of stationary processes over a regular line.

A matrix K is its first column t: `K[i, j] = t[i − j]`, and the conjugate of `t[j − i]` above the
diagonal. Its factorisation by the Schur recursion takes O(n²) operations and O(n) memory, and O(n)
operations a column more once the reflections have settled to zero, as those of a process that is
an autoregression to rounding do. The inverse is known from its first column g (Gohberg & Semencul,
1972; Kailath & Sayed, *Fast Reliable Algorithms for Matrices with Structure*, 1999, ch. 1),

    g₀ K⁻¹ = L(g) L(g)ᴴ − L(ĝ) L(ĝ)ᴴ,    ĝ₀ = 0,  ĝᵢ = conj(gₙ₋ᵢ),

L(g) being the lower triangular Toeplitz matrix with the first column g, so that products with it
are convolutions. Vectors are rows here, `[..., n]`, as Fourier transforms take them, and axes of
several matrices are in front, `[..., n]` of columns, as in a broadcast.
"""

import itertools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp import native
from cgp.linalg.arguments import as_complex, squared_modulus
from cgp.linalg.cholesky import assert_positive_definite

_NOT_POSITIVE = (
    "the covariance of a regular line is not positive definite (add noise to its diagonal, or "
    "check the kernel)"
)


class ToeplitzFactor(NamedTuple):
    """The inverse and the determinant of K = L Lᴴ, and whitened vectors."""

    inverse_column: tf.Tensor
    """The first column of K⁻¹, complex, `[..., n]`."""
    white: tf.Tensor
    """`L⁻¹` times each of the vectors, complex, `[..., S, n]`."""
    log_det: tf.Tensor
    """`log|K|`, real, `[...]`."""


def factorize(column: tf.Tensor, vectors: tf.Tensor) -> ToeplitzFactor:
    """Factorises K, and whitens vectors on the way. Has no gradient.

    Args:
        column: The first column of K, complex128, `[..., n]`.
        vectors: Complex128, `[..., S, n]`.

    Raises:
        NotPositiveDefiniteError: K is not positive definite; as for `cgp.linalg.cholesky` in
            graphs.

    Example:
        >>> import numpy as np
        >>> from cgp.linalg import toeplitz
        >>> factor = toeplitz.factorize(np.array([2.0, 1j]), np.array([[2.0, 3j]]))
        >>> bool(np.allclose(factor.inverse_column, np.linalg.inv([[2, -1j], [1j, 2]])[:, 0]))
        True
    """
    column, vectors = tf.convert_to_tensor(column), tf.convert_to_tensor(vectors)
    if native.serves_here(column, vectors):
        inverse, white, log_det = native.op("cgp_toeplitz_factor")(column, vectors)
        log_det = tf.ensure_shape(log_det, column.shape[:-1])
    else:
        inverse, white, log_det = _schur(column, vectors)
    inverse, white = tf.ensure_shape(inverse, column.shape), tf.ensure_shape(white, vectors.shape)
    ok = tf.math.is_finite(log_det)
    white = assert_positive_definite(ok, white, _NOT_POSITIVE)
    inverse = assert_positive_definite(ok, inverse[..., None, :], _NOT_POSITIVE)[..., 0, :]
    return ToeplitzFactor(*map(_without_gradient, (inverse, white, log_det)))


def _without_gradient(a: tf.Tensor) -> tf.Tensor:
    message = "the factorisation of a Toeplitz matrix has no gradient of its own"
    return tf.raw_ops.PreventGradient(input=a, message=message)


def _schur(column: tf.Tensor, vectors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The recursion of `toeplitz.cpp` by TensorFlow; a log determinant of NaN where it fails."""
    size, real = tf.shape(column)[-1], column.dtype.real_dtype
    after = tf.range(size)

    def step(k: tf.Tensor, u: tf.Tensor, v: tf.Tensor, x: tf.Tensor, *sums: tf.Tensor) -> tuple:
        error, log_det, targets, white = sums
        shifted = tf.where(k > 0, tf.concat([tf.zeros_like(u[..., :1]), u[..., :-1]], axis=-1), u)
        reflection = (v[..., k] / shifted[..., k])[..., None]
        share = 1.0 - squared_modulus(reflection)  # NaN or negative: the root is NaN from here on
        root = as_complex(tf.sqrt(share))
        u = (shifted - tf.math.conj(reflection) * v) / root
        v = tf.where(after > k, root * v - reflection * u, tf.zeros_like(v))
        # conj(x) in reverse, its last element at k.
        turned = tf.roll(tf.math.conj(tf.reverse(x, axis=[-1])), k + 1 - size, axis=-1)
        x = x - reflection * turned
        pivot = tf.math.real(u[..., k])
        w = targets[..., k] / as_complex(pivot)[..., None]
        white = white.write(k, w)
        targets = targets - w[..., None] * u[..., None, :]
        log_det = log_det + 2.0 * tf.math.log(pivot)
        return k + 1, u, v, x, error * share[..., 0], log_det, targets, white

    variance = tf.math.real(column[..., 0])
    u = column / as_complex(tf.sqrt(variance))[..., None]
    v = tf.where(after > 0, u, tf.zeros_like(u))
    x = tf.zeros_like(column) + as_complex(tf.cast(after == 0, real))
    white = tf.TensorArray(column.dtype, size, element_shape=vectors.shape[:-1])
    state = (tf.constant(0), u, v, x, variance, tf.zeros_like(variance), vectors, white)
    *_, x, error, log_det, _, white = tf.while_loop(lambda k, *_: k < size, step, state)
    return x / as_complex(error)[..., None], tf.einsum("k...->...k", white.stack()), log_det


def inverse_block(inverse_column: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """The block of some rows and columns of K⁻¹, `[k, k]`, without a gradient.

    Args:
        inverse_column: The first column of K⁻¹, `[n]`.
        rows: The numbers of these rows, int32 in order, `[k]`.
    """
    if native.serves_here(inverse_column):
        block = native.op("cgp_toeplitz_inverse_block")(inverse_column, rows)
    else:
        block = tf.gather(_inverse_rows(inverse_column, rows), rows, axis=1)
    return tf.ensure_shape(block, [rows.shape[0]] * 2)


def white_inverse_rows(
    inverse_column: tf.Tensor, rows: tf.Tensor, block_chol: tf.Tensor
) -> tf.Tensor:
    """Some rows of K⁻¹, `[k, n]`, divided by a factor `[k, k]`, as that of their block.

    Arguments as for `inverse_block`.
    """
    if native.serves_here(inverse_column) and native.has_lapack():
        white = native.op("cgp_toeplitz_white_rows")(inverse_column, rows, block_chol)
    else:
        white = tf.linalg.triangular_solve(block_chol, _inverse_rows(inverse_column, rows))
    return tf.ensure_shape(white, [rows.shape[0], inverse_column.shape[0]])


def _inverse_rows(inverse_column: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    units = tf.one_hot(rows, tf.shape(inverse_column)[0], dtype=inverse_column.dtype)
    return tf.math.conj(inverse_times(inverse_column, units))  # columns of a Hermitian matrix


# Lengths of fast Fourier transforms, products of 2, 3 and 5.
_LENGTHS = np.unique(
    [
        2**a * 3**b * 5**c
        for a, b, c in itertools.product(range(31), range(20), range(14))
        if 2**a * 3**b * 5**c < 2**31
    ]
).astype(np.int32)


def _transform(a: tf.Tensor) -> tf.Tensor:
    """The Fourier transform of vectors `[..., n]` with at least n zeros behind."""
    a = tf.convert_to_tensor(a)
    n = a.shape[-1]
    if n is None:
        n = tf.shape(a)[-1]
        length = tf.gather(_LENGTHS, tf.searchsorted(_LENGTHS, [2 * n])[0])
    else:
        length = int(_LENGTHS[np.searchsorted(_LENGTHS, 2 * n)])
    padding = [[0, 0]] * (a.shape.rank - 1) + [[0, length - n]]
    return tf.signal.fft(tf.pad(a, padding))


def times(column: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
    """`K` times each of the vectors, `[..., n]`."""
    n = tf.shape(column)[-1]
    halved = tf.concat([0.5 * column[..., :1], column[..., 1:]], axis=-1)
    spectrum = tf.math.real(_transform(halved))
    product = as_complex(2.0 * spectrum) * _transform(vectors)  # t and its conjugate at −t
    return tf.ensure_shape(tf.signal.ifft(product)[..., :n], vectors.shape)


def inverse_times(inverse_column: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
    """`K⁻¹` times each of the vectors, `[..., n]`, by its first column; has its rounding error."""
    n = tf.shape(inverse_column)[-1]
    first, others = inverse_column[..., :1], inverse_column[..., 1:]
    turned = tf.concat([tf.zeros_like(first), tf.math.conj(tf.reverse(others, axis=[-1]))], axis=-1)

    def transformed_gram(generator: tf.Tensor) -> tf.Tensor:
        spectrum = _transform(generator)
        correlated = tf.signal.ifft(tf.math.conj(spectrum) * of_vectors)[..., :n]
        return spectrum * _transform(correlated)

    of_vectors = _transform(vectors)
    difference = transformed_gram(inverse_column) - transformed_gram(turned)
    product = tf.signal.ifft(difference)[..., :n] / first
    return tf.ensure_shape(product, vectors.shape)


def correlation(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """`Σᵢ a[i + d] conj(b[i])` at the lags d = 0 … n − 1 of vectors `[..., n]`.

    The sum over the subdiagonal d of the matrix `a bᴴ`.
    """
    n = tf.shape(a)[-1]
    return tf.signal.ifft(_transform(a) * tf.math.conj(_transform(b)))[..., :n]


def diagonal_sums(inverse_column: tf.Tensor) -> tf.Tensor:
    """The sum over each subdiagonal of K⁻¹, `[..., n]`, by its first column.

    By the formula for the inverse the sum is `Σₘ (n − d − 2 m) g[m + d] conj(g[m]) / g₀`.
    """
    n = tf.shape(inverse_column)[-1]
    numbers = tf.cast(tf.range(n), inverse_column.dtype.real_dtype)
    plain = correlation(inverse_column, inverse_column)
    weighted = correlation(inverse_column, as_complex(numbers) * inverse_column)
    counts = as_complex(tf.cast(n, numbers.dtype) - numbers)
    return (counts * plain - 2.0 * weighted) / inverse_column[..., :1]


def column_cotangent(subdiagonals: tf.Tensor) -> tf.Tensor:
    """The cotangent of the column of K, by the sums over subdiagonals of a Hermitian K̄."""
    real = as_complex(tf.math.real(subdiagonals[:1]))
    return tf.concat([real, 2.0 * subdiagonals[1:]], axis=0)
