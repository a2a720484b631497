"""Impulses in a measured series: clip them, or give the noise heavy tails.

A glitch of a receiver or a burst of interference leaves samples that are off by many standard
deviations of the noise. Under normal noise a process can explain them in one way only: it learns a
noise variance that is far too large, follows the good samples less than it could, and is pulled by
the bad ones. `likelihood=cgp.likelihoods.StudentT(nu)` gives the noise heavy tails, and the
posterior weighs each sample by how far it lies from the others. It need not be known which samples
are bad.

The record is the daily motion of the Earth's pole over 200 days (see polar_motion.py), which has
white noise of about a tenth of a milliarcsecond (mas) since 2021. Some of its samples get an
impulse, a complex normal number of ten times the standard deviation of that noise. A seventh of the
samples, none of them with an impulse, is held out. Each method learns all its hyperparameters from
the remaining samples:

    normal                normal noise, all samples
    Hampel, normal        samples far from the median of their window are removed first
    clipping, normal      samples far from the smoothed signal are removed, three times
    Student's t           of the degrees of freedom of highest likelihood
    oracle                normal noise, with the bad samples known

The Hampel filter and the clipping have the best threshold, and the filter the best window, of a
search on the 200 days before, with impulses of other seeds. The noise variance and the initial
values of the fits are also taken from these days.

What to learn from it: the error at days held out and at the bad days, the share of the held-out
measurements in the 95 % regions, and their log density. Regions of normal noise contain all of the
days and are of little use, as they are three to four times too wide, which the root mean square
error and the log density show. In a few days the pole moves further than the size of an impulse:
the median of a window detects a third to a half of the impulses, and removes as many good days,
even if it is the median of the distances of samples from the mean of their neighbours. With 5 %
impulses, clipping by the process itself is as good as Student's t at the days held out; at the bad
days Student's t comes near the oracle, and clipping does not. With 20 % clipping breaks down: the
first fit explains the impulses as noise, and clipping detects seven or eight of 40. Student's t has
two thirds of its error there, and is still far from the oracle, with a noise variance that is twice
too large. Of 90 days held out its regions contain 91 and 92 %, those of the oracle 94 and 93 %,
which agrees within the standard error of 2 to 3 %.

Run it with: python examples/outliers.py (a minute)
"""

import itertools
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np

import cgp
from cgp.kernels import Constant, Matern52
from cgp.likelihoods import StudentT

END, LENGTH = 61313, 200  # the first day not used (modified Julian date), so that figures repeat
HELD_OUT = 0.15
SHARES = (0.05, 0.2)  # of samples with an impulse
TIMES = 10.0  # standard deviation of impulses over that of the noise
SEEDS, OTHER_SEEDS = (0, 1, 2), (100, 101)  # of the comparison, and of the search
DEGREES = (2.0, 4.0, 8.0)  # of freedom, from which the likelihood chooses
WINDOWS, THRESHOLDS, ROUNDS = (3, 10), (1.5, 2.0, 3.0, 4.0), 3
NORMAL, HAMPEL, CLIPPING = "normal", "Hampel, normal", "clipping, normal"
STUDENT, ORACLE = "Student's t", "oracle"
PICTURE = Path(__file__).with_suffix(".png")


class Record(NamedTuple):
    """A stretch of the record with impulses."""

    truth: np.ndarray
    """As it was measured."""
    z: np.ndarray
    """With impulses, NaN where held out."""
    held: np.ndarray
    bad: np.ndarray


class Score(NamedTuple):
    """Of one way on one record."""

    held: float
    """Error at the days held out, mean square, mas²."""
    bad: float
    """That of the signal at the days with an impulse, against what was measured."""
    inside: float
    """The share of the days held out in their 95 % region."""
    width: float
    """The mean variance of these regions, mas²."""
    density: float
    """The mean log predictive density of the days held out, nats."""
    noise: float
    """The noise variance that was learned, mas²."""


# --- the record -----------------------------------------------------------------------------------


def position(start):
    """The pole on the days from one on, in mas."""
    pole = cgp.datasets.polar_motion(start, start + LENGTH)
    return pole.position - np.mean(pole.position)


def spoiled(truth, share, noise, seed):
    """The record with impulses in a share of its samples."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(truth.size)
    held, bad = np.zeros((2, truth.size), bool)
    count = round(HELD_OUT * truth.size)
    held[order[:count]] = True
    bad[order[count : count + round(share * truth.size)]] = True
    impulses = TIMES * noise * (rng.normal(size=(truth.size, 2)) @ [1, 1j]) / np.sqrt(2.0)
    return Record(truth, np.where(held, np.nan, truth + bad * impulses), held, bad)


# --- models and ways ------------------------------------------------------------------------------


class Model:
    """A process whose fits all start from one place, and which is compiled once."""

    def __init__(self, likelihood="exact", start=(1e3, 15.0, 0.02)):
        self.start, self._smooth = start, Matern52(*start[:2], name="pole")
        kernel = self._smooth + Constant(1e5, fixed="variance")
        self.gp = cgp.StateSpaceGP(kernel, start[2], likelihood=likelihood)
        self.gp.compile(cgp.optimizers.LBFGS(ftol=1e-4))

    @property
    def learned(self):
        return self._smooth.variance, self._smooth.lengthscale, self.gp.noise_variance

    @property
    def noise_variance(self):
        return float(self.gp.noise_variance)

    def fit(self, z):
        for parameter, value in zip(self.learned, self.start, strict=True):
            parameter.assign(value)
        self.gp.fit(np.arange(z.size), z, verbose=0)
        return self.gp

    def predict(self, z, observed=True):
        """Of all days, by hyperparameters learned from z."""
        return self.fit(z).predict(np.arange(z.size), observed=observed)


def deviation(distances):
    """Of complex normal numbers, from the median of their moduli."""
    return np.nanmedian(distances, axis=-1) / np.sqrt(np.log(2.0))


def hampel(z, bends, window, threshold):
    """z without samples far from the median of so many on either side.

    The medians are of the samples or, as the pole moves by more than an impulse in a window, of how
    far each is from the middle of its two neighbours (`bends`).
    """
    there = np.flatnonzero(~np.isnan(z))
    values = z[there]
    if bends:
        padded = np.pad(values, 1, mode="reflect", reflect_type="odd")
        values = values - 0.5 * (padded[:-2] + padded[2:])
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(values, window, mode="reflect"), 2 * window + 1
    )
    middle = np.median(windows.real, axis=-1) + 1j * np.median(windows.imag, axis=-1)
    scale = deviation(np.abs(windows - middle[:, None]))
    kept = z.copy()
    kept[there[np.abs(values - middle) > threshold * scale]] = np.nan
    return kept


def clipped(model, z, threshold):
    """z without samples that are far from the signal as smoothed, and so on."""
    kept = z
    for _ in range(ROUNDS):
        distances = np.abs(z - model.predict(kept, observed=False)["mean"])
        kept = np.where(distances > threshold * deviation(distances), np.nan, z)
    return kept


# --- the comparison -------------------------------------------------------------------------------


def score(record, prediction, noise_variance):
    held, square = record.held, np.abs(record.truth - prediction["mean"]) ** 2
    region = {name: values[held] for name, values in prediction.items()}
    return Score(
        np.mean(square[held]),
        np.mean(square[record.bad]),
        cgp.metrics.coverage(record.truth[held], region),
        np.mean(region["variance"]),
        -cgp.metrics.negative_log_predictive_density(record.truth[held], region),
        noise_variance,
    )


def normal(model, record, z):
    """The score of normal noise learned from z."""
    prediction = model.predict(z)
    return score(record, prediction, model.noise_variance)


def best_settings(model, truth, share, noise):
    """Settings of the Hampel filter, and the threshold of clipping, of least error."""
    records = [spoiled(truth, share, noise, seed) for seed in OTHER_SEEDS]

    def error(take_out, *setting):
        return np.mean([normal(model, r, take_out(r.z, *setting)).held for r in records])

    settings = list(itertools.product((False, True), WINDOWS, THRESHOLDS))
    best = min(settings, key=lambda setting: error(hampel, *setting))
    return best, min(THRESHOLDS, key=lambda limit: error(lambda z: clipped(model, z, limit)))


def compare(before, truth, share, model, heavy):
    """Scores by way, and what the first record looked like.

    Args:
        before: The record before, of which settings are searched.
        truth: The record.
        share: Of samples with an impulse.
        model: The process in normal noise, which starts from what it learned from `before`.
        heavy: The processes in Student's t noise, by degrees of freedom.
    """
    noise = np.sqrt(model.start[2])
    setting, limit = best_settings(model, before, share, noise)
    records = [spoiled(truth, share, noise, seed) for seed in SEEDS]
    losses, first = {}, {}
    for degrees, process in heavy.items():
        first[degrees] = process.predict(records[0].z), process.noise_variance
        losses[degrees] = process.gp.optimizer.result.fun
    degrees = min(losses, key=losses.get)
    bends, window, threshold = setting
    print(f"{share:.0%} impulses: Hampel filter of {'bends' if bends else 'samples'},", end=" ")
    print(f"{window} on either side, at {threshold} deviations; clipping at {limit};", end=" ")
    print(f"{degrees:g} degrees of freedom")
    scores = {way: [] for way in (NORMAL, HAMPEL, CLIPPING, STUDENT, ORACLE)}
    for number, record in enumerate(records):
        scores[NORMAL].append(normal(model, record, record.z))
        scores[HAMPEL].append(normal(model, record, hampel(record.z, *setting)))
        scores[CLIPPING].append(normal(model, record, clipped(model, record.z, limit)))
        told = np.where(record.bad, np.nan, record.z)
        scores[ORACLE].append(normal(model, record, told))
        if number:
            found = heavy[degrees].predict(record.z), heavy[degrees].noise_variance
        else:
            found = first[degrees]
        scores[STUDENT].append(score(record, *found))
    shown = records[0], {NORMAL: model.predict(records[0].z), STUDENT: first[degrees][0]}
    return {way: Score(*np.mean(of_way, axis=0)) for way, of_way in scores.items()}, shown


def main(picture=PICTURE, shares=SHARES):
    """Prints the table, saves the picture, and returns the scores by share and way."""
    before, truth = position(END - 2 * LENGTH), position(END - LENGTH)
    first = Model()
    first.fit(before)
    start = [float(parameter) for parameter in first.learned]
    model, heavy = Model(start=start), {nu: Model(StudentT(nu), start) for nu in DEGREES}
    print(f"noise of the {LENGTH} days before: {np.sqrt(start[2]):.3f} mas\n")
    found = {share: compare(before, truth, share, model, heavy) for share in shares}
    print(f"\n{len(SEEDS)} records of {LENGTH} days, {HELD_OUT:.0%} of them held out; in mas\n")
    heads = ("held-out error", "at bad days", "in 95 %", "deviation", "log density", "noise")
    print(f"{'':22}" + "".join(f"{head:>15}" for head in heads))
    for share, (scores, _) in found.items():
        for way, s in scores.items():
            error, bad, width, noise = np.sqrt([s.held, s.bad, s.width, s.noise])
            cells = f"{error:15.3f}{bad:15.3f}{s.inside:15.1%}{width:15.3f}{s.density:15.2f}"
            print(f"{f'{share:.0%}':>4}  {way:16}{cells}{noise:15.3f}")
    draw(found, picture)
    return {share: scores for share, (scores, _) in found.items()}


def draw(found, path):
    """Real parts of some days around the strongest impulse, and the errors."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    record, predictions = next(iter(found.values()))[1]
    days = np.arange(record.truth.size)
    strongest = int(np.nanargmax(np.abs(record.z - record.truth)[20:-20])) + 20
    near = slice(strongest - 20, strongest + 21)
    trend = np.polynomial.Polynomial.fit(days[near], record.truth[near].real, 4)
    colors = {NORMAL: "#c0392b", STUDENT: "#1f5fa8"}
    left, right = axes
    for way, prediction in predictions.items():
        mean = prediction["mean"].real - trend(days)
        half = 1.96 * np.sqrt(0.5 * prediction["variance"])  # of the real part
        low, high = (mean - half)[near], (mean + half)[near]
        left.fill_between(days[near], low, high, color=colors[way], alpha=0.15, linewidth=0)
        left.plot(days[near], mean[near], color=colors[way], label=way)
    for chosen, marker, label in (
        (~record.held, "k.", "with impulses"),
        (record.held, "kx", "held out"),
    ):
        z = np.where(record.held, record.truth, record.z)
        kept = np.where(chosen, z.real - trend(days), np.nan)
        left.plot(days[near], kept[near], marker, label=label)
    left.set(xlabel="day", ylabel="x less a polynomial (mas)")
    left.set(title="Around the strongest impulse, 95 % bands")
    left.legend(frameon=False, fontsize="small")
    for share, (scores, _) in found.items():
        errors = [np.sqrt(s.held) for s in scores.values()]
        right.plot(errors, np.arange(len(errors)), "o", label=f"{share:.0%} impulses")
    right.set_yticks(np.arange(len(scores)), list(scores))
    right.invert_yaxis()
    right.set(xlabel="error at days held out, root mean square (mas)", xlim=(0, None))
    right.legend(frameon=False, fontsize="small")
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"\npicture: {path}")


if __name__ == "__main__":
    main()
