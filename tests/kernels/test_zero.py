"""The kernel of no process."""

import keras
import numpy as np
import pytest

import cgp
from cgp.kernels import RBF, Rotation, Zero
from tests.long_cases import long_except


def test_is_it_nothing_in_sums_and_products():
    x = np.linspace(0.0, 1.0, 4)
    np.testing.assert_array_equal(Zero().covariance(x), np.zeros((4, 4)))
    np.testing.assert_array_equal(Zero().pseudo_covariance(x), np.zeros((4, 4)))
    np.testing.assert_array_equal((RBF() + Zero()).covariance(x), RBF().covariance(x))
    np.testing.assert_array_equal((Rotation(0.3) * Zero()).covariance(x), np.zeros((4, 4)))
    assert Zero(dtype="float32").covariance(x).dtype == "complex64"
    config = keras.saving.serialize_keras_object(Zero(name="none"))
    assert repr(keras.saving.deserialize_keras_object(config)) == "Zero()"


@pytest.mark.parametrize("restarts", long_except([1, 2], 1))
def test_is_a_fit_with_it_a_regression_in_white_noise(restarts):
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 1.0, 30)
    z = 1j * x + 0.1 * (rng.normal(size=30) + 1j * rng.normal(size=30))
    gp = cgp.ExactGP(Zero(), mean=cgp.means.Polynomial(1, marginalized=True))
    gp.compile(cgp.optimizers.LBFGS())
    gp.fit(x, z, restarts=restarts, verbose=0)
    line = np.polyfit(x, z, 1)
    np.testing.assert_allclose(gp.predict([2.0])["mean"], np.polyval(line, 2.0), rtol=1e-10)
    rest = np.sum(np.abs(z - np.polyval(line, x)) ** 2)
    np.testing.assert_allclose(gp.parameters()["noise_variance"], rest / 28, rtol=0.03)
