"""The data of a Gaussian process: checked, arranged for linear algebra, and kept in variables."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from cgp.kernels.points import LARGEST, as_points, within
from cgp.linalg.arguments import ArrayLike, complex_dtype, is_nan
from cgp.observations import as_observations


class Data(NamedTuple):
    """Inputs and targets of B series, arranged in one way whatever their batch axes were.

    Series at the same inputs with the same elements missing share one covariance and its factor:
    they are columns of targets beside it. Otherwise each series has its own. The number of
    covariances, G, follows from the data when they are used, so that a compiled function serves
    either case.
    """

    x: tf.Tensor
    """`[X, N, D]`: X is 1 for inputs that all series share, else B."""
    z: tf.Tensor
    """`[B, N]`, complex, NaN where missing."""
    batch: tf.Tensor
    """The batch axes that were given, int32, `[r]`; empty for a single series."""

    @property
    def is_single(self) -> bool:
        """Whether they were given as one series, without a batch axis; not in graphs."""
        return self.batch.shape[0] == 0

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
        """Arranges vectors of series, `[B, n]`, as columns beside a covariance, `[G, n, S]`."""
        return tf.linalg.matrix_transpose(self._grouped(vectors))  # rearranged, not conjugated

    def vectors(self, columns: tf.Tensor) -> tf.Tensor:
        """Rearranges columns, `[G, n, S]`, as vectors of series, `[B, n]`: undoes `columns`."""
        rows = tf.linalg.matrix_transpose(columns)
        return tf.reshape(rows, [-1, tf.shape(rows)[-1]])

    def unpacked(self, values: tf.Tensor) -> tf.Tensor:
        """Restores the batch axes that were given: `[B, ...]` -> `[..., ...]`."""
        batch, own = tf.get_static_value(self.batch), values.shape[1:]
        if batch is not None and own.is_fully_defined():  # in one operation
            return tf.reshape(values, [*batch, *own.as_list()])
        return tf.reshape(values, tf.concat([self.batch, tf.shape(values)[1:]], axis=0))

    def spread(self, values: tf.Tensor) -> tf.Tensor:
        """Repeats values of covariances, `[G, ...]`, for their series, in the batch axes given.

        Where all series are known to share one covariance its values have no batch axes, and
        broadcast.
        """
        known = tf.get_static_value(self.groups)
        if known == 1:
            return values[0]
        if known is None:
            series = tf.shape(self.z)[0]
            values = tf.repeat(values, series // tf.shape(values)[0], axis=0)
        return self.unpacked(values)


def arranged(x: tf.Tensor, z: tf.Tensor) -> Data:
    """Arranges inputs `[N, D]` or `[..., N, D]` and targets `[..., N]` as `Data`."""
    known = z.shape[:-1].is_fully_defined()
    batch = tf.constant(z.shape[:-1].as_list(), tf.int32) if known else tf.shape(z)[:-1]
    return Data(flattened(x, 2), flattened(z, 1), batch)


def flattened(values: tf.Tensor, own: int) -> tf.Tensor:
    """Reshapes any number of batch axes to one, before the last `own` axes."""
    event = values.shape[values.shape.rank - own :]
    if event.is_fully_defined():
        return tf.reshape(values, [-1, *event.as_list()])
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
    # Mostly the first target of each series is there.
    if (
        is_known
        and np.isnan(np.asarray(z)[..., 0]).any()
        and bool(tf.reduce_any(tf.reduce_all(is_nan(z), axis=-1)))
    ):
        raise ValueError("every target of a series is missing: there is nothing to learn from")
    return arranged(x, z)


def as_inputs_and_targets(
    x: ArrayLike, z: ArrayLike, missing: ArrayLike | None, real_dtype: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """Inputs `[..., N, D]` and targets `[..., N]` as tensors; arguments and errors of `as_data`."""
    line = np.ndim(x) == 1
    x = as_points(x, real_dtype)
    z = as_observations(z, missing, complex_dtype(real_dtype), copy=False)
    z = tf.convert_to_tensor(z)  # a copy of an array
    if line and z.shape[-1:] == [1] and x.shape[0] not in (1, None):
        raise ValueError(
            f"z must be [..., {x.shape[0]}] for x of shape ({x.shape[0]},), got shape {z.shape}: "
            "of one series, z[:, 0]"
        )
    _check_shapes(x.shape, z.shape)
    if tf.executing_eagerly():
        check_squares(np.asarray(z), real_dtype)
    return x, z


def check_squares(z: np.ndarray, real_dtype: str) -> None:
    """Raises for targets whose squares, which a density is made of, overflow; NaN passes."""
    if z.flags.c_contiguous and within(z.reshape(-1).view(real_dtype), 0.5 * LARGEST[real_dtype]):
        return  # as both parts show sooner
    if np.any(np.abs(z) > LARGEST[real_dtype]):
        raise ValueError(
            f"z is too large, {np.nanmax(np.abs(z)):.3g}: at most {LARGEST[real_dtype]:.2g} in "
            f"modulus was expected, as squares overflow in {real_dtype}. Give z another unit"
        )


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


def saved_data(store: Mapping[str, npt.ArrayLike], real_dtype: str) -> Data:
    """The data of a file, "x" `[X, N, D]`, "z" `[B, N, 2]` and "batch" `[r]`, checked.

    Raises:
        ValueError: They are not there, or are no data of any model.
    """
    try:
        x, z, batch = (np.asarray(store[name]) for name in ("x", "z", "batch"))
    except KeyError as error:
        raise ValueError(f"the file has no data of a Gaussian process: {error}") from None
    try:
        if (x.ndim, z.ndim, batch.ndim) != (3, 3, 1) or z.shape[2] != 2:
            raise ValueError("x must be [X, N, D], z [B, N, 2] and batch [r]")
        if len(z) and np.prod(batch) != len(z):
            raise ValueError(f"z has {len(z)} series, but the batch axes are {batch.tolist()}")
        if len(x) not in (1, len(z)):
            raise ValueError(f"x must have the inputs of 1 or of {len(z)} series")
        axes, z = tf.constant(batch, tf.int32), tf.complex(z[..., 0], z[..., 1])
        if x.size == 0 and len(z) == 0:
            return Data(tf.constant(x), z, axes)
        data = as_data(x if len(x) > 1 else x[0], z, None, real_dtype, require_targets=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the data in the file, x of shape {x.shape} and z of shape {z.shape}, are damaged: "
            f"{error}"
        ) from None
    return data._replace(batch=axes)


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


class StoredData(tf.Module):
    """The data that a Gaussian process has taken in, as variables of any size; empty at first.

    They are no Keras weights, whose shapes are fixed: a process is fitted again with other data.
    They stay the same variables, so that a compiled function sees what they hold when it runs.

    Args:
        real_dtype: The dtype of the inputs, "float64" or "float32".
    """

    def __init__(self, real_dtype: str):
        super().__init__()
        self.x = empty_variable(3, real_dtype)
        self.z = empty_variable(2, complex_dtype(real_dtype))
        self.batch = empty_variable(1, tf.int32)

    @property
    def is_empty(self) -> tf.Tensor:
        """Whether no data have been taken in, scalar bool."""
        return tf.size(self.z) == 0

    @property
    def data(self) -> Data:
        """The data; of no series if empty."""
        x, z, batch = (tf.convert_to_tensor(v) for v in (self.x, self.z, self.batch))
        return Data(x, z, batch)

    def data_of_graph(self) -> Data:
        """The data as a graph reads them, which keeps the number of batch axes of its tracing.

        The graph fails where it runs without data.
        """
        with tf.init_scope():
            axes = int(tf.size(self.batch))
        data = self.data
        some = tf.debugging.assert_equal(
            self.is_empty, False, "there are no data: condition(x, z) first"
        )
        with tf.control_dependencies([some]):
            return data._replace(batch=tf.ensure_shape(data.batch, [axes]), x=tf.identity(data.x))

    def replace(self, data: Data) -> None:
        """Takes in other data."""
        self.x.assign(data.x)
        self.z.assign(data.z)
        self.batch.assign(data.batch)

    def holds(self, data: Data) -> tf.Tensor:
        """Whether these are the data, scalar bool."""
        stored = self.data
        return _equal(stored.x, data.x) & _equal(_comparable(stored.z), _comparable(data.z))


def empty_variable(rank: int, dtype: tf.DType | str) -> tf.Variable:
    """A variable without elements, which takes values of any shape of this rank."""
    return tf.Variable(tf.zeros([0] * rank, dtype), trainable=False, shape=[None] * rank)


def _comparable(z: tf.Tensor) -> tf.Tensor:
    """Targets with infinity, which equals itself, for NaN."""
    return tf.where(is_nan(z), tf.constant(float("inf"), z.dtype), z)


def _equal(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    # For any two shapes and without a branch: XLA compiles both branches, and wants shapes to fit.
    same_shape = tf.reduce_all(tf.shape(a) == tf.shape(b))
    size = tf.minimum(tf.size(a), tf.size(b))
    return same_shape & tf.reduce_all(tf.reshape(a, [-1])[:size] == tf.reshape(b, [-1])[:size])
