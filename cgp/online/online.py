"""Estimators that run online: a mixin for layers, and a layer of any cell."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions.marginals import Step
from cgp.likelihoods import Likelihood
from cgp.linalg.arguments import ArrayLike
from cgp.online.cell import Cell, Outputs, Piece, Sample
from cgp.online.checks import check_state_type, initial_state_of, series_of
from cgp.online.gate import gated_step
from cgp.online.saved_model import served_step
from cgp.online.stream import Stream
from cgp.training import Model
from cgp.training.batches import require_one_replica, where_watched
from cgp.training.keras_private import track_variables
from cgp.training.saving import Served, numbered


class RunsOnline:
    """A mixin before a `cgp.Model` that has a `cell`: its streams, made by the first data."""

    cell: Cell
    stream: Stream | None = None
    """The state of the streams; None before the first data."""
    horizon = 0
    """How many steps before the latest one are kept, for samples that arrive late."""

    def _make_stream(self, streams: int | None) -> Stream:
        """Makes the streams, or checks their number if there are streams already."""
        if self.stream is not None:
            self.stream.check_number(streams, "the state")
            return self.stream
        return self._first_stream(self.cell, streams)

    def _first_stream(
        self, cell: Cell, streams: int | None, sample: Sample | None = None
    ) -> Stream:
        """Makes the streams, unless the first sample does not fit them."""
        require_one_replica(self, f"a {type(self).__name__} that runs online")
        cell.check_streams(streams)
        if sample is not None and type(cell).check_against is not Cell.check_against:
            blank = cell.as_stored(cell.blank_state(streams or 1))
            cell.check_against([np.asarray(a) for a in blank], sample)
        self.cell, self.stream = cell, Stream(cell, streams, self, self.horizon)
        return self.stream

    @classmethod
    def _with_streams(cls, arguments: dict[str, Any], streams: list[int | None] | None) -> Self:
        """A layer of constructor arguments, with as many streams as its config says."""
        layer = cls(**arguments)
        if streams is not None:
            layer._make_stream(streams[0])
        return layer

    def _stream_of(self, sample: Sample, streams: int | None, along: int) -> Stream:
        """The stream that takes a checked sample or block; the first ones make it."""
        if self.stream is not None:
            self.stream.check_number(streams, "z")
            return self.stream
        self.cell.check_first(sample, along)
        return self._first_stream(self.cell.sized_for(sample), streams, sample)

    def _take_sample(
        self,
        sample: Sample,
        missing: ArrayLike | None,
        likelihood: Likelihood | None = None,
        matrices: Mapping[str, ArrayLike | None] | None = None,
        gate: float | None = None,
    ) -> Step:
        """Takes a sample of a user.

        Args:
            sample: The sample.
            missing: Bool, broadcast against z.
            likelihood: The likelihood of this sample, or None.
            matrices: Matrices for this step, as `Cell.with_matrices` takes them.
            gate: The probability of a gate, outside of which an observation is skipped.
        """
        sample, streams = self.cell.check(sample, missing)
        if matrices:
            sample = self.cell.with_matrices(sample, matrices)
        # There is no time for a context.
        if self.stream is not None and likelihood is None and gate is None:
            self.stream.check_number(streams, "z")
            return self.stream.step(sample)
        with self._undone_on_error():
            stream = self._stream_of(sample, streams, 0)
            take = functools.partial(self._take_likely, stream, likelihood)
            if gate is None:
                return take(sample)
            with stream.mutex:  # from the look at the prediction until the sample is taken
                return gated_step(sample, gate, stream.forecast_of, take)

    def _take_likely(self, stream: Stream, likelihood: Likelihood | None, sample: Sample) -> Step:
        """Takes a sample that has a likelihood of its own, or None."""
        if likelihood is None:
            return stream.step(sample)
        before = stream.current_state(sample)
        return self.cell.robust_step(before, sample, likelihood, stream.step)

    def _take_block(
        self,
        samples: Sample,
        missing: ArrayLike | None,
        verbose: int | str = 0,
        matrices: Mapping[str, ArrayLike | None] | None = None,
    ) -> Step:
        samples, streams = self.cell.check(samples, missing, along=1)
        if matrices:
            samples = self.cell.with_matrices(samples, matrices)
        with self._undone_on_error():
            stream = self._stream_of(samples, streams, 1)
            return stream.process(samples, where_watched(verbose))

    def _undone_on_error(self) -> contextlib.AbstractContextManager[None]:
        """A context in which a stream is dropped again if its first sample is refused."""
        return contextlib.nullcontext() if self.stream is not None else self._without_stream()

    @contextlib.contextmanager
    def _without_stream(self) -> Iterator[None]:
        cell = self.cell
        try:
            yield
        except BaseException:
            if self.stream is not None and self.stream.is_new:
                self.stream.detach()
                self.cell, self.stream = cell, None
            raise

    @property
    def state(self) -> Any:
        """The present state as a named tuple of NumPy arrays, without batch axis of one stream."""
        if self.stream is None:
            state = self.cell.initial_state(1)
            state = type(state)(*(a[0] for a in state))
        else:
            state = self.stream.state()
        return self.cell.shown(tf.nest.map_structure(np.asarray, state))

    def _set_state(self, state: Any) -> None:
        state, streams = self.cell.checked_state(state)
        cell = self.cell if self.stream else self.cell.sized_for_state(state._asdict())
        state = tf.nest.map_structure(
            lambda a, like: np.broadcast_to(a, (streams or 1, *like.shape[1:])),
            state,
            cell.blank_state(1),
        )
        state = cell.completed(state)
        self.cell = cell
        self._make_stream(streams).set(state)

    def reset(self) -> None:
        """Makes all streams begin again, from the initial state, with the next sample."""
        self.cell.forget_samples()
        if self.stream is not None:
            self.stream.reset()

    def _load_state(
        self, store: Mapping[str, Any], load: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """Loads the weights of the layer, by Keras's function; errors leave the state unchanged."""
        if self.stream is None:
            load(store)
            return
        with self.stream.restored_on_error():
            load(store)
            self.stream.check_loaded()

    def _served_with(
        self,
        predict: Callable[..., Outputs],
        arguments: Sequence[tf.TensorSpec],
        cell: Cell | None = None,
    ) -> Served:
        """The functions of the estimator as a SavedModel, whose steps go on from its state.

        Args:
            predict: Function of the state and of its arguments.
            arguments: Specifications of its arguments.
            cell: The cell, where data have not shown its sizes yet.
        """
        cell = cell or self.cell
        stream = self.stream or Stream(cell, None)
        return Served(stream.current_state(), predict, arguments, served_step(cell, stream.streams))


@keras.saving.register_keras_serializable(package="cgp")
class Online(RunsOnline, Model):
    """A cell as a layer, and as a filter that runs in a script.

    Its state is in the weights between samples, and saved with them. Called on series, which leave
    that state alone, it returns the moments of each time, and `export` writes its step.

    Args:
        cell: A `cgp.online.Cell`. To be saved it derives from a class that is registered with
            `keras.saving.register_keras_serializable` and has a `get_config`.
        name: A name.

    Raises:
        TypeError: Not a cell, or one without a `State`.

    Example:
        >>> import cgp
        >>> model = cgp.statespace.LinearGaussian([[0.9]], [[0.1]], [[1.0]], [[0.5]])
        >>> layer = cgp.online.Online(cgp.KalmanFilter(model).cell)
        >>> layer.step([1.0]).filtered.mean.shape, layer.state.mean.shape
        ((1,), (1,))
    """

    def __init__(self, cell: Cell, name: str | None = None, **kwargs: Any):
        if not isinstance(cell, Cell):
            raise TypeError(f"cell must be a cgp.online.Cell, got {type(cell).__name__}")
        check_state_type(cell)
        real = cell.sample_spec().z.dtype.real_dtype.name
        super().__init__(name=name, dtype=real, autocast=False, **kwargs)
        require_one_replica(self, "an Online layer")
        self.cell = cell.for_streams()
        track_variables(self, cell.variables)
        self.built = True

    def step(
        self,
        z: ArrayLike,
        x: ArrayLike | None = None,
        missing: ArrayLike | None = None,
        inputs: ArrayLike | None = None,
    ) -> Step:
        """Predicts a sample of each stream, then updates the state with it.

        Args:
            z: The observation, `[...]` as the cell has it, or `[B, ...]` of B streams; NaN where
                missing. The first call decides.
            x: Its place, `[D]` or `[B, D]`, for a cell that has places.
            missing: Bool, broadcast against z: True where missing.
            inputs: Known inputs, `[k]` or `[B, k]`, for a cell that has them.

        Returns:
            A `Step` of NumPy arrays.

        Raises:
            TypeError, ValueError: A sample that the cell does not take; a state that would not be
                finite. The state is then unchanged.
        """
        return self._take_sample(Sample(z, x, inputs), missing)

    def process(
        self,
        z: ArrayLike,
        x: ArrayLike | None = None,
        missing: ArrayLike | None = None,
        inputs: ArrayLike | None = None,
        verbose: int | str = "auto",
    ) -> Step:
        """Takes a block of samples: `step` for each, in a compiled loop.

        Args:
            z: Observations, `[T, ...]`, or `[B, T, ...]`.
            x: Their places, `[T, D]` or `[B, T, D]`.
            missing: Bool, broadcast against z.
            inputs: Known inputs, `[T, k]` or `[B, T, k]`.
            verbose: 0 is silent, 1 or 2 a bar, "auto" one if it takes long where it is watched.

        Returns:
            As `step`, stacked over time; errors as for `step`.
        """
        return self._take_block(Sample(z, x, inputs), missing, verbose)

    def set_state(self, state: Any) -> None:
        """Sets the state of the streams, in the form of `state`."""
        self._set_state(state)

    def forecast(self, ahead: Any, inputs: ArrayLike | None = None) -> Any:
        """Forecasts from the present state, which stays as it is.

        Args:
            ahead: The number of steps, or places x, as `Cell.forecast` of the cell takes them.
            inputs: Known inputs of these steps, `[B, M, k]`, for a cell that has them.

        Returns:
            A named tuple of moments, with the batch axis of the streams, if they have one.

        Raises:
            TypeError: A cell that has no forecast.
        """
        stream = self.stream
        state = self.cell.initial_state(1) if stream is None else stream.current_state()
        moments = self.cell.forecast(tf.nest.map_structure(np.asarray, state), ahead, inputs)
        if stream is not None and stream.streams is not None:
            return moments
        return tf.nest.map_structure(lambda a: None if a is None else a[0], moments)

    def call(self, series: Any) -> Outputs:
        """The moments of each time of series `[B, T, ...]`, from the initial state on.

        Adds the loss of the series, for a cell that has one.

        Args:
            series: z, or a tuple (x, z, inputs) of the fields that a sample of the cell has.

        Raises:
            TypeError, ValueError: Series of other fields, axes or dtypes.
        """
        piece = self._followed(series)
        if piece.loss is not None:
            self.add_loss(piece.loss)
        return piece.outputs

    def _followed(self, series: Any) -> Piece:
        samples = series_of(self.cell, series).map(tf.convert_to_tensor)
        cell = self.cell.sized_for(samples)
        return cell.follow(initial_state_of(cell, samples), samples)

    def _served(self) -> Served:
        spec = self.cell.sample_spec()
        names = [name for name in ("x", "z", "inputs") if getattr(spec, name) is not None]
        axes: list[int | None] = [None, None]
        if self.stream is not None and not self.cell.takes_any_batch:
            axes[0] = self.stream.streams or 1
        arguments = [
            tf.TensorSpec([*axes, *a.shape], a.dtype, name)
            for name, a in ((name, getattr(spec, name)) for name in names)
        ]

        def predict(_: Any, *series: tf.Tensor) -> Outputs:
            # Not `call`, whose loss the layer would keep, a tensor of this graph.
            return self._followed(series if len(series) > 1 else series[0]).outputs

        return self._served_with(predict, arguments)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, and the number of streams."""
        return {
            "cell": keras.saving.serialize_keras_object(self.cell),
            "streams": None if self.stream is None else [self.stream.streams],
            "name": self.name,
            "trainable": self.trainable,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict | None = None) -> Self:
        """Makes the layer of a config."""
        config = dict(config)
        streams = config.pop("streams", None)
        config["cell"] = keras.saving.deserialize_keras_object(config["cell"], custom_objects)
        return cls._with_streams(config, streams)

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Reads the state of the streams.

        Raises:
            ValueError: A state that this layer could not have saved.
        """
        self._load_state(numbered(store), super().load_own_variables)
