"""The checks of a cell, of its series and of its first state, where a driver takes them."""

from typing import Any

import keras
import tensorflow as tf

from cgp.online.cell import Cell, Sample
from cgp.online.steps import checked_initial


def cell_of(estimator: Any, driver: str) -> Cell:
    """The cell of an estimator, or a cell itself.

    Raises:
        TypeError: Neither.
    """
    cell = estimator if isinstance(estimator, Cell) else getattr(estimator, "cell", None)
    if isinstance(estimator, type) or not isinstance(cell, Cell):
        got = estimator if isinstance(estimator, type) else type(estimator).__name__
        raise TypeError(
            f"{driver} must be a KalmanFilter, a RecursiveGP, a StateSpaceGP or a "
            f"cgp.online.Cell, got {got}"
        )
    return cell


def series_of(cell: Cell, inputs: Any) -> Sample:
    """`cell.series`, of arrays alone.

    Raises:
        TypeError, ValueError: As for `Cell.series`; another container.
    """
    are_arrays = all(hasattr(a, "shape") for a in keras.tree.flatten(inputs))
    if not are_arrays or isinstance(inputs, dict):
        raise TypeError(
            "series must be an array, or a tuple of arrays such as (x, z) of a process, got a "
            f"{type(inputs).__name__}"
        )
    return cell.series(inputs)


def initial_state_of(cell: Cell, samples: Sample) -> Any:
    """The initial state of the streams of series `[B, T, ...]`, in the form that a cell has."""
    state = cell.initial_state(tf.shape(samples.z)[0], samples.map(lambda a: a[:, 0]))
    return checked_initial(cell, state, samples.z.shape[0])
