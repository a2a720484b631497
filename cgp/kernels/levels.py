"""The kernel of an axis of labels: antennas, polarisations, sensors without a distance."""

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.base import Kernel
from cgp.kernels.data_scales import DataScales, StartRules
from cgp.kernels.markov import Pair
from cgp.kernels.outputs import trapezoidal
from cgp.linalg.arguments import ArrayLike, check_whole

_SHRINKAGE = 0.05  # of correlations in the data, from which a start is made


@keras.saving.register_keras_serializable(package="cgp.kernels")
class Levels(Kernel):
    """A free Hermitian covariance between labels 0 to L − 1, in place of a function of a distance.

    `K(i, j) = B_ij` with `B = A Aᴴ`, A lower triangular with a positive diagonal, and `B_00 = 1`:
    the other factors of a product have the variance. It is the kernel along an axis of antennas or
    polarisations, `Along(Levels(4), axis)`; the same process is the `Coregionalized` one of L
    sources, over outputs.

    A factor that was left out starts from the second moments of the data over the axis.

    Args:
        levels: L, the number of labels, at least 2.
        factor: A, complex `[L, L]`, lower triangular, with 1 as its first element and a positive
            diagonal; None to start from the data.
        fixed: Names of parameters that are not trained, "factor".
        priors: TFP distributions by name; of "factor" over its `[L, L, 2]` real and imaginary
            parts.
        name: A name.
        dtype: "float64" or "float32".

    Raises:
        TypeError: A number of levels that is not whole.
        ValueError: Fewer than two levels; a factor of another form. When evaluated, x of another
            dimension than one, or that are no labels.

    Example:
        >>> from cgp.kernels import Levels
        >>> Levels(2, factor=[[1.0, 0.0], [0.5j, 0.5]]).covariance([0, 1]).numpy()
        array([[1. +0.j , 0. -0.5j],
               [0. +0.5j, 0.5+0.j ]])
    """

    def __init__(
        self,
        levels: int,
        factor: ArrayLike | None = None,
        *,
        fixed: str | Iterable[str] = (),
        priors: Mapping[str, Any] | None = None,
        name: str | None = None,
        dtype: str = "float64",
        **kwargs: Any,
    ):
        super().__init__(name=name, dtype=dtype, **kwargs)
        check_whole(levels, "levels", least=2)
        self.levels = int(levels)
        # Gains of L sources, all of which have one unit.
        constraint = trapezoidal(self.levels, self.levels, 0)._replace(unit_of_outputs=None)
        if factor is not None and np.shape(factor) != (levels, levels):
            raise ValueError(f"factor must be [{levels}, {levels}], got shape {np.shape(factor)}")
        self.declare_parameters({"factor": (factor, constraint)}, fixed, priors)

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        factor = self.factor.value
        covariance = tf.linalg.matmul(factor, factor, adjoint_b=True)
        first, second = (self._labels(x) for x in (x1, x2))
        zero = tf.zeros_like(first + second)
        return tf.gather_nd(covariance, tf.stack([first + zero, second + zero], axis=-1)), None

    def checked_moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """The moments between points, or an error where these are no labels."""
        if tf.executing_eagerly():
            self.check_points(x1)
            self.check_points(x2)
        return super().checked_moments(x1, x2)

    def _labels(self, x: tf.Tensor) -> tf.Tensor:
        """The labels of points `[..., 1]`, int32 `[...]`."""
        if x.shape[-1] not in (1, None):
            raise ValueError(f"{self!r} needs labels, x of one dimension, got {x.shape[-1]}")
        return tf.cast(tf.round(x[..., 0]), tf.int32)

    def check_points(self, x: tf.Tensor) -> None:
        """Raises for points that are no labels."""
        labels = np.asarray(x)
        is_label = (labels == np.round(labels)) & (labels >= 0) & (labels < self.levels)
        if not np.all(is_label):
            raise ValueError(
                f"the coordinates of {self!r} must be labels, whole numbers from 0 to "
                f"{self.levels - 1}, got {labels[~is_label].flat[0]:g}"
            )

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The start of the factor: that of the second moments of the data over the axis."""
        if name != "factor":
            return super().start_of(name, rules)
        start = _factor_of_moments(rules.scales, self.levels)
        if rules.draw is not None:
            # Other phases and sizes of the correlations, which keep the form.
            for row, column in zip(*np.tril_indices(self.levels, -1), strict=True):
                turn = np.exp(1j * np.pi * (rules.uniform() - 0.5))
                start[row, column] *= rules.scattered(1.0, 1.0) * turn
        return start

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "levels": self.levels}

    def __repr__(self) -> str:
        return f"Levels({self.levels}, {self.factor!r})"


def _factor_of_moments(scales: DataScales, levels: int) -> np.ndarray:
    """The factor of the mean of `z zᴴ` over rows `[B, n]` of data at labels `[n, 1]`."""
    moments = np.eye(levels, dtype=complex)
    labels = scales.x[:, 0]
    if scales.x.shape[1] == 1 and np.isin(labels, range(levels)).all():
        at = labels.astype(int)
        present = (~np.isnan(scales.z)).astype(float)
        z, pairs = np.nan_to_num(scales.z), present.T @ present
        of_data = (z.T @ z.conj()) / np.maximum(pairs, 1.0)
        sizes = np.sqrt(np.maximum(np.diag(of_data).real, 1e-300))
        correlation = (1.0 - _SHRINKAGE) * of_data / np.outer(sizes, sizes)
        # Pairs that are seldom complete together may make it indefinite.
        powers, vectors = np.linalg.eigh(correlation)
        correlation = (vectors * np.maximum(powers, _SHRINKAGE)) @ vectors.conj().T
        sizes = np.maximum(sizes, 1e-3 * sizes.max())
        moments[np.ix_(at, at)] = correlation * np.outer(sizes, sizes)
    factor = np.linalg.cholesky(moments)
    return np.tril(factor / factor[0, 0])
