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
from cgp.statespace.backward_pass import DIFFERENTIABLE, Cotangents
from cgp.statespace.filter_step import State
from cgp.statespace.forward_pass import System


def serves(system: System, start: State) -> bool:
    """Whether the functions below serve here."""
    if not tf.executing_eagerly():
        return native.serves_own_graph()
    numbers = (system.F, system.Q_factor, system.h, system.b, system.z, *start)
    return native.serves(*numbers) and native.serves(system.r, system.observed)


def log_likelihood(system: System, start: State) -> tuple[tf.Tensor, ...] | None:
    """The log likelihood of each series, `[B]`, alone in a tuple."""
    value = _run("CgpKalmanLikelihood", system, start)
    if value is None or (tf.executing_eagerly() and not np.isfinite(value).all()):
        return None
    return tuple(_shaped([value], [system.z.shape[-1:]]))


def moments(system: System, start: State) -> tuple[tf.Tensor, ...] | None:
    """The fields of `StateMoments`."""
    found = _run("CgpKalmanMoments", system, start)
    if found is None:
        return None
    *values, sound = found
    if tf.executing_eagerly() and not bool(sound):
        return None
    (steps, _, batch), (n, _, matrices) = system.z.shape, start.chol.shape
    means, chols = [steps, n, batch], [steps, n, n, matrices]
    return tuple(_shaped(values, [means, chols, means, chols, [steps, batch], chols, chols]))


def pullback(system: System, start: State, cotangents: Cotangents) -> list[tf.Tensor] | None:
    """Gradients by the parts in `DIFFERENTIABLE`, the first mean and the first covariance."""
    nothing = tf.zeros([0], start.mean.dtype)
    given = {
        f"by_{name}": nothing if value is None else value
        for name, value in cotangents._asdict().items()
    }
    gradients = _run("CgpKalmanPullback", system, start, noise=system.Q, **given)
    if gradients is None:
        return None
    parts = (*(getattr(system, name) for name in DIFFERENTIABLE), *start)
    return _shaped(gradients, [part.shape for part in parts])


def _shaped(values: Sequence[tf.Tensor], shapes: Sequence[Any]) -> list[tf.Tensor]:
    """Values with their static shapes, which ops do not tell a graph."""
    if not tf.executing_eagerly():
        for value, shape in zip(values, shapes, strict=True):
            value.set_shape(shape)
    return list(values)


def _run(op: str, system: System, start: State, **more: tf.Tensor) -> Any:
    return native.attempt(
        op,
        transition=system.F,
        noise_factor=system.Q_factor,
        h=system.h,
        r=system.r,
        b=system.b,
        z=system.z,
        observed=system.observed,
        mean=start.mean,
        chol=start.chol,
        **more,
    )
