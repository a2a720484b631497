"""Fits of scattered points by inducing points: `cgp.SparseGP` beside GPyTorch's SGPR.

    pip install gpytorch
    python benchmarks/inducing_points.py [eddies] [waves] [sweep] [--seeds 0 1 2]

Both learn 10,000 samples by 256 inducing points and Titsias' bound, in L-BFGS. GPyTorch has real
processes: it learns real and imaginary part, one after the other, by an RBF kernel with a length
scale for each dimension, at the best of several starts by its own bound, and by a spectral mixture
of four; and once more without the carrier that cgp has learned, which a user would have to find.
Errors are of the signal at 2,000 other places, over its power; scores are mean log densities of the
noisy samples there; times are of the processor, on one thread, of the best start alone.
"""

import argparse
import time
import warnings

import gpytorch
import numpy as np
import tensorflow as tf
import torch

import cgp
from cgp.kernels import RBF, Along, Kernel, Rotation
from cgp.training import POSITIVE, Hyperparameter, declared

SAMPLES, HELD_OUT, INDUCING, ITERATIONS, MIXTURES = 10_000, 2000, 256, 60, 4
STARTS = (0.02, 0.05, 0.15, 0.3)  # length scales over the span


@declared
class Flow(Kernel):
    """w = u + iv of a random streamfunction, whose covariance is that of an RBF."""

    is_stationary, is_proper = True, False
    variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    lengthscale: Hyperparameter = Hyperparameter(POSITIVE, default=None)

    def moments(self, x1, x2):
        d = (x1 - x2) / self.lengthscale.value
        square, zero = tf.reduce_sum(d * d, axis=-1), tf.zeros_like(d[..., 0])
        envelope = self.variance.value * tf.exp(-0.5 * square)
        # w = i (∂ψ/∂x + i ∂ψ/∂y): E[w w̄′] = −∇²F, E[w w′] = F″ − F′/r, turned by twice the angle.
        covariance = tf.complex(envelope * (1.0 - 0.5 * square), zero)
        return covariance, tf.complex(0.5 * envelope, zero) * tf.complex(d[..., 0], d[..., 1]) ** 2


def complex_normals(rng, *shape):
    return rng.normal(size=(*shape, 2)) @ [1, 1j] / np.sqrt(2)


def eddies(rng, count):
    """Currents of 60 eddies in a box of 500 km, without divergence."""
    centres, radii = rng.uniform(-50, 550, (60, 2)), rng.uniform(25, 70, 60)
    x, f = rng.uniform(0, 500, (count, 2)), 0.0
    for centre, radius, strength in zip(centres, radii, rng.normal(size=60), strict=True):
        d = (x - centre) / radius
        f = f + strength * 1j * (d @ [1, 1j]) * np.exp(-0.5 * np.sum(d**2, axis=1))
    return x, f, 0.05, Flow()


def waves(rng, count):
    """The gain of a radio link over 24 by 24 wavelengths, of paths within 6° (deviation)."""
    angles = rng.uniform(0, 2 * np.pi) + np.deg2rad(6) * rng.normal(size=60)
    x = rng.uniform(0, 8, (count, 2))
    cycles = x @ np.stack([np.cos(angles), np.sin(angles)]) / 0.33
    return x, np.exp(2j * np.pi * cycles) @ complex_normals(rng, 60), 0.1, RBF() * Rotation()


def sweep(rng, count):
    """A resonator behind a cable, over frequency (GHz), temperature (°C) and voltage."""
    frequency, temperature, voltage = x = rng.uniform([1, -20, 0], [3, 60, 5], (count, 3)).T
    delay = 12.0 + 0.004 * temperature + 0.02 * np.sin(voltage / 5 * np.pi)
    loss = 0.8 * np.exp(-0.1 * np.sqrt(frequency) - 0.001 * (temperature - 20))
    resonance = 2.1 + 0.15 * np.tanh((voltage - 2.5) / 1.5) - 0.0006 * temperature
    detuning = (frequency - resonance) / (0.12 + 0.01 * voltage)
    echo = 0.15 * np.exp(-2j * np.pi * frequency * (1.1 + 0.002 * temperature))
    f = loss * (1 - 0.55 / (1 + 1j * detuning)) * (1 + echo)
    kernel = Along(RBF() * Rotation(), 0) * Along(RBF(), 1) * Along(RBF(), 2)
    return x.T, f * np.exp(-2j * np.pi * frequency * delay), 0.03, kernel


def learned_by_cgp(kernel, x, z, places):
    gp = cgp.SparseGP(kernel, inducing=INDUCING)
    start = time.process_time()
    gp.fit(x, z, verbose=0)
    seconds, noise = time.process_time() - start, float(gp.noise_variance)
    moments = gp.predict(places)
    pseudo = moments.get("pseudo_variance", np.zeros(len(places)))
    return gp, seconds, (moments["mean"], moments["variance"] + noise, pseudo)


def log_score(z, mean, variance, pseudo):
    """The mean log density of complex normals."""
    e, determinant = z - mean, variance**2 - np.abs(pseudo) ** 2
    square = (variance * np.abs(e) ** 2 - np.real(np.conj(pseudo) * e**2)) / determinant
    return float(np.mean(-np.log(np.pi) - 0.5 * np.log(determinant) - square))


class Real(gpytorch.models.ExactGP):
    """SGPR of a real part; `start` is a length scale, or None for a spectral mixture."""

    def __init__(self, x, y, start, chosen):
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module = gpytorch.means.ZeroMean()
        if start is None:
            kernel = gpytorch.kernels.SpectralMixtureKernel(MIXTURES, ard_num_dims=x.shape[1])
            kernel.initialize_from_data(x[:HELD_OUT], y[:HELD_OUT])
        else:
            inner = gpytorch.kernels.RBFKernel(ard_num_dims=x.shape[1])
            inner.lengthscale = start
            kernel = gpytorch.kernels.ScaleKernel(inner)
        self.likelihood.noise = 0.05
        self.covar_module = gpytorch.kernels.InducingPointKernel(
            kernel, x[chosen].clone(), self.likelihood
        )

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def learned_part(x, y, places, start, chosen):
    """Bound, mean and variance of a real part."""
    size = y.std()
    y = torch.tensor(y / size)
    model = Real(x, y, start, chosen)
    bound = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    search = torch.optim.LBFGS(
        model.parameters(), max_iter=ITERATIONS, line_search_fn="strong_wolfe", history_size=20
    )

    def loss():
        search.zero_grad()
        value = -bound(model(x), y)
        value.backward()
        return value

    search.step(loss)
    value = -float(loss())
    model.eval()
    with torch.no_grad():
        prediction = model(places)
    variance = prediction.variance.numpy() + model.likelihood.noise.item()
    return value, prediction.mean.numpy() * size, variance * size**2


def learned_by_gpytorch(x, z, places, starts):
    """Seconds and predictions of the start of the largest bound; variances of both parts."""
    span, low = np.ptp(x, axis=0), x.min(axis=0)
    x, places = torch.tensor((x - low) / span), torch.tensor((places - low) / span)
    chosen = torch.tensor(np.random.default_rng(0).permutation(len(x))[:INDUCING])
    results = []
    for start in starts:
        before = time.process_time()
        try:
            real, imaginary = (
                learned_part(x, y, places, start, chosen) for y in (z.real.copy(), z.imag.copy())
            )
        except Exception as error:  # of a factorisation, at a start that leads nowhere
            print(f"  start {start}: {type(error).__name__}")
            continue
        seconds, mean = time.process_time() - before, real[1] + 1j * imaginary[1]
        moments = mean, real[2] + imaginary[2], (real[2] - imaginary[2]).astype(complex)
        results.append((real[0] + imaginary[0], seconds, moments))
    return max(results, key=lambda result: result[0])[1:]


def race(name, seed):
    rng = np.random.default_rng([seed, len(name)])
    make = {"eddies": eddies, "waves": waves, "sweep": sweep}[name]
    x, f, deviation, kernel = make(rng, SAMPLES + HELD_OUT)
    z = f + deviation * np.sqrt(np.mean(np.abs(f) ** 2)) * complex_normals(rng, len(f))
    (x, places), (z, held_out), (_, truth) = (np.split(a, [SAMPLES]) for a in (x, z, f))

    def show(label, seconds, moments):
        error = np.mean(np.abs(moments[0] - truth) ** 2) / np.mean(np.abs(truth) ** 2)
        decibels, score = 10 * np.log10(error), log_score(held_out, *moments)
        print(
            f"{name:7} {seed}  {label:32} {decibels:7.2f} dB  {score:7.3f}  {seconds:6.1f} s",
            flush=True,
        )

    gp, *result = learned_by_cgp(kernel, x, z, places)
    show("cgp.SparseGP", *result)
    show("SGPR, RBF", *learned_by_gpytorch(x, z, places, STARTS))
    turns = gp.kernel.carrier_turns(tf.constant(x))
    if turns is None:
        return
    show("SGPR, spectral mixture", *learned_by_gpytorch(x, z, places, [None]))
    carrier = np.exp(2j * np.pi * turns.numpy())
    seconds, moments = learned_by_gpytorch(x, z / carrier, places, STARTS)
    carrier = np.exp(2j * np.pi * gp.kernel.carrier_turns(tf.constant(places)).numpy())
    mean, variance, pseudo = moments
    show("SGPR, RBF, without the carrier", seconds, (mean * carrier, variance, pseudo * carrier**2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=["eddies", "waves", "sweep"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    arguments = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    warnings.simplefilter("ignore")  # of GPyTorch, of jitter; and of few inducing points
    for chosen_seed in arguments.seeds:
        for chosen in arguments.names:
            race(chosen, chosen_seed)
