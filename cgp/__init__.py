"""cgp: complex-valued Gaussian processes and Kalman filters, as TensorFlow and Keras 3 layers."""

import keras

if keras.config.backend() != "tensorflow":
    raise ImportError(
        f"cgp runs on Keras's TensorFlow backend, but it is {keras.config.backend()!r}: set the "
        'environment variable KERAS_BACKEND to "tensorflow" before Keras is imported'
    )

from cgp import (
    callbacks,
    datasets,
    kernels,
    layers,
    likelihoods,
    linalg,
    metrics,
    online,
    plotting,
    statespace,
    training,
)
from cgp.bank import Bank
from cgp.clock import Clock
from cgp.comparison import Comparison, compare
from cgp.distributions import ComplexNormal
from cgp.frames import to_frame, to_xarray
from cgp.gp import ExactGP, GridGP, RecursiveGP, SparseGP, StateSpaceGP, VecchiaGP, means
from cgp.layers import KalmanFilter, RecursiveLeastSquares
from cgp.linalg import NotPositiveDefiniteError
from cgp.training import (
    Functional,
    Model,
    clone_model,
    load_model,
    optimizers,
    refresh,
    register_post_update,
    sharing_scope,
)

__all__ = [
    "Bank",
    "Clock",
    "Comparison",
    "ComplexNormal",
    "ExactGP",
    "Functional",
    "GridGP",
    "KalmanFilter",
    "Model",
    "NotPositiveDefiniteError",
    "RecursiveGP",
    "RecursiveLeastSquares",
    "SparseGP",
    "StateSpaceGP",
    "VecchiaGP",
    "callbacks",
    "clone_model",
    "compare",
    "datasets",
    "kernels",
    "layers",
    "likelihoods",
    "linalg",
    "load_model",
    "means",
    "metrics",
    "online",
    "optimizers",
    "plotting",
    "refresh",
    "register_post_update",
    "sharing_scope",
    "statespace",
    "to_frame",
    "to_xarray",
    "training",
]

__version__ = "0.1.0"
