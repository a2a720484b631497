"""Observations that come late, and the state of earlier times given what came since."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import cgp
from cgp import statespace
from tests.layers.models import cores
from tests.reference import kalman
from tests.statespace.problems import improper_parts, problem, square

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def improper():
    covariances, parts = improper_parts(2, 2)
    p = problem(2, 2, holes="own").changed(**covariances)
    return p, statespace.widely_linear(p.model(), **parts)


def made(kind, batch=None):
    if kind == "improper":
        return improper()
    p = problem(3, 2, kind, holes="own", batch=batch, inputs=1)
    return p, p.model()


def in_order(model, p, z, horizon=0, **matrices):
    kf = cgp.KalmanFilter(model, horizon=horizon)
    for t in range(z.shape[-2]):
        inputs = None if p.inputs is None else p.inputs[..., t, :]
        kf.step(z[..., t, :], inputs=inputs, **{k: a[t] for k, a in matrices.items()})
    return kf


def assert_same_state(a, b):
    np.testing.assert_allclose(a.mean, b.mean, **CLOSE)
    np.testing.assert_allclose(square(a.chol), square(b.chol), **CLOSE)


@cores
@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("kind", ["complex128", "float64", "improper"])
def test_is_a_late_observation_as_one_in_order(kind, batch, run):
    """Whole observations, and single components, in any order of arrival within the horizon."""
    if kind == "improper" and batch:
        pytest.skip("the improper problem has one series")
    p, model = made(kind, batch)
    rng = np.random.default_rng(1)
    expected = in_order(model, p, p.z)

    def late():
        kf = cgp.KalmanFilter(model, horizon=4)
        delays = rng.integers(0, 4, p.z.shape[-2])
        for t in range(p.z.shape[-2] + 4):
            if t < p.z.shape[-2]:
                z = p.z[..., t, :] if delays[t] == 0 else np.full_like(p.z[..., t, :], np.nan)
                if delays[t] == 3:  # a part of it comes at once
                    z[..., 0] = p.z[..., t, 0]
                kf.step(z, inputs=None if p.inputs is None else p.inputs[..., t, :])
            latest = min(t, p.z.shape[-2] - 1)
            for earlier in np.flatnonzero(np.arange(p.z.shape[-2]) + delays == t):
                if delays[earlier]:
                    z = p.z[..., earlier, :].copy()
                    if delays[earlier] == 3:
                        z[..., 0] = np.nan
                    step = kf.step(z, late_by=latest - earlier)
                    np.testing.assert_array_equal(
                        np.isnan(step.innovation), np.isnan(p.z[..., earlier, :])
                    )
        return kf

    assert_same_state(run(late).state, expected.state)


@cores
def test_is_a_second_observation_of_a_time_an_update_of_its_state(run):
    """Of another sensor, with H and R of its own: as one observation of both."""
    p, model = made("complex128")
    rng = np.random.default_rng(2)
    H, R = rng.normal(size=(2, 3)) + 1j * rng.normal(size=(2, 3)), np.diag([0.5, 2.0])
    z = rng.normal(size=2) + 1j * rng.normal(size=2)

    def late():
        kf = cgp.KalmanFilter(model, horizon=3)
        for t in range(8):
            kf.step(p.z[t], inputs=p.inputs[t])
            if t == 6:
                kf.step(z, late_by=2, H=H, R=R)
                kf.step(2 * z, late_by=0, H=H, R=R)
        return kf

    reference = p.reference()
    covariance, mean = reference.covariance, reference.mean
    for t in range(8):
        seen = [(p.z[t], reference.H[t], reference.R[t])]
        seen += [(z, H, R)] * (t == 4) + [(2 * z, H, R)] * (t == 6)
        for observation, h, r in seen:
            observed = ~np.isnan(observation)
            h, r = h[observed], r[np.ix_(observed, observed)]
            if observed.any():
                s = h @ covariance @ kalman.adjoint(h) + r
                gain = covariance @ kalman.adjoint(h) @ np.linalg.inv(s)
                mean = mean + gain @ (observation[observed] - h @ mean)
                covariance = covariance - gain @ s @ kalman.adjoint(gain)
        mean = reference.F[t] @ mean + reference.drift[t]
        covariance = reference.F[t] @ covariance @ kalman.adjoint(reference.F[t]) + reference.Q[t]
    state = run(late).state
    np.testing.assert_allclose(state.mean, mean, **CLOSE)
    np.testing.assert_allclose(square(state.chol), covariance, **CLOSE)


@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("kind", ["complex128", "float64", "improper"])
def test_is_a_lagged_state_the_smoothed_one(kind, batch):
    if kind == "improper" and batch:
        pytest.skip("the improper problem has one series")
    p, model = made(kind, batch)
    kf = cgp.KalmanFilter(model, horizon=4)
    for t in range(p.z.shape[-2]):
        kf.step(p.z[..., t, :], inputs=None if p.inputs is None else p.inputs[..., t, :])
        if t not in (0, 3, 9):
            continue
        past = p._replace(
            z=p.z[..., : t + 1, :],
            inputs=None if p.inputs is None else p.inputs[..., : t + 1, :],
        )
        smoothed = statespace.smooth(model, past.z, inputs=past.inputs)
        if kind != "improper":
            means = past.expected(kalman.smooth).means
            np.testing.assert_allclose(smoothed.smoothed_means, means, **CLOSE)
        for k in range(min(t, 4) + 1):
            lagged = kf.lag(k)
            np.testing.assert_allclose(lagged.mean, smoothed.smoothed_means[..., t - k, :], **CLOSE)
            np.testing.assert_allclose(
                square(lagged.chol), square(smoothed.smoothed_chols[..., t - k, :, :]), **CLOSE
            )


def test_are_lagged_states_of_moving_models_and_late_observations_right():
    p = problem(2, 1, varying="FQHR")
    fixed = p.changed(**{name: p.matrices[name][0] for name in "FQHR"}).model()
    kf = cgp.KalmanFilter(fixed, horizon=5)
    steps = p.z.shape[0]
    for t in range(steps):
        z = np.full(1, np.nan + 0j) if t == steps - 3 else p.z[t]
        own = {name: p.matrices[name][t] for name in "FQHR"}
        kf.step(z, **own)
    kf.step(
        p.z[-3], late_by=2, H=p.matrices["H"][-3], R=p.matrices["R"][-3]
    )  # an update of its own, as it has matrices
    expected = p.expected(kalman.smooth)
    for k in range(6):
        lagged = kf.lag(k)
        np.testing.assert_allclose(lagged.mean, expected.means[-1 - k], **CLOSE)
        np.testing.assert_allclose(square(lagged.chol), expected.covariances[-1 - k], **CLOSE)


def test_does_a_block_leave_its_last_steps():
    p, model = made("complex128")
    kf, one_by_one = (cgp.KalmanFilter(model, horizon=3) for _ in range(2))
    block = kf.process(p.z, inputs=p.inputs)
    plain = cgp.KalmanFilter(model).process(p.z, inputs=p.inputs)
    np.testing.assert_allclose(block.filtered.mean, plain.filtered.mean, **CLOSE)
    np.testing.assert_allclose(block.innovation_covariance, plain.innovation_covariance, **CLOSE)
    for t in range(p.z.shape[0]):
        one_by_one.step(p.z[t], inputs=p.inputs[t])
    assert_same_state(kf.lag(3), one_by_one.lag(3))


def test_does_a_model_of_functions_fill_in_what_was_missing():
    def model():
        return statespace.NonlinearGaussian(
            lambda x: x + 0.1 * x**3,
            lambda x: x,
            np.diag([0.1, 0.1]),
            np.diag([0.1, 0.1]),
            np.zeros(2),
            np.eye(2),
        )

    z = np.random.default_rng(4).normal(size=(4, 2)) * 0.3
    kf, expected = cgp.KalmanFilter(model(), horizon=2), cgp.KalmanFilter(model())
    for t in range(4):
        expected.step(z[t])
        kf.step(z[t] if t != 2 else np.array([z[t, 0], np.nan]))
    kf.step(np.array([np.nan, z[2, 1]]), late_by=1)
    assert_same_state(kf.state, expected.state)
    with pytest.raises(ValueError, match="observed already"):
        kf.step(z[2], late_by=1)
    assert_same_state(kf.state, expected.state)


def test_is_memory_of_the_horizon_alone():
    p, model = made("complex128")
    kf = cgp.KalmanFilter(model, horizon=3)
    for t in range(10):
        kf.step(np.ones(2) + 0j, inputs=p.inputs[t])
        kf.step(np.ones(2) + 0j, late_by=0)
    assert len(kf.stream.past.steps) == 8  # two updates at each of four times


def test_is_what_lies_beyond_the_horizon_refused():
    p, model = made("complex128")
    kf = cgp.KalmanFilter(model, horizon=2)
    with pytest.raises(ValueError, match="the filter keeps 0"):
        kf.lag(0)
    for t in range(5):
        kf.step(p.z[t], inputs=p.inputs[t])
    before = kf.state
    with pytest.raises(ValueError, match=r"late_by reaches 3 steps .* horizon of 2"):
        kf.step(p.z[0], late_by=3)
    with pytest.raises(ValueError, match="steps reaches 3"):
        kf.lag(3)
    for k in (-1, 0.5):
        with pytest.raises(ValueError, match="whole number"):
            kf.lag(k)
    with pytest.raises(ValueError, match="not for inputs: inputs, F and Q are of the step"):
        kf.step(p.z[0], late_by=1, inputs=p.inputs[0])
    with pytest.raises(ValueError, match="not for F, Q: inputs, F and Q are of the step"):
        kf.step(p.z[0], late_by=1, F=np.eye(3), Q=np.eye(3))
    assert_same_state(kf.state, before)
    kf.set_state(*before)  # after which there is no past
    with pytest.raises(ValueError, match="keeps 0"):
        kf.lag(0)
    with pytest.raises(ValueError, match="give it a horizon"):
        in_order(model, p, p.z[:2]).lag(0)
    with pytest.raises(ValueError, match="horizon must be a whole number"):
        cgp.KalmanFilter(model, horizon=-1)


def test_is_the_state_as_it_was_where_a_late_observation_fails():
    p, model = made("complex128")
    kf = cgp.KalmanFilter(model, horizon=2)
    for t in range(3):
        kf.step(p.z[t], inputs=p.inputs[t])
    before, lagged = kf.state, kf.lag(1)
    with pytest.raises(ValueError, match="finite"):
        kf.step(np.full(2, 1e200 + 0j), late_by=1, H=np.full((2, 3), 1e200))
    assert_same_state(kf.state, before)
    assert_same_state(kf.lag(1), lagged)


def test_do_late_observations_of_one_thread_and_steps_of_another_lose_nothing():
    model = statespace.LinearGaussian([[1.0]], [[0.1]], [[1.0]], [[0.2 + 0j]], [0.0], [[1.0]])
    kf = cgp.KalmanFilter(model, horizon=8)
    kf.process(np.zeros(2, complex))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # between nearly any two instructions
    try:
        with ThreadPoolExecutor(2) as pool:
            in_order = pool.submit(lambda: [kf.step(complex(t)) for t in range(200)])
            late = pool.submit(lambda: [kf.step(1j, late_by=1) for _ in range(100)])
            in_order.result(), late.result()
    finally:
        sys.setswitchinterval(interval)
    latest = [step.sample.z[0] for step in kf.stream.past.steps if step.advances]
    np.testing.assert_array_equal(latest, np.arange(191, 200))


def test_does_a_packet_that_repeats_an_element_fill_in_the_others_by_the_matrices_of_their_time():
    """Also where the element is repeated in another stream alone."""
    model = statespace.LinearGaussian(
        [[0.9]], [[0.1]], [[1.0], [1.0]], np.diag([0.1, 0.2]) + 0j, [0.0], [[1.0]]
    )
    H, R, nan = np.array([[1j], [2.0]]), np.diag([0.3, 0.4]), np.nan
    kf = cgp.KalmanFilter(model, horizon=3)
    kf.step(np.array([[1.0, nan], [1.0, nan]]) + 0j, H=H, R=R)
    kf.step(np.full((2, 2), nan + 0j))
    kf.step(np.array([[nan, 1j], [0.5, 1j]]), late_by=1)
    for stream, repeated in enumerate((nan, 0.5)):
        mean, P = np.zeros(1, complex), np.eye(1)
        for row, variance, z in ((0, 0.3, 1.0), (0, 0.3, repeated), (1, 0.4, 1j)):
            if not np.isnan(z):
                gain = P @ H[row].conj() / (H[row] @ P @ H[row].conj() + variance)
                mean, P = mean + gain * (z - H[row] @ mean), P - np.outer(gain, H[row] @ P)
        for _ in range(2):
            mean, P = 0.9 * mean, 0.81 * P + 0.1
        np.testing.assert_allclose(kf.state.mean[stream], mean, **CLOSE)
        np.testing.assert_allclose(square(kf.state.chol[stream]), P, **CLOSE)
