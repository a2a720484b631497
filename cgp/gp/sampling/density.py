"""The posterior density of hyperparameters as a pure function of their unconstrained values.

With θ = g(w) the constrained values, the density of w has the log

    log p(z | g(w)) + log p(g(w)) + log |det g'(w)| ,

the last term because a density is one per unit of volume. No variable is assigned: Keras reads the
values from the scope of the call.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from cgp.gp.data import Data
from cgp.gp.sampling.coordinates import Coordinates, log_determinant
from cgp.gp.sampling.weak_priors import WeakPrior, log_weak_priors
from cgp.linalg import with_gradient
from cgp.linalg.cholesky import nan_where_indefinite


@contextlib.contextmanager
def _read_at(coordinates: Coordinates, weights: Sequence[tf.Tensor]) -> Iterator[None]:
    """A context in which the variables have these values, and an indefinite matrix gives NaN."""
    state = list(zip(coordinates.variables, weights, strict=True))
    with keras.StatelessScope(state_mapping=state), nan_where_indefinite():
        yield


def _log_density(
    gp: Any, coordinates: Coordinates, data: Data, weak: Sequence[WeakPrior | None]
) -> tf.Tensor:
    """The log density at the values of the variables in the present context, a number."""
    terms = [tf.reduce_sum(gp.data_log_likelihood(data)), *gp.log_priors(data)]
    terms += log_weak_priors(coordinates, weak)
    terms += [log_determinant(p, p.variable.value) for p in coordinates.parameters.values()]
    return tf.add_n(terms)


def values_and_gradients(
    gp: Any,
    coordinates: Coordinates,
    data: Data,
    points: tf.Tensor,
    weak: Sequence[WeakPrior | None] = (),
) -> tuple[tf.Tensor, tf.Tensor]:
    """The log densities at points `[B, P]` and their gradients, `[B]` and `[B, P]`, to compile.

    NaN where the likelihood has no value. Points go through a `tf.map_fn`, several at once where
    there are cores: kernels take one number for each hyperparameter.
    """

    def of_one(point: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        weights = coordinates.split(point)
        with tf.GradientTape() as tape:
            tape.watch(weights)
            with _read_at(coordinates, weights):
                value = _log_density(gp, coordinates, data, weak)
        with _read_at(coordinates, weights):  # what is read again for a gradient
            gradients = tape.gradient(value, weights, None, tf.UnconnectedGradients.ZERO)
        return value, tf.concat([tf.reshape(g, [-1]) for g in gradients], axis=0)

    kind = tf.as_dtype(coordinates.dtype)
    specs = tf.TensorSpec([], kind), tf.TensorSpec([coordinates.size], kind)
    return tf.map_fn(of_one, points, fn_output_signature=specs, parallel_iterations=8)


def attached(points: tf.Tensor, values: tf.Tensor, gradients: tf.Tensor) -> tf.Tensor:
    """Values `[B]` whose gradient by the points `[B, P]` is known."""
    return with_gradient(
        lambda points, values, gradients: values,
        points,
        tf.stop_gradient(values),
        tf.stop_gradient(gradients),
        grad=lambda points, values, gradients, dy: dy[..., None] * gradients,
    )
