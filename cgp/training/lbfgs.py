"""L-BFGS-B of SciPy for the loss of a model: descents, several starts, and the loop of `fit`."""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from cgp.training.batches import are_arrays, check_end, pack, where_watched
from cgp.training.divergence import Trained, description, is_indefinite, trained
from cgp.training.objective import Objective, ShardedObjective, Shards
from cgp.training.optimizers import LBFGS
from cgp.training.parameters import POSITIVE

_NO_CAP = 15_000  # SciPy's own
_MAXCOR = 10, 100  # correction pairs: fewer than variables are slow where these are correlated
_LONGEST = 10.0  # step in the log of a hyperparameter: a factor of 22,000
_FAR = 100.0  # fall of a loss per point that shows that the start was far from any optimum
_WALL = 1e100  # slope beyond which the loss has a wall, in whatever unit
_STEEPEST = 1e6  # rise or slope over the promised descent, beyond which no cubic fits a loss
_BOTTOMLESS = -1e6  # a loss per point that has no minimum, as it tends to minus infinity


class Descent:
    """A minimisation of a loss from a start, and the best point so far.

    SciPy sees the loss less its value at the start: convergence then depends neither on its level
    nor on the unit of the data, which adds a constant to a log likelihood. A start far from any
    optimum, beside whose loss all others look alike, is left behind first: SciPy starts again.

    Where the loss hardly depends on a hyperparameter, L-BFGS takes it far away, and others with it.
    A step that would multiply a positive one by more than 22,000 is shortened, and so is a step to
    an astronomical loss or slope, as of a filter whose transition has become unstable: the cubic
    through it has its minimum so near the last iterate that SciPy sees convergence there. The
    substitute for the loss at such a point belongs to no iterate: where rounding hides that it is
    no decrease, and SciPy accepts it, the descent ends at the iterate before.

    `before_evaluation` is called before each evaluation but the first, `after_iteration` with the
    loss after each iteration; it returns True to stop.

    Attributes:
        point: The last iterate, where the line search starts: the best point so far.
        value, gradient: The loss there, and its gradient.
        first_value: The loss at the start.

    Raises:
        ValueError: The loss at the start, or its gradient, is not finite.
        InvalidArgumentError, NotPositiveDefiniteError: The loss has no value there.
    """

    def __init__(
        self,
        loss: Objective,
        trained: list[Trained],
        start: np.ndarray,
        before_evaluation: Callable[[], None] = lambda: None,
        after_iteration: Callable[[float], bool] = lambda loss: False,
    ):
        self.loss, self.trained = loss, trained
        self.before_evaluation, self.after_iteration = before_evaluation, after_iteration
        self.point = start
        self.value, self.gradient = loss(self.point)
        if not _is_finite(self.value, self.gradient):
            outside = [
                f"{v.name} = {v.parameter}"
                for v in trained
                if v.parameter is not None
                and v.parameter.prior is not None
                and not np.isfinite(np.asarray(v.parameter.log_prior()))
            ]
            why = f": the prior of {', '.join(outside)} has no density there" if outside else ""
            raise ValueError(
                f"the loss at the initial variables is {self.value}, and must be finite, as must "
                f"its gradient{why}"
            )
        self.first_value = self._level = self.value
        self._is_stopped = False
        self._last = (self.point, self.value, self.gradient)
        self._is_substitute = False  # whether `_last` holds a substitute
        parameters = [v.parameter for v in trained]
        in_logs = [p is not None and p.constraint.forward is POSITIVE.forward for p in parameters]
        sizes = [v.variable.shape.num_elements() for v in trained]
        self._in_logs, self._number = np.repeat(in_logs, sizes), np.repeat(range(len(sizes)), sizes)
        steps = [1.0 if p is None or p.step is None else float(np.max(p.step)) for p in parameters]
        self._step = np.repeat(steps, sizes)

    def run(self, optimizer: LBFGS, cap: int | None) -> Any:
        """Runs the minimisation, for at most `cap` iterations; returns SciPy's `OptimizeResult`."""
        from scipy import optimize  # here: importing it takes long

        allowed = _NO_CAP if cap is None else cap
        iterations = evaluations = 0
        while True:
            self._level = self.value
            options: Any = {
                "maxcor": optimizer.maxcor or int(np.clip(self.point.size, *_MAXCOR)),
                "ftol": max(optimizer.ftol, 10 * self.loss.epsilon),
                "gtol": optimizer.gtol,
                "maxiter": allowed - iterations,
                "maxfun": 20 * _NO_CAP,
                "maxls": 30,
            }
            keywords = {"jac": True, "method": "L-BFGS-B", "callback": self._on_iteration}
            function = self._value_and_gradient
            result = optimize.minimize(function, self.point, options=options, **keywords)
            iterations, evaluations = iterations + result.nit, evaluations + result.nfev
            was_far = self._level - self.value >= _FAR and self.value > _BOTTOMLESS
            if not was_far or iterations >= allowed or self._is_stopped:
                break
        result.fun += self._level
        result.nit, result.nfev = iterations, evaluations
        return result

    def _value_and_gradient(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        if np.array_equal(point, self.point):
            self.loss.assign(point)
            self._last, self._is_substitute = (self.point, self.value, self.gradient), False
        elif not np.array_equal(point, self._last[0]):
            self.before_evaluation()
            is_far = np.any(np.abs(point - self.point)[self._in_logs] > _LONGEST)
            evaluated = None if is_far else self._evaluated(point)
            self._is_substitute = evaluated is None or self._is_steep(point, *evaluated)
            if evaluated is None or self._is_substitute:
                evaluated = self._retreat(point)
            self._last = (point.copy(), *evaluated)
        _, value, gradient = self._last
        return value - self._level, gradient

    def _evaluated(self, point: np.ndarray) -> tuple[float, np.ndarray] | None:
        """The loss and its gradient; None where it has no value."""
        try:
            value, gradient = self.loss(point)
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            if isinstance(error, ValueError) and not (is_indefinite(error) or self._is_lost(point)):
                raise
            return None
        has_value = _is_finite(value, gradient) and not self._is_lost(point)
        return (value, gradient) if has_value else None

    def _is_lost(self, point: np.ndarray) -> bool:
        """Whether a hyperparameter is outside its constraint, as a variance that is zero."""
        # No exponential overflows or underflows below that, in float32 either.
        is_far = ~(np.abs(point) * np.maximum(self._step, 1.0) < 80.0)  # or NaN
        return any(self.trained[number].is_lost() for number in set(self._number[is_far]))

    def _is_steep(self, point: np.ndarray, loss: float, gradient: np.ndarray) -> bool:
        """Whether loss or slope at a point are beyond what a cubic from the last iterate fits."""
        slope = abs(float(gradient @ (point - self.point)))
        # Close to the optimum less is promised than the loss is rounded by: that rise is no wall.
        rounding = self.loss.epsilon * max(1.0, abs(self.value))
        expected = max(self._predicted_decrease(point), rounding)
        return max(loss - self.value, slope) > _STEEPEST * expected

    def _predicted_decrease(self, point: np.ndarray) -> float:
        """The decrease of the loss on the way to a point, by the slope at the last iterate."""
        return max(-float(self.gradient @ (point - self.point)), float(np.finfo(float).tiny))

    def _retreat(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """A substitute for loss and gradient at a refused point: the line search turns back.

        Value and slope are from the parabola that has the value and slope of the last iterate
        there, and its minimum at a quarter of the step: SciPy interpolates, and tries that point.
        """
        step, descent = point - self.point, self._predicted_decrease(point)
        longest = np.max(np.abs(step))
        step = step / longest  # whose square would underflow
        return self.value + descent, 3.0 * descent / longest / float(step @ step) * step

    def _on_iteration(self, intermediate_result: Any) -> None:
        point = intermediate_result.x.copy()
        if not np.array_equal(point, self._last[0]):  # evaluate it, which also sets the variables
            self._last, self._is_substitute = (point, *self.loss(point)), False
        if self._is_substitute:
            self._is_stopped = True
            raise StopIteration
        self.point, self.value, self.gradient = self._last
        self._is_stopped = self.after_iteration(self.value)
        if self._is_stopped:
            raise StopIteration


def _is_finite(loss: float, gradient: np.ndarray) -> bool:
    return bool(np.isfinite(loss) and np.all(np.isfinite(gradient)))


class Validation(NamedTuple):
    """The validation arguments of `fit`."""

    data: Any
    steps: int | None
    freq: Any


def reject(**arguments: Any) -> None:
    """Raises if arguments of `fit` about batches are given."""
    for name, argument in arguments.items():
        if argument is not None:
            raise ValueError(
                f"LBFGS needs the loss of all the data at once: {name}={argument!r} has no meaning"
            )


def loss_of(model: Any, x: Any, y: Any, sample_weight: Any) -> Objective:
    """The loss of the data that `fit` was given, in one batch or in shards."""
    if isinstance(x, tf.data.Dataset):
        check_end(x)
        if hasattr(model, "batch_of_shard") and len(list(x.take(2))) > 1:
            batches = map(keras.utils.unpack_x_y_sample_weight, x)
            x = Shards([_series_of_batch(*batch) for batch in batches], map)
    if isinstance(x, Shards):
        return ShardedObjective(model, x)
    return Objective(model, _one_batch(x, y, sample_weight))


def _series_of_batch(x: Any, y: Any, sample_weight: Any) -> Any:
    """The series of a batch of a dataset, which may have no targets beside them."""
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
        batch, *more = [*x.take(2)] or [None]
        if batch is None or more:
            raise ValueError(
                f"LBFGS needs all the data in one batch, and the dataset has "
                f"{'several' if more else 'none'}: batch it by its length"
            )
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
    """Minimises a loss, from `loss_of`, over the trainable variables of the model.

    The model is compiled with `LBFGS`; the first iteration is `initial_epoch`, the last `epochs`.
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
    optimizer.record_result(result)
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
        elif result.status != 1:  # "ABNORMAL", or a substitute for a loss: the line search failed
            why = "no step along the descent was found that lowers the loss"
        # Beside a wall, as with data that are all zero, a gradient says nothing.
        at = f", with a gradient of up to {slope:.3g}" if slope < _WALL else ""
        warnings.warn(
            f"L-BFGS stopped before convergence after {run.iterations} iterations{at}: {why}. "
            "The best parameters that it found are "
            f"{description(descent.trained)}",
            RuntimeWarning,
            stacklevel=4,
        )


class _Run:
    """A minimisation as a training: epochs, callbacks, validation and progress."""

    def __init__(
        self,
        model: Any,
        loss: Objective,
        callbacks: Any,
        progress: "_Progress",
        validation: Validation,
        initial_epoch: int,
    ) -> None:
        self.model, self.callbacks, self.progress = model, callbacks, progress
        self.validation, self.initial_epoch = validation, initial_epoch
        self.iterations, self.in_epoch = 0, False
        self.logs: dict = {}
        on_steps = self.begin_epoch, self._after_iteration
        self.descent = Descent(loss, trained(model), loss.start, *on_steps)

    def begin_epoch(self) -> None:
        if not self.in_epoch:
            self.in_epoch = True
            self.callbacks.on_epoch_begin(self.initial_epoch + self.iterations)
            self.callbacks.on_train_batch_begin(0)

    def end_epoch(self, loss: float) -> None:
        epoch, self.logs = self.initial_epoch + self.iterations, {"loss": loss}
        self.iterations, self.in_epoch = self.iterations + 1, False
        self.callbacks.on_train_batch_end(0, self.logs)
        data, steps, freq = self.validation
        if data is not None and self.iterations % freq == 0:
            metrics = self.model.evaluate(data, steps=steps, verbose=0, return_dict=True)
            self.logs |= {f"val_{name}": v for name, v in metrics.items()}
        self.callbacks.on_epoch_end(epoch, self.logs)
        self.progress.update(self.iterations, self.logs)

    def _after_iteration(self, loss: float) -> bool:
        self.begin_epoch()
        self.end_epoch(loss)
        return bool(self.model.stop_training)


class _Progress:
    """A progress line that counts iterations, or a line for each iteration."""

    def __init__(self, verbose: int | str, cap: int | None) -> None:
        self.verbose, self.iterations, self.bar = verbose, 0, None
        self.logs: dict = {}
        if verbose in (1, "auto"):
            self.bar = keras.utils.Progbar(cap, unit_name="iteration", stateful_metrics=["loss"])

    def update(self, iteration: int, logs: dict) -> None:
        self.iterations, self.logs = iteration, dict(logs)
        if self.bar is not None:
            self.bar.stateful_metrics |= set(logs)  # values, not averages over iterations
            self.bar.update(iteration, list(logs.items()), finalize=False)
        elif self.verbose:
            shown = " - ".join(f"{name}: {metric:.8g}" for name, metric in logs.items())
            print(f"Iteration {iteration} - {shown}")

    def close(self) -> None:
        if self.bar is not None and self.iterations:
            self.bar.target = self.iterations
            self.bar.update(self.iterations, list(self.logs.items()), finalize=True)


class Optimum(NamedTuple):
    """The end of a descent."""

    loss: float
    point: np.ndarray  # the trainable variables, one after the other, float64


def search(
    loss: Objective,
    candidates: Sequence[np.ndarray],
    count: int,
    optimizer: Any,
    *,
    cap: int | None = None,
    scale: np.ndarray | None = None,
    verbose: int | str = "auto",
) -> list[Optimum]:
    """Minimises a loss from its start and from the best of some candidates: `count` descents.

    A loss with many optima is evaluated at all candidates, which costs little beside a descent.

    `scale` is a direction in which the loss, per point, follows a normal density whose
    covariance is multiplied by eᵗ at distance t: candidates are moved to the best t, which is known
    in closed form.

    Returns:
        The optima, the best first; fewer than `count` where the loss has no value at candidates.
    """
    silent = 0 if where_watched(verbose) in (0, 2) else 1
    bar = keras.utils.Progbar(count, verbose=silent, unit_name="start", stateful_metrics=["loss"])
    starts = [loss.start, *_best_candidates(loss, candidates, count - 1, scale)]
    variables = trained(loss.model)
    optima: list[Optimum] = []
    for number, start in enumerate(starts):
        descent = _value_or_none(functools.partial(Descent, loss, variables, start))
        if descent is not None:
            descent.run(optimizer, cap)
            optima.append(Optimum(descent.value, descent.point))
            optima.sort(key=lambda optimum: optimum.loss)
        if optima:
            done = number + 1 == len(starts)
            bar.update(count if done else number + 1, [("loss", optima[0].loss)], finalize=done)
    return optima


def _best_candidates(
    loss: Objective, candidates: Sequence[np.ndarray], count: int, scale: np.ndarray | None
) -> list[np.ndarray]:
    """The `count` candidates of the lowest loss, the lowest first."""
    ranked = []
    for number, point in enumerate(candidates):
        evaluated = _value_or_none(functools.partial(loss, point))
        if evaluated is None or not np.all(np.isfinite([evaluated[0], *evaluated[1]])):
            continue
        value, gradient = evaluated
        if scale is not None:
            # The loss c + log s + q/s of a covariance times s is least at s = q, and its slope by
            # log s is 1 − q at s = 1.
            square = 1.0 - float(gradient @ scale)
            if square > 0:
                value += np.log(square) + 1.0 - square
                point = point + np.log(square) * scale
        ranked.append((value, number, point))
    return [point for _, _, point in sorted(ranked, key=lambda candidate: candidate[:2])[:count]]


def _value_or_none(function: Callable[[], Any]) -> Any:
    """The result of a function, or None where the loss has no value."""
    try:
        return function()
    except (tf.errors.InvalidArgumentError, ValueError) as error:
        if is_indefinite(error) or "must be finite" in str(error):
            return None
        raise
