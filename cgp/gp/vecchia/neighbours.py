"""The neighbours of samples, in a random order and in the metric of the kernel.

A sample is predicted from the nearest of those before it. In a random order these are far away for
the first samples and near for the last, so that all scales are covered, and other orders gain
little (Guinness, Technometrics 60, 2018). What is near depends on the kernel: along each axis the
unit of distance is that at which the correlation has fallen to a half. Covariances alone tell it,
so that sums, products and kernels of one's own need no rules; rotations do not count.
"""

import numpy as np
import tensorflow as tf
from scipy.spatial import cKDTree

from cgp.gp.data import Data, Predecessors
from cgp.kernels.base import Kernel

_HALF = 0.5  # the correlation at the unit of distance
_PLACES = 400  # of an axis, at which the correlation is computed
_ORDER, _DRAW = 0, 1  # seeds
_QUERIED = 3  # times as many nearest points as neighbours, half of which come before in mean


def half_distances(kernel: Kernel, x: np.ndarray) -> np.ndarray:
    """The distance along each axis at which |correlation| first falls to a half, `[D]`.

    Correlations are of the most central of the points `[N, D]` with copies of it that have one
    coordinate of another point, as a kernel may take some coordinates alone, such as labels. An
    axis along which the correlation stays higher has its span, or 1 if that is zero.
    """
    spans = np.ptp(x, axis=0)
    spans[spans == 0.0] = 1.0
    centre = x[np.argmin(np.sum(((x - x.mean(axis=0)) / spans) ** 2, axis=1))]
    distances = spans.copy()
    for axis in range(x.shape[1]):
        column = x[:, axis]
        column = column[np.argsort(np.abs(column - centre[axis]), kind="stable")]
        numbers = np.unique(np.geomspace(1, len(x), _PLACES).astype(int)) - 1
        points = np.repeat(centre[None], len(numbers) + 1, axis=0)
        points[1:, axis] = column[numbers]
        cross = np.abs(kernel.moments_matrix(points, points[:1]).k.numpy()[:, 0])
        variances = np.real(kernel.moments_diagonal(points).k.numpy())
        scale = np.sqrt(np.maximum(variances * variances[0], 0.0))
        steps = np.abs(points[:, axis] - centre[axis])
        below = np.flatnonzero((cross < _HALF * scale) & (steps > 0.0))
        if len(below):
            distances[axis] = steps[below[0]]
    return distances


def nearest_before(x: np.ndarray, count: int) -> np.ndarray:
    """The numbers of the nearest points before each of `[N, D]`, `[N, count]`; −1 where fewer.

    From trees of the first points, twice as many each time. In a random order half of a tree's
    points come before one of its second half, in mean; those that lack some ask for more.
    """
    n = len(x)
    result = np.full((n, count), -1, np.int32)
    for i in range(1, min(count + 1, n)):
        result[i, count - i :] = np.arange(i)
    start = min(count + 1, n)
    while start < n and count:
        stop = min(2 * start, n)
        tree, rows, query_size = cKDTree(x[:stop]), np.arange(start, stop), _QUERIED * count
        while len(rows):
            query_size = min(query_size, stop)
            near = tree.query(x[rows], query_size)[1].reshape(len(rows), query_size)
            is_before = near < rows[:, None]
            rank = np.cumsum(is_before, axis=1)
            is_full = rank[:, -1] >= count
            chosen = is_before & (rank <= count) & is_full[:, None]
            result[rows[is_full]] = near[chosen].reshape(-1, count)
            rows, query_size = rows[~is_full], 2 * query_size
        start = stop
    return result


def predecessors(
    kernel: Kernel, x: np.ndarray, present: np.ndarray, count: int, most: int | None = None
) -> Predecessors:
    """The neighbours of samples in the present metric of the kernel.

    Args:
        kernel: The kernel.
        x: The inputs, `[N, D]`.
        present: Whether there is a sample, bool `[N]`.
        count: The number of neighbours of a sample.
        most: The number of samples that stand for all, drawn at random, if there are more; None
            for all that are present.
    """
    numbers = np.random.default_rng(_ORDER).permutation(np.flatnonzero(present))
    if not len(numbers):
        return Predecessors(tf.zeros([0], tf.int32), tf.zeros([0, count], tf.int32))
    order = numbers.astype(np.int32)
    scaled = np.asarray(x, float)[order] / half_distances(kernel, x[order])
    near = nearest_before(scaled, count)
    near = np.where(near >= 0, order[near], -1).astype(np.int32)
    if most is not None:
        # As many rows for all data of one size, or each of them would be compiled for.
        size = min(most, len(present))
        drawn = np.random.default_rng(_DRAW).permutation(len(order))[:size]
        padding = [(0, size - len(drawn))]
        order = np.pad(order[drawn], padding, constant_values=-1)
        near = np.pad(near[drawn], [*padding, (0, 0)], constant_values=-1)
    return Predecessors(tf.constant(order), tf.constant(near))


class NearestSamples:
    """The samples nearest to new points; it keeps the tree of the last samples."""

    def __init__(self) -> None:
        self._scaled = np.zeros([0, 0])
        self._tree: cKDTree | None = None

    def query(
        self, kernel: Kernel, x: np.ndarray, present: np.ndarray, points: np.ndarray, count: int
    ) -> np.ndarray:
        """The numbers of the present samples nearest to points `[M, D]`, int32, `[M, count]`.

        −1 where there are fewer.
        """
        numbers = np.flatnonzero(present)
        unit = half_distances(kernel, x[numbers])
        scaled = x[numbers] / unit
        if self._tree is None or not np.array_equal(scaled, self._scaled):
            self._scaled, self._tree = scaled, cKDTree(scaled)
        # Where there are fewer samples their number stands for one.
        near = self._tree.query(points / unit, count)[1].reshape(len(points), count)
        return np.append(numbers, -1)[near].astype(np.int32)


def nearest_in_graph(data: Data, points: tf.Tensor, unit: tf.Tensor, count: int) -> tf.Tensor:
    """The numbers of the samples nearest to each of points `[M, D]`, int32, `[M, count]`.

    By all distances, in units `[D]` of each axis, for graphs that run without Python.
    """
    scaled, present = data.x[0] / unit, data.present[0]

    def nearest(point: tf.Tensor) -> tf.Tensor:
        squares = tf.reduce_sum(tf.square(scaled - point), axis=-1)
        squares = tf.where(present, squares, tf.constant(np.inf, squares.dtype))
        return tf.math.top_k(-squares, count).indices

    return tf.map_fn(nearest, points / unit, fn_output_signature=tf.int32)
