"""Real covariance functions of the difference of two points, for complex processes.

A real covariance makes a proper complex process: its real and imaginary parts are independent, and
each has half of the variance. Formulas after Rasmussen & Williams, *Gaussian Processes for Machine
Learning* (2006), §4.2, with r = |(x1 − x2)/lengthscale|. Matérn kernels of half-integer smoothness
are Markov.
"""

import functools
import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.base import Kernel
from cgp.kernels.bessel import matern_correlation
from cgp.kernels.covariance_function import Code, Instructions, instruction, joined
from cgp.kernels.data_scales import StartRules
from cgp.kernels.markov import (
    Generator,
    MarkovForm,
    Pair,
    Term,
    Terms,
    direct_sum,
    emission_of_last,
    over_points,
    stack_matrices,
)
from cgp.kernels.points import per_dimension
from cgp.kernels.spectrum import Spectrum, matern_spectrum, sum_of_spectra
from cgp.linalg.arguments import ArrayLike, as_complex
from cgp.training.hyperparameters import Hyperparameter, declared
from cgp.training.parameters import FRACTION, POSITIVE, in_steps_of


def squared_distance(x1: tf.Tensor, x2: tf.Tensor, lengthscale: tf.Tensor) -> tf.Tensor:
    """The square of `|x1 − x2|/lengthscale`, `[...]`, of points `[..., D]`."""
    # The difference first: a date over a length scale would lose the digits that matter.
    return tf.reduce_sum(tf.square((x1 - x2) / lengthscale), axis=-1)


@declared
class Stationary(Kernel):
    """`variance` times a function `correlation` of r², r being `|x1 − x2|/lengthscale`.

    Correlations are written out: importing TensorFlow Probability, which has them, takes longer
    than a fit.
    """

    is_real, is_stationary = True, True
    variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    lengthscale: Hyperparameter = Hyperparameter(POSITIVE, default=None, per_dimension=True)

    def set_derived_attributes(self) -> None:
        """A kernel with a length scale for each dimension is not Markov."""
        self.is_markov = self.is_markov and self.lengthscale.variable.ndim == 0

    def correlation(self, square: tf.Tensor) -> tf.Tensor:
        """The correlation at `square`, which is r², with a finite gradient where it is zero."""
        raise NotImplementedError

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        square = squared_distance(x1, x2, per_dimension(self.lengthscale, x1))
        return self.variance.value * self.correlation(square), None

    def has_level(self, x: np.ndarray) -> bool:
        """Whether a large constant is likely: yes if a length scale is far above the span of x."""
        scale = self.lengthscale
        return not scale.is_left_out and bool(np.all(scale.numpy() > 10.0 * np.ptp(x, axis=0)))


@keras.saving.register_keras_serializable(package="cgp.kernels")
class RBF(Stationary):
    """The squared exponential kernel `variance · e^{−r²/2}`: infinitely smooth signals.

    Args:
        variance: `E|z|²`, positive; in squared units of z.
        lengthscale: In units of x, positive; one number, or one for each dimension of x, also
            if left out. A first fit starts values left out from the data (see `Kernel`).
        fixed: Names of parameters that training leaves alone.
        priors: TFP distributions of parameters, by name.
        name: A name for its parameters.
        dtype: "float64" (complex128 covariances) or "float32" (complex64).

    Example:
        >>> from cgp.kernels import RBF
        >>> kernel = RBF(variance=2.0, lengthscale=3.0)
        >>> kernel.covariance([0.0, 3.0]).numpy().real.round(4)
        array([[2.    , 1.2131],
               [1.2131, 2.    ]])
    """

    is_smooth, code = True, Code.RBF

    def correlation(self, square: tf.Tensor) -> tf.Tensor:
        """`e^{−r²/2}`."""
        return tf.exp(-0.5 * square)

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
        alpha: Shape, positive: small for a wide mixture of length scales; the RBF in the limit.
        variance, lengthscale, fixed, priors, name, dtype: As for `RBF`.

    Example:
        >>> from cgp.kernels import RationalQuadratic
        >>> kernel = RationalQuadratic(variance=2.0, lengthscale=3.0, alpha=0.5)
        >>> kernel.covariance([0.0], [3.0]).numpy().round(4)
        array([[1.4142+0.j]])
    """

    is_smooth = True
    alpha: Hyperparameter = Hyperparameter(POSITIVE, default=None)

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The starting values: a wide mixture of length scales, alpha = 1."""
        return rules.scattered(1.0, 2.0) if name == "alpha" else super().start_of(name, rules)

    def correlation(self, square: tf.Tensor) -> tf.Tensor:
        """`(1 + r²/(2 alpha))^{−alpha}`."""
        alpha = self.alpha.value
        return tf.exp(-alpha * tf.math.log1p(0.5 * square / alpha))

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
                square = tf.constant(2.0 * half**2 / nu)
                return height * matern_correlation(tf.constant(nu, tf.float64), square).numpy()
            height = 2.0 * math.sqrt(math.pi) * variance * scale * math.exp(-gammaln(alpha))
            away = np.where(half > 0.0, half, 1.0)
            return np.where(half > 0.0, height * away**nu * kv(nu, 2.0 * away), math.inf)

        return Spectrum(density)

    def instructions(self) -> Instructions:
        """The instructions that evaluate the kernel in the compiled core."""
        return (instruction(Code.RATIONAL_QUADRATIC, self.variance, self.alpha, self.lengthscale),)


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
        fixed, priors, name, dtype: As for `RBF`.

    Example:
        >>> from cgp.kernels import Periodic
        >>> kernel = Periodic(variance=2.0, frequency=0.25)
        >>> kernel.covariance([0.0], [2.0, 4.0]).numpy().real.round(4)
        array([[0.2707, 2.    ]])
    """

    is_real, is_smooth, is_stationary, code = True, True, True, Code.PERIODIC
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
        sines = tf.sin(math.pi * turns) / self.lengthscale.value
        return self.variance.value * tf.exp(-2.0 * tf.reduce_sum(tf.square(sines), axis=-1)), None

    def spectrum(self) -> Spectrum:
        """The spectrum, lines at harmonics weighted by Bessel functions of `1/lengthscale²`."""
        if self.frequency.numpy().ndim:
            return super().spectrum()
        from scipy.special import ive  # here: importing it takes long

        rate = float(self.lengthscale) ** -2
        highest = math.ceil(20.0 + 10.0 * math.sqrt(rate))
        numbers = np.arange(-highest, highest + 1)
        shares = ive(np.abs(numbers), rate)
        has_power = shares > 1e-16
        lines = float(self.frequency) * numbers[has_power]
        return Spectrum(lines=lines, powers=float(self.variance) * shares[has_power])


class HalfIntegerMatern(Stationary):
    """A Matérn kernel of smoothness order + ½; arguments as for `RBF`."""

    is_stationary = True
    order: int  # the number of derivatives of the signal

    def correlation(self, square: tf.Tensor) -> tf.Tensor:
        """A polynomial of r times an exponential."""
        return half_integer_correlation(self.order, square)

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
        return matern_spectrum(float(self.variance), float(self.lengthscale), self.order + 0.5)

    def check_points(self, x: tf.Tensor) -> None:
        """Raises for points of other dimensions than the length scale."""
        if not self.is_markov:
            super().check_points(x)

    def _rate(self) -> tf.Tensor:
        return math.sqrt(2 * self.order + 1) / self.lengthscale.value


def half_integer_correlation(order: int, square: tf.Tensor) -> tf.Tensor:
    """The Matérn correlation of smoothness p + ½, p being the order, at r², `[...]`.

    With s = √(2p + 1) r, `e^{−s} Σ_j c_j sʲ` with `c_j = (p over j) 2ʲ (2p − j)!/(2p)!` over
    j ≤ p (Rasmussen & Williams, 2006, eq. 4.16). Its gradient is zero at r = 0.
    """
    square = tf.minimum(square, 1e6)  # where the exponential is zero, and its product with ∞ NaN
    is_zero = square == 0.0  # where the derivative of a root is infinite
    root = tf.sqrt((2 * order + 1) * tf.where(is_zero, tf.ones_like(square), square))
    s = tf.where(is_zero, tf.zeros_like(square), root)
    coefficients = [
        math.comb(order, j) * 2.0**j / math.perm(2 * order, j) for j in range(order + 1)
    ]
    polynomial = tf.math.polyval([tf.constant(c, s.dtype) for c in reversed(coefficients)], s)
    return polynomial * tf.exp(-s)


def matern_form(order: int, variance: tf.Tensor, rate: tf.Tensor) -> MarkovForm:
    """The state-space form of a Matérn process of smoothness order + ½.

    The state is a cascade of order + 1 first-order systems of one rate, `λ = √(2 order + 1)` over
    the length scale, so that `F[i, j] = e^{−λx} (λx)^{i−j} / (i−j)!`, and, as the integral of its
    squares, `Q[i, j] ∝ C(i+j, i) 2^{−(i+j)} P(i+j+1, 2λx)`, P the incomplete gamma function.
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
        rows = [[terms[i - j] if i >= j else zero for j in range(n)] for i in range(n)]
        return stack_matrices(rows)

    def discretize(x: tf.Tensor, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        shares = _incomplete_gammas(2 * order + 1, 2.0 * rate * step)
        share = stack_matrices([[shares[i + j] for j in range(n)] for i in range(n)])
        return transition(step), stationary * share

    diffusion = np.zeros([n, n])
    diffusion[0, 0] = 2.0 * weights[0, 0]
    generator = Generator(
        as_complex(rate * tf.constant(np.eye(n, k=-1) - np.eye(n), rate.dtype)),
        as_complex(variance * rate * tf.constant(diffusion, rate.dtype)),
    )
    h = emission_of_last(n, stationary.dtype)
    covariance = functools.partial(over_points, stationary)
    return MarkovForm(transition, discretize, covariance, h, None, generator)


def _incomplete_gammas(order: int, y: tf.Tensor) -> list[tf.Tensor]:
    """The regularised incomplete gamma functions P(k, y), k = 1 … most, to full relative precision.

    From the last one down, by `P(k, y) = P(k+1, y) + e^{−y} yᵏ/k!`, a sum of positive terms.
    """
    decay = tf.exp(-y)
    gammas = [_incomplete_gamma(order, y)]
    for k in reversed(range(1, order)):
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

    Arguments as for `RBF`.

    Example:
        >>> from cgp.kernels import Matern12
        >>> Matern12(variance=2.0, lengthscale=3.0).covariance([0.0], [3.0]).numpy().round(4)
        array([[0.7358+0.j]])
    """

    order, code = 0, Code.MATERN12


@keras.saving.register_keras_serializable(package="cgp.kernels")
class Matern32(HalfIntegerMatern):
    """The Matérn-3/2 kernel `variance · (1 + √3 r) e^{−√3 r}`: once differentiable signals.

    Arguments as for `RBF`.

    Example:
        >>> from cgp.kernels import Matern32
        >>> Matern32(variance=2.0, lengthscale=3.0).covariance([0.0], [3.0]).numpy().round(4)
        array([[0.9667+0.j]])
    """

    order, code = 1, Code.MATERN32


@keras.saving.register_keras_serializable(package="cgp.kernels")
class Matern52(HalfIntegerMatern):
    """The Matérn-5/2 kernel `variance · (1 + √5 r + 5r²/3) e^{−√5 r}`: twice differentiable.

    Arguments as for `RBF`.

    Example:
        >>> from cgp.kernels import Matern52
        >>> Matern52(variance=2.0, lengthscale=3.0).covariance([0.0], [3.0]).numpy().round(4)
        array([[1.048+0.j]])
    """

    order, code = 2, Code.MATERN52


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class Matern(Kernel):
    """The Matérn kernel of any smoothness ν, `variance · 2^{1−ν}/Γ(ν) (√(2ν) r)^ν K_ν(√(2ν) r)`.

    K_ν is a modified Bessel function, r = |(x1 − x2)/lengthscale| (Rasmussen & Williams, 2006,
    §4.2.1). The signal has ν derivatives, rounded up less one: ½, 3/2 and 5/2 are `Matern12`,
    `Matern32` and `Matern52`, which are Markov and take a fraction of the time; large ν tend to
    `RBF`. It has no finite state-space form: learn ν by `ExactGP`, then take the nearest of these.

    Args:
        variance: `E|z|²`, positive; in squared units of z.
        lengthscale: In units of x, positive; one number, or one for each dimension of x.
        smoothness: ν, positive, without units.
        fixed, priors, name, dtype: As for `RBF`.

    Raises:
        ValueError: Parameters that are not positive.

    Example:
        >>> from cgp.kernels import Matern
        >>> Matern(2.0, lengthscale=3.0, smoothness=1.5).covariance([0.0], [3.0]).numpy().round(4)
        array([[0.9667+0.j]])
    """

    is_real, is_stationary = True, True
    variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    lengthscale: Hyperparameter = Hyperparameter(POSITIVE, default=None, per_dimension=True)
    smoothness: Hyperparameter = Hyperparameter(POSITIVE._replace(placeholder=1.5), default=None)

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The starting values: a smoothness of 3/2."""
        return rules.scattered(1.5, 1.0) if name == "smoothness" else super().start_of(name, rules)

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        square = squared_distance(x1, x2, per_dimension(self.lengthscale, x1))
        return self.variance.value * matern_correlation(self.smoothness.value, square), None

    def spectrum(self) -> Spectrum:
        """The spectrum of the process."""
        if self.lengthscale.numpy().ndim:
            return super().spectrum()
        numbers = self.variance, self.lengthscale, self.smoothness
        return matern_spectrum(*map(float, numbers))


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class TwoScale(Kernel):
    """A Matérn-5/2 kernel of two length scales: a smooth signal with finer structure on it.

        variance · ((1 − share) m(r) + share m(r/ratio)),   m(r) = (1 + √5 r + 5r²/3) e^{−√5 r}

    with r = |(x1 − x2)/lengthscale|. The long scale carries the signal across gaps, where the short
    one alone would return to the mean, and the short one follows what the long one would smooth
    away. As the ratio is below one, the two never change places. It is Markov, of six states, where
    the length scale is one number.

    Args:
        variance: `E|z|²` of both together, positive; in squared units of z.
        lengthscale: The long scale, in units of x, positive; one number, or one for each dimension.
        ratio: The short length scale over the long one, between 0 and 1.
        share: The share of the short scale in the variance, between 0 and 1.
        fixed, priors, name, dtype: As for `RBF`.

    Raises:
        ValueError: Parameters outside their ranges.

    Example:
        >>> from cgp.kernels import TwoScale
        >>> kernel = TwoScale(2.0, lengthscale=3.0, ratio=0.2, share=0.25)
        >>> kernel.covariance([0.0], [0.0, 0.6, 3.0]).numpy().real.round(4)
        array([[2.    , 1.714 , 0.7864]])
    """

    is_real, is_stationary = True, True
    variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    lengthscale: Hyperparameter = Hyperparameter(POSITIVE, default=None, per_dimension=True)
    ratio: Hyperparameter = Hyperparameter(FRACTION, default=None)
    share: Hyperparameter = Hyperparameter(FRACTION, default=None)

    def set_derived_attributes(self) -> None:
        """A kernel with a length scale for each dimension is not Markov."""
        self.is_markov = self.lengthscale.variable.ndim == 0

    def _scales(self) -> tuple[tuple[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
        """Variance and length scale of both Matérn terms, the long scale first."""
        variance, share, long = self.variance.value, self.share.value, self.lengthscale.value
        return ((1.0 - share) * variance, long), (share * variance, self.ratio.value * long)

    def _markov_numbers(self) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """Variance and rate of both Matérn terms."""
        return [(variance, math.sqrt(5.0) / scale) for variance, scale in self._scales()]

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The starting values: a fifth of the long scale and a fifth of the variance."""
        if name in ("ratio", "share"):
            return min(rules.scattered(0.2, 1.2), 0.9)
        return super().start_of(name, rules)

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        per_dimension(self.lengthscale, x1)  # may refuse x
        terms = [
            variance * half_integer_correlation(2, squared_distance(x1, x2, scale))
            for variance, scale in self._scales()
        ]
        return tf.add_n(terms), None

    def instructions(self) -> Instructions | None:
        """The instructions that evaluate the kernel in the compiled core."""
        programs = [(instruction(Code.MATERN52, *numbers),) for numbers in self._scales()]
        return joined(Code.SUM, programs)

    def markov_form(self) -> MarkovForm:
        """The state-space form, of the states of both Matérn terms."""
        if not self.is_markov:
            return super().markov_form()
        return direct_sum([matern_form(2, *numbers) for numbers in self._markov_numbers()])

    def markov_terms(self) -> Terms | None:
        """The Matérn terms of the process, in the order of the states of `markov_form`."""
        numbers = self._markov_numbers()
        return tuple(Term(2, *n) for n in numbers) if self.is_markov else None

    def spectrum(self) -> Spectrum:
        """The spectrum, the sum of the spectra of both Matérn terms."""
        if not self.is_markov:
            return super().spectrum()
        terms = [matern_spectrum(float(v), float(scale), 2.5) for v, scale in self._scales()]
        return sum_of_spectra(terms)

    def check_points(self, x: tf.Tensor) -> None:
        """Raises for points that the kernel does not take."""
        per_dimension(self.lengthscale, x)
