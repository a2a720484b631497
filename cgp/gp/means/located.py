"""What the means have in common whose poles are located anew at each fit."""

import keras
import numpy as np

from cgp.gp.means.base import Mean


class LocatedMean(Mean):
    """A marginalised mean over a line, whose poles a `fit` locates and whose weights keep them.

    A subclass creates the weights `_axis`, an origin and a span of x that poles are in units of,
    and `_mixing`, which makes the columns of its basis orthonormal.
    """

    marginalized = True
    poles_in_words: str
    """What is located, for error messages."""
    axis_in_words: str
    """What x is, for error messages."""
    _weight_dtype: str | None = None
    """The dtype of the weights; None for the dtype of the mean."""
    _axis: keras.Variable
    _mixing: keras.Variable

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
