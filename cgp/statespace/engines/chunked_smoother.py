"""The smoother over a series of any length, in chunks that XLA compiles."""

import tensorflow as tf

from cgp.linalg.batch_last import adjoint, matmul, matvec, triangularize
from cgp.statespace.compiled import CompiledByShape
from cgp.statespace.engines.chunked_filter import chunks_of
from cgp.statespace.engines.filter_step import State, predict
from cgp.statespace.engines.forward_pass import System
from cgp.statespace.engines.smoother_gains import Steps, smoother_gains


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
    steps = Steps(system.F, system.Q_factor, system.b, *filtered)
    chunks = chunks_of(system, start)
    padded = chunks.pad_varying(steps, always=("means", "chols"))

    def step(k: tf.Tensor, later: State) -> tuple[list[tf.Tensor], State]:
        return _compiled_smooth(chunks.cut(padded, k), later, chunks.steps_of(k))

    # Starts from the state predicted after the end, so the last smoothed state is the filtered one.
    after = _compiled_predict(Steps(*(a[-1:] for a in steps)))
    values, _ = chunks.loop(step, after, [steps.means.dtype] * 4, backwards=True)
    return list(map(chunks.join, values))


def _smooth_chunk(steps: Steps, later: State, length: tf.Tensor) -> tuple[list[tf.Tensor], State]:
    """Smooths the first `length` steps of a chunk, given the smoothed state after them."""
    gains, roots, predicted = smoother_gains(steps)
    size, n = gains.shape[:2]
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


def _predict_after(last: Steps) -> State:
    """The state predicted after the last step."""
    state = State(last.means[0], last.chols[0])
    return predict(state, last.F[0], last.Q_factor[0], last.b[0])


_compiled_smooth = CompiledByShape(_smooth_chunk)
_compiled_predict = CompiledByShape(_predict_after)
