"""The density of a block of samples given a state: what learning on a stream maximises."""

import tensorflow as tf

from cgp.gp.data import Data
from cgp.gp.recursive.window import Window
from cgp.gp.recursive.window_recursion import WindowRecursion
from cgp.gp.signal_plus_noise import log_density
from cgp.linalg import cholesky
from cgp.linalg.composite import real_as


def log_predictive(
    stream: WindowRecursion, state: Window, chol: tf.Tensor, data: Data
) -> tf.Tensor:
    """The log density of a block given the state before it, `[B]`, with gradients.

    By the chain rule the sum of the log densities of one-step predictions, each given the state and
    the samples of the block before it; no point leaves in between.

    Args:
        stream: The recursion.
        state: Before the block.
        chol: Its factor, from which gradients reach the hyperparameters.
        data: T samples of each stream, with inputs of its own, `[B, T, D]`.
    """
    process, real = stream.process, data.x.dtype
    given = stream.conditioned(state, chol)
    cross = process.in_data_order(process.cross(state.data(), data.x), axis=-1)
    v = tf.linalg.triangular_solve(chol, cross)
    covariance = process.covariance(data)
    if stream.forgetting < 1.0:
        # The sample of step j is correlated with the state by λ^{j/2}, with that of step i by
        # λ^{|i−j|/2}.
        steps = tf.range(1, tf.shape(data.z)[-1] + 1)
        steps = tf.cast(tf.repeat(steps, process.form.multiplicity), real)
        weight = tf.constant(stream.forgetting**0.5, real)
        v *= tf.cast(weight**steps, v.dtype)
        covariance *= tf.cast(weight ** tf.abs(steps[:, None] - steps), v.dtype)
    v *= process.keep(data, v.dtype)[:, None, :]
    mean = tf.linalg.matmul(v, given.white.residual, adjoint_a=True)
    covariance -= tf.linalg.matmul(v, v, adjoint_a=True)
    rounding = real_as(stream.rounding_of_points(data), v.dtype)
    covariance = tf.linalg.set_diag(covariance, tf.linalg.diag_part(covariance) + rounding)
    value = log_density(
        covariance,
        process.targets(data) - mean,
        None,
        cholesky(tf.stop_gradient(covariance)),
        process.form.scale,
    )
    return value[:, 0] - data.counts * process.form.log_normalizer
