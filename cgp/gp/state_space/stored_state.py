"""A state of a state-space process at one place, from which later samples go on."""

from typing import NamedTuple

import tensorflow as tf

from cgp.gp.data import empty_variable

TOO_EARLY = (
    "x lies before the samples that are still held: step and process keep the latest samples, and "
    "the state before them. To look further back, condition another StateSpaceGP on the samples"
)


class StateAt(NamedTuple):
    """The moments of the state of B series at one place, given all samples up to it."""

    x: tf.Tensor
    """The place, a real number."""
    mean: tf.Tensor
    """Working values, `[B, n]`."""
    chol: tf.Tensor
    """The Cholesky factor of the covariance, `[B, n, n]`."""


class StoredState(tf.Module):
    """A `StateAt` in variables, or none.

    Always the same variables, so that a compiled function sees the state of the time it runs.

    Args:
        dtype: Of the working values.
    """

    def __init__(self, dtype: tf.DType):
        super().__init__()
        real = dtype.real_dtype
        self.x, self.mean, self.chol = (
            empty_variable(rank, kind) for rank, kind in ((1, real), (2, dtype), (3, dtype))
        )

    @property
    def is_empty(self) -> tf.Tensor:
        """Whether there is none, scalar bool."""
        return tf.size(self.x) == 0

    def read(self) -> StateAt:
        """The state, if there is one."""
        x, mean, chol = (tf.convert_to_tensor(v) for v in (self.x, self.mean, self.chol))
        return StateAt(x[0], mean, chol)

    def write(self, state: StateAt) -> None:
        """Keeps a state."""
        self.x.assign(tf.reshape(state.x, [1]))
        self.mean.assign(state.mean)
        self.chol.assign(state.chol)

    def clear(self) -> None:
        """Drops the state."""
        for variable in (self.x, self.mean, self.chol):
            variable.assign(tf.zeros([0] * variable.shape.rank, variable.dtype))
