"""The tests in several processes, two of them at a time.

    python -m tests [NAME ...]          those parts or folders whose name begins with one of these,
                                        all if none, without tests that are marked as long
    python -m tests --all [NAME ...]    long ones too
    python -m tests --since COMMIT      long ones alone, of those files that changes since a commit
                                        may break (tests/changes.py), nearest to it first
    python -m tests --since COMMIT --minutes M
                                        starts no more parts after so long, and names those that it
                                        did not start
    python -m tests --quick             every docstring's example, and one gradient and one refusal
                                        of every public name

At the end it prints the ten slowest tests and the total. All parts without long tests have a budget
of processor time; the run fails above it and a half, so that tests stay light. The budget is that
of a quiet machine: each process times a loop as it starts, and the total is divided by how much
longer that took.

What XLA has compiled stays in memory for as long as the process, whatever is cleared: so large
folders are several processes, and one that has grown beyond 5 GB, or 3 GB without long tests, is
marked.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import changes

HERE = Path(__file__).parent
ROOT = HERE.parent
WORKERS = 2
BUDGET = 900  # seconds of processor time
LARGEST = {"not long": 3e9, "long": 5e9, "": 5e9}  # bytes of memory, by the marks
# Files to a process, in folders that compile or compute much; in others all.
FILES = {"examples": 2, "gp": 5, "layers": 6, "statespace": 3, "whole": 7}
FILES_WITHOUT_LONG = {"gp": 18, "statespace": 15}
# Folders that share a process, which begins with ten seconds of imports; more of them where only
# their long tests run, or only the others.
SMALL = ("bank", "distributions", "likelihoods", "native", "old_files", "reference")
SMALL_BY_HALVES = (*SMALL, "gp/sampling", "kernels", "linalg")
FIRST = ("examples", "gp", "statespace", "layers", "equivalences", "small")  # the longest
# Two processes share few cores, and their arrays are small: more threads only wait for each other,
# which costs a third of the time of long loops.
ONE_THREAD = dict.fromkeys(
    ("TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS", "OPENBLAS_NUM_THREADS"), "1"
)
# Graphs are millions of objects, and slow to take apart: the collector looks through them rarely,
# and not at all once the tests have ended; a process ends when all exit handlers have run, with its
# objects.
PROCESS = """
import atexit, gc, os, sys, time, pytest

start = time.process_time()
sum(i * i for i in range(1_000_000))
print("loop", time.process_time() - start)

gc.set_threshold(200_000, 50, 1000)

class Ending:
    def pytest_unconfigure(self):
        gc.freeze()  # pytest collects several times after this

def end():
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

atexit.register(end)  # the first of them is the last to run
code = pytest.main(sys.argv[1:], plugins=[Ending()])
"""
# Seconds that the loop above takes on a quiet machine, by Python 3.11. Python 3.13 takes 1.3 times
# as long for it, and its budget is larger by as much.
LOOP = 0.06
LONG = re.compile(r"mark\.long|tests\.long_cases")  # in a file that has long tests
DURATION = re.compile(r"^ *([0-9.]+)s (?:call|setup|teardown) +(.+)$", re.MULTILINE)
RESIDENT = 1 if sys.platform == "darwin" else 1024  # the unit of a maximal resident set


class Result(NamedTuple):
    """How a process ended."""

    name: str
    failed: bool
    summary: str
    """The last line of pytest's."""
    seconds: float
    """Of processor time."""
    memory: float
    """The greatest, in bytes."""
    loop: float
    """Seconds of the loop at its start."""
    durations: list[tuple[float, str]]
    """Its slowest tests: seconds of wall clock, and the name."""


def parts(marks: str = "") -> dict[str, list[Path]]:
    """The paths of each process, by name; those that take longest first."""
    together = SMALL_BY_HALVES if marks else SMALL
    folders: dict[str, list[Path]] = {}
    for path in sorted(HERE.rglob("test_*.py")):
        text = path.read_text("utf-8")
        if marks == "not long" and "\npytestmark = pytest.mark.long\n" in text:
            continue
        if marks == "long" and not LONG.search(text):
            continue
        name = "small" if folder_of(path) in together else folder_of(path)
        folders.setdefault(name, []).append(path)
    processes = {} if marks == "long" else {"doctests": [ROOT / "cgp"]}
    for name, files in folders.items():
        most = (FILES_WITHOUT_LONG if marks == "not long" else FILES).get(name, len(files))
        count = -(-len(files) // most)
        for i in range(count):
            number = f" {i + 1}" if count > 1 else ""
            processes[name + number] = files[i::count]  # neighbours are large together
    return dict(sorted(processes.items(), key=lambda part: not part[0].startswith(FIRST)))


def run(name: str, paths: list[Path], marks: str) -> Result:
    """Runs the tests of one part that have the marks; prints all it printed if it failed."""
    options = ["-q", "--durations=10", "--durations-min=1", "-m", marks]
    command = [sys.executable, "-c", PROCESS, *options, *map(str, paths)]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**ONE_THREAD, **os.environ},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    # A file may have fewer long tests than its text lets one expect, and no other part is empty.
    harmless = (0, pytest.ExitCode.NO_TESTS_COLLECTED) if marks == "long" else (0,)
    failed = process.returncode not in harmless
    result = Result(
        name,
        failed,
        summary=text.strip().rpartition("\n")[2],
        seconds=used.ru_utime + used.ru_stime,
        memory=used.ru_maxrss * RESIDENT,
        loop=float(text.split(maxsplit=2)[1]),
        durations=[(float(seconds), test) for seconds, test in DURATION.findall(text)],
    )
    print(text if failed else "", end="")
    mark = " (too much)" if result.memory > LARGEST[marks] else ""
    print(
        f"{name:18} {result.seconds:4.0f} s  {result.memory / 1e9:.1f} GB{mark}  {result.summary}",
        flush=True,
    )
    return result


def report(results: list[Result], wall: float) -> float:
    """Prints the slowest tests and the totals; returns the seconds of a quiet machine."""
    print("the slowest tests:")
    durations = sorted(test for result in results for test in result.durations)
    for seconds, test in durations[:-11:-1]:
        print(f"{seconds:6.1f} s  {test}")
    seconds = sum(result.seconds for result in results)
    slowness = sum(result.loop for result in results) / len(results) / LOOP
    largest = max(results, key=lambda result: result.memory)
    minutes, remainder = divmod(round(wall), 60)
    print(f"{minutes} min {remainder} s, {seconds:.0f} s of processor time: of a quiet")
    print(f"machine {seconds / slowness:.0f} s, as the loop took {slowness:.1f} times as long;")
    print(f"the largest process was {largest.name}, {largest.memory / 1e9:.1f} GB", flush=True)
    return seconds / slowness


def folder_of(path: Path) -> str:
    """The folder of a file of tests, as `gp/sampling`; `whole` of those about the whole package."""
    folder = path.parent.relative_to(HERE).as_posix() if path.is_relative_to(HERE) else ""
    return {"": "doctests", ".": "whole"}.get(folder, folder)


def narrowed(chosen: dict[str, list[Path]], keep: Callable[[str, Path], bool]) -> dict:
    """Parts with those of their paths that are to be kept."""
    kept = {name: [path for path in paths if keep(name, path)] for name, paths in chosen.items()}
    return {name: paths for name, paths in kept.items() if paths}


def parsed(arguments: list[str]) -> argparse.Namespace:
    """The arguments of the command."""
    parser = argparse.ArgumentParser(prog="python -m tests", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="how parts or folders begin")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="long tests too")
    which.add_argument("--since", metavar="COMMIT", help="long tests of what has changed since")
    which.add_argument("--quick", action="store_true", help="doctests and tests/test_quick.py")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start none after")
    return parser.parse_args(arguments)


def main(arguments: argparse.Namespace) -> int:
    """Runs parts; how many failed."""
    names, is_default = arguments.names, not (arguments.all or arguments.since or arguments.quick)
    marks = "" if arguments.all else "long" if arguments.since else "not long"
    chosen = parts(marks)
    if arguments.quick:
        chosen = {"doctests": chosen["doctests"], "quick": [HERE / "test_quick.py"]}
    if names:
        begins = tuple(names)
        chosen = narrowed(
            chosen,
            lambda name, path: name.startswith(begins) or folder_of(path).startswith(begins),
        )
    if not chosen:
        print(f"there are no such tests; parts are {', '.join(parts(marks))}")
        return 1
    if arguments.since:
        affected = changes.tests_affected_since(arguments.since)
        chosen = narrowed(chosen, lambda _, path: path in affected)
        if not chosen:
            print(f"no long test is affected by what has changed since {arguments.since}")
            return 0
        nearest = {name: min(map(affected.get, paths)) for name, paths in chosen.items()}
        chosen = dict(sorted(chosen.items(), key=lambda part: nearest[part[0]]))
    start = time.monotonic()

    def run_in_time(part: tuple[str, list[Path]]) -> Result | None:
        in_time = time.monotonic() - start < 60 * arguments.minutes
        return run(*part, marks) if in_time else None

    with ThreadPoolExecutor(WORKERS) as pool:
        ended = dict(zip(chosen, pool.map(run_in_time, chosen.items()), strict=True))
    results = [result for result in ended.values() if result]
    not_started = [name for name, result in ended.items() if result is None]
    if not_started:
        print(f"not started in {arguments.minutes:g} minutes: {', '.join(not_started)}")
    failed = [result.name for result in results if result.failed]
    seconds = report(results, time.monotonic() - start)
    if is_default and not names and seconds > 1.5 * BUDGET:
        print(f"too slow: the budget is {BUDGET} s. Make tests cheaper, or mark them as long")
        failed.append("budget")
    print(f"failed: {', '.join(failed)}" if failed else f"all {len(results)} parts passed")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(parsed(sys.argv[1:])))
