"""Checks of the arguments of kernels: points to evaluate at, and initial hyperparameters."""

from collections import deque
from numbers import Number
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.axes import as_code
from cgp.clock import is_time, remedy
from cgp.linalg.arguments import ArrayLike, refuse_containers
from cgp.training.parameters import Parameter

LARGEST = {dtype: 0.25 * float(np.sqrt(np.finfo(dtype).max)) for dtype in ("float64", "float32")}
"""The largest number of each dtype to work with: squares of differences beyond it overflow."""

# The number of recent samples of a stream that show their spacing.
_RECENT = 8


def as_points(x: ArrayLike, dtype: str, name: str = "x") -> tf.Tensor:
    """Converts real inputs to a tensor `[..., N, D]` of a dtype; `[N]` becomes `[N, 1]`.

    Raises:
        TypeError: Anything but real numbers of at most double precision.
        ValueError: A scalar or a ragged sequence; or (eagerly) NaN, numbers whose squares overflow,
            or points that the dtype does not tell apart.
    """
    inputs = as_array(x, name)
    if tf.is_tensor(inputs):
        points = tf.cast(inputs, dtype)
    else:
        with np.errstate(over="ignore"):  # 1e300 in float32 is refused below
            points = tf.convert_to_tensor(inputs.astype(dtype, copy=False))
    if points.shape.rank == 0:
        raise ValueError(f"{name} must be [N] or [..., N, D], got a scalar")
    if tf.executing_eagerly():
        if not within(np.asarray(points), LARGEST[dtype]):
            largest = np.max(np.abs(np.asarray(inputs)))
            if not np.isfinite(largest):
                raise ValueError(f"{name} must be finite, but has NaN or infinite elements")
            raise ValueError(
                f"{name} is too large, {largest:.3g}: at most {LARGEST[dtype]:.2g} in modulus was "
                f"expected, as squares of differences overflow in {dtype}. Give {name} another unit"
            )
        dtype_of_inputs = tf.as_dtype(inputs.dtype).as_numpy_dtype
        if not _is_contained(np.dtype(dtype_of_inputs), dtype):
            values = np.asarray(inputs)
            columns = values.reshape(-1, values.shape[-1] if values.ndim > 1 else 1)
            for coordinate in np.moveaxis(columns, -1, 0):
                _check_rounding(coordinate, dtype, name)
    return points[:, None] if points.shape.rank == 1 else points


def within(values: np.ndarray, largest: float) -> bool:
    """Whether all real numbers are at most `largest` in modulus, and none is NaN."""
    return not values.size or bool(-largest <= values.min() and values.max() <= largest)


def as_array(x: Any, name: str) -> np.ndarray | tf.Tensor:
    """Real numbers as a tensor or an array, in their own dtype, or an error."""
    if isinstance(x, float) or (type(x) is np.ndarray and x.dtype.char in "df"):
        return np.asarray(x)  # a sample of a stream has no time for more
    x_of_user = x
    if np.ma.is_masked(x):
        raise ValueError(f"{name} must be known everywhere, but has masked elements")
    if isinstance(x, tf.RaggedTensor | tf.SparseTensor):
        raise TypeError(f"{name} must be a dense array, got a {type(x).__name__}")
    if tf.is_tensor(x):
        kind = "c" if x.dtype.is_complex else "f" if x.dtype.is_floating else x.dtype.name[0]
        type_name = x.dtype.name
    else:
        refuse_containers(x, name)
        _refuse_lines(x, name)
        try:
            x = np.asarray(x)
        except ValueError:
            raise ValueError(
                f"{name} must be an array, [N] or [..., N, D], got a sequence that is none, as its "
                f"rows differ in length: {_points_of_lines(name)}; series of different lengths are "
                "filled up, with NaN in z, or come as a dataset of pairs (x, z)"
            ) from None
        kind, type_name = x.dtype.kind, str(x.dtype)
        if x.dtype.itemsize > 8 and kind == "f":
            raise TypeError(
                f"{name} must be of double precision at most, got {type_name}: give {name} less an "
                'offset, (x - x[0]).astype("float64")'
            )
    if kind == "c":
        raise TypeError(
            f"{name} must be real, got {type_name}: embed a complex input as two real coordinates, "
            "np.stack([x.real, x.imag], axis=-1)"
        )
    if kind not in "iuf" and is_time(x):
        raise TypeError(f"{name} must be real numbers, got {type_name}: {remedy(name)}")
    if x is None or (kind == "O" and x.shape == () and x[()] is None):
        raise TypeError(f"{name} must be real numbers, [N] or [..., N, D], got None")
    if kind == "b":
        raise TypeError(
            f"{name} must be real numbers, got bool: give {as_code(name, x_of_user)}.astype(float)"
        )
    if kind in "OU":
        content = "text" if kind == "U" else "objects"
        flat = x.ravel().tolist()
        example = [a for a in flat if not isinstance(a, Number)][:1] or flat[:1]
        is_missing = example and (example[0] is None or type(example[0]).__name__ == "NAType")
        convert = "convert it to numbers, times by pandas.to_datetime and cgp.Clock"
        convert = "leave out the samples where it is missing" if is_missing else convert
        raise TypeError(f"{name} must be real numbers, got {content} such as {example}: {convert}")
    if kind not in "iuf":
        raise TypeError(f"{name} must be real numbers, got {type_name}")
    return x


def _refuse_lines(x: Any, name: str) -> None:
    """Raises for a tuple of the coordinates of a grid, which is not an array of its points."""
    if not isinstance(x, tuple) or len(x) < 2:
        return
    shapes: list[tuple[int, ...]] = [tuple(getattr(line, "shape", ())) for line in x]
    if all(len(shape) == 1 and shape[0] > len(x) for shape in shapes):
        counts = " and ".join(str(shape[0]) for shape in shapes)
        raise ValueError(
            f"{name} must be an array, [N] or [..., N, D], got a tuple of arrays of {counts} "
            f"numbers: {_points_of_lines(name)}"
        )


def _points_of_lines(name: str) -> str:
    """Code that makes inputs of the coordinates of a grid."""
    points = f'np.stack(np.meshgrid(*{name}, indexing="ij"), -1).reshape(-1, len({name}))'
    return f"the lines of a grid become its points by {points}, and its z [T, F] by z.ravel()"


def as_pairs(x1: ArrayLike, x2: ArrayLike | None, dtype: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Two sets of inputs, `[..., N1, D]` and `[..., N2, D]`, or an error; x2 None for x1."""
    first = as_points(x1, dtype, "x1")
    second = first if x2 is None else as_points(x2, dtype, "x2")
    if not first.shape[-1:].is_compatible_with(second.shape[-1:]):
        raise ValueError(
            f"x1 and x2 must have the same number of dimensions D, got shapes {first.shape} and "
            f"{second.shape}"
        )
    try:
        tf.broadcast_static_shape(first.shape[:-2], second.shape[:-2])
    except ValueError:
        raise ValueError(
            f"the batch axes of x1, {first.shape}, and x2, {second.shape}, do not broadcast"
        ) from None
    return first, second


def _is_contained(source: np.dtype, dtype: str) -> bool:
    """Whether a real dtype represents all numbers of a source dtype exactly."""
    if source.kind == "f":
        return source.itemsize <= np.dtype(dtype).itemsize
    return 8 * source.itemsize <= np.finfo(dtype).nmant + 1


def _widened(x: np.ndarray) -> np.ndarray:
    """Integers in 64 bits; other numbers as they are."""
    return x.astype({"i": np.int64, "u": np.uint64}.get(x.dtype.kind, x.dtype))


def _moved(x: np.ndarray, dtype: str) -> np.ndarray:
    """The distance by which rounding to a dtype moves floats or 64-bit integers, in float64."""
    rounded = x.astype(dtype).astype(np.float64)
    if x.dtype.kind == "f":
        return np.abs(rounded - x)
    low = x % 2**32  # both parts of an integer are exact in float64
    return np.abs(rounded - (x - low).astype(np.float64) - low)


def _check_rounding(x: np.ndarray, dtype: str, name: str, moved: np.ndarray | None = None) -> None:
    """Refuses numbers `[N]` that a dtype moves by more than a tenth of their median step."""
    values = np.unique(_widened(x))
    steps = _steps(values)
    # Equal points, computed in two ways, may differ by the rounding of double precision.
    rounding = 1e-14 * np.max(np.abs(values.astype(np.float64)), initial=0.0)
    steps = np.sort(steps[steps > (rounding if values.dtype.kind == "f" else 0)])
    moved = np.max(_moved(values, dtype) if moved is None else moved, initial=0.0)
    # The median; of two in the middle the smaller: a long way between two groups is no step.
    typical = steps[(steps.size - 1) // 2] if steps.size else np.inf
    if moved > 0.1 * typical:
        remedy = f"subtract an origin from it first, {name} - {name}[0]"
        remedy += ', or use dtype="float64"' if dtype == "float32" else ""
        raise ValueError(
            f"{name} loses its steps of {typical:.2g} in {dtype}, which rounds it by up to "
            f"{moved:.2g}: {remedy}"
        )


def _steps(values: np.ndarray) -> np.ndarray:
    """The steps between sorted numbers `[N, ...]`, `[N − 1, ...]`."""
    # Integers as unsigned ones, whose differences wrap around to the right values.
    return np.diff(values.astype(np.uint64) if values.dtype.kind == "i" else values, axis=0)


class RecentInputs:
    """The last inputs of a stream, whose steps bound the rounding of the next input.

    A single number has no step. The rule of `as_points` applies to it and the inputs before it:
    rounding may move it by a tenth of the median step between the last few, wherever it lies.
    """

    def __init__(self) -> None:
        self._recent: deque[np.ndarray] = deque(maxlen=_RECENT)

    def check(self, x: np.ndarray, dtype: str, name: str = "x") -> None:
        """Records the next input of all streams, unless the dtype rounds it too far."""
        if _is_contained(x.dtype, dtype):
            return
        x, recent = _widened(x), self._recent
        if recent and recent[-1].shape != x.shape:  # of other streams
            recent.clear()
        if recent:
            moved, series = _moved(x, dtype), np.sort([*recent, x], axis=0)
            steps = _steps(series)
            smallest = np.min(np.where(steps > 0, steps, np.inf), axis=0)
            # The smallest step, which is quick to find, is a sufficient check for most inputs.
            for i in map(tuple, np.argwhere(moved > 0.1 * smallest)):
                _check_rounding(series[:, *i], dtype, name, moved[i])
        recent.append(x)

    def check_block(self, x: np.ndarray, dtype: str, name: str = "x") -> None:
        """Records the next inputs, `[T]`, `[T, D]` or `[B, T, D]`, distinct in the dtype."""
        x = x[:, None] if x.ndim == 1 else x
        by_time = np.moveaxis(x, -2, 0)[..., None, :]  # each as one sample comes
        self.check(by_time[0], dtype, name)
        if not _is_contained(x.dtype, dtype):
            self._recent.extend(_widened(by_time[1:][-_RECENT:]))

    def clear(self) -> None:
        """Forgets the inputs, before another stream."""
        self._recent.clear()


def coordinate(x: tf.Tensor, kernel: Any) -> tf.Tensor:
    """The coordinate of points `[..., 1]` of a kernel over one dimension, or an error."""
    if x.shape[-1] not in (1, None):
        raise ValueError(f"{kernel!r} needs inputs of one dimension, got {x.shape[-1]}")
    return x[..., 0]


def per_dimension(parameter: Parameter, x: tf.Tensor) -> tf.Tensor:
    """The value of a parameter: one number, or one for each dimension of `x` `[..., D]`."""
    value = parameter.value
    # Without this, a vector would broadcast against inputs of one dimension and make D of them.
    if value.shape.rank and not value.shape.is_compatible_with(x.shape[-1:]):
        raise ValueError(
            f"{parameter.name} has {value.shape[0]} elements, one for each dimension, but this x "
            f"has {x.shape[-1]}: give as many elements, or one number. A first fit gives a "
            f"{parameter.name} that was left out one element for each dimension of the data: in a "
            f"subclass whose moments read some of these, give {parameter.name} one number"
        )
    return value


def exactly(x: np.ndarray, dtype: Any) -> np.ndarray:
    """Inputs in another dtype, which must have their values."""
    name = np.dtype(dtype).name
    if not np.all(np.abs(x) <= LARGEST[name]):
        raise ValueError(
            f"x must be finite, and at most {LARGEST[name]:.2g} in modulus, got "
            f"{x[~(np.abs(x) <= LARGEST[name])][0]}"
        )
    if x.dtype == dtype:
        return x
    rounded = x.astype(dtype)
    lost = rounded.astype(x.dtype) != x
    if np.any(lost):
        raise ValueError(
            f"x is rounded in {name}, got {x[lost][0]}: subtract an origin from it, or "
            f"round it to {name} yourself"
        )
    return rounded
