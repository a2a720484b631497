"""Observations of streams in the form of a `KalmanFilter`."""

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import ArrayLike
from cgp.statespace.linear_gaussian import LinearGaussian
from cgp.statespace.samples import checked_samples
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
    z, inputs = checked_samples(model, z, missing, inputs, along=along, most=1)
    values = np.asarray(z)
    streams = None if values.ndim == along + 1 else values.shape[0]
    if inputs is None and model.B is None:
        return values, None, streams
    if inputs is not None and not along:
        inputs = inputs[..., None, :]  # a series of one step
    known = model.form.join(known_inputs(model, inputs, values.shape[-2] if along else 1)).numpy()
    if not along:
        known = known[..., 0, :]
    if known.ndim > along + 1 and (streams is None or len(known) not in (1, streams)):
        raise ValueError(
            f"inputs must have the batch axis of z, got shapes {known.shape} and {values.shape}"
        )
    return values, np.broadcast_to(known, (*values.shape[:-1], known.shape[-1])), streams
