"""What is certain teaches nothing, and what contradicts it is impossible."""

import numpy as np
import pytest
import tensorflow as tf

from cgp import statespace

I2 = np.eye(2)
START = np.array([[1.3, 0.2], [0.2, 0.7]])


def square(chols):
    chols = np.asarray(chols)
    return chols @ chols.conj().swapaxes(-1, -2)


def conditioned(H, z, P=START):
    """Mean and covariance given `H x = z` without noise."""
    S = np.linalg.pinv(H @ P @ H.T, rcond=1e-12)
    return P @ H.T @ S @ z, P - P @ H.T @ S @ H @ P


@pytest.mark.parametrize(
    ("H", "z"),
    [
        (np.array([[0.1, 0.3], [0.3, 0.9]]), np.array([1.0, 3.0])),
        (np.array([[0.1, 0.3], [0.1, 0.3]]), np.array([1.0, 1.0])),
        (np.array([[0.1, 0.3], [0.7, 0.2], [0.8, 0.5]]), np.array([1.0, 3.0, 4.0])),
    ],
    ids=["a multiple", "a duplicate", "a sum"],
)
def test_is_an_exact_observation_that_says_nothing_new_passed_over(H, z):
    model = statespace.LinearGaussian(0.9 * I2, 0 * I2, H, 0 * np.eye(len(H)), [0.0, 0.0], START)
    result = statespace.filter(model, z[None])
    mean, covariance = conditioned(H, z)
    np.testing.assert_allclose(result.filtered_means[0], mean, atol=1e-12)
    np.testing.assert_allclose(square(result.filtered_chols[0]), covariance, atol=1e-13)
    independent = H[: np.linalg.matrix_rank(H)]
    S = independent @ START @ independent.T
    quad = z[: len(S)] @ np.linalg.solve(S, z[: len(S)])
    expected = -0.5 * (len(S) * np.log(2 * np.pi) + np.linalg.slogdet(S)[1] + quad)
    np.testing.assert_allclose(result.log_likelihood, expected, rtol=1e-12)


def test_is_the_same_exact_observation_passed_over_at_the_next_step():
    model = statespace.LinearGaussian(I2, 0 * I2, [[0.1, 0.3]], [[0.0]], [0.0, 0.0], START)
    result = statespace.filter(model, np.ones(5))
    mean, covariance = conditioned(np.array([[0.1, 0.3]]), np.ones(1))
    np.testing.assert_allclose(result.filtered_means, np.tile(mean, (5, 1)), atol=1e-12)
    np.testing.assert_allclose(square(result.filtered_chols[-1]), covariance, atol=1e-13)
    np.testing.assert_array_equal(result.log_likelihoods[1:], np.zeros(4))


def test_is_the_impossible_of_no_likelihood():
    model = statespace.LinearGaussian([[1.0]], [[0.0]], [[1.0]], [[0.0]], [0.0], [[0.0]])
    assert statespace.log_likelihood(model, [0.0, 0.0]).numpy() == 0.0
    assert statespace.log_likelihood(model, [0.0, 2.0]).numpy() == -np.inf


@pytest.mark.parametrize("angle", [0.0, 0.7, 1.3, 2.2])
def test_is_a_signal_on_a_line_the_real_signal_along_it(angle):
    x = np.cumsum(np.random.default_rng(1).normal(size=30))
    along = statespace.LinearGaussian([[0.9]], [[0.19]], [[1.0]], [[0.5]], [0.0], [[1.0]])
    expected = statespace.filter(along, x)
    proper = statespace.LinearGaussian([[0.9 + 0j]], [[0.19]], [[1.0]], [[0.5]], [0.0], [[1.0]])
    turn = np.exp(2j * angle)
    model = statespace.widely_linear(
        proper, [[0.19 * turn]], [[0.5 * turn]], initial_pseudo_covariance=[[turn]]
    )
    found = statespace.filter(model, np.exp(1j * angle) * x)
    means = found.filtered_means * np.exp(-1j * angle)
    np.testing.assert_allclose(means, expected.filtered_means, atol=1e-13)
    np.testing.assert_allclose(
        np.trace(square(found.filtered_chols), axis1=-2, axis2=-1),
        square(expected.filtered_chols)[:, 0, 0],
        rtol=1e-12,
    )


@pytest.mark.parametrize("scale", [1e-140, 1e-50, 1e100])
def test_is_the_gradient_by_the_noise_right_in_any_units(scale):
    rng = np.random.default_rng(2)
    a = rng.normal(size=(2, 2)) + 1j * rng.normal(size=(2, 2))
    R, z = a @ a.conj().T, rng.normal(size=(5, 2)) + 1j * rng.normal(size=(5, 2))

    def gradient(scale):
        noise = tf.constant(R * scale**2)
        with tf.GradientTape() as tape:
            tape.watch(noise)
            model = statespace.LinearGaussian(
                0.5 * I2, I2 * scale**2, a, noise, None, I2 * scale**2
            )
            value = statespace.log_likelihood(model, z * scale)
        return tape.gradient(value, noise).numpy() * scale**2

    np.testing.assert_allclose(gradient(scale), gradient(1.0), rtol=1e-10)


@pytest.mark.parametrize(
    ("z", "R", "Q"),
    [([1e8] * 3, 1.0, 1.0), ([1e7] * 3, 1e14, 0.0), ([1e-9] * 3, 1e-24, 1e-24)],
    ids=["data too large", "noise too large", "noise lost"],
)
def test_is_a_diffuse_start_refused_by_every_verb_where_it_is_none(z, R, Q):
    model = statespace.LinearGaussian([[1.0]], [[Q]], [[1.0]], [[R]], [0.0], "diffuse")
    verbs = (statespace.filter, statespace.log_likelihood, statespace.smooth)
    for verb in (*verbs, statespace.posterior_sample):
        with pytest.raises(ValueError, match="diffuse"):
            verb(model, z)


def test_a_diffuse_start_is_forgotten_whatever_comes_later():
    model = statespace.LinearGaussian([[1.0]], [[1.0]], [[1.0]], [[1.0]], [0.0], "diffuse")
    z = np.arange(2e4)
    found = statespace.filter(model, z).filtered_means.numpy()[-1, 0]
    assert abs(found - z[-1]) < 2.0
    draws = statespace.posterior_sample(model, np.ones(5), (400,), seed=1).numpy()[..., 0]
    smoothed = statespace.smooth(model, np.ones(5))
    deviation = (draws.mean(axis=0) - 1.0) / smoothed.smoothed_chols.numpy()[:, 0, 0]
    assert np.abs(deviation).max() < 4.0 / np.sqrt(400)


def test_is_a_part_that_vanishes_in_two_steps_counted_in_any_units():
    model = statespace.LinearGaussian(
        [[0.0, 1e-19], [0.0, 0.0]], np.diag([1.0, 1e41]), [[1.0, 0.0]], [[1.0]]
    )
    np.testing.assert_allclose(model.initial_covariance, np.diag([1001.0, 1e41]), rtol=1e-12)


def test_a_second_derivative_is_an_error_and_not_zero():
    F = tf.constant([[0.5]], tf.float64)
    with tf.GradientTape() as outer:
        outer.watch(F)
        with tf.GradientTape() as inner:
            inner.watch(F)
            model = statespace.LinearGaussian(F, [[1.0]], [[1.0]], [[1.0]])
            value = statespace.log_likelihood(model, [1.0, 2.0])
        gradient = inner.gradient(value, F)
    with pytest.raises(NotImplementedError, match="differentiable once"):
        outer.gradient(gradient, F)


def test_has_an_element_of_h_that_is_zero_its_derivative():
    rng = np.random.default_rng(3)
    R = np.array([[1.0, 0.4j], [-0.4j, 0.5]])
    z, H = rng.normal(size=(6, 2)) + 1j * rng.normal(size=(6, 2)), np.eye(2) + 0j
    direction = rng.normal(size=(2, 2)) + 1j * rng.normal(size=(2, 2))

    def value(H):
        model = statespace.LinearGaussian(0.5j * I2, I2, H, R, None, I2)
        return statespace.log_likelihood(model, z)

    given = tf.constant(H)
    with tf.GradientTape() as tape:
        tape.watch(given)
        found = value(given)
    gradient = tape.gradient(found, given).numpy()
    step = 1e-6
    expected = (value(H + step * direction) - value(H - step * direction)) / (2 * step)
    np.testing.assert_allclose(np.vdot(gradient, direction).real, expected, rtol=1e-8)
