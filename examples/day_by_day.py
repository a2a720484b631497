"""Sixty-four years of the Earth's pole, one day at a time, and what the innovations reveal.

One measurement arrives each day. `StateSpaceGP.step(day, z)` predicts it from the days before, and
then conditions on it: the result is that of an exact Gaussian process given all days so far, at a
cost that does not grow. Days may be missing, or at any spacing.

Predictions can be compared with measurements. The innovation, divided by its predicted standard
deviation, has power 1 if the model is right. Here the model is learned from the years 1995 to 2009
by likelihood, and the stream begins in 1962, so that the power of its innovations reflects the
history of the measurements:

    1962 to 1983   telescopes, their results smoothed over weeks: half of the expected power
    1984 to 1994   laser ranging and radio interferometry, still noisy: eight times, and some days
                   far more, which the mean shows and the median does not
    1995 to 2020   satellite navigation: as expected, also in the years after those learned from
    since 2021     three times: the series is no longer as smooth (see online_tracking.py)

Expect a step to take as long in the last year as in the first, about a millisecond.

Run it with: python examples/day_by_day.py (under a minute)
"""

import tempfile
import time
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np

import cgp
from cgp.kernels import Constant, Driven, Matern12, Matern32, Rotation

YEAR = 365.25  # days
FIRST, LAST, END = 49718, 55197, 61313  # modified Julian dates: 1995, 2010, the end of the stream
SAVED = 51544  # 2000: the stream is saved here, and a month goes on from the file as well
ERAS = (1962, 1984, 1995, 2010, 2021, 2027)
PICTURE = Path(__file__).with_suffix(".png")


def kernel():
    """See polar_motion.py."""
    resonance = Matern12(lengthscale=40 * YEAR, fixed="variance") * Rotation(1 / 434)
    weather = Matern32(variance=2e3, lengthscale=3.0)
    drift = Matern12(variance=5e3, lengthscale=100 * YEAR, fixed="lengthscale")
    made = Driven(resonance, weather + drift)
    for turns in (1, -1):
        seasons = Rotation(turns / YEAR, fixed="frequency")
        made += Constant(1e4, fixed="variance") * seasons
    return made + Constant(1e5, fixed="variance")


def process(kernel):
    # What is interpolated has no noise, or none that shows from one day to the next.
    return cgp.StateSpaceGP(kernel, noise_variance=1e-4, fixed="noise_variance")


def follow(gp, days, z):
    """Squared innovations over their predicted variance, and the time of each step in ms."""
    surprise, took = np.empty(len(days)), np.empty(len(days))
    progress = keras.utils.Progbar(len(days), unit_name="day")
    for i, (day, value) in enumerate(zip(days, z, strict=True)):
        start = time.perf_counter()
        step = gp.step(day, value)
        took[i] = 1e3 * (time.perf_counter() - start)
        surprise[i] = abs(step.innovation) ** 2 / step.predicted.variance
        if i % 100 == 99:
            progress.update(i + 1)
    progress.update(len(days), finalize=True)
    return surprise, took


def years(mjd):
    return 1858 + (mjd + 321) / YEAR  # the count begins with 17 November 1858


def means_and_medians(surprise, labels):
    """Of each group in order; medians over that of an exponential distribution, log 2."""
    groups = [surprise[labels == label] for label in np.unique(labels)]
    return [(np.mean(group), np.median(group) / np.log(2)) for group in groups]


def draw(mjd, surprise, path):
    figure, ax = plt.subplots(figsize=(10, 4), layout="constrained")
    year = np.floor(years(mjd))
    mean, median = np.transpose(means_and_medians(surprise, year))
    ax.axhline(1.0, color="0.6", linewidth=0.8)
    ax.axvspan(years(FIRST), years(LAST), color="0.93", zorder=0, label="learned from")
    ax.step(np.unique(year), mean, where="post", color="#1f5fa8", label="mean")
    ax.step(np.unique(year), median, where="post", color="#c0392b", label="median, as a mean")
    ax.set_yscale("log")
    ax.set_title("By how much the days of each year surprise")
    ax.set_ylabel("squared innovation over its variance")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"picture: {path}")


def main(picture=PICTURE, start=None):
    """Prints the figures, saves the picture, and returns the figures."""
    mjd, z = cgp.datasets.polar_motion(start, END)
    learned = (mjd >= FIRST) & (mjd < LAST)
    gp = process(kernel())
    gp.compile(optimizer=cgp.optimizers.LBFGS(ftol=1e-7))
    print(f"learning from {learned.sum()} days of 1995 to 2009")
    gp.fit(mjd[learned], z[learned])

    print("following the stream")
    follower = process(gp.kernel)  # of the same kernel, which has seen nothing yet
    parts = np.split(np.arange(len(mjd)), [np.searchsorted(mjd, SAVED)])
    first, first_took = follow(follower, mjd[parts[0]], z[parts[0]])
    with tempfile.TemporaryDirectory() as folder:
        follower.save(Path(folder) / "pole.keras")
        resumed = cgp.load_model(Path(folder) / "pole.keras")
    second, second_took = follow(follower, mjd[parts[1]], z[parts[1]])
    month = parts[1][:30]
    again, _ = follow(resumed, mjd[month], z[month])
    difference = np.max(np.abs(again - second[:30]))

    surprise, took = np.r_[first, second], np.r_[first_took, second_took]
    draw(mjd, surprise, picture)
    era = np.digitize(years(mjd), ERAS)
    figures = means_and_medians(surprise, era)
    print("\nsquared innovations over their variance      mean      median, as a mean")
    for number, (mean, median) in zip(np.unique(era), figures, strict=True):
        span = f"{ERAS[number - 1]} to {ERAS[number] - 1}"
        print(f"{span:40} {mean:8.2f} {median:12.2f}")
    early, late = np.median(took[100:1100]), np.median(took[-1000:])
    print(f"a step takes {early:.2f} ms early on, {late:.2f} ms {len(mjd) - 1600} days later")
    print(f"largest difference after saving and loading: {difference:.1e}")
    return figures, difference


if __name__ == "__main__":
    main()
