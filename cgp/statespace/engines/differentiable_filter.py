"""The Kalman filter over a series of any length, with its gradient, by a suitable engine.

Compiled ops on a CPU, eagerly and in training, where they were built and do not refuse; else
chunks that XLA compiles; all steps at once on request.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.experimental.numpy import moveaxis

from cgp.linalg.gradients import without_gradient
from cgp.statespace.compiled import CompiledByShape
from cgp.statespace.engines import chunked_engine, native_engine, parallel_engine
from cgp.statespace.engines.backward_pass import ONCE, Cotangents, hermitian
from cgp.statespace.engines.chunked_engine import StateMoments
from cgp.statespace.engines.filter_step import (
    KalmanSystem,
    State,
    System,
    batch_of,
    for_loops,
    from_loops,
)
from cgp.statespace.engines.native_engine import PULLED

Pullback = Callable[[KalmanSystem, Cotangents, State], list[tf.Tensor]]


def computed(
    parallel: bool, natively: Callable[[], Any], in_tensorflow: Callable[[Any], Any]
) -> Any:
    """Computes a filter or a smoother by a suitable engine.

    Compiled ops return None where they cannot be used, or refuse. An engine in TensorFlow is a
    module of functions `log_likelihood`, `moments`, `pullback` and `smooth`.
    """
    result = None if parallel else natively()
    engine = parallel_engine if parallel else chunked_engine
    return in_tensorflow(engine) if result is None else result


def log_likelihood(system: KalmanSystem, parallel: bool = False) -> tf.Tensor:
    """The log likelihood of each series, `[B]`, differentiable once."""

    def cotangents(by_total: tf.Tensor) -> Cotangents:
        return Cotangents(None, None, None, None, by_total[:, None, None])

    return computed(
        parallel,
        lambda: _natively(native_engine.log_likelihood, system),
        lambda engine: _differentiable(engine.log_likelihood, cotangents, engine, system)[0],
    )


def moments(
    system: KalmanSystem, parallel: bool = False, has_gradient: bool = True
) -> StateMoments:
    """The moments of the state at each time, differentiable once by means and covariances.

    Without a gradient the compiled op leaves out covariances, which follow from the factors.
    """

    def cotangents(*by_values: tf.Tensor) -> Cotangents:
        predicted_mean, predicted, filtered_mean, filtered, log_likelihood, *_ = by_values
        by_moments = (predicted_mean, hermitian(predicted), filtered_mean, hermitian(filtered))
        return Cotangents(*by_moments, log_likelihood[..., None])

    return computed(
        parallel,
        lambda: _natively(native_engine.moments if has_gradient else native_engine.factors, system),
        lambda engine: StateMoments(*_differentiable(engine.moments, cotangents, engine, system)),
    )


def _natively(function: Callable[[KalmanSystem], Any], system: KalmanSystem) -> Any:
    """The result of a compiled op, differentiable; None where there is none."""
    return _once_if_shared(function, system) if native_engine.serves(system) else None


def _differentiable(
    function: Callable[[System, State], tuple[Any, State]],
    cotangents: Callable[..., Cotangents],
    engine: Any,
    system: KalmanSystem,
) -> tuple[tf.Tensor, ...]:
    """The values of a function of an engine, with the gradient by the pullback of the engine.

    `cotangents` is a function of the gradients by the values, with the axes of these, `[B, T, …]`
    or `[T, …, B]`; gradients by log likelihoods are `[B, T or 1, 1]`.
    """

    @tf.custom_gradient
    def recursion(*inputs: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Callable[..., Any]]:
        # Without this a tape would record the compiled loops, and XLA store every step of them.
        replaced = system._replace(**dict(zip(PULLED, inputs, strict=True)))
        constant = KalmanSystem(*map(tf.stop_gradient, replaced))
        values, starts = _forward(function)(constant)

        def backward(*by_values: tf.Tensor) -> list[tf.Tensor]:
            pulled = cotangents(*map(tf.stop_gradient, by_values))
            gradients = _backward(engine)(constant, pulled, starts)
            return without_gradient(gradients, inputs, ONCE)

        return tuple(values), backward

    return recursion(*(getattr(system, name) for name in PULLED))


@functools.cache
def _forward(function: Callable[[System, State], tuple[Any, State]]) -> Callable[..., Any]:
    """A function of an engine as a function of a system."""

    def forward(system: KalmanSystem) -> tuple[Any, State]:
        values, starts = function(*for_loops(system))
        if isinstance(values, StateMoments):
            names = ("predicted_means", "filtered_means", "log_likelihoods")
            values = values._replace(**{k: moveaxis(getattr(values, k), -1, 0) for k in names})
        return values, starts

    return _traced_once(functools.partial(_once_if_shared, forward))


@functools.cache
def _backward(engine: Any) -> Callable[..., Any]:
    """The pullback of an engine as a function of a system, cotangents and starts of chunks."""

    def pullback(system: KalmanSystem, by_values: Cotangents, starts: State) -> list[tf.Tensor]:
        of_loops = {
            name: a if a is None or "covariances" in name else moveaxis(a, 0, -1)
            for name, a in by_values._asdict().items()
        }
        of_loops["log_likelihoods"] = of_loops["log_likelihoods"][:, 0]
        gradients = engine.pullback(*for_loops(system), Cotangents(**of_loops), starts)
        return [
            moveaxis(a, -1, 0) if name == "z" else from_loops(a, getattr(system, name))
            for name, a in zip(PULLED, gradients, strict=True)
        ]

    return _traced_once(functools.partial(_pulled_once_if_shared, pullback))


def _traced_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is traced once for each set of shapes, for all graphs that call it.

    Keras traces the first step of a training twice.
    """
    graph = CompiledByShape(function, by_xla=False)
    return lambda *arguments: (function if tf.executing_eagerly() else graph)(*arguments)


# --- one covariance for all series: in a graph this is known only when it runs --------------------


def _with_shared_pattern(system: KalmanSystem) -> tuple[KalmanSystem | None, tf.Tensor | None]:
    """The series with one pattern of missing values, and whether all of them have that pattern.

    Both are None eagerly, where `Series` has compared the patterns.
    """
    matrices = ("F", "Q_factor", "h", "r")
    vary = any(batch_of(system, name) != 1 for name in matrices)
    if tf.executing_eagerly() or vary or batch_of(system, "observed") == 1:
        return None, None
    first = {name: _first(getattr(system, name)) for name in ("observed", "covariance", "chol")}
    return system._replace(**first), tf.reduce_all(system.observed == first["observed"])


def _once_if_shared(function: Callable[[KalmanSystem], Any], system: KalmanSystem) -> Any:
    """The value of a function, with covariances for each series; computed once if shared."""
    once, same = _with_shared_pattern(system)
    if once is None:
        return function(system)
    width = tf.shape(system.z)[0]
    return tf.cond(same, lambda: _widened(function(once), width), lambda: function(system))


def _first(a: tf.Tensor) -> tf.Tensor:
    """The first of a batch, with a batch axis of static size 1."""
    return tf.ensure_shape(a[..., :1], [*a.shape[:-1], 1])


def _widened(values: Any, width: tf.Tensor) -> Any:
    """Moments with the covariances broadcast from one series to all."""
    if isinstance(values, StateMoments | State):
        ends = ("covariances", "chols", "chol")
        shared = {k: a for k, a in values._asdict().items() if k.endswith(ends)}
        for name, a in shared.items():
            wide = tf.broadcast_to(a, tf.concat([tf.shape(a)[:-1], [width]], axis=0))
            shared[name] = tf.ensure_shape(wide, [*a.shape[:-1], None])
        return values._replace(**shared)
    if isinstance(values, tuple):
        return tuple(_widened(a, width) for a in values)
    return values


def _pulled_once_if_shared(
    pullback: Pullback, system: KalmanSystem, pulled: Cotangents, starts: State
) -> list[tf.Tensor]:
    """The gradients of a pullback; cotangents of covariances that are shared are summed."""
    once, same = _with_shared_pattern(system)
    if once is None:
        return pullback(system, pulled, starts)

    def by_sums() -> list[tf.Tensor]:
        summed = pulled
        if pulled.predicted_covariances is not None:
            total = [tf.reduce_sum(pulled[i], axis=-1, keepdims=True) for i in (1, 3)]
            summed = pulled._replace(predicted_covariances=total[0], filtered_covariances=total[1])
        first = starts._replace(chol=_first(starts.chol))
        *gradients, covariance = pullback(once, summed, first)
        # All series share one covariance: the gradient goes to the first, the others get zero.
        shape = tf.concat([tf.shape(covariance)[:-1], [tf.shape(system.z)[0] - 1]], axis=0)
        zeros = tf.zeros(shape, covariance.dtype)
        return [*gradients, tf.concat([covariance, zeros], axis=-1)]

    return tf.cond(same, by_sums, lambda: pullback(system, pulled, starts))
