"""Checks of the observations of streams, and their conversion to one form."""

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import ArrayLike
from cgp.observations import as_observations
from cgp.statespace.linear_gaussian import LinearGaussian
from cgp.statespace.series import known_inputs


def stream_observations(
    model: LinearGaussian,
    z: ArrayLike,
    missing: ArrayLike | None,
    inputs: ArrayLike | None,
    along: int,
) -> tuple[np.ndarray, np.ndarray | None, int | None]:
    """Checks and converts observations of one or several streams.

    Args:
        model: The model.
        z: One observation, `[M]` or `[B, M]`, or a number where M is 1; or, with `along`, a block,
            `[T, M]`, `[B, T, M]`, or `[T]`.
        missing: Bool, broadcast against z; None if only NaN are missing.
        inputs: Known inputs of a model with B, of the same axes with k in place of M.
        along: The number of time axes, 0 or 1.

    Returns:
        z, `[..., M]`, NaN where missing; inputs, or None; and B, None without a batch axis.

    Raises:
        TypeError, ValueError: As `cgp.statespace.filter`.
    """
    if not tf.executing_eagerly():
        raise RuntimeError("samples are taken in outside of a tf.function: call process(z)")
    values = np.asarray(as_observations(z, missing, model.series_dtype, promote=True))
    m = model.observation_size
    if values.ndim == along and m == 1:
        values = values[..., None]
    if values.ndim not in (along + 1, along + 2) or values.shape[-1] != m or values.size == 0:
        time, short = "T, " * along, ("a number, ", "[T], ")[along] if m == 1 else ""
        wanted = f"{short}[{time}{m}] or [B, {time}{m}]"
        raise ValueError(f"z must be {wanted}, got shape {values.shape}")
    streams = None if values.ndim == along + 1 else values.shape[0]
    if inputs is None and model.B is None:
        return values, None, streams
    if inputs is not None and not along:  # a series of one step
        inputs = np.ma.asanyarray(inputs)  # a mask stays, and is refused
        inputs = inputs[..., None, :] if inputs.ndim else inputs.reshape(1, 1)
    known = model.form.join(known_inputs(model, inputs, values.shape[-2] if along else 1)).numpy()
    if not along:
        known = known[..., 0, :]
    return values, np.broadcast_to(known, (*values.shape[:-1], known.shape[-1])), streams
