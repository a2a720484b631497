"""The training loop of `fit` under the optimizer `LBFGS`: SciPy's L-BFGS-B."""

import warnings
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from cgp.training.batches import are_arrays, check_end, pack
from cgp.training.descent import Descent
from cgp.training.divergence import description, trained
from cgp.training.objective import Objective
from cgp.training.shards import ShardedObjective, Shards

_WALL = 1e100  # slope, beyond which it is that of a wall, in whatever unit


class Validation(NamedTuple):
    """The validation arguments of `fit`, without their prefix."""

    data: Any
    steps: int | None
    freq: Any


def reject(**arguments: Any) -> None:
    """Raises if arguments of `fit` about batches are given."""
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(
                f"LBFGS needs the loss of all the data at once: {name}={value!r} has no meaning"
            )


def loss_of(model: Any, x: Any, y: Any, sample_weight: Any) -> Objective:
    """The loss of the data that `fit` was given, in one batch or in shards."""
    if isinstance(x, tf.data.Dataset):
        check_end(x)
        if hasattr(model, "_as_batch") and len(list(x.take(2))) > 1:
            parts = map(keras.utils.unpack_x_y_sample_weight, x)
            x = Shards([_series(*part) for part in parts], map)
    if isinstance(x, Shards):
        return ShardedObjective(model, x)
    return Objective(model, _one_batch(x, y, sample_weight))


def _series(x: Any, y: Any, sample_weight: Any) -> Any:
    """A batch of a dataset of series, which has nothing else."""
    if y is not None or sample_weight is not None:
        raise TypeError(
            "a model of series learns from them alone: a dataset of series was expected, and it "
            "has targets too"
        )
    return x


def _one_batch(x: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """All the data as one batch, `(x, y, sample_weight)`."""
    if are_arrays(x, y, sample_weight):
        batch, _ = pack(x, y, sample_weight)
    elif isinstance(x, tf.data.Dataset):
        if y is not None or sample_weight is not None:
            raise ValueError("a dataset brings its own targets and weights: y must be None")
        found = list(x.take(2))
        if len(found) != 1:
            raise ValueError(
                f"LBFGS needs all the data in one batch, and the dataset has "
                f"{'several' if found else 'none'}: batch it by its length"
            )
        batch = found[0]
    else:
        raise TypeError(f"LBFGS takes arrays or a tf.data.Dataset of one batch, got x of {type(x)}")
    return keras.utils.unpack_x_y_sample_weight(batch)


def fit(
    model: Any,
    loss: Objective,
    epochs: int | None,
    initial_epoch: int,
    verbose: int | str,
    callbacks: Any,
    validation: Validation,
) -> keras.callbacks.History:
    """Minimises the loss of all data over the trainable variables of the model.

    Args:
        model: A compiled model whose optimizer is `LBFGS`.
        loss: The loss, from `loss_of`.
        epochs: The number of the last iteration, or None.
        initial_epoch: The number of the first iteration.
        verbose: As in `fit`.
        callbacks: As in `fit`.
        validation: `Validation`.

    Returns:
        The `History`.
    """
    cap = None if epochs is None else epochs - initial_epoch
    if cap is not None and cap < 1:
        raise ValueError(f"epochs={epochs} leaves no iteration after initial_epoch={initial_epoch}")
    optimizer: Any = model.optimizer
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    if not isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks = keras.callbacks.CallbackList(
            callbacks, add_history=True, model=model, verbose=verbose, epochs=epochs, steps=1
        )
    progress = _Progress(verbose, cap)
    model.stop_training = False
    callbacks.on_train_begin()
    run = _Run(model, loss, callbacks, progress, validation, initial_epoch)
    try:
        result = run.descent.run(optimizer, cap)
    except BaseException:
        loss.assign(run.descent.point)  # an interruption must not leave the model at a trial point
        raise
    if not model.stop_training:  # otherwise a callback may have set the weights
        loss.assign(run.descent.point)
    if run.iterations == 0:  # it started at the optimum: report one epoch
        run.begin_epoch()
        run.end_epoch(run.descent.value)
    optimizer._set_result(result)
    progress.close()
    callbacks.on_train_end(run.logs)
    model.history.diverged = False  # the point is always the best one
    _warn(result, run, cap, model.stop_training)
    return model.history


def _warn(result: Any, run: "_Run", cap: int | None, stopped: bool) -> None:
    if stopped or (cap is not None and run.iterations >= cap):
        return
    descent = run.descent
    slope = np.max(np.abs(descent.gradient), initial=0.0)
    scale = max(1.0, min(abs(descent.value), abs(descent.first_value)))
    # Close to the optimum the line search fails from rounding: that counts as convergence. A loss
    # from the factor of a matrix of condition 1/√ε is off by √ε, and where its slope is ε^¼ no
    # decrease can be seen. On the other hand SciPy reports convergence for a loss without a
    # minimum, once its relative change is small.
    flat = 0.1 if result.success else descent.loss.epsilon**0.25
    if result.status == 1 or slope > flat * scale:
        why = result.message
        if result.success:  # SciPy's words for a decrease that is small beside the loss
            why = "the loss hardly falls any more, but it still slopes"
        elif result.status != 1:  # "ABNORMAL", or what stands in for a loss: of the line search
            why = "no step along the descent was found that lowers the loss"
        # Beside a wall, as of data that are all zero, a gradient says nothing.
        at = f", with a gradient of up to {slope:.3g}" if slope < _WALL else ""
        warnings.warn(
            f"L-BFGS stopped before convergence after {run.iterations} iterations{at}: {why}. "
            "The best parameters that it found are "
            f"{description(descent.trained)}",
            RuntimeWarning,
            stacklevel=4,
        )


class _Run:
    """One minimisation as a training: epochs, callbacks, validation and progress."""

    def __init__(
        self,
        model: Any,
        loss: Objective,
        callbacks: Any,
        progress: "_Progress",
        validation: Validation,
        initial_epoch: int,
    ) -> None:
        self.model = model
        self.callbacks = callbacks
        self.progress = progress
        self.validation = validation
        self.initial_epoch = initial_epoch
        self.iterations = 0
        self.in_epoch = False
        self.logs: dict = {}
        self.descent = Descent(
            loss, trained(model), loss.start, self.begin_epoch, self._after_iteration
        )

    def begin_epoch(self) -> None:
        if not self.in_epoch:
            self.in_epoch = True
            self.callbacks.on_epoch_begin(self.initial_epoch + self.iterations)
            self.callbacks.on_train_batch_begin(0)

    def end_epoch(self, value: float) -> None:
        epoch = self.initial_epoch + self.iterations
        self.iterations += 1
        self.in_epoch = False
        self.logs = {"loss": value}
        self.callbacks.on_train_batch_end(0, self.logs)
        if self.validation.data is not None and self.iterations % self.validation.freq == 0:
            found = self.model.evaluate(
                self.validation.data, steps=self.validation.steps, verbose=0, return_dict=True
            )
            self.logs |= {f"val_{name}": v for name, v in found.items()}
        self.callbacks.on_epoch_end(epoch, self.logs)
        self.progress.update(self.iterations, self.logs)

    def _after_iteration(self, value: float) -> bool:
        self.begin_epoch()
        self.end_epoch(value)
        return bool(self.model.stop_training)


class _Progress:
    """A progress line that counts iterations, or a line for each iteration."""

    def __init__(self, verbose: int | str, cap: int | None) -> None:
        self.verbose = 1 if verbose == "auto" else verbose
        self.bar = None
        if self.verbose == 1:
            self.bar = keras.utils.Progbar(cap, unit_name="iteration", stateful_metrics=["loss"])
        self.seen = 0
        self.logs: dict = {}

    def update(self, iteration: int, logs: dict) -> None:
        self.seen, self.logs = iteration, dict(logs)
        if self.bar is not None:
            self.bar.stateful_metrics |= set(logs)  # values, not averages over iterations
            self.bar.update(iteration, list(logs.items()), finalize=False)
        elif self.verbose:
            shown = " - ".join(f"{name}: {value:.8g}" for name, value in logs.items())
            print(f"Iteration {iteration} - {shown}")

    def close(self) -> None:
        if self.bar is not None and self.seen:
            self.bar.target = self.seen
            self.bar.update(self.seen, list(self.logs.items()), finalize=True)
