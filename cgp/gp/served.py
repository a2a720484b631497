"""Gaussian processes as SavedModels: their posterior, given the data that they have taken in."""

from collections.abc import Sequence

import tensorflow as tf

from cgp.gp import posterior as predictions
from cgp.gp.base import as_dict
from cgp.gp.data import Data, flattened
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.training.saving import Outputs, Served


def served_posterior(process: SignalPlusNoise, data: Data | None, chol: tf.Tensor) -> Served:
    """`predict` given data, from the factor of their covariance.

    Args:
        process: Kernel, mean and noise.
        data: The data, as normal ones; None for the prior.
        chol: The factor, `[G, n, n]`.
    """
    if data is None:
        of_prior = [points(None, chol.dtype.real_dtype)]
        return Served((), lambda _, x: as_dict(predictions.prior(process, x, None)), of_prior)
    held = HeldData(data)

    def predict(state: tuple, x: tf.Tensor) -> Outputs:
        *arrays, chol = state
        data = held.of(arrays)
        given = predictions.condition(process, data, chol)
        return as_dict(predictions.posterior(process, data, given, flattened(x, 2), None))

    return Served((*held.arrays, chol), predict, [points(data.x.shape[-1], data.x.dtype)])


class HeldData:
    """Data as tensors that the variables of a SavedModel keep, and what is fixed of them.

    Args:
        data: The data.
    """

    def __init__(self, data: Data):
        self._batch = tf.constant(data.batch.numpy())
        self._noise = data.noise
        self.arrays = [data.x, data.z, *(part for part in data.noise if part is not None)]

    def of(self, arrays: Sequence[tf.Tensor]) -> Data:
        """The data of the tensors that `arrays` have become."""
        x, z, *parts = arrays
        rest = iter(parts)
        return Data(x, z, self._batch, self._noise.map(lambda _: next(rest)))


def points(dimensions: int | None, dtype: tf.DType) -> tf.TensorSpec:
    """The argument of `predict`, `[M, D]`."""
    return tf.TensorSpec([None, dimensions], dtype, "x")
