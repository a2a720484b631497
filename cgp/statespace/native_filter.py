"""The Kalman filter over a whole series by compiled ops, where they serve.

Each function returns None where they do not, or where they refuse, as they do where a result is not
finite: the TensorFlow path then finds the same, or says what is wrong.
"""

from typing import Any

import tensorflow as tf

from cgp import native
from cgp.statespace.backward_pass import Cotangents
from cgp.statespace.filter_step import State
from cgp.statespace.forward_pass import System


def log_likelihood(system: System, start: State) -> tuple[tf.Tensor, ...] | None:
    """The log likelihood of each series, `[B]`, alone in a tuple."""
    value = _run("CgpKalmanLikelihood", system, start)
    return None if value is None else (value,)


def moments(system: System, start: State) -> tuple[tf.Tensor, ...] | None:
    """The fields of `StateMoments`."""
    found = _run("CgpKalmanMoments", system, start)
    return None if found is None else tuple(found)


def pullback(system: System, start: State, cotangents: Cotangents) -> list[tf.Tensor] | None:
    """Gradients by the parts in `DIFFERENTIABLE`, the first mean and the first covariance."""
    nothing = tf.zeros([0], start.mean.dtype)
    given = {
        f"by_{name}": nothing if value is None else value
        for name, value in cotangents._asdict().items()
    }
    gradients = _run("CgpKalmanPullback", system, start, noise=system.Q, **given)
    return None if gradients is None else list(gradients)


def _run(op: str, system: System, start: State, **more: tf.Tensor) -> Any:
    numbers = (system.F, system.Q_factor, system.h, system.b, system.z, *start)
    reals = (system.r, system.observed)
    if not (native.serves(*numbers) and native.serves(*reals)):
        return None
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
