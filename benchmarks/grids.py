"""Value and gradient of the likelihood of the N cells of a grid, beside a dense covariance.

    python benchmarks/grids.py [--quick]

A `GridGP` takes a product of kernels along axes by its Kronecker structure. Times are of the
processor, in milliseconds an evaluation, on one thread: of frames of 14 × N/224 × 16 cells, of
squares, of N/10 × 10, and of the last with 300 cells missing at random. `ExactGP`, with the same
kernel and the dense covariance of all cells, is timed up to 2,500 cells. Memory is what a process
takes above its imports.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import math

import growth
import numpy as np

import cgp
from cgp.kernels import RBF, Along, Matern32, Rotation
from cgp.training.objective import Objective

SIZES = (400, 2500, 10_000, 100_352, 1_000_000)
MOST = {"dense": 2500, "300 missing": 100_352}
CASES = ("frame", "square", "long", "300 missing", "dense")


def shape(case, n):
    if case == "frame":
        return 14, max(n // 224, 2), 16
    return (math.isqrt(n),) * 2 if case in ("square", "dense") else (n // 10, 10)


def kernel(axes):
    along = (
        Matern32(1.0, 20.0) * Rotation(0.02),
        RBF(1.0, 10.0, fixed="variance") * Rotation(-0.01),
        RBF(1.0, 3.0, fixed="variance"),
    )
    first, *others = (Along(inner, axis) for axis, inner in enumerate(along[:axes]))
    return math.prod(others, start=first)


def evaluation(case, n):
    """A function that evaluates a case once."""
    sizes, rng = shape(case, n), np.random.default_rng(0)
    axes = [np.arange(float(size)) for size in sizes]
    z = rng.normal(size=sizes) + 1j * rng.normal(size=sizes)
    if case == "300 missing":
        z.ravel()[rng.choice(z.size, min(300, z.size // 4), replace=False)] = np.nan
    if case == "dense":
        gp = cgp.ExactGP(kernel(len(sizes)), noise_variance=0.1)
        data = gp.data_of(np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2), z.ravel())
    else:
        gp = cgp.GridGP(kernel(len(sizes)), noise_variance=0.1)
        data = gp.data_of(axes, z)
    gp.compile()
    loss = Objective(gp, gp.training_batch(data))
    return lambda: loss(loss.start)


if __name__ == "__main__":
    growth.main(__file__, __doc__.splitlines()[0], SIZES, MOST, CASES, evaluation)
