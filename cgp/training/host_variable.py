"""A Keras weight whose value is a NumPy array, written to TensorFlow when that is asked for it."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.training.keras_private import in_stateless_scope, replace_value, stored


class HostVariable(keras.Variable):
    """A weight whose value may be changed in place, as an array, at no cost.

    Writing a TensorFlow variable and reading it takes longer than a step of an online filter. So
    the array is the value, and it is written to TensorFlow only once that is asked for the value.
    Whoever asks for the TensorFlow variable itself (`value`) may read and write it at any time:
    from then on each change is written at once, and each use reads it.

    Example:
        >>> from cgp.training.host_variable import HostVariable
        >>> variable = HostVariable((2,), "float64", "state")
        >>> variable.host()[0] = 3.0
        >>> variable.changed()
        >>> variable.numpy()
        array([3., 0.])
    """

    def __init__(self, shape: tuple[int, ...], dtype: str, name: str):
        self._host: np.ndarray | None = None
        self._is_ahead = self._is_shared = False
        super().__init__(
            np.zeros(shape, dtype), dtype=dtype, trainable=False, autocast=False, name=name
        )

    def host(self) -> np.ndarray:
        """The value as an array; after a change of it in place, `changed` must be called."""
        if in_stateless_scope():  # which may hold another value, to be left alone
            return np.asarray(super().value)
        if self._host is None or self._is_shared:
            self._host = stored(self).numpy()
        return self._host

    def replace(self, array: np.ndarray) -> None:
        """Replaces the value by an array of any shape; no graph may have been made with it."""
        replace_value(self, array)
        self._host, self._is_ahead, self._is_shared = None, False, False

    def changed(self) -> None:
        """Marks the array as changed in place, so that TensorFlow gets its new value."""
        if self._is_shared:
            stored(self).assign(self._host)
        else:
            self._is_ahead = True

    @property
    def value(self) -> Any:
        """The TensorFlow variable."""
        variable = super().value
        if variable is stored(self):  # else that of a stateless scope
            self._write()
            self._is_shared = True
        return variable

    def assign(self, value: Any) -> Any:
        """Assigns a value, as Keras's `assign` does."""
        if in_stateless_scope():
            return super().assign(value)
        if not tf.executing_eagerly():
            _ = self.value  # a graph assigns when it runs; until then the value is this one
        variable = super().assign(value)
        self._host = np.array(variable) if tf.executing_eagerly() else None
        self._is_ahead = False
        return variable

    def numpy(self) -> np.ndarray:
        """The value, as a new array."""
        return self.host().copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("the value of a weight is only given as a copy")
        return np.asarray(self.numpy(), dtype)

    def __repr__(self) -> str:
        self._write()
        return super().__repr__()

    def _write(self) -> None:
        if self._is_ahead:
            with tf.init_scope():  # now, not when a graph runs
                stored(self).assign(self._host)
            self._is_ahead = False
