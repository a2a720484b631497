"""Observations of another likelihood in a filter, as normal ones of the same signal.

The signal `g = A x + b` of a step has moments by those of the state, and each of its components a
site (see `cgp.likelihoods.sites`). Sites and state are found in turns, until both agree.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.distributions.forms import Form
from cgp.likelihoods.base import Likelihood
from cgp.likelihoods.sites import Moments, Site, between, distance, inverse, trace
from cgp.linalg.arguments import nan, real_as
from cgp.linalg.batch_last import adjoint, cholesky, divide, matmul, matvec, solve
from cgp.statespace.engines.filter_step import State
from cgp.statespace.linearization.affine import Affine
from cgp.statespace.linearization.affine_step import updated_by

MOST_TURNS = 500
_LITTLE = 1e6
"""The variance of sites that tell next to nothing, as a multiple of that of the observation."""


def accuracy(dtype: tf.DType) -> tf.Tensor:
    """How little a turn moves a signal that agrees with its sites, in standard deviations."""
    return tf.constant(1e-10 if dtype.real_dtype == tf.float64 else 1e-5, dtype.real_dtype)


class Seen(NamedTuple):
    """An observation, working values, batch last."""

    z: tf.Tensor
    """`[m, B]`; any finite number where missing."""
    R: tf.Tensor
    """The covariance of the noise, of which the diagonal counts, `[m, m, B]`."""
    observed: tf.Tensor
    """Real, `[m, B]`: 1, or 0 where missing."""


class Measured(NamedTuple):
    """Normal observations that stand for others, working values, batch last."""

    z: tf.Tensor
    """`[m, B]`."""
    R: tf.Tensor
    """The covariance of their noise, `[m, m, B]`."""
    correction: tf.Tensor
    """What is added to their log likelihood for that of the observation, real, `[B]`."""
    change: tf.Tensor
    """How far the last turn moved the signal, in standard deviations, real, `[B]`; infinite before
    the first one."""

    def with_missing(self, seen: Seen) -> "Measured":
        """The same, but where a value is missing, which has no site, in the noise of the model.

        The prediction of such a value is then a forecast of it. All may have an axis of time first.
        """
        there = seen.observed > 0.0
        row, column = there[..., None, :], there[..., None, :, :]
        R = tf.where(row & column, self.R, tf.zeros_like(self.R))
        R = tf.where(row | column, R, seen.R)
        return self._replace(z=tf.where(there, self.z, seen.z), R=R)


class StepSites:
    """The sites of the components of an observation.

    Args:
        likelihood: The likelihood.
        form: The form of observations. Where it is complex the likelihood is circular.
    """

    def __init__(self, likelihood: Likelihood, form: Form):
        self._likelihood = likelihood
        self.start_from_noise = likelihood.is_circular
        self._multiplicity = 1 if likelihood.is_of_parts else form.multiplicity

    def first(self, affine: Affine, seen: Seen, state: State) -> Measured:
        """Sites to start from: those of normal noise, or where z is no signal next to nothing.

        Args:
            affine: The signal as a function of the state.
            seen: The observation.
            state: Predicted.
        """
        q, value, variance = self._problem(affine, seen, state)
        d = value.shape[0]
        eye = tf.eye(d, dtype=variance.dtype)[..., None, None]
        if self.start_from_noise:
            return self._measured(Site(value, d * eye / variance), seen.z)
        spread = _LITTLE * (trace(q.covariance) + variance)
        return self._measured(Site(q.mean, eye / spread), seen.z)

    def renewed(
        self, affine: Affine, seen: Seen, state: State, last: Measured, turn: tf.Tensor
    ) -> Measured:
        """The sites a turn later, by the state that the last ones gave; arguments as `first`."""
        q, value, variance = self._problem(affine, seen, state, last)
        before = self._site(last)
        after = self._likelihood.site(value, q, before, variance)
        after = between(before, after, self._likelihood.step(turn, variance.dtype))
        change = tf.reduce_max(distance(before, after, q) * seen.observed[: value.shape[1]], axis=0)
        # Where nothing moved, the derivative of the distance is infinite.
        return self._measured(after, seen.z)._replace(change=tf.stop_gradient(change))

    def completed(self, affine: Affine, seen: Seen, state: State, last: Measured) -> Measured:
        """The same sites, with the correction of their log likelihood; arguments as `first`.

        It is NaN where sites and state do not agree.
        """
        q, value, variance = self._problem(affine, seen, state, last)
        correction = self._likelihood.correction(value, q, self._site(last), variance)
        correction = tf.reduce_sum(correction * seen.observed[: correction.shape[0]], axis=0)
        agrees = last.change <= 1e3 * accuracy(correction.dtype)
        return last._replace(correction=tf.where(agrees, correction, nan(correction.dtype)))

    def updated(
        self, affine: Affine, measured: Measured, seen: Seen, state: State
    ) -> tuple[State, tf.Tensor]:
        """The moments after the normal observations, and their log likelihood, `[B]`."""
        arguments = (affine, measured.z, measured.R, seen.observed, state)
        return updated_by(*arguments, self._decorrelated)

    def _decorrelated(
        self, H: tf.Tensor, R: tf.Tensor, z: tf.Tensor, observed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Decorrelated noise (see `decorrelation`) that both parts of a value have in common."""
        of_each = self._blocks(R[0])
        if R.dtype.is_complex or of_each.shape[0] == 1:
            return H, trace(of_each)[None], z
        first = observed[:, : z.shape[-1] // 2]
        factor = first * (of_each[1, 0] / of_each[0, 0])[None]
        re, im = tf.split(H, 2, axis=1)
        shared = factor[:, :, None] * re
        H = tf.concat([re + tf.zeros_like(shared), im - shared], axis=1)
        one, other = tf.split(z, 2, axis=-1)
        other -= tf.einsum("tmb->btm", factor) * one
        variance = tf.concat([of_each[0, 0], of_each[1, 1] - factor[0] * of_each[0, 1]], axis=0)
        return H, variance[None], tf.concat([one, other], axis=-1)

    # --- real coordinates, [d, m, B] -------------------------------------------------------------

    def _problem(
        self, affine: Affine, seen: Seen, state: State, last: Measured | None = None
    ) -> tuple[Moments, tf.Tensor, tf.Tensor]:
        """The moments of the signal, the observation, and the variance of its noise.

        The signal is `A x + b + e`, e being what linearisation leaves. The state tells of x alone:
        what the last sites told of e is found here.
        """
        rows = matmul(affine.matrix, state.chol)
        mean = matvec(affine.matrix, state.mean) + affine.offset
        mean += tf.zeros_like(seen.z)
        if affine.residual is None:
            covariance = matmul(rows, adjoint(rows))
        else:
            spread = matmul(affine.residual, adjoint(affine.residual))
            if last is not None:
                left = _left(spread, last.R, seen.observed)
                mean, rows = last.z + matvec(left, mean - last.z), matmul(left, rows)
                spread = matmul(left, spread)
            covariance = matmul(rows, adjoint(rows)) + spread
        blocks = self._blocks(covariance) + tf.zeros_like(tf.math.real(seen.z[:1]))
        variance = trace(self._blocks(seen.R)) + tf.zeros_like(blocks[0, 0])
        z = tf.where(seen.observed > 0.0, seen.z, tf.ones_like(seen.z))
        return Moments(self._coordinates(mean), blocks), self._coordinates(z), variance

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
            zero = tf.zeros_like(half)
            return tf.stack([tf.stack([half, zero]), tf.stack([zero, half])])
        if self._multiplicity == 1:
            return diagonal[None, None]
        m = a.shape[0] // 2
        off = tf.einsum("mmb->mb", a[:m, m:])
        return tf.stack([tf.stack([diagonal[:m], off]), tf.stack([off, diagonal[m:]])])

    def _measured(self, site: Site, z: tf.Tensor) -> Measured:
        """A site as normal observations like z."""
        covariance, target = site.covariance, site.target
        nothing = tf.zeros_like(target[0, 0])
        unknown = nothing + np.inf
        if z.dtype.is_complex:
            R = real_as(_diagonal(covariance[0, 0] + covariance[1, 1]), z.dtype)
            return Measured(tf.complex(*tf.unstack(target)), R, nothing, unknown)
        d = target.shape[0]
        rows = [
            tf.concat([_diagonal(covariance[i, j]) for j in range(d)], axis=1) for i in range(d)
        ]
        z, R = tf.concat(tf.unstack(target), axis=0), tf.concat(rows, axis=0)
        return Measured(z, R, nothing, unknown)

    def _site(self, measured: Measured) -> Site:
        return Site(self._coordinates(measured.z), inverse(self._blocks(measured.R)))


def _left(spread: tf.Tensor, R: tf.Tensor, observed: tf.Tensor) -> tf.Tensor:
    """What observations leave of a normal vector of this covariance Ω: `R (Ω + R)⁻¹`, `[m, m, B]`.

    Given an observation ỹ in noise of covariance R, its mean is `ỹ + (…) (mean − ỹ)`, and its
    covariance `(…) Ω`. Components that are not observed are left as they are.
    """
    seen = real_as(observed, spread.dtype)
    chol = cholesky(seen[:, None] * spread * seen + R)
    left = seen[:, None] * divide(adjoint(solve(chol, R)), chol) * seen
    return left + _diagonal(1.0 - seen + tf.zeros_like(left[0]))


def _diagonal(a: tf.Tensor) -> tf.Tensor:
    """`[m, B]` -> `[m, m, B]`."""
    return tf.einsum("bmn->mnb", tf.linalg.diag(tf.einsum("mb->bm", a)))
