"""Periodograms of series, regular or not, over one dimension and over several."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

# The most frequencies of a periodogram, enough for a regular series of a million points.
_MOST_FREQUENCIES = 4_000_000
# The most products of frequencies and points summed directly; beyond it a transform is faster.
_MOST_PRODUCTS = 20_000_000

# The most points of several dimensions, whose periodogram is a product of matrices.
_MOST_POINTS = 2_000


class Periodogram:
    """The periodogram `|Σ w z e^{−i2πfx}|²` of series `[B, N]` at places `[N]`, summed over series.

    The grid has steps of a quarter of a cycle per span, between plus and minus half of a cycle per
    median step of x. Long series are spread over a fine regular grid of x first, which moves a peak
    by a small part of the spacing of its frequencies. Squares of z neither overflow nor underflow;
    a span of so many steps that the grid would have over four million frequencies is an error.
    """

    def __init__(self, x: np.ndarray, z: np.ndarray):
        steps = np.diff(np.sort(x))
        with np.errstate(over="ignore"):  # an infinite span is refused below
            self.step, self.span = np.median(steps[steps > 0]), np.ptp(x)
        if not self.span < 0.25 * _MOST_FREQUENCIES * self.step:
            raise ValueError(
                f"the median step of x, {self.step:.3g}, is so short beside its span, "
                f"{self.span:.3g}, that a periodogram would need more than {_MOST_FREQUENCIES:,} "
                "frequencies: take one burst of the data, or average over each, or give the "
                "frequency to the constructor"
            )
        self.x, self.z = x - x.mean(), z
        self.spacing = 0.25 / self.span
        half = int(np.ceil(0.5 / self.step / self.spacing))
        self.grid = np.arange(-half, half + 1) * self.spacing

    @cached_property
    def powers(self) -> np.ndarray:
        """The periodogram on the grid."""
        return self.on_grid(self.z)

    def peaks(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The frequencies of `count` tones, and the share of the power that each explains."""

        def tones_of(frequencies: list) -> np.ndarray:
            return np.exp(2j * np.pi * np.outer(self.x, frequencies))

        return _pursued(self.z, count, self._highest, tones_of)

    def _highest(self, z: np.ndarray) -> float:
        """The frequency of the highest peak, refined between the points of the grid."""
        power = self.on_grid(z)
        peak = int(np.argmax(power))
        if not 0 < peak < len(self.grid) - 1:
            return float(self.grid[peak])
        nearest = self._at_frequencies(self.grid[peak - 1 : peak + 2], z)
        return float(self.grid[peak] + _vertex(nearest) * self.spacing)

    def on_grid(self, z: np.ndarray) -> np.ndarray:
        """The periodogram of series `[B, N]` at the same places, at the frequencies of `grid`."""
        if self.grid.size * self.x.size <= _MOST_PRODUCTS:
            return self._at_frequencies(self.grid, z)
        # Each point is shared by its two neighbours on a grid four times as fine as the data.
        pitch = 0.25 * self.step
        place = (self.x - self.x.min()) / pitch
        lower = np.floor(place).astype(int)
        share = place - lower
        size = round(4.0 * self.span / pitch)  # a quarter of a cycle per span
        frequencies = np.fft.fftfreq(size, pitch)
        order = np.argsort(frequencies)
        powers = np.zeros(size)
        for series in z:
            spread = np.zeros(size, complex)
            np.add.at(spread, lower, (1.0 - share) * series)
            np.add.at(spread, lower + 1, share * series)
            powers += np.abs(np.fft.fft(spread)) ** 2
        powers /= np.sinc(frequencies * pitch) ** 4  # sharing attenuates high frequencies
        return np.interp(self.grid, frequencies[order], powers[order])

    def _at_frequencies(self, frequencies: np.ndarray, z: np.ndarray) -> np.ndarray:
        """The periodogram at any frequencies, in blocks that fit into memory."""
        blocks = np.array_split(frequencies, 1 + frequencies.size * self.x.size // 2_000_000)
        sums = [np.exp(-2j * np.pi * np.outer(block, self.x)) @ z.T for block in blocks]
        return np.sum(np.abs(np.concatenate(sums)) ** 2, axis=1)

    def floor(self) -> float:
        """The variance of white noise with the median power of the data.

        The data are under Hann's window, which keeps strong parts at their frequencies. Over places
        at random, the leakage of a strong part is in the floor too.
        """
        place = (self.x - self.x.min()) / self.span
        window = np.sin(np.pi * np.clip(place, 0.0, 1.0)) ** 2
        powers = self.on_grid(window * self.z)[::4] / (len(self.z) * np.sum(window**2))
        # The mean of B powers of white noise has the gamma distribution, of this median.
        return float(np.median(powers)) / (1.0 - 1.0 / (3.0 * len(self.z)))


def peaks_over_dimensions(
    x: np.ndarray, z: np.ndarray, highest: np.ndarray, spans: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """The strongest tones `e^{i2π f·x}` over several dimensions, as `Periodogram.peaks` for one.

    The periodogram, on a grid of half of a cycle per span, is a product of matrices, as the phase
    factors are products over the dimensions. Of many points a random subset is used.

    Args:
        x: Points, `[N, D]`, D > 1.
        z: Series, complex `[B, N]`, of a size whose squares neither overflow nor underflow.
        highest: The largest frequency of each dimension, `[D]`.
        spans: The spans of x, `[D]`.
        count: The number of tones, returned as frequencies `[count, D]` and shares of the power.
    """
    if len(x) > _MOST_POINTS:
        sampled_rows = np.random.default_rng(0).choice(len(x), _MOST_POINTS, replace=False)
        x, z = x[sampled_rows], z[:, sampled_rows]
    x = x - x.mean(axis=0)
    grids = [
        0.5 / span * np.arange(-half, half + 1)
        for span, half in zip(spans, np.ceil(2.0 * highest * spans).astype(int), strict=True)
    ]
    while np.prod([float(len(grid)) for grid in grids]) > _MOST_FREQUENCIES:
        grids = [grid[len(grid) // 4 : -(len(grid) // 4) or None] for grid in grids]
    first_phases, *later_phases = (
        np.exp(-2j * np.pi * np.outer(g, column)) for g, column in zip(grids, x.T, strict=True)
    )
    joint_phases = later_phases[0]
    for phases in later_phases[1:]:
        joint_phases = (joint_phases[:, None] * phases).reshape(-1, len(x))

    def strongest(residual: np.ndarray) -> np.ndarray:
        power = sum(np.abs((first_phases * series) @ joint_phases.T) ** 2 for series in residual)
        place = np.unravel_index(np.argmax(power), [len(grid) for grid in grids])
        peak = np.array([grid[i] for grid, i in zip(grids, place, strict=True)])
        for dimension, step in [*enumerate(0.25 / spans)] * 2:  # one dimension at a time
            near = np.tile(peak, (3, 1))
            near[:, dimension] += step * np.array([-1.0, 0.0, 1.0])
            powers = np.sum(np.abs(np.exp(-2j * np.pi * near @ x.T) @ residual.T) ** 2, axis=1)
            peak[dimension] += _vertex(powers) * step
        return peak

    return _pursued(z, count, strongest, lambda f: np.exp(2j * np.pi * x @ np.transpose(f)))


def _pursued(
    z: np.ndarray,
    count: int,
    highest: Callable[[np.ndarray], Any],
    tones_of: Callable[[list], np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """The frequencies of `count` tones, and the share of the power that each explains.

    Each time the highest peak is taken, and the tones so far are fitted together and subtracted
    (orthogonal matching pursuit: Pati, Rezaiifar & Krishnaprasad, 1993).
    """
    frequencies: list = []
    shares, residual = [], z
    for _ in range(count):
        frequencies.append(highest(residual))
        tones = tones_of(frequencies)
        amplitudes = np.linalg.lstsq(tones, z.T, rcond=None)[0]
        power_before, residual = _power(residual), z - (tones @ amplitudes).T
        shares.append(max(power_before - _power(residual), 0.0) / _power(z))
    return np.array(frequencies), np.array(shares)


def _vertex(powers: np.ndarray) -> float:
    """The vertex of the parabola through the logs of three powers, in steps from the middle."""
    below, top, above = np.log(np.maximum(powers, 1e-300))
    curvature = below - 2.0 * top + above
    return float(np.clip(0.5 * (below - above) / curvature, -1.0, 1.0)) if curvature < 0 else 0.0


def _power(z: np.ndarray) -> float:
    return float(np.sum(np.abs(z) ** 2))


def deviations(z: np.ndarray) -> tuple[np.ndarray, float]:
    """Deviations from the mean of each series, over their largest modulus, and the modulus.

    Their squares neither overflow nor underflow. They are zero for a constant signal.
    """
    largest = max(np.abs(z.real).max(), np.abs(z.imag).max())
    if not largest > 0:
        return np.zeros_like(z), 0.0
    scaled = z / largest
    centred = scaled - scaled.mean(axis=-1, keepdims=True)
    size = np.max(np.abs(centred))
    if size < 1e-13:  # the rounding of the mean
        return np.zeros_like(z), 0.0
    return centred / size, float(size * largest)
