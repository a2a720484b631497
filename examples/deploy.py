"""Deployment: a filter is learned here, and runs where cgp is not installed.

A vibrating machine is monitored by the complex envelope of one of its spectral lines. A Kalman
filter of two modes is learned from a recording of the healthy machine: frequency and damping of the
modes, process noise and observation noise. It then runs beside the machine, sample after sample,
and raises an alarm when observations no longer agree with the model.

    kf.export("monitor")                    # here

    monitor = tf.saved_model.load("monitor")  # there, with TensorFlow alone
    found = monitor.step([z])               # predicted_mean, innovation, filtered_mean, …
    monitor.predict(block)                  # whole series; monitor.reset() begins again

The state of the stream is in variables of the SavedModel, and continues from the state of the
filter. An observation that the filter would refuse, such as an infinite value, is an error there
too, and leaves the state unchanged. For several machines use several streams: the exported filter
has as many as `kf`. TensorFlow Serving, and the TensorFlow of other languages, find the same
functions as signatures "serving_default" (`predict`), "step" and "reset". LiteRT and ONNX do not:
they have no complex128.

Here a second Python process, in which cgp and Keras cannot be imported, filters 10,000 samples,
after half of which a mode loses a third of its stiffness. Expect its results to equal those of the
filter itself to 12 digits. The mean of the squared innovations, relative to their predicted
variance, is one on a healthy machine, and the mean over 300 samples stays within four of its
standard deviations: expect it to exceed them some hundred samples after the change, and not before.
For comparison of speed, the same filter is written as a loop in plain NumPy, without checks and
missing values.

Run it with: python examples/deploy.py (half a minute)
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import cgp
from cgp import statespace

LEARNED, STREAMED, WINDOW = 3000, 10_000, 300
ALARM = 1.0 + 4.0 / WINDOW**0.5  # four standard deviations of the mean of as many
NOISE = 0.2
PICTURE = Path(__file__).with_suffix(".png")

PLAIN = """
import sys, time
sys.modules["cgp"] = sys.modules["keras"] = None  # to import them is an error
import numpy as np
import tensorflow as tf

folder = sys.argv[1]
begin = time.perf_counter()
monitor = tf.saved_model.load(folder + "/monitor")
loaded = time.perf_counter()
z = np.load(folder + "/z.npy")
monitor.step(z[0])  # the first call prepares
monitor.reset()
start = time.perf_counter()
found = [monitor.step(sample) for sample in z]
seconds = (time.perf_counter() - start) / len(z)
names = ("innovation", "predicted_variance", "filtered_mean")
values = {name: np.stack([step[name] for step in found]) for name in names}
np.savez(folder + "/found.npz", load=loaded - begin, seconds=seconds, **values)
"""


def machine(stiffness=1.0):
    """Two modes that turn and fade, the second stiffer or less stiff, and their driving noise."""
    modes = np.array([0.995 * np.exp(0.10j), 0.98 * np.exp(0.35j * stiffness)])
    return statespace.LinearGaussian(
        F=np.diag(modes), Q=np.diag([0.02, 0.2]), H=[[1.0, 1.0]], R=[[NOISE]]
    )


def recording(length, model, seed):
    """Samples `[T, 1]` of a machine."""
    _, z = statespace.sample(model, length, seed=seed)
    return np.asarray(z)


def learned(z):
    """A filter that has learned from a recording, from a rough guess."""
    guess = machine().replace(F=np.diag(0.9 * np.exp([0.05j, 0.4j])), Q=np.eye(2), R=[[1.0]])
    kf = cgp.KalmanFilter(guess, learn=("F", "Q", "R"))
    kf.compile(cgp.optimizers.LBFGS())
    kf.fit(z, verbose=0)
    return kf


def by_hand(model, z):
    """The innovations of the same filter as a loop of NumPy, and its seconds a step."""
    F, Q, H, R = (np.asarray(getattr(model, name)) for name in "FQHR")
    mean, P = np.asarray(model.initial_mean), np.asarray(model.initial_covariance)
    innovations, start = [], time.perf_counter()
    for sample in z:
        innovation = sample - H @ mean
        gain = P @ H.conj().T / (H @ P @ H.conj().T + R)
        mean, P = mean + gain @ innovation, P - gain @ H @ P
        mean, P = F @ mean, F @ P @ F.conj().T + Q
        innovations.append(innovation)
    return np.array(innovations), (time.perf_counter() - start) / len(z)


def elsewhere(kf, z, folder):
    """What the exported filter says, in a process of TensorFlow alone."""
    kf.export(Path(folder) / "monitor")
    np.save(Path(folder) / "z.npy", z)
    subprocess.run([sys.executable, "-c", PLAIN, str(folder)], check=True)
    with np.load(Path(folder) / "found.npz") as found:
        return dict(found)


def surprise(innovation, variance):
    """Mean squared innovations over their variance, of the last `WINDOW` samples."""
    share = np.abs(innovation[:, 0]) ** 2 / variance[:, 0]
    return np.convolve(share, np.ones(WINDOW) / WINDOW, mode="full")[: len(share)]


def draw(z, level, alarm, path):
    figure, (of_z, of_level) = plt.subplots(
        2, 1, figsize=(10, 5), sharex=True, layout="constrained"
    )
    of_z.plot(z[:, 0].real, color="0.35", linewidth=0.4)
    of_z.set(ylabel="Re z", title="Envelope of a line, and how much it surprises the filter")
    of_level.plot(level, color="#1f5fa8")
    of_level.axhline(ALARM, color="#c0392b", linestyle=":")
    for ax in (of_z, of_level):
        ax.axvline(len(z) // 2, color="k", linestyle="--", linewidth=0.8)
        ax.spines[["top", "right"]].set_visible(False)
    of_level.plot([alarm], [level[alarm]], "o", color="#c0392b", label="alarm")
    of_level.set(xlabel="sample", ylabel="squared innovations\nover their variance")
    of_level.legend(frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    print(f"\npicture: {path}")


def main(length=STREAMED, picture=PICTURE):
    """Prints the figures, saves the picture, and returns the figures."""
    kf = learned(recording(LEARNED, machine(), seed=1))
    healthy = recording(length // 2, machine(), seed=2)
    z = np.concatenate([healthy, recording(length // 2, machine(stiffness=2 / 3), seed=3)])
    z[100] = np.nan  # a sample that is missing

    with tempfile.TemporaryDirectory() as folder:
        found = elsewhere(kf, z, folder)
        size = sum(file.stat().st_size for file in Path(folder, "monitor").rglob("*"))
    start = time.perf_counter()
    steps = [kf.step(sample) for sample in z]
    live_seconds = (time.perf_counter() - start) / len(z)
    live = np.stack([step.innovation for step in steps])
    difference = np.nanmax(np.abs(found["innovation"] - live))
    _, loop_seconds = by_hand(kf.model, np.nan_to_num(z))

    level = surprise(np.nan_to_num(found["innovation"]), found["predicted_variance"])
    alarm = int(np.argmax(level > ALARM))
    print(f"exported: {size / 1e6:.1f} MB, loaded in {float(found['load']):.1f} s")
    print(f"largest difference from the filter itself, {length} steps: {difference:.1e}")
    print("microseconds a step:")
    for name, seconds in {
        "KalmanFilter.step": live_seconds,
        "exported, TensorFlow alone": float(found["seconds"]),
        "a loop of NumPy": loop_seconds,
    }.items():
        print(f"    {name:28s}{1e6 * seconds:6.0f}")
    print(f"alarm {alarm - length // 2} samples after the change")
    draw(z, level, alarm, picture)
    return {"difference": difference, "alarm": alarm - length // 2, "level": level}


if __name__ == "__main__":
    main()
