"""A track among false alarms: an observation outside of its gate is skipped.

A ship is located as a complex number, east + i north, by a radar which looks at irregular times, as
it has other ships to look after. One look in ten finds nothing, and one detection in six is a false
alarm, anywhere within a kilometre. The state is position and velocity. F and Q of a step depend on
the time to the next look:

    kf.step(z, F=F(gap), Q=Q(gap), gate=0.999)

The gate is the circle around the prediction which holds a right detection with probability 99.9 %.
What lies outside is skipped, as if it were missing; predictions become less certain meanwhile, and
the gate widens.

Compared are the same filter without a gate, and what is used without a filter: the median of the
latest detections, and the end of a straight line through them by least squares; their number is the
best one in hindsight. The limit is a filter that is told which detections are false.

Expect the gate to skip 99 % of the false alarms and 1 % of the right detections, and the error of
the median ship to be within 5 % of the limit, a ninth of that of the best median and less than a
tenth of that without a gate. Expect one ship in a hundred to be lost, and most of the right
detections that are skipped to be hers: a false alarm inside of the gate leads the filter astray,
and what is right is outside from then on. A tracker in use begins such a track again.

Run it with: python examples/gated_track.py (some ten seconds)
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import cgp

SHIPS, LENGTH, SETTLED = 100, 200, 20  # ships; looks at each, and from which on errors count
NOISE, START = 20.0, (20.0, 10.0)  # m; m and m/s, of position and velocity when a track begins
MISSED, FALSE, REACH = 0.1, 1 / 6, 1000.0  # shares of looks and of detections; m
TURNS = 0.1  # m²/s³: the power of the acceleration, in both directions together
GATE, LOST = 0.999, 200.0  # the probability; m, a ship whose error is larger at the end is lost
PICTURE = Path(__file__).with_suffix(".png")


def transition(gap):
    """F and Q `[B, 2, 2]` of position and velocity, for white acceleration over gaps `[B]` in s."""
    ones, zeros = np.ones_like(gap), np.zeros_like(gap)
    F = np.array([[ones, gap], [zeros, ones]])
    Q = TURNS * np.array([[gap**3 / 3, gap**2 / 2], [gap**2 / 2, gap]])
    return np.moveaxis(F, -1, 0), np.moveaxis(Q, -1, 0)


def simulated(ships, rng):
    """Gaps to the next look, positions, detections and whether they are false, each `[T, B]`."""

    def normal(*shape):
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)) / np.sqrt(2)

    gaps = 0.2 + rng.exponential(2.0, (LENGTH, ships))
    positions, state = np.empty((LENGTH, ships), complex), normal(ships, 2) * START
    for t, gap in enumerate(gaps):
        positions[t] = state[:, 0]
        F, Q = transition(gap)
        shocks = np.linalg.cholesky(Q) @ normal(ships, 2)[..., None]
        state = (F @ state[..., None] + shocks)[..., 0]
    false = rng.random((LENGTH, ships)) < FALSE
    reach = REACH * np.sqrt(rng.random(false.shape)) * np.exp(2j * np.pi * rng.random(false.shape))
    z = positions + np.where(false, reach, NOISE * normal(LENGTH, ships))
    return gaps, positions, np.where(rng.random(false.shape) < MISSED, np.nan, z), false


def tracked(gaps, z, gate=None):
    """The steps of a filter, stacked over time: `[T, B, ...]`."""
    model = cgp.statespace.LinearGaussian(
        F=np.eye(2),  # in place of these F and Q each step has its own
        Q=np.eye(2),
        H=[[1.0, 0.0]],
        R=[[NOISE**2 + 0j]],
        initial_mean=[0.0, 0.0],
        initial_covariance=np.diag(np.square(START)),
    )
    kf = cgp.KalmanFilter(model)
    steps = []
    for detections, gap in zip(z, gaps, strict=True):
        F, Q = transition(gap)
        steps.append(kf.step(detections[:, None], F=F, Q=Q, gate=gate))
    return cgp.distributions.Step.stack(steps, axis=0)


def latest_detections(gaps, z, count):
    """Medians, and ends of straight lines, of the latest detections: positions `[T, B]` of both."""
    times = np.cumsum(gaps, axis=0) - gaps
    median, line = np.full_like(z, np.nan), np.full_like(z, np.nan)
    for t in range(SETTLED, len(z)):
        latest = z[t - count + 1 : t + 1]
        age = np.where(np.isnan(latest), np.nan, times[t - count + 1 : t + 1] - times[t])
        median[t] = np.nanmedian(latest.real, axis=0) + 1j * np.nanmedian(latest.imag, axis=0)
        centred = age - np.nanmean(age, axis=0)
        slope = np.nansum(centred * latest, axis=0) / np.nansum(centred**2, axis=0)
        line[t] = np.nanmean(latest, axis=0) - slope * np.nanmean(age, axis=0)
    return median, line


def draw(positions, z, estimates, gated, path):
    figure, (plane, distance) = plt.subplots(
        1, 2, figsize=(11, 4.5), width_ratios=(2, 3), layout="constrained"
    )
    skipped = gated.outside_gate[:, 0]
    plane.plot(z[~skipped, 0].real, z[~skipped, 0].imag, ".", color="0.5", label="detections")
    plane.plot(z[skipped, 0].real, z[skipped, 0].imag, "x", color="#c0392b", label="skipped")
    for name, color in (("filter", "#d58a1f"), ("filter with a gate", "#1f5fa8")):
        path_of = estimates[name][:, 0]
        plane.plot(path_of.real, path_of.imag, color=color, label=name)
        error = np.abs(estimates[name] - positions)[:, 0]
        distance.semilogy(error, color=color)
    plane.plot(positions[:, 0].real, positions[:, 0].imag, "k:", label="ship")
    plane.set(xlabel="east (m)", ylabel="north (m)", aspect="equal", adjustable="datalim")
    plane.legend(frameon=False, fontsize="small")
    distance.set(xlabel="look", ylabel="distance from the ship (m)")
    for ax in (plane, distance):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"\npicture: {path}")


def main(ships=SHIPS, picture=PICTURE):
    """Prints the figures, saves the picture, and returns the figures."""
    gaps, positions, z, false = simulated(ships, np.random.default_rng(0))

    def errors(estimates):  # of each ship
        return np.sqrt(np.mean(np.abs(estimates - positions)[SETTLED:] ** 2, axis=0))

    def typical(estimates):
        return float(np.median(errors(estimates)))

    gated = tracked(gaps, z, gate=GATE)
    medians, lines = zip(*(latest_detections(gaps, z, n) for n in (6, 7, 9, 13)), strict=True)
    estimates = {
        "median of detections": min(medians, key=typical),
        "straight line": min(lines, key=typical),
        "filter": tracked(gaps, z).filtered.mean[..., 0],
        "filter with a gate": gated.filtered.mean[..., 0],
        "told the false alarms": tracked(gaps, np.where(false, np.nan, z)).filtered.mean[..., 0],
    }
    figures = {}
    print(f"{ships} ships{'':16}error of the median ship, m     lost")
    for name, estimate in estimates.items():
        lost = np.mean(np.abs(estimate - positions)[-5:].min(axis=0) > LOST)
        figures[name] = typical(estimate), float(lost)
        print(f"{name:24}{figures[name][0]:25.1f}{lost:9.1%}")
    detected = ~np.isnan(z)
    skipped = [float(gated.outside_gate[detected & of].mean()) for of in (false, ~false)]
    print(f"skipped: {skipped[0]:.1%} of false alarms, {skipped[1]:.1%} of right detections")
    draw(positions, z, estimates, gated, picture)
    return figures, skipped


if __name__ == "__main__":
    main()
