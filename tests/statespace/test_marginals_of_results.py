"""The moments that plots and metrics take from results, against the real filter of the parts."""

import numpy as np
import pytest

import cgp
from cgp import statespace
from cgp.distributions import marginals
from cgp.distributions.marginals import Step
from tests.reference import kalman
from tests.statespace.problems import improper_parts, problem, reference_augmented

TIGHT = {"rtol": 1e-10, "atol": 1e-10}


class Improper:
    """A model of two states and three elements with conjugate terms, and the real one of parts."""

    def __init__(self):
        p = problem(2, 3, holes="own")
        matrices, parts = improper_parts(2, 3, k=2)
        del parts["B_conj"]
        self.p = p.changed(**matrices)
        self.z = self.p.z
        self.model = statespace.widely_linear(self.p.model(), **parts)
        self.real = kalman.bivariate(reference_augmented(self.p, parts))


@pytest.fixture(scope="module")
def improper():
    return Improper()


def expected(means, covariances):
    """Mean, variance and pseudo-variance of moments of `[Re; Im]`."""
    k, c = (np.diagonal(a, axis1=-2, axis2=-1) for a in kalman.pair(covariances))
    n = means.shape[-1] // 2
    return means[..., :n] + 1j * means[..., n:], k.real, c


def assert_moments(result, moments):
    found = marginals(result)
    for name, a, b in zip(found._fields, found, moments, strict=True):
        assert isinstance(a, np.ndarray)
        np.testing.assert_allclose(a, b, **TIGHT, err_msg=name)
    assert np.abs(found.pseudo_variance).max() > 0.01


def observed(improper):
    found = kalman.filter(improper.real, kalman.composite(improper.z))
    means = np.einsum("tij,tj->ti", improper.real.H, found.predicted_means)
    return expected(means, found.innovation_covariances)


def test_are_those_of_a_filter_the_predictions_of_the_observations(improper):
    found = statespace.filter(improper.model, improper.z)
    assert_moments(found, observed(improper))
    seen = ~np.isnan(improper.z)  # an innovation is what came less what was predicted
    difference = improper.z - found.observation_means.numpy() - found.innovations.numpy()
    np.testing.assert_allclose(difference[seen], 0.0, atol=1e-12)
    assert np.isfinite(found.observation_means).all()


def test_does_a_kalman_filter_say_the_same_whole_and_online(improper):
    kf = cgp.KalmanFilter(improper.model)
    moments = observed(improper)
    assert_moments(kf.predict(improper.z), [a[None] for a in moments])
    assert_moments(kf.process(improper.z), moments)
    kf.reset()
    assert_moments(Step.stack([kf.step(z) for z in improper.z], axis=-2), moments)


def test_are_those_of_a_smoother_the_states(improper):
    found = kalman.smooth(improper.real, kalman.composite(improper.z))
    smoothed = statespace.smooth(improper.model, improper.z)
    assert_moments(smoothed, expected(found.means, found.covariances))


def test_are_those_of_a_forecast_the_observations(improper):
    result = statespace.filter(improper.model, improper.z)
    longer = np.concatenate([improper.z, np.full((4, 3), np.nan)])
    continued = marginals(statespace.filter(improper.model, longer)).map(lambda a: a[-4:])
    assert_moments(statespace.forecast(improper.model, result, 4), continued)


def test_are_those_of_a_particle_filter_the_states(improper):
    particles = statespace.particle_filter(improper.model, improper.z, 50, seed=1)
    names = ("filtered_covariances", "filtered_pseudo_covariances")
    k, c = (np.einsum("tii->ti", getattr(particles, name)) for name in names)
    assert_moments(particles, (particles.filtered_means.numpy(), k.real, c))


@pytest.mark.long
def test_has_a_bank_of_two_equal_models_the_predictions_of_one(improper):
    bank = statespace.InteractingModels([improper.model] * 2, np.full((2, 2), 0.5))
    assert_moments(statespace.filter(bank, improper.z), observed(improper))
    _, step = statespace.step(bank, None, improper.z[0])
    assert_moments(step, [a[0] for a in observed(improper)])


def test_do_proper_models_have_pseudo_variances_of_zero_and_series_of_numbers_no_axis():
    model = statespace.LinearGaussian([[0.9j]], [[0.5]], [[2.0]], [[0.3]])
    z = np.array([1.0, np.nan, 2j])
    result = statespace.filter(model, z)
    found = marginals(result)
    assert found.mean.shape == found.variance.shape == found.pseudo_variance.shape == (3,)
    np.testing.assert_array_equal(found.pseudo_variance, np.zeros(3, complex))
    np.testing.assert_array_equal(found.variance, result.innovation_variances)
    for other in (statespace.smooth(model, z), statespace.forecast(model, result, 3)):
        assert marginals(other).mean.shape == (3, 1)
        np.testing.assert_array_equal(marginals(other).pseudo_variance, np.zeros((3, 1), complex))
    assert np.all(marginals(cgp.KalmanFilter(model).predict(z)).pseudo_variance == 0)


def test_are_covariances_that_series_share_those_of_each():
    model = statespace.LinearGaussian([[0.9j]], [[0.5]], [[2.0]], [[0.3]])
    z = np.arange(12.0).reshape(2, 6, 1) * 1j
    for function in (statespace.filter, statespace.smooth):
        both = marginals(function(model, z))
        for i in range(2):
            for a, b in zip(both, marginals(function(model, z[i])), strict=True):
                np.testing.assert_allclose(a[i], b, rtol=1e-12)


def test_are_real_results_refused_where_complex_ones_are_wanted():
    model = statespace.LinearGaussian([[0.9]], [[0.5]], [[2.0]], [[0.3]])
    result = statespace.filter(model, [1.0, 2.0])
    found = result.marginals()  # of a real number both are the variance
    np.testing.assert_array_equal(found.variance, found.pseudo_variance)
    with pytest.raises(TypeError, match="must be complex"):
        marginals(result)


def test_do_metrics_take_results_of_filters(improper):
    z, moments = (
        improper.z,
        dict(zip(cgp.distributions.Marginals._fields, observed(improper), strict=True)),
    )
    result = statespace.filter(improper.model, z)
    for metric in (cgp.metrics.coverage, cgp.metrics.negative_log_predictive_density):
        assert metric(z, result) == pytest.approx(metric(z, moments), rel=1e-9)


def test_do_metrics_take_one_component_without_its_axis():
    model = statespace.LinearGaussian([[0.9j]], [[0.5]], [[2.0]], [[0.3]])
    _, z = statespace.sample(model, 20, seed=1)
    series = z.numpy()[:, 0]
    result = statespace.filter(model, series[:15])
    ahead = statespace.forecast(model, result, 5)
    of_numbers = cgp.metrics.negative_log_predictive_density(series[15:], ahead)
    assert of_numbers == cgp.metrics.negative_log_predictive_density(z.numpy()[15:], ahead)
    with pytest.raises(ValueError, match="one shape"):
        cgp.metrics.coverage(series[15:-1], ahead)
