"""Standard errors of located poles, their residues and delay, and where they are not passive.

Least squares estimates in white noise have the covariance `variance (JᵀJ)⁻¹`, J being the
derivative of the model by its unknowns at the optimum: the inverse of the Gauss-Newton information
(Seber & Wild, *Nonlinear Regression*, 1989, §2.1).
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigvals

from cgp.gp.means.vector_fitting import Arrangement, PolesAndDelay

COMPLEX_FIELDS = ("poles", "pole_errors", "residues", "residue_errors", "constant")
_ROUNDING = 1e-9  # of a modulus of 1
_INFINITE = 1e8  # times the distances of the poles, of an eigenvalue
_SINGULAR = 1e-10  # of columns of unit length, in their triangular factor


class PolesWithErrors(NamedTuple):
    """Poles, residues and delay of a rational function of frequency, with standard errors.

    Poles are in the order of their frequencies, of a conjugate pair the one above zero. Arrays are
    `[order]`, residues of B > 1 series `[B, order]`. The error of a complex number has the error of
    its real part and that of its imaginary part, as real and imaginary part. Units: f for
    frequencies and bandwidths, radians per unit of time for poles, of z times that for residues,
    the unit of time being a cycle per unit of f.
    """

    poles: np.ndarray
    pole_errors: np.ndarray
    residues: np.ndarray
    residue_errors: np.ndarray
    frequencies: np.ndarray
    """`Im(pole)/2π`."""
    frequency_errors: np.ndarray
    bandwidths: np.ndarray
    """The widths at half of the power, `−Re(pole)/π`."""
    bandwidth_errors: np.ndarray
    quality_factors: np.ndarray
    """Frequency over bandwidth."""
    quality_factor_errors: np.ndarray
    delay: float
    delay_error: float
    constant: np.ndarray | complex
    """The limit of the response far from all poles, without its delay, complex; of B > 1 series
    `[B]`."""


class Axis(NamedTuple):
    """What a fit divides by: x is `(f − middle)/span`, series are in units of `size`."""

    middle: float
    span: float
    size: float

    def turn(self, delay: float) -> complex:
        """What a delay, in units of the axis, turns residues and constant by, f counted from 0."""
        return np.exp(2j * np.pi * delay * self.middle / self.span)


def with_errors(
    x: np.ndarray,
    z: np.ndarray,
    located: PolesAndDelay,
    is_determined: np.ndarray,
    arrangement: Arrangement,
    axis: Axis,
) -> PolesWithErrors:
    """Located poles and their standard errors, in units of f and of the data.

    The noise is white, its real and imaginary part of one variance, which is estimated from the
    residuals and their degrees of freedom.

    Args:
        x: Frequencies, `[N]`, over one unit.
        z: Series, complex `[B, N]`.
        located: Poles and delay, for x and z.
        is_determined: Bool, `[order]`: whether a pole is where the data alone have it. The errors
            of other poles are NaN, and errors are as if those were known.
        arrangement: Free poles or conjugate pairs.
        axis: What x and z were divided by.
    """
    ordered = np.argsort(located.poles.imag, kind="stable")
    poles, is_determined = located.poles[ordered], is_determined[ordered]
    model = _LeastSquares(x, z, poles, located.delay, arrangement)
    covariance, of_series = model.covariances(np.tile(is_determined, 2))
    residues, residue_errors = _residues_with_errors(model, of_series, located.delay, axis)
    residue_errors[:, ~is_determined] = np.nan * (1 + 1j)
    order = len(poles)
    re, im = axis.span * np.sqrt(np.diag(covariance)[:-1]).reshape(2, order)
    poles = axis.span * poles
    places = poles.imag + 2.0 * np.pi * axis.middle
    quality, across = places / (-2.0 * poles.real), np.arange(order)
    shared = axis.span**2 * covariance[across, order + across]
    # Q = Im/(−2 Re)
    by_re, by_im = quality / -poles.real, 1.0 / (-2.0 * poles.real)
    variance = (by_re * re) ** 2 + (by_im * im) ** 2 + 2.0 * by_re * by_im * shared
    only = 0 if len(z) == 1 else slice(None)
    return PolesWithErrors(
        poles.real + 1j * places,
        re + 1j * im,
        residues[only],
        residue_errors[only],
        places / (2.0 * np.pi),
        im / (2.0 * np.pi),
        -poles.real / np.pi,
        re / np.pi,
        quality,
        np.sqrt(variance),
        float(located.delay) / axis.span,
        float(np.sqrt(covariance[-1, -1])) / axis.span,
        axis.size * axis.turn(located.delay) * model.constants[only],
    )


def _residues_with_errors(
    model: "_LeastSquares", of_series: list[np.ndarray], delay: float, axis: Axis
) -> tuple[np.ndarray, np.ndarray]:
    """The residues in units of f and of the data, `[B, order]`, and their standard errors.

    `of_series` are the covariances of residues and delay. The delay turns residues with the middle
    of the axis, from which x is counted.
    """
    scale = axis.span * axis.size * axis.turn(delay)
    residues, errors = scale * model.residues, np.zeros(model.residues.shape, complex)
    order = residues.shape[1]
    for b, covariance in enumerate(of_series):
        for k in range(order):
            of_pole = covariance[np.ix_([k, order + k, -1], [k, order + k, -1])]
            by_delay = 2j * np.pi * axis.middle / axis.span * residues[b, k]
            slopes = np.array([scale, 1j * scale, by_delay])
            re, im = (np.sqrt(part @ of_pole @ part) for part in (slopes.real, slopes.imag))
            errors[b, k] = re + 1j * im
    return residues, errors


class _LeastSquares:
    """The linearised model, as real rows: residues and a constant of each series, poles, delay."""

    def __init__(
        self,
        x: np.ndarray,
        z: np.ndarray,
        poles: np.ndarray,
        delay: float,
        arrangement: Arrangement,
    ):
        self.s, self.poles = 2j * np.pi * x[:, None], poles
        self.has_real_coefficients = arrangement.has_real_coefficients
        self.z = z.T * np.exp(self.s * delay)  # a turn leaves white noise white
        ones = np.ones_like(self.s)
        constants = [ones] if self.has_real_coefficients else [ones, 1j * ones]
        unit = np.ones(len(poles))
        residues = [self._terms(unit, 1), self._terms(1j * unit, 1)]
        columns = _rows(np.concatenate([*residues, *constants], axis=1))
        self.lengths = np.linalg.norm(columns, axis=0)
        self.q, self.r = np.linalg.qr(columns / self.lengths)
        self.is_singular = _is_singular(self.r)
        rows = _rows(self.z)
        self.residual = rows - self.q @ (self.q.T @ rows)
        self.residues = np.full((len(z), len(poles)), np.nan * (1 + 1j))
        self.constants = np.full(len(z), np.nan * (1 + 1j))
        if not self.is_singular:
            coefficients = np.linalg.solve(self.r, self.q.T @ rows) / self.lengths[:, None]
            re, im = np.split(coefficients[: 2 * len(poles)].T, 2, axis=1)
            self.residues = re + 1j * im
            self.constants = np.array([1.0, 1j])[: len(constants)] @ coefficients[2 * len(poles) :]

    def _terms(self, coefficients: np.ndarray, power: int) -> np.ndarray:
        """The terms `coefficient/(s − pole)ᵏ`, with those of the conjugates if there are such."""
        terms = coefficients / (self.s - self.poles) ** power
        if self.has_real_coefficients:
            terms = terms + coefficients.conj() / (self.s - self.poles.conj()) ** power
        return terms

    def _slopes(self, b: int) -> np.ndarray:
        """The derivatives of one series by real and imaginary parts of poles, and by the delay."""
        fitted = self.z[:, b : b + 1] - _complex(self.residual[:, b : b + 1])
        by_re, by_im = (self._terms(turn * self.residues[b], 2) for turn in (1.0, 1j))
        return _rows(np.concatenate([by_re, by_im, -self.s * fitted], axis=1))

    def covariances(self, is_determined: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """The covariance of poles and delay, and of each series that of residues and delay.

        Args:
            is_determined: Bool, of the real and imaginary parts of all poles.

        Returns:
            `[2 order + 1, 2 order + 1]`, and `[2 order + 1, 2 order + 1]` for each series, real
            parts before imaginary parts before the delay; NaN for what is not determined.
        """
        order, series = len(self.poles), self.z.shape[1]
        nothing = np.full((2 * order + 1,) * 2, np.nan)
        used = np.flatnonzero([*is_determined, True])
        freedom = self.residual.size - series * self.r.shape[1] - len(used)
        if self.is_singular or freedom < 1:
            return nothing, [nothing] * series
        slopes = [self._slopes(b)[:, used] for b in range(series)]
        along = [self.q.T @ of_series for of_series in slopes]
        across = [d - self.q @ a for d, a in zip(slopes, along, strict=True)]
        beside = np.concatenate(across)
        lengths = np.linalg.norm(beside, axis=0)
        r = np.linalg.qr(beside / np.maximum(lengths, 1e-300))[1]
        if _is_singular(r) or not lengths.min() > 0.0:
            return nothing, [nothing] * series
        variance = np.sum(self.residual**2) / freedom
        root = np.linalg.inv(r) / lengths[:, None]
        inverse = np.linalg.inv(self.r) / self.lengths[:, None]
        covariance = nothing.copy()
        covariance[np.ix_(used, used)] = variance * root @ root.T
        joints = []
        for of_series in along:
            # The residues move by −`by_nonlinear` where poles and delay move by one.
            by_nonlinear = inverse @ of_series @ root
            both = np.concatenate([-by_nonlinear[: 2 * order], root[-1:]])
            joint = both @ both.T
            joint[: 2 * order, : 2 * order] += (inverse @ inverse.T)[: 2 * order, : 2 * order]
            joints.append(variance * joint)
        return covariance, joints


def _is_singular(r: np.ndarray) -> bool:
    return bool(r.size) and not np.abs(np.diag(r)).min() > _SINGULAR


def _rows(a: np.ndarray) -> np.ndarray:
    return np.concatenate([a.real, a.imag])


def _complex(rows: np.ndarray) -> np.ndarray:
    re, im = np.split(rows, 2)
    return re + 1j * im


def bands_above_one(poles: np.ndarray, residues: np.ndarray, constant: complex) -> np.ndarray:
    """The bands of angular frequency ω where |r(iω)| > 1, in order, `[K, 2]`; ends may be infinite.

    With `r(s) = d + Σ c_k / (s − p_k)`, A the diagonal matrix of poles and b a column of ones, the
    modulus is 1 at s = iω where the pencil

        [ A − s    0        b    0   ]
        [ 0     −Aᴴ − s     0   −cᴴ  ]
        [ c        0        d   −1   ]
        [ 0        bᴴ      −1   dᴴ   ]

    is singular (Boyd, Balakrishnan & Kabamba, Math. Control Signals Systems 2, 1989; as a pencil it
    takes |d| = 1 too). Between neighbouring eigenvalues the modulus is on one side of 1.

    Poles and residues are `[n]`, in the same unit as ω.
    """
    n = len(poles)
    middle = np.mean(poles.imag) if n else 0.0
    unit = max(np.max(np.abs(poles - 1j * middle), initial=0.0), 1e-300)
    poles, residues = (poles - 1j * middle) / unit, residues / unit
    pencil = np.zeros((2 * n + 2,) * 2, complex)
    pencil[:n, :n], pencil[n : 2 * n, n : 2 * n] = np.diag(poles), -np.diag(poles.conj())
    pencil[:n, -2] = pencil[-1, n : 2 * n] = 1.0
    pencil[-2, :n], pencil[n : 2 * n, -1] = residues, -residues.conj()
    pencil[-2:, -2:] = [[constant, -1.0], [-1.0, np.conj(constant)]]
    eigenvalues = eigvals(pencil, np.diag([1.0] * (2 * n) + [0.0, 0.0]))
    breaks = eigenvalues.imag[np.abs(eigenvalues) < _INFINITE]
    ends = np.concatenate([[-np.inf], np.unique(breaks if breaks.size else 0.0), [np.inf]])
    # A point of each band, at most one unit from its end nearest to the poles.
    steps = np.minimum(0.5 * np.diff(ends), 1.0)
    is_left = np.abs(ends[:-1]) > np.abs(ends[1:])
    between = np.where(is_left, ends[1:] - steps, ends[:-1] + steps)
    r = constant + np.sum(residues / (1j * between[:, None] - poles), axis=1)
    is_above = np.concatenate([[False], np.abs(r) > 1.0 + _ROUNDING, [False]])
    begins, stops = (np.flatnonzero(np.diff(is_above.astype(int)) == step) for step in (1, -1))
    return middle + unit * np.stack([ends[begins], ends[stops]], axis=1)
