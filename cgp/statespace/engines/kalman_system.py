"""Series and their model as compiled ops take them, and as the loops of XLA do.

The noise of observations is decorrelated, for updates one component at a time.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.experimental.numpy import moveaxis

from cgp.linalg.arguments import real_as
from cgp.statespace.engines.filter_step import State, System


class KalmanSystem(NamedTuple):
    """A `System` for many series, with the state before the first step, as compiled ops take it.

    An array that is the same at all steps of all series has its own axes alone. Others have the
    axis of time before them, which moments of the first state have not, and that of the batch after
    them; either is 1 where nothing varies along it. The covariances of all series are the same
    where `chol` has no batch axis, or one of 1.
    """

    F: tf.Tensor  # `[n, n]`, or `[T, n, n, B]`
    Q: tf.Tensor  # `[n, n]`, or `[T, n, n, B]`
    Q_factor: tf.Tensor  # `[n, q]`, or `[T, n, q, B]`
    h: tf.Tensor  # `[m, n]`, or `[T, m, n, B]`
    r: tf.Tensor  # Real, `[m]`, or `[T, m, B]`
    b: tf.Tensor  # `[n]`, or `[T, n, B]`
    z: tf.Tensor  # The observations, those of each series side by side in memory, `[B, T, m]`
    observed: tf.Tensor  # Real, `[m]`, or `[T, m, B]`
    mean: tf.Tensor  # `[n]`, or `[n, B]`
    covariance: tf.Tensor  # `[n, n]`, or `[n, n, B]`; gradients flow to it
    chol: tf.Tensor  # The factor of the first covariance, which computations use


_RANKS = KalmanSystem(
    F=2, Q=2, Q_factor=2, h=2, r=1, b=1, z=1, observed=1, mean=1, covariance=2, chol=2
)
_ON_COVARIANCES = ("F", "Q_factor", "h", "r", "observed", "chol")


def batch_of(system: KalmanSystem, name: str) -> int | None:
    """The length of the batch axis of an array; None where it is not known."""
    array = getattr(system, name)
    return 1 if array.shape.rank == getattr(_RANKS, name) else array.shape[-1]


def with_covariances_of_each(system: KalmanSystem) -> KalmanSystem:
    """Gives the first covariance a batch axis where arrays that change covariances have one."""
    sizes = {name: batch_of(system, name) for name in _ON_COVARIANCES}
    if set(sizes.values()) == {1} or sizes["chol"] not in (None, 1):
        return system
    zero = sum(
        tf.zeros_like(tf.abs(a[(0,) * (a.shape.rank - 1)]))
        for a in (getattr(system, name) for name, size in sizes.items() if size != 1)
    )
    zero = real_as(zero, system.chol.dtype)
    covariance, chol = (
        (a[..., None] if a.shape.rank == 2 else a) + zero for a in (system.covariance, system.chol)
    )
    return system._replace(covariance=covariance, chol=chol)


def for_loops(system: KalmanSystem) -> tuple[System, State]:
    """The arrays with all axes of a `System`, and the first state, `[n, B]` and `[n, n, B]`."""
    z = moveaxis(system.z, 0, -1)
    arrays = {"z": z}
    for name in System._fields:
        a = getattr(system, name)
        if name != "z":
            is_constant = a.shape.rank == getattr(_RANKS, name)
            arrays[name] = a[None, ..., None] if is_constant else a
    mean, chol = (
        a[..., None] if a.shape.rank == rank else a
        for a, rank in ((system.mean, 1), (system.chol, 2))
    )
    return System(**arrays), State(mean + tf.zeros_like(z[0, :1]), chol)


def from_loops(gradient: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """The gradient by an array, except z, from that by the array that `for_loops` made of it."""
    if gradient.shape.rank == like.shape.rank:
        return gradient
    summed = tf.reduce_sum(gradient, axis=-1)  # of a mean that all series share; else of one
    return summed if summed.shape.rank == like.shape.rank else summed[0]


# A pivot below this many rounding errors of its diagonal element counts as zero.
_ROUNDING = 8.0


def decorrelated(
    H: tf.Tensor, R: tf.Tensor, z: tf.Tensor, observed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Transforms observations so that the noise of their components is uncorrelated.

    With `R = U D Uᴴ` of the observed components, U unit lower triangular and D diagonal, the result
    is `U⁻¹ H`, D and `U⁻¹ z`. Elimination computes it without an inverse of R, which may be
    singular. As |U| = 1, the density is the same. Arrays are those of a `KalmanSystem`, R is
    `[m, m]`, or `[T, m, m, B]`, and z zero where missing.
    """
    m = z.shape[-1]
    if m == 1:
        return H, tf.squeeze(tf.math.real(R), axis=0 if R.shape.rank == 2 else 2), z
    H, R = (a[None, ..., None] if a.shape.rank == 2 else a for a in (H, R))
    observed = observed[None, :, None] if observed.shape.rank == 1 else observed
    diagonal = tf.stack([tf.math.real(R[:, i, i]) for i in range(m)], axis=1)
    # Makes the gradient with respect to R Hermitian. A diagonal R takes this path too, because its
    # derivatives with respect to the off-diagonal elements are not zero.
    R = 0.5 * (R + tf.math.conj(tf.einsum("tijb->tjib", R)))
    # Noise of unit variance: otherwise the square of a pivot, in its derivative, may under- or
    # overflow.
    noisy = diagonal > 0
    unit = tf.stop_gradient(tf.where(noisy, tf.sqrt(tf.where(noisy, diagonal, 1.0)), 1.0))
    scale = real_as(1.0 / unit, R.dtype)
    is_observed = real_as(observed, R.dtype)
    R = R * (scale * is_observed)[:, :, None] * (scale * is_observed)[:, None]
    H, z = H * scale[:, :, None], z * _by_series(scale)
    eps = np.finfo(R.dtype.real_dtype.as_numpy_dtype).eps
    size, variances = tf.abs(H), []
    for j in range(m):
        pivot = tf.math.real(R[:, j, j])
        sound = pivot > _ROUNDING * m * eps
        # A zero pivot: only its value is set to zero, its derivative is kept.
        pivot += tf.stop_gradient(tf.where(sound, pivot, tf.zeros_like(pivot)) - pivot)
        inverse = tf.where(sound, 1.0 / tf.where(sound, pivot, 1.0), tf.zeros_like(pivot))
        below = np.arange(m)[:, None] > j
        factors = R[:, :, j] * real_as(inverse, R.dtype)[:, None]
        factors = tf.where(below, factors, tf.zeros_like(factors))
        variances.append(pivot)
        R = R - factors[:, :, None] * R[:, None, j]
        z = z - _by_series(factors) * z[..., j, None]
        size = size + tf.abs(factors)[:, :, None] * tf.abs(H[:, None, j])
        H = H - factors[:, :, None] * H[:, None, j]
        # Rounding errors of rows that cancel would count as noise-free observations. Only the
        # value is set to zero, the derivative is kept.
        rows = tf.where(tf.abs(H) > _ROUNDING * eps * size, H, tf.zeros_like(H))
        H += tf.stop_gradient(rows - H)
    variance = tf.stack(variances, axis=1) * unit * unit
    unit = real_as(unit, R.dtype)
    return H * unit[:, :, None], variance, z * _by_series(unit)


def leaves_no_exact_observation(R: tf.Tensor) -> bool:
    """Whether noise of covariances `[..., m, m]` reaches every combination of the components."""
    R = np.asarray(R)
    size = np.sqrt(np.diagonal(R, axis1=-2, axis2=-1).real)
    if not np.all(size > 0.0):
        return False
    unit = R / (size[..., None] * size[..., None, :])
    return bool(np.all(np.linalg.eigvalsh(unit) > _ROUNDING * R.shape[-1] * np.finfo(R.dtype).eps))


def _by_series(a: tf.Tensor) -> tf.Tensor:
    """`[T, m, B]` -> `[B, T, m]`."""
    return tf.experimental.numpy.moveaxis(a, -1, 0)
