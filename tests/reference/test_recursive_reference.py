"""The recursive references against each other and against one dense normal."""

import numpy as np
import pytest

from tests.gp.problems import problems
from tests.gp.recursive.streams import noise, refitted, stream
from tests.long_cases import long_except
from tests.reference import gaussian_process, recursive

all_improper_by_default = pytest.mark.parametrize(
    "problem",
    [
        pytest.param(p, id=p.name, marks=() if p.name == "all improper" else pytest.mark.long)
        for p in problems()
    ],
)


def flat(steps):
    return np.hstack([*steps.predicted, steps.innovation, *steps.filtered])


@all_improper_by_default
@pytest.mark.parametrize("forgetting", long_except([1.0, 0.9], 0.9))
def test_is_a_tracker_that_leaves_nothing_out_an_exact_process_of_input_and_time(
    problem, forgetting
):
    x, z = stream(n=25)
    found = recursive.Tracker(problem.pair, noise(problem), None, forgetting).process(x[:, None], z)
    expected = refitted(problem, x, z, forgetting=forgetting)
    np.testing.assert_allclose(flat(found), flat(expected), rtol=1e-9, atol=1e-9)


@all_improper_by_default
def test_is_the_density_of_a_block_the_quotient_of_two_likelihoods(problem):
    x, z = stream(n=25)
    k, c = problem.pair(x[:, None], x[:, None])
    with_noise = recursive.with_noise(k, c, *noise(problem))
    likelihoods = [
        gaussian_process.log_marginal_likelihood(z[:n], *(m[:n, :n] for m in with_noise))
        for n in (15, 25)
    ]
    found = recursive.block_log_density(z, k, c, noise(problem), 15)
    np.testing.assert_allclose(found, likelihoods[1] - likelihoods[0], rtol=1e-11)


@all_improper_by_default
def test_do_both_references_give_one_density_of_a_block(problem):
    x, z = stream(n=25)
    tracker = recursive.Tracker(problem.pair, noise(problem), None, 0.9)
    tracker.process(x[:15, None], z[:15])
    found = tracker.block_log_density(x[15:, None], z[15:])
    k, c = problem.pair(x[:, None], x[:, None])
    expected = recursive.block_log_density(z, k, c, noise(problem), 15, forgetting=0.9)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert tracker.size == (~np.isnan(z[:15])).sum()


@all_improper_by_default
def test_does_leaving_a_point_out_keep_what_the_others_know_of_the_signal(problem):
    """The moments of f_ε at the other points, and nothing beyond: leaving out is not unlearning."""
    x, z = stream(n=18)
    tracker = recursive.Tracker(problem.pair, noise(problem))
    tracker.process(x[:, None], z)
    before = tracker.mean, tracker.covariance
    costs = tracker.costs()
    i = tracker.least_costly()
    assert costs[i] == costs.min() > 0
    tracker.leave_out(i)
    kept = np.delete(np.arange(len(before[0])), [i, len(costs) + i])
    np.testing.assert_array_equal(tracker.mean, before[0][kept])
    np.testing.assert_array_equal(tracker.covariance, before[1][np.ix_(kept, kept)])
    # the squared norm of the function that is lost, by the norms before and after
    norm = np.conj(tracker.mean) @ np.linalg.solve(tracker.prior_of_basis(), tracker.mean)
    whole = recursive.Tracker(problem.pair, noise(problem))
    whole.process(x[:, None], z)
    norm_before = np.conj(whole.mean) @ np.linalg.solve(whole.prior_of_basis(), whole.mean)
    # costs of 1e-4 by the inverse of a matrix whose condition is 1e6: 1e-7 is rounding
    np.testing.assert_allclose(norm_before - norm, costs[i], rtol=1e-5)


def test_does_a_window_hold_the_last_that_were_seen():
    z = np.array([1, np.nan, 2, 3, np.nan, 4]) + 0j
    assert recursive.last_seen(z, 3).tolist() == [2, 3, 5]
    assert recursive.last_seen(z, None).tolist() == [0, 2, 3, 5]
    assert recursive.last_seen(z[:2], 3).tolist() == [0]


def test_does_a_forgotten_signal_lose_what_was_known_at_the_rate_of_forgetting():
    k = recursive.forgotten(np.ones((5, 5)), 0.81)
    np.testing.assert_allclose(k[0], 0.9 ** np.arange(5.0))
    assert np.linalg.eigvalsh(k).min() > 0
