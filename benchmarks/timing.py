"""What all benchmarks share: interleaved timing, a record of the versions, JSON out, a table.

Several functions that do the same job are timed in turns, so that a busy moment of the machine
falls on all of them alike, and medians are compared. The first call, which may trace, compile or
allocate, is kept apart from the steady state.

    timings = compare({"ours": f, "theirs": g})
    print(markdown([{"n": 8} | {name: t.median for name, t in timings.items()}]))
    save("what_was_measured", rows)
"""

import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).parent / "results"


class Timing(NamedTuple):
    """Seconds per call."""

    first: float  # the first call, with whatever it traces or compiles
    median: float  # of the steady state
    low: float  # first quartile
    high: float  # third quartile
    samples: int
    calls_per_sample: int


def compare(
    functions: Mapping[str, Callable[[], object]],
    seconds: float = 1.0,
    rounds: tuple[int, int] = (7, 200),
    sample: float = 1e-2,
) -> dict[str, Timing]:
    """Times functions of no arguments in turns.

    Each must return once its work is done (TensorFlow on a CPU does; on another device let it end
    in `.numpy()`). One that works in another process has a method `seconds(calls)`, which says how
    long so many calls took there: the way to it and back is not its own.

    Args:
        functions: By name.
        seconds: How long to spend on each, about.
        rounds: The fewest and the most rounds, whatever `seconds` says.
        sample: A sample is as many calls as take this long, at least one: the clock, the loop and
            what the others left in the caches weigh little then.

    Returns:
        A `Timing` for each name.
    """
    first, calls = {}, {}
    for name, f in functions.items():
        first[name] = _time(f, 1)
        once = min(_time(f, 1) for _ in range(3))
        calls[name] = max(1, round(sample / max(once, 1e-9)))
    cost = max(calls[name] * _time(f, calls[name]) for name, f in functions.items())
    count = max(rounds[0], min(rounds[1], int(seconds / max(cost, 1e-9))))
    samples: dict[str, list[float]] = {name: [] for name in functions}
    names = list(functions)
    for i in range(count):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            samples[name].append(_time(functions[name], calls[name]))
    result = {}
    for name, times in samples.items():
        low, _, high = statistics.quantiles(times, n=4)
        result[name] = Timing(first[name], statistics.median(times), low, high, count, calls[name])
    return result


def _time(f: Callable[[], object], calls: int) -> float:
    if hasattr(f, "seconds"):
        return f.seconds(calls) / calls
    start = time.perf_counter()
    for _ in range(calls):
        f()
    return (time.perf_counter() - start) / calls


def environment(*packages: str) -> dict[str, object]:
    """Versions and the size of the machine; `packages` are those beyond the usual ones."""
    versions = {}
    for package in ("tensorflow", "keras", "numpy", "scipy", *packages):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "versions": versions,
        "cpu_count": os.cpu_count(),
        "cpu": _cpu_name(),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def save(name: str, rows: Sequence[Mapping[str, object]], *packages: str, **notes: object) -> Path:
    """Writes rows, with the environment and any notes, to `benchmarks/results/<name>.json`."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    record = {"environment": environment(*packages), **notes, "rows": list(rows)}
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def with_ratios(row: Mapping[str, float], names: Sequence[str], reference: str) -> dict[str, float]:
    """The row, with a column for each name that says how many times the reference it takes."""
    ratios = {f"{name} / {reference}": row[name] / row[reference] for name in names}
    return {**row, **ratios}


def markdown(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows with the same keys as a Markdown table; numbers to two digits, and to the right."""
    header = list(rows[0])
    numbers = {
        key for key in header if any(isinstance(row[key], int | float | None) for row in rows)
    }
    rule = ["---:" if key in numbers else "---" for key in header]
    lines = [header, rule, *[[cell(row[key], key) for key in header] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(entry: object, name: str = "") -> str:
    """An entry as a table shows it: whole numbers in full, others to two digits, errors to one."""
    if entry is None:
        return "–"
    if isinstance(entry, int):
        return f"{entry:,}"
    if not isinstance(entry, float):
        return str(entry)
    if entry != 0 and ("error" in name or not 1e-4 <= abs(entry) < 1e6):
        mantissa, exponent = f"{entry:.0e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    digits = max(0, 1 - math.floor(math.log10(abs(entry)))) if entry else 0
    return f"{float(f'{entry:.2g}'):,.{digits}f}".replace("-", "−")
