"""A training that diverges is stopped, and the best parameters that it saw are restored."""

import math
import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from cgp.linalg import NotPositiveDefiniteError
from cgp.training.keras_private import first_loss, forget_loss
from cgp.training.parameters import Parameter

# The errors of cgp.linalg, and of TensorFlow's factorisation of a real matrix, in a graph.
_MESSAGES = (
    "not positive definite",
    "Cholesky decomposition was not successful",
    # Of a filter whose F has become unstable, in graphs and eagerly.
    "has no stationary covariance any more",
    "needs an F whose eigenvalues are inside",
)
_NOT_FINITE = r"the matrix of shape .* has elements that are NaN or infinite"


def is_indefinite(error: Exception) -> bool:
    """Whether an error says that a matrix is not positive definite, or not even finite."""
    if isinstance(error, NotPositiveDefiniteError) or any(m in str(error) for m in _MESSAGES):
        return True
    if isinstance(error, tf.errors.InvalidArgumentError):
        return False
    return re.search(_NOT_FINITE, str(error)) is not None  # as it is called eagerly


class Trained(NamedTuple):
    """A trainable variable, with the hyperparameter whose weight it is, if any."""

    name: str
    variable: keras.Variable
    parameter: Parameter | None

    def value(self) -> np.ndarray:
        """The value of the hyperparameter, else of the variable."""
        return (self.variable if self.parameter is None else self.parameter).numpy()

    def is_lost(self) -> bool:
        """Whether the value is not finite, or outside its constraint: a variance of zero, say."""
        array = self.value()
        if not np.all(np.isfinite(array)):
            return True
        return self.parameter is not None and not self.parameter.constraint.contains(array)


def trained(model: Any) -> list[Trained]:
    """The trainable variables of a `cgp.Model`, by the names that it gives its hyperparameters."""
    names = {id(p.variable): (name, p) for name, p in model.named_hyperparameters().items()}
    named = ((v, *names.get(id(v), (v.path, None))) for v in model.trainable_variables)
    return [Trained(name, variable, parameter) for variable, name, parameter in named]


def description(values: list[Trained]) -> str:
    """Names and values of the variables outside their constraints, else of all, for a message."""
    chosen = [v for v in values if v.is_lost()] or values
    shown = [
        f"{v.name} = {np.array2string(np.asarray(v.value()), precision=4, threshold=6)}"
        for v in chosen[:8]
    ]
    return ", ".join(shown) + (f" and {len(chosen) - 8} more" if len(chosen) > 8 else "")


def guarded(model: Any, fit: Callable, callbacks: Any) -> keras.callbacks.History:
    """Runs Keras's `fit`, a function of `callbacks`, under a `DivergenceGuard`.

    Returns:
        The history of the training; its attribute `diverged` tells whether the training has.

    Raises:
        NotPositiveDefiniteError: A covariance is not positive definite where nothing better is
            known: at the initial parameters, or in a validation.
    """
    guard = DivergenceGuard(model)
    callbacks = guard.ahead_of(callbacks)
    try:
        history = fit(callbacks=callbacks)
    except (tf.errors.InvalidArgumentError, ValueError) as error:
        if not is_indefinite(error):
            raise
        reached = description(trained(model))
        guard.restore()
        raise NotPositiveDefiniteError(
            f"a covariance is not positive definite, at {reached}. Start from other parameters, or "
            "take more noise"
        ) from error
    finally:
        guard.finish(callbacks)
    guard.check()
    history.diverged = guard.reached is not None
    guard.warn()
    return history


class DivergenceGuard(keras.callbacks.Callback):
    """Stops a gradient training that diverges, and restores the best parameters that it saw.

    These are the trainable variables at the start of the epoch with the lowest loss, of its first
    batch or of all: values whose loss has been computed, and is finite. A training has diverged
    when the loss or a trainable variable is no longer finite, a hyperparameter leaves its
    constraint, or a covariance is not positive definite. The optimizer goes back to where it was
    when the training began, as its moments are no better than the gradients they were made of.

    It is the first of the callbacks: others see restored parameters when the last epoch ends, and
    values that they set as the training ends (`EarlyStopping(restore_best_weights=True)`) stay.
    """

    async_safe = True  # Keras need not wait for a step before it starts the next

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.set_model(model)
        self.reached: str | None = None  # where a training has diverged to, once it has
        self._step: Any = None

    def ahead_of(self, callbacks: Any) -> Any:
        """The callbacks given to `fit`, with this one before them."""
        if isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks.callbacks.insert(0, self)
            return callbacks
        return [self, *([] if callbacks is None else keras.tree.flatten(callbacks))]

    # --- called by Keras -------------------------------------------------------------------------

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Replaces the compiled training step by one that catches its errors."""
        self._trained = trained(self.model)
        self._best = self._at_start = self._values()
        optimizer = self.model.optimizer
        self._optimizer = [v.numpy() for v in optimizer.variables] if optimizer.built else None
        self._loss, self._best_loss = math.nan, math.inf
        self._best_epoch: int | None = None
        self._step = self.model.train_function
        self.model.train_function = self._guarded_step

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Keeps the values of the variables to which the loss of this epoch belongs."""
        self._epoch, self._at_start, self._first_loss = epoch, self._values(), math.nan
        self._logs: dict = {}

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Keeps the loss of the first batch: the epoch may diverge after it."""
        if math.isnan(self._first_loss):
            self._first_loss = (logs or {}).get("loss", math.nan)

    def on_test_begin(self, logs: dict | None = None) -> None:
        """Stops before a validation with parameters outside their constraints, which would fail."""
        if self.reached is None and any(v.is_lost() for v in self._trained):
            self._note(self._running_loss())
            self._stop()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Compares the loss of the epoch with the best, and stops if it is not finite."""
        if self.reached is None:
            if len(self._trained) != len(self.model.trainable_variables):  # built by the first step
                self._trained, self._best, self._at_start = trained(self.model), [], []
            loss = (logs or {}).get("loss")
            if loss is None:  # a train_step that reports none
                self._best = self._at_start
            else:
                self._note(loss)
            lost = any(v.is_lost() for v in self._trained)
            if lost or not (loss is None or math.isfinite(loss)):
                self._stop()

    def on_train_end(self, logs: dict | None = None) -> None:
        """Restores the best parameters again, as Keras may overwrite them with averages."""
        if self.reached is not None:
            self.restore()

    # --- called by fit ---------------------------------------------------------------------------

    def finish(self, callbacks: Any) -> None:
        """Puts Keras's training step back; to be called however the training has ended."""
        if isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks.callbacks.remove(self)
        if self._step is not None and self.model.train_function == self._guarded_step:
            self.model.train_function = self._step

    def check(self) -> None:
        """Restores the best parameters if the last step, or a callback, has left invalid ones."""
        bad = any(v.is_lost() for v in self._trained)
        if self.reached is not None and not math.isfinite(self._loss):  # nor is it at the start
            bad = bad or all(map(np.array_equal, self._values(), self._at_start))
        try:
            self._refresh()
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            if not (bad or is_indefinite(error)):
                raise
            bad = True
        if bad:
            self._stop()
            self._refresh()

    def _refresh(self) -> None:
        with self.model.distribute_strategy.scope():
            self.model.apply_post_updates()

    def restore(self) -> None:
        """Brings back the best parameters, or the initial ones where none had a finite loss."""
        if self._step is None:  # the training has not begun
            return
        with self.model.distribute_strategy.scope():
            for v, best in zip(self._trained, self._best, strict=bool(self._best)):
                v.variable.assign(best)
            optimizer = self.model.optimizer
            start = self._optimizer
            if start is None and optimizer.built:  # by the first step
                fresh = type(optimizer).from_config(optimizer.get_config())
                fresh.build(self.model.trainable_variables)
                start = [v.numpy() for v in fresh.variables]
            for v, initial in zip(optimizer.variables, start or (), strict=False):
                v.assign(initial)

    def warn(self) -> None:
        """Warns that a training has diverged: where to, and which parameters were restored."""
        if self.reached is None:
            return
        restored = "The parameters are again those from before the training"
        if self._best_epoch is not None:
            epoch = f"of the start of epoch {self._best_epoch}, whose loss is {self._best_loss:.6g}"
            restored = f"The parameters are again those {epoch}"
        elif not self._best:
            restored = "The model was built in its first step: no earlier parameters are known"
        warnings.warn(
            f"the training has diverged, to {self.reached}. {restored}; take a smaller learning "
            "rate, or more noise",
            RuntimeWarning,
            stacklevel=4,
        )

    # --- inside ----------------------------------------------------------------------------------

    def _guarded_step(self, iterator: Any) -> dict:
        try:
            self._logs = self._step(iterator)
            return self._logs
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            # Where parameters are lost, any error will do.
            if not (is_indefinite(error) or any(v.is_lost() for v in self._trained)):
                raise
            self._note(self._running_loss())
            if self._best_epoch is None:  # not even the first loss could be computed
                raise
            self._stop()
            forget_loss(self.model)
            return {"loss": math.nan}

    def _running_loss(self) -> float:
        """The mean loss of the steps of the epoch that have ended, or the loss of the first."""
        return float(self._logs.get("loss", math.nan)) if self._logs else first_loss(self.model)

    def _values(self) -> list[np.ndarray]:
        return [v.variable.numpy() for v in self._trained]

    def _note(self, loss: float) -> None:
        """Compares the loss at the start of the epoch with the best loss so far."""
        losses = [x for x in (loss, self._first_loss) if math.isfinite(x)]
        self._loss = min(losses, default=math.inf)
        if self._at_start and self._loss < self._best_loss:
            self._best, self._best_loss, self._best_epoch = self._at_start, self._loss, self._epoch

    def _stop(self) -> None:
        if self.reached is None:
            self.reached = description(self._trained)
        self.model.stop_training = True
        self.restore()
