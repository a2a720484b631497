"""Sites along the filter of a linear model, around the compiled core.

A loop over time in which the sites of each step come to agree is a program that takes XLA seconds
to compile. Here the sites of all steps are renewed at once, in turns with a filter of the whole
series by the core: a turn is a filter of normal observations, and a small graph that is traced once
for all lengths. Filters forget, so that some dozens of turns do.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.distributions.forms import form_of
from cgp.graphs import called_as_op
from cgp.likelihoods.base import Likelihood
from cgp.observations import missing_value
from cgp.statespace.engines import native_engine
from cgp.statespace.engines.chunked_engine import StateMoments
from cgp.statespace.engines.filter_step import KalmanSystem, State
from cgp.statespace.linearization.likelihood_update import (
    MOST_TURNS,
    Measured,
    Measurement,
    Signal,
    StepSites,
    accuracy,
)
from cgp.statespace.models.linear_gaussian import LinearGaussian
from cgp.statespace.native_step import NormalObservations

_STEPS = 300
"""The steps of streams by a graph, before XLA compiles it: as long as this takes."""
_ROUNDING = 1e4
"""The distance of sites that are the same but for rounding, in the move of sites that agree."""


class SiteTurns:
    """The turns of sites and posterior of predicted signals, as a function of NumPy arrays.

    Args:
        likelihood: The likelihood.
        multiplicity: The multiplicity of the form of observations.
        components: The number of working values of an observation.
        dtype: Their dtype.
    """

    def __init__(self, likelihood: Likelihood, multiplicity: int, components: int, dtype: tf.DType):
        self.sites = StepSites(likelihood, form_of(multiplicity == 1))
        self.accuracy = float(accuracy(dtype))
        # The sites of normal noise come first: the turn that finds its posterior is left out.
        self.first_turn = 1 if self.sites.start_from_noise else 0
        real, count = dtype.real_dtype, tf.TensorSpec([], tf.int32)
        vector = tf.TensorSpec([components, None], dtype)
        matrix = tf.TensorSpec([components, components, None], dtype)
        signal, observed = Signal(vector, matrix), tf.TensorSpec([components, None], real)
        of_series = tf.TensorSpec([None], real)
        self._signature = (
            signal,
            Measurement(vector, matrix, observed),
            Measured(vector, matrix, of_series, of_series),
            count,
            count,
        )
        self._is_composite = multiplicity > 1
        self._steps = 0
        self._programs: dict[int, Any] = {}  # by the number of streams

    def _turns(
        self,
        signal: Signal,
        measurement: Measurement,
        last: Measured,
        turn: tf.Tensor,
        turns: tf.Tensor,
    ) -> Measured:
        first_sites = self.sites.first_of_signal(signal, measurement)
        is_first = turn <= self.first_turn
        last = tf.nest.map_structure(functools.partial(tf.where, is_first), first_sites, last)
        last = self.sites.renewed_in_turns(signal, measurement, last, turn, turns)
        return self.sites.completed_by_signal(signal, measurement, last)

    @functools.cached_property
    def _graph(self) -> Callable[..., Any]:
        signature = tf.nest.flatten(self._signature)

        def of_flat(*tensors: tf.Tensor) -> list[tf.Tensor]:
            arguments = tf.nest.pack_sequence_as(self._signature, tensors)
            return list(self._turns(*arguments))

        graph = tf.function(of_flat, input_signature=signature, autograph=False)
        return called_as_op(graph.get_concrete_function())

    def _program(self, streams: int) -> Any:
        """The program of `agreed` for steps of so many streams, compiled by XLA."""
        if streams not in self._programs:

            def agreed(*tensors: tf.Tensor) -> list[tf.Tensor]:
                signal, measurement = Signal(*tensors[:2]), Measurement(*tensors[2:])
                unread = _unread(measurement)
                counts = tf.constant(self.first_turn), tf.constant(MOST_TURNS)
                measured = self._turns(signal, measurement, unread, *counts)
                return [measured.z, measured.R, measured.correction]

            shapes = [
                tf.TensorSpec([*a.shape[:-1], streams], a.dtype)
                for a in tf.nest.flatten(self._signature[:2])
            ]
            graph = tf.function(agreed, input_signature=shapes, jit_compile=True, autograph=False)
            self._programs[streams] = called_as_op(graph.get_concrete_function())
        return self._programs[streams]

    def __call__(
        self, signal: Signal, measurement: Measurement, last: Measured, turn: int, turns: int
    ) -> Measured:
        """The sites after so many turns, of which the first is number `turn`, or once they agree.

        Their correction is NaN unless they do. All arrays have the axis of steps last. Before the
        first turn `last` is not read.
        """
        arrays = *signal, *measurement, *last, np.int32(turn), np.int32(turns)
        return Measured(*(a.numpy() for a in self._graph(*arrays)))

    def first(self, signal: Signal, measurement: Measurement) -> Measured:
        """The sites before the first turn."""
        return self(signal, measurement, _unread(measurement), self.first_turn, 0)

    def agreed(self, signal: Signal, measurement: Measurement) -> Measured:
        """The sites that agree with a predicted signal, as a filter finds them at one step."""
        return self(signal, measurement, _unread(measurement), self.first_turn, MOST_TURNS)

    def decorrelated(
        self, H: np.ndarray, R: np.ndarray, z: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`cgp.statespace.engines.filter_step.decorrelated`, of noise that sites have.

        It is correlated between the real and the imaginary part of a component alone.
        """
        variance = np.einsum("tmmb->tmb", R).real
        if not self._is_composite:
            return H, variance, z
        real, imaginary = np.split(variance, 2, axis=1)
        m = real.shape[1]
        cross = np.einsum("tmmb->tmb", R[:, :m, m:])
        factor = cross / real
        of_real, of_imaginary = np.split(H, 2, axis=1)
        of_imaginary = of_imaginary - factor[:, :, None] * of_real
        of_real = np.broadcast_to(of_real, of_imaginary.shape)
        z_real, z_imaginary = np.split(z, 2, axis=-1)
        z_imaginary = z_imaginary - np.moveaxis(factor, -1, 0) * z_real
        return (
            np.concatenate([of_real, of_imaginary], axis=1),
            np.concatenate([real, imaginary - factor * cross], axis=1),
            np.concatenate([z_real, z_imaginary], axis=-1),
        )

    def of_step(
        self, z: np.ndarray, H: np.ndarray, R: np.ndarray, mean: np.ndarray, chol: np.ndarray
    ) -> NormalObservations | None:
        """The normal observations that stand for those of a step; None where none were found.

        Args:
            z: The observations, working values, `[m, B]`; NaN where missing.
            H: The observation matrix, `[m, n, B]`, B being 1 where all streams share it.
            R: The covariance of the noise, `[m, m, B]`, likewise.
            mean: The mean of the state before them, `[n, B]`.
            chol: The factor of its covariance, `[n, n, B]`.
        """
        is_observed = ~np.isnan(z)
        z = np.where(is_observed, z, 0.0)
        rows = np.einsum("mnb,nkb->mkb", H, chol)
        covariance = np.einsum("ikb,jkb->ijb", rows, rows.conj())
        signal = Signal(np.einsum("mnb,nb->mb", H, mean), covariance)
        noise = np.broadcast_to(R, covariance.shape)
        measurement = Measurement(z, noise, is_observed.astype(z.real.dtype))
        self._steps += 1
        if self._steps <= _STEPS:
            z, R, correction, _ = self.agreed(signal, measurement)
        else:
            results = self._program(z.shape[1])(*signal, *measurement)
            z, R, correction = (a.numpy() for a in results)
        if not np.isfinite(correction).all():
            return None
        if not is_observed.all():
            row, column = is_observed, is_observed[:, None]
            R = np.where(row & column, R, np.where(row | column, 0.0, noise))
            z = np.where(is_observed, z, missing_value(z))
        return NormalObservations(z, R)


def _unread(measurement: Measurement) -> Measured:
    """Sites in place of the last ones where there are none yet."""
    zero = 0.0 * measurement.observed[0]
    return Measured(measurement.z, measurement.R, zero, zero)


@functools.lru_cache(maxsize=64)
def turns_of(
    likelihood: Likelihood, multiplicity: int, components: int, dtype: tf.DType
) -> SiteTurns:
    """The turns of a likelihood, whose graph all models share."""
    return SiteTurns(likelihood, multiplicity, components, dtype)


def turns_for(model: LinearGaussian, likelihood: Likelihood) -> SiteTurns:
    """The turns of a likelihood of the observations of a model."""
    m = model.H.shape[-2]
    return turns_of(likelihood, model.observation_form.multiplicity, m, model.dtype)


class LinearSystem(NamedTuple):
    """The matrices of a linear model along series, NumPy; T and B are 1 where nothing varies."""

    F: np.ndarray  # `[T, n, n, B]`
    Q: np.ndarray  # `[T, n, n, B]`
    Q_factor: np.ndarray  # `[T, n, q, B]`
    b: np.ndarray  # `[T, n, B]`
    H: np.ndarray  # `[T, m, n, B]`
    d: np.ndarray  # `[T, m, B]`


class SitesAlongFilter:
    """The sites of all steps of B series, each given the observations up to its own.

    Args:
        turns: The turns of the likelihood.
        system: The matrices.
        measurement: The observations, `[T, m, B]`, and the covariances of their noise, NumPy.
        start: The state before the first observation.
    """

    def __init__(
        self, turns: SiteTurns, system: LinearSystem, measurement: Measurement, start: State
    ):
        self._turns, self._system = turns, system
        self._steps, _, self._series = measurement.z.shape
        real = measurement.z.real.dtype
        self._observed = np.zeros(measurement.z.shape, real) + measurement.observed
        self._measurement = Measurement(*map(self._by_column, measurement))
        mean, chol = start
        covariance = np.einsum("ikb,jkb->ijb", chol, chol.conj())
        self._start = (mean, covariance, chol)
        self.filters = 0  # in turns with the sites

    def measured(self) -> Measured | None:
        """The normal observations that stand for all, `[T, …, B]`.

        None where none were found, or where another posterior is nearer to that of normal noise,
        with which a filter begins at each step.
        """
        joint, signal = None, self._signal(self._start[0][None], self._start[2][None])
        if self._steps > 1:
            joint, signal = self._in_turns(signal)
            if joint is None:
                return None
        measured = self._turns.agreed(signal, self._measurement)
        if not np.isfinite(measured.correction).all():
            return None
        if joint is not None:
            tensors = _tensors((signal, joint, measured))
            move = self._turns.sites.distance(*tensors).numpy()
            move = move * self._measurement.observed[: len(move)]
            if not np.all(move <= _ROUNDING * self._turns.accuracy):
                return None
        return Measured(*(tf.constant(self._by_time(a)) for a in measured))

    def _in_turns(self, signal: Signal) -> tuple[Measured | None, Signal]:
        """The sites that agree with the posterior of each step, and its prediction by them."""
        turns, measurement = self._turns, self._measurement
        measured = turns.first(signal, measurement)
        for turn in range(turns.first_turn, MOST_TURNS):
            moments = self._filtered(measured)
            self.filters += 1
            if moments is None:
                break
            chols = moments.predicted_chols.numpy()
            signal = self._signal(np.moveaxis(moments.predicted_means.numpy(), 0, -1), chols)
            if measured.change.max() <= turns.accuracy:
                return measured, signal
            unsettled = measured._replace(change=np.full_like(measured.change, np.inf))
            measured = turns(signal, measurement, unsettled, turn, 1)
            if not np.isfinite(measured.change).all():
                break
        return None, signal

    def _filtered(self, measured: Measured) -> StateMoments | None:
        """The moments of a filter of normal observations, by the core."""
        F, Q, Q_factor, b, H, d = self._system
        z, R = self._by_time(measured.z), self._by_time(measured.R)
        z = np.moveaxis(np.where(self._observed > 0.0, z - d, 0.0), -1, 0)
        h, r, z = self._turns.decorrelated(H, R, z)
        arrays = (F, Q, Q_factor, h, r, b, z, self._observed, *self._start)
        return native_engine.moments(KalmanSystem(*map(tf.convert_to_tensor, arrays)))

    def _signal(self, means: np.ndarray, chols: np.ndarray) -> Signal:
        """The signal of states of moments `[T, n, B]` and `[T, n, n, B]`, by column."""
        H, d = self._system.H, self._system.d
        mean = np.einsum("tmnb,tnb->tmb", H, means) + d
        rows = np.einsum("tmnb,tnkb->tmkb", H, chols)
        covariance = np.einsum("tikb,tjkb->tijb", rows, rows.conj())
        return Signal(self._by_column(mean), self._by_column(covariance))

    def _by_column(self, a: np.ndarray) -> np.ndarray:
        """`[T, …, B]` -> `[…, T·B]`."""
        axes = a.shape[1:-1]
        a = np.broadcast_to(a, (self._steps, *axes, self._series))
        return np.moveaxis(a, 0, -2).reshape(*axes, -1)

    def _by_time(self, a: np.ndarray) -> np.ndarray:
        """Inverts `_by_column`."""
        return np.moveaxis(a.reshape(*a.shape[:-1], self._steps, self._series), -2, 0)


def _tensors(arrays: Any) -> Any:
    return tf.nest.map_structure(tf.convert_to_tensor, arrays)
