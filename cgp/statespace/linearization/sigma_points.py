"""Statistical linear regression on weighted points."""

import dataclasses
import functools
import numbers
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import check_whole
from cgp.linalg.batch_last import divide, matmul, matvec
from cgp.statespace.engines.filter_step import State
from cgp.statespace.linearization.affine import Affine, values_at
from cgp.statespace.models.functions import Function

_MOST_POINTS = 20000
_RULES = ("unscented", "cubature", "gauss-hermite")


@dataclasses.dataclass(frozen=True)
class SigmaPoints:
    """Statistical linear regression on points that have the moments of the state.

    The approximation `f(x) ≈ A x + b + e` is the best one in mean square over the points, and the
    covariance of e what it leaves (Lefebvre, Bruyninckx & De Schutter, IEEE Trans. Autom. Control
    47, 2002; Arasaratnam & Haykin, ibid. 54, 2009). Points are of the real composite `[Re x; Im x]`
    of a complex state, so that they have its pseudo-covariance too, and covariances and
    pseudo-covariances of the values are exact to the degree of the rule (points of x and its
    conjugate lose them: Dang & Scharf, arXiv 1105.5432). Weights are not negative, and covariances
    sums of squares.

    Args:
        kind: "cubature", 2N points at ±√N of N real dimensions, exact to degree 3; "unscented",
            with a further point at the mean; "gauss-hermite", `order` points in each dimension,
            exact to degree 2·order − 1.
        kappa: κ of "unscented": the points are at ±√(N + κ), the weight of the mean is κ/(N + κ).
            Not negative; None for 3 − N, which makes fourth moments along the axes exact, or 0
            where that is negative.
        order: Of "gauss-hermite".

    Raises:
        ValueError: Another kind; κ below zero; an order below 2, or orderᴺ above 20000 (when used).

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> from cgp import statespace
        >>> power = statespace.NonlinearGaussian(
        ...     lambda x: x, lambda x: tf.abs(x) ** 2, [[0.0]], [[0.1]], [2.0 + 0j], [[0.5]]
        ... )
        >>> found = statespace.filter(power, [4.5], rule=statespace.SigmaPoints("unscented"))
        >>> bool(abs(found.innovations[0]) < 1e-9)  # E|x|² is 4.5
        True
    """

    kind: str = "cubature"
    kappa: float | None = None
    order: int = 3

    def __post_init__(self) -> None:
        if self.kind not in _RULES:
            raise ValueError(f"kind must be one of {', '.join(_RULES)}, got {self.kind!r}")
        kappa: Any = self.kappa
        is_number = isinstance(kappa, numbers.Real) and not isinstance(kappa, bool)
        if kappa is not None and not (is_number and 0.0 <= kappa < np.inf):
            raise ValueError(
                f"kappa must be finite and not negative, got {self.kappa!r}: a negative weight of "
                "the mean would make covariances that are not positive"
            )
        check_whole(self.order, "order", least=2)
        if kappa is not None and self.kind != "unscented":
            raise ValueError(f'kappa is of "unscented" points, and these are "{self.kind}"')
        if self.order != 3 and self.kind != "gauss-hermite":
            raise ValueError(f'order is of "gauss-hermite" points, and these are "{self.kind}"')

    def linearize(self, function: Function, state: State) -> Affine:
        """The approximation of a function of a state of these moments."""
        dtype, n = state.mean.dtype, state.mean.shape[0]
        unit, weights = _unit_points(self, n, dtype.is_complex)
        unit = tf.constant(unit, dtype)[..., None]  # [n, K, 1]
        weights = tf.constant(weights, dtype)[:, None]  # [K, 1]
        values = values_at(function, state.mean[:, None] + matmul(state.chol, unit))
        mean = tf.reduce_sum(weights * values, axis=1)
        deviations = values - mean[:, None]
        cross = matmul(weights * deviations, tf.math.conj(tf.einsum("nkb->knb", unit)))
        matrix = divide(cross, state.chol)
        residual = (deviations - matmul(cross, unit)) * tf.sqrt(weights)
        return Affine(matrix, mean - matvec(matrix, state.mean), residual)


@functools.lru_cache(maxsize=64)
def _unit_points(rule: SigmaPoints, n: int, is_complex: bool) -> tuple[np.ndarray, np.ndarray]:
    """Points of mean zero and covariance 1, `[n, K]`, and their weights, `[K]`."""
    size = 2 * n if is_complex else n
    points, weights = _real_points(rule, size)
    if is_complex:  # proper: each part has half of the variance
        points = np.sqrt(0.5) * (points[:n] + 1j * points[n:])
    return points, weights


def _real_points(rule: SigmaPoints, size: int) -> tuple[np.ndarray, np.ndarray]:
    if rule.kind == "gauss-hermite":
        count = rule.order**size
        if count > _MOST_POINTS:
            raise ValueError(
                f"a Gauss-Hermite rule of order {rule.order} in {size} real dimensions has {count} "
                f"points, more than {_MOST_POINTS}: take a lower order, or cubature"
            )
        nodes, own = np.polynomial.hermite_e.hermegauss(rule.order)
        own = own / own.sum()
        points = np.stack([a.ravel() for a in np.meshgrid(*[nodes] * size, indexing="ij")])
        weights = functools.reduce(np.multiply.outer, [own] * size).ravel()
        return points, weights
    kappa = 0.0
    if rule.kind == "unscented":
        kappa = max(3.0 - size, 0.0) if rule.kappa is None else rule.kappa
    axes = np.sqrt(size + kappa) * np.eye(size)
    points, weights = np.hstack([axes, -axes]), np.full(2 * size, 0.5 / (size + kappa))
    if kappa > 0.0:
        points = np.hstack([np.zeros([size, 1]), points])
        weights = np.concatenate([[kappa / (size + kappa)], weights])
    return points, weights
