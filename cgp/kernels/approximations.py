"""Kernels that are not Markov, as Markov ones that come close."""

import math

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels import markov
from cgp.kernels.improper import _OfOne
from cgp.kernels.linear_sde import linear_sde
from cgp.kernels.stationary import RBF, Periodic
from cgp.linalg.composite import as_complex


@keras.saving.register_keras_serializable(package="cgp.kernels")
class MarkovApproximation(_OfOne):
    """A Markov kernel near one that is not: for `StateSpaceGP`. Its covariance is its own.

    - `Periodic`: as many harmonics of both senses, weighted by Bessel functions,
      `I_j(ℓ⁻²) e^{−ℓ⁻²}` (Solin & Särkkä, AISTATS 2014); 2 order + 1 states. Nothing is left out
      but the harmonics above, so that the error is their share of the variance.
    - `RBF`: the reciprocal of its spectral density, cut after so many terms of its power series
      (Hartikainen & Särkkä, MLSP 2010), at the same variance; `order` states. The error is at most
      0.42, 0.14, 0.053, 0.022, 0.0095, 0.0043, 0.0020 and 0.00092 of the variance, for orders 1 to
      8.

    Args:
        kernel: A `Periodic` or an `RBF` over one-dimensional inputs. Its parameters are shared.
        order: Harmonics of a `Periodic`, at least 1; states of an `RBF`, 1 to 8.
        name: A name.
        dtype: That of the kernel.

    Raises:
        TypeError: Another kernel.
        ValueError: Another order, or several dimensions.

    Example:
        >>> from cgp.kernels import MarkovApproximation, Periodic
        >>> kernel = MarkovApproximation(Periodic(lengthscale=1.0), order=5)
        >>> print(f"{kernel.error():.1e}")
        1.8e-05
    """

    def __init__(self, kernel, order=6, *, name=None, dtype=None, **kwargs):
        super().__init__(kernel, name=name, dtype=dtype, **kwargs)
        if not isinstance(kernel, RBF | Periodic):
            raise TypeError(f"an RBF or a Periodic can be approximated, got {kernel!r}")
        scale = kernel.lengthscale if isinstance(kernel, RBF) else kernel.frequency
        if scale.numpy().ndim:
            raise ValueError(f"{kernel!r} is over several dimensions: a state follows one")
        most = 8 if isinstance(kernel, RBF) else 1000
        whole = isinstance(order, int | np.integer) and not isinstance(order, bool)
        if not whole or not 1 <= order <= most:
            raise ValueError(f"order must be a whole number from 1 to {most}, got {order!r}")
        self.order = int(order)
        self.is_markov = True

    def markov_form(self):
        """See `Kernel.markov_form`."""
        kernel = self.kernel
        if isinstance(kernel, RBF):
            return _rbf(self.order, kernel.variance.value, kernel.lengthscale.value)
        return _periodic(
            self.order, kernel.variance.value, kernel.lengthscale.value, kernel.frequency.value
        )

    def moments(self, x1, x2):
        """See `Kernel.moments`."""
        if x1.shape[-1] not in (1, None):
            raise ValueError(f"an approximation needs inputs of one dimension, got {x1.shape[-1]}")
        return tf.math.real(self.markov_form().moments(x1[..., 0], x2[..., 0])), None

    def error(self) -> float:
        """How far its covariance is from that of the kernel, at most, as a share of the variance.

        Of an `RBF` looked for at lags up to ten length scales.
        """
        kernel, variance = self.kernel, float(self.kernel.variance)
        if isinstance(kernel, RBF):
            lags = float(kernel.lengthscale) * np.linspace(0.0, 10.0, 1001)
        else:
            lags = np.linspace(0.0, 0.5, 501) / float(kernel.frequency)
        own, other = (k.covariance(lags, [0.0]).numpy() for k in (self, kernel))
        return float(np.max(np.abs(own - other)) / variance)

    def get_config(self):
        """The constructor's arguments."""
        return {**super().get_config(), "order": self.order}

    def __repr__(self):
        return f"MarkovApproximation({self.kernel!r}, order={self.order})"


def _periodic(order: int, variance, lengthscale, frequency) -> markov.MarkovForm:
    """Rotations of all harmonics, both ways: states that turn, one beside another."""
    import tensorflow_probability as tfp  # here: importing it takes seconds

    numbers = np.arange(-order, order + 1)
    rate = 2.0 * math.pi * frequency * tf.constant(numbers, frequency.dtype)
    share = tfp.math.bessel_ive(
        tf.constant(np.abs(numbers), lengthscale.dtype), 1.0 / lengthscale**2
    )
    covariance = tf.linalg.diag(as_complex(variance * share))
    zero = tf.zeros_like(covariance)

    def transition(step):
        angle = step[..., None] * rate
        return tf.linalg.diag(tf.complex(tf.cos(angle), tf.sin(angle)))

    return markov.MarkovForm(
        transition,
        lambda x, step: (transition(step), markov.over(zero, step)),
        lambda x: markov.over(covariance, x),
        tf.ones([len(numbers)], covariance.dtype),
        None,
        markov.Generator(tf.linalg.diag(tf.complex(tf.zeros_like(rate), rate)), zero),
    )


def _rbf(order: int, variance, lengthscale) -> markov.MarkovForm:
    """A cascade of one state for each pole of the spectral density.

    In units of the length scale, `S(ω) ∝ 1 / Σ_k (ω²/2)ᵏ/k!`, whose poles are those in the left
    half plane of iω.
    """
    from scipy.linalg import solve_continuous_lyapunov  # here: importing it takes long

    series = np.zeros(2 * order + 1)
    series[::2] = [(-0.5) ** k / math.factorial(k) for k in range(order + 1)]  # of s = iω
    roots = np.roots(series[::-1])
    poles = roots[roots.real < 0]
    poles = poles[np.lexsort([poles.imag, -np.abs(poles.imag)])]  # each beside its conjugate
    A = np.diag(poles) + np.diag(np.abs(poles[1:]), k=-1)
    W = np.zeros([order, order])
    W[0, 0] = 1.0
    P = solve_continuous_lyapunov(A, -W)
    scale = 1.0 / P[-1, -1].real

    variance, inverse = as_complex(variance), as_complex(1.0 / lengthscale)
    dtype = variance.dtype
    A, W, P = (tf.constant(a, dtype) for a in (A, scale * W, scale * P))
    generator = markov.Generator(inverse * A, variance * inverse * W)
    return linear_sde(generator, markov.unit(order, dtype), variance * P)
