"""What a `GPInterpolator` takes: shapes that fit together, and values that a graph knows late.

Eagerly `cgp.gp.data` and `cgp.gp.noise` look at values.
"""

import tensorflow as tf

from cgp.gp.data import Data
from cgp.gp.data import check_shapes as check_series


def check_shapes(x: tf.TensorShape, z: tf.TensorShape, x_new: tf.TensorShape) -> None:
    """Raises where shapes, of positions with an axis of dimensions, do not fit together."""
    for points, name in ((x, "x"), (x_new, "x_new")):
        # A Keras input has a batch axis, of unknown size; a number of points is mostly known.
        if points.rank == 2 and points[0] is None and z.rank == 2 and z[0] is None:
            raise ValueError(
                f"{name} must be [N, D], or [B, N, D] where it comes with the series, got shape "
                f"{points}: positions of a batch have an axis of dimensions, {name}[..., None]"
            )
    check_series(x, z)
    if 0 in z[:-1].as_list():
        raise ValueError(f"z must have at least one series, got shape {z}")
    check_dimensions(x, x_new)
    if x_new.rank > 2 and not x_new[:-2].is_compatible_with(z[:-1]):
        raise ValueError(f"the batch axes of x_new, {x_new[:-2]}, must be those of z, {z[:-1]}")


def of_one_batch(x: tf.Tensor, z: tf.Tensor, x_new: tf.Tensor) -> tf.Tensor:
    """The series in a graph, which fails where batch axes are not those of their positions."""
    z, checks = tf.convert_to_tensor(z), []
    for points, name in ((x, "x"), (x_new, "x_new")):
        if points.shape.rank > 2:
            words = f"the batch axes of {name} must be those of z"
            checks.append(tf.debugging.assert_equal(tf.shape(points)[:-2], tf.shape(z)[:-1], words))
    with tf.control_dependencies(checks):
        return tf.identity(z)


def with_noise_of_samples(data: Data) -> Data:
    """Data of a graph, which fails where the known part of their noise is none."""
    known = data.noise.variance  # zero where z is missing
    if known is None:
        return data
    words = "noise_variance, the known part of the noise, must be finite and not negative"
    is_variance = tf.math.is_finite(known) & (known >= 0.0)
    check = tf.debugging.Assert(tf.reduce_all(is_variance), [words])
    with tf.control_dependencies([check]):
        return data._replace(noise=data.noise._replace(variance=tf.identity(known)))


def check_dimensions(x: tf.TensorShape, x_new: tf.TensorShape) -> None:
    """Raises where positions have other dimensions than new ones."""
    if not x_new[-1:].is_compatible_with(x[-1:]):
        raise ValueError(f"x_new must have as many dimensions as x, {x[-1]}, got shape {x_new}")
