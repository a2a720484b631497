"""The data of a Gaussian process: validated, and arranged for linear algebra."""

from typing import NamedTuple

import tensorflow as tf

from cgp.kernels.points import as_points
from cgp.linalg.arguments import ArrayLike, is_nan
from cgp.linalg.composite import complex_dtype
from cgp.observations import as_observations


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


def as_data(
    x: ArrayLike,
    z: ArrayLike,
    missing: ArrayLike | None,
    real_dtype: str,
    *,
    require_targets: bool = True,
) -> Data:
    """Data from arrays or tensors, or an error that says what was expected and what came.

    Args:
        x: Inputs, `[N]`, `[N, D]` or `[..., N, D]`.
        z: Complex targets, `[..., N]`; NaN, or hidden by a mask, where missing.
        missing: Bool, broadcast against z: True where missing too. None for none.
        real_dtype: "float64" or "float32".
        require_targets: Whether each series must have a target, where values are known.

    Raises:
        TypeError: Real targets, complex inputs, or a precision that is not the model's.
        ValueError: Shapes that do not fit, infinite targets, NaN inputs, no targets at all.
    """
    x, z = as_inputs_and_targets(x, z, missing, real_dtype)
    is_known = require_targets and tf.executing_eagerly()
    if is_known and bool(tf.reduce_any(tf.reduce_all(is_nan(z), axis=-1))):
        raise ValueError("every target of a series is missing: there is nothing to learn from")
    return arranged(x, z)


def as_inputs_and_targets(
    x: ArrayLike, z: ArrayLike, missing: ArrayLike | None, real_dtype: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """Inputs `[..., N, D]` and targets `[..., N]` as tensors; arguments and errors of `as_data`."""
    x = as_points(x, real_dtype)
    z = tf.convert_to_tensor(as_observations(z, missing, complex_dtype(real_dtype)))
    _check_shapes(x.shape, z.shape)
    return x, z


def _check_shapes(x: tf.TensorShape, z: tf.TensorShape) -> None:
    """Raises where the shapes of inputs and targets do not fit together."""
    hint = ""
    if x == z:
        hint = f"; inputs of a batch have an axis of dimensions, x[..., None] of {(*z, 1)}"
    if z.rank == 0 or not x[-2:-1].is_compatible_with(z[-1:]):
        raise ValueError(
            f"z must be [..., N] with as many points as x, got shapes {z} and x {x}{hint}"
        )
    if x.rank > 2 and not x[:-2].is_compatible_with(z[:-1]):
        raise ValueError(f"the batch axes of x, {x[:-2]}, must be those of z, {z[:-1]}{hint}")
    if z.rank and z[-1] == 0:
        raise ValueError("x and z are empty: at least one point was expected")


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
