"""The kernel of stable, causal transfer functions over a frequency axis."""

import math

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.base import Kernel
from cgp.kernels.data_scales import StartRules
from cgp.kernels.markov import Pair
from cgp.kernels.spectrum import Spectrum
from cgp.linalg.arguments import ArrayLike, as_flag
from cgp.training.hyperparameters import Hyperparameter, declared, setting
from cgp.training.parameters import POSITIVE


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class Szego(Kernel):
    """The Szegő kernel: transfer functions of stable, causal systems, over their frequencies.

    The impulse response h is decaying white noise, `E[h(t) conj(h(s))] ∝ e^{−2 decay t} δ(t − s)`
    for t > 0, and zero before. Its transform `H(f) = ∫ h(t) e^{−i2πft} dt` has

        covariance         variance · 2 decay / (2 decay + i2π (f1 − f2)),
        pseudo-covariance  variance · 2 decay / (2 decay + i2π (f1 + f2)),

    the latter where h is real, so that `H(−f) = conj(H(f))`, and zero where h is complex and proper
    (Bect, Georg, Römer & Schöps, 2023, arXiv:2307.13484). Frequencies that are positive and far
    above the decay make both alike. Times `Rotation(frequency=-delay)` the response begins after a
    delay; a real response has no such product, as its pseudo-covariance would turn as well.

    Args:
        variance: `E|H|²`, positive; in squared units of H.
        decay: The decay rate of the envelope of h, positive; in nepers per unit of time, time
            counting in cycles per unit of f (nanoseconds where f is in gigahertz).
        real_response: Whether h is real, as those of physical systems are. Frequencies then count
            from zero; leave it False where f has another origin, a carrier for instance.
        fixed: Names of parameters that training leaves alone.
        priors: TFP distributions of parameters, by name.
        name: A name for its parameters.
        dtype: "float64" or "float32".

    Raises:
        TypeError: A `real_response` that is not a bool.
        ValueError: A variance or a decay that is not positive; frequencies of several dimensions,
            when it is evaluated.

    Example:
        >>> import math
        >>> from cgp.kernels import Szego
        >>> kernel = Szego(variance=2.0, decay=math.pi, real_response=True)
        >>> kernel.covariance([1.0], [0.0]).numpy(), kernel.pseudo_covariance([1.0]).numpy()
        (array([[1.-1.j]]), array([[0.4-0.8j]]))
    """

    variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)
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
