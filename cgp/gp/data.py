"""The data of a Gaussian process: validated, and arranged for linear algebra."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.kernels.points import as_points
from cgp.linalg.arguments import is_nan
from cgp.linalg.composite import complex_dtype


class Data(NamedTuple):
    """Inputs and targets of a batch of B series, of one shape whatever was given.

    Series at the same inputs with the same elements missing share one covariance and its factor:
    they are columns of targets beside it. Otherwise each series has its own. How many covariances
    there are is read off the data, so that a compiled function serves either.
    """

    x: tf.Tensor
    """`[X, N, D]`: X is 1 for inputs that all series share, else B."""
    z: tf.Tensor
    """`[B, N]`, complex, NaN where missing."""
    batch: tf.Tensor
    """The batch axes that were given, int32, `[r]`; empty for a single series."""

    @property
    def present(self) -> tf.Tensor:
        """True where there is a target, `[B, N]`."""
        return ~is_nan(self.z)

    @property
    def groups(self) -> tf.Tensor:
        """G, the number of covariances: 1 or B, int32."""
        series = self.z.shape[0]
        if series is not None and (series == 1 or (self.x.shape[0] or 1) > 1):
            return tf.constant(series)
        present = self.present
        alike = (tf.shape(self.x)[0] == 1) & tf.reduce_all(present == present[:1])
        return tf.where(alike, 1, tf.shape(self.z)[0])

    @property
    def keep(self) -> tf.Tensor:
        """`present`, once for each covariance, `[G, N]`."""
        return self._grouped(self.present)[:, 0]

    @property
    def counts(self) -> tf.Tensor:
        """The number of targets of each series, real, `[B]`."""
        return tf.reduce_sum(tf.cast(self.present, self.z.dtype.real_dtype), axis=-1)

    def _grouped(self, vectors: tf.Tensor) -> tf.Tensor:
        """`[B, n]` -> `[G, S, n]`, S series to a covariance."""
        size = tf.shape(vectors)[-1] if vectors.shape[-1] is None else vectors.shape[-1]
        return tf.reshape(vectors, [self.groups, -1, size])

    def columns(self, vectors: tf.Tensor) -> tf.Tensor:
        """A vector for each series, `[B, n]`, as columns beside their covariance, `[G, n, S]`."""
        return tf.linalg.matrix_transpose(self._grouped(vectors))  # rearranged, not conjugated

    def vectors(self, columns: tf.Tensor) -> tf.Tensor:
        """The inverse of `columns`."""
        rows = tf.linalg.matrix_transpose(columns)
        return tf.reshape(rows, [-1, tf.shape(rows)[-1]])

    def unpacked(self, values: tf.Tensor) -> tf.Tensor:
        """Something for each series, `[B, ...]`, under the batch axes that were given."""
        return tf.reshape(values, tf.concat([self.batch, tf.shape(values)[1:]], axis=0))

    def spread(self, values: tf.Tensor) -> tf.Tensor:
        """Something for each covariance, `[G, ...]`, under the batch axes that were given.

        Without batch axes, to be broadcast, where all series are known to share one.
        """
        known = tf.get_static_value(self.groups)
        if known == 1:
            return values[0]
        if known is None:
            series = tf.shape(self.z)[0]
            values = tf.repeat(values, series // tf.shape(values)[0], axis=0)
        return self.unpacked(values)


def arranged(x: tf.Tensor, z: tf.Tensor) -> Data:
    """Data of inputs `[N, D]` or `[..., N, D]` and targets `[..., N]`."""
    return Data(flattened(x, 2), flattened(z, 1), tf.shape(z)[:-1])


def flattened(values: tf.Tensor, own: int) -> tf.Tensor:
    """`values` with one batch axis instead of any number, before `own` axes."""
    event = values.shape[values.shape.rank - own :]
    if not event.is_fully_defined():
        event = tf.shape(values)[values.shape.rank - own :]
    return tf.reshape(values, tf.concat([[-1], event], axis=0))


def validated(x, z, missing, real_dtype: str, *, require_targets: bool = True) -> Data:
    """Data from arrays, or an error that says what was expected and what came.

    Args:
        x: Inputs, `[N]`, `[N, D]` or `[..., N, D]`.
        z: Complex targets, `[..., N]`; NaN where missing.
        missing: Bool, broadcast against z: True where missing. None for none but NaN, and what
            the mask of a masked array says.
        real_dtype: "float64" or "float32".
        require_targets: Whether each series must have a target.

    Raises:
        TypeError: Real targets, complex inputs, or a precision that is not the model's.
        ValueError: Shapes that do not fit, infinite targets, NaN inputs, no targets at all.
    """
    x = as_points(x, real_dtype)
    if np.ma.isMaskedArray(z):
        missing = np.ma.getmaskarray(z) | (False if missing is None else np.asarray(missing))
    z = np.array(z)
    check_fit(x, z, real_dtype)
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
    if require_targets and np.isnan(z).all(axis=-1).any():
        raise ValueError("every target of a series is missing: there is nothing to learn from")
    return arranged(x, tf.convert_to_tensor(z))


def check_fit(x: tf.Tensor, z, real_dtype: str) -> None:
    """Raises where dtypes or shapes of targets do not fit the model or the inputs."""
    expected = complex_dtype(real_dtype)
    dtype = tf.as_dtype(z.dtype) if z.dtype != object else None
    if dtype is None or not dtype.is_complex:
        raise TypeError(
            f"z must be complex, got {z.dtype}: a real signal has a real model; if these are "
            "complex values without imaginary part, give z.astype(complex)"
        )
    if dtype != expected:
        advice = (
            f'promote it, z.astype("{expected.name}")'
            if real_dtype == "float64"
            else 'round it, z.astype("complex64"), or make the model with dtype="float64"'
        )
        raise TypeError(f"z is {dtype.name}, but the model is {expected.name}: {advice}")
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


def check_points(x: tf.Tensor, data: Data) -> None:
    """Raises, eagerly, for new inputs that do not fit the data."""
    if x.shape[-1] != data.x.shape[-1]:
        raise ValueError(
            f"x must have as many dimensions as the data, {data.x.shape[-1]}, got shape {x.shape}"
        )
    batch = data.batch.numpy().tolist()
    shared = data.x.shape[0] == 1 and batch != [1]
    if x.shape.rank > 2 and (shared or x.shape[:-2].as_list() != batch):
        own = "" if shared else f", or {[*batch, 'M', 'D']}"
        raise ValueError(f"x must be [M] or [M, D]{own} for these data, got shape {x.shape}")
