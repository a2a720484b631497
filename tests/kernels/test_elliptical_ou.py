"""The elliptical Ornstein-Uhlenbeck process against its stochastic differential equation."""

import numpy as np
import pytest
from scipy.linalg import expm, solve_continuous_lyapunov

import cgp
from cgp.kernels import EllipticalOU

PAPER = {"alpha1": 0.02, "beta1": 1.0, "alpha2": -0.5, "beta2": -0.3, "diffusion": 2.0}


def in_the_plane(rho, psi, damping, rate, power):
    """Drift and diffusion of (x, y): Q P Ω P⁻¹ Qᵀ and those of Q P times white noise."""
    turn = np.array([[np.cos(psi), -np.sin(psi)], [np.sin(psi), np.cos(psi)]])
    stretch = turn @ np.diag([1 / rho, rho])
    drift = stretch @ np.array([[-damping, -rate], [rate, -damping]]) @ np.linalg.inv(stretch)
    return drift, 0.5 * power * stretch @ stretch.T


@pytest.mark.parametrize("rate", [0.8, -1.3])
def test_is_it_the_image_of_a_circular_process_under_a_stretch_and_a_turn(rate):
    drift, diffusion = in_the_plane(0.7, 0.4, 0.1, rate, 1.7)
    # (x, y)' = M (x, y) is z' = a z + b conj(z) with these a and b.
    (p, q), (r, s) = drift
    a, b = (p + s + 1j * (r - q)) / 2, (p - s + 1j * (r + q)) / 2
    kernel = EllipticalOU.from_drift(
        -a.real, a.imag, -b.real, b.imag, diffusion=np.trace(diffusion)
    )
    P = solve_continuous_lyapunov(drift, -diffusion)
    lag = 2.3
    S = expm(drift * lag) @ P
    k = S[0, 0] + S[1, 1] + 1j * (S[1, 0] - S[0, 1])
    c = S[0, 0] - S[1, 1] + 1j * (S[1, 0] + S[0, 1])
    np.testing.assert_allclose(kernel.covariance([lag], [0.0]), [[k]], rtol=1e-12)
    np.testing.assert_allclose(kernel.pseudo_covariance([lag], [0.0]), [[c]], rtol=1e-11)
    found = [kernel.alpha1, kernel.beta1, kernel.alpha2, kernel.beta2, kernel.diffusion]
    np.testing.assert_allclose(
        found, [-a.real, a.imag, -b.real, b.imag, np.trace(diffusion)], rtol=1e-12
    )
    assert float(kernel.frequency) == pytest.approx(rate / (2 * np.pi), rel=1e-12)


def test_is_the_equation_that_of_the_paper():
    kernel = EllipticalOU.from_drift(**PAPER)
    found = {name: getattr(kernel, name) for name in PAPER}
    assert found == pytest.approx(PAPER, rel=1e-12)
    # The mean of z moves by the drift: differentiate E[z(x) conj(z(0))] at lag 0.
    h = 1e-6  # whose error is half of h times the second derivative, about 120
    k, c = (f([0.0, h], [0.0]).numpy()[:, 0] for f in (kernel.covariance, kernel.pseudo_covariance))
    a, b = -0.02 + 1j, 0.5 - 0.3j
    np.testing.assert_allclose((k[1] - k[0]) / h, a * k[0] + b * np.conj(c[0]), atol=1e-4)
    np.testing.assert_allclose((c[1] - c[0]) / h, a * c[0] + b * k[0], atol=1e-4)
    # The process is stationary: the noise adds what the drift takes, in the relation of the paper.
    diffusion, pseudo = -2 * (a * k[0] + b * np.conj(c[0])).real, -2 * (a * c[0] + b * k[0])
    assert diffusion == pytest.approx(2.0)
    assert pseudo == pytest.approx(2.0 * (0.3 + 0.5j))


@pytest.mark.long
def test_are_the_parameters_of_a_simulated_series_learned():
    rng, true = np.random.default_rng(0), EllipticalOU.from_drift(**PAPER)
    x = np.arange(200.0)
    c, pole = complex(true.coefficient), -0.02 + 2j * np.pi * float(true.frequency)
    variance = float(true.variance) / (1 + abs(c) ** 2)
    w = np.sqrt(variance / 2) * (rng.normal(size=200) + 1j * rng.normal(size=200))
    u = [w[0]]
    for innovation in np.sqrt(1 - np.exp(-0.04)) * w[1:]:
        u.append(np.exp(pole) * u[-1] + innovation)
    z = u + c * np.conj(u)
    gp = cgp.ExactGP(EllipticalOU(np.mean(np.abs(z) ** 2), 0.1, 0.13, 0.1), 1e-4)
    gp.compile(cgp.optimizers.LBFGS())
    gp.fit(x, z, epochs=40, verbose=0)
    found = {name: getattr(gp.kernel, name) for name in PAPER}
    assert found == pytest.approx(PAPER, abs=0.15)
    likelihood = cgp.ExactGP(true, 1e-4).log_marginal_likelihood(x, z)
    assert likelihood < gp.log_marginal_likelihood(x, z) < likelihood + 10.0


def test_is_motion_on_a_line_finite_though_its_drift_is_not():
    kernel = EllipticalOU(2.0, 0.1, -0.2, 1j)
    np.testing.assert_allclose(kernel.covariance([0.0]), [[2.0]])
    np.testing.assert_allclose(kernel.pseudo_covariance([0.0]), [[2j]], atol=1e-15)
    assert kernel.beta1 == -np.inf
    assert kernel.diffusion == pytest.approx(0.4)


@pytest.mark.parametrize("change", [{"alpha1": 0.0}, {"alpha2": 1.0}, {"diffusion": -1.0}], ids=str)
def test_a_drift_that_does_not_turn_is_refused(change):
    with pytest.raises(ValueError, match="alpha2² \\+ beta2² < beta1²"):
        EllipticalOU.from_drift(**{**PAPER, **change})
    with pytest.raises(ValueError, match="inputs of one dimension, got 2"):
        EllipticalOU().covariance(np.ones((3, 2)))
