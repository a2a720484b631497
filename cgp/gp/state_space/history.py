"""The data and the most recent samples of a state-space process.

Data of `condition` and `fit` are stored whole. Samples of a stream are appended to them; when there
are many, older ones are dropped, data included, and the state before the remaining samples is kept
instead. So memory does not grow with a stream, forecasts continue from its last state, and the
posterior between the remaining samples is still the posterior given all samples.

A state belongs to the hyperparameters that it was computed with. When they change, the state
before the stored data is cleared by a post-gradient update, and the stream resumes from the stored
data and samples; samples dropped before no longer count.
"""

import warnings
from collections.abc import Callable, Mapping

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions.marginals import Marginals, Step
from cgp.gp.data import Data, StoredData
from cgp.gp.noise import SampleNoise, joined_noise
from cgp.gp.state_space.discretization import StateAt, StoredState, ordered_series
from cgp.gp.state_space.output_series import rows_of
from cgp.gp.state_space.predictions import smoothed
from cgp.gp.state_space.process_cell import PlacedState, ProcessCell, shared_noise
from cgp.gp.stream_samples import forecast_at
from cgp.linalg.arguments import ArrayLike
from cgp.online.cell import Sample
from cgp.online.past import PastStep
from cgp.online.stream import Stream
from cgp.statespace.engines.chunked_engine import StateMoments
from cgp.statespace.filtering import process_block
from cgp.statespace.native_step import NOT_FINITE
from cgp.statespace.online.online_step import check_state_factor
from cgp.training import confirm, refresh, register_post_update

TOO_EARLY = (
    "x lies before the samples that are still held: step and process keep the latest samples, and "
    "the state before them. To look further back, condition another StateSpaceGP on the samples"
)
NOT_ALL = (
    "the process has followed a stream, and holds its latest samples alone: condition(x, z) on the "
    "data that are meant, or give them as arguments"
)


class ResumedStream(Stream):
    """The stream of a process, which resumes from its samples when hyperparameters change.

    `resume` returns the state after the samples, at the present hyperparameters.
    """

    cell: ProcessCell

    def __init__(
        self,
        cell: ProcessCell,
        streams: int | None,
        resume: Callable[[], StateAt],
        horizon: int = 0,
    ):
        super().__init__(cell, streams, horizon=horizon)
        self._resume = resume
        self.moments: StateMoments | None = None
        """The moments of the state along the last block."""
        # Here, as TensorFlow wraps the attributes of a `tf.Module` whenever they are set.
        self.recent: list[tuple[np.ndarray, Sample]] = []
        """Places `[T]` and samples that have not joined the data yet."""
        self.noted: StateAt | None = None
        """An earlier state, from which later samples continue; None for the prior."""
        self.since_noted = 0
        """The number of samples after the noted state."""

    @property
    def x(self) -> float:
        """The place of the last sample."""
        return float(self.arrays()[0][0])

    def renew(self) -> None:
        """Resumes from the samples, and notes the state after them."""
        self._forget_past()
        state = self._resume()
        x = tf.fill([self.streams or 1], state.x)
        self.write(self.cell.from_stored([x, state.mean, state.chol]))
        self.noted, self.since_noted = state, 0

    def scan(self, state: PlacedState, samples: Sample) -> tuple[PlacedState, Step]:
        """Takes a block, and keeps the moments of the state along it."""
        after, step, self.moments = self.cell.filtered(state, samples)
        return after, step


class History(tf.Module):
    """Data, samples of a stream, and the state after the last of them."""

    kept = 512
    """After this many samples since a noted state, samples before that state may be dropped."""

    def __init__(
        self, layer: keras.layers.Layer, cell: ProcessCell, stored: StoredData, horizon: int = 0
    ):
        super().__init__()
        self._horizon, self.kept = horizon, max(self.kept, 2 * horizon)
        self._layer, self._cell, self._stored = layer, cell, stored
        self._process = process = cell.process
        self.start = StoredState(stored.z.dtype if process.is_proper else stored.x.dtype)
        """The state before the stored data, where older samples have been dropped."""
        self._has_dropped = tf.Variable(False, trainable=False)  # graphs read it too
        self._weights = cell.weights
        self._stream: ResumedStream | None = None
        self._batch: tuple[int, ...] = ()  # the batch axes of the stream
        self._streamed = 0  # the number of stored data that are samples of the stream
        self._loaded: tuple[StateAt, np.ndarray] | None = None
        self._in_graphs = False
        register_post_update(layer, self._weights, self.start.clear, state_is_weights=False)

    @property
    def data(self) -> Data:
        """The data and samples that are stored."""
        self.join()
        return self._stored.data

    def check_whole(self) -> None:
        """Raises a `ValueError` if samples have been dropped."""
        if bool(self._has_dropped):
            raise ValueError(NOT_ALL)

    def whole_data(self) -> Data:
        """The data and samples as a graph reads them, which fails if some have been dropped."""
        return _data_if(~self._has_dropped, self._data_of_graph(), NOT_ALL)

    def data_for(self, x: tf.Tensor) -> Data:
        """The data and samples that a graph reads when it runs, for predictions at x given `start`.

        The graph fails for places before the samples that are still stored.
        """
        data = self._data_of_graph()
        return _data_if(~self._has_dropped | self._is_late(data, x), data, TOO_EARLY)

    def _data_of_graph(self) -> Data:
        self._in_graphs = True
        with tf.init_scope():
            self.join()
            self.present_start()
        refresh(self._layer)
        return self._stored.data_of_graph()

    def _is_late(self, data: Data, x: tf.Tensor) -> tf.Tensor:
        """Whether all places x lie after the first one known, scalar bool."""
        return tf.reduce_all(x >= self._first(data))

    def _first(self, data: Data) -> tf.Tensor:
        """The first place of the data, or the place of the state before them, if there is one."""
        return tf.where(self.start.is_empty, tf.reduce_min(data.x), self.start.x)

    def join(self) -> None:
        """Appends the recent samples of the stream to the data, in the variables."""
        stream = self._stream
        if stream is None or not stream.recent:
            return
        x, samples = zip(*stream.recent, strict=True)
        counts = list(map(len, x))
        if self._process.outputs is not None:
            axes = len(self._batch)
            samples = [_with_rows(a, axes) for a in samples]
        z = [np.reshape(a.z, [-1, count]) for a, count in zip(samples, counts, strict=True)]
        noise_of_blocks = map(_noise_of_block, samples, counts)
        stream.recent, data = [], self._stored.data
        self._streamed += sum(counts)
        noises = [(data.noise, data.z.shape[1]), *zip(noise_of_blocks, counts, strict=True)]
        places = tf.constant(np.concatenate(x)[None, :, None], data.x.dtype)
        observations = tf.concat([data.z, tf.constant(np.concatenate(z, axis=-1))], axis=1)
        places, noise = tf.concat([data.x, places], axis=1), joined_noise(noises, data.x.dtype)
        functional = data.functional.with_values(sum(counts))
        joined = data._replace(x=places, z=observations, noise=noise, functional=functional)
        self._stored.replace(joined)

    def _keep(self, count: int) -> None:
        """Drops all but the last samples, and the data with them."""
        data, self._streamed = self.data, count
        self._stored.replace(data.between(-count, None))
        self._has_dropped.assign(True)

    def replace(self, data: Data) -> None:
        """Replaces all data and samples by other data."""
        self._stored.replace(data)
        self.start.clear()
        self._has_dropped.assign(False)
        self._stream, self._streamed, self._loaded = None, 0, None

    def data_before(self, x: tf.Tensor) -> tuple[Data, StateAt | None]:
        """The data that predictions at x need, and the state before them; None for the prior.

        A ValueError for places before the samples that are still stored.
        """
        stream = self._present_stream()
        if stream is not None and tf.size(x) > 0 and bool(tf.reduce_all(x >= stream.x)):
            data = self._stored.data.between(0, 0)  # a forecast
            return data._replace(x=data.x[:1]), self._state_at(stream)
        data, start = self.data, self.present_start()
        # The stored samples alone say too little about earlier places.
        if bool(self._has_dropped) and not bool(self._is_late(data, x)):
            got, first = float(tf.reduce_min(x)), float(self._first(data))
            raise ValueError(f"{TOO_EARLY} (got x = {got:g}, held from {first:g})")
        return data, start

    def present_start(self) -> StateAt | None:
        """The state before the stored data, at the present hyperparameters; None for the prior."""
        if self._loaded is not None:  # now that all weights have been loaded
            start, weights = self._loaded
            self._loaded = None
            if np.array_equal(weights, self._weight_values()):
                self.start.write(start)
                confirm(self._layer)
        refresh(self._layer)
        return None if bool(self.start.is_empty) else self.start.read()

    def saved(self) -> dict[str, np.ndarray]:
        """The state before the stored data, as real arrays for `load`; empty for none."""
        self.join()
        start = self.present_start()
        if not bool(self._has_dropped):
            return {}
        arrays = {"dropped": np.ones(1)}
        if start is not None:
            arrays["start_x"], arrays["start_values"] = start.x.numpy()[None], self._weight_values()
            for name, tensor in zip(("start_mean", "start_chol"), start[1:], strict=True):
                a = tensor.numpy()
                arrays[name] = np.stack([a.real, a.imag] if np.iscomplexobj(a) else [a], axis=-1)
        return arrays

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restores the state of `saved` arrays, once the weights have been loaded too."""
        self._has_dropped.assign("dropped" in arrays)
        if "start_x" in arrays:
            moments = (arrays["start_mean"], arrays["start_chol"])
            mean, chol = (
                a[..., 0] + 1j * a[..., 1] if a.shape[-1] == 2 else a[..., 0] for a in moments
            )
            series, n = self._stored.data.z.shape[0] // (self._process.outputs or 1), mean.shape[-1]
            sound = mean.shape == (series, n) and chol.shape == (series, n, n)
            if not sound or not all(np.isfinite(a).all() for a in (mean, chol)):
                raise ValueError(
                    "the file is damaged: the state before the samples held must be finite, "
                    f"[{series}, n] and [{series}, n, n], got shapes {mean.shape}, {chol.shape}"
                )
            check_state_factor(chol, "the saved factor of the state before the samples held")
            start = StateAt(*map(tf.constant, (arrays["start_x"][0], mean, chol)))
            self._loaded = (start, arrays["start_values"])

    def _weight_values(self) -> np.ndarray:
        """The values of all weights, on which a state depends."""
        return np.concatenate([np.zeros(1), *(np.ravel(w.numpy()) for w in self._weights)])

    def step(self, sample: Sample, streams: int | None) -> Step:
        """Takes a sample of each of B streams at one place; `streams` is None for no batch axis.

        A ValueError for a number of streams that differs from the data, a place before the last
        sample, and a state that would not be finite. Nothing has then changed.
        """
        stream = self._stream_of(streams)
        step = stream.step(sample)
        self._append(stream, sample, is_block=False)
        return step

    def process(self, samples: Sample, streams: int | None) -> Step:
        """Takes a block of samples; arguments and errors as for `step`."""
        stream = self._stream_of(streams)
        step = stream.process(samples)
        self._append(stream, samples, is_block=True)
        return step

    def is_late(self, sample: Sample) -> bool:
        """Whether a sample lies before the place of the stream."""
        stream = self._last_stream() if self._horizon else None
        return stream is not None and bool(np.any(sample.x[..., 0] < stream.x))

    def late_step(self, sample: Sample, streams: int | None) -> Step:
        """Takes a sample before the latest ones, as if it had come in order; its step.

        Raises:
            ValueError: It lies before the samples of the horizon; as `step`. Nothing has changed.
        """
        stream = self._stream_of(streams)
        stream.refresh()
        steps, x = stream.latest_steps, float(np.ravel(sample.x)[0])
        later = [i for i, step in enumerate(steps) if np.ravel(step.sample.x)[0] > x]
        number = later[0] if later else len(steps)
        oldest = steps[0].state[0][0] if steps else stream.x  # NaN before the first sample of all
        if not later or oldest > x:
            raise ValueError(
                f"x must not go back beyond the latest samples that are kept, {len(steps)} of a "
                f"horizon of {self._horizon}: got {x:g} after {stream.x:g}, and the earliest place "
                f"that a sample may still have is {oldest:g}"
            )
        samples = [(sample, True), *((step.sample, True) for step in steps[number:])]
        step = stream.take_again(number, samples)
        self._insert(stream, sample, len(steps) - number)
        return step

    def _insert(self, stream: ResumedStream, sample: Sample, later: int) -> None:
        """Keeps a sample that came late among the stored ones, before so many later ones."""
        stream.recent.append((np.ravel(sample.x)[:1].copy(), sample))
        self.join()
        data = self._stored.data
        late = data.z.shape[1] - 1  # the number of the sample that has just been joined
        order = [*range(late - later), late, *range(late - later, late)]
        self._stored.replace(data.at(order))
        stream.since_noted += 1
        if stream.noted is not None and float(stream.noted.x) > float(np.ravel(sample.x)[0]):
            # It does not know the sample, which the state before the latest steps has no need to.
            steps = stream.latest_steps
            stream.noted, stream.since_noted = self._state_before(steps[0]), len(steps)

    @staticmethod
    def _state_before(step: PastStep) -> StateAt | None:
        """The state before a step, working values; None before the first sample of all."""
        x, mean, chol = (tf.constant(np.moveaxis(a, -1, 0)) for a in step.state)
        return None if np.isnan(x[0]) else StateAt(x[0], mean, chol)

    def lag(self, steps_ago: int) -> Marginals:
        """The signal at the place of an earlier sample given all samples since.

        Raises:
            ValueError: A sample beyond the horizon.
        """
        stream = self._last_stream()
        steps = [] if stream is None else stream.latest_steps
        if steps_ago >= len(steps):
            raise ValueError(
                f"steps reaches {steps_ago} samples before the latest one, but {len(steps)} of a "
                f"stream are kept: {self._remedy_for_horizon(steps_ago)}"
            )
        self.join()
        steps = steps[-1 - steps_ago :]
        data = self._stored.data.between(-len(steps), None)
        place = tf.constant(np.ravel(steps[0].sample.x)[:1][None, :, None], data.x.dtype)
        start = self._state_before(steps[0])
        posterior = smoothed(self._process, data, place, None, start)
        moments = (posterior.mean(), posterior.variance(), posterior.pseudo_variance())
        component = 0 if self._process.outputs is None else slice(None)
        return Marginals(*(a.numpy()[..., component] for a in moments))

    def _remedy_for_horizon(self, steps_ago: int) -> str:
        """What makes so many steps before the latest one available, as the end of an error."""
        if steps_ago <= self._horizon:
            return (
                "earlier ones were forgotten when hyperparameters changed or a file was loaded, or "
                "there were none"
            )
        return (
            f"give the process a horizon of {steps_ago}, StateSpaceGP(kernel, horizon={steps_ago})"
        )

    def forecast_of(self, sample: Sample, streams: int | None) -> Step:
        """The step of a sample, after which all is as it was; arguments and errors as `step`."""
        return self._stream_of(streams).forecast_of(sample)

    def state_before(self, sample: Sample, streams: int | None) -> PlacedState:
        """The state from which a sample is predicted, `[B, ...]`; errors as for `step`."""
        stream = self._stream_of(streams)
        stream.refresh()
        stream.check(sample)
        if not stream.has_begun():
            stream.begin(sample)
        return stream.read()

    def forecast_at(self, x: ArrayLike, observed: bool) -> Marginals | None:
        """The moments at a few places after the last sample; None where the posterior has them."""
        stream = self._stream
        if stream is None:
            return None
        return forecast_at(stream, x, observed, earliest=stream.x)

    def last_state(self) -> StateAt | None:
        """The state after the last sample or point of the data; None before any."""
        stream = self._last_stream()
        return None if stream is None else self._state_at(stream)

    def _stream_of(self, streams: int | None) -> ResumedStream:
        """The stream; a new one, which `_append` keeps, before any data."""
        batch = () if streams is None else (streams,)
        if self._stream is None and self._has_series():
            self._check_shared_places()
            expected: tuple[int, ...] | None = tuple(self._stored.batch.numpy().tolist())
        else:
            expected = None if self._stream is None else self._batch
        if expected is not None and batch != expected:
            raise ValueError(
                f"z must have the batch axes of the data, {list(expected)}, got {list(batch)}"
            )
        if self._stream is None and expected is not None:
            return self._resumed_stream()
        return self._stream or self._new_stream(streams)

    def _new_stream(self, streams: int | None) -> ResumedStream:
        return ResumedStream(self._cell, streams, self._resumed_state, self._horizon)

    def _has_series(self) -> bool:
        return len(self._stored.data.z) > 0

    def _check_shared_places(self) -> None:
        if self._stored.data.x.shape[0] > 1:
            raise ValueError("the series of the data have places of their own: make a GP each")

    def _present_stream(self) -> ResumedStream | None:
        """The stream, its state at the present hyperparameters; None before any sample."""
        if self._stream is not None:
            self._stream.refresh()
        return self._stream

    def _last_stream(self) -> ResumedStream | None:
        """The stream, or a new one that continues from the data; None before any sample."""
        if self._stream is None and self._has_series():
            self._check_shared_places()
            return self._resumed_stream()
        return self._present_stream()

    def _state_at(self, stream: ResumedStream) -> StateAt:
        """The state of a stream, working values, at the place that its series share."""
        x, mean, chol = self._cell.as_stored(stream.read())
        return StateAt(x[0], mean, chol)

    def _resumed_stream(self) -> ResumedStream:
        """A stream that continues from the stored data."""
        batch = tuple(self._stored.batch.numpy().tolist())
        streams = int(np.prod(batch, dtype=int)) if batch else None
        stream = self._new_stream(streams)
        stream.refresh()
        stream.renew()
        self._stream, self._batch = stream, batch
        return stream

    def _resumed_state(self) -> StateAt:
        """The state after the stored data, at the present hyperparameters."""
        start = self.present_start()
        self.join()
        if self._streamed > 4 * self.kept:  # changes are too frequent for a state to be noted
            self._keep(self.kept)
        data = self.data
        if start is None and bool(self._has_dropped):
            warnings.warn(
                "the hyperparameters of a StateSpaceGP have changed after samples of its stream "
                f"were dropped: it is now the process of the {data.z.shape[1]} samples still held, "
                "and what came before them does not count any more",
                stacklevel=2,
            )
        series = ordered_series(self._process, data, start=start)
        block = process_block(series.model, series.z)
        last = tf.reduce_max(data.functional.ends(data.x[..., 0]))
        state = StateAt(last, *series.process.signal_moments(block.last_mean, block.last_chol))
        if not all(np.isfinite(a).all() for a in state):
            raise ValueError(NOT_FINITE)
        return state

    def _append(self, stream: ResumedStream, samples: Sample, is_block: bool) -> None:
        """Keeps samples that a stream has taken, makes graphs see them, and drops older ones.

        In a long block the state before the last `kept` samples is noted.
        """
        if self._stream is None:
            self._begin(stream)
        # The places that all series share; a copy, as a user may change a block.
        x = samples.x.reshape(-1)[: samples.x.shape[-2] if is_block else 1].copy()
        stream.recent.append((x, samples))
        stream.since_noted += len(x)
        before = len(x) - self.kept - 1
        if before >= 0 and stream.moments is not None:
            moments = stream.moments
            mean, chol = moments.filtered_means[:, before], moments.filtered_chols[:, before]
            stream.noted = StateAt(tf.constant(x[before]), mean, chol)
            stream.since_noted = self.kept
        stream.moments = None
        if stream.since_noted >= self.kept:
            self.join()
            if stream.noted is not None:
                self._keep(stream.since_noted)
                self.start.write(stream.noted)
                confirm(self._layer)
            stream.noted, stream.since_noted = self._state_at(stream), 0
        elif self._in_graphs:
            self.join()

    def _begin(self, stream: ResumedStream) -> None:
        """Makes a stream with its first samples the stream of the process, which has no data."""
        self._stream = stream
        self._batch = () if stream.streams is None else (stream.streams,)
        places = tf.zeros([1, 0, 1], self._stored.x.dtype)
        rows = (stream.streams or 1) * (self._process.outputs or 1)
        no_z = tf.zeros([rows, 0], self._stored.z.dtype)
        batch = tf.constant(self._batch, tf.int32)
        self._stored.replace(Data(places, no_z, batch, self._stored.no_samples))


def _with_rows(samples: Sample, axes: int) -> Sample:
    """Samples of outputs, with or without a batch axis and an axis of time, as rows `[B P, T]`."""

    def rows(a: np.ndarray) -> np.ndarray:
        return rows_of(a if a.ndim > axes + 1 else np.expand_dims(a, axes))

    z, variance, group = samples.z, samples.noise_variance, samples.group
    return samples._replace(
        z=rows(z),
        noise_variance=None if variance is None else rows(variance),
        group=None if group is None else rows(group),
    )


def _noise_of_block(samples: Sample, count: int) -> SampleNoise:
    """The noise of T samples of each stream, `[V, T]`."""
    noise = SampleNoise(samples.noise_variance, samples.group)
    if np.ndim(samples.z) and samples.z.size > count:
        noise = shared_noise(samples)
    return noise.map(lambda a: np.reshape(a, [-1, count]))


def _data_if(sound: tf.Tensor, data: Data, message: str) -> Data:
    """The data, in a graph that fails with a message unless a scalar bool is true."""
    with tf.control_dependencies([tf.debugging.Assert(sound, [message])]):
        return data._replace(x=tf.identity(data.x))
