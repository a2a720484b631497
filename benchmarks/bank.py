"""How many samples a `cgp.Bank` of a million keys takes in a second, and how much memory a key has.

    python benchmarks/bank.py [--quick]

Keys are integers, and come first in calls of 100,000 at one time; the bank grows as they come. Then
calls of 100,000 samples of keys drawn at random are timed, of a process each sample at a time of
its own. What the bank then holds is traced by `tracemalloc`, room for keys to come included; the
state of a key is its arrays. A hundred thousand keys have windows, of 16 points. Each kind has a
process of its own, on one core.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["OPENBLAS_NUM_THREADS"] = "1"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import argparse
import multiprocessing
import statistics
import time
import tracemalloc
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from timing import markdown, save

import cgp
from cgp.kernels import Matern32, Rotation

CALLS = 15


def proper(n):
    F = np.diag(0.95 * np.exp(1j * np.arange(1.0, n + 1.0)))
    return cgp.statespace.LinearGaussian(F, 0.1 * np.eye(n), np.ones((1, n)), [[1.0]])


def improper(n):
    return cgp.statespace.widely_linear(
        proper(n), pseudo_Q=0.05 * np.eye(n), pseudo_R=[[0.3 + 0.2j]]
    )


def kernel():
    return Matern32(1.0, 3.0) * Rotation(0.2)


# What makes an estimator, and how many keys it has.
MAKERS = {
    "KalmanFilter, 1 state": (lambda: cgp.KalmanFilter(proper(1)), 1_000_000),
    "KalmanFilter, 2 states": (lambda: cgp.KalmanFilter(proper(2)), 1_000_000),
    "KalmanFilter, 2 states, widely linear": (lambda: cgp.KalmanFilter(improper(2)), 1_000_000),
    "StateSpaceGP, Matérn-3/2, turned": (lambda: cgp.StateSpaceGP(kernel(), 0.1), 1_000_000),
    "RecursiveGP, capacity 16": (lambda: cgp.RecursiveGP(kernel(), 0.1, capacity=16), 100_000),
}


def measure(kind, share):
    make, count = MAKERS[kind]
    count, batch = count // share, 100_000 // share
    rng = np.random.default_rng(0)
    estimator = make()
    is_filter = isinstance(estimator, cgp.KalmanFilter)

    def update(bank, keys, x):
        z = rng.normal(size=(len(keys), 2)).view(complex)[:, 0]
        arguments = (keys, z) if is_filter else (keys, z, x)
        start = time.perf_counter()
        bank.update(*arguments)
        return time.perf_counter() - start

    all_keys = rng.choice(2**40, count, replace=False)
    update(cgp.Bank(make()), all_keys[:9], np.zeros(9))  # loads what is loaded once
    tracemalloc.start()
    bank = cgp.Bank(estimator)
    for first in range(0, count, batch):
        update(bank, all_keys[first : first + batch], np.zeros(batch))
    memory = tracemalloc.get_traced_memory()[0] / count
    tracemalloc.stop()
    state = sum(a.nbytes for a in bank.state([all_keys[0]]))
    seconds = [
        update(bank, all_keys[rng.integers(0, count, batch)], t + np.sort(rng.uniform(size=batch)))
        for t in range(1, CALLS)
    ]
    return {
        "keys": count,
        "samples a second": batch / statistics.median(seconds),
        "bytes of a state": state,
        "bytes of a key": memory,
        "over its state": memory / state,
    }


def in_a_process(kind):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(measure, kind, 1).result()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few keys, nothing written")
    quick = parser.parse_args().quick
    rows = []
    for kind in MAKERS:
        print(f"{kind} …", flush=True)
        figures = measure(kind, 100) if quick else in_a_process(kind)
        rows.append({"bank": kind, **figures})
    print(markdown(rows))
    if not quick:
        print("written to", save("bank", rows, unit="samples a second, bytes").name)


if __name__ == "__main__":
    main()
