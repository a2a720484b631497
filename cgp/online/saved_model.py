"""The step of a cell as a SavedModel."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cgp.online.cell import Cell, Outputs, Sample, advance, step_outputs
from cgp.training.serving import Online


def served_step(cell: Cell, streams: int | None) -> Online:
    """How a SavedModel takes one sample of each stream in.

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
        return sample if streams is not None else sample.map(lambda a: a[None])

    def step(state: Any, *arguments: tf.Tensor) -> tuple[Any, Outputs]:
        after, result = advance(cell, state, sample_of(arguments))
        if streams is None:
            result = result.map(lambda a: a[0])
        return after, step_outputs(result)

    def check(state: Any, *arguments: tf.Tensor) -> list[tf.Operation]:
        return cell.assertions(state, sample_of(arguments))

    specs = [
        tf.TensorSpec([*axes, *getattr(spec, name).shape], getattr(spec, name).dtype, name)
        for name in fields
    ]
    return Online(step, specs, check)
