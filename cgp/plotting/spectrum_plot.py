"""The plot of the spectral density of fitted kernels beside the periodogram of the data."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.distributions.forms import SecondMoments
from cgp.gp import ExactGP, StateSpaceGP
from cgp.gp.data import Data, as_data
from cgp.gp.starts import inputs_and_series
from cgp.kernels.data_scales import DataScales
from cgp.kernels.periodogram import Periodogram
from cgp.linalg.arguments import ArrayLike
from cgp.plotting.drawing import DATA, MEAN, axes_of, tidy

if TYPE_CHECKING:  # an optional dependency
    from matplotlib.axes import Axes

_ALIASES = 50  # on either side, for samples on a grid: all beyond have less than 1 % of the noise
_POINTS = 2001  # of a curve, before its peaks are refined


def spectrum(
    gp: ExactGP | StateSpaceGP | Mapping[str, ExactGP | StateSpaceGP],
    z: ArrayLike | None = None,
    x: ArrayLike | None = None,
    *,
    ax: "Axes | None" = None,
) -> "Axes":
    """Plots the spectral density of fitted kernels, with noise, beside the periodogram of the data.

    The periodogram is `dx/Σw² · |Σ w z e^{−i2πfx}|²` of the data less the mean function, under
    Hann's window w, with the mean step dx of x; of several series it is the mean. White noise of
    variance v has the expected height v dx in it. It scatters about the density by the factors of
    an exponential variable: nine of ten points lie between a twentieth and three times of it. Where
    they leave the curve, the kernel lacks something. Irregular x and gaps scatter power of strong
    frequencies over all others: a dashed curve is then the expectation under the process, its
    spectrum smeared by `|Σ w e^{−i2πfx}|²`.

    The curve is `Kernel.spectral_density` plus the noise at v dx, `White` included. Where x is
    regular it is folded, as samples dx apart cannot tell f from f + 1/dx. Lines, of `Constant`,
    `Rotation`, `Periodic` and taps, stand at the height that the periodogram has for their power.

    Args:
        gp: A process over one-dimensional x, fitted to the data; or several by name, one curve for
            each.
        z: Complex series, `[N]` or `[..., N]`, NaN where missing; None for the data that the
            (first) process has taken in.
        x: Their points, `[N]`, in any order; None for the points that the process has taken in.
        ax: The matplotlib axes to plot on; a new figure if None.

    Returns:
        The axes.

    Raises:
        ImportError: matplotlib is not installed.
        TypeError: Another model.
        ValueError: No data; x of several dimensions, fewer than three points, or so few in bursts
            that there is no periodogram; a kernel of which no spectrum is known.

    Example:
        >>> import numpy as np, cgp.plotting
        >>> from cgp.kernels import Matern32, Rotation
        >>> x = np.arange(100.0)
        >>> gp = cgp.StateSpaceGP(Matern32(1.0, 6.0) * Rotation(0.12), noise_variance=0.05)
        >>> gp.condition(x, gp.sample(x, 1, seed=4, observed=True)[0])
        >>> ax = cgp.plotting.spectrum(gp)
        >>> ax.get_xlabel(), ax.get_yscale()
        ('frequency (cycles per unit of x)', 'log')
    """
    models = gp if isinstance(gp, Mapping) else {"model": gp}
    if not models:
        raise ValueError("gp must be a process or several by name, got none")
    for model in models.values():
        if not isinstance(model, ExactGP | StateSpaceGP):
            expected = "an ExactGP or a StateSpaceGP, or several by name"
            raise TypeError(f"gp must be {expected}, got {type(model).__name__}")
    first = next(iter(models.values()))
    data = _selected_data(first, z, x)
    scales = _without_mean(first, data)
    periodogram = _tapered_periodogram(scales)
    curves = {n: _ExpectedPeriodogram(m, data, scales, periodogram) for n, m in models.items()}
    (ax,) = axes_of(None if ax is None else [ax], 1)
    f, powers = periodogram.frequencies, periodogram.powers
    ax.plot(f, powers, label="periodogram", **DATA | {"markersize": 2.5})
    for number, (name, curve) in enumerate(curves.items()):
        style = MEAN if len(models) == 1 else MEAN | {"color": f"C{number}"}
        ax.plot(curve.frequencies, curve.density, label=name, **style)
        if periodogram.scatter is not None:
            smeared = style | {"linestyle": "--", "linewidth": 1.0}
            ax.plot(f, curve.smeared(periodogram), label=f"{name}, smeared by gaps", **smeared)
        heights = [curve.at(curve.lines), curve.heights]
        ax.vlines(curve.lines, *heights, color=style["color"], linewidth=1.5)
    highest = [np.max([*curve.density, *curve.heights]) for curve in curves.values()]
    lowest = [np.min(curve.density) for curve in curves.values()]
    top = max(np.max(powers), *highest)
    bottom = max(0.3 * min(np.quantile(powers, 0.02), *lowest), 1e-15 * top)
    ax.set(xlabel="frequency (cycles per unit of x)", ylabel="spectral density")
    ax.set(yscale="log", ylim=(bottom, 2.0 * top))
    ax.margins(x=0.01)
    ax.legend(frameon=False, fontsize="small")
    tidy(ax)
    return ax


def _selected_data(gp: ExactGP | StateSpaceGP, z: ArrayLike | None, x: ArrayLike | None) -> Data:
    """The data given, or else the data of the process."""
    if gp.kernel.outputs is not None:
        raise ValueError(
            f"a spectrum is of one signal, and the kernel has {gp.kernel.outputs} outputs: fit one "
            "of them alone, or draw kernel.parts[0].kernel.spectral_density(f)"
        )
    if x is not None and z is None:
        raise ValueError("x are the points of z: give z too, or neither")
    data = gp.stored_data() if x is None else None
    if data is not None and z is not None:
        x = data.x[0] if len(data.x) == 1 else data.unpacked(data.x)
    if z is not None:
        data = as_data(x, z, None, gp.variable_dtype)
    assert data is not None
    size = data.x.shape[-1]
    if size != 1:
        raise ValueError(f"a spectrum is of a process over one dimension, but x has {size}")
    return data


def _without_mean(gp: ExactGP | StateSpaceGP, data: Data) -> DataScales:
    """The data minus the mean function; a marginalised trend is subtracted by least squares."""
    x, z = inputs_and_series(data)
    mean = gp.observation_model.mean
    if mean is None:
        return DataScales(x, z)
    points = tf.constant(x, gp.variable_dtype)
    function = mean.evaluate(points)
    if function is None or mean.basis(points) is not None:
        return DataScales(x, z - mean.nearest(x, z))
    return DataScales(x, z - function.numpy())


class _TaperedPeriodogram(NamedTuple):
    """A periodogram under Hann's window."""

    frequencies: np.ndarray  # `[F]`, in increasing order
    powers: np.ndarray  # `[F]`
    step: float  # the mean step of x: the height of white noise over its variance
    gain: float  # the height of a line over its power
    spacing: float  # of the frequencies of `scatter`, half the spacing of `frequencies`
    scatter: np.ndarray | None
    """The heights around a line over its power, at `4 L + 1` differences of frequencies of which
    the middle one is 0, `frequencies` lying within L of it; None for regular x without gaps."""


def _tapered_periodogram(scales: DataScales) -> _TaperedPeriodogram:
    x, z = scales.x[:, 0], scales.z
    counts = np.sum(~np.isnan(z), axis=1)
    z = z[counts > 2]
    if not len(z) or not np.ptp(x) > 0:
        needed = "a series of three points at different x"
        raise ValueError(f"a periodogram needs {needed}, got {max(counts)}")
    window = np.sin(np.pi * (x - x.min()) / np.ptp(x)) ** 2 * ~np.isnan(z)
    step = np.ptp(x) / (np.sum(~np.isnan(z), axis=1, keepdims=True) - 1.0)
    norm = step / np.sum(window**2, axis=1, keepdims=True) / len(z)
    unit = max(np.nanmax(np.abs(z)), 1e-300)  # squares neither overflow nor underflow
    weights = np.sqrt(norm) * window
    tapered = weights * np.nan_to_num(z / unit)
    periodogram = Periodogram(x, tapered)
    half = len(periodogram.grid) // 2
    inside = np.arange(half % 2, len(periodogram.grid), 2)
    inside = inside[np.abs(periodogram.grid[inside]) <= 0.5 / periodogram.step]
    scatter = None
    if not scales.is_regular or np.max(step) > 1.001 * scales.spacing:
        scatter = periodogram.on_grid(weights.astype(complex))
        # Beyond the grid it continues at its level far from the middle.
        scatter = np.pad(scatter, half, constant_values=np.mean(scatter[: half // 2]))
    return _TaperedPeriodogram(
        periodogram.grid[inside],
        unit**2 * periodogram.on_grid(tapered)[inside],
        float(np.mean(step)),
        float(np.sum(norm * np.sum(window, axis=1, keepdims=True) ** 2)),
        periodogram.spacing,
        scatter,
    )


class _ExpectedPeriodogram:
    """The periodogram that a process predicts: spectral density with noise, and lines."""

    def __init__(
        self,
        gp: ExactGP | StateSpaceGP,
        data: Data,
        scales: DataScales,
        periodogram: _TaperedPeriodogram,
    ):
        self._spectrum = gp.observation_model.kernel.spectrum()  # refused while values are left out
        signal = SecondMoments(tf.zeros_like(data.z), None)
        noise = np.mean(np.real(gp.observation_model.with_noise(signal, data.noise).k))
        self._level = (noise + self._spectrum.white) * periodogram.step
        self._band = 1.0 / scales.spacing if scales.is_regular else None
        low, high = periodogram.frequencies[[0, -1]]
        self.frequencies = self._refined(np.linspace(low, high, _POINTS))
        self.density = self.at(self.frequencies)
        lines, powers = self._spectrum.lines, self._spectrum.powers
        if self._band is not None:
            lines = lines - self._band * np.rint(lines / self._band)
        inside = (low <= lines) & (lines <= high)
        self.lines, self.powers = lines[inside], powers[inside]
        self.heights = self.at(self.lines) + periodogram.gain * self.powers

    def at(self, f: np.ndarray) -> np.ndarray:
        """The density at frequencies `[F]`, with noise; folded into the band of a grid."""
        density = self._spectrum.density
        if density is None:
            return np.full(f.shape, self._level)
        if self._band is None:
            return density(f) + self._level
        aliases = self._band * np.arange(-_ALIASES, _ALIASES + 1)
        return self._level + sum(density(f + alias) for alias in aliases)

    def smeared(self, periodogram: _TaperedPeriodogram) -> np.ndarray:
        """The expected periodogram of irregular x, at its frequencies."""
        from scipy.signal import fftconvolve  # here: importing it takes long

        assert periodogram.scatter is not None
        half = len(periodogram.scatter) // 4
        f, signal = self.frequencies, self.density - self._level
        below = np.append(0.0, np.cumsum(0.5 * (signal[1:] + signal[:-1]) * np.diff(f)))
        edges = periodogram.spacing * (np.arange(-half, half + 2) - 0.5)
        masses = np.diff(np.interp(edges, f, below))
        places = np.rint(self.lines / periodogram.spacing).astype(int) + half
        masses += np.bincount(places, self.powers, len(masses))
        smeared = self._level + fftconvolve(periodogram.scatter, masses, mode="valid")
        return smeared[np.rint(periodogram.frequencies / periodogram.spacing).astype(int) + half]

    def _refined(self, f: np.ndarray) -> np.ndarray:
        """Frequencies on a finer grid where a peak is narrow."""
        for _ in range(3):
            height = self.at(f)
            peaks = 1 + np.flatnonzero((height[1:-1] > height[:-2]) & (height[1:-1] > height[2:]))
            between = [np.linspace(f[i - 1], f[i + 1], 41) for i in peaks[:_ALIASES]]
            f = np.unique(np.concatenate([f, *between]))
        return f
