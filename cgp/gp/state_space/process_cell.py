"""The state-space process of one sample, as a cell.

The state is at the place of the last sample. It belongs to the hyperparameters that it was computed
with, and cannot be brought to others without the samples.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from cgp import native
from cgp.distributions.forms import SecondMoments
from cgp.distributions.marginals import JointMoments, Marginals, Step, innovation
from cgp.gp.data import Data, as_inputs_and_targets
from cgp.gp.noise import COMMON_NOISE, SampleNoise
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.gp.state_space.discretization import (
    DiscretizedProcess,
    OrderedSeries,
    StateAt,
    ordered_series,
)
from cgp.gp.state_space.output_series import by_sample, in_rows, mean_function, rows_of
from cgp.gp.stream_samples import GaussianProcessCell
from cgp.kernels.points import as_points, exactly
from cgp.linalg import stored_cholesky
from cgp.linalg.arguments import ArrayLike, complex_dtype, is_nan, nan
from cgp.linalg.batch_last import adjoint, matmul, matvec
from cgp.linalg.short_repr import short_repr
from cgp.online.cell import Piece, RefusedSample, Sample, all_finite
from cgp.online.steps import step_outputs
from cgp.online.structure import structure_of
from cgp.statespace.engines.chunked_engine import StateMoments
from cgp.statespace.engines.filter_step import (
    State,
    decorrelated,
    marginals_of,
    update,
    with_pseudo_variance,
)
from cgp.statespace.filtering import moments, observation_moments, observed_means
from cgp.statespace.native_step import NOT_FINITE, CompiledStep, CompiledWalk, StepMatrices
from cgp.statespace.online.online_step import check_state_factor, joint_of
from cgp.statespace.series import Series
from cgp.training.post_updates import snapshot

# Steps between samples take few different values, or so many that keeping them is no use.
_MOST_TRANSITIONS = 64
_BLOCK = 4096  # samples of a walk whose transitions are computed together


@short_repr
class PlacedState(NamedTuple):
    """The state of a process after the last sample, as `StateSpaceGP.state`, and its place."""

    x: Any
    """The place, real, `[...]`; NaN before any sample."""
    mean: Any
    """The mean, `[..., n]`."""
    chol: Any
    """The factor, `[..., n, n]`, or `[..., 2n, 2n]` in the composite of an improper process."""


class FilteredBlock(NamedTuple):
    """The results of a filter along a block of samples."""

    state: PlacedState
    """The state after the last sample."""
    step: Step
    """The moments of each sample, tensors `[B, T]`."""
    moments: StateMoments
    """The moments of the state at each sample, working values."""


class ProcessCell(GaussianProcessCell):
    """The state of a process at its last sample, and its update by the next.

    It has `states` complex components, and belongs to `weights`, the variables of kernel, mean and
    noise. In a graph `loss` is a function of data and of the log likelihood of each series.
    """

    State = PlacedState
    streams_axis = -1  # the compiled step has the streams side by side
    traces_blocks = False
    dimensions = 1
    unsound = NOT_FINITE

    def __init__(
        self,
        process: SignalPlusNoise,
        real_dtype: str,
        check_inputs: Callable[[np.ndarray], Any],
        weights: list[keras.Variable],
        states: int,
        loss: Callable[[Data, tf.Tensor], tf.Tensor],
    ):
        super().__init__(process, real_dtype, check_inputs)
        self._weights, self._states, self._loss = weights, states, loss
        self._matrices: tuple[bytes, PresentMatrices] | None = None  # and the weights' values

    @property
    def weights(self) -> list[keras.Variable]:
        """The variables of kernel, mean and noise."""
        return self._weights

    def initial_state(self, batch_size: Any, sample: Sample | None = None) -> PlacedState:
        """The prior at the place of the first sample; the blank state where that is not known."""
        if sample is None:
            return self.blank_state(batch_size)
        markov = DiscretizedProcess(self.process)
        covariance, chol = self._prior(markov, sample)
        return self._begun(sample, stored_cholesky(chol, covariance), batch_size)

    def initial_arrays(self, batch_size: int, sample: Sample) -> PlacedState:
        """The prior at the place of the first sample, by matrices that are kept."""
        return self._begun(sample, self._prior(self.matrices().markov, sample)[1], batch_size)

    @staticmethod
    def _prior(markov: DiscretizedProcess, sample: Sample) -> tuple[tf.Tensor, tf.Tensor]:
        """The covariance of the state where samples are, and its factor; one for all, maybe."""
        x = tf.convert_to_tensor(sample.x)[:, 0]
        return markov.initial(x[0] if markov.is_stationary else x)

    def _begun(self, sample: Sample, chol: tf.Tensor, batch_size: Any) -> PlacedState:
        chol = tf.broadcast_to(chol, tf.concat([[batch_size], tf.shape(chol)[-2:]], axis=0))
        mean = self.process.form.join(tf.zeros_like(chol[..., 0]))
        return PlacedState(tf.convert_to_tensor(sample.x)[:, 0], mean, chol)

    def blank_state(self, batch_size: Any) -> PlacedState:
        """NaN, for processes that have not begun."""
        real = tf.as_dtype(self.real_dtype)
        of_working_values = nan(complex_dtype(real) if self.process.is_proper else real)
        size = self._states * self.process.form.multiplicity
        mean = tf.fill([batch_size, size], of_working_values)
        chol = tf.fill([batch_size, size, size], of_working_values)
        x = tf.fill([batch_size], nan(real))
        return PlacedState(x, self.process.form.join(mean), chol)

    def as_stored(self, state: PlacedState) -> list[Any]:
        """Working values: for an improper process the mean of the real composite."""
        return [state.x, self.process.form.split(state.mean), state.chol]

    def from_stored(self, arrays: Sequence[Any]) -> PlacedState:
        """The state of working values, the inverse of `as_stored`."""
        return PlacedState(arrays[0], self.process.form.join(arrays[1]), arrays[2])

    def check_stored(self, arrays: Sequence[np.ndarray]) -> None:
        """Raises a ValueError for arrays of a file that are no state, begun or not."""
        super().check_stored(arrays)
        if np.isfinite(arrays[0]).all():
            check_state_factor(arrays[2], "the saved factor of the state")

    def checked_field(self, name: str, a: Any, dtype: tf.DType) -> np.ndarray:
        """An array of a state given by a user; places must be exact in dtype."""
        if name == "x":
            return exactly(np.asarray(a), dtype.as_numpy_dtype)
        return super().checked_field(name, a, dtype)

    def completed(self, state: PlacedState) -> PlacedState:
        """The state, or a ValueError for places that the kernel refuses."""
        if np.size(state.x):
            self.range.admit(np.reshape(state.x, [1, -1, 1]))
        return state

    def check(
        self, sample: Sample, missing: ArrayLike | None = None, along: int = 0
    ) -> tuple[Sample, int | None]:
        """Checks a sample of each stream, or a block, whose places must be in order."""
        sample, streams = super().check(sample, missing, along)
        if along and np.any(np.diff(sample.x[..., 0], axis=-1) < 0.0):
            raise ValueError("x must not go back: the places of a block must be in order")
        return sample, streams

    def check_against(self, state: Sequence[np.ndarray], sample: Sample) -> None:
        """Raises a ValueError where a sample, or the first of a block, lies before the state."""
        last, x = state[0], sample.x[..., 0]
        is_block = x.ndim > 1 or (x.ndim == 1 and len(last) == 1)
        if is_block:
            x = x[..., 0]
        back = x < last
        if np.count_nonzero(back):  # in a quarter of the time of `any`
            x, last = (a[back][0] for a in np.broadcast_arrays(x, last))
            raise ValueError(f"x must not go back: got {x:g} after {last:g}")

    def check_keys(self) -> None:
        """Raises a ValueError for a likelihood of other than normal noise."""
        if self.process.likelihood is not None:
            raise ValueError(
                "samples one after another are of a StateSpaceGP of data in normal noise, got "
                f"likelihood {self.process.likelihood!r}"
            )

    def check_streams(self, streams: int | None) -> None:
        """Raises a ValueError for a likelihood of other than normal noise."""
        self.check_keys()

    def series(self, inputs: Any) -> Sample:
        """The series of a layer, as of every Gaussian process, in normal noise."""
        self.check_keys()
        return super().series(inputs)

    def structure(self) -> dict[str, Any]:
        """The kernel and the mean."""
        process = self.process
        return {"kernel": structure_of(process.kernel), "mean": structure_of(process.mean)}

    def assertions(self, state: PlacedState, sample: Sample) -> list[tf.Operation]:
        """The assertion that a sample does not lie before the state."""
        x = sample.x[:, 0]
        is_later = tf.reduce_all(is_nan(state.x) | (x >= state.x))
        return [tf.debugging.Assert(is_later, ["x must not go back: got", x])]

    def chunks(self, samples: Sample) -> list[slice]:
        """The whole block, which the compiled filter takes at once."""
        return [slice(0, np.shape(samples.x)[-2])]

    def step(self, state: PlacedState, sample: Sample) -> tuple[PlacedState, Step]:
        """Predicts the state at the place of the sample, and updates it with the sample."""
        markov, form, x = DiscretizedProcess(self.process), self.process.form, sample.x[:, 0]
        before, _ = markov.predict(StateAt(*self.as_stored(state)), x)
        H = markov.emission()[..., None]
        R = markov.noise(SampleNoise(sample.noise_variance, sample.group))
        R = tf.experimental.numpy.moveaxis(R[None] if R.shape.rank == 2 else R, 0, -1)
        z = sample.z[:, None] if self.outputs is None else sample.z
        function = tf.reshape(mean_function(self.process, sample.x[:, None]), tf.shape(z))
        absent = is_nan(z)
        observation = form.split(tf.where(absent, tf.zeros_like(z), z - function))
        present = tf.cast(tf.concat([~absent] * form.multiplicity, axis=-1), R.dtype.real_dtype)
        present = tf.linalg.matrix_transpose(present)  # the streams last
        h, r, observation = decorrelated(H[None], R[None], observation[:, None], present[None])
        observation = tf.experimental.numpy.moveaxis(observation[:, 0], 0, -1)
        after, _, _ = update(before, h[0], r[0], observation, present)

        def marginals(state: State, noise: tf.Tensor | None) -> Marginals:
            rows = matmul(H, state.chol)
            result = with_pseudo_variance(*marginals_of(form, matvec(H, state.mean), rows, noise))
            result = result.map(tf.linalg.matrix_transpose)  # the streams first
            result = result._replace(mean=result.mean + function)
            return result if self.outputs is not None else result.map(lambda a: a[:, 0])

        predicted, filtered = marginals(before, R), marginals(after, None)
        absent = is_nan(sample.z)
        deviation = tf.where(absent, nan(sample.z.dtype), sample.z - predicted.mean)
        mean, chol = (tf.experimental.numpy.moveaxis(a, -1, 0) for a in after)
        joint: JointMoments | tuple[()] = ()
        if self.outputs is not None:
            rows = matmul(H, before.chol)
            covariance = tf.experimental.numpy.moveaxis(matmul(rows, adjoint(rows)) + R, -1, 0)
            joint = joint_of(form, covariance)
        return self.from_stored([x, mean, chol]), Step(predicted, deviation, filtered, joint)

    def predict(self, state: PlacedState, at: Sample) -> Marginals:
        """The signal at places `[B, M, D]` at or after the place of the state."""
        markov, form = DiscretizedProcess(self.process), self.process.form
        x, mean, chol = self.as_stored(state)
        steps = at.x[..., 0] - x[:, None]
        F, Q, _ = markov.discretize(x[:, None] + tf.zeros_like(steps), steps)
        H = markov.emission()
        rows = tf.linalg.matmul(H, F)
        signal = self._of_samples(form.join(tf.linalg.matvec(rows, mean[:, None])))
        spread = tf.linalg.matmul(rows, chol[:, None])
        covariance = tf.linalg.matmul(spread, spread, adjoint_b=True)
        covariance += tf.linalg.matmul(tf.linalg.matmul(H, Q), H, adjoint_b=True)
        mean = signal + mean_function(self.process, tf.convert_to_tensor(at.x))
        return self._marginals(mean, form.moments(covariance))

    def _of_samples(self, a: tf.Tensor) -> tf.Tensor:
        """Values of components, `[..., 1]` or `[..., P]`, shaped like those of samples."""
        return a[..., 0] if self.outputs is None else a

    def _marginals(self, mean: tf.Tensor, covariances: SecondMoments) -> Marginals:
        """The moments of samples, by covariances of their components, which may be shared."""
        k, c = covariances.map(lambda a: self._of_samples(tf.linalg.diag_part(a)))
        variance = tf.math.real(k)
        pseudo = tf.zeros_like(mean) if c is None else c + tf.zeros_like(mean)
        return Marginals(mean, variance + tf.zeros_like(tf.math.real(mean)), pseudo)

    def forecast(self, state: PlacedState, ahead: Any, inputs: Any = None) -> Marginals:
        """The signal at places x, `[M]`, `[M, 1]` or `[B, M, 1]`, given the samples so far.

        Raises:
            TypeError: Known inputs.
            ValueError: Places before a state, or that are not finite.
        """
        if inputs is not None:
            raise TypeError("inputs are of a KalmanFilter: a StateSpaceGP has places x")
        x = as_points(ahead, self.real_dtype).numpy()
        if x.shape[-1] != 1 or x.ndim > 3 or (x.ndim == 3 and len(x) != len(state.x)):
            raise ValueError(f"x must be [M], or [B, M, 1] of B streams or keys, got {x.shape}")
        x = np.broadcast_to(x, [len(state.x), *x.shape[-2:]])
        self.range.admit(x)
        state = PlacedState(*map(tf.constant, state))
        if np.isnan(state.x).any():  # no sample yet: the prior at the first place
            state = self.initial_arrays(len(x), Sample(None, x.min(axis=1)))
        back = x[..., 0] < np.asarray(state.x)[:, None]
        if back.any():
            raise ValueError(f"x lies before the last sample: got {x[back][0, 0]:g}")
        return self.predict(state, Sample(None, tf.constant(x))).map(np.array)

    def is_sound(self, state: PlacedState, step: Step) -> tf.Tensor:
        """Whether state and variances are finite: a NaN noise variance leaves the state finite."""
        return all_finite((state, step.predicted.variance, step.filtered.variance))

    def scan(self, state: PlacedState, samples: Sample) -> tuple[PlacedState, Step]:
        """Filters a block, `[T]` or `[B, T]`, called eagerly: NumPy arrays."""
        block = self.filtered(state, samples)
        return block.state, block.step

    def filtered(self, state: PlacedState, samples: Sample) -> FilteredBlock:
        """Filters a block eagerly, as `scan`, with the moments of the state at each sample.

        Series whose states and samples are at the same places share their transitions.
        """
        is_single = np.ndim(samples.x) == 2
        if is_single:
            state = PlacedState(*(a[None] for a in state))
            samples = samples.map(lambda a: a[None])
        x, start = samples.x, StateAt(*self.as_stored(state))
        last = np.asarray(start.x)
        if _is_shared(x) and np.all(last == last[0]):
            x, start = x[:1], start._replace(x=start.x[0])
        noise = shared_noise(samples)
        if self.outputs is not None:
            samples, noise = samples._replace(z=rows_of(samples.z)), noise.map(rows_of)
        noise = noise.map(tf.constant)
        data = Data(tf.constant(x), tf.constant(samples.z), tf.zeros([0], tf.int32), noise)
        series = ordered_series(self.process, data, start=start)
        result = moments(Series(series.model, series.z))
        after, step = self._after(series, result, data)
        step = step.map(np.array)
        if is_single:
            after = PlacedState(*(a[0] for a in after))
            step = step.map(lambda a: a[0])
        return FilteredBlock(after, step, result)

    def follow(self, state: PlacedState, samples: Sample) -> Piece:
        """Filters a piece of series inside a model, whose places must be in order.

        The loss is the negative log likelihood of the piece given the state before it, less the log
        density of priors, per sample observed. Gradients reach hyperparameters and state.
        """
        x, z = as_inputs_and_targets(samples.x, samples.z, None, self.real_dtype, self.outputs)
        noise = SampleNoise(samples.noise_variance, samples.group)
        data = in_rows(Data(x, z, tf.shape(z)[:1], noise), self.outputs, self.group_count is None)
        places = tf.concat([state.x[:, None], data.x[..., 0]], axis=1)
        in_order = tf.reduce_all(places[:, 1:] >= places[:, :-1])
        message = "x must not go back: the places of series, piece after piece, must be in order"
        with tf.control_dependencies([tf.debugging.Assert(in_order, [message])]):
            data = data._replace(x=tf.identity(data.x))
        series = ordered_series(self.process, data, start=StateAt(*self.as_stored(state)))
        result = moments(Series(series.model, series.z))
        after, step = self._after(series, result, data)
        loss = self._loss(data, tf.reduce_sum(result.log_likelihoods, axis=-1))
        return Piece(after, step_outputs(step), loss)

    def _after(
        self, series: OrderedSeries, result: StateMoments, data: Data
    ) -> tuple[PlacedState, Step]:
        """The state after a series of samples, and the moments of each, `[B, T]`."""
        form, model, H = self.process.form, series.model, series.H
        z = self._of_samples(by_sample(data.z, self.outputs))
        function = mean_function(self.process, data.x)
        mean = self._of_samples(form.join(observed_means(model, result.predicted_means))) + function
        covariances = observation_moments(model, result)
        predicted = self._marginals(mean, covariances)
        joint = () if self.outputs is None else _joint(mean, covariances)
        rows = tf.linalg.matmul(H, result.filtered_chols)
        signal = tf.linalg.matmul(rows, rows, adjoint_b=True)  # never negative; without gradient
        change = tf.linalg.matmul(result.filtered_covariances, H, adjoint_b=True)
        change = tf.linalg.matmul(H, change)
        signal = tf.stop_gradient(signal) + (change - tf.stop_gradient(change))
        mean = self._of_samples(form.join(tf.linalg.matvec(H, result.filtered_means))) + function
        filtered = self._marginals(mean, form.moments(signal))
        deviation = tf.where(is_nan(z), nan(z.dtype), z - predicted.mean)
        last = (a[..., -1, :, :] for a in (result.filtered_chols, result.filtered_covariances))
        chol, covariance = (Series(model, series.z).of_each(a, 2) for a in last)
        x = tf.broadcast_to(data.x[:, -1, 0], tf.shape(z)[:1])
        mean = result.filtered_means[:, -1]
        after = self.from_stored([x, mean, stored_cholesky(chol, covariance)])
        return after, Step(predicted, deviation, filtered, joint)

    def matrices(self, values: bytes | None = None) -> "PresentMatrices":
        """The matrices at the present hyperparameters, eagerly; `values` of `weights` if known."""
        values = snapshot(self._weights) if values is None else values
        if self._matrices is None or self._matrices[0] != values:
            self._matrices = values, PresentMatrices(self.process)
        return self._matrices[1]

    def compiled(self, streams: int | None) -> "CompiledProcess":
        """The compiled step at the present hyperparameters."""
        return CompiledProcess(self.process, self.matrices(), streams)

    def compiled_walk(self) -> "ProcessWalk":
        """Compiled steps of many streams."""
        return ProcessWalk(self)


def _joint(means: tf.Tensor, covariances: SecondMoments) -> JointMoments:
    """The second moments over components, `[..., P, P]`, of all series, which may share them."""
    zero = tf.zeros_like(means)[..., None]
    pseudo = zero + tf.zeros_like(covariances.k)
    return JointMoments(
        covariances.k + zero, pseudo if covariances.c is None else covariances.c + zero
    )


def shared_noise(samples: Sample) -> SampleNoise:
    """The noise of samples `[B, ...]`: `[1, ...]` where all series have the same array."""
    noise = SampleNoise(samples.noise_variance, samples.group)
    return noise.map(lambda a: a[:1] if _is_shared(a) else a)


def _is_shared(a: np.ndarray) -> bool:
    """Whether all rows of an array are one in memory, as NumPy's `broadcast_to` makes them."""
    return len(a) == 1 or a.strides[0] == 0


class PresentMatrices:
    """The matrices of a process at its present hyperparameters, as NumPy arrays."""

    def __init__(self, process: SignalPlusNoise):
        self._process = process
        self.markov = DiscretizedProcess(process)
        self.H = self.markov.emission().numpy()
        count = tuple(process.noise_variance.variable.shape)
        self._has_groups = bool(count) and not process.noise_is_by_output
        groups = SampleNoise(None, tf.range(count[0])) if self._has_groups else COMMON_NOISE
        of_groups = self._has_groups and process.outputs is not None
        learned = None if of_groups else self.markov.noise(groups).numpy()
        # [m, m, 1], or of each group [m, m, G]; None where outputs have groups of their own.
        self._learned_noise = learned
        if learned is not None:
            self._learned_noise = np.moveaxis(learned if self._has_groups else learned[None], 0, -1)

    def R(self, noise: SampleNoise) -> np.ndarray:
        """The covariance of the noise of samples `[V]`, or `[V, P]`, `[m, m, V]`."""
        R, outputs = self._learned_noise, self._process.outputs
        if R is None:
            of_samples = self.markov.noise(noise.map(tf.constant)).numpy()
            return np.ascontiguousarray(np.moveaxis(of_samples, 0, -1))
        if noise.group is not None:
            R = np.ascontiguousarray(R[..., noise.group])
        if noise.variance is not None:  # circular: an equal part in each working component
            multiplicity = len(R) // (outputs or 1)
            known_variance = np.asarray(self._process.known_noise_variance(noise.variance))
            if outputs is not None:
                known_variance = np.moveaxis(known_variance, -1, 0)
            known_variance = (known_variance / multiplicity).astype(R.dtype)
            if outputs is not None:
                known_variance = np.concatenate([known_variance] * multiplicity)[:, None]
            R = R + np.eye(len(R), dtype=R.dtype)[..., None] * known_variance
        return R

    def transitions(self, x: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """F and a factor of Q over steps from places x, both `[B]`: `[B, n, n]`."""
        F, Q_factor = self.markov.transitions(x, steps)
        return F.astype(self.H.dtype, copy=False), Q_factor.astype(self.H.dtype, copy=False)

    def function(self, x: np.ndarray) -> np.ndarray | float:
        """The mean function at places of any shape; zero where there is none."""
        if self._process.mean is None:
            return 0.0
        function = mean_function(self._process, tf.constant(x.reshape(-1, 1, 1))).numpy()
        return function.reshape((*x.shape, *function.shape[2:]))


class CompiledProcess:
    """The step of a process at its present hyperparameters by a function of the compiled core.

    The number of streams is None for one stream without a batch axis.
    """

    def __init__(self, process: SignalPlusNoise, matrices: PresentMatrices, streams: int | None):
        self._process, self._matrices, self._streams = process, matrices, streams
        self._step: CompiledStep | None = None
        self._transitions: dict[float, tuple[np.ndarray, np.ndarray]] = {}

    def serves(self, arrays: Sequence[np.ndarray], sample: Sample, layer_weights: bytes) -> bool:
        """Whether the core is there."""
        return native.core().ops is not None

    def __call__(self, arrays: Sequence[np.ndarray], sample: Sample) -> Step | None:
        """Takes one sample of each stream, as `cgp.online.cell.Compiled`."""
        last, mean, chol = arrays
        if last[0] != last[0]:  # NaN: there is no state yet
            return None
        x = sample.x[..., 0]
        F, Q_factor = self._transition(last, x)
        noise = COMMON_NOISE
        if sample.noise_variance is not None or sample.group is not None:
            axes = x.ndim  # of one stream there is none
            noise = shared_noise(sample if axes else sample.map(lambda a: np.asarray(a)[None]))
        R, is_scalar = self._matrices.R(noise), self._process.outputs is None
        if self._step is None:
            matrices = StepMatrices(F, Q_factor, self._matrices.H[..., None], R)
            is_composite = self._process.form.multiplicity > 1
            self._step = CompiledStep(
                matrices, self._streams, is_composite, predicts_first=True, is_scalar=is_scalar
            )
        self._step.set(F=F, Q_factor=Q_factor, R=R)
        has_mean = self._process.mean is not None
        function = self._matrices.function(x) if has_mean else 0.0
        signal = sample.z - function
        result = self._step(signal[..., None] if is_scalar else signal, mean, chol)
        if result is None:
            return None
        last[...] = x
        predicted, filtered, joint = result
        if has_mean:
            predicted, filtered = (
                m._replace(mean=m.mean + function) for m in (predicted, filtered)
            )
        # NaN in both parts where z is, as it was checked.
        return Step(predicted, sample.z - predicted.mean, filtered, joint)

    def _transition(self, last: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """F and a factor of Q from the last places to x, `[n, n, 1 or B]`; kept for equal steps."""
        steps = x - last
        are_apart = len(last) > 1 and np.count_nonzero((last != last[0]) | (steps != steps[0]))
        if are_apart:
            return self._discretized(last, steps)
        step = steps[0]
        if step in self._transitions:
            return self._transitions[step]
        transition = self._discretized(last[:1], steps[:1])
        if self._matrices.markov.is_stationary:
            if len(self._transitions) == _MOST_TRANSITIONS:
                self._transitions.clear()
            self._transitions[step] = transition
        return transition

    def _discretized(self, last: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """F and a factor of Q, batch last."""
        matrices = self._matrices.transitions(last.copy(), steps)
        if len(steps) == 1:
            F, Q_factor = (a.reshape(*a.shape[1:], 1) for a in matrices)
        else:
            F, Q_factor = (np.ascontiguousarray(np.moveaxis(a, 0, -1)) for a in matrices)
        return F, Q_factor


class ProcessWalk:
    """Steps of many processes, sample after sample, by a function of the compiled core."""

    def __init__(self, cell: ProcessCell):
        self._cell = cell
        self._walk = CompiledWalk(cell.process.form.multiplicity > 1, predicts_first=True)
        self._matrices: PresentMatrices

    def serves(self, layer_weights: bytes) -> bool:
        """Whether the core is there."""
        if native.core().ops is None:
            return False
        self._matrices = self._cell.matrices(layer_weights)
        return True

    def __call__(self, rows: Sequence[np.ndarray], slots: np.ndarray, samples: Sample) -> Step:
        """Takes samples in their order, as `cgp.online.cell.Walk`."""
        places, mean, chol = rows
        x, last = samples.x[:, 0], _places_before(places, slots, samples.x[:, 0])
        back = np.flatnonzero(x < last)
        if len(back):
            first = back[0]
            message = f"x must not go back: got {x[first]:g} after {last[first]:g}"
            raise RefusedSample(first, message)
        function = self._matrices.function(x)
        is_scalar = self._cell.outputs is None
        signal = np.ascontiguousarray(samples.z - function)
        signal = signal[:, None] if is_scalar else signal
        moments = []
        for begin in range(0, max(len(x), 1), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            F, Q_factor = self._matrices.transitions(last[block], (x - last)[block])
            noise = SampleNoise(samples.noise_variance, samples.group).map(lambda a: a[block])  # noqa: B023
            R = np.moveaxis(self._matrices.R(noise), -1, 0)
            R = R[0] if noise.is_common else R
            matrices = {"F": F, "Q_factor": Q_factor, "H": self._matrices.H, "R": R}
            result = self._walk(matrices, signal[block], slots[block], mean, chol)
            if isinstance(result, int):
                raise RefusedSample(begin + result, NOT_FINITE)
            moments.append(result)
        places[slots] = x  # of several samples of one key the last assignment counts
        component = 0 if is_scalar else slice(None)
        predicted, filtered = (
            Marginals(*(_joined(arrays)[:, component] for arrays in zip(*blocks, strict=True)))
            for blocks in zip(*(block[:2] for block in moments), strict=True)
        )
        for m in (predicted, filtered):
            np.add(m.mean, function, out=m.mean)
        joint: JointMoments | tuple[()] = ()
        if not is_scalar:
            joint = JointMoments(*map(_joined, zip(*(b.joint for b in moments), strict=True)))
        return Step(predicted, innovation(samples.z, predicted.mean), filtered, joint)


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays of blocks as one, without a copy of a single one."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _places_before(places: np.ndarray, slots: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The place of the sample before each one in its slot; for the first, the slot's last place."""
    before = places[slots]
    numbers, last_number = np.arange(len(slots)), np.empty(len(places), np.int64)
    last_number[slots] = numbers  # of several samples of one key the last assignment counts
    if np.array_equal(last_number[slots], numbers):  # each key has one sample
        return before
    order = np.argsort(slots, kind="stable")
    repeats = np.flatnonzero(slots[order][1:] == slots[order][:-1])
    before[order[repeats + 1]] = x[order[repeats]]
    return before
