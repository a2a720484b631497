"""The smoother over a series of any length, with its gradient, by a suitable engine.

With the moments predicted for the next step, `m⁻ = F m + b` and `P⁻ = F P Fᴴ + Q`, the smoother is

    J = P Fᴴ / P⁻,   ms = m + J (ms⁺ − m⁻),   Ps = P + J (Ps⁺ − P⁻) Jᴴ.

It goes back from the end, so its adjoint goes forward: the cotangents g of ms and G of Ps arrive at
the next step as `Jᴴ g` and `Jᴴ G J`. That is the only recursion. All else is local to a step, and
computed for all steps at once. As in `backward_pass`, covariances are differentiated and never
their factors, and a cotangent is TensorFlow's gradient.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.experimental.numpy import moveaxis

from cgp.linalg.arguments import squared_modulus
from cgp.linalg.batch_last import adjoint, divide, matmul, matvec, outer, triangularize
from cgp.linalg.cholesky import assert_positive_definite
from cgp.linalg.gradients import without_gradient
from cgp.statespace.engines import differentiable_filter, native_engine
from cgp.statespace.engines.backward_pass import summed
from cgp.statespace.engines.chunked_engine import check_possible
from cgp.statespace.engines.differentiable_filter import computed
from cgp.statespace.engines.filter_step import KalmanSystem, State, for_loops, from_loops
from cgp.statespace.engines.parallel_engine import over_steps

SINGULAR = (
    "the gradient of the smoother needs predicted covariances that are positive definite, but one "
    "is singular: expected a Q, or an F and initial_covariance, that leave no state known exactly"
)
"""The error message for a gradient where the gain of a step is not differentiable."""


class SmootherInputs(NamedTuple):
    """The transitions and the filtered moments of the smoother, or the gradients by them.

    Time is the last axis but one and may be 1, as the batch axis may, where nothing varies.
    """

    F: tf.Tensor  # `[n, n, T, B]`
    Q: tf.Tensor  # `[n, n, T, B]`
    b: tf.Tensor  # `[n, T, B]`
    means: tf.Tensor  # Filtered, `[n, T, B]`
    covariances: tf.Tensor  # Filtered, `[n, n, T, B]`


class SmootherMoments(NamedTuple):
    """The smoothed moments, or their cotangents; the last lag and the last gain mean nothing."""

    means: tf.Tensor  # `[n, T, B]`
    covariances: tf.Tensor  # `[n, n, T, B]`
    lags: tf.Tensor  # `Ps⁺ Jᴴ`, `[n, n, T, B]`
    gains: tf.Tensor  # J, `[n, n, T, B]`


def pullback(
    inputs: SmootherInputs, roots: tf.Tensor, smoothed: SmootherMoments, by: SmootherMoments
) -> SmootherInputs:
    """The gradients by the inputs of the smoother, shaped like them, from cotangents `by`.

    `roots`, `[n, k, T, B]`, are roots of the covariance predicted for each next step.

    Raises:
        NotPositiveDefiniteError: A predicted covariance is singular: J is not differentiable there,
            as J jumps where a change of the covariance leaves its range.
    """
    g, G = _arriving(smoothed.gains, by)
    last_g, last_G = g[:, -1:], G[:, :, -1:]
    g, G, J = g[:, :-1], G[:, :, :-1], smoothed.gains[:, :, :-1]
    F, b = (a if a.shape[-2] == 1 else a[..., :-1, :] for a in (inputs.F, inputs.b))
    m, P = inputs.means[:, :-1], inputs.covariances[:, :, :-1]

    chol = triangularize(roots[:, :, :-1])
    inverse = _inverse(chol)
    later = smoothed.covariances[:, :, 1:]
    ahead, spread = smoothed.means[:, 1:] - matvec(F, m) - b, later - matmul(chol, adjoint(chol))

    by_J = summed(outer(g, ahead), J) + 2.0 * matmul(matmul(G, J), spread)
    by_J += matmul(adjoint(by.lags[:, :, :-1]), later) + by.gains[:, :, :-1]
    K = matmul(matmul(by_J, adjoint(inverse)), inverse)  # by P Fᴴ
    w = -matvec(adjoint(J), g)  # by m⁻
    W = -matmul(adjoint(J), matmul(G, J)) - hermitian(matmul(adjoint(J), K))  # by P⁻
    by_F = matmul(2.0 * matmul(W, F) + adjoint(K), P)  # without the part through m⁻
    return SmootherInputs(
        F=_like(summed(outer(w, m), inputs.F) + summed(by_F, inputs.F), inputs.F),
        Q=_like(summed(W, inputs.Q), inputs.Q),
        b=_like(summed(w, inputs.b), inputs.b),
        means=tf.concat([g + matvec(adjoint(F), w), last_g], axis=-2),
        covariances=tf.concat(
            [G + matmul(adjoint(F), matmul(W, F)) + hermitian(matmul(K, F)), last_G], axis=-2
        ),
    )


def _inverse(chol: tf.Tensor) -> tf.Tensor:
    """`L⁻¹` of the factors of the predicted covariances, `[n, n, T − 1, B]`."""
    power = squared_modulus(chol)
    eps = np.finfo(power.dtype.as_numpy_dtype).eps
    of_pivots = tf.einsum("ii...->...i", power)
    # Pivots are variances of a component given those before it; with a singular Q they are zero
    # but for the rounding of its factor.
    regular = of_pivots > 10.0 * eps * tf.einsum("ij...->...i", power)
    regular = tf.reduce_all(regular, axis=-1)
    unit = tf.eye(chol.shape[0], dtype=chol.dtype)[:, :, None, None]
    inverse = divide(unit + tf.zeros_like(chol), chol)
    inverse = assert_positive_definite(regular, tf.einsum("ij...->...ij", inverse), SINGULAR)
    return tf.einsum("...ij->ij...", inverse)


def _arriving(gains: tf.Tensor, by: SmootherMoments) -> tuple[tf.Tensor, tf.Tensor]:
    """Cotangents `[n, T, B]` and `[n, n, T, B]` of moments, with the parts from steps before."""
    matrices = (tf.einsum("ijtb->tbij", a) for a in (gains, by.covariances, by.lags))
    g, G = _traced(gains.dtype)(*matrices, tf.einsum("itb->tbi", by.means)[..., None])
    g, G = tf.einsum("tbi->itb", g[..., 0]), tf.einsum("tbij->ijtb", G)
    return tf.ensure_shape(g, by.means.shape), tf.ensure_shape(G, by.covariances.shape)


@functools.cache
def _traced(dtype: tf.DType) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    """`_sums` as a graph, for all sizes: it is traced once."""
    of_any_size = tf.TensorSpec([None] * 4, dtype)
    return tf.function(_sums, input_signature=[of_any_size] * 4, autograph=False)


def _sums(
    gains: tf.Tensor, by_covariances: tf.Tensor, by_lags: tf.Tensor, by_means: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The sums of `_arriving`, of arrays `[T, B, n, n]` and `[T, B, n, 1]`, shaped like these."""
    back = tf.linalg.adjoint(gains)
    later = tf.linalg.matmul(by_lags, gains)[:-1]
    G_at = by_covariances + tf.pad(later, [[1, 0], [0, 0], [0, 0], [0, 0]])
    G_at = 0.5 * (G_at + tf.linalg.adjoint(G_at))  # the only part that acts on a covariance

    def step(
        t: tf.Tensor, g: tf.Tensor, G: tf.Tensor, arrays: tuple[tf.TensorArray, ...]
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tuple[tf.TensorArray, ...]]:
        g = by_means[t + 1] + tf.linalg.matmul(back[t], g)
        G = G_at[t + 1] + tf.linalg.matmul(back[t], tf.linalg.matmul(G, gains[t]))
        return t + 1, g, G, tuple(a.write(t + 1, x) for a, x in zip(arrays, (g, G), strict=True))

    steps = tf.shape(gains)[0]
    first = by_means[0], G_at[0]
    arrays = tuple(tf.TensorArray(a.dtype, steps, element_shape=a.shape).write(0, a) for a in first)
    loop = (tf.constant(0), *first, arrays)
    *_, arrays = tf.while_loop(lambda t, *_: t < steps - 1, step, loop)
    return tuple(a.stack() for a in arrays)


def hermitian(a: tf.Tensor) -> tf.Tensor:
    """The Hermitian part of matrices `[n, n, ...]`."""
    return 0.5 * (a + adjoint(a))


def _like(gradient: tf.Tensor, a: tf.Tensor) -> tf.Tensor:
    """The gradient by an array whose last step is not used."""
    if a.shape[-2] == 1:
        return tf.reduce_sum(gradient, axis=-2, keepdims=True)
    return tf.concat([gradient, tf.zeros_like(a[..., -1:, :])], axis=-2)


ONCE = "the smoother is differentiable once: take differences of gradients for a Hessian"
"""The error message for a second derivative."""


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


def _in_tensorflow(engine: Any, system: KalmanSystem, filtered: State) -> list[tf.Tensor]:
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
