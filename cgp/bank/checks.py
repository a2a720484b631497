"""The checks of the samples of a bank, whose errors name one of them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from cgp.axes import as_code, remedy
from cgp.kernels.points import as_array, exactly
from cgp.linalg.arguments import ArrayLike
from cgp.online.cell import Cell, RefusedSample, Sample


def checked_samples(cell: Cell, count: int, sample: Sample) -> Sample:
    """The samples of keys as arrays, in the dtypes of the estimator.

    Args:
        cell: The cell of their states.
        count: The number of their keys, B.
        sample: z `[B, ...]`, x `[B]` or `[B, D]`, and whatever else the estimator takes.

    Returns:
        The samples, `[B, ...]`, z NaN where missing.

    Raises:
        TypeError, ValueError: As for `Bank.update`.
        RefusedSample: A sample that is refused by itself too.
    """
    spec = cell.sample_spec()
    of_one = tuple(spec.z.shape)
    allowed = [(count, *of_one)] + [(count,)] * (of_one == (1,))
    shapes_in_words = " or ".join(map(str, allowed))
    try:
        shape = np.shape(sample.z)
    except ValueError:
        raise ValueError(
            f"z must be {shapes_in_words} for {count} keys, got rows of different lengths"
        ) from None
    if shape not in allowed:
        hint = remedy(as_code("z", sample.z), shape, lambda other: other in allowed, samples=None)
        raise ValueError(f"z must be {shapes_in_words} for {count} keys, got shape {shape}{hint}")
    if (sample.x is None) != (spec.x is None):
        raise ValueError(
            "x is missing: a process needs the inputs of samples, update(keys, z, x)"
            if sample.x is None
            else "x is given, which samples of this estimator do not have"
        )
    places = None if spec.x is None else _as_places(sample.x, count, spec.x.shape[0])
    optional = {}
    for name in ("inputs", "noise_variance", "group"):
        a = getattr(sample, name)
        of_sample = getattr(spec, name)
        if a is not None and of_sample is None:
            word = "noise_groups" if name == "group" else name
            raise TypeError(f"{word} is given, which samples of this estimator do not have")
        if a is not None:
            optional[name] = _broadcast(np.asarray(a), name, (count, *of_sample.shape))

    def check(block: slice) -> Sample:
        z = np.asarray(sample.z[block]).reshape(-1, *of_one)
        x = None if places is None else exactly(places[block], spec.x.dtype.as_numpy_dtype)
        return cell.check(Sample(z, x, **{name: a[block] for name, a in optional.items()}))[0]

    if count:
        return _of_each(check, count)
    # Without samples there is nothing to check. Inputs are as `check` makes them if left out.
    fields = {
        name: np.zeros((0, *of_sample.shape), of_sample.dtype.as_numpy_dtype)
        for name, of_sample in spec._asdict().items()
        if of_sample is not None and (name in ("z", "inputs") or name in optional)
    }
    if places is not None:
        fields["x"] = places.astype(spec.x.dtype.as_numpy_dtype)
    return Sample(**fields)


def _broadcast(a: np.ndarray, name: str, shape: tuple[int, ...]) -> np.ndarray:
    if a.shape == shape[:1] and shape[1:] == (1,):
        a = a[:, None]
    try:
        return np.broadcast_to(a, shape)
    except ValueError:
        raise ValueError(
            f"{name} must be {shape} for {shape[0]} keys, or one for all, got shape {a.shape}"
        ) from None


def _as_places(x: ArrayLike, count: int, dimensions: int | None) -> np.ndarray:
    """Inputs as an array `[B, D]`, in their own dtype; D is None before the first key shows it."""
    places = np.asarray(as_array(x, "x"))
    if places.shape[:1] != (count,) or places.ndim > 2:
        raise ValueError(f"x must be [{count}] or [{count}, D], got shape {places.shape}")
    places = places.reshape(count, *places.shape[1:] or (1,))
    if dimensions not in (None, places.shape[1]):
        raise ValueError(f"x must have {dimensions} dimensions, got shape {places.shape}")
    return places


def check_order_of_index(labelled: Any, keys: Any, **arrays: Any) -> None:
    """Raises a ValueError for an array whose index has the keys in another order than they came in.

    Args:
        labelled: The keys as they came. Where they are an object of pandas, their own index counts.
        keys: The same as a list or an array.
        **arrays: The arrays that are paired with them, by name.
    """
    for name, array in arrays.items():
        labels: Any = getattr(array, "index", None)
        if not hasattr(labels, "is_unique") or (
            hasattr(labelled, "index") and hasattr(labelled, "loc")
        ):
            continue
        in_order = list(keys)
        if (
            type(labels).__name__ == "RangeIndex"
            or len(labels) != len(in_order)
            or in_order == list(labels)
        ):
            continue
        if labels.is_unique and set(labels) == set(in_order):
            raise ValueError(
                f"keys and {name} are paired by position, but the index of {name} has the keys in "
                f"another order: give {name}.loc[keys], or {name}.to_numpy() if its order is right"
            )


def checked_each(check: Callable[[Sample], Any], samples: Sample) -> Any:
    """Applies a check to samples `[B, ...]`, and returns its result.

    Raises:
        RefusedSample: The first sample that the check refuses by itself too.
    """
    return _of_each(lambda block: check(samples.map(lambda a: a[block])), len(samples.z))


def _of_each(check: Callable[[slice], Any], count: int) -> Any:
    """Applies a check of slices of samples to all `count` of them, and returns its result.

    Raises:
        RefusedSample: The first sample for which the check raises a ValueError by itself too.
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
            raise RefusedSample(first, str(error)) from error
        raise
