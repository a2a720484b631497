"""Tries the oldest and the newest dependencies with each Python, and prints a table.

    python -m release.support [--self-check] [--only 3.11-oldest ...]

Each row is an environment of its own, in which the wheel of dist/ is installed, with what the tests
need; `python -m cgp` and `python -m tests --quick` run there. `--self-check` leaves the tests out.
A row takes some ten minutes and 3 GB of downloads and disk; it is deleted when it has run.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
# TensorFlow 2.20 is the first for Python 3.13, and brings what it needs of the others.
FIRST_OF_313 = {"tensorflow": "2.20", "numpy": "2.1", "scipy": "1.14.1"}
SHOWN = ("tensorflow", "keras", "numpy", "scipy", "tensorflow-probability")


def oldest(python: str) -> list[str]:
    """The oldest minor versions that pyproject.toml admits, as requirements."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = []
    for requirement in project["dependencies"]:
        name, bound = re.match(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", requirement).groups()
        if python == "3.13":
            bound = FIRST_OF_313.get(name, bound)
        extra = "[tf]" if "[tf]" in requirement else ""
        found.append(f"{name}{extra}=={bound}.*")
    return found


def last_line(text: str) -> str:
    """What a run said last."""
    lines = [line for line in text.strip().splitlines() if line]
    return lines[-1] if lines else "nothing was printed"


def try_one(python: str, requirements: list[str], quick: bool) -> list[str]:
    """The columns of a row: the versions, the self-check, the quick tests."""
    (wheel,) = (ROOT / "dist").glob("*.whl")
    folder = Path(tempfile.mkdtemp())
    own = str(folder / "bin" / "python")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= {"TF_CPP_MIN_LOG_LEVEL": "3", "MPLBACKEND": "agg"}

    def run(*command: str, cwd: Path = folder) -> tuple[bool, str]:
        done = subprocess.run(
            command, cwd=cwd, env=environment, text=True, capture_output=True, check=False
        )
        return done.returncode == 0, done.stdout if done.returncode == 0 else (
            done.stdout + done.stderr
        )

    try:
        run(f"python{python}", "-m", "venv", str(folder))
        extra = "[test]" if quick else ""
        fine, text = run(own, "-m", "pip", "install", "-q", f"{wheel}{extra}", *requirements)
        if not fine:
            return ["", f"not installed: {last_line(text)}", ""]
        lines = run(own, "-m", "pip", "list", "--format=freeze")[1].splitlines()
        installed = dict(line.split("==") for line in lines if "==" in line)
        versions = ", ".join(installed.get(name, "?") for name in SHOWN)
        fine, text = run(own, "-m", "cgp")
        row = [versions, ("ok: " if fine else "FAILED: ") + last_line(text)]
        if not quick:
            return [*row, ""]
        # The tests of the sdist, beside the installed package, whose doctests are among them.
        (sdist,) = (ROOT / "dist").glob("*.tar.gz")
        shutil.unpack_archive(sdist, folder, filter="data")
        tests = folder / sdist.name.removesuffix(".tar.gz")
        (package,) = folder.glob("lib/python*/site-packages/cgp")
        shutil.copytree(package, tests / "cgp", dirs_exist_ok=True)
        fine, text = run(own, "-m", "tests", "--quick", cwd=tests)
        return [*row, ("ok: " if fine else "FAILED: ") + "; ".join(text.strip().splitlines()[-4:])]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: list[str]) -> int:
    """Returns the number of rows that failed; 1 if there was no Python to try."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--self-check", action="store_true")
    rows = [f"{python}-{name}" for python in PYTHONS for name in ("oldest", "newest")]
    parser.add_argument("--only", nargs="*", default=[], choices=rows)
    chosen = parser.parse_args(arguments)
    print(f"| Python | {', '.join(SHOWN)} | self-check | quick tests |\n| --- | --- | --- | --- |")
    failed = tried = 0
    for python in PYTHONS:
        for name, requirements in (("oldest", oldest(python)), ("newest", [])):
            if chosen.only and f"{python}-{name}" not in chosen.only:
                continue
            known = shutil.which(f"python{python}") is not None
            usable = known and not subprocess.call(
                [f"python{python}", "-c", ""], stderr=subprocess.DEVNULL
            )
            row = ["", "no such Python here", ""]
            if usable:
                tried += 1
                row = try_one(python, requirements, not chosen.self_check)
                failed += not (row[1].startswith("ok") and "FAILED" not in row[2])
            print(f"| {python}, {name} | {' | '.join(row)} |", flush=True)
    return failed if tried else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
