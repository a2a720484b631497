"""The frequency of an unbalanced grid: when a complex signal is improper, use its conjugate too.

Clarke's transform makes one complex number of three phase voltages, (2/3)(a + b e^{2πi/3} + c
e^{−2πi/3}). For a balanced grid it is a phasor s that rotates at the grid's frequency, which
follows from its phase. A fault makes the voltages unequal. Then z has a component that rotates
backwards, and as both have the same phase,

    z = s + κ s̄ + v,      κ a constant of the unbalance:

the circle becomes an ellipse, and E[z²] ≠ 0: z is improper (Y. Xia, S. C. Douglas & D. P. Mandic,
IEEE Signal Processing Magazine 29(5), 2012). A filter for s without κ explains κ s̄ by changes of
s: its frequency has a ripple at twice the frequency of the grid, which cannot be filtered out
without losing changes of the grid's frequency. The widely linear filter (D. H. Dini & D. P. Mandic,
IEEE Trans. Neural Netw. Learn. Syst. 23(5), 2012) has it in its model.

All models are linear. The state is (s, ṡ) in a frame rotating at 50 Hz, ṡ a random walk there, a
first-order Taylor-Kalman filter (J. A. de la O Serna & J. Rodríguez-Maldonado, IEEE Trans. Instrum.
Meas. 61(4), 2012); the frequency is 50 Hz + Im(ṡ/s)/2π. All filters use the true variance of the
noise and start from the same rough guess. κ is estimated, from the first 0.2 s of each series: as
E[z²] = 2κ E|s|² and E|z|² = (1 + |κ|²) E|s|² + E|v|², whatever the frequency. It is then assumed
constant; where an unbalance comes and goes, estimate it by running means of these two.

Compared, over 20 series, from 0.4 s on, with a ramp of the frequency and a step in it:

    proper          H = (1, 0): no κ
    proper, best    the same, with the bandwidth which, in hindsight, makes its error least
    two phasors     the best model without conjugates: a second phasor that rotates backwards,
                    twice the states, independent of the first
    widely linear   z = H x + κ H x̄

Expect the ripple of the proper filter, 0.44 Hz at the bandwidth of the other filters, to vanish in
the noise for the widely linear one. With the bandwidth of hindsight 0.08 Hz of it remain, and the
error is 1.6 times that of the widely linear filter. Two phasors come close to the latter: where κ
changes, they are a good choice. Expect the innovations to show which model is right, without
knowledge of the truth: not by their pseudo-variance, as κ s̄ alone is as circular as s, but because
they are not white for a wrong model.

Run it with: python examples/grid_frequency.py (under a minute)
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from cgp import statespace

RATE, NOMINAL = 2000.0, 50.0  # samples a second; Hz
SERIES, SECONDS = 20, 2.5
CALIBRATION, SCORED, SETTLED = 0.2, 0.4, 2.25  # s: κ from what comes before; errors from here on
AMPLITUDES, SHIFTS = np.array([1.0, 0.7, 0.9]), np.array([0.0, 0.1, -0.05])  # of phases a, b, c
NOISE = 0.01  # deviation in each phase; the same units, of a balanced grid's amplitude
DRIFT = 30.0  # of ṡ, E|dṡ|² a second, 1/s³
DRIFTS = 10.0 ** np.arange(-1.0, 4.1, 0.5)  # from which hindsight chooses
CLARKE = 2 / 3 * np.exp(2j * np.pi / 3 * np.array([0, 1, -1]))
NOISE_VARIANCE = float(NOISE**2 * np.sum(np.abs(CLARKE) ** 2))  # of v, which is proper
COLORS = {
    "proper": "#c0392b",
    "proper, best": "#d08c1d",
    "two phasors": "#2e8b57",
    "widely linear": "#1f5fa8",
}
PICTURE = Path(__file__).with_suffix(".png")


def grid():
    """Time (s), the frequency then (Hz), its phase, and series of Clarke voltages `[B, T]`."""
    t = np.arange(round(SECONDS * RATE)) / RATE
    frequency = np.select(
        [t < 1.0, t < 1.5, t < 2.0], [NOMINAL, NOMINAL - 2.0 * (t - 1.0), NOMINAL - 1.0], 50.2
    )
    phase = 2 * np.pi * np.cumsum(frequency) / RATE
    phases = phase[:, None] + SHIFTS - 2 * np.pi / 3 * np.arange(3)
    noise = np.random.default_rng(0).normal(size=(SERIES, t.size, 3))
    voltages = AMPLITUDES * np.cos(phases) + NOISE * noise
    return t, frequency, phase, voltages @ CLARKE


def unbalance(z):
    """κ of each series `[B, T]`, by its moments; from P = (1 + |κ|²) E|s|² and C = 2κ E|s|²."""
    power = np.mean(np.abs(z) ** 2, axis=-1) - NOISE_VARIANCE
    pseudo_power = np.mean(z**2, axis=-1)
    return pseudo_power / (power + np.sqrt(power**2 - np.abs(pseudo_power) ** 2))


def proper(drift):
    """A phasor near the nominal frequency and its derivative: a random walk turning with it."""
    dt = 1.0 / RATE
    turn = np.exp(2j * np.pi * NOMINAL * dt)
    return statespace.LinearGaussian(
        F=turn * np.array([[1.0, dt], [0.0, 1.0]]),
        Q=drift * np.array([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]]),
        H=np.array([[1.0, 0.0]]),
        R=np.array([[NOISE_VARIANCE]]),
        initial_covariance=np.diag([1.0, 100.0]),
    )


def widely_linear(drift, kappa):
    """The same phasor, seen with its conjugate: a batch of models, one for each κ."""
    h_conj = np.stack([kappa, 0 * kappa], axis=-1)[:, None, None, :]  # [B, 1, 1, 2]
    return statespace.widely_linear(proper(drift), H_conj=h_conj)


def two_phasors(drift):
    """A phasor each way, either free."""
    model = proper(drift)
    zero = np.zeros((2, 2))
    f, q, p = (np.asarray(m) for m in (model.F, model.Q, model.initial_covariance))
    return statespace.LinearGaussian(
        F=np.block([[f, zero], [zero, f.conj()]]),
        Q=np.block([[q, zero], [zero, q]]),
        H=np.array([[1.0, 0.0, 1.0, 0.0]]),
        R=model.R,
        initial_covariance=np.block([[p, zero], [zero, p]]),
    )


def frequencies(result):
    """Of each series at each time, from the filtered state."""
    s, derivative = np.moveaxis(np.asarray(result.filtered_means)[..., :2], -1, 0)
    return NOMINAL + (derivative / s).imag / (2 * np.pi)


def with_error(values):
    """The mean over series, and its standard error."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


def scores(t, truth, phase, found):
    """Root mean squared errors (Hz), all along and settled, and the amplitude of the ripple."""
    error = found - truth
    settled = t >= SETTLED
    # The line at 2f, over 25 of its periods.
    ripple = error[:, settled] @ np.exp(-2j * phase[settled]) / np.sum(settled)
    return {
        "all": with_error(np.sqrt(np.mean(error[:, t >= SCORED] ** 2, axis=-1))),
        "settled": with_error(np.sqrt(np.mean(error[:, settled] ** 2, axis=-1))),
        "ripple": with_error(2 * np.abs(ripple)),
    }


def draw(t, truth, z, kappa, found, curves, path):
    layout = [["frequency"] * 3, ["plane", "ripple", "curve"]]
    figure, axes = plt.subplot_mosaic(layout, figsize=(12, 7.4), layout="constrained")

    window = (t >= 2.3) & (t < 2.36)
    for name, of in found.items():
        if name != "two phasors":  # would lie under the widely linear one
            axes["frequency"].plot(t, of[0], color=COLORS[name], linewidth=1.0, label=name)
        axes["ripple"].plot(t[window], of[0][window], color=COLORS[name])
    for name, among in (("frequency", t > 0), ("ripple", window)):
        axes[name].plot(t[among], truth[among], "k", linewidth=1.0, label="truth")
        axes[name].set(xlabel="time (s)", ylabel="frequency (Hz)")
    axes["frequency"].set(xlim=(CALIBRATION, SECONDS), ylim=(48.2, 51.0))
    axes["frequency"].set_title("Frequency of an unbalanced grid, one series")
    axes["frequency"].legend(frameon=False, fontsize="small", ncols=5, loc="upper center")
    axes["ripple"].set(xlim=(2.3, 2.36), title="What is left when settled: the ripple at 2f")

    ax = axes["plane"]
    cycle = z[0, : 8 * round(RATE / NOMINAL)]
    s = np.exp(2j * np.pi * np.linspace(0, 1, 200))
    s = s * np.sqrt(np.mean(np.abs(cycle) ** 2) / (1 + np.abs(kappa[0]) ** 2))
    ax.plot(cycle.real, cycle.imag, ".", color="0.25", markersize=3, label="z")
    ellipse = s + kappa[0] * s.conj()
    ax.plot(ellipse.real, ellipse.imag, color=COLORS["widely linear"], label="s + κ s̄")
    ax.plot(s.real, s.imag, ":", color=COLORS["proper"], label="s")
    ax.set(xlabel="Re z", ylabel="Im z", aspect="equal", title="Clarke voltage: an ellipse")
    ax.legend(frameon=False, fontsize="small", loc="center")

    ax = axes["curve"]
    for name, errors in curves.items():
        ax.loglog(DRIFTS, errors, ".-", color=COLORS[name], label=name)
    ax.axvline(DRIFT, color="0.25", linestyle="--", linewidth=0.9)
    ax.set(xlabel="drift that the filter expects (1/s³)", ylabel="error (Hz, rms)")
    ax.set(title="A better bandwidth is no remedy")
    ax.set_yticks([0.1, 0.2, 0.5, 1.0, 2.0], labels=["0.1", "0.2", "0.5", "1", "2"])
    ax.set_yticks([], minor=True)
    ax.legend(frameon=False, fontsize="small")

    for ax in axes.values():
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"\npicture: {path}")


def main(picture=PICTURE):
    """Prints the figures, saves the picture, and returns the figures."""
    t, truth, phase, z = grid()
    kappa = unbalance(z[:, t < CALIBRATION])
    models = {
        "proper": proper,
        "two phasors": two_phasors,
        "widely linear": lambda drift: widely_linear(drift, kappa),
    }

    def track(name, drift):
        return statespace.filter(models[name](drift), z[..., None])

    curves = {
        name: [
            scores(t, truth, phase, frequencies(track(name, drift)))["all"][0] for drift in DRIFTS
        ]
        for name in models
    }
    best = float(DRIFTS[np.argmin(curves["proper"])])
    results = {
        "proper": track("proper", DRIFT),
        "proper, best": track("proper", best),
        "two phasors": track("two phasors", DRIFT),
        "widely linear": track("widely linear", DRIFT),
    }
    found = {name: frequencies(result) for name, result in results.items()}
    figures = {name: scores(t, truth, phase, of) for name, of in found.items()}

    mean, error = with_error(np.abs(kappa))
    print(f"unbalance |κ| {mean:.4f} ± {error:.4f}; {SERIES} series, mean ± standard error, Hz")
    print(f"\n{'':16}{'rms error':>18}{'when settled':>18}{'ripple at 2f':>20}")
    for name, of in figures.items():
        cells = "".join(
            f"{value:{width}.4f} ± {error:.4f}"
            for (value, error), width in zip(of.values(), (9, 9, 11), strict=True)
        )
        print(f"{name:16}{cells}")
    print(f"(drift {DRIFT:g}; that of the best proper filter {best:.2g})")
    for name in ("proper", "widely linear"):
        print(f"\n{name}\n{statespace.diagnostics(results[name])}")
    draw(t, truth, z, kappa, found, curves, picture)
    return figures


if __name__ == "__main__":
    main()
