"""Where a stream begins: at the initial state of the matrices that the first sample meets."""

import copy
import pickle

import keras
import numpy as np
import pytest

import cgp
from cgp import statespace
from tests.layers.models import normals

Z = 3.0 * normals(np.random.default_rng(0), 60, 1)


def learner(streams=None):
    """A filter whose stationary start moves with Q, and which has a stream."""
    model = statespace.LinearGaussian([[0.9 + 0j]], [[1.0]], [[1.0]], [[0.5]])
    kf = cgp.KalmanFilter(model, learn=("Q",))
    kf.compile(keras.optimizers.SGD(0.01))
    kf.step(Z[0] if streams is None else np.stack([Z[0]] * streams))
    kf.reset()
    return kf


def learn(kf):
    (scale,) = kf.trainable_variables
    scale.assign(scale + 0.7)


def assert_begins_at_present(kf, z=Z[0]):
    """By hand, of one component: P = Q / (1 − |F|²)."""
    variance = kf.Q[0, 0].real / (1.0 - 0.81)
    assert variance > 10.0  # it has learned
    np.testing.assert_allclose(np.abs(kf.state.chol[..., 0, 0]) ** 2, variance, rtol=1e-12)
    step = kf.step(z)
    np.testing.assert_allclose(step.predicted.variance, variance + 0.5, rtol=1e-12)
    return step


def saved(kf, folder):
    kf.save(folder / "kf.keras")
    return cgp.load_model(folder / "kf.keras")


def with_weights(kf, folder):
    kf.save_weights(folder / "kf.weights.h5")
    other = learner()
    other.step(Z[1])
    other.load_weights(folder / "kf.weights.h5")
    return other


WAYS = {
    "itself": lambda kf, folder: kf,
    "file": saved,
    "weights": with_weights,
    "config": lambda kf, folder: cgp.KalmanFilter.from_config(kf.get_config()),
    "clone": lambda kf, folder: cgp.clone_model(kf),
    "pickle": lambda kf, folder: pickle.loads(pickle.dumps(kf)),
    "copy": lambda kf, folder: copy.deepcopy(kf),
}


@pytest.mark.parametrize("way", WAYS)
def test_does_a_stream_begin_with_what_was_learned_after_its_reset(way, tmp_path):
    kf = WAYS[way](learner(), tmp_path)
    learn(kf)
    assert_begins_at_present(kf)


@pytest.mark.parametrize("way", ["file", "weights", "pickle", "copy"])
def test_has_what_was_loaded_not_begun_either(way, tmp_path):
    kf = learner()
    learn(kf)
    other = WAYS[way](kf, tmp_path)
    assert_begins_at_present(other)
    learn(other)
    other.reset()
    assert_begins_at_present(other)


@pytest.mark.parametrize("fits", [False, pytest.param(True, marks=pytest.mark.long)])
def test_do_fit_step_and_process_agree_on_the_start(fits):
    kf, whole = learner(), learner()
    for one in (kf, whole):
        if fits:
            one.fit(Z, epochs=2, verbose=0)
        learn(one)
    first = assert_begins_at_present(kf)
    block = whole.process(Z[:3])
    np.testing.assert_allclose(block.predicted.variance[0], first.predicted.variance, rtol=1e-12)
    found = statespace.filter(kf.model, Z[:3])
    np.testing.assert_allclose(block.filtered.mean, found.filtered_means, rtol=1e-12)


def test_do_all_streams_begin_there():
    kf = learner(streams=3)
    learn(kf)
    assert kf.state.mean.shape == (3, 1)
    assert_begins_at_present(kf, Z[:3])


def test_is_a_state_that_was_set_a_beginning():
    kf = learner()
    kf.set_state([2j], [[0.5 + 0j]])
    learn(kf)
    np.testing.assert_array_equal(kf.state.mean, [2j])
    np.testing.assert_allclose(kf.step(Z[0]).predicted.variance, 0.75, rtol=1e-12)


def test_does_a_first_sample_that_fails_leave_the_stream_at_its_start():
    kf = learner()
    (scale,) = kf.trainable_variables
    before = np.array(scale)
    scale.assign(scale + 1e4)  # Q is infinite
    for call in (kf.step, kf.process):
        with pytest.raises(ValueError, match="finite"):
            call(Z[0])
    scale.assign(before)
    learn(kf)
    assert_begins_at_present(kf)


def test_is_a_diffuse_start_checked_whenever_a_stream_begins():
    model = statespace.LinearGaussian([[1.0]], [[1.0]], [[1.0]], [[1.0]], [0.0], "diffuse")
    kf = cgp.KalmanFilter(model)
    kf.step(1.0)
    kf.step(1e9)
    kf.reset()
    with pytest.raises(ValueError, match="diffuse"):
        kf.step(1e9)


def test_is_a_state_that_is_damaged_not_loaded():
    kf = learner()
    kf.step(Z[0])
    before = kf.state
    for mean, chol in ((np.nan, 1.0), (1.0, np.nan), (1.0, np.inf)):
        store = {"0": np.full((1, 1, 2), mean), "1": np.full((1, 1, 1, 2), chol)}
        with pytest.raises(ValueError, match="state of the streams must be finite"):
            kf.load_own_variables(store)
    np.testing.assert_array_equal(kf.state.mean, before.mean)
