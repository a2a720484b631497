"""Flagged cells of a radio interferometer, filled from all times and frequencies, with errors.

A drift-scan interferometer such as HERA measures the visibility of each baseline over times and
frequencies, its waterfall. Radio interference (RFI) takes whole channels, bursts of a few times and
channels, and single cells. The holes smear bright foregrounds over the delays where the 21 cm
signal is sought, so that they are filled, by sequences that are limited to the delays and fringe
rates of the sky (DPSS), or by a covariance that is flat between such limits (DAYENU: Ewall-Wice et
al., MNRAS 500, 2021). The limits have to be chosen, and DAYENU has to be told power and noise.

The sky is simulated: sources of 1 to 20 Jy with Euclidean counts of 3500 / (sr Jy) at 1 Jy (our
round number; counts at 154 MHz: Franzen et al., MNRAS 459, 2016), and spectral indices of -0.8 ±
0.2. They drift through the tapered beams of two dishes of 14 m at HERA's latitude, which are 25.3 m
apart towards 60° east of north. Six hours and 135 to 155 MHz are 144 × 80 cells of 2.5 minutes and
250 kHz; the noise is that of dishes of 12,500 Jy. Five flagged bands, twelve bursts and sixty
single cells are our guesses. There is no diffuse emission, and no mutual coupling.

cgp has `Along(RBF() * Rotation(), 0) * Along(RBF() * Rotation(), 1)`: fringe rates and delays are
normal densities around centres. Power, centres, widths and noise are learned from the night; z is
NaN where flagged. Channels that are flagged at all times are left out, which is exact.

It is compared with linear interpolation over frequency; with DPSS over delay, and over fringe rate
and delay, by least squares; and with DAYENU over both. The centre of the fringe rates is known to
them, from geometry. DAYENU has limits by geometry, the horizon and the size of a dish; those of 42
pairs that predict four bands best that are left out; and, as DPSS, those of the least true error in
the flagged cells of the night: hindsight. The joint filter that knows the noise and the covariance
of all skies, which is no product, is the limit.

Expect, over five nights, relative errors in flagged cells of -42.8 dB. DAYENU has -38.9 dB by
geometry, -42.3 dB by cross-validation and -42.9 dB in hindsight, DPSS over both -42.7 dB in
hindsight, over delay alone -34.9 dB, linear interpolation -23.4 dB; the limit is -44.0 dB. So cgp
fills as well as the best choice of limits, without limits, noise or geometry, and has errors. The
95 % regions contain 94.9, 90.7, 93.6, 91.8 and 94.9 % of the flagged cells (seeds 0 to 4); in
bursts, which are a few independent errors, 87 to 100 %.

It does not help where only the smear matters: in the delay spectrum of one night linear
interpolation does nearly as well, as its errors are below the noise. And a product has one fringe
rate for the whole band, which in truth grows with frequency and with the baseline: at 75.9 m,
`main(seed=5, length=75.9)`, cgp has -39.0 dB, with 94 % in the regions, and the limit is -40.6 dB.
Where noise does not hide this the regions are too small: 135 to 165 MHz at 36 m, with dishes of
8500 Jy, had 86 and 89 % in them. Take shorter bands then.

Run it with: python examples/telescope_waterfall.py (a minute)
"""

import itertools
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from scipy.signal.windows import blackmanharris, dpss
from scipy.special import jv

import cgp
from cgp.kernels import RBF, Along, Rotation

SHAPE, HOURS, BAND = (144, 80), 6.0, (135.0, 155.0)  # MHz
LATITUDE, DISH, LENGTH, AZIMUTH = np.deg2rad(-30.7), 14.0, 25.3, np.deg2rad(60)  # radians, m
EARTH, LIGHT = 2 * np.pi / 1436.07, 299.792458  # radians a minute, and m MHz
COUNTS, BRIGHTEST, INDEX, REACH = 3500.0, 20.0, -0.8, np.deg2rad(30)  # from the zenith
SEFD = 12500.0  # Jy, the noise of the dishes in units of a source's flux density
FLAGGED = (137.0, 138.0), (141.0, 141.3), (143.6, 144.1), (145.8, 146.1), (149.8, 150.2)  # MHz
HELD_OUT = (140.0, 140.5), (144.25, 144.75), (147.25, 147.75), (151.75, 152.25)
BURSTS, SINGLES = 12, 60
RATES = 0.014, 0.018, 0.021, 0.024, 0.03, 0.04  # limits that are tried, turns a minute
DELAYS = 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.045  # and µs
COLORS = {
    "zeros": "#c0392b",
    "linear interpolation": "#d08c1d",
    "DPSS over delay": "#3d8b53",
    "DAYENU, limits by geometry": "#7d3c98",
    "cgp": "#1f5fa8",
    "covariance of all skies": "0.2",
    "nothing flagged": "0.5",
}
PICTURE = Path(__file__).with_suffix(".png")


# --- what the telescope has -----------------------------------------------------------------------


class Night(NamedTuple):
    axes: tuple  # times in minutes, and frequencies in MHz
    length: float  # of the baseline, m
    truth: np.ndarray  # Jy, without noise
    noise: float  # E|n|², Jy²
    complete: np.ndarray  # with noise
    z: np.ndarray  # the same, NaN where flagged
    places: dict  # what is flagged, by its kind


def normal(rng, *shape):
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)) / np.sqrt(2)


def responses(axes, length, ascension, declination):
    """For each time the sources near the zenith, and their visibilities at 1 Jy, `[K, F]`."""
    times, frequencies = axes
    x = np.linspace(1e-6, 40, 4000)
    pattern = (8 * jv(2, x) / x**2) ** 2  # of the power, for a parabolic taper
    spectrum = (frequencies / 150) ** INDEX
    for time in times:
        angle = EARTH * time - ascension  # the hour angle
        up = np.sin(declination) * np.sin(LATITUDE)
        up += np.cos(declination) * np.cos(LATITUDE) * np.cos(angle)
        near = np.flatnonzero(up > np.cos(REACH))
        angle, above = angle[near], declination[near]
        east = -np.cos(above) * np.sin(angle)
        north = np.sin(above) * np.cos(LATITUDE)
        north -= np.cos(above) * np.sin(LATITUDE) * np.cos(angle)
        delay = length / LIGHT * (np.sin(AZIMUTH) * east + np.cos(AZIMUTH) * north)  # µs
        off = np.pi * DISH / LIGHT * np.hypot(east, north)[:, None] * frequencies
        turns = np.exp(-2j * np.pi * delay[:, None] * frequencies)
        yield near, np.interp(off, x, pattern) * spectrum * turns


def sources(rng):
    """Right ascensions, declinations, flux densities and deviations of the spectral index."""
    steepness = 1 - BRIGHTEST**-1.5
    number = rng.poisson(4 * np.pi * COUNTS * steepness / 1.5)
    ascension = rng.uniform(0, 2 * np.pi, number)
    declination = np.arcsin(rng.uniform(-1, 1, number))
    flux = (1 - steepness * rng.uniform(size=number)) ** (-1 / 1.5)
    return ascension, declination, flux, rng.normal(0, 0.2, number)


def within(bands, frequencies):
    """Which channels the bands touch."""
    half, touched = 0.5 * (frequencies[1] - frequencies[0]), np.zeros(len(frequencies), bool)
    for low, high in bands:
        touched |= (frequencies > low - half) & (frequencies < high + half)
    return touched


def flags(rng, axes):
    """The cells of flagged channels, of bursts, and single ones, none of them twice."""
    times, frequencies = axes
    channels = np.tile(within(FLAGGED, frequencies), (len(times), 1))
    bursts = np.zeros_like(channels)
    for _ in range(BURSTS):
        time, channel = rng.integers([len(times) - 10, len(frequencies) - 4])
        height, width = rng.integers([4, 2], [11, 5])
        bursts[time : time + height, channel : channel + width] = True
    singles = np.zeros_like(channels)
    bursts &= ~channels
    singles.ravel()[rng.choice(np.flatnonzero(~channels & ~bursts), SINGLES, replace=False)] = True
    return {"channels": channels, "bursts": bursts, "single cells": singles}


def simulated_night(rng, shape, length):
    axes = HOURS * 60 / shape[0] * np.arange(shape[0]), np.linspace(*BAND, shape[1], endpoint=False)
    ascension, declination, flux, steeper = sources(rng)
    logarithm, truth = np.log(axes[1] / 150), np.empty(shape, complex)
    for row, (near, response) in zip(
        truth, responses(axes, length, ascension, declination), strict=True
    ):
        spectra = flux[near, None] * np.exp(steeper[near, None] * logarithm)
        row[:] = np.sum(spectra * response, axis=0)
    samples = 3600 * HOURS / shape[0] * 1e6 * (BAND[1] - BAND[0]) / shape[1]
    noise, places = SEFD**2 / samples, flags(rng, axes)
    complete = truth + np.sqrt(noise) * normal(rng, *shape)
    z = np.where(sum(places.values()) > 0, np.nan, complete)
    return Night(axes, length, truth, noise, complete, z, places)


# --- the tools of the trade -----------------------------------------------------------------------


def interpolated(z, frequencies):
    """Linear interpolation over frequency."""
    filled = z.copy()
    for row in filled:
        present = ~np.isnan(row)
        real, imaginary = (
            np.interp(frequencies, frequencies[present], a[present]) for a in (row.real, row.imag)
        )
        row[:] = real + 1j * imaginary
    return filled


def sequences(axis, centre, limit, least):
    """DPSS of spectra at most `limit` from a centre, and the shares of power inside of it."""
    product = limit * (axis[1] - axis[0]) * len(axis)
    number = min(int(2 * product) + 12, len(axis))
    basis, shares = dpss(len(axis), product, number, return_ratios=True)
    turns = np.exp(2j * np.pi * centre * axis[:, None])
    return basis[shares > least].T * turns, shares[shares > least]


def regularised(z, bases, covariance, noise):
    """The sum of products of the bases whose coefficients have a covariance, given z and noise."""
    weights, (over_time, over_frequency) = ~np.isnan(z) * 1.0, bases
    pairs = [np.einsum("xa,xb->xab", basis.conj(), basis) for basis in bases]
    gram = np.tensordot(np.tensordot(pairs[0], weights, (0, 0)), pairs[1], (2, 0))
    size = len(covariance)
    gram = gram.transpose(0, 2, 1, 3).reshape(size, size)
    projected = over_time.conj().T @ np.nan_to_num(z) @ over_frequency.conj()
    solved = np.linalg.solve(gram @ covariance + noise * np.eye(size), projected.ravel())
    return over_time @ (covariance @ solved).reshape(projected.shape) @ over_frequency.T


def limits(night):
    """The fringe rate of the zenith, its limit by the size of a dish, and the horizon's delay."""
    per_metre = EARTH * np.cos(LATITUDE) * np.mean(night.axes[1]) / LIGHT  # turns a minute
    return night.length * np.sin(AZIMUTH) * per_metre, DISH * per_metre, night.length / LIGHT


def over_delay(night, limit):
    """Least squares by DPSS of each time."""
    basis, filled = sequences(night.axes[1], 0.0, limit, 1e-5)[0], np.empty_like(night.z)
    for row, data in zip(filled, night.z, strict=True):
        present = ~np.isnan(data)
        row[:] = basis @ np.linalg.lstsq(basis[present], data[present], rcond=None)[0]
    return filled


def over_both(night, centre, rate, delay, is_flat):
    """DPSS over fringe rate and delay: as DAYENU with a flat spectrum, or by least squares."""
    over_time, of_rates = sequences(night.axes[0], centre, rate, 1e-9 if is_flat else 1e-5)
    over_frequency, of_delays = sequences(night.axes[1], 0.0, delay, 1e-9 if is_flat else 1e-5)
    shares = np.outer(of_rates, of_delays).ravel()
    power = np.nanmean(np.abs(night.z) ** 2) - night.noise
    # Without the shares, and with very much power, nothing is known of the coefficients.
    variances = (
        power * night.z.size / np.sum(shares) * (shares if is_flat else 1e6 * np.ones_like(shares))
    )
    return regularised(night.z, (over_time, over_frequency), np.diag(variances), night.noise)


def in_hindsight(filled_by, night):
    """The way of the least error in flagged cells."""
    flagged = np.isnan(night.z)
    return min(filled_by, key=lambda way: np.sum(np.abs(way - night.truth)[flagged] ** 2))


def validated(night, tried):
    """DAYENU of the limits that predict the data best in bands that are left out for that."""
    centre, is_out = limits(night)[0], ~np.isnan(night.z) & within(HELD_OUT, night.axes[1])
    fewer = night._replace(z=np.where(is_out, np.nan, night.z))

    def error(pair):
        return np.sum(np.abs(over_both(fewer, centre, *pair, True) - night.complete)[is_out] ** 2)

    return over_both(night, centre, *min(tried, key=error), True)


def of_all_skies(night):
    """The joint filter that knows the covariance of all skies, which is that of a lattice."""
    centre, _, delay = limits(night)
    over_time = sequences(night.axes[0], centre, 0.03 + 0.4 * centre, 1e-7)[0]  # wide enough
    over_frequency = sequences(night.axes[1], 0.0, 0.03 + 0.5 * delay, 1e-7)[0]
    step = np.deg2rad(0.8)
    ascensions = np.arange(-1.5 * REACH, EARTH * HOURS * 60 + 1.5 * REACH, step)
    sines = np.arange(*np.sin([LATITUDE - REACH, LATITUDE + REACH]), step)
    ascensions, sines = (a.ravel() for a in np.meshgrid(ascensions, sines))
    seen = responses(night.axes, night.length, ascensions, np.arcsin(sines))
    sky = np.zeros((len(sines), over_time.shape[1], over_frequency.shape[1]), complex)
    for turns, (near, response) in zip(over_time.conj(), seen, strict=True):
        sky[near] += turns[:, None] * (response @ over_frequency.conj())[:, None, :]
    sky = sky.reshape(len(sky), -1)
    # The integral of the squared flux density over the counts, in a cell of the lattice.
    power = COUNTS * 2 * (np.sqrt(BRIGHTEST) - 1) * step**2
    bases = over_time, over_frequency
    return regularised(night.z, bases, power * sky.T @ sky.conj(), night.noise)


def fillings(night):
    """All cells by each of the tools, and by the filter that knows all."""
    (centre, rate, delay), tried = limits(night), list(itertools.product(RATES, DELAYS))
    return {
        "linear interpolation": interpolated(night.z, night.axes[1]),
        "DPSS over delay": in_hindsight((over_delay(night, limit) for limit in DELAYS), night),
        "DPSS over both": in_hindsight((over_both(night, centre, *a, False) for a in tried), night),
        "DAYENU, limits by geometry": over_both(night, centre, rate, delay, True),
        "DAYENU, limits by cross-validation": validated(night, tried),
        "DAYENU, limits in hindsight": in_hindsight(
            (over_both(night, centre, *a, True) for a in tried), night
        ),
        "covariance of all skies": of_all_skies(night),
    }


# --- what is shown --------------------------------------------------------------------------------


def decibels(error, power):
    return 10 * np.log10(np.mean(np.abs(error) ** 2, axis=0) / power)


def spectrum(night, filled):
    """Delays in ns, and the mean delay spectrum of all times, in dB relative to 1 Jy²."""
    frequencies, window = night.axes[1], blackmanharris(night.z.shape[1])
    # A delay is exp(-2πi ντ), so that the transform to delays is the inverse one.
    series = np.fft.ifft(window * np.where(np.isnan(night.z), filled, night.z), axis=1)
    powers = np.mean(np.abs(series) ** 2, axis=0) * len(frequencies) ** 2 / np.sum(window) ** 2
    delays = 1e3 * np.fft.fftfreq(len(frequencies), frequencies[1] - frequencies[0])
    return np.fft.fftshift(delays), 10 * np.log10(np.fft.fftshift(powers))


def draw(night, prediction, filled_by, path):
    figure = plt.figure(figsize=(11, 7.5), layout="constrained")
    above, below = figure.subfigures(2, 1)
    panels, labels = above.subplots(1, 3, sharey=True), ("time (min)", "frequency (MHz)")
    style = {"x_labels": labels, "z_label": "V", "z_unit": "Jy", "quantity": "decibels"}
    cgp.plotting.waterfall(night.axes, night.z, prediction, **style, ax=panels)
    delays, channels = below.subplots(1, 2)
    shown = {"zeros": 0.0, "linear interpolation": filled_by["linear interpolation"]}
    shown |= {"cgp": filled_by["cgp"], "nothing flagged": night.complete}
    for name, filled in shown.items():
        line = "--" if name == "nothing flagged" else "-"
        delays.plot(*spectrum(night, filled), line, color=COLORS[name], label=name)
    delays.set(xlabel="delay (ns)", ylabel="delay spectrum (dB Jy²)", xlim=(-1000, 1000))
    delays.set_xticks([-1000, -500, 0, 500, 1000])
    delays.legend(frameon=False, loc="upper left", fontsize="small")
    cells, power = night.places["channels"].all(axis=0), np.mean(np.abs(night.truth) ** 2)
    for name in [name for name in COLORS if name in filled_by]:
        errors = decibels((filled_by[name] - night.truth)[:, cells], power)
        channels.plot(night.axes[1][cells], errors, "o", ms=4, color=COLORS[name], label=name)
    foretold = decibels(np.sqrt(prediction["variance"])[:, cells], power)
    channels.plot(
        night.axes[1][cells], foretold, "_", ms=9, color="k", label="cgp, its own estimate"
    )
    channels.set(xlabel="frequency (MHz)", ylabel="error in flagged channels (dB)")
    channels.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(shape=SHAPE, picture=PICTURE, seed=0, length=LENGTH):
    """Prints the figures, saves the picture, and returns the figures."""
    night = simulated_night(np.random.default_rng(seed), shape, length)
    gp = cgp.GridGP(Along(RBF() * Rotation(), 0) * Along(RBF(fixed="variance") * Rotation(), 1))
    gp.fit(night.axes, night.z, verbose=0)
    prediction, filled_by = gp.predict(night.axes), fillings(night)
    filled_by["cgp"] = prediction["mean"]
    places = {**night.places, "all": np.isnan(night.z)}
    power, figures = np.mean(np.abs(night.truth) ** 2), {"coverage": {}, "errors": {}}
    ratio = 10 * np.log10(power / night.noise)
    print(f"a night of {np.sqrt(power):.1f} Jy, {ratio:.1f} dB above the noise of a cell")
    print(f"relative error in dB in flagged{'':9}" + "".join(f"{name:>14}" for name in places))
    for name, filled in filled_by.items():
        errors = {
            kind: decibels((filled - night.truth)[cells], power) for kind, cells in places.items()
        }
        figures["errors"][name] = errors
        print(f"{name:40}" + "".join(f"{error:14.2f}" for error in errors.values()))
    for kind, cells in places.items():
        moments = {name: moment[cells] for name, moment in prediction.items()}
        figures["coverage"][kind] = cgp.metrics.coverage(night.truth[cells], moments)
    inside = "".join(f"{100 * share:12.1f} %" for share in figures["coverage"].values())
    print(f"{'in the 95 % regions of cgp':40}{inside}")
    figures["fringe rate"] = gp.parameters()["rotation.frequency"], limits(night)[0]
    figures["noise"] = gp.parameters()["noise_variance"], night.noise
    print("fringe rate {:.4f} turns a minute, by geometry {:.4f}".format(*figures["fringe rate"]))
    print("noise {:.2f} Jy², in truth {:.2f}".format(*figures["noise"]))
    draw(night, prediction, filled_by, picture)
    print(f"picture: {picture}")
    return figures


if __name__ == "__main__":
    main()
