"""The streams of an online Kalman filter, whose state is stored in weights of a layer."""

from typing import cast

import keras
import numpy as np
import tensorflow as tf

from cgp import native
from cgp.distributions.marginals import Marginals, Step, innovation
from cgp.layers.learned_model import LearnedModel
from cgp.likelihoods import Likelihood
from cgp.linalg.arguments import ArrayLike, real_as
from cgp.statespace.engines.decorrelation import leaves_no_exact_observation
from cgp.statespace.engines.filter_step import BatchLastMarginals, State
from cgp.statespace.filtering import process_block
from cgp.statespace.forecasting import ahead
from cgp.statespace.linearization.linearized_model import (
    AnyModel,
    AnyRule,
    AsLinear,
    linearized,
    noise_of,
)
from cgp.statespace.models.linear_gaussian import LinearGaussian, with_time
from cgp.statespace.online.native_step import NOT_FINITE, CompiledStep, step_matrices
from cgp.statespace.online.online_step import advance, of_one_step
from cgp.statespace.online.stream_samples import check_state_factor
from cgp.statespace.online.stream_state import StreamState
from cgp.statespace.online.traced_step import TracedStep
from cgp.statespace.series import Series
from cgp.training.array_memory import check_size
from cgp.training.host_variable import HostVariable
from cgp.training.keras_private import add_variable


class KalmanStream:
    """B streams filtered online by a Kalman filter, or one without a batch axis.

    Streams that have not begun have a state of NaN in the weights, in files too. It stands for the
    initial state of the model, by the matrices that this has when the first observation comes.

    Args:
        layer: The layer to which the weights of the state are added.
        present: The model, and what of it is learned.
        rule: How it is linearised, if it is not linear.
        likelihood: That of its observations; None for normal ones.
        streams: B, or None for one stream without a batch axis.
        jit: Whether XLA may compile the step, where there is no compiled core.

    Raises:
        ValueError: A model that varies over time, or a batch of models of another size.
    """

    def __init__(
        self,
        layer: keras.layers.Layer,
        present: LearnedModel,
        rule: AnyRule | None,
        likelihood: Likelihood | None,
        streams: int | None,
        jit: bool,
    ):
        self.streams, self._present, self._rule, self._jit = streams, present, rule, jit
        self._likelihood = likelihood
        model, count = noise_of(present.model()), streams or 1
        # The core does not tell an exact observation that contradicts the state.
        self._is_for_core = isinstance(present.start, LinearGaussian) and likelihood is None
        self._is_for_core &= leaves_no_exact_observation(model.R)
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

        real = model.dtype.real_dtype.name

        def make_variable(name: str, shape: tuple[int, ...]) -> HostVariable:
            return add_variable(layer, lambda: HostVariable(shape, real, name))

        n, parts = model.F.shape[-1], 2 if model.dtype.is_complex else 1
        numbers = count * parts * (n + n * n)
        check_size(numbers, f"a filter of {count} streams", real, "take fewer streams")
        self._state = StreamState(make_variable, n, count, model.dtype)
        self._by_core: CompiledStep | None = None
        self._snapshot = b""  # of the weights that its matrices belong to
        self._inputs_to_state = np.zeros(0)
        self._traced: TracedStep | None = None
        self.reset()

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
        return not np.isnan(self._state.variables[0].host()).any()

    def state(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and factor predicted for the next observation, working values."""
        mean, chol = self._state.state() if self.has_begun() else self._initial()
        return (mean[0], chol[0]) if self.streams is None else (mean, chol)

    def set_state(self, mean: tf.Tensor, chol: tf.Tensor) -> None:
        """Sets the state, in the form of `state`, or without the batch axis for all streams."""
        self._state.set_state(mean, chol)

    def reset(self) -> None:
        """Makes the streams begin again with the next observation."""
        for variable in self._state.variables:
            variable.assign(tf.fill(variable.shape, tf.constant(np.nan, variable.dtype)))

    def _initial(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The initial state by the present matrices, `[B, n]` and `[B, n, n]`."""
        model, count = noise_of(self._present.model()), self.streams or 1
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
        by_core = native.core().ops and self._is_for_core
        take = self._take_compiled if by_core else self._take_traced
        try:
            predicted, filtered = take(z, inputs)
        except ValueError:  # asked only now: at each step it would take a tenth of the time
            if self.has_begun():
                raise
            self._state.set_state(*self._initial())
            try:
                predicted, filtered = take(z, inputs)
            except Exception:
                self.reset()
                raise
        return Step(predicted, innovation(z, predicted.mean), filtered)

    def _take_compiled(
        self, z: np.ndarray, inputs: np.ndarray | None
    ) -> tuple[Marginals, Marginals]:
        """Updates the state; the moments of the observation before, and of the state after."""
        snapshot = self._present.snapshot()
        if self._by_core is None or snapshot != self._snapshot:
            model = cast("LinearGaussian", self._present.model())  # others are never given here
            is_composite = not model.is_proper
            self._by_core = CompiledStep(step_matrices(model), self.streams, is_composite)
            self._snapshot = snapshot
            if model.B is not None:
                self._inputs_to_state = with_time(model.B).numpy()[..., 0, :, :]
        changes = {}
        if inputs is not None:
            known = self._present.form.split(tf.constant(inputs)).numpy()
            drift = np.reshape(self._inputs_to_state @ known[..., None], (self._state.streams, -1))
            changes["drift"] = np.ascontiguousarray(np.moveaxis(drift, 0, -1))
        return self._state.take(self._by_core, z, changes)

    def _take_traced(self, z: np.ndarray, inputs: np.ndarray | None) -> tuple[Marginals, Marginals]:
        """`_take_compiled` without the compiled core."""
        arguments = [a if self.streams else a[None] for a in (z, inputs) if a is not None]
        if self._traced is None:
            given = [tf.TensorSpec(a.shape, a.dtype) for a in arguments]
            jit = self._jit and getattr(self._present.start, "jit_compile", True)
            self._traced = TracedStep(self._state, self._advance, given, jit)
        found = self._traced(*arguments)
        if self.streams is not None:
            return found
        predicted, filtered = found
        return predicted.map(lambda a: a[0]), filtered.map(lambda a: a[0])

    def _advance(
        self, state: State, z: tf.Tensor, *inputs: tf.Tensor
    ) -> tuple[State, BatchLastMarginals, BatchLastMarginals]:
        # A series of one step.
        z = z[:, None]
        given = inputs[0][:, None] if inputs else None
        start = (tf.experimental.numpy.moveaxis(a, -1, 0) for a in state)
        model = self._present.model().starting_from(*start)
        model, given, correction = self._linearized(model, z, given)
        series = Series(model, z, inputs=given)
        system, _, H, R, d = of_one_step(series)
        forms = (model.form, model.observation_form)
        following, predicted, filtered = advance(*forms, system, H, R, d, state, None)
        if correction is not None:  # NaN where no normal posterior was found
            mean = following.mean + real_as(0.0 * correction[:, 0], following.mean.dtype)
            following = following._replace(mean=mean)
        return following, predicted, filtered

    def _linearized(self, model: AnyModel, z: ArrayLike, inputs: ArrayLike | None) -> AsLinear:
        return linearized(model, z, inputs=inputs, rule=self._rule, likelihood=self._likelihood)

    def process(self, z: np.ndarray, inputs: np.ndarray | None) -> Step:
        """Filters a block, `[T, M]` or `[B, T, M]`; NaN where missing."""
        model = self._present.model().starting_from(*self.state())
        model, known, _ = self._linearized(model, z, inputs)
        block = process_block(model, z, known)
        last = None if block.inputs is None else block.inputs[..., -1, :]
        following = ahead(model, block.last_mean, block.last_chol, last)
        if not all(np.isfinite(a).all() for a in following):
            raise ValueError(NOT_FINITE)
        self.set_state(*following)
        return Step(block.predicted, innovation(z, block.predicted.mean), block.states)


def check_saved(mean: np.ndarray, chol: np.ndarray, is_complex: bool) -> None:
    """Raises a ValueError for values of the weights that are no state, begun or not."""
    for finite, nan in ((np.isfinite(a), np.isnan(a)) for a in (mean, chol)):
        if not (finite.all() or nan.all()) or finite.all() != np.isfinite(mean).all():
            raise ValueError(
                "the state of the streams must be finite, or all of it NaN where they have not "
                "begun: the file is damaged"
            )
    if np.isfinite(mean).all():
        chol = chol[..., 0] + 1j * chol[..., 1] if is_complex else chol
        check_state_factor(np.moveaxis(chol, -1, 0), "the saved factor of the state")


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
