"""The direction of a moving source: an array that looks along, with a steering vector a step.

A snapshot of an array of eight elements, half a wavelength apart, is z = a(u) s + noise: u is the
sine of the direction, a the steering vector, and s a complex amplitude that fades. The array looks
at a reference near u. There the steering vector is linear in the offset δ from the reference, as in
a monopulse radar with its sum and its difference beam:

    z = [a, a′, 0] [s, s δ, s ε]ᵀ + noise

with ε the offset of the rate from that of the reference. A `KalmanFilter` has the matrix H of the
present reference in each step. The reference moves on by its rate and by the estimated offsets,
which the state then no longer has: that is the matrix F of the step.

The tool of the trade is Bartlett's beamformer, the peak of the power that beams receive in a
sliding window. Its length is the best one in hindsight, and so are window and gain of an α-β filter
of such peaks, and the variances by which the offsets are assumed to wander. All begin at the peak
of ten snapshots, at 3 dB.

Expect the Kalman filter to have half of the error of either: a window averages over directions as
the source moves on, and adds up powers, where the filter adds up amplitudes. With smaller variances
it follows most sources to 1.1°, but loses others in a fade, for good: a beam that looks elsewhere
does not come back by itself.

Run it with: python examples/direction_of_arrival.py (some ten seconds)
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import cgp

SOURCES, LENGTH, SETTLED = 40, 400, 50  # series, snapshots of each, and from which on errors count
ELEMENTS, NOISE, STAYS = (
    np.arange(8) - 3.5,
    0.5,
    0.98,
)  # places; a variance; of s from one to the next
DIRECTIONS = np.linspace(-1.0, 1.0, 241)  # sines, on which beams are formed
WANDERS = 1e-3, 1e-6  # variances of s δ and s ε from one snapshot to the next
PICTURE = Path(__file__).with_suffix(".png")


def steering(u):
    """Steering vectors `[..., M]` at sines u, and their derivatives."""
    a = np.exp(1j * np.pi * ELEMENTS * np.asarray(u)[..., None])
    return a, 1j * np.pi * ELEMENTS * a


def simulated(sources, rng):
    """Sines of directions `[T, B]`, and snapshots `[T, B, M]`."""

    def normal(*shape):
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)) / np.sqrt(2)

    turns = rng.uniform(size=sources) + np.arange(LENGTH)[:, None] / rng.uniform(400, 800, sources)
    u = 0.7 * np.sin(2 * np.pi * turns)
    amplitude = normal(LENGTH, sources)
    for t in range(1, LENGTH):
        amplitude[t] = STAYS * amplitude[t - 1] + np.sqrt(1 - STAYS**2) * amplitude[t]
    noise = np.sqrt(NOISE) * normal(LENGTH, sources, ELEMENTS.size)
    return u, steering(u)[0] * amplitude[..., None] + noise


def offsets(mean, covariance):
    """The offsets δ and ε by least squares, `Re E[s* (s δ)] / E|s|²`, each `[B]`."""
    second = mean[:, :, None] * mean[:, None].conj() + covariance
    return (second[:, 1:, 0].real / second[:, :1, 0].real).T


def tracked(z, start):
    """Sines `[T, B]` by a Kalman filter that looks at the source."""
    variances = 1.0, 0.05**2, 0.01**2
    kf = cgp.KalmanFilter(
        cgp.statespace.LinearGaussian(
            F=np.eye(3),  # in place of these F and H each step has its own
            Q=np.diag([1 - STAYS**2, *WANDERS]),
            H=np.ones((ELEMENTS.size, 3)),
            R=NOISE * np.eye(ELEMENTS.size) + 0j,
            initial_mean=np.zeros(3),
            initial_covariance=np.diag(variances),
        )
    )
    reference, rate, sines = start, np.zeros(len(start)), np.empty(z.shape[:2])
    shift, change = np.zeros((2, len(start)))  # of reference and rate, estimated before the step
    for t, snapshot in enumerate(z):
        a, slope = steering(reference)
        H = np.stack([a, slope, np.zeros_like(a)], axis=-1)
        F = np.broadcast_to(np.eye(3), (len(start), 3, 3)).copy()
        F[:, 1, 0], F[:, 1, 2], F[:, 2, 0] = -shift - change, 1.0, -change
        kf.step(snapshot, F=STAYS * F, H=H)
        reference = reference + rate + shift + change
        rate = rate + change
        mean, chol = kf.state
        shift, change = offsets(mean, chol @ chol.conj().swapaxes(-1, -2))
        sines[t] = reference + shift - rate - change  # the state is that of the next snapshot
    return sines


def bartlett(z, length):
    """Sines `[T, B]` of the largest power in the latest snapshots."""
    powers = np.abs(z @ steering(DIRECTIONS)[0].conj().T) ** 2
    total = np.cumsum(powers, axis=0)
    total[length:] -= total[:-length].copy()
    return DIRECTIONS[total.argmax(axis=-1)]


def alpha_beta(peaks, start, alpha):
    """An α-β filter of directions, with Kalata's β = α²/(2 − α)."""
    place, rate, sines = start, 0.0, np.empty_like(peaks)
    for t, peak in enumerate(peaks):
        gap = peak - place
        sines[t] = place + alpha * gap
        rate = rate + alpha**2 / (2 - alpha) * gap
        place = sines[t] + rate
    return sines


def draw(u, estimates, path):
    figure, (ax, beside) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for (name, estimate), color in zip(
        estimates.items(), ("#d58a1f", "#8e6bb0", "#1f5fa8"), strict=True
    ):
        ax.plot(degrees(estimate[:, 0]), color=color, linewidth=1.0, label=name)
        error = np.sort(np.abs(degrees(estimate) - degrees(u))[SETTLED:].ravel())
        beside.semilogx(error, np.linspace(0, 1, error.size), color=color)
    ax.plot(degrees(u[:, 0]), "k:", label="truth")
    ax.set(xlabel="snapshot", ylabel="direction (degrees)", title="One source")
    ax.legend(frameon=False, fontsize="small")
    beside.set(xlabel="error (degrees)", ylabel="share of snapshots below", xlim=(0.05, 30))
    beside.set_title("All sources")
    for each in (ax, beside):
        each.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"\npicture: {path}")


def degrees(u):
    return np.degrees(np.arcsin(np.clip(u, -1.0, 1.0)))


def main(sources=SOURCES, picture=PICTURE):
    """Prints the figures, saves the picture, and returns the figures."""
    u, z = simulated(sources, np.random.default_rng(0))
    start = bartlett(z, 10)[9]

    def error(estimate):
        return float(np.sqrt(np.mean((degrees(estimate) - degrees(u))[SETTLED:] ** 2)))

    windows = {length: bartlett(z, length) for length in (5, 10, 15, 20, 25, 30)}
    length = min(windows, key=lambda n: error(windows[n]))
    smoothed = [
        alpha_beta(peaks, start, alpha)
        for peaks in windows.values()
        for alpha in (0.05, 0.1, 0.2, 0.3, 0.5)
    ]
    estimates = {
        f"Bartlett, {length} snapshots": windows[length],
        "α-β filter of the peaks": min(smoothed, key=error),
        "KalmanFilter, H of each step": tracked(z, start),
    }
    errors = {name: error(estimate) for name, estimate in estimates.items()}
    print(f"{sources} sources; root mean square error of the direction, degrees")
    for name, value in errors.items():
        print(f"{name:32}{value:8.2f}")
    draw(u, estimates, picture)
    return [*errors.values()]


if __name__ == "__main__":
    main()
