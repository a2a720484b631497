"""A few stable poles and a delay, located by vector fitting and nonlinear least squares.

The model of samples at frequencies x, which here run over one unit (see `Rational`), is

    r(x) = e^{−i2π delay x} (constant + Σ_k residue_k / (s − pole_k)),    s = i2πx,

or, for poles in conjugate pairs, a model with real coefficients (see `ConjugatePairs`).

Pole relocation (Gustavsen & Semlyen, IEEE Trans. Power Delivery 14, 1999) comes close to the best
poles from any start, but does not minimise the error. Its poles start a Levenberg-Marquardt
minimisation over poles and delay of the error that remains when the residues are fitted to them
(variable projection: Golub & Pereyra, SIAM J. Numer. Anal. 10, 1973; with the derivative of
Kaufman, BIT 15, 1975).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.gp.means.base import rows_of
from cgp.kernels.periodogram import Periodogram, deviations


class FreePoles:
    """Poles anywhere in the left half plane: the fraction `1/(s − p)`, a complex coefficient."""

    has_real_coefficients = False
    fractions_of_each = 1
    lowest = -np.inf  # place of a pole, in cycles

    def band(self, x: np.ndarray) -> tuple[float, float]:
        """The least and the largest place of poles inside the band of x, in cycles."""
        return float(x.min()), float(x.max())

    def all(self, poles: np.ndarray) -> np.ndarray:
        """All poles, in the order of their places."""
        return poles[np.argsort(poles.imag)]

    def fractions(self, s: np.ndarray, poles: np.ndarray) -> np.ndarray:
        """The fractions of poles `[..., order]` at `[..., N, 1]`: `[..., N, columns]`."""
        return 1.0 / (s - poles[..., None, :])

    def slopes(self, s: np.ndarray, poles: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """The derivatives of a model by real parts of poles and then by places, `[N, 2 order]`.

        They are taken modulo fractions of the same poles. Places are in radians, s is `[N, 1]`.
        """
        by_pole = coefficients / (s - poles) ** 2
        return np.concatenate([by_pole, 1j * by_pole], axis=-1)

    def zeros(self, poles: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """The zeros of 1 plus fractions `[..., order]` with coefficients `[..., columns]`."""
        return np.linalg.eigvals(
            poles[..., None, :] * np.eye(poles.shape[-1]) - coefficients[..., None, :]
        )

    def sections(self, s: tf.Tensor, poles: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Fractions, of unit length over the whole axis, and the all-pass function of each pole.

        At `[..., N, 1]` they are `[..., N, order, fractions of each]` and `[..., N, order]`.
        """
        lengths = tf.cast(tf.sqrt(-2.0 * tf.math.real(poles)), s.dtype)
        return (lengths / (s - poles))[..., None], (s + tf.math.conj(poles)) / (s - poles)


class ConjugatePairs:
    """Pairs p, p̄ with Im p ≥ 0, whose model has a real impulse response.

    The fractions are `s/D` and `|p|/D` with `D = (s − p)(s − p̄)`, which are independent even where
    the two poles coincide; their coefficients are real.
    """

    has_real_coefficients = True
    fractions_of_each = 2
    lowest = 0.0

    def band(self, x: np.ndarray) -> tuple[float, float]:
        """The least and the largest place of poles inside the band of x, in cycles."""
        low, high = float(x.min()), float(x.max())
        return max(low, -high, 0.0), max(high, -low)

    def all(self, poles: np.ndarray) -> np.ndarray:
        """All poles and their conjugates, in the order of their places."""
        return FreePoles().all(np.concatenate([poles, poles.conj()]))

    def fractions(self, s: np.ndarray, poles: np.ndarray) -> np.ndarray:
        """The fractions of pairs `[..., order]` at `[..., N, 1]`: `[..., N, 2 order]`."""
        poles = poles[..., None, :]
        denominators = (s - poles) * (s - poles.conj())
        return np.concatenate([s / denominators, np.abs(poles) / denominators], axis=-1)

    def slopes(self, s: np.ndarray, poles: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """The derivatives of a model by real parts and imaginary parts of poles, `[N, 2 order]`."""
        by_s, by_one = np.split(coefficients, 2)
        numerators = by_s * s + by_one * np.abs(poles)
        # D = (s − Re p)² + (Im p)²
        by_square = numerators / ((s - poles) * (s - poles.conj())) ** 2
        slopes = [2.0 * (s - poles.real) * by_square, -2.0 * poles.imag * by_square]
        return np.concatenate(slopes, axis=-1)

    def zeros(self, poles: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """The zeros of 1 plus fractions `[..., order]` with coefficients `[..., columns]`."""
        # (c₁ s + c₀ |p|)/D is c (s − A)⁻¹ b with A = [[0, |p|], [−|p|, 2 Re p]], b = [0, 1].
        order = poles.shape[-1]
        modulus, diagonal = np.abs(poles)[..., None, :] * np.eye(order), np.eye(order)
        above = np.concatenate([np.zeros_like(modulus), modulus], axis=-1)
        below = np.concatenate([-modulus, 2.0 * poles.real[..., None, :] * diagonal], axis=-1)
        by_s, by_one = np.split(coefficients, 2, axis=-1)
        below = below - np.concatenate([by_one, by_s], axis=-1)[..., None, :]
        zeros = np.linalg.eigvals(np.concatenate([above, below], axis=-2)).astype(complex)
        by_place = np.argsort(-zeros.imag, axis=-1, kind="stable")
        return np.take_along_axis(zeros, by_place, axis=-1)[..., :order]

    def sections(self, s: tf.Tensor, poles: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Fractions of unit length, and the all-pass function of each pair."""
        conjugates = tf.math.conj(poles)
        denominators = (s - poles) * (s - conjugates)
        fractions = tf.stack([s / denominators, tf.cast(tf.abs(poles), s.dtype) / denominators], -1)
        lengths = tf.cast(tf.sqrt(-2.0 * tf.math.real(poles)), s.dtype)
        return lengths[:, None] * fractions, (s + poles) * (s + conjugates) / denominators


Arrangement = FreePoles | ConjugatePairs


_STEPS = 15  # of pole relocation
_CONVERGED = 100  # steps of pole relocation without a delay
_LIGHT_DAMPING = 0.01  # −Re/Im of a starting pole of vector fitting
_DESCENTS = 4  # with the prior of narrow poles for the noise of the one before
_REFINED = 8  # the best starts of the delay, for a few steps of the minimisation
_NARROW_STARTS = 2  # likewise, of relocated narrow poles
_FINISHED = 3  # the best of these, for the minimisation to the end
_NEAR = 4  # delays on each side of the delay of free poles
_PEAKS = 4  # of the delay spectrum, near which a delay may start
_UP_TO_PEAK = 12  # starts between no delay and the highest peak
_BEFORE_PEAK = (0.0, 0.5, 1.0, 1.5)  # resolutions, 1/span, that a response may begin before a peak
_NARROWEST = 1e-6  # half-width of a pole in steps of x: a bound of the computation
_NARROW = 0.25  # half-width in steps of x, below which a pole may fit the noise of one sample
_WALL = 0.25  # prior standard deviation of the log of a half-width below that
_FEW = 0.001  # prior share of poles that may be far narrower
_FAR = 4.0  # prior standard deviation of the logs of their half-widths
_WIDEST = 10.0  # half-width in spans of x: a wider pole is a polynomial
_FARTHEST = 4.0  # from the middle, in spans of x
_NEAR_BOUND = 1e-3  # of a range, or of a half-width: nearer than this is at the bound


class PolesAndDelay(NamedTuple):
    """The poles and the delay of a rational function, in radians and cycles per unit of x."""

    poles: np.ndarray  # complex, [order]; the real parts are negative
    delay: float
    power: float  # the mean square of the residual


def locate(x: np.ndarray, z: np.ndarray, order: int, arrangement: Arrangement) -> PolesAndDelay:
    """The poles and the delay that all series have in common, the best of several starts.

    A pole whose half-width, `−Re(pole)/2π`, is below a quarter of the median step of x has a prior
    (see `Rational`), for noise of the residual power. Among the starts are the poles of vector
    fitting without a delay, from pairs of light damping, as is usual.

    Args:
        x: Frequencies, `[N]`, ascending, their span 1, at least two of them different.
        z: Series, complex `[B, N]`, of a size whose squares neither overflow nor underflow.
        order: The number of poles, or of pairs.
        arrangement: Free poles or conjugate pairs.
    """
    search, delays = _Search(x, z, arrangement), np.array(_delays(x, z))
    optima = search.optima(delays, order, _REFINED)
    if arrangement.has_real_coefficients:
        free = _Search(x - 0.5 * (x[0] + x[-1]), z, FreePoles())
        optima += search.near_free_poles(free.optima(delays, order, _FINISHED)[0])
        optima.sort(key=search.penalized)
    chosen = [*optima[:_FINISHED], search.vector_fitting(order)]
    return min((search.refined(start, 60, 1e-15) for start in chosen), key=search.penalized)


def are_at_optimum(
    x: np.ndarray, z: np.ndarray, located: PolesAndDelay, arrangement: Arrangement
) -> np.ndarray:
    """Whether the linearised model keeps poles within half of their half-width, `[order]`.

    It would move on a pole that its prior or a bound holds, and move anywhere a pole that the data
    do not determine. Other arguments as for `locate`.
    """
    poles, search = located.poles, _Search(x, z, arrangement)
    projected = search.projected(poles, located.delay)
    residual = _real_rows(_stack_columns(projected.residual))[:, 0]
    if not len(poles):
        return np.zeros(0, bool)
    slopes = _real_rows(search.slopes(poles, projected).reshape(-1, 2 * len(poles)))
    lengths = np.linalg.norm(slopes, axis=0)
    kept = (lengths > 1e-100).reshape(2, -1).all(axis=0)  # a residue of zero has no slope
    while kept.any():
        used = np.tile(kept, 2)
        steps = np.linalg.lstsq(slopes[:, used] / lengths[used], residual, rcond=1e-14)[0]
        along, across = np.split(steps / lengths[used], 2)
        shares = np.hypot(along, across) / -poles[kept].real
        if shares.max() < 0.5:
            break
        kept[np.flatnonzero(kept)[shares.argmax()]] = False
    return kept


def at_bounds(x: np.ndarray, located: PolesAndDelay, arrangement: Arrangement) -> list[str]:
    """What bounds the range of each pole that is at a bound, and a remedy, in words."""
    search = _Search(x, np.zeros((1, len(x))), arrangement)
    (narrowest, widest), (lowest, highest) = search.widths, search.places
    if lowest == 2.0 * np.pi * arrangement.lowest:  # no bound but a fold
        lowest = -np.inf
    near, bounds = _NEAR_BOUND * np.ptp(search.places), []
    for pole in located.poles:
        if -pole.real < (1.0 + _NEAR_BOUND) * narrowest:
            bounds.append(
                f"a half-width of {_NARROWEST:g} steps of x, the least. The samples do not tell "
                "the width: add some near the resonance, or take a lower order"
            )
        elif -pole.real > (1.0 - _NEAR_BOUND) * widest:
            bounds.append(
                f"a half-width of {_WIDEST:g} spans of x, the largest. It is a polynomial rather "
                "than a resonance: take a lower order, or a kernel for what is smooth"
            )
        elif not lowest + near < pole.imag < highest - near:
            bounds.append(
                f"a place {_FARTHEST:g} spans of x from the middle, the farthest. No sample is "
                "near it: take a lower order, or a kernel for what is smooth"
            )
    return bounds


def _step(x: np.ndarray) -> float:
    """The median step of x, without steps below a thousandth of the mean step."""
    steps = np.diff(np.sort(x))
    return float(np.median(steps[steps > 1e-3 * np.ptp(x) / len(x)]))


def _delays(x: np.ndarray, z: np.ndarray) -> list[float]:
    """Starting delays: zero, the mean, and some up to each peak of the delay spectrum.

    The response of a pole begins at the delay and peaks after it, for many poles long after.
    """
    step = _step(x)
    turn = np.vdot(z[:, :-1], z[:, 1:] * (np.diff(x) < 1.5 * step))
    delays = [0.0, float(-np.angle(turn) / (2.0 * np.pi * step))]
    scaled, size = deviations(z)
    if size > 0 and len(x) > _PEAKS:
        try:
            places = step * np.round(x / step, 3)  # equal places have no step between them
            peaks = -Periodogram(places, scaled).peaks(_PEAKS)[0]
        except ValueError:  # bursts: too many delays
            peaks = np.zeros(0)
        highest = peaks[:1]
        delays += [float(d) for peak in highest for d in np.linspace(0, peak, _UP_TO_PEAK)]
        delays += [float(peak - back) for peak in peaks for back in _BEFORE_PEAK]
    return list(dict.fromkeys(np.round(np.multiply(delays, 4.0)) / 4.0))


class _Projected(NamedTuple):
    """The linear model of least squares for given poles and delay."""

    residual: np.ndarray  # of each series, rows [R, B]
    turned: np.ndarray  # the series without the delay, complex [N, B]
    q: np.ndarray  # orthonormal columns with the span of its basis, rows [R, columns]
    coefficients: np.ndarray  # of the fractions, [columns − 1, B]


class _Search:
    """The minimisation over poles and delay, in coordinates without bounds."""

    def __init__(self, x: np.ndarray, z: np.ndarray, arrangement: Arrangement):
        self.s, self.z, self.arrangement = 2j * np.pi * x[:, None], z.mT, arrangement
        self.narrow = 2.0 * np.pi * min(_NARROW * _step(x), 0.5 * _WIDEST)
        self.widths = np.array([self.narrow * _NARROWEST / _NARROW, 2.0 * np.pi * _WIDEST])
        self.band = arrangement.band(x)
        places = np.mean(self.band) + _FARTHEST * np.array([-1.0, 1.0])
        self.places = 2.0 * np.pi * np.maximum(places, arrangement.lowest)

    def _rows(self, a: np.ndarray) -> np.ndarray:
        return rows_of(a, self.arrangement.has_real_coefficients)

    def _basis(self, poles: np.ndarray) -> np.ndarray:
        """Fractions and a constant, rows `[..., R, columns]`, of poles `[..., order]`."""
        fractions = self.arrangement.fractions(self.s, poles)
        ones = np.ones((*fractions.shape[:-1], 1))
        return self._rows(np.concatenate([fractions, ones], axis=-1))

    def widely_spread(self, order: int) -> np.ndarray:
        """Poles at equal distances over the band, wide enough to overlap."""
        places, distance = self._spread(order)
        return -0.5 * np.pi * distance + 2j * np.pi * places

    def lightly_damped(self, order: int) -> np.ndarray:
        """Poles at equal distances over the band, as vector fitting usually starts from."""
        places, distance = self._spread(order)
        above = places if self.arrangement.has_real_coefficients else distance * max(order, 1)
        return 2.0 * np.pi * (-_LIGHT_DAMPING * above + 1j * places)

    def _spread(self, order: int) -> tuple[np.ndarray, float]:
        low, high = self.band
        distance = (high - low) / max(order, 1)
        return low + distance * (np.arange(order) + 0.5), distance

    def optima(
        self, delays: np.ndarray, order: int, count: int, further: Sequence[PolesAndDelay] = ()
    ) -> list[PolesAndDelay]:
        """Optima near so many further or relocated poles, and a few narrow ones, the best first."""
        wide, narrow = self.widely_spread(order), self.lightly_damped(order)
        optima = self.best([*further, *self.relocated(delays, wide, _STEPS)[1]], count)
        optima += self.best(self.relocated(delays, narrow, _STEPS)[1], _NARROW_STARTS)
        return sorted(optima, key=self.penalized)

    def vector_fitting(self, order: int) -> PolesAndDelay:
        """The optimum near the poles of vector fitting, without a delay."""
        relocated = self.relocated(np.zeros(1), self.lightly_damped(order), _CONVERGED)
        return self.best([poles for of_delays in relocated for poles in of_delays], 2)[0]

    def relocated(
        self, delays: np.ndarray, start: np.ndarray, steps: int
    ) -> tuple[list[PolesAndDelay], list[PolesAndDelay]]:
        """The best and the last poles of pole relocation, for each delay, from the same poles."""
        count, order = len(delays), len(start)
        z = self.z * np.exp(self.s * delays[:, None, None])  # [K, N, B]
        poles = np.tile(start, (count, 1))
        best, powers = poles, np.full(count, np.inf)
        for step in range(steps + 1):
            basis = np.linalg.qr(self._basis(poles))[0]
            residual = _project_out(basis, self._rows(z))
            present = np.sum(np.abs(residual) ** 2, axis=(-2, -1)) / self.z.size
            best = np.where((present < powers)[:, None], poles, best)
            powers = np.minimum(present, powers)
            if step == steps or not order:
                break
            # σ z = fractions + constant, σ = 1 + Σ c/(s − pole): the zeros of σ are the new poles.
            # Numerators belong to each series and are projected out; c is common to all.
            fractions = self.arrangement.fractions(self.s, poles)
            series = np.split(z, z.shape[-1], axis=-1)
            common = [_project_out(basis, self._rows(-z_of_one * fractions)) for z_of_one in series]
            a, right = np.concatenate(common, axis=-2), _stack_columns(residual)
            lengths = np.maximum(np.linalg.norm(a, axis=-2), 1e-300)
            # R has the singular values of Q R, and is small.
            q, r = np.linalg.qr(a / lengths[:, None, :])
            c = np.linalg.pinv(r, rcond=1e-14) @ (q.conj().mT @ right)
            poles = self.arrangement.zeros(poles, c[..., 0] / lengths)
            poles = -np.maximum(np.abs(poles.real), 1e-6) + 1j * poles.imag
        return (
            [PolesAndDelay(*fit) for fit in zip(best, delays, powers, strict=True)],
            [PolesAndDelay(*fit) for fit in zip(poles, delays, present, strict=True)],
        )

    def near_free_poles(self, free: PolesAndDelay) -> list[PolesAndDelay]:
        """Optima of a model with real coefficients, at the delay of free poles and near it.

        Its phase follows the delay: the error has a minimum every half cycle at the middle of the
        band, and no descent leads from one to the next. Free poles, here of the same data over
        x less the middle of the band, have a phase of their own.
        """
        middle = 0.5 * float(self.s[0, 0].imag + self.s[-1, 0].imag)  # in radians
        cycles = 0.25 / max(abs(middle) / (2.0 * np.pi), 0.25)
        delays = free.delay + cycles * np.arange(-_NEAR, _NEAR + 1)
        poles = free.poles + 1j * middle
        poles = np.where(poles.imag < 0.0, poles.conj(), poles)
        same = [PolesAndDelay(poles, delay, self.power(poles, delay)) for delay in delays]
        return self.optima(delays, len(poles), _REFINED, same)

    def best(self, starts: list[PolesAndDelay], count: int) -> list[PolesAndDelay]:
        """The optima of the best starts after a few steps, the best first."""
        chosen = sorted(starts, key=lambda start: start.power)[:count]
        optima = [self._descended(start, 30, 1e-6) for start in chosen]
        return sorted(optima, key=self.penalized)

    def power(self, poles: np.ndarray, delay: float) -> float:
        """The mean square of the residual."""
        return float(np.sum(np.abs(self.projected(poles, delay).residual) ** 2) / self.z.size)

    def penalized(self, located: PolesAndDelay) -> float:
        """The residual power, divided by the prior density to a power: least at the optimum.

        For n real data and u unknowns the negative log posterior density, at its maximum over the
        variance of the noise, is `½ (n − u) log(power)` less the log density of the prior.
        """
        nats = 0.5 * np.sum(self._wall(located.poles) ** 2)
        return located.power * np.exp(2.0 * nats / (2.0 * self.z.size * self._share(located)))

    def _share(self, located: PolesAndDelay) -> float:
        """The share of the data beyond the number of unknowns, at least."""
        unknowns = 4 * len(located.poles) + 2
        return max(1.0 - unknowns / (2.0 * self.z.size), 0.1)

    def refined(self, start: PolesAndDelay, evaluations: int, tolerance: float) -> PolesAndDelay:
        """The most probable poles and delay to which a start leads.

        Each descent ends after so many evaluations, or at a relative decrease below `tolerance` in
        a step. It is repeated where a prior has weight, and the noise that scales it has changed.
        """
        for _ in range(_DESCENTS):
            power = start.power
            start = self._descended(start, evaluations, tolerance)
            if start.power > 0.9 * power or not self._wall(start.poles).any():
                break
        return start

    def _descended(self, start: PolesAndDelay, evaluations: int, tolerance: float) -> PolesAndDelay:
        """The optimum of a descent in which the noise has the power of its start."""
        from scipy.optimize import least_squares  # here: importing it takes long

        deviation = np.sqrt(0.5 * start.power / self._share(start))  # of each part of the noise
        memory: dict[bytes, tuple[np.ndarray, np.ndarray, _Projected]] = {}

        def at(point: np.ndarray) -> tuple[np.ndarray, np.ndarray, _Projected]:
            key = point.tobytes()
            if key not in memory:
                memory.clear()
                poles, slopes = self._poles(point)
                memory[key] = poles, slopes, self.projected(poles, start.delay + point[-1])
            return memory[key]

        def residuals(point: np.ndarray) -> np.ndarray:
            poles, _, projected = at(point)
            return np.concatenate(
                [_real_rows(np.ravel(projected.residual)), deviation * self._wall(poles)]
            )

        def jacobian(point: np.ndarray) -> np.ndarray:
            poles, slopes, projected = at(point)
            wall = deviation * self._slope_of_wall(poles, slopes)
            return np.concatenate([self._jacobian(poles, slopes, projected), wall])

        optimum = least_squares(
            residuals,
            np.concatenate([self._coordinates(start.poles), [0.0]]),
            jac=jacobian,
            method="lm",
            max_nfev=evaluations,
            xtol=3e-16,
            ftol=tolerance,
            gtol=3e-16,
        )
        poles, _ = self._poles(optimum.x)
        delay = start.delay + optimum.x[-1]
        return PolesAndDelay(poles, delay, self.power(poles, delay))

    # Widths on a log scale and places, both on a sine between their bounds.

    def _coordinates(self, poles: np.ndarray) -> np.ndarray:
        low, high = np.log(self.widths)
        width = (np.log(np.maximum(-poles.real, 1e-300)) - low) / (high - low)
        place = (poles.imag - self.places[0]) / np.ptp(self.places)
        inside = np.clip(np.concatenate([width, place]), 1e-3, 1.0 - 1e-3)
        return np.arcsin(2.0 * inside - 1.0)

    def _poles(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Poles, and the derivatives of real parts and places by coordinates, `[2 order]`."""
        by_width, by_place = np.split(point[:-1], 2)
        low, high = np.log(self.widths)
        width = np.exp(low + (high - low) * 0.5 * (1.0 + np.sin(by_width)))
        range_ = np.ptp(self.places)
        place = self.places[0] + range_ * 0.5 * (1.0 + np.sin(by_place))
        slopes = [-width * 0.5 * (high - low) * np.cos(by_width), 0.5 * range_ * np.cos(by_place)]
        return -width + 1j * place, np.concatenate(slopes)

    def _wall(self, poles: np.ndarray) -> np.ndarray:
        """The prior residuals of too narrow poles, `[order]`.

        Half of the square of each is the negative log density of the prior.
        """
        return np.sqrt(-2.0 * np.log(np.minimum(sum(self._priors(poles)[1:]), 1.0)))

    def _slope_of_wall(self, poles: np.ndarray, by_coordinate: np.ndarray) -> np.ndarray:
        """The derivatives of `_wall` by all coordinates, `[order, 2 order + 1]`."""
        order, (below, near, far) = len(poles), self._priors(poles)
        by_log_width = below * (near / _WALL**2 + far / _FAR**2) / (near + far)
        slopes = np.zeros((order, 2 * order + 1))
        by_width = by_log_width / np.maximum(self._wall(poles), 1e-300) / -poles.real
        np.fill_diagonal(slopes, by_width * by_coordinate[:order])
        return slopes

    def _priors(self, poles: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Logs of half-widths below `narrow`, and the densities of most and of few poles there.

        The densities are over that of wider poles, which is flat.
        """
        below = np.maximum(np.log(self.narrow / -poles.real), 0.0)
        near, far = (np.exp(-0.5 * (below / deviation) ** 2) for deviation in (_WALL, _FAR))
        return below, (1.0 - _FEW) * near, _FEW * far

    def projected(self, poles: np.ndarray, delay: float) -> _Projected:
        """The least-squares linear model for given poles and delay."""
        turned = self.z * np.exp(self.s * delay)
        rows, basis = self._rows(turned), self._basis(poles)
        lengths = np.linalg.norm(basis, axis=0)
        q, r = np.linalg.qr(basis / lengths)
        coefficients = np.linalg.lstsq(r, q.conj().T @ rows, rcond=1e-15)[0] / lengths[:, None]
        return _Projected(_project_out(q, rows), turned, q, coefficients[:-1])

    def slopes(self, poles: np.ndarray, projected: _Projected) -> np.ndarray:
        """The derivatives of the model by real parts and places of poles, rows `[B, R, 2 order]`.

        They are taken modulo the fractions and the constant.
        """
        by_pole = [self.arrangement.slopes(self.s, poles, c) for c in projected.coefficients.T]
        return np.stack([_project_out(projected.q, self._rows(d)) for d in by_pole])

    def _jacobian(
        self, poles: np.ndarray, by_coordinate: np.ndarray, projected: _Projected
    ) -> np.ndarray:
        by_pole = -self.slopes(poles, projected) * by_coordinate
        by_delay = self._rows(self.s * projected.turned)
        by_delay = _project_out(projected.q, by_delay).T[..., None]
        columns = np.concatenate([by_pole, by_delay], axis=-1)  # [B, R, 2 order + 1]
        return _real_rows(columns.swapaxes(0, 1).reshape(-1, columns.shape[-1]))


def _project_out(q: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The residuals of columns after projection on orthonormal columns."""
    return columns - q @ (q.conj().mT @ columns)


def _stack_columns(columns: np.ndarray) -> np.ndarray:
    """Columns below each other, `[..., N, B] -> [..., B N, 1]`."""
    return np.concatenate(np.split(columns, columns.shape[-1], axis=-1), axis=-2)


def _real_rows(rows: np.ndarray) -> np.ndarray:
    """Rows of real parts and of imaginary parts; real rows as they are."""
    return np.concatenate([rows.real, rows.imag]) if np.iscomplexobj(rows) else rows
