"""Rules by which functions of uncertain states are taken as affine: one object each."""

from cgp.statespace.linearization.iterated import Iterated
from cgp.statespace.linearization.sigma_points import SigmaPoints
from cgp.statespace.linearization.taylor import Taylor

__all__ = ["Iterated", "SigmaPoints", "Taylor"]
