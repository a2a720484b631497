"""The noise that an outlier is taken to have, when one sample comes after another."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.distributions.forms import SecondMoments
from cgp.distributions.marginals import Step
from cgp.gp.data import Data
from cgp.likelihoods import Likelihood, StudentT

_TURNS = 50


def robust_step(
    gp: Any,
    samples: Data,
    likelihood: Likelihood,
    take: Callable[..., Step],
) -> Step:
    """Takes in samples, with as much noise as their likelihood says.

    Args:
        gp: The process before the samples.
        samples: One of each of B streams.
        likelihood: The likelihood.
        take: Takes in inputs, observations and noise.

    Raises:
        TypeError: Not a StudentT.
    """
    more = _outlier_variance(gp, samples, likelihood)
    variance = samples.noise.variance
    known = more if variance is None else more + variance
    found = take(
        samples.x, samples.z, samples.noise._replace(variance=known.astype(gp.variable_dtype))
    )
    # The prediction was made before the sample was known for an outlier.
    predicted = found.predicted
    return found._replace(predicted=predicted._replace(variance=predicted.variance - more))


def _outlier_variance(gp: Any, samples: Data, likelihood: Likelihood) -> np.ndarray:
    """What is added to the noise variance of samples by their weights, `[B, 1]`; never negative.

    The weight w of a sample and the posterior of its signal are found in turns, as those of
    `StudentT`. Its noise variance is σ²/w, at least σ²: a sample is never trusted more than its
    noise variance says.
    """
    if not isinstance(likelihood, StudentT):
        raise TypeError(
            f"likelihood must be a cgp.likelihoods.StudentT or None, got {likelihood!r}"
        )
    half = 0.5 * likelihood.degrees_of_freedom
    signal = gp.predict(samples.x[0] if len(samples.x) == 1 else samples.x)
    mean, before = (np.reshape(signal[name], [-1, 1]) for name in ("mean", "variance"))
    nothing = SecondMoments(tf.zeros([], samples.z.dtype), None)
    noise = np.real(gp._process.with_noise(nothing, samples.noise.map(tf.constant)).k)
    deviation = np.nan_to_num(samples.z - mean)
    weight = np.ones(deviation.shape)
    for _ in range(_TURNS):
        left = (noise / weight) / (before + noise / weight)
        square = np.abs(left * deviation) ** 2 + left * before
        weight = (half + 1.0) / (half + square / noise)
    return noise * np.maximum(1.0 / weight - 1.0, 0.0)
