"""The steady state of the Kalman filter of a model, and the filter of constant gain.

The covariance P predicted in the steady state solves the algebraic Riccati equation

    P = F P (I + G P)⁻¹ Fᴴ + Q,   G = Hᴴ R⁻¹ H.

Its stabilising solution is found by doubling: an iteration does the steps of all iterations before
it once more (Anderson, Int. J. Control 28, 1978; Chu, Fan, Lin & Wang, Int. J. Control 77, 2004):

    A⁺ = A W A,   G⁺ = G + A W G Aᴴ,   P⁺ = P + Aᴴ P W A,   W = (I + G P)⁻¹,   from A = Fᴴ, P = Q.

Each P is a Hermitian sum of squares, and A vanishes as the square of the step before. With process
noise that is correlated with the observation noise, F and Q are those given the observation.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.distributions.forms import SecondMoments
from cgp.linalg import from_composite, semidefinite_factor, triangularize
from cgp.linalg.gradients import without_gradient
from cgp.linalg.short_repr import short_repr
from cgp.statespace.engines.filter_step import for_loops
from cgp.statespace.models.linear_gaussian import LinearGaussian, check_model
from cgp.statespace.series import Series

_MOST_DOUBLINGS = 60
_MARGIN = 1e-9  # of the modulus of an eigenvalue to the unit circle, where rounding decides


@short_repr
class SteadyState(NamedTuple):
    """The moments of a Kalman filter after many observations without any missing.

    For a widely linear model covariances are pairs, and factors of the real composite,
    `[..., 2n, 2n]`.
    """

    gain: tf.Tensor
    """K, `[..., n, m]`: the filtered mean is the predicted one plus `K e`, e the innovation."""
    conjugate_gain: tf.Tensor | None
    """The gain of the conjugate of the innovation, `[..., n, m]`; None unless widely linear."""
    predicted_covariance: tf.Tensor
    """Of the state before an observation, `[..., n, n]`."""
    predicted_pseudo_covariance: tf.Tensor | None
    """`[..., n, n]`; this and those below are None unless the model is widely linear."""
    predicted_chol: tf.Tensor
    """A factor of the covariance of the state before an observation, `[..., n, n]`."""
    filtered_covariance: tf.Tensor
    """Of the state after an observation, `[..., n, n]`."""
    filtered_pseudo_covariance: tf.Tensor | None
    """`[..., n, n]`."""
    filtered_chol: tf.Tensor
    """A factor of the covariance of the state after an observation, `[..., n, n]`."""
    innovation_covariance: tf.Tensor
    """`E[e eᴴ]`, observation noise included, `[..., m, m]`."""
    innovation_pseudo_covariance: tf.Tensor | None
    """`E[e eᵀ]`, `[..., m, m]`."""


class _Working(NamedTuple):
    """The steady states of B models, arrays in double precision; B is 1 where all share one."""

    gain: np.ndarray  # `[B, n, m]`
    predicted_chol: np.ndarray  # `[B, n, n]`
    filtered_chol: np.ndarray  # `[B, n, n]`
    innovation_covariance: np.ndarray  # `[B, m, m]`


def steady_state(model: LinearGaussian) -> SteadyState:
    """The steady state of the Kalman filter: its constant gain and covariances.

    The stabilising solution of the algebraic Riccati equation, by doubling: some ten iterations
    (Chu, Fan, Lin & Wang, Int. J. Control 77, 2004), then a step of the square-root filter.

    Args:
        model: A `LinearGaussian` whose matrices do not vary over time, with an R that is positive
            definite. Its initial moments do not matter.

    Returns:
        `SteadyState`, in the dtype of the model; not differentiable.

    Raises:
        TypeError: Not a linear model.
        ValueError: Matrices that vary over time; an R that is singular; a model without a
            stabilising solution: a mode that does not decay must be observed (detectable) and be
            driven by noise (stabilisable).
        NotImplementedError: In a graph, or where a gradient is taken.

    Example:
        >>> from cgp import statespace
        >>> walk = statespace.LinearGaussian([[1.0]], [[1.0]], [[1.0]], [[2.0]], [0.0], [[1.0]])
        >>> steady = statespace.steady_state(walk)  # P = 2 solves P² = P + 2
        >>> steady.predicted_covariance.numpy(), steady.gain.numpy()
        (array([[2.]]), array([[0.5]]))
    """
    check_model(model)
    _check_eager("steady_state")
    working, batch, form = _working(model), model.batch_shape.as_list(), model.form

    def tensor(a: np.ndarray) -> tf.Tensor:
        a = np.broadcast_to(a, [int(np.prod(batch)), *a.shape[1:]])
        return tf.constant(np.reshape(a, [*batch, *a.shape[1:]]), model.dtype)

    gains = SecondMoments(tensor(working.gain))
    if form.multiplicity > 1:  # the rows of `K e + K_c ē` are twice a composite of covariances
        gains = SecondMoments(*from_composite(0.5 * gains.k))
    chols = [tensor(chol) for chol in (working.predicted_chol, working.filtered_chol)]
    predicted, filtered = (form.moments(tf.linalg.matmul(a, a, adjoint_b=True)) for a in chols)
    innovation = model.observation_form.moments(tensor(working.innovation_covariance))
    moments = (*gains, *predicted, chols[0], *filtered, chols[1], *innovation)
    return SteadyState(*_constant(moments, model))


def in_steady_state(model: Any) -> LinearGaussian:
    """The model with the covariance of the steady state for the covariance of its initial state.

    Its filter has a constant gain. A TypeError for any but a `LinearGaussian`.
    """
    check_model(model)
    _check_eager("filter with steady=True")
    return model.starting_from(model.initial_mean, steady_state(model).predicted_chol)


def _working(model: LinearGaussian) -> _Working:
    """The steady state of a model, or an error."""
    if model.steps is not None:
        raise ValueError(
            "a steady state needs matrices that do not vary over time, but those of the model have "
            f"{model.steps} steps"
        )
    # A step from an observation that is whole: its noise is correlated with none of the transition.
    centred = model.starting_from(tf.zeros_like(model.initial_mean), model.initial_chol)
    zero = tf.zeros([*model.batch_shape, 1, model.observation_size], model.series_dtype)
    inputs = None if model.B is None else _no_inputs(model)
    system, _ = for_loops(Series(centred, zero, inputs=inputs).arranged())
    kind = np.result_type(model.dtype.as_numpy_dtype, np.float64)
    arrays = (system.F, system.Q, system.Q_factor, system.h, system.r)
    F, Q, Q_factor, h, r = (np.moveaxis(np.asarray(a)[0], -1, 0).astype(kind) for a in arrays)
    r = r.real
    if not np.all(r > 0.0):
        raise ValueError(
            "a steady state needs an R that is positive definite: give components without noise a "
            "small variance"
        )
    chol = semidefinite_factor(_riccati(F, Q, _adjoint(h) @ (h / r[..., None]))).numpy()
    whitened = h / np.sqrt(r)[..., None]
    # A step of the square-root filter removes rounding of the doubling.
    noise = np.broadcast_to(Q_factor, [len(chol), *Q_factor.shape[1:]])
    chol = triangularize(np.concatenate([F @ _measured(chol, whitened), noise], axis=-1)).numpy()
    filtered = _measured(chol, whitened)
    H, R = (_by_model(model, a).astype(kind) for a in (model.H, model.R))
    cross = H @ chol @ _adjoint(chol)
    S = cross @ _adjoint(H) + R
    gain = _adjoint(np.linalg.solve(S, cross))
    _check_stable(F - F @ gain @ H)
    return _Working(gain, chol, filtered, S)


def _riccati(F: np.ndarray, Q: np.ndarray, G: np.ndarray) -> np.ndarray:
    """The limit P of the doubling from `P = Q`, `[B, n, n]`, or an error."""
    A, P, eye = _adjoint(F), Q, np.eye(F.shape[-1], dtype=F.dtype)
    with np.errstate(all="ignore"):  # what overflows is refused
        for _ in range(_MOST_DOUBLINGS):
            W_A, W_G = (np.linalg.solve(eye + G @ P, a) for a in np.broadcast_arrays(A, G))
            growth = _adjoint(A) @ P @ W_A
            A, G, P = A @ W_A, G + A @ W_G @ _adjoint(A), P + growth
            G, P = (0.5 * (a + _adjoint(a)) for a in (G, P))
            if not np.isfinite(P).all():
                break
            # Relative to the variances of both components, whose units may differ.
            scale = np.sqrt(np.diagonal(P, axis1=-2, axis2=-1).real)
            size = scale[..., :, None] * scale[..., None, :]
            if np.all(np.abs(growth) <= np.finfo(scale.dtype).eps * size):
                return P
    raise ValueError(
        "the model has no steady state: a mode that does not decay, an eigenvalue of F of modulus "
        "1 or more, is not observed (the model is not detectable), and its variance grows. Observe "
        "it by H, or model it as stable"
    )


def _check_stable(closed_loop: np.ndarray) -> None:
    radius = float(np.max(np.abs(np.linalg.eigvals(closed_loop))))
    if not radius < 1.0 - _MARGIN:
        raise ValueError(
            "the model has no stabilising steady state: errors of a mode would not decay, as the "
            f"closed loop F (I - K H) has an eigenvalue of modulus {radius:.9g}. A mode that does "
            "not decay must be driven by noise (the model is not stabilisable): give Q a variance "
            "there, or model the mode as stable"
        )


def _measured(chol: np.ndarray, whitened: np.ndarray) -> np.ndarray:
    """The factor after observations `h x + v` with v of unit variances, by an LQ factorisation."""
    m, n = whitened.shape[-2:]
    batch = np.broadcast_shapes(chol.shape[:1], whitened.shape[:1])
    upper = np.concatenate(
        [
            np.broadcast_to(np.eye(m), [*batch, m, m]),
            np.broadcast_to(whitened @ chol, [*batch, m, n]),
        ],
        axis=-1,
    )
    lower = np.concatenate(
        [np.zeros([*batch, n, m]), np.broadcast_to(chol, [*batch, n, n])], axis=-1
    )
    joint = triangularize(np.concatenate([upper, lower], axis=-2)).numpy()
    return joint[..., m:, m:]


def _by_model(model: LinearGaussian, a: tf.Tensor) -> np.ndarray:
    """A matrix of the models of a batch, `[B, rows, columns]`, B being 1 where they share it."""
    a = np.asarray(a)
    if a.ndim == 2:
        return a[None]
    batch = model.batch_shape.as_list()
    if a.ndim > 3:
        a = np.broadcast_to(a, [*batch, *a.shape[-3:]])
    return np.reshape(a, [-1, *a.shape[-2:]])


def _no_inputs(model: LinearGaussian) -> tf.Tensor:
    assert model.B is not None
    return tf.zeros([1, model.B.shape[-1] // model.form.multiplicity], model.state_dtype)


def _adjoint(a: np.ndarray) -> np.ndarray:
    return np.conj(np.swapaxes(a, -1, -2))


def _constant(tensors: Iterable[tf.Tensor | None], model: LinearGaussian) -> list[tf.Tensor | None]:
    """Tensors of which a gradient by the matrices of the model is refused; None stays None."""
    matrices = [a for a in (model.F, model.Q, model.H, model.R, model.S) if a is not None]
    tensors = list(tensors)
    present = [a for a in tensors if a is not None]
    constant = iter(without_gradient(present, matrices, _NO_GRADIENT))
    return [None if a is None else next(constant) for a in tensors]


_NO_GRADIENT = "the steady state is not differentiable by the matrices of the model"


def _check_eager(name: str) -> None:
    if not tf.executing_eagerly():
        raise NotImplementedError(f"{name} is not for graphs: call it eagerly")
