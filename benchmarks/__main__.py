"""Runs the benchmarks one after the other, and draws the page from their records.

    python benchmarks [--quick] [--peers PYTHON] [NAME ...]
    python benchmarks --render

Each script runs in a process of its own. Afterwards a line is added to `results/history.jsonl`, and
the tables of `README.md` and the pictures are made anew from the records in `results/`, also from
those of scripts that did not run. `--render` does the latter alone; `--quick` runs the smallest
sizes and writes nothing. PYTHON is an interpreter that has the other Kalman filters
(`kalman_filter.py` says how to make one).
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import bars
import page

SCRIPTS = (
    "rank_one_updates",
    "exact_gp",
    "lines",
    "grids",
    "scattered",
    "recursive_gp",
    "kalman_filter",
    "state_space_gp",
    "first_calls",
    "trackers",
    "streams",
    "bank",
)


def run(name: str, arguments: list[str]) -> bool:
    command = [sys.executable, str(Path(__file__).with_name(f"{name}.py")), *arguments]
    return subprocess.run(command).returncode == 0


def render() -> None:
    import pictures  # needs matplotlib, which running does not

    records = bars.records()
    pictures.draw(records)
    page.write(records)
    print(f"written: {page.PAGE.name}, and pictures in {bars.RESULTS.name}/")


def main() -> int:
    summary = __doc__.splitlines()[0]
    parser = argparse.ArgumentParser(prog="python benchmarks", description=summary)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCRIPTS) + "; or all")
    parser.add_argument("--quick", action="store_true", help="smallest sizes, nothing written")
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter with the other filters")
    parser.add_argument("--render", action="store_true", help="run nothing, draw the page")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(SCRIPTS)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}; choose from {', '.join(SCRIPTS)}")
    if arguments.render:
        render()
        return 0
    names = [name for name in SCRIPTS if not arguments.names or name in arguments.names]
    seconds, failed, commit = {}, [], bars.commit()
    for i, name in enumerate(names, 1):
        print(f"\n== {i} of {len(names)}: {name}", flush=True)
        passed_on = ["--quick"] if arguments.quick else []
        if arguments.peers and name == "kalman_filter":
            passed_on += ["--peers", arguments.peers]
        start = time.monotonic()
        if run(name, passed_on):
            seconds[name] = time.monotonic() - start
            print(f"== {name} took {seconds[name]:.0f} s", flush=True)
        else:
            failed.append(name)
            print(f"== {name} FAILED", flush=True)
    if seconds and not arguments.quick:
        bars.append(seconds, commit)
        render()
    if failed:
        print("failed: " + ", ".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
