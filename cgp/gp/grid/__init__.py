"""Gaussian processes over grids: covariances that are Kronecker products of those of the axes."""

from cgp.gp.grid.grid_gp import GridGP

__all__ = ["GridGP"]
