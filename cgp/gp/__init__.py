"""Gaussian processes of complex signals."""

from cgp.gp import means
from cgp.gp.exact import ExactGP
from cgp.gp.recursive import RecursiveGP
from cgp.gp.state_space import StateSpaceGP

__all__ = ["ExactGP", "RecursiveGP", "StateSpaceGP", "means"]
