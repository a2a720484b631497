"""Data of a noisy Markov process at irregular points, as a series of a linear Gaussian model."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp import native
from cgp.distributions.forms import CompositeForm, SecondMoments, as_matrices
from cgp.gp.data import Data, empty_variable
from cgp.gp.noise import COMMON_NOISE, SampleNoise
from cgp.gp.outputs import by_outputs
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.gp.state_space.exposures import ExposedProcess, Integrals
from cgp.gp.state_space.native_likelihood import numbers_of
from cgp.gp.state_space.output_series import by_sample, in_points, noise_of_samples
from cgp.kernels.functionals import VALUES, Functional
from cgp.linalg.batch_last import cholesky, triangularize
from cgp.linalg.gradients import without_gradient
from cgp.statespace.engines.filter_step import State, predict
from cgp.statespace.models.linear_gaussian import LinearGaussian
from cgp.statespace.models.model_base import FactoredCovariance
from cgp.statespace.models.widely_linear import composite_rows


class StateAt(NamedTuple):
    """The moments of the state of B series at one place, given all samples up to that place."""

    x: tf.Tensor
    """The place, a real number."""
    mean: tf.Tensor
    """Working values, `[B, n]`."""
    chol: tf.Tensor
    """The Cholesky factor of the covariance, `[B, n, n]`."""


class StoredState(tf.Module):
    """A `StateAt` in variables, which may be empty; working values have `dtype`.

    The variables are never replaced, so that a compiled function reads the present state.
    """

    def __init__(self, dtype: tf.DType):
        super().__init__()
        self.x = tf.Variable(tf.zeros([], dtype.real_dtype), trainable=False)
        self.mean, self.chol = empty_variable(2, dtype), empty_variable(3, dtype)
        # Not the size of the variables: where a branch of a graph empties a variable, TensorFlow
        # 2.21 takes its size as zero ever after, whether the branch runs or not.
        self._is_set = tf.Variable(False, trainable=False)

    @property
    def is_empty(self) -> tf.Tensor:
        """Whether no state is stored, scalar bool."""
        return ~self._is_set

    def read(self) -> StateAt:
        """The stored state; it must not be empty."""
        return StateAt(*(tf.convert_to_tensor(v) for v in (self.x, self.mean, self.chol)))

    def write(self, state: StateAt) -> None:
        """Stores a state."""
        self.x.assign(state.x)
        self.mean.assign(state.mean)
        self.chol.assign(state.chol)
        self._is_set.assign(True)

    def clear(self) -> None:
        """Empties the variables."""
        self._is_set.assign(False)


_BY_X = "a StateSpaceGP is not differentiable by its inputs x here: an ExactGP is"


class DiscretizedProcess:
    """The process `z = f(x) + n` of a Markov kernel, at the present hyperparameters.

    The state is that of the kernel, and beside it integrals where samples are means over exposures.
    """

    def __init__(self, process: SignalPlusNoise, functional: Functional = VALUES):
        self._process = process
        self.form, self.outputs = process.form, process.outputs
        self._functional, self._markov = functional, process.kernel.markov_form()
        self.exposed = None
        """The process beside the integrals of exposures; None where samples have no width."""
        if functional.width is not None:
            self.exposed = ExposedProcess(self._markov, functional)
        # A proper state gives an improper signal where its conjugate is observed too.
        self._working = isinstance(self.form, CompositeForm)

    @property
    def is_stationary(self) -> bool:
        """Whether transition and process noise depend on the step alone."""
        return self._markov.is_stationary

    def emission(self) -> tf.Tensor:
        """H, `[P, n]` of P outputs, P being 1 for one signal, or `[2 P, 2n]` for the composite."""
        return self._working_rows(self._with_integrals(self._markov.emissions))

    def _with_integrals(self, rows: tf.Tensor) -> tf.Tensor:
        """Emissions `[..., m, n]` of the state of the kernel, of all states."""
        return rows if self.exposed is None else self.exposed.rows(rows)

    def _working_rows(self, rows: tf.Tensor) -> tf.Tensor:
        """The observation matrix of emissions of components, in the working form."""
        h, of_conjugate = rows[..., :1, :], None
        if self._working:
            of_conjugate = self._markov.conjugate_emission(rows)
        if self.outputs is not None:  # `[..., P, 1, n]`
            h = tf.squeeze(h, axis=-2)
            of_conjugate = None if of_conjugate is None else tf.squeeze(of_conjugate, axis=-2)
        return composite_rows(h, of_conjugate) if self._working else h

    def sample_emissions(self, places: tf.Tensor) -> tf.Tensor:
        """H of what each sample at places `[X, N]` measures, `[V, N, m, n]`."""
        rows, of_derivative = self._markov.emissions, self._functional.derivative
        if of_derivative is not None:
            derivative = self._markov.derivative_emissions()
            if self.outputs is not None:
                of_derivative = by_sample(of_derivative, self.outputs)
            rows = tf.where(of_derivative[..., None, None], derivative, rows)
        if self.exposed is not None:
            rows = self.exposed.sample_rows(places, rows)
        return self._working_rows(rows)

    def signal_moments(self, mean: tf.Tensor, chol: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and factor of the state of the kernel, `[..., n]`, without integrals beside it."""
        if self.exposed is None:
            return mean, chol
        n = self._markov.size
        blocks = range(self.form.multiplicity)  # of the real composite, all real parts first
        starts = [block * (n + self.exposed.states) for block in blocks]
        index = tf.concat([tf.range(start, start + n) for start in starts], axis=0)
        factor = _first_axes_last(triangularize, tf.gather(chol, index, axis=-2))
        return tf.gather(mean, index, axis=-1), factor

    def _covariance(self, a: tf.Tensor) -> tf.Tensor:
        return self.form.covariance(SecondMoments(a, None))

    def noise(self, noise: SampleNoise = COMMON_NOISE) -> tf.Tensor:
        """R, `[m, m]`, m being P, or 2 P for the composite; `[..., m, m]` for samples `[...]`.

        P is 1 for one signal; the noise of samples of P outputs is `[..., P]`.
        """
        zero = tf.zeros([] if self.outputs is None else [self.outputs], self._markov.h.dtype)
        moments = self._process.with_noise(SecondMoments(zero, None), noise)
        if self.outputs is None:
            return self.form.covariance(as_matrices(moments))
        return self.form.covariance(moments.map(tf.linalg.diag))

    def initial(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The covariance of the state at points `[...]`, and its Cholesky factor, `[..., n, n]`."""
        covariance = self._markov.covariance(x)
        if self.exposed is not None:
            covariance = self.exposed.covariance(covariance)
        root = self._root(covariance)
        if self._working and covariance.dtype.is_complex:  # the composite of L is not triangular
            root = _first_axes_last(triangularize, root)
        return self._covariance(covariance), root

    def discretize(self, x: tf.Tensor, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """F, Q and a factor of Q over steps `[...]` from points `[...]`: `[..., n, n]`."""
        if self.is_stationary:
            # Steps between samples often take few different values: each is discretised once.
            different, index = tf.unique(tf.reshape(tf.stop_gradient(step), [-1]))
            [different] = without_gradient([different], [step], _BY_X)  # all would share one
            F, Q = self._markov.discretize(tf.zeros_like(different), different)
            G = self._root(Q)
            shape = tf.concat([tf.shape(step), tf.shape(G)[1:]], axis=0)
            matrices = (self.form.basis(F), self._covariance(Q), G)
            return tuple(tf.reshape(tf.gather(a, index), shape) for a in matrices)
        F, Q = self._markov.discretize(x, step)
        return self.form.basis(F), self._covariance(Q), self._root(Q)

    def transitions(self, x: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """F and a factor of Q over steps `[T]` from places `[T]`, eagerly.

        The compiled core computes them where it knows the kernel.
        """
        proper = None
        if self._numbers is not None and native.core().ops:
            steps = step.astype(np.float64)
            proper = native.attempt("cgp_markov_discretize", *self._numbers, steps=steps)
        if proper is None:
            F, _, Q_factor = self.discretize(tf.constant(x), tf.constant(step))
        else:
            F, Q_factor = self.form.basis(proper[0]), self.form.root(proper[1])
        return F.numpy(), Q_factor.numpy()

    @functools.cached_property
    def _numbers(self) -> list[tf.Tensor] | None:
        """The terms of the kernel as arguments of the compiled core; None for another kernel."""
        terms = self._process.kernel.markov_terms()
        return None if terms is None else numbers_of(terms)

    def _root(self, covariance: tf.Tensor) -> tf.Tensor:
        """A factor of proper covariances `[..., n, n]`, in the working form, without gradient."""
        return self.form.root(_first_axes_last(cholesky, tf.stop_gradient(covariance)))

    def predict(self, start: StateAt, x: tf.Tensor) -> tuple[State, tf.Tensor]:
        """The moments of the state at x from the moments at an earlier place, batch last.

        Places are numbers, or `[B]` where each series has its own. Also returns the covariance
        `F P Fᴴ + Q`, `[B, n, n]`, which passes gradients.
        """
        before, after = (tf.reshape(a, [-1]) for a in (start.x, x))
        F, Q, Q_factor = self.discretize(before, after - before)
        n = F.shape[-1]  # which the variables of a stored state do not show
        mean = tf.ensure_shape(start.mean, [None, n])
        chol = tf.ensure_shape(start.chol, [None, n, n])
        spread = tf.linalg.matmul(F, chol)
        covariance = tf.linalg.matmul(spread, spread, adjoint_b=True) + Q
        state = State(*(tf.experimental.numpy.moveaxis(a, 0, -1) for a in (mean, chol)))
        F, Q_factor = (tf.experimental.numpy.moveaxis(a, 0, -1) for a in (F, Q_factor))
        return predict(state, F, Q_factor, tf.zeros_like(state.mean)), covariance

    def model(
        self,
        x: tf.Tensor,
        start: StateAt | StoredState | None = None,
        noise: SampleNoise = COMMON_NOISE,
        emissions: tf.Tensor | None = None,
        integrals: Integrals | None = None,
    ) -> LinearGaussian:
        """The linear Gaussian model of a series at points `[..., T]` in order, with their noise.

        Series at shared points continue from a start, a state at or before the first point; None or
        an empty one for the prior. Emissions are `[..., T, m, n]` where points differ in what is
        observed; integrals are what goes on of exposures after each point.
        """
        steps = tf.concat([x[..., 1:] - x[..., :-1], tf.zeros_like(x[..., :1])], axis=-1)
        if self.exposed is None or integrals is None:
            F, Q, Q_factor = self.discretize(x, steps)
        else:
            [steps] = without_gradient([tf.stop_gradient(steps)], [steps], _BY_X)
            F, Q = self.exposed.transitions(steps, integrals)
            F, Q, Q_factor = self.form.basis(F), self._covariance(Q), self._root(Q)
        R = self.noise(noise)
        H = self.emission() if emissions is None else emissions
        if x.shape.rank > 1:
            H = H[None] if emissions is None else H
            if noise.is_common:
                R = R[None]
        if isinstance(start, StoredState):
            prior = self._prior(x[..., 0])
            initial = tf.cond(start.is_empty, lambda: prior, lambda: self._after(start.read(), x))
            mean, covariance, chol = (
                tf.ensure_shape(a, [None, *b.shape[b.shape.rank - event_rank :]])
                for a, b, event_rank in zip(initial, prior, (1, 2, 2), strict=True)
            )
        elif start is None:
            mean, covariance, chol = self._prior(x[..., 0])
        else:
            mean, covariance, chol = self._after(start, x)
        Q, R, initial = FactoredCovariance(Q, Q_factor), FactoredCovariance(R), (covariance, chol)
        matrices = {"F": F, "Q": Q, "H": H, "R": R, "initial_mean": mean}
        matrices["initial_covariance"] = FactoredCovariance(*initial)
        return LinearGaussian.from_tensors(matrices, None, self.form)

    def _prior(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Mean, covariance and factor of the state at points `[...]`, before any sample."""
        covariance, chol = self.initial(x)
        return tf.zeros_like(chol[..., 0]), covariance, chol

    def _after(self, start: StateAt, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Mean, covariance and factor at the first of points `[..., T]`, given an earlier state."""
        state, covariance = self.predict(start, x[..., 0])
        mean, chol = (tf.experimental.numpy.moveaxis(a, -1, 0) for a in state)
        product = tf.stop_gradient(tf.linalg.matmul(chol, chol, adjoint_b=True))
        return mean, product + (covariance - tf.stop_gradient(covariance)), chol


def _first_axes_last(function: Callable[[tf.Tensor], tf.Tensor], a: tf.Tensor) -> tf.Tensor:
    """Applies a function of matrices with batch axes last to matrices `[..., n, n]`."""
    batch = a.shape.rank - 2
    axes = list(range(batch)), list(range(-batch, 0))
    last = function(tf.experimental.numpy.moveaxis(a, *axes))
    return tf.experimental.numpy.moveaxis(last, *axes[::-1])


class OrderedSeries(NamedTuple):
    """A series over data and new points, in the order of their places."""

    model: LinearGaussian
    z: tf.Tensor
    """Observations, `[B, T, P]`, NaN where missing and at new points; P is 1 for one signal."""
    new: tf.Tensor
    """The position of each new point in the series, `[B, M]`."""
    process: DiscretizedProcess
    """The process that is observed."""

    @property
    def H(self) -> tf.Tensor:
        """The observation matrix of the value of the signal, the same for all series."""
        return self.process.emission()


def ordered_series(
    process: SignalPlusNoise,
    data: Data,
    x: tf.Tensor | None = None,
    start: StateAt | StoredState | None = None,
) -> OrderedSeries:
    """The model of data, possibly without points, and of new points between, before and after them.

    Data of P outputs have a row for each of them. New points are `[1, M, 1]` or `[B, M, 1]`, in any
    order. The series continues from the start; None for the prior.
    """
    functional, discretized = data.functional, DiscretizedProcess(process, data.functional)
    places, z = data.x[..., 0], data.z
    outputs = discretized.outputs
    function = process.sample_mean(in_points(data, outputs, process.noise_is_by_output))
    z, noise = by_sample(z, outputs), noise_of_samples(data.noise, outputs)
    if function is not None:
        z = z - (function[..., None] if outputs is None else by_outputs(function, outputs))
    x = tf.zeros([1, 0, 1], data.x.dtype) if x is None else x
    events = [functional.ends(places), x[..., 0]]
    if functional.width is not None:  # after the ends, which may leave a slot to them
        events.insert(1, functional.begins(places))
    series = functools.reduce(
        tf.maximum, [tf.shape(a)[0] for a in (*events, *noise) if a is not None]
    )
    if all(t.shape[0] is not None for t in events):
        series = max(t.shape[0] for t in events)
    samples, count = tf.shape(z)[1], tf.shape(x)[1]
    times = tf.concat([tf.broadcast_to(t, [series, tf.shape(t)[1]]) for t in events], axis=-1)
    order = tf.argsort(times, axis=-1, stable=True)
    times = tf.gather(times, order, batch_dims=1)

    def in_order(a: tf.Tensor) -> tf.Tensor:
        """Fields of samples, `[V, N, ...]`, at their events; at all others zero."""
        after = tf.shape(times)[1] - samples
        shape = tf.concat([tf.shape(a)[:1], [samples], tf.shape(a)[2:]], axis=0)
        a = tf.pad(tf.broadcast_to(a, shape), [[0, 0], [0, after], *[[0, 0]] * (a.shape.rank - 2)])
        if order.shape[0] == 1:
            return tf.gather(a, order[0], axis=1)
        shape = tf.concat([tf.shape(order), tf.shape(a)[2:]], axis=0)
        return tf.gather(tf.broadcast_to(a, shape), order, batch_dims=1)

    noise, emissions, integrals = noise.map(in_order), None, None
    if not data.is_of_values:
        emissions = in_order(discretized.sample_emissions(places))
    if discretized.exposed is not None:
        integrals = discretized.exposed.integrals(*map(tf.stop_gradient, (places, times)))
    shape = tf.stack([tf.shape(z)[0], tf.shape(times)[1] - samples, tf.shape(z)[2]])
    z = tf.concat([z, tf.fill(shape, tf.constant(np.nan, z.dtype))], axis=1)
    if times.shape[0] == 1:
        z = tf.gather(z, order[0], axis=1)
        times, emissions, *fields = (
            a[0] if a is not None and a.shape[0] == 1 else a for a in (times, emissions, *noise)
        )
        integrals = None if integrals is None else integrals.first()
        noise = SampleNoise(*fields)
    else:
        z = tf.gather(z, order, batch_dims=1)
    model = discretized.model(times, start, noise, emissions, integrals)
    new = tf.argsort(order, axis=-1)[:, tf.shape(times)[-1] - count :]
    new = tf.broadcast_to(new, [tf.shape(z)[0], tf.shape(new)[1]])
    z = tf.ensure_shape(z, [None, None, discretized.outputs or 1])
    return OrderedSeries(model, z, new, discretized)
