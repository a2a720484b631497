"""Rational functions of a frequency, behind a delay, as means."""

import math
import warnings

import keras
import numpy as np
import tensorflow as tf

from cgp.gp.means.base import Mean, rows_of, whole_number
from cgp.gp.means.vector_fitting import (
    Arrangement,
    ConjugatePairs,
    FreePoles,
    PolesAndDelay,
    are_at_optimum,
    locate,
)
from cgp.linalg.arguments import ArrayLike, as_flag
from cgp.training.hyperparameters import declared, setting
from cgp.training.saving import check_size

_GOOD = 1e-3  # residual power of a good fit, over the power of z
_FAR_BETTER = 0.25  # of the residual power: 6 dB, where chance makes up to 2 dB


@keras.saving.register_keras_serializable(package="cgp.means")
@declared
class Rational(Mean):
    """A rational function of a frequency, behind a delay, that is located anew at each `fit`.

    It describes resonances, which stationary processes do not:

        r(f) = e^{−i2π delay f} (constant + Σ_k residue_k / (i2πf − pole_k)),    Re(pole_k) < 0,

    the transfer function of a stable system that responds after a delay (convention e^{+iωt}). The
    Gaussian process models the residual of the poles (Bect, Georg, Römer & Schöps, 2023,
    arXiv:2307.13484); with the kernel `Zero()` the fit is rational alone, in white noise.

    `fit` locates poles and delay, by relocation of poles (Gustavsen & Semlyen, IEEE Trans. Power
    Delivery 14, 1999) and then by nonlinear least squares, at inputs where all series have targets;
    `condition` leaves them as they are. The constant and the residues are marginalised under a flat
    prior, as the coefficients of `Polynomial(marginalized=True)`. So are, to first order, poles and
    delay: beside the fraction of each pole the basis has its derivative `1/(i2πf − pole_k)²`, and
    beside all of them f, in place of the derivative by the delay. A pole held by its prior or by
    the edge of its range has the fraction alone, as the linear model would move it on. The columns
    are orthonormal over the data that located them, which makes likelihoods independent of units.

    With `real_response=True` the impulse response is real, as for any passive device: beside each
    pole there is its conjugate, with the conjugate residue, and the constant is real. f has to be
    the frequency itself, not an offset from a carrier. Where the band is not far above zero, as for
    a low-pass filter, this halves the number of unknowns; far above zero there is little
    difference. Two real poles need two pairs, unless they coincide. The coefficients are then real,
    and the process is improper (`gp.predict` has a pseudo-variance, matrices twice as many rows).

    A pole much narrower than the step of f may fit the noise of a single sample. Where its
    half-width, `−Re(pole)/2π`, is below a quarter w of the median step, it has a prior of log
    density `−½ (log(w/half-width)/¼)²`, which data with little noise overcome; it is at least a
    fiftieth of the step, and at most ten spans of f. The known noise of samples does not influence
    the location of poles: leave out, as NaN, samples that are far noisier than others. Too high an
    order fits noise: choose it by cross-validation with new fits, not by the likelihood.

    Args:
        order: The number of poles, at least 0; of pairs, if the response is real.
        real_response: Whether the impulse response is real.
        name: A name.
        dtype: "float64" or "float32".

    Raises:
        TypeError: A `real_response` that is not a bool.
        ValueError: An order that is no whole number; at `fit`, fewer different inputs than
            (4 order + 4)/1.8, or (4 order + 2)/1.8 of a real response, series with inputs of their
            own, inputs of several dimensions; before the first `fit`, any use of the poles.

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
    order: int = setting(whole_number)
    real_response: bool = setting(as_flag, default=False, kw_only=True)

    def set_derived_attributes(self) -> None:
        """Creates the weights of poles and delay, which are located at each fit."""
        self._arrangement = ConjugatePairs() if self.real_response else FreePoles()
        self.has_real_coefficients = self._arrangement.has_real_coefficients
        columns = 2 * self._arrangement.fractions_of_each * self.order + 2
        numbers, of_mean = 2 * columns**2, f"a rational function of order {self.order}"
        check_size(numbers, of_mean, self.variable_dtype, "take a smaller order")
        # Poles and delay belong to (f − middle)/span. The span is 0 until the first fit.
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
        """The poles, in the order of their frequencies: complex `[order]`, `[2 order]` for pairs.

        In radians per unit of time, the unit being a cycle per unit of f: nanoseconds where f is in
        gigahertz. The resonance is at `Im(pole)/2π`, and `−Re(pole)/π` wide at half of its power,
        both in units of f.
        """
        middle, span = self._middle_and_span()
        re, im = np.moveaxis(self._located_poles.numpy().astype(float), -1, 0)
        return span * self._arrangement.all(re + 1j * im) + 2j * np.pi * middle

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
        """Locates the poles and the delay of series `[B, N]` over common inputs `[1, N, 1]`."""
        if len(x) > 1:
            raise ValueError(
                f"{self!r} has one set of poles for all series, and needs common inputs; got "
                f"inputs of their own for {len(x)} series"
            )
        self._check_dimensions(x.shape[-1])
        present = ~np.isnan(z).any(axis=0)
        f, z = x[0, present, 0], z[:, present]
        # A tenth more numbers than unknowns: poles, delay and coefficients.
        needed = math.ceil((4 * self.order + (2 if self.has_real_coefficients else 4)) / 1.8)
        different = len(np.unique(f))
        if different < needed:
            raise ValueError(
                f"{self!r} needs at least {needed} different x where all series have a target, got "
                f"{different} among {len(f)} points: take a lower order"
            )
        # Conjugate pairs need a response over the frequency itself.
        middle = 0.0 if self.has_real_coefficients else 0.5 * (f.min() + f.max())
        axis = np.array([middle, np.ptp(f)])
        ordered = np.argsort(f, kind="stable")
        u, z = (f[ordered] - axis[0]) / axis[1], z[:, ordered]
        size = max(np.abs(z).max(), 1e-300)
        z = z / size
        located = locate(u, z, self.order, self._arrangement)
        _warn_of_other_data(u, z, located, self, size)
        at_optimum = are_at_optimum(u, z, located, self._arrangement)
        # The squares of the first k poles have the span of the first k functions of the squares.
        poles = located.poles[np.argsort(~at_optimum, kind="stable")]
        places, roots, delay = map(tf.constant, (u, poles, located.delay))
        columns = _columns(places, roots, delay, self._arrangement).numpy()
        each = self._arrangement.fractions_of_each
        squares = np.repeat(sorted(at_optimum)[::-1], each)
        used = np.flatnonzero([True] * (each * self.order + 1) + [*squares, True])
        mixing = np.zeros((columns.shape[1],) * 2, complex)
        rows = rows_of(columns[:, used], self.has_real_coefficients)
        mixing[np.ix_(used, used)] = np.linalg.inv(np.linalg.qr(rows)[1])
        self._axis.assign(axis)
        self._located_poles.assign(_re_and_im(poles))
        self._located_delay.assign(located.delay)
        self._mixing.assign(_re_and_im(mixing))

    def _check_dimensions(self, dimensions: int | None) -> None:
        if dimensions not in (1, None):
            raise ValueError(
                f"{self!r} is over a frequency axis: x must have one dimension, got {dimensions}"
            )

    def basis(self, x: tf.Tensor) -> tf.Tensor | None:
        """The basis functions of a marginalised trend, complex `[..., N, q]`, or None."""
        self._check_dimensions(x.shape[-1])
        with tf.init_scope():  # a graph reads the weights when it runs
            self._middle_and_span()
        middle, span = tf.unstack(self._axis.value)
        poles, mixing = (
            tf.complex(*tf.unstack(weight.value, axis=-1))
            for weight in (self._located_poles, self._mixing)
        )
        u = (x[..., 0] - middle) / span
        columns = _columns(u, poles, self._located_delay.value, self._arrangement)
        return tf.einsum("...i,ij->...j", columns, mixing)

    def used(self, columns: np.ndarray) -> np.ndarray:
        """The columns of a basis but for derivatives by poles held by their prior or a bound."""
        return columns[:, self._mixing.numpy().any(axis=(0, 2))]

    def __repr__(self) -> str:
        return f"Rational({self.order}{', real_response=True' * self.has_real_coefficients})"


def _warn_of_other_data(
    u: np.ndarray, z: np.ndarray, located: PolesAndDelay, mean: Rational, size: float
) -> None:
    """Warns where a rational function fits conj(z), or z less a constant, far better than z.

    A constant that is not behind the delay, as of a leak, is not in the model, which then takes the
    delay of the constant, zero. Arguments as for `locate`; z is in units of `size`.
    """
    offsets = z.mean(axis=-1, keepdims=True)
    if located.power < _GOOD * np.mean(np.abs(z - offsets) ** 2):
        return
    target, better = "conj(z)", locate(u, z.conj(), mean.order, mean._arrangement)
    remedy = (
        "z may have the other sign of i, of the convention e^{-iωt}. Fit conj(z), whose delay is "
        "e^{-i2πfτ}, and conjugate predictions"
    )
    if better.power >= _FAR_BETTER * located.power:
        for _ in range(3):  # the mean of z contains a part of the response
            better = locate(u, z - offsets, mean.order, mean._arrangement)
            if better.power >= _FAR_BETTER * located.power:
                return
            offsets = _constants(u, z, better, mean._arrangement)
        target = f"z - ({size * offsets[0, 0]:.7g})"
        of_first = "" if len(z) == 1 else " (of the first series)"
        remedy = (
            f"z may stand on a constant{of_first} that is not behind the delay, as of a leak or a "
            "reflection before the device, which is not in this mean. Measure it or take this one, "
            "and fit z without it"
        )
    power = np.mean(np.abs(z) ** 2)
    located_error, better_error = (
        10.0 * np.log10(max(fit.power / power, 1e-32)) for fit in (located, better)
    )
    warnings.warn(
        f"{mean!r} fits {target} to an error of {better_error:.1f} dB of z, and z to "
        f"{located_error:.1f} dB alone: {remedy}",
        RuntimeWarning,
        stacklevel=6,
    )


def _constants(
    u: np.ndarray, z: np.ndarray, located: PolesAndDelay, arrangement: Arrangement
) -> np.ndarray:
    """The constants of series beside a response of given poles and delay, `[B, 1]`."""
    turn = np.exp(-2j * np.pi * located.delay * u)[:, None]
    fractions = arrangement.fractions(2j * np.pi * u[:, None], located.poles)
    response = np.concatenate([fractions, np.ones_like(turn)], axis=-1) * turn
    columns = np.concatenate([response, np.ones_like(turn)], axis=-1)
    return np.linalg.lstsq(columns, z.T, rcond=1e-12)[0][-1][:, None]


def _columns(
    u: tf.Tensor, poles: tf.Tensor, delay: tf.Tensor, arrangement: Arrangement
) -> tf.Tensor:
    """The basis `[..., columns]`: fractions, a constant, squares of fractions, iu, and a delay.

    Fractions and squares are the Takenaka-Malmquist functions of each pole twice, or Kautz's of
    each pair. They have the same span, are orthonormal over the whole axis, and are independent
    where poles coincide (Deschrijver, Haegeman & Dhaene, Orthonormal vector fitting, IEEE Trans.
    Adv. Packaging 30, 2007).
    """
    zero = tf.zeros_like(u)
    s = tf.complex(zero, 2.0 * math.pi * u)[..., None]
    sections, all_passes = arrangement.sections(s, tf.concat([poles, poles], axis=0))
    constant = tf.ones_like(s)
    count = sections.shape[-2]
    products = [constant]  # not cumprod, whose gradient is wrong for complex values
    for k in range(count - 1):
        products.append(products[-1] * all_passes[..., k : k + 1])
    functions = sections * tf.concat(products, axis=-1)[..., :count, None]
    shape = tf.concat([tf.shape(u), [count * sections.shape[-1]]], axis=0)
    functions = tf.reshape(functions, shape)
    fractions, squares = tf.split(functions, 2, axis=-1)
    turn = tf.exp(tf.complex(zero, -2.0 * math.pi * delay * u))[..., None]
    return turn * tf.concat([fractions, constant, squares, tf.complex(zero, u)[..., None]], axis=-1)


def _re_and_im(values: np.ndarray) -> ArrayLike:
    return np.stack([values.real, values.imag], axis=-1)
