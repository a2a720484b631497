"""The cost of a step of many streams, relative to a step of one.

    python benchmarks/streams.py [--quick]

A tracker takes one sample of each of B streams in a call, `step(x, z)` with z of `[B]`: a Kalman
filter of four states, a process over a line, and a window of 32 points, full. The sizes are timed
in turns, so that their ratio holds on a busy machine too. Times are in microseconds, on one thread.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse

import numpy as np
import tensorflow as tf
from timing import compare, markdown, save
from tracker_makers import CAPACITY, kalman_filter, recursive_gp, state_space_gp

STREAMS = (1, 8, 64)

MAKERS = {
    "KalmanFilter, 4 states": kalman_filter,
    "StateSpaceGP, Matérn-3/2, turned": state_space_gp,
    f"RecursiveGP, capacity {CAPACITY}": recursive_gp,
}


def stepping(make, count):
    """A function that takes the next sample of `count` streams, after a window of them."""
    step, number = make(), 0
    shape = () if count == 1 else (count,)

    def take():
        nonlocal number
        number += 1
        step(0.1 * number, np.full(shape, np.exp(0.2j * number)))

    for _ in range(CAPACITY):
        take()
    return take


def cost(make, seconds):
    timings = compare({count: stepping(make, count) for count in STREAMS}, seconds)
    return {count: timings[count].median * 1e6 for count in STREAMS}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short, nothing written")
    quick = parser.parse_args().quick
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    rows = []
    for name, make in MAKERS.items():
        times = cost(make, 0.2 if quick else 2.0)
        ratios = {f"{count} / 1": times[count] / times[1] for count in STREAMS[1:]}
        rows.append({"": name} | {f"{count} streams": t for count, t in times.items()} | ratios)
    print(markdown(rows))
    if not quick:
        print("written to", save("streams", rows, unit="microseconds", threads=1).name)


if __name__ == "__main__":
    main()
