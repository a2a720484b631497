"""The backward pass of the Kalman filter over a chunk of a series: the adjoint recursion.

Reverse-mode differentiation of the covariance recursion, written by hand. The forward pass supplies
every covariance and gain, so what remains is two linear recursions, for the cotangents of the mean
and of the covariance of the state. For the likelihood they give the exact score of Koopman and
Shephard (Biometrika 79, 1992). They differentiate covariances and never Cholesky factors, which
have no derivative where a covariance is singular. A cotangent is TensorFlow's gradient,
∂L/∂Re + i ∂L/∂Im; the cotangent of a covariance is Hermitian.
"""

from typing import NamedTuple

import tensorflow as tf

from cgp.linalg.arguments import real_as, squared_modulus
from cgp.linalg.batch_last import adjoint, dot, inverse_or_zero, matmul, matvec, outer
from cgp.statespace.compiled import time_loop
from cgp.statespace.engines.filter_step import ForwardPass, State, System, at, density, forward_pass

DIFFERENTIABLE = ("F", "Q", "h", "r", "b", "z")  # The fields of a `System` that gradients flow to

ONCE = "the filter is differentiable once: take differences of gradients for a Hessian"
"""The error message for a second derivative."""


class Cotangents(NamedTuple):
    """Gradients by the moments along a chunk: covariances, not factors; None stands for zero."""

    predicted_means: tf.Tensor | None  # `[T, n, B]`
    predicted_covariances: tf.Tensor | None  # Hermitian, `[T, n, n, B]`
    filtered_means: tf.Tensor | None  # `[T, n, B]`
    filtered_covariances: tf.Tensor | None  # Hermitian, `[T, n, n, B]`
    log_likelihoods: tf.Tensor  # Real, `[T, B]`; T is 1 where it is the same at all steps


class StateCotangent(NamedTuple):
    """The gradients with respect to the moments of a state."""

    mean: tf.Tensor  # `[n, B]`
    covariance: tf.Tensor  # `[n, n, B]`


def backward_pass(
    system: System,
    state: State,
    length: tf.Tensor,
    cotangents: Cotangents,
    by_state: StateCotangent,
) -> tuple[list[tf.Tensor], StateCotangent]:
    """Gradients by the system of a chunk, whose last state has the cotangent `by_state`.

    Returns:
        Gradients by the fields named in `DIFFERENTIABLE`, and by the moments before the chunk.
    """
    forward, _ = forward_pass(system, state, length)
    steps = system.z.shape[0]
    inputs = {name: getattr(system, name) for name in DIFFERENTIABLE}

    def step(t: tf.Tensor, by_state: StateCotangent) -> tuple[list[tf.Tensor], StateCotangent]:
        gradients, by_state = step_back(system, forward, cotangents, t, by_state)
        # With the batch axis of one step of the array.
        like = {name: tf.zeros(tf.shape(a)[1:], a.dtype) for name, a in inputs.items()}
        return [summed(gradients[k], inputs[k]) + zero for k, zero in like.items()], by_state

    kinds = [(a.dtype, a.shape[1:]) for a in inputs.values()]
    stacked, by_state = time_loop(step, by_state, kinds, steps, length, backwards=True)
    gradients = [
        tf.reduce_sum(gradient, axis=0, keepdims=True) if a.shape[0] == 1 else gradient
        for gradient, a in zip(stacked, inputs.values(), strict=True)
    ]
    return gradients, by_state


def step_back(
    system: System,
    forward: ForwardPass,
    cotangents: Cotangents,
    t: int | tf.Tensor,
    by_state: StateCotangent,
) -> tuple[dict[str, tf.Tensor], StateCotangent]:
    """Gradients with respect to the matrices of step t, and the cotangent of the state before."""
    F = at(system.F, t)
    mean, chol = forward.filtered_means[t], forward.filtered_chols[t]
    covariance = matmul(chol, adjoint(chol))
    spread = matmul(by_state.covariance, F)
    gradients = {
        "F": _sum(outer(by_state.mean, mean), 2.0 * matmul(spread, covariance), system.F),
        "Q": by_state.covariance,
        "b": by_state.mean,
    }
    half = 0.5 * matmul(adjoint(F), spread)
    # Hermitian but for rounding: an update contracts that part alone, and the rest grows with F.
    by_state = StateCotangent(matvec(adjoint(F), by_state.mean), half + adjoint(half))
    by_state = _plus(by_state, cotangents.filtered_means, cotangents.filtered_covariances, t)

    components, state, weight = [], (mean, covariance), at(cotangents.log_likelihoods, t)
    row = (at(system.h, t), at(system.observed, t))
    innovations = (forward.crosses[t], forward.deviations[t], forward.variances[t])
    # Taken apart at once: each index would be several operations of the graph.
    for values in reversed(list(zip(*map(tf.unstack, (*row, *innovations)), strict=True))):
        component, by_state, state = _component(system, forward, weight, values, by_state, state)
        mean, covariance = state
        components.append(component)
    for name, values in zip(("h", "r", "z"), zip(*components[::-1], strict=True), strict=True):
        gradients[name] = tf.stack(values)
    by_state = _plus(by_state, cotangents.predicted_means, cotangents.predicted_covariances, t)
    return gradients, by_state


def _plus(
    by_state: StateCotangent,
    by_means: tf.Tensor | None,
    by_covariances: tf.Tensor | None,
    t: int | tf.Tensor,
) -> StateCotangent:
    """Adds the cotangent of the moments returned at step t, where None stands for zero."""
    if by_means is None or by_covariances is None:
        return by_state
    return StateCotangent(by_state.mean + by_means[t], by_state.covariance + by_covariances[t])


def _component(
    system: System,
    forward: ForwardPass,
    weight: tf.Tensor,
    values: tuple[tf.Tensor, ...],
    by_state: StateCotangent,
    state: tuple[tf.Tensor, tf.Tensor],
) -> tuple[tuple[tf.Tensor, ...], StateCotangent, tuple[tf.Tensor, tf.Tensor]]:
    """Differentiates the update with one component of an observation.

    With `k = P hᴴ` and `S = h k + r`, the update made the moments `m + k v/S` and `P − k kᴴ/S`,
    and the log likelihood `−c (log S + |v|²/S)`. The values are h, whether observed, k, v and S.
    The result is the gradients by h, r and z, and the cotangent and moments before the update.
    """
    mean, covariance = state
    dtype = mean.dtype
    scale, _ = density(dtype)
    h, observed, k, v, variance = values
    h = h * real_as(observed, dtype)
    inverse = inverse_or_zero(variance)
    gain = k * real_as(inverse, dtype)
    e = v * real_as(inverse, dtype)
    # The moments before the update: the covariance added is positive, so no digits cancel.
    mean = mean - k * e[None]
    covariance = covariance + outer(gain, k)

    by_gain = matvec(by_state.covariance, gain)
    by_v = dot(tf.math.conj(gain), by_state.mean)
    by_s = tf.math.real(dot(tf.math.conj(gain), by_gain)) + summed(
        -tf.math.real(tf.math.conj(by_v) * e)
        + scale * weight * observed * (squared_modulus(e) - inverse),
        forward.variances,
    )
    by_v = (by_v - real_as(2.0 * scale * weight, dtype) * e) * real_as(observed, dtype)
    by_k = (
        summed(by_state.mean * tf.math.conj(e)[None], forward.crosses)
        - 2.0 * by_gain
        + tf.math.conj(h) * real_as(by_s, dtype)[None]
    )
    of_covariances = real_as(by_s, dtype)[None] * tf.math.conj(k) + tf.math.conj(
        matvec(covariance, by_k)
    )
    # Missing components are zero already in v; here they must be before series are summed.
    by_h = _sum(
        -by_v[None] * tf.math.conj(mean), of_covariances * real_as(observed, dtype), system.h
    )
    half = 0.5 * outer(by_k, tf.math.conj(h))
    by_state = StateCotangent(
        by_state.mean - tf.math.conj(h) * by_v[None], by_state.covariance + half + adjoint(half)
    )
    return (by_h, by_s * observed, by_v), by_state, (mean, covariance)


def summed(x: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Sums over the batch where the batch axis of `like` has length 1."""
    if like.shape[-1] == 1 and x.shape[-1] != 1:
        return tf.reduce_sum(x, axis=-1, keepdims=True)
    return x


def _sum(of_means: tf.Tensor, of_covariances: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Adds the gradients from both recursions, whose batch axes may differ."""
    if like.shape[-1] == 1:
        return summed(of_means, like) + summed(of_covariances, like)
    return of_means + of_covariances


def hermitian(a: tf.Tensor) -> tf.Tensor:
    """The Hermitian part of matrices `[T, n, n, B]`, the only part that acts on a covariance."""
    return 0.5 * (a + tf.math.conj(tf.einsum("tijb->tjib", a)))
