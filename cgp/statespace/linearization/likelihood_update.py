"""Observations whose noise is not normal, as normal observations of the same signal.

The moments of the signal `g = A x + b` of a step follow from the state, and each component has a
site (see `cgp.likelihoods.base`). Sites and state are found in turns, until both agree.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.distributions.forms import Form
from cgp.likelihoods.base import (
    Likelihood,
    Moments,
    Site,
    between,
    distance,
    elements,
    inverse,
    symmetric,
    trace,
)
from cgp.linalg.arguments import nan, real_as
from cgp.linalg.batch_last import adjoint, cholesky, divide, matmul, matvec, solve
from cgp.statespace.engines.filter_step import State, decorrelated, update
from cgp.statespace.linearization.rules import Affine

MOST_TURNS = 500
_LITTLE = 1e6
"""The variance of the first sites, where z is no signal, in variances of the observation."""


def accuracy(dtype: tf.DType) -> tf.Tensor:
    """The greatest move, in standard deviations, of a signal that agrees with its sites."""
    return tf.constant(1e-10 if dtype.real_dtype == tf.float64 else 1e-5, dtype.real_dtype)


class Measurement(NamedTuple):
    """An observation, working values, batch last."""

    z: tf.Tensor  # `[m, B]`; any finite number where missing
    R: tf.Tensor  # The covariance of the noise, of which the diagonal counts, `[m, m, B]`
    observed: tf.Tensor  # Real, `[m, B]`: 1, or 0 where missing


class Measured(NamedTuple):
    """Normal observations that replace those with a likelihood, working values, batch last."""

    z: tf.Tensor  # `[m, B]`
    R: tf.Tensor  # The covariance of their noise, `[m, m, B]`
    correction: tf.Tensor
    """The log likelihood of the observation less that of the normal one, real, `[B]`."""
    change: tf.Tensor
    """The move of the signal in the last turn, in standard deviations, real, `[B]`; infinite before
    the first turn."""

    def with_missing(self, measurement: Measurement) -> "Measured":
        """The same, with the noise of the model where a component is missing, which has no site.

        Its prediction is then a forecast. All arrays may have an axis of time first.
        """
        is_observed = measurement.observed > 0.0
        row, column = is_observed[..., None, :], is_observed[..., None, :, :]
        R = tf.where(row & column, self.R, tf.zeros_like(self.R))
        R = tf.where(row | column, R, measurement.R)
        return self._replace(z=tf.where(is_observed, self.z, measurement.z), R=R)


def updated_by(
    affine: Affine, measurement: Measurement, state: State, decorrelate: Any = decorrelated
) -> tuple[State, tf.Tensor]:
    """The moments after an observation with an affine function, and its log likelihood, `[B]`.

    `decorrelate`, as `decorrelated`, is for an R of another structure.
    """
    z, R, observed = measurement
    if affine.residual is not None:
        R = R + matmul(affine.residual, adjoint(affine.residual))
        decorrelate = decorrelated
    values = tf.einsum("mb->bm", z - affine.offset)[:, None]  # a series of one step
    h, r, values = decorrelate(affine.matrix[None], R[None], values, observed[None])
    values = tf.einsum("bm->mb", values[:, 0])
    after, log_likelihood, _ = update(state, h[0], r[0], values, observed)
    return after, log_likelihood


class Signal(NamedTuple):
    """The normal prediction of a signal, working values, batch last."""

    mean: tf.Tensor  # `[m, B]`
    covariance: tf.Tensor  # `[m, m, B]`


class _Problem(NamedTuple):
    """Posterior, observation and noise variance of each component, in real coordinates.

    Their sites depend on these alone. Arrays are `[d, …, m, B]`.
    """

    q: Moments  # The posterior of the signal
    target: tf.Tensor  # The observation
    variance: tf.Tensor  # The variance of its noise, `[m, B]`


class StepSites:
    """The sites of the components of an observation; in a complex form likelihoods are circular."""

    def __init__(self, likelihood: Likelihood, form: Form):
        self._likelihood = likelihood
        self.start_from_noise = likelihood.is_circular
        self._multiplicity = 1 if likelihood.is_of_parts else form.multiplicity

    def first(self, affine: Affine, measurement: Measurement, state: State) -> Measured:
        """The first sites: of normal noise, or, where z is no signal, of next to no precision."""
        return self._first(self._problem(affine, measurement, state), measurement)

    def renewed(
        self,
        affine: Affine,
        measurement: Measurement,
        state: State,
        last: Measured,
        turn: tf.Tensor,
    ) -> Measured:
        """The next sites, by the state after the last ones; arguments as for `first`."""
        problem = self._problem(affine, measurement, state, last)
        return self._renewed(problem, measurement, last, turn)

    def completed(
        self, affine: Affine, measurement: Measurement, state: State, last: Measured
    ) -> Measured:
        """The last sites, with the correction of their log likelihood: NaN unless they agree."""
        problem = self._problem(affine, measurement, state, last)
        return self._completed(problem, measurement, last)

    def first_of_signal(self, signal: Signal, measurement: Measurement) -> Measured:
        """`first`, of a signal that is predicted so."""
        return self._first(self._in_coordinates(signal, measurement), measurement)

    def renewed_in_turns(
        self,
        signal: Signal,
        measurement: Measurement,
        last: Measured,
        turn: tf.Tensor,
        turns: tf.Tensor,
    ) -> Measured:
        """The sites after so many more turns, or once they agree with a signal predicted so.

        The posterior is that of a filter whose state is the signal itself.
        """

        def again(count: tf.Tensor, last: Measured) -> tuple[tf.Tensor, Measured]:
            posterior = self._posterior(signal, measurement, last)
            problem = self._in_coordinates(posterior, measurement)
            return count + 1, self._renewed(problem, measurement, last, turn + count)

        def goes_on(count: tf.Tensor, last: Measured) -> tf.Tensor:
            change = tf.reduce_max(last.change)
            return (count < turns) & (change > accuracy(change.dtype))

        return tf.while_loop(goes_on, again, (tf.constant(0), last))[1]

    def completed_by_signal(
        self, signal: Signal, measurement: Measurement, last: Measured
    ) -> Measured:
        """`completed`, of a signal that is predicted so."""
        posterior = self._posterior(signal, measurement, last)
        return self._completed(self._in_coordinates(posterior, measurement), measurement, last)

    def distance(self, signal: Signal, measured: Measured, renewed: Measured) -> tf.Tensor:
        """The distance of sites, in standard deviations of a signal, `[m, B]`."""
        q = Moments(self._coordinates(signal.mean), self._blocks(signal.covariance))
        return distance(self._site(measured), self._site(renewed), q)

    def _posterior(self, signal: Signal, measurement: Measurement, last: Measured) -> Signal:
        """The moments of a signal given the normal observations of its sites."""
        reduction = _reduction(signal.covariance, last.R, measurement.observed)
        mean = last.z + matvec(reduction, signal.mean - last.z)
        return Signal(mean, matmul(reduction, signal.covariance))

    def _completed(self, problem: _Problem, measurement: Measurement, last: Measured) -> Measured:
        q, target, variance = problem
        correction = self._likelihood.correction(target, q, self._site(last), variance)
        correction = tf.reduce_sum(correction * measurement.observed[: correction.shape[0]], axis=0)
        agrees = last.change <= 1e3 * accuracy(correction.dtype)
        return last._replace(correction=tf.where(agrees, correction, nan(correction.dtype)))

    def _first(self, problem: _Problem, measurement: Measurement) -> Measured:
        q, target, variance = problem
        d = target.shape[0]
        eye = tf.eye(d, dtype=variance.dtype)[..., None, None]
        if self.start_from_noise:
            return self._measured(Site(target, d * eye / variance), measurement.z)
        spread = _LITTLE * (trace(q.covariance) + variance)
        return self._measured(Site(q.mean, eye / spread), measurement.z)

    def _renewed(
        self, problem: _Problem, measurement: Measurement, last: Measured, turn: tf.Tensor
    ) -> Measured:
        q, target, variance = problem
        last_site = self._site(last)
        site = self._likelihood.site(target, q, last_site, variance)
        site = between(last_site, site, self._likelihood.step(turn, variance.dtype))
        change = tf.reduce_max(
            distance(last_site, site, q) * measurement.observed[: target.shape[1]], axis=0
        )
        # Where nothing moved, the derivative of the distance is infinite.
        return self._measured(site, measurement.z)._replace(change=tf.stop_gradient(change))

    def updated(
        self, affine: Affine, measured: Measured, measurement: Measurement, state: State
    ) -> tuple[State, tf.Tensor]:
        """The moments after the normal observations, and their log likelihood, `[B]`."""
        normal = measurement._replace(z=measured.z, R=measured.R)
        return updated_by(affine, normal, state, self._decorrelated)

    def _decorrelated(
        self, H: tf.Tensor, R: tf.Tensor, z: tf.Tensor, observed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Decorrelated noise (see `decorrelated`) that both parts of a value have in common."""
        of_each = self._blocks(R[0])
        if R.dtype.is_complex or of_each.shape[0] == 1:
            return H, trace(of_each)[None], z
        observed_real = observed[:, : z.shape[-1] // 2]
        factor = observed_real * (of_each[1, 0] / of_each[0, 0])[None]
        re, im = tf.split(H, 2, axis=1)
        shared = factor[:, :, None] * re
        H = tf.concat([re + tf.zeros_like(shared), im - shared], axis=1)
        real, imaginary = tf.split(z, 2, axis=-1)
        imaginary -= tf.einsum("tmb->btm", factor) * real
        variance = tf.concat([of_each[0, 0], of_each[1, 1] - factor[0] * of_each[0, 1]], axis=0)
        return H, variance[None], tf.concat([real, imaginary], axis=-1)

    # --- real coordinates, [d, m, B] -------------------------------------------------------------

    def _problem(
        self, affine: Affine, measurement: Measurement, state: State, last: Measured | None = None
    ) -> _Problem:
        """The problem of the sites after a state.

        The signal is `A x + b + e`, e being what linearisation leaves. The state describes x alone:
        the information of the last sites on e is found here.
        """
        rows = matmul(affine.matrix, state.chol)
        mean = matvec(affine.matrix, state.mean) + affine.offset
        mean += tf.zeros_like(measurement.z)
        if affine.residual is None:
            covariance = matmul(rows, adjoint(rows))
        else:
            spread = matmul(affine.residual, adjoint(affine.residual))
            if last is not None:
                reduction = _reduction(spread, last.R, measurement.observed)
                mean, rows = last.z + matvec(reduction, mean - last.z), matmul(reduction, rows)
                spread = matmul(reduction, spread)
            covariance = matmul(rows, adjoint(rows)) + spread
        return self._in_coordinates(Signal(mean, covariance), measurement)

    def _in_coordinates(self, signal: Signal, measurement: Measurement) -> _Problem:
        """The problem of the sites of a signal of known moments."""
        blocks = self._blocks(signal.covariance) + tf.zeros_like(tf.math.real(measurement.z[:1]))
        variance = trace(self._blocks(measurement.R)) + tf.zeros_like(blocks[0, 0])
        z = tf.where(measurement.observed > 0.0, measurement.z, tf.ones_like(measurement.z))
        q = Moments(self._coordinates(signal.mean), blocks)
        return _Problem(q, self._coordinates(z), variance)

    def _coordinates(self, a: tf.Tensor) -> tf.Tensor:
        """Working values `[m, B]` in real coordinates, `[d, m, B]`."""
        if a.dtype.is_complex:
            return tf.stack([tf.math.real(a), tf.math.imag(a)])
        return tf.stack(tf.split(a, self._multiplicity))

    def _blocks(self, a: tf.Tensor) -> tf.Tensor:
        """The covariance of each component, `[d, d, m, B]`, of a working covariance."""
        diagonal = tf.einsum("mmb->mb", a)
        if a.dtype.is_complex:
            half = 0.5 * tf.math.real(diagonal)
            return symmetric(half, tf.zeros_like(half), half)
        if self._multiplicity == 1:
            return diagonal[None, None]
        m = a.shape[0] // 2
        first, second = tf.split(diagonal, 2)
        return symmetric(first, tf.einsum("mmb->mb", a[:m, m:]), second)

    def _measured(self, site: Site, z: tf.Tensor) -> Measured:
        """A site as normal observations like z."""
        covariance, target = site.covariance, site.target
        zero = tf.zeros_like(target[0, 0])
        unknown = zero + np.inf
        if z.dtype.is_complex:
            R = real_as(_diagonal(trace(covariance)), z.dtype)
            return Measured(tf.complex(*tf.unstack(target)), R, zero, unknown)
        rows = [tf.concat([_diagonal(a) for a in row], axis=1) for row in elements(covariance)]
        z, R = tf.concat(tf.unstack(target), axis=0), tf.concat(rows, axis=0)
        return Measured(z, R, zero, unknown)

    def _site(self, measured: Measured) -> Site:
        return Site(self._coordinates(measured.z), inverse(self._blocks(measured.R)))


def _reduction(spread: tf.Tensor, R: tf.Tensor, observed: tf.Tensor) -> tf.Tensor:
    """The factor by which observations reduce a covariance Ω of a vector: `R (Ω + R)⁻¹`.

    Given an observation ỹ in noise of covariance R, its mean is `ỹ + (…) (mean − ỹ)`, and its
    covariance `(…) Ω`, `[m, m, B]`. Components that are not observed stay as they are.
    """
    is_observed = real_as(observed, spread.dtype)
    chol = cholesky(is_observed[:, None] * spread * is_observed + R)
    reduction = is_observed[:, None] * divide(adjoint(solve(chol, R)), chol) * is_observed
    return reduction + _diagonal(1.0 - is_observed + tf.zeros_like(reduction[0]))


def _diagonal(a: tf.Tensor) -> tf.Tensor:
    """`[m, B]` -> `[m, m, B]`."""
    return tf.einsum("bmn->mnb", tf.linalg.diag(tf.einsum("mb->bm", a)))
