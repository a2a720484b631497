"""The windows of streams in the weights of a layer, and the compiled steps that advance them."""

import contextlib
import functools
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions import Step
from cgp.gp.data import Data
from cgp.gp.recursive import native_scan
from cgp.gp.recursive.native_window import CompiledWindow
from cgp.gp.recursive.window import Window
from cgp.gp.recursive.window_recursion import WindowRecursion
from cgp.linalg import NotPositiveDefiniteError
from cgp.linalg.arguments import has_positive_diagonal
from cgp.training import confirm, invalidate, refresh, register_post_update
from cgp.training.host_variable import HostVariable
from cgp.training.keras_private import add_variable
from cgp.training.post_updates import current_values, is_stale

_CHUNK = 128  # samples to a call of the compiled loop: between two looks at the clock
_PATIENCE = 3.0  # seconds that a block may still take without a progress bar


class StreamWeights:
    """The windows of B streams, in non-trainable weights of a layer.

    Args:
        layer: The layer. Its weights are made here, and a post update that brings the factors to
            the present hyperparameters.
        recursion: How windows take samples in.
        streams: The number of streams, B; None for a single one without batch axis.
        dimensions: The number of dimensions of inputs, D.

    Raises:
        ValueError: Numbers below 1, or windows larger than the memory of this machine.
    """

    def __init__(
        self,
        layer: keras.layers.Layer,
        recursion: WindowRecursion,
        streams: int | None,
        dimensions: int,
    ):
        shape = (1 if streams is None else streams, dimensions)
        if not all(isinstance(n, int | np.integer) and n >= 1 for n in shape):
            raise ValueError(
                "the numbers of streams and dimensions must be whole numbers, at least 1, got "
                f"{shape[0]!r} and {shape[1]!r}"
            )
        self.recursion, self._layer = recursion, layer
        self._is_checked = True
        self._concrete: Any = None
        self._by_core, self._mutex = CompiledWindow(recursion), threading.Lock()
        self.is_single, streams = streams is None, shape[0]
        self.x_shape = (streams, dimensions)
        _check_memory(recursion, streams, dimensions)
        with tf.init_scope():
            self._empty = recursion.empty(streams, dimensions, layer.variable_dtype)
            values = [_as_weight(value).numpy() for value in tf.nest.flatten(self._empty)]
        names = [*Window._fields[:-1], *getattr(self._empty.extra, "_fields", ())]
        self._weights = []
        for name, value in zip(names, values, strict=True):
            make = functools.partial(HostVariable, value.shape, value.dtype.name, f"window_{name}")
            weight = add_variable(layer, make)
            weight.assign(value)
            self._weights.append(weight)
        register_post_update(layer, recursion.process.weights, self.refactorize)
        if not tf.nest.flatten(self._empty.extra):
            with tf.init_scope():
                confirm(layer)  # a window without points has one factor at all hyperparameters
        x, z = self._empty.x, self._empty.z
        # One signature: nothing is traced again, whatever comes. There is no Python control
        # flow for AutoGraph to find, and looking for it takes seconds. A partial is a thing of its
        # own: TensorFlow counts the traces of one code, and would warn of the fifth tracker.
        self.compiled_scan = tf.function(
            functools.partial(self.scan),
            autograph=False,
            input_signature=[
                tf.TensorSpec([streams, None, dimensions], x.dtype),
                tf.TensorSpec([streams, None], z.dtype),
            ],
        )

    # --- the windows as weights ------------------------------------------------------------------

    @property
    def sizes(self) -> np.ndarray:
        """The number of points in each window, `[B]`."""
        return np.asarray(keras.ops.convert_to_numpy(self._weights[0]))

    def read(self) -> Window:
        """The windows as they are in the weights."""
        eager = tf.executing_eagerly()
        values = []
        for weight, value in zip(self._weights, tf.nest.flatten(self._empty), strict=True):
            a = tf.constant(weight.numpy()) if eager else tf.convert_to_tensor(weight)
            values.append(tf.bitcast(a, value.dtype) if value.dtype.is_complex else a)
        return tf.nest.pack_sequence_as(self._empty, values)

    def _arrays(self) -> list[np.ndarray]:
        """The windows as arrays, which share the memory of the weights."""
        found = []
        for weight, value in zip(self._weights, tf.nest.flatten(self._empty), strict=True):
            a = weight.host()
            is_complex = value.dtype.is_complex
            found.append(a.view(value.dtype.as_numpy_dtype)[..., 0] if is_complex else a)
        return found

    def check_loaded(self) -> None:
        """Raises if the values that were loaded into the weights are no windows.

        Whether the factors belong to their points is seen at first use, when the hyperparameters
        have been loaded too: those of another kernel may be loaded later.
        """
        self.read().check_loaded()
        self._is_checked = False

    def check_factors(self) -> None:
        """Checks the factors that were loaded, once; those that can be are recomputed if wrong.

        Raises:
            ValueError: They are not those of their points, and cannot be recomputed.
        """
        if self._is_checked:
            return
        with tf.init_scope():
            # What is stale is recomputed before use: it belongs to earlier hyperparameters.
            policy, is_current = self.recursion.policy, not is_stale(self._layer)
            if is_current and not policy.check_loaded(self.recursion, self.read()):
                invalidate(self._layer)
        self._is_checked = True

    def current(self) -> Window:
        """The windows at the present hyperparameters."""
        self.check_factors()
        refresh(self._layer)
        return self.read()

    def write(self, window: Window) -> None:
        """Assigns windows to the weights; an error, and no change, if a factor has failed."""
        sound = tf.reduce_all(has_positive_diagonal(window.chol))
        check = tf.debugging.Assert(sound, ["the window is not positive definite any more"])
        # Eagerly, an assertion that holds returns None.
        with tf.control_dependencies([] if check is None else [check]):
            values = [tf.identity(_as_weight(value)) for value in tf.nest.flatten(window)]
        for weight, value in zip(self._weights, values, strict=True):
            weight.assign(value)

    def refactorize(self) -> None:
        """Recomputes the factors at the present hyperparameters."""
        self.write(self.recursion.refactorized(self.read()))

    def clear(self) -> None:
        """Empties the windows."""
        self.write(self._empty)
        invalidate(self._layer)

    def snapshot(self) -> list[np.ndarray]:
        """The present values of the weights, for `restore`."""
        return [weight.numpy() for weight in self._weights]

    def restore(self, values: list[np.ndarray]) -> None:
        """Assigns the values of a `snapshot`; the hyperparameters may have changed since."""
        for weight, value in zip(self._weights, values, strict=True):
            weight.assign(value)
        invalidate(self._layer)

    @contextlib.contextmanager
    def restored_on_error(self) -> Iterator[list[np.ndarray]]:
        """Restores the windows as they are now if something fails, an interrupt included."""
        before = self.snapshot()
        try:
            yield before
        except BaseException:
            self.restore(before)
            raise

    @contextlib.contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Raises NotPositiveDefiniteError for a covariance that has failed in a graph."""
        try:
            yield
        except tf.errors.InvalidArgumentError as error:
            if "not positive definite" not in error.message:
                raise
            raise NotPositiveDefiniteError(
                "the covariance of the points is not positive definite at these hyperparameters: "
                f"{self._layer.parameters()}. The window is as it was"
            ) from error

    # --- samples ---------------------------------------------------------------------------------

    def scan(self, x: tf.Tensor, z: tf.Tensor) -> Step:
        """Takes in T samples, `[B, T, D]` and `[B, T]`; a `Step` of tensors `[B, T]`."""
        return self.scan_from(self.current(), x, z)

    def scan_from(self, window: Window, x: tf.Tensor, z: tf.Tensor) -> Step:
        """`scan` from windows, those in the weights, that are known to be current."""
        x, z = tf.convert_to_tensor(x), tf.convert_to_tensor(z)  # where functions run eagerly
        if native_scan.serves(self.recursion):
            window, found = native_scan.scan(self.recursion, window, x, z)
        else:
            window, found = self.recursion.scan(window, x, z)
        self.write(window)
        return found

    def take(self, x: np.ndarray, z: np.ndarray) -> Step:
        """`scan`, compiled: by the core if it serves, else as a graph, traced at the first call."""
        found = self._take_by_core(x, z)
        if found is not None:
            return found
        if self._concrete is None:
            # A call of a concrete function takes half the time.
            self._concrete = self.compiled_scan.get_concrete_function()
        return tf.nest.map_structure(np.asarray, self._concrete(tf.constant(x), tf.constant(z)))

    def _take_by_core(self, x: np.ndarray, z: np.ndarray) -> Step | None:
        """`take` by the compiled core; None, and nothing has changed, where that cannot."""
        self.check_factors()
        try:
            refresh(self._layer)
        except ValueError:  # of hyperparameters that are not finite; the graph says which
            return None
        with self._mutex:
            if not self._by_core.serves(current_values(self._layer)):
                return None
            found = self._by_core.take(x, z, self._arrays())
            if found is not None:
                for weight in self._weights:
                    weight.changed()
        return found

    def process(self, x: np.ndarray, z: np.ndarray, verbose: int | str) -> Step:
        """Takes in T samples, compiled, with a progress bar.

        Args:
            x: Inputs, `[B, T, D]`.
            z: Observations, `[B, T]`.
            verbose: 0, 1 or 2, or "auto" for a bar if it takes long.

        Returns:
            A `Step` of NumPy arrays, `[B, T]`.
        """
        if verbose in (0, "auto") and z.shape[-1] <= _CHUNK:
            # Nothing to restore: a chunk is written as a whole.
            return self.take(x, z)
        with self.restored_on_error():
            return self._process_chunks(x, z, verbose)

    def _process_chunks(self, x: np.ndarray, z: np.ndarray, verbose: int | str) -> Step:
        """`process`, chunk by chunk."""
        parts, bar, length = [], None, z.shape[-1]
        start = time.monotonic()
        for first in range(0, length, _CHUNK):
            chunk = slice(first, first + _CHUNK)
            parts.append(self.take(x[:, chunk], z[:, chunk]))
            done = min(first + _CHUNK, length)
            if first == 0:  # the first chunk was traced, and does not tell how long others take
                start = time.monotonic()
            left = (time.monotonic() - start) / max(done - _CHUNK, 1) * (length - done)
            if bar is None and (verbose in (1, 2) or (verbose == "auto" and left > _PATIENCE)):
                bar = keras.utils.Progbar(length, unit_name="sample")
            if bar is not None:
                bar.update(done)
        return tf.nest.map_structure(lambda *leaves: np.concatenate(leaves, axis=-1), *parts)

    def of_each_stream(self, data: Data) -> Data:
        """A block with inputs for each stream, `[B, T, D]`; inputs that they share are repeated."""
        streams, dimensions = self.x_shape
        z = tf.ensure_shape(data.z, [streams, None])
        x = tf.broadcast_to(data.x, [streams, tf.shape(z)[1], tf.shape(data.x)[2]])
        return data._replace(x=tf.ensure_shape(x, [streams, None, dimensions]), z=z)


def _as_weight(value: tf.Tensor) -> tf.Tensor:
    """A tensor as a real weight: a complex one has its parts along a new last axis."""
    return tf.bitcast(value, value.dtype.real_dtype) if value.dtype.is_complex else value


def _check_memory(recursion: WindowRecursion, streams: int, dimensions: int) -> None:
    """Raises if windows would not fit into the memory of this machine, before it ends the process.

    Args:
        recursion: The recursion.
        streams: B.
        dimensions: D.
    """
    if not hasattr(os, "sysconf"):  # Windows does not tell
        return
    size = 8 if recursion.process.kernel.variable_dtype == "float64" else 4
    rows = recursion.capacity * recursion.process.form.multiplicity
    parts = 2 if recursion.process.is_proper else 1
    needed = streams * size * (parts * rows**2 + recursion.capacity * (dimensions + 3))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ValueError(
            f"capacity {recursion.capacity} of {streams} streams over {dimensions} dimensions "
            f"needs {needed / 1e9:.3g} GB for points and factor, but this machine has "
            f"{memory / 1e9:.3g} GB of memory: take a smaller capacity"
        )
