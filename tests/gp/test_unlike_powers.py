"""Fits of series of unlike powers, and of a single sample."""

import numpy as np
import pytest

import cgp
from cgp.kernels import Matern12, Matern32, Rotation
from tests.gp.problems import started

X = np.arange(40.0)
TRUTH = cgp.ExactGP(Matern32(1.0, 8.0) * Rotation(0.2), noise_variance=0.02)
PAIR = TRUTH.sample(X, 2, seed=1, observed=True)


@pytest.mark.parametrize(
    "kind", [pytest.param(cgp.ExactGP, marks=pytest.mark.long), cgp.StateSpaceGP]
)
def test_a_fit_of_series_of_unlike_powers_names_them_and_a_remedy_that_works(kind):
    z = PAIR * np.array([[1.0], [1000.0]])
    gp = kind(Matern32() * Rotation())
    with pytest.warns(
        RuntimeWarning, match=r"powers E\|z\|² from [\d.]+ to [\d.]+e\+0[56].*divide each series by"
    ):
        gp.fit(X, z, verbose=0)
    scale = np.sqrt(np.mean(np.abs(z) ** 2, axis=-1, keepdims=True))
    again = kind(Matern32() * Rotation())
    again.fit(X, z / scale, verbose=0)  # warnings are errors
    found = scale[:, 0] ** 2 * float(again.noise_variance)
    np.testing.assert_allclose(found, [0.02, 0.02e6], rtol=0.5)


@pytest.mark.parametrize(
    "fit",
    [started, pytest.param(lambda gp, x, z: gp.fit(x, z, verbose=0), marks=pytest.mark.long)],
    ids=["start", "optimum"],
)
def test_series_whose_powers_differ_by_chance_are_left_alone(fit):
    """A slow fading has one value a series, whose power is exponential."""
    truth = cgp.ExactGP(Matern12(1.0, 500.0), noise_variance=0.01)
    z = truth.sample(X, 30, seed=3, observed=True)
    powers = np.mean(np.abs(z) ** 2, axis=-1)
    assert powers.max() > 30 * powers.min()
    gp = cgp.ExactGP(Matern12(1.0, 400.0), noise_variance=0.02)
    fit(gp, X, z)  # warnings are errors


def test_one_sample_is_refused():
    for gp in (cgp.ExactGP(Matern32()), cgp.StateSpaceGP(Matern32(), noise_variance=0.1)):
        for x, z in (([0.0], [1j]), ([0.0, 1.0], [np.nan, 1j])):
            with pytest.raises(ValueError, match="one sample that is not missing"):
                gp.fit(x, z, verbose=0)
    window = cgp.RecursiveGP(Matern32(), capacity=4)
    with pytest.raises(ValueError, match="one sample that is not missing"):
        window.fit([0.0], [1j], verbose=0)
    kf = cgp.KalmanFilter(
        cgp.statespace.LinearGaussian([[0.9 + 0j]], [[0.1]], [[1.0]], [[0.1]]), learn="F"
    )
    with pytest.raises(ValueError, match="one element that is not missing"):
        kf.fit(np.array([1j]), verbose=0)


@pytest.mark.long
def test_one_sample_is_taken_where_it_tells_something():
    window = cgp.RecursiveGP(Matern32(), capacity=4)
    window.compile(run_eagerly=True)
    window.fit([0.0, 1.0], [1j, 0.9j], verbose=0)
    window.fit([2.0], [0.8j], verbose=0)  # beside a window one sample tells something
    kf = cgp.KalmanFilter(
        cgp.statespace.LinearGaussian([[0.9 + 0j]], [[0.1]], [[1.0]], [[0.1]]), learn="F"
    )
    kf.evaluate(np.array([1j]), verbose=0)
