"""Value and gradient of the likelihood of a regular line of N samples, beside a dense covariance.

    python benchmarks/lines.py [--quick]

An `ExactGP` takes equal steps of x by their Toeplitz covariance. Times are of the processor, in
milliseconds an evaluation, on one thread: of a smooth kernel, whose predictor settles, of a fading
channel, whose predictor never does, and of the smooth kernel with 5 % of the samples missing. The
same model with a dense covariance is timed up to 2,000 samples. SciPy's `solve_toeplitz` solves one
system of the matrix of the fading channel, and has neither a determinant nor a gradient. Memory is
what a process takes above its imports.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import math

import growth
import numpy as np
import scipy.linalg
import scipy.special
import tensorflow as tf

import cgp
from cgp.gp import data as data_of_processes
from cgp.kernels import RBF, Kernel, Rotation
from cgp.training.objective import Objective

SIZES = (300, 1000, 2000, 10_000, 30_000, 100_000)
MOST = {"dense": 2000, "5 % missing": 10_000, "fading": 30_000, "SciPy": 30_000}
STEP, DOPPLER = 0.1, 0.5
CASES = ("smooth", "fading", "5 % missing", "dense", "SciPy")


class Jakes(Kernel):
    """The covariance of a fading channel, a Bessel function of the lag."""

    is_stationary = is_real = True

    def moments(self, x1, x2):
        lag = (x1 - x2)[..., 0]
        return tf.math.special.bessel_j0(2.0 * np.pi * DOPPLER * lag), None


def problem(n, missing=0.0):
    rng = np.random.default_rng(0)
    x = STEP * np.arange(n)
    z = np.exp(0.6j * np.pi * x) + 0.3 * (rng.normal(size=n) + 1j * rng.normal(size=n))
    z[rng.choice(n, int(missing * n), replace=False)] = np.nan
    return x, z


def evaluation(case, n):
    """A function that evaluates a case once."""
    x, z = problem(n, 0.05 if case == "5 % missing" else 0.0)
    if case == "SciPy":
        column = scipy.special.j0(2.0 * np.pi * DOPPLER * x)
        column[0] += 0.2
        return lambda: scipy.linalg.solve_toeplitz(column, z)
    kernel = Jakes() if case == "fading" else RBF(1.0, 2.0) * Rotation(0.3)
    gp = cgp.ExactGP(kernel, noise_variance=0.2)
    gp.compile()
    if case == "dense":
        data_of_processes._FEWEST = math.inf
    loss = Objective(gp, gp.training_batch(gp.data_of(x, z)))
    return lambda: loss(loss.start)


if __name__ == "__main__":
    growth.main(__file__, __doc__.splitlines()[0], SIZES, MOST, CASES, evaluation)
