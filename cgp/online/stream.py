"""The state of streams in variables, and how samples are taken into it."""

import contextlib
import functools
import operator
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions.marginals import Step
from cgp.online.cell import Cell, Compiled, Sample
from cgp.online.past import Past, PastStep
from cgp.online.traced import TracedStep
from cgp.training import confirm, invalidate, refresh, register_post_update
from cgp.training.keras_private import add_variable, untrack_variable
from cgp.training.post_updates import (
    HostVariable,
    PresentValues,
    check_variables,
    current_values,
    hosts_of,
    is_stale,
    set_values_of_states,
    unregister_post_update,
    values_of_states,
)

_PATIENCE = 3.0  # seconds that a block may still take without a progress bar


class _Preview(NamedTuple):
    """A compiled step for a copy of the state."""

    compiled: Compiled | None
    layer_weights: bytes
    """The values of the weights that it belongs to."""
    arrays: list[np.ndarray]


class Stream:
    """B streams of a cell, or one without a batch axis, whose state is in variables.

    Streams that have not begun have the blank state of the cell in the variables, in files too.

    Args:
        cell: The cell.
        streams: B, or None for one stream without a batch axis.
        layer: The layer to whose weights the variables are added, with a post update that renews
            the state when hyperparameters have changed; None for variables of no layer.
        horizon: How many steps before the latest one are kept, for samples that arrive late.
    """

    def __init__(
        self,
        cell: Cell,
        streams: int | None,
        layer: keras.layers.Layer | None = None,
        horizon: int = 0,
    ):
        self.cell, self.streams, self._layer = cell, streams, layer
        self.past = Past(horizon) if horizon else None
        """The latest steps; None without a horizon."""
        self.is_new = True
        """Whether no sample has been taken yet, and no state set."""
        self.mutex = threading.RLock()
        """Held while the state is read and changed, also by calls that do both in turn."""
        self._hosts: list[Any] = []
        self._arrays: list[np.ndarray] = []
        self._by_stream: list[np.ndarray] = []
        self._weights = cell.weights
        self._present_values = PresentValues(self._weights)
        self._layer_weights = b""  # of the weights that the compiled function belongs to
        self._compiled = None if self._weights else cell.compiled(streams)
        self._preview: _Preview | None = None
        self._checks = type(cell).check_against is not Cell.check_against  # a call takes time
        self._traced: dict[tuple, TracedStep] = {}
        self._is_checked = True
        if layer is not None:
            check_variables(self._weights)  # before variables are added
        with tf.init_scope():
            blank = cell.blank_state(streams or 1)
            stored = cell.as_stored(blank)
            self._dtypes, self._shapes = [a.dtype for a in stored], [a.shape[1:] for a in stored]
            values = [a.numpy() for a in map(self._as_variable, stored)]
        kinds = [dtype.is_floating or dtype.is_complex for dtype in self._dtypes]
        if True not in kinds:
            raise TypeError(
                f"a state needs an array of floating-point numbers, which are NaN before it has "
                f"begun, got {[dtype.name for dtype in self._dtypes]}"
            )
        self.variables = []
        for name, a in zip(cell.stored_names(), values, strict=True):
            name = f"{cell.variable_prefix}_{name}"
            make = functools.partial(HostVariable, a.shape, a.dtype.name, name)
            variable = make() if layer is None else add_variable(layer, make)
            variable.assign(a)
            self.variables.append(variable)
        self._first_float = self.variables[kinds.index(True)]
        self._blank = blank
        if layer is not None and self._weights:
            register_post_update(layer, self._weights, self.renew)
            if cell.blank_is_current:
                with tf.init_scope():
                    confirm(layer)

    def detach(self) -> None:
        """Takes the variables, and the post update, out of the layer that they were added to."""
        if self._layer is not None:
            for variable in self.variables:
                untrack_variable(self._layer, variable)
            if self._weights:
                unregister_post_update(self._layer, self.renew)

    def check_number(self, streams: int | None, name: str) -> None:
        """Raises a ValueError for data of another number of streams."""
        if streams == self.streams:
            return
        expected, got = (
            "no batch axis" if count is None else f"a batch axis of {count}"
            for count in (self.streams, streams)
        )
        of_layer = f" of this {type(self._layer).__name__}" if self._layer is not None else ""
        raise ValueError(
            f"{name} must have {expected}, as its first data had, but has {got}: the number of "
            f"streams{of_layer} stays"
        )

    # --- the state in variables ------------------------------------------------------------------

    def _as_variable(self, a: tf.Tensor) -> tf.Tensor:
        """A stored array in the form of a variable: real, complex ones with a last axis of two."""
        if self.cell.streams_axis == -1:
            a = tf.experimental.numpy.moveaxis(a, 0, -1)
        # Not a bitcast, which XLA lacks for complex numbers.
        return tf.stack([tf.math.real(a), tf.math.imag(a)], -1) if a.dtype.is_complex else a

    def read(self) -> Any:
        """The state in the variables, `[B, ...]`."""
        arrays = []
        eager = tf.executing_eagerly()
        for variable, dtype in zip(self.variables, self._dtypes, strict=True):
            a = tf.constant(variable.numpy()) if eager else tf.convert_to_tensor(variable)
            a = tf.complex(a[..., 0], a[..., 1]) if dtype.is_complex else a
            if self.cell.streams_axis == -1:
                a = tf.experimental.numpy.moveaxis(a, -1, 0)
            arrays.append(a)
        return self.cell.from_stored(arrays)

    def write(self, state: Any) -> None:
        """Assigns a state, `[B, ...]`, or without that axis for all streams."""
        count = self.streams or 1
        stored = self.cell.as_stored(state)
        for variable, a, shape in zip(self.variables, stored, self._shapes, strict=True):
            a = tf.broadcast_to(a, [count, *shape])
            variable.assign(self._as_variable(a))

    def arrays(self) -> list[np.ndarray]:
        """The stored arrays, which share the memory of the variables."""
        hosts = hosts_of(self.variables)
        if not self._hosts or not all(map(operator.is_, hosts, self._hosts)):
            self._hosts, self._arrays = hosts, []
            for a, dtype in zip(hosts, self._dtypes, strict=True):
                self._arrays.append(a.view(dtype.as_numpy_dtype)[..., 0] if dtype.is_complex else a)
            axis = self.cell.streams_axis
            self._by_stream = [np.moveaxis(a, axis, 0) for a in self._arrays]
        return self._arrays

    def arrays_by_stream(self) -> list[np.ndarray]:
        """`arrays` with the axis of streams first."""
        self.arrays()
        return self._by_stream

    def check(self, sample: Sample) -> None:
        """Raises a ValueError for a sample or a block that does not fit the present state."""
        self.cell.check_against(self.arrays_by_stream(), sample)

    def has_begun(self) -> bool:
        """Whether there is a state, of a sample or set; otherwise it is the initial one."""
        return not np.isnan(self._first_float.host()).any()

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
        if sample is None:
            return self.cell.initial_state(self.streams or 1)
        return self.cell.initial_arrays(self.streams or 1, sample)

    def refresh(self) -> None:
        """Brings the state, and the compiled function, to the present hyperparameters."""
        if not self._weights:
            return
        if self._layer is not None:
            self.check_restored()
        if not tf.executing_eagerly():  # a graph has no use for the compiled function
            if self._layer is not None:
                refresh(self._layer)
            return
        layer_weights = (
            self._present_values.read() if self._layer is None else self._values_of_layer()
        )
        if layer_weights != self._layer_weights:
            if self._layer is None and self._layer_weights and self.has_begun():
                self.renew()  # first: where it fails, nothing has changed
            self._compiled, self._layer_weights = self.cell.compiled(self.streams), layer_weights

    def _values_of_layer(self) -> bytes:
        """The values that the state of the layer belongs to, which is renewed where it is stale.

        Where that fails, it stays as it was.
        """
        layer_weights = current_values(self._layer)
        if layer_weights is not None:
            return layer_weights
        stale_values = values_of_states(self._layer)
        try:
            refresh(self._layer)
        except BaseException:
            # `renew` writes once all is computed: the state belongs to what it did before.
            set_values_of_states(self._layer, stale_values)
            raise
        return b"".join(a.tobytes() for a in values_of_states(self._layer))

    def begin(self, sample: Sample, is_block: bool = False) -> None:
        """Assigns the initial state, by the first sample of the streams, or of a block."""
        if self.streams is None:
            sample = sample.map(lambda a: np.asarray(a)[None])
        if is_block:
            sample = sample.map(lambda a: a[:, 0])
        initial = self.cell.as_stored(self.cell.initial_arrays(self.streams or 1, sample))
        for a, initial_values in zip(self.arrays_by_stream(), initial, strict=True):
            np.copyto(a, initial_values)  # which refuses complex values for real ones
        self._arrays_changed()

    def _arrays_changed(self) -> None:
        """Tells the variables that `arrays` have changed in place."""
        for variable in self.variables:
            variable.changed()

    def _forget_past(self) -> None:
        """Forgets the latest steps, as the state is not the one after them."""
        if self.past is not None:
            self.past.steps = []

    def set(self, state: Any) -> None:
        """Assigns a state at the present hyperparameters, `[B, ...]`."""
        with self.mutex:
            self._forget_past()
            self.write(state)
            self.is_new = False
            if self._layer is not None and self._weights:
                confirm(self._layer)

    def reset(self) -> None:
        """Makes the streams begin again with the next sample."""
        with self.mutex:
            self._forget_past()
            self.write(self._blank)
            if self._layer is not None and self._weights:
                invalidate(self._layer)

    def renew(self) -> None:
        """Brings the state to the present hyperparameters: the post-gradient update of a layer."""
        self._forget_past()
        self.write(self.cell.renewed(self.read()))

    # --- files and errors ------------------------------------------------------------------------

    def snapshot(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The state, and the hyperparameters that it belongs to, for `restore`."""
        values = [] if self._layer is None else values_of_states(self._layer)
        return [variable.numpy() for variable in self.variables], values

    def restore(self, snapshot: tuple[list[np.ndarray], list[np.ndarray]]) -> None:
        """Assigns the state of a `snapshot`; the hyperparameters may have changed since."""
        arrays, values = snapshot
        with self.mutex:
            self._forget_past()
            for variable, a in zip(self.variables, arrays, strict=True):
                variable.assign(a)
            if self._layer is not None:
                set_values_of_states(self._layer, values)

    @contextlib.contextmanager
    def restored_on_error(self) -> Iterator[Any]:
        """Restores the state as it is now if something fails, an interrupt included."""
        before = self.snapshot()
        steps = self.latest_steps.copy()
        try:
            yield before
        except BaseException:
            self.restore(before)
            if self.past is not None:
                self.past.steps = steps
            raise

    def check_loaded(self) -> None:
        """Raises a ValueError if what was loaded into the variables is no state."""
        self.cell.check_stored(self.arrays_by_stream())
        self._forget_past()
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
            ValueError: The new state would not be sound; the state is unchanged.
        """
        if self.past is None:
            return self._taken(sample, is_block=False)
        with self.mutex:
            self.refresh()
            return self._recorded(self.past, sample, advances=True)

    @property
    def latest_steps(self) -> list[PastStep]:
        """The steps that are kept, from the earliest on; none without a horizon."""
        return [] if self.past is None else self.past.steps

    def _recorded(self, past: Past, sample: Sample, advances: bool) -> Step:
        """Takes a sample, and keeps the step among the latest ones."""
        state = [a.copy() for a in self.arrays()]
        step = self._taken(sample, is_block=False)
        past.append(PastStep(sample, state, advances))
        return step

    def take_again(self, number: int, samples: list[tuple[Sample, bool]]) -> Step:
        """Goes back to the state before one of the latest steps, and takes samples from there on.

        Args:
            number: The number of this step in `past.steps`, which are forgotten from it on.
            samples: The samples, and whether each leads to a later time.

        Returns:
            The step of the first of them.

        Raises:
            ValueError: A new state would not be sound; all is then as it was.
        """
        past, steps = self.past or Past(0), self.latest_steps
        with self.mutex:
            present = [a.copy() for a in self.arrays()]
            past.steps = steps[:number]
            self._put(steps[number].state)
            try:
                results = [self._recorded(past, *sample) for sample in samples]
            except BaseException:
                past.steps = steps
                self._put(present)
                raise
            return results[0]

    def _put(self, arrays: list[np.ndarray]) -> None:
        """Copies a state, as stored, into the variables."""
        for a, stored in zip(self.arrays(), arrays, strict=True):
            np.copyto(a, stored)
        self._arrays_changed()

    def forecast_of(self, sample: Sample) -> Step:
        """The step of a sample, after which the state is as it was before."""
        with self.mutex:
            step = self.step_of_copy(sample)  # where it has not been taken, the error is that below
            if step is not None:
                return step
            state, is_new = [a.copy() for a in self.arrays()], self.is_new
            try:
                return self._taken(sample, is_block=False)
            finally:
                self._put(state)
                self.is_new = is_new

    def step_of_copy(self, sample: Sample) -> Step | None:
        """`forecast_of` by a copy of the state; None where the core does not take the sample."""
        with self.mutex:
            self.refresh()
            self.check(sample)
            arrays = self.arrays()
            if self._preview is None or self._preview.layer_weights != self._layer_weights:
                compiled = self.cell.compiled(self.streams)  # which keeps to the arrays of the copy
                self._preview = _Preview(compiled, self._layer_weights, [a.copy() for a in arrays])
            compiled, layer_weights, copies = self._preview
            if compiled is None or not compiled.serves(arrays, sample, layer_weights):
                return None
            for a, copy in zip(arrays, copies, strict=True):
                np.copyto(copy, a)
            return compiled(copies, sample)

    def process(self, samples: Sample, verbose: int | str = 0) -> Step:
        """Takes a block of samples, chunk by chunk, with a progress bar.

        Args:
            samples: The block, as `Cell.check` returned it.
            verbose: 0, 1 or 2, or "auto" for a bar if it takes long.

        Raises:
            ValueError: A new state would not be sound; the state before the block is restored.
        """
        self.check(samples)  # else its first chunks would be taken
        if self.past is not None:
            return self._process_recorded(self.past, samples)
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

    def _process_recorded(self, past: Past, samples: Sample) -> Step:
        """Takes a block whose last samples, as many as the horizon has, are kept as steps."""
        axes = (slice(None),) * (self.streams is not None)
        length = samples.z.shape[len(axes)]
        begin = max(length - past.horizon - 1, 0)
        steps = []
        with self.restored_on_error():
            if begin:
                self._forget_past()
                block = samples.map(lambda a: a[*axes, :begin])
                steps.append(self._taken(block, is_block=True))
            for t in range(begin, length):
                step = self.step(samples.map(lambda a: a[*axes, t]))  # noqa: B023
                steps.append(step.map(lambda a: np.expand_dims(a, len(axes))))
        return tf.nest.map_structure(lambda *a: np.concatenate(a, axis=len(axes)), *steps)

    def _taken(self, sample: Sample, is_block: bool) -> Step:
        with self.mutex:  # a thread that changes hyperparameters makes another one renew the state
            step = self._take(sample, is_block)
            if step is None:  # whether streams have begun is asked only now: it takes time
                step = self._begun(sample, is_block)
            self.is_new = False
            return step

    def _begun(self, sample: Sample, is_block: bool) -> Step:
        """Takes the first sample or block of streams; the error where they have begun before."""
        has_begun = self.has_begun()
        try:
            if not has_begun:
                self.cell.check_first(sample, along=int(is_block))
                self.begin(sample, is_block)
            step = self._take(sample, is_block)
            if step is None:
                raise self.cell.refusal()
        except BaseException:
            if not has_begun:
                self.reset()
            raise
        return step

    def _take(self, sample: Sample, is_block: bool) -> Step | None:
        """Takes a sample or block; None, with the state unchanged, if the new one is not sound."""
        if self._weights:
            self.refresh()
        arrays = self.arrays() if self._checks or self._compiled is not None else []
        if self._checks:
            self.cell.check_against(self._by_stream, sample)
        if is_block and not self.cell.traces_blocks:
            return self._scan(sample) if self.has_begun() else None
        compiled = self._compiled
        if compiled is not None and compiled.serves(arrays, sample, self._layer_weights):
            step = compiled(arrays, sample)
            if step is not None:
                self._arrays_changed()
            return step
        return self._take_traced(sample, is_block)

    def _scan(self, samples: Sample) -> Step | None:
        """`_take` of a block by a cell that takes blocks eagerly."""
        state = self.read()
        if self.streams is None:
            state = tf.nest.map_structure(lambda a: a[0], state)
        after, step = self.scan(state, samples)
        if not bool(self.cell.is_sound(after, step)):
            return None
        self.write(after)
        return step

    def scan(self, state: Any, samples: Sample) -> tuple[Any, Step]:
        """The state after a block, and the moments of it, where the cell takes blocks eagerly."""
        return self.cell.scan(state, samples)

    def _take_traced(self, sample: Sample, is_block: bool) -> Step | None:
        if not self.has_begun():  # a step need not show that its state is blank
            return None
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
