"""The smoother over a series of any length, in chunks that XLA compiles."""

from typing import NamedTuple

import tensorflow as tf

from cgp.linalg.batch_last import adjoint, divide, matmul, matvec, triangularize
from cgp.statespace.compiled import CompiledByShape
from cgp.statespace.engines.chunked_filter import chunks_of
from cgp.statespace.engines.filter_step import State, predict
from cgp.statespace.engines.forward_pass import System


def smoother_gains(
    F: tf.Tensor, Q_factor: tf.Tensor, chols: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The gains J, and factors Y of the covariances that they leave, for all steps at once.

    Args:
        F: The transitions, `[n, n, T, B]`, as all arrays here.
        Q_factor: Factors of the covariances of their noise.
        chols: Factors of the filtered covariances.
    """
    spread = matmul(F, chols)
    noise = Q_factor + tf.zeros_like(spread[:, :1])
    upper = tf.concat([spread, noise], axis=1)
    lower = tf.concat([chols + tf.zeros_like(spread), tf.zeros_like(noise)], axis=1)
    joint = triangularize(tf.concat([upper, lower], axis=0))
    n = chols.shape[0]
    return divide(joint[n:, :n], joint[:n, :n]), joint[n:, n:]


class _Steps(NamedTuple):
    """The transition of each step, as in `System`, and the filtered moments before it."""

    F: tf.Tensor
    Q_factor: tf.Tensor
    b: tf.Tensor
    means: tf.Tensor
    """`[T, n, B]`."""
    chols: tf.Tensor
    """`[T, n, n, B]`."""


def smooth(system: System, start: State, filtered: State) -> list[tf.Tensor]:
    """The moments of each state given all observations.

    Args:
        system: The system.
        start: The state before the first step.
        filtered: The filtered moments, `[T, n, B]` and `[T, n, n, B]`.

    Returns:
        Means, `[T, n, B]`; factors, lag-one covariances and gains, `[T, n, n, B]`, of which the
        last lag-one covariance and the last gain are not meaningful.
    """
    steps = _Steps(system.F, system.Q_factor, system.b, *filtered)
    chunks = chunks_of(system, start)
    padded = chunks.pad_varying(steps, always=("means", "chols"))

    def step(k: tf.Tensor, later: State) -> tuple[list[tf.Tensor], State]:
        return _compiled_smooth(chunks.cut(padded, k), later, chunks.steps_of(k))

    # Starts from the state predicted after the end, so the last smoothed state is the filtered one.
    after = _compiled_predict(_Steps(*(a[-1:] for a in steps)))
    values, _ = chunks.loop(step, after, [steps.means.dtype] * 4, backwards=True)
    return list(map(chunks.join, values))


def _smooth_chunk(steps: _Steps, later: State, length: tf.Tensor) -> tuple[list[tf.Tensor], State]:
    """Smooths the first `length` steps of a chunk, given the smoothed state after them."""
    matrices = (tf.einsum("tijb->ijtb", a) for a in (steps.F, steps.Q_factor, steps.chols))
    gains, roots = (tf.einsum("ijtb->tijb", a) for a in smoother_gains(*matrices))
    size, n = gains.shape[:2]
    columns = zip(tf.unstack(steps.F, axis=2), tf.split(steps.means, n, axis=1), strict=True)
    predicted = sum(column * mean for column, mean in columns) + steps.b
    shapes = ([n, later.mean.shape[-1]], *[[n, n, later.chol.shape[-1]]] * 2)
    arrays = [tf.TensorArray(later.mean.dtype, size, element_shape=shape) for shape in shapes]

    def step(
        t: tf.Tensor, later: State, arrays: list[tf.TensorArray]
    ) -> tuple[tf.Tensor, State, list[tf.TensorArray]]:
        mean = steps.means[t] + matvec(gains[t], later.mean - predicted[t])
        spread = matmul(gains[t], later.chol)
        chol = triangularize(tf.concat([spread, roots[t]], axis=1))
        values = (mean, chol, matmul(later.chol, adjoint(spread)))
        arrays = [array.write(t, a) for array, a in zip(arrays, values, strict=True)]
        return t - 1, State(mean, chol), arrays

    loop = (length - 1, later, arrays)
    _, later, arrays = tf.while_loop(lambda t, *_: t >= 0, step, loop)
    return [*(array.stack() for array in arrays), gains], later


def _predict_after(last: _Steps) -> State:
    """The state predicted after the last step."""
    state = State(last.means[0], last.chols[0])
    return predict(state, last.F[0], last.Q_factor[0], last.b[0])


_compiled_smooth = CompiledByShape(_smooth_chunk)
_compiled_predict = CompiledByShape(_predict_after)
