"""The data that a Gaussian process has taken in, and the factor of their covariance."""

import tensorflow as tf

from cgp.gp.data import Data
from cgp.linalg.arguments import is_nan
from cgp.linalg.composite import complex_dtype


class StoredData(tf.Module):
    """Data and factor as variables that take any size, empty at first.

    Not Keras weights, whose shapes are fixed: a process is fitted again with other data. And always
    the same variables, so that a function that was compiled with them sees what they hold when it
    runs.

    Args:
        real_dtype: Of the inputs.
        is_proper: Whether the factor is complex, or that of a real composite.
    """

    def __init__(self, real_dtype: str, is_proper: bool = True):
        super().__init__()
        self.x = _empty(3, real_dtype)
        self.z = _empty(2, complex_dtype(real_dtype))
        self.batch = _empty(1, tf.int32)
        self.chol = _empty(3, complex_dtype(real_dtype) if is_proper else real_dtype)

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
        """The data, for a graph that is for as many batch axes as there are when it is made."""
        with tf.init_scope():
            axes = int(tf.size(self.batch))
        data = self.data
        some = tf.debugging.assert_equal(
            self.is_empty, False, "there are no data: condition(x, z) first"
        )
        with tf.control_dependencies([some]):
            return data._replace(batch=tf.ensure_shape(data.batch, [axes]), x=tf.identity(data.x))

    def replace(self, data: Data, chol: tf.Tensor | None = None) -> None:
        """Takes in other data and the factor of their covariance."""
        self.x.assign(data.x)
        self.z.assign(data.z)
        self.batch.assign(data.batch)
        if chol is not None:
            self.chol.assign(chol)

    def factor(self, shape: tf.Tensor) -> tf.Tensor:
        """The factor, cut or padded to a shape: its own unless it is that of other data.

        Whoever takes it asks whether `holds(data)`; XLA compiles what is not taken as well, and
        wants shapes to fit.
        """
        missing = tf.maximum(shape - tf.shape(self.chol), 0)
        padded = tf.pad(self.chol, tf.stack([tf.zeros_like(missing), missing], axis=-1))
        return padded[: shape[0], : shape[1], : shape[2]]

    def holds(self, data: Data) -> tf.Tensor:
        """Whether these are the data, scalar bool."""
        stored = self.data
        return _equal(stored.x, data.x) & _equal(_comparable(stored.z), _comparable(data.z))


def _empty(rank: int, dtype) -> tf.Variable:
    return tf.Variable(tf.zeros([0] * rank, dtype), trainable=False, shape=[None] * rank)


def _comparable(z: tf.Tensor) -> tf.Tensor:
    """Targets with something that equals itself for the missing ones."""
    return tf.where(is_nan(z), tf.constant(float("inf"), z.dtype), z)


def _equal(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    # Of other shapes too, and without a branch: XLA would compile the comparison all the same.
    same_shape = tf.reduce_all(tf.shape(a) == tf.shape(b))
    size = tf.minimum(tf.size(a), tf.size(b))
    return same_shape & tf.reduce_all(tf.reshape(a, [-1])[:size] == tf.reshape(b, [-1])[:size])
