"""Estimators as recurrent layers of Keras, whose state goes on from one piece to the next."""

import functools
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from cgp.linalg.arguments import as_flag
from cgp.online.checks import cell_of, initial_state_of, series_of
from cgp.online.steps import described
from cgp.training.keras_private import add_variable, track_variables
from cgp.training.layer_arguments import ReadOnlyArguments, names_told


@keras.saving.register_keras_serializable(package="cgp.layers")
class Recursive(ReadOnlyArguments, keras.layers.Layer):
    """An estimator as a recurrent layer, which takes series in pieces.

    With `stateful=True` the state after a batch is where the next one goes on, series by series,
    until `reset_state()`. With `initial_state` and `return_state` the state is passed on by hand,
    and gradients pass through it. The loss of a piece is of its observations given the state
    before it. Samples are taken in: results are of each sample given all samples up to it.

    Args:
        estimator: A `KalmanFilter`, a `RecursiveGP` or a `StateSpaceGP`, whose hyperparameters are
            trained with the layer; or a `cgp.online.Cell`.
        return_sequences: Whether to return the moments at each time, or the last ones alone.
        return_state: Whether to return the state after the last time too.
        stateful: Whether the state is kept in weights between batches, which are then of one size.
        name: A name.

    Input shape: for a filter series `[B, T, M]`, or a pair of them and of its inputs, z, inputs;
        for a process a pair x, z `[B, T, D]`, `[B, T]`; for a cell of one's own a tuple of those of
        x, z, inputs that its samples have.

    Output shape: a dictionary, `[B, T, ...]` or, without `return_sequences`, `[B, ...]`: for a
        filter as from its `call`, for others the fields of `Step`, as "predicted_mean". With
        `return_state` a list of it and of the tensors of the state, as in `state` of the
        estimator, to be given as `initial_state`.

    Raises:
        TypeError: Another estimator; a flag that is not a bool; a cell whose state or step has
            another form; series of other dtypes.
        ValueError: A filter whose matrices vary over time; inputs or a state of other axes, or of
            another number of series; with `stateful` a batch size that is not known.

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
        cell = cell_of(estimator, "estimator")
        real = cell.sample_spec().z.dtype.real_dtype.name
        with names_told(type(self)):
            super().__init__(name=name, dtype=real, autocast=False, **kwargs)
        self.estimator, self._cell = estimator, cell
        if estimator is cell:  # no layer, whose weights Keras would find
            track_variables(self, cell.variables)
        self.return_sequences = as_flag(return_sequences, "return_sequences")
        self.return_state = as_flag(return_state, "return_state")
        self.stateful = as_flag(stateful, "stateful")
        self._state_weights: list[keras.Variable] = []

    def build(self, input_shape: Any) -> None:
        """Makes the weights of the state, where it is kept."""
        if self.stateful:
            shapes = input_shape if isinstance(input_shape[0], tuple | list) else [input_shape]
            if shapes[0][0] is None:
                raise ValueError(
                    "a stateful layer has one batch size: give it, as in "
                    f"keras.Input(batch_shape=(4, None, 1)), got inputs of shape {input_shape}"
                )
            spec = self._cell.sample_spec()
            dtypes = [a.dtype.name for a in (spec.x, spec.z, spec.inputs) if a is not None]
            specs = list(map(keras.KerasTensor, shapes, dtypes))
            series = self._cell.series(specs if len(specs) > 1 else specs[0])
            cell = self._cell.sized_for(series)
            with tf.init_scope():
                blank = cell.as_stored(cell.blank_state(shapes[0][0]))
            for i, a in enumerate(blank):
                shape = (*a.shape, 2) if a.dtype.is_complex else a.shape
                dtype = a.dtype.name if a.dtype.is_integer else self.variable_dtype
                self._state_weights.append(self._add_zeros(shape, dtype, f"state_{i}"))
            self._has_begun = self._add_zeros((), "int32", "begun")
        self.built = True

    def _add_zeros(self, shape: Sequence, dtype: str, name: str) -> keras.Variable:
        def make() -> keras.Variable:
            zeros = tf.zeros(shape, dtype)
            return keras.Variable(zeros, dtype=dtype, trainable=False, autocast=False, name=name)

        return add_variable(self, make)

    def call(self, inputs: Any, initial_state: Sequence[Any] | None = None) -> Any:
        """Takes a piece of series in.

        Args:
            inputs: The piece.
            initial_state: The state before it, as from `return_state`; None for the state
                that is kept, or for the state before any observation.
        """
        samples = series_of(self._cell, inputs).map(tf.convert_to_tensor)
        cell = self._cell.sized_for(samples)
        state = initial_state_of(cell, samples)
        if initial_state is not None:
            state = _as_of_batch(cell.from_shown(initial_state), state, "initial_state")
        elif self.stateful:
            stored = cell.as_stored(state)
            stored = [_value(v, a) for v, a in zip(self._state_weights, stored, strict=True)]
            previous = _as_of_batch(cell.from_stored(stored), state, "the state that is kept")
            begun = tf.convert_to_tensor(self._has_begun) > 0
            state = tf.nest.map_structure(functools.partial(tf.where, begun), previous, state)
        state, outputs, loss = cell.follow(state, samples)
        if loss is not None:
            self.add_loss(loss)
        if self.stateful:
            for variable, a in zip(self._state_weights, cell.as_stored(state), strict=True):
                variable.assign(_as_real(tf.stop_gradient(a)))
            self._has_begun.assign(1)
        if not self.return_sequences:
            outputs = {name: a[:, -1] for name, a in outputs.items()}
        return [outputs, *tf.nest.flatten(state)] if self.return_state else outputs

    def compute_output_spec(self, inputs: Any, initial_state: Any = None) -> Any:
        """The shapes and dtypes that `call` returns in a functional model."""
        samples = series_of(self._cell, inputs)
        cell = self._cell.sized_for(samples)
        axes = samples.z.shape[:1] if self.return_sequences is False else samples.z.shape[:2]
        outputs = {
            name: keras.KerasTensor((*axes, *a.shape[2:]), tf.as_dtype(a.dtype).name)
            for name, a in cell.output_spec(samples).items()
        }
        if not self.return_state:
            return outputs
        with tf.init_scope():
            leaves = tf.nest.flatten(cell.blank_state(1))
        return [
            outputs,
            *(keras.KerasTensor((axes[0], *a.shape[1:]), a.dtype.name) for a in leaves),
        ]

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


def _as_of_batch(state: Any, initial: Any, name: str) -> Any:
    """A state, or a list of its tensors, packed as the initial one of a batch, or an error."""
    tensors = [tf.convert_to_tensor(a) for a in tf.nest.flatten(state)]
    expected = tf.nest.flatten(initial)
    got = ", ".join(f"{a.dtype.name} {a.shape}" for a in tensors)
    message = f"{name} must have, for each series of the batch, {described(initial)}: got {got}"
    if len(tensors) != len(expected) or any(
        a.dtype != b.dtype or not a.shape.is_compatible_with(b.shape)
        for a, b in zip(tensors, expected, strict=False)
    ):
        raise ValueError(message)
    same = [
        tf.debugging.assert_equal(tf.shape(a), tf.shape(b), message)
        for a, b in zip(tensors, expected, strict=True)
    ]
    with tf.control_dependencies([operation for operation in same if operation is not None]):
        return tf.nest.pack_sequence_as(initial, [tf.identity(a) for a in tensors])


def _value(variable: keras.Variable, like: tf.Tensor) -> tf.Tensor:
    value = tf.convert_to_tensor(variable)
    return tf.complex(value[..., 0], value[..., 1]) if like.dtype.is_complex else value


def _as_real(a: tf.Tensor) -> tf.Tensor:
    return tf.stack([tf.math.real(a), tf.math.imag(a)], axis=-1) if a.dtype.is_complex else a
