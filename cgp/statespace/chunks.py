"""A series in blocks of steps, for loops that are compiled for one length and serve all.

A series is cut into blocks of a length that depends on the sizes of the model alone, the last one
padded: XLA compiles for shapes, and so another length of series compiles nothing.
"""

import functools

import tensorflow as tf

# Numbers in the factors of one block; and its least and greatest length.
_BLOCK_SIZE, _SHORTEST, _LONGEST = 2**20, 16, 1024


class Chunks:
    """T steps in K blocks of L, the last one padded.

    Args:
        steps: T, a number or a tensor.
        width: Numbers that a step takes, about, which says how long a block may be.
    """

    def __init__(self, steps, width: int):
        self.steps, self.length = steps, _SHORTEST
        while self.length < _LONGEST and 2 * self.length * width <= _BLOCK_SIZE:
            self.length *= 2
        self.count = -(-steps // self.length)

    def pad(self, value: tf.Tensor) -> tf.Tensor:
        """An array over time, with zeros up to a whole number of blocks."""
        missing = self.count * self.length - self.steps
        return tf.pad(value, [[0, missing]] + [[0, 0]] * (value.shape.rank - 1))

    def pad_varying(self, values, always=()):
        """The arrays of a named tuple, but for those that hold at all times: an axis of 1.

        Those whose names are in `always` are padded whatever their length.
        """
        padded = {
            name: self.pad(value) if name in always or value.shape[0] != 1 else value
            for name, value in values._asdict().items()
        }
        return type(values)(**padded)

    def join(self, value: tf.Tensor) -> tf.Tensor:
        """An array over time from those of the blocks, `[K, L, ...]`."""
        shape = tf.concat([[self.count * self.length], tf.shape(value)[2:]], axis=0)
        joined = tf.reshape(value, shape)[: self.steps]
        known = self.steps if isinstance(self.steps, int) else None
        return tf.ensure_shape(joined, [known, *value.shape[2:]])

    def cut(self, values, k):
        """Block k of the padded arrays of a named tuple; what holds at all times as it is."""

        def cut(value):
            if value is None or value.shape[0] == 1:
                return value
            part = value[k * self.length : (k + 1) * self.length]
            return tf.ensure_shape(part, [self.length, *value.shape[1:]])

        return type(values)(*map(cut, values))

    def steps_of(self, k) -> tf.Tensor:
        """The number of steps in block k."""
        return tf.minimum(self.steps - k * self.length, self.length)

    def loop(self, step, start, dtypes, backwards: bool = False):
        """Goes through the blocks in turn.

        Args:
            step: Function of k and of what is carried, that returns tensors, and what is carried
                on.
            start: What is carried into the first.
            dtypes: Of the tensors.
            backwards: Whether the last block comes first.

        Returns:
            The tensors of all blocks, `[K, ...]`, and what is carried in the end.
        """
        arrays = [tf.TensorArray(dtype, self.count) for dtype in dtypes]
        shapes: list[tf.TensorShape] = []  # which a graph forgets on the way out of its loop

        def body(i, carry, arrays):
            k = self.count - 1 - i if backwards else i
            values, carry = step(k, carry)
            shapes[:] = [value.shape for value in values]
            return i + 1, carry, [a.write(k, v) for a, v in zip(arrays, values, strict=True)]

        loop = (tf.constant(0), start, arrays)
        _, carry, arrays = tf.while_loop(lambda i, *_: i < self.count, body, loop)
        stacked = [
            tf.ensure_shape(array.stack(), [None, *shape])
            for array, shape in zip(arrays, shapes, strict=True)
        ]
        return stacked, carry


class CompiledByShape:
    """A function of tensors of known rank, compiled by XLA once for each set of their shapes.

    As `tf.function` would, were it not for the warning that it has been traced too often: there are
    as many shapes as there are models.
    """

    def __init__(self, function):
        self._function, self._traced = function, {}

    @property
    def traces(self) -> int:
        """How many times it has been traced."""
        return len(self._traced)

    def __call__(self, *arguments):
        """Runs it: arguments are tensors, None, or named tuples of them."""
        flat = tf.nest.flatten(arguments)
        key = tuple(x if x is None else (x.dtype, *tf.convert_to_tensor(x).shape) for x in flat)
        if key not in self._traced:
            # A partial is a thing of its own: TensorFlow counts the traces of one code.
            function = functools.partial(self._function)
            self._traced[key] = tf.function(function, jit_compile=True, autograph=False)
        return self._traced[key](*arguments)
