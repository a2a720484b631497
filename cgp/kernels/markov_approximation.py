"""Markov approximations of kernels that are not Markov."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.base import Kernel
from cgp.kernels.improper import UnaryCombination
from cgp.kernels.linear_sde import linear_sde
from cgp.kernels.markov import (
    Generator,
    MarkovForm,
    emission_of_last,
    noiseless_form,
)
from cgp.kernels.stationary import RBF, Periodic
from cgp.linalg.arguments import as_complex


@keras.saving.register_keras_serializable(package="cgp.kernels")
class MarkovApproximation(UnaryCombination):
    """A Markov approximation of a kernel that is not Markov, for `StateSpaceGP`.

    Its covariance is the approximate one, in `ExactGP` too.

    - `Periodic`: `order` harmonics of either sign, weighted by Bessel functions,
      `I_j(ℓ⁻²) e^{−ℓ⁻²}` (Solin & Särkkä, AISTATS 2014); 2 order + 1 states. The error is the share
      of the higher harmonics in the variance.
    - `RBF`: the reciprocal of its spectral density, truncated after `order` terms of its power
      series (Hartikainen & Särkkä, MLSP 2010), at the same variance; `order` states. For orders 1
      to 8 the error is at most 0.42, 0.14, 0.053, 0.022, 0.0095, 0.0043, 0.0020 and 0.00092 of it.

    Args:
        kernel: A `Periodic` or an `RBF` over one-dimensional inputs. Its parameters are shared.
        order: Harmonics of a `Periodic`, at least 1; states of an `RBF`, 1 to 8.
        name: A name.
        dtype: The dtype of the kernel.

    Raises:
        TypeError: Another kernel.
        ValueError: Another order, or several dimensions.

    Example:
        >>> from cgp.kernels import MarkovApproximation, Periodic
        >>> kernel = MarkovApproximation(Periodic(lengthscale=1.0), order=5)
        >>> print(f"{kernel.error():.1e}")
        1.8e-05
    """

    def __init__(
        self,
        kernel: Kernel,
        order: int = 6,
        *,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(kernel, name=name, dtype=dtype, **kwargs)
        if not isinstance(kernel, RBF | Periodic):
            raise TypeError(f"an RBF or a Periodic can be approximated, got {kernel!r}")
        scale = kernel.lengthscale if isinstance(kernel, RBF) else kernel.frequency
        if scale.numpy().ndim:
            several = f"{kernel!r} is over several dimensions"
            raise ValueError(f"{several}: a state-space form is over one")
        limit = 8 if isinstance(kernel, RBF) else 1000
        whole = isinstance(order, int | np.integer) and not isinstance(order, bool)
        if not whole or not 1 <= order <= limit:
            raise ValueError(f"order must be a whole number from 1 to {limit}, got {order!r}")
        self.order, self.is_markov = int(order), True

    def markov_form(self) -> MarkovForm:
        """The state-space form."""
        kernel = self.kernel
        if isinstance(kernel, RBF):
            return _rbf(self.order, kernel.variance.value, kernel.lengthscale.value)
        numbers = kernel.variance.value, kernel.lengthscale.value, kernel.frequency.value
        return _periodic(self.order, *numbers)

    def error(self) -> float:
        """The largest error of its covariance, as a share of the variance.

        For an `RBF`, among lags up to ten length scales.
        """
        kernel, variance = self.kernel, float(self.kernel.variance)
        if isinstance(kernel, RBF):
            lags = float(kernel.lengthscale) * np.linspace(0.0, 10.0, 1001)
        else:
            lags = np.linspace(0.0, 0.5, 501) / float(kernel.frequency)
        approximation, exact = (k.covariance(lags, [0.0]).numpy() for k in (self, kernel))
        return float(np.max(np.abs(approximation - exact)) / variance)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "order": self.order}

    def __repr__(self) -> str:
        return f"MarkovApproximation({self.kernel!r}, order={self.order})"


def _periodic(
    order: int, variance: tf.Tensor, lengthscale: tf.Tensor, frequency: tf.Tensor
) -> MarkovForm:
    """The form of a sum of rotations, one state for each harmonic of either sign."""
    numbers = np.arange(-order, order + 1)
    rate = 2.0 * math.pi * frequency * tf.constant(numbers, frequency.dtype)
    import tensorflow_probability as tfp  # here: importing it takes seconds

    share = tfp.math.bessel_ive(
        tf.constant(np.abs(numbers), lengthscale.dtype), 1.0 / lengthscale**2
    )
    P = tf.linalg.diag(as_complex(variance * share))

    def transition(step: tf.Tensor) -> tf.Tensor:
        angle = step[..., None] * rate
        return tf.linalg.diag(tf.complex(tf.cos(angle), tf.sin(angle)))

    drift = tf.linalg.diag(tf.complex(tf.zeros_like(rate), rate))
    return noiseless_form(transition, P, tf.ones([len(numbers)], P.dtype), drift)


def _rbf(order: int, variance: tf.Tensor, lengthscale: tf.Tensor) -> MarkovForm:
    """The form of a cascade of first-order systems, one state for each stable pole.

    In units of the length scale the spectral density is `S(ω) ∝ 1 / Σ_k (ω²/2)ᵏ/k!`; the cascade
    has its poles in the left half plane of s = iω.
    """
    from scipy.linalg import solve_continuous_lyapunov  # here: importing it takes long

    series = np.zeros(2 * order + 1)
    series[::2] = [(-0.5) ** k / math.factorial(k) for k in range(order + 1)]  # of s = iω
    roots = np.roots(series[::-1])
    poles = roots[roots.real < 0]
    poles = poles[np.lexsort([poles.imag, -np.abs(poles.imag)])]  # each next to its conjugate
    A = np.diag(poles) + np.diag(np.abs(poles[1:]), k=-1)
    W = np.zeros([order, order])
    W[0, 0] = 1.0
    P = solve_continuous_lyapunov(A, -W)
    scale = 1.0 / P[-1, -1].real

    variance, inverse = as_complex(variance), as_complex(1.0 / lengthscale)
    dtype = variance.dtype
    A, W, P = (tf.constant(a, dtype) for a in (A, scale * W, scale * P))
    generator = Generator(inverse * A, variance * inverse * W)
    return linear_sde(generator, emission_of_last(order, dtype), variance * P)
