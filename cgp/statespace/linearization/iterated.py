"""Iterated posterior linearisation: linearisation by what the data have told of the state."""

import dataclasses
import numbers
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from cgp.linalg.arguments import check_whole
from cgp.statespace.engines.filter_step import State
from cgp.statespace.linearization.affine import Affine, Rule


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

    Innovations and predictions of observations are then those of the linearisation by what was
    seen, not forecasts. Where an observation tells little in some places and much in others, as one
    that saturates, or where several states explain it, the iterations settle in one of them and
    their covariance is too small, which innovations do not show: compare with `particle_filter`.

    Args:
        rule: A `Taylor`, `SigmaPoints` or another `Rule`.
        iterations: How often to linearise again, at least 1.
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
