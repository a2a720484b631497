"""The data of a Gaussian process in variables, which compiled functions read when they run."""

import numpy as np
import tensorflow as tf

from cgp.gp.data import Data, Line
from cgp.gp.noise import COMMON_NOISE, SampleNoise
from cgp.kernels.functionals import Functional
from cgp.linalg.arguments import complex_dtype, is_nan


class StoredData(tf.Module):
    """Variables of any size for the data that a Gaussian process has taken in; empty at first.

    They are no Keras weights, whose shapes are fixed: a process is fitted again with other data.
    They stay the same variables, so that a compiled function reads the data present when it runs.
    `groups` is the number of groups of noise of the model, None for none; `has_signal_power` says
    whether its noise follows the signal.
    """

    def __init__(self, real_dtype: str, groups: int | None = None, has_signal_power: bool = False):
        super().__init__()
        self.x = empty_variable(3, real_dtype)
        self.z = empty_variable(2, complex_dtype(real_dtype))
        self.batch = empty_variable(1, tf.int32)
        # For samples without a known part of the noise, one zero, which broadcasts.
        no_variance = tf.zeros([1, 1], real_dtype)
        self._noise = SampleNoise(
            tf.Variable(no_variance, trainable=False, shape=[None, None]),
            None if groups is None else empty_variable(2, tf.int32),
            signal_power=empty_variable(2, real_dtype) if has_signal_power else None,
        )
        # Empty where no sample needs them.
        of_slots = empty_variable(3, real_dtype)
        # Empty unless the data are on a line, of which some may be missing.
        self._line = Line(empty_variable(1, real_dtype), empty_variable(1, tf.int32))
        self._functional = Functional(
            empty_variable(2, tf.bool), empty_variable(2, real_dtype), of_slots
        )

    @property
    def no_samples(self) -> SampleNoise:
        """The noise of no samples."""
        return self._noise._replace(variance=None).map(lambda v: tf.zeros([1, 0], v.dtype))

    @property
    def is_empty(self) -> tf.Tensor:
        """Whether no data have been taken in, scalar bool."""
        return tf.size(self.z) == 0

    @property
    def has_noise(self) -> bool:
        """Whether a sample has a known part of its noise; outside of graphs."""
        return bool(np.any(np.asarray(self._noise.variance)))

    @property
    def data(self) -> Data:
        """The data; no series if empty.

        In a graph the noise has a known part, possibly zero, and a line is in `graph_of_line`.
        """
        x, z, batch = (tf.convert_to_tensor(v) for v in (self.x, self.z, self.batch))
        is_plain = tf.executing_eagerly() and not self.has_noise
        noise = self._noise._replace(variance=None) if is_plain else self._noise
        fields = (x, z, batch, noise.map(tf.convert_to_tensor), self._stored_functional())
        is_line = tf.executing_eagerly() and bool(self.is_line)
        return Data(*fields, line=self._stored_line() if is_line else None)

    @property
    def is_line(self) -> tf.Tensor:
        """Whether the data are a line whose covariance is Toeplitz, scalar bool."""
        return tf.size(self._line.step) > 0

    def _stored_line(self) -> Line:
        step, missing = map(tf.convert_to_tensor, self._line)
        is_complete = tf.executing_eagerly() and int(tf.size(missing)) == 0
        return Line(step, None if is_complete else missing)

    def _stored_functional(self) -> Functional:
        """The functional of the stored samples; a graph has fields for what it was traced with.

        The graph fails where it runs with others.
        """
        with tf.init_scope():
            shapes = [tf.convert_to_tensor(v).shape for v in self._functional]
        is_empty = [shape.num_elements() == 0 for shape in shapes]
        if tf.executing_eagerly():
            pairs = zip(self._functional, is_empty, strict=True)
            return Functional(*(None if empty else tf.convert_to_tensor(v) for v, empty in pairs))
        fields = []
        for variable, shape, empty in zip(self._functional, shapes, is_empty, strict=True):
            field = tf.convert_to_tensor(variable)
            is_as_traced = tf.debugging.assert_equal(
                tf.size(field) == 0,
                empty,
                "the data measure something else of the signal than when this function was traced, "
                "values, derivatives or exposures: trace it again",
            )
            with tf.control_dependencies([is_as_traced]):
                traced = [shape[0], None, *shape[2:]]
                fields.append(None if empty else tf.ensure_shape(field, traced))
        return Functional(*fields)

    def data_of_graph(self) -> Data:
        """The data as a graph reads them, with as many batch axes as when it is traced.

        The graph fails where it runs without data.
        """
        with tf.init_scope():
            axes = int(tf.size(self.batch))
        data = self.data
        message = "there are no data: condition(x, z) first"
        has_data = tf.debugging.assert_equal(self.is_empty, False, message)
        with tf.control_dependencies([has_data]):
            data = data._replace(batch=tf.ensure_shape(data.batch, [axes]), x=tf.identity(data.x))
        return self.on_line_as_traced(data)

    def on_line_as_traced(self, data: Data) -> Data:
        """Data of a graph, on a line if they are when it is traced; it then fails with others."""
        with tf.init_scope():
            is_line = bool(self.is_line)
        if not is_line:
            return data
        message = "the data were on a regular line when this function was traced: trace it again"
        is_as_traced = tf.debugging.assert_equal(self.is_line, True, message)
        with tf.control_dependencies([is_as_traced]):
            return self.graph_of_line(data._replace(z=tf.identity(data.z)))

    def graph_of_line(self, data: Data) -> Data:
        """Data of a graph as samples on a line, which the stored data are."""
        return data._replace(x=data.x[:1], noise=COMMON_NOISE, line=self._stored_line())

    def as_traced(self, data: Data) -> Data:
        """Data of a graph, with as many series and dimensions as when it is traced.

        The graph also fails where it runs with a known part of the noise and was traced without.
        """
        with tf.init_scope():
            (inputs, _, dimensions), (series, _) = (
                tf.convert_to_tensor(v).shape for v in (self.x, self.z)
            )
            has_noise = self.has_noise
            rows = self._noise.map(lambda v: tf.convert_to_tensor(v).shape[0])
        noise = SampleNoise(
            *(
                None if a is None else tf.ensure_shape(a, [count, None])
                for a, count in zip(data.noise, rows, strict=True)
            )
        )
        if not has_noise and noise.variance is not None:
            message = (
                "the data have a known part of their noise, and had none when this function was "
                "traced: trace it again"
            )
            is_known = tf.reduce_any(noise.variance != 0.0)
            plain = tf.debugging.assert_equal(is_known, False, message)
            with tf.control_dependencies([plain]):
                data = data._replace(z=tf.identity(data.z))
            noise = noise._replace(variance=None)
        x = tf.ensure_shape(data.x, [inputs, None, dimensions])
        return data._replace(x=x, z=tf.ensure_shape(data.z, [series, None]), noise=noise)

    def replace(self, data: Data) -> None:
        """Stores other data in place of the present ones."""
        self.x.assign(data.x)
        self.z.assign(data.z)
        for variable, number in zip(self._line, data.line or (None, None), strict=True):
            variable.assign(tf.zeros([0], variable.dtype) if number is None else number)
        self.batch.assign(data.batch)
        for variable, field in zip(self._noise, self._with_variance(data), strict=True):
            if variable is not None:
                variable.assign(field)
        for variable, field in zip(self._functional, data.functional, strict=True):
            rank = variable.shape.rank
            variable.assign(tf.zeros([0] * rank, variable.dtype) if field is None else field)

    def _with_variance(self, data: Data) -> SampleNoise:
        """The noise of data; where it has no known part, that is one zero, which broadcasts."""
        if data.noise.variance is not None:
            return data.noise
        return data.noise._replace(variance=tf.zeros([1, 1], self.x.dtype))

    def holds(self, data: Data) -> tf.Tensor:
        """Whether `data` are the stored data, noise included; scalar bool."""
        stored = self.data
        is_equal = _equal(stored.x, data.x) & _equal(_comparable(stored.z), _comparable(data.z))
        for variable, field in zip(self._noise, self._with_variance(data), strict=True):
            if variable is not None:
                is_equal &= _equal(tf.convert_to_tensor(variable), field)
        # The stops of integrals follow from x and the widths.
        for field, stored_field in zip(data.functional[:2], stored.functional[:2], strict=True):
            if field is not None and stored_field is not None:
                is_equal &= _equal(field, stored_field)
            elif field is not None or stored_field is not None:
                return tf.constant(False)
        return is_equal


def empty_variable(rank: int, dtype: tf.DType | str) -> tf.Variable:
    """A variable without elements, which takes values of any shape of this rank."""
    return tf.Variable(tf.zeros([0] * rank, dtype), trainable=False, shape=[None] * rank)


def _comparable(z: tf.Tensor) -> tf.Tensor:
    """Targets with infinity, which equals itself, for NaN."""
    return tf.where(is_nan(z), tf.constant(float("inf"), z.dtype), z)


def _equal(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    # For any two shapes and without a branch: XLA compiles both branches, and needs shapes to fit.
    same_shape = tf.reduce_all(tf.shape(a) == tf.shape(b))
    size = tf.minimum(tf.size(a), tf.size(b))
    return same_shape & tf.reduce_all(tf.reshape(a, [-1])[:size] == tf.reshape(b, [-1])[:size])
