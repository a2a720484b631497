"""Data of several outputs in a state space: a series for each output, P beside each other.

Where a kernel has P outputs, `cgp.gp.data` makes P points of each sample. In a state space the P
values at one place are components of one observation, and `Data` has a row for each of them,
`[B P, N]`, at places `[X, N, 1]`: samples are joined, dropped and sorted as those of one signal.
"""

import numpy as np
import tensorflow as tf

from cgp.gp.data import Data
from cgp.gp.noise import SampleNoise
from cgp.gp.outputs import by_outputs, points_of_outputs, rows_of_outputs
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.linalg.arguments import complex_dtype


def in_rows(data: Data, outputs: int | None, noise_is_by_output: bool) -> Data:
    """Data of points, as `cgp.gp.data` makes them, with a row for each output.

    Where each output has a group of noise, the rows tell the groups.
    """
    if outputs is None:
        return data
    noise = data.noise._replace(group=None) if noise_is_by_output else data.noise
    series = tf.shape(data.z)[0]

    def rows(a: tf.Tensor) -> tf.Tensor:
        """`[1 or B, N P]` -> `[B P, N]`."""
        a = tf.broadcast_to(a, tf.concat([[series], tf.shape(a)[1:]], axis=0))
        return rows_of_outputs(a, outputs)

    return Data(
        data.x[:, ::outputs, :-1],
        rows(data.z),
        data.batch,
        noise.map(rows),
        data.functional.map(rows),
    )


def in_points(data: Data, outputs: int | None, noise_is_by_output: bool) -> Data:
    """The inverse of `in_rows`."""
    if outputs is None:
        return data

    def points(a: tf.Tensor) -> tf.Tensor:
        """`[B P, N]` -> `[B, N P]`."""
        return tf.reshape(by_sample(a, outputs), [-1, tf.shape(a)[-1] * outputs])

    noise = data.noise.map(points)
    if noise_is_by_output:
        noise = noise._replace(group=tf.tile(tf.range(outputs)[None], [1, tf.shape(data.z)[-1]]))
    x = points_of_outputs(data.x, outputs)
    return Data(x, points(data.z), data.batch, noise, data.functional.map(points))


def by_sample(a: tf.Tensor, outputs: int | None) -> tf.Tensor:
    """Rows `[B P, N]` as samples of P values, `[B, N, P]`; P is 1 for one signal, if None."""
    shape = tf.concat([[-1, outputs or 1], tf.shape(a)[1:]], axis=0)
    return tf.linalg.matrix_transpose(tf.reshape(a, shape))  # rearranged, not conjugated


def points_of(process: SignalPlusNoise, x: tf.Tensor) -> tf.Tensor:
    """Places `[..., N, 1]` as points of kernel and mean, of P outputs `[..., N P, 2]`."""
    return x if process.outputs is None else points_of_outputs(x, process.outputs)


def mean_function(process: SignalPlusNoise, x: tf.Tensor) -> tf.Tensor:
    """The mean function at places `[..., N, 1]`: `[..., N]`, or of P outputs `[..., N, P]`."""
    points = points_of(process, x)
    zeros = tf.zeros(tf.shape(points)[:-1], complex_dtype(x.dtype))
    return by_outputs(process.plus_function(zeros, points), process.outputs)


def rows_of(samples: np.ndarray) -> np.ndarray:
    """Samples of a block, `[B, T, P]` or `[T, P]`, as rows `[B P, T]`, NumPy."""
    rows = np.swapaxes(samples, -1, -2)
    return np.ascontiguousarray(rows).reshape(-1, rows.shape[-1])


def noise_of_samples(noise: SampleNoise, outputs: int | None) -> SampleNoise:
    """The noise of rows `[V P, N]` as that of samples, `[V, N, P]`, or `[V, N]` of one signal.

    One row is of all outputs.
    """
    if outputs is None:
        return noise

    def of_samples(a: tf.Tensor) -> tf.Tensor:
        rows = tf.maximum(tf.shape(a)[0], outputs)
        return by_sample(tf.broadcast_to(a, [rows, tf.shape(a)[1]]), outputs)

    return noise.map(of_samples)
