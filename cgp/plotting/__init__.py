"""Plots of complex series, predictions, innovations, spectra, grids, fits; needs `cgp[plot]`."""

from cgp.plotting.residuals import fit_health, innovations
from cgp.plotting.series_plot import plane, series
from cgp.plotting.spectrum_plot import spectrum
from cgp.plotting.waterfall_plot import waterfall

__all__ = ["fit_health", "innovations", "plane", "series", "spectrum", "waterfall"]
