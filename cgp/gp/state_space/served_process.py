"""A process over a line as a SavedModel."""

from typing import NamedTuple

import tensorflow as tf

from cgp.distributions.marginals import Marginals, Step
from cgp.gp.base import as_dict
from cgp.gp.data import Data
from cgp.gp.posterior import prior
from cgp.gp.served import HeldData, points
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.gp.state_space import process_stream
from cgp.gp.state_space.discretization import DiscretizedProcess, StateAt
from cgp.gp.state_space.history import History
from cgp.gp.state_space.predictions import smoothed
from cgp.linalg.arguments import is_nan, nan
from cgp.statespace.engines.filter_step import BatchLastMarginals, State, with_pseudo_variance
from cgp.training.serving import Online, Outputs, Served, step_outputs


class _Held(NamedTuple):
    """What a SavedModel keeps."""

    data: tuple
    """The data at the time of the export."""
    present: StateAt
    """The state after the last sample."""
    has_begun: tf.Tensor
    """Whether there is a sample, bool."""
    has_gone_on: tf.Tensor
    """Whether there are samples since the export, bool."""


def served(process: SignalPlusNoise, history: History, data: Data, takes_samples: bool) -> Served:
    """The functions of a process: `predict` given its data, and `step`.

    After a step `predict` forecasts from the last sample; places before it are refused.

    Args:
        process: The process.
        history: What it holds.
        data: The data in it, as normal ones.
        takes_samples: Whether there is a step; not where samples have groups or another likelihood.
    """
    start, held = history.start_now(), HeldData(data)
    takes_samples = takes_samples and data.x.shape[0] in (0, 1)  # places that series share
    last = history.last_state() if takes_samples else None
    is_empty, is_single = tf.size(data.z) == 0 and start is None, data.is_single
    streams = 1 if is_empty else data.z.shape[0]
    nothing = Data(
        tf.zeros([1, 0, 1], data.x.dtype), tf.zeros([streams, 0], data.z.dtype), data.batch
    )

    def predict(state: _Held, x: tf.Tensor) -> Outputs:
        def given_data() -> Outputs:
            if is_empty:
                return as_dict(prior(process, x, None))
            return as_dict(smoothed(process, held.of(state.data), x[None], None, start))

        def forecast() -> Outputs:
            late = tf.reduce_all(x >= state.present.x)
            message = "x lies before the last sample: an exported process forecasts after a step"
            with tf.control_dependencies([tf.debugging.Assert(late, [message])]):
                return as_dict(
                    smoothed(process, nothing, tf.identity(x)[None], None, state.present)
                )

        return tf.cond(state.has_gone_on, forecast, given_data)

    def before(state: _Held, x: tf.Tensor) -> StateAt:
        """The state from which a sample at x is predicted: the prior there if it is the first."""
        _, chol = DiscretizedProcess(process).initial(x)
        first = StateAt(x, tf.zeros_like(chol[0]), chol)
        return StateAt(
            *(tf.where(state.has_begun, a, b) for a, b in zip(state.present, first, strict=True))
        )

    def advance(state: _Held, x: tf.Tensor, z: tf.Tensor) -> tuple[_Held, Outputs]:
        last = before(state, x)
        moments = State(*(tf.experimental.numpy.moveaxis(a, 0, -1) for a in last[1:]))
        z, no_known_noise = tf.reshape(z, [streams]), tf.zeros([streams], x.dtype)
        following, *found = process_stream.advance(process, moments, last.x, x, z, no_known_noise)
        after = (tf.experimental.numpy.moveaxis(a, -1, 0) for a in following)
        yes = tf.constant(True)
        predicted, filtered = (_of_streams(moments, is_single) for moments in found)
        z = z[0] if is_single else z
        deviation = tf.where(is_nan(z), nan(z.dtype), z - predicted.mean)
        step = Step(predicted, deviation, filtered)
        return _Held(state.data, StateAt(x, *after), yes, yes), step_outputs(step)

    def check(state: _Held, x: tf.Tensor, z: tf.Tensor) -> list[tf.Operation]:
        is_later = tf.logical_not(state.has_begun) | (x >= state.present.x)
        return [tf.debugging.Assert(is_later, ["x must not go back: got", x])]

    present = last
    if present is None:
        _, chol = DiscretizedProcess(process).initial(tf.zeros([], data.x.dtype))
        chol = tf.broadcast_to(chol, [streams, *chol.shape[-2:]])
        present = StateAt(tf.zeros([], data.x.dtype), tf.zeros_like(chol[..., 0]), chol)
    state = _Held(tuple(held.arrays), present, tf.constant(last is not None), tf.constant(False))
    axes = [] if is_single else [streams]
    of_step = [tf.TensorSpec([], data.x.dtype, "x"), tf.TensorSpec(axes, data.z.dtype, "z")]
    online = Online(advance, of_step, check) if takes_samples else None
    return Served(state, predict, [points(1, data.x.dtype)], online)


def _of_streams(moments: BatchLastMarginals, is_single: bool) -> Marginals:
    """The moments of the one component of each stream."""
    own = (0, 0) if is_single else (0, slice(None))
    return with_pseudo_variance(*(None if a is None else a[own] for a in moments))
