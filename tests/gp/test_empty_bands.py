"""The warning of a model whose spectrum is far wider than that of the data."""

import numpy as np
import pytest

import cgp
from cgp.gp.fit_checks import _of_empty_bands
from cgp.gp.starts import scales_of
from cgp.kernels import RBF, Autoregressive, Constant, Matern12, Matern32, Matern52, Rotation

X = np.arange(160.0)


def fading(seed, doppler=0.08):
    """A channel of 64 waves from all directions, whose spectrum ends at the Doppler frequency."""
    rng = np.random.default_rng(seed)
    shifts = doppler * np.cos(rng.uniform(0.0, 2.0 * np.pi, 64))
    waves = rng.normal(size=64) + 1j * rng.normal(size=64)
    noise = rng.normal(size=X.size) + 1j * rng.normal(size=X.size)
    return np.exp(2j * np.pi * np.outer(X, shifts)) @ waves / np.sqrt(128) + 1e-3 * noise


def test_a_signal_limited_to_a_band_is_told_beside_a_wide_kernel():
    z = fading(0)
    z[20:24] = np.nan
    wide, narrow = (cgp.StateSpaceGP(k) for k in (Matern32() * Rotation(), Autoregressive(8)))
    with pytest.warns(RuntimeWarning, match=r"over [5-9]\d% of all frequencies z has less than"):
        wide.fit(X, z, verbose=0)
    narrow.fit(X, z, verbose=0)  # a warning is an error
    errors = [z[100:] - gp.forecasts([3.0])["mean"][97:-3, 0] for gp in (wide, narrow)]
    assert np.std(errors[1]) < 0.3 * np.std(errors[0])


def test_noise_that_is_overstated_and_bands_that_were_chosen_are_not_told():
    kernel = Matern12(1.0, 3.0) * Rotation(0.2)
    z = cgp.ExactGP(kernel, 1e-6).sample(X, seed=0, observed=True)[0]
    loud = cgp.ExactGP(kernel, 0.3)
    data = loud.data_of(X, z)
    assert _of_empty_bands(loud, data, scales_of(loud, data)) == []
    chosen = cgp.StateSpaceGP(Matern32(1.0, 2.0), 0.1, likelihood="whittle", band=(-0.1, 0.1))
    data = chosen.data_of(X, fading(1))
    assert _of_empty_bands(chosen, data, scales_of(chosen, data)) == []


def test_signals_of_the_model_are_not_told():
    kernels = [
        Matern12(1.0, 3.0) * Rotation(0.2),
        Matern32(1.0, 0.5),
        Matern52(1.0, 20.0) * Rotation(-0.3) + Matern12(0.3, 5.0),
        RBF(1.0, 5.0) * Rotation(0.1),
        Constant(9.0) + Matern32(0.1, 30.0),
    ]
    for number, kernel in enumerate(kernels):
        for noise in (1e-8, 1e-2):
            gp = cgp.ExactGP(kernel, noise)
            z = gp.sample(X, 6, seed=number, observed=True)
            z[0, 30:50] = np.nan
            for series in z:
                data = gp.data_of(X, series)
                assert _of_empty_bands(gp, data, scales_of(gp, data)) == []
