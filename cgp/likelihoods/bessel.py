"""The modified Bessel function of order zero, without overflow."""

import tensorflow as tf


def log_i0(x: tf.Tensor) -> tf.Tensor:
    """Log I₀(x) for real x."""
    return tf.math.log(tf.math.bessel_i0e(x)) + tf.abs(x)
