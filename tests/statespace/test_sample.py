"""Draws of states and observations, before and given observations."""

import numpy as np
import pytest

from cgp import statespace
from tests.reference import kalman
from tests.statespace.problems import (
    improper_parts,
    problem,
    reference_augmented,
)


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
        draws, mean = kalman.composite(draws), kalman.composite(mean)
        covariance = parts_covariance(covariance, pseudo)
    white = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).T).T
    assert np.abs(white.mean(axis=0)).max() < 6 / np.sqrt(count)
    moment = white.T @ white / count
    assert np.abs(moment - np.eye(len(moment))).max() < 6 * np.sqrt(2 / count)
    assert 6 * np.sqrt(2 / count) < 0.05


TIGHT = {"rtol": 1e-10, "atol": 1e-10}
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
    return kalman.composite(np.asarray(draws)).reshape(len(draws), -1)


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
    assert_drawn_from(as_parts(drawn), *kalman.conditional(reference, kalman.composite(p.z)))
