"""The base class of mean functions."""

from typing import Any

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import ArrayLike
from cgp.training.hyperparameters import HyperparameterLayer


class Mean(HyperparameterLayer):
    """The base class of mean functions. Models given the same mean share its coefficients.

    Args:
        name: A name for its parameters, as in `gp.parameters()`; "mean" by default.
        dtype: "float64" (complex128 values) or "float32" (complex64).
    """

    has_real_coefficients = False
    """Whether the coefficients of a marginalised trend are real. The posterior of such a trend is
    improper, and the process is with it."""

    def evaluate(self, x: tf.Tensor) -> tf.Tensor | None:
        """Evaluates the mean at points `[..., N, D]`: complex, `[..., N]`, or None for zero."""
        return None

    def basis(self, x: tf.Tensor) -> tf.Tensor | None:
        """The basis functions of a marginalised trend: complex, `[..., N, q]`, or None.

        A column that is zero for every x is of no effect (see `used`).
        """
        return None

    def used(self, columns: np.ndarray) -> np.ndarray:
        """The columns of a basis, `[N, q]`, that are not zero for every x; by default all.

        Zeros at the points of some data do not tell: they leave a coefficient undetermined.
        """
        return columns

    def check_determined(
        self, x: tf.Tensor, present: np.ndarray, *, leave_out: bool = False
    ) -> None:
        """Raises, eagerly, where data do not determine the marginalised coefficients.

        Args:
            x: Inputs, `[X, N, D]`, X being 1 or G.
            present: Bool, `[G, N]`: where there are targets, for each covariance.
            leave_out: Whether all but any one of the points must determine them too.

        Raises:
            ValueError: Too few different x for the coefficients.
        """
        basis = self.basis(x)
        if basis is None:
            return
        bases = np.broadcast_to(basis.numpy(), (len(present), *basis.shape[1:]))
        for columns, keep in zip(bases, present, strict=True):
            columns = self.used(columns)
            columns = columns[keep] / np.maximum(np.abs(columns).max(axis=0), 1e-300)
            points, needed = columns.shape
            rows = rows_of(columns, self.has_real_coefficients)
            rank = np.linalg.matrix_rank(rows)
            if rank < needed:
                kind = "real " if self.has_real_coefficients else ""
                raise ValueError(
                    f"a trend of {needed} {kind}coefficients is not determined: it needs more "
                    f"different x, {points} points determine {rank} of them"
                )
            # A point of leverage 1 is alone in determining some part of the trend.
            parts = np.linalg.qr(rows)[0].reshape(-1, points, needed).swapaxes(0, 1)
            leverage = np.linalg.norm(parts, ord=2, axis=(1, 2)) ** 2
            if leave_out and leverage.max() > 1.0 - 1e-9:
                raise ValueError(
                    f"a trend of {needed} coefficients is not determined without the point at "
                    f"position {int(leverage.argmax())} of those present: it cannot be left out"
                )

    def at(self, x: np.ndarray, z: np.ndarray) -> np.ndarray:
        """The mean at `[N, D]`, eagerly, `[B, N]`; a marginalised trend by least squares from z."""
        points = tf.constant(x, self.variable_dtype)
        function, basis = self.evaluate(points), self.basis(points)
        found = np.zeros(z.shape, complex)
        if function is not None:
            found += function.numpy()
        if basis is not None:
            columns = basis.numpy()
            for series, row in zip(z, found, strict=True):
                present = ~np.isnan(series)
                a, b = (
                    rows_of(part[present], self.has_real_coefficients)
                    for part in (columns, (series - row)[:, None])
                )
                row += columns @ np.linalg.lstsq(a, b, rcond=None)[0][:, 0]
        return found

    def start_of(self, name: str, x: np.ndarray, z: np.ndarray) -> ArrayLike | None:
        """The value from which a hyperparameter starts that was left out; None without a rule.

        Args:
            name: Its name.
            x: Inputs, `[N, D]`.
            z: The targets there, complex `[N]`.
        """
        return None

    def prepare(self, x: np.ndarray, z: np.ndarray) -> None:
        """Sets, at the beginning of each `fit`, the weights that are not trained; by default none.

        Args:
            x: Inputs, `[X, N, D]`, X being 1 or B.
            z: Series, complex `[B, N]`, NaN where missing.

        Raises:
            ValueError: Data from which they cannot be set; they stay as they were.
        """

    @property
    def prefix(self) -> str:
        """The name under which `gp.parameters()` lists this mean."""
        return self._given_name or "mean"


def rows_of(a: np.ndarray, has_real_coefficients: bool) -> np.ndarray:
    """The rows of least squares for complex values `[..., N, q]`.

    For complex coefficients the values; for real ones real parts above imaginary parts, `[..., 2N,
    q]`.
    """
    return np.concatenate([a.real, a.imag], axis=-2) if has_real_coefficients else a


def whole_number(value: Any, name: str) -> int:
    """A whole number, at least 0, or an error that names the argument."""
    is_number = isinstance(value, int | float | np.integer | np.floating)
    is_number = is_number and not isinstance(value, bool)
    if not (is_number and 0 <= value < np.inf and value == int(value)):
        raise ValueError(f"{name} must be a whole number, at least 0, got {value!r}")
    return int(value)
