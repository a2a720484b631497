"""A Gaussian process over a line: linear time beside cubic, and beside celerite2.

    python benchmarks/state_space_gp.py [--quick]

Likelihood by the public call and in a `tf.function` of one's own, and its value with the gradient
as L-BFGS asks for it, of N samples at irregular times. `equal steps` is the public call for as many
samples at equal steps. `exact` is cgp's dense process, where it fits into memory; its value is what
the error of the value is from. celerite2, if it can be imported, has real processes and no gradient
without another package: it is given the real and the imaginary part of the signal, turned back by
the rotation, one after the other. Its `Matern12` is the same model, and its value is compared; its
Matérn-3/2 term is an approximation.

Times are in seconds; `slope` is the exponent of N between one row and the next. One core.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["OPENBLAS_NUM_THREADS"] = "1"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import argparse

import numpy as np
import tensorflow as tf
from timing import compare, markdown, save

import cgp
from cgp.gp.data import as_data
from cgp.kernels import Matern12, Matern32, Rotation
from cgp.training.objective import Objective

try:
    import celerite2
except ImportError:
    celerite2 = None

LARGEST_DENSE = 2000
KERNELS = {
    "Matern32 * Rotation": lambda: Matern32(1.0, 20.0) * Rotation(0.1),
    "Matern12": lambda: Matern12(1.0, 20.0),
}


def samples(n, rng):
    x = np.cumsum(rng.exponential(1.0, n))
    noise = rng.normal(size=n) + 1j * rng.normal(size=n)
    return x, np.exp(0.2j * np.pi * x) + 0.3 * noise


def functions_of(kind, kernel, x, z):
    """Value, and value with gradient, as functions of no arguments."""
    gp = kind(KERNELS[kernel](), noise_variance=0.2)
    gp.compile(optimizer=cgp.optimizers.LBFGS())
    data = (tf.constant(x[:, None]), tf.constant(z))
    loss = Objective(gp, (as_data(x, z, None, "float64"), None, None))  # as `fit` gives it

    @tf.function(autograph=False)
    def negative_log_likelihood(x, z):
        gp((x, z))
        return gp.losses[0]

    return lambda: float(negative_log_likelihood(*data)), lambda: loss(loss.start)[0]


def public(kernel, x, z):
    """The log likelihood by the public call, as a function of no arguments."""
    gp = cgp.StateSpaceGP(KERNELS[kernel](), noise_variance=0.2)
    return lambda: float(gp.log_marginal_likelihood(x, z))


def celerite(kernel, x, z):
    """The loss of real and imaginary part by celerite2, as a function of no arguments."""
    if kernel == "Matern12":
        term = celerite2.terms.RealTerm(a=0.5, c=1.0 / 20.0)
    else:
        term, z = (
            celerite2.terms.Matern32Term(sigma=0.5**0.5, rho=20.0),
            z * np.exp(-0.2j * np.pi * x),
        )
    process = celerite2.GaussianProcess(term)
    diagonal, components = np.full(len(x), 0.1), (z.real.copy(), z.imag.copy())

    def loss():
        process.compute(x, diag=diagonal, check_sorted=False, quiet=True)
        return -sum(process.log_likelihood(z) for z in components) / len(x)

    return loss


def measure(kernel, n, seconds):
    x, z = samples(n, np.random.default_rng(n))
    in_graph, with_gradient = functions_of(cgp.StateSpaceGP, kernel, x, z)
    ways = {
        "value": public(kernel, x, z),
        "equal steps": public(kernel, np.arange(float(n)), z),
        "in a graph": in_graph,
        "value and gradient": with_gradient,
    }
    if n <= LARGEST_DENSE:
        dense = functions_of(cgp.ExactGP, kernel, x, z)
        ways |= {"exact, value": dense[0], "exact, both": dense[1]}
    if celerite2 is not None:
        ways["celerite2, value"] = celerite(kernel, x, z)
    timings = compare(ways, seconds, (3, 30))
    row = {"kernel": kernel, "N": n}
    names = ("value", "equal steps", "in a graph", "value and gradient")
    names = (*names, "exact, value", "exact, both", "celerite2, value")
    row |= {name: timings[name].median if name in timings else "–" for name in names}
    for name in names:
        row[f"first call of {name}"] = timings[name].first if name in timings else "–"
    for name in ("exact, value", "celerite2, value"):
        same = name in ways and (name[0] == "e" or kernel == "Matern12")
        error = abs(ways[name]() / in_graph() - 1.0) if same else "–"
        row[f"error beside {name.split(',')[0]}"] = error
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    quick = parser.parse_args().quick
    rows = []
    for kernel in KERNELS:
        before = None
        for n in (300, 1500) if quick else (1000, 20_000, 100_000, 1_000_000):
            print(f"{kernel}, N = {n} …", flush=True)
            row = measure(kernel, n, 0.5 if quick else 5.0)
            slope = "–"
            if before is not None:
                growth = row["value and gradient"] / before["value and gradient"]
                slope = float(np.log(growth) / np.log(n / before["N"]))
            rows.append(row | {"slope": slope})
            before = row
    print(markdown(rows))
    if not quick:
        print(f"written to {save('state_space_gp', rows, 'celerite2')}")


if __name__ == "__main__":
    main()
