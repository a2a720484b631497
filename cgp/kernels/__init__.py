"""Kernels: Keras layers that own the hyperparameters of complex covariance functions."""

from cgp.kernels.approximations import MarkovApproximation
from cgp.kernels.base import Constant, Kernel, Product, Sum
from cgp.kernels.driven import Driven
from cgp.kernels.improper import Conjugate, WidelyLinear
from cgp.kernels.rotation import Rotation
from cgp.kernels.stationary import RBF, Matern12, Matern32, Matern52, Periodic, RationalQuadratic
from cgp.kernels.walks import IntegratedRandomWalk, RandomWalk
from cgp.kernels.white import White

__all__ = [
    "RBF",
    "Conjugate",
    "Constant",
    "Driven",
    "IntegratedRandomWalk",
    "Kernel",
    "MarkovApproximation",
    "Matern12",
    "Matern32",
    "Matern52",
    "Periodic",
    "Product",
    "RandomWalk",
    "RationalQuadratic",
    "Rotation",
    "Sum",
    "White",
    "WidelyLinear",
]
