"""A step of an online filter, or of the filter of interacting models, over streams."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.axes import as_code, remedy
from cgp.distributions.forms import Form, form_of
from cgp.distributions.marginals import JointMoments, Marginals, Step, innovation
from cgp.likelihoods import Likelihood
from cgp.linalg.arguments import (
    ArrayLike,
    as_numbers,
    check_batches,
    is_finite,
    is_of_python,
    nan,
    real_as,
)
from cgp.linalg.batch_last import adjoint, matmul, matvec
from cgp.linalg.cholesky import check_factor
from cgp.linalg.short_repr import short_repr
from cgp.observations import as_observations, check_rounding, check_same_labels
from cgp.statespace.compiled import CompiledByShape
from cgp.statespace.engines.filter_step import (
    BatchLastMarginals,
    State,
    System,
    for_loops,
    marginals_of,
    predict_at,
    update_at,
    with_pseudo_variance,
)
from cgp.statespace.linearization.linearized_model import (
    AnyModel,
    AnyRule,
    linearized,
    measurable,
    noise_of,
)
from cgp.statespace.linearization.native_sites import turns_for
from cgp.statespace.models.initial_states import check_diffuse
from cgp.statespace.models.linear_gaussian import LinearGaussian, with_time
from cgp.statespace.models.model_base import as_dtype
from cgp.statespace.native_step import NOT_FINITE, moments_by_core
from cgp.statespace.online.matrices_of_step import (
    checked_matrices,
    with_matrices_of_steps,
)
from cgp.statespace.series import Series, check_labels, known_inputs
from cgp.statespace.switching import (
    InteractingModels,
    Modes,
    check_probabilities,
    run_along,
    safe_log,
    series_of,
)


@short_repr
class StateArrays(NamedTuple):
    """The moments of a state of one or several streams."""

    mean: np.ndarray
    """`[..., n]`."""
    chol: np.ndarray
    """The Cholesky factor of its covariance, `[..., n, n]`; for a widely linear model of the real
    composite, `[..., 2n, 2n]`."""


def checked_samples(
    model: LinearGaussian,
    z: ArrayLike,
    missing: ArrayLike | None,
    inputs: ArrayLike | None,
    *,
    along: int = 0,
    most: int | None = None,
) -> tuple[np.ndarray | tf.Tensor, np.ndarray | tf.Tensor | None]:
    """Checks observations and known inputs of streams.

    Args:
        model: The model.
        z: One observation, `[..., M]`, or a number where M is 1; with `along` a block of them,
            `[..., T, M]`, or `[T]` where M is 1.
        missing: Bool, broadcast against z; None if only NaN are missing.
        inputs: Known inputs of a model with B, of the same axes with k in place of M.
        along: The number of time axes, 0 or 1.
        most: The largest number of batch axes; None for any.

    Returns:
        z, `[..., M]`, in the dtype of the model, NaN where missing; and inputs, `[..., k]`, or
        None. Arrays where arrays were given, tensors where tensors were.

    Raises:
        TypeError, ValueError: As `cgp.statespace.filter`.
    """
    check_labels(z, missing, inputs, along)
    unchecked = z
    z = as_observations(z, missing, model.series_dtype, promote=True)
    z = _with_components(z, "z", unchecked, model.observation_size, along, most)
    if inputs is None:
        return z, None  # whether there should be inputs is known where they are used
    unchecked, inputs = inputs, as_numbers(inputs, "inputs")
    if model.B is None:
        return z, inputs
    size = model.B.shape[-1] // model.form.multiplicity
    return z, _with_components(inputs, "inputs", unchecked, size, along, most)


def checked_state(
    model: LinearGaussian, state: tuple[ArrayLike, ...]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Checks a state `(mean, chol)` given by a user, and converts it to working values."""
    if not isinstance(state, tuple | list) or len(state) != 2:
        raise TypeError(f"state must be a pair (mean, chol), got {type(state).__name__}")
    if isinstance(state[0], tuple):
        raise TypeError(
            "state must be a pair (mean, chol), got a tuple in it, as the state and the Step that "
            "step returns are: state, step = statespace.step(model, state, z)"
        )
    n, rows = model.state_size, model.F.shape[-1]
    mean = _of_state(state[0], model.state_dtype, "mean", "mean")
    chol = _of_state(state[1], model.dtype, "factor", "chol")
    if mean.shape.rank < 1 or mean.shape[-1] != n:
        raise ValueError(f"the mean of the state must be [..., {n}], got shape {mean.shape}")
    if chol.shape.rank < 2 or list(chol.shape[-2:]) != [rows, rows]:
        raise ValueError(
            f"the factor of the state must be [..., {rows}, {rows}], got shape {chol.shape}"
        )
    if tf.executing_eagerly():
        check_state_factor(chol, "the factor of the state")
    return model.form.split(mean), chol


def check_state_factor(chol: np.ndarray | tf.Tensor, name: str) -> None:
    """Raises a ValueError unless `chol` is a Cholesky factor of a finite covariance of a state."""
    check_factor(chol, name, singular=True)
    values = np.abs(np.asarray(chol))
    largest = np.max(values, initial=0.0)
    if not largest < np.finfo(values.dtype).max ** 0.5:  # NaN is not, either
        raise ValueError(
            f"{name} must be that of a finite covariance, but has elements of up to {largest:.3g}, "
            "whose squares are not: give the state in units in which it is smaller"
        )


def _of_state(a: ArrayLike, dtype: tf.DType, word: str, variable: str) -> tf.Tensor:
    """A part of a state in the dtype of the model; its precision is checked as for observations."""
    name = f"the {word} of the state"
    a = as_numbers(a, name) if not is_of_python(a) else a
    check_rounding(a, dtype, name, variable)
    with np.errstate(over="ignore"):  # what overflows in single precision is refused below
        converted = as_dtype(a, dtype, name)
    if tf.executing_eagerly() and not is_finite(converted):
        raise ValueError(f"{name} must be finite, in {dtype.name}, got {np.asarray(a)}")
    return converted


def _with_components(
    a: Any, name: str, unchecked: Any, size: int, along: int, most: int | None
) -> Any:
    """Adds the axis of components where it may be left out, and checks the shape."""

    def fits(shape: tuple[int, ...]) -> bool:
        return along < len(shape) <= along + 1 + (most or len(shape)) and shape[-1] == size

    if len(a.shape) == along and size == 1:
        return a[..., None]
    if not fits(a.shape) or 0 in a.shape:
        short = ("a number, ", "[T], ")[along] if size == 1 else ""
        axes = "T, " * along + str(size)
        expected = f"[..., {axes}]" if most is None else f"[{axes}] or [B, {axes}]"
        hint = remedy(as_code(name, unchecked), a.shape, fits, samples=-2 if along else None)
        if hint and not along and len(a.shape) == 1:  # as where a series is given to step
            hint += f", of {a.shape[0]} streams at one time; a series goes to filter or process"
        raise ValueError(f"{name} must be {short}{expected}, got shape {tuple(a.shape)}{hint}")
    return a


@short_repr
class InteractingState(NamedTuple):
    """The states of K models, predicted for the next observation, of one or several streams."""

    mean: np.ndarray
    """`[..., K, n]`."""
    chol: np.ndarray
    """Cholesky factors of their covariances, `[..., K, n, n]`; of the real composite `[..., K, 2n,
    2n]`."""
    mode_probabilities: np.ndarray
    """The predicted probabilities of the models, `[..., K]`."""


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
    """`cgp.statespace.step` of interacting models; its arguments, without `arrived`."""
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
    posterior, following = run_along(bank, several, rule, start)
    form, observed = series.model.form, series.model.observation_form

    def of_mixture(form_of_rows: Any, mean: tf.Tensor, rows: tf.Tensor, noise: Any) -> Marginals:
        moments: BatchLastMarginals = marginals_of(form_of_rows, mean, rows, noise)
        return with_pseudo_variance(*(None if a is None else series.first(a) for a in moments))

    covariance = posterior.observation_covariances[0]
    mean = posterior.observation_means[0]
    predicted = of_mixture(observed, mean, tf.zeros_like(covariance[:, :1]), covariance)
    filtered = of_mixture(form, posterior.filtered_means[0], posterior.filtered_chols[0], None)
    means, chols = (tf.stack(parts) for parts in zip(*following.states, strict=True))
    after = InteractingState(
        form.join(series.first(means)),
        series.first(chols),
        series.first(tf.exp(following.log_probabilities)),
    )
    probabilities = series.first(posterior.probabilities[0])
    observation = series.observations()[..., 0, :] + tf.zeros_like(predicted.mean)
    after, predicted, deviation, filtered = _checked(
        series, after, predicted, filtered, observation
    )
    if tf.executing_eagerly():
        probabilities = probabilities.numpy()
    return after, InteractingStep(predicted, deviation, filtered, probabilities)


def _checked(
    series: Series, after: Any, predicted: Marginals, filtered: Marginals, observation: tf.Tensor
) -> tuple[Any, Marginals, Any, Marginals]:
    """The state after a step, the prediction, the innovation and the moments after it.

    Eagerly they are NumPy arrays, and the state is finite.
    """
    if not tf.executing_eagerly():
        absent = tf.math.is_nan(tf.abs(observation))
        deviation = tf.where(absent, series.nothing, observation - predicted.mean)
        return after, predicted, deviation, filtered
    after = type(after)(*map(np.asarray, after))
    if not all(np.isfinite(a).all() for a in after):
        raise ValueError(NOT_FINITE)
    predicted, filtered = (Marginals(*map(np.asarray, a)) for a in (predicted, filtered))
    return after, predicted, innovation(np.asarray(observation), predicted.mean), filtered


def _start(bank: InteractingModels, series: Series, state: tuple[ArrayLike, ...]) -> Modes:
    """A state given by a user, as the recursion takes it."""
    if not isinstance(state, tuple | list) or len(state) != 3:
        raise TypeError(
            f"state must be (mean, chol, mode_probabilities), got {type(state).__name__}"
        )
    mean, chol = checked_state(series.model, (state[0], state[1]))
    probabilities = as_dtype(state[2], bank.transition.dtype, "mode_probabilities")
    count, batch = len(bank.models), series.batch_shape
    state_names = InteractingState._fields
    for name, a, rank in zip(state_names, (mean, chol, probabilities), (2, 3, 1), strict=True):
        if a.shape.rank < rank or a.shape[-rank] != count or a.shape[:-rank] != batch:
            raise ValueError(
                f"{name} of the state must have the axes {[*batch, count]}, of series and models, "
                f"before its own, got shape {a.shape}"
            )
    check_probabilities(probabilities, "mode_probabilities of the state")
    means, chols = series.last(mean, 2), series.last(chol, 3)
    states = tuple(State(means[k], chols[k]) for k in range(count))
    return Modes(states, safe_log(series.last(probabilities, 1)))


@as_it_stands
def step(
    model: AnyModel | InteractingModels,
    state: tuple[ArrayLike, ...] | None,
    z: ArrayLike,
    missing: ArrayLike | None = None,
    inputs: ArrayLike | None = None,
    arrived: ArrayLike | None = None,
    rule: AnyRule | None = None,
    likelihood: Likelihood | None = None,
    *,
    F: ArrayLike | None = None,
    Q: ArrayLike | None = None,
    H: ArrayLike | None = None,
    R: ArrayLike | None = None,
) -> tuple[StateArrays, Step] | tuple[InteractingState, InteractingStep]:
    """Updates a state with one observation: the Kalman filter, one step at a time.

    A pure function, batched over streams. Where the observations of streams arrive at different
    times, `arrived` says which streams have one now; the state of the others is unchanged. With a
    missing value (NaN) time moves on instead: the state is predicted without an update, so that
    steps of NaN alone are a forecast.

    Called eagerly, a step of a linear model takes some hundred microseconds by the compiled core,
    most of it checks of the arguments; without it, and for other models, milliseconds, whatever the
    number of streams. Within a `tf.function` it takes a fraction of that.

    Args:
        model: A model that does not vary over time, or a bank of `InteractingModels` of such.
        state: Mean and Cholesky factor of the state predicted for this observation, `[..., n]` and
            `[..., n, n]`, as from `KalmanFilter.state`; for a widely linear model the mean is
            complex and the factor of the real composite, `[..., 2n, 2n]`. None for the initial
            state of the model. After `filter` it is not the last filtered state, but the prediction
            of a one-step `forecast` (see the example). For a bank, the `InteractingState` that the
            last step returned.
        z: Observations, `[..., M]`, or a number where M is 1; NaN where missing.
        missing: Bool, broadcast against z: True where missing.
        inputs: Known inputs of a model with B, `[..., k]`, or a number where k is 1, from this
            observation to the next.
        arrived: Bool, broadcast against the batch axes: False for a stream without an arrival.
        rule: As for `filter`.
        likelihood: As for `filter`; `predicted` is then the prediction of the normal observation
            that stands for z, and where z is missing a forecast of z. With a likelihood that is not
            circular the factor of the state is of the real composite, also for a model that is not
            widely linear.
        F: Transition matrix from this observation to the next in place of the model's, `[n, n]` or
            `[..., n, n]`; called eagerly, as are the following.
        Q: Covariance of the process noise on the way, likewise.
        H: Observation matrix of this observation, `[M, n]` or `[..., M, n]`.
        R: Covariance of its noise, `[M, M]` or `[..., M, M]`. Of a widely linear model each is as
            for `KalmanFilter.step`.

    Returns:
        `(state, Step)`: the state predicted for the next observation, and
        a `Step` as from `KalmanFilter.step`: the prediction of z,
        z minus its mean, and the state after it; of a bank also `mode_probabilities`, `[..., K]`.
        NumPy arrays; tensors inside a `tf.function`. For a stream without an arrival the innovation
        is NaN, and the moments are of the state as is.

    Raises:
        TypeError: Not a model; a real observation of a complex model, or a complex one of a real
            model; an observation or state of more precision than the model; `arrived` that is not
            bool.
        ValueError: Shapes that do not fit; infinite values; a model that varies over time; a state
            that would not be finite; an observation that a model without noise rules out.

    Example:
        >>> import numpy as np
        >>> from cgp import statespace
        >>> walk = statespace.LinearGaussian([[1.0]], [[1.0]], [[1.0]], [[2.0]], [0.0], [[2.0]])
        >>> state = None
        >>> for z in [1.0, 2.0]:
        ...     state, step = statespace.step(walk, state, z)
        >>> step.predicted.mean, step.filtered.mean, state.chol
        (array([0.5]), array([1.25]), array([[1.41421356]]))
        >>> result = statespace.filter(walk, np.array([1.0, 2.0]))
        >>> ahead = statespace.forecast(walk, result, 1)  # to go on from there
        >>> same = ahead.state_means[..., 0, :], ahead.state_chols[..., 0, :, :]
        >>> bool(np.allclose(same[0], state.mean) and np.allclose(same[1], state.chol))
        True
    """
    if isinstance(model, InteractingModels):
        _check_of_bank(arrived=arrived, likelihood=likelihood, F=F, Q=Q, H=H, R=R)
        return interacting_step(model, state, z, missing, inputs, rule)
    model = measurable(model, likelihood)
    noise = noise_of(model)
    _check_without_time(noise)
    check_same_labels(z=(z, 1), arrived=(arrived, 0))
    z, inputs = checked_samples(noise, z, missing, inputs)
    matrices = _matrices_of_step(model, {"F": F, "Q": Q, "H": H, "R": R}, z)
    if state is not None:
        mean, chol = checked_state(noise, state)
        check_batches(state_mean=(mean, 1), state_chol=(chol, 2), z=(z, 1))
    is_plain = all(a is None for a in (arrived, rule))
    if is_plain and isinstance(model, LinearGaussian) and tf.executing_eagerly():
        arrays = None if state is None else (mean.numpy(), chol.numpy())
        result = _step_by_core(noise, arrays, np.asarray(z), inputs, matrices, likelihood)
        if result is not None:
            return result
    if state is not None:
        model = model.starting_from(mean, chol)
    model = with_matrices_of_steps(
        model, {name: a[..., None, :, :] for name, a in matrices.items()}
    )
    z = tf.convert_to_tensor(z)
    if inputs is not None and noise.B is not None:
        inputs = inputs[..., None, :]
    z = z[..., None, :]  # a series of one step
    model, inputs, correction = linearized(
        model, z, inputs=inputs, rule=rule, likelihood=likelihood
    )
    series = Series(model, z, inputs=inputs)
    system, start, *seen_as = of_one_step(series)
    present = None if arrived is None else _arrivals(arrived, series)
    advance_of = _compiled if tf.executing_eagerly() else _of_forms
    forms = (model.form.multiplicity, model.observation_form.multiplicity)
    following, predicted, filtered, covariance = advance_of(*forms)(
        system, *seen_as, start, present
    )

    def first(a: Any) -> Any:
        return None if a is None else series.first(a)

    mean, chol = (first(a) for a in following)
    if correction is not None:  # NaN, in a graph, where no normal posterior was found
        mean += real_as(0.0 * correction[..., :1], mean.dtype)
    predicted, filtered = (with_pseudo_variance(*map(first, a)) for a in (predicted, filtered))
    next_state = StateArrays(model.form.join(mean), chol)
    observation = series.observations()[..., 0, :] + tf.zeros_like(predicted.mean)
    if present is not None:
        observation = tf.where(series.first(present)[..., None], observation, series.nothing)
    next_state, predicted, deviation, filtered = _checked(
        series, next_state, predicted, filtered, observation
    )
    joint = joint_of(model.observation_form, first(covariance))
    if tf.executing_eagerly():
        joint = joint.map(np.asarray)
    return next_state, Step(predicted, deviation, filtered, joint)


def _check_of_bank(**arguments: object) -> None:
    """Raises a ValueError for arguments that a bank of `InteractingModels` does not take."""
    for name, argument in arguments.items():
        if argument is not None:
            raise ValueError(f"{name} is for one model, not for a bank of InteractingModels")


def _check_without_time(model: LinearGaussian) -> None:
    """Raises a ValueError for a model whose matrices vary over time."""
    if model.steps is not None:
        raise ValueError(
            "the matrices of the model vary over time: filter a whole series, or make a model for "
            "each step"
        )


def _step_by_core(
    model: LinearGaussian,
    state: tuple[np.ndarray, np.ndarray] | None,
    z: np.ndarray,
    inputs: Any,
    matrices: dict[str, np.ndarray],
    likelihood: Likelihood | None,
) -> tuple[StateArrays, Step] | None:
    """The step of a linear model from a state, working values; None where the core has none."""
    observations_of = None
    if likelihood is not None:
        likelihood.check(z)
        observations_of = turns_for(model, likelihood).of_step
    if state is None:
        if model.initial == "diffuse":
            check_diffuse(model, np.nan_to_num(z[..., None, :]))
        state = model.initial_mean.numpy(), model.initial_chol.numpy()
    if inputs is not None or model.B is not None:
        series = None if inputs is None else inputs[..., None, :]
        inputs = known_inputs(model, series, 1)
        inputs = None if inputs is None else inputs.numpy()[..., 0, :]
    result = moments_by_core(model, *state, z, inputs, matrices, observations_of)
    if result is None:
        return None
    mean, chol, moments = result
    if moments is None:
        raise ValueError(NOT_FINITE)
    predicted, filtered, joint = moments
    if not model.is_proper:
        mean = model.form.join(tf.constant(mean)).numpy()
    return StateArrays(mean, chol), Step(predicted, innovation(z, predicted.mean), filtered, joint)


def _matrices_of_step(
    model: AnyModel, matrices: dict[str, ArrayLike | None], z: Any
) -> dict[str, np.ndarray]:
    """The checked matrices of a step, working values by the names of `StepMatrices`."""
    if all(a is None for a in matrices.values()):
        return {}
    if not tf.executing_eagerly():
        raise RuntimeError(
            "matrices of a step are taken outside of a tf.function: in it, give step a model that "
            "has them, model.replace(H=...)"
        )
    return checked_matrices(model, matrices, tuple(z.shape[:-1]))


def _arrivals(arrived: Any, series: Series) -> tf.Tensor:
    """`arrived` of each series, bool, `[B]`."""
    if not tf.is_tensor(arrived):
        try:
            arrived = np.asarray(arrived)
        except ValueError:
            raise ValueError(
                "arrived must be an array of bool, but has rows of different lengths"
            ) from None
    if arrived.dtype != bool:
        raise TypeError(f"arrived must be bool, False without an arrival, got {arrived.dtype.name}")
    arrived = tf.convert_to_tensor(arrived)
    try:
        fits = tf.broadcast_static_shape(arrived.shape, series.batch_shape)
    except ValueError:
        fits = None
    if fits is None or not fits.is_compatible_with(series.batch_shape):
        raise ValueError(
            f"arrived must be broadcast against the batch axes {series.batch_shape}, got shape "
            f"{arrived.shape}"
        )
    return series.last(tf.broadcast_to(arrived, series.batch_shape)[..., None], 1)[0]


def of_one_step(series: Series) -> tuple[System, State, tf.Tensor, tf.Tensor, tf.Tensor | None]:
    """The arguments of `update_and_predict` for a series of one step: system, state, H, R and d."""
    system, start = for_loops(series.arranged())
    model = series.model
    H, R = (series.last(with_time(a), 3)[0] for a in (model.H, model.R))
    return system, start, H, R, None if model.d is None else series.last(model.d, 2)[0]


def _of_forms(
    multiplicity: int, of_observations: int
) -> Callable[..., tuple[State, BatchLastMarginals, BatchLastMarginals, tf.Tensor]]:
    """`update_and_predict` for forms of states and observations, as a function of tensors."""
    return functools.partial(
        update_and_predict, form_of(multiplicity == 1), form_of(of_observations == 1)
    )


@functools.cache
def _compiled(multiplicity: int, of_observations: int) -> CompiledByShape:
    return CompiledByShape(_of_forms(multiplicity, of_observations))


def update_and_predict(
    form: Form,
    observation_form: Form,
    system: System,
    H: tf.Tensor,
    R: tf.Tensor,
    d: tf.Tensor | None,
    state: State,
    arrived: tf.Tensor | None,
) -> tuple[State, BatchLastMarginals, BatchLastMarginals, tf.Tensor]:
    """Updates a state with an observation, then predicts; neither without an arrival.

    H and d are the observation matrix and offset, and R the covariance of the noise, as they were
    before the noise was decorrelated; `form` and `observation_form` are the forms in which users
    see states and observations.

    Returns:
        The state predicted next, its mean NaN where a prediction without uncertainty rules out the
        observation; the moments of the observation before it was seen, and of the state after it;
        and the working covariance of the prediction of the observation, `[m, m, B]`.
    """
    if arrived is not None:
        is_present = tf.cast(arrived, system.observed.dtype)
        system = system._replace(observed=system.observed * is_present)
    after, log_likelihood, _ = update_at(system, 0, state)
    following = predict_at(system, 0, after)
    not_a_number = nan(following.mean.dtype)
    ruled_out = tf.math.is_inf(log_likelihood)
    following = following._replace(mean=tf.where(ruled_out, not_a_number, following.mean))
    if arrived is not None:
        following = State(*(tf.where(arrived, a, b) for a, b in zip(following, state, strict=True)))
    mean = matvec(H, state.mean)
    mean = mean if d is None else mean + d
    rows = matmul(H, state.chol)
    predicted = marginals_of(observation_form, mean, rows, R)
    covariance = matmul(rows, adjoint(rows)) + R
    return following, predicted, marginals_of(form, after.mean, after.chol, None), covariance


def joint_of(form: Form, covariance: tf.Tensor) -> JointMoments:
    """The joint moments of observations by their working covariance, `[..., m, m]`."""
    K, C = form.moments(covariance)
    if C is None:  # of a real number E(x − m)² is its variance; of a proper one it is zero
        C = tf.zeros_like(K) if K.dtype.is_complex else K
    return JointMoments(K, C)
