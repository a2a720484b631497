"""Steps of nonlinear models around the compiled core, beside textbooks and the loops of XLA."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import native, statespace
from cgp.statespace.compiled import CompiledByShape
from cgp.statespace.linearization import linearized_step
from tests.long_cases import long_except

needs_core = pytest.mark.skipif(native.core().ops is None, reason="the core is not there")
M, N = 3, 2
_rng = np.random.default_rng(5)
H, F = _rng.normal(size=(M, N)), np.array([[0.9, 0.2], [-0.1, 0.8]])
H_IMAGINARY = _rng.normal(size=(M, N))


def sensors(scale=1.0, **changes):
    """Real states, seen through sines of some of their combinations."""
    rows, turn = tf.constant(H), tf.constant(F)
    arguments = {
        "Q": np.diag([0.02, 0.05]),
        "R": 0.1 * np.eye(M) + 0.02,
        "initial_mean": [0.4, -0.2],
        "initial_covariance": np.diag([0.3, 0.5]),
    }
    return statespace.NonlinearGaussian(
        lambda x: tf.linalg.matvec(turn, x) + 0.1 * tf.sin(x),
        lambda x: scale * tf.sin(tf.linalg.matvec(rows, x)),
        **{**arguments, **changes},
    )


def improper_sensors(**changes):
    """Complex states, of which and of whose conjugates observations are functions."""
    rows = tf.constant(H + 1j * H_IMAGINARY)
    return statespace.NonlinearGaussian(
        lambda x: 0.9 * x + 0.1 * tf.math.conj(x) ** 2,
        lambda x: tf.linalg.matvec(rows, x) * tf.math.conj(x[..., :1]),
        Q=np.diag([0.02, 0.05]),
        R=0.1 * np.eye(M) + 0.02,
        pseudo_R=0.03 * np.eye(M),
        initial_mean=[0.4 + 0.3j, -0.2j],
        initial_covariance=np.diag([0.3, 0.5]),
        **changes,
    )


def intensity(**changes):
    """A complex state seen with its conjugate, in improper noise: one component each."""
    return statespace.NonlinearGaussian(
        lambda x: 0.9 * x,
        lambda x: x * tf.math.conj(x) + 1j * x,
        **{"Q": [[0.1]], "R": [[0.2]], "pseudo_R": [[0.1]]},
        **{"initial_mean": [0.5 + 0.1j], "initial_covariance": [[0.4]]},
        **changes,
    )


def real_functions(x):
    """Values and Jacobians of both functions of `sensors`."""
    f, h = F @ x + 0.1 * np.sin(x), np.sin(H @ x)
    return (f, F + np.diag(0.1 * np.cos(x))), (h, np.cos(H @ x)[:, None] * H)


def composite_functions(x):
    """The same of `improper_sensors`, as functions of the real composite."""
    z, rows = x[:N] + 1j * x[N:], H + 1j * H_IMAGINARY
    f, by_state, by_conjugate = (
        0.9 * z + 0.1 * z.conj() ** 2,
        0.9 * np.eye(N),
        0.2 * np.diag(z.conj()),
    )
    h, of_conjugate = rows @ z * z[0].conj(), np.zeros([M, N], complex)
    of_conjugate[:, 0] = rows @ z

    def real(value, state, conjugate):
        columns = np.concatenate([state + conjugate, 1j * (state - conjugate)], axis=1)
        parts = (np.concatenate([a.real, a.imag]) for a in (value, columns))
        return tuple(parts)

    return real(f, by_state, by_conjugate), real(h, rows * z[0].conj(), of_conjugate)


def extended_filter(functions, model, z, iterations=0):
    """The extended Kalman filter in covariance form: predicted and filtered moments."""
    noise = model.noise
    Q, R, m, P = (
        np.asarray(a) for a in (noise.Q, noise.R, noise.initial_mean, noise.initial_covariance)
    )
    found = []
    for observation in z:
        at, seen = m, ~np.isnan(observation)
        for _ in range(iterations + 1):
            h, J = functions(at)[1]
            h, J = (h + J @ (m - at))[seen], J[seen]
            S = J @ P @ J.T + R[np.ix_(seen, seen)]
            K = np.linalg.solve(S, J @ P).T
            at, after = m + K @ (observation[seen] - h), P - K @ S @ K.T
        f, G = functions(at)[0]
        found.append((m, P, at, after))
        m, P = f, G @ after @ G.T + Q
    return [np.stack(a) for a in zip(*found, strict=True)]


def observations(steps, is_complex, seed=0):
    rng = np.random.default_rng(seed)
    z = 0.5 * rng.normal(size=(steps, M))
    z = z + 0.5j * rng.normal(size=(steps, M)) if is_complex else z
    z[1, 1] = z[3] = complex(np.nan, np.nan) if is_complex else np.nan
    return z


def composite(z):
    return np.concatenate([z.real, z.imag], axis=-1) if np.iscomplexobj(z) else np.asarray(z)


CASES = {"real": (sensors, real_functions), "improper": (improper_sensors, composite_functions)}


def squared(chols):
    return chols @ np.swapaxes(chols, -1, -2)


@pytest.mark.parametrize("iterations", [0, 2])
@pytest.mark.parametrize("kind", CASES)
def test_are_a_filter_and_its_steps_the_extended_filter(kind, iterations):
    make, functions = CASES[kind]
    model, z = make(), observations(12, kind == "improper")
    rule = statespace.Iterated(statespace.Taylor(), iterations) if iterations else None
    m, P, after, covariance = extended_filter(functions, model, composite(z), iterations)

    result = statespace.filter(model, z, rule=rule)
    np.testing.assert_allclose(composite(result.predicted_means.numpy()), m, atol=1e-10)
    np.testing.assert_allclose(squared(result.predicted_chols.numpy()), P, atol=1e-10)
    np.testing.assert_allclose(composite(result.filtered_means.numpy()), after, atol=1e-10)
    np.testing.assert_allclose(squared(result.filtered_chols.numpy()), covariance, atol=1e-10)

    kf = cgp.KalmanFilter(model, rule=rule)
    for t, observation in enumerate(z):
        step = kf.step(observation)
        np.testing.assert_allclose(composite(step.filtered.mean), after[t], atol=1e-10)
        np.testing.assert_allclose(step.predicted.mean, result.observation_means[t], atol=1e-10)
        np.testing.assert_allclose(
            step.innovation_covariance, result.innovation_covariances[t], atol=1e-10
        )
        variance = np.diagonal(covariance[t])
        if kind == "improper":
            variance = variance[:N] + variance[N:]
        np.testing.assert_allclose(step.filtered.variance, variance, atol=1e-10)


@pytest.mark.parametrize("rule", [statespace.Taylor(), statespace.SigmaPoints()], ids=str)
def test_are_streams_of_a_batch_single_ones(rule):
    z = np.stack([observations(8, False, seed) for seed in (1, 2, 3)])
    model = sensors()
    several, result = cgp.KalmanFilter(model, rule=rule), statespace.filter(model, z, rule=rule)
    steps = [several.step(z[:, t]) for t in range(8)]
    for i, series in enumerate(z):
        alone = cgp.KalmanFilter(model, rule=rule)
        for t, step in enumerate(steps):
            expected = alone.step(series[t])
            np.testing.assert_allclose(step.filtered.mean[i], expected.filtered.mean, atol=1e-12)
            np.testing.assert_allclose(
                result.filtered_means[i, t], expected.filtered.mean, atol=1e-12
            )
        np.testing.assert_allclose(several.state.chol[i], alone.state.chol, atol=1e-12)


@needs_core
@pytest.mark.parametrize(
    "rule",
    long_except(
        [statespace.Taylor(), statespace.SigmaPoints("unscented", kappa=1.0)],
        statespace.SigmaPoints("unscented", kappa=1.0),
    ),
    ids=str,
)
def test_are_steps_without_the_core_the_same(rule, without_core):
    z = observations(6, is_complex=True)[:, 1]

    def steps():
        kf = cgp.KalmanFilter(intensity(jit_compile=False), rule=rule)
        return [kf.step(a) for a in z]

    for step, expected in zip(steps(), without_core(steps), strict=True):
        for a, b in zip(tf.nest.flatten(step), tf.nest.flatten(expected), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.fixture
def never_compiled(monkeypatch):
    def refuse(*arguments):
        raise AssertionError("a loop over a nonlinear series was compiled")

    monkeypatch.setattr(linearized_step, "CompiledByShape", lambda function: refuse)


@needs_core
@pytest.mark.usefixtures("never_compiled")
def test_is_nothing_compiled_for_a_short_series_however_many_components():
    rows = tf.constant(np.random.default_rng(0).normal(size=(8, N)))
    for scale in (1.0, 2.0):  # the functions of a factory that is called again
        model = statespace.NonlinearGaussian(
            lambda x: 0.9 * x,
            lambda x: tf.sin(scale * tf.linalg.matvec(rows, x)),  # noqa: B023
            np.eye(N),
            np.eye(8),
            np.zeros(N),
            np.eye(N),
        )
        result = statespace.filter(model, np.ones([5, 8]))
        assert np.isfinite(result.log_likelihood)
        cgp.KalmanFilter(model).step(np.ones(8))


@needs_core
def test_a_long_series_is_compiled_once_that_pays(monkeypatch):
    monkeypatch.setattr(linearized_step, "_EVALUATIONS", 15)  # twice: the composite
    counted = []

    class Counted(CompiledByShape):
        def __call__(self, *arguments):
            counted.append(arguments)
            return super().__call__(*arguments)

    monkeypatch.setattr(linearized_step, "CompiledByShape", Counted)
    model, z = intensity(), observations(20, is_complex=True)[:, 1]
    before = statespace.filter(model, z)
    assert not counted
    after = statespace.filter(model, z)  # the second twenty steps
    assert counted
    np.testing.assert_allclose(after.filtered_means, before.filtered_means, atol=1e-12)
    np.testing.assert_allclose(after.log_likelihood, before.log_likelihood, rtol=1e-12)


@needs_core
def test_functions_that_xla_lacks_are_found_out(monkeypatch):
    def by_numpy(x):
        sine = tf.numpy_function(np.sin, [x[..., :1]], x.dtype)
        return tf.ensure_shape(sine, [*x.shape[:-1], 1])

    noise = {"Q": np.eye(N), "R": [[0.5]], "initial_mean": [0.3, 0.1]}
    noise["initial_covariance"] = np.eye(N)
    model, same = (
        statespace.NonlinearGaussian(lambda x: 0.9 * x, observation, **noise)
        for observation in (by_numpy, lambda x: tf.sin(x[..., :1]))
    )
    assert not model.is_compilable
    assert same.is_compilable
    z, rule = np.linspace(-1.0, 1.0, 20), statespace.SigmaPoints()
    expected = statespace.filter(same, z, rule=rule)
    monkeypatch.setattr(linearized_step, "_EVALUATIONS", 5)
    result = statespace.filter(model, z, rule=rule)
    np.testing.assert_allclose(result.filtered_means, expected.filtered_means, atol=1e-12)


@needs_core
def test_does_a_step_read_a_variable_anew():
    gain = tf.Variable(1.0, dtype=tf.float64)
    model = statespace.NonlinearGaussian(
        lambda x: 0.9 * x, lambda x: gain * x, [[0.1]], [[0.5]], [1.0], [[1.0]]
    )
    kf = cgp.KalmanFilter(model)
    kf.step([1.0])
    mean = kf.state.mean
    gain.assign(3.0)
    np.testing.assert_allclose(kf.step([1.0]).predicted.mean, 3.0 * mean, rtol=1e-14)


@needs_core
def test_a_step_takes_inputs_and_noise_of_its_own():
    drive = np.array([[0.5], [-0.3]])
    linear = statespace.LinearGaussian(
        F, np.diag([0.02, 0.05]), H, 0.1 * np.eye(M), [0.4, -0.2], np.eye(N), B=drive
    )
    turn, rows, gain = map(tf.constant, (F, H, drive))
    same = statespace.NonlinearGaussian(
        lambda x, u: tf.linalg.matvec(turn, x) + tf.linalg.matvec(gain, u),
        lambda x, u: tf.linalg.matvec(rows, x),
        np.diag([0.02, 0.05]),
        0.1 * np.eye(M),
        [0.4, -0.2],
        np.eye(N),
        input_size=1,
    )
    filters = [cgp.KalmanFilter(model) for model in (linear, same)]
    options = [{}, {"R": 0.3 * np.eye(M)}, {"Q": 2.0 * np.eye(N)}, {}]
    for t, (z, matrices) in enumerate(zip(observations(4, False), options, strict=True)):
        expected, step = (kf.step(z, inputs=[0.1 * t], **matrices) for kf in filters)
        for a, b in zip(tf.nest.flatten(step), tf.nest.flatten(expected), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-12)
    np.testing.assert_allclose(filters[1].state.mean, filters[0].state.mean, atol=1e-12)


@needs_core
@pytest.mark.parametrize("function", ["transition", "observation"])
def test_a_step_that_is_not_finite_leaves_the_state(function):
    functions = {"transition": lambda x: x, "observation": lambda x: x, function: tf.sqrt}
    noise = {"Q": [[0.1]], "R": [[0.5]], "initial_mean": [1.0], "initial_covariance": [[1.0]]}
    model = statespace.NonlinearGaussian(**functions, **noise)
    kf = cgp.KalmanFilter(model)
    kf.step([1.0])
    kf.set_state(-kf.state.mean, kf.state.chol)
    before = kf.state
    for z in (-50.0, np.nan):
        with pytest.raises(ValueError, match="the state would not be finite"):
            kf.step([z])
    np.testing.assert_array_equal(kf.state.mean, before.mean)
    np.testing.assert_array_equal(kf.state.chol, before.chol)
    kf.set_state(-before.mean, before.chol)
    assert np.isfinite(kf.step([1.0]).filtered.mean)
    with pytest.raises(ValueError, match=f"the {function} is not finite at step 0"):
        statespace.filter(model.replace(initial_mean=[-9.0], initial_covariance=[[1e-4]]), [-9.0])
