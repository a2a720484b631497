"""Which keys a bank holds, and which go."""

import copy
import fractions

import numpy as np
import pandas as pd
import pytest

import cgp
from tests.bank.streams import kalman

BASE = kalman("proper")()


def bank_of(keys, capacity=None):
    bank = cgp.Bank(BASE, capacity)
    add(bank, keys)
    return bank


def add(bank, keys):
    return bank.update(keys, np.full((len(keys), 2), np.nan + 0j))


KINDS = {
    "integers": [3, -1, 2**40, 0, -7],
    "strings": ["a", "", "b" * 100, "ä", "\ud800"],
    "mixed": [3, "a", (1, "b"), b"a", 1.5],
    "large integers": [2**70, 3, 2**64, -(2**63), 0],
    "tuples": [(1, 2), (1,), (), (1, (2, "a")), (2, 1)],
}


@pytest.mark.parametrize("kind", KINDS)
def test_is_a_bank_an_ordered_dictionary_of_its_keys(kind):
    """Random calls, against a dictionary in which a key with a sample moves to the end."""
    rng, pool = np.random.default_rng(0), KINDS[kind]
    bank, model = cgp.Bank(BASE, capacity=4), {}
    for _ in range(60):
        keys = [pool[i] for i in rng.integers(0, len(pool), 3)]
        if rng.uniform() < 0.2:
            evicted = list(model)[: rng.integers(3)]
            bank.evict(evicted)
            model = {key: None for key in model if key not in evicted}
        room = 4 - len({*model, *keys})
        gone = [key for key in model if key not in keys][: max(-room, 0)]
        model = {key: None for key in model if key not in gone}
        for key in keys:
            model.pop(key, None)
            model[key] = None
        add(bank, keys)
        assert list(bank) == list(model)
        assert bank.evicted == gone
        assert len(bank) == len(model)
        assert [key in bank for key in pool] == [key in model for key in pool]


def test_are_arrays_and_lists_of_keys_the_same():
    bank = bank_of([1, 2, 3])
    for keys in (
        np.array([1, 2]),
        np.array([1, 2], np.uint8),
        [np.int64(1), 2.0],
        np.array([1, 2], object),
        (1, 2),
        {1: "a", 2: "b"}.keys(),
    ):
        add(bank, keys)
        assert len(bank) == 3
    names = bank_of(np.array(["a", "b"]))
    add(names, ["a", np.str_("b")])
    assert list(names) == ["a", "b"]
    assert type(list(names)[1]) is str


@pytest.mark.parametrize("key", [2**61 - 1, 2**62, -(2**62), -(2**63), 2**61])
def test_is_a_large_integer_equal_to_a_float(key):
    bank = bank_of([key, 5])
    others = [fractions.Fraction(key), complex(key), float(key)]
    assert [other in bank for other in others] == [other == key for other in others]
    assert bank.state([key, 5.0]).mean.shape == (2, 2)
    assert not any(k in bank for k in (1e300, np.inf, np.nan, key + 0.0j + 1j, "5", 2**64))


class Neither:
    """What is neither equal nor unequal to anything, as pandas's NA."""

    def __eq__(self, other):
        return self

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")

    def __hash__(self):
        return 2**61 - 1


MISSING = {
    "NaN": [1, float("nan")],
    "NaN of NumPy": np.array(["a", np.nan, np.nan], object),
    "None": ["a", None],
    "NaT": [pd.NaT],
    "NA": pd.array([1, None], "Int64"),
    "neither": [1, Neither()],
    "NaN in a tuple": [("a", 1), ("a", np.float32("nan"))],
    "a mask": np.ma.masked_equal([1, 2], 2),
}


@pytest.mark.parametrize("name", MISSING)
def test_are_missing_keys_refused_and_no_keys_of_a_bank(name):
    keys = MISSING[name]
    bank = bank_of([2**61 - 1])
    with pytest.raises(ValueError, match=r"keys must be known everywhere.*leave it out"):
        add(bank, keys)
    assert len(bank) == 1
    assert name == "a mask" or list(keys)[-1] not in bank


def test_is_none_within_a_tuple_a_part_as_any_other():
    assert list(bank_of([("a", None), ("a", 1)])) == [("a", None), ("a", 1)]


def test_are_tuples_of_numpy_scalars_those_of_python():
    pairs = [tuple(row) for row in np.array([[1, 2], [3, 4]])]
    keys = [*pairs, ((np.int8(5), (np.str_("a"),)), np.True_)]
    bank = bank_of(keys)
    expected = [(1, 2), (3, 4), ((5, ("a",)), True)]
    assert list(bank) == expected
    assert repr(list(bank)) == repr(expected)
    assert all(key in bank for key in [*keys, *expected])
    assert list(copy.copy(bank)) == expected
    assert list(cgp.Bank.from_bytes(bank.to_bytes(), BASE)) == expected


def test_is_a_tuple_one_key_and_a_list_several():
    bank = bank_of([(1, 2), 1, 2, "ab", range(2)])
    bank.evict((1, 2))
    assert list(bank) == [1, 2, "ab", range(2)]
    bank.evict("ab")
    for call in (bank.state, bank.evict):
        with pytest.raises(KeyError, match="1, 2"):
            call((1, 2))
    assert bank.state(range(2)).mean.shape == (2,)
    bank.evict(range(2))
    bank.evict(np.array([1]))
    bank.evict(2)
    assert len(bank) == 0
    with pytest.raises(TypeError, match="hashable"):
        bank.evict({1})


class LikeThree:
    """An object that is no number, and has the hash of one."""

    def __hash__(self):
        return 3


def test_do_integers_stay_when_other_keys_come():
    bank = bank_of(np.array([0, 1, 2, 3, -1, 2**62]))
    mean = bank.state(3).mean
    other = LikeThree()
    assert [key in bank for key in (3.0, -1.0, -2, "a", other)] == [True, True, False, False, False]
    add(bank, ["a", 1.0, -1.0, 2.0**62, other])
    assert list(bank) == [0, 2, 3, "a", 1, -1, 2**62, other]
    assert (bank.state(3).mean == mean).all()


def test_are_keys_told_apart_that_have_one_hash():
    one, two, other = LikeThree(), LikeThree(), LikeThree()
    bank = bank_of([one, "a", two, -1, -2])
    assert list(bank) == [one, "a", two, -1, -2]
    bank.set_state([one, two], (np.array([[1.0, 1.0], [2.0, 2.0]]), np.eye(2)))
    assert (bank.state(two).mean == 2.0).all()
    bank.evict([one])
    assert [key in bank for key in (one, two, other, 3)] == [False, True, False, False]
    add(bank, [other, one])
    assert list(bank) == ["a", -1, -2, two, other, one]
    assert (bank.state(two).mean == 2.0).all()
    bank.evict([two])
    assert [key in bank for key in (one, two, other)] == [True, False, True]


def test_do_those_without_a_sample_for_longest_go_first():
    rng = np.random.default_rng(0)
    bank, order = cgp.Bank(BASE, capacity=3000), rng.permutation(3000)
    for keys in np.split(order, 10):
        add(bank, keys)
    add(bank, np.arange(5000, 6200))
    assert bank.evicted == order[:1200].tolist()


def test_is_the_room_of_keys_that_went_used_again():
    bank = bank_of(["a", "b", "c", "d"])
    room = len(bank._states.rows[0])
    for i in range(20):
        bank.evict([next(iter(bank))])
        add(bank, [i])
    assert len(bank._states.rows[0]) == room


def test_does_a_capacity_take_no_memory_before_there_are_keys():
    bank = bank_of(range(3), capacity=10**12)
    assert bank._states.slots.room < 10
    bank = cgp.Bank(BASE, capacity=100)
    for first in range(0, 400, 7):
        add(bank, range(first, first + 7))
    assert bank._states.slots.room == len(bank._states.rows[0]) == len(bank) == 100


def test_does_a_key_that_is_evicted_begin_again():
    bank, z = cgp.Bank(BASE), np.ones((1, 2), complex)
    first = bank.update(["a"], z)
    second = bank.update(["a"], z)
    bank.update(["b"], z)
    bank.evict(["a"])
    assert "a" not in bank
    again = bank.update(["a"], z)
    assert (again.predicted.mean == first.predicted.mean).all()
    assert not (again.predicted.mean == second.predicted.mean).all()
    bank.reset()
    assert len(bank) == 0
    assert (bank.update(["b"], z).predicted.mean == first.predicted.mean).all()


def test_are_keys_refused_that_are_not_there():
    bank = bank_of(["a", "b"])
    for call in (
        lambda: bank.evict(["a", "c"]),
        lambda: bank.state("c"),
        lambda: bank.state(["a", "c"]),
    ):
        with pytest.raises(KeyError, match="c"):
            call()
    assert list(bank) == ["a", "b"]


def test_are_more_keys_than_the_capacity_refused():
    bank = bank_of(["a", "b"], capacity=3)
    with pytest.raises(ValueError, match="capacity is 3, but 4 different keys"):
        add(bank, ["a", "c", "d", "e", "c"])
    assert list(bank) == ["a", "b"]
    add(bank, ["c", "d", "e"])
    assert list(bank) == ["c", "d", "e"]
    assert bank.evicted == ["a", "b"]
    add(bank, ["c"])
    assert bank.evicted == []


def test_may_a_call_have_no_samples():
    for bank in (cgp.Bank(BASE), bank_of(["a"])):
        found = bank.update([], np.zeros((0, 2), complex))
        assert found.predicted.mean.shape == (0, 2)
    gp = cgp.RecursiveGP(cgp.kernels.Matern12(1.0, 1.0), 0.1, capacity=2)
    bank = cgp.Bank(gp)
    assert bank.update([], np.zeros(0, complex), []).innovation.shape == (0,)
    bank.update(["a"], [1j], np.zeros((1, 3)))
    assert bank.state("a").x.shape == (2, 3)
