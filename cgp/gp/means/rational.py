"""Rational functions of a frequency, behind a delay, as means."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.gp.means.base import Mean, whole_number
from cgp.gp.means.vector_fitting import are_at_optimum, locate
from cgp.linalg.arguments import ArrayLike


@keras.saving.register_keras_serializable(package="cgp.means")
class Rational(Mean):
    """A rational function of a frequency, behind a delay, that is located anew at each `fit`.

    It describes resonances, which stationary processes do not:

        r(f) = e^{−i2π delay f} (constant + Σ_k residue_k / (i2πf − pole_k)),    Re(pole_k) < 0,

    the transfer function of a stable system that responds after a delay (convention e^{+iωt}). The
    Gaussian process models what the poles leave (Bect, Georg, Römer & Schöps, 2023,
    arXiv:2307.13484); with the kernel `Zero()` the fit is rational alone, in white noise.

    `fit` locates poles and delay, by relocation of poles (Gustavsen & Semlyen, IEEE Trans. Power
    Delivery 14, 1999) and then by nonlinear least squares, from where all series have a target;
    `condition` leaves them as they are. The constant and the residues are marginalised under a flat
    prior, as the coefficients of `Polynomial(marginalized=True)`. So are, to first order, poles and
    delay: the basis has the derivative `1/(i2πf − pole_k)²` by each pole beside its fraction, and
    f, to which, beside the fractions, the derivative by the delay amounts. A pole at the
    edge of its range has the fraction alone, as the linear model would leave the range. The columns
    are orthonormal over the data that located them, which makes likelihoods independent of units.

    The half-width of a pole, `−Re(pole)/2π`, is at least a quarter of the median step of f, and at
    most ten spans of f: a narrower one fits the noise of a single sample. Too high an order fits
    noise too: choose it by cross-validation that fits again, not by the likelihood.

    Args:
        order: The number of poles, at least 0.
        name: A name.
        dtype: "float64" or "float32".

    Raises:
        ValueError: An order that is no whole number; at `fit`, fewer than (4 order + 4)/1.8
            different inputs, series with inputs of their own, inputs of several dimensions; before
            the first `fit`, whatever needs the poles.

    Example:
        >>> import cgp, numpy as np
        >>> f = np.linspace(0.0, 1.0, 41)
        >>> z = np.exp(-6j * np.pi * f) * (1.0 + 1.0 / (2j * np.pi * (f - 0.3) + 0.5))
        >>> z += 1e-7 * np.random.default_rng(0).normal(size=41)
        >>> gp = cgp.ExactGP(cgp.kernels.Zero(), mean=cgp.means.Rational(1))
        >>> gp.compile(cgp.optimizers.LBFGS())
        >>> history = gp.fit(f, z, verbose=0)
        >>> gp.mean.poles.round(4), round(gp.mean.delay, 4)
        (array([-0.5+1.885j]), 3.0)
    """

    marginalized = True

    def __init__(
        self, order: int, *, name: str | None = None, dtype: str = "float64", **kwargs: Any
    ):
        super().__init__(name=name, dtype=dtype, **kwargs)
        self.order = whole_number(order, "order")
        self.declare_parameters({}, (), None)
        columns = 2 * self.order + 2
        # Poles and delay are those over (f − middle)/span. The span is 0 until the first fit.
        self._axis = self._weight("axis", 2)
        self._located_poles = self._weight("poles", self.order, 2)
        self._located_delay = self._weight("delay")
        self._mixing = self._weight("mixing", columns, columns, 2)

    def _weight(self, name: str, *shape: int) -> keras.Variable:
        return self.add_weight(
            name=name, shape=shape, initializer="zeros", dtype=self.variable_dtype, trainable=False
        )

    @property
    def poles(self) -> np.ndarray:
        """The poles, complex `[order]`, in the order of their frequencies.

        In radians per unit of time, which counts in cycles per unit of f: nanoseconds where f is in
        gigahertz. The resonance is at `Im(pole)/2π`, and `−Re(pole)/π` wide at half of its power,
        both in units of f.
        """
        middle, span = self._middle_and_span()
        poles = _complex(self._located_poles.numpy().astype(float))
        return span * poles[np.argsort(poles.imag)] + 2j * np.pi * middle

    @property
    def delay(self) -> float:
        """The delay, in cycles per unit of f: nanoseconds where f is in gigahertz."""
        return float(self._located_delay.numpy()) / self._middle_and_span()[1]

    def _middle_and_span(self) -> tuple[float, float]:
        middle, span = (float(number) for number in self._axis.numpy())
        if not span > 0:
            raise ValueError(
                f"the poles of {self!r} have not been located: fit(x, z) locates them, and takes "
                "the data in"
            )
        return middle, span

    def prepare(self, x: np.ndarray, z: np.ndarray) -> None:
        """See `Mean.prepare`."""
        if len(x) > 1:
            raise ValueError(
                f"{self!r} has one set of poles for all series, and needs common inputs; got "
                f"inputs of their own for {len(x)} series"
            )
        self._check_dimensions(x.shape[-1])
        present = ~np.isnan(z).any(axis=0)
        f, z = x[0, present, 0], z[:, present]
        needed = math.ceil((4 * self.order + 4) / 1.8)
        different = len(np.unique(f))
        if different < needed:
            raise ValueError(
                f"{self!r} needs at least {needed} different x where all series have a target, got "
                f"{different} among {len(f)} points: take a lower order"
            )
        axis = np.array([0.5 * (f.min() + f.max()), np.ptp(f)])
        ordered = np.argsort(f, kind="stable")
        u, z = (f[ordered] - axis[0]) / axis[1], z[:, ordered]
        z = z / max(np.abs(z).max(), 1e-300)
        found = locate(u, z, self.order)
        at_optimum = are_at_optimum(u, z, found)
        # The squares of the first k poles have the span of the first k functions of the squares.
        poles = found.poles[np.argsort(~at_optimum, kind="stable")]
        columns = _columns(tf.constant(u), tf.constant(poles), tf.constant(found.delay)).numpy()
        used = np.flatnonzero([True] * (self.order + 1) + sorted(at_optimum)[::-1] + [True])
        mixing = np.zeros((columns.shape[1],) * 2, complex)
        mixing[np.ix_(used, used)] = np.linalg.inv(np.linalg.qr(columns[:, used])[1])
        self._axis.assign(axis)
        self._located_poles.assign(_parts(poles))
        self._located_delay.assign(found.delay)
        self._mixing.assign(_parts(mixing))

    def _check_dimensions(self, dimensions: int | None) -> None:
        if dimensions not in (1, None):
            raise ValueError(
                f"{self!r} is over a frequency axis: x must have one dimension, got {dimensions}"
            )

    def basis(self, x: tf.Tensor) -> tf.Tensor | None:
        """See `Mean.basis`."""
        self._check_dimensions(x.shape[-1])
        with tf.init_scope():  # a graph reads what there is when it runs
            self._middle_and_span()
        middle, span = tf.unstack(self._axis.value)
        poles, mixing = (
            tf.complex(*tf.unstack(weight.value, axis=-1))
            for weight in (self._located_poles, self._mixing)
        )
        columns = _columns((x[..., 0] - middle) / span, poles, self._located_delay.value)
        return tf.einsum("...i,ij->...j", columns, mixing)

    def used(self, columns: np.ndarray) -> np.ndarray:
        """See `Mean.used`: all but the derivatives by poles at the edge of their range."""
        return columns[:, self._mixing.numpy().any(axis=(0, 2))]

    def get_config(self) -> dict[str, Any]:
        """See `Mean.get_config`."""
        return {**super().get_config(), "order": self.order}

    def __repr__(self) -> str:
        return f"Rational({self.order})"


def _columns(u: tf.Tensor, poles: tf.Tensor, delay: tf.Tensor) -> tf.Tensor:
    """Fractions, a constant, squares of fractions, and u, behind a delay: `[..., 2 order + 2]`.

    Fractions and squares as Takenaka and Malmquist's functions of each pole twice, which span the
    same, are orthonormal over the whole axis, and are independent where poles coincide
    (Deschrijver, Haegeman & Dhaene, Orthonormal vector fitting, IEEE Trans. Adv. Packaging 30,
    2007).
    """
    zero = tf.zeros_like(u)
    s = tf.complex(zero, 2.0 * math.pi * u)[..., None]
    twice = tf.concat([poles, poles], axis=0)
    widths = tf.cast(tf.sqrt(-2.0 * tf.math.real(twice)), s.dtype)
    all_passes = (s + tf.math.conj(twice)) / (s - twice)
    one = tf.ones_like(s)
    products = [one]  # not cumprod, whose gradient is wrong for complex values
    for k in range(twice.shape[0] - 1):
        products.append(products[-1] * all_passes[..., k : k + 1])
    functions = widths / (s - twice) * tf.concat(products, axis=-1)[..., : twice.shape[0]]
    fractions, squares = tf.split(functions, 2, axis=-1)
    line = tf.complex(u, zero)[..., None]
    turn = tf.exp(tf.complex(zero, -2.0 * math.pi * delay * u))[..., None]
    return turn * tf.concat([fractions, one, squares, line], axis=-1)


def _complex(parts: np.ndarray) -> np.ndarray:
    return parts[..., 0] + 1j * parts[..., 1]


def _parts(values: np.ndarray) -> ArrayLike:
    return np.stack([values.real, values.imag], axis=-1)
