"""The forward pass of the Kalman filter over a chunk of a series, as a loop for XLA.

Time is the first axis and the batch the last. Either has length 1 where nothing varies along it.
"""

from typing import NamedTuple

import tensorflow as tf

from cgp.linalg.batch_last import adjoint, matmul
from cgp.statespace.engines.filter_step import Innovation, State, predict, update


class System(NamedTuple):
    """x' = F x + b + w, w of covariance Q; each component of z is h x + v, v of variance r."""

    F: tf.Tensor
    """Transition, `[T, n, n, B]`; in all of these T and B are 1 where nothing varies."""
    Q: tf.Tensor
    """Process noise covariance, `[T, n, n, B]`; gradients flow to it."""
    Q_factor: tf.Tensor
    """G, `[T, n, q, B]`, with `Q = G Gᴴ`; computations use it."""
    h: tf.Tensor
    """`[T, m, n, B]`."""
    r: tf.Tensor
    """Observation noise variances, real, `[T, m, B]`; the components are uncorrelated."""
    b: tf.Tensor
    """`[T, n, B]`."""
    z: tf.Tensor
    """`[T, m, B]`; any finite number where missing."""
    observed: tf.Tensor
    """Real, `[T, m, B]`: 1, or 0 where missing."""


class ForwardPass(NamedTuple):
    """The moments along a chunk."""

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
    """Deviation of each component from its mean given the components before it, `[T, m, B]`."""
    variances: tf.Tensor
    """Variances of the deviations, real, `[T, m, B]`; 1 where missing."""
    crosses: tf.Tensor
    """Cross-covariance of the state and each component, `P hᴴ`, `[T, m, n, B]`."""


def at(a: tf.Tensor, t: int | tf.Tensor) -> tf.Tensor:
    """The value at step t of a chunk."""
    return a[0] if a.shape[0] == 1 else a[t]


def at_known(a: tf.Tensor, t: tf.Tensor) -> tf.Tensor:
    """`at`, in a graph that may not know whether the first axis is 1."""
    return a[tf.minimum(t, tf.shape(a)[0] - 1)]


def update_at(
    system: System, t: int | tf.Tensor, state: State
) -> tuple[State, tf.Tensor, list[Innovation]]:
    """`update` with the observation of step t."""
    return update(state, *(at(a, t) for a in (system.h, system.r, system.z, system.observed)))


def predict_at(system: System, t: int | tf.Tensor, state: State) -> State:
    """`predict` from step t to the next."""
    return predict(state, *(at(a, t) for a in (system.F, system.Q_factor, system.b)))


def log_likelihood(system: System, state: State, length: tf.Tensor) -> tuple[tf.Tensor, State]:
    """The log likelihood of the first `length` steps, `[B]`, and the state predicted after them."""

    def step(t: tf.Tensor, state: State, total: tf.Tensor) -> tuple[tf.Tensor, State, tf.Tensor]:
        state, log_likelihood, _ = update_at(system, t, state)
        return t + 1, predict_at(system, t, state), total + log_likelihood

    total = tf.zeros_like(system.z[0, 0], dtype=system.r.dtype)
    _, state, total = tf.while_loop(lambda t, *_: t < length, step, (tf.constant(0), state, total))
    return total, state


def forward_pass(system: System, state: State, length: tf.Tensor) -> tuple[ForwardPass, State]:
    """The moments of the first `length` steps, zero after them, and the state predicted next."""
    steps, (m, n) = system.z.shape[0], system.h.shape[1:3]
    columns, matrices = state.mean.shape[-1], state.chol.shape[-1]
    dtype, real = state.mean.dtype, system.r.dtype
    kinds = [  # in the order of a `ForwardPass`
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

    def step(
        t: tf.Tensor, state: State, arrays: list[tf.TensorArray]
    ) -> tuple[tf.Tensor, State, list[tf.TensorArray]]:
        after, log_likelihood, innovations = update_at(system, t, state)
        deviations, variances, crosses = (
            tf.stack(arrays) for arrays in zip(*innovations, strict=True)
        )
        values = (*state, *after, log_likelihood, deviations, variances, crosses)
        arrays = [array.write(t, a) for array, a in zip(arrays, values, strict=True)]
        return t + 1, predict_at(system, t, after), arrays

    _, state, arrays = tf.while_loop(
        lambda t, *_: t < length, step, (tf.constant(0), state, arrays)
    )
    return ForwardPass(*(array.stack() for array in arrays)), state


def covariances(chols: tf.Tensor) -> tf.Tensor:
    """`L Lᴴ` of each step, `[T, n, n, B]`."""
    chols = tf.einsum("tijb->ijtb", chols)
    return tf.einsum("ijtb->tijb", matmul(chols, adjoint(chols)))
