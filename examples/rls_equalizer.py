"""An equaliser by recursive least squares: 16-QAM through a channel of drifting echoes.

Echoes smear each symbol over its neighbours, and their phases drift, so that an equaliser must
follow them. Its output is `u w`, of the latest 11 samples u and 11 coefficients w, learned from a
preamble of 150 known symbols, and then from the decisions of the equaliser itself:

    LMS, NLMS                a step along the gradient of the squared error, with each symbol
    least squares by blocks  the coefficients of one block serve the next one
    RecursiveLeastSquares    least squares of all symbols so far, forgotten exponentially

Step sizes, block length and forgetting factor are those of the smallest error against the truth.
The limit is the best linear equaliser for the channel of each symbol, which no receiver knows.

The echoes leave little power in some parts of the spectrum, where a gradient converges slowly.
Expect recursive least squares to be within 1 dB of the limit after 50 symbols, while LMS and NLMS
are 7 dB behind it until the preamble ends, 2 dB from then on, and decide wrongly ten times as
often; with other seeds, five to two hundred times. Blocks are as good as recursive least squares
from the second one on, and of no use in the first.

Run it with: python examples/rls_equalizer.py (some ten seconds)
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import cgp

BURSTS, LENGTH, PREAMBLE = 16, 1000, 150  # of each burst, symbols and how many are known
TAPS, DELAY = 11, 6  # coefficients, and how many samples after a symbol the last of them is
NOISE = 10**-2.6  # variance; symbols and channel have unit power
POWERS = [0.01, 0.8, 0.15, 0.04]  # of the echoes, one symbol apart
DOPPLER = 1e-4  # the largest shift of an echo, in turns a symbol
LEVELS = np.array([-3, -1, 1, 3]) / np.sqrt(10)
PICTURE = Path(__file__).with_suffix(".png")


def simulated(bursts, rng):
    """Symbols `[T, B]`, their latest samples `[T, B, n]`, and the channels `[T, B, echoes]`."""
    echoes, times = len(POWERS), np.arange(LENGTH + TAPS)
    symbols = (rng.choice(LEVELS, (2, times.size, bursts)) * [[[1]], [[1j]]]).sum(axis=0)
    turns = rng.uniform(size=(bursts, echoes)) + times[:, None, None] * rng.uniform(
        -DOPPLER, DOPPLER, (bursts, echoes)
    )
    channel = np.sqrt(POWERS) * np.exp(2j * np.pi * turns)
    sent = np.concatenate([np.zeros((echoes - 1, bursts)), symbols])
    received = sum(channel[..., k] * sent[echoes - 1 - k :][: times.size] for k in range(echoes))
    noise = rng.normal(size=(2, times.size, bursts)) * np.sqrt(NOISE / 2)
    received += noise[0] + 1j * noise[1]
    instants = times[TAPS - 1 : -1]
    latest = np.stack([received[instants - k] for k in range(TAPS)], axis=-1)
    return symbols[instants - DELAY], latest, channel[instants]


def decided(output):
    """The nearest symbol of each output."""
    nearest = (
        LEVELS[np.abs(level[..., None] - LEVELS).argmin(-1)] for level in (output.real, output.imag)
    )
    return next(nearest) + 1j * next(nearest)


def equalized(symbols, latest, update):
    """The outputs `[T, B]` of an equaliser that learns from the preamble, then from its decisions.

    Before the first symbol its coefficients are zero; `update` returns those after a symbol.
    """
    outputs, w = np.empty_like(symbols), np.zeros(latest.shape[1:], complex)
    for t, u in enumerate(latest):
        outputs[t] = np.sum(u * w, axis=-1)
        target = symbols[t] if t < PREAMBLE else decided(outputs[t])
        w = update(w, u, target)
    return outputs


def lms(step):
    return lambda w, u, target: w + step * (target - np.sum(u * w, -1))[:, None] * u.conj()


def nlms(step):
    def update(w, u, target):
        size = step * (target - np.sum(u * w, -1)) / np.sum(np.abs(u) ** 2, -1)
        return w + size[:, None] * u.conj()

    return update


def least_squares_by_blocks(length):
    targets, samples = [], []

    def update(w, u, target):
        targets.append(target)
        samples.append(u)
        if len(targets) % length:
            return w
        a, b = (np.moveaxis(of[-length:], 1, 0) for of in (samples, targets))
        return np.stack(
            [np.linalg.lstsq(*burst, rcond=None)[0] for burst in zip(a, b, strict=True)]
        )

    return update


def recursive_least_squares(forgetting):
    rls = cgp.RecursiveLeastSquares(TAPS, forgetting, initial_variance=10.0, noise_variance=0.01)
    return lambda w, u, target: rls.step(target, u).filtered.mean


def of_known_channel(symbols, latest, channel):
    """The outputs of the linear equaliser of least mean square error for each channel."""
    matrix = np.zeros((*symbols.shape, TAPS, TAPS + len(POWERS) - 1), complex)
    for k in range(TAPS):
        matrix[..., k, k : k + len(POWERS)] = channel
    covariance = matrix @ matrix.conj().swapaxes(-1, -2) + NOISE * np.eye(TAPS)
    conjugate = np.linalg.solve(covariance, matrix[..., DELAY, None])[..., 0]
    return np.sum(conjugate.conj() * latest, axis=-1)


WAYS = {
    "LMS": (lms, (0.01, 0.02, 0.03, 0.04, 0.06)),
    "NLMS": (nlms, (0.1, 0.2, 0.3, 0.4, 0.6)),
    "least squares by blocks": (least_squares_by_blocks, (25, 50, 75, 150)),
    "RecursiveLeastSquares": (recursive_least_squares, (0.97, 0.98, 0.985, 0.99)),
}


def draw(errors, path):
    figure, ax = plt.subplots(figsize=(10, 4), layout="constrained")
    colors = ("#8e6bb0", "#c0392b", "#d58a1f", "#1f5fa8", "0.6")
    for (name, squares), color in zip(errors.items(), colors, strict=True):
        blurred = np.convolve(squares.mean(axis=1), np.full(15, 1 / 15), mode="valid")
        ax.plot(7 + np.arange(blurred.size), 10 * np.log10(blurred), color=color, label=name)
    ax.axvline(PREAMBLE, color="0.8", zorder=0)
    ax.set(xlabel="symbol; known up to the line, then decided", ylabel="mean squared error, dB")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"\npicture: {path}")


def main(bursts=BURSTS, picture=PICTURE):
    """Prints the figures, saves the picture, and returns the figures."""
    symbols, latest, channel = simulated(bursts, np.random.default_rng(0))
    outputs = {}
    for name, (rule, settings) in WAYS.items():
        each = [equalized(symbols, latest, rule(setting)) for setting in settings]
        outputs[name] = min(each, key=lambda a: np.mean(np.abs(a - symbols)[PREAMBLE:] ** 2))
    outputs["channel known"] = of_known_channel(symbols, latest, channel)
    errors = {name: np.abs(output - symbols) ** 2 for name, output in outputs.items()}
    print(f"{bursts} bursts\n{'':26}{'error, dB':>22}{'wrong symbols':>16}")
    print(f"{'symbols':26}{'50 to 149':>11}{'from 150':>11}{'from 150':>16}")
    figures = {}
    for name, squares in errors.items():
        early, late = (10 * np.log10(of.mean()) for of in np.split(squares[50:], [PREAMBLE - 50]))
        wrong = np.mean(np.abs(decided(outputs[name]) - symbols)[PREAMBLE:] > 1e-9)
        figures[name] = early, late, wrong
        print(f"{name:26}{early:11.2f}{late:11.2f}{wrong:16.2%}")
    draw(errors, picture)
    return figures


if __name__ == "__main__":
    main()
