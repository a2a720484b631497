"""The plot of a grid of two axes: data, posterior mean, and posterior deviation."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cgp.distributions.marginals import Prediction, marginals
from cgp.gp.grid.posterior import GridPosterior
from cgp.kernels.points import as_array
from cgp.linalg.arguments import ArrayLike
from cgp.observations import as_observations
from cgp.plotting import drawing

if TYPE_CHECKING:  # an optional dependency
    from matplotlib.axes import Axes

_QUANTITIES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "modulus": np.abs,
    "decibels": lambda z: 20.0 * np.log10(np.maximum(np.abs(z), np.finfo(float).tiny)),
    "phase": np.angle,
    "real": np.real,
    "imaginary": np.imag,
}


def waterfall(
    x: Sequence[ArrayLike],
    z: ArrayLike | None = None,
    posterior: Prediction | None = None,
    x_new: Sequence[ArrayLike] | None = None,
    *,
    quantity: str = "modulus",
    x_labels: Sequence[str] = ("x[0]", "x[1]"),
    z_label: str = "z",
    z_unit: str | None = None,
    ax: "Sequence[Axes] | np.ndarray | None" = None,
) -> np.ndarray:
    """Plots the cells of a grid as images: the data, the posterior mean, and its deviation.

    The first axis runs downwards, as time in the waterfall of a receiver, the second to the right.
    Data and mean have one scale of colours, missing cells are grey. The deviation is the root of
    the variance, of both parts together.

    Args:
        x: The coordinates of the two axes, a tuple of `[n_0]` and `[n_1]`, each in order.
        z: Complex cells, `[n_0, n_1]`; NaN, or masked, where missing. None for no data.
        posterior: The result of `posterior` or `predict` of a `GridGP`, `[m_0, m_1]`; of a grid of
            more axes a slice of the dictionary, `{name: a[..., 0] for name, a in ...}`. None for
            no prediction.
        x_new: The coordinates of the posterior; if None, those that a result of `posterior` has, or
            `x` for a dictionary.
        quantity: Of data and mean: "modulus", "decibels", "phase", "real" or "imaginary".
        x_labels: The labels of the two axes, with their units: `("time (s)", "frequency (MHz)")`.
        z_label: The name of z in the titles.
        z_unit: The unit of z, for the colours; None for none.
        ax: One matplotlib axes for each panel to plot on: the data, where there are any, mean and
            deviation, where there is a posterior. A new figure if None.

    Returns:
        The axes of the panels, a NumPy array of objects.

    Raises:
        ImportError: matplotlib is not installed.
        TypeError: Real data, or not a prediction.
        ValueError: Not two axes, shapes that do not fit, coordinates out of order, or nothing to
            plot.

    Example:
        >>> import numpy as np, cgp.plotting
        >>> t, f = np.arange(4.0), np.arange(5.0)
        >>> panels = cgp.plotting.waterfall((t, f), np.exp(1j * t)[:, None] * np.ones(5))
        >>> panels[0].get_xlabel(), panels[0].get_ylabel()
        ('x[1]', 'x[0]')
    """
    drawing.require_something(z, posterior)
    if quantity not in _QUANTITIES:
        raise ValueError(f"quantity must be one of {', '.join(_QUANTITIES)}, got {quantity!r}")
    of, unit = _QUANTITIES[quantity], "" if z_unit is None else f" ({z_unit})"
    name = {"modulus": f"|{z_label}|", "decibels": f"|{z_label}|", "phase": f"arg {z_label}"}.get(
        quantity, f"{quantity} part of {z_label}"
    )
    images: list[tuple[tuple, np.ndarray, str]] = []
    if z is not None:
        cells = np.asarray(as_observations(z, None, "complex128", promote=True))
        images.append((_axes_of_grid(x, cells.shape, "x", "z"), of(cells), f"data, {name}"))
    if posterior is not None:
        if x_new is None and isinstance(posterior, GridPosterior):
            x_new = posterior.axes
        moments, where = marginals(posterior), "x" if x_new is None else "x_new"
        axes = _axes_of_grid(x if x_new is None else x_new, moments.mean.shape, where, "posterior")
        images.append((axes, of(moments.mean), f"mean, {name}"))
        images.append((axes, np.sqrt(moments.variance), f"deviation of {z_label}"))
    of_values = [image for _, image, title in images if not title.startswith("deviation")]
    limits = _limits(of_values, quantity)
    panels = drawing.axes_of(
        ax, len(images), ncols=len(images), figsize=(4.2 * len(images), 3.6), sharey=True
    )
    for panel, (axes, image, title) in zip(panels, images, strict=True):
        is_deviation = title.startswith("deviation")
        style: dict[str, Any] = {"cmap": "twilight" if quantity == "phase" else "viridis", **limits}
        style = {"cmap": "magma", "vmin": 0.0} if is_deviation else style
        mesh = panel.pcolormesh(axes[1], axes[0], image, shading="nearest", **style)
        panel.set_facecolor("0.85")
        panel.set(xlabel=x_labels[1], title=title)
        units = {"decibels": " (dB)", "phase": " (rad)"}.get(quantity, unit)
        panel.figure.colorbar(mesh, ax=panel, label=(unit if is_deviation else units).strip(" ()"))
    panels[0].set_ylabel(x_labels[0])
    for panel in panels:  # inverting one of several with a common axis inverts all
        if not panel.yaxis_inverted():
            panel.invert_yaxis()
    return panels


def _limits(images: Sequence[np.ndarray], quantity: str) -> dict[str, float]:
    """The range of colours that data and mean share."""
    if quantity == "phase":
        return {"vmin": -np.pi, "vmax": np.pi}
    values = np.concatenate([image[np.isfinite(image)] for image in images])
    return {"vmin": float(values.min()), "vmax": float(values.max())} if values.size else {}


def _axes_of_grid(
    x: Sequence[ArrayLike], shape: tuple[int, ...], name: str, of: str
) -> tuple[np.ndarray, ...]:
    """The coordinates of two axes, which fit an array of cells and are in order."""
    if not isinstance(x, tuple | list) or len(x) != 2:
        raise ValueError(f"{name} must be the coordinates of two axes, a tuple, got {type(x)}")
    axes = tuple(np.ravel(as_array(a, f"{name}[{i}]")) for i, a in enumerate(x))
    sizes = tuple(map(len, axes))
    if shape != sizes:
        raise ValueError(
            f"{of} must be {list(sizes)}, the cells of the coordinates in {name}, got {list(shape)}"
        )
    for number, axis in enumerate(axes):
        steps = np.diff(axis)
        if not (np.all(steps > 0) or np.all(steps < 0)):
            raise ValueError(f"{name}[{number}] must be in order, to be the axis of an image")
    return axes
