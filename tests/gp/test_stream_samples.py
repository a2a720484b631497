"""Samples of streams far from those before: what data would be refused is refused."""

import numpy as np
import pytest

import cgp
from cgp.gp.stream_samples import CheckedRange
from cgp.kernels import Matern32, RandomWalk, Rotation


def at_least_1_at_most_1000(x):
    calls.append(x)
    if np.min(x) < 1.0 or np.max(x) > 1000.0:
        raise ValueError("out of range")


calls = []


def test_is_a_stream_checked_as_often_as_its_range_doubles():
    inputs = CheckedRange(at_least_1_at_most_1000)
    del calls[:]
    for x in np.linspace(1.0, 490.0, 5000):
        inputs.admit(np.full((1, 1, 1), x))
    assert len(calls) < 40
    inputs.admit(np.full((2, 3, 1), 1000.0))
    for x in (1000.5, 0.5):
        for _ in range(2):
            with pytest.raises(ValueError, match="out of range"):
                inputs.admit(np.array([[[500.0], [x]]]))
    inputs.admit(np.full((1, 1, 1), 999.0))


def test_is_each_dimension_checked_to_its_own_ends():
    inputs = CheckedRange(lambda x: at_least_1_at_most_1000(x[..., 1]))
    for y in (1.0, 2.0, 900.0, 1000.0):
        inputs.admit(np.array([[[-1e6 * y, y]]]))
    with pytest.raises(ValueError, match="out of range"):
        inputs.admit(np.array([[[0.0, 1001.0]]]))


MAKE = {
    "recursive": lambda kernel: cgp.RecursiveGP(kernel, 0.1, capacity=4),
    "state space": lambda kernel: cgp.StateSpaceGP(kernel, 0.1),
}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_is_a_later_sample_refused_where_its_phase_is_lost(make):
    gp = make(Matern32(1.0, 3.0) * Rotation(1.0))
    for x in (0.0, 1.0):
        gp.step(x, 1j)
    before = gp.predict([1.5])["mean"]
    for take in (lambda: gp.step(1e17, 1j), lambda: gp.process([2.0, 1e17], [1j, 1j])):
        with pytest.raises(ValueError, match=r"x is too large for Rotation.*: at 1e\+17"):
            take()
    np.testing.assert_array_equal(gp.predict([1.5])["mean"], before)
    gp.step(1e6, 1j)


def test_is_a_later_sample_refused_before_the_start_of_a_walk():
    gp = MAKE["recursive"](RandomWalk(1.0, start=0.0))
    for x in (5.0, 7.0):
        gp.step(x, 1j)
    for z in (1j, np.nan):  # where it would have been predicted by NaN
        with pytest.raises(ValueError, match=r"starts at 0\.0, but x goes back to -3"):
            gp.step(-3.0, z)
    assert gp.size == 2


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_is_a_target_whose_square_overflows_refused(dtype):
    """It would be taken in, and leave a window whose next predictions are NaN."""
    complex_ = np.complex128 if dtype == "float64" else np.complex64
    largest = np.sqrt(np.finfo(dtype).max)
    z = np.array([1j, largest], complex_)
    for kind in (cgp.ExactGP, cgp.StateSpaceGP, cgp.RecursiveGP):
        gp = kind(Matern32(1.0, 1.0, dtype=dtype), 0.1)
        if kind is not cgp.RecursiveGP:
            with pytest.raises(ValueError, match=f"z is too large, .* overflow in {dtype}"):
                gp.condition(np.arange(2.0), z)
        if kind is not cgp.ExactGP:
            with pytest.raises(ValueError, match=f"z is too large, .* overflow in {dtype}"):
                gp.step(0.0, z[1])
            with pytest.raises(ValueError, match=f"z is too large, .* overflow in {dtype}"):
                gp.process(np.arange(2.0), z)
