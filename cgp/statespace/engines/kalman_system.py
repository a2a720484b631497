"""Series and their model as compiled ops take them, and as the loops of XLA do."""

from typing import NamedTuple

import tensorflow as tf
from tensorflow.experimental.numpy import moveaxis

from cgp.linalg.arguments import real_as
from cgp.statespace.engines.filter_step import State
from cgp.statespace.engines.forward_pass import System


class KalmanSystem(NamedTuple):
    """A `System` for many series, with the state before the first step, as compiled ops take it.

    An array that is the same at all steps of all series has its own axes alone. Others have the
    axis of time before them, which moments of the first state have not, and that of the batch after
    them; either is 1 where nothing varies along it. The covariances of all series are the same
    where `chol` has no batch axis, or one of 1.
    """

    F: tf.Tensor
    """`[n, n]`, or `[T, n, n, B]`."""
    Q: tf.Tensor
    """`[n, n]`, or `[T, n, n, B]`."""
    Q_factor: tf.Tensor
    """`[n, q]`, or `[T, n, q, B]`."""
    h: tf.Tensor
    """`[m, n]`, or `[T, m, n, B]`."""
    r: tf.Tensor
    """Real, `[m]`, or `[T, m, B]`."""
    b: tf.Tensor
    """`[n]`, or `[T, n, B]`."""
    z: tf.Tensor
    """The observations, those of each series side by side in memory, `[B, T, m]`."""
    observed: tf.Tensor
    """Real, `[m]`, or `[T, m, B]`."""
    mean: tf.Tensor
    """`[n]`, or `[n, B]`."""
    covariance: tf.Tensor
    """`[n, n]`, or `[n, n, B]`; gradients flow to it."""
    chol: tf.Tensor
    """The factor of the first covariance, which computations use."""


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
