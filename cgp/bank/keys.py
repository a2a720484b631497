"""Keys and their slots: the rows of their states in the arrays of a bank.

Integers of 64 bits are kept in sorted arrays, of 16 bytes a key, and found in a tenth of a
microsecond. Other keys, and integers among those, are found by their hashes in the same way, and
compared. A dictionary of a million keys would be slower, as it jumps about in memory, and take five
times as much of it.
"""

import collections
import itertools
import numbers
import operator
from collections.abc import Hashable, Iterable
from typing import Any, TypeAlias

import numpy as np

Keys: TypeAlias = np.ndarray | list[Hashable]
"""An array of int64; or Python objects, of which not all are such integers."""

ABSENT = -1
"""The slot of a key that is not held."""

_NEVER_MISSING = {int, str, bytes, bool}
_REMEDY = ": a sample without a key is of no stream, leave it out"

_PLAIN = (np.integer, np.bool_, np.character)  # NumPy's scalars for which Python has types


def as_keys(keys: Any) -> Keys:
    """Several keys, as an array of integers or as Python objects.

    Args:
        keys: An array of integers, strings or objects, or an iterable of hashable objects.

    Raises:
        TypeError: One key, a set, objects that cannot be hashed, an array of another type.
        ValueError: An array of several dimensions; keys that are missing, such as None and NaN.
    """
    if isinstance(keys, set | frozenset):
        kind = type(keys).__name__
        raise TypeError(f"keys must be a list or an array, in the order of samples, got a {kind}")
    if np.ma.is_masked(keys):
        raise ValueError(f"keys must be known everywhere, but has masked elements{_REMEDY}")
    if hasattr(keys, "__array__") and np.ndim(keys):
        keys = np.asarray(keys)
        if keys.ndim > 1:
            raise ValueError(f"keys must be [B], got shape {keys.shape}: make each row a tuple")
        if keys.dtype.kind not in "iubUSO":
            raise TypeError(f"keys must be integers, strings or objects, got {keys.dtype}")
        if keys.dtype.kind == "i" or (keys.dtype.kind == "u" and keys.max(initial=0) < 2**63):
            return keys.astype(np.int64)
        keys = keys.tolist()
    elif isinstance(keys, str | bytes | np.generic) or not isinstance(keys, Iterable):
        raise TypeError(f"keys must be a list or an array of keys, got {keys!r}")
    keys = list(keys)
    kinds, inside = set(map(type, keys)), set()
    if any(issubclass(kind, tuple) for kind in kinds):
        tuples = (key for key in keys if isinstance(key, tuple))
        inside = set(map(type, itertools.chain.from_iterable(tuples)))
    if any(issubclass(kind, _PLAIN) for kind in kinds) or any(
        issubclass(kind, (*_PLAIN, tuple)) for kind in inside
    ):
        keys = list(map(_of_python, keys))
        kinds = set(map(type, keys))
    if not (kinds | inside) - {tuple} <= _NEVER_MISSING:
        for place, key in enumerate(keys):
            if is_missing(key):
                raise ValueError(f"keys must be known everywhere, got {key} at {place}{_REMEDY}")
    if kinds <= {int}:
        try:
            return np.array(keys, np.int64)
        except OverflowError:
            return keys
    try:
        collections.deque(map(hash, keys), maxlen=0)
    except TypeError as error:
        raise TypeError(f"keys must be hashable: {error}") from None
    return keys


def _of_python(key: Any) -> Any:
    """A key with NumPy's scalars, inside tuples too, as Python's."""
    if isinstance(key, _PLAIN):
        return key.item()
    if not isinstance(key, tuple):
        return key
    parts = tuple(map(_of_python, key))
    return key if all(map(operator.is_, parts, key)) else parts


def is_missing(key: Any) -> bool:
    """Whether a key is None, or not equal to itself, as NaN; of a tuple, if a field but None is."""
    if isinstance(key, tuple):
        return any(field is not None and is_missing(field) for field in key)
    return key is None or not _equals(key, key)


def are_several(keys: Any) -> bool:
    """Whether these are several keys, not one: a list or an array cannot be a key."""
    return isinstance(keys, list) or (hasattr(keys, "__array__") and np.ndim(keys) > 0)


def as_objects(keys: Keys) -> list[Any]:
    """Keys as Python objects."""
    return keys.tolist() if isinstance(keys, np.ndarray) else keys


def different(keys: Keys) -> tuple[Keys, np.ndarray, np.ndarray]:
    """The distinct keys, the index where each comes first, and the number of each key in them."""
    if isinstance(keys, np.ndarray):
        return np.unique(keys, return_index=True, return_inverse=True)
    number: dict[Hashable, int] = {}
    which = np.array([number.setdefault(key, len(number)) for key in keys], np.int64)
    return list(number), np.unique(which, return_index=True)[1], which


def _integer(key: Hashable) -> int:
    """The integer of 64 bits that a key is equal to; any integer if it is equal to none."""
    if not isinstance(key, numbers.Number):
        # A key equal to an integer has the hash of the integer: for small ones the integer itself,
        # but −2 for −1.
        return -1 if _equals(key, -1) else hash(key)
    try:
        number = int(key.real)  # type: ignore[attr-defined]
    except (OverflowError, ValueError):  # infinite, or NaN
        return 0
    return number if -(2**63) <= number < 2**63 else 0


def _equals(key: Hashable, number: Any) -> bool:
    """Whether a key is equal to a number; a key that says neither, as `pd.NA`, is not."""
    is_equal = key == number
    return isinstance(is_equal, bool | np.bool_) and bool(is_equal)


class IntegerIndex:
    """Slots of keys that are integers of 64 bits."""

    def __init__(self) -> None:
        self._keys = self._slots = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, keys: Keys) -> np.ndarray:
        """The slots of keys, `ABSENT` of those that are not held."""
        if isinstance(keys, list):
            whole = list(map(_integer, keys))
            slots_of_whole = self.find(np.array(whole, np.int64))
            return np.where(list(map(_equals, keys, whole)), slots_of_whole, ABSENT)
        if not len(self._keys):
            return np.full(len(keys), ABSENT)
        order = np.argsort(keys)  # searches in order find what they need in the cache
        sorted_keys = keys[order]
        slots = np.empty(len(keys), np.int64)
        if np.array_equal(sorted_keys, self._keys):  # each key once: no search is needed
            slots[order] = self._slots
            return slots
        at = np.minimum(np.searchsorted(self._keys, sorted_keys), len(self._keys) - 1)
        slots[order] = np.where(self._keys[at] == sorted_keys, self._slots[at], ABSENT)
        return slots

    def add(self, keys: Keys, slots: np.ndarray) -> None:
        """Adds different keys that are not held."""
        new_keys = np.asarray(keys)
        order = np.argsort(new_keys)
        at = np.searchsorted(self._keys, new_keys[order])
        self._keys = np.insert(self._keys, at, new_keys[order])
        self._slots = np.insert(self._slots, at, slots[order])

    def remove(self, slots: np.ndarray) -> None:
        """Removes the keys that have these slots."""
        stays = ~np.isin(self._slots, slots)
        self._keys, self._slots = self._keys[stays], self._slots[stays]

    def keys_at(self, slots: np.ndarray) -> Keys:
        """The keys that have these slots."""
        by_slot = np.zeros(np.max(self._slots, initial=ABSENT) + 1, np.int64)
        by_slot[self._slots] = self._keys
        return by_slot[slots]


class ObjectIndex:
    """Slots of keys of any hashable kind; see `IntegerIndex`."""

    def __init__(self) -> None:
        self._keys: list[Hashable] = []  # by slot; None where there is no key
        self._by_hash = IntegerIndex()
        self._twins: dict[Hashable, int] = {}  # keys whose hash another key had before

    def __len__(self) -> int:
        return len(self._by_hash) + len(self._twins)

    def find(self, keys: Keys) -> np.ndarray:
        """The slots of keys, `ABSENT` of those that are not held."""
        objects = as_objects(keys)
        slots = self._by_hash.find(_hashes(objects))
        candidates = np.flatnonzero(slots != ABSENT)
        candidates = candidates[np.argsort(slots[candidates])]  # in the order of memory, mostly
        # Tuples of one, as their elements are the same if they are identical or equal.
        stored_keys = zip(map(self._keys.__getitem__, slots[candidates].tolist()))
        asked_keys = zip(map(objects.__getitem__, candidates.tolist()))
        same = np.fromiter(map(operator.eq, stored_keys, asked_keys), bool, len(candidates))
        slots[candidates[~same]] = ABSENT
        if self._twins:
            for i in np.flatnonzero(slots == ABSENT).tolist():
                slots[i] = self._twins.get(objects[i], ABSENT)
        return slots

    def add(self, keys: Keys, slots: np.ndarray) -> None:
        """Adds different keys that are not held."""
        objects, hashes = as_objects(keys), _hashes(keys)
        is_first = self._by_hash.find(hashes) == ABSENT
        is_first &= np.isin(np.arange(len(hashes)), np.unique(hashes, return_index=True)[1])
        self._by_hash.add(hashes[is_first], slots[is_first])
        for i in np.flatnonzero(~is_first).tolist():
            self._twins[objects[i]] = int(slots[i])
        self._keys += [None] * (np.max(slots, initial=ABSENT) + 1 - len(self._keys))
        for key, slot in zip(objects, slots.tolist(), strict=True):
            self._keys[slot] = key

    def remove(self, slots: np.ndarray) -> None:
        """Removes the keys that have these slots."""
        self._by_hash.remove(slots)
        for slot in slots.tolist():
            self._twins.pop(self._keys[slot], None)
            self._keys[slot] = None

    def keys_at(self, slots: np.ndarray) -> Keys:
        """The keys that have these slots."""
        return [self._keys[slot] for slot in slots.tolist()]


def _hashes(keys: Keys) -> np.ndarray:
    """The hashes of keys by Python, `[B]`."""
    return np.fromiter(map(hash, as_objects(keys)), np.int64, len(keys))
