"""Draws of hyperparameters from their posterior, instead of the one value that is most likely."""

from cgp.gp.sampling.parameter_draws import ParameterDraws

__all__ = ["ParameterDraws"]
