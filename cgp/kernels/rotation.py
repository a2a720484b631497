"""The rotation kernel: a tone over time, a delay over frequency."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from cgp import native
from cgp.kernels.base import Kernel
from cgp.kernels.markov import Generator, MarkovForm, Pair, over
from cgp.kernels.points import as_array, one_number, per_dimension
from cgp.kernels.program import Code, Instructions, instruction
from cgp.kernels.terms import Term, Terms
from cgp.linalg.arguments import ArrayLike, as_complex
from cgp.observations import as_observations
from cgp.training.parameters import REAL, Parameter, in_steps_of

# Of a grid of a periodogram: what a regular series of a million points needs.
_MOST_FREQUENCIES = 4_000_000


@keras.saving.register_keras_serializable(package="cgp.kernels")
class Rotation(Kernel):
    """The rotation `e^{+i2π frequency (x1 − x2)}`.

    Alone, a tone of unit variance whose phase is unknown and whose frequency is exact. Times a real
    kernel, a signal that turns: the kernel describes the envelope. Over a frequency axis it is a
    delay: the response `e^{−i2πfτ}` of a line of delay τ is `Rotation(frequency=-τ)`.

    Args:
        frequency: In cycles per unit of x, of either sign; one number, or one for each dimension of
            x.
        fixed: Names of parameters that training leaves alone.
        priors: TFP distributions of parameters, by name.
        name: A name for its parameters.
        dtype: "float64" or "float32".

    Example:
        >>> from cgp.kernels import Rotation
        >>> Rotation(frequency=0.25).covariance([1.0], [0.0]).numpy().round(12)
        array([[0.+1.j]])
    """

    frequency: Parameter

    def __init__(
        self,
        frequency: ArrayLike = 1.0,
        *,
        fixed: str | Iterable[str] = (),
        priors: Mapping[str, Any] | None = None,
        name: str | None = None,
        dtype: str = "float64",
        **kwargs: Any,
    ):
        super().__init__(name=name, dtype=dtype, **kwargs)
        frequency = one_number(frequency, "frequency", or_vector=True)
        self.is_markov = np.ndim(frequency) == 0
        # Optimizers move it in steps of a hundredth of its initial value.
        step = 0.01 * np.abs(np.where(np.equal(frequency, 0), 1.0, frequency))
        values = {"frequency": (frequency, in_steps_of(step, REAL))}
        self.declare_parameters(values, fixed, priors)

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """See `Kernel.moments`."""
        self._check_resolved(x1, x2)
        # The difference first: a date times a frequency would lose the digits that matter.
        turns = tf.reduce_sum(per_dimension(self.frequency, x1) * (x1 - x2), axis=-1)
        return tf.complex(*cosine_and_sine(turns)), None

    def instructions(self) -> Instructions:
        """See `Kernel.instructions`."""
        return (instruction(Code.ROTATION, self.frequency),)

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
        """See `Kernel.markov_form`.

        One state, which turns.
        """
        if not self.is_markov:
            return super().markov_form()
        rate = 2.0 * math.pi * self.frequency.value

        def transition(step: tf.Tensor) -> tf.Tensor:
            angle = rate * step
            return tf.complex(tf.cos(angle), tf.sin(angle))[..., None, None]

        one = tf.ones([1, 1], as_complex(rate).dtype)
        zero = tf.zeros_like(one)
        return MarkovForm(
            transition,
            lambda x, step: (transition(step), over(zero, step)),
            lambda x: over(one, x),
            one[0],
            None,
            Generator(1j * as_complex(rate) * one, zero),
        )

    def markov_terms(self) -> Terms | None:
        """See `Kernel.markov_terms`."""
        if not self.is_markov:
            return None
        frequency = self.frequency.value
        return (Term(0, tf.ones_like(frequency), frequency=frequency),)

    def check_points(self, x: tf.Tensor) -> None:
        """See `Kernel.check_points`."""
        per_dimension(self.frequency, x)
        self._check_resolved(x)

    @classmethod
    def from_periodogram(cls, x: ArrayLike, z: ArrayLike, **kwargs: Any) -> Self:
        """A rotation that starts at the highest peak of the periodogram of `(x, z)`.

        The likelihood of a frequency has a maximum for each side lobe of each peak, so that an
        optimiser must start within about one cycle per span of x of the right one. The periodogram
        is `|Σ z e^{−i2πfx}|²` of the data without their mean, on a grid of a quarter of that
        spacing, between plus and minus half of a cycle per median step of x.

        Args:
            x: Times, or any one-dimensional input, `[N]`, in any order and spacing.
            z: Complex signal, `[N]`; NaN, or hidden by a mask, where missing.
            **kwargs: As for the constructor.

        Returns:
            A `Rotation` whose frequency is that of the peak, refined between grid points.

        Raises:
            TypeError: Complex x or real z.
            ValueError: Fewer than three points, shapes that are not `[N]`, NaN in x, or infinities;
                a constant z, whose periodogram has no peak; steps so much shorter than the span
                that the grid would have more than four million frequencies.

        Example:
            >>> import numpy as np
            >>> from cgp.kernels import Rotation
            >>> t = np.arange(100.0)
            >>> rotation = Rotation.from_periodogram(t, np.exp(-2j * np.pi * 0.12 * t))
            >>> print(f"{float(rotation.frequency):.4f}")
            -0.1200
        """
        x = np.asarray(as_array(x, "x"))
        z = np.asarray(as_observations(z, None, "complex128", promote=True))
        if x.ndim != 1 or x.shape != z.shape:
            raise ValueError(f"x and z must both be [N], got shapes {x.shape} and {z.shape}")
        x = x.astype(np.float64)
        if not np.all(np.isfinite(x)):
            raise ValueError("x must be finite, but has NaN or infinite elements")
        present = ~np.isnan(z)
        x, z = x[present], z[present]
        if len(x) < 3 or x.min() == x.max():
            raise ValueError(f"a periodogram needs three points at different x, got {len(x)}")
        z = _deviations(z)
        steps = np.diff(np.sort(x))
        with np.errstate(over="ignore"):  # of a span that is infinite, and refused
            step, span = np.median(steps[steps > 0]), np.ptp(x)
        if not span < 0.25 * _MOST_FREQUENCIES * step:
            raise ValueError(
                f"the median step of x, {step:.3g}, is so short beside its span, {span:.3g}, that "
                f"a periodogram would need more than {_MOST_FREQUENCIES:,} frequencies: take one "
                "burst of the data, or average over each, or give the frequency to the constructor"
            )
        spacing = 0.25 / span
        half = np.ceil(0.5 / step / spacing)
        grid = np.arange(-half, half + 1) * spacing
        power = _periodogram(grid, x - x.mean(), z)
        peak = int(np.argmax(power))
        # The vertex of the parabola through the log powers of the peak and its neighbours.
        offset = 0.0
        if 0 < peak < len(grid) - 1:
            left, top, right = np.log(np.maximum(power[peak - 1 : peak + 2], 1e-300))
            curvature = left - 2.0 * top + right
            offset = 0.5 * (left - right) / curvature if curvature < 0 else 0.0
        return cls(frequency=float(grid[peak] + offset * spacing), **kwargs)


def _largest(x: tf.Tensor) -> np.ndarray:
    """The largest modulus of each coordinate of points `[..., D]`, eagerly; `[D]`, or empty."""
    values = np.asarray(x)
    # NumPy is fast along one axis.
    values = values.reshape(-1, *values.shape[-1:][values.shape[-1] == 1 :])
    if not values.size:
        return np.zeros(0)
    return np.maximum(-values.min(axis=0), values.max(axis=0))


def _deviations(z: np.ndarray) -> np.ndarray:
    """Deviations from the mean, of a size whose squares neither overflow nor underflow."""
    largest = max(np.abs(z.real).max(), np.abs(z.imag).max())
    z = z / largest if largest > 0 else z
    deviations = z - z.mean()
    if np.max(np.abs(deviations)) < 1e-13:  # the rounding of the mean
        raise ValueError(
            "z is constant, and its periodogram has no peak: give the frequency to the constructor"
        )
    return deviations / np.max(np.abs(deviations))


def _periodogram(frequencies: np.ndarray, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The periodogram `|Σ z e^{−i2πfx}|²` in blocks of frequencies that fit into memory."""
    blocks = np.array_split(frequencies, 1 + frequencies.size * x.size // 2_000_000)
    sums = [np.exp(-2j * np.pi * np.outer(block, x)) @ z for block in blocks]
    return np.abs(np.concatenate(sums)) ** 2


def cosine_and_sine(turns: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The cosine and sine of `2π turns`, each shaped like `turns`.

    Those of all pairs of points are a large part of a covariance matrix: the op takes a tenth of
    the time of TensorFlow's functions, and its gradient needs neither of them again.
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
