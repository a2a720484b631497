"""Column scaling of a factor: the step that rank-one updates, downdates and measurements share.

Each of them multiplies `L` from the right by a triangular factor of `I + α w wᴴ`, which is a
diagonal plus a rank-one triangle (Gill, Golub, Murray & Saunders, Math. Comp. 28, 1974):

    L'_ij = d_j L_ij + u_j Σ_{k>j} L_ik w_k .

The new factor needs two column scalings and one running sum along the rows. The running sum is
computed by panels of columns: within a panel by a product with a small triangle, between panels by
a carried vector. A cumulative sum over n² elements is slower, and XLA on a CPU has no complex one.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

# Wide enough that few operations are launched, narrow enough that the products stay O(n²).
_PANEL = 16

# What a function under tf.custom_gradient returns; its callers get the tensor.
_WithPullback = tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]


@tf.custom_gradient
def scale_columns(chol: tf.Tensor, w: tf.Tensor, d: tf.Tensor, u: tf.Tensor) -> _WithPullback:
    """`d_j L_ij + u_j Σ_{k>j} L_ik w_k` by suffix sums: stable for downdates and measurements.

    Args:
        chol: `L`, `[..., n, n]`, lower triangular.
        w: `[..., n]`, of the dtype of `chol`, as are `d` and `u`; batch axes as in `chol`.
        d: `[..., n]`, the scale of each column.
        u: `[..., n]`, the scale of each running sum.

    Returns:
        `L'`, `[..., n, n]`, lower triangular. Its gradient costs O(n²) and uses lower triangles
        only.
    """
    scaled = _running_sums(chol, w, d, u, after=True)
    return tf.linalg.band_part(scaled, -1, 0), lambda bar: _pullback(bar, chol, w, d, u)


@tf.custom_gradient
def scale_columns_of_update(
    chol: tf.Tensor, w: tf.Tensor, d: tf.Tensor, u: tf.Tensor, v: tf.Tensor
) -> _WithPullback:
    """The same function as `scale_columns` where `v = L w`, by prefix sums: stable for updates.

    From `Σ_{k>j} L_ik w_k = v_i − L_ij w_j − Σ_{k<j} L_ik w_k`, and `d_j − u_j w_j = 1/d_j` for an
    update. The value is that of `scale_columns`, and so is the gradient. `v` receives none: its
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
    a: tf.Tensor,
    x: tf.Tensor,
    d: tf.Tensor,
    y: tf.Tensor,
    after: bool,
    start: tf.Tensor | None = None,
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
    if rows == 0:
        return a
    return tf.pad(a, np.array([[0, 0]] * (a.shape.rank - 2) + [[rows, 0], [0, 0]]))
