"""The way back through a block of the filter: gradients by a second recursion.

Reverse differentiation of the covariance recursion, by hand. Every covariance and gain that it
meets is known from the way forth, so it is two linear recursions, for the gradients by the mean and
by the covariance of the state; that of the likelihood is the exact score of Koopman and Shephard
(Biometrika 79, 1992). It goes through covariances and never through factors, which have no
derivative where a covariance is singular. A gradient is TensorFlow's, ∂L/∂Re + i ∂L/∂Im; that by a
covariance is Hermitian.
"""

from typing import NamedTuple

import tensorflow as tf

from cgp.linalg.arguments import squared_modulus
from cgp.linalg.batch_last import adjoint, dot, matmul, matvec, outer
from cgp.linalg.composite import real_as
from cgp.statespace.forward_pass import (
    ForwardPass,
    State,
    System,
    at,
    density,
    inverse_or_zero,
    track,
)

DIFFERENTIABLE = ("F", "Q", "h", "r", "b", "z")
"""The parts of a `System` that gradients flow to."""


class Cotangents(NamedTuple):
    """Gradients by the moments along a block, by covariances in the place of factors."""

    predicted_means: tf.Tensor
    """`[T, n, B]`, or None for none, as all but the last."""
    predicted_covariances: tf.Tensor
    """Hermitian, `[T, n, n, B]`."""
    filtered_means: tf.Tensor
    """`[T, n, B]`."""
    filtered_covariances: tf.Tensor
    """Hermitian, `[T, n, n, B]`."""
    log_likelihoods: tf.Tensor
    """Real, `[T, B]`; T is 1 where it is the same at all steps."""


class StateCotangent(NamedTuple):
    """The gradients by the moments of a state."""

    mean: tf.Tensor
    """`[n, B]`."""
    covariance: tf.Tensor
    """`[n, n, B]`."""


def pull_back(
    system: System, carry: State, length: tf.Tensor, pulls: Cotangents, later: StateCotangent
) -> tuple[list[tf.Tensor], StateCotangent]:
    """Gradients by all that a block depends on.

    Args:
        system: The system.
        carry: What was known before the block.
        length: Its number of steps.
        pulls: Gradients by its moments; those by means and covariances may be None, for none.
        later: Gradients by the moments of the state after the block.

    Returns:
        Gradients by what is `DIFFERENTIABLE`, and by the moments of the state before the block.
    """
    forth, _ = track(system, carry, length)
    steps = system.z.shape[0]
    values = {name: getattr(system, name) for name in DIFFERENTIABLE}
    arrays = {
        name: tf.TensorArray(value.dtype, steps, element_shape=value.shape[1:])
        for name, value in values.items()
    }

    def step(t, back, arrays):
        gradients, back = _step(system, forth, pulls, t, back)
        arrays = {
            name: array.write(t, _like(gradients[name], values[name]))
            for name, array in arrays.items()
        }
        return t - 1, back, arrays

    _, back, arrays = tf.while_loop(lambda t, *_: t >= 0, step, (length - 1, later, arrays))
    gradients = [
        tf.reduce_sum(arrays[name].stack(), axis=0, keepdims=True)
        if value.shape[0] == 1
        else arrays[name].stack()
        for name, value in values.items()
    ]
    return gradients, back


def _step(system: System, forth: ForwardPass, pulls: Cotangents, t, back: StateCotangent):
    """From after step t to before it; and the gradients by the matrices of that step."""
    F = at(system.F, t)
    mean, chol = forth.filtered_means[t], forth.filtered_chols[t]
    covariance = matmul(chol, adjoint(chol))
    spread = matmul(back.covariance, F)
    gradients = {
        "F": _both(outer(back.mean, mean), 2.0 * matmul(spread, covariance), system.F),
        "Q": back.covariance,
        "b": back.mean,
    }
    back = StateCotangent(matvec(adjoint(F), back.mean), matmul(adjoint(F), spread))
    if pulls.filtered_means is not None:
        back = StateCotangent(
            back.mean + pulls.filtered_means[t], back.covariance + pulls.filtered_covariances[t]
        )

    parts, state, weight = [], (mean, covariance), at(pulls.log_likelihoods, t)
    for i in reversed(range(system.z.shape[1])):
        part, back, state = _component(system, forth, weight, t, i, back, state)
        mean, covariance = state
        parts.append(part)
    for name, values in zip(("h", "r", "z"), zip(*parts[::-1], strict=True), strict=True):
        gradients[name] = tf.stack(values)
    if pulls.predicted_means is not None:
        back = StateCotangent(
            back.mean + pulls.predicted_means[t], back.covariance + pulls.predicted_covariances[t]
        )
    return gradients, back


def _component(
    system: System, forth: ForwardPass, weight: tf.Tensor, t, i: int, back: StateCotangent, state
):
    """From after component i of an observation to before it.

    With `k = P hᴴ` and `S = h k + r`, it led to `m + k v/S` and `P − k kᴴ/S`, and to the log
    likelihood `−c (log S + |v|²/S)`.

    Returns:
        Gradients by h, r and z; by the moments of the state before; and these moments.
    """
    mean, covariance = state
    dtype = mean.dtype
    scale, _ = density(dtype)
    seen = at(system.observed, t)[i]
    h = at(system.h, t)[i] * real_as(seen, dtype)
    k, v = forth.crosses[t, i], forth.deviations[t, i]
    inverse = inverse_or_zero(forth.variances[t, i])
    gain = k * real_as(inverse, dtype)
    e = v * real_as(inverse, dtype)
    # Back to before: what is added is positive, and loses nothing.
    mean = mean - k * e[None]
    covariance = covariance + outer(gain, k)

    by_gain = matvec(back.covariance, gain)
    by_v = dot(tf.math.conj(gain), back.mean)
    by_s = tf.math.real(dot(tf.math.conj(gain), by_gain)) + _summed(
        -tf.math.real(tf.math.conj(by_v) * e)
        + scale * weight * seen * (squared_modulus(e) - inverse),
        forth.variances,
    )
    by_v = (by_v - real_as(2.0 * scale * weight, dtype) * e) * real_as(seen, dtype)
    by_k = (
        _summed(back.mean * tf.math.conj(e)[None], forth.crosses)
        - 2.0 * by_gain
        + tf.math.conj(h) * real_as(by_s, dtype)[None]
    )
    by_h = _both(
        -by_v[None] * tf.math.conj(mean),
        real_as(by_s, dtype)[None] * tf.math.conj(k) + tf.math.conj(matvec(covariance, by_k)),
        system.h,
    ) * real_as(seen, dtype)
    half = 0.5 * outer(by_k, tf.math.conj(h))
    back = StateCotangent(
        back.mean - tf.math.conj(h) * by_v[None],
        back.covariance + half + adjoint(half),
    )
    return (by_h, by_s * seen, by_v), back, (mean, covariance)


def _summed(x: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Summed over the batch, where that of `like` has a single one."""
    if like.shape[-1] == 1 and x.shape[-1] != 1:
        return tf.reduce_sum(x, axis=-1, keepdims=True)
    return x


def _both(of_means: tf.Tensor, of_covariances: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """A sum of gradients from both recursions, whose batch axes may differ."""
    if like.shape[-1] == 1:
        return _summed(of_means, like) + _summed(of_covariances, like)
    return of_means + of_covariances


def _like(gradient: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    """A gradient with the batch axis of one step of `value`."""
    gradient = _summed(gradient, value)
    return gradient + tf.zeros(tf.shape(value)[1:], value.dtype)
