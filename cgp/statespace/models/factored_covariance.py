"""A covariance together with a factor of it."""

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import hermitian_gap
from cgp.linalg.cholesky import NotPositiveDefiniteError
from cgp.linalg.semidefinite import semidefinite_factor


class FactoredCovariance:
    """A covariance V and a factor G with `V = G Gᴴ`, kept together so that they stay consistent.

    Gradients flow to the matrix; computations use the factor.

    Args:
        matrix: V, `[..., n, n]`.
        factor: G, `[..., n, q]`, not checked against V; None to factorise V on demand.
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
        """Checks and factorises a covariance; errors name it.

        Raises:
            ValueError: Not Hermitian; eagerly, where values are known.
            NotPositiveDefiniteError: Indefinite beyond rounding; eagerly.
        """
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
        """The same covariance in a dtype of at least its precision."""
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
