"""A window of points as a SavedModel."""

from typing import TYPE_CHECKING

import tensorflow as tf

from cgp.gp.base import as_dict
from cgp.gp.data import flattened
from cgp.gp.posterior import posterior
from cgp.gp.recursive.window import Window
from cgp.gp.served import points
from cgp.kernels.points import LARGEST
from cgp.linalg.arguments import has_positive_diagonal, is_nan
from cgp.training.serving import Online, Outputs, Served, step_outputs

if TYPE_CHECKING:
    from cgp.gp.recursive.recursive_gp import RecursiveGP


def served(gp: "RecursiveGP") -> Served:
    """The functions of a `RecursiveGP`: `predict` given its windows, and `step` of its streams.

    Args:
        gp: The model. Steps go on from its present windows; without any, from one that is empty,
            of one stream over a line.
    """
    recursion, stream = gp._recursion, gp._stream
    is_single = stream is None or stream.is_single
    streams, dimensions = (1, 1) if stream is None else stream.x_shape
    empty = recursion.empty(streams, dimensions, gp.variable_dtype)
    window = empty if stream is None else stream.current()
    real, complex_ = window.x.dtype, window.z.dtype
    axes = [] if is_single else [streams]
    of_step = [
        tf.TensorSpec([*axes, dimensions] if dimensions > 1 or axes else [], real, "x"),
        tf.TensorSpec(axes, complex_, "z"),
    ]

    def predict(window: Window, x: tf.Tensor) -> Outputs:
        given = recursion.conditioned(window, window.chol)
        data = window.data(is_single)
        return as_dict(posterior(recursion.process, data, given, flattened(x, 2), None))

    def advance(window: Window, x: tf.Tensor, z: tf.Tensor) -> tuple[Window, Outputs]:
        x, z = tf.reshape(x, [streams, dimensions]), tf.reshape(z, [streams])
        window, found = recursion.step(window, x, z)
        sound = tf.reduce_all(has_positive_diagonal(window.chol))
        message = "the window is not positive definite any more: it is as it was"
        with tf.control_dependencies([tf.debugging.Assert(sound, [message])]):
            window = window._replace(chol=tf.identity(window.chol))
        first = 0 if is_single else slice(None)
        return window, step_outputs(found.map(lambda a: a[first]))

    def check(window: Window, x: tf.Tensor, z: tf.Tensor) -> list[tf.Operation]:
        is_near = tf.reduce_all(tf.abs(x) <= LARGEST[real.name])  # false for NaN too
        coming = tf.reshape(tf.cast(tf.logical_not(is_nan(z)), tf.int32), [streams])
        return [
            tf.debugging.Assert(is_near, [f"x must be {LARGEST[real.name]:.2g} at most, got", x]),
            *recursion.policy.room(window, coming),
        ]

    return Served(window, predict, [points(dimensions, real)], Online(advance, of_step, check))
