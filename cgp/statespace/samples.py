"""What streams are given at a time: one observation of each, or a block, with inputs.

Shapes are checked as they are given, before one observation becomes a series of one step.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import ArrayLike, as_numbers
from cgp.observations import as_observations
from cgp.statespace.linear_gaussian import LinearGaussian


def checked_samples(
    model: LinearGaussian,
    z: ArrayLike,
    missing: ArrayLike | None,
    inputs: ArrayLike | None,
    *,
    along: int = 0,
    most: int | None = None,
) -> tuple[np.ndarray | tf.Tensor, np.ndarray | tf.Tensor | None]:
    """Checks observations and known inputs of streams.

    Args:
        model: The model.
        z: One observation, `[..., M]`, or a number where M is 1; with `along` a block of them,
            `[..., T, M]`, or `[T]` where M is 1.
        missing: Bool, broadcast against z; None if only NaN are missing.
        inputs: Known inputs of a model with B, of the same axes with k in place of M.
        along: The number of time axes, 0 or 1.
        most: The largest number of batch axes; None for any.

    Returns:
        z, `[..., M]`, in the dtype of the model, NaN where missing; and inputs, `[..., k]`, or
        None. Arrays where arrays were given, tensors where tensors were.

    Raises:
        TypeError, ValueError: As `cgp.statespace.filter`.
    """
    z = as_observations(z, missing, model.series_dtype, promote=True)
    z = _with_components(z, "z", model.observation_size, along, most)
    if inputs is None or model.B is None:
        return z, inputs  # whether there should be inputs is known where they are used
    size = model.B.shape[-1] // model.form.multiplicity
    return z, _with_components(as_numbers(inputs, "inputs"), "inputs", size, along, most)


def _with_components(a: Any, name: str, size: int, along: int, most: int | None) -> Any:
    """Adds the axis of components where it may be left out, and checks the shape."""
    axes = len(a.shape)
    if axes == along and size == 1:
        return a[..., None]
    fits = axes > along and (most is None or axes <= along + 1 + most)
    if not fits or a.shape[-1] != size or 0 in a.shape:
        short = ("a number, ", "[T], ")[along] if size == 1 else ""
        own = "T, " * along + str(size)
        wanted = f"[..., {own}]" if most is None else f"[{own}] or [B, {own}]"
        several = size == 1 and a.shape[-1:] != (1,) and 0 not in a.shape and axes > 0
        hint = f": of streams of one component each, {name}[..., None]" if several else ""
        raise ValueError(f"{name} must be {short}{wanted}, got shape {tuple(a.shape)}{hint}")
    return a
