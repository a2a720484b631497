"""The square-root Kalman filter over a block of steps, as a loop for XLA.

Arrays have time first and the batch last. What does not vary, over time or over the batch, has an
axis of 1 there. Covariances are computed once for all series that share them, as the batch axis of
a factor is 1 then, whatever that of the means.
"""

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import squared_modulus
from cgp.linalg.batch_last import adjoint, condition, dot, matmul, matvec, triangularize
from cgp.linalg.composite import real_as


class System(NamedTuple):
    """x' = F x + b + w, w of covariance Q; and of each component, z = h x + v, v of variance r."""

    F: tf.Tensor
    """`[T, n, n, B]`, like all of these with axes of 1 where nothing varies."""
    Q: tf.Tensor
    """`[T, n, n, B]`: what gradients by the noise go to."""
    G: tf.Tensor
    """`[T, n, q, B]`, `Q = G Gᴴ`: what is computed with."""
    h: tf.Tensor
    """`[T, m, n, B]`."""
    r: tf.Tensor
    """Real, `[T, m, B]`: the noise of the components is uncorrelated."""
    b: tf.Tensor
    """`[T, n, B]`."""
    z: tf.Tensor
    """`[T, m, B]`; any finite number where missing."""
    observed: tf.Tensor
    """Real, `[T, m, B]`: 1, or 0 where missing."""


class State(NamedTuple):
    """What is known of the state before the next observation."""

    mean: tf.Tensor
    """`[n, B]`."""
    chol: tf.Tensor
    """`[n, n, B]`."""


class ForwardPass(NamedTuple):
    """The moments along a block."""

    predicted_means: tf.Tensor
    """Before the observation of each step, `[T, n, B]`."""
    predicted_chols: tf.Tensor
    """`[T, n, n, B]`."""
    filtered_means: tf.Tensor
    """After it, `[T, n, B]`."""
    filtered_chols: tf.Tensor
    """`[T, n, n, B]`."""
    log_likelihoods: tf.Tensor
    """Real, `[T, B]`."""
    deviations: tf.Tensor
    """Of each component from what was predicted of it, given those before it: `[T, m, B]`."""
    variances: tf.Tensor
    """Of the deviations, real, `[T, m, B]`; 1 where missing."""
    crosses: tf.Tensor
    """The covariance of the state with each component, `P hᴴ`, `[T, m, n, B]`."""


def at(a: tf.Tensor, t) -> tf.Tensor:
    """What holds at step t of a block."""
    return a[0] if a.shape[0] == 1 else a[t]


def inverse_or_zero(s: tf.Tensor) -> tf.Tensor:
    """1/s, and 0 where nothing is uncertain and so nothing is learnt."""
    known = s > 0
    return tf.where(known, 1.0 / tf.where(known, s, 1.0), tf.zeros_like(s))


def density(dtype: tf.DType) -> tuple[float, float]:
    """(c, log π or log 2π): −log p is `c (log S + |v|²/S)` and the constant times c."""
    return (1.0, math.log(math.pi)) if dtype.is_complex else (0.5, math.log(2.0 * math.pi))


def _if_known(deviation: tf.Tensor, z: tf.Tensor, parts: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The loss of an observation that was certain before: none, or, contradicted, infinite."""
    size = tf.abs(z) + tf.reduce_sum(tf.abs(parts), axis=0)
    tolerance = np.finfo(dtype.as_numpy_dtype).eps ** 0.5
    return tf.where(
        tf.abs(deviation) <= tolerance * size, tf.zeros_like(size), tf.constant(np.inf, dtype)
    )


def observe(system: System, t, carry: State):
    """Takes in the components of an observation, one after the other.

    Returns:
        The carry after it; its log likelihood, `[B]`; and for each component the deviation, its
        variance, and the covariance of the state with it.
    """
    mean, chol = carry
    scale, constant = density(mean.dtype)
    h, r, z, observed = (at(a, t) for a in (system.h, system.r, system.z, system.observed))
    log_likelihood, parts = 0.0, []
    for i in range(z.shape[0]):
        seen = observed[i]
        row = h[i] * real_as(seen, h.dtype)
        chol, cross, variance = condition(chol, row, tf.where(seen > 0, r[i], tf.ones_like(seen)))
        deviation = (z[i] - dot(h[i], mean)) * real_as(seen, mean.dtype)
        mean_before = mean
        inverse = inverse_or_zero(variance)
        mean = mean + cross * (deviation * real_as(inverse, mean.dtype))[None]
        loss = tf.math.log(variance) + squared_modulus(deviation) * inverse + constant * seen
        known = _if_known(deviation, z[i], h[i] * mean_before, loss.dtype)
        log_likelihood -= tf.where(variance > 0, scale * loss, known)
        parts.append((deviation, variance + tf.zeros_like(seen), cross))
    return State(mean, chol), log_likelihood, parts


def advance(system: System, t, carry: State) -> State:
    """From one observation to before the next."""
    F, G, b = (at(a, t) for a in (system.F, system.G, system.b))
    spread = matmul(F, carry.chol)
    G = G + tf.zeros_like(spread[:, :1])  # the batch axis of the state
    return State(matvec(F, carry.mean) + b, triangularize(tf.concat([spread, G], axis=1)))


def likelihood(system: System, carry: State, length: tf.Tensor) -> tuple[tf.Tensor, State]:
    """The log likelihood of the first `length` steps, `[B]`, and the carry after them."""

    def step(t, carry, total):
        carry, log_likelihood, _ = observe(system, t, carry)
        return t + 1, advance(system, t, carry), total + log_likelihood

    total = tf.zeros(system.z.shape[-1:], system.r.dtype)
    _, carry, total = tf.while_loop(lambda t, *_: t < length, step, (tf.constant(0), carry, total))
    return total, carry


def track(system: System, carry: State, length: tf.Tensor) -> tuple[ForwardPass, State]:
    """The moments of the first `length` steps, zero after them, and the carry after them."""
    steps, (m, n) = system.z.shape[0], system.h.shape[1:3]
    columns, matrices = carry.mean.shape[-1], carry.chol.shape[-1]
    dtype, real = carry.mean.dtype, system.r.dtype
    kinds = [  # in the order of a track
        (dtype, [n, columns]),
        (dtype, [n, n, matrices]),
        (dtype, [n, columns]),
        (dtype, [n, n, matrices]),
        (real, [columns]),
        (dtype, [m, columns]),
        (real, [m, matrices]),
        (dtype, [m, n, matrices]),
    ]
    arrays = [tf.TensorArray(dtype, steps, element_shape=shape) for dtype, shape in kinds]

    def step(t, carry, arrays):
        after, log_likelihood, parts = observe(system, t, carry)
        deviations, variances, crosses = (tf.stack(part) for part in zip(*parts, strict=True))
        values = (*carry, *after, log_likelihood, deviations, variances, crosses)
        arrays = [array.write(t, value) for array, value in zip(arrays, values, strict=True)]
        return t + 1, advance(system, t, after), arrays

    _, carry, arrays = tf.while_loop(
        lambda t, *_: t < length, step, (tf.constant(0), carry, arrays)
    )
    return ForwardPass(*(array.stack() for array in arrays)), carry


def covariances(chols: tf.Tensor) -> tf.Tensor:
    """`L Lᴴ` of each step, `[T, n, n, B]`."""
    chols = tf.einsum("tijb->ijtb", chols)
    return tf.einsum("ijtb->tijb", matmul(chols, adjoint(chols)))
