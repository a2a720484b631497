"""Scattered samples of fields over a plane, and processes of them."""

import numpy as np

import cgp
from cgp.kernels import RBF, Matern32, Rotation, WidelyLinear
from tests.gp.problems import complex_normals

KINDS = ("proper", "improper")


def kernel(kind="proper"):
    total = RBF(1.3, [0.7, 1.1]) * Rotation([0.5, -0.3]) + Matern32(0.5, 0.4) * Rotation(
        [-0.5, 0.6]
    )
    return WidelyLinear(total, 0.4 - 0.3j) if kind == "improper" else total


def process(kind="proper", of=cgp.VecchiaGP, **arguments):
    pseudo = 0.02j if kind == "improper" else 0.0
    return of(kernel(kind), 0.05, pseudo, **arguments)


def scattered(n=40, series=None, missing=(), side=3.0, seed=0):
    """Inputs `[N, 2]`, and targets of no process."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, side, (n, 2))
    z = complex_normals(rng, *([] if series is None else [series]), n)
    z[..., list(missing)] = np.nan
    return x, z


def simulated(n, side, noise, seed=0):
    """A field of the kernel RBF(1, 1) * Rotation([0.3, -0.2]) at random places, in noise."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, side, (n, 2))
    # A sum of many waves, whose frequencies have the spectral density of the kernel.
    waves = rng.normal(size=(2, 3000)) + 2.0 * np.pi * np.array([[0.3], [-0.2]])
    z = np.exp(1j * x @ waves) @ complex_normals(rng, 3000) / np.sqrt(6000.0)
    return x, z + np.sqrt(noise / 2.0) * complex_normals(rng, n)
