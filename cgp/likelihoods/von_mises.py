"""Phases: measurements whose modulus tells nothing."""

import dataclasses
import math
from typing import ClassVar

import numpy as np
import tensorflow as tf

from cgp.likelihoods.variational import Variational, log_i0, points_2d

_ORDERS = (32, 8)  # the orders of the quadrature along the phase and across it


@dataclasses.dataclass(frozen=True)
class VonMises(Variational):
    """The phase of a complex signal in noise, without its modulus.

    Of z the phase alone is used: give `exp(iφ)`. It has von Mises's density about the phase of the
    signal g, of concentration κ = 2|g|/σ², with σ² the noise variance of the model: the density of
    normal noise, had it been seen that z is on the unit circle (Mardia & Jupp, *Directional
    Statistics*, 2000, §3.5). Where the signal is weak the phase is uniform. Phases do not tell the
    scale of signal and noise variance together: one of them has to be fixed. Of a phase that
    is known far better than the signal before it, by a factor of a thousand in variance, no normal
    posterior may be found, which is an error.

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
        # Along the phase and across it, since of the modulus less is known than of the phase.
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
