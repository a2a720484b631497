"""Estimators outside of Python: SavedModels, which plain TensorFlow runs where cgp is not."""

import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from cgp.distributions.marginals import Step

Outputs = dict[str, tf.Tensor]

# Nobody differentiates what is exported; and gradients of ours call Python.
WITHOUT_GRADIENTS = tf.saved_model.SaveOptions(experimental_custom_gradients=False)


class Online(NamedTuple):
    """How an estimator takes one sample in, as a pure function."""

    advance: Callable[..., tuple[Any, Outputs]]
    """Function of a state and of the arguments of a step; returns the next state and results."""
    arguments: Sequence[tf.TensorSpec]
    """The arguments of a step."""
    check: Callable[..., list[tf.Operation]] = lambda state, *arguments: []
    """Assertions of what a step refuses."""


class Served(tf.Module):
    """The functions of an estimator, and its state in variables, to be written as a SavedModel.

    Args:
        state: The state, a structure of tensors.
        predict: Function of the state and of arguments; returns tensors by name.
        arguments: `tf.TensorSpec` of the arguments of `predict`.
        online: How a sample is taken in; None for an estimator that takes none.
    """

    def __init__(
        self,
        state: Any,
        predict: Callable[..., Outputs],
        arguments: Sequence[tf.TensorSpec],
        online: Online | None = None,
    ):
        super().__init__()
        self._structure = state
        leaves = tf.nest.flatten(state)
        # Of any size: a graph that knew those of large data would write them out as constants.
        self._state = [tf.Variable(leaf, trainable=False) for leaf in leaves]
        self._predict, self._online = predict, online
        self.predict = _graph(lambda *inputs: self._predict(self._read(), *inputs), arguments)
        if online is not None:
            self._first = [tf.Variable(leaf, trainable=False) for leaf in leaves]
            self.step = _graph(self._step, online.arguments)
            self.reset = _graph(self._reset, [])

    def _read(self) -> Any:
        values = [tf.convert_to_tensor(variable) for variable in self._state]
        return tf.nest.pack_sequence_as(self._structure, values)

    def _step(self, *arguments: tf.Tensor) -> Outputs:
        assert self._online is not None
        before = self._read()
        checks = self._online.check(before, *arguments)
        following, outputs = self._online.advance(before, *arguments)
        pairs = zip(*map(tf.nest.flatten, (before, following)), strict=True)
        changed = {i: after for i, (leaf, after) in enumerate(pairs) if leaf is not after}
        sound = tf.reduce_all([_is_finite(leaf) for leaf in changed.values()])
        refused = "the state would not be finite any more, and is as it was"
        with tf.control_dependencies([*checks, tf.debugging.Assert(sound, [refused])]):
            tensors = {i: tf.identity(leaf) for i, leaf in changed.items()}
        for i, tensor in tensors.items():
            self._state[i].assign(tensor)
        return outputs

    def _reset(self) -> Outputs:
        for variable, first in zip(self._state, self._first, strict=True):
            variable.assign(first)
        return {"done": tf.constant(True)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the SavedModel to a folder."""
        functions = {"serving_default": self.predict, "predict": self.predict}
        if self._online is not None:
            functions |= {"step": self.step, "reset": self.reset}
        concrete = {name: f.get_concrete_function() for name, f in functions.items()}
        # The hyperparameters that the graphs read, which are attributes of layers elsewhere.
        self._read_by_graphs = [v for f in concrete.values() for v in f.variables]
        tf.saved_model.save(self, os.fspath(path), signatures=concrete, options=WITHOUT_GRADIENTS)


def step_outputs(step: Step) -> Outputs:
    """The moments of a step by name."""
    outputs = {"innovation": step.innovation}
    for name, moments in (("predicted", step.predicted), ("filtered", step.filtered)):
        for moment, tensor in zip(moments._fields, moments, strict=True):
            outputs[f"{name}_{moment}"] = tensor
    return outputs


def _graph(function: Callable[..., Outputs], arguments: Sequence[tf.TensorSpec]) -> Any:
    def by_name(*inputs: tf.Tensor) -> Outputs:
        return function(*inputs)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [inspect.Parameter(spec.name, kind) for spec in arguments]
    by_name.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
    return tf.function(by_name, input_signature=list(arguments), autograph=False)


def _is_finite(a: tf.Tensor) -> tf.Tensor:
    if not (a.dtype.is_floating or a.dtype.is_complex):
        return tf.constant(True)
    return tf.reduce_all(tf.math.is_finite(tf.abs(a)))
