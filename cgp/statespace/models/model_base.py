"""The parts of all models: tensors of one dtype, factored covariances, fixed attributes."""

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import ArrayLike, as_numbers, hermitian_gap, real_as
from cgp.linalg.cholesky import NotPositiveDefiniteError
from cgp.linalg.semidefinite import semidefinite_factor

_DTYPES = (tf.complex64, tf.complex128, tf.float32, tf.float64)


def of_one_dtype(named: Mapping[str, ArrayLike | None]) -> dict[str, tf.Tensor]:
    """Converts arrays, by name, to tensors of the dtype that all promote to, leaving out None."""
    arrays = {name: _array(a, name) for name, a in named.items() if a is not None}
    kinds = {}
    for name, array in arrays.items():
        kind = _numpy_dtype(array, name)
        kinds[name] = kind if kind.kind in "fc" else np.dtype(np.float64)
    common = np.result_type(*kinds.values())
    if common not in [dtype.as_numpy_dtype for dtype in _DTYPES]:
        raise TypeError(
            "matrices must be complex64, complex128, float32 or float64, got "
            f"{', '.join(f'{name} {kind.name}' for name, kind in kinds.items())}"
        )
    return {name: as_dtype(array, tf.as_dtype(common), name) for name, array in arrays.items()}


def matrix_or_word(
    initial_covariance: ArrayLike | str | None,
) -> tuple[ArrayLike | None, str | None]:
    """Returns `(matrix, None)`, or `(None, word)` for 'stationary' and 'diffuse'."""
    if not isinstance(initial_covariance, str | None):
        return initial_covariance, None
    if initial_covariance not in ("stationary", "diffuse"):
        raise ValueError(
            'initial_covariance must be a matrix, "stationary" or "diffuse", got '
            f"{initial_covariance!r}"
        )
    return None, initial_covariance


def _array(a: ArrayLike, name: str) -> np.ndarray | tf.Tensor:
    if hasattr(a, "value"):  # a hyperparameter, through which gradients flow
        return tf.convert_to_tensor(a)
    return as_numbers(a, name)


def _numpy_dtype(x: np.ndarray | tf.Tensor, name: str) -> np.dtype:
    """The NumPy dtype of numbers; a TypeError for anything else."""
    dtype = x.dtype if isinstance(x, np.ndarray) else np.dtype(x.dtype.as_numpy_dtype)
    if dtype.kind not in "iufc":
        raise TypeError(f"{name} must be numbers, got {dtype}")
    return dtype


def as_dtype(x: ArrayLike, dtype: tf.DType, name: str = "it") -> tf.Tensor:
    """Converts a real or complex array to a dtype, which must be complex if the array is."""
    x = _array(x, name)
    came = _numpy_dtype(x, name)
    if came.kind == "c" and not dtype.is_complex:
        raise TypeError(f"{name} must be real, {dtype.name}, got {came}")
    if isinstance(x, np.ndarray):
        return tf.constant(x.astype(dtype.as_numpy_dtype))
    if x.dtype == dtype:
        return x
    if x.dtype.is_complex:
        return tf.cast(x, dtype)
    return real_as(tf.cast(x, dtype.real_dtype), dtype)


def whole_steps(steps: int, name: str = "steps", least: int = 1) -> int:
    """Checks a number of steps: a whole number, not below the least."""
    is_number = isinstance(steps, int | float | np.integer | np.floating)
    whole = is_number and float(steps).is_integer()
    if not whole or isinstance(steps, bool) or steps < least:
        raise ValueError(f"{name} must be a whole number, at least {least}, got {steps!r}")
    return int(steps)


class FactoredCovariance:
    """A covariance V and a factor G with `V = G Gᴴ`, kept together so that they stay consistent.

    Gradients flow to the matrix; computations use the factor, which is not checked against V; where
    it is None it is computed on demand.
    """

    __slots__ = ("_factor", "matrix")

    def __init__(self, matrix: tf.Tensor, factor: tf.Tensor | None = None):
        self.matrix, self._factor = matrix, factor

    @classmethod
    def of_factor(cls, factor: tf.Tensor) -> "FactoredCovariance":
        """The covariance `G Gᴴ` of a factor."""
        return cls(tf.linalg.matmul(factor, factor, adjoint_b=True), factor)

    @classmethod
    def checked(cls, matrix: "tf.Tensor | FactoredCovariance", name: str) -> "FactoredCovariance":
        """Checks and factorises a covariance, both eagerly; errors name it."""
        if isinstance(matrix, FactoredCovariance):
            return matrix
        if not tf.executing_eagerly():
            return cls(matrix)
        gap = hermitian_gap(matrix)
        if gap:
            raise ValueError(
                f"{name} must be Hermitian, a covariance: it differs from its adjoint by {gap:.3g}"
                f"{_of_factor(matrix)}"
            )
        try:
            return cls(matrix, semidefinite_factor(tf.stop_gradient(matrix)))
        except NotPositiveDefiniteError as error:
            raise NotPositiveDefiniteError(
                f"{name}, of shape {matrix.shape}, must be a covariance, but it is indefinite: "
                f"{error}"
            ) from None

    @property
    def factor(self) -> tf.Tensor:
        """G; computed anew where none was given, since a tensor of a graph must not outlive it."""
        if self._factor is not None:
            return self._factor
        return semidefinite_factor(tf.stop_gradient(self.matrix))

    def cast(self, dtype: tf.DType) -> "FactoredCovariance":
        """The covariance and its factor in a dtype that is at least as precise."""
        if dtype == self.matrix.dtype:
            return self
        factor = None if self._factor is None else tf.cast(self._factor, dtype)
        return type(self)(tf.cast(self.matrix, dtype), factor)


def _of_factor(matrix: tf.Tensor) -> str:
    """The end of an error about a matrix that looks like a Cholesky factor; else empty."""
    a = matrix.numpy()
    above, below = np.triu(a, 1).any(), np.tril(a, -1).any()
    if below and not above:
        return ". It is lower triangular: if it is a factor L, give L @ L.conj().T"
    if above and not below:
        return ". It is upper triangular: if it is a factor U, give U.conj().T @ U"
    return ""


class Settled:
    """A model whose attributes are set in construction alone, by `_settle`."""

    def _settle(self, **values: Any) -> None:
        self.__dict__.update(values)  # bypasses __setattr__

    def _with(self, **values: Any) -> Self:
        """A copy with some attributes replaced, unchecked."""
        copy = type(self).__new__(type(self))
        copy._settle(**{**self.__dict__, **values})
        return copy

    def __setattr__(self, name: str, value: object) -> None:
        name_of_class = type(self).__name__
        instead = f"make a new {name_of_class}"
        if hasattr(self, "replace"):
            instead = f"model.replace({name}=...) returns a new one"
        raise AttributeError(f"{name} of a {name_of_class} cannot be changed: {instead}")

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)


class KeepsGraphs(Settled):
    """A model that keeps the graphs of its functions; copies with the same functions share them."""

    _kept: dict[Any, Any]  # settled in construction, empty

    def kept(self, key: Any, make: Callable[[], Any]) -> Any:
        """An object made of the functions alone, such as a graph; once for each key."""
        return kept_in(self._kept, key, make)


def kept_in(graphs: dict[Any, Any], key: Any, make: Callable[[], Any]) -> Any:
    """An object that is made once for each key."""
    if key not in graphs:
        graphs[key] = make()
    return graphs[key]
