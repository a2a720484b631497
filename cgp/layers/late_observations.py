"""Observations that come late to a Kalman filter, and states of the past given what came since."""

import contextlib

import numpy as np
import tensorflow as tf

from cgp.distributions.marginals import Step
from cgp.layers.kalman_cell import KalmanCell
from cgp.observations import missing_value
from cgp.online.cell import Sample
from cgp.online.past import Past, PastStep
from cgp.online.stream import Stream
from cgp.statespace.linearization.linearized_model import noise_of
from cgp.statespace.models.linear_gaussian import (
    LinearGaussian,
    check_uncorrelated,
    with_time,
)
from cgp.statespace.models.model_base import whole_steps
from cgp.statespace.online.online_step import StateArrays
from cgp.statespace.smoothing import smooth


def check_of_observation(**of_step: object) -> None:
    """Raises a ValueError for arguments of `step` that a late observation does not have."""
    refused = [name for name, argument in of_step.items() if argument is not None]
    if refused:
        raise ValueError(
            f"late_by is for an observation, which may have H and R, not for {', '.join(refused)}: "
            "inputs, F and Q are of the step of its time, and step(nan, late_by=k) predicts what "
            "a gate is to test"
        )


def late_step(cell: KalmanCell, stream: Stream | None, sample: Sample, steps_ago: int) -> Step:
    """Takes an observation at an earlier time, as if it had come in order.

    Components that were missing at that time are filled in. Others, and an observation with H or R
    of its own, are a further observation of the same state, before which time does not move; where
    it has no H or R of its own it has that of the time.

    Args:
        cell: The cell of the filter.
        stream: The streams, which keep their latest steps; None before the first observation.
        sample: The sample, as `check` returned it.
        steps_ago: How many steps before the latest one.

    Raises:
        ValueError: A time beyond the horizon; a second observation of a model of functions.
    """
    with contextlib.nullcontext() if stream is None else stream.mutex:
        return _late_step(cell, *_past_at(stream, steps_ago, "late_by"), sample)


def _late_step(cell: KalmanCell, stream: Stream, past: Past, number: int, sample: Sample) -> Step:
    """`late_step` after the step of a number, while no other thread takes a step."""
    later = [(step.sample, step.advances) for step in past.steps[number:]]
    at_time = past.steps[number].sample
    fills_gaps = np.isnan(at_time.z) & (sample.H is None and sample.R is None)
    later[0] = at_time._replace(z=np.where(fills_gaps, sample.z, at_time.z)), True
    z = np.where(fills_gaps, missing_value(sample.z), sample.z)
    if not np.isnan(z).all():
        if not isinstance(cell.learned_model.start, LinearGaussian):
            raise ValueError(
                "z of this time is observed already, and the model has functions in place of F and "
                "H: a late observation can fill in what was missing"
            )
        check_uncorrelated(cell.learned_model.start, "a late observation beside one of its time")
        H = at_time.H if sample.H is None else sample.H
        R = at_time.R if sample.R is None else sample.R
        later.insert(0, (_without_time(cell, sample._replace(z=z, H=H, R=R)), False))
    return stream.take_again(number, later)


def lagged_state(cell: KalmanCell, stream: Stream | None, steps_ago: int) -> StateArrays:
    """The state at an earlier time given all observations since, by a smoother from there on.

    Args:
        cell: The cell of the filter.
        stream: The streams; None before the first observation.
        steps_ago: How many steps before the latest one.

    Returns:
        Mean and Cholesky factor, NumPy, with the batch axis of the streams.

    Raises:
        ValueError: A time beyond the horizon.
    """
    stream, past, number = _past_at(stream, steps_ago, "steps")
    end_before = past.end_of_time(steps_ago + 1)
    begin = 0 if end_before is None else end_before + 1
    steps = past.steps[begin:]
    samples = _series(cell, steps, is_single=stream.streams is None)
    arrays = [np.moveaxis(a, cell.streams_axis, 0) for a in steps[0].state]
    state = cell.from_stored([tf.constant(a) for a in arrays])
    if np.isnan(state.mean).any():  # before the first observation
        state = cell.initial_state(stream.streams or 1)
    model = cell.model_of(state, samples)
    smoothed = smooth(
        model, samples.z, inputs=samples.inputs, rule=cell.rule, likelihood=cell.likelihood
    )
    at = number - begin
    mean, chol = smoothed.smoothed_means[:, at], smoothed.smoothed_chols[:, at]
    is_single = stream.streams is None
    return StateArrays(*(np.asarray(a)[0] if is_single else np.asarray(a) for a in (mean, chol)))


def _past_at(stream: Stream | None, steps_ago: int, name: str) -> tuple[Stream, Past, int]:
    """The streams, their latest steps, and the number of the step that ends an earlier time."""
    steps_ago = whole_steps(steps_ago, name, least=0)
    past = None if stream is None else stream.past
    if past is None and stream is not None:
        raise ValueError(
            "the filter keeps no earlier steps: give it a horizon, KalmanFilter(model, horizon=k)"
        )
    number = None if past is None else past.end_of_time(steps_ago)
    if stream is None or past is None or number is None:
        count = 0 if past is None else sum(step.advances for step in past.steps)
        within = "" if past is None else f", within its horizon of {past.horizon}"
        raise ValueError(
            f"{name} reaches {steps_ago} steps before the latest one, but the filter keeps "
            f"{count}{within}: a time before them cannot be changed or looked at"
        )
    return stream, past, number


def _without_time(cell: KalmanCell, sample: Sample) -> Sample:
    """A sample after which the state stays: `x[t+1] = x[t]` exactly."""
    noise = cell.learned_model.noise
    n, dtype = noise.F.shape[-1], noise.dtype.as_numpy_dtype
    axes = sample.z.shape[:-1]
    inputs = None
    if noise.B is not None:
        size = noise.B.shape[-1] // noise.form.multiplicity
        inputs = np.zeros((*axes, size), noise.state_dtype.as_numpy_dtype)
    return sample._replace(
        inputs=inputs,
        F=np.broadcast_to(np.eye(n, dtype=dtype), (*axes, n, n)),
        Q_factor=np.broadcast_to(np.zeros((n, 1), dtype), (*axes, n, 1)),
    )


def _series(cell: KalmanCell, steps: list[PastStep], is_single: bool) -> Sample:
    """The samples of steps as series `[B, T, ...]`; with matrices of each where one has them."""
    samples = [step.sample for step in steps]
    names = {name for sample in samples for name in sample.matrices()}
    if names:
        noise = noise_of(cell.learned_model.model())
        shared = {}
        for name in names:
            a = with_time(getattr(noise, name)).numpy()[..., 0, :, :]
            shared[name] = np.broadcast_to(a, (*samples[0].z.shape[:-1], *a.shape[-2:]))
        samples = [sample._replace(**{**shared, **sample.matrices()}) for sample in samples]
    axis = 0 if is_single else 1

    def stacked(*fields: np.ndarray) -> np.ndarray:
        columns = max(a.shape[-1] for a in fields)  # factors of Q have as many as they need
        padded = [np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, columns - a.shape[-1])]) for a in fields]
        series = np.stack(padded, axis)
        return series[None] if is_single else series

    fields = zip(*samples, strict=True)
    return Sample(*(None if a[0] is None else stacked(*a) for a in fields))
