"""Priors of what a KalmanFilter learns: in its loss, each once in all of the data."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

import cgp
from cgp import statespace
from tests.layers.models import assert_gradients, guess, simulated, two_modes
from tests.long_cases import eagerly_or_in_a_graph

F, R = 0.9, 0.5


def data():
    z = np.random.default_rng(0).normal(size=(4, 30, 1))
    z[0, 12:] = np.nan
    return z


def model_of(q):
    return statespace.LinearGaussian([[F]], [[q]], [[1.0]], [[R]])


def log_normal(location, scale):
    return tfp.distributions.LogNormal(np.float64(location), np.float64(scale))


def learner(location=0.3, scale=0.2, optimizer=None, **kwargs):
    """A filter that learns the standard deviation of its process noise, at first 1."""
    noise = cgp.layers.Covariance([[1.0]], priors={"scale": log_normal(location, scale)})
    kf = cgp.KalmanFilter(model_of(1.0), learn={"Q": noise}, **kwargs)
    kf.compile(optimizer)
    return kf


def expected(z, deviation=1.0, location=0.3, scale=0.2, times=1):
    """The loss, its prior by SciPy."""
    prior = stats.lognorm(scale, scale=np.exp(location)).logpdf(deviation)
    likelihood = np.sum(statespace.log_likelihood(model_of(deviation**2), z))
    return -(likelihood + times * prior) / np.sum(~np.isnan(z))


def test_is_the_prior_in_the_loss():
    kf, z = learner(loss_weight=0.5), data()
    kf(z)
    assert float(kf.losses[0]) == pytest.approx(0.5 * expected(z), rel=1e-12)


@eagerly_or_in_a_graph
def test_does_a_prior_count_once_in_all_batches(eagerly):
    kf, z = learner(optimizer=keras.optimizers.SGD(0.0)), data()
    kf.run_eagerly = eagerly
    loss, first = (pytest.approx(expected(part), rel=1e-12) for part in (z, z[:2]))
    assert kf.evaluate(z, batch_size=1, verbose=0) == loss
    history = kf.fit(z, batch_size=2, validation_data=(z[:2],), verbose=0).history
    assert history == {"loss": [loss], "val_loss": [first]}
    kf(z)  # by itself a call is all of the data again
    assert float(kf.losses[0]) == loss


@pytest.mark.long
def test_does_a_prior_count_once_in_all_batches_of_a_dataset():
    kf, z = learner(optimizer=keras.optimizers.SGD(0.0)), data()
    loss = pytest.approx(expected(z), rel=1e-12)
    batches = tf.data.Dataset.from_tensor_slices(z).batch(2)
    for source, steps in ((batches, None), (batches.repeat(), 2)):
        assert kf.fit(source, steps_per_epoch=steps, verbose=0).history == {"loss": [loss]}
    kf(z)
    assert float(kf.losses[0]) == loss


@eagerly_or_in_a_graph
def test_does_it_count_once_for_a_filter_inside_a_model(eagerly):
    z, series = data()[1:], keras.Input((None, 1), dtype="float64")
    model = cgp.Functional(series, learner()(series)["filtered_mean"])
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=eagerly)
    for batch_size in (1, 3):
        found = model.evaluate(z, batch_size=batch_size, verbose=0)
        assert found == pytest.approx(expected(z), rel=1e-12)


def test_does_a_tight_prior_decide():
    kf = learner(np.log(3.0), 1e-4)
    kf.fit(data(), verbose=0)
    mode = 3.0 * np.exp(-(1e-4**2))
    np.testing.assert_allclose(np.sqrt(kf.Q), [[mode]], rtol=1e-5)


def test_is_the_best_of_a_fit_the_largest_posterior_density():
    kf, z = learner(), data()
    kf.fit(z, verbose=0)
    best = np.sqrt(kf.Q[0, 0])
    assert abs(best - 1.0) > 0.05
    around = [expected(z, best * factor) for factor in (0.99, 1.0, 1.01)]
    assert np.argmin(around) == 1
    slope = (around[2] - around[0]) / 0.02
    assert abs(slope) < 0.01 * (around[2] + around[0] - 2.0 * around[1]) / 0.01**2


@eagerly_or_in_a_graph
def test_do_gradients_agree_with_central_differences(eagerly):
    parts = tfp.distributions.Normal(np.float64(0.2), np.float64(0.3))
    gain = cgp.layers.Matrix(two_modes().H, priors={"value": parts})
    noise = cgp.layers.Covariance([[0.7 + 0j]], priors={"scale": log_normal(0.1, 0.2)})
    kf = cgp.KalmanFilter(guess(), learn={"H": gain, "R": noise, "Q": None})
    value = np.asarray(gain.call()).ravel()
    z = tf.constant(simulated(two_modes(), 2, 20, seed=0))
    assert_gradients(kf, z, eagerly)
    kf(z)
    prior = stats.norm(0.2, 0.3).logpdf([value.real, value.imag]).sum()
    prior += stats.lognorm(0.2, scale=np.exp(0.1)).logpdf(1.0)  # of the scale of the factor
    likelihood = np.sum(statespace.log_likelihood(kf.model, z))
    loss = -(likelihood + prior) / z.shape.num_elements()
    assert float(kf.losses[0]) == pytest.approx(loss, rel=1e-12)


def test_does_a_layer_of_two_matrices_count_once():
    noise = cgp.layers.Covariance([[1.0]], priors={"scale": log_normal(0.3, 0.2)})
    kf, z = cgp.KalmanFilter(model_of(1.0), learn={"Q": noise, "R": noise}), data()
    kf(z)
    prior = stats.lognorm(0.2, scale=np.exp(0.3)).logpdf(1.0)
    likelihood = np.sum(statespace.log_likelihood(model_of(1.0).replace(R=[[1.0]]), z))
    loss = -(likelihood + prior) / np.sum(~np.isnan(z))
    assert float(kf.losses[0]) == pytest.approx(loss, rel=1e-12)


def test_do_priors_come_back_from_a_file(tmp_path):
    kf, z = learner(), data()
    kf.save(tmp_path / "kf.keras")
    other = cgp.load_model(tmp_path / "kf.keras")
    assert other.evaluate(z, batch_size=2, verbose=0) == pytest.approx(expected(z), rel=1e-12)
