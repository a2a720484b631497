"""Checks of what a distribution is given, and the batch axes of its parts."""

import numpy as np
import tensorflow as tf

from cgp.linalg.cholesky import as_matrix


def as_vector(value, name: str) -> tf.Tensor:
    """`value` as a complex tensor `[..., n]`, or an error."""
    value = tf.convert_to_tensor(value)
    if not value.dtype.is_complex:
        raise TypeError(f"{name} must be complex64 or complex128, got {value.dtype.name}")
    if value.shape.rank == 0:
        raise ValueError(f"{name} must be a vector, [..., n], got a scalar")
    return value


def as_covariance(a, loc: tf.Tensor, name: str) -> tf.Tensor:
    """`a` as a matrix that fits `loc`: Hermitian as a covariance, symmetric as a pseudo one."""
    a = as_matrix(a, name, square=True)
    n = loc.shape[-1]
    if a.dtype != loc.dtype:
        raise TypeError(f"{name} must be {loc.dtype.name} like loc, got {a.dtype.name}")
    if not a.shape[-1:].is_compatible_with([n]):
        raise ValueError(
            f"{name} must be [..., {n}, {n}] for a loc of shape {loc.shape}, got shape {a.shape}"
        )
    if tf.executing_eagerly() and tf.size(a) > 0:
        check_finite(a, name)
        hermitian = name == "covariance"
        # The pseudo-covariance is symmetric: no conjugation is meant.
        turned = tf.linalg.adjoint(a) if hermitian else tf.linalg.matrix_transpose(a)
        gap = float(tf.reduce_max(tf.abs(a - turned)))
        if gap > 1e3 * _eps(a) * float(tf.reduce_max(tf.abs(a))):
            kind, other = ("Hermitian", "adjoint") if hermitian else ("symmetric", "transpose")
            raise ValueError(f"{name} must be {kind}: it differs from its {other} by {gap:.3g}")
    return a


def check_factor(chol: tf.Tensor) -> None:
    """Raises, eagerly, for what is no lower triangular factor with a real diagonal."""
    check_finite(chol, "chol")
    diagonal = tf.linalg.diag_part(chol)
    if bool(tf.reduce_any(tf.linalg.band_part(chol, -1, 0) != chol)):
        raise ValueError(
            "chol must be lower triangular, but there is something above its diagonal "
            "(from a covariance, use ComplexNormal.from_covariance)"
        )
    if bool(tf.reduce_any((tf.math.imag(diagonal) != 0) | (tf.math.real(diagonal) < 0))):
        raise ValueError("chol must have a real diagonal that is not negative")


def check_finite(value: tf.Tensor, name: str) -> None:
    """Raises, eagerly, for NaN and infinite elements."""
    # A sum is NaN or infinite if a part is; a modulus covers the real and imaginary parts.
    if not bool(tf.math.is_finite(tf.reduce_sum(tf.abs(value)))):
        raise ValueError(f"{name} of shape {value.shape} has elements that are NaN or infinite")


def _eps(a: tf.Tensor) -> float:
    return float(np.finfo(a.dtype.real_dtype.as_numpy_dtype).eps)


def stateless_seed(seed) -> tf.Tensor:
    """The two integers of a stateless seed: from one, from two, or for None from a global one."""
    if seed is None:
        return tf.random.uniform([2], maxval=np.iinfo(np.int32).max, dtype=tf.int32)
    seed = tf.convert_to_tensor(seed)
    if not seed.dtype.is_integer or seed.shape not in ([], [2]):
        raise ValueError(f"seed must be one integer or two, got {seed.dtype.name} {seed.shape}")
    return seed if seed.shape.rank else tf.stack([tf.zeros_like(seed), seed])


def apply_to_vectors(operation, matrix: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
    """`operation(matrix, columns)` over vectors `[..., d]` of any sample axes before batch axes.

    Axes that the matrix lacks become columns, so that a matrix is used once for all of them.
    """
    extra = (vectors.shape.rank - 1) - (matrix.shape.rank - 2)
    if extra <= 0:
        return operation(matrix, vectors[..., None])[..., 0]
    shape = tf.shape(vectors)
    samples, rest = shape[:extra], shape[extra:]
    count = tf.reduce_prod(samples)
    # Axes change places here, and nothing is conjugated.
    columns = tf.linalg.matrix_transpose(tf.reshape(vectors, [count, tf.reduce_prod(rest)]))
    result = operation(matrix, tf.reshape(columns, tf.concat([rest, [count]], axis=0)))
    rest = tf.shape(result)[:-1]
    rows = tf.linalg.matrix_transpose(tf.reshape(result, [tf.reduce_prod(rest), count]))
    return tf.reshape(rows, tf.concat([samples, rest], axis=0))


def broadcast_batch(
    value: tf.Tensor, batch: tf.TensorShape, dynamic_batch: tf.Tensor, event_rank: int
) -> tf.Tensor:
    """`value` with its batch axes broadcast with others, if they are not so already."""
    rank = value.shape.rank - event_rank
    own, event = value.shape[:rank], tf.shape(value)[rank:]
    try:
        tf.broadcast_static_shape(own, batch)
    except ValueError:
        raise ValueError(f"batch shapes {own} and {batch} do not broadcast") from None
    if own.is_fully_defined() and own == batch:
        return value
    together = tf.broadcast_dynamic_shape(tf.shape(value)[:rank], dynamic_batch)
    return tf.broadcast_to(value, tf.concat([together, event], axis=0))
