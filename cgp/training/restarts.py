"""Several descents from different starts, of which the best counts."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from cgp.training.batches import where_watched
from cgp.training.descent import Descent
from cgp.training.divergence import is_indefinite, trained
from cgp.training.objective import Objective


class Optimum(NamedTuple):
    """Where a descent ended."""

    loss: float
    point: np.ndarray
    """The trainable variables, one after the other, float64."""


def search(
    loss: Objective,
    candidates: Sequence[np.ndarray],
    count: int,
    optimizer: Any,
    *,
    cap: int | None = None,
    scale: np.ndarray | None = None,
    verbose: int | str = "auto",
) -> list[Optimum]:
    """Minimises a loss from its start and from the best of some candidates.

    A loss with many optima is evaluated at all candidates, which costs little beside a descent.

    Args:
        loss: The loss; its variables are left anywhere.
        candidates: Points to start from.
        count: Descents in all, at least 1: one from `loss.start`.
        optimizer: `cgp.optimizers.LBFGS`.
        cap: The largest number of iterations of each, or None.
        scale: A direction in which the loss, per point, is that of a normal density whose
            covariance is multiplied by eᵗ at distance t: candidates are moved to the best t, which
            is known in closed form. None without one.
        verbose: 0 or 2 is silent, 1 a progress bar, "auto" one where it is watched.

    Returns:
        The optima, the best first; fewer than `count` where the loss has no value at candidates.
    """
    silent = 0 if where_watched(verbose) in (0, 2) else 1
    bar = keras.utils.Progbar(count, verbose=silent, unit_name="start", stateful_metrics=["loss"])
    starts = [loss.start, *_best(loss, candidates, count - 1, scale)]
    variables = trained(loss.model)
    found: list[Optimum] = []
    for number, start in enumerate(starts):
        descent = _attempt(functools.partial(Descent, loss, variables, start))
        if descent is not None:
            descent.run(optimizer, cap)
            found.append(Optimum(descent.value, descent.point))
            found.sort(key=lambda optimum: optimum.loss)
        if found:
            done = number + 1 == len(starts)
            bar.update(count if done else number + 1, [("loss", found[0].loss)], finalize=done)
    return found


def _best(
    loss: Objective, candidates: Sequence[np.ndarray], count: int, scale: np.ndarray | None
) -> list[np.ndarray]:
    """The `count` candidates of the lowest loss, the lowest first."""
    ranked = []
    for number, point in enumerate(candidates):
        found = _attempt(functools.partial(loss, point))
        if found is None or not np.all(np.isfinite([found[0], *found[1]])):
            continue
        value, gradient = found
        if scale is not None:
            # The loss c + log s + q/s of a covariance times s is least at s = q, and its slope by
            # log s is 1 − q at s = 1.
            square = 1.0 - float(gradient @ scale)
            if square > 0:
                value += np.log(square) + 1.0 - square
                point = point + np.log(square) * scale
        ranked.append((value, number, point))
    return [point for _, _, point in sorted(ranked, key=lambda one: one[:2])[:count]]


def _attempt(function: Callable[[], Any]) -> Any:
    """What a function returns, or None where the loss has no value."""
    try:
        return function()
    except (tf.errors.InvalidArgumentError, ValueError) as error:
        if is_indefinite(error) or "must be finite" in str(error):
            return None
        raise
