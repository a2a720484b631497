"""The streams of an online Kalman filter, whose state is stored in weights of a layer."""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions.marginals import Marginals, Step, innovation
from cgp.statespace.filter_step import BatchLastMarginals, State
from cgp.statespace.filtering import process_block
from cgp.statespace.forecasting import ahead
from cgp.statespace.linear_gaussian import LinearGaussian, with_time
from cgp.statespace.online_filter import OnlineFilter
from cgp.statespace.online_step import NOT_FINITE, advance
from cgp.statespace.series import Series


class KalmanStream:
    """B streams filtered online by a Kalman filter, or one without a batch axis.

    Streams that have not begun have a state of NaN in the weights, in files too. It stands for the
    initial state of the model, by the matrices that this has when the first observation comes.

    Args:
        layer: The layer to which the weights of the state are added.
        present: Returns the model of the present matrices.
        streams: B, or None for one stream without a batch axis.
        jit: Whether the step may be compiled by XLA.

    Raises:
        ValueError: A model that varies over time, or a batch of models of another size.
    """

    def __init__(
        self,
        layer: keras.layers.Layer,
        present: Callable[[], LinearGaussian],
        streams: int | None,
        jit: bool,
    ):
        self.streams, self._present = streams, present
        model, count = present(), streams or 1
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
        signature = [tf.TensorSpec([count, model.observation_size], model.series_dtype)]
        if model.B is not None:
            size = model.B.shape[-1] // model.form.multiplicity
            signature.append(tf.TensorSpec([count, size], model.series_dtype))

        def add_variable(name: str, shape: tuple[int, ...]) -> keras.Variable:
            return layer.add_weight(
                shape=shape,
                initializer="zeros",
                dtype=model.dtype.real_dtype.name,
                trainable=False,
                autocast=False,
                name=name,
            )

        self._filter = OnlineFilter(
            add_variable, self._advance, model.F.shape[-1], count, model.dtype, signature, jit
        )
        self.reset()

    def _advance(
        self, state: State, z: tf.Tensor, *inputs: tf.Tensor
    ) -> tuple[State, BatchLastMarginals, BatchLastMarginals]:
        model = self._present()
        # A series of one step.
        series = Series(model, z[:, None], inputs=inputs[0][:, None] if inputs else None)
        H, R = (series.last(with_time(a), 3)[0] for a in (model.H, model.R))
        return advance(model.form, series.system(), H, R, state, None)

    def check_number(self, streams: int | None, name: str) -> None:
        """Raises a ValueError for something of another number of streams."""
        if streams == self.streams:
            return
        wanted, came = (
            "no batch axis" if count is None else f"a batch axis of {count}"
            for count in (self.streams, streams)
        )
        raise ValueError(f"{name} must have {wanted}, as its first data had, but has {came}")

    # --- the state -------------------------------------------------------------------------------

    def has_begun(self) -> bool:
        """Whether there is a state, of an observation or set; otherwise it is the initial one."""
        return not np.isnan(self._filter.variables[0]).any()

    def state(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and factor predicted for the next observation, working values."""
        mean, chol = self._filter.state() if self.has_begun() else self._initial()
        return (mean[0], chol[0]) if self.streams is None else (mean, chol)

    def set_state(self, mean: tf.Tensor, chol: tf.Tensor) -> None:
        """Sets the state, in the form of `state`, or without the batch axis for all streams."""
        self._filter.set_state(mean, chol)

    def reset(self) -> None:
        """Makes the streams begin again with the next observation."""
        for variable in self._filter.variables:
            variable.assign(tf.fill(variable.shape, tf.constant(np.nan, variable.dtype)))

    def check(self, mean: np.ndarray, chol: np.ndarray) -> None:
        """Raises a ValueError for values of the weights that are no state, begun or not."""
        for finite, nan in ((np.isfinite(a), np.isnan(a)) for a in (mean, chol)):
            if not (finite.all() or nan.all()) or finite.all() != np.isfinite(mean).all():
                raise ValueError(
                    "the state of the streams must be finite, or all of it NaN where they have not "
                    "begun: the file is damaged"
                )

    def _initial(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The initial state by the present matrices, `[B, n]` and `[B, n, n]`."""
        model, count = self._present(), self.streams or 1
        mean, chol = model.initial_mean, model.initial_chol
        mean = tf.reshape(mean, [-1, *mean.shape[-1:]])
        chol = tf.reshape(chol, [-1, *chol.shape[-2:]])
        return (
            tf.broadcast_to(mean, [count, *mean.shape[1:]]),
            tf.broadcast_to(chol, [count, *chol.shape[1:]]),
        )

    # --- observations ----------------------------------------------------------------------------

    def step(self, z: np.ndarray, inputs: np.ndarray | None) -> Step:
        """Filters one observation of each stream, `[M]` or `[B, M]`; NaN where missing."""
        arguments = [z] if inputs is None else [z, inputs]
        if self.streams is None:
            arguments = [a[None] for a in arguments]
        predicted, filtered = self._step(arguments)
        if self.streams is None:
            predicted, filtered = (Marginals(*(a[0] for a in m)) for m in (predicted, filtered))
        return Step(predicted, innovation(z, predicted.mean), filtered)

    def _step(self, arguments: list[np.ndarray]) -> tuple[Marginals, Marginals]:
        try:
            return self._filter.step(*arguments)
        except ValueError:  # asked only now: at each step it would take a tenth of the time
            if self.has_begun():
                raise
        self._filter.set_state(*self._initial())
        try:
            return self._filter.step(*arguments)
        except Exception:
            self.reset()
            raise

    def process(self, z: np.ndarray, inputs: np.ndarray | None) -> Step:
        """Filters a block, `[T, M]` or `[B, T, M]`; NaN where missing."""
        model = self._present().starting_from(*self.state())
        block = process_block(model, z, inputs)
        last = None if block.inputs is None else block.inputs[..., -1, :]
        following = ahead(model, block.last_mean, block.last_chol, last)
        if not all(np.isfinite(a).all() for a in following):
            raise ValueError(NOT_FINITE)
        self.set_state(*following)
        return Step(block.predicted, innovation(z, block.predicted.mean), block.states)


def streams_of(mean: tf.Tensor, chol: tf.Tensor) -> int | None:
    """The number of streams that a state is of, `[..., n]` and `[..., n, n]`; None for no axis.

    Raises:
        ValueError: More than one batch axis, or axes that differ.
    """
    axes = {mean.shape.rank - 1, chol.shape.rank - 2}
    if not axes <= {0, 1}:
        raise ValueError(
            f"a state has at most one batch axis, got shapes {mean.shape} and {chol.shape}"
        )
    sizes = {a.shape[0] for a, own in ((mean, 1), (chol, 2)) if a.shape.rank > own}
    if len(sizes) > 1:
        raise ValueError(
            f"mean and chol must have one batch axis, got shapes {mean.shape} and {chol.shape}"
        )
    return sizes.pop() if sizes else None
