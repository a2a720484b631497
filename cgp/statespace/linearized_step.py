"""One step of a filter that linearises, and its recursion over a series, with a gradient.

The states along a series are found one after the other, by loops that XLA compiles; then all steps
are linearised at once, in one batch over time, which is where gradients pass. A gradient by the
states themselves goes back through the series in the same loops: `u[t] = v[t] + J[t]ᴴ u[t+1]`, with
J the derivative of a step by the state before it, adds to the gradient v by each state what comes
from the states after it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from cgp.linalg.batch_last import adjoint, matmul, with_factor_gradient
from cgp.linalg.gradients import without_gradient
from cgp.statespace.backward_pass import ONCE
from cgp.statespace.chunks import Chunks
from cgp.statespace.compiled import CompiledByShape, graph_of
from cgp.statespace.decorrelation import decorrelated
from cgp.statespace.filter_step import State, predict, update
from cgp.statespace.forward_pass import at
from cgp.statespace.linearization.affine import Affine
from cgp.statespace.linearization.iterated import Iterated
from cgp.statespace.nonlinear_gaussian import NonlinearGaussian


class Given(NamedTuple):
    """What a series gives each step, working values; T and B are 1 where nothing varies."""

    Q: tf.Tensor
    """`[T, n, n, B]`; gradients flow to it."""
    Q_factor: tf.Tensor
    """`[T, n, q, B]`; computations use it."""
    R: tf.Tensor
    """`[T, m, m, B]`."""
    z: tf.Tensor
    """`[T, m, B]`; any finite number where missing."""
    observed: tf.Tensor
    """Real, `[T, m, B]`: 1, or 0 where missing."""
    inputs: tf.Tensor
    """`[T, k, B]`, with k = 0 if there are none."""


class Linearized(NamedTuple):
    """The approximations of both functions, at one step or stacked over time."""

    transition: Affine
    observation: Affine


class Stepper:
    """The steps of a model by a rule.

    Args:
        model: The model.
        rule: The rule; that of one which is not iterated has no iterations.
    """

    def __init__(self, model: NonlinearGaussian, rule: Any):
        self.model, self.rule, self.iterations, self.damping = model, rule, 0, 0.0
        if isinstance(rule, Iterated):
            self.rule, self.iterations, self.damping = rule.rule, rule.iterations, rule.damping
        compiled = CompiledByShape if model.jit_compile else graph_of
        self._compiled_forward = compiled(self._forward)
        self._compiled_backward = compiled(self._backward)
        self._at_once = graph_of(self._at_all)
        self._all_steps = graph_of(self._every_step)

    def along(self, given: Given, start: State) -> Linearized:
        """Linearises along the filter of a series, `[T, …, B]`.

        Args:
            given: Of each step.
            start: The state before the first observation, of each series.
        """
        every = self._all_steps if tf.executing_eagerly() else self._every_step
        if given.z.shape[0] == 1:
            return every(given, State(*(a[None] for a in start)))[1]
        constant = Given(*map(tf.stop_gradient, given))
        states = self._states(constant, State(*map(tf.stop_gradient, start)))

        def pull(by_states: State) -> State:
            return self._pulled(constant, states, by_states)

        # The states once more, as functions of what they depend on, each of the one before it.
        following, _ = every(given, states)
        shifted = State(
            *(tf.concat([a[None], b[:-1]], axis=0) for a, b in zip(start, following, strict=True))
        )
        _, found = every(given, _linked(states, shifted, pull))
        return found

    def at_states(self, states: State, inputs: tf.Tensor) -> Linearized:
        """Linearises at states of known moments, `[T, …, B]`; inputs `[T, k, B]`."""
        at_once = self._at_once if tf.executing_eagerly() else self._at_all
        return at_once(states, inputs)

    def _at_all(self, states: State, inputs: tf.Tensor) -> Linearized:
        steps, columns = tf.shape(states.mean)[0], tf.shape(states.mean)[-1]
        known = tf.einsum("kb->bk", _flat(inputs, steps, columns))
        flat = State(*(_flat(a, steps, columns) for a in states))
        found = Linearized(
            *(
                self.rule.linearize(self.model.working(name, known), flat)
                for name in Linearized._fields
            )
        )
        return _by_time(found, steps, columns)

    # --- one step --------------------------------------------------------------------------------

    def step(self, given: Given, state: State) -> tuple[State, Linearized]:
        """The state predicted next, and how the functions are linearised on the way.

        Args:
            given: Of this step, without the axis of time.
            state: Predicted for this step.
        """
        after, _, observation = self.updated(given, state)
        following, transition = self.predicted(given, after)
        return following, Linearized(transition, observation)

    def updated(self, given: Given, state: State) -> tuple[State, tf.Tensor, Affine]:
        """The state after the observation of a step, its log likelihood, and how h is linearised.

        Args:
            given: Of this step, without the axis of time.
            state: Predicted for this step.
        """
        function = self.model.working("observation", tf.einsum("kb->bk", given.inputs))

        def again(i: tf.Tensor, point: State) -> tuple[tf.Tensor, State]:
            after, _ = updated_by(self.rule.linearize(function, point), given, state)
            mean = after.mean + self.damping * (point.mean - after.mean)
            return i + 1, State(mean, after.chol)

        point, count = state, self.iterations
        if count:
            loop = (lambda i, _: i < count, again, (0, state))
            _, point = tf.while_loop(*loop, maximum_iterations=count)
        observation = self.rule.linearize(function, point)
        return *updated_by(observation, given, state), observation

    def predicted(self, given: Given, after: State) -> tuple[State, Affine]:
        """The state predicted from that after the observation, and how f is linearised."""
        function = self.model.working("transition", tf.einsum("kb->bk", given.inputs))
        transition = self.rule.linearize(function, after)
        return predicted_by(transition, given, after), transition

    def _every_step(self, given: Given, states: State) -> tuple[State, Linearized]:
        """`step` at all steps at once, `[T, …, B]`."""
        steps, columns = tf.shape(states.mean)[0], tf.shape(states.mean)[-1]
        own = Given(*(_flat(a, steps, columns) for a in given))
        found = self.step(own, State(*(_flat(a, steps, columns) for a in states)))
        return _by_time(found, steps, columns)

    # --- the recursion ---------------------------------------------------------------------------

    def _states(self, given: Given, start: State) -> State:
        """The states predicted for each step, `[T, …, B]`, without gradient."""
        chunks = _chunks_of(given, start)
        padded = chunks.pad_varying(given, always=("z",))

        def step(k: tf.Tensor, state: State) -> tuple[State, State]:
            return self._compiled_forward(chunks.cut(padded, k), state, chunks.steps_of(k))

        values, _ = chunks.loop(step, start, [start.mean.dtype] * 2)
        return State(*map(chunks.join, values))

    def _forward(self, given: Given, state: State, length: tf.Tensor) -> tuple[State, State]:
        """The states of the first `length` steps of a chunk, and the one after them."""
        arrays = _arrays(state, given.z.shape[0])

        def step(
            t: tf.Tensor, state: State, arrays: list[tf.TensorArray]
        ) -> tuple[tf.Tensor, State, list[tf.TensorArray]]:
            following, _ = self.step(Given(*(at(a, t) for a in given)), state)
            arrays = [array.write(t, a) for array, a in zip(arrays, state, strict=True)]
            return t + 1, following, arrays

        loop = (tf.constant(0), state, arrays)
        _, state, arrays = tf.while_loop(lambda t, *_: t < length, step, loop)
        return _constant(arrays, state)

    def _pulled(self, given: Given, states: State, by_states: State) -> State:
        """Adds to the gradient by each state what comes from the states after it."""
        chunks = _chunks_of(given, State(*(a[0] for a in states)))
        padded = chunks.pad_varying(given, always=("z",))
        states, by_states = (State(*map(chunks.pad, a)) for a in (states, by_states))

        def step(k: tf.Tensor, later: State) -> tuple[State, State]:
            own = (chunks.cut(a, k) for a in (padded, states, by_states))
            return self._compiled_backward(*own, later, chunks.steps_of(k))

        end = State(*(tf.zeros_like(a[0]) for a in states))
        values, _ = chunks.loop(step, end, [end.mean.dtype] * 2, backwards=True)
        return State(*map(chunks.join, values))

    def _backward(
        self, given: Given, states: State, by_states: State, later: State, length: tf.Tensor
    ) -> tuple[State, State]:
        """`_pulled` of a chunk; `later` is the gradient by the state after it."""
        arrays = _arrays(later, given.z.shape[0])

        def step(
            t: tf.Tensor, later: State, arrays: list[tf.TensorArray]
        ) -> tuple[tf.Tensor, State, list[tf.TensorArray]]:
            state = State(*(a[t] for a in states))
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(state)
                following, _ = self.step(Given(*(at(a, t) for a in given)), state)
            pulled = tape.gradient(
                following, state, later, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            total = State(*(a[t] + b for a, b in zip(by_states, pulled, strict=True)))
            arrays = [array.write(t, a) for array, a in zip(arrays, total, strict=True)]
            return t - 1, total, arrays

        loop = (length - 1, later, arrays)
        _, later, arrays = tf.while_loop(lambda t, *_: t >= 0, step, loop)
        return _constant(arrays, later)


def updated_by(affine: Affine, given: Given, state: State) -> tuple[State, tf.Tensor]:
    """The moments after an observation with an affine function, and its log likelihood, `[B]`."""
    R = given.R
    if affine.residual is not None:
        R = R + matmul(affine.residual, adjoint(affine.residual))
    values = tf.einsum("mb->bm", given.z - affine.offset)[:, None]  # a series of one step
    h, r, values = decorrelated(affine.matrix[None], R[None], values, given.observed[None])
    values = tf.einsum("bm->mb", values[:, 0])
    after, log_likelihood, _ = update(state, h[0], r[0], values, given.observed)
    return after, log_likelihood


def predicted_by(affine: Affine, given: Given, after: State) -> State:
    """The moments of an affine function of a state, and of the process noise."""
    spread = tf.stop_gradient(given.Q_factor)
    if affine.residual is not None:
        spread = tf.concat([spread + tf.zeros_like(after.mean[None, :1]), affine.residual], 1)
    mean, chol = predict(after, affine.matrix, spread, affine.offset)
    return State(mean, with_factor_gradient(chol, given.Q))


def _linked(states: State, shifted: State, pull: Callable[[State], State]) -> State:
    """`states`, whose gradient goes to `shifted`, with that by the states after them."""

    @tf.custom_gradient
    def link(
        mean: tf.Tensor, chol: tf.Tensor
    ) -> tuple[tuple[tf.Tensor, ...], Callable[..., list[tf.Tensor]]]:
        def backward(*by_states: tf.Tensor) -> list[tf.Tensor]:
            total = pull(State(*map(tf.stop_gradient, by_states)))
            return without_gradient(total, (mean, chol, *by_states), ONCE)

        return tuple(map(tf.identity, states)), backward

    return State(*link(*shifted))


def _flat(a: tf.Tensor, steps: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """`[T, …, B]` -> `[…, T·B]`; `[…, 1]` where nothing varies."""
    if a.shape[0] == 1 and a.shape[-1] == 1:
        return a[0]
    own = a.shape[1:-1].as_list()
    a = tf.broadcast_to(a, tf.concat([[steps], own, [columns]], axis=0))
    return tf.reshape(tf.experimental.numpy.moveaxis(a, 0, -2), [*own, -1])


def _by_time(found: Any, steps: tf.Tensor, columns: tf.Tensor) -> Any:
    """Inverts `_flat` for all tensors of a structure."""

    def unflat(a: tf.Tensor | None) -> tf.Tensor | None:
        if a is None:
            return None
        a = tf.reshape(a, [*a.shape[:-1].as_list(), steps, columns])
        return tf.experimental.numpy.moveaxis(a, -2, 0)

    return tf.nest.map_structure(unflat, found)


def _chunks_of(given: Given, state: State) -> Chunks:
    known, n = given.z.shape[0], state.mean.shape[0]
    steps = tf.shape(given.z)[0] if known is None else known
    return Chunks(steps, n * n * (state.mean.shape[-1] or 1))


def _arrays(state: State, steps: int) -> list[tf.TensorArray]:
    return [tf.TensorArray(a.dtype, steps, element_shape=a.shape) for a in state]


def _constant(arrays: list[tf.TensorArray], state: State) -> tuple[State, State]:
    """The results of a loop; a tape that watches variables of the model must not see the loop."""
    stacked = State(*(tf.stop_gradient(array.stack()) for array in arrays))
    return stacked, State(*map(tf.stop_gradient, state))
