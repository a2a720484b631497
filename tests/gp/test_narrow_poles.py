"""Poles narrower than the step of f, and standard errors of poles."""

import numpy as np
import pytest

import cgp
from cgp.gp.means import Rational
from cgp.gp.means.pole_errors import Axis, with_errors
from cgp.gp.means.vector_fitting import (
    ConjugatePairs,
    FreePoles,
    PolesAndDelay,
    _Search,
    are_at_optimum,
    locate,
)
from cgp.kernels import Zero
from tests.gp.problems import complex_normals, started

LONG = pytest.mark.long


def rows(a):
    return np.concatenate([a.real, a.imag])


def modes(f, poles, residues, constant=0.0, delay=0.0, conjugates=True):
    s = 2j * np.pi * f[:, None]
    z = (1 / (s - poles)) @ residues + constant
    if conjugates:
        z = z + (1 / (s - poles.conj())) @ residues.conj()
    return np.exp(-s[:, 0] * delay) * z


# --- narrow poles ---------------------------------------------------------------------------------


def vector_fitting(x, z, order, in_pairs, steps=100):
    """The least residual power on the way, and its poles: Gustavsen & Semlyen, 1999, weights 1.

    Pairs have the fractions 1/D and s/D, D = (s − p)(s − p̄), and their controllable form.
    """
    s, z = 2j * np.pi * x[:, None], z[:, None]
    low = 0.0 if in_pairs and x[0] <= 0.0 else x[0]
    place = 2 * np.pi * (low + (x[-1] - low) * (np.arange(order) + 0.5) / order)
    poles = -0.01 * (place if in_pairs else 2 * np.pi) + 1j * place
    parts, least, best = rows if in_pairs else np.asarray, np.inf, poles
    upper, lower = np.split(np.arange(2 * order), 2)
    for _ in range(steps):
        fractions = 1 / (s - poles)
        if in_pairs:
            fractions = fractions / (s - poles.conj())
            fractions = np.concatenate([fractions, s * fractions], axis=1)
        basis = parts(np.concatenate([fractions, np.ones_like(s)], axis=1))
        q = np.linalg.qr(basis / np.linalg.norm(basis, axis=0))[0]

        def without(a, q=q):
            return parts(a) - q @ (q.conj().T @ parts(a))

        left = without(z)
        power = np.sum(np.abs(left) ** 2) / len(x)
        if power < least:
            least, best = power, poles
        a = without(-z * fractions)
        lengths = np.linalg.norm(a, axis=0)
        c = np.linalg.lstsq(a / lengths, left, rcond=1e-14)[0][:, 0] / lengths
        if in_pairs:
            matrix = np.zeros((2 * order, 2 * order))
            matrix[upper, lower] = 1.0
            matrix[lower, upper] = -(np.abs(poles) ** 2)
            matrix[lower, lower] = 2 * poles.real
            matrix[lower] -= c
            zeros = np.linalg.eigvals(matrix).astype(complex)
            zeros = zeros[np.argsort(-zeros.imag)][:order]
            poles = -np.abs(zeros.real) + 1j * np.abs(zeros.imag)
        else:
            zeros = np.linalg.eigvals(np.diag(poles) - c)
            poles = -np.abs(zeros.real) + 1j * zeros.imag
    return least, best


def ladder(rng):
    """The admittance of a ladder of resistors, inductors and capacitors, from zero frequency."""
    f = np.linspace(0.0, 1.0, 101)
    s, z = 2j * np.pi * f, rng.uniform(0.5, 2.0)
    for _ in range(4):
        series = rng.uniform(0.01, 0.08) + s * rng.uniform(0.2, 0.6)
        z = series + 1 / (s * rng.uniform(0.2, 0.6) + rng.uniform(0.005, 0.05) + 1 / z)
    return f, 1 / z, 4, ConjugatePairs()


def acoustic(rng):
    """Modes of 0.003 to 0.02 of the step from zero frequency."""
    f, place = np.linspace(0.0, 1.0, 126), np.arange(6) + rng.uniform(0.3, 1.0, 6)
    half_width = np.exp(rng.uniform(np.log(0.003), np.log(0.02), 6)) * f[1]
    poles = 2 * np.pi * (-half_width + 1j * place / 6.3)
    residues = 1j * rng.uniform(0.5, 1.5, 6) * np.exp(0.3j * rng.normal(size=6))
    return f, modes(f, poles, residues, rng.normal()), 6, ConjugatePairs()


def wide_filter(rng):
    f, angle = np.linspace(1.0, 3.0, 121), np.pi * (np.arange(5) + 0.5) / 5
    radius = rng.uniform(0.2, 0.4)
    poles = -radius * np.sin(angle) + 1j * (2.0 + 1.5 * radius * np.cos(angle))
    poles = 2 * np.pi * poles * np.exp(0.02 * rng.normal(size=5))
    return f, modes(f, poles, -poles.real * complex_normals(rng, 5), 0.1), 5, ConjugatePairs()


def cavity(rng):
    """Far above zero, in a band of a thousandth."""
    f, place = np.linspace(1000.0, 1001.0, 81), np.arange(3) + rng.uniform(0.2, 0.8, 3)
    half_width = np.exp(rng.uniform(np.log(0.001), np.log(0.02), 3))
    poles = 2 * np.pi * (-half_width + 1j * (1000.0 + place / 3))
    z = modes(f, poles, 0.05 * complex_normals(rng, 3), 0.3, conjugates=False)
    return f, z, 3, FreePoles()


def overdamped(rng):
    f, logs = np.linspace(0.0, 1.0, 101), np.arange(4) + rng.uniform(0.0, 0.6, 4)
    poles = -2 * np.pi * 0.02 * np.exp(logs) + 0j
    z = modes(f, poles, -poles * rng.uniform(0.3, 1.0, 4), 0.1, conjugates=False)
    return f, z, 4, FreePoles()


def line(rng):
    """Resonances behind a delay, which vector fitting does not have."""
    f, place = np.linspace(0.1, 2.1, 121), np.arange(3) + rng.uniform(0.2, 0.8, 3)
    poles = 2 * np.pi * (-rng.uniform(0.01, 0.1, 3) + 1j * (0.3 + 1.7 * place / 3))
    z = modes(f, poles, 0.3 * complex_normals(rng, 3), 0.5, rng.uniform(0.5, 5.0))
    return f, z, 3, ConjugatePairs()


DEVICES = [
    pytest.param(make, seed, marks=() if make in (acoustic, cavity) and seed == 0 else LONG)
    for make in (ladder, acoustic, wide_filter, cavity, overdamped, line)
    for seed in range(10)
]


@pytest.mark.parametrize(("make", "seed"), DEVICES)
def test_is_the_optimum_no_worse_than_vector_fitting(make, seed):
    """Its residual too, but for at most a hundredth that the prior takes of undetermined widths."""
    rng = np.random.default_rng([len(make.__name__), seed])
    f, z, order, arrangement = make(rng)
    deviation = np.sqrt(np.mean(np.abs(z) ** 2)) * 10 ** (-rng.uniform(1.5, 3.0))
    z = z + deviation * complex_normals(rng, len(f))
    in_pairs = arrangement.has_real_coefficients
    x = (f - (0.0 if in_pairs else f.mean())) / np.ptp(f)
    z = z / np.abs(z).max()
    power, poles = vector_fitting(x, z, order, in_pairs)
    found, search = locate(x, z[None], order, arrangement), _Search(x, z[None], arrangement)
    trade = PolesAndDelay(poles, 0.0, power)
    np.testing.assert_allclose(search.power(poles, 0.0), power, rtol=1e-6)
    assert search.penalized(found) <= search.penalized(trade) * (1 + 1e-9)
    tolerance = 1e-9 if (search.penalized(trade) == power) else 0.01
    assert found.power <= power * (1 + tolerance)


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=LONG) for s in range(1, 10))])
def test_are_widths_below_the_step_told_by_the_skirts(seed):
    """Exactly without noise, and to about their standard errors in it."""
    rng = np.random.default_rng(seed)
    f, z, order, arrangement = acoustic(rng)
    noisy = z + 1e-3 * np.sqrt(np.mean(np.abs(z) ** 2)) * complex_normals(rng, len(f))
    exact = locate(f, z[None], order, arrangement).poles
    exact = exact[np.argsort(exact.imag)]
    assert np.all(np.abs(np.log(-exact.real / (2 * np.pi * f[1] * 0.0077))) < 0.96)  # 0.003 … 0.02
    found = locate(f, noisy[None], order, arrangement)
    estimates = with_errors(
        f, noisy[None], found, np.ones(order, bool), arrangement, Axis(0.0, 1.0, 1.0)
    )
    assert np.all(np.abs(estimates.poles - exact) < 0.05 * 2 * np.pi * f[1])
    shares = parts(estimates.poles - exact) / parts(estimates.pole_errors)
    assert np.median(np.abs(shares)) < 1.5


@pytest.mark.parametrize("count", [4, pytest.param(20, marks=LONG)])
def test_does_no_pole_more_than_there_are_fit_the_noise_of_one_sample(count):
    x = np.linspace(-0.5, 0.5, 61)
    for seed in range(count):
        rng = np.random.default_rng(seed)
        z = 1 / (2j * np.pi * x + 0.5) + 0.02 * complex_normals(rng, 61)
        half_widths = -locate(x, z[None], 2, FreePoles()).poles.real / (2 * np.pi)
        assert half_widths.min() > 0.15 * (x[1] - x[0])


BOUNDS = {
    "the least width": (
        2, lambda x: 1 / (2j * np.pi * x + 0.5) + 0.5 * (x == x[20]),
        r"half-width of 1e-06 steps .* add some near the resonance"),
    "the largest width": (1, lambda x: 1 + 0.3 * x, r"half-width of 10 spans .* lower order"),
    "the farthest place": (
        1, lambda x: 1 / (2j * np.pi * (x - 5.0) + 0.5),
        r"4 spans of x from the middle, .* lower order"),
}  # fmt: skip


@pytest.mark.parametrize(("order", "make", "match"), BOUNDS.values(), ids=BOUNDS)
def test_is_a_pole_at_a_bound_told(order, make, match):
    x = np.linspace(-0.5, 0.5, 61)
    z = make(x) + 1e-7 * complex_normals(np.random.default_rng(0), 61) * (order == 1)
    with pytest.warns(RuntimeWarning, match=rf"has 1 of its poles at a bound .* {match}"):
        started(cgp.ExactGP(Zero(), mean=Rational(order)), x, z)


# --- standard errors ------------------------------------------------------------------------------

F = np.linspace(1.0, 3.0, 61)
POLES = 2 * np.pi * np.array([-0.05 + 1.4j, -0.12 + 2.3j])
RESIDUES = np.array([[0.5, -0.4 + 0.6j], [-0.2j, 0.3]])
CONSTANTS, DELAY = (0.3, 0.1), 3.7


def truth(real, parameters=None, constants=CONSTANTS):
    """Two series, of parameters in one row where there are some: Re, Im of all, and the delay."""
    poles, residues, delay = POLES, RESIDUES, DELAY
    if parameters is not None:
        re, im = np.split(parameters[:-1], 2)
        poles, residues = (re + 1j * im)[:2], (re + 1j * im)[2:].reshape(2, 2)
        delay = parameters[-1]
    both = zip(residues, constants, strict=True)
    return np.array([modes(F, poles, r, c, delay, conjugates=real) for r, c in both])


def measured(seed, real=False, deviation=0.01):
    return truth(real) + deviation * complex_normals(np.random.default_rng(seed), 2, 61)


def prepared(z, order=2, **kwargs):
    mean = Rational(order, **kwargs)
    mean.prepare(F[None, :, None], z)
    return mean


def parts(a):
    return np.concatenate([np.ravel(np.real(a)), np.ravel(np.imag(a))])


@pytest.mark.parametrize("real", [False, True])
def test_are_errors_those_of_the_linearised_model_in_units_of_f(real):
    """By differences of the response, far above the middle of nothing and in other units of z."""
    z = 1e3 * measured(0, real)
    mean = prepared(z, real_response=real)
    found = mean.poles_with_errors()
    np.testing.assert_allclose(found.poles, mean.poles[-2:], rtol=1e-12)
    np.testing.assert_allclose(found.delay, mean.delay, rtol=1e-12)
    together = np.concatenate([found.poles, found.residues.ravel() / 1e3])
    point = np.concatenate([parts(together), [found.delay]])
    turn = np.exp(-2j * np.pi * found.delay * F)
    series = [rows(np.kron(one, turn)) for one in np.eye(2)]  # of the constants
    if not real:
        series += [rows(np.kron(one, 1j * turn)) for one in np.eye(2)]
    series, left = np.array(series).T, rows((z / 1e3 - truth(real, point, (0, 0))).ravel())
    constants = np.linalg.lstsq(series, left, rcond=None)[0]
    left = left - series @ constants
    constants = constants if real else constants[:2] + 1j * constants[2:]
    columns = []
    for step in 1e-5 * np.eye(13):
        ahead, behind = (truth(real, point + sign * step, constants) for sign in (1, -1))
        columns.append(rows((ahead - behind).ravel()) / 2e-5)
    jacobian = np.concatenate([np.array(columns).T, series], axis=1)
    lengths = np.linalg.norm(jacobian, axis=0) * np.linalg.norm(left)
    assert np.all(np.abs(left @ jacobian) < 1e-6 * lengths)  # an optimum
    variance = left @ left / (len(left) - jacobian.shape[1])
    covariance = variance * np.linalg.inv(jacobian.T @ jacobian)
    errors = np.sqrt(np.diag(covariance))
    re, im = np.split(errors[:12], 2)
    np.testing.assert_allclose(found.pole_errors, (re + 1j * im)[:2], rtol=1e-4)
    np.testing.assert_allclose(found.residue_errors.ravel() / 1e3, (re + 1j * im)[2:], rtol=1e-4)
    np.testing.assert_allclose(found.delay_error, errors[12], rtol=1e-4)
    for k, pole in enumerate(found.poles):
        slopes = np.array([pole.imag / (2 * pole.real**2), -0.5 / pole.real])
        both = covariance[np.ix_([k, 6 + k], [k, 6 + k])]
        expected = np.sqrt(slopes @ both @ slopes)
        np.testing.assert_allclose(found.quality_factor_errors[k], expected, rtol=1e-4)
    np.testing.assert_allclose(found.frequencies / found.bandwidths, found.quality_factors)


def normalized_errors(seed, real, check):
    """Errors of an estimate over its standard errors, of poles, residues, Q and the delay."""
    arrangement = ConjugatePairs() if real else FreePoles()
    axis = Axis(0.0 if real else 2.0, 2.0, 1.0)
    x, z = (F - axis.middle) / axis.span, measured(seed, real)
    poles = (POLES - 2j * np.pi * axis.middle) / axis.span
    start = PolesAndDelay(poles, axis.span * DELAY, 2e-4)
    located = _Search(x, z, arrangement).refined(start, 60, 1e-15)
    if check:
        np.testing.assert_allclose(locate(x, z, 2, arrangement).power, located.power, rtol=1e-9)
    at_optimum = are_at_optimum(x, z, located, arrangement)
    assert at_optimum.all()
    found = with_errors(x, z, located, at_optimum, arrangement, axis)
    quality = POLES.imag / (-2 * POLES.real)
    return np.concatenate(
        [
            parts(found.poles - POLES) / parts(found.pole_errors),
            parts(found.residues - RESIDUES) / parts(found.residue_errors),
            (found.quality_factors - quality) / found.quality_factor_errors,
            (found.bandwidths + POLES.real / np.pi) / found.bandwidth_errors,
            (found.frequencies - POLES.imag / (2 * np.pi)) / found.frequency_errors,
            [(found.delay - DELAY) / found.delay_error],
        ]
    )


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize(
    ("count", "spread", "least"), [(60, 0.3, 0.85), pytest.param(500, 0.1, 0.92, marks=LONG)]
)
def test_are_estimates_as_far_from_the_truth_as_their_errors_say(real, count, spread, least):
    errors = np.array([normalized_errors(seed, real, seed < 2) for seed in range(count)])
    np.testing.assert_allclose(errors.std(axis=0), 1.0, atol=spread)
    inside = np.mean(np.abs(errors) < 1.96, axis=0)
    assert least <= inside.min()
    assert inside.max() <= (1.0 if count < 500 else 0.98)


def test_has_one_series_residues_without_an_axis_of_series():
    found = prepared(measured(1)[:1]).poles_with_errors()
    assert found.residues.shape == found.residue_errors.shape == (2,)
    nothing = prepared(measured(1), 0).poles_with_errors()
    assert nothing.poles.shape == (0,)
    assert nothing.residues.shape == (2, 0)
    assert nothing.delay_error > 0.0


def test_are_errors_saved_and_missing_in_older_files(tmp_path):
    gp = started(cgp.ExactGP(Zero(), mean=Rational(2)), F, measured(2))
    found = gp.mean.poles_with_errors()
    gp.save(tmp_path / "gp.keras")
    loaded = cgp.load_model(tmp_path / "gp.keras").mean
    for name, values in loaded.poles_with_errors()._asdict().items():
        np.testing.assert_array_equal(values, getattr(found, name), err_msg=name)
    store = {}
    loaded.save_own_variables(store)
    older = Rational(2)
    older.load_own_variables({name: a for name, a in store.items() if name.isdigit()})
    np.testing.assert_array_equal(older.poles, gp.mean.poles)
    with pytest.raises(ValueError, match=r"file of an earlier version.* fit\(x, z\) again"):
        older.poles_with_errors()
    with pytest.raises(ValueError, match="have not been located: fit"):
        Rational(2).poles_with_errors()


def test_does_a_fit_that_fails_leave_the_errors_as_they_were(monkeypatch):
    gp = started(cgp.ExactGP(Zero(), mean=Rational(2)), F, measured(3))
    before = gp.mean.poles_with_errors()

    def fail(data):
        raise ArithmeticError

    monkeypatch.setattr(gp, "_condition", fail)
    with pytest.raises(ArithmeticError):
        gp.fit(F, measured(4)[0], verbose=0)
    np.testing.assert_array_equal(gp.mean.poles_with_errors().pole_errors, before.pole_errors)


def test_has_a_pole_that_its_prior_holds_no_error():
    z = measured(5)[:1]
    z[0, 20] += 0.4  # one sample that a narrow pole fits
    mean = prepared(z, 3)
    with pytest.warns(RuntimeWarning, match=r"held by their prior .* errors are NaN"):
        found = mean.poles_with_errors()
    held = np.isnan(found.pole_errors)
    assert held.sum() == 1
    assert held[np.argmin(found.bandwidths)]
    assert np.all(np.isfinite(found.residue_errors) == ~held)
    np.testing.assert_allclose(found.poles[~held], POLES, rtol=0.01)
