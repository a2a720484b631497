"""The normal data that stand for data of another likelihood, at the present hyperparameters.

Each sample is replaced by its site (see `cgp.likelihoods.sites`): a value of the signal with normal
noise of its own. Sites and posterior are found together, in turns: the posterior given the sites,
the sites given the posterior at the samples. Where both agree, the approximate log likelihood is
stationary by the sites, so that its gradient by the hyperparameters is that with the sites held.
"""

from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
import tensorflow as tf

from cgp.distributions.forms import SecondMoments
from cgp.gp.data import Data
from cgp.gp.noise import SampleNoise
from cgp.gp.posterior import Posterior
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.gp.stored_data import StoredData, empty_variable
from cgp.likelihoods.base import Likelihood
from cgp.likelihoods.sites import Moments, Site, between
from cgp.linalg.arguments import as_complex
from cgp.statespace.compiled import graph_of

_MOST_TURNS = 500


class Found(NamedTuple):
    """The sites of data."""

    data: Data
    """The normal data."""
    correction: tf.Tensor
    """What is added to the log likelihood of the normal data for that of the data, `[B]`."""


class _Turns(NamedTuple):
    """Where the turns are."""

    count: tf.Tensor
    change: tf.Tensor
    """That of the last turn, in standard deviations."""
    site: Site
    q: Moments


class _Problem:
    """Data in real coordinates, and the steps of their approximation."""

    def __init__(self, process: SignalPlusNoise, data: Data):
        self._process, self._data = process, data
        self._likelihood = cast(Likelihood, process.likelihood)
        self._present = data.present
        z = tf.where(self._present, data.z, tf.ones_like(data.z))
        self._z = _parts(z)
        nothing = SecondMoments(tf.zeros([], z.dtype), None)
        variance = tf.math.real(process.with_noise(nothing, data.noise).k)
        self._variance = variance + tf.zeros_like(self._z[0])
        self._is_of_parts = self._likelihood.is_of_parts
        self.prior = self._of(*self._prior_moments())

    def _prior_moments(self) -> tuple[tf.Tensor, SecondMoments]:
        process, data = self._process, self._data
        mean = process.plus_function(tf.zeros_like(data.z), data.x)
        return mean, process.marginal(data.x)

    def _of(self, mean: tf.Tensor, moments: SecondMoments) -> Moments:
        """Complex moments `[B, N]` in real coordinates."""
        k = tf.math.real(moments.k) + tf.zeros_like(self._variance)
        c = as_complex(tf.zeros_like(k)) if moments.c is None else moments.c
        re, im = tf.math.real(c), tf.math.imag(c)
        covariance = 0.5 * tf.stack([tf.stack([k + re, im]), tf.stack([im, k - re])])
        return Moments(_parts(mean), covariance)

    def moments(self, posterior: Posterior) -> Moments:
        """The posterior at the samples."""
        shape = tf.shape(self._data.z)
        mean, k, c = (
            tf.reshape(a, shape)
            for a in (posterior.mean(), posterior.variance(), posterior.pseudo_variance())
        )
        return self._of(mean, SecondMoments(as_complex(k), c))

    def renewed(self, last: Site, q: Moments, turn: tf.Tensor) -> Site:
        """The sites a turn later, by the posterior that the last ones gave."""
        z, apart, before, variance = self._observed(q, last)
        site = self._likelihood.site(z, apart, before, variance)
        after = between(before, site, self._likelihood.step(turn, variance.dtype))
        return self._together(after) if self._is_of_parts else after

    def _observed(self, q: Moments, site: Site) -> tuple[tf.Tensor, Moments, Site, tf.Tensor]:
        """What a likelihood wants: all as it is, or both parts as observations of their own."""
        if not self._is_of_parts:
            return self._z, q, site, self._variance
        of_parts = Moments(q.mean[None], _diagonal(q.covariance))
        own = Site(site.target[None], _diagonal(site.precision))
        return self._z[None], of_parts, own, 0.5 * self._variance[None]

    def _together(self, site: Site) -> Site:
        """Sites of the real and the imaginary part as those of a complex value."""
        (re, im), zero = tf.unstack(site.precision[0, 0]), tf.zeros_like(self._variance)
        precision = tf.stack([tf.stack([re, zero]), tf.stack([zero, im])])
        return Site(site.target[0], precision)

    def start(self) -> Site:
        """The sites of normal noise."""
        precision = tf.linalg.eye(2, dtype=self._variance.dtype)[..., None, None]
        return Site(self._z, 2.0 * precision / self._variance)

    def change(self, last: Moments, following: Moments) -> tf.Tensor:
        """How far moments have moved, in standard deviations, the largest."""
        before, after = (m.covariance[0, 0] + m.covariance[1, 1] for m in (last, following))
        step = tf.sqrt(tf.reduce_sum(tf.square(following.mean - last.mean), axis=0) / after)
        step = tf.maximum(step, tf.abs(tf.math.log(after / before)))
        return tf.reduce_max(tf.where(self._present, step, tf.zeros_like(step)))

    def normal(self, site: Site) -> Data:
        """The normal data of sites."""
        z = tf.complex(*tf.unstack(site.target))
        z = tf.where(self._present, z, self._data.z)
        (first, off), (_, second) = (tf.unstack(row) for row in tf.unstack(site.covariance))
        pseudo = None if self._process.is_proper else tf.complex(first - second, 2.0 * off)
        noise = SampleNoise(total_variance=first + second, total_pseudo_variance=pseudo)
        return self._data._replace(z=z, noise=noise)

    def correction(self, site: Site, q: Moments) -> tf.Tensor:
        """What is added to the log likelihood of the normal data for that of the data, `[B]`."""
        z, q, site, variance = self._observed(q, site)
        value = self._likelihood.correction(z, q, site, variance)
        if self._is_of_parts:
            value = value[0] + value[1]
        return tf.reduce_sum(tf.where(self._present, value, tf.zeros_like(value)), axis=-1)


def _diagonal(a: tf.Tensor) -> tf.Tensor:
    """The diagonal of `[2, 2, ...]`, as matrices of one element, `[1, 1, 2, ...]`."""
    return tf.stack([a[0, 0], a[1, 1]])[None, None]


def _parts(z: tf.Tensor) -> tf.Tensor:
    """Real coordinates, `[2, ...]`."""
    return tf.stack([tf.math.real(z), tf.math.imag(z)])


class Sites(tf.Module):
    """The normal data that stand for those of a process, which are these where they are normal.

    Args:
        process: The process.
        stored: The data taken in.
        posterior: The posterior of the signal at the samples given normal data of another noise.
    """

    def __init__(
        self,
        process: SignalPlusNoise,
        stored: StoredData,
        posterior: Callable[[Data], Posterior],
    ):
        super().__init__()
        self._process, self._stored, self._posterior = process, stored, posterior
        self.are_needed = process.likelihood is not None
        self._graph = graph_of(self._agreed)
        if self.are_needed:
            self._z = empty_variable(2, stored.z.dtype)
            self._variance = empty_variable(2, stored.x.dtype)
            self._pseudo = None if process.is_proper else empty_variable(2, stored.z.dtype)

    def find(self, data: Data) -> Found:
        """The normal data that stand for data; gradients are those with these held.

        Raises:
            ValueError: Eagerly, data that the likelihood cannot have, or no sites that agree with
                their posterior; in a graph the correction is NaN then.
        """
        likelihood = self._process.likelihood
        if likelihood is None or data.noise.is_total:
            return Found(data, tf.zeros([], data.x.dtype))
        eagerly = tf.executing_eagerly()
        if eagerly:
            likelihood.check(data.z.numpy())
        change, site, q = (self._graph if eagerly else self._agreed)(data)
        failed = ~(change <= 100.0 * _accuracy(data))  # rounding may keep it from the last digits
        if eagerly and bool(failed):
            raise ValueError(
                f"no normal posterior was found for {likelihood!r} in {_MOST_TURNS} turns, the "
                f"last of which moved it by {float(change):.1g} standard deviations: the "
                "hyperparameters may be far from the data"
            )
        problem = _Problem(self._process, data)
        lost = tf.cast(tf.where(failed, np.nan, 0.0), change.dtype)
        return Found(problem.normal(site), problem.correction(site, q) + lost)

    def _agreed(self, data: Data) -> tuple[tf.Tensor, Site, Moments]:
        """The sites of data and their posterior, and how far the last turn moved it."""
        data = data._replace(batch=_number_of_series(data))
        problem, accuracy = _Problem(self._process, data), _accuracy(data)

        def turn(turns: _Turns) -> tuple[_Turns]:
            q = problem.moments(self._posterior(problem.normal(turns.site)))
            change = problem.change(turns.q, q)
            site = problem.renewed(turns.site, q, turns.count)
            return (_Turns(turns.count + 1, change, site, q),)

        def goes_on(turns: _Turns) -> tf.Tensor:
            return (turns.count < _MOST_TURNS) & (turns.change > accuracy)

        infinite = tf.constant(np.inf, accuracy.dtype)
        start = _Turns(tf.constant(0), infinite, problem.start(), problem.prior)
        (last,) = tf.while_loop(goes_on, turn, (start,))
        # Here: a tape that watches variables of the process must not see the loop.
        return tf.nest.map_structure(tf.stop_gradient, (last.change, last.site, last.q))

    def renew(self) -> Data:
        """Finds the normal data for those stored, and keeps them."""
        data = self.find(self._stored.data).data
        self.keep(data)
        return data

    def keep(self, data: Data) -> None:
        """Keeps the normal data of those that are about to be stored."""
        if self.are_needed:
            self._z.assign(data.z)
            self._variance.assign(data.noise.total_variance)
            if self._pseudo is not None:
                self._pseudo.assign(data.noise.total_pseudo_variance)

    def of_stored(self, data: Data) -> Data:
        """The normal data that are kept, for the data stored."""
        if not self.are_needed:
            return data
        noise = SampleNoise(total_variance=self._variance, total_pseudo_variance=self._pseudo)
        z = tf.convert_to_tensor(self._z)
        return data._replace(z=z, noise=noise.map(tf.convert_to_tensor))


def _accuracy(data: Data) -> tf.Tensor:
    """How little a turn moves a posterior that agrees with its sites, in standard deviations."""
    real = data.z.dtype.real_dtype
    return tf.constant(1e-7 if real == tf.float64 else 1e-4, real)


def _number_of_series(data: Data) -> tf.Tensor:
    known = data.z.shape[0]
    return tf.shape(data.z)[:1] if known is None else tf.constant([known])
