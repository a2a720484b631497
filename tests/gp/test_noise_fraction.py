"""Noise that follows the signal, beside a dense NumPy reference."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import Coregionalized, Matern32, Rotation

KINDS = [cgp.ExactGP, cgp.StateSpaceGP]
AT = np.array([0.7, 8.8, 26.0])


def kernel():
    return Matern32(1.0, 4.0) * Rotation(0.1)


def proportional(seed, count=60, fraction=0.1, deviation=0.01):
    """Times, and a signal whose modulus varies over decades, in noise that follows it."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0.0, 25.0, count))
    f = cgp.StateSpaceGP(kernel(), 1e-9).sample(x, seed=seed)[0]
    scale = np.sqrt(0.5 * (deviation**2 + fraction**2 * np.abs(f) ** 2))
    return x, f + scale * (rng.normal(size=count) + 1j * rng.normal(size=count))


def covariance(x, y):
    r = np.abs(x[:, None] - y) * np.sqrt(3.0) / 4.0
    return (1.0 + r) * np.exp(-r) * np.exp(0.2j * np.pi * (x[:, None] - y))


def reference(x, z, constant, fraction, at):
    """Log likelihood, and mean and variance of the signal, by iterations from |z|²."""
    present = ~np.isnan(z)
    x, z, constant = x[present], z[present], np.broadcast_to(constant, present.shape)[present]
    K, power = covariance(x, x), np.abs(z) ** 2
    for _ in range(200):
        S = K + np.diag(constant + fraction**2 * power)
        mean = K @ np.linalg.solve(S, z)
        power = np.abs(mean) ** 2 + np.real(np.diag(K - K @ np.linalg.solve(S, K)))
    S = K + np.diag(constant + fraction**2 * power)
    log_det = np.linalg.slogdet(np.pi * S)[1]
    cross = covariance(at, x)
    variance = 1.0 - np.real(np.einsum("ij,ji->i", cross, np.linalg.solve(S, cross.conj().T)))
    likelihood = -log_det - np.real(z.conj() @ np.linalg.solve(S, z))
    return likelihood, cross @ np.linalg.solve(S, z), variance


def close(actual, expected, tolerance=1e-9):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_follow_the_posterior_of_the_signal(kind):
    x, z = proportional(0)
    z[[3, 17]] = np.nan
    stated = np.linspace(0.0, 0.01, x.size)
    gp = kind(kernel(), 1e-4, noise_fraction=0.1)
    gp.condition(x, z, noise_variance=stated)
    likelihood, mean, variance = reference(x, z, 1e-4 + stated, 0.1, AT)
    close(gp.log_marginal_likelihood(), likelihood)
    close(gp.log_marginal_likelihood(x, z, noise_variance=stated), likelihood)
    signal, observed = gp.predict(AT), gp.predict(AT, observed=True)
    close(signal["mean"], mean)
    close(signal["variance"], variance)
    close(observed["variance"], variance + 1e-4 + 0.01 * (np.abs(mean) ** 2 + variance))
    predicted = gp.posterior(AT, observed=True)
    close(np.diag(predicted.covariance()).real, predicted.variance())


@pytest.mark.parametrize("kind", KINDS)
def test_series_have_weights_of_their_own(kind):
    x, first = proportional(1)
    second = 0.03 * first[::-1].conj()
    gp = kind(kernel(), 1e-4, noise_fraction=0.2)
    gp.condition(x, np.stack([first, second]))
    for row, z in enumerate((first, second)):
        likelihood, mean, variance = reference(x, z, 1e-4, 0.2, AT)
        close(gp.log_marginal_likelihood()[row], likelihood)
        close(gp.predict(AT)["mean"][row], mean)
        total = variance + 1e-4 + 0.04 * (np.abs(mean) ** 2 + variance)
        close(gp.predict(AT, observed=True)["variance"][row], total)


def test_outputs_by_state_space_and_in_one_covariance():
    x, z = proportional(2, count=30)
    z = np.stack([z, 0.1j * z + 0.01], axis=-1)
    z[4, 1] = np.nan
    outcomes = []
    for kind in KINDS:
        outputs = Coregionalized(kernel(), outputs=2, mixing=[1.0, 0.1j])
        gp = kind(outputs, [1e-4, 2e-4], noise_fraction=0.1)
        gp.condition(x, z)
        predicted = gp.predict(AT, observed=True)
        outcomes.append([gp.log_marginal_likelihood(), *predicted.values()])
    for exact, markov in zip(*outcomes, strict=True):
        close(exact, markov)


def test_forecasts_and_draws_have_noise_that_follows_them():
    x, z = proportional(3, count=20)
    gp = cgp.StateSpaceGP(kernel(), 1e-4, noise_fraction=0.3)
    gp.condition(x, z)
    signal, observed = (gp.forecasts([0.5, 2.0], observed=flag) for flag in (False, True))
    power = np.abs(signal["mean"]) ** 2 + signal["variance"]
    close(observed["variance"], signal["variance"] + 1e-4 + 0.09 * power)
    draws = gp.sample(AT, 20000, seed=0, observed=True)
    expected = gp.predict(AT, observed=True)["variance"]
    np.testing.assert_allclose(np.var(draws, axis=0), expected, rtol=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_ends_where_no_weight_changes(kind):
    x, z = proportional(4, count=120)
    gp = kind(Matern32() * Rotation(), noise_fraction=None)
    assert np.isnan(gp.parameters()["noise_fraction"])
    gp.fit(x, z, verbose=0)
    best, present = float(gp.log_marginal_likelihood()), gp.noise_fraction.numpy()
    close(gp.log_marginal_likelihood(x, z), best, 1e-6)
    errors = gp.parameter_errors(verbose=0)
    assert abs(present - 0.1) < 3.0 * errors["noise_fraction"]
    for factor in (0.97, 1.03):  # with the weights of the fit
        gp.noise_fraction.assign(present * factor)
        assert gp.log_marginal_likelihood() < best


@pytest.mark.long
def test_two_kinds_and_two_optimizers_learn_alike():
    x, z = proportional(5, count=80)
    learned = []
    for kind in KINDS:
        gp = kind(Matern32() * Rotation(), noise_fraction=None)
        gp.fit(x, z, verbose=0)
        learned.append(gp.parameters()["noise_fraction"])
    close(learned[0], learned[1], 1e-3)
    gp.compile(keras.optimizers.Adam(0.01))
    gp.noise_fraction.assign(0.9 * learned[1])
    gp.fit(x, z, epochs=150, verbose=0)
    close(gp.noise_fraction.numpy(), learned[1], 5e-3)


@pytest.mark.long
def test_fractions_are_within_their_errors_and_regions_hold():
    deviations, inside = [], []
    for seed in range(40):
        x, z = proportional(100 + seed, count=150)
        kept = np.arange(x.size) % 5 != 2
        gp = cgp.StateSpaceGP(kernel(), noise_fraction=None)
        gp.fit(x[kept], z[kept], verbose=0)
        predicted = gp.predict(x[~kept], observed=True)
        squares = np.abs(z[~kept] - predicted["mean"]) ** 2
        inside.append(squares < -np.log(0.05) * predicted["variance"])
        error = float(gp.parameter_errors(verbose=0)["noise_fraction"])
        deviations.append((gp.noise_fraction.numpy() - 0.1) / error)
    assert abs(np.mean(deviations)) < 0.55  # three standard errors
    assert 0.75 < np.std(deviations) < 1.3
    assert 0.93 < np.mean(inside) < 0.97


def test_the_weights_are_saved_and_served(tmp_path):
    x, z = proportional(6)
    gp = cgp.ExactGP(Matern32() * Rotation(), noise_fraction=None)
    gp.fit(x, z, verbose=0)
    gp.save(tmp_path / "relative.keras")
    loaded = keras.saving.load_model(tmp_path / "relative.keras")
    close(loaded.log_marginal_likelihood(), gp.log_marginal_likelihood(), 1e-12)
    close(loaded.predict(AT, observed=True)["variance"], gp.predict(AT, observed=True)["variance"])
    gp.export(tmp_path / "served")
    exported = tf.saved_model.load(tmp_path / "served")
    served = exported.predict(AT[:, None])
    close(served["mean"], gp.predict(AT)["mean"])


def test_in_graphs_as_a_layer_and_left_out():
    x, z = proportional(7, count=30)
    gp = cgp.ExactGP(kernel(), 1e-4, noise_fraction=0.1)
    likelihood = tf.function(lambda: gp.log_marginal_likelihood(x, z))()
    close(likelihood, reference(x, z, 1e-4, 0.1, AT)[0])
    gp((x[:, None], z))
    close(-gp.losses[0] * x.size, likelihood)
    gp.condition(x, z)
    left_out = gp.loo()
    others = np.arange(30) != 11
    refitted = cgp.ExactGP(kernel(), 1e-4, noise_fraction=0.1)
    refitted.condition(x[others], z[others])
    close(left_out["mean"][11], refitted.predict(x[11:12])["mean"][0], 0.05)
    averaged = gp.posterior(AT, uncertain=True)
    square = np.abs(averaged.mean() - gp.predict(AT)["mean"]) ** 2
    assert np.all(square < 4.0 * averaged.variance())


def test_a_capped_fit_ends_at_its_cap_and_optima_are_of_the_settled_weights():
    x, z = proportional(9)
    gp = cgp.StateSpaceGP(Matern32() * Rotation(), noise_fraction=None)
    history = gp.fit(x, z, epochs=2, verbose=0)
    assert len(history.epoch) <= 2
    assert history.optima == []
    history = gp.fit(x, z, restarts=3, verbose=0)
    assert len(history.optima) == 3
    close(history.optima[0]["parameters"]["noise_fraction"], gp.noise_fraction.numpy(), 1e-2)


def test_an_indefinite_covariance_is_told_as_without_the_fraction():
    x = np.repeat(np.arange(3.0), 2)
    gp = cgp.ExactGP(cgp.kernels.RBF(1e8, 5.0), 1e-20, noise_fraction=1e-14)
    with pytest.raises(cgp.NotPositiveDefiniteError):
        gp.condition(x, np.ones(6, complex))


def test_errors():
    x, z = proportional(8, count=12)
    gp = cgp.StateSpaceGP(kernel(), 1e-4, noise_fraction=0.1)
    for call in (lambda: gp.step(0.0, 1j), lambda: gp.process(x, z)):
        with pytest.raises(ValueError, match="takes no samples of a process with noise_fraction"):
            call()
    with pytest.raises(ValueError, match="noise_fraction is of samples of the value"):
        gp.condition(x, z, observed="derivative")
    with pytest.raises(ValueError, match="noise that follows the signal is normal, and of"):
        cgp.RecursiveGP(kernel(), 1e-4, noise_fraction=0.1)
    with pytest.raises(ValueError, match="noise that follows the signal is normal, and of"):
        cgp.ExactGP(kernel(), 1e-4, noise_fraction=0.1, likelihood=cgp.likelihoods.StudentT())
    with pytest.raises(ValueError, match="is of noise alike everywhere"):
        cgp.StateSpaceGP(kernel(), 1e-4, noise_fraction=0.1, likelihood="whittle")
    with pytest.raises(ValueError, match="noise_fraction must be one number"):
        cgp.ExactGP(kernel(), 1e-4, noise_fraction=[0.1, 0.2])
    with pytest.raises(ValueError, match="noise_fraction must be positive"):
        cgp.ExactGP(kernel(), 1e-4, noise_fraction=-0.1)
    with pytest.raises(ValueError, match="noise_fraction is fixed, but was left out"):
        cgp.ExactGP(kernel(), 1e-4, noise_fraction=None, fixed="noise_fraction")
