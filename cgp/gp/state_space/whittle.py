"""The debiased Whittle likelihood of a regular series, in O(N log N).

The discrete Fourier transform `J_k` of a stationary series is nearly independent from frequency to
frequency. Its variance is the expected periodogram, which the autocovariance C determines exactly:

    S_k = Σ_τ w(τ) C(τ) e^{−iω_k τ},    w(τ) = Σ_t g_t g_{t+τ} / Σ_t g_t,

g being 1 where there is an observation and 0 elsewhere, so that without gaps `w = 1 − |τ|/N`. With
S_k in the place of the spectral density, Whittle's likelihood has no bias from leakage and aliasing
(Sykulski, Olhede, Guillaumin, Lilly & Early, Biometrika 106, 2019, eq. 4 and 7). For an improper
process `J_k` and `J_{−k}` are correlated, `E[J_k J_{−k}] = R_k` from the pseudo-autocovariance in
the same way, and each pair has a density of its own (Sykulski, Olhede, Lilly & Early, IEEE Trans.
Signal Process. 65, 2017). For a series with gaps the N transforms come from n < N observations:
each term counts n/N, so that the sum carries as much information as the data.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.gp.data import Data
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.linalg.arguments import as_complex, squared_modulus

_REMEDY = "else take likelihood='exact'"
_OFF_GRID = 1e-3  # of a step: a phase error of at most 0.003 radians at the highest frequency


def as_band(
    likelihood: Any, band: Sequence[float] | None, process: SignalPlusNoise, is_stationary: bool
) -> tuple[float, float] | None:
    """The band of frequencies of a likelihood, in cycles per unit of x, checked; None for all.

    Raises:
        ValueError: Another likelihood, "whittle" for a kernel that is not stationary; a band for
            the exact likelihood, or one that is not two numbers in order or, for an improper
            process, not symmetric about 0.
    """
    if isinstance(likelihood, str) and likelihood not in ("exact", "whittle"):
        raise ValueError(
            f"likelihood must be 'exact', 'whittle' or one of cgp.likelihoods, got {likelihood!r}"
        )
    if likelihood != "whittle" and band is not None:
        raise ValueError(f"band={band!r} is of likelihood='whittle': the exact one has none")
    if likelihood == "whittle" and not is_stationary:
        raise ValueError(
            f"likelihood='whittle' needs a stationary kernel, which this is not: {_REMEDY}"
        )
    if likelihood == "whittle" and len(process.noise_variance.variable.shape):
        raise ValueError(f"likelihood='whittle' takes one noise_variance, not of groups: {_REMEDY}")
    if likelihood == "whittle" and process.noise_fraction is not None:
        raise ValueError(f"likelihood='whittle' is of noise alike everywhere: {_REMEDY}")
    if band is None:
        return None
    try:
        low, high = (float(limit) for limit in band)
    except (TypeError, ValueError):
        raise ValueError(f"band must be (low, high), two frequencies, got {band!r}") from None
    if not low < high:
        raise ValueError(f"band must be (low, high) with low < high, got {band!r}")
    if not process.is_proper and low != -high:
        raise ValueError(
            "the band of an improper process must be symmetric, (-high, high), as frequencies "
            f"f and -f are correlated, got {band!r}"
        )
    return low, high


def check_series(data: Data, band: tuple[float, float] | None, learned: int) -> None:
    """Raises, eagerly, for data that have no Whittle likelihood.

    These are points that are not in order at equal steps; fewer frequencies in the band than the
    number of real hyperparameters learned; noise that differs from sample to sample.
    """
    _check_noise(data)
    places = np.asarray(data.x)[..., 0].astype(float)
    if places.shape[-1] < 2:
        raise ValueError(f"likelihood='whittle' needs at least two points, {_REMEDY}")
    steps = np.diff(places, axis=-1)
    if np.any(steps < 0.0):
        raise ValueError(f"likelihood='whittle' needs x in order, {_REMEDY}")
    if np.any(steps == 0.0):
        raise ValueError(f"likelihood='whittle' needs each x once, {_REMEDY}")
    if np.any(_off_grid(places, np.arange(places.shape[-1]), data.x.dtype)):
        raise ValueError(
            f"likelihood='whittle' needs equal steps of x, got steps from {steps.min():.6g} to "
            f"{steps.max():.6g}: give NaN at the places of missing samples, or {_REMEDY}"
        )
    if band is not None:
        frequencies = np.asarray(_frequencies(data))
        count = int(np.sum((band[0] <= frequencies) & (frequencies <= band[1]), axis=-1).min())
        if count < max(learned, 1):
            raise ValueError(
                f"the band {band} holds {count} of the {frequencies.shape[-1]} frequencies of the "
                f"data, {np.diff(np.sort(frequencies))[0, 0]:.3g} apart between "
                f"{frequencies.min():.3g} and {frequencies.max():.3g}: at least {max(learned, 1)} "
                "were expected, one for each hyperparameter to learn"
            )


def _check_noise(data: Data) -> None:
    if not data.noise.is_common:
        raise ValueError(
            f"likelihood='whittle' is of stationary noise, not of one of each sample: {_REMEDY}"
        )


def log_likelihood(
    process: SignalPlusNoise, data: Data, band: tuple[float, float] | None
) -> tf.Tensor:
    """The debiased Whittle likelihood of each series, real, `[B]`, differentiable.

    The kernel is stationary, and the N places are in order at equal steps; z is NaN where missing.
    The band is symmetric about 0 for an improper process.
    """
    _check_noise(data)
    places, keep = data.x[..., 0], data.keep
    numbers = tf.range(tf.shape(places)[-1])
    regular = ~tf.reduce_any(_off_grid(places, numbers, places.dtype))
    message = "likelihood='whittle' needs x in order, at equal steps"
    assertion = tf.debugging.Assert(regular, [message])
    with tf.control_dependencies([] if assertion is None else [assertion]):
        residual = data.z - process.plus_function(tf.zeros_like(data.z), data.x)
    residual = tf.where(data.present, residual, tf.zeros_like(residual))
    J = tf.signal.fft(residual) / as_complex(tf.sqrt(data.counts))[:, None]
    expected = _expected_moments(process, places, keep)
    counted = tf.ones_like(places)
    if band is not None:
        frequencies = _frequencies(data)
        counted = tf.cast((band[0] <= frequencies) & (frequencies <= band[1]), places.dtype)
    # The smallest values of the transform of a process without noise are lost in rounding.
    rounding = tf.constant(np.finfo(places.dtype.as_numpy_dtype).eps, places.dtype)
    S = tf.maximum(expected.S, rounding * tf.reduce_max(expected.S, axis=-1, keepdims=True))
    if expected.R is None:
        terms = tf.math.log(math.pi * S) + squared_modulus(J) / S
    else:
        opposite, J_opposite = _opposite(S), _opposite(J)
        det = S * opposite
        det = tf.maximum(det - squared_modulus(expected.R), rounding * det)
        square = opposite * squared_modulus(J) + S * squared_modulus(J_opposite)
        square -= 2.0 * tf.math.real(expected.R * tf.math.conj(J * J_opposite))
        terms = 0.5 * (tf.math.log(det) + square / det) + math.log(math.pi)  # half of the pair's
    information = data.counts / tf.cast(tf.size(numbers), places.dtype)
    return -information * tf.reduce_sum(counted * terms, axis=-1)


class _Moments(NamedTuple):
    """Second moments of the transform, `[G or X, N]`, at frequencies k = 0 … N − 1."""

    S: tf.Tensor
    """`E|J_k|²`, real."""
    R: tf.Tensor | None
    """`E[J_k J_{−k}]`, complex; None for a proper process."""


def _expected_moments(process: SignalPlusNoise, places: tf.Tensor, keep: tf.Tensor) -> _Moments:
    """The expected periodogram, and the expected product at opposite frequencies."""
    count = tf.shape(places)[-1]
    lags = (tf.cast(tf.range(count), places.dtype) * _step(places))[..., None]
    k, c = process.kernel.checked_moments(lags, tf.zeros_like(lags[:, :1]))
    weights = _weights(keep, places.dtype)
    noise = as_complex(process.learned_noise_variance() * tf.one_hot(0, count, dtype=places.dtype))
    S = tf.math.real(tf.signal.fft(_folded(as_complex(k) + noise, weights, conjugate=True)))
    if process.is_proper:
        return _Moments(S, None)
    pseudo = tf.zeros_like(as_complex(k)) if c is None else as_complex(c)
    if process.noise_circularity is not None:
        pseudo += noise * process.noise_circularity.value
    return _Moments(S, tf.signal.fft(_folded(pseudo, weights, conjugate=False)))


def _folded(covariance: tf.Tensor, weights: tf.Tensor, conjugate: bool) -> tf.Tensor:
    """Weighted covariances at lags 0 … N − 1 and, folded onto them, those at −(N − 1) … −1.

    At a negative lag a covariance is the conjugate of its value at the positive lag, and a
    pseudo-covariance the same value.
    """
    weighted = as_complex(weights) * covariance
    backwards = tf.reverse(weighted[..., 1:], axis=[-1])
    backwards = tf.math.conj(backwards) if conjugate else backwards
    return weighted + tf.pad(backwards, [[0, 0], [1, 0]])


def _opposite(a: tf.Tensor) -> tf.Tensor:
    """Values at frequencies k = 0 … N − 1, taken at −k."""
    return tf.concat([a[..., :1], tf.reverse(a[..., 1:], axis=[-1])], axis=-1)


def _weights(keep: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The weights w(τ) of lags 0 … N − 1, real, `[G, N]`."""
    count = tf.shape(keep)[-1]
    kept = tf.cast(keep, tf.float64)

    def without_gaps() -> tf.Tensor:
        lags = tf.cast(tf.range(count), tf.float64)
        return tf.zeros_like(kept) + 1.0 - lags / tf.cast(count, tf.float64)

    def with_gaps() -> tf.Tensor:
        spectrum = tf.signal.rfft(kept, [2 * count])
        pairs = tf.signal.irfft(as_complex(squared_modulus(spectrum)), [2 * count])[:, :count]
        return tf.round(pairs) / tf.reduce_sum(kept, axis=-1, keepdims=True)

    return tf.cast(tf.cond(tf.reduce_all(keep), without_gaps, with_gaps), dtype)


def _step(places: tf.Tensor) -> tf.Tensor:
    """The step between places `[X, N]`, `[X, 1]`."""
    count = tf.shape(places)[-1]
    return (places[:, -1:] - places[:, :1]) / tf.cast(count - 1, places.dtype)


def _off_grid(places: tf.Tensor, numbers: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Whether places `[X, N]` are off a regular grid, beyond rounding; bool."""
    step = _step(places)
    grid = places[:, :1] + tf.cast(numbers, places.dtype) * step
    largest = tf.reduce_max(tf.abs(places), axis=-1, keepdims=True)
    rounding = 4.0 * np.finfo(dtype.as_numpy_dtype).eps * largest
    return ~(tf.abs(places - grid) <= _OFF_GRID * step + rounding)


def _frequencies(data: Data) -> tf.Tensor:
    """The frequencies of the transform, in cycles per unit of x, `[X, N]`."""
    places = data.x[..., 0]
    count = tf.shape(places)[-1]
    numbers = tf.range(count)
    signed = tf.where(2 * numbers < count, numbers, numbers - count)
    return tf.cast(signed, places.dtype) / (tf.cast(count, places.dtype) * _step(places))
