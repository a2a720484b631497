"""The data and the most recent samples of a state-space process.

Data of `condition` and `fit` are stored whole. Samples of a stream are appended to them; when there
are many, older ones are dropped, data included, and the state before the remaining samples is kept
instead. So memory does not grow with a stream, forecasts continue from its last state, and the
posterior between the remaining samples is still the one given all samples.

A state belongs to the hyperparameters it was computed with. When they change, it is computed again
from the data and samples held; those dropped before no longer count.
"""

from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from cgp.gp.data import Data, StoredData
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.gp.state_space.discretization import TOO_EARLY, StateAt, StoredState
from cgp.gp.state_space.ordered_series import ordered_series
from cgp.gp.state_space.process_stream import ProcessStream
from cgp.gp.stream_samples import CheckedRange
from cgp.statespace.filtering import process_block
from cgp.statespace.online_step import NOT_FINITE
from cgp.training import confirm, refresh, register_post_update


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
        """The state before the data held, where older samples have been dropped."""
        self._stream: ProcessStream | None = None
        self._of_values = np.zeros(0)
        self._batch: list[int] = []
        self.has_dropped = False
        """Whether samples of a stream have been dropped."""
        self._loaded: tuple[StateAt, np.ndarray] | None = None
        self._streamed = 0  # of the data held, how many are samples of the stream
        self._in_graphs = False
        # The kernel may refuse a place, or disagree with its own state-space form.
        self._range = CheckedRange(process.kernel.moments_diagonal)
        register_post_update(layer, layer.weights, self.start.clear, state_is_weights=False)

    # --- what is held ----------------------------------------------------------------------------

    @property
    def data(self) -> Data:
        """The data and samples held."""
        self.join()
        return self._stored.data

    def data_of_graph(self) -> Data:
        """The data and samples held, at the time that a graph runs."""
        self._in_graphs = True
        with tf.init_scope():
            self.join()
            self.start_now()
        refresh(self._layer)
        return self._stored.data_of_graph()

    def join(self) -> None:
        """Appends the recent samples of the stream to the data, in the variables."""
        if self._stream is not None and self._stream.recent:
            self._streamed += len(self._stream.recent)
            self._stored.replace(self._stream.joined(self._stored.data))

    def _keep(self, count: int) -> None:
        """Drops all but the last samples, and the data with them."""
        data, self._streamed, self.has_dropped = self.data, count, True
        self._stored.replace(data._replace(x=data.x[:, -count:], z=data.z[:, -count:]))

    def hold(self, data: Data) -> None:
        """Replaces all data and samples by other data."""
        self._stored.replace(data)
        self.start.clear()
        self._stream, self._streamed = None, 0
        self.has_dropped, self._loaded = False, None

    def start_now(self) -> StateAt | None:
        """The state before the data held, at the present hyperparameters; None for the prior."""
        if self._loaded is not None:  # now that all weights have been loaded
            start, values = self._loaded
            self._loaded = None
            if np.array_equal(values, self._values()):
                self.start.write(start)
                confirm(self._layer)
        refresh(self._layer)
        return None if bool(self.start.is_empty) else self.start.read()

    def saved(self) -> dict[str, np.ndarray]:
        """The state before the data held, as arrays of real numbers to `load`; empty for none."""
        self.join()
        start = self.start_now()
        if not self.has_dropped:
            return {}
        found = {"dropped": np.ones(1)}
        if start is not None:
            found["start_x"], found["start_values"] = start.x.numpy()[None], self._values()
            for name, value in zip(("start_mean", "start_chol"), start[1:], strict=True):
                a = value.numpy()
                found[name] = np.stack([a.real, a.imag] if np.iscomplexobj(a) else [a], axis=-1)
        return found

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Goes on from `saved` arrays; weights may be loaded later."""
        self.has_dropped = "dropped" in arrays
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
            start = StateAt(*map(tf.constant, (arrays["start_x"][0], mean, chol)))
            self._loaded = (start, arrays["start_values"])

    def held_for(self, x: tf.Tensor) -> tuple[Data, StateAt | None]:
        """The data that predictions at x need, and the state before them; None for the prior.

        Raises:
            ValueError: Places before the samples that are still held.
        """
        stream = self.stream()
        if stream is not None and bool(tf.reduce_all(x >= stream.x)):  # a forecast
            data = self._stored.data
            return data._replace(x=data.x[:1, :0], z=data.z[:, :0]), stream.present()
        data, start = self.data, self.start_now()
        if self.has_dropped:
            # Held samples alone say too little of what came before them.
            first = tf.reduce_min(data.x) if start is None else start.x
            if bool(tf.reduce_any(x < first)):
                got = float(tf.reduce_min(x))
                raise ValueError(f"{TOO_EARLY} (got x = {got:g}, held from {float(first):g})")
        return data, start

    # --- the stream ------------------------------------------------------------------------------

    def check_samples(self, x: np.ndarray, batch: list[int]) -> None:
        """Raises for samples at places `[T]` that do not fit the data or the kernel."""
        self._range.admit(x[None, :, None])
        if self._stream is None:
            data = self._stored.data
            self._check_shared_places()
            if tf.size(data.z) == 0:
                self._batch = batch
                places = tf.zeros([1, 0, 1], data.x.dtype)
                nothing = tf.zeros([int(np.prod(batch, dtype=int)), 0], data.z.dtype)
                self._stored.replace(Data(places, nothing, tf.constant(batch, tf.int32)))
            else:
                self._batch = data.batch.numpy().tolist()
        if batch != self._batch:
            raise ValueError(f"z must have the batch axes of the data, {self._batch}, got {batch}")

    def _check_shared_places(self) -> None:
        if self._stored.data.x.shape[0] > 1:
            raise ValueError("the series of the data have places of their own: make a GP each")

    def stream(self) -> ProcessStream | None:
        """The stream, its state at the present hyperparameters; None before any sample."""
        if self._stream is None or np.array_equal(self._of_values, self._values()):
            return self._stream
        return self._resumed()

    def stream_at(self, x: float) -> ProcessStream:
        """The stream, for samples from x on; made for them if they are the first."""
        stream = self.stream() or self._resumed(x)
        if x < stream.x:
            raise ValueError(f"x must not go back: got {x:g} after {stream.x:g}")
        return stream

    def last_state(self) -> StateAt | None:
        """The state after the last sample; None before any."""
        stream = self.stream()
        if stream is None and tf.size(self._stored.z) > 0:
            self._check_shared_places()
            stream = self._resumed()
        return None if stream is None else stream.present()

    def _values(self) -> np.ndarray:
        """The values of all weights, on which a state depends."""
        return np.concatenate([np.zeros(1), *(np.ravel(w.numpy()) for w in self._layer.weights)])

    def _resumed(self, x: float | None = None) -> ProcessStream:
        """A stream that continues from the data held, or without any from the prior at x."""
        start = self.start_now()
        values, stream = self._values(), self._stream
        self.join()
        if self._streamed > 4 * ProcessStream.kept:
            # The hyperparameters change too often for a state to be noted.
            self._keep(ProcessStream.kept)
        data = self.data
        if stream is None:
            stream = ProcessStream(self._process, data.z.shape[0], data.x.dtype)
        if tf.size(data.z) > 0:
            series = ordered_series(self._process, data, start=start)
            found = process_block(series.model, series.z)
            state = StateAt(tf.reduce_max(data.x), found.last_mean, found.last_chol)
            if not all(np.isfinite(a).all() for a in state):
                raise ValueError(NOT_FINITE)
            stream.begin(state)
        elif x is not None:
            stream.begin_before(float(x))
        self._stream, self._of_values = stream, values
        return stream

    def after_samples(self) -> None:
        """Drops old samples, and makes the new ones visible to traced graphs."""
        stream = self._stream
        assert stream is not None
        if stream.since >= stream.kept:
            self.join()
            if stream.noted is not None:
                self._keep(stream.since)
                self.has_dropped = True
                self.start.write(stream.noted)
                confirm(self._layer)
            stream.note()
        elif self._in_graphs:
            self.join()
