"""Gaussian processes of complex signals."""

from cgp.gp import means
from cgp.gp.exact_gp import ExactGP
from cgp.gp.grid import GridGP
from cgp.gp.recursive.recursive_gp import RecursiveGP
from cgp.gp.sparse.sparse_gp import SparseGP
from cgp.gp.state_space.state_space_gp import StateSpaceGP
from cgp.gp.vecchia import VecchiaGP

__all__ = ["ExactGP", "GridGP", "RecursiveGP", "SparseGP", "StateSpaceGP", "VecchiaGP", "means"]
