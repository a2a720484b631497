"""An affine approximation of a function of an uncertain state, and what makes one."""

from typing import NamedTuple, Protocol

import tensorflow as tf

from cgp.statespace.engines.filter_step import State
from cgp.statespace.models.functions import Function


class Affine(NamedTuple):
    """`f(x) ≈ A x + b + e` for a state x of known moments, e of mean zero and uncorrelated with x.

    Working values, batch last.
    """

    matrix: tf.Tensor
    """A, `[m, n, B]`."""
    offset: tf.Tensor
    """b, `[m, B]`."""
    residual: tf.Tensor | None
    """E, `[m, k, B]`, with `E Eᴴ` the covariance of e; None for zero."""


class Rule(Protocol):
    """What chooses an affine approximation by the moments of the state."""

    def linearize(self, function: Function, state: State) -> Affine:
        """The approximation of a function of a state of these moments."""


def values_at(function: Function, points: tf.Tensor) -> tf.Tensor:
    """Evaluates a function, `[n, K, B]` -> `[m, K, B]`."""
    values = function(tf.einsum("nkb->bkn", points))
    return tf.einsum("bkm->mkb", values)
