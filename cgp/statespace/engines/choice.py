"""The choice of the engine that computes a Kalman filter or smoother.

On a CPU, eagerly and in training, compiled ops, where they were built and do not refuse; else
chunks that XLA compiles; all steps at once, where that is asked for.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from cgp.statespace.engines import (
    chunked_filter,
    chunked_smoother,
    parallel_filter,
    parallel_gradient,
    parallel_smoother,
)
from cgp.statespace.engines.backward_pass import Cotangents
from cgp.statespace.engines.chunked_filter import StateMoments
from cgp.statespace.engines.filter_step import State
from cgp.statespace.engines.forward_pass import System


class Engine(NamedTuple):
    """The functions of an engine in TensorFlow, of arrays `[T, …, B]`."""

    log_likelihood: Callable[[System, State], tuple[tuple[tf.Tensor], State]]
    """The log likelihood of each series, and the states that the pullback starts from."""
    moments: Callable[[System, State], tuple[StateMoments, State]]
    """The moments of the states, and the states that the pullback starts from."""
    pullback: Callable[[System, State, Cotangents, State], list[tf.Tensor]]
    """The gradients of both by the fields in `DIFFERENTIABLE`, the first mean and covariance."""
    smooth: Callable[[System, State, State], list[tf.Tensor]]
    """Smoothed means; factors, lag-one covariances and gains: by the filtered moments, the last."""


_CHUNKED = Engine(
    chunked_filter.log_likelihood,
    chunked_filter.moments,
    chunked_filter.pullback,
    chunked_smoother.smooth,
)
_PARALLEL = Engine(
    parallel_filter.log_likelihood,
    parallel_filter.moments,
    parallel_gradient.pullback,
    parallel_smoother.smooth,
)


def computed(
    parallel: bool, natively: Callable[[], Any], in_tensorflow: Callable[[Engine], Any]
) -> Any:
    """Computes a filter or a smoother by the engine that serves.

    Args:
        parallel: Whether to compute all steps at once.
        natively: Computes it by compiled ops; it returns None where they do not serve, or refuse.
        in_tensorflow: Computes it by the functions of an engine.
    """
    result = None if parallel else natively()
    return in_tensorflow(_PARALLEL if parallel else _CHUNKED) if result is None else result
