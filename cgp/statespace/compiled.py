"""Functions compiled by XLA, in a cache that is bounded and can be cleared."""

import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Programs that one function keeps: as many sets of shapes as a program is likely to use by turns.
_MOST_PROGRAMS = 64


class CompiledByShape:
    """A function of tensors of known rank, compiled by XLA once for each set of their shapes.

    As `tf.function` would, were it not for the warning that it has been traced too often: there are
    as many shapes as there are models. The programs used last are kept, `clear_cache` drops all.

    Args:
        function: Takes tensors, None, or named tuples of them.
    """

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        self._programs: OrderedDict[tuple, Callable[..., Any]] = OrderedDict()
        _all.add(self)

    @property
    def traces(self) -> int:
        """How many programs are kept."""
        return len(self._programs)

    def __call__(self, *arguments: Any) -> Any:
        """Runs it, after compiling it for new shapes."""
        flat = tf.nest.flatten(arguments)
        key = tuple(x if x is None else (x.dtype, *tf.convert_to_tensor(x).shape) for x in flat)
        if key not in self._programs:
            # A partial is an object of its own: TensorFlow counts the traces of one function.
            function = functools.partial(self._function)
            self._programs[key] = tf.function(function, jit_compile=True, autograph=False)
        self._programs.move_to_end(key)
        while len(self._programs) > _MOST_PROGRAMS:
            self._programs.popitem(last=False)
        return self._programs[key](*arguments)

    def clear(self) -> None:
        """Drops all programs; the next call compiles again."""
        self._programs.clear()


_all: "weakref.WeakSet[CompiledByShape]" = weakref.WeakSet()


def clear_cache() -> None:
    """Drops the programs that `cgp.statespace` has compiled.

    Each size of model and batch has a program of some megabytes, and the 64 used last of each kind
    are kept. A process that goes through many sizes can drop them; the next call of each size
    compiles again, in a second or so. Models that hold compiled functions of their own keep them.

    Example:
        >>> from cgp import statespace
        >>> statespace.clear_cache()
    """
    for function in _all:
        function.clear()
