"""Predictions of a process at several points of its hyperparameters."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from cgp import native
from cgp.distributions.marginals import Marginals
from cgp.gp.base import as_dict
from cgp.gp.sampling.density import Coordinates
from cgp.linalg.arguments import ArrayLike
from cgp.statespace.compiled import graph_of


class MovedProcess:
    """A process whose hyperparameters are moved from point to point; give it a copy.

    Attributes:
        gp: The process.
        coordinates: Its trainable variables as one vector.
    """

    def __init__(self, gp: Any):
        self.gp, self.coordinates = gp, Coordinates(gp)
        self._predictors: dict[bool, Any] = {}

    def move(self, point: np.ndarray) -> None:
        """Writes unconstrained values `[P]` into the variables."""
        self.coordinates.assign(tf.constant(point, self.coordinates.dtype))

    def predict_at(
        self, points: np.ndarray, x: ArrayLike, observed: bool, **noise: Any
    ) -> Marginals:
        """Predictions at x under each of `[K, P]` points; arguments as for `gp.predict`, checked.

        Returns:
            NumPy arrays `[K, ..., M]`.
        """
        predictor = self._predictor(observed, noise)
        x, dtype = self.gp.inputs(x), self.coordinates.dtype
        moments = [[a.numpy() for a in predictor(tf.constant(p, dtype), x)] for p in points]
        return Marginals(*(np.stack(arrays) for arrays in zip(*moments, strict=True)))

    def _predictor(self, observed: bool, noise: dict[str, Any]) -> Callable[..., list[tf.Tensor]]:
        """A compiled function of weights `[P]` and inputs, cached unless noise is given."""
        if not noise and observed in self._predictors:
            return self._predictors[observed]

        def predict(point: tf.Tensor, x: tf.Tensor) -> list[tf.Tensor]:
            with native.own_graph():
                self.coordinates.assign(point)
                moments = as_dict(self.gp.posterior(x, observed=observed, **noise))
                return [moments[name] for name in Marginals._fields]

        predictor = graph_of(predict)
        if not noise:
            self._predictors[observed] = predictor
        return predictor
