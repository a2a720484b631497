"""Forecasts beyond the end of a series."""

import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.distributions.forms import SecondMoments
from cgp.distributions.marginals import Marginals
from cgp.linalg.arguments import ArrayLike
from cgp.linalg.batch_last import to_first, to_last
from cgp.linalg.short_repr import short_repr
from cgp.statespace.engines.filter_step import State, for_loops, predict, predict_at
from cgp.statespace.filtering import moments, observation_moments, observed_means
from cgp.statespace.linearization.linearized_model import AnyModel, linearized, noise_of
from cgp.statespace.linearization.rules import Rule
from cgp.statespace.models.linear_gaussian import LinearGaussian, with_time
from cgp.statespace.models.model_base import whole_steps
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian
from cgp.statespace.results import Filtered, covariance_marginals
from cgp.statespace.series import Series, known_inputs, missing_series


@short_repr
class Forecast(NamedTuple):
    """The moments of states and observations after the end of a series.

    For a widely linear model the factors are of the real composite, `[..., steps, 2n, 2n]`.
    """

    state_means: tf.Tensor
    """`[..., steps, n]`; the first is one step after the last observation."""
    state_chols: tf.Tensor
    """`[..., steps, n, n]`."""
    observation_means: tf.Tensor
    """`[..., steps, m]`."""
    observation_covariances: tf.Tensor
    """`[..., steps, m, m]`, observation noise included."""
    observation_pseudo_covariances: tf.Tensor | None
    """`[..., steps, m, m]`; None if the model is not widely linear, where they are zero."""

    def marginals(self) -> Marginals:
        """The moments of the observations, noise included, NumPy arrays `[..., steps, m]`."""
        covariances = SecondMoments(
            self.observation_covariances, self.observation_pseudo_covariances
        )
        return covariance_marginals(self.observation_means, covariances)


@as_it_stands
def forecast(
    model: AnyModel,
    result: Filtered,
    steps: int,
    inputs: ArrayLike | None = None,
    rule: Rule | None = None,
) -> Forecast:
    """Forecasts states and observations after the end of a series.

    Args:
        model: The model; none of its matrices may vary over time.
        result: The result of `filter`.
        steps: Number of steps ahead, at least 1.
        inputs: Known inputs of a model with B, `[..., steps, k]`: the first leads from the last
            observation to the first forecast. A `NonlinearGaussian`, whose observations may depend
            on them too, needs one more, at the last forecast.
        rule: As for `filter`.

    Returns:
        `Forecast`.

    Raises:
        TypeError: `result` is not from `filter`; complex inputs of a real model.
        ValueError: A model that varies over time, or that differs from the model of the result in
            state size, form or dtype; steps below 1; inputs that do not fit.

    Example:
        >>> import numpy as np
        >>> from cgp import statespace
        >>> spin = statespace.LinearGaussian([[1j]], [[0.0]], [[1.0]], [[0.5]], [0], [[1e6]])
        >>> result = statespace.filter(spin, np.array([1.0, 1j, -1.0]))
        >>> means = statespace.forecast(spin, result, 3).observation_means.numpy()
        >>> bool(np.allclose(means, [[-1j], [1.0], [1j]], atol=1e-4))
        True
    """
    if not isinstance(result, Filtered):
        raise TypeError(f"result must be what filter returns, got {type(result).__name__}")
    noise, steps = noise_of(model), whole_steps(steps)
    _check_result(result, noise)
    if noise.steps is not None:
        raise ValueError(
            "the matrices of the model vary over time, and say nothing of what comes after: "
            "filter a series with NaN appended, with matrices for all of it"
        )
    mean = noise.form.split(result.filtered_means[..., -1, :])
    chol = result.filtered_chols[..., -1, :, :]
    if isinstance(model, NonlinearGaussian):
        # A series of missing values from the last state on: the first state is known.
        shape = None if inputs is None else np.shape(inputs)
        if shape is not None and noise.B is not None and steps + 1 not in shape[-2:]:
            raise ValueError(
                f"inputs must be [..., {steps + 1}, k] for {steps} steps: the first is that of the "
                f"last observation, the last that of the last forecast; got shape {shape}"
            )
        missing_z = missing_series(noise, steps + 1)
        after = model.starting_from(mean, chol)
        linear, working_inputs, _ = linearized(after, missing_z, inputs=inputs, rule=rule)
        return _predicted(Series(linear, missing_z, inputs=working_inputs), since=1)
    working_inputs = known_inputs(model, inputs, steps)
    first = None if working_inputs is None else working_inputs[..., 0, :]
    start = model.starting_from(*ahead(model, mean, chol, first, _last_observation(result)))
    if working_inputs is not None:
        # The last input would lead beyond the last forecast.
        working_inputs = tf.concat(
            [working_inputs[..., 1:, :], tf.zeros_like(working_inputs[..., :1, :])], axis=-2
        )
        working_inputs = model.form.join(working_inputs)
    return forecast_of_start(start, steps, working_inputs)


def forecast_of_start(
    model: AnyModel, steps: int, inputs: ArrayLike | None = None, rule: Rule | None = None
) -> Forecast:
    """The forecast of a model whose initial state is the state of the first step.

    Of the inputs, `[..., steps, k]`, the first leads from the first step to the second.
    """
    missing_z = missing_series(noise_of(model), steps)
    linear, inputs, _ = linearized(model, missing_z, inputs=inputs, rule=rule)
    return _predicted(Series(linear, missing_z, inputs=inputs), since=0)


def _predicted(series: Series, since: int) -> Forecast:
    """The predictions of a series from a step on."""
    model, result = series.model, moments(series)
    observed = observation_moments(model, result)

    def of_each(a: tf.Tensor | None) -> tf.Tensor | None:
        return None if a is None else series.of_each(a, 3)[..., since:, :, :]

    means = result.predicted_means
    return Forecast(
        model.form.join(means)[..., since:, :],
        of_each(result.predicted_chols),
        model.observation_form.join(observed_means(model, means))[..., since:, :],
        of_each(observed.k),
        of_each(observed.c),
    )


def _check_result(result: Filtered, model: LinearGaussian) -> None:
    """Raises unless a result is of the states of a model, in its form and dtype."""
    means, chols, rows = result.filtered_means, result.filtered_chols, model.F.shape[-1]
    if means.shape[-1] != model.state_size:
        raise ValueError(
            f"result is of {means.shape[-1]} states, but the model has {model.state_size}"
        )
    if chols.shape[-1] != rows or chols.dtype != model.dtype:
        kind = "proper" if model.is_proper else "widely linear"
        raise ValueError(
            f"result must be that of filter for this model, which is {kind}, with factors [{rows}, "
            f"{rows}] of {model.dtype.name}, but its factors are {chols.shape} of "
            f"{chols.dtype.name}. A filter whose likelihood is not circular is that of "
            "widely_linear(model)"
        )


def _last_observation(result: Filtered) -> tf.Tensor:
    """The last observation of a filtered series, `[..., M]`, NaN where missing."""
    z = result.observation_means + result.innovations
    has_components = z.shape.rank == result.filtered_means.shape.rank
    return z[..., -1, :] if has_components else z[..., -1:]


def ahead(
    model: LinearGaussian,
    mean: tf.Tensor,
    chol: tf.Tensor,
    inputs: tf.Tensor | None,
    z: np.ndarray | tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Predicts a state one step ahead, by the last of matrices that vary over time.

    Mean, factor and known inputs of this step are working values. z, `[..., M]`, is its
    observation, with whose noise that of the transition may be correlated.
    """
    if model.joint_noise is not None:
        if inputs is not None:
            inputs = model.form.join(inputs)[..., None, :]
        series = Series(model.starting_from(mean, chol), z[..., None, :], inputs=inputs)
        of_step, start = for_loops(series.arranged())
        following = predict_at(of_step, 0, start)
        return series.first(following.mean), series.first(following.chol)
    F, Q_factor = (with_time(a)[..., -1, :, :] for a in (model.F, model.Q_factor))
    drift = tf.zeros_like(mean) if model.b is None else model.b[..., -1, :]
    if inputs is not None and model.B is not None:
        drift += tf.linalg.matvec(with_time(model.B)[..., -1, :, :], inputs)
    arrays = [(mean, 1), (chol, 2), (F, 2), (Q_factor, 2), (drift, 1)]
    shapes = [tf.shape(a)[: a.shape.rank - rank] for a, rank in arrays]
    batch = functools.reduce(tf.broadcast_dynamic_shape, shapes)
    mean, chol, *system = (to_last(a, rank, batch) for a, rank in arrays)
    following = predict(State(mean, chol), *system)
    return to_first(following.mean, batch), to_first(following.chol, batch)
