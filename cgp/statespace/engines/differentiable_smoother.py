"""The smoother over a series of any length, with its gradient.

Computed, as the filter is, by a compiled op, in chunks that XLA compiles, or all steps at once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from cgp import native
from cgp.linalg.batch_last import adjoint, matmul, matvec, triangularize
from cgp.linalg.gradients import without_gradient
from cgp.statespace.compiled import CompiledByShape
from cgp.statespace.engines import differentiable_filter, parallel_smoother
from cgp.statespace.engines.chunked_filter import check_possible, chunks_of
from cgp.statespace.engines.filter_step import State, predict
from cgp.statespace.engines.kalman_system import Arranged, for_loops, from_loops
from cgp.statespace.engines.parallel_scan import over_steps
from cgp.statespace.engines.smoother_gains import Steps, smoother_gains
from cgp.statespace.engines.smoother_gradient import SmootherMoments, SmootherParts, pullback

ONCE = "the smoother is differentiable once: take differences of gradients for a Hessian"
"""What a second derivative is answered with."""


def moments(given: Arranged, parallel: bool = False) -> list[tf.Tensor]:
    """The moments of each state given all observations, differentiable once.

    Returns:
        Means `[B, T, n]`; covariances, lag-one covariances, gains, and factors of the covariances,
        `[T, n, n, B]`. The last lag-one covariance and the last gain have no meaning, and the
        factors no gradient.
    """
    filtered = differentiable_filter.moments(given, parallel)
    check_possible(filtered)
    means, covariances = filtered.filtered_means, filtered.filtered_covariances
    values = (given.F, given.Q_factor, given.b, means, filtered.filtered_chols)
    steps = Steps(*map(tf.stop_gradient, values))
    found = _smooth(given, steps, parallel)
    smoothed_means, chols, lags, gains = map(tf.stop_gradient, found)
    smoothed = tf.einsum("tikb,tjkb->tijb", chols, tf.math.conj(chols))
    found = [smoothed_means, smoothed, lags, gains]

    @tf.custom_gradient
    def with_pullback(*parts: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., list[tf.Tensor]]]:
        def backward(*by: tf.Tensor) -> list[tf.Tensor]:
            gradients = _pulled_back(given, steps, parts, found, by)
            return without_gradient(gradients, parts, ONCE)

        return list(map(tf.identity, found)), backward

    return [*with_pullback(given.F, given.Q, given.b, means, covariances), chols]


def _pulled_back(
    given: Arranged,
    steps: Steps,
    parts: Sequence[tf.Tensor],
    found: Sequence[tf.Tensor],
    by: Sequence[tf.Tensor],
) -> list[tf.Tensor]:
    """The gradients by F, Q, b and the filtered means and covariances, shaped like these parts."""
    system, _ = for_loops(given)
    last = over_steps(_for_loops(given, steps))
    covariances = matmul(last.chols, adjoint(last.chols))
    Q = tf.experimental.numpy.moveaxis(system.Q, 0, -2)
    own = SmootherParts(last.F, Q, last.b, last.means, covariances)
    spread = matmul(last.F, last.chols)
    roots = tf.concat([spread, last.Q_factor + tf.zeros_like(spread[:, :1])], axis=1)
    moments, cotangents = (
        over_steps(SmootherMoments(tf.experimental.numpy.moveaxis(a[0], 0, -1), *a[1:]))
        for a in (found, by)
    )
    gradients = pullback(own, roots, moments, cotangents)
    F, Q, b, means, covariances = (tf.experimental.numpy.moveaxis(a, -2, 0) for a in gradients)
    shaped = [from_loops(a, like) for a, like in zip((F, Q, b), parts[:3], strict=True)]
    return [*shaped, tf.experimental.numpy.moveaxis(means, -1, 0), covariances]


def _smooth(given: Arranged, steps: Steps, parallel: bool) -> list[tf.Tensor]:
    """Means `[B, T, n]`; factors, lag-one covariances and gains, `[T, n, n, B]`."""
    found = None if parallel else _by_core(steps)
    if found is not None:
        return found
    return (_in_parallel if parallel else _in_chunks)(given, steps)


def _by_core(steps: Steps) -> Any:
    """By a compiled op; None where it does not serve, or refuses."""
    if not native.serves(*steps):
        return None
    return native.attempt(
        "CgpKalmanSmoother",
        transition=steps.F,
        noise_factor=steps.Q_factor,
        b=steps.b,
        means=steps.means,
        chols=steps.chols,
    )


def _in_chunks(given: Arranged, steps: Steps) -> list[tf.Tensor]:
    """By compiled graphs."""
    steps = _for_loops(given, steps)
    chunks = chunks_of(*for_loops(given))
    padded = chunks.pad_varying(steps, always=("means", "chols"))

    def step(k: tf.Tensor, later: State) -> tuple[list[tf.Tensor], State]:
        return _compiled_smooth(chunks.cut(padded, k), later, chunks.steps_of(k))

    # Starts from the state predicted after the end, so the last smoothed state is the filtered one.
    last = Steps(*(a[-1:] for a in steps))
    after = _compiled_predict(last)
    values, _ = chunks.loop(step, after, [steps.means.dtype] * 4, backwards=True)
    means, *of_covariances = map(chunks.join, values)
    return [tf.experimental.numpy.moveaxis(means, -1, 0), *of_covariances]


def _in_parallel(given: Arranged, steps: Steps) -> list[tf.Tensor]:
    """By scans over all steps."""
    means, *of_covariances = parallel_smoother.smooth(_for_loops(given, steps))
    return [tf.experimental.numpy.moveaxis(means, -1, 0), *of_covariances]


def _for_loops(given: Arranged, steps: Steps) -> Steps:
    """The parts with all axes."""
    system, _ = for_loops(given)
    F, G, b = map(tf.stop_gradient, (system.F, system.Q_factor, system.b))
    return Steps(F, G, b, tf.experimental.numpy.moveaxis(steps.means, 0, -1), steps.chols)


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
        arrays = [array.write(t, value) for array, value in zip(arrays, values, strict=True)]
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
