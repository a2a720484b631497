"""A saved model predicts at once, and goes on."""

import copy
import json
import pickle

import keras
import numpy as np
import pytest
import tensorflow_probability as tfp

import cgp
from cgp.kernels import RBF, Matern12, Matern32, Rotation, WidelyLinear
from tests.gp.problems import complex_normals
from tests.long_cases import eagerly_and_in_a_graph

X_NEW = np.linspace(-1.0, 12.0, 7)


def trained(mean=None, eagerly=True):
    carrier = Rotation(0.3, name="carrier")
    prior = tfp.distributions.LogNormal(0.0, 1.0)
    kernel = WidelyLinear(
        Matern32(1.0, 5.0, priors={"lengthscale": prior}) * carrier
        + 0.5 * (carrier * Matern12(1.0, 1.0)),
        0.2 - 0.1j,
    )
    gp = cgp.ExactGP(kernel, 0.1, 0.02j, mean=mean)
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 10.0, 20)
    z = np.exp(2j * np.pi * 0.31 * x) + 0.2 * complex_normals(rng, 20)
    z[[3, 8]] = np.nan
    gp.compile(optimizer=keras.optimizers.Adam(0.02), run_eagerly=eagerly)
    gp.fit(x, z, epochs=1 if eagerly else 3, verbose=0)
    return gp, x, z


@pytest.fixture(scope="module")
def model():
    """A trained model that no test changes, with its data."""
    return trained()


def assert_same(gp, other):
    assert other.parameters().keys() == gp.parameters().keys()
    for name, value in gp.parameters().items():
        np.testing.assert_array_equal(other.parameters()[name], value)
    for name, value in gp.predict(X_NEW).items():
        np.testing.assert_allclose(other.predict(X_NEW)[name], value, rtol=1e-12, atol=1e-14)
    for name, value in gp.loo().items():
        np.testing.assert_allclose(other.loo()[name], value, rtol=1e-10)
    assert len(other.trainable_variables) == len(gp.trainable_variables)


MEANS = {
    "zero": None,
    "constant": cgp.means.Constant(0.1 + 0.2j),
    "polynomial": cgp.means.Polynomial(1, scale=10.0),
    "marginalised": cgp.means.Polynomial(1, marginalized=True, scale=10.0),
}


@eagerly_and_in_a_graph(("mean",), MEANS, ["marginalised"], ["marginalised"])
def test_does_a_saved_model_predict_at_once_and_train_on(mean, eagerly, tmp_path):
    gp, x, z = trained(MEANS[mean], eagerly)
    gp.save(tmp_path / "gp.keras")
    loaded = keras.models.load_model(tmp_path / "gp.keras")
    assert type(loaded) is cgp.ExactGP
    assert_same(gp, loaded)
    for model in (gp, loaded):
        model.fit(x, z, epochs=1 if eagerly else 3, verbose=0)
    assert_same(gp, loaded)


def test_does_a_float32_model_come_back(tmp_path):
    rng = np.random.default_rng(0)
    gp = cgp.ExactGP(RBF(1.0, 1.0, dtype="float32"), 0.1)
    x, z = rng.normal(size=6), complex_normals(rng, 6).astype(np.complex64)
    z[2] = np.nan
    gp.condition(x, z)
    gp.save(tmp_path / "gp.keras")
    loaded = keras.models.load_model(tmp_path / "gp.keras")
    np.testing.assert_array_equal(loaded.predict(x)["mean"], gp.predict(x)["mean"])
    assert loaded.predict(x)["mean"].dtype == np.complex64


WAYS = {"deepcopy": copy.deepcopy, "pickle": lambda gp: pickle.loads(pickle.dumps(gp))}


@eagerly_and_in_a_graph(("way",), WAYS, ["pickle"], ["pickle"])
def test_is_a_copy_the_same_and_independent(way, eagerly, model):
    gp, x, z = model if eagerly else trained(eagerly=False)
    other = WAYS[way](gp)
    assert_same(gp, other)
    before = gp.predict(X_NEW)["mean"]
    other.fit(x, z, epochs=1 if eagerly else 2, verbose=0)
    np.testing.assert_array_equal(gp.predict(X_NEW)["mean"], before)


def test_are_weights_saved_with_the_data(model, tmp_path):
    gp, *_ = model
    gp.save_weights(tmp_path / "gp.weights.h5")
    other = cgp.clone_model(gp)
    other.load_weights(tmp_path / "gp.weights.h5")
    assert_same(gp, other)


def test_is_a_clone_fresh_and_shares_what_was_shared(model):
    gp, *_ = model
    other = cgp.clone_model(gp)
    assert other.parameters().keys() == gp.parameters().keys()
    assert float(other.parameters()["carrier.frequency"]) == 0.3
    np.testing.assert_array_equal(other.predict(X_NEW)["mean"], np.zeros(len(X_NEW)))


def test_is_the_config_plain_json_that_tells_the_model(model):
    gp, x, z = model
    config = json.loads(json.dumps(gp.get_config()))
    other = cgp.ExactGP.from_config(config)
    initial = cgp.clone_model(gp)
    np.testing.assert_array_equal(
        other.log_marginal_likelihood(x, z), initial.log_marginal_likelihood(x, z)
    )
    assert config["noise_pseudo_variance"] == [0.0, 0.02]


@pytest.mark.parametrize(
    ("optimizer", "eagerly"),
    [
        (keras.optimizers.Adam, True),
        pytest.param(keras.optimizers.Adam, False, marks=pytest.mark.long),
        pytest.param(cgp.optimizers.LBFGS, False, marks=pytest.mark.long),
    ],
)
def test_does_a_batch_of_series_come_back(optimizer, eagerly, tmp_path):
    rng = np.random.default_rng(0)
    gp = cgp.ExactGP(RBF(1.0, 1.0), 0.1)
    gp.compile(optimizer=optimizer(), run_eagerly=eagerly)
    gp.fit(rng.normal(size=(6, 2)), complex_normals(rng, 3, 6), epochs=2, verbose=0)
    gp.save(tmp_path / "gp.keras")
    loaded = keras.models.load_model(tmp_path / "gp.keras")
    x_new = rng.normal(size=(5, 2))
    expected = gp.predict(x_new)["mean"]
    assert expected.shape == (3, 5)
    np.testing.assert_allclose(loaded.predict(x_new)["mean"], expected, rtol=1e-12)
