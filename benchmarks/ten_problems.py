"""Ten small problems of ten trades, each with the tool of its trade and with cgp.

    python benchmarks/ten_problems.py [--quick] [NAME ...]
    python benchmarks/ten_problems.py --render

All data are simulated, by the physics of the trade, from the seeds 0, 1, …; the truth is known. The
tool has settings chosen from the data alone ("blind"), and those with the smallest error against
the truth ("hindsight"), of each figure by itself. cgp has what its pages recommend to that trade,
and does not use the truth. Errors are squared errors over the power of the truth, in dB; coverage
is the share of true values in the regions of 95 % of cgp, of measurements in those of measurements
where that is said. Results are written to `results/ten_problems.json`, and the table of
`docs/trades/ten_problems.md` is made from them; `--quick` runs one seed and writes nothing.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")

import argparse
import json
import re
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tools_of_trades as tools
from scipy.linalg import cholesky, toeplitz
from scipy.special import j0
from timing import RESULTS, save

import cgp
from cgp import means
from cgp.kernels import (
    RBF,
    Autoregressive,
    Constant,
    Empirical,
    Matern12,
    Matern32,
    RelaxationTimes,
    Szego,
    WidelyLinear,
    Zero,
)

PAGE = Path(__file__).parents[1] / "docs" / "trades" / "ten_problems.md"
TIE = 0.17  # dB, as in the table of the trades
decibel = cgp.metrics.normalized_error_db


class Figure(NamedTuple):
    """Errors of one quantity in one series, in dB, and how many values the regions hold."""

    of: str
    blind: float
    hindsight: float
    cgp: float
    inside: float = np.nan  # the share, NaN where there are no regions
    count: int = 0
    mixture: float = np.nan  # the error of the mixture of `cgp.compare`, where an order was chosen


def normal(rng, *shape):
    """Circular normal noise of unit variance."""
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)) / np.sqrt(2)


def with_noise(rng, z, snr_db):
    """Samples in white noise of so much less power than they have."""
    power = np.mean(np.abs(z) ** 2) * 10 ** (-snr_db / 10)
    return z + np.sqrt(power) * normal(rng, *z.shape)


def figure(of, truth, blind, others, region, mixture=None):
    """The figure of an estimate by a tool of blind settings, those of all settings, and cgp."""
    return Figure(
        of=of,
        blind=decibel(truth, blind),
        hindsight=min(decibel(truth, one) for one in [blind, *others]),
        cgp=decibel(truth, region["mean"]),
        inside=cgp.metrics.coverage(truth, region),
        count=truth.size,
        mixture=np.nan if mixture is None else decibel(truth, mixture),
    )


# --- 1 -------------------------------------------------------------------------------------------


def vlbi_gains(seed):
    """An hour of gains of a station, a scan of three minutes on each source, a third flagged."""
    rng, t = np.random.default_rng(100 + seed), 15.0 * np.arange(240)
    phase = np.cumsum(0.1 * rng.normal(size=t.size))
    drift = np.exp(-np.abs(t[:, None] - t) / 600) + 1e-9 * np.eye(t.size)
    gain = np.exp(0.03 * cholesky(drift, lower=True) @ rng.normal(size=t.size) + 1j * phase)
    variance = np.repeat(np.exp(rng.uniform(*np.log([0.05**2, 0.3**2]), 20)), 12)
    stated = variance / 8
    z = gain + np.sqrt(variance) * normal(rng, t.size)
    flagged = np.zeros(t.size, bool)
    while flagged.mean() < 0.3:
        begin = rng.integers(1, t.size - 20)
        flagged[begin : begin + rng.integers(4, 16)] = True
    at, z = t[~flagged], np.log(z[~flagged])
    z.imag = np.unwrap(z.imag)
    # Over one modulus: over that of each sample, those that noise makes large would weigh more.
    noise = stated[~flagged] / np.exp(2 * np.median(z.real))

    settings = [("spline", a) for a in 10.0 ** np.arange(0, 10)]
    settings += [("window", w) for w in (6.0, 10.0, 15.0, 25.0, 40.0, 60.0, 100.0, 200.0, 400.0)]
    unit = 1 / noise / np.mean(1 / noise)
    parts = [[tools.smoothed(at, p, s, t, unit) for s in settings] for p in (z.real, z.imag)]
    chosen = [tools.blind(tools.smoothed, settings, at, p, unit) for p in (z.real, z.imag)]
    size, turn = (p[settings.index(s)] for p, s in zip(parts, chosen, strict=True))
    others = [np.exp(a + 1j * b) for a in parts[0] for b in parts[1]]

    models = {}
    for kind in (Matern12, Matern32):
        of_phase = WidelyLinear(kind(), -1.0, fixed="coefficient")
        of_size = WidelyLinear(kind(), 1.0, fixed="coefficient")
        kernel = of_phase + of_size + Constant()
        models[kind.__name__] = cgp.ExactGP(kernel, noise_scale=None)
    comparison = cgp.compare(models, at, z, noise_variance=noise, restarts=4, verbose=0)
    # The noise hides the drift of the amplitude, so that its variance is hardly determined.
    posterior = models[comparison.best].posterior(t, uncertain=True)
    region = {
        "mean": posterior.mean().numpy(),
        "variance": posterior.variance().numpy(),
        "pseudo_variance": posterior.pseudo_variance().numpy(),
    }
    log_gain = region["mean"] + np.log(gain / np.exp(region["mean"]))  # up to whole turns
    figures = []
    for of, there in {"where solved": ~flagged, "where flagged": flagged}.items():
        errors = [decibel(gain[there], one[there]) for one in others]
        blind = decibel(gain[there], np.exp(size + 1j * turn)[there])
        error = decibel(gain[there], np.exp(region["mean"])[there])
        inside = cgp.metrics.coverage(log_gain[there], {k: v[there] for k, v in region.items()})
        figures.append(Figure(of, blind, min(errors), error, inside, there.sum()))
    deviation = np.sqrt((region["variance"] - region["pseudo_variance"].real) / 2)
    wrong = [np.angle(gain * np.exp(-1j * of)) for of in (turn, *parts[1], region["mean"].imag)]
    errors = [10 * np.log10(np.mean(of**2)) for of in wrong]
    inside = np.mean(np.abs(wrong[-1]) < 1.96 * deviation)
    phases = Figure("phase, re 1 rad", errors[0], min(errors[:-1]), errors[-1], inside, t.size)
    return [*figures, phases]


# --- 2 -------------------------------------------------------------------------------------------


def resonator(rng):
    """Frequencies in GHz, a noisy transmission past a notch, the truth, its Q and the delay."""
    place, loaded = rng.uniform(4.0, 7.0), np.exp(rng.uniform(*np.log([1e4, 1e5])))
    delay, ripple = rng.uniform(30.0, 60.0), 0.05 * np.exp(2j * np.pi * rng.uniform())  # ns
    depth = rng.uniform(0.3, 0.9) * np.exp(1j * rng.uniform(-0.6, 0.6))
    f = place * (1 + (np.linspace(-6, 6, 61) + rng.uniform(-1, 1)) / loaded)
    cable = 0.1 * np.exp(-2j * np.pi * f * delay) * (1 + ripple * np.exp(-2j * np.pi * f * 80.0))
    truth = cable * (1 - depth / (1 + 2j * loaded * (f / place - 1)))
    return f, truth + 0.1 * 10 ** (-30 / 20) * normal(rng, f.size), truth, loaded, delay


def notch_resonator(seed):
    """Four resonators of Q 1e4 to 1e5 in a rippling cable; 31 points, and 30 between them."""
    rng, regions, q_errors = np.random.default_rng(200 + seed), [], []
    windows = [np.inf, 8.0, 6.0, 4.0, 3.0]  # in widths of the resonance
    settings = [*windows, "least squares"]
    for f, z, truth, loaded, delay in (resonator(rng) for _ in range(4)):
        x, z, x_new, truth = f[::2], z[::2], f[1::2], truth[1::2]
        chosen = tools.blind(tools.notch_response, settings, x, z)
        fits = [tools.notch(x, z, one) for one in [chosen, *settings]]
        fits += [tools.notch(x, z, width, delay) for width in windows]
        gp = cgp.ExactGP(RBF(), mean=means.Rational(1))
        gp.fit(x, z, restarts=4, verbose=0)
        responses = [fit(x_new) for fit in fits]
        best = min(responses, key=lambda one: np.sum(np.abs(one - truth) ** 2))
        region = gp.predict(x_new)
        regions.append({"truth": truth, "blind": responses[0], "best": best} | region)
        quality = gp.mean.poles_with_errors().quality_factors[0]
        wrong = np.abs(np.array([fit.quality for fit in fits] + [quality]) / loaded - 1)
        q_errors.append([wrong[0], wrong[:-1].min(), wrong[-1]])
    whole = {name: np.concatenate([of[name] for of in regions]) for name in regions[0]}
    truth, blind, best = (whole.pop(name) for name in ("truth", "blind", "best"))
    q_figures = 10 * np.log10(np.mean(np.square(q_errors), axis=0))
    return [figure("S between points", truth, blind, [best], whole), Figure("Q", *q_figures)]


# --- 3 and 4 -------------------------------------------------------------------------------------


def induction_decay(rng):
    """512 samples of eight lines: a singlet, two doublets and a triplet, all of one phase."""
    n, signal = np.arange(512), 0.0
    for weights in ([1], [1, 1], [1, 2, 1], [1, 1]):
        centre, coupling = rng.uniform(-0.4, 0.4), rng.uniform(0.012, 0.03)
        rate, size = 1 / rng.uniform(60, 200), rng.uniform(0.5, 2.0) / sum(weights)
        for k, weight in enumerate(weights):
            place = centre + coupling * (k - (len(weights) - 1) / 2)
            signal = signal + size * weight * np.exp((2j * np.pi * place - rate) * n)
    return n, signal * np.exp(2j * np.pi * rng.uniform())


def exponentials(orders, **trend):
    return {f"{k}": cgp.ExactGP(Zero(), mean=means.Exponentials(k, **trend)) for k in orders}


def simplest(models, x, z, **fit):
    """The model of the lowest order whose density in cross-validation is the best but for 0.05.

    As `docs/choosing.md` has it: of densities that differ by hundredths, the simpler model. The
    orders ascend. Returns the comparison too, whose mixture is for comparison.
    """
    comparison = cgp.compare(models, x, z, verbose=0, **fit)
    densities = {name: comparison[name].calibrated_density for name in comparison}
    least = max(densities.values()) - 0.05
    return models[next(name for name in models if densities[name] >= least)], comparison


def noisy_nmr(seed):
    """A decay at 6 dB, of which the signal is wanted at the samples."""
    rng = np.random.default_rng(300 + seed)
    n, truth = induction_decay(rng)
    z, orders = with_noise(rng, truth, 6.0), range(1, 17)
    estimates = [*tools.cadzow(z, orders)]
    lengths = [tools.description_length(z, *pair) for pair in zip(estimates, orders, strict=True)]
    others = [*estimates, *tools.cadzow(z, orders, iterations=1)]
    gp, comparison = simplest(exponentials((6, 8, 10, 12)), n, z, restarts=1)
    blind, mixture = estimates[np.argmin(lengths)], comparison.predict(n)["mean"]
    return [figure("signal", truth, blind, others, gp.predict(n), mixture)]


def sparse_nmr(seed):
    """The same at 20 dB and at 96 of its times; the others are wanted."""
    rng = np.random.default_rng(400 + seed)
    n, truth = induction_decay(rng)
    shares = np.exp(-n / 250)  # early times more often, as is usual
    at = np.sort(rng.choice(512, 96, replace=False, p=shares / shares.sum()))
    z = with_noise(rng, truth, 20.0)
    other = np.setdiff1d(n, at)
    levels = [*np.geomspace(0.5, 0.002, 12)]
    level = tools.blind(tools.soft_thresholding, levels, at, z[at])
    estimates = [tools.soft_thresholding(at, z[at], one, other) for one in levels]
    gp, comparison = simplest(exponentials((6, 8, 10, 12)), at, z[at], restarts=1)
    blind, mixture = estimates[levels.index(level)], comparison.predict(other)["mean"]
    return [figure("other times", truth[other], blind, estimates, gp.predict(other), mixture)]


# --- 5 -------------------------------------------------------------------------------------------


def cell_impedance(seed):
    """A cell from 10 mHz to 100 kHz in noise of 1 % of |Z|; 48 frequencies, and 12 others."""
    rng, f = np.random.default_rng(500 + seed), np.geomspace(1e-2, 1e5, 60)
    w, z = 2j * np.pi * f, 0.02 * rng.uniform(0.8, 1.2)
    for resistance, rate in ((0.03, 3e3), (0.06, 30.0)):
        exponent = rng.uniform(0.75, 0.95)
        turned = w / (2 * np.pi * rate * np.exp(rng.uniform(-0.5, 0.5)))
        z = z + resistance * rng.uniform(0.7, 1.3) / (1 + turned**exponent)
    truth = z + 0.01 * rng.uniform(0.7, 1.3) / np.sqrt(w)
    z = truth + 0.01 * np.abs(truth) * normal(rng, f.size)
    out = np.zeros(f.size, bool)
    out[rng.permutation(np.arange(1, f.size - 1))[:12]] = True
    settings = [("voigt", k) for k in range(3, 29)] + [("vector fitting", k) for k in range(2, 15)]
    measured = f[~out], z[~out]
    weights = 1 / np.abs(z[~out]) ** 2
    chosen = tools.blind(tools.impedance, settings, *measured, weights)
    estimates = [tools.impedance(*measured, one, f[out], weights) for one in settings]
    resistance = WidelyLinear(Constant(), 1.0, fixed="coefficient")
    gp = cgp.ExactGP(resistance + RelaxationTimes(), noise_fraction=None)
    gp.fit(*measured, verbose=0)
    region = gp.predict(f[out])
    unit = 1 / np.abs(truth[out])  # errors are relative, as the noise is
    region = {name: m * (unit if name == "mean" else unit**2) for name, m in region.items()}
    estimates = [one * unit for one in estimates]
    blind = estimates[settings.index(chosen)]
    return [figure("Z over its modulus", truth[out] * unit, blind, estimates, region)]


# --- 6 and 10 ------------------------------------------------------------------------------------


def by_rational(f, z, measured, truth, settings, models):
    """The figure of rational functions and of models of cgp at the lines held out."""
    chosen = tools.blind(tools.rational, settings, f[measured], z[measured])
    estimates = [tools.rational(f[measured], z[measured], one, f[~measured]) for one in settings]
    gp, comparison = simplest(models, f[measured], z[measured], restarts=1)
    blind, mixture = estimates[settings.index(chosen)], comparison.predict(f[~measured])["mean"]
    region = gp.predict(f[~measured])
    return [figure("other lines", truth[~measured], blind, estimates, region, mixture)]


def modal_analysis(seed):
    """Accelerance of five modes over 0 to 300 Hz, at every other line of 0.5 Hz, at 40 dB."""
    rng, f = np.random.default_rng(600 + seed), 0.5 * np.arange(1, 601)
    s, truth = 2j * np.pi * f, 0.0
    for centre in (60, 100, 150, 200, 260):
        place, damping = 2 * np.pi * (centre + rng.uniform(-18, 18)), rng.uniform(0.004, 0.01)
        size = rng.choice([-1, 1]) * rng.uniform(0.3, 1.0)
        truth = truth + size * s**2 / (s**2 + 2 * damping * place * s + place**2)
    z, measured = with_noise(rng, truth, 40.0), np.arange(f.size) % 2 == 0
    settings = [("vector fitting", k) for k in range(3, 9)]
    settings += [("AAA", k) for k in range(6, 25, 2)]
    models = {
        f"{k}": cgp.ExactGP(Zero(), mean=means.Rational(k, real_response=True)) for k in (4, 5, 6)
    }
    return by_rational(f, z, measured, truth, settings, models)


def room_acoustics(seed):
    """A shoebox room from 20 to 200 Hz, reverberation 0.5 s, a third of its lines at 30 dB."""
    rng, f, speed = np.random.default_rng(1000 + seed), 20 + 0.5 * np.arange(361), 343.0
    sides = np.array([5.2, 4.1, 2.6])
    source, microphone = (sides * rng.uniform(0.1, 0.9, 3) for _ in range(2))
    n = np.stack(np.meshgrid(*[np.arange(20)] * 3), axis=-1).reshape(-1, 3)
    modes = np.pi * speed * np.linalg.norm(n / sides, axis=1)
    n, modes = n[modes < 2 * np.pi * 500], modes[modes < 2 * np.pi * 500]
    shapes = [np.prod(np.cos(np.pi * n * p / sides), axis=1) for p in (source, microphone)]
    sizes = shapes[0] * shapes[1] * np.prod(np.where(n > 0, 2.0, 1.0), axis=1)
    w, decay = 2 * np.pi * f[:, None], np.log(1000) / 0.5
    truth = (1j * w / (modes**2 + 2j * w * decay - w**2)) @ sizes
    z, measured = with_noise(rng, truth, 30.0), np.arange(f.size) % 3 == 0
    settings = [("vector fitting", k) for k in (5, 10, 15, 20, 25)]
    settings += [("AAA", k) for k in range(10, 61, 5)]
    models = {"0": cgp.ExactGP(Szego(real_response=True))}
    for k in (5, 10):
        mean = means.Rational(k, real_response=True)
        models[f"{k}"] = cgp.ExactGP(Szego(real_response=True), mean=mean)
    return by_rational(f, z, measured, truth, settings, models)


# --- 7 -------------------------------------------------------------------------------------------


def fading_channel(seed):
    """Jakes' fading of 0.05 cycles a sample at 35 dB: 400 to learn from, 190 origins after them."""
    rng, n, ahead = np.random.default_rng(700 + seed), np.arange(600), 10
    root = cholesky(toeplitz(j0(2 * np.pi * 0.05 * n)) + 1e-9 * np.eye(n.size), lower=True)
    h = root @ normal(rng, n.size)
    z, origins = h + 10 ** (-35 / 20) * normal(rng, n.size), np.arange(400, n.size - ahead)
    truth = np.stack([h[o + 1 : o + 1 + ahead] for o in origins])
    fits = [*tools.burg(z[:400], 60)]
    forecasts = [tools.forecast(z, a, origins, ahead) for a, _ in fits]
    criterion = [400 * np.log(power) + 2 * a.size for a, power in fits]
    gp = cgp.StateSpaceGP(Autoregressive(48))
    gp.fit(1.0 * n[:400], z[:400], epochs=30, verbose=0)
    gp.condition(1.0 * n, z)
    region = gp.forecasts(1.0 + np.arange(ahead))
    figures = []
    for step in (1, 5, 10):
        blind, *others = (one[:, step - 1] for one in [forecasts[np.argmin(criterion)], *forecasts])
        of_step = {name: np.asarray(m)[origins, step - 1] for name, m in region.items()}
        figures.append(figure(f"{step} ahead", truth[:, step - 1], blind, others, of_step))
    return figures


# --- 8 -------------------------------------------------------------------------------------------


def wifi_channel(seed):
    """52 subcarriers from 13 pilots at 20 dB, after 60 noisy series; 30 packets."""
    rng, noise = np.random.default_rng(800 + seed), 0.01
    f = 0.3125 * np.setdiff1d(np.arange(-26, 27), [0])  # MHz
    delays = np.sort(rng.exponential(0.08, 8))  # µs
    sources = normal(rng, 8, 4) * np.exp(-delays[:, None] / 0.16)  # paths share scatterers
    edge = 1 / (1 + (f / 9.0) ** 8) * (1 + 0.15 * np.cos(2 * np.pi * f / 4 + rng.uniform(0, 6)))
    paths = edge * np.exp(-2j * np.pi * delays[:, None] * f)
    h = normal(rng, 90, 4) @ sources.T @ paths
    h /= np.sqrt(np.mean(np.abs(h) ** 2))
    z, pilots = h + np.sqrt(noise) * normal(rng, *h.shape), np.arange(0, 52, 4)
    earlier, now, truth = z[:60], z[60:, pilots], h[60:]
    settings = [("shrunk", a) for a in (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)]
    settings += [("loaded", a) for a in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)]
    scores = np.zeros(len(settings))
    for fold in range(5):
        out = np.arange(60) % 5 == fold
        for k, one in enumerate(settings):
            mean = tools.lmmse(earlier[~out], noise, earlier[out][:, pilots], pilots, one)
            wrong = np.delete(np.abs(mean - earlier[out]) ** 2, pilots, axis=1)
            scores[k] += wrong.sum()
    between = np.setdiff1d(np.arange(52), pilots)
    estimates = [tools.lmmse(earlier, noise, now, pilots, s)[:, between] for s in settings]
    gp = cgp.ExactGP(Empirical.from_series(f, earlier, noise_variance=noise), noise)
    gp.condition(f[pilots], now)
    region = gp.predict(f[between])
    return [
        figure("between pilots", truth[:, between], estimates[np.argmin(scores)], estimates, region)
    ]


# --- 9 -------------------------------------------------------------------------------------------


def grid_ringdown(seed):
    """Three swings of a grid over 20 s at 30 frames/s, 20 dB, on a drift; 15 s are seen."""
    rng, t = np.random.default_rng(900 + seed), np.arange(600) / 30
    centres = np.array([0.3, 0.6, 1.0]) + rng.uniform(-0.1, 0.1, 3)
    damping, rate = rng.uniform(0.03, 0.1, 3), 2 * np.pi * centres
    modes = np.exp((-damping * rate + 1j * rate * np.sqrt(1 - damping**2)) * t[:, None])
    truth = modes @ (rng.uniform(0.5, 1.0, 3) * np.exp(2j * np.pi * rng.uniform(size=3)))
    truth = truth + 0.1 * (normal(rng, 1) + normal(rng, 1) * t / 20)
    z, seen, orders = with_noise(rng, truth, 20.0), t < 15, range(1, 13)

    def errors(poles, sizes):
        """Relative errors of the damping of the largest mode near each true one."""
        frequencies = poles.imag / (2 * np.pi)
        for centre, of in zip(centres, damping, strict=True):
            near = np.abs(frequencies - centre) < 0.1
            if not near.any():
                near = np.abs(frequencies - centre) == np.abs(frequencies - centre).min()
            pole = poles[near][np.argmax(np.abs(sizes[near]))]
            yield -pole.real / np.abs(pole) / of - 1

    forecasts, ratios, lengths = [], [], []
    trend = np.polyval(np.polyfit(t[seen], z[seen], 1), t)
    for base in (0 * trend, trend):
        for order, (poles, sizes) in zip(
            orders, tools.matrix_pencil((z - base)[seen], orders), strict=True
        ):
            whole = poles ** np.arange(t.size)[:, None] @ sizes + base
            forecasts.append(whole[~seen])
            ratios.append([*errors(30 * np.log(poles), sizes)])
            lengths.append(tools.description_length(z[seen], whole[seen], order))
    blind = int(np.argmin(lengths[: len(orders)]))
    gp, comparison = simplest(exponentials((2, 3, 4, 5), trend=1), t[seen], z[seen], restarts=1)
    mixture, of = comparison.predict(t[~seen])["mean"], gp.mean.modes_with_errors()
    poles = -of.decay_rates + 2j * np.pi * of.frequencies
    squares = np.mean(np.square([*ratios, [*errors(poles, of.amplitudes)]]), axis=1)
    q = 10 * np.log10([squares[blind], squares[:-1].min(), squares[-1]])
    return [
        figure(
            "last 5 s", truth[~seen], forecasts[blind], forecasts, gp.predict(t[~seen]), mixture
        ),
        Figure("damping ratios", *q),
    ]


# --- all of them ---------------------------------------------------------------------------------


class Problem(NamedTuple):
    trade: str
    task: str
    tool: str
    run: Callable[[int], list[Figure]]
    seeds: int = 5


PROBLEMS = {
    "vlbi_gains": Problem(
        "VLBI", "gains of a station", "splines or windows of amplitude and phase", vlbi_gains
    ),
    "notch_resonator": Problem(
        "cryogenic microwaves", "a notch resonator", "circle fit", notch_resonator, 3
    ),
    "noisy_nmr": Problem("NMR", "a noisy decay", "Cadzow", noisy_nmr, 3),
    "sparse_nmr": Problem("NMR", "96 samples of 512", "soft thresholding", sparse_nmr, 3),
    "cell_impedance": Problem(
        "batteries", "impedance of a cell", "Voigt elements or vector fitting", cell_impedance
    ),
    "modal_analysis": Problem(
        "structures", "five modes", "vector fitting or AAA", modal_analysis, 3
    ),
    "fading_channel": Problem("radio", "forecasts of fading", "Burg", fading_channel, 3),
    "wifi_channel": Problem("Wi-Fi", "52 subcarriers", "LMMSE, loaded", wifi_channel),
    "grid_ringdown": Problem("power grids", "a ring-down", "matrix pencil", grid_ringdown),
    "room_acoustics": Problem(
        "room acoustics", "a transfer function", "vector fitting or AAA", room_acoustics, 3
    ),
}


WHY = {
    ("grid_ringdown", "damping ratios"): "by chance, as 12 more draws of noise show",
}


def solve(name, seeds):
    """The rows of a problem: medians of errors over seeds, the errors of each, and coverage."""
    by_seed = []
    for seed in range(seeds):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of wrong orders, by compare
            by_seed.append(PROBLEMS[name].run(seed))
    rows = []
    for figures in zip(*by_seed, strict=True):
        errors = {way: [float(getattr(f, way)) for f in figures] for way in WAYS}
        count = sum(int(f.count) for f in figures)
        inside = sum(float(f.inside) * int(f.count) for f in figures if f.count)
        row: dict[str, object] = {"name": name, "of": figures[0].of, "seeds": seeds}
        row |= {way: float(np.median(e)) for way, e in errors.items()}
        row |= {"coverage": inside / count if count else None, "count": count, "each": errors}
        mixtures = [float(f.mixture) for f in figures]
        if np.isfinite(mixtures).all():
            row["mixture"] = float(np.median(mixtures))
        rows.append(row)
    return rows


WAYS = "blind", "hindsight", "cgp"


def verdict(row):
    difference = row["cgp"] - row["blind"]
    return "tie" if abs(difference) < TIE else "gain" if difference < 0 else "loss"


def reason(row):
    """Why cgp loses by more than half a decibel; empty otherwise."""
    return WHY.get((row["name"], row["of"]), "") if row["cgp"] > row["blind"] + 0.5 else ""


def table(rows):
    """The table of the page."""
    lines = ["| trade | error of | tool, blind / hindsight | its error | cgp | | in 95 % |"]
    lines.append("| --- | --- | --- | ---: | ---: | --- | ---: |")
    for row in rows:
        problem = PROBLEMS[row["name"]]
        share = row["coverage"]
        cells = [
            problem.trade,
            f"{problem.task}: {row['of']}",
            problem.tool,
            f"{row['blind']:.2f} / {row['hindsight']:.2f}".replace("-", "−"),
            f"{row['cgp']:.2f}".replace("-", "−"),
            ": ".join(filter(None, (verdict(row), reason(row)))),
            "–" if share is None else f"{share:.0%}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROBLEMS) + "; or all")
    parser.add_argument("--quick", action="store_true", help="one seed, nothing written")
    parser.add_argument("--render", action="store_true", help="run nothing, write the table")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(PROBLEMS)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}; choose from {', '.join(PROBLEMS)}")
    record = RESULTS / "ten_problems.json"
    rows = json.loads(record.read_text())["rows"] if record.exists() else []
    names = [] if arguments.render else arguments.names or [*PROBLEMS]
    for number, name in enumerate(names, 1):
        start = time.monotonic()
        new = solve(name, 1 if arguments.quick else PROBLEMS[name].seeds)
        print(f"{number} of {len(names)}, {name}, {time.monotonic() - start:.0f} s", flush=True)
        print(table(new).split("\n", 2)[2], flush=True)
        rows = [row for row in rows if row["name"] != name] + new
    if not arguments.quick:
        rows.sort(key=lambda row: [*PROBLEMS].index(row["name"]))
        if names:
            save("ten_problems", rows, "scikit-rf")
        if PAGE.exists():
            mark = re.compile(r"(<!-- table -->\n).*?(<!-- end -->)", re.DOTALL)
            text = PAGE.read_text(encoding="utf-8")
            PAGE.write_text(mark.sub(rf"\g<1>{table(rows)}\n\g<2>", text), encoding="utf-8")
    inside = sum(row["coverage"] * row["count"] for row in rows if row["count"])
    count = sum(row["count"] for row in rows)
    print(f"{inside / count:.1%} of {count} values are in regions of 95 %")


if __name__ == "__main__":
    main()
