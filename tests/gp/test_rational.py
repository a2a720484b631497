"""Rational means: poles and a delay that are located at each fit."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.gp.means import Rational, rational
from cgp.gp.means.base import rows_of
from cgp.gp.means.vector_fitting import (
    ConjugatePairs,
    FreePoles,
    PolesAndDelay,
    _Search,
    are_at_optimum,
    locate,
)
from cgp.kernels import Matern52, Rotation, Zero
from tests.gp.problems import complex_normals, started

N = 61
F = np.linspace(1.0, 3.0, N)
BETWEEN = 0.5 * (F[1:] + F[:-1])
POLES = 2 * np.pi * np.array([-0.05 + 1.4j, -0.12 + 2.3j])
RESIDUES = np.array([0.5, -0.4 + 0.6j])
DELAY = 3.7


def response(f, poles=POLES, residues=RESIDUES, delay=DELAY, constant=0.3 - 0.5j):
    fractions = 1 / (2j * np.pi * f[:, None] - poles)
    return np.exp(-2j * np.pi * delay * f) * (fractions @ residues + constant)


def measured(seed, deviation=0.01, **kwargs):
    noise = complex_normals(np.random.default_rng(seed), N)
    return response(F, **kwargs) + deviation * noise


def fitted(f, z, order=2, kernel=None, **kwargs):
    gp = cgp.ExactGP(Zero() if kernel is None else kernel, mean=Rational(order, **kwargs))
    gp.compile(cgp.optimizers.LBFGS())
    gp.fit(f, z, verbose=0)
    return gp


def at_start(f, z, order=2, **kwargs):
    """As `fitted`, with the noise that a fit starts from."""
    return started(cgp.ExactGP(Zero(), mean=Rational(order, **kwargs)), f, z)


def located(f, z, order=2, **kwargs):
    """A process in noise that is given, whose mean was located as `fit` does it."""
    mean = Rational(order, **kwargs)
    mean.prepare(np.asarray(f)[None, :, None], np.atleast_2d(z))
    gp = cgp.ExactGP(Zero(), 0.1, mean=mean)
    gp.condition(f, z)
    return gp


def real_response(f, delay=DELAY, constant=0.3):
    """That of a real impulse response, whose Fourier transform is conjugate at −f."""
    one = response(f, delay=delay, constant=0.5 * constant)
    return one + response(-f, delay=delay, constant=0.5 * constant).conj()


def rows_of_arrangement(arrangement, a):
    return rows_of(a, arrangement.has_real_coefficients)


def with_conjugates(poles):
    return np.sort_complex(np.concatenate([poles, poles.conj()]))


def decibels(error, z):
    return 10 * np.log10(np.mean(np.abs(error) ** 2) / np.mean(np.abs(z) ** 2))


def columns(f, poles, delay):
    """The basis as the documentation has it, scaled to unit length."""
    fractions = 1 / (2j * np.pi * f[:, None] - poles)
    found = np.concatenate([fractions, fractions**2, np.ones((len(f), 1)), f[:, None]], axis=1)
    return np.exp(-2j * np.pi * delay * f)[:, None] * found


def test_is_a_prediction_that_of_least_squares_on_the_documented_basis():
    z = measured(0)
    gp = fitted(F, z)
    h, h_new = (columns(f, gp.mean.poles, gp.mean.delay) for f in (F, BETWEEN))
    coefficients = np.linalg.lstsq(h, z, rcond=None)[0]
    rest = np.sum(np.abs(z - h @ coefficients) ** 2)
    predicted = gp.predict(BETWEEN)
    np.testing.assert_allclose(predicted["mean"], h_new @ coefficients, rtol=1e-8)
    leverage = np.sum(np.abs(h_new @ np.linalg.pinv(h)) ** 2, axis=1)
    noise = gp.parameters()["noise_variance"]
    np.testing.assert_allclose(predicted["variance"], noise * leverage, rtol=1e-6)
    np.testing.assert_allclose(noise, rest / (N - h.shape[1]), rtol=0.02)  # but for its prior


def real_columns(f, poles, delay, left_out=()):
    """The basis of a real response as the documentation has it: real coefficients."""
    s = 2j * np.pi * f[:, None]
    upper, lower = (1 / (s - p) for p in (poles, poles.conj()))
    found = [upper + lower, 1j * (upper - lower), np.ones_like(s), s]
    kept = np.setdiff1d(np.arange(len(poles)), left_out)
    squares = upper[:, kept] ** 2, lower[:, kept] ** 2
    found += [squares[0] + squares[1], 1j * (squares[0] - squares[1])]
    return np.exp(-s * delay) * np.concatenate(found, axis=1)


def test_is_a_real_response_that_of_real_least_squares_on_the_documented_basis():
    z = real_response(F) + 0.01 * complex_normals(np.random.default_rng(0), N)
    gp = at_start(F, z, real_response=True)
    assert gp.mean.poles.shape == (4,)
    np.testing.assert_array_equal(
        np.sort_complex(gp.mean.poles.conj()), np.sort_complex(gp.mean.poles)
    )
    upper = gp.mean.poles[2:]
    h, h_new = (real_columns(f, upper, gp.mean.delay) for f in (F, BETWEEN))
    rows = np.concatenate([h.real, h.imag])
    coefficients = np.linalg.lstsq(rows, np.concatenate([z.real, z.imag]), rcond=None)[0]
    predicted = gp.predict(BETWEEN)
    np.testing.assert_allclose(predicted["mean"], h_new @ coefficients, rtol=1e-7)
    noise = gp.parameters()["noise_variance"]
    root = h_new @ np.linalg.pinv(rows)
    variance = 0.5 * noise * np.sum(np.abs(root) ** 2, axis=1)
    np.testing.assert_allclose(predicted["variance"], variance, rtol=1e-5)
    pseudo_variance = 0.5 * noise * np.sum(root**2, axis=1)
    np.testing.assert_allclose(predicted["pseudo_variance"], pseudo_variance, atol=1e-6 * noise)
    assert np.abs(pseudo_variance).max() > 0.01 * noise
    # the restricted likelihood of 2N real numbers, over an orthonormal basis of 10 columns
    rest = np.sum(np.abs(z - h @ coefficients) ** 2)
    expected = -rest / noise - (N - 5) * np.log(np.pi * noise)
    np.testing.assert_allclose(gp.log_marginal_likelihood(), expected, rtol=1e-9)
    left_out = gp.loo()
    gp.condition(np.delete(F, 20), np.delete(z, 20))
    np.testing.assert_allclose(gp.predict(F[20:21])["mean"], left_out["mean"][20], rtol=1e-8)


def test_are_the_pairs_of_a_real_response_found_again():
    z = real_response(F) + 1e-11 * complex_normals(np.random.default_rng(1), N)
    exact = located(F, z, real_response=True)
    np.testing.assert_allclose(np.sort_complex(exact.mean.poles), with_conjugates(POLES), rtol=1e-9)
    np.testing.assert_allclose(exact.mean.delay, DELAY, rtol=1e-9)
    assert decibels(exact.predict(BETWEEN)["mean"] - real_response(BETWEEN), z) < -200
    negative = located(-F, z.conj(), real_response=True)  # the same response, at −f
    np.testing.assert_allclose(
        np.sort_complex(negative.mean.poles), with_conjugates(POLES), rtol=1e-9
    )


@pytest.mark.parametrize(
    "carrier", [30.0, *(pytest.param(c, marks=pytest.mark.long) for c in (1.0, 5.0, 1000.0))]
)
def test_is_the_delay_of_a_real_response_found_where_its_phase_turns_with_it(carrier):
    """The error has a minimum each half of a cycle of the carrier, `1/(2 carrier)` of delay."""
    rng = np.random.default_rng(0)
    kept = np.flatnonzero(np.arange(61) % 4)
    f = np.linspace(carrier, carrier + 1.0, 61)[kept]
    poles = 2 * np.pi * (np.array([-0.04, -0.06]) + 1j * (carrier + np.array([0.3, 0.7])))
    for delay in rng.uniform(0.0, 9.0, 6):
        z = (
            response(f, poles, RESIDUES, delay, 0.2)
            + response(-f, poles, RESIDUES, delay, 0.2).conj()
        )
        z = z / np.abs(z).max() + 0.003 * complex_normals(rng, len(f))
        best = _Search(f, z[None], ConjugatePairs()).refined(
            PolesAndDelay(poles, delay, 1e-5), 60, 1e-12
        )
        assert locate(f, z[None], 2, ConjugatePairs()).power < 1.05 * best.power


def test_do_free_poles_start_pairs_from_above_zero():
    f = F / 2.0
    z = real_response(F)
    search, middle = _Search(f, z[None], ConjugatePairs()), 2j * np.pi * 1.0
    poles = 0.5 * POLES  # over half of the frequency
    free = np.array([poles[0], poles[1].conj()]) - middle  # as if one were found at its conjugate
    starts = search.near_free_poles(PolesAndDelay(free, 2.0 * DELAY, 0.0))
    same = [start for start in starts if start.delay == 2.0 * DELAY]
    np.testing.assert_allclose(same[0].poles, poles, rtol=1e-12)
    assert same[0].power < 1e-20 * np.mean(np.abs(z) ** 2)


@pytest.mark.parametrize("real", [False, True])
def test_is_a_rational_function_of_no_pole_a_constant_behind_a_delay(real):
    z = 0.7 * np.exp(-2j * np.pi * 1.3 * F) + 0.01 * complex_normals(np.random.default_rng(0), N)
    gp = at_start(F, z, 0, real_response=real)
    assert gp.mean.poles.shape == (0,)
    np.testing.assert_allclose(gp.mean.delay, 1.3, atol=0.002)
    truth = 0.7 * np.exp(-2j * np.pi * 1.3 * BETWEEN)
    np.testing.assert_allclose(gp.predict(BETWEEN)["mean"], truth, atol=0.01)


def test_have_points_that_nearly_coincide_no_step_between_them():
    """Two sweeps, of which one was read with other rounding."""
    z = np.tile(measured(3), 2) + 0.01 * complex_normals(np.random.default_rng(0), 2 * N)
    twice, same = np.concatenate([F, F + 1e-9]), np.concatenate([F, F])
    one, other = located(twice, z), located(same, z)
    np.testing.assert_allclose(one.mean.poles, other.mean.poles, rtol=1e-6)


def test_have_pairs_places_above_zero_in_any_band():
    arrangement = ConjugatePairs()
    assert arrangement.band(np.array([1.0, 2.0])) == (1.0, 2.0)
    assert arrangement.band(np.array([-2.0, -1.0])) == (1.0, 2.0)
    assert arrangement.band(np.array([-0.3, 0.7])) == (0.0, 0.7)
    f = np.linspace(0.0, 1.0, 41)
    z = (1 / (1 + 20j * f)) * (1 + 0j) + 0.01 * complex_normals(np.random.default_rng(0), 41)
    found = locate(f, z[None], 2, arrangement).poles
    assert found.shape == (2,)
    assert np.all(found.imag >= 0.0)


@pytest.mark.long
def test_needs_a_real_response_from_zero_on_half_as_many_poles():
    """A low-pass filter of fourth order, Butterworth's, of wide poles."""
    poles = 2 * np.pi * np.exp(1j * np.pi * np.array([0.625, 0.875]))
    poles = np.concatenate([poles, poles.conj()])

    def low_pass(f):
        s = 2j * np.pi * f[:, None]
        return np.exp(-0.8j * np.pi * f) * np.prod(-poles / (s - poles), axis=1)

    f = np.linspace(0.02, 3.0, N)
    z = low_pass(f) + 0.001 * complex_normals(np.random.default_rng(2), N)
    between = 0.5 * (f[1:] + f[:-1])
    truth = low_pass(between)
    errors = {}
    for order, real in [(2, True), (2, False), (4, False)]:
        predicted = fitted(f, z, order, real_response=real).predict(between)
        errors[order, real] = decibels(predicted["mean"] - truth, truth)
        if real:
            assert cgp.metrics.coverage(truth, predicted) > 0.85
    assert errors[2, True] < errors[2, False] - 3.0
    assert errors[2, True] < errors[4, False] - 1.0


@pytest.mark.parametrize("arrangement", [FreePoles(), ConjugatePairs()])
def test_are_zeros_and_slopes_those_of_the_fractions(arrangement):
    rng = np.random.default_rng(0)
    s, poles = 2j * np.pi * F[:, None], POLES + 0.0
    columns = arrangement.fractions_of_each * len(poles)
    c = complex_normals(rng, columns)
    if arrangement.has_real_coefficients:
        c = c.real
    zeros = arrangement.zeros(poles, c)
    assert zeros.shape == poles.shape
    np.testing.assert_allclose(
        1.0 + arrangement.fractions(zeros[:, None], poles) @ c, 0.0, atol=1e-12
    )
    own = np.linalg.qr(rows_of_arrangement(arrangement, arrangement.fractions(s, poles)))[0]

    def without(a):
        rows = rows_of_arrangement(arrangement, a)
        return rows - own @ (own.conj().T @ rows)

    slopes = without(arrangement.slopes(s, poles, c))
    for k, step in enumerate([1e-6, 1e-6, 1e-6j, 1e-6j]):
        up, down = (poles + sign * step * np.eye(2)[k % 2] for sign in (1, -1))
        change = (arrangement.fractions(s, up) - arrangement.fractions(s, down)) @ c
        np.testing.assert_allclose(slopes[:, k], without(change[:, None])[:, 0] / 2e-6, atol=1e-6)


@pytest.mark.parametrize("arrangement", [FreePoles(), ConjugatePairs()])
def test_have_sections_the_span_of_fractions_and_modulus_one(arrangement):
    s = 2j * np.pi * F[:, None]
    sections, all_passes = arrangement.sections(tf.constant(s), tf.constant(POLES))
    np.testing.assert_allclose(np.abs(all_passes), 1.0, rtol=1e-12)
    rows = rows_of_arrangement(arrangement, sections.numpy().reshape(N, -1))
    own = np.linalg.qr(rows_of_arrangement(arrangement, arrangement.fractions(s, POLES)))[0]
    np.testing.assert_allclose(own @ (own.conj().T @ rows), rows, atol=1e-12)


def test_has_a_pole_that_its_prior_holds_no_derivative():
    """The linear model would go on, to a pole narrower than what the points can tell."""
    step = F[1] - F[0]
    z = measured(3)
    z[20] += 0.4  # one sample that a narrow pole fits
    gp = fitted(F, z, order=3)
    widths = -gp.mean.poles.real / (2 * np.pi)
    narrow = int(np.argmin(widths))
    assert 1e-4 * step < widths[narrow] < 0.05 * step
    own = columns(F, gp.mean.poles, gp.mean.delay)
    used = np.delete(np.arange(own.shape[1]), 3 + narrow)
    coefficients = np.linalg.lstsq(own[:, used], z, rcond=None)[0]
    new = columns(BETWEEN, gp.mean.poles, gp.mean.delay)[:, used]
    predicted = gp.predict(BETWEEN)
    np.testing.assert_allclose(predicted["mean"], new @ coefficients, rtol=1e-7)
    noise = gp.parameters()["noise_variance"]
    leverage = np.sum(np.abs(new @ np.linalg.pinv(own[:, used])) ** 2, axis=1)
    np.testing.assert_allclose(predicted["variance"], noise * leverage, rtol=1e-6)
    # the restricted likelihood of as many coefficients, over an orthonormal basis
    rest = np.sum(np.abs(z - own[:, used] @ coefficients) ** 2)
    expected = -rest / noise - (N - len(used)) * np.log(np.pi * noise)
    np.testing.assert_allclose(gp.log_marginal_likelihood(), expected, rtol=1e-9)


def test_is_a_pole_at_the_optimum_where_the_linear_model_has_it_too():
    f, poles = (F - 2.0) / 2.0, np.array([-0.6 + 2j, -0.9 - 11j])
    z = (1 / (2j * np.pi * f[:, None] - poles)) @ np.array([1.0, 0.1])
    found = PolesAndDelay(poles, 0.0, 0.0)
    np.testing.assert_array_equal(are_at_optimum(f, z[None], found, FreePoles()), [True, True])
    aside = found._replace(poles=poles + np.array([0.4j, 0.0]))  # by two thirds of its half-width
    assert not are_at_optimum(f, z[None], aside, FreePoles())[0]
    noisy = z + 0.05 * complex_normals(np.random.default_rng(0), N)
    assert are_at_optimum(f, noisy[None], locate(f, noisy[None], 2, FreePoles()), FreePoles()).all()


def test_are_gradients_by_x_differences_of_the_basis():
    """They pass to x, as through any mean."""
    mean = located(F, measured(0)).mean
    x = tf.constant(BETWEEN[:5, None])
    weights = complex_normals(np.random.default_rng(0), 5, 6)

    def value(x):
        return tf.math.real(tf.reduce_sum(weights * mean.basis(x)))

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = value(x)
    difference = (value(x + 1e-6) - value(x - 1e-6)) / 2e-6
    np.testing.assert_allclose(tf.reduce_sum(tape.gradient(y, x)), difference, rtol=1e-7)


def test_can_autograph_read_the_basis():
    """Where it cannot, every tf.function of a user's says so at length."""
    tf.autograph.to_graph(rational._columns)


def test_do_poles_and_delay_minimise_what_is_left():
    z = measured(0)
    found = locate((F - 2.0) / 2.0, z[None], 2, FreePoles())

    def left(poles, delay):
        h = np.delete(columns((F - 2.0) / 2.0, poles, delay), [2, 3, 5], axis=1)
        return np.sum(np.abs(z - h @ np.linalg.lstsq(h, z, rcond=None)[0]) ** 2)

    least = left(found.poles, found.delay)
    np.testing.assert_allclose(found.power * N, least, rtol=1e-9)
    for step in (1e-3, -1e-3):
        assert left(found.poles, found.delay + step) > least
        for moved in (np.array([step, 0]), np.array([0, 1j * step])):
            assert left(found.poles + moved, found.delay) > least


@pytest.mark.parametrize("count", [1, pytest.param(6, marks=pytest.mark.long)])
def test_is_the_best_delay_found_of_a_response_that_peaks_long_after_it(count):
    """A low-pass filter with parasitic resonances, located from its own poles for comparison."""
    rng = np.random.default_rng(0)
    f = np.linspace(0.002, 1.002, 41)
    s = 2j * np.pi * f[:, None]
    low_pass = 0.32 * np.pi * np.exp(1j * np.pi * np.array([7, 9, 11]) / 12)
    both = np.concatenate([low_pass, low_pass.conj()])
    arrangement = ConjugatePairs()
    for delay in np.linspace(0.5, 3.0, count):
        parasitic = 2 * np.pi * (-rng.uniform(0.006, 0.02, 3) + 1j * np.array([0.45, 0.7, 0.9]))
        residues = 0.006 * complex_normals(rng, 3)
        z = np.prod(-both / (s - both), axis=1)
        z += (1 / (s - parasitic)) @ residues + (1 / (s - parasitic.conj())) @ residues.conj()
        z = np.exp(-s[:, 0] * delay) * z + 1e-3 * complex_normals(rng, 41)
        start = PolesAndDelay(np.concatenate([low_pass, parasitic]), delay, 1e-6)
        best = _Search(f, z[None], arrangement).refined(start, 60, 1e-12)
        found = locate(f, z[None], 6, arrangement)
        assert found.power < 1.1 * best.power


def test_is_a_narrow_pole_where_data_and_prior_have_it():
    """Below a quarter of the step the log of a half-width is normal: deviation ¼, of few 4."""
    f, narrow = (F - 2.0) / 2.0, 0.25 * (F[1] - F[0]) / 2.0
    poles = 2 * np.pi * np.array([-0.1 * narrow + 0.151j, -0.1 + 0.3j])
    h = columns(f, poles, 0.0)[:, [0, 1, 4]]
    exact = h @ np.array([0.01, 1.0, 0.2])
    np.testing.assert_allclose(locate(f, exact[None], 2, FreePoles()).poles, poles, rtol=1e-6)
    noisy = exact + 0.05 * complex_normals(np.random.default_rng(0), N)
    found = locate(f, noisy[None], 2, FreePoles())
    which = np.argmin(-found.poles.real)

    def objective(log_width):
        moved = found.poles.copy()
        moved[which] = -np.exp(log_width) + 1j * moved[which].imag
        h = columns(f, moved, found.delay)[:, [0, 1, 4]]
        left = np.sum(np.abs(noisy - h @ np.linalg.lstsq(h, noisy, rcond=None)[0]) ** 2)
        variance = found.power / (1.0 - 10 / (2 * N))
        below = np.log(2 * np.pi * narrow) - log_width
        density = 0.99 * np.exp(-8.0 * below**2) + 0.01 * np.exp(-(below**2) / 32.0)
        return left - variance * np.log(density)

    width = np.log(-found.poles.real[which])
    assert width < np.log(2 * np.pi * narrow) - 0.05
    slope = (objective(width + 1e-4) - objective(width - 1e-4)) / 2e-4
    curvature = (objective(width + 0.01) - 2 * objective(width) + objective(width - 0.01)) / 1e-4
    assert abs(slope / curvature) < 0.02


def test_are_poles_and_delay_found_again():
    gp = located(F, measured(1, 1e-3))
    np.testing.assert_allclose(gp.mean.poles, POLES, rtol=0.002)
    np.testing.assert_allclose(gp.mean.delay, DELAY, rtol=0.001)
    exact = located(F, measured(1, 1e-11))
    np.testing.assert_allclose(exact.mean.poles, POLES, rtol=1e-9)
    np.testing.assert_allclose(exact.mean.delay, DELAY, rtol=1e-9)
    assert decibels(exact.predict(BETWEEN)["mean"] - response(BETWEEN), response(F)) < -200


@pytest.mark.long
def test_do_95_percent_regions_hold_the_response():
    """The poles' own uncertainty included: without it three quarters to nine tenths are held."""
    rng = np.random.default_rng(2)
    gp = cgp.ExactGP(Zero(), 0.1, mean=Rational(2))
    held = []
    for seed in range(40):
        poles = 2 * np.pi * (-(10 ** rng.uniform(-1.7, -0.5, 2)) + 1j * rng.uniform(1.0, 3.0, 2))
        which = {
            "poles": poles,
            "residues": -poles.real * complex_normals(rng, 2),
            "delay": rng.uniform(0.0, 4.0),
            "constant": complex_normals(rng),
        }
        z = measured(seed, 0.02, **which)
        gp.mean.prepare(F[None, :, None], z[None])
        gp.condition(F, z)
        h = columns(F, gp.mean.poles, gp.mean.delay)
        rest = np.sum(np.abs(z - h @ np.linalg.lstsq(h, z, rcond=None)[0]) ** 2)
        gp.noise_variance.assign(rest / (N - h.shape[1]))  # what a fit learns, but for its prior
        predicted = gp.predict(BETWEEN)
        error = np.abs(predicted["mean"] - response(BETWEEN, **which)) ** 2
        held.append(np.mean(error <= -np.log(0.05) * predicted["variance"]))
    assert 0.90 < np.mean(held) < 0.99


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.long)])
def test_do_poles_and_delay_not_depend_on_units(real):
    z = measured(3)
    one, other = located(F, z, real_response=real), located(1e9 * F, 1e-6 * z, real_response=real)
    np.testing.assert_allclose(other.mean.poles, 1e9 * one.mean.poles, rtol=1e-6)
    np.testing.assert_allclose(other.mean.delay, 1e-9 * one.mean.delay, rtol=1e-6)
    found, expected = (gp.predict(f)["mean"] for gp, f in ((other, 1e9 * BETWEEN), (one, BETWEEN)))
    np.testing.assert_allclose(1e6 * found, expected, rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("real", [False, True])
def test_do_predictions_not_depend_on_units(real):
    z = measured(3)
    kernels = Matern52() * Rotation(), Matern52() * Rotation()
    one = fitted(F, z, kernel=kernels[0], real_response=real).predict(BETWEEN)
    other = fitted(1e9 * F, 1e-6 * z, kernel=kernels[1], real_response=real).predict(1e9 * BETWEEN)
    np.testing.assert_allclose(1e6 * other["mean"], one["mean"], rtol=1e-6)
    np.testing.assert_allclose(1e12 * other["variance"], one["variance"], rtol=1e-5)


@pytest.mark.long
def test_does_a_process_model_what_the_poles_leave():
    """A narrow resonance beside a response that is no rational function."""

    def smooth(f):
        return np.exp(-((f - 2.2) ** 2) / 0.1 + 2j * np.pi * f)

    narrow = {"poles": 2 * np.pi * np.array([-0.02 + 1.6j]), "residues": np.array([0.2])}
    z = measured(4, **narrow) + smooth(F)
    truth = response(BETWEEN, **narrow) + smooth(BETWEEN)
    both = fitted(F, z, 1, Matern52() * Rotation())
    np.testing.assert_allclose(both.mean.poles, narrow["poles"], rtol=0.02)
    predicted = both.predict(BETWEEN)
    alone = fitted(F, z, 1).predict(BETWEEN)["mean"]
    assert decibels(predicted["mean"] - truth, truth) < decibels(alone - truth, truth) - 10
    error = np.abs(predicted["mean"] - truth) ** 2
    assert np.mean(error <= -np.log(0.05) * predicted["variance"]) > 0.85


@pytest.mark.long
def test_is_it_as_good_as_the_vector_fitting_of_the_trade():
    """Exact where there is no noise, and in noise as good as the best order of it."""
    skrf = pytest.importorskip("skrf.vectorFitting")
    from skrf import Frequency, Network

    def fit_of_trade(f, z, f_new, pairs):
        data = Network(frequency=Frequency.from_f(f, unit="hz"), s=z[:, None, None])
        fit = skrf.VectorFitting(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of orders that do not converge, or are not passive
            fit.vector_fit(n_poles_real=0, n_poles_cmplx=pairs)
        return fit.get_model_response(0, 0, f_new)

    def symmetric(f):
        conjugate = {"poles": POLES.conj(), "residues": RESIDUES.conj(), "constant": 0.0}
        return response(f, delay=0.0, constant=0.3) + response(f, delay=0.0, **conjugate)

    z = symmetric(F) + 1e-10 * complex_normals(np.random.default_rng(5), N)
    truth = symmetric(BETWEEN)
    assert decibels(fit_of_trade(1e9 * F, z, 1e9 * BETWEEN, 2) - truth, truth) < -180
    assert decibels(located(F, z, 4).predict(BETWEEN)["mean"] - truth, truth) < -180

    width = 5e9 / 2000.0
    f = 5e9 + width * np.linspace(-10.0, 10.0, 61)
    between = 0.5 * (f[1:] + f[:-1])

    def notch(f):
        turn = np.exp(-2j * np.pi * 3.3 * (f - 5e9) / (20.0 * width))
        return turn * (1.0 - 0.7 / (1.0 + 2j * (f - 5e9) / width))

    z = notch(f) + 10 ** (-55 / 20) * complex_normals(np.random.default_rng(5), 61) / np.sqrt(2)
    trade = [fit_of_trade(f, z, between, pairs) - notch(between) for pairs in range(1, 13)]
    predicted = fitted(f, z, 1).predict(between)
    error = predicted["mean"] - notch(between)
    assert decibels(error, z) < min(decibels(e, z) for e in trade) + 1.0
    assert np.mean(np.abs(error) ** 2 <= -np.log(0.05) * predicted["variance"]) > 0.85


def test_are_missing_targets_left_out():
    z = measured(6)
    z[[3, 30]] = np.nan
    gp, fewer = located(F, z), located(np.delete(F, [3, 30]), np.delete(z, [3, 30]))
    np.testing.assert_allclose(gp.mean.poles, fewer.mean.poles, rtol=1e-8)
    np.testing.assert_allclose(
        gp.predict(BETWEEN)["mean"], fewer.predict(BETWEEN)["mean"], rtol=1e-7
    )


def test_have_several_series_their_poles_in_common():
    z = np.stack([measured(7), measured(8, residues=np.array([-0.2j, 0.3]), constant=0.1)])
    gp = located(F, z)
    np.testing.assert_allclose(gp.mean.poles, POLES, rtol=0.01)
    for series, predicted in zip(z, gp.predict(BETWEEN)["mean"], strict=True):
        h, h_new = (columns(f, gp.mean.poles, gp.mean.delay) for f in (F, BETWEEN))
        expected = h_new @ np.linalg.lstsq(h, series, rcond=None)[0]
        np.testing.assert_allclose(predicted, expected, rtol=1e-7)


def test_is_it_located_again_by_another_fit_and_not_by_condition(tmp_path):
    first, second = measured(9), measured(10, poles=POLES + 0.3j)
    gp = at_start(F, first)
    poles = gp.mean.poles
    gp.condition(F, second)
    np.testing.assert_array_equal(gp.mean.poles, poles)
    gp.fit(F, second, verbose=0)
    expected = located(F, second)
    np.testing.assert_array_equal(gp.mean.poles, expected.mean.poles)
    predicted = gp.predict(BETWEEN)["mean"]
    np.testing.assert_allclose(predicted, expected.predict(BETWEEN)["mean"], rtol=1e-10)
    gp.save(tmp_path / "gp.keras")
    loaded = cgp.load_model(tmp_path / "gp.keras")
    np.testing.assert_array_equal(loaded.mean.poles, gp.mean.poles)
    np.testing.assert_array_equal(loaded.predict(BETWEEN)["mean"], gp.predict(BETWEEN)["mean"])
    assert repr(loaded.mean) == "Rational(2)"


@pytest.mark.long
def test_is_noise_learned_though_there_was_none_in_the_data_before():
    gp = fitted(F, measured(9, 0.0))
    gp.fit(F, measured(10, poles=POLES + 0.3j), verbose=0)
    assert 1e-4 < gp.parameters()["noise_variance"] < 4e-4  # 2e-4


def test_is_a_real_response_saved_and_located_for_several_series(tmp_path):
    z = np.stack([real_response(F), real_response(F, constant=-0.5)])
    z += 0.01 * complex_normals(np.random.default_rng(3), 2, N)
    gp = at_start(F, z, real_response=True)
    upper = gp.mean.poles[2:]
    h, h_new = (real_columns(f, upper, gp.mean.delay) for f in (F, BETWEEN))
    rows = np.concatenate([h.real, h.imag])
    predicted = gp.predict(BETWEEN)
    for series, mean in zip(z, predicted["mean"], strict=True):
        parts = np.concatenate([series.real, series.imag])
        expected = h_new @ np.linalg.lstsq(rows, parts, rcond=None)[0]
        np.testing.assert_allclose(mean, expected, rtol=1e-6)
    gp.save(tmp_path / "gp.keras")
    loaded = cgp.load_model(tmp_path / "gp.keras")
    assert repr(loaded.mean) == "Rational(2, real_response=True)"
    np.testing.assert_array_equal(loaded.mean.poles, gp.mean.poles)
    for name, values in loaded.predict(BETWEEN).items():
        np.testing.assert_array_equal(values, predicted[name])


def test_does_a_fit_that_fails_leave_all_as_it_was(monkeypatch):
    gp = at_start(F, measured(11))
    poles, mean = gp.mean.poles, gp.predict(BETWEEN)["mean"]
    with pytest.raises(ValueError, match=r"needs at least 7 different x .* got 5 among 6"):
        gp.fit([1.0, 2.0, 3.0, 4.0, 5.0, 5.0], measured(11)[:6], verbose=0)

    def fail(data):
        raise ArithmeticError

    monkeypatch.setattr(gp, "_condition", fail)
    with pytest.raises(ArithmeticError):
        gp.fit(F, measured(12, poles=POLES + 0.3j), verbose=0)
    np.testing.assert_array_equal(gp.mean.poles, poles)
    np.testing.assert_array_equal(gp.predict(BETWEEN)["mean"], mean)


def test_are_odd_data_located_too():
    f = (F - 2.0) / 2.0
    found = locate(f, np.zeros((1, N), complex), 2, FreePoles())
    assert found.power == 0.0
    assert np.all(found.poles.real < 0)
    assert not are_at_optimum(f, np.zeros((1, N), complex), found, FreePoles()).any()
    delayed = locate(f, np.exp(-2j * np.pi * DELAY * f)[None], 0, FreePoles())
    np.testing.assert_allclose(delayed.delay, DELAY, rtol=1e-9)
    assert delayed.poles.shape == (0,)


def test_does_the_order_of_the_data_not_matter():
    shuffled, z = np.random.default_rng(0).permutation(N), measured(13)
    one, other = located(F[shuffled], z[shuffled]), located(F, z)
    np.testing.assert_allclose(one.mean.poles, other.mean.poles, rtol=1e-9)
    np.testing.assert_allclose(one.predict(F)["mean"], other.predict(F)["mean"], rtol=1e-8)


BAD = {
    "no fit before data": (
        lambda: cgp.ExactGP(Zero(), 0.1, mean=Rational(1)).condition(F, measured(0)),
        r"poles of Rational\(1\) have not been located: fit\(x, z\)"),
    "no fit before poles are read": (lambda: Rational(1).poles, "have not been located"),
    "no fit before the delay is read": (lambda: Rational(1).delay, "have not been located"),
    "no fit before a prior": (
        lambda: cgp.ExactGP(Zero(), 0.1, mean=Rational(1)).predict(F), "have not been located"),
    "inputs of their own": (
        lambda: fitted(np.stack([F, F + 1])[..., None], np.ones((2, N), complex)),
        "needs common inputs; got inputs of their own for 2 series"),
    "inputs of two dimensions": (
        lambda: fitted(np.ones((N, 2)), np.ones(N, complex)), "x must have one dimension, got 2"),
    "too few points": (
        lambda: fitted(F[:6], measured(0)[:6]), "needs at least 7 different x .* got 6 among 6"),
    "too few points for a real response": (
        lambda: fitted(F[:5], measured(0)[:5], real_response=True), "needs at least 6 different x"),
    "a trend of real coefficients without the points for it": (
        lambda: located(F, real_response(F), real_response=True).condition(F[:4], F[:4] + 0j),
        "a trend of 10 real coefficients is not determined.* 4 points determine 8"),
    "half a pole": (lambda: Rational(0.5), "order must be a whole number, at least 0, got 0.5"),
    "a Markov process": (
        lambda: cgp.StateSpaceGP(Matern52(), 0.1, mean=Rational(1)), "marginalised"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "match"), BAD.values(), ids=BAD)
def test_errors_say_what_to_do(call, match):
    with pytest.raises(ValueError, match=match):
        call()
