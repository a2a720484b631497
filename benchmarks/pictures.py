"""The pictures of the page, from the records in `results/`; small PNG files beside them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
from bars import SERIES, Record, fastest
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter
from timing import RESULTS

OURS, OURS_TOO, OURS_THREE = "#0b5fa5", "#4aa3df", "#12355b"  # blue is cgp, whatever the picture
THEIRS, THEIRS_TOO, FLOOR = "#d1495b", "#e09f3e", "#8a8a8a"
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
    "lines.markersize": 4.5,
}
COLOURS = dict(zip(SERIES, (OURS, THEIRS_TOO, THEIRS), strict=True))
PLAIN = FuncFormatter(lambda tick, _: f"{tick:,.10g}")


def draw(records: Mapping[str, Record]) -> None:
    """Draws all pictures of which there are records."""
    for name, picture in PICTURES.items():
        if name in records:
            with plt.rc_context(STYLE):
                picture(records[name])


@contextmanager
def _picture(name: str, title: str, columns: int, width: float, height: float) -> Iterator:
    shape = {"figsize": (width, height), "sharey": True, "squeeze": False}
    figure, axes = plt.subplots(1, columns, layout="constrained", **shape)
    figure.suptitle(title, fontsize=10.5, fontweight="bold", x=0.01, ha="left")
    yield axes[0]
    labels = axes[0][-1].get_legend_handles_labels()
    figure.legend(*labels, loc="outside lower center", ncols=min(3, len(labels[0])), fontsize=8)
    # Without its version in the file, the same picture is the same file.
    figure.savefig(RESULTS / f"{name}.png", dpi=110, metadata={"Software": None})
    plt.close(figure)


def _line(axes: Axes, rows: Sequence[Record], x: str, y: str, label: str, scale=1.0, **style):
    """A line with dots through the rows that have a number."""
    points = [(row[x], scale * row[y]) for row in rows if isinstance(row.get(y), float)]
    if points:
        axes.plot(*zip(*points, strict=True), "o-", label=label, **style)


def _sizes(axes: Axes, sizes: Sequence[int], label: str) -> None:
    axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{n:,}" for n in sizes])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", which="minor", length=0)
    axes.set_xlabel(label)


def kalman_filter(record: Record) -> None:
    """Speed over the fastest of the others, cell by cell."""
    rows = record["rows"]
    title = "Kalman filter: speed of cgp over the fastest other library, named at the dot"
    titles = {"value": "log likelihood", "value and gradient": "log likelihood and gradient"}
    states = sorted({row["n"] for row in rows})
    with _picture("kalman_filter", title, 3, 10.5, 4.0) as panels:
        for panel, quantity in zip(panels, dict.fromkeys(row[""] for row in rows), strict=True):
            for k, (series, colour) in enumerate(COLOURS.items()):
                of = [row for row in rows if row["series"] == series and row[""] == quantity]
                plural = "one series" if series == 1 else f"{series:,} series"
                label = f"{plural} of {SERIES[series]:,} steps"
                for row in of:
                    x = states.index(row["n"]) + 0.27 * (k - 1)
                    _cell(panel, x, row, colour)
                panel.plot([], [], "o", color=colour, ms=6, label=label)
            panel.axhline(1.0, color="black", lw=1)
            panel.set_yscale("log")
            panel.grid(False, axis="x")
            panel.set_xticks(range(len(states)), [str(n) for n in states])
            panel.set_xlabel("complex states")
            panel.set_title(titles.get(quantity, "whole filter"))
        ratios = [row["cgp"] / fastest(row)[1] for row in rows]
        panels[0].set_yticks([0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50])
        panels[0].set_ylim(min(*ratios, 1) / 6, max(*ratios, 1) * 6)  # with room for the names
        panels[0].yaxis.set_major_formatter(PLAIN)
        panels[0].yaxis.set_minor_formatter(NullFormatter())
        panels[0].set_ylabel("times as fast (above 1: cgp is faster)")


def _cell(panel: Axes, x: float, row: Record, colour: str) -> None:
    """A dot at a speed, a stem from 1 to it, and the fastest other library."""
    name, rate = fastest(row)
    y = row["cgp"] / rate
    panel.plot([x, x], [1, y], color=colour, lw=1.5)
    panel.plot(x, y, "o", color=colour, ms=6)
    shift, side = ((0, 7), "bottom") if y > 1 else ((0, -7), "top")
    text = {"rotation": 90, "ha": "center", "va": side, "fontsize": 7, "color": colour}
    library = name.split()[0]
    panel.annotate(library, (x, y), shift, textcoords="offset points", **text)


def rank_one_updates(record: Record) -> None:
    """Time against the size."""
    up, down = (
        [row for row in record["rows"] if row["operation"] == operation]
        for operation in ("update", "downdate")
    )
    with _picture("rank_one_updates", "Rank-one update of a complex factor", 1, 6, 4.2) as [panel]:
        _line(panel, up, "n", "TensorFlow", "TensorFlow, factorising again", color=THEIRS_TOO)
        _line(panel, up, "n", "SciPy", "SciPy, factorising again", color=THEIRS)
        _line(panel, down, "n", "cgp", "cgp, downdate", color=OURS_TOO)
        _line(panel, up, "n", "cgp", "cgp, update", color=OURS)
        _line(panel, up, "n", "copy", "copying the triangle: the floor", color=FLOOR)
        _sizes(panel, [row["n"] for row in up], "size of the factor, n")
        _times(panel, "time of a call, µs")


def recursive_gp(record: Record) -> None:
    """Time of a sample against the capacity."""
    rows = record["rows"]
    title = "RecursiveGP: one more sample, one thread"
    with _picture("recursive_gp", title, 1, 6, 4.2) as [panel]:
        _line(panel, rows, "n", "SciPy", "SciPy, factorising again", color=THEIRS)
        _line(panel, rows, "n", "GPyTorch", "GPyTorch, fantasy model", color=THEIRS_TOO)
        _line(panel, rows, "n", "step", "cgp, step", color=OURS)
        _line(panel, rows, "n", "in process", "cgp, process in blocks of 64", color=OURS_TOO)
        _sizes(panel, [row["n"] for row in rows], "capacity")
        _times(panel, "time of a sample, µs")


def lines(record: Record) -> None:
    """Time against the number of samples."""
    title = "ExactGP over a regular line: value and gradient, one thread"
    curves = {
        "dense": ("dense covariance", THEIRS),
        "SciPy": ("SciPy, solve_toeplitz alone", THEIRS_TOO),
        "5 % missing": ("5 % missing", OURS_THREE),
        "fading": ("fading", OURS_TOO),
        "smooth": ("smooth", OURS),
    }
    _growth("lines", record, title, curves, "samples, N")


def grids(record: Record) -> None:
    """Time against the number of cells."""
    title = "GridGP: value and gradient, one thread"
    curves = {
        "dense": ("ExactGP of all cells", THEIRS),
        "300 missing": ("n × 10, 300 cells missing", OURS_THREE),
        "square": ("n × n", OURS_TOO),
        "frame": ("14 × n × 16", FLOOR),
        "long": ("n × 10", OURS),
    }
    _growth("grids", record, title, curves, "cells, N")


def scattered(record: Record) -> None:
    """Time against the number of scattered points."""
    title = "Scattered points: value and gradient, one thread"
    curves = {
        "dense": ("ExactGP", THEIRS),
        "Vecchia": ("VecchiaGP, at most 5,000 samples", OURS_THREE),
        "improper": ("SparseGP, improper", FLOOR),
        "sum": ("SparseGP, a sum", OURS_TOO),
        "under a rotation": ("SparseGP, under a rotation", OURS),
    }
    _growth("scattered", record, title, curves, "samples, N")


def _growth(
    name: str, record: Record, title: str, curves: dict[str, tuple[str, str]], size: str
) -> None:
    rows = record["rows"]
    with _picture(name, title, 1, 6, 4.2) as [panel]:
        for column, (label, colour) in curves.items():
            _line(panel, rows, "n", column, label, color=colour)
        _sizes(panel, [row["n"] for row in rows], size)
        _times(panel, "time of an evaluation, ms")


def state_space_gp(record: Record) -> None:
    """Time against the number of samples, a panel for each kernel."""
    rows = record["rows"]
    kernels = list(dict.fromkeys(row["kernel"] for row in rows))
    title = "Gaussian process over a line: likelihood of N irregular samples, one core"
    with _picture("state_space_gp", title, len(kernels), 10, 4.2) as panels:
        for panel, kernel in zip(panels, kernels, strict=True):
            of = [row for row in rows if row["kernel"] == kernel]
            _line(panel, of, "N", "exact, both", "ExactGP, with gradient", 1e3, color="black")
            _line(panel, of, "N", "exact, value", "ExactGP, value", 1e3, color=FLOOR)
            gradient = "StateSpaceGP, with gradient"
            _line(panel, of, "N", "value and gradient", gradient, 1e3, color=OURS_THREE)
            _line(panel, of, "N", "value", "StateSpaceGP, value", 1e3, color=OURS)
            steps = "StateSpaceGP, value at equal steps"
            _line(panel, of, "N", "equal steps", steps, 1e3, color=OURS_TOO)
            _line(panel, of, "N", "celerite2, value", "celerite2, value", 1e3, color=THEIRS)
            _sizes(panel, [row["N"] for row in of], "samples, N")
            panel.set_title(kernel)
        _times(panels[0], "time, ms")


def exact_gp(record: Record) -> None:
    """The speed of cgp over that of TensorFlow tapes."""
    rows = record["rows"]
    title = "ExactGP: likelihood and gradient, speed of cgp over TensorFlow tapes"
    with _picture("exact_gp", title, 1, 6, 3.6) as [panel]:
        tapes = {"real composite tape": THEIRS, "complex tape": THEIRS_TOO}
        for k, (tape, colour) in enumerate(tapes.items()):
            at = [i + 0.38 * (k - 0.5) for i in range(len(rows))]
            ratios = [row[tape] / row["cgp"] for row in rows]
            drawn = panel.bar(at, ratios, 0.36, color=colour, label=f"over a {tape}")
            panel.bar_label(drawn, fmt="%.1f", fontsize=8, padding=2)
        panel.axhline(1.0, color="black", lw=1)
        panel.set_xticks(range(len(rows)), [f"{row['n']:,}" for row in rows])
        panel.grid(False, axis="x")
        panel.set_xlabel("samples, N")
        panel.set_ylabel("times as fast (above 1: cgp is faster)")


def _times(panel: Axes, label: str) -> None:
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(PLAIN)
    panel.set_ylabel(label)


PICTURES = {
    "rank_one_updates": rank_one_updates,
    "exact_gp": exact_gp,
    "lines": lines,
    "grids": grids,
    "scattered": scattered,
    "recursive_gp": recursive_gp,
    "kalman_filter": kalman_filter,
    "state_space_gp": state_space_gp,
}
