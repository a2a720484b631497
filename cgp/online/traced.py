"""Steps of a cell as graphs, where no compiled function serves."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.distributions.marginals import Step
from cgp.online.cell import Cell, Sample, advance


class TracedStep:
    """A graph that takes a sample, or a block, into a state; traced once.

    The state is written only if it is sound. Results come as one array, faster than as seven.

    Args:
        cell: The cell.
        read: Reads the state, inside the graph.
        write: Writes it.
        sample: A sample `[B, ...]`, or a block `[B, T, ...]`, with the shapes and dtypes of all.
        is_block: Whether it is a block; T may be another each time.
    """

    def __init__(
        self,
        cell: Cell,
        read: Callable[[], Any],
        write: Callable[[Any], None],
        sample: Sample,
        is_block: bool,
    ):
        self._cell, self._read, self._write, self._is_block = cell, read, write, is_block
        self._like: Any = None  # a Step of specs, once traced
        axes = (None,) if is_block else ()
        spec = sample.map(
            lambda a: tf.TensorSpec((a.shape[0], *axes, *a.shape[1 + is_block :]), a.dtype)
        )
        self._names = [name for name, a in spec._asdict().items() if a is not None]
        function = tf.function(
            lambda *fields: self._step(*fields),
            input_signature=[a for a in spec if a is not None],
            jit_compile=cell.jit_compile and not is_block,
            autograph=False,
        )
        self._concrete = function.get_concrete_function()  # whose call takes half the time

    def __call__(self, sample: Sample) -> Step | None:
        """Takes one sample of each stream, or a block.

        Returns:
            A `Step` of NumPy arrays; None, with the state unchanged, where it would not be sound.
        """
        fields = [tf.constant(getattr(sample, name)) for name in self._names]
        packed = self._concrete(*fields).numpy()
        return self._unpacked(packed) if packed[0, ..., -1].all() else None

    def _step(self, *fields: tf.Tensor) -> tf.Tensor:
        sample = Sample(**dict(zip(self._names, fields, strict=True)))
        before = self._read()
        if self._is_block:
            after, step = self._cell.scan(before, sample)
        else:
            after, step = advance(self._cell, before, sample)
        sound = self._cell.is_sound(after, step)
        self._write(tf.nest.map_structure(lambda a, b: tf.where(sound, a, b), after, before))
        self._like = tf.nest.map_structure(lambda a: tf.TensorSpec(a.shape, a.dtype), step)
        rows = [self._as_rows(a) for a in tf.nest.flatten(step)]
        last = tf.fill(tf.shape(rows[0][..., :1]), tf.cast(sound, rows[0].dtype))
        return tf.concat([*rows, last], axis=-1)

    def _as_rows(self, a: tf.Tensor) -> tf.Tensor:
        """An array as real numbers along a last axis, `[B, k]`, or of a block `[B, T, k]`."""
        if a.dtype.is_complex:
            a = tf.stack([tf.math.real(a), tf.math.imag(a)], axis=-1)
        axes = 1 + self._is_block
        size = int(np.prod(a.shape[axes:], dtype=int))
        return tf.reshape(a, tf.concat([tf.shape(a)[:axes], [size]], axis=0))

    def _unpacked(self, packed: np.ndarray) -> Step:
        axes, arrays, at = packed.shape[:-1], [], 0
        for like in tf.nest.flatten(self._like):
            shape = tuple(like.shape[len(axes) :])
            size = (2 if like.dtype.is_complex else 1) * int(np.prod(shape, dtype=int))
            a = np.ascontiguousarray(packed[..., at : at + size])
            arrays.append(a.view(like.dtype.as_numpy_dtype).reshape(*axes, *shape))
            at += size
        return tf.nest.pack_sequence_as(self._like, arrays)
