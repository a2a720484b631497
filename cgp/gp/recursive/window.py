"""The state of a stream in buffers of fixed size, and how rows enter and leave them.

A buffer has room for C points, the first `size` of which are in use; the rest is zero, or, in a
factor, rows of the identity. Nothing changes shape as a stream goes on, so nothing is traced again.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.gp.data import Data


class BudgetBasis(NamedTuple):
    """What the budget policy keeps of its points besides (see `cgp.gp.recursive.budget`)."""

    chol: tf.Tensor
    """The factor of their covariance K_ε without noise, but for the nugget, `[B, n, n]`."""
    precision: tf.Tensor
    """The diagonal blocks of K_ε⁻¹, `[B, C, m, m]`."""
    noise: tf.Tensor
    """The covariance of the noise of one point when the factors were computed, `[m, m]`."""


class Window(NamedTuple):
    """The points of B streams, at most C of each, and the factor of their covariance.

    Working matrices have n = m C rows, m being 1 or, in a real composite, 2.
    """

    size: tf.Tensor
    """Points in use, int32, `[B]`; the oldest come first."""
    x: tf.Tensor
    """`[B, C, D]`."""
    z: tf.Tensor
    """Targets, complex, `[B, C]`, as they were observed; of the budget policy, once it has pruned,
    what stands for all that has been."""
    age: tf.Tensor
    """Steps of forgetting that a point has been through, real, `[B, C]`."""
    chol: tf.Tensor
    """The factor L of M, `[B, n, n]`."""
    basis: Any = ()
    """The `BudgetBasis` of the budget policy; empty, `()`, under the others."""

    @property
    def in_use(self) -> tf.Tensor:
        """Bool, `[B, C]`."""
        return tf.range(self.x.shape[1]) < self.size[:, None]

    def data(self, single: bool = False) -> Data:
        """The points as data, those not in use as missing; of `single`, without batch axes."""
        nan = tf.constant(np.nan, self.z.dtype)
        z = tf.where(self.in_use, self.z, nan)
        return Data(self.x, z, tf.zeros([0], tf.int32) if single else tf.shape(z)[:1])


def of_streams(where: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """`a`, `[B, ...]`, of the streams where bool `[B]`, and `b` of the others."""
    return tf.where(tf.reshape(where, [-1] + [1] * (a.shape.rank - 1)), a, b)


def put(buffer: tf.Tensor, slot: tf.Tensor, value: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    """A buffer `[B, C, ...]` with `value`, `[B, ...]`, at row `slot`, `[B]`, where bool `[B]`."""
    at = tf.stack([tf.range(tf.shape(slot)[0]), slot], axis=-1)
    value = of_streams(where, value, tf.gather_nd(buffer, at))
    return tf.tensor_scatter_nd_update(buffer, at, value)


def append_rows(chol, white, pivot, slot, where) -> tf.Tensor:
    """A factor `[B, n, n]` with the rows [wᴴ pivot] of one point in the place of unit rows.

    Args:
        chol: `[B, n, n]`.
        white: w, `[B, n, m]`.
        pivot: `[B, m, m]`, lower triangular.
        slot: The point, `[B]`.
        where: Bool, `[B]`.
    """
    n, m = white.shape[-2:]
    here = tf.one_hot(slot, n // m, dtype=chol.dtype)[:, None, :, None]
    block = tf.reshape(here * pivot[:, :, None, :], [-1, m, n])
    blocks = tf.reshape(chol, [-1, n // m, m, n])
    blocks = put(blocks, slot, tf.linalg.adjoint(white) + block, where)
    return tf.reshape(blocks, [-1, n, n])


def padded(buffer: tf.Tensor) -> tf.Tensor:
    """A buffer `[B, C, ...]` with room for one point more."""
    return tf.pad(buffer, [[0, 0], [0, 1]] + [[0, 0]] * (buffer.shape.rank - 2))


def padded_chol(chol: tf.Tensor, m: int) -> tf.Tensor:
    """A factor `[B, n, n]` with room for one point more, of m rows."""
    streams, n = chol.shape[:2]
    ones = np.array([[b, n + j, n + j] for b in range(streams) for j in range(m)])
    chol = tf.pad(chol, [[0, 0], [0, m], [0, m]])
    # In place, where setting the diagonal would copy all.
    return tf.tensor_scatter_nd_update(chol, ones, tf.ones(len(ones), chol.dtype))


def without(buffer: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    """A buffer `[B, C, ...]` without the row `index`, `[B]`; later ones move up."""
    stays = tf.range(buffer.shape[1] - 1) < index[:, None]
    stays = tf.reshape(stays, [-1, buffer.shape[1] - 1] + [1] * (buffer.shape.rank - 2))
    return tf.where(stays, buffer[:, :-1], buffer[:, 1:])
