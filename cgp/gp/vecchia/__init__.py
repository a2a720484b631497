"""Gaussian processes of many scattered points, each predicted from those nearest to it."""

from cgp.gp.vecchia.vecchia_gp import VecchiaGP

__all__ = ["VecchiaGP"]
