"""Doppler beside range: a track whose place and rate are measured by different instruments.

A vehicle moves in a plane, at p = east + i north. One instrument tells its place every few seconds,
within some metres, and now and then not at all; another its velocity, from the Doppler shift of the
same transmissions, every second and within some centimetres a second: so do receivers of satellite
navigation, radars and sonars, as a phase is measured better than a delay. Neither is enough. The
velocities lack the origin, and their integral drifts; the places are coarse.

The velocity is the derivative of the place. A process of p takes both as data, each with its kind,

    gp.fit(t, z, observed=words, noise_groups=instrument)

"value" for a place and "derivative" for a velocity, and predicts p. Its kernel, a Matérn-5/2 about
an origin that is not known, is learned, and so is the noise of each instrument.

Compared, over 20 tracks of 300 s, with no places for a minute in the middle:

    places alone         the same process without velocities
    dead reckoning       the integral of the velocities, shifted and turned by a straight line in
                         time to fit the places best
    Kalman, best         the trade's smoother for a random walk of the velocity (Bar-Shalom, Li &
                         Kirubarajan, Estimation with Applications to Tracking and Navigation, 2001,
                         §6.2), with the true noises, and with the intensity of that walk which, in
                         hindsight, makes its error least
    both                 the process of places and velocities

Expect the velocities to carry the track across the gap, where places alone lose it by tens of
metres, and the learned process to be as good as the smoother tuned in hindsight. Dead reckoning
comes close, as the tracks are short and the velocities dense.

Run it with: python examples/doppler_beside_range.py (half a minute)
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import cgp
from cgp import statespace
from cgp.kernels import Constant, Matern52

TRACKS, SECONDS = 20, 300
EVERY, GAP = 5, (120, 180)  # s: from place to place, and where there are none
PLACE_NOISE, RATE_NOISE = 9.0, 0.02  # E|n|² of a place, m², and of a velocity, m²/s²
FINE = 10  # steps of the simulation in a second
INTENSITIES = 10.0 ** np.arange(-3.0, 1.1, 0.25)  # of the walk of the velocity, m²/s³
COLORS = {
    "places alone": "#c0392b",
    "dead reckoning": "#d08c1d",
    "Kalman, best": "#2e8b57",
    "both": "#1f5fa8",
}
PICTURE = Path(__file__).with_suffix(".png")


def tracks(rng):
    """Places (m) and velocities (m/s) at every second, `[tracks, T]`: speed and heading wander."""
    steps = SECONDS * FINE + 1

    def wandering(deviation, memory):
        """A smooth random walk about zero, of a memory in seconds, `[tracks, steps]`."""
        decay = np.exp(-1.0 / (memory * FINE))
        wander = np.zeros((2, TRACKS))
        values = []
        for kick in rng.normal(size=(steps, TRACKS)):
            wander[0] = decay * wander[0] + np.sqrt(1 - decay**2) * kick
            wander[1] = decay * wander[1] + (1 - decay) * wander[0]
            values.append(np.sqrt(2.0) * deviation * wander[1])
        return np.stack(values, axis=-1)

    heading = rng.uniform(0.0, 2 * np.pi, (TRACKS, 1)) + wandering(1.5, 20.0)
    velocity = (12.0 + wandering(3.0, 10.0)) * np.exp(1j * heading)
    middles = 0.5 * (velocity[:, 1:] + velocity[:, :-1]) / FINE
    place = np.concatenate([np.zeros((TRACKS, 1)), np.cumsum(middles, axis=-1)], axis=-1)
    return place[:, ::FINE], velocity[:, ::FINE]


def proper_noise(rng, variance, shape):
    return np.sqrt(variance / 2) * (rng.normal(size=shape) + 1j * rng.normal(size=shape))


def measured(rng, place, velocity):
    """Times, instrument (0 for places, 1 for velocities) and observations `[tracks, N]`."""
    t = np.arange(SECONDS + 1.0)
    has_place = (t % EVERY == 0) & ~((t > GAP[0]) & (t < GAP[1]))
    places = place[:, has_place]
    places = places + proper_noise(rng, PLACE_NOISE, places.shape)
    velocities = velocity + proper_noise(rng, RATE_NOISE, velocity.shape)
    times = np.concatenate([t[has_place], t])
    instrument = np.concatenate([np.zeros(places.shape[1], int), np.ones(len(t), int)])
    return times, instrument, np.concatenate([places, velocities], axis=-1)


def process(noise):
    """A smooth track about an origin anywhere, with the noise of each instrument."""
    scale = {"variance": 3e5, "lengthscale": 60.0}
    return cgp.StateSpaceGP(Matern52(**scale) + Constant(1e6, fixed="variance"), noise)


def dead_reckoning(t, instrument, times, z):
    """The integral of the velocities, with an offset and a drift fitted to the places."""
    velocities = z[:, instrument == 1]
    steps = 0.5 * (velocities[:, 1:] + velocities[:, :-1])
    integral = np.concatenate([np.zeros((len(z), 1)), np.cumsum(steps, axis=-1)], axis=-1)
    at = times[instrument == 0]
    lacks = z[:, instrument == 0] - integral[:, at.astype(int)]
    lines = np.stack([np.ones(len(t)), t], axis=-1)
    coefficients = np.linalg.lstsq(lines[at.astype(int)].astype(complex), lacks.T, rcond=None)[0]
    return integral + (lines @ coefficients).T


def random_velocity(t, instrument, times, z, intensity):
    """The smoothed place of a random walk of the velocity, `[tracks, T]`."""
    observations = np.full((len(z), len(t), 2), np.nan + 0j)
    for kind in (0, 1):
        observations[:, times[instrument == kind].astype(int), kind] = z[:, instrument == kind]
    model = statespace.LinearGaussian(
        F=np.array([[1.0, 1.0], [0.0, 1.0]]) + 0j,
        Q=intensity * np.array([[1 / 3, 1 / 2], [1 / 2, 1.0]]),
        H=np.eye(2),
        R=np.diag([PLACE_NOISE, RATE_NOISE]),
        initial_covariance=np.diag([1e6, 1e3]),
    )
    return statespace.smooth(model, observations).smoothed_means.numpy()[..., 0]


def errors(place, estimates, t):
    """The root mean square error of each track, in metres, all along and in the gap."""
    square = np.abs(estimates - place) ** 2
    inside = (t > GAP[0]) & (t < GAP[1])
    return np.sqrt(square.mean(axis=-1)), np.sqrt(square[:, inside].mean(axis=-1))


def draw(t, place, z, instrument, times, estimates, path):
    figure, (plane, distance) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    plane.plot(place[0].real, place[0].imag, color="0.75", linewidth=4, label="truth")
    places = z[0, instrument == 0]
    plane.plot(places.real, places.imag, "k.", markersize=4, label="places")
    for name, of in estimates.items():
        plane.plot(of[0].real, of[0].imag, color=COLORS[name], linewidth=1.2, label=name)
        rms = np.sqrt(np.mean(np.abs(of - place) ** 2, axis=0))
        distance.semilogy(t, rms, color=COLORS[name], label=name)
    plane.set(xlabel="east (m)", ylabel="north (m)", title="a track", aspect="equal")
    plane.legend(handles=plane.lines[:2], frameon=False, loc="lower left")
    distance.axvspan(*GAP, color="0.92", zorder=0)
    distance.set(xlabel="time (s)", ylabel="error (m)", title=f"error of {TRACKS} tracks")
    distance.legend(frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(picture=PICTURE):
    rng = np.random.default_rng(0)
    place, velocity = tracks(rng)
    times, instrument, z = measured(rng, place, velocity)
    t = np.arange(SECONDS + 1.0)
    words = np.where(instrument == 1, "derivative", "value")

    both = process([5.0, 0.05])
    both.fit(times, z, observed=words, noise_groups=instrument, verbose=0)
    alone = process(5.0)
    is_place = instrument == 0
    alone.fit(times[is_place], z[:, is_place], verbose=0)

    candidates = [random_velocity(t, instrument, times, z, q) for q in INTENSITIES]
    losses = [errors(place, estimate, t)[0].mean() for estimate in candidates]
    best = int(np.argmin(losses))
    estimates = {
        "places alone": alone.predict(t)["mean"],
        "dead reckoning": dead_reckoning(t, instrument, times, z),
        "Kalman, best": candidates[best],
        "both": both.predict(t)["mean"],
    }

    figures = {}
    print(f"{TRACKS} tracks, root mean square error in m, mean ± standard error\n")
    print(f"{'':16}{'all along':>16}{'in the gap':>18}")
    for name, estimate in estimates.items():
        figures[name] = errors(place, estimate, t)
        columns = [
            f"{e.mean():8.2f} ± {e.std(ddof=1) / np.sqrt(TRACKS):.2f}" for e in figures[name]
        ]
        print(f"{name:16}{columns[0]:>16}{columns[1]:>18}")
    learned = both.parameters()
    print(f"\nintensity best in hindsight: {INTENSITIES[best]:.3g} m²/s³")
    print(
        f"learned noise: {learned['noise_variance'][0]:.3g} m² of places, "
        f"{learned['noise_variance'][1]:.3g} m²/s² of velocities "
        f"(true {PLACE_NOISE:g} and {RATE_NOISE:g})"
    )
    prediction = both.predict(t)
    inside = np.abs(prediction["mean"] - place) ** 2 < prediction["variance"] * np.log(20)
    figures["coverage"] = inside.mean()
    print(f"truth inside of the 95 % circles: {100 * inside.mean():.1f} %")
    draw(t, place, z, instrument, times, estimates, picture)
    print(f"\npicture: examples/{Path(picture).name}")
    return figures


if __name__ == "__main__":
    main()
