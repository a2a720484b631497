"""Phases: measurements whose modulus tells nothing."""

import dataclasses
import math
from typing import ClassVar

import numpy as np
import tensorflow as tf

from cgp.likelihoods.base import Likelihood
from cgp.likelihoods.bessel import log_i0
from cgp.likelihoods.quadrature import points_2d

_ORDER = 16


@dataclasses.dataclass(frozen=True)
class VonMises(Likelihood):
    """The phase of a complex signal in noise, without its modulus.

    Of z the phase alone is used: give `exp(iφ)`. It has von Mises's density about the phase of the
    signal g, of concentration κ = 2|g|/σ², with σ² the noise variance of the model: the density of
    normal noise, had it been seen that z is on the unit circle (Mardia & Jupp, *Directional
    Statistics*, 2000, §3.5). Where the signal is weak the phase is uniform. Phases do not tell the
    scale of signal and noise variance together: one of them has to be fixed.

    Example:
        >>> import numpy as np
        >>> import cgp
        >>> t = np.linspace(0.0, 4.0, 41)
        >>> kernel = cgp.kernels.RBF(1.0, 3.0) * cgp.kernels.Rotation(0.5)
        >>> gp = cgp.ExactGP(kernel, 0.05, likelihood=cgp.likelihoods.VonMises())
        >>> gp.condition(t, np.exp(1j * np.pi * t))
        >>> bool(abs(np.angle(gp.predict([2.0])["mean"][0])) < 0.01)
        True
    """

    is_of_real: ClassVar[bool] = False

    def check(self, z: np.ndarray) -> None:
        """See `Likelihood`."""
        if np.any(z == 0):
            raise ValueError("z must have a phase, but some are zero (NaN if missing)")

    def expected_log_density(
        self, z: tf.Tensor, mean: tf.Tensor, covariance: tf.Tensor, variance: tf.Tensor
    ) -> tf.Tensor:
        """See `Likelihood`."""
        along = tf.reduce_sum(z * mean, axis=0) / tf.sqrt(tf.reduce_sum(tf.square(z), axis=0))
        points, weights = points_2d(mean, covariance, _ORDER)
        modulus = tf.sqrt(tf.reduce_sum(tf.square(points), axis=0))
        concentration = 2.0 / variance
        normalizer = tf.reduce_sum(weights * log_i0(concentration * modulus), axis=0)
        return concentration * along - normalizer - math.log(2.0 * math.pi)
