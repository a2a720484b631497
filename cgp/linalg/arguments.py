"""Checks of array arguments, and broadcasting of their batch axes."""

from collections.abc import Iterator, Mapping
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from typing_extensions import TypeAliasType

from cgp.tensorflow_private import EagerTensor

# An alias by name, which `help` shows in place of its dozen types.
ArrayLike = TypeAliasType("ArrayLike", npt.ArrayLike | tf.Tensor | tf.Variable)
"""Array arguments of cgp: numbers, sequences of numbers, NumPy arrays, tensors and variables."""

_REAL = (tf.float32, tf.float64)
_COMPLEX = (tf.complex64, tf.complex128)
_DTYPES = (*_REAL, *_COMPLEX)


def _is_tensor(x: object) -> bool:
    return tf.is_tensor(x) or hasattr(x, "__tf_tensor__")  # as Keras variables have


def is_of_python(x: object) -> bool:
    """Whether `x` consists of Python's own numbers, nested or not: they have no precision."""
    return all(type(leaf) in (int, float, complex) for leaf in tf.nest.flatten(x))


def check_whole(number: object, name: str, least: int = 1) -> None:
    """Raises a ValueError unless `number` is an integer, and at least `least`."""
    whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
    if not whole or number < least:  # type: ignore[operator]
        raise ValueError(f"{name} must be a whole number, at least {least}, got {number!r}")


def as_flag(flag: object, name: str) -> bool:
    """Returns a bool; raises a TypeError for anything but True and False, such as "no"."""
    if not isinstance(flag, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {flag!r}")
    return bool(flag)


def refuse_containers(x: object, name: str) -> None:
    """Raises a TypeError for sets, mappings and iterators, and says how to make an array.

    NumPy takes a set, a dictionary or a generator for one object.
    """
    kind = type(x).__name__
    if isinstance(x, set | frozenset):
        raise TypeError(f"{name} must be an array, got a {kind}, which has no order: give a list")
    if isinstance(x, Mapping):  # a dataset of xarray is one
        remedy = f"list({name}.values())"
        if any(hasattr(values, "__len__") for values in x.values()):  # arrays of xarray too
            remedy = f"one of its arrays, such as {name}[{next(iter(x))!r}]"
        raise TypeError(f"{name} must be an array, got a {kind}: give {remedy}")
    if isinstance(x, Iterator):
        raise TypeError(f"{name} must be an array, got a {kind}: give list({name})")
    if kind == "KerasTensor":
        raise TypeError(
            f"{name} must be an array, got the {kind} of a model that is being built, which has no "
            "values: estimators that are layers, cgp.layers among them, are called on it"
        )


def as_numbers(x: ArrayLike, name: str) -> np.ndarray | tf.Tensor:
    """Converts numbers to a NumPy array, and tensors or sequences of tensors to a tensor.

    TensorFlow has no dtype for longdouble, which is a TypeError; masked elements are a ValueError.
    """
    if type(x) is np.ndarray and x.dtype.char in "fdFD":  # at once: a step has no time for more
        return x
    if _is_tensor(x):
        return tf.convert_to_tensor(x)
    refuse_containers(x, name)
    leaves = tf.nest.flatten(x)
    if any(map(np.ma.is_masked, leaves)):
        raise ValueError(f"{name} has masked elements: every element must be known here")
    try:
        x = tf.convert_to_tensor(x) if any(map(_is_tensor, leaves)) else np.asarray(x)
    except (ValueError, tf.errors.InvalidArgumentError):
        raise ValueError(f"{name} must be an array, but has rows of different lengths") from None
    if isinstance(x, np.ndarray):
        if x.dtype.char in "gG":
            kind, double = ("c", "complex128") if x.dtype.kind == "c" else ("", "float64")
            why = "which TensorFlow does not have"
            raise TypeError(f"{name} is {kind}longdouble, {why}: round it to {double}")
        if x.dtype.kind not in "iufc":
            received, elements = f"an array of dtype {x.dtype.name}", x.ravel().tolist()
            if x.dtype.kind in "US":
                received = f"text such as {elements[:1]}"
            elif any(element is None for element in elements):
                received = "an array with None in it" if x.ndim else "None"
            raise TypeError(f"{name} must be numbers, got {received}")
    return x


def _as_tensor(
    x: ArrayLike, name: str, dtypes: tuple[tf.DType, ...], like: tf.Tensor | None = None
) -> tf.Tensor:
    numbers = as_numbers(x, name)
    if isinstance(numbers, np.ndarray) and is_of_python(x):  # double, or as another argument
        real = tf.float64 if like is None else like.dtype.real_dtype
        kind = np.complex64 if numbers.dtype.kind == "c" else np.float32
        numbers = numbers.astype(np.result_type(real.as_numpy_dtype, kind))
    x = tf.convert_to_tensor(numbers)
    if x.dtype not in dtypes:
        *names, last = (dtype.name for dtype in dtypes)
        raise TypeError(f"{name} must be {', '.join(names)} or {last}, got {x.dtype.name}")
    return x


def as_matrix(
    a: ArrayLike, name: str, square: bool = False, like: tf.Tensor | None = None
) -> tf.Tensor:
    """Converts a matrix to a tensor of float32, float64, complex64 or complex128.

    Python numbers take the precision of `like`, or double precision if that is None.
    """
    a = _as_tensor(a, name, _DTYPES, like)
    rank, axes = a.shape.rank, "[..., n, n]" if square else "[..., n, k]"
    if rank is not None and rank < 2:
        raise ValueError(f"{name} must be a matrix, {axes}, got shape {a.shape}")
    if square and rank is not None and not a.shape[-1:].is_compatible_with(a.shape[-2:-1]):
        raise ValueError(f"{name} must be square, {axes}, got shape {a.shape}")
    return a


def as_complex_vector(x: ArrayLike, name: str, like: tf.Tensor | None = None) -> tf.Tensor:
    """Converts a complex vector to a tensor `[..., n]`.

    Python numbers take the precision of `like`, or double precision if that is None.
    """
    return _vector(_as_tensor(x, name, _COMPLEX, like), name)


def as_real_vector(x: ArrayLike, name: str) -> tf.Tensor:
    """Converts a real vector to a tensor `[..., n]`."""
    return _vector(_as_tensor(x, name, _REAL), name)


def _vector(x: tf.Tensor, name: str) -> tf.Tensor:
    if x.shape.rank == 0:
        raise ValueError(f"{name} must be a vector, [..., n], got a scalar")
    return x


def as_vector_for(x: ArrayLike, name: str, chol: tf.Tensor) -> tf.Tensor:
    """Converts a vector to a tensor `[..., n]`, of the size and dtype of a factor `[..., n, n]`."""
    x = _as_tensor(x, name, _DTYPES, like=chol)
    if x.dtype != chol.dtype:
        expected = chol.dtype.name
        raise TypeError(f"{name} must have the dtype of chol, {expected}, got {x.dtype.name}")
    rank = x.shape.rank
    if rank == 0 or (rank and not x.shape[-1:].is_compatible_with(chol.shape[-1:])):
        expected = f"[..., {chol.shape[-1]}] for chol of shape {chol.shape}"
        raise ValueError(f"{name} must be {expected}, got shape {x.shape}")
    return x


def as_real(x: ArrayLike, name: str, like: tf.Tensor, like_name: str = "chol") -> tf.Tensor:
    """Converts real numbers to a tensor in the precision of another argument."""
    dtype = like.dtype.real_dtype
    x = as_numbers(x, name)
    if isinstance(x, np.ndarray):
        if x.dtype.kind == "c":
            raise TypeError(f"{name} must be real, got {x.dtype.name}")
        return tf.convert_to_tensor(x.astype(dtype.as_numpy_dtype))
    if x.dtype != dtype:
        expected = f"{dtype.name}, as {like_name} is {like.dtype.name}"
        raise TypeError(f"{name} must be {expected}, got {x.dtype.name}")
    return x


def as_index(
    x: ArrayLike,
    name: str,
    meaning: str,
    stop: int | tf.Tensor,
    start: int = 0,
    too_large: str = "",
) -> tuple[tf.Tensor, tf.Tensor]:
    """Converts an index to int32, and checks that it lies in the range from `start` to `stop`.

    In errors `meaning`, what the index counts, follows its name, and `too_large` follows that.

    Returns:
        `(index, inside)`: int32, and a bool of the same shape that says whether it is in range. In
        a graph an index whose value is not known at tracing gets an assertion; XLA drops
        assertions, and the caller needs `inside`.
    """
    x = as_numbers(x, name)
    if not tf.as_dtype(x.dtype).is_integer:
        raise TypeError(f"{name} must be an integer, got {tf.as_dtype(x.dtype).name}")
    # Compared before they are narrowed: 2**40 would become 0.
    x, stop = (tf.cast(tf.convert_to_tensor(a), tf.int64) for a in (x, stop))
    index, last = tf.get_static_value(x), tf.get_static_value(stop)
    if index is not None and last is not None:
        if np.any(index < start) or np.any(index >= last):
            meaning += too_large if np.any(index >= last) else ""
            expected = f"{start} to {np.min(last) - 1}"
            raise ValueError(f"{name} {meaning}: expected {expected}, got {index}")
    else:
        below = [f"{name} {meaning}; got", x, "below", start]
        beyond = [f"{name} {meaning}{too_large}; got", x, "of", stop]
        is_at_least = tf.debugging.Assert(tf.reduce_all(x >= start), below)
        is_below = tf.debugging.Assert(tf.reduce_all(x < stop), beyond)
        with tf.control_dependencies([is_at_least, is_below]):
            x = tf.identity(x)  # before an operation that reads the index
    return tf.cast(x, tf.int32), (x >= start) & (x < stop)


def known_sign(x: tf.Tensor) -> str | None:
    """The sign that all elements of `x` have, `"+"` (also of zero) or `"-"`; None if not known."""
    constant = tf.get_static_value(x)
    if constant is None:
        return None
    return "+" if np.all(constant >= 0) else "-" if np.all(constant < 0) else None


def check_batches(**tensors: tuple[tf.Tensor, int]) -> tf.TensorShape:
    """The static batch shape of tensors broadcast together, or a ValueError.

    Each tensor comes with the number of its trailing axes that are not batch axes.
    """
    shapes = [tf.TensorShape(x.shape[:-rank] if rank else x.shape) for x, rank in tensors.values()]
    try:
        return reduce(tf.broadcast_static_shape, shapes)
    except ValueError:
        received = ", ".join(f"{name} {x.shape}" for name, (x, _) in tensors.items())
        raise ValueError(f"the batch axes of these do not fit together: {received}") from None


def broadcast(**tensors: tuple[tf.Tensor, int]) -> list[tf.Tensor]:
    """Broadcasts the batch axes of tensors together; arguments as for `check_batches`."""
    shapes = [x.shape[: x.shape.rank - event_rank] for x, event_rank in tensors.values()]
    if all(shape.is_fully_defined() and shape == shapes[0] for shape in shapes):
        return [x for x, _ in tensors.values()]
    batch = check_batches(**tensors)
    if not batch.is_fully_defined():
        dynamic = (tf.shape(x)[: x.shape.rank - event_rank] for x, event_rank in tensors.values())
        batch = reduce(tf.broadcast_dynamic_shape, dynamic)
    return [
        tf.broadcast_to(x, tf.concat([batch, tf.shape(x)[x.shape.rank - event_rank :]], axis=0))
        for x, event_rank in tensors.values()
    ]


def complex_dtype(real: tf.DType | str) -> tf.DType:
    """The complex dtype of the same precision: complex128 for float64, complex64 for float32."""
    return {tf.float64: tf.complex128, tf.float32: tf.complex64}[tf.as_dtype(real)]


def as_complex(x: tf.Tensor) -> tf.Tensor:
    """Converts a real or complex tensor to complex, in the same precision."""
    return x if x.dtype.is_complex else tf.complex(x, tf.zeros_like(x))


def real_as(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Converts a real tensor to a real or complex dtype of the same precision.

    In place of `tf.cast`, whose eager gradient logs a warning that it drops an imaginary part.
    """
    return as_complex(x) if dtype.is_complex else x


def squared_modulus(z: tf.Tensor) -> tf.Tensor:
    """`|z|²`, real, with correct derivatives of every order at zero.

    The modulus is not differentiable at 0. TensorFlow sets its gradient to 0 there, so that the
    second derivative of `tf.abs(z) ** 2` comes out as 0, where 2 is correct.
    """
    return tf.math.real(z * tf.math.conj(z))


def real_diagonal(a: tf.Tensor) -> tf.Tensor:
    """The real part of the diagonal of `a`, `[..., n, n]` -> `[..., n]`."""
    return tf.math.real(tf.linalg.diag_part(a))


def has_positive_diagonal(chol: tf.Tensor) -> tf.Tensor:
    """Whether the diagonal of a factor is positive and finite, bool `[...]`; False for NaN."""
    diagonal = real_diagonal(chol)
    return tf.reduce_all((diagonal > 0) & (diagonal < np.inf), axis=-1)


def is_nan(x: tf.Tensor) -> tf.Tensor:
    """Whether elements of `x` are NaN in the real or the imaginary part, bool, shaped like `x`."""
    parts = [tf.math.real(x), tf.math.imag(x)] if x.dtype.is_complex else [x]
    return reduce(tf.logical_or, map(tf.math.is_nan, parts))


def is_infinite(x: tf.Tensor) -> tf.Tensor:
    """Whether elements of `x` are infinite in the real or the imaginary part, bool, as `x`."""
    parts = [tf.math.real(x), tf.math.imag(x)] if x.dtype.is_complex else [x]
    return reduce(tf.logical_or, map(tf.math.is_inf, parts))


def is_missing(z: tf.Tensor) -> tf.Tensor:
    """Whether observations are missing, NaN in a part and infinite in none, bool, shaped as `z`."""
    return is_nan(z) & ~is_infinite(z)


def nan(dtype: tf.DType) -> tf.Tensor:
    """A scalar NaN; for a complex dtype both parts are NaN, where a cast would leave 0 in one."""
    return tf.constant(complex(np.nan, np.nan) if dtype.is_complex else np.nan, dtype)


def is_finite(x: tf.Tensor) -> bool:
    """Whether every element is finite, eagerly."""
    return bool(np.isfinite(np.asarray(x)).all())  # NumPy launches faster, and no tape records it


def check_finite(x: tf.Tensor, name: str) -> None:
    """Raises a ValueError for NaN and infinite elements, eagerly."""
    if not is_finite(x):
        raise ValueError(f"{name} of shape {x.shape} has elements that are NaN or infinite")


def hermitian_gap(a: tf.Tensor, symmetric: bool = False) -> float:
    """The largest difference of `[..., n, n]` from its adjoint, or if `symmetric` its transpose.

    Eagerly; 0 if it is only rounding.
    """
    values = np.asarray(a)
    if values.size == 0:
        return 0.0
    turned = np.swapaxes(values if symmetric else np.conj(values), -1, -2)
    # Relative to each matrix: a large one of the batch must not excuse the others.
    with np.errstate(invalid="ignore", over="ignore"):  # infinities are not checked here
        gap, largest = (np.max(np.abs(x), axis=(-2, -1)) for x in (values - turned, values))
    eps = np.finfo(values.dtype).eps
    return float(np.max(np.where(gap > 1e3 * eps * largest, gap, 0.0)))


def is_complex(leaf: Any) -> bool:
    """Tells whether a number, or a tensor as it is declared, is complex."""
    return isinstance(leaf, complex) or "complex" in str(getattr(leaf, "dtype", ""))


def as_sample_shape(sample_shape: ArrayLike) -> tf.Tensor:
    """Converts a sample shape, whole numbers that are not negative, to a vector of int32."""
    shape = tf.convert_to_tensor(sample_shape, dtype_hint=tf.int32)
    sizes = tf.get_static_value(shape)
    if not shape.dtype.is_integer or (sizes is not None and np.any(sizes < 0)):
        raise ValueError(
            f"sample_shape must be whole numbers that are not negative, got {sample_shape!r}"
        )
    return tf.reshape(tf.cast(shape, tf.int32), [-1])


def generator_of(seed: Any) -> np.random.Generator:
    """NumPy's random generator of a seed; a generator is returned as it is."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise TypeError(f"seed must be one integer, 0 or more, got {seed!r}") from None


def stateless_seed(seed: ArrayLike | None) -> tf.Tensor:
    """The two integers of a stateless seed; for an integer, 0 and the integer.

    None draws both from TensorFlow's global generator.
    """
    if seed is None:
        return tf.random.uniform([2], maxval=np.iinfo(np.int32).max, dtype=tf.int32)
    if isinstance(seed, np.random.Generator | np.random.RandomState | tf.random.Generator):
        raise TypeError(
            f"seed must be one integer or two, got a {type(seed).__name__}: draw a number from it, "
            "as int(seed.integers(2**31)) of NumPy"
        )
    integers = tf.convert_to_tensor(seed)
    if not integers.dtype.is_integer or integers.shape not in ([], [2]):
        raise ValueError(
            f"seed must be one integer or two, got {integers.dtype.name} {integers.shape}"
        )
    return integers if integers.shape.rank else tf.stack([tf.zeros_like(integers), integers])


# --- whether a matrix is lower triangular, eagerly ------------------------------------------------

# Triangles of up to this many rows are read by the indices of their elements.
_SMALL = 128


def is_lower_triangular(a: np.ndarray | tf.Tensor) -> bool:
    """Whether matrices `[..., n, n]` are zero above the diagonal; NaN is not zero."""
    if _MARK in getattr(a, "__dict__", ()):
        return True
    a = np.asarray(a)
    return a.ndim > 1 and a.shape[-1] == a.shape[-2] and _is_zero_above_diagonal(a)


def marked_lower_triangular(a: tf.Tensor) -> tf.Tensor:
    """Marks a tensor as lower triangular: `is_lower_triangular` does not read it again.

    Otherwise a recursion would have its factors read as often as it updates them.
    """
    if type(a) is EagerTensor:
        setattr(a, _MARK, True)
    return a


_MARK = "_cgp_is_lower_triangular"


def _is_zero_above_diagonal(a: np.ndarray) -> bool:
    n = a.shape[-1]
    if n <= _SMALL:
        return not np.any(a.reshape(*a.shape[:-2], n * n).take(_above_diagonal(n), axis=-1))
    half = n // 2
    if np.any(a[..., :half, half:]):
        return False
    return all(_is_zero_above_diagonal(a[..., h, h]) for h in (slice(half), slice(half, n)))


@lru_cache(maxsize=32)
def _above_diagonal(n: int) -> np.ndarray:
    """Flat indices of the elements above the diagonal of an `[n, n]` matrix."""
    return np.flatnonzero(~np.tri(n, dtype=bool))
