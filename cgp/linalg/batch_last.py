"""Small matrices, many at a time, for loops that XLA compiles.

Batch axes come last, so that one operation runs along them, and the sums over rows and columns are
written out: for matrices of a few rows that is several times faster than products that XLA calls a
library for. A batch axis of 1 broadcasts. What is Hermitian or triangular elsewhere is so here.
"""

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import squared_modulus
from cgp.linalg.composite import real_as

# A row whose remainder is below so many times the rounding of its length depends on those above.
_ROUNDING = 4.0


def to_last(a: tf.Tensor, own: int, batch: tf.Tensor) -> tf.Tensor:
    """`[..., own axes]` -> `[own axes, B]`, broadcast to the batch axes of shape `batch`."""
    a = tf.broadcast_to(a, tf.concat([batch, tf.shape(a)[-own:]], axis=0))
    a = tf.reshape(a, tf.concat([[-1], tf.shape(a)[-own:]], axis=0))
    return tf.experimental.numpy.moveaxis(a, 0, -1)


def to_first(a: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
    """`[own axes, B]` -> `[..., own axes]`, the batch axes of shape `batch`; B may be 1 for all."""
    a = tf.experimental.numpy.moveaxis(a, -1, 0)
    a = tf.broadcast_to(a, tf.concat([[tf.reduce_prod(batch)], tf.shape(a)[1:]], axis=0))
    return tf.reshape(a, tf.concat([batch, tf.shape(a)[1:]], axis=0))


def adjoint(a: tf.Tensor) -> tf.Tensor:
    """`aᴴ`: `[n, m, ...]` -> `[m, n, ...]`."""
    return tf.math.conj(tf.einsum("ij...->ji...", a))


def matmul(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """`a b`: `[n, k, ...]`, `[k, m, ...]` -> `[n, m, ...]`."""
    terms = [a[:, k, None] * b[None, k] for k in range(a.shape[1])]
    return tf.add_n(terms) if len(terms) > 1 else terms[0]


def matvec(a: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """`a x`: `[n, k, ...]`, `[k, ...]` -> `[n, ...]`."""
    if a.shape.rank == 3 and a.shape[-1] == 1 and x.shape[-1] not in (1, None):
        # One product, into which XLA cannot draw what x is made of, n times over.
        return tf.linalg.matmul(a[..., 0], x)
    return sum(a[:, k] * x[k] for k in range(1, a.shape[1])) + a[:, 0] * x[0]


def dot(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """`Σ x y`, nothing conjugated: `[n, ...]`, `[n, ...]` -> `[...]`."""
    return sum(x[k] * y[k] for k in range(1, x.shape[0])) + x[0] * y[0]


def outer(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """`x yᴴ`: `[n, ...]`, `[m, ...]` -> `[n, m, ...]`."""
    return x[:, None] * tf.math.conj(y)[None]


def cholesky(a: tf.Tensor) -> tf.Tensor:
    """A lower triangular L with `L Lᴴ = a`, semidefinite: a pivot that is but rounding is zero.

    So is one that rounding has made negative: beside the diagonal, where elements were computed to
    the digits of larger ones. No number where more than rounding makes it so.

    Args:
        a: Hermitian, `[n, n, ...]`.

    Returns:
        `[n, n, ...]`, its diagonal real and not negative.
    """
    n = a.shape[0]
    eps = np.finfo(a.dtype.real_dtype.as_numpy_dtype).eps
    rows = np.arange(n).reshape([n] + [1] * (a.shape.rank - 2))
    negligible = [_ROUNDING * n * eps * tf.math.real(a[j, j]) for j in range(n)]
    least = -(eps**0.5) * tf.reduce_max(tf.stack([tf.math.real(a[j, j]) for j in range(n)]), axis=0)
    columns = []
    for j in range(n):
        pivot = tf.math.real(a[j, j])
        sound = pivot > negligible[j]
        inverse = tf.where(sound, 1.0 / tf.sqrt(tf.where(sound, pivot, 1.0)), 0.0)
        inverse = tf.where(pivot >= least, inverse, np.nan)  # nor where that is none
        column = a[:, j] * real_as(inverse, a.dtype)
        column = tf.where(rows >= j, column, tf.zeros_like(column))
        columns.append(column)
        a = a - outer(column, column)
    return tf.stack(columns, axis=1)


def triangularize(a: tf.Tensor) -> tf.Tensor:
    """The lower triangular L with `L Lᴴ = a aᴴ`, its diagonal real and not negative.

    Modified Gram-Schmidt on the rows, the time update of square-root filters (Thornton, 1976). Its
    triangular factor is as good as Householder's: it is the one that Householder's method finds for
    `a` under a block of zeros (Björck, BIT 7, 1967). A row that depends on those above it gets a
    zero on the diagonal.

    Args:
        a: `[n, m, ...]`, m ≥ 1.

    Returns:
        `[n, n, ...]`.
    """
    n = a.shape[0]
    eps = np.finfo(a.dtype.real_dtype.as_numpy_dtype).eps
    negligible = (_ROUNDING * eps) ** 2 * tf.reduce_sum(squared_modulus(a), axis=1)
    columns = []
    for j in range(n):
        power = tf.reduce_sum(squared_modulus(a[j]), axis=0)
        inverse = tf.math.rsqrt(power)
        inverse = tf.where(power > negligible[j], inverse, tf.zeros_like(inverse))
        direction = a[j] * real_as(inverse, a.dtype)
        components = tf.reduce_sum(a * tf.math.conj(direction)[None], axis=1)
        below = np.arange(n).reshape([n] + [1] * (a.shape.rank - 2))
        diagonal = real_as(power * inverse, a.dtype)
        components = tf.where(below > j, components, tf.zeros_like(components))
        columns.append(tf.where(below == j, diagonal[None], components))
        a = a - components[:, None] * direction[None]
    return tf.stack(columns, axis=1)


def condition(
    chol: tf.Tensor, h: tf.Tensor, noise_variance: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The factor of a covariance P given `h x + n`, by Carlson's formula.

    As `cgp.linalg.cholesky_condition`, which says more. Where there is no noise, and `h x` is known
    but for rounding, nothing is learnt: P hᴴ and S are zero.

    Args:
        chol: `[n, n, ...]`.
        h: `[n, ...]`.
        noise_variance: Real, `[...]`.

    Returns:
        The new factor; `P hᴴ`, `[n, ...]`; and `S = h P hᴴ + noise_variance`, real, `[...]`.
    """
    n = chol.shape[0]
    phi = sum(tf.math.conj(chol[i] * h[i]) for i in range(1, n)) + tf.math.conj(chol[0] * h[0])
    # What rounding leaves of a sum that is zero is no variance, unless noise hides it.
    size = sum(tf.abs(chol[i] * h[i]) for i in range(n))
    eps = np.finfo(chol.dtype.real_dtype.as_numpy_dtype).eps
    noise = (_ROUNDING * n * eps) ** 2 * tf.reduce_sum(size**2, axis=0)
    known = (noise_variance <= 0) & (tf.reduce_sum(squared_modulus(phi), axis=0) <= noise)
    phi = tf.where(known, tf.zeros_like(phi), phi)
    power, rows = squared_modulus(phi), chol * phi[None]
    # Sums over the columns after j, and with it: σ_j and σ_{j−1} of Carlson.
    after = [noise_variance + tf.zeros_like(power[0])]
    sums = [tf.zeros_like(rows[:, 0])]
    for k in reversed(range(n)):
        after.append(after[-1] + power[k])
        sums.append(sums[-1] + rows[:, k])
    variance, cross = after.pop(), sums.pop()
    s = tf.sqrt(tf.stack(after[::-1]))
    s_before = tf.concat([tf.sqrt(variance)[None], s[:-1]], axis=0)
    learns, certain = s_before > 0, s > 0
    ratio = tf.where(learns, s / tf.where(learns, s_before, 1.0), tf.ones_like(s))
    both = learns & certain
    # Two roots and a product, where the root of the product would underflow.
    weight = tf.where(both, 1.0 / tf.where(both, s * s_before, 1.0), tf.zeros_like(s))
    weight = tf.math.conj(phi) * real_as(weight, chol.dtype)
    new = chol * real_as(ratio, chol.dtype)[None] - tf.stack(sums[::-1], axis=1) * weight[None]
    return new, cross, variance
