"""The Kalman filter of a whole series."""

from functools import cache
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.distributions import forms
from cgp.distributions.marginals import JointMoments, Marginals
from cgp.likelihoods import Likelihood
from cgp.linalg.arguments import ArrayLike, as_flag
from cgp.statespace.engines import differentiable_filter
from cgp.statespace.engines.chunked_engine import StateMoments, check_possible
from cgp.statespace.linearization.linearized_model import AnyModel, linearized, measurable
from cgp.statespace.linearization.rules import Rule
from cgp.statespace.models.linear_gaussian import LinearGaussian
from cgp.statespace.results import (
    Filtered,
    covariance_marginals,
    factors,
    has_gradient,
    joint_moments,
    when_read,
)
from cgp.statespace.series import Series
from cgp.statespace.steady_states import in_steady_state
from cgp.statespace.switching import InteractingModels


@as_it_stands
def filter(
    model: AnyModel | InteractingModels,
    z: ArrayLike,
    missing: ArrayLike | None = None,
    inputs: ArrayLike | None = None,
    rule: Rule | None = None,
    *,
    likelihood: Likelihood | None = None,
    parallel: bool = False,
    steady: bool = False,
) -> Filtered:
    """Runs the Kalman filter, in square-root form.

    The time update is `triangularize([F L, L_Q])`, by modified Gram-Schmidt (Bierman,
    *Factorization Methods for Discrete Sequential Estimation*, 1977, ch. VI); the measurement
    update is Carlson's (AIAA J. 11, 1973), one component at a time, after a full R is decorrelated.
    Missing elements are skipped. So are elements predicted without uncertainty (R singular); where
    such an observation differs from its prediction that is an error, in a graph a log likelihood of
    minus infinity. In a graph, and without the compiled core, the loop is compiled by XLA once for
    each size of model and batch: the first call takes about a second, and series of other lengths
    need no further compilation. With a likelihood the observations of a linear model are found in
    turns with the filter, until XLA compiles a loop for a program that has filtered for long.

    With `parallel=True` all steps are computed at once, by associative scans over time (Särkkä &
    García-Fernández, IEEE Trans. Autom. Control 66, 2021; in square-root form, Yaghoobi et al.,
    arXiv:2207.00426, 2022), and gradients too: in 2 log₂ T passes in place of T steps, with
    several times the arithmetic. This suits a long series on an accelerator, which a loop leaves
    idle between its steps. With a few cores the loop is faster: on two, a scan of 1e5 steps of 2
    to 4 states took 20 to 90 times as long as the compiled core where the matrices vary, up to
    1300 times where they do not, and of 1e4 steps up to 10 times as long as the loop in a graph.
    For 4 states it needs 8 kB a step, 20 kB to smooth. In a graph it must know T, and the first
    call takes ten seconds. The linearisation of a `NonlinearGaussian` still goes from step to step;
    the filter after it is parallel, as are the repetitions of an `Iterated` smoother. A noise-free
    observation of a part of the state that the process noise does not reach fixes the state before
    it exactly, which a scan cannot carry: it is an error, in a graph NaN.

    In single precision a standard deviation below about 1e-7 of the largest is lost to rounding,
    unless it lies along a coordinate axis of the state.

    Args:
        model: A `LinearGaussian`, a `NonlinearGaussian`, or a bank of `InteractingModels`.
        z: Observations, `[..., T, M]`, or `[T]` where M is 1; NaN where missing.
        missing: Bool, broadcast against z: True where missing.
        inputs: Known inputs, `[..., T, k]`, or `[T]` where k is 1, of a model with B.
        rule: How a `NonlinearGaussian` is linearised, `Taylor()` if None; all are exact for a
            linear model.
        likelihood: A likelihood of `cgp.likelihoods`, for observations that are not the signal plus
            normal noise; R, which must be diagonal, is its noise. Each component is replaced by the
            normal observation that makes the posterior nearest to the true one, and the log
            likelihood is approximate too: for `OneBit` by expectation propagation, for others a
            lower bound. Innovations are of these normal observations. None for normal noise.
        parallel: Whether to compute all steps at once, as above.
        steady: Whether to filter with the constant gain of `steady_state` from the first
            observation on (a Wiener filter): as if the initial covariance were that predicted in
            the steady state, whatever it is. For a linear model in normal noise that does not vary
            over time, of series without missing elements; differentiable by z, inputs and the
            initial mean, not by the matrices.

    Returns:
        `Filtered`; of a bank `InteractingFiltered`. Differentiable once by the matrices, the
        initial moments, z and inputs; factors only where they are not singular. A second
        derivative is a NotImplementedError.

    Raises:
        TypeError: A real series of a complex model, a complex one of a real model, or one of a
            higher precision than the model's.
        ValueError: Shapes that do not fit, an empty series, infinite observations, NaN in inputs;
            an observation that a model without noise rules out; with `parallel=True`, an R singular
            where H Q Hᴴ is, or an unknown length in a graph; a likelihood for which no normal
            posterior was found (in a graph the log likelihood is NaN then); with `steady=True`,
            missing elements, or a model without a steady state.

    Example:
        >>> import numpy as np
        >>> from cgp import statespace
        >>> walk = statespace.LinearGaussian([[1.0]], [[1.0]], [[1.0]], [[2.0]], [0.0], [[2.0]])
        >>> result = statespace.filter(walk, [1.0, 2.0])
        >>> result.predicted_means.numpy().ravel(), result.filtered_means.numpy().ravel()
        (array([0. , 0.5]), array([0.5 , 1.25]))
        >>> result.innovations.numpy(), result.innovation_variances.numpy()
        (array([1. , 1.5]), array([4., 4.]))
    """
    as_flag(parallel, "parallel")
    if as_flag(steady, "steady"):
        if likelihood is not None or parallel:
            raise ValueError("steady=True is without a likelihood and without parallel=True")
        model = in_steady_state(model)
    if isinstance(model, InteractingModels):
        _check_bank(parallel, likelihood)
        return model.filter(z, missing, inputs, rule)
    linear = linearized(measurable(model, likelihood), z, missing, inputs, rule, likelihood)
    model, inputs = linear.model, linear.inputs
    series = Series(model, z, missing, inputs)
    if steady and not series.is_whole:
        raise ValueError(
            "steady=True is for series without missing elements, after which the gain would not be "
            "that of the steady state: leave steady out, or fill the gaps in, by smooth perhaps"
        )
    moments_of_states = moments(series, parallel, has_gradient())

    @cache
    def observed() -> tf.Tensor:
        return observed_means(model, moments_of_states.predicted_means)

    @cache
    def covariances() -> forms.SecondMoments:
        return observation_moments(model, moments_of_states)

    log_likelihoods = linear.corrected(moments_of_states.log_likelihoods)
    return Filtered(
        predicted_means=model.form.join(moments_of_states.predicted_means),
        predicted_chols=factors(
            moments_of_states.predicted_chols, moments_of_states.predicted_covariances
        ),
        filtered_means=model.form.join(moments_of_states.filtered_means),
        filtered_chols=factors(
            moments_of_states.filtered_chols, moments_of_states.filtered_covariances
        ),
        observation_means=when_read(
            lambda: series.observation_axis(model.observation_form.join(observed()))
        ),
        innovations=when_read(lambda: series.observation_axis(series.innovations(observed()))),
        innovation_covariances=when_read(lambda: covariances().k),
        innovation_pseudo_covariances=when_read(lambda: covariances().c),
        log_likelihoods=log_likelihoods,
        log_likelihood=tf.reduce_sum(log_likelihoods, axis=-1),
    )


@as_it_stands
def log_likelihood(
    model: AnyModel | InteractingModels,
    z: ArrayLike,
    missing: ArrayLike | None = None,
    inputs: ArrayLike | None = None,
    rule: Rule | None = None,
    *,
    likelihood: Likelihood | None = None,
    parallel: bool = False,
) -> tf.Tensor:
    """The log likelihood of a series under the model, by the filter.

    Value and gradient together cost five to nine times the value alone, at any length. Arguments
    are as for `filter`.

    Returns:
        `log p(z)` of the elements observed, real, `[...]`; minus infinity for observations that a
        model without noise rules out. Differentiable once by the matrices, the initial moments, z
        and inputs, singular covariances included; by off-diagonal elements of a singular R only if
        no component but the last is without noise, given those before it.

    Raises:
        TypeError, ValueError: As `filter`, except for observations that are ruled out.

    Example:
        >>> from cgp import statespace
        >>> noise = statespace.LinearGaussian([[0j]], [[0.5]], [[1.0]], [[0.5]])
        >>> print(f"{statespace.log_likelihood(noise, [1 + 1j]):.6f}")  # −log π − |z|²
        -3.144730
    """
    as_flag(parallel, "parallel")
    if isinstance(model, InteractingModels):
        _check_bank(parallel, likelihood)
        return model.filter(z, missing, inputs, rule).log_likelihood
    linear = linearized(measurable(model, likelihood), z, missing, inputs, rule, likelihood)
    model, inputs = linear.model, linear.inputs
    series = Series(model, z, missing, inputs)
    totals = differentiable_filter.log_likelihood(series.arranged(), parallel)
    totals = series.from_series(totals)
    if linear.correction is not None:
        totals += tf.reduce_sum(linear.correction, axis=-1)
    if tf.executing_eagerly() and not np.isfinite(totals).all():
        _check_overflow(series, _by_batch(series, parallel))
    return totals


def _check_bank(parallel: bool, likelihood: Likelihood | None) -> None:
    if likelihood is not None:
        raise ValueError("likelihood is for one model, not for a bank of InteractingModels")
    if parallel:
        raise ValueError("parallel=True is not for InteractingModels, which mix step by step")


def _check_overflow(series: Series, moments: StateMoments) -> None:
    """Raises, eagerly, where the covariance or the mean of the state has overflowed."""
    if not tf.executing_eagerly():
        return
    # Beyond the largest number a state is infinite, and stays so or turns into NaN.
    means, chols = np.asarray(moments.predicted_means), np.asarray(moments.predicted_chols)
    if np.isfinite(means[..., -1, :]).all() and np.isfinite(chols[..., -1, :, :]).all():
        return
    model = series.model
    of_mean = np.isfinite(means).all(axis=-1)
    of_covariance = np.isfinite(chols).all(axis=(-2, -1))
    radius = np.max(np.abs(np.linalg.eigvals(np.asarray(model.F))))
    if of_covariance.all():
        raise ValueError(
            f"the mean of the state overflows at step {int(np.argmin(of_mean, axis=-1).max())}, by "
            f"its inputs or by an eigenvalue of F, whose largest modulus is {radius:.6g}: give "
            "smaller inputs, or series and models in larger units"
        )
    step = int(np.argmin(of_covariance, axis=-1).max())
    raise ValueError(
        f"the covariance of the state overflows at step {step}: F has an eigenvalue of modulus "
        f"{radius:.6g}, of a mode that the observations do not determine (H does not see it, or "
        "they are missing). Observe it, or model it as stable"
    )


def moments(series: Series, parallel: bool = False, has_gradient: bool = True) -> StateMoments:
    """The moments along a series, batch axes first, working values; `StateMoments` may be shared.

    Without a gradient there may be factors alone, of as many steps as differ.

    Raises:
        ValueError: Eagerly, an observation that contradicts a prediction without uncertainty, or a
            state that overflows.
    """
    result = _by_batch(series, parallel, has_gradient)
    _check_overflow(series, result)
    check_possible(result)
    return result


def _by_batch(series: Series, parallel: bool, has_gradient: bool = True) -> StateMoments:
    result = differentiable_filter.moments(series.arranged(), parallel, has_gradient)
    by_batch = {
        name: (series.from_series if name in _OF_EACH else series.first_or_shared)(a)
        for name, a in result._asdict().items()
        if a is not None
    }
    return result._replace(**by_batch)


_OF_EACH = ("predicted_means", "filtered_means", "log_likelihoods")


def observed_means(model: LinearGaussian, means: tf.Tensor) -> tf.Tensor:
    """Means of the observations from the means of the states, working values, `[..., T, m]`."""
    if model.H.shape.rank == 2:  # one product, instead of one for each step
        observed = tf.tensordot(means, model.H, [[-1], [-1]])
    else:
        observed = tf.linalg.matvec(model.H, means)
    return observed if model.d is None else observed + model.d


def observation_moments(model: LinearGaussian, moments: StateMoments) -> forms.SecondMoments:
    """Predicted (pseudo-)covariances of the observations, `[..., T, m, m]`, which may be shared."""
    P, L, H = moments.predicted_covariances, moments.predicted_chols, model.H
    if P is None:
        P = tf.linalg.matmul(L, L, adjoint_b=True)
    covariances = tf.linalg.matmul(H, tf.linalg.matmul(P, H, adjoint_b=True)) + model.R
    return model.observation_form.moments(covariances)


class Block(NamedTuple):
    """The results of filtering a block of observations."""

    predicted: Marginals  # The predictions of the observations, `[..., T, m]`, NumPy
    joint: JointMoments  # The same of all components together, `[..., T, m, m]`, NumPy
    states: Marginals  # The states after them, `[..., T, n]`, NumPy
    moments: StateMoments
    """The moments along the block, working values; series may share covariances."""
    last_mean: tf.Tensor
    """The mean of the state after the last observation, working values, `[..., n]`."""
    last_chol: tf.Tensor  # The factor of that state, `[..., n, n]`
    inputs: tf.Tensor | None  # The known inputs, working values


def process_block(model: LinearGaussian, z: ArrayLike, inputs: ArrayLike | None = None) -> Block:
    """Filters a block from the initial state of a model; arguments as for `filter`."""
    series = Series(model, z, inputs=inputs)
    result, form = moments(series), model.form
    means = model.observation_form.join(observed_means(model, result.predicted_means))
    covariances = observation_moments(model, result)
    return Block(
        covariance_marginals(means, covariances),
        joint_moments(means, covariances),
        covariance_marginals(
            form.join(result.filtered_means), form.moments(result.filtered_covariances)
        ),
        result,
        result.filtered_means[..., -1, :],
        series.of_each(result.filtered_chols[..., -1, :, :], 2),
        series.inputs,
    )
