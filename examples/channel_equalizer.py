"""A receiver that keeps learning: a nonlinear channel equalised by a GP, one symbol at a time.

A radio channel mixes each symbol with the one before it, and an amplifier distorts the sum. The
receiver estimates a symbol from five received samples around it. A linear equaliser inverts the
mixing, but not the distortion. The map from samples to symbol is a complex function of ten real
coordinates: a regression problem, for a Gaussian process whose data arrive one at a time.

    1. Of each burst the first 300 symbols are known, the preamble. From those of four bursts the
       hyperparameters are learned, by an exact GP; the tracker shares its kernel.
    2. Each burst is new to the tracker. After the preamble it is on its own: it predicts a symbol,
       decides for the nearest of the four possible ones, and learns from the decision as though it
       were the truth.

The cost of a symbol is constant in two trackers. `SparseGP` has 128 inducing points, chosen from
the preambles before, and each sample adds to what is known at them. `RecursiveGP` with a budget
keeps the 128 most informative samples and drops another with each that comes: it needs no earlier
samples to choose from, and three times the time.

They are compared with recursive least squares (RLS), with the same preamble and its own decisions,
and with the best linear equaliser for the known channel, which needs no preamble. The last row
shows the cost of wrong decisions: inducing points, trained by all true symbols.

The channel is that of `cgp.datasets.soft_channel`, with noise 16 dB below the signal. Expect the
trackers to pass the best linear equaliser within 100 symbols, and to gain 5 dB on it with inducing
points and 4 dB with a budget; to be wrong two or three times where RLS is wrong five times.

Run it with: python examples/channel_equalizer.py (about a minute)
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import cgp
from cgp.kernels import RBF

SYMBOLS = 0.7 * np.exp(0.25j * np.pi * np.array([1, 3, 5, 7]))  # QPSK, also called 4-QAM
BURSTS, LENGTH, PREAMBLE = 8, 1500, 300  # bursts; symbols of each, and how many are known
LEARNED = 4  # bursts whose preambles the hyperparameters are learned from
SETTLED = 500  # symbols from here on are counted in the table
POINTS = 128
PICTURE = Path(__file__).with_suffix(".png")


def bursts(number):
    """Samples `[B, T, 10]` and symbols `[B, T]`: each burst has symbols and noise of its own."""
    each = [
        cgp.datasets.soft_channel(LENGTH, seed, constellation=SYMBOLS) for seed in range(number)
    ]
    return np.stack([burst.x for burst in each]), np.stack([burst.z for burst in each])


def samples(x):
    """The five complex samples of which x has the real and imaginary parts."""
    return x[..., :5] + 1j * x[..., 5:]


def nearest(estimates):
    return SYMBOLS[np.abs(estimates[..., None] - SYMBOLS).argmin(axis=-1)]


def learn(x, z):
    """A kernel and a noise variance, from preambles: a batch of series, `[B, N, 10]`, `[B, N]`."""
    kernel = RBF(variance=1.0, lengthscale=np.full(10, 5.0))  # one length scale a coordinate
    gp = cgp.ExactGP(kernel, noise_variance=0.05)
    gp.compile(optimizer=cgp.optimizers.LBFGS(ftol=1e-7))
    gp.fit(x, z)
    return kernel, gp.parameters()["noise_variance"]


def with_inducing_points(kernel, noise_variance, preambles, symbols):
    """A tracker that has seen no sample yet, whose inducing points are from these preambles."""
    chosen = cgp.SparseGP(kernel, noise_variance, inducing=POINTS)
    chosen.condition(preambles.reshape(-1, 10), symbols.ravel())
    return cgp.SparseGP(kernel, noise_variance, inducing=chosen.inducing.numpy())


def gp_equalizer(tracker, x, z, told=PREAMBLE):
    """Estimates of z, each made before anything is known of its symbol; all bursts at once."""
    estimates = np.empty_like(z)
    preamble = tracker.process(x[:, :told], z[:, :told], verbose=0)
    estimates[:, :told] = preamble.predicted.mean
    unknown = np.full(len(z), np.nan, complex)
    for t in range(told, z.shape[1]):
        # The samples first, without a symbol: a step that predicts only. Then the decision.
        estimates[:, t] = tracker.step(x[:, t], unknown).predicted.mean
        tracker.step(x[:, t], nearest(estimates[:, t]))
    return estimates


def rls_equalizer(x, z, told=PREAMBLE):
    """Recursive least squares, the same way; S. Haykin, Adaptive Filter Theory, table 10.1."""
    r = samples(x)
    weights = np.zeros((len(z), 5), complex)
    inverse = np.tile(100.0 * np.eye(5, dtype=complex), (len(z), 1, 1))
    estimates = np.empty_like(z)
    for t in range(z.shape[1]):
        u = r[:, t]
        estimates[:, t] = np.sum(weights * u, axis=1)
        desired = z[:, t] if t < told else nearest(estimates[:, t])
        gain = np.einsum("bij,bj->bi", inverse, u.conj())
        gain /= 1.0 + np.sum(u * gain, axis=1, keepdims=True)
        weights += gain * (desired - estimates[:, t])[:, None]
        inverse -= gain[:, :, None] * np.einsum("bi,bij->bj", u, inverse)[:, None]
    return estimates


def best_linear_equalizer(x):
    """Of least mean squared error, by the moments of a long run through the same channel."""
    long = cgp.datasets.soft_channel(100_000, seed=1_000_000, constellation=SYMBOLS)
    return samples(x) @ np.linalg.lstsq(samples(long.x), long.z, rcond=None)[0]


def decibels(mean_square):
    return 10.0 * np.log10(mean_square)


def scores(z, estimates):
    """Mean squared error in dB and symbol error rate of settled equalisers, each with its error."""
    z, estimates = z[:, SETTLED:], estimates[:, SETTLED:]
    squares = np.mean(np.abs(estimates - z) ** 2, axis=1)  # one for each burst
    wrong = np.mean(nearest(estimates) != z, axis=1)
    mean, error = squares.mean(), squares.std(ddof=1) / np.sqrt(len(squares))
    return {
        "mse": (decibels(mean), 10.0 / np.log(10.0) * error / mean),
        "ser": (wrong.mean(), wrong.std(ddof=1) / np.sqrt(len(wrong))),
    }


def draw(x, z, estimates, path):
    layout = [["received", "RLS", "GP"], ["curve"] * 3]
    figure, axes = plt.subplot_mosaic(
        layout, figsize=(10, 7.2), height_ratios=[1.15, 1.0], layout="constrained"
    )

    # One burst, after the preamble: the symbol sent is the colour.
    sent = z[0, PREAMBLE:]
    clouds = {
        "received": ("One burst, as received", samples(x)[0, PREAMBLE:, 2]),
        "RLS": ("After linear RLS", estimates["RLS"][0, PREAMBLE:]),
        "GP": ("After the GP", estimates["GP, inducing points"][0, PREAMBLE:]),
    }
    for name, (title, cloud) in clouds.items():
        ax = axes[name]
        for symbol, color in zip(
            SYMBOLS, ("#1f5fa8", "#c0392b", "#d08c1d", "#2e8b57"), strict=True
        ):
            of = cloud[sent == symbol]
            ax.plot(of.real, of.imag, ".", color=color, markersize=3, alpha=0.6)
        if name != "received":
            wrong = np.mean(nearest(cloud) != sent)
            title += f": {wrong:.1%} wrong"
            ax.plot(SYMBOLS.real, SYMBOLS.imag, "k+", markersize=10, markeredgewidth=1.5)
            ax.axhline(0, color="0.6", linewidth=0.7, zorder=0)
            ax.axvline(0, color="0.6", linewidth=0.7, zorder=0)
        limit = 2.3 if name == "received" else 1.4
        ax.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal")
        ax.set(title=title, xlabel="real part", ylabel="imaginary part")

    ax = axes["curve"]
    lines = {
        "RLS": {"color": "#d08c1d"},
        "best linear": {"color": "0.25", "linestyle": ":"},
        "GP, budget": {"color": "#2e8b57"},
        "GP, inducing points": {"color": "#1f5fa8"},
        "GP, told all": {"color": "#8fb4dd"},
    }
    width = 50
    middle = np.arange(LENGTH - width + 1) + (width - 1) / 2
    for name, style in lines.items():
        squares = np.mean(np.abs(estimates[name] - z) ** 2, axis=0)
        smooth = np.convolve(squares, np.full(width, 1 / width), "valid")
        ax.plot(middle, decibels(smooth), label=name, **style)
    ax.axvline(PREAMBLE, color="0.25", linestyle="--", linewidth=0.9)
    top = ax.get_ylim()[1]
    ax.text(PREAMBLE - 10, top, "symbols known", ha="right", va="top", fontsize="small")
    ax.text(PREAMBLE + 10, top, "own decisions", ha="left", va="top", fontsize="small")
    ax.set(xlabel="symbol", ylabel="mean squared error (dB)", xlim=(0, LENGTH))
    ax.set(title=f"Learning curve: mean of {len(z)} bursts, over {width} symbols")
    ax.legend(frameon=False, fontsize="small", ncols=5)

    for ax in axes.values():
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"picture: {path}")


def main(number=BURSTS, picture=PICTURE):
    """Prints the figures, saves the picture, and returns the figures."""
    x, z = bursts(number)
    preambles = x[:LEARNED, :PREAMBLE], z[:LEARNED, :PREAMBLE]
    model = learn(*preambles)
    budget = cgp.RecursiveGP(*model, capacity=POINTS, policy="budget")
    estimates = {
        "best linear": best_linear_equalizer(x),
        "RLS": rls_equalizer(x, z),
        "GP, budget": gp_equalizer(budget, x, z),
        "GP, inducing points": gp_equalizer(with_inducing_points(*model, *preambles), x, z),
        "GP, told all": gp_equalizer(with_inducing_points(*model, *preambles), x, z, told=LENGTH),
    }
    figures = {name: scores(z, values) for name, values in estimates.items()}
    draw(x, z, estimates, picture)

    print(f"\n{number} bursts, symbols {SETTLED} to {LENGTH}, ± standard error")
    print("equaliser              mean squared error (dB)    symbol error rate")
    for name, of in figures.items():
        (mse, mse_error), (ser, ser_error) = of["mse"], of["ser"]
        print(
            f"{name:20} {mse:13.2f} ± {mse_error:.2f} {100 * ser:18.2f} ± {100 * ser_error:.2f} %"
        )
    return figures


if __name__ == "__main__":
    main()
