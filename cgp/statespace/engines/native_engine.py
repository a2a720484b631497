"""The Kalman filter and smoother over a whole series by compiled ops, where they can be used.

Eagerly each function returns None where an op refuses its input, or a result is not finite: the
TensorFlow path then computes the same, or says what is wrong. In a graph values that are not
finite are returned unchanged.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cgp import native
from cgp.statespace.engines.backward_pass import DIFFERENTIABLE, ONCE, Cotangents, hermitian
from cgp.statespace.engines.chunked_engine import StateMoments
from cgp.statespace.engines.filter_step import KalmanSystem, batch_of


def serves(system: KalmanSystem) -> bool:
    """Whether the ops of the filter can be used here."""
    reals = (system.r, system.observed)
    numbers = (system.F, system.Q_factor, system.h, system.b, system.z, system.mean, system.chol)
    return native.serves_here(*numbers) and native.serves_here(*reals)


def log_likelihood(system: KalmanSystem) -> tf.Tensor | None:
    """The log likelihood of each series, `[B]`."""
    totals = _run("CgpKalmanLikelihood", system)
    if totals is None or (tf.executing_eagerly() and not np.isfinite(totals).all()):
        return None
    return _shaped([totals], [system.z.shape[:1]])[0]


def moments(system: KalmanSystem) -> StateMoments | None:
    """The moments of the state at each time."""
    outputs = _run("CgpKalmanMoments", system)
    if outputs is None:
        return None
    *values, sound = outputs
    if tf.executing_eagerly() and not bool(sound):
        return None
    (batch, steps, _), n = system.z.shape, system.chol.shape[0]
    means, chols = [batch, steps, n], [steps, n, n, batch_of(system, "chol")]
    shapes = [means, chols, means, chols, [batch, steps], chols, chols]
    return StateMoments(*_shaped(values, shapes))


def factors(system: KalmanSystem) -> StateMoments | None:
    """The moments without covariances, which have no gradient then.

    Factors end with the last step at which they change.
    """
    outputs = _run("CgpKalmanFactors", system)
    if outputs is None or not bool(outputs[-1]):
        return None
    predicted_means, filtered_means, log_likelihoods, predicted_chols, filtered_chols, _ = outputs
    return StateMoments(
        predicted_means=predicted_means,
        predicted_covariances=None,
        filtered_means=filtered_means,
        filtered_covariances=None,
        log_likelihoods=log_likelihoods,
        predicted_chols=predicted_chols,
        filtered_chols=filtered_chols,
    )


def smooth(system: KalmanSystem, means: tf.Tensor, chols: tf.Tensor) -> list[tf.Tensor] | None:
    """Smoothed means, `[B, T, n]`; factors, lag-one covariances and gains, `[T, n, n, B]`.

    The filtered moments are shaped likewise. No gradient flows to the system.
    """
    transition, noise_factor, b = map(tf.stop_gradient, (system.F, system.Q_factor, system.b))
    if not native.serves_here(transition, noise_factor, b, means, chols):
        return None
    inputs = {"transition": transition, "noise_factor": noise_factor, "b": b}
    values = native.attempt("CgpKalmanSmoother", **inputs, means=means, chols=chols)
    return None if values is None else _shaped(values, [means.shape, *[chols.shape] * 3])


def _run(op: str, system: KalmanSystem) -> Any:
    return native.attempt(op, **{key: getattr(system, name) for key, name in _INPUTS.items()})


# The names of inputs of the ops. Gradients flow to covariances, and not to the factors of them.
_OPS = {"F": "transition", "Q_factor": "noise_factor", "Q": "noise"}  # where names differ
_FIELDS = ("F", "Q_factor", "h", "r", "b", "z", "observed", "mean", "chol", "Q", "covariance")
_INPUTS = {_OPS.get(name, name): name for name in _FIELDS}
PULLED = (*DIFFERENTIABLE, "mean", "covariance")  # The inputs that gradients flow to


@tf.RegisterGradient("CgpKalmanLikelihood")
def _of_likelihood(op: tf.Operation, by_total: tf.Tensor) -> list[tf.Tensor | None]:
    no_gradient = tf.zeros([0], op.inputs[0].dtype)
    return _pullback(op, by_total[:, None, None], *[no_gradient] * 4)


@tf.RegisterGradient("CgpKalmanMoments")
def _of_moments(op: tf.Operation, *by_values: tf.Tensor) -> list[tf.Tensor | None]:
    predicted_mean, predicted, filtered_mean, filtered, log_likelihood, *_ = by_values
    by_moments = (predicted_mean, hermitian(predicted), filtered_mean, hermitian(filtered))
    return _pullback(op, log_likelihood[..., None], *by_moments)


def _pullback(
    op: tf.Operation, by_log_likelihoods: tf.Tensor, *by_moments: tf.Tensor
) -> list[tf.Tensor | None]:
    """Gradients by the inputs of an op; gradients by log likelihoods are `[B, T or 1, 1]`."""
    values = native.op("CgpKalmanPullback")(
        **dict(zip(_INPUTS, op.inputs, strict=True)),
        by_log_likelihoods=by_log_likelihoods,
        **{f"by_{k}": a for k, a in zip(Cotangents._fields, by_moments, strict=False)},
    )
    inputs = dict(zip(_INPUTS.values(), op.inputs, strict=True))
    shaped = _shaped(values, [inputs[name].shape for name in PULLED])
    gradients = dict(zip(PULLED, shaped, strict=True))
    return [gradients.get(name) for name in _INPUTS.values()]


@tf.RegisterGradient("CgpKalmanPullback")
def _of_pullback(op: tf.Operation, *by_gradients: tf.Tensor) -> None:
    raise NotImplementedError(ONCE)


def _shaped(values: Sequence[tf.Tensor], shapes: Sequence[Any]) -> list[tf.Tensor]:
    """Values with their static shapes, which ops do not tell a graph."""
    if not tf.executing_eagerly():
        for tensor, shape in zip(values, shapes, strict=True):
            tensor.set_shape(shape)
    return list(values)
