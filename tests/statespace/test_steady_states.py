"""The steady state of the Kalman filter, and the filter of constant gain."""

import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf

from cgp import statespace
from tests.linalg.problems import random
from tests.reference.kalman import adjoint
from tests.statespace.problems import random_covariance, random_transition

N, M = 3, 2


def matrices_of(dtype="complex128", radius=1.05, batch=(), seed=0):
    """Matrices of a model with a mode that does not decay."""
    rng = np.random.default_rng(seed)
    time = (1,) if batch else ()
    return {
        "F": random_transition(rng, (*batch, *time), N, dtype, radius),
        "Q": random_covariance(rng, (), N, dtype),
        "H": random(rng, (M, N), dtype),
        "R": random_covariance(rng, (), M, dtype),
        "initial_mean": random(rng, (N,), dtype),
        "initial_covariance": np.eye(N),
    }


def iterated(F, Q, H, R, S=None, steps=3000):
    """Gain, predicted and filtered covariance and innovation covariance, by iteration."""
    S, P = np.zeros((len(F), len(R))) if S is None else S, np.eye(len(F), dtype=F.dtype)
    for _ in range(steps):
        innovation = H @ P @ adjoint(H) + R
        cross = F @ P @ adjoint(H) + S
        P = F @ P @ adjoint(F) + Q - cross @ np.linalg.solve(innovation, adjoint(cross))
        P = 0.5 * (P + adjoint(P))
    innovation = H @ P @ adjoint(H) + R
    gain = P @ adjoint(H) @ np.linalg.inv(innovation)
    return gain, P, P - gain @ innovation @ adjoint(gain), innovation


def covariance_of(chol):
    return np.asarray(chol) @ adjoint(np.asarray(chol))


def assert_steady(steady, expected):
    gain, predicted, filtered, innovation = expected
    np.testing.assert_allclose(steady.gain, gain, atol=1e-11)
    np.testing.assert_allclose(steady.predicted_covariance, predicted, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(steady.filtered_covariance, filtered, atol=1e-11)
    np.testing.assert_allclose(steady.innovation_covariance, innovation, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(covariance_of(steady.predicted_chol), predicted, rtol=1e-10)
    np.testing.assert_allclose(covariance_of(steady.filtered_chol), filtered, atol=1e-11)


@pytest.mark.parametrize("dtype", ["complex128", "float64"])
def test_the_steady_state_is_the_limit_of_the_recursion(dtype):
    matrices = matrices_of(dtype)
    names = ("F", "Q", "H", "R")
    steady = statespace.steady_state(statespace.LinearGaussian(**matrices))
    assert_steady(steady, iterated(*map(matrices.get, names)))
    if dtype == "float64":
        F, Q, H, R = map(matrices.get, names)
        P = scipy.linalg.solve_discrete_are(np.swapaxes(F, 0, 1), np.swapaxes(H, 0, 1), Q, R)
        np.testing.assert_allclose(steady.predicted_covariance, P, rtol=1e-10)


def test_slow_modes_and_units_far_apart_are_solved_to_rounding():
    """A walk with little noise takes 1e5 steps to settle; its covariance is known."""
    q, r = 1e-10, 1.0
    P = 0.5 * (q + np.sqrt(q * q + 4 * q * r))
    units = np.array([1e6, 1e-6])
    model = statespace.LinearGaussian(
        np.eye(2), np.diag(q * units**2), np.diag(1 / units), r * np.eye(2), None, np.eye(2)
    )
    steady = statespace.steady_state(model)
    np.testing.assert_allclose(np.diag(steady.predicted_covariance), P * units**2, rtol=1e-10)


def test_correlated_noise_changes_the_steady_state():
    matrices = matrices_of()
    joint = random_covariance(np.random.default_rng(8), (), M + N, "complex128")
    matrices |= {"R": joint[:M, :M], "S": joint[M:, :M], "Q": joint[M:, M:]}
    steady = statespace.steady_state(statespace.LinearGaussian(**matrices))
    assert_steady(steady, iterated(*(matrices[k] for k in ("F", "Q", "H", "R", "S"))))


def improper():
    rng = np.random.default_rng(2)
    proper = statespace.LinearGaussian(**matrices_of())
    pseudo = {
        "pseudo_Q": 0.6 * np.asarray(proper.Q).real,
        "F_conj": 0.1 * random(rng, (N, N), "complex128"),
    }
    return statespace.widely_linear(proper, **pseudo)


def test_that_of_improper_signals_has_a_gain_of_the_conjugate():
    model = improper()
    gain, predicted, filtered, _ = iterated(
        *(np.asarray(a) for a in (model.F, model.Q, model.H, model.R))
    )
    steady = statespace.steady_state(model)
    np.testing.assert_allclose(covariance_of(steady.predicted_chol), predicted, rtol=1e-10)
    np.testing.assert_allclose(covariance_of(steady.filtered_chol), filtered, atol=1e-11)
    e = random(np.random.default_rng(1), (M,), "complex128")
    moved = gain @ np.concatenate([e.real, e.imag])
    np.testing.assert_allclose(
        steady.gain @ e[:, None] + steady.conjugate_gain @ e.conj()[:, None],
        (moved[:N] + 1j * moved[N:])[:, None],
    )
    K = (predicted[:N, :N] + predicted[N:, N:]) + 1j * (predicted[N:, :N] - predicted[:N, N:])
    C = (predicted[:N, :N] - predicted[N:, N:]) + 1j * (predicted[N:, :N] + predicted[:N, N:])
    np.testing.assert_allclose(steady.predicted_covariance, K, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(steady.predicted_pseudo_covariance, C, rtol=1e-9, atol=1e-11)
    assert steady.innovation_pseudo_covariance.shape == (M, M)


def test_a_batch_of_models_has_the_steady_state_of_each():
    matrices = matrices_of(batch=(2,))
    steady = statespace.steady_state(statespace.LinearGaussian(**matrices))
    assert steady.gain.shape == (2, N, M)
    for b in range(2):
        expected = iterated(matrices["F"][b, 0], *(matrices[k] for k in ("Q", "H", "R")))
        np.testing.assert_allclose(steady.gain[b], expected[0], atol=1e-11)
        np.testing.assert_allclose(steady.filtered_covariance[b], expected[2], atol=1e-11)


def cases():
    complex_model = statespace.LinearGaussian(**matrices_of())
    joint = random_covariance(np.random.default_rng(8), (), M + N, "complex128")
    noise = {"R": joint[:M, :M], "S": joint[M:, :M], "Q": joint[M:, M:]}
    return {
        "complex": complex_model,
        "real": statespace.LinearGaussian(**matrices_of("float64")),
        "improper": improper(),
        "correlated": statespace.LinearGaussian(**matrices_of() | noise),
        "batch": statespace.LinearGaussian(**matrices_of(batch=(2,))),
        "driven": complex_model.replace(B=np.ones((N, 1))),
    }


def constant_gain_filter(matrices, mean, z, drift):
    """Predicted and filtered means and log likelihoods, of working values, by a loop."""
    F, _, H, _, S = matrices
    gain, P, _, innovation = iterated(*matrices)
    inverse = np.linalg.inv(innovation)
    of_prediction = (F @ P @ adjoint(H) + S) @ inverse
    is_complex = np.iscomplexobj(z)
    scale, constant = (1.0, np.pi) if is_complex else (0.5, 2.0 * np.pi)
    log_det = np.linalg.slogdet(constant * innovation)[1]
    predicted, filtered, log_likelihoods = [], [], []
    for value, added in zip(z, drift, strict=True):
        e = value - H @ mean
        predicted.append(mean)
        filtered.append(mean + gain @ e)
        log_likelihoods.append(-scale * (log_det + (e.conj() @ inverse @ e).real))
        mean = F @ mean + of_prediction @ e + added
    return predicted, filtered, log_likelihoods


@pytest.mark.parametrize("case", cases())
def test_a_loop_of_constant_gain_finds_the_same(case):
    model = cases()[case]
    rng = np.random.default_rng(4)
    dtype = model.series_dtype.name
    z = random(rng, (2, 300, M), dtype)
    inputs = random(rng, (300, 1), dtype) if case == "driven" else None
    result = statespace.filter(model, z, inputs=inputs, steady=True)

    def working(a):
        a = np.asarray(a)
        return np.concatenate([a.real, a.imag], axis=-1) if case == "improper" else a

    n, m = model.F.shape[-1], model.H.shape[-2]
    S = np.zeros((n, m)) if model.S is None else model.S.numpy()
    drift = np.zeros((300, n)) if inputs is None else inputs @ model.B.numpy().T
    for series in range(2):
        F = np.reshape(model.F, (-1, n, n))[series if case == "batch" else 0]
        matrices = (F, model.Q.numpy(), model.H.numpy(), model.R.numpy(), S)
        mean = np.asarray(model.initial_mean)
        expected = constant_gain_filter(matrices, mean, working(z[series]), drift)
        found = result.predicted_means[series], result.filtered_means[series]
        for a, b in zip(
            (*map(working, found), result.log_likelihoods[series]), expected, strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
    for chols in (result.predicted_chols, result.filtered_chols):
        covariances = covariance_of(chols)
        at_first = np.broadcast_to(covariances[..., :1, :, :], covariances.shape)
        np.testing.assert_allclose(covariances, at_first, rtol=1e-10)


def test_the_filter_of_constant_gain_has_gradients_but_by_matrices():
    model = statespace.LinearGaussian(**matrices_of(), B=np.ones((N, 1)))
    rng = np.random.default_rng(5)
    arrays = (
        random(rng, (20, M), "complex128"),
        random(rng, (20, 1), "complex128"),
        np.ones(N, complex),
    )

    def loss(z, inputs, mean):
        started = model.starting_from(mean, model.initial_chol)
        return statespace.filter(started, z, inputs=inputs, steady=True).log_likelihood

    tensors = [tf.constant(a) for a in arrays]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = loss(*tensors)
    gradients = tape.gradient(value, tensors)
    for i, gradient in enumerate(gradients):
        direction = random(rng, arrays[i].shape, "complex128")
        moved = [
            loss(*arrays[:i], arrays[i] + step * direction, *arrays[i + 1 :])
            for step in (1e-6, -1e-6)
        ]
        slope = (moved[0] - moved[1]) / 2e-6
        np.testing.assert_allclose(
            np.sum(gradient.numpy().conj() * direction).real, slope, rtol=1e-6
        )


def test_series_of_numbers_keep_their_shape_and_short_ones_are_filtered():
    walk = statespace.LinearGaussian([[1.0]], [[1.0]], [[1.0]], [[2.0]], [0.0], "diffuse")
    result = statespace.filter(walk, [1.0], steady=True)
    assert result.innovations.shape == (1,)
    assert result.innovation_variances.shape == (1,)
    np.testing.assert_allclose(result.filtered_means, [[0.5]])
    ahead = statespace.forecast(walk, result, 1)
    np.testing.assert_allclose(ahead.observation_covariances, [[[4.0]]])


def test_single_precision_is_kept():
    single = {k: np.asarray(a, np.complex64) for k, a in matrices_of().items()}
    steady = statespace.steady_state(statespace.LinearGaussian(**single))
    assert steady.gain.dtype == tf.complex64
    expected = iterated(*(matrices_of()[k] for k in ("F", "Q", "H", "R")))
    np.testing.assert_allclose(steady.gain, expected[0], atol=1e-4)


def model_of(F, Q, H, R):
    n = len(F)
    return statespace.LinearGaussian(F, Q, H, R, np.zeros(n), np.eye(n))


def test_models_without_a_stabilising_solution_are_refused():
    two, one = np.diag([0.5, 1.0]), np.eye(2)
    for model, message in (
        (model_of(two, one, [[1.0, 0.0]], [[1.0]]), "not detectable"),
        (model_of(np.diag([0.5, 2.0]), one, [[1.0, 0.0]], [[1.0]]), "not detectable"),
        (model_of(two, np.diag([1.0, 0.0]), [[1.0, 1.0]], [[1.0]]), "not stabilisable"),
        (model_of(np.diag([0.5, 2.0]), np.diag([1.0, 0.0]), [[1.0, 1.0]], [[1.0]]), "stabilisable"),
        (model_of(two, one, one, np.diag([1.0, 0.0])), "R that is positive definite"),
        (model_of(np.stack([two, two]), one, [[1.0, 1.0]], [[1.0]]), "do not vary"),
    ):
        with pytest.raises(ValueError, match=message):
            statespace.steady_state(model)
    stable = model_of(np.diag([0.5, 0.9]), np.diag([1.0, 0.0]), [[1.0, 0.0]], [[1.0]])
    assert np.isfinite(statespace.steady_state(stable).gain).all()  # what is neither, but decays


def test_what_a_constant_gain_cannot_do_is_refused():
    model = statespace.LinearGaussian(**matrices_of())
    z = np.ones((5, M), complex)
    holes = z.copy()
    holes[2, 0] = np.nan
    for arguments, error, message in (
        ({"z": holes}, ValueError, "missing elements"),
        ({"z": z, "parallel": True}, ValueError, "parallel"),
        ({"z": z, "steady": 1}, TypeError, "steady must be True or False"),
    ):
        with pytest.raises(error, match=message):
            statespace.filter(model, **{"steady": True, **arguments})
    H = tf.constant(matrices_of()["H"])
    with tf.GradientTape() as tape:
        tape.watch(H)
        loss = tf.math.real(statespace.filter(model.replace(H=H), z, steady=True).log_likelihood)
    with pytest.raises(NotImplementedError, match="not differentiable"):
        tape.gradient(loss, H)
    with pytest.raises(NotImplementedError, match="eagerly"):
        tf.function(lambda: statespace.steady_state(model))()
