"""The Earth's pole as one complex signal: where it turns, and where it will be.

The pole of the Earth's rotation wanders some metres about the north pole. Written as one complex
number, p = x − i·y, its wandering is made of rotations: once a year, driven by the seasons, and
once in some 434 days, the Chandler wobble, a resonance of the Earth that the atmosphere and the
oceans keep ringing. A kernel can say so: each rotation is an envelope times e^{i2π·frequency·t}.

    1. Candidates. A driven resonance is rough over days and coherent over years, so its envelope
       is a sum of Matérn kernels, from years down to days, that share one rotation. How many? The
       likelihood of the years before 2010 decides between three candidates.
    2. Forecasts, from 201 dates since 2010, with parameters learned before. The kernel depends on
       differences of time alone, so that the covariance is the same on each date: one factorisation
       serves them all, as a batch of series.
    3. The Chandler period with its error, learned from all of 1984 to 2026. The error is that of
       the period given this kernel.

The series is EOP 20 C04 of the International Earth Rotation and Reference Systems Service, daily,
as the package astropy-iers-data holds it, thinned for an exact GP, whose work grows with N³. Expect
a period within its error of the 433.7 days of the literature. Expect errors of a quarter of
persistence (the pole stays where it is) at 10 days and an eighth at 90 days; those of least squares
with an autoregressive model are as small up to 10 days, and larger beyond. One day ahead the error
bars are too narrow, for the series has been rougher from day to day since 2020 than it was before
2010. Final values are smoothed from both sides: none of this is operational skill.

Run it with: python examples/polar_motion.py (a minute or two)
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import cgp
from cgp.kernels import RBF, Constant, Matern32, Matern52, Rotation

YEAR = 365.25  # days
CLEAN, SPLIT = 49609, 55197  # modified Julian dates: good daily values begin (1994.7); 2010-01-01
LONG, END = 45700, 61313  # 1984; the first day that is not used, so that figures repeat
ORIGINS = SPLIT + 30 * np.arange(201)  # days on which a forecast is made
HORIZONS = np.arange(1, 91)  # days
PICTURE = Path(__file__).with_suffix(".png")

# Starting points of the envelope's faster parts: variances in mas², length scales in years.
ENVELOPES = {
    "2 scales": [(10.0, 0.015)],
    "3 scales": [(100.0, 0.1), (10.0, 0.015)],
    "4 scales": [(500.0, 0.5), (30.0, 0.06), (5.0, 0.012)],
}
# The mean absolute errors of x and y in mas of a least-squares fit of trend, annual and Chandler
# terms to ten years, with a complex AR(30) model of its residuals, on these dates and values.
LS_AR = {1: (0.17, 0.14), 5: (1.53, 1.02), 10: (2.99, 1.79), 30: (7.60, 4.44), 90: (16.9, 11.5)}
LITERATURE = 433.7  # days: Sykulski, Olhede & Sykulska-Lawrence, arXiv 2001.05965

POLE = cgp.datasets.polar_motion(end=END)  # positions in milliarcseconds (mas)


def position(mjd):
    return POLE.position[np.asarray(mjd) - int(POLE.mjd[0])]


def thinned(start, end, step):
    """Every `step` days, and four months of single days, which show the fastest motion."""
    day = np.arange(end - start)
    mjd = start + day[(day % step == 0) | (day % (day.size // 4) < 30)]
    return (mjd - 51544.5) / YEAR, position(mjd)  # years since 2000, mas


def model(x, z, scales):
    # One rotation, whose frequency all scales share; a sharp likelihood asks for a good start.
    wobble = Matern32(variance=1e4, lengthscale=20.0)
    for variance, lengthscale in scales:
        wobble += Matern52(variance, lengthscale)
    kernel = wobble * Rotation.from_periodogram(x, z, name="chandler")
    # Of the seasons the frequency is known, and the phase is kept: no envelope.
    for frequency, variance in ((1, 5e3), (-1, 100.0), (2, 10.0), (-2, 10.0)):
        kernel += Constant(variance) * Rotation(frequency, fixed="frequency")
    # The pole drifts about a point that the data fix well: its variance only has to be large.
    kernel += RBF(variance=1e3, lengthscale=4.0) + Constant(1e5, fixed="variance")
    # These values are interpolated: a free noise variance would go to zero. 0.02 mas of noise.
    gp = cgp.ExactGP(kernel, noise_variance=4e-4, fixed="noise_variance")
    gp.compile(optimizer=cgp.optimizers.LBFGS(ftol=1e-7))
    return gp


def chandler_period(gp):
    """In days, with its standard error: that of 1/f is σ/f²."""
    f, error = (found["chandler.frequency"] for found in (gp.parameters(), gp.parameter_errors()))
    return YEAR / f, YEAR / f**2 * error


def forecast(gp, origins, horizons):
    """The pole `horizons` days after each of the `origins`, from the eight years before."""
    ago = np.unique(np.r_[0:20, 0:60:2, 0 : 8 * 365 : 15])  # denser towards the present, ~230 days
    gp.condition(-ago / YEAR, position(origins[:, None] - ago))  # a batch of series, one x
    return gp.predict(horizons / YEAR, observed=True)


def mean_absolute(error):
    """Of x and y: the means over all origins, and their standard errors.

    Forecasts overlap: means over 90 days, three origins, are nearly independent of each other.
    """
    parts = np.abs(np.stack([error.real, error.imag]))
    groups = parts.reshape(2, -1, 3, parts.shape[-1]).mean(axis=2)
    return parts.mean(axis=1), groups.std(axis=1, ddof=1) / np.sqrt(groups.shape[1])


def draw(gp, errors, persistence, path):
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")

    origin, ahead = ORIGINS[120], np.arange(0, 181, 10)
    prediction = {key: values[0] for key, values in forecast(gp, ORIGINS[[120]], ahead).items()}
    before = position(np.arange(origin - 2 * 365, origin + 1))
    cgp.plotting.plane(position(origin + ahead), prediction, ax=left)
    handles = left.get_legend().legend_handles
    handles += left.plot(before.real, before.imag, color="0.6", linewidth=0.9, zorder=0)
    labels = ["95 % ellipses", "forecast, every 10 days", "what came", "two years before"]
    left.legend(handles, labels, frameon=False, fontsize="small", ncols=2, loc="upper center")
    left.set(xlabel="x (mas)", ylabel="−y (mas)", title="Half a year ahead from one day")
    left.set_ylim(-490, -185)  # room for the legend

    stay, learned = (mean_absolute(error)[0].mean(axis=0) for error in (persistence, errors))
    right.loglog(HORIZONS, stay, color="0.6", label="persistence")
    right.loglog(HORIZONS, learned, color="#1f5fa8", label="Gaussian process")
    others = [np.mean(error) for error in LS_AR.values()]
    right.plot(list(LS_AR), others, "kx", label="least squares + AR(30)")
    right.set_xticks(list(LS_AR), labels=list(LS_AR))
    right.set_xticks([], minor=True)
    right.yaxis.set_major_formatter("{x:g}")
    right.set(xlabel="days ahead", ylabel="mean absolute error of x and y (mas)")
    right.set(title=f"{len(ORIGINS)} forecasts since 2010, learned before")
    right.legend(frameon=False, fontsize="small")
    right.spines[["top", "right"]].set_visible(False)

    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"picture: {path}")


def main(envelopes=ENVELOPES, picture=PICTURE):
    """Prints the figures, saves the picture, and returns the figures."""
    x, z = thinned(CLEAN, SPLIT, step=20)
    likelihoods, models = {}, {}
    for name, scales in envelopes.items():
        print(f"{name}, {len(x)} days of 1994 to 2009")
        models[name] = gp = model(x, z, scales)
        gp.fit(x, z)
        likelihoods[name] = float(gp.log_marginal_likelihood(x, z))
    best = max(likelihoods, key=likelihoods.get)
    gp = models[best]
    periods = {"1994 to 2009": chandler_period(gp)}

    truth = position(ORIGINS[:, None] + HORIZONS)
    prediction = forecast(gp, ORIGINS, HORIZONS)
    errors, persistence = prediction["mean"] - truth, position(ORIGINS)[:, None] - truth
    draw(gp, errors, persistence, picture)

    x, z = thinned(LONG, END, step=30)
    print(f"{best}, {len(x)} days of 1984 to 2026")
    gp.fit(x, z)  # goes on from the parameters it has
    periods["1984 to 2026"] = chandler_period(gp)

    print("\nenvelope of the wobble     log likelihood of 1994 to 2009")
    for name, likelihood in likelihoods.items():
        print(f"{name:20} {likelihood:13.1f}{' *' if name == best else ''}")
    print("\nChandler period learned from")
    for years, (period, error) in periods.items():
        print(f"{years:20} {period:13.1f} ± {error:.1f} days")
    print(f"{'literature':20} {LITERATURE:13.1f} days")

    print(f"\nmean absolute errors of x / y in mas, {len(ORIGINS)} forecasts since 2010")
    print("days     persistence     LS + AR(30)   Gaussian process ± its error    in 95 % region")
    figures = {}
    for days, (x_other, y_other) in LS_AR.items():
        at = days == HORIZONS
        ((x,), (y,)), ((x_error,), (y_error,)) = mean_absolute(errors[:, at])
        (x_stay,), (y_stay,) = mean_absolute(persistence[:, at])[0]
        there = {key: values[:, at] for key, values in prediction.items()}
        inside = cgp.metrics.coverage(truth[:, at], there)
        print(
            f"{days:4}   {x_stay:5.2f} / {y_stay:5.2f}   {x_other:5.2f} / {y_other:5.2f}   "
            f"{x:5.2f} ± {x_error:.2f} / {y:5.2f} ± {y_error:.2f}   {inside:13.1%}"
        )
        figures[days] = {"error": (x, y), "persistence": (x_stay, y_stay), "coverage": inside}
    return periods, figures


if __name__ == "__main__":
    main()
