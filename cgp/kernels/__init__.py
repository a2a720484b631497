"""Kernels: Keras layers that own the hyperparameters of complex covariance functions."""

from cgp.kernels.along import Along
from cgp.kernels.autoregressive import ARMA, Autoregressive
from cgp.kernels.base import Constant, Kernel, Product, Sum
from cgp.kernels.delay_profile import ExponentialDelays, Szego, TappedDelays, UniformDelays
from cgp.kernels.driven import Driven
from cgp.kernels.elliptical_ou import EllipticalOU
from cgp.kernels.empirical import Empirical
from cgp.kernels.improper import Conjugate, WidelyLinear
from cgp.kernels.levels import Levels
from cgp.kernels.linear_sde import linear_sde
from cgp.kernels.markov import Generator, MarkovForm
from cgp.kernels.markov_approximation import MarkovApproximation
from cgp.kernels.outputs import Coregionalized, Outputs
from cgp.kernels.relaxation_times import RelaxationTimes
from cgp.kernels.rotation import Rotation
from cgp.kernels.stationary import (
    RBF,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    TwoScale,
)
from cgp.kernels.walks import IntegratedRandomWalk, RandomWalk
from cgp.kernels.white import White, Zero

__all__ = [
    "ARMA",
    "RBF",
    "Along",
    "Autoregressive",
    "Conjugate",
    "Constant",
    "Coregionalized",
    "Driven",
    "EllipticalOU",
    "Empirical",
    "ExponentialDelays",
    "Generator",
    "IntegratedRandomWalk",
    "Kernel",
    "Levels",
    "MarkovApproximation",
    "MarkovForm",
    "Matern",
    "Matern12",
    "Matern32",
    "Matern52",
    "Outputs",
    "Periodic",
    "Product",
    "RandomWalk",
    "RationalQuadratic",
    "RelaxationTimes",
    "Rotation",
    "Sum",
    "Szego",
    "TappedDelays",
    "TwoScale",
    "UniformDelays",
    "White",
    "WidelyLinear",
    "Zero",
    "linear_sde",
]
