"""Kernels: Keras layers that own the hyperparameters of complex covariance functions."""

from cgp.kernels.base import Constant, Kernel, Product, Sum
from cgp.kernels.improper import Conjugate, WidelyLinear
from cgp.kernels.rotation import Rotation
from cgp.kernels.stationary import RBF, Matern12, Matern32, Matern52, Periodic, RationalQuadratic
from cgp.kernels.white import White

__all__ = [
    "RBF",
    "Conjugate",
    "Constant",
    "Kernel",
    "Matern12",
    "Matern32",
    "Matern52",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "Rotation",
    "Sum",
    "White",
    "WidelyLinear",
]
