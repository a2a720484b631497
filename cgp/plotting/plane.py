"""The plot of a series and its prediction in the complex plane."""

from typing import TYPE_CHECKING, Any

import numpy as np

from cgp.distributions import ellipses, squared_radius
from cgp.distributions.ellipses import check_probability
from cgp.distributions.marginals import Prediction
from cgp.linalg.arguments import ArrayLike
from cgp.plotting.drawing import (
    BAND,
    DATA,
    EDGED,
    MEAN,
    as_moments,
    as_series,
    check_axes,
    labels_of,
    legend_above,
    pyplot_or_error,
    real_imaginary,
    require_something,
    tidy,
)

if TYPE_CHECKING:  # an optional dependency
    from matplotlib.axes import Axes


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
        z_label: What z is called in the labels of the axes.
        z_unit: The unit of z, behind these labels in parentheses; None for none.
        legend: Whether there is a legend; None for one where there is a prediction.
        ax: The matplotlib axes to plot on; a new figure if None.

    Returns:
        The axes.

    Raises:
        ImportError: matplotlib is not installed.
        TypeError: Real data, or not a prediction.
        ValueError: More than one series, a component that is not there, or none of several;
            infinite data, a prediction that is masked, or nothing to plot.

    Example:
        >>> import numpy as np
        >>> import cgp.plotting
        >>> ax = cgp.plotting.plane(np.exp(2j * np.pi * np.linspace(0.0, 1.0, 20)))
        >>> ax.get_xlabel(), ax.get_ylabel()
        ('Re z', 'Im z')
    """
    require_something(z, posterior)
    check_probability(probability)
    z = None if z is None else as_series(z, component=component)
    moments = None if posterior is None else as_moments(posterior, component=component)
    pyplot = pyplot_or_error()
    if ax is None:
        _, ax = pyplot.subplots(layout="constrained")
    check_axes(ax)

    handles: list[Any] = []
    if moments is not None:
        from matplotlib import collections, patches

        mean, v, w = moments
        _, semi_major, semi_minor, angle = map(np.asarray, ellipses(mean, v, w, probability))
        # Opaque, so that neighbours merge into one band; a few ellipses get visible edges.
        style = EDGED if len(mean) <= 60 else BAND
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
            real_imaginary(mean, v, w)[1], axis=-1
        )
        for sign in (-1, 1):
            ax.update_datalim(drawn.get_offsets() + sign * reach)
        handles += ax.plot(mean.real, mean.imag, label="mean", **MEAN)
    if z is not None:
        handles += ax.plot(z.real, z.imag, label="data", **DATA)

    labels = labels_of(z_label, z_unit)
    ax.set_xlabel(labels["real"])
    ax.set_ylabel(labels["imaginary"])
    ax.set_aspect("equal", adjustable="box")
    ax.autoscale_view()
    tidy(ax)
    legend_above(ax, legend, moments, handles=handles)
    return ax
