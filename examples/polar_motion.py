"""The Earth's pole as one complex signal: its wobble, and forecasts.

The pole of the Earth's rotation wanders some metres about the north pole. As one complex number, p
= x − i·y, it obeys one equation. The Earth is a resonator with a period of some 434 days and a
damping time of decades (the Chandler wobble); winds, waters and the pressure of the air are its
excitation χ (Munk & MacDonald, The Rotation of the Earth, 1960):

    dp/dt = s (p − χ),     s = −damping + i2π · frequency.

A kernel can describe this. `Driven(resonance, excitation)` is the resonator, and the excitation a
sum:

    weather       a Matérn-3/2 process of a few days
    mode          a damped rotation, clockwise in some nine days: the atmosphere has a normal mode
    drift         ice and the mantle, over centuries

The seasons are added, with frequencies of ±1 and ±2 per year. The sum is Markov, so that
`StateSpaceGP` learns from each of the 5,588 days from 1994.7 to 2009 in seconds, where an exact
process would factorise their covariance again for every step.

    1. Eight parameters are learned by likelihood from the days before 2010.
    2. Forecasts of 1 to 90 days from 201 dates since: with these parameters, and with those of
       weather and mode learned again each year, from the four years before.
    3. The same forecasts by the usual method: a least squares fit of trend, seasons and Chandler
       wobble to ten years, and an autoregressive model of 30 days for the residuals (LS + AR).
    4. Period and Q of the wobble with their errors, also from means of ten days of all 64 years.

The series is EOP 20 C04 of the International Earth Rotation and Reference Systems Service, daily,
as the package astropy-iers-data holds it. Expect errors below those of LS + AR by 5 % at 10 days,
14 % at 30 and 21 % at 90. At one day expect larger ones, and at five a tie: these values are
interpolated, so smoothly until 2020 that 30 days determine the next. The kernel does not learn
that, as its noise is fixed at the value stated in the file, 0.06 milliarcseconds (mas) in x and y:
if learned, it would go to zero, and the regions would be too narrow. With it they contain 90 to 96
% of the later values. Final values are smoothed from both sides: none of this is operational skill,
and the published errors printed for comparison are of values as known on the day.

Before 1984 the values are smoothed and off by some ten mas for weeks, before 1994 they are noisy:
forecasts look back to 1994.7. Such errors look like a strongly damped wobble: hence the low Q of
all 64 years. The kernel was chosen on forecasts from 2004 to 2009, learned before: with the mode
the errors were smaller at each horizon, and the regions as good (`choose()`).

Run it with: python examples/polar_motion.py (about two minutes)
"""

from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np

import cgp
from cgp.kernels import Constant, Driven, Matern12, Matern32, Rotation

YEAR = 365.25  # days, the unit of time here: between whole days there are few different steps
CLEAN, SPLIT = 49609, 55197  # modified Julian dates: good daily values begin (1994.7); 2010-01-01
END = 61313  # the first day that is not used, so that figures repeat
ORIGINS = SPLIT - 1 + 30 * np.arange(201)  # last days known when a forecast is made
HORIZONS = np.arange(1, 91)  # days
SHOWN = (1, 5, 10, 30, 90)
BATCH = 12  # forecasts made at once, those of a year
PICTURE = Path(__file__).with_suffix(".png")

# Mean absolute errors of x / y in mas: doi 10.2478/arsa-2023-0004.
PUBLISHED = {10: "LS + AR 2.93 / 1.94, others from 2.87 / 1.81", 30: "7.71 / 5.43, 7.03 / 4.41"}
LITERATURE = 433.7, 68  # days, Q: after Sykulski, Olhede & Sykulska-Lawrence, arXiv 2001.05965

POLE = cgp.datasets.polar_motion(end=END)  # positions in mas


def position(mjd):
    return POLE.position[np.asarray(mjd) - int(POLE.mjd[0])]


# --- the model ------------------------------------------------------------------------------------


def model(excitation, **noise):
    """The pole in days and mas, and those of its kernels that are slow to change."""
    resonance = Matern12(lengthscale=40 * YEAR, fixed="variance", name="damping")
    resonance *= Rotation(1 / 433, name="chandler")
    # Over decades a process of centuries is a random walk, of which only the pace can be learned.
    drift = Matern12(variance=5e3, lengthscale=100 * YEAR, fixed="lengthscale", name="drift")
    kernel = Driven(resonance, excitation + drift)
    # The data say well what these are: their variance only has to be large.
    for turns in (1, -1, 2, -2):
        kernel += Constant(1e4, fixed="variance") * Rotation(turns / YEAR, fixed="frequency")
    kernel += Constant(1e5, fixed="variance")
    gp = cgp.StateSpaceGP(kernel, **noise)
    gp.compile(optimizer=cgp.optimizers.LBFGS(ftol=1e-7))
    return gp, (resonance, drift)


def daily_model(mode=True):
    excitation = Matern32(variance=2e3, lengthscale=3.0, name="weather")
    if mode:
        clockwise = Rotation(-0.1, name="clockwise")
        excitation += Matern12(variance=300.0, lengthscale=6.0, name="mode") * clockwise
    return model(excitation, noise_variance=2 * 0.06**2, fixed="noise_variance")


def learn(gp, start, end, **options):
    days = np.arange(start, end)
    gp.fit(days - end, position(days), **options)


def wobble(gp):
    """Period in days and its standard error, Q and the factor of its: damping is learned as a log.

    An oscillation of frequency f that decays by e in a time T has Q = π f T.
    """
    values, errors = gp.parameters(), gp.parameter_errors()
    f, time = values["chandler.frequency"], values["damping.lengthscale"]
    factor = np.exp(errors["damping.lengthscale"] / time)
    return 1 / f, errors["chandler.frequency"] / f**2, np.pi * f * time, factor


def wobble_of_means(start, days=10):
    """From means over ten days, in which weather has no colour, and noise is what it may be."""
    count = (END - start) // days
    mjd = END - days * count + np.arange(days * count).reshape(count, days)
    gp, _ = model(Matern12(variance=2e3, lengthscale=3.0, name="weather"), noise_variance=1.0)
    gp.fit(mjd.mean(axis=1) - END, position(mjd).mean(axis=1))
    return wobble(gp)


# --- forecasts ------------------------------------------------------------------------------------


def forecast(gp, origins, horizons=HORIZONS):
    """The pole `horizons` days after each of the `origins`, given the good values until then.

    Of more than 200 days ago every fourth, which is the same to 0.2 mas at 90 days and to 0.01 at
    five, in a third of the time; all origins look back as far as the first.
    """
    ago = np.arange(origins[0] - CLEAN + 1)
    ago = ago[(ago < 200) | (ago % 4 == 0)][::-1]
    gp.condition(-ago, position(origins[:, None] - ago))  # a batch of series, one x
    return gp.predict(horizons, observed=True)


def forecasts(gp, origins, slow=()):
    """Of all origins; if kernels are `slow`, with all others learned again each year."""
    for kernel in slow:
        kernel.trainable = False
    starts = [min(start, len(origins) - BATCH) for start in range(0, len(origins), BATCH)]
    found = {}
    progress = keras.utils.Progbar(len(starts), unit_name="year")
    for start in starts:
        batch = slice(start, start + BATCH)
        if slow:
            known = origins[start] + 1
            learn(gp, known - round(4 * YEAR), known, verbose=0)
        for key, values in forecast(gp, origins[batch]).items():
            shape = (len(origins), len(HORIZONS))
            found.setdefault(key, np.empty(shape, values.dtype))[batch] = values
        progress.add(1)
    return found


def least_squares_autoregression(origins, order=30):
    """What is usual: harmonics fitted to ten years, and a complex autoregression of the rest."""
    days = np.arange(-round(10 * YEAR) + 1, HORIZONS[-1] + 1)
    turns = [sign / period for period in (YEAR, YEAR / 2, LITERATURE[0]) for sign in (1, -1)]
    design = np.exp(2j * np.pi * np.outer(days, [0.0, *turns]))
    design = np.column_stack([design, days / YEAR])
    past, future = design[days <= 0], design[days > 0]
    project = np.linalg.pinv(past)
    found = []
    for origin in origins:
        z = position(origin + days[days <= 0])
        harmonics = project @ z
        rest = z - past @ harmonics
        lags = np.lib.stride_tricks.sliding_window_view(rest, order + 1)
        weights = np.linalg.lstsq(lags[:, :-1], lags[:, -1], rcond=None)[0]
        rest = list(rest)
        for _ in HORIZONS:
            rest.append(np.dot(weights, rest[-order:]))
        found.append(future @ harmonics + rest[len(z) :])
    return np.array(found)


# --- how good they are ----------------------------------------------------------------------------


def mean_absolute(error):
    """Of x and of y, `[2, horizons]`."""
    return np.abs(np.stack([error.real, error.imag])).mean(axis=1)


def ratio(error, other):
    """Of the mean absolute errors of x and y together, and its standard error, by a jackknife.

    Forecasts overlap, and years hardly do: one year of twelve forecasts is left out at a time.
    """

    def of(kept):
        return np.divide(*(mean_absolute(e[kept]).sum(axis=0) for e in (error, other)))

    year = np.arange(len(error)) // BATCH
    without = np.array([of(year != y) for y in range(year[-1] + 1)])
    return of(slice(None)), np.sqrt((len(without) - 1) * without.var(axis=0))


def coverage(truth, prediction):
    """Of the 95 % regions, `[horizons]`."""
    each = [{key: values[:, i] for key, values in prediction.items()} for i in range(len(truth.T))]
    return np.array([cgp.metrics.coverage(z, one) for z, one in zip(truth.T, each, strict=True)])


def choose():
    """The choice of the kernel: learned until 2003, and tried on 208 dates from 2004 to 2009."""
    start = 53005  # 2004-01-01
    origins = start - 1 + 10 * np.arange(208)
    truth = position(origins[:, None] + HORIZONS)
    usual = least_squares_autoregression(origins) - truth
    for name, mode in (("weather alone", False), ("weather and mode", True)):
        gp, _ = daily_model(mode)
        learn(gp, CLEAN, start)
        prediction = forecasts(gp, origins)
        compared, _ = ratio(prediction["mean"] - truth, usual)
        inside = coverage(truth, prediction)
        print(f"{name}: days ahead, error over that of LS + AR, in the 95 % region")
        for days in SHOWN:
            print(f"{days:4} {compared[days - 1]:8.3f} {inside[days - 1]:8.1%}")


# --- pictures -------------------------------------------------------------------------------------


def draw_path(gp, path):
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    origin, ahead = ORIGINS[120], np.arange(0, 366, 15)
    recent = position(np.arange(origin - round(6.4 * YEAR), origin + 1))  # wobble and year: a beat
    left.plot(POLE.position.real, POLE.position.imag, "0.75", linewidth=0.4, label="1962 to 2026")
    left.plot(recent.real, recent.imag, "#1f5fa8", linewidth=0.9, label="2013.5 to 2019.9")
    left.set(title="The pole", xlim=(-420, 420), ylim=(-640, 120))
    left.legend(frameon=False, fontsize="small", loc="upper left", ncols=2)

    prediction = {key: values[0] for key, values in forecast(gp, ORIGINS[[120]], ahead).items()}
    cgp.plotting.plane(position(origin + ahead), prediction, ax=right)
    handles = right.get_legend().legend_handles
    labels = ["95 % ellipses", "forecast, every 15 days", "what came"]
    right.legend(handles, labels, frameon=False, fontsize="small", loc="upper left", ncols=3)
    right.set(title="A year ahead from one day of 2019", xlim=(-60, 320), ylim=(-500, -156))
    for ax in (left, right):
        ax.set_aspect("equal")
        ax.set(xlabel="x (mas)", ylabel="−y (mas)")
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"picture: {path}")


def draw_errors(errors, covered, path):
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    styles = {
        "persistence": {"color": "0.6"},
        "LS + AR": {"color": "k", "linestyle": "--"},
        "cgp": {"color": "#1f5fa8"},
        "cgp, learning on": {"color": "#c0392b"},
    }
    for name, error in errors.items():
        left.loglog(HORIZONS, mean_absolute(error).mean(axis=0), label=name, **styles[name])
    left.set_xticks(SHOWN, labels=SHOWN)
    left.set_xticks([], minor=True)
    left.yaxis.set_major_formatter("{x:g}")
    left.set(xlabel="days ahead", ylabel="mean absolute error of x and y (mas)")
    left.set(title=f"{len(ORIGINS)} forecasts since 2010")
    left.legend(frameon=False, fontsize="small")
    for name, fractions in covered.items():
        right.plot(HORIZONS, fractions, label=name, **styles[name])
    right.axhline(0.95, color="0.7", linewidth=0.8, zorder=0)
    right.set(xlabel="days ahead", ylabel="fraction in the 95 % region", ylim=(0.8, 1.0))
    right.set(title="Calibration")
    right.legend(frameon=False, fontsize="small", loc="lower right")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"picture: {path}")


# --- the page -------------------------------------------------------------------------------------


def report(errors, covered, wobbles):
    print("\nChandler wobble, from         period ± error, days       Q, ± one standard error")
    for years, (period, error, q, factor) in wobbles.items():
        span = f"{q / factor:.0f} to {q * factor:.0f}"
        print(f"{years:24} {period:12.1f} ± {error:.1f} {q:18.0f}, {span}")
    print("{:24} {:12.1f} {:24.0f}".format("literature", *LITERATURE))

    print("\nmean absolute errors of x / y in mas, and over those of LS + AR ± standard error")
    for days in SHOWN:
        print(f"\n{days} days ahead")
        for name, error in errors.items():
            x, y = mean_absolute(error)[:, days - 1]
            print(f"  {name:18} {x:6.2f} / {y:5.2f}", end="")
            if name in covered:
                compared, deviation = (a[days - 1] for a in ratio(error, errors["LS + AR"]))
                inside = covered[name][days - 1]
                print(f"   {compared:.3f} ± {deviation:.3f}, {inside:.1%} in the region", end="")
            print()
        if days in PUBLISHED:
            print(f"  published          {PUBLISHED[days]}")


def main(picture=PICTURE):
    """Prints the figures, saves the pictures, and returns the figures."""
    print(f"learning from {SPLIT - CLEAN} days of 1994 to 2009")
    gp, slow = daily_model()
    learn(gp, CLEAN, SPLIT)
    wobbles = {"1994 to 2009, daily": wobble(gp)}
    draw_path(gp, picture)

    truth = position(ORIGINS[:, None] + HORIZONS)
    stay = np.broadcast_to(position(ORIGINS)[:, None], truth.shape)
    errors = {"persistence": stay - truth, "LS + AR": least_squares_autoregression(ORIGINS) - truth}
    covered = {}
    for name, kernels in (("cgp", ()), ("cgp, learning on", slow)):
        print(f"{len(ORIGINS)} forecasts since 2010: {name}")
        prediction = forecasts(gp, ORIGINS, kernels)
        errors[name], covered[name] = prediction["mean"] - truth, coverage(truth, prediction)
    draw_errors(errors, covered, picture.with_stem(picture.stem + "_error"))

    for start, first in ((1984, 45700), (1962, int(POLE.mjd[0]))):
        print(f"the wobble, from means of ten days, {start} to 2026")
        wobbles[f"{start} to 2026, means"] = wobble_of_means(first)
    report(errors, covered, wobbles)
    return errors, covered, wobbles


if __name__ == "__main__":
    main()
