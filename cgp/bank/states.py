"""What a bank asks of an estimator: how the states of its keys begin, and take samples in.

The states of all keys are arrays by name, `rows`, whose first axis is the slot. They are changed in
place; the bank puts them back where a call fails.
"""

from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from cgp.distributions.marginals import Step

Rows: TypeAlias = dict[str, np.ndarray]
Fields: TypeAlias = dict[str, tuple[tuple[int, ...], np.dtype]]
"""The shape of one state, and the dtype, by name; factors are called `chol`."""


class Refused(Exception):
    """A sample that cannot be taken in.

    Args:
        sample: Its number among those given.
        message: What is wrong with it.
        kind: The error that the bank raises, which names the key.
    """

    def __init__(self, sample: int, message: str, kind: type[ValueError] = ValueError):
        super().__init__(message)
        self.sample, self.kind = int(sample), kind


class States(Protocol):
    """The states of streams of one estimator."""

    @property
    def dimensions(self) -> int | None:
        """Of the inputs x of samples: 0 if there are none, None if the first samples decide."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one observation; an axis of one component may be left out."""

    def fields(self, dimensions: int) -> Fields:
        """What a state consists of, for inputs of D dimensions."""

    def structure(self) -> dict[str, Any]:
        """What tells the model from others whose states mean something else, as JSON values.

        Without the values of hyperparameters, and the same in other processes.
        """

    def values(self) -> bytes:
        """The hyperparameters that states belong to; none if they go on with others."""

    def checked(self, z: Any, x: np.ndarray | None) -> np.ndarray:
        """Observations in the dtype of the estimator, NaN where missing.

        Args:
            z: As they were given, `[B, ...]`.
            x: Inputs, in the dtype of the estimator, `[B, D]`, or None.

        Raises:
            TypeError: Observations of another dtype.
            ValueError: Observations or inputs that the estimator refuses.
        """

    def begin(self, rows: Rows, slots: np.ndarray, z: np.ndarray, x: np.ndarray | None) -> None:
        """Sets the states of new keys, given the first sample of each, `[K, ...]`.

        Raises:
            Refused: One of these samples, with which no state can begin.
        """

    def take(self, rows: Rows, slots: np.ndarray, z: np.ndarray, x: np.ndarray | None) -> Step:
        """Takes samples in, in their order, each into the state in its slot.

        Raises:
            Refused: One of them cannot be taken in; states have been changed.
        """

    def renew(self, rows: Rows, slots: np.ndarray) -> None:
        """Brings states to the present hyperparameters.

        Raises:
            ValueError: They cannot be; nothing has been changed.
        """

    def shown(self, rows: Rows) -> NamedTuple:
        """States, `[K, ...]` each, as the estimator shows its own."""

    def working(self, state: tuple[np.ndarray, ...]) -> Rows:
        """Shown states as they are kept; shapes and values are checked afterwards."""

    def completed(self, rows: Rows) -> Rows:
        """States that were given, with what follows from the rest at the present hyperparameters.

        Args:
            rows: Arrays of the right shapes, each `[K, ...]` or one for all.

        Raises:
            ValueError: States that the estimator cannot have.
        """


def with_parts(mean: np.ndarray) -> np.ndarray:
    """Complex vectors `[..., n]` as real ones, `[..., 2n]`, the real parts first."""
    return np.concatenate([mean.real, mean.imag], axis=-1)


def of_parts(mean: np.ndarray) -> np.ndarray:
    """`with_parts` undone, to the last bit."""
    n = mean.shape[-1] // 2
    found = np.empty((*mean.shape[:-1], n), np.result_type(mean, np.complex64))
    found.real, found.imag = mean[..., :n], mean[..., n:]
    return found
