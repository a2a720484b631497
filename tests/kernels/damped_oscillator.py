"""A Markov kernel as a user writes it: one class in one file, in its state-space form alone."""

import math

import keras
import tensorflow as tf

from cgp.kernels import Generator, Kernel, linear_sde
from cgp.training import POSITIVE


@keras.saving.register_keras_serializable(package="tests")
class DampedOscillator(Kernel):
    """The process `z'' = −ω² z − 2 damping z' + noise`, ω = 2π frequency, of a given variance.

    Its covariance at lags x ≥ 0 is `variance e^{−damping x} (cos βx + damping/β sin βx)`,
    β² = ω² − damping².

    Args:
        variance: `E|z|²`, positive.
        frequency: In cycles per unit of x, positive.
        damping: Per unit of x, positive.
        **kwargs: As for `Kernel`.
    """

    is_real = True

    def __init__(self, variance=1.0, frequency=1.0, damping=0.1, **kwargs):
        super().__init__(**kwargs)
        values = {"variance": variance, "frequency": frequency, "damping": damping}
        self.declare_parameters({name: (initial, POSITIVE) for name, initial in values.items()})

    def markov_form(self):
        """The state is (z', z)."""
        square, damping = (2 * math.pi * self.frequency.value) ** 2, self.damping.value
        one, zero = tf.ones_like(square), tf.zeros_like(square)
        drift = tf.stack([[-2 * damping, -square], [one, zero]])
        diffusion = tf.stack([[4 * damping * square * self.variance.value, zero], [zero, zero]])
        return linear_sde(Generator(drift, diffusion), [0.0, 1.0])
