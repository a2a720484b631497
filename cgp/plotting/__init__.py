"""Plots of complex series, their predictions, innovations and fits; needs `cgp[plot]`."""

from cgp.plotting.fit_health import fit_health
from cgp.plotting.innovations import innovations
from cgp.plotting.plane import plane
from cgp.plotting.series_plot import series

__all__ = ["fit_health", "innovations", "plane", "series"]
