"""Sites of processes in a fit: the states beside the loss, and the compiled core in graphs."""

import numpy as np
import pytest

import cgp
from tests.long_cases import long_except

CLASSES = [cgp.ExactGP, cgp.StateSpaceGP]


def data():
    x = np.linspace(0.0, 6.0, 20)
    rng = np.random.default_rng(1)
    z = np.exp(0.8j * x) + 0.2 * (rng.normal(size=20) + 1j * rng.normal(size=20))
    z[4], z[9] = 5.0, np.nan
    return x, z


def process(cls):
    kernel = cgp.kernels.Matern32(1.0, 3.0) * cgp.kernels.Rotation(frequency=0.1)
    return cls(kernel, noise_variance=0.1, likelihood=cgp.likelihoods.StudentT(4.0))


@pytest.mark.parametrize("cls", long_except(CLASSES, cgp.StateSpaceGP))
def test_follows_the_posterior_of_a_fit_from_its_last_hyperparameters(cls):
    gp = process(cls)
    gp.fit(*data(), epochs=3, verbose=0)  # whose loss leaves the sites of predictions alone
    learned = process(cls)
    for mine, fitted in zip(learned.trainable_variables, gp.trainable_variables, strict=True):
        mine.assign(fitted)
    learned.condition(*data())
    posterior, expected = gp.predict([2.2, 7.0]), learned.predict([2.2, 7.0])
    np.testing.assert_allclose(posterior["mean"], expected["mean"], atol=1e-8)
    np.testing.assert_allclose(posterior["variance"], expected["variance"], atol=1e-8)


@pytest.mark.parametrize("cls", long_except(CLASSES, cgp.StateSpaceGP))
def test_are_the_sites_of_a_process_the_same_without_the_core(cls, without_core):
    def log_likelihood():
        gp = process(cls)
        gp.condition(*data())
        return float(gp.log_marginal_likelihood())

    assert log_likelihood() == pytest.approx(without_core(log_likelihood), abs=1e-9)
