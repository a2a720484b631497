"""The Kalman filter over a series of any length and its pullback, in chunks that XLA compiles.

The backward pass recomputes each chunk from the state stored before it, so that it needs only the
memory of one chunk beside the results.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.experimental.numpy import moveaxis

from cgp.statespace.compiled import CompiledByShape
from cgp.statespace.engines import forward_pass
from cgp.statespace.engines.backward_pass import (
    DIFFERENTIABLE,
    Cotangents,
    StateCotangent,
    backward_pass,
)
from cgp.statespace.engines.chunked_scan import Chunks
from cgp.statespace.engines.filter_step import State
from cgp.statespace.engines.forward_pass import System
from cgp.statespace.engines.kalman_system import Arranged, for_loops, from_loops


class StateMoments(NamedTuple):
    """The moments of the state at each time, before and after its observation."""

    predicted_means: tf.Tensor
    """`[B, T, n]`."""
    predicted_covariances: tf.Tensor
    """`[T, n, n, B]`, with B = 1 where all series share them."""
    filtered_means: tf.Tensor
    """`[B, T, n]`."""
    filtered_covariances: tf.Tensor
    """`[T, n, n, B]`."""
    log_likelihoods: tf.Tensor
    """Real, `[B, T]`."""
    predicted_chols: tf.Tensor
    """`[T, n, n, B]`. Gradients flow to the covariances, not to the factors."""
    filtered_chols: tf.Tensor
    """`[T, n, n, B]`, also without gradient."""


def check_possible(found: StateMoments) -> None:
    """Raises, eagerly, where an observation contradicts a prediction without uncertainty.

    What follows in the state after it is of no model. Only the likelihood, zero, has a meaning.
    """
    if not tf.executing_eagerly() or not np.isfinite(found.predicted_chols).all():
        return
    impossible = np.isneginf(found.log_likelihoods)
    if impossible.any():
        *series, step = map(int, np.argwhere(impossible)[0])
        of_series = f" of series {series[0] if len(series) == 1 else series}" if series else ""
        raise ValueError(
            f"the observation at step {step}{of_series} is impossible: the model predicts another, "
            "and leaves no room for it, as R and the covariance of the state are zero there, or "
            "next to nothing beside the difference. Give R or Q a variance, or mark it missing"
        )


def log_likelihood(given: Arranged) -> tuple[tuple[tf.Tensor], State]:
    """The log likelihood of each series, `[B]`, and the states before each chunk."""
    system, start = for_loops(given)
    real = system.r.dtype
    (totals,), starts = _forward(
        _compiled_likelihood, chunks_of(system, start), system, start, [real]
    )
    return (tf.reduce_sum(totals, axis=0),), starts


def moments(given: Arranged) -> tuple[StateMoments, State]:
    """The moments of the state, and the states before each chunk."""
    system, start = for_loops(given)
    chunks, dtype = chunks_of(system, start), start.mean.dtype
    dtypes = [*[dtype] * 4, system.r.dtype, dtype, dtype]
    values, starts = _forward(_compiled_moments, chunks, system, start, dtypes)
    found = StateMoments(*map(chunks.join, values))
    by_series = {
        name: moveaxis(getattr(found, name), -1, 0)
        for name in ("predicted_means", "filtered_means", "log_likelihoods")
    }
    return found._replace(**by_series), starts


def pullback(given: Arranged, cotangents: Cotangents, starts: State) -> list[tf.Tensor]:
    """Gradients by the parts in `DIFFERENTIABLE`, the first mean and the first covariance.

    Args:
        given: The series.
        cotangents: Arranged as `StateMoments` are; those of log likelihoods, `[B, T or 1, 1]`.
        starts: The states before each chunk, as the functions above return them.
    """
    system, start = for_loops(given)
    chunks = chunks_of(system, start)
    by_values = Cotangents(
        *(
            value if value is None or "covariances" in name else moveaxis(value, 0, -1)
            for name, value in cotangents._asdict().items()
        )
    )
    by_values = by_values._replace(log_likelihoods=by_values.log_likelihoods[:, 0])
    if by_values.predicted_means is not None:  # else there is one cotangent for all steps
        by_values = Cotangents(*map(chunks.pad, by_values))
    gradients = _backward(chunks, system, starts, by_values)
    names = (*DIFFERENTIABLE, "mean", "covariance")
    return [
        moveaxis(gradient, -1, 0) if name == "z" else from_loops(gradient, getattr(given, name))
        for name, gradient in zip(names, gradients, strict=True)
    ]


def chunks_of(system: System, start: State) -> Chunks:
    """The chunks of a series; their length depends on the size of the model and of the batch."""
    known = system.z.shape[0]
    n, columns, matrices = system.F.shape[1], system.z.shape[-1], start.chol.shape[-1]
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
