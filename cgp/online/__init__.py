"""Estimators that take one sample after another: cells, and what is done with them."""

from cgp.online.cell import Cell, Compiled, Piece, Sample, step_of
from cgp.online.online import Online

__all__ = ["Cell", "Compiled", "Online", "Piece", "Sample", "step_of"]
