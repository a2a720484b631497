"""Interpolating measured S-parameters: a delay, to a spline, to two real GPs and to a complex one.

A reflection that has travelled turns with frequency, s ∝ e^{−i2πfτ}. In a complex kernel that is
one factor, a rotation with the delay τ for its parameter, and what is left is smooth. Real kernels
for real and imaginary part can at best oscillate, times a cosine: that the two belong together, a
quarter of a turn apart, is lost on them.

A ring slot antenna was measured at 101 frequencies from 75 to 110 GHz (the file comes with
scikit-rf). Every fourth point is learned, the others are held out. The antenna's own delay is
small: expect a tie. Then the same antenna behind 30 mm of air, which turn the reflection seven
times over the band. That line is computed: what scikit-rf has of measurements that turn as fast,
raw readings of calibration standards, is so noisy that no way of interpolation is any use.
Expect the complex GP to be as good as before, the real ones 2 dB worse, and the spline 12 dB.

No held-out point has a part in any choice: among the kernels of each way, the highest likelihood of
the learned points decides.

Run it with: python examples/s_parameters.py (under a minute)
"""

from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from scipy.interpolate import CubicSpline
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

import cgp
from cgp.kernels import RBF, Constant, Matern32, Matern52, Rotation

EVERY = 4  # one point in four is learned
LINE_DELAY = 2 * 0.030 / 299_792_458.0  # seconds, there and back through 30 mm of air
LENGTHSCALES = (1.0, 10.0)  # GHz: where fits start; the one that ends higher counts
FINER = 10  # steps of the curves for each step of the measurement
PICTURE = Path(__file__).with_suffix(".png")

KERNELS = {  # for complex GPs, and as a function of r = distance / lengthscale for real ones
    "RBF": (RBF, lambda r: np.exp(-0.5 * r**2)),
    "Matérn-3/2": (Matern32, lambda r: (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r)),
    "Matérn-5/2": (
        Matern52,
        lambda r: (1 + np.sqrt(5) * r + 5 / 3 * r**2) * np.exp(-np.sqrt(5) * r),
    ),
}


class Interpolation(NamedTuple):
    kernel: str
    log_likelihood: float
    prediction: dict  # as gp.predict returns it; of the spline and the real GPs the mean alone
    gp: Any = None


def spline(f, s, f_new):
    yield Interpolation("cubic", 0.0, {"mean": CubicSpline(f, s)(f_new)})


def two_real_gps(f, s, f_new):
    """Real and imaginary part by themselves, each with its own parameters."""
    peak = abs(float(Rotation.from_periodogram(f, s).frequency))
    for name, (_, correlation) in KERNELS.items():
        for frequency in (0.0, peak):
            (a, re), (b, im) = (
                real_gp(f, part, correlation, frequency, f_new) for part in (s.real, s.imag)
            )
            yield Interpolation(name + " × cosine" * bool(frequency), a + b, {"mean": re + 1j * im})


def real_gp(f, y, correlation, frequency, f_new):
    """A real GP as textbooks have it: log likelihood of `y`, prediction at `f_new`."""

    def covariance(theta, f1, f2):
        lag = f1[:, None] - f2
        envelope = np.exp(theta[0]) * correlation(np.abs(lag) / np.exp(theta[1]))
        return envelope * np.cos(2 * np.pi * theta[3] * lag)

    def factor(theta):
        return cho_factor(covariance(theta, f, f) + np.exp(theta[2]) * np.eye(len(f)), lower=True)

    def negative_log_likelihood(theta):
        chol = factor(theta)
        log_det = 2 * np.log(np.diag(chol[0])).sum()
        return 0.5 * (y @ cho_solve(chol, y) + log_det + len(f) * np.log(2 * np.pi))

    power = np.mean(y**2)
    # An oscillation no faster than the points can tell; none at all if it starts from 0.
    bounds = [(-15, 5), (-3, 6), (-15, 5), (0, 0.5 / (f[1] - f[0]) if frequency else 0)]
    starts = [
        (np.log(power), np.log(lengthscale), np.log(power / 100), frequency)
        for lengthscale in LENGTHSCALES
    ]
    fits = [minimize(negative_log_likelihood, start, bounds=bounds) for start in starts]
    best = min(fits, key=lambda fit: fit.fun)
    return -best.fun, covariance(best.x, f_new, f) @ cho_solve(factor(best.x), y)


def complex_gp(f, s, f_new):
    """Frequencies in GHz, so the delay is in nanoseconds."""
    power = np.mean(np.abs(s) ** 2)
    for name, (family, _) in KERNELS.items():
        for constant in (False, True):  # a part of the reflection that does not turn
            fits = []
            for lengthscale in LENGTHSCALES:
                kernel = family(power, lengthscale) * Rotation.from_periodogram(f, s, name="delay")
                if constant:
                    kernel += Constant(power / 10)
                gp = cgp.ExactGP(kernel, noise_variance=power / 100)
                gp.compile(optimizer=cgp.optimizers.LBFGS())
                gp.fit(f, s, verbose=0)
                fits.append((float(gp.log_marginal_likelihood(f, s)), gp))
            likelihood, gp = max(fits, key=lambda fit: fit[0])
            label = f"{name} × delay" + " + constant" * constant
            yield Interpolation(label, likelihood, gp.predict(f_new, observed=True), gp)


WAYS = {"spline": spline, "two real GPs": two_real_gps, "complex GP": complex_gp}


def compare(title, f, s):
    """Prints a table; returns by way what it chose, and the held-out error of that in dB."""
    learned = np.arange(len(f)) % EVERY == 0
    fine = np.linspace(f[0], f[-1], FINER * (len(f) - 1) + 1)
    print(f"\n{title}: {learned.sum()} points learned, {(~learned).sum()} held out")
    print("way           kernel                         log likelihood  NMSE (dB)  in 95 % region")
    chosen = {}
    for way, interpolate in WAYS.items():
        found = []
        for one in interpolate(f[learned], s[learned], fine):
            held_out = {key: values[::FINER][~learned] for key, values in one.prediction.items()}
            error = cgp.metrics.normalized_error_db(s[~learned], held_out["mean"])
            likelihood = "" if way == "spline" else f"{one.log_likelihood:.1f}"
            inside = f"{cgp.metrics.coverage(s[~learned], held_out):.0%}" if one.gp else ""
            print(
                f"{way:13} {one.kernel:30} {likelihood:>14} {error:10.2f} {inside:>15}", flush=True
            )
            found.append((one, error))
        chosen[way] = max(found, key=lambda pair: pair[0].log_likelihood)
    print("the most likely of each way:")
    for way, (one, error) in chosen.items():
        print(f"{way:13} {one.kernel:30} {'':14} {error:10.2f}")
    gp = chosen["complex GP"][0].gp
    delay, error = (found["delay.frequency"] for found in (gp.parameters(), gp.parameter_errors()))
    print(f"its delay: {-1e3 * delay:.1f} ± {1e3 * error:.1f} ps")
    return chosen


def draw(f, s, turned, plain, behind, path):
    learned = np.arange(len(f)) % EVERY == 0
    fine = np.linspace(f[0], f[-1], FINER * (len(f) - 1) + 1)
    layout = [["plane", "line"], ["plane", "errors"]]
    figure, axes = plt.subplot_mosaic(layout, figsize=(11, 5), layout="constrained")

    ax = axes["plane"]
    cgp.plotting.plane(s[~learned], plain["complex GP"][0].prediction, ax=ax)
    handles = ax.get_legend().legend_handles
    handles += ax.plot(s[learned].real, s[learned].imag, "o", color="#c0392b", markersize=4)
    labels = ["95 % ellipses", "complex GP", "held out", "learned"]
    ax.legend(handles, labels, frameon=False, fontsize="small", loc="upper left")
    ax.set(xlabel="Re s", ylabel="Im s", title="The antenna, 75 to 110 GHz")

    ax = axes["line"]
    ax.plot(fine, behind["complex GP"][0].prediction["mean"].real, color="#1f5fa8")
    ax.plot(f[~learned], turned[~learned].real, ".", color="0.25", markersize=4)
    ax.plot(f[learned], turned[learned].real, "o", color="#c0392b", markersize=4)
    ax.set(ylabel="Re s", title="Behind 30 mm of air")

    ax = axes["errors"]
    colors = {"spline": "0.6", "two real GPs": "#d08c1d", "complex GP": "#1f5fa8"}
    for way, (one, error) in behind.items():
        missed = np.abs(one.prediction["mean"][::FINER] - turned)[~learned]
        label = f"{way}: {error:.1f} dB"
        ax.semilogy(f[~learned], missed, ".-", color=colors[way], linewidth=0.8, label=label)
    ax.set(xlabel="frequency (GHz)", ylabel="|error|, held out", ylim=(2e-4, 3.0))
    ax.sharex(axes["line"])
    ax.legend(frameon=False, fontsize="small", ncols=3, columnspacing=1.0, loc="upper center")

    for ax in axes.values():
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"\npicture: {path}")


def main(picture=PICTURE):
    antenna = cgp.datasets.s_parameters("ring slot measured.s1p")
    f, s = antenna.frequency / 1e9, antenna.s
    turned = s * np.exp(-2j * np.pi * antenna.frequency * LINE_DELAY)
    plain = compare("ring slot, as measured", f, s)
    behind = compare("ring slot behind 30 mm of air (computed line)", f, turned)
    print(f"of which the line is {1e12 * LINE_DELAY:.1f} ps")
    draw(f, s, turned, plain, behind, picture)
    return plain, behind


if __name__ == "__main__":
    main()
