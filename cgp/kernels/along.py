"""Kernels of one coordinate, for processes over several."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.base import Kernel
from cgp.kernels.covariance_function import CovarianceFunction
from cgp.kernels.data_scales import StartRules
from cgp.kernels.improper import UnaryCombination
from cgp.kernels.markov import Pair
from cgp.kernels.spectrum import Spectrum
from cgp.linalg.arguments import ArrayLike, check_whole
from cgp.training.parameters import Parameter


@keras.saving.register_keras_serializable(package="cgp.kernels")
class Along(UnaryCombination):
    """A kernel that reads one coordinate of x: `K(x1[axis], x2[axis])`.

    Products of kernels along different axes are separable: a channel over time and frequency, a
    surface, an array. A kernel over one dimension, Markov or not, is a kernel of that coordinate;
    the process is constant along all others, until another factor multiplies it.

    Hyperparameters you leave out are initialised from the data along the axis: where x is a grid,
    from its rows, as from many series over that coordinate.

    Args:
        kernel: A kernel over one dimension.
        axis: The number of the coordinate, from 0.
        name: A name.
        dtype: The dtype of the kernel.

    Raises:
        TypeError: No kernel.
        ValueError: An axis that is no whole number or negative; a kernel of several outputs; when
            evaluated, x without that coordinate.

    Example:
        A channel over time and frequency, x `[N, 2]`:

        >>> from cgp.kernels import Along, ExponentialDelays, Matern32
        >>> fading, echoes = Matern32(1.0, lengthscale=5e-3), ExponentialDelays(2.0, 0.3e-6)
        >>> kernel = Along(fading, axis=0) * Along(echoes, axis=1)
        >>> kernel.covariance([[1e-3, 0.5e6]], [[0.0, 0.0]]).numpy().round(4)
        array([[1.0086-0.9505j]])
    """

    is_stationary = True

    def __init__(
        self,
        kernel: Kernel,
        axis: int,
        *,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(kernel, name=name, dtype=dtype, **kwargs)
        check_whole(axis, "axis", least=0)
        self.axis, self.is_markov = int(axis), False

    def _coordinate(self, x: tf.Tensor) -> tf.Tensor:
        """The coordinate, as points `[..., 1]`."""
        dimensions = x.shape[-1]
        if dimensions is not None and dimensions <= self.axis:
            raise ValueError(
                f"{self!r} reads the coordinate {self.axis} of x, counted from 0, but x has "
                f"{dimensions} dimension{'s' * (dimensions > 1)}"
            )
        return x[..., self.axis : self.axis + 1]

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        return self.kernel.checked_moments(self._coordinate(x1), self._coordinate(x2))

    def carrier_turns(self, x: tf.Tensor) -> tf.Tensor | None:
        """The turns along the coordinate."""
        return self.kernel.carrier_turns(self._coordinate(x))

    def envelope(self, x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:
        """The covariance along the coordinate under its carrier."""
        return self.kernel.envelope(self._coordinate(x1), self._coordinate(x2))

    def spectrum(self) -> Spectrum:
        """The spectrum over the coordinate."""
        return self.kernel.spectrum()

    def check_points(self, x: tf.Tensor) -> None:
        """Raises for points that the kernel does not take."""
        self.kernel.check_points(self._coordinate(x))

    def has_level(self, x: np.ndarray) -> bool:
        """Whether a large constant is likely: yes if it is along the axis."""
        return self.kernel.has_level(x[:, self.axis : self.axis + 1])

    def over_all_dimensions(self) -> Iterator[CovarianceFunction]:
        """The kernels here that read all coordinates of x: none."""
        return iter(())

    def starts(
        self, rules: StartRules, power: float, is_selected: Callable[[Parameter], bool]
    ) -> Iterator[tuple[Parameter, ArrayLike | None]]:
        """Hyperparameters and their starting values, from the data along the axis."""
        with rules.along(self.axis):
            yield from super().starts(rules, power, is_selected)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "axis": self.axis}

    def __repr__(self) -> str:
        return f"Along({self.kernel!r}, axis={self.axis})"
