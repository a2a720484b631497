"""Models between which a Markov chain switches, and the filter of interacting models.

Each step updates the state of each model with the observation, weighs the models by its
likelihoods, and mixes their states before each model predicts (Blom & Bar-Shalom, IEEE Trans.
Autom. Control 33, 1988). Gradients go through the moments of a mixture, not through the roots of
its weights, which have no derivative at zero.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import ArrayLike, check_finite, real_as
from cgp.linalg.batch_last import (
    adjoint,
    matmul,
    matvec,
    outer,
    triangularize,
    with_factor_gradient,
)
from cgp.statespace.compiled import graph_of, time_loop
from cgp.statespace.engines.filter_step import State, at_known
from cgp.statespace.linearization.linearized_model import (
    AnyModel,
    checked_rule,
    noise_of,
    stepper_of,
    system_of,
)
from cgp.statespace.linearization.linearized_step import Stepper, StepSystem
from cgp.statespace.linearization.rules import Affine, Rule
from cgp.statespace.models.linear_gaussian import check_uncorrelated
from cgp.statespace.models.model_base import Settled, as_dtype, kept_in
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian
from cgp.statespace.results import Filtered
from cgp.statespace.series import Series


class Modes(NamedTuple):
    """The states by the models, predicted for one observation."""

    states: tuple[State, ...]
    log_probabilities: tf.Tensor
    """The logarithms of the probabilities of the models, real, `[K, B]`."""


class MixtureMoments(NamedTuple):
    """The moments of the mixture of all models at each step, batch last."""

    predicted_means: tf.Tensor
    predicted_chols: tf.Tensor
    filtered_means: tf.Tensor
    filtered_chols: tf.Tensor
    observation_means: tf.Tensor  # The mean predicted of the observation, `[m, B]`
    observation_covariances: tf.Tensor  # `[m, m, B]`
    log_likelihoods: tf.Tensor  # Real, `[B]`
    probabilities: tf.Tensor  # The probabilities of the models given the observation, `[K, B]`


Loop = Callable[..., tuple[MixtureMoments, Modes]]
"""`run` of the models of a bank, as a function of its other arguments."""


def run(
    steps_of: Sequence[Stepper],
    systems: tuple[StepSystem, ...],
    transition: tf.Tensor,
    start: Modes,
) -> tuple[MixtureMoments, Modes]:
    """The filter of a series, or of B of them, by the steps and the system of each model.

    Returns:
        The moments, `[T, …, B]`, and the states predicted after the last observation.
    """
    steps = tf.shape(systems[0].z)[0]

    def step(t: tf.Tensor, modes: Modes) -> tuple[MixtureMoments, Modes]:
        now = tf.nest.map_structure(lambda a: None if a is None else at_known(a, t), systems)
        following, moments = _step(steps_of, now, transition, modes)
        shaped = tf.nest.map_structure(lambda a, b: tf.ensure_shape(a, b.shape), following, start)
        return moments, shaped

    dtype, real = start.states[0].mean.dtype, start.log_probabilities.dtype
    n, columns = start.states[0].mean.shape
    m, count = systems[0].R.shape[1], start.log_probabilities.shape[0]
    states = [(dtype, [n, columns]), (dtype, [n, n, columns])] * 2
    observations = [(dtype, [m, columns]), (dtype, [m, m, columns])]
    kinds = [*states, *observations, (real, [columns]), (real, [count, columns])]
    values, last = time_loop(step, start, kinds, steps)
    return MixtureMoments(*values), last


def _step(
    steps_of: Sequence[Stepper], systems: Sequence[StepSystem], transition: tf.Tensor, modes: Modes
) -> tuple[Modes, MixtureMoments]:
    before, logs = modes
    after, log_likelihoods, observations = [], [], []
    for steps, system, state in zip(steps_of, systems, before, strict=True):
        updated, log_likelihood, affine = steps.updated(system, state)
        after.append(updated)
        log_likelihoods.append(log_likelihood)
        observations.append(_observed(system, affine, state))
    joint = logs + tf.stack(log_likelihoods)
    total = log_sum_exp(joint)
    # An observation that is impossible under all models tells nothing of them.
    posterior = tf.where(_impossible(total), logs, joint - _finite(total))
    mixing = safe_log(transition)[..., None] + posterior[:, None]
    logs = log_sum_exp(mixing)
    # A model that cannot be entered goes on from its own state: it has no weight until it can.
    alone = tf.eye(len(after), dtype=logs.dtype)[..., None]
    weights = tf.where(_impossible(logs)[None], alone, tf.exp(mixing - _finite(logs)))
    following = tuple(
        steps.predicted(system, mixture(weights[:, j], after))[0]
        for j, (steps, system) in enumerate(zip(steps_of, systems, strict=True))
    )
    prior, probabilities = tf.exp(modes.log_probabilities), tf.exp(posterior)
    moments = MixtureMoments(
        *mixture(prior, before),
        *mixture(probabilities, after),
        *_moments(prior, *zip(*observations, strict=True)),
        total,
        probabilities,
    )
    return Modes(following, logs), moments


def _observed(system: StepSystem, affine: Affine, state: State) -> tuple[tf.Tensor, tf.Tensor]:
    """The mean and covariance predicted of an observation."""
    factors = [matmul(affine.matrix, state.chol)]
    if affine.residual is not None:
        factors.append(affine.residual)
    covariance = tf.add_n([matmul(factor, adjoint(factor)) for factor in factors]) + system.R
    return matvec(affine.matrix, state.mean) + affine.offset, covariance


def mixture(weights: tf.Tensor, states: Sequence[State]) -> State:
    """The moments of a mixture of states with weights `[K, B]`, as a sum of squares."""
    means, chols = [state.mean for state in states], [state.chol for state in states]
    covariances = [matmul(chol, adjoint(chol)) for chol in chols]
    mean, covariance = _moments(weights, means, covariances)
    roots = tf.unstack(real_as(tf.sqrt(weights), mean.dtype), len(states))
    factors = [root * chol for root, chol in zip(roots, chols, strict=True)]
    factors += [(root * (m - mean))[:, None] for root, m in zip(roots, means, strict=True)]
    chol = tf.stop_gradient(triangularize(tf.concat(factors, axis=1)))
    return State(mean, with_factor_gradient(chol, covariance))


def _moments(
    weights: tf.Tensor, means: Sequence[tf.Tensor], covariances: Sequence[tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and covariance of a mixture, whose covariance has the spread of the means."""
    weighed = tf.unstack(real_as(weights, means[0].dtype), len(means))
    mean = tf.add_n([w * m for w, m in zip(weighed, means, strict=True)])
    spreads = [
        w * (covariance + outer(m - mean, m - mean))
        for w, m, covariance in zip(weighed, means, covariances, strict=True)
    ]
    return mean, tf.add_n(spreads)


# --- logarithms of probabilities that may be zero ---------------------------------------------


def safe_log(a: tf.Tensor) -> tf.Tensor:
    """The logarithm, −∞ at zero, where its gradient is zero."""
    is_possible = a > 0
    return tf.where(is_possible, tf.math.log(tf.where(is_possible, a, tf.ones_like(a))), _never(a))


def log_sum_exp(a: tf.Tensor) -> tf.Tensor:
    """`log Σ exp a` over the first axis, −∞ if all are, with gradient zero."""
    none = tf.reduce_all(_impossible(a), axis=0)
    total = tf.reduce_logsumexp(tf.where(none[None], tf.zeros_like(a), a), axis=0)
    return tf.where(none, _never(a), total)


def _never(a: tf.Tensor) -> tf.Tensor:
    return tf.constant(-np.inf, a.dtype)


def _impossible(a: tf.Tensor) -> tf.Tensor:
    return tf.equal(a, _never(a))


def _finite(a: tf.Tensor) -> tf.Tensor:
    return tf.where(_impossible(a), tf.zeros_like(a), a)


# Rows of single precision sum to one within this.
_TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class InteractingFiltered(Filtered):
    """Results of the filter of interacting models: moments of the mixture of all models."""

    mode_probabilities: tf.Tensor
    """Probabilities of the models after each observation, real, `[..., T, K]`."""


class InteractingModels(Settled):
    """A bank of K state-space models, one of which is in force at each time: a switching model.

    A Markov chain switches between them: model j follows model i with probability
    `transition[i, j]`. `cgp.statespace.filter` and `log_likelihood` take a bank as they take a
    model. The exact filter has K^T terms; the filter of interacting models (IMM) keeps K normals,
    and mixes them by their moments before each prediction (Blom & Bar-Shalom, IEEE Trans. Autom.
    Control 33, 1988). With one model it is the filter of that model; with equal models, the filter
    of each. `cgp.statespace.step` takes it too, one observation at a time.

    Model j in force at t makes the observation z[t], and led to x[t] from x[t−1]: its Q and F at
    t − 1, its H and R at t.

    Args:
        models: K models, `LinearGaussian` or `NonlinearGaussian`, of one size, dtype and form of
            states and observations; all or none of them widely linear. Nonlinear models of complex
            states have the form of widely linear ones unless they are `holomorphic`.
        transition: Probabilities of the switch from one step to the next, real, `[K, K]`; each row
            sums to one.
        initial: Probabilities of the models at the first observation, real, `[K]`; all the same if
            None.

    Attributes:
        models: As given, a tuple.
        transition, initial: As tensors, in the precision of the models.

    Raises:
        TypeError: Not models, or not real numbers.
        ValueError: No models, or models that differ in size, dtype or form; probabilities of
            another shape, or that are negative or do not sum to one.

    Example:
        >>> import numpy as np
        >>> from cgp import statespace
        >>> still, moving = (
        ...     statespace.LinearGaussian([[1.0]], [[q]], [[1.0]], [[0.1]], [0.0], [[1.0]])
        ...     for q in (1e-4, 1.0)
        ... )
        >>> bank = statespace.InteractingModels([still, moving], [[0.95, 0.05], [0.05, 0.95]])
        >>> z = np.concatenate([np.zeros(10), [2.0, -1.0, 3.0, 0.5, -2.0]])
        >>> found = statespace.filter(bank, z)
        >>> found.mode_probabilities.numpy()[[9, 14], 1].round(2)
        array([0.02, 1.  ])
    """

    models: tuple[AnyModel, ...]
    transition: tf.Tensor
    initial: tf.Tensor

    def __init__(
        self, models: Sequence[AnyModel], transition: ArrayLike, initial: ArrayLike | None = None
    ):
        models = _checked_models(models)
        count, real = len(models), noise_of(models[0]).dtype.real_dtype
        probabilities = np.full(count, 1.0 / count) if initial is None else initial
        self._settle(
            models=models,
            transition=_probabilities(transition, "transition", [count, count], real),
            initial=_probabilities(probabilities, "initial", [count], real),
        )

    def filter(
        self,
        z: ArrayLike,
        missing: ArrayLike | None = None,
        inputs: ArrayLike | None = None,
        rule: Rule | None = None,
    ) -> InteractingFiltered:
        """Runs the filter of interacting models: `cgp.statespace.filter(bank, z)`.

        Arguments are as for `cgp.statespace.filter`; inputs go to the models that have inputs.

        Returns:
            `InteractingFiltered`. Differentiable by the matrices and initial moments of models that
            are not singular, by variables in their functions, by `transition` where it is not zero,
            and by z.

        Raises:
            TypeError, ValueError: As `cgp.statespace.filter`.
        """
        series = series_of(self, z, missing, inputs)
        moments, _ = run_along(self, series, rule)
        first = series[0]
        check_moments(moments)
        form, observed = first.model.form, first.model.observation_form
        means = first.first(moments.observation_means)
        covariances = observed.moments(first.first(moments.observation_covariances))
        log_likelihoods = first.first(moments.log_likelihoods)
        return InteractingFiltered(
            predicted_means=form.join(first.first(moments.predicted_means)),
            predicted_chols=first.first(moments.predicted_chols),
            filtered_means=form.join(first.first(moments.filtered_means)),
            filtered_chols=first.first(moments.filtered_chols),
            observation_means=first.observation_axis(observed.join(means)),
            innovations=first.observation_axis(first.innovations(means)),
            innovation_covariances=covariances.k,
            innovation_pseudo_covariances=covariances.c,
            log_likelihoods=log_likelihoods,
            log_likelihood=tf.reduce_sum(log_likelihoods, axis=-1),
            mode_probabilities=first.first(moments.probabilities),
        )

    def __repr__(self) -> str:
        return f"InteractingModels({', '.join(map(repr, self.models))})"


# --- the recursion --------------------------------------------------------------------------------


def series_of(
    bank: InteractingModels,
    z: ArrayLike,
    missing: ArrayLike | None = None,
    inputs: ArrayLike | None = None,
) -> list[Series]:
    """The series as each model takes it."""
    noises = [noise_of(model) for model in bank.models]
    driven = [noise.B is not None for noise in noises]
    if inputs is not None and not any(driven):
        raise ValueError("inputs were given, but no model has inputs")
    several = [
        Series(noise, z, missing, inputs if takes else None)
        for noise, takes in zip(noises, driven, strict=True)
    ]
    shapes = [series.batch_shape for series in several]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(
            "the batch axes of z with each model must be the same, but they are "
            f"{', '.join(map(str, shapes))}: give z those axes, or give them to all models"
        )
    return several


def run_along(
    bank: InteractingModels,
    several: Sequence[Series],
    rule: Rule | None,
    start: Modes | None = None,
) -> tuple[MixtureMoments, Modes]:
    """The filter along a series, as each model takes it, and the states predicted after it."""
    systems_and_starts = [system_of(series) for series in several]
    systems = tuple(a for a, _ in systems_and_starts)
    if start is None:
        states = tuple(state for _, state in systems_and_starts)
        zero = tf.zeros_like(states[0].mean[:1], bank.transition.dtype)
        start = Modes(states, safe_log(bank.initial)[:, None] + zero)
    return _loop_of(bank, rule, systems)(systems, bank.transition, start)


def _loop_of(bank: InteractingModels, rule: Rule | None, systems: Sequence[StepSystem]) -> Loop:
    """The recursion; eagerly a graph, kept for models of these functions and sizes."""
    rule = checked_rule(rule)
    nonlinear = [model for model in bank.models if isinstance(model, NonlinearGaussian)]

    def steps(*arguments: Any) -> tuple[MixtureMoments, Modes]:
        return run([stepper_of(model, rule) for model in bank.models], *arguments)

    if not tf.executing_eagerly():
        return steps
    functions = [
        (model.transition, model.observation, model.input_size, model.form.multiplicity)
        if isinstance(model, NonlinearGaussian)
        else None
        for model in bank.models
    ]
    sizes = [(a.dtype, *a.shape[1:-1]) for a in tf.nest.flatten(systems) if a is not None]
    key = (InteractingModels, rule, *functions, *sizes)
    if nonlinear:
        return nonlinear[0].kept(key, lambda: graph_of(steps))
    return kept_in(_of_linear, key, lambda: graph_of(steps))


_of_linear: dict[Any, Loop] = {}


# --- checks ---------------------------------------------------------------------------------------


def _checked_models(models: Sequence[AnyModel]) -> tuple[AnyModel, ...]:
    if not isinstance(models, Sequence):
        raise TypeError(f"models must be a sequence of models, got {type(models).__name__}")
    models = tuple(models)
    if not models:
        raise ValueError("models must be at least one, got none")
    first = _kind(models[0])
    for i, model in enumerate(models):
        check_uncorrelated(noise_of(model), "a bank of InteractingModels")
        if _kind(model) != first:
            raise ValueError(
                "models must have states and observations of one size, dtype and form, but "
                f"models[0] has {first}, and models[{i}] {_kind(model)}"
            )
    return models


def _kind(model: AnyModel) -> str:
    noise = noise_of(model)
    pairs = ((noise.state_dtype, noise.form), (noise.series_dtype, noise.observation_form))
    forms = [
        "real composite" if dtype.is_complex and form.multiplicity > 1 else "proper"
        for dtype, form in pairs
    ]
    return (
        f"{noise.state_size} states of {noise.state_dtype.name} ({forms[0]}) and "
        f"{noise.observation_size} observed of {noise.series_dtype.name} ({forms[1]})"
    )


def _probabilities(a: ArrayLike, name: str, shape: list[int], dtype: tf.DType) -> tf.Tensor:
    a = as_dtype(a, dtype, name)
    if a.shape != shape:
        raise ValueError(f"{name} must be {shape}, for {shape[0]} models, got shape {a.shape}")
    check_probabilities(a, f"each row of {name}" if len(shape) > 1 else name)
    return a


def check_probabilities(a: tf.Tensor, name: str) -> None:
    """Raises a ValueError, eagerly, unless these are probabilities along the last axis."""
    if not tf.executing_eagerly():
        return
    check_finite(a, name)
    sums, least = np.sum(a, axis=-1), np.min(a)
    if least < 0 or not np.allclose(sums, 1.0, rtol=0, atol=_TOLERANCE):
        raise ValueError(
            f"{name} must be probabilities that sum to one, but the least is {least:.6g} and the "
            f"sums are {sums}"
        )


def check_moments(moments: MixtureMoments) -> None:
    """Raises, eagerly, where moments are not finite."""
    if not tf.executing_eagerly():
        return
    arrays = [moments.predicted_chols, moments.filtered_chols, moments.filtered_means]
    finite = np.all([np.isfinite(a).all(axis=tuple(range(1, a.ndim))) for a in arrays], axis=0)
    if not finite.all():
        raise ValueError(
            f"the moments of the state are not finite at step {int(np.argmin(finite))}: the "
            "covariance of a model overflows, or a function of one is not finite there"
        )
