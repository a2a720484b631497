"""Intended axes where the given ones do not fit: the remedies of errors about shapes.

In cgp batch axes come first, then samples, then components. Arrays of other packages have samples
first, or one axis more or less. Of the rearrangements that fit, the one with the most samples to a
series is the likeliest: series are few and long.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

Shape = tuple[int, ...]

_MOST_AXES = 5  # whose orders are tried


class _Reading(NamedTuple):
    """An array with its axes rearranged."""

    shape: Shape
    code: str
    cost: int  # the amount of rearrangement; 0 for an array whose axes keep their order


def as_code(name: str, array: Any) -> str:
    """An argument as code for an array of NumPy, whose axes can be rearranged; None is one too."""
    if array is None or isinstance(array, np.ndarray):
        return name
    return f"{name}.to_numpy()" if hasattr(array, "to_numpy") else f"np.array({name})"


def remedy(code: str, shape: Any, fits: Callable[[Shape], bool], samples: int | None = -1) -> str:
    """The rearrangement of an array that an error proposes, as its end; empty if nothing fits.

    `samples` is the axis of samples of a shape that fits; None where there is none.

    Example:
        >>> from cgp.axes import remedy
        >>> remedy("z", (200, 1), lambda shape: shape == (200,))
        ': of one series of 200 samples, z[:, 0]'
        >>> remedy("z", (200, 8), lambda shape: shape[-1:] == (1,), samples=-2)
        ': of 8 series of 200 samples, z.T[..., None]; of 200 series of 8 samples, z[..., None]'
    """

    def order(reading: _Reading) -> tuple[int, int, int]:
        length = 0 if samples is None else -reading.shape[samples]
        return length, len(reading.shape), reading.cost

    if None in shape or not 0 < len(shape) <= _MOST_AXES or 0 in shape:
        return ""
    readings = sorted((r for r in _readings(code, tuple(shape)) if fits(r.shape)), key=order)
    texts: list[str] = []
    for reading in [*readings[:1], *(r for r in readings if r.cost == 0)]:
        axes = [reading.shape[samples]] if samples is not None else []
        count = int(np.prod(reading.shape[: samples if samples is not None else None]))
        series = f"{count} series" if count > 1 else "one series"
        text = f"of {series} of {axes[0]} samples" if axes else "rearranged"
        if not any(text_before.startswith(text) for text_before in texts):
            texts.append(f"{text}, {reading.code}")
    return ": " + "; ".join(texts) if texts else ""


def remedy_of_pair(x: Any, z: Any, x_given: Any, z_given: Any) -> str:
    """The expression by which inputs and targets would fit together, as the end of an error."""

    def fits(shape: tuple[int, ...]) -> bool:
        return shape[-1] == x[-2] and (x.rank == 2 or shape[:-1] == tuple(x[:-2]))

    x_code, z_code = as_code("x", x_given), as_code("z", z_given)
    if x == z and x.rank == 2 and x.is_fully_defined() and x[1] > 1:
        series, samples = sorted(x)
        turn = "" if x[0] == series else ".T"
        also = f" and {z_code}.T" if turn else ""
        reading = f": of {series} series of {samples} samples, each with inputs of its own, "
        return f"{reading}{x_code}{turn}[..., None]{also}"
    if x.rank == 2 and z.rank == 1 and x.is_fully_defined() and x[1] == z[0]:
        dimensions = "one dimension" if x[0] == 1 else f"{x[0]} dimensions"
        return f": of {x[1]} points of {dimensions}, {x_code}{'[0]' if x[0] == 1 else '.T'}"
    return remedy(z_code, z, fits)


def refuse_grid(x: np.ndarray, z: Any, x_given: Any, z_given: Any) -> None:
    """Raises for the points of a grid, whose first axes do not count independent series.

    In a grid the samples of each series share all coordinates but one, and the series differ in
    another coordinate, on which no single series has information.
    """
    count, dimensions = x.shape[-2:]
    if count < 2:
        return
    varies = np.any(x != x[..., :1, :], axis=-2).reshape(-1, dimensions)
    first = x[..., 0, :].reshape(-1, dimensions)
    differs = np.any(first != first[0], axis=0) & ~np.any(varies, axis=0)
    if np.all(np.sum(varies, axis=-1) <= 1) and np.any(differs):
        x_code, z_code = as_code("x", x_given), as_code("z", z_given)
        along = np.flatnonzero(np.any(varies, axis=0)).tolist()
        raise ValueError(
            f"x {x.shape} and z {tuple(z)} are read as {len(first)} independent series of {count} "
            f"samples, of which each varies in one coordinate alone: a grid is one series, "
            f"{x_code}.reshape(-1, {dimensions}) and {z_code}.ravel(), and so are missing and "
            f"noise. Where independent series are meant, leave the other coordinates out, "
            f"{x_code}[..., {along}]"
        )


def _readings(code: str, shape: Shape) -> Iterator[_Reading]:
    """An array in all orders of its axes, without a last axis of one element or with one more."""
    arrays = [(code, shape)]
    if shape[-1] == 1 and len(shape) > 1:
        arrays.append((f"{code}[{':' if len(shape) == 2 else '...'}, 0]", shape[:-1]))
    for array_code, axes in arrays:
        for order in itertools.permutations(range(len(axes))):
            turned, cost = _ordered(array_code, order)
            turned_axes = tuple(axes[i] for i in order)
            yield _Reading(turned_axes, turned, cost)
            yield _Reading((*turned_axes, 1), f"{turned}[..., None]", cost)


def _ordered(code: str, order: Shape) -> tuple[str, int]:
    """An array with its axes in another order, as code, and the distance from its own order."""
    straight = tuple(range(len(order)))
    if order == straight:
        return code, 0
    if len(order) == 2:
        return f"{code}.T", 1
    for axis in straight:
        if order == (*straight[:axis], *straight[axis + 1 :], axis):
            return f"np.moveaxis({code}, {axis}, -1)", 2
    return f"np.transpose({code}, {order})", 3
