"""Affine approximations of functions of uncertain states, and the rules that choose them."""

import dataclasses
import functools
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import check_whole
from cgp.linalg.batch_last import divide, matmul, matvec
from cgp.linalg.gradients import without_warnings_of_casts
from cgp.linalg.short_repr import short_repr
from cgp.statespace.engines.filter_step import State


@short_repr
class Affine(NamedTuple):
    """The approximation `f(x) ≈ A x + b + e` of a function of a state x of known moments.

    The residual e has mean zero, and is not correlated with x. The batch axis of arrays is the
    last, as in all loops of a filter.

    Example:
        >>> import tensorflow as tf
        >>> from cgp import statespace
        >>> statespace.Affine(tf.ones([1, 2, 3]), tf.zeros([1, 3]), None).matrix.shape
        TensorShape([1, 2, 3])
    """

    matrix: tf.Tensor
    """A, `[m, n, B]`."""
    offset: tf.Tensor
    """b, `[m, B]`."""
    residual: tf.Tensor | None
    """A factor E of the covariance `E Eᴴ` of e, `[m, k, B]`; None where e is zero."""


class Rule(ABC):
    """A way to approximate a nonlinear function of an uncertain state by an affine one.

    A rule of your own is a subclass, a frozen dataclass of numbers and rules, with the method
    `linearize`. All verbs and `KalmanFilter` take it as `rule=`, and `Iterated` iterates it. A
    layer with such a rule is saved and loaded where the class of the rule is registered with Keras,
    by `keras.saving.register_keras_serializable`.

    States and values are real, or complex where the model is `holomorphic`: complex states of other
    models come as their real composites `[Re x; Im x]`.

    Example:
        >>> import dataclasses
        >>> import tensorflow as tf
        >>> from cgp import statespace
        >>> @dataclasses.dataclass(frozen=True)
        ... class Chord(statespace.Rule):
        ...     reach: float = 1.0
        ...
        ...     def linearize(self, function, state):
        ...         mean, step = state.mean[:, None], self.reach * state.chol  # of one component
        ...         above, below = function(mean + step), function(mean - step)
        ...         slope = (above - below) / (2 * step)
        ...         return statespace.Affine(slope, (function(mean) - slope * mean)[:, 0], None)
        >>> model = statespace.NonlinearGaussian(
        ...     lambda x: x, tf.round, [[0.0]], [[0.1]], [0.2], [[1.0]]
        ... )
        >>> filtered = statespace.filter(model, [1.0], rule=Chord())  # the slope of steps is zero
        >>> filtered.filtered_means.numpy().round(3)
        array([[1.109]])
    """

    iterations: int = 0
    """The number of times a filter linearises again by posterior moments; see `Iterated`."""
    damping: float = 0.0
    """The share of the last mean that the next one keeps; see `Iterated`."""

    @abstractmethod
    def linearize(self, function: Callable[[tf.Tensor], tf.Tensor], state: State) -> Affine:
        """Approximates a function by the moments of its argument.

        Args:
            function: The function of K points for each state of the batch, `[n, K, B]` ->
                `[m, K, B]`.
            state: The moments, of one dtype with points and values.

        Returns:
            The approximation.
        """

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, by name: the fields of a dataclass."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class Taylor(Rule):
    """Linearisation at the mean of the state, as in the extended Kalman filter.

    With it `f(x) ≈ f(m) + J (x − m)`. The derivatives are automatic, by the real and imaginary
    parts of the state: of a function that is not holomorphic, `J (x − m)` stands for
    `∂f/∂x (x − m) + ∂f/∂x̄ (x − m)‾`, with Wirtinger's derivatives (Kreutz-Delgado, *The Complex
    Gradient Operator and the CR-Calculus*, arXiv 0906.4835). The nonlinear part of f adds no
    uncertainty: use this rule where the spread of the state is small beside the curvature, and
    `SigmaPoints` elsewhere.

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> from cgp import statespace
        >>> power = statespace.NonlinearGaussian(
        ...     lambda x: x, lambda x: tf.abs(x) ** 2, [[0.0]], [[0.1]], [2.0 + 0j], [[0.01]]
        ... )
        >>> found = statespace.filter(power, [4.4], rule=statespace.Taylor())
        >>> found.filtered_means.numpy().round(3)
        array([[2.044+0.j]])
    """

    def linearize(self, function: Callable[[tf.Tensor], tf.Tensor], state: State) -> Affine:
        """Approximates a function by its value and derivatives at the mean of the state."""

        def of_rows(points: tf.Tensor) -> tf.Tensor:
            return tf.einsum("mkb->bkm", function(tf.einsum("bkn->nkb", points)))

        value, rows = expansion(of_rows, tf.einsum("nb->bn", state.mean))
        matrix, image = tf.einsum("bmn->mnb", rows), tf.einsum("bm->mb", value)
        return Affine(matrix, image - matvec(matrix, state.mean), None)


def expansion(
    function: Callable[[tf.Tensor], tf.Tensor], points: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The value of a function and its derivative at points, by one gradient for all components.

    Args:
        function: The function of K points for each of B, `[B, K, n]` -> `[B, K, m]`.
        points: The points, `[B, n]`.

    Returns:
        The values, `[B, m]`, and the derivatives by the components of a point, `[B, m, n]`.
    """
    points = tf.expand_dims(points, 1)
    m = function(points).shape[-1]  # the values are not computed
    # One copy of the point for each component of the value: the gradient of the sum of component i
    # of the value at copy i has the rows of J.
    copies = tf.tile(points, [1, m, 1])
    with tf.GradientTape() as tape:
        tape.watch(copies)
        value = tf.linalg.diag_part(function(copies))
    with without_warnings_of_casts():
        zero = tf.UnconnectedGradients.ZERO
        rows = tape.gradient(value, copies, unconnected_gradients=zero)
    # TensorFlow's gradient of a holomorphic function is the conjugate of its derivative.
    return value, tf.math.conj(rows)


_MOST_POINTS = 20000
_RULES = ("unscented", "cubature", "gauss-hermite")


@dataclasses.dataclass(frozen=True)
class SigmaPoints(Rule):
    """Statistical linear regression on points that have the moments of the state.

    The approximation `f(x) ≈ A x + b + e` is the best in mean square over the points, and e has the
    covariance of the residuals (Lefebvre, Bruyninckx & De Schutter, IEEE Trans. Autom. Control
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
        order: The points in each dimension of "gauss-hermite".

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

    def linearize(self, function: Callable[[tf.Tensor], tf.Tensor], state: State) -> Affine:
        """Approximates a function by regression on its values at the points of the state."""
        dtype, n = state.mean.dtype, state.mean.shape[0]
        unit, weights = _unit_points(self, n, dtype.is_complex)
        unit = tf.constant(unit, dtype)[..., None]  # [n, K, 1]
        weights = tf.constant(weights, dtype)[:, None]  # [K, 1]
        values = function(state.mean[:, None] + matmul(state.chol, unit))
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
        nodes, node_weights = np.polynomial.hermite_e.hermegauss(rule.order)
        node_weights = node_weights / node_weights.sum()
        points = np.stack([a.ravel() for a in np.meshgrid(*[nodes] * size, indexing="ij")])
        weights = functools.reduce(np.multiply.outer, [node_weights] * size).ravel()
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


@dataclasses.dataclass(frozen=True)
class Iterated(Rule):
    """Linearisation by the posterior moments of the state, found by iteration.

    A rule alone linearises an observation by the moments predicted before it, which may be far off
    where it tells much. In a filter each update is repeated with the observation linearised by the
    moments that the last repetition found (García-Fernández, Svensson, Morelande & Särkkä, IEEE
    Trans. Signal Process. 63, 2015). In a smoother the whole series is repeated, with transitions
    and observations linearised by the smoothed moments (García-Fernández, Svensson & Särkkä, IEEE
    Signal Process. Lett. 24, 2017). With `Taylor` these are Gauss-Newton's method: the iterated
    extended filter and smoother, whose likelihood is Laplace's approximation.

    Innovations and predictions of observations are then from the linearisation by the posterior,
    not forecasts. Where an observation tells little in some places and much in others, as one
    that saturates, or where several states explain it, the iterations settle in one of them and
    their covariance is too small, which innovations do not show: compare with `particle_filter`.

    Args:
        rule: A `Taylor`, `SigmaPoints` or another `Rule`.
        iterations: The number of times to linearise again, at least 1.
        damping: From 0, full steps, to below 1: the part of the last mean that the next one keeps,
            where iterations would otherwise swing.

    Raises:
        TypeError: Not a rule, or one that is iterated already.
        ValueError: iterations below 1, or damping outside of [0, 1).

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> from cgp import statespace
        >>> power = statespace.NonlinearGaussian(
        ...     lambda x: x, lambda x: tf.abs(x) ** 2, [[0.0]], [[1e-4]], [1.0 + 0j], [[1.0]]
        ... )
        >>> rule = statespace.Iterated(statespace.Taylor(), iterations=20)
        >>> found = statespace.filter(power, [4.0], rule=rule)
        >>> found.filtered_means.numpy().round(3)  # without iterations 2.5
        array([[2.+0.j]])
    """

    rule: Rule
    iterations: int = 10
    damping: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.rule, Iterated) or not isinstance(self.rule, Rule):
            raise TypeError(f"rule must be a Taylor() or SigmaPoints(), got {self.rule!r}")
        check_whole(self.iterations, "iterations")
        damping: Any = self.damping
        is_number = isinstance(damping, numbers.Real) and not isinstance(damping, bool)
        if not is_number or not 0.0 <= damping < 1.0:
            raise ValueError(f"damping must be at least 0 and below 1, got {self.damping!r}")

    def linearize(self, function: Callable[[tf.Tensor], tf.Tensor], state: State) -> Affine:
        """Approximates a function once, by the rule that is iterated."""
        return self.rule.linearize(function, state)
