"""The tables and sentences of `README.md` that contain figures, from the records in `results/`.

The page is written by hand, except for sections between `<!-- name -->` and `<!-- end -->`, which
the functions of SECTIONS write. A mark with an unknown name is an error.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bars import BARS, HISTORY, SERIES, Bar, Record, fastest
from timing import cell, markdown

PAGE = Path(__file__).with_name("README.md")
BLOCK = re.compile(r"<!-- (?!end)([\w ]+) -->\n.*?<!-- end -->", re.DOTALL)
OF_FILTERS = ("", "n", "series", "steps")  # the columns that identify a row
MISSED, UNKNOWN, MET = "**MISSED**", "not measured", "met"

Records = Mapping[str, Record]


def write(records: Records, path: Path = PAGE) -> None:
    """Writes the generated parts of the page anew."""
    text = path.read_text(encoding="utf-8")
    new = BLOCK.sub(lambda m: f"<!-- {m[1]} -->\n{SECTIONS[m[1]](records)}\n<!-- end -->", text)
    path.write_text(new, encoding="utf-8")


def _table(rows: Sequence[Record], columns: Mapping[str, str | Callable]) -> str:
    """A table of some columns: the heading of each, and where in a row its entry is."""

    def entry(row, of):
        return of(row) if callable(of) else row.get(of)

    return markdown([{name: entry(row, of) for name, of in columns.items()} for row in rows])


# --- the bars, and where they were measured ------------------------------------------------------


def machine(records: Records) -> str:
    environments = {name: record["environment"] for name, record in records.items()}
    dates = {}
    for name, environment in environments.items():
        dates.setdefault(environment["date"], []).append(f"`{name}`")
    versions: dict[str, str] = {}
    for name, record in records.items():
        versions |= record.get("versions of peers", {}) | environments[name]["versions"]
    last = max(environments.values(), key=lambda e: e["date"])
    measured = "; ".join(f"{', '.join(names)} on {date}" for date, names in sorted(dates.items()))
    packages = ", ".join(f"{name} {v}" for name, v in versions.items() if v is not None)
    return (
        f"Measured: {measured}; {last['cpu']}, {last['cpu_count']} cores that others use too, "
        f"Python {last['python']}, {packages}. Read the ratios, not the times."
    )


def bars(records: Records) -> str:
    rows = sorted((_bar(bar, records) for bar in BARS), key=lambda row: row[0])
    verdicts = [row["verdict"] for _, row in rows]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in (MISSED, UNKNOWN, MET) if v in verdicts)
    return f"{len(rows)} bars: {counts}.\n\n" + markdown([row for _, row in rows])


def _bar(bar: Bar, records: Records) -> tuple[tuple, dict[str, str]]:
    """The order of a bar, the worst miss first, and its row."""
    figures, missed = bar.figures(records), bar.missed_by(records)
    unknown = None in figures.values()
    verdict = MISSED if missed else UNKNOWN if unknown else MET
    shown = [f"**{cell(f)}**" if size in missed else cell(f) for size, f in figures.items()]
    asked = [f"{a:.2g}" for a in bar.asked.values()]
    same = asked[:1] if len(set(asked)) == 1 else asked
    sizes = ", ".join(cell(size) for size in bar.asked)
    row = {
        "verdict": verdict,
        "what": bar.name,
        "at": f"{bar.sizes} = {sizes}" if bar.sizes else sizes,
        "asked": ("≥ " if bar.at_least else "≤ ") + ", ".join(same),
        "measured": ", ".join(shown),
    }
    order = (MISSED, UNKNOWN, MET).index(verdict)
    return (order, -max(missed.values(), default=0.0)), row


def history(records: Records) -> str:
    """What each run measured, by its date and commit, at the sizes of the bars."""
    runs = [json.loads(line) for line in HISTORY.read_text(encoding="utf-8").splitlines()]
    names = dict.fromkeys(name for run in runs for name in run["figures"])
    rows = []
    for name in names:
        measured = {f"{run['date']} `{run['git']}`": run["figures"].get(name, {}) for run in runs}
        shown = {run: ", ".join(map(cell, of.values())) for run, of in measured.items()}
        rows.append({"what": name} | shown)
    return markdown(rows)


# --- one question after the other ----------------------------------------------------------------


def exact_gp(records: Records) -> str:
    return _table(
        records["exact_gp"]["rows"],
        {
            "N": "n",
            "cgp, s": "cgp",
            "composite tape / cgp": "real composite tape / cgp",
            "complex tape / cgp": "complex tape / cgp",
            "error of gradient": "error of gradient",
        },
    )


def rank_one(records: Records) -> str:
    rows = records["rank_one_updates"]["rows"]
    down = {row["n"]: row for row in rows if row["operation"] == "downdate"}
    up = [row for row in rows if row["operation"] == "update"]
    table = _table(
        up,
        {
            "n": "n",
            "cgp, µs": "cgp",
            "graph, µs": "graph",
            "cgp / TensorFlow": "cgp / TensorFlow",
            "cgp / SciPy": "cgp / SciPy",
            "downdate / SciPy": lambda row: down[row["n"]]["cgp / SciPy"],
            "cgp / copy": "cgp / copy",
            "downdate / copy": lambda row: down[row["n"]]["cgp / copy"],
            "error of cgp": "error cgp",
            "error of SciPy": "error SciPy",
        },
    )
    pays = [row["n"] for row in up if row["cgp / SciPy"] < 1.0]
    since = f"from n = {min(pays)} on" if pays else "at no size"
    return f"An update takes less time than SciPy {since}.\n\n{table}"


def rank_one_gradient(records: Records) -> str:
    rows = records["rank_one_updates"].get("gradients")
    if not rows:
        return "Not measured yet."
    return _table(
        rows,
        {
            "n": "n",
            "update and gradient, µs": "cgp",
            "factorisation and tape, µs": "Cholesky tape",
            "ratio": "cgp / Cholesky tape",
            "error between": "error",
        },
    )


def recursive_gp(records: Records) -> str:
    columns = {"capacity": "n", "step": "step", "in `process`": "in process", "in `fit`": "in fit"}
    columns |= {"SciPy": "SciPy"}
    if "GPyTorch" in records["recursive_gp"]["rows"][0]:
        columns |= {"GPyTorch": "GPyTorch"}
    columns |= {"step / SciPy": "step / SciPy", "`process` / SciPy": "in process / SciPy"}
    columns |= {"error of step": "error of step", "error of SciPy": "error of SciPy"}
    return _table(records["recursive_gp"]["rows"], columns)


def budgets(records: Records) -> str:
    rows = records["recursive_gp"]["budgets"]
    of_decibels = [name for name in rows[0] if name != "points"]
    decibels = {n: lambda row, n=n: f"{row[n]:.1f}".replace("-", "−") for n in of_decibels}
    return _table(rows, {"points": "points"} | decibels)


def kalman_speed(records: Records) -> str:
    rows = records["kalman_filter"]["rows"]
    lines = []
    for quantity in dict.fromkeys(row[""] for row in rows):
        for series in SERIES:
            of = [row for row in rows if row[""] == quantity and row["series"] == series]
            ratios = [row["cgp"] / fastest(row)[1] for row in of]
            line = {"": quantity, "series × steps": f"{series:,} × {SERIES[series]:,}"}
            pairs = zip(of, ratios, strict=True)
            line |= {f"n = {row['n']}": f"{cell(r)} × {fastest(row)[0]}" for row, r in pairs}
            lines.append(line)
    ahead = sum(row["cgp"] > fastest(row)[1] for row in rows)
    return f"cgp is the fastest in {ahead} of {len(rows)} cells.\n\n" + markdown(lines)


def kalman_rates(records: Records) -> str:
    rows = sorted(records["kalman_filter"]["rows"], key=lambda row: (row["n"], row["series"]))
    names = [name for name in rows[0] if name not in OF_FILTERS]
    size = {"series × steps": lambda row: f"{row['series']:,} × {row['steps']:,}"}
    return _table(rows, {"n": "n"} | size | {"": ""} | {name: name for name in names})


def kalman_errors(records: Records) -> str:
    rows = records["kalman_filter"]["errors"]
    names = [name for name in rows[0] if name not in OF_FILTERS]
    worst = []
    for quantity in dict.fromkeys(row[""] for row in rows):
        numbers = {
            name: [r[name] for r in rows if r[""] == quantity and isinstance(r[name], float)]
            for name in names
        }
        line = {name: max(errors, default=None) for name, errors in numbers.items()}
        worst.append({"largest error": quantity} | {n: cell(v, "error") for n, v in line.items()})
    return markdown(worst)


def kalman_steps(records: Records) -> str:
    growth = {row["n"]: row["gradient / value"] for row in records["kalman_filter"]["growth"]}
    return _table(
        records["kalman_filter"]["steps"],
        {
            "n": "n",
            "`KalmanFilter.step`, µs": "cgp",
            "a loop of NumPy, µs": "NumPy",
            "filterpy, µs": "filterpy",
            "value and gradient / value": lambda row: growth.get(row["n"]),
        },
    )


def state_space_gp(records: Records) -> str:
    columns = {"kernel": "kernel", "N": "N", "value": "value", "at equal steps": "equal steps"}
    columns |= {"in a graph of one's own": "in a graph", "value and gradient": "value and gradient"}
    columns |= {"exact, value": "exact, value", "exact, value and gradient": "exact, both"}
    columns |= {"celerite2, value": "celerite2, value", "error": _error_of_process}
    return _table(records["state_space_gp"]["rows"], columns)


def _error_of_process(row: Record) -> object:
    errors = [row["error beside exact"], row["error beside celerite2"]]
    return max((e for e in errors if isinstance(e, float)), default=None)


def first_calls(records: Records) -> str:
    """First calls in seconds; of the middle size where a script measures several."""
    lines = []

    def line(quantity, cgp, **peers):
        times = ", ".join(f"{n} {cell(t)}" for n, t in peers.items() if isinstance(t, float))
        lines.append({"what": quantity, "cgp, s": cgp, "others, s": times or "–"})

    row = records["rank_one_updates"]["rows"][0]
    line("`cholesky_update`, the first of a process", row["first call of cgp"] * 1e-6)
    for row in records["kalman_filter"]["first calls"]:
        if row["n"] == 4 and row["series"] == 1:
            peers = {name: row[name] for name in row if name not in (*OF_FILTERS, "cgp")}
            line(f"Kalman filter of 4 states, {row['']}", row["cgp"], **peers)
    for row in records["kalman_filter"]["growth"]:
        if row["n"] == 4:
            quantity = "the same, value and gradient of another length"
            line(quantity, row["first of another length, s"])
    calls = _first_calls_of(records["state_space_gp"]["rows"][0])
    line("`StateSpaceGP`, value", calls.get("value"), celerite2=calls.get("celerite2, value"))
    line("`StateSpaceGP`, value and gradient", calls.get("value and gradient"))
    calls = _first_calls_of(records["exact_gp"]["rows"][0])
    line("`ExactGP`, value and gradient", calls.pop("cgp"), **calls)
    return markdown(lines)


def _first_calls_of(row: Record) -> dict[str, object]:
    begin = "first call of "
    return {name.removeprefix(begin): t for name, t in row.items() if name.startswith(begin)}


def first_calls_of_scripts(records: Records) -> str:
    if "first_calls" not in records:
        return "Not measured yet."
    return _table(
        records["first_calls"]["rows"],
        {
            "": "case",
            "first call, s": "first call",
            "asked, s": "asked",
            "second call, s": "second call",
            "memory, MB": "memory",
        },
    )


def trackers(records: Records) -> str:
    if "trackers" not in records:
        return "Not measured yet."
    return _table(
        records["trackers"]["rows"],
        {
            "": "tracker",
            "first made, ms": lambda row: 1e3 * row["first made"],
            "its first step, ms": lambda row: 1e3 * row["its first step"],
            "second made, ms": lambda row: 1e3 * row["second made"],
            "its first step, ms ": lambda row: 1e3 * row["first step of the second"],
            "the first keeps, MB": "memory of the first",
            "a hundred more keep, MB": "memory of as many more",
        },
    )


def _rows(records: Records, name: str, columns: dict[str, str]) -> str:
    """The table of the rows of a record, if there is one."""
    if name not in records:
        return "Not measured yet."
    return _table(records[name]["rows"], columns)


def lines(records: Records) -> str:
    columns = {
        "N": "n",
        "smooth, ms": "smooth",
        "MB": "smooth, MB",
        "fading, ms": "fading",
        "5 % missing, ms": "5 % missing",
        "MB ": "5 % missing, MB",
        "dense, ms": "dense",
        "`solve_toeplitz`, ms": "SciPy",
    }
    return _rows(records, "lines", columns)


def grids(records: Records) -> str:
    columns = {
        "cells": "n",
        "14 × n × 16, ms": "frame",
        "square, ms": "square",
        "MB": "square, MB",
        "n × 10, ms": "long",
        "300 missing, ms": "300 missing",
        "dense, ms": "dense",
    }
    return _rows(records, "grids", columns)


def scattered(records: Records) -> str:
    columns = {
        "N": "n",
        "`SparseGP`, under a rotation, ms": "under a rotation",
        "MB": "under a rotation, MB",
        "a sum, ms": "sum",
        "improper, ms": "improper",
        "MB ": "improper, MB",
        "`VecchiaGP`, ms": "Vecchia",
        "dense, ms": "dense",
    }
    return _rows(records, "scattered", columns)


def streams(records: Records) -> str:
    columns = {"a step, of": "", "8 streams / one": "8 / 1", "64 streams / one": "64 / 1"}
    return _rows(records, "streams", columns)


def bank(records: Records) -> str:
    if "bank" not in records:
        return "Not measured yet."
    return _table(
        records["bank"]["rows"],
        {
            "": "bank",
            "keys": "keys",
            "million samples a second": lambda row: 1e-6 * row["samples a second"],
            "bytes of a state": "bytes of a state",
            "bytes of a key": "bytes of a key",
            "over its state": "over its state",
        },
    )


SECTIONS: dict[str, Callable[[Records], str]] = {
    "machine": machine,
    "bars": bars,
    "history": history,
    "exact gp": exact_gp,
    "lines": lines,
    "grids": grids,
    "scattered": scattered,
    "rank one": rank_one,
    "rank one gradient": rank_one_gradient,
    "recursive gp": recursive_gp,
    "budgets": budgets,
    "kalman speed": kalman_speed,
    "kalman rates": kalman_rates,
    "kalman errors": kalman_errors,
    "kalman steps": kalman_steps,
    "state space gp": state_space_gp,
    "first calls": first_calls,
    "first calls of scripts": first_calls_of_scripts,
    "trackers": trackers,
    "streams": streams,
    "bank": bank,
}
