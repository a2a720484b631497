"""R-hat and effective sizes against loops in NumPy, and against ArviZ where it is installed."""

import numpy as np
import pytest

from cgp.gp.sampling.diagnostics import effective_size, r_hat
from tests.reference import chains as reference


def autoregressive(rho, *shape, seed=0):
    """Stationary chains of a correlation, variance 1."""
    noise = np.random.default_rng(seed).normal(size=shape)
    found = noise.copy()
    for t in range(1, shape[1]):
        found[:, t] = rho * found[:, t - 1] + np.sqrt(1.0 - rho**2) * noise[:, t]
    return found


def one_stuck(draws):
    draws[3] = 0.0
    return draws


CASES = {
    "independent": autoregressive(0.0, 4, 120),
    "correlated": autoregressive(0.9, 4, 121),
    "alternating": autoregressive(-0.7, 4, 120),
    "apart": autoregressive(0.5, 4, 100) + 0.5 * np.arange(4)[:, None],
    "of other widths": autoregressive(0.0, 4, 120) * np.array([1, 1, 1, 4])[:, None],
    "one of them stuck": one_stuck(autoregressive(0.0, 4, 120)),
    "drifting": autoregressive(0.0, 4, 120) + np.linspace(0.0, 2.0, 120),
    "a single one": autoregressive(0.5, 1, 150),
    "two": autoregressive(0.97, 2, 120),
    "without moments": np.random.default_rng(1).standard_cauchy((4, 100)),
    "with ties": np.round(autoregressive(0.5, 4, 100)),
    "of four": autoregressive(0.0, 2, 4),
    "of five": autoregressive(0.0, 2, 5),
    "of nine": autoregressive(0.9, 3, 9),
}


@pytest.mark.parametrize("case", CASES)
def test_are_diagnostics_those_of_loops(case):
    draws = CASES[case]
    assert r_hat(draws) == pytest.approx(reference.r_hat(draws), rel=1e-10)
    expected = reference.bulk_effective_size(draws)
    assert effective_size(draws) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("case", CASES)
def test_are_diagnostics_those_of_arviz(case):
    arviz = pytest.importorskip("arviz")
    draws = CASES[case]
    if len(draws) > 1:  # of a single chain ArviZ has none
        assert r_hat(draws) == pytest.approx(arviz.rhat(draws), rel=1e-10)
    assert effective_size(draws) == pytest.approx(arviz.ess(draws, method="bulk"), rel=1e-10)


@pytest.mark.parametrize("case", ["apart", "of other widths", "one of them stuck", "drifting"])
def test_does_r_hat_tell_chains_that_disagree(case):
    assert r_hat(CASES[case]) > 1.1


def test_has_a_chain_that_drifts_few_effective_draws():
    assert effective_size(CASES["drifting"]) < 40 < 300 < effective_size(CASES["independent"])


def test_do_draws_that_are_all_equal_say_nothing():
    assert np.isnan(r_hat(np.ones((4, 100))))
    assert np.isnan(effective_size(np.ones((4, 100))))
