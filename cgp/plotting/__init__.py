"""Plots of complex series, their predictions, innovations, spectra and fits; needs `cgp[plot]`."""

from cgp.plotting.residuals import fit_health, innovations
from cgp.plotting.series_plot import plane, series
from cgp.plotting.spectrum_plot import spectrum

__all__ = ["fit_health", "innovations", "plane", "series", "spectrum"]
