"""The square-root Kalman filter as functions of arrays: one step, and a loop of steps for XLA.

All filters in cgp use these steps, for whole series and online, as do the smoother, forecasts and
state-space Gaussian processes. The batch axis is the last, of length 1 where all series share a
value; in the loop time is the first axis, also of length 1 where nothing varies along it. A
covariance is computed once for all series that share it: the batch axis of its factor is then 1,
whatever the batch axis of the means.
"""

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.experimental.numpy import moveaxis

from cgp.distributions.forms import Form
from cgp.distributions.marginals import Marginals
from cgp.linalg.arguments import real_as, squared_modulus
from cgp.linalg.batch_last import (
    adjoint,
    condition,
    dot,
    inverse_or_zero,
    matmul,
    matvec,
    triangularize,
)
from cgp.linalg.short_repr import short_repr
from cgp.statespace.compiled import time_loop


@short_repr
class State(NamedTuple):
    """The moments of a state, by which a `Rule` linearises; the batch axis is the last.

    Example:
        >>> import tensorflow as tf
        >>> from cgp import statespace
        >>> statespace.State(tf.zeros([2, 3]), tf.ones([2, 2, 1])).mean.shape
        TensorShape([2, 3])
    """

    mean: tf.Tensor
    """`[n, B]`."""
    chol: tf.Tensor
    """The Cholesky factor of its covariance, `[n, n, B]`, or `[n, n, 1]` where all share it."""


class Innovation(NamedTuple):
    """The innovation of one component of an observation, given the components before it."""

    deviation: tf.Tensor  # The component less its predicted mean, `[B]`; zero where missing
    variance: tf.Tensor  # The variance S of the deviation, real, `[B]`; 1 where missing
    cross: tf.Tensor  # The cross-covariance of the state and the component, `P hᴴ`, `[n, B]`


class BatchLastMarginals(NamedTuple):
    """The moments of components, batch last."""

    mean: tf.Tensor  # `[m, B]`
    variance: tf.Tensor  # Real, `[m, B]`
    pseudo_variance: tf.Tensor | None  # Complex, `[m, B]`; None if it is zero or the model real


def predict(state: State, F: tf.Tensor, Q_factor: tf.Tensor, drift: tf.Tensor) -> State:
    """The time update: the moments of `F x + drift + w`, w of covariance `G Gᴴ`, G being Q_factor.

    `L⁺` with `L⁺ L⁺ᴴ = F P Fᴴ + G Gᴴ` is `triangularize([F L, G])`, a sum of squares (Bierman,
    *Factorization Methods for Discrete Sequential Estimation*, 1977, ch. VI). F is `[n, n, B]`, G
    `[n, q, B]`, and the drift `[n, B]`.
    """
    spread = matmul(F, state.chol)
    noise = Q_factor + tf.zeros_like(spread[:, :1])  # the batch axis of the state
    chol = triangularize(tf.concat([spread, noise], axis=1))
    return State(matvec(F, state.mean) + drift, chol)


def update(
    state: State, h: tf.Tensor, r: tf.Tensor, z: tf.Tensor, observed: tf.Tensor
) -> tuple[State, tf.Tensor, list[Innovation]]:
    """The measurement update, one component of the observation at a time.

    Each component by Carlson's formula (AIAA J. 11, 1973). The noise of the components must be
    uncorrelated (see `decorrelated`). A missing component changes nothing.

    Args:
        state: The moments before the observation.
        h: Rows of the observation matrix, `[m, n, B]`.
        r: Variances of the observation noise, real, `[m, B]`.
        z: The observation, `[m, B]`; any finite number where missing.
        observed: Real, `[m, B]`: 1, or 0 where missing.

    Returns:
        The moments after it; the log likelihood, real, `[B]`; and the innovations.
    """
    mean, chol = state
    scale, constant = density(mean.dtype)
    log_likelihood, innovations = 0.0, []
    components = (tf.unstack(a, z.shape[0]) for a in (h, r, z, observed))
    for row, noise, component, is_observed in zip(*components, strict=True):
        effective = row * real_as(is_observed, h.dtype)
        noise = tf.where(is_observed > 0, noise, tf.ones_like(is_observed))
        chol, cross, variance = condition(chol, effective, noise)
        deviation = (component - dot(row, mean)) * real_as(is_observed, mean.dtype)
        mean_before = mean
        inverse = inverse_or_zero(variance)
        mean = mean + cross * (deviation * real_as(inverse, mean.dtype))
        loss = tf.math.log(variance) + squared_modulus(deviation) * inverse + constant * is_observed
        certain = _loss_of_the_certain(deviation, component, row * mean_before, loss.dtype)
        log_likelihood -= tf.where(variance > 0, scale * loss, certain)
        innovations.append(Innovation(deviation, variance + tf.zeros_like(is_observed), cross))
    return State(mean, chol), log_likelihood, innovations


def marginals_of(
    form: Form, mean: tf.Tensor, rows: tf.Tensor, noise: tf.Tensor | None
) -> BatchLastMarginals:
    """Moments of components of mean `[k, B]` and covariance `rows rowsᴴ + noise`, `[k, k, B]`."""
    power = tf.reduce_sum(squared_modulus(rows), axis=1)
    if noise is not None:
        power += tf.math.real(tf.stack([noise[i, i] for i in range(noise.shape[0])]))
    if form.multiplicity == 1:
        return BatchLastMarginals(mean, power, None)
    m = mean.shape[0] // 2
    cross = tf.reduce_sum(rows[:m] * rows[m:], axis=1)
    if noise is not None:
        cross += tf.stack([noise[i, i + m] for i in range(m)])
    re, im = power[:m], power[m:]
    return BatchLastMarginals(
        tf.complex(mean[:m], mean[m:]), re + im, tf.complex(re - im, 2.0 * cross)
    )


def with_pseudo_variance(
    mean: tf.Tensor, variance: tf.Tensor, pseudo: tf.Tensor | None
) -> Marginals:
    """The moments of components, with a pseudo-variance where there is none."""
    if pseudo is None:  # E(x − m)² of a real number is its variance
        pseudo = tf.zeros_like(mean) if mean.dtype.is_complex else variance
    return Marginals(mean, variance, pseudo)


def density(dtype: tf.DType) -> tuple[float, float]:
    """(c, log π or log 2π): the negative log density is `c (log S + |v|²/S + constant)`."""
    return (1.0, math.log(math.pi)) if dtype.is_complex else (0.5, math.log(2.0 * math.pi))


def _loss_of_the_certain(
    deviation: tf.Tensor, z: tf.Tensor, terms: tf.Tensor, dtype: tf.DType
) -> tf.Tensor:
    """The loss of an observation predicted without uncertainty: zero, or infinite if it differs.

    `terms`, `[n, B]`, sum to the predicted mean: rounding errors are relative to their size.
    """
    size = tf.abs(z) + tf.reduce_sum(tf.abs(terms), axis=0)
    tolerance = np.finfo(dtype.as_numpy_dtype).eps ** 0.5
    return tf.where(
        tf.abs(deviation) <= tolerance * size, tf.zeros_like(size), tf.constant(np.inf, dtype)
    )


class System(NamedTuple):
    """x' = F x + b + w, w of covariance Q; each component of z is h x + v, v of variance r."""

    F: tf.Tensor  # Transition, `[T, n, n, B]`; in all of these T and B are 1 where nothing varies
    Q: tf.Tensor  # Process noise covariance, `[T, n, n, B]`; gradients flow to it
    Q_factor: tf.Tensor  # G, `[T, n, q, B]`, with `Q = G Gᴴ`; computations use it
    h: tf.Tensor  # `[T, m, n, B]`
    r: tf.Tensor  # Observation noise variances, real, `[T, m, B]`; the components are uncorrelated
    b: tf.Tensor  # `[T, n, B]`
    z: tf.Tensor  # `[T, m, B]`; any finite number where missing
    observed: tf.Tensor  # Real, `[T, m, B]`: 1, or 0 where missing


class ForwardPass(NamedTuple):
    """The moments along a chunk."""

    predicted_means: tf.Tensor  # Before the observation of each step, `[T, n, B]`
    predicted_chols: tf.Tensor  # `[T, n, n, B]`
    filtered_means: tf.Tensor  # After it, `[T, n, B]`
    filtered_chols: tf.Tensor  # `[T, n, n, B]`
    log_likelihoods: tf.Tensor  # Real, `[T, B]`
    deviations: tf.Tensor
    """Deviation of each component from its mean given the components before it, `[T, m, B]`."""
    variances: tf.Tensor  # Variances of the deviations, real, `[T, m, B]`; 1 where missing
    crosses: tf.Tensor  # Cross-covariance of the state and each component, `P hᴴ`, `[T, m, n, B]`


def at(a: tf.Tensor, t: int | tf.Tensor) -> tf.Tensor:
    """The value at step t of a chunk."""
    return a[0] if a.shape[0] == 1 else a[t]


def at_known(a: tf.Tensor, t: tf.Tensor) -> tf.Tensor:
    """`at`, in a graph that may not know whether the first axis is 1."""
    return a[tf.minimum(t, tf.shape(a)[0] - 1)]


def update_at(
    system: System, t: int | tf.Tensor, state: State
) -> tuple[State, tf.Tensor, list[Innovation]]:
    """`update` with the observation of step t."""
    return update(state, *(at(a, t) for a in (system.h, system.r, system.z, system.observed)))


def predict_at(system: System, t: int | tf.Tensor, state: State) -> State:
    """`predict` from step t to the next."""
    return predict(state, *(at(a, t) for a in (system.F, system.Q_factor, system.b)))


def log_likelihood(
    system: System, state: State, length: tf.Tensor
) -> tuple[tuple[tf.Tensor], State]:
    """The log likelihood of the first `length` steps, `[B]`, and the state predicted after them."""

    def step(t: tf.Tensor, state: State, total: tf.Tensor) -> tuple[tf.Tensor, State, tf.Tensor]:
        state, log_likelihood, _ = update_at(system, t, state)
        return t + 1, predict_at(system, t, state), total + log_likelihood

    total = tf.zeros_like(system.z[0, 0], dtype=system.r.dtype)
    _, state, total = tf.while_loop(lambda t, *_: t < length, step, (tf.constant(0), state, total))
    return (total,), state


def forward_pass(system: System, state: State, length: tf.Tensor) -> tuple[ForwardPass, State]:
    """The moments of the first `length` steps, zero after them, and the state predicted next."""
    steps, (m, n) = system.z.shape[0], system.h.shape[1:3]
    columns, matrices = state.mean.shape[-1], state.chol.shape[-1]
    dtype, real = state.mean.dtype, system.r.dtype
    moments = [(dtype, [n, columns]), (dtype, [n, n, matrices])]
    innovations = [(dtype, [m, columns]), (real, [m, matrices]), (dtype, [m, n, matrices])]
    kinds = [*moments, *moments, (real, [columns]), *innovations]  # as in a `ForwardPass`

    def step(t: tf.Tensor, state: State) -> tuple[tuple[tf.Tensor, ...], State]:
        after, log_likelihood, innovations = update_at(system, t, state)
        stacked = map(tf.stack, zip(*innovations, strict=True))
        return (*state, *after, log_likelihood, *stacked), predict_at(system, t, after)

    values, state = time_loop(step, state, kinds, steps, length)
    return ForwardPass(*values), state


def covariances(chols: tf.Tensor) -> tf.Tensor:
    """`L Lᴴ` of each step, `[T, n, n, B]`."""
    chols = tf.einsum("tijb->ijtb", chols)
    return tf.einsum("ijtb->tijb", matmul(chols, adjoint(chols)))


class KalmanSystem(NamedTuple):
    """A `System` for many series, with the state before the first step, as compiled ops take it.

    An array that is the same at all steps of all series has its own axes alone. Others have a time
    axis before these, except the moments of the first state, and a batch axis after them; either
    is 1 where nothing varies along it. The covariances of all series are the same where `chol` has
    no batch axis, or one of 1.
    """

    F: tf.Tensor  # `[n, n]`, or `[T, n, n, B]`
    Q: tf.Tensor  # `[n, n]`, or `[T, n, n, B]`
    Q_factor: tf.Tensor  # `[n, q]`, or `[T, n, q, B]`
    h: tf.Tensor  # `[m, n]`, or `[T, m, n, B]`
    r: tf.Tensor  # Real, `[m]`, or `[T, m, B]`
    b: tf.Tensor  # `[n]`, or `[T, n, B]`
    z: tf.Tensor  # The observations, contiguous in memory for each series, `[B, T, m]`
    observed: tf.Tensor  # Real, `[m]`, or `[T, m, B]`
    mean: tf.Tensor  # `[n]`, or `[n, B]`
    covariance: tf.Tensor  # `[n, n]`, or `[n, n, B]`; gradients flow to it
    chol: tf.Tensor  # The factor of the first covariance, which computations use


_RANKS = KalmanSystem(
    F=2, Q=2, Q_factor=2, h=2, r=1, b=1, z=1, observed=1, mean=1, covariance=2, chol=2
)
_ON_COVARIANCES = ("F", "Q_factor", "h", "r", "observed", "chol")


def batch_of(system: KalmanSystem, name: str) -> int | None:
    """The length of the batch axis of an array; None where it is not known."""
    array = getattr(system, name)
    return 1 if array.shape.rank == getattr(_RANKS, name) else array.shape[-1]


def with_covariances_of_each(system: KalmanSystem) -> KalmanSystem:
    """Gives the first covariance a batch axis where arrays that change covariances have one."""
    sizes = {name: batch_of(system, name) for name in _ON_COVARIANCES}
    if set(sizes.values()) == {1} or sizes["chol"] not in (None, 1):
        return system
    zero = sum(
        tf.zeros_like(tf.abs(a[(0,) * (a.shape.rank - 1)]))
        for a in (getattr(system, name) for name, size in sizes.items() if size != 1)
    )
    zero = real_as(zero, system.chol.dtype)
    covariance, chol = (
        (a[..., None] if a.shape.rank == 2 else a) + zero for a in (system.covariance, system.chol)
    )
    return system._replace(covariance=covariance, chol=chol)


def for_loops(system: KalmanSystem) -> tuple[System, State]:
    """The arrays with all axes of a `System`, and the first state, `[n, B]` and `[n, n, B]`."""
    z = moveaxis(system.z, 0, -1)
    arrays = {"z": z}
    for name in System._fields:
        a = getattr(system, name)
        if name != "z":
            is_constant = a.shape.rank == getattr(_RANKS, name)
            arrays[name] = a[None, ..., None] if is_constant else a
    mean, chol = (
        a[..., None] if a.shape.rank == rank else a
        for a, rank in ((system.mean, 1), (system.chol, 2))
    )
    return System(**arrays), State(mean + tf.zeros_like(z[0, :1]), chol)


def from_loops(gradient: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """The gradient by an array, except z, from the gradient by its form from `for_loops`."""
    if gradient.shape.rank == like.shape.rank:
        return gradient
    summed = tf.reduce_sum(gradient, axis=-1)  # of a mean that all series share; else of one
    return summed if summed.shape.rank == like.shape.rank else summed[0]


# A pivot below this many rounding errors of its diagonal element counts as zero.
_ROUNDING = 8.0


def decorrelated(
    H: tf.Tensor, R: tf.Tensor, z: tf.Tensor, observed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Transforms observations so that the noise of their components is uncorrelated.

    With `R = U D Uᴴ` of the observed components, U unit lower triangular and D diagonal, the result
    is `U⁻¹ H`, D and `U⁻¹ z`. Elimination computes it without an inverse of R, which may be
    singular. As |U| = 1, the density is the same. Arrays are as in a `KalmanSystem`, R is
    `[m, m]`, or `[T, m, m, B]`, and z zero where missing.
    """
    m = z.shape[-1]
    if m == 1:
        return H, tf.squeeze(tf.math.real(R), axis=0 if R.shape.rank == 2 else 2), z
    H, R = (a[None, ..., None] if a.shape.rank == 2 else a for a in (H, R))
    observed = observed[None, :, None] if observed.shape.rank == 1 else observed
    diagonal = tf.stack([tf.math.real(R[:, i, i]) for i in range(m)], axis=1)
    # Makes the gradient with respect to R Hermitian. A diagonal R takes this path too, because its
    # derivatives with respect to the off-diagonal elements are not zero.
    R = 0.5 * (R + tf.math.conj(tf.einsum("tijb->tjib", R)))
    # Noise of unit variance: otherwise the square of a pivot, in its derivative, may under- or
    # overflow.
    noisy = diagonal > 0
    unit = tf.stop_gradient(tf.where(noisy, tf.sqrt(tf.where(noisy, diagonal, 1.0)), 1.0))
    scale = real_as(1.0 / unit, R.dtype)
    is_observed = real_as(observed, R.dtype)
    R = R * (scale * is_observed)[:, :, None] * (scale * is_observed)[:, None]
    H, z = H * scale[:, :, None], z * _by_series(scale)
    eps = np.finfo(R.dtype.real_dtype.as_numpy_dtype).eps
    size, variances = tf.abs(H), []
    for j in range(m):
        pivot = tf.math.real(R[:, j, j])
        sound = pivot > _ROUNDING * m * eps
        # A zero pivot: only its value is set to zero, its derivative is kept.
        pivot += tf.stop_gradient(tf.where(sound, pivot, tf.zeros_like(pivot)) - pivot)
        inverse = tf.where(sound, 1.0 / tf.where(sound, pivot, 1.0), tf.zeros_like(pivot))
        below = np.arange(m)[:, None] > j
        factors = R[:, :, j] * real_as(inverse, R.dtype)[:, None]
        factors = tf.where(below, factors, tf.zeros_like(factors))
        variances.append(pivot)
        R = R - factors[:, :, None] * R[:, None, j]
        z = z - _by_series(factors) * z[..., j, None]
        size = size + tf.abs(factors)[:, :, None] * tf.abs(H[:, None, j])
        H = H - factors[:, :, None] * H[:, None, j]
        # Rounding errors of rows that cancel would count as noise-free observations. Only the
        # value is set to zero, the derivative is kept.
        rows = tf.where(tf.abs(H) > _ROUNDING * eps * size, H, tf.zeros_like(H))
        H += tf.stop_gradient(rows - H)
    variance = tf.stack(variances, axis=1) * unit * unit
    unit = real_as(unit, R.dtype)
    return H * unit[:, :, None], variance, z * _by_series(unit)


def leaves_no_exact_observation(R: tf.Tensor) -> bool:
    """Whether noise of covariances `[..., m, m]` reaches every combination of the components."""
    R = np.asarray(R)
    size = np.sqrt(np.diagonal(R, axis1=-2, axis2=-1).real)
    if not np.all(size > 0.0):
        return False
    unit = R / (size[..., None] * size[..., None, :])
    return bool(np.all(np.linalg.eigvalsh(unit) > _ROUNDING * R.shape[-1] * np.finfo(R.dtype).eps))


def _by_series(a: tf.Tensor) -> tf.Tensor:
    """`[T, m, B]` -> `[B, T, m]`."""
    return tf.experimental.numpy.moveaxis(a, -1, 0)
