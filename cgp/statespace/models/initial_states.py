"""Initial states of models: the stationary one, and an unknown one."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.linalg.batch_last import adjoint, matmul, to_first, to_last, triangularize
from cgp.linalg.gradients import without_gradient
from cgp.linalg.semidefinite import lq
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
        chol = _stationary_factor(F, factor)
        covariance = matmul(chol, adjoint(chol))

        def backward(by_covariance: tf.Tensor, by_chol: tf.Tensor) -> list[tf.Tensor]:
            # The cotangents satisfy the adjoint equation Q̄ = P̄ + Fᴴ Q̄ F, P̄ made Hermitian.
            by_covariance = tf.stop_gradient(by_covariance)
            by_covariance = 0.5 * (by_covariance + adjoint(by_covariance))
            by_q = _stationary_sum(adjoint(F), by_covariance)
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


def _stationary_factor(F: tf.Tensor, G: tf.Tensor) -> tf.Tensor:
    """The factor of `Σ Fᵏ G Gᴴ Fᵏᴴ`, `[n, n, B]`; NaN where F is not stable."""
    if not tf.executing_eagerly():
        return _compiled_stationary_factor(F, G)

    def step(A: np.ndarray, L: np.ndarray) -> np.ndarray:
        joint = np.concatenate([L, A @ L], axis=-1)
        return _adjoint(np.asarray(np.linalg.qr(_adjoint(joint), mode="r")))

    L, _ = lq(tf.constant(_doubling_by_numpy(step, F, G)))  # a diagonal that is not negative
    return _batch_last(L.numpy())


def _stationary_sum(F: tf.Tensor, Q: tf.Tensor) -> tf.Tensor:
    """`Σ Fᵏ Q Fᵏᴴ`, `[n, n, B]`; NaN where F is not stable."""
    if not tf.executing_eagerly():
        return _compiled_stationary_sum(F, Q)
    return _batch_last(_doubling_by_numpy(lambda A, P: P + A @ P @ _adjoint(A), F, Q))


def _fewest_doublings(n: int) -> int:
    """Enough for a nilpotent part of F `[n, n]`, at any scale."""
    return 1 + math.ceil(math.log2(n))


def _negligible(dtype: tf.DType) -> float:
    """The modulus of the elements of a power of F that adds nothing more."""
    return 1e-3 * float(np.finfo(dtype.real_dtype.as_numpy_dtype).eps)


def _doubling_by_numpy(
    step: Callable[[np.ndarray, np.ndarray], np.ndarray], F: tf.Tensor, start: tf.Tensor
) -> np.ndarray:
    """`_doubling` without XLA, whose compilation takes half a second.

    The batch axis of F and of the start is the last one, for `step` and in the result the first.
    """
    A, x = (np.moveaxis(a.numpy(), -1, 0) for a in (F, start))
    with np.errstate(all="ignore"):  # powers of an F that is not stable overflow
        for k in range(_MOST_DOUBLINGS):
            if k >= _fewest_doublings(A.shape[-1]) and np.max(np.abs(A)) < _negligible(F.dtype):
                break
            A, x = A @ A, step(A, x)
        return np.where(np.max(np.abs(A), axis=(-2, -1), keepdims=True) < 1.0, x, np.nan)


def _doubling(
    step: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], F: tf.Tensor, start: tf.Tensor
) -> tf.Tensor:
    """The limit of x ← step(A, x), A ← A² from A = F, as A vanishes."""
    fewest, negligible = _fewest_doublings(F.shape[0]), _negligible(F.dtype)

    def goes_on(k: tf.Tensor, A: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        # An A that has overflowed is NaN, for which the comparison is false.
        vanishes = tf.reduce_max(tf.abs(A)) < negligible
        return (k < fewest) | ((k < _MOST_DOUBLINGS) & ~vanishes)

    _, A, x = tf.while_loop(
        goes_on, lambda k, A, x: (k + 1, matmul(A, A), step(A, x)), (tf.constant(0), F, start)
    )
    nan = tf.constant(np.nan, F.dtype)
    return tf.where(tf.reduce_max(tf.abs(A), axis=[0, 1]) < 1.0, x, nan)


_compiled_stationary_factor = CompiledByShape(
    lambda F, G: _doubling(
        lambda A, L: triangularize(tf.concat([L, matmul(A, L)], axis=1)), F, triangularize(G)
    )
)
_compiled_stationary_sum = CompiledByShape(
    lambda F, Q: _doubling(lambda A, P: P + matmul(matmul(A, P), adjoint(A)), F, Q)
)


def _adjoint(a: np.ndarray) -> np.ndarray:
    return np.conj(np.swapaxes(a, -1, -2))


def _batch_last(a: np.ndarray) -> tf.Tensor:
    return tf.constant(np.moveaxis(a, 0, -1))


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
