"""The Kalman filter over a series of any length, with its gradient.

Eagerly and in training, on a CPU, by compiled ops where they were built; else in chunks that XLA
compiles; or all steps at once, where that is asked for.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from cgp.linalg.gradients import without_gradient
from cgp.statespace.engines import chunked_filter as filter_in_chunks
from cgp.statespace.engines import native_filter, parallel_filter, parallel_gradient
from cgp.statespace.engines.backward_pass import DIFFERENTIABLE, ONCE, Cotangents, hermitian
from cgp.statespace.engines.chunked_filter import StateMoments
from cgp.statespace.engines.filter_step import State
from cgp.statespace.engines.kalman_system import Arranged, batch_of

Pullback = Callable[[Arranged, Cotangents, State], list[tf.Tensor]]


class _Engine(NamedTuple):
    """What computes a filter and its gradient in TensorFlow."""

    log_likelihood: Callable[[Arranged], tuple[tuple[tf.Tensor], State]]
    moments: Callable[[Arranged], tuple[StateMoments, State]]
    pullback: Pullback


_IN_CHUNKS = _Engine(
    filter_in_chunks.log_likelihood, filter_in_chunks.moments, filter_in_chunks.pullback
)
_PARALLEL = _Engine(
    parallel_filter.log_likelihood, parallel_filter.moments, parallel_gradient.pullback
)


def log_likelihood(given: Arranged, parallel: bool = False) -> tf.Tensor:
    """The log likelihood of each series, `[B]`, differentiable once.

    Args:
        given: The series.
        parallel: Whether to compute all steps at once, by `cgp.statespace.engines.parallel_filter`.
    """

    def cotangents(by_total: tf.Tensor) -> Cotangents:
        return Cotangents(None, None, None, None, by_total[:, None, None])

    found = None if parallel else _natively(native_filter.log_likelihood, given)
    if found is not None:
        return found
    engine = _PARALLEL if parallel else _IN_CHUNKS
    return _differentiable(engine.log_likelihood, cotangents, engine.pullback, given)[0]


def moments(given: Arranged, parallel: bool = False) -> StateMoments:
    """The moments of the state at each time, differentiable once by means and covariances.

    Args:
        given: The series.
        parallel: As for `log_likelihood`.
    """

    def cotangents(*by_values: tf.Tensor) -> Cotangents:
        predicted_mean, predicted, filtered_mean, filtered, log_likelihood, *_ = by_values
        by_moments = (predicted_mean, hermitian(predicted), filtered_mean, hermitian(filtered))
        return Cotangents(*by_moments, log_likelihood[..., None])

    found = None if parallel else _natively(native_filter.moments, given)
    if found is not None:
        return found
    engine = _PARALLEL if parallel else _IN_CHUNKS
    return StateMoments(*_differentiable(engine.moments, cotangents, engine.pullback, given))


def _natively(function: Callable[[Arranged], Any], given: Arranged) -> Any:
    """What a compiled op finds, differentiable; None where there is none."""
    return _once_if_shared(function, given) if native_filter.serves(given) else None


def _differentiable(
    forward: Callable[[Arranged], tuple[Any, State]],
    cotangents: Callable[..., Cotangents],
    pullback: Pullback,
    given: Arranged,
) -> tuple[tf.Tensor, ...]:
    """What a function finds, with the gradient of its pullback.

    Args:
        forward: Returns values, and the states that the pullback starts from.
        cotangents: Function of the gradients with respect to the values; it returns `Cotangents`.
        pullback: Function of series, cotangents and those states; it returns the gradients by the
            parts in `DIFFERENTIABLE`, the first mean and the first covariance.
        given: The series.
    """
    names = (*DIFFERENTIABLE, "mean", "covariance")

    @tf.custom_gradient
    def recursion(
        *inputs: tf.Tensor,
    ) -> tuple[tuple[tf.Tensor, ...], Callable[..., list[tf.Tensor]]]:
        # Without this a tape would record the compiled loops, and XLA store every step of them.
        replaced = given._replace(**dict(zip(names, inputs, strict=True)))
        own = Arranged(*map(tf.stop_gradient, replaced))
        values, starts = _once_if_shared(forward, own)

        def backward(*by_values: tf.Tensor) -> list[tf.Tensor]:
            pulled = cotangents(*map(tf.stop_gradient, by_values))
            gradients = _pulled_once_if_shared(pullback, own, pulled, starts)
            return without_gradient(gradients, inputs, ONCE)

        return tuple(values), backward

    return recursion(*(getattr(given, name) for name in names))


# --- one covariance for all series: in a graph this is known only when it runs --------------------


def _with_shared_pattern(given: Arranged) -> tuple[Arranged | None, tf.Tensor | None]:
    """The series with one pattern of missing values, and whether all of them have that pattern.

    Both are None where nothing is left to decide: eagerly `Series` has compared the patterns.
    """
    others = ("F", "Q_factor", "h", "r")
    if (
        tf.executing_eagerly()
        or batch_of(given, "observed") == 1
        or any(batch_of(given, name) != 1 for name in others)
    ):
        return None, None
    first = {name: _first(getattr(given, name)) for name in ("observed", "covariance", "chol")}
    return given._replace(**first), tf.reduce_all(given.observed == first["observed"])


def _once_if_shared(function: Callable[[Arranged], Any], given: Arranged) -> Any:
    """What a function finds, with covariances of each series."""
    once, same = _with_shared_pattern(given)
    if once is None:
        return function(given)
    width = tf.shape(given.z)[0]
    return tf.cond(same, lambda: _widened(function(once), width), lambda: function(given))


def _first(a: tf.Tensor) -> tf.Tensor:
    """The first of a batch, with a batch axis of static size 1."""
    return tf.ensure_shape(a[..., :1], [*a.shape[:-1], 1])


_SHARED = {name for name in StateMoments._fields if name.endswith(("covariances", "chols"))} | {
    "chol"
}


def _widened(values: Any, width: tf.Tensor) -> Any:
    """What was found, with the covariances broadcast from one series to all."""
    if isinstance(values, StateMoments | State):
        widened = {
            name: _broadcast(value, width) if name in _SHARED else value
            for name, value in values._asdict().items()
        }
        return type(values)(**widened)
    if isinstance(values, tuple):
        return tuple(_widened(value, width) for value in values)
    return values


def _broadcast(a: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    wide = tf.broadcast_to(a, tf.concat([tf.shape(a)[:-1], [width]], axis=0))
    return tf.ensure_shape(wide, [*a.shape[:-1], None])


def _pulled_once_if_shared(
    pullback: Pullback, given: Arranged, pulled: Cotangents, starts: State
) -> list[tf.Tensor]:
    """The gradients of a pullback; cotangents of covariances that are shared are summed."""
    once, same = _with_shared_pattern(given)
    if once is None:
        return pullback(given, pulled, starts)

    def by_sums() -> list[tf.Tensor]:
        summed = pulled
        if pulled.predicted_covariances is not None:
            total = [tf.reduce_sum(pulled[i], axis=-1, keepdims=True) for i in (1, 3)]
            summed = pulled._replace(predicted_covariances=total[0], filtered_covariances=total[1])
        first = starts._replace(chol=_first(starts.chol))
        *gradients, covariance = pullback(once, summed, first)
        # All series share one covariance: the gradient goes to the first, the others get zero.
        others = tf.concat([tf.shape(covariance)[:-1], [tf.shape(given.z)[0] - 1]], axis=0)
        rest = tf.zeros(others, covariance.dtype)
        return [*gradients, tf.concat([covariance, rest], axis=-1)]

    return tf.cond(same, by_sums, lambda: pullback(given, pulled, starts))
