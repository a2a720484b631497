"""A fading carrier with strong phase noise, tracked down to where loops lose lock.

The phase of an oscillator is a random walk with steps of half a radian per sample, its frequency
drifts, and its amplitude fades. The receiver observes `exp(g + iφ)` in noise a few decibels below
the carrier. The state (φ, its rate, g) is real and has linear dynamics; the observation is complex
and nonlinear, with proper noise. This is a `NonlinearGaussian`; the filters differ only in their
rule:

    extended              linearised at the predicted phase: the usual extended Kalman filter
    unscented             by the spread of the prediction, at seven points
    Gauss–Hermite         the same at 27 points
    iterated              about the posterior given the sample: posterior linearisation
    iterated, smoothed    the whole series linearised again about its smoothed phases

They are compared with a second-order phase-locked loop, whose two gains are the best of a search on
other series at each level of noise; a particle filter, which does not linearise and takes a
thousand times as long; and the posterior Cramér–Rao bound (Tichavský, Muravchik & Nehorai, IEEE
Trans. Signal Process. 46, 1998), a lower bound on the error of any filter without cycle slips.

A phase is determined up to whole turns. The error is the wrapped one, and a cycle slip is counted
where the unwrapped estimate changes by a turn.

What to learn from it: the phase is predicted with an error of half a radian. A filter that
linearises the observation about this prediction, at one point or at many, loses information of a
strong carrier, and a loop is better. Linearised about the posterior given the sample itself, the
same filter is as good as the particles. Below 6 dB the posterior often has modes at several turns,
which no normal distribution describes: slips become as frequent for all filters, and none of the
variances should be trusted there.

Run it with: python examples/carrier_tracking.py (under three minutes)
"""

from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

from cgp import statespace
from cgp.statespace import Iterated, SigmaPoints, Taylor

SNR = (12.0, 9.0, 6.0, 3.0)  # of a carrier of amplitude 1, dB
SERIES, LENGTH, SETTLED = 120, 300, 50
NEAR, COMPARED, PARTICLES = 6.0, 16, 100_000  # where, and on how many series, particles compare
PHASE_NOISE = 0.25  # variance of a step, rad²
RATE_NOISE, RATE_DECAY = 1e-5, 0.99
FADING, FADING_DECAY = 0.3**2, 0.98  # variance of the logarithm of the amplitude
F = np.array([[1.0, 1.0, 0.0], [0.0, RATE_DECAY, 0.0], [0.0, 0.0, FADING_DECAY]])
Q = np.diag([PHASE_NOISE, RATE_NOISE, FADING * (1.0 - FADING_DECAY**2)])
START = np.zeros(3)
SPREAD = np.diag([0.1, RATE_NOISE / (1.0 - RATE_DECAY**2), FADING])
RULES = {
    "extended": Taylor(),
    "unscented": SigmaPoints("unscented"),
    "Gauss–Hermite": SigmaPoints("gauss-hermite", order=3),
    "iterated": Iterated(SigmaPoints("cubature"), iterations=5),
}
PICTURE = Path(__file__).with_suffix(".png")


# --- the model ------------------------------------------------------------------------------------


def transition(x):
    """Phase, rate and log amplitude one sample later."""
    return tf.linalg.matvec(tf.constant(F), x)


def carrier(x):
    """What an antenna sees of them."""
    phase, log_amplitude = x[..., :1], x[..., 2:]
    return tf.exp(tf.complex(log_amplitude, phase))


def phasor(x):
    """exp(iφ), whose mean has the phase of least expected 1 − cos(error)."""
    return tf.exp(tf.complex(tf.zeros_like(x[..., :1]), x[..., :1]))


def noise_variance(snr):
    return 10.0 ** (-snr / 10.0)


MODEL = statespace.NonlinearGaussian(transition, carrier, Q, [[1.0]], START, SPREAD)


# --- the baselines --------------------------------------------------------------------------------


def phase_locked_loop(z, proportional, integral):
    """A loop of second order with a detector of the angle; phases, `[B, T]`."""
    phase, rate, found = np.zeros(len(z)), np.zeros(len(z)), []
    for value in z.T:
        error = np.angle(value * np.exp(-1j * phase))
        phase = phase + proportional * error
        found.append(phase)
        rate = rate + integral * error
        phase = phase + rate
    return np.stack(found, axis=1)


def best_loop(snr):
    """The gains of least error on series that are not those of the comparison."""
    states, z = drawn(snr, seed=101)
    gains = [(p, i) for p in np.linspace(0.1, 0.9, 17) for i in (0.0, 1e-4, 1e-3, 1e-2)]
    errors = [score(phase_locked_loop(z, *g), states).error for g in gains]
    return gains[int(np.argmin(errors))]


def cramer_rao_bound(snr):
    """The posterior bound of the variance of the phase at each sample, `[T]`.

    A sample tells `2 E exp(2g) / R` of the phase, and as much of the log amplitude; the phase
    itself has no part in it, so that the bound obeys a Kalman filter's recursion.
    """
    told = 2.0 * np.exp(2.0 * FADING) / noise_variance(snr) * np.diag([1.0, 0.0, 1.0])
    covariance, bounds = SPREAD, []
    for _ in range(LENGTH):
        covariance = np.linalg.inv(np.linalg.inv(covariance) + told)
        bounds.append(covariance[0, 0])
        covariance = F @ covariance @ F.T + Q
    return np.array(bounds)


# --- the comparison -------------------------------------------------------------------------------


class Score(NamedTuple):
    error: float
    """Mean square of the wrapped error of the phase, rad²."""
    slips: float
    """Cycle slips for 10,000 samples."""


def drawn(snr, seed):
    """States `[B, T, 3]` and samples `[B, T]`."""
    model = MODEL.replace(R=[[noise_variance(snr)]])
    states, z = statespace.sample(model, LENGTH, (SERIES,), seed=seed)
    return states.numpy(), z.numpy()[..., 0]


def score(phases, states):
    """How well phases `[B, T]` are those of the first series of the states."""
    deviation = (phases - states[: len(phases), :, 0])[:, SETTLED:]
    wrapped = np.angle(np.exp(1j * deviation))
    slips = np.count_nonzero(np.diff(np.round(deviation / (2 * np.pi)), axis=1))
    return Score(np.mean(wrapped**2), 1e4 * slips / deviation[:, 1:].size)


def by_particles(model, z):
    """Phases of the particle filter's mean phasor, `[B, T]`, unwrapped."""
    found = [
        statespace.particle_filter(model, series[:, None], PARTICLES, seed=i, expectation=phasor)
        for i, series in enumerate(z)
    ]
    return np.unwrap([np.angle(one.expectations[:, 0]) for one in found], axis=1)


def compare(snr, seed=7):
    """Phases `[B, T]` and scores of all but the particle filter at one level, and the series."""
    states, z = drawn(snr, seed)
    model = MODEL.replace(R=[[noise_variance(snr)]])
    phases = {"phase-locked loop": phase_locked_loop(z, *best_loop(snr))}
    for name, rule in RULES.items():
        phases[name] = statespace.filter(model, z[..., None], rule=rule).filtered_means[..., 0]
    smoothed = statespace.smooth(model, z[..., None], rule=RULES["iterated"])
    phases["iterated, smoothed"] = smoothed.smoothed_means[..., 0]
    phases = {name: np.asarray(value) for name, value in phases.items()}
    scores = {name: score(value, states) for name, value in phases.items()}
    return phases, scores, states, z


def behind_particles(phases, states, z, snr):
    """How far each filter is behind the particle filter, dB, and the latter's score."""
    model = MODEL.replace(R=[[noise_variance(snr)]])
    best = score(by_particles(model, z[:COMPARED]), states)
    behind = {
        name: decibel(score(value[:COMPARED], states).error / best.error)
        for name, value in phases.items()
        if "smoothed" not in name  # knows what comes after
    }
    return behind, best


def main(levels=SNR, near=NEAR, picture=PICTURE):
    """Prints the tables and draws the picture; the scores by level, and those behind particles."""
    found = {level: compare(level) for level in levels}
    scores = {level: of_level[1] for level, of_level in found.items()}
    bounds = {level: np.mean(cramer_rao_bound(level)[SETTLED:]) for level in levels}
    phases, _, states, z = found[near]
    behind, best = behind_particles(phases, states, z, near)

    def row(name, values):
        print(f"{name:22s}" + "".join(f"{value:>16s}" for value in values))

    print(f"{SERIES} series of {LENGTH} samples: mean square error of the phase, dB re 1 rad², and")
    print("cycle slips for 10,000 samples\n")
    row("carrier over noise, dB", [f"{level:.0f}       " for level in levels])
    for name in phases:
        of_levels = [scores[level][name] for level in levels]
        row(name, [f"{decibel(s.error):.2f} ({s.slips:5.1f})" for s in of_levels])
    row("Cramér–Rao bound", [f"{decibel(bounds[level]):.2f}        " for level in levels])
    print(
        f"\nAt {near:.0f} dB, {COMPARED} series: behind {PARTICLES} particles, which slip", end=" "
    )
    print(f"{best.slips:.1f} times, dB")
    for name, value in behind.items():
        row(name, [f"{value:.2f}        "])
    draw(scores, bounds, found[near], near, picture)
    return scores, behind


def decibel(power):
    return 10.0 * np.log10(power)


def draw(scores, bounds, of_near, near, picture):
    """Errors over the level of noise, and a series that the extended filter loses."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    levels = list(scores)
    for name in ["phase-locked loop", *RULES]:
        errors = [decibel(scores[level][name].error) for level in levels]
        left.plot(levels, errors, "o-", label=name)
    left.plot(levels, [decibel(bounds[level]) for level in levels], "k--", label="Cramér–Rao bound")
    left.set(xlabel="carrier over noise, dB", ylabel="phase error, dB re 1 rad²")
    left.legend(fontsize="small")
    phases, _, states, _ = of_near
    last = {name: np.abs(value - states[..., 0])[:, -1] for name, value in phases.items()}
    series = int(np.argmax(last["extended"] - last["iterated"]))
    right.plot(states[series, :, 0], "k", lw=2, label="true phase")
    for name in ("phase-locked loop", "extended", "iterated"):
        right.plot(phases[name][series], lw=1, label=name)
    title = f"The series that the extended filter loses furthest, {near:.0f} dB"
    right.set(xlabel="sample", ylabel="phase, rad", title=title)
    right.legend(fontsize="small")
    figure.savefig(picture, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
