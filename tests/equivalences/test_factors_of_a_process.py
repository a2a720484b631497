"""A Gaussian process by rank-one operations on factors, and by its dense covariance."""

import numpy as np
import pytest

import cgp
from cgp.kernels import RBF, Matern32, Rotation

NOISE = 0.15
KERNEL = Matern32(1.2, 2.0) * Rotation(0.4) + RBF(0.3, 1.0)
TIGHT = {"rtol": 1e-11, "atol": 1e-12}


def data(n=12):
    rng = np.random.default_rng(7)
    x = rng.uniform(0.0, 6.0, n)
    return x, rng.normal(size=n) + 1j * rng.normal(size=n)


def covariance(x):
    return KERNEL.covariance(x).numpy() + NOISE * np.eye(len(x))


@pytest.mark.parametrize("capacity", [None, 15])
def test_does_appending_points_grow_the_factor_of_the_whole(capacity):
    x, _ = data()
    size = None if capacity is None else 1
    chol = cgp.linalg.cholesky(covariance(x[:1]))
    if capacity is not None:
        buffer = np.eye(capacity, dtype=complex)
        buffer[:1, :1] = chol
        chol = buffer
    for n in range(1, len(x)):
        cross = KERNEL.covariance(x[:n], x[n : n + 1])[:, 0].numpy()
        if capacity is not None:
            cross = np.concatenate([cross, np.full(capacity - n, 1e3)])
            size = n
        variance = KERNEL.covariance(x[n : n + 1]).numpy()[0, 0].real + NOISE
        chol = cgp.linalg.cholesky_append(chol, cross, variance, size=size)
    expected = cgp.linalg.cholesky(covariance(x))
    np.testing.assert_allclose(chol[: len(x), : len(x)], expected, **TIGHT)


def test_is_a_removed_point_one_that_was_never_seen():
    x, z = data()
    chol = cgp.linalg.cholesky_remove(cgp.linalg.cholesky(covariance(x)), 4)
    kept = np.delete(np.arange(len(x)), 4)
    weights = cgp.linalg.solve(chol, z[kept][:, None]).numpy()[:, 0]
    x_new = np.array([0.5, 3.3])
    mean = KERNEL.covariance(x_new, x[kept]).numpy() @ weights
    gp = cgp.ExactGP(KERNEL, NOISE)
    gp.condition(x[kept], z[kept])
    np.testing.assert_allclose(mean, gp.predict(x_new)["mean"], **TIGHT)
    z[4] = np.nan
    gp.condition(x, z)
    np.testing.assert_allclose(mean, gp.predict(x_new)["mean"], **TIGHT)


def test_is_conditioning_on_one_point_after_another_the_posterior_of_all():
    """The Bayesian scalar update, over the signal at data and new points together."""
    x, z = data()
    x_new = np.array([0.5, 3.3, 7.0])
    everywhere = np.concatenate([x, x_new])
    chol = cgp.linalg.cholesky(KERNEL.covariance(everywhere).numpy() + 1e-13 * np.eye(15))
    mean, log_likelihood = np.zeros(15, complex), 0.0
    for i, value in enumerate(z):
        chol, gain, innovation_variance = cgp.linalg.cholesky_condition(
            chol, np.eye(15)[i] + 0j, NOISE
        )
        innovation = value - mean[i]
        mean = mean + gain.numpy() * innovation
        s = float(innovation_variance)
        log_likelihood -= np.log(np.pi * s) + abs(innovation) ** 2 / s
    gp = cgp.ExactGP(KERNEL, NOISE)
    gp.condition(x, z)
    posterior = gp.posterior(x_new)
    found = (chol @ np.conj(np.swapaxes(chol, 0, 1))).numpy()[12:, 12:]
    np.testing.assert_allclose(mean[12:], posterior.mean(), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(found, posterior.covariance(), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(log_likelihood, gp.log_marginal_likelihood(x, z), rtol=1e-11)


def test_is_the_likelihood_the_density_of_the_complex_normal():
    x, z = data()
    for kernel, pseudo in ((KERNEL, 0.0), (cgp.kernels.WidelyLinear(KERNEL, 0.5j), 0.05)):
        gp = cgp.ExactGP(kernel, NOISE, pseudo)
        normal = cgp.ComplexNormal.from_covariance(
            np.zeros(12, complex),
            kernel.covariance(x) + NOISE * np.eye(12),
            kernel.pseudo_covariance(x) + pseudo * np.eye(12),
        )
        expected = normal.log_prob(z)
        np.testing.assert_allclose(gp.log_marginal_likelihood(x, z), expected, rtol=1e-11)
        prior = gp.posterior(x, observed=True)
        np.testing.assert_allclose(prior.log_prob(z), expected, rtol=1e-11)
