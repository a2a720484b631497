"""Moduli, measurements without a phase; and phases, whose modulus tells nothing."""

import dataclasses
import math
from typing import ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.likelihoods.base import LEAST, Moments, Site, trace
from cgp.likelihoods.variational import Variational, log_i0, points_1d, points_2d

_ORDER = 16
_ACROSS = 1e-5
"""The precision across the mean, of which a modulus tells nothing, as a share of the precision
along it: both are elements of one matrix."""


@dataclasses.dataclass(frozen=True)
class Magnitude(Variational):
    """The modulus of a complex signal in noise, without its phase.

    Only the modulus of z is used. It has Rice's density, the density of |g + n| with circular
    normal noise n of the noise variance of the model (Rice, Bell Syst. Tech. J. 24, 1945). Moduli
    do not tell a phase: the mean of the signal, its initial state or other components must give it
    to within a radian. Where the phase is lost there is no normal posterior, which is an error. The
    modulus is approximated by the component of the signal along its mean m, |g| ≈ Re(ū g) with
    u = m/|m|.

    It is for filters and smoothers. In a Gaussian process whose data are all moduli, every phase of
    the whole signal is equally likely, and no normal posterior is near that.

    Example:
        >>> import numpy as np
        >>> from cgp import likelihoods, statespace
        >>> still = statespace.LinearGaussian([[1]], [[0]], [[1]], [[0.01]], [1 + 1j], [[0.1]])
        >>> z = np.array([2.0, 2.1, 1.9, 2.0]) + 0j
        >>> found = statespace.filter(still, z, likelihood=likelihoods.Magnitude())
        >>> abs(found.filtered_means.numpy()[-1]).round(1)
        array([2.])
    """

    is_of_real: ClassVar[bool] = False
    is_for_processes: ClassVar[bool] = False

    def check(self, z: np.ndarray) -> None:
        """Raises a ValueError for observations of modulus zero."""
        if np.any(z == 0):
            raise ValueError(
                "z must have a modulus above zero, but is zero at some samples: NaN where missing"
            )

    def site(self, z: tf.Tensor, q: Moments, last: Site, variance: tf.Tensor) -> Site:
        """The site along the mean, of nearly no precision across it.

        The derivatives are taken with the direction of the mean held: its own derivative would move
        the mean round the circle, of which a modulus tells nothing.
        """
        del last
        along = _polar_moments(q)
        with tf.GradientTape() as tape:
            tape.watch((along.length, along.spread))
            expected = _expected(_modulus(z), along.length, along.spread, variance)
        by_length, by_spread = tape.gradient(expected, (along.length, along.spread))
        precision = tf.maximum(-2.0 * by_spread, 2.0 * LEAST / trace(q.covariance))
        across = 2.0 * _ACROSS / variance
        u = tf.stack([along.x, along.y])
        outer = tf.einsum("i...,j...->ij...", u, u)
        eye = tf.stack([tf.stack([across, 0.0 * across]), tf.stack([0.0 * across, across])])
        return Site(u * (along.length + by_length / precision), eye + (precision - across) * outer)

    def expected_log_density(
        self, z: tf.Tensor, mean: tf.Tensor, covariance: tf.Tensor, variance: tf.Tensor
    ) -> tf.Tensor:
        """The expected log density of the modulus along the mean."""
        along = _polar_moments(Moments(mean, covariance))
        expected = _expected(_modulus(z), along.length, along.spread, variance)
        return expected - _ACROSS * along.across / variance

    def correction(self, z: tf.Tensor, q: Moments, site: Site, variance: tf.Tensor) -> tf.Tensor:
        """The correction of the log likelihood; NaN where the phase is not known to a radian."""
        correction = super().correction(z, q, site, variance)
        along, lost = _polar_moments(q), tf.constant(np.nan, correction.dtype)
        return tf.where(along.across < tf.square(along.length), correction, lost)


class _PolarMoments(NamedTuple):
    """The moments of a signal along its mean and across it, `[...]`."""

    x: tf.Tensor  # the direction of the mean, a unit vector
    y: tf.Tensor
    length: tf.Tensor
    spread: tf.Tensor  # the variance in this direction
    across: tf.Tensor  # the variance at right angles to it


def _polar_moments(q: Moments) -> _PolarMoments:
    square = tf.add_n(tf.unstack(tf.square(q.mean)))
    has_phase = square > 0.0
    length = tf.sqrt(tf.where(has_phase, square, tf.ones_like(square)))
    # Where the mean is zero, any direction will do.
    x = tf.where(has_phase, q.mean[0] / length, tf.ones_like(length))
    y = tf.where(has_phase, q.mean[1] / length, tf.zeros_like(length))
    spread = x * x * q.covariance[0, 0] + 2.0 * x * y * q.covariance[1, 0]
    spread += y * y * q.covariance[1, 1]
    across = q.covariance[0, 0] + q.covariance[1, 1] - spread
    return _PolarMoments(x, y, tf.where(has_phase, length, square), spread, across)


def _modulus(z: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.add_n(tf.unstack(tf.square(z))))


def _expected(
    modulus: tf.Tensor, length: tf.Tensor, spread: tf.Tensor, variance: tf.Tensor
) -> tf.Tensor:
    """The expected log of Rice's density, for a signal of this mean and variance along its mean."""
    points, weights = points_1d(length, spread, _ORDER)
    twice = 2.0 * modulus / variance
    values = log_i0(twice * points) - tf.square(points) / variance
    constant = tf.math.log(twice) - tf.square(modulus) / variance
    return constant + tf.tensordot(weights, values, 1)


_ORDERS = (32, 8)  # the orders of the quadrature along the phase and across it


@dataclasses.dataclass(frozen=True)
class VonMises(Variational):
    """The phase of a complex signal in noise, without its modulus.

    Only the phase of z is used: give `exp(iφ)`. It has von Mises's density about the phase of the
    signal g, of concentration κ = 2|g|/σ², with σ² the noise variance of the model: the density of
    z in normal noise, given that z is on the unit circle (Mardia & Jupp, *Directional
    Statistics*, 2000, §3.5). Where the signal is weak the phase is uniform. Phases do not tell the
    scale of signal and noise variance together: one of them has to be fixed. For a phase
    that is known far better than the signal before it, by a factor of a thousand in variance, a
    normal posterior may not be found, which is an error.

    Example:
        >>> import numpy as np, cgp
        >>> t = np.linspace(0.0, 4.0, 41)
        >>> kernel = cgp.kernels.RBF(1.0, 3.0) * cgp.kernels.Rotation(0.5)
        >>> gp = cgp.ExactGP(kernel, 0.05, likelihood=cgp.likelihoods.VonMises())
        >>> gp.condition(t, np.exp(1j * np.pi * t))
        >>> bool(abs(np.angle(gp.predict([2.0])["mean"][0])) < 0.01)
        True
    """

    is_of_real: ClassVar[bool] = False

    def check(self, z: np.ndarray) -> None:
        """Raises a ValueError for observations without a phase, and for angles without exp(iφ)."""
        if np.any(z == 0):
            raise ValueError("z must have a phase, but some are zero (NaN if missing)")
        present = z[~np.isnan(z)]
        if present.size > 1 and np.any(np.abs(present) != 1.0) and not np.any(present.imag):
            raise ValueError(
                "z must be exp(iφ) of the phases φ, but has no imaginary part, as if it were the "
                "angles themselves: give np.exp(1j * angles), of angles in radians"
            )

    def expected_log_density(
        self, z: tf.Tensor, mean: tf.Tensor, covariance: tf.Tensor, variance: tf.Tensor
    ) -> tf.Tensor:
        """The expected log of von Mises's density, by quadrature along and across the phase."""
        x, y = tf.unstack(z / tf.sqrt(tf.add_n(tf.unstack(tf.square(z)))))
        # Along the phase and across it, since the modulus is less certain than the phase.
        along, across = x * mean[0] + y * mean[1], x * mean[1] - y * mean[0]
        turned = _rotated(covariance, x, y)
        points, weights = points_2d(tf.stack([along, across]), turned, _ORDERS)
        modulus = tf.sqrt(tf.add_n(tf.unstack(tf.square(points))))
        concentration = 2.0 / variance
        normalizer = tf.tensordot(weights, log_i0(concentration * modulus), 1)
        return concentration * along - normalizer - math.log(2.0 * math.pi)


def _rotated(covariance: tf.Tensor, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """A covariance in coordinates along the unit vector (x, y) and across it."""
    a, b, c = covariance[0, 0], covariance[1, 0], covariance[1, 1]
    first = x * x * a + 2.0 * x * y * b + y * y * c
    second = y * y * a - 2.0 * x * y * b + x * x * c
    off = x * y * (c - a) + (x * x - y * y) * b
    return tf.stack([tf.stack([first, off]), tf.stack([off, second])])
