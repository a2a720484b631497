"""Models that are fitted without having been compiled."""

import keras
import numpy as np
import pytest

import cgp
from cgp.kernels import Matern32, Rotation
from cgp.training.optimizers import LBFGS
from tests.long_cases import long_except

X = np.arange(30.0)
Z = np.exp(0.4j * np.pi * X) + 0.1 * np.random.default_rng(0).normal(size=(30, 2)) @ [1, 1j]


def model(kind):
    if kind is cgp.KalmanFilter:
        state_space = cgp.statespace.LinearGaussian([[0.9 + 0j]], [[0.1]], [[1.0]], [[0.1]])
        return cgp.KalmanFilter(state_space, learn="F")
    return kind(Matern32(1.0, 5.0) * Rotation(0.19), noise_variance=0.1)


def data(kind, is_light):
    if is_light:
        return X[:8], Z[:8]
    return (Z,) if kind is cgp.KalmanFilter else (X, Z)


@pytest.fixture(autouse=True)
def few_samples_of_a_window_are_taken_in_eagerly(request):
    if request.node.callspec.params["is_light"]:
        request.getfixturevalue("eager_functions")


pytestmark = pytest.mark.filterwarnings("ignore:Even though the `tf.config")
LEARNERS = {
    cgp.ExactGP: LBFGS,
    cgp.StateSpaceGP: LBFGS,
    cgp.KalmanFilter: LBFGS,
    cgp.RecursiveGP: keras.optimizers.Adam,  # which sees block after block
}

KINDS = [
    (cgp.ExactGP, False),
    (cgp.StateSpaceGP, False),
    (cgp.KalmanFilter, False),
    (cgp.RecursiveGP, True),
    (cgp.RecursiveGP, False),
]


def of_kinds(*kept):
    return pytest.mark.parametrize(("kind", "is_light"), long_except(KINDS, *kept))


@of_kinds(*KINDS[:4])
def test_each_kind_has_its_usual_optimizer(kind, is_light):
    gp = model(kind)
    gp.compile()
    assert type(gp.optimizer) is LEARNERS[kind]


@of_kinds(KINDS[3])
@pytest.mark.filterwarnings("ignore:after this fit")
def test_a_model_that_was_not_compiled_learns_by_its_usual_optimizer(kind, is_light):
    plain, compiled = model(kind), model(kind)
    plain.fit(*data(kind, is_light), verbose=0)
    compiled.compile()
    compiled.fit(*data(kind, is_light), verbose=0)
    assert type(plain.optimizer) is LEARNERS[kind]
    for value, expected in zip(plain.weights, compiled.weights, strict=True):
        np.testing.assert_array_equal(value, expected)


@of_kinds(KINDS[1])
@pytest.mark.filterwarnings("ignore:after this fit")
def test_it_is_saved_and_loaded_and_learns_on(kind, is_light, tmp_path):
    fitted = model(kind)
    fitted.fit(*data(kind, is_light), verbose=0)
    fitted.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is type(fitted.optimizer)
    for value, expected in zip(loaded.weights, fitted.weights, strict=True):
        np.testing.assert_array_equal(value, expected)
    loaded.fit(*data(kind, is_light), verbose=0)


@of_kinds()
@pytest.mark.filterwarnings("ignore:after this fit")
def test_a_model_of_a_config_and_a_loaded_one_learn_without_compile(kind, is_light, tmp_path):
    before = model(kind)
    kind.from_config(before.get_config()).fit(*data(kind, is_light), verbose=0)
    before.save(tmp_path / "model.keras")
    keras.models.load_model(tmp_path / "model.keras").fit(*data(kind, is_light), verbose=0)


@of_kinds(KINDS[1], KINDS[3])
def test_the_loss_of_data_is_told_without_compile(kind, is_light):
    assert np.isfinite(model(kind).evaluate(*data(kind, is_light), verbose=0))
