"""Exact Gaussian processes from their covariance matrices, in the augmented complex form.

`covariance` and `pseudo_covariance` are those of the observations, noise included, `[N, N]`.
`cross_*` are those between new points and observations, `E[f(x*) z̄]` and `E[f(x*) z]`, `[M, N]`;
`prior_*` those of the new points, `[M, M]`. Means are zero.
"""

import numpy as np

from tests.reference.complex_normal import (
    augmented,
    augmented_covariance,
    log_determinant,
    log_prob,
)


def without_missing(z, covariance, pseudo_covariance):
    """The observed values and their covariances."""
    observed = np.flatnonzero(~np.isnan(z))
    return (
        z[observed],
        covariance[np.ix_(observed, observed)],
        pseudo_covariance[np.ix_(observed, observed)],
    )


def log_marginal_likelihood(z, covariance, pseudo_covariance):
    z, k, c = without_missing(z, covariance, pseudo_covariance)
    return log_prob(z, np.zeros(len(z)), k, c)


def posterior(z, covariance, pseudo_covariance, cross, cross_pseudo, prior, prior_pseudo):
    """Mean `[M]`, covariance and pseudo-covariance `[M, M]` at the new points.

    E[f_a | z] = K_a* K_a⁻¹ z_a,  cov[f_a | z] = K_a** − K_a* K_a⁻¹ K_a*ᴴ.
    """
    observed = ~np.isnan(z)
    z, k, c = without_missing(z, covariance, pseudo_covariance)
    m = len(prior)
    k_a = augmented_covariance(k, c)
    cross_a = augmented_covariance(cross[:, observed], cross_pseudo[:, observed])
    prior_a = augmented_covariance(prior, prior_pseudo)
    mean_a = cross_a @ np.linalg.solve(k_a, augmented(z))
    covariance_a = prior_a - cross_a @ np.linalg.solve(k_a, np.conj(cross_a.T))
    return mean_a[:m], covariance_a[:m, :m], covariance_a[:m, m:]


def leave_one_out(z, covariance, pseudo_covariance):
    """Mean, variance and pseudo-variance of each observation given the remaining ones, each `[N]`.

    One new fit for each point. A missing one is predicted like the rest.
    """
    n = len(z)
    means, variances, pseudo_variances = [], [], []
    for i in range(n):
        remaining = [j for j in range(n) if j != i]
        mean, k, c = posterior(
            z[remaining],
            covariance[np.ix_(remaining, remaining)],
            pseudo_covariance[np.ix_(remaining, remaining)],
            covariance[np.ix_([i], remaining)],
            pseudo_covariance[np.ix_([i], remaining)],
            covariance[np.ix_([i], [i])],
            pseudo_covariance[np.ix_([i], [i])],
        )
        means.append(mean[0])
        variances.append(k[0, 0].real)
        pseudo_variances.append(c[0, 0])
    return np.array(means), np.array(variances), np.array(pseudo_variances)


def polynomial(x, degree):
    """1, x, x², …: the columns of a trend over times `[N]`, `[N, degree + 1]`."""
    return np.stack([x**power for power in range(degree + 1)], axis=1).astype(complex)


def trend_log_likelihood(z, covariance, trend):
    """∫ CN(z; H β, K) dβ over complex coefficients β with a flat prior; proper.

    log p = −(N−p) log π − log|K| − log|Hᴴ K⁻¹ H| − zᴴ P z,
    P = K⁻¹ − K⁻¹ H (Hᴴ K⁻¹ H)⁻¹ Hᴴ K⁻¹.

    `trend` is H, `[N, p]`.
    """
    observed = ~np.isnan(z)
    z, k, h = z[observed], covariance[np.ix_(observed, observed)], trend[observed]
    n, p = h.shape
    inverse = np.linalg.inv(k)
    precision = np.conj(h.T) @ inverse @ h
    projection = inverse - inverse @ h @ np.linalg.solve(precision, np.conj(h.T) @ inverse)
    distance = np.conj(z) @ projection @ z
    return (
        -(n - p) * np.log(np.pi) - log_determinant(k) - log_determinant(precision) - distance.real
    )


def composite_covariance(covariance, pseudo_covariance):
    """cov [Re z; Im z], from z_a = T [Re z; Im z] with T = [[I, iI], [I, −iI]] and T⁻¹ = Tᴴ/2."""
    identity = np.eye(len(covariance))
    t = np.block([[identity, 1j * identity], [identity, -1j * identity]])
    k_a = augmented_covariance(covariance, pseudo_covariance)
    return (np.conj(t.T) @ k_a @ t / 4).real


def improper_trend_log_likelihood(z, covariance, pseudo_covariance, trend):
    """The same for an improper process: p complex coefficients are 2p real ones.

    In y = [Re z; Im z], S its covariance, G = [[Re H, −Im H], [Im H, Re H]]:
    log p = −½ ((2N−2p) log 2π + log|S| + log|Gᵀ S⁻¹ G| + yᵀ P y).
    """
    observed = ~np.isnan(z)
    z, k, c = without_missing(z, covariance, pseudo_covariance)
    h = trend[observed]
    n, p = h.shape
    y = np.concatenate([z.real, z.imag])
    g = np.block([[h.real, -h.imag], [h.imag, h.real]])
    s = composite_covariance(k, c)
    inverse = np.linalg.inv(s)
    precision = g.T @ inverse @ g
    projection = inverse - inverse @ g @ np.linalg.solve(precision, g.T @ inverse)
    return -0.5 * (
        (2 * n - 2 * p) * np.log(2 * np.pi)
        + log_determinant(s)
        + log_determinant(precision)
        + y @ projection @ y
    )
