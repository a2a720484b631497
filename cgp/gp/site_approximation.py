"""The normal data that stand for data of another likelihood, at the present hyperparameters.

For data in normal noise these are the data; noise that follows the signal gets the power of that.

Each sample is replaced by its site (see `cgp.likelihoods.base`): a value of the signal with normal
noise of its own. Sites and posterior are iterated in turns: the posterior given the sites, the
sites given the posterior at the samples. Where both agree, the approximate log likelihood is
stationary in the sites, and its gradient by the hyperparameters equals that at constant sites.
"""

from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
import tensorflow as tf

from cgp import native
from cgp.distributions.forms import SecondMoments
from cgp.gp.data import Data, StoredData, empty_variable
from cgp.gp.noise import SampleNoise
from cgp.gp.posterior import Posterior
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.gp.signal_power import with_signal_power
from cgp.likelihoods.base import Likelihood, Moments, Site, between
from cgp.linalg.arguments import as_complex
from cgp.statespace.compiled import graph_of

_MOST_TURNS = 500


class NormalData(NamedTuple):
    """Normal data that stand for data of another likelihood."""

    data: Data
    """The values and the noise of the sites."""
    correction: tf.Tensor
    """The log likelihood of the data less that of the normal data, `[B]`."""


class _Iteration(NamedTuple):
    """The state of the iteration of sites and posterior."""

    count: tf.Tensor
    """The number of iterations so far."""
    change: tf.Tensor
    """The move of the posterior in the last iteration, in standard deviations."""
    site: Site
    q: Moments
    """The posterior given the sites before."""


class _SiteUpdate:
    """The update of the sites of data by a posterior, in real coordinates."""

    def __init__(self, process: SignalPlusNoise, data: Data):
        self._process, self._data = process, data
        self._likelihood = cast(Likelihood, process.likelihood)
        self._present = data.present
        z = tf.where(self._present, data.z, tf.ones_like(data.z))
        self._z = _real_coordinates(z)
        no_signal = SecondMoments(tf.zeros([], z.dtype), None)
        variance = tf.math.real(process.with_noise(no_signal, data.noise).k)
        self._variance = variance + tf.zeros_like(self._z[0])
        self._is_of_parts = self._likelihood.is_of_parts
        mean = process.plus_function(tf.zeros_like(data.z), data.x)
        self.prior = self._real_moments(mean, process.marginal(data.x))

    def _real_moments(self, mean: tf.Tensor, moments: SecondMoments) -> Moments:
        """Complex moments `[B, N]` in real coordinates."""
        k = tf.math.real(moments.k) + tf.zeros_like(self._variance)
        c = as_complex(tf.zeros_like(k)) if moments.c is None else moments.c
        re, im = tf.math.real(c), tf.math.imag(c)
        covariance = 0.5 * tf.stack([tf.stack([k + re, im]), tf.stack([im, k - re])])
        return Moments(_real_coordinates(mean), covariance)

    def moments(self, posterior: Posterior) -> Moments:
        """The posterior at the samples."""
        shape = tf.shape(self._data.z)
        moments = (posterior.mean(), posterior.variance(), posterior.pseudo_variance())
        mean, k, c = (tf.reshape(a, shape) for a in moments)
        return self._real_moments(mean, SecondMoments(as_complex(k), c))

    def updated_site(self, site: Site, q: Moments, iteration: tf.Tensor) -> Site:
        """The sites after an iteration, from the posterior given the sites before it."""
        z, q, before, variance = self._arguments_of_likelihood(q, site)
        optimum = self._likelihood.site(z, q, before, variance)
        after = between(before, optimum, self._likelihood.step(iteration, variance.dtype))
        return self._complex_site(after) if self._is_of_parts else after

    def _arguments_of_likelihood(
        self, q: Moments, site: Site
    ) -> tuple[tf.Tensor, Moments, Site, tf.Tensor]:
        """Observations, posterior, sites and noise variance, in the coordinates of the likelihood.

        For a likelihood of real values the real and the imaginary part are two observations.
        """
        if not self._is_of_parts:
            return self._z, q, site, self._variance
        marginals = Moments(q.mean[None], _diagonal(q.covariance))
        marginal_sites = Site(site.target[None], _diagonal(site.precision))
        return self._z[None], marginals, marginal_sites, 0.5 * self._variance[None]

    def _complex_site(self, site: Site) -> Site:
        """Sites of the real and the imaginary part as sites of a complex value."""
        (re, im), zero = tf.unstack(site.precision[0, 0]), tf.zeros_like(self._variance)
        precision = tf.stack([tf.stack([re, zero]), tf.stack([zero, im])])
        return Site(site.target[0], precision)

    def start(self) -> Site:
        """The sites of normal noise."""
        precision = tf.linalg.eye(2, dtype=self._variance.dtype)[..., None, None]
        return Site(self._z, 2.0 * precision / self._variance)

    def change(self, last: Moments, following: Moments) -> tf.Tensor:
        """The largest move of the moments, in standard deviations."""
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
        """The log likelihood of the data less that of the normal data, `[B]`."""
        z, q, site, variance = self._arguments_of_likelihood(q, site)
        correction = self._likelihood.correction(z, q, site, variance)
        if self._is_of_parts:
            correction = correction[0] + correction[1]
        correction = tf.where(self._present, correction, tf.zeros_like(correction))
        return tf.reduce_sum(correction, axis=-1)


def _diagonal(a: tf.Tensor) -> tf.Tensor:
    """The diagonal of `[2, 2, ...]`, as matrices of one element, `[1, 1, 2, ...]`."""
    return tf.stack([a[0, 0], a[1, 1]])[None, None]


def _real_coordinates(z: tf.Tensor) -> tf.Tensor:
    """Real coordinates, `[2, ...]`."""
    return tf.stack([tf.math.real(z), tf.math.imag(z)])


class SiteApproximation(tf.Module):
    """Approximates the data of a process by normal data; data in normal noise stay as they are.

    `stored` are the data taken in, and `posterior` returns the posterior of the signal at the
    samples given normal data of another noise.
    """

    def __init__(
        self, process: SignalPlusNoise, stored: StoredData, posterior: Callable[[Data], Posterior]
    ):
        super().__init__()
        self._process, self._stored, self._posterior = process, stored, posterior
        self.are_needed = process.likelihood is not None
        self._compiled = graph_of(self._converged_by_core)
        if self.are_needed:
            self._z = empty_variable(2, stored.z.dtype)
            self._variance = empty_variable(2, stored.x.dtype)
            self._pseudo = None if process.is_proper else empty_variable(2, stored.z.dtype)

    def find(self, data: Data) -> NormalData:
        """The normal data that stand for data; gradients are taken at constant sites.

        Eagerly a ValueError for data that the likelihood cannot have, or where no sites agree with
        their posterior; in a graph the correction is then NaN.
        """
        likelihood, eagerly = self._process.likelihood, tf.executing_eagerly()
        if likelihood is None or data.noise.total_variance is not None:
            if self._process.noise_fraction is not None and data.noise.signal_power is None:
                data = with_signal_power(self._process, data, self._posterior)
            return NormalData(data, tf.zeros([], data.x.dtype))
        if eagerly:
            likelihood.check(data.z.numpy())
        change, site, q = (self._compiled if eagerly else self._converged)(data)
        failed = ~(change <= 100.0 * _accuracy(data))  # rounding may keep it from the last digits
        if eagerly and bool(failed):
            raise ValueError(
                f"no normal posterior was found for {likelihood!r} in {_MOST_TURNS} turns, the "
                f"last of which moved it by {float(change):.1g} standard deviations: the "
                "hyperparameters may be far from the data"
            )
        update = _SiteUpdate(self._process, data)
        lost = tf.cast(tf.where(failed, np.nan, 0.0), change.dtype)
        return NormalData(update.normal(site), update.correction(site, q) + lost)

    def _converged_by_core(self, data: Data) -> tuple[tf.Tensor, Site, Moments]:
        """`_converged` in a graph of its own, in which the compiled core may filter and smooth."""
        with native.own_graph():
            return self._converged(data)

    def _converged(self, data: Data) -> tuple[tf.Tensor, Site, Moments]:
        """The move of the posterior in the last iteration, the sites of data, and the posterior."""
        series = data.z.shape[0]
        batch = tf.shape(data.z)[:1] if series is None else tf.constant([series])
        data = data._replace(batch=batch)
        update, accuracy = _SiteUpdate(self._process, data), _accuracy(data)

        def iterate(last: _Iteration) -> tuple[_Iteration]:
            q = update.moments(self._posterior(update.normal(last.site)))
            change = update.change(last.q, q)
            site = update.updated_site(last.site, q, last.count)
            return (_Iteration(last.count + 1, change, site, q),)

        def goes_on(last: _Iteration) -> tf.Tensor:
            return (last.count < _MOST_TURNS) & (last.change > accuracy)

        infinite = tf.constant(np.inf, accuracy.dtype)
        start = _Iteration(tf.constant(0), infinite, update.start(), update.prior)
        (last,) = tf.while_loop(goes_on, iterate, (start,))
        # Here: a tape that watches variables of the process must not see the loop.
        return tf.nest.map_structure(tf.stop_gradient, (last.change, last.site, last.q))

    def renew(self) -> Data:
        """Finds the normal data for the data stored, keeps them and returns them."""
        data = self.find(self._stored.data).data
        self.keep(data)
        return data

    def keep(self, data: Data) -> None:
        """Keeps the normal data of data that are about to be stored."""
        if self.are_needed:
            self._z.assign(data.z)
            self._variance.assign(data.noise.total_variance)
            if self._pseudo is not None:
                self._pseudo.assign(data.noise.total_pseudo_variance)

    def of_stored(self, data: Data) -> Data:
        """The normal data kept for the stored data; the stored data themselves in normal noise."""
        if not self.are_needed:
            return data
        noise = SampleNoise(total_variance=self._variance, total_pseudo_variance=self._pseudo)
        z = tf.convert_to_tensor(self._z)
        return data._replace(z=z, noise=noise.map(tf.convert_to_tensor))


def _accuracy(data: Data) -> tf.Tensor:
    """The largest change of a converged posterior in an iteration, in standard deviations."""
    real = data.z.dtype.real_dtype
    return tf.constant(1e-7 if real == tf.float64 else 1e-4, real)
