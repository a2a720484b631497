"""The plots of innovation diagnostics, and of the quality of a fit."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import keras
import numpy as np

from cgp.distributions import Marginals, principal_axes
from cgp.distributions.calibration import Running, in_words, running_calibration
from cgp.gp import ExactGP, StateSpaceGP
from cgp.gp.outputs import by_outputs
from cgp.gp.state_space.discretization import ordered_series
from cgp.gp.state_space.output_series import in_rows
from cgp.plotting.drawing import BAND, DATA, MEAN, OUTSIDE, axes_of, draw_unit_normals, tidy
from cgp.statespace import Diagnostics
from cgp.statespace.filtering import process_block

if TYPE_CHECKING:  # an optional dependency
    from matplotlib.axes import Axes


def innovations(
    diagnostics: Diagnostics, *, ax: "Sequence[Axes] | np.ndarray | None" = None
) -> np.ndarray:
    """Plots the innovation diagnostics of one series.

    Three panels: the normalised innovation squared (NIS) of each step with its band; the modulus of
    the autocorrelation at each lag with its bound (of real innovations, the autocorrelation with
    two bounds); and the normalised innovations in the complex plane with the circle that holds them
    with the level of the diagnostics (of real innovations, their histogram with the normal
    density). If the model is right, the fractions in the titles are close to the level.

    Args:
        diagnostics: The result of `statespace.diagnostics`, of one series.
        ax: Three matplotlib axes to plot on; a new figure if None.

    Returns:
        The three axes, a NumPy array of objects.

    Raises:
        ImportError: matplotlib is not installed.
        TypeError: Not a `statespace.Diagnostics`.
        ValueError: A batch of series, or axes that are not three.

    Example:
        >>> import cgp.plotting
        >>> from cgp import statespace
        >>> model = statespace.LinearGaussian(F=[[0.9j]], Q=[[1.0]], H=[[1.0]], R=[[0.5]])
        >>> _, z = statespace.sample(model, steps=200, seed=0)
        >>> result = statespace.filter(model, z)
        >>> axes = cgp.plotting.innovations(statespace.diagnostics(result))
        >>> axes[0].get_ylabel()
        'NIS'
    """
    if not hasattr(diagnostics, "normalized_innovations"):
        kind = type(diagnostics).__name__
        raise TypeError(f"diagnostics must be a result of statespace.diagnostics, got {kind}")
    e = diagnostics.normalized_innovations
    if e.ndim != 2:
        raise ValueError(
            f"one series at a time: these are diagnostics of {e.shape[:-2]} series, "
            "filter the one to look at by itself"
        )
    axes = axes_of(ax, 3, ncols=3, figsize=(11.0, 3.4))
    percent = f"{100 * diagnostics.level:g} %"
    is_complex = np.iscomplexobj(e)

    steps, (low, high) = np.arange(len(e)), np.moveaxis(diagnostics.nis_bounds, -1, 0)
    nis = diagnostics.nis
    axes[0].fill_between(steps, low, high, **BAND)
    inside, outside = (low <= nis) & (nis <= high), (nis < low) | (nis > high)
    for chosen, color in ((inside, DATA["color"]), (outside, OUTSIDE)):
        axes[0].plot(steps[chosen], nis[chosen], **DATA | {"color": color})
    title = f"{diagnostics.fraction_inside:.1%} in the band of {percent}"
    axes[0].set(xlabel="step", ylabel="NIS", title=title)

    size = np.abs if is_complex else np.real
    lags, m = diagnostics.autocorrelations.shape
    for i in range(m):
        at = np.arange(1, lags + 1) + 0.6 * ((i + 0.5) / m - 0.5)  # bars of elements side by side
        bound = diagnostics.autocorrelation_bounds[:, i]
        rho = size(diagnostics.autocorrelations[:, i])
        axes[1].fill_between(at, 0.0 if is_complex else -bound, bound, **BAND)
        axes[1].vlines(at, 0.0, rho, color=MEAN["color"], linewidth=1.5, zorder=3)
    label = "modulus of autocorrelation" if is_complex else "autocorrelation"
    p_value = diagnostics.portmanteau_p_value
    axes[1].set(xlabel="lag", ylabel=label, title=f"Ljung and Box: p = {p_value:.2g}")
    axes[1].locator_params(axis="x", integer=True)
    if is_complex:
        axes[1].set_ylim(bottom=0.0)

    observed = e[~np.isnan(e)]
    if is_complex:
        draw_unit_normals(axes[2], observed, diagnostics.level)
    else:
        axes[2].hist(observed, bins="auto", density=True, **BAND)
        x = np.linspace(-4.0, 4.0, 200)
        axes[2].plot(x, np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi), **MEAN)
        axes[2].set(xlabel="normalised innovation", ylabel="density", title="beside the normal")
    for axis in axes:
        tidy(axis)
    return axes


_LEVEL = 0.95
_SAME = 0.1  # the difference of log likelihood, in nats, below which optima count as the same


def fit_health(
    gp: ExactGP | StateSpaceGP,
    history: keras.callbacks.History | None = None,
    *,
    ax: "Sequence[Axes] | np.ndarray | None" = None,
) -> np.ndarray:
    """Plots how well a fit describes its data: residuals, coverage, optima, and power along x.

    A residual is a target minus its prediction without it: for an `ExactGP` the leave-one-out
    prediction (`ExactGP.loo`), given all others, for a `StateSpaceGP` the one-step prediction,
    given all before. It is standardised by the variance v and pseudo-variance w of that prediction,
    noise included, and is then a proper normal of variance 1 if the model is right. The factor,
    the inverse of the symmetric root of the covariance of its two parts, keeps directions in the
    plane, and is `1/√v` if w is zero. Residuals of several series are shown together. Four panels:

    - The standardised residuals in the complex plane, with the circles that hold 50 and 95 %. A
      cloud that is not round shows an improper signal or noise under a proper model, a cloud too
      wide or too narrow shows a wrong noise variance, and points far outside show outliers.
    - The coverage: the share of targets inside their credible regions of probability p, over p. At
      each p the band contains the line of a right model with 95 %, if residuals are independent:
      one-step residuals are, leave-one-out residuals of close points are not quite. A line below
      the band shows predictions that are too sure, a line above it predictions too cautious.
    - The optima of `fit(restarts=...)`: by how much the negative log likelihood of all data, less
      the log density of the priors, exceeds the best, in nats. Starts that end in the band, within
      0.1 nats, agree on the best; if hardly any do, more starts may find a better one.
    - The power of the residuals over that predicted, the mean of the squares of standardised
      residuals, in windows along x. The band is that of a right model: in 95 % of series all
      windows lie in it, allowing for residuals that are correlated. The title says where they do
      not: above the band predictions are too sure, their regions too narrow, below it they are too
      cautious. Data whose power varies along x have such stretches under any model that learns one
      power for all of them. The panel is of one signal over a line: it has a note in place of the
      curve for several outputs, x of several dimensions, and exposures in a `StateSpaceGP`.

    Args:
        gp: A process that has been fitted to, or has taken in, data.
        history: The result of `fit` on these data; None for none; the third panel then says so.
        ax: Four matplotlib axes to plot on; a new figure if None.

    Returns:
        The four axes, a NumPy array of objects.

    Raises:
        ImportError: matplotlib is not installed.
        TypeError: Another model, or not a `History`.
        ValueError: No data, or older samples of a stream have been dropped; a prediction of
            variance zero in some direction; axes that are not four.

    Example:
        >>> import numpy as np, cgp.plotting
        >>> x = np.linspace(0.0, 3.0, 30)
        >>> gp = cgp.StateSpaceGP(cgp.kernels.Matern32(1.0, 1.0), noise_variance=0.1)
        >>> gp.compile(cgp.optimizers.LBFGS())
        >>> history = gp.fit(x, np.exp(1j * x), epochs=3, restarts=2, verbose=0)
        >>> axes = cgp.plotting.fit_health(gp, history)
        >>> [axis.get_xlabel() for axis in axes[:3]]
        ['Re', 'probability of the region', 'start, the best first']
        >>> axes[3].get_title()
        'power as predicted all along x'
    """
    if not isinstance(gp, ExactGP | StateSpaceGP):
        raise TypeError(f"gp must be an ExactGP or a StateSpaceGP, got {type(gp).__name__}")
    if not isinstance(history, keras.callbacks.History | None):
        kind = type(history).__name__
        raise TypeError(f"history must be what gp.fit returned, a History, got {kind}")
    x, e = _residuals(gp)
    residuals = e[~np.isnan(e)]
    axes = axes_of(ax, 4, ncols=4, figsize=(14.5, 3.4))
    draw_unit_normals(axes[0], residuals, 0.5, _LEVEL)
    _draw_coverage(axes[1], residuals)
    losses = [optimum["loss"] for optimum in getattr(history, "optima", ())]
    _draw_optima(axes[2], len(residuals) * np.array(losses))
    _draw_power(axes[3], x, e)
    for axis in axes:
        tidy(axis)
    return axes


def _residuals(gp: ExactGP | StateSpaceGP) -> tuple[np.ndarray | None, np.ndarray]:
    """The places and the standardised residuals of all targets, complex, NaN where missing.

    Places are `[1, N]`, or `[B, N]` where series have places of their own, and residuals `[B, N]`.
    Without places along a line they are None, and residuals of another shape.
    """
    data, outputs = gp.stored_data(), gp.kernel.outputs
    x = data.x.numpy()[..., 0] if data.x.shape[-1] == 1 else None
    if isinstance(gp, ExactGP):
        predicted = Marginals(**gp.loo())
        z = by_outputs(data.unpacked(data.z), outputs).numpy()
    else:
        series = ordered_series(  # less the mean function
            gp.observation_model, in_rows(data, outputs, gp.noise_is_by_output)
        )
        predicted, z = process_block(series.model, series.z).predicted, series.z.numpy()
        # Where exposures begin and end there are steps too.
        x = None if x is None or data.functional.width is not None else np.sort(x, axis=-1)
    present = ~np.isnan(z)
    if not present.any():
        raise ValueError("there are no residuals: every target is missing (NaN)")
    e = np.full(z.shape, np.nan + 0j)
    e[present] = _standardized(z[present], predicted.map(lambda a: a[present]))
    return x, e if x is None else e.reshape(-1, x.shape[-1])


def _standardized(z: np.ndarray, predicted: Marginals) -> np.ndarray:
    """Targets minus their predictions, scaled to proper normals of variance 1."""
    axes = principal_axes(predicted.variance, predicted.pseudo_variance)
    larger, smaller, angle = (np.asarray(a, float) for a in axes)
    if not np.all(smaller > 0):
        raise ValueError(
            f"{np.sum(smaller <= 0)} of {smaller.size} predictions have variance zero in some "
            "direction, by which no residual can be divided"
        )
    turn = np.exp(1j * angle)
    along = (z - predicted.mean) * np.conj(turn)
    # Each part of a proper normal of variance 1 has variance 1/2.
    return turn * (along.real / np.sqrt(2 * larger) + 1j * along.imag / np.sqrt(2 * smaller))


def _draw_coverage(ax: "Axes", residuals: np.ndarray) -> None:
    """Plots the share of residuals in the circle of probability p over p."""
    from scipy import special  # here: importing it takes long

    count = len(residuals)
    p = np.linspace(0.0, 1.0, 201)
    # The quantiles of the share of `count` residuals that are inside with probability p each.
    tails = np.array([0.5 * (1.0 - _LEVEL), 0.5 * (1.0 + _LEVEL)])
    low, high = np.ceil(special.bdtrik(tails[:, None], count, p[1:-1])) / count
    ax.fill_between(p, [0.0, *low, 1.0], [0.0, *high, 1.0], **BAND)
    ax.plot([0.0, 1.0], [0.0, 1.0], color="0.6", linewidth=0.8, linestyle="--", zorder=2)
    # The smallest regions that hold each residual: |e|² is exponential.
    inside = np.sort(-np.expm1(-(np.abs(residuals) ** 2)))
    shares = np.arange(count + 1) / count
    ax.plot([0.0, *inside, 1.0], [*shares, 1.0], drawstyle="steps-post", **MEAN)
    title = f"{np.mean(inside <= 0.5):.1%} in regions of 50 %"
    ax.set(xlabel="probability of the region", ylabel="share of targets inside", title=title)
    ax.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0))


def _draw_optima(ax: "Axes", losses: np.ndarray) -> None:
    """Plots how far the optima of several starts lie above the best, in nats."""
    if not losses.size:
        text = "no optima to compare:\ngive the history of\ngp.fit(x, z, restarts=8)"
        ax.text(0.5, 0.5, text, ha="center", va="center", transform=ax.transAxes)
        ax.set_axis_off()
        return
    excess = np.sort(losses - losses.min())
    starts = np.arange(1, len(excess) + 1)
    ax.axhspan(0.0, _SAME, **BAND)
    for agrees, color in ((True, DATA["color"]), (False, OUTSIDE)):
        chosen = (excess <= _SAME) == agrees
        ax.plot(starts[chosen], excess[chosen], **DATA | {"color": color, "markersize": 8.0})
    ax.set_yscale("symlog", linthresh=_SAME)
    title = f"{np.sum(excess <= _SAME)} of {len(excess)} starts agree"
    ax.set(xlabel="start, the best first", ylabel="nats above the best", title=title)
    ax.set_ylim(-0.5 * _SAME, max(10.0 * _SAME, 2.0 * excess[-1]))
    ax.locator_params(axis="x", integer=True)


def _draw_power(ax: "Axes", x: np.ndarray | None, e: np.ndarray) -> None:
    """Plots the power of residuals over that predicted, in windows along x."""
    if x is None:
        text = "power along x:\nof one output over a line,\nnot of exposures"
        ax.text(0.5, 0.5, text, ha="center", va="center", transform=ax.transAxes)
        ax.set_axis_off()
        return
    places, power, count = _by_place(x, e)
    if len(x) == 1:
        e = e[:, np.argsort(x[0], kind="stable")]
    running = running_calibration(power, count, e, 1.0 - _LEVEL)
    middle = 0.5 * (places[: len(running.ratio)] + places[running.window - 1 :])
    ax.fill_between(middle, running.low, running.high, **BAND)
    ax.axhline(1.0, color="0.6", linewidth=0.8, linestyle="--", zorder=2)
    ax.plot(middle, running.ratio, **MEAN)
    outside = (running.ratio < running.low) | (running.ratio > running.high)
    ax.plot(middle[outside], running.ratio[outside], **DATA | {"color": OUTSIDE})
    ax.set_yscale("log")
    percent = f"{100.0 * running.probability:.5g} %"
    for set_formatter in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
        set_formatter("{x:g}")
    ax.set(xlabel=f"x\n(windows of {running.window} samples, band of {percent})")
    ax.set_ylabel("power over predicted")
    ax.set_title(_in_title(running, places), fontsize="small")


def _by_place(x: np.ndarray, e: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places in order, `[n]`, and the sum of |e|² and the number of the residuals at each."""
    present = ~np.isnan(e)
    places, index = np.unique(np.broadcast_to(x, e.shape)[present], return_inverse=True)
    power = np.bincount(index, np.abs(e[present]) ** 2)
    return places, power, np.bincount(index)


def _in_title(running: Running, x: np.ndarray) -> str:
    """Where the power leaves its band the most, on either side."""
    sides = (running.too_sure, max, "too sure"), (running.too_cautious, min, "too cautious")
    words = []
    for stretches, extreme, name in sides:
        if stretches:
            worst = extreme(stretches, key=lambda s: s.ratio)
            more = f" (and {len(stretches) - 1} more)" * (len(stretches) > 1)
            times = f"{worst.ratio:.2g} times the predicted power"
            words.append(f"{name} {in_words([worst], x)}{more}:\n{times}")
    return "\n".join(words) or "power as predicted all along x"
