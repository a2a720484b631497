"""Layers for pipelines: filters, interpolation, learned matrices, recurrent layers, bridges."""

from cgp.layers.bridges import RealImag, ToComplex
from cgp.layers.gp_interpolator import GPInterpolator
from cgp.layers.kalman_filter import KalmanFilter
from cgp.layers.learned_model import Covariance, Matrix
from cgp.layers.recursive import Recursive
from cgp.layers.recursive_least_squares import RecursiveLeastSquares

__all__ = [
    "Covariance",
    "GPInterpolator",
    "KalmanFilter",
    "Matrix",
    "RealImag",
    "Recursive",
    "RecursiveLeastSquares",
    "ToComplex",
]
