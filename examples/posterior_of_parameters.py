"""Few data: average over the posterior of hyperparameters, instead of using their best values.

A carrier of unknown frequency, with a fading envelope of unknown power and correlation time, is
measured twelve times in noise of unknown variance. A fit finds the hyperparameters of highest
likelihood, and predicts as if they were true. They are not: the likelihood is wide, and its maximum
tends to little noise. `gp.sample_parameters()` draws hyperparameters from their posterior, and
`draws.predict(x)` averages the predictions over them: regions then include the uncertainty of the
hyperparameters.

There are forty simulated series; measurements of each are predicted at forty new times, between the
samples and a little beyond:

    best fit        the maximum of the likelihood, sought from the truth
    median draw     the median of the draws: shows the effect of the weak priors alone
    averaged        over the draws, four chains of 250
    truth           the hyperparameters that made the series

What to learn from it: the share of the new samples in their 95 % regions, and their log density (of
the average, that of the mixture). The regions of the best fit miss three times as many samples as
they should, and overconfident wrong fits have a very low log density. The median draw avoids such
fits, and its regions still miss twice as many samples as they should; the average has the right
coverage within its standard error, with regions that are wider where hyperparameters matter.

Run it with: python examples/posterior_of_parameters.py (five minutes)
"""

import warnings
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np

import cgp
from cgp.kernels import Matern32, Rotation

VARIANCE, LENGTHSCALE, FREQUENCY, NOISE = 1.0, 3.0, 0.15, 0.05
SAMPLES, NEW, SERIES = 12, 40, 40
END, BEYOND = 12.0, 14.0  # of the samples, and of the new times
LINE = np.linspace(0.0, BEYOND, 200)
CHAINS, DRAWS, WARMUP = 4, 250, 250
FIT, MEDIAN, AVERAGED, TRUTH = "best fit", "median draw", "averaged", "truth"
COLORS = {FIT: "#c0392b", AVERAGED: "#1f5fa8"}
PICTURE = Path(__file__).with_suffix(".png")


class Score(NamedTuple):
    """Of one way on one series."""

    inside: float
    """The share of the new samples in their 95 % regions."""
    density: float
    """Their mean log predictive density, nats."""
    deviation: float
    """Root of the mean predicted variance."""


class Series(NamedTuple):
    """Times and values, measured and new."""

    x: np.ndarray
    z: np.ndarray
    x_new: np.ndarray
    z_new: np.ndarray


def model():
    kernel = Matern32(VARIANCE, LENGTHSCALE) * Rotation(FREQUENCY)
    return cgp.StateSpaceGP(kernel, NOISE)


def series(truth, seed):
    """Samples of one signal at random times."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0.0, END, SAMPLES))
    x_new = np.sort(rng.uniform(0.0, BEYOND, NEW))
    z = truth.sample(np.concatenate([x, x_new]), seed=seed, observed=True)[0]
    return Series(x, z[:SAMPLES], x_new, z[SAMPLES:])


def score(z, prediction, densities=None):
    if densities is None:
        densities = cgp.metrics.log_predictive_densities(z, prediction)
    inside = cgp.metrics.coverage(z, prediction)
    return Score(inside, np.mean(densities), np.sqrt(np.mean(prediction["variance"])))


def of_mixture(z, each):
    """The log density of samples under the mixture of predictions by each draw."""
    logs = np.stack(
        [
            cgp.metrics.log_predictive_densities(z, cgp.distributions.Marginals(*one))
            for one in zip(*each, strict=True)
        ]
    )
    highest = logs.max(axis=0)
    return highest + np.log(np.mean(np.exp(logs - highest), axis=0))


def compare(gp, one, start, seed):
    """Scores by way, the prediction of the best fit along a line, and the draws."""
    scores = {}

    def add(way):
        scores[way] = score(one.z_new, gp.predict(one.x_new, observed=True))

    gp.set_weights(start)
    gp.condition(one.x, one.z)
    add(TRUTH)
    with warnings.catch_warnings():
        # That a fit runs to an edge, and that chains of 250 draws differ a little, is the subject.
        warnings.simplefilter("ignore", RuntimeWarning)
        gp.fit(one.x, one.z, verbose=0)
        add(FIT)
        fitted = gp.predict(LINE, observed=True)
        gp.set_weights(start)
        draws = gp.sample_parameters(
            chains=CHAINS, draws=DRAWS, warmup=WARMUP, seed=seed, verbose=0
        )
    median = np.median(draws.weights, axis=(0, 1))
    for variable, value in zip(gp.trainable_variables, median, strict=True):
        variable.assign(value)
    add(MEDIAN)
    averaged = draws.predict(one.x_new, observed=True)
    densities = of_mixture(one.z_new, draws.predict_each(one.x_new, observed=True))
    scores[AVERAGED] = score(one.z_new, averaged, densities)
    return scores, fitted, draws


def main(picture=PICTURE, count=SERIES):
    """Prints the table, saves the picture, and returns the mean scores and their errors by way."""
    truth, gp = model(), model()
    gp.compile(cgp.optimizers.LBFGS())
    start = gp.get_weights()
    found, shown = [], None
    for seed in range(count):
        one = series(truth, seed)
        scores, fitted, draws = compare(gp, one, start, seed)
        found.append(scores)
        # The series whose fit leaves out most.
        if shown is None or scores[FIT].inside < shown[-1]:
            shown = one, fitted, draws, scores[FIT].inside
    table = {
        way: np.array([scores[way] for scores in found]) for way in (FIT, MEDIAN, AVERAGED, TRUTH)
    }
    print(f"{count} series of {SAMPLES} samples, {NEW} new ones each; ± standard error\n")
    print(f"{'':14}{'in 95 %':>16}{'log density':>18}{'deviation':>12}")
    means = {}
    for way, values in table.items():
        mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(count)
        means[way] = Score(*mean), Score(*error)
        inside = f"{100 * mean[0]:.1f} ± {100 * error[0]:.1f} %"
        print(f"{way:14}{inside:>16}{f'{mean[1]:.2f} ± {error[1]:.2f}':>18}{mean[2]:12.2f}")
    gain = table[AVERAGED][:, 1] - table[FIT][:, 1]
    error = gain.std(ddof=1) / np.sqrt(count)
    print(f"\naveraging over the best fit: {gain.mean():.2f} ± {error:.2f} nats a sample")
    draw(shown, picture)
    return means


def draw(shown, path):
    """One series under the best fit and averaged, and its draws of two hyperparameters."""
    one, fitted, draws, _ = shown
    lines = {FIT: fitted, AVERAGED: draws.predict(LINE, observed=True)}
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for way, color in COLORS.items():
        mean, variance = lines[way]["mean"].real, lines[way]["variance"]
        half = 1.96 * np.sqrt(0.5 * variance)  # of the real part
        left.fill_between(LINE, mean - half, mean + half, color=color, alpha=0.18, linewidth=0)
        left.plot(LINE, mean, color=color, label=way)
    left.plot(one.x, one.z.real, "ko", markersize=5, label="measured")
    left.plot(one.x_new, one.z_new.real, "kx", markersize=4, label="new")
    left.set(xlabel="time", ylabel="Re z", title="The worst fit, 95 % bands of the real part")
    left.legend(frameon=False, fontsize="small", ncols=2)
    lengths, noises = (np.ravel(draws[name]) for name in ("matern32.lengthscale", "noise_variance"))
    right.loglog(lengths, noises, ".", color=COLORS[AVERAGED], alpha=0.3, markersize=4)
    right.plot(LENGTHSCALE, NOISE, "k*", markersize=12, label="truth")
    right.set(xlabel="length scale", ylabel="noise variance", title="Draws that could have made it")
    right.legend(frameon=False, fontsize="small")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"picture: {path}")


if __name__ == "__main__":
    main()
