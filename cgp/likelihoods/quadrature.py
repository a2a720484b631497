"""Expectations under normals in one and two real dimensions, by Gauss and Hermite's rule."""

import functools

import numpy as np
import tensorflow as tf


@functools.cache
def _rule(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights for the standard normal, `[K]`."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    return nodes, weights / weights.sum()


def points_1d(mean: tf.Tensor, variance: tf.Tensor, order: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Points `[K, ...]` of a normal of moments `[...]`, and their weights, `[K, 1, …]`."""
    nodes, weights = (tf.constant(a, mean.dtype) for a in _rule(order))
    shape = [order] + [1] * mean.shape.rank
    nodes, weights = (tf.reshape(a, shape) for a in (nodes, weights))
    return mean + tf.sqrt(variance) * nodes, weights


def points_2d(mean: tf.Tensor, covariance: tf.Tensor, order: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Points `[2, K², ...]` of a normal of two dimensions, and their weights, `[K², 1, …]`."""
    nodes, weights = _rule(order)
    grid = np.stack([a.ravel() for a in np.meshgrid(nodes, nodes, indexing="ij")])
    shape = [order**2] + [1] * (mean.shape.rank - 1)
    x, y = (tf.reshape(tf.constant(a, mean.dtype), shape) for a in grid)
    first = tf.sqrt(covariance[0, 0])
    slope = covariance[1, 0] / first
    second = tf.sqrt(covariance[1, 1] - slope * slope)
    points = tf.stack([mean[0] + first * x, mean[1] + slope * x + second * y])
    return points, tf.reshape(tf.constant(np.outer(weights, weights).ravel(), mean.dtype), shape)
