"""The data and the most recent samples of a state-space process.

Data of `condition` and `fit` are stored whole. Samples of a stream are appended to them; when there
are many, older ones are dropped, data included, and the state before the remaining samples is kept
instead. So memory does not grow with a stream, forecasts continue from its last state, and the
posterior between the remaining samples is still the one given all samples.

A state belongs to the hyperparameters it was computed with. When they change, the state before the
stored data is cleared (a post-update), and the stream resumes from the stored data and samples (it
compares the weights); dropped samples no longer count.
"""

import warnings
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from cgp.gp.data import Data, StoredData
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.gp.state_space.discretization import StateAt, StoredState
from cgp.gp.state_space.ordered_series import ordered_series
from cgp.gp.state_space.process_stream import ProcessStream
from cgp.gp.stream_samples import CheckedRange
from cgp.statespace.filtering import process_block
from cgp.statespace.online.native_step import NOT_FINITE
from cgp.statespace.online.stream_samples import check_state_factor
from cgp.training import confirm, refresh, register_post_update
from cgp.training.post_updates import snapshot

TOO_EARLY = (
    "x lies before the samples that are still held: step and process keep the latest samples, and "
    "the state before them. To look further back, condition another StateSpaceGP on the samples"
)
NOT_ALL = (
    "the process has followed a stream, and holds its latest samples alone: condition(x, z) on the "
    "data that are meant, or give them as arguments"
)


class History(tf.Module):
    """Data, samples of a stream, and the state after the last of them.

    Args:
        layer: The layer whose weights are the hyperparameters.
        process: Kernel, mean and noise.
        stored: Storage of the data.
    """

    def __init__(self, layer: keras.layers.Layer, process: SignalPlusNoise, stored: StoredData):
        super().__init__()
        self._layer, self._process, self._stored = layer, process, stored
        self.start = StoredState(stored.z.dtype if process.is_proper else stored.x.dtype)
        """The state before the stored data, where older samples have been dropped."""
        self._has_dropped = tf.Variable(False, trainable=False)  # graphs read it too
        self._stream: ProcessStream | None = None
        self._weights = layer.weights
        self._snapshot = b""  # of the weights that the state of the stream belongs to
        self._loaded: tuple[StateAt, np.ndarray] | None = None
        self._streamed = 0  # the number of stored data that are samples of the stream
        self._in_graphs = False
        # The kernel may refuse a place, or disagree with its own state-space form.
        kernel, real = layer.kernel, stored.x.dtype
        self._range = CheckedRange(lambda x: kernel.check_points(tf.constant(x, real)))
        register_post_update(layer, self._weights, self.start.clear, state_is_weights=False)

    # --- stored data -----------------------------------------------------------------------------

    @property
    def data(self) -> Data:
        """The stored data and samples."""
        self.join()
        return self._stored.data

    def check_whole(self) -> None:
        """Raises a `ValueError` if samples have been dropped."""
        if bool(self._has_dropped):
            raise ValueError(NOT_ALL)

    def whole_data(self) -> Data:
        """The data and samples that a graph reads when it runs.

        Raises:
            tf.errors.InvalidArgumentError: Some have been dropped.
        """
        return _data_if(~self._has_dropped, self._data_of_graph(), NOT_ALL)

    def data_for(self, x: tf.Tensor) -> Data:
        """The data and samples that a graph reads when it runs, for predictions at x given `start`.

        Raises:
            tf.errors.InvalidArgumentError: Places before the samples that are still held.
        """
        data = self._data_of_graph()
        return _data_if(~self._has_dropped | self._is_late(data, x), data, TOO_EARLY)

    def _data_of_graph(self) -> Data:
        self._in_graphs = True
        with tf.init_scope():
            self.join()
            self.start_now()
        refresh(self._layer)
        return self._stored.data_of_graph()

    def _is_late(self, data: Data, x: tf.Tensor) -> tf.Tensor:
        """Whether all places x lie after the first one known, scalar bool."""
        return tf.reduce_all(x >= self._first(data))

    def _first(self, data: Data) -> tf.Tensor:
        """The first place known: that of the state before the data, or of the first sample."""
        return tf.where(self.start.is_empty, tf.reduce_min(data.x), self.start.x)

    def join(self) -> None:
        """Appends the recent samples of the stream to the data, in the variables."""
        if self._stream is not None and self._stream.recent:
            self._streamed += len(self._stream.recent)
            self._stored.replace(self._stream.joined(self._stored.data))

    def _keep(self, count: int) -> None:
        """Drops all but the last samples, and the data with them."""
        data, self._streamed = self.data, count
        self._stored.replace(data.between(-count, None))
        self._has_dropped.assign(True)

    def hold(self, data: Data) -> None:
        """Stores data in place of all data and samples."""
        self._stored.replace(data)
        self.start.clear()
        self._has_dropped.assign(False)
        self._stream, self._streamed, self._loaded = None, 0, None

    def start_now(self) -> StateAt | None:
        """The state before the stored data at the present hyperparameters; None for the prior."""
        if self._loaded is not None:  # now that all weights have been loaded
            start, weights = self._loaded
            self._loaded = None
            if np.array_equal(weights, self._weight_vector()):
                self.start.write(start)
                confirm(self._layer)
        refresh(self._layer)
        return None if bool(self.start.is_empty) else self.start.read()

    def saved(self) -> dict[str, np.ndarray]:
        """The state before the stored data as real arrays to `load`; empty if none were dropped."""
        self.join()
        start = self.start_now()
        if not bool(self._has_dropped):
            return {}
        arrays = {"dropped": np.ones(1)}
        if start is not None:
            arrays["start_x"], arrays["start_values"] = start.x.numpy()[None], self._weight_vector()
            for name, tensor in zip(("start_mean", "start_chol"), start[1:], strict=True):
                a = tensor.numpy()
                arrays[name] = np.stack([a.real, a.imag] if np.iscomplexobj(a) else [a], axis=-1)
        return arrays

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restores the state of `saved` arrays, once the weights have been loaded too."""
        self._has_dropped.assign("dropped" in arrays)
        if "start_x" in arrays:
            mean, chol = (
                a[..., 0] + 1j * a[..., 1] if a.shape[-1] == 2 else a[..., 0]
                for a in (arrays["start_mean"], arrays["start_chol"])
            )
            series, n = self._stored.data.z.shape[0], mean.shape[-1]
            sound = mean.shape == (series, n) and chol.shape == (series, n, n)
            if not sound or not all(np.isfinite(a).all() for a in (mean, chol)):
                raise ValueError(
                    "the file is damaged: the state before the samples held must be finite, "
                    f"[{series}, n] and [{series}, n, n], got shapes {mean.shape}, {chol.shape}"
                )
            check_state_factor(chol, "the saved factor of the state before the samples held")
            start = StateAt(*map(tf.constant, (arrays["start_x"][0], mean, chol)))
            self._loaded = (start, arrays["start_values"])

    def held_for(self, x: tf.Tensor) -> tuple[Data, StateAt | None]:
        """The data that predictions at x need, and the state before them; None for the prior.

        Raises:
            ValueError: Places before the samples that are still held.
        """
        stream = self.stream()
        if stream is not None and tf.size(x) > 0 and bool(tf.reduce_all(x >= stream.x)):
            # A forecast.
            data = self._stored.data.between(0, 0)
            return data._replace(x=data.x[:1]), stream.present()
        data, start = self.data, self.start_now()
        # Without the dropped samples little is known of earlier places.
        if bool(self._has_dropped) and not bool(self._is_late(data, x)):
            got, first = float(tf.reduce_min(x)), float(self._first(data))
            raise ValueError(f"{TOO_EARLY} (got x = {got:g}, held from {first:g})")
        return data, start

    # --- the stream ------------------------------------------------------------------------------

    def check_samples(self, x: np.ndarray, batch: tuple[int, ...]) -> None:
        """Raises for samples at places `[T]` that do not fit the data or the kernel."""
        self._range.admit(x[None, :, None])
        if self._stream is not None:
            expected = self._stream.batch
        elif self._has_series():
            self._check_shared_places()
            expected = tuple(self._stored.batch.numpy().tolist())
        else:
            return
        if batch != expected:
            raise ValueError(
                f"z must have the batch axes of the data, {list(expected)}, got {list(batch)}"
            )

    def _has_series(self) -> bool:
        return len(self._stored.data.z) > 0

    def _check_shared_places(self) -> None:
        if self._stored.data.x.shape[0] > 1:
            raise ValueError("the series of the data have places of their own: make a GP each")

    def stream(self) -> ProcessStream | None:
        """The stream with its state at the present hyperparameters; None before any sample."""
        if self._stream is None or self._snapshot == snapshot(self._weights):
            return self._stream
        return self._resumed()

    def stream_at(self, x: float, batch: tuple[int, ...]) -> ProcessStream:
        """The stream that takes samples from x on; a new one, for `after_samples`, if none has."""
        stream = self._last_stream()
        if stream is None:
            stream = ProcessStream(self._process, batch, self._stored.x.dtype)
            stream.begin_before(x)
        if x < stream.x:
            raise ValueError(f"x must not go back: got {x:g} after {stream.x:g}")
        return stream

    def last_state(self) -> StateAt | None:
        """The state after the last sample; None before any."""
        stream = self._last_stream()
        return None if stream is None else stream.present()

    def _last_stream(self) -> ProcessStream | None:
        """The stream, or a new one that continues from the data; None before any data."""
        stream = self.stream()
        if stream is None and self._has_series():
            self._check_shared_places()
            stream = self._resumed()
        return stream

    def _weight_vector(self) -> np.ndarray:
        """The values of all weights, on which a state depends, as one vector."""
        return np.concatenate([np.zeros(1), *(np.ravel(w.numpy()) for w in self._weights)])

    def _resumed(self) -> ProcessStream:
        """The stream, continuing from the stored data."""
        start = self.start_now()
        of_weights, stream = snapshot(self._weights), self._stream
        self.join()
        if self._streamed > 4 * ProcessStream.kept:
            # The hyperparameters change too often for a state to be noted.
            self._keep(ProcessStream.kept)
        data = self.data
        if start is None and bool(self._has_dropped):
            warnings.warn(
                "the hyperparameters of a StateSpaceGP have changed after samples of its stream "
                f"were dropped: it is now the process of the {data.z.shape[1]} samples still held, "
                "and what came before them does not count any more",
                stacklevel=2,
            )
        if stream is None:
            batch = tuple(data.batch.numpy().tolist())
            stream = ProcessStream(self._process, batch, data.x.dtype)
        series = ordered_series(self._process, data, start=start)
        block = process_block(series.model, series.z)
        state = StateAt(tf.reduce_max(data.x), block.last_mean, block.last_chol)
        if not all(np.isfinite(a).all() for a in state):
            raise ValueError(NOT_FINITE)
        stream.begin(state)
        self._stream, self._snapshot = stream, of_weights
        return stream

    def after_samples(self, stream: ProcessStream) -> None:
        """Registers a new stream, drops old samples, and shows new ones to traced graphs."""
        if self._stream is None:
            places = tf.zeros([1, 0, 1], self._stored.x.dtype)
            nothing = tf.zeros([stream.streams, 0], self._stored.z.dtype)
            batch = tf.constant(stream.batch, tf.int32)
            self._stored.replace(Data(places, nothing, batch, self._stored.no_samples))
            self._stream, self._snapshot = stream, snapshot(self._weights)
        if stream.since >= stream.kept:
            self.join()
            if stream.noted is not None:
                self._keep(stream.since)
                self.start.write(stream.noted)
                confirm(self._layer)
            stream.note()
        elif self._in_graphs:
            self.join()


def _data_if(sound: tf.Tensor, data: Data, message: str) -> Data:
    """The data, in a graph that fails with a message unless a scalar bool is true."""
    with tf.control_dependencies([tf.debugging.Assert(sound, [message])]):
        return data._replace(x=tf.identity(data.x))
