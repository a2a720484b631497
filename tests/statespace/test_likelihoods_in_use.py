"""Filters with a likelihood in use: online, in graphs, in fits, saved, and what they refuse."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import norm

import cgp
from cgp import statespace
from cgp.likelihoods import OneBit, StudentT, VonMises
from tests.layers.models import central_differences, flat
from tests.statespace.test_likelihoods import KINDS, ROOT, R, model, series, still


@pytest.mark.long
def test_says_a_filter_that_sites_and_states_do_not_agree():
    with pytest.raises(ValueError, match=r"no normal posterior was found for VonMises.* at step 0"):
        statespace.filter(still(1.0, 1e-6), [1.0 + 1j], likelihood=VonMises())


@pytest.mark.long
def test_says_a_step_that_sites_and_states_do_not_agree():
    kf = cgp.KalmanFilter(still(1.0, 1e-6), likelihood=VonMises())
    with pytest.raises(ValueError, match="likelihood has no normal posterior"):
        kf.step([1.0 + 1j])
    assert np.isfinite(kf.state.mean).all()


def test_is_a_smoother_in_a_graph_refused():
    z = series(OneBit(), 3)
    with pytest.raises(NotImplementedError, match="call it eagerly"):
        tf.function(lambda: statespace.smooth(model(), z, likelihood=OneBit()).smoothed_means)()


@pytest.mark.parametrize("begun", [False, pytest.param(True, marks=pytest.mark.long)])
def test_are_impossible_observations_refused_at_every_door(begun):
    z = series(OneBit(), 4)
    kf = cgp.KalmanFilter(model(), learn=("Q",), likelihood=OneBit())
    if begun:  # which compiles a step
        kf.step(z[0])
    state, wrong = kf.state, np.array([1.0 + 1j, 0.5 + 0j])[:, None]
    driven = cgp.KalmanFilter(model().replace(B=[[1.0]]), likelihood=OneBit())
    for call in (
        lambda: kf.step(wrong[1]),
        lambda: kf.process(wrong),
        lambda: kf.predict(wrong),
        lambda: kf.fit(wrong),
        lambda: driven.evaluate((wrong[None], wrong[None])),
        lambda: kf.evaluate(wrong),
    ):
        with pytest.raises(ValueError, match="must have signs"):
            call()
    for one, other in zip(kf.state, state, strict=True):
        np.testing.assert_array_equal(one, other)
    for name in ("likelihood", "rule"):
        with pytest.raises(AttributeError, match="make a new KalmanFilter"):
            setattr(kf, name, None)


@pytest.mark.long
def test_may_a_sign_be_missing_beside_inputs():
    driven = cgp.KalmanFilter(model().replace(B=[[1.0]]), likelihood=OneBit())
    z = np.array([1.0 + 1j, np.nan])[None, :, None]
    driven.predict((z, np.zeros_like(z)))


def two_series(likelihood):
    z = series(likelihood, 6, size=2)
    z[1, 2] = complex(np.nan, np.nan)
    return z


def test_are_steps_the_filter():
    likelihood = KINDS[0]
    z = two_series(likelihood)
    found = statespace.filter(model(), z, likelihood=likelihood)
    state = None
    for t in range(6):
        state, step = statespace.step(model(), state, z[:, t], likelihood=likelihood)
        np.testing.assert_allclose(step.filtered.mean, found.filtered_means[:, t], atol=1e-9)


@pytest.mark.long
def test_is_a_series_of_a_batch_filtered_as_it_is_alone():
    likelihood = KINDS[0]
    z = two_series(likelihood)
    found = statespace.filter(model(), z, likelihood=likelihood)
    alone = statespace.filter(model(), z[1], likelihood=likelihood)
    np.testing.assert_allclose(found.filtered_means[1], alone.filtered_means, atol=1e-9)
    np.testing.assert_allclose(found.log_likelihoods[1], alone.log_likelihoods, atol=1e-9)


@pytest.mark.long
def test_is_a_graph_the_filter():
    likelihood = KINDS[0]
    z = two_series(likelihood)
    found = statespace.filter(model(), z, likelihood=likelihood)
    graph = tf.function(lambda: statespace.log_likelihood(model(), z, likelihood=likelihood))
    np.testing.assert_allclose(graph(), found.log_likelihood, atol=1e-9)


@pytest.mark.long
def test_composes_a_likelihood_with_a_rule():
    """Outliers of a signal whose state is its phase."""
    rng = np.random.default_rng(0)
    phase = np.cumsum(0.1 * rng.normal(size=40))
    z = np.exp(1j * phase) + 0.1 * (rng.normal(size=40) + 1j * rng.normal(size=40))
    z[::8] = -z[::8]
    turning = statespace.NonlinearGaussian(
        lambda x: x,
        lambda x: tf.complex(tf.cos(x), tf.sin(x)),
        [[0.01]],
        [[0.02]],
        [0.0],
        [[0.1]],
    )
    errors = []
    for likelihood in (None, StudentT(3.0)):
        found = statespace.smooth(turning, z[:, None], likelihood=likelihood)
        errors.append(np.sqrt(np.mean((found.smoothed_means.numpy()[:, 0] - phase) ** 2)))
    assert errors[1] < 0.8 * errors[0]


def test_is_a_filter_saved_with_its_likelihood(tmp_path):
    robust = StudentT(3.0)
    z = two_series(robust)
    kf = cgp.KalmanFilter(model(), likelihood=robust)
    kf.save(tmp_path / "filter.keras")
    loaded = cgp.load_model(tmp_path / "filter.keras")
    assert loaded.likelihood == robust
    expected = statespace.filter(model(), z, likelihood=robust)
    for t in range(3):
        step = loaded.step(z[:, t])
        np.testing.assert_allclose(step.filtered.mean, expected.filtered_means[:, t], atol=1e-9)


@pytest.mark.long
def test_goes_a_filter_on_from_a_file_with_its_likelihood(tmp_path):
    robust = StudentT(3.0)
    z = series(robust, 3)
    kf = cgp.KalmanFilter(model(), likelihood=robust)
    kf.step(z[0])
    kf.save(tmp_path / "filter.keras")
    loaded = cgp.load_model(tmp_path / "filter.keras")
    for t in (1, 2):
        following = loaded.step(z[t]).filtered.mean
        np.testing.assert_array_equal(following, kf.step(z[t]).filtered.mean)


def log_evidence_of_signs(z, mean, covariance):
    """Of a real pair, by the probability of its quadrant to first order in its correlation."""
    signs, scales = np.array([z.real, z.imag]), np.sqrt(np.diag(covariance))
    at, correlation = signs * mean / scales, covariance[0, 1] / scales.prod()
    slope = signs.prod() * norm.pdf(at).prod()
    return np.log(norm.cdf(at).prod() + correlation * slope)


def bound_of_students_t(z, mean, variance, noise, nu=3.0):
    """By the weights of its definition, as one observation has one."""
    weight = 1.0
    for _ in range(500):
        v = 1.0 / (1.0 / variance + weight / noise)
        now = mean + v * weight / noise * (z - mean)
        square = (abs(now - z) ** 2 + v) / noise
        weight = (nu / 2 + 1) / (nu / 2 + square)
    found = -np.log(np.pi * noise) - (nu / 2 + 1) * np.log1p(square * 2 / nu)
    return found - (np.log(variance / v) + v / variance - 1 + abs(now - mean) ** 2 / variance)


def log_evidence(likelihood, z, H, R, mean, covariance):
    """Of one observation; H and the others are of the real composite of a model of signs."""
    mean, covariance = H @ mean, H @ covariance @ H.conj().T
    if isinstance(likelihood, OneBit):
        return log_evidence_of_signs(z, mean, covariance + R)
    return bound_of_students_t(z, mean[0], covariance[0, 0].real, R[0, 0].real)


# No programs are smaller than those of one observation. R as it is learned may prefer a direction,
# of which signs know nothing.
@pytest.mark.parametrize(
    ("likelihood", "z", "learned"),
    [
        (OneBit(), [1 - 1j, -1 - 1j], ("H", "initial_mean", "initial_covariance")),
        (StudentT(3.0), [4.0 + 1j, -0.2j], ("H", "R", "initial_mean", "initial_covariance")),
    ],
    ids=["signs", "outliers"],
)
def test_is_a_step_of_a_fit_along_the_gradient_of_the_first_evidence(likelihood, z, learned):
    start = model().replace(initial_mean=[0.6 + 0.4j])
    kf = cgp.KalmanFilter(start, learn=learned, likelihood=likelihood)

    def loss():
        now = [getattr(kf, name) for name in ("H", "R", "initial_mean", "initial_covariance")]
        return -np.mean([log_evidence(likelihood, one, *now) for one in z])

    before, variables = loss(), kf.trainable_variables
    start, differences = flat(variables), central_differences(variables, loss)
    kf.compile(keras.optimizers.SGD(0.125), run_eagerly=True)
    both = tf.data.Dataset.from_tensors(np.reshape(z, [2, 1, 1]))
    history = kf.fit(both, epochs=1, verbose=0).history
    assert history["loss"] == pytest.approx([before], abs=1e-7)
    assert np.abs(differences).min() > 1e-3
    np.testing.assert_allclose(flat(variables), start - 0.125 * differences, atol=1e-7)


@pytest.mark.long
def test_learns_a_filter_among_outliers_and_is_saved(tmp_path):
    robust = StudentT(3.0)
    z = series(robust, 30)[None]
    kf = cgp.KalmanFilter(model(q=0.3), learn=("Q",), likelihood=robust)
    kf.compile(keras.optimizers.Adam(0.05))
    before = statespace.filter(kf.model, z, likelihood=robust).log_likelihood[0]
    history = kf.fit(z, epochs=1, verbose=0).history
    assert history["loss"] == pytest.approx([-float(before) / 30], abs=1e-7)
    expected = statespace.filter(kf.model, z, likelihood=robust)
    assert expected.log_likelihood[0] > before
    loss = -float(expected.log_likelihood[0]) / 30
    assert float(kf.evaluate(z, verbose=0)) == pytest.approx(loss, abs=1e-7)
    for t in range(3):
        step = kf.step(z[0, t])
        np.testing.assert_allclose(step.filtered.mean, expected.filtered_means[0, t], atol=1e-9)
    kf.save(tmp_path / "filter.keras")
    loaded = cgp.load_model(tmp_path / "filter.keras")
    assert loaded.likelihood == robust
    following = loaded.step(z[0, 3]).filtered.mean
    np.testing.assert_allclose(following, expected.filtered_means[0, 3], atol=1e-9)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: statespace.filter(m, [1j], likelihood="t"), TypeError, "one of cgp.likelihoods"),
        (
            lambda m: statespace.filter(
                m.replace(initial_covariance="diffuse"), [1 + 1j], likelihood=OneBit()
            ),
            ValueError,
            "too little of a diffuse",
        ),
        (
            lambda m: statespace.filter(m.replace(R=[[0.0]]), [1j], likelihood=StudentT()),
            ValueError,
            "diagonal of R must be positive",
        ),
        (
            lambda m: statespace.filter(m, [1j, 1 + 1j], likelihood=OneBit()),
            ValueError,
            "must have signs",
        ),
        (
            lambda m: statespace.filter(
                statespace.widely_linear(m, pseudo_R=[[0.05]]), [1j], likelihood=VonMises()
            ),
            ValueError,
            "without a pseudo-covariance",
        ),
        (
            lambda m: statespace.filter(
                statespace.InteractingModels([m, m], [[0.9, 0.1], [0.1, 0.9]]),
                [1j],
                likelihood=StudentT(),
            ),
            ValueError,
            "not for a bank",
        ),
    ],
)
def test_is_what_cannot_be_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(model())


@pytest.mark.long
@pytest.mark.parametrize("likelihood", [StudentT(4.0), StudentT(1.0), OneBit(), VonMises()])
def test_is_what_is_predicted_of_a_missing_observation_a_forecast(likelihood):
    """In the noise of the model, without a trace of what stands for other observations."""
    z = series(likelihood, 6)
    z[2], z[5:] = np.nan, np.nan
    found = statespace.filter(model(), z, likelihood=likelihood)
    as_seen = model() if likelihood.is_circular else statespace.widely_linear(model())
    ahead = statespace.forecast(
        as_seen, statespace.filter(model(), z[:5], likelihood=likelihood), 1
    ).marginals()
    kf = cgp.KalmanFilter(model(), likelihood=likelihood)
    block = kf.process(z).predicted
    steps = found.marginals()
    for one in (steps, block):
        np.testing.assert_allclose(np.ravel(one.mean)[5], np.ravel(ahead.mean), atol=1e-9)
        np.testing.assert_allclose(np.ravel(one.variance)[5], np.ravel(ahead.variance), atol=1e-9)
        np.testing.assert_allclose(
            np.ravel(one.pseudo_variance)[5], np.ravel(ahead.pseudo_variance), atol=1e-9
        )
    assert np.isfinite(found.log_likelihoods).all()


def test_is_a_part_that_is_missing_forecast_beside_one_that_is_an_outlier():
    both = statespace.LinearGaussian([[ROOT]], [[0.1]], [[1.0], [2.0j]], np.diag([0.3, 0.5]))
    z = np.array([[1.0, 2.0j], [9.0, np.nan]])
    step = statespace.filter(both, z, likelihood=StudentT(4.0))
    before = step.predicted_means.numpy()[1, 0], step.predicted_variances.numpy()[1, 0]
    found = step.marginals()
    np.testing.assert_allclose(found.mean[1, 1], 2.0j * before[0], atol=1e-12)
    np.testing.assert_allclose(found.variance[1, 1], 4.0 * before[1] + 0.5, atol=1e-12)
    assert found.variance[1, 0] > before[1] + 3.0  # that of the outlier


def test_is_a_forecast_after_signs_that_of_the_improper_state():
    z = series(OneBit(), 5)
    z[2] = np.nan
    found = statespace.filter(model(), z, likelihood=OneBit())
    ahead = statespace.forecast(statespace.widely_linear(model()), found, 2)
    expected = found.filtered_means.numpy()[-1] * ROOT ** np.arange(1, 3)[:, None]
    np.testing.assert_allclose(ahead.observation_means, expected, atol=1e-12)
    # What is missing is predicted in the noise of the model, of the state alone.
    missing, state = found.marginals(), found.predicted_chols.numpy()[2]
    xx, yy, xy = (state @ state.T)[[0, 1, 0], [0, 1, 1]]
    np.testing.assert_allclose(missing.mean[2], found.predicted_means[2], atol=1e-12)
    np.testing.assert_allclose(missing.variance[2], [xx + yy + R], atol=1e-12)
    np.testing.assert_allclose(missing.pseudo_variance[2], [xx - yy + 2j * xy], atol=1e-12)
