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

    In a graph a likelihood that is not finite is NaN. The op takes one noise variance for all
    samples, which are of the value.
    """
    if not (data.noise.is_common and data.is_of_values):
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
    arguments = [*numbers_of(terms), tf.cast(process.learned_noise_variance(), tf.float64)]
    if not eagerly:
        in_order = tf.reduce_all(x[:, 1:] >= x[:, :-1])
        x, z = tf.cond(in_order, lambda: (x, z), lambda: _sorted(x, z))
        likelihood = native.op("cgp_state_space_likelihood")(*arguments, x=x, z=z)
        return tf.ensure_shape(likelihood, z.shape[:1])  # the op does not tell
    places = np.asarray(x)
    if np.any(places[:, 1:] < places[:, :-1]):
        x, z = _sorted(x, z)
    likelihood = native.attempt("cgp_state_space_likelihood", *arguments, x=x, z=z)
    return likelihood if likelihood is not None and np.isfinite(likelihood).all() else None


def _sorted(x: tf.Tensor, z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Places `[1, T]` or `[B, T]` in order, and series `[B, T]` with them."""
    order = tf.argsort(x, axis=-1, stable=True)
    x = tf.gather(x, order, batch_dims=1)
    return x, tf.gather(z, tf.broadcast_to(order, tf.shape(z)), batch_dims=1)


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
