"""An online filter: its state in variables, and a compiled step that updates it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.distributions.marginals import Marginals
from cgp.statespace.filter_step import BatchLastMarginals, State
from cgp.statespace.online_step import NOT_FINITE


class OnlineFilter:
    """The state of B streams, and the step that updates it with one observation of each.

    The state is stored in real variables, `[n, B]` and `[n, n, B]`; a complex state has a last axis
    of two. The compiled step returns one array of real numbers, which is faster than six arrays.

    Args:
        add_variable: Makes a real variable of a name and a shape, initially zero:
            `keras.layers.Layer.add_weight` or the like.
        advance: Function of a `State` and of the arguments of a step. It returns the next state and
            the `BatchLastMarginals` of the observation before, and of the signal or state after.
        size: n, the number of working components of the state.
        streams: B.
        dtype: Dtype of the working values.
        signature: `tf.TensorSpec` of the arguments of a step.
        jit: Whether the step may be compiled by XLA.
    """

    def __init__(
        self,
        add_variable: Callable[[str, tuple[int, ...]], Any],
        advance: Callable[..., tuple[State, BatchLastMarginals, BatchLastMarginals]],
        size: int,
        streams: int,
        dtype: tf.DType,
        signature: Sequence[tf.TensorSpec],
        jit: bool,
    ):
        self.streams, self._dtype, self._advance = streams, dtype, advance
        parts = [2] if dtype.is_complex else []
        self.variables = [
            add_variable("state_mean", (size, streams, *parts)),
            add_variable("state_chol", (size, size, streams, *parts)),
        ]
        self._function = tf.function(
            lambda *arguments: self._step(*arguments),
            input_signature=list(signature),
            jit_compile=jit,
            autograph=False,
        )
        # Calling a concrete function takes half the time.
        self._concrete: Any = None
        self._has_pseudo, self._split = False, 0

    # --- the state -------------------------------------------------------------------------------

    def read(self) -> State:
        """The state, batch last."""
        values = [tf.convert_to_tensor(variable) for variable in self.variables]
        if self._dtype.is_complex:
            values = [tf.complex(value[..., 0], value[..., 1]) for value in values]
        return State(*values)

    def write(self, state: State) -> None:
        """Stores a state, batch last."""
        values = list(state)
        if self._dtype.is_complex:
            values = [tf.stack([tf.math.real(a), tf.math.imag(a)], axis=-1) for a in values]
        for variable, value in zip(self.variables, values, strict=True):
            variable.assign(value)

    def state(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and factor as working values, batch first: `[B, n]` and `[B, n, n]`."""
        mean, chol = (tf.experimental.numpy.moveaxis(a, -1, 0) for a in self.read())
        return mean, chol

    def set_state(self, mean: tf.Tensor, chol: tf.Tensor) -> None:
        """Stores a state, batch first, broadcast to all streams."""
        mean = tf.broadcast_to(mean, [self.streams, *mean.shape[-1:]])
        chol = tf.broadcast_to(chol, [self.streams, *chol.shape[-2:]])
        self.write(State(*(tf.experimental.numpy.moveaxis(a, 0, -1) for a in (mean, chol))))

    # --- one observation -------------------------------------------------------------------------

    def step(self, *arguments: np.ndarray) -> tuple[Marginals, Marginals]:
        """Updates the state with one observation of each stream.

        Returns:
            The moments of the observation before it was seen, and of the signal or state after it;
            NumPy, `[B, m]`.

        Raises:
            ValueError: The new state or a moment would not be finite; the state is unchanged.
        """
        if self._concrete is None:
            self._concrete = self._function.get_concrete_function()
        values = self._concrete(*map(tf.constant, arguments)).numpy()
        if not values[-1].all():
            raise ValueError(NOT_FINITE)
        return self._unpacked(values[: self._split]), self._unpacked(values[self._split : -1])

    def _step(self, *arguments: tf.Tensor) -> tf.Tensor:
        """One step; the moments before and after as real numbers, `[k, B]`.

        The state is written only if it and the moments are finite, which the last row says.
        """
        before = self.read()
        following, *moments = self._advance(before, *arguments)
        # A noise variance that is NaN leaves the state finite: its gain is zero.
        values = [*following, *(found.variance for found in moments)]
        sound = tf.reduce_all([tf.reduce_all(tf.math.is_finite(tf.abs(a))) for a in values])
        self.write(State(*(tf.where(sound, a, b) for a, b in zip(following, before, strict=True))))
        self._has_pseudo = moments[0].pseudo_variance is not None
        predicted, filtered = map(_packed, moments)
        self._split = predicted.shape[0]
        last = tf.fill([1, self.streams], tf.cast(sound, predicted.dtype))
        return tf.concat([predicted, filtered, last], axis=0)

    def _unpacked(self, values: np.ndarray) -> Marginals:
        """Restores the moments from the rows of `_packed`, `[B, m]`."""
        is_complex = self._dtype.is_complex or self._has_pseudo
        count = 2 + is_complex + 2 * self._has_pseudo
        parts = np.moveaxis(values.reshape(count, -1, values.shape[-1]), 1, -1)
        if not is_complex:
            mean, variance = parts
            return Marginals(mean, variance, variance)  # E(x − m)² of a real number is its variance
        mean, variance = parts[0] + 1j * parts[1], parts[2]
        pseudo = parts[3] + 1j * parts[4] if self._has_pseudo else np.zeros_like(mean)
        return Marginals(mean, variance, pseudo)


def _packed(moments: BatchLastMarginals) -> tf.Tensor:
    """Moments as rows of real numbers, `[k, B]`."""
    mean, variance, pseudo = moments
    parts = [tf.math.real(mean), tf.math.imag(mean)] if mean.dtype.is_complex else [mean]
    parts.append(variance)
    if pseudo is not None:
        parts += [tf.math.real(pseudo), tf.math.imag(pseudo)]
    return tf.concat(parts, axis=0)
