"""A step of the filter of a nonlinear model: functions by graphs, algebra by the compiled core."""

from typing import NamedTuple

import numpy as np

from cgp.distributions.marginals import Marginals
from cgp.statespace.engines.filter_step import State
from cgp.statespace.linearization.affine_functions import AffineFunctions
from cgp.statespace.linearization.rules import Affine, Rule
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian
from cgp.statespace.native_step import CompiledStep, StepMatrices, StepMoments


class StepResult(NamedTuple):
    """The results of a step of B streams."""

    moments: StepMoments  # Of the observation before it was seen, and of the state after it
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
        n, m, count, dtype = len(Q_factor), len(R), streams or 1, R.dtype
        self._joins_observations, joins_states = (
            form.multiplicity > 1 and not takes_working
            for form in (model.observation_form, model.form)
        )
        # The core is told once where these are.
        self._state = State(np.zeros([n, count], dtype), np.zeros([n, n, count], dtype))
        self._H, self._F = (np.zeros([rows, n, count], dtype) for rows in (m, n))
        self._drift = np.zeros([n, count], dtype)
        # Each of these does one half of a step, and leaves the state alone in the other: by no
        # transition and no process noise, or by the state itself as an observation that is missing.
        eye, zeros = np.eye(n, dtype=dtype)[..., None], np.zeros([n, n, 1], dtype)
        update = StepMatrices(eye, zeros[:, :0], self._H, R)
        self._update = CompiledStep(update, streams, self._joins_observations)
        prediction = StepMatrices(self._F, Q_factor, eye, zeros)
        self._predict = CompiledStep(prediction, streams, joins_states)
        self._predict.set(drift=self._drift)
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
            mean: The mean predicted for them, working values, `[n, B]`.
            chol: The factor of its covariance, `[n, n, B]`.
            inputs: Known inputs, working values, `[k, B]`; None for a model without inputs.

        Returns:
            The moments and the affine functions; None, and the state is unchanged, where it or a
            moment would not be finite.
        """
        with np.errstate(invalid="ignore", over="ignore"):  # the result tells
            return self._taken(z, State(mean, chol), inputs)

    def _taken(self, z: np.ndarray, before: State, inputs: np.ndarray | None) -> StepResult | None:
        after = self._state
        observation = self._observation(before, inputs)
        moments = self._updated(before, z, observation)
        point = before
        for _ in range(self._rule.iterations):
            shift = self._rule.damping * (point.mean - after.mean)
            point = State(after.mean + shift, after.chol.copy())
            observation = self._functions.observation(point, inputs)
            moments = self._updated(before, z, observation)
        if moments is None:
            return None
        ahead = self._functions.next_step(after.mean)
        transition = ahead.transition if ahead else self._functions.transition(after, inputs)
        filtered = self._predicted(transition)
        if filtered is None:
            return None
        before.mean[...], before.chol[...] = after
        self._next = (after.mean.tobytes(), ahead.observation) if ahead else None
        moments = StepMoments(moments.predicted, filtered.predicted, moments.joint)
        return StepResult(moments, observation, transition)

    def _observation(self, state: State, inputs: np.ndarray | None) -> Affine:
        """The function h at the state before an observation, unless the last step computed it."""
        if self._next is not None and self._next[0] == state.mean.tobytes():
            return self._next[1]
        return self._functions.observation(state, inputs)

    def _updated(self, before: State, z: np.ndarray, observation: Affine) -> StepMoments | None:
        """Updates a state; the prediction of the observation, or None if it is not finite."""
        self._state.mean[...], self._state.chol[...] = before
        self._H[...] = observation.matrix
        if observation.residual is not None:
            self._update.set(R=self._noise["R"] + _square(observation.residual))
        offset = observation.offset
        if self._joins_observations:
            real, imaginary = np.split(offset, 2)
            offset = real + 1j * imaginary
        offset = offset[:, 0] if self._streams is None else np.moveaxis(offset, -1, 0)
        moments = self._update(z - offset, *self._state)
        if moments is None:
            return None
        (mean, *variances), filtered, joint = moments
        return StepMoments(Marginals(mean + offset, *variances), filtered, joint)

    def _predicted(self, transition: Affine) -> StepMoments | None:
        """Leads the state to the next observation; `predicted` are its moments before that."""
        if transition.residual is not None:
            spread = self._noise["Q_factor"]
            shape = (*spread.shape[:-1], transition.residual.shape[-1])
            spread = np.concatenate([np.broadcast_to(spread, shape), transition.residual], axis=1)
            self._predict.set(Q_factor=np.ascontiguousarray(spread))
        self._F[...], self._drift[...] = transition.matrix, transition.offset
        return self._predict(self._missing, *self._state)


def _square(factor: np.ndarray) -> np.ndarray:
    """The covariance `E Eᴴ` of a factor, `[m, k, B]`."""
    return np.einsum("ikb,jkb->ijb", factor, np.conj(factor), order="C")


class SeriesNoise(NamedTuple):
    """Noise and observations of a series, working values; T and B are 1 where nothing varies."""

    Q_factor: np.ndarray  # `[T, n, q, B]`
    R: np.ndarray  # `[T, m, m, B]`
    z: np.ndarray  # `[T, m, B]`, NaN where missing
    inputs: np.ndarray | None  # `[T, k, B]`; None for a model without inputs


class AlongSeries(NamedTuple):
    """The states predicted along a series, and the affine functions, stacked over time."""

    states: State
    transition: Affine
    observation: Affine


def along_series(
    model: NonlinearGaussian, rule: Rule, noise: SeriesNoise, start: State
) -> AlongSeries | None:
    """Filters a series of each of B streams step by step; None where a state is not finite.

    Args:
        model: The model.
        rule: The rule.
        noise: Noise and observations.
        start: The moments before the first observation, `[n, B]` and `[n, n, B]`.

    Returns:
        NumPy arrays, `[T, …, B]`.
    """
    steps, _, count = noise.z.shape
    z = noise.z[..., 0] if count == 1 else np.moveaxis(noise.z, -1, 1)
    varying = {
        name: getattr(noise, name) for name in ("Q_factor", "R") if len(getattr(noise, name)) > 1
    }
    streams = None if count == 1 else count
    step = NonlinearStep(model, rule, noise.Q_factor[0], noise.R[0], streams, takes_working=True)
    inputs, mean, chol = noise.inputs, start.mean.copy(), start.chol.copy()
    states, transitions, observations = [], [], []
    for t in range(steps):
        step.set(**{name: np.ascontiguousarray(a[t]) for name, a in varying.items()})
        drive = None if inputs is None else inputs[min(t, len(inputs) - 1)]
        states.append(State(mean.copy(), chol.copy()))
        result = step(z[t], mean, chol, drive)
        if result is None:
            return None
        transitions.append(result.transition)
        observations.append(result.observation)
    return AlongSeries(
        State(*map(np.stack, zip(*states, strict=True))),
        _stacked(transitions),
        _stacked(observations),
    )


def _stacked(steps: list[Affine]) -> Affine:
    """The approximations of each step, with an axis of time first."""
    matrix, offset, residual = zip(*steps, strict=True)
    return Affine(
        np.stack(matrix), np.stack(offset), None if residual[0] is None else np.stack(residual)
    )
