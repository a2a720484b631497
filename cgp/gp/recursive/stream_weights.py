"""The state of streams in the weights of a layer, and the compiled functions that move it."""

import functools
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from cgp.gp.recursive.window import BudgetBasis, Window
from cgp.gp.recursive.window_recursion import StepTensors, WindowRecursion
from cgp.linalg.arguments import has_positive_diagonal

_CHUNK = 512  # samples to a call of the compiled loop: between two looks at the clock
_PATIENCE = 3.0  # seconds that a block may still take without a progress bar


class StreamWeights:
    """A stream that lives in the weights of a layer.

    Args:
        layer: The layer, about to be built; its weights are made here.
        stream: The recursion.
        streams: The number of streams, B.
        dimensions: The number of dimensions of inputs, D.
        refresh: Function without arguments that brings the state to the present hyperparameters, to
            be called before it is read.
    """

    def __init__(
        self,
        layer: keras.layers.Layer,
        stream: WindowRecursion,
        streams: int,
        dimensions: int,
        refresh: Callable[[], None],
    ):
        self.stream, self._refresh = stream, refresh
        with tf.init_scope():
            self._empty = stream.empty(streams, dimensions, layer.variable_dtype)
            self._dtypes = [value.dtype for value in _flat(self._empty)]
            values = [value.numpy() for value in map(_as_weight, _flat(self._empty))]
        self.weights = [
            layer.add_weight(
                shape=value.shape,
                initializer=lambda shape, dtype, value=value: tf.constant(value, dtype),
                dtype=value.dtype.name,
                trainable=False,
                autocast=False,
                name=f"state_{name}",
            )
            for name, value in zip(
                [*Window._fields[:-1], *BudgetBasis._fields], values, strict=False
            )
        ]
        x, z = self._empty.x, self._empty.z
        self.x_shape = (streams, dimensions)
        # One signature each: nothing is traced again, whatever comes. There is no Python control
        # flow for AutoGraph to find, and looking for it takes seconds. A partial is a thing of its
        # own: TensorFlow counts the traces of one code, and would warn of the fifth tracker.
        self.step = tf.function(
            functools.partial(self.advance),
            autograph=False,
            input_signature=[
                tf.TensorSpec([streams, dimensions], x.dtype),
                tf.TensorSpec([streams], z.dtype),
            ],
        )
        self._block = tf.function(
            functools.partial(self.advance_block),
            autograph=False,
            input_signature=[
                tf.TensorSpec([streams, None, dimensions], x.dtype),
                tf.TensorSpec([streams, None], z.dtype),
            ],
        )

    @property
    def sizes(self) -> np.ndarray:
        """The number of points that are held, `[B]`."""
        return np.asarray(keras.ops.convert_to_numpy(self.weights[0]))

    def read(self) -> Window:
        """The state, from its weights as they are."""
        values = [
            tf.bitcast(tf.convert_to_tensor(weight), dtype) if dtype.is_complex else weight.value
            for weight, dtype in zip(self.weights, self._dtypes, strict=True)
        ]
        own = len(Window._fields) - 1
        state = Window(*values[:own])
        return state._replace(basis=BudgetBasis(*values[own:])) if values[own:] else state

    def write(self, state: Window) -> None:
        """Keeps a state, if it is one: an error otherwise, and nothing has changed."""
        sound = tf.reduce_all(has_positive_diagonal(state.chol))
        check = tf.debugging.Assert(sound, ["the state is not positive definite any more"])
        # Eagerly, an assertion that holds returns None.
        with tf.control_dependencies([] if check is None else [check]):
            values = [tf.identity(_as_weight(value)) for value in _flat(state)]
        for weight, value in zip(self.weights, values, strict=True):
            weight.assign(value)

    def factorize(self) -> None:
        """Brings the factors to the present hyperparameters."""
        self.write(self.stream.factorized(self.read()))

    def clear(self) -> None:
        """Forgets all samples."""
        self.write(self._empty)

    def hold(self) -> list[tf.Tensor]:
        """What the weights are now, to `restore` them to."""
        return [tf.identity(weight) for weight in self.weights]

    def restore(self, held: list[tf.Tensor]) -> None:
        """The weights as they were; what they were made for may have changed."""
        for weight, value in zip(self.weights, held, strict=True):
            weight.assign(value)

    def advance(self, x: tf.Tensor, z: tf.Tensor) -> StepTensors:
        """One step of all streams, `[B, D]` and `[B]`."""
        self._refresh()
        x, z = tf.convert_to_tensor(x), tf.convert_to_tensor(z)  # where functions run eagerly
        state, outcome = self.stream.advance(self.read(), x, z)
        self.write(state)
        return outcome

    def advance_block(self, x: tf.Tensor, z: tf.Tensor) -> StepTensors:
        """T steps, `[B, T, D]` and `[B, T]`; what is returned is `[T, B]`."""
        self._refresh()
        x, z = tf.convert_to_tensor(x), tf.convert_to_tensor(z)
        state, outcomes = self.stream.run(self.read(), x, z)
        self.write(state)
        return outcomes

    def run(self, x: np.ndarray, z: np.ndarray, verbose) -> StepTensors:
        """T steps, `[B, T, D]` and `[B, T]`, compiled; NumPy `[B, T]`, with a progress bar.

        Args:
            x: `[B, T, D]`.
            z: `[B, T]`.
            verbose: 0, 1 or 2, or "auto" for a bar if it takes long.
        """
        parts, bar, length = [], None, z.shape[-1]
        start = time.monotonic()
        for first in range(0, length, _CHUNK):
            chunk = slice(first, first + _CHUNK)
            parts.append(self._block(x[:, chunk], z[:, chunk]))
            done = min(first + _CHUNK, length)
            if first == 0:  # what was traced for the first chunk says nothing of the others
                start = time.monotonic()
            left = (time.monotonic() - start) / max(done - _CHUNK, 1) * (length - done)
            if bar is None and (verbose in (1, 2) or (verbose == "auto" and left > _PATIENCE)):
                bar = keras.utils.Progbar(length, unit_name="sample")
            if bar is not None:
                bar.update(done)
        return tf.nest.map_structure(
            lambda *leaves: np.moveaxis(np.concatenate(leaves), 0, -1), *parts
        )


def _flat(state: Window) -> list[tf.Tensor]:
    return [*state[:-1], *state.basis]


def _as_weight(value: tf.Tensor) -> tf.Tensor:
    """A state as a weight: of a complex one, real and imaginary part along a last axis."""
    return tf.bitcast(value, value.dtype.real_dtype) if value.dtype.is_complex else value
