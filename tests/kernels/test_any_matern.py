"""The Matérn kernel of any smoothness, against SciPy, half-integer kernels and differences."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import gammaln, kve

import cgp
from cgp.kernels import RBF, Matern, Matern12, Matern32, Matern52
from cgp.kernels.bessel import matern_correlation
from tests.long_cases import long_except

R = np.array([1e-6, 1e-3, 0.03, 0.4, 1.0, 3.0, 12.0, 60.0])


def correlation(smoothness, r):
    s = np.sqrt(2 * smoothness) * r
    log = (1 - smoothness) * np.log(2) - gammaln(smoothness) + smoothness * np.log(s) - s
    return np.exp(log) * kve(smoothness, s)


@pytest.mark.parametrize("smoothness", [0.05, 0.3, 0.5, 1.0, 1.7, 4.2, 30.0])
def test_is_the_correlation_that_of_scipy(smoothness):
    found = matern_correlation(tf.constant(smoothness, tf.float64), R**2).numpy()
    np.testing.assert_allclose(found, correlation(smoothness, R), rtol=5e-11)


@pytest.mark.parametrize(
    ("smoothness", "half"), [(0.5, Matern12), (1.5, Matern32), (2.5, Matern52)]
)
def test_are_halves_the_kernels_in_closed_form(smoothness, half):
    x = np.r_[0.0, np.cumsum(R)]
    found = Matern(2.0, 0.8, smoothness).covariance(x)
    np.testing.assert_allclose(found, half(2.0, 0.8).covariance(x), rtol=1e-10)


def test_does_it_tend_to_the_rbf():
    x = np.linspace(0.0, 3.0, 7)
    found = Matern(2.0, 0.8, 400.0).covariance(x)
    np.testing.assert_allclose(found, RBF(2.0, 0.8).covariance(x), atol=3e-3)


WEIGHTS = np.array([1.0, -0.4, 0.3, 2.0, 1.0])


@pytest.mark.parametrize("smoothness", long_except([0.2, 0.7, 1.0, 2.3, 40.0], 0.7, 40.0))
def test_are_derivatives_central_differences(smoothness):
    r2, nu, h = tf.constant(R[1:6] ** 2), tf.constant(smoothness, tf.float64), 1e-4
    with tf.GradientTape() as tape:
        tape.watch([nu, r2])
        weighed = tf.reduce_sum(matern_correlation(nu, r2) * WEIGHTS)
    by_nu, by_r2 = tape.gradient(weighed, [nu, r2])
    above, below = (matern_correlation(nu + s, r2).numpy() for s in (h, -h))
    # Differences of values near 1, whose last digits vary.
    expected = WEIGHTS @ (above - below) / (2 * h)
    np.testing.assert_allclose(by_nu, expected, rtol=1e-6, atol=2e-7)
    slope = [correlation(smoothness, np.sqrt(r2 * (1 + s))) for s in (1e-5, -1e-5)]
    expected = WEIGHTS * (slope[0] - slope[1]) / 2e-5
    np.testing.assert_allclose(r2 * by_r2, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.long
def test_has_it_second_derivatives():
    r2, nu, h = tf.constant(R[3:5] ** 2), tf.constant(0.7, tf.float64), 1e-4

    def first(nu):
        with tf.GradientTape() as tape:
            tape.watch([nu, r2])
            value = matern_correlation(nu, r2)
        return tf.add_n([tf.reduce_sum(a) for a in tape.gradient(value, [nu, r2])])

    with tf.GradientTape() as tape:
        tape.watch(nu)
        total = first(nu)
    expected = (first(nu + h) - first(nu - h)) / (2 * h)
    np.testing.assert_allclose(tape.gradient(total, nu), expected, rtol=1e-6)


@pytest.mark.long
def test_is_the_smoothness_of_a_signal_learned():
    rng, x = np.random.default_rng(0), np.linspace(0.0, 10.0, 80)
    chol = np.linalg.cholesky(Matern52(1.0, 1.0).covariance(x).numpy() + 1e-10 * np.eye(80))
    z = chol @ (rng.normal(size=(80, 2)) @ [1, 1j]) / np.sqrt(2)
    gp = cgp.ExactGP(Matern(1.0, 1.0, smoothness=0.8), noise_variance=1e-6)
    gp.compile(cgp.optimizers.LBFGS())
    gp.fit(x, z, epochs=20, verbose=0)
    assert float(gp.kernel.smoothness) == pytest.approx(2.5, abs=0.4)
