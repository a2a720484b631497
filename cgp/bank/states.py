"""The states of the keys of a bank: arrays, of which each key has a row."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.bank.checks import checked_each
from cgp.bank.keys import ABSENT, Keys, as_objects
from cgp.bank.rounds import Rounds
from cgp.bank.slots import Plan, Slots
from cgp.distributions.marginals import Step
from cgp.online.cell import Cell, RefusedSample, Sample, Walk
from cgp.online.structure import in_declared_order
from cgp.training.post_updates import PresentValues, snapshot


class States:
    """Keys, the arrays of their states, and the hyperparameters that these belong to.

    Args:
        cell: The cell.
        estimator: The estimator of the cell.
        capacity: The most keys; None for any number.
    """

    def __init__(self, cell: Cell, estimator: object, capacity: int | None):
        self.cell, self._unsized, self.slots = cell, cell, Slots(capacity)
        self._estimator = estimator
        self.rows: list[np.ndarray] = []  # until the first samples have shown their sizes
        self._cell_of_rows: Cell | None = None  # which has shown their sizes
        self._walk: Walk | None = None
        self._rounds: Rounds | None = None
        self._present_values = PresentValues(cell.weights)
        self._layer_weights: bytes | None = None  # whose values the states belong to
        self.belongs = ""  # text that tells these values from others, in another process too
        self.renew()

    def renew(self) -> None:
        """Brings states to the present hyperparameters.

        Raises:
            ValueError: They cannot be renewed; nothing has been changed.
        """
        layer_weights = self._present_values.read()
        if layer_weights == self._layer_weights:
            return
        weights = in_declared_order(self.cell.weights, self._estimator)
        digest = hashlib.sha256(snapshot(weights)).hexdigest()[:32]
        slots = self.slots.in_order()
        if len(slots) and digest != self.belongs:
            width = self.rounds.width
            renewed = [
                self.cell.as_stored(self.cell.renewed(self.state_at(block)))
                for block in np.split(slots, range(width, len(slots), width))
            ]
            for a, blocks in zip(self.rows, zip(*renewed, strict=True), strict=True):
                a[slots] = np.concatenate([np.asarray(block) for block in blocks])
        self.belongs, self._layer_weights = digest, layer_weights

    def forget_sizes(self) -> None:
        """Lets a bank without keys take samples and states of other sizes than before."""
        if not len(self.slots):
            self.cell = self._unsized

    def make_room(self) -> None:
        """Makes the arrays as long as there are slots."""
        if self.cell is not self._cell_of_rows:  # of other sizes, or the first: no row counts
            blank = self.cell.as_stored(self.cell.blank_state(1))
            self.rows = [np.zeros((0, *a.shape[1:]), a.dtype.as_numpy_dtype) for a in blank]
            self._walk, self._rounds = self.cell.compiled_walk(), None
            self._cell_of_rows = self.cell
        if len(self.rows[0]) < self.slots.room:
            for i, a in enumerate(self.rows):
                self.rows[i] = np.zeros((self.slots.room, *a.shape[1:]), a.dtype)
                self.rows[i][: len(a)] = a

    def slots_of(self, keys: Keys) -> np.ndarray:
        """The slots of keys.

        Raises:
            KeyError: A key that is not there.
        """
        slots = self.slots.find(keys)
        if np.any(slots == ABSENT):
            key = as_objects(keys)[int(np.argmax(slots == ABSENT))]
            raise KeyError(f"there is no key {key!r}: `key in bank` says whether one is there")
        return slots

    def at(self, slots: np.ndarray) -> list[np.ndarray]:
        """Copies of the states in these slots, as stored."""
        return [a[slots] for a in self.rows]

    def state_at(self, slots: np.ndarray) -> Any:
        """The states in these slots, tensors."""
        return self.cell.from_stored([tf.constant(a) for a in self.at(slots)])

    @property
    def rounds(self) -> Rounds:
        """The steps of several states at a time."""
        if self._rounds is None:
            self._rounds = Rounds(self.cell, self.rows)
        return self._rounds

    def take(self, plan: Plan, samples: Sample, likelihood: Any) -> Step:
        """Takes the samples of a plan; `commit` it afterwards.

        Raises:
            RefusedSample: One of them cannot be taken. No state has changed.
        """
        self.make_room()
        touched = np.sort(plan.slots)
        touched = touched[np.append(True, touched[1:] != touched[:-1])[: len(touched)]]
        before = self.at(touched)
        try:
            if len(plan.new_slots):
                self._begin(plan, samples)
            assert self._layer_weights is not None  # states are renewed before samples are taken
            walk = self._walk
            if likelihood is None and walk is not None and walk.serves(self._layer_weights):
                return walk(self.rows, plan.slots, samples)
            return self.rounds(self.rows, plan.slots, samples, self._layer_weights, likelihood)
        except BaseException:
            for a, kept in zip(self.rows, before, strict=True):
                a[touched] = kept
            raise

    def _begin(self, plan: Plan, samples: Sample) -> None:
        """Sets the states of new keys, by the first sample of each."""
        first = samples.map(lambda a: a[plan.first])
        try:
            checked_each(self.cell.check_first, first)
        except RefusedSample as error:
            raise RefusedSample(plan.first[error.index], str(error), error.kind) from error
        state = self.cell.as_stored(self.cell.initial_arrays(len(plan.first), first))
        for a, initial in zip(self.rows, state, strict=True):
            a[plan.new_slots] = initial

    def commit(self, plan: Plan, state: list[np.ndarray] | None = None) -> list:
        """Sets states, if they are given, and adds and drops the keys of a plan.

        Returns:
            The keys that are dropped to make room.
        """
        for a, changed in zip(self.rows, state or [], strict=state is not None):
            a[plan.slots] = changed
        evicted = as_objects(self.slots.keys_at(plan.evicted))
        self.slots.commit(plan)
        return evicted

    def named(self, slots: np.ndarray) -> dict[str, np.ndarray]:
        """Copies of the states in these slots by name; none before the first samples."""
        return dict(zip(self.cell.stored_names(), self.at(slots), strict=bool(self.rows)))

    def blank_for(self, rows: Mapping[str, np.ndarray]) -> dict[str, tf.Tensor]:
        """A blank state by name, of the sizes of stored arrays of a file."""
        self.cell = self._unsized.sized_for_state(rows)
        blank = self.cell.as_stored(self.cell.blank_state(1))
        return dict(zip(self.cell.stored_names(), blank, strict=True))

    def set(self, keys: Keys, state: Any) -> list:
        """Sets states that a user has given; returns the keys that are dropped to make room.

        Raises:
            TypeError, ValueError: As for `Bank.set_state`.
        """
        self.forget_sizes()
        state, count = self.cell.checked_state(state)
        if count not in (None, len(keys)):
            raise ValueError(
                f"a state must be one for all, or one for each of {len(keys)} keys, got {count}"
            )
        if not len(self.slots):
            self.cell = self._unsized.sized_for_state(state._asdict())
        self.renew()
        if count is None:
            state = tf.nest.map_structure(lambda a: np.asarray(a)[None], state)
        like = self.cell.blank_state(1)
        state = tf.nest.map_structure(
            lambda a, b: np.broadcast_to(a, (len(keys) if count else 1, *b.shape[1:])), state, like
        )
        stored = self.cell.as_stored(self.cell.completed(state))
        plan = self.slots.plan(keys)
        if len(np.unique(plan.slots)) < len(keys):
            raise ValueError("a key was given twice: a state is set once for each key")
        self.make_room()
        return self.commit(plan, [np.asarray(a) for a in stored])

    def restore(self, keys: Keys, rows: Mapping[str, np.ndarray], belongs: str) -> None:
        """Takes the states of a file.

        Args:
            keys: Their keys.
            rows: The stored arrays by name, `[K, ...]`.
            belongs: The text that tells the hyperparameters that they belong to.
        """
        blank = self.blank_for(rows)
        stored = [
            rows[name] if name in rows else np.zeros((len(keys), *a.shape[1:]), a.numpy().dtype)
            for name, a in blank.items()
        ]
        if len(keys):
            state = self.cell.from_stored([tf.constant(a) for a in stored])
            self.cell.checked_state(tf.nest.map_structure(np.asarray, state))
        plan = self.slots.plan(keys)
        self.make_room()
        self.commit(plan, stored)
        self.belongs, self._layer_weights = belongs, None
        self.renew()
