"""Graphs called as one op, for small functions that are called often."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from cgp.tensorflow_private import settings_of_calls


def called_as_op(function: Any) -> Callable[..., list[tf.Tensor]]:
    """A concrete function as a function of its tensors, which returns the list of its outputs.

    A `tf.function` looks at the types of its arguments and for tapes first, which takes longer than
    a small graph does. No tape records this call. Arguments are tensors or NumPy arrays, in the
    order in which `tf.nest.flatten` has them in the signature, without those that are None.
    """
    captured = list(function.captured_inputs)
    dtypes, settings = [output.dtype for output in function.outputs], settings_of_calls()

    def call(*arrays: Any) -> list[tf.Tensor]:
        return tf.raw_ops.StatefulPartitionedCall(
            args=[*arrays, *captured], Tout=dtypes, f=function, config_proto=settings
        )

    return call
