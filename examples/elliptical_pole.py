"""The elliptical oscillation of the pole, learned three ways.

The pole of the Earth's rotation moves along a damped ellipse that is driven by noise: the
elliptical Ornstein-Uhlenbeck process (Sykulski, Olhede & Sykulska-Lawrence, *Statistics and Its
Interface* 16, 2023, arXiv:2001.05965),

    dz = (−α₁ + iβ₁) z dt + (−α₂ + iβ₂) conj(z) dt + dW,    E|dW|² = A dt.

The authors fit it by Whittle's likelihood, their equation (15): the Fourier transforms of a series
at opposite frequencies are a pair, independent of the other pairs, whose covariance is the spectrum
and the complementary spectrum. Here are their simulations (Tables 2 and 3) again, series of 1759
points, fitted by

- Whittle's likelihood as they have it, in NumPy, with the aliased spectra summed in closed form
  where they take 21 terms: a baseline that does a little better than theirs;
- the debiased Whittle likelihood, which has the expected periodogram in place of the spectra;
- the exact likelihood of the state-space model, which has one complex state.

Expect a table of means, of biases in standard errors, and of root mean square errors in percent of
the truth. Whittle's A is too large, as its spectra neglect leakage, which dominates the periodogram
far from the peak; debiasing corrects that, and the exact likelihood, which does not assume that
leaking frequencies are independent, has two thirds of its error. All three overestimate the
damping: maximum likelihood estimates the damping of a circular process over a span T too large by
1/T on average, and the variance of innovations too small by a share of 2/T. In the last row these
two known biases are subtracted, and a thousand series show no bias then.

Forty series take a minute or two,

    python examples/elliptical_pole.py

and the thousand of the paper half an hour: `python examples/elliptical_pole.py 1000`.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize
from scipy.signal import lfilter

import cgp

TRUTH = {"α₁": 0.02, "β₁": 1.0, "α₂": -0.5, "β₂": -0.3, "A": 2.0}
POINTS, SERIES = 1759, 40
NOISE = 1e-5  # of a measurement, in effect none: the innovations of z have variance 2
WHITTLE, DEBIASED, EXACT = "Whittle, eq. (15)", "debiased Whittle", "exact likelihood"
CORRECTED = "exact, less its bias"
CLAIMS = 20  # series of which the standard errors are computed too
COLORS = {WHITTLE: "#c0392b", DEBIASED: "#2e8b57", EXACT: "#1f5fa8"}
PICTURE = Path(__file__).with_suffix(".png")


def simulated(count, seed=0):
    """Stationary series of the process at unit spacing, `[count, POINTS]`."""
    kernel = cgp.kernels.EllipticalOU.from_drift(*TRUTH.values())
    damping, c = kernel.alpha1, complex(kernel.coefficient)
    step = np.exp(-damping + 2j * np.pi * float(kernel.frequency))
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(count, POINTS, 2)) @ [1.0, 1j]
    w *= np.sqrt(0.5 * float(kernel.variance) / (1 + abs(c) ** 2))
    w[:, 1:] *= np.sqrt(
        -np.expm1(-2 * damping)
    )  # of a circular autoregression, in its steady state
    u = lfilter([1.0], [1.0, -step], w)
    return u + c * np.conj(u)


def drift_of(kernel):
    return [kernel.alpha1, kernel.beta1, kernel.alpha2, kernel.beta2, kernel.diffusion]


def start_of(z):
    """A kernel to start from: the ellipse at the peak of the periodogram, damped by 0.1."""
    J = np.fft.fft(z)
    peak = np.argmax(np.abs(J))
    c = J[-peak] * J[peak] / abs(J[peak]) ** 2
    c *= min(1.0, 0.9 / abs(c))
    frequency = np.fft.fftfreq(z.size)[peak]
    return cgp.kernels.EllipticalOU(np.mean(np.abs(z) ** 2), 0.1, frequency, c)


def by_whittle(z):
    """Estimates by equation (15) for each series, by Nelder and Mead's search as there."""
    omega = 2 * np.pi * np.fft.fftfreq(z.shape[-1])
    found = []
    for J in np.fft.fft(z) / np.sqrt(z.shape[-1]):

        def loss(values, J=J):
            log_variance, log_damping, rate, real, imaginary = values
            c, damping = complex(real, imaginary), np.exp(log_damping)
            if abs(c) >= 1.0 or damping > 10.0:
                return np.inf
            variance = np.exp(log_variance) / (1 + abs(c) ** 2)
            # Σ_k 2a/(a² + (ω − b + 2πk)²), the spectrum of a sampled circular process
            one, other = (
                variance * np.sinh(damping) / (np.cosh(damping) - np.cos(omega - b))
                for b in (rate, -rate)
            )
            S, opposite = one + abs(c) ** 2 * other, other + abs(c) ** 2 * one
            R = c * (one + other)
            J_opposite = np.roll(J[::-1], 1)
            det = S * opposite - np.abs(R) ** 2
            square = opposite * np.abs(J) ** 2 + S * np.abs(J_opposite) ** 2
            square -= 2 * np.real(R * np.conj(J * J_opposite))
            return 0.5 * np.sum(np.log(det) + square / det)

        kernel = start_of(np.fft.ifft(J) * np.sqrt(J.size))
        c, rate = complex(kernel.coefficient), 2 * np.pi * float(kernel.frequency)
        start = [np.log(kernel.variance), np.log(kernel.damping), rate, c.real, c.imag]
        options = {"xatol": 1e-6, "fatol": 1e-6, "maxfev": 10_000}
        best = minimize(loss, start, method="Nelder-Mead", options=options).x
        variance, damping, rate = np.exp(best[0]), np.exp(best[1]), best[2] / (2 * np.pi)
        found.append(
            drift_of(cgp.kernels.EllipticalOU(variance, damping, rate, best[3] + 1j * best[4]))
        )
    return np.array(found)


def by_cgp(z, likelihood, claims=0):
    """Estimates for each series, by one model that is compiled once.

    Of the first series, as many as asked for, also the standard errors that the model claims for
    damping and frequency, beside the estimates.
    """
    kernel = cgp.kernels.EllipticalOU(1.0, 0.1, 0.1, 0.1, name="pole")
    gp = cgp.StateSpaceGP(kernel, NOISE, fixed="noise_variance", likelihood=likelihood)
    gp.compile(cgp.optimizers.LBFGS())
    x, found, claimed = np.arange(float(z.shape[-1])), [], []
    for number, series in enumerate(z):
        start = start_of(series)
        for name in ("variance", "damping", "frequency", "coefficient"):
            getattr(kernel, name).assign(getattr(start, name))
        gp.fit(x, series, verbose=0)
        found.append(drift_of(kernel))
        if number < claims:
            errors = gp.parameter_errors(verbose=0)
            own = {name: getattr(kernel, name) for name in ("damping", "frequency")}
            claimed.append([(float(value), errors[f"pole.{n}"]) for n, value in own.items()])
    return np.array(found), np.array(claimed)


def without_bias(estimates):
    """Exact estimates less what maximum likelihood is biased by, to first order in 1/T.

    Of the damping that is 1/T, half of the 2/T of a real process (Marriott & Pope, Biometrika 41,
    1954); of the variance of innovations a share of 4/(2T), as four real numbers of the drift are
    fitted to 2T.
    """
    return estimates + [-1.0 / POINTS, 0.0, 0.0, 0.0, 0.0] + [0, 0, 0, 0, 2 / POINTS] * estimates


def summary(estimates):
    """Mean, bias in its standard errors, and root mean square error of each number."""
    truth = np.array([*TRUTH.values()])
    mean, spread = np.mean(estimates, axis=0), np.std(estimates, axis=0, ddof=1)
    bias = (mean - truth) / spread * np.sqrt(len(estimates))
    return {
        "mean": mean,
        "bias": bias,
        "error": np.sqrt(np.mean((estimates - truth) ** 2, axis=0)),
    }


def draw(z, estimates, path):
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.3), layout="constrained")
    kernel = cgp.kernels.EllipticalOU.from_drift(*TRUTH.values())
    turn, c = np.exp(2j * np.pi * np.linspace(0, 1, 200)), complex(kernel.coefficient)
    ellipse = np.sqrt(float(kernel.variance) / (1 + abs(c) ** 2)) * (turn + c * np.conj(turn))
    axes[0].plot(z[0, :150].real, z[0, :150].imag, ".-", color="#999999", linewidth=0.6)
    axes[0].plot(ellipse.real, ellipse.imag, color="k", linewidth=1.2, label="its ellipse")
    axes[0].set(xlabel="Re z", ylabel="Im z", title="150 points of a series", aspect="equal")
    axes[0].legend(frameon=False, fontsize="small")
    bins = np.linspace(0.008, 0.036, 15)
    for way, found in estimates.items():
        style = {"color": COLORS[way], "histtype": "step", "linewidth": 1.5, "label": way}
        axes[1].hist(np.clip(found[:, 0], bins[0], bins[-1]), bins, **style)
    axes[1].axvline(TRUTH["α₁"], color="k", linewidth=0.8)
    axes[1].set(xlabel="α₁", ylabel="series", title="Damping as estimated")
    axes[1].legend(frameon=False, fontsize="small")
    places, truth = np.arange(len(TRUTH)), np.abs([*TRUTH.values()])
    for number, (way, found) in enumerate(estimates.items()):
        error = 100 * summary(found)["error"] / truth
        axes[2].bar(places + 0.27 * (number - 1), error, 0.25, color=COLORS[way], label=way)
    axes[2].set(yscale="log", ylabel="% of the truth", title="Root mean square errors")
    axes[2].set_xticks(places, list(TRUTH))
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(count=SERIES, picture=PICTURE):
    """Prints the figures, saves the picture, and returns the figures."""
    z = simulated(count)
    exact, claimed = by_cgp(z, "exact", CLAIMS)
    estimates = {WHITTLE: by_whittle(z), DEBIASED: by_cgp(z, "whittle")[0], EXACT: exact}
    draw(z, estimates, picture)
    estimates[CORRECTED] = without_bias(exact)
    figures = {way: summary(found) for way, found in estimates.items()}
    print(f"{count} series of {POINTS} points; errors are root mean squares\n")
    print(f"{'':20}" + "".join(f"{name:>10}" for name in TRUTH))
    print(f"{'truth':20}" + "".join(f"{value:10.4f}" for value in TRUTH.values()))
    for way, of in figures.items():
        print(f"\n{way:20}" + "".join(f"{value:10.4f}" for value in of["mean"]))
        print(f"{'  bias / its error':20}" + "".join(f"{value:10.2f}" for value in of["bias"]))
        percent = 100 * of["error"] / np.abs([*TRUTH.values()])
        print(f"{'  error in %':20}" + "".join(f"{value:10.2f}" for value in percent))
        ratio = of["error"] / figures[WHITTLE]["error"]
        print(f"{'  over Whittle':20}" + "".join(f"{value:10.3f}" for value in ratio))
    quotient = np.mean(claimed[..., 1], axis=0) / np.std(claimed[..., 0], axis=0, ddof=1)
    print(
        f"\nerrors that exact fits claim, over the spread of {len(claimed)} estimates: damping "
        f"{quotient[0]:.2f}, frequency {quotient[1]:.2f}"
    )
    print(f"\npicture: {picture}")
    return figures


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
