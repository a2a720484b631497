"""What a Kalman filter minimises: its negative log likelihood and that of priors."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.layers.learned_model import LearnedModel
from cgp.linalg.arguments import is_nan
from cgp.statespace.series import Series
from cgp.training import keras_private
from cgp.training.batches import check_compiled, mean_over_replicas


def check_learnable(model: keras.Model, x: Any, y: Any) -> None:
    """Raises where a filter cannot learn from what `fit` was given, or `evaluate` judge by it."""
    check_compiled(model, "optimizer=cgp.optimizers.LBFGS()")
    if y is not None:
        raise TypeError(
            "a KalmanFilter learns from series alone, fit(z): its steps are regular, and have no "
            "times x. For samples at times of their own there is cgp.StateSpaceGP"
        )
    if isinstance(x, np.ndarray) and np.isnan(x).all():
        raise ValueError("every element of z is missing: there is nothing to learn from")


class LikelihoodObjective:
    """The loss of series, per observed element.

    The mean over batches weighs each by its observed elements, so that it is the loss of all data,
    in which a prior counts once: each batch and replica has an equal share of it.

    Args:
        present: The learned model.
        dtype: Its real dtype.

    Attributes:
        batch_count: The number of batches of all the data, see `Trainer`; None without priors.
    """

    def __init__(self, present: LearnedModel, dtype: str):
        self._present = present
        self._count: tf.Tensor | None = None
        self.batch_count: tf.Variable | None = None
        if present.with_priors:
            self.batch_count = tf.Variable(1.0, trainable=False, dtype=dtype, name="batch_count")

    def loss(self, series: Series, log_likelihoods: tf.Tensor) -> tf.Tensor:
        """The loss of one batch.

        Args:
            series: The batch.
            log_likelihoods: Of any shape, to be added up.
        """
        count = self._count
        if count is None:
            seen = tf.reduce_sum(tf.cast(series.observed, log_likelihoods.dtype))
            count = seen / series.model.form.multiplicity
        log_density = tf.reduce_sum(log_likelihoods)
        if self.batch_count is not None:
            replicas = tf.distribute.get_strategy().num_replicas_in_sync
            log_density += self._present.log_prior() / (self.batch_count * replicas)
        return -log_density / tf.where(count > 0.0, count, tf.ones_like(count))

    @contextlib.contextmanager
    def of_step(self, model: keras.Model, data: Any) -> Iterator[None]:
        """A context of a `train_step` or `test_step` of Keras, in which batches weigh as they do.

        Args:
            model: The filter.
            data: Of the step; NaN where missing.
        """
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        z = x[0] if isinstance(x, tuple | list) else x
        observed = tf.cast(tf.math.logical_not(is_nan(z)), model.variable_dtype)
        # Counted before the call: replicas wait for each other here, and one that waits between a
        # loss and the sum of losses finds those of others among its own.
        count = mean_over_replicas(tf.reduce_sum(observed))
        with keras_private.loss_weighed(model, tf.shape(z)[0], count):
            self._count = count
            try:
                yield
            finally:
                self._count = None
