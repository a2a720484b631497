"""The Kalman filter of one sample, as a cell, and the moments of series, by name."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf

from cgp import native
from cgp.distributions.marginals import Step, innovation
from cgp.layers.learned_model import LearnedModel
from cgp.layers.likelihood_objective import LikelihoodObjective
from cgp.layers.model_config import layers_of
from cgp.likelihoods import Likelihood
from cgp.linalg import stored_cholesky
from cgp.linalg.arguments import ArrayLike, is_nan, nan, real_as, real_diagonal
from cgp.online.cell import Cell, Piece, RefusedSample, Sample, all_finite
from cgp.statespace.engines.chunked_engine import StateMoments
from cgp.statespace.engines.correlated_noise import CorrelatedNoise
from cgp.statespace.engines.filter_step import leaves_no_exact_observation, with_pseudo_variance
from cgp.statespace.filtering import (
    moments,
    observation_moments,
    observed_means,
    process_block,
)
from cgp.statespace.forecasting import Forecast, ahead, forecast_of_start
from cgp.statespace.linearization.linearized_model import (
    AnyModel,
    AnyRule,
    AsLinear,
    checked_rule,
    linearized,
    noise_of,
)
from cgp.statespace.linearization.native_sites import turns_for
from cgp.statespace.linearization.nonlinear_step import NonlinearStep
from cgp.statespace.models.initial_states import check_diffuse
from cgp.statespace.models.linear_gaussian import LinearGaussian, with_time
from cgp.statespace.models.model_base import whole_steps
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian
from cgp.statespace.native_step import (
    NOT_FINITE,
    CompiledStep,
    CompiledWalk,
    StepMatrices,
    StepMoments,
    call_with,
    correlated_noise_of,
    step_matrices,
)
from cgp.statespace.online.matrices_of_step import (
    checked_matrices,
    with_matrices_of_steps,
)
from cgp.statespace.online.online_step import (
    StateArrays,
    check_state_factor,
    checked_samples,
    joint_of,
    of_one_step,
    update_and_predict,
)
from cgp.statespace.series import Series, known_inputs
from cgp.training.saving import check_size


def outputs(series: Series, result: StateMoments) -> dict[str, tf.Tensor]:
    """The moments of state and innovation of filtered series, as `KalmanFilter.call` has them."""
    model = series.model
    observed = observed_means(model, result.predicted_means)
    named = {
        "predicted_mean": model.form.join(result.predicted_means),
        "filtered_mean": model.form.join(result.filtered_means),
        "observation_mean": model.observation_form.join(observed),
        "innovation": series.innovations(observed),
    }
    second = {
        "predicted": model.form.moments(result.predicted_covariances),
        "filtered": model.form.moments(result.filtered_covariances),
        "innovation": observation_moments(model, result),
    }
    for name, pair in second.items():
        named[f"{name}_variance"] = series.of_each(real_diagonal(pair.k), 2)
        if pair.c is not None:
            named[f"{name}_pseudo_variance"] = series.of_each(tf.linalg.diag_part(pair.c), 2)
    return named


def output_spec(model: LinearGaussian, shape: tuple) -> dict[str, keras.KerasTensor]:
    """The shapes and dtypes of `outputs` for series of batch and time axes `(B, T)`."""
    state = ((*shape, model.state_size), model.state_dtype.name, model.form)
    observed = ((*shape, model.observation_size), model.series_dtype.name, model.observation_form)
    spec = {"observation_mean": keras.KerasTensor(*observed[:2])}
    for name in ("predicted", "filtered", "innovation"):
        mean = name if name == "innovation" else f"{name}_mean"
        sizes, dtype, form = observed if name == "innovation" else state
        spec[mean] = keras.KerasTensor(sizes, dtype)
        spec[f"{name}_variance"] = keras.KerasTensor(sizes, model.dtype.real_dtype.name)
        if form.multiplicity > 1:
            spec[f"{name}_pseudo_variance"] = keras.KerasTensor(sizes, dtype)
    return spec


class KalmanCell(Cell):
    """The state predicted for the next observation, and its update by an observation.

    A state goes on with the present matrices, whatever the matrices were before.
    """

    State = StateArrays
    streams_axis = -1  # the compiled step has the streams side by side
    traces_blocks = False
    unsound = NOT_FINITE

    def __init__(
        self,
        learned_model: LearnedModel,
        rule: AnyRule | None = None,
        likelihood: Likelihood | None = None,
        objective: LikelihoodObjective | None = None,
        loss_weight: float = 1.0,
    ):
        self._objective, self._loss_weight = objective, loss_weight
        self.learned_model, self.rule, self.likelihood = learned_model, rule, likelihood
        self._model = learned_model.noise  # for sizes and dtypes

    @property
    def jit_compile(self) -> bool:  # type: ignore[override]
        """Whether XLA may compile a step: it needs a factor of Q, and cannot factorise Q."""
        layers, start = self.learned_model.layers, self.learned_model.start
        has_factor = "Q" not in layers or hasattr(layers["Q"], "factor")
        return has_factor and getattr(start, "is_compilable", True)

    def check_streams(self, streams: int | None) -> None:
        """Raises a ValueError for a model that has no streams, or not so many."""
        model, count = noise_of(self.learned_model.model()), streams or 1
        if model.steps is not None:
            raise ValueError(
                "the matrices of the model vary over time, and a stream has no end: filter a whole "
                "series, or make a model for each part of it"
            )
        if model.batch_shape.rank and model.batch_shape.num_elements() not in (1, count):
            raise ValueError(
                f"the model is a batch of {model.batch_shape.num_elements()}, but there are "
                f"{count} streams"
            )
        n, numbers = model.F.shape[-1], 2 if model.dtype.is_complex else 1  # of an element
        numbers, real = count * numbers * (n + n * n), model.dtype.real_dtype.name
        check_size(numbers, f"a filter of {count} streams", real, "take fewer streams")

    def check_keys(self) -> None:
        """Raises a ValueError for matrices of each time or series."""
        model = self._model
        if model.steps is not None or model.batch_shape.rank:
            raise ValueError(
                "a Bank is of one model for all samples of all keys, got matrices of each time or "
                "series"
            )

    # --- the state -------------------------------------------------------------------------------

    def initial_state(self, batch_size: Any, sample: Sample | None = None) -> StateArrays:
        """The initial state by the present matrices: mean `[B, n]`, factor `[B, n, n]`."""
        model = noise_of(self.learned_model.model())
        mean = model.form.join(model.initial_mean)
        chol = stored_cholesky(model.initial_chol, model.initial_covariance)
        mean = tf.reshape(mean, [-1, *mean.shape[-1:]])
        chol = tf.reshape(chol, [-1, *chol.shape[-2:]])
        return StateArrays(*(tf.broadcast_to(a, [batch_size, *a.shape[1:]]) for a in (mean, chol)))

    def initial_arrays(self, batch_size: int, sample: Sample) -> StateArrays:
        """`initial_state` by NumPy: a gradient and ops of TensorFlow take several times as long."""
        model = noise_of(self.learned_model.model())
        mean, chol = model.form.join(model.initial_mean), model.initial_chol
        mean = np.reshape(mean, [-1, *mean.shape[-1:]])
        chol = np.reshape(chol, [-1, *chol.shape[-2:]])
        return StateArrays(*(np.broadcast_to(a, [batch_size, *a.shape[1:]]) for a in (mean, chol)))

    def blank_state(self, batch_size: int) -> StateArrays:
        """NaN, for streams that have not begun."""
        model, rows = self._model, self._model.F.shape[-1]
        mean = np.full([batch_size, model.state_size], nan(model.state_dtype))
        chol = np.full([batch_size, rows, rows], nan(model.dtype))
        return StateArrays(*map(tf.constant, (mean, chol)))

    def check_first(self, sample: Sample, along: int = 0) -> None:
        """Raises a ValueError for observations with which a diffuse state cannot begin."""
        if self._model.initial == "diffuse":
            check_diffuse(self._model, np.nan_to_num(sample.z if along else sample.z[..., None, :]))

    def as_stored(self, state: StateArrays) -> list[tf.Tensor]:
        """Working values: for a widely linear model the mean of the real composite."""
        return [self._model.form.split(state.mean), state.chol]

    def from_stored(self, arrays: Sequence[tf.Tensor]) -> StateArrays:
        """`as_stored` undone."""
        return StateArrays(self._model.form.join(arrays[0]), arrays[1])

    def check_stored(self, arrays: Sequence[np.ndarray]) -> None:
        """Raises a ValueError for arrays of a file that are no state, begun or not."""
        for a in arrays:
            finite = np.isfinite(a).all()
            if not (finite or np.isnan(a).all()) or finite != np.isfinite(arrays[0]).all():
                raise ValueError(
                    "the state of the streams must be finite, or all of it NaN where they have not "
                    "begun: the file is damaged"
                )
        if np.isfinite(arrays[0]).all():
            check_state_factor(arrays[1], "the saved factor of the state")

    def check_saved(self, weights: Sequence[np.ndarray]) -> None:
        """`check_stored` of real weights, streams last, complex arrays as [re, im]."""
        dtype = self._model.dtype
        arrays = [np.ascontiguousarray(a, dtype.real_dtype.as_numpy_dtype) for a in weights]
        if dtype.is_complex:
            arrays = [a.view(dtype.as_numpy_dtype)[..., 0] for a in arrays]
        self.check_stored([np.moveaxis(a, -1, 0) for a in arrays])

    def structure(self) -> dict[str, Any]:
        """The sizes and the form of the model."""
        model = self._model
        sizes = {"states": model.state_size, "observations": model.observation_size}
        return {**sizes, "form": "linear" if model.form.multiplicity == 1 else "widely linear"}

    # --- samples ---------------------------------------------------------------------------------

    def sample_spec(self) -> Sample:
        """An observation `[M]`, and of a model with B the inputs from it to the next, `[k]`."""
        model, inputs = self._model, None
        if model.B is not None:
            size = model.B.shape[-1] // model.form.multiplicity
            inputs = tf.TensorSpec([size], model.state_dtype, "inputs")
        z = tf.TensorSpec([model.observation_size], model.series_dtype, "z")
        return Sample(z=z, inputs=inputs)

    def check(
        self,
        sample: Sample,
        missing: ArrayLike | None = None,
        along: int = 0,
        has_inputs: bool = True,
    ) -> tuple[Sample, int | None]:
        """Checks observations and inputs, one of each stream, or with `along` a block of them.

        Args:
            sample: z is `[M]` or `[B, M]`, or a number where M is 1; of a block `[T, M]`,
                `[B, T, M]`, or `[T]`. The inputs have the same axes with k in place of M.
            missing: Bool, broadcast against z; None if only NaN are missing.
            along: The number of time axes, 0 or 1.
            has_inputs: Whether a model with B needs inputs beside the observations.

        Returns:
            The sample, NumPy, z NaN where missing; and B, None without a batch axis.
        """
        if not tf.executing_eagerly():
            raise RuntimeError("samples are taken in outside of a tf.function: call process(z)")
        model = self._model
        z, inputs = checked_samples(model, sample.z, missing, sample.inputs, along=along, most=1)
        z = np.asarray(z)
        streams = None if z.ndim == along + 1 else z.shape[0]
        if inputs is not None or (model.B is not None and has_inputs):
            inputs = self._checked_inputs(inputs, z, streams, along)
        if self.likelihood is not None:
            self.likelihood.check(z)
        return Sample(z, inputs=inputs), streams

    def with_matrices(self, sample: Sample, matrices: Mapping[str, ArrayLike | None]) -> Sample:
        """A sample with F, Q, H and R, as arguments of `KalmanFilter.step`, for its step."""
        checked = checked_matrices(self.learned_model.start, matrices, sample.z.shape[:-1])
        return sample._replace(**checked)

    def _checked_inputs(
        self, inputs: Any, z: np.ndarray, streams: int | None, along: int
    ) -> np.ndarray:
        """The inputs beside observations, of the same axes; zero where there are none."""
        model = self._model
        if inputs is not None and not along:
            inputs = inputs[..., None, :]  # a series of one step
        inputs = known_inputs(model, inputs, z.shape[-2] if along else 1)
        inputs = model.form.join(inputs).numpy()
        inputs = inputs if along else inputs[..., 0, :]
        if inputs.ndim > along + 1 and (streams is None or len(inputs) not in (1, streams)):
            raise ValueError(
                f"inputs must have the batch axis of z, got shapes {inputs.shape} and {z.shape}"
            )
        return np.broadcast_to(inputs, (*z.shape[:-1], inputs.shape[-1]))

    # --- steps -----------------------------------------------------------------------------------

    def model_of(self, state: StateArrays, series: Sample) -> AnyModel:
        """The model of series `[..., T, M]` that begin with a state."""
        model = self.learned_model.model().starting_from(*self.as_stored(state))
        return with_matrices_of_steps(model, series.matrices())

    def step(self, state: StateArrays, sample: Sample) -> tuple[StateArrays, Step]:
        """Predicts observations `[B, M]`, updates the state with them, and leads it to the next."""
        samples = sample.map(lambda a: a[:, None])  # series of one step
        z = samples.z
        model, inputs, correction = self._linearized(
            self.model_of(state, samples), z, samples.inputs
        )
        series = Series(model, z, inputs=inputs)
        system, start, H, R, d = of_one_step(series)
        forms = (model.form, model.observation_form)
        next_state, predicted, filtered, covariance = update_and_predict(
            *forms, system, H, R, d, start, None
        )
        mean, chol = (tf.experimental.numpy.moveaxis(a, -1, 0) for a in next_state)
        if correction is not None:  # NaN where no normal posterior was found
            mean += real_as(0.0 * correction, mean.dtype)
        first = functools.partial(tf.experimental.numpy.moveaxis, source=-1, destination=0)
        observation, posterior = (
            with_pseudo_variance(*(None if a is None else first(a) for a in batch_last))
            for batch_last in (predicted, filtered)
        )
        deviation = tf.where(is_nan(sample.z), nan(z.dtype), sample.z - observation.mean)
        joint = joint_of(model.observation_form, first(covariance))
        return self.from_stored([mean, chol]), Step(observation, deviation, posterior, joint)

    def _linearized(
        self,
        model: AnyModel,
        z: ArrayLike,
        inputs: ArrayLike | None,
        missing: ArrayLike | None = None,
    ) -> AsLinear:
        return linearized(model, z, missing, inputs, self.rule, self.likelihood)

    def scan(self, state: StateArrays, samples: Sample) -> tuple[StateArrays, Step]:
        """Filters a block, `[T, M]` or `[B, T, M]`, called eagerly: NumPy arrays."""
        model = self.model_of(state, samples)
        model, inputs, _ = self._linearized(model, samples.z, samples.inputs)
        block = process_block(model, samples.z, inputs)
        last = None if block.inputs is None else block.inputs[..., -1, :]
        next_state = ahead(model, block.last_mean, block.last_chol, last, samples.z[..., -1, :])
        moments = StepMoments(block.predicted, block.states, block.joint)
        return self.from_stored(next_state), _step_of(samples.z, moments)

    # --- series ----------------------------------------------------------------------------------

    def series(self, inputs: Any) -> Sample:
        """Series `[B, T, M]`, or a pair of them and of known inputs `[B, T, k]`."""
        arrays = inputs if isinstance(inputs, tuple | list) else (inputs, None)
        if len(arrays) != 2:
            raise ValueError(f"series are z, or a pair (z, inputs), got {len(arrays)} arrays")
        z, inputs = arrays
        if len(z.shape) != 3:
            raise ValueError(f"series must be [B, T, M], got shape {z.shape}")
        if self._model.steps is not None:
            raise ValueError(
                "the matrices of the model vary over time, and would begin again with each piece: "
                "filter whole series"
            )
        return Sample(z, inputs=inputs)

    def filtered(
        self, model: AnyModel, z: Any, missing: ArrayLike | None, inputs: ArrayLike | None
    ) -> tuple[Series, StateMoments, tf.Tensor | None]:
        """Filters series from the initial state of a model; their moments, and their loss."""
        linear = self._linearized(model, z, inputs, missing)
        series = Series(linear.model, z, missing, linear.inputs)
        result = moments(series)
        loss = None
        if self._objective is not None and self._loss_weight:
            log_likelihoods = linear.corrected(result.log_likelihoods)
            loss = self._loss_weight * self._objective.loss(series.observed_count, log_likelihoods)
        return series, result, loss

    def follow(self, state: StateArrays, samples: Sample) -> Piece:
        """The moments of a piece of series `[B, T, M]` and its loss; gradients pass the state."""
        model = self.learned_model.model().starting_from(*self.as_stored(state))
        series, result, loss = self.filtered(model, samples.z, None, samples.inputs)
        last = None if series.inputs is None else series.inputs[..., -1, :]
        chol = stored_cholesky(
            result.filtered_chols[..., -1, :, :], result.filtered_covariances[..., -1, :, :]
        )
        mean = result.filtered_means[..., -1, :]
        next_state = ahead(series.model, mean, chol, last, samples.z[..., -1, :])
        return Piece(self.from_stored(next_state), outputs(series, result), loss)

    def output_spec(self, samples: Sample) -> dict[str, keras.KerasTensor]:
        """The shapes and dtypes of the moments of series `[B, T, M]`."""
        return output_spec(self._model, samples.z.shape[:-1])

    def forecast(self, state: StateArrays, ahead: int, inputs: Any = None) -> Forecast:
        """The forecast of so many steps from a state, the first for the next observation."""
        start = self.learned_model.model().starting_from(*self.as_stored(state))
        result = forecast_of_start(start, whole_steps(ahead), inputs, self.rule)
        return Forecast(*(None if a is None else a.numpy() for a in result))

    def is_sound(self, state: StateArrays, step: Step) -> tf.Tensor:
        """Whether all is finite: a noise variance of NaN leaves the state finite."""
        return all_finite((state, step.predicted.variance, step.filtered.variance))

    def chunks(self, samples: Sample) -> list[slice]:
        """The whole block, which the compiled filter takes at once."""
        return [slice(0, samples.z.shape[-2])]

    # --- compiled --------------------------------------------------------------------------------

    def compiled(self, streams: int | None) -> "CompiledKalman | CompiledNonlinear | None":
        """The compiled step, of a linear model, or of any in normal noise."""
        if isinstance(self.learned_model.start, LinearGaussian):
            return CompiledKalman(self.learned_model, streams, self.likelihood)
        if self.likelihood is None:
            return CompiledNonlinear(self.learned_model, self.rule, streams)
        return None

    @property
    def variables(self) -> list[keras.Variable]:
        """The variables of learned matrices, and of layers that are functions of the model."""
        layers = [*self.learned_model.layers.values(), *layers_of(self.learned_model.start)]
        return list({id(v): v for layer in layers for v in layer.variables}.values())

    def compiled_walk(self) -> "KalmanWalk | None":
        """Compiled steps of many streams, of a linear model in normal noise."""
        is_linear = isinstance(self.learned_model.start, LinearGaussian)
        return KalmanWalk(self.learned_model) if is_linear and self.likelihood is None else None


class PresentMatrices:
    """The matrices of a linear filter as NumPy arrays, until the weights of its layers change."""

    def __init__(self, learned_model: LearnedModel):
        self._learned = learned_model
        self._snapshot: bytes | None = None  # of the weights that the matrices belong to
        self.of_step: StepMatrices
        self.are_for_core: bool
        self._inputs_to_state: np.ndarray
        self._correlated: CorrelatedNoise | None

    def renew(self) -> bool:
        """Computes the matrices where the weights have changed, and returns whether they have."""
        snapshot = self._learned.snapshot()
        if snapshot == self._snapshot:
            return False
        model = noise_of(self._learned.model())
        self.of_step, self._snapshot = step_matrices(model), snapshot
        self._correlated = correlated_noise_of(model)
        # The core does not tell an exact observation that contradicts the state.
        self.are_for_core = leaves_no_exact_observation(model.R)
        if model.B is not None:
            self._inputs_to_state = with_time(model.B).numpy()[..., 0, :, :]
        return True

    def of_sample(self, sample: Sample) -> dict[str, np.ndarray]:
        """The matrices of a step that depend on its sample, by name, batch axes first.

        A drift `B u`; and the transition from z, if the noise of both is correlated.
        """
        matrices, form = {}, self._learned.form
        if self._correlated is not None:
            z = sample.z
            if form.multiplicity > 1:
                z = np.concatenate([z.real, z.imag], axis=-1)
            matrices = self._correlated.transition_after(z)
        if sample.inputs is not None:
            inputs = form.split(tf.constant(sample.inputs)).numpy()
            driven = (self._inputs_to_state @ inputs[..., None])[..., 0]
            matrices["drift"] = driven + matrices.get("drift", 0.0)
        return matrices


class CompiledKalman:
    """The step of B streams, or one, of a linear filter by a function of the compiled core."""

    def __init__(
        self, learned_model: LearnedModel, streams: int | None, likelihood: Likelihood | None
    ):
        self._streams, self._is_composite = streams, not learned_model.noise.is_proper
        self._matrices = PresentMatrices(learned_model)
        turns = None if likelihood is None else turns_for(learned_model.noise, likelihood)
        self._observations_of = None if turns is None else turns.of_step
        self._step: CompiledStep

    def serves(self, arrays: Sequence[np.ndarray], sample: Sample, layer_weights: bytes) -> bool:
        """Whether the core is there, and tells all observations that the present R rules out."""
        if native.core().ops is None:
            return False
        if self._matrices.renew():
            self._step = CompiledStep(self._matrices.of_step, self._streams, self._is_composite)
        if sample.R is not None:
            return leaves_no_exact_observation(sample.R)
        return self._matrices.are_for_core

    def __call__(self, arrays: Sequence[np.ndarray], sample: Sample) -> Step | None:
        """Predicts and updates each stream in place, as every `Compiled` step."""
        for name, a in self._matrices.of_sample(sample).items():
            rank = 1 if name == "drift" else 2
            a = np.moveaxis(a, 0, -1) if a.ndim > rank else a[..., None]
            self._step.set(**{name: np.ascontiguousarray(a)})
        matrices = {name: _batch_last(a) for name, a in sample.matrices().items()}
        usual = self._matrices.of_step
        arguments = self._step, matrices, usual, sample.z, *arrays
        moments = call_with(*arguments, observations_of=self._observations_of)
        return None if moments is None else _step_of(sample.z, moments)


class CompiledNonlinear:
    """The step of B streams, or one, of a nonlinear filter, around the compiled core."""

    def __init__(self, learned_model: LearnedModel, rule: AnyRule | None, streams: int | None):
        self._learned, self._rule, self._streams = learned_model, checked_rule(rule), streams
        self._matrices = PresentMatrices(learned_model)
        self._step: NonlinearStep

    def serves(self, arrays: Sequence[np.ndarray], sample: Sample, layer_weights: bytes) -> bool:
        """Whether the core is there, and tells all observations that the present R rules out."""
        if native.core().ops is None:
            return False
        if self._matrices.renew():
            noise = self._matrices.of_step
            model = cast("NonlinearGaussian", self._learned.start)
            self._step = NonlinearStep(model, self._rule, noise.Q_factor, noise.R, self._streams)
        if sample.R is not None:
            return leaves_no_exact_observation(sample.R)
        return self._matrices.are_for_core

    def __call__(self, arrays: Sequence[np.ndarray], sample: Sample) -> Step | None:
        """Predicts and updates each stream in place, as every `Compiled` step."""
        inputs = sample.inputs
        if inputs is not None:
            inputs = self._learned.form.split(tf.constant(inputs)).numpy()
            inputs = np.moveaxis(inputs.reshape(self._streams or 1, -1), 0, -1)
        matrices = {name: _batch_last(a) for name, a in sample.matrices().items()}
        usual = self._matrices.of_step
        result = call_with(self._step, matrices, usual, sample.z, *arrays, inputs)
        return None if result is None else _step_of(sample.z, result.moments)


class KalmanWalk:
    """Steps of many streams of a linear filter by a function of the compiled core."""

    def __init__(self, learned_model: LearnedModel):
        self._matrices = PresentMatrices(learned_model)
        self._walk = CompiledWalk(not learned_model.noise.is_proper, predicts_first=False)

    def serves(self, layer_weights: bytes) -> bool:
        """Whether the core is there, and tells all observations that the present R rules out."""
        if native.core().ops is None:
            return False
        self._matrices.renew()
        return self._matrices.are_for_core

    def __call__(self, rows: Sequence[np.ndarray], slots: np.ndarray, samples: Sample) -> Step:
        """Predicts and updates the state in each slot, as every `Walk`."""
        matrices = {name: a[..., 0] for name, a in self._matrices.of_step._asdict().items()}
        matrices |= self._matrices.of_sample(samples)
        moments = self._walk(matrices, samples.z, slots, *rows)
        if isinstance(moments, int):
            raise RefusedSample(moments, NOT_FINITE)
        return _step_of(samples.z, moments)


def _batch_last(a: np.ndarray) -> np.ndarray:
    """A matrix of each stream, `[B, rows, columns]`, or of one stream or all, with batch last."""
    if a.ndim == 2:
        return a[..., None]
    if a.strides[0] == 0:  # which all streams share
        return np.ascontiguousarray(a[0])[..., None]
    return np.ascontiguousarray(np.moveaxis(a, 0, -1))


def _step_of(z: np.ndarray, moments: StepMoments) -> Step:
    predicted, filtered, joint = moments
    return Step(predicted, innovation(z, predicted.mean), filtered, joint)
