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


def checked_initial(cell: Any, state: Any, streams: int | None) -> Any:
    """The state of streams before any sample, of tensors.

    Args:
        cell: The cell; its `State` is the named tuple that a state is.
        state: The state that a method of the cell returned.
        streams: The size of the first axis, B; None where a graph does not know it.

    Raises:
        TypeError: Another type, or arrays without the axis of streams.
    """
    name, form = type(cell).__name__, cell.State
    if type(state) is not form:
        raise TypeError(
            f"the initial state of a {name} must be a named tuple of the type {name}.State, which "
            f"is a {form.__name__}, got {described(state)}"
        )
    state = form(*map(_as_tensor, state))
    if not all(tf.is_tensor(a) and _fits(a.shape[:1], [streams]) for a in state):
        raise TypeError(
            f"the initial state of a {name} must have arrays [B, ...], here B = {streams}, got "
            f"{described(state)}"
        )
    return state


def checked_result(cell: Any, state: Any, result: Any) -> tuple[Any, Step]:
    """The state after a step of a cell, of tensors, and the moments of the step.

    Args:
        cell: The cell.
        state: The state before the step, whose shapes and dtypes the next one has.
        result: The pair that `step` returned.

    Raises:
        TypeError: No such pair, a state of another form, moments without the axis of streams.
    """
    name, is_pair = type(cell).__name__, isinstance(result, tuple | list) and len(result) == 2
    if not is_pair or not isinstance(result[1], Step):
        got = " and ".join(map(described, result)) if is_pair else described(result)
        raise TypeError(
            f"{name}.step must return a state and a Step (see cgp.online.step_of), got {got}"
        )
    next_state, step = result
    has_form = type(next_state) is type(state)
    if has_form:
        next_state = type(state)(*map(_as_tensor, next_state))
    if not has_form or not all(
        tf.is_tensor(a) and a.dtype == b.dtype and _fits(a.shape, b.shape)
        for a, b in zip(next_state, state, strict=True)
    ):
        raise TypeError(
            f"{name}.step must return a state of the shapes and dtypes of the state before, "
            f"{described(state)}, got {described(next_state)}"
        )
    for a in (*step.predicted, step.innovation, *step.filtered, *step.joint):
        if not tf.is_tensor(a) or not _fits(a.shape[:1], state[0].shape[:1]):
            raise TypeError(
                f"{name}.step must return moments [B, ...] for the B = {state[0].shape[0]} streams "
                f"of the state, got {described(a)}"
            )
    return next_state, step


def _as_tensor(a: Any) -> Any:
    try:
        return tf.convert_to_tensor(a)
    except (TypeError, ValueError):
        return a


def _fits(shape: Any, expected: Any) -> bool:
    return bool(tf.TensorShape(expected).is_compatible_with(shape))


def described(a: Any) -> str:
    """An object in words: its type; of arrays the dtype and shape, in a named tuple each."""
    if hasattr(a, "_asdict"):
        fields = (f"{name}: {described(b)}" for name, b in a._asdict().items())
        return f"{type(a).__name__}({', '.join(fields)})"
    if hasattr(a, "dtype") and hasattr(a, "shape"):
        return f"{tf.as_dtype(a.dtype).name} {list(a.shape)}"
    return f"a {type(a).__name__}"
