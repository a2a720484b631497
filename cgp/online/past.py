"""The latest steps of a stream, so that a sample which arrives late is taken at its own time."""

from typing import NamedTuple

import numpy as np

from cgp.online.cell import Sample


class PastStep(NamedTuple):
    """A step that a stream has taken."""

    sample: Sample
    state: list[np.ndarray]
    """The state before it, as stored."""
    advances: bool = True
    """Whether it leads to a later time; False for an update before another one of its time."""


class Past:
    """The steps of the latest times of a stream.

    Args:
        horizon: How many times before the latest one are kept; memory grows with it.
    """

    def __init__(self, horizon: int):
        self.horizon = horizon
        self.steps: list[PastStep] = []

    def append(self, step: PastStep) -> None:
        """Adds the step that has just been taken, and forgets steps beyond the horizon."""
        self.steps.append(step)
        ends = self._ends_of_times()
        if len(ends) > self.horizon + 1:
            del self.steps[: ends[-2 - self.horizon] + 1]

    def end_of_time(self, steps_ago: int) -> int | None:
        """The number of the last step of a time; None for a time that is not kept.

        Args:
            steps_ago: How many times before the latest one.
        """
        ends = self._ends_of_times()
        return ends[-1 - steps_ago] if steps_ago < len(ends) else None

    def _ends_of_times(self) -> list[int]:
        return [number for number, step in enumerate(self.steps) if step.advances]
