"""Transfer functions of decaying white noise, against sums over their impulse responses."""

import numpy as np
import pytest

from cgp import ExactGP
from cgp.kernels import Rotation, Szego

F = np.array([0.0, 0.13, 0.5, 2.1])


@pytest.mark.parametrize("real", [False, True])
def test_are_its_moments_those_of_transformed_decaying_white_noise(real):
    """E[H Hᴴ] and E[H Hᵀ] of H = D h, h of uncorrelated samples that decay, dt apart."""
    decay, dt = 0.8, 2e-4
    t = dt * (np.arange(100_000) + 0.5)
    transform = np.exp(-2j * np.pi * F[:, None] * t)
    power = 2 * decay * np.exp(-2 * decay * t) * dt  # unit variance in all
    kernel = Szego(1.5, decay, real_response=real)
    found = kernel.covariance(F).numpy(), kernel.pseudo_covariance(F).numpy()
    np.testing.assert_allclose(found[0], 1.5 * (transform * power) @ transform.conj().T, atol=1e-6)
    pseudo = 1.5 * (transform * power) @ transform.T if real else np.zeros((4, 4))
    np.testing.assert_allclose(found[1], pseudo, atol=1e-6)


def test_is_a_real_response_the_conjugate_at_negative_frequencies():
    kernel = Szego(1.5, 0.8, real_response=True)
    k = kernel.covariance(F, -F).numpy()
    np.testing.assert_allclose(k, kernel.pseudo_covariance(F).numpy(), rtol=1e-15)
    np.testing.assert_allclose(kernel.pseudo_covariance([0.0]).numpy(), [[1.5]], rtol=1e-15)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("decay", "between"), [(1e-12, 0.0), (1e12, 1.5)])
def test_is_a_decay_far_from_the_span_finite(decay, between, dtype):
    k = Szego(1.5, decay, dtype=dtype).covariance([0.0, 1.0, 5.0]).numpy()
    np.testing.assert_allclose(np.diag(k), 1.5, rtol=1e-6)
    np.testing.assert_allclose(k[0, 1:], between, atol=1e-5)


def test_is_a_one_pole_response_interpolated_behind_its_delay_alone():
    f = np.linspace(0.2, 4.0, 60)
    h = np.exp(-2j * np.pi * f * 3.3) / (1.0 + 2j * np.pi * (f - 1.7))
    errors = []
    for delay in (3.3, 0.0, -3.3):  # later than causal, or the other way round
        gp = ExactGP(Szego(1.0, 1.0) * Rotation(-delay), noise_variance=1e-8)
        gp.condition(f[::2], h[::2])
        errors.append(np.max(np.abs(gp.predict(f[1:-1:2])["mean"] - h[1:-1:2])))
    assert errors[0] < 2e-3
    assert 20 * errors[0] < errors[1] < errors[2]


def test_what_does_not_make_sense_is_refused():
    with pytest.raises(TypeError, match="real_response must be True or False, got 1"):
        Szego(real_response=1)
    with pytest.raises(ValueError, match="frequency axis: x must have one dimension, got 2"):
        Szego().covariance(np.ones((3, 2)))
    with pytest.raises(ValueError, match="cannot multiply an improper kernel"):
        Szego(real_response=True) * Rotation(-1.0)
