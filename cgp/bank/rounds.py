"""Samples taken round by round: the first of each key, then the second of each, and so on.

The states of the keys of a round go through one vectorised step, so many at a time. A graph of that
width is traced once, and fewer samples are filled up to it.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.distributions.marginals import Step
from cgp.online.cell import Cell, Compiled, RefusedSample, Sample, advance

_WIDTH = 256  # states that go through a step together, if they are small
_ELEMENTS = 2**22  # of their arrays


def turns(slots: np.ndarray) -> np.ndarray:
    """The number of earlier samples of the same key, for each sample, `[B]`."""
    order = np.argsort(slots, kind="stable")
    of_key = slots[order]
    begins = np.flatnonzero(np.append(True, of_key[1:] != of_key[:-1])[: len(of_key)])
    counts = np.diff(np.append(begins, len(of_key)))
    turn = np.empty(len(slots), np.int64)
    turn[order] = np.arange(len(slots)) - np.repeat(begins, counts)
    return turn


def rounds(slots: np.ndarray) -> Iterator[np.ndarray]:
    """The numbers of samples of different keys, each key in order.

    Samples of a round are in the order of their slots, where their states lie side by side.
    """
    turn = turns(slots)
    ends = np.cumsum(np.bincount(turn))
    yield from np.split(np.lexsort((slots, turn)), ends[:-1])


def _blocks(a: np.ndarray, width: int) -> list[np.ndarray]:
    """An array in blocks of at most `width` elements."""
    return np.split(a, range(width, len(a), width))


def _as_slice(slots: np.ndarray) -> np.ndarray | slice:
    """Ascending slots as a slice where they have no gaps: arrays indexed by it are not copied."""
    start, stop = int(slots[0]), int(slots[-1]) + 1
    return slice(start, stop) if stop - start == len(slots) else slots


class Rounds:
    """Steps of the states of many keys, a round at a time.

    Args:
        cell: The cell of the states.
        rows: The states of keys as stored, `[S, ...]`, for their sizes.
    """

    def __init__(self, cell: Cell, rows: list[np.ndarray]):
        self._cell = cell
        self._compiled: Compiled | None = None
        self._values: bytes | None = None  # of the weights that it belongs to
        largest = max(math.prod(a.shape[1:]) for a in rows)
        self.width = max(1, min(_WIDTH, _ELEMENTS // max(1, largest)))
        self.graphs: dict[tuple, Any] = {}

    def __call__(
        self,
        rows: list[np.ndarray],
        slots: np.ndarray,
        samples: Sample,
        values: bytes,
        likelihood: Any = None,
    ) -> Step:
        """Takes samples, and changes the states.

        Args:
            rows: The states of all keys as stored, `[S, ...]`.
            slots: The slot of each sample, `[B]`.
            samples: The samples, `[B, ...]`.
            values: The present values of the weights of the cell.
            likelihood: The likelihood of each of them, or None.

        Raises:
            RefusedSample: A sample whose step fails.
        """

        def step_of(state: list[np.ndarray], sample: Sample) -> tuple[list[np.ndarray], Step]:
            return self._step(state, sample, values, likelihood)

        if not len(slots):
            specs = self._graph_of(rows, samples).structured_outputs[-1]
            return specs.map(lambda a: np.zeros((0, *a.shape[1:]), a.dtype.as_numpy_dtype))
        results: Any = None
        for round_samples in rounds(slots):
            for block, at in enumerate(_blocks(round_samples, self.width)):
                index = _as_slice(slots[at])
                states = [a[index] for a in rows]
                try:
                    next_states, step = step_of(states, samples.map(lambda a: a[at]))  # noqa: B023
                except ValueError as error:
                    remaining = np.sort(round_samples[block * self.width :])
                    raise self._refused(step_of, rows, slots, samples, remaining, error) from error
                for a, changed in zip(rows, next_states, strict=True):
                    if not np.may_share_memory(a, changed):  # else changed in place, as a view
                        a[index] = changed
                if results is None:
                    results = step.map(lambda a: np.empty((len(slots), *a.shape[1:]), a.dtype))
                for to, a in zip(tf.nest.flatten(results), tf.nest.flatten(step), strict=True):
                    to[at] = a
        return results

    def _refused(
        self,
        step_of: Callable[[list[np.ndarray], Sample], Any],
        rows: list[np.ndarray],
        slots: np.ndarray,
        samples: Sample,
        remaining: np.ndarray,
        error: ValueError,
    ) -> Exception:
        """The error of a round whose step fails; it names the first sample that fails by itself."""

        def error_of(at: np.ndarray) -> ValueError | None:
            try:
                step_of([a[slots[at]] for a in rows], samples.map(lambda a: a[at]))
            except ValueError as refused:
                return refused
            return None

        for at in _blocks(remaining, self.width):
            if error_of(at) is None:
                continue
            for i in at:
                refused = error_of(np.array([i]))
                if refused is not None:
                    return RefusedSample(i, str(refused), type(refused))
        return error

    def _step(
        self, state: list[np.ndarray], sample: Sample, values: bytes, likelihood: Any
    ) -> tuple[list[np.ndarray], Step]:
        """The states after a sample of each, and a `Step` of NumPy arrays.

        Raises:
            ValueError: One of them fails.
        """
        self._cell.check_against(state, sample)
        if likelihood is None:
            return self._taken(state, sample, values)
        after: list[np.ndarray] = []

        def take(sample: Sample) -> Step:
            arrays, step = self._taken(state, sample, values)
            after.extend(arrays)
            return step

        before = self._cell.from_stored([tf.constant(a) for a in state])
        step = self._cell.robust_step(before, sample, likelihood, take)
        return after, step

    def _taken(
        self, state: list[np.ndarray], sample: Sample, values: bytes
    ) -> tuple[list[np.ndarray], Step]:
        if values != self._values:
            is_for_rounds = self._cell.streams_axis == 0
            self._compiled = self._cell.compiled(None) if is_for_rounds else None
            self._values = values
        if self._compiled is not None and self._compiled.serves(state, sample, values):
            step = self._compiled(state, sample)  # in place; unchanged where it fails
            if step is None:
                raise self._cell.refusal()
            return state, step
        return self._traced(state, sample)

    def _traced(self, state: list[np.ndarray], sample: Sample) -> tuple[list[np.ndarray], Step]:
        count = len(sample.z)
        # Samples are repeated until a round is full; their states are not kept.
        at = np.resize(np.arange(count), self.width)
        state, sample = [a[at] for a in state], sample.map(lambda a: a[at])
        arrays = [*state, *(a for a in sample if a is not None)]
        try:
            *after, sound, step = self._graph_of(state, sample)(*map(tf.constant, arrays))
        except tf.errors.InvalidArgumentError as error:
            raise self._cell.refusal() from error
        if not bool(sound):
            raise self._cell.refusal()
        return (
            [np.asarray(a)[:count] for a in after],
            tf.nest.map_structure(lambda a: np.asarray(a)[:count], step),
        )

    def _graph_of(self, state: list[np.ndarray], sample: Sample) -> Any:
        """The graph of a round of samples that have these fields, traced once."""
        fields = {name: a for name, a in sample._asdict().items() if a is not None}
        names, cell, stored = tuple(fields), self._cell, len(state)

        def step(*tensors: tf.Tensor) -> tuple:
            before = cell.from_stored(tensors[:stored])
            sample = Sample(**dict(zip(names, tensors[stored:], strict=True)))
            after, result = advance(cell, before, sample)
            return (*cell.as_stored(after), cell.is_sound(after, result), result)

        if names not in self.graphs:
            arrays = [*state, *fields.values()]
            signature = [tf.TensorSpec([self.width, *a.shape[1:]], a.dtype) for a in arrays]
            graph = tf.function(
                step, input_signature=signature, autograph=False, jit_compile=cell.jit_compile
            )
            self.graphs[names] = graph.get_concrete_function()
        return self.graphs[names]
