"""Gaussian processes over a line in state-space form, in linear time."""

from cgp.gp.state_space.state_space_gp import StateSpaceGP

__all__ = ["StateSpaceGP"]
