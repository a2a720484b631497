"""Many scattered points: `cgp.VecchiaGP` beside `cgp.SparseGP`, at about the same time.

    python benchmarks/scattered_peers.py [radio] [channel] [eddies]

Fields of physics, not drawn from the kernels, in noise. The error is of the signal at 2,000 places
that no process has seen, over its power; times are of the processor, of learning and predicting.
"""

import sys
import time
import warnings

import numpy as np

import cgp
from cgp.kernels import RBF, Matern32, Rotation

HELD_OUT = 2000
ITERATIONS = {"radio": 20, "channel": 12, "eddies": 25}  # of a SparseGP, half of them a descent


def radio(n=20_000):
    """A gain over 60 by 60 wavelengths: two clusters of scatterers, and some all around."""
    rng = np.random.default_rng(2)
    wavelength, x = 0.1, rng.uniform(0, 6, (n + HELD_OUT, 2))
    f = np.zeros(len(x), complex)
    for degrees, power, count in ((20, 1.0, 60), (130, 0.6, 60), (None, 0.02, 100)):
        spread = rng.uniform(-180, 180, count) if degrees is None else 8 * rng.normal(size=count)
        angle, distance = np.radians((degrees or 0) + spread), rng.uniform(30, 60, count)
        places = 3 + distance[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
        gains = rng.normal(size=(count, 2)) @ [1, 1j] * np.sqrt(power / 2 / count)
        for place, gain in zip(places, gains, strict=True):
            f += gain * np.exp(-2j * np.pi * np.linalg.norm(x - place, axis=1) / wavelength)

    def cluster(share, degrees):
        turn = np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))]) / wavelength
        return RBF(share * np.mean(np.abs(f) ** 2), [0.15, 0.15]) * Rotation(turn.tolist())

    return x, f, -20.0, lambda: cluster(0.6, 20) + cluster(0.4, 130), rng


def channel(n=100_000):
    """A channel of 200 paths over 40 MHz, 50 ms and 10 wavelengths of an array."""
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 1, (n + HELD_OUT, 3)) * [40, 50, 10]
    delay = rng.exponential(0.1, 200)  # in µs
    doppler = 0.03 * np.cos(rng.uniform(0, 2 * np.pi, 200))  # in kHz
    sine = np.sin(np.radians(30 + 12 * rng.normal(size=200)))
    gain = rng.normal(size=(200, 2)) @ [1, 1j] / 20
    paths = np.stack([-delay, doppler, sine])
    f = np.concatenate([np.exp(2j * np.pi * a @ paths) @ gain for a in np.array_split(x, 50)])
    power = float(np.mean(np.abs(f) ** 2))
    kernel = lambda: Matern32(power, [2.0, 10.0, 1.5]) * Rotation([-0.1, 0.0, 0.5])  # noqa: E731
    return x, f, -10.0, kernel, rng


def eddies(n=10_000):
    """u + iv of 40 eddies in a box of 10 by 10, of radii of 0.5 to 1.2."""
    rng = np.random.default_rng(1)
    centres, radii = rng.uniform(0, 10, (40, 2)), rng.uniform(0.5, 1.2, 40)
    strengths = rng.normal(size=40)
    x = rng.uniform(0, 10, (n + HELD_OUT, 2))
    f = np.zeros(len(x), complex)
    for centre, radius, strength in zip(centres, radii, strengths, strict=True):
        d = (x - centre) / radius
        f += strength / radius * -1j * (d @ [1, 1j]) * np.exp(-np.sum(d**2, axis=1) / 2)
    return x, f, -20.0, lambda: RBF(float(np.mean(np.abs(f) ** 2)), 1.0), rng


def race(name):
    x, f, decibels, kernel, rng = {"radio": radio, "channel": channel, "eddies": eddies}[name]()
    noise = float(np.mean(np.abs(f) ** 2)) * 10 ** (decibels / 10)
    z = f + np.sqrt(noise / 2) * (rng.normal(size=(len(f), 2)) @ [1, 1j])
    h, most = HELD_OUT, ITERATIONS[name]
    processes = {
        "VecchiaGP": (cgp.VecchiaGP(kernel(), noise), most // 2),
        "SparseGP, 256 points": (cgp.SparseGP(kernel(), noise, inducing=256), most),
    }
    for label, (gp, epochs) in processes.items():
        start = time.process_time()
        gp.fit(x[h:], z[h:], epochs=epochs, verbose=0)
        learned = time.process_time()
        errors = gp.predict(x[:h])["mean"] - f[:h]
        predicted = time.process_time()
        error = 10 * np.log10(np.mean(np.abs(errors) ** 2) / np.mean(np.abs(f[:h]) ** 2))
        times = f"{learned - start:6.1f} s + {predicted - learned:5.1f} s"
        print(f"{name:8} N = {len(z) - h:6}  {label:22} {error:7.2f} dB  {times}", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore", RuntimeWarning)  # of a SparseGP of too few points
    for chosen in sys.argv[1:] or ["radio", "channel", "eddies"]:
        race(chosen)
