"""The moments of a step: made by a cell, and told by name."""

import numpy as np
import tensorflow as tf

from cgp.distributions.marginals import Marginals, Step
from cgp.linalg.arguments import is_nan, nan
from cgp.training.saving import Outputs


def step_of(
    z: tf.Tensor,
    predicted_mean: tf.Tensor,
    filtered_mean: tf.Tensor,
    predicted_variance: tf.Tensor | None = None,
    filtered_variance: tf.Tensor | None = None,
) -> Step:
    """The `Step` of a cell: moments that are left out are NaN, pseudo-variances zero.

    Args:
        z: The observations, `[B, ...]`; NaN where missing.
        predicted_mean: The prediction of them, `[B, ...]`.
        filtered_mean: The signal or state after them.
        predicted_variance: The variance of the prediction, noise included, real.
        filtered_variance: The variance of the signal or state, real.

    Raises:
        ValueError: A prediction of another shape than the observations.

    Example:
        >>> import tensorflow as tf
        >>> from cgp.online import step_of
        >>> z, mean = tf.constant([1.0 + 1j]), tf.constant([0.5j])
        >>> step_of(z, mean, mean).innovation.numpy()
        array([1.+0.5j])
    """
    if not predicted_mean.shape.is_compatible_with(z.shape):
        raise ValueError(
            f"predicted_mean must have the shape of z, {z.shape}, got {predicted_mean.shape}"
        )

    def marginals(mean: tf.Tensor, variance: tf.Tensor | None) -> Marginals:
        if variance is None:
            variance = tf.fill(tf.shape(mean), tf.constant(np.nan, mean.dtype.real_dtype))
        return Marginals(mean, variance, tf.zeros_like(mean))

    innovation = tf.where(is_nan(z), nan(z.dtype), z - predicted_mean)
    return Step(
        marginals(predicted_mean, predicted_variance),
        innovation,
        marginals(filtered_mean, filtered_variance),
    )


def step_outputs(step: Step) -> Outputs:
    """The moments of a step by name, "predicted_mean", "innovation" and so on."""
    outputs = {"innovation": step.innovation}
    for name, moments in (("predicted", step.predicted), ("filtered", step.filtered)):
        for field, a in zip(moments._fields, moments, strict=True):
            outputs[f"{name}_{field}"] = a
    return outputs
