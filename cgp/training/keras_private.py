"""Everything that cgp uses of the private parts of Keras, in one place, each with its reason.

Keras may change these in any minor version, so that the dependency on Keras has an upper bound.
Tried with Keras 3.10 (TensorFlow 2.18) and 3.15 (TensorFlow 2.21), the oldest and the newest minor
version that the package admits.
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf

# Where Keras keeps the call that is under way.
from keras.src.backend.common.global_state import get_global_attribute

# The mask of padding by a layer such as Embedding, which Keras attaches to tensors.
from keras.src.backend.common.masking import get_keras_mask as get_keras_mask

# The path of a variable without TensorFlow's scope of names, which `add_variable` says why.
from keras.src.backend.common.name_scope import name_scope

# Whether a call has its state as an argument, so that nothing may be stored.
from keras.src.backend.common.stateless_scope import in_stateless_scope as in_stateless_scope

# Whether Keras infers shapes, so that there is nothing to compute.
from keras.src.backend.common.symbolic_scope import in_symbolic_scope as in_symbolic_scope

# The inputs of a model that is exported, by name.
from keras.src.export.export_utils import get_input_signature as get_input_signature

# keras.Model turns into this class when it is built from tensors, and rewrites the bases of a
# subclass to that end; a class that has it for a base from the start is left alone.
from keras.src.models.functional import Functional

# The question of Keras before it writes over a file, under `save(overwrite=False)`.
from keras.src.utils.io_utils import ask_to_proceed_with_overwrite as ask_to_proceed_with_overwrite
from keras.src.utils.python_utils import default

# A decorator of `get_config`, to whose result Keras then adds the arguments of the constructor, as
# it does for a layer that does not write its own config.
completed_by_keras = default


class FunctionalModel(Functional):
    """Keras's functional model, with a look at each run through its graph of layers."""

    def graph_context(self) -> contextlib.AbstractContextManager:
        """A context around the run; none by default."""
        return contextlib.nullcontext()

    def check_call(self, operation: Any, arguments: list) -> None:
        """Looks at what an operation is about to be called on, flat; it may raise an error."""

    def _run_through_graph(
        self, inputs: Any, operation_fn: Callable = lambda operation: operation, call_fn: Any = None
    ) -> Any:
        def checked(operation: Any) -> Callable:
            function = operation_fn(operation)

            def call(*args: Any, **kwargs: Any) -> Any:
                self.check_call(operation, keras.tree.flatten((args, kwargs)))
                return function(*args, **kwargs)

            return call

        with self.graph_context():  # Keras calls this method to clone a model layer by layer
            if call_fn is not None:  # which is given no values
                return super()._run_through_graph(inputs, operation_fn, call_fn)
            return super()._run_through_graph(inputs, checked)


def graph_of(layer: Any) -> Any:
    """The functional model that a layer is, or that a `Sequential` has made of itself, or None."""
    model = layer._functional if isinstance(layer, keras.Sequential) else layer
    return model if isinstance(model, Functional) else None


def calls_in_graph(model: Any) -> Iterator[tuple[Any, list, list]]:
    """Yields each operation in a functional model, its arguments, and its outputs, in order."""
    for depth in sorted(model._nodes_by_depth, reverse=True):
        for node in model._nodes_by_depth[depth]:
            if not node.is_input:
                arguments = keras.tree.flatten((node.arguments.args, node.arguments.kwargs))
                yield node.operation, arguments, node.outputs


def flatten_layers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Lists a layer and all layers inside it, each once; `Model.layers` has the top level only."""
    # Keras counts a layer again where it is among its own descendants.
    return list({id(inner): inner for inner in layer._flatten_layers()}.values())


def sublayers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Lists the direct sublayers of a layer, in the order in which they were added."""
    return list(layer._layers)


def add_variable(layer: keras.layers.Layer, make: Callable[[], keras.Variable]) -> keras.Variable:
    """Adds the variable that `make` makes to the weights of a layer, as `add_weight` does.

    `add_weight` makes variables in a TensorFlow scope of the layer's name, and TensorFlow keeps
    35 kB for each name as long as the process: a hundred trackers would leave ten megabytes.
    """
    with name_scope(layer.name, caller=layer):
        variable = make()
    layer._track_variable(variable)
    return variable


def track_variables(layer: keras.layers.Layer, variables: Iterable[keras.Variable]) -> None:
    """Adds variables that another object has made to the weights of a layer."""
    for variable in variables:
        layer._track_variable(variable)


def untrack_variable(layer: keras.layers.Layer, variable: keras.Variable) -> None:
    """Takes a variable out of the weights of a layer."""
    layer._untrack_variable(variable)


def stored(variable: keras.Variable) -> tf.Variable:
    """The TensorFlow variable of a variable, which `value` is not inside a stateless scope."""
    return variable._value


def replace_value(variable: keras.Variable, array: Any) -> None:
    """Gives a variable a value of any shape: it stays the same object, wherever it is held.

    No graph may have been made with it, which would go on with what it held before.
    """
    array = tf.constant(array, variable.dtype)
    variable._shape, variable._ndim = tuple(array.shape), array.shape.rank
    # TensorFlow's variable keeps for ever what Keras's says now, which may be for a while.
    trainable, variable.trainable = variable.trainable, variable.value.trainable
    variable._initialize(array)
    variable.trainable = trainable


def forget_compilation(model: Any) -> None:
    """Removes the loss and the metrics of an earlier `compile`, which Keras only replaces."""
    model.loss = model._compile_loss = model._compile_metrics = None
    model._kept_objective = None  # the compiled function of the earlier loss, see `Objective`


def add_losses_in_float64(model: Any) -> None:
    """Makes Keras add up and report the loss in float64, where it would use floatx."""
    if model._compile_loss is not None:
        model._compile_loss._dtype = "float64"  # the dtype of the sum of its terms
    tracker = keras.metrics.Mean(name="loss", dtype="float64")
    # Past Keras's attribute tracking, as in Keras's own `compile`, which would count it twice.
    object.__setattr__(model, "_loss_tracker", tracker)


def as_added_loss(layer: keras.layers.Layer, loss: Any) -> Any:
    """A loss, or structure of losses, in the dtype of the compiled loss that it is added to.

    This is the dtype of the loss given to `compile` of the model, to which Keras adds the losses of
    layers as they are; without a compiled loss any dtype does.
    """
    # Not by `layer._get_call_context`, which begins a call where none is under way, as in a
    # `stateless_call`; nobody would end it, and all later losses would be of that call.
    context = get_global_attribute("current_call_ctx")
    compiled = getattr(getattr(context, "entry_layer", layer), "_compile_loss", None)
    if compiled is None:
        return loss
    return keras.tree.map_structure(lambda x: tf.cast(x, compiled.dtype), loss)


def is_called_to_train_without_xla() -> bool:
    """Whether the call under way is by a model that is compiled without XLA, and trains."""
    call = get_global_attribute("current_call_ctx")
    model: Any = getattr(call, "entry_layer", None)
    if getattr(call, "training", None) is not True or not getattr(model, "compiled", False):
        return False
    return not model.jit_compile


@contextlib.contextmanager
def loss_weighed(model: Any, rows: tf.Tensor, weight: tf.Tensor) -> Iterator[None]:
    """A context in which a batch counts with `weight` in the mean loss, in place of its `rows`."""
    tracker = model._loss_tracker
    before = tf.identity(tracker.total)
    yield
    rows, weight = (tf.cast(count, tracker.total.dtype) for count in (rows, weight))
    share = tf.math.divide_no_nan(weight, rows)
    tracker.total.assign(before + share * (tracker.total - before))
    tracker.count.assign_add(weight - rows)


def first_loss(model: Any) -> float:
    """The loss of the first step of an epoch, which may have failed later on; NaN if not known."""
    tracker = model._loss_tracker
    total, count = (float(tf.identity(v.value)) for v in (tracker.total, tracker.count))
    # TensorFlow may have added the weight of a step whose loss has failed.
    return total / count if total != 0.0 and count > 0.0 else math.nan


def forget_loss(model: Any) -> None:
    """Sets the mean loss of the epoch to NaN."""
    model._loss_tracker.total.assign(math.nan)
    model._loss_tracker.count.assign(1.0)


def has_compiled_loss(model: Any) -> bool:
    """Tells whether a loss was given to `compile`."""
    return model._compile_loss is not None


def metrics_and_values(
    model: Any, y: Any, y_pred: Any
) -> Iterator[tuple[keras.metrics.Metric, tuple]]:
    """Yields each metric given to `compile`, with its target and prediction."""
    compiled = model._compile_metrics
    if compiled is None:
        return
    if not compiled.built:
        compiled.build(y, y_pred)
    y, y_pred = map(compiled._flatten_y, (y, y_pred))
    for by_output in (compiled._flat_metrics, compiled._flat_weighted_metrics):
        for metrics, *values in zip(by_output, y, y_pred, strict=False):  # as in its update_state
            for metric in [] if metrics is None else metrics.metrics:
                yield metric, tuple(values)


def written_by_keras(metric: keras.metrics.Metric) -> bool:
    """Tells whether a metric, or the function that it averages, is one of Keras's own."""
    # "mse" and any function given to compile become a MeanMetricWrapper of Keras.
    source = getattr(metric, "_fn", type(metric))
    return str(getattr(source, "__module__", "")).startswith("keras.")


def saved_variables(layer: keras.layers.Layer) -> list[keras.Variable]:
    """The variables of a layer itself, in the order in which `save_own_variables` numbers them."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]
