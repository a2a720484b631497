"""Mean functions of a Gaussian process, with complex values."""

from cgp.gp.means.base import Mean
from cgp.gp.means.rational import Rational
from cgp.gp.means.trends import Constant, Polynomial

__all__ = ["Constant", "Mean", "Polynomial", "Rational"]
