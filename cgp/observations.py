"""The check of observations: what Gaussian processes and filters accept as a measured series.

Every model takes its observations through `as_observations`, so that missing elements, dtypes and
infinite values mean the same everywhere. The shape of a series is the business of each model.
Arrays paired element by element must have the same labels, as they are paired by position.
"""

import itertools
import warnings
from collections.abc import Iterator
from numbers import Number
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.axes import as_code
from cgp.linalg.arguments import (
    ArrayLike,
    as_numbers,
    is_infinite,
    is_missing,
    is_of_python,
    refuse_containers,
)


def as_observations(
    z: ArrayLike,
    missing: ArrayLike | None,
    dtype: tf.DType | str,
    name: str = "z",
    *,
    promote: bool = False,
    copy: bool = True,
) -> np.ndarray | tf.Tensor:
    """Observations in the dtype of a model, NaN in both parts where missing.

    An element is missing where it is NaN in either part, where a masked array hides it, where it is
    missing in a Series or a DataFrame of pandas (NaN, NA or None), and where `missing` is True;
    its value there has no meaning. An element that is infinite in one part and NaN in the
    other, as `np.inf * 1j` is, is infinite: it comes from an overflow, not from a gap. An array
    that is missing altogether may be of any dtype, as `np.nan` is. Python's own numbers, in lists
    and tuples too, have no precision; all others have the precision of their dtype, as NumPy's
    scalars in a list. A lower precision than the model's is an error, unless `promote`.

    Returns:
        An array of `dtype` and of the shape of z: a tensor, through which gradients pass, if z or
        `missing` is one, else a NumPy array, a new one if `copy`.

    Raises:
        TypeError: Elements that are no numbers; real z for a complex model, or the reverse; a
            precision that is not the model's; `missing` that is not bool.
        ValueError: Rows of different lengths; `missing` that does not broadcast against z; infinite
            elements, where values are known.

    Example:
        >>> from cgp.observations import as_observations
        >>> as_observations([1j, 2.0, float("nan")], [True, False, False], "complex128")
        array([nan+nanj,  2. +0.j, nan+nanj])
    """
    dtype = tf.as_dtype(dtype)
    plain: Any = np.asarray(z) if isinstance(z, np.generic | complex) else z
    is_plain = type(plain) is np.ndarray and missing is None and plain.dtype == _numpy(dtype)
    if is_plain and np.isfinite(plain).all():  # a sample of a stream has no time for more
        return plain.copy() if copy else plain
    is_plain = tf.executing_eagerly() and isinstance(z, tf.Tensor) and missing is None
    if is_plain and plain.dtype == dtype and np.isfinite(np.asarray(z)).all():
        return z
    not_a_number, infinite = (complex(a, a) if dtype.is_complex else a for a in (np.nan, np.inf))
    accepted = None if not hasattr(z, "dtype") and is_of_python(z) else _precisions(dtype, promote)
    code = as_code(name, z)
    z, hidden = _array(z, name, code, dtype.is_complex)
    if missing is not None:
        missing = _as_missing(missing, z, name)
    if not isinstance(z, np.ndarray) or not isinstance(missing, np.ndarray | NoneType):
        _check_dtype(z, dtype, accepted, name, code)
        z = tf.cast(z, dtype)
        absent = is_missing(z) | hidden
        if missing is not None:
            absent |= tf.broadcast_to(missing, tf.shape(z))
        if tf.executing_eagerly():
            check_no_infinity(np.where(absent, 0.0, z), name)
        else:  # nothing is refused, nor taken for missing behind this
            z = tf.where(is_infinite(z), tf.constant(infinite, dtype), z)
        return tf.where(absent, tf.constant(not_a_number, dtype), z)
    absent = (np.isnan(z) & ~np.isinf(z)) | hidden
    if missing is not None:
        absent = absent | missing
    if np.all(absent):  # also where there is none, whose lack is told by whoever needs one
        return np.full(z.shape, not_a_number, _numpy(dtype))
    _check_dtype(z, dtype, accepted, name, code)
    with np.errstate(over="ignore"):  # what overflows in single precision is refused below
        z = z.astype(_numpy(dtype))
    z[absent] = not_a_number
    check_no_infinity(z, name)
    return z


def missing_value(z: np.ndarray) -> complex | float:
    """The mark of missing observations like z: NaN, of complex ones in both parts."""
    return complex(np.nan, np.nan) if np.iscomplexobj(z) else np.nan


def warn_of_short_series(series: int, samples: int) -> None:
    """Warns, in a fit, of more series than there are samples in each of them."""
    if series <= samples:
        return
    short = "one sample each" if samples == 1 else f"{samples} samples each"
    remedy = f"if they should be {samples} series of {series}, their axes are the other way round"
    if samples == 1:
        remedy = f"if they should be one series of {series}, give x as [N] or [N, D] and z as [N]"
    warnings.warn(
        f"this is a fit of {series} series of {short}, of more series than samples: {remedy}. "
        "Where so many short series are meant, a dataset of them has no such warning",
        RuntimeWarning,
        stacklevel=3,
    )


def check_no_infinity(z: np.ndarray, name: str) -> None:
    """Raises a ValueError for infinite observations; NaN passes."""
    if np.any(np.isinf(z)):
        expected = "finite values, or NaN where missing, were expected"
        raise ValueError(f"{name} has infinite elements: {expected}")


def _precisions(dtype: tf.DType, promote: bool) -> set[int]:
    """The sizes in bytes of the real numbers that a model accepts."""
    size = dtype.real_dtype.size
    return {width for width in (2, 4, 8) if width <= size} if promote else {size}


def _array(
    z: ArrayLike, name: str, code: str, for_complex: bool
) -> tuple[np.ndarray | tf.Tensor, np.ndarray | bool]:
    """Numbers as an array or a tensor, and where a mask hides them."""
    if z is None:
        raise TypeError(f"{name} is missing, got None: give its values, NaN where one is missing")
    if isinstance(z, tf.RaggedTensor | tf.SparseTensor):
        raise TypeError(f"{name} must be an array or a dense tensor, got a {type(z).__name__}")
    refuse_containers(z, name)
    hidden: np.ndarray | bool = False
    if isinstance(z, tf.Variable) or hasattr(z, "__tf_tensor__"):
        z = tf.convert_to_tensor(z)
    else:
        if isinstance(z, list | tuple) and any(np.ma.isMaskedArray(row) for row in z):
            z = np.ma.array(z)  # NumPy drops the masks of the rows of a list
        if np.ma.isMaskedArray(z):
            hidden = np.ma.getmaskarray(z)
        try:
            z = _from_pandas(z) if _is_of_pandas(z) else np.asarray(z)
        except ValueError:
            raise ValueError(
                f"{name} must be an array of numbers, with rows of one length: series of different "
                "lengths are filled up with NaN, or come as a dataset"
            ) from None
    dtype = _numpy_dtype(z)
    if dtype.kind not in "iufc":
        hint = _hint_of_elements(z, code, for_complex) if isinstance(z, np.ndarray) else ""
        raise TypeError(f"{name} must be numbers, got {dtype}{hint}")
    return z, hidden


def _hint_of_elements(z: np.ndarray, code: str, for_complex: bool) -> str:
    """The hint for an array, as code, whose elements are no numbers, as the end of an error."""
    number = "complex" if for_complex else "float"
    if z.dtype.kind in "US":
        text = f", text such as {z.ravel()[:1].tolist()}"
        try:
            z.astype(number)
        except ValueError:
            return text
        return f"{text}: text becomes numbers by {code}.astype({number})"
    if z.dtype.names and len(z.dtype.names) == 2:
        real, imaginary = (f"{code}[{field!r}]" for field in z.dtype.names)
        return f": two fields become complex by {real} + 1j * {imaginary}"
    if z.dtype.kind == "b":
        signs = "(2 * re - 1) + 1j * (2 * im - 1)" if for_complex else f"2.0 * {code} - 1"
        return (
            f": bits become signs (OneBit) by {signs}, numbers by {code}.astype({number}); "
            "what is missing goes to missing"
        )
    if z.dtype.kind != "O":
        return ""
    odd = [a for a in z.ravel() if type(a) is bool or not isinstance(a, Number)]
    if not odd:
        kind = "complex" if any(isinstance(a, complex | np.complexfloating) for a in z.flat) else ""
        return f", an array of objects that are numbers: give {code}.astype({kind or 'float'})"
    if all(a is None for a in odd):
        return ", with None in it: the number that is missing is NaN, not None"
    first = next(a for a in odd if a is not None)
    return f", an array of objects, of which one is {first!r}, {type(first).__name__}"


def _is_of_pandas(z: Any) -> bool:
    return type(z).__module__.partition(".")[0] == "pandas"


def _from_pandas(z: Any) -> np.ndarray:
    """The numbers of an object of pandas, NaN where they are missing; `pandas.NA` too."""
    import pandas as pd  # it has come with z

    values = np.asarray(z)
    if values.dtype == object:  # a column without a dtype for complex numbers, or for what misses
        is_number = np.vectorize(lambda a: isinstance(a, Number), otypes=[bool])(values)
        # Not in place: some versions of pandas give a view of the column where a copy is asked for.
        values = np.array(np.where(pd.isna(z) & ~is_number, np.nan, values).tolist())
    return values


def _as_missing(missing: Any, z: np.ndarray | tf.Tensor, name: str) -> np.ndarray | tf.Tensor:
    if not hasattr(missing, "__tf_tensor__"):
        try:
            missing = np.asarray(missing)
        except ValueError:
            expected = "a bool array, with rows of one length"
            raise ValueError(f"missing must be {expected}, got a ragged sequence") from None
    if missing.dtype != bool:
        # As where someone has given a time before it.
        hint = ": values come first, and a KalmanFilter takes no times"
        hint = hint if missing.dtype.name.startswith("complex") else ""
        raise TypeError(f"missing must be bool, True where missing, got {missing.dtype.name}{hint}")
    shape = tf.TensorShape(z.shape)
    try:
        fits = tf.broadcast_static_shape(tf.TensorShape(missing.shape), shape)
    except ValueError:
        fits = None
    if fits is None or not fits.is_compatible_with(shape):
        hint = ": missing[..., None]" if (*missing.shape, 1) == tuple(z.shape) else ""
        shapes = f"{name} of shape {shape}, got {missing.shape}"
        raise ValueError(f"missing must be broadcast against {shapes}{hint}")
    return missing


def _numpy(dtype: tf.DType) -> np.dtype:
    return np.dtype(dtype.as_numpy_dtype)


def _numpy_dtype(z: np.ndarray | tf.Tensor) -> np.dtype:
    return z.dtype if isinstance(z, np.ndarray) else _numpy(z.dtype)


def _as_complex(code: str, shape: Any) -> str:
    """The code that makes real numbers of a shape complex, by what their axes may be."""
    ways = {
        "values without imaginary part": f"{code}.astype(complex)",
        "angles (VonMises)": f"np.exp(1j * {code})",
        "signs of both parts (OneBit)": "np.sign(re) + 1j * np.sign(im)",
    }
    if len(shape) > 1 and shape[-1] == 2:
        axes = ":" if len(shape) == 2 else "..."
        columns = f"{code}[{axes}, 0] + 1j * {code}[{axes}, 1]"
        ways = {"two columns of real and imaginary parts": columns} | ways
    elif len(shape) == 2 and shape[0] == 2:
        ways = {"two rows of real and imaginary parts": f"{code}[0] + 1j * {code}[1]"} | ways
    elif len(shape) == 2 and shape[-1] == 3 and (shape[0] is None or shape[0] > 3):
        phases = f"{code} @ np.exp(2j * np.pi / 3 * np.array([0, 1, -1])) * 2 / 3"
        ways = {"three columns of the phases a, b, c": f"Clarke's transform, {phases}"} | ways
    texts = ", ".join(f"{meaning} by {way}" for meaning, way in ways.items())
    return texts.replace(" by ", " become complex by ", 1)


def _check_dtype(
    z: np.ndarray | tf.Tensor, dtype: tf.DType, accepted: set[int] | None, name: str, code: str
) -> None:
    """Raises for a real series of a complex model, the reverse, and for another precision."""
    came = _numpy_dtype(z)
    is_complex = came.kind == "c"
    if dtype.is_complex and not is_complex:
        raise TypeError(
            f"{name} must be complex, got {came}: {_as_complex(code, z.shape)}. Of real "
            "signals there are state-space models, all of whose matrices are real"
        )
    if is_complex and not dtype.is_complex:
        raise TypeError(
            f"{name} must be real, got {came}, as all matrices of the model are real. A complex "
            "signal has a complex model: one complex matrix makes it, "
            "model.replace(F=model.F.numpy() + 0j); of a NonlinearGaussian, an observation that "
            f"returns complex values. If these are real values, give {code}.real"
        )
    if accepted is not None:
        _check_precision(came, dtype, accepted, name, name)


def check_rounding(x: ArrayLike, dtype: tf.DType, name: str, variable: str) -> None:
    """Raises a TypeError for numbers of more precision than a model, as for its observations.

    Errors call them `name`, and their remedy `variable`.
    """
    if not is_of_python(x):
        came = _numpy_dtype(as_numbers(x, name))
        _check_precision(came, dtype, _precisions(dtype, promote=True), name, variable)


def _check_precision(
    came: np.dtype, dtype: tf.DType, accepted: set[int], name: str, variable: str
) -> None:
    size, model_size = came.itemsize // (1 + (came.kind == "c")), dtype.real_dtype.size
    if came.kind in "fc" and size not in accepted:
        verb = "round" if size > model_size else "promote"
        or_model = ", or make a model of double precision" if model_size < size == 8 else ""
        raise TypeError(
            f"{name} is {came}, but the model is {dtype.name}: {verb} it, "
            f'{variable}.astype("{dtype.name}"){or_model}'
        )


# --- labels ---------------------------------------------------------------------------------------

# The usual types of a sample of a stream, which has no time for more.
_WITHOUT_LABELS = (np.ndarray, float, complex, np.float64, np.complex128, list, NoneType)


class _LabelledAxis(NamedTuple):
    """The labels of one axis of an array."""

    labels: Any  # an index of pandas
    name: str  # what errors call the array
    expression: str  # the labels, as code
    aligned: str  # the array with other labels, as code with {} for these
    is_index: bool = False
    """Whether the array is itself an index, which may stand beside any other labels."""


def check_same_labels(**arrays: tuple[Any, int]) -> None:
    """Raises a ValueError where arrays that are paired element by element have different labels.

    Objects of pandas have labels; objects of xarray where a dimension has a coordinate. An index
    of pandas labels itself, beside the same labels in another order. Axes are compared from the
    last one on, as they are broadcast. Axes of different lengths are left to the check of shapes.
    Each array comes with the number of its last axes that are not paired, such as dimensions.

    Example:
        >>> import pandas as pd
        >>> from cgp.observations import check_same_labels
        >>> x, z = pd.Series([1.0, 2.0], ["a", "b"]), pd.Series([2j, 1j], ["b", "a"])
        >>> check_same_labels(x=(x, 0), z=(z.loc[x.index], 0))
        >>> check_same_labels(x=(x, 0), z=(z, 0))
        Traceback (most recent call last):
        ...
        ValueError: x and z are paired by position, but their labels differ, such as a and b: ...
    """
    labelled = [
        list(_labels_of(name, array, unpaired))
        for name, (array, unpaired) in arrays.items()
        if not isinstance(array, _WITHOUT_LABELS)
    ]
    for first, second in itertools.combinations(labelled, 2):
        for axes in zip(reversed(first), reversed(second), strict=False):
            _check_labels(*axes)


def components(array: Any) -> int:
    """The number of last axes of a labelled array that are components: none of one axis, else 1."""
    return int(getattr(array, "ndim", 0) > 1)


def _labels_of(name: str, array: Any, unpaired: int) -> Iterator[_LabelledAxis | None]:
    """The labels of each axis but the last `unpaired`; None for an axis without them."""
    if _is_of_pandas(array) and hasattr(array, "axes"):
        expressions = [f"{name}.index", f"{name}.columns"]
        remedies = [name + ".loc[{}]", name + ".loc[:, {}]"]
        axes = list(map(_LabelledAxis, array.axes, itertools.repeat(name), expressions, remedies))
        yield from axes[: max(len(axes) - unpaired, 0)]
    elif _is_of_pandas(array) and hasattr(array, "is_unique"):
        yield _LabelledAxis(array, name, name, "{}", is_index=True)
    elif hasattr(array, "indexes") and isinstance(array.dims, tuple):
        for dimension in array.dims[: max(len(array.dims) - unpaired, 0)]:
            labels, key = array.indexes.get(dimension), repr(dimension)
            remedy = f"{name}.sel({{{{{key}: {{}}}}}})"
            axis = _LabelledAxis(labels, name, f"{name}.indexes[{key}]", remedy)
            yield None if labels is None else axis


def _are_default_labels(labels: Any) -> bool:
    """Whether these are the default labels of pandas, 0, 1, …."""
    return (getattr(labels, "start", None), getattr(labels, "step", None)) == (0, 1)


def _check_labels(first: _LabelledAxis | None, second: _LabelledAxis | None) -> None:
    if first is None or second is None or len(first.labels) != len(second.labels):
        return
    a, b = first.labels, second.labels
    is_beside_index = first.is_index and _are_default_labels(b)
    is_beside_index |= second.is_index and _are_default_labels(a)
    if is_beside_index or a.equals(b):
        return
    align = "pair them by their labels first"
    if a.is_unique and b.is_unique and set(a) == set(b):
        align = f"align them, {second.aligned.format(first.expression)}"
    elif first.is_index or second.is_index:
        return
    places = range(len(a))  # one by one: NaN, a label too, does not equal itself
    place = next(i for i in places if not a[i : i + 1].equals(b[i : i + 1]))
    raise ValueError(
        f"{first.name} and {second.name} are paired by position, but their labels differ, such as "
        f"{a[place]} and {b[place]}: {align}, or give {first.name}.to_numpy() and "
        f"{second.name}.to_numpy() if their order is right"
    )
