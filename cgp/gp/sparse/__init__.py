"""Gaussian processes of many scattered points, by fewer inducing points."""

from cgp.gp.sparse.sparse_gp import SparseGP

__all__ = ["SparseGP"]
