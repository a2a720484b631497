"""Pictures of the pages "start" and "concepts", drawn by matplotlib when the site is built."""

import contextlib
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

import cgp
from cgp.kernels import Matern32, Rotation, WidelyLinear
from docs.code_blocks import BLOCK

UPDATES = Path(__file__).parents[1] / "benchmarks" / "results" / "rank_one_updates.json"
START = Path(__file__).with_name("start.md")
BLUE, RED, GREEN, GREY = "#1f5fa8", "#c0392b", "#2e8b57", "0.6"
# White panels with a margin: the same on light and on dark pages.
STYLE = {
    "savefig.facecolor": "white",
    "savefig.pad_inches": 0.2,
    "savefig.bbox": "tight",
    "savefig.dpi": 130,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": "small",
    "axes.titlesize": "medium",
}


def draw_all(docs: Path) -> None:
    """Draws into `docs/drawn` what is older than what it is drawn from.

    Args:
        docs: The folder of the site.
    """
    folder = docs / "drawn"
    folder.mkdir(exist_ok=True)
    written = max(path.stat().st_mtime for path in (Path(__file__), UPDATES, START))
    for draw in PICTURES:
        path = folder / f"{draw.__name__}.png"
        if not path.exists() or path.stat().st_mtime < written:
            with matplotlib.rc_context({**matplotlib.rcParamsDefault, "backend": "agg", **STYLE}):
                figure = draw()
                figure.savefig(path)
                plt.close(figure)


def first_fit() -> Figure:
    """What the first two blocks of the page "start" draw, by their own code."""
    blocks = BLOCK.findall(START.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    silent = contextlib.redirect_stdout(io.StringIO())
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), silent:
        exec("\n".join(blocks[:2]), names)
    figure = names["axes"][0].figure
    figure.set_size_inches(9.6, 4.4)
    return figure


def clouds() -> Figure:
    """A proper and an improper cloud, with their 95 % ellipses."""
    rng = np.random.default_rng(0)
    proper = (rng.normal(size=800) + 1j * rng.normal(size=800)) / np.sqrt(2)
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.9), sharex=True, sharey=True)
    turn = np.exp(2j * np.pi * np.linspace(0, 1, 200)) * np.sqrt(-np.log(0.05))
    for ax, c, title in zip(axes, (0.0, 0.6), ("proper", "improper"), strict=True):
        z, region = (u + c * np.conj(u) for u in (proper, turn))
        ax.plot(z.real, z.imag, ".", color=GREY, markersize=3)
        ax.plot(region.real, region.imag, color=BLUE, linewidth=2, label="95 %")
        if c:
            ax.plot(turn.real * np.sqrt(1 + c**2), turn.imag * np.sqrt(1 + c**2), "--", color=RED)
            ax.lines[-1].set_label("95 % of a proper model")
        ax.set(
            aspect="equal", xlabel="Re z", title=f"{title}: E|z|² = {1 + c**2:g}, E z² = {2 * c:g}"
        )
        ax.legend(loc="upper left", ncols=2)
    axes[0].set(ylabel="Im z", xlim=(-4.2, 4.2), ylim=(-2.7, 3.3))
    return figure


def conjugation() -> Figure:
    """The same autoregression filtered with and without conjugates."""
    f, q, r, steps = 0.98 * np.exp(0.4j), 1 - 0.98**2, 0.5, 60
    model = cgp.statespace.LinearGaussian([[f]], [[q]], [[1.0]], [[r]])
    states, y = (np.asarray(a)[..., 0] for a in cgp.statespace.sample(model, 100_000, seed=1))
    right = np.asarray(cgp.statespace.filter(model, y).filtered_means)[..., 0]
    wrong, mean, variance = np.empty(100_000, complex), 0j, 1.0 + 0j
    for t, z in enumerate(y):
        gain = variance / (variance + r)
        mean, variance = mean + gain * (z - mean), (1 - gain) * variance
        wrong[t] = mean
        mean, variance = f * mean, f * variance * f + q  # f variance conj(f) would be right
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.6), width_ratios=(2, 1))
    at = np.arange(300, 300 + steps)
    axes[0].plot(at, states[at].real, color="k", linewidth=1.0, label="the signal")
    axes[0].plot(at, y[at].real, ".", color=GREY, label="measured")
    for name, means, color in (("conjugated", right, BLUE), ("transposed only", wrong, RED)):
        error = np.abs(means - states)[200:]
        axes[0].plot(at, means[at].real, color=color, label=name)
        axes[1].hist(error, np.linspace(0, 2, 41), histtype="step", color=color, linewidth=1.5)
        axes[1].text(
            0.98,
            0.72 if color == BLUE else 0.5,
            f"{name}\nE|error|² = {np.mean(error**2):.2f}",
            transform=axes[1].transAxes,
            ha="right",
            color=color,
            fontsize="small",
        )
    axes[0].set(
        xlabel="sample",
        ylabel="Re",
        ylim=(-2.9, 3.6),
        title="A complex autoregression in noise, filtered",
    )
    axes[0].legend(ncols=4, loc="upper center")
    axes[1].set(xlabel="|error|", yticks=[], title=f"{100_000 - 200:,} samples")
    return figure


def forms() -> Figure:
    """The covariances of composite and of augmented form, of a proper and an improper process."""
    x = np.arange(8.0)
    tone = Matern32(1.0, 4.0) * Rotation(0.12)
    figure, axes = plt.subplots(2, 3, figsize=(9.6, 6.4), layout="constrained")
    for row, kernel in enumerate((tone, WidelyLinear(tone, coefficient=0.6))):
        K = np.asarray(kernel.covariance(x))
        C = np.zeros_like(K) if kernel.is_proper else np.asarray(kernel.pseudo_covariance(x))
        composite = np.asarray(cgp.linalg.to_composite(K, C))
        augmented = np.block([[K, C], [C.conj(), K.conj()]])
        shown = {
            f"complex, {len(x)} × {len(x)}: modulus": (np.abs(K), (0.0, 1.4), "viridis"),
            f"composite, {2 * len(x)} × {2 * len(x)}, real": (composite, (-1.3, 1.3), "RdBu_r"),
            f"augmented, {2 * len(x)} × {2 * len(x)}: modulus": (
                np.abs(augmented),
                (0.0, 1.4),
                "viridis",
            ),
        }
        for column, (ax, (title, (a, (low, high), colors))) in enumerate(
            zip(axes[row], shown.items(), strict=True)
        ):
            image = ax.imshow(a, cmap=colors, vmin=low, vmax=high)
            ax.set(xticks=[], yticks=[], title=title if row == 0 else "")
            if column == 0 and row == 1:
                ax.set_title("half of it: E z zᵀ is missing")
            figure.colorbar(image, ax=ax, shrink=0.8)
            if column:
                ax.axhline(len(x) - 0.5, color="w" if column == 2 else "k", linewidth=1)
                ax.axvline(len(x) - 0.5, color="w" if column == 2 else "k", linewidth=1)
                ax.set_xticks([3.5, 11.5], ["Re", "Im"] if column == 1 else ["z", "z̄"])
                ax.set_yticks([3.5, 11.5], ["Re", "Im"] if column == 1 else ["z", "z̄"])
        axes[row, 0].set_ylabel("improper" if row else "proper", fontsize="large")
    return figure


def rank_one() -> Figure:
    """Which entries of a factor an update changes, and its cost against a new factorisation."""
    n, first = 12, 4
    kernel = Matern32(1.0, 4.0) * Rotation(0.12)
    chol = np.asarray(cgp.linalg.cholesky(kernel.covariance(np.arange(float(n))) + 0.1 * np.eye(n)))
    figure, axes = plt.subplots(1, 3, figsize=(11.2, 3.6), layout="constrained")
    rng = np.random.default_rng(0)
    for ax, start in zip(axes, (0, first), strict=False):
        v = np.where(np.arange(n) >= start, rng.normal(size=n) + 1j * rng.normal(size=n), 0.0)
        change = np.abs(np.asarray(cgp.linalg.cholesky_update(chol, v)) - chol)
        change[np.triu_indices(n, 1)] = np.nan
        image = ax.imshow(
            np.where(change > 1e-12, change, np.nan), cmap="Blues", norm=LogNorm(1e-3, 2.0)
        )
        rows, columns = np.nonzero(np.tril(change <= 1e-12))
        ax.plot(columns, rows, "s", color="0.8", markersize=9)
        ax.set(
            xticks=[],
            yticks=[],
            title="v has no zeros" if start == 0 else f"v is zero in {start} rows",
        )
    figure.colorbar(image, ax=axes[:2], shrink=0.8, label="|change of L|")
    rows = [r for r in json.loads(UPDATES.read_text())["rows"] if r["operation"] == "update"]
    sizes = [row["n"] for row in rows]
    ax = axes[2]
    for name, key, color in (
        ("update by cgp", "cgp", BLUE),
        ("factorised again by SciPy", "SciPy", RED),
        ("factorised again by TensorFlow", "TensorFlow", GREEN),
    ):
        ax.loglog(sizes, [row[key] for row in rows], ".-", color=color, label=name)
    ax.set(xlabel="n", ylabel="µs", title="measured, one core")
    ax.legend()
    return figure


def turning() -> Figure:
    """The covariance of a Markov kernel over the lag, in the complex plane, and a sample."""
    kernel = Matern32(1.0, 8.0) * Rotation(0.1)
    lag = np.linspace(0.0, 40.0, 400)
    k = np.asarray(kernel.covariance(lag, [0.0]))[:, 0]
    gp = cgp.StateSpaceGP(kernel, noise_variance=1e-6)
    x = np.arange(0.0, 60.0, 0.25)
    z = np.asarray(gp.sample(x, 1, seed=5))[0]
    figure, axes = plt.subplots(1, 3, figsize=(11.2, 3.6), layout="constrained")
    axes[0].plot(k.real, k.imag, color=BLUE)
    ticks = np.searchsorted(lag, np.arange(0.0, 25.0, 5.0))
    axes[0].plot(k[ticks].real, k[ticks].imag, "o", color=BLUE, markersize=4)
    for at in ticks:
        axes[0].annotate(
            f"τ = {lag[at]:.0f}" if at == 0 else f"{lag[at]:.0f}",
            (k[at].real, k[at].imag),
            xytext=(5, 5),
            textcoords="offset points",
            fontsize="small",
        )
    axes[0].set(xlabel="Re", ylabel="Im", aspect="equal", title="E z(t + τ) z̄(t)")
    axes[0].set(xlim=(-0.8, 1.25), ylim=(-0.8, 1.0))
    axes[1].plot(z.real, z.imag, color=GREY, linewidth=0.8)
    axes[1].scatter(z.real, z.imag, c=x, s=5, cmap="viridis")
    axes[1].set(xlabel="Re", ylabel="Im", aspect="equal", title="a sample, dark to light with time")
    axes[2].plot(x, z.real, color=BLUE, label="Re")
    axes[2].plot(x, z.imag, color=RED, label="Im")
    axes[2].set(xlabel="t", title="the same over time")
    axes[2].legend(ncols=2)
    return figure


PICTURES: tuple[Callable[[], Figure], ...] = (
    first_fit,
    clouds,
    conjugation,
    forms,
    rank_one,
    turning,
)
