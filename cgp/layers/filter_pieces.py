"""Series in pieces: what `cgp.layers.Recursive` asks of a `KalmanFilter`, as its methods.

The state that is passed from piece to piece is the one predicted for the next observation, as
working values: its mean `[B, n]` and a factor of its covariance `[B, n, n]`.
"""

from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from cgp.layers.filter_outputs import outputs
from cgp.linalg import stored_cholesky
from cgp.statespace.forecasting import ahead
from cgp.statespace.linearization.linearized_model import noise_of

if TYPE_CHECKING:
    from cgp.layers.kalman_filter import KalmanFilter


def begin(kf: "KalmanFilter", inputs: Any) -> list[tf.Tensor]:
    """The state of series before any observation.

    Args:
        kf: The filter.
        inputs: Series `[B, T, M]`, or a pair of them and of known inputs `[B, T, k]`.

    Raises:
        ValueError: Series of other axes; a model that varies over time.
    """
    z, _ = _parts(inputs)
    if z.shape.rank != 3:
        raise ValueError(f"series must be [B, T, M], got shape {z.shape}")
    noise = noise_of(kf.learned_model.model())
    if noise.steps is not None:
        raise ValueError(
            "the matrices of the model vary over time, and would begin again with each piece: "
            "filter whole series"
        )
    batch = tf.shape(z)[:1]
    chol = stored_cholesky(noise.initial_chol, noise.initial_covariance)
    return [
        tf.broadcast_to(a, tf.concat([batch, a.shape[-own:]], axis=0))
        for a, own in ((noise.initial_mean, 1), (chol, 2))
    ]


def follow(
    kf: "KalmanFilter", inputs: Any, state: list[tf.Tensor]
) -> tuple[dict[str, tf.Tensor], list[tf.Tensor]]:
    """The moments of a piece, whose loss it adds, and the state after it.

    Args:
        kf: The filter.
        inputs: As for `begin`.
        state: The state before the piece. Gradients pass through it.
    """
    z, known = _parts(inputs)
    model = kf.learned_model.model().starting_from(*state)
    series, found = kf._filtered(model, z, None, known)
    last = None if series.inputs is None else series.inputs[..., -1, :]
    chol = stored_cholesky(
        found.filtered_chols[..., -1, :, :], found.filtered_covariances[..., -1, :, :]
    )
    following = ahead(series.model, found.filtered_means[..., -1, :], chol, last)
    return outputs(series, found), list(following)


def state_spec(kf: "KalmanFilter", shape: Any) -> list[keras.KerasTensor]:
    """The shapes and dtypes of states, of series of these shapes."""
    batch = (shape[0] if isinstance(shape[0], tuple | list) else shape)[0]
    n, dtype = kf._start.F.shape[-1], kf._start.dtype.name
    return [keras.KerasTensor(axes, dtype) for axes in ((batch, n), (batch, n, n))]


def _parts(inputs: Any) -> tuple[Any, Any]:
    """Series and known inputs, which are None where there are none."""
    return tuple(inputs) if isinstance(inputs, tuple | list) else (inputs, None)
