"""One step of a recursive GP, against starting anew, and what a budget of points is worth.

    python benchmarks/recursive_gp.py [--quick]

Cost: a tracker of the last n points of a stream, full, so that each step removes one and adds one.
A step predicts, takes in, and predicts again; timed one by one, within `process` (blocks of 64),
and with learning (`fit`, blocks of 32: loss and gradient of the block, Adam, the new factor, the
block taken in). SciPy is given the covariance matrix ready and does the least there is to do:
`cho_factor`, and `cho_solve` for the data and for one new point. GPyTorch, where it is installed
(`pip install gpytorch`), takes one *real* sample into a copy of the model (`get_fantasy_model`),
and predicts one point; it only adds points, and removes none. Times are in microseconds for a
sample. Errors are of mean and variance one step ahead, after all the steps that were timed,
relative, the larger of the two, against a solution refined in 80-bit arithmetic.

Budget: a nonlinear channel of four real coordinates, and the same with taps that turn once in 2000
samples. Errors one step ahead over samples 500 to 1500, in dB beside the power of the noiseless
output; hyperparameters from 300 samples of the channel that does not turn; SNR 20 dB.

Everything runs on one thread: the threads of OpenBLAS wait by spinning, so that on a machine with
other work the figures would tell of that work.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import warnings

import keras
import numpy as np
import tensorflow as tf
from scipy.linalg import cho_factor, cho_solve
from timing import compare, markdown, save, with_ratios

import cgp
from cgp.kernels import RBF, Matern32, Rotation

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import gpytorch
        import torch
except ImportError:
    gpytorch = None

CAPACITIES = [8, 32, 128, 512, 1024]
NOISE, LENGTHSCALE, FREQUENCY = 0.01, 2.0, 0.3
BLOCK, LESSON = 64, 32  # samples of a call of `process`, and of a gradient step

BUDGETS = [8, 16, 32, 64, 128]
STREAMS, SAMPLES, SETTLED = 4, 1500, 500
FORGETTING = 0.998


# --- the cost of a step ------------------------------------------------------------------------


class Stream:
    """An endless series of a carrier in noise, and the position of its next sample."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.noise = 0.1 * (rng.normal(size=4096) + 1j * rng.normal(size=4096))
        self.read = 0

    def at(self, i):
        return 0.1 * i, np.exp(0.2j * np.pi * FREQUENCY * i) + self.noise[i % 4096]

    def take(self, count):
        self.read += count
        return self.at(np.arange(self.read - count, self.read))

    def sample(self):
        self.read += 1
        return self.at(self.read - 1)


def tracker_and_stream(n):
    kernel = Matern32(1.0, LENGTHSCALE) * Rotation(FREQUENCY)
    tracker = cgp.RecursiveGP(kernel, noise_variance=NOISE, capacity=n)
    stream = Stream()
    tracker.process(*stream.take(BLOCK * -(-n // BLOCK)), verbose=0)
    return tracker, stream


def covariance(x1, x2):
    lag = np.subtract.outer(x1, x2)
    r = np.sqrt(lag.dtype.type(3)) * np.abs(lag) / LENGTHSCALE
    turn = lag.dtype.type(2 * FREQUENCY) * lag.dtype.type(np.pi) * lag
    return (1 + r) * np.exp(-r) * (np.cos(turn) + 1j * np.sin(turn))


def refactorisation(n, stream):
    """A function that returns mean and variance at the next point, from its matrices."""
    x, z = stream.at(np.arange(stream.read - n, stream.read))
    x_new, _ = stream.at(stream.read)
    gram = np.asfortranarray(covariance(x, x) + NOISE * np.eye(n))
    k = covariance(x, np.array([x_new]))[:, 0]
    right_sides = np.asfortranarray(np.stack([z, k], axis=1))

    def solve():
        factor = cho_factor(gram, lower=True, check_finite=False)
        weights = cho_solve(factor, right_sides, check_finite=False)
        mean, reduction = np.conj(k) @ weights
        return mean, 1.0 + NOISE - reduction.real

    return solve


def reference(n, stream):
    """Mean and variance at the next point, refined in 80-bit arithmetic."""
    x, z = stream.at(np.arange(stream.read - n, stream.read))
    x_new, _ = stream.at(stream.read)
    x, x_new = x.astype(np.longdouble), np.array([x_new], np.longdouble)
    gram = covariance(x, x) + np.longdouble(NOISE) * np.eye(n)
    k = covariance(x, x_new)[:, 0]
    factor = cho_factor(gram.astype(complex), lower=True)
    right_sides = np.stack([z.astype(np.clongdouble), k], axis=1)
    weights = np.zeros_like(right_sides)
    for _ in range(5):
        weights += cho_solve(factor, (right_sides - gram @ weights).astype(complex))
    mean, reduction = np.conj(k) @ weights
    return mean, 1.0 + np.longdouble(NOISE) - reduction.real


def error(prediction, truth):
    return max(
        float(abs(moment - exact) / abs(exact))
        for moment, exact in zip(prediction, truth, strict=True)
    )


def fantasy(n):
    """GPyTorch: one sample taken into a copy of the model, and one prediction; all real."""
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=1.5))

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    x = torch.arange(n + 2)[:, None] * 0.1
    y = torch.sin(2 * torch.pi * FREQUENCY * x[:, 0])
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(x[:n], y[:n], likelihood)
    likelihood.noise, model.covar_module.outputscale = NOISE, 1.0
    model.covar_module.base_kernel.lengthscale = LENGTHSCALE
    model.eval()
    likelihood.eval()

    def step():
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            prediction = model.get_fantasy_model(x[n : n + 1], y[n : n + 1])(x[n + 1 :])
            return prediction.mean.item(), prediction.variance.item()

    with torch.no_grad():
        _ = model(x[n + 1 :]).variance  # fills the caches that a fantasy starts from
    return step


def cost(n, seconds):
    stepping, steps = tracker_and_stream(n)
    processing, processed = tracker_and_stream(n)
    learning, lessons = tracker_and_stream(n)
    learning.compile(keras.optimizers.Adam(learning_rate=1e-4))
    anew = refactorisation(n, steps)
    # In runs of a tenth of a second, as in a stream step follows step: by itself each would find
    # the caches full of the other's matrices.
    ways = {"step": lambda: stepping.step(*steps.sample()), "SciPy": anew}
    timings = compare(ways, seconds, sample=0.1)
    # By themselves: a call is of many samples, and would leave few rounds to the others.
    blocks = {
        "in process": lambda: processing.process(*processed.take(BLOCK), verbose=0),
        "in fit": lambda: learning.fit(*lessons.take(LESSON), batch_size=LESSON, verbose=0),
    }
    if gpytorch is not None:
        blocks["GPyTorch"] = fantasy(n)
    timings |= compare(blocks, seconds / 2, rounds=(5, 50))
    samples = {"in process": BLOCK, "in fit": LESSON}
    row = {"n": n} | {
        name: timing.median * 1e6 / samples.get(name, 1) for name, timing in timings.items()
    }
    row["first step"] = timings["step"].first * 1e6
    ahead = stepping.predict([steps.at(steps.read)[0]])
    truth = reference(n, steps)
    row["steps"] = steps.read
    row["error of step"] = error((ahead["mean"][0], ahead["variance"][0] + NOISE), truth)
    row["error of SciPy"] = error(refactorisation(n, steps)(), truth)
    return row


# --- the worth of a budget ---------------------------------------------------------------------


def channel(seed, samples, turn=0.0, snr_db=20.0):
    """Inputs `[T, 4]`, the noiseless output and the observed one, `[T]`."""
    rng = np.random.default_rng(seed)
    s = 0.5 * (rng.normal(size=samples + 1) + 1j * rng.normal(size=samples + 1))
    turned = np.exp(2j * np.pi * turn * np.arange(samples))
    t = (-0.9 + 0.8j) * turned * s[1:] + (0.6 - 0.7j) * np.conj(turned) * s[:-1]
    q = t + (0.1 + 0.15j) * t**2 + (0.06 + 0.05j) * t**3
    noise = rng.normal(size=samples) + 1j * rng.normal(size=samples)
    noise *= np.sqrt(np.mean(np.abs(q) ** 2) / 2) * 10 ** (-snr_db / 20)
    return np.stack([s[1:].real, s[1:].imag, s[:-1].real, s[:-1].imag], axis=1), q, q + noise


def streams(turn, samples):
    each = [channel(seed, samples, turn) for seed in range(STREAMS)]
    return tuple(np.stack(arrays) for arrays in zip(*each, strict=True))


def learned():
    x, _, z = channel(1000, 300)
    gp = cgp.ExactGP(RBF(variance=1.0, lengthscale=2.0), noise_variance=0.01)
    gp.compile(optimizer=cgp.optimizers.LBFGS())
    gp.fit(x, z, verbose=0)
    return gp


def worth(gp, budget, samples, settled):
    row = {"points": budget}
    noise = float(gp.noise_variance)
    for name, turn in (("fixed", 0.0), ("turning", 5e-4)):
        x, q, z = streams(turn, samples)
        ways = {
            "budget": {"policy": "budget"},
            f"budget, λ = {FORGETTING}": {"policy": "budget", "forgetting": FORGETTING},
            "sliding": {},
        }
        for way, arguments in ways.items():
            tracker = cgp.RecursiveGP(gp.kernel, noise, capacity=budget, **arguments)
            mean = tracker.process(x, z, verbose=0).predicted.mean
            row[f"{name}: {way}"] = cgp.metrics.normalized_error_db(
                q[:, settled:], mean[:, settled:]
            )
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    quick = parser.parse_args().quick
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    rows = []
    for n in CAPACITIES[:2] if quick else CAPACITIES:
        row = cost(n, seconds=0.2 if quick else 3.0)
        rows.append(with_ratios(row, ["step", "in process"], "SciPy"))
    print(markdown(rows))

    gp = learned()
    samples, settled = (300, 100) if quick else (SAMPLES, SETTLED)
    worths = [worth(gp, n, samples, settled) for n in (BUDGETS[:2] if quick else BUDGETS)]
    print(markdown(worths))
    if not quick:
        notes = {"unit": "microseconds", "threads": 1, "unit of budgets": "dB", "budgets": worths}
        print("written to", save("recursive_gp", rows, "gpytorch", "torch", **notes).name)


if __name__ == "__main__":
    main()
