"""The scales of data, from which hyperparameters that were left out start."""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from cgp.kernels.periodogram import Periodogram, deviations

_TONES = 8  # peaks of a periodogram among which starts of a frequency are drawn
_OWN = 1.5  # cycles over the span, within which a tone is that of another term
_LONGEST = 20_000  # points from which scales are taken: beyond it a stretch in the middle


class DataScales:
    """The scales of data, each computed when it is first asked for.

    Args:
        x: Inputs, `[N, D]`.
        z: Series, complex `[B, N]`, NaN where missing.
    """

    def __init__(self, x: np.ndarray, z: np.ndarray):
        measured = ~np.isnan(z).all(axis=0)
        self.x, self.z = x[measured], z[:, measured]

    @cached_property
    def total(self) -> float:
        """`E|z|²`, the mean square of all targets."""
        size = np.nanmax(np.abs(self.z), initial=0.0)
        return float(size**2 * np.nanmean(np.abs(self.z / size) ** 2)) if size > 0 else 1.0

    @cached_property
    def mean(self) -> complex:
        """The mean of all targets."""
        return complex(np.nanmean(self.z))

    @cached_property
    def span(self) -> float:
        """From the first to the last x; the geometric mean of the dimensions in which x varies."""
        spans = np.ptp(self.x, axis=0)
        return float(np.exp(np.mean(np.log(spans[spans > 0])))) if np.any(spans > 0) else 1.0

    @cached_property
    def spacing(self) -> float:
        """The median step of x; of D dimensions the span over the D-th root of the points."""
        points, dimensions = self.x.shape
        if dimensions > 1:
            varying = max(int(np.sum(np.ptp(self.x, axis=0) > 0)), 1)
            return self.span / max(points ** (1.0 / varying), 1.0)
        steps = np.diff(np.unique(self.x))
        return float(np.median(steps)) if steps.size else self.span

    @cached_property
    def is_regular(self) -> bool:
        """Whether x is one line of whole steps of the spacing."""
        if self.x.shape[1] != 1:
            return False
        places = (self.x[:, 0] - self.x[:, 0].min()) / self.spacing
        return bool(np.all(np.abs(places - np.round(places)) < 1e-3))

    @cached_property
    def circularity(self) -> complex:
        """The circularity quotient `E[z²] / E|z|²` of the targets about their mean."""
        deviation = (self.z - self.mean)[~np.isnan(self.z)]
        size = np.max(np.abs(deviation), initial=0.0)
        if not size > 0:
            return 0j
        return complex(np.mean((deviation / size) ** 2) / np.mean(np.abs(deviation / size) ** 2))

    @cached_property
    def _periodogram(self) -> tuple[Periodogram, float] | None:
        """That of a stretch that all series have, and the unit of z in it; None without one."""
        whole = ~np.isnan(self.z).any(axis=0)
        x, z = self.x[whole], self.z[:, whole]
        if x.shape[1] != 1 or len(x) < 3:
            return None
        order = np.argsort(x[:, 0], kind="stable")
        first = max((len(order) - _LONGEST) // 2, 0)
        order = order[first : first + _LONGEST]
        x, (z, unit) = x[order, 0], deviations(z[:, order])
        if not unit > 0 or x[0] == x[-1]:
            return None
        try:
            return Periodogram(x, z), unit
        except ValueError:  # bursts: too long a span for their steps
            return None

    @cached_property
    def tones(self) -> tuple[np.ndarray, np.ndarray]:
        """Frequencies of the strongest tones, and their shares of the power."""
        if self._periodogram is None:
            return np.zeros(1), np.ones(1)
        periodogram = self._periodogram[0]
        return periodogram.peaks(min(_TONES, max(len(periodogram.x) // 3, 1)))

    @cached_property
    def noise(self) -> float:
        """The variance of white noise: the floor of the periodogram, between 1e-6 and 0.3 of z."""
        if self._periodogram is None:
            return 0.01 * self.total
        periodogram, unit = self._periodogram
        return float(np.clip(unit**2 * periodogram.floor(), 1e-6 * self.total, 0.3 * self.total))


class StartRules:
    """The rules by which hyperparameters start, one for each kind.

    Without `draw` a rule gives one value, the start of a fit. With it a rule gives a value drawn
    around the same scales, the start of one of several fits.

    Args:
        scales: The scales of the data.
        lengthscales: How many length scales, of which each takes another part of the range
            between the spacing of x and its span.
        draw: Numbers between 0 and 1, or None.
        described: Frequencies of tones that other terms of the kernel describe.

    Attributes:
        power: The share of `E|z|²` that belongs to the kernel whose turn it is.
        lengthscales_taken: How many length scales have been asked for.
        origin: The frequency of the rotations that multiply the kernel at hand, from which its
            own frequencies count; None without one.
    """

    def __init__(
        self,
        scales: DataScales,
        lengthscales: int = 1,
        draw: Iterator[float] | None = None,
        described: Sequence[float] = (),
    ):
        self.scales, self.lengthscales, self.draw = scales, lengthscales, draw
        self.described = np.asarray(described, float)
        self.power = scales.total
        self.lengthscales_taken = 0
        self._taken: set[int] = set()  # tones at which frequencies have started
        self.origin: float | None = None

    def uniform(self) -> float:
        """The next number of the draw; the middle of the range without one."""
        return 0.5 if self.draw is None else float(next(self.draw))

    def scattered(self, value: float, decades: float) -> float:
        """A positive value, or one drawn within so many decades around it."""
        return float(value * 10.0 ** (decades * (self.uniform() - 0.5)))

    def variance(self) -> float:
        """A variance: the share of the kernel; drawn within a factor of ten."""
        return self.scattered(self.power, 2.0)

    def noise_variance(self) -> float:
        """A variance of noise: the floor of the periodogram; drawn from 1e-6 to 1 of `E|z|²`."""
        if self.draw is None:
            return self.scales.noise
        return float(self.scales.total * 10.0 ** (-6.0 * self.uniform()))

    def lengthscale(self) -> float:
        """A length scale between spacing and span, on the log scale.

        Of m length scales the k-th at (k + 1)/(m + 1) of the way; drawn from one to two spans.
        """
        self.lengthscales_taken += 1
        way, longest = self.lengthscales_taken / (self.lengthscales + 1), self.scales.span
        if self.draw is not None:
            way, longest = self.uniform(), 2.0 * longest
        return float(self.scales.spacing ** (1.0 - way) * longest**way)

    def frequency(self) -> float:
        """The frequency of the next strongest tone that no other term of the kernel describes.

        Drawn from the strongest by their power, that of tones that others describe counting less.
        In a product with a rotation it is from the frequency of that, by less than half a cycle per
        step of a regular x, whose tones are the same a cycle per step apart.
        """
        frequencies, shares = self.scales.tones
        described = self.described if self.origin is None else [*self.described, self.origin]
        is_free = np.all(
            np.abs(np.subtract.outer(frequencies, described)) > _OWN / self.scales.span, axis=1
        )
        if self.draw is None:
            free = [*(np.flatnonzero(is_free) if is_free.any() else range(len(frequencies)))]
            if set(free) <= self._taken:
                self._taken.clear()
            number = next(tone for tone in free if tone not in self._taken)
            self._taken.add(number)
            return self._from_origin(float(frequencies[number]))
        # Weak tones are drawn too: that of a short envelope is wide and low.
        weights = np.sqrt(np.where(is_free, shares, 0.05 * shares)) + 0.05
        number = int(np.searchsorted(np.cumsum(weights) / np.sum(weights), self.uniform()))
        number = min(number, len(frequencies) - 1)
        offset = (self.uniform() - 0.5) / self.scales.span
        return self._from_origin(float(frequencies[number] + offset))

    def _from_origin(self, frequency: float) -> float:
        if self.origin is None:
            return frequency
        distance = frequency - self.origin
        if self.scales.is_regular:
            distance -= round(distance * self.scales.spacing) / self.scales.spacing
        return distance

    def coefficient(self) -> complex:
        """The coefficient c of `u + c conj(u)`, u proper: its circularity is 2c/(1 + |c|²)."""
        if self.draw is not None:
            radius, angle = np.sqrt(self.uniform()), 2.0 * np.pi * self.uniform()
            return complex(0.95 * radius * np.exp(1j * angle))
        quotient = self.scales.circularity
        quotient *= min(1.0, 0.9 / max(abs(quotient), 1e-300))
        return complex(quotient / (1.0 + np.sqrt(1.0 - abs(quotient) ** 2)))
