"""The state of streams in variables, and how samples are taken into it."""

import contextlib
import functools
import operator
import threading
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions.marginals import Step
from cgp.online.cell import Cell, Sample
from cgp.online.traced import TracedStep
from cgp.training import confirm, invalidate, refresh, register_post_update
from cgp.training.host_variable import HostVariable
from cgp.training.keras_private import add_variable
from cgp.training.post_updates import current_values, is_stale, snapshot

_PATIENCE = 3.0  # seconds that a block may still take without a progress bar


class Stream:
    """B streams of a cell, or one without a batch axis, whose state is in variables.

    Streams that have not begun have the blank state of the cell in the variables, in files too.

    Args:
        cell: The cell.
        streams: B, or None for one stream without a batch axis.
        layer: The layer to whose weights the variables are added, with a post update that renews
            the state when hyperparameters have changed; None for variables of no layer.
    """

    def __init__(self, cell: Cell, streams: int | None, layer: keras.layers.Layer | None = None):
        self.cell, self.streams, self._layer = cell, streams, layer
        self._mutex = threading.Lock()
        self._hosts: list[Any] = []
        self._arrays: list[np.ndarray] = []
        self._weights = cell.weights
        self._values: bytes | None = None  # of the weights that the compiled function belongs to
        self._compiled = None if self._weights else cell.compiled(streams)
        self._traced: dict[tuple, TracedStep] = {}
        self._is_checked = True
        with tf.init_scope():
            blank = cell.blank_state(streams or 1)
            stored = cell.as_stored(blank)
            self._dtypes = [a.dtype for a in stored]
            values = [a.numpy() for a in map(self._as_variable, stored)]
        self.variables = []
        for name, a in zip(cell.stored_names(), values, strict=True):
            name = f"{cell.variable_prefix}_{name}"
            make = functools.partial(HostVariable, a.shape, a.dtype.name, name)
            variable = make() if layer is None else add_variable(layer, make)
            variable.assign(a)
            self.variables.append(variable)
        kinds = zip(self.variables, self._dtypes, strict=True)
        self._first_float = next(v for v, dtype in kinds if not dtype.is_integer)
        self._blank = blank
        if layer is not None and self._weights:
            register_post_update(layer, self._weights, self.renew)
            if cell.blank_is_current:
                with tf.init_scope():
                    confirm(layer)

    def check_number(self, streams: int | None, name: str) -> None:
        """Raises a ValueError for data of another number of streams."""
        if streams == self.streams:
            return
        expected, got = (
            "no batch axis" if count is None else f"a batch axis of {count}"
            for count in (self.streams, streams)
        )
        of_layer = f" of a {type(self._layer).__name__}" if self._layer is not None else ""
        raise ValueError(
            f"{name} must have {expected}, as its first data had, but has {got}: the number of "
            f"streams{of_layer} stays"
        )

    # --- the state in variables ------------------------------------------------------------------

    def _as_variable(self, a: tf.Tensor) -> tf.Tensor:
        """A stored array as that of a variable: real, complex ones with a last axis of two."""
        if self.cell.streams_axis == -1:
            a = tf.experimental.numpy.moveaxis(a, 0, -1)
        return tf.bitcast(a, a.dtype.real_dtype) if a.dtype.is_complex else a

    def read(self) -> Any:
        """The state in the variables, `[B, ...]`."""
        arrays = []
        eager = tf.executing_eagerly()
        for variable, dtype in zip(self.variables, self._dtypes, strict=True):
            a = tf.constant(variable.numpy()) if eager else tf.convert_to_tensor(variable)
            a = tf.bitcast(a, dtype) if dtype.is_complex else a
            if self.cell.streams_axis == -1:
                a = tf.experimental.numpy.moveaxis(a, -1, 0)
            arrays.append(a)
        return self.cell.from_stored(arrays)

    def write(self, state: Any) -> None:
        """Assigns a state, `[B, ...]`, or without that axis for all streams."""
        count = self.streams or 1
        stored = self.cell.as_stored(state)
        blank = self.cell.as_stored(self._blank)
        for variable, a, like in zip(self.variables, stored, blank, strict=True):
            a = tf.broadcast_to(a, [count, *like.shape[1:]])
            variable.assign(self._as_variable(a))

    def arrays(self) -> list[np.ndarray]:
        """The stored arrays, which share the memory of the variables."""
        hosts = [variable.host() for variable in self.variables]
        if not self._hosts or not all(map(operator.is_, hosts, self._hosts)):
            self._hosts, self._arrays = hosts, []
            for a, dtype in zip(hosts, self._dtypes, strict=True):
                self._arrays.append(a.view(dtype.as_numpy_dtype)[..., 0] if dtype.is_complex else a)
        return self._arrays

    def has_begun(self) -> bool:
        """Whether there is a state, of a sample or set; otherwise it is the initial one."""
        first = next(
            v for v, d in zip(self.variables, self._dtypes, strict=True) if not d.is_integer
        )
        return not np.isnan(first.host()).any()

    def state(self) -> Any:
        """The state at the present hyperparameters: tensors, without batch axis of one stream."""
        state = self.current_state()
        return tf.nest.map_structure(lambda a: a[0], state) if self.streams is None else state

    def current_state(self, sample: Sample | None = None) -> Any:
        """The state at the present hyperparameters, `[B, ...]`; before samples the initial one.

        Args:
            sample: The next sample, as `Cell.check` returned it, where a state may begin with it.
        """
        self.refresh()
        if self.has_begun():
            return self.read()
        if sample is not None and self.streams is None:
            sample = sample.map(lambda a: np.asarray(a)[None])
        return self.cell.initial_state(self.streams or 1, sample)

    def refresh(self) -> None:
        """Brings the state, and the compiled function, to the present hyperparameters."""
        if not self._weights:
            return
        if self._layer is not None:
            self.check_restored()
            refresh(self._layer)
        if not tf.executing_eagerly():  # a graph has no use for the compiled function
            return
        values = snapshot(self._weights) if self._layer is None else current_values(self._layer)
        if values != self._values:
            self._compiled = self.cell.compiled(self.streams)
            if self._layer is None and self._values is not None and self.has_begun():
                self.renew()
            self._values = values

    def begin(self, sample: Sample, is_block: bool = False) -> None:
        """Assigns the initial state, by the first sample of the streams, or of a block."""
        if self.streams is None:
            sample = sample.map(lambda a: np.asarray(a)[None])
        if is_block:
            sample = sample.map(lambda a: a[:, 0])
        self.write(self.cell.initial_state(self.streams or 1, sample))

    def reset(self) -> None:
        """Makes the streams begin again with the next sample."""
        self.write(self._blank)
        if self._layer is not None and self._weights:
            invalidate(self._layer)

    def renew(self) -> None:
        """Brings the state to the present hyperparameters: the post-gradient update of a layer."""
        self.write(self.cell.renewed(self.read()))

    # --- files and errors ------------------------------------------------------------------------

    def snapshot(self) -> list[np.ndarray]:
        """The values of the variables, for `restore`."""
        return [variable.numpy() for variable in self.variables]

    def restore(self, values: list[np.ndarray]) -> None:
        """Assigns the values of a `snapshot`; the hyperparameters may have changed since."""
        for variable, a in zip(self.variables, values, strict=True):
            variable.assign(a)
        if self._layer is not None and self._weights:
            invalidate(self._layer)

    @contextlib.contextmanager
    def restored_on_error(self) -> Iterator[list[np.ndarray]]:
        """Restores the state as it is now if something fails, an interrupt included."""
        before = self.snapshot()
        try:
            yield before
        except BaseException:
            self.restore(before)
            raise

    def check_loaded(self) -> None:
        """Raises a ValueError if what was loaded into the variables is no state."""
        self.cell.check_stored(self.arrays())
        self._is_checked = False

    def check_restored(self) -> None:
        """Checks a state that was loaded against the hyperparameters, once these are there too."""
        if self._is_checked or self._layer is None:
            return
        with tf.init_scope():
            # A stale state is renewed before use: it belongs to earlier hyperparameters.
            if not is_stale(self._layer) and not self.cell.belongs(self.read()):
                invalidate(self._layer)
        self._is_checked = True

    # --- samples ---------------------------------------------------------------------------------

    def step(self, sample: Sample) -> Step:
        """Takes one sample of each stream, as `Cell.check` returned it.

        Raises:
            ValueError: The new state would not be sound; it is as it was.
        """
        return self._taken(sample, is_block=False)

    def process(self, samples: Sample, verbose: int | str = 0) -> Step:
        """Takes a block of samples, chunk by chunk, with a progress bar.

        Args:
            samples: The block, as `Cell.check` returned it.
            verbose: 0, 1 or 2, or "auto" for a bar if it takes long.

        Raises:
            ValueError: A state would not be sound; it is as it was before the block.
        """
        self.cell.check_against(self.arrays(), samples)  # of its chunks the first would be taken
        chunks = self.cell.chunks(samples)
        if len(chunks) == 1 and verbose in (0, "auto"):
            return self._taken(samples, is_block=True)
        length, bar, steps = chunks[-1].stop, None, []
        axes = (slice(None),) * (self.streams is not None)
        start = time.monotonic()
        with self.restored_on_error():
            for chunk in chunks:
                steps.append(self._taken(samples.map(lambda a: a[*axes, chunk]), is_block=True))  # noqa: B023
                if chunk.start == 0:  # which was traced, and does not tell how long others take
                    start = time.monotonic()
                done = chunk.stop
                elapsed = time.monotonic() - start
                remaining = elapsed / max(done - chunks[0].stop, 1) * (length - done)
                if verbose in (1, 2) or (verbose == "auto" and remaining > _PATIENCE):
                    bar = bar or keras.utils.Progbar(length, unit_name="sample")
                if bar is not None:
                    bar.update(done)
        return tf.nest.map_structure(lambda *a: np.concatenate(a, axis=len(axes)), *steps)

    def _taken(self, sample: Sample, is_block: bool) -> Step:
        step = self._take(sample, is_block)
        if step is None:  # whether streams have begun is asked only now: it takes time
            if self.has_begun():
                raise self.cell.refusal()
            try:
                self.begin(sample, is_block)
                step = self._take(sample, is_block)
                if step is None:
                    raise self.cell.refusal()
            except BaseException:
                self.reset()
                raise
        return step

    def _take(self, sample: Sample, is_block: bool) -> Step | None:
        """Takes a sample or block; None, and the state is as it was, if it would not be sound."""
        self.refresh()
        self.cell.check_against(self.arrays(), sample)
        if is_block and not self.cell.traces_blocks:
            if not self.has_begun():
                return None
            state = self.read()
            if self.streams is None:
                state = tf.nest.map_structure(lambda a: a[0], state)
            after, step = self.scan(state, sample)
            if not bool(self.cell.is_sound(after, step)):
                return None
            self.write(after)
            return step
        if self._compiled is not None:
            with self._mutex:
                arrays = self.arrays()
                if self._compiled.serves(arrays, sample, self._values or b""):
                    result = self._compiled(arrays, sample)
                    if result is not None:
                        for variable in self.variables:
                            variable.changed()
                    return result
        return self._take_traced(sample, is_block)

    def scan(self, state: Any, samples: Sample) -> tuple[Any, Step]:
        """The state after a block, and the moments of it, where the cell takes blocks eagerly."""
        return self.cell.scan(state, samples)

    def _take_traced(self, sample: Sample, is_block: bool) -> Step | None:
        if self.streams is None:
            sample = sample.map(lambda a: np.asarray(a)[None])
        is_block_of_one = not (is_block or self.cell.traces_steps)
        if is_block_of_one:
            sample = sample.map(lambda a: a[:, None])
        is_block = is_block or is_block_of_one
        key = (is_block, *(a is None for a in sample))
        if key not in self._traced:
            self._traced[key] = TracedStep(self.cell, self.read, self.write, sample, is_block)
        step = self._traced[key](sample)
        if step is None:
            return None
        if is_block_of_one:
            step = step.map(lambda a: a[:, 0])
        return step.map(lambda a: a[0]) if self.streams is None else step
