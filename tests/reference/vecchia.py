"""Vecchia's approximation from dense conditional densities, one sample after the other.

Covariances are pairs (K, C) of covariance and pseudo-covariance of noisy samples, `[N, N]`, means
are zero. `order` has the numbers of the samples, of which the first have the fewest neighbours.
"""

import numpy as np

from tests.reference.complex_normal import augmented, augmented_covariance, log_prob


def predecessors(x, unit, order, count):
    """The numbers of the nearest samples before each in order, a list of arrays by sample."""
    near = {}
    for rank, number in enumerate(order):
        before = np.asarray(order[:rank], int)
        squares = np.sum(((x[before] - x[number]) / unit) ** 2, axis=-1)
        near[number] = before[np.argsort(squares, kind="stable")[:count]]
    return near


def conditional_log_prob(z, covariance, number, near):
    """log p(z_i | z_c), as the difference of log p of both together and of z_c."""
    both = np.append(near, number)
    joint, before = (
        log_prob(z[at], np.zeros(len(at)), *(a[np.ix_(at, at)] for a in covariance))
        for at in (both, near)
    )
    return joint - before


def log_likelihood(z, covariance, near):
    return sum(conditional_log_prob(z, covariance, i, c.astype(int)) for i, c in near.items())


def prediction(z, covariance, cross, prior, near):
    """Mean, variance and pseudo-variance of one point.

    `cross` is the pair of covariances of all samples with the point, `[N]`, `prior` its variances.
    """
    k = augmented_covariance(*(a[np.ix_(near, near)] for a in covariance))
    h = augmented_covariance(*(a[near, None] for a in cross))
    weights = np.conj(np.linalg.solve(k, h).T)
    moments = augmented_covariance(*(np.array([[a]]) for a in prior)) - weights @ h
    return (weights @ augmented(z[near]))[0], moments[0, 0].real, moments[0, 1]
