"""The Kalman filter and smoother over a series of any length, in chunks that XLA compiles.

The length of a chunk depends on the sizes of the model alone, and the last chunk is padded. XLA
compiles once for each shape, so a series of another length needs no further compilation. The
backward pass recomputes each chunk from the state stored before it, so that it needs only the
memory of one chunk beside the results.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.linalg.batch_last import adjoint, divide, matmul, matvec, triangularize
from cgp.statespace.compiled import CompiledByShape, time_loop
from cgp.statespace.engines import filter_step
from cgp.statespace.engines.backward_pass import (
    DIFFERENTIABLE,
    Cotangents,
    StateCotangent,
    backward_pass,
)
from cgp.statespace.engines.filter_step import State, System, predict

# The most numbers in the factors of one chunk; its least and greatest length.
_CHUNK_SIZE, _SHORTEST, _LONGEST = 2**20, 16, 1024


class Chunks:
    """T steps of about `width` numbers each in K chunks of L steps, the last one padded."""

    def __init__(self, steps: int | tf.Tensor, width: int):
        self.steps, self.length = steps, _SHORTEST
        while self.length < _LONGEST and 2 * self.length * width <= _CHUNK_SIZE:
            self.length *= 2
        self.count = -(-steps // self.length)

    def pad(self, a: tf.Tensor) -> tf.Tensor:
        """Pads an array over time with zeros to a whole number of chunks."""
        missing = self.count * self.length - self.steps
        return tf.pad(a, [[0, missing]] + [[0, 0]] * (a.shape.rank - 1))

    def pad_varying(self, values: Any, always: Collection[str] = ()) -> Any:
        """Pads the arrays of a named tuple that vary in time, and those named in `always`."""
        padded = {
            name: self.pad(a) if name in always or a.shape[0] != 1 else a
            for name, a in values._asdict().items()
        }
        return type(values)(**padded)

    def join(self, a: tf.Tensor) -> tf.Tensor:
        """Joins the chunks of an array, `[K, L, ...]`, into one over time, `[T, ...]`."""
        shape = tf.concat([[self.count * self.length], tf.shape(a)[2:]], axis=0)
        joined = tf.reshape(a, shape)[: self.steps]
        steps = self.steps if isinstance(self.steps, int) else None
        return tf.ensure_shape(joined, [steps, *a.shape[2:]])

    def cut(self, values: Any, k: tf.Tensor) -> Any:
        """Chunk k of the padded arrays of a named tuple; arrays constant in time are unchanged."""

        def cut(a: tf.Tensor | None) -> tf.Tensor | None:
            if a is None or a.shape[0] == 1:
                return a
            # XLA needs slices of static size where it compiles the whole scan.
            begin = tf.concat([[k * self.length], tf.zeros([a.shape.rank - 1], tf.int32)], 0)
            size = tf.concat([[self.length], tf.shape(a)[1:]], axis=0)
            chunk = tf.slice(a, begin, size)
            return tf.ensure_shape(chunk, [self.length, *a.shape[1:]])

        return type(values)(*map(cut, values))

    def steps_of(self, k: tf.Tensor) -> tf.Tensor:
        """The number of steps in chunk k."""
        return tf.minimum(self.steps - k * self.length, self.length)

    def loop(
        self,
        step: Callable[[tf.Tensor, Any], tuple[Sequence[tf.Tensor], Any]],
        start: Any,
        dtypes: Sequence[tf.DType],
        backwards: bool = False,
    ) -> tuple[list[tf.Tensor], Any]:
        """The tensors that a step returns, for all chunks, `[K, ...]`, and the last carry.

        A step takes k and the carry, and returns tensors and the next carry.
        """
        shapes: list[tf.TensorShape] = []  # static shapes, which a graph loses outside of its loop

        def noting_shapes(k: tf.Tensor, carry: Any) -> tuple[Sequence[tf.Tensor], Any]:
            values, carry = step(k, carry)
            shapes[:] = [a.shape for a in values]
            return values, carry

        kinds = [(dtype, None) for dtype in dtypes]
        stacked, carry = time_loop(noting_shapes, start, kinds, self.count, backwards=backwards)
        pairs = zip(stacked, shapes, strict=True)
        return [tf.ensure_shape(a, [None, *shape]) for a, shape in pairs], carry


class StateMoments(NamedTuple):
    """The moments of the state at each time, before and after its observation.

    The axes are as in compiled ops; in the loops of XLA means are `[T, n, B]`, and log likelihoods
    `[T, B]`.
    """

    predicted_means: tf.Tensor  # `[B, T, n]`
    predicted_covariances: tf.Tensor
    """`[T, n, n, B]`, with B = 1 where all series share them; None where factors alone are."""
    filtered_means: tf.Tensor  # `[B, T, n]`
    filtered_covariances: tf.Tensor  # `[T, n, n, B]`
    log_likelihoods: tf.Tensor  # Real, `[B, T]`
    predicted_chols: tf.Tensor
    """`[T, n, n, B]`. Gradients flow to the covariances, not to the factors.

    Without covariances they end with the last step at which they change.
    """
    filtered_chols: tf.Tensor  # `[T, n, n, B]`, also without gradient


def check_possible(moments: StateMoments) -> None:
    """Raises, eagerly, where an observation contradicts a prediction without uncertainty.

    The state after such an observation has no meaning; only the likelihood, zero, has.
    """
    if not tf.executing_eagerly() or np.isfinite(np.min(moments.log_likelihoods)):
        return
    impossible = np.isneginf(moments.log_likelihoods)
    if impossible.any() and np.isfinite(moments.predicted_chols).all():
        *series, step = map(int, np.argwhere(impossible)[0])
        of_series = f" of series {series[0] if len(series) == 1 else series}" if series else ""
        raise ValueError(
            f"the observation at step {step}{of_series} is impossible: the model predicts another, "
            "and leaves no room for it, as R and the covariance of the state are zero there, or "
            "next to nothing beside the difference. Give R or Q a variance, or mark it missing"
        )


def log_likelihood(system: System, start: State) -> tuple[tuple[tf.Tensor], State]:
    """The log likelihood of each series, `[B]`, and the states before each chunk."""
    chunks, dtypes = chunks_of(system, start), [system.r.dtype]
    (totals,), starts = _forward(_compiled_likelihood, chunks, system, start, dtypes)
    return (tf.reduce_sum(totals, axis=0),), starts


def moments(system: System, start: State) -> tuple[StateMoments, State]:
    """The moments of the state, `[T, …, B]`, and the states before each chunk."""
    chunks, dtype = chunks_of(system, start), start.mean.dtype
    dtypes = [*[dtype] * 4, system.r.dtype, dtype, dtype]
    values, starts = _forward(_compiled_moments, chunks, system, start, dtypes)
    return StateMoments(*map(chunks.join, values)), starts


def pullback(
    system: System, start: State, cotangents: Cotangents, starts: State
) -> list[tf.Tensor]:
    """Gradients by the fields in `DIFFERENTIABLE`, and by mean and covariance of the first state.

    `starts` are the states before each chunk, as the functions above return them.
    """
    chunks = chunks_of(system, start)
    if cotangents.predicted_means is not None:  # else there is one cotangent for all steps
        cotangents = Cotangents(*map(chunks.pad, cotangents))
    return _backward(chunks, system, starts, cotangents)


def chunks_of(system: System, start: State) -> Chunks:
    """The chunks of a series; their length depends on the size of the model and of the batch."""
    steps = system.z.shape[0]
    n, columns, matrices = system.F.shape[1], system.z.shape[-1], start.chol.shape[-1]
    width = n * max(n * (matrices or 1), columns or 1)
    return Chunks(tf.shape(system.z)[0] if steps is None else steps, width)


def _forward(
    function: Callable[..., Any],
    chunks: Chunks,
    system: System,
    start: State,
    dtypes: Sequence[tf.DType],
) -> tuple[list[tf.Tensor], State]:
    """The values of a compiled function by chunk, and the states before them, both stacked."""
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
    constant = {name: a.shape[0] == 1 and name != "z" for name, a in inputs.items()}
    total = [
        tf.reduce_sum(gradient, axis=0) if constant[name] else chunks.join(gradient)
        for name, gradient in zip(inputs, gradients, strict=True)
    ]
    return [*total, *first]


def _moments(system: System, state: State, length: tf.Tensor) -> tuple[StateMoments, State]:
    forward, after = filter_step.forward_pass(system, state, length)
    moments = StateMoments(
        forward.predicted_means,
        filter_step.covariances(forward.predicted_chols),
        forward.filtered_means,
        filter_step.covariances(forward.filtered_chols),
        forward.log_likelihoods,
        forward.predicted_chols,
        forward.filtered_chols,
    )
    return moments, after


_compiled_likelihood = CompiledByShape(filter_step.log_likelihood)
_compiled_moments = CompiledByShape(_moments)
_compiled_backward = CompiledByShape(backward_pass)


def smoother_gains(
    F: tf.Tensor, Q_factor: tf.Tensor, chols: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The gains J, and factors Y of the covariances that they leave, all arrays `[n, n, T, B]`."""
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
    means: tf.Tensor  # `[T, n, B]`
    chols: tf.Tensor  # `[T, n, n, B]`


def smooth(system: System, start: State, filtered: State) -> list[tf.Tensor]:
    """The moments of each state given all observations, from the filtered moments.

    Means are `[T, n, B]`; factors, lag-one covariances and gains `[T, n, n, B]`. The last lag-one
    covariance and the last gain are not meaningful.
    """
    steps = _Steps(system.F, system.Q_factor, system.b, *filtered)
    chunks = chunks_of(system, start)
    padded = chunks.pad_varying(steps, always=("means", "chols"))

    def step(k: tf.Tensor, later: State) -> tuple[list[tf.Tensor], State]:
        return _compiled_smooth(chunks.cut(padded, k), later, chunks.steps_of(k))

    # Starts from the state predicted after the end, so the last smoothed state is the filtered one.
    F, Q_factor, b, *last = (a[-1] for a in steps)
    after = _compiled_predict(State(*last), F, Q_factor, b)
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

    def step(t: tf.Tensor, later: State) -> tuple[tuple[tf.Tensor, ...], State]:
        mean = steps.means[t] + matvec(gains[t], later.mean - predicted[t])
        spread = matmul(gains[t], later.chol)
        chol = triangularize(tf.concat([spread, roots[t]], axis=1))
        return (mean, chol, matmul(later.chol, adjoint(spread))), State(mean, chol)

    kinds = [(later.mean.dtype, shape) for shape in shapes]
    values, later = time_loop(step, later, kinds, size, length, backwards=True)
    return [*values, gains], later


_compiled_smooth = CompiledByShape(_smooth_chunk)
_compiled_predict = CompiledByShape(predict)
