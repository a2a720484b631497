"""Value and gradient of the likelihood of N scattered points, beside a dense covariance.

    python benchmarks/scattered.py [--quick]

A `SparseGP` of 256 inducing points over two dimensions: of a kernel that is real under a rotation,
of a sum that is not, and of an improper one; a `VecchiaGP` of as many neighbours as it takes by
itself; `ExactGP` up to 3,000 points. Points stay as far apart as they are, so that the span grows.
Times are of the processor, in milliseconds an evaluation, on one thread. Memory is what a process
takes above its imports.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import growth
import numpy as np

import cgp
from cgp.kernels import RBF, Rotation, WidelyLinear
from cgp.training.objective import Objective

SIZES = (300, 1000, 3000, 10_000, 100_000)
MOST = {"dense": 3000}
CASES = ("under a rotation", "sum", "improper", "Vecchia", "dense")


def kernel(case):
    turning = RBF(1.0, 1.0) * Rotation([0.3, -0.2])
    if case == "sum":
        return turning + RBF(0.5, 2.0) * Rotation([-0.1, 0.1])
    return WidelyLinear(RBF(1.0, 1.0), 0.5j) if case == "improper" else turning


def evaluation(case, n):
    """A function that evaluates a case once."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 0.1 * np.sqrt(n), (n, 2))
    z = np.exp(2j * np.pi * x @ [0.3, -0.2]) + 0.3 * (rng.normal(size=(n, 2)) @ [1, 1j])
    process = {"Vecchia": cgp.VecchiaGP, "dense": cgp.ExactGP}.get(case, cgp.SparseGP)
    gp = process(kernel(case), noise_variance=0.2)
    gp.compile()
    data = gp.arranged(gp.data_of(x, z))
    if process is cgp.SparseGP:
        gp.prepare(data)  # the inducing points are chosen once
    loss = Objective(gp, gp.training_batch(data))
    return lambda: loss(loss.start)


if __name__ == "__main__":
    growth.main(__file__, __doc__.splitlines()[0], SIZES, MOST, CASES, evaluation)
