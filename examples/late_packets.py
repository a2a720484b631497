"""Late packets: the phasor of a grid from sensors whose messages arrive late and out of order.

Three sensors measure one phasor, each with noise of its own. Their messages take up to eight frames
to the control room, and some never arrive. What is the phasor now, and what was it a moment ago?

    kf.step(nan)                      a new frame, of which nothing has come yet
    kf.step(message, late_by=frames)  a message, at the time of its measurement
    kf.lag(frames)                    the phasor some frames ago given all that has come since

A `KalmanFilter` of `horizon=8` keeps its latest frames, puts a late message where it belongs, and
takes the frames after it again: the state is that of a filter of the same messages in order.

Control rooms have data concentrators. These wait for a number of frames, drop what comes later, and
hand on frames in order; the present phasor is then a forecast from the frame that was handed on.
Here it is a forecast of the same Kalman filter, and the wait is the best one in hindsight. The two
short cuts are to drop all late messages, and to take each as if it were of the frame in which it
arrives. All use the same messages of the same twenty grids.

Expect the error of the present phasor to be a quarter below that of the best concentrator, and less
than half of those of the short cuts; and the phasor of eight frames ago, which all messages have
reached, to have a quarter of the error of the present one.

Run it with: python examples/late_packets.py (some ten seconds)
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import cgp
from cgp import statespace

GRIDS, FRAMES, HORIZON = 20, 150, 8  # streams, frames of each, and the latest delay
LAGS = 4, 8
SETTLED = 40  # from this frame on errors count
DELAYS = [0.1, 0.15, 0.2, 0.2, 0.12, 0.08, 0.05, 0.04, 0.03]  # their probabilities; 3 % are lost
NOISE = np.array([0.02, 0.04, 0.08]) ** 2  # of the sensors; the phasor is about 1
PICTURE = Path(__file__).with_suffix(".png")


def model():
    """A phasor and its change from frame to frame, which is driven by noise; three sensors."""
    return statespace.LinearGaussian(
        F=[[1.0, 1.0], [0.0, 0.95]],
        Q=1e-4 * np.array([[1 / 3, 1 / 2], [1 / 2, 1.0]]),
        H=np.ones((3, 1)) * [[1.0, 0.0]],
        R=np.diag(NOISE) + 0j,
        initial_mean=[1.0, 0.0],
        initial_covariance=np.diag([0.1, 1e-3]),
    )


def in_order_of_arrival(z, delays):
    """The present phasor `[T, B]`, that of some frames ago by frames, and the last state.

    Args:
        z: Messages `[B, T, 3]` by the time of their measurement.
        delays: How many frames later each of them arrives, of the same shape.
    """
    kf = cgp.KalmanFilter(model(), horizon=HORIZON)
    present, past = np.empty(z.shape[1::-1], complex), {frames: {} for frames in LAGS}
    for t in range(z.shape[1]):
        kf.step(np.full((len(z), 3), np.nan + 0j))
        for late_by in range(min(t, HORIZON), -1, -1):
            arrives = delays[:, t - late_by] == late_by
            step = kf.step(np.where(arrives, z[:, t - late_by], np.nan), late_by=late_by)
        present[t] = step.filtered.mean[:, 0]  # of the latest frame, as late_by was 0
        if t >= SETTLED and t % 5 == 0:
            for frames in LAGS:
                past[frames][t - frames] = kf.lag(frames).mean[:, 0]
    return present, past, kf.state


def filtered(z):
    """Forecasts `[T, B]` from each frame, by frames ahead, and the last prediction."""
    result = statespace.filter(model(), z)
    states = np.moveaxis(np.asarray(result.filtered_means), 1, 0)
    F = np.asarray(model().F)
    forecasts = [
        (states @ np.linalg.matrix_power(F, n).swapaxes(0, 1))[..., 0] for n in range(HORIZON + 1)
    ]
    return forecasts, statespace.forecast(model(), result, 1)


def as_current(z, delays):
    """The messages that arrive in each frame, of each sensor the latest, as if of that frame."""
    arrived = np.full_like(z, np.nan)
    for late_by in range(HORIZON, -1, -1):
        sent = z[:, : z.shape[1] - late_by]
        arrives = delays[:, : sent.shape[1]] == late_by
        arrived[:, late_by:] = np.where(arrives, sent, arrived[:, late_by:])
    return arrived


def draw(truth, estimates, errors, path):
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    shown = slice(SETTLED, SETTLED + 60)
    colors = dict(zip(estimates, ("#8e6bb0", "#d58a1f", "#c0392b", "#1f5fa8"), strict=True))
    for name, estimate in estimates.items():
        left.plot(np.abs(estimate - truth)[shown, 0], color=colors[name], label=name)
    left.set(xlabel="frame", ylabel="error of the present phasor", title="One grid")
    left.legend(frameon=False, fontsize="small")
    right.barh([*errors], [*errors.values()], color=[colors.get(name, "0.6") for name in errors])
    right.invert_yaxis()
    right.set(xlabel="root mean square error", title="All grids")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"\npicture: {path}")


def main(grids=GRIDS, picture=PICTURE):
    """Prints the figures, saves the picture, and returns the figures."""
    x, z = (np.asarray(a) for a in statespace.sample(model(), FRAMES, (grids,), seed=1))
    truth = np.moveaxis(x[..., 0], 1, 0)
    never = 1 - sum(DELAYS)
    delays = np.random.default_rng(2).choice(HORIZON + 2, p=[*DELAYS, never], size=z.shape)
    present, past, state = in_order_of_arrival(z, delays)

    def error(estimate, of=truth):
        return float(np.sqrt(np.mean(np.abs(estimate - of)[SETTLED:] ** 2)))

    def concentrated(wait):  # the frame of `wait` frames ago, and its forecast of the present one
        return np.roll(filtered(np.where(delays <= wait, z, np.nan))[0][wait], wait, axis=0)

    waits = [concentrated(wait) for wait in range(HORIZON + 1)]
    best = int(np.argmin([error(estimate) for estimate in waits]))
    estimates = {
        "late ones dropped": waits[0],
        "late ones as current": filtered(as_current(z, delays))[0][0],
        "concentrator": waits[best],
        "KalmanFilter, late_by": present,
    }
    errors = {name: error(estimate) for name, estimate in estimates.items()}
    for frames, estimate in past.items():
        gap = np.array([estimate[t] - truth[t] for t in estimate])
        errors[f"the same, lag({frames})"] = float(np.sqrt(np.mean(np.abs(gap) ** 2)))
    arrived = np.where(delays + np.arange(FRAMES)[:, None] < FRAMES, z, np.nan)
    arrived[delays > HORIZON] = np.nan
    ideal = filtered(arrived)[1]
    difference = np.max(np.abs(state.mean - np.asarray(ideal.state_means)[:, 0]))

    print(f"{grids} grids of {FRAMES} frames; root mean square error of the phasor")
    for name, value in errors.items():
        print(f"{name:24}{value:9.4f}" + f"   waits {best} frames" * (name == "concentrator"))
    print(f"largest difference from the filter of all messages in order: {difference:.0e}")
    draw(truth, estimates, errors, picture)
    return errors, difference


if __name__ == "__main__":
    main()
