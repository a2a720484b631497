"""Draws of hyperparameters from their posterior, instead of the one value that is most likely."""

from cgp.gp.sampling.parameter_draws import ParameterDraws
from cgp.gp.sampling.parameter_sampling import ParameterSampling

__all__ = ["ParameterDraws", "ParameterSampling"]
