"""Observations that a model without noise rules out: refused alike by all that give moments."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import statespace
from tests.long_cases import long_except


def model(R=0.0, Q=0.0):
    return statespace.LinearGaussian([[1.0 + 0j]], [[Q]], [[1.0]], [[R]], [0.0], [[1.0]])


TWO_SENSORS = statespace.LinearGaussian(
    [[1.0 + 0j]], [[0.5]], [[1.0], [1.0]], np.ones((2, 2)), [0.0], [[1.0]]
)  # of one noise: they read the same
SAME, OTHER = np.array([1j, 1j, 1j]), np.array([1j, 1j, 2j])


def stepped(model, z):
    state = None
    for value in z:
        state, found = statespace.step(model, state, np.atleast_1d(value))
    return found


def filtered_online(model, z):
    kf = cgp.KalmanFilter(model)
    for value in z:
        found = kf.step(np.atleast_1d(value))
    return found


def in_a_bank(model, z):
    bank = cgp.Bank(cgp.KalmanFilter(model))
    for value in z:
        found = bank.update(["a"], np.atleast_1d(value)[None])
    return found


VERBS = {
    "filter": statespace.filter,
    "smooth": statespace.smooth,
    "posterior_sample": statespace.posterior_sample,
    "forecast": lambda model, z: statespace.forecast(model, statespace.filter(model, z), 2),
    "step": stepped,
    "KalmanFilter": lambda model, z: cgp.KalmanFilter(model)(z.reshape(1, 3, -1)),
    "KalmanFilter.step": filtered_online,
    "KalmanFilter.process": lambda model, z: cgp.KalmanFilter(model).process(z),
    "Bank.update": in_a_bank,
}


every_verb = pytest.mark.parametrize(
    "verb", long_except(VERBS, *(verb for verb in VERBS if verb != "KalmanFilter.step"))
)


@every_verb
def test_does_every_verb_refuse_what_contradicts_and_take_what_does_not(verb):
    run = VERBS[verb]
    with pytest.raises(ValueError, match=r"impossible.*variance"):
        run(model(), OTHER)
    run(model(), SAME)
    run(model(), np.array([1j, np.nan, 1j]))
    run(model(R=1e-6), OTHER)
    run(model(Q=1e-6), OTHER)


@pytest.mark.parametrize("verb", long_except(VERBS, "smooth", "KalmanFilter.process"))
def test_are_sensors_of_one_noise_that_differ_refused(verb):
    run = VERBS[verb]
    z = np.repeat(OTHER[:, None], 2, axis=1)
    run(TWO_SENSORS, z)
    other = z.copy()
    other[1, 0] += 0.1
    with pytest.raises(ValueError, match=r"impossible.*variance"):
        run(TWO_SENSORS, other)
    other[1, 1] = np.nan  # one of them alone is not ruled out
    run(TWO_SENSORS, other)


def test_is_the_step_named_and_the_state_of_a_stream_left_as_it_was():
    with pytest.raises(ValueError, match="observation at step 2 is impossible"):
        statespace.filter(model(), OTHER)
    with pytest.raises(ValueError, match="step 2 of series 1 is impossible"):
        statespace.smooth(model(), np.stack([SAME, OTHER])[..., None])
    kf = cgp.KalmanFilter(model())
    kf.process(SAME)
    before = kf.state
    with pytest.raises(ValueError, match="impossible"):
        kf.step(2j)
    np.testing.assert_array_equal(kf.state.mean, before.mean)
    np.testing.assert_allclose(kf.step(1j).filtered.mean, [1j])


def test_is_the_likelihood_zero_all_the_same():
    assert statespace.log_likelihood(model(), OTHER).numpy() == -np.inf


@pytest.mark.long
def test_is_the_likelihood_zero_in_a_graph_too():
    filtered = tf.function(lambda z: statespace.filter(model(), z).log_likelihood, autograph=False)
    assert filtered(OTHER).numpy() == -np.inf
    stepping = tf.function(lambda z: stepped_state(model(), z), autograph=False)
    assert np.isnan(stepping(OTHER))
    assert np.isfinite(stepping(SAME))


def stepped_state(model, z):
    state = None
    for t in range(3):
        state, _ = statespace.step(model, state, z[t : t + 1])
    return state.mean
