"""Data and new points sorted together, as a series of a linear Gaussian model."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.gp.data import Data
from cgp.gp.noise import SampleNoise
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.gp.state_space.discretization import DiscretizedProcess, StateAt, StoredState
from cgp.statespace.models.linear_gaussian import LinearGaussian


class OrderedSeries(NamedTuple):
    """A series over data and new points, in the order of their places."""

    model: LinearGaussian
    z: tf.Tensor
    """Observations, `[B, T, 1]`, NaN where missing and at new points."""
    new: tf.Tensor
    """The position of each new point in the series, `[B, M]`."""

    @property
    def H(self) -> tf.Tensor:
        """The observation matrix, the same for all series."""
        return self.model.H[0] if self.model.H.shape.rank > 2 else self.model.H


def ordered_series(
    process: SignalPlusNoise,
    data: Data,
    x: tf.Tensor | None = None,
    start: StateAt | StoredState | None = None,
) -> OrderedSeries:
    """The model of data and of new points between, before and after them.

    Args:
        process: Kernel, mean and noise.
        data: The data, possibly without points.
        x: New points, `[1, M, 1]` or `[B, M, 1]`, in any order; None for none.
        start: The state from which the series continues; None for the prior.
    """
    times, z = data.x[..., 0], data.z
    function = None if process.mean is None else process.mean.evaluate(data.x)
    if function is not None:
        z = z - function
    points = tf.shape(z)[1]
    if x is None:
        x = tf.zeros([1, 0, 1], data.x.dtype)
    series = tf.maximum(tf.shape(times)[0], tf.shape(x)[0])
    for a in data.noise:
        series = series if a is None else tf.maximum(series, tf.shape(a)[0])
    if data.x.shape[0] is not None and x.shape[0] is not None:
        series = max(data.x.shape[0], x.shape[0])
    times, new = (tf.broadcast_to(t, [series, tf.shape(t)[1]]) for t in (times, x[..., 0]))
    times = tf.concat([times, new], axis=-1)
    nothing = tf.fill([tf.shape(z)[0], tf.shape(new)[1]], tf.constant(np.nan, z.dtype))
    z = tf.concat([z, nothing], axis=-1)
    order = tf.argsort(times, axis=-1, stable=True)
    times = tf.gather(times, order, batch_dims=1)
    discretized = DiscretizedProcess(process)
    noise = _with_new(data, tf.shape(new)[1]).map(lambda a: _in_order(a, order))
    if times.shape[0] == 1:
        z = tf.gather(z, order[0], axis=-1)
        noise = noise.map(lambda a: a[0] if a.shape[0] == 1 else a)
        model = discretized.model(times[0], start, noise)
    else:
        z, model = tf.gather(z, order, batch_dims=1), discretized.model(times, start, noise)
    places = tf.argsort(order, axis=-1)[:, points:]
    places = tf.broadcast_to(places, [tf.shape(z)[0], tf.shape(places)[1]])
    return OrderedSeries(model, z[..., None], places)


def _with_new(data: Data, count: tf.Tensor) -> SampleNoise:
    """The noise of data and, zero, of new points, which are missing."""

    def extended(a: tf.Tensor) -> tf.Tensor:
        samples = tf.shape(data.z)[1]
        a = tf.broadcast_to(a, [tf.shape(a)[0], samples])
        return tf.pad(a, [[0, 0], [0, count]])

    return data.noise.map(extended)


def _in_order(a: tf.Tensor, order: tf.Tensor) -> tf.Tensor:
    """Values `[V, T]` of samples in an order `[1, T]` or `[B, T]`."""
    if order.shape[0] == 1:
        return tf.gather(a, order[0], axis=-1)
    return tf.gather(tf.broadcast_to(a, tf.shape(order)), order, batch_dims=1)
