"""The loss of a KalmanFilter over batches: each weighs by what was observed of it."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import statespace


def data():
    rng = np.random.default_rng(0)
    z = 10.0 * rng.normal(size=(4, 12, 1))
    z[0, 2:] = np.nan
    z[2, 7:] = np.nan
    return z


def model():
    return statespace.LinearGaussian([[0.5]], [[1.0]], [[1.0]], [[1.0]])


@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_is_the_loss_of_batches_that_of_all_elements(batch_size):
    kf, z = cgp.KalmanFilter(model(), learn=("Q",)), data()
    kf.compile()
    total = float(tf.reduce_sum(statespace.log_likelihood(model(), z)))
    expected = -total / np.sum(~np.isnan(z))
    np.testing.assert_allclose(kf.evaluate(z, batch_size=batch_size, verbose=0), expected, 1e-12)
