"""Trains a filter with a prior under MirroredStrategy on two logical CPUs, in a process of its own.

Logical devices must be configured before TensorFlow starts.
"""

import keras
import numpy as np
import tensorflow as tf

if __name__ == "__main__":
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

from tests.layers.test_priors import data, expected, learner


def train(strategy):
    with strategy.scope():
        kf = learner(optimizer=keras.optimizers.SGD(0.05))
    loss = kf.evaluate(data(), batch_size=2, verbose=0)
    np.testing.assert_allclose(loss, expected(data()), rtol=1e-12)
    kf.fit(data(), batch_size=2, shuffle=False, epochs=2, verbose=0)
    return loss, kf.Q[0, 0]


if __name__ == "__main__":
    two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    results = [train(strategy) for strategy in (tf.distribute.get_strategy(), two)]
    np.testing.assert_allclose(*results, rtol=1e-10)
