"""Estimators that take one sample after another: cells, and the drivers that run them."""

from cgp.online.cell import Cell, Piece, Sample, step_of
from cgp.online.online import Online

__all__ = ["Cell", "Online", "Piece", "Sample", "step_of"]
