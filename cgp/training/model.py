"""The model classes of cgp, to subclass and to build from tensors.

There are two because Keras rewrites the bases of a class that has once been built from tensors, and
no subclass of it works from then on.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import NoneType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp import native
from cgp.clock import is_time, remedy
from cgp.linalg.arguments import as_flag, check_whole, is_complex
from cgp.tensorflow_private import is_compiled_by_xla, is_recorded
from cgp.training import divergence, keras_private, lbfgs
from cgp.training.batches import are_arrays, batches, number_of_batches, split, where_watched
from cgp.training.layer_arguments import names_told
from cgp.training.objective import shards_of
from cgp.training.optimizers import LBFGS
from cgp.training.parameters import Parameter, Parameterized
from cgp.training.post_updates import refresh_all
from cgp.training.saving import Saving
from cgp.training.sharing import sharing_scope, wrap_from_config


class Trainer(Saving):
    """A mixin before a Keras model class, for `cgp.Model` and `cgp.Functional`."""

    # --- derived state -------------------------------------------------------------------------

    def train_step(self, data: Any) -> dict[str, Any]:
        """Makes a gradient step, then runs the post updates whose variables it has changed."""
        with self._own_graph():
            logs = super().train_step(data)
            # The loss is counted first: if an update fails it belongs to the last good parameters.
            with tf.control_dependencies([v for v in keras.tree.flatten(logs) if tf.is_tensor(v)]):
                refresh_all(self, self.trainable_variables)
        return logs

    def test_step(self, data: Any) -> dict[str, Any]:
        """Evaluates a batch, as Keras's `test_step` does."""
        with self._own_graph():
            return super().test_step(data)

    def predict_step(self, data: Any) -> Any:
        """Predicts a batch, as Keras's `predict_step` does."""
        with self._own_graph():
            return super().predict_step(data)

    def _own_graph(self) -> contextlib.AbstractContextManager[None]:
        """The context of a step: its graph is Keras's own, and XLA compiles it only if told so."""
        return native.own_graph(not self.jit_compile)

    def apply_post_updates(self) -> None:
        """Recomputes all state whose variables have changed, in every layer of the model.

        For custom training loops, after the gradients are applied; inside a `tf.function` or not.
        A layer would do so in its next call as well; here it is done once, and outside of a tape.
        """
        refresh_all(self)

    def _refresh_eagerly(self) -> None:
        with self.distribute_strategy.scope():
            self.apply_post_updates()

    # --- training --------------------------------------------------------------------------------

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Keras's `compile`; losses are then added up and reported in float64.

        With `cgp.optimizers.LBFGS` as the optimizer, `fit` minimises the loss of the whole data.
        Prefer `add_loss` for a likelihood: a loss given here is real, and computed in Keras's
        floatx unless it has a dtype (`keras.losses.MeanSquaredError(dtype="float64")`), which Keras
        does not save.
        """
        _check_optimizer(args[0] if args else kwargs.get("optimizer"))
        keras_private.forget_compilation(self)
        super().compile(*args, **kwargs)
        keras_private.add_losses_in_float64(self)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model; Keras does so only if `compile` is not overridden."""
        if type(self).compile is not Trainer.compile:
            super().compile_from_config(config)  # warns that a subclass has its own `compile`
            return
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    def add_loss(self, loss: Any) -> None:
        """Adds a loss, in the dtype of the loss that the model around this one is compiled with.

        This may be in float32, to which Keras adds no float64: the loss takes its dtype. Gradients
        are computed in the dtype of the layer all the same.
        """
        super().add_loss(keras_private.as_added_loss(self, loss))

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> tf.Tensor:
        """Computes the loss of real targets and outputs that `compile` was given, and adds the
        losses of layers.

        Raises:
            TypeError: A loss given to `compile` would drop the imaginary part of the data.
        """
        if keras_private.has_compiled_loss(self) and any_complex((y, y_pred)):
            raise TypeError(
                "a loss given to compile drops imaginary parts: where a target or an output is "
                "complex, compute the loss in call, with self.add_loss"
            )
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        """Computes the metrics that `compile` was given.

        Raises:
            TypeError: A metric of Keras's own would drop the imaginary part of the data.
        """
        for metric, values in keras_private.metrics_and_values(self, y, y_pred):
            if keras_private.written_by_keras(metric) and any_complex(values):
                raise TypeError(
                    f"the metric {metric.name!r} of Keras drops imaginary parts: take one of "
                    "cgp.metrics, or a function of your own"
                )
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        verbose: int | str = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool | str = True,
        class_weight: dict | None = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: int | list[int] = 1,
        engine: Any = None,
    ) -> keras.callbacks.History:
        """Trains the model: Keras's `fit`, with arrays kept in their own dtype.

        Args:
            x: Arrays `[samples, ...]`, alone or in a tuple, list or dictionary; or a
                `tf.data.Dataset` or anything else that Keras takes, which is passed on.
            y: Arrays of targets, or None.
            batch_size: Samples to a step, 32 if None. An error under `LBFGS`.
            epochs: Passes through the data, 1 if None. Under `LBFGS` the largest number of
                iterations; None runs to convergence.
            verbose: 0 is silent, 1 a progress bar, 2 one line an epoch; "auto" is a bar in a
                terminal and in a notebook, and silent elsewhere.
            callbacks: Keras callbacks.
            validation_split: Last part of the arrays, taken before shuffling, to validate with.
            validation_data: `(x, y)` or `(x, y, sample_weight)`, or a dataset.
            shuffle: Whether arrays are visited in a new order in each epoch.
            class_weight: Dictionary of class to weight.
            sample_weight: Weights of the targets.
            initial_epoch: The number of the first epoch.
            steps_per_epoch: Steps to an epoch. An error under `LBFGS`.
            validation_steps: Steps of a validation.
            validation_batch_size: `batch_size` if None.
            validation_freq: Epochs between validations; or, not under `LBFGS`, a list of epochs.
            engine: None, or for a `KalmanFilter`, `ExactGP` or `StateSpaceGP` under `LBFGS` the
                engine that computes the loss of parts of the data elsewhere. x is then a list of
                such parts; the engine is `map`, or has a method `map` of a function and a list: a
                `Client` of Dask, an executor of `concurrent.futures`, a pool of Ray.

        Returns:
            Keras's `History`. Its `history["loss"]` has one entry for each epoch, or iteration; its
            attribute `diverged` is True where the training has diverged.

        A training that diverges (its loss is no longer finite, a covariance no longer positive
        definite, a hyperparameter outside its constraint) is stopped with a `RuntimeWarning` that
        names the values it came to. The trainable variables are then set back to the start of
        the epoch with the lowest loss, or to the best iteration of `LBFGS`, unless a callback sets
        others as the training ends.

        Raises:
            ValueError: Arrays of different lengths; arguments that `LBFGS` has no use for; under
                `LBFGS`, a dataset of several batches.
            NotPositiveDefiniteError: A covariance is not positive definite at the initial
                parameters, or in a validation.
        """
        verbose = where_watched(verbose)
        check_whole(initial_epoch, "initial_epoch", least=0)
        is_lbfgs = isinstance(getattr(self, "optimizer", None), LBFGS)
        if is_lbfgs or not isinstance(validation_freq, list):  # of epochs, which Keras takes too
            check_whole(validation_freq, "validation_freq")
        _check_callbacks(callbacks)
        if engine is not None:
            x = shards_of(self, x, y, sample_weight, validation_split, engine)
        if validation_data is None and validation_split and are_arrays(x, y, sample_weight):
            (x, y, sample_weight), validation_data = split(x, y, sample_weight, validation_split)
            validation_split = 0.0
        if validation_data is not None:
            x_val, y_val, weight = keras.utils.unpack_x_y_sample_weight(validation_data)
            if are_arrays(x_val, y_val, weight):
                rows = validation_batch_size or batch_size
                validation_data = batches(x_val, y_val, weight, rows, steps=validation_steps)
        if self.built:
            self._refresh_eagerly()
        if is_lbfgs:
            lbfgs.reject(
                batch_size=batch_size,
                steps_per_epoch=steps_per_epoch,
                class_weight=class_weight,
                shuffle=None if shuffle in (True, False) else shuffle,
            )
            loss = lbfgs.loss_of(self, x, y, sample_weight)
            validation = lbfgs.Validation(validation_data, validation_steps, validation_freq)
            history = lbfgs.fit(self, loss, epochs, initial_epoch, verbose, callbacks, validation)
        else:
            if are_arrays(x, y, sample_weight):
                x = batches(x, y, sample_weight, batch_size, shuffle, steps_per_epoch)
                y = sample_weight = batch_size = None
            arguments = {
                "validation_split": validation_split,
                "validation_data": validation_data,
                # Keras warns that a dataset cannot be shuffled, though True is its default.
                "shuffle": shuffle and not isinstance(x, tf.data.Dataset),
                "class_weight": class_weight,
                "sample_weight": sample_weight,
                "initial_epoch": initial_epoch,
                "steps_per_epoch": steps_per_epoch,
                "validation_steps": validation_steps,
                "validation_batch_size": validation_batch_size,
                "validation_freq": validation_freq,
            }
            epochs = 1 if epochs is None else epochs
            optimizer = getattr(self, "optimizer", None)
            if self.built and optimizer is not None and not optimizer.built:
                with self.distribute_strategy.scope():
                    # Else its variables are made in the first step, which is then traced twice.
                    optimizer.build(self.trainable_variables)
            fit = functools.partial(super().fit, x, y, batch_size, epochs, verbose, **arguments)
            with self._in_batches(x, steps_per_epoch):
                history = divergence.guarded(self, fit, callbacks)
        # Weight averaging and callbacks that restore weights act after the last step.
        self._refresh_eagerly()
        return history

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the model; masked elements of arrays become NaN.

        Raises:
            TypeError: Dates or durations, which are no numbers yet.
        """
        args, kwargs = tf.nest.map_structure(without_mask, (args, kwargs))
        if self._is_in_training_step():
            with native.own_graph():
                return super().__call__(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    @staticmethod
    def _is_in_training_step() -> bool:
        """Whether a call is part of the graph of a training step that XLA does not compile.

        A step of a `keras.Model` around this one is recognised by its tape, by `training=True` and
        by `compile(jit_compile=False)`, which "auto" means here. Nobody exports its graph.
        """
        if tf.executing_eagerly() or not is_recorded() or is_compiled_by_xla():
            return False
        return keras_private.is_called_to_train_without_xla()

    batch_count: tf.Variable | None = None
    """The number of batches of all the data, 1 outside of `fit` and `evaluate`: a loss of which one
    term belongs to all batches together takes a share of it in each. A model with such a loss makes
    the variable."""

    @contextlib.contextmanager
    def _in_batches(self, data: Any, steps: int | None) -> Iterator[None]:
        """A context in which the model, and models inside it, know the number of batches."""
        variables = [getattr(x, "batch_count", None) for x in keras_private.flatten_layers(self)]
        counts = [count for count in variables if count is not None]
        before = [count.numpy() for count in counts]
        number = number_of_batches(data, steps) if counts else 1
        try:
            for count in counts:
                count.assign(number)
            yield
        finally:
            for count, number_before in zip(counts, before, strict=True):
                count.assign(number_before)

    def named_hyperparameters(self) -> dict[str, Parameter]:
        """The hyperparameters of all layers, by the paths of their weights."""
        layers = [x for x in keras_private.flatten_layers(self) if isinstance(x, Parameterized)]
        return {p.variable.path: p for layer in layers for p in layer.own_parameters}

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Keras's `evaluate`, with arrays kept in their own dtype; arguments as for `fit`."""
        as_flag(return_dict, "return_dict")
        if are_arrays(x, y, sample_weight):
            x = batches(x, y, sample_weight, batch_size, steps=steps)
            y = sample_weight = batch_size = None
        with self._in_batches(x, steps):
            arguments = {"sample_weight": sample_weight, "steps": steps, "callbacks": callbacks}
            arguments |= {"return_dict": return_dict, **kwargs}
            return super().evaluate(x, y, batch_size, where_watched(verbose), **arguments)

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> Any:
        """Keras's `predict`, with arrays kept in their own dtype; arguments as for `fit`."""
        if are_arrays(x):
            x = batches(x, batch_size=batch_size, steps=steps)
            batch_size = None
        return super().predict(x, batch_size, where_watched(verbose), steps, callbacks)

    # --- serialisation ---------------------------------------------------------------------------

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict | None = None) -> Any:
        """Makes the model of a config; layers that were shared are shared again."""
        with sharing_scope():
            return super().from_config(config, custom_objects)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A subclass with its own `from_config` shares layers too.
        wrap_from_config(cls, _inside_sharing_scope)


def _inside_sharing_scope(cls: Any, make: Callable[[dict], Any], config: dict) -> Any:
    with sharing_scope():
        return make(config)


def any_complex(structure: Any) -> bool:
    """Tells whether a leaf of a structure of tensors is complex."""
    return any(map(is_complex, keras.tree.flatten(structure)))


def without_mask(x: Any) -> Any:
    """An array with NaN in place of its masked elements; anything else as it is."""
    is_plain = isinstance(x, bool | int | float | complex | NoneType) or tf.is_tensor(x)
    is_plain = is_plain or (isinstance(x, np.ndarray) and x.dtype.kind in "iufc")
    if not is_plain and is_time(x):
        raise TypeError(f"inputs must be numbers, got dates or durations: {remedy('x')}")
    if not np.ma.is_masked(x):
        return x
    if x.dtype.kind not in "fc":
        raise TypeError(f"masked elements must be of a float or complex array, got {x.dtype}")
    return np.ma.filled(x, complex(np.nan, np.nan) if x.dtype.kind == "c" else np.nan)


def _check_callbacks(callbacks: Any) -> None:
    """Raises a TypeError for anything but callbacks of Keras."""
    for callback in keras.tree.flatten(callbacks):
        kinds = keras.callbacks.Callback | keras.callbacks.CallbackList | None
        if not isinstance(callback, kinds):
            raise TypeError(f"callbacks must be callbacks of Keras, got {callback!r}")


def _check_optimizer(optimizer: Any) -> None:
    """Raises for an optimizer class, and for the string "LBFGS", which Keras does not know."""
    if isinstance(optimizer, type):
        kind = optimizer.__name__
        raise TypeError(f"optimizer must be an optimizer, got the class {kind}: make one, {kind}()")
    if isinstance(optimizer, str) and optimizer.lower().replace("-", "") == "lbfgs":
        raise ValueError(f"Keras knows no {optimizer!r}: give optimizer=cgp.optimizers.LBFGS()")


@keras.saving.register_keras_serializable(package="cgp")
class Model(Trainer, keras.Model):
    """A Keras model to subclass, for layers with post-gradient updates and data in float64.

    Over `keras.Model`:

    - `train_step` runs the registered post updates (`cgp.register_post_update`) after the gradient
      step, `fit` once more at its end;
    - NumPy arrays reach `call` in their own dtype, float64 and complex128 included;
    - `compile(optimizer=cgp.optimizers.LBFGS())` lets `fit` run SciPy's L-BFGS;
    - layers that share a kernel go on sharing it when loaded, cloned, pickled or copied.

    The dtype is float64 whatever Keras's global floatx. A subclass whose `call` takes complex data
    should define `build`: Keras builds a loaded model by tracing `call` on float32.

    Args:
        **kwargs: `name`, `dtype`, `trainable`, as for `keras.Model`.

    Raises:
        TypeError: Construction from input and output tensors: that is `cgp.Functional`.

    Example:
        >>> import keras, numpy as np, tensorflow as tf, cgp
        >>> class Mean(cgp.Model):
        ...     def __init__(self, **kwargs):
        ...         super().__init__(**kwargs)
        ...         self.mean = self.add_weight(shape=(), initializer="zeros")
        ...
        ...     def call(self, x):
        ...         self.add_loss(tf.reduce_mean((x - self.mean) ** 2))
        ...         return x - self.mean
        >>> model = Mean()
        >>> model.compile(optimizer=cgp.optimizers.LBFGS())
        >>> history = model.fit(np.array([1.0, 2.0, 6.0]), verbose=0)
        >>> print(f"{float(model.mean):.6f}")
        3.000000
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args or "inputs" in kwargs or "outputs" in kwargs:
            raise TypeError(
                "cgp.Model is to be subclassed: build a model from input and output tensors with "
                "cgp.Functional(inputs, outputs)"
            )
        kwargs["dtype"] = kwargs.get("dtype") or "float64"
        with names_told(type(self)):
            super().__init__(**kwargs)


@keras.saving.register_keras_serializable(package="cgp")
class Functional(Trainer, keras_private.FunctionalModel):
    """A Keras functional model with all that `cgp.Model` adds.

    Give the inputs their dtype, `keras.Input(shape, dtype="float64")` or `"complex128"`: Keras
    casts what it is fed to the dtype of the input, float32 unless told otherwise.

    Args:
        inputs: `keras.Input` tensor, or structure of them.
        outputs: Output tensor, or structure of them.
        name: Name of the model.
        **kwargs: `trainable`.

    Raises:
        TypeError: A layer or operation of Keras that is fed with complex values, except those
            listed in `cgp.training.model`, which are exact: the others round complex128 to
            complex64, drop imaginary parts, or fail in training. Where a layer of your own, or
            a `Lambda`, declares a real dtype for complex results, the first run finds it out. On a
            call, complex data for an input that is real: Keras would drop the imaginary part.

    Example:
        >>> import keras, numpy as np, cgp
        >>> x = keras.Input((1,), dtype="float64")
        >>> model = cgp.Functional(x, keras.layers.Dense(1, dtype="float64")(x))
        >>> model.compile(keras.optimizers.SGD(0.1), keras.losses.MeanSquaredError(dtype="float64"))
        >>> history = model.fit(np.ones((8, 1)), np.ones((8, 1)), epochs=2, verbose=0)
        >>> len(history.history["loss"])
        2
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Keras up to 3.13 serialises only a class whose constructor has this signature.
        super().__init__(*args, **kwargs)
        self.dtype_policy = keras.DTypePolicy("float64")
        check_graph(self, list(map(is_complex, self.inputs)))

    def call(
        self, inputs: Any, training: bool | None = None, mask: Any = None, **kwargs: Any
    ) -> Any:
        """Runs the graph of layers."""
        check_inputs(self, map(is_complex, keras.tree.flatten(inputs)))
        return super().call(inputs, training=training, mask=mask, **kwargs)

    def graph_context(self) -> AbstractContextManager:
        """The sharing scope, as Keras clones a functional model on a run through its graph."""
        return sharing_scope()

    def check_call(self, operation: Any, arguments: list) -> None:
        """Checks the values of layers that have declared another dtype, on the first run."""
        if not any(isinstance(a, keras.KerasTensor) for a in arguments):
            check_call(operation, arguments)


# --- complex values in a graph of layers and operations of Keras ----------------------------------

# Keras knows complex64 alone: operations that promote dtypes, as `add` and `matmul`, round to it;
# `cast` to a real dtype drops imaginary parts; noise and pooling have no complex kernels.
# Operations that only move or repeat values are exact. Layers of users, and `Lambda`, are trusted.
KEEPING_LAYERS = frozenset(
    """Concatenate Cropping1D Cropping2D Cropping3D Flatten Identity Permute RepeatVector Reshape
    UpSampling1D UpSampling3D ZeroPadding1D ZeroPadding2D ZeroPadding3D""".split()  # noqa: SIM905
)
"""Layers of Keras that keep complex values as they are; also in a `TimeDistributed`."""

REAL_OPERATIONS = frozenset({"Absolute", "Imag", "Real"})
"""Operations whose results are real, and exact, though Keras may declare complex ones."""

KEEPING_OPERATIONS = REAL_OPERATIONS | frozenset(
    """Concatenate Conjugate Diagonal ExpandDims Flip GetItem Moveaxis Negative Pad Ravel Repeat
    Reshape Roll Split Squeeze Stack StopGradient Swapaxes Take Tile Transpose""".split()  # noqa: SIM905
)
"""Operations of `keras.ops`, and of tensors as `a[:, -1]`, that are exact for complex values."""


def check_inputs(model: Any, are_complex: Iterable[bool]) -> None:
    """Raises a TypeError where a real input of a functional model is fed with complex values."""
    for fed, declared in zip(are_complex, model.inputs, strict=False):
        if fed and not is_complex(declared):
            raise TypeError(
                f"input {declared.name!r} is {declared.dtype} but was given complex data: "
                'declare it with keras.Input(..., dtype="complex128")'
            )


def check_graph(model: Any, are_complex: Sequence[bool]) -> list[bool]:
    """Raises where a functional model would round complex values or drop a part of them.

    The declared dtypes are not enough: most layers of Keras declare their own dtype for whatever
    they return. Returns whether each of its outputs is complex, from whether each of its inputs is.
    """
    check_inputs(model, are_complex)
    complex_by_id = dict(zip(map(id, model.inputs), are_complex, strict=False))

    def holds_complex(leaf: Any) -> bool:
        return complex_by_id.get(id(leaf), is_complex(leaf))

    for operation, arguments, outputs in keras_private.calls_in_graph(model):
        flags = check_call(operation, arguments, holds_complex)
        if flags is None:  # of real values
            flags = list(map(is_complex, outputs))
            if any(flags) and _is_of_keras(operation):
                if not any(map(is_complex, arguments)):  # as by `cast`
                    raise TypeError(_refusal(operation))
                flags = [False]  # declared so because a real argument was, as by `Absolute`
        flags = flags * len(outputs) if len(flags) == 1 else flags
        complex_by_id |= zip(map(id, outputs), flags, strict=True)
    return list(map(holds_complex, model.outputs))


def check_call(
    operation: Any, arguments: Sequence[Any], holds_complex: Callable[[Any], bool] = is_complex
) -> list[bool] | None:
    """Raises where an operation of Keras would round complex values or mix them with real ones.

    Returns:
        Whether its outputs are complex, one by one or all alike; None where they are as declared.
    """
    tensors = [a for a in arguments if hasattr(a, "dtype")]
    graph = keras_private.graph_of(operation)
    if graph is not None:
        return check_graph(graph, list(map(holds_complex, tensors)))
    if not _is_of_keras(operation) or not any(map(holds_complex, arguments)):
        return None
    if isinstance(operation, keras.layers.TimeDistributed):
        return check_call(operation.layer, arguments, holds_complex)
    is_layer, name = isinstance(operation, keras.layers.Layer), type(operation).__name__
    if name not in (KEEPING_LAYERS if is_layer else KEEPING_OPERATIONS):
        raise TypeError(_refusal(operation))
    if any("float" in str(a.dtype) and not holds_complex(a) for a in tensors):
        raise TypeError(
            f"{operation.name!r}, {name} of Keras, is given complex values beside real ones, for "
            "which Keras takes complex64: make all of them complex before, as by keras.layers."
            'Lambda(tf.cast, dtype="complex128", arguments={"dtype": "complex128"})'
        )
    return [is_layer or name not in REAL_OPERATIONS]


def _is_of_keras(operation: Any) -> bool:
    is_trusted = isinstance(operation, keras.layers.Lambda)
    return type(operation).__module__.startswith("keras.") and not is_trusted


def _refusal(operation: Any) -> str:
    return (
        f"{operation.name!r}, {type(operation).__name__} of Keras, rounds complex values to "
        "complex64, drops a part of them, or takes none. Where it may treat real and imaginary "
        "parts as features, put cgp.layers.RealImag() before it, and cgp.layers.ToComplex() after "
        "it if complex values are to go on. Otherwise compute with TensorFlow, in a layer of your "
        'own, or by keras.layers.Lambda(function, dtype="complex128") of a function made of tf.*'
    )
