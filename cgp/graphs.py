"""Graphs called as one op, for functions that are called often with little to do."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def called_as_op(function: Any) -> Callable[..., list[tf.Tensor]]:
    """A concrete function as a function of its tensors, which returns the list of its outputs.

    A `tf.function` looks at the types of its arguments and for tapes first, which takes longer than
    a small graph does. No tape records this call. Arguments are the tensors of the signature, one
    after the other, or NumPy arrays.
    """
    captured = list(function.captured_inputs)
    dtypes = [output.dtype for output in function.outputs]

    def call(*arrays: Any) -> list[tf.Tensor]:
        return tf.raw_ops.StatefulPartitionedCall(
            args=[*arrays, *captured], Tout=dtypes, f=function
        )

    return call
