"""The complex normal in its augmented complex form: NumPy, dense, textbook.

`z_a = [z; z̄]`, `K_a = [[K, C], [C̄, K̄]]`, `log p = −½ (z_aᴴ K_a⁻¹ z_a + log|K_a| + 2n log π)`.
"""

import numpy as np


def augmented(z):
    return np.concatenate([z, np.conj(z)])


def augmented_covariance(covariance, pseudo_covariance):
    return np.block(
        [
            [covariance, pseudo_covariance],
            [np.conj(pseudo_covariance), np.conj(covariance)],
        ]
    )


def log_determinant(a):
    sign, log = np.linalg.slogdet(a)
    assert np.isclose(sign, 1.0), "not the covariance of anything"
    return log


def proper_log_prob(z, mean, covariance):
    n = len(z)
    d = z - mean
    distance = np.conj(d) @ np.linalg.solve(covariance, d)
    return -n * np.log(np.pi) - log_determinant(covariance) - distance.real


def log_prob(z, mean, covariance, pseudo_covariance):
    n = len(z)
    d = augmented(z - mean)
    k = augmented_covariance(covariance, pseudo_covariance)
    distance = np.conj(d) @ np.linalg.solve(k, d)
    return -0.5 * (distance.real + log_determinant(k) + 2 * n * np.log(np.pi))


def entropy(covariance, pseudo_covariance):
    n = len(covariance)
    k = augmented_covariance(covariance, pseudo_covariance)
    return 0.5 * (2 * n * np.log(np.pi * np.e) + log_determinant(k))


def kl_divergence(mean1, covariance1, pseudo1, mean2, covariance2, pseudo2):
    """KL of normal 1 from normal 2, E₁[log p₁ − log p₂]."""
    n = len(mean1)
    k1 = augmented_covariance(covariance1, pseudo1)
    k2 = augmented_covariance(covariance2, pseudo2)
    d = augmented(mean2 - mean1)
    trace = np.trace(np.linalg.solve(k2, k1)).real
    distance = (np.conj(d) @ np.linalg.solve(k2, d)).real
    return 0.5 * (trace + distance - 2 * n + log_determinant(k2) - log_determinant(k1))


def random_pair(n, rng):
    """A covariance and pseudo-covariance that a process has, for the process A w + B w̄."""
    a = rng.normal(size=(n, n)) + 1j * rng.normal(size=(n, n))
    b = rng.normal(size=(n, n)) + 1j * rng.normal(size=(n, n))
    covariance = a @ np.conj(a.T) + b @ np.conj(b.T)
    pseudo_covariance = a @ b.T + b @ a.T
    return covariance, pseudo_covariance
