"""The recursion of the filter of interacting models, as a loop over time.

Each step updates the state of each model with the observation, weighs the models by its
likelihoods, and mixes their states before each model predicts (Blom & Bar-Shalom, IEEE Trans.
Autom. Control 33, 1988). Gradients go through the moments of a mixture, not through the roots of
its weights, which have no derivative at zero.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import real_as
from cgp.linalg.batch_last import (
    adjoint,
    matmul,
    matvec,
    outer,
    triangularize,
    with_factor_gradient,
)
from cgp.statespace.engines.filter_step import State
from cgp.statespace.engines.forward_pass import at_known
from cgp.statespace.linearization.affine import Affine
from cgp.statespace.linearization.linearized_step import Stepper, StepSystem


class Modes(NamedTuple):
    """The states by the models, predicted for one observation."""

    states: tuple[State, ...]
    log_probabilities: tf.Tensor
    """The logarithms of the probabilities of the models, real, `[K, B]`."""


class MixtureMoments(NamedTuple):
    """The moments of the mixture of all models at each step, batch last."""

    predicted_means: tf.Tensor
    predicted_chols: tf.Tensor
    filtered_means: tf.Tensor
    filtered_chols: tf.Tensor
    observation_means: tf.Tensor
    """The mean predicted of the observation, `[m, B]`."""
    observation_covariances: tf.Tensor
    """`[m, m, B]`."""
    log_likelihoods: tf.Tensor
    """Real, `[B]`."""
    probabilities: tf.Tensor
    """The probabilities of the models given the observation, `[K, B]`."""


Loop = Callable[..., tuple[MixtureMoments, Modes]]
"""`run` of the models of a bank, as a function of its other arguments."""


def run(
    steps_of: Sequence[Stepper],
    systems: tuple[StepSystem, ...],
    transition: tf.Tensor,
    start: Modes,
) -> tuple[MixtureMoments, Modes]:
    """The filter of a series, or of B of them.

    Args:
        steps_of: The steps of each model.
        systems: The system of each.
        transition: Probabilities of the switch, `[K, K]`.
        start: The states before the first observation.

    Returns:
        The moments, `[T, …, B]`, and the states predicted after the last observation.
    """
    steps = tf.shape(systems[0].z)[0]

    def now(t: tf.Tensor) -> tuple[StepSystem, ...]:
        return tf.nest.map_structure(lambda a: None if a is None else at_known(a, t), systems)

    def step(t: tf.Tensor, modes: Modes, arrays: list[tf.TensorArray]) -> Any:
        following, moments = _step(steps_of, now(t), transition, modes)
        following = tf.nest.map_structure(
            lambda a, b: tf.ensure_shape(a, b.shape), following, start
        )
        arrays = [array.write(t, a) for array, a in zip(arrays, moments, strict=True)]
        return t + 1, following, arrays

    kinds = _kinds(systems[0], start)
    arrays = [tf.TensorArray(dtype, steps, element_shape=shape) for dtype, shape in kinds]
    loop = (tf.constant(0), start, arrays)
    _, last, arrays = tf.while_loop(lambda t, *_: t < steps, step, loop)
    return MixtureMoments(*(array.stack() for array in arrays)), last


def _kinds(system: StepSystem, start: Modes) -> list[tuple[tf.DType, list[int | None]]]:
    """The dtypes and shapes of the `MixtureMoments` of one step."""
    dtype, real = start.states[0].mean.dtype, start.log_probabilities.dtype
    n, columns = start.states[0].mean.shape
    m, count = system.R.shape[1], start.log_probabilities.shape[0]
    moments = [(dtype, [n, columns]), (dtype, [n, n, columns])]
    return [
        *moments,
        *moments,
        (dtype, [m, columns]),
        (dtype, [m, m, columns]),
        (real, [columns]),
        (real, [count, columns]),
    ]


def _step(
    steps_of: Sequence[Stepper],
    systems: Sequence[StepSystem],
    transition: tf.Tensor,
    modes: Modes,
) -> tuple[Modes, MixtureMoments]:
    before, logs = modes
    after, log_likelihoods, observations = [], [], []
    for steps, system, state in zip(steps_of, systems, before, strict=True):
        updated, log_likelihood, affine = steps.updated(system, state)
        after.append(updated)
        log_likelihoods.append(log_likelihood)
        observations.append(_observed(system, affine, state))
    joint = logs + tf.stack(log_likelihoods)
    total = log_sum_exp(joint)
    # An observation that is impossible under all models tells nothing of them.
    posterior = tf.where(_impossible(total), logs, joint - _finite(total))
    mixing = safe_log(transition)[..., None] + posterior[:, None]
    logs = log_sum_exp(mixing)
    # A model that cannot be entered goes on from its own state: it has no weight until it can.
    alone = tf.eye(len(after), dtype=logs.dtype)[..., None]
    weights = tf.where(_impossible(logs)[None], alone, tf.exp(mixing - _finite(logs)))
    following = tuple(
        steps.predicted(system, mixture(weights[:, j], after))[0]
        for j, (steps, system) in enumerate(zip(steps_of, systems, strict=True))
    )
    prior, probabilities = tf.exp(modes.log_probabilities), tf.exp(posterior)
    moments = MixtureMoments(
        *mixture(prior, before),
        *mixture(probabilities, after),
        *_moments(prior, *zip(*observations, strict=True)),
        total,
        probabilities,
    )
    return Modes(following, logs), moments


def _observed(system: StepSystem, affine: Affine, state: State) -> tuple[tf.Tensor, tf.Tensor]:
    """The mean and covariance predicted of an observation."""
    factors = [matmul(affine.matrix, state.chol)]
    if affine.residual is not None:
        factors.append(affine.residual)
    covariance = tf.add_n([matmul(factor, adjoint(factor)) for factor in factors]) + system.R
    return matvec(affine.matrix, state.mean) + affine.offset, covariance


def mixture(weights: tf.Tensor, states: Sequence[State]) -> State:
    """The moments of a mixture of states, as a sum of squares.

    Args:
        weights: Probabilities, real, `[K, B]`.
        states: K states.
    """
    means, chols = [state.mean for state in states], [state.chol for state in states]
    covariances = [matmul(chol, adjoint(chol)) for chol in chols]
    mean, covariance = _moments(weights, means, covariances)
    roots = tf.unstack(real_as(tf.sqrt(weights), mean.dtype), len(states))
    factors = [root * chol for root, chol in zip(roots, chols, strict=True)]
    factors += [(root * (m - mean))[:, None] for root, m in zip(roots, means, strict=True)]
    chol = tf.stop_gradient(triangularize(tf.concat(factors, axis=1)))
    return State(mean, with_factor_gradient(chol, covariance))


def _moments(
    weights: tf.Tensor, means: Sequence[tf.Tensor], covariances: Sequence[tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and covariance of a mixture, whose covariance has the spread of the means."""
    weighed = tf.unstack(real_as(weights, means[0].dtype), len(means))
    mean = tf.add_n([w * m for w, m in zip(weighed, means, strict=True)])
    spreads = [
        w * (covariance + outer(m - mean, m - mean))
        for w, m, covariance in zip(weighed, means, covariances, strict=True)
    ]
    return mean, tf.add_n(spreads)


# --- logarithms of probabilities that may be zero ---------------------------------------------


def safe_log(a: tf.Tensor) -> tf.Tensor:
    """The logarithm, −∞ at zero, where its gradient is zero."""
    some = a > 0
    return tf.where(some, tf.math.log(tf.where(some, a, tf.ones_like(a))), _never(a))


def log_sum_exp(a: tf.Tensor) -> tf.Tensor:
    """`log Σ exp a` over the first axis, −∞ if all are, with gradient zero."""
    none = tf.reduce_all(_impossible(a), axis=0)
    total = tf.reduce_logsumexp(tf.where(none[None], tf.zeros_like(a), a), axis=0)
    return tf.where(none, _never(a), total)


def _never(a: tf.Tensor) -> tf.Tensor:
    return tf.constant(-np.inf, a.dtype)


def _impossible(a: tf.Tensor) -> tf.Tensor:
    return tf.equal(a, _never(a))


def _finite(a: tf.Tensor) -> tf.Tensor:
    return tf.where(_impossible(a), tf.zeros_like(a), a)
