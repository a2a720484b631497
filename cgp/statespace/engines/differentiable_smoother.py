"""The smoother over a series of any length, with its gradient, by the engine that serves."""

from collections.abc import Callable, Sequence

import tensorflow as tf
from tensorflow.experimental.numpy import moveaxis

from cgp.linalg.batch_last import adjoint, matmul
from cgp.linalg.gradients import without_gradient
from cgp.statespace.engines import differentiable_filter, native_engine
from cgp.statespace.engines.choice import Engine, computed
from cgp.statespace.engines.chunked_filter import check_possible
from cgp.statespace.engines.filter_step import State
from cgp.statespace.engines.kalman_system import KalmanSystem, for_loops, from_loops
from cgp.statespace.engines.parallel_scan import over_steps
from cgp.statespace.engines.smoother_gradient import SmootherInputs, SmootherMoments, pullback

ONCE = "the smoother is differentiable once: take differences of gradients for a Hessian"
"""The answer to a second derivative."""


def moments(system: KalmanSystem, parallel: bool = False) -> list[tf.Tensor]:
    """The moments of each state given all observations, differentiable once.

    Returns:
        Means `[B, T, n]`; covariances, lag-one covariances, gains, and factors of the covariances,
        `[T, n, n, B]`. The last lag-one covariance and the last gain have no meaning, and the
        factors no gradient.
    """
    filtered = differentiable_filter.moments(system, parallel)
    check_possible(filtered)
    means, covariances = filtered.filtered_means, filtered.filtered_covariances
    constant = State(*map(tf.stop_gradient, (means, filtered.filtered_chols)))
    result = computed(
        parallel,
        lambda: native_engine.smooth(system, *constant),
        lambda engine: _in_tensorflow(engine, system, constant),
    )
    smoothed_means, chols, lags, gains = map(tf.stop_gradient, result)
    smoothed = tf.einsum("tikb,tjkb->tijb", chols, tf.math.conj(chols))
    values = [smoothed_means, smoothed, lags, gains]

    @tf.custom_gradient
    def with_pullback(*inputs: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list[tf.Tensor]]]:
        def backward(*by_values: tf.Tensor) -> list[tf.Tensor]:
            gradients = _pulled_back(system, constant, inputs, values, by_values)
            return without_gradient(gradients, inputs, ONCE)

        return list(map(tf.identity, values)), backward

    return [*with_pullback(system.F, system.Q, system.b, means, covariances), chols]


def _in_tensorflow(engine: Engine, system: KalmanSystem, filtered: State) -> list[tf.Tensor]:
    """Means `[B, T, n]`; factors, lag-one covariances and gains, `[T, n, n, B]`."""
    constant = KalmanSystem(*map(tf.stop_gradient, system))
    states = State(moveaxis(filtered.mean, 0, -1), filtered.chol)
    means, *of_covariances = engine.smooth(*for_loops(constant), states)
    return [moveaxis(means, -1, 0), *of_covariances]


def _pulled_back(
    system: KalmanSystem,
    filtered: State,
    inputs: Sequence[tf.Tensor],
    values: Sequence[tf.Tensor],
    by_values: Sequence[tf.Tensor],
) -> list[tf.Tensor]:
    """The gradients by F, Q, b and the filtered means and covariances, shaped like these."""
    constant = over_steps(for_loops(KalmanSystem(*map(tf.stop_gradient, system)))[0])
    means, chols = over_steps(State(moveaxis(filtered.mean, 0, -1), filtered.chol))
    covariances = matmul(chols, adjoint(chols))
    smoothed = SmootherInputs(constant.F, constant.Q, constant.b, means, covariances)
    spread = matmul(constant.F, chols)
    roots = tf.concat([spread, constant.Q_factor + tf.zeros_like(spread[:, :1])], axis=1)
    moments, cotangents = (
        over_steps(SmootherMoments(moveaxis(means, 0, -1), *of_covariances))
        for means, *of_covariances in (values, by_values)
    )
    gradients = pullback(smoothed, roots, moments, cotangents)
    F, Q, b, means, covariances = (moveaxis(a, -2, 0) for a in gradients)
    shaped = [from_loops(a, like) for a, like in zip((F, Q, b), inputs[:3], strict=True)]
    return [*shaped, moveaxis(means, -1, 0), covariances]
