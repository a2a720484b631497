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

    def functions(self, x: tf.Tensor) -> tf.Tensor | None:
        """The functions of x that learned coefficients multiply, where these are all it learns.

        Args:
            x: Points `[..., N, D]`.

        Returns:
            Complex, `[..., N, q]`; None, by default, for a mean that is no such sum.
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
        points_of = np.broadcast_to(x.numpy(), (len(present), *x.shape[1:]))
        for inputs, columns, keep in zip(points_of, bases, present, strict=True):
            columns = self.used(columns)
            columns = columns[keep] / np.maximum(np.abs(columns).max(axis=0), 1e-300)
            points, needed = columns.shape
            rows = rows_of(columns, self.has_real_coefficients)
            rank = np.linalg.matrix_rank(rows)
            if rank < needed:
                kind = "real " if self.has_real_coefficients else ""
                remedy = self.remedy_of(inputs[keep], needed)
                raise ValueError(
                    f"a trend of {needed} {kind}coefficients is not determined: {points} points "
                    f"determine {rank} of them, {remedy}"
                )
            # A point of leverage 1 is alone in determining some part of the trend.
            parts = np.linalg.qr(rows)[0].reshape(-1, points, needed).swapaxes(0, 1)
            leverage = np.linalg.norm(parts, ord=2, axis=(1, 2)) ** 2
            if leave_out and leverage.max() > 1.0 - 1e-9:
                raise ValueError(
                    f"a trend of {needed} coefficients is not determined without the point at "
                    f"position {int(leverage.argmax())} of those present: it cannot be left out"
                )

    def remedy_of(self, x: np.ndarray, needed: int) -> str:
        """What to do where inputs `[N, D]` do not determine so many coefficients, in words."""
        return "it needs more different x"

    def nearest(self, x: np.ndarray, z: np.ndarray) -> np.ndarray:
        """The mean nearest to series `[B, N]` at `[N, D]`, eagerly, `[B, N]`.

        By least squares: coefficients that are learned are those of all series, and those of a
        marginalised trend of each. Other hyperparameters are at their present values.
        """
        points = tf.constant(x, self.variable_dtype)
        function, functions, basis = (
            None if values is None else values.numpy()
            for values in (self.evaluate(points), self.functions(points), self.basis(points))
        )
        nearest = np.zeros(z.shape, complex)
        if functions is not None:
            everywhere = np.broadcast_to(functions, (len(z), *functions.shape))
            nearest += functions @ _coefficients(everywhere, z, False)
        elif function is not None:
            nearest += function
        if basis is not None:
            for series, row in zip(z, nearest, strict=True):
                row += basis @ _coefficients(basis, series - row, self.has_real_coefficients)
        return nearest

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
        return self.chosen_name or "mean"


def _coefficients(columns: np.ndarray, z: np.ndarray, are_real: bool) -> np.ndarray:
    """Those of functions `[..., q]` by least squares from values `[...]`, NaN where missing."""
    there = ~np.isnan(z)
    a, b = (rows_of(part, are_real) for part in (columns[there], z[there][:, None]))
    lengths = np.maximum(np.abs(a).max(axis=0), 1e-300)  # powers of a date differ in size
    return np.linalg.lstsq(a / lengths, b, rcond=None)[0][:, 0] / lengths


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
