"""One-bit converters: the signs of both parts; and likelihoods by their evidence."""

import dataclasses
import math
from abc import abstractmethod
from typing import ClassVar

import numpy as np
import tensorflow as tf

from cgp.likelihoods.base import LEAST, Likelihood, Moments, Site

_LEAST_CAVITY = 1e-6
"""The least share of the precision of q that belongs to the cavity: rounding may leave none."""


class MomentMatched(Likelihood):
    """A likelihood of one real coordinate by its evidence.

    The *cavity* is q without the site, of mean m and variance V. Its product with the density has
    the normalizer Z(m, V), and, with α = ∂ log Z/∂m and β = −∂² log Z/∂m², the mean m + V α and the
    variance V − V² β. The site that gives q these moments has

        Λ = β / (1 − V β),    ỹ = m + (V + 1/Λ) α.

    That is expectation propagation (Minka, UAI 2001; Rasmussen & Williams, *Gaussian Processes for
    Machine Learning*, 2006, §3.6), in a filter of one observation a step assumed density filtering.
    """

    is_of_parts: ClassVar[bool] = True

    @abstractmethod
    def log_evidence(
        self, z: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, noise: tf.Tensor
    ) -> tf.Tensor:
        """The log evidence log E p(z | g) of g normal, in noise of variance `noise`, `[...]`.

        All are of one real coordinate; `mean` and `variance` are the moments of g.
        """

    def site(self, z: tf.Tensor, q: Moments, last: Site, variance: tf.Tensor) -> Site:
        """The site by which q gets the moments of the cavity times the density."""
        mean, spread = _cavity(q, last)
        with tf.GradientTape() as tape:
            tape.watch((mean, spread))
            evidence = self.log_evidence(z[0], mean, spread, variance)
        by_mean, by_variance = tape.gradient(evidence, (mean, spread))
        # The heat equation: 2 ∂Z/∂V = ∂²Z/∂m².
        share = spread * (tf.square(by_mean) - 2.0 * by_variance)
        share = tf.clip_by_value(share, LEAST, 1.0 - _LEAST_CAVITY)
        precision = share / (spread * (1.0 - share))
        target = mean + (spread + 1.0 / precision) * by_mean
        return Site(target[None], precision[None, None])

    def correction(self, z: tf.Tensor, q: Moments, site: Site, variance: tf.Tensor) -> tf.Tensor:
        """The log evidence of the observation minus the log evidence of its site."""
        mean, spread = _cavity(q, site)
        total = spread + 1.0 / site.precision[0, 0]
        square = tf.square(site.target[0] - mean) / total
        normal = -0.5 * (tf.math.log(2.0 * math.pi * total) + square)
        return self.log_evidence(z[0], mean, spread, variance) - normal


def _cavity(q: Moments, site: Site) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance of the cavity, q without the site, `[...]`."""
    mean, variance, precision = q.mean[0], q.covariance[0, 0], site.precision[0, 0]
    share = tf.maximum(1.0 - precision * variance, _LEAST_CAVITY)
    spread = variance / share
    return mean + spread * precision * (mean - site.target[0]), spread


@dataclasses.dataclass(frozen=True)
class OneBit(MomentMatched):
    """The signs of the real and the imaginary part of a signal in noise.

    z is `sign(Re y) + i sign(Im y)` for y the signal plus circular normal noise of variance σ², the
    noise variance of the model; only the signs of z are used. Signs do not tell the scale of
    signal and noise together: one of them has to be fixed.

    The density of a sign is Φ, the normal distribution function (the probit model: Rasmussen &
    Williams, *Gaussian Processes for Machine Learning*, 2006, §3.9, there for real signals).
    Linearised by Bussgang's theorem instead, a sign would be the signal times a gain, plus noise,
    whatever the signal is (Li et al., IEEE Trans. Signal Process. 65, 2017). Mean and variance of a
    signal are exact given one sign; given several, expectation propagation approximates them.

    Example:
        >>> import numpy as np, cgp
        >>> t = np.linspace(0.0, 10.0, 400)
        >>> noise = np.random.default_rng(0).normal(size=(2, 400)) * 0.5
        >>> y = np.exp(0.4j * np.pi * t) + noise[0] + 1j * noise[1]
        >>> z = np.sign(y.real) + 1j * np.sign(y.imag)
        >>> kernel = cgp.kernels.RBF(1.0, 3.0) * cgp.kernels.Rotation(0.2)
        >>> gp = cgp.ExactGP(kernel, 0.5, likelihood=cgp.likelihoods.OneBit())
        >>> gp.condition(t, z)
        >>> bool(abs(gp.predict([5.0])["mean"][0] - 1.0) < 0.2)
        True
    """

    def check(self, z: np.ndarray) -> None:
        """Raises a ValueError for real or imaginary parts that are zero, and have no sign."""
        z = z[~np.isnan(z)]
        coordinates = (z.real, z.imag) if np.iscomplexobj(z) else (z,)
        if any(np.any(coordinate == 0) for coordinate in coordinates):
            raise ValueError(
                "z must have signs, of its real and of its imaginary part, but some are zero"
            )

    def log_evidence(
        self, z: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, noise: tf.Tensor
    ) -> tf.Tensor:
        """The log probability of a sign, of a normal variable of variance `variance + noise`."""
        signs = tf.where(z < 0.0, -tf.ones_like(z), tf.ones_like(z))
        return log_normal_cdf(signs * mean / tf.sqrt(variance + noise))


def log_normal_cdf(x: tf.Tensor) -> tf.Tensor:
    """Log Φ(x), also where Φ underflows."""
    far = -20.0 if x.dtype == tf.float64 else -10.0
    is_far = x < far
    least = tf.constant(far, x.dtype)
    near = tf.math.log(0.5 * tf.math.erfc(-math.sqrt(0.5) * tf.where(is_far, least, x)))
    tail = tf.where(is_far, x, least)
    # Abramowitz & Stegun, 26.2.12
    inverse = 1.0 / (tail * tail)
    series = 1.0
    for odd in (9.0, 7.0, 5.0, 3.0, 1.0):
        series = 1.0 - odd * inverse * series
    tail = tf.math.log(series / -tail) - 0.5 * (tail * tail + math.log(2.0 * math.pi))
    return tf.where(is_far, tail, near)
