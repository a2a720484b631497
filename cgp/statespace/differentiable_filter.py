"""The Kalman filter over a series of any length, with its gradient, in compiled blocks.

Backwards, each block is gone through again from the state kept before it, so that the memory beside
the results is that of one block.
"""

from typing import NamedTuple

import tensorflow as tf

from cgp.linalg.gradients import without_gradient
from cgp.statespace import forward_pass
from cgp.statespace.backward_pass import DIFFERENTIABLE, Cotangents, StateCotangent, pull_back
from cgp.statespace.chunks import Chunks, CompiledByShape
from cgp.statespace.forward_pass import State, System


class StateMoments(NamedTuple):
    """What the filter knows of the state at each time; time first, batch last."""

    predicted_means: tf.Tensor
    """`[T, n, B]`."""
    predicted_covariances: tf.Tensor
    """`[T, n, n, B]`, B being 1 where all series share them."""
    filtered_means: tf.Tensor
    """`[T, n, B]`."""
    filtered_covariances: tf.Tensor
    """`[T, n, n, B]`."""
    log_likelihoods: tf.Tensor
    """Real, `[T, B]`."""
    predicted_chols: tf.Tensor
    """`[T, n, n, B]`. No gradient flows to the factors: it flows to the covariances."""
    filtered_chols: tf.Tensor
    """`[T, n, n, B]`, likewise."""


def log_likelihood(system: System, mean, covariance, chol) -> tf.Tensor:
    """The log likelihood of each series, `[B]`, differentiable once.

    Args:
        system: The system, over all T steps.
        mean: Of the state at the first step, `[n, B]`.
        covariance: `[n, n, B]`, of the batch that all covariances have: 1, or that of the series.
        chol: A factor of it; gradients go to the covariance.
    """

    def forth(blocks: Chunks, system: System, start: State):
        (totals,), starts = _forth(likelihood_block, blocks, system, start, [system.r.dtype])
        return (tf.reduce_sum(totals, axis=0),), starts

    def pulls(blocks: Chunks, by_total):
        return Cotangents(None, None, None, None, by_total[None])

    return _differentiable(forth, pulls, system, mean, covariance, chol)


def moments(system: System, mean, covariance, chol) -> StateMoments:
    """The moments of the state at each time, differentiable; arguments as for `log_likelihood`."""
    dtype, real = mean.dtype, system.r.dtype

    def forth(blocks: Chunks, system: System, start: State):
        dtypes = [*[dtype] * 4, real, dtype, dtype]
        values, starts = _forth(moments_block, blocks, system, start, dtypes)
        return tuple(map(blocks.join, values)), starts

    def pulls(blocks: Chunks, *by_values):
        means, covariances = by_values[0:3:2], map(_hermitian, by_values[1:4:2])
        pulls = Cotangents(means[0], next(covariances), means[1], next(covariances), by_values[4])
        return Cotangents(*map(blocks.pad, pulls))

    return StateMoments(*_differentiable(forth, pulls, system, mean, covariance, chol))


def _hermitian(a: tf.Tensor) -> tf.Tensor:
    """The Hermitian part of matrices `[T, n, n, B]`: all that a covariance can follow."""
    return 0.5 * (a + tf.math.conj(tf.einsum("tijb->tjib", a)))


def _differentiable(forth, pulls, system: System, mean, covariance, chol):
    """What `forth` computes, with the gradient of the second recursion.

    Args:
        forth: Function of the blocks, a system and the first carry, that returns values, batch
            last, and the carries before each block.
        pulls: Function of the blocks and of gradients by the values, that returns `Cotangents`.
        system: See `log_likelihood`.
        mean: Likewise.
        covariance: Likewise.
        chol: Likewise.
    """
    blocks = blocks_of(system, chol)
    inputs = [*(getattr(system, name) for name in DIFFERENTIABLE), mean, covariance]

    @tf.custom_gradient
    def recursion(*inputs):
        # A tape that saw into the compiled loops would have XLA keep every step of them.
        *own, mean, _ = map(tf.stop_gradient, inputs)
        given = system._replace(
            **dict(zip(DIFFERENTIABLE, own, strict=True)),
            G=tf.stop_gradient(system.G),
            observed=tf.stop_gradient(system.observed),
        )
        start = State(mean, tf.stop_gradient(chol))
        once, same = _shared(given)
        if once is None:
            values, starts = forth(blocks, given, start)
        else:
            first = State(mean, _first(start.chol))
            values, starts = tf.cond(
                same,
                lambda: _widened(forth(blocks, once, first), tf.shape(given.z)[-1]),
                lambda: forth(blocks, given, start),
            )

        def backward(*by_values):
            pulled = pulls(blocks, *map(tf.stop_gradient, by_values))
            if once is None:
                gradients = _back(blocks, given, starts, pulled)
            else:
                gradients = tf.cond(
                    same,
                    lambda: _back_once(blocks, once, starts, pulled),
                    lambda: _back(blocks, given, starts, pulled),
                )
            return without_gradient(
                gradients,
                inputs,
                "the filter is differentiable once: take differences of gradients for a Hessian",
            )

        return values, backward

    values = recursion(*inputs)
    return values[0] if isinstance(values, tuple) and len(values) == 1 else values


# --- one covariance for all series, in a graph, where that is seen only when it runs -------------


def _shared(system: System) -> tuple[System | None, tf.Tensor | None]:
    """The system with one pattern of what is missing, and whether it is that of all series.

    None where all is settled: eagerly the caller has seen to it.
    """
    others = (system.F, system.G, system.h, system.r)
    if (
        tf.executing_eagerly()
        or system.observed.shape[-1] == 1
        or any(a.shape[-1] != 1 for a in others)
    ):
        return None, None
    once = _first(system.observed)
    return system._replace(observed=once), tf.reduce_all(system.observed == once)


def _first(a: tf.Tensor) -> tf.Tensor:
    """The first of a batch, with an axis of 1 that is known to be one."""
    return tf.ensure_shape(a[..., :1], [*a.shape[:-1], 1])


def _widened(values, width: tf.Tensor):
    """Tensors, batch last, with what all series share written out for each."""

    def widen(value):
        wide = tf.broadcast_to(value, tf.concat([tf.shape(value)[:-1], [width]], axis=0))
        return tf.ensure_shape(wide, [*value.shape[:-1], None])

    return tf.nest.map_structure(widen, values)


def _back_once(blocks: Chunks, once: System, starts: State, pulls: Cotangents) -> list[tf.Tensor]:
    """As `_back`, of series that share their covariances, written out for each."""
    if pulls.predicted_covariances is not None:
        total = [tf.reduce_sum(pulls[i], axis=-1, keepdims=True) for i in (1, 3)]
        pulls = pulls._replace(predicted_covariances=total[0], filtered_covariances=total[1])
    *gradients, covariance = _back(blocks, once, State(starts.mean, _first(starts.chol)), pulls)
    # To the first of as many equal ones.
    rest = tf.zeros_like(starts.chol[0][..., 1:])
    return [*gradients, tf.concat([covariance, rest], axis=-1)]


# --- over the blocks ------------------------------------------------------------------------------


def blocks_of(system: System, chol: tf.Tensor) -> Chunks:
    """The blocks of a series; of a length that its sizes, and not its length, decide."""
    known = system.z.shape[0]
    n, columns, matrices = system.F.shape[1], system.z.shape[-1], chol.shape[-1]
    width = n * max(n * (matrices or 1), columns or 1)
    return Chunks(tf.shape(system.z)[0] if known is None else known, width)


def _forth(function, blocks: Chunks, system: System, start: State, dtypes):
    """Runs a compiled function over all blocks.

    Returns:
        What it gives of each, stacked; and the carries before each, stacked.
    """
    system = blocks.pad_varying(system, always=("z",))

    def step(k, carry):
        values, after = function(blocks.cut(system, k), carry, blocks.steps_of(k))
        return [*carry, *values], after

    kept = [start.mean.dtype, start.chol.dtype, *dtypes]
    (means, chols, *values), _ = blocks.loop(step, start, kept)
    return values, State(means, chols)


def _back(blocks: Chunks, system: System, starts: State, pulls: Cotangents) -> list[tf.Tensor]:
    """Gradients by the inputs of a system, and by the mean and the covariance before it."""
    padded = blocks.pad_varying(system, always=("z",))

    def step(k, back):
        before = State(*(tf.ensure_shape(a[k], a.shape[1:]) for a in starts))
        return pull_back_block(
            blocks.cut(padded, k), before, blocks.steps_of(k), blocks.cut(pulls, k), back
        )

    end = StateCotangent(tf.zeros_like(starts.mean[0]), tf.zeros_like(starts.chol[0]))
    inputs = {name: getattr(system, name) for name in DIFFERENTIABLE}
    gradients, back = blocks.loop(step, end, [a.dtype for a in inputs.values()], backwards=True)
    constant = {name: value.shape[0] == 1 and name != "z" for name, value in inputs.items()}
    total = [
        tf.reduce_sum(gradient, axis=0) if constant[name] else blocks.join(gradient)
        for name, gradient in zip(inputs, gradients, strict=True)
    ]
    return [*total, *back]


def _likelihood(system: System, carry: State, length):
    total, after = forward_pass.likelihood(system, carry, length)
    return (total,), after


def _moments(system: System, carry: State, length):
    track, after = forward_pass.track(system, carry, length)
    values = StateMoments(
        track.predicted_means,
        forward_pass.covariances(track.predicted_chols),
        track.filtered_means,
        forward_pass.covariances(track.filtered_chols),
        track.log_likelihoods,
        track.predicted_chols,
        track.filtered_chols,
    )
    return values, after


likelihood_block = CompiledByShape(_likelihood)
moments_block = CompiledByShape(_moments)
pull_back_block = CompiledByShape(pull_back)
