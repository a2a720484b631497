"""The pullback of the Kalman filter, by scans in parallel over time.

The backward pass is affine in the cotangents of the state: with the moments along the series known,
those before a step are, of those after it,

    Φᴴ λ + s,   Φᴴ Λ Φ + S,   Φ = F (I − K H),

of the mean and of the covariance, S depending on λ. Such maps compose, so that an associative scan
finds λ before every step, and a second one Λ. What these make of the gradients of one step is what
`cgp.statespace.engines.backward_pass` makes of them, here of all steps at once.
"""

from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.experimental.numpy import moveaxis

from cgp.linalg.arguments import real_as
from cgp.linalg.batch_last import adjoint, inverse_or_zero, matmul, matvec, outer
from cgp.statespace.engines.backward_pass import (
    DIFFERENTIABLE,
    Cotangents,
    StateCotangent,
    step_back,
)
from cgp.statespace.engines.filter_step import State, update
from cgp.statespace.engines.forward_pass import ForwardPass, System
from cgp.statespace.engines.parallel_scan import over_steps, scan


class _OfMeans(NamedTuple):
    """The map `λ -> A λ + s`."""

    A: tf.Tensor
    """`[n, n, T, B]`, B = 1 where all series share covariances."""
    s: tf.Tensor
    """`[n, T, B]`."""


class _OfCovariances(NamedTuple):
    """The map `Λ -> A Λ Aᴴ + S`."""

    A: tf.Tensor
    """`[n, n, T, B]`, B = 1 where all series share covariances."""
    S: tf.Tensor
    """Hermitian, `[n, n, T, B]`."""


def pullback(
    system: System, start: State, cotangents: Cotangents, starts: State
) -> list[tf.Tensor]:
    """Gradients by the fields in `DIFFERENTIABLE`, the first mean and the first covariance.

    Args:
        system: The system.
        start: The state before the first step.
        cotangents: Those of the moments.
        starts: The states before each step, `[T, n, B]` and `[T, n, n, B]`; the first is `start`.
    """
    del start
    system = over_steps(system)
    forward = _forward(system, over_steps(starts))
    cotangents = _as_one_step(over_steps(cotangents))
    system = _as_one_step(system)

    def before(by_state: StateCotangent) -> tuple[dict[str, tf.Tensor], StateCotangent]:
        return step_back(system, forward, cotangents, 0, by_state)

    back = adjoint(_transition(system, forward))
    nothing = StateCotangent(*map(tf.zeros_like, (forward.predicted_means[0], back)))
    s = before(nothing)[1].mean
    means = scan(_combine_means, _OfMeans(back, s), reverse=True).s
    after = nothing._replace(mean=_next(means))
    S = before(after)[1].covariance
    covariances = scan(_combine_covariances, _OfCovariances(back, S), reverse=True).S
    gradients, _ = before(after._replace(covariance=_next(covariances)))

    by_system = (
        moveaxis(_like(gradients[name], getattr(system, name)[0]), -2, 0) for name in DIFFERENTIABLE
    )
    return [*by_system, means[:, 0], covariances[:, :, 0]]


def _forward(system: System, predicted: State) -> ForwardPass:
    """The forward pass of all steps, by the states before them."""
    measurement = (system.h, system.r, system.z, system.observed)
    filtered, log_likelihoods, innovations = update(predicted, *measurement)
    stacked = (tf.stack(arrays) for arrays in zip(*innovations, strict=True))
    return _as_one_step(ForwardPass(*predicted, *filtered, log_likelihoods, *stacked))


def _as_one_step(values: Any) -> Any:
    """Arrays with an axis of one step before the others, for functions of a step."""
    return type(values)(*(a if a is None else a[None] for a in values))


def _transition(system: System, forward: ForwardPass) -> tf.Tensor:
    """Φ, which leads from the predicted state of a step to that of the next."""
    (F, h, observed), dtype = (system.F[0], system.h[0], system.observed[0]), system.F.dtype
    gains = forward.crosses[0] * real_as(inverse_or_zero(forward.variances[0]), dtype)[:, None]
    rows = h * real_as(observed, dtype)[:, None]
    for gain, row in reversed(list(zip(tf.unstack(gains), tf.unstack(rows), strict=True))):
        F -= outer(matvec(F, gain), tf.math.conj(row))
    return F + tf.zeros_like(forward.predicted_chols[0])


def _combine_means(first: _OfMeans, then: _OfMeans) -> _OfMeans:
    return _OfMeans(matmul(first.A, then.A), matvec(first.A, then.s) + first.s)


def _combine_covariances(first: _OfCovariances, then: _OfCovariances) -> _OfCovariances:
    S = matmul(matmul(first.A, then.S), adjoint(first.A)) + first.S
    return _OfCovariances(matmul(first.A, then.A), S)


def _next(a: tf.Tensor) -> tf.Tensor:
    """The value at the next step; zero after the last."""
    return tf.concat([a[..., 1:, :], tf.zeros_like(a[..., :1, :])], axis=-2)


def _like(gradient: tf.Tensor, a: tf.Tensor) -> tf.Tensor:
    """Sums a gradient over time and over the batch where `a` does not vary along them."""
    if a.shape[-1] == 1 and gradient.shape[-1] != 1:
        gradient = tf.reduce_sum(gradient, axis=-1, keepdims=True)
    if a.shape[-2] == 1 and gradient.shape[-2] != 1:
        gradient = tf.reduce_sum(gradient, axis=-2, keepdims=True)
    return gradient
