"""Inducing points from their covariance matrices, in the augmented complex form.

`noise` and `noise_pseudo` are the variances of the noise of the observations, `[N]`. Matrices of
covariances are pairs (K, C) of covariance and pseudo-covariance: `uu` of inducing points, `[m, m]`,
`uf` between these and observations, `[m, N]`, `ff` of the signal at the observations. Means are
zero, and missing observations are NaN.
"""

import numpy as np

from tests.reference.complex_normal import augmented, augmented_covariance, log_prob


def adjoint(a):
    return np.conj(a.T)


def explained(uu, uf):
    """Q, as a pair."""
    q = adjoint(augmented_covariance(*uf)) @ np.linalg.solve(
        augmented_covariance(*uu), augmented_covariance(*uf)
    )
    n = len(q) // 2
    return q[:n, :n], q[:n, n:]


def bound(z, uu, uf, ff, noise, noise_pseudo):
    """Titsias (2009), eq. 9: log N(z; 0, Q + Σ) − ½ tr(Σ⁻¹ (K − Q)), augmented."""
    at = np.flatnonzero(~np.isnan(z))
    k, c = (a[np.ix_(at, at)] for a in explained(uu, uf))
    s, t = np.diag(noise[at]) + 0j, np.diag(noise_pseudo[at])
    value = log_prob(z[at], np.zeros(len(at)), k + s, c + t)
    sigma = augmented_covariance(s, t)
    rest = augmented_covariance(*(a[np.ix_(at, at)] for a in ff)) - augmented_covariance(k, c)
    return value - 0.5 * np.trace(np.linalg.solve(sigma, rest)).real


def posterior(z, uu, uf, noise, noise_pseudo, us, prior):
    """Mean `[M]`, covariance and pseudo-covariance of the signal at M points, after Titsias (2009).

    `us` is the pair between inducing and new points, `[m, M]`, `prior` that of these.
    """
    at = np.flatnonzero(~np.isnan(z))
    sigma = augmented_covariance(np.diag(noise[at]) + 0j, np.diag(noise_pseudo[at]))
    uf = augmented_covariance(*(a[:, at] for a in uf))
    uu, us = augmented_covariance(*uu), augmented_covariance(*us)
    weighed = uf @ np.linalg.inv(sigma)
    precision = uu + weighed @ adjoint(uf)
    mean = adjoint(us) @ np.linalg.solve(precision, weighed @ augmented(z[at]))
    covariance = augmented_covariance(*prior) - adjoint(us) @ np.linalg.solve(uu, us)
    covariance += adjoint(us) @ np.linalg.solve(precision, us)
    m = len(mean) // 2
    return mean[:m], covariance[:m, :m], covariance[:m, m:]


def greedy(k, count):
    """The points of largest conditional variance, one after the other, by dense inverses."""
    chosen = []
    for _ in range(count):
        variances = []
        for i in range(len(k)):
            cross = k[i, chosen]
            solved = np.linalg.solve(k[np.ix_(chosen, chosen)], np.conj(cross)) if chosen else []
            variances.append((k[i, i] - cross @ solved).real if chosen else k[i, i].real)
        chosen.append(int(np.argmax(variances)))
    return chosen


def forgotten(rows, targets, forgetting):
    """Λ and b after samples of whitened rows `[T, m]`, their conjugates being a, one by one."""
    m = rows.shape[1]
    precision, vector = np.eye(m, dtype=rows.dtype), np.zeros(m, rows.dtype)
    for t, (row, y) in enumerate(zip(rows, targets, strict=True)):
        precision = forgetting * precision + np.outer(np.conj(row), row)
        precision[t % m, t % m] += 1.0 - forgetting**m
        vector = forgetting * vector + np.conj(row) * y
    return precision, vector
