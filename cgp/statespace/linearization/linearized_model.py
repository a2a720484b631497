"""The linear model that a rule makes of one that is not linear, along a series."""

import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.distributions.forms import form_of
from cgp.likelihoods import Likelihood
from cgp.linalg.arguments import ArrayLike
from cgp.linalg.batch_last import with_factor_gradient
from cgp.statespace.engines.filter_step import State
from cgp.statespace.linearization.likelihood_update import MOST_TURNS
from cgp.statespace.linearization.linearized_step import Linearized, Stepper, StepSystem
from cgp.statespace.linearization.rules import Affine, Rule, Taylor
from cgp.statespace.models.linear_gaussian import LinearGaussian, check_uncorrelated
from cgp.statespace.models.model_base import FactoredCovariance
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian
from cgp.statespace.models.widely_linear import widely_linear
from cgp.statespace.series import Series

AnyModel = LinearGaussian | NonlinearGaussian
AnyRule = Rule


class AsLinear(NamedTuple):
    """The linear model of a series that has the moments of a nonlinear one."""

    model: LinearGaussian
    """The linear model: its filter has the moments of the filter of the nonlinear one."""
    inputs: ArrayLike | None  # The known inputs of the linear model; None where its drift has them
    correction: tf.Tensor | None = None
    """The log likelihood of observations that are not normal, less that of the normal ones in their
    place, of each step, real, `[..., T]`; None for normal observations."""

    def corrected(self, log_likelihoods: tf.Tensor) -> tf.Tensor:
        """The log likelihoods of the nonlinear model by those of the linear one, `[..., T]`."""
        return log_likelihoods if self.correction is None else log_likelihoods + self.correction


def linearized(
    model: AnyModel,
    z: ArrayLike,
    missing: ArrayLike | None = None,
    inputs: ArrayLike | None = None,
    rule: Rule | None = None,
    likelihood: Likelihood | None = None,
) -> AsLinear:
    """The linear model whose filter has the moments of the filter of a model.

    Filter and linearisation run together once, since a step is linearised by the moments that the
    filter has before it. A linear model is returned unchanged, whatever the rule, unless there is a
    likelihood; a model with a likelihood first goes through `measurable`. Arguments are as for
    `filter`.

    Raises:
        TypeError: Not a model or not a rule, and as `filter`.
        ValueError: As `filter`; a function or its derivative that is not finite.
    """
    rule = checked_rule(rule)
    if likelihood is None and not isinstance(model, NonlinearGaussian):
        return AsLinear(model, inputs)  # checked by `Series`
    return Along(model, z, missing, inputs, rule, likelihood).of_filter()


def measurable(model: AnyModel, likelihood: Likelihood | None) -> AnyModel:
    """The model in a form whose observations can have a likelihood, with independent noise."""
    if likelihood is None:
        return model
    if not isinstance(likelihood, Likelihood):
        raise TypeError(f"likelihood must be one of cgp.likelihoods or None, got {likelihood!r}")
    noise = noise_of(model)
    check_uncorrelated(noise, f"{likelihood!r}")
    if not (noise.series_dtype.is_complex or likelihood.is_of_real):
        raise ValueError(f"{likelihood!r} is of complex signals, but the observations are real")
    if noise.initial == "diffuse" and not likelihood.is_circular:
        raise ValueError(
            f"{likelihood!r} tells too little of a diffuse initial state: give it a covariance"
        )
    if noise.dtype.is_complex and not likelihood.is_circular:
        if isinstance(model, NonlinearGaussian):
            raise ValueError(
                f"{likelihood!r} makes states improper: make the model without holomorphic=True"
            )
        model = widely_linear(model)
        noise = model
    if tf.executing_eagerly():
        _check_independent(noise, likelihood)
    return model


def _check_independent(noise: LinearGaussian, likelihood: Likelihood) -> None:
    k, c = noise.observation_form.moments(noise.R)
    dependent = [k - tf.linalg.diag(tf.linalg.diag_part(k))]
    if c is not None:
        dependent.append(c)
    size = float(tf.reduce_max(tf.abs(k)))
    largest = max(float(tf.reduce_max(tf.abs(covariance))) for covariance in dependent)
    if largest > 1e-6 * size:
        raise ValueError(
            f"with {likelihood!r} the noise of each component must be independent and circular: R "
            "diagonal, without a pseudo-covariance"
        )
    if float(tf.reduce_min(tf.math.real(tf.linalg.diag_part(k)))) <= 0.0:
        raise ValueError(f"with {likelihood!r} the diagonal of R must be positive")


def noise_of(model: AnyModel) -> LinearGaussian:
    """The linear model that has the noise, the initial state, the sizes and dtypes of a model."""
    if isinstance(model, NonlinearGaussian):
        return model.noise
    if not isinstance(model, LinearGaussian):
        raise TypeError(
            "model must be a LinearGaussian or a NonlinearGaussian here, got "
            f"{type(model).__name__} (filter takes a bank of InteractingModels too, and "
            "particle_filter a ConditionallyLinear)"
        )
    return model


def checked_rule(rule: Rule | None) -> Rule:
    """The rule, checked; `Taylor()` if None."""
    rule = Taylor() if rule is None else rule
    if not isinstance(rule, Rule):
        raise TypeError(
            f"rule must be a Taylor(), SigmaPoints() or Iterated() of one, got {rule!r}"
        )
    return rule


def stepper_of(model: AnyModel, rule: Rule | None, likelihood: Likelihood | None = None) -> Stepper:
    """The steps of a model by a rule, with the graphs that were compiled for them."""
    if not isinstance(model, NonlinearGaussian):
        inputs = 0 if model.B is None else model.B.shape[-1]
        sizes = (model.observation_form.multiplicity, *model.H.shape[-2:], inputs, model.dtype)
        return _linear_stepper(likelihood, *sizes)
    rule, form = checked_rule(rule), model.observation_form
    return model.kept((rule, likelihood), lambda: Stepper(model, rule, likelihood, form))


@functools.lru_cache(maxsize=64)
def _linear_stepper(likelihood: Likelihood | None, multiplicity: int, *sizes: Any) -> Stepper:
    del sizes  # the graphs are kept for each of them
    return Stepper(None, None, likelihood, form_of(multiplicity == 1))


def system_of(series: Series) -> tuple[StepSystem, State]:
    """The system of each step of a series, and the state before the first observation of each."""
    noise = series.model
    names = ("Q", "Q_factor", "R", "F", "H")
    Q, Q_factor, R, F, H = (series.of_steps(getattr(noise, name)) for name in names)
    z = tf.einsum("btm->tmb", series.by_series(series.z))
    observed = series.last(tf.cast(series.observed, z.dtype.real_dtype), 2)
    # Each series has its own states, and is linearised where they are.
    of_each = tf.zeros_like(z[0, :1])
    initial = (noise.initial_mean, noise.initial_covariance, tf.stop_gradient(noise.initial_chol))
    mean, covariance, chol = (
        series.last(a, rank) + of_each for a, rank in zip(initial, (1, 2, 2), strict=True)
    )

    def offset(a: tf.Tensor | None, size: int) -> tf.Tensor:
        return tf.zeros([1, size, 1], noise.dtype) if a is None else series.last(a, 2)

    m, n = noise.H.shape[-2:]
    b, d = offset(series.drift, n), offset(noise.d, m)
    system = StepSystem(Q, Q_factor, R, z, observed, inputs_of(series), F, b, H, d)
    return system, State(mean, with_factor_gradient(chol, covariance))


def inputs_of(series: Series) -> tf.Tensor:
    """The inputs, `[T, k, B]`, with k = 0 if there are none."""
    if series.inputs is None:
        return tf.zeros([1, 0, 1], series.model.dtype)
    return tf.einsum("btk->tkb", series.by_series(series.inputs))


class Along:
    """A model, a rule and a series, along which it is linearised; arguments as for `filter`."""

    def __init__(
        self,
        model: AnyModel,
        z: ArrayLike,
        missing: ArrayLike | None,
        inputs: ArrayLike | None,
        rule: Rule | None,
        likelihood: Likelihood | None = None,
    ):
        self._stepper, self._likelihood = stepper_of(model, rule, likelihood), likelihood
        self.iterations, self.damping = self._stepper.iterations, self._stepper.damping
        self._noise = noise_of(model)
        self._series = Series(self._noise, z, missing, inputs)
        if likelihood is not None and tf.executing_eagerly():
            likelihood.check(np.asarray(self._series.observations()))
        self._system, self._start = system_of(self._series)
        self._last: Any = None
        self._turns = 0

    def of_filter(self) -> AsLinear:
        """Linearises along the filter: each function by the moments that precede its use."""
        return self._linear(self._stepper.along(self._system, self._start))

    def at_moments(self, means: tf.Tensor, chols: tf.Tensor) -> AsLinear:
        """Linearises each step again, by moments `[..., T, n]`, `[..., T, n, n]` of its state."""
        series = self._series
        mean = tf.einsum("btn->tnb", series.by_series(means))
        states = State(mean, series.last(series.of_each(chols, 3), 3))
        turn = tf.constant(self._turns)
        self._turns += 1
        return self._linear(self._stepper.at_states(self._system, states, self._last, turn))

    def _linear(self, linearized: Linearized) -> AsLinear:
        """The model of approximations, `[T, …, B]`."""
        self._last, series, noise = linearized, self._series, self._noise
        _check_finite(linearized)
        matrices, measured = dict(noise.parts()), linearized.measured
        offset, correction = series.first(linearized.observation.offset), None
        if measured is not None:
            measured = measured.with_missing(self._system.measurement)
            matrices["R"] = FactoredCovariance(series.first(measured.R))
            # z is read as the observation that stands for it.
            offset += series.z - series.first(measured.z)
            correction = series.first(measured.correction)
            if tf.executing_eagerly():
                _check_agreement(correction.numpy(), self._likelihood)

        def with_residual(name: str, affine: Affine) -> FactoredCovariance | tf.Tensor:
            if affine.residual is None:
                return matrices[name]
            residual = series.first(affine.residual)
            matrix = matrices[name].matrix
            matrix = matrix if matrix.shape.rank > 2 else matrix[None]
            matrix += tf.linalg.matmul(residual, residual, adjoint_b=True)
            if name == "R" and measured is not None:
                return FactoredCovariance(matrix)
            factor = matrices[name].factor
            factor = factor if factor.shape.rank > 2 else factor[None]
            shape = tf.concat([tf.shape(residual)[:-1], tf.shape(factor)[-1:]], axis=0)
            factor = tf.broadcast_to(factor, shape)
            return FactoredCovariance(matrix, tf.concat([factor, residual], axis=-1))

        matrices = matrices | {
            "F": series.first(linearized.transition.matrix),
            "b": series.first(linearized.transition.offset),
            "Q": with_residual("Q", linearized.transition),
            "H": series.first(linearized.observation.matrix),
            "d": offset,
            "R": with_residual("R", linearized.observation),
        }
        matrices.pop("B", None)
        forms = (noise.form, noise.observation_form)
        return AsLinear(LinearGaussian.from_tensors(matrices, None, *forms), None, correction)


def _check_agreement(correction: np.ndarray, likelihood: Likelihood | None) -> None:
    """Raises for a step `[..., T]` whose observation has no normal one that stands for it."""
    finite = np.isfinite(correction)
    if finite.all():
        return
    step = int(np.argmin(finite.reshape(-1, finite.shape[-1]).all(axis=0)))
    raise ValueError(
        f"no normal posterior was found for {likelihood!r} at step {step} in {MOST_TURNS} turns: R "
        "may be far smaller than what is not known of the signal, the model far from the data, or "
        "the phase of moduli lost"
    )


def _check_finite(linearized: Linearized) -> None:
    """Raises, eagerly, where an approximation is not finite."""
    if not tf.executing_eagerly():
        return
    first = None
    for name in ("observation", "transition"):  # in the order of their use
        affine = getattr(linearized, name)
        # A derivative that is not finite makes the offset not finite too.
        arrays = {"derivative": affine.matrix, "value": affine.offset, "spread": affine.residual}
        for quantity, a in arrays.items():
            if a is None or np.isfinite(a.numpy()).all():
                continue
            step = int(np.argmin(np.isfinite(a.numpy()).all(axis=tuple(range(1, a.shape.rank)))))
            if first is None or step < first[0]:
                first = (step, name, quantity)
    if first is not None:
        step, name, quantity = first
        raise ValueError(
            f"the {name} is not finite at step {step}: its {quantity} there, at the states where "
            "the rule evaluates it. Another rule, a wider R or other units may keep them where the "
            "function is defined"
        )
