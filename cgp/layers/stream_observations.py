"""Observations in the form of a `KalmanFilter`, of series and of streams."""

from typing import Any

import numpy as np
import tensorflow as tf

from cgp.likelihoods import Likelihood
from cgp.linalg.arguments import ArrayLike
from cgp.observations import as_observations
from cgp.statespace.models.linear_gaussian import LinearGaussian
from cgp.statespace.online.stream_samples import checked_samples
from cgp.statespace.series import Series, check_labels, known_inputs


def batch_of_series(
    model: LinearGaussian, likelihood: Likelihood | None, x: Any, missing: ArrayLike | None
) -> Any:
    """Series as Keras takes them: with a batch axis, and NaN where missing.

    Args:
        model: The model.
        likelihood: That of the observations, or None.
        x: One series or several, as for `statespace.filter`; or a tuple of series and inputs, whose
            axes are left as they are; or a dataset, which is left as it is.
        missing: Bool, broadcast against x; None if only NaN are missing.

    Raises:
        TypeError, ValueError: As `statespace.filter`; `missing` beside more than series.
    """
    if x is None:
        raise TypeError(
            "z is missing: series were expected, [B, T, M], [T, M], or [T] where M is 1"
        )
    if isinstance(x, tuple | tf.data.Dataset) and missing is not None:
        raise ValueError("missing is for one array of series: set NaN in them instead")
    if isinstance(x, tf.data.Dataset):
        return x
    if isinstance(x, tuple):
        series, *inputs = x
        check_labels(series, None, inputs[0] if inputs else None, along=1)
        z = as_observations(series, None, model.series_dtype, promote=True)
    else:
        z = Series(model, x, missing).observations().numpy()
    if likelihood is not None:
        likelihood.check(np.asarray(z))
    if isinstance(x, tuple):
        return (z, *inputs)
    return z[None] if z.ndim == 2 else z


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
