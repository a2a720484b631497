"""Series and their model, arranged for compiled ops and for the loops of XLA."""

from typing import NamedTuple

import tensorflow as tf

from cgp.linalg.arguments import real_as
from cgp.statespace.engines.filter_step import State
from cgp.statespace.engines.forward_pass import System


class Arranged(NamedTuple):
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
    """The observations of each series in one piece, `[B, T, m]`."""
    observed: tf.Tensor
    """Real, `[m]`, or `[T, m, B]`."""
    mean: tf.Tensor
    """`[n]`, or `[n, B]`."""
    covariance: tf.Tensor
    """`[n, n]`, or `[n, n, B]`; gradients flow to it."""
    chol: tf.Tensor
    """Its factor, which computations use."""


_OWN_AXES = Arranged(
    F=2, Q=2, Q_factor=2, h=2, r=1, b=1, z=1, observed=1, mean=1, covariance=2, chol=2
)
_ON_COVARIANCES = ("F", "Q_factor", "h", "r", "observed", "chol")


def batch_of(given: Arranged, name: str) -> int | None:
    """The length of the batch axis of an array; None where it is not known."""
    value = getattr(given, name)
    return 1 if value.shape.rank == getattr(_OWN_AXES, name) else value.shape[-1]


def with_covariances_of_each(given: Arranged) -> Arranged:
    """Gives the first covariance the batch axis of what acts on covariances, if that has one."""
    sizes = {name: batch_of(given, name) for name in _ON_COVARIANCES}
    if set(sizes.values()) == {1} or sizes["chol"] not in (None, 1):
        return given
    zero = sum(
        tf.zeros_like(tf.abs(value[(0,) * (value.shape.rank - 1)]))
        for value in (getattr(given, name) for name, size in sizes.items() if size != 1)
    )
    zero = real_as(zero, given.chol.dtype)
    covariance, chol = (
        (a[..., None] if a.shape.rank == 2 else a) + zero for a in (given.covariance, given.chol)
    )
    return given._replace(covariance=covariance, chol=chol)


def for_loops(given: Arranged) -> tuple[System, State]:
    """The same with all axes of a `System`, and the first state, `[n, B]` and `[n, n, B]`."""
    z = tf.experimental.numpy.moveaxis(given.z, 0, -1)
    spread = {"z": z}
    for name in System._fields:
        value = getattr(given, name)
        if name != "z":
            is_alone = value.shape.rank == getattr(_OWN_AXES, name)
            spread[name] = value[None, ..., None] if is_alone else value
    mean, chol = (
        a[..., None] if a.shape.rank == own else a for a, own in ((given.mean, 1), (given.chol, 2))
    )
    return System(**spread), State(mean + tf.zeros_like(z[0, :1]), chol)


def from_loops(gradient: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """The gradient by an array, except z, from that by what `for_loops` made of it."""
    if gradient.shape.rank == like.shape.rank:
        return gradient
    summed = tf.reduce_sum(gradient, axis=-1)  # of a mean that all series share; else of one
    return summed if summed.shape.rank == like.shape.rank else summed[0]
