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


@pytest.mark.long
def test_do_two_replicas_equal_one():
    script = "tests.layers.two_replicas"
    done = subprocess.run([sys.executable, "-m", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_are_masked_elements_of_a_call_missing():
    """Keras makes tensors of arrays before a layer sees them, and drops their masks."""
    kf = cgp.KalmanFilter(statespace.LinearGaussian([[0.5 + 0j]], [[1.0]], [[1.0]], [[1.0]]))
    z = np.ones((1, 4, 1), complex)
    hidden = np.arange(4)[None, :, None] == 2
    holes = np.where(hidden, np.nan, z)
    found = kf(np.ma.array(np.where(hidden, 1e3, z), mask=hidden))["filtered_mean"]
    np.testing.assert_array_equal(found, kf(holes)["filtered_mean"])
    gp, x = cgp.ExactGP(cgp.kernels.Matern32(1.0, 1.0), 0.1), np.arange(4.0)
    masked = np.ma.array(np.where(hidden, 1e3, z)[0, :, 0], mask=hidden[0, :, 0])
    np.testing.assert_array_equal(gp((x, masked))["mean"], gp((x, holes[0, :, 0]))["mean"])
    with pytest.raises(TypeError, match="masked elements must be of a float or complex array"):
        kf(np.ma.array([1, 2], mask=[True, False]))


@pytest.mark.parametrize("verb", ["fit", "evaluate"])
def test_is_what_a_filter_cannot_learn_from_refused(verb):
    kf = cgp.KalmanFilter(statespace.LinearGaussian([[0.5 + 0j]], [[1.0]], [[1.0]], [[1.0]]), "F")
    z = np.ones(5, complex)
    with pytest.raises(TypeError, match="learns from series alone"):
        getattr(kf, verb)(np.arange(5.0), z)
    with pytest.raises(ValueError, match="every element of z is missing"):
        getattr(kf, verb)(np.full(5, np.nan + 0j))
