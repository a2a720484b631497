"""L-BFGS, whose first trial makes a transition unstable, comes back and learns."""

import numpy as np
import pytest

import cgp
from cgp import statespace

TRUE = statespace.LinearGaussian(
    F=[[0.98 * np.exp(0.4j)]], Q=[[0.04]], H=[[1.0]], R=[[0.5]], initial_covariance=[[1.0]]
)


@pytest.mark.parametrize("learn", [("F",), ("F", "Q", "R")])
def test_does_a_transition_that_starts_elsewhere_learn(learn):
    z = statespace.sample(TRUE, 200, seed=1)[1].numpy()
    start = TRUE.replace(F=[[0.9 * np.exp(0.3j)]], Q=[[0.1]], R=[[0.3]])
    kf = cgp.KalmanFilter(start, learn=learn)
    kf.compile(cgp.optimizers.LBFGS())
    kf.fit(z, verbose=0)
    assert abs(np.angle(kf.model.F.numpy()[0, 0]) - 0.4) < 0.05
    if learn != ("F",):
        assert statespace.filter(kf.model, z).log_likelihood > (
            statespace.filter(TRUE, z).log_likelihood
        )
