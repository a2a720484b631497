"""The output and pictures of the examples, recorded once for each version of their code.

All examples together take some twenty minutes, too long for each build of the site. So `record`
runs them as a user does, and keeps their output in `results/`: NAME.txt, whose first line is a hash
of the code that printed it, and the pictures, NAME.png and others whose names begin so.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLES, RESULTS = ROOT / "examples", ROOT / "docs" / "results"


def names() -> list[str]:
    """The examples, in the order of the alphabet."""
    return sorted(path.stem for path in EXAMPLES.glob("*.py"))


def code_of(name: str) -> str:
    """A hash of the code of an example, without its docstring and lines that are comments."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    _, _, code = text.partition('"""')[2].partition('"""')
    lines = [line for line in code.splitlines() if not line.lstrip().startswith("#")]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def output(name: str) -> tuple[str, str]:
    """The hash of the recorded code and its output; both empty without a record."""
    path = RESULTS / f"{name}.txt"
    if not path.exists():
        return "", ""
    code, _, printed = path.read_text(encoding="utf-8").partition("\n")
    return code, printed


def picture(name: str) -> Path | None:
    """The path of the picture that an example has drawn, if any."""
    path = RESULTS / f"{name}.png"
    return path if path.exists() else None


def without_progress(printed: str) -> str:
    """Output without the lines of Keras's progress bars, which are coloured or redrawn."""
    lines = printed.splitlines(keepends=True)
    kept = [line for line in lines if "\x1b[" not in line and "\b" not in line]
    return re.sub(r"\n{3,}", "\n\n", "".join(kept))


def record(chosen: list[str]) -> int:
    """Runs examples, and returns the number of those that failed."""
    failed = []
    for name in chosen or [name for name in names() if output(name)[0] != code_of(name)]:
        print(f"{name} …", flush=True)
        for drawn in EXAMPLES.glob(f"{name}*.png"):  # of an earlier run
            drawn.unlink()
        start = time.monotonic()
        run = subprocess.run(
            [sys.executable, EXAMPLES / f"{name}.py"],
            cwd=ROOT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "MPLBACKEND": "agg"},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if run.returncode:
            failed.append(name)
            continue
        printed = without_progress(run.stdout.replace(f"{ROOT}{os.sep}", ""))
        text = f"{code_of(name)}\n{printed}"
        (RESULTS / f"{name}.txt").write_text(text, encoding="utf-8")
        for drawn in EXAMPLES.glob(f"{name}*.png"):
            shutil.copy(drawn, RESULTS)
        print(f"    {time.monotonic() - start:.0f} s")
    print(f"failed: {', '.join(failed)}" if failed else "all recorded")
    return len(failed)
