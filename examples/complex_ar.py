"""A complex Kalman filter in ten lines, and the error of a library that transposes.

A rotating, decaying, noisy phasor: an oscillation, a channel tap, a mode of a rotor, at baseband.

    x⁺ = a x + w,   a = 0.98 e^{0.4i},   w ~ CN(0, 1 − |a|²)    so that x has variance 1
    z  = x + v,                          v ~ CN(0, 0.5)

The filter's variance obeys the Riccati recursion, `P⁺ = F P Fᴴ + Q`: here |a|² P + Q, a real
number, and the mean squared error comes to 0.1160. filterpy and statsmodels take complex arrays
without complaint, and compute `F P Fᵀ + Q`: a² P + Q. Its phase changes by 0.8 radians per step:
the variance becomes complex, and so does the gain, which has half the modulus and a phase error of
56°; the mean squared error comes to 0.28. No warning is given. (In statsmodels this is meant: it
takes derivatives by complex steps, for which nothing may be conjugated. Both libraries are right
when given real and imaginary parts as two real signals.)

Expect this script to print both errors and their theoretical values; those of the two libraries if
they are installed, else only those of the same recursion in NumPy; and, from the filter's
innovations, whether the model agrees with the data. It takes some ten seconds.

Run it with: python examples/complex_ar.py
"""

from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import cgp
from cgp import statespace

A, Q, R = 0.98 * np.exp(0.4j), 1 - 0.98**2, 0.5
STEPS = 100_000
PICTURE = Path(__file__).with_suffix(".png")


def estimated(steps=STEPS):
    """All that it takes: a model, a series, a filter, a smoother."""
    model = statespace.LinearGaussian(F=[[A]], Q=[[Q]], H=[[1.0]], R=[[R]])
    x, z = statespace.sample(model, steps, seed=0)
    filtered = statespace.filter(model, z)
    smoothed = statespace.smooth(model, z)
    checks = statespace.diagnostics(filtered)
    return x, z, filtered, smoothed, checks


def transposed(z):
    """What transposing without conjugating does: the textbook recursion, with a for its adjoint."""
    mean, variance, means = 0.0, 1.0, np.empty_like(z)
    for t in range(z.size):
        gain = variance / (variance + R)
        means[t] = mean + gain * (z[t] - mean)
        mean, variance = A * means[t], A * (1 - gain) * variance * A + Q
    return means, gain, (1 - gain) * variance


def by_filterpy(z):
    from filterpy.kalman import KalmanFilter

    kf = KalmanFilter(dim_x=1, dim_z=1)
    kf.F, kf.Q, kf.H, kf.R = np.array([[A]]), np.array([[Q]]), np.eye(1), np.array([[R]])
    kf.x, kf.P = np.zeros((1, 1), complex), np.eye(1, dtype=complex)
    means = np.empty_like(z)
    for t in range(len(z)):
        kf.update(z[t])
        means[t] = kf.x[0, 0]
        kf.predict()
    return means


def by_statsmodels(z):
    from statsmodels.tsa.statespace.kalman_filter import KalmanFilter

    kf = KalmanFilter(k_endog=1, k_states=1, dtype=complex)
    kf.bind(z[:, None].copy())
    kf["transition"], kf["state_cov"] = np.array([[A]]), np.array([[Q]])
    kf["design"], kf["obs_cov"], kf["selection"] = np.eye(1), np.array([[R]]), np.eye(1)
    kf.initialize_known(np.zeros(1), np.eye(1))
    return kf.filter().filtered_state[0]


def riccati_gain():
    """The gain that the right recursion settles at."""
    variance = 1.0
    for _ in range(1000):
        variance = abs(A) ** 2 * variance * R / (variance + R) + Q
    return variance / (variance + R)


def theory(gain):
    """The mean squared error of a filter with any constant gain k.

    Its error obeys e⁺ = (1 − k)(a e + w) − k v.
    """
    kept = abs(1 - gain) ** 2
    return (kept * Q + abs(gain) ** 2 * R) / (1 - kept * abs(A) ** 2)


def draw(x, z, means, variances, wrong, checks, path):
    layout = [["real", "real", "error"], ["imaginary", "imaginary", "error"]]
    layout += [["nis", "correlation", "plane"]]
    figure, axes = plt.subplot_mosaic(layout, figsize=(12, 8.4), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.08)

    shown = slice(1000, 1060)
    t = np.arange(STEPS)[shown]
    zero = np.zeros(t.size, complex)
    posterior = {"mean": means[shown], "variance": variances[shown], "pseudo_variance": zero}
    parts = axes["real"], axes["imaginary"]
    cgp.plotting.series(t, z[shown], posterior, ax=parts)
    for ax, part in zip(parts, (np.real, np.imag), strict=True):
        ax.plot(t, part(x[shown]), color="#2e8b57", linewidth=1.2, label="x, the truth")
        ax.plot(t, part(wrong[shown]), "--", color="#c0392b", linewidth=1.2, label="transposed")
    handles, labels = parts[0].get_legend_handles_labels()
    names = {"95 % interval": "cgp, 95 %", "mean": "cgp", "data": "z, what is seen"}
    parts[0].get_legend().remove()
    labels = [names.get(label, label) for label in labels]
    parts[0].legend(handles, labels, ncols=5, frameon=False, fontsize="small", loc=(0.0, 1.0))
    for ax, label in zip(parts, ("Re x", "Im x"), strict=True):
        ax.set_ylabel(label)
    parts[1].set_xlabel("step")

    ax = axes["error"]
    for name, estimate, color in (("transposed", wrong, "#c0392b"), ("cgp", means, "#1f5fa8")):
        error = (estimate - x)[:4000]
        label = f"{name}: {mean_square(estimate - x)[0]:.3f}"
        ax.plot(error.real, error.imag, ".", markersize=2, color=color, alpha=0.5, label=label)
    circle = np.sqrt(-np.log(0.05) * variances[-1]) * np.exp(2j * np.pi * np.linspace(0, 1, 200))
    ax.plot(circle.real, circle.imag, "k", linewidth=1.2, label="holds 95 %, says cgp")
    ax.set(xlabel="Re", ylabel="Im", title="Errors, and their mean square", aspect="equal")
    ax.set(xlim=(-1.5, 1.5), ylim=(-1.5, 2.1))
    ax.legend(frameon=False, fontsize="small", markerscale=5, loc="upper left")

    cgp.plotting.innovations(checks, ax=[axes[name] for name in ("nis", "correlation", "plane")])
    axes["nis"].set_xlabel("step (innovations of the cgp filter)")
    for ax in axes.values():
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"\npicture: {path}")


def mean_square(error):
    """The mean of |error|², and its standard error by the means of 100 pieces."""
    pieces = np.mean(np.abs(error.reshape(100, -1)) ** 2, axis=1)
    return float(pieces.mean()), float(pieces.std(ddof=1) / 10)


def main(picture=PICTURE):
    """Prints the figures, saves the picture, and returns the figures."""
    x, z, filtered, smoothed, checks = estimated()
    x, z, means, both_sides = (
        np.asarray(series)[:, 0]
        for series in (x, z, filtered.filtered_means, smoothed.smoothed_means)
    )
    variances = np.asarray(filtered.filtered_variances)[:, 0]
    wrong, gain, variance = transposed(z)
    estimates = {
        "z itself": (z, R),
        "cgp, filter": (means, theory(riccati_gain())),
        "cgp, smoother": (both_sides, None),
        "transposed, in NumPy": (wrong, theory(gain)),
    }
    for package, estimate in (("filterpy", by_filterpy), ("statsmodels", by_statsmodels)):
        if find_spec(package):
            estimates[package] = estimate(z), theory(gain)
    print(f"{STEPS} steps; mean |estimate − x|²")
    print(f"{'estimate of x':22}{'found':>9}{'theory':>18}")
    errors = {}
    for name, (estimate, expected) in estimates.items():
        errors[name], spread = mean_square(estimate - x)
        theoretical = f"{expected:10.4f}" if expected else ""
        print(f"{name:22}{errors[name]:9.4f} ± {spread:.4f}{theoretical}")
    print(f"\n{'':12}{'right':>8}   transposed")
    print(f"{'gain':12}{riccati_gain():8.3f}   {gain:.3f}")
    print(f"{'variance':12}{variances[-1]:8.3f}   {variance:.3f}\n")

    print(checks)
    *_, shorter = estimated(1000)  # as many as the picture has room for
    draw(x, z, means, variances, wrong, shorter, picture)
    return errors


if __name__ == "__main__":
    main()
