"""A step of the filter of a nonlinear model: functions by graphs, algebra by the compiled core."""

from typing import NamedTuple

import numpy as np

from cgp.distributions.marginals import Marginals
from cgp.statespace.engines.filter_step import State
from cgp.statespace.linearization.affine_functions import AffineFunctions
from cgp.statespace.linearization.rules import Affine, Rule
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian
from cgp.statespace.native_step import CompiledStep, StepMatrices


class StepResult(NamedTuple):
    """The results of a step of B streams."""

    predicted: Marginals  # Of the observation before it was seen, as users see it
    filtered: Marginals  # Of the state after it
    observation: Affine  # The function h as the update took it, working values, batch last
    transition: Affine  # The function f as the prediction took it


class NonlinearStep:
    """A step of B streams of a nonlinear model, whose noise stays the same unless it is set.

    The update takes h at the state before the observation, or where the rule is iterated at the
    state after it; the prediction takes f at the state after it.

    Args:
        model: The model; its functions, sizes and forms count.
        rule: The rule by which the functions are made affine.
        Q_factor: A factor of the covariance of the process noise, working values, `[n, q, B]`, or
            with a batch axis of 1.
        R: The covariance of the observation noise, `[m, m, B]`, likewise.
        streams: B, or None for one stream without a batch axis.
        takes_working: Whether observations and moments are working values rather than users'.
    """

    def __init__(
        self,
        model: NonlinearGaussian,
        rule: Rule,
        Q_factor: np.ndarray,
        R: np.ndarray,
        streams: int | None,
        takes_working: bool = False,
    ):
        self._functions: AffineFunctions = model.kept(
            (AffineFunctions, rule), lambda: AffineFunctions(model, rule)
        )
        self._rule, self._streams = rule, streams
        self._noise = {"Q_factor": Q_factor, "R": R}
        n, m, dtype = len(Q_factor), len(R), R.dtype
        self._joins_observations, joins_states = (
            form.multiplicity > 1 and not takes_working
            for form in (model.observation_form, model.form)
        )
        # Each of these does one half of a step, and leaves the state alone in the other: by no
        # transition and no process noise, or by the state itself as an observation that is missing.
        eye, zeros = np.eye(n, dtype=dtype)[..., None], np.zeros([n, n, 1], dtype)
        update = StepMatrices(eye, zeros[:, :0], np.zeros([m, n, 1], dtype), R)
        self._update = CompiledStep(update, streams, self._joins_observations)
        self._predict = CompiledStep(
            StepMatrices(eye, Q_factor, eye, zeros), streams, is_composite=joins_states
        )
        size, absent = (n // 2, complex(np.nan, np.nan)) if joins_states else (n, np.nan)
        self._missing = np.full([size] if streams is None else [streams, size], absent)
        self._next: tuple[bytes, Affine] | None = None  # a predicted mean, and h there

    def set(self, **noise: np.ndarray) -> None:
        """Replaces `Q_factor` or `R`."""
        self._noise |= noise
        if "R" in noise:
            self._update.set(R=noise["R"])
        if "Q_factor" in noise:
            self._predict.set(Q_factor=noise["Q_factor"])

    def __call__(
        self, z: np.ndarray, mean: np.ndarray, chol: np.ndarray, inputs: np.ndarray | None = None
    ) -> StepResult | None:
        """Takes one observation of each stream, `[M]` or `[B, M]`, and replaces the state in place.

        Args:
            z: The observations, NaN where missing.
            mean: The mean predicted for them, working values, `[n, B]`, contiguous.
            chol: The factor of its covariance, `[n, n, B]`, contiguous.
            inputs: Known inputs, working values, `[k, B]`; None for a model without inputs.

        Returns:
            The moments and the affine functions; None, and the state is unchanged, where it or a
            moment would not be finite.
        """
        before = State(mean, chol)
        observation = self._observation(before, inputs)
        after, predicted = self._updated(before, z, observation)
        point = before
        for _ in range(self._rule.iterations):
            point = State(after.mean + self._rule.damping * (point.mean - after.mean), after.chol)
            observation = self._functions.observation(point, inputs)
            after, predicted = self._updated(before, z, observation)
        if predicted is None:
            return None
        ahead = self._functions.next_step(after)
        transition = ahead.transition if ahead else self._functions.transition(after, inputs)
        filtered = self._predicted(after, transition)
        if filtered is None:
            return None
        np.copyto(mean, after.mean)
        np.copyto(chol, after.chol)
        self._next = (mean.tobytes(), ahead.observation) if ahead else None
        return StepResult(predicted, filtered, observation, transition)

    def _observation(self, state: State, inputs: np.ndarray | None) -> Affine:
        """h at the state before an observation; mostly the last step has computed it already."""
        if self._next is not None and self._next[0] == state.mean.tobytes():
            return self._next[1]
        return self._functions.observation(state, inputs)

    def _updated(
        self, before: State, z: np.ndarray, observation: Affine
    ) -> tuple[State, Marginals | None]:
        """The state after an observation, and the prediction of it; None if it is not finite."""
        after = State(before.mean.copy(), before.chol.copy())
        self._update.set(H=observation.matrix)
        if observation.residual is not None:
            self._update.set(R=self._noise["R"] + _square(observation.residual))
        offset = observation.offset
        if self._joins_observations:
            real, imaginary = np.split(offset, 2)
            offset = real + 1j * imaginary
        offset = offset[:, 0] if self._streams is None else np.moveaxis(offset, -1, 0)
        moments = self._update(z - offset, *after)
        if moments is None:
            return after, None
        predicted = moments[0]
        return after, predicted._replace(mean=predicted.mean + offset)

    def _predicted(self, after: State, transition: Affine) -> Marginals | None:
        """Leads a state to the next observation in place; its moments before, None as above."""
        if transition.residual is not None:
            spread = self._noise["Q_factor"]
            shape = (*spread.shape[:-1], transition.residual.shape[-1])
            spread = np.concatenate([np.broadcast_to(spread, shape), transition.residual], axis=1)
            self._predict.set(Q_factor=spread)
        self._predict.set(F=transition.matrix, drift=transition.offset)
        moments = self._predict(self._missing, *after)
        return None if moments is None else moments[0]


def _square(factor: np.ndarray) -> np.ndarray:
    """The covariance `E Eᴴ` of a factor, `[m, k, B]`."""
    return np.einsum("ikb,jkb->ijb", factor, np.conj(factor), order="C")
