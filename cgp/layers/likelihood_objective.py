"""The loss that a layer minimises: the negative log likelihood of series, less the log prior."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import is_nan
from cgp.training import keras_private
from cgp.training.batches import mean_over_replicas
from cgp.training.hyperparameters import one_number
from cgp.training.parameters import Parameter


def checked_weight(loss_weight: float) -> float:
    """Returns the factor of a loss, or raises an error."""
    weight = float(np.asarray(one_number(loss_weight, "loss_weight")))
    if not 0.0 <= weight < np.inf:
        raise ValueError(f"loss_weight must be finite and not negative, got {loss_weight!r}")
    return weight


class LikelihoodObjective:
    """The loss of series, per observed element.

    The mean over batches weighs each by its observed elements, so that it is the loss of all data,
    in which a prior counts once: each batch and replica has an equal share of it. A batch without
    any observation weighs nothing, and its share is missing from the mean.
    """

    batch_count: tf.Variable | None = None
    """The number of batches of all the data (see `Trainer`); None without priors."""

    def __init__(self, with_priors: Sequence[Parameter], dtype: str):
        self._with_priors = with_priors
        self._count: tf.Tensor | None = None
        if with_priors:
            self.batch_count = tf.Variable(1.0, trainable=False, dtype=dtype, name="batch_count")

    def loss(self, observed: tf.Tensor, log_likelihoods: tf.Tensor) -> tf.Tensor:
        """The loss of one batch of so many observed elements, a real tensor."""
        count = observed if self._count is None else self._count
        log_density = tf.reduce_sum(log_likelihoods)
        if self.batch_count is not None:
            replicas = tf.distribute.get_strategy().num_replicas_in_sync
            densities = [tf.cast(p.log_prior(), log_density.dtype) for p in self._with_priors]
            log_density += tf.add_n(densities) / (self.batch_count * replicas)
        return -log_density / tf.where(count > 0.0, count, tf.ones_like(count))

    @contextlib.contextmanager
    def of_step(self, model: keras.Model, data: Any) -> Iterator[None]:
        """The context of a `train_step` or `test_step` of Keras, which weighs its batch."""
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        # Where a model runs eagerly, Keras passes arrays of NumPy.
        z = tf.convert_to_tensor(x[0] if isinstance(x, tuple | list) else x)
        observed = tf.cast(tf.math.logical_not(is_nan(z)), model.variable_dtype)
        # Counted before the call: replicas wait for each other here, and one that waits between a
        # loss and the sum of losses finds the losses of others among its own.
        count = mean_over_replicas(tf.reduce_sum(observed))
        with keras_private.loss_weighed(model, tf.shape(z)[0], count):
            self._count = count
            try:
                yield
            finally:
                self._count = None
