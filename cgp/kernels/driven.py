"""A resonance that another process drives."""

import math
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from cgp.kernels.base import Combination, Constant, Kernel, Product, left_out_of_factors
from cgp.kernels.improper import Conjugate
from cgp.kernels.linear_sde import decays, linear_sde
from cgp.kernels.markov import (
    Generator,
    MarkovForm,
    emission_of_last,
)
from cgp.kernels.rotation import Rotation
from cgp.kernels.stationary import Matern12
from cgp.linalg.arguments import as_complex
from cgp.training.parameters import Parameter


@keras.saving.register_keras_serializable(package="cgp.kernels")
class Driven(Combination):
    """A damped rotation driven by another process, as a cascade.

        dp/dx = s (p − χ),   s = −1/lengthscale + i2π frequency

    p is the signal, χ the excitation: a process of the given kernel, independent of earlier p. The
    Earth's pole follows its excitation in this way (Munk & MacDonald, *The Rotation of the Earth*,
    1960). Slow changes of χ pass through as they are; near the frequency they resonate.

    Args:
        resonance: `Matern12(...) * Rotation(...)`, of the length scale and the frequency in s.
            Its variance is a gain: keep it fixed at 1, as the excitation has a variance too.
        excitation: The kernel of χ: Markov and stationary; sums and products are fine. Not `White`,
            which has no effect in a differential equation. An improper excitation, as by winds and
            tides along an ellipse, makes an improper process.
        name: A name.
        dtype: The dtype of the kernels.

    Raises:
        TypeError: No kernels.
        ValueError: A resonance or an excitation of another kind.

    Example:
        >>> from cgp.kernels import Driven, Matern12, Rotation
        >>> resonance = Matern12(1.0, lengthscale=20.0, fixed="variance") * Rotation(0.84)
        >>> wobble = Driven(resonance, excitation=Matern12(0.01, lengthscale=0.1))
        >>> print(f"{wobble.covariance([0.0]).numpy().real.item():.3f}")
        0.435
    """

    arguments = ("resonance", "excitation")

    def __init__(
        self,
        resonance: Kernel,
        excitation: Kernel,
        *,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        super().__init__([resonance, excitation], name=name, dtype=dtype, **kwargs)
        pole, _ = self._pole(self.resonance)
        if not pole.numpy().real < 0.0:
            raise ValueError(
                f"the resonance must be damped, a Matern12 times a Rotation, got {self.resonance!r}"
            )
        if not decays(self._excitation_form()[0].A):
            raise ValueError(
                f"the excitation must forget its past, but a part of {self.excitation!r} does not: "
                "multiply it by a Matern12"
            )
        self.is_real, self.is_markov = False, True
        self.is_proper = self.excitation.is_proper

    @property
    def resonance(self) -> Kernel:
        """The kernel with the length scale and the frequency of the resonance."""
        return self.parts[0]

    @property
    def excitation(self) -> Kernel:
        """The kernel of the driving process."""
        return self.parts[1]

    def _pole(self, kernel: Kernel) -> tuple[tf.Tensor, tf.Tensor]:
        """The pole s of a resonance, and its gain in power."""
        if isinstance(kernel, Product):
            poles, gains = zip(*map(self._pole, kernel.parts), strict=True)
            return tf.add_n(poles), tf.reduce_prod(tf.stack(gains))
        if isinstance(kernel, Conjugate):
            pole, gain = self._pole(kernel.kernel)
            return tf.math.conj(pole), gain
        unit_gain = tf.ones([], self.variable_dtype)
        if isinstance(kernel, Matern12) and kernel.is_markov:
            return as_complex(-1.0 / kernel.lengthscale.value), kernel.variance.value
        if isinstance(kernel, Rotation) and kernel.is_markov:
            rate = 2.0 * math.pi * kernel.frequency.value
            return tf.complex(tf.zeros_like(rate), rate), unit_gain
        if isinstance(kernel, Constant):
            return as_complex(0.0 * unit_gain), kernel.variance.value
        raise ValueError(
            f"the resonance must be a product of a Matern12 and a Rotation, got {kernel!r}"
        )

    def _excitation_form(self) -> tuple[Generator, MarkovForm]:
        """The differential equation of the excitation, and its form."""
        form = self.excitation.markov_form()
        if form.generator is None or not form.is_stationary:
            raise ValueError(
                f"the excitation must be a stationary process in continuous time, but "
                f"{self.excitation!r} is not"
            )
        return form.generator, form

    def markov_form(self) -> MarkovForm:
        """The state-space form of the cascade.

        The state holds the state s of the excitation, `χ = h s + g conj(s)`, and p. For an improper
        χ it holds p in two parts: the part driven by h s, and the conjugate of the part driven by
        g conj(s), which is linear in s, with the conjugates of pole, gain and g.
        """
        pole, gain = self._pole(self.resonance)
        (A, W), form = self._excitation_form()
        gain = as_complex(tf.sqrt(gain))
        poles, drives = [pole], [-pole * gain * form.h]
        if form.h_conj is not None:
            poles.append(tf.math.conj(pole))
            drives.append(tf.math.conj(-pole * gain * form.h_conj))
        count = len(poles)
        driven = tf.concat([tf.stack(drives), tf.linalg.diag(tf.stack(poles))], axis=1)
        A = tf.concat([tf.pad(A, [[0, 0], [0, count]]), driven], axis=0)
        W = tf.pad(W, [[0, count], [0, count]])
        last = emission_of_last(A.shape[-1], A.dtype)
        if form.h_conj is None:
            return linear_sde(Generator(A, W), last)
        return linear_sde(Generator(A, W), tf.roll(last, -1, axis=0))._replace(h_conj=last)

    def scale_parameters(self) -> list[Parameter] | None:
        """The parameters of the excitation that scale all moments."""
        return self.excitation.scale_parameters()

    def left_out(self) -> list[Parameter]:
        """The hyperparameters without a value, except the gain beside a variance with a value."""
        return left_out_of_factors(self.parts)

    def shares(self, power: float, is_selected: Callable[[Parameter], bool]) -> list[float]:
        """The shares of the power: all for the excitation, whose variance scales the signal."""
        return [1.0, power]

    def __repr__(self) -> str:
        return f"Driven({self.resonance!r}, {self.excitation!r})"
