"""The linear model that a rule makes of one that is not linear, along a series."""

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import ArrayLike
from cgp.linalg.batch_last import with_factor_gradient
from cgp.statespace.factored_covariance import FactoredCovariance
from cgp.statespace.filter_step import State
from cgp.statespace.linear_gaussian import LinearGaussian
from cgp.statespace.linearization.affine import Affine, Rule
from cgp.statespace.linearization.iterated import Iterated
from cgp.statespace.linearization.taylor import Taylor
from cgp.statespace.linearized_step import Given, Linearized, Stepper
from cgp.statespace.nonlinear_gaussian import NonlinearGaussian
from cgp.statespace.series import Series

AnyModel = LinearGaussian | NonlinearGaussian
AnyRule = Rule | Iterated


def linearized(
    model: AnyModel,
    z: ArrayLike,
    missing: ArrayLike | None = None,
    inputs: ArrayLike | None = None,
    rule: AnyRule | None = None,
) -> tuple[LinearGaussian, ArrayLike | None]:
    """The linear model whose filter is that of a model, and the inputs that are left to it.

    Filter and linearisation run together once, since what is linearised next depends on what was
    filtered before. A linear model is returned as it is, whatever the rule.

    Args:
        model: The model.
        z: Observations, as for `filter`.
        missing: As for `filter`.
        inputs: As for `filter`.
        rule: The rule; `Taylor()` if None.

    Raises:
        TypeError: Not a model or not a rule, and as `filter`.
        ValueError: As `filter`; a function or its derivative that is not finite.
    """
    rule = checked_rule(rule)
    if not isinstance(model, NonlinearGaussian):
        return model, inputs  # checked by `Series`
    along = Along(model, z, missing, inputs, rule)
    return along.of_filter(), None


def noise_of(model: AnyModel) -> LinearGaussian:
    """The linear model that has the noise, the initial state, the sizes and dtypes of a model.

    Raises:
        TypeError: Not a model.
    """
    if isinstance(model, NonlinearGaussian):
        return model.noise
    if not isinstance(model, LinearGaussian):
        raise TypeError(
            "model must be a LinearGaussian or a NonlinearGaussian here, got "
            f"{type(model).__name__}"
        )
    return model


def checked_rule(rule: AnyRule | None) -> AnyRule:
    """The rule; `Taylor()` if None.

    Raises:
        TypeError: Not a rule.
    """
    rule = Taylor() if rule is None else rule
    is_rule = isinstance(rule, Iterated) or callable(getattr(rule, "linearize", None))
    if isinstance(rule, type) or not is_rule:
        raise TypeError(
            f"rule must be a Taylor(), SigmaPoints() or Iterated() of one, got {rule!r}"
        )
    return rule


def stepper_of(model: NonlinearGaussian, rule: AnyRule | None) -> Stepper:
    """The steps of a model by a rule, with the graphs that were compiled for them."""
    rule = checked_rule(rule)
    return model.kept(rule, lambda: Stepper(model, rule))


def given_of(series: Series) -> tuple[Given, State]:
    """What a series gives each step, and the state before the first observation of each series."""
    noise = series.model
    Q, Q_factor, R = map(series.of_steps, (noise.Q, noise.Q_factor, noise.R))
    z = tf.einsum("btm->tmb", series.by_series(series.z))
    observed = series.last(tf.cast(series.observed, z.dtype.real_dtype), 2)
    # Each series has its own states, and is linearised where they are.
    of_each = tf.zeros_like(z[0, :1])
    mean, covariance, chol = (
        series.last(a, own) + of_each
        for a, own in (
            (noise.initial_mean, 1),
            (noise.initial_covariance, 2),
            (tf.stop_gradient(noise.initial_chol), 2),
        )
    )
    given = Given(Q, Q_factor, R, z, observed, known_inputs_of(series))
    return given, State(mean, with_factor_gradient(chol, covariance))


def known_inputs_of(series: Series) -> tf.Tensor:
    """The inputs, `[T, k, B]`, with k = 0 if there are none."""
    if series.inputs is None:
        return tf.zeros([1, 0, 1], series.model.dtype)
    return tf.einsum("btk->tkb", series.by_series(series.inputs))


class Along:
    """A model, a rule and a series, along which the model is linearised.

    Args:
        model: The model.
        z: Observations, as for `filter`.
        missing: As for `filter`.
        inputs: As for `filter`.
        rule: The rule; `Taylor()` if None.
    """

    def __init__(
        self,
        model: NonlinearGaussian,
        z: ArrayLike,
        missing: ArrayLike | None,
        inputs: ArrayLike | None,
        rule: AnyRule | None,
    ):
        self._stepper = stepper_of(model, rule)
        self.iterations, self.damping = self._stepper.iterations, self._stepper.damping
        self.model, self._series = model, Series(model.noise, z, missing, inputs)

    def of_filter(self) -> LinearGaussian:
        """Linearises along the filter: each function by the moments that precede its use."""
        given, start = given_of(self._series)
        return self._linear(self._stepper.along(given, start))

    def at_moments(self, means: tf.Tensor, chols: tf.Tensor) -> LinearGaussian:
        """Linearises each step by given moments of its state.

        Args:
            means: Working values, `[..., T, n]`.
            chols: `[..., T, n, n]`; series may share them.
        """
        series = self._series
        mean = tf.einsum("btn->tnb", series.by_series(means))
        states = State(mean, series.last(series.of_each(chols, 3), 3))
        return self._linear(self._stepper.at_states(states, known_inputs_of(self._series)))

    def _linear(self, found: Linearized) -> LinearGaussian:
        """The model of approximations, `[T, …, B]`."""
        series, noise = self._series, self.model.noise
        _check_finite(found)

        def with_residual(name: str, affine: Affine) -> FactoredCovariance | tf.Tensor:
            own = noise.parts()[name]
            if affine.residual is None:
                return own
            residual = series.first(affine.residual)
            matrix = own.matrix if own.matrix.shape.rank > 2 else own.matrix[None]
            matrix += tf.linalg.matmul(residual, residual, adjoint_b=True)
            factor = own.factor if own.factor.shape.rank > 2 else own.factor[None]
            shape = tf.concat([tf.shape(residual)[:-1], tf.shape(factor)[-1:]], axis=0)
            factor = tf.broadcast_to(factor, shape)
            return FactoredCovariance(matrix, tf.concat([factor, residual], axis=-1))

        given = noise.parts() | {
            "F": series.first(found.transition.matrix),
            "b": series.first(found.transition.offset),
            "Q": with_residual("Q", found.transition),
            "H": series.first(found.observation.matrix),
            "d": series.first(found.observation.offset),
            "R": with_residual("R", found.observation),
        }
        given.pop("B", None)
        return LinearGaussian.from_tensors(given, None, noise.form, noise.observation_form)


def _check_finite(found: Linearized) -> None:
    """Raises, eagerly, where an approximation is not finite."""
    if not tf.executing_eagerly():
        return
    first = None
    for name in ("observation", "transition"):  # in the order of their use
        affine = getattr(found, name)
        # A derivative that is not finite makes the offset not finite too.
        parts = {"derivative": affine.matrix, "value": affine.offset, "spread": affine.residual}
        for what, a in parts.items():
            if a is None or np.isfinite(a.numpy()).all():
                continue
            step = int(np.argmin(np.isfinite(a.numpy()).all(axis=tuple(range(1, a.shape.rank)))))
            if first is None or step < first[0]:
                first = (step, name, what)
    if first is not None:
        step, name, what = first
        raise ValueError(
            f"the {name} is not finite at step {step}: its {what} there, at the states where the "
            "rule evaluates it. Another rule, a wider R or other units may keep them where the "
            "function is defined"
        )
