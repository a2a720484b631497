"""The slots of keys, the order of their last samples, and the keys that go for lack of room."""

from typing import NamedTuple

import numpy as np

from cgp.bank.keys import ABSENT, IntegerIndex, Keys, ObjectIndex, different

_NONE = np.zeros(0, np.int64)
_LATER = np.iinfo(np.int64).max


class Plan(NamedTuple):
    """The changes that a call makes to the keys of a bank, before they are made."""

    slots: np.ndarray
    """The slot of each sample, `[B]`."""
    new: Keys
    """The keys that are new, each once."""
    new_slots: np.ndarray
    """The slots that they get."""
    first: np.ndarray
    """The first sample of each of them."""
    evicted: np.ndarray
    """The slots of keys that make room for them, the one with the oldest last sample first."""


class Slots:
    """The slots of keys, and the order in which these had their last samples.

    Args:
        capacity: The most keys; None for any number.
    """

    def __init__(self, capacity: int | None):
        self.capacity = capacity
        self._index: IntegerIndex | ObjectIndex = IntegerIndex()
        # The number of the last sample of the key in each slot, ABSENT where there is none.
        self._last = np.full(0, ABSENT)
        self._used, self._count = 0, 0

    def __len__(self) -> int:
        return len(self._index)

    @property
    def room(self) -> int:
        """The number of slots, those in use and others."""
        return len(self._last)

    def find(self, keys: Keys) -> np.ndarray:
        """The slots of keys, `ABSENT` of those that are not held."""
        return self._index.find(keys)

    def in_order(self) -> np.ndarray:
        """The slots in use, in the order of the last samples of their keys, the oldest first."""
        used = np.flatnonzero(self._last[: self._used] != ABSENT)
        return used[np.argsort(self._last[used])]

    def keys_at(self, slots: np.ndarray) -> Keys:
        """The keys that have these slots."""
        return self._index.keys_at(slots) if len(slots) else slots

    def plan(self, keys: Keys) -> Plan:
        """The slots that samples of these keys go to; there is room for them afterwards.

        Raises:
            ValueError: More different keys than the capacity.
        """
        slots = self.find(keys)
        if isinstance(keys, list) and isinstance(self._index, IntegerIndex) and ABSENT in slots:
            self._take_objects()
            slots = self.find(keys)
        absent = np.flatnonzero(slots == ABSENT)
        if not len(absent):
            return Plan(slots, _NONE, _NONE, _NONE, _NONE)
        coming = keys[absent] if isinstance(keys, np.ndarray) else [keys[i] for i in absent]
        new, first, new_of_absent = different(coming)
        evicted = self._stalest(len(self) + len(new) - (self.capacity or _LATER), slots, len(new))
        holes = np.flatnonzero(self._last[: self._used] == ABSENT)
        new_slots = np.concatenate([evicted, holes])[: len(new)]
        fresh = len(new) - len(new_slots)
        if self._used + fresh > self.room:
            room = max(self._used + fresh, min(self.room * 3 // 2, self.capacity or _LATER))
            free_slots = np.full(room - self.room, ABSENT)
            self._last = np.concatenate([self._last, free_slots])
        new_slots = np.concatenate([new_slots, self._used + np.arange(fresh)])
        slots[absent] = new_slots[new_of_absent]
        return Plan(slots, new, new_slots, absent[first], evicted)

    def _take_objects(self) -> None:
        """Goes on with keys of any kind."""
        slots = self.in_order()
        index = ObjectIndex()
        index.add(self._index.keys_at(slots), slots)
        self._index = index

    def _stalest(self, count: int, slots: np.ndarray, new: int) -> np.ndarray:
        """The slots of keys that are to go, none of them among the slots of the samples."""
        if count <= 0:
            return _NONE
        last = self._last[: self._used].copy()
        present = slots[slots != ABSENT]
        last[present] = last[last == ABSENT] = _LATER
        if count > np.count_nonzero(last != _LATER):
            raise ValueError(
                f"capacity is {self.capacity}, but {len(np.unique(present)) + new} different keys "
                "were given together"
            )
        stalest = np.argpartition(last, count - 1)[:count]
        return stalest[np.argsort(last[stalest])]

    def commit(self, plan: Plan) -> None:
        """Does what a plan says, after its samples have been taken in."""
        if len(plan.evicted):
            self.remove(plan.evicted)
        if len(plan.new_slots):
            self._index.add(plan.new, plan.new_slots)
            self._used = max(self._used, int(plan.new_slots.max()) + 1)
        # Of several samples of one key the last assignment counts.
        self._last[plan.slots] = self._count + np.arange(len(plan.slots))
        self._count += len(plan.slots)

    def remove(self, slots: np.ndarray) -> None:
        """Removes the keys that have these slots."""
        self._index.remove(slots)
        self._last[slots] = ABSENT
