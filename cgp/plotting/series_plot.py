"""The plots of a series and its prediction over x, and in the complex plane."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cgp.clock import as_times, is_time, remedy
from cgp.distributions import Marginals, ellipses, squared_radius
from cgp.distributions.complex_normal import check_probability
from cgp.distributions.marginals import Prediction, deviations, labelled_moments
from cgp.linalg.arguments import ArrayLike, as_numbers
from cgp.observations import check_same_labels, components
from cgp.plotting import drawing

if TYPE_CHECKING:  # an optional dependency
    from matplotlib.axes import Axes


def series(
    x: ArrayLike,
    z: ArrayLike | None = None,
    posterior: Prediction | None = None,
    x_new: ArrayLike | None = None,
    *,
    component: int | None = None,
    parts: str = "real-imaginary",
    probability: float = 0.95,
    x_label: str = "x",
    z_label: str = "z",
    z_unit: str | None = None,
    legend: bool | None = None,
    ax: "Sequence[Axes] | np.ndarray | None" = None,
) -> np.ndarray:
    """Plots two parts of a complex series over x, with the prediction and its credible band.

    The bands are marginal: they hold one part at one point with the given probability. With
    variance v and pseudo-variance w the real part has variance `(v + Re w)/2`, the imaginary
    `(v − Re w)/2`. To first order about the mean `|m| e^{iφ}` the modulus has variance
    `(v + Re(w e^{−2iφ}))/2`, the phase `(v − Re(w e^{−2iφ}))/(2|m|²)`. This is accurate while the
    band is narrow relative to the modulus. The band of a phase ends at ±π, where the phase is
    unknown.

    Args:
        x: The inputs of the data, `[N]` or `[N, 1]`, in any order; dates too, which are drawn in
            UTC if they have a time zone.
        z: Complex data, `[N]`, or `[N, M]`; NaN, or masked, where missing. None for no data.
        posterior: The result of `posterior`, `predict`, `process` or `forecasts`, or of
            `statespace.filter`, `smooth` or `forecast`, for one series of N' points. A filter shows
            the one-step predictions of the observations, a forecast the observations, a smoother
            the states: `cgp.distributions.marginals(posterior)`. None for no prediction.
        x_new: The inputs of the posterior, `[N']` or `[N', 1]`, in any order; `x` if None.
        component: The index along the last axis of the component to plot, where the posterior has
            several, `[N, M]`: components of an observation or of a state, or horizons of
            `StateSpaceGP.forecasts`; also of z, where z is `[N, M]` too.
        parts: "real-imaginary" or "modulus-phase". The phase is in radians, unwrapped along the
            mean; the phase of the data is on the branch closest to the mean.
        probability: Of the band, between 0 and 1.
        x_label: The label of the axis of x, with its unit: "time (s)".
        z_label: The name of z in the labels of the axes.
        z_unit: The unit of z, behind these labels in parentheses; None for none.
        legend: Whether there is a legend; None for one where there is a prediction.
        ax: Two matplotlib axes to plot on, one for each part; a new figure if None.

    Returns:
        The two axes, a NumPy array of objects.

    Raises:
        ImportError: matplotlib is not installed.
        TypeError: Real data, not a prediction, or dates beside numbers.
        ValueError: Shapes that do not fit, more than one series, a component that is not there, or
            none of several; infinite data, inputs or a prediction that are masked, or nothing to
            plot.

    Example:
        >>> import numpy as np, cgp.plotting
        >>> x = np.linspace(0.0, 1.0, 20)
        >>> upper, lower = cgp.plotting.series(x, np.exp(2j * np.pi * x), z_unit="V")
        >>> upper.get_ylabel(), lower.get_ylabel()
        ('Re z (V)', 'Im z (V)')
    """
    from scipy import special  # here: importing it takes long

    drawing.require_something(z, posterior)
    if x_new is not None and posterior is None:
        raise ValueError("x_new is where posterior is, but no posterior came: give it too")
    if parts not in ("real-imaginary", "modulus-phase"):
        raise ValueError(f'parts must be "real-imaginary" or "modulus-phase", got {parts!r}')
    check_probability(probability)
    width = special.ndtri(0.5 * (1.0 + probability))  # half the width of an interval of N(0, 1)
    check_same_labels(x=(x, components(x)), z=(z, components(z)))
    inputs = {"x": x} if x_new is None else {"x_new": x_new}
    labelled = {} if posterior is None else labelled_moments(posterior)
    check_same_labels(**{name: (a, components(a)) for name, a in (inputs | labelled).items()})
    x = _as_inputs(x, "x")
    x_new = x if x_new is None else _as_inputs(x_new, "x_new")
    if x.dtype != x_new.dtype:
        raise TypeError("x and x_new must both be numbers or both be dates, but one of each came")
    z = None if z is None else drawing.as_series(z, x, component)
    moments = None if posterior is None else drawing.as_moments(posterior, x_new, component)
    axes = drawing.axes_of(ax, 2, nrows=2, sharex=True)

    center, scale = None, None
    if moments is not None:
        order = np.argsort(x_new, kind="stable")
        x_new, moments = x_new[order], Marginals(*(moment[order] for moment in moments))
        split = drawing.real_imaginary if parts == "real-imaginary" else _modulus_phase
        center, scale = split(*moments)
        panels = zip(axes, center, scale, parts.split("-"), strict=True)
        for axis, middle, deviation, coordinate in panels:
            low, high = middle - width * deviation, middle + width * deviation
            if coordinate == "modulus":
                low = np.maximum(low, 0.0)
            elif coordinate == "phase":
                low, high = np.maximum(low, middle - np.pi), np.minimum(high, middle + np.pi)
            label = f"{100 * probability:g} % interval"
            axis.fill_between(x_new, low, high, label=label, **drawing.BAND)
            axis.plot(x_new, middle, label="mean", **drawing.MEAN)
    if z is not None:
        if parts == "real-imaginary":
            drawn = (z.real, z.imag)
        else:
            phase = np.angle(z)
            if center is not None:  # the branch closest to the mean
                at, along = x.astype(float), x_new.astype(float)  # dates as microseconds
                turns = np.round((np.interp(at, along, center[1]) - phase) / (2 * np.pi))
                phase = phase + 2 * np.pi * turns
            drawn = (np.abs(z), phase)
        for axis, values in zip(axes, drawn, strict=True):
            axis.plot(x, values, label="data", **drawing.DATA)

    labels = drawing.labels_of(z_label, z_unit)
    for axis, coordinate in zip(axes, parts.split("-"), strict=True):
        axis.set_ylabel(labels[coordinate])
        axis.margins(x=0.01)
        drawing.tidy(axis)
    axes[1].set_xlabel(x_label)
    if x.dtype.kind == "M":
        _shorten_dates(axes[1])
    drawing.legend_above(axes[0], legend, moments)
    return axes


def _shorten_dates(axis: "Axes") -> None:
    """Shortens each date label to its difference from the one before, or they overlap."""
    from matplotlib import dates

    locator = dates.AutoDateLocator()
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))


def _modulus_phase(
    mean: np.ndarray, variance: np.ndarray, pseudo_variance: np.ndarray
) -> tuple[drawing.Pair, drawing.Pair]:
    """Modulus and phase, and their standard deviations to first order about the mean."""
    modulus = np.abs(mean)
    turn = np.exp(-2j * np.angle(mean))
    along, across = deviations(variance, (pseudo_variance * turn).real)
    across = np.where(modulus > 0, across / np.where(modulus > 0, modulus, 1.0), np.inf)
    return (modulus, np.unwrap(np.angle(mean))), (along, across)


def _as_inputs(x: ArrayLike, name: str) -> np.ndarray:
    """Converts real inputs, `[N]` or `[N, 1]`, to float64 `[N]`, dates to microseconds."""
    if is_time(x):
        x, _ = as_times(x, name)
        if x.dtype.kind == "m":
            raise TypeError(f"{name} must be numbers or dates, got durations: {remedy(name)}")
        x = x.astype("datetime64[us]")
    else:
        x = np.asarray(as_numbers(x, name))
        if not (np.issubdtype(x.dtype, np.floating) or np.issubdtype(x.dtype, np.integer)):
            raise TypeError(f"{name} must be real numbers, got {x.dtype}")
        x = x.astype(float)
    if x.ndim == 2 and x.shape[1] == 1:
        x = x[:, 0]
    if x.ndim != 1:
        raise ValueError(f"{name} must be one axis of points, [N] or [N, 1], got shape {x.shape}")
    if not np.all(np.isfinite(x)):
        raise ValueError(f"{name} has elements that are NaN or infinite")
    return x


def plane(
    z: ArrayLike | None = None,
    posterior: Prediction | None = None,
    *,
    component: int | None = None,
    probability: float = 0.95,
    z_label: str = "z",
    z_unit: str | None = None,
    legend: bool | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Plots a complex series and its prediction in the complex plane.

    The mean is a path through the points in their order. Each point has its credible ellipse
    (`ComplexNormal.ellipses`).

    Args:
        z: Complex data, `[N]`, or `[N, M]`; NaN, or masked, where missing. None for no data.
        posterior: A prediction of one series, of any number of points, as for
            `cgp.plotting.series`. None for no prediction.
        component: As for `cgp.plotting.series`.
        probability: Of each ellipse, between 0 and 1.
        z_label: As for `cgp.plotting.series`.
        z_unit: As for `cgp.plotting.series`.
        legend: As for `cgp.plotting.series`.
        ax: The matplotlib axes to plot on; a new figure if None.

    Returns:
        The axes.

    Raises:
        ImportError, TypeError, ValueError: As for `cgp.plotting.series`.

    Example:
        >>> import numpy as np, cgp.plotting
        >>> ax = cgp.plotting.plane(np.exp(2j * np.pi * np.linspace(0.0, 1.0, 20)))
        >>> ax.get_xlabel(), ax.get_ylabel()
        ('Re z', 'Im z')
    """
    drawing.require_something(z, posterior)
    check_probability(probability)
    z = None if z is None else drawing.as_series(z, component=component)
    moments = None if posterior is None else drawing.as_moments(posterior, component=component)
    pyplot = drawing.pyplot_or_error()
    if ax is None:
        _, ax = pyplot.subplots(layout="constrained")
    drawing.check_axes(ax)

    handles: list[Any] = []
    if moments is not None:
        from matplotlib import collections, patches

        mean, v, w = moments
        _, semi_major, semi_minor, angle = map(np.asarray, ellipses(mean, v, w, probability))
        # Opaque, so that neighbours merge into one band; a few ellipses get visible edges.
        style = drawing.EDGED if len(mean) <= 60 else drawing.BAND
        offsets = np.stack([mean.real, mean.imag], axis=-1)
        keywords: dict[str, Any] = {"offsets": offsets, "offset_transform": ax.transData} | style
        width, height, angles = 2 * semi_major, 2 * semi_minor, np.degrees(angle)
        drawn = collections.EllipseCollection(width, height, angles, units="xy", **keywords)
        ax.add_collection(drawn)
        handles.append(patches.Patch(label=f"{100 * probability:g} % ellipses", **style))
        # Matplotlib sets the limits of the axes by the centres alone: add the extents.
        spreads = np.stack(drawing.real_imaginary(mean, v, w)[1], axis=-1)
        reach = squared_radius(probability) ** 0.5 * spreads
        for sign in (-1, 1):
            ax.update_datalim(offsets + sign * reach)
        handles += ax.plot(mean.real, mean.imag, label="mean", **drawing.MEAN)
    if z is not None:
        handles += ax.plot(z.real, z.imag, label="data", **drawing.DATA)

    labels = drawing.labels_of(z_label, z_unit)
    ax.set(xlabel=labels["real"], ylabel=labels["imaginary"])
    ax.set_aspect("equal", adjustable="box")
    ax.autoscale_view()
    drawing.tidy(ax)
    drawing.legend_above(ax, legend, moments, handles=handles)
    return ax
