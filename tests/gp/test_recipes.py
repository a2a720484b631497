"""Published recipes of simulated signals: what a GP is to reach on them."""

import numpy as np
import pytest

import cgp
from cgp.datasets import channel_switch, soft_channel
from cgp.kernels import RBF

pytestmark = pytest.mark.long


def power(values):
    return np.mean(np.abs(values) ** 2)


def decibels(ratio):
    return 10 * np.log10(ratio)


@pytest.mark.parametrize(
    ("rho", "bar", "linear_gain"), [(None, -9.5, 0.7), (0.1, -11.5, 2.5)], ids=["circular", "0.1"]
)
def test_a_proper_kernel_equalises_the_soft_channel_from_300_symbols(rho, bar, linear_gain):
    proper, linear = [], []
    for seed in range(4):
        x, z = soft_channel(5300, seed, rho)
        gp = cgp.ExactGP(RBF(1.0, np.full(10, 5.0)), noise_variance=0.05)
        gp.compile(optimizer=cgp.optimizers.LBFGS(ftol=1e-7))
        gp.fit(x[:300], z[:300], verbose=0)
        proper.append(power(gp.predict(x[300:])["mean"] - z[300:]))
        windows = x[:, :5] + 1j * x[:, 5:]
        weights = np.linalg.lstsq(windows[:300], z[:300], rcond=None)[0]
        linear.append(power(windows[300:] @ weights - z[300:]))
    assert decibels(np.mean(proper)) <= bar
    assert decibels(np.max(proper)) <= bar + 0.2  # no lucky draw
    assert -9.3 < decibels(np.mean(linear)) < -8.6
    assert decibels(np.mean(linear) / np.mean(proper)) > linear_gain


# Where the budget itself predicts well before the switch, found on other seeds: a variance far
# below the signal's, as forgetting gives some of it back at each step. At the likeliest parameters
# of that part, about 0.32 and 2.5, it is 0.9 dB worse, and 2 dB behind growing, which has room for
# what fifty points in ten dimensions cannot hold.
SWITCHING = {"variance": 0.03, "lengthscale": 3.0}
CHECKED = (100, 400, 450, 500, 550, 600, 700, 800, 1000, 1500)
STREAMS = 6


@pytest.fixture(scope="module")
def tracking():
    """Mean squared errors `[2, STREAMS, len(CHECKED)]` of budget and growing, and the noise's."""
    streams = [channel_switch(seed) for seed in range(100, 100 + STREAMS)]
    x, z, x_test, before, after = (
        np.stack([getattr(stream, name) for stream in streams])
        for name in ("x", "z", "x_test", "before", "after")
    )
    noise_variance = np.mean([stream.noise_variance for stream in streams])
    budget = cgp.RecursiveGP(
        RBF(**SWITCHING), noise_variance, capacity=50, policy="budget", forgetting=0.999
    )
    growing = cgp.ExactGP(RBF(**SWITCHING), noise_variance)  # of all so far: what growing is
    errors = np.empty((2, STREAMS, len(CHECKED)))
    done = 0
    for i, n in enumerate(CHECKED):
        budget.process(x[:, done:n], z[:, done:n], verbose=0)
        done = n
        now = before if n <= 500 else after
        mean = budget.predict(x_test)["mean"]
        errors[0, :, i] = np.mean(np.abs(mean - now) ** 2, axis=1)
        for j in range(STREAMS):  # one at a time, for the memory of covariances
            growing.condition(x[j, :n], z[j, :n])
            mean = growing.predict(x_test[j])["mean"]
            errors[1, j, i] = np.mean(np.abs(mean - now[j]) ** 2)
    return errors, noise_variance


def test_fifty_points_track_nearly_as_well_as_all_of_them(tracking):
    (budget, growing), noise_variance = tracking
    before = [i for i, n in enumerate(CHECKED) if 400 <= n <= 500]
    # Of noisy test points, as in the figure of the recipe: an output is what there is to predict.
    budget, growing = (
        decibels(np.mean(errors[:, before], axis=0) + noise_variance)
        for errors in (budget, growing)
    )
    assert np.all(budget < growing + 1.0)
    assert np.all(growing < decibels(noise_variance) + 5.0)  # growing has learned something


def test_a_tracker_that_forgets_recovers_from_a_switch_and_a_growing_gp_does_not(tracking):
    (budget, growing), _ = tracking
    budget, growing = (
        dict(zip(CHECKED, decibels(errors.mean(axis=0)), strict=True))
        for errors in (budget, growing)
    )
    for n, advantage in ((550, 3.0), (600, 6.0), (700, 9.0), (800, 9.0), (1000, 8.0), (1500, 6.0)):
        assert budget[n] < growing[n] - advantage, n
    # The budget is nearly back after 300 samples. A thousand are too few for the other, which holds
    # the 500 of the first channel for as good as they ever were.
    assert budget[800] < budget[500] + 4.0
    assert growing[1500] > growing[500] + 6.0
