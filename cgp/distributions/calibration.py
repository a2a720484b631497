"""Running calibration: how the power of residuals compares with that predicted, along a series.

A residual e that is standardised by its predicted variance has `E|e|² = 1` if the model is right,
and 2|e|², the normalised innovation squared, is χ² with two degrees of freedom. So is the sum over
a window, with two for each sample, and its ratio to its mean lies in a band (Bar-Shalom, Li &
Kirubarajan, *Estimation with Applications to Tracking and Navigation*, 2001, §5.4). Residuals may
be correlated, as leave-one-out residuals are. The squares of normal residuals with autocorrelation
`ρ(τ) = E[e(t) e*(t − τ)]` and complementary autocorrelation `κ(τ) = E[e(t) e(t − τ)]` have the
autocovariance |ρ|² + |κ|² (Isserlis' theorem), and the variance of their sum is larger by the
factor `Σ (|ρ|² + |κ|²)`, over all lags of both signs. By that the degrees of freedom are divided.
A power that varies over white residuals changes none of them.
"""

import functools
from typing import NamedTuple

import numpy as np
import scipy.special

from cgp.distributions.marginals import Step, degrees_of_freedom

_SHORTEST = 10  # samples of a window
_LONGEST = 500
_EDGES = 200  # places at which a stretch may begin or end
_SIGNIFICANT = 4.0  # |ρ|² above its mean for white residuals


class Stretch(NamedTuple):
    """Neighbouring samples in which the power of the residuals is outside of its band."""

    first: int
    """The first sample."""
    last: int
    """The last sample."""
    ratio: float
    """The power over that predicted."""


class Running(NamedTuple):
    """The power of residuals over that predicted, in windows along a series of n samples."""

    ratio: np.ndarray
    """Real, `[n − window + 1]`."""
    low: np.ndarray
    """The lower edge of the band of a right model; likewise."""
    high: np.ndarray
    """The upper edge."""
    window: int
    """The number of samples in a window."""
    probability: float
    """The probability of the band, in each window."""
    too_sure: list[Stretch]
    """The stretches of more power than predicted, in order."""
    too_cautious: list[Stretch]
    """The stretches of less power than predicted, in order."""


def band(degrees: np.ndarray, tail: float) -> tuple[np.ndarray, np.ndarray]:
    """The quantiles `tail` and `1 − tail` of χ²/degrees; 0 and infinity without any degrees."""
    if degrees.size == 1:  # of each step of a stream
        low, high = _limits(float(degrees.item()), tail)
        return np.full(degrees.shape, low), np.full(degrees.shape, high)
    different, index = np.unique(degrees, return_inverse=True)
    limits = np.array([_limits(float(count), tail) for count in different]).reshape(-1, 2)
    index = index.reshape(degrees.shape)  # whatever the version of NumPy
    return limits[index, 0], limits[index, 1]


@functools.lru_cache(maxsize=4096)
def _limits(degrees: float, tail: float) -> tuple[float, float]:
    if not degrees > 0:
        return 0.0, np.inf
    half = 0.5 * degrees
    low, high = scipy.special.gammaincinv(half, tail), scipy.special.gammainccinv(half, tail)
    return float(low / half), float(high / half)


def running_sums(values: np.ndarray, window: int) -> np.ndarray:
    """The sums over windows along the last axis, of length n, `[..., n − window + 1]`."""
    n = values.shape[-1]
    if n <= window:
        return values.sum(axis=-1, keepdims=True) if n == window else values[..., :0]
    # Not differences of cumulative sums, in which a large value hides the small ones after it.
    return np.lib.stride_tricks.sliding_window_view(values, window, axis=-1).sum(axis=-1)


def squares_and_degrees(step: Step) -> tuple[np.ndarray, np.ndarray]:
    """The normalised innovations squared of a step or a block, and their degrees of freedom.

    Both are zero where nothing is observed.
    """
    degrees = degrees_of_freedom(step)
    squares = np.asarray(step.nis, float)
    squares = np.where(np.isnan(squares), np.inf, squares)  # of a prediction that has overflowed
    return np.where(degrees == 0, 0.0, squares), degrees


def inflation(e: np.ndarray, window: int) -> float:
    """The factor of the variance of sums of |e|² over a window, for series `[B, N]`.

    NaN is missing. Values of |ρ|² and |κ|² count where they are above those of white residuals.
    """
    present = ~np.isnan(e)
    e = np.where(present, e, 0.0)
    size = 2 * e.shape[-1]

    def sums_of_products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """`Σ a(t) b*(t − lag)` over time and series, at the lags of a window."""
        product = np.fft.fft(a, size, axis=-1) * np.conj(np.fft.fft(b, size, axis=-1))
        return np.fft.ifft(product.sum(axis=0))[: min(window, e.shape[-1])]

    weight = present.astype(float)
    pairs = np.maximum(np.round(sums_of_products(weight, weight).real), 1.0)
    power = np.sum(np.abs(e) ** 2) / pairs[0]
    if not power > 0:
        return 1.0

    def excess(b: np.ndarray) -> np.ndarray:
        square = np.abs(sums_of_products(e, b) / (pairs * power)) ** 2
        return np.maximum(square - _SIGNIFICANT / pairs, 0.0)

    rho, kappa = excess(e), excess(np.conj(e))
    return 1.0 + float(kappa[0] + 2.0 * np.sum(rho[1:] + kappa[1:]))


def running_calibration(
    power: np.ndarray, count: np.ndarray, e: np.ndarray, level: float
) -> Running:
    """The running calibration of standardised residuals, and where it is outside of its band.

    The band is that of one window with `1 − level` divided by the number of windows, so that it
    holds all windows of a right model with at least this probability (Bonferroni).

    Args:
        power: The sum of |e|² of the residuals at each of n places in order, `[n]`.
        count: Their number at each place, at least 1, `[n]`.
        e: The residuals in their series, complex, `[B, N]`, NaN where missing, whose
            autocorrelation tells how much the squares have in common.
        level: The probability that a right model leaves the band somewhere.
    """
    n = len(power)
    window = min(max(_SHORTEST, min(round(2 * np.sqrt(n)), _LONGEST)), n)
    tail = 0.5 * level / (n - window + 1)
    common = inflation(e, window)
    counts = running_sums(count, window)
    ratio = running_sums(power, window) / counts
    low, high = band(2.0 * counts / common, tail)
    sides = (
        _stretches(power, count, outside, window, is_above)
        for outside, is_above in ((ratio > high, True), (ratio < low, False))
    )
    return Running(ratio, low, high, window, 1.0 - 2.0 * tail, *sides)


def _stretches(
    power: np.ndarray, count: np.ndarray, outside: np.ndarray, window: int, is_above: bool
) -> list[Stretch]:
    """The stretches within windows `[n − window + 1]` that are outside of the band."""
    starts = np.flatnonzero(outside)
    if not starts.size:
        return []
    regions = np.split(starts, np.flatnonzero(np.diff(starts) > window) + 1)
    return [_sharpened(power, count, r[0], r[-1] + window, window, is_above) for r in regions]


def _sharpened(
    power: np.ndarray, count: np.ndarray, begin: int, end: int, window: int, is_above: bool
) -> Stretch:
    """The stretch between two samples for which the likelihood ratio is largest.

    It is that of a power r times the predicted one against the predicted one, `k (r − 1 − log r)`
    of k residuals. A stretch is no shorter than half of a window.
    """
    edges = np.unique(np.linspace(begin, end, _EDGES).round().astype(int))
    power_before, count_before = (
        np.concatenate([[0.0], np.cumsum(a[begin:end])])[edges - begin] for a in (power, count)
    )
    k = count_before[None, :] - count_before[:, None]
    is_long = edges[None, :] - edges[:, None] >= max(window // 2, 1)
    r = (power_before[None, :] - power_before[:, None]) / np.where(is_long, k, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        evidence = k * (r - 1.0 - np.log(r))
    evidence = np.where(is_long & ((r > 1.0) == is_above), evidence, -np.inf)
    first, last = np.unravel_index(np.argmax(evidence), evidence.shape)
    return Stretch(int(edges[first]), int(edges[last]) - 1, float(r[first, last]))


def in_words(stretches: list[Stretch], x: np.ndarray) -> str:
    """Where stretches of samples at places `[n]` are: "from x = 3 to 7"; the first three."""
    spans = [f"from x = {x[s.first]:.6g} to {x[s.last]:.6g}" for s in stretches[:3]]
    more = len(stretches) - len(spans)
    return " and ".join(spans) + (f" and in {more} more" if more else "")
