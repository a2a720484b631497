"""Impedances, permittivities and other responses that relax, over frequency.

A response of exponential relaxations of all times τ is `Z(f) = ∫ γ(τ) / (1 + i2πfτ) d log τ`, γ
being its distribution of relaxation times. It is causal: its real part tells its imaginary part
(Kramers and Kronig). For γ of independent values a power of τ in size the moments of Z have a
closed form, by partial fractions of `1/((1 + pτ)(1 + qτ))`.
"""

import math
from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.base import Kernel
from cgp.kernels.data_scales import StartRules
from cgp.kernels.markov import Pair
from cgp.linalg.arguments import ArrayLike
from cgp.training.hyperparameters import Hyperparameter, declared, positive_or_none, setting
from cgp.training.parameters import POSITIVE, Parameter, between

# Nearer to 0 or 1 the process is, but for rounding, one of variance without bound: a constant or a
# capacitance of any size, and independent steps of γ.
_EXPONENTS = between(0.01, 0.99)


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class RelaxationTimes(Kernel):
    """The kernel of an impedance whose distribution of relaxation times is unknown.

    The distribution γ in `Z(f) = ∫ γ(τ) / (1 + i2πfτ) d log τ` is real white noise over log τ, of a
    variance that grows as `τ^{2 exponent}`. (Of smooth γ the integrals are numerical: Liu & Ciucci,
    Electrochim. Acta 331, 2020.) With p = i2πf1 and b = 1 − 2 exponent,

        covariance         s (p^b − q^b)/(p − q),  q = −i2πf2,
        pseudo-covariance  s (p^b − q^b)/(p − q),  q = +i2πf2,

    and s such that `E|Z|² = variance · (f/reference)^{−2 exponent}`: the size over frequency is
    that of a constant-phase element of this exponent: near 0 a resistance, 1/2 diffusion, near 1 a
    capacitance. As γ is real, Z is improper: its phases are around that of the element.

    A resistance in series is a real constant, `WidelyLinear(Constant(), 1.0, fixed="coefficient")`,
    which `gp.posterior(x, part=...)` estimates. With the inductance of leads both are coefficients
    of a mean, `cgp.means.Polynomial(1, scale=f_max)`: resistance and `2πi f_max inductance`.
    The imaginary part of Z is negative where it relaxes (e^{+iωt}), and a fit warns of z whose
    imaginary part is positive. The inducing points of a `SparseGP` should be fixed.

    Args:
        variance: `E|Z|²` at the reference frequency, positive; in squared units of Z.
        exponent: Of the modulus over frequency, `|Z| ∝ f^{−exponent}`, between 0.01 and 0.99.
        reference: A frequency, positive, in units of x; left out, it is the geometric mean of the
            different frequencies of the first fit.
        fixed, priors, name, dtype: As for `RBF`.

    Raises:
        ValueError: A variance or a reference that is not positive, an exponent out of its range;
            when evaluated, x of several dimensions, frequencies that are not positive (in graphs
            their covariances are NaN), or a reference that was left out before a fit.

    Example:
        >>> from cgp.kernels import Constant, RelaxationTimes, WidelyLinear
        >>> resistance = WidelyLinear(Constant(0.5), 1.0, fixed="coefficient")
        >>> kernel = resistance + RelaxationTimes(2.0, exponent=0.5, reference=1.0)
        >>> kernel.covariance([1.0, 100.0], [1.0]).numpy().round(4)
        array([[3.    +0.j    ],
               [1.0396-0.0581j]])
        >>> kernel.pseudo_covariance([1.0]).numpy().round(4)
        array([[1.-1.2732j]])
    """

    is_proper = False
    settings_from_data = ("reference",)
    variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    exponent: Hyperparameter = Hyperparameter(_EXPONENTS, default=None)
    reference: float | None = setting(positive_or_none, default=None)

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The starting values: an exponent of 1/2, or drawn between 0.1 and 0.9."""
        if name == "exponent":
            return 0.1 + 0.8 * rules.uniform()
        return super().start_of(name, rules)

    def starts(
        self, rules: StartRules, power: float, is_selected: Callable[[Parameter], bool]
    ) -> Iterator[tuple[Parameter, ArrayLike | None]]:
        """Hyperparameters and their starting values; a reference left out is set first."""
        if self.reference is None:
            frequencies = rules.scales.x
            if np.all(frequencies > 0.0):  # or it is refused where it is evaluated
                mean = np.mean(np.log(np.unique(frequencies)))
                self._set_from_data(reference=float(np.exp(mean)))
        yield from super().starts(rules, power, is_selected)

    def check_points(self, x: tf.Tensor) -> None:
        """Raises for points that the kernel does not take."""
        self._log_frequency(x)

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise.

        With `ℓ = log(f1/f2)` the quotient of powers is, up to a factor that is a power of f1 f2,
        `sinh(b d/2)/sinh(d/2)`, where `d = ℓ + iπ` in the covariance and ℓ in the other.
        """
        log1, log2 = self._log_frequency(x1), self._log_frequency(x2)
        if self.reference is None:
            raise ValueError(
                f"the reference of {self!r} was left out, and no fit has taken it from data yet: "
                "fit(x, z), or give reference"
            )
        exponent, half = self.exponent.value, 0.5 * (log1 - log2)
        middle = log1 + log2 - 2.0 * math.log(self.reference)
        size = self.variance.value * tf.exp(-exponent * middle)
        # sin(πb/2)/(πb/2) and its cosine, whose quotient has a limit where b = 0.
        b, angle = 1.0 - 2.0 * exponent, math.pi * exponent
        sinc = _over_argument(tf.sin, 0.5 * math.pi * b, -1.0)
        wide = 2.0 / math.pi * _over_argument(tf.sinh, b * half, 1.0) / sinc
        re, im = tf.cosh(b * half), -half * wide * tf.sin(angle)
        scale = size / tf.cosh(half)
        narrow = size * wide / _over_argument(tf.sinh, half, 1.0)
        pseudo = tf.complex(narrow * tf.cos(angle), -narrow * tf.sin(angle))
        return tf.complex(scale * re, scale * im), pseudo

    def _log_frequency(self, x: tf.Tensor) -> tf.Tensor:
        """The logarithm of frequencies `[..., 1]`, or an error for some that are not positive."""
        if x.shape[-1] not in (1, None):
            raise ValueError(
                f"{self!r} is over a frequency axis: x must have one dimension, got {x.shape[-1]}"
            )
        if tf.executing_eagerly() and not bool(tf.reduce_all(x > 0.0)):
            raise ValueError(
                f"{type(self).__name__} is over positive frequencies, got x = "
                f"{float(tf.reduce_min(x)):.6g}: leave out zero, and give frequencies as they are, "
                "not their logarithms"
            )
        return tf.math.log(x[..., 0])

    def __repr__(self) -> str:
        reference = "to be learned" if self.reference is None else f"{self.reference:g}"
        return f"{super().__repr__()[:-1]}, reference={reference})"


def _over_argument(
    function: Callable[[tf.Tensor], tf.Tensor], y: tf.Tensor, sign: float
) -> tf.Tensor:
    """`sinh(y)/y` with the sign 1, `sin(y)/y` with −1, and their derivatives where y = 0."""
    small = tf.abs(y) < 1e-2
    series = 1.0 + sign * y**2 / 6.0 + y**4 / 120.0
    safe = tf.where(small, tf.ones_like(y), y)
    return tf.where(small, series, function(safe) / safe)
