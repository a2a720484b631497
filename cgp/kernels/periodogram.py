"""Periodograms of series, regular or not, over one dimension and over several."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import scipy.fft

# The most frequencies of a periodogram, enough for a regular series of a million points.
_MOST_FREQUENCIES = 4_000_000
# The most products of frequencies and points summed directly; beyond it a transform is faster.
_MOST_PRODUCTS = 20_000_000

# The most points of several dimensions that are taken; a random subset of more.
_MOST_POINTS = 20_000
_FEW_CELLS = 16  # of a dimension over which a tone turns little


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

    Points are put into cells, of which the fast Fourier transform is taken, on a grid of half of a
    cycle per span; frequencies of peaks are then refined at the points themselves. Over three
    dimensions there are as many cells in each, or many in one: a delay of many cycles over
    frequency turns little over temperature.

    Args:
        x: Points, `[N, D]`, D > 1.
        z: Series, complex `[B, N]`, of a size whose squares neither overflow nor underflow.
        highest: The largest frequency of each dimension, `[D]`; infinite for places at random,
            which have no aliases, and frequencies that cells resolve.
        spans: The spans of x, `[D]`.
        count: The number of tones, returned as frequencies `[count, D]` and shares of the power.
    """
    if len(x) > _MOST_POINTS:
        sampled_rows = np.random.default_rng(0).choice(len(x), _MOST_POINTS, replace=False)
        x, z = x[sampled_rows], z[:, sampled_rows]
    shapes = _shapes_of_cells(highest, spans)

    def power_at(frequencies: np.ndarray, residual: np.ndarray) -> np.ndarray:
        phases = np.exp(-2j * np.pi * frequencies @ x.T)
        return np.sum(np.abs(phases @ residual.T) ** 2, axis=1)

    def refined(peak: np.ndarray, residual: np.ndarray) -> np.ndarray:
        for dimension, step in [*enumerate(0.25 / spans)] * 2:  # one dimension at a time
            near = np.tile(peak, (3, 1))
            near[:, dimension] += step * np.array([-1.0, 0.0, 1.0])
            peak[dimension] += _vertex(power_at(near, residual)) * step
        return peak

    def strongest(residual: np.ndarray) -> np.ndarray:
        peaks = [
            refined(_peak_of_cells(x, residual, shape, highest, spans), residual)
            for shape in shapes
        ]
        return peaks[int(np.argmax(power_at(np.array(peaks), residual)))]

    return _pursued(z, count, strongest, lambda f: np.exp(2j * np.pi * x @ np.transpose(f)))


def _shapes_of_cells(highest: np.ndarray, spans: np.ndarray) -> list[np.ndarray]:
    """The numbers of cells of transforms, `[D]`, twice those that points lie in."""
    limits = 2.0 * np.maximum(np.ceil(2.0 * highest * spans), 1.0)
    if np.isfinite(limits).all():
        while np.prod(limits) > _MOST_FREQUENCIES:
            limits = np.maximum(2.0 * (limits // 4), 2.0)
        return [limits.astype(int)]
    dimensions = len(spans)
    shapes = [np.full(dimensions, 2 ** int(np.log2(_MOST_FREQUENCIES) / dimensions))]
    for dimension in range(dimensions if dimensions > 2 else 0):
        shape = np.full(dimensions, _FEW_CELLS)
        shape[dimension] = 2 ** int(np.log2(_MOST_FREQUENCIES / _FEW_CELLS ** (dimensions - 1)))
        shapes.append(shape)
    return [np.minimum(shape, limits).astype(int) for shape in shapes]


def _peak_of_cells(
    x: np.ndarray, z: np.ndarray, shape: np.ndarray, highest: np.ndarray, spans: np.ndarray
) -> np.ndarray:
    """The frequency, `[D]`, at which the transform of the cells of points is largest."""
    cells = shape // 2
    places = ((x - x.min(axis=0)) / spans * cells).astype(int)
    numbers = np.ravel_multi_index(np.minimum(places, cells - 1).T, cells)
    power = np.zeros(shape)
    for series in z:
        sums = [np.bincount(numbers, a, np.prod(cells)) for a in (series.real, series.imag)]
        transform = scipy.fft.fftn((sums[0] + 1j * sums[1]).reshape(cells), shape)
        power += transform.real**2 + transform.imag**2
    frequencies = [
        np.fft.fftfreq(count) * inside / span
        for count, inside, span in zip(shape, cells, spans, strict=True)
    ]
    for axis, (frequency, limit) in enumerate(zip(frequencies, highest, strict=True)):
        is_beyond = np.abs(frequency) > limit * (1.0 + 1e-9)
        np.moveaxis(power, axis, 0)[is_beyond] = 0.0
    place = np.unravel_index(np.argmax(power), power.shape)
    return np.array([frequency[i] for frequency, i in zip(frequencies, place, strict=True)])


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
