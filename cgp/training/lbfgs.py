"""The training loop of `fit` under the optimizer `LBFGS`: SciPy's L-BFGS-B."""

import warnings
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from cgp.training.batches import are_arrays, pack
from cgp.training.divergence import description, is_indefinite, trained
from cgp.training.objective import Objective


class Validation(NamedTuple):
    """The validation arguments of `fit`, without their prefix."""

    data: Any
    steps: int | None
    freq: int


def reject(**arguments: Any) -> None:
    """Raises if arguments of `fit` about batches are given."""
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(
                f"LBFGS needs the loss of all the data at once: {name}={value!r} has no meaning"
            )


def one_batch(x: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Returns all the data as one batch, `(x, y, sample_weight)`."""
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
    batch: tuple,
    epochs: int | None,
    initial_epoch: int,
    verbose: int | str,
    callbacks: Any,
    validation: Validation,
) -> keras.callbacks.History:
    """Minimises the loss of one batch over the trainable variables of the model.

    Args:
        model: A compiled model whose optimizer is `LBFGS`.
        batch: `(x, y, sample_weight)`.
        epochs: The number of the last iteration, or None.
        initial_epoch: The number of the first iteration.
        verbose: As in `fit`.
        callbacks: As in `fit`.
        validation: `Validation`.

    Returns:
        The `History`.
    """
    from scipy import optimize  # here: importing it takes long

    cap = None if epochs is None else epochs - initial_epoch
    if cap is not None and cap < 1:
        raise ValueError(f"epochs={epochs} leaves no iteration after initial_epoch={initial_epoch}")
    loss = Objective(model, batch)
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
    options: Any = {
        "maxcor": optimizer.maxcor,
        "ftol": max(optimizer.ftol, loss.resolution),
        "gtol": optimizer.gtol,
        "maxiter": _NO_CAP if cap is None else cap,
        "maxfun": 20 * _NO_CAP,
        "maxls": 30,
    }
    try:
        result = optimize.minimize(
            run.value_and_gradient,
            loss.start,
            jac=True,
            method="L-BFGS-B",
            callback=run.on_iteration,
            options=options,
        )
    except BaseException:
        loss.assign(run.point)  # an interruption must not leave the model at a trial point
        raise
    if not model.stop_training:  # otherwise a callback may have set the weights
        loss.assign(run.point)
    if run.iterations == 0:  # it started at the optimum: report one epoch
        run.begin_epoch()
        run.end_epoch(run.value)
    optimizer._set_result(result)
    progress.close()
    callbacks.on_train_end(run.logs)
    model.history.diverged = False  # the point is always the best one
    _warn(result, run, cap, model.stop_training)
    return model.history


_NO_CAP = 15_000  # SciPy's own


def _warn(result: Any, run: "_Run", cap: int | None, stopped: bool) -> None:
    if stopped or (cap is not None and run.iterations >= cap):
        return
    slope = np.max(np.abs(run.gradient), initial=0.0)
    scale = max(1.0, min(abs(run.value), abs(run.first_value)))
    # Close to the optimum the line search fails from rounding: that counts as convergence. On the
    # other hand SciPy reports convergence for a loss without a minimum, once its relative change
    # is small.
    if result.status == 1 or slope > (0.1 if result.success else 1e-5) * scale:
        warnings.warn(
            f"L-BFGS stopped before convergence after {run.iterations} iterations, with a gradient "
            f"of up to {slope:.3g}: {result.message}. The best parameters that it found are "
            f"{description(run.trained)}",
            RuntimeWarning,
            stacklevel=4,
        )


class _Run:
    """The state of one minimisation, and the functions that SciPy calls."""

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
        self.loss = loss
        self.callbacks = callbacks
        self.progress = progress
        self.validation = validation
        self.initial_epoch = initial_epoch
        self.iterations = 0
        self.in_epoch = False
        self.logs: dict = {}
        # The last iterate, where the line search starts: the best point so far.
        self.point = loss.start
        self.value, self.gradient = loss(self.point)  # an error here goes to the user
        if not self._is_finite(self.value, self.gradient):
            raise ValueError(
                f"the loss at the initial variables is {self.value}, and must be finite, as must "
                "its gradient"
            )
        self.first_value = self.value
        self.last = (self.point, self.value, self.gradient)
        self.trained = trained(model)
        steps = [v.parameter.step for v in self.trained if v.parameter is not None]
        self.largest_step = max([1.0, *(float(np.max(s)) for s in steps if s is not None)])

    @staticmethod
    def _is_finite(value: float, gradient: np.ndarray) -> bool:
        return bool(np.isfinite(value) and np.all(np.isfinite(gradient)))

    def value_and_gradient(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        if np.array_equal(point, self.last[0]):
            return self.last[1:]
        self.begin_epoch()
        try:
            value, gradient = self.loss(point)
            failed = not self._is_finite(value, gradient) or self._is_lost(point)
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            if isinstance(error, ValueError) and not (is_indefinite(error) or self._is_lost(point)):
                raise
            failed = True
        if failed:
            value, gradient = self._retreat(point)
        self.last = (point.copy(), value, gradient)
        return value, gradient

    def _is_lost(self, point: np.ndarray) -> bool:
        """Whether a hyperparameter is outside its constraint, as a variance that is zero."""
        # No exponential overflows or underflows below that, in float32 either.
        if np.max(np.abs(point)) * self.largest_step < 80.0:
            return False
        return any(v.is_lost() for v in self.trained)

    def _retreat(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """Returns a substitute for a loss without a value, which turns the line search back.

        Value and slope are those of the parabola that has the value and slope of the last iterate
        there, and its minimum at a quarter of the step: SciPy interpolates, and tries that point.
        """
        step = point - self.point
        descent = max(-float(self.gradient @ step), np.finfo(float).tiny)
        return self.value + descent, 3.0 * descent / float(step @ step) * step

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

    def on_iteration(self, intermediate_result: Any) -> None:
        point, value = intermediate_result.x.copy(), float(intermediate_result.fun)
        if not np.array_equal(point, self.last[0]):  # evaluate it, which also sets the variables
            self.last = (point, *self.loss(point))
        self.point, self.value, self.gradient = self.last
        self.begin_epoch()
        self.end_epoch(value)
        if self.model.stop_training:
            raise StopIteration


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
