"""The compiled cosine and sine of kernels that turn, against NumPy and against TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf

from cgp import native
from cgp.kernels import RBF, Rotation
from cgp.kernels.rotation import cosine_and_sine
from tests.native.graphs import in_own_graph

pytestmark = pytest.mark.skipif(native.core().ops is None, reason="there is no compiled core")

REALS = ["float64", "float32"]


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (9001,)], ids=str)
def test_are_they_those_of_numpy(shape, dtype):
    turns = np.random.default_rng(0).uniform(-40.0, 40.0, shape).astype(dtype)
    found = in_own_graph(cosine_and_sine)(turns)
    # Whole turns go first: what is left is exact.
    angle = 2 * np.pi * np.asarray(turns - np.rint(turns), "float64")
    for values, wanted in zip(found, (np.cos(angle), np.sin(angle)), strict=True):
        assert values.dtype == dtype
        assert values.shape == shape
        np.testing.assert_allclose(values, wanted, rtol=0, atol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", REALS)
def test_are_quarters_of_a_turn_exact_however_far(dtype):
    quarters = np.arange(-9, 10)
    cosine, sine = in_own_graph(cosine_and_sine)((0.25 * quarters).astype(dtype))
    np.testing.assert_array_equal(np.abs(cosine), quarters % 2 == 0)
    np.testing.assert_array_equal(sine, np.array([0, 1, 0, -1])[quarters % 4])
    far = np.array([2.0**49, -(2.0**50), 2.0**60, 3e38], dtype)
    cosine, sine = in_own_graph(cosine_and_sine)(far)
    np.testing.assert_array_equal(cosine, np.ones(4))
    np.testing.assert_array_equal(sine, np.zeros(4))
    if dtype == "float64":
        cosine, sine = in_own_graph(cosine_and_sine)(2.0**49 + np.array([0.125, 0.25, -0.25]))
        np.testing.assert_allclose(cosine, [np.sqrt(0.5), 0.0, 0.0], atol=1e-15)
        np.testing.assert_allclose(sine, [np.sqrt(0.5), 1.0, -1.0], atol=1e-15)


def test_has_a_zero_no_sign():
    turns = tf.constant(np.arange(-8, 9) / 4)
    for found in cosine_and_sine(turns):
        zeros = found.numpy()[found.numpy() == 0]
        assert len(zeros) >= 8
        assert not np.any(np.signbit(zeros))


@pytest.mark.parametrize("dtype", REALS)
def test_are_nan_and_infinity_nan(dtype):
    bad = np.array([np.nan, np.inf, -np.inf], dtype)
    for values in in_own_graph(cosine_and_sine)(bad):
        assert np.all(np.isnan(values))


@pytest.mark.parametrize("dtype", REALS)
def test_are_first_and_second_derivatives_those_of_tensorflow(dtype):
    rng = np.random.default_rng(1)
    turns, *weights = rng.normal(size=(4, 7)).astype(dtype)

    def derivatives(turns):
        with tf.GradientTape() as outer:
            outer.watch(turns)
            with tf.GradientTape() as tape:
                tape.watch(turns)
                cosine, sine = cosine_and_sine(turns)
                value = tf.reduce_sum(weights[0] * cosine**2 + weights[1] * sine)
            first = tape.gradient(value, turns)
            total = tf.reduce_sum(weights[2] * first)
        return first, outer.gradient(total, turns)

    found = in_own_graph(derivatives)(turns)
    wanted = tf.function(derivatives)(tf.constant(turns))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("dtype", REALS)
def test_is_a_kernel_that_turns_the_same_in_two_dimensions(dtype, without_core):
    kernel = RBF(2.0, dtype=dtype) * Rotation([0.3, -1.2], dtype=dtype)
    x = np.random.default_rng(2).normal(size=(6, 2)).astype(dtype)
    wanted = without_core(kernel.covariance, x).numpy()
    # A training step and an eager call agree to the last bit.
    np.testing.assert_array_equal(in_own_graph(kernel.covariance)(x), kernel.covariance(x))
    found = kernel.covariance(x).numpy()
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, atol=2e-6 if dtype == "float32" else 1e-14)


def test_are_graphs_of_others_without_the_op():
    def operations(f):
        graph = tf.function(f).get_concrete_function(tf.TensorSpec([None], tf.float64)).graph
        return {operation.type for operation in graph.get_operations()}

    def owned(turns):
        with native.own_graph():
            return cosine_and_sine(turns)

    assert "CgpTurn" in operations(owned)
    assert "CgpTurn" not in operations(cosine_and_sine)
