"""The checks of a cell, of its series and of its first state, where a driver takes them."""

from typing import Any

import keras
import tensorflow as tf

from cgp.online.cell import Cell, Sample
from cgp.online.steps import checked_initial


def cell_of(estimator: Any, driver: str) -> Cell:
    """The cell of an estimator, or a cell itself.

    Raises:
        TypeError: Neither; a cell without a `State`.
    """
    cell = estimator if isinstance(estimator, Cell) else getattr(estimator, "cell", None)
    if isinstance(estimator, type) or not isinstance(cell, Cell):
        got = estimator if isinstance(estimator, type) else type(estimator).__name__
        raise TypeError(
            f"{driver} must be a KalmanFilter, a RecursiveGP, a StateSpaceGP or a "
            f"cgp.online.Cell, got {got}"
        )
    check_state_type(cell)
    return cell


def check_state_type(cell: Cell) -> None:
    """Raises a TypeError for a cell whose `State` is not a class of named tuples."""
    state_type = getattr(cell, "State", None)
    if not isinstance(state_type, type) or not hasattr(state_type, "_fields"):
        raise TypeError(
            f"{type(cell).__name__}.State must be a class of named tuples, got {state_type!r}"
        )


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
