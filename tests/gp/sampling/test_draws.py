"""Draws of hyperparameters against posteriors that are known: in closed form, on a grid."""

import copy
import pickle
import sys
import types
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

import cgp
from cgp.gp.sampling.density import in_words, weak_priors
from cgp.kernels import RBF, Constant, Matern12, Rotation, WidelyLinear
from tests.reference import kernels

X = np.arange(12.0)
NEW = np.array([3.5, 14.0])


def drawn(gp, **arguments):
    """Draws, whether or not they are doubtful."""
    with warnings.catch_warnings():
        # An R-hat of so few draws is above its bound by chance.
        warnings.simplefilter("ignore", RuntimeWarning)
        return gp.sample_parameters(**{"chains": 4, "seed": 1, "verbose": 0, **arguments})


def assert_mean(draws, expected):
    """The mean of draws `[chains, draws]` is the expected one within four standard errors.

    The error is that of the means of batches, much longer than the draws are correlated.
    """
    batches = np.mean(draws.reshape(draws.shape[0] * 10, -1), axis=1)
    error = np.std(batches, ddof=1) / np.sqrt(len(batches))
    assert abs(np.mean(batches) - expected) < 4.0 * error
    # Wide enough of a sample to tell: a tenth of the deviation.
    assert error < 0.1 * np.std(draws)


@pytest.fixture(scope="module")
def conjugate():
    """A process of a known correlation, whose variance has an inverse gamma prior, and its draws.

    z = √v L e without noise: v given z is inverse gamma of shape a + N, scale b + zᴴ R⁻¹ z.
    """
    shape, scale = 3.0, 2.0
    prior = {"variance": tfp.distributions.InverseGamma(shape, scale)}
    kernel = Matern12(1.0, 2.0, fixed="lengthscale", priors=prior)
    gp = cgp.ExactGP(kernel, 1e-12, fixed="noise_variance")
    z = gp.sample(X[:5], seed=3)[0]
    gp.condition(X[:5], z)
    r = kernels.matern12(X[:5, None], X[:5, None], 1.0, 2.0)
    posterior = stats.invgamma(shape + 5, scale=scale + np.vdot(z, np.linalg.solve(r, z)).real)
    before = [v.numpy() for v in gp.weights]
    draws = drawn(gp, draws=500, warmup=200)
    assert all(np.array_equal(a, b.numpy()) for a, b in zip(before, gp.weights, strict=True))
    return gp, draws, posterior


def test_are_draws_of_a_variance_those_of_its_inverse_gamma_posterior(conjugate):
    _, draws, posterior = conjugate
    found = draws["matern12.variance"]
    assert found.shape == (4, 500)
    assert_mean(found, posterior.mean())
    assert_mean(np.log(found), posterior.expect(np.log))
    assert_mean((found < posterior.median()).astype(float), 0.5)
    assert_mean((found - posterior.mean()) ** 2, posterior.var())
    assert not draws.divergences.any()
    assert not draws.weak_priors
    assert "variance" not in draws
    with pytest.raises(KeyError, match=r"'variance' is none .* drawn: matern12.variance"):
        draws["variance"]
    assert 0.5 < np.mean(draws.acceptance) < 0.95


def test_is_the_density_of_a_draw_that_of_its_posterior(conjugate):
    _, draws, posterior = conjugate
    v = draws["matern12.variance"]
    expected = posterior.logpdf(v) + np.log(v)  # over the logarithm
    difference = draws.log_density - expected
    np.testing.assert_allclose(difference, difference[0, 0], rtol=1e-8)


def test_do_diagnostics_tell_mixed_chains_and_how_much_they_say(conjugate):
    _, draws, _ = conjugate
    assert draws.r_hat["matern12.variance"] < 1.05
    assert 200 < draws.effective_sizes["matern12.variance"] < 4000
    values, row = draws["matern12.variance"], draws.summary()["matern12.variance"]
    assert row["mean"] == pytest.approx(values.mean())
    assert row["deviation"] == pytest.approx(values.std())
    assert row["low"] == pytest.approx(np.quantile(values, 0.025))
    lines = str(draws).splitlines()
    assert lines[1].split()[:2] == ["matern12.variance", f"{values.mean():.4g}"]
    assert lines[-1] == "4 chains of 500 draws, 0 divergences"


def test_repeats_a_seed_its_draws(conjugate):
    gp, *_ = conjugate
    again = drawn(gp, draws=20, warmup=20, seed=7)
    same = drawn(gp, draws=20, warmup=20, seed=7)
    other = drawn(gp, draws=20, warmup=20, seed=8)
    np.testing.assert_allclose(again.weights, same.weights, rtol=1e-9)
    assert not np.allclose(again.weights, other.weights)


def test_are_predictions_those_of_the_mixture(conjugate):
    gp, draws, _ = conjugate
    each = draws.predict_each(NEW, count=50, observed=True)
    assert each.mean.shape == (50, 2)
    variances = np.ravel(draws["matern12.variance"])
    chosen = variances[np.linspace(0, variances.size - 1, 50).round().astype(int)]
    own = copy.deepcopy(gp)
    for v, mean, variance in zip(chosen[:3], each.mean, each.variance, strict=False):
        own.kernel.variance.assign(v)
        expected = own.predict(NEW, observed=True)
        np.testing.assert_allclose(mean, expected["mean"], rtol=1e-8)
        np.testing.assert_allclose(variance, expected["variance"], rtol=1e-8)
    found = draws.predict(NEW, count=50, observed=True)
    apart = each.mean - each.mean.mean(axis=0)
    np.testing.assert_allclose(found["mean"], each.mean.mean(axis=0))
    expected = np.mean(each.variance + np.abs(apart) ** 2, axis=0)
    np.testing.assert_allclose(found["variance"], expected)
    expected = np.mean(each.pseudo_variance + apart**2, axis=0)
    np.testing.assert_allclose(found["pseudo_variance"], expected, atol=1e-12)


def test_stay_draws_what_they_were_when_the_process_goes_on(conjugate):
    gp, draws, _ = conjugate
    before = draws.predict(NEW, count=5)["mean"]
    later = copy.deepcopy(gp)
    gp.condition(X[:5], np.ones(5) + 0j)
    gp.kernel.variance.assign(7.0)
    np.testing.assert_array_equal(draws.predict(NEW, count=5)["mean"], before)
    gp.set_weights(later.get_weights())
    gp.condition(X[:5], later._stored.data.z[0])


@pytest.mark.parametrize(
    "copied",
    [pytest.param(copy.deepcopy, marks=pytest.mark.long), lambda a: pickle.loads(pickle.dumps(a))],
)
def test_says_a_copy_of_draws_the_same(copied, conjugate):
    _, draws, _ = conjugate
    again = copied(draws)
    assert str(again) == str(draws)
    assert again.weak_priors == draws.weak_priors
    for found, expected in zip(
        again.predict_each(NEW, count=3), draws.predict_each(NEW, count=3), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_takes_arviz_the_draws(conjugate, monkeypatch):
    _, draws, _ = conjugate
    monkeypatch.setitem(sys.modules, "arviz", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r'pip install "cgp\[arviz\]"'):
        draws.to_arviz()
    given = {}
    monkeypatch.setitem(sys.modules, "arviz", types.SimpleNamespace(from_dict=given.update))
    draws.to_arviz()
    assert given["posterior"]["matern12.variance"].shape == (4, 500)
    assert given["sample_stats"].keys() == {"lp", "diverging", "acceptance_rate"}


@pytest.mark.slow
@pytest.mark.long
def test_are_draws_of_scale_and_noise_those_of_a_grid():
    """The posterior of two positive hyperparameters, by quadrature over their logarithms."""
    scale, noise = stats.lognorm(0.8, scale=1.5), stats.lognorm(1.0, scale=0.4)
    priors = [tfp.distributions.LogNormal(np.log(m), s) for m, s in ((1.5, 0.8), (0.4, 1.0))]
    kernel = Matern12(1.0, 3.0, fixed="lengthscale", priors={"variance": priors[0]})
    gp = cgp.StateSpaceGP(kernel, 0.5, priors={"noise_variance": priors[1]})
    gp.condition(X, gp.sample(X, seed=4, observed=True)[0])
    z = gp._stored.data.z.numpy()[0]

    a, b = np.meshgrid(np.linspace(-4, 5, 181), np.linspace(-7, 4, 221), indexing="ij")
    v, s = np.exp(a)[..., None], np.exp(b)[..., None]
    # R = U diag(d) Uᴴ: the covariance v R + s I has the eigenvalues v d + s.
    d, u = np.linalg.eigh(kernels.matern12(X[:, None], X[:, None], 1.0, 3.0))
    eigenvalues, squares = v * d + s, np.abs(u.conj().T @ z) ** 2
    log_density = -np.sum(np.log(eigenvalues) + squares / eigenvalues, axis=-1) + a + b
    log_density += scale.logpdf(v[..., 0]) + noise.logpdf(s[..., 0])
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    assert max(weight[[0, -1]].max(), weight[:, [0, -1]].max()) < 1e-6 * weight.max()

    draws = drawn(gp, draws=500, warmup=300)
    one, other = np.log(draws["matern12.variance"]), np.log(draws["noise_variance"])
    assert_mean(one, np.sum(weight * a))
    assert_mean(other, np.sum(weight * b))
    assert_mean(one**2, np.sum(weight * a**2))
    assert_mean(other**2, np.sum(weight * b**2))
    assert_mean(one * other, np.sum(weight * a * b))
    assert not draws.divergences.any()


@pytest.mark.slow
@pytest.mark.long
def test_is_a_coefficient_drawn_from_the_whole_disk_without_data_to_tell():
    """With noise alone the posterior of what is uniform on the disk is uniform on the disk."""
    kernel = WidelyLinear(RBF(1e-9, 1.0, fixed=("variance", "lengthscale")), 0.0)
    gp = cgp.ExactGP(kernel, 1.0, fixed="noise_variance")
    gp.condition(X[:3], np.ones(3) + 0j)
    draws = drawn(gp, draws=500, warmup=300)
    c = draws["widelylinear.coefficient"]
    assert np.all(np.abs(c) <= 1.0)
    assert_mean(c.real, 0.0)
    assert_mean(c.imag, 0.0)
    assert_mean(np.abs(c) ** 2, 0.5)
    assert draws.r_hat["widelylinear.coefficient"].shape == ()
    assert set(draws.real_draws()) == {
        "widelylinear.coefficient_real",
        "widelylinear.coefficient_imag",
    }


@pytest.mark.slow
@pytest.mark.long
def test_are_places_without_a_likelihood_left_out_with_a_warning():
    """A covariance that is singular to rounding where the prior would have half of the noise."""
    prior = {"noise_variance": tfp.distributions.LogNormal(-36.0, 2.0)}
    gp = cgp.ExactGP(
        RBF(1.0, 500.0, fixed=("variance", "lengthscale")),
        np.exp(-33.0),
        priors=prior,
    )
    gp.condition(X, np.ones(12) + 0j)
    with pytest.warns(RuntimeWarning, match="steps diverged"):
        draws = gp.sample_parameters(chains=2, draws=100, warmup=50, seed=2, verbose=0)
    assert draws.divergences.any()
    assert np.isfinite(draws.log_density).all()
    logs = np.log(draws["noise_variance"])
    assert logs.min() < -34.0
    assert np.isfinite(logs).all()


def test_are_priors_weak_about_the_scales_of_the_data():
    gp = cgp.ExactGP(Matern12() * Rotation(), mean=cgp.means.Constant())
    rng = np.random.default_rng(5)
    z = 5.0 * np.exp(0.5j * X) + rng.normal(size=(12, 2)) @ [1.0, 1.0j]
    gp.compile(keras.optimizers.Adam(0.01), run_eagerly=True)
    gp.fit(X, z, verbose=0)  # starts what was left out
    found = weak_priors(gp, gp._sampler().coordinates, gp.stored_data())
    # The noise was left out, and has the weak prior of the fit.
    assert set(found) == {
        "matern12.variance",
        "matern12.lengthscale",
        "rotation.frequency",
        "mean.value",
    }
    power = np.mean(np.abs(z) ** 2)
    center = float(found["matern12.variance"].center)
    assert abs(center - np.log(power)) < 1.0
    value = 3.0
    expected = stats.lognorm(2.0, scale=np.exp(center)).logpdf(value)
    log_prob = found["matern12.variance"].log_prob(tf.constant(value, tf.float64))
    assert float(log_prob) == pytest.approx(expected)
    assert float(found["rotation.frequency"].width) == 0.5
    width = found["mean.value"].width.numpy()
    np.testing.assert_allclose(width, 10.0 * np.sqrt(power), rtol=0.2)
    words = in_words(gp, gp.stored_data(), found)
    assert set(words) == {*found, "noise_variance"}
    assert f"gamma of shape 1.5 and scale {2.0 * np.var(z):.3g}" in words["noise_variance"]


def test_is_what_cannot_be_drawn_refused():
    gp = cgp.ExactGP(Constant(1.0, fixed="variance"), 0.1, fixed="noise_variance")
    with pytest.raises(ValueError, match="no data"):
        gp.sample_parameters()
    gp.condition(X, np.ones(12) + 0j)
    with pytest.raises(ValueError, match="nothing to draw"):
        gp.sample_parameters()
    with pytest.raises(ValueError, match="draws"):
        gp.sample_parameters(draws=0)
    with pytest.raises(ValueError, match="chains"):
        gp.sample_parameters(chains=1.5)
    for seed in (1.5, -1):
        with pytest.raises(ValueError, match="seed must be a whole number, at least 0"):
            gp.sample_parameters(seed=seed)
    with pytest.raises(ValueError, match='verbose must be "auto", 0 or 1'):
        gp.sample_parameters(verbose="x")
    with pytest.raises(TypeError, match="positional"):
        gp.sample_parameters(1000)  # chains or draws?
    without = cgp.ExactGP(RBF(1.0, 500.0), 1e-40)
    without._stored.replace(gp._stored.data)
    with pytest.raises(ValueError, match="no value at their present ones"):
        without.sample_parameters()
