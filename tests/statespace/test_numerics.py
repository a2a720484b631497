"""Published figures, hard numbers, and how often anything is compiled."""

import sys

import numpy as np
import pytest
import scipy.signal
import tensorflow as tf

from cgp import statespace
from cgp.statespace.compiled import CompiledByShape
from tests.linalg.problems import random
from tests.long_cases import long_except
from tests.reference import kalman
from tests.statespace.problems import (
    Problem,
    assert_factors,
    assert_filtered,
    assert_smoothed,
    problem,
    random_covariance,
    square,
)


def autoregression(coefficient, drive, steps):
    """`x[t+1] = coefficient x[t] + w[t]` from white noise `[..., T]`, past its beginning."""
    x = scipy.signal.lfilter([1.0], [1.0, -coefficient], drive)
    return x[..., -steps:]


def test_is_the_error_of_the_autoregression_that_of_riccati():
    """Libraries that transpose without conjugating reach 0.2635."""
    rng = np.random.default_rng(0)
    steps, a, noise = 100_000, 0.98 * np.exp(0.4j), 0.5
    q = 1 - abs(a) ** 2
    drive = np.sqrt(q / 2) * random(rng, (steps + 1000,), "complex128")
    x = autoregression(a, drive, steps)
    z = x + np.sqrt(noise / 2) * random(rng, (steps,), "complex128")
    model = statespace.LinearGaussian([[a]], [[q]], [[1.0]], [[noise]])
    found = statespace.filter(model, z)
    mse = np.mean(np.abs(x - np.asarray(found.filtered_means)[:, 0]) ** 2)
    np.testing.assert_allclose(mse, 0.1160, rtol=0.02)
    steady = square(found.filtered_chols)[-1, 0, 0]
    np.testing.assert_allclose(steady, 0.1160, atol=5e-5)


GAINS = {
    0.0: (0.0, 0.0, 0.0),
    0.5: (0.22, 0.20, 0.16),
    0.9: (0.91, 1.01, 0.96),
    1.0: (1.37, 1.89, 2.58),
}


@pytest.mark.long
def test_is_the_gain_of_wide_linearity_as_published():
    """Dini & Mandic, 2012: dB over the proper filter, by noncircularity and signal to noise."""
    rng = np.random.default_rng(0)
    steps, a, q = 100_000, 0.95, 1 - 0.95**2
    decibels = np.array([-5.0, 5.0, 15.0])
    rho = np.array(list(GAINS))
    white = np.sqrt(q / 2) * random(rng, (steps + 500,), "complex128")
    # E[w²] = ρ E|w|² for parts of unequal size.
    drive = np.sqrt(1 + rho)[:, None] * white.real + 1j * np.sqrt(1 - rho)[:, None] * white.imag
    x = autoregression(a, drive, steps)[:, None, :, None]
    noise = 10 ** (-decibels / 10)
    z = x + np.sqrt(noise / 2)[:, None, None] * random(rng, (steps, 1), "complex128")
    proper = statespace.LinearGaussian(
        [[a + 0j]], [[q]], [[1.0]], noise[:, None, None, None], initial_covariance=[[1.0]]
    )
    improper = statespace.widely_linear(
        proper,
        pseudo_Q=q * rho[:, None, None, None, None],
        initial_pseudo_covariance=rho[:, None, None, None],
    )

    def mse(model):
        return np.mean(np.abs(x - statespace.filter(model, z).filtered_means) ** 2, (-1, -2))

    gain = 10 * np.log10(mse(proper) / mse(improper))
    np.testing.assert_allclose(gain, list(GAINS.values()), atol=0.2)


def hard(dtype, steps=300):
    """Observations of a part in 10¹² beside a prior of 10⁶."""
    rng = np.random.default_rng(1)
    n = 4
    rotation = np.diag(np.exp(1j * np.array([0.1, -0.4, 0.9, 0.2])))
    if np.dtype(dtype).kind == "f":
        c, s = np.cos(0.3), np.sin(0.3)
        rotation = np.kron(np.eye(2), [[c, -s], [s, c]]) + 0.1 * np.eye(4, k=2)
    Q = random_covariance(rng, (), n, dtype)  # Hermitian but for single rounding
    matrices = {
        "F": 0.999 * rotation,
        "Q": 5e-3 * (Q + Q.conj().T),
        "H": random(rng, (1, n), dtype),
        "R": np.array([[1e-12]]),
        "initial_mean": np.zeros(n),
        "initial_covariance": 1e6 * np.eye(n),
    }
    return matrices, random(rng, (steps, 1), dtype)


@pytest.mark.parametrize(
    ("dtype", "varying"), [("complex64", False), ("complex64", True), ("float32", False)]
)
def test_is_single_precision_near_double_where_covariances_fail(dtype, varying):
    matrices, z = hard(dtype)
    if varying:
        matrices["F"] = np.repeat(matrices["F"][None], len(z), axis=0)
    twice = {"complex64": "complex128", "float32": "float64"}[dtype]

    def cast(dtype):
        return {name: np.asarray(value, dtype) for name, value in matrices.items()}

    single, double = (statespace.LinearGaussian(**cast(d)) for d in (dtype, twice))
    found, expected = statespace.filter(single, z), statespace.filter(double, z.astype(twice))
    for name in ("filtered_means", "innovation_covariances", "log_likelihood"):
        a, b = (np.asarray(getattr(f, name)) for f in (found, expected))
        assert np.isfinite(a).all(), name
        assert np.abs(a - b).max() < 1e-3 * np.abs(b).max(), name
    for name in ("predicted_chols", "filtered_chols"):
        a, b = (square(getattr(f, name)) for f in (found, expected))
        assert np.isfinite(a).all(), name
        size = np.abs(b).max(axis=(-1, -2), keepdims=True)
        assert (np.abs(a - b) < 1e-3 * size).all(), name
    assert_factors(found.filtered_chols)
    value = statespace.log_likelihood(single, z)
    np.testing.assert_allclose(value, expected.log_likelihood, rtol=1e-3)


@pytest.mark.parametrize(
    ("dtype", "varying"), [("complex128", False), ("complex128", True), ("float64", False)]
)
def test_are_figures_right_to_the_last_where_covariances_fail(dtype, varying):
    """Against sixty digits."""
    matrices, z = hard(dtype, steps=30)
    p = Problem(matrices, z)
    model = p.reference()
    series = z
    if dtype == "complex128":
        model, series = kalman.bivariate(kalman.augmented(model)), kalman.composite(z)
    means, covariances, log_likelihood = kalman.filter_in_sixty_digits(model, series)
    if varying:
        p = p.changed(F=np.repeat(matrices["F"][None], len(z), axis=0))
    found = p.filter()
    filtered, chols = np.asarray(found.filtered_means), square(found.filtered_chols)
    if dtype == "complex128":
        filtered, covariances = kalman.composite(filtered), kalman.pair(covariances)[0]
    np.testing.assert_allclose(found.log_likelihood, log_likelihood, rtol=1e-10)
    np.testing.assert_allclose(p.log_likelihood(), log_likelihood, rtol=1e-10)
    assert np.abs(filtered - means).max() < 1e-9 * np.abs(means).max()
    size = np.abs(covariances).max(axis=(-1, -2), keepdims=True)
    assert (np.abs(chols - covariances) < 1e-9 * size).all()


@pytest.mark.long
def test_does_a_long_series_stay_at_its_steady_state():
    """A hundred thousand steps of rounding, at a signal to noise ratio of 10⁸."""
    p = problem(3, 1, steps=1)
    F, Q, H = (p.matrices[name] for name in "FQH")
    R = np.array([[1e-8]])
    z = random(np.random.default_rng(0), (100_000, 1), "complex128")
    found = statespace.filter(statespace.LinearGaussian(F, Q, H, R), z)
    expected = kalman.riccati(F, Q, H, R, 2000)
    np.testing.assert_allclose(square(found.filtered_chols)[-1], expected, rtol=1e-9, atol=1e-12)


def traces():
    """How often the compiled functions of the package have been traced."""
    modules = [module for name, module in sys.modules.items() if name.startswith("cgp.statespace")]
    counts = {
        id(f): f.traces
        for module in modules
        for f in vars(module).values()
        if isinstance(f, CompiledByShape)
    }
    assert sum(counts.values())
    return sum(counts.values())


@pytest.mark.parametrize("varying", long_except(["", "FR"], "FR"))
def test_is_a_series_of_another_length_not_compiled_again(varying, without_core):
    p = problem(2, 1, steps=2600, holes="own", varying=varying)

    def filtered_and_smoothed(series):
        z = tf.constant(series.z)
        with tf.GradientTape() as tape:
            tape.watch(z)
            found = series._replace(z=z).filter()
            likelihood = series._replace(z=z).log_likelihood()
        tape.gradient(likelihood, z)
        return found, likelihood, series.smooth()

    for steps in (2600, 1025, 1024, 100, 2):
        cut = {k: v[:steps] if k in varying else v for k, v in p.matrices.items()}
        short = Problem(cut, p.z[:steps])
        found, likelihood, smoothed = without_core(filtered_and_smoothed, short)
        if steps == 2600:
            before = traces()
        assert traces() == before
        expected = kalman.filter(short.reference(), short.z)
        assert_filtered(found, expected, short.z, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(likelihood, expected.log_likelihoods.sum(), rtol=1e-10)
        assert_smoothed(smoothed, kalman.smooth(short.reference(), short.z), rtol=1e-9, atol=1e-9)
