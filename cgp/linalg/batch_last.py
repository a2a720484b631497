"""Algebra of small matrices with the batch axis last, for loops that XLA compiles.

Each operation runs along the batch axis, and sums over rows and columns are unrolled: for matrices
of a few rows this is several times faster than matrix products, for which XLA calls a library. A
batch axis of 1 broadcasts, and so does an array without an axis of rows along the rows of another.

The time to trace a function grows with its operations, and an index `a[k]` makes four: rows and
columns are taken apart by one `tf.unstack` or `tf.split`.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import real_as, squared_modulus
from cgp.linalg.gradients import with_gradient

# A row counts as linearly dependent on the rows above it where its remainder is below this many
# times the rounding of its length.
_ROUNDING = 4.0
_MOST_UNROLLED = 8  # columns of a factor, beyond which tracing takes longer than a loop


def to_last(a: tf.Tensor, event_rank: int, batch: tf.Tensor) -> tf.Tensor:
    """Moves batch axes to the end: `[..., own axes]` -> `[own axes, B]`.

    They broadcast against the shape `batch`, int32, of B elements; `event_rank` axes are not batch
    axes.
    """
    if tf.executing_eagerly():  # with static shapes, in fewer operations
        shape = a.shape[-event_rank:].as_list()
        whole = [*batch.numpy().tolist(), *shape]
        a = a if a.shape == whole else tf.broadcast_to(a, whole)
        a = tf.reshape(a, [-1, math.prod(shape)])
        # Axes are moved, so there is nothing to conjugate.
        return tf.reshape(tf.linalg.matrix_transpose(a), [*shape, -1])
    a = tf.broadcast_to(a, tf.concat([batch, tf.shape(a)[-event_rank:]], axis=0))
    a = tf.reshape(a, tf.concat([[-1], tf.shape(a)[-event_rank:]], axis=0))
    return tf.experimental.numpy.moveaxis(a, 0, -1)


def to_first(a: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
    """Moves batch axes to the front, `[own axes, B]` -> `[..., own axes]`; B of 1 is broadcast."""
    if tf.executing_eagerly():
        shape, several = a.shape.as_list()[:-1], batch.numpy().tolist()
        a = tf.reshape(a, [math.prod(shape), -1]) if shape else a
        a = tf.linalg.matrix_transpose(a) if shape else a  # as in `to_last`
        if a.shape[0] != math.prod(several):
            a = tf.broadcast_to(a, [math.prod(several), *a.shape[1:]])
        return tf.reshape(a, [*several, *shape])
    a = tf.experimental.numpy.moveaxis(a, -1, 0)
    a = tf.broadcast_to(a, tf.concat([[tf.reduce_prod(batch)], tf.shape(a)[1:]], axis=0))
    return tf.reshape(a, tf.concat([batch, tf.shape(a)[1:]], axis=0))


def adjoint(a: tf.Tensor) -> tf.Tensor:
    """`aᴴ`: `[n, m, ...]` -> `[m, n, ...]`."""
    return tf.math.conj(tf.einsum("ij...->ji...", a))


def matmul(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """`a b`: `[n, k, ...]`, `[k, m, ...]` -> `[n, m, ...]`."""
    k = a.shape[1]
    terms = [x * y for x, y in zip(tf.split(a, k, axis=1), tf.split(b, k), strict=True)]
    return tf.add_n(terms) if len(terms) > 1 else terms[0]


def matvec(a: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """`a x`: `[n, k, ...]`, `[k, ...]` -> `[n, ...]`."""
    if a.shape.rank == 3 and a.shape[-1] == 1 and x.shape[-1] not in (1, None):
        # A matmul keeps XLA from fusing the computation of x into every row, n times over.
        return tf.linalg.matmul(a[..., 0], x)
    columns = tf.unstack(a, axis=1)
    return _sum(c * y for c, y in zip(columns, tf.unstack(x, len(columns)), strict=True))


def dot(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """`Σ x y` without conjugation: `[n, ...]`, `[n, ...]` -> `[...]`."""
    n = x.shape[0]
    return _sum(a * b for a, b in zip(tf.unstack(x), tf.unstack(y, n), strict=True))


def _sum(terms: Iterable[tf.Tensor]) -> tf.Tensor:
    """The sum of terms of one shape, the first added last."""
    first, *following = terms
    return tf.add_n([*following, first]) if following else first


def outer(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """`x yᴴ`: `[n, ...]`, `[m, ...]` -> `[n, m, ...]`."""
    return tf.expand_dims(x, 1) * tf.math.conj(y)


def inverse_or_zero(s: tf.Tensor) -> tf.Tensor:
    """1/s, and 0 where s is zero, as the variance of a certain prediction is."""
    uncertain = s > 0
    return tf.where(uncertain, 1.0 / tf.where(uncertain, s, 1.0), tf.zeros_like(s))


def divide(x: tf.Tensor, chol: tf.Tensor) -> tf.Tensor:
    """The solution J `[m, n, ...]` of `J L = X`, L lower triangular `[n, n, ...]`.

    A column of J is zero where the pivot of L is zero.
    """
    n = chol.shape[0]
    columns = tf.unstack(x, axis=1)
    elements = [tf.unstack(row) for row in tf.unstack(chol)]
    for j in reversed(range(n)):
        remainder = columns[j] - sum(columns[k] * elements[k][j] for k in range(j + 1, n))
        pivot = tf.math.real(elements[j][j])
        columns[j] = remainder * real_as(inverse_or_zero(pivot), x.dtype)
    return tf.stack(columns, axis=1)


def solve(chol: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """The solution `L⁻¹ b` `[n, m, ...]` by forward substitution, L regular `[n, n, ...]`."""
    rows: list[tf.Tensor] = []
    for j, (row, remainder) in enumerate(zip(tf.unstack(chol), tf.unstack(b), strict=True)):
        elements = tf.unstack(row, chol.shape[0])
        for solution, element in zip(rows, elements, strict=False):
            remainder -= element * solution
        rows.append(remainder * real_as(1.0 / tf.math.real(elements[j]), b.dtype))
    return tf.stack(rows)


def cholesky(a: tf.Tensor) -> tf.Tensor:
    """The Cholesky factor of a positive semidefinite matrix `[n, n, ...]`, which may be singular.

    A pivot within rounding of zero is set to zero, with its column. A pivot may be negative by as
    much as the square root of the machine epsilon times the largest diagonal element, for it may
    carry the rounding of larger elements; below that, the column is NaN.
    """
    n = a.shape[0]
    eps = np.finfo(a.dtype.real_dtype.as_numpy_dtype).eps
    rows = np.arange(n).reshape([n] + [1] * (a.shape.rank - 2))
    diagonal = tf.stack([tf.math.real(a[j, j]) for j in range(n)])
    negligible = _ROUNDING * n * eps * diagonal
    least = -(eps**0.5) * tf.reduce_max(diagonal, axis=0)

    def eliminated(j: Any, a: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Column j of the factor, and what remains of the matrix without it."""
        pivot = tf.math.real(a[j, j])
        sound = pivot > negligible[j]
        inverse = tf.where(sound, 1.0 / tf.sqrt(tf.where(sound, pivot, 1.0)), 0.0)
        inverse = tf.where(pivot >= least, inverse, np.nan)  # indefinite
        column = a[:, j] * real_as(inverse, a.dtype)
        column = tf.where(rows >= j, column, tf.zeros_like(column))
        return column, a - outer(column, column)

    columns: Any
    if n <= _MOST_UNROLLED:
        columns = []
        for j in range(n):
            column, a = eliminated(j, a)
            columns.append(column)
        return tf.stack(columns, axis=1)

    def eliminate(j: tf.Tensor, a: tf.Tensor, columns: Any) -> tuple[tf.Tensor, tf.Tensor, Any]:
        column, a = eliminated(j, a)
        return j + 1, a, columns.write(j, column)

    columns = tf.TensorArray(a.dtype, n, element_shape=a.shape[1:])
    start = (tf.constant(0), a, columns)
    *_, columns = tf.while_loop(lambda j, *_: j < n, eliminate, start)
    return tf.experimental.numpy.moveaxis(columns.stack(), 0, 1)


def with_factor_gradient(chol: tf.Tensor, a: tf.Tensor) -> tf.Tensor:
    """Returns `chol`, and adds the gradient of the Cholesky factor of `a` to its own.

    `chol` is the factor of a sum of which `a`, Hermitian `[n, n, ...]`, is a term, or of `a`. Where
    `a` is singular the gradient is taken along changes within its range.
    """

    def pullback(a: tf.Tensor, chol: tf.Tensor, chol_bar: tf.Tensor) -> tf.Tensor:
        # As `cgp.linalg.cholesky.cholesky_pullback`.
        n = chol.shape[0]
        products = matmul(adjoint(chol), chol_bar)
        weights = np.tril(np.ones([n, n])) - 0.5 * np.eye(n)
        phi = products * tf.constant(weights, chol.dtype)[(..., *[None] * (chol.shape.rank - 2))]
        diagonal = tf.eye(n, dtype=chol.dtype)[(..., *[None] * (chol.shape.rank - 2))]
        phi -= 0.5 * diagonal * (products - tf.math.conj(products))  # the diagonal is real
        return 0.5 * adjoint(divide(adjoint(divide(phi + adjoint(phi), chol)), chol))

    return with_gradient(lambda a, chol: chol, a + tf.zeros_like(chol), chol, grad=pullback)


def triangularize(a: tf.Tensor) -> tf.Tensor:
    """The lower triangular L `[n, n, ...]` with `L Lᴴ = a aᴴ`, for `a` `[n, m, ...]`.

    Its diagonal is real and not negative. The method is modified Gram-Schmidt on the rows, the time
    update of square-root filters (Thornton, 1976). The factor is as accurate as by Householder's
    method: it is the factor that this method finds for `a` under a block of zeros (Björck, BIT 7,
    1967). A row that depends linearly on the rows above it gets a zero on the diagonal.
    """
    n = a.shape[0]
    eps = np.finfo(a.dtype.real_dtype.as_numpy_dtype).eps
    negligible = (_ROUNDING * eps) ** 2 * tf.reduce_sum(squared_modulus(a), axis=1)
    columns = []
    for j, least in enumerate(tf.unstack(negligible, n)):
        row = a[j]
        power = tf.reduce_sum(squared_modulus(row), axis=0)
        sound = power > least  # the inner choice keeps gradients finite
        inverse = tf.math.rsqrt(tf.where(sound, power, tf.ones_like(power)))
        inverse = tf.where(sound, inverse, tf.zeros_like(inverse))
        direction = row * real_as(inverse, a.dtype)
        components = tf.reduce_sum(a * tf.math.conj(direction), axis=1)
        below = np.arange(n).reshape([n] + [1] * (a.shape.rank - 2))
        diagonal = real_as(power * inverse, a.dtype)
        components = tf.where(below > j, components, tf.zeros_like(components))
        columns.append(tf.where(below == j, diagonal, components))
        a = a - tf.expand_dims(components, 1) * direction
    return tf.stack(columns, axis=1)


def condition(
    chol: tf.Tensor, h: tf.Tensor, noise_variance: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The measurement update of a factor by a scalar `h x + n`, by Carlson's formula.

    `chol` is the factor of P `[n, n, ...]`, h is `[n, ...]`, the real variance of n `[...]`. Where
    this is zero, and the variance of `h x` only rounding, the factor does not change, and P hᴴ and
    S are zero. See `cgp.linalg.cholesky_condition`.

    Returns:
        The new factor; `P hᴴ`, `[n, ...]`; and `S = h P hᴴ + noise_variance`, real, `[...]`.
    """
    n = chol.shape[0]
    terms = [row * x for row, x in zip(tf.unstack(chol), tf.unstack(h, n), strict=True)]
    phi = tf.math.conj(_sum(terms))
    # Without noise, a variance that is only the rounding of a sum equal to zero is set to zero.
    size = sum(map(tf.abs, terms))
    eps = np.finfo(chol.dtype.real_dtype.as_numpy_dtype).eps
    noise = (_ROUNDING * n * eps) ** 2 * tf.reduce_sum(size**2, axis=0)
    is_certain = (noise_variance <= 0) & (tf.reduce_sum(squared_modulus(phi), axis=0) <= noise)
    phi = tf.where(is_certain, tf.zeros_like(phi), phi)
    powers, columns = tf.unstack(squared_modulus(phi), n), tf.unstack(chol * phi, n, axis=1)
    # Carlson's σ_j and σ_{j−1}: sums over the columns after j, without and with column j.
    after = [noise_variance + tf.zeros_like(powers[0])]
    sums = [tf.zeros_like(columns[0])]
    for power, column in zip(reversed(powers), reversed(columns), strict=True):
        after.append(after[-1] + power)
        sums.append(sums[-1] + column)
    variance, cross = after.pop(), sums.pop()
    s = _root(tf.stack(after[::-1]))
    s_before = tf.concat([_root(variance)[None], s[:-1]], axis=0)
    learns, certain = s_before > 0, s > 0
    ratio = tf.where(learns, s / tf.where(learns, s_before, 1.0), tf.ones_like(s))
    regular = learns & certain
    # s and s_before are roots already: the root of their squares' product would underflow.
    weight = tf.where(regular, 1.0 / tf.where(regular, s * s_before, 1.0), tf.zeros_like(s))
    weight = tf.math.conj(phi) * real_as(weight, chol.dtype)
    new = chol * real_as(ratio, chol.dtype) - tf.stack(sums[::-1], axis=1) * weight
    return new, cross, variance


def _root(a: tf.Tensor) -> tf.Tensor:
    """The square root, with gradient zero at zero."""
    positive = a > 0
    return tf.where(positive, tf.sqrt(tf.where(positive, a, tf.ones_like(a))), tf.zeros_like(a))
