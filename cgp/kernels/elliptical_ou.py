"""The elliptical Ornstein-Uhlenbeck process, a damped rotation along an ellipse."""

import math
from typing import Any, Self

import keras
import tensorflow as tf

from cgp.kernels.base import Kernel
from cgp.kernels.data_scales import StartRules
from cgp.kernels.markov import (
    Generator,
    MarkovForm,
    Pair,
    stationary_form,
    widely_linear,
)
from cgp.kernels.points import coordinate
from cgp.kernels.rotation import cosine_and_sine
from cgp.linalg.arguments import ArrayLike, as_complex, squared_modulus
from cgp.training.hyperparameters import Hyperparameter, declared
from cgp.training.parameters import POSITIVE, REAL, UNIT_DISK


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class EllipticalOU(Kernel):
    """The elliptical Ornstein-Uhlenbeck process, a damped rotation along an ellipse.

    The stationary solution of a stochastic differential equation of widely linear drift,

        dz = (−α₁ + iβ₁) z dx + (−α₂ + iβ₂) conj(z) dx + dW,

    that is the image of a circular one (Sykulski, Olhede & Sykulska-Lawrence, *Statistics and Its
    Interface* 16, 2023, arXiv:2001.05965): `z = (u + c conj(u)) / √(1 − |c|²)`, a linear map of the
    plane that keeps areas, of `du = λ u dx + dη`, `λ = −damping + i2π frequency`, η proper. With
    `u = (z − c conj(z)) / √(1 − |c|²)` in `dz`,

        α₁ = damping,    β₁ = 2π frequency (1 + |c|²) / (1 − |c|²),
        −α₂ + iβ₂ = −i4π frequency c / (1 − |c|²),

    so that `α₂² + β₂² < β₁²`. W is improper as z is, of diffusion `A = E|dW|²/dx`. The process
    has the kernel `WidelyLinear(Matern12(lengthscale=1/damping) * Rotation(frequency), c)`.

    Args:
        variance: `E|z|²`, positive; in squared units of z.
        damping: α₁, positive; per unit of x.
        frequency: Turns along the ellipse, in cycles per unit of x; positive anticlockwise.
        coefficient: c, complex, of modulus (a − b) / (a + b), at most 1, for an ellipse of
            half-axes a and b; its argument is twice the angle of the long axis.
        priors: TFP distributions of parameters, by name; of the coefficient, of its [re, im].
        fixed, name, dtype: As for `RBF`.

    Raises:
        ValueError: A variance or a damping that is not positive, a coefficient beyond the disk.

    Example:
        >>> from cgp.kernels import EllipticalOU
        >>> kernel = EllipticalOU.from_drift(0.02, 1.0, -0.5, -0.3, diffusion=2.0)
        >>> kernel
        EllipticalOU(variance=50., damping=0.02, frequency=0.1293, coefficient=0.1655+0.2759j)
        >>> round(kernel.alpha2, 12), round(kernel.beta2, 12), round(kernel.diffusion, 12)
        (-0.5, -0.3, 2.0)
    """

    is_proper = False
    variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    damping: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    frequency: Hyperparameter = Hyperparameter(REAL, default=None, relative_step=0.01)
    coefficient: Hyperparameter = Hyperparameter(UNIT_DISK, default=None)

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The starting values: a damping of one over a length scale."""
        if name == "damping":
            return 1.0 / rules.lengthscale()
        return rules.coefficient() if name == "coefficient" else super().start_of(name, rules)

    @classmethod
    def from_drift(
        cls,
        alpha1: float,
        beta1: float,
        alpha2: float = 0.0,
        beta2: float = 0.0,
        diffusion: float = 1.0,
        **kwargs: Any,
    ) -> Self:
        """The process of a given stochastic differential equation.

        Args:
            alpha1: α₁, positive; per unit of x.
            beta1: β₁, in radians per unit of x.
            alpha2: α₂, per unit of x.
            beta2: β₂, in radians per unit of x; `α₂² + β₂² < β₁²`.
            diffusion: A, `E|dW|²/dx`, positive; in squared units of z per unit of x.
            **kwargs: As for the constructor.

        Raises:
            ValueError: A drift that does not describe a damped rotation.
        """
        gamma = complex(-alpha2, beta2)
        if not (alpha1 > 0.0 and abs(gamma) < abs(beta1) and diffusion > 0.0):
            raise ValueError(
                "the drift must have alpha1 > 0 and alpha2² + beta2² < beta1², and the noise a "
                f"diffusion > 0, got {alpha1=}, {beta1=}, {alpha2=}, {beta2=}, {diffusion=}"
            )
        rate = math.copysign(math.sqrt(beta1**2 - abs(gamma) ** 2), beta1)
        c = 1j * gamma / (beta1 + rate)
        return cls(diffusion / (2.0 * alpha1), alpha1, rate / (2.0 * math.pi), c, **kwargs)

    @property
    def alpha1(self) -> float:
        """α₁, the damping, per unit of x."""
        return float(self.damping)

    @property
    def beta1(self) -> float:
        """β₁, radians per unit of x; infinite where c is on the unit circle, as α₂ and β₂ are."""
        square = abs(complex(self.coefficient)) ** 2
        return 2.0 * math.pi * float(self.frequency) * _ratio(1.0 + square, 1.0 - square)

    @property
    def alpha2(self) -> float:
        """α₂, per unit of x."""
        return -self._drift_of_conjugate().real

    @property
    def beta2(self) -> float:
        """β₂, radians per unit of x."""
        return self._drift_of_conjugate().imag

    def _drift_of_conjugate(self) -> complex:
        c = complex(self.coefficient)
        scale = _ratio(4.0 * math.pi * float(self.frequency), 1.0 - abs(c) ** 2)
        return complex(scale * c.imag, -scale * c.real)

    @property
    def diffusion(self) -> float:
        """A, `E|dW|²/dx`, in squared units of z per unit of x."""
        return 2.0 * float(self.damping) * float(self.variance)

    def _scaled_variance(self) -> tf.Tensor:
        """The variance of u over 1 − |c|², equal to the variance of z over 1 + |c|²."""
        return self.variance.value / (1.0 + squared_modulus(self.coefficient.value))

    def _transition(self, step: tf.Tensor) -> tf.Tensor:
        """The transition `exp(λ |step|)`, whose phase has the sign of the step; complex."""
        decay = tf.exp(-self.damping.value * tf.abs(step))
        cosine, sine = cosine_and_sine(self.frequency.value * step)
        return tf.complex(decay * cosine, decay * sine)

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        step = coordinate(x1, self) - x2[..., 0]
        k, c = self._transition(step), self.coefficient.value
        scale, square = as_complex(self._scaled_variance()), as_complex(squared_modulus(c))
        return scale * (k + square * tf.math.conj(k)), scale * c * (k + tf.math.conj(k))

    def markov_form(self) -> MarkovForm:
        """The state-space form, of one state, u."""
        damping, variance = self.damping.value, self._scaled_variance()
        P = as_complex(variance)[None, None]

        def discretized(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            noise = -variance * tf.math.expm1(-2.0 * damping * step)
            return self._transition(step)[..., None, None], as_complex(noise)[..., None, None]

        pole = tf.complex(-damping, 2.0 * math.pi * self.frequency.value)
        generator = Generator(pole[None, None], as_complex(2.0 * damping) * P)
        form = stationary_form(discretized, P, tf.ones([1], P.dtype), generator)
        return widely_linear(form, self.coefficient.value)

    def check_points(self, x: tf.Tensor) -> None:
        """Raises for points that the kernel does not take."""
        self.moments(x[..., :1, :], x[..., :1, :])


def _ratio(a: float, b: float) -> float:
    return a / b if b > 0.0 else math.copysign(math.inf, a)
