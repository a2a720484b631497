"""The bars of the benchmarks: the figure that each asks for, and how it is read from the records.

The figures come from the records in `results/`, where the scripts leave them. A bar has a figure
for each size; one that no script has measured yet is None. `append` adds those of a run to
`results/history.jsonl`, a line for each run, and never touches the lines before.
"""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from timing import RESULTS

HISTORY = RESULTS / "history.jsonl"
SERIES = {1: 10_000, 32: 1000, 1000: 100}  # of the Kalman filter: how many, and how long
STATSMODELS = ("statsmodels", "statsmodels univariate")
CHANDRASEKHAR = "statsmodels Chandrasekhar"  # asks for a start that is stationary

Record = Mapping[str, object]


class Bar(NamedTuple):
    """A bound on a figure at several sizes."""

    name: str
    script: str  # whose record has it
    figure: Callable[[Record, object], float]  # of a record and a size
    asked: Mapping[object, float]
    sizes: str  # what the sizes are
    at_least: bool = False

    def figures(self, records: Mapping[str, Record]) -> dict[str, float | None]:
        """The figures by size, None where one was not measured."""
        return {str(size): self._figure(records.get(self.script), size) for size in self.asked}

    def _figure(self, record: Record | None, size: object) -> float | None:
        try:
            return float(self.figure(record, size))
        except (KeyError, TypeError, ValueError):  # not measured: no record, no row, or a dash
            return None

    def missed_by(self, records: Mapping[str, Record]) -> dict[str, float]:
        """For each size that is missed, how many times too much or too little it is."""
        figures = self.figures(records)
        excess = {
            str(size): (asked / figures[str(size)] if self.at_least else figures[str(size)] / asked)
            for size, asked in self.asked.items()
            if figures[str(size)] is not None
        }
        return {size: times for size, times in excess.items() if not times <= 1.0}


def row_of(rows: Sequence[Record], **columns: object) -> Record:
    """The first row with these entries in these columns."""
    for row in rows:
        if all(row.get(column) == entry for column, entry in columns.items()):
            return row
    raise KeyError(str(columns))


def fastest(row: Record, names: Sequence[str] = ()) -> tuple[str, float]:
    """The name and the rate of the fastest other library in a row, or of those named.

    Raises:
        KeyError: One of those named was not installed; "–" means that one does not offer this.
    """
    keys = ("", "n", "series", "steps", "cgp")
    for name in names:
        if row[name] == "absent":
            raise KeyError(name)
    rates = {
        name: rate
        for name, rate in row.items()
        if name not in keys and isinstance(rate, float) and name in (names or row)
    }
    name = max(rates, key=rates.__getitem__, default="")
    return name, rates[name]


def speed(quantity: str, series: int, *names: str) -> Callable[[Record, object], float]:
    def figure(record, n):
        row = row_of(record["rows"], n=n, series=series, **{"": quantity})
        return row["cgp"] / fastest(row, names)[1]

    return figure


def quotient(table: str, over: str, under: str = "", size: str = "n", **where: object):
    def figure(record, n):
        row = row_of(record[table], **{size: n}, **where)
        return row[over] / (row[under] if under else 1.0)

    return figure


def _rank_one():
    for operation in ("update", "downdate"):
        for under, name, asked in (
            ("SciPy", "`scipy.linalg.cholesky`", {128: 0.30, 512: 0.06, 1024: 0.04}),
            ("copy", "a copy of the triangle", {1024: 4.0, 2048: 4.0}),
        ):
            figure = quotient("rows", "cgp", under, operation=operation)
            yield Bar(
                f"rank-one {operation}, time over {name}", "rank_one_updates", figure, asked, "n"
            )
    figure = quotient("gradients", "cgp", "Cholesky tape")
    name = "rank-one update and its gradient, time over a tape through a factorisation"
    yield Bar(name, "rank_one_updates", figure, {512: 1 / 50}, "n")


def _kalman():
    def bar(name, figure, *asked, at_least=True):
        by_states = dict(zip((2, 4, 8, 16), asked, strict=True))
        return Bar(f"Kalman filter, {name}", "kalman_filter", figure, by_states, "n", at_least)

    single = "one series"
    figure = speed("value", 1, *STATSMODELS)
    name = f"value of {single}, speed over statsmodels, as it comes or univariate, the faster"
    yield bar(name, figure, 3, 3, 2, 2)
    name = f"value of {single}, speed over statsmodels' Chandrasekhar recursion"
    yield bar(name, speed("value", 1, CHANDRASEKHAR), *[1] * 4)
    yield bar(f"value of {single}, speed over dynamax", speed("value", 1, "dynamax"), *[5] * 4)
    figure = speed("value and gradient", 1, "dynamax")
    yield bar(f"value and gradient of {single}, speed over dynamax", figure, *[10] * 4)
    for quantity in ("value", "value and gradient", "filter"):
        for series in (32, 1000):
            label = {"filter": "whole filter"}.get(quantity, quantity)
            name = f"{label} of {series} series of {SERIES[series]} steps, speed over the fastest"
            figure = speed(quantity, series, "dynamax", "TFP", *STATSMODELS, CHANDRASEKHAR)
            yield bar(name, figure, *[1] * 4)
    name = "value and gradient over value, one series"
    yield bar(name, quotient("growth", "gradient / value"), *[8] * 4, at_least=False)
    for under, name, asked in (("filterpy", "filterpy", 1.0), ("NumPy", "a loop of NumPy", 3.0)):
        figure = quotient("steps", "cgp", under)
        name = f"`KalmanFilter.step`, time over {name}"
        yield Bar(name, "kalman_filter", figure, {4: asked}, "n")


def _processes():
    script = "recursive_gp"
    name = "`RecursiveGP.step`, time over SciPy's factorisation and solve"
    figure = quotient("rows", "step", "SciPy")
    yield Bar(name, script, figure, {32: 12.0, 128: 2.5, 512: 0.25}, "capacity")
    name = "`RecursiveGP.process`, a sample in blocks of 64, time over SciPy's"
    figure = quotient("rows", "in process", "SciPy")
    yield Bar(name, script, figure, {32: 1.0, 128: 0.5, 512: 0.15}, "capacity")

    def line(name, kernel, asked, over, under):
        figure = quotient("rows", over, under, size="N", kernel=kernel)
        short = {"Matern12": "Matérn-1/2"}.get(kernel, "Matérn-3/2, turned")
        sizes = {100_000: asked, 1_000_000: asked}
        return Bar(f"`StateSpaceGP`, {short}, {name}", "state_space_gp", figure, sizes, "N")

    for kernel, asked in (("Matern12", 1.5), ("Matern32 * Rotation", 1.0)):
        yield line("value, time over celerite2", kernel, asked, "value", "celerite2, value")
        yield line("value and gradient over value", kernel, 4.0, "value and gradient", "value")
        yield line("equal steps over irregular", kernel, 1.0, "equal steps", "value")
    name = "`ExactGP`, value and gradient, speed over a tape through the real composite"
    figure = quotient("rows", "real composite tape", "cgp")
    yield Bar(name, "exact_gp", figure, {1000: 5.0, 2000: 9.0}, "N", at_least=True)
    for case, column, asked in (
        ("ms, smooth", "smooth", {100_000: 1000.0}),
        ("ms, a fading channel", "fading", {10_000: 1000.0}),
        ("ms, 5 % missing", "5 % missing", {10_000: 1000.0}),
        ("MB, 5 % missing", "5 % missing, MB", {10_000: 150.0}),
    ):
        name = f"`ExactGP` over a line, value and gradient, {case}"
        yield Bar(name, "lines", quotient("rows", column), asked, "N")
    for case, column, asked in (
        ("ms, 14 × n × 16", "frame", {100_352: 600.0}),
        ("ms, n × 10", "long", {10_000: 300.0}),
        ("ms, n × n", "square", {1_000_000: 9000.0}),
        ("MB, n × n", "square, MB", {1_000_000: 700.0}),
    ):
        name = f"`GridGP`, value and gradient, {case}"
        yield Bar(name, "grids", quotient("rows", column), asked, "cells")
    for case, column in (
        ("under a rotation", "under a rotation"),
        ("of a sum", "sum"),
        ("improper", "improper"),
    ):
        name = f"`SparseGP` of 256 inducing points, value and gradient, {case}"
        for unit, key, most in (("ms", column, 12_000.0), ("MB", f"{column}, MB", 500.0)):
            yield Bar(f"{name}, {unit}", "scattered", quotient("rows", key), {100_000: most}, "N")


def _trackers():
    kinds = ("KalmanFilter", "StateSpaceGP", "RecursiveGP")
    for name, column, asked in (
        ("memory kept by 100 trackers after the first, MB", "memory of as many more", 1.0),
        ("first step of a second tracker, s", "first step of the second", 0.02),
    ):
        figure = quotient("rows", column, size="tracker")
        yield Bar(name, "trackers", figure, dict.fromkeys(kinds, asked), "")


def _first_calls():
    asked = {
        "filter with a likelihood": 1.5,
        "step with a likelihood": 1.5,
        "ExactGP.fit with a likelihood": 4.0,
        "StateSpaceGP.fit of 200 with a likelihood": 5.0,
        "NUTS, 50 draws": 8.0,
        "compare two models": 5.0,
        "ExactGP.fit, five epochs of Adam": 3.0,
        "ExactGP.fit, L-BFGS": 2.5,
        "KalmanFilter, 8 × 100, in a keras.Model, two epochs": 5.0,
        "a hundred series of unequal length": 4.0,
        "nonlinear filter of 8 components": 4.0,
        "nonlinear step": 1.5,
    }
    figure = quotient("rows", "first call", size="case")
    yield Bar("first call of a process, s of the processor", "first_calls", figure, asked, "")


def _bank():
    scalar, planar = "KalmanFilter, 1 state", "KalmanFilter, 2 states"
    figure = quotient("rows", "samples a second", size="bank")
    name = "`Bank` of a million keys, samples a second"
    yield Bar(name, "bank", figure, {planar: 1e6}, "", at_least=True)
    figure = quotient("rows", "over its state", size="bank")
    asked = dict.fromkeys((scalar, planar), 3.0)
    yield Bar("`Bank` of a million keys, memory of a key over its state", "bank", figure, asked, "")


BARS = (*_rank_one(), *_kalman(), *_processes(), *_trackers(), *_first_calls(), *_bank())


# --- the records, and the history ----------------------------------------------------------------


def records(folder: Path = RESULTS) -> dict[str, Record]:
    """The records that the scripts have written, by the names of the scripts."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def append(seconds: Mapping[str, float], commit: str | None, path: Path = HISTORY) -> None:
    """Adds a line for a run, from the records that the scripts wrote.

    Args:
        seconds: How long they ran, by their names.
        commit: What was measured.
        path: The history.
    """
    measured = {name: record for name, record in records().items() if name in seconds}
    if not measured:
        return
    environments = [record["environment"] for record in measured.values()]
    versions: dict[str, str] = {}
    for record in measured.values():
        versions |= record.get("versions of peers", {}) | record["environment"]["versions"]
    line = {
        "date": max(e["date"] for e in environments),
        "git": commit,
        "python": environments[0]["python"],
        "cpu": environments[0]["cpu"],
        "cpu_count": environments[0]["cpu_count"],
        "versions": versions,
        "seconds": {name: round(s, 1) for name, s in seconds.items()},
        "figures": {bar.name: bar.figures(measured) for bar in BARS if bar.script in measured},
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def commit() -> str | None:
    """The commit that is checked out, if this is a checkout; ask before results are written."""
    command = ["git", "describe", "--always", "--dirty", "--tags"]
    try:
        answer = subprocess.run(command, cwd=RESULTS, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip() or None
