"""Checked Cholesky factorisation of Hermitian matrices; solves, determinants, inverses by factors.

A factor `L` of `A = L Lᴴ` is lower triangular; its upper part is exactly zero, its diagonal real
and positive. For real matrices the adjoint is the transpose.

LAPACK factorises and inverts where the compiled core serves. Elsewhere inverses are made by
recursion on half-size blocks. Nearly all of the work is then in matrix products: they run on all
cores, which TensorFlow's triangular solve does not, and leave out the zero blocks of triangles.
"""

import contextlib
import contextvars
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from cgp import native
from cgp.linalg.arguments import (
    ArrayLike,
    as_complex,
    as_matrix,
    check_batches,
    check_finite,
    has_positive_diagonal,
    hermitian_gap,
    is_lower_triangular,
    marked_lower_triangular,
    real_as,
    real_diagonal,
)
from cgp.linalg.gradients import with_gradient

# Blocks of inverses below this size: launching operations would outweigh the gain.
_BLOCK = 128


class NotPositiveDefiniteError(ValueError):
    """A matrix that should be a covariance is not positive definite."""

    __module__ = "cgp"  # its public name is cgp.NotPositiveDefiniteError


_is_nan_wanted = contextvars.ContextVar[bool]("_is_nan_wanted", default=False)


@contextlib.contextmanager
def nan_where_indefinite() -> Iterator[None]:
    """A context in which a failed factorisation is NaN, in graphs too, and raises nothing.

    For a sampler of hyperparameters, which turns back where the likelihood has no value.
    """
    token = _is_nan_wanted.set(True)
    try:
        yield
    finally:
        _is_nan_wanted.reset(token)


def assert_positive_definite(ok: tf.Tensor, matrix: tf.Tensor, message: str) -> tf.Tensor:
    """Returns matrices `[..., n, k]`, and fails unless all are `ok`, bool `[...]`.

    Under XLA, which drops assertions, and within `nan_where_indefinite`, those that are not `ok`
    are NaN in every element.

    Raises:
        NotPositiveDefiniteError: Eagerly, where not all are `ok`. In a graph this is TensorFlow's
            `InvalidArgumentError`.
    """
    if _is_nan_wanted.get():
        return _poisoned(ok, matrix)
    if tf.executing_eagerly():
        if not bool(tf.reduce_all(ok)):
            raise NotPositiveDefiniteError(message)
        return matrix
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(ok), [message])]):
        if native.serves_own_graph():  # no XLA there
            return tf.identity(matrix)
        return _poisoned(ok, matrix)


def _poisoned(ok: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
    """Matrices, with NaN in every element of those that are not `ok`."""
    # Adding zero or NaN takes a tenth of the time of tf.where over n² elements.
    zero = tf.zeros_like(ok, matrix.dtype.real_dtype)
    return matrix + real_as(tf.where(ok, zero, zero + np.nan), matrix.dtype)[..., None, None]


def as_factor(chol: ArrayLike, name: str = "chol", singular: bool = False) -> tf.Tensor:
    """Converts a lower triangular factor to a tensor `[..., n, n]`; eagerly it is checked."""
    chol = as_matrix(chol, name, square=True)
    if tf.executing_eagerly():
        check_factor(chol, name, singular)
    return chol


def check_factor(chol: np.ndarray | tf.Tensor, name: str = "chol", singular: bool = False) -> None:
    """Raises unless matrices `[..., n, n]` are Cholesky factors.

    Only diagonals and upper parts are checked; zeros on the diagonal pass if `singular`.

    Raises:
        ValueError: Elements above the diagonal that are not zero, as in an upper factor; NaN
            or an infinite element on the diagonal.
        NotPositiveDefiniteError: A diagonal that is not real and positive.
    """
    diagonal = np.diagonal(np.asarray(chol), axis1=-2, axis2=-1)
    if not np.all(np.isfinite(diagonal)):
        raise ValueError(f"{name}, of shape {chol.shape}, has elements that are NaN or infinite")
    if not is_lower_triangular(chol):
        raise ValueError(_not_lower(np.asarray(chol), name))
    allowed = diagonal.real >= 0 if singular else diagonal.real > 0
    # A product of factors may leave rounding in the imaginary part.
    rounding = 1e3 * np.finfo(diagonal.dtype).eps * np.abs(diagonal)
    bad = diagonal[(np.abs(diagonal.imag) > rounding) | ~allowed]
    if bad.size:
        allowed_sign = "not negative" if singular else "positive"
        raise NotPositiveDefiniteError(
            f"{name} must be a Cholesky factor, lower triangular with a real diagonal that is "
            f"{allowed_sign}, but its diagonal has the element {bad[0]}"
        )


def _not_lower(chol: np.ndarray, name: str) -> str:
    """The error message for matrices with elements above the diagonal, with the remedy."""
    if not hermitian_gap(chol):
        return (
            f"{name} must be lower triangular, and is Hermitian, as a covariance is: give its "
            "factor, cgp.linalg.cholesky(a) of the covariance a"
        )
    turned = np.swapaxes(chol, -1, -2)
    if is_lower_triangular(turned):
        adjoint = "np.conj(chol).T" if chol.ndim == 2 else "np.conj(np.swapaxes(chol, -1, -2))"
        return (
            f"{name} must be lower triangular, and is upper triangular, as scipy.linalg.cholesky(a)"
            f" and chol(A) of MATLAB are: give its adjoint, {adjoint}"
        )
    return (
        f"{name} must be lower triangular, but has nonzero elements on both sides of its diagonal: "
        "if its lower triangle is the factor, as that of scipy.linalg.cho_factor(a, lower=True), "
        "give np.tril(chol)"
    )


def cholesky(a: ArrayLike) -> tf.Tensor:
    """The Cholesky factor of a Hermitian positive definite matrix, checked.

    For an indefinite complex matrix on a CPU, `tf.linalg.cholesky` returns zeros or uninitialised
    memory without an error. It also reads the lower triangle only. This function checks both.

    Args:
        a: `[..., n, n]`, complex128, complex64, float64 or float32.

    Returns:
        `L`, like `a`, with `a = L Lᴴ`: lower triangular, its upper part zero, its diagonal real and
        positive. Differentiable.

    Raises:
        TypeError: Another dtype.
        ValueError: Not square, or (eagerly) not Hermitian or not finite.
        NotPositiveDefiniteError: Not positive definite. In a graph this is TensorFlow's
            `InvalidArgumentError`; under XLA, which drops assertions, the result is NaN.

    Example:
        >>> import numpy as np, cgp
        >>> chol = cgp.linalg.cholesky(np.array([[4.0, 2.0j], [-2.0j, 5.0]]))
        >>> bool(np.allclose(chol, [[2.0, 0.0], [-1.0j, 2.0]]))
        True
    """
    a = as_matrix(a, "a", square=True)
    if tf.executing_eagerly():
        check_finite(a, "the matrix")
        gap = hermitian_gap(a)
        if gap:
            differs = f"it differs from its adjoint by {gap:.3g}"
            raise ValueError(f"the matrix of shape {a.shape} is not Hermitian: {differs}")
    chol = _by_lapack("cgp_cholesky_factor", a)
    if chol is None:
        try:
            chol = tf.linalg.band_part(_by_tensorflow(a), -1, 0)
        except tf.errors.InvalidArgumentError:  # raised on a CPU for real matrices
            raise NotPositiveDefiniteError(_NOT_POSITIVE.format(a.shape)) from None
    # NaN compares false, so this catches a failed factorisation that left NaN or zeros.
    ok = has_positive_diagonal(chol)
    factor = assert_positive_definite(ok, chol, _NOT_POSITIVE.format(a.shape))
    return marked_lower_triangular(factor)


def _by_tensorflow(a: tf.Tensor) -> tf.Tensor:
    if a.dtype.is_complex or not _is_nan_wanted.get():
        return tf.linalg.cholesky(a)
    # On a CPU a failed factorisation raises for a real matrix, but not for a complex one.
    return tf.math.real(tf.linalg.cholesky(as_complex(a)))


_NOT_POSITIVE = (
    "the matrix of shape {} is not positive definite: a covariance was expected "
    "(add noise to its diagonal, or check for duplicated points)"
)


def stored_cholesky(chol: ArrayLike, a: ArrayLike) -> tf.Tensor:
    """A stored factor in place of `cholesky(a)`: the same value and gradient, no factorisation.

    Args:
        chol: `[..., n, n]`, the Cholesky factor of the present value of `a`, which is not
            checked. It receives no gradient.
        a: `[..., n, n]`, Hermitian positive definite. It receives the gradient.

    Returns:
        The value of `chol`, with the gradient of `cholesky(a)` by `a`, of any order.

    Raises:
        TypeError: `chol` and `a` differ in dtype.
        ValueError: Shapes that do not fit; eagerly, an upper factor.
        NotPositiveDefiniteError: Eagerly, the diagonal of `chol` is not real, or negative.

    Example:
        >>> import numpy as np, tensorflow as tf, cgp
        >>> a = tf.constant([[4.0, 2.0j], [-2.0j, 5.0]], tf.complex128)
        >>> chol = cgp.linalg.cholesky(a)
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(a)
        ...     log_det = cgp.linalg.log_det(cgp.linalg.stored_cholesky(chol, a))
        >>> bool(np.allclose(tape.gradient(log_det, a), np.linalg.inv(a)))
        True
    """
    chol = as_factor(chol, singular=True)  # a singular matrix has a value, but no gradient
    a = as_matrix(a, "a", square=True, like=chol)
    if chol.dtype != a.dtype:
        raise TypeError(f"chol is {chol.dtype.name} but a is {a.dtype.name}: give both one dtype")
    if not chol.shape.is_compatible_with(a.shape):
        raise ValueError(f"chol must be shaped like a, {a.shape}, got shape {chol.shape}")
    chol = tf.stop_gradient(chol)

    def grad(a: tf.Tensor, chol: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
        # Through stored_cholesky again, so that second derivatives see the factor depend on `a`.
        return cholesky_pullback(stored_cholesky(chol, a), dy)

    return with_gradient(lambda a, chol: chol, a, chol, grad=grad)


def solve(chol: ArrayLike, b: ArrayLike) -> tf.Tensor:
    """Solves `A x = b`, given the Cholesky factor of `A = L Lᴴ`.

    Args:
        chol: `L`, `[..., n, n]`, lower triangular; complex128, complex64, float64 or float32.
        b: `[..., n, k]`, of the same dtype; batch axes broadcast.

    Returns:
        `A⁻¹ b`, `[..., n, k]`.

    Raises:
        TypeError: `chol` and `b` differ in dtype.
        ValueError: Shapes that do not fit; eagerly, an upper factor.
        NotPositiveDefiniteError: Eagerly, the diagonal of `chol` is not real and positive.

    Example:
        >>> import numpy as np, cgp
        >>> chol = cgp.linalg.cholesky(np.array([[4.0, 2.0j], [-2.0j, 5.0]]))
        >>> x = cgp.linalg.solve(chol, np.array([[4.0 + 0j], [-2.0j]]))
        >>> bool(np.allclose(x, [[1.0], [0.0]]))
        True
    """
    chol = as_factor(chol)
    b = as_matrix(b, "b", like=chol)
    if chol.dtype != b.dtype:
        raise TypeError(f"chol is {chol.dtype.name} but b is {b.dtype.name}: give both one dtype")
    if not chol.shape[-1:].is_compatible_with(b.shape[-2:-1]):
        raise ValueError(f"b must be [..., {chol.shape[-1]}, k] for this chol, got shape {b.shape}")
    check_batches(chol=(chol, 2), b=(b, 2))
    return tf.linalg.triangular_solve(chol, tf.linalg.triangular_solve(chol, b), adjoint=True)


def log_det(chol: ArrayLike) -> tf.Tensor:
    """The log determinant of `A = L Lᴴ`, given its Cholesky factor.

    Args:
        chol: `L`, `[..., n, n]`, lower triangular with a real and positive diagonal.

    Returns:
        `log|A|`, real, `[...]`.

    Raises:
        TypeError, ValueError, NotPositiveDefiniteError: As for `inverse`.

    Example:
        >>> import numpy as np, cgp
        >>> float(cgp.linalg.log_det(np.diag([1.0, np.e]) + 0j))
        2.0
    """
    chol = as_factor(chol)
    return 2.0 * tf.reduce_sum(tf.math.log(real_diagonal(chol)), axis=-1)


def inverse(chol: ArrayLike) -> tf.Tensor:
    """The inverse of `A = L Lᴴ`, given its Cholesky factor: `L⁻ᴴ L⁻¹`.

    For `A⁻¹ b` alone, `solve` is cheaper and more accurate.

    Args:
        chol: `L`, as for `solve`.

    Returns:
        `A⁻¹`, `[..., n, n]`, Hermitian.

    Raises:
        TypeError: Another dtype.
        ValueError: Not square; eagerly, an upper factor.
        NotPositiveDefiniteError: Eagerly, the diagonal of `chol` is not real and positive.

    Example:
        >>> import numpy as np, cgp
        >>> a = np.array([[4.0, 2.0j], [-2.0j, 5.0]])
        >>> bool(np.allclose(cgp.linalg.inverse(cgp.linalg.cholesky(a)) @ a, np.eye(2)))
        True
    """
    chol = as_factor(chol)
    inverted = _by_lapack("cgp_cholesky_inverse", chol)
    return _gram(triangular_inverse(chol)) if inverted is None else inverted


def triangular_inverse(chol: tf.Tensor) -> tf.Tensor:
    """The inverse of a lower triangular matrix, `[..., n, n]`."""
    n = chol.shape[-1]
    if n is None or n <= _BLOCK:
        identity = tf.eye(tf.shape(chol)[-1], dtype=chol.dtype)
        return tf.linalg.triangular_solve(chol, tf.broadcast_to(identity, tf.shape(chol)))
    half = n // 2
    top = triangular_inverse(chol[..., :half, :half])
    bottom = triangular_inverse(chol[..., half:, half:])
    corner = -tf.linalg.matmul(bottom, tf.linalg.matmul(chol[..., half:, :half], top))
    return _blocks(top, tf.zeros_like(tf.linalg.adjoint(corner)), corner, bottom)


def _gram(x: tf.Tensor) -> tf.Tensor:
    """`Xᴴ X` of a lower triangular X."""
    n = x.shape[-1]
    if n is None or n <= _BLOCK:
        return tf.linalg.matmul(x, x, adjoint_a=True)
    half = n // 2
    corner, bottom = x[..., half:, :half], x[..., half:, half:]
    first = _gram(x[..., :half, :half]) + tf.linalg.matmul(corner, corner, adjoint_a=True)
    cross = tf.linalg.matmul(bottom, corner, adjoint_a=True)
    return _blocks(first, tf.linalg.adjoint(cross), cross, _gram(bottom))


def _blocks(
    top_left: tf.Tensor, top_right: tf.Tensor, bottom_left: tf.Tensor, bottom_right: tf.Tensor
) -> tf.Tensor:
    top = tf.concat([top_left, top_right], axis=-1)
    return tf.concat([top, tf.concat([bottom_left, bottom_right], axis=-1)], axis=-2)


# --- by LAPACK, through compiled ops --------------------------------------------------------------


def _by_lapack(name: str, a: tf.Tensor) -> tf.Tensor | None:
    """Applies an op to the lower triangles of matrices `[..., n, n]`; None if no op serves.

    NaN in every element of a matrix that has no factor or no inverse.
    """
    # For any size: a factor is the same to the last bit whether a training step makes it or a load.
    if not native.serves_here(a) or not native.has_lapack():
        return None
    return tf.ensure_shape(native.op(name)(a), a.shape)  # ops do not infer shapes


def cholesky_pullback(chol: tf.Tensor, chol_bar: tf.Tensor) -> tf.Tensor:
    """The cotangent Ā of A from L̄ of its factor L (Murray, arXiv 1602.07527, with adjoints).

    From dL = L Φ(L⁻¹ dA L⁻ᴴ), where Φ takes the lower triangle and half of the diagonal, Ā is the
    Hermitian part of L⁻ᴴ Φ(Lᴴ L̄) L⁻¹. The diagonal of L is real, hence the real part in Φ.
    """
    p = tf.linalg.band_part(tf.linalg.matmul(chol, chol_bar, adjoint_a=True), -1, 0)
    phi = tf.linalg.set_diag(p, real_as(0.5 * real_diagonal(p), p.dtype))
    half = tf.linalg.triangular_solve(chol, phi + tf.linalg.adjoint(phi), adjoint=True)
    whole = tf.linalg.triangular_solve(chol, tf.linalg.adjoint(half), adjoint=True)
    return 0.5 * tf.linalg.adjoint(whole)


def inverse_pullback(chol: tf.Tensor, inverse: tf.Tensor, inverse_bar: tf.Tensor) -> tf.Tensor:
    """The cotangent L̄ of a factor L from X̄ of X = (L Lᴴ)⁻¹, all `[..., n, n]`.

    From dX = −X (dL Lᴴ + L dLᴴ) X, L̄ is the lower triangle of −X (X̄ + X̄ᴴ) X L.
    """
    symmetric = inverse_bar + tf.linalg.adjoint(inverse_bar)
    full = tf.linalg.matmul(inverse, tf.linalg.matmul(symmetric, tf.linalg.matmul(inverse, chol)))
    return -tf.linalg.band_part(full, -1, 0)


_of_factor = tf.RegisterGradient("CgpCholeskyFactor")
_of_factor(lambda op, bar: cholesky_pullback(op.outputs[0], bar))
_of_inverse = tf.RegisterGradient("CgpCholeskyInverse")
_of_inverse(lambda op, bar: inverse_pullback(op.inputs[0], op.outputs[0], bar))
