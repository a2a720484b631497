"""The Kalman filter over a series of any length, with its gradient.

Eagerly and in training, on a CPU, by compiled ops where they were built; else in chunks that XLA
compiles. There the backward pass recomputes each chunk from the state stored before it, so that it
needs only the memory of one chunk beside the results.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from cgp.linalg.gradients import without_gradient
from cgp.statespace import forward_pass, native_filter
from cgp.statespace.backward_pass import DIFFERENTIABLE, Cotangents, StateCotangent, backward_pass
from cgp.statespace.chunks import Chunks
from cgp.statespace.compiled import CompiledByShape
from cgp.statespace.filter_step import State
from cgp.statespace.forward_pass import System


class StateMoments(NamedTuple):
    """The moments of the state at each time, before and after its observation."""

    predicted_means: tf.Tensor
    """`[T, n, B]`."""
    predicted_covariances: tf.Tensor
    """`[T, n, n, B]`, with B = 1 where all series share them."""
    filtered_means: tf.Tensor
    """`[T, n, B]`."""
    filtered_covariances: tf.Tensor
    """`[T, n, n, B]`."""
    log_likelihoods: tf.Tensor
    """Real, `[T, B]`."""
    predicted_chols: tf.Tensor
    """`[T, n, n, B]`. Gradients flow to the covariances, not to the factors."""
    filtered_chols: tf.Tensor
    """`[T, n, n, B]`, also without gradient."""


def log_likelihood(
    system: System, mean: tf.Tensor, covariance: tf.Tensor, chol: tf.Tensor
) -> tf.Tensor:
    """The log likelihood of each series, `[B]`, differentiable once.

    Args:
        system: The system, over all T steps.
        mean: Mean of the state at the first step, `[n, B]`.
        covariance: Its covariance, `[n, n, B]`; B is 1 if all series share covariances.
        chol: Cholesky factor of the covariance, `[n, n, B]`; gradients flow to the covariance.
    """

    def forward(
        chunks: Chunks, system: System, start: State
    ) -> tuple[tuple[tf.Tensor, ...], State]:
        (totals,), starts = _forward(_compiled_likelihood, chunks, system, start, [system.r.dtype])
        return (tf.reduce_sum(totals, axis=0),), starts

    def cotangents(by_total: tf.Tensor) -> Cotangents:
        return Cotangents(None, None, None, None, by_total[None])

    natively = native_filter.log_likelihood
    return _differentiable(forward, natively, cotangents, system, mean, covariance, chol)


def moments(
    system: System, mean: tf.Tensor, covariance: tf.Tensor, chol: tf.Tensor
) -> StateMoments:
    """The moments of the state at each time, differentiable; arguments as for `log_likelihood`."""
    dtype, real = mean.dtype, system.r.dtype

    def forward(
        chunks: Chunks, system: System, start: State
    ) -> tuple[tuple[tf.Tensor, ...], State]:
        dtypes = [*[dtype] * 4, real, dtype, dtype]
        values, starts = _forward(_compiled_moments, chunks, system, start, dtypes)
        return tuple(map(chunks.join, values)), starts

    def cotangents(*by_values: tf.Tensor) -> Cotangents:
        predicted_mean, predicted, filtered_mean, filtered, log_likelihood, *_ = by_values
        by_moments = (predicted_mean, _hermitian(predicted), filtered_mean, _hermitian(filtered))
        return Cotangents(*by_moments, log_likelihood)

    natively = native_filter.moments
    values = _differentiable(forward, natively, cotangents, system, mean, covariance, chol)
    return StateMoments(*values)


def _hermitian(a: tf.Tensor) -> tf.Tensor:
    """The Hermitian part of matrices `[T, n, n, B]`, the only part that acts on a covariance."""
    return 0.5 * (a + tf.math.conj(tf.einsum("tijb->tjib", a)))


def _differentiable(
    forward: Callable[[Chunks, System, State], tuple[tuple[tf.Tensor, ...], State]],
    natively: Callable[[System, State], tuple[tf.Tensor, ...] | None],
    cotangents: Callable[..., Cotangents],
    system: System,
    mean: tf.Tensor,
    covariance: tf.Tensor,
    chol: tf.Tensor,
) -> Any:
    """The values of `forward`, with the gradient of the backward pass.

    Args:
        forward: Function of the chunks, a system and the first state; it returns values, batch
            last, and the states before each chunk.
        natively: Function of a system and the first state, of the same values by a compiled op;
            None where there is none.
        cotangents: Function of the gradients with respect to the values; it returns `Cotangents`.
        system: See `log_likelihood`.
        mean: See `log_likelihood`.
        covariance: See `log_likelihood`.
        chol: See `log_likelihood`.
    """
    inputs = [*(getattr(system, name) for name in DIFFERENTIABLE), mean, covariance]

    @tf.custom_gradient
    def recursion(
        *inputs: tf.Tensor,
    ) -> tuple[tuple[tf.Tensor, ...], Callable[..., list[tf.Tensor]]]:
        # Without this a tape would record the compiled loops, and XLA store every step of them.
        *own, mean, _ = map(tf.stop_gradient, inputs)
        given = system._replace(
            **dict(zip(DIFFERENTIABLE, own, strict=True)),
            Q_factor=tf.stop_gradient(system.Q_factor),
            observed=tf.stop_gradient(system.observed),
        )
        start = State(mean, tf.stop_gradient(chol))
        values, pullback = None, None
        if native_filter.serves(given, start):
            values = _once_if_shared(natively, given, start)
        if values is None:
            values, pullback = _in_chunks(forward, given, start)

        def backward(*by_values: tf.Tensor) -> list[tf.Tensor]:
            pulled = cotangents(*map(tf.stop_gradient, by_values))
            gradients = None
            if pullback is None:
                gradients = _pulled_once_if_shared(native_filter.pullback, given, start, pulled)
            if gradients is None:
                gradients = (pullback or _in_chunks(forward, given, start)[1])(pulled)
            return without_gradient(
                gradients,
                inputs,
                "the filter is differentiable once: take differences of gradients for a Hessian",
            )

        return values, backward

    values = recursion(*inputs)
    return values[0] if isinstance(values, tuple) and len(values) == 1 else values


def _in_chunks(
    forward: Callable[..., Any], system: System, start: State
) -> tuple[tuple[tf.Tensor, ...], Callable[[Cotangents], list[tf.Tensor]]]:
    """The values of `forward`, and their pullback."""
    chunks = chunks_of(system, start.chol)
    values, starts = _once_if_shared(functools.partial(forward, chunks), system, start)

    def pullback(pulled: Cotangents) -> list[tf.Tensor]:
        if pulled.predicted_means is not None:  # else there is one cotangent for all steps
            pulled = Cotangents(*map(chunks.pad, pulled))
        backward = functools.partial(_backward, chunks)
        return _pulled_once_if_shared(backward, system, starts, pulled)

    return values, pullback


# --- one covariance for all series: in a graph this is known only when it runs --------------------


def _with_shared_pattern(system: System) -> tuple[System | None, tf.Tensor | None]:
    """The system with one pattern of missing values, and whether all series have that pattern.

    Both are None where nothing is left to decide: eagerly `Series` has compared the patterns.
    """
    others = (system.F, system.Q_factor, system.h, system.r)
    if (
        tf.executing_eagerly()
        or system.observed.shape[-1] == 1
        or any(a.shape[-1] != 1 for a in others)
    ):
        return None, None
    once = _first(system.observed)
    return system._replace(observed=once), tf.reduce_all(system.observed == once)


def _once_if_shared(function: Callable[[System, State], Any], system: System, start: State) -> Any:
    """Tensors, batch last, of a function of a system and the state before it."""
    once, same = _with_shared_pattern(system)
    if once is None:
        return function(system, start)
    first = State(start.mean, _first(start.chol))
    return tf.cond(
        same,
        lambda: _widened(function(once, first), tf.shape(system.z)[-1]),
        lambda: function(system, start),
    )


def _first(a: tf.Tensor) -> tf.Tensor:
    """The first of a batch, with a batch axis of static size 1."""
    return tf.ensure_shape(a[..., :1], [*a.shape[:-1], 1])


def _widened(values: Any, width: tf.Tensor) -> Any:
    """Tensors, batch last, broadcast from one series to all."""

    def widen(value: tf.Tensor) -> tf.Tensor:
        wide = tf.broadcast_to(value, tf.concat([tf.shape(value)[:-1], [width]], axis=0))
        return tf.ensure_shape(wide, [*value.shape[:-1], None])

    return tf.nest.map_structure(widen, values)


def _pulled_once_if_shared(
    pullback: Callable[[System, State, Cotangents], Any],
    system: System,
    start: State,
    pulled: Cotangents,
) -> Any:
    """The gradients that a pullback finds; cotangents of covariances that are shared are summed."""
    once, same = _with_shared_pattern(system)
    if once is None:
        return pullback(system, start, pulled)

    def by_sums() -> list[tf.Tensor]:
        summed = pulled
        if pulled.predicted_covariances is not None:
            total = [tf.reduce_sum(pulled[i], axis=-1, keepdims=True) for i in (1, 3)]
            summed = pulled._replace(predicted_covariances=total[0], filtered_covariances=total[1])
        first = State(start.mean, _first(start.chol))
        *gradients, covariance = pullback(once, first, summed)
        # All series share one covariance: the gradient goes to the first, the others get zero.
        others = tf.concat([tf.shape(covariance)[:-1], [tf.shape(system.z)[-1] - 1]], axis=0)
        rest = tf.zeros(others, covariance.dtype)
        return [*gradients, tf.concat([covariance, rest], axis=-1)]

    return tf.cond(same, by_sums, lambda: pullback(system, start, pulled))


# --- over the chunks ------------------------------------------------------------------------------


def chunks_of(system: System, chol: tf.Tensor) -> Chunks:
    """The chunks of a series; their length depends on the size of the model and of the batch."""
    known = system.z.shape[0]
    n, columns, matrices = system.F.shape[1], system.z.shape[-1], chol.shape[-1]
    width = n * max(n * (matrices or 1), columns or 1)
    return Chunks(tf.shape(system.z)[0] if known is None else known, width)


def _forward(
    function: Callable[..., Any],
    chunks: Chunks,
    system: System,
    start: State,
    dtypes: Sequence[tf.DType],
) -> tuple[list[tf.Tensor], State]:
    """Runs a compiled function over all chunks.

    Returns:
        The values of all chunks, and the states before them, each stacked over the chunks.
    """
    system = chunks.pad_varying(system, always=("z",))

    def step(k: tf.Tensor, state: State) -> tuple[list[tf.Tensor], State]:
        values, after = function(chunks.cut(system, k), state, chunks.steps_of(k))
        return [*state, *values], after

    kept = [start.mean.dtype, start.chol.dtype, *dtypes]
    (means, chols, *values), _ = chunks.loop(step, start, kept)
    return values, State(means, chols)


def _backward(
    chunks: Chunks, system: System, starts: State, cotangents: Cotangents
) -> list[tf.Tensor]:
    """Gradients with respect to the inputs of a system, and to the initial mean and covariance."""
    padded = chunks.pad_varying(system, always=("z",))

    def step(k: tf.Tensor, by_state: StateCotangent) -> tuple[list[tf.Tensor], StateCotangent]:
        before = State(*(tf.ensure_shape(a[k], a.shape[1:]) for a in starts))
        return _compiled_backward(
            chunks.cut(padded, k), before, chunks.steps_of(k), chunks.cut(cotangents, k), by_state
        )

    end = StateCotangent(tf.zeros_like(starts.mean[0]), tf.zeros_like(starts.chol[0]))
    inputs = {name: getattr(system, name) for name in DIFFERENTIABLE}
    gradients, first = chunks.loop(step, end, [a.dtype for a in inputs.values()], backwards=True)
    constant = {name: value.shape[0] == 1 and name != "z" for name, value in inputs.items()}
    total = [
        tf.reduce_sum(gradient, axis=0) if constant[name] else chunks.join(gradient)
        for name, gradient in zip(inputs, gradients, strict=True)
    ]
    return [*total, *first]


def _likelihood(system: System, state: State, length: tf.Tensor) -> tuple[tuple[tf.Tensor], State]:
    total, after = forward_pass.log_likelihood(system, state, length)
    return (total,), after


def _moments(system: System, state: State, length: tf.Tensor) -> tuple[StateMoments, State]:
    found, after = forward_pass.forward_pass(system, state, length)
    values = StateMoments(
        found.predicted_means,
        forward_pass.covariances(found.predicted_chols),
        found.filtered_means,
        forward_pass.covariances(found.filtered_chols),
        found.log_likelihoods,
        found.predicted_chols,
        found.filtered_chols,
    )
    return values, after


_compiled_likelihood = CompiledByShape(_likelihood)
_compiled_moments = CompiledByShape(_moments)
_compiled_backward = CompiledByShape(backward_pass)
