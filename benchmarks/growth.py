"""Time and memory of evaluations against the size of data, each case in a process of its own."""

import argparse
import resource
import subprocess
import sys
import time

import numpy as np
import tensorflow as tf
from timing import markdown, save


def milliseconds(function, seconds):
    """The median over calls of the time of the processor, after the first call."""
    function()
    times, start = [], time.monotonic()
    while len(times) < 3 or (time.monotonic() - start < seconds and len(times) < 100):
        before = time.process_time()
        function()
        times.append(1e3 * (time.process_time() - before))
    return float(np.median(times))


def measured(evaluation, seconds):
    """Milliseconds, and megabytes above the imports, of an evaluation that is made here."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = milliseconds(evaluation(), seconds)
    return took, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main(script, summary, sizes, most, cases, evaluation):
    """Measures and records a script.

    Args:
        script: Its path; the record has its name.
        summary: What it does.
        sizes: Numbers of samples.
        most: The largest number of a case, by name, where it is not the largest of all.
        cases: Names.
        evaluation: A function of a case and a number, which returns a function to be timed.
    """
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--quick", action="store_true", help="short, nothing written")
    parser.add_argument("--case", nargs=3, metavar=("CASE", "N", "SECONDS"), help="one of them")
    arguments = parser.parse_args()
    if arguments.case:
        case, n, seconds = arguments.case
        print(*measured(lambda: evaluation(case, int(n)), float(seconds)))
        return
    seconds = 0.2 if arguments.quick else 2.0
    rows = []
    for n in sizes[: 1 if arguments.quick else None]:
        row = {"n": n} | {name: None for case in cases for name in (case, f"{case}, MB")}
        for case in [c for c in cases if n <= most.get(c, sizes[-1])]:
            command = [sys.executable, script, "--case", case, str(n), str(seconds)]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            took, memory = map(float, output.split())
            row |= {case: took, f"{case}, MB": memory}
        rows.append(row)
        print(row, flush=True)
    print(markdown(rows))
    if not arguments.quick:
        name = script.rsplit("/", 1)[-1].removesuffix(".py")
        print("written to", save(name, rows, unit="milliseconds", threads=1).name)
