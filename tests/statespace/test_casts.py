"""A function may cast its real states to complex numbers; gradients of it are right, and quiet."""

import logging

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import statespace
from cgp.linalg.gradients import without_warnings_of_casts
from tests.long_cases import long_except

STEP = tf.constant([[1.0, 1.0], [0.0, 1.0]], tf.float64)


def carrier(observation):
    return statespace.NonlinearGaussian(
        lambda x: tf.linalg.matvec(STEP, x),
        observation,
        Q=np.diag([1e-4, 1e-6]),
        R=[[0.1]],
        initial_mean=[0.0, 0.3],
        initial_covariance=np.diag([1.0, 1e-3]),
        jit_compile=False,
    )


CAST = carrier(lambda x: tf.exp(1j * tf.cast(x[..., :1], tf.complex128)))
PARTS = carrier(lambda x: tf.exp(tf.complex(tf.zeros_like(x[..., :1]), x[..., :1])))
Z = np.exp(0.3j * np.arange(8.0))


@pytest.fixture
def logged():
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    tf.get_logger().addHandler(handler)
    yield records
    tf.get_logger().removeHandler(handler)


def learned(model):
    kf = cgp.KalmanFilter(model, learn="R")
    kf.compile(optimizer=cgp.optimizers.LBFGS())
    kf.fit(Z[None, :, None], epochs=2, verbose=0)
    return kf.R


VERBS = {
    "filter": lambda model: statespace.filter(model, Z).filtered_means,
    "smooth": lambda model: statespace.smooth(model, Z).smoothed_means,
    "fit": learned,
}


@pytest.mark.parametrize("verb", long_except(VERBS, "filter"))
def test_is_no_warning_of_a_cast_logged(verb, logged):
    run = VERBS[verb]
    np.testing.assert_allclose(run(CAST), run(PARTS), rtol=1e-9, atol=1e-12)
    assert [record.getMessage() for record in logged] == []


def test_are_other_messages_and_later_ones_logged(logged):
    with without_warnings_of_casts():
        tf.get_logger().warning("This will discard the imaginary part")
        tf.get_logger().warning("something else")
    tf.get_logger().warning("This will discard the imaginary part")
    assert [record.getMessage() for record in logged] == [
        "something else",
        "This will discard the imaginary part",
    ]
