"""The data that a Gaussian process has taken in: as variables, and in files."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from cgp.gp.data import Data, as_data
from cgp.gp.noise import NoiseArguments, SampleNoise
from cgp.linalg.arguments import complex_dtype, is_nan


class StoredData(tf.Module):
    """Variables of any size for the data that a Gaussian process has taken in; empty at first.

    They are no Keras weights, whose shapes are fixed: a process is fitted again with other data.
    They stay the same variables, so that a compiled function reads the data present when it runs.

    Args:
        real_dtype: The dtype of the inputs, "float64" or "float32".
        groups: The number of groups of noise of the model; None for none.
    """

    def __init__(self, real_dtype: str, groups: int | None = None):
        super().__init__()
        self.groups = groups
        self.x = empty_variable(3, real_dtype)
        self.z = empty_variable(2, complex_dtype(real_dtype))
        self.batch = empty_variable(1, tf.int32)
        # Of samples without a known part, one zero, which broadcasts.
        nothing = tf.zeros([1, 1], real_dtype)
        self._noise_variance = tf.Variable(nothing, trainable=False, shape=[None, None])
        self._noise_group = None if groups is None else empty_variable(2, tf.int32)

    @property
    def no_samples(self) -> SampleNoise:
        """The noise of no samples."""
        return SampleNoise(None, None if self.groups is None else tf.zeros([1, 0], tf.int32))

    @property
    def is_empty(self) -> tf.Tensor:
        """Whether no data have been taken in, scalar bool."""
        return tf.size(self.z) == 0

    @property
    def has_noise(self) -> bool:
        """Whether a sample has a known part of its noise; outside of graphs."""
        return bool(np.any(self._noise_variance.numpy()))

    @property
    def data(self) -> Data:
        """The data; of no series if empty. In a graph the noise has a known part, maybe zero."""
        x, z, batch = (tf.convert_to_tensor(v) for v in (self.x, self.z, self.batch))
        is_plain = tf.executing_eagerly() and not self.has_noise
        variance = None if is_plain else tf.convert_to_tensor(self._noise_variance)
        group = self._noise_group
        group = None if group is None else tf.convert_to_tensor(group)
        return Data(x, z, batch, SampleNoise(variance, group))

    def data_of_graph(self) -> Data:
        """The data as a graph reads them, with as many batch axes as when it is traced.

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

    def as_traced(self, data: Data) -> Data:
        """Data of a graph, of as many series and dimensions as when it is traced.

        The graph also fails where it runs with a known part of the noise and was traced without.
        """
        with tf.init_scope():
            (inputs, _, dimensions), (series, _) = (
                tf.convert_to_tensor(v).shape for v in (self.x, self.z)
            )
            has_noise, rows = self.has_noise, tf.convert_to_tensor(self._noise_variance).shape[0]
            group = self._noise_group
            rows_of_groups = None if group is None else tf.convert_to_tensor(group).shape[0]
        noise = SampleNoise(tf.ensure_shape(data.noise.variance, [rows, None]))
        if data.noise.group is not None:
            noise = noise._replace(group=tf.ensure_shape(data.noise.group, [rows_of_groups, None]))
        if not has_noise:
            plain = tf.debugging.assert_equal(
                tf.reduce_any(noise.variance != 0.0),
                False,
                "the data have a known part of their noise, and had none when this function was "
                "traced: trace it again",
            )
            with tf.control_dependencies([plain]):
                data = data._replace(z=tf.identity(data.z))
            noise = noise._replace(variance=None)
        return data._replace(
            x=tf.ensure_shape(data.x, [inputs, None, dimensions]),
            z=tf.ensure_shape(data.z, [series, None]),
            noise=noise,
        )

    def replace(self, data: Data) -> None:
        """Stores other data in place of the present ones."""
        self.x.assign(data.x)
        self.z.assign(data.z)
        self.batch.assign(data.batch)
        self._noise_variance.assign(self._known_variance(data))
        if self._noise_group is not None:
            self._noise_group.assign(data.noise.group)

    def _known_variance(self, data: Data) -> tf.Tensor:
        """The known part of the noise, one zero, which broadcasts, if there is none."""
        variance = data.noise.variance
        return tf.zeros([1, 1], self.x.dtype) if variance is None else variance

    def holds(self, data: Data) -> tf.Tensor:
        """Whether these are the data, noise included; scalar bool."""
        stored = self.data
        same = _equal(stored.x, data.x) & _equal(_comparable(stored.z), _comparable(data.z))
        same &= _equal(tf.convert_to_tensor(self._noise_variance), self._known_variance(data))
        if self._noise_group is not None:
            same &= _equal(stored.noise.group, data.noise.group)
        return same


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


def saved_data(
    store: Mapping[str, npt.ArrayLike], real_dtype: str, groups: int | None = None
) -> Data:
    """The data of a file, "x" `[X, N, D]`, "z" `[B, N, 2]` and "batch" `[r]`, checked.

    Samples may have the noise "noise_variance" and "noise_group", `[V, N]`.

    Args:
        store: Arrays by name.
        real_dtype: "float64" or "float32".
        groups: The number of groups of noise of the model; None for none.

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
            return Data(tf.constant(x), z, axes, StoredData(real_dtype, groups).no_samples)
        variance, group = (
            np.asarray(store[name]) if name in store else None
            for name in ("noise_variance", "noise_group")
        )
        noise = NoiseArguments(variance, group, groups)
        inputs = x if len(x) > 1 else x[0]
        data = as_data(inputs, z, None, real_dtype, require_targets=False, noise=noise)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the data in the file, x of shape {x.shape} and z of shape {z.shape}, are damaged: "
            f"{error}"
        ) from None
    return data._replace(batch=axes)


def arrays_of(data: Data) -> dict[str, np.ndarray]:
    """Data as real arrays by name, which `saved_data` reads."""
    z = tf.stack([tf.math.real(data.z), tf.math.imag(data.z)], axis=-1)
    arrays = {
        "x": data.x,
        "batch": data.batch,
        "z": z,
        "noise_variance": data.noise.variance,
        "noise_group": data.noise.group,
    }
    return {name: a.numpy() for name, a in arrays.items() if a is not None}
