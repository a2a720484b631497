"""The reference's recursions against its one dense normal, and against what has a closed form."""

import numpy as np
import pytest

from tests.reference import kalman
from tests.reference.complex_normal import log_prob
from tests.statespace.problems import improper_parts, problem, reference_augmented

SETTINGS = {
    "plain": {},
    "real": {"dtype": "float64"},
    "holes": {"holes": "own"},
    "varying": {"varying": "FQHR", "holes": "own"},
    "inputs": {"inputs": 2, "varying": "B", "holes": "own"},
}
every_setting = pytest.mark.parametrize("name", SETTINGS)
TIGHT = {"rtol": 1e-11, "atol": 1e-11}


def assert_same(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, **TIGHT)


@every_setting
def test_is_the_sum_over_steps_the_density_of_the_whole(name):
    p = problem(3, 2, **SETTINGS[name])
    found = kalman.filter(p.reference(), p.z).log_likelihoods
    assert (found[np.isnan(p.z).all(axis=-1)] == 0.0).all()
    np.testing.assert_allclose(
        found.sum(), kalman.joint_log_likelihood(p.reference(), p.z), rtol=1e-12
    )


@every_setting
def test_is_a_filtered_state_the_conditional_of_the_past(name):
    p = problem(3, 2, **SETTINGS[name])
    found = kalman.filter(p.reference(), p.z)
    for t in (0, 4, 13):
        for after, mean, covariance in (
            (t, found.predicted_means[t], found.predicted_covariances[t]),
            (t + 1, found.filtered_means[t], found.filtered_covariances[t]),
        ):
            z = p.z.copy()
            z[after:] = np.nan
            expected = kalman.conditional_smoothed(p.reference(), z)
            np.testing.assert_allclose(mean, expected.means[t], **TIGHT)
            np.testing.assert_allclose(covariance, expected.covariances[t], **TIGHT)


@every_setting
def test_is_the_smoother_the_conditional_of_all(name):
    p = problem(3, 2, **SETTINGS[name])
    assert_same(kalman.smooth(p.reference(), p.z), kalman.conditional_smoothed(p.reference(), p.z))


def test_does_the_smoother_bear_a_state_without_noise():
    p = problem(3, 2, holes="own")
    p.matrices["Q"] = np.diag([0.0, 0.0, 0.4]) + 0j
    p.matrices["initial_covariance"] = np.zeros((3, 3), complex)
    assert_same(kalman.smooth(p.reference(), p.z), kalman.conditional_smoothed(p.reference(), p.z))


@pytest.mark.parametrize("dtype", ["complex128", "float64"])
def test_does_a_stationary_covariance_stay(dtype):
    F, Q = (problem(4, 1, dtype=dtype).matrices[name] for name in "FQ")
    covariance = kalman.stationary_covariance(F, Q)
    np.testing.assert_allclose(covariance, kalman.adjoint(covariance), **TIGHT)
    np.testing.assert_allclose(covariance, F @ covariance @ kalman.adjoint(F) + Q, **TIGHT)


def test_is_the_error_of_the_autoregression_that_of_its_quadratic():
    """Of one state the Riccati equation is a quadratic in the predicted variance."""
    a, noise = 0.98, 0.5
    q = 1 - a**2
    b = q - noise * (1 - a**2)
    predicted = (b + np.sqrt(b**2 + 4 * q * noise)) / 2
    closed = predicted * noise / (predicted + noise)
    F, Q, H, R = (np.array([[v]]) for v in (a * np.exp(0.4j), q, 1.0, noise))
    np.testing.assert_allclose(kalman.riccati(F, Q, H, R), closed, rtol=1e-12)
    assert round(closed, 4) == 0.1160


def test_is_the_diffuse_density_that_of_a_prior_of_that_size():
    for dtype in ("complex128", "float64"):
        p = problem(3, 2, holes="own", dtype=dtype)
        p.matrices["initial_covariance"] = 1e2 * np.eye(3)
        found = kalman.diffuse_log_likelihood(p.reference(), p.z, 1e2)
        smoothed = kalman.smooth(p.reference(), p.z)
        expected = (
            kalman.joint_log_likelihood(p.reference(), p.z),
            smoothed.means[0],
            smoothed.covariances[0],
        )
        assert_same(found, expected)


@pytest.mark.parametrize("holes", ["", "own"])
def test_is_the_bivariate_density_that_of_the_pair(holes):
    """The real normal of the parts, by recursion; the improper complex one, dense."""
    p = problem(3, 2, holes=holes, inputs=1)
    matrices, parts = improper_parts(3, 2, k=1)
    p = p.changed(**matrices)
    augmented = reference_augmented(p, parts)
    found = kalman.filter(kalman.bivariate(augmented), kalman.composite(p.z))

    mean, covariance = (
        getattr(kalman.joint(augmented), name)
        for name in ("observation_mean", "observation_covariance")
    )
    z = np.concatenate([p.z, np.conj(p.z)], axis=-1)
    columns = np.arange(z.size).reshape(z.shape)
    seen = ~np.isnan(p.z)
    own, conjugate = columns[:, :2][seen], columns[:, 2:][seen]
    expected = log_prob(
        p.z[seen],
        mean[own],
        covariance[np.ix_(own, own)],
        covariance[np.ix_(own, conjugate)],
    )
    np.testing.assert_allclose(found.log_likelihoods.sum(), expected, rtol=1e-12)


def test_are_proper_states_the_same_in_parts():
    p = problem(3, 2, holes="own")
    proper = kalman.filter(p.reference(), p.z)
    wide = kalman.filter(kalman.bivariate(kalman.augmented(p.reference())), kalman.composite(p.z))
    k, c = kalman.pair(wide.filtered_covariances)
    assert_same(
        (wide.filtered_means, k, c, wide.log_likelihoods),
        (
            kalman.composite(proper.filtered_means),
            proper.filtered_covariances,
            np.zeros_like(k),
            proper.log_likelihoods,
        ),
    )


@pytest.mark.parametrize("dtype", ["complex128", "float64"])
def test_do_sixty_digits_agree_with_fifteen_where_fifteen_do(dtype):
    p = problem(3, 2, holes="own", inputs=1, dtype=dtype)
    p = p.changed(R=np.diag([0.3, 0.7]))
    model, z = p.reference(), p.z
    if dtype == "complex128":
        model, z = kalman.bivariate(kalman.augmented(model)), kalman.composite(z)
    expected = kalman.filter(model, z)
    assert_same(
        kalman.filter_in_sixty_digits(model, z),
        (
            expected.filtered_means,
            expected.filtered_covariances,
            expected.log_likelihoods.sum(),
        ),
    )
