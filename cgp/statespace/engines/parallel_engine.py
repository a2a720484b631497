"""The Kalman filter, its pullback and the smoother by associative scans, parallel over time.

Arrays have time as the last axis but one, `[n, n, T, B]`, so that the algebra of matrices with the
batch axis last goes over all steps in one operation: 2 log₂ T passes.

Filter: the information of step k, given the state at the step before, is an element

    p(x[k] | x[k−1], z[k]) = N(A x[k−1] + b, U Uᴴ)
    p(z[k] | x[k−1]) ∝ exp(−c (xᴴ Z Zᴴ x − 2 Re ηᴴ x)),   x = x[k−1],

with c = 1, or ½ for real series. Elements of successive steps combine into one of the same form,
and the combination is associative; from the first step to each it has the filtered moments b and U
(Särkkä & García-Fernández, IEEE Trans. Autom. Control 66, 2021). Covariances and information
matrices are kept as factors U and Z, and combined by triangularizations (Yaghoobi, Corenflos,
Hassan & Särkkä, arXiv:2207.00426, 2022), here with adjoints for transposes.

Pullback: the backward pass is affine in the cotangents of the state. With the moments along the
series known, the cotangents λ of the mean and Λ of the covariance after a step lead to

    Φᴴ λ + s,   Φᴴ Λ Φ + S,   Φ = F (I − K H),

before it, with S depending on λ. Such maps compose, so that an associative scan finds λ before
every step, and a second scan Λ. From these the gradients of each step follow as in
`cgp.statespace.engines.backward_pass`, here of all steps at once.

Smoother: given a later state x[j] and all observations up to step k, the state x[k] has the density

    p(x[k] | x[j], z[0..k]) = N(m[k] + E (x[j] − m[j]) + g, D Dᴴ),   j > k,

with the filtered means m; for j = k + 1, E is the gain J of the smoother, D its factor Y, and
g = J (m[k+1] − F m[k] − b). Such densities compose, and the densities from each step to the end,
where E is zero, have the smoothed moments. Deviations from the filtered means, in place of the
means, keep the digits of small deviations.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.experimental.numpy import moveaxis

from cgp.linalg.arguments import is_nan, nan, real_as
from cgp.linalg.batch_last import (
    adjoint,
    condition,
    dot,
    inverse_or_zero,
    matmul,
    matvec,
    outer,
    solve,
    triangularize,
)
from cgp.statespace.engines.backward_pass import (
    DIFFERENTIABLE,
    Cotangents,
    StateCotangent,
    step_back,
)
from cgp.statespace.engines.chunked_engine import StateMoments, smoother_gains
from cgp.statespace.engines.filter_step import (
    ForwardPass,
    State,
    System,
    covariances,
    predict,
    update,
)


def over_steps(values: Any) -> Any:
    """A named tuple of arrays with time as their last axis but one, from those with time first."""
    moved = (None if a is None else tf.experimental.numpy.moveaxis(a, 0, -2) for a in values)
    return type(values)(*moved)


def scan(combine: Callable[[Any, Any], Any], elements: Any, reverse: bool = False) -> Any:
    """The combination of the elements up to each one or, reversed, from each one on.

    In 2 log₂ T passes, which together combine twice as often as a loop (Blelloch, *Prefix Sums and
    Their Applications*, 1990). `combine` is associative, and always the same object: it is traced
    once.

    Raises:
        ValueError: A length that is not known while a graph is traced.
    """
    length = elements[0].shape[-2]
    if length == 1:
        return elements
    if length is None:
        raise ValueError(
            "parallel=True needs the length of the series where a graph is traced, which depends "
            "on it: give tf.function an input signature with T steps, or leave parallel out"
        )
    # Loading it takes longer than loading all of cgp.
    from tensorflow_probability import math as tfp_math

    kind: Any = type(elements)
    traced = _traced(combine, kind, *((a.dtype, *a.shape[:-2]) for a in elements))

    def of_each(first: Any, then: Any) -> Any:
        combined = traced(then, first) if reverse else traced(first, then)
        for a, like in zip(combined, first, strict=True):
            a.set_shape(like.shape)  # which the traced function does not know
        return combined

    if not reverse:
        return tfp_math.scan_associative(of_each, elements, axis=-2)
    return _reversed(tfp_math.scan_associative(of_each, _reversed(elements), axis=-2))


@functools.lru_cache(maxsize=64)
def _traced(
    combine: Callable[[Any, Any], Any], kind: type, *axes_of_each: tuple[Any, ...]
) -> Callable[[Any, Any], Any]:
    """`combine`, traced once for all lengths and batches: eagerly each operation costs a launch.

    `axes_of_each` are the dtype and the axes, but the last two, of each array of the named tuples.
    """
    spec = kind(*(tf.TensorSpec([*axes, None, None], dtype) for dtype, *axes in axes_of_each))
    return tf.function(combine, input_signature=[spec, spec], autograph=False)


def _reversed(values: Any) -> Any:
    return type(values)(*(tf.reverse(a, [a.shape.rank - 2]) for a in values))


# A product `h A` below this many rounding errors of its terms counts as zero.
_ROUNDING = 64.0


class Element(NamedTuple):
    """The density of a state given an earlier one, and the likelihood of the latter; see above."""

    A: tf.Tensor  # `[n, n, T, B]`; in these matrices B is 1 where all series share covariances
    b: tf.Tensor  # `[n, T, B]`
    U: tf.Tensor  # Lower triangular, `[n, n, T, B]`
    eta: tf.Tensor  # `[n, T, B]`
    Z: tf.Tensor  # Lower triangular, `[n, n, T, B]`


def log_likelihood(system: System, start: State) -> tuple[tuple[tf.Tensor], State]:
    """The log likelihood of each series, `[B]`, and the states before each step.

    Raises:
        ValueError: An observation without noise that fixes the state before it; see `_of_steps`.
    """
    _, log_likelihoods, before = _filtered(system, start)
    return (tf.reduce_sum(log_likelihoods, axis=0),), before


def moments(system: System, start: State) -> tuple[StateMoments, State]:
    """The moments of the state, `[T, …, B]`, and the states before each step."""
    filtered, log_likelihoods, before = _filtered(system, start)
    filtered_chols = tf.einsum("ijtb->tijb", filtered.chol)
    values = StateMoments(
        before.mean,
        covariances(before.chol),
        tf.einsum("ntb->tnb", filtered.mean),
        covariances(filtered_chols),
        log_likelihoods,
        before.chol,
        filtered_chols,
    )
    return values, before


def _filtered(system: System, start: State) -> tuple[State, tf.Tensor, State]:
    """The filtered moments, the log likelihoods, and the states before steps."""
    system, start = over_steps(system), State(start.mean[:, None], start.chol[:, :, None])
    elements = _elements(system, start)
    spans = scan(combine, elements)
    last = State(spans.b[:, :-1], spans.U[:, :, :-1])
    later = predict(last, *(_leading(a) for a in (system.F, system.Q_factor, system.b)))
    predicted = State(*(tf.concat(pair, axis=-2) for pair in zip(start, later, strict=True)))
    # By the usual update, for all steps at once: it rounds as for one step.
    filtered, values, _ = update(predicted, system.h, system.r, system.z, system.observed)
    # An update takes a mean of NaN for certain.
    is_lost = tf.reduce_any(is_nan(predicted.mean), axis=0)
    log_likelihoods = tf.where(is_lost, nan(values.dtype), values)
    before = State(tf.einsum("ntb->tnb", predicted.mean), tf.einsum("ijtb->tijb", predicted.chol))
    return filtered, log_likelihoods, before


def combine(first: Element, then: Element) -> Element:
    """The element of two spans of time, the second of which follows the first.

    With `[[Uᴴ Z', I], [Z', 0]] = [[Ξ, 0], [X, Y]] Θ`, Θ unitary, `W = U Ξ⁻ᴴ` has
    `W Wᴴ = (I + C J')⁻¹ C`, `Y Yᴴ = (I + J' C)⁻¹ J'` and `I − W Xᴴ = (I + C J')⁻¹`, where C = U Uᴴ,
    J' = Z' Z'ᴴ, and a prime marks what follows.
    """
    n = first.A.shape[0]
    zero = tf.zeros_like(then.Z)
    eye = tf.eye(n, dtype=zero.dtype)[:, :, None, None] + zero
    upper = tf.concat([matmul(adjoint(first.U), then.Z), eye], axis=1)
    joint = triangularize(tf.concat([upper, tf.concat([then.Z, zero], axis=1)], axis=0))
    X, Y = joint[n:, :n], joint[n:, n:]
    W = adjoint(solve(joint[:n, :n], adjoint(first.U)))
    A = first.A - matmul(W, matmul(adjoint(X), first.A))
    surprise = then.eta - matvec(then.Z, matvec(adjoint(then.Z), first.b))
    mean = first.b + matvec(W, matvec(adjoint(W), surprise))
    return Element(
        matmul(then.A, A),
        matvec(then.A, mean) + then.b,
        triangularize(tf.concat([matmul(then.A, W), then.U], axis=1)),
        matvec(adjoint(A), surprise) + first.eta,
        triangularize(tf.concat([matmul(adjoint(first.A), Y), first.Z], axis=1)),
    )


def _leading(a: tf.Tensor) -> tf.Tensor:
    """The arrays of the transitions to each step but the first."""
    return a if a.shape[-2] == 1 else a[..., :-1, :]


def _elements(system: System, start: State) -> Element:
    """The element of each step; for the first, the state after it, whatever was before."""
    measurement = (system.h, system.r, system.z, system.observed)
    (mean, chol), _, _ = update(start, *(a[..., :1, :] for a in measurement))
    zero, zero_matrix = tf.zeros_like(mean), tf.zeros_like(chol)
    first = Element(zero_matrix, mean, chol, zero, zero_matrix)
    if system.z.shape[-2] == 1:
        return first
    later = (a if a.shape[-2] == 1 else a[..., 1:, :] for a in measurement)
    transition = (_leading(a) for a in (system.F, system.Q_factor, system.b))
    following = _of_steps(transition, later)
    steps = tf.shape(following.b)[-2:-1]

    def spread(a: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
        shape = tf.concat([tf.shape(like)[:-2], steps, tf.shape(like)[-1:]], axis=0)
        return tf.concat([like, tf.broadcast_to(a, shape)], axis=-2)

    return Element(*(spread(a, like) for a, like in zip(following, first, strict=True)))


def _of_steps(transition: Iterable[tf.Tensor], measurement: Iterable[tf.Tensor]) -> Element:
    """The elements of steps after the first, one component of the observations at a time.

    The information of a component on the state at the step before is inverse to its variance given
    that state, h Q hᴴ + r, by which no other part of the filter divides.

    Raises:
        ValueError: This variance is zero, eagerly; in a graph the result is NaN.
    """
    (F, G, drift), (h, r, z, observed) = transition, measurement
    dtype = F.dtype
    A, U, b = F, triangularize(G), drift + tf.zeros_like(z[:1])
    eta, columns, lost = tf.zeros_like(b), [], []
    size, eps = tf.abs(F), np.finfo(dtype.real_dtype.as_numpy_dtype).eps
    components = (tf.unstack(a, z.shape[0]) for a in (h, r, z, observed))
    for row, noise, component, is_observed in zip(*components, strict=True):
        row = row * real_as(is_observed, dtype)
        noise = tf.where(is_observed > 0, noise, tf.ones_like(is_observed))
        U, cross, variance = condition(U, row, noise)
        inverse = inverse_or_zero(variance)
        told = adjoint(matmul(row[None], A))[:, 0]  # Aᴴ hᴴ
        rounding = _ROUNDING * eps * tf.reduce_sum(tf.abs(row)[:, None] * size, axis=0)
        certain = (variance <= 0) & tf.reduce_any(tf.abs(told) > rounding, axis=0)
        lost.append(certain)
        deviation = (component - dot(row, b)) * real_as(is_observed, dtype)
        gain = cross * real_as(inverse, dtype)
        eta += told * (deviation * real_as(inverse, dtype))
        column = told * real_as(tf.sqrt(inverse), dtype)
        columns.append(tf.where(certain, nan(dtype), column))
        A, b = A - outer(gain, told), b + gain * deviation
        size += tf.abs(gain)[:, None] * tf.abs(told)
    if tf.executing_eagerly() and any(bool(tf.reduce_any(certain)) for certain in lost):
        raise ValueError(
            "parallel=True cannot filter an observation without noise of what the process noise "
            "does not reach: R and H Q Hᴴ are both singular there, so that it tells the state at "
            "the step before exactly. Leave parallel out, or give that component some noise"
        )
    return Element(A, b, U, eta, triangularize(tf.stack(columns, axis=1)))


class _OfMeans(NamedTuple):
    """The map `λ -> A λ + s`."""

    A: tf.Tensor  # `[n, n, T, B]`, B = 1 where all series share covariances
    s: tf.Tensor  # `[n, T, B]`


class _OfCovariances(NamedTuple):
    """The map `Λ -> A Λ Aᴴ + S`."""

    A: tf.Tensor  # `[n, n, T, B]`, B = 1 where all series share covariances
    S: tf.Tensor  # Hermitian, `[n, n, T, B]`


def pullback(
    system: System, start: State, cotangents: Cotangents, starts: State
) -> list[tf.Tensor]:
    """Gradients by the fields in `DIFFERENTIABLE`, and by mean and covariance of the first state.

    The states before each step, `starts`, are `[T, n, B]` and `[T, n, n, B]`; the first is `start`.
    """
    del start
    system = over_steps(system)
    forward = _forward(system, over_steps(starts))
    cotangents = _as_one_step(over_steps(cotangents))
    system = _as_one_step(system)

    def before(by_state: StateCotangent) -> tuple[dict[str, tf.Tensor], StateCotangent]:
        return step_back(system, forward, cotangents, 0, by_state)

    back = adjoint(_transition(system, forward))
    zero_cotangent = StateCotangent(*map(tf.zeros_like, (forward.predicted_means[0], back)))
    s = before(zero_cotangent)[1].mean
    means = scan(_combine_means, _OfMeans(back, s), reverse=True).s
    after = zero_cotangent._replace(mean=_next(means))
    S = before(after)[1].covariance
    by_covariances = scan(_combine_covariances, _OfCovariances(back, S), reverse=True).S
    gradients, _ = before(after._replace(covariance=_next(by_covariances)))

    by_system = (
        moveaxis(_like(gradients[name], getattr(system, name)[0]), -2, 0) for name in DIFFERENTIABLE
    )
    return [*by_system, means[:, 0], by_covariances[:, :, 0]]


def _forward(system: System, predicted: State) -> ForwardPass:
    """The forward pass of all steps, by the states before them."""
    measurement = (system.h, system.r, system.z, system.observed)
    filtered, log_likelihoods, innovations = update(predicted, *measurement)
    stacked = (tf.stack(arrays) for arrays in zip(*innovations, strict=True))
    return _as_one_step(ForwardPass(*predicted, *filtered, log_likelihoods, *stacked))


def _as_one_step(values: Any) -> Any:
    """Arrays with an axis of one step before the others, for functions of a step."""
    return type(values)(*(a if a is None else a[None] for a in values))


def _transition(system: System, forward: ForwardPass) -> tf.Tensor:
    """Φ, which leads from the predicted state of a step to the predicted state of the next."""
    (F, h, observed), dtype = (system.F[0], system.h[0], system.observed[0]), system.F.dtype
    gains = forward.crosses[0] * real_as(inverse_or_zero(forward.variances[0]), dtype)[:, None]
    rows = h * real_as(observed, dtype)[:, None]
    for gain, row in reversed(list(zip(tf.unstack(gains), tf.unstack(rows), strict=True))):
        F -= outer(matvec(F, gain), tf.math.conj(row))
    return F + tf.zeros_like(forward.predicted_chols[0])


def _combine_means(first: _OfMeans, then: _OfMeans) -> _OfMeans:
    return _OfMeans(matmul(first.A, then.A), matvec(first.A, then.s) + first.s)


def _combine_covariances(first: _OfCovariances, then: _OfCovariances) -> _OfCovariances:
    S = matmul(matmul(first.A, then.S), adjoint(first.A)) + first.S
    return _OfCovariances(matmul(first.A, then.A), S)


def _next(a: tf.Tensor) -> tf.Tensor:
    """The value at the next step; zero after the last."""
    return tf.concat([a[..., 1:, :], tf.zeros_like(a[..., :1, :])], axis=-2)


def _like(gradient: tf.Tensor, a: tf.Tensor) -> tf.Tensor:
    """Sums a gradient over time and over the batch where `a` does not vary along them."""
    if a.shape[-1] == 1 and gradient.shape[-1] != 1:
        gradient = tf.reduce_sum(gradient, axis=-1, keepdims=True)
    if a.shape[-2] == 1 and gradient.shape[-2] != 1:
        gradient = tf.reduce_sum(gradient, axis=-2, keepdims=True)
    return gradient


class _Element(NamedTuple):
    """The density of a state given the state at a later step; see above."""

    E: tf.Tensor  # `[n, n, T, B]`; in matrices B is 1 where all series share covariances
    g: tf.Tensor  # `[n, T, B]`
    D: tf.Tensor  # Lower triangular, `[n, n, T, B]`


def smooth(system: System, start: State, filtered: State) -> list[tf.Tensor]:
    """The moments of each state given all observations: as `chunked_engine.smooth`."""
    del start
    system = over_steps(system)
    means, chols = over_steps(filtered)
    gains, roots = smoother_gains(system.F, system.Q_factor, chols)
    columns = zip(tf.unstack(system.F, axis=1), tf.unstack(means), strict=True)
    predicted = sum(column * mean for column, mean in columns) + system.b
    told = means[:, 1:] - predicted[:, :-1]
    smoothed = scan(
        _combine,
        _Element(
            _then(gains[:, :, :-1], tf.zeros_like(gains[:, :, -1:])),
            _then(matvec(gains[:, :, :-1], told), tf.zeros_like(means[:, -1:])),
            _then(roots[:, :, :-1], chols[:, :, -1:]),
        ),
        reverse=True,
    )
    later = _then(smoothed.D[:, :, 1:], smoothed.D[:, :, -1:])
    lags = matmul(later, adjoint(matmul(gains, later)))
    of_covariances = (tf.einsum("ijtb->tijb", a) for a in (smoothed.D, lags, gains))
    return [tf.einsum("ntb->tnb", means + smoothed.g), *of_covariances]


def _combine(first: _Element, then: _Element) -> _Element:
    """The density of two spans of time, the second of which follows the first."""
    return _Element(
        matmul(first.E, then.E),
        matvec(first.E, then.g) + first.g,
        triangularize(tf.concat([matmul(first.E, then.D), first.D], axis=1)),
    )


def _then(first: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
    return tf.concat([first, last], axis=-2)
