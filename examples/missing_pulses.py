"""Pulses that a weather radar misses, filled from all ranges together, and the wind with errors.

A pulse-Doppler radar samples the echo of rain, I and Q, at many ranges after each pulse. Where it
shares its time with another task, or blanks interference, whole pulses are missing, and a Fourier
transform smears the spectrum of the rain over all velocities. Wanted are the missing pulses, and
the mean and the width of the velocities, with errors. Tools of the trade fill each range by itself,
along slow time. But a radar that samples its pulse several times sees the same rain in neighbouring
ranges, each time in other noise, so that all of them together tell more.

The rain is simulated: 500 drops for each sample of range, of normal velocities (the standard model:
Zrnić, J. Appl. Meteorol. 14, 1975) whose mean is -20 to 20 m/s and whose width 1 to 2.5 m/s. The
wavelength is 10 cm, pulses are 1 ms apart, and a dwell has 64. The pulse is a rectangle of 1.57 µs,
as of the WSR-88D, sampled five times in white noise: the correlation of the 30 ranges, 47 m apart,
is a triangle (Torres & Zrnić, J. Atmos. Oceanic Technol. 20, 2003). Our guesses: three bursts of 6,
7 and 5 missing pulses, 24 more cells that are lost, and a signal-to-noise ratio of 10 to 20 dB.

cgp has `Along(RBF() * Rotation(), 0) * Along(Pulse(), 1)`: a Gaussian Doppler spectrum, and the
correlation of the pulse, which the radar knows, a kernel of few lines. Power, Doppler shift, width
and noise are learned from each dwell.

Missing pulses: linear interpolation, once the mean Doppler shift is removed; an autoregression
(Janssen, Veldhuis & Vries, IEEE Trans. ASSP 34, 1986); a Wiener filter of each range, with a
Gaussian spectrum as estimated, and with the true one. The joint filter that knows the truth is the
limit; it can also be given the estimates. Wind: pulse pairs of all pulses that are there, and the
same whitened over range with regard to the noise (Torres, Curtis & Cruz, IEEE Trans. Geosci. Remote
Sens. 42, 2004). Orders and lags are the best in hindsight; filters and whitening are told the noise
and the pulse.

Expect -13.87 dB in missing pulses, at the limit, -13.88 dB; filters of each range that know the
truth have -12.71 dB, an autoregression -12.21 dB. The joint filter of estimated moments, which is
told the noise, nearly ties with -13.80 dB: the gain comes from the neighbours. The smear alone is
gone after linear interpolation as well. The 95 % regions contain 93 % of the missing cells. The
error of the velocity is 0.084 m/s, that of pulse pairs 0.151 and, whitened, 0.105 m/s; of the width
0.043, 0.205 and 0.109 m/s. Over their standard errors these of cgp have root mean squares of 1.26
and 1.07, each ± 0.13 as there are 30 dwells; over five seeds 1.04 and 1.08.

A product has one Doppler spectrum at all ranges. With 4 m/s of shear over them, `main(shear=4.0)`,
cgp has -11.93 dB, and 94 % in the regions, but its width is 0.3 m/s too large, seven of its errors:
fit blocks of some ten ranges then. Rain above ground clutter is a sum of two products, and no
product.

Run it with: python examples/missing_pulses.py (a minute)
"""

from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from numpy.lib.stride_tricks import sliding_window_view

import cgp
from cgp.kernels import RBF, Along, Kernel, Rotation

DWELLS, DROPS, LOST, PULSE = 30, 500, 24, 5  # the last one is the length in samples of range
AXES = TIMES, RANGES = np.arange(64.0), np.arange(30.0)  # ms, and samples of 47 m
WAVELENGTH = 100.0  # mm: velocities are in mm/ms, which are m/s
IS_MISSED = np.isin(TIMES, [*range(10, 16), *range(27, 34), *range(46, 51)])
OVER_RANGE = np.maximum(1 - np.abs(RANGES[:, None] - RANGES) / PULSE, 0)
COLORS = "#c0392b", "#d08c1d", "#1f5fa8", "0.5"
PICTURE = Path(__file__).with_suffix(".png")


# --- what the radar has ---------------------------------------------------------------------------


class Dwell(NamedTuple):
    moments: np.ndarray  # velocity, positive away from the radar, and width, m/s
    noise: float  # E|n|², beside an echo of mean power 1
    echo: np.ndarray  # without noise, [64, 30]
    complete: np.ndarray  # with noise
    z: np.ndarray  # the same, NaN where missing


def normal(rng, *shape):
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)) / np.sqrt(2)


def rain(rng, velocity, width, shear):
    """The echo of drops, `[64, 30]`."""
    places = np.linspace(-0.5, 0.5, len(RANGES) + PULSE - 1)[:, None]
    velocities = rng.normal(velocity + shear * places, width, (len(places), DROPS))
    drops, shells = normal(rng, *velocities.shape) / np.sqrt(PULSE * DROPS), []
    for _ in TIMES:
        shells.append(drops.sum(axis=1))
        # The phase of an echo is -4π distance/wavelength.
        drops = drops * np.exp(-4j * np.pi * velocities / WAVELENGTH)
    # The pulse is in five shells at once.
    return sliding_window_view(shells, PULSE, axis=1).sum(axis=-1)


def dwell(rng, shear):
    moments, snr = rng.uniform([-20, 1], [20, 2.5]), rng.uniform(10, 20)
    echo, noise = rain(rng, *moments, shear), 10 ** (-snr / 10)
    complete = echo + np.sqrt(noise) * normal(rng, *echo.shape)
    z = np.where(IS_MISSED[:, None], np.nan, complete)
    z.ravel()[rng.choice(np.flatnonzero(~np.isnan(z)), LOST, replace=False)] = np.nan
    return Dwell(moments, noise, echo, complete, z)


# --- the tools of the trade -----------------------------------------------------------------------


def pulse_pairs(series, weights=1.0):
    """Velocity and width of series `[64, K]`, whose correlations are weighted."""
    lags = np.arange(1, 5)  # the best number in hindsight; lag 0 would have the noise
    pairs = [np.nanmean(series[k:] * series[:-k].conj(), axis=0) for k in lags]
    correlations = np.sum(weights * np.array(pairs), axis=1)
    slope = np.polyfit(lags**2, np.log(np.abs(correlations)), 1)[0]
    width = WAVELENGTH / (2 * np.sqrt(2) * np.pi) * np.sqrt(max(-slope, 0))
    return np.array([-WAVELENGTH / (4 * np.pi) * np.angle(correlations[0]), width])


def whitened(of):
    """Pulse pairs of uncorrelated combinations of the ranges, with less weight where noisy."""
    powers, vectors = np.linalg.eigh(OVER_RANGE)
    series = np.where(IS_MISSED[:, None] | ~np.isnan(of.z), of.z, interpolated(of.z)) @ vectors
    return pulse_pairs(series, powers / (powers + of.noise) ** 2)


def interpolated(z):
    """Linear interpolation of each range, without the mean Doppler shift."""
    turns = np.exp(1j * TIMES * np.angle(np.nanmean(z[1:] * z[:-1].conj())))
    filled = []
    for column in (z / turns[:, None]).T:
        there = ~np.isnan(column)
        parts = column[there].real, column[there].imag
        real, imaginary = (np.interp(TIMES, TIMES[there], part) for part in parts)
        filled.append(turns * (real + 1j * imaginary))
    return np.transpose(filled)


def autoregression(z, order=7):
    """The samples that make the errors of an autoregression least; of eight orders the best."""
    windows = sliding_window_view(z, order + 1, axis=0)
    windows = windows[~np.isnan(windows).any(axis=-1)]
    windows = np.concatenate([windows, windows[:, ::-1].conj()])  # forwards and backwards
    coefficients = np.linalg.lstsq(windows[:, :-1], windows[:, -1], rcond=None)[0]
    errors, filled = np.zeros((len(z) - order, len(z)), complex), z.copy()
    for number, row in enumerate(errors):
        row[number : number + order + 1] = *-coefficients, 1
    for column in filled.T:
        lost = np.isnan(column)
        rest = -errors[:, ~lost] @ column[~lost]
        column[lost] = np.linalg.lstsq(errors[:, lost], rest, rcond=None)[0]
    return filled


def gaussian(velocity, width):
    """The covariance over slow time of a Gaussian spectrum."""
    lag = 2 * np.pi / WAVELENGTH * (TIMES[:, None] - TIMES)
    return np.exp(-2 * (width * lag) ** 2 - 2j * velocity * lag)


def wiener(z, noise, over_time, over_range):
    """The Wiener filter of all cells at once."""
    there, weights = ~np.isnan(z), np.zeros_like(z)
    time, cell = np.nonzero(there)
    gram = over_time[np.ix_(time, time)] * over_range[np.ix_(cell, cell)]
    weights[there] = np.linalg.solve(gram + noise * np.eye(len(gram)), z[there])
    return over_time @ weights @ over_range


def range_by_range(of, over_time):
    one = np.ones((1, 1))
    columns = [wiener(column[:, None], of.noise, over_time, one) for column in of.z.T]
    return np.concatenate(columns, axis=1)


# --- cgp ------------------------------------------------------------------------------------------


class Pulse(Kernel):
    """The correlation over range: that of a rectangular pulse with itself."""

    is_stationary = True

    def moments(self, x1, x2):
        overlap = tf.maximum(1.0 - tf.abs(x1 - x2)[..., 0] / PULSE, 0.0)
        return tf.complex(overlap, tf.zeros_like(overlap)), None


def wind(gp):
    """Velocity and width, and their standard errors."""
    values, errors = gp.parameters(), gp.parameter_errors(verbose=0)
    width = WAVELENGTH / (4 * np.pi * values["rbf.lengthscale"])
    relative = errors["rbf.lengthscale"] / values["rbf.lengthscale"]
    frequencies = np.array([-values["rotation.frequency"], errors["rotation.frequency"]])
    velocity, error = WAVELENGTH / 2 * frequencies
    return np.array([velocity, width]), np.array([error, width * relative])


# --- what is shown --------------------------------------------------------------------------------


def spectrum(z):
    """Velocities, and the mean Doppler spectrum of all ranges under Hann's window."""
    window = np.sin(np.pi * np.arange(len(z)) / len(z))[:, None] ** 2
    powers = np.mean(np.abs(np.fft.fft(window * z, axis=0)) ** 2, axis=1)
    velocities = -WAVELENGTH / 2 * np.fft.fftfreq(len(z))
    return np.fft.fftshift(velocities), np.fft.fftshift(powers) / np.sum(window**2)


def draw(of, prediction, winds, path):
    figure = plt.figure(figsize=(11, 7), layout="constrained")
    above, below = figure.subfigures(2, 1)
    panels, labels = above.subplots(1, 3, sharey=True), ("slow time (ms)", "range (samples)")
    style = {"x_labels": labels, "z_label": "echo", "quantity": "decibels", "ax": panels}
    cgp.plotting.waterfall(AXES, of.z, prediction, **style)
    left, right = below.subplots(1, 2, width_ratios=[1.6, 1])
    ways = {"zeros": 0, "linear interpolation": interpolated(of.z), "cgp": prediction["mean"]}
    ways["no sample missing"] = of.complete
    for (name, way), color in zip(ways.items(), COLORS, strict=True):
        velocities, powers = spectrum(np.where(np.isnan(of.z), way, of.z))
        left.plot(velocities, 10 * np.log10(powers), color=color, label=name)
    left.set(xlabel="velocity (m/s)", ylabel="Doppler spectrum (dB)")
    for (name, errors), color in zip(winds.items(), COLORS, strict=False):
        right.plot(*np.transpose(errors), ".", color=color, label=name)
    right.set(xlabel="error of the velocity (m/s)", ylabel="error of the width (m/s)")
    right.set(xlim=(-0.5, 0.5), ylim=(-0.5, 0.5))
    left.legend(frameon=False)
    right.legend(frameon=False, loc="upper left")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(dwells=DWELLS, picture=PICTURE, seed=0, shear=0.0):
    """Prints the figures, saves the picture, and returns the figures."""
    rng, doppler = np.random.default_rng(seed), Rotation()
    gp = cgp.GridGP(Along(RBF() * doppler, 0) * Along(Pulse(), 1))
    errors, winds, inside, ratios = {}, {}, [], []
    for number in range(dwells):
        of = dwell(rng, shear)
        pairs, best = pulse_pairs(of.z), whitened(of)
        # The fit starts at the velocity of the pulse pairs.
        doppler.frequency.assign(-2 / WAVELENGTH * pairs[0])
        gp.fit(AXES, of.z, verbose=0)
        prediction, (estimates, uncertain) = gp.predict(AXES), wind(gp)
        for name, filled in {
            "linear interpolation": interpolated(of.z),
            "autoregression": autoregression(of.z),
            "range by range, estimated": range_by_range(of, gaussian(*best)),
            "range by range, true": range_by_range(of, gaussian(*of.moments)),
            "all ranges, estimated": wiener(of.z, of.noise, gaussian(*best), OVER_RANGE),
            "cgp": prediction["mean"],
            "all ranges, true": wiener(of.z, of.noise, gaussian(*of.moments), OVER_RANGE),
        }.items():
            off = np.mean(np.abs(filled - of.echo)[IS_MISSED] ** 2) / np.mean(np.abs(of.echo) ** 2)
            errors.setdefault(name, []).append(10 * np.log10(off))
        for name, estimate in {"pulse pairs": pairs, "whitened": best, "cgp": estimates}.items():
            winds.setdefault(name, []).append(estimate - of.moments)
        ratios.append((estimates - of.moments) / uncertain)
        missed = {name: moment[IS_MISSED] for name, moment in prediction.items()}
        inside.append(cgp.metrics.coverage(of.echo[IS_MISSED], missed))
        if number == 0:
            shown = of, prediction
    print(f"missing pulses of {dwells} dwells, relative error in dB ± standard error")
    for name, of in errors.items():
        print(f"{name:28}{np.mean(of):7.2f} ± {np.std(of, ddof=1) / np.sqrt(dwells):.2f}")
    print(f"in the 95 % regions of cgp   {100 * np.mean(inside):.1f} %")
    print("\nroot mean square errors of the velocity and the width, m/s")
    figures = {"missing": errors, "coverage": np.mean(inside), "wind": {}}
    for name, of in winds.items():
        figures["wind"][name] = np.sqrt(np.mean(np.square(of), axis=0))
        print("{:28}{:7.3f}{:8.3f}".format(name, *figures["wind"][name]))
    figures["calibration"] = np.sqrt(np.mean(np.square(ratios), axis=0))
    print("{:28}{:7.2f}{:8.2f}".format("cgp, over standard errors", *figures["calibration"]))
    draw(*shown, winds, picture)
    print(f"\npicture: {picture}")
    return figures


if __name__ == "__main__":
    main()
