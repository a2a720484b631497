"""Many steps with matrices of their own, gates and late observations."""

import os
from pathlib import Path

import numpy as np
import pytest

import cgp
from cgp import statespace
from tests.statespace.problems import square

STEPS = 20_000


def resident():
    """Bytes of resident memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the memory of Linux")
def test_do_steps_neither_drift_nor_grow():
    """Beside one filter of the whole series, in order, without what the gate skipped."""
    rng = np.random.default_rng(0)
    model = statespace.LinearGaussian(
        np.diag([0.99, 0.95 * np.exp(0.3j)]), 0.1 * np.eye(2), [[1.0, 1.0]], [[0.5]]
    )
    H = np.exp(2j * np.pi * rng.uniform(size=(STEPS, 1, 2)))
    R = rng.uniform(0.2, 2.0, (STEPS, 1, 1)) + 0j
    F = np.asarray(model.F) * np.exp(0.1j * rng.normal(size=(STEPS, 1, 1)))
    drawn = model.replace(F=F, H=H, R=R, initial_covariance=np.eye(2))
    _, z = statespace.sample(drawn, STEPS, seed=1)
    z = z.numpy()
    false_alarms = rng.uniform(size=STEPS) < 0.01
    z[false_alarms] += 1e3
    late = ~false_alarms & (rng.uniform(size=STEPS) < 0.1)
    late[-3:] = False
    kf = cgp.KalmanFilter(drawn.replace(F=model.F, H=model.H, R=model.R), horizon=3)
    kf.set_state(np.zeros(2), np.eye(2))
    skipped, memory = np.zeros(STEPS, bool), 0
    for t in range(STEPS):
        now = np.full(1, np.nan + 0j) if late[t] else z[t]
        skipped[t] = kf.step(now, F=F[t], H=H[t], R=R[t], gate=0.99999).outside_gate
        if t >= 2 and late[t - 2]:
            kf.step(z[t - 2], late_by=2, H=H[t - 2], R=R[t - 2])
        if t == STEPS // 10:
            memory = resident()
    assert skipped[false_alarms].all()
    assert skipped.sum() < 1.05 * false_alarms.sum() + 20
    assert resident() - memory < 20e6
    z[skipped] = np.nan
    in_order = statespace.filter(drawn, z)
    mean, chol = F[-1] @ in_order.filtered_means.numpy()[-1], F[-1] @ in_order.filtered_chols[-1]
    state = kf.state
    np.testing.assert_allclose(state.mean, mean, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(
        square(state.chol), square(chol) + 0.1 * np.eye(2), rtol=1e-10, atol=1e-10
    )
