"""Rank-one operations on Cholesky factors: update, downdate, measurement, append and remove.

Every operation costs O(n²), takes real and complex factors of either precision with any batch axes,
runs eagerly, in a graph and under XLA, and is differentiable. Eagerly on a CPU it is done by
compiled ops, which answer None where they do not serve; TensorFlow then does it, or raises.
"""

import tensorflow as tf

from cgp.linalg import native_updates, tensorflow_updates
from cgp.linalg.arguments import ArrayLike, marked_lower_triangular
from cgp.linalg.tensorflow_updates import ScalarUpdate


def cholesky_update(
    chol: ArrayLike, update_vector: ArrayLike, multiplier: ArrayLike = 1.0
) -> tf.Tensor:
    """The factor of `A + α v vᴴ` by the factor of `A`: an update for α > 0, a downdate for α < 0.

    Backward stable for both signs, also for downdates that leave a nearly singular matrix. Updates
    take prefix sums and downdates suffix sums of the squares of `w = L⁻¹ v` (Gill, Golub, Murray &
    Saunders, Math. Comp. 28, 1974, methods C1 and C2, here with adjoints for transposes).

    Args:
        chol: `L`, `[..., n, n]`, lower triangular, `A = L Lᴴ`; complex128, complex64, float64 or
            float32. Eagerly, elements above the diagonal are looked at unless `L` is a tensor that
            one of these functions has returned; in a graph they are not read.
        update_vector: `v`, `[..., n]`, of the dtype of `chol`. Batch axes broadcast.
        multiplier: `α`, real, of either sign: a number, or `[...]`, one for each matrix. A sign
            known at tracing saves half of the work.

    Returns:
        `L'`, `[..., n, n]`, lower triangular with a real positive diagonal. Its gradient by all
        three arguments costs O(n²); the gradient by `chol` is lower triangular.

    Raises:
        TypeError: Dtypes that differ, or a complex multiplier.
        ValueError: Shapes that do not fit; eagerly, NaN, or an upper factor.
        NotPositiveDefiniteError: A downdate whose result is not positive definite, or a `chol`
            whose diagonal is not real and positive. In a graph this is TensorFlow's
            `InvalidArgumentError`; under XLA, which drops assertions, the result is NaN.

    Example:
        >>> import numpy as np, cgp
        >>> chol, v = np.eye(2) + 0j, np.array([1.0, 1.0j])
        >>> new = cgp.linalg.cholesky_update(chol, v).numpy()
        >>> bool(np.allclose(new @ new.conj().T, [[2.0, -1.0j], [1.0j, 2.0]]))
        True
        >>> bool(np.allclose(cgp.linalg.cholesky_update(new, v, multiplier=-1.0), chol))
        True
    """
    updated = native_updates.update(chol, update_vector, multiplier)
    if updated is None:
        updated = tensorflow_updates.update(chol, update_vector, multiplier)
    return marked_lower_triangular(updated)


def cholesky_condition(chol: ArrayLike, h: ArrayLike, noise_variance: ArrayLike) -> ScalarUpdate:
    """The factor of a covariance after a scalar measurement `y = h x + n`, `n ~ CN(0, r)`.

    The measurement update of a Kalman filter in square-root form, without a solve or a
    subtraction (Carlson, AIAA J. 11, 1973; Bierman, *Factorization Methods*, 1977, §V). With
    `P = L Lᴴ` before, it is `P − P hᴴ h P / S` after, `S = h P hᴴ + r`.

    Args:
        chol: `L`, as for `cholesky_update`; its diagonal may have zeros.
        h: The measurement row, `[..., n]`, of the dtype of `chol`, not conjugated.
        noise_variance: `r = E|n|²`, real and not negative: a number, or `[...]`. With r = 0 the
            posterior is singular: its factor has a zero on the diagonal, whose derivative by r
            does not exist and is left out of the gradient.

    Returns:
        `(chol, gain, innovation_variance)`: the new factor `[..., n, n]`; the Kalman gain
        `P hᴴ / S`, `[..., n]`; and the innovation variance `S`, real, `[...]`. Where `S = 0`, the
        gain is 0 and the factor stays as it is. Differentiable by all arguments, in O(n²).

    Raises:
        TypeError: Dtypes that differ, or a complex noise variance.
        ValueError: Shapes that do not fit; eagerly, NaN, a negative noise variance, an innovation
            variance that overflows, or an upper factor.
        NotPositiveDefiniteError: Eagerly, a diagonal of `chol` that is negative or not real.
            In a graph eager errors are `InvalidArgumentError`; under XLA the result is NaN.

    Example:
        >>> import numpy as np, cgp
        >>> new = cgp.linalg.cholesky_condition(np.eye(1) + 0j, np.array([2.0j]), 1.0)
        >>> float(new.innovation_variance)
        5.0
        >>> bool(np.allclose(new.gain, [-0.4j])), bool(np.allclose(new.chol, 5**-0.5))
        (True, True)
    """
    conditioned = native_updates.condition(chol, h, noise_variance)
    if conditioned is None:
        conditioned = tensorflow_updates.condition(chol, h, noise_variance)
    return conditioned._replace(chol=marked_lower_triangular(conditioned.chol))


def cholesky_append(
    chol: ArrayLike, cross: ArrayLike, variance: ArrayLike, size: ArrayLike | None = None
) -> tf.Tensor:
    """The factor of a covariance with a row and a column appended.

    Args:
        chol: `L`, `[..., n, n]`, lower triangular. With `size`, a buffer of fixed capacity n whose
            first `size` rows are in use and whose other rows are rows of the identity. Its shape
            stays the same, so that a `tf.function` is not traced again.
        cross: `E[old · conj(new)]`, `[..., n]`, of the dtype of `chol`: the new column above the
            diagonal. In a buffer, elements from `size` on are not read.
        variance: The new diagonal element `E|new|²`, noise included, real: a number, or `[...]`.
        size: Number of rows in use, an integer or `[...]`; None for a factor without a buffer.

    Returns:
        `[..., n+1, n+1]`, or, with `size`, the buffer `[..., n, n]` with `size + 1` rows in use.
        Differentiable in O(n²).

    Raises:
        TypeError: Dtypes that differ, or a complex variance.
        ValueError: Shapes that do not fit; a full buffer; NaN; eagerly, an upper factor.
        NotPositiveDefiniteError: The new row depends linearly on the old ones; eagerly, the
            diagonal of `chol` is not real and positive. In a graph this, and a full buffer, are
            TensorFlow's `InvalidArgumentError`; under XLA the result is NaN.

    Example:
        >>> import numpy as np, cgp
        >>> cgp.linalg.cholesky_append(np.eye(1) * 2, np.array([2.0]), 5.0).numpy()
        array([[2., 0.],
               [1., 2.]])
        >>> buffer = cgp.linalg.cholesky_append(np.eye(3), np.zeros(3), 4.0, size=0)
        >>> cgp.linalg.cholesky_append(buffer, np.array([2.0, 0, 0]), 5.0, size=1).numpy()
        array([[2., 0., 0.],
               [1., 2., 0.],
               [0., 0., 1.]])
    """
    appended = native_updates.append(chol, cross, variance, size)
    if appended is None:
        appended = tensorflow_updates.append(chol, cross, variance, size)
    return marked_lower_triangular(appended)


def cholesky_remove(chol: ArrayLike, index: ArrayLike, size: ArrayLike | None = None) -> tf.Tensor:
    """The factor of a covariance with a row and its column removed.

    The trailing block is updated by the removed column; an update is unconditionally stable.

    Args:
        chol: `L`, `[..., n, n]`, lower triangular; a buffer with `size`.
        index: The row and column to remove, from 0: an integer, or `[...]`.
        size: Number of rows in use, as for `cholesky_append`.

    Returns:
        `[..., n-1, n-1]`, or, with `size`, the buffer `[..., n, n]` with the rows after `index`
        moved up, `size - 1` in use and the identity after them. Differentiable in O(n²).

    Raises:
        TypeError: `index` or `size` not an integer.
        ValueError: A buffer without rows, an index outside those in use, or NaN. In a graph, for
            values not known at tracing, this is TensorFlow's `InvalidArgumentError`; under XLA the
            result is NaN. Eagerly, an upper factor.
        NotPositiveDefiniteError: Eagerly, the diagonal of `chol` is negative or not real, or zero
            below the removed row.

    Example:
        >>> import numpy as np, cgp
        >>> chol = np.array([[2.0, 0.0], [3.0, 4.0]])
        >>> cgp.linalg.cholesky_remove(chol, 0).numpy()
        array([[5.]])
        >>> cgp.linalg.cholesky_remove(chol, 0, size=2).numpy()
        array([[5., 0.],
               [0., 1.]])
    """
    reduced = native_updates.remove(chol, index, size)
    if reduced is None:
        reduced = tensorflow_updates.remove(chol, index, size)
    return marked_lower_triangular(reduced)
