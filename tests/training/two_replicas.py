"""Trains under MirroredStrategy on two logical CPUs, in a process of its own.

Logical devices must be configured before TensorFlow starts.
"""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

if __name__ == "__main__":
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

import cgp
from cgp import statespace
from cgp.training.batches import require_one_replica
from tests.training import toys


def train(model, x, y):
    with model.distribute_strategy.scope():
        optimizer = keras.optimizers.Adam(0.05)
        model.compile(optimizer, toys.mean_squared_error())
    history = model.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0)
    return history.history["loss"]


def filters(strategy):
    """A Kalman filter on one replica, and one on two."""
    model = statespace.LinearGaussian([[0.5]], [[1.0]], [[1.0]], [[1.0]])
    for scope in (contextlib.nullcontext(), strategy.scope()):
        with scope:
            kf = cgp.KalmanFilter(model, learn=("F", "Q"))
            kf.compile(keras.optimizers.Adam(0.05))
        yield kf


def check_weights_of_missing_data(strategy):
    """The loss is that of an observed element, however few of them a replica was given."""
    rng = np.random.default_rng(0)
    z = 10.0 * rng.normal(size=(8, 6, 1))
    z[0, 1:] = z[1] = z[3, 2:] = z[5] = np.nan
    one, two = filters(strategy)
    total = float(tf.reduce_sum(statespace.log_likelihood(one.model, z)))
    expected = -total / np.sum(~np.isnan(z))
    for kf in (one, two):
        for batch_size in (2, 8):
            result = kf.evaluate(z, batch_size=batch_size, verbose=0)
            np.testing.assert_allclose(result, expected, rtol=1e-12)
    losses = [
        kf.fit(z, batch_size=4, epochs=2, shuffle=False, verbose=0).history["loss"]
        for kf in (one, two)
    ]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-9)
    for name in ("F", "Q"):
        np.testing.assert_allclose(getattr(two, name), getattr(one, name), rtol=1e-9)
        assert not np.allclose(getattr(one, name), getattr(one._start, name).numpy(), rtol=1e-3)


def check(strategy):
    x, y = toys.series(48)
    one = toys.network()
    with strategy.scope():
        two = toys.network()
    toys.copy_trainables(one, two)
    losses = [train(model, x, y) for model in (one, two)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-9)
    for a, b in zip(one.trainable_variables, two.trainable_variables, strict=True):
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-9, atol=1e-12)

    features = two.get_layer("features")
    assert toys.staleness(features) < 1e-12
    for replica in strategy.experimental_local_results(features.chol.value):
        np.testing.assert_array_equal(replica.numpy(), features.chol.numpy())

    # A change from outside, found by the replicas themselves and then by hand
    features.kernel.log_variance.assign(0.3)
    one.get_layer("features").kernel.log_variance.assign(0.3)
    predictions = [model.predict(x, batch_size=8, verbose=0) for model in (one, two)]
    np.testing.assert_allclose(predictions[1], predictions[0], rtol=1e-9)
    assert toys.staleness(features) < 1e-12
    features.kernel.log_variance.assign(0.2)
    two.apply_post_updates()
    for replica in strategy.experimental_local_results(features.chol.value):
        np.testing.assert_array_equal(replica.numpy(), features.chol.numpy())
    assert toys.staleness(features) < 1e-12

    # What needs all of its data says so
    require_one_replica(one, "an estimator")
    with pytest.raises(ValueError, match=r"an estimator needs all the data at once .* not on 2"):
        require_one_replica(two, "an estimator")
    two.compile(cgp.optimizers.LBFGS(), toys.mean_squared_error())
    with pytest.raises(ValueError, match="LBFGS needs all the data at once"):
        two.fit(x, y, verbose=0)


if __name__ == "__main__":
    assert len(tf.config.list_logical_devices("CPU")) == 2
    both = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    check(both)
    check_weights_of_missing_data(both)
