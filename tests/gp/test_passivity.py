"""Bands of frequency where a rational response is not that of a passive device."""

import numpy as np
import pytest

import cgp
from cgp.gp.means import Rational
from cgp.gp.means.pole_errors import bands_above_one
from cgp.kernels import Zero


def response(omega, poles, residues, constant):
    return constant + (residues / (1j * omega[..., None] - poles)).sum(axis=-1)


def random_response(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    poles = -(10.0 ** rng.uniform(-3.0, 0.0, n)) + 1j * (50.0 + rng.uniform(-5.0, 5.0, n))
    turns = np.exp(2j * np.pi * rng.uniform(size=(2, n)))
    residues = -poles.real * rng.uniform(0.0, 0.8, n) * turns[0]
    return poles, residues, rng.choice([0.3, 0.9, 1.0, 1.1]) * turns[1, 0]


@pytest.mark.parametrize("seed", range(20))
def test_are_bands_those_of_a_dense_grid(seed):
    poles, residues, constant = random_response(seed)
    bands = bands_above_one(poles, residues, constant)
    assert np.all(np.diff(bands.ravel()) > 0.0)
    widths = np.concatenate([[0.0], np.geomspace(1e-5, 1e4, 4001)])
    omega = np.unique(poles.imag[:, None] + np.concatenate([-widths, widths]))
    above = np.abs(response(omega, poles, residues, constant)) - 1.0
    inside = np.any((bands[:, :1] < omega) & (omega < bands[:, 1:]), axis=0)
    certain = np.abs(above) > 1e-8
    np.testing.assert_array_equal(inside[certain], above[certain] > 0.0)
    assert inside.any() or certain.any()
    ends = bands[np.isfinite(bands)]
    np.testing.assert_allclose(np.abs(response(ends, poles, residues, constant)), 1.0, atol=1e-8)


def test_is_an_all_pass_passive():
    poles = np.array([-0.3 + 1.0j, -0.01 + 1.1j, -2.0 - 3.0j])
    r = np.array([np.prod(p + poles.conj()) / np.prod(p - poles[poles != p]) for p in poles])
    omega = np.linspace(-9.0, 9.0, 101)
    np.testing.assert_allclose(np.abs(response(omega, poles, r, 1.0)), 1.0, atol=1e-12)
    assert bands_above_one(poles, r, 1.0).shape == (0, 2)
    assert bands_above_one(poles, 1.001 * r, 1.0).shape[0] > 0


def test_are_constants_alone_passive_or_not():
    nothing = np.zeros(0, complex)
    assert bands_above_one(nothing, nothing, 0.99).shape == (0, 2)
    np.testing.assert_array_equal(bands_above_one(nothing, nothing, 1.1j), [[-np.inf, np.inf]])


@pytest.mark.parametrize("is_real", [False, True])
def test_does_a_fit_find_the_bands_of_the_device(is_real):
    f, delay = np.linspace(2.0, 4.0, 121), 1.3
    poles = 2j * np.pi * np.array([2.6, 3.3]) - np.array([0.3, 0.5])
    residues = np.array([[0.13j, 0.2], [-0.05, 0.1j]])

    def device(f):
        s = 2j * np.pi * f[..., None]
        of_poles = residues[:, None] / (s - poles)
        if is_real:
            of_poles = of_poles + residues[:, None].conj() / (s - poles.conj())
        return np.exp(-2j * np.pi * delay * f) * (0.8 + of_poles.sum(axis=-1))

    noise = np.random.default_rng(0).normal(size=(2, 2, len(f)))
    z = device(f) + 1e-6 * (noise[0] + 1j * noise[1])
    gp = cgp.ExactGP(Zero(), mean=Rational(2, real_response=is_real))
    gp.fit(f, z, verbose=0)
    modes, bands = gp.mean.poles_with_errors(), gp.mean.passivity_violations()
    turn = np.exp(-2j * np.pi * modes.delay * f)
    np.testing.assert_allclose(np.abs(modes.constant), 0.8, rtol=1e-4)
    fitted = modes.residues[:, None] / (2j * np.pi * f[:, None] - modes.poles)
    if is_real:
        fitted = fitted + modes.residues[:, None].conj() / (
            2j * np.pi * f[:, None] - modes.poles.conj()
        )
    fitted = turn * (modes.constant[:, None] + fitted.sum(axis=-1))
    np.testing.assert_allclose(fitted, z, atol=1e-5)
    dense = np.linspace(0.0, 6.0, 60_001)
    for of_series, modulus in zip(bands, np.abs(device(dense)), strict=True):
        inside = np.any((of_series[:, :1] < dense) & (dense < of_series[:, 1:]), axis=0)
        assert np.mean(inside != (modulus > 1.0)) < 1e-3
        assert np.all(of_series >= 0.0) or not is_real
    assert len(bands[0]) > 0
    one = cgp.ExactGP(Zero(), mean=Rational(2, real_response=is_real))
    one.fit(f, z[0], verbose=0)
    np.testing.assert_allclose(one.mean.passivity_violations(), bands[0], rtol=1e-3)


def test_are_bands_those_of_a_saved_model(tmp_path):
    f = np.linspace(0.0, 1.0, 41)
    z = 0.9j - 0.1j / (2j * np.pi * (f - 0.3) + 0.05) + 1e-4 * np.cos(np.arange(41))
    gp = cgp.ExactGP(Zero(), mean=Rational(1))
    gp.fit(f, z, verbose=0)
    gp.save(tmp_path / "gp.keras")
    loaded = cgp.load_model(tmp_path / "gp.keras").mean
    assert loaded.poles_with_errors().constant == gp.mean.poles_with_errors().constant
    bands = gp.mean.passivity_violations()
    assert bands.shape == (1, 2)
    np.testing.assert_array_equal(loaded.passivity_violations(), bands)


def test_have_weights_without_errors_no_bands():
    with pytest.raises(ValueError, match="have not been located"):
        Rational(2).passivity_violations()
