"""A radio channel tracked through one-bit converters.

A base station with many antennas saves power if its converters return only the signs of real and
imaginary part. From such samples of pilots the channel of two users is estimated, one block after
the other. It is a first-order Gauss-Markov process, and neighbouring antennas are correlated:

    h[t+1] = η h[t] + √(1 − η²) g[t],    y[t] = (Φ ⊗ I) h[t] + n[t],    z[t] = sign y[t]

with Φ of columns of a DFT matrix, as in Kim & Choi (EURASIP J. Wirel. Commun. Netw. 2019, 267;
arXiv:1910.13243). There are fewer antennas here; η = 0.988 is Jakes' correlation at walking pace:
3 km/h, 2.5 GHz, blocks of 5 ms.

    single shot        BLMMSE of each block alone: by Bussgang's theorem signs are a gain times y,
                       plus a distortion uncorrelated with y (Li et al., IEEE Trans. Signal
                       Process. 65, 2017)
    Bussgang filter    Kim & Choi's: a Kalman filter with this gain, and the distortion as noise. A
                       linear model for `filter`
    OneBit             the model of y, and `likelihood=OneBit()`: the probability of each sign is
                       replaced by a normal observation, by expectation propagation
    OneBit, smoothed   the same given all blocks
    unquantised        the Kalman filter of y, the limit of converters with many bits

At one SNR they are compared with a bootstrap particle filter, whose only error is that of a finite
number of particles.

What to learn from it: in a slowly changing channel the distortion of a block is nearly that of the
block before, not independent noise. The Bussgang filter treats it as independent. At low SNR, where
noise changes the signs, that is right, and the likelihood gains nothing. At 10 dB and η = 0.988 the
gain of the Bussgang filter over single shots has fallen from 5 dB to 1 dB, and its squared errors
are 2.6 times its variances. The likelihood accounts for the little information in a sign that
repeats: OneBit is 1.7 dB better, as good as the particles. Its variances too become too small above
5 dB, by a fifth at 10 dB: the set of channels with given signs is a cone, which a normal
distribution describes badly. Noise even helps: in the slow channel all one-bit filters are best
near 0 dB, since without noise the signs hardly ever change.

Run it with: python examples/one_bit_channel.py (a minute)
"""

from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from scipy.linalg import block_diag
from scipy.special import log_ndtr

from cgp import statespace
from cgp.likelihoods import OneBit

SNR = (-5.0, 0.0, 5.0, 10.0, 15.0)  # of one user at one antenna, dB
CORRELATION = (0.9, 0.988)  # η, from block to block
SERIES, BLOCKS, SETTLED = 50, 25, 10
USERS, ANTENNAS, PILOTS = 2, 2, 2
NEIGHBOURS, DIRECTIONS = 0.5, (0.8, -1.9)  # correlation of neighbours; its phase, of each user, rad
NEAR, COMPARED, PARTICLES = (0.988, 10.0), 16, 20_000  # (η, SNR) and series that particles filter
SINGLE, BUSSGANG, FILTER = "single shot", "Bussgang filter", "OneBit"
SMOOTHER, LIMIT = "OneBit, smoothed", "unquantised"
PICTURE = Path(__file__).with_suffix(".png")


class Estimate(NamedTuple):
    mean: np.ndarray
    """`[B, T, n]`."""
    variance: np.ndarray
    """`E|h − mean|²` as the estimator states it, real, `[B, T, n]`."""


# --- the model ------------------------------------------------------------------------------------


def pilots():
    """Φ ⊗ I, columns of a DFT matrix, `[m, n]`."""
    dft = np.exp(-2j * np.pi * np.outer(np.arange(PILOTS), np.arange(USERS)) / PILOTS)
    return np.kron(dft, np.eye(ANTENNAS))


def covariance():
    """Of the channel: exponentially correlated antennas, users independent, `[n, n]`."""
    lag = np.arange(ANTENNAS) - np.arange(ANTENNAS)[:, None]
    return block_diag(*(NEIGHBOURS ** abs(lag) * np.exp(1j * lag * d) for d in DIRECTIONS[:USERS]))


def noise_variance(snr):
    return 10.0 ** (-snr / 10.0)


def model_of(correlation, snr):
    """Of y; all of it is known to each estimator."""
    c, H = covariance(), pilots()
    return statespace.LinearGaussian(
        F=correlation * np.eye(len(c)),
        Q=(1.0 - correlation**2) * c,
        H=H,
        R=noise_variance(snr) * np.eye(len(H)),
        initial_covariance=c,
    )


def signs(y):
    return np.sign(y.real) + 1j * np.sign(y.imag)


# --- the estimators -------------------------------------------------------------------------------


def bussgang(snr):
    """Signs as a linear model of the channel: gains times H, the noise, and their covariance."""
    H = pilots()
    signal = H @ covariance() @ H.conj().T
    received = signal + noise_variance(snr) * np.eye(len(H))
    scale = 1.0 / np.sqrt(np.diag(received).real)
    # Signs are ±1 ± 1j, of power two: √2 times the gain, and twice the covariance, of unit power.
    gain = np.sqrt(4.0 / np.pi) * scale
    correlated = scale[:, None] * received * scale
    # The arcsine law holds for the real and for the imaginary part of a proper y.
    parts = (np.arcsin(np.clip(part, -1.0, 1.0)) for part in (correlated.real, correlated.imag))
    quantised = 4.0 / np.pi * sum(a * b for a, b in zip((1.0, 1j), parts, strict=True))
    return gain[:, None] * H, quantised - gain[:, None] * signal * gain, quantised


def single_shot(snr, z):
    """BLMMSE of each block."""
    matrix, _, quantised = bussgang(snr)
    weights = np.linalg.solve(quantised, matrix @ covariance()).conj().T
    variance = np.diag(covariance() - weights @ matrix @ covariance()).real
    return Estimate(z @ weights.T, np.broadcast_to(variance, (*z.shape[:2], len(variance))))


def filtered(model, z, **options):
    found = statespace.filter(model, z, **options)
    return Estimate(found.filtered_means.numpy(), found.filtered_variances.numpy())


def smoothed(model, z, **options):
    found = statespace.smooth(model, z, **options)
    return Estimate(found.smoothed_means.numpy(), found.smoothed_variances.numpy())


def by_particles(correlation, snr, z, seed=3):
    """A bootstrap filter with the probabilities of the signs, for all series side by side."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(covariance())
    deviation = np.sqrt(0.5 * noise_variance(snr))  # of the real part of the noise
    series = np.arange(len(z))[:, None]

    def drawn():
        parts = rng.normal(size=(2, len(z), PARTICLES, len(root))) * np.sqrt(0.5)
        return (parts[0] + 1j * parts[1]) @ root.T

    h, found = drawn(), []
    for t in range(z.shape[1]):
        if t > 0:
            h = correlation * h + np.sqrt(1.0 - correlation**2) * drawn()
        y, now = h @ pilots().T, z[:, t, None]
        logs = log_ndtr(y.real * now.real / deviation) + log_ndtr(y.imag * now.imag / deviation)
        logs = logs.sum(axis=-1)
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        mean = np.einsum("bp,bpn->bn", weights, h)
        found.append((mean, np.einsum("bp,bpn->bn", weights, np.abs(h - mean[:, None]) ** 2)))
        # Systematic resampling.
        points = (np.arange(PARTICLES) + rng.uniform(size=(len(z), 1))) / PARTICLES
        bounds = np.cumsum(weights, axis=1)
        chosen = [np.searchsorted(b[:-1], p) for b, p in zip(bounds, points, strict=True)]
        h = h[series, chosen]
    means, spreads = zip(*found, strict=True)
    return Estimate(np.stack(means, axis=1), np.stack(spreads, axis=1))


# --- the comparison -------------------------------------------------------------------------------


class Score(NamedTuple):
    squares: np.ndarray
    """|error|² of the channel, `[B, T]`, mean of its components; E|h|² is 1."""
    honesty: float
    """Mean of |error|² over the variance, of settled estimators: one where that is true."""


def score(estimate, h):
    """Of estimates of the first series of h."""
    squares = np.abs(estimate.mean - h[: len(estimate.mean)]) ** 2
    honesty = np.mean((squares / estimate.variance)[:, SETTLED:])
    return Score(squares.mean(axis=-1), honesty)


def drawn(correlation, snr, seed=1):
    """Channels `[B, T, n]` and received samples `[B, T, m]`."""
    model = model_of(correlation, snr)
    return [a.numpy() for a in statespace.sample(model, BLOCKS, (SERIES,), seed=seed)]


def compare(correlation, snr):
    """Scores of all but the particles."""
    model = model_of(correlation, snr)
    h, y = drawn(correlation, snr)
    z = signs(y)
    matrix, noise, _ = bussgang(snr)
    estimates = {
        SINGLE: single_shot(snr, z),
        BUSSGANG: filtered(model.replace(H=matrix, R=noise), z),
        FILTER: filtered(model, z, likelihood=OneBit()),
        SMOOTHER: smoothed(model, z, likelihood=OneBit()),
        LIMIT: filtered(model, y),
    }
    return {name: score(of, h) for name, of in estimates.items()}


def behind_particles(scores, correlation, snr):
    """How far filters are behind the particles on the same series, dB, and the score of these."""
    h, y = drawn(correlation, snr)
    best = score(by_particles(correlation, snr, signs(y)[:COMPARED]), h)
    behind = {
        name: error(scores[name].squares[:COMPARED]) - error(best.squares)
        for name in (SINGLE, BUSSGANG, FILTER)
    }
    return behind, best


def error(squares):
    """Normalised mean square error of settled estimators, dB."""
    return 10.0 * np.log10(np.mean(squares[:, SETTLED:]))


def gain(one, other):
    """How far one estimator is below another, dB, and the standard error of that."""
    one, other = (a.squares[:, SETTLED:].mean(axis=1) for a in (one, other))
    relative = one / one.mean() - other / other.mean()  # of the logarithm of the ratio
    spread = 10.0 / np.log(10.0) * relative.std(ddof=1) / np.sqrt(len(relative))
    return 10.0 * np.log10(other.mean() / one.mean()), spread


def main(levels=SNR, correlations=CORRELATION, near=NEAR, picture=PICTURE):
    """Prints the tables and draws the picture; scores by (η, SNR), and those behind particles."""
    found = {(c, level): compare(c, level) for c in correlations for level in levels}
    behind, best = behind_particles(found[near], *near)

    def row(name, values):
        print(f"{name:18s}" + "".join(f"{value:>15s}" for value in values))

    print(f"{USERS} users, {ANTENNAS} antennas, {PILOTS} pilots a block; {SERIES} series of")
    print(f"{BLOCKS} blocks, from block {SETTLED} on. Mean square error of the channel, dB re its")
    print("power (and mean of |error|² / variance); gains in dB")
    for c in correlations:
        print()
        row(f"η = {c}", [f"{level:.0f} dB       " for level in levels])
        cells = [found[c, level] for level in levels]
        for name in STYLES:
            of = [cell[name] for cell in cells]
            row(name, [f"{error(one.squares):.2f} ({one.honesty:5.2f})" for one in of])
        for name, over in ((BUSSGANG, SINGLE), (FILTER, SINGLE), (FILTER, BUSSGANG)):
            gains = [gain(cell[name], cell[over]) for cell in cells]
            print(f"{name} over {over}")
            row("", [f"{value:.2f} ± {spread:.2f}" for value, spread in gains])
    print(f"\nη = {near[0]}, {near[1]:.0f} dB, {COMPARED} series: behind {PARTICLES} particles, dB")
    for name, value in behind.items():
        row(name, [f"{value:.2f}        "])
    print(f"whose own figures are {error(best.squares):.2f} ({best.honesty:.2f})")
    draw(found, near, picture)
    return found, behind


# --- what is shown --------------------------------------------------------------------------------


STYLES = {
    SINGLE: {"color": "0.6", "marker": "o"},
    BUSSGANG: {"color": "#d08c1d", "marker": "s"},
    FILTER: {"color": "#1f5fa8", "marker": "o"},
    SMOOTHER: {"color": "#1f5fa8", "linestyle": "--", "marker": "o"},
    LIMIT: {"color": "0.25", "linewidth": 0.8},
}


def draw(found, near, picture):
    """Errors over the blocks at one SNR, and over the SNR, of one η."""
    cells = {level: cell for (c, level), cell in found.items() if c == near[0]}
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for name, style in STYLES.items():
        of_blocks = found[near][name].squares.mean(axis=0)
        left.plot(10.0 * np.log10(of_blocks), label=name, **style | {"markersize": 3})
        errors = [error(cell[name].squares) for cell in cells.values()]
        right.plot(list(cells), errors, label=name, **style | {"markersize": 4})
    left.set(xlabel="block", ylabel="mean square error, dB re E|h|²")
    left.set(title=f"From the first block, at {near[1]:.0f} dB, η = {near[0]}")
    right.set(xlabel="SNR, dB", title=f"From block {SETTLED} on, η = {near[0]}")
    right.legend(fontsize="small")
    figure.savefig(picture, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
