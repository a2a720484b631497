"""The functions of a nonlinear model as affine ones, for steps that are taken one at a time.

Rules linearise functions of tensors. Here they do so in graphs that are traced once, without XLA,
and are called with NumPy arrays: a series or a stream begins within a fraction of a second,
whatever the number of observations.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.statespace.engines.filter_step import State
from cgp.statespace.linearization.rules import Affine, Rule
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian


def linearize(
    model: NonlinearGaussian, rule: Rule, name: str, inputs: tf.Tensor | None, state: State
) -> Affine:
    """The transition or observation, by name, as an affine function of a state.

    Args:
        model: The model.
        rule: The rule.
        name: "transition" or "observation".
        inputs: The known inputs, working values, `[k, B]`; k may be 0.
        state: The moments of the state, `[n, B]` and `[n, n, B]`.

    Returns:
        The approximation, with as many columns as the state has.
    """
    drive = None if inputs is None else tf.einsum("kb->bk", inputs)
    function = model.working(name, drive)

    def of_batch_last(points: tf.Tensor) -> tf.Tensor:
        return tf.einsum("bkm->mkb", function(tf.einsum("nkb->bkn", points)))

    return rule.linearize(of_batch_last, state)


class NextStep(NamedTuple):
    """Both functions on the way from a state after an observation to the next observation."""

    transition: Affine  # Of the state after the observation
    observation: Affine  # Of the state that this transition predicts


class AffineFunctions:
    """The functions of a model, made affine by a rule, as functions of NumPy arrays.

    Args:
        model: The model.
        rule: The rule.
    """

    def __init__(self, model: NonlinearGaussian, rule: Rule):
        self._model, self._rule = model, rule
        self._graphs: dict[tuple, _Graph] = {}

    def transition(self, state: State, inputs: np.ndarray | None) -> Affine:
        """The transition at the moments of a state.

        Args:
            state: The moments, NumPy, working values, `[n, B]` and `[n, n, B]`.
            inputs: The known inputs, working values, `[k, B]`; None for a model without inputs.

        Returns:
            The approximation, contiguous NumPy arrays `[n, …, B]`.
        """
        return self._at("transition", state, inputs)

    def observation(self, state: State, inputs: np.ndarray | None) -> Affine:
        """The observation at the moments of a state; as `transition`, with m rows."""
        return self._at("observation", state, inputs)

    def next_step(self, state: State) -> NextStep | None:
        """The transition at a state, and the observation at the mean that it predicts, at once.

        One call takes little more time than each of two. It needs a rule that uses no covariance,
        and functions without inputs or variables: None for others, whose next observation is not
        determined yet.
        """
        if self._rule.uses_covariance or self._model.input_size:
            return None
        graph = self._graph("next_step", self._next_step, (state.mean,))
        if graph.reads_variables:
            return None
        n, rows = len(state.mean), graph(state.mean)
        return NextStep(_affine(rows[:n], n), _affine(rows[n:], n))

    def _at(self, name: str, state: State, inputs: np.ndarray | None) -> Affine:
        moments: tuple[np.ndarray, ...] = (state.mean,)
        if self._rule.uses_covariance:
            moments = tuple(state)
        arrays = moments if inputs is None else (*moments, inputs)

        def rows(*tensors: tf.Tensor) -> tf.Tensor:
            drive = tensors[len(moments)] if len(tensors) > len(moments) else None
            return self._rows(name, _state(tensors[: len(moments)]), drive)

        graph = self._graph((name, inputs is None), rows, arrays)
        return _affine(graph(*arrays), len(state.mean))

    def _graph(
        self, key: Any, function: Callable[..., tf.Tensor], arrays: Sequence[np.ndarray]
    ) -> "_Graph":
        """The graph of a function for arrays of these shapes."""
        key = (key, arrays[0].shape)
        if key not in self._graphs:
            self._graphs[key] = _Graph(function, arrays)
        return self._graphs[key]

    def _rows(self, name: str, state: State, inputs: tf.Tensor | None) -> tf.Tensor:
        """Offset, matrix and residual side by side, `[m, 1 + n + k, B]`."""
        affine = linearize(self._model, self._rule, name, inputs, state)
        columns = state.mean.shape[-1]
        arrays = [affine.offset[:, None], affine.matrix]
        if affine.residual is not None:
            arrays.append(affine.residual)
        shapes = [[*a.shape[:-1], columns] for a in arrays]
        return tf.concat(list(map(tf.broadcast_to, arrays, shapes)), axis=1)

    def _next_step(self, mean: tf.Tensor) -> tf.Tensor:
        """The rows of the transition, and below them those of the observation."""
        transition = self._rows("transition", _state([mean]), None)
        products = transition[:, 1:] * mean[None]
        predicted = transition[:, 0] + tf.reduce_sum(products, axis=1)
        return tf.concat([transition, self._rows("observation", _state([predicted]), None)], axis=0)


class _Graph:
    """A graph of arrays of fixed shapes, called as an op: a `tf.function` takes twice the time."""

    def __init__(self, function: Callable[..., tf.Tensor], arrays: Sequence[np.ndarray]):
        signature = [tf.TensorSpec(a.shape, a.dtype) for a in arrays]
        graph = tf.function(function, input_signature=signature, autograph=False)
        self._function = graph.get_concrete_function()
        self._captured = list(self._function.captured_inputs)
        self._dtypes = [output.dtype for output in self._function.outputs]
        self.reads_variables = any(
            op.op_def is not None and op.op_def.is_stateful
            for op in self._function.graph.get_operations()
            if op.type != "Placeholder"
        )
        """Whether the same arrays may give another result later."""

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        [result] = tf.raw_ops.StatefulPartitionedCall(
            args=[*arrays, *self._captured], Tout=self._dtypes, f=self._function
        )
        return result.numpy()


def _state(moments: Sequence[tf.Tensor]) -> State:
    """The state of a mean, and of its factor; zero where the rule does not use it."""
    if len(moments) == 2:
        return State(*moments)
    [mean] = moments
    return State(mean, tf.zeros([mean.shape[0], *mean.shape], mean.dtype))


def _affine(rows: np.ndarray, n: int) -> Affine:
    """The approximation of rows as `AffineFunctions` packs them."""
    residual = np.ascontiguousarray(rows[:, 1 + n :]) if rows.shape[1] > 1 + n else None
    matrix = np.ascontiguousarray(rows[:, 1 : 1 + n])
    return Affine(matrix, np.ascontiguousarray(rows[:, 0]), residual)
