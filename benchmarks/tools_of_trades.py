"""Tools of ten trades, for `ten_problems.py`: what each trade would use where cgp is used there.

Each estimate is an array of complex numbers, of a function of its data and one setting. `blind`
chooses the setting from the data by cross-validation; orders of exponentials are chosen by the
minimum description length, and those of autoregressions by Akaike's criterion.
"""

import warnings
from typing import NamedTuple

import numpy as np
import skrf
from scipy.interpolate import AAA, make_smoothing_spline
from scipy.optimize import least_squares, minimize_scalar
from skrf.vectorFitting import VectorFitting


def blind(tool, settings, x, z, weights=None, folds=5):
    """The setting with the smallest squared error at samples left out of a fit in turn.

    A fold has every fifth sample; the first and the last are always there. `tool(x, z, setting,
    x_new)` estimates; with `weights`, as of errors, `tool(x, z, setting, x_new, weights)`.
    """
    weight = np.ones(x.size) if weights is None else weights
    inside, scores = np.arange(1, x.size - 1), []
    for setting in settings:
        score = 0.0
        for fold in range(folds):
            out = inside[inside % folds == fold]
            kept = np.setdiff1d(np.arange(x.size), out)
            of_kept = () if weights is None else (weights[kept],)
            estimate = tool(x[kept], z[kept], setting, x[out], *of_kept)
            score += np.sum(weight[out] * np.abs(estimate - z[out]) ** 2)
        scores.append(score if np.isfinite(score) else np.inf)
    return settings[int(np.argmin(scores))]


# --- gains over time -----------------------------------------------------------------------------


def smoothed(t, part, setting, t_new, weights):
    """A real series by a smoothing spline or a Gaussian window, with weights."""
    kind, amount = setting
    if kind == "spline":
        return make_smoothing_spline(t, part, w=weights, lam=amount)(t_new)
    shares = weights * np.exp(-0.5 * ((t_new[:, None] - t) / amount) ** 2) + 1e-300
    return (shares @ part) / shares.sum(axis=1)


# --- a resonator ---------------------------------------------------------------------------------


def _circle(s):
    """Centre and radius of an algebraic circle fit."""
    columns = np.stack([2 * s.real, 2 * s.imag, np.ones(s.size)], axis=1)
    x, y, c = np.linalg.lstsq(columns, np.abs(s) ** 2, rcond=None)[0]
    return x + 1j * y, np.sqrt(max(c + x**2 + y**2, 1e-300))


def circle_fit(f, s, delay=None):
    """Notch resonator by circle and phase fits with diameter correction (Probst et al., 2015).

    The delay of the cable is the one that makes a circle of the points, unless it is given.
    """
    middle = np.mean(f)

    def off_circle(tau):
        turned = s * np.exp(2j * np.pi * (f - middle) * tau)
        centre, radius = _circle(turned)
        return np.sum((np.abs(turned - centre) - radius) ** 2)

    if delay is None:
        outer = np.r_[0:3, f.size - 3 : f.size]
        phase = np.unwrap(np.angle(s))
        start = -np.polyfit(f[outer], phase[outer], 1)[0] / (2 * np.pi)
        width = 0.25 / np.ptp(f)
        tried = start + np.linspace(-width, width, 101)
        best = tried[np.argmin([off_circle(tau) for tau in tried])]
        near = (best - width / 50, best + width / 50)
        delay = minimize_scalar(off_circle, bounds=near, method="bounded").x
    turned = s * np.exp(2j * np.pi * (f - middle) * delay)
    centre, radius = _circle(turned)
    angles = np.unwrap(np.angle(turned - centre))

    def phase_error(p):  # θ = θ0 + 2 arctan(2 Q (1 − f/f0))
        return angles - p[0] - 2 * np.arctan(2 * np.exp(p[1]) * (1 - f / (middle + p[2])))

    starts = [
        (0.0, np.log(q), place)
        for q in middle / np.ptp(f) * np.geomspace(1.5, 50.0, 12)
        for place in np.linspace(f[0], f[-1], 2 * f.size) - middle
    ]
    _, log_loaded, place = min(starts, key=lambda p: np.var(phase_error(p)))
    start = [np.mean(phase_error((0.0, log_loaded, place))), log_loaded, place]
    turn, log_loaded, place = least_squares(phase_error, start, x_scale=[1, 1, np.ptp(f)]).x
    far = centre - radius * np.exp(1j * turn)  # off resonance, where θ = θ0 ± π
    diameter = 2 * radius * np.exp(1j * turn) / far  # −(Q/|Qc|) e^{iφ}
    p = [far.real, far.imag, diameter.real, diameter.imag, delay, log_loaded, place]
    return Notch(np.array(p), middle)


class Notch(NamedTuple):
    """The response `far (1 + diameter/(1 + 2iQ(f/f0 − 1))) e^{−2πi f delay}`."""

    p: np.ndarray  # far and diameter, real and imaginary; delay, log Q and f0 less the middle
    middle: float

    @property
    def quality(self):
        return np.exp(self.p[5])

    @property
    def delay(self):
        return self.p[4]

    def __call__(self, f):
        far, diameter = self.p[:4:2] + 1j * self.p[1:4:2]
        offset = f / (self.middle + self.p[6]) - 1
        dip = 1 + diameter / (1 + 2j * self.quality * offset)
        return far * dip * np.exp(-2j * np.pi * (f - self.middle) * self.delay)


def notch(f, s, setting, delay=None):
    """A circle fit of the points within some widths of the resonance, which a first fit tells.

    "least squares" instead refines a circle fit of all points, and the delay with it. Circle fits
    have the delay of all points, unless it is given.
    """
    whole = circle_fit(f, s, delay)
    if setting == "least squares":

        def wrong(p):
            error = Notch(p * scale, whole.middle)(f) - s
            return np.concatenate([error.real, error.imag])

        scale = np.array([np.abs(s).max()] * 2 + [1, 1, 1 / np.ptp(f), 1, np.ptp(f)])
        return Notch(least_squares(wrong, whole.p / scale).x * scale, whole.middle)
    near = np.abs(f / f[np.argmin(np.abs(s))] - 1) < setting / 2 / whole.quality
    return circle_fit(f[near], s[near], whole.delay) if near.sum() >= 7 else whole


def notch_response(f, s, setting, f_new):
    """The response of `notch` at other frequencies."""
    return notch(f, s, setting)(f_new)


# --- exponentials over a regular grid ------------------------------------------------------------


def description_length(z, estimate, order):
    """Of exponentials: frequency, decay and a complex amplitude for each."""
    residual = np.sum(np.abs(z - estimate) ** 2)
    return z.size * np.log(residual) + 0.5 * 4 * order * np.log(2 * z.size)


def cadzow(z, orders, iterations=10):
    """A series whose Hankel matrix is of low rank, for each order (Cadzow, 1988)."""
    rows = z.size // 3
    index = np.arange(rows)[:, None] + np.arange(z.size - rows + 1)
    count = np.bincount(index.ravel())
    for order in orders:
        estimate = z
        for _ in range(iterations):
            matrix = estimate[index]
            vectors = np.linalg.eigh(matrix @ matrix.conj().T)[1][:, -order:]
            matrix = vectors @ (vectors.conj().T @ matrix)
            parts = [np.bincount(index.ravel(), p.ravel()) for p in (matrix.real, matrix.imag)]
            estimate = (parts[0] + 1j * parts[1]) / count
        yield estimate


def matrix_pencil(z, orders):
    """Poles per sample and amplitudes for each order (Hua & Sarkar, 1990); none grows."""
    rows = z.size // 2
    index = np.arange(rows)[:, None] + np.arange(z.size - rows + 1)
    vectors = np.linalg.svd(z[index], full_matrices=False)[0]
    for order in orders:
        signal = vectors[:, :order]
        poles = np.linalg.eigvals(np.linalg.lstsq(signal[:-1], signal[1:], rcond=None)[0])
        poles = poles / np.maximum(np.abs(poles), 1.0)
        powers = poles ** np.arange(z.size)[:, None]
        yield poles, np.linalg.lstsq(powers, z, rcond=None)[0]


def soft_thresholding(n, z, threshold, n_new, length=1024, iterations=300):
    """Few samples of a series by a sparse spectrum: FISTA (Beck & Teboulle, 2009).

    The threshold is a share of the highest line of the spectrum of the samples.
    """

    def series(spectrum):
        return np.fft.ifft(spectrum, norm="ortho")

    def of_samples(values):
        padded = np.zeros(length, complex)
        padded[n] = values
        return np.fft.fft(padded, norm="ortho")

    n, n_new = np.asarray(n, int), np.asarray(n_new, int)
    level = threshold * np.abs(of_samples(z)).max()
    spectrum = ahead = np.zeros(length, complex)
    momentum = 1.0
    for _ in range(iterations):
        moved = ahead + of_samples(z - series(ahead)[n])
        size = np.abs(moved)
        new = moved * np.maximum(1 - level / np.maximum(size, 1e-300), 0.0)
        later = 0.5 * (1 + np.sqrt(1 + 4 * momentum**2))
        ahead = new + (momentum - 1) / later * (new - spectrum)
        spectrum, momentum = new, later
    return series(spectrum)[n_new]


# --- rational functions of a frequency -----------------------------------------------------------


def rational(f, z, setting, f_new):
    """Vector fitting of pairs of poles (scikit-rf), or AAA of some support points (SciPy)."""
    kind, size = setting
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not passive, or not converged
        if kind == "AAA":
            return AAA(f, z, rtol=1e-13, max_terms=size)(f_new)
        network = skrf.Network(frequency=skrf.Frequency.from_f(f, unit="Hz"), s=z[:, None, None])
        fitting = VectorFitting(network)
        fitting.vector_fit(n_poles_real=0, n_poles_cmplx=size, enforce_dc=False)
        return fitting.get_model_response(0, 0, f_new)


def impedance(f, z, setting, f_new, weights):
    """A measurement model of an impedance, by least squares with weights.

    "voigt": R + 1/(iωC) + Σ R_k/(1 + iωτ_k), the τ_k evenly spaced over the logarithm of the band
    (Schönleber et al., 2014). "vector fitting": real poles that are relocated (Gustavsen &
    Semlyen, 1999), with the same other terms.
    """
    kind, count = setting
    s, s_new = 2j * np.pi * f, 2j * np.pi * f_new
    rates = 2 * np.pi * np.geomspace(f.min(), f.max(), count)
    if kind == "vector fitting":
        for _ in range(10):
            rates = _relocated(s, z, rates, weights)
    columns = _impedance_columns(s, rates)
    return _impedance_columns(s_new, rates) @ _real_lstsq(columns, z, weights)


def _impedance_columns(s, rates):
    return np.concatenate(
        [rates / (s[:, None] + rates), np.ones_like(s)[:, None], 1 / s[:, None]], 1
    )


def _real_lstsq(columns, z, weights):
    """Real coefficients of weighted least squares."""
    rows = columns * np.sqrt(weights)[:, None]
    rows = np.concatenate([rows.real, rows.imag])
    lengths = np.maximum(np.linalg.norm(rows, axis=0), 1e-300)
    targets = z * np.sqrt(weights)
    targets = np.concatenate([targets.real, targets.imag])
    return np.linalg.lstsq(rows / lengths, targets, rcond=1e-12)[0] / lengths


def _relocated(s, z, rates, weights):
    """The zeros of σ(s) = 1 + Σ c_k/(s + rate_k), where σ z has the poles of σ."""
    fractions = rates / (s[:, None] + rates)
    columns = np.concatenate([_impedance_columns(s, rates), -z[:, None] * fractions], axis=1)
    c = _real_lstsq(columns, z, weights)[-rates.size :] * rates
    zeros = np.linalg.eigvals(np.diag(-rates) - np.outer(np.ones(rates.size), c))
    return np.clip(np.abs(zeros), np.abs(s).min() / 100, np.abs(s).max() * 100)


# --- channels ------------------------------------------------------------------------------------


def burg(z, orders):
    """Coefficients a[1 … p] and innovation variances of autoregressions of orders 1 … `orders`."""
    forward, backward, a, power = z[1:], z[:-1], np.zeros(0, complex), np.mean(np.abs(z) ** 2)
    for _ in range(orders):
        sizes = np.sum(np.abs(forward) ** 2 + np.abs(backward) ** 2)
        k = 2 * np.vdot(backward, forward) / sizes
        a = np.concatenate([a - k * np.conj(a[::-1]), [k]])
        power = power * (1 - np.abs(k) ** 2)
        yield a, power
        forward, backward = (
            (forward - k * backward)[1:],
            (backward - np.conj(k) * forward)[:-1],
        )


def forecast(z, a, origins, ahead):
    """Forecasts 1 … `ahead` samples after each origin, complex `[origins, ahead]`."""
    past = np.stack([z[o - a.size + 1 : o + 1][::-1] for o in origins])
    means = []
    for _ in range(ahead):
        means.append(past @ a)
        past = np.concatenate([means[-1][:, None], past[:, :-1]], axis=1)
    return np.stack(means, axis=1)


def lmmse(earlier, noise, z, pilots, setting):
    """A channel from its pilots by the covariance of earlier series, `[B, N]`.

    Settings: "shrunk", a share of the covariance is moved to a multiple of I; "loaded", a multiple
    of the mean power is added to the covariance of the pilots.
    """
    kind, amount = setting
    covariance = earlier.T @ earlier.conj() / len(earlier) - noise * np.eye(earlier.shape[1])
    power = np.mean(np.diag(covariance).real)
    if kind == "shrunk":
        covariance = (1 - amount) * covariance + amount * power * np.eye(len(covariance))
    load = noise + (amount * power if kind == "loaded" else 0.0)
    among = covariance[np.ix_(pilots, pilots)] + load * np.eye(len(pilots))
    return z @ np.linalg.solve(among.T, covariance[:, pilots].T)
