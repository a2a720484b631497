"""The plot of innovation diagnostics."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cgp.plotting.drawing import BAND, DATA, MEAN, OUTSIDE, axes_of, draw_unit_normals, tidy
from cgp.statespace import Diagnostics

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
        raise TypeError(
            "diagnostics must be a result of statespace.diagnostics, "
            f"got {type(diagnostics).__name__}"
        )
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
    for chosen, color in (
        ((low <= nis) & (nis <= high), DATA["color"]),
        ((nis < low) | (nis > high), OUTSIDE),
    ):
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
