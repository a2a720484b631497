"""What it takes to make trackers, one after the other: the first, the second, and a hundred more.

    python benchmarks/trackers.py [--quick]

A tracker is made, takes ten samples one by one, and is dropped. The first of a process may load,
trace and compile what the others find ready. Resident memory is read after a collection of
garbage: what the first leaves behind stays for the others, and what a hundred more leave behind is
lost. Each kind of tracker has a process of its own, and three of them one after the other, of which
medians are told. Times are in seconds, memory in megabytes.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["OPENBLAS_NUM_THREADS"] = "1"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import argparse
import gc
import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from timing import markdown, save
from tracker_makers import kalman_filter, recursive_gp, state_space_gp

SAMPLES = 10
MEMORY = Path("/proc/self/statm")


MAKERS = {
    "KalmanFilter": kalman_filter,
    "StateSpaceGP": state_space_gp,
    "RecursiveGP": recursive_gp,
}


def live(make):
    """The life of a tracker; seconds to make it, and of its first step."""
    start = time.perf_counter()
    step = make()
    made = time.perf_counter()
    step(0.0, 1.0 + 0.0j)
    stepped = time.perf_counter()
    for i in range(1, SAMPLES):
        step(0.1 * i, np.exp(0.2j * i))
    return made - start, stepped - made


def resident():
    """Megabytes of resident memory, where the system tells them."""
    gc.collect()
    if not MEMORY.exists():
        return float("nan")
    return int(MEMORY.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure(kind, count):
    make = MAKERS[kind]
    before = resident()
    first = live(make)
    after = resident()
    second = live(make)
    for _ in range(count - 1):
        live(make)
    return {
        "first made": first[0],
        "its first step": first[1],
        "second made": second[0],
        "first step of the second": second[1],
        "memory of the first": after - before,
        "memory of as many more": resident() - after,
    }


def in_a_process(kind, count):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(measure, kind, count).result()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few trackers, nothing written")
    quick = parser.parse_args().quick
    count, lives = (5, 1) if quick else (100, 3)
    rows = []
    for kind in MAKERS:
        print(f"{kind} …", flush=True)
        runs = [in_a_process(kind, count) for _ in range(lives)]
        numbers = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        rows.append({"tracker": kind, "count": count, **numbers})
    print(markdown(rows))
    if not quick:
        print("written to", save("trackers", rows, unit="seconds, megabytes").name)


if __name__ == "__main__":
    main()
