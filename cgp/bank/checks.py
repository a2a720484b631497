"""The checks of what a bank is given: samples, whose errors name one, and states."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.axes import as_code, remedy
from cgp.bank.states import Fields, Refused, Rows, States
from cgp.gp.data import check_squares
from cgp.gp.stream_samples import CheckedRange
from cgp.kernels.points import LARGEST, as_array
from cgp.linalg.arguments import ArrayLike, complex_dtype
from cgp.observations import as_observations, check_rounding
from cgp.statespace.online.stream_samples import check_state_factor


def checked_samples(
    states: States, count: int, z: ArrayLike, x: ArrayLike | None, dimensions: int | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Observations and inputs, in the dtypes of the estimator.

    Args:
        states: How states take them.
        count: The number of their keys, B.
        z: Observations, `[B, ...]`.
        x: Inputs, `[B]` or `[B, D]`, or None.
        dimensions: D, 0 for none, None for any.

    Returns:
        Observations, `[B, ...]`, NaN where missing, and inputs, `[B, D]`, or None.

    Raises:
        TypeError, ValueError: As for `Bank.update`.
        Refused: A sample that is refused alone too.
    """
    allowed = [(count, *states.shape)] + [(count,)] * (states.shape == (1,))
    shapes_in_words = " or ".join(map(str, allowed))
    try:
        shape = np.shape(z)
    except ValueError:
        raise ValueError(
            f"z must be {shapes_in_words} for {count} keys, got rows of different lengths"
        ) from None
    if shape not in allowed:
        hint = remedy(as_code("z", z), shape, lambda other: other in allowed, samples=None)
        raise ValueError(f"z must be {shapes_in_words} for {count} keys, got shape {shape}{hint}")
    if (x is None) != (dimensions == 0):
        raise ValueError(
            "x is missing: a process needs the inputs of samples, update(keys, z, x)"
            if x is None
            else "a KalmanFilter has no inputs x"
        )
    places = None if x is None else _as_places(x, count, dimensions)

    def check(part: slice) -> tuple[np.ndarray, np.ndarray | None]:
        own = None
        if places is not None:
            own = _converted(places[part], states.fields(places.shape[-1])["x"][1])
        return states.checked(z[part], own), own  # type: ignore[index]

    return of_samples(check, count)


def check_order_of_index(given: Any, keys: Any, **arrays: Any) -> None:
    """Raises a ValueError for an array whose index has the keys in another order than they came in.

    Args:
        given: The keys as they came. Where they are an object of pandas, their own index counts.
        keys: The same as a list or an array.
        **arrays: What is paired with them, by name.
    """
    for name, array in arrays.items():
        labels: Any = getattr(array, "index", None)
        if not hasattr(labels, "is_unique") or (hasattr(given, "index") and hasattr(given, "loc")):
            continue
        own = list(keys)
        if type(labels).__name__ == "RangeIndex" or len(labels) != len(own) or own == list(labels):
            continue
        if labels.is_unique and set(labels) == set(own):
            raise ValueError(
                f"keys and {name} are paired by position, but the index of {name} has the keys in "
                f"another order: give {name}.loc[keys], or {name}.to_numpy() if its order is right"
            )


def _as_places(x: ArrayLike, count: int, dimensions: int | None) -> np.ndarray:
    """Inputs as an array `[B, D]`, in their own dtype."""
    given = np.asarray(as_array(x, "x"))
    if given.shape[:1] != (count,) or given.ndim > 2:
        raise ValueError(f"x must be [{count}] or [{count}, D], got shape {given.shape}")
    given = given.reshape(count, *given.shape[1:] or (1,))
    if dimensions not in (None, given.shape[1]):
        raise ValueError(f"x must have {dimensions} dimensions, got shape {given.shape}")
    return given


def _converted(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Inputs in another dtype, which must have their values."""
    if not np.all(np.abs(x) <= LARGEST[dtype.name]):
        raise ValueError(
            f"x must be finite, and at most {LARGEST[dtype.name]:.2g} in modulus, got "
            f"{x[~(np.abs(x) <= LARGEST[dtype.name])][0]}"
        )
    found = x.astype(dtype)
    lost = found.astype(x.dtype) != x
    if np.any(lost):
        raise ValueError(
            f"x is rounded in {dtype.name}, got {x[lost][0]}: subtract an origin from it, or "
            f"round it to {dtype.name} yourself"
        )
    return found


def of_samples(check: Callable[[slice], Any], count: int) -> Any:
    """What a check of samples returns.

    Args:
        check: A function of a part of the samples, which raises a ValueError for some.
        count: How many samples there are.

    Raises:
        Refused: It refuses a sample alone too; the first of them.
    """

    def is_refused(first: int, end: int) -> bool:
        try:
            check(slice(first, end))
        except ValueError:
            return True
        return False

    try:
        return check(slice(None))
    except ValueError:
        first, end = 0, count
        while end - first > 1:
            middle = (first + end) // 2
            first, end = (first, middle) if is_refused(first, middle) else (middle, end)
        try:
            check(slice(first, end))
        except ValueError as error:
            raise Refused(first, str(error)) from error
        raise


def of_process(z: Any, x: np.ndarray | None, real: np.dtype, accepted: CheckedRange) -> np.ndarray:
    """The observations of a Gaussian process, `[B]`, complex.

    Args:
        z: As given, `[B]`.
        x: Their inputs, `[B, D]`.
        real: The dtype of the process.
        accepted: The range of inputs that it has accepted.

    Raises:
        TypeError, ValueError: Values that the process does not take.
    """
    z = np.asarray(as_observations(z, None, complex_dtype(real.name)))
    check_squares(z, real.name)
    if len(z):
        assert x is not None
        accepted.admit(x[None])
    return z


def checked_states(states: States, state: Any, count: int, dimensions: int | None) -> Rows:
    """States given by a user, as they are kept, `[K, ...]` or without the first axis.

    Args:
        states: How they are kept.
        state: A tuple of arrays, as `States.shown` returns it.
        count: The number of keys, K.
        dimensions: Of inputs; None for those of the state.

    Raises:
        TypeError, ValueError: As for `Bank.set_state`.
    """
    expected = states.fields(1)
    if not isinstance(state, tuple | list) or len(state) != len(expected):
        raise TypeError(f"a state must be a tuple ({', '.join(expected)}), got {state!r}")
    real = tf.as_dtype(expected["chol"][1]).real_dtype
    for name, a in zip(expected, state, strict=True):
        if name != "x":  # may be of more precision if it is not rounded, as in samples
            like = complex_dtype(real) if np.iscomplexobj(a) else real
            check_rounding(a, like, f"{name} of a state", name)
    found = states.working(tuple(map(np.asarray, state)))
    if dimensions is None:
        dimensions = found["x"].shape[-1] if found["x"].ndim else 1
    fields: Fields = states.fields(dimensions)
    return {name: of_field(name, found[name], *fields[name], count) for name in fields}


def of_field(
    name: str, a: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, count: int
) -> np.ndarray:
    """One array of states, checked, in the dtype in which it is kept.

    Args:
        name: Its name.
        a: `[K, ...]`, or one for all, `[...]`.
        shape: That of one state.
        dtype: The dtype.
        count: K.

    Raises:
        TypeError, ValueError: As for `Bank.set_state`.
    """
    if not np.can_cast(a.dtype, dtype, "same_kind"):
        raise TypeError(f"{name} of a state must be {dtype}, got {a.dtype}")
    if a.shape not in (shape, (count, *shape)):
        raise ValueError(
            f"{name} of a state must be {shape}, or {(count, *shape)} of {count} keys, got shape "
            f"{a.shape}"
        )
    found = _converted(a, dtype) if name == "x" else a.astype(dtype)
    if not np.isfinite(found).all():
        raise ValueError(f"{name} of a state must be finite, got {a}")
    if name == "z":
        check_squares(found, dtype.type(0).real.dtype.name)
    if name == "chol":
        check_state_factor(found, "the factor of a state")
    return found
