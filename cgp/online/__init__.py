"""Estimators that take one sample after another: cells, and the drivers that run them."""

from cgp.online.cell import Cell, Piece, Sample
from cgp.online.online import Online
from cgp.online.steps import step_of

__all__ = ["Cell", "Online", "Piece", "Sample", "step_of"]
