"""White noise, and the simulation of models whose functions are not linear."""

import functools

import tensorflow as tf

from cgp.statespace.compiled import graph_of
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian


def simulated(
    model: NonlinearGaussian, start: tf.Tensor, noise: tf.Tensor, inputs: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """States `x[t+1] = f(x[t]) + w[t]` from given noise, and the values of the observation there.

    Args:
        model: The model; its own noise has no part.
        start: x[0], working values, `[..., n]`.
        noise: w, `[..., T, n]`; the last is not used.
        inputs: Working values, broadcast against `[..., T, k]`, or None.

    Returns:
        `[..., T, n]` and `[..., T, m]`.
    """
    shape, n = tf.shape(noise), noise.shape[-1]
    flat = tf.reshape(noise, tf.concat([[-1], shape[-2:]], axis=0))
    drives = tf.zeros([*[1] * (noise.shape.rank - 1), 0], model.dtype) if inputs is None else inputs
    drives = tf.broadcast_to(drives, tf.concat([shape[:-1], tf.shape(drives)[-1:]], axis=0))
    drives = tf.reshape(drives, tf.concat([[-1], tf.shape(drives)[-2:]], axis=0))
    run = functools.partial(_run, model)
    if tf.executing_eagerly():
        run = model.kept(simulated, lambda: graph_of(functools.partial(_run, model)))
    path, observed = run(tf.reshape(start, [-1, n]), flat, drives)
    return tf.reshape(path, shape), tf.reshape(
        observed, tf.concat([shape[:-1], tf.shape(observed)[-1:]], axis=0)
    )


def _run(
    model: NonlinearGaussian, start: tf.Tensor, noise: tf.Tensor, inputs: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """`simulated` with one batch axis."""
    steps = tf.shape(noise)[1]
    arrays = tf.TensorArray(start.dtype, steps, element_shape=start.shape)

    def step(
        t: tf.Tensor, x: tf.Tensor, arrays: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
        following = model.working("transition", inputs[:, t])(x[:, None])[:, 0]
        return t + 1, following + noise[:, t], arrays.write(t, x)

    _, _, arrays = tf.while_loop(lambda t, *_: t < steps, step, (0, start, arrays))
    path = tf.experimental.numpy.moveaxis(arrays.stack(), 0, 1)
    drives = tf.reshape(inputs, [-1, inputs.shape[-1]])
    points = tf.reshape(path, [-1, 1, path.shape[-1]])
    observed = model.working("observation", drives)(points)
    return path, tf.reshape(observed, [-1, steps, observed.shape[-1]])


def white(shape: tf.Tensor, seed: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """White noise of unit variance, real or proper complex."""
    real = dtype.real_dtype
    if not dtype.is_complex:
        return tf.random.stateless_normal(shape, seed, dtype=real)
    normals = tf.random.stateless_normal(tf.concat([shape, [2]], axis=0), seed, dtype=real)
    return tf.cast(0.5**0.5, dtype) * tf.complex(normals[..., 0], normals[..., 1])
