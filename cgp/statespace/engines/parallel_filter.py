"""The Kalman filter by a scan in parallel over time: 2 log₂ T passes over arrays of all steps.

What step k tells of its state, given the state at the step before, is an element

    p(x[k] | x[k−1], z[k]) = N(A x[k−1] + b, U Uᴴ)
    p(z[k] | x[k−1]) ∝ exp(−c (xᴴ Z Zᴴ x − 2 Re ηᴴ x)),   x = x[k−1],

c being 1, or ½ of real series. Elements of successive steps combine into one of the same form, and
the combination is associative, so that the elements from the first to each step, whose b and U are
the filtered moments, are found by an associative scan (Särkkä & García-Fernández, IEEE Trans.
Autom. Control 66, 2021). Covariances and information matrices are kept as factors U and Z, and
combined by triangularizations (Yaghoobi, Corenflos, Hassan & Särkkä, arXiv:2207.00426, 2022), here
with adjoints for transposes.

Arrays here have time as the last axis but one, `[n, n, T, B]`, so that the algebra of matrices with
the batch axis last goes over all steps at once.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

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
from cgp.statespace.engines.chunked_filter import StateMoments
from cgp.statespace.engines.filter_step import State, predict, update
from cgp.statespace.engines.forward_pass import System
from cgp.statespace.engines.parallel_scan import over_steps, scan

# A product `h A` below this many rounding errors of its terms counts as zero.
_ROUNDING = 64.0


class Element(NamedTuple):
    """The density of a state, and what some successive observations tell of it; see above."""

    A: tf.Tensor
    """`[n, n, T, B]`; in these matrices B is 1 where all series share covariances."""
    b: tf.Tensor
    """`[n, T, B]`."""
    U: tf.Tensor
    """Lower triangular, `[n, n, T, B]`."""
    eta: tf.Tensor
    """`[n, T, B]`."""
    Z: tf.Tensor
    """Lower triangular, `[n, n, T, B]`."""


def log_likelihood(system: System, start: State) -> tuple[tuple[tf.Tensor], State]:
    """The log likelihood of each series, `[B]`, and the states before each step.

    Raises:
        ValueError: An observation without noise that tells the state before it; see `_of_steps`.
    """
    _, _, log_likelihoods, before = _filtered(system, start)
    return (tf.reduce_sum(log_likelihoods, axis=0),), before


def moments(system: System, start: State) -> tuple[StateMoments, State]:
    """The moments of the state, `[T, …, B]`, and the states before each step.

    Raises:
        ValueError: As `log_likelihood`.
    """
    predicted, filtered, log_likelihoods, before = _filtered(system, start)
    values = StateMoments(
        before.mean,
        _covariances(predicted.chol),
        tf.einsum("ntb->tnb", filtered.mean),
        _covariances(filtered.chol),
        log_likelihoods,
        before.chol,
        tf.einsum("ijtb->tijb", filtered.chol),
    )
    return values, before


def _covariances(chols: tf.Tensor) -> tf.Tensor:
    return tf.einsum("ijtb->tijb", matmul(chols, adjoint(chols)))


def _filtered(system: System, start: State) -> tuple[State, State, tf.Tensor, State]:
    """The predicted and the filtered moments, the log likelihoods, and the states before steps."""
    system, start = over_steps(system), State(start.mean[:, None], start.chol[:, :, None])
    elements = _elements(system, start)
    spans = scan(combine, elements)
    last = State(spans.b[:, :-1], spans.U[:, :, :-1])
    later = predict(last, *(_leading(a) for a in (system.F, system.Q_factor, system.b)))
    predicted = State(*(tf.concat(pair, axis=-2) for pair in zip(start, later, strict=True)))
    # By the usual update of all steps at once, whose rounding is that of one step.
    filtered, values, _ = update(predicted, system.h, system.r, system.z, system.observed)
    # An update takes a mean of NaN for certain.
    is_lost = tf.reduce_any(is_nan(predicted.mean), axis=0)
    log_likelihoods = tf.where(is_lost, nan(values.dtype), values)
    before = State(tf.einsum("ntb->tnb", predicted.mean), tf.einsum("ijtb->tijb", predicted.chol))
    return predicted, filtered, log_likelihoods, before


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
    """The element of each step; that of the first is the state after it, whatever was before."""
    measurement = (system.h, system.r, system.z, system.observed)
    (mean, chol), _, _ = update(start, *(a[..., :1, :] for a in measurement))
    zero, nothing = tf.zeros_like(mean), tf.zeros_like(chol)
    first = Element(nothing, mean, chol, zero, nothing)
    if system.z.shape[-2] == 1:
        return first
    later = (a if a.shape[-2] == 1 else a[..., 1:, :] for a in measurement)
    following = _of_steps(*(_leading(a) for a in (system.F, system.Q_factor, system.b)), *later)
    steps = tf.shape(following.b)[-2:-1]

    def spread(a: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
        shape = tf.concat([tf.shape(like)[:-2], steps, tf.shape(like)[-1:]], axis=0)
        return tf.concat([like, tf.broadcast_to(a, shape)], axis=-2)

    return Element(*(spread(a, like) for a, like in zip(following, first, strict=True)))


def _of_steps(
    F: tf.Tensor,
    G: tf.Tensor,
    drift: tf.Tensor,
    h: tf.Tensor,
    r: tf.Tensor,
    z: tf.Tensor,
    observed: tf.Tensor,
) -> Element:
    """The elements of steps after the first, one component of the observations at a time.

    A component tells of the state at the step before by its variance given that state, h Q hᴴ + r,
    which no other part of the filter divides by.

    Raises:
        ValueError: That variance is zero, eagerly; in a graph the result is NaN.
    """
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
