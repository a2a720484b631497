"""What is said of draws that are not yet those of a posterior."""

import numpy as np
import pytest

from cgp.gp.sampling.diagnostics import convergence_problems, effective_size, r_hat
from cgp.gp.sampling.nuts import Chains


def said(points, acceptance=0.8, diverged=0):
    """The problems of draws `[chains, draws]` of one hyperparameter, as one text."""
    shape = points.shape
    chains = Chains(
        points[..., None],
        np.zeros(shape),
        np.arange(points.size).reshape(shape) < diverged,
        np.broadcast_to(acceptance, shape),
        np.ones(shape[1], int),
    )
    of = {"scale": np.asarray(r_hat(points))}, {"scale": np.asarray(effective_size(points))}
    return "; ".join(convergence_problems(chains, *of))


def good():
    return np.random.default_rng(0).normal(size=(4, 400))


def test_is_nothing_said_of_good_chains():
    assert said(good()) == ""


@pytest.mark.parametrize("chain", [0, 3])
def test_is_a_chain_named_that_never_moved(chain):
    points = good()
    points[chain] = 0.3
    text = said(points)
    assert f"chain {chain} never moved" in text
    assert "R-hat is above 1.01 of scale" in text


def test_are_draws_doubted_that_are_all_equal():
    text = said(np.ones((2, 50)))
    assert "chains 0, 1 never moved" in text
    assert "R-hat is above 1.01 of scale (nan)" in text
    assert "fewer than 200 independent ones, 100 a chain, of scale (nan)" in text


def test_are_constant_elements_beside_others_left_out():
    """As the gain of a reference, which is 1."""
    shape = good().shape
    diverged, acceptance = np.zeros(shape, bool), np.full(shape, 0.8)
    chains = Chains(good()[..., None], np.zeros(shape), diverged, acceptance, np.ones(400, int))
    hats, sizes = {"mixing": np.array([np.nan, 1.002])}, {"mixing": np.array([np.nan, 900.0])}
    assert convergence_problems(chains, hats, sizes) == []
    hats["mixing"][1] = 1.2
    assert "R-hat is above 1.01 of mixing (1.200)" in convergence_problems(chains, hats, sizes)[0]


def test_are_chains_named_that_accepted_little():
    acceptance = np.array([0.8, 0.1, 0.8, 0.15])[:, None]
    assert said(good(), acceptance).startswith("chains 1, 3 accepted less than 0.2")


def test_are_few_effective_draws_and_divergences_counted():
    points = np.repeat(good()[:, :50], 8, axis=1)  # each draw eight times
    assert "fewer than 400 independent ones, 100 a chain, of scale (" in said(points)
    assert said(good(), diverged=3).startswith("3 of 1600 steps diverged")
