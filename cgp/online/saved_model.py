"""The step of a cell as a SavedModel."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cgp.online.cell import Cell, Outputs, Sample, advance
from cgp.online.steps import step_outputs
from cgp.training.saving import ServedStep


def served_step(cell: Cell, streams: int | None) -> ServedStep:
    """The step of a SavedModel, which takes one sample of each stream.

    Args:
        cell: The cell.
        streams: B, or None for one stream, whose samples have no batch axis.
    """
    axes = [] if streams is None else [streams]
    spec = cell.sample_spec()
    # The noise of single samples is not asked for; places come first, as in `step(x, z)`.
    names = ("x", "z", "inputs", "group")
    fields = [name for name in names if getattr(spec, name) is not None]

    def sample_of(arguments: Sequence[tf.Tensor]) -> Sample:
        sample = Sample(**dict(zip(fields, arguments, strict=True)))
        if streams is None:
            sample = sample.map(lambda a: a[None])
        return sample if spec.x is None else sample._replace(x=tf.reshape(sample.x, places))

    def step(state: Any, *arguments: tf.Tensor) -> tuple[Any, Outputs]:
        after, result = advance(cell, state, sample_of(arguments))
        sound = tf.debugging.Assert(cell.is_sound(after, result), [cell.unsound])
        with tf.control_dependencies([sound]):
            after = tf.nest.map_structure(tf.identity, after)
        if streams is None:
            result = result.map(lambda a: a[0])
        return after, step_outputs(result)

    def check(state: Any, *arguments: tf.Tensor) -> list[tf.Operation]:
        return cell.assertions(state, sample_of(arguments))

    places = [streams or 1, *(() if spec.x is None else spec.x.shape)]
    specs = []
    for name in fields:
        of_one = getattr(spec, name)
        is_number = name == "x" and streams is None and list(of_one.shape) == [1]
        shape = [] if is_number else of_one.shape  # a place of a line is a number, as for `step`
        specs.append(tf.TensorSpec([*axes, *shape], of_one.dtype, of_one.name or name))
    return ServedStep(step, specs, check)
