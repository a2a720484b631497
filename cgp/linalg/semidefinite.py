"""Triangular factors of wide matrices, and of covariances semidefinite up to rounding.

The posterior covariance of a smooth process at many nearby points has eigenvalues far below the
rounding of its largest one. Some come out negative, so that no Cholesky factor exists, although the
normal distribution does.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import (
    ArrayLike,
    as_complex,
    as_matrix,
    as_real,
    has_positive_diagonal,
    is_finite,
    real_as,
    real_diagonal,
)
from cgp.linalg.cholesky import (
    NotPositiveDefiniteError,
    assert_positive_definite,
    cholesky,
    stored_cholesky,
)
from cgp.linalg.gradients import with_gradient


def triangularize(a: ArrayLike) -> tf.Tensor:
    """The lower triangular `L` with `L Lᴴ = a aᴴ`, by a QR factorisation of `aᴴ`.

    `a aᴴ` is never formed, which would square the condition number. In a Kalman filter,
    `triangularize([F L, L_Q])` is a factor of `F P Fᴴ + Q`.

    Args:
        a: `[..., n, m]`, m ≥ n; complex128, complex64, float64 or float32.

    Returns:
        `L`, `[..., n, n]`, its upper part zero, its diagonal real and not negative: positive
        where `a` has full row rank. Differentiable there; the factor of a matrix of lower rank has
        no derivative, and the gradient is then NaN or infinite.

    Raises:
        TypeError: Another dtype.
        ValueError: Fewer columns than rows, or (eagerly) NaN.

    Example:
        >>> import numpy as np, cgp
        >>> bool(np.allclose(cgp.linalg.triangularize(np.array([[3.0j, 4.0]])), 5.0))
        True
    """
    a = as_matrix(a, "a")
    n, m = a.shape[-2:]
    if n is not None and m is not None and m < n:
        raise ValueError(f"a must be [..., n, m] with m >= n, got shape {a.shape}")
    if tf.executing_eagerly() and not is_finite(a):
        raise ValueError(f"a, of shape {a.shape}, has elements that are NaN or infinite")
    return _triangularize(a)


def lq(a: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The LQ factorisation `a = L Qᴴ` of `[..., n, m]`, m ≥ n; the diagonal of L is not negative.

    L is `[..., n, n]`, lower triangular; Q `[..., m, n]`, with orthonormal columns.
    """
    # aᴴ = Q R, so a = Rᴴ Qᴴ; a unit phase for each column makes the diagonal real.
    q, r = tf.linalg.qr(tf.linalg.adjoint(a))
    diagonal = tf.linalg.diag_part(r)
    modulus = tf.abs(diagonal)
    divisor = real_as(tf.where(modulus > 0, modulus, 1.0), a.dtype)
    phase = tf.where(modulus > 0, diagonal / divisor, 1.0)
    chol = tf.linalg.adjoint(r) * phase[..., None, :]
    chol = tf.linalg.set_diag(tf.linalg.band_part(chol, -1, 0), real_as(modulus, a.dtype))
    return chol, q * phase[..., None, :]


@tf.custom_gradient
def _triangularize(a: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    chol, q = lq(a)

    def backward(bar: tf.Tensor) -> tf.Tensor:
        """The cotangent ā of `a`, from `dL = L (tril S − ½ diag S)`, `S = K + Kᴴ`, `K = L⁻¹ da Q`.

        With P = tril(Lᴴ L̄), its diagonal halved and real, Re⟨L̄, dL⟩ = Re⟨P + Pᴴ, K⟩, so that
        ā = L⁻ᴴ (P + Pᴴ) Qᴴ.
        """
        p = tf.linalg.band_part(tf.linalg.matmul(chol, bar, adjoint_a=True), -1, 0)
        p = tf.linalg.set_diag(p, real_as(0.5 * real_diagonal(p), p.dtype))
        right = tf.linalg.matmul(p + tf.linalg.adjoint(p), q, adjoint_b=True)
        return tf.linalg.triangular_solve(chol, right, adjoint=True)

    return chol, backward


# An eigenvalue counts as rounding down to minus this many times n·eps·scale.
_ROUNDING = 10.0


def semidefinite_factor(a: ArrayLike, scale: ArrayLike | None = None) -> tf.Tensor:
    """A lower triangular factor of a matrix that is positive semidefinite up to rounding.

    This is the Cholesky factor where it exists. Where it does not, but no eigenvalue is below
    `-10 n eps scale`, it is the factor of the nearest semidefinite matrix: with `A = V Λ Vᴴ`, the
    eigenvalues within rounding of zero are set to zero and `V Λ^½` is made triangular by a QR
    factorisation.

    Args:
        a: `[..., n, n]`, Hermitian; complex128, complex64, float64 or float32.
        scale: Real, `[...]` or a number: the magnitude that the rounding in `a` is relative to.
            If None, the largest eigenvalue. A posterior covariance, computed as a difference,
            carries the rounding of the prior: give the prior's largest variance times n, or its
            largest eigenvalue.

    Returns:
        `L`, like `a`, with `A = L Lᴴ` to rounding: lower triangular, its upper part zero, its
        diagonal real and not negative. A zero on the diagonal means that `A` is singular.
        Differentiable where `A` has a Cholesky factor; elsewhere no derivative exists, and the
        gradient is NaN.

    Raises:
        TypeError: Another dtype.
        ValueError: Not square, or (eagerly) not Hermitian.
        NotPositiveDefiniteError: Indefinite beyond rounding. In a graph this is TensorFlow's
            `InvalidArgumentError`.

    Not for XLA, whose complex `eigh` returns garbage on a CPU: there a matrix without a Cholesky
    factor gives NaN, unless the factor found reproduces the matrix.

    Example:
        >>> import numpy as np
        >>> from cgp.linalg import semidefinite_factor
        >>> v = np.array([[1.0], [2.0j], [-1.0]])
        >>> chol = semidefinite_factor(v @ v.conj().T)
        >>> bool(np.allclose(chol, np.hstack([v, np.zeros([3, 2])])))
        True
    """
    a = as_matrix(a, "a", square=True)
    if tf.executing_eagerly():
        try:
            return cholesky(a)
        except NotPositiveDefiniteError:
            pass  # it may be semidefinite
    scale = None if scale is None else as_real(scale, "scale", a, "a")
    constant = tf.stop_gradient(a)
    chol, definite = _attempted_cholesky(constant)

    def semidefinite() -> tf.Tensor:
        singular = _eigenvalue_factor(constant, definite, scale)
        return tf.where(definite[..., None, None], chol, singular)

    factor = tf.cond(tf.reduce_all(definite), lambda: chol, semidefinite)
    return _with_cholesky_gradient(factor, definite, a)


def _attempted_cholesky(a: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The factors of matrices, and whether each is definite: other factors have no meaning.

    Real matrices are factored in complex arithmetic, at four times the cost: the real kernel of
    some versions of TensorFlow stops a graph at a matrix that it cannot factor, the complex one
    does not.
    """
    chol = tf.linalg.cholesky(as_complex(a))
    definite = has_positive_diagonal(chol)
    chol = chol if a.dtype.is_complex else tf.math.real(chol)
    return tf.linalg.band_part(chol, -1, 0), definite


def _eigenvalue_factor(a: tf.Tensor, excused: tf.Tensor, scale: tf.Tensor | None) -> tf.Tensor:
    """The factor from an eigendecomposition; matrices that are `excused` are not checked."""
    real = a.dtype.real_dtype
    eps = np.finfo(real.as_numpy_dtype).eps
    n = tf.cast(tf.shape(a)[-1], real)
    values, vectors = tf.linalg.eigh(a)
    values = tf.math.real(values)
    if scale is None:
        scale = tf.reduce_max(tf.abs(values), axis=-1)
    rounding = eps * n * scale
    floor = _ROUNDING * rounding
    smallest = tf.reduce_min(values, axis=-1)

    # Eigenvalues within rounding above zero are dropped too: log_det would take them for variance.
    kept = tf.where(values > rounding[..., None], values, tf.zeros_like(values))
    chol = lower_triangular(vectors * real_as(tf.sqrt(kept), a.dtype)[..., None, :])

    # Under XLA complex eigenvalues may be wrong; then the factor does not reproduce the matrix.
    gap = tf.abs(tf.linalg.matmul(chol, chol, adjoint_b=True) - a)
    reproduced = tf.reduce_max(gap, axis=[-2, -1]) <= 10.0 * floor
    ok = excused | ((smallest >= -floor) & reproduced)
    message = f"the matrix of shape {a.shape} is indefinite beyond rounding"
    if tf.executing_eagerly():
        message += f": its smallest eigenvalue is {float(tf.reduce_min(smallest)):.3g}"
    return assert_positive_definite(ok, chol, message)


def lower_triangular(root: tf.Tensor) -> tf.Tensor:
    """The lower triangular `L` with `L Lᴴ = root rootᴴ`, from a square root of any rank.

    A diagonal element that is only rounding relative to its row is set to zero.
    """
    real = root.dtype.real_dtype
    eps = np.finfo(real.as_numpy_dtype).eps
    chol, _ = lq(root)
    size = real_diagonal(chol)
    row = tf.norm(tf.abs(chol), axis=-1)
    floor = _ROUNDING * eps * tf.cast(tf.shape(chol)[-1], real) * row
    size = tf.where(size > floor, size, tf.zeros_like(size))
    return tf.linalg.set_diag(chol, real_as(size, root.dtype))


def _with_cholesky_gradient(factor: tf.Tensor, definite: tf.Tensor, a: tf.Tensor) -> tf.Tensor:
    """`factor`, with the gradient of `cholesky(a)` where `definite` and NaN elsewhere."""
    definite = definite[..., None, None]
    identity = tf.eye(tf.shape(a)[-1], dtype=a.dtype)
    regular = stored_cholesky(tf.where(definite, factor, identity), a)
    nan = real_as(tf.constant(np.nan, a.dtype.real_dtype), a.dtype)

    def grad(a: tf.Tensor, factor: tf.Tensor, definite: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
        return tf.where(definite, tf.zeros_like(dy), nan)

    singular = with_gradient(lambda a, factor, _: factor, a, factor, definite, grad=grad)
    return tf.where(definite, regular, singular)
