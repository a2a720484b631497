"""Plots of complex series, their predictions, innovations, spectra and fits; needs `cgp[plot]`."""

from cgp.plotting.fit_health import fit_health
from cgp.plotting.innovations import innovations
from cgp.plotting.plane import plane
from cgp.plotting.series_plot import series
from cgp.plotting.spectrum_plot import spectrum

__all__ = ["fit_health", "innovations", "plane", "series", "spectrum"]
