"""Rational functions of a frequency, behind a delay, as means."""

import math
import warnings

import keras
import numpy as np
import tensorflow as tf

from cgp.gp.means.base import rows_of, whole_number
from cgp.gp.means.located import FitRecords, LocatedMean
from cgp.gp.means.pole_errors import (
    COMPLEX_FIELDS,
    Axis,
    PolesWithErrors,
    bands_above_one,
    with_errors,
)
from cgp.gp.means.vector_fitting import (
    Arrangement,
    ConjugatePairs,
    FreePoles,
    PolesAndDelay,
    are_at_optimum,
    at_bounds,
    locate,
)
from cgp.linalg.arguments import as_flag
from cgp.training.hyperparameters import declared, setting
from cgp.training.parameters import split
from cgp.training.saving import check_size

_GOOD = 1e-3  # residual power of a good fit, over the power of z
_FAR_BETTER = 0.25  # of the residual power: 6 dB, where chance makes up to 2 dB


@keras.saving.register_keras_serializable(package="cgp.means")
@declared
class Rational(LocatedMean):
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

    A resonance narrower than the step of f is told by its skirts, over many samples; a pole as
    narrow may also fit the noise of a single sample. Where its half-width, `−Re(pole)/2π`, is below
    a quarter w of the median step, l = log(w/half-width) has the prior density `.999 exp(−½ (l/¼)²)
    + .001 exp(−½ (l/4)²)`, that of wider poles being 1: few are much narrower, one in a thousand by
    any factor (a contaminated normal, Tukey, 1960). It costs a narrow pole about 7 in the log
    likelihood, which the noise of one sample in a thousand gains. From w/3 to w/100 its slope by l
    is below ⅓, which hardly moves a width that the data tell. Half-widths are at least a millionth
    of the step and at most ten spans of f, bounds of the computation.

    The known noise of samples does not influence the location of poles: leave out, as NaN, samples
    that are far noisier than others. Too high an order fits noise: choose it by cross-validation
    with new fits, not by the likelihood. `poles_with_errors` has standard errors.

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

    Warns:
        RuntimeWarning: At `fit`, a pole at a bound of its range; data that conj(z), or z less a
            constant, fits far better.

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

    poles_in_words, axis_in_words = "poles", "frequency"
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
        self._records = FitRecords(PolesWithErrors, COMPLEX_FIELDS)

    @property
    def poles(self) -> np.ndarray:
        """The poles, in the order of their frequencies: complex `[order]`, `[2 order]` for pairs.

        In radians per unit of time, the unit being a cycle per unit of f: nanoseconds where f is in
        gigahertz. The resonance is at `Im(pole)/2π`, and `−Re(pole)/π` wide at half of its power,
        both in units of f.
        """
        middle, span = self._origin_and_span()
        re, im = np.moveaxis(self._located_poles.numpy().astype(float), -1, 0)
        return span * self._arrangement.all(re + 1j * im) + 2j * np.pi * middle

    @property
    def delay(self) -> float:
        """The delay, in cycles per unit of f: nanoseconds where f is in gigahertz."""
        return float(self._located_delay.numpy()) / self._origin_and_span()[1]

    def poles_with_errors(self) -> PolesWithErrors:
        """Poles, residues and delay with their standard errors, as the last `fit` located them.

        A named tuple of arrays `[order]`, of a conjugate pair the pole above zero: `poles`,
        `residues` (`[B, order]` of B > 1 series), `frequencies` `Im(pole)/2π`, `bandwidths`
        `−Re(pole)/π` at half of the power, `quality_factors`, their ratio, for which f has to be
        the frequency itself, and `delay`; beside each its standard error, `pole_errors` and so on;
        and `constant`, `[B]` of B > 1 series.
        That of a complex number is complex: the error of the real part, and of the imaginary part.

        They are those of nonlinear least squares in white noise, from the Gauss-Newton information
        `JᵀJ/variance` (Seber & Wild, *Nonlinear Regression*, 1989, §2.1), and the variance from
        the residuals and their degrees of freedom. A process beside the poles is not in them: where
        a kernel other than `Zero()` models the residual, errors are too small. They are NaN for a
        pole that its prior or a bound holds, and those of others are as if it were known.

        Raises:
            ValueError: Before the first `fit`; for weights that no `fit` located, as from a file of
                a version that did not save errors.

        Warns:
            RuntimeWarning: Errors that are NaN.

        Example:
            >>> import cgp, numpy as np
            >>> f = np.linspace(0.0, 1.0, 41)
            >>> z = 1.0 / (2j * np.pi * (f - 0.3) + 0.5)
            >>> z += 0.01 * np.random.default_rng(0).normal(size=(41, 2)) @ [1, 1j]
            >>> gp = cgp.ExactGP(cgp.kernels.Zero(), mean=cgp.means.Rational(1))
            >>> gp.compile(cgp.optimizers.LBFGS())
            >>> history = gp.fit(f, z, verbose=0)
            >>> modes = gp.mean.poles_with_errors()
            >>> modes.frequencies.round(3), modes.frequency_errors.round(4)
            (array([0.3]), array([0.0003]))
        """
        estimates: PolesWithErrors = self._estimates()
        if np.isnan(estimates.pole_errors).any() or np.isnan(estimates.residue_errors).any():
            warnings.warn(
                f"poles of {self!r} are held by their prior or a bound, or not determined: their "
                "errors are NaN, those of the others are as if these were known. Take a lower "
                "order, or more samples near them",
                RuntimeWarning,
                stacklevel=2,
            )
        return estimates

    def passivity_violations(self) -> np.ndarray | list[np.ndarray]:
        """The bands of frequency where the modulus of the response is above 1.

        A passive device has scattering parameters of at most 1 at all frequencies, measured or not.
        The response is that of the poles, residues and constant of
        least squares, as the last `fit` located them, without a process beside them.

        Returns:
            Bands `[K, 2]` in units of f, in order, none for a passive response; ends may be
            infinite, and are from 0 on if the response is real. Of B > 1 series a list of bands.

        Raises:
            ValueError: As for `poles_with_errors`.

        Example:
            >>> import cgp, numpy as np
            >>> f = np.linspace(0.0, 1.0, 41)
            >>> z = 0.9 - 0.1 / (2j * np.pi * (f - 0.3) + 0.05)
            >>> z += 1e-4 * np.random.default_rng(0).normal(size=(41, 2)) @ [1, 1j]
            >>> gp = cgp.ExactGP(cgp.kernels.Zero(), mean=cgp.means.Rational(1))
            >>> history = gp.fit(f, z, verbose=0)
            >>> gp.mean.passivity_violations().round(3)
            array([[0.292, 0.308]])
        """
        estimates: PolesWithErrors = self._estimates()
        poles, residues = estimates.poles, np.atleast_2d(estimates.residues)
        if self.real_response:
            poles, residues = (np.concatenate([a, a.conj()], axis=-1) for a in (poles, residues))
        bands = []
        for of_series, constant in zip(residues, np.atleast_1d(estimates.constant), strict=True):
            violations = bands_above_one(poles, of_series, constant) / (2.0 * np.pi)
            if self.real_response:
                violations = np.maximum(violations[violations[:, 1] > 0.0], 0.0)
            bands.append(violations)
        return bands[0] if estimates.residues.ndim == 1 else bands

    def _located_weights(self) -> list[keras.Variable]:
        return [*super()._located_weights(), self._located_delay]

    def prepare(self, x: np.ndarray, z: np.ndarray) -> None:
        """Locates the poles and the delay of series `[B, N]` over common inputs `[1, N, 1]`."""
        self._check_common(x)
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
        _warn_of_bounds(at_bounds(u, located, self._arrangement), self)
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
        previous_weights = self._located()
        self._axis.assign(axis)
        self._located_poles.assign(split(poles))
        self._located_delay.assign(located.delay)
        self._mixing.assign(split(mixing))
        units = Axis(float(axis[0]), float(axis[1]), float(size))
        estimates = with_errors(u, z, located, at_optimum, self._arrangement, units)
        self._records.replace(previous_weights, self._located(), estimates)

    def basis(self, x: tf.Tensor) -> tf.Tensor | None:
        """The basis functions of a marginalised trend, complex `[..., N, q]`, or None."""
        self._check_dimensions(x.shape[-1])
        with tf.init_scope():  # a graph reads the weights when it runs
            self._origin_and_span()
        middle, span = tf.unstack(self._axis.value)
        poles, mixing = (
            tf.complex(*tf.unstack(weight.value, axis=-1))
            for weight in (self._located_poles, self._mixing)
        )
        u = (x[..., 0] - middle) / span
        columns = _columns(u, poles, self._located_delay.value, self._arrangement)
        return tf.einsum("...i,ij->...j", columns, mixing)

    def __repr__(self) -> str:
        return f"Rational({self.order}{', real_response=True' * self.has_real_coefficients})"


def _warn_of_bounds(bounds: list[str], mean: Rational) -> None:
    """Warns of poles that the bounds of their ranges hold, which `bounds` has in words."""
    for bound in dict.fromkeys(bounds):
        warnings.warn(
            f"{mean!r} has {bounds.count(bound)} of its poles at a bound of their range: {bound}",
            RuntimeWarning,
            stacklevel=6,
        )


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
