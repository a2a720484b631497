"""Initial states of models: the stationary one, and an unknown one."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.linalg.batch_last import adjoint, matmul, to_first, to_last, triangularize
from cgp.linalg.gradients import without_gradient
from cgp.statespace.compiled import CompiledByShape

_MOST_DOUBLINGS = 64


def stationary_chol(F: tf.Tensor, Q: tf.Tensor, G: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The covariance P with `P = F P Fᴴ + Q`, and a factor of it.

    By doubling: if P is the sum of `Fᵏ Q Fᵏᴴ` over k < K, the sum over k < 2K is `P + Fᴷ P Fᴷᴴ`,
    here by `triangularize([L, Fᴷ L])`, which avoids squaring the condition number (doubling: Smith,
    SIAM J. Appl. Math. 16, 1968). F and Q are `[..., 1, n, n]`, with an axis of time, and G, with
    `Q = G Gᴴ`, is `[..., 1, n, q]`.

    Returns:
        P and L, each `[..., n, n]`; in a graph NaN where F is not stable. P is differentiable with
        respect to F and Q; gradients flow through P, not through L.

    Raises:
        ValueError: F or Q vary over time; or, eagerly, F is not stable.
    """
    if F.shape[-3] != 1 or Q.shape[-3] != 1:
        raise ValueError(
            'initial_covariance="stationary" needs F and Q that do not vary over time: give a '
            'matrix, or "diffuse"; in model.replace, '
            "initial_covariance=model.initial_covariance keeps that of the model"
        )
    F, Q, G = F[..., 0, :, :], Q[..., 0, :, :], G[..., 0, :, :]
    if tf.executing_eagerly():
        radius = np.max(np.abs(np.linalg.eigvals(F.numpy())))
        if not radius < 1.0:
            raise ValueError(
                'initial_covariance="stationary" needs an F whose eigenvalues are inside the unit '
                f'circle, but the largest has modulus {radius:.6g}: give a matrix, or "diffuse"'
            )
    batch = tf.broadcast_dynamic_shape(tf.shape(F)[:-2], tf.shape(G)[:-2])
    static_batch = tf.broadcast_static_shape(F.shape[:-2], G.shape[:-2])
    n = F.shape[-1]

    def last(a: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(to_last(a, 2, batch), [*a.shape[-2:], None])

    factor = last(tf.stop_gradient(G))

    @tf.custom_gradient
    def solve(
        F: tf.Tensor, Q: tf.Tensor
    ) -> tuple[tuple[tf.Tensor, tf.Tensor], Callable[..., list[tf.Tensor]]]:
        variables, F = (F, Q), tf.stop_gradient(F)  # no tape records the loops
        chol = _compiled_factor(F, factor)
        covariance = matmul(chol, adjoint(chol))

        def backward(by_covariance: tf.Tensor, by_chol: tf.Tensor) -> list[tf.Tensor]:
            # The cotangents satisfy the adjoint equation Q̄ = P̄ + Fᴴ Q̄ F, P̄ made Hermitian.
            by_covariance = tf.stop_gradient(by_covariance)
            by_covariance = 0.5 * (by_covariance + adjoint(by_covariance))
            by_q = _compiled_sum(adjoint(F), by_covariance)
            return without_gradient(
                [2.0 * matmul(matmul(by_q, F), covariance), by_q],
                variables,
                "the stationary covariance is differentiable once",
            )

        return (covariance, chol), backward

    covariance, chol = (
        tf.ensure_shape(to_first(a, batch), static_batch.concatenate([n, n]))
        for a in solve(last(F), last(Q))
    )
    if not tf.executing_eagerly():
        # Training may have changed F; eagerly its eigenvalues have been checked.
        sound = tf.reduce_all(tf.math.is_finite(tf.abs(chol)))
        stable = tf.debugging.Assert(
            sound, ["F has no stationary covariance any more: an eigenvalue is not below 1"]
        )
        with tf.control_dependencies([stable]):
            covariance = tf.identity(covariance)
    return covariance, tf.stop_gradient(chol)


def _doubling(
    step: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], F: tf.Tensor, start: tf.Tensor
) -> tf.Tensor:
    """The limit of x ← step(A, x), A ← A² from A = F, as A vanishes."""
    eps = np.finfo(F.dtype.real_dtype.as_numpy_dtype).eps
    least = 1 + math.ceil(math.log2(F.shape[0]))  # enough for a nilpotent part of F, at any scale

    def goes_on(k: tf.Tensor, A: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        # An A that has overflowed is NaN, for which the comparison is false.
        vanishes = tf.reduce_max(tf.abs(A)) < 1e-3 * eps
        return (k < least) | ((k < _MOST_DOUBLINGS) & ~vanishes)

    _, A, x = tf.while_loop(
        goes_on, lambda k, A, x: (k + 1, matmul(A, A), step(A, x)), (tf.constant(0), F, start)
    )
    nan = tf.constant(np.nan, F.dtype)
    return tf.where(tf.reduce_max(tf.abs(A), axis=[0, 1]) < 1.0, x, nan)


_compiled_factor = CompiledByShape(
    lambda F, G: _doubling(
        lambda A, L: triangularize(tf.concat([L, matmul(A, L)], axis=1)), F, triangularize(G)
    )
)
_compiled_sum = CompiledByShape(
    lambda F, Q: _doubling(lambda A, P: P + matmul(matmul(A, P), adjoint(A)), F, Q)
)


# The prior variance must exceed the variance of data and noise by this factor.
_WIDER = 1e4


def diffuse_variance(dtype: tf.DType) -> float:
    """The variance used as infinite: large, yet noise is not lost to rounding in the filter."""
    return 1e10 if dtype.real_dtype == tf.float64 else 1e6


def check_diffuse(model: Any, z: np.ndarray) -> None:
    """Checks that a diffuse prior is wide compared with the data, and does not swamp the noise.

    Only the first 2n observations, zero where missing, are checked, enough to determine the state:
    later ones may be of any size.
    """
    variance, n = diffuse_variance(model.dtype), model.state_size
    H, R, Q = (np.asarray(a) for a in (model.H, model.R, model.Q))
    m = model.observation_size
    reach = np.sum(np.abs(H) ** 2, axis=-1) / model.form.multiplicity
    noise = np.abs(np.diagonal(R, axis1=-2, axis2=-1))
    if model.observation_form.multiplicity > 1:  # real and imaginary parts
        reach, noise = (a[..., :m] + a[..., m:] for a in (reach, noise))
    first = z[..., : 2 * n, :]
    largest = np.max(np.abs(first) ** 2, axis=tuple(range(first.ndim - 1)))
    is_measured = reach > 0
    if np.any(is_measured & (variance * reach < _WIDER * noise)) or np.any(
        np.any(is_measured, axis=tuple(range(is_measured.ndim - 1)))
        & (variance * np.max(reach, axis=tuple(range(reach.ndim - 1))) < _WIDER * largest)
    ):
        raise ValueError(
            f'initial_covariance="diffuse" stands for a variance of {variance:g} of the state, '
            f"which is not wide beside noise of {np.max(noise):.3g} or data of "
            f"{np.sqrt(np.max(largest)):.3g}: take other units, or give a matrix"
        )
    spreads = np.concatenate([np.ravel(np.diagonal(a, axis1=-2, axis2=-1).real) for a in (Q, R)])
    spreads = np.sqrt(spreads[spreads > 0])
    eps = np.finfo(model.dtype.real_dtype.as_numpy_dtype).eps
    if spreads.size and 4.0 * eps * np.sqrt(variance) > np.min(spreads):
        raise ValueError(
            f'initial_covariance="diffuse" stands for a variance of {variance:g} of the state, '
            f"beside which noise of standard deviation {np.min(spreads):.3g} is lost to rounding: "
            "take other units, or give a matrix"
        )
