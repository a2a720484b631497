"""One step at a time, as a pure function: the filter, streams with arrivals of their own."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import statespace
from tests.long_cases import long_except
from tests.statespace.problems import improper_parts, problem, square

STEPS = 9


def model_of(kind):
    """A model of 2 states and 2 observed components, and a series with missing elements."""
    found = problem(2, 2, steps=STEPS, holes="shared")
    matrices = dict(found.matrices)
    if kind == "proper":
        return statespace.LinearGaussian(**matrices), found.z
    covariances, parts = improper_parts(2, 2)
    proper = statespace.LinearGaussian(**(matrices | covariances))
    return statespace.widely_linear(proper, **parts), found.z


def walk(initial_covariance):
    """A level that drifts, seen once a step: real, and without a stationary state."""
    rng = np.random.default_rng(2)
    z = np.cumsum(rng.normal(size=(STEPS, 1)), axis=0) + 30.0
    z[4] = np.nan
    return statespace.LinearGaussian(
        [[1.0]], [[1.0]], [[1.0]], [[0.5]], initial_covariance=initial_covariance
    ), z


def given(*args, **kwargs):
    found = problem(*args, steps=STEPS, **kwargs)
    return found.model(), found.z, found.inputs


CASES = {
    "proper": lambda: model_of("proper"),
    "improper": lambda: model_of("improper"),
    "real": lambda: given(2, 2, "float64", holes="shared"),
    "complex64": lambda: given(2, 2, "complex64", holes="shared"),
    "float32": lambda: given(2, 2, "float32", holes="shared"),
    "models": lambda: given(2, 2, batch=3, models=True, holes="own"),
    "driven": lambda: given(1, 1, inputs=1),
    "a walk": lambda: walk([[4.0]]),
    "a walk from anywhere": lambda: walk("diffuse"),
}


def case(name):
    """A model, its series, and its inputs or None."""
    model, z, *inputs = CASES[name]()
    return model, z, inputs[0] if inputs else None


@pytest.mark.parametrize(
    "name", long_except(CASES, *(name for name in CASES if name not in ("complex64", "float32")))
)
@pytest.mark.usefixtures("execution")
def test_are_steps_those_of_the_filter(name):
    model, z, inputs = case(name)
    whole, state = statespace.filter(model, z, inputs=inputs), None
    tolerance = 1e-5 if model.dtype.real_dtype == tf.float32 else 1e-13

    def assert_near(found, expected):
        assert np.asarray(found).dtype == np.asarray(expected).dtype
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)

    for t in range(STEPS):
        before, now = state, np.s_[..., t, :]
        at = {} if inputs is None else {"inputs": inputs[t]}
        state, step = statespace.step(model, state, z[now], **at)
        assert_near(step.filtered.mean, whole.filtered_means[now])
        np.testing.assert_array_equal(np.isnan(step.innovation), np.isnan(whole.innovations[now]))
        assert_near(step.innovation, whole.innovations[now])
        assert_near(step.predicted.variance, whole.innovation_variances[now])
        if name == "improper":
            pseudo = np.diagonal(whole.innovation_pseudo_covariances[t])
            assert_near(step.predicted.pseudo_variance, pseudo)
        if t:
            assert_near(before.mean, whole.predicted_means[now])
            assert_near(square(before.chol), square(whole.predicted_chols[..., t, :, :]))


@pytest.mark.parametrize("kind", long_except(["proper", "improper"], "improper"))
def test_are_streams_with_arrivals_of_their_own_each_filtered_alone(kind, execution):
    model, z = model_of(kind)
    rng = np.random.default_rng(3)
    calls = 6 if execution == "eager" else 2 * STEPS
    arrivals = rng.random((calls, 4)) < 0.6
    z = np.where(np.isnan(z), 0.3 + 0.1j, z)
    counts, state, found = np.zeros(4, int), None, [[] for _ in range(4)]
    for arrived in arrivals:
        arrived = arrived & (counts < STEPS)
        values = z[np.minimum(counts, STEPS - 1)] * np.arange(1, 5)[:, None]
        before = state
        state, step = statespace.step(model, state, values, arrived=arrived)
        assert step.innovation.shape == (4, 2)
        np.testing.assert_array_equal(np.isnan(step.innovation[:, 0]), ~arrived)
        if before is not None:  # a stream without an arrival stays as it is, to the last digit
            for after, was in zip(state, before, strict=True):
                np.testing.assert_array_equal(after[~arrived], was[~arrived])
        for i in np.flatnonzero(arrived):
            found[i].append(step.filtered.mean[i])
        counts += arrived
    assert len(set(counts)) > 1
    for i in range(4):
        alone = statespace.filter(model, (i + 1) * z[: counts[i]])
        np.testing.assert_allclose(found[i], alone.filtered_means, atol=1e-13)
        np.testing.assert_allclose(
            square(state.chol[i]), square(ahead_of(model, alone)), rtol=1e-12, atol=1e-13
        )


def ahead_of(model, result):
    return statespace.forecast(model, result, 1).state_chols[0]


@pytest.mark.usefixtures("execution")
def test_a_missing_observation_moves_time_on():
    model, z = model_of("proper")
    first, _ = statespace.step(model, None, z[0])
    gone, step = statespace.step(model, first, np.full(2, np.nan))
    np.testing.assert_allclose(gone.mean, model.F.numpy() @ first.mean, atol=1e-14)
    np.testing.assert_array_equal(step.filtered.mean, first.mean)
    stays, _ = statespace.step(model, first, z[1], arrived=False)
    np.testing.assert_array_equal(stays.mean, first.mean)
    many = (np.stack([first.mean] * 3), first.chol)
    for arrived in (False, [False]):  # one for all streams
        stays, step = statespace.step(model, many, z[1], arrived=arrived)
        np.testing.assert_array_equal(stays.mean, many[0])
        assert step.innovation.shape == (3, 2)


def test_are_numbers_vectors_of_one():
    model, z, inputs = case("driven")
    expected, seen = statespace.step(model, None, z[0], inputs=inputs[0])
    for number in (inputs[0, 0], complex(inputs[0, 0]), tf.constant(inputs[0, 0])):
        state, step = statespace.step(model, None, z[0, 0], inputs=number)
        np.testing.assert_array_equal(state.mean, expected.mean)
        np.testing.assert_array_equal(step.innovation, seen.innovation)


REFUSED = {
    "z": ({"z": np.ones(3) + 0j}, r"z must be \[\.\.\., 2\], got shape \(3,\)"),
    "a number": ({"z": 1j}, r"z must be \[\.\.\., 2\], got shape \(\)"),
    "missing": ({"missing": [True] * 3}, r"broadcast against z of shape \(2,\), got \(3,\)"),
    "no inputs": ({"inputs": [1j]}, "inputs were given, but the model has none"),
    "state": (
        {"state": (np.zeros((3, 2)), np.eye(2)), "z": np.ones((4, 2)) + 0j},
        r"batch axes .* state_mean \(3, 2\), state_chol \(2, 2\), z \(4, 2\)",
    ),
    "arrived": (
        {"arrived": [[True], [True, False]]},
        "arrived must be .* rows of different lengths",
    ),
    "another arrived": ({"arrived": [True]}, r"against the batch axes \(\), got shape \(1,\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_what_does_not_fit_a_step_refused(name):
    arguments, words = REFUSED[name]
    model, z = model_of("proper")
    with pytest.raises(ValueError, match=words):
        statespace.step(model, **({"state": None, "z": np.nan_to_num(z[1])} | arguments))


def test_are_inputs_that_do_not_fit_a_step_refused():
    model, z, _ = case("driven")
    for inputs, words in (
        (np.ones(2), r"inputs must be a number, \[\.\.\., 1\], got shape \(2,\)"),
        (np.nan, "inputs must be finite"),
        (None, "the model has known inputs"),
    ):
        with pytest.raises(ValueError, match=words):
            statespace.step(model, None, z[0], inputs=inputs)
    real, z, _ = case("real")
    with pytest.raises(TypeError, match="z must be real, got complex128"):
        statespace.step(real, None, z[1] + 1j)
    with pytest.raises(TypeError, match="mean of the state must be real"):
        statespace.step(real, (np.zeros(2) + 0j, np.eye(2)), z[1])


@pytest.mark.long
def test_is_a_step_the_same_in_a_graph():
    model, z = model_of("proper")
    state, _ = statespace.step(model, None, z[0])

    @tf.function
    def step(mean, chol, z):
        return statespace.step(model, (mean, chol), z)

    after, found = step(*map(tf.constant, state), tf.constant(z[1]))
    expected, other = statespace.step(model, state, z[1])
    np.testing.assert_allclose(after.mean, expected.mean, atol=1e-14)
    np.testing.assert_allclose(found.innovation, other.innovation, atol=1e-14)


def test_does_a_kalman_filter_go_on_from_a_state_that_is_set():
    for kind in ("proper", "improper"):
        model, z = model_of(kind)
        kf, other = cgp.KalmanFilter(model), cgp.KalmanFilter(model)
        for t in range(3):
            kf.step(z[t])
        other.set_state(*kf.state)
        found, expected = other.step(z[3]), kf.step(z[3])
        np.testing.assert_array_equal(found.filtered.mean, expected.filtered.mean)
        np.testing.assert_array_equal(other.state.chol, kf.state.chol)


def test_a_state_that_does_not_fit_is_refused_and_nothing_changes():
    model, z = model_of("proper")
    kf = cgp.KalmanFilter(model)
    kf.step(z[0])
    mean, chol = kf.state
    upper = np.conj(np.swapaxes(chol, 0, 1))
    for state, error, words in (
        ((mean[:1], chol), ValueError, r"mean of the state must be \[\.\.\., 2\]"),
        ((mean, chol[:1]), ValueError, r"factor of the state must be \[\.\.\., 2, 2\]"),
        ((mean * np.nan, chol), ValueError, "mean of the state must be finite"),
        ((mean, upper), ValueError, "lower triangular"),
        ((mean, -chol), ValueError, "not negative"),
        ((np.stack([mean] * 2), chol), ValueError, "a batch axis of 2"),
        ((np.stack([mean] * 2), np.stack([chol] * 3)), ValueError, "must have one batch axis"),
    ):
        with pytest.raises(error, match=words):
            kf.set_state(*state)
    np.testing.assert_array_equal(kf.state.mean, mean)
    with pytest.raises(TypeError, match="arrived must be bool"):
        statespace.step(model, None, z[0], arrived=1.0)
    with pytest.raises(ValueError, match="arrived must be broadcast"):
        statespace.step(model, None, z[:3], arrived=[True, False])
    with pytest.raises(TypeError, match=r"state must be a pair \(mean, chol\)"):
        statespace.step(model, mean, z[0])
    varying = statespace.LinearGaussian(np.ones([4, 1, 1]), [[1.0]], [[1.0]], [[1.0]], [0], [[1.0]])
    with pytest.raises(ValueError, match="vary over time"):
        statespace.step(varying, None, 1.0)


@pytest.mark.parametrize(
    ("matrix", "hint"),
    [
        ({"R": 0.1}, r": np.eye\(2\) \* R$"),
        ({"R": [0.1, 0.2]}, r": np.diag\(R\)$"),
        ({"H": np.ones((4, 2, 3))}, r": process takes a block of observations"),
        ({"H": np.full((2, 3), np.nan)}, r"what is missing is NaN in z"),
    ],
)
def test_says_how_an_array_becomes_a_matrix_of_a_step(matrix, hint):
    model = statespace.LinearGaussian(0.9 * np.eye(3), np.eye(3), np.ones((2, 3)), np.eye(2))
    with pytest.raises(ValueError, match=hint):
        statespace.step(model, None, np.ones(2), **matrix)
