"""Damped exponentials as means: frequencies and decay rates that are located at each fit."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.gp.means import Exponentials
from cgp.gp.means.exponentials import _mixing
from cgp.gp.means.matrix_pencil import Search, estimates, grid_of, locate
from cgp.kernels import Matern12, Matern52, Rotation, Zero
from tests.gp.problems import complex_normals, started

N = 48
T = 2.0 + 0.5 * np.arange(N)
LATER = T[-1] + 0.5 * np.arange(1.0, 30.0)
FREQUENCIES = np.array([-0.31, 0.2, 0.25])
DECAY_RATES = np.array([0.02, 0.1, 0.06])
AMPLITUDES = np.array([0.7j, 1.0, 0.6 - 0.5j])


def signal(t, frequencies=FREQUENCIES, decay_rates=DECAY_RATES, amplitudes=AMPLITUDES):
    return np.exp(np.outer(t, 2j * np.pi * frequencies - decay_rates)) @ amplitudes


def measured(seed, deviation=0.01, t=T, **kwargs):
    return signal(t, **kwargs) + deviation * complex_normals(np.random.default_rng(seed), len(t))


def fitted(t, z, order=3, kernel=None, **kwargs):
    kernel = Zero(**kwargs) if kernel is None else kernel
    gp = cgp.ExactGP(kernel, mean=Exponentials(order, **kwargs), **kwargs)
    gp.compile(cgp.optimizers.LBFGS())
    gp.fit(t, z, verbose=0)
    return gp


def at_start(t, z, order=3, **kwargs):
    """As `fitted`, with the noise that a fit starts from."""
    return started(cgp.ExactGP(Zero(), mean=Exponentials(order, **kwargs)), t, z)


def located(t, z, order=3):
    """A process in noise of a set variance, whose mean was located as `fit` does it."""
    mean = Exponentials(order)
    mean.prepare(np.asarray(t)[None, :, None], np.atleast_2d(z))
    gp = cgp.ExactGP(Zero(), 0.1, mean=mean)
    gp.condition(t, z)
    return gp


def columns(t, mean, derivatives=True):
    """The basis as the documentation has it."""
    since = (t - T[0])[:, None]
    exponentials = np.exp(since * (2j * np.pi * mean.frequencies - mean.decay_rates))
    return np.concatenate([exponentials, since * exponentials][: 1 + derivatives], axis=1)


def decibels(error, z):
    return 10 * np.log10(np.mean(np.abs(error) ** 2) / np.mean(np.abs(z) ** 2))


def pencil(z, order):
    """Poles per step by the matrix pencil, windows of half of the series."""
    width = len(z) // 2
    windows = np.array([z[k : k + width + 1] for k in range(len(z) - width)])
    v = np.linalg.svd(windows)[2][:order].T
    return np.log(np.linalg.eigvals(np.linalg.pinv(v[:-1]) @ v[1:]))


def backward_prediction(z, order):
    """Poles per step by linear prediction with an SVD (Kumaresan & Tufts, 1982)."""
    length = 3 * len(z) // 4
    rows = np.array([z[k + 1 : k + length + 1] for k in range(len(z) - length)]).conj()
    u, s, vh = np.linalg.svd(rows, full_matrices=False)
    right = -z[: len(z) - length].conj()
    b = vh[:order].conj().T @ ((u[:, :order].conj().T @ right) / s[:order])
    roots = np.roots(np.concatenate([[1.0], b]))
    outside = roots[np.argsort(-np.abs(roots))][:order]
    return -np.log(outside).conj()


def extended(z, poles, count):
    """Least squares on poles per step, none of which grows, for `count` more samples."""
    n = np.arange(len(z) + count)
    h = np.exp(np.outer(n, np.minimum(poles.real, 0.0) + 1j * poles.imag))
    return (h @ np.linalg.lstsq(h[: len(z)], z, rcond=None)[0])[len(z) :]


def test_is_a_forecast_that_of_least_squares_on_the_documented_basis():
    z = measured(0)
    gp = fitted(T, z)
    h, h_new = (columns(t, gp.mean) for t in (T, LATER))
    predicted = gp.predict(LATER)
    amplitudes = np.linalg.lstsq(h, z, rcond=None)[0]
    np.testing.assert_allclose(amplitudes[3:], 0.0, atol=1e-4)  # the optimum, but for the prior
    np.testing.assert_allclose(predicted["mean"], h_new @ amplitudes, rtol=1e-7)
    leverage = np.sum(np.abs(h_new @ np.linalg.pinv(h)) ** 2, axis=1)
    noise = gp.parameters()["noise_variance"]
    np.testing.assert_allclose(predicted["variance"], noise * leverage, rtol=1e-6)
    error = np.sum(np.abs(z - h @ amplitudes) ** 2)
    np.testing.assert_allclose(noise, error / (N - h.shape[1]), rtol=0.02)  # but for its prior
    # the restricted likelihood of six coefficients, over an orthonormal basis
    expected = -error / noise - (N - 6) * np.log(np.pi * noise)
    np.testing.assert_allclose(gp.log_marginal_likelihood(), expected, rtol=1e-9)
    left_out = gp.loo()
    gp.condition(np.delete(T, 20), np.delete(z, 20))
    np.testing.assert_allclose(gp.predict(T[20:21])["mean"], left_out["mean"][20], rtol=1e-8)


def gapped(z):
    z = z.copy()
    z[[3, 20, 21, 22, 23, 40]] = np.nan
    return z


def irregular():
    return np.sort(np.random.default_rng(1).uniform(2.0, 2.0 + 0.5 * N, N))


EXACT = {
    "regular": (T, {}),
    "irregular": (irregular(), {}),
    "close": (T, {"frequencies": np.array([-0.31, 0.2, 0.2 + 0.3 / np.ptp(T)])}),
    "close and irregular": (
        irregular(), {"frequencies": np.array([-0.31, 0.2, 0.2 + 0.3 / np.ptp(T)])}),
    "undamped": (T, {"decay_rates": np.array([0.0, 0.1, 0.0])}),
    "undamped and irregular": (irregular(), {"decay_rates": np.array([0.0, 0.1, 0.0])}),
    "fast": (T, {"decay_rates": np.array([0.02, 2.0, 0.06])}),
}  # fmt: skip


@pytest.mark.parametrize("with_gaps", [False, True])
@pytest.mark.parametrize(("t", "which"), EXACT.values(), ids=EXACT)
def test_are_exponentials_without_noise_recovered(t, which, with_gaps):
    z = signal(t, **which)
    z = gapped(z) if with_gaps else z
    gp = located(t, z)
    truth = {"frequencies": FREQUENCIES, "decay_rates": DECAY_RATES} | which
    np.testing.assert_allclose(gp.mean.frequencies, truth["frequencies"], atol=1e-8)
    np.testing.assert_allclose(gp.mean.decay_rates, truth["decay_rates"], atol=1e-8)
    modes = gp.mean.modes_with_errors()
    at_time = np.exp(modes.time * (2j * np.pi * truth["frequencies"] - truth["decay_rates"]))
    np.testing.assert_allclose(modes.amplitudes, AMPLITUDES * at_time, atol=1e-7)
    assert decibels(gp.predict(LATER)["mean"] - signal(LATER, **which), z[~np.isnan(z)]) < -140


def test_is_a_start_that_of_the_textbook_pencil():
    t, z = np.linspace(0.0, 1.0, N), measured(1, 0.1)
    expected = pencil(z, 3) * (N - 1)
    starts = Search(t, z[None]).by_pencil(3)
    np.testing.assert_allclose(np.sort(starts.imag), np.sort(expected.imag), rtol=1e-9)
    np.testing.assert_allclose(
        np.sort(starts.real), np.sort(np.minimum(expected.real, 0.0)), rtol=1e-7
    )


def test_do_windows_on_both_sides_of_gaps_start_the_exponentials():
    t, z = np.linspace(0.0, 1.0, N), signal(np.arange(N))
    expected = (2j * np.pi * FREQUENCIES - DECAY_RATES) * (N - 1)
    in_order = np.argsort(expected.imag)
    series = np.stack([gapped(z), 1j * z])
    starts = Search(t, series).by_pencil(3)
    np.testing.assert_allclose(starts[np.argsort(starts.imag)], expected[in_order], rtol=1e-8)
    assert Search(t, np.where(np.arange(N) % 3 == 1, np.nan, z)[None]).by_pencil(3) is None
    assert grid_of(np.sort(np.random.default_rng(0).uniform(size=N))).places is None
    twice = grid_of(np.repeat(t, 2))
    np.testing.assert_array_equal(twice.places, np.repeat(np.arange(N), 2))


def test_are_slopes_differences_of_the_residuals():
    t = np.linspace(0.0, 1.0, N)
    z = np.stack([signal(np.arange(N)), gapped(complex_normals(np.random.default_rng(0), N))])
    search, poles = Search(t, z), np.array([-1.0 + 3j, -0.5 - 20j])
    search.z[0] = np.exp(np.outer(t, poles)) @ [1.0, 2j]  # the derivative is exact without error
    search.z[1, ~np.isnan(z[1])] = (np.exp(np.outer(t, poles)) @ [2j, 1.0])[~np.isnan(z[1])]
    slopes = search.linear(poles).slopes
    for k, step in enumerate([1e-5, 1e-5, -1e-5j, -1e-5j]):
        moved = [poles - sign * step * np.eye(2)[k % 2] for sign in (1, -1)]
        up, down = (search.linear(p).residual for p in moved)
        np.testing.assert_allclose(slopes[:, k], (up - down) / 2e-5, atol=1e-8)


def test_do_poles_minimise_the_error():
    mean = located(T, measured(0, 0.1)).mean
    z = measured(0, 0.1)

    def error(frequencies, decay_rates):
        h = np.exp(np.outer(T - T[0], 2j * np.pi * frequencies - decay_rates))
        return np.sum(np.abs(z - h @ np.linalg.lstsq(h, z, rcond=None)[0]) ** 2)

    least = error(mean.frequencies, mean.decay_rates)
    for k in range(3):
        for step in (1e-4 * np.eye(3)[k], -1e-4 * np.eye(3)[k]):
            assert error(mean.frequencies + step, mean.decay_rates) > least
            if mean.decay_rates[k] * np.ptp(T) > 1.0:  # a prior is below
                assert error(mean.frequencies, mean.decay_rates + step) > least


@pytest.mark.parametrize("offset", [0.0, 50.0])
def test_are_errors_those_of_the_information_of_all_unknowns(offset):
    """Of decay rates, frequencies, and both parts of the amplitudes of two series."""
    t = T + offset
    z = np.stack([measured(2, 0.05), gapped(measured(3, 0.05, amplitudes=AMPLITUDES[::-1]))])
    mean = located(t, z).mean
    modes = mean.modes_with_errors()
    assert modes.time == (0.0 if offset == 0.0 else t[0])
    slopes, variance, count = [], 0.0, 0
    for number, series in enumerate(z):
        kept = ~np.isnan(series)
        since = (t - modes.time)[kept, None]
        h = np.exp(since * (2j * np.pi * mean.frequencies - mean.decay_rates))
        amplitudes = np.linalg.lstsq(h, series[kept], rcond=None)[0]
        np.testing.assert_allclose(modes.amplitudes[number], amplitudes, rtol=1e-6)
        by_rate, blocks = -since * h * amplitudes, np.zeros((2, len(h), 6), complex)
        blocks[number] = np.concatenate([h, 1j * h], axis=1)
        rows = np.concatenate([by_rate, -2j * np.pi * by_rate, *blocks], axis=1)
        slopes.append(np.concatenate([rows.real, rows.imag]))
        variance += np.sum(np.abs(series[kept] - h @ amplitudes) ** 2)
        count += len(h)
    variance /= count - 3 - 6  # poles, and amplitudes of two series
    slopes = np.concatenate(slopes)
    errors = np.sqrt(0.5 * variance * np.diag(np.linalg.inv(slopes.T @ slopes))).reshape(6, 3)
    np.testing.assert_allclose(modes.decay_rate_errors, errors[0], rtol=1e-6)
    np.testing.assert_allclose(modes.frequency_errors, errors[1], rtol=1e-6)
    np.testing.assert_allclose(modes.amplitude_errors, errors[2::2] + 1j * errors[3::2], rtol=1e-6)


def normalised_errors(count):
    """Errors over standard errors of simulated pairs a cycle per span apart, `[count, 8]`."""
    rng, errors = np.random.default_rng(5), []
    frequencies = np.array([0.2, 0.2 + 1.0 / np.ptp(T)])
    decay_rates = np.array([1.0, 2.0]) / np.ptp(T)
    mean = Exponentials(2)
    for _ in range(count):
        amplitudes = np.exp(2j * np.pi * rng.uniform(size=2))
        z = signal(T, frequencies, decay_rates, amplitudes)
        z = z + 0.05 * complex_normals(rng, N)
        mean.prepare(T[None, :, None], z[None])
        modes = mean.modes_with_errors()
        of_amplitudes = modes.amplitudes - amplitudes
        errors.append(
            np.concatenate(
                [
                    (modes.frequencies - frequencies) / modes.frequency_errors,
                    (modes.decay_rates - decay_rates) / modes.decay_rate_errors,
                    of_amplitudes.real / modes.amplitude_errors.real,
                    of_amplitudes.imag / modes.amplitude_errors.imag,
                ]
            )
        )
    return np.array(errors)


def test_are_errors_of_some_close_pairs_as_large_as_they_say():
    errors = normalised_errors(60)
    assert 0.8 < np.std(errors) < 1.2
    assert 0.90 < np.mean(np.abs(errors) < 1.96) < 0.99


@pytest.mark.long
def test_are_errors_of_close_pairs_as_large_as_they_say():
    errors = normalised_errors(500)
    assert np.all((errors.std(axis=0) > 0.9) & (errors.std(axis=0) < 1.1))
    held = np.mean(np.abs(errors) < 1.96, axis=0)
    assert np.all((held > 0.92) & (held < 0.98))


def induction_decay(seed, count=256):
    """Eight lines, of which two are a cycle per span apart, twice as long as the data."""
    rng = np.random.default_rng(seed)
    frequencies = np.zeros(8)
    while np.diff(frequencies).min() < 3.0 / count:
        frequencies = np.sort(rng.uniform(-0.45, 0.45, 8))
    frequencies[1] = frequencies[0] + 1.0 / count
    amplitudes = rng.uniform(0.5, 1.5, 8) * np.exp(2j * np.pi * rng.uniform(size=8))
    t = np.arange(2.0 * count)
    s = signal(t, frequencies, rng.uniform(0.5, 3.0, 8) / count, amplitudes)
    level = 10 ** (-rng.uniform(15.0, 25.0) / 20.0) * np.sqrt(np.mean(np.abs(s[:count]) ** 2) / 2)
    return t, s, s[:count] + level * complex_normals(rng, count)


def forecasts(seeds, order):
    """Errors in dB, beside those of a pencil and of linear prediction, and shares in regions."""
    errors, held = [], []
    gp = cgp.ExactGP(Zero(), 0.1, mean=Exponentials(order))
    for seed in seeds:
        t, s, z = induction_decay(seed)
        count = len(z)
        gp.mean.prepare(t[None, :count, None], z[None])
        gp.condition(t[:count], z)
        h = gp.mean.used(gp.mean.basis(tf.constant(t[:count, None])).numpy())
        error = np.sum(np.abs(z - h @ (h.conj().T @ z)) ** 2)
        gp.noise_variance.assign(error / (count - h.shape[1]))  # what a fit learns, but its prior
        predicted = gp.predict(t[count:])
        others = [extended(z, method(z, order), count) for method in (pencil, backward_prediction)]
        errors.append([decibels(f - s[count:], s[count:]) for f in (predicted["mean"], *others)])
        held.append(cgp.metrics.coverage(s[count:], predicted))
    return np.mean(errors, axis=0), np.mean(held)


def test_are_some_forecasts_as_good_as_those_of_linear_prediction():
    (error, by_pencil, by_prediction), held = forecasts(range(4), 8)
    assert error < min(by_pencil, by_prediction) + 0.5
    assert held > 0.85


@pytest.mark.long
@pytest.mark.parametrize("order", [8, 10])
def test_are_forecasts_as_good_as_those_of_linear_prediction(order):
    """With two exponentials too many as well, which take some noise for a signal."""
    (error, by_pencil, by_prediction), held = forecasts(range(20), order)
    assert error < min(by_pencil, by_prediction) + 0.1
    assert 0.90 < held < 0.98


@pytest.mark.parametrize("extra", [1, 2, 3])
def test_does_a_forecast_survive_an_order_too_high(extra):
    z = measured(4, 0.1)
    exact, more = located(T, z), located(T, z, 3 + extra)
    assert np.all(more.mean.decay_rates >= 0.0)
    truth = signal(LATER)
    errors = [decibels(gp.predict(LATER)["mean"] - truth, truth) for gp in (exact, more)]
    assert errors[1] < errors[0] + 6.0
    assert np.abs(more.predict(LATER)["mean"]).max() < np.abs(z).max()


def test_is_noise_alone_no_undamped_line():
    z = complex_normals(np.random.default_rng(3), N)
    mean = located(T, z, 2).mean
    assert np.all(mean.decay_rates * np.ptp(T) > 0.3)
    tone = located(T, np.exp(0.3j * np.pi * T) + 0.1 * z, 1).mean
    assert 0.0 <= tone.decay_rates[0] < 3.0 * tone.modes_with_errors().decay_rate_errors[0]


def test_is_a_decay_rate_below_one_per_span_where_data_and_prior_have_it():
    t = np.linspace(0.0, 1.0, N)
    z = np.exp((-0.3 + 20j) * t) + 0.5 * complex_normals(np.random.default_rng(6), N)
    pole, power = locate(t, z[None], 1)

    def objective(decay):
        h = np.exp((-decay + 1j * pole[0].imag) * t)
        error = np.sum(np.abs(z - h * np.vdot(h, z) / np.vdot(h, h).real) ** 2)
        return error + 0.5 * variance * (1.0 - decay) ** 2 / 0.5**2

    h = np.exp(t * pole)
    variance = np.sum(np.abs(z - h * np.vdot(h, z) / np.vdot(h, h).real) ** 2) / (N - 2)
    decay = -pole[0].real
    assert 0.0 < decay < 0.9
    np.testing.assert_allclose(power * N, objective(decay), rtol=1e-3)
    slope = (objective(decay + 1e-4) - objective(decay - 1e-4)) / 2e-4
    curvature = (objective(decay + 0.01) - 2 * objective(decay) + objective(decay - 0.01)) / 1e-4
    assert abs(slope / curvature) < 0.02


def test_has_an_exponential_held_by_its_bound_no_derivative():
    """The linear model would go on, to one that grows."""
    growing = np.exp((T - T[0]) * (0.05 + 1j)) + 0.01 * measured(0)
    with pytest.warns(RuntimeWarning, match=r"frequency 0\.159.* held at 0, .* data grow there"):
        gp = located(T, growing, 1)
    np.testing.assert_array_equal(gp.mean.decay_rates, 0.0)
    assert gp.mean.used(gp.mean.basis(tf.constant(T[:, None])).numpy()).shape == (N, 1)
    sizes = np.abs(gp.predict(LATER)["mean"])
    np.testing.assert_allclose(sizes, sizes[0], rtol=1e-9)


def test_is_the_last_decay_within_a_step_said():
    z = 0.01 * measured(0)
    z[0] += 1.0
    with pytest.warns(RuntimeWarning, match=r"held at 6, a bound .* lower order"):
        located(T, z, 1)


def test_do_modes_not_depend_on_units_nor_on_the_order_of_data():
    z, mixed = measured(7), np.random.default_rng(0).permutation(N)
    one, other = located(T, z), located(1e-9 * T[mixed], 1e6 * z[mixed])
    for name, scale in (
        ("frequencies", 1e9), ("frequency_errors", 1e9), ("decay_rates", 1e9),
        ("decay_rate_errors", 1e9), ("amplitudes", 1e6), ("amplitude_errors", 1e6),
    ):  # fmt: skip
        values = getattr(other.mean.modes_with_errors(), name)
        expected = scale * getattr(one.mean.modes_with_errors(), name)
        np.testing.assert_allclose(values, expected, rtol=1e-5)
    np.testing.assert_allclose(
        1e-6 * other.predict(1e-9 * LATER)["mean"], one.predict(LATER)["mean"], rtol=1e-6
    )


def test_lie_frequencies_within_half_a_cycle_per_step():
    t = np.arange(30.0)
    mean = located(t, np.exp(2j * np.pi * 0.7 * t), 1).mean
    np.testing.assert_allclose(mean.frequencies, -0.3, atol=1e-9)
    apart = np.tile(np.exp(0.6j * np.pi * t), (2, 1))
    apart[0, ::2], apart[1, 1::2] = np.nan, np.nan  # a series has the steps of 2
    np.testing.assert_allclose(located(t, apart, 1).mean.frequencies, -0.2, atol=1e-9)
    scattered = irregular()
    beyond = located(scattered, np.exp(2j * np.pi * 0.4 * scattered), 1).mean
    np.testing.assert_allclose(beyond.frequencies, 0.4, atol=1e-9)


def test_are_missing_targets_left_out():
    z = gapped(measured(8))
    kept = ~np.isnan(z)
    gp, fewer = located(T, z), located(T[kept], z[kept])
    np.testing.assert_allclose(gp.mean.frequencies, fewer.mean.frequencies, rtol=1e-8)
    np.testing.assert_allclose(gp.predict(LATER)["mean"], fewer.predict(LATER)["mean"], rtol=1e-7)


def test_have_several_series_their_exponentials_in_common():
    """Also series without a time in common."""
    z = np.stack([measured(9), measured(10, amplitudes=np.array([1.0, -0.5j, 0.3]))])
    absent = np.random.default_rng(0).permutation(N) < N // 2
    z[0, absent], z[1, ~absent] = np.nan, np.nan
    gp = located(T, z)
    np.testing.assert_allclose(gp.mean.frequencies, FREQUENCIES, atol=1e-3)
    assert gp.mean.modes_with_errors().amplitudes.shape == (2, 3)
    h, h_new = (columns(t, gp.mean) for t in (T, LATER))
    for series, mean in zip(z, gp.predict(LATER)["mean"], strict=True):
        kept = ~np.isnan(series)
        expected = h_new @ np.linalg.lstsq(h[kept], series[kept], rcond=None)[0]
        np.testing.assert_allclose(mean, expected, rtol=1e-6)


def test_is_it_located_again_by_another_fit_and_not_by_condition(tmp_path):
    first, second = measured(11), measured(12, frequencies=FREQUENCIES + 0.05)
    gp = at_start(T, first)
    modes = gp.mean.modes_with_errors()
    gp.condition(T, second)
    np.testing.assert_array_equal(gp.mean.frequencies, modes.frequencies)
    gp.fit(T, second, verbose=0)
    modes, expected = gp.mean.modes_with_errors(), located(T, second)
    np.testing.assert_array_equal(modes.frequencies, expected.mean.frequencies)
    predicted = gp.predict(LATER)["mean"]
    np.testing.assert_allclose(predicted, expected.predict(LATER)["mean"], rtol=1e-10)
    gp.save(tmp_path / "gp.keras")
    loaded = cgp.load_model(tmp_path / "gp.keras")
    for values, others in zip(loaded.mean.modes_with_errors(), modes, strict=True):
        np.testing.assert_array_equal(values, others)
    np.testing.assert_array_equal(loaded.predict(LATER)["mean"], predicted)
    assert repr(loaded.mean) == "Exponentials(3)"
    gp.mean.set_weights([1.0 + w for w in gp.mean.get_weights()])
    with pytest.raises(ValueError, match=r"errors of the frequencies of .* do not belong"):
        gp.mean.modes_with_errors()


def test_does_a_fit_that_fails_leave_all_as_it_was(monkeypatch):
    gp = at_start(T, measured(13))
    modes, mean = gp.mean.modes_with_errors(), gp.predict(LATER)["mean"]
    with pytest.raises(ValueError, match=r"needs at least 7 different x .* got 5 among 6"):
        gp.fit([1.0, 2.0, 3.0, 4.0, 5.0, 5.0], measured(13)[:6], verbose=0)

    def fail(data):
        raise ArithmeticError

    monkeypatch.setattr(gp, "_condition", fail)
    for seed in (14, 15):
        with pytest.raises(ArithmeticError):
            gp.fit(T, measured(seed, frequencies=FREQUENCIES + 0.05), verbose=0)
    for values, others in zip(gp.mean.modes_with_errors(), modes, strict=True):
        np.testing.assert_array_equal(values, others)
    np.testing.assert_array_equal(gp.predict(LATER)["mean"], mean)


def test_keep_phases_their_digits_in_single_precision():
    t = np.arange(1000.0)
    z = np.exp(2j * np.pi * 0.4321 * t - 0.001 * t) + 0j
    mean = Exponentials(1, dtype="float32")
    mean.prepare(t[None, :, None], z[None])
    np.testing.assert_allclose(mean.frequencies, 0.4321, atol=1e-10)
    basis = mean.basis(tf.constant(t[:, None], tf.float32))
    assert basis.dtype == tf.complex64
    column = basis.numpy()[:, 0] / basis.numpy()[0, 0]
    np.testing.assert_allclose(column, z, atol=1e-5)


def test_are_gradients_by_x_differences_of_the_basis():
    mean = located(T, measured(0)).mean
    x = tf.constant(LATER[:5, None])
    weights = complex_normals(np.random.default_rng(0), 5, 6)

    def value(x):
        return tf.math.real(tf.reduce_sum(weights * mean.basis(x)))

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = value(x)
    difference = (value(x + 1e-6) - value(x - 1e-6)) / 2e-6
    np.testing.assert_allclose(tf.reduce_sum(tape.gradient(y, x)), difference, rtol=1e-7)


def test_is_the_basis_finite_long_before_and_long_after_the_data():
    for dtype in ("float64", "float32"):
        mean = Exponentials(3, dtype=dtype)
        mean.prepare(T[None, :, None], measured(0)[None])
        basis = mean.basis(tf.constant([[-1e6], [1e6]], dtype)).numpy()
        assert np.all(np.isfinite(np.abs(basis) ** 2))
        np.testing.assert_array_equal(basis[1], 0.0)


def test_are_odd_data_located_too():
    t = np.linspace(0.0, 1.0, 12)
    assert locate(t, np.zeros((1, 12), complex), 2).power == 0.0
    poles = np.array([-1.0 + 5j, -1.0 + 5j, -2.0])
    mixing = _mixing(t, poles, np.array([True, True, False]), None)
    assert np.all(np.isfinite(mixing))
    h = np.exp(np.outer(t, poles))
    q = np.concatenate([h, t[:, None] * h], axis=1) @ mixing
    np.testing.assert_allclose(q.conj().T @ q, np.diag([1.0, 0, 1, 1, 0, 0]), atol=1e-12)
    poles, z = np.array([-3e4, -1.0]), np.exp(np.linspace(0.0, -1.0, 9000))[None] + 0j
    of_fast = estimates(np.linspace(0.0, 1.0, 9000), z, poles, -0.1)
    assert np.all(np.isfinite(of_fast.amplitude_errors))
    with pytest.raises(ValueError, match=r"median step of t is so short .* fit one burst"):
        locate(np.concatenate([1e-8 * irregular(), [1.0]]), np.ones((1, N + 1), complex), 1)


@pytest.mark.long
def test_does_a_process_model_what_the_exponentials_leave():
    rng = np.random.default_rng(16)
    covariance = 0.1 * np.exp(-np.abs(T[:, None] - T) / 2.0)
    z = signal(T) + np.linalg.cholesky(covariance) @ complex_normals(rng, N) / np.sqrt(2)
    both = fitted(T, z, 3, Matern12(0.1, 2.0))
    np.testing.assert_allclose(both.mean.frequencies, FREQUENCIES, atol=0.02)
    predicted = both.predict(LATER)
    assert cgp.metrics.coverage(signal(LATER), predicted) > 0.8


@pytest.mark.long
def test_is_a_forecast_better_than_that_of_a_stationary_process():
    t, s, z = induction_decay(0)
    alone = fitted(t[:256], z, 8).predict(t[256:])["mean"]
    frequencies = located(t[:256], z, 8).mean.frequencies
    kernel = sum((Matern12() * Rotation(f) for f in frequencies[1:]), Matern12() * Rotation())
    gp = cgp.StateSpaceGP(kernel)
    gp.compile(cgp.optimizers.LBFGS())
    gp.fit(t[:256], z, verbose=0)
    stationary = gp.predict(t[256:])["mean"]
    assert decibels(alone - s[256:], s[256:]) < decibels(stationary - s[256:], s[256:]) - 3.0


BAD = {
    "no fit before data": (
        lambda: cgp.ExactGP(Zero(), 0.1, mean=Exponentials(1)).condition(T, measured(0)),
        r"frequencies of Exponentials\(1\) have not been located: fit\(x, z\)"),
    "no fit before frequencies": (
        lambda: Exponentials(1).frequencies, "have not been located"),
    "no fit before decay rates": (
        lambda: Exponentials(1).decay_rates, "have not been located"),
    "no fit before modes": (
        lambda: Exponentials(1).modes_with_errors(), "have not been located"),
    "inputs of their own": (
        lambda: fitted(np.stack([T, T + 1])[..., None], np.ones((2, N), complex)),
        "needs common inputs; got inputs of their own for 2 series"),
    "inputs of two dimensions": (
        lambda: fitted(np.ones((N, 2)), np.ones(N, complex)), "x must have one dimension, got 2"),
    "too few points": (
        lambda: fitted(T[:6], measured(0)[:6]), "needs at least 7 different x .* got 6 among 6"),
    "a trend without the points for it": (
        lambda: located(T, measured(0)).condition(T[:4], T[:4] + 0j),
        "a trend of 6 coefficients is not determined.* 4 points determine 4"),
    "half an exponential": (
        lambda: Exponentials(0.5), "order must be a whole number, at least 0, got 0.5"),
    "no exponential": (lambda: Exponentials(0), r"order must be at least 1 .* got 0"),
    "a Markov process": (
        lambda: cgp.StateSpaceGP(Matern52(), 0.1, mean=Exponentials(1)), "marginalised"),
    "a recursive process": (
        lambda: cgp.RecursiveGP(Matern52(), 0.1, capacity=9, mean=Exponentials(1)), "marginalised"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "match"), BAD.values(), ids=BAD)
def test_errors_say_what_to_do(call, match):
    with pytest.raises(ValueError, match=match):
        call()
