"""Matrices of one step: as a filter of matrices that vary over time."""

import numpy as np
import pytest

import cgp
from cgp import statespace
from cgp.distributions import Step
from tests.layers.models import cores
from tests.reference import kalman
from tests.statespace.problems import (
    improper_parts,
    problem,
    random_covariance,
    reference_augmented,
    square,
)

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def varying(dtype="complex128", batch=None):
    """A problem whose matrices vary, and the same with the matrices of its first time."""
    p = problem(3, 2, dtype, varying="FQHR", holes="own", batch=batch, inputs=1, models=bool(batch))
    fixed = {
        name: a if name.startswith("initial") else a[..., :1, :, :] if batch else a[0]
        for name, a in p.matrices.items()
        if name != "B"
    } | {"B": p.matrices["B"]}
    return p, p.changed(**fixed).model()


def of_time(p, t):
    return {name: p.matrices[name][..., t, :, :] for name in "FQHR"}


def assert_as_reference(steps, expected, z):
    np.testing.assert_allclose(steps.filtered.mean, expected.filtered_means, **CLOSE)
    np.testing.assert_allclose(
        steps.innovation_covariance, expected.innovation_covariances, **CLOSE
    )
    seen = ~np.isnan(z)
    np.testing.assert_array_equal(np.isnan(steps.innovation), ~seen)
    np.testing.assert_allclose(steps.innovation[seen], expected.innovations[seen], **CLOSE)
    variances = np.diagonal(expected.filtered_covariances, axis1=-2, axis2=-1).real
    np.testing.assert_allclose(steps.filtered.variance, variances, **CLOSE)


@cores
@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("dtype", ["complex128", "float64"])
def test_are_steps_with_matrices_the_filter_of_varying_ones(dtype, batch, run):
    p, model = varying(dtype, batch)
    kf = cgp.KalmanFilter(model)

    def take(t):
        return kf.step(p.z[..., t, :], inputs=p.inputs[..., t, :], **of_time(p, t))

    steps = run(lambda: Step.stack([take(t) for t in range(p.z.shape[-2])], axis=-2))
    assert_as_reference(steps, p.expected(kalman.filter), p.z)
    # The matrices were of these steps alone.
    later = cgp.KalmanFilter(model)
    later.set_state(*kf.state)
    z = np.ones_like(p.z[..., 0, :])
    inputs = p.inputs[..., 0, :]
    np.testing.assert_allclose(
        run(lambda: kf.step(z, inputs=inputs)).filtered.mean,
        later.step(z, inputs=inputs).filtered.mean,
        **CLOSE,
    )


@pytest.mark.parametrize("has_core", [True, False], ids=["core", "tensorflow"])
@pytest.mark.parametrize("batch", [None, 3])
def test_is_a_block_with_matrices_the_same(batch, run):
    p, model = varying(batch=batch)
    kf = cgp.KalmanFilter(model)
    matrices = {name: p.matrices[name] for name in "FQHR"}
    steps = run(lambda: kf.process(p.z, inputs=p.inputs, **matrices))
    assert_as_reference(steps, p.expected(kalman.filter), p.z)


@cores
@pytest.mark.parametrize("batch", [None, 3])
def test_is_a_pure_step_with_matrices_the_same(batch, run):
    p, model = varying(batch=batch)

    def steps():
        state, results = None, []
        for t in range(p.z.shape[-2]):
            state, step = statespace.step(
                model, state, p.z[..., t, :], inputs=p.inputs[..., t, :], **of_time(p, t)
            )
            results.append(step)
        return Step.stack(results, axis=-2)

    assert_as_reference(run(steps), p.expected(kalman.filter), p.z)


@cores
def test_are_matrices_of_improper_steps_those_of_the_composite(run):
    covariances, parts = improper_parts(2, 2)
    p = problem(2, 2, holes="own").changed(**covariances)
    improper = statespace.widely_linear(p.model(), **parts)
    expected = kalman.filter(kalman.bivariate(reference_augmented(p, parts)), kalman.composite(p.z))
    other = statespace.widely_linear(problem(2, 2, seed=5).model())
    kf = cgp.KalmanFilter(other)
    kf.set_state(np.asarray(p.matrices["initial_mean"]), np.asarray(improper.initial_chol))
    matrices = {name: np.asarray(getattr(improper, name)) for name in "FQHR"}
    steps = run(lambda: Step.stack([kf.step(z, **matrices) for z in p.z], axis=-2))
    k, c = kalman.pair(expected.innovation_covariances)
    np.testing.assert_allclose(steps.innovation_covariance, k, **CLOSE)
    np.testing.assert_allclose(steps.innovation_pseudo_covariance, c, **CLOSE)
    np.testing.assert_allclose(
        kalman.composite(steps.filtered.mean), expected.filtered_means, **CLOSE
    )


def test_are_complex_matrices_of_an_improper_model_linear_maps_and_circular_noise():
    rng = np.random.default_rng(3)
    _, parts = improper_parts(2, 1)
    p = problem(2, 1)
    improper = statespace.widely_linear(
        p.changed(Q=improper_parts(2, 1)[0]["Q"]).model(), pseudo_Q=parts["pseudo_Q"]
    )
    H, R = (
        rng.normal(size=(1, 2)) + 1j * rng.normal(size=(1, 2)),
        random_covariance(rng, (), 1, "complex128"),
    )
    circular = statespace.widely_linear(p.changed(H=H, R=R).model())
    short, long = cgp.KalmanFilter(improper), cgp.KalmanFilter(improper)
    short.step(0.5 + 1j, H=H, R=R)
    long.step(0.5 + 1j, H=np.asarray(circular.H), R=np.asarray(circular.R))
    np.testing.assert_allclose(short.state.mean, long.state.mean, **CLOSE)
    np.testing.assert_allclose(square(short.state.chol), square(long.state.chol), **CLOSE)


def test_does_a_sample_that_decides_its_own_time_take_two_steps():
    """`F` leads from a sample to the next: where only the last gap is known, predict, then update.

    The reference predicts before it updates.
    """
    rng = np.random.default_rng(1)
    p = problem(2, 1)
    model = p.changed(Q=np.zeros((2, 2), complex)).model()
    kf = cgp.KalmanFilter(model)
    mean, covariance = p.matrices["initial_mean"], p.matrices["initial_covariance"]
    h, r = p.matrices["H"], p.matrices["R"]
    for gap in rng.uniform(0.1, 2.0, size=6):
        F, Q = np.diag(np.exp([-0.3 * gap, 0.2j * gap])), gap * np.eye(2)
        z = rng.normal(size=1) + 1j * rng.normal(size=1)
        kf.step(np.full(1, np.nan + 0j), F=F, Q=Q)
        step = kf.step(z, F=np.eye(2), Q=np.zeros((2, 2)))
        mean, covariance = F @ mean, F @ covariance @ kalman.adjoint(F) + Q
        s = h @ covariance @ kalman.adjoint(h) + r
        gain = covariance @ kalman.adjoint(h) / s
        mean, covariance = mean + gain @ (z - h @ mean), covariance - gain @ h @ covariance
        np.testing.assert_allclose(step.filtered.mean, mean, **CLOSE)
        np.testing.assert_allclose(square(kf.state.chol), covariance, **CLOSE)


def test_has_a_model_of_functions_noise_of_each_step():
    model = statespace.NonlinearGaussian(
        lambda x: 0.9 * x, lambda x: x, [[0.1 + 0j]], [[1.0]], [0.0], [[1.0]]
    )
    linear = statespace.LinearGaussian([[0.9 + 0j]], [[0.1]], [[1.0]], [[1.0]], [0.0], [[1.0]])
    kf, same = cgp.KalmanFilter(model), cgp.KalmanFilter(linear)
    for z, r, q in [(1.0, 0.1, 0.2), (1j, 2.0, 0.3), (0.5, 0.4, 0.5)]:
        a, b = (f.step(z + 0j, R=[[r]], Q=[[q]]) for f in (kf, same))
        np.testing.assert_allclose(a.filtered.mean, b.filtered.mean, **CLOSE)
        np.testing.assert_allclose(a.innovation_covariance, b.innovation_covariance, **CLOSE)
    for name in "FH":
        with pytest.raises(ValueError, match=f"{name} of a step is for a linear model"):
            kf.step(0j, **{name: [[1.0]]})


REFUSED = [
    ({"H": np.ones((2, 3))}, ValueError, r"H of a step must be \[2, 2\]"),
    ({"H": np.ones(2)}, ValueError, r"H of a step must be \[2, 2\]"),
    ({"F": np.ones((2, 2, 2))}, ValueError, r"F of a step must be \[2, 2\], as"),
    ({"Q": [[1.0, 2.0], [0.0, 1.0]]}, ValueError, "Q of a step must be Hermitian"),
    ({"R": [[1.0, 2.0], [2.0, 1.0]]}, cgp.NotPositiveDefiniteError, "R of a step .* indefinite"),
    ({"H": np.full((2, 2), np.nan)}, ValueError, "H of a step must be finite"),
    ({"F": [["a", "b"], ["c", "d"]]}, TypeError, "F must be numbers"),
]


@pytest.mark.parametrize(("matrices", "kind", "message"), REFUSED)
def test_is_a_matrix_that_does_not_fit_refused(matrices, kind, message):
    model = problem(2, 2).model()
    kf = cgp.KalmanFilter(model)
    kf.step(np.ones(2) + 0j)
    before = kf.state
    for take in (kf.step, lambda z, **m: statespace.step(model, tuple(before), z, **m)):
        with pytest.raises(kind, match=message):
            take(np.ones(2) + 0j, **matrices)
    np.testing.assert_array_equal(kf.state.mean, before.mean)
    np.testing.assert_array_equal(kf.state.chol, before.chol)


def test_is_a_complex_matrix_of_a_real_model_refused():
    kf = cgp.KalmanFilter(problem(2, 1, "float64").model())
    with pytest.raises(TypeError, match="H of a step must be real, float64, got complex128"):
        kf.step(1.0, H=[[1.0, 1j]])


def test_is_a_singular_noise_exact():
    """An R of zero fixes the observation; the core does not serve it, TensorFlow does."""
    model = statespace.LinearGaussian([[0.9 + 0j]], [[0.1]], [[1.0]], [[1.0]])
    kf = cgp.KalmanFilter(model)
    step = kf.step(2.0 + 1j, R=[[0.0]])
    np.testing.assert_allclose(step.filtered.mean, [2.0 + 1j], **CLOSE)
    np.testing.assert_allclose(step.filtered.variance, [0.0], atol=1e-15)
