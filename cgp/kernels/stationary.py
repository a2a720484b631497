"""Real covariance functions of the difference of two points, for complex processes.

The functions are TensorFlow Probability's; a `Kernel` adds hyperparameters that are Keras weights.
A real covariance makes a proper complex process: its real and imaginary parts are independent, and
each has half of the variance. Formulas after Rasmussen & Williams, *Gaussian Processes for Machine
Learning* (2006), §4.2, with r = |(x1 − x2)/lengthscale|.
"""

import math
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.base import Kernel
from cgp.kernels.bessel import matern_correlation
from cgp.kernels.data_scales import StartRules
from cgp.kernels.markov import Pair
from cgp.kernels.points import per_dimension
from cgp.kernels.program import Code, Instructions, instruction
from cgp.kernels.spectrum import Spectrum
from cgp.linalg.arguments import ArrayLike
from cgp.training.hyperparameters import Hyperparameter, declared
from cgp.training.parameters import POSITIVE, in_steps_of


def psd_kernels() -> Any:
    """TensorFlow Probability's module of covariance functions."""
    import tensorflow_probability as tfp  # here: importing it takes seconds

    return tfp.math.psd_kernels


@declared
class Stationary(Kernel):
    """`variance` times a function `correlation` of `(x1 − x2)/lengthscale`.

    Args:
        variance: `E|z|²`, positive; in squared units of z.
        lengthscale: In units of x, positive; one number, or one for each dimension of x, as it
            is if left out. Left out, the first fit starts either from the data (see `Kernel`).
        fixed: Names of parameters that training leaves alone.
        priors: TFP distributions of parameters, by name.
        name: A name for its parameters.
        dtype: "float64" (complex128 covariances) or "float32" (complex64).
    """

    is_real = True
    variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    lengthscale: Hyperparameter = Hyperparameter(POSITIVE, default=None, per_dimension=True)
    code: ClassVar[Code]
    """The instruction that evaluates the kernel."""

    def set_derived_attributes(self) -> None:
        """A kernel with a length scale for each dimension is not Markov."""
        self.is_markov = self.is_markov and self.lengthscale.variable.ndim == 0

    def correlation(self) -> Any:
        """The kernel at unit variance and length scale, one of TensorFlow Probability's."""
        raise NotImplementedError

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        # The difference first: a date over a length scale would lose the digits that matter.
        r = (x1 - x2) / per_dimension(self.lengthscale, x1)
        return self.variance.value * self.correlation().apply(r, tf.zeros_like(r)), None

    def has_level(self, x: np.ndarray) -> bool:
        """Whether a large constant is likely: yes if a length scale is far above the span of x."""
        lengthscale = self.lengthscale
        is_left_out = lengthscale.is_left_out
        return not is_left_out and bool(np.all(lengthscale.numpy() > 10.0 * np.ptp(x, axis=0)))

    def instructions(self) -> Instructions:
        """The instructions that evaluate the kernel in the compiled core."""
        return (instruction(self.code, self.variance, self.lengthscale),)


@keras.saving.register_keras_serializable(package="cgp.kernels")
class RBF(Stationary):
    """The squared exponential kernel `variance · e^{−r²/2}`: infinitely smooth signals.

    The arguments are those of `Stationary`.

    Example:
        >>> from cgp.kernels import RBF
        >>> kernel = RBF(variance=2.0, lengthscale=3.0)
        >>> kernel.covariance([0.0, 3.0]).numpy().real.round(4)
        array([[2.    , 1.2131],
               [1.2131, 2.    ]])
    """

    code = Code.RBF

    def correlation(self) -> Any:
        """The correlation as a kernel of TensorFlow Probability."""
        return psd_kernels().ExponentiatedQuadratic()

    def spectrum(self) -> Spectrum:
        """The spectral density, a Gaussian function of f."""
        if self.lengthscale.numpy().ndim:
            return super().spectrum()
        variance, scale = float(self.variance), float(self.lengthscale)
        height = math.sqrt(2.0 * math.pi) * variance * scale
        return Spectrum(lambda f: height * np.exp(-2.0 * (np.pi * scale * f) ** 2))


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class RationalQuadratic(Stationary):
    """The rational quadratic kernel `variance · (1 + r²/(2 alpha))^{−alpha}`: many length scales.

    Args:
        variance: As in `Stationary`.
        lengthscale: As in `Stationary`.
        alpha: Shape, positive: small for a wide mixture of length scales; the RBF in the limit.
        fixed: Names of parameters that training leaves alone.
        priors: TFP distributions of parameters, by name.
        name: A name for its parameters.
        dtype: "float64" or "float32".

    Example:
        >>> from cgp.kernels import RationalQuadratic
        >>> kernel = RationalQuadratic(variance=2.0, lengthscale=3.0, alpha=0.5)
        >>> kernel.covariance([0.0], [3.0]).numpy().round(4)
        array([[1.4142+0.j]])
    """

    alpha: Hyperparameter = Hyperparameter(POSITIVE, default=None)

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The starting values: a wide mixture of length scales, alpha = 1."""
        return rules.scattered(1.0, 2.0) if name == "alpha" else super().start_of(name, rules)

    def correlation(self) -> Any:
        """The correlation as a kernel of TensorFlow Probability."""
        return psd_kernels().RationalQuadratic(scale_mixture_rate=self.alpha.value)

    def spectrum(self) -> Spectrum:
        """The spectral density, a Matérn function of f of smoothness `alpha − ½`."""
        if self.lengthscale.numpy().ndim:
            return super().spectrum()
        from scipy.special import gammaln, kv  # here: importing it takes long

        variance, alpha = float(self.variance), float(self.alpha)
        scale, nu = float(self.lengthscale) * math.sqrt(2.0 * alpha), alpha - 0.5

        def density(f: np.ndarray) -> np.ndarray:
            half = np.pi * scale * np.abs(f)
            if nu > 0.0:
                height = math.sqrt(math.pi) * variance * scale
                height *= math.exp(gammaln(nu) - gammaln(alpha))
                return (
                    height
                    * matern_correlation(
                        tf.constant(nu, tf.float64), tf.constant(2.0 * half**2 / nu)
                    ).numpy()
                )
            height = 2.0 * math.sqrt(math.pi) * variance * scale * math.exp(-gammaln(alpha))
            away = np.where(half > 0.0, half, 1.0)
            return np.where(half > 0.0, height * away**nu * kv(nu, 2.0 * away), math.inf)

        return Spectrum(density)

    def instructions(self) -> Instructions:
        """The instructions that evaluate the kernel in the compiled core."""
        numbers = self.variance, self.alpha, self.lengthscale
        return (instruction(Code.RATIONAL_QUADRATIC, *numbers),)


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class Periodic(Kernel):
    """The periodic kernel `variance · e^{−2 Σ sin²(π frequency (x1 − x2)) / lengthscale²}`.

    The signal repeats exactly, with any waveform; the sum is over the dimensions of x. For a tone,
    whose phase turns one way, see `Rotation`.

    Args:
        variance: `E|z|²`, positive; in squared units of z.
        lengthscale: Smoothness of the waveform within a period, positive, without units.
        frequency: In cycles per unit of x, positive; one number, or one for each dimension of x.
        fixed: Names of parameters that training leaves alone.
        priors: TFP distributions of parameters, by name.
        name: A name for its parameters.
        dtype: "float64" or "float32".

    Example:
        >>> from cgp.kernels import Periodic
        >>> kernel = Periodic(variance=2.0, frequency=0.25)
        >>> kernel.covariance([0.0], [2.0, 4.0]).numpy().real.round(4)
        array([[0.2707, 2.    ]])
    """

    is_real = True
    variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    lengthscale: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    # In steps of one percent, as in `Rotation`.
    frequency: Hyperparameter = Hyperparameter(
        in_steps_of(0.01, POSITIVE), default=None, per_dimension=True
    )

    def has_level(self, x: np.ndarray) -> bool:
        """Whether a large constant is likely: yes, as the mean of the waveform."""
        return True

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The starting values: a smooth waveform, at the frequency of the highest peak."""
        if name == "lengthscale":
            return rules.scattered(1.0, 1.0)
        if name == "frequency":
            return np.maximum(np.abs(rules.frequency()), 0.5 / rules.span)
        return super().start_of(name, rules)

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        turns = per_dimension(self.frequency, x1) * (x1 - x2)
        kernel = psd_kernels().ExpSinSquared(length_scale=self.lengthscale.value)
        return self.variance.value * kernel.apply(turns, tf.zeros_like(turns)), None

    def spectrum(self) -> Spectrum:
        """The spectrum, lines at harmonics weighted by Bessel functions of `1/lengthscale²`."""
        if self.frequency.numpy().ndim:
            return super().spectrum()
        from scipy.special import ive  # here: importing it takes long

        rate = float(self.lengthscale) ** -2
        highest = math.ceil(20.0 + 10.0 * math.sqrt(rate))
        numbers = np.arange(-highest, highest + 1)
        shares = ive(np.abs(numbers), rate)
        there = shares > 1e-16
        lines = float(self.frequency) * numbers[there]
        return Spectrum(lines=lines, powers=float(self.variance) * shares[there])

    def instructions(self) -> Instructions:
        """The instructions that evaluate the kernel in the compiled core."""
        return (instruction(Code.PERIODIC, self.variance, self.lengthscale, self.frequency),)
