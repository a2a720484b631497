"""Rank-one operations on Cholesky factors in TensorFlow: the arithmetic of `cgp.linalg.updates`.

It serves in graphs, under XLA and on a GPU, and as the reference of the compiled ops, whose errors
are raised here too.

Updates, downdates and measurements share a column scaling. Each multiplies `L` from the right by a
triangular factor of `I + α w wᴴ`, which is a diagonal plus a rank-one triangle (Gill, Golub, Murray
& Saunders, Math. Comp. 28, 1974):

    L'_ij = d_j L_ij + u_j Σ_{k>j} L_ik w_k .

The running sum along the rows is computed by panels of columns: within a panel by a product with a
small triangle, between panels by a carried vector. A cumulative sum over n² elements is slower, and
XLA on a CPU has no complex one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import (
    ArrayLike,
    as_index,
    as_real,
    as_vector_for,
    broadcast,
    has_positive_diagonal,
    is_finite,
    known_sign,
    real_as,
    real_diagonal,
    squared_modulus,
)
from cgp.linalg.cholesky import NotPositiveDefiniteError, as_factor, assert_positive_definite
from cgp.linalg.short_repr import short_repr


@short_repr
class ScalarUpdate(NamedTuple):
    """The result of `cholesky_condition`: posterior factor, Kalman gain, innovation variance."""

    chol: tf.Tensor
    """The posterior factor, `[..., n, n]`."""
    gain: tf.Tensor
    """The Kalman gain `P hᴴ / S`, `[..., n]`."""
    innovation_variance: tf.Tensor
    """`S = h P hᴴ + r`, real, `[...]`."""


def update(chol: ArrayLike, update_vector: ArrayLike, multiplier: ArrayLike = 1.0) -> tf.Tensor:
    """`cgp.linalg.cholesky_update` in TensorFlow."""
    chol = as_factor(chol)
    v = as_vector_for(update_vector, "update_vector", chol)
    alpha = as_real(multiplier, "multiplier", chol)
    sign = known_sign(alpha)
    chol, v, alpha = broadcast(chol=(chol, 2), update_vector=(v, 1), multiplier=(alpha, 0))
    if chol.shape[-1] == 0:
        return chol
    chol = tf.linalg.band_part(chol, -1, 0)
    w = _solve_vector(chol, v)
    power = squared_modulus(w)

    def updated(alpha: tf.Tensor) -> tf.Tensor:
        squares = alpha[..., None] * power
        s = 1.0 + tf.cumsum(squares, axis=-1)
        s_before = 1.0 + tf.cumsum(squares, axis=-1, exclusive=True)
        scales = _scales(s_before, s, alpha[..., None], w)
        return scale_columns_of_update(chol, w, *scales, tf.stop_gradient(v))

    def downdated(alpha: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        squares = -alpha[..., None] * power
        last = 1.0 - tf.reduce_sum(squares, axis=-1, keepdims=True)
        # Summed from the end, where s is smallest, every added term is positive.
        s = last + tf.cumsum(squares, axis=-1, exclusive=True, reverse=True)
        s_before = last + tf.cumsum(squares, axis=-1, reverse=True)
        return scale_columns(chol, w, *_scales(s_before, s, alpha[..., None], w)), last[..., 0] > 0

    if sign == "+":
        new, ok = updated(alpha), tf.ones_like(alpha, tf.bool)
    elif sign == "-":
        new, ok = downdated(alpha)
    else:
        # A branch has a multiplier of zero where the other is taken: NaN would reach the gradient.
        new, ok = downdated(tf.minimum(alpha, 0.0))
        new = tf.where((alpha >= 0)[..., None, None], updated(tf.maximum(alpha, 0.0)), new)
    ok &= has_positive_diagonal(new)
    message = _NO_UPDATE if sign == "+" else _NO_DOWNDATE
    return _checked(ok, new, message, chol=chol, update_vector=v, multiplier=alpha)


def condition(chol: ArrayLike, h: ArrayLike, noise_variance: ArrayLike) -> ScalarUpdate:
    """`cgp.linalg.cholesky_condition` in TensorFlow."""
    chol = as_factor(chol, singular=True)
    h = as_vector_for(h, "h", chol)
    r = as_real(noise_variance, "noise_variance", chol)
    chol, h, r = broadcast(chol=(chol, 2), h=(h, 1), noise_variance=(r, 0))
    chol = tf.linalg.band_part(chol, -1, 0)
    phi = tf.linalg.matvec(chol, tf.math.conj(h), adjoint_a=True)
    power = squared_modulus(phi)
    s = r[..., None] + tf.cumsum(power, axis=-1, exclusive=True, reverse=True)
    s_before = r[..., None] + tf.cumsum(power, axis=-1, reverse=True)
    variance = r + tf.reduce_sum(power, axis=-1)
    new = scale_columns(chol, phi, *_scales(s_before, s, tf.constant(-1.0, r.dtype), phi))
    learns = variance != 0
    inverse = 1.0 / tf.where(learns, variance, tf.ones_like(variance))
    inverse = tf.where(learns, inverse, tf.zeros_like(inverse))
    gain = tf.linalg.matvec(chol, phi) * real_as(inverse, chol.dtype)[..., None]

    diagonal = real_diagonal(new)
    ok = tf.reduce_all((diagonal >= 0) & (diagonal < np.inf), axis=-1)
    ok &= (r >= 0) & tf.math.is_finite(variance)
    message = _NO_MEASUREMENT
    if tf.executing_eagerly():
        message = _NEGATIVE_NOISE if bool(tf.reduce_any(r < 0)) else _OVERFLOW
    new = _checked(ok, new, message, error=ValueError, chol=chol, h=h, noise_variance=r)
    nan = tf.constant(np.nan, r.dtype)
    return ScalarUpdate(
        new, tf.where(ok[..., None], gain, real_as(nan, gain.dtype)), tf.where(ok, variance, nan)
    )


def append(
    chol: ArrayLike, cross: ArrayLike, variance: ArrayLike, size: ArrayLike | None = None
) -> tf.Tensor:
    """`cgp.linalg.cholesky_append` in TensorFlow."""
    chol = as_factor(chol)
    cross = as_vector_for(cross, "cross", chol)
    variance = as_real(variance, "variance", chol)
    capacity = _size_of(chol)
    if size is None:
        chol, cross, variance = broadcast(chol=(chol, 2), cross=(cross, 1), variance=(variance, 0))
        fits = tf.constant(True)
    else:
        used, fits = as_index(size, "size", _USED, capacity, too_large=": the buffer is full")
        chol, cross, variance, used, fits = broadcast(
            chol=(chol, 2), cross=(cross, 1), variance=(variance, 0), size=(used, 0), fits=(fits, 0)
        )
        rows = tf.range(capacity)
        cross = tf.where(rows < used[..., None], cross, tf.zeros_like(cross))
    # The adjoint of this is the new row of the factor.
    column = _solve_vector(chol, cross)
    schur = variance - tf.reduce_sum(squared_modulus(column), axis=-1)
    ok = fits & (schur > 0) & (schur < np.inf)
    pivot = real_as(tf.sqrt(tf.where(schur > 0, schur, tf.ones_like(schur))), chol.dtype)
    row = tf.math.conj(column)
    if size is None:
        above = tf.concat([chol, tf.zeros_like(row)[..., None]], axis=-1)
        below = tf.concat([row, pivot[..., None]], axis=-1)
        new = tf.concat([above, below[..., None, :]], axis=-2)
    else:
        is_new_row = rows == used[..., None]
        row = tf.where(is_new_row, pivot[..., None], row)
        new = tf.where(is_new_row[..., None], row[..., None, :], chol)
    return _checked(ok, new, _DEPENDENT, chol=chol, cross=cross, variance=variance)


def remove(chol: ArrayLike, index: ArrayLike, size: ArrayLike | None = None) -> tf.Tensor:
    """`cgp.linalg.cholesky_remove` in TensorFlow."""
    chol = as_factor(chol, singular=True)
    capacity = _size_of(chol)
    used, fits = capacity, tf.constant(True)
    if size is not None:
        used, fits = as_index(size, "size", _USED, capacity + 1, start=1)
    index, inside = as_index(index, "index", "is the row to remove", used)
    constant_index = tf.get_static_value(index)
    chol, index, fits = broadcast(chol=(chol, 2), index=(index, 0), fits=(fits & inside, 0))
    if constant_index is not None and constant_index.ndim == 0:
        new = _without(chol, int(constant_index))
    else:
        rows = tf.linalg.band_part(chol, -1, 0)
        stays = tf.range(capacity - 1) < index[..., None]
        rows = tf.where(stays[..., None], rows[..., :-1, :], rows[..., 1:, :])
        removed = tf.linalg.matvec(rows, tf.one_hot(index, capacity, dtype=chol.dtype))
        new = update(tf.where(stays[..., None, :], rows[..., :-1], rows[..., 1:]), removed)
    if size is not None:
        new = tf.concat([new, tf.zeros_like(chol[..., 1:, :1])], axis=-1)
        last = tf.cast(tf.range(capacity) == capacity - 1, new.dtype)
        new = tf.concat([new, last * tf.ones_like(chol[..., :1, :])], axis=-2)
    return _checked(fits, new, "index is outside the rows in use", error=ValueError)


def _without(chol: tf.Tensor, i: int) -> tf.Tensor:
    """The factor without row i, known at tracing; the rows before it do not change."""
    below = update(chol[..., i + 1 :, i + 1 :], chol[..., i + 1 :, i])
    if i == 0:
        return below
    corner = tf.linalg.band_part(chol[..., :i, :i], -1, 0)
    before = tf.concat([corner, chol[..., i + 1 :, :i]], axis=-2)
    zeros = tf.zeros_like(chol[..., :i, i + 1 :])
    return tf.concat([before, tf.concat([zeros, below], axis=-2)], axis=-1)


_USED = "is the number of rows in use"
_NO_UPDATE = (
    "A + multiplier·v·vᴴ is not positive definite: the diagonal of chol is not positive, or the "
    "sum overflows"
)
_NO_DOWNDATE = (
    "A + multiplier·v·vᴴ is not positive definite: the downdate takes away more than there is, or "
    "the diagonal of chol is not positive"
)
_DEPENDENT = (
    "the appended row leaves no positive definite matrix: it depends on the rows before it "
    "(add noise to variance, or check for a duplicated point)"
)
_NEGATIVE_NOISE = "noise_variance must be finite and not negative"
_OVERFLOW = (
    "the innovation variance h P hᴴ + noise_variance overflows, P = chol cholᴴ: give h and chol in "
    "units in which they are smaller"
)
_NO_MEASUREMENT = (
    "noise_variance must be finite and not negative, the diagonal of chol must not be negative, "
    "and the innovation variance must not overflow"
)


def _size_of(chol: tf.Tensor) -> int | tf.Tensor:
    """The number of rows, a tensor where it is not known at tracing."""
    return chol.shape[-1] if chol.shape[-1] is not None else tf.shape(chol)[-1]


def _solve_vector(chol: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """`L⁻¹ v`."""
    column = tf.expand_dims(v, -1)
    return v if chol.shape[-1] == 0 else tf.squeeze(tf.linalg.triangular_solve(chol, column), -1)


def _scales(
    s_before: tf.Tensor, s: tf.Tensor, alpha: tf.Tensor, w: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """`d_j = √(s_j / s_{j−1})` and `u_j = α w̄_j / √(s_j s_{j−1})`, in the dtype of `w`.

    Sums are zero only for a measurement without noise: no variance is left in the first column
    that it reaches (d = 0), and the columns after it stay as they are (d = 1). Ones in place of the
    zeros keep the gradient finite. NaN is not zero, and propagates.
    """
    zero, unit = tf.zeros([], s.dtype), tf.ones([], s.dtype)
    reached, last = s_before != 0, s == 0
    root, root_before = tf.sqrt(tf.where(last, unit, s)), tf.sqrt(tf.where(reached, s_before, unit))
    d = tf.where(reached, tf.where(last, zero, root / root_before), unit)
    u = tf.where(last, zero, alpha / root / root_before)
    return real_as(d, w.dtype), real_as(u, w.dtype) * tf.math.conj(w)


def _checked(
    ok: tf.Tensor,
    new: tf.Tensor,
    message: str,
    error: type[ValueError] = NotPositiveDefiniteError,
    **inputs: tf.Tensor,
) -> tf.Tensor:
    """Returns `new`, or fails as `assert_positive_definite` does; eagerly, NaN inputs are named.

    NaN in an input always makes the result fail, so inputs are searched only then.
    """
    if tf.executing_eagerly() and not bool(tf.reduce_all(ok)):
        infinite = [f"{name}, of shape {x.shape}" for name, x in inputs.items() if not is_finite(x)]
        if infinite:
            raise ValueError(f"{infinite[0]}, has elements that are NaN or infinite")
        received = ", ".join(f"{name} of shape {x.shape}" for name, x in inputs.items())
        raise error(f"{message}; got {received}" if received else message)
    return assert_positive_definite(ok, new, message)


# Wide enough that few operations are launched, narrow enough that the products stay O(n²).
_PANEL = 16

# The return type of functions under tf.custom_gradient; their callers get the tensor.
_WithPullback = tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]


@tf.custom_gradient
def scale_columns(chol: tf.Tensor, w: tf.Tensor, d: tf.Tensor, u: tf.Tensor) -> _WithPullback:
    """`d_j L_ij + u_j Σ_{k>j} L_ik w_k` by suffix sums: stable for downdates and measurements.

    `L` is lower triangular, `[..., n, n]`; `w`, the scales d of columns and u of running sums
    are `[..., n]`, of its dtype. The gradient costs O(n²) and uses lower triangles only.
    """
    scaled = _running_sums(chol, w, d, u, after=True)
    return tf.linalg.band_part(scaled, -1, 0), lambda bar: _pullback(bar, chol, w, d, u)


@tf.custom_gradient
def scale_columns_of_update(
    chol: tf.Tensor, w: tf.Tensor, d: tf.Tensor, u: tf.Tensor, v: tf.Tensor
) -> _WithPullback:
    """The same function as `scale_columns` where `v = L w`, by prefix sums: stable for updates.

    From `Σ_{k>j} L_ik w_k = v_i − L_ij w_j − Σ_{k<j} L_ik w_k`, and `d_j − u_j w_j = 1/d_j` for an
    update. Value and gradient are the same as from `scale_columns`. `v` receives no gradient: its
    part runs through `w`.
    """
    scaled = _running_sums(chol, -w, 1.0 / d, u, after=False, start=v)
    # The diagonal by a formula without subtraction keeps it real and positive.
    scaled = tf.linalg.band_part(tf.linalg.set_diag(scaled, d * tf.linalg.diag_part(chol)), -1, 0)
    return scaled, lambda bar: (*_pullback(bar, chol, w, d, u), tf.zeros_like(v))


def _pullback(
    bar: tf.Tensor, chol: tf.Tensor, w: tf.Tensor, d: tf.Tensor, u: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    """Cotangents of `(chol, w, d, u)` from the cotangent `bar` of `L'`.

    With `S_ij = Σ_{k>j} L_ik w_k`, and `Q_ik = Σ_{j<k} L̄'_ij ū_j` of the same form.
    """
    bar = tf.linalg.band_part(bar, -1, 0)
    zeros, ones = tf.zeros_like(d), tf.ones_like(d)
    s = _running_sums(chol, w, zeros, ones, after=True)
    q = _running_sums(bar, tf.math.conj(u), zeros, ones, after=False)
    q = tf.linalg.band_part(q, -1, 0)
    conj_chol = tf.math.conj(chol)
    return (
        bar * tf.math.conj(d)[..., None, :] + q * tf.math.conj(w)[..., None, :],
        tf.reduce_sum(conj_chol * q, axis=-2),
        tf.reduce_sum(conj_chol * bar, axis=-2),
        tf.reduce_sum(tf.math.conj(s) * bar, axis=-2),
    )


def _running_sums(
    a: tf.Tensor, x: tf.Tensor, d: tf.Tensor, y: tf.Tensor, after: bool, start: Any = None
) -> tf.Tensor:
    """`d_j a_ij + y_j (start_i + Σ_k a_ik x_k)`, over k > j if `after`, else over k < j.

    `a` is `[..., n, n]` and lower triangular. For k < j, elements of the result above the diagonal
    are not meaningful. One product per panel computes its columns and the carried sum: the panel
    with the carried sum as a further column, times a small matrix.
    """
    n = a.shape[-1]
    if n is None or n <= _PANEL:  # one panel; its size may be unknown at tracing
        small = tf.linalg.set_diag(_triangle(tf.shape(x)[-1], a.dtype, after) * _outer(x, y), d)
        sums = tf.linalg.matmul(a, small)
        return sums if start is None else sums + _outer(start, y)

    start = tf.zeros_like(x) if start is None else start
    carry = (start[..., :0] if after else start)[..., None]  # of the rows of the panels so far
    whole = -(-n // _PANEL)
    x, d, y = (_panels(v, whole) for v in (x, d, y))
    small = tf.linalg.set_diag(_triangle(_PANEL, a.dtype, after) * _outer(x, y), d)
    small = tf.concat([small, y[..., None, :]], axis=-2)
    beside = tf.concat([x, tf.ones_like(x[..., :1])], axis=-1)[..., None]
    small = tf.concat([small, beside], axis=-1)  # [..., panel, p + 1, p + 1]

    columns = []
    for panel in reversed(range(whole)) if after else range(whole):
        first = panel * _PANEL
        width = min(_PANEL, n - first)
        factor = small[..., panel, :, :]
        if width < _PANEL:  # the last panel, padded with zeros
            factor = tf.concat([factor[..., :width, :], factor[..., -1:, :]], axis=-2)
        if after:  # rows that the panels after this one do not reach
            carry = _pad_top(carry, width)
        block = tf.concat([a[..., first:, first : first + width], carry], axis=-1)
        sums = tf.linalg.matmul(block, factor)
        # Rows above the panel are zero in a, and so in its columns of the result.
        columns.append(_pad_top(sums[..., :width], first))
        carry = sums[..., _PANEL:] if after else sums[..., width:, _PANEL:]
    return tf.concat(columns[::-1] if after else columns, axis=-1)


def _outer(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """`a_i b_j`, without conjugation."""
    return a[..., :, None] * b[..., None, :]


def _panels(v: tf.Tensor, count: int) -> tf.Tensor:
    """Splits a vector `[..., n]` into panels, `[..., count, p]`, padded with zeros."""
    fill = [[0, 0]] * (v.shape.rank - 1) + [[0, count * _PANEL - v.shape[-1]]]
    return tf.reshape(tf.pad(v, fill), tf.concat([tf.shape(v)[:-1], [count, _PANEL]], axis=0))


def _triangle(width: int | tf.Tensor, dtype: tf.DType, after: bool) -> tf.Tensor:
    """Ones strictly below the diagonal if `after` (k > j), else strictly above it (k < j)."""
    if isinstance(width, int):
        ones = np.tri(width, k=-1)
        return tf.constant(ones if after else ones[::-1, ::-1], dtype)
    ones = tf.linalg.band_part(tf.ones([width, width], dtype), *((-1, 0) if after else (0, -1)))
    return ones - tf.eye(width, dtype=dtype)


def _pad_top(a: tf.Tensor, rows: int) -> tf.Tensor:
    """Prepends rows of zeros."""
    fill = [[0, 0]] * (a.shape.rank - 2) + [[rows, 0], [0, 0]]
    return tf.pad(a, np.array(fill)) if rows else a
