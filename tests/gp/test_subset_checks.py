"""Signal that a fit takes for noise: a strong wave, and waves from all around."""

import numpy as np
import pytest

import cgp
from cgp.gp.subset_checks import signal_taken_for_noise
from cgp.kernels import RBF, Rotation
from tests.gp.problems import complex_normals
from tests.long_cases import long_except

NOISE = 0.03


def radio(count=700, seed=0):
    """Gains over 3 by 2 wavelengths: one wave of power 1, and 40 others of power 1 together."""
    rng = np.random.default_rng(seed)
    angles, x = rng.uniform(0.0, 2 * np.pi, 40), rng.uniform(0.0, [3.0, 2.0], (count, 2))
    waves = np.exp(2j * np.pi * x @ np.stack([np.cos(angles), np.sin(angles)]))
    f = np.exp(2j * np.pi * x @ [0.8, 0.6]) + waves @ complex_normals(rng, 40) / np.sqrt(40)
    return x, f, f + np.sqrt(NOISE) * complex_normals(rng, count)


def at_wave(process, **arguments):
    """A process whose envelope is as long as the region, under the wave, with the others noise."""
    kernel = RBF(1.0, [5.0, 4.0]) * Rotation([0.8, 0.6])
    return process(kernel, noise_variance=1.0, **arguments)


def error(gp, x, f):
    return np.mean(np.abs(gp.predict(x)["mean"] - f) ** 2)


@pytest.mark.parametrize("process", long_except([cgp.VecchiaGP, cgp.SparseGP], cgp.VecchiaGP))
def test_a_fit_leaves_an_optimum_in_which_signal_is_noise(process):
    x, f, z = radio()
    gp = at_wave(process)
    data = gp.data_of(x, z)
    assert "0.05 of its noise variance" in str(signal_taken_for_noise(gp, data))
    gp.fit(x, z, verbose=0)
    assert error(gp, x, f) < 0.5 * NOISE
    assert 0.5 < float(gp.noise_variance) / NOISE < 3.0  # the covariance is no RBF
    assert signal_taken_for_noise(gp, data) is None


def test_a_fit_of_few_inducing_points_tells_that_signal_is_noise():
    x, f, z = radio()
    gp = at_wave(cgp.SparseGP, inducing=6)
    with pytest.warns(RuntimeWarning, match=r"signal has been taken for noise: .* a VecchiaGP"):
        gp.fit(x, z, verbose=0)
    assert error(gp, x, f) > 10 * NOISE


def test_checks_leave_hyperparameters_as_they_are():
    x, _, z = radio(count=200)
    gp = at_wave(cgp.SparseGP, fixed="noise_variance")
    assert signal_taken_for_noise(gp, gp.data_of(x, z)) is None
    gp = at_wave(cgp.SparseGP)
    before = gp.parameters()
    assert signal_taken_for_noise(gp, gp.data_of(x, z)) is not None
    for name, value in gp.parameters().items():
        np.testing.assert_array_equal(value, before[name])
