"""The styles, checks and axes that all plots share."""

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from cgp.distributions import Marginals, marginals
from cgp.distributions.marginals import Prediction, deviations
from cgp.linalg.arguments import ArrayLike
from cgp.observations import as_observations

if TYPE_CHECKING:  # an optional dependency
    from matplotlib.axes import Axes

_POINTS = {"marker": ".", "markersize": 4.0, "linestyle": "none"}
DATA: dict[str, Any] = {"color": "0.25", **_POINTS, "zorder": 3}
MEAN: dict[str, Any] = {"color": "#1f5fa8", "linewidth": 1.5, "zorder": 2}
BAND: dict[str, Any] = {"facecolor": "#cfdff1", "linewidth": 0.0, "zorder": 1}
EDGED = BAND | {"linewidth": 0.6, "edgecolor": "#9dbce0"}
OUTSIDE = "#c0392b"


def pyplot_or_error() -> ModuleType:
    """Matplotlib's `pyplot`, or an error that says how to install it."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError('cgp.plotting needs matplotlib: pip install "cgp[plot]"') from error
    return pyplot


def axes_of(ax: "Sequence[Axes] | np.ndarray | None", count: int, **figure: Any) -> np.ndarray:
    """The axes given, `[count]`, or axes of a new figure, with the arguments of `subplots`."""
    if ax is None:
        _, ax = pyplot_or_error().subplots(**figure, layout="constrained")
    axes = np.asarray(ax, dtype=object).ravel()
    if len(axes) != count:
        raise ValueError(f"ax must be {count} axes, one for each panel, got {len(axes)}")
    for panel in axes:
        check_axes(panel)
    return axes


def check_axes(ax: Any) -> None:
    """Raises a TypeError for anything but axes of matplotlib."""
    if not callable(getattr(ax, "plot", None)):
        example = "as _, ax = plt.subplots() makes them"
        raise TypeError(f"ax must be axes of matplotlib, {example}, got {ax!r}")


def draw_unit_normals(ax: "Axes", values: np.ndarray, *probabilities: float) -> None:
    """Plots proper normals of variance 1, complex `[N]`, in circles of increasing probability.

    Points outside of the last circle are red; the title has the share inside it.
    """
    radii = [np.sqrt(-np.log1p(-p)) for p in probabilities]  # |e|² is exponential
    for radius in radii[::-1]:
        circle = radius * np.exp(2j * np.pi * np.linspace(0.0, 1.0, 200))
        ax.fill(circle.real, circle.imag, **EDGED)
    for far, color in ((False, DATA["color"]), (True, OUTSIDE)):
        chosen = values[(np.abs(values) > radii[-1]) == far]
        ax.plot(chosen.real, chosen.imag, **DATA | {"color": color, "markersize": 2.5})
    share = np.mean(np.abs(values) <= radii[-1])
    percent = f"{100 * probabilities[-1]:g} %"
    ax.set(xlabel="Re", ylabel="Im", title=f"{share:.1%} in the circle of {percent}")
    ax.set_aspect("equal", adjustable="datalim")


def legend_above(ax: "Axes", show: bool | None, moments: Marginals | None, **handles: Any) -> None:
    """Adds a legend above the axes if `show`; if that is None, where there is a prediction."""
    if not (moments is not None if show is None else show):
        return
    # Not inside, because an oscillating series leaves no corner free.
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 3}
    ax.legend(**handles, **place, frameon=False, fontsize="small")


def labels_of(z_label: str, z_unit: str | None) -> dict[str, str]:
    """The labels of the axes for the parts of z."""
    unit = "" if z_unit is None else f" ({z_unit})"
    texts = {"real": f"Re {z_label}", "imaginary": f"Im {z_label}", "modulus": f"|{z_label}|"}
    labels = {name: f"{text}{unit}" for name, text in texts.items()}
    return labels | {"phase": f"arg {z_label} (rad)"}


def tidy(ax: "Axes") -> None:
    """Hides the frame at the top and on the right."""
    ax.spines[["top", "right"]].set_visible(False)


def require_something(z: ArrayLike | None, posterior: Prediction | None) -> None:
    """Raises a ValueError if there are neither data nor a prediction."""
    if z is None and posterior is None:
        raise ValueError("there is nothing to draw: give data z, a posterior, or both")


def as_series(
    z: ArrayLike, x: np.ndarray | None = None, component: int | None = None
) -> np.ndarray:
    """Converts complex data to an array `[N]`, NaN in both parts where missing."""
    z = np.asarray(as_observations(z, None, "complex128", promote=True))
    # Data without components may be drawn beside one component of a state.
    z = _one_series(z, "z", None if z.ndim == 1 else component)
    if x is not None and z.shape != x.shape:
        raise ValueError(f"z must have the {len(x)} points of x, got {len(z)}")
    return z


def as_moments(
    posterior: Prediction, x_new: np.ndarray | None = None, component: int | None = None
) -> Marginals:
    """The marginals of one series, at the inputs `x_new` if given."""
    moments = marginals(posterior).map(lambda a: _one_series(a, "the posterior", component))
    if x_new is not None and moments.mean.shape != x_new.shape:
        raise ValueError(
            f"the posterior has {len(moments.mean)} points but there are {len(x_new)} inputs: "
            "give x_new, the inputs of the posterior"
        )
    return moments


def _one_series(values: np.ndarray, name: str, component: int | None) -> np.ndarray:
    """A series `[N]` from `[N]`, or a component of `[N, M]` or, in a batch of one, `[1, N, M]`."""
    columns = values[0] if values.ndim == 3 and len(values) == 1 else values
    if columns.ndim == 1:
        columns = columns[:, None]
    if columns.ndim != 2 or (component is None and columns.shape[1] != 1):
        choices = ""
        if columns.ndim == 2:
            last = columns.shape[1] - 1
            choices = f": component is one of 0 to {last}, or, if each row is a series, give one"
        raise ValueError(
            f"one series at a time: {name} must be [N], or [N, M] with component=, got shape "
            f"{values.shape}{choices}"
        )
    count = columns.shape[1]
    if component is not None and component not in range(count):
        choices = "0, as there is one" if count == 1 else f"one of 0 to {count - 1}"
        raise ValueError(f"the component of {name} must be {choices}, got {component!r}")
    return columns[:, component or 0]


Pair = tuple[np.ndarray, np.ndarray]


def real_imaginary(
    mean: np.ndarray, variance: np.ndarray, pseudo_variance: np.ndarray
) -> tuple[Pair, Pair]:
    """Real and imaginary part, and their standard deviations."""
    return (mean.real, mean.imag), deviations(variance, pseudo_variance.real)
