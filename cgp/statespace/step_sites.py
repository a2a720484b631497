"""Observations of another likelihood in a filter, as normal ones of the same signal.

The signal `g = A x + b` of a step has moments by those of the state, and each of its components a
site (see `cgp.likelihoods.sites`). Sites and state are found in turns, as many as a compiled loop
knows beforehand.
"""

from typing import NamedTuple

import tensorflow as tf

from cgp.distributions.forms import Form
from cgp.likelihoods.base import Likelihood
from cgp.likelihoods.sites import Moments, Site, between, correction, inverse, site_of
from cgp.linalg.arguments import real_as
from cgp.linalg.batch_last import adjoint, matmul, matvec
from cgp.statespace.filter_step import State
from cgp.statespace.linearization.affine import Affine

TURNS = 12
_LITTLE = 1e6
"""The variance of sites that tell next to nothing, as a multiple of that of the observation."""


class Measured(NamedTuple):
    """Normal observations that stand for others, working values, batch last."""

    z: tf.Tensor
    """`[m, B]`."""
    R: tf.Tensor
    """The covariance of their noise, `[m, m, B]`."""
    beside: tf.Tensor
    """What the log likelihood has beside theirs, real, `[B]`."""


class StepSites:
    """The sites of the components of an observation.

    Args:
        likelihood: The likelihood.
        form: The form of observations. Where it is complex the likelihood is circular.
    """

    def __init__(self, likelihood: Likelihood, form: Form):
        self._likelihood, self._multiplicity = likelihood, form.multiplicity

    def first(
        self, affine: Affine, z: tf.Tensor, R: tf.Tensor, observed: tf.Tensor, state: State
    ) -> Measured:
        """Sites to start from: those of normal noise, or where z is no signal next to nothing.

        Args:
            affine: The signal as a function of the state.
            z: The observation, working values, `[m, B]`.
            R: The covariance of the noise, of which the diagonal counts, `[m, m, B]`.
            observed: Real, `[m, B]`: 1, or 0 where missing.
            state: Predicted.
        """
        q, value, variance = self._problem(affine, z, R, observed, state)
        d = value.shape[0]
        eye = tf.eye(d, dtype=variance.dtype)[..., None, None]
        if self._likelihood.is_circular:
            return self._measured(Site(value, d * eye / variance), z)
        spread = _LITTLE * (_trace(q.covariance) + variance)
        return self._measured(Site(q.mean, eye / spread), z)

    def renewed(
        self,
        affine: Affine,
        z: tf.Tensor,
        R: tf.Tensor,
        observed: tf.Tensor,
        state: State,
        last: Measured,
    ) -> Measured:
        """The sites a turn later, by the state that the last ones gave; arguments as `first`."""
        q, value, variance = self._problem(affine, z, R, observed, state)
        after = site_of(self._likelihood, value, q, variance)
        return self._measured(between(self._site(last), after, self._likelihood.step), z)

    def completed(
        self,
        affine: Affine,
        z: tf.Tensor,
        R: tf.Tensor,
        observed: tf.Tensor,
        state: State,
        last: Measured,
    ) -> Measured:
        """The same sites, and what the log likelihood has beside them; arguments as `renewed`."""
        q, value, variance = self._problem(affine, z, R, observed, state)
        beside = correction(self._likelihood, value, q, self._site(last), variance)
        beside = tf.reduce_sum(beside * observed[: beside.shape[0]], axis=0)
        return last._replace(beside=beside)

    # --- real coordinates, [d, m, B] -------------------------------------------------------------

    def _problem(
        self, affine: Affine, z: tf.Tensor, R: tf.Tensor, observed: tf.Tensor, state: State
    ) -> tuple[Moments, tf.Tensor, tf.Tensor]:
        """The moments of the signal, the observation, and the variance of its noise."""
        rows = matmul(affine.matrix, state.chol)
        if affine.residual is not None:
            wide = affine.residual + tf.zeros_like(rows[:, :1])
            rows = tf.concat([rows + tf.zeros_like(wide[:, :1]), wide], axis=1)
        mean = matvec(affine.matrix, state.mean) + affine.offset
        mean += tf.zeros_like(z)
        covariance = self._blocks(matmul(rows, adjoint(rows)))
        covariance += tf.zeros_like(tf.math.real(z[:1]))
        variance = _trace(self._blocks(R)) + tf.zeros_like(covariance[0, 0])
        z = tf.where(observed > 0.0, z, tf.ones_like(z))
        return Moments(self._coordinates(mean), covariance), self._coordinates(z), variance

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
        if z.dtype.is_complex:
            R = real_as(_diagonal(covariance[0, 0] + covariance[1, 1]), z.dtype)
            return Measured(tf.complex(*tf.unstack(target)), R, nothing)
        d = target.shape[0]
        rows = [
            tf.concat([_diagonal(covariance[i, j]) for j in range(d)], axis=1) for i in range(d)
        ]
        return Measured(tf.concat(tf.unstack(target), axis=0), tf.concat(rows, axis=0), nothing)

    def _site(self, measured: Measured) -> Site:
        return Site(self._coordinates(measured.z), inverse(self._blocks(measured.R)))


def _trace(a: tf.Tensor) -> tf.Tensor:
    return tf.add_n([a[i, i] for i in range(a.shape[0])])


def _diagonal(a: tf.Tensor) -> tf.Tensor:
    """`[m, B]` -> `[m, m, B]`."""
    return tf.einsum("bmn->mnb", tf.linalg.diag(tf.einsum("mb->bm", a)))
