"""The column form that rank-one updates, downdates and measurements of a factor share.

Each of them multiplies `L` from the right by a triangular factor of `I + α w wᴴ`, which is a
diagonal plus a rank-one triangle (Gill, Golub, Murray & Saunders, Math. Comp. 28, 1974):

    L'_ij = d_j L_ij + u_j Σ_{k>j} L_ik w_k .

So the new factor is two column scalings and one running sum along the rows. The running sum is
done by panels of columns: within a panel by a product with a small triangle, between panels by a
carried vector. A cumulative sum over n² elements is slower, and XLA on a CPU has no complex one.
"""

import numpy as np
import tensorflow as tf

# Wide enough that few operations are launched, narrow enough that the products stay O(n²).
_PANEL = 32


@tf.custom_gradient
def scale_columns(chol, w, d, u):
    """`d_j L_ij + u_j Σ_{k>j} L_ik w_k`: the suffix form, stable where the sums `s` decrease.

    Args:
        chol: `L`, `[..., n, n]`, lower triangular.
        w: `[..., n]`, of the dtype of `chol`, as are `d` and `u`; batch axes as in `chol`.
        d: `[..., n]`, the scale of each column.
        u: `[..., n]`, the scale of each running sum.

    Returns:
        `L'`, `[..., n, n]`, lower triangular. Its gradient costs O(n²), and only lower triangles
        take part in it.
    """
    value = _running_sums(chol, w, d, u, after=True)
    return tf.linalg.band_part(value, -1, 0), lambda bar: _pullback(bar, chol, w, d, u)


@tf.custom_gradient
def scale_columns_of_update(chol, w, d, u, v):
    """The same function as `scale_columns` where `v = L w`, by prefix sums: stable for an update.

    From `Σ_{k>j} L_ik w_k = v_i − L_ij w_j − Σ_{k<j} L_ik w_k`, and `d_j − u_j w_j = 1/d_j` for an
    update. The form differs, the function does not, so the gradient is that of `scale_columns`;
    `v` counts as a constant, for its own part in it runs through `w`.
    """
    value = _running_sums(chol, -w, 1.0 / d, u, after=False, start=v)
    # The same element by a formula that subtracts nothing: real and positive.
    value = tf.linalg.set_diag(tf.linalg.band_part(value, -1, 0), d * tf.linalg.diag_part(chol))
    return value, lambda bar: (*_pullback(bar, chol, w, d, u), tf.zeros_like(v))


def _pullback(bar, chol, w, d, u):
    """Adjoints of `(chol, w, d, u)` from that of `L'`.

    With `S_ij = Σ_{k>j} L_ik w_k` and its mirror image `Q_ik = Σ_{j<k} L̄'_ij ū_j`.
    """
    bar = tf.linalg.band_part(bar, -1, 0)
    zero, one = tf.zeros_like(d), tf.ones_like(d)
    s = _running_sums(chol, w, zero, one, after=True)
    q = _running_sums(bar, tf.math.conj(u), zero, one, after=False)
    q = tf.linalg.band_part(q, -1, 0)
    conj_chol = tf.math.conj(chol)
    return (
        bar * tf.math.conj(d)[..., None, :] + q * tf.math.conj(w)[..., None, :],
        tf.reduce_sum(conj_chol * q, axis=-2),
        tf.reduce_sum(conj_chol * bar, axis=-2),
        tf.reduce_sum(tf.math.conj(s) * bar, axis=-2),
    )


def _running_sums(a, x, d, y, after: bool, start=None):
    """`d_j a_ij + y_j (start_i + Σ_k a_ik x_k)`, over k > j if `after`, else over k < j.

    `a` is `[..., n, n]` and lower triangular; what comes out above the diagonal is not meaningful
    for k < j. Where the size is unknown until run time, one panel holds everything.
    """
    n = a.shape[-1]
    edges: list[tuple[int, int | None]] = [(0, None)]
    if n is not None:
        edges = [(i, min(i + _PANEL, n)) for i in range(0, n, _PANEL)]
    whole = len(edges) == 1
    columns = []
    carry = tf.zeros_like(x) if start is None else start
    for first, last in reversed(edges) if after else edges:
        block = a if whole else a[..., first:, first:last]
        x_panel = tf.expand_dims(x if whole else x[..., first:last], -1)
        y_panel = tf.expand_dims(y if whole else y[..., first:last], -2)
        width = tf.shape(x_panel)[-2] if last is None else last - first
        small = _strict_triangle(width, a.dtype, lower=after) * x_panel * y_panel
        small = tf.linalg.set_diag(small, d if whole else d[..., first:last])
        column = tf.linalg.matmul(block, small)
        if start is not None or not whole:
            column += tf.expand_dims(carry if whole else carry[..., first:], -1) * y_panel
        # Rows above the panel are zero in a, and so in its columns of the result.
        columns.append(_pad_top(column, first))
        if not whole:
            carry += tf.squeeze(_pad_top(tf.linalg.matmul(block, x_panel), first), axis=-1)
    return columns[0] if whole else tf.concat(columns[::-1] if after else columns, axis=-1)


def _strict_triangle(width, dtype: tf.DType, lower: bool) -> tf.Tensor:
    """Ones where a column of the panel takes part: k > j below the diagonal, k < j above it."""
    if isinstance(width, int):
        ones = np.tri(width, k=-1)
        return tf.constant(ones if lower else ones[::-1, ::-1], dtype)
    ones = tf.linalg.band_part(tf.ones([width, width], dtype), *((-1, 0) if lower else (0, -1)))
    return ones - tf.eye(width, dtype=dtype)


def _pad_top(a, rows: int):
    if rows == 0:
        return a
    return tf.pad(a, np.array([[0, 0]] * (a.shape.rank - 2) + [[rows, 0], [0, 0]]))
