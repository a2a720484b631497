"""Filters and smoothers of models that are not linear, of one real series, as textbooks have them.

Särkkä & Svensson, *Bayesian Filtering and Smoothing*, 2nd ed. 2023, ch. 7 to 14, in
covariance form.
Functions take and return arrays of rows, `[K, n]` -> `[K, m]`; a complex model is given as its real
composite.
"""

from typing import NamedTuple

import numpy as np


class Affine(NamedTuple):
    """f(x) ≈ A x + b + e, e of covariance C."""

    A: np.ndarray
    b: np.ndarray
    C: np.ndarray


class Run(NamedTuple):
    means: np.ndarray
    covariances: np.ndarray
    log_likelihood: float


def taylor(f, m, P, step=1e-5):
    """The linearisation by central differences of fourth order."""
    n = len(m)

    def at(h):
        return (f(m + h * np.eye(n)) - f(m - h * np.eye(n))) / (2 * h)

    A = ((4 * at(step) - at(2 * step)) / 3).T
    image = f(m[None])[0]
    return Affine(A, image - A @ m, np.zeros([len(image)] * 2))


def cubature(n):
    return np.sqrt(n) * np.vstack([np.eye(n), -np.eye(n)]), np.full(2 * n, 0.5 / n)


def unscented(n, kappa):
    axes = np.sqrt(n + kappa) * np.eye(n)
    weights = np.concatenate([[kappa / (n + kappa)], np.full(2 * n, 0.5 / (n + kappa))])
    return np.vstack([np.zeros([1, n]), axes, -axes]), weights


def quadrature(n, order):
    nodes, node_weights = np.polynomial.hermite_e.hermegauss(order)
    points = np.stack(np.meshgrid(*[nodes] * n, indexing="ij"), axis=-1).reshape(-1, n)
    weights = np.prod(
        np.stack(np.meshgrid(*[node_weights] * n, indexing="ij"), axis=-1), axis=-1
    ).ravel()
    return points, weights / weights.sum()


def by_points(points, weights):
    """Statistical linear regression on points of unit covariance."""

    def rule(f, m, P):
        x = m + points @ np.linalg.cholesky(P).T
        y = f(x)
        mean = weights @ y
        cross = (weights[:, None] * (y - mean)).T @ (x - m)
        A = cross @ np.linalg.inv(P)
        spread = (weights[:, None] * (y - mean)).T @ (y - mean)
        return Affine(A, mean - A @ m, spread - A @ P @ A.T)

    return rule


def update(m, P, h, R, z):
    """The measurement update by the elements observed: moments and log likelihood."""
    observed = ~np.isnan(z)
    if not observed.any():
        return m, P, 0.0
    H, d, S = h.A[observed], h.b[observed], (h.C + R)[np.ix_(observed, observed)]
    S = H @ P @ H.T + S
    K = P @ H.T @ np.linalg.inv(S)
    v = z[observed] - H @ m - d
    loss = v @ np.linalg.solve(S, v) + np.linalg.slogdet(2 * np.pi * S)[1]
    return m + K @ v, P - K @ S @ K.T, -0.5 * loss


def filtered(f, h, Q, R, m, P, z, rule, iterations=0, damping=0.0):
    """The filter; each function is linearised about the moments before it, then iteratively."""
    run, total = [], 0.0
    for observation in z:
        at = (m, P)
        for _ in range(iterations):
            mean, covariance, _ = update(m, P, rule(h, *at), R, observation)
            at = (mean + damping * (at[0] - mean), covariance)
        m, P, log_likelihood = update(m, P, rule(h, *at), R, observation)
        run.append((m, P))
        total += log_likelihood
        along = rule(f, m, P)
        m, P = along.A @ m + along.b, along.A @ P @ along.A.T + along.C + Q
    means, covariances = map(np.array, zip(*run, strict=True))
    return Run(means, covariances, total)


def smoothed(f, h, Q, R, m, P, z, rule, iterations=0, damping=0.0):
    """The smoother; with iterations all functions are linearised again about smoothed moments."""
    run = filtered(f, h, Q, R, m, P, z, rule, iterations, damping)
    along = [rule(f, *state) for state in zip(run.means, run.covariances, strict=True)]
    run = _backward(along, Q, run)
    last = None
    for _ in range(iterations):
        means = run.means if last is None else run.means + damping * (last - run.means)
        last = means
        states = list(zip(means, run.covariances, strict=True))
        along = [rule(f, *state) for state in states]
        observations = [rule(h, *state) for state in states]
        mean, covariance, forward = m, P, []
        for t, observation in enumerate(z):
            mean, covariance, _ = update(mean, covariance, observations[t], R, observation)
            forward.append((mean, covariance))
            A, b, C = along[t]
            mean, covariance = A @ mean + b, A @ covariance @ A.T + C + Q
        run = _backward(along, Q, Run(*map(np.array, zip(*forward, strict=True)), 0.0))
    return run


def _backward(along, Q, forward):
    means, covariances = [forward.means[-1]], [forward.covariances[-1]]
    for (A, b, C), m, P in reversed(
        list(zip(along[:-1], forward.means[:-1], forward.covariances[:-1], strict=True))
    ):
        ahead = A @ P @ A.T + C + Q
        J = P @ A.T @ np.linalg.inv(ahead)
        means.append(m + J @ (means[-1] - A @ m - b))
        covariances.append(P + J @ (covariances[-1] - ahead) @ J.T)
    return Run(np.array(means[::-1]), np.array(covariances[::-1]), 0.0)
