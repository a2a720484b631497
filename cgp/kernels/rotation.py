"""Rotations: tones over time, delays over frequency."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp import native
from cgp.kernels.base import Kernel
from cgp.kernels.covariance_function import Code
from cgp.kernels.markov import (
    MarkovForm,
    Pair,
    Term,
    Terms,
    noiseless_form,
)
from cgp.kernels.periodogram import Periodogram, deviations
from cgp.kernels.points import as_array, per_dimension
from cgp.kernels.spectrum import Spectrum, line_spectrum
from cgp.linalg.arguments import ArrayLike, as_complex
from cgp.observations import as_observations, check_same_labels
from cgp.training.hyperparameters import Hyperparameter, declared
from cgp.training.parameters import REAL, Parameter


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class Rotation(Kernel):
    """The rotation `e^{+i2π frequency (x1 − x2)}`.

    Alone, a tone of unit variance whose phase is unknown and whose frequency is exact. Times a real
    kernel, a signal that turns: the kernel describes the envelope. Over a frequency axis it is a
    delay: the response `e^{−i2πfτ}` of a line of delay τ is `Rotation(frequency=-τ)`.

    Frequencies inside a kernel that a rotation multiplies count from its frequency: the inner one
    in `(Matern52() + Matern52() * Rotation()) * Rotation()` is the delay of an echo after the first
    wave. Over regular x give the outer frequency, and fix it: the first wave and the echo can
    change places with the same likelihood, but another prediction between the points.

    Args:
        frequency: In cycles per unit of x, of either sign; one number, or one for each dimension of
            x, also if left out. An optimizer of Keras moves it by its learning rate times a
            hundredth of this value, `LBFGS` as far as the likelihood says: prefer `LBFGS`.
        fixed, priors, name, dtype: As for `RBF`.

    Example:
        >>> from cgp.kernels import Rotation
        >>> Rotation(frequency=0.25).covariance([1.0], [0.0]).numpy().round(12)
        array([[0.+1.j]])
    """

    is_stationary, code = True, Code.ROTATION
    # Optimizers move it in steps of a hundredth of its initial value.
    frequency: Hyperparameter = Hyperparameter(
        REAL, default=None, per_dimension=True, relative_step=0.01
    )

    def set_derived_attributes(self) -> None:
        """A rotation is Markov over one dimension alone."""
        self.is_markov = self.frequency.variable.ndim == 0

    @property
    def turn(self) -> Parameter:
        """The frequency by which the rotation shifts the other factors of a product."""
        return self.frequency

    def has_level(self, x: np.ndarray) -> bool:
        """Whether a large constant is likely: yes if it turns at most 0.01 cycles over x."""
        return bool(np.all(np.abs(self.frequency.numpy()) * np.ptp(x, axis=0) < 0.01))

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        self._check_resolved(x1, x2)
        # The difference first: a date times a frequency would lose the digits that matter.
        turns = tf.reduce_sum(per_dimension(self.frequency, x1) * (x1 - x2), axis=-1)
        return tf.complex(*cosine_and_sine(turns)), None

    def carrier_turns(self, x: tf.Tensor) -> tf.Tensor:
        """The turns at points: a rotation is a carrier whose envelope is 1."""
        return tf.reduce_sum(per_dimension(self.frequency, x) * x, axis=-1)

    def envelope(self, x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:
        """The covariance under the carrier, 1."""
        return tf.ones(tf.broadcast_dynamic_shape(tf.shape(x1), tf.shape(x2))[:-1], x1.dtype)

    def _check_resolved(self, *points: tf.Tensor) -> None:
        """Raises, eagerly, for points whose neighbours in their dtype are a turn away."""
        if not tf.executing_eagerly():
            return
        frequency = np.abs(per_dimension(self.frequency, points[0]))
        for x in points:
            turns = np.max(frequency * _largest(x), initial=0.0)
            if turns * np.finfo(self.variable_dtype).eps >= 1.0:
                raise ValueError(
                    f"x is too large for {self!r}: at {np.max(_largest(x)):.3g}, "
                    f"{self.variable_dtype} does not tell one turn from the next. Subtract an "
                    "origin from x, or choose another unit"
                )

    def markov_form(self) -> MarkovForm:
        """The state-space form, of one state, which turns."""
        if not self.is_markov:
            return super().markov_form()
        frequency = self.frequency.value
        return turning_form(frequency, tf.ones_like(frequency))

    def markov_terms(self) -> Terms | None:
        """The Matérn terms of the process, in the order of the states of `markov_form`."""
        frequency = self.frequency.value
        return (Term(0, tf.ones_like(frequency), None, frequency),) if self.is_markov else None

    def spectrum(self) -> Spectrum:
        """The spectrum, a line."""
        if not self.is_markov:
            return super().spectrum()
        return line_spectrum(float(self.frequency), 1.0)

    def check_points(self, x: tf.Tensor) -> None:
        """Raises for points that the kernel does not take."""
        per_dimension(self.frequency, x)
        self._check_resolved(x)

    @classmethod
    def near(cls, frequency: ArrayLike, within: ArrayLike, **kwargs: Any) -> "Rotation":
        """A rotation whose frequency is known, but not exactly, as that of an inertial oscillation.

        It starts at `frequency`, with a normal prior about it, which keeps a fit, and its restarts,
        from a stronger tone elsewhere.

        Args:
            frequency: As for the constructor, but not left out.
            within: The standard deviation of the frequency about that value, positive: a fit ends
                further than three of them away only where the data leave no doubt.
            **kwargs: As for the constructor.

        Raises:
            ValueError: A frequency that is not finite, a deviation that is not positive and finite,
                a prior of the frequency.

        Example:
            >>> from cgp.kernels import Matern12, Rotation
            >>> inertial = Matern12() * Rotation.near(-0.048, within=0.003)
            >>> float(inertial.parts[1].frequency.prior.stddev())
            0.003
        """
        deviation = np.asarray(as_array(within, "within"), float)
        if not np.all((deviation > 0.0) & np.isfinite(deviation)):
            raise ValueError(f"within must be positive and finite, got {within!r}")
        priors = dict(kwargs.pop("priors", None) or {})
        if "frequency" in priors:
            raise ValueError("within is the prior of the frequency: leave it out of priors")
        center = np.asarray(frequency, float)
        if not np.all(np.isfinite(center)):
            raise ValueError(f"frequency must be finite, where it is known, got {frequency!r}")
        moments = {"loc": center.tolist(), "scale": deviation.tolist()}
        priors["frequency"] = {"distribution": "Normal", "parameters": moments}
        return cls(frequency, priors=priors, **kwargs)

    @classmethod
    def from_periodogram(
        cls, x: ArrayLike, z: ArrayLike, count: int | None = None, **kwargs: Any
    ) -> Any:
        """A rotation that starts at the highest peak of the periodogram of `(x, z)`, or several.

        The likelihood of a frequency has a maximum for each side lobe of each peak, so that an
        optimiser must start within about one cycle per span of x. The periodogram of data less
        their mean, `|Σ z e^{−i2πfx}|²`, has a grid in steps of a quarter of a cycle per span,
        between plus and minus half of a cycle per median step of x.

        Args:
            x: Times, or any one-dimensional input, `[N]`, in any order and spacing.
            z: Complex signal, `[N]`; NaN, or hidden by a mask, where missing.
            count: The number of rotations, each at the highest peak of the residual after the tones
                before it, which are fitted together. None for one rotation.
            **kwargs: As for the constructor.

        Returns:
            A `Rotation` at the peak, refined between grid points; with a count, a list of them.

        Raises:
            TypeError: Complex x or real z.
            ValueError: A count that is no whole number from 1 to N; fewer than three points, shapes
                that are not `[N]`, NaN in x, or infinities; a constant z, whose periodogram has no
                peak; a span of so many steps that the grid had over four million frequencies.

        Example:
            >>> import numpy as np
            >>> from cgp.kernels import Rotation
            >>> t = np.arange(100.0)
            >>> rotation = Rotation.from_periodogram(t, np.exp(-2j * np.pi * 0.12 * t))
            >>> print(f"{float(rotation.frequency):.4f}")
            -0.1200
        """
        check_same_labels(x=(x, 0), z=(z, 0))
        x = np.asarray(as_array(x, "x"))
        z = np.asarray(as_observations(z, None, "complex128", promote=True))
        if x.ndim != 1 or x.shape != z.shape:
            raise ValueError(f"x and z must both be [N], got shapes {x.shape} and {z.shape}")
        x = x.astype(np.float64)
        if not np.all(np.isfinite(x)):
            raise ValueError("x must be finite, but has NaN or infinite elements")
        present = ~np.isnan(z)
        x, z = x[present], z[present]
        whole = isinstance(count, int | np.integer) and not isinstance(count, bool)
        if count is not None and not (whole and 1 <= count <= len(x)):
            raise ValueError(f"count must be a whole number from 1 to {len(x)}, got {count!r}")
        if len(x) < 3 or x.min() == x.max():
            raise ValueError(f"a periodogram needs three points at different x, got {len(x)}")
        z, _ = deviations(z)
        if not z.any():
            raise ValueError(
                "z is constant, and its periodogram has no peak: give the frequency to the "
                "constructor"
            )
        frequencies, _ = Periodogram(x, z[None]).peaks(1 if count is None else count)
        rotations = [cls(frequency=float(frequency), **kwargs) for frequency in frequencies]
        return rotations[0] if count is None else rotations


def turning_form(frequency: tf.Tensor, variance: tf.Tensor) -> MarkovForm:
    """The state-space form of a tone of a frequency and a variance, real scalars."""
    rate = 2.0 * math.pi * frequency

    def transition(step: tf.Tensor) -> tf.Tensor:
        angle = rate * step
        return tf.complex(tf.cos(angle), tf.sin(angle))[..., None, None]

    P = as_complex(variance)[None, None]
    identity = tf.ones_like(P)
    return noiseless_form(transition, P, identity[0], 1j * as_complex(rate) * identity)


def _largest(x: tf.Tensor) -> np.ndarray:
    """The largest modulus of each coordinate of points `[..., D]`, eagerly; `[D]`, or empty."""
    values = np.asarray(x)
    # NumPy is fast along one axis.
    values = values.reshape(-1, *values.shape[-1:][values.shape[-1] == 1 :])
    if not values.size:
        return np.zeros(0)
    return np.maximum(-values.min(axis=0), values.max(axis=0))


def cosine_and_sine(turns: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The cosine and sine of `2π turns`, each shaped like `turns`.

    For all pairs of points they are a large part of the work for a covariance matrix: the op takes
    a tenth of the time of TensorFlow's functions, and its gradient computes neither again.
    """
    if native.serves_here(turns):
        cosine, sine = native.op("cgp_turn")(turns)
        # Ops do not infer shapes.
        return tf.ensure_shape(cosine, turns.shape), tf.ensure_shape(sine, turns.shape)
    angle = 2.0 * math.pi * turns
    return tf.cos(angle), tf.sin(angle)


@tf.RegisterGradient("CgpTurn")
def _of_turn(op: tf.Operation, by_cosine: tf.Tensor, by_sine: tf.Tensor) -> tf.Tensor:
    cosine, sine = op.outputs
    return 2.0 * math.pi * (cosine * by_sine - sine * by_cosine)
