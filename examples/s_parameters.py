"""S-parameters between measured points: the tools of the trade, and an average of models.

The phase of a travelling wave rotates with frequency, s ∝ e^{−i2πfτ}, and a resonance is a loop in
the complex plane. Engineers interpolate with a spline; with one through log magnitude and phase;
with one after removal of a delay; or with a rational function whose poles vector fitting locates.
Which is best depends on the device. None gives the error of its interpolation.

cgp has models of both kinds: a smooth process times a delay, `Matern52() * Rotation() +
Constant()`, also with an echo at a delay from the first, `(Matern52() + Matern52() * Rotation()) *
Rotation(...) + Constant()`; and a few poles times a delay in noise, `means.Rational(order)`, or
pairs of them, `means.Rational(pairs, real_response=True)`, which need fewer points where the band
begins near zero. `cgp.compare` fits all of them without other information than the data, leaves out
a fifth of the learned points at a time, fits again, predicts these, and weighs the models by the
predictive density and their effective parameters. The mixture predicts, with regions. An echo whose
phase changes by more than half a turn between learned points is confused with an earlier one, which
no cross-validation on those points can detect.

Of seven S-parameters every fourth or every eighth point is learned, the others are held out: four
reflections that were measured, a ring slot antenna from 75 to 110 GHz and open waveguides from 500
to 750 GHz; the same antenna behind 30 mm of air, which rotates it seven times over the band (that
line is computed, and at least every fourth point must be learned to resolve the rotation); and,
computed without any noise, a ring slot and a line. No held-out point influences any choice: splines
have no settings, the order of vector fitting is that of the smallest error in the same
cross-validation, and each of the two real GPs, for real and imaginary part, has the kernel of the
highest likelihood.

Expect no tool of the trade to be good everywhere. A plain spline fails behind the line, and vector
fitting behind the line and where there is noise. The mixture should be within half a decibel of the
best of them, ahead in nearly half, and its 95 % regions to contain nine in ten points; all of them
where there is no noise, as it assumes some at −100 dB.

Run it with: python examples/s_parameters.py (some eight minutes)
"""

import contextlib
import logging
import warnings
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import skrf
from scipy.interpolate import CubicSpline
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from skrf.vectorFitting import VectorFitting

import cgp
from cgp.kernels import Constant, Matern52, Rotation, Zero

LINE_DELAY = 2 * 0.030 / 299_792_458.0  # seconds, there and back through 30 mm of air
ANTENNA, LINE = "ring slot antenna", "behind 30 mm of air"
EVERY = (4, 8)  # one point in so many is learned
# Orders of rational functions, as far as the points tell them.
RATIONAL = {"1 pole": 1, "2 pairs": 2, "4 pairs": 4, "6 pairs": 6, "8 pairs": 8, "12 poles": 12}
PAIRS = (1, 2, 3, 4, 5, 6, 8, 10, 12)  # of poles, for vector fitting
FLOOR_DB = -100.0  # an error below is none
PICTURE = Path(__file__).with_suffix(".png")


def parameters():
    """Frequencies in GHz and S-parameters by name."""
    measured = {ANTENNA: "ring slot measured.s1p"}
    measured |= {f"open waveguide {n}": f"ro,{n}.s1p" for n in (1, 2, 3)}
    found = {name: cgp.datasets.s_parameters(file) for name, file in measured.items()}
    turned = found[ANTENNA].s * np.exp(-2j * np.pi * found[ANTENNA].frequency * LINE_DELAY)
    found[LINE] = found[ANTENNA]._replace(s=turned)
    found["ring slot, computed"] = cgp.datasets.s_parameters("ring slot.s2p", ports=(2, 1))
    found["line, computed"] = cgp.datasets.s_parameters("line.s2p", ports=(2, 1))
    return {name: (data.frequency / 1e9, data.s) for name, data in found.items()}


def spline(f, s, f_new):
    return CubicSpline(f, s)(f_new)


def polar_spline(f, s, f_new):
    return np.exp(CubicSpline(f, np.log(np.abs(s)) + 1j * np.unwrap(np.angle(s)))(f_new))


def delayed_spline(f, s, f_new):
    """A spline through what is left without the delay at the peak of the periodogram."""
    turn = 2j * np.pi * float(Rotation.from_periodogram(f, s).frequency)
    return spline(f, s * np.exp(-turn * f), f_new) * np.exp(turn * f_new)


def vector_fitting(f, s, f_new):
    """Of as many pairs of poles as have the least error in cross-validation."""

    def fit(keep, pairs, f_new):
        frequency = skrf.Frequency.from_f(f[keep], unit="GHz")
        fitting = VectorFitting(skrf.Network(frequency=frequency, s=s[keep, None, None]))
        fitting.max_iterations = 60
        fitting.vector_fit(n_poles_real=0, n_poles_cmplx=pairs)
        return fitting.get_model_response(0, 0, 1e9 * f_new)

    folds = np.arange(len(f)) % 5
    folds[[0, -1]] = 5  # never left out
    errors = {}
    for pairs in PAIRS:
        if 2 * pairs + 1 <= 0.8 * len(f):
            with contextlib.suppress(RuntimeError, np.linalg.LinAlgError):  # of too many poles
                errors[pairs] = sum(
                    np.sum(np.abs(fit(folds != k, pairs, f[folds == k]) - s[folds == k]) ** 2)
                    for k in range(5)
                )
    return fit(np.ones(len(f), bool), min(errors, key=errors.get), f_new)


def two_real_gps(f, s, f_new):
    """Real and imaginary part by themselves, Matérn-5/2, which may oscillate at the peak."""
    peak = abs(float(Rotation.from_periodogram(f, s).frequency))
    found = [[real_gp(f, part, start, f_new) for start in (0.0, peak)] for part in (s.real, s.imag)]
    re, im = (max(fits, key=lambda fit: fit[0])[1] for fits in found)
    return re + 1j * im


def real_gp(f, y, frequency, f_new):
    """A real GP as textbooks have it: log likelihood of `y`, prediction at `f_new`."""

    def covariance(theta, f1, f2):
        lag = f1[:, None] - f2
        r = np.sqrt(5) * np.abs(lag) / np.exp(theta[1])
        return np.exp(theta[0] - r) * (1 + r + r**2 / 3) * np.cos(2 * np.pi * theta[3] * lag)

    def factor(theta):
        noise = np.exp(theta[2]) + 1e-12 * np.exp(theta[0])
        return cho_factor(covariance(theta, f, f) + noise * np.eye(len(f)), lower=True)

    def negative_log_likelihood(theta):
        chol = factor(theta)
        return 0.5 * (y @ cho_solve(chol, y)) + np.log(np.diag(chol[0])).sum()

    power, span, spacing = np.log(np.mean(y**2)), np.ptp(f), f[1] - f[0]
    # An oscillation no faster than the points can tell; none at all if it starts from 0.
    lengths = np.log([spacing / 2, 10 * span])
    turns = (0, 0.5 / spacing if frequency else 0)
    bounds = [(power - 10, power + 10), lengths, (power - 25, power), turns]
    starts = [(power, np.log(share * span), power - 5, frequency) for share in (0.05, 0.3)]
    fits = [minimize(negative_log_likelihood, start, bounds=bounds) for start in starts]
    best = min(fits, key=lambda fit: fit.fun)
    return -best.fun, covariance(best.x, f_new, f) @ cho_solve(factor(best.x), y)


TRADE = {
    "spline": spline,
    "polar spline": polar_spline,
    "delayed spline": delayed_spline,
    "vector fitting": vector_fitting,
}
REAL, CGP = "two real GPs", "cgp"


def models(f, s):
    """Processes, and rational functions that so many points less a fifth can tell."""
    smooth = Matern52() * Rotation(name="delay") + Constant()
    # The first delay is fixed at the peak: free, it changes places with the echo at no loss.
    first = Rotation.from_periodogram(f, s, fixed="frequency")
    echo = (Matern52() + Matern52() * Rotation(name="echo")) * first + Constant()
    found = {"process": cgp.ExactGP(smooth), "with echo": cgp.ExactGP(echo)}
    for name, order in RATIONAL.items():
        if 4 * order + 4 <= 1.8 * 0.8 * len(f):
            poles = cgp.means.Rational(order, real_response="pairs" in name)
            found[name] = cgp.ExactGP(Zero(), mean=poles)
    return found


class Case(NamedTuple):
    """One S-parameter, of which one point in `every` was learned."""

    name: str
    every: int
    f: np.ndarray
    s: np.ndarray
    means: dict[str, np.ndarray]
    """Predictions at all frequencies by way."""
    prediction: dict[str, np.ndarray]
    """The mixture's, as `gp.predict` returns it."""
    comparison: cgp.Comparison

    @property
    def held_out(self):
        return np.arange(len(self.f)) % self.every != 0

    @property
    def errors(self):
        """In decibels, at held-out points, by way."""
        truth = self.s[self.held_out]
        return {
            way: cgp.metrics.normalized_error_db(truth, mean[self.held_out])
            for way, mean in self.means.items()
        }

    @property
    def best_of_trade(self):
        errors = self.errors
        return min(errors[way] for way in TRADE)

    @property
    def behind(self):
        """By how many decibels the mixture is behind the best way of the trade, above the floor."""
        return max(self.errors[CGP], FLOOR_DB) - max(self.best_of_trade, FLOOR_DB)

    @property
    def inside(self):
        """The share of held-out points inside their 95 % regions."""
        region = {name: values[self.held_out] for name, values in self.prediction.items()}
        return cgp.metrics.coverage(self.s[self.held_out], region)


def run(name, every, f, s):
    learned = np.arange(len(f)) % every == 0
    given = f[learned], s[learned]
    # Vector fitting warns of orders that do not converge, cgp of data without noise.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        means = {way: interpolate(*given, f) for way, interpolate in TRADE.items()}
        means[REAL] = two_real_gps(*given, f)
        comparison = cgp.compare(models(*given), *given, restarts=2, verbose=0)
    prediction = comparison.predict(f, observed=True)
    return Case(name, every, f, s, means | {CGP: prediction["mean"]}, prediction, comparison)


def report(case):
    errors = "".join(f"{error:>15.2f}" for error in case.errors.values())
    weights = {name: scores.weight for name, scores in case.comparison.items()}
    heaviest = max(weights, key=weights.get)
    chosen = f"{weights[heaviest]:.0%} {heaviest}"
    print(f"{case.name:20}{case.every:6}{errors}{case.inside:>11.0%}  {chosen}", flush=True)


def draw(cases, path):
    figure, axes = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    antenna = next(case for case in cases if case.name == ANTENNA)
    learned, ax = ~antenna.held_out, axes[0]
    region = {name: values[antenna.held_out] for name, values in antenna.prediction.items()}
    cgp.plotting.plane(antenna.s[antenna.held_out], region, ax=ax)
    handles = ax.get_legend().legend_handles
    handles += ax.plot(
        antenna.s[learned].real, antenna.s[learned].imag, "o", color="#c0392b", markersize=4
    )
    labels = ["95 % ellipses", "cgp", "held out", "learned"]
    ax.legend(handles, labels, frameon=False, fontsize="small", loc="upper left")
    ax.set(xlabel="Re s", ylabel="Im s", title=f"{antenna.name}, every {antenna.every}th point")

    ax = axes[1]
    ways = [*TRADE, REAL, CGP]
    colors = ["0.65", "#8e6bb0", "#2e8b57", "#c0392b", "#d08c1d", "#1f5fa8"]
    errors = [{way: max(e, FLOOR_DB) for way, e in case.errors.items()} for case in cases]
    for number, (way, color) in enumerate(zip(ways, colors, strict=True)):
        over = [of_case[way] - min(of_case.values()) for of_case in errors]
        places = np.arange(len(cases)) + 0.1 * (number - 2.5)
        ax.plot(np.minimum(over, 20.0), -places, "o", color=color, label=way, markersize=5)
    ax.set_yticks(-np.arange(len(cases)), [f"{case.name}, {case.every}th" for case in cases])
    ax.set(xlabel="error over that of the best way (dB)", xlim=(-0.5, 20.5), title="Held out")
    ax.grid(axis="x", alpha=0.3)
    ax.legend(frameon=False, fontsize="small", loc="lower right")
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"\npicture: {path}")


def main(picture=PICTURE, names=None, every=EVERY):
    """Prints the tables, saves the picture, and returns the cases.

    Args:
        picture: Its path.
        names: Names of S-parameters, or None for all.
        every: One point in so many is learned.
    """
    logging.getLogger("skrf").setLevel(logging.ERROR)  # it logs what it warns of, too
    ways = "".join(f"{way:>15}" for way in (*TRADE, REAL, CGP))
    print(f"error of held-out points over their power, in dB\n{'':20}{'every':>6}{ways}", end="")
    print(f"{'in 95 %':>11}  heaviest model")
    cases = []
    for name, (f, s) in parameters().items():
        for step in every:
            turns = 1e9 * LINE_DELAY * step * (f[1] - f[0]) if name == LINE else 0.0  # a step
            if turns < 0.5 and (names is None or name in names):
                cases.append(run(name, step, f, s))
                report(cases[-1])
    behind = np.array([case.behind for case in cases])
    ahead = sum(case.errors[CGP] < case.best_of_trade for case in cases)
    print(
        f"\nof {len(cases)} rows cgp is ahead of the best way of the trade in {ahead}, "
        f"within 0.5 dB of it in {sum(behind <= 0.5)}, at most {behind.max():.2f} dB behind\n"
        f"(what is behind at less than {FLOOR_DB:.0f} dB is rounding, and is not counted)"
    )
    counts = [case.held_out.sum() for case in cases]
    inside = np.average([case.inside for case in cases], weights=counts)
    print(f"inside the 95 % regions: {inside:.1%} of {sum(counts)} held-out points")
    behind_line = next((case for case in cases if case.name == LINE), None)
    if behind_line:
        gp = behind_line.comparison.models["process"]
        delay = gp.parameters()["delay.frequency"]
        error = gp.parameter_errors(verbose=0)["delay.frequency"]
        print(f"delay behind the line, of the process: {-1e3 * delay:.1f} ± {1e3 * error:.1f} ps,")
        print(f"of which the line is {1e12 * LINE_DELAY:.1f} ps")
    draw(cases, picture)
    return cases


if __name__ == "__main__":
    main()
