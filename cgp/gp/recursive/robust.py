"""The noise that an outlier is taken to have, when one sample comes after another."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.distributions.forms import SecondMoments
from cgp.distributions.marginals import Marginals, Step
from cgp.gp.data import Data
from cgp.likelihoods import Likelihood, StudentT

_MOST_TURNS = 2000
_ACCURACY = 1e-12


def robust_step(
    gp: Any,
    samples: Data,
    likelihood: Likelihood,
    take: Callable[..., Step],
) -> Step:
    """Takes in samples, with as much noise as their likelihood says.

    A sample of weight w has the noise variance σ²/w, at least σ²: it is never trusted more than its
    noise variance says.

    Args:
        gp: The process before the samples.
        samples: One of each of B streams.
        likelihood: The likelihood.
        take: Takes in inputs, observations and noise.

    Raises:
        TypeError: Not a StudentT.
        ValueError: The noise of the process is not circular.
    """
    if not isinstance(likelihood, StudentT):
        raise TypeError(
            f"likelihood must be a cgp.likelihoods.StudentT or None, got {likelihood!r}"
        )
    nothing = SecondMoments(tf.zeros([], samples.z.dtype), None)
    own = gp.observation_model.with_noise(nothing, samples.noise.map(tf.constant))
    if own.c is not None:
        raise ValueError(
            f"noise_pseudo_variance must be 0 with {likelihood!r}, whose noise is circular"
        )
    noise = np.real(own.k)
    found = gp.predict(samples.x[0] if len(samples.x) == 1 else samples.x)
    signal = Marginals(*(np.reshape(found[name], [-1, 1]) for name in Marginals._fields))
    weight = _weight(signal, samples.z, noise, likelihood.degrees_of_freedom)
    more = noise * np.maximum(1.0 / weight - 1.0, 0.0)
    known = samples.noise.variance
    known = (more if known is None else more + known).astype(gp.variable_dtype)
    taken = take(samples.x, samples.z, samples.noise._replace(variance=known))
    # The prediction was made before the sample was known for an outlier.
    variance = np.broadcast_to(signal.variance + noise, taken.predicted.variance.shape)
    return taken._replace(predicted=taken.predicted._replace(variance=variance))


def _weight(signal: Marginals, z: np.ndarray, noise: np.ndarray, nu: float) -> np.ndarray:
    """The weight w of samples and the posterior of their signals, found in turns, `[B, 1]`.

    Given w, the signal has normal noise of variance s = σ²/w. With v the variance and c the
    pseudo-variance of the signal before, and d the deviation of the sample, the posterior has

        z − mean = s ((v + s) d − c d*) / D,    variance = s ((v + s) v − |c|²) / D,
        D = (v + s)² − |c|².
    """
    mean, v, c = signal
    size = np.abs(c)
    deviation = np.nan_to_num(z - mean)
    weight = np.ones(deviation.shape)
    for _ in range(_MOST_TURNS):
        s = noise / weight
        scale = s / ((v + s - size) * (v + s + size))
        left = scale * ((v + s) * deviation - c * np.conj(deviation))
        variance = scale * (v * s + (v - size) * (v + size))
        last, weight = weight, (nu / 2 + 1.0) / (nu / 2 + (np.abs(left) ** 2 + variance) / noise)
        if np.all(np.abs(weight - last) <= _ACCURACY * weight):
            break
    return weight
