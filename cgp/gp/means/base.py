"""Mean functions with complex values: their base class, constants and polynomial trends."""

import math
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.functionals import VALUES, Functional
from cgp.linalg.arguments import ArrayLike, as_complex, as_flag
from cgp.training.hyperparameters import (
    Hyperparameter,
    HyperparameterLayer,
    InitialValues,
    declared,
    one_number,
    setting,
)
from cgp.training.parameters import COMPLEX, Parameter, Parameterized, in_steps_of
from cgp.training.saving import check_size


class Mean(HyperparameterLayer):
    """The base class of mean functions. Models given the same mean share its coefficients.

    Args:
        name: A name for its parameters, as in `gp.parameters()`; "mean" by default.
        dtype: "float64" (complex128 values) or "float32" (complex64).
    """

    outputs: int | None = None
    """The number of outputs, P; None for one signal."""
    has_real_coefficients = False
    """Whether the coefficients of a marginalised trend are real. The posterior of such a trend is
    improper, and the process is with it."""

    def evaluate(self, x: tf.Tensor) -> tf.Tensor | None:
        """Evaluates the mean at points `[..., N, D]`: complex, `[..., N]`, or None for zero."""
        return None

    def basis(self, x: tf.Tensor) -> tf.Tensor | None:
        """The basis functions of a marginalised trend: complex, `[..., N, q]`, or None.

        A column that is zero for every x has no effect (see `used`).
        """
        return None

    def evaluate_samples(self, x: tf.Tensor, functional: Functional) -> tf.Tensor | None:
        """Evaluates what samples measure of the mean: its value, derivative, or average.

        By default of values alone.

        Raises:
            ValueError: The derivative or the average of a mean that has none.
        """
        if not functional.is_value:
            raise ValueError(
                f"observed and widths are of a process whose mean is constant or polynomial, and "
                f"no derivative or average of {self!r} is known: subtract it from the data"
            )
        return self.evaluate(x)

    def sample_basis(self, x: tf.Tensor, functional: Functional) -> tf.Tensor | None:
        """What samples measure of the basis functions of a marginalised trend; as `basis`."""
        return self.basis(x)

    def functions(self, x: tf.Tensor) -> tf.Tensor | None:
        """The functions that learned coefficients multiply, where the mean learns nothing else.

        At points `[..., N, D]` complex, `[..., N, q]`; None, the default, for another mean.
        """
        return None

    def used(self, columns: np.ndarray) -> np.ndarray:
        """The columns of a basis, `[N, q]`, that are not zero for every x; by default all.

        Zeros at the points of some data do not count: they leave a coefficient undetermined.
        """
        return columns

    def check_determined(
        self,
        x: tf.Tensor,
        present: np.ndarray,
        functional: Functional = VALUES,
        *,
        leave_out: bool = False,
    ) -> None:
        """Raises, eagerly, where data do not determine the marginalised coefficients.

        Args:
            x: Inputs, `[X, N, D]`, X being 1 or G.
            present: Bool, `[G, N]`: where there are targets, for each covariance.
            functional: What the targets measure.
            leave_out: Whether all but any one of the points must determine them too.
        """
        basis = self.sample_basis(x, functional)
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
            q_of_points = np.linalg.qr(rows)[0].reshape(-1, points, needed).swapaxes(0, 1)
            leverage = np.linalg.norm(q_of_points, ord=2, axis=(1, 2)) ** 2
            if leave_out and leverage.max() > 1.0 - 1e-9:
                raise ValueError(
                    f"a trend of {needed} coefficients is not determined without the point at "
                    f"position {int(leverage.argmax())} of those present: it cannot be left out"
                )

    def remedy_of(self, x: np.ndarray, needed: int) -> str:
        """The remedy, in words, where inputs `[N, D]` do not determine so many coefficients."""
        return "it needs more different x"

    def nearest(self, x: np.ndarray, z: np.ndarray) -> np.ndarray:
        """The mean nearest to series `[B, N]` at `[N, D]`, eagerly, `[B, N]`.

        By least squares: all series share learned coefficients, and each has its own coefficients
        of a marginalised trend. Other hyperparameters are at their present values.
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
        """The start, from data `[N, D]`, `[N]`, of a hyperparameter that was left out, or None."""
        return None

    def prepare(self, x: np.ndarray, z: np.ndarray) -> None:
        """Sets, at the beginning of each `fit`, the weights that are not trained, or raises.

        Inputs are `[X, N, D]`, X being 1 or B, series `[B, N]`, NaN where missing.
        """

    @property
    def prefix(self) -> str:
        """The name under which `gp.parameters()` lists this mean."""
        return self.chosen_name or "mean"

    def named_layers(self) -> list[tuple[str, Parameterized]]:
        """The layers that have its hyperparameters, with their prefixes in `gp.parameters()`."""
        return [(self.prefix, self)]

    def left_out(self) -> list[Parameter]:
        """The hyperparameters without a value."""
        return [p for p in self.own_parameters if p.is_left_out]


def _coefficients(columns: np.ndarray, z: np.ndarray, are_real: bool) -> np.ndarray:
    """The coefficients of functions `[..., q]` by least squares; values `[...]`, NaN if missing."""
    present = ~np.isnan(z)
    a, b = (rows_of(rows, are_real) for rows in (columns[present], z[present][:, None]))
    lengths = np.maximum(np.abs(a).max(axis=0), 1e-300)  # powers of a date differ in size
    return np.linalg.lstsq(a / lengths, b, rcond=None)[0][:, 0] / lengths


def rows_of(a: np.ndarray, has_real_coefficients: bool) -> np.ndarray:
    """The rows of complex values `[..., N, q]`; `[..., 2N, q]` for real coefficients."""
    return np.concatenate([a.real, a.imag], axis=-2) if has_real_coefficients else a


def whole_number(number: Any, name: str) -> int:
    """A whole number, at least 0, or an error that names the argument."""
    is_number = isinstance(number, int | float | np.integer | np.floating)
    is_number = is_number and not isinstance(number, bool)
    if not (is_number and 0 <= number < np.inf and number == int(number)):
        raise ValueError(f"{name} must be a whole number, at least 0, got {number!r}")
    return int(number)


def real_number(number: float, name: str) -> float:
    """Returns a real number, or raises an error."""
    if np.iscomplexobj(one_number(number, name)):
        raise TypeError(f"{name} must be real, got {number!r}")
    return float(number)


@keras.saving.register_keras_serializable(package="cgp.means")
@declared
class Constant(Mean):
    """A constant complex mean, learned with the hyperparameters.

    Args:
        value: Its initial value, in units of z; if None zero, until a fit takes the mean of data.
        fixed: `("value",)` to keep it there.
        priors: `{"value": ...}`, a TFP distribution of its [re, im].
        name: A name for its parameters.
        dtype: "float64" or "float32".

    Example:
        >>> import cgp
        >>> gp = cgp.ExactGP(cgp.kernels.RBF(1.0, 1.0), 0.1, mean=cgp.means.Constant(1 + 2j))
        >>> gp.predict([0.0])["mean"]
        array([1.+2.j])
    """

    value: Hyperparameter = Hyperparameter(in_steps_of(1.0, COMPLEX), default=None)

    def start_of(self, name: str, x: np.ndarray, z: np.ndarray) -> ArrayLike | None:
        """The starting value, the mean of the targets."""
        return z.mean()

    def functions(self, x: tf.Tensor) -> tf.Tensor | None:
        """The functions of x that the learned coefficients multiply, complex `[..., N, q]`."""
        return None if self.value.fixed else as_complex(tf.ones_like(x[..., :1]))

    def evaluate(self, x: tf.Tensor) -> tf.Tensor | None:
        """The mean at points `[..., N, D]`, complex `[..., N]`; None for zero."""
        return tf.broadcast_to(self.value.value, tf.shape(x)[:-1])

    def evaluate_samples(self, x: tf.Tensor, functional: Functional) -> tf.Tensor | None:
        """The constant where samples measure the value, zero where they measure a derivative."""
        value = self.evaluate(x)
        if functional.derivative is None:
            return value
        return tf.where(functional.derivative, tf.zeros_like(value), value)


@keras.saving.register_keras_serializable(package="cgp.means")
@declared
class Polynomial(Mean):
    """A polynomial trend `Σ_k β_k ((x − center)/scale)^k` over one-dimensional inputs.

    Its complex coefficients are either learned with the hyperparameters, or marginalised under a
    flat prior: the trend is then estimated from the data at each prediction, its uncertainty is
    part of the posterior, and the likelihood is the restricted one, of residuals of the trend
    (Rasmussen & Williams, *Gaussian Processes for Machine Learning*, 2006, §2.7).

    Choose center and scale so that x comes to about −1 … 1: powers of a date lose all digits.

    Args:
        degree: The degree of the polynomial, at least 0.
        coefficients: Initial β, `[degree + 1]`, complex; if None zeros, until a fit starts them by
            least squares. Not for a marginalised trend.
        marginalized: Whether the coefficients are marginalised instead of learned.
        center: The center, in units of x.
        scale: The scale, in units of x, positive.
        fixed: `("coefficients",)` to keep them.
        priors: `{"coefficients": ...}`, a TFP distribution of their [re, im], `[degree + 1, 2]`.
        name: A name for its parameters.
        dtype: "float64" or "float32".

    Raises:
        TypeError: A center or a scale that is no real number, a `marginalized` that is not a bool.
        ValueError: A degree that is no whole number, a scale that is not positive; coefficients, or
            `fixed` or `priors` of them, for a marginalised trend.

    Example:
        >>> import cgp, numpy as np
        >>> trend = cgp.means.Polynomial(1, marginalized=True, center=5.0, scale=5.0)
        >>> gp = cgp.ExactGP(cgp.kernels.RBF(1.0, 1.0), 0.1, mean=trend)
        >>> x = np.arange(10.0)
        >>> gp.condition(x, (1 + 1j) * x)
        >>> gp.predict([20.0])["mean"].round(4)
        array([20.+20.j])
    """

    degree: int = setting(whole_number)
    coefficients: Hyperparameter = Hyperparameter(COMPLEX, default=None)
    marginalized: bool = setting(as_flag, default=False, kw_only=True)
    center: float = setting(real_number, default=0.0, kw_only=True)
    scale: float = setting(real_number, default=1.0, kw_only=True)

    def initial_values(self, arguments: Mapping[str, Any]) -> InitialValues:
        """The coefficients; none for a marginalised trend."""
        coefficients, count = arguments["coefficients"], self.degree + 1
        if not (np.isfinite(self.center) and np.isfinite(self.scale) and self.scale > 0):
            raise ValueError(
                f"scale must be positive and center finite, got {arguments['scale']} and "
                f"{arguments['center']}"
            )
        if self.marginalized:
            if coefficients is not None:
                raise ValueError("a marginalised trend has no coefficients to start from")
            return {}
        trend = f"a polynomial of degree {arguments['degree']}"
        check_size(2 * count, trend, self.variable_dtype, "take a smaller degree")
        if coefficients is not None and np.shape(coefficients) != (count,):
            raise ValueError(
                f"{trend} has {count} coefficients, got shape {np.shape(coefficients)}"
            )
        constraint = in_steps_of(1.0, COMPLEX)._replace(placeholder=np.zeros(count))
        return {"coefficients": (coefficients, constraint)}

    def start_of(self, name: str, x: np.ndarray, z: np.ndarray) -> ArrayLike | None:
        """The starting coefficients, by least squares."""
        powers = self._powers(tf.constant(x, self.variable_dtype)).numpy()
        return np.linalg.lstsq(powers, z, rcond=None)[0]

    def _powers(self, x: tf.Tensor) -> tf.Tensor:
        if x.shape[-1] not in (1, None):
            raise ValueError(f"a polynomial trend needs inputs of one dimension, got {x.shape[-1]}")
        t = (x[..., 0] - self.center) / self.scale
        powers = [tf.ones_like(t)]  # products: the derivative of 0⁰ that TensorFlow takes is NaN
        for _ in range(self.degree):
            powers.append(powers[-1] * t)
        return as_complex(tf.stack(powers, axis=-1))

    def _sample_powers(self, x: tf.Tensor, functional: Functional) -> tf.Tensor:
        """What samples measure of the powers.

        With t = (x − center)/scale the derivative of `tᵏ` by x is `k tᵏ⁻¹/scale`. Its mean over
        t − h … t + h, h being half of a width over the scale, is the sum over even j of
        `C(k, j) tᵏ⁻ʲ hʲ/(j + 1)`, as odd powers cancel.
        """
        powers, numbers = self._powers(x), range(self.degree + 1)
        if functional.is_value:
            return powers
        columns = tf.unstack(powers, axis=-1)
        if functional.width is not None:
            square = as_complex((0.5 * functional.width / self.scale) ** 2)
            spreads = [tf.ones_like(square)]  # products: TensorFlow takes the complex 0⁰ for NaN
            for _ in range(self.degree // 2):
                spreads.append(spreads[-1] * square)
            averages = []
            for k in numbers:
                terms = [
                    columns[k - j] * (math.comb(k, j) / (j + 1)) * spreads[j // 2]
                    for j in range(0, k + 1, 2)
                ]
                averages.append(tf.add_n(terms))
            columns = averages
        if functional.derivative is not None:
            columns = [
                tf.where(
                    functional.derivative,
                    powers[..., max(k - 1, 0)] * (k / self.scale),
                    columns[k],
                )
                for k in numbers
            ]
        return tf.stack(columns, axis=-1)

    def evaluate_samples(self, x: tf.Tensor, functional: Functional) -> tf.Tensor | None:
        """The value, derivative or average of the polynomial that each sample measures."""
        if self.marginalized:
            return None
        return tf.linalg.matvec(self._sample_powers(x, functional), self.coefficients.value)

    def sample_basis(self, x: tf.Tensor, functional: Functional) -> tf.Tensor | None:
        """The value, derivative or average of each basis function of a marginalised trend."""
        return self._sample_powers(x, functional) if self.marginalized else None

    def evaluate(self, x: tf.Tensor) -> tf.Tensor | None:
        """The mean at points `[..., N, D]`, complex `[..., N]`; None for zero."""
        if self.marginalized:
            return None
        return tf.linalg.matvec(self._powers(x), self.coefficients.value)

    def functions(self, x: tf.Tensor) -> tf.Tensor | None:
        """The functions of x that the learned coefficients multiply, complex `[..., N, q]`."""
        return None if self.marginalized or self.coefficients.fixed else self._powers(x)

    def basis(self, x: tf.Tensor) -> tf.Tensor | None:
        """The basis functions of a marginalised trend, complex `[..., N, q]`, or None."""
        return self._powers(x) if self.marginalized else None

    def remedy_of(self, x: np.ndarray, needed: int) -> str:
        """The remedy for an undetermined trend: a lower degree, or a center and a scale of x."""
        if len(np.unique(x)) < needed:
            return super().remedy_of(x, needed)
        if np.abs((x - self.center) / self.scale).max() < 2.0:
            return "as its powers are alike to rounding: take a lower degree"
        center, scale = float(x.max() + x.min()) / 2, float(x.max() - x.min()) / 2
        return f"as powers of x lose their digits: take center={center!r} and scale={scale!r}"

    def __repr__(self) -> str:
        inside = "marginalized" if self.marginalized else repr(self.coefficients)
        return f"Polynomial({self.degree}, {inside})"
