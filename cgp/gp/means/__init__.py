"""Mean functions of a Gaussian process, with complex values."""

from cgp.gp.means.base import Constant, Mean, Polynomial
from cgp.gp.means.exponentials import Exponentials
from cgp.gp.means.outputs import Outputs
from cgp.gp.means.rational import Rational

__all__ = ["Constant", "Exponentials", "Mean", "Outputs", "Polynomial", "Rational"]
