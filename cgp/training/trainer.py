"""The methods that `cgp.Model` and `cgp.Functional` add to a Keras model."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp import native
from cgp.clock import is_time, remedy
from cgp.linalg.arguments import as_flag, check_whole, is_complex
from cgp.training import divergence, keras_private, lbfgs
from cgp.training.batches import are_arrays, batches, number_of_batches, split, where_watched
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
        """Makes a gradient step, then runs the post updates whose variables it has changed.

        With gradient accumulation most steps change no variable, and nothing is recomputed.
        """
        with self._own_graph():
            logs = super().train_step(data)
            # The loss is counted first: it is that of the last good parameters if an update fails.
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

        That may be in float32, to which Keras adds no float64: the loss takes its dtype. Gradients
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
        """Computes the loss of real targets and outputs that `compile` was given, and adds those of
        layers.

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
            validation_freq: Validate each so many epochs; or, not under `LBFGS`, a list of epochs.
            engine: Of a `KalmanFilter`, `ExactGP` or `StateSpaceGP` under `LBFGS`: what computes
                the loss of parts of the data elsewhere. x is then a list of such parts, and the
                engine `map`, or has a method `map` of a function and a list: a `Client` of Dask, an
                executor of `concurrent.futures`, a pool of Ray. Or None.

        Returns:
            Keras's `History`. Its `history["loss"]` has one entry for each epoch, or iteration; its
            attribute `diverged` is True where the training has diverged.

        A training that diverges (its loss is no longer finite, a covariance no longer positive
        definite, a hyperparameter outside its constraint) is stopped with a `RuntimeWarning` that
        names the values it came to. The trainable variables are then those of the start of the
        epoch with the lowest loss, or of the best iteration of `LBFGS`, unless a callback sets
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
        return super().__call__(*args, **kwargs)

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
