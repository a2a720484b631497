"""Conversion of arrays to tensors of the dtype of a model."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import ArrayLike, as_numbers, real_as

_DTYPES = (tf.complex64, tf.complex128, tf.float32, tf.float64)


def of_one_dtype(named: Mapping[str, ArrayLike | None]) -> dict[str, tf.Tensor]:
    """Converts arrays to tensors of the dtype that all of them promote to, leaving out None.

    Args:
        named: Arrays by their names in error messages.

    Raises:
        TypeError: Not numbers, or a dtype that is none of complex128, complex64, float64, float32.
        ValueError: Rows of different lengths.
    """
    arrays = {name: _array(a, name) for name, a in named.items() if a is not None}
    kinds = {}
    for name, array in arrays.items():
        kind = _numpy_dtype(array, name)
        kinds[name] = kind if kind.kind in "fc" else np.dtype(np.float64)
    common = np.result_type(*kinds.values())
    if common not in [dtype.as_numpy_dtype for dtype in _DTYPES]:
        raise TypeError(
            "matrices must be complex64, complex128, float32 or float64, got "
            f"{', '.join(f'{name} {kind.name}' for name, kind in kinds.items())}"
        )
    return {name: as_dtype(array, tf.as_dtype(common), name) for name, array in arrays.items()}


def matrix_or_word(
    initial_covariance: ArrayLike | str | None,
) -> tuple[ArrayLike | None, str | None]:
    """Returns `(matrix, None)`, or `(None, word)` for 'stationary' and 'diffuse'."""
    if initial_covariance is None or (
        isinstance(initial_covariance, str) and initial_covariance not in ("stationary", "diffuse")
    ):
        raise ValueError(
            'initial_covariance must be a matrix, "stationary" or "diffuse", got '
            f"{initial_covariance!r}"
        )
    if isinstance(initial_covariance, str):
        return None, initial_covariance
    return initial_covariance, None


def _array(a: ArrayLike, name: str) -> np.ndarray | tf.Tensor:
    if hasattr(a, "value"):  # a hyperparameter, through which gradients flow
        return tf.convert_to_tensor(a)
    return as_numbers(a, name)


def _numpy_dtype(x: np.ndarray | tf.Tensor, name: str) -> np.dtype:
    """The NumPy dtype of numbers; a TypeError for anything else."""
    dtype = x.dtype if isinstance(x, np.ndarray) else np.dtype(x.dtype.as_numpy_dtype)
    if dtype.kind not in "iufc":
        raise TypeError(f"{name} must be numbers, got {dtype}")
    return dtype


def as_dtype(x: ArrayLike, dtype: tf.DType, name: str = "it") -> tf.Tensor:
    """Converts a real or complex array to a dtype, which must be complex if the array is.

    Raises:
        TypeError: A complex array and a real dtype, or not numbers.
    """
    x = _array(x, name)
    came = _numpy_dtype(x, name)
    if came.kind == "c" and not dtype.is_complex:
        raise TypeError(f"{name} must be real, {dtype.name}, got {came}")
    if isinstance(x, np.ndarray):
        return tf.constant(x.astype(dtype.as_numpy_dtype))
    if x.dtype == dtype:
        return x
    if x.dtype.is_complex:
        return tf.cast(x, dtype)
    return real_as(tf.cast(x, dtype.real_dtype), dtype)


def whole_steps(steps: int) -> int:
    """Checks a number of steps: a whole number, at least 1."""
    whole = isinstance(steps, int | float | np.integer | np.floating) and steps == int(steps)
    if not whole or isinstance(steps, bool) or steps < 1:
        raise ValueError(f"steps must be a whole number, at least 1, got {steps!r}")
    return int(steps)
