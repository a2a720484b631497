"""Following the Earth's pole day by day: forecasts, their error bars, and continued learning.

A stream is not a data set. Each morning a measurement has arrived and tomorrow's is to be
predicted, and after years the signal may differ from the one that the model was learned from. Three
tools keep up with it here:

    A tracker. A `RecursiveGP` of the last 32 days: `step(day, z)` predicts the measurement of
    this day, and then conditions on it. On days without a measurement it only predicts, and its
    ellipses grow until one comes. Loaded from a file, it continues from its state.
    A learner. A second one, which shares the tracker's kernel: when a month is complete, `fit`
    takes a few gradient steps through it. The tracker uses the new hyperparameters next morning.
    Calibration. A prediction with error bars can be checked: what fraction of days lies in the
    50 % ellipse, the 90 % one, ...? The innovations, over their predicted deviation, have power 1.

The series is the motion of the Earth's pole, EOP 20 C04 of the International Earth Rotation and
Reference Systems Service (see polar_motion.py). Hyperparameters are learned first from 2014 to
2017, by likelihood; the stream runs from 2018 to 2026. Until 2020 these values were so smooth that
two days predict the third within 0.3 milliarcseconds (mas), 9 mm on the ground; since 2021 they are
rougher. Expect the error bars of a tracker with constant hyperparameters, right until 2020, to be
half of what they should be from then on, and its predictions to be worse than a straight line
through the last two days. Expect the error bars of a tracker that continues to learn to stay right,
and its errors to be a quarter below those of the straight line until 2020; since then it is only 5
% better in x and no better in y. An autoregressive model of 30 days beats the trackers until 2020,
by a tenth or more; since then, as it is not fitted again, it is far behind the straight line.

Final values are smoothed from both sides: none of this is operational skill. And kernel, window and
learning rate were chosen on these years: it is not a blind test.

Run it with: python examples/online_tracking.py (under a minute)
"""

import tempfile
import time
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np

import cgp
from cgp.distributions import Marginals
from cgp.kernels import RBF, Constant, Matern52, Rotation

START, CHANGE, END = 58119, 59215, 61313  # modified Julian dates: 2018-01-01, 2021-01-01, the end
YEARS_BEFORE = 4  # to learn from first
SEGMENT = 64  # days: the first learning takes them in pieces, series with one covariance
WINDOW = 32  # days that a tracker holds; with twice as many the errors are the same to 1 %
MONTH = 32  # days between two lessons
PROBABILITIES = (0.5, 0.9, 0.95, 0.99)
PICTURE = Path(__file__).with_suffix(".png")


def stream():
    """Days since 2018-01-01, the position of the pole (mas), and what of it is measured.

    All of it was. To see what gaps do, four days in each half year are withheld, and one in 50.
    """
    pole = cgp.datasets.polar_motion(START - YEARS_BEFORE * 365, END)
    day = pole.mjd - START
    lost = (day % 182 >= 178) | (np.random.default_rng(0).random(day.size) < 0.02)
    return day, pole.position, np.where(lost & (day >= 0), np.nan, pole.position)


def first_model(z):
    """An exact GP that has learned from what came before the stream, cut into short series."""
    kernel = Constant(1e5, fixed="variance")  # mas²: the pole is some 300 mas from the origin
    # The Chandler wobble and the seasons, over a month: near enough one rotation, slowly changing.
    kernel += Matern52(variance=1e4, lengthscale=300.0) * Rotation(1 / 434, fixed="frequency")
    kernel += Matern52(variance=10.0, lengthscale=6.0)  # weather
    kernel += RBF(variance=0.1, lengthscale=1.5)  # what differs from one day to the next
    # These values are interpolated: a free noise variance would go to zero. 0.02 mas of noise.
    gp = cgp.ExactGP(kernel, noise_variance=4e-4, fixed="noise_variance")
    gp.compile(optimizer=cgp.optimizers.LBFGS(ftol=1e-7))
    pieces = z[: z.size // SEGMENT * SEGMENT].reshape(-1, SEGMENT)
    gp.fit(np.arange(SEGMENT), pieces, verbose=0)
    return gp


def tracker_of(gp, day, z):
    """Shares the kernel of `gp`, and has seen the last days before the stream."""
    noise = float(gp.noise_variance)
    tracker = cgp.RecursiveGP(gp.kernel, noise, capacity=WINDOW, fixed="noise_variance")
    tracker.process(day[-WINDOW:], z[-WINDOW:], verbose=0)
    return tracker


def follow(tracker, learner, day, z):
    """The predictions of each day before it was seen; after each month the learner has a lesson."""
    predicted = []
    for i in range(len(day)):
        predicted.append(tracker.step(day[i], z[i]).predicted)
        if (i + 1) % MONTH == 0:
            month = slice(i + 1 - MONTH, i + 1)
            learner.fit(day[month], z[month], batch_size=8, verbose=0)
    return Marginals(*(np.array(moment) for moment in zip(*predicted, strict=True)))


def saved_and_loaded(tracker):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tracker.keras"
        tracker.save(path)
        return cgp.load_model(path)


def joined(*parts):
    return Marginals(*(np.concatenate(moment) for moment in zip(*parts, strict=True)))


def baselines(before, z):
    """Predictions of the stream `z`, which `before` leads up to; nothing is withheld from these."""
    order, all_ = 30, np.concatenate([before, z])

    def lags(end):  # the `order` days before each day up to `end`
        return np.stack([all_[order - k : end - k] for k in range(1, order + 1)], axis=-1)

    weights = np.linalg.lstsq(lags(before.size), before[order:], rcond=None)[0]
    n = z.size
    return {
        "as yesterday": all_[-n - 1 : -1],
        "a line through two days": 2 * all_[-n - 1 : -1] - all_[-n - 2 : -2],
        "autoregression, 30 days": (lags(all_.size) @ weights)[-n:],
    }


def power_of_innovations(z, predicted):
    """1 if the error bars are right: mean |z − mean|² over its expectation; NaN left out."""
    return float(np.nanmean(np.abs(z - predicted.mean) ** 2 / predicted.variance))


def coverages(z, predicted, probabilities=PROBABILITIES):
    return [cgp.metrics.coverage(z, predicted, probability) for probability in probabilities]


def picked(predicted, chosen):
    return Marginals(*(moment[chosen] for moment in predicted))


def draw(day, z, truth, predictions, path):
    layout = [["plane", "curve"], ["plane", "power"]]
    figure, axes = plt.subplot_mosaic(layout, figsize=(11, 6), layout="constrained")
    colors = {"as learned first": "#c0392b", "learning on": "#1f5fa8"}

    ax = axes["plane"]
    shown = (day >= 3083) & (day < 3106)  # about four days that were withheld
    cgp.plotting.plane(z[shown], picked(predictions["learning on"], shown), ax=ax)
    ax.collections[0].set_alpha(0.5)  # the ellipses: these overlap
    handles = ax.get_legend().legend_handles
    lost = shown & np.isnan(z)
    handles += ax.plot(truth[lost].real, truth[lost].imag, "o", color="#c0392b", fillstyle="none")
    labels = ["95 % ellipses", "predicted before it came", "measured", "withheld"]
    ax.legend(handles, labels, frameon=False, fontsize="small", loc="upper left")
    ax.locator_params(integer=True)
    ax.set(xlabel="x (mas)", ylabel="−y (mas)", title="11 June to 3 July 2026, four days withheld")

    ax = axes["curve"]
    expected = np.linspace(0.02, 0.99, 50)
    ax.plot([0, 1], [0, 1], color="0.7", linewidth=0.8)
    for name, predicted in predictions.items():
        ax.plot(expected, coverages(z, predicted, expected), color=colors[name], label=name)
    ax.set(xlabel="probability of the ellipse", ylabel="fraction of days inside")
    ax.set(title="Calibration, 2018 to 2026", xlim=(0, 1), ylim=(0, 1))
    ax.legend(frameon=False, fontsize="small")

    ax = axes["power"]
    quarter = np.arange(0, day.size - 91, 91)
    for name, predicted in predictions.items():
        powers = [
            power_of_innovations(z[i : i + 91], picked(predicted, slice(i, i + 91)))
            for i in quarter
        ]
        ax.semilogy(2018 + (quarter + 45) / 365.25, powers, color=colors[name])
    ax.axhline(1.0, color="0.7", linewidth=0.8)
    ax.set_yticks([0.5, 1, 2, 5, 10, 20], labels=["0.5", "1", "2", "5", "10", "20"])
    ax.set_yticks([], minor=True)
    ax.set(ylabel="mean of each quarter", title="Squared error over its predicted variance")

    for ax in axes.values():
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"\npicture: {path}")


def main(picture=PICTURE):
    """Prints the figures, saves the picture, and returns the figures."""
    day, truth, z = stream()
    streamed = day >= 0
    before, truth_before = day[~streamed], truth[~streamed]
    day, truth, z = day[streamed], truth[streamed], z[streamed]

    gp = first_model(truth_before)
    # Before any lesson, as both share one kernel.
    predictions = {
        "as learned first": tracker_of(gp, before, truth_before)
        .process(day, z, verbose=0)
        .predicted
    }
    tracker, learner = (tracker_of(gp, before, truth_before) for _ in range(2))
    learner.compile(keras.optimizers.Adam(learning_rate=0.03))
    half = day.size // MONTH // 2 * MONTH
    began = time.perf_counter()
    first = follow(tracker, learner, day[:half], z[:half])
    loaded = saved_and_loaded(tracker)
    second = follow(tracker, learner, day[half:], z[half:])
    seconds = time.perf_counter() - began
    predictions["learning on"] = joined(first, second)
    # Until the next lesson, of which what was loaded knows nothing: its kernel is its own.
    again = loaded.process(day[half:][:MONTH], z[half:][:MONTH], verbose=0).predicted
    difference = np.max(np.abs(again.mean - second.mean[:MONTH]))
    draw(day, z, truth, predictions, picture)

    # Where yesterday is missing, the others have nothing to start from.
    seen = ~np.isnan(z)
    scored = seen & np.r_[True, seen[:-1]] & np.r_[True, True, seen[:-2]]
    periods = {"until 2020": day < CHANGE - START, "since 2021": day >= CHANGE - START}
    means = baselines(truth_before, truth) | {
        f"tracker, {name}": predicted.mean for name, predicted in predictions.items()
    }
    print(f"\n{day.size} days in {seconds:.0f} s, {day.size // MONTH} lessons among them")
    print("\nmean absolute errors of x / y one day ahead, mas")
    print(f"{'':32}" + "".join(f"{period:>16}" for period in periods))
    errors = {}
    for name, mean in means.items():
        gap = mean - truth
        errors[name] = {
            period: (np.abs(gap.real[chosen]).mean(), np.abs(gap.imag[chosen]).mean())
            for period, chosen in ((period, among & scored) for period, among in periods.items())
        }
        cells = (f"{x:.3f} / {y:.3f}" for x, y in errors[name].values())
        print(f"{name:32}" + "".join(f"{cell:>16}" for cell in cells))

    print("\nfraction of days inside the ellipse of a probability, and power of innovations")
    print(f"{'':32}" + "".join(f"{p:7.0%}" for p in PROBABILITIES) + "   power")
    covered = {}
    for name, predicted in predictions.items():
        for period, among in periods.items():
            there = picked(predicted, among)
            covered[name, period] = coverages(z[among], there)
            power = power_of_innovations(z[among], there)
            cells = "".join(f"{fraction:7.1%}" for fraction in covered[name, period])
            print(f"{name + ', ' + period:32}{cells}{power:8.2f}")
    lost = np.isnan(z)
    in_gaps = coverages(truth[lost], picked(predictions["learning on"], lost))
    covered["learning on", "withheld"] = in_gaps
    cells = "".join(f"{fraction:7.1%}" for fraction in in_gaps)
    print(f"{f'learning on, {lost.sum()} days withheld':32}{cells}")
    print(
        f"\nsaved in 2022, loaded and gone on: a month of predictions within {difference:.0e} mas"
    )
    return errors, covered, difference


if __name__ == "__main__":
    main()
