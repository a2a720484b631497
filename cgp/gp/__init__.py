"""Gaussian processes of complex signals."""

from cgp.gp import means
from cgp.gp.exact import ExactGP

__all__ = ["ExactGP", "means"]
