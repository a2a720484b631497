"""The streams that a bank holds: their keys, and the arrays of their states."""

import hashlib

import numpy as np

from cgp.bank.keys import ABSENT, Keys, as_objects
from cgp.bank.slots import Plan, Slots
from cgp.bank.states import Refused, Rows, States
from cgp.distributions.marginals import Step


class Held:
    """Keys, the arrays of their states, and the hyperparameters that these belong to.

    Args:
        states: How the states of the estimator begin and take samples in.
        capacity: The most keys; None for any number.
    """

    def __init__(self, states: States, capacity: int | None):
        self._states, self.slots = states, Slots(capacity)
        self.rows: Rows = {}  # until the first samples have shown the dimensions of inputs
        self.belongs = self._present()

    def _present(self) -> str:
        """What tells the values of hyperparameters from others, also in another process."""
        return hashlib.sha256(self._states.values()).hexdigest()[:32]

    def renew(self) -> None:
        """Brings states to the present hyperparameters.

        Raises:
            ValueError: They cannot be; nothing has been changed.
        """
        present = self._present()
        if present != self.belongs:
            self._states.renew(self.rows, self.slots.in_order())
            self.belongs = present

    @property
    def dimensions(self) -> int | None:
        """Of inputs: 0 for none; None if any will do, as nothing is held yet."""
        if self._states.dimensions is None and len(self.slots):
            return self.rows["x"].shape[-1]
        return self._states.dimensions

    def make_room(self, dimensions: int) -> None:
        """Makes the arrays as long as there are slots, for inputs of D dimensions."""
        for name, (shape, dtype) in self._states.fields(dimensions).items():
            held = self.rows.get(name)
            if held is None or held.shape[1:] != shape:  # there is none that counts
                held = np.zeros((0, *shape), dtype)
            if len(held) < self.slots.room:
                grown = np.zeros((self.slots.room, *shape), dtype)
                grown[: len(held)] = held
                held = grown
            self.rows[name] = held

    def found(self, keys: Keys) -> np.ndarray:
        """The slots of keys.

        Raises:
            KeyError: One that is not there.
        """
        slots = self.slots.find(keys)
        if np.any(slots == ABSENT):
            key = as_objects(keys)[int(np.argmax(slots == ABSENT))]
            raise KeyError(f"there is no key {key!r}: `key in bank` says whether one is there")
        return slots

    def at(self, slots: np.ndarray) -> Rows:
        """Copies of the states in these slots."""
        return {name: a[slots] for name, a in self.rows.items()}

    def take(self, plan: Plan, z: np.ndarray, x: np.ndarray | None) -> Step:
        """Takes the samples of a plan in; `commit` it afterwards.

        Raises:
            Refused: One of them cannot be taken in. No state has changed.
        """
        self.make_room(0 if x is None else x.shape[-1])
        touched = np.sort(plan.slots)
        touched = touched[np.append(True, touched[1:] != touched[:-1])[: len(touched)]]
        before = self.at(touched)
        try:
            if len(plan.new_slots):
                self._begin(plan, z, x)
            return self._states.take(self.rows, plan.slots, z, x)
        except BaseException:
            for name, a in before.items():
                self.rows[name][touched] = a
            raise

    def _begin(self, plan: Plan, z: np.ndarray, x: np.ndarray | None) -> None:
        first = plan.first
        given = z[first], None if x is None else x[first]
        try:
            self._states.begin(self.rows, plan.new_slots, *given)
        except Refused as error:
            raise Refused(first[error.sample], str(error), error.kind) from error

    def commit(self, plan: Plan, rows: Rows) -> list:
        """Sets states, `[K, ...]` or one for all, and does what a plan says.

        Returns:
            The keys that are dropped to make room.
        """
        for name, a in rows.items():
            self.rows[name][plan.slots] = a
        evicted = as_objects(self.slots.keys_at(plan.evicted))
        self.slots.commit(plan)
        return evicted
