"""The normalised innovation squared, and gates."""

import numpy as np
import pytest
import scipy.stats

import cgp
from cgp import statespace
from cgp.distributions import Step
from cgp.metrics import gate
from tests.reference import kalman
from tests.statespace.problems import improper_parts, problem

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def improper():
    covariances, parts = improper_parts(2, 2)
    return statespace.widely_linear(problem(2, 2).changed(**covariances).model(), **parts)


MODELS = {
    "proper": lambda: problem(2, 2).model(),
    "improper": improper,
    "real": lambda: problem(2, 2, "float64").model(),
}
kinds = pytest.mark.parametrize("kind", list(MODELS))


@kinds
def test_is_the_normalised_innovation_squared_a_mahalanobis_distance(kind):
    kf = cgp.KalmanFilter(MODELS[kind]())
    rng = np.random.default_rng(2)
    for holes in ([], [0], [1], [0, 1]):
        z = rng.normal(size=2) + (0 if kind == "real" else 1j * rng.normal(size=2))
        z[holes] = np.nan
        step = kf.step(z)
        k, c, v = step.innovation_covariance, step.innovation_pseudo_covariance, step.innovation
        np.testing.assert_allclose(np.diag(k).real, step.predicted.variance, **CLOSE)
        np.testing.assert_allclose(np.diag(c), step.predicted.pseudo_variance, **CLOSE)
        seen = ~np.isnan(v)
        k, c, v = k[np.ix_(seen, seen)], c[np.ix_(seen, seen)], v[seen]
        if not seen.any():
            assert np.isnan(step.nis)
        elif kind == "real":
            np.testing.assert_allclose(step.nis, v @ np.linalg.solve(k, v), **CLOSE)
        else:  # in the augmented form, whose distance is that of the composite
            augmented = np.block([[k, c], [c.conj(), k.conj()]])
            v = np.concatenate([v, v.conj()])
            distance = v.conj() @ np.linalg.solve(augmented, v)
            np.testing.assert_allclose(step.nis, distance.real, **CLOSE)


@kinds
def test_is_it_chi_squared_where_the_model_is_right(kind):
    """With two degrees of freedom for each complex component; the innovations are white."""
    model = MODELS[kind]()
    _, z = statespace.sample(model, 4000, seed=3)
    nis = cgp.KalmanFilter(model).process(np.asarray(z)).nis
    degrees = 2 if kind == "real" else 4
    assert scipy.stats.kstest(nis, scipy.stats.chi2(degrees).cdf).pvalue > 1e-3
    # It can tell: the degrees of the other kind do not fit.
    assert scipy.stats.kstest(nis, scipy.stats.chi2(6 - degrees).cdf).pvalue < 1e-10


@pytest.mark.parametrize("pseudo_variance", [0.0, 0.2 + 0.1j])
def test_is_it_chi_squared_for_a_process(pseudo_variance):
    rng = np.random.default_rng(4)
    kernel = cgp.kernels.Matern12(1.0, 2.0)
    x = np.cumsum(rng.uniform(0.1, 1.0, 500))
    exact = cgp.ExactGP(kernel, noise_variance=0.5, noise_pseudo_variance=pseudo_variance)
    z = exact.sample(x, 1, observed=True, seed=5)[0]
    gp = cgp.StateSpaceGP(kernel, noise_variance=0.5, noise_pseudo_variance=pseudo_variance)
    nis = gp.process(x, z).nis
    assert nis.shape == (500,)
    assert scipy.stats.kstest(nis, scipy.stats.chi2(2).cdf).pvalue > 1e-3


def test_is_it_infinite_where_a_certain_prediction_is_wrong():
    step = Step(
        None,
        np.array([1.0 + 0j]),
        None,
        cgp.distributions.JointMoments(np.zeros((1, 1), complex), np.zeros((1, 1), complex)),
    )
    assert step.nis == np.inf


@kinds
def test_does_a_gate_hold_the_quantile_of_what_is_observed(kind):
    kf = cgp.KalmanFilter(MODELS[kind]())
    parts = 1 if kind == "real" else 2
    for holes in ([], [1]):
        z = np.ones(2) if kind == "real" else np.ones(2) + 0j
        z[holes] = np.nan
        step = kf.step(z)
        probability = scipy.stats.chi2(parts * (2 - len(holes))).cdf(step.nis)
        assert gate(step, probability + 1e-6)
        assert not gate(step, probability - 1e-6)
    assert gate(kf.step(np.full_like(z, np.nan)), 0.5)  # nothing observed, nothing outside


@pytest.mark.parametrize("probability", [0.0, 1.0, -1.0, np.nan])
def test_is_a_gate_without_a_probability_refused(probability):
    kf = cgp.KalmanFilter(MODELS["proper"]())
    step = kf.step(np.ones(2) + 0j)
    before = kf.state
    with pytest.raises(ValueError, match="between 0 and 1"):
        gate(step, probability)
    with pytest.raises(ValueError, match="between 0 and 1"):
        kf.step(np.ones(2) + 0j, gate=probability)
    np.testing.assert_array_equal(kf.state.mean, before.mean)


@pytest.mark.parametrize("streams", [None, 3])
@kinds
def test_does_a_step_skip_what_lies_outside(kind, streams):
    """As if it were missing, and only there."""
    rng = np.random.default_rng(6)
    model = MODELS[kind]()
    axes = () if streams is None else (streams,)
    gated, missing = cgp.KalmanFilter(model), cgp.KalmanFilter(model)
    skipped = 0
    for t in range(8):
        z = rng.normal(size=(*axes, 2)) + (
            0 if kind == "real" else 1j * rng.normal(size=(*axes, 2))
        )
        if t % 3 == 0:  # a false alarm, in one of the streams
            z[(-1,) if streams else ()] += 1e3
        step = gated.step(z, gate=0.999)
        outside = step.nis > scipy.stats.chi2(2 if kind == "real" else 4).ppf(0.999)
        np.testing.assert_array_equal(step.outside_gate, outside)
        skipped += np.sum(outside)
        assert not np.isnan(step.innovation).any()
        taken = missing.step(np.where(outside[..., None], np.nan, z))
        np.testing.assert_allclose(step.filtered.mean, taken.filtered.mean, **CLOSE)
        np.testing.assert_allclose(gated.state.mean, missing.state.mean, **CLOSE)
    assert skipped >= 3


def estimators():
    kernel = cgp.kernels.Matern12(1.0, 2.0)
    return {
        "state space": lambda: cgp.StateSpaceGP(kernel, noise_variance=0.1),
        "window": lambda: cgp.RecursiveGP(kernel, noise_variance=0.1, capacity=4),
    }


@pytest.mark.parametrize("streams", [None, 2])
@pytest.mark.parametrize("name", list(estimators()))
def test_does_a_step_of_a_process_skip_what_lies_outside(name, streams):
    rng = np.random.default_rng(7)
    gated, missing = estimators()[name](), estimators()[name]()
    axes = () if streams is None else (streams,)
    for t in range(7):
        z = rng.normal(size=axes) + 1j * rng.normal(size=axes)
        if t in (0, 3, 6):
            z = z + 1e3
        step = gated.step(float(t), z, gate=0.999)
        outside = np.full(axes, t in (0, 3, 6))
        np.testing.assert_array_equal(step.outside_gate, outside)
        assert np.all(step.nis > 0.0)
        taken = missing.step(float(t), np.where(outside, np.nan, z)[()])
        np.testing.assert_allclose(step.filtered.mean, taken.filtered.mean, **CLOSE)
        np.testing.assert_allclose(step.filtered.variance, taken.filtered.variance, **CLOSE)


def test_are_gated_steps_stacked():
    kf = cgp.KalmanFilter(MODELS["proper"]())
    rng = np.random.default_rng(8)
    z = rng.normal(size=(5, 2)) + 1j * rng.normal(size=(5, 2))
    stacked = Step.stack([kf.step(z_t, gate=0.999) for z_t in z], axis=-2)
    assert stacked.outside_gate.shape == (5,)
    assert stacked.innovation_covariance.shape == (5, 2, 2)
    assert stacked.nis.shape == (5,)
    expected = kalman.filter(problem(2, 2, steps=5).reference(), z)
    np.testing.assert_allclose(
        stacked.innovation_covariance, expected.innovation_covariances, **CLOSE
    )
