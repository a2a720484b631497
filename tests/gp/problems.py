"""Processes with data, as cgp builds them and as the reference computes them."""

from typing import NamedTuple

import numpy as np

import cgp
from cgp.kernels import RBF, Matern32, Rotation, WidelyLinear
from tests.reference import kernels as reference

NOISE = 0.2
NOISE_PSEUDO = 0.1 - 0.05j


class Problem(NamedTuple):
    name: str
    kernel: cgp.kernels.Kernel
    pair: object
    """Function of (x1, x2), `[N, D]`, that returns the reference's K and C."""
    noise_pseudo_variance: complex

    def gp(self, **kwargs):
        return cgp.ExactGP(self.kernel, NOISE, self.noise_pseudo_variance, **kwargs)

    def observed(self, x):
        """Reference K and C of the observations at `[N, D]`."""
        k, c = self.pair(x, x)
        identity = np.eye(len(x))
        return k + NOISE * identity, c + self.noise_pseudo_variance * identity

    def at(self, x, x_new):
        """Reference (cross, cross_pseudo, prior, prior_pseudo)."""
        return (*self.pair(x_new, x), *self.pair(x_new, x_new))


def _proper(x1, x2):
    k = reference.matern32(x1, x2, 1.3, 2.0) * reference.rotation(x1, x2, 0.4)
    k = k + reference.rbf(x1, x2, 0.5, 1.5)
    return k, np.zeros_like(k)


def _improper(x1, x2):
    return reference.widely_linear(*_proper(x1, x2), 0.4 - 0.3j)


def _kernel():
    return Matern32(1.3, 2.0) * Rotation(0.4) + RBF(0.5, 1.5)


def problems() -> list[Problem]:
    """Four processes: proper; improper by kernel, by noise, and by both."""
    return [
        Problem("proper", _kernel(), _proper, 0.0),
        Problem("improper", WidelyLinear(_kernel(), 0.4 - 0.3j), _improper, 0.0),
        Problem("improper noise", _kernel(), _proper, NOISE_PSEUDO),
        Problem("all improper", WidelyLinear(_kernel(), 0.4 - 0.3j), _improper, NOISE_PSEUDO),
    ]


def started(gp, x, z, **kwargs):
    """The process with the initial hyperparameters of a fit, which also gives its warnings.

    Of a fit whose one step leads nowhere, eagerly.
    """
    gp.compile("sgd", run_eagerly=True)
    gp.optimizer.learning_rate = 0.0
    gp.fit(x, z, verbose=0, **kwargs)
    return gp


def complex_normals(rng, *shape):
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def series(seed=0, n=25, missing=()):
    """Irregular inputs with a replicate, and targets."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 10.0, n)
    x[3] = x[7]
    z = complex_normals(rng, n)
    z[list(missing)] = np.nan
    return x, z
