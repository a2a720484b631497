"""Samples of states and observations, from the prior of a model and given a series."""

from typing import NamedTuple

import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.linalg.arguments import ArrayLike, as_sample_shape, nan, stateless_seed
from cgp.linalg.gradients import without_gradient
from cgp.linalg.short_repr import short_repr
from cgp.statespace.engines import differentiable_filter
from cgp.statespace.filtering import observed_means
from cgp.statespace.linearization.linearized_model import AnyModel, noise_of
from cgp.statespace.linearization.rules import Rule
from cgp.statespace.models.linear_gaussian import LinearGaussian
from cgp.statespace.models.model_base import whole_steps
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian, simulated, white
from cgp.statespace.series import Series, known_inputs, missing_series
from cgp.statespace.smoothing import smooth, smoothing_model


@short_repr
class Sampled(NamedTuple):
    """Sampled states and observations."""

    states: tf.Tensor
    """`[*sample_shape, ..., steps, n]`."""
    observations: tf.Tensor
    """`[*sample_shape, ..., steps, m]`."""


@as_it_stands
def sample(
    model: AnyModel,
    steps: int,
    sample_shape: ArrayLike = (),
    seed: ArrayLike | None = None,
    inputs: ArrayLike | None = None,
) -> Sampled:
    """Draws states and observations from a model.

    Args:
        model: The model.
        steps: T, at least 1.
        sample_shape: Integers, the leading axes of the samples.
        seed: One or two integers, for reproducible samples; None for new ones at each call.
        inputs: Known inputs of a model with B, `[..., steps, k]`.

    Returns:
        `Sampled`.

    Raises:
        ValueError: steps below 1, or other than the matrices have; an invalid shape or seed; inputs
            that do not fit.

    Example:
        >>> from cgp import statespace
        >>> model = statespace.LinearGaussian([[0.9j]], [[0.19]], [[1.0]], [[0.1]])
        >>> states, observations = statespace.sample(model, 100, sample_shape=(8,), seed=1)
        >>> states.shape, observations.shape
        (TensorShape([8, 100, 1]), TensorShape([8, 100, 1]))
    """
    noise, steps = noise_of(model), whole_steps(steps)
    if noise.steps not in (None, steps):
        raise ValueError(f"steps must be {noise.steps}, as the matrices have, got {steps}")
    working_inputs = known_inputs(noise, inputs, steps)
    batch = noise.batch_shape
    if working_inputs is not None:
        batch = tf.broadcast_static_shape(batch, working_inputs.shape[:-2])
    shape = _joined(as_sample_shape(sample_shape), batch)
    states, observations = _draw(model, steps, shape, seed, working_inputs)
    return Sampled(noise.form.join(states), noise.observation_form.join(observations))


@as_it_stands
def posterior_sample(
    model: AnyModel,
    z: ArrayLike,
    sample_shape: ArrayLike = (),
    seed: ArrayLike | None = None,
    missing: ArrayLike | None = None,
    inputs: ArrayLike | None = None,
    rule: Rule | None = None,
) -> tf.Tensor:
    """Draws states given a series, jointly over all times.

    Each is a prior sample of mean zero plus the smoothed mean given the observations minus the
    sampled observations (Durbin & Koopman, Biometrika 89, 2002).

    Arguments are as for `sample` and `smooth`; for a nonlinear model the samples are from the
    linear model that the rule makes of it.

    Returns:
        States, `[*sample_shape, ..., T, n]`. Not differentiable.

    Raises:
        TypeError, ValueError: As `filter` and `sample`.

    Example:
        >>> import numpy as np
        >>> from cgp import statespace
        >>> walk = statespace.LinearGaussian([[1.0]], [[0.1]], [[1.0]], [[0.0]], [0.0], [[1.0]])
        >>> between = statespace.posterior_sample(walk, [1.0, np.nan, 2.0], (3,), seed=1)
        >>> between[:, ::2, 0].numpy().round(3)
        array([[1., 2.],
               [1., 2.],
               [1., 2.]])
    """
    model, inputs = smoothing_model(model, z, missing, inputs, rule)
    series = Series(model, z, missing, inputs)
    steps = series.z.shape[-2] or tf.shape(series.z)[-2]
    shape = _joined(as_sample_shape(sample_shape), series.batch_shape)
    states, observations = _draw(model.centred(), steps, shape, seed, None)
    not_a_number = nan(series.z.dtype)
    difference = tf.where(series.observed, series.z - observations, not_a_number)
    if inputs is not None:
        inputs = model.form.join(series.inputs)
    # A diffuse prior has been checked against z already; the sample is as wide as the prior.
    centred = model.starting_from(model.initial_mean, model.initial_chol)
    smoothed = smooth(centred, model.observation_form.join(difference), inputs=inputs)
    draws = model.form.join(states) + smoothed.smoothed_means
    [draws] = without_gradient([draws], [draws], "draws of states are not differentiable")
    return draws


def _joined(sample_shape: tf.Tensor, batch: tf.TensorShape) -> tf.Tensor:
    return tf.concat([sample_shape, tf.constant(batch.as_list(), tf.int32)], axis=0)


def _draw(
    model: AnyModel,
    steps: int | tf.Tensor,
    shape: tf.Tensor,
    seed: ArrayLike | None,
    inputs: tf.Tensor | None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Working states and observations, `[*shape, T, ·]`."""
    noise = noise_of(model)
    n, dtype = noise.F.shape[-1], noise.dtype
    seeds = tf.random.experimental.stateless_split(stateless_seed(seed), 3)

    def drawn(factor: tf.Tensor, axes: list[int | tf.Tensor], number: int) -> tf.Tensor:
        tail = [*axes, factor.shape[-1]]
        return tf.linalg.matvec(factor, white(tf.concat([shape, tail], 0), seeds[number], dtype))

    start = noise.initial_mean + drawn(noise.initial_chol, [], 0)
    if noise.joint_noise is None:
        drive, added = drawn(noise.Q_factor, [steps], 1), drawn(noise.R_factor, [steps], 2)
    else:
        joint = drawn(noise.joint_noise.factor, [steps], 1)
        added, drive = tf.split(joint, [noise.H.shape[-2], n], axis=-1)
    if isinstance(model, NonlinearGaussian):
        path, observations = simulated(model, start, drive, inputs)
        return path, observations + added
    if inputs is not None:
        drive += tf.linalg.matvec(model.B, inputs)
    path = _path(model, steps, start, drive)
    return path, observed_means(model, path) + added


def _path(
    model: LinearGaussian, steps: int | tf.Tensor, start: tf.Tensor, drive: tf.Tensor
) -> tf.Tensor:
    """x[0] = start, x[t+1] = F x[t] + drive[t]: `[..., T, n]`.

    The process noise is the known input of a model without noise, whose predicted means are states.
    """
    driven = model.starting_from(start, tf.zeros_like(model.initial_chol)).driven()
    series = Series(driven, missing_series(model, steps), inputs=model.form.join(drive))
    return series.from_series(differentiable_filter.moments(series.arranged()).predicted_means)
