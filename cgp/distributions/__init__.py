"""Complex normal distributions, their marginals, and credible ellipses."""

from cgp.distributions.complex_normal import (
    ComplexNormal,
    Ellipses,
    ellipses,
    principal_axes,
    squared_radius,
)
from cgp.distributions.marginals import JointMoments, Marginals, Step, marginals

__all__ = [
    "ComplexNormal",
    "Ellipses",
    "JointMoments",
    "Marginals",
    "Step",
    "ellipses",
    "marginals",
    "principal_axes",
    "squared_radius",
]
