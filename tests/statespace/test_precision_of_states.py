"""A state is of the precision of its model, as the observations are."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import statespace

MODEL = statespace.LinearGaussian(*np.complex64([[[0.9]], [[1.0]], [[1.0]], [[0.5]]]))
Z = np.complex64([1j])


def roads():
    kf = cgp.KalmanFilter(MODEL, dtype="float32")
    kf.step(Z)
    return kf, (kf.set_state, lambda *state: statespace.step(MODEL, state, Z))


@pytest.mark.parametrize(
    ("mean", "chol", "words"),
    [
        (np.array([1j]), [[1.0]], 'mean of the state is complex128, .* round it, mean.astype."co'),
        ([np.complex128(1j)], [[1.0]], "mean of the state is complex128"),
        (tf.constant([1j]), [[1.0]], "mean of the state is complex128"),
        ([1j], np.eye(1), 'factor of the state is float64, .* round it, chol.astype."complex64'),
        (np.array([1e60 + 0j]), [[1.0]], "mean of the state is complex128"),
    ],
)
def test_is_a_state_of_more_precision_refused(mean, chol, words):
    kf, ways = roads()
    before = kf.state
    for way in ways:
        with pytest.raises(TypeError, match=words):
            way(mean, chol)
    np.testing.assert_array_equal(kf.state.mean, before.mean)


def test_is_a_number_of_python_rounded_and_refused_beyond_the_precision():
    kf, ways = roads()
    for way in ways:
        with pytest.raises(
            ValueError, match=r"mean of the .* finite, in complex64, got \[1\.e\+60"
        ):
            way([1e60 + 0j], [[1.0]])
        way([0.1j], [[0.1]])
        way(np.float32([0.1]), np.float32([[0.1]]))
    kf.set_state([0.1j], [[0.1]])
    np.testing.assert_array_equal(kf.state.mean, np.complex64([0.1j]))


def test_is_a_state_of_less_precision_promoted():
    model = statespace.LinearGaussian([[0.9 + 0j]], [[1.0]], [[1.0]], [[0.5]])
    state, _ = statespace.step(MODEL, None, Z)
    after, _ = statespace.step(model, state, Z)
    assert after.mean.dtype == np.complex128
