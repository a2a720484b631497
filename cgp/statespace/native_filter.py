"""The Kalman filter over a whole series by compiled ops, where they serve.

Eagerly each function returns None where an op refuses its input, or a result is not finite: the
TensorFlow path then finds the same, or says what is wrong. In a graph what is not finite is found
as it is.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cgp import native
from cgp.statespace.arranged import Arranged, batch_of
from cgp.statespace.backward_pass import DIFFERENTIABLE, Cotangents
from cgp.statespace.filter_in_chunks import StateMoments


def serves(given: Arranged) -> bool:
    """Whether the functions below serve here."""
    if not tf.executing_eagerly():
        return native.serves_own_graph()
    reals = (given.r, given.observed)
    numbers = (given.F, given.Q_factor, given.h, given.b, given.z, given.mean, given.chol)
    return native.serves(*numbers) and native.serves(*reals)


def log_likelihood(given: Arranged) -> tuple[tf.Tensor] | None:
    """The log likelihood of each series, `[B]`, alone in a tuple."""
    value = _run("CgpKalmanLikelihood", given)
    if value is None or (tf.executing_eagerly() and not np.isfinite(value).all()):
        return None
    return (*_shaped([value], [given.z.shape[:1]]),)


def moments(given: Arranged) -> StateMoments | None:
    """The moments of the state at each time."""
    found = _run("CgpKalmanMoments", given)
    if found is None:
        return None
    *values, sound = found
    if tf.executing_eagerly() and not bool(sound):
        return None
    (batch, steps, _), n = given.z.shape, given.chol.shape[0]
    means, chols = [batch, steps, n], [steps, n, n, batch_of(given, "chol")]
    shapes = [means, chols, means, chols, [batch, steps], chols, chols]
    return StateMoments(*_shaped(values, shapes))


def pullback(given: Arranged, cotangents: Cotangents) -> list[tf.Tensor] | None:
    """Gradients by the parts in `DIFFERENTIABLE`, the first mean and the first covariance.

    Args:
        given: The series.
        cotangents: Arranged as `StateMoments` are; those of log likelihoods, `[B, T or 1, 1]`.
    """
    nothing = tf.zeros([0], given.z.dtype)
    by_values = {
        f"by_{name}": nothing if value is None else value
        for name, value in cotangents._asdict().items()
    }
    gradients = _run("CgpKalmanPullback", given, noise=given.Q, **by_values)
    if gradients is None:
        return None
    parts = (getattr(given, name) for name in (*DIFFERENTIABLE, "mean", "chol"))
    return _shaped(gradients, [part.shape for part in parts])


def _shaped(values: Sequence[tf.Tensor], shapes: Sequence[Any]) -> list[tf.Tensor]:
    """Values with their static shapes, which ops do not tell a graph."""
    if not tf.executing_eagerly():
        for value, shape in zip(values, shapes, strict=True):
            value.set_shape(shape)
    return list(values)


def _run(op: str, given: Arranged, **more: tf.Tensor) -> Any:
    return native.attempt(
        op,
        transition=given.F,
        noise_factor=given.Q_factor,
        h=given.h,
        r=given.r,
        b=given.b,
        z=given.z,
        observed=given.observed,
        mean=given.mean,
        chol=given.chol,
        **more,
    )
