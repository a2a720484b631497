"""The smoother: the state at each time given the whole series."""

import dataclasses
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.distributions.marginals import Marginals
from cgp.likelihoods import Likelihood
from cgp.linalg import stored_cholesky
from cgp.linalg.arguments import ArrayLike, as_flag, squared_modulus
from cgp.linalg.gradients import without_gradient
from cgp.statespace.engines import differentiable_smoother
from cgp.statespace.filtering import moments as filtered_moments
from cgp.statespace.linearization.likelihood_update import MOST_TURNS
from cgp.statespace.linearization.linearized_model import (
    Along,
    AnyModel,
    checked_rule,
    measurable,
    noise_of,
)
from cgp.statespace.linearization.rules import Rule
from cgp.statespace.models.linear_gaussian import LinearGaussian
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian
from cgp.statespace.results import OfEachSeries, SeriesResult, factor_marginals, variances_of
from cgp.statespace.series import Series

_OF_LINEAR = "the smoother of a linear model in normal noise is differentiable, this one is not"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Smoothed(SeriesResult):
    """The moments of the state given all observations.

    For a widely linear model the factors are of the real composite, `[..., T, 2n, 2n]`.
    Series that share covariances hold them once; each reading spreads them.
    """

    smoothed_means: tf.Tensor
    """`E[x[t] | z]`, `[..., T, n]`."""
    smoothed_chols: tf.Tensor = OfEachSeries()
    """A factor of the covariance of the smoothed state, `[..., T, n, n]`."""
    lag_one_covariances: tf.Tensor = OfEachSeries()
    """`E[(x[t+1] − m[t+1]) (x[t] − m[t])ᴴ | z]`, `[..., T-1, n, n]`."""
    lag_one_pseudo_covariances: tf.Tensor | None = OfEachSeries()
    """`E[(x[t+1] − m[t+1]) (x[t] − m[t])ᵀ | z]`, `[..., T-1, n, n]`; None if the model is not
    widely linear, where it is zero."""
    gains: tf.Tensor = OfEachSeries()
    """Smoother gains J[t], `[..., T-1, n, n]` (of the real composite where factors are). The
    covariance of x[t] with any later state is J[t] times the covariance of x[t+1] with it."""

    @property
    def smoothed_variances(self) -> tf.Tensor:
        """`E|x[t] − m|²` given z, of each component, real, `[..., T, n]`."""
        return variances_of(self.smoothed_means, self.smoothed_chols)

    def marginals(self) -> Marginals:
        """The moments of the states, NumPy arrays `[..., T, n]`."""
        return factor_marginals(self.smoothed_means, self.smoothed_chols)


@as_it_stands
def smooth(
    model: AnyModel,
    z: ArrayLike,
    missing: ArrayLike | None = None,
    inputs: ArrayLike | None = None,
    rule: Rule | None = None,
    *,
    likelihood: Likelihood | None = None,
    parallel: bool = False,
) -> Smoothed:
    """Runs the Rauch-Tung-Striebel smoother, in square-root form.

    With `[[F L, L_Q], [L, 0]] = [[L⁺, 0], [X, Y]] Θ`, Θ orthogonal, the gain is `J = X / L⁺`, and
    `[J L_s⁺, Y]` is a root of the smoothed covariance (Park & Kailath, IEEE Trans. Autom. Control
    40, 1995). Covariances are sums of squares, without a subtraction.

    Arguments are as for `filter`, of a `LinearGaussian` or a `NonlinearGaussian`. An `Iterated`
    rule repeats the whole series, in parallel too; so does a likelihood, until past and future
    agree on what each observation tells.

    Returns:
        `Smoothed`, differentiable once, where the model is linear and its noise normal.

    Raises:
        TypeError, ValueError: As `filter`; a likelihood on whose observations past and future do
            not come to agree.
        NotImplementedError: A likelihood in a graph: its turns end where they agree.

    Example:
        >>> import numpy as np
        >>> from cgp import statespace
        >>> walk = statespace.LinearGaussian([[1.0]], [[1.0]], [[1.0]], [[2.0]], [0.0], [[2.0]])
        >>> statespace.smooth(walk, [1.0, np.nan, 1.0]).smoothed_means.numpy().ravel().round(6)
        array([0.6, 0.7, 0.8])
    """
    original, parallel = model, as_flag(parallel, "parallel")
    model, inputs = smoothing_model(
        original, z, missing, inputs, rule, likelihood, parallel=parallel
    )
    series, form = Series(model, z, missing, inputs), model.form
    smoothed = moments(series, parallel)
    if tf.executing_eagerly() and not all(
        np.isfinite(a).all() for a in (smoothed.means, smoothed.chols)
    ):
        filtered_moments(series, parallel)  # says where the state overflows
    if model is not original:  # linearised where the factors, without gradient, say
        smoothed = SmoothedMoments(*without_gradient(smoothed, smoothed, _OF_LINEAR))
    lags = form.moments(smoothed.lags[..., :-1, :, :])
    return Smoothed(
        smoothed_means=form.join(smoothed.means),
        smoothed_chols=stored_cholesky(smoothed.chols, smoothed.covariances),
        lag_one_covariances=lags.k,
        lag_one_pseudo_covariances=lags.c,
        gains=smoothed.gains[..., :-1, :, :],
    )


class SmoothedMoments(NamedTuple):
    """The moments of the states of a series, working values.

    Gradients flow from all but the factors. The last lag-one covariance and the last gain have no
    meaning. Series may share all but the means, with batch axes of 1.
    """

    means: tf.Tensor  # `[..., T, n]`
    covariances: tf.Tensor  # `[..., T, n, n]`
    lags: tf.Tensor  # `[..., T, n, n]`
    gains: tf.Tensor  # `[..., T, n, n]`
    chols: tf.Tensor  # `[..., T, n, n]`


def moments(series: Series, parallel: bool = False) -> SmoothedMoments:
    """The moments of each state given all observations, differentiable once."""
    means, *of_covariances = differentiable_smoother.moments(series.arranged(), parallel)
    return SmoothedMoments(series.from_series(means), *map(series.first_or_shared, of_covariances))


def smoothing_model(
    model: AnyModel,
    z: ArrayLike,
    missing: ArrayLike | None,
    inputs: ArrayLike | None,
    rule: Rule | None,
    likelihood: Likelihood | None = None,
    *,
    parallel: bool = False,
) -> tuple[LinearGaussian, ArrayLike | None]:
    """The linear model whose smoother has the moments of a model's smoother, and its inputs."""
    model = measurable(model, likelihood)
    if likelihood is None and not isinstance(model, NonlinearGaussian):
        checked_rule(rule)  # all rules are exact here, and anything else is a mistake
        return model, inputs
    if likelihood is not None and not tf.executing_eagerly():
        raise NotImplementedError("smooth with a likelihood is not for graphs: call it eagerly")
    accuracy = float(np.finfo(noise_of(model).dtype.real_dtype.as_numpy_dtype).eps ** 0.5)
    along = Along(model, z, missing, inputs, rule, likelihood)
    linear, last, change = along.of_filter().model, None, np.inf
    for _ in range(along.iterations if likelihood is None else MOST_TURNS):
        smoothed = moments(Series(linear, z, missing), parallel)
        means, chols = smoothed.means, smoothed.chols
        if last is not None:
            means += along.damping * (last[0] - means)
            if likelihood is not None:
                change = _change(last, (means, chols))
                if change <= accuracy:
                    break
        linear, last = along.at_moments(means, chols).model, (means, chols)
    if likelihood is not None and not change <= 1e3 * accuracy:
        raise ValueError(
            f"no normal posterior was found for {likelihood!r} in {MOST_TURNS} turns, the last of "
            f"which moved a state by {change:.1g} standard deviations: the model may be far from "
            "the data"
        )
    return linear, None


def _change(last: tuple[tf.Tensor, tf.Tensor], following: tuple[tf.Tensor, tf.Tensor]) -> float:
    """The largest move of means `[..., T, n]`, in standard deviations, or of variances, a share."""
    (mean, chol), (last_mean, last_chol) = following, last
    variance, before = (tf.reduce_sum(squared_modulus(a), axis=-1) for a in (chol, last_chol))
    # Where a state is nearly certain the mean itself is the measure: rounding moves it.
    least = np.finfo(variance.dtype.as_numpy_dtype).eps ** 0.5 * tf.abs(mean)
    moved = tf.abs(mean - last_mean), tf.sqrt(variance) + least
    spread = tf.abs(variance - before), variance
    return max(float(tf.reduce_max(tf.math.divide_no_nan(*pair))) for pair in (moved, spread))
