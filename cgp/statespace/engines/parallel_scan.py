"""Associative scans over all steps of a series at once.

Arrays have time as the last axis but one, `[n, n, T, B]`, so that the algebra of matrices with the
batch axis last goes over all steps in one operation.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf


def over_steps(values: Any) -> Any:
    """A named tuple of arrays with time as their last axis but one, from those with time first."""
    moved = (None if a is None else tf.experimental.numpy.moveaxis(a, 0, -2) for a in values)
    return type(values)(*moved)


def scan(combine: Callable[[Any, Any], Any], elements: Any, reverse: bool = False) -> Any:
    """The combination of the elements up to each one or, reversed, of those from each one on.

    In 2 log₂ T passes, which together combine twice as often as a loop (Blelloch, *Prefix Sums and
    Their Applications*, 1990).

    Args:
        combine: An associative function of the elements of earlier steps and of later ones, always
            the same object: it is traced once.
        elements: A named tuple of arrays.
        reverse: Whether to combine each with those after it, in place of those before.

    Raises:
        ValueError: A length that is not known while a graph is traced.
    """
    length = elements[0].shape[-2]
    if length == 1:
        return elements
    if length is None:
        raise ValueError(
            "parallel=True needs the length of the series where a graph is traced, which depends "
            "on it: give tf.function an input signature with T steps, or leave parallel out"
        )
    # Loading it takes longer than loading all of cgp.
    from tensorflow_probability import math as tfp_math

    kind: Any = type(elements)
    traced = _traced(combine, kind, *((a.dtype, *a.shape[:-2]) for a in elements))

    def of_each(first: Any, then: Any) -> Any:
        combined = traced(then, first) if reverse else traced(first, then)
        for a, like in zip(combined, first, strict=True):
            a.set_shape(like.shape)  # which the traced function does not know
        return combined

    if not reverse:
        return tfp_math.scan_associative(of_each, elements, axis=-2)
    return _reversed(tfp_math.scan_associative(of_each, _reversed(elements), axis=-2))


@functools.lru_cache(maxsize=64)
def _traced(
    combine: Callable[[Any, Any], Any], kind: type, *axes_of_each: tuple[Any, ...]
) -> Callable[[Any, Any], Any]:
    """`combine`, traced once for all lengths and batches: eagerly each operation costs a launch.

    Args:
        combine: The function.
        kind: Of named tuple, its arguments and its value.
        *axes_of_each: The dtype and the axes of each array but the last two.
    """
    spec = kind(*(tf.TensorSpec([*axes, None, None], dtype) for dtype, *axes in axes_of_each))
    return tf.function(combine, input_signature=[spec, spec], autograph=False)


def _reversed(values: Any) -> Any:
    return type(values)(*(tf.reverse(a, [a.shape.rank - 2]) for a in values))
