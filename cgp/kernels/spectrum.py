"""Spectra of stationary processes over one dimension, and periodograms of data.

By Bochner's theorem a stationary covariance is `K(x) = ∫ S(f) e^{+i2πfx} df + Σ p[k] e^{+i2πf[k]x}`
with S and p not negative: a density, and lines. Over f of both signs it is the rotary spectrum of a
complex process. White noise, which points at different x do not share, has neither.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from cgp.kernels.markov import MarkovForm

Density = Callable[[np.ndarray], np.ndarray]
"""From frequencies, float64 of any shape, to the density there."""


class Spectrum(NamedTuple):
    """The spectrum of a process: its density, its lines, and its white noise."""

    density: Density | None = None
    """S, in squared units of z per cycle per unit of x; None for zero."""
    lines: np.ndarray = np.zeros(0)
    """The frequencies of lines, float64 `[L]`, in cycles per unit of x."""
    powers: np.ndarray = np.zeros(0)
    """Their powers, float64 `[L]`, in squared units of z."""
    white: float = 0.0
    """The variance of white noise."""

    def shifted(self, frequency: float, power: float = 1.0) -> "Spectrum":
        """The spectrum of the process times a tone."""
        density = self.density
        moved = None if density is None else lambda f: power * density(f - frequency)
        return Spectrum(moved, self.lines + frequency, power * self.powers, power * self.white)

    def conjugate(self) -> "Spectrum":
        """The spectrum of the conjugate process."""
        density = self.density
        turned = None if density is None else lambda f: density(-f)
        return self._replace(density=turned, lines=-self.lines)


def line_spectrum(frequency: float, power: float) -> Spectrum:
    """The spectrum of a tone."""
    return Spectrum(lines=np.array([frequency]), powers=np.array([power]))


def sum_of_spectra(spectra: list[Spectrum]) -> Spectrum:
    """The spectrum of a sum of independent processes."""
    densities = [s.density for s in spectra if s.density is not None]
    return Spectrum(
        (lambda f: np.sum([density(f) for density in densities], axis=0)) if densities else None,
        np.concatenate([s.lines for s in spectra]),
        np.concatenate([s.powers for s in spectra]),
        sum(s.white for s in spectra),
    )


def times_lines(spectrum: Spectrum, lines: Spectrum) -> Spectrum:
    """The spectrum of a process times an independent one of lines alone."""
    return sum_of_spectra(
        [Spectrum()]  # of no lines at all
        + [spectrum.shifted(f, p) for f, p in zip(lines.lines, lines.powers, strict=True)]
    )


def matern_spectrum(variance: float, lengthscale: float, smoothness: float) -> Spectrum:
    """The spectrum of the Matérn covariance (Rasmussen & Williams, 2006, eq. 4.15)."""
    from scipy.special import gammaln  # here: importing it takes long

    nu = smoothness
    height = 2.0 * np.sqrt(0.5 * np.pi / nu) * np.exp(gammaln(nu + 0.5) - gammaln(nu))

    def density(f: np.ndarray) -> np.ndarray:
        ratio = (2.0 * np.pi * lengthscale * f) ** 2 / (2.0 * nu)
        return variance * lengthscale * height * np.exp(-(nu + 0.5) * np.log1p(ratio))

    return Spectrum(density)


def spectrum_of_form(form: MarkovForm) -> Spectrum | None:
    """The spectrum of a stationary process `ds = A s dx + dβ`, `z = h s + g conj(s)`.

    `S(f) = h G W Gᴴ hᴴ` with `G = (i2πf − A)⁻¹`, plus the density of `conj(g) s` at −f (Särkkä &
    Solin, *Applied Stochastic Differential Equations*, 2019, §12.3). None where the form has no
    such equation, or a part of it never forgets.
    """
    if form.generator is None or not form.is_stationary:
        return None
    A, W = (np.asarray(a, complex) for a in form.generator)
    # A part that never forgets has an eigenvalue that is imaginary up to rounding.
    size = np.max(np.abs(A))
    if not np.all(np.linalg.eigvals(A).real < -1e-12 * size):
        return None

    def density_of(h: np.ndarray) -> Density:
        def density(f: np.ndarray) -> np.ndarray:
            pencil = 2j * np.pi * f[..., None, None] * np.eye(len(A)) - A
            # h G, from Gᴴ hᴴ: one system for each frequency.
            column = np.linalg.solve(np.conj(np.swapaxes(pencil, -1, -2)), np.conj(h)[:, None])
            return np.real(np.conj(np.swapaxes(column, -1, -2)) @ W @ column)[..., 0, 0]

        return density

    spectrum = Spectrum(density_of(np.asarray(form.h, complex)))
    if form.h_conj is None:
        return spectrum
    of_conjugate = Spectrum(density_of(np.conj(np.asarray(form.h_conj, complex))))
    return sum_of_spectra([spectrum, of_conjugate.conjugate()])


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
