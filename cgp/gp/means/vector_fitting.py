"""A few stable poles and a delay, located by vector fitting and nonlinear least squares.

The model of samples at frequencies x, which here run over one unit about zero (see `Rational`), is

    r(x) = e^{−i2π delay x} (constant + Σ_k residue_k / (s − pole_k)),    s = i2πx.

Pole relocation (Gustavsen & Semlyen, IEEE Trans. Power Delivery 14, 1999) comes close to the best
poles from any start, but does not minimise the error. Its poles start a minimisation by Levenberg
and Marquardt's method over poles and delay, of what is left when the residues are fitted to them
(variable projection: Golub & Pereyra, SIAM J. Numer. Anal. 10, 1973; with the derivative of
Kaufman, BIT 15, 1975).
"""

from typing import NamedTuple

import numpy as np

from cgp.kernels.periodogram import Periodogram, deviations

_STEPS = 15  # of pole relocation
_REFINED = 6  # starts of the delay that are minimised, the best ones
_PEAKS = 4  # of the delay spectrum, near which a delay may start
_BEFORE_PEAK = (0.0, 0.5, 1.0, 1.5)  # resolutions, 1/span, that a response may begin before a peak
_NARROWEST = 0.25  # half-width of a pole in steps of x: narrower ones fit the noise of one sample
_WIDEST = 10.0  # half-width in spans of x: a wider pole is a polynomial
_FARTHEST = 4.0  # from the middle, in spans of x


class PolesAndDelay(NamedTuple):
    """What is located, in cycles and radians per unit of the x that was given."""

    poles: np.ndarray
    """Complex, `[order]`; the real parts are negative."""
    delay: float
    power: float
    """The mean square of what the model leaves."""


def locate(x: np.ndarray, z: np.ndarray, order: int) -> PolesAndDelay:
    """The poles and the delay that all series have in common, by least squares.

    The half-width of a pole, `−Re(pole)/2π`, is at least a quarter of the median step of x.

    Args:
        x: Frequencies from −½ to ½, `[N]`, at least two of them different.
        z: Series, complex `[B, N]`, of a size whose squares neither overflow nor underflow.
        order: The number of poles.

    Returns:
        The best of several starts of the delay.
    """
    step = float(np.median(np.diff(np.unique(x))))
    search = _Search(x, z, order, step)
    starts = search.relocated(np.array(_delays(x, z, step)))
    starts.sort(key=lambda start: start.power)
    found = [search.refined(start, 30, 1e-6) for start in starts[:_REFINED]]
    return search.refined(min(found, key=lambda one: one.power), 60, 1e-15)


def are_at_optimum(x: np.ndarray, z: np.ndarray, found: PolesAndDelay) -> np.ndarray:
    """Whether the linear model has a pole within a tenth of its half-width from here, `[order]`.

    From a pole at a bound it goes on past the bound, and from one that the data do not determine at
    all it goes anywhere.

    Args:
        x: As for `locate`.
        z: As for `locate`.
        found: What that has found.
    """
    s, z = 2j * np.pi * x[:, None], z.mT * np.exp(2j * np.pi * x[:, None] * found.delay)
    fractions = 1.0 / (s - found.poles)
    basis = np.concatenate([fractions, np.ones_like(s)], axis=1)
    own = np.linalg.qr(basis)[0]
    residues = np.linalg.lstsq(basis, z, rcond=None)[0][:-1]
    left = _stacked(_without(own, z))
    slopes = np.concatenate([_without(own, fractions**2 * residue) for residue in residues.mT])
    lengths = np.linalg.norm(slopes, axis=0)
    kept = lengths > 1e-100  # without a residue nothing tells where a pole is
    while kept.any():
        steps = np.linalg.lstsq(slopes[:, kept] / lengths[kept], left, rcond=1e-14)[0][:, 0]
        shares = np.abs(steps / lengths[kept]) / -found.poles[kept].real
        if shares.max() < 0.1:
            break
        kept[np.flatnonzero(kept)[shares.argmax()]] = False
    return kept


def _delays(x: np.ndarray, z: np.ndarray, step: float) -> list[float]:
    """Delays to start from: zero, the mean, and some up to each peak of the delay spectrum.

    The response of a pole begins at the delay and peaks after it.
    """
    turn = np.vdot(z[:, :-1], z[:, 1:] * (np.diff(x) < 1.5 * step))
    found = [0.0, float(-np.angle(turn) / (2.0 * np.pi * step))]
    scaled, size = deviations(z)
    if size > 0 and len(x) > _PEAKS:
        try:
            peaks = -Periodogram(x, scaled).peaks(_PEAKS)[0]
        except ValueError:  # bursts: too many delays
            peaks = np.zeros(0)
        found += [float(peak - back) for peak in peaks for back in _BEFORE_PEAK]
    return list(dict.fromkeys(np.round(np.multiply(found, 4.0)) / 4.0))


class _Search:
    """The minimisation over poles and delay, in coordinates without bounds."""

    def __init__(self, x: np.ndarray, z: np.ndarray, order: int, step: float):
        self.s, self.z, self.order = 2j * np.pi * x[:, None], z.T, order
        narrowest = min(_NARROWEST * step, 0.5 * _WIDEST)
        self.widths = 2.0 * np.pi * np.array([narrowest, _WIDEST])

    def relocated(self, delays: np.ndarray) -> list[PolesAndDelay]:
        """Poles by pole relocation for each delay, `[K]`, from equal distances over the band."""
        order, count = self.order, len(delays)
        z = self.z * np.exp(self.s * delays[:, None, None])  # [K, N, B]
        places = (np.arange(order) + 0.5) / max(order, 1) - 0.5
        poles = np.tile(-0.5 * np.pi / max(order, 1) + 2j * np.pi * places, (count, 1))
        for step in range(_STEPS + 1):
            fractions = 1.0 / (self.s - poles[:, None, :])
            basis = np.concatenate([fractions, np.ones((count, *self.s.shape))], axis=-1)
            own = np.linalg.qr(basis)[0]
            left = _without(own, z)
            if step == _STEPS or not order:
                break
            # σ z = fractions + constant, σ = 1 + Σ c/(s − pole): the zeros of σ are the new poles.
            # Numerators belong to each series and are projected out; c is common to all.
            common = [_without(own, -z[..., b : b + 1] * fractions) for b in range(z.shape[-1])]
            a, right = np.concatenate(common, axis=-2), _stacked(left)
            lengths = np.maximum(np.linalg.norm(a, axis=-2), 1e-300)
            # The singular values of R are those of Q R, and R is small.
            q, r = np.linalg.qr(a / lengths[:, None, :])
            c = np.linalg.pinv(r, rcond=1e-14) @ (q.conj().mT @ right)
            c = c[..., 0] / lengths
            poles = np.linalg.eigvals(poles[:, None, :] * np.eye(order) - c[:, None, :])
            poles = -np.maximum(np.abs(poles.real), 1e-6) + 1j * poles.imag
        powers = np.mean(np.abs(left) ** 2, axis=(-2, -1))
        return [PolesAndDelay(*one) for one in zip(poles, delays, powers, strict=True)]

    def refined(self, start: PolesAndDelay, evaluations: int, tolerance: float) -> PolesAndDelay:
        """Poles and delay of the least squares that a start leads to.

        After so many evaluations, or when what is left falls by a relative `tolerance` a step.
        """
        from scipy.optimize import least_squares  # here: importing it takes long

        memory: dict[bytes, tuple] = {}

        def projected(point: np.ndarray) -> tuple:
            if (key := point.tobytes()) not in memory:
                memory.clear()
                memory[key] = self._projected(point, start.delay)
            return memory[key]

        found = least_squares(
            lambda point: _real(np.ravel(projected(point)[0])),
            np.concatenate([self._coordinates(start.poles), [0.0]]),
            jac=lambda point: self._jacobian(point, *projected(point)),
            method="lm",
            max_nfev=evaluations,
            xtol=3e-16,
            ftol=tolerance,
            gtol=3e-16,
        )
        poles, _ = self._poles(found.x)
        return PolesAndDelay(poles, start.delay + found.x[-1], 2.0 * found.cost / self.z.size)

    # Widths on a log scale and places, both on a sine between their bounds.

    def _coordinates(self, poles: np.ndarray) -> np.ndarray:
        low, high = np.log(self.widths)
        width = (np.log(np.maximum(-poles.real, 1e-300)) - low) / (high - low)
        place = 0.5 + 0.5 * poles.imag / (2.0 * np.pi * _FARTHEST)
        inside = np.clip(np.concatenate([width, place]), 1e-3, 1.0 - 1e-3)
        return np.arcsin(2.0 * inside - 1.0)

    def _poles(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Poles, and their derivatives by both of their coordinates, `[2 order]`."""
        order = self.order
        u = point[: 2 * order]
        low, high = np.log(self.widths)
        width = np.exp(low + (high - low) * 0.5 * (1.0 + np.sin(u[:order])))
        place = 2.0 * np.pi * _FARTHEST * np.sin(u[order:])
        by_width = -width * 0.5 * (high - low) * np.cos(u[:order])
        by_place = 2j * np.pi * _FARTHEST * np.cos(u[order:])
        return -width + 1j * place, np.concatenate([by_width, by_place])

    def _projected(self, point: np.ndarray, delay: float) -> tuple:
        """What the model of the best residues leaves, and what that was computed from."""
        poles, _ = self._poles(point)
        z = self.z * np.exp(self.s * (delay + point[-1]))
        fractions = 1.0 / (self.s - poles)
        basis = np.concatenate([fractions, np.ones_like(self.s)], axis=1)
        lengths = np.linalg.norm(basis, axis=0)
        q, r = np.linalg.qr(basis / lengths)
        return _without(q, z), z, fractions, q, r * lengths

    def _jacobian(self, point: np.ndarray, *parts: np.ndarray) -> np.ndarray:
        _, z, fractions, q, r = parts
        slopes = self._poles(point)[1]
        residues = np.linalg.lstsq(r, q.conj().T @ z, rcond=1e-15)[0]
        columns = []
        for series in range(z.shape[1]):
            by_pole = -(fractions**2) * residues[: self.order, series]
            by_delay = self.s * z[:, series : series + 1]
            d = np.concatenate([np.tile(by_pole, 2) * slopes, by_delay], axis=1)
            columns.append(_without(q, d))
        return _real(np.stack(columns, axis=1).reshape(-1, len(point)))


def _without(q: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Columns less their projection on orthonormal ones."""
    return columns - q @ (q.conj().mT @ columns)


def _stacked(columns: np.ndarray) -> np.ndarray:
    """Columns below each other, `[..., N, B] -> [..., B N, 1]`."""
    return np.concatenate(np.split(columns, columns.shape[-1], axis=-1), axis=-2)


def _real(rows: np.ndarray) -> np.ndarray:
    """Real parts above imaginary parts."""
    return np.concatenate([rows.real, rows.imag])
