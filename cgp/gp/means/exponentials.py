"""Damped complex exponentials over time, as means."""

import math
import warnings
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from cgp.gp.means.base import whole_number
from cgp.gp.means.located import FitRecords, LocatedMean
from cgp.gp.means.matrix_pencil import Estimates, estimates, locate, trend_columns
from cgp.linalg.arguments import as_complex, complex_dtype
from cgp.training.hyperparameters import declared, setting
from cgp.training.parameters import split
from cgp.training.saving import check_size

_NEAR = 0.1  # spans before the first time, at which 0 is near the data
_DEPENDENT = 1e-10  # of its length: what is left of a column beside others
_COMPLEX_FIELDS = ("amplitudes", "amplitude_errors")


class ModesWithErrors(NamedTuple):
    """Exponentials in the order of their frequencies, with standard errors: NumPy arrays."""

    frequencies: np.ndarray
    """In cycles per unit of t, `[order]`."""
    frequency_errors: np.ndarray
    decay_rates: np.ndarray
    """Per unit of t, `[order]`; a line is `decay_rate / π` wide at half of its power."""
    decay_rate_errors: np.ndarray
    amplitudes: np.ndarray
    """Complex, `[order]`, or `[B, order]` of several series: c_k at `time`."""
    amplitude_errors: np.ndarray
    """Of real and imaginary parts, as one complex number."""
    time: float
    """The time of the amplitudes: 0 where the data contain it or begin less than a tenth of their
    span after it, and the first time of the data otherwise."""


def _order(number: Any, name: str) -> int:
    order = whole_number(number, name)
    if order < 1:
        raise ValueError(f"{name} must be at least 1 (no exponential is no mean), got {number!r}")
    return order


def _degree(number: Any, name: str) -> int | None:
    return None if number is None else whole_number(number, name)


@keras.saving.register_keras_serializable(package="cgp.means")
@declared
class Exponentials(LocatedMean):
    """Damped complex exponentials over time, which are located anew at each `fit`.

    They describe decays that begin with the data, as of nuclear induction, of modes of a structure,
    of transients, and tones, all of which a stationary process does not; and they forecast:

        z(t) = Σ_k c_k exp((−decay_rate_k + i2π frequency_k) (t − time)),    decay_rate_k ≥ 0

    (convention e^{+iωt}). With the kernel `Zero()` they are alone, in white noise; otherwise the
    Gaussian process models what they leave. They never grow: the decay rate of a line that does not
    decay is estimated as 0 half of the time.

    `fit` locates frequencies and decay rates: by the matrix pencil (Hua & Sarkar, IEEE Trans. ASSP
    38, 1990) over stretches of a regular grid without gaps, and from peaks of periodograms at any
    times, then by nonlinear least squares over all data, with the amplitudes projected out (Golub &
    Pereyra, SIAM J. Numer. Anal. 10, 1973), and of the best start. All series have the same
    frequencies and decay rates, and each its amplitudes. `condition` leaves them as they are. The
    amplitudes are marginalised under a flat prior, as the coefficients of
    `Polynomial(marginalized=True)`. So are, to first order, frequencies and decay rates: beside
    each exponential the basis has its derivative `(t − time) exp(…)`, and errors of forecasts grow
    as they should. An exponential that is not at an optimum, as its decay rate is held by its bound
    or its prior, is in the basis without, as the linear model would move it on. The columns are
    orthonormal over the data that located them, which makes likelihoods independent of units.

    At times on a regular grid a frequency is only determined modulo `1/step`, and lies between
    `±1/(2 step)`; a tone above that appears at its alias, and predictions between the samples are
    of the alias. A decay rate is at most 3 per median step. An exponential of noise that hardly
    decays would fill forecasts in which all signals have decayed: below 1/span, a decay rate has a
    normal prior about 1/span with deviation 1/(2 span), which data with little noise overcome. The
    known noise of samples does not influence the location: leave out, as NaN, samples that are far
    noisier than others. Too high an order fits noise: choose it by cross-validation with new fits,
    not by the likelihood.

    Args:
        order: The number of exponentials, at least 1.
        trend: The degree of a polynomial beside them, whose coefficients are of each series and
            marginalised too: 0 for an offset, 1 for a drift. An offset by itself takes an
            exponential that does not decay, a drift several. None for none.
        name: A name.
        dtype: "float64" or "float32", of its values; computations are in double precision.

    Raises:
        ValueError: An order that is no whole number above 0; at `fit`, fewer different times than
            4 order/1.8, or (4 order + 2 trend + 2)/1.8 beside a trend; series with inputs of their
            own, inputs of several dimensions, times so uneven that no frequency can be searched;
            before the first `fit`, any use of the exponentials.

    Warns:
        RuntimeWarning: At `fit`, a decay rate at the upper end of its range, or at 0 in data that
            grow, by more than three standard errors.

    Example:
        >>> import cgp, numpy as np
        >>> t = np.arange(40.0)
        >>> z = 2j * np.exp((-0.05 + 0.2j * np.pi) * t)
        >>> z += 1e-3 * np.random.default_rng(0).normal(size=40)
        >>> gp = cgp.ExactGP(cgp.kernels.Zero(), mean=cgp.means.Exponentials(1))
        >>> gp.compile(cgp.optimizers.LBFGS())
        >>> history = gp.fit(t, z, verbose=0)
        >>> gp.mean.frequencies.round(4), gp.mean.decay_rates.round(3)
        (array([0.1]), array([0.05]))
        >>> gp.predict([60.0])["mean"].round(3)
        array([0.+0.1j])
    """

    poles_in_words, axis_in_words = "frequencies", "time"
    _weight_dtype = "float64"  # in single precision a phase would lose its digits over many cycles
    order: int = setting(_order)
    trend: int | None = setting(_degree, default=None, kw_only=True)

    def set_derived_attributes(self) -> None:
        """Creates the weights of the exponentials, which are located at each fit."""
        of_mean = f"a mean of {self.order} exponentials"
        columns = 2 * self.order + (0 if self.trend is None else self.trend + 1)
        check_size(2 * columns**2, of_mean, "float64", "take a smaller order")
        # Poles belong to (t − first)/span. The span is 0 until the first fit.
        self._axis = self._weight("axis", 2)
        self._located_poles = self._weight("poles", self.order, 2)
        self._mixing = self._weight("mixing", columns, columns, 2)
        self._records = FitRecords(ModesWithErrors, _COMPLEX_FIELDS)

    @property
    def frequencies(self) -> np.ndarray:
        """The frequencies in ascending order, in cycles per unit of t, `[order]`."""
        return self._located_poles.numpy()[:, 1] / (2.0 * np.pi * self._origin_and_span()[1])

    @property
    def decay_rates(self) -> np.ndarray:
        """The decay rates in the order of frequencies, per unit of t, `[order]`."""
        return -self._located_poles.numpy()[:, 0] / self._origin_and_span()[1]

    def modes_with_errors(self) -> ModesWithErrors:
        """Frequencies, decay rates and amplitudes of the data of the fit, with standard errors.

        The errors are from the Gauss-Newton information for white noise, whose variance is that of
        the residuals of the exponentials over the degrees of freedom that amplitudes, frequencies
        and decay rates leave: they are too small where the kernel models much of the residuals. A
        decay rate of 0, at its bound, has the error that it would have without the bound.

        Raises:
            ValueError: No fit before, or weights set by hand.
        """
        estimates: ModesWithErrors = self._estimates()
        return estimates

    def prepare(self, x: np.ndarray, z: np.ndarray) -> None:
        """Locates the exponentials in series `[B, N]` over common times `[1, N, 1]`."""
        self._check_common(x)
        present = ~np.isnan(z).all(axis=0)
        times, z = x[0, present, 0], z[:, present]
        # A tenth more numbers than the basis has.
        numbers = 4 * self.order + (0 if self.trend is None else 2 * self.trend + 2)
        needed, different = math.ceil(numbers / 1.8), len(np.unique(times))
        if different < needed:
            raise ValueError(
                f"{self!r} needs at least {needed} different x where a series has a target, got "
                f"{different} among {len(times)} points: take a lower order"
            )
        ordered = np.argsort(times, kind="stable")
        times, z = times[ordered], z[:, ordered]
        origin, span = float(times[0]), float(np.ptp(times))
        t = (times - origin) / span
        size = max(float(np.nanmax(np.abs(z))), 1e-300)
        z = z / size
        poles = locate(t, z, self.order, self.trend).poles
        time = 0.0 if origin - _NEAR * span <= 0.0 <= origin + span else origin
        modes = estimates(t, z, poles, (time - origin) / span, self.trend)
        _warn_of_bounds(self, modes, poles / span)
        previous_weights = self._located()
        self._axis.assign([origin, span])
        self._located_poles.assign(split(poles))
        self._mixing.assign(split(_mixing(t, poles, modes.at_optimum, self.trend)))
        series = slice(None) if len(z) > 1 else 0
        rate_errors, angle_errors = modes.errors / span
        with_errors = ModesWithErrors(
            self.frequencies,
            angle_errors / (2.0 * np.pi),
            self.decay_rates,
            rate_errors,
            size * modes.amplitudes[series],
            size * modes.amplitude_errors[series],
            time,
        )
        self._records.replace(previous_weights, self._located(), with_errors)

    def basis(self, x: tf.Tensor) -> tf.Tensor | None:
        """The basis functions of a marginalised trend, complex `[..., N, q]`, or None."""
        self._check_dimensions(x.shape[-1])
        with tf.init_scope():  # a graph reads the weights when it runs
            self._origin_and_span()
        origin, span = tf.unstack(self._axis.value)
        poles, mixing = (
            tf.complex(*tf.unstack(weight.value, axis=-1))
            for weight in (self._located_poles, self._mixing)
        )
        u = ((tf.cast(x[..., 0], tf.float64) - origin) / span)[..., None]
        # Long before the data the squares would overflow.
        largest = 0.2 * math.log(tf.as_dtype(self.variable_dtype).max)
        exponents = tf.complex(
            tf.minimum(tf.math.real(poles) * u, largest), tf.math.imag(poles) * u
        )
        exponentials = tf.exp(exponents)
        slopes = tf.cast(u, exponentials.dtype) * exponentials
        columns = tf.concat([exponentials, slopes, *self._polynomials(u)], axis=-1)
        values = tf.einsum("...i,ij->...j", columns, mixing)
        return tf.cast(values, complex_dtype(self.variable_dtype))

    def _polynomials(self, u: tf.Tensor) -> list[tf.Tensor]:
        """The Legendre polynomials of the trend at `[..., 1]`, from 0 to 1 over the data."""
        v, polynomials = 2.0 * u - 1.0, [tf.ones_like(u), 2.0 * u - 1.0]
        for n in range(1, self.trend or 0):
            following = ((2 * n + 1) * v * polynomials[-1] - n * polynomials[-2]) / (n + 1)
            polynomials.append(following)
        count = 0 if self.trend is None else self.trend + 1
        return [as_complex(polynomial) for polynomial in polynomials[:count]]

    def __repr__(self) -> str:
        return f"Exponentials({self.order}{'' if self.trend is None else f', trend={self.trend}'})"


def _mixing(
    t: np.ndarray, poles: np.ndarray, at_optimum: np.ndarray, trend: int | None
) -> np.ndarray:
    """The matrix that makes exponentials, derivatives and polynomials orthonormal at times.

    Its rows and columns are zero for derivatives that are not used, and for columns that depend on
    others, as of poles that coincide.
    """
    exponentials = np.exp(t[:, None] * poles)
    polynomials = trend_columns(t, trend)
    columns = np.concatenate([exponentials, t[:, None] * exponentials, polynomials], axis=-1)
    of_trend = np.ones(polynomials.shape[1], bool)
    used = np.flatnonzero(np.concatenate([np.ones_like(at_optimum), at_optimum, of_trend]))
    lengths = np.linalg.norm(columns, axis=0)
    while True:
        r = np.linalg.qr(columns[:, used] / lengths[used])[1]
        dependent = np.flatnonzero(np.abs(np.diag(r)) < _DEPENDENT)
        if not len(dependent):
            break
        used = np.delete(used, dependent[0])
    mixing = np.zeros((columns.shape[1],) * 2, complex)
    mixing[np.ix_(used, used)] = np.linalg.inv(r) / lengths[used, None]
    return mixing


def _warn_of_bounds(mean: Exponentials, modes: Estimates, poles: np.ndarray) -> None:
    """Warns where decay rates are held at a bound, by data that are not of the model."""
    for at_bound, what in (
        (
            modes.growing,
            "the data grow there, by more than three standard errors, and the model does not: "
            "leave out what precedes a rise, or take a lower order",
        ),
        (
            modes.too_fast,
            "it decays within a step of x, and describes single samples: take a lower order",
        ),
    ):
        if at_bound.any():
            pole = poles[int(np.argmax(at_bound))]
            warnings.warn(
                f"{mean!r} has an exponential of frequency {pole.imag / (2.0 * np.pi):.6g} whose "
                f"decay rate is held at {-pole.real + 0.0:.3g}, a bound of its range: {what}",
                RuntimeWarning,
                stacklevel=6,
            )
