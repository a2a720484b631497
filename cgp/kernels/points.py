"""Arguments of kernels: the points they are evaluated at, and the numbers they are made from."""

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import ArrayLike
from cgp.training.parameters import Parameter


def as_points(x, dtype, name: str = "x") -> tf.Tensor:
    """Inputs as a tensor `[..., N, D]` of the given real dtype; `[N]` becomes `[N, 1]`.

    Raises:
        TypeError: Complex inputs, or anything else but real numbers.
        ValueError: A scalar; or (eagerly) NaN, or points that the dtype does not tell apart.
    """
    if np.ma.is_masked(x):
        raise ValueError(f"{name} must be known everywhere, but has masked elements")
    x = x if tf.is_tensor(x) else np.asarray(x)
    if isinstance(x, np.ndarray) and x.dtype.kind not in "iufc":
        raise TypeError(
            f"{name} must be real numbers, got {x.dtype}: make dates, say, a number of days"
        )
    if tf.as_dtype(x.dtype).is_complex:
        raise TypeError(
            f"{name} must be real, got {tf.as_dtype(x.dtype).name}: embed a complex input as two "
            "real coordinates, np.stack([x.real, x.imag], axis=-1)"
        )
    given = x
    with np.errstate(over="ignore"):  # 1e300 in float32 is refused below
        x = tf.cast(x, dtype) if tf.is_tensor(x) else tf.convert_to_tensor(x.astype(str(dtype)))
    if x.shape.rank == 0:
        raise ValueError(f"{name} must be [N] or [..., N, D], got a scalar")
    if tf.executing_eagerly():
        if not bool(tf.reduce_all(tf.math.is_finite(x))):
            raise ValueError(f"{name} must be finite, but has NaN or infinite elements")
        if x.dtype == tf.float32 and tf.as_dtype(given.dtype).size > x.dtype.size:
            _check_rounding(np.asarray(given, np.float64), name)
    return x[:, None] if x.shape.rank == 1 else x


def as_pairs(x1: ArrayLike, x2: ArrayLike | None, dtype: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Two sets of inputs that fit together, `[..., N1, D]` and `[..., N2, D]`; x2 None for x1.

    Raises:
        TypeError, ValueError: As for `as_points`; shapes that do not fit.
    """
    x1 = as_points(x1, dtype, "x1")
    x2 = x1 if x2 is None else as_points(x2, dtype, "x2")
    if not x1.shape[-1:].is_compatible_with(x2.shape[-1:]):
        raise ValueError(
            f"x1 and x2 must have the same number of dimensions D, got shapes {x1.shape} and "
            f"{x2.shape}"
        )
    try:
        tf.broadcast_static_shape(x1.shape[:-2], x2.shape[:-2])
    except ValueError:
        raise ValueError(
            f"the batch axes of x1, {x1.shape}, and x2, {x2.shape}, do not broadcast"
        ) from None
    return x1, x2


def _check_rounding(x: np.ndarray, name: str) -> None:
    """Refuses points that single precision moves by more than a tenth of the step between them."""
    for coordinate in x.reshape(-1, x.shape[-1] if x.ndim > 1 else 1).T:
        values = np.unique(coordinate)
        steps = np.diff(values)
        # Equal points, computed in two ways, may differ by the rounding of double precision.
        steps = steps[steps > 1e-14 * np.max(np.abs(values), initial=0.0)]
        moved = np.max(np.abs(values.astype(np.float32) - values), initial=0.0)
        if steps.size and moved > 0.1 * np.median(steps):
            raise ValueError(
                f"{name} loses its steps of {np.median(steps):.2g} in float32, which rounds it by "
                f'up to {moved:.2g}: subtract an origin from it first, or use dtype="float64"'
            )


def one_number(value, name: str, or_vector: bool = False):
    """`value`, if it is one number; or, with `or_vector`, one for each dimension of x.

    Raises:
        TypeError: It is no number.
        ValueError: It has another shape.
    """
    if np.asarray(value).dtype.kind not in "iufc":
        raise TypeError(f"{name} must be a number, got {value!r}")
    shape = np.shape(value)
    if len(shape) > int(or_vector) or 0 in shape:
        wanted = "one number" + (", or one for each dimension of x" if or_vector else "")
        raise ValueError(f"{name} must be {wanted}, got shape {shape}")
    return value


def per_dimension(parameter: Parameter, x: tf.Tensor) -> tf.Tensor:
    """The value of a parameter that is one number, or one for each dimension of `x` `[..., D]`.

    Raises:
        ValueError: One for each dimension, but of another number of dimensions.
    """
    value = parameter.value
    # Without this, a vector would broadcast against inputs of one dimension and make D of them.
    if value.shape.rank and not value.shape.is_compatible_with(x.shape[-1:]):
        raise ValueError(
            f"{parameter.name} has {value.shape[0]} elements, one for each dimension of x, but x "
            f"has {x.shape[-1]} dimensions"
        )
    return value
