"""Functions compiled by XLA, in a cache that is bounded and can be cleared; loops over time."""

import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

# Compiled programs kept for each function: about as many sets of shapes as one use alternates.
_MOST_PROGRAMS = 64


class CompiledByShape:
    """A function of tensors of known rank, compiled by XLA once for each set of their shapes.

    `tf.function` would do this too, but warns of frequent retracing, which models of many sizes
    cannot avoid. The most recently used programs are kept; `clear_cache` drops all of them.

    Args:
        function: Takes tensors, None, or named tuples of them.
        by_xla: Whether XLA compiles it; False to keep its graphs alone.
    """

    def __init__(self, function: Callable[..., Any], by_xla: bool = True):
        self._function, self._by_xla = function, by_xla
        self._programs: OrderedDict[tuple, Callable[..., Any]] = OrderedDict()
        _all.add(self)

    @property
    def traces(self) -> int:
        """The number of programs that are kept."""
        return len(self._programs)

    def __call__(self, *arguments: Any) -> Any:
        """Calls the function, after compiling it for new shapes."""
        flat = tf.nest.flatten(arguments)
        key = tuple(x if x is None else (x.dtype, *tf.convert_to_tensor(x).shape) for x in flat)
        if key not in self._programs:
            # TensorFlow counts traces by function object: a new partial starts a new count.
            function = functools.partial(self._function)
            # None leaves the choice to a function around this one, which False would deny.
            by_xla = self._by_xla or None
            self._programs[key] = tf.function(function, jit_compile=by_xla, autograph=False)
        self._programs.move_to_end(key)
        while len(self._programs) > _MOST_PROGRAMS:
            self._programs.popitem(last=False)
        return self._programs[key](*arguments)

    def clear(self) -> None:
        """Drops all programs; the next call compiles again."""
        self._programs.clear()


def graph_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors as a graph, not compiled by XLA, for sizes that vary.

    TensorFlow counts traces by function object, and warns of many: a partial starts a new count.
    """
    return tf.function(functools.partial(function), autograph=False, reduce_retracing=True)


def can_compile(function: Callable[..., Any], *specs: tf.TensorSpec) -> bool:
    """Whether XLA has all operations of a function of tensors; none is run."""
    with tf.init_scope():
        compiled = tf.function(functools.partial(function), jit_compile=True, autograph=False)
        try:
            compiled.experimental_get_compiler_ir(*specs)(stage="hlo")
        except (ValueError, tf.errors.OpError):  # which of them depends on the operation
            return False
    return True


def time_loop(
    step: Callable[[tf.Tensor, Any], tuple[Sequence[tf.Tensor], Any]],
    start: Any,
    kinds: Sequence[tuple[tf.DType, Any]],
    size: int | tf.Tensor,
    length: tf.Tensor | None = None,
    backwards: bool = False,
) -> tuple[list[tf.Tensor], Any]:
    """The values of a step at each time, stacked, and the last carry.

    A step takes t and the carry, and returns values of the dtypes and shapes in `kinds`, and the
    next carry. Of `size` times the first `length` are visited; values at others are zero.
    """
    count = size if length is None else length
    arrays = [tf.TensorArray(dtype, size, element_shape=shape) for dtype, shape in kinds]

    def body(t: tf.Tensor, carry: Any, arrays: list[tf.TensorArray]) -> Any:
        values, carry = step(t, carry)
        arrays = [array.write(t, a) for array, a in zip(arrays, values, strict=True)]
        return t - 1 if backwards else t + 1, carry, arrays

    first = tf.convert_to_tensor(count - 1) if backwards else tf.constant(0)
    _, carry, arrays = tf.while_loop(
        lambda t, *_: t >= 0 if backwards else t < count, body, (first, start, arrays)
    )
    return [array.stack() for array in arrays], carry


_all: "weakref.WeakSet[CompiledByShape]" = weakref.WeakSet()


def clear_cache() -> None:
    """Drops the programs that `cgp.statespace` has compiled.

    Each size of model and batch has a program of some megabytes, and the 64 most recently used of
    each kind are kept. A process that goes through many sizes can drop them; the next call
    of each size compiles again, in about a second. Compiled functions that models hold
    themselves are kept.

    Example:
        >>> from cgp import statespace
        >>> statespace.clear_cache()
    """
    for function in _all:
        function.clear()
