"""The data of a Gaussian process: validated, and arranged for linear algebra."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.kernels.base import as_points


class Data(NamedTuple):
    """Inputs and targets of one series or of a batch of them.

    Series at the same inputs, with the same elements missing, share one covariance and one factor:
    they are columns of targets. Others have one each.
    """

    x: tf.Tensor
    """`[N, D]`, or `[..., N, D]` where series have inputs of their own."""
    z: tf.Tensor
    """`[..., N]`, complex, NaN where missing."""
    shared: bool
    """Whether all series share one covariance."""

    @property
    def present(self) -> tf.Tensor:
        """True where there is a target, `[..., N]`."""
        return ~_isnan(self.z)

    @property
    def keep(self) -> tf.Tensor:
        """`present`, once for each covariance."""
        return self.present if not self.shared else tf.reshape(self.present, [-1, self.size])[0]

    @property
    def size(self):
        """N."""
        return self.z.shape[-1] or tf.shape(self.z)[-1]

    @property
    def counts(self) -> tf.Tensor:
        """The number of targets of each series, real, `[...]`."""
        return tf.reduce_sum(tf.cast(self.present, self.z.dtype.real_dtype), axis=-1)

    def columns(self, vectors: tf.Tensor) -> tf.Tensor:
        """A vector for each series, `[..., n]`, as columns beside its covariance, `[..., n, S]`."""
        if not self.shared:
            return vectors[..., None]
        # series become columns: nothing is conjugated
        flat = tf.reshape(vectors, [-1, tf.shape(vectors)[-1]])
        return tf.linalg.matrix_transpose(flat)

    def vectors(self, columns: tf.Tensor) -> tf.Tensor:
        """The inverse of `columns`."""
        if not self.shared:
            return columns[..., 0]
        flat = tf.linalg.matrix_transpose(columns)
        return tf.reshape(flat, tf.concat([tf.shape(self.z)[:-1], tf.shape(flat)[-1:]], axis=0))

    def per_series(self, values: tf.Tensor) -> tf.Tensor:
        """A value for each column, `[..., S]`, as one for each series, `[...]`."""
        return tf.reshape(values, tf.shape(self.z)[:-1])


def _isnan(z: tf.Tensor) -> tf.Tensor:
    return tf.math.is_nan(tf.math.real(z)) | tf.math.is_nan(tf.math.imag(z))


def validated(x, z, missing, real_dtype: str) -> Data:
    """Data from arrays, or an error that says what was expected and what came.

    Args:
        x: Inputs, `[N]`, `[N, D]` or `[..., N, D]`.
        z: Complex targets, `[..., N]`; NaN where missing.
        missing: Bool, broadcast against z: True where missing. None for none but NaN.
        real_dtype: "float64" or "float32".

    Raises:
        TypeError: Real targets, complex inputs, or a precision that is not the model's.
        ValueError: Shapes that do not fit, infinite targets, NaN inputs, no targets at all.
    """
    x, z = as_points(x, real_dtype), np.array(z)
    check_fit(Data(x, z, True), real_dtype)
    if z.shape[-1] == 0:
        raise ValueError("x and z are empty: at least one point was expected")
    if missing is not None:
        missing = np.asarray(missing)
        if missing.dtype != bool:
            raise TypeError(f"missing must be bool, True where missing, got {missing.dtype}")
        try:
            z[np.broadcast_to(missing, z.shape)] = np.nan
        except ValueError:
            raise ValueError(
                f"missing must broadcast against z, {z.shape}, got shape {missing.shape}"
            ) from None
    if np.isinf(z).any():
        raise ValueError(
            "z has infinite elements: finite values, or NaN for missing, were expected"
        )
    absent = np.isnan(z)
    if absent.all(axis=-1).any():
        raise ValueError("every target of a series is missing: there is nothing to learn from")
    flat = absent.reshape(-1, z.shape[-1])
    shared = x.shape.rank == 2 and bool((flat == flat[0]).all())
    return Data(x, tf.convert_to_tensor(z), shared)


def check_fit(data: Data, real_dtype: str) -> None:
    """Raises where dtypes or shapes of targets do not fit the model or the inputs."""
    x, z = data.x, data.z
    complex_dtype = {"float64": "complex128", "float32": "complex64"}[real_dtype]
    dtype = tf.as_dtype(z.dtype) if z.dtype != object else None
    if dtype is None or not dtype.is_complex:
        raise TypeError(
            f"z must be complex, got {z.dtype}: a real signal has a real model; if these are "
            "complex values without imaginary part, give z.astype(complex)"
        )
    if dtype != complex_dtype:
        advice = (
            f'promote it, z.astype("{complex_dtype}")'
            if real_dtype == "float64"
            else 'round it, z.astype("complex64"), or make the model with dtype="float64"'
        )
        raise TypeError(f"z is {dtype.name}, but the model is {complex_dtype}: {advice}")
    given, shape = x.shape, tf.TensorShape(z.shape)
    hint = ""
    if given == shape:
        hint = f"; inputs of a batch have an axis of dimensions, x[..., None] of {(*shape, 1)}"
    if shape.rank == 0 or not given[-2:-1].is_compatible_with(shape[-1:]):
        raise ValueError(
            f"z must be [..., N] with as many points as x, got shapes {shape} and x {given}{hint}"
        )
    if given.rank > 2 and not given[:-2].is_compatible_with(shape[:-1]):
        raise ValueError(
            f"the batch axes of x, {given[:-2]}, must be those of z, {shape[:-1]}{hint}"
        )
