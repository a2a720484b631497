"""Checks of a fit: data that its model cannot describe, and hyperparameters at an edge."""

import warnings
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.distributions.calibration import in_words, running_calibration
from cgp.gp import posterior as predictions
from cgp.gp.data import Data
from cgp.gp.outputs import by_outputs, points_of_outputs
from cgp.gp.starts import (
    FAR,
    mean_known_noise,
    residuals_of_mean,
    scales_along_axes,
    scales_of,
)
from cgp.kernels.base import Kernel, Sum
from cgp.kernels.data_scales import DataScales
from cgp.kernels.functionals import check_functional
from cgp.kernels.improper import Conjugate
from cgp.kernels.relaxation_times import RelaxationTimes
from cgp.kernels.stationary import Stationary
from cgp.kernels.white import White
from cgp.training.parameters import UNIT_DISK

_SHORT = 0.2  # of the spacing of x: neighbours then have a correlation below a hundredth
_LONG = 1000.0  # spans of x: the signal is then constant over them
_NO_NOISE = 3e-8  # of the mean square of z, without an offset
_NO_CORRELATION = 0.01
_EDGE = 0.9999  # of the unit disk
_END = 0.999  # of an interval
_POSITIVE = 0.8  # of imaginary parts, more than inductances in series and noise explain
_LONG_ENOUGH = 10  # samples of a series, whose power then tells its variance
_UNLIKE = 10.0  # powers of series of one process, by more than chance
_OTHER_UNIT = 100.0  # amplitude of an output over that of another
_INVISIBLE = 0.1  # of the noise variance, by all samples of a term together
_TOO_LARGE, _TOO_SMALL = 0.25, 10.0  # noise over noise variances that come with the data
_RISE = 2.0  # of the log likelihood, by half of the noise variances
_LARGEST_DIVISOR = 2.0**20
_PAIRS = 256  # neighbours whose correlation is examined
_LONG_SERIES = 100  # samples whose power may vary over x
_VARIES = 3.0  # power of residuals in stretches, relative to the others
_CHANCE = 0.01  # of such stretches under a right model
_OUTLIER = 10.0  # |e|² over its median, which one normal in a thousand exceeds
_PASSES = 3  # of a search for outliers
_SLIGHT = 1.25  # a factor of the power that is not worth a word
_LONGEST = 2**17  # steps of a series whose spectrum is examined
_BAND = 16  # frequencies that N steps resolve
_NO_POWER = 1.0 / 30.0  # of the power that the model has in a band
_WIDE = 0.25  # of all frequencies


def warn_of_fit(gp: Any, data: Data) -> None:
    """Warns, once, of suspicious values of the hyperparameters that a fit has learned."""
    scales = scales_of(gp, data)
    if not np.nansum(np.abs(scales.z)) > 0:
        warnings.warn(
            "all of z that is not missing is zero: there was nothing to learn from, and the "
            "likelihood rises without end as all variances fall",
            RuntimeWarning,
            stacklevel=3,
        )
        return
    vanished = _vanished_terms(gp, data, scales)
    suspicions = [
        *_of_vanished(gp, data, vanished),
        *_of_lengthscales(gp, scales, vanished),
        *_of_opposite_sign(gp, data),
        *_of_edges(gp, data, scales),
        *_of_powers(gp, data),
        *suspicions_of_stretches(gp, data),
        *_of_shared_noise(data),
        *_of_known_noise(gp, data),
        *_of_outputs(gp, data, scales),
        *_of_empty_bands(gp, data, scales),
        *gp.suspicions(data),
    ]
    if not suspicions and is_diagonal(gp.kernel, scales.x):
        suspicions.append(
            "all neighbours are uncorrelated under the kernel: it has learned a variance alone. "
            "Its parameters may have started in another unit than that of x (leave them out, and "
            "they start from the data), or the data are white noise to it"
        )
    if suspicions:
        warnings.warn("after this fit " + "; ".join(suspicions), RuntimeWarning, stacklevel=3)


def check_several_samples(data: Data) -> None:
    """Raises a ValueError for a single sample, of which nothing can be learned."""
    if np.count_nonzero(~np.isnan(np.asarray(data.z))) == 1:
        raise ValueError(
            "z has one sample that is not missing, and nothing can be learned from one: fit more, "
            "or give all values and take it in by condition(x, z)"
        )


def check_measured(gp: Any, data: Data) -> None:
    """Raises a ValueError for derivatives or exposures that a process does not have."""
    likelihood = gp.observation_model.likelihood
    if likelihood is not None:
        raise ValueError(
            f"observed and widths are of data in normal noise, not under {likelihood!r}"
        )
    if gp.observation_model.noise_fraction is not None:
        raise ValueError(
            "noise_fraction is of samples of the value, whose noise follows it: leave observed and "
            "widths out, or give noise_variance"
        )
    if tf.executing_eagerly():
        check_functional(gp.kernel, data.functional, data.x)


def check_none_is_of_one_x(source: str, *arguments: object) -> None:
    """Raises a ValueError for arguments beside several series that are for one x and z."""
    if any(argument is not None for argument in arguments):
        raise ValueError(
            "z, missing, noise, observed, widths and restarts are for one x and z: "
            f"{source} pairs (x, z), NaN where missing"
        )


def check_starts(gp: Any, data: Data) -> None:
    """Raises a ValueError where derivatives leave no unit to start left out values in.

    Likewise for an output without any target but zero, of whose gain nothing can be learned.
    """
    if gp.kernel.outputs is not None:
        z = np.asarray(by_outputs(data.z, gp.kernel.outputs))
        for kind, of_outputs in (("missing", np.isnan(z)), ("zero", np.isnan(z) | (z == 0))):
            are_all = of_outputs.all(axis=(0, 1))
            if are_all.any():
                raise ValueError(
                    f"every target of output {int(np.argmax(are_all))} is {kind}: leave its column "
                    "out, and give the kernel an output less"
                )
    if data.functional.derivative is None:
        return
    if gp.has_weak_prior:
        raise ValueError(
            "noise_variance was left out, and the noise of a derivative has another unit than that "
            "of a value: give it a value to start from, noise_variance=[...] with one for each "
            "group and noise_groups where both are measured"
        )
    of_values = data.z.numpy()[~np.broadcast_to(data.functional.derivative, data.z.shape)]
    left_out = [name for name, p in gp.named_hyperparameters().items() if p.is_left_out]
    if left_out and np.all(np.isnan(of_values)):
        raise ValueError(
            f"{', '.join(left_out)} left out, and all samples are derivatives, which do not tell "
            "the size of the signal: give values to start from"
        )


def _vanished_terms(gp: Any, data: Data, scales: DataScales) -> list[Kernel]:
    """The terms of a sum whose learned variance is zero, so that nothing else was learned of them.

    Even with all of its power in one tone, N samples of such a term would not stand out of the
    noise. A term such as `Constant`, which has a variance alone, is then just not needed.
    """
    kernel = gp.kernel
    if not isinstance(kernel, Sum) or gp.observation_model.likelihood is not None:
        return []
    noise = float(np.max(gp.noise_variance.numpy()))
    least = _INVISIBLE * noise / float(tf.reduce_sum(data.counts))
    x = gp.points(scales.x[:: max(len(scales.x) // _PAIRS, 1)])
    return [
        term
        for term in kernel.parts
        if _learns_its_scale_and_more(term) and np.max(np.abs(term.moments_diagonal(x)[0])) < least
    ]


def _learns_its_scale_and_more(term: Kernel) -> bool:
    scales = {id(parameter) for parameter in term.scale_parameters() or ()}
    learned = {id(p) for k in term.walk() for p in k.own_parameters if not p.fixed}
    return bool(scales & learned) and bool(learned - scales)


def _of_vanished(gp: Any, data: Data, vanished: list[Kernel]) -> list[str]:
    names = {id(parameter): name for name, parameter in gp.named_hyperparameters().items()}
    count, noise = int(tf.reduce_sum(data.counts)), float(np.max(gp.noise_variance.numpy()))
    scales = [p for term in vanished for p in term.scale_parameters() or () if not p.fixed]
    variances = [f"{names[id(p)]} = {np.max(p.numpy()):.3g}" for p in scales]
    return [
        f"{' and '.join(variances)}, which {count} samples in noise of {noise:.3g} cannot show, so "
        "that nothing was learned of what such a term describes: fit(restarts=8) looks for it from "
        "other starts, or the data have none of it, and it can be left out"
    ] * bool(variances)


def _of_lengthscales(gp: Any, scales: DataScales, vanished: list[Kernel]) -> list[str]:
    suspicions = []
    terms = gp.kernel.parts if isinstance(gp.kernel, Sum) else (gp.kernel,)
    scaled = {
        id(kernel.lengthscale)
        for term in terms
        if not any(term is vanished_term for vanished_term in vanished)
        for kernel in term.walk()
        if isinstance(kernel, Stationary)
    }
    of_all, along_axes = scales, scales_along_axes(gp.kernel, scales)
    for name, parameter in gp.named_hyperparameters().items():
        if id(parameter) not in scaled:
            continue
        scales = along_axes.get(id(parameter), of_all)
        lengthscale = parameter.numpy()
        shown = np.array2string(np.asarray(lengthscale), formatter={"float": "{:.3g}".format})
        is_of_each = np.ndim(lengthscale) and np.size(lengthscale) == scales.x.shape[1]
        spacing = scales.spacings if is_of_each else np.asarray(scales.distance)
        if np.any(lengthscale < _SHORT * spacing):
            steps = np.array2string(spacing, formatter={"float": "{:.3g}".format})
            suspicions.append(
                f"{name} = {shown} is far below the spacing of x, {steps}: what "
                "it describes is white noise, or it started in another unit than that of x; "
                "leave it out, and it starts from the data"
            )
        elif np.all(lengthscale > _LONG * (scales.spans if is_of_each else scales.span)):
            addition = "" if gp.mean is None else ", or nothing beside a mean that has a constant,"
            suspicions.append(
                f"{name} = {shown} is far above the span of x, {scales.span:.3g}: over the "
                f"data this part of the kernel is constant, and Constant() in its place{addition} "
                "says so with fewer parameters"
            )
    return suspicions


def _of_opposite_sign(gp: Any, data: Data) -> list[str]:
    """Of responses whose imaginary part is positive, where relaxations make it negative."""
    kinds = {type(kernel) for kernel in gp.kernel.walk()}
    if RelaxationTimes not in kinds or Conjugate in kinds:
        return []
    z = data.z.numpy()
    share = np.mean(z[~np.isnan(z)].imag > 0.0)
    if share < _POSITIVE:
        return []
    return [
        f"the imaginary part of z is positive in {share:.0%} of the samples, and that of an "
        "impedance which relaxes is negative, where waves are e^{+iωt}: tables often have -Im(Z). "
        "Fit conj(z), or 1/z if it is an admittance"
    ]


def _of_edges(gp: Any, data: Data, scales: DataScales) -> list[str]:
    suspicions = []
    variances = np.ravel(gp.noise_variance.numpy())
    square = min(scales.total, FAR * scales.variance)
    squares = scales.output_sizes**2 if gp.noise_is_by_output else np.full(len(variances), square)
    least = int(np.argmin(variances / squares))
    noise, square = float(variances[least]), float(squares[least])
    added = gp.observation_model.added_noise_variance(data.noise)
    total_noise = noise + (0.0 if added is None else float(np.min(added)))
    is_free = not gp.noise_variance.fixed
    if is_free and total_noise < _NO_NOISE * square:
        remedy = (
            "the data have none, or too few points to tell"
            if gp.has_weak_prior
            else "predictions are sure of too much; leave it out, which gives it a weak prior, or "
            "give it a prior of your own"
        )
        suspicions.append(
            f"noise_variance = {noise:.3g} has run to zero, beside a mean square of z of "
            f"{square:.3g}: {remedy}"
        )
    rounding = float(np.broadcast_to(gp.rounding_noise(data), squares.shape)[least])
    if is_free and gp.kernel.trend_degree is not None and noise < 8.0 * rounding:
        suspicions.append(
            f"noise_variance = {noise:.3g} is near what rounding of a covariance with so large a "
            f"constant hides, {rounding:.2g}: take it out by mean=cgp.means.Polynomial(0) in place "
            "of Constant()"
        )
    for name, parameter in gp.named_hyperparameters().items():
        is_disk = parameter.constraint.description == UNIT_DISK.description
        if is_disk and not parameter.fixed and np.any(np.abs(parameter.numpy()) > _EDGE):
            suspicions.append(
                f"{name} has run to the edge of the unit disk, where its error is not normal: fix "
                "it there, or take a model without it"
            )
        if parameter.constraint.ends is None or parameter.fixed:
            continue
        lowest, highest = parameter.constraint.ends
        shares = (parameter.numpy() - lowest) / (highest - lowest)
        if np.min(shares) < 1.0 - _END or np.max(shares) > _END:
            suspicions.append(
                f"{name} = {parameter} is at an end of its range, from {lowest:g} to {highest:g}, "
                "where it is not learned and has no standard error: the data want a model without "
                "it, or lack a term of their own in this one"
            )
    return suspicions


def _of_shared_noise(data: Data) -> list[str]:
    """The suspicion that values and derivatives, whose units differ, have one noise variance."""
    derivative = data.functional.derivative
    if derivative is None or not data.noise.is_common or np.all(derivative):
        return []
    return [
        "values and derivatives share one noise variance, though their units differ: give "
        "noise_variance=[...] with one for each, and noise_groups that say which is which"
    ]


def _of_known_noise(gp: Any, data: Data) -> list[str]:
    """The suspicion that the known part of the noise is far above or far below the noise.

    Above it, the likelihood rises as the known part is divided, at the learned hyperparameters;
    below it, the learned part is far larger.
    """
    variance = data.noise.variance
    if variance is None or gp.observation_model.noise_scale is not None:
        return []
    stated_variance = mean_known_noise(data)
    if not stated_variance > 0.0:
        return []

    def log_likelihood(divisor: float) -> float:
        noise = data.noise._replace(variance=variance / divisor)
        return float(np.sum(gp.data_log_likelihood(data._replace(noise=noise))))

    divisor, highest = 1.0, log_likelihood(1.0)
    while divisor < _LARGEST_DIVISOR:
        halved = log_likelihood(2.0 * divisor)
        if not halved > highest + _RISE:
            break
        divisor, highest = 2.0 * divisor, halved
    ratio = 1.0 / divisor
    learned = float(np.mean(gp.noise_variance.numpy()))
    if divisor == 1.0:
        ratio = (stated_variance + learned) / stated_variance
    if _TOO_LARGE < ratio < _TOO_SMALL:
        return []
    return [
        f"the noise is about {ratio:.2g} times the noise variances that came with the data, "
        f"{stated_variance:.3g} on average: where these may be wrong by a factor, learn it by "
        "noise_scale=None"
    ]


def _of_outputs(gp: Any, data: Data, scales: DataScales) -> list[str]:
    """The suspicions that an output is seldom observed, or that outputs have different units."""
    if gp.kernel.outputs is None:
        return []
    suspicions = []
    present = ~np.isnan(np.asarray(by_outputs(data.z, gp.kernel.outputs)))
    counts, sizes = present.sum(axis=(0, 1)), scales.output_sizes
    if counts.min() < _LONG_ENOUGH:
        suspicions.append(
            f"output {int(counts.argmin())} has {counts.min()} values, and predictions take what "
            "is learned from so few for exact: their regions are too narrow. Give it values, or "
            "average over hyperparameters by sample_parameters()"
        )
    if not gp.noise_is_by_output and sizes.max() > _OTHER_UNIT * sizes.min():
        suspicions.append(
            f"output {int(sizes.argmax())} is {sizes.max() / sizes.min():.2g} times as large as "
            f"output {int(sizes.argmin())}, and they share one noise variance: give "
            f"noise_variance=[None] * {gp.kernel.outputs}, one of each"
        )
    return suspicions


def _of_powers(gp: Any, data: Data) -> list[str]:
    """Suspicions of series far weaker than the variances that all of them share.

    Under the model `zᴴ K⁻¹ z` of a series of n samples has the mean n and the variance n. Log
    likelihoods of series differ by it alone, where no samples are missing.
    """
    counts = np.asarray(data.counts)
    long = counts >= _LONG_ENOUGH
    if gp.observation_model.likelihood is not None or np.sum(long) < 2:
        return []
    squares = np.nansum(np.abs(np.asarray(data.z)) ** 2, axis=-1)
    powers = squares[long] / counts[long]
    if not powers.max() > _UNLIKE * powers.min():
        return []
    log_likelihoods = np.asarray(gp.data_log_likelihood(data)).ravel()
    mean = log_likelihoods.sum() / counts.sum()
    squares_over_mean = 1.0 + mean - log_likelihoods[long] / counts[long]
    if not squares_over_mean.min() < 1.0 / _UNLIKE:
        return []
    return [
        f"the series have powers E|z|² from {powers.min():.3g} to {powers.max():.3g}, but share "
        "one signal variance and one noise variance, which are wrong for the weak ones: divide "
        "each series by its root mean square before the fit, or fit each alone"
    ]


def suspicions_of_stretches(gp: Any, data: Data) -> list[str]:
    """The suspicion that the power of the residuals varies over x more than the model predicts.

    Long series are examined each by itself, short ones together, if they share places and gaps.
    """
    is_of_one_x = data.x.shape[-1] == 1 and gp.kernel.outputs is None
    is_exact = gp.observation_model.likelihood is None and gp.likelihood in (None, "exact")
    if not is_of_one_x or not is_exact:
        return []
    counts = np.asarray(data.counts)
    long = np.flatnonzero(counts >= _LONG_SERIES)
    are_alike = int(data.covariance_count) == 1 and counts.sum() >= _LONG_SERIES
    if not len(long) and not are_alike:
        return []
    e = left_out_residuals(gp, data)
    for row in map(int, long):
        series = data if len(e) == 1 else _one_series(data, row)
        words = _lasting_stretch(gp, series, e[row : row + 1], _CHANCE / len(long))
        if words:
            return [f"the residuals{f' of series {row}' * (len(e) > 1)} {words}"]
    words = "" if len(long) else _lasting_stretch(gp, data, e, _CHANCE)
    return [f"the residuals {words}"] * bool(words)


def _one_series(data: Data, row: int) -> Data:
    def of_row(a: tf.Tensor) -> tf.Tensor:
        number = row % a.shape[0]
        return a[number : number + 1]

    x, z, noise = of_row(data.x), of_row(data.z), data.noise.map(of_row)
    return data._replace(x=x, z=z, noise=noise, functional=data.functional.map(of_row))


def _lasting_stretch(gp: Any, data: Data, e: np.ndarray, level: float) -> str:
    """A stretch of another power in words, which single outliers do not make; "" without one.

    An outlier spoils the residuals of its neighbours too, so that it is taken out of the data.
    """
    x = data.x.numpy()[0, :, 0]
    for _ in range(_PASSES):
        words, inside = _varying_power(x, e, level)
        if not words:
            return ""
        is_outlier = np.zeros(len(x), bool)
        for at in (inside, ~inside):
            squares = np.abs(e[:, at]) ** 2
            is_outlier[at] = np.any(squares > _OUTLIER * np.nanmedian(squares), axis=0)
        if not is_outlier.any():
            return words
        data = data.without(is_outlier)
        e = left_out_residuals(gp, data)
    return _varying_power(x, e, level)[0]


def left_out_residuals(gp: Any, data: Data) -> np.ndarray:
    """Leave-one-out residuals over their standard deviations, `[B, N]`, NaN where missing.

    With a = P y and the precision P of the data (`cgp.gp.signal_plus_noise`) they are `aᵢ/√Pᵢᵢ`
    (Rasmussen & Williams, 2006, eq. 5.12). The derivative of the log likelihood by y is −2 s a, and
    by the noise variance of a sample `s² (|aᵢ|² − Pᵢᵢ)`, s being 1 for a proper normal and ½ for
    the composite, whose a and P are sums over both parts. The cost is that of a gradient.
    """
    process, z = gp.observation_model, data.z
    if data.on_line is not None:
        conditioned = predictions.condition(process, data, process.factor(data))
        deviation, variance = conditioned.leave_one_out()
        e = data.vectors(deviation / tf.sqrt(variance.k)[..., None])
        return tf.where(data.present, e, tf.constant(np.nan, e.dtype)).numpy()
    shape = tf.shape(z) if int(data.covariance_count) > 1 else [1, z.shape[1]]
    noise, scale = data.noise.variance, process.form.scale
    noise = tf.broadcast_to(tf.zeros([1, 1], data.x.dtype) if noise is None else noise, shape)
    with tf.GradientTape() as tape:
        tape.watch([z, noise])
        noisy = data._replace(z=z, noise=data.noise._replace(variance=noise))
        total = tf.reduce_sum(gp.data_log_likelihood(noisy))
    by_z, by_noise = (a.numpy() for a in tape.gradient(total, [z, noise]))
    if process.noise_scale is not None:  # which multiplies the known part
        by_noise = by_noise / process.noise_scale.numpy()
    dual = np.where(data.present, by_z, 0.0) / (-2.0 * scale)
    squares = np.abs(dual) ** 2
    if len(by_noise) < len(z):  # the sum over the series, which share P
        precision = (np.sum(squares, axis=0) - by_noise / scale**2) / len(z)
    else:
        precision = squares - by_noise / scale**2
    is_regular = data.present.numpy() & (precision > 0.0)
    return np.where(is_regular, dual / np.sqrt(np.where(is_regular, precision, 1.0)), np.nan)


def _varying_power(x: np.ndarray, e: np.ndarray, level: float) -> tuple[str, np.ndarray]:
    """Where residuals `[B, N]` at places `[N]` are too large, else where they are too small.

    In words, "" for nowhere, and as bool, `[N]`.
    """
    order = np.argsort(x, kind="stable")
    order = order[~np.isnan(e[:, order]).all(axis=0)]
    places, ordered = x[order], e[:, order]
    power, count = np.nansum(np.abs(ordered) ** 2, axis=0), np.sum(~np.isnan(ordered), axis=0)
    running = running_calibration(power, count, ordered, level)
    for stretches, regions, others in (
        (running.too_sure, "narrow", "wide"),
        (running.too_cautious, "wide", "narrow"),
    ):
        inside = np.zeros(len(places), bool)
        for stretch in stretches:
            inside[stretch.first : stretch.last + 1] = True
        if min(np.sum(inside), np.sum(~inside)) < running.window // 2:
            continue
        ratio, elsewhere = (np.sum(power[at]) / np.sum(count[at]) for at in (inside, ~inside))
        varies = max(ratio, elsewhere) > _VARIES * min(ratio, elsewhere)
        if not varies or max(ratio, elsewhere) * _SLIGHT < 1.0:  # too wide everywhere
            continue
        is_opposite = elsewhere * _SLIGHT < 1.0 if ratio > 1.0 else elsewhere > _SLIGHT
        beyond = f" and too {others} elsewhere" if is_opposite else ""
        words = (
            f"have {ratio:.2g} times the power that the model predicts "
            f"{in_words(stretches, places)}, and {elsewhere:.2g} times elsewhere: its regions are "
            f"too {regions} there{beyond}, so fit stretches by themselves, or give groups of noise "
            "(noise_variance=[None, None], noise_groups), or noise that follows the signal "
            "(noise_fraction=None)"
        )
        return words, np.isin(np.arange(len(x)), order[inside])
    return "", np.zeros(len(x), bool)


def _of_empty_bands(gp: Any, data: Data, scales: DataScales) -> list[str]:
    """The suspicion that a regular series lacks the power that its model has in wide bands.

    The tapered periodogram `I(f) = |Σ h z e^{−i2πft}|²` of N samples at equal steps has the
    expectation `E I(f) ≥ Σ a(τ) k(τ) e^{−i2πfτ}`, with `a(τ) = Σ h(t) h(t + τ)`, leakage and
    aliases included, noise left out (Percival & Walden, Spectral Analysis for Physical
    Applications, 1993, §6.3). A signal limited to a band has far less power outside of it than a
    Matérn process with a spectrum of that width, and is forecast far better than by one.
    """
    is_of_values = data.is_of_values and gp.observation_model.likelihood is None
    is_whole = getattr(gp, "band", None) is None
    if not (scales.is_regular and is_of_values and is_whole) or gp.kernel.outputs is not None:
        return []
    x, z = residuals_of_mean(gp, data)
    steps = np.rint((x[:, 0] - x[:, 0].min()) / scales.spacing).astype(int)
    first_step, z = _longest_stretch(steps, z)
    count = z.shape[1]
    if not _LONG_SERIES <= count <= _LONGEST:
        return []
    start = float(x[:, 0].min()) + first_step * scales.spacing
    covariance = _covariance_at_lags(gp, start, scales.spacing, count)
    if covariance is None:
        return []
    observed, expected = _periodograms(z, covariance)
    bands = max(count // _BAND, 1)
    sums = [
        np.add.reduceat(power, np.linspace(0, len(power), bands, endpoint=False, dtype=int))
        for power in (observed, expected)
    ]
    share = float(np.mean(sums[0] < _NO_POWER * sums[1]))
    if share < _WIDE:
        return []
    return [
        f"over {share:.0%} of all frequencies z has less than a thirtieth of the power that the "
        "kernel has there: a signal limited to a band, whose forecasts under a kernel of wider "
        "spectrum are worse than they could be. Over a regular grid Autoregressive(16) describes "
        "such a signal, otherwise RBF() in place of a Matérn kernel"
    ]


def _covariance_at_lags(gp: Any, start: float, step: float, count: int) -> np.ndarray | None:
    """The covariance at lags of 0 to `count` − 1 steps; None for one that is not stationary."""
    places = start + step * np.arange(count)
    at = tf.constant(places[:, None], gp.variable_dtype)
    from_first = np.asarray(gp.kernel.checked_moments(at, tf.broadcast_to(at[:1], at.shape))[0])
    to_last = np.asarray(gp.kernel.checked_moments(tf.broadcast_to(at[-1:], at.shape), at)[0])
    tolerance = 1e-3 * np.abs(from_first).max()
    is_stationary = np.abs(from_first - to_last[::-1]).max() <= tolerance
    return from_first.astype(complex) if is_stationary else None


def _longest_stretch(places: np.ndarray, z: np.ndarray) -> tuple[int, np.ndarray]:
    """The longest stretch of whole steps where no series `[B, N]` is missing, and its first step.

    A gap spreads the power of a band over all frequencies.
    """
    order = np.argsort(places)
    order = order[~np.isnan(z[:, order]).any(axis=0)]
    ends = np.flatnonzero(np.diff(places[order], append=-1) != 1)
    begins = np.concatenate([[0], ends[:-1] + 1])
    longest = int(np.argmax(ends - begins)) if len(ends) else 0
    stretch = order[begins[longest] : ends[longest] + 1] if len(ends) else order
    return int(places[stretch[0]]) if len(stretch) else 0, z[:, stretch]


def _periodograms(series: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sum of the tapered periodograms of series `[B, N]`, and its expectation without noise.

    At 2 N frequencies, so that lags of both signs have places of their own.
    """
    count = series.shape[1]
    taper, size = np.hanning(count + 2)[1:-1] ** 2, 2 * count
    observed = np.sum(np.abs(np.fft.fft(taper * series, size)) ** 2, axis=0)
    weights = np.fft.ifft(np.abs(np.fft.fft(taper, size)) ** 2).real[:count]
    of_signal = 2.0 * np.fft.fft(weights * covariance, size).real - weights[0] * covariance[0].real
    return observed, len(series) * of_signal


def is_diagonal(kernel: Kernel, x: np.ndarray) -> bool:
    """Whether the signal at neighbouring points, of `[N, D]`, is uncorrelated under the kernel."""
    if all(isinstance(k, White) for k in kernel.walk() if not k.parts) or len(x) < 2:
        return False
    x = x[np.lexsort(x.T[::-1])]
    apart = np.any(np.diff(x, axis=0) != 0, axis=1)
    first, second = x[:-1][apart][:_PAIRS], x[1:][apart][:_PAIRS]
    if not len(first):
        return False
    first, second = (tf.constant(a, kernel.variable_dtype) for a in (first, second))
    if kernel.outputs is not None:  # neighbours of the same output
        first, second = (points_of_outputs(a, kernel.outputs) for a in (first, second))
    pairs = ((first, second), (first, first), (second, second))
    k = [np.asarray(kernel.checked_moments(a, b)[0]) for a, b in pairs]
    size = np.sqrt(np.abs(k[1] * k[2]))
    nonzero = size > 0  # a process that is zero has no correlation
    return bool(np.any(nonzero) and np.max(np.abs(k[0][nonzero]) / size[nonzero]) < _NO_CORRELATION)
