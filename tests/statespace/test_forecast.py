"""What is said of times after the last observation."""

import numpy as np
import pytest

from cgp import statespace
from tests.reference import kalman
from tests.statespace.problems import (
    Problem,
    assert_factors,
    improper_parts,
    problem,
    reference_augmented,
    square,
)

TIGHT = {"rtol": 1e-10, "atol": 1e-10}
AHEAD = 5


def padded(p):
    """The problem of the series with `AHEAD` more steps, all missing, and the inputs of those."""
    gap = np.full((*p.z.shape[:-2], AHEAD, p.z.shape[-1]), np.nan, p.z.dtype)
    z = np.concatenate([p.z, gap], axis=-2)
    if p.inputs is None:
        return p._replace(z=z), None
    rng = np.random.default_rng(8)
    future = rng.normal(size=(*p.z.shape[:-2], AHEAD, p.inputs.shape[-1])).astype(p.z.dtype)
    unused = np.full_like(future[..., :1, :], 1e3)
    inputs = np.concatenate([p.inputs[..., :-1, :], future, unused], axis=-2)
    return p._replace(z=z, inputs=inputs), future


def assert_forecast(found, expected, steps=AHEAD):
    ahead = np.s_[..., -steps:, :]
    np.testing.assert_allclose(found.state_means, expected.predicted_means[ahead], **TIGHT)
    ahead = np.s_[..., -steps:, :, :]
    np.testing.assert_allclose(
        square(found.state_chols), expected.predicted_covariances[ahead], **TIGHT
    )
    np.testing.assert_allclose(
        found.observation_covariances, expected.innovation_covariances[ahead], **TIGHT
    )
    assert_factors(found.state_chols)
    assert found.observation_pseudo_covariances is None


SETTINGS = {
    "plain": {"holes": "own"},
    "real": {"dtype": "float64", "holes": "own"},
    "inputs": {"inputs": 2, "holes": "own"},
    "a batch": {"batch": 3, "inputs": 2, "holes": "own"},
    "a batch of models": {"batch": 3, "models": True, "inputs": 2, "holes": "own"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_is_a_forecast_the_filter_of_a_series_that_goes_on_missing(name):
    p = problem(2, 2, **SETTINGS[name])
    longer, future = padded(p)
    found = statespace.forecast(p.model(), p.filter(), AHEAD, inputs=future)
    expected = longer.expected(kalman.filter)
    assert_forecast(found, expected)
    means = (p.matrices["H"] @ np.asarray(found.state_means)[..., None])[..., 0]
    np.testing.assert_allclose(found.observation_means, means, **TIGHT)
    again = longer.filter()
    np.testing.assert_allclose(
        found.state_means, np.asarray(again.predicted_means)[..., -AHEAD:, :], **TIGHT
    )


def test_may_one_step_alone_be_foretold():
    p = problem(2, 2, holes="own")
    longer, _ = padded(p)
    expected = kalman.filter(longer.reference(), longer.z)
    until = kalman.Filtered(*(part[: len(p.z) + 1] for part in expected))
    assert_forecast(statespace.forecast(p.model(), p.filter(), 1), until, steps=1)


def test_is_a_forecast_of_a_series_without_an_axis_of_elements_alike():
    p = problem(2, 1, holes="own")
    found = statespace.forecast(p.model(), statespace.filter(p.model(), p.z[:, 0]), AHEAD)
    expected = kalman.filter(padded(p)[0].reference(), padded(p)[0].z)
    np.testing.assert_allclose(found.state_means, expected.predicted_means[-AHEAD:], **TIGHT)


def test_is_a_forecast_of_a_varying_model_refused_with_the_remedy():
    p = problem(2, 2, holes="own")
    varying = p.changed(F=np.repeat(p.matrices["F"][None], len(p.z), axis=0))
    with pytest.raises(ValueError, match="NaN"):
        statespace.forecast(varying.model(), p.filter(), AHEAD)


@pytest.mark.parametrize("steps", [0, -3, 2.5])
def test_is_a_forecast_of_no_step_refused(steps):
    p = problem(2, 2, holes="own")
    with pytest.raises((ValueError, TypeError), match="steps"):
        statespace.forecast(p.model(), p.filter(), steps)


def test_are_the_inputs_of_a_forecast_those_of_its_steps():
    p = problem(2, 2, inputs=2, holes="own")
    result = p.filter()
    with pytest.raises(ValueError, match="inputs"):
        statespace.forecast(p.model(), result, AHEAD)
    with pytest.raises(ValueError, match="inputs"):
        statespace.forecast(p.model(), result, AHEAD, inputs=p.inputs[: AHEAD - 1])


def test_is_an_improper_forecast_that_of_the_parts():
    matrices, parts = improper_parts(3, 1, k=2)
    p = problem(3, 1, inputs=2, holes="own").changed(**matrices)
    model = statespace.widely_linear(p.model(), **parts)
    result = statespace.filter(model, p.z, inputs=p.inputs)
    longer, future = padded(p)
    found = statespace.forecast(model, result, AHEAD, inputs=future)
    reference = kalman.bivariate(reference_augmented(Problem(*longer), parts))
    expected = kalman.filter(reference, kalman.composite(longer.z))
    np.testing.assert_allclose(
        kalman.composite(np.asarray(found.state_means)), expected.predicted_means[-AHEAD:], **TIGHT
    )
    np.testing.assert_allclose(
        square(found.state_chols), expected.predicted_covariances[-AHEAD:], **TIGHT
    )
    covariance, pseudo = kalman.pair(expected.innovation_covariances[-AHEAD:])
    np.testing.assert_allclose(found.observation_covariances, covariance, **TIGHT)
    np.testing.assert_allclose(found.observation_pseudo_covariances, pseudo, **TIGHT)
    means = np.einsum("tmn,tn->tm", reference.H, expected.predicted_means)[-AHEAD:]
    np.testing.assert_allclose(
        kalman.composite(np.asarray(found.observation_means)), means, **TIGHT
    )


def test_is_a_result_of_another_form_or_dtype_refused():
    proper = statespace.LinearGaussian([[0.5 + 0j]], [[1.0]], [[1.0]], [[1.0]])
    improper = statespace.widely_linear(proper)
    real = statespace.LinearGaussian([[0.5]], [[1.0]], [[1.0]], [[1.0]])
    single = statespace.LinearGaussian(*np.complex64([[[0.5]], [[1.0]], [[1.0]], [[1.0]]]))
    z = np.array([1j, 2.0])
    series = {proper: z, improper: z, real: z.real, single: z.astype("complex64")}
    for model, words in (
        (proper, r"is proper, with factors \[1, 1\] of complex128, but its factors are "),
        (improper, r"is widely linear, with factors \[2, 2\] of float64, but its factors are "),
    ):
        for other in series:
            if other is not model:
                result = statespace.filter(other, series[other])
                with pytest.raises(ValueError, match=words):
                    statespace.forecast(model, result, 2)
    forecast = statespace.forecast(improper, statespace.filter(improper, z), 2)
    assert forecast.state_means.shape == (2, 1)
