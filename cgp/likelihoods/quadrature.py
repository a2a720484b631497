"""Expectations under normals by Gauss and Hermite's rule, and the Bessel function in them."""

import functools

import numpy as np
import tensorflow as tf


@functools.cache
def _rule(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights for the standard normal, `[K]`."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    return nodes, weights / weights.sum()


def points_1d(mean: tf.Tensor, variance: tf.Tensor, order: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Points `[K, ...]` of a normal of moments `[...]`, and their weights, `[K]`."""
    nodes, weights = _rule(order)
    return mean + tf.sqrt(variance) * _column(nodes, mean), tf.constant(weights, mean.dtype)


def points_2d(
    mean: tf.Tensor, covariance: tf.Tensor, orders: tuple[int, int]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Points `[2, K L, ...]` of a normal of two dimensions, and their weights, `[K L]`.

    Args:
        mean: `[2, ...]`.
        covariance: `[2, 2, ...]`.
        orders: K of the first coordinate, L of the second one given the first.
    """
    nodes, weights = zip(*map(_rule, orders), strict=True)
    x, y = (_column(a.ravel(), mean[0]) for a in np.meshgrid(*nodes, indexing="ij"))
    first = tf.sqrt(covariance[0, 0])
    slope = covariance[1, 0] / first
    # Rounding may leave a little less than nothing.
    second = tf.sqrt(tf.maximum(covariance[1, 1] - slope * slope, 0.0))
    points = tf.stack([mean[0] + first * x, mean[1] + slope * x + second * y])
    return points, tf.constant(np.outer(*weights).ravel(), mean.dtype)


def _column(nodes: np.ndarray, like: tf.Tensor) -> tf.Tensor:
    """Nodes `[K, 1, …]`, to broadcast against moments."""
    return tf.reshape(tf.constant(nodes, like.dtype), [-1] + [1] * like.shape.rank)


def log_i0(x: tf.Tensor) -> tf.Tensor:
    """Log I₀(x) for real x."""
    return tf.math.log(tf.math.bessel_i0e(x)) + tf.abs(x)
