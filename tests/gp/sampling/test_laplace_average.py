"""Posteriors that are averaged over uncertain hyperparameters."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import cgp
from cgp.gp.sampling.laplace_average import simplex
from cgp.kernels import Coregionalized, Matern12, Matern32, Rotation, WidelyLinear
from tests.long_cases import long_except

KINDS = [cgp.ExactGP, cgp.StateSpaceGP]


def series(seed, count, kernel=None):
    kernel = Matern32(1.0, 5.0) * Rotation(0.05) if kernel is None else kernel
    x = np.sort(np.random.default_rng(seed).uniform(0.0, count, count))
    return x, cgp.StateSpaceGP(kernel, 0.1).sample(x, seed=seed, observed=True)[0]


@pytest.mark.parametrize("dimensions", [1, 2, 5])
def test_has_a_simplex_the_moments_of_a_sphere(dimensions):
    corners = simplex(dimensions)
    assert corners.shape == (dimensions + 1, dimensions)
    np.testing.assert_allclose(corners.sum(axis=0), 0.0, atol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(corners, axis=1), 1.0)
    np.testing.assert_allclose(
        dimensions * corners.T @ corners / (dimensions + 1), np.eye(dimensions), atol=1e-14
    )


@pytest.mark.parametrize("kind", long_except(KINDS, cgp.ExactGP))
def test_is_the_average_that_of_an_integral_over_one_hyperparameter(kind):
    x, z = series(0, 25, Matern12(1.0, 4.0))
    prior = tfp.distributions.LogNormal(np.log(4.0), np.float64(0.5))
    kernel = Matern12(1.0, 4.0, fixed="variance", priors={"lengthscale": prior})
    gp = kind(kernel, 0.1, fixed="noise_variance")
    gp.fit(x, z, verbose=0)
    places, weight = np.array([3.3, 12.2, 30.0]), gp.trainable_variables[0]
    found, best = gp.posterior(places, uncertain=True), float(weight.numpy())
    np.testing.assert_allclose(weight.numpy(), best)  # it moved a copy
    logs = best + np.linspace(-2.5, 2.5, 201)
    density = gp.log_density([logs]).numpy()
    density = np.exp(density - density.max())
    means, variances = [], []
    for log in logs:
        weight.assign(log)
        at = gp.predict(places)
        means.append(at["mean"])
        variances.append(at["variance"])
    means, variances = np.array(means), np.array(variances)
    share = density[:, None] / density.sum()
    mean = np.sum(share * means, axis=0)
    apart = np.abs(means - mean) ** 2
    variance = np.sum(share * (variances + apart), axis=0)
    spread = np.sqrt(np.sum(share * apart, axis=0))
    assert np.all(np.abs(found.mean() - mean) < 0.2 * spread)
    np.testing.assert_allclose(found.variance(), variance, rtol=0.03)


@pytest.mark.parametrize("kind", long_except(KINDS, cgp.ExactGP))
def test_are_the_moments_of_one_mixture(kind):
    x, z = series(1, 40)
    gp = kind(Matern32() * Rotation())
    gp.fit(x, z, verbose=0)
    places = np.array([1.5, 20.2, 39.0])
    plain = gp.posterior(places)
    averaged = gp.posterior(places, uncertain=True)
    assert not averaged.is_proper
    assert np.all(averaged.variance() > plain.variance())
    for matrix, diagonal in (("covariance", "variance"), ("pseudo_covariance", "pseudo_variance")):
        found = np.diag(getattr(averaged, matrix)().numpy())
        np.testing.assert_allclose(found, getattr(averaged, diagonal)(), atol=1e-13)
    observed = gp.posterior(places, observed=True, uncertain=True)
    assert np.all(observed.variance() > averaged.variance())
    again = gp.posterior(places, uncertain=True)
    np.testing.assert_array_equal(again.variance(), averaged.variance())


def test_follows_the_average_the_hyperparameters():
    x, z = series(1, 40)
    gp = cgp.StateSpaceGP(Matern32() * Rotation())
    gp.fit(x, z, verbose=0)
    before = gp.posterior([20.2], uncertain=True).variance().numpy()
    gp.noise_variance.assign(1.3 * gp.noise_variance.numpy())
    assert gp.posterior([20.2], uncertain=True).variance().numpy() != before


def test_leaves_the_average_a_place_where_the_likelihood_is_flat():
    x, z = series(3, 30, Matern12(1.0, 4.0))
    gp = cgp.ExactGP(Matern12() + Matern32())
    gp.fit(x, z, verbose=0)
    expected = gp.posterior(x, uncertain=True)
    variance, lengthscale = gp.kernel.parts[1].variance, gp.kernel.parts[1].lengthscale
    variance.assign(1e-28)  # as a fit leaves a term that the data do not show
    lengthscale.assign(1e13)
    found = gp.posterior(x, uncertain=True)
    np.testing.assert_allclose(found.variance(), expected.variance(), rtol=1e-3)
    np.testing.assert_allclose(found.mean(), expected.mean(), atol=1e-3)


def test_follows_the_average_weights_that_are_not_learned():
    x, z = series(1, 40)
    mean = cgp.means.Constant(0.0, fixed="value")
    gp = cgp.ExactGP(Matern32(1.0, 5.0) * Rotation(0.05, fixed="frequency"), 0.1, mean=mean)
    gp.condition(x, z)
    for fixed, value in ((mean.value, 1.0 + 1j), (gp.kernel.parts[1].frequency, 0.06)):
        before = gp.posterior([20.2], uncertain=True).mean().numpy()
        fixed.assign(value)
        assert np.abs(gp.posterior([20.2], uncertain=True).mean().numpy() - before) > 1e-6


def test_has_the_average_of_outputs_their_shape():
    outputs = Coregionalized(Matern32(1.0, 5.0), outputs=2, mixing=[1.0, 0.8j])
    x = np.arange(30.0)
    z = cgp.StateSpaceGP(outputs, 0.1).sample(x, seed=0, observed=True)[0]
    gp = cgp.StateSpaceGP(Coregionalized(Matern32(), outputs=2))
    gp.fit(x, z, verbose=0)
    averaged = gp.posterior([3.5, 4.5, 40.0], uncertain=True)
    assert averaged.mean().shape == averaged.variance().shape == (3, 2)
    np.testing.assert_allclose(
        np.diag(averaged.covariance().numpy()), np.ravel(averaged.variance()), atol=1e-13
    )


def test_has_a_signal_that_the_likelihood_loses_its_regions():
    """A drift far below the noise, of which the maximum of the likelihood has none."""
    rng, t = np.random.default_rng(4), np.arange(160.0)
    root = np.linalg.cholesky(np.exp(-np.abs(t[:, None] - t) / 40) + 1e-9 * np.eye(160))
    signal = 0.03 * root @ rng.normal(size=160)
    z = signal + 0.12 * rng.normal(size=(160, 2)) @ [1, 1j]
    gp = cgp.ExactGP(WidelyLinear(Matern32(), 1.0, fixed="coefficient"))
    gp.fit(t, z, verbose=0)
    held = []
    for uncertain in (False, True):
        posterior = gp.posterior(t, uncertain=uncertain)
        of_real = (posterior.variance() + tf.math.real(posterior.pseudo_variance())) / 2.0
        square = (tf.math.real(posterior.mean()) - signal) ** 2
        held.append(np.mean(square < 1.96**2 * of_real))
    assert held[0] < 0.3
    assert held[1] > 0.8


def test_errors():
    gp = cgp.ExactGP(Matern12(1.0, 2.0, fixed=("variance", "lengthscale")) + Rotation(0.1), 0.1)
    gp.condition([0.0, 1.0, 2.0], np.array([1.0 + 1j, 0.5, 0.2j]))
    with pytest.raises(ValueError, match="uncertain=True is of the whole signal"):
        gp.posterior([0.5], part=gp.kernel.parts[0], uncertain=True)
    with pytest.raises(RuntimeError, match=r"outside of a tf\.function"):
        tf.function(lambda: gp.posterior([0.5], uncertain=True).mean())()
    fixed = Matern12(1.0, 2.0, fixed=("variance", "lengthscale"))
    known = cgp.ExactGP(fixed, 0.1, fixed="noise_variance")
    with pytest.raises(ValueError, match="there are no data"):
        known.posterior([0.5], uncertain=True)
    known.condition([0.0], np.array([1.0 + 1j]))
    with pytest.raises(ValueError, match="nothing to average over"):
        known.posterior([0.5], uncertain=True)
    with pytest.raises(TypeError, match="uncertain must be"):
        known.posterior([0.5], uncertain="yes")


@pytest.mark.long
def test_hold_regions_of_few_points_as_much_as_they_say():
    plain, averaged = [], []
    for seed in range(20):
        kernel, rng = Matern32(1.0, 4.0) * Rotation(0.05), np.random.default_rng(seed)
        x = np.sort(rng.uniform(0.0, 120.0, 120))
        f = cgp.StateSpaceGP(kernel, 1e-9).sample(x, seed=seed)[0]
        chosen = np.sort(rng.permutation(120)[:60])
        between = np.setdiff1d(np.arange(120), chosen)
        noise = np.sqrt(0.1) * (rng.normal(size=120) + 1j * rng.normal(size=120))
        gp = cgp.StateSpaceGP(Matern32() * Rotation())
        gp.fit(x[chosen], (f + noise)[chosen], restarts=3, verbose=0)
        at = x[between]
        for inside, posterior in (
            (plain, gp.posterior(at)),
            (averaged, gp.posterior(at, uncertain=True)),
        ):
            inside.append(cgp.metrics.coverage(f[between], posterior))
    assert np.mean(averaged) > np.mean(plain)
    assert 0.92 < np.mean(averaged) < 0.975
