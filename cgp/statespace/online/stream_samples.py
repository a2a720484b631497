"""What streams are given at a time: one observation of each, or a block, with inputs; and a state.

Shapes are checked as they are given, before one observation becomes a series of one step.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.axes import as_code, remedy
from cgp.linalg.arguments import ArrayLike, as_numbers, is_finite, is_of_python
from cgp.linalg.cholesky import check_factor
from cgp.linalg.short_repr import short_repr
from cgp.observations import as_observations, check_rounding
from cgp.statespace.models.linear_gaussian import LinearGaussian
from cgp.statespace.models.model_base import as_dtype
from cgp.statespace.series import check_labels


@short_repr
class StateArrays(NamedTuple):
    """The moments of a state of one or several streams."""

    mean: np.ndarray
    """`[..., n]`."""
    chol: np.ndarray
    """The Cholesky factor of its covariance, `[..., n, n]`; for a widely linear model that of the
    real composite, `[..., 2n, 2n]`."""


def checked_samples(
    model: LinearGaussian,
    z: ArrayLike,
    missing: ArrayLike | None,
    inputs: ArrayLike | None,
    *,
    along: int = 0,
    most: int | None = None,
) -> tuple[np.ndarray | tf.Tensor, np.ndarray | tf.Tensor | None]:
    """Checks observations and known inputs of streams.

    Args:
        model: The model.
        z: One observation, `[..., M]`, or a number where M is 1; with `along` a block of them,
            `[..., T, M]`, or `[T]` where M is 1.
        missing: Bool, broadcast against z; None if only NaN are missing.
        inputs: Known inputs of a model with B, of the same axes with k in place of M.
        along: The number of time axes, 0 or 1.
        most: The largest number of batch axes; None for any.

    Returns:
        z, `[..., M]`, in the dtype of the model, NaN where missing; and inputs, `[..., k]`, or
        None. Arrays where arrays were given, tensors where tensors were.

    Raises:
        TypeError, ValueError: As `cgp.statespace.filter`.
    """
    check_labels(z, missing, inputs, along)
    given = z
    z = as_observations(z, missing, model.series_dtype, promote=True)
    z = _with_components(z, "z", given, model.observation_size, along, most)
    if inputs is None:
        return z, None  # whether there should be inputs is known where they are used
    given, inputs = inputs, as_numbers(inputs, "inputs")
    if model.B is None:
        return z, inputs
    size = model.B.shape[-1] // model.form.multiplicity
    return z, _with_components(inputs, "inputs", given, size, along, most)


def checked_state(
    model: LinearGaussian, state: tuple[ArrayLike, ...]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Checks a state `(mean, chol)` given by a user, and converts it to working values."""
    if not isinstance(state, tuple | list) or len(state) != 2:
        raise TypeError(f"state must be a pair (mean, chol), got {type(state).__name__}")
    if isinstance(state[0], tuple):
        raise TypeError(
            "state must be a pair (mean, chol), got a tuple in it, as the state and the Step that "
            "step returns are: state, step = statespace.step(model, state, z)"
        )
    n, rows = model.state_size, model.F.shape[-1]
    mean = _of_state(state[0], model.state_dtype, "mean", "mean")
    chol = _of_state(state[1], model.dtype, "factor", "chol")
    if mean.shape.rank < 1 or mean.shape[-1] != n:
        raise ValueError(f"the mean of the state must be [..., {n}], got shape {mean.shape}")
    if chol.shape.rank < 2 or list(chol.shape[-2:]) != [rows, rows]:
        raise ValueError(
            f"the factor of the state must be [..., {rows}, {rows}], got shape {chol.shape}"
        )
    if tf.executing_eagerly():
        check_state_factor(chol, "the factor of the state")
    return model.form.split(mean), chol


def check_state_factor(chol: np.ndarray | tf.Tensor, name: str) -> None:
    """Raises a ValueError for what is no Cholesky factor of a finite covariance of a state."""
    check_factor(chol, name, singular=True)
    values = np.abs(np.asarray(chol))
    largest = np.max(values, initial=0.0)
    if not largest < np.finfo(values.dtype).max ** 0.5:  # NaN is not, either
        raise ValueError(
            f"{name} must be that of a finite covariance, but has elements of up to {largest:.3g}, "
            "whose squares are not: give the state in units in which it is smaller"
        )


def _of_state(a: ArrayLike, dtype: tf.DType, word: str, variable: str) -> tf.Tensor:
    """A part of a state in the dtype of the model; its precision as that of observations."""
    name = f"the {word} of the state"
    a = as_numbers(a, name) if not is_of_python(a) else a
    check_rounding(a, dtype, name, variable)
    with np.errstate(over="ignore"):  # what overflows in single precision is refused below
        found = as_dtype(a, dtype, name)
    if tf.executing_eagerly() and not is_finite(found):
        raise ValueError(f"{name} must be finite, in {dtype.name}, got {np.asarray(a)}")
    return found


def _with_components(a: Any, name: str, given: Any, size: int, along: int, most: int | None) -> Any:
    """Adds the axis of components where it may be left out, and checks the shape."""

    def fits(shape: tuple[int, ...]) -> bool:
        return along < len(shape) <= along + 1 + (most or len(shape)) and shape[-1] == size

    if len(a.shape) == along and size == 1:
        return a[..., None]
    if not fits(a.shape) or 0 in a.shape:
        short = ("a number, ", "[T], ")[along] if size == 1 else ""
        own = "T, " * along + str(size)
        wanted = f"[..., {own}]" if most is None else f"[{own}] or [B, {own}]"
        hint = remedy(as_code(name, given), a.shape, fits, samples=-2 if along else None)
        if hint and not along and len(a.shape) == 1:  # as where a series is given to step
            hint += f", of {a.shape[0]} streams at one time; a series goes to filter or process"
        raise ValueError(f"{name} must be {short}{wanted}, got shape {tuple(a.shape)}{hint}")
    return a
