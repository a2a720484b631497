"""Rotation.from_periodogram: a starting frequency within a small fraction of a cycle per span."""

import numpy as np
import pytest

import cgp
from cgp.kernels import RBF, Rotation
from cgp.kernels.periodogram import Periodogram


def inputs(kind, rng):
    if kind == "regular":
        return np.arange(200) * 0.25
    if kind == "irregular":
        return np.sort(rng.uniform(0.0, 50.0, 200))
    if kind == "unsorted":
        return rng.permutation(np.arange(200) * 0.25)
    if kind == "dates":
        return 60_000.0 + np.arange(200) * 0.25
    assert kind == "gaps"
    x = np.arange(400) * 0.25
    return x[(x < 20) | (x > 70)]


@pytest.mark.parametrize("kind", ["regular", "irregular", "unsorted", "dates", "gaps"])
@pytest.mark.parametrize("frequency", [0.843, -0.843, 0.0731, -1.52, 1.9])
def test_a_tone_in_noise_is_found_with_its_sign(kind, frequency):
    rng = np.random.default_rng(5)
    x = inputs(kind, rng)
    z = 2.0 * np.exp(1j * (2 * np.pi * frequency * x + 0.4)) + 0.3 + 0.1j
    z += 0.3 * (rng.normal(size=x.size) + 1j * rng.normal(size=x.size))
    z[rng.choice(x.size, x.size // 5, replace=False)] = np.nan
    rotation = Rotation.from_periodogram(x, z)
    assert isinstance(rotation, Rotation)
    assert float(rotation.frequency) == pytest.approx(frequency, abs=0.05 / np.ptp(x))


@pytest.mark.parametrize("cycles", [2.5, 7.0, 13.37, 24.9])
def test_without_noise_it_is_nearly_exact(cycles):
    x = np.linspace(0.0, 1.0, 60)
    found = Rotation.from_periodogram(x, np.exp(2j * np.pi * cycles * x)).frequency
    assert float(found) == pytest.approx(cycles, abs=0.03)


def test_a_delay_is_found_over_a_frequency_axis():
    f = np.linspace(75.0, 110.0, 101)  # GHz, so that the delay is in ns
    found = Rotation.from_periodogram(f, 0.3 * np.exp(-2j * np.pi * f * 0.8))
    assert float(found.frequency) == pytest.approx(-0.8, abs=0.03 / 35.0)


def test_units_of_x_scale_the_frequency():
    x, z = np.arange(50.0), np.exp(0.9j * np.arange(50))
    once, scaled = (Rotation.from_periodogram(s * x, z).frequency for s in (1.0, 86_400.0))
    assert float(scaled) * 86_400.0 == pytest.approx(float(once), rel=1e-12)


def test_it_passes_on_the_arguments_of_the_constructor():
    x, z = np.arange(50.0), np.exp(0.9j * np.arange(50))
    rotation = Rotation.from_periodogram(x, z, fixed="frequency", name="carrier", dtype="float32")
    assert list(rotation.parameters()) == ["carrier.frequency"]
    assert rotation.variable_dtype == "float32"
    assert not rotation.trainable_variables
    product = Rotation.from_periodogram(x, z, name="carrier") * RBF()
    assert next(iter(product.parameters())) == "carrier.frequency"


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e160, 1e307, 1e307 * (1 + 1j)], ids=str)
def test_it_does_not_depend_on_the_scale_of_the_signal(scale):
    x = np.arange(50.0)
    found = Rotation.from_periodogram(x, scale * np.exp(0.9j * x))
    assert float(found.frequency) == pytest.approx(0.9 / (2 * np.pi), abs=0.005)


def test_it_does_not_depend_on_the_level_of_the_signal():
    x = np.arange(50.0)
    found = Rotation.from_periodogram(x, 1e6 + np.exp(-0.9j * x))
    assert float(found.frequency) == pytest.approx(-0.9 / (2 * np.pi), abs=0.005)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1 + 0.7j, 1e-300, 1e300, 1 / 3 + 1e5j], ids=str)
def test_a_constant_signal_has_no_peak(value):
    for count in (3, 1000):
        z = np.full(count, value, complex)
        with pytest.raises(ValueError, match="z is constant, and its periodogram has no peak"):
            Rotation.from_periodogram(np.linspace(0.0, 1.0, count), z)


def test_bursts_far_apart_are_refused_instead_of_filling_the_memory():
    x = np.concatenate([day * 86_400.0 + 1e-6 * np.arange(20) for day in range(5)])
    z = np.exp(2j * np.pi * 0.1e6 * x)
    with pytest.raises(
        ValueError, match=r"median step of x, 1e-06, .* span, 3.46e\+05, .* than 4,000,000 frequ"
    ):
        Rotation.from_periodogram(x, z)
    burst = Rotation.from_periodogram(x[:20], z[:20])
    assert float(burst.frequency) == pytest.approx(0.1e6, rel=0.03)
    for x in ([0.0, 5e-324, 1e-323, 1.0], [0.0, 1e-300, 2e-300, 1e300], [-1e308, 0.0, 1e308]):
        with pytest.raises(ValueError, match=r"median step of x"):
            Rotation.from_periodogram(x, np.arange(len(x)) + 0j)


X, Z = np.arange(5.0), np.exp(0.9j * np.arange(5))


@pytest.mark.parametrize(
    ("x", "z", "error", "message"),
    [
        (X[:2], Z[:2], ValueError, "three points.*got 2"),
        (0 * X, Z, ValueError, "three points at different x"),
        (X, np.full(5, np.nan + 0j), ValueError, "three points.*got 0"),
        (X[:4], Z, ValueError, r"\[N\], got shapes \(4,\) and \(5,\)"),
        (X[:, None], Z[:, None], ValueError, r"\[N\], got shapes \(5, 1\)"),
        (X + 0j, Z, TypeError, "x must be real.*got complex128"),
        (X, Z.real, TypeError, "z must be complex, got float64"),
        (np.where(X == 2, np.nan, X), Z, ValueError, "x must be finite"),
        (np.ma.array(X, mask=X == 2), Z, ValueError, "x must be known everywhere"),
        (X, np.where(X == 2, np.inf, Z), ValueError, "z has infinite elements"),
    ],
)
def test_data_that_have_no_periodogram_are_refused(x, z, error, message):
    with pytest.raises(error, match=message):
        Rotation.from_periodogram(x, z)


def test_is_what_a_mask_hides_missing():
    x = np.arange(60.0)
    z, hidden = np.exp(0.24j * np.pi * x), x % 3 == 0
    z[hidden] = 100.0
    found = Rotation.from_periodogram(x, np.ma.array(z, mask=hidden))
    assert abs(float(found.frequency) - 0.12) < 1e-3


def test_are_several_tones_found_one_after_the_other():
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0.0, 50.0, 200))
    z = sum(a * np.exp(2j * np.pi * f * x) for a, f in ((1.0, 0.5), (0.6, 0.55), (0.3, -1.2)))
    found = Rotation.from_periodogram(x, z, count=3, fixed="frequency")
    frequencies = [float(rotation.frequency) for rotation in found]
    np.testing.assert_allclose(frequencies, [0.5, 0.55, -1.2], atol=0.005)
    assert all(rotation.frequency.fixed for rotation in found)
    for count in (0, 1.5, 201, True):
        with pytest.raises(ValueError, match="count must be a whole number from 1 to 200"):
            Rotation.from_periodogram(x, z, count=count)


@pytest.mark.parametrize("kind", ["regular", "irregular"])
def test_is_the_periodogram_of_a_long_series_that_of_a_direct_sum(kind, monkeypatch):
    rng = np.random.default_rng(1)
    x = inputs(kind, rng)
    z = np.exp(2j * np.pi * 0.843 * x) + 0.5 * np.exp(-2j * np.pi * 1.52 * x)
    direct, _ = Periodogram(x, z[None]).peaks(2)
    monkeypatch.setattr(cgp.kernels.periodogram, "_MOST_PRODUCTS", 0)
    spread, _ = Periodogram(x, z[None]).peaks(2)
    np.testing.assert_allclose(spread, direct, atol=1e-3 / 50.0)
