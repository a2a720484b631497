"""Estimators as recurrent layers of Keras, whose state goes on from one piece to the next."""

import functools
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from cgp.linalg.arguments import as_flag
from cgp.training.keras_private import add_variable
from cgp.training.layer_arguments import ReadOnlyArguments, names_told


@keras.saving.register_keras_serializable(package="cgp.layers")
class Recursive(ReadOnlyArguments, keras.layers.Layer):
    """A `KalmanFilter` or a `RecursiveGP` as a recurrent layer, which takes series in pieces.

    With `stateful=True` the state after a batch is where the next one goes on, series by series,
    until `reset_state()`. With `initial_state` and `return_state` the state is passed on by hand,
    and gradients pass through it. The loss of a piece is that of its observations given the state
    before it. Samples are taken in: results are of each sample given those up to it.

    Args:
        estimator: A `KalmanFilter`, or a `RecursiveGP`; what it learns is trained with the layer.
        return_sequences: Whether to return the moments at each time, or the last ones alone.
        return_state: Whether to return the state after the last time too.
        stateful: Whether the state is kept in weights between batches, which are then of one size.
        name: A name.

    Input shape: of a filter series `[B, T, M]`; of a process a pair of inputs `[B, T, D]` and
        observations `[B, T]`.

    Output shape: a dictionary, `[B, T, ...]` or, without `return_sequences`, `[B, ...]`: of a
        filter that of its `call`, of a process the parts of `Step`, as "predicted_mean". With
        `return_state` a list of it and of the tensors of the state, to be given as
        `initial_state`: of a filter the mean and the factor predicted for the next observation,
        working values; of a process the arrays of its window.

    Raises:
        TypeError: Another estimator; a flag that is not a bool.
        ValueError: A window of the policy "budget"; a filter whose matrices vary over time; inputs
            or a state of other axes, or of another number of series; with `stateful` a batch size
            that is not known.

    Example:
        >>> import numpy as np, cgp
        >>> model = cgp.statespace.LinearGaussian([[0.9j]], [[0.1]], [[1.0]], [[1.0]])
        >>> kf, z = cgp.KalmanFilter(model), np.ones((2, 6, 1)) * 1j
        >>> layer = cgp.layers.Recursive(kf, stateful=True)
        >>> first, second = layer(z[:, :3]), layer(z[:, 3:])
        >>> bool(np.allclose(second["filtered_mean"], kf(z)["filtered_mean"][:, 3:]))
        True
    """

    def __init__(
        self,
        estimator: Any,
        return_sequences: bool = True,
        return_state: bool = False,
        stateful: bool = False,
        name: str | None = None,
        **kwargs: Any,
    ):
        if isinstance(estimator, type) or not hasattr(estimator, "_follow"):
            got = estimator if isinstance(estimator, type) else type(estimator).__name__
            raise TypeError(f"estimator must be a KalmanFilter or a RecursiveGP, got {got}")
        with names_told(type(self)):
            super().__init__(name=name, dtype=estimator.variable_dtype, autocast=False, **kwargs)
        self.estimator = estimator
        self.return_sequences = as_flag(return_sequences, "return_sequences")
        self.return_state = as_flag(return_state, "return_state")
        self.stateful = as_flag(stateful, "stateful")
        self._held: list[keras.Variable] = []

    def build(self, input_shape: Any) -> None:
        """Makes the weights of the state, where it is kept."""
        if self.stateful:
            first = input_shape[0] if isinstance(input_shape[0], tuple | list) else input_shape
            if first[0] is None:
                raise ValueError(
                    "a stateful layer has one batch size: give it, as in "
                    f"keras.Input(batch_shape=(4, None, 1)), got inputs of shape {input_shape}"
                )
            for i, leaf in enumerate(self.estimator._state_spec(input_shape)):
                parts = (*leaf.shape, 2) if "complex" in leaf.dtype else leaf.shape
                dtype = self.variable_dtype if leaf.dtype != "int32" else "int32"
                make = functools.partial(_zeros, parts, dtype, f"state_{i}")
                self._held.append(add_variable(self, make))
            self._has_begun = add_variable(self, functools.partial(_zeros, (), "int32", "begun"))
        self.built = True

    def call(self, inputs: Any, initial_state: Sequence[Any] | None = None) -> Any:
        """Takes a piece of series in.

        Args:
            inputs: The piece.
            initial_state: The state before it, as from `return_state`; None for the one that is
                kept, or for that before any observation.
        """
        if not all(hasattr(part, "shape") for part in keras.tree.flatten(inputs)) or isinstance(
            inputs, dict
        ):
            raise TypeError(
                "inputs must be an array, or the pair (x, z) of a process, got a "
                f"{type(inputs).__name__}"
            )
        state = self.estimator._begin(inputs)
        if initial_state is not None:
            state = _of_series(initial_state, state, "initial_state")
        elif self.stateful:
            kept = [_value(v, leaf) for v, leaf in zip(self._held, state, strict=True)]
            kept = _of_series(kept, state, "the state that is kept")
            begun = tf.convert_to_tensor(self._has_begun) > 0
            state = [tf.where(begun, a, b) for a, b in zip(kept, state, strict=True)]
        outputs, state = self.estimator._follow(inputs, state)
        if self.stateful:
            for variable, leaf in zip(self._held, state, strict=True):
                variable.assign(_as_real(tf.stop_gradient(leaf)))
            self._has_begun.assign(1)
        if not self.return_sequences:
            outputs = {name: value[:, -1] for name, value in outputs.items()}
        return [outputs, *state] if self.return_state else outputs

    def compute_output_spec(self, inputs: Any, initial_state: Any = None) -> Any:
        """The shapes and dtypes that `call` returns in a functional model."""
        outputs = self.estimator._piece_spec(inputs)
        if not self.return_sequences:
            outputs = {
                name: keras.KerasTensor((a.shape[0], *a.shape[2:]), a.dtype)
                for name, a in outputs.items()
            }
        if not self.return_state:
            return outputs
        shape = [a.shape for a in inputs] if isinstance(inputs, tuple | list) else inputs.shape
        return [outputs, *self.estimator._state_spec(shape)]

    def reset_state(self) -> None:
        """Makes all series begin again with the next batch."""
        if self.stateful and self.built:
            self._has_begun.assign(0)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return {
            "estimator": keras.saving.serialize_keras_object(self.estimator),
            "return_sequences": self.return_sequences,
            "return_state": self.return_state,
            "stateful": self.stateful,
            "name": self.name,
            "trainable": self.trainable,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Recursive":
        """Makes the layer of a config."""
        estimator = keras.saving.deserialize_keras_object(config["estimator"])
        return cls(**{**config, "estimator": estimator})


def _zeros(shape: tuple, dtype: str, name: str) -> keras.Variable:
    return keras.Variable(
        tf.zeros(shape, dtype), dtype=dtype, trainable=False, autocast=False, name=name
    )


def _of_series(given: Sequence[Any], first: list[tf.Tensor], name: str) -> list[tf.Tensor]:
    """A state as that of the series of a batch, or an error.

    Args:
        given: Its tensors.
        first: Those of the state before any observation.
        name: What errors call it.
    """
    found = [tf.convert_to_tensor(a) for a in given]
    described = [
        ", ".join(f"{a.dtype.name} {a.shape}" for a in tensors) for tensors in (first, found)
    ]
    message = f"{name} must have, for each series of the batch, {{}}: got {{}}".format(*described)
    if len(found) != len(first) or any(
        a.dtype != b.dtype or not a.shape.is_compatible_with(b.shape)
        for a, b in zip(found, first, strict=False)
    ):
        raise ValueError(message)
    same = [
        tf.debugging.assert_equal(tf.shape(a), tf.shape(b), message)
        for a, b in zip(found, first, strict=True)
    ]
    with tf.control_dependencies([operation for operation in same if operation is not None]):
        return [tf.identity(a) for a in found]


def _value(variable: keras.Variable, like: tf.Tensor) -> tf.Tensor:
    value = tf.convert_to_tensor(variable)
    return tf.complex(value[..., 0], value[..., 1]) if like.dtype.is_complex else value


def _as_real(a: tf.Tensor) -> tf.Tensor:
    return tf.stack([tf.math.real(a), tf.math.imag(a)], axis=-1) if a.dtype.is_complex else a
