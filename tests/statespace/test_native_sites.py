"""Filters and steps with a likelihood around the compiled core, without a graph over time."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import native, statespace
from cgp.likelihoods import OneBit, StudentT
from cgp.likelihoods.base import Moments
from cgp.likelihoods.variational import Variational
from cgp.statespace.linearization import linearized_step, native_sites
from tests.long_cases import long_except

F = np.array([[0.9, 0.2], [-0.1, 0.8]]) * np.exp(0.3j)
Q, H = 0.1 * np.eye(2), np.array([[1.0, 0.5j], [0.3, 1.0]])
R, NU = np.diag([0.2, 0.5]), 3.0

pytestmark = pytest.mark.skipif(native.core().ops is None, reason="of the compiled core")


def model(components=2):
    R_of_components = R[:components, :components]
    return statespace.LinearGaussian(
        F, Q, H[:components], R_of_components, initial_covariance=np.eye(2)
    )


def series(likelihood, steps=12, components=2):
    rng = np.random.default_rng(3)
    z = rng.normal(size=(2, steps, components)) + 1j * rng.normal(size=(2, steps, components))
    z[0, 4], z[1, 7] = 8.0 + 1j, 1.0 - 6j
    if isinstance(likelihood, OneBit):
        z = np.sign(z.real) + 1j * np.sign(z.imag)
    z[0, 2], z[1, 5:7], z[1, 9, 0] = np.nan, np.nan, np.nan
    return z


def filtered_by_weights(z):
    """Robust filter of one series `[T, M]`: each sample has noise of variance σ²/w̃."""
    mean, P, means = np.zeros(2, complex), np.eye(2, dtype=complex), []
    for sample in z:
        present = ~np.isnan(sample)
        rows, noise, value = H[present], np.diag(R)[present], sample[present]
        weights = np.ones(present.sum())
        for _ in range(400):
            S = rows @ P @ rows.conj().T + np.diag(noise / weights)
            gain = P @ rows.conj().T @ np.linalg.inv(S)
            after, V = mean + gain @ (value - rows @ mean), P - gain @ rows @ P
            spread = np.einsum("mi,ij,mj->m", rows, V, rows.conj()).real
            square = np.abs(value - rows @ after) ** 2 + spread
            weights = (NU + 2) / (NU + 2 * square / noise)
        means.append(after)
        mean, P = F @ after, F @ V @ F.conj().T + Q
    return np.array(means)


def test_is_a_robust_filter_that_of_the_weights_of_its_definition():
    likelihood = StudentT(NU)
    z = series(likelihood)
    posterior = statespace.filter(model(), z, likelihood=likelihood).filtered_means
    np.testing.assert_allclose(posterior, [*map(filtered_by_weights, z)], atol=1e-9)


@pytest.mark.parametrize("likelihood", long_except([StudentT(NU), OneBit()], StudentT(NU)))
def test_is_a_filter_the_same_in_turns_and_step_by_step(likelihood, monkeypatch):
    z = series(likelihood)
    in_turns = statespace.filter(model(), z, likelihood=likelihood)
    monkeypatch.setattr(linearized_step, "_FILTERS", 0)  # as after many calls
    step_by_step = statespace.filter(model(), z, likelihood=likelihood)
    for name in ("filtered_means", "filtered_chols", "innovations", "log_likelihoods"):
        pair = getattr(in_turns, name), getattr(step_by_step, name)
        np.testing.assert_allclose(*pair, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("likelihood", [StudentT(NU), OneBit()], ids=lambda k: type(k).__name__)
@pytest.mark.parametrize("is_compiled", long_except([False, True], False))
def test_are_steps_those_of_the_filter(likelihood, is_compiled, monkeypatch):
    if is_compiled:  # as after many steps
        monkeypatch.setattr(native_sites, "_STEPS", 0)
    z = series(likelihood)
    posterior = statespace.filter(model(), z, likelihood=likelihood)
    kf, state = cgp.KalmanFilter(model(), likelihood=likelihood), None
    for t in range(z.shape[1]):
        step = kf.step(z[:, t])
        state, pure = statespace.step(model(), state, z[:, t], likelihood=likelihood)
        for a, b in zip(tf.nest.flatten(step), tf.nest.flatten(pure), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-10)
        np.testing.assert_allclose(step.innovation, posterior.innovations[:, t], atol=1e-8)
        np.testing.assert_allclose(step.filtered.mean, posterior.filtered_means[:, t], atol=1e-8)
        variances = posterior.innovation_variances[:, t]
        np.testing.assert_allclose(step.predicted.variance, variances, atol=1e-8)
    np.testing.assert_allclose(kf.state.mean, state.mean, atol=1e-10)


def test_takes_a_step_matrices_of_its_own_with_a_likelihood():
    likelihood, z = StudentT(NU), np.array([2.0 + 1j])
    wide = np.array([[0.9]])
    kf = cgp.KalmanFilter(model(1), likelihood=likelihood)
    _, expected = statespace.step(model(1).replace(R=wide), None, z, likelihood=likelihood)
    np.testing.assert_allclose(kf.step(z, R=wide).filtered.mean, expected.filtered.mean, atol=1e-12)


@pytest.mark.parametrize("coordinates", [1, 2])
def test_is_the_site_of_students_t_that_of_the_derivatives_of_its_bound(coordinates):
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(coordinates, coordinates, 5))
    covariance = np.einsum("ikb,jkb->ijb", roots, roots)
    z = rng.normal(size=(coordinates, 5)) * [1.0, 1e6, 1.0, 10.0, 1.0]  # one has hardly a weight
    q = Moments(tf.constant(rng.normal(size=(coordinates, 5))), tf.constant(covariance))
    arguments = tf.constant(z), q, None, tf.constant(rng.gamma(2.0, size=5))
    site, expected = StudentT(NU).site(*arguments), Variational.site(StudentT(NU), *arguments)
    np.testing.assert_allclose(site.target, expected.target, rtol=1e-9)
    np.testing.assert_allclose(site.precision, expected.precision, rtol=1e-12, atol=1e-20)
