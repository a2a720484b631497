"""The observations of streams, checked and brought to one form."""

import numpy as np
import tensorflow as tf

from cgp.statespace.linear_gaussian import LinearGaussian
from cgp.statespace.series import Series


def stream_observations(
    model: LinearGaussian, z, missing, inputs, along: int
) -> tuple[np.ndarray, np.ndarray | None, int | None]:
    """Observations of one or several streams.

    Args:
        model: The model.
        z: One observation, `[M]` or `[B, M]`, or a number where M is 1; or, with `along`, a block,
            `[T, M]`, `[B, T, M]`, or `[T]`.
        missing: Bool, broadcast against z; None for none but NaN.
        inputs: Known inputs of a model with B, likewise, of k in the place of M.
        along: The number of time axes, 0 or 1.

    Returns:
        z, `[..., M]`, NaN where missing; inputs, or None; and B, None without a batch axis.

    Raises:
        TypeError, ValueError: As `cgp.statespace.filter`.
    """
    if not tf.executing_eagerly():
        raise RuntimeError("samples are taken in outside of a tf.function: call process(z)")
    m = model.observation_size
    if not np.ma.isMaskedArray(z):
        z = np.asarray(z)
    if missing is not None:
        if np.ndim(missing) > z.ndim:
            raise ValueError(
                f"missing must be broadcast against z of shape {z.shape}, got {np.shape(missing)}"
            )
        missing = np.broadcast_to(missing, z.shape)
    if z.dtype.kind not in "iufc":
        raise TypeError(f"z must be numbers, got {z.dtype}")
    if z.ndim == along and m == 1:
        z, missing = z[..., None], None if missing is None else missing[..., None]
    if z.ndim not in (along + 1, along + 2) or z.shape[-1] != m or z.size == 0:
        time, short = "T, " * along, ("a number, ", "[T], ")[along] if m == 1 else ""
        raise ValueError(f"z must be {short}[{time}{m}] or [B, {time}{m}], got shape {z.shape}")
    streams = None if z.ndim == along + 1 else z.shape[0]
    if missing is None and inputs is None and model.B is None and _is_plain(z, model):
        return z, None, streams

    if not along:  # a series of one step
        given = (z, missing, inputs)
        z, missing, inputs = (a if a is None else np.ma.asanyarray(a)[..., None, :] for a in given)
    series = Series(model, z, missing, inputs)
    z = series.observations().numpy()
    if series.inputs is not None:
        inputs = model.form.join(series.inputs).numpy()
        inputs = np.broadcast_to(inputs, (*z.shape[:-1], inputs.shape[-1]))
    if not along:
        z, inputs = (a if a is None else a[..., 0, :] for a in (z, inputs))
    return z, inputs, streams


def _is_plain(z, model: LinearGaussian) -> bool:
    """Whether nothing is to be converted, explained or refused."""
    dtype = model.series_dtype.as_numpy_dtype
    return type(z) is np.ndarray and z.dtype == dtype and not np.isinf(z).any()
