"""The tests in several processes, two of them at a time.

    python -m tests [name ...]          those parts whose name begins with one of these, all if
                                        none, without tests that are marked as long
    python -m tests --all [name ...]    long ones too
    python -m tests --quick             every docstring's example, and one gradient and one refusal
                                        of every public name

What XLA has compiled stays in memory for as long as the process, whatever is cleared: so large
folders are several processes, and one that has grown beyond 5 GB is marked.
"""

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent
WORKERS = 2
LARGEST = 5e9  # bytes of memory
# Files to a process, in folders that compile or compute much; in others all.
FILES = {
    "examples": 1,
    "gp": 5,
    "layers": 6,
    "statespace": 3,
    "whole": 7,
}
FIRST = ("examples", "gp", "statespace", "layers", "equivalences")  # the longest
# Two processes share few cores, and their arrays are small: more threads only wait for each other,
# which costs a third of the time of long loops.
ONE_THREAD = dict.fromkeys(
    ("TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS", "OPENBLAS_NUM_THREADS"), "1"
)
# Graphs are millions of objects, and slow to take apart: the collector looks through them rarely,
# what is left after one collection is not looked through again, and a process ends when all exit
# handlers have run, with its objects.
PROCESS = """
import atexit, gc, os, sys, pytest

gc.set_threshold(200_000, 50, 1000)

class Ending:
    def pytest_unconfigure(self):
        gc.collect()
        gc.freeze()

def end():
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

atexit.register(end)  # the first of them is the last to run
code = pytest.main(sys.argv[1:], plugins=[Ending()])
"""
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


def parts() -> dict[str, list[Path]]:
    """The paths of each process, by name; those that take longest first."""
    found = {"doctests": [ROOT / "cgp"]}
    for folder in sorted({path.parent for path in HERE.rglob("test_*.py")}):
        files = sorted(folder.glob("test_*.py"))
        name = folder.relative_to(HERE).as_posix() if folder != HERE else "whole"
        processes = -(-len(files) // FILES.get(name, len(files)))
        for i in range(processes):
            number = f" {i + 1}" if processes > 1 else ""
            found[name + number] = files[i::processes]  # neighbours are large together
    return dict(sorted(found.items(), key=lambda part: not part[0].startswith(FIRST)))


def run(name: str, paths: list[Path], chosen: str) -> Result:
    """Runs the tests of one part that have the marks chosen; prints all it printed if it failed."""
    options = ["-q", "--durations=3", "-m", chosen]
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
    memory = used.ru_maxrss * RESIDENT
    failed = process.returncode not in (0, pytest.ExitCode.NO_TESTS_COLLECTED)
    summary = text.strip().rpartition("\n")[2]
    result = Result(name, failed, summary, used.ru_utime + used.ru_stime, memory)
    print(text if failed else "", end="")
    mark = " (too much)" if memory > LARGEST else ""
    print(f"{name:30} {result.seconds:4.0f} s  {memory / 1e9:.1f} GB{mark}  {summary}", flush=True)
    return result


def main(names: list[str]) -> int:
    """Runs parts; how many failed."""
    chosen, marks = parts(), "not long"
    if names[:1] == ["--all"]:
        names, marks = names[1:], ""
    if names == ["--quick"]:
        chosen = {"doctests": chosen["doctests"], "quick": [HERE / "test_quick.py"]}
    elif names:
        chosen = {name: paths for name, paths in chosen.items() if name.startswith(tuple(names))}
    if not chosen:
        print(f"no part begins with {' or '.join(names)}: there are {', '.join(parts())}")
        return 1
    start = time.monotonic()
    with ThreadPoolExecutor(WORKERS) as pool:
        results = list(pool.map(lambda part: run(*part, marks), chosen.items()))
    failed = [result.name for result in results if result.failed]
    print(f"failed: {', '.join(failed)}" if failed else f"all {len(results)} parts passed")
    minutes, seconds = divmod(round(time.monotonic() - start), 60)
    largest = max(results, key=lambda result: result.memory)
    print(f"{minutes} min {seconds} s, {sum(r.seconds for r in results):.0f} s of processor time;")
    print(f"the largest process was {largest.name}, {largest.memory / 1e9:.1f} GB", flush=True)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
