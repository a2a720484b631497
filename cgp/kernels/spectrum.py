"""Spectra of stationary processes over one dimension.

By Bochner's theorem a stationary covariance is `K(x) = ∫ S(f) e^{+i2πfx} df + Σ p[k] e^{+i2πf[k]x}`
with S and p not negative: a density, and lines. Over f of both signs it is the rotary spectrum of a
complex process. White noise, which points at different x do not share, has neither.
"""

from collections.abc import Callable
from typing import NamedTuple

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
