"""Kernels of channels over frequency, by the power that arrives at each delay.

Echoes of different delays are independent (Bello, *IEEE Trans. Commun. Syst.* 11, 1963), so that
the response `H(f) = ∫ h(τ) e^{−i2πfτ} dτ` of a channel of power-delay profile p has the covariance

    K(f1, f2) = ∫ p(τ) e^{−i2πτ(f1 − f2)} dτ.

It is Hermitian and complex: all echoes come late, none early.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.autoregressive import vector_of
from cgp.kernels.base import Kernel
from cgp.kernels.data_scales import StartRules
from cgp.kernels.markov import MarkovForm, Pair, Term, Terms, direct_sum
from cgp.kernels.rotation import cosine_and_sine, turning_form
from cgp.kernels.spectrum import Spectrum
from cgp.linalg.arguments import ArrayLike, as_flag
from cgp.training.hyperparameters import Hyperparameter, InitialValues, declared, setting
from cgp.training.parameters import POSITIVE, REAL, Parameter, in_steps_of


class DelayProfile(Kernel):
    """A kernel of a power-delay profile, over one frequency axis."""

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        if x1.shape[-1] not in (1, None):
            kind = type(self).__name__
            raise ValueError(
                f"{kind} is over one frequency axis, but x has {x1.shape[-1]} dimensions: "
                f"cgp.kernels.Along({kind}(...), axis) reads one of them"
            )
        return self.transform(x1, x2), None

    def transform(self, f1: tf.Tensor, f2: tf.Tensor) -> tf.Tensor:
        """The covariance, complex `[...]`, between frequencies `[..., 1]`."""
        raise NotImplementedError


@declared
class ScaledDelays(DelayProfile):
    """A profile of one shape, scaled along the axis of delays by a parameter named in `extent`."""

    variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    extent: ClassVar[str]
    extent_of_rms: ClassVar[float]  # over the root mean square of the delays about their mean

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The starting values: a spread of delays of `1/(2π)` over a length scale."""
        if name == self.extent:
            return self.extent_of_rms / (2.0 * math.pi * rules.lengthscale())
        return super().start_of(name, rules)


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class ExponentialDelays(ScaledDelays):
    """A channel over frequency whose echoes decay exponentially with their delay.

    The power-delay profile `p(τ) = variance/delay_spread · e^{−τ/delay_spread}`, τ > 0, has

        covariance  variance / (1 + i2π delay_spread (f1 − f2)).

    Times `Rotation(frequency=-delay)` the first echo comes after a delay. The profile is no
    rational function, so that the kernel is not Markov. It is `Szego` with a decay of
    `1/(2 delay_spread)`, under the names of a channel.

    Args:
        variance: `E|H|²`, positive; in squared units of H.
        delay_spread: The mean of the delays, and their root mean square about it, positive; in
            seconds where x is in hertz, in microseconds where it is in megahertz.
        fixed, priors, name, dtype: As for `RBF`.

    Raises:
        ValueError: Parameters that are not positive; when evaluated, x of several dimensions.

    Example:
        >>> from cgp.kernels import ExponentialDelays, Rotation
        >>> channel = ExponentialDelays(2.0, delay_spread=0.3e-6) * Rotation(frequency=-1e-6)
        >>> channel.covariance([0.5e6], [0.0]).numpy().round(4)
        array([[-1.0592+0.9982j]])

        `Along` makes it a kernel over time and frequency, beside one over time.
    """

    is_stationary, extent = True, "delay_spread"
    extent_of_rms = 1.0
    delay_spread: Hyperparameter = Hyperparameter(POSITIVE, default=None)

    def transform(self, f1: tf.Tensor, f2: tf.Tensor) -> tf.Tensor:
        """The covariance between frequencies, the transform of the power-delay profile."""
        turns = self.delay_spread.value * (f1 - f2)[..., 0]
        return low_pass(self.variance.value, 2.0 * math.pi * turns)

    def spectrum(self) -> Spectrum:
        """The spectral density, the power-delay profile at the delay −f."""
        return exponential_delays(float(self.variance), float(self.delay_spread))


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class UniformDelays(ScaledDelays):
    """A channel over frequency whose echoes have equal power at all delays from 0 to a width.

    The power-delay profile `p(τ) = variance/width`, 0 < τ < width, has

        covariance  variance · e^{−iπ width (f1 − f2)} sin(π width (f1 − f2))/(π width (f1 − f2)).

    Of all profiles within a cyclic prefix it is the cautious choice: a receiver that interpolates
    with it loses little with any of them (Li, Cimini & Sollenberger, IEEE Trans. Commun. 46, 1998).
    Times `Rotation(frequency=-delay)` the first echo comes after a delay. It is not Markov.

    Args:
        width: The range of the delays, positive; in seconds where x is in hertz.
        variance, fixed, priors, name, dtype: As for `ExponentialDelays`.

    Raises:
        ValueError: As for `ExponentialDelays`.

    Example:
        >>> from cgp.kernels import UniformDelays
        >>> UniformDelays(2.0, width=4.7e-6).covariance([0.0, 1e5], [0.0]).numpy().round(4)
        array([[2.    -0.j    ],
               [0.1269-1.3425j]])
    """

    is_stationary, extent = True, "width"
    extent_of_rms = math.sqrt(12.0)
    width: Hyperparameter = Hyperparameter(POSITIVE, default=None)

    def transform(self, f1: tf.Tensor, f2: tf.Tensor) -> tf.Tensor:
        """The covariance between frequencies, the transform of the power-delay profile."""
        turns = 0.5 * self.width.value * (f1 - f2)[..., 0]
        cosine, sine = cosine_and_sine(turns)
        angle = 2.0 * math.pi * turns
        small = tf.abs(angle) < 1e-3  # the quotient has no derivative at 0 that TensorFlow can take
        quotient = sine / tf.where(small, tf.ones_like(angle), angle)
        quotient = tf.where(small, 1.0 - angle**2 / 6.0 + angle**4 / 120.0, quotient)
        scale = self.variance.value * quotient
        return tf.complex(scale * cosine, -scale * sine)

    def spectrum(self) -> Spectrum:
        """The spectral density, the power-delay profile at the delay −f."""
        width = float(self.width)
        height = float(self.variance) / width
        return Spectrum(lambda f: np.where((-width <= f) & (f <= 0.0), height, 0.0))


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class TappedDelays(DelayProfile):
    """A channel over frequency of echoes at a few delays, a tapped delay line.

        covariance  Σ powers[k] e^{−i2π delays[k] (f1 − f2)}

    It is the kernel `Constant(power) * Rotation(frequency=-delay)`, summed over the taps, and
    Markov: each tap is a state that turns. With fixed delays on a grid it learns a profile of any
    shape.

    Args:
        delays: Delays of the taps, `[K]`, of either sign, in seconds where x is in hertz; learned.
        powers: `E|h[k]|²` of the taps, `[K]`, positive; in squared units of H. Left out, they are 1
            until the first fit starts them, equal, from the data (see `Kernel`).
        fixed: Names of parameters that training leaves alone: "delays" where they are exact.
        priors, name, dtype: As for `RBF`.

    Raises:
        TypeError: Complex delays or powers.
        ValueError: No delays, powers of another number or that are not positive; when evaluated, x
            of several dimensions (see `Along`).

    Example:
        >>> from cgp.kernels import TappedDelays
        >>> kernel = TappedDelays([0.0, 1e-6], powers=[1.0, 0.5], fixed="delays")
        >>> kernel.covariance([0.25e6], [0.0]).numpy().round(12)
        array([[1.-0.5j]])
    """

    is_stationary = True
    delays: Hyperparameter = Hyperparameter(REAL)
    powers: Hyperparameter = Hyperparameter(POSITIVE, default=None)

    def initial_values(self, arguments: Mapping[str, Any]) -> InitialValues:
        """The initial delays and powers of the taps."""
        delays, powers = vector_of(arguments["delays"], "delays"), arguments["powers"]
        if powers is not None and np.shape(powers) != delays.shape:
            raise ValueError(
                f"powers must be one for each of {len(delays)} delays, got {np.shape(powers)}"
            )
        # Optimizers move all delays in steps of a hundredth of the largest.
        size = np.max(np.abs(delays))
        return {
            "delays": (delays, in_steps_of(0.01 * (size if 0 < size < np.inf else 1.0), REAL)),
            "powers": (powers, POSITIVE._replace(placeholder=np.ones(len(delays)))),
        }

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The starting values: equal powers; delays stay where they are."""
        if name != "powers":
            return super().start_of(name, rules)
        count = self.powers.numpy().size
        return np.array([rules.scattered(rules.power / count, 2.0) for _ in range(count)])

    def has_level(self, x: np.ndarray) -> bool:
        """Whether a large constant is likely: yes if a tap turns at most 0.01 cycles over x."""
        return bool(np.any(np.abs(self.delays.numpy()) * np.ptp(x) < 0.01))

    def scale_parameters(self) -> list[Parameter]:
        """The parameters that scale all moments, the powers."""
        return [self.powers]

    def transform(self, f1: tf.Tensor, f2: tf.Tensor) -> tf.Tensor:
        """The covariance between frequencies, the transform of the power-delay profile."""
        lag = (f1 - f2)[..., 0]
        # Tap by tap: an array of pairs and taps may not fit into memory where one of pairs does.
        turned = [(power, *cosine_and_sine(-delay * lag)) for delay, power in self._taps()]
        re = tf.add_n([power * cosine for power, cosine, _ in turned])
        return tf.complex(re, tf.add_n([power * sine for power, _, sine in turned]))

    def _taps(self) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """Delay and power of each tap."""
        values = tf.unstack(self.delays.value), tf.unstack(self.powers.value)
        return list(zip(*values, strict=True))

    def spectrum(self) -> Spectrum:
        """The spectrum, a line for each tap, at minus its delay."""
        delays, powers = (p.numpy().astype(float) for p in (self.delays, self.powers))
        return Spectrum(lines=-delays, powers=powers)

    def markov_form(self) -> MarkovForm:
        """The state-space form, of one state for each tap, which turns."""
        return direct_sum([turning_form(-delay, power) for delay, power in self._taps()])

    def markov_terms(self) -> Terms:
        """The Matérn terms of the process, in the order of the states of `markov_form`."""
        return tuple(Term(0, power, frequency=-delay) for delay, power in self._taps())


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class Szego(Kernel):
    """The Szegő kernel: transfer functions of stable, causal systems, over their frequencies.

    The impulse response h is decaying white noise, `E[h(t) conj(h(s))] ∝ e^{−2 decay t} δ(t − s)`
    for t > 0, and zero before. Its transform `H(f) = ∫ h(t) e^{−i2πft} dt` has

        covariance         variance · 2 decay / (2 decay + i2π (f1 − f2)),
        pseudo-covariance  variance · 2 decay / (2 decay + i2π (f1 + f2)),

    the latter where h is real, so that `H(−f) = conj(H(f))`, and zero where h is complex and proper
    (Bect, Georg, Römer & Schöps, 2023, arXiv:2307.13484). For positive frequencies far above
    the decay both cases agree. Times `Rotation(frequency=-delay)` the response begins after a
    delay; a real response has no such product, as its pseudo-covariance would turn as well.

    Args:
        variance: `E|H|²`, positive; in squared units of H.
        decay: The decay rate of the envelope of h, positive; in nepers per unit of time, time
            counting in cycles per unit of f (nanoseconds where f is in gigahertz).
        real_response: Whether h is real, as in physical systems. Frequencies then count from zero;
            leave it False where f has another origin, a carrier for instance.
        fixed, priors, name, dtype: As for `RBF`.

    Raises:
        TypeError: A `real_response` that is not a bool.
        ValueError: Parameters that are not positive; when evaluated, x of several dimensions.

    Example:
        >>> import math
        >>> from cgp.kernels import Szego
        >>> kernel = Szego(variance=2.0, decay=math.pi, real_response=True)
        >>> kernel.covariance([1.0], [0.0]).numpy(), kernel.pseudo_covariance([1.0]).numpy()
        (array([[1.-1.j]]), array([[0.4-0.8j]]))
    """

    variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    is_stationary = True
    decay: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    real_response: bool = setting(as_flag, default=False)

    def set_derived_attributes(self) -> None:
        """A response is improper where its impulse response is real."""
        self.is_proper = not self.real_response

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The starting values: a decay of π times a length scale."""
        return math.pi * rules.lengthscale() if name == "decay" else super().start_of(name, rules)

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        if x1.shape[-1] not in (1, None):
            raise ValueError(
                f"{self!r} is over a frequency axis: x must have one dimension, got {x1.shape[-1]}"
            )
        f1, f2 = x1[..., 0], x2[..., 0]
        return self._low_pass(f1 - f2), self._low_pass(f1 + f2) if self.real_response else None

    def _low_pass(self, f: tf.Tensor) -> tf.Tensor:
        return low_pass(self.variance.value, math.pi * f / self.decay.value)

    def spectrum(self) -> Spectrum:
        """The spectral density, the power of the impulse response at the time −f."""
        return exponential_delays(float(self.variance), 0.5 / float(self.decay))

    def __repr__(self) -> str:
        real = ", real_response=True" if self.real_response else ""
        return f"{super().__repr__()[:-1]}{real})"


def low_pass(variance: tf.Tensor, ratio: tf.Tensor) -> tf.Tensor:
    """`variance / (1 + i ratio)`, complex, in parts of modulus at most `variance`."""
    re = variance / (1.0 + ratio**2)
    return tf.complex(re, -ratio * re)


def exponential_delays(variance: float, spread: float) -> Spectrum:
    """The spectrum over frequency of powers that decay exponentially with a delay τ = −f."""

    def density(f: np.ndarray) -> np.ndarray:
        late = np.minimum(f, 0.0) / spread
        return np.where(f <= 0.0, variance / spread * np.exp(late), 0.0)

    return Spectrum(density)
