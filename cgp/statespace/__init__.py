"""State-space models and their recursions, in plain TensorFlow."""

from cgp.statespace.compiled import clear_cache
from cgp.statespace.diagnostics import Diagnostics, diagnostics
from cgp.statespace.engines.filter_step import State
from cgp.statespace.filtering import filter, log_likelihood
from cgp.statespace.forecasting import Forecast, forecast
from cgp.statespace.linearization.rules import Affine, Iterated, Rule, SigmaPoints, Taylor
from cgp.statespace.models.conditionally_linear import ConditionallyLinear
from cgp.statespace.models.kernel_model import from_kernel
from cgp.statespace.models.linear_gaussian import LinearGaussian
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian
from cgp.statespace.models.widely_linear import widely_linear
from cgp.statespace.online.online_step import step
from cgp.statespace.particles import ConditionalParticles, Particles, particle_filter
from cgp.statespace.results import Filtered
from cgp.statespace.sampling import Sampled, posterior_sample, sample
from cgp.statespace.smoothing import Smoothed, smooth
from cgp.statespace.steady_states import SteadyState, steady_state
from cgp.statespace.switching import InteractingFiltered, InteractingModels

__all__ = [
    "Affine",
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
    "Rule",
    "Sampled",
    "SigmaPoints",
    "Smoothed",
    "State",
    "SteadyState",
    "Taylor",
    "clear_cache",
    "diagnostics",
    "filter",
    "forecast",
    "from_kernel",
    "log_likelihood",
    "particle_filter",
    "posterior_sample",
    "sample",
    "smooth",
    "steady_state",
    "step",
    "widely_linear",
]
