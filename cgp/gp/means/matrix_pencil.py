"""Damped complex exponentials, located by a matrix pencil and nonlinear least squares.

The model of samples at times t, which here run over one unit (see `Exponentials`), is

    z(t) = Σ_k c_k exp(pole_k t),    pole_k = −decay + i2π frequency,    decay ≥ 0,

with poles that all series have in common. On a regular grid, windows of the samples between gaps
span the space of the exponentials, which is invariant under a shift by a step: the poles are the
eigenvalues of the shift (Hua & Sarkar, IEEE Trans. ASSP 38, 1990). On any times, exponentials
follow one after another from the highest peak of what is not yet explained. Both start a
Levenberg-Marquardt minimisation over the poles of the error that remains when the amplitudes are
fitted to them (variable projection: Golub & Pereyra, SIAM J. Numer. Anal. 10, 1973; with the
derivative of Kaufman, BIT 15, 1975). Decay rates are held by their bounds as they reach them, which
undamped lines in noise do half of the time.

A polynomial trend is projected out of series and exponentials alike.
"""

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np

_JITTER = 0.1  # steps between a time and the regular grid, for a start by the matrix pencil
_COINCIDENT = 1e-9  # spans: times that differ by rounding have no step between them
_REGULAR = 1e-6  # of a step, for frequencies that are only determined modulo 1/step
_LONGEST_WINDOW = 300  # samples
_MOST_WINDOWS = 2_000
_MOST_STEPS = 1_000_000  # of a periodogram, from the first time to the last
_FINER = 4  # times finer a grid, over which samples are spread for a transform
_DECAYS = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0)  # of starts at a peak, per span
_FASTEST = 3.0  # decay in a median step: to a twentieth
_MORE = 4  # exponentials of which the least needed are taken out, where most are in no long run
_FINISHED = 3  # the best starts, for the minimisation to the end
_PASSES = 5  # with the prior for the residuals of the pass before
_HELD = 0.3  # of the decay rate, or of 1/span: the longest step of a linear model that is used
_SLOW, _SLOW_DEVIATION = 1.0, 0.5  # the prior of decay rates below _SLOW, per span


class Modes(NamedTuple):
    """The poles of exponentials, per unit of t, in the order of their frequencies."""

    poles: np.ndarray  # complex, [order]; the real parts are minus the decay rates
    power: float  # the mean square of the residual, the share of the prior included


def locate(t: np.ndarray, z: np.ndarray, order: int, trend: int | None = None) -> Modes:
    """The poles that all series have in common, the best of several starts.

    Decay rates have a prior (see `Exponentials`), for noise of the residual power.

    Args:
        t: Times, `[N]`, ascending from 0 to 1.
        z: Series, complex `[B, N]`, NaN where missing, of a size whose squares neither overflow nor
            underflow.
        order: The number of exponentials.
        trend: The degree of a polynomial trend of each series beside them, or None for none.

    Raises:
        ValueError: Times so uneven that neither a grid nor a periodogram has them.
    """
    search = Search(t, z, trend)
    starts = search.starts(order)
    optima = sorted((search.refined(s, 30, 1e-6) for s in starts), key=lambda modes: modes.power)
    finished: list[Modes] = []
    for modes in optima[:_FINISHED]:
        # An optimum of the same power is the same, or as good.
        if all(abs(modes.power / other.power - 1.0) > 1e-3 for other in finished if other.power):
            finished.append(search.settled(modes.poles))
    poles, power = min(finished, key=lambda modes: modes.power)
    if search.common_step is not None:
        turns = poles.imag * search.common_step / (2.0 * np.pi)
        poles = poles - 2j * np.pi * np.round(turns) / search.common_step
    return Modes(poles[np.argsort(poles.imag)], power)


class Grid(NamedTuple):
    """The regular grid of times, some of which may be absent."""

    step: float
    places: np.ndarray | None  # of the times, whole numbers, or None where they are irregular
    is_exact: bool


def grid_of(t: np.ndarray) -> Grid:
    """The regular grid that ascending times are on, if any."""
    steps = np.diff(t)
    steps = steps[steps > _COINCIDENT]
    median = float(np.median(steps))
    if 1.0 / median < _MOST_STEPS:
        for step in dict.fromkeys([median, float(steps.min())]):
            # Over many steps the step itself has to be precise.
            step = 1.0 / max(round(1.0 / step), 1)
            places = np.round(t / step)
            distance = np.abs(t / step - places).max()
            if distance < _JITTER:
                return Grid(step, places.astype(int), bool(distance < _REGULAR))
    return Grid(median, None, False)


class Linear(NamedTuple):
    """The least-squares amplitudes of given poles, and what depends on them."""

    amplitudes: list[np.ndarray]  # of each group, at t = 0, [order, B]
    residual: np.ndarray  # real rows
    slopes: np.ndarray  # of the residual by decay rates and then by 2π frequencies, real rows

    @property
    def cost(self) -> float:
        """The sum of the squared residuals."""
        return float(self.residual @ self.residual)


class Search:
    """The minimisation over poles. Arguments as for `locate`.

    The series of the attribute `z` are without their trends.
    """

    def __init__(self, t: np.ndarray, z: np.ndarray, trend: int | None = None):
        self.t, self.z = t, z.copy()
        patterns, pattern_numbers = np.unique(~np.isnan(z), axis=0, return_inverse=True)
        pattern_numbers = np.ravel(pattern_numbers)
        # Series with targets at the same times share a basis.
        self.groups = [
            (np.flatnonzero(pattern_numbers == k), present)
            for k, present in enumerate(patterns)
            if present.any()
        ]
        polynomials = trend_columns(t, trend)
        self._trends = [np.linalg.qr(polynomials[present])[0] for _, present in self.groups]
        for (series, present), q in zip(self.groups, self._trends, strict=True):
            at = np.ix_(series, present)
            self.z[at] = _without(q, z[at].T).T
        self.count, self.trend_size = int(np.sum(~np.isnan(z))), polynomials.shape[1]
        self.grid = grid_of(t)
        self.fastest = _FASTEST / self.grid.step
        self._row_spaces: dict[int, np.ndarray] = {}

    @cached_property
    def common_step(self) -> float | None:
        """The step of which all times of a series are multiples apart, or None without a grid.

        Frequencies are only determined modulo 1/step.
        """
        if not self.grid.is_exact or self.grid.places is None:
            return None
        steps = [np.gcd.reduce(np.diff(self.grid.places[present])) for _, present in self.groups]
        return self.grid.step * max(int(np.gcd.reduce(steps)), 1)

    def starts(self, order: int) -> list[np.ndarray]:
        """Poles to start from, `[order]` each."""
        starts = []
        for count in (order, 2 * order + 2, 4 * order + 4):
            poles = self.by_pencil(count)
            if poles is not None:
                starts.append(poles if count == order else self._selected(poles, order))
        if 1.0 / self.grid.step < _MOST_STEPS:
            if 2 * max(map(len, self._runs), default=0) < len(self.t):
                starts.append(self.by_more_peaks(order))
            starts.append(self.by_peaks(order))
        if not starts:
            raise ValueError(
                f"the median step of t is so short beside its span, by {1.0 / self.grid.step:.3g}, "
                "that its periodogram would need too many frequencies, and t is on no regular "
                "grid: fit one burst of the data, or average over each"
            )
        return starts

    def by_pencil(self, order: int) -> np.ndarray | None:
        """Poles by the matrix pencil, or None where runs without gaps are too short or absent."""
        runs = self._runs
        lengths = np.array([len(run) for run in runs])
        if not len(lengths) or lengths.max() < 2:
            return None
        # The most even split of samples into windows and samples of each.
        widths = np.arange(1, min(lengths.max(), _LONGEST_WINDOW + 1))
        counts = np.array([np.maximum(lengths - width, 0).sum() for width in widths])
        enough = (widths >= order) & (counts >= order)
        if not enough.any():
            return None
        rows = self._row_space(int(widths[np.argmax(np.where(enough, counts * widths, 0))]))[:order]
        shift = np.linalg.lstsq(rows[:, :-1].T, rows[:, 1:].T, rcond=None)[0]
        factors = np.linalg.eigvals(shift)
        factors = np.where(np.abs(factors) > 1e-12, factors, 1e-12)
        poles = np.log(factors) / self.grid.step
        return -np.clip(-poles.real, 0.0, self.fastest) + 1j * poles.imag

    def _row_space(self, width: int) -> np.ndarray:
        """Orthonormal rows of windows of `width + 1` samples, those of most power first."""
        if width not in self._row_spaces:
            view = np.lib.stride_tricks.sliding_window_view
            windows = [view(run, width + 1) for run in self._runs if len(run) > width]
            rows = np.concatenate(windows)
            rows = rows[:: 1 + (len(rows) - 1) // _MOST_WINDOWS]
            self._row_spaces[width] = np.linalg.svd(rows, full_matrices=False)[2]
        return self._row_spaces[width]

    @cached_property
    def _runs(self) -> list[np.ndarray]:
        """The longest stretches of series on the grid without gaps."""
        if self.grid.places is None:
            return []
        starts = np.flatnonzero(np.diff(self.grid.places, prepend=-1))  # replicates share a place
        runs = []
        for series in self.z:
            present = ~np.isnan(series)
            counts = np.add.reduceat(present.astype(int), starts)
            sums = np.add.reduceat(np.where(present, series, 0.0), starts)
            kept = counts > 0
            places, values = self.grid.places[starts][kept], sums[kept] / counts[kept]
            runs += np.split(values, np.flatnonzero(np.diff(places) > 1) + 1)
        longest = max((len(run) for run in runs), default=0)
        return [run for run in runs if 4 * len(run) >= longest]

    def _selected(self, poles: np.ndarray, order: int) -> np.ndarray:
        """The poles that explain most, chosen one after another."""
        bases = self.bases(poles)
        residuals = self._targets()
        lengths = [np.linalg.norm(basis, axis=0) for basis in bases]
        chosen: list[int] = []
        for _ in range(order):
            gains = np.zeros(len(poles))
            for basis, residual, length in zip(bases, residuals, lengths, strict=True):
                new = np.linalg.norm(basis, axis=0)
                gains += np.where(
                    new > 1e-8 * length,
                    np.sum(np.abs(residual.conj().T @ basis) ** 2, axis=0)
                    / np.maximum(new, 1e-150) ** 2,
                    0.0,
                )
            gains[chosen] = -1.0
            chosen.append(int(np.argmax(gains)))
            for basis, residual in zip(bases, residuals, strict=True):
                q = basis[:, chosen[-1:]] / max(np.linalg.norm(basis[:, chosen[-1]]), 1e-300)
                residual -= q @ (q.conj().T @ residual)
                basis -= q @ (q.conj().T @ basis)
        return poles[chosen]

    def by_peaks(self, order: int) -> np.ndarray:
        """Poles one after another, each from the highest peak of what is not yet explained."""
        poles = np.zeros(0, complex)
        for _ in range(order):
            poles = np.append(poles, self._peak(self._unexplained(poles)))
            poles = self.refined(poles, 10, 1e-3).poles
        return poles

    def by_more_peaks(self, order: int) -> np.ndarray:
        """Poles as `by_peaks`, of more than are wanted, from which the least needed are taken."""
        more = min(_MORE, max(len(self.t) // 2 - order, 0))
        poles = self.by_peaks(order + more)
        for _ in range(more):
            fewer = [np.delete(poles, k) for k in range(len(poles))]
            costs = [np.sum(np.abs(self._unexplained(others)) ** 2) for others in fewer]
            poles = self.refined(fewer[int(np.argmin(costs))], 10, 1e-3).poles
        return poles

    def _peak(self, z: np.ndarray) -> complex:
        """The single pole, on a grid of frequencies and of decay rates, that explains most."""
        present, best = ~np.isnan(self.z), (-1.0, 0j)
        for decay in _DECAYS:
            if decay > self.fastest:
                break
            window = np.exp(-decay * self.t)
            lengths = np.sqrt(np.sum((window * present) ** 2, axis=-1, keepdims=True))
            powers = self._powers(window * z / np.maximum(lengths, 1e-300))
            highest = int(np.argmax(powers))
            pole = -decay + 2j * np.pi * self._frequencies[highest]
            best = max(best, (float(powers[highest]), pole), key=lambda peak: peak[0])
        return best[1]

    @cached_property
    def _frequencies(self) -> np.ndarray:
        """Frequencies a quarter of a cycle per span apart, up to half of a cycle per step."""
        half = round(2.0 / self.grid.step)
        return 0.25 * np.arange(-half, half + 1)

    def _powers(self, z: np.ndarray) -> np.ndarray:
        """The periodogram of series `[B, N]`, by a transform of samples spread over a fine grid."""
        size = 2 ** math.ceil(math.log2(4.0 * _FINER / self.grid.step))
        pitch = 4.0 / size
        lower = np.floor(self.t / pitch).astype(int)
        share = self.t / pitch - lower
        places = np.concatenate([lower, lower + 1])
        powers = np.zeros(len(self._frequencies))
        for series in z:
            parts = np.concatenate([(1.0 - share) * series, share * series])
            spread = np.bincount(places, parts.real, size) + 1j * np.bincount(
                places, parts.imag, size
            )
            half = len(powers) // 2
            spectrum = np.fft.fft(spread)
            powers += np.abs(np.concatenate([spectrum[-half:], spectrum[: half + 1]])) ** 2
        return powers / np.sinc(self._frequencies * pitch) ** 4  # spreading attenuates

    def bases(self, poles: np.ndarray) -> list[np.ndarray]:
        """The exponentials at the times of each group, `[N, order]`, without their trends."""
        return self._of_groups(np.exp(self.t[:, None] * poles))

    def bases_and_slopes(self, poles: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The bases, and the derivatives of the exponentials by their poles likewise."""
        exponentials = np.exp(self.t[:, None] * poles)
        return self._of_groups(exponentials), self._of_groups(self.t[:, None] * exponentials)

    def _of_groups(self, columns: np.ndarray) -> list[np.ndarray]:
        groups = zip(self.groups, self._trends, strict=True)
        return [_without(q, columns[present]) for (_, present), q in groups]

    def _targets(self) -> list[np.ndarray]:
        """The targets of each group, `[N, B]`."""
        return [self.z[np.ix_(series, present)].T for series, present in self.groups]

    def _unexplained(self, poles: np.ndarray) -> np.ndarray:
        """The residuals of series, `[B, N]`, zero where missing."""
        unexplained = np.zeros(self.z.shape, complex)
        groups = zip(self.groups, self.bases(poles), self._targets(), strict=True)
        for (series, present), basis, z in groups:
            q, _ = least_squares(basis, z)
            unexplained[np.ix_(series, present)] = _without(q, z).T
        return unexplained

    def linear(self, poles: np.ndarray) -> Linear:
        """The least-squares amplitudes of poles, residuals, and slopes modulo the exponentials."""
        amplitudes, residuals, slopes = [], [], []
        groups = zip(*self.bases_and_slopes(poles), self._targets(), strict=True)
        for basis, slopes_of_basis, z in groups:
            q, c = least_squares(basis, z)
            residuals.append(_without(q, z).T.reshape(-1))
            by_pole = _without(q, slopes_of_basis)
            by_pole = (c.T[:, None, :] * by_pole).reshape(-1, len(poles))
            slopes.append(np.concatenate([by_pole, -1j * by_pole], axis=-1))
            amplitudes.append(c)
        return Linear(amplitudes, *(real_rows(np.concatenate(a)) for a in (residuals, slopes)))

    def settled(self, poles: np.ndarray) -> Modes:
        """The least-squares poles to which a start leads, with the prior for their residuals."""
        modes = self.refined(poles, 100, 1e-15)
        for _ in range(_PASSES):
            before, modes = modes, self.refined(modes.poles, 100, 1e-15)
            if modes.power > 0.999 * before.power:
                break
        return modes

    def refined(self, poles: np.ndarray, evaluations: int, tolerance: float) -> Modes:
        """The least-squares poles to which a start leads, with decay rates within their bounds.

        Their prior is for noise of the power that the start leaves. It ends after so many
        evaluations, or at a relative decrease below `tolerance` in a step.
        """
        order = len(poles)
        low = np.repeat([0.0, -np.inf], order)
        high = np.repeat([self.fastest, np.inf], order)
        point = np.clip(np.concatenate([-poles.real, poles.imag]), low, high)
        at, damping = self.linear(_poles(point)), 1e-3
        deviation = math.sqrt(0.5 * self.noise_variance(at, order))  # of each part of the noise
        at = _with_prior(at, point, deviation)
        for _ in range(evaluations):
            uphill = at.slopes.T @ at.residual
            free = ~(((point <= low) & (uphill > 0.0)) | ((point >= high) & (uphill < 0.0)))
            lengths = np.linalg.norm(at.slopes, axis=0)
            free &= lengths > 1e-100  # an amplitude of zero has no slope
            if not free.any():
                break
            q, r = np.linalg.qr(at.slopes[:, free] / lengths[free])
            right = np.concatenate([-q.T @ at.residual, np.zeros(len(r))])
            rows = np.concatenate([r, np.sqrt(damping) * np.eye(len(r))])
            step = np.zeros_like(point)
            step[free] = np.linalg.lstsq(rows, right, rcond=1e-15)[0] / lengths[free]
            moved = np.clip(point + step, low, high)
            after = _with_prior(self.linear(_poles(moved)), moved, deviation)
            decrease = at.cost - after.cost
            if decrease > 0.0:
                is_last = decrease < tolerance * at.cost and damping < 0.1
                point, at, damping = moved, after, max(0.1 * damping, 1e-14)
                if is_last:
                    break
            else:
                damping *= 10.0
                if damping > 1e6:
                    break
        return Modes(_poles(point), at.cost / self.count)

    def noise_variance(self, at: Linear, order: int) -> float:
        """The sum of squared residuals over their degrees of freedom, complex numbers.

        Each series has its amplitudes and its trend, and all of them the poles.
        """
        series_count = sum(len(series) for series, _ in self.groups)
        of_series = order + self.trend_size
        return at.cost / max(self.count - of_series * series_count - order, 1)


def _with_prior(at: Linear, point: np.ndarray, deviation: float) -> Linear:
    """The least squares with a row of each decay rate, which has a normal prior below a value."""
    order = len(point) // 2
    short = np.maximum(_SLOW - point[:order], 0.0)
    slopes = np.concatenate([np.diag(-1.0 * (short > 0.0)), np.zeros((order, order))], axis=-1)
    scale = deviation / _SLOW_DEVIATION
    return at._replace(
        residual=np.concatenate([at.residual, scale * short]),
        slopes=np.concatenate([at.slopes, scale * slopes]),
    )


class Estimates(NamedTuple):
    """What the linear model about least-squares poles says of them and of their amplitudes."""

    errors: np.ndarray  # of decay rates and of 2π frequencies, [2, order]
    amplitudes: np.ndarray  # complex, [B, order], NaN for a series without targets
    amplitude_errors: np.ndarray  # of real and imaginary parts, complex [B, order]
    at_optimum: np.ndarray  # bool, [order]
    growing: np.ndarray  # bool, [order]
    too_fast: np.ndarray  # bool, [order]


def estimates(
    t: np.ndarray, z: np.ndarray, poles: np.ndarray, time: float, trend: int | None = None
) -> Estimates:
    """Standard errors under white noise, amplitudes at a time, and which poles can be trusted.

    The errors are from the Gauss-Newton information, with the variance of the residuals over their
    degrees of freedom. A pole is at its optimum unless the linear model would move it by more than
    three tenths of its decay rate, or of 1/span; it grows where that model would have a decay rate
    of three standard errors below zero. Other arguments as for `locate`.
    """
    search, order = Search(t, z, trend), len(poles)
    at = search.linear(poles)
    variance = search.noise_variance(at, order)
    lengths = np.linalg.norm(at.slopes, axis=0)
    is_determined = lengths > 1e-100
    lengths = np.where(is_determined, lengths, 1.0)
    q, r = np.linalg.qr(at.slopes / lengths)
    inverse = np.linalg.pinv(r, rcond=1e-14) / lengths[:, None]
    # Real and imaginary parts have half of the noise each; root rootᵀ is the covariance.
    root = math.sqrt(0.5 * variance) * inverse
    errors = np.linalg.norm(root, axis=1)
    errors = np.where(is_determined, errors, np.nan).reshape(2, order)
    steps = (-inverse @ (q.T @ at.residual)).reshape(2, order)
    is_small = np.hypot(*steps) < _HELD * np.maximum(-poles.real, 1.0)
    return Estimates(
        errors,
        *_amplitudes(search, poles, at.amplitudes, time, variance, root),
        at_optimum=is_small & is_determined.reshape(2, order).all(axis=0),
        growing=steps[0] - poles.real < -3.0 * errors[0],
        too_fast=-poles.real >= search.fastest,
    )


def _amplitudes(
    search: Search,
    poles: np.ndarray,
    coefficients: list[np.ndarray],
    time: float,
    variance: float,
    root: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The amplitudes at a time and their errors, `[B, order]`, from coefficients at t = 0."""
    amplitudes = np.full((len(search.z), len(poles)), np.nan, complex)
    errors = amplitudes.copy()
    grown = poles * time
    turn = np.exp(np.minimum(grown.real, 300.0) + 1j * grown.imag)  # the square is finite
    for (series, _), basis, slopes_of_basis, of_group in zip(
        search.groups, *search.bases_and_slopes(poles), coefficients, strict=True
    ):
        inverse = np.linalg.pinv(basis, rcond=1e-14)
        of_known_poles = 0.5 * variance * np.sum(np.abs(turn[:, None] * inverse) ** 2, axis=1)
        by_pole = turn[:, None] * (inverse @ slopes_of_basis)
        by_pole -= time * np.diag(turn)
        for number, c in zip(series, of_group.T, strict=True):
            slopes = np.concatenate([by_pole * c, -1j * by_pole * c], axis=-1)
            variances = [
                of_known_poles + np.sum((part @ root) ** 2, axis=1)
                for part in (slopes.real, slopes.imag)
            ]
            amplitudes[number] = turn * c
            errors[number] = np.sqrt(variances[0]) + 1j * np.sqrt(variances[1])
    return amplitudes, errors


def trend_columns(t: np.ndarray, degree: int | None) -> np.ndarray:
    """Legendre polynomials up to a degree over times from 0 to 1, `[N, degree + 1]`, or none."""
    polynomials = np.polynomial.legendre.legvander(2.0 * t - 1.0, degree or 0)
    return polynomials[:, : 0 if degree is None else degree + 1]


def _without(q: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Columns less their projections on orthonormal columns."""
    return a - q @ (q.conj().T @ a)


def least_squares(basis: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal columns with the span of a basis, and the coefficients of z in the basis."""
    lengths = np.linalg.norm(basis, axis=0)
    q, r = np.linalg.qr(basis / lengths)
    c = np.linalg.lstsq(r, q.conj().T @ z, rcond=1e-15)[0] / lengths[:, None]
    return q, c


def real_rows(rows: np.ndarray) -> np.ndarray:
    """Rows of real parts and of imaginary parts."""
    return np.concatenate([rows.real, rows.imag])


def _poles(point: np.ndarray) -> np.ndarray:
    decays, places = np.split(point, 2)
    return -decays + 1j * places
