"""Data whose samples have different noise, and their dense covariances."""

from typing import NamedTuple

import numpy as np

from cgp.kernels import Matern12, Matern32, Rotation, WidelyLinear
from tests.gp.problems import NOISE_PSEUDO, Problem, complex_normals
from tests.reference import kernels as reference

GROUPS = np.array([0.2, 0.7])
"""Learned noise variances of two groups."""


def _proper(x1, x2):
    k = reference.matern32(x1, x2, 1.3, 2.0) * reference.rotation(x1, x2, 0.4)
    k = k + reference.matern12(x1, x2, 0.5, 1.5)
    return k, np.zeros_like(k)


def _improper(x1, x2):
    return reference.widely_linear(*_proper(x1, x2), 0.4 - 0.3j)


def problem_of(name):
    """A Markov process: proper, improper by its kernel, by its noise, or by both."""
    kernel, pair = Matern32(1.3, 2.0) * Rotation(0.4) + Matern12(0.5, 1.5), _proper
    if name in ("improper", "all improper"):
        kernel, pair = WidelyLinear(kernel, 0.4 - 0.3j), _improper
    return Problem(name, kernel, pair, NOISE_PSEUDO if "noise" in name or "all" in name else 0.0)


class NoisyData(NamedTuple):
    problem: Problem
    x: np.ndarray
    z: np.ndarray
    known: np.ndarray | None
    groups: np.ndarray | None
    level: float = 1.0
    """The learned noise, as a multiple of `GROUPS`."""

    @property
    def noise_of_samples(self):
        """Known noise variance and group of each sample."""
        return self.known, self.groups

    @property
    def noise_arguments(self):
        """The keyword arguments of `condition` and `fit` for the noise."""
        pairs = {"noise_variance": self.known, "noise_groups": self.groups}
        return {name: array for name, array in pairs.items() if array is not None}

    @property
    def learned(self):
        """The noise variance that the model is made with."""
        return self.level * (GROUPS if self.groups is not None else GROUPS[0])

    @property
    def pseudo(self):
        """The noise pseudo-variance that the model is made with."""
        return self.problem.noise_pseudo_variance

    def model(self, kind, **kwargs):
        return kind(self.problem.kernel, self.learned, self.pseudo, **kwargs)

    def noise(self, known, groups):
        """Variance and pseudo-variance of the noise; `known` and `groups` may be None."""
        learned = self.level * GROUPS[0 if groups is None else groups]
        return learned + (0.0 if known is None else known), learned * self.pseudo / GROUPS[0]

    def observed(self, row=()):
        """The covariance and pseudo-covariance of one series, `[N, N]`."""
        of_row = (
            None if a is None else a[row if a.ndim > 1 else ()] for a in self.noise_of_samples
        )
        k, c = self.problem.pair(self.x[:, None], self.x[:, None])
        variance, pseudo = (np.broadcast_to(a, len(self.x)) for a in self.noise(*of_row))
        return k + np.diag(variance), c + np.diag(pseudo)

    def at(self, x):
        """Reference (cross, cross_pseudo, prior, prior_pseudo) at points `[M]`."""
        return self.problem.at(self.x[:, None], x[:, None])

    def where(self, chosen):
        """The data of some samples of one series."""
        known, groups = (None if a is None else a[chosen] for a in self.noise_of_samples)
        return self._replace(x=self.x[chosen], z=self.z[chosen], known=known, groups=groups)


def noisy_data(name, known=True, grouped=True, n=12, seed=0, batch=()):
    """Samples in no order, two at one place, one missing whose noise is not known."""
    rng = np.random.default_rng(seed)
    problem = problem_of(name)
    x = rng.uniform(0.0, 10.0, n)
    x[3] = x[7]
    z = complex_normals(rng, *batch, n)
    z[..., 5] = np.nan
    variance = rng.uniform(0.0, 2.0, (*batch, n))
    variance[..., 2], variance[..., 5] = 0.0, np.nan
    groups = rng.integers(0, 2, (*batch, n))
    return NoisyData(problem, x, z, variance if known else None, groups if grouped else None)
