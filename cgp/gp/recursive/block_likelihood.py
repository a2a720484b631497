"""The blocks of a stream, and their predictive density given the window: the loss of a stream."""

from collections.abc import Iterable

import tensorflow as tf

from cgp.gp.data import Data
from cgp.gp.recursive.window import Window, repeated
from cgp.gp.recursive.window_recursion import WindowRecursion
from cgp.gp.signal_plus_noise import log_density
from cgp.linalg import cholesky
from cgp.linalg.arguments import real_as
from cgp.training.parameters import Parameter


def blocks_of(samples: Data, size: int) -> tf.data.Dataset:
    """Blocks of `size` samples as `RecursiveGP.call` takes them; the last one may be shorter."""
    x, z = (tf.constant(a[0] if samples.is_single else a) for a in (samples.x, samples.z))
    noise = samples.noise.map(tf.constant)

    def cut(first: tf.Tensor) -> tuple:
        of_block = noise.map(lambda a: a[:, first : first + size])
        return ((x[..., first : first + size, :], z[..., first : first + size], of_block),)

    return tf.data.Dataset.range(0, z.shape[-1], size).map(cut)


def of_each_stream(data: Data, streams: int, dimensions: int | None) -> Data:
    """A block with inputs for each stream, `[B, T, D]`; inputs that they share are repeated."""
    z = tf.ensure_shape(data.z, [streams, None])
    x = tf.broadcast_to(data.x, [streams, tf.shape(z)[1], tf.shape(data.x)[2]])
    noise = data.noise.map(lambda a: tf.broadcast_to(a, tf.shape(z)))
    return data._replace(x=tf.ensure_shape(x, [streams, None, dimensions]), z=z, noise=noise)


def block_loss(
    recursion: WindowRecursion,
    window: Window,
    chol: tf.Tensor,
    data: Data,
    parameters: Iterable[Parameter],
) -> tf.Tensor:
    """The negative log predictive density of a block per sample, less the log density of priors.

    A prior weighs as one sample among those of the block and those in the windows, which are those
    before the block. Gradients reach the hyperparameters from their factor, `chol`. Each stream has
    inputs of its own, `[B, T, D]`.
    """
    count = tf.maximum(tf.reduce_sum(data.counts), 1.0)
    loss = -tf.reduce_sum(log_predictive(recursion, window, chol, data)) / count
    points = tf.cast(tf.reduce_sum(window.size), loss.dtype)
    for parameter in parameters:
        if parameter.prior is not None:
            loss -= parameter.log_prior() / (count + points)
    return loss


def log_predictive(
    recursion: WindowRecursion, window: Window, chol: tf.Tensor, data: Data
) -> tf.Tensor:
    """The log density of a block given the windows before it, `[B]`, with gradients.

    By the chain rule it is the sum of the log densities of one-step predictions, each given the
    window and the samples of the block before it; no point leaves in between.
    """
    process, real = recursion.process, data.x.dtype
    conditioned = recursion.conditioned(window, chol)
    cross = process.in_data_order(process.cross(window.data(), data.x), axis=-1)
    v = tf.linalg.triangular_solve(chol, cross)
    covariance = process.covariance(data)
    if recursion.forgetting < 1.0:
        # The sample of step j is correlated with the window by λ^{j/2}, with that of step i by
        # λ^{|i−j|/2}.
        steps = tf.range(1, tf.shape(data.z)[-1] + 1)
        steps = tf.cast(repeated(steps, process.form.multiplicity), real)
        weight = tf.constant(recursion.forgetting**0.5, real)
        v *= tf.cast(weight**steps, v.dtype)
        covariance *= tf.cast(weight ** tf.abs(steps[:, None] - steps), v.dtype)
    v *= process.keep(data, v.dtype)[:, None, :]
    mean = tf.linalg.matmul(v, conditioned.white.residual, adjoint_a=True)
    covariance -= tf.linalg.matmul(v, v, adjoint_a=True)
    jitter = real_as(recursion.jitter_of_rows(data), v.dtype)
    covariance = tf.linalg.set_diag(covariance, tf.linalg.diag_part(covariance) + jitter)
    factor, residual = cholesky(tf.stop_gradient(covariance)), process.targets(data) - mean
    log_densities = log_density(covariance, residual, None, factor, process.form.scale)
    return log_densities[:, 0] - data.counts * process.form.log_normalizer
