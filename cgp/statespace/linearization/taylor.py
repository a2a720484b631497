"""Linearisation at the mean, by automatic derivatives."""

import dataclasses

import tensorflow as tf

from cgp.linalg.batch_last import matvec
from cgp.linalg.gradients import without_warnings_of_casts
from cgp.statespace.engines.filter_step import State
from cgp.statespace.linearization.affine import Affine, values_at
from cgp.statespace.models.functions import Function


@dataclasses.dataclass(frozen=True)
class Taylor:
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

    def linearize(self, function: Function, state: State) -> Affine:
        """The approximation of a function of a state of these moments."""
        mean = state.mean[:, None]
        value = values_at(function, mean)[:, 0]
        # One copy of the mean for each component of the value: the gradient of the sum of
        # component i of the value at copy i has the rows of J.
        copies = mean + tf.zeros([value.shape[0], 1], mean.dtype)
        with tf.GradientTape() as tape:
            tape.watch(copies)
            own = tf.linalg.diag_part(tf.einsum("mkb->bmk", values_at(function, copies)))
        with without_warnings_of_casts():
            rows = tape.gradient(own, copies, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        # TensorFlow's gradient of a holomorphic function is the conjugate of its derivative.
        matrix = tf.einsum("nmb->mnb", tf.math.conj(rows))
        return Affine(matrix, value - matvec(matrix, state.mean), None)
