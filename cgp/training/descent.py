"""One run of SciPy's L-BFGS-B from one start, past points where the loss has no value."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.training.constraints import POSITIVE
from cgp.training.divergence import Trained, is_indefinite
from cgp.training.objective import Objective
from cgp.training.optimizers import LBFGS

_NO_CAP = 15_000  # SciPy's own
_LONGEST = 10.0  # step in the log of a hyperparameter: a factor of 22,000
_FAR = 100.0  # what a loss per point loses from one start only if that is far from any optimum
_STEEPEST = 1e6  # rise or slope over the promised descent, beyond which no cubic fits a loss
_BOTTOMLESS = -1e6  # a loss per point that has no minimum, as it tends to minus infinity


class Descent:
    """A minimisation of a loss from a start, and the best point so far.

    SciPy sees the loss less its value at the start: convergence then depends neither on its level
    nor on the unit of the data, which adds a constant to a log likelihood. A start far from any
    optimum, beside whose loss all others look alike, is left behind first: SciPy starts again.

    Where the loss hardly depends on a hyperparameter, L-BFGS takes it far away, and others with it.
    A step that would multiply a positive one by more than 22,000 is shortened. So is one to where
    the loss or its slope is astronomical, as of a filter whose transition has become unstable: the
    cubic through it has its minimum so near the last iterate that SciPy sees convergence there.
    What stands in for the loss at such a point is that of no iterate: where rounding hides that it
    is no decrease, and SciPy accepts it, the descent ends at the iterate before.

    Args:
        loss: The loss.
        trained: The trainable variables of the model.
        start: Where it starts.
        before_evaluation: Called before each evaluation but the first.
        after_iteration: Called with the loss after each iteration; True to stop.

    Attributes:
        point: The last iterate, where the line search starts: the best point so far.
        value: The loss there.
        gradient: Its gradient there.
        first_value: The loss at the start.

    Raises:
        ValueError: The loss at the start, or its gradient, is not finite.
        InvalidArgumentError, NotPositiveDefiniteError: It has no value there.
    """

    def __init__(
        self,
        loss: Objective,
        trained: list[Trained],
        start: np.ndarray,
        before_evaluation: Callable[[], None] = lambda: None,
        after_iteration: Callable[[float], bool] = lambda value: False,
    ):
        self.loss, self.trained = loss, trained
        self.before_evaluation, self.after_iteration = before_evaluation, after_iteration
        self.point = start
        self.value, self.gradient = loss(self.point)
        if not _is_finite(self.value, self.gradient):
            parameters = {v.name: v.parameter for v in trained if v.parameter is not None}
            outside = [
                f"{name} = {parameter}"
                for name, parameter in parameters.items()
                if parameter.prior is not None
                and not np.isfinite(np.asarray(parameter.log_prior()))
            ]
            why = f": the prior of {', '.join(outside)} has no density there" if outside else ""
            raise ValueError(
                f"the loss at the initial variables is {self.value}, and must be finite, as must "
                f"its gradient{why}"
            )
        self.first_value = self._level = self.value
        self._is_stopped = False
        self._last = (self.point, self.value, self.gradient)
        self._is_substitute = False  # what `_last` has of its point
        in_logs = [
            v.parameter is not None and v.parameter.constraint.forward is POSITIVE.forward
            for v in trained
        ]
        self._in_logs = np.repeat(in_logs, [v.variable.shape.num_elements() for v in trained])
        steps = [v.parameter.step for v in trained if v.parameter is not None]
        self._largest_step = max([1.0, *(float(np.max(s)) for s in steps if s is not None)])

    def run(self, optimizer: LBFGS, cap: int | None) -> Any:
        """Minimises.

        Args:
            optimizer: Its tolerances.
            cap: The largest number of iterations, or None.

        Returns:
            SciPy's `OptimizeResult`.
        """
        from scipy import optimize  # here: importing it takes long

        left = _NO_CAP if cap is None else cap
        iterations = evaluations = 0
        while True:
            self._level = self.value
            options: Any = {
                "maxcor": optimizer.maxcor,
                "ftol": max(optimizer.ftol, 10 * self.loss.epsilon),
                "gtol": optimizer.gtol,
                "maxiter": left - iterations,
                "maxfun": 20 * _NO_CAP,
                "maxls": 30,
            }
            result = optimize.minimize(
                self._value_and_gradient,
                self.point,
                jac=True,
                method="L-BFGS-B",
                callback=self._on_iteration,
                options=options,
            )
            iterations, evaluations = iterations + result.nit, evaluations + result.nfev
            was_far = self._level - self.value >= _FAR and self.value > _BOTTOMLESS
            if not was_far or iterations >= left or self._is_stopped:
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
            found = None if self._is_far(point) else self._evaluated(point)
            self._is_substitute = found is None or self._is_steep(point, *found)
            if found is None or self._is_substitute:
                found = self._retreat(point)
            self._last = (point.copy(), *found)
        _, value, gradient = self._last
        return value - self._level, gradient

    def _is_far(self, point: np.ndarray) -> bool:
        """Whether a step from the last iterate multiplies a hyperparameter by too much."""
        return bool(np.any(np.abs(point - self.point)[self._in_logs] > _LONGEST))

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
        if np.max(np.abs(point)) * self._largest_step < 80.0:
            return False
        return any(v.is_lost() for v in self.trained)

    def _is_steep(self, point: np.ndarray, value: float, gradient: np.ndarray) -> bool:
        """Whether loss or slope at a point are beyond what a cubic from the last iterate fits."""
        slope = abs(float(gradient @ (point - self.point)))
        # Close to the optimum less is promised than the loss is rounded by: that rise is no wall.
        rounding = self.loss.epsilon * max(1.0, abs(self.value))
        return max(value - self.value, slope) > _STEEPEST * max(self._promised(point), rounding)

    def _promised(self, point: np.ndarray) -> float:
        """What the slope at the last iterate says that the loss falls by on the way to a point."""
        return max(-float(self.gradient @ (point - self.point)), float(np.finfo(float).tiny))

    def _retreat(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """Returns a substitute where there is no loss, or the step is too long: it turns back.

        Value and slope are those of the parabola that has the value and slope of the last iterate
        there, and its minimum at a quarter of the step: SciPy interpolates, and tries that point.
        """
        step, descent = point - self.point, self._promised(point)
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


def _is_finite(value: float, gradient: np.ndarray) -> bool:
    return bool(np.isfinite(value) and np.all(np.isfinite(gradient)))
