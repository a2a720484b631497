"""Checks of what the rank-one operations are given, and the batch axes they share."""

from functools import reduce

import numpy as np
import tensorflow as tf


def as_vector(x, name: str, chol: tf.Tensor) -> tf.Tensor:
    """`x` as a tensor `[..., n]` of the dtype of `chol`, `[..., n, n]`, or an error."""
    x = tf.convert_to_tensor(x)
    if x.dtype != chol.dtype:
        raise TypeError(
            f"{name} must have the dtype of chol, {chol.dtype.name}, got {x.dtype.name}"
        )
    rank = x.shape.rank
    if rank == 0 or (rank and not x.shape[-1:].is_compatible_with(chol.shape[-1:])):
        raise ValueError(
            f"{name} must be [..., {chol.shape[-1]}] for chol of shape {chol.shape}, "
            f"got shape {x.shape}"
        )
    return x


def as_real(x, name: str, chol: tf.Tensor) -> tf.Tensor:
    """`x` as a real tensor of the precision of `chol`, or an error."""
    dtype = chol.dtype.real_dtype
    if not tf.is_tensor(x) and not isinstance(x, tf.Variable):
        x = np.asarray(x)
        if x.dtype.kind not in "iuf":
            raise TypeError(f"{name} must be real, got {x.dtype.name}")
        return tf.convert_to_tensor(x.astype(dtype.as_numpy_dtype))
    x = tf.convert_to_tensor(x)
    if x.dtype != dtype:
        raise TypeError(
            f"{name} must be {dtype.name}, as chol is {chol.dtype.name}, got {x.dtype.name}"
        )
    return x


def as_index(x, name: str, stop, meaning: str) -> tuple[tf.Tensor, tf.Tensor]:
    """`x` as an int32 tensor with `0 <= x < stop`, and whether it is: an error where that is known.

    In a graph whose values are not known yet, an assertion; XLA drops it, hence the second value.
    """
    if not tf.is_tensor(x) and not isinstance(x, tf.Variable):
        x = np.asarray(x)
    if not tf.as_dtype(x.dtype).is_integer:
        raise TypeError(f"{name} must be an integer, got {tf.as_dtype(x.dtype).name}")
    x = tf.cast(tf.convert_to_tensor(x), tf.int32)
    ok = (x >= 0) & (x < stop)
    value, last = tf.get_static_value(x), tf.get_static_value(tf.convert_to_tensor(stop))
    if value is not None and last is not None:
        if np.any(value < 0) or np.any(value >= last):
            raise ValueError(f"{name} {meaning}: expected 0 to {np.min(last) - 1}, got {value}")
    else:
        tf.debugging.Assert(tf.reduce_all(ok), [f"{name} {meaning}; got", x, "of", stop])
    return x, ok


def known_sign(x: tf.Tensor) -> str | None:
    """`"+"` or `"-"` where every element of `x` is known to be of that sign, zero counting as +."""
    value = tf.get_static_value(x)
    if value is not None and np.all(value >= 0):
        return "+"
    if value is not None and np.all(value < 0):
        return "-"
    return None


def broadcast(**tensors: tuple[tf.Tensor, int]) -> list[tf.Tensor]:
    """Gives tensors, each named and with its number of own trailing axes, the same batch axes."""
    shapes = [x.shape[: x.shape.rank - own] for x, own in tensors.values()]
    if all(shape.is_fully_defined() and shape == shapes[0] for shape in shapes):
        return [x for x, _ in tensors.values()]
    try:
        batch = reduce(tf.broadcast_static_shape, shapes)
    except ValueError:
        given = ", ".join(f"{name} {x.shape}" for name, (x, _) in tensors.items())
        raise ValueError(f"the batch axes of these do not fit together: {given}") from None
    if not batch.is_fully_defined():
        dynamic = [tf.shape(x)[: x.shape.rank - own] for x, own in tensors.values()]
        batch = reduce(tf.broadcast_dynamic_shape, dynamic)
    return [
        tf.broadcast_to(x, tf.concat([batch, tf.shape(x)[x.shape.rank - own :]], axis=0))
        for x, own in tensors.values()
    ]
