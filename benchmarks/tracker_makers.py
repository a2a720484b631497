"""Trackers of three kinds, whose steps `streams.py` and `trackers.py` time.

Each function makes a tracker and returns its step, of a time and a sample, `[B]` of B streams.
"""

import numpy as np

import cgp
from cgp.kernels import Matern32, Rotation

CAPACITY = 32


def kalman_filter():
    model = cgp.statespace.LinearGaussian(
        F=0.95 * np.diag(np.exp(1j * np.arange(4.0))),
        Q=0.1 * np.eye(4, dtype=complex),
        H=np.ones((1, 4), complex),
        R=np.array([[0.5 + 0j]]),
    )
    layer = cgp.KalmanFilter(model)
    return lambda _, z: layer.step(np.asarray(z)[..., None])


def state_space_gp():
    return cgp.StateSpaceGP(Matern32(1.0, 2.0) * Rotation(0.3), noise_variance=0.01).step


def recursive_gp():
    kernel = Matern32(1.0, 2.0) * Rotation(0.3)
    return cgp.RecursiveGP(kernel, noise_variance=0.01, capacity=CAPACITY).step
