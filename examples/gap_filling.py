"""A month of a record is missing: what was there, and how certain is the answer?

A receiver fails or a cable is cut, and a series has a gap. A Gaussian process fills it by the
posterior given the days before and after, with error bars that are narrow at the edges and widest
in the middle. Splines fill gaps as well, but without error bars.

The record is the daily motion of the Earth's pole as one complex number (polar_motion.py explains
the kernel), of which thirty days are removed at fifty dates since 2010, one gap at a time.
Hyperparameters are learned from the fifteen years before. A missing value is NaN, and the fifty
gaps are one batch of series. The process is compared with two usual methods: a cubic spline through
all other days, and one through every tenth of them, which is less sensitive to the days at the
edge.

Expect an error of 2.8 milliarcseconds (mas) where the splines have 3.2, a small gain, since the
weather of a month cannot be predicted; and regions of 95 % that contain 95 % of the days, while
those of 50 % contain 60 %: weather has calm months and wild ones. A sample from the posterior is as
rough as the record; the mean is smoother, as the estimate of least mean square error must be.

Run it with: python examples/gap_filling.py (half a minute)
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.interpolate import CubicSpline

import cgp
from cgp.kernels import Constant, Driven, Matern12, Matern32, Rotation

YEAR = 365.25  # days
CLEAN, SPLIT, END = 49609, 55197, 61313  # modified Julian dates: 1994.7; 2010-01-01; not used
GAP = np.arange(30)  # days that are missing
AROUND = np.arange(-365, 395)  # days of each series, from a year before to a year after
DATES = SPLIT + 182 + 112 * np.arange(50)  # first days of the gaps
PICTURE = Path(__file__).with_suffix(".png")

POLE = cgp.datasets.polar_motion(end=END)  # positions in milliarcseconds (mas)


def position(mjd):
    return POLE.position[np.asarray(mjd) - int(POLE.mjd[0])]


def model():
    resonance = Matern12(lengthscale=40 * YEAR, fixed="variance") * Rotation(1 / 434)
    weather = Matern32(variance=2e3, lengthscale=3.0)
    kernel = Driven(resonance, weather) + Constant(1e5, fixed="variance")
    for turns in (1, -1):
        kernel += Constant(1e4, fixed="variance") * Rotation(turns / YEAR, fixed="frequency")
    gp = cgp.StateSpaceGP(kernel, noise_variance=2 * 0.06**2, fixed="noise_variance")
    gp.compile(optimizer=cgp.optimizers.LBFGS(ftol=1e-7))
    return gp


def splined(z, step):
    """A cubic spline through every so many of the days that are there, counted from the gap."""
    before, after = (
        np.arange(-1, AROUND[0] - 1, -step),
        np.arange(GAP[-1] + 1, AROUND[-1] + 1, step),
    )
    there = np.r_[before[::-1], after]
    return CubicSpline(there, z[:, there - AROUND[0]], axis=1)(GAP)


def root_mean_square(error, axis=None):
    """Of complex errors; the length of an error in the plane is what counts."""
    return np.sqrt(np.mean(np.abs(error) ** 2, axis=axis))


def draw(truth, filled, drawn, errors, path):
    figure, axes = plt.subplot_mosaic("xe;ye", figsize=(10, 4.6), layout="constrained")
    near, one = np.arange(-30, 60), 20  # days around one of the gaps
    record = position(DATES[one] + near)
    record[np.isin(near, GAP)] = np.nan
    cgp.plotting.series(near, record, filled, GAP, ax=(axes["x"], axes["y"]))
    for ax, part, name in ((axes["x"], np.real, "x (mas)"), (axes["y"], np.imag, "−y (mas)")):
        ax.plot(GAP, part(drawn).T, color="#1f5fa8", linewidth=0.6, alpha=0.7)
        ax.plot(GAP, part(truth[one]), "k--", linewidth=1.0, label="what was there")
        ax.set(ylabel=name)
    axes["x"].set(title="One gap, with three draws from the posterior", xlabel="")
    axes["y"].set(xlabel="days from the first that is missing")
    axes["x"].legend(frameon=False, fontsize="small")

    right = axes["e"]
    for (name, error), color in zip(errors.items(), ("0.6", "#c0392b", "#1f5fa8"), strict=True):
        right.plot(GAP, root_mean_square(error, axis=0), color=color, label=name)
    right.set(xlabel="days from the first that is missing", ylabel="error, root mean square (mas)")
    right.set(title=f"{len(DATES)} gaps", ylim=(0, None))
    right.legend(frameon=False, fontsize="small")
    right.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"picture: {path}")


def main(picture=PICTURE):
    """Prints the figures, saves the picture, and returns the figures."""
    gp = model()
    days = np.arange(CLEAN, SPLIT)
    print(f"learning from {len(days)} days")
    gp.fit(days, position(days))

    truth = position(DATES[:, None] + GAP)
    z = position(DATES[:, None] + AROUND)
    z[:, GAP - AROUND[0]] = np.nan
    gp.condition(AROUND, z)
    prediction = gp.predict(GAP, observed=True)

    errors = {
        "spline through all days": splined(z, 1) - truth,
        "spline through every tenth": splined(z, 10) - truth,
        "cgp": prediction["mean"] - truth,
    }
    levels = np.array([0.5, 0.8, 0.95])
    inside = np.array([cgp.metrics.coverage(truth, prediction, level) for level in levels])
    claimed = root_mean_square(np.sqrt(prediction["variance"]))

    drawn = gp.sample(GAP, 3, seed=1, observed=True)[:, 20]
    filled = {key: values[20] for key, values in prediction.items()}
    draw(truth, filled, drawn, errors, picture)

    figures = {name: root_mean_square(error) for name, error in errors.items()}
    print(f"\nerror in {len(DATES)} gaps of {len(GAP)} days, root mean square in mas")
    for name, error in figures.items():
        print(f"{name:28} {error:8.2f}")
    print(f"{'that cgp says it has':28} {claimed:8.2f}")
    for level, share in zip(levels, inside, strict=True):
        print(f"days inside the {level:.0%} region {share:10.1%}")
    return figures, claimed, inside


if __name__ == "__main__":
    main()
