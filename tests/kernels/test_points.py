"""Inputs that a dtype does not tell apart, and what is no array of real numbers, are refused."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import RBF, Matern32, Rotation
from cgp.kernels.points import RecentInputs, as_points

SECONDS = 1_600_000_000 + np.arange(12)
NANOSECONDS = 1_700_000_000_000_000_001 + 50 * np.arange(12)


@pytest.mark.parametrize("kind", [np.int32, np.uint32, np.int64, np.uint64, np.float64, "tensor"])
def test_seconds_since_1970_are_refused_in_single_precision(kind):
    x = tf.constant(SECONDS, tf.int32) if kind == "tensor" else SECONDS.astype(kind)
    z = np.exp(0.3j * np.arange(12)).astype(np.complex64)
    message = "x loses its steps of 1 in float32, which rounds it by up to 11: subtract an origin"
    with pytest.raises(ValueError, match=message):
        as_points(x, "float32")
    with pytest.raises(ValueError, match=message):
        cgp.ExactGP(RBF(1.0, 3.0, dtype="float32"), 0.01).condition(x, z)
    # both remedies give the truth
    shifted = cgp.ExactGP(RBF(1.0, 3.0, dtype="float32"), 0.01)
    shifted.condition(x - x[0], z)
    double = cgp.ExactGP(RBF(1.0, 3.0), 0.01)
    double.condition(x, z.astype(complex))
    expected = double.predict(SECONDS[5:7] + 0.5)["mean"]
    np.testing.assert_allclose(shifted.predict([5.5, 6.5])["mean"], expected, atol=1e-4)


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_nanoseconds_since_1970_are_refused_in_double_precision(kind):
    x = NANOSECONDS.astype(kind)
    with pytest.raises(
        ValueError,
        match=r"loses its steps of 50 in float64, .* up to 1.1e\+02: .* x - x\[0\]$",
    ):
        as_points(x, "float64")
    np.testing.assert_array_equal(as_points(x - x[0], "float64")[:, 0], 50.0 * np.arange(12))


@pytest.mark.parametrize(
    ("x", "dtype"),
    [
        (np.arange(5, dtype=np.int32), "float32"),
        (np.array([-7, 3, 2**24], np.int32), "float32"),
        (np.array([0, 1, 2**24 + 2], np.int32), "float32"),
        (2**30 + 128 * np.arange(5, dtype=np.int32), "float32"),  # exact
        (1_700_000_000_000_000_000 + 1_000_000_000 * np.arange(5), "float64"),
        (np.array([-(2**62), 2**62], np.int64), "float64"),
        (np.array([0, 2**64 - 1], np.uint64), "float64"),
        (NANOSECONDS[:1], "float64"),
        (np.int8([1, 2]), "float32"),
        (np.float16([1, 2]), "float32"),
    ],
)
def test_integers_that_a_dtype_tells_apart_are_taken(x, dtype):
    np.testing.assert_array_equal(as_points(x, dtype)[:, 0], x.astype(dtype))


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.arange(3, dtype=np.longdouble), TypeError, r"x1 must be of double precision at most"),
        (np.arange(3, dtype=np.clongdouble), TypeError, "x1 must be real, got c"),
        ([[1.0, 2.0], [3.0]], ValueError, "x1 must be an array.*got a sequence that is none"),
        (tf.ragged.constant([[1.0, 2.0], [3.0]]), TypeError, "x1 must be a dense array, got a Rag"),
        (np.array([1.0, None]), TypeError, r"must be real.* objects such as \[None\]: leave"),
        (
            ["a", "b"],
            TypeError,
            "x1 must be real numbers, got text such as",
        ),
        (np.array(["2020-01-01"], "M8"), TypeError, "x1 must be real numbers, got datetime64"),
        (np.array([True, False]), TypeError, "x1 must be real numbers, got bool"),
        (tf.constant([True, False]), TypeError, "x1 must be real numbers, got bool"),
        (tf.constant(["a"]), TypeError, "x1 must be real numbers, got string"),
        ([0.0, 1e300], ValueError, r"x1 is too large, 1e\+300: at most 3.4e\+153 in modulus"),
        ([0.0, -1e300], ValueError, r"x1 is too large, 1e\+300.*Give x1 another unit"),
        ([0.0, np.inf], ValueError, "x1 must be finite"),
    ],
)
def test_inputs_that_are_no_real_numbers_are_refused_by_name(x, error, message):
    with pytest.raises(error, match=message):
        RBF().covariance(x)


def test_what_overflows_in_single_precision_is_called_too_large():
    for x in ([1e30], np.array([10**18, 5 * 10**18])):
        with pytest.raises(ValueError, match=r"too large, .*at most 4.6e\+18.*overflow in float32"):
            RBF(dtype="float32").covariance(x)


@pytest.mark.parametrize("process", [cgp.ExactGP, cgp.StateSpaceGP], ids=lambda p: p.__name__)
def test_a_rotation_says_where_x_is_too_large_for_its_phase(process):
    x, z = np.array([0.0, 1.0, 1e17]), np.ones(3, complex)
    with pytest.raises(
        ValueError,
        match=r"x is too large for Rotation.*: at 1e\+17, float64 does not tell one",
    ):
        process(Matern32(1.0, 1.0) * Rotation(1.0), 0.1).condition(x, z)
    process(Matern32(1.0, 1.0) * Rotation(1e-4), 0.1).condition(x, z)
    with pytest.raises(ValueError, match=r"x is too large, 1e\+300"):
        process(Matern32(1.0, 1.0) * Rotation(1.0), 0.1).condition([0.0, 1e300], z[:2])


def test_a_phase_is_resolved_wherever_the_points_are():
    x = 2.0**40 + np.arange(4)
    np.testing.assert_allclose(
        Rotation(0.25).covariance(x)[0], [1.0, -1.0j, -1.0, 1.0j], atol=1e-12
    )
    with pytest.raises(ValueError, match="does not tell one turn from the next"):
        Rotation(1.0, dtype="float32").covariance(np.float32([0.0, 1e8]))
    assert Rotation().covariance([]).shape == (0, 0)


# One sample at a time


def taken(xs, dtype="float32"):
    """How many samples are taken in before the first that is refused."""
    recent = RecentInputs()
    for i, x in enumerate(xs):
        try:
            recent.check(np.asarray(x), dtype)
        except ValueError as error:
            assert "x loses its steps" in str(error)  # noqa: PT017
            return i
    return len(xs)


def test_a_stream_is_judged_by_its_last_steps():
    rng = np.random.default_rng(0)
    assert taken(SECONDS) == 1
    assert taken(SECONDS.astype(np.uint32)) == 1
    assert taken(1.6e9 + np.arange(4.0)) == 1
    assert taken(NANOSECONDS, "float64") == 1
    assert taken([0.0, *SECONDS]) == 2
    assert taken([-3e9, 0.0, *SECONDS]) == 4  # two long steps hide one sample
    assert taken([*np.arange(8.0), 1.6e9 + 50]) == 8  # a long step itself loses digits
    assert taken([*np.arange(8.0), 1.6e9, 8.0, 9.0]) == 11  # but not if its number is exact
    assert taken([1.6e9 + 50, *np.arange(8.0)]) == 9
    assert taken(np.arange(0.0, 1e6, 0.37)[::999]) == 2706
    assert taken(0.1 * np.arange(3000)) == 3000
    assert taken(0.1 * np.arange(2_999_000, 3_000_000)) < 9
    # Arrivals at random come close to each other now and then: that is no loss of precision.
    assert taken(1000.0 + np.cumsum(rng.exponential(size=20_000))) == 20_000
    assert taken(np.full(5, 0.1)) == 5
    assert taken([float("1.6e9")] * 5) == 5


def test_streams_with_inputs_of_their_own_are_judged_each_by_itself():
    offsets = 1e-6 * np.arange(4.0)[:, None, None]
    assert taken([i + offsets for i in range(50)]) == 50
    assert taken([np.array([[i], [1.6e9 + i]]) for i in range(5)]) == 1
    assert taken([np.array([0.1]), np.array([[0.2], [0.3]]), np.array([0.4])]) == 3


def test_of_three_points_two_that_become_one_are_refused():
    with pytest.raises(ValueError, match="x loses its steps of 1 in float32"):
        as_points([0.0, 1.6e9, 1.6e9 + 1], "float32")


@pytest.mark.parametrize("shape", [(-1,), (-1, 1), (1, -1, 1)])
def test_a_block_is_judged_by_the_steps_before_it(shape):
    recent = RecentInputs()
    for first in (0.0, 2.0, 12.0):  # more than are held
        recent.check_block((first + np.arange(20.0)).reshape(shape), "float32")
    for _ in range(2):
        with pytest.raises(ValueError, match="x loses its steps of 1 in float32"):
            recent.check_block(np.array([1.6e9 + 50]).reshape(shape), "float32")
    recent.clear()
    recent.check_block(np.array([1.6e9 + 50]).reshape(shape), "float32")


@pytest.mark.parametrize("kind", ["recursive", "state space"])
def test_a_step_in_single_precision_refuses_what_data_would_be_refused(kind):
    kernel = Matern32(1.0, 3.0, dtype="float32")
    if kind == "recursive":
        gp = cgp.RecursiveGP(kernel, 0.01, capacity=8)
    else:
        gp = cgp.StateSpaceGP(kernel, 0.01)
    gp.step(1.6e9, np.complex64(1.0))
    for x in (1.6e9 + 1, np.int32(1_600_000_001), [1.6e9 + 1]):
        with pytest.raises(
            ValueError, match=r"x loses its steps of 1 in float32.*subtract an orig"
        ):
            gp.step(x, np.complex64(0.9))
    for x, message in ((1e300, "too large"), ([1.0, None], "objects"), ([[1.0], []], "sequence")):
        with pytest.raises((TypeError, ValueError), match=f"x .*{message}"):
            gp.step(x, np.complex64(0.9))
    with pytest.raises(ValueError, match="x loses its steps of 1 in float32"):
        gp.process([1.6e9 + 1], np.ones(1, np.complex64))
    if kind == "recursive":
        assert gp.size == 1
        gp.step(1.6e9 + 256, np.complex64(1.0))
    gp.reset()
    gp.step(1.6e9 + 1, np.complex64(1.0))  # of another stream
