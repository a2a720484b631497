"""Exponentials beside a polynomial trend, whose coefficients are of each series."""

import keras
import numpy as np
import pytest

import cgp
from cgp.gp.means import Exponentials
from cgp.kernels import Zero
from tests.gp.problems import complex_normals

T = 2.0 + 0.5 * np.arange(60)
LATER = T[-1] + 0.5 * np.arange(1.0, 20.0)
FREQUENCIES, DECAY_RATES = np.array([-0.31, 0.2]), np.array([0.05, 0.1])
POLES = 2j * np.pi * FREQUENCIES - DECAY_RATES


def decays(t, number=0):
    return np.exp(np.outer(t, POLES)) @ np.array([[1.0, 0.6j], [0.5j, -1.0]][number])


def drift(t, number=0):
    return [3.0 - 2j + (0.1 + 0.2j) * t, -1j * t + 0.01 * t**2][number]


def located(z, trend, order=2):
    """A process in noise of a set variance, whose mean was located as `fit` does it."""
    mean = Exponentials(order, trend=trend)
    mean.prepare(T[None, :, None], np.atleast_2d(z))
    gp = cgp.ExactGP(Zero(), 1e-4, mean=mean)
    gp.condition(T, z)
    return gp


def test_decays_are_exact_beside_a_drift_and_both_go_on():
    z = np.stack([decays(T, k) + drift(T, k) for k in range(2)])
    z[0, 20:25] = np.nan
    gp = located(z, trend=2)
    np.testing.assert_allclose(gp.mean.frequencies, FREQUENCIES, atol=1e-9)
    np.testing.assert_allclose(gp.mean.decay_rates, DECAY_RATES, atol=1e-9)
    for number, mean in enumerate(gp.predict(LATER)["mean"]):
        expected = decays(LATER, number) + drift(LATER, number)
        np.testing.assert_allclose(mean, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("trend", [0, 1])
def test_errors_are_of_the_information_of_all_unknowns(trend):
    z = decays(T) + drift(T) * (1.0 if trend else 0.0) + 3.0
    z = z + 0.05 * complex_normals(np.random.default_rng(0), T.size)
    gp = located(z, trend)
    mean, modes = gp.mean, gp.mean.modes_with_errors()
    since = (T - modes.time)[:, None]
    h = np.exp(since * (2j * np.pi * mean.frequencies - mean.decay_rates))
    linear = np.concatenate([h, T[:, None] ** np.arange(trend + 1)], axis=1)
    coefficients = np.linalg.lstsq(linear, z, rcond=None)[0]
    np.testing.assert_allclose(modes.amplitudes, coefficients[:2], rtol=1e-6)
    by_rate = -since * h * coefficients[:2]
    rows = np.concatenate([by_rate, -2j * np.pi * by_rate, linear, 1j * linear], axis=1)
    slopes = np.concatenate([rows.real, rows.imag])
    residual = z - linear @ coefficients
    variance = np.sum(np.abs(residual) ** 2) / (T.size - 2 - 2 - (trend + 1))
    errors = np.sqrt(0.5 * variance * np.diag(np.linalg.inv(slopes.T @ slopes)))
    np.testing.assert_allclose(modes.decay_rate_errors, errors[:2], rtol=1e-5)
    np.testing.assert_allclose(modes.frequency_errors, errors[2:4], rtol=1e-5)
    imaginary = errors[4 + linear.shape[1] :][:2]
    np.testing.assert_allclose(modes.amplitude_errors, errors[4:6] + 1j * imaginary, rtol=1e-5)
    new = LATER - modes.time
    h_new = np.exp(new[:, None] * (2j * np.pi * mean.frequencies - mean.decay_rates))
    columns = [h, since * h, linear[:, 2:]]
    columns_new = [h_new, new[:, None] * h_new, LATER[:, None] ** np.arange(trend + 1)]
    weights = np.linalg.pinv(np.concatenate(columns, axis=1))
    smoothing = np.concatenate(columns_new, axis=1) @ weights
    predicted = gp.predict(LATER)
    np.testing.assert_allclose(predicted["mean"], smoothing @ z, rtol=1e-6)
    leverage = 1e-4 * np.sum(np.abs(smoothing) ** 2, axis=1)
    np.testing.assert_allclose(predicted["variance"], leverage, rtol=1e-6)


@pytest.mark.long
def test_forecasts_of_a_drift_are_in_their_regions():
    rng, inside, errors = np.random.default_rng(1), [], []
    for _ in range(20):
        poles = 2j * np.pi * rng.uniform(-0.4, 0.4, 2) - rng.uniform(0.03, 0.1, 2)
        level, slope = complex_normals(rng, 2)
        times = np.concatenate([T, LATER])
        truth = np.exp(np.outer(times, poles)) @ complex_normals(rng, 2)
        truth = truth + level + 0.02 * slope * times
        z = truth[: T.size] + 0.05 * complex_normals(rng, T.size)
        squares = []
        for trend, order in ((1, 2), (None, 4)):
            gp = cgp.ExactGP(Zero(), mean=Exponentials(order, trend=trend))
            gp.fit(T, z, verbose=0)
            predicted = gp.predict(LATER)
            square = np.abs(predicted["mean"] - truth[T.size :]) ** 2
            squares.append(np.mean(square))
            if trend == 1:
                inside.append(np.mean(square < -np.log(0.05) * predicted["variance"]))
        errors.append(squares)
    assert np.mean(inside) > 0.85  # the samples of a forecast are in or out together
    with_trend, without = np.median(errors, axis=0)
    assert with_trend < 0.5 * without


def test_the_trend_is_saved_and_in_the_config(tmp_path):
    z = decays(T) + drift(T) + 0.01 * complex_normals(np.random.default_rng(2), T.size)
    gp = cgp.ExactGP(Zero(), mean=Exponentials(2, trend=1))
    gp.fit(T, z, verbose=0)
    gp.save(tmp_path / "drift.keras")
    loaded = keras.saving.load_model(tmp_path / "drift.keras")
    np.testing.assert_array_equal(loaded.predict(LATER)["mean"], gp.predict(LATER)["mean"])
    assert repr(loaded.mean) == "Exponentials(2, trend=1)"
    with pytest.raises(ValueError, match="trend must be"):
        Exponentials(2, trend=-1)
    with pytest.raises(ValueError, match="needs at least 7 different x"):
        gp.fit(T[:6], z[:6], verbose=0)
