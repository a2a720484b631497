"""One step of a filter where both functions are affine, with residuals: predict and update."""

from collections.abc import Callable

import tensorflow as tf

from cgp.linalg.batch_last import adjoint, matmul, with_factor_gradient
from cgp.statespace.engines.decorrelation import decorrelated
from cgp.statespace.engines.filter_step import State, predict, update
from cgp.statespace.linearization.affine import Affine

Decorrelation = Callable[..., tuple[tf.Tensor, tf.Tensor, tf.Tensor]]


def updated_by(
    affine: Affine,
    z: tf.Tensor,
    R: tf.Tensor,
    observed: tf.Tensor,
    state: State,
    decorrelate: Decorrelation = decorrelated,
) -> tuple[State, tf.Tensor]:
    """The moments after an observation with an affine function, and its log likelihood, `[B]`.

    Args:
        affine: The function.
        z: The observation, `[m, B]`.
        R: The covariance of its noise, `[m, m, B]`.
        observed: Real, `[m, B]`: 1, or 0 where missing.
        state: Predicted.
        decorrelate: As `decorrelated`, for an R of another structure.
    """
    if affine.residual is not None:
        R = R + matmul(affine.residual, adjoint(affine.residual))
        decorrelate = decorrelated
    values = tf.einsum("mb->bm", z - affine.offset)[:, None]  # a series of one step
    h, r, values = decorrelate(affine.matrix[None], R[None], values, observed[None])
    values = tf.einsum("bm->mb", values[:, 0])
    after, log_likelihood, _ = update(state, h[0], r[0], values, observed)
    return after, log_likelihood


def predicted_by(affine: Affine, Q: tf.Tensor, Q_factor: tf.Tensor, after: State) -> State:
    """The moments of an affine function of a state, and of the process noise.

    Args:
        affine: The function.
        Q: `[n, n, B]`; gradients flow to it.
        Q_factor: `[n, q, B]`; computations use it.
        after: The state.
    """
    spread = tf.stop_gradient(Q_factor)
    if affine.residual is not None:
        spread = tf.concat([spread + tf.zeros_like(after.mean[None, :1]), affine.residual], 1)
    mean, chol = predict(after, affine.matrix, spread, affine.offset)
    return State(mean, with_factor_gradient(chol, Q))
