"""The weights of a running stream, loaded into an object that has not run."""

import numpy as np
import pytest

import cgp
from cgp.kernels import Matern12, Rotation
from tests.layers.models import made


def kernel():
    return Matern12(1.0, 3.0) * Rotation(0.1)


def kalman_filter():
    return cgp.KalmanFilter(made()[0], learn=("Q", "R"))


def observations(*shape, seed=5):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def stepped(stream, first, count, z):
    return [stream.step(*([t] * first), z[t]) for t in range(count)]


STREAMS = {
    "KalmanFilter": (kalman_filter, 0, (2,)),
    "KalmanFilter, one stream with an axis": (kalman_filter, 0, (1, 2)),
    "KalmanFilter, several": (kalman_filter, 0, (3, 2)),
    "RecursiveGP": (lambda: cgp.RecursiveGP(kernel(), 0.1, capacity=4), 1, ()),
    "RecursiveGP, one stream with an axis": (
        lambda: cgp.RecursiveGP(kernel(), 0.1, capacity=4), 1, (1,)
    ),
    "StateSpaceGP": (lambda: cgp.StateSpaceGP(kernel(), 0.1), 1, ()),
}  # fmt: skip


@pytest.mark.parametrize("kind", STREAMS)
def test_do_weights_of_a_running_stream_go_on_in_a_fresh_object(kind, tmp_path):
    make, first, shape = STREAMS[kind]
    stream, z = make(), observations(8, *shape)
    stepped(stream, first, 6, z)
    for variable in stream.trainable_variables:
        variable.assign(variable + 0.1)
    stream.save_weights(tmp_path / "stream.weights.h5")
    fresh = make()
    fresh.load_weights(tmp_path / "stream.weights.h5")
    for t in (6, 7):
        found, expected = (s.step(*([t] * first), z[t]) for s in (fresh, stream))
        np.testing.assert_array_equal(found.filtered.mean, expected.filtered.mean)
        np.testing.assert_array_equal(found.predicted.variance, expected.predicted.variance)
        assert np.shape(found.innovation) == shape


def test_is_a_damaged_state_refused_before_a_fresh_filter_has_streams(tmp_path):
    stream = kalman_filter()
    stream.step(observations(2))
    stream.weights[0].assign(np.full(stream.weights[0].shape, np.inf))
    stream.save_weights(tmp_path / "stream.weights.h5")
    fresh = kalman_filter()
    with pytest.raises(ValueError, match="damaged"):
        fresh.load_weights(tmp_path / "stream.weights.h5")
    fresh.step(observations(3, 2))  # of another number of streams
