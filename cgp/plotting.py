"""Plots of complex series, their predictions and filter innovations; needs `cgp[plot]`."""

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from cgp.distributions import Marginals, ellipses, marginals, squared_radius
from cgp.distributions.ellipses import check_probability
from cgp.distributions.marginals import Prediction
from cgp.linalg.arguments import ArrayLike, as_numbers
from cgp.observations import as_observations
from cgp.statespace import Diagnostics

if TYPE_CHECKING:  # an optional dependency
    from matplotlib.axes import Axes

_DATA: dict[str, Any] = {
    "color": "0.25",
    "marker": ".",
    "markersize": 4.0,
    "linestyle": "none",
    "zorder": 3,
}
_MEAN: dict[str, Any] = {"color": "#1f5fa8", "linewidth": 1.5, "zorder": 2}
_BAND: dict[str, Any] = {"facecolor": "#cfdff1", "linewidth": 0.0, "zorder": 1}
_OUTSIDE = "#c0392b"


def series(
    x: ArrayLike,
    z: ArrayLike | None = None,
    posterior: Prediction | None = None,
    x_new: ArrayLike | None = None,
    *,
    parts: str = "real-imaginary",
    probability: float = 0.95,
    ax: "Sequence[Axes] | np.ndarray | None" = None,
) -> np.ndarray:
    """Plots two parts of a complex series over x, with the prediction and its credible band.

    The bands are marginal: they hold one part at one point with the given probability. With
    variance v and pseudo-variance w the real part has variance `(v + Re w)/2`, the imaginary
    `(v − Re w)/2`. The variances of modulus and phase are to first order about the mean
    `|m| e^{iφ}`: that of the modulus is `(v + Re(w e^{−2iφ}))/2`, that of the phase
    `(v − Re(w e^{−2iφ}))/(2|m|²)`. This is accurate while the band is narrow relative to the
    modulus. The band of a phase ends at ±π, where the phase is unknown.

    Args:
        x: The inputs of the data, `[N]` or `[N, 1]`, in any order.
        z: Complex data, `[N]`; NaN, or masked, where missing. None for no data.
        posterior: A `ComplexNormal`, or a dict with keys mean, variance and pseudo_variance, as
            `predict` returns; of M points. None for no prediction.
        x_new: The inputs of the posterior, `[M]` or `[M, 1]`, in any order; `x` if None.
        parts: "real-imaginary" or "modulus-phase". The phase is in radians, unwrapped along the
            mean; that of the data is on the branch closest to the mean.
        probability: Of the band, between 0 and 1.
        ax: Two matplotlib axes to plot on, one for each part; a new figure if None.

    Returns:
        The two axes, a NumPy array of objects.

    Raises:
        ImportError: matplotlib is not installed.
        TypeError: Real data, or not a prediction.
        ValueError: Shapes that do not fit, more than one series, infinite data, inputs or a
            prediction that are masked, or nothing to plot.

    Example:
        >>> import numpy as np
        >>> import cgp.plotting
        >>> x = np.linspace(0.0, 1.0, 20)
        >>> upper, lower = cgp.plotting.series(x, np.exp(2j * np.pi * x))
        >>> upper.get_ylabel(), lower.get_ylabel()
        ('Re z', 'Im z')
    """
    _require_something(z, posterior)
    if parts not in ("real-imaginary", "modulus-phase"):
        raise ValueError(f'parts must be "real-imaginary" or "modulus-phase", got {parts!r}')
    width = _normal_quantile(probability)
    x = _as_inputs(x, "x")
    x_new = x if x_new is None else _as_inputs(x_new, "x_new")
    z = None if z is None else _as_series(z, x)
    moments = None if posterior is None else _as_moments(posterior, x_new)
    if ax is None:
        _, ax = _pyplot().subplots(2, 1, sharex=True, layout="constrained")
    axes = np.asarray(ax, dtype=object).ravel()
    if len(axes) != 2:
        raise ValueError(f"ax must be two, one for each part, got {len(axes)}")

    center, scale = None, None
    if moments is not None:
        order = np.argsort(x_new, kind="stable")
        x_new, moments = x_new[order], Marginals(*(moment[order] for moment in moments))
        split = _real_imaginary if parts == "real-imaginary" else _modulus_phase
        center, scale = split(*moments)
        for axis, middle, deviation, part in zip(
            axes, center, scale, parts.split("-"), strict=True
        ):
            low, high = middle - width * deviation, middle + width * deviation
            if part == "modulus":
                low = np.maximum(low, 0.0)
            elif part == "phase":
                low, high = np.maximum(low, middle - np.pi), np.minimum(high, middle + np.pi)
            axis.fill_between(x_new, low, high, label=f"{100 * probability:g} % interval", **_BAND)
            axis.plot(x_new, middle, label="mean", **_MEAN)
    if z is not None:
        if parts == "real-imaginary":
            drawn = (z.real, z.imag)
        else:
            phase = np.angle(z)
            if center is not None:  # the branch closest to the mean
                turns = np.round((np.interp(x, x_new, center[1]) - phase) / (2 * np.pi))
                phase = phase + 2 * np.pi * turns
            drawn = (np.abs(z), phase)
        for axis, values in zip(axes, drawn, strict=True):
            axis.plot(x, values, label="data", **_DATA)

    labels = ("Re z", "Im z") if parts == "real-imaginary" else ("|z|", "arg z (rad)")
    for axis, label in zip(axes, labels, strict=True):
        axis.set_ylabel(label)
        axis.margins(x=0.01)
        _tidy(axis)
    axes[1].set_xlabel("x")
    if moments is not None:
        _legend_above(axes[0])
    return axes


def plane(
    z: ArrayLike | None = None,
    posterior: Prediction | None = None,
    *,
    probability: float = 0.95,
    ax: "Axes | None" = None,
) -> "Axes":
    """Plots a complex series and its prediction in the complex plane.

    The mean is a path through the points in their order. Each point has its credible ellipse
    (`ComplexNormal.ellipses`).

    Args:
        z: Complex data, `[N]`; NaN, or masked, where missing. None for no data.
        posterior: A `ComplexNormal`, or a dict with keys mean, variance and pseudo_variance, as
            `predict` returns; of any number of points. None for no prediction.
        probability: Of each ellipse, between 0 and 1.
        ax: The matplotlib axes to plot on; a new figure if None.

    Returns:
        The axes.

    Raises:
        ImportError: matplotlib is not installed.
        TypeError: Real data, or not a prediction.
        ValueError: More than one series, infinite data, a prediction that is masked, or nothing to
            plot.

    Example:
        >>> import numpy as np
        >>> import cgp.plotting
        >>> ax = cgp.plotting.plane(np.exp(2j * np.pi * np.linspace(0.0, 1.0, 20)))
        >>> ax.get_xlabel(), ax.get_ylabel()
        ('Re z', 'Im z')
    """
    _require_something(z, posterior)
    check_probability(probability)
    z = None if z is None else _as_series(z)
    moments = None if posterior is None else _as_moments(posterior)
    pyplot = _pyplot()
    if ax is None:
        _, ax = pyplot.subplots(layout="constrained")

    handles: list[Any] = []
    if moments is not None:
        from matplotlib import collections, patches

        mean, v, w = moments
        _, semi_major, semi_minor, angle = map(np.asarray, ellipses(mean, v, w, probability))
        # Opaque, so that neighbours merge into one band; a few ellipses get visible edges.
        style = _BAND | ({"linewidth": 0.6, "edgecolor": "#9dbce0"} if len(mean) <= 60 else {})
        drawn = collections.EllipseCollection(
            2 * semi_major,
            2 * semi_minor,
            np.degrees(angle),
            units="xy",
            offsets=np.stack([mean.real, mean.imag], axis=-1),
            offset_transform=ax.transData,
            **style,
        )
        ax.add_collection(drawn)
        handles.append(patches.Patch(label=f"{100 * probability:g} % ellipses", **style))
        # Matplotlib sets the limits of the axes by the centres alone: add the extents.
        reach = squared_radius(probability) ** 0.5 * np.stack(
            _real_imaginary(mean, v, w)[1], axis=-1
        )
        for sign in (-1, 1):
            ax.update_datalim(drawn.get_offsets() + sign * reach)
        handles += ax.plot(mean.real, mean.imag, label="mean", **_MEAN)
    if z is not None:
        handles += ax.plot(z.real, z.imag, label="data", **_DATA)

    ax.set_xlabel("Re z")
    ax.set_ylabel("Im z")
    ax.set_aspect("equal", adjustable="box")
    ax.autoscale_view()
    _tidy(ax)
    if moments is not None:
        _legend_above(ax, handles=handles)
    return ax


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
    if ax is None:
        _, ax = _pyplot().subplots(1, 3, figsize=(11.0, 3.4), layout="constrained")
    axes = np.asarray(ax, dtype=object).ravel()
    if len(axes) != 3:
        raise ValueError(f"ax must be three, got {len(axes)}")
    percent = f"{100 * diagnostics.level:g} %"
    is_complex = np.iscomplexobj(e)

    steps, (low, high) = np.arange(len(e)), np.moveaxis(diagnostics.nis_bounds, -1, 0)
    nis = diagnostics.nis
    axes[0].fill_between(steps, low, high, **_BAND)
    for chosen, color in (
        ((low <= nis) & (nis <= high), _DATA["color"]),
        ((nis < low) | (nis > high), _OUTSIDE),
    ):
        axes[0].plot(steps[chosen], nis[chosen], **_DATA | {"color": color})
    title = f"{diagnostics.fraction_inside:.1%} in the band of {percent}"
    axes[0].set(xlabel="step", ylabel="NIS", title=title)

    size = np.abs if is_complex else np.real
    lags, m = diagnostics.autocorrelations.shape
    for i in range(m):
        at = np.arange(1, lags + 1) + 0.6 * ((i + 0.5) / m - 0.5)  # bars of elements side by side
        bound = diagnostics.autocorrelation_bounds[:, i]
        rho = size(diagnostics.autocorrelations[:, i])
        axes[1].fill_between(at, 0.0 if is_complex else -bound, bound, **_BAND)
        axes[1].vlines(at, 0.0, rho, color=_MEAN["color"], linewidth=1.5, zorder=3)
    label = "modulus of autocorrelation" if is_complex else "autocorrelation"
    p_value = diagnostics.portmanteau_p_value
    axes[1].set(xlabel="lag", ylabel=label, title=f"Ljung and Box: p = {p_value:.2g}")
    axes[1].locator_params(axis="x", integer=True)
    if is_complex:
        axes[1].set_ylim(bottom=0.0)

    seen = e[~np.isnan(e)]
    if is_complex:
        radius = np.sqrt(-np.log1p(-diagnostics.level))  # |e|² is exponential
        circle = radius * np.exp(2j * np.pi * np.linspace(0.0, 1.0, 200))
        axes[2].fill(circle.real, circle.imag, **_BAND)
        for far, color in ((False, _DATA["color"]), (True, _OUTSIDE)):
            chosen = seen[(np.abs(seen) > radius) == far]
            axes[2].plot(chosen.real, chosen.imag, **_DATA | {"color": color, "markersize": 2.5})
        held = np.mean(np.abs(seen) <= radius)
        axes[2].set(xlabel="Re", ylabel="Im", title=f"{held:.1%} in the circle of {percent}")
        axes[2].set_aspect("equal", adjustable="datalim")
    else:
        axes[2].hist(seen, bins="auto", density=True, **_BAND)
        x = np.linspace(-4.0, 4.0, 200)
        axes[2].plot(x, np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi), **_MEAN)
        axes[2].set(xlabel="normalised innovation", ylabel="density", title="beside the normal")
    for axis in axes:
        _tidy(axis)
    return axes


_Pair = tuple[np.ndarray, np.ndarray]


def _real_imaginary(
    mean: np.ndarray, variance: np.ndarray, pseudo_variance: np.ndarray
) -> tuple[_Pair, _Pair]:
    """Real and imaginary part, and their standard deviations."""
    return (mean.real, mean.imag), _deviations(variance, pseudo_variance.real)


def _modulus_phase(
    mean: np.ndarray, variance: np.ndarray, pseudo_variance: np.ndarray
) -> tuple[_Pair, _Pair]:
    """Modulus and phase, and their standard deviations to first order about the mean."""
    modulus = np.abs(mean)
    turn = np.exp(-2j * np.angle(mean))
    along, across = _deviations(variance, (pseudo_variance * turn).real)
    across = np.where(modulus > 0, across / np.where(modulus > 0, modulus, 1.0), np.inf)
    return (modulus, np.unwrap(np.angle(mean))), (along, across)


def _deviations(variance: np.ndarray, difference: np.ndarray) -> _Pair:
    """Standard deviations of two parts, from the sum and the difference of their variances."""
    first, second = np.sqrt(np.maximum([variance + difference, variance - difference], 0.0) / 2)
    return first, second


def _normal_quantile(probability: float) -> float:
    """Half of the width of the credible interval of a standard normal."""
    from scipy import special  # here: importing it takes long

    check_probability(probability)
    return float(special.ndtri(0.5 * (1.0 + probability)))


def _pyplot() -> ModuleType:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError('cgp.plotting needs matplotlib: pip install "cgp[plot]"') from error
    return pyplot


def _legend_above(ax: "Axes", **handles: Any) -> None:
    # Above the axes, because an oscillating series leaves no corner free.
    ax.legend(
        **handles,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=3,
        frameon=False,
        fontsize="small",
    )


def _tidy(ax: "Axes") -> None:
    ax.spines[["top", "right"]].set_visible(False)


def _require_something(z: ArrayLike | None, posterior: Prediction | None) -> None:
    if z is None and posterior is None:
        raise ValueError("there is nothing to draw: give data z, a posterior, or both")


def _as_inputs(x: ArrayLike, name: str) -> np.ndarray:
    """Converts real inputs, `[N]` or `[N, 1]`, to float64 `[N]`."""
    x = np.asarray(as_numbers(x, name))
    if not (np.issubdtype(x.dtype, np.floating) or np.issubdtype(x.dtype, np.integer)):
        raise TypeError(f"{name} must be real numbers, got {x.dtype}")
    if x.ndim == 2 and x.shape[1] == 1:
        x = x[:, 0]
    if x.ndim != 1:
        raise ValueError(f"{name} must be one axis of points, [N] or [N, 1], got shape {x.shape}")
    if not np.all(np.isfinite(x)):
        raise ValueError(f"{name} has elements that are NaN or infinite")
    return x.astype(float)


def _as_series(z: ArrayLike, x: np.ndarray | None = None) -> np.ndarray:
    """Converts complex data to an array `[N]`, NaN in both parts where missing."""
    z = np.asarray(as_observations(z, None, "complex128", promote=True))
    _require_one_series(z, "z")
    if x is not None and z.shape != x.shape:
        raise ValueError(f"z must have the {len(x)} points of x, got {len(z)}")
    return z


def _as_moments(posterior: Prediction, x_new: np.ndarray | None = None) -> Marginals:
    """The marginals of one series, at the inputs `x_new` if given."""
    moments = marginals(posterior)
    _require_one_series(moments.mean, "the posterior")
    if x_new is not None and moments.mean.shape != x_new.shape:
        raise ValueError(
            f"the posterior has {len(moments.mean)} points but there are {len(x_new)} inputs: "
            "give x_new, the inputs of the posterior"
        )
    return moments


def _require_one_series(values: np.ndarray, name: str) -> None:
    if values.ndim != 1:
        raise ValueError(f"one series at a time: {name} must be [N], got shape {values.shape}")
