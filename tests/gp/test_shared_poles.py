"""Responses of several outputs that share their poles."""

import keras
import numpy as np
import pytest

import cgp
from cgp.gp.means import Exponentials, Polynomial, Rational
from cgp.kernels import Matern52, Outputs

F = np.linspace(1.0, 10.0, 46)
NEW = np.array([1.3, 4.9, 7.7])
POLES = 2j * np.pi * np.array([3.0, 5.2, 7.5]) - np.array([0.6, 0.3, 0.9])


def responses(deviation=0.02, seed=0, outputs=2):
    """Responses of common poles at F, real in time, in noise."""
    rng = np.random.default_rng(seed)
    residues = rng.normal(size=(3, outputs)) + 1j * rng.normal(size=(3, outputs))
    s = 2j * np.pi * F[:, None]
    z = (1.0 / (s - POLES)) @ residues + (1.0 / (s - POLES.conj())) @ residues.conj()
    return z + deviation * (rng.normal(size=z.shape) + 1j * rng.normal(size=z.shape)), residues


def small():
    return Matern52(1e-4, 1.0, fixed=["variance", "lengthscale"])


@pytest.mark.parametrize("make", [lambda: Rational(3), lambda: Rational(3, real_response=True)])
def test_outputs_of_one_kernel_are_series_of_one_response(make, tmp_path):
    z, residues = responses()
    of_series = cgp.ExactGP(small(), 8e-4, mean=make())
    of_series.fit(F, z.T, verbose=0)
    shared, kernel = make(), small()
    gp = cgp.ExactGP(Outputs([kernel] * 2), 8e-4, mean=cgp.means.Outputs([shared] * 2))
    gp.fit(F, z, verbose=0)
    np.testing.assert_allclose(shared.poles, of_series.mean.poles, rtol=1e-9)
    likelihoods = of_series.log_marginal_likelihood(), gp.log_marginal_likelihood()
    np.testing.assert_allclose(np.sum(likelihoods[0]), likelihoods[1], rtol=1e-9)
    for name, moment in gp.predict(NEW).items():
        np.testing.assert_allclose(moment.T, of_series.predict(NEW)[name], rtol=1e-6, atol=1e-9)
    gp.save(tmp_path / "shared.keras")
    loaded = keras.saving.load_model(tmp_path / "shared.keras")
    assert loaded.mean.means[0] is loaded.mean.means[1]
    np.testing.assert_allclose(loaded.predict(NEW)["mean"], gp.predict(NEW)["mean"], rtol=1e-12)
    if shared.real_response:
        modes = shared.poles_with_errors()
        assert np.all(np.abs(modes.residues.T - residues) < 4.0 * np.abs(modes.residue_errors.T))


def test_an_output_without_a_mean_and_missing_samples():
    z, _ = responses(outputs=3)
    z[5, 1] = z[7, 0] = np.nan
    shared = Rational(3, real_response=True)
    gp = cgp.ExactGP(
        Outputs([small(), small(), Matern52()]),
        [8e-4] * 3,
        mean=cgp.means.Outputs([shared, shared, None]),
    )
    gp.fit(F, z, verbose=0)
    alone = Rational(3, real_response=True)
    both = ~np.isnan(z[:, :2]).any(axis=1)
    cgp.ExactGP(small(), 8e-4, mean=alone).fit(F[both], z[both, :2].T, verbose=0)
    np.testing.assert_allclose(shared.poles, alone.poles, rtol=1e-9)
    assert np.all(np.isfinite(gp.predict(NEW)["variance"]))


def test_decays_of_several_sensors():
    t = 0.1 * np.arange(80.0)
    decays = np.exp(np.outer(t, [2j - 0.3, -5j - 0.1])) @ np.array([[1.0, 2j], [0.5j, 1.0]])
    rng = np.random.default_rng(1)
    z = decays + 0.01 * (rng.normal(size=decays.shape) + 1j * rng.normal(size=decays.shape))
    shared = Exponentials(2)
    gp = cgp.ExactGP(Outputs([small()] * 2), 2e-4, mean=cgp.means.Outputs([shared] * 2))
    gp.fit(t, z, verbose=0)
    modes = shared.modes_with_errors()
    truth = np.array([-5.0, 2.0]) / (2.0 * np.pi)
    assert np.all(np.abs(modes.frequencies - truth) < 4.0 * modes.frequency_errors)


def test_errors():
    trend = Polynomial(1, marginalized=True)
    gp = cgp.ExactGP(Outputs([Matern52(1.0, 1.0)] * 2), 0.1, mean=cgp.means.Outputs([trend] * 2))
    z = np.ones((3, 2), complex)
    z[1:, 1] = np.nan
    with pytest.raises(
        ValueError, match="of output 1, a trend of 2 coefficients is not determined"
    ):
        gp.condition(np.arange(3.0), z)
