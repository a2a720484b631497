"""The Bayesian filter of a model that need not be linear, on a grid of states: sums for integrals.

Kitagawa, J. Am. Stat. Assoc. 82, 1987. States and observations are real; a complex model is given
as its real composite. Accurate where the grid is finer than all noise and wider than all states.
"""

from typing import NamedTuple

import numpy as np


class Run(NamedTuple):
    means: np.ndarray
    covariances: np.ndarray
    log_likelihood: float


def density(deviations, covariance):
    """The density of the real normal, `[..., n]` -> `[...]`."""
    n = deviations.shape[-1]
    distances = np.sum(deviations * np.linalg.solve(covariance, deviations[..., None])[..., 0], -1)
    return np.exp(-0.5 * distances) / np.sqrt((2 * np.pi) ** n * np.linalg.det(covariance))


def filtered(f, h, Q, R, mean, covariance, z, axes):
    """Moments after each observation, `[T, m]`, NaN where missing.

    Args:
        f, h: Functions of rows of states, `[G, n]` -> `[G, n]` and `[G, m]`.
        axes: The equidistant values of each component of the state.
    """
    grid = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=-1)
    cell = np.prod([a[1] - a[0] for a in axes])
    moves = density(grid[:, None] - f(grid)[None], Q)  # to each state, from each
    observed = h(grid)
    weights = density(grid - mean, covariance) * cell
    means, covariances, log_likelihood = [], [], 0.0
    for observation in z:
        present = ~np.isnan(observation)
        if present.any():
            errors = (observation - observed)[:, present]
            weights = weights * density(errors, R[np.ix_(present, present)])
        total = np.sum(weights)
        log_likelihood += np.log(total)
        weights = weights / total
        m = weights @ grid
        means.append(m)
        covariances.append((weights[:, None] * (grid - m)).T @ (grid - m))
        weights = moves @ weights * cell
    return Run(np.array(means), np.array(covariances), log_likelihood)
