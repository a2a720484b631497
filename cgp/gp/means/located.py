"""What the means have in common whose poles are located anew at each fit."""

from typing import Any

import keras
import numpy as np

from cgp.gp.means.base import Mean
from cgp.training.saving import numbered


class FitRecords:
    """The estimates that belong to the weights of the last fit, and to those before it.

    Their sizes depend on the number of series, so that they are no weights. A fit that fails
    restores the weights from before, whose estimates are here then too.

    Args:
        kind: The named tuple of the estimates, numbers and arrays.
        complex_fields: The names of its complex fields.
    """

    def __init__(self, kind: Any, complex_fields: tuple[str, ...]) -> None:
        self._kind, self._complex = kind, complex_fields
        self._records: list[tuple[np.ndarray, Any]] = []

    def replace(self, previous: np.ndarray, weights: np.ndarray, estimates: Any) -> None:
        """Keeps estimates that belong to weights, in one row, and those of the previous weights."""
        present = self.of(previous)
        self._records = [(weights, estimates)]
        if present is not None:
            self._records.append((previous, present))

    def of(self, weights: np.ndarray) -> Any:
        """The estimates that belong to the values of weights; None where there are none."""
        for recorded, estimates in self._records:
            if np.array_equal(recorded, weights):
                return estimates
        return None

    def arrays(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """The estimates of weights as real arrays by name, for a file, if there are some."""
        estimates = self.of(weights)
        if estimates is None:
            return {}
        arrays = {"located": weights}
        for name, estimate in estimates._asdict().items():
            a = np.asarray(estimate)
            arrays[name] = np.stack([a.real, a.imag], axis=-1) if name in self._complex else a
        return arrays

    def load(self, arrays: Any) -> None:
        """Replaces all by what `arrays` gave; by nothing for a file of an earlier version."""
        self._records = []
        if not set(arrays.keys()).issuperset(("located", *self._kind._fields)):
            return
        estimates: dict[str, Any] = {}
        for name in self._kind._fields:
            a = np.asarray(arrays[name], float)
            if name in self._complex:
                a = a[..., 0] + 1j * a[..., 1]
            estimates[name] = a if a.ndim else a.item()
        self._records = [(np.asarray(arrays["located"]), self._kind(**estimates))]


class LocatedMean(Mean):
    """A marginalised mean over a line, whose poles a `fit` locates and whose weights keep them.

    A subclass creates the weights `_axis`, an origin and a span of x that poles are in units of,
    `_located_poles`, and `_mixing`, which makes the columns of its basis orthonormal; and
    `_records`, the estimates with errors that belong to them.
    """

    marginalized = True
    poles_in_words: str
    """What is located, for error messages."""
    axis_in_words: str
    """What x is, for error messages."""
    _weight_dtype: str | None = None
    """The dtype of the weights; None for the dtype of the mean."""
    _axis: keras.Variable
    _located_poles: keras.Variable
    _mixing: keras.Variable
    _records: FitRecords

    def _weight(self, name: str, *shape: int) -> keras.Variable:
        """A weight that is not trained."""
        dtype = self._weight_dtype or self.variable_dtype
        return self.add_weight(
            name=name, shape=shape, initializer="zeros", dtype=dtype, trainable=False
        )

    def _origin_and_span(self) -> tuple[float, float]:
        """The origin and the span of x, which is 0 before the first fit, an error."""
        origin, span = (float(number) for number in self._axis.numpy())
        if not span > 0:
            raise ValueError(
                f"the {self.poles_in_words} of {self!r} have not been located: fit(x, z) locates "
                "them, and takes the data in"
            )
        return origin, span

    def _located_weights(self) -> list[keras.Variable]:
        """The weights that a fit locates."""
        return [self._axis, self._located_poles]

    def _located(self) -> np.ndarray:
        """The values of the weights that a fit locates, in one row."""
        return np.concatenate([np.ravel(weight.numpy()) for weight in self._located_weights()])

    def _estimates(self) -> Any:
        """The estimates with errors, or an error if no fit located the weights."""
        self._origin_and_span()
        estimates = self._records.of(self._located())
        if estimates is None:
            raise ValueError(
                f"the errors of the {self.poles_in_words} of {self!r} do not belong to its "
                "weights, which were set, or are from a file of an earlier version, which saved no "
                "errors: fit(x, z) again"
            )
        return estimates

    def save_own_variables(self, store: Any) -> None:
        """Saves the weights, and the estimates with errors."""
        super().save_own_variables(store)
        for name, a in self._records.arrays(self._located()).items():
            store[name] = a

    def load_own_variables(self, store: Any) -> None:
        """Loads the weights, and the estimates with errors where the file has them."""
        super().load_own_variables(numbered(store))
        self._records.load(store)

    def _check_common(self, x: np.ndarray) -> None:
        """Raises a ValueError unless all series have the same inputs, of one dimension."""
        if len(x) > 1:
            raise ValueError(
                f"{self!r} has one set of {self.poles_in_words} for all series, and needs common "
                f"inputs; got inputs of their own for {len(x)} series"
            )
        self._check_dimensions(x.shape[-1])

    def _check_dimensions(self, dimensions: int | None) -> None:
        if dimensions not in (1, None):
            raise ValueError(
                f"{self!r} is over a {self.axis_in_words} axis: x must have one dimension, got "
                f"{dimensions}"
            )

    def used(self, columns: np.ndarray) -> np.ndarray:
        """The columns of a basis but for derivatives by poles held by their prior or a bound."""
        return columns[:, self._mixing.numpy().any(axis=(0, 2))]
