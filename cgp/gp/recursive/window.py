"""The window of a stream, in buffers of fixed size, and how points enter them.

A buffer has room for C points, of which the first `size` are in use. Unused rows are zero, or, in a
factor, rows of the identity. No shape changes as a stream goes on, so nothing is traced again.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.distributions.forms import SecondMoments
from cgp.gp.data import Data
from cgp.gp.noise import SampleNoise


class Window(NamedTuple):
    """The points of B streams, at most C of each, and the Cholesky factor of their covariance.

    Working matrices have n = m C rows, where m is 1 or, in a real composite, 2.
    """

    size: tf.Tensor
    """Number of points in use, int32, `[B]`; the oldest come first."""
    x: tf.Tensor
    """Inputs, `[B, C, D]`."""
    z: tf.Tensor
    """Targets, complex, `[B, C]`, as observed; under the budget policy, once it has pruned, targets
    that give the same posterior as all observations."""
    age: tf.Tensor
    """Steps of forgetting that each point has been through, real, `[B, C]`."""
    chol: tf.Tensor
    """The factor L of M, the covariance of the targets, `[B, n, n]`."""
    extra: Any = ()
    """A named tuple of further arrays of the policy, `()` for none (see `Policy.empty`)."""
    noise: tuple[tf.Tensor, ...] = ()
    """The noise of each point, `[B, C]`: its known part, zero if it has none, and in a model of
    several groups its group (unlike in `SampleNoise` no part is None, which loops do not take)."""

    @property
    def in_use(self) -> tf.Tensor:
        """Whether a row holds a point, bool, `[B, C]`."""
        return tf.expand_dims(self.size, -1) > np.arange(self.x.shape[1], dtype=np.int32)

    def map_points(self, function: Callable[..., tf.Tensor], *rows: Sequence) -> "Window":
        """Applies a function to the buffers of points, x, z, age and noise, with rows of each."""
        x, z, age, *noise = map(function, (self.x, self.z, self.age, *self.noise), *rows)
        return self._replace(x=x, z=z, age=age, noise=tuple(noise))

    def data(self, single: bool = False) -> Data:
        """The points as data, unused rows as missing; without batch axes if `single`."""
        nan = tf.constant(np.nan, self.z.dtype)
        z = tf.where(self.in_use, self.z, nan)
        batch = tf.zeros([0], tf.int32) if single else tf.shape(z)[:1]
        return Data(self.x, z, batch, SampleNoise(*self.noise))


class OneStepPrediction(NamedTuple):
    """The distribution of a sample given the window before it; means and moments are `[B]`."""

    x: tf.Tensor
    """The input, `[B, D]`."""
    cross: tf.Tensor
    """Working covariance between the points of the window and the sample, `[B, n, m]`."""
    white: tf.Tensor
    """w = L⁻¹ cross, `[B, n, m]`."""
    mean: tf.Tensor
    """Complex."""
    prior: SecondMoments
    """Of the signal, before any data."""
    signal: SecondMoments
    """Of the signal, given the window."""
    observed: SecondMoments
    """Of the observation, given the window."""
    jitter: tf.Tensor
    """The rounding error of variances of the signal, which counts as noise; real."""
    pivot: tf.Tensor
    """√S, the factor of the working innovation covariance, jitter included, `[B, m, m]`."""
    noise: SampleNoise
    """The noise of the sample; its known part is there, zero if it has none."""


def select_streams(where: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """`a`, `[B, ...]`, for the streams `where`, bool `[B]`, and `b` for the others."""
    return tf.where(tf.reshape(where, [-1] + [1] * (a.shape.rank - 1)), a, b)


def put_row(buffer: tf.Tensor, slot: tf.Tensor, value: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    """A buffer `[B, C, ...]` with `value`, `[B, ...]`, in row `slot`, `[B]`, of streams `where`."""
    at = tf.stack([tf.range(tf.shape(slot)[0]), slot], axis=-1)
    value = select_streams(where, value, tf.gather_nd(buffer, at))
    return tf.tensor_scatter_nd_update(buffer, at, value)


def append_point(
    chol: tf.Tensor, white: tf.Tensor, pivot: tf.Tensor, slot: tf.Tensor, where: tf.Tensor
) -> tf.Tensor:
    """A factor `[B, n, n]` with the rows [wᴴ pivot] of one point in place of rows of the identity.

    w, `white`, `[B, n, m]`, is zero from the rows of the point on; `pivot`, `[B, m, m]`, is lower
    triangular; `slot`, `[B]`, is the place of the point in the streams that gain it, `where`.
    """
    n, m = white.shape[-2:]
    in_slot = tf.one_hot(slot, n // m, dtype=chol.dtype)[:, None, :, None]
    block = tf.reshape(in_slot * pivot[:, :, None, :], [-1, m, n])
    blocks = tf.reshape(chol, [-1, n // m, m, n])
    blocks = put_row(blocks, slot, tf.linalg.adjoint(white) + block, where)
    return tf.reshape(blocks, [-1, n, n])


def repeated(values: tf.Tensor, times: int, axis: int = -1) -> tf.Tensor:
    """`tf.repeat` with a tenth of its operations: the value of a point for each of its rows."""
    if times == 1:
        return values
    sizes = values.shape.as_list()
    axis %= len(sizes)
    sizes[axis] = None if sizes[axis] is None else times * sizes[axis]
    if sizes.count(None) > 1:
        return tf.repeat(values, times, axis=axis)
    rows = tf.stack([values] * times, axis=axis + 1)
    return tf.reshape(rows, [-1 if size is None else size for size in sizes])
