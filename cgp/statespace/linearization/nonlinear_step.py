"""A step of the filter of a nonlinear model: functions by graphs, algebra by the compiled core.

Rules linearise functions of tensors. Here they do so in graphs that are traced once, without XLA,
and are called with NumPy arrays: a series or a stream begins within a fraction of a second,
whatever the number of observations.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.distributions.marginals import Marginals
from cgp.graphs import called_as_op
from cgp.statespace.engines.filter_step import State
from cgp.statespace.linearization.rules import Affine, Iterated, Rule, Taylor, expansion
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian
from cgp.statespace.native_step import CompiledStep, StepMatrices, StepMoments


class NextStep(NamedTuple):
    """Both functions on the way from a state after an observation to the next observation."""

    transition: Affine  # Of the state after the observation
    observation: Affine  # Of the state that this transition predicts


class AffineFunctions:
    """The functions of a model, made affine by a rule, as functions of NumPy arrays.

    States are working values, `[n, B]` and `[n, n, B]`; so are inputs, `[k, B]`, None for a model
    without inputs. Results are arrays of `[…, B]`, not contiguous.
    """

    def __init__(self, model: NonlinearGaussian, rule: Rule):
        self._model, self._rule = model, rule.rule if isinstance(rule, Iterated) else rule
        # A subclass may expand otherwise.
        self._expands = type(self._rule) is Taylor
        self._graphs: dict[tuple, _Graph] = {}

    def transition(self, state: State, inputs: np.ndarray | None) -> Affine:
        """The transition at the moments of a state."""
        return self._at("transition", state, inputs)

    def observation(self, state: State, inputs: np.ndarray | None) -> Affine:
        """The observation at the moments of a state."""
        return self._at("observation", state, inputs)

    def next_step(self, mean: np.ndarray) -> NextStep | None:
        """The expansions of the transition at a mean, and of the observation at its value there.

        One call takes little more time than each of two. It needs functions without inputs or
        variables, expanded by Taylor's rule: None for others, whose next observation is not
        determined yet.
        """
        if not self._expands or self._model.input_size:
            return None
        graph = self._graph("next step", self._expand_both, (mean,))
        if graph.reads_variables:
            return None
        n, rows = len(mean), graph(mean)
        transition, observation = rows[:n], rows[n:]
        return NextStep(_affine(transition, mean), _affine(observation, transition[:, 0]))

    def _at(self, name: str, state: State, inputs: np.ndarray | None) -> Affine:
        make = self._expand if self._expands else self._linearize
        arrays = (state.mean,) if self._expands else tuple(state)
        if inputs is not None:
            arrays = (*arrays, inputs)
        graph = self._graph(name, lambda *tensors: make(name, *tensors), arrays)
        if self._expands:
            return _affine(graph(*arrays), state.mean)
        rows, n = graph(*arrays), len(state.mean)
        residual = rows[:, 1 + n :] if rows.shape[1] > 1 + n else None
        return Affine(rows[:, 1 : 1 + n], rows[:, 0], residual)

    def _graph(
        self, name: str, function: Callable[..., tf.Tensor], arrays: Sequence[np.ndarray]
    ) -> "_Graph":
        """The graph of a function, for as many streams as there are."""
        key = (name, arrays[0].shape[-1])
        if key not in self._graphs:
            self._graphs[key] = _Graph(function, arrays)
        return self._graphs[key]

    # --- inside graphs ---------------------------------------------------------------------------

    def _expand(self, name: str, mean: tf.Tensor, inputs: tf.Tensor | None = None) -> tf.Tensor:
        """Value and derivative side by side, `[m, 1 + n, B]`."""
        function = self._model.working(name, None if inputs is None else _swapped(inputs))
        return _side_by_side(*expansion(function, _swapped(mean)))

    def _expand_both(self, mean: tf.Tensor) -> tf.Tensor:
        """The rows of the transition, and below them those of the observation."""
        points = _swapped(mean)
        value, derivative = expansion(self._model.working("transition", None), points)
        observation = expansion(self._model.working("observation", None), value)
        rows = [_side_by_side(value, derivative), _side_by_side(*observation)]
        return tf.concat(rows, axis=0)

    def _linearize(
        self, name: str, mean: tf.Tensor, chol: tf.Tensor, inputs: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Offset, matrix and residual side by side, `[m, 1 + n + k, B]`."""
        function = self._model.working(name, None if inputs is None else _swapped(inputs))

        def of_batch_last(points: tf.Tensor) -> tf.Tensor:
            return tf.einsum("bkm->mkb", function(tf.einsum("nkb->bkn", points)))

        affine = self._rule.linearize(of_batch_last, State(mean, chol))
        arrays = [a for a in (affine.offset[:, None], *affine[::2]) if a is not None]
        shapes = [[*a.shape[:-1], mean.shape[-1]] for a in arrays]
        return tf.concat(list(map(tf.broadcast_to, arrays, shapes)), axis=1)


class _Graph:
    """A graph of arrays of fixed shapes."""

    def __init__(self, function: Callable[..., tf.Tensor], arrays: Sequence[np.ndarray]):
        signature = [tf.TensorSpec(a.shape, a.dtype) for a in arrays]
        graph = tf.function(function, input_signature=signature, autograph=False)
        concrete = graph.get_concrete_function()
        self._call = called_as_op(concrete)
        self.reads_variables = any(
            op.op_def is not None and op.op_def.is_stateful and op.type != "Placeholder"
            for op in concrete.graph.get_operations()
        )
        """Whether the same arrays may give another result later."""

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        [result] = self._call(*arrays)
        return result.numpy()


def _swapped(a: tf.Tensor) -> tf.Tensor:
    """The batch axis of vectors first, `[n, B]` -> `[B, n]`; for one stream without a copy."""
    if a.shape[-1] == 1:
        return tf.reshape(a, [1, -1])
    return tf.linalg.matrix_transpose(a)  # axes are moved: there is nothing to conjugate


def _side_by_side(value: tf.Tensor, derivative: tf.Tensor) -> tf.Tensor:
    """Values `[B, m]` and derivatives `[B, m, n]` with the batch axis last, `[m, 1 + n, B]`."""
    rows = tf.concat([tf.expand_dims(value, -1), derivative], axis=-1)
    if rows.shape[0] == 1:
        return tf.reshape(rows, [*rows.shape[1:], 1])
    return tf.einsum("bmk->mkb", rows)


def _affine(rows: np.ndarray, mean: np.ndarray) -> Affine:
    """The expansion of value and derivative, `[m, 1 + n, B]`, at a mean, `[n, B]`."""
    value, derivative = rows[:, 0], rows[:, 1:]
    if mean.shape[1] == 1:  # a product takes half the time of a sum
        return Affine(derivative, value - derivative[..., 0] @ mean, None)
    return Affine(derivative, value - (derivative * mean).sum(axis=1), None)


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
            return self._updated_and_predicted(z, State(mean, chol), inputs)

    def _updated_and_predicted(
        self, z: np.ndarray, prior: State, inputs: np.ndarray | None
    ) -> StepResult | None:
        posterior = self._state
        observation = self._observation(prior, inputs)
        moments = self._updated(prior, z, observation)
        point = prior
        for _ in range(self._rule.iterations):
            shift = self._rule.damping * (point.mean - posterior.mean)
            point = State(posterior.mean + shift, posterior.chol.copy())
            observation = self._functions.observation(point, inputs)
            moments = self._updated(prior, z, observation)
        if moments is None:
            return None
        ahead = self._functions.next_step(posterior.mean)
        transition = ahead.transition if ahead else self._functions.transition(posterior, inputs)
        filtered = self._predicted(transition)
        if filtered is None:
            return None
        prior.mean[...], prior.chol[...] = posterior
        self._next = (posterior.mean.tobytes(), ahead.observation) if ahead else None
        moments = StepMoments(moments.predicted, filtered.predicted, moments.joint)
        return StepResult(moments, observation, transition)

    def _observation(self, state: State, inputs: np.ndarray | None) -> Affine:
        """The function h at the state before an observation, unless the last step computed it."""
        if self._next is not None and self._next[0] == state.mean.tobytes():
            return self._next[1]
        return self._functions.observation(state, inputs)

    def _updated(self, prior: State, z: np.ndarray, observation: Affine) -> StepMoments | None:
        """Updates a state; the prediction of the observation, or None if it is not finite."""
        self._state.mean[...], self._state.chol[...] = prior
        self._H[...] = observation.matrix
        if observation.residual is not None:
            self._update.set(R=self._noise["R"] + _square(observation.residual))
        offset = observation.offset
        if not np.isfinite(offset).all():  # else the observation would count as missing
            return None
        if self._joins_observations:
            half = len(offset) // 2
            offset = offset[:half] + 1j * offset[half:]
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
