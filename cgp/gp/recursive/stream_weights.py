"""The windows of streams in the weights of a layer, and the compiled steps that advance them."""

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions import Step
from cgp.gp.data import Data
from cgp.gp.noise import COMMON_NOISE, SampleNoise
from cgp.gp.recursive import native_scan
from cgp.gp.recursive.native_window import CompiledWindow
from cgp.gp.recursive.window import Window
from cgp.gp.recursive.window_recursion import WindowRecursion
from cgp.linalg import NotPositiveDefiniteError
from cgp.linalg.arguments import has_positive_diagonal
from cgp.training import confirm, invalidate, refresh, register_post_update
from cgp.training.array_memory import check_size
from cgp.training.host_variable import HostVariable
from cgp.training.keras_private import add_variable, saved_variables
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
        _check_memory(recursion, streams, dimensions, layer.variable_dtype)
        with tf.init_scope():
            self._empty = recursion.empty(streams, dimensions, layer.variable_dtype)
            values = [_as_weight(value).numpy() for value in tf.nest.flatten(self._empty)]
        names = [*Window._fields[:-2], *getattr(self._empty.extra, "_fields", ())]
        self._noise_from = len(names)  # where the noise of points begins, in the weights
        names += ["noise_variance", "noise_group"][: len(self._empty.noise)]
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
        # Of samples with noise of their own, traced when the first of them come.
        of_noise = [tf.TensorSpec([streams, None], part.dtype) for part in self._empty.noise]
        self._scan_with_noise = tf.function(
            lambda x, z, *noise: self.scan(x, z, SampleNoise(*noise)),
            autograph=False,
            input_signature=[
                tf.TensorSpec([streams, None, dimensions], x.dtype),
                tf.TensorSpec([streams, None], z.dtype),
                *of_noise,
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

    def load(self, store: Mapping[str, Any], load: Callable[[Mapping[str, Any]], None]) -> None:
        """Loads the weights of the layer from a file.

        Args:
            store: Arrays by name, as Keras gives them.
            load: Keras's function of them.

        Raises:
            ValueError: They are not those of windows; these stay as they were.
        """
        with self.restored_on_error():
            load(self._with_noise(store))
            self._check_loaded()

    def _with_noise(self, store: Mapping[str, Any]) -> Mapping[str, Any]:
        """The weights of a file; one written before points had noise gains zeros for them."""
        names = list(store.keys())
        weights = saved_variables(self._layer)
        if len(names) != len(weights) - 1 or len(self._empty.noise) != 1:
            return store
        values = [store[str(i)] for i in range(len(names))]
        at = [v is self._weights[self._noise_from] for v in weights].index(True)
        values.insert(at, self._empty.noise[0].numpy())
        return {str(i): value for i, value in enumerate(values)}

    def _check_loaded(self) -> None:
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

    def scan(self, x: tf.Tensor, z: tf.Tensor, noise: SampleNoise = COMMON_NOISE) -> Step:
        """Takes in T samples, `[B, T, D]` and `[B, T]`; a `Step` of tensors `[B, T]`."""
        return self.scan_from(self.current(), x, z, noise)

    def scan_from(
        self, window: Window, x: tf.Tensor, z: tf.Tensor, noise: SampleNoise = COMMON_NOISE
    ) -> Step:
        """`scan` from windows, those in the weights, that are known to be current."""
        x, z = tf.convert_to_tensor(x), tf.convert_to_tensor(z)  # where functions run eagerly
        if noise.is_common and native_scan.serves(self.recursion):
            window, found = native_scan.scan(self.recursion, window, x, z)
        else:
            window, found = self.recursion.scan(window, x, z, noise)
        self.write(window)
        return found

    def take(self, x: np.ndarray, z: np.ndarray, noise: SampleNoise = COMMON_NOISE) -> Step:
        """`scan`, compiled: by the core if it serves, else as a graph, traced at the first call.

        The noise is `[V, T]`, V being 1 or B.
        """
        found = self._take_by_core(x, z, noise)
        if found is not None:
            return found
        if not noise.is_common:
            if noise.variance is None:
                noise = noise._replace(variance=np.zeros(z.shape, x.dtype))
            parts = [np.broadcast_to(a, z.shape) for a in noise if a is not None]
            values = self._scan_with_noise(*map(tf.constant, (x, z, *parts)))
            return tf.nest.map_structure(np.asarray, values)
        if self._concrete is None:
            # A call of a concrete function takes half the time.
            self._concrete = self.compiled_scan.get_concrete_function()
        return tf.nest.map_structure(np.asarray, self._concrete(tf.constant(x), tf.constant(z)))

    def _take_by_core(self, x: np.ndarray, z: np.ndarray, noise: SampleNoise) -> Step | None:
        """`take` by the compiled core; None, and nothing has changed, where that cannot."""
        own = _the_same(noise)
        if own is None:
            return None
        self.check_factors()
        try:
            refresh(self._layer)
        except ValueError:  # of hyperparameters that are not finite; the graph says which
            return None
        with self._mutex:
            if not self._by_core.serves(current_values(self._layer)):
                return None
            window, held = self._split_arrays()
            has_noise = any(own) or any(part.any() for part in held)
            if has_noise and not self.recursion.policy.is_compiled:
                return None  # a budget, whose pruned points the core does not tell
            sizes = window[0].copy() if has_noise else None
            found = self._by_core.take(x, z, window, *own)
            if found is not None:
                if sizes is not None:
                    _append_noise(held, sizes, np.sum(~np.isnan(z), axis=-1), own)
                for weight in self._weights:
                    weight.changed()
        return found

    def _split_arrays(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The arrays of the windows, and those of the noise of their points."""
        arrays = self._arrays()
        return arrays[: self._noise_from], arrays[self._noise_from :]

    def process(
        self, x: np.ndarray, z: np.ndarray, verbose: int | str, noise: SampleNoise = COMMON_NOISE
    ) -> Step:
        """Takes in T samples, compiled, with a progress bar.

        Args:
            x: Inputs, `[B, T, D]`.
            z: Observations, `[B, T]`.
            noise: Their noise, `[V, T]`, V being 1 or B.
            verbose: 0, 1 or 2, or "auto" for a bar if it takes long.

        Returns:
            A `Step` of NumPy arrays, `[B, T]`.
        """
        chunks = self._chunks(z.shape[-1], noise)
        if verbose in (0, "auto") and len(chunks) == 1:
            # Nothing to restore: a chunk is written as a whole.
            return self.take(x, z, noise)
        with self.restored_on_error():
            return self._process_chunks(x, z, verbose, noise, chunks)

    def _chunks(self, length: int, noise: SampleNoise) -> list[slice]:
        """The chunks of a block; those that the core takes are of samples with one noise."""
        starts = set(range(0, length, _CHUNK))
        parts = [part for part in noise if part is not None]
        if all(len(part) == 1 for part in parts) and self.recursion.policy.is_compiled:
            with self._mutex:
                by_core = bool(parts) and self._by_core.serves(current_values(self._layer))
            for part in parts if by_core else []:
                starts.update((np.flatnonzero(np.diff(part[0])) + 1).tolist())
        ends = [*sorted(starts), length]
        return list(map(slice, ends[:-1], ends[1:]))

    def _process_chunks(
        self,
        x: np.ndarray,
        z: np.ndarray,
        verbose: int | str,
        noise: SampleNoise,
        chunks: list[slice],
    ) -> Step:
        """`process`, chunk by chunk."""
        parts, bar, length = [], None, z.shape[-1]
        start = time.monotonic()
        for chunk in chunks:
            of_chunk = SampleNoise(*(part if part is None else part[:, chunk] for part in noise))
            parts.append(self.take(x[:, chunk], z[:, chunk], of_chunk))
            done = chunk.stop
            if chunk.start == 0:  # this one was traced, and does not tell how long others take
                start = time.monotonic()
            left = (time.monotonic() - start) / max(done - chunks[0].stop, 1) * (length - done)
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
        noise = data.noise.map(lambda a: tf.broadcast_to(a, tf.shape(z)))
        return data._replace(x=tf.ensure_shape(x, [streams, None, dimensions]), z=z, noise=noise)


def _the_same(noise: SampleNoise) -> tuple[float, int] | None:
    """The known part and the group of samples if they all have the same, else None."""
    if noise is COMMON_NOISE:
        return 0.0, 0
    found = [np.zeros(1, int) if part is None else np.asarray(part) for part in noise[:2]]
    if not all((part == part.flat[0]).all() for part in found):
        return None
    known, group = (part.flat[0] for part in found)
    return float(known), int(group)


def _append_noise(
    held: list[np.ndarray], sizes: np.ndarray, coming: np.ndarray, own: tuple[float, int]
) -> None:
    """Adds points of one noise to those held, `[B, C]`, in place; the oldest leave."""
    for part, value in zip(held, own, strict=False):
        for row, size, count in zip(part, sizes, coming, strict=True):
            points = np.concatenate([row[:size], np.full(count, value, row.dtype)])[-row.size :]
            row[: points.size] = points


def _as_weight(value: tf.Tensor) -> tf.Tensor:
    """A tensor as a real weight: a complex one has its parts along a new last axis."""
    return tf.bitcast(value, value.dtype.real_dtype) if value.dtype.is_complex else value


def _check_memory(
    recursion: WindowRecursion, streams: int, dimensions: int, real_dtype: str
) -> None:
    """Raises a ValueError for windows that are too large, before they end the process.

    Args:
        recursion: The recursion.
        streams: B.
        dimensions: D.
        real_dtype: "float64" or "float32".
    """
    rows = recursion.capacity * recursion.process.form.multiplicity
    parts = 2 if recursion.process.is_proper else 1
    check_size(
        streams * (parts * rows**2 + recursion.capacity * (dimensions + 4)),
        f"capacity {recursion.capacity} of {streams} streams over {dimensions} dimensions",
        real_dtype,
        "take a smaller capacity",
    )
