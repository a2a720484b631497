"""Checks of the arguments of distributions, and broadcasting of their batch axes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import ArrayLike, as_matrix, check_finite, hermitian_gap
from cgp.linalg.cholesky import as_factor


def as_covariance(a: ArrayLike, loc: tf.Tensor, name: str) -> tf.Tensor:
    """Converts a covariance `[..., n, n]` to a tensor, and checks it against the mean `[..., n]`.

    It is Hermitian; symmetric if its name is "pseudo_covariance".

    Raises:
        TypeError: Another dtype than that of `loc`.
        ValueError: A shape that does not fit; eagerly, NaN, or not Hermitian or symmetric.
    """
    a = as_matrix(a, name, square=True, like=loc)
    n = loc.shape[-1]
    if a.dtype != loc.dtype:
        raise TypeError(f"{name} must be {loc.dtype.name} like loc, got {a.dtype.name}")
    if not a.shape[-1:].is_compatible_with([n]):
        raise ValueError(
            f"{name} must be [..., {n}, {n}] for a loc of shape {loc.shape}, got shape {a.shape}"
        )
    if tf.executing_eagerly():
        check_finite(a, name)
        symmetric = name == "pseudo_covariance"
        gap = hermitian_gap(a, symmetric)
        if gap:
            kind, mirrored = ("symmetric", "transpose") if symmetric else ("Hermitian", "adjoint")
            raise ValueError(f"{name} must be {kind}: it differs from its {mirrored} by {gap:.3g}")
    return a


def check_factor(chol: tf.Tensor) -> None:
    """Raises, eagerly, unless `chol` is lower triangular, its diagonal real and not negative."""
    check_finite(chol, "chol")
    as_factor(chol, singular=True)


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
    """The two integers of a stateless seed; of an integer they are 0 and this one.

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


def apply_to_vectors(
    operation: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], matrix: tf.Tensor, vectors: tf.Tensor
) -> tf.Tensor:
    """Applies `operation(matrix, columns)` to vectors with sample axes before the batch axes.

    Vectors along the sample axes become columns, so that each matrix is used once.

    Args:
        operation: A product or a solve, as `tf.linalg.matmul` and `tf.linalg.triangular_solve`.
        matrix: `[..., d, d]`.
        vectors: `[..., d]`, with as many batch axes as `matrix`, or more.
    """
    extra = (vectors.shape.rank - 1) - (matrix.shape.rank - 2)
    if extra <= 0:
        return operation(matrix, vectors[..., None])[..., 0]
    shape = tf.shape(vectors)
    samples, event = shape[:extra], shape[extra:]
    count = tf.reduce_prod(samples)
    # This only swaps axes; no conjugation is meant.
    columns = tf.linalg.matrix_transpose(tf.reshape(vectors, [count, tf.reduce_prod(event)]))
    result = operation(matrix, tf.reshape(columns, tf.concat([event, [count]], axis=0)))
    event = tf.shape(result)[:-1]
    rows = tf.linalg.matrix_transpose(tf.reshape(result, [tf.reduce_prod(event), count]))
    return tf.reshape(rows, tf.concat([samples, event], axis=0))


def broadcast_batch(
    tensor: tf.Tensor, batch: tf.TensorShape, dynamic_batch: tf.Tensor, event_rank: int
) -> tf.Tensor:
    """Broadcasts the batch axes of `tensor` against a batch shape, given static and dynamic."""
    rank = tensor.shape.rank - event_rank
    tensor_batch, event = tensor.shape[:rank], tf.shape(tensor)[rank:]
    try:
        tf.broadcast_static_shape(tensor_batch, batch)
    except ValueError:
        raise ValueError(f"batch shapes {tensor_batch} and {batch} do not broadcast") from None
    if tensor_batch.is_fully_defined() and tensor_batch == batch:
        return tensor
    together = tf.broadcast_dynamic_shape(tf.shape(tensor)[:rank], dynamic_batch)
    return tf.broadcast_to(tensor, tf.concat([together, event], axis=0))
