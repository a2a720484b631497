"""The complex normal distribution, and the moments of predictions."""

from cgp.distributions.complex_normal import ComplexNormal, Ellipses, chi_squared_radius
from cgp.distributions.marginals import Marginals, marginals

__all__ = ["ComplexNormal", "Ellipses", "Marginals", "chi_squared_radius", "marginals"]
