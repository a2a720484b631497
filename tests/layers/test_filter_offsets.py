"""A filter that is fitted to observations far from zero."""

import warnings

import numpy as np
import pytest
from scipy.linalg import block_diag

import cgp
from tests.gp.problems import complex_normals

F = 0.95 * np.exp(0.1j)
OFFSET = 1000 + 500j
MODEL = cgp.statespace.LinearGaussian([[F]], [[1.0]], [[1.0]], [[0.1]])
WITH_CONSTANT = cgp.statespace.LinearGaussian(
    block_diag(F, 1.0),
    block_diag(1.0, 0.0),
    [[1.0, 1.0]],
    [[0.1]],
    [0.0, 0.0],
    block_diag(10.0, 1e7),
)


def observations():
    z, state = [], 0.0
    for driven in complex_normals(np.random.default_rng(0), 200, 2):
        state = F * state + driven[0]
        z.append(state + 0.3 * driven[1])
    return np.array(z)


def test_is_an_offset_told_and_do_the_remedies_forecast():
    z = observations()
    kf = cgp.KalmanFilter(MODEL, learn="Q")
    with pytest.warns(
        RuntimeWarning, match=r"far from zero: its mean is (999|1000).*a constant state"
    ):
        kf.fit(z + OFFSET, epochs=1, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = cgp.KalmanFilter(MODEL, learn="Q").predict(np.append(z, [np.nan] * 10))
        made = cgp.KalmanFilter(WITH_CONSTANT, learn="R")
        made.compile("sgd")
        made.optimizer.learning_rate = 0.0
        made.fit(z + OFFSET, epochs=1, verbose=0)
    states = made.predict(np.append(z + OFFSET, [np.nan] * 10))["predicted_mean"]
    expected = plain["predicted_mean"].ravel()[-1]
    observed = states.reshape(-1, 2)[-1].sum() - OFFSET
    assert abs(observed - expected) < 1.0


@pytest.mark.parametrize("F", [1.0, 0.999 + 0j])
def test_is_a_walk_far_from_zero_left_alone(F):
    walk = cgp.statespace.LinearGaussian([[F]], [[1.0]], [[1.0 + 0j]], [[0.1]], [0.0], [[1e7]])
    kf = cgp.KalmanFilter(walk, learn="R")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kf.fit(observations() + OFFSET, epochs=1, verbose=0)
