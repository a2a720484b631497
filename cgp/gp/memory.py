"""The data that a Gaussian process has taken in, and the factor of their covariance."""

import tensorflow as tf

from cgp.gp.data import Data


class Memory(tf.Module):
    """Data and factor as variables that take any size.

    Not Keras weights, whose shapes are fixed: fitting again with other data must work, also where
    a compiled function reads the variables, so that the model saves the data itself.
    """

    def __init__(self):
        super().__init__()
        self._x: tf.Variable | None = None
        self._z: tf.Variable | None = None
        self._shared = True
        self.chol: tf.Variable | None = None

    @property
    def data(self) -> Data | None:
        """The data, None before any."""
        if self._x is None:
            return None
        return Data(tf.convert_to_tensor(self._x), tf.convert_to_tensor(self._z), self._shared)

    def replace(self, data: Data, chol: tf.Tensor) -> None:
        """Takes in other data and the factor of their covariance."""
        values = data.x, data.z, chol
        ranks = [value.shape.rank for value in values]
        variables = [v for v in (self._x, self._z, self.chol) if v is not None]
        if self._shared != data.shared or ranks != [v.shape.rank for v in variables]:
            variables = [
                tf.Variable(value, trainable=False, shape=[None] * rank)
                for value, rank in zip(values, ranks, strict=True)
            ]
            self._x, self._z, self.chol = variables
            self._shared = data.shared
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)

    def holds(self, data: Data) -> tf.Tensor:
        """Whether these are the data, scalar bool."""
        stored = self.data
        if (
            stored is None
            or stored.shared != data.shared
            or stored.x.shape.rank != data.x.shape.rank
            or stored.z.shape.rank != data.z.shape.rank
        ):
            return tf.constant(False)
        return _equal(stored.x, data.x) & _equal(_comparable(stored.z), _comparable(data.z))


def _comparable(z: tf.Tensor) -> tf.Tensor:
    """Targets with something that equals itself for the missing ones."""
    return tf.where(tf.math.is_nan(tf.abs(z)), tf.constant(float("inf"), z.dtype), z)


def _equal(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    same_shape = tf.reduce_all(tf.shape(a) == tf.shape(b))
    return tf.cond(same_shape, lambda: tf.reduce_all(a == b), lambda: tf.constant(False))
