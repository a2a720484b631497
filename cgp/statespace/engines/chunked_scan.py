"""A long scan over a series in compiled chunks of one length.

The length of a chunk depends on the sizes of the model alone, and the last chunk is padded. XLA
compiles once for each shape, so a series of another length needs no further compilation.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf

# The most numbers in the factors of one chunk; its least and greatest length.
_CHUNK_SIZE, _SHORTEST, _LONGEST = 2**20, 16, 1024


class Chunks:
    """Splits T steps into K chunks of L steps, the last one padded.

    Args:
        steps: T, an integer or a scalar tensor.
        width: About how many numbers one step stores; it limits the length of a chunk.
    """

    def __init__(self, steps: int | tf.Tensor, width: int):
        self.steps, self.length = steps, _SHORTEST
        while self.length < _LONGEST and 2 * self.length * width <= _CHUNK_SIZE:
            self.length *= 2
        self.count = -(-steps // self.length)

    def pad(self, a: tf.Tensor) -> tf.Tensor:
        """Pads an array over time with zeros to a whole number of chunks."""
        missing = self.count * self.length - self.steps
        return tf.pad(a, [[0, missing]] + [[0, 0]] * (a.shape.rank - 1))

    def pad_varying(self, values: Any, always: Collection[str] = ()) -> Any:
        """Pads the arrays of a named tuple, except those constant in time (time axis of length 1).

        Arrays whose names are in `always` are padded whatever their length.
        """
        padded = {
            name: self.pad(a) if name in always or a.shape[0] != 1 else a
            for name, a in values._asdict().items()
        }
        return type(values)(**padded)

    def join(self, a: tf.Tensor) -> tf.Tensor:
        """Joins the chunks of an array, `[K, L, ...]`, into one over time, `[T, ...]`."""
        shape = tf.concat([[self.count * self.length], tf.shape(a)[2:]], axis=0)
        joined = tf.reshape(a, shape)[: self.steps]
        steps = self.steps if isinstance(self.steps, int) else None
        return tf.ensure_shape(joined, [steps, *a.shape[2:]])

    def cut(self, values: Any, k: tf.Tensor) -> Any:
        """Chunk k of the padded arrays of a named tuple; arrays constant in time are unchanged."""

        def cut(a: tf.Tensor | None) -> tf.Tensor | None:
            if a is None or a.shape[0] == 1:
                return a
            # XLA needs slices of static size where it compiles the whole scan.
            begin = tf.concat([[k * self.length], tf.zeros([a.shape.rank - 1], tf.int32)], 0)
            size = tf.concat([[self.length], tf.shape(a)[1:]], axis=0)
            chunk = tf.slice(a, begin, size)
            return tf.ensure_shape(chunk, [self.length, *a.shape[1:]])

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
        """Loops over the chunks.

        Args:
            step: Function of k and the carry; it returns tensors and the next carry.
            start: The first carry.
            dtypes: The dtypes of the tensors.
            backwards: Whether to start with the last chunk.

        Returns:
            The tensors of all chunks, `[K, ...]`, and the last carry.
        """
        arrays = [tf.TensorArray(dtype, self.count) for dtype in dtypes]
        shapes: list[tf.TensorShape] = []  # static shapes, which a graph loses outside of its loop

        def body(
            i: tf.Tensor, carry: Any, arrays: list[tf.TensorArray]
        ) -> tuple[tf.Tensor, Any, list[tf.TensorArray]]:
            k = self.count - 1 - i if backwards else i
            values, carry = step(k, carry)
            shapes[:] = [a.shape for a in values]
            return i + 1, carry, [a.write(k, v) for a, v in zip(arrays, values, strict=True)]

        loop = (tf.constant(0), start, arrays)
        _, carry, arrays = tf.while_loop(lambda i, *_: i < self.count, body, loop)
        stacked = [
            tf.ensure_shape(array.stack(), [None, *shape])
            for array, shape in zip(arrays, shapes, strict=True)
        ]
        return stacked, carry
