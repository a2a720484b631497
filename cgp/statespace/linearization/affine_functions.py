"""The functions of a nonlinear model as affine ones, for steps that are taken one at a time.

Rules linearise functions of tensors. Here they do so in graphs that are traced once, without XLA,
and are called with NumPy arrays: a series or a stream begins within a fraction of a second,
whatever the number of observations.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.statespace.engines.filter_step import State
from cgp.statespace.linearization.rules import Affine, Iterated, Rule, Taylor, expansion
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian


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
    """A graph of arrays of fixed shapes, called as an op: a `tf.function` takes twice the time."""

    def __init__(self, function: Callable[..., tf.Tensor], arrays: Sequence[np.ndarray]):
        signature = [tf.TensorSpec(a.shape, a.dtype) for a in arrays]
        graph = tf.function(function, input_signature=signature, autograph=False)
        self._function = graph.get_concrete_function()
        self._captured = list(self._function.captured_inputs)
        self._dtypes = [output.dtype for output in self._function.outputs]
        self.reads_variables = any(
            op.op_def is not None and op.op_def.is_stateful and op.type != "Placeholder"
            for op in self._function.graph.get_operations()
        )
        """Whether the same arrays may give another result later."""

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        [result] = tf.raw_ops.StatefulPartitionedCall(
            args=[*arrays, *self._captured], Tout=self._dtypes, f=self._function
        )
        return result.numpy()


def _swapped(a: tf.Tensor) -> tf.Tensor:
    """The batch axis of vectors first, `[n, B]` -> `[B, n]`; for one stream without a copy."""
    if a.shape[-1] == 1:
        return tf.reshape(a, [1, -1])
    return tf.linalg.matrix_transpose(a)  # axes are moved: there is nothing to conjugate


def _side_by_side(value: tf.Tensor, derivative: tf.Tensor) -> tf.Tensor:
    """Values `[B, m]` and derivatives `[B, m, n]` with the batch axis last, `[m, 1 + n, B]`."""
    rows = tf.concat([value[..., None], derivative], axis=-1)
    if rows.shape[0] == 1:
        return tf.reshape(rows, [*rows.shape[1:], 1])
    return tf.einsum("bmk->mkb", rows)


def _affine(rows: np.ndarray, mean: np.ndarray) -> Affine:
    """The expansion of value and derivative, `[m, 1 + n, B]`, at a mean, `[n, B]`."""
    value, derivative = rows[:, 0], rows[:, 1:]
    if mean.shape[1] == 1:  # a product takes half the time of a sum
        return Affine(derivative, value - derivative[..., 0] @ mean, None)
    return Affine(derivative, value - (derivative * mean).sum(axis=1), None)
