"""Linearisation at the mean, by automatic derivatives."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from cgp.linalg.batch_last import matvec
from cgp.linalg.gradients import without_warnings_of_casts
from cgp.statespace.engines.filter_step import State
from cgp.statespace.linearization.affine import Affine, Rule


@dataclasses.dataclass(frozen=True)
class Taylor(Rule):
    """Linearisation at the mean of the state, as in the extended Kalman filter.

    With it `f(x) ≈ f(m) + J (x − m)`. The derivatives are automatic, by the real and imaginary
    parts of the state: of a function that is not holomorphic, `J (x − m)` stands for
    `∂f/∂x (x − m) + ∂f/∂x̄ (x − m)‾`, with Wirtinger's derivatives (Kreutz-Delgado, *The Complex
    Gradient Operator and the CR-Calculus*, arXiv 0906.4835). What is not linear in f adds no
    uncertainty: use it where the state is known well beside the curvature, and `SigmaPoints`
    elsewhere.

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> from cgp import statespace
        >>> power = statespace.NonlinearGaussian(
        ...     lambda x: x, lambda x: tf.abs(x) ** 2, [[0.0]], [[0.1]], [2.0 + 0j], [[0.01]]
        ... )
        >>> found = statespace.filter(power, [4.4], rule=statespace.Taylor())
        >>> found.filtered_means.numpy().round(3)
        array([[2.044+0.j]])
    """

    def linearize(self, function: Callable[[tf.Tensor], tf.Tensor], state: State) -> Affine:
        """Approximates a function by its value and derivatives at the mean of the state."""
        mean = state.mean[:, None]
        image = function(mean)[:, 0]
        # One copy of the mean for each component of the value: the gradient of the sum of
        # component i of the value at copy i has the rows of J.
        copies = mean + tf.zeros([image.shape[0], 1], mean.dtype)
        with tf.GradientTape() as tape:
            tape.watch(copies)
            components = tf.linalg.diag_part(tf.einsum("mkb->bmk", function(copies)))
        with without_warnings_of_casts():
            zero = tf.UnconnectedGradients.ZERO
            rows = tape.gradient(components, copies, unconnected_gradients=zero)
        # TensorFlow's gradient of a holomorphic function is the conjugate of its derivative.
        matrix = tf.einsum("nmb->mnb", tf.math.conj(rows))
        return Affine(matrix, image - matvec(matrix, state.mean), None)
