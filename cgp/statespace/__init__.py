"""State-space models and their recursions, in plain TensorFlow."""

from cgp.statespace.compiled import clear_cache
from cgp.statespace.conditional_particles import ConditionalParticles
from cgp.statespace.conditionally_linear import ConditionallyLinear
from cgp.statespace.diagnostics import Diagnostics, diagnostics
from cgp.statespace.filtered import Filtered
from cgp.statespace.filtering import filter, log_likelihood
from cgp.statespace.forecasting import Forecast, forecast
from cgp.statespace.interacting_models import InteractingFiltered, InteractingModels
from cgp.statespace.linear_gaussian import LinearGaussian
from cgp.statespace.linearization import Iterated, SigmaPoints, Taylor
from cgp.statespace.nonlinear_gaussian import NonlinearGaussian
from cgp.statespace.online_step import step
from cgp.statespace.particle_filter import particle_filter
from cgp.statespace.particle_recursion import Particles
from cgp.statespace.sampling import Sampled, posterior_sample, sample
from cgp.statespace.smoothing import Smoothed, smooth
from cgp.statespace.widely_linear import widely_linear

__all__ = [
    "ConditionalParticles",
    "ConditionallyLinear",
    "Diagnostics",
    "Filtered",
    "Forecast",
    "InteractingFiltered",
    "InteractingModels",
    "Iterated",
    "LinearGaussian",
    "NonlinearGaussian",
    "Particles",
    "Sampled",
    "SigmaPoints",
    "Smoothed",
    "Taylor",
    "clear_cache",
    "diagnostics",
    "filter",
    "forecast",
    "log_likelihood",
    "particle_filter",
    "posterior_sample",
    "sample",
    "smooth",
    "step",
    "widely_linear",
]
