"""A learned factor of noise variances that come with the data."""

import keras
import numpy as np
import pytest

import cgp
from cgp.kernels import Coregionalized, Matern32, Rotation

KINDS = [cgp.ExactGP, cgp.StateSpaceGP]
AT = np.array([2.2, 11.0, 60.0])


def scattered(seed, count=120, scale=1.0):
    """Times, a process in noise of unlike variances, and these variances over a scale."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0.0, 50.0, count))
    variances = 0.02 * 10.0 ** rng.uniform(-1.0, 1.0, count)
    z = cgp.StateSpaceGP(Matern32(1.0, 5.0) * Rotation(0.1), 1e-9).sample(x, seed=seed)[0]
    z += np.sqrt(0.5 * variances) * (rng.normal(size=count) + 1j * rng.normal(size=count))
    return x, z, variances / scale


def close(found, expected, tolerance=1e-10):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def kernel():
    return Matern32(1.0, 5.0) * Rotation(0.1)


@pytest.mark.parametrize("kind", [*KINDS, cgp.RecursiveGP])
def test_a_scale_is_that_multiple_of_the_variances(kind):
    x, z, variances = scattered(0, count=40)
    scaled, plain = kind(kernel(), 0.01, noise_scale=3.0), kind(kernel(), 0.01)
    predictions: list[list] = []
    for gp, v in ((scaled, variances), (plain, 3.0 * variances)):
        predictions.append([])
        if kind is not cgp.RecursiveGP:
            gp.condition(x, z, noise_variance=v)
            at = gp.predict(AT, observed=True, noise_variance=v[0])
            predictions[-1] += [gp.log_marginal_likelihood(), *at.values()]
        if kind is not cgp.ExactGP:
            later = x + 100.0
            block = gp.process(later[:20], z[:20], noise_variance=v[:20])
            step = gp.step(later[20], z[20], noise_variance=v[20])
            predictions[-1] += [block.filtered.variance, step.filtered.variance, step.nis]
    for found, expected in zip(*predictions, strict=True):
        close(found, expected, 1e-12)


def test_the_scale_of_outputs_in_a_collapsed_series_and_in_a_step():
    rng = np.random.default_rng(3)
    x, z = np.arange(12.0), rng.normal(size=(12, 2)) + 1j * rng.normal(size=(12, 2))
    variances = rng.uniform(0.5, 2.0, size=(12, 2))
    outcomes = []
    for scale, v in ((0.25, variances), (1.0, 0.25 * variances)):
        outputs = Coregionalized(kernel(), outputs=2, mixing=[1.0, 0.7j])
        gp = cgp.StateSpaceGP(outputs, [0.1, 0.2], noise_scale=scale)
        likelihood = gp.log_marginal_likelihood(x, z, noise_variance=v)
        outcomes.append([likelihood, gp.step(0.0, z[0], noise_variance=v[0]).filtered.mean])
    for found, expected in zip(*outcomes, strict=True):
        close(found, expected, 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_does_not_depend_on_the_unit_of_the_variances(kind):
    x, z, variances = scattered(1)
    fits = []
    for unit in (1.0, 20.0):
        gp = kind(Matern32() * Rotation(), noise_scale=None)
        gp.fit(x, z, noise_variance=unit * variances, verbose=0)
        fits.append([gp.parameters(), gp.log_marginal_likelihood(), gp.predict(AT)["mean"]])
    (of_first, *first), (of_second, *second) = fits
    close(of_second["noise_scale"] * 20.0, of_first["noise_scale"], 1e-5)
    for found, expected in zip(second, first, strict=True):
        close(found, expected, 1e-5)


def test_a_stationary_optimum_has_no_slope_along_the_scale():
    x, z, variances = scattered(2)
    gp = cgp.ExactGP(Matern32() * Rotation(), noise_scale=None)
    gp.fit(x, z, noise_variance=variances, verbose=0)
    best, scale = gp.log_marginal_likelihood(), float(gp.noise_scale.numpy())
    for factor in (0.97, 1.03):
        gp.noise_scale.assign(scale * factor)
        assert gp.log_marginal_likelihood() < best


@pytest.mark.long
def test_the_scale_is_within_its_errors():
    deviations = []
    for seed in range(60):
        x, z, variances = scattered(100 + seed, count=200, scale=7.0)
        gp = cgp.StateSpaceGP(kernel(), 1e-6, noise_scale=None, fixed="noise_variance")
        gp.fit(x, z, noise_variance=variances, verbose=0)
        error = float(gp.parameter_errors(verbose=0)["noise_scale"])
        deviations.append((float(gp.noise_scale.numpy()) - 7.0) / error)
    assert abs(np.mean(deviations)) < 0.45  # three standard errors, and the skewness of a variance
    assert 0.75 < np.std(deviations) < 1.3


@pytest.mark.parametrize(("unit", "ratio"), [(0.05, "1[0-9]"), (20.0, r"0\.0(6|3)")])
def test_variances_that_are_wrong_are_told(unit, ratio):
    x, z, variances = scattered(1, count=300)
    gp = cgp.StateSpaceGP(Matern32() * Rotation())
    with pytest.warns(RuntimeWarning, match=f"about {ratio}.* times the noise variances that came"):
        gp.fit(x, z, noise_variance=unit * variances, verbose=0)


def test_the_scale_is_saved_and_left_out_of_a_model_without(tmp_path):
    x, z, variances = scattered(4)
    gp = cgp.ExactGP(Matern32() * Rotation(), noise_scale=None)
    assert np.isnan(gp.parameters()["noise_scale"])
    gp.fit(x, z, noise_variance=variances, verbose=0)
    gp.save(tmp_path / "scaled.keras")
    loaded = keras.saving.load_model(tmp_path / "scaled.keras")
    close(loaded.noise_scale.numpy(), gp.noise_scale.numpy())
    close(loaded.log_marginal_likelihood(), gp.log_marginal_likelihood())
    assert "noise_scale" not in cgp.ExactGP(kernel(), 0.1).parameters()


def test_errors():
    x, z, variances = scattered(5, count=20)
    gp = cgp.ExactGP(kernel(), noise_scale=None)
    with pytest.raises(ValueError, match="noise_scale is a factor of noise variances that come"):
        gp.fit(x, z, verbose=0)
    with pytest.raises(ValueError, match=r"left out, and not learned yet: .*noise_scale"):
        gp.condition(x, z, noise_variance=variances)
    with pytest.raises(ValueError, match="noise_scale is fixed, but was left out"):
        cgp.ExactGP(kernel(), noise_scale=None, fixed="noise_scale")
    with pytest.raises(ValueError, match='policy="budget" has no noise_scale'):
        cgp.RecursiveGP(kernel(), 0.1, noise_scale=2.0, policy="budget")
    with pytest.raises(ValueError, match="noise_scale must be positive"):
        cgp.ExactGP(kernel(), 0.1, noise_scale=-1.0)
