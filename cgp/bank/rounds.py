"""Samples taken in round by round: the first of each key, then the second of each, and so on.

The states of the keys of a round go through one vectorised step, so many at a time. A graph of that
width is traced once, and fewer samples are filled up to it.
"""

from collections.abc import Callable, Iterator

import numpy as np

from cgp.bank.states import Refused, Rows
from cgp.distributions.marginals import Marginals, Step

WIDTH = 256
"""How many states go through a step together, if they are small."""

Take = Callable[[Rows, np.ndarray, np.ndarray | None], tuple[Rows, Step]]
"""A step of states, `[W, ...]` each, with observations `[W, ...]` and inputs `[W, D]`, or None.

It returns the states after it, and raises a ValueError where one of them fails.
"""


def turns(slots: np.ndarray) -> np.ndarray:
    """How many samples of the same key come before each one, `[B]`."""
    order = np.argsort(slots, kind="stable")
    of_key = slots[order]
    begins = np.flatnonzero(np.append(True, of_key[1:] != of_key[:-1])[: len(of_key)])
    counts = np.diff(np.append(begins, len(of_key)))
    found = np.empty(len(slots), np.int64)
    found[order] = np.arange(len(slots)) - np.repeat(begins, counts)
    return found


def rounds(slots: np.ndarray, width: int) -> Iterator[np.ndarray]:
    """The numbers of samples, at most `width` at a time, of different keys, each key in order."""
    turn = turns(slots)
    ends = np.cumsum(np.bincount(turn))
    for samples in np.split(np.argsort(turn, kind="stable"), ends[:-1]):
        yield from (samples[i : i + width] for i in range(0, len(samples), width))


def in_rounds(
    take: Take,
    rows: Rows,
    slots: np.ndarray,
    z: np.ndarray,
    x: np.ndarray | None,
    results: Step,
    *,
    width: int,
    fill: bool,
) -> Step:
    """Takes samples in, round by round, and changes the states.

    Args:
        take: A step.
        rows: The states of all keys.
        slots: The slot of each sample, `[B]`.
        z: Observations, `[B, ...]`, NaN where missing.
        x: Inputs, `[B, D]`, or None.
        results: Arrays `[B, ...]` to write to.
        width: The most states in one step.
        fill: Whether steps must always have as many.

    Returns:
        The results.

    Raises:
        Refused: A sample whose step fails.
    """

    def step(samples: np.ndarray) -> tuple[Rows, Step]:
        count = len(samples)
        # Those that fill a round up are missing, and their states are not kept.
        at = np.resize(samples, width) if fill else samples
        values = z[at]
        values[count:] = np.nan
        states, found = take(
            {name: a[slots[at]] for name, a in rows.items()}, values, None if x is None else x[at]
        )
        return {name: a[:count] for name, a in states.items()}, found.map(lambda a: a[:count])

    for samples in rounds(slots, width):
        try:
            states, found = step(samples)
        except ValueError as error:
            raise _refusal(step, samples, error) from error
        for name, a in states.items():
            rows[name][slots[samples]] = a
        for to, a in zip(arrays_of(results), arrays_of(found), strict=True):
            to[samples] = a
    return results


def _refusal(
    step: Callable[[np.ndarray], object], samples: np.ndarray, error: ValueError
) -> Exception:
    """What to raise where a step fails: the first sample that fails alone too."""
    for sample in samples:
        try:
            step(np.array([sample]))
        except ValueError as alone:
            return Refused(sample, str(alone), type(alone))
    return error


def arrays_of(step: Step) -> tuple[np.ndarray, ...]:
    """The seven arrays of a step."""
    return (*step.predicted, step.innovation, *step.filtered)


def empty_step(z: np.ndarray, after: np.ndarray) -> Step:
    """Arrays for the results of observations.

    Args:
        z: The observations, `[B, ...]`.
        after: An array of the shape and dtype of the means of signals or states after them.
    """

    def moments(mean: np.ndarray) -> Marginals:
        return Marginals(np.empty_like(mean), np.empty_like(mean.real), np.empty_like(mean))

    return Step(moments(z), np.empty_like(z), moments(after))
