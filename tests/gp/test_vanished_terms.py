"""Terms of a sum that a fit has made nothing of."""

import warnings

import numpy as np
import pytest

import cgp
from cgp.kernels import RBF, Constant, Matern32, Rotation
from tests.gp.problems import complex_normals

X = np.arange(60.0)
NOISE = 0.3 * complex_normals(np.random.default_rng(0), 60)
SLOW = np.exp(2j * np.pi * 0.01 * X)
TONE = 0.5 * np.exp(2j * np.pi * 0.3 * X)


def stuck():
    """A kernel whose second term is too weak for its gradient to tell."""
    tone = Constant(1e-12, name="tone") * Rotation(0.3)
    return RBF(1.0, 10.0) + tone


def test_is_a_term_that_vanished_told():
    gp = cgp.ExactGP(stuck())
    with pytest.warns(RuntimeWarning, match=r"tone\.variance = .*, which 60 samples in noise of"):
        gp.fit(X, SLOW + TONE + NOISE, verbose=0)


@pytest.mark.long
def test_does_the_remedy_find_a_term_that_vanished():
    gp = cgp.ExactGP(stuck())
    gp.fit(X, SLOW + TONE + NOISE, restarts=8, verbose=0)
    assert 0.1 < gp.parameters()["tone.variance"] < 1.0


@pytest.mark.long
def test_is_nothing_said_of_its_length_scale():
    """Nor that `Constant` would do in its place."""
    kernel = RBF(1.0, 10.0) + Matern32(1e-12, 1e7, name="weak")
    with pytest.warns(RuntimeWarning, match=r"weak\.variance") as warned:
        cgp.ExactGP(kernel).fit(X, SLOW + NOISE, verbose=0)
    assert not any("Constant()" in str(warning.message) for warning in warned)


FIXED = {"variance": 1e-12, "fixed": "variance"}


@pytest.mark.parametrize(
    ("term", "tone"),
    [
        pytest.param(lambda: Constant() * Rotation(0.3), TONE, marks=pytest.mark.long),
        pytest.param(
            lambda: Constant(**FIXED) * Rotation(0.3, fixed="frequency"),
            0.0,
            marks=pytest.mark.long,
        ),
        pytest.param(lambda: Constant(1e-12), 0.0, marks=pytest.mark.long),
    ],
)
def test_are_terms_that_are_seen_or_fixed_left_alone(term, tone):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cgp.ExactGP(RBF() + term()).fit(X, SLOW + tone + NOISE, verbose=0)
