"""What one observation of streams may be, in `KalmanFilter.step` and in `statespace.step` alike."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import statespace

MODEL = statespace.LinearGaussian([[0.9 + 0j]], [[1.0]], [[1.0]], [[0.5]], B=[[1.0]])
_MADE = {}


def online(model, streams=None):
    """A filter of a model at its start; tests share it, since to trace a step takes long."""
    if (model, streams) not in _MADE:
        _MADE[model, streams] = cgp.KalmanFilter(model)
    kf = _MADE[model, streams]
    kf.reset()
    return kf


def steps(model, streams=None):
    """Both roads from the start of a model, as functions of an observation."""
    yield online(model, streams).step
    yield lambda z, **kwargs: statespace.step(model, None, z, **kwargs)[1]


def test_are_masked_inputs_refused():
    masked = np.ma.array([5.0 + 0j], mask=[True])
    for step in steps(MODEL):
        with pytest.raises(ValueError, match="inputs has masked elements"):
            step(1j, inputs=masked)
        step(1j, inputs=np.ma.array([5.0 + 0j]))


REFUSED = {
    "components": (
        [1j, 2j], {}, ValueError,
        r"z must be a number, (\[\.\.\., 1\]|\[1\] or \[B, 1\]), got shape \(2,\): .*z\)?\[..., N"),
    "nothing": (np.zeros((0, 1)) + 0j, {}, ValueError, r"z must be .*, got shape \(0, 1\)$"),
    "missing": (
        [[1j], [2j]], {"missing": [True, False]}, ValueError,
        r"against z of shape \(2, 1\), got \(2,\): missing\[..., None\]$"),
    "inputs": (
        1j, {"inputs": [1.0, 2.0]}, ValueError,
        r"inputs must be a number, .*, got shape \(2,\): .*inputs\)?\[..., None\], of 2 streams"),
    "inputs of others": (
        [[1j], [2j]], {"inputs": np.ones((3, 1))}, ValueError, "batch ax.*[(][23],.*[(][23],"),
    "no inputs": (1j, {"inputs": None}, ValueError, "has known inputs, by B or .*: give"),
    "inputs that are none": (1j, {"inputs": [None]}, TypeError, "inputs must be numbers"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_do_errors_name_what_was_given(case):
    z, kwargs, error, words = REFUSED[case]
    for step in steps(MODEL, streams=len(z) if case in ("missing", "inputs of others") else None):
        with pytest.raises(error, match=words):
            step(z, **({"inputs": [1.0]} | kwargs))


def test_is_a_vector_wanted_where_two_are_observed():
    model = statespace.LinearGaussian([[0.9 + 0j]], [[1.0]], np.ones((2, 1)), np.eye(2))
    for step in steps(model):
        for z in (1j, [1j], np.zeros((3, 3)) + 0j):
            shape = str(np.shape(z)).replace("(", r"\(").replace(")", r"\)")
            with pytest.raises(ValueError, match=rf"z must be \[.*2\], got shape {shape}$"):
                step(z)


@pytest.mark.parametrize("inputs", [2.0, [2.0], np.float64(2.0), tf.constant(2.0, tf.float64)])
@pytest.mark.parametrize("z", [1j, [1j], np.complex64(1j), tf.constant([1j], tf.complex128)])
def test_may_an_observation_and_an_input_be_numbers(z, inputs):
    state, step = statespace.step(MODEL, None, z, inputs=inputs)
    assert step.innovation.shape == (1,)
    whole = statespace.filter(MODEL, np.array([1j, np.nan]), inputs=[2.0, 0.0])
    np.testing.assert_allclose(state.mean, whole.predicted_means[1], rtol=1e-14)
    kf = online(MODEL)
    kf.step(z, inputs=inputs)
    np.testing.assert_allclose(kf.state.mean, state.mean, rtol=1e-14)


def test_has_a_number_of_python_no_precision_in_a_step():
    single = statespace.LinearGaussian(*np.complex64([[[0.9]], [[1.0]], [[1.0]], [[0.5]]]))
    for step in steps(single):
        for z in (0.1j, [0.1j]):
            assert step(z).innovation.dtype == np.complex64
        for z in (np.complex128(0.1j), [np.complex128(0.1j)]):
            with pytest.raises(TypeError, match="z is complex128, but the model is complex64"):
                step(z)


def test_is_arrived_an_array_of_bool():
    z = np.zeros((2, 1)) + 0j
    for arrived, error in (
        ([True, None], TypeError),
        ([1, 0], TypeError),
        ([[True], []], ValueError),
    ):
        with pytest.raises(error, match="arrived must be"):
            statespace.step(MODEL, None, z, inputs=[1.0], arrived=arrived)
    _, step = statespace.step(MODEL, None, z, inputs=1.0, arrived=tf.constant([True, False]))
    np.testing.assert_array_equal(np.isnan(step.innovation), [[False], [True]])


@pytest.mark.long
def test_are_missing_and_numbers_the_same_in_a_graph():
    @tf.function
    def step(z, inputs):
        return statespace.step(MODEL, None, z, missing=[False], inputs=inputs)[0].mean

    found = step(tf.constant([1j], tf.complex128), tf.constant(2.0, tf.float64))
    expected = statespace.step(MODEL, None, 1j, inputs=2.0)[0].mean
    np.testing.assert_allclose(found, expected, rtol=1e-14)
