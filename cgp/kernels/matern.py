"""Matérn kernels: signals of finite smoothness, stationary and Markov.

Formulas after Rasmussen & Williams, *Gaussian Processes for Machine Learning* (2006), §4.2, with
r = |(x1 − x2)/lengthscale|.
"""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.markov import Generator, MarkovForm, over, stacked, unit
from cgp.kernels.program import Code
from cgp.kernels.spectrum import Spectrum, matern
from cgp.kernels.stationary import Stationary, psd_kernels
from cgp.kernels.terms import Term, Terms
from cgp.linalg.arguments import as_complex


class HalfIntegerMatern(Stationary):
    """A Matérn kernel of smoothness order + ½; the arguments are those of `Stationary`."""

    order: int
    """The number of derivatives of the signal."""

    def markov_form(self) -> MarkovForm:
        """The state-space form, by `matern_form`."""
        if not self.is_markov:
            return super().markov_form()
        return matern_form(self.order, self.variance.value, self._rate())

    def markov_terms(self) -> Terms | None:
        """The Matérn terms of the process, in the order of the states of `markov_form`."""
        return (Term(self.order, self.variance.value, self._rate()),) if self.is_markov else None

    def spectrum(self) -> Spectrum:
        """The spectrum of the process."""
        if not self.is_markov:
            return super().spectrum()
        return matern(float(self.variance), float(self.lengthscale), self.order + 0.5)

    def check_points(self, x: tf.Tensor) -> None:
        """Raises for points of other dimensions than the length scale."""
        if not self.is_markov:
            super().check_points(x)

    def _rate(self) -> tf.Tensor:
        return math.sqrt(2 * self.order + 1) / self.lengthscale.value


def matern_form(order: int, variance: tf.Tensor, rate: tf.Tensor) -> MarkovForm:
    """The state-space form of a Matérn process.

    The state is a cascade of order + 1 first-order systems of one rate λ, so that
    `F[i, j] = e^{−λx} (λx)^{i−j} / (i−j)!`, and, as the integral of its squares,
    `Q[i, j] ∝ C(i+j, i) 2^{−(i+j)} P(i+j+1, 2λx)`, P the incomplete gamma function.

    Args:
        order: How many derivatives the signal has; its smoothness is order + ½.
        variance: `E|z|²`, a real scalar.
        rate: λ, `√(2 order + 1)` over the length scale, a real scalar.
    """
    n = order + 1
    weights = np.array(
        [[math.comb(i + j, i) * 2.0 ** -(i + j) for j in range(n)] for i in range(n)]
    )
    weights /= weights[-1, -1]
    stationary = as_complex(variance * tf.constant(weights, variance.dtype))

    def transition(step: tf.Tensor) -> tf.Tensor:
        reach = rate * step
        decay = tf.exp(-reach)
        terms = [decay]  # by products: TensorFlow's derivative of 0⁰ is NaN
        for k in range(1, n):
            terms.append(terms[-1] * reach / k)
        zero = tf.zeros_like(decay)
        return stacked([[terms[i - j] if i >= j else zero for j in range(n)] for i in range(n)])

    def discretize(x: tf.Tensor, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        shares = _incomplete_gammas(2 * order + 1, 2.0 * rate * step)
        share = stacked([[shares[i + j] for j in range(n)] for i in range(n)])
        return transition(step), stationary * share

    drift = np.eye(n, k=-1) - np.eye(n)
    diffusion = np.zeros([n, n])
    diffusion[0, 0] = 2.0 * weights[0, 0]
    return MarkovForm(
        transition,
        discretize,
        lambda x: over(stationary, x),
        unit(n, stationary.dtype),
        None,
        Generator(
            as_complex(rate * tf.constant(drift, rate.dtype)),
            as_complex(variance * rate * tf.constant(diffusion, rate.dtype)),
        ),
    )


def _incomplete_gammas(most: int, y: tf.Tensor) -> list[tf.Tensor]:
    """The regularised incomplete gamma functions P(k, y), k = 1 … most, to full relative precision.

    From the last one down, by `P(k, y) = P(k+1, y) + e^{−y} yᵏ/k!`, a sum of positive terms.
    """
    decay = tf.exp(-y)
    gammas = [_incomplete_gamma(most, y)]
    for k in reversed(range(1, most)):
        gammas.append(gammas[-1] + decay * y**k / math.factorial(k))
    return gammas[::-1]


def _incomplete_gamma(k: int, y: tf.Tensor) -> tf.Tensor:
    @tf.custom_gradient
    def function(y: tf.Tensor) -> tuple[tf.Tensor, Any]:
        # TensorFlow's own gradient would differentiate by k as well, at length.
        def backward(bar: tf.Tensor) -> tf.Tensor:
            return bar * tf.exp(-y) * y ** (k - 1) / math.factorial(k - 1)

        return tf.math.igamma(tf.constant(float(k), y.dtype), y), backward

    return -tf.math.expm1(-y) if k == 1 else function(y)


@keras.saving.register_keras_serializable(package="cgp.kernels")
class Matern12(HalfIntegerMatern):
    """The Matérn-1/2 (Ornstein-Uhlenbeck) kernel `variance · e^{−r}`: continuous, rough signals.

    The arguments are those of `Stationary`.

    Example:
        >>> from cgp.kernels import Matern12
        >>> Matern12(variance=2.0, lengthscale=3.0).covariance([0.0], [3.0]).numpy().round(4)
        array([[0.7358+0.j]])
    """

    order = 0
    code = Code.MATERN12

    def correlation(self) -> Any:
        """The correlation as a kernel of TensorFlow Probability."""
        return psd_kernels().MaternOneHalf()


@keras.saving.register_keras_serializable(package="cgp.kernels")
class Matern32(HalfIntegerMatern):
    """The Matérn-3/2 kernel `variance · (1 + √3 r) e^{−√3 r}`: once differentiable signals.

    The arguments are those of `Stationary`.

    Example:
        >>> from cgp.kernels import Matern32
        >>> Matern32(variance=2.0, lengthscale=3.0).covariance([0.0], [3.0]).numpy().round(4)
        array([[0.9667+0.j]])
    """

    order = 1
    code = Code.MATERN32

    def correlation(self) -> Any:
        """The correlation as a kernel of TensorFlow Probability."""
        return psd_kernels().MaternThreeHalves()


@keras.saving.register_keras_serializable(package="cgp.kernels")
class Matern52(HalfIntegerMatern):
    """The Matérn-5/2 kernel `variance · (1 + √5 r + 5r²/3) e^{−√5 r}`: twice differentiable.

    The arguments are those of `Stationary`.

    Example:
        >>> from cgp.kernels import Matern52
        >>> Matern52(variance=2.0, lengthscale=3.0).covariance([0.0], [3.0]).numpy().round(4)
        array([[1.048+0.j]])
    """

    order = 2
    code = Code.MATERN52

    def correlation(self) -> Any:
        """The correlation as a kernel of TensorFlow Probability."""
        return psd_kernels().MaternFiveHalves()
