"""One step of the filter of interacting models, over streams of observations."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.distributions.marginals import Marginals, innovation
from cgp.linalg.arguments import ArrayLike
from cgp.linalg.short_repr import short_repr
from cgp.statespace.engines.filter_step import (
    BatchLastMarginals,
    State,
    marginals_of,
    with_pseudo_variance,
)
from cgp.statespace.linearization.linearized_model import AnyRule, noise_of
from cgp.statespace.models.conversion import as_dtype
from cgp.statespace.online.native_step import NOT_FINITE
from cgp.statespace.online.stream_samples import checked_samples, checked_state
from cgp.statespace.series import Series
from cgp.statespace.switching.interacting_filter import Modes, safe_log
from cgp.statespace.switching.interacting_models import (
    InteractingModels,
    check_probabilities,
    run_along,
    series_of,
)


@short_repr
class InteractingState(NamedTuple):
    """The states of K models, predicted for the next observation, of one or several streams."""

    mean: np.ndarray
    """`[..., K, n]`."""
    chol: np.ndarray
    """Cholesky factors of their covariances, `[..., K, n, n]`; of the real composite `[..., K, 2n,
    2n]`."""
    mode_probabilities: np.ndarray
    """Those predicted of the models, `[..., K]`."""


@short_repr
class InteractingStep(NamedTuple):
    """The result of a step: as `cgp.distributions.marginals.Step`, of the mixture of all models."""

    predicted: Marginals
    """The prediction of the observation, noise included, `[..., m]`."""
    innovation: np.ndarray
    """The observation minus its predicted mean; NaN where missing."""
    filtered: Marginals
    """The state after the observation, `[..., n]`."""
    mode_probabilities: np.ndarray
    """The probabilities of the models after it, `[..., K]`."""

    def marginals(self) -> Marginals:
        """The one-step prediction of the observation."""
        return self.predicted


def interacting_step(
    bank: InteractingModels,
    state: tuple[ArrayLike, ...] | None,
    z: ArrayLike,
    missing: ArrayLike | None = None,
    inputs: ArrayLike | None = None,
    rule: AnyRule | None = None,
) -> tuple[InteractingState, InteractingStep]:
    """`cgp.statespace.step` of interacting models; its arguments, without `arrived`.

    Returns:
        `(state, InteractingStep)`: what is predicted for the next observation, and the moments.
    """
    noises = [noise_of(model) for model in bank.models]
    if any(noise.steps is not None for noise in noises):
        raise ValueError(
            "the matrices of the models vary over time: filter a whole series, or make models for "
            "each step"
        )
    driven = next((noise for noise in noises if noise.B is not None), noises[0])
    z, inputs = checked_samples(driven, z, missing, inputs)
    if inputs is not None and driven.B is not None:
        inputs = inputs[..., None, :]
    several = series_of(bank, tf.convert_to_tensor(z)[..., None, :], inputs=inputs)
    series = several[0]
    start = None if state is None else _start(bank, series, state)
    found, following = run_along(bank, several, rule, start)
    form, observed = series.model.form, series.model.observation_form

    def of_mixture(own: Any, mean: tf.Tensor, rows: tf.Tensor, noise: Any) -> Marginals:
        moments: BatchLastMarginals = marginals_of(own, mean, rows, noise)
        return with_pseudo_variance(*(None if a is None else series.first(a) for a in moments))

    covariance = found.observation_covariances[0]
    mean = found.observation_means[0]
    predicted = of_mixture(observed, mean, tf.zeros_like(covariance[:, :1]), covariance)
    filtered = of_mixture(form, found.filtered_means[0], found.filtered_chols[0], None)
    means, chols = (tf.stack(parts) for parts in zip(*following.states, strict=True))
    after = InteractingState(
        form.join(series.first(means)),
        series.first(chols),
        series.first(tf.exp(following.log_probabilities)),
    )
    probabilities = series.first(found.probabilities[0])
    seen = series.observations()[..., 0, :] + tf.zeros_like(predicted.mean)
    if not tf.executing_eagerly():
        absent = tf.math.is_nan(tf.abs(seen))
        deviation = tf.where(absent, series.nothing, seen - predicted.mean)
        return after, InteractingStep(predicted, deviation, filtered, probabilities)
    after = InteractingState(*map(np.asarray, after))
    if not all(np.isfinite(a).all() for a in after):
        raise ValueError(NOT_FINITE)
    predicted, filtered = (Marginals(*map(np.asarray, a)) for a in (predicted, filtered))
    deviation = innovation(np.asarray(seen), predicted.mean)
    return after, InteractingStep(predicted, deviation, filtered, probabilities.numpy())


def _start(bank: InteractingModels, series: Series, state: tuple[ArrayLike, ...]) -> Modes:
    """A state given by a user, as the recursion takes it."""
    if not isinstance(state, tuple | list) or len(state) != 3:
        raise TypeError(
            f"state must be (mean, chol, mode_probabilities), got {type(state).__name__}"
        )
    mean, chol = checked_state(series.model, (state[0], state[1]))
    probabilities = as_dtype(state[2], bank.transition.dtype, "mode_probabilities")
    count, batch = len(bank.models), series.batch_shape
    for name, a, own in (
        ("mean", mean, 2),
        ("chol", chol, 3),
        ("mode_probabilities", probabilities, 1),
    ):
        if a.shape.rank < own or a.shape[-own] != count or a.shape[:-own] != batch:
            raise ValueError(
                f"{name} of the state must have the axes {[*batch, count]}, of series and models, "
                f"before its own, got shape {a.shape}"
            )
    check_probabilities(probabilities, "mode_probabilities of the state")
    means, chols = series.last(mean, 2), series.last(chol, 3)
    states = tuple(State(means[k], chols[k]) for k in range(count))
    return Modes(states, safe_log(series.last(probabilities, 1)))
