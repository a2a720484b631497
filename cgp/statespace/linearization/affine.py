"""Affine approximations of functions of uncertain states, and the rules that choose them."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from cgp.statespace.engines.filter_step import State


class Affine(NamedTuple):
    """The approximation `f(x) ≈ A x + b + e` of a function of a state x of known moments.

    The residual e has mean zero, and is not correlated with x. Arrays have the batch last, as all
    have inside of the loops of a filter.

    Example:
        >>> import tensorflow as tf
        >>> from cgp import statespace
        >>> statespace.Affine(tf.ones([1, 2, 3]), tf.zeros([1, 3]), None).matrix.shape
        TensorShape([1, 2, 3])
    """

    matrix: tf.Tensor
    """A, `[m, n, B]`."""
    offset: tf.Tensor
    """b, `[m, B]`."""
    residual: tf.Tensor | None
    """A factor E of the covariance `E Eᴴ` of e, `[m, k, B]`; None where e is zero."""


class Rule(ABC):
    """How a nonlinear function of an uncertain state is approximated by an affine one.

    A rule of your own is a subclass, a frozen dataclass of numbers and rules, with the method
    `linearize`. All verbs and `KalmanFilter` take it as `rule=`, and `Iterated` iterates it. A
    layer with such a rule is saved and loaded where the class of the rule is registered with Keras,
    by `keras.saving.register_keras_serializable`.

    States and values are real, or complex where the model is `holomorphic`: complex states of other
    models come as their real composites `[Re x; Im x]`.

    Example:
        >>> import dataclasses
        >>> import tensorflow as tf
        >>> from cgp import statespace
        >>> @dataclasses.dataclass(frozen=True)
        ... class Chord(statespace.Rule):
        ...     reach: float = 1.0
        ...
        ...     def linearize(self, function, state):
        ...         mean, step = state.mean[:, None], self.reach * state.chol  # of one component
        ...         above, below = function(mean + step), function(mean - step)
        ...         slope = (above - below) / (2 * step)
        ...         return statespace.Affine(slope, (function(mean) - slope * mean)[:, 0], None)
        >>> model = statespace.NonlinearGaussian(
        ...     lambda x: x, tf.round, [[0.0]], [[0.1]], [0.2], [[1.0]]
        ... )
        >>> filtered = statespace.filter(model, [1.0], rule=Chord())  # the slope of steps is zero
        >>> filtered.filtered_means.numpy().round(3)
        array([[1.109]])
    """

    iterations: int = 0
    """How often a filter linearises again by the posterior moments; see `Iterated`."""
    damping: float = 0.0
    """The share of the last mean that the next one keeps; see `Iterated`."""

    @abstractmethod
    def linearize(self, function: Callable[[tf.Tensor], tf.Tensor], state: State) -> Affine:
        """Approximates a function by the moments of its argument.

        Args:
            function: The function of K points for each state of the batch, `[n, K, B]` ->
                `[m, K, B]`.
            state: The moments, of one dtype with points and values.

        Returns:
            The approximation.
        """

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, by name: the fields of a dataclass."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
