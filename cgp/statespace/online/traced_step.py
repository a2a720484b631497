"""The step of an online filter as a compiled TensorFlow graph, where there is no compiled core."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from cgp.distributions.marginals import Marginals
from cgp.statespace.engines.filter_step import BatchLastMarginals, State
from cgp.statespace.online.native_step import NOT_FINITE
from cgp.statespace.online.stream_state import StreamState


class TracedStep:
    """A graph that updates the state of an online filter with one observation of each stream.

    It returns one array of real numbers, which is faster than six arrays.

    Args:
        state: The state.
        advance: Function of a `State` and of the arguments of a step. It returns the next state and
            the `BatchLastMarginals` of the observation before, and of the signal or state after.
        signature: `tf.TensorSpec` of the arguments of a step.
        jit: Whether the step may be compiled by XLA.
    """

    def __init__(
        self,
        state: StreamState,
        advance: Callable[..., tuple[State, BatchLastMarginals, BatchLastMarginals]],
        signature: Sequence[tf.TensorSpec],
        jit: bool,
    ):
        self._state, self._advance = state, advance
        self._has_pseudo, self._split = [False, False], 0
        function = tf.function(
            lambda *arguments: self._step(*arguments),
            input_signature=list(signature),
            jit_compile=jit,
            autograph=False,
        )
        # Calling a concrete function takes half the time.
        self._concrete = function.get_concrete_function()

    def __call__(self, *arguments: np.ndarray) -> tuple[Marginals, Marginals]:
        """Updates the state with one observation of each stream.

        Returns:
            The moments of the observation before it was seen, and of the signal or state after it;
            NumPy, `[B, m]`.

        Raises:
            ValueError: The new state or a moment would not be finite; the state is unchanged.
        """
        values = self._concrete(*map(tf.constant, arguments)).numpy()
        if not values[-1].all():
            raise ValueError(NOT_FINITE)
        parts = (values[: self._split], values[self._split : -1])
        predicted, filtered = map(self._unpacked, parts, self._has_pseudo)
        return predicted, filtered

    def _step(self, *arguments: tf.Tensor) -> tf.Tensor:
        """One step; the moments before and after as real numbers, `[k, B]`.

        The state is written only if it and the moments are finite, which the last row says.
        """
        before = self._state.read()
        following, *moments = self._advance(before, *arguments)
        # A noise variance that is NaN leaves the state finite: its gain is zero.
        values = [*following, *(found.variance for found in moments)]
        sound = tf.reduce_all([tf.reduce_all(tf.math.is_finite(tf.abs(a))) for a in values])
        kept = (tf.where(sound, a, b) for a, b in zip(following, before, strict=True))
        self._state.write(State(*kept))
        self._has_pseudo = [found.pseudo_variance is not None for found in moments]
        predicted, filtered = map(_packed, moments)
        self._split = predicted.shape[0]
        last = tf.fill([1, self._state.streams], tf.cast(sound, predicted.dtype))
        return tf.concat([predicted, filtered, last], axis=0)

    def _unpacked(self, values: np.ndarray, has_pseudo: bool) -> Marginals:
        """Restores the moments from the rows of `_packed`, `[B, m]`."""
        is_complex = self._state.dtype.is_complex or has_pseudo
        count = 2 + is_complex + 2 * has_pseudo
        parts = np.moveaxis(values.reshape(count, -1, values.shape[-1]), 1, -1)
        if not is_complex:
            mean, variance = parts
            return Marginals(mean, variance, variance)  # E(x − m)² of a real number is its variance
        mean, variance = parts[0] + 1j * parts[1], parts[2]
        pseudo = parts[3] + 1j * parts[4] if has_pseudo else np.zeros_like(mean)
        return Marginals(mean, variance, pseudo)


def _packed(moments: BatchLastMarginals) -> tf.Tensor:
    """Moments as rows of real numbers, `[k, B]`."""
    mean, variance, pseudo = moments
    parts = [tf.math.real(mean), tf.math.imag(mean)] if mean.dtype.is_complex else [mean]
    parts.append(variance)
    if pseudo is not None:
        parts += [tf.math.real(pseudo), tf.math.imag(pseudo)]
    return tf.concat(parts, axis=0)
