"""A long scan over a series in compiled chunks of one length.

A series is cut into chunks of a length that depends on the sizes of the model alone, the last one
padded: XLA compiles for shapes, and so a series of another length compiles nothing.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf

# Numbers in the factors of one chunk; and its least and greatest length.
_CHUNK_SIZE, _SHORTEST, _LONGEST = 2**20, 16, 1024


class Chunks:
    """T steps in K chunks of L, the last one padded.

    Args:
        steps: T, a number or a tensor.
        width: Numbers that a step takes, about, which says how long a chunk may be.
    """

    def __init__(self, steps: int | tf.Tensor, width: int):
        self.steps, self.length = steps, _SHORTEST
        while self.length < _LONGEST and 2 * self.length * width <= _CHUNK_SIZE:
            self.length *= 2
        self.count = -(-steps // self.length)

    def pad(self, value: tf.Tensor) -> tf.Tensor:
        """An array over time, with zeros up to a whole number of chunks."""
        missing = self.count * self.length - self.steps
        return tf.pad(value, [[0, missing]] + [[0, 0]] * (value.shape.rank - 1))

    def pad_varying(self, values: Any, always: Collection[str] = ()) -> Any:
        """The arrays of a named tuple, but for those that hold at all times: an axis of 1.

        Those whose names are in `always` are padded whatever their length.
        """
        padded = {
            name: self.pad(value) if name in always or value.shape[0] != 1 else value
            for name, value in values._asdict().items()
        }
        return type(values)(**padded)

    def join(self, value: tf.Tensor) -> tf.Tensor:
        """An array over time from those of the chunks, `[K, L, ...]`."""
        shape = tf.concat([[self.count * self.length], tf.shape(value)[2:]], axis=0)
        joined = tf.reshape(value, shape)[: self.steps]
        known = self.steps if isinstance(self.steps, int) else None
        return tf.ensure_shape(joined, [known, *value.shape[2:]])

    def cut(self, values: Any, k: tf.Tensor) -> Any:
        """Chunk k of the padded arrays of a named tuple; what holds at all times as it is."""

        def cut(value: tf.Tensor | None) -> tf.Tensor | None:
            if value is None or value.shape[0] == 1:
                return value
            # A slice of static size, as XLA wants it where it compiles the whole scan.
            begin = tf.concat([[k * self.length], tf.zeros([value.shape.rank - 1], tf.int32)], 0)
            size = tf.concat([[self.length], tf.shape(value)[1:]], axis=0)
            part = tf.slice(value, begin, size)
            return tf.ensure_shape(part, [self.length, *value.shape[1:]])

        return type(values)(*map(cut, values))

    def steps_of(self, k: tf.Tensor) -> tf.Tensor:
        """The number of steps in chunk k."""
        return tf.minimum(self.steps - k * self.length, self.length)

    def loop(
        self,
        step: Callable[[tf.Tensor, Any], tuple[Sequence[tf.Tensor], Any]],
        start: Any,
        dtypes: Sequence[tf.DType],
        backwards: bool = False,
    ) -> tuple[list[tf.Tensor], Any]:
        """Goes through the chunks in turn.

        Args:
            step: Function of k and of what is carried, that returns tensors, and what is carried
                on.
            start: What is carried into the first.
            dtypes: Of the tensors.
            backwards: Whether the last chunk comes first.

        Returns:
            The tensors of all chunks, `[K, ...]`, and what is carried in the end.
        """
        arrays = [tf.TensorArray(dtype, self.count) for dtype in dtypes]
        shapes: list[tf.TensorShape] = []  # which a graph forgets on the way out of its loop

        def body(
            i: tf.Tensor, carry: Any, arrays: list[tf.TensorArray]
        ) -> tuple[tf.Tensor, Any, list[tf.TensorArray]]:
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
