"""The state of the streams of an online filter, in variables."""

import operator
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.distributions.marginals import Marginals
from cgp.statespace.engines.filter_step import State
from cgp.statespace.online.native_step import CompiledStep


class StreamState:
    """The state of B streams.

    It is stored in real variables, `[n, B]` and `[n, n, B]`; a complex state has a last axis of
    two.

    Args:
        make_variable: Makes a variable of a name and a shape, initially zero, with the interface of
            `cgp.training.host_variable.HostVariable`.
        size: n, the number of working components of the state.
        streams: B.
        dtype: Dtype of the working values.
    """

    def __init__(
        self,
        make_variable: Callable[[str, tuple[int, ...]], Any],
        size: int,
        streams: int,
        dtype: tf.DType,
    ):
        self.streams, self.dtype = streams, dtype
        self._mutex = threading.Lock()
        self._hosts: list[Any] = [None, None]
        self._arrays: list[np.ndarray] = []
        parts = [2] if dtype.is_complex else []
        self.variables = [
            make_variable("state_mean", (size, streams, *parts)),
            make_variable("state_chol", (size, size, streams, *parts)),
        ]

    def read(self) -> State:
        """The state, batch last."""
        if tf.executing_eagerly():
            values = [tf.constant(variable.numpy()) for variable in self.variables]
        else:
            values = [tf.convert_to_tensor(variable) for variable in self.variables]
        if self.dtype.is_complex:
            values = [tf.complex(value[..., 0], value[..., 1]) for value in values]
        return State(*values)

    def write(self, state: State) -> None:
        """Stores a state, batch last."""
        values = list(state)
        if self.dtype.is_complex:
            values = [tf.stack([tf.math.real(a), tf.math.imag(a)], axis=-1) for a in values]
        for variable, value in zip(self.variables, values, strict=True):
            variable.assign(value)

    def state(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and factor as working values, batch first: `[B, n]` and `[B, n, n]`."""
        mean, chol = (tf.experimental.numpy.moveaxis(a, -1, 0) for a in self.read())
        return mean, chol

    def set_state(self, mean: tf.Tensor, chol: tf.Tensor) -> None:
        """Stores a state, batch first, broadcast to all streams."""
        mean = tf.broadcast_to(mean, [self.streams, *mean.shape[-1:]])
        chol = tf.broadcast_to(chol, [self.streams, *chol.shape[-2:]])
        self.write(State(*(tf.experimental.numpy.moveaxis(a, 0, -1) for a in (mean, chol))))

    def take(
        self, step: CompiledStep, z: np.ndarray, changes: Mapping[str, np.ndarray]
    ) -> tuple[Marginals, Marginals]:
        """Lets a compiled step change the state, one thread at a time.

        Args:
            step: The step.
            z: The observations; see `CompiledStep`, for what is returned and raised too.
            changes: Matrices of the step that are others now, as for `CompiledStep.set`.
        """
        with self._mutex:
            step.set(**changes)
            found = step(z, *self._views())
            for variable in self.variables:
                variable.changed()
        return found

    def _views(self) -> list[np.ndarray]:
        """Mean and factor as arrays of working values, `[n, B]` and `[n, n, B]`."""
        hosts = [variable.host() for variable in self.variables]
        if not all(map(operator.is_, hosts, self._hosts)):
            self._hosts = self._arrays = hosts
            if self.dtype.is_complex:
                self._arrays = [a.view(self.dtype.as_numpy_dtype)[..., 0] for a in hosts]
        return self._arrays
