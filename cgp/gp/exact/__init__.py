"""Gaussian processes with a dense covariance of all data."""

from cgp.gp.exact_gp import ExactGP

__all__ = ["ExactGP"]
