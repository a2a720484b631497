"""Smoothers against dense conditioning."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from cgp import statespace
from tests.long_cases import eagerly_and_in_a_graph, long_except
from tests.reference import kalman
from tests.statespace.problems import (
    Problem,
    assert_smoothed,
    problem,
    random_covariance,
)
from tests.statespace.test_filter import SINGULAR

SETTINGS = {
    "holes": {"holes": "own", "inputs": 1},
    "real": {"dtype": "float64", "holes": "own"},
    "varying": {"varying": "FQHRB", "inputs": 1, "holes": "own"},
    "real and varying": {"dtype": "float64", "varying": "FQHR", "holes": "own"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_is_a_smoothed_state_the_conditional_of_all_observations(name):
    p = problem(3, 2, **SETTINGS[name])
    found = p.smooth()
    assert_smoothed(found, p.expected(kalman.conditional_smoothed))
    assert found.lag_one_pseudo_covariances is None
    assert np.asarray(found.smoothed_means).dtype == p.z.dtype


@pytest.mark.parametrize(("n", "m"), long_except([(1, 1), (2, 3), (5, 1)], (1, 1), (2, 3)))
def test_may_states_and_observations_be_few_or_many(n, m):
    p = problem(n, m, holes="own")
    assert_smoothed(p.smooth(), p.expected(kalman.conditional_smoothed))


@pytest.mark.parametrize(
    "setting",
    [
        {"holes": "shared"},
        {"holes": "own"},
        {"holes": "own", "models": True, "varying": "FR"},
    ],
    ids=str,
)
def test_is_a_batch_the_loop_over_its_members(setting):
    p = problem(3, 2, batch=4, **setting)
    assert_smoothed(p.smooth(), p.expected(kalman.conditional_smoothed))


@pytest.mark.parametrize(
    "name", [name for name in SINGULAR if not name.startswith(("no R", "R of", "one obs"))]
)
def test_may_what_is_predicted_be_certain(name):
    """Gains of singular predictions, which an inverse does not survive."""
    p = problem(3, 2, holes="own")
    p = p.changed(**SINGULAR[name](np.random.default_rng(3)))
    # Without noise the way back is by the inverse of F, which magnifies at each step.
    assert_smoothed(p.smooth(), p.expected(kalman.conditional_smoothed), rtol=1e-8, atol=1e-8)


def test_may_observations_be_without_noise():
    p = problem(3, 2, holes="own").changed(R=np.zeros((2, 2), complex))
    found, expected = p.smooth(), p.expected(kalman.conditional_smoothed)
    assert_smoothed(found, expected, rtol=1e-9, atol=1e-9)
    seen = ~np.isnan(p.z)
    observed = np.asarray(found.smoothed_means) @ np.swapaxes(p.matrices["H"], 0, 1)
    np.testing.assert_allclose(observed[seen], p.z[seen], rtol=1e-10, atol=1e-10)


def test_is_the_last_state_smoothed_the_last_filtered():
    p = problem(3, 2, holes="own")
    found, filtered = p.smooth(), p.filter()
    np.testing.assert_allclose(
        found.smoothed_means[-1], filtered.filtered_means[-1], rtol=1e-13, atol=1e-13
    )
    np.testing.assert_allclose(
        found.smoothed_chols[-1], filtered.filtered_chols[-1], rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("steps", [1, 2])
def test_may_a_series_be_short(steps):
    p = problem(3, 2)
    p = Problem(p.matrices, p.z[:steps])
    found = p.smooth()
    assert found.lag_one_covariances.shape == (steps - 1, 3, 3)
    assert_smoothed(found, p.expected(kalman.conditional_smoothed))


def test_are_states_between_observations_those_of_the_ends():
    """Only the two ends are seen, across a hundred steps."""
    p = problem(2, 2, steps=100)
    rng = np.random.default_rng(0)
    F = 0.999 * np.linalg.qr(rng.normal(size=(2, 2)) + 1j * rng.normal(size=(2, 2)))[0]
    p = p.changed(F=F, Q=1e-3 * random_covariance(rng, (), 2, "complex128"))
    p.z[1:-1] = np.nan
    assert_smoothed(p.smooth(), p.expected(kalman.conditional_smoothed), rtol=1e-9, atol=1e-10)


def test_is_what_is_called_missing_as_good_as_nan():
    p = problem(3, 2, holes="own")
    missing = np.isnan(p.z)
    found = statespace.smooth(p.model(), np.where(missing, 7.0, p.z), missing=missing)
    assert_smoothed(found, p.expected(kalman.conditional_smoothed))


def test_is_the_sum_rule_of_expectations_kept():
    """E[x[t+1] − F x[t] | z] by lag-one covariances gives a positive estimate of Q, as EM needs."""
    p = problem(3, 2, steps=14)
    found = p.smooth()
    means, chols = np.asarray(found.smoothed_means), np.asarray(found.smoothed_chols)
    second = chols @ kalman.adjoint(chols) + means[:, :, None] * np.conj(means[:, None])
    lag = np.asarray(found.lag_one_covariances) + means[1:, :, None] * np.conj(means[:-1, None])
    F = p.matrices["F"]
    total = second[1:] - lag @ kalman.adjoint(F) - F @ kalman.adjoint(lag)
    total = total + F @ second[:-1] @ kalman.adjoint(F)
    assert np.linalg.eigvalsh(total).min() > -1e-12


@eagerly_and_in_a_graph(
    ("shape", "holes"),
    [*itertools.product([(6,), (2, 3), ()], ["", "own"])],
    [((2, 3), "own")],
    [((), ""), ((2, 3), "own")],
)
def test_matrices_are_of_each_series_in_and_out_of_a_graph(shape, holes, eagerly):
    """Series that share them hold them once."""
    p = problem(2, 2, batch=int(np.prod(shape)) if shape else None, holes=holes)
    z, model = p.z.reshape(*shape, *p.z.shape[-2:]), p.model()

    def smoothed(z):
        return statespace.smooth(model, z)

    call = smoothed if eagerly else tf.function(smoothed, autograph=False)
    results = [smoothed(z), call(tf.constant(z))]
    for name in ("smoothed_chols", "lag_one_covariances", "gains"):
        found, other = (getattr(result, name) for result in results)
        assert found.shape[:-3] == shape
        np.testing.assert_allclose(other, found, rtol=1e-11, atol=1e-13)
        for i in np.ndindex(shape):
            alone = getattr(smoothed(z[i]), name)
            np.testing.assert_allclose(found[i], alone, rtol=1e-11, atol=1e-13)
