"""The stream of a state-space process: its state after the last sample, and its steps."""

import functools

import numpy as np
import tensorflow as tf

from cgp import native
from cgp.distributions.marginals import Marginals, Step, innovation
from cgp.gp.data import Data
from cgp.gp.noise import COMMON_NOISE, SampleNoise, joined_noise
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.gp.state_space.discretization import DiscretizedProcess, StateAt
from cgp.gp.state_space.ordered_series import ordered_series
from cgp.linalg.arguments import is_nan
from cgp.linalg.batch_last import matmul, matvec
from cgp.statespace.engines.decorrelation import decorrelated
from cgp.statespace.engines.filter_step import BatchLastMarginals, State, marginals_of, update
from cgp.statespace.filtering import process_block
from cgp.statespace.online.native_step import NOT_FINITE, CompiledStep, StepMatrices
from cgp.statespace.online.stream_state import StreamState
from cgp.statespace.online.traced_step import TracedStep
from cgp.statespace.results import covariance_marginals
from cgp.training.host_variable import HostVariable

# Steps between samples take few different values, or so many that keeping them is no use.
_MOST_TRANSITIONS = 64


class ProcessStream:
    """B series filtered together, one sample of each at a time.

    Args:
        process: Kernel, mean and noise.
        batch: The batch axes of the series, `()` or `(B,)`.
        real: Real dtype of the places.
    """

    kept = 512
    """After this many samples since a noted state, samples before that state may be dropped."""

    def __init__(self, process: SignalPlusNoise, batch: tuple[int, ...], real: tf.DType):
        self._process, self.batch, self._real = process, batch, real.as_numpy_dtype
        self.streams = int(np.prod(batch, dtype=int))
        self._renew()
        emission = self._markov.emission()
        self._state = StreamState(
            lambda name, shape: HostVariable(shape, real.name, name),
            emission.shape[-1],
            self.streams,
            emission.dtype,
        )
        self._traced: TracedStep | None = None
        self.x = 0.0
        """The place of the last sample."""
        self.recent: list[tuple[float, np.ndarray, SampleNoise]] = []
        """Samples `(x, z [B], noise [V, 1])` that have not joined the data yet."""
        self.noted: StateAt | None = None
        """An earlier state, from which later samples go on; None for the prior."""
        self.since = 0
        """The number of samples after the noted state."""

    def present(self) -> StateAt:
        """The state after the last sample."""
        return StateAt(tf.constant(self.x, self._real), *self._state.state())

    def begin(self, state: StateAt) -> None:
        """Continues from a state, which is noted."""
        self._renew()
        self._state.set_state(state.mean, state.chol)
        self.x, self.noted, self.since = float(state.x), state, 0

    def begin_before(self, x: float) -> None:
        """Starts from the prior at a first place."""
        _, chol = self._markov.initial(tf.constant(x, self._real))
        self._state.set_state(tf.zeros_like(chol[0]), chol)
        self.x, self.noted, self.since = x, None, 0

    def _renew(self) -> None:
        """Takes the present hyperparameters, and drops what was computed with others."""
        self._markov = DiscretizedProcess(self._process)
        self._by_core: CompiledStep | None = None
        self._learned_noise: np.ndarray | None = None  # [m, m, 1], or of each group [m, m, G]
        self._transitions: dict[float, tuple[np.ndarray, np.ndarray]] = {}

    def note(self) -> None:
        """Notes the present state."""
        self.noted, self.since = self.present(), 0

    # --- samples ---------------------------------------------------------------------------------

    def step(self, x: float, z: np.ndarray, noise: SampleNoise) -> Step:
        """Takes one sample of each series, not before the last place.

        Args:
            x: The place.
            z: `[B]`, NaN where missing.
            noise: The noise of the samples, arrays `[V, 1]`.
        """
        take = self._take_compiled if native.core().ops else self._take_traced
        predicted, filtered = take(x, z, noise)
        self.x = float(x)
        self.recent.append((self.x, z, noise))
        self.since += 1
        return Step(predicted, innovation(z, predicted.mean), filtered)

    def process(self, x: np.ndarray, z: np.ndarray, noise: SampleNoise) -> Step:
        """Takes T samples of each series, `[T]`, `[B, T]` and `[V, T]`; returns arrays `[B, T]`.

        Raises:
            ValueError: The new state would not be finite; the state is unchanged.
        """
        form, places = self._process.form, tf.constant(x)
        no_axes, tensors = tf.zeros([0], tf.int32), noise.map(tf.constant)
        block = Data(places[None, :, None], tf.constant(z), no_axes, tensors)
        series = ordered_series(self._process, block, start=self.present())
        found = process_block(series.model, series.z)
        state = StateAt(places[-1], found.last_mean, found.last_chol)
        if not all(np.isfinite(a).all() for a in (*state, found.predicted.variance)):
            raise ValueError(NOT_FINITE)
        rows = tf.linalg.matmul(series.H, found.moments.filtered_chols)
        signal = covariance_marginals(
            form.join(tf.linalg.matvec(series.H, found.moments.filtered_means)),
            form.moments(tf.linalg.matmul(rows, rows, adjoint_b=True)),
        )
        function = self._process.plus_function(tf.zeros_like(block.z[:1]), block.x).numpy()
        predicted, filtered = (
            Marginals(m.mean[..., 0] + function, m.variance[..., 0], m.pseudo_variance[..., 0])
            for m in (found.predicted, signal)
        )
        self._state.set_state(state.mean, state.chol)
        for t, place in enumerate(x):
            self.recent.append((float(place), z[:, t], noise.at(t)))
        self.x, self.since = float(x[-1]), self.since + len(x)
        before = len(x) - self.kept - 1
        if before >= 0:
            means, chols = found.moments.filtered_means, found.moments.filtered_chols
            self.noted = StateAt(places[before], means[:, before], chols[:, before])
            self.since = self.kept
        return Step(predicted, innovation(z, predicted.mean), filtered)

    def joined(self, data: Data) -> Data:
        """Appends the recent samples to the data, and clears the list of recent samples."""
        x, z, noise = zip(*self.recent, strict=True)
        self.recent = []
        places = tf.constant(np.asarray(x)[None, :, None], data.x.dtype)
        parts = [(data.noise, data.z.shape[1]), *((of_sample, 1) for of_sample in noise)]
        return data._replace(
            x=tf.concat([data.x, places], axis=1),
            z=tf.concat([data.z, tf.constant(np.stack(z, axis=-1))], axis=1),
            noise=joined_noise(parts, data.x.dtype),
        )

    # --- one step --------------------------------------------------------------------------------

    def _take_compiled(
        self, x: float, z: np.ndarray, noise: SampleNoise
    ) -> tuple[Marginals, Marginals]:
        """Updates the state; the moments of z before, and of the signal after it, `[B]`."""
        transition, Q_factor = self._transition(x)
        R = self._noise_covariance(noise)
        if self._by_core is None:
            H = self._markov.emission().numpy()[..., None]
            matrices = StepMatrices(transition, Q_factor, H, R)
            is_composite = self._process.form.multiplicity > 1
            self._by_core = CompiledStep(matrices, self.streams, is_composite, predicts_first=True)
        function: np.ndarray | float = 0.0
        if self._process.mean is not None:
            place = tf.constant([[[x]]], self._real)
            function = self._process.plus_function(tf.zeros_like(z)[:, None], place).numpy()
        changes = {"F": transition, "Q_factor": Q_factor, "R": R}
        found = self._state.take(self._by_core, z[:, None] - function, changes)
        predicted, filtered = (
            Marginals((m.mean + function)[:, 0], m.variance[:, 0], m.pseudo_variance[:, 0])
            for m in found
        )
        return predicted, filtered

    def _noise_covariance(self, noise: SampleNoise) -> np.ndarray:
        """R, `[m, m, V]`, of samples `[V, 1]`."""
        if self._learned_noise is None:
            count = tuple(self._process.noise_variance.variable.shape)
            groups = SampleNoise(None, tf.range(count[0])) if count else COMMON_NOISE
            learned = self._markov.noise(groups)
            learned = tf.experimental.numpy.moveaxis(learned if count else learned[None], 0, -1)
            self._learned_noise = learned.numpy()
        R = self._learned_noise
        if noise.group is not None:
            R = np.ascontiguousarray(R[..., noise.group[:, 0]])
        if noise.variance is not None:  # circular: of each working component an equal part
            known = (noise.variance[:, 0] / len(R)).astype(R.dtype)
            R = R + np.eye(len(R), dtype=R.dtype)[..., None] * known
        return R

    def _transition(self, x: float) -> tuple[np.ndarray, np.ndarray]:
        """F and a factor of Q from the last place to x, `[n, n, 1]`; often the same again."""
        step = x - self.x
        if step in self._transitions:
            return self._transitions[step]
        found = self._markov.transitions(*(np.asarray([a], self._real) for a in (self.x, step)))
        dtype = self._state.dtype.as_numpy_dtype
        transition, factor = (np.ascontiguousarray(a[0][..., None], dtype) for a in found)
        if self._markov.is_stationary:
            if len(self._transitions) == _MOST_TRANSITIONS:
                self._transitions.clear()
            self._transitions[step] = transition, factor
        return transition, factor

    def _take_traced(
        self, x: float, z: np.ndarray, noise: SampleNoise
    ) -> tuple[Marginals, Marginals]:
        """`_take_compiled` without the compiled core."""
        if self._traced is None:
            place, values = tf.TensorSpec([], self._real), tf.TensorSpec([self.streams], z.dtype)
            # Kernels have operations that XLA does not compile.
            known = tf.TensorSpec([self.streams], self._real)
            signature = [place, place, values, known]
            if noise.group is not None:
                signature.append(tf.TensorSpec([self.streams], tf.int32))
            following = functools.partial(advance, self._process)
            self._traced = TracedStep(self._state, following, signature, jit=False)
        places = (np.asarray(a, self._real) for a in (self.x, x))
        known = np.zeros([1, 1], self._real) if noise.variance is None else noise.variance
        parts = [known] if noise.group is None else [known, noise.group]
        parts = [np.broadcast_to(a[:, 0], [self.streams]) for a in parts]
        predicted, filtered = self._traced(*places, z, *parts)
        return predicted.map(lambda a: a[:, 0]), filtered.map(lambda a: a[:, 0])


def advance(
    process: SignalPlusNoise,
    state: State,
    last: tf.Tensor,
    x: tf.Tensor,
    z: tf.Tensor,
    *noise: tf.Tensor,
) -> tuple[State, BatchLastMarginals, BatchLastMarginals]:
    """Predicts from the last place to x, and updates with observations there.

    Args:
        process: Kernel, mean and noise.
        state: The moments at the last place, batch last.
        last: The last place, a number, or `[B]` where each series has its own.
        x: The place of the observations, in the same form.
        z: Observations, complex, `[B]`; NaN where missing.
        *noise: The known part of their noise and, of a model with groups, their groups, each `[B]`.

    Returns:
        The state at x; the moments of the observations before, and of the signal after.
    """
    markov, form = DiscretizedProcess(process), process.form
    start = StateAt(last, *(tf.experimental.numpy.moveaxis(a, -1, 0) for a in state))
    before = markov.predict(start, x)
    H = markov.emission()[..., None]
    R = tf.experimental.numpy.moveaxis(markov.noise(SampleNoise(*noise)), 0, -1)
    places = tf.reshape(x, [-1, 1, 1])
    function = process.plus_function(tf.zeros_like(z)[:, None], places)[:, 0]
    absent = is_nan(z)
    value = form.split(tf.where(absent, tf.zeros_like(z), z - function)[:, None])
    seen = tf.cast(~absent, value.dtype.real_dtype) + tf.zeros_like(tf.math.real(R[:, 0]))
    h, r, value = decorrelated(H[None], R[None], value[:, None], seen[None])
    after, _, _ = update(
        before, h[0], r[0], tf.experimental.numpy.moveaxis(value[:, 0], 0, -1), seen
    )

    def signal(state: State, noise: tf.Tensor | None) -> BatchLastMarginals:
        found = marginals_of(form, matvec(H, state.mean), matmul(H, state.chol), noise)
        return found._replace(mean=found.mean + function)

    return after, signal(before, R), signal(after, None)
