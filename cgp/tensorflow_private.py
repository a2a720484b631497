"""Everything that cgp uses of the private parts of TensorFlow, in one place, each with its reason.

Tried with TensorFlow 2.18 and 2.21, the oldest version that the package admits and the newest.
"""

from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context, record

# The class of tensors that hold numbers. `tf.is_tensor` admits symbolic tensors, and takes longer
# to tell than a step of an online filter has time for.
EagerTensor = tf.__internal__.EagerTensor

# An op by its name, with its arguments as they are: the wrappers of `tf.raw_ops` lead here. An op
# whose name begins with an underscore, as the one that reads several variables, has no wrapper.
execute_op = pywrap_tfe.TFE_Py_FastPathExecute

# The first argument of such a call.
eager_context = context.context

# The graphs of a branch or a loop, by their class: they belong to the graph around them.
_BRANCHES_AND_LOOPS = {"CondBranchFuncGraph", "WhileBodyFuncGraph", "WhileCondFuncGraph"}


def is_part_of_graph(graph: Any, whole: Any) -> bool:
    """Whether a graph is `whole`, or the graph of a branch or a loop in it."""
    while graph is not whole and type(graph).__name__ in _BRANCHES_AND_LOOPS:
        graph = graph.outer_graph
    return graph is whole


def settings_of_calls() -> bytes:
    """The settings that a `tf.function` passes with a call, as whether devices may be replaced."""
    return context.context().function_call_options.config_proto_serialized


def is_compiled_by_xla() -> bool:
    """Whether XLA compiles what is computed here, which a layer has no other way to know."""
    return tf.__internal__.get_enclosing_xla_context() is not None


def is_recorded() -> bool:
    """Whether a gradient tape may record what is computed now; TensorFlow has no public answer."""
    return record.could_possibly_record()
