"""A step of a filter that linearises, and its recursion over a series, with a gradient.

The states along a series are found one after the other, by loops that XLA compiles; then all steps
are linearised at once, in one batch over time, which is where gradients pass. A gradient by the
states themselves goes back through the series in the same loops: `u[t] = v[t] + J[t]ᴴ u[t+1]`, with
J the derivative of a step by the state before it, adds to the gradient v by each state the part
from the states after it.
"""

import math
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf

from cgp import native
from cgp.distributions.forms import Form, ProperForm
from cgp.likelihoods.base import Likelihood
from cgp.linalg.arguments import nan
from cgp.linalg.batch_last import with_factor_gradient
from cgp.linalg.gradients import without_gradient, without_warnings_of_casts
from cgp.statespace.compiled import CompiledByShape, graph_of, time_loop
from cgp.statespace.engines.backward_pass import ONCE
from cgp.statespace.engines.chunked_engine import Chunks
from cgp.statespace.engines.filter_step import State, at, predict
from cgp.statespace.linearization.likelihood_update import (
    MOST_TURNS,
    Measured,
    Measurement,
    StepSites,
    accuracy,
    updated_by,
)
from cgp.statespace.linearization.native_sites import LinearSystem, SitesAlongFilter, turns_of
from cgp.statespace.linearization.nonlinear_step import AlongSeries, SeriesNoise, along_series
from cgp.statespace.linearization.rules import Affine, Rule
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian
from cgp.tensorflow_private import is_recorded

# A loop over a series with a likelihood is compiled after so many filters by the core, of so many
# steps each.
_FILTERS = 1000
_STEPS_OF_FILTER = 1000

# A loop over a series is compiled once functions have been evaluated this often for each component
# of an observation: as long as that takes, and as long as the loop takes to compile.
_EVALUATIONS = 4000


class StepSystem(NamedTuple):
    """Noise and observations of each step, working values; T and B are 1 where nothing varies."""

    Q: tf.Tensor  # `[T, n, n, B]`; gradients flow to it
    Q_factor: tf.Tensor  # `[T, n, q, B]`; computations use it
    R: tf.Tensor  # `[T, m, m, B]`
    z: tf.Tensor  # `[T, m, B]`; any finite number where missing
    observed: tf.Tensor  # Real, `[T, m, B]`: 1, or 0 where missing
    inputs: tf.Tensor  # `[T, k, B]`, with k = 0 if there are none
    F: tf.Tensor
    """The transition of a linear model, `[T, n, n, B]`; zero for others, as the following."""
    b: tf.Tensor  # The drift that is added to F x, known inputs included, `[T, n, B]`
    H: tf.Tensor  # `[T, m, n, B]`
    d: tf.Tensor  # The offset that is added to H x, `[T, m, B]`

    @property
    def measurement(self) -> Measurement:
        """The observation."""
        return Measurement(self.z, self.R, self.observed)


class Linearized(NamedTuple):
    """The approximations of both functions, at one step or stacked over time."""

    transition: Affine
    observation: Affine
    measured: Measured | None = None
    """The normal observation in place of one with a likelihood; None for the observation itself."""


class _Turns(NamedTuple):
    """The state and the sites after some iterations of the loop in which they come to agree."""

    count: tf.Tensor
    point: State
    log_likelihood: tf.Tensor  # The log likelihood of the sites, real, `[B]`
    measured: Measured


class Stepper:
    """The steps of a model by a rule, both None for a linear one with the matrices of `StepSystem`.

    The likelihood is None for normal observations.
    """

    def __init__(
        self,
        model: NonlinearGaussian | None,
        rule: Rule | None = None,
        likelihood: Likelihood | None = None,
        form: Form | None = None,
    ):
        self.model, self.rule = model, rule
        self.iterations = 0 if rule is None else rule.iterations
        self.damping = 0.0 if rule is None else rule.damping
        self._likelihood, self._form = likelihood, form or ProperForm()
        self._sites = None if likelihood is None else StepSites(likelihood, self._form)
        self._at_once = graph_of(self._at_all)
        self._all_steps = graph_of(self._every_step)
        self._evaluations = 0  # of functions, in steps by the core
        self._filters = 0  # by the core, in turns with the sites of a likelihood

    @cached_property
    def _compiled_forward(self) -> Callable[..., Any]:
        return self._compiled(self._forward)

    @cached_property
    def _compiled_backward(self) -> Callable[..., Any]:
        return self._compiled(self._backward)

    def _compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A loop as a graph, which XLA compiles if it can compile the functions of the model."""
        is_compilable = self.model is None or self.model.is_compilable
        return CompiledByShape(function) if is_compilable else graph_of(function)

    def _is_for_core(self, system: StepSystem) -> bool:
        """Whether to take the steps of a series one by one, by the compiled core.

        This takes two to eight times as long as a loop that XLA has compiled, which takes seconds,
        with many components a minute. It is compiled once that would have paid.
        """
        model, has_likelihood = self.model, self._sites is not None
        if model is None or has_likelihood or not native.serves(system.z, system.R):
            return False
        if model.jit_compile is not None:
            return not model.jit_compile
        steps, components = system.z.shape[:2]
        if steps == 1:
            return True
        self._evaluations += steps * (1 + self.iterations)
        return self._evaluations <= _EVALUATIONS * components or not model.is_compilable

    def _by_core(self, system: StepSystem, start: State) -> AlongSeries | None:
        """The states along a series, and the affine functions there; None if one is not finite."""
        Q_factor, R, z, observed, inputs = (
            getattr(system, name).numpy() for name in ("Q_factor", "R", "z", "observed", "inputs")
        )
        z = np.where(observed > 0.0, z, nan(system.z.dtype))
        noise = SeriesNoise(Q_factor, R, z, inputs if inputs.shape[1] else None)
        start = State(*(a.numpy() for a in start))
        model, rule = cast("NonlinearGaussian", self.model), cast("Rule", self.rule)
        return along_series(model, rule, noise, start)

    def _sites_by_core(self, system: StepSystem, start: State) -> Measured | None:
        """The sites along the filter of a linear model, without gradient, by the compiled core.

        None where it does not serve. This takes longer than a loop that XLA has compiled, which
        takes seconds: the loop is compiled once that would have paid.
        """
        likelihood, paid = self._likelihood, self._filters >= _FILTERS
        if self.model is not None or likelihood is None or paid or is_recorded():
            return None
        if not native.serves(system.z, system.R):
            return None
        steps, components, series = system.z.shape
        turns = turns_of(likelihood, self._form.multiplicity, components, system.z.dtype)
        matrices = LinearSystem(*(getattr(system, a).numpy() for a in LinearSystem._fields))
        measurement = Measurement(*(a.numpy() for a in system.measurement))
        state = State(*(a.numpy() for a in start))
        along = SitesAlongFilter(turns, matrices, measurement, state)
        measured = along.measured()
        self._filters += along.filters * math.ceil(steps * series / _STEPS_OF_FILTER)
        return measured

    def _affine(self, name: str, system: StepSystem, state: State) -> Affine:
        """A function as an affine one of a state."""
        if self.model is None or self.rule is None:
            affine = (system.F, system.b) if name == "transition" else (system.H, system.d)
            return Affine(*affine, None)
        function = self.model.working(name, tf.einsum("kb->bk", system.inputs))

        def of_batch_last(points: tf.Tensor) -> tf.Tensor:
            return tf.einsum("bkm->mkb", function(tf.einsum("nkb->bkn", points)))

        return self.rule.linearize(of_batch_last, state)

    def along(self, system: StepSystem, start: State) -> Linearized:
        """Linearises along the filter of a series, `[T, …, B]`."""
        by_core = self._by_core(system, start) if self._is_for_core(system) else None
        if by_core is not None and not is_recorded():
            return Linearized(_tensors(by_core.transition), _tensors(by_core.observation))
        measured = self._sites_by_core(system, start)
        if measured is not None:
            affine = Affine(system.F, system.b, None), Affine(system.H, system.d, None)
            return Linearized(*affine, measured)
        every = self._all_steps if tf.executing_eagerly() else self._every_step
        if system.z.shape[0] == 1:
            return every(system, State(*(a[None] for a in start)))[1]
        constant = StepSystem(*map(tf.stop_gradient, system))
        if by_core is None:
            states = self._states(constant, State(*map(tf.stop_gradient, start)))
        else:
            states = State(*map(tf.constant, by_core.states))

        def pull(by_states: State) -> State:
            return self._pulled(constant, states, by_states)

        # The states once more, as functions of their inputs, each of the state before it.
        following, _ = every(system, states)
        shifted = State(
            *(tf.concat([a[None], b[:-1]], axis=0) for a, b in zip(start, following, strict=True))
        )
        _, linearized = every(system, _linked(states, shifted, pull))
        return linearized

    def at_states(
        self, system: StepSystem, states: State, last: Linearized, turn: tf.Tensor
    ) -> Linearized:
        """Linearises at states of known moments, `[T, …, B]`, after some turns.

        The functions of the last approximation are kept unless the rule is iterated.
        """
        at_once = self._at_once if tf.executing_eagerly() else self._at_all
        return at_once(system, states, last, turn)

    def _at_all(
        self, system: StepSystem, states: State, last: Linearized, turn: tf.Tensor
    ) -> Linearized:
        steps, columns = tf.shape(states.mean)[0], tf.shape(states.mean)[-1]
        system, state, last = _by_column((system, states, last), steps, columns)
        transition, observation, measured = last
        if self.iterations:
            transition = self._affine("transition", system, state)
            observation = self._affine("observation", system, state)
        if self._sites is not None and measured is not None:
            measured = self._sites.renewed(observation, system.measurement, state, measured, turn)
        return _by_time(Linearized(transition, observation, measured), steps, columns)

    # --- one step --------------------------------------------------------------------------------

    def step(self, system: StepSystem, state: State) -> tuple[State, Linearized]:
        """The state predicted next, and the approximations of the functions on the way."""
        after, _, observation, measured = self._updated(system, state)
        following, transition = self.predicted(system, after)
        return following, Linearized(transition, observation, measured)

    def updated(self, system: StepSystem, state: State) -> tuple[State, tf.Tensor, Affine]:
        """The state after the observation of a step, its log likelihood, and h linearised."""
        return self._updated(system, state)[:3]

    def _updated(
        self, system: StepSystem, state: State
    ) -> tuple[State, tf.Tensor, Affine, Measured | None]:
        """`updated`, and the normal observation in place of one with a likelihood."""
        sites, first = self._sites, self._affine("observation", system, state)
        if sites is None:
            return *self._iterated(system, state, first), None
        measurement = system.measurement

        def observation_at(point: State) -> Affine:
            return self._affine("observation", system, point) if self.iterations else first

        def again(turns: _Turns) -> tuple[_Turns]:
            observation = observation_at(turns.point)
            measured = sites.renewed(
                observation, measurement, turns.point, turns.measured, turns.count
            )
            if sites.start_from_noise:  # the first turn finds the posterior of normal noise
                alternatives = (measured, turns.measured)
                measured = tf.nest.map_structure(partial(tf.where, turns.count > 0), *alternatives)
            after, log_likelihood = sites.updated(observation, measured, measurement, state)
            mean = after.mean + self.damping * (turns.point.mean - after.mean)
            point = State(mean, after.chol)
            return (_Turns(turns.count + 1, point, log_likelihood, measured),)

        def goes_on(turns: _Turns) -> tf.Tensor:
            change = tf.reduce_max(turns.measured.change)
            return (turns.count < self.iterations) | (change > accuracy(change.dtype))

        start = sites.first(first, measurement, state)
        turns = _Turns(tf.constant(0), state, tf.zeros_like(start.change), start)
        (turns,) = tf.while_loop(goes_on, again, (turns,), maximum_iterations=MOST_TURNS)
        after, log_likelihood, observation = turns.point, turns.log_likelihood, first
        if self.iterations:
            observation = observation_at(after)
            update = (observation, turns.measured, measurement, state)
            after, log_likelihood = sites.updated(*update)
        completed = sites.completed(observation, measurement, after, turns.measured)
        return after, log_likelihood + completed.correction, observation, completed

    def _iterated(
        self, system: StepSystem, state: State, first: Affine
    ) -> tuple[State, tf.Tensor, Affine]:
        """`updated` where noise is normal, from the first linearisation."""
        measurement = system.measurement

        def again(i: tf.Tensor, point: State) -> tuple[tf.Tensor, State]:
            after, _ = updated_by(self._affine("observation", system, point), measurement, state)
            mean = after.mean + self.damping * (point.mean - after.mean)
            return i + 1, State(mean, after.chol)

        observation = first
        if self.iterations:
            loop = (lambda *_: True, again, (0, state))
            _, point = tf.while_loop(*loop, maximum_iterations=self.iterations)
            observation = self._affine("observation", system, point)
        return *updated_by(observation, measurement, state), observation

    def predicted(self, system: StepSystem, after: State) -> tuple[State, Affine]:
        """The state predicted from the state after the observation, and f linearised."""
        transition = self._affine("transition", system, after)
        spread = tf.stop_gradient(system.Q_factor)
        if transition.residual is not None:
            wide = spread + tf.zeros_like(after.mean[None, :1])
            spread = tf.concat([wide, transition.residual], axis=1)
        mean, chol = predict(after, transition.matrix, spread, transition.offset)
        return State(mean, with_factor_gradient(chol, system.Q)), transition

    def _every_step(self, system: StepSystem, states: State) -> tuple[State, Linearized]:
        """`step` at all steps at once, `[T, …, B]`."""
        steps, columns = tf.shape(states.mean)[0], tf.shape(states.mean)[-1]
        following_and_linearized = self.step(*_by_column((system, states), steps, columns))
        return _by_time(following_and_linearized, steps, columns)

    # --- the recursion ---------------------------------------------------------------------------

    def _states(self, system: StepSystem, start: State) -> State:
        """The states predicted for each step, `[T, …, B]`, without gradient."""
        chunks = _chunks_of(system, start)
        padded = chunks.pad_varying(system, always=("z",))

        def step(k: tf.Tensor, state: State) -> tuple[State, State]:
            return self._compiled_forward(chunks.cut(padded, k), state, chunks.steps_of(k))

        values, _ = chunks.loop(step, start, [start.mean.dtype] * 2)
        return State(*map(chunks.join, values))

    def _forward(self, system: StepSystem, state: State, length: tf.Tensor) -> tuple[State, State]:
        """The states of the first `length` steps of a chunk, and the state after them."""

        def step(t: tf.Tensor, state: State) -> tuple[State, State]:
            return state, self.step(StepSystem(*(at(a, t) for a in system)), state)[0]

        return _looped(step, state, system.z.shape[0], length)

    def _pulled(self, system: StepSystem, states: State, by_states: State) -> State:
        """Adds to the gradient by each state the gradient through the states after it."""
        chunks = _chunks_of(system, State(*(a[0] for a in states)))
        padded = chunks.pad_varying(system, always=("z",))
        states, by_states = (State(*map(chunks.pad, a)) for a in (states, by_states))

        def step(k: tf.Tensor, later: State) -> tuple[State, State]:
            arrays = (chunks.cut(a, k) for a in (padded, states, by_states))
            return self._compiled_backward(*arrays, later, chunks.steps_of(k))

        end = State(*(tf.zeros_like(a[0]) for a in states))
        values, _ = chunks.loop(step, end, [end.mean.dtype] * 2, backwards=True)
        return State(*map(chunks.join, values))

    def _backward(
        self, system: StepSystem, states: State, by_states: State, later: State, length: tf.Tensor
    ) -> tuple[State, State]:
        """`_pulled` of a chunk; `later` is the gradient by the state after it."""

        def step(t: tf.Tensor, later: State) -> tuple[State, State]:
            state = State(*(a[t] for a in states))
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(state)
                following, _ = self.step(StepSystem(*(at(a, t) for a in system)), state)
            with without_warnings_of_casts():
                zero = tf.UnconnectedGradients.ZERO
                pulled = tape.gradient(following, state, later, unconnected_gradients=zero)
            total = State(*(a[t] + b for a, b in zip(by_states, pulled, strict=True)))
            return total, total

        return _looped(step, later, system.z.shape[0], length, backwards=True)


def _tensors(affine: Affine) -> Affine:
    return Affine(*(None if a is None else tf.constant(a) for a in affine))


def _linked(states: State, shifted: State, pull: Callable[[State], State]) -> State:
    """`states`, whose gradient goes to `shifted`, with the gradient by the states after them."""

    @tf.custom_gradient
    def link(
        mean: tf.Tensor, chol: tf.Tensor
    ) -> tuple[tuple[tf.Tensor, ...], Callable[..., list[tf.Tensor]]]:
        def backward(*by_states: tf.Tensor) -> list[tf.Tensor]:
            total = pull(State(*map(tf.stop_gradient, by_states)))
            return without_gradient(total, (mean, chol, *by_states), ONCE)

        return tuple(map(tf.identity, states)), backward

    return State(*link(*shifted))


def _by_column(values: Any, steps: tf.Tensor, columns: tf.Tensor) -> Any:
    """`[T, …, B]` -> `[…, T·B]` for all tensors of a structure; `[…, 1]` where nothing varies."""

    def flat(a: tf.Tensor | None) -> tf.Tensor | None:
        if a is None:
            return None
        if a.shape[0] == 1 and a.shape[-1] == 1:
            return a[0]
        axes = a.shape[1:-1].as_list()
        a = tf.broadcast_to(a, tf.stack([steps, *axes, columns]))
        return tf.reshape(tf.experimental.numpy.moveaxis(a, 0, -2), [*axes, -1])

    return tf.nest.map_structure(flat, values)


def _by_time(values: Any, steps: tf.Tensor, columns: tf.Tensor) -> Any:
    """Inverts `_by_column`."""

    def unflat(a: tf.Tensor | None) -> tf.Tensor | None:
        if a is None:
            return None
        if a.shape[-1] == 1:  # where nothing varies
            return a[None]
        a = tf.reshape(a, [*a.shape[:-1].as_list(), steps, columns])
        return tf.experimental.numpy.moveaxis(a, -2, 0)

    return tf.nest.map_structure(unflat, values)


def _chunks_of(system: StepSystem, state: State) -> Chunks:
    static_steps, n = system.z.shape[0], state.mean.shape[0]
    steps = tf.shape(system.z)[0] if static_steps is None else static_steps
    return Chunks(steps, n * n * (state.mean.shape[-1] or 1))


def _looped(
    step: Any, state: State, size: int, length: tf.Tensor, backwards: bool = False
) -> tuple[State, State]:
    """The states of a loop; a tape that watches variables of the model must not see the loop."""
    kinds = [(a.dtype, a.shape) for a in state]
    states, last = time_loop(step, state, kinds, size, length, backwards)
    return State(*map(tf.stop_gradient, states)), State(*map(tf.stop_gradient, last))
