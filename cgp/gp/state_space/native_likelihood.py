"""The log likelihood of a sum of turning Matérn terms by one compiled op, where it serves.

The op works transitions out where it uses them, from a few numbers for each term; the TensorFlow
path stores matrices for every sample. It takes real scalars of double precision for the terms, and
places in order.
"""

import numpy as np
import tensorflow as tf

from cgp import native
from cgp.gp.data import Data
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.kernels.markov import Terms
from cgp.linalg.gradients import without_gradient


def log_likelihood(process: SignalPlusNoise, data: Data) -> tf.Tensor | None:
    """The log likelihood of each series, `[B]`, differentiable once; None where no op serves.

    In a graph a likelihood that is not finite is NaN. The op takes samples of the value, with one
    noise variance for all, or one for each. Normal data that stand for those of a likelihood may
    have any noise, and are left to TensorFlow.
    """
    if not data.is_of_values or process.likelihood is not None:
        return None
    eagerly = tf.executing_eagerly()
    serves = native.serves_here(data.z) and native.serves_here(data.x)
    terms = process.kernel.markov_terms() if serves and process.is_proper else None
    if terms is None:
        return None
    x, z = tf.squeeze(data.x, axis=-1), data.z
    function = process.sample_mean(data)
    if function is not None:
        z = z - function
    numbers, r = numbers_of(terms), tf.cast(process.noise_variances(data.noise), tf.float64)
    if not eagerly:
        in_order = tf.reduce_all(x[:, 1:] >= x[:, :-1])
        x, z, r = tf.cond(in_order, lambda: (x, z, r), lambda: _sorted(x, z, r))
        likelihood = native.op("cgp_state_space_likelihood")(*numbers, r, x=x, z=z)
        return tf.ensure_shape(likelihood, z.shape[:1])  # the op does not tell
    places = np.asarray(x)
    if np.any(places[:, 1:] < places[:, :-1]):
        x, z, r = _sorted(x, z, r)
    likelihood = native.attempt("cgp_state_space_likelihood", *numbers, r, x=x, z=z)
    return likelihood if likelihood is not None and np.isfinite(likelihood).all() else None


def _sorted(x: tf.Tensor, z: tf.Tensor, noise: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Places `[1, T]` or `[B, T]` in order, series `[B, T]` with them, and noise not of rank 0."""
    order = tf.argsort(x, axis=-1, stable=True)

    def moved(a: tf.Tensor) -> tf.Tensor:
        shape = tf.maximum(tf.shape(a), tf.shape(order))
        index = tf.broadcast_to(order, shape)
        return tf.gather(tf.broadcast_to(a, shape), index, batch_dims=1)

    return moved(x), moved(z), moved(noise) if noise.shape.rank else noise


def numbers_of(terms: Terms) -> list[tf.Tensor]:
    """Variances, rates, frequencies and orders of terms, as the ops take them."""
    zero = tf.zeros([], terms[0].variance.dtype)
    turns = [term.frequency for term in terms]
    together = all(turn is turns[0] for turn in turns)
    numbers = [
        tf.stack([term.variance for term in terms]),
        tf.stack([zero if term.rate is None else term.rate for term in terms]),
        tf.stack([zero if turn is None else turn for turn in (turns[:1] if together else turns)]),
    ]
    return [*(tf.cast(a, tf.float64) for a in numbers), tf.constant([term.order for term in terms])]


@tf.RegisterGradient("CgpStateSpaceLikelihood")
def _pullback(op: tf.Operation, bar: tf.Tensor) -> list[tf.Tensor | None]:
    gradients = native.op("cgp_state_space_pullback")(*op.inputs, bar)
    *by_numbers, by_noise, by_x, by_z = without_gradient(
        gradients,
        [*op.inputs, bar],
        "the filter is differentiable once: take differences of gradients for a Hessian",
    )
    return [*by_numbers, None, by_noise, by_x, by_z]
