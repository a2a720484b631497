"""The scales of data, from which hyperparameters that were left out start."""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from cgp.kernels.periodogram import Periodogram, deviations, peaks_over_dimensions
from cgp.training.parameters import Parameter

_TONES = 8  # peaks of a periodogram among which starts of a frequency are drawn
_MOST_DIMENSIONS = 3  # over which tones are looked for
_SAME_TONE = 1.5  # cycles over the span, within which a tone belongs to another term
_ROUNDING = 1e-13  # of z, below which deviations are rounding
_TOGETHER = 0.1  # of the pairs of an output with itself, for a moment of two outputs
_COMPLETE = 0.5  # of all places, at which no series has a gap
_LONGEST = 20_000  # points from which scales are taken: beyond it a stretch in the middle


class DataScales:
    """The scales of data `[N, D]` and `[B, N]`, each computed when it is first asked for.

    The constant and the line that slow terms of the kernel describe are subtracted from the series;
    `slow` has their mean squares. Of P outputs there are B/P series of each, `[B/P, P, N]` in one
    axis. `known_noise` is the mean of the known noise variances of the samples. Where x is one
    coordinate of scattered points, neighbours along it are far apart along the others:
    `least_distance` is what they are apart in the mean, in units of x.
    """

    def __init__(
        self,
        x: np.ndarray,
        z: np.ndarray,
        slow: Sequence[float] = (),
        outputs: int | None = None,
        known_noise: float = 0.0,
        least_distance: float = 0.0,
    ):
        self.slow, self.outputs = dict(enumerate(slow)), outputs or 1
        self.known_noise, self._least_distance = known_noise, least_distance
        measured = ~np.isnan(z).all(axis=0)
        self.x, self.z = x[measured], z[:, measured]

    @cached_property
    def total(self) -> float:
        """`E|z|²`, the mean square of all targets."""
        return _mean_square(self.z) or 1.0

    @cached_property
    def variance(self) -> float:
        """The mean square of the targets about the mean of each series; `E|z|²` if it is zero."""
        about = _mean_square(self.z - series_means(self.z)[:, None])
        return about if about > _ROUNDING**2 * self.total else self.total

    @cached_property
    def mean(self) -> complex:
        """The mean of all targets."""
        return complex(np.nanmean(self.z))

    @cached_property
    def span(self) -> float:
        """The range of x; its geometric mean over the dimensions in which x varies."""
        spans = np.ptp(self.x, axis=0)
        return float(np.exp(np.mean(np.log(spans[spans > 0])))) if np.any(spans > 0) else 1.0

    @cached_property
    def spacing(self) -> float:
        """The median step of x; over D dimensions, the span over the D-th root of N."""
        points, dimensions = self.x.shape
        if dimensions > 1:
            varying = max(int(np.sum(np.ptp(self.x, axis=0) > 0)), 1)
            return self.span / max(points ** (1.0 / varying), 1.0)
        steps = np.diff(np.unique(self.x))
        return float(np.median(steps)) if steps.size else self.span

    @property
    def distance(self) -> float:
        """The distance of neighbours: the spacing, or `least_distance` if that is larger."""
        return max(self.spacing, self._least_distance)

    @cached_property
    def spans(self) -> np.ndarray:
        """The range of each dimension of x, `[D]`; `span` where x does not vary."""
        spans = np.ptp(self.x, axis=0)
        return np.where(spans > 0, spans, self.span)

    @cached_property
    def spacings(self) -> np.ndarray:
        """The median step of each dimension of a grid, `[D]`; the mean step of points at random."""
        different = [np.unique(column) for column in self.x.T]
        if self.is_grid:
            steps = [np.median(np.diff(p)) if len(p) > 1 else 0.0 for p in different]
            return np.where(np.array(steps) > 0, steps, self.spans)
        varying = sum(len(places) > 1 for places in different)
        return self.spans / max(len(self.x) ** (1.0 / max(varying, 1)), 1.0)

    @cached_property
    def is_grid(self) -> bool:
        """Whether x has at least half of all combinations of its coordinates."""
        different = [len(np.unique(column)) for column in self.x.T]
        return bool(np.prod([float(count) for count in different]) <= 2.0 * len(self.x))

    @cached_property
    def is_regular(self) -> bool:
        """Whether x is one-dimensional, in whole steps of the spacing."""
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
    def _without_gaps(self) -> tuple[np.ndarray, np.ndarray]:
        """The places at which no series has a gap, and their targets.

        Where these are less than half of all places, all of them, with the mean of its series in
        each gap: a cell that is lost in each row of a grid would leave none.
        """
        missing = np.isnan(self.z)
        is_complete = ~missing.any(axis=0)
        if np.sum(is_complete) >= _COMPLETE * len(is_complete):
            return self.x[is_complete], self.z[:, is_complete]
        return self.x, np.where(missing, series_means(self.z)[:, None], self.z)

    @cached_property
    def _periodogram(self) -> tuple[Periodogram, float] | None:
        """The periodogram of a stretch of the series, and its unit of z; None without one."""
        x, z = self._without_gaps
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

    def share_around(self, frequency: float, width: float) -> float:
        """The share of the power within `width` of a frequency; 0 where x does not resolve it."""
        if self._periodogram is None or abs(frequency) * self.span < _SAME_TONE / width:
            return 0.0
        periodogram = self._periodogram[0]
        if abs(frequency) * (1.0 + width) > periodogram.grid[-1]:  # an alias is of either sign
            return 0.0
        inside = np.abs(periodogram.grid - frequency) < width * abs(frequency)
        powers = periodogram.powers
        return float(np.sum(powers[inside]) / np.sum(powers))

    @cached_property
    def tones_over_dimensions(self) -> tuple[np.ndarray, np.ndarray]:
        """Frequencies `[K, D]` of the strongest tones over all dimensions, and their shares."""
        x, z = self._without_gaps
        z, unit = deviations(z) if z.size else (z, 0.0)
        dimensions = self.x.shape[1]
        if not unit > 0 or dimensions > _MOST_DIMENSIONS:
            return np.zeros((1, dimensions)), np.ones(1)
        highest = np.array([_highest(column) for column in x.T])
        return peaks_over_dimensions(x, z, highest, self.spans, _TONES // 2)

    @cached_property
    def noise(self) -> float:
        """The variance of white noise: the floor of the periodogram, 1e-6 to 0.3 of `variance`."""
        if self._periodogram is None:
            return 0.01 * self.variance
        periodogram, unit = self._periodogram
        lowest, highest = 1e-6 * self.variance, 0.3 * self.variance
        return float(np.clip(unit**2 * periodogram.floor(), lowest, highest))

    def along(self, axis: int) -> "DataScales":
        """The scales over one coordinate of x; of a grid those of its rows, as series.

        The other coordinates of scattered points vary as well, and blur what is along the axis.
        """
        if self.x.shape[1] <= axis:
            return self  # the kernel raises when it is evaluated
        slow = [self.slow[degree] for degree in sorted(self.slow)]
        if not self.is_grid:
            x, arguments = self.x[:, axis : axis + 1], (slow, self.outputs, self.known_noise)
            return DataScales(x, self.z, *arguments, least_distance=float(self.spacings[axis]))
        places, place = np.unique(self.x[:, axis], return_inverse=True)
        others, row = np.unique(np.delete(self.x, axis, axis=1), axis=0, return_inverse=True)
        shape = (*self._by_output.shape[:2], len(others), len(places))
        rows, cells = np.full(shape, np.nan, complex), np.stack([np.ravel(row), np.ravel(place)])
        series, output, sample = np.nonzero(~np.isnan(self._by_output))  # replicates may be missing
        rows[series, output, *cells[:, sample]] = self._by_output[series, output, sample]
        z = np.moveaxis(rows, 1, 2).reshape(-1, len(places))
        return DataScales(places[:, None], z, slow, self.outputs, self.known_noise)

    # --- outputs ---------------------------------------------------------------------------------

    @cached_property
    def _by_output(self) -> np.ndarray:
        """The targets of P outputs, `[B/P, P, N]`."""
        return self.z.reshape(-1, self.outputs, self.z.shape[-1])

    def of_outputs(self, numbers: Sequence[int]) -> "DataScales":
        """The scales of some outputs alone, as series of one signal."""
        if self.outputs == 1:
            return self
        z = self._by_output[:, list(numbers)].reshape(-1, self.z.shape[-1])
        return DataScales(self.x, z, [self.slow[degree] for degree in sorted(self.slow)])

    @cached_property
    def output_sizes(self) -> np.ndarray:
        """The root mean square of each output about its mean, `[P]`; 1 where it is zero."""
        about = self._by_output - series_means(self._by_output)[..., None]
        sizes = np.sqrt([_mean_square(about[:, p]) for p in range(self.outputs)])
        return np.where(sizes > 0.0, sizes, 1.0)

    def mixing(self, first: int, rank: int, reference: int) -> np.ndarray:
        """Gains `[P, R]` of sources: eigenvectors of the correlation of outputs, from `first` on.

        Outputs may have different units.

        They are lower trapezoidal in the order of outputs that begins with the reference, whose
        first gain is 1, with a positive diagonal.
        """
        sizes = self.output_sizes
        z = self._by_output - series_means(self._by_output)[..., None]
        z = z / sizes[:, None]
        present = ~np.isnan(z)
        pairs = np.einsum("bpn,bqn->pq", present.astype(float), present.astype(float))
        if np.min(pairs) < _TOGETHER * np.max(pairs):
            z = self._filled(z)
            pairs = np.full(pairs.shape, float(len(z) * z.shape[-1]))
        z = np.nan_to_num(z)
        moments = np.einsum("bpn,bqn->pq", z, z.conj()) / np.maximum(pairs, 1.0)
        powers, vectors = np.linalg.eigh(moments)  # the largest last
        first = first if first + rank <= len(powers) else 0
        columns = np.arange(len(powers))[::-1][first : first + rank]
        lengths = np.sqrt(np.maximum(powers[columns], 1e-6 * powers[-1]))
        order = [reference, *(p for p in range(len(powers)) if p != reference)]
        # A = L Qᴴ, by the QR decomposition of Aᴴ.
        gains = np.linalg.qr((vectors[:, columns] * lengths)[order].conj().T)[1].conj().T
        diagonal = np.diag(gains)
        gains = gains * np.exp(-1j * np.angle(diagonal))
        # A reference that hardly receives a source would leave the other gains without bound.
        least = max(0.05 * float(np.max(np.abs(gains))), 1e-300)
        np.fill_diagonal(gains, np.maximum(np.abs(diagonal), least))
        below = np.tril(np.ones(gains.shape, bool), -1)
        gains[below & (gains == 0)] = 0.1 * least  # where the gradient by a gain is zero too
        mixing = np.empty_like(gains)
        mixing[order] = gains / gains[0, 0]
        return mixing * (sizes / sizes[reference])[:, None]

    def _filled(self, z: np.ndarray) -> np.ndarray:
        """Series `[..., N]`, interpolated between samples where x is a line; else as they are.

        Outputs that are seldom observed together then tell how they go together.
        """
        if self.x.shape[1] != 1:
            return z
        x, filled = self.x[:, 0], z.reshape(-1, z.shape[-1]).copy()
        order = np.argsort(x, kind="stable")
        for series in filled:
            known = order[~np.isnan(series[order])]
            if known.size:
                series[:] = np.interp(x, x[known], series[known], complex(np.nan), complex(np.nan))
        return filled.reshape(z.shape)

    def source(self, mixing: np.ndarray) -> "DataScales":
        """The scales of the first source, by least squares from outputs that receive it so.

        Sources have one kernel, so that one of them is enough.
        """
        sizes = self.output_sizes[:, None]
        gains, z = mixing[:, 0][:, None] / sizes, self._by_output / sizes
        present = ~np.isnan(z)
        received = np.sum(np.nan_to_num(z) * gains.conj(), axis=1)
        size = np.sum(present * np.abs(gains) ** 2, axis=1)
        z = np.where(size > 0.0, received / np.where(size > 0.0, size, 1.0), np.nan)
        return DataScales(self.x, z, [self.slow[degree] for degree in sorted(self.slow)])


def _highest(places: np.ndarray) -> float:
    """The highest frequency without an alias; infinite for places at random, which have none.

    Samples may be few of a lattice, as pilots are.
    """
    different = np.unique(places)
    if len(different) < 2:
        return 0.0
    steps = np.diff(different)
    multiples = steps / steps.min()
    if np.all(np.abs(multiples - np.round(multiples)) < 1e-3):
        return float(0.5 / steps.min())
    recur = len(different) <= 0.5 * len(places)
    return float(0.5 / np.median(steps)) if recur else np.inf


def series_means(values: np.ndarray) -> np.ndarray:
    """The mean of each series `[B, N]`, NaN where missing, `[B]`; 0 where all are missing."""
    counts = np.sum(~np.isnan(values), axis=-1)
    return np.nansum(values, axis=-1) / np.maximum(counts, 1)


def _mean_square(z: np.ndarray) -> float:
    """`E|z|²` of values, NaN where missing, without overflow or underflow."""
    size = np.nanmax(np.abs(z), initial=0.0)
    return float(size**2 * np.nanmean(np.abs(z / size) ** 2)) if size > 0 else 0.0


class StartRules:
    """The rules by which hyperparameters start, one for each kind.

    Without `draw`, numbers between 0 and 1, a rule gives one value, the start of a fit. With it a
    rule gives a value drawn around the same scales, the start of one of several fits. Length
    scales along an axis (None for all axes together), `lengthscales` in number, take different
    places between the distance of neighbours and the span; tones of `described` frequencies belong
    to other terms of the kernel.
    """

    def __init__(
        self,
        scales: DataScales,
        lengthscales: Mapping[int | None, int] | None = None,
        draw: Iterator[float] | None = None,
        described: Sequence[np.ndarray] = (),
    ):
        self.scales, self.lengthscales, self.draw = scales, lengthscales or {}, draw
        self.described = described
        self.lengthscales_taken: Counter[int | None] = Counter()
        self._axis: int | None = None  # of the kernel whose turn it is
        self.sources_taken = 0  # of outputs, by the kernels so far
        self.power = scales.total  # the share of E|z|² that belongs to the kernel whose turn it is
        # Whether its hyperparameter has a value for each dimension of x, as its start has then.
        self.is_of_each = False
        # The frequency of rotations that multiply it, from which its own frequencies count.
        self.origin: float | None = None
        self._started_tones: set[int] = set()  # tones at which frequencies have started
        self._tones_along: dict[int, set[int]] = {}  # the same of kernels along an axis

    @property
    def span(self) -> Any:
        """The span of x, or the span of each dimension."""
        return self.scales.spans if self.is_of_each else self.scales.span

    def uniform(self) -> float:
        """The next random number between 0 and 1; 0.5 without a draw."""
        return 0.5 if self.draw is None else float(next(self.draw))

    def scattered(self, value: float, decades: float) -> float:
        """A positive number, or one drawn within so many decades around it."""
        return float(value * 10.0 ** (decades * (self.uniform() - 0.5)))

    def drawn_from_prior(self, parameter: Parameter) -> np.ndarray | None:
        """A value of a real hyperparameter drawn from its prior; None where a rule has to draw it.

        A start where the prior excludes the optimum would be lost.
        """
        prior, present = parameter.prior, parameter.numpy()
        if self.draw is None or prior is None or parameter.constraint.is_complex:
            return None
        numbers = np.array([self.uniform() for _ in range(present.size)], present.dtype)
        try:
            quantiles = np.asarray(prior.quantile(numbers.reshape(present.shape)), present.dtype)
        except NotImplementedError:  # of few distributions
            return present
        return quantiles if parameter.constraint.contains(quantiles) else present

    def variance(self) -> float:
        """A variance: the share of the kernel; drawn within a factor of ten."""
        return self.scattered(self.power, 2.0)

    def trend_variance(self, degree: int) -> float:
        """A variance: the mean square of the trend in the data, or the kernel's share if larger."""
        return self.scattered(max(self.power, self.scales.slow.get(degree, 0.0)), 2.0)

    @contextlib.contextmanager
    def on(self, scales: DataScales) -> Iterator[None]:
        """A context in which the rules are of other scales, and count what is taken as before."""
        before, self.scales = self.scales, scales
        try:
            yield
        finally:
            self.scales = before

    @contextlib.contextmanager
    def along(self, axis: int) -> Iterator[None]:
        """A context in which the rules are of the data along one axis, with tones of its own."""
        outer = self._axis, self._started_tones
        self._axis, self._started_tones = axis, self._tones_along.setdefault(axis, set())
        try:
            with self.on(self.scales.along(axis)):
                yield
        finally:
            self._axis, self._started_tones = outer

    def noise_variance(self, output: int | None = None) -> float:
        """A noise variance: the floor of the periodogram; drawn, 1e-6 to 1 of the variance of z.

        Of several outputs it is that of the one of this number, or the mean over all.
        """
        if self.draw is None:
            outputs = range(self.scales.outputs) if output is None else [output]
            return float(np.mean([self.scales.of_outputs([p]).noise for p in outputs]))
        scales = self.scales if output is None else self.scales.of_outputs([output])
        return float(scales.variance * 10.0 ** (-6.0 * self.uniform()))

    def mixing(self, rank: int, reference: int) -> np.ndarray:
        """Gains of the next sources, `[P, R]`; drawn, within half a decade and a quarter turn."""
        mixing = self.scales.mixing(self.sources_taken, rank, reference)
        self.sources_taken += rank
        if self.draw is None:
            return mixing
        for element in np.argwhere(mixing != 0):
            scale, turn = self.scattered(1.0, 1.0), np.exp(1j * np.pi * (self.uniform() - 0.5))
            is_fixed = tuple(element) == (reference, 0)
            is_positive = mixing[*element].imag == 0 and element[1] > 0
            mixing[*element] *= 1.0 if is_fixed else scale * (1.0 if is_positive else turn)
        return mixing

    def lengthscale(self) -> Any:
        """A length scale between the distance of neighbours and the span, on the log scale.

        The k-th of m along an axis is at k/(m + 1) of the way; drawn ones lie between one distance
        and two spans.
        """
        axis = 0 if self._axis is None and self.scales.x.shape[1] == 1 else self._axis
        self.lengthscales_taken[axis] += 1
        way: Any = self.lengthscales_taken[axis] / (self.lengthscales.get(axis, 1) + 1)
        longest = self.span
        spacing = self.scales.spacings if self.is_of_each else self.scales.distance
        if self.draw is not None:
            way, longest = self._uniforms(), 2.0 * longest
        return spacing ** (1.0 - way) * longest**way

    def _uniforms(self) -> Any:
        """The next random number, or one for each dimension."""
        if not self.is_of_each:
            return self.uniform()
        return np.array([self.uniform() for _ in self.scales.spans])

    def frequency(self) -> Any:
        """The frequency of the next strongest tone that no other term of the kernel describes.

        Drawn from the strongest by power, where tones that other terms describe count less. In a
        product with a rotation it counts from the frequency of the rotation, at most half a cycle
        per step of a regular x, on which tones a cycle per step apart are the same.
        """
        frequencies, shares = (
            self.scales.tones_over_dimensions if self.is_of_each else self.scales.tones
        )
        is_free = self._is_free(frequencies)
        if self.draw is None:
            free = [*(np.flatnonzero(is_free) if is_free.any() else range(len(frequencies)))]
            if set(free) <= self._started_tones:
                self._started_tones.clear()
            number = next(tone for tone in free if tone not in self._started_tones)
            self._started_tones.add(number)
            return self._from_origin(frequencies[number])
        # Weak tones are drawn too: the peak of a short envelope is wide and low.
        weights = np.sqrt(np.where(is_free, shares, 0.05 * shares)) + 0.05
        number = int(np.searchsorted(np.cumsum(weights) / np.sum(weights), self.uniform()))
        number = min(number, len(frequencies) - 1)
        return self._from_origin(frequencies[number] + (self._uniforms() - 0.5) / self.span)

    def _is_free(self, frequencies: np.ndarray) -> np.ndarray:
        """Whether each tone is described by no other term of the kernel, bool `[K]`."""
        described = [*self.described, *([] if self.origin is None else [np.asarray(self.origin)])]
        if not self.is_of_each:  # vectors cannot be compared with a number
            described = [tone for tone in described if not tone.ndim]
        free = np.ones(len(frequencies), bool)
        for tone in described:
            far = np.abs(frequencies - tone) > _SAME_TONE / self.span
            free &= far.any(axis=-1) if self.is_of_each else far
        return free

    def _from_origin(self, frequency: Any) -> Any:
        """A frequency less the frequency of the rotations around it."""
        if self.origin is None or self.is_of_each:
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
