"""Gaussian processes of complex signals."""

from cgp.gp import means
from cgp.gp.exact import ExactGP
from cgp.gp.recursive import RecursiveGP

__all__ = ["ExactGP", "RecursiveGP", "means"]
