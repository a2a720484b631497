"""Keeps AutoGraph out of the code of cgp.

A `tf.function` rewrites the source of all that it calls, so that `if` and `while` may ask tensors.
Nothing here asks tensors so: the rewriting would change nothing, and takes longer than the graph,
two to seven times. Once a function is called as it stands, so is all that it calls.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import tensorflow as tf

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def as_it_stands(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """A decorator: the function is called in a graph without being rewritten."""
    kept: Callable[_Arguments, _Result] = tf.autograph.experimental.do_not_convert(function)
    return kept
