"""Gaussian processes that take in one sample at a time, into a window of fixed size."""

from cgp.gp.recursive.recursive_gp import RecursiveGP

__all__ = ["RecursiveGP"]
