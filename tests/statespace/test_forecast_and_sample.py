"""What is said of times without observations, and draws."""

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


def parts_covariance(covariance, pseudo=None):
    """Of `[Re; Im]`, from (K, C)."""
    pseudo = np.zeros_like(covariance) if pseudo is None else pseudo
    upper = np.concatenate([(covariance + pseudo).real, (pseudo - covariance).imag], axis=-1)
    lower = np.concatenate([(covariance + pseudo).imag, (covariance - pseudo).real], axis=-1)
    return np.concatenate([upper, lower], axis=-2) / 2


def assert_drawn_from(draws, mean, covariance, pseudo=None):
    """Draws `[N, d]` made white have the moments of white draws.

    Each entry of a mean of N is within 6/√N of zero but for 2 draws in 10⁹, each of a covariance
    within 6√2/√N of the identity but for about as many.
    """
    count = len(draws)
    if np.iscomplexobj(draws):
        draws, mean = kalman.parts(draws), kalman.parts(mean)
        covariance = parts_covariance(covariance, pseudo)
    white = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T).T
    assert np.abs(white.mean(axis=0)).max() < 6 / np.sqrt(count)
    moment = white.T @ white / count
    assert np.abs(moment - np.eye(len(moment))).max() < 6 * np.sqrt(2 / count)
    assert 6 * np.sqrt(2 / count) < 0.05


DRAWS = 30_000
SHORT = 4


@pytest.mark.parametrize(
    "setting",
    [{}, {"dtype": "float64"}, {"varying": "FQHRB", "inputs": 2}],
    ids=str,
)
def test_have_draws_of_the_prior_its_moments(setting):
    p = problem(2, 2, steps=SHORT, **setting)
    drawn = statespace.sample(p.model(), SHORT, (DRAWS,), seed=1, inputs=p.inputs)
    assert drawn.states.shape == (DRAWS, SHORT, 2)
    assert drawn.observations.shape == (DRAWS, SHORT, 2)
    assert np.asarray(drawn.states).dtype == p.z.dtype
    joint = kalman.joint(p.reference())
    both = [np.reshape(part, (DRAWS, -1)) for part in drawn]
    assert_drawn_from(
        np.concatenate(both, axis=-1),
        np.concatenate([joint.state_mean, joint.observation_mean]),
        np.block(
            [
                [joint.state_covariance, joint.cross_covariance],
                [kalman.adjoint(joint.cross_covariance), joint.observation_covariance],
            ]
        ),
    )


def test_does_a_state_without_noise_obey_its_transition():
    p = problem(2, 2).changed(Q=np.zeros((2, 2)), R=np.zeros((2, 2)))
    drawn = statespace.sample(p.model(), 6, (5,), seed=1)
    states = np.asarray(drawn.states)
    np.testing.assert_allclose(states[:, 1:], states[:, :-1] @ p.matrices["F"].T, **TIGHT)
    np.testing.assert_allclose(drawn.observations, states @ p.matrices["H"].T, **TIGHT)


def test_does_a_seed_say_which_draw():
    model = problem(2, 2).model()

    def draw(seed):
        return np.asarray(statespace.sample(model, SHORT, (5,), seed=seed).observations)

    np.testing.assert_array_equal(draw(1), draw(1))
    assert (draw(1) != draw(2)).all()
    assert (draw(1)[0] != draw(1)[1]).all()
    assert (draw(None) != draw(None)).all()


@pytest.mark.parametrize("sample_shape", [(), (3,), (2, 3)])
def test_has_a_batch_of_models_draws_of_its_own(sample_shape):
    p = problem(2, 2, batch=4, models=True)
    drawn = statespace.sample(p.model(), SHORT, sample_shape, seed=1)
    assert drawn.states.shape == (*sample_shape, 4, SHORT, 2)
    assert drawn.observations.shape == (*sample_shape, 4, SHORT, 2)
    assert len(np.unique(drawn.states)) == np.size(drawn.states)


@pytest.mark.parametrize(
    "setting",
    [
        {"holes": "own"},
        {"dtype": "float64", "varying": "FQHRB", "inputs": 2, "holes": "own"},
    ],
    ids=str,
)
def test_have_draws_of_the_posterior_the_moments_of_dense_conditioning(setting):
    p = problem(2, 2, steps=SHORT, **setting)
    drawn = statespace.posterior_sample(p.model(), p.z, (DRAWS,), seed=1, inputs=p.inputs)
    assert drawn.shape == (DRAWS, SHORT, 2)
    mean, covariance = kalman.conditional(p.reference(), p.z)
    assert_drawn_from(np.reshape(drawn, (DRAWS, -1)), mean, covariance)
    found = p.smooth()
    np.testing.assert_allclose(np.ravel(found.smoothed_means), mean, **TIGHT)


def test_does_a_seed_say_which_draw_of_the_posterior():
    p = problem(2, 2, holes="own")

    def draw(seed):
        return np.asarray(statespace.posterior_sample(p.model(), p.z, (5,), seed=seed))

    np.testing.assert_array_equal(draw(1), draw(1))
    assert (draw(1) != draw(2)).all()


def test_do_draws_of_the_posterior_pass_through_what_is_seen_without_noise():
    p = problem(2, 2, holes="own").changed(R=np.zeros((2, 2)))
    drawn = np.asarray(statespace.posterior_sample(p.model(), p.z, (5,), seed=1))
    through, seen = drawn @ p.matrices["H"].T, ~np.isnan(p.z)
    expected = np.broadcast_to(p.z[seen], (5, seen.sum()))
    np.testing.assert_allclose(through[:, seen], expected, rtol=1e-8, atol=1e-8)
    assert np.ptp(through[:, ~seen], axis=0).min() > 1e-3


def test_has_a_batch_of_series_a_posterior_each():
    p = problem(2, 2, steps=SHORT, batch=2, models=True, holes="own")
    drawn = statespace.posterior_sample(p.model(), p.z, (DRAWS,), seed=3)
    assert drawn.shape == (DRAWS, 2, SHORT, 2)
    for b, member in enumerate(p.members()):
        mean, covariance = kalman.conditional(member.reference(), member.z)
        assert_drawn_from(np.reshape(drawn[:, b], (DRAWS, -1)), mean, covariance)


def wide_problem():
    matrices, parts = improper_parts(2, 2, k=1)
    p = problem(2, 2, steps=SHORT, inputs=1, holes="own").changed(**matrices)
    model = statespace.widely_linear(p.model(), **parts)
    return p, model, kalman.bivariate(reference_augmented(p, parts))


def as_parts(draws):
    """`[N, T, n]` complex -> `[N, T 2n]` in the reference's order."""
    return kalman.parts(np.asarray(draws)).reshape(len(draws), -1)


def test_have_improper_draws_the_moments_of_their_parts():
    p, model, reference = wide_problem()
    drawn = statespace.sample(model, SHORT, (DRAWS,), seed=1, inputs=p.inputs)
    joint = kalman.joint(reference)
    assert_drawn_from(as_parts(drawn.states), joint.state_mean, joint.state_covariance)
    assert_drawn_from(
        as_parts(drawn.observations), joint.observation_mean, joint.observation_covariance
    )


def test_have_improper_draws_of_the_posterior_the_moments_of_their_parts():
    p, model, reference = wide_problem()
    drawn = statespace.posterior_sample(model, p.z, (DRAWS,), seed=1, inputs=p.inputs)
    assert_drawn_from(as_parts(drawn), *kalman.conditional(reference, kalman.parts(p.z)))


def test_is_an_improper_forecast_that_of_the_parts():
    matrices, parts = improper_parts(3, 1, k=2)
    p = problem(3, 1, inputs=2, holes="own").changed(**matrices)
    model = statespace.widely_linear(p.model(), **parts)
    result = statespace.filter(model, p.z, inputs=p.inputs)
    longer, future = padded(p)
    found = statespace.forecast(model, result, AHEAD, inputs=future)
    reference = kalman.bivariate(reference_augmented(Problem(*longer), parts))
    expected = kalman.filter(reference, kalman.parts(longer.z))
    np.testing.assert_allclose(
        kalman.parts(np.asarray(found.state_means)), expected.predicted_means[-AHEAD:], **TIGHT
    )
    np.testing.assert_allclose(
        square(found.state_chols), expected.predicted_covariances[-AHEAD:], **TIGHT
    )
    covariance, pseudo = kalman.pair(expected.innovation_covariances[-AHEAD:])
    np.testing.assert_allclose(found.observation_covariances, covariance, **TIGHT)
    np.testing.assert_allclose(found.observation_pseudo_covariances, pseudo, **TIGHT)
    means = np.einsum("tmn,tn->tm", reference.H, expected.predicted_means)[-AHEAD:]
    np.testing.assert_allclose(kalman.parts(np.asarray(found.observation_means)), means, **TIGHT)


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
