"""A Markov process followed sample by sample: what is known of its state at the last of them."""

import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.distributions.marginals import Marginals, Step, innovation
from cgp.gp.data import Data
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.gp.state_space.discretization import DiscretizedProcess
from cgp.gp.stream_samples import one_sample
from cgp.kernels.points import RecentInputs
from cgp.linalg.arguments import is_nan
from cgp.linalg.batch_last import matmul, matvec, outer, triangularize
from cgp.linalg.composite import real_as
from cgp.statespace.decorrelation import decorrelated
from cgp.statespace.filtering import filter
from cgp.statespace.forward_pass import State, System, observe


class _Present(NamedTuple):
    """The state after the last sample, and what it was computed from."""

    x: float
    carry: State
    """Of B series, `[n, B]` and `[n, n, B]`."""
    weights: np.ndarray


class Tracker:
    """The samples that have been taken in one by one, and the state that they lead to.

    Args:
        process: Kernel, mean and noise.
        weights: Those that the state depends on.
        series: Function of data that returns their model and observations in order.
    """

    def __init__(self, process: SignalPlusNoise, weights, series):
        self._process, self._weights, self._series = process, weights, series
        self._samples: list[tuple[float, np.ndarray]] = []
        self._present: _Present | None = None
        self._recent = RecentInputs()
        self._read: Any = None
        self._count = 0
        self._following: dict[int, Any] = {}

    def forget(self) -> None:
        """For other data: the samples are no longer any, and the state is that of the data."""
        self._samples, self._present = [], None

    @property
    def has_samples(self) -> bool:
        """Whether samples have come since the data were last put together."""
        return bool(self._samples)

    def together(self, data: Data) -> Data:
        """Data and samples after them."""
        if not self._samples:
            return data
        x, z = zip(*self._samples, strict=True)
        x, z = np.asarray(x)[None, :, None], np.stack(z, axis=-1)
        batch = z.shape[:-1]
        z = tf.constant(z.reshape(-1, z.shape[-1]))
        x = tf.constant(x, z.dtype.real_dtype)
        if tf.size(data.z) == 0:
            return Data(x, z, tf.constant(batch, tf.int32))
        return data._replace(x=tf.concat([data.x, x], axis=1), z=tf.concat([data.z, z], axis=1))

    def taken(self) -> None:
        """The samples are among the data now."""
        self._samples = []

    # --- one step --------------------------------------------------------------------------------

    def step(self, data: Data, x, z, missing, real_dtype: str) -> Step:
        """See `StateSpaceGP.step`."""
        sample = one_sample(x, z, missing, real_dtype, self._recent)
        x, z = self._fitting(data, sample)
        values = self._values()
        present = self._state(data, values)
        if present is not None and x < present.x:
            raise ValueError(f"x must not go back: got {x:g} after {present.x:g}")
        if present is None:
            self._process.kernel.moments_diagonal(tf.constant([[x]], real_dtype))  # may refuse it
        after, *moments = self._advanced(present, tf.constant(x, real_dtype), tf.constant(z))
        if not all(np.isfinite(a).all() for a in after):
            raise ValueError(
                "the state would not be finite any more, and is as it was: the hyperparameters "
                "are not finite, or far off"
            )
        single = sample.is_single
        predicted, filtered = (
            Marginals(*(np.asarray(a)[0] if single else np.asarray(a) for a in found))
            for found in moments
        )
        self._samples.append((x, z[0] if single else z))
        self._present = _Present(x, State(*after), values)
        seen = z[0] if single else z
        return Step(predicted, innovation(seen, predicted.mean)[()], filtered)

    def _fitting(self, data: Data, sample) -> tuple[float, np.ndarray]:
        """The place and the observations `[B]` of a sample that fits what was there before."""
        places = sample.x[:, 0]
        if places.shape[-1] != 1:
            raise ValueError(f"x must be one number, got {places.shape[-1]} dimensions")
        if np.ptp(places) > 0:
            raise ValueError("x must be one number: all series of a StateSpaceGP go on together")
        if self._samples:
            batch = list(np.shape(self._samples[0][1]))
        elif tf.size(data.z) > 0:
            batch = data.batch.numpy().tolist()
            if data.x.shape[0] > 1:
                raise ValueError("the series of the data have places of their own: make a GP each")
        else:
            batch = None
        given = [] if sample.is_single else [len(sample.z)]
        if batch not in (None, given):
            raise ValueError(f"z must have the batch axes of the data, {batch}, got {given}")
        return float(places[0, 0]), sample.z[:, 0]

    def _values(self) -> np.ndarray:
        """All weights in one vector, read in one call."""
        weights = self._weights()
        if self._read is None or len(weights) != self._count:  # a mean may be built with a sample

            def read():
                flat = [tf.reshape(tf.cast(w.value, tf.float64), [-1]) for w in weights]
                return tf.concat(flat, axis=0)

            self._read = tf.function(read, autograph=False).get_concrete_function()
            self._count = len(weights)
        return self._read().numpy()

    def _state(self, data: Data, values: np.ndarray) -> _Present | None:
        """The state after the last sample, at the present hyperparameters; None before any."""
        known = self._present
        if known is not None and np.array_equal(known.weights, values):
            return known
        data = self.together(data)
        if tf.size(data.z) == 0:
            return None
        model, z, _ = self._series(data)
        found = filter(model, z)
        mean = model.form.split(found.filtered_means[:, -1])
        chol = found.filtered_chols[:, -1]
        carry = State(*(tf.experimental.numpy.moveaxis(a, 0, -1) for a in (mean, chol)))
        self._present = _Present(float(tf.reduce_max(data.x)), carry, values)
        return self._present

    def _advanced(self, present: _Present | None, x: tf.Tensor, z: tf.Tensor):
        """The state after an observation at x; and what was known of the signal and is."""
        if present is None:
            return self._observed(self._initial(x, z), x, z)
        arguments = (*present.carry, tf.constant(present.x, x.dtype), x, z)
        streams = z.shape[0]
        if streams not in self._following:  # a concrete function is called in half the time
            # A partial is a thing of its own: TensorFlow counts the traces of one code.
            function = tf.function(functools.partial(self._followed), autograph=False)
            self._following[streams] = function.get_concrete_function(*arguments)
        return self._following[streams](*arguments)

    def _initial(self, x: tf.Tensor, z: tf.Tensor) -> State:
        """The state before any observation."""
        _, chol = DiscretizedProcess(self._process).initial(x)
        chol = chol[..., None] + tf.zeros_like(real_as(tf.math.real(z), chol.dtype))
        return State(tf.zeros_like(chol[0]), chol)

    def _followed(self, mean, chol, last, x, z):
        """From the state at the last sample to that after one at x."""
        markov = DiscretizedProcess(self._process)
        F, _, G = (a[0][..., None] for a in markov.discretize(last[None], (x - last)[None]))
        spread = matmul(F, chol)
        wide = tf.concat([spread, G + tf.zeros_like(spread[:, :1])], axis=1)
        return self._observed(State(matvec(F, mean), triangularize(wide)), x, z)

    def _observed(self, before: State, x: tf.Tensor, z: tf.Tensor):
        """From the state before an observation at x to that after it."""
        markov, form = DiscretizedProcess(self._process), self._process.form
        H, R = (a[..., None] for a in (markov.emission(), markov.noise()))
        function = self._process.plus_function(tf.zeros_like(z)[:, None], x[None, None, None])[:, 0]
        absent = is_nan(z)
        value = form.split(tf.where(absent, tf.zeros_like(z), z - function)[:, None])
        value = tf.experimental.numpy.moveaxis(value, 0, -1)[None]
        seen = tf.zeros_like(tf.math.real(value)) + tf.cast(~absent, value.dtype.real_dtype)
        h, r, value = decorrelated(H[None], R[None], value, seen)
        nothing = tf.zeros([1, 1, 1, 1], value.dtype)
        system = System(nothing, nothing, nothing, h, r, nothing[0], value, seen)
        after, _, _ = observe(system, 0, before)

        def known(state: State, noise):
            rows = matmul(H, state.chol)
            covariance = sum(outer(rows[:, k], rows[:, k]) for k in range(rows.shape[1])) + noise
            covariance = tf.experimental.numpy.moveaxis(covariance, -1, 0)
            k, c = form.moments(covariance)
            mean = form.join(tf.experimental.numpy.moveaxis(matvec(H, state.mean), -1, 0))[:, 0]
            pseudo = tf.zeros_like(mean) if c is None else c[:, 0, 0]
            return mean + function, tf.math.real(k[:, 0, 0]), pseudo

        return after, known(before, R), known(after, tf.zeros_like(R))
