"""Several signals at once: what another output costs, and what two processes of P outputs cost.

    python benchmarks/several_signals.py [--quick]

The log likelihood with its gradient, as L-BFGS asks for it, of N rows of P outputs at irregular
times, a tenth of the values missing: of one source that all outputs receive, of the same and a
process of each output, and, beside them, of P series of one process, which share nothing but
hyperparameters. The step is of one row. Times are in seconds, of a step in microseconds. Memory is
the largest resident memory of a process that does this one thing, less what it had after imports.
One core.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["OPENBLAS_NUM_THREADS"] = "1"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import argparse
import resource
import subprocess
import sys

import numpy as np
from timing import compare, markdown, save

import cgp
from cgp.kernels import Coregionalized, Matern12, Matern32, Outputs, Rotation
from cgp.training.objective import Objective


def source():
    return Matern32(1.0, 20.0) * Rotation(0.1)


def one_source(outputs):
    gains = np.exp(2j * np.pi * np.arange(outputs) / outputs)
    return Coregionalized(source(), outputs=outputs, mixing=gains)


KERNELS = {
    "one source": one_source,
    "source + own": lambda outputs: one_source(outputs) + Outputs([Matern12(0.1, 5.0)] * outputs),
    "series": lambda outputs: source(),
}


def samples(n, outputs):
    rng = np.random.default_rng(n)
    x = np.cumsum(rng.exponential(1.0, n))
    z = np.exp(0.2j * np.pi * x)[:, None] + 0.3 * rng.normal(size=(n, outputs, 2)) @ [1, 1j]
    z[rng.uniform(size=z.shape) < 0.1] = np.nan
    return x, z


def value_and_gradient(kind, n, outputs):
    """A function of no arguments."""
    x, z = samples(n, outputs)
    gp = cgp.StateSpaceGP(KERNELS[kind](outputs), noise_variance=0.2)
    gp.compile(optimizer=cgp.optimizers.LBFGS())
    loss = Objective(gp, (gp.data_of(x, z.T if kind == "series" else z), None, None))
    return lambda: loss(loss.start)[0]


def step(kind, outputs):
    """A function of no arguments that takes the next row."""
    gp, (_, z) = cgp.StateSpaceGP(KERNELS[kind](outputs), noise_variance=0.2), samples(64, outputs)
    places = iter(np.arange(1e9))

    def take():
        place = next(places)
        gp.step(place, z[int(place) % 64])

    return take


def memory(kind, n, outputs):
    """Megabytes, in a process of its own."""
    command = [sys.executable, __file__, "--memory", kind, str(n), str(outputs)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(result.stdout.split()[-1])


def print_memory(kind, n, outputs):
    def largest():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    before = largest()
    value_and_gradient(kind, n, outputs)()
    print(largest() - before)


def measure(n, outputs, seconds):
    ways = {kind: value_and_gradient(kind, n, outputs) for kind in KERNELS}
    timings = compare(ways, seconds, (3, 30))
    row = {"N": n, "P": outputs} | {kind: timings[kind].median for kind in KERNELS}
    steps = compare({kind: step(kind, outputs) for kind in KERNELS}, seconds)
    row |= {f"step, {kind}": 1e6 * steps[kind].median for kind in KERNELS}
    return row | {"memory": memory("one source", n, outputs)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    parser.add_argument("--memory", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory:
        kind, *sizes = arguments.memory
        return print_memory(kind, *map(int, sizes))
    quick = arguments.quick
    sizes = ((200, 2),) if quick else ((10_000, 4), (10_000, 16), (100_000, 4), (100_000, 16))
    rows = []
    for n, outputs in sizes:
        print(f"N = {n}, P = {outputs} …", flush=True)
        rows.append(measure(n, outputs, 0.5 if quick else 5.0))
    print(markdown(rows))
    if not quick:
        print(f"written to {save('several_signals', rows)}")


if __name__ == "__main__":
    main()
