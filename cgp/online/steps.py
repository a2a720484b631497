"""The results of cells: the moments of a step, and the forms of states and steps."""

from typing import Any

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


def check_form(state: Any, form: Any, streams: int, name: str) -> None:
    """Raises a TypeError for the initial state of a cell that is not as drivers need it.

    Args:
        state: The state that `initial_state(streams)` returned.
        form: `State` of the cell, to be the type of the state, a named tuple.
        streams: The size of the first axis, B.
        name: The name of the cell.
    """
    if not isinstance(form, type) or type(state) is not form or not hasattr(state, "_asdict"):
        raise TypeError(
            f"{name}.State must be the named tuple that {name}.initial_state returns, got "
            f"{form!r} and a {type(state).__name__}"
        )
    for field, a in state._asdict().items():
        if not tf.is_tensor(a) or not a.shape.rank or a.shape[0] != streams:
            got = f"shape {a.shape}" if tf.is_tensor(a) else f"a {type(a).__name__}"
            raise TypeError(
                f"{field} of {name}.initial_state(batch_size) must be a tensor [batch_size, ...], "
                f"got {got} for a batch of {streams}"
            )


def check_result(result: Any, state: Any, name: str) -> None:
    """Raises a TypeError for a result of a cell's step that is no pair of a state and a Step.

    Args:
        result: What `step` returned.
        state: The state before the step, whose shapes and dtypes the next one has.
        name: The name of the cell.
    """
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Step):
        raise TypeError(
            f"{name}.step must return a state and a Step (see cgp.online.step_of), got "
            f"{described(result)}"
        )
    if type(result[0]) is not type(state) or any(
        a.dtype != b.dtype or not b.shape.is_compatible_with(a.shape)
        for a, b in zip(map(tf.convert_to_tensor, result[0]), state, strict=True)
    ):
        raise TypeError(
            f"{name}.step must return a state of the shapes and dtypes of the state before, "
            f"{described(state)}, got {described(result[0])}"
        )


def described(a: Any) -> str:
    """The type of an object; of a named tuple the dtypes and shapes of its tensors too."""
    if not hasattr(a, "_asdict"):
        return f"a {type(a).__name__}"
    fields = (
        f"{name} {b.dtype.name} {b.shape}" if tf.is_tensor(b) else f"{name} a {type(b).__name__}"
        for name, b in a._asdict().items()
    )
    return f"{type(a).__name__}({', '.join(fields)})"
