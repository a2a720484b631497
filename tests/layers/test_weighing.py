"""The loss of a KalmanFilter over batches: each weighs by what was observed of it."""

import subprocess
import sys

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


def test_are_masked_elements_of_a_series_with_inputs_missing():
    driven, z, inputs = model().replace(B=[[1.0]]), data(), np.ones((4, 12, 1))
    kf = cgp.KalmanFilter(driven)
    kf.compile()
    masked = np.ma.array(np.nan_to_num(z, nan=1e6), mask=np.isnan(z))
    found, expected = (kf.evaluate((a, inputs), verbose=0) for a in (masked, z))
    assert found == expected


def test_do_two_replicas_equal_one():
    script = "tests.layers.two_replicas"
    done = subprocess.run([sys.executable, "-m", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
