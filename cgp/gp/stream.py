"""One sample after another: a Gaussian process as a state of fixed size, and how a sample moves it.

The state holds at most C points, with targets y and the factor L of M = K + R, K being the
covariance of the points under the kernel and R that of their noise. With k the covariances between
the points and a new one, w = L⁻¹ k, and the innovation variance S = k(x, x) + σ² − wᴴ w,

    mean  wᴴ L⁻¹ y,    variance  S − σ² of the signal,    append  [L 0; wᴴ √S],

so the solve that predicts a sample is the one that takes it in. What is over capacity then leaves
the factor by a rank-one update (`cgp.linalg.cholesky_remove`). Real composites come point after
point here, two rows to a point, so that points enter and leave at the end.

Forgetting, f ← √λ f + √(1−λ) f' with f' a fresh copy of the prior, keeps the past's correlation
with the present at λ^{age/2}: with D the diagonal of these weights the posterior is that of M' =
D⁻¹ (K ∘ Λ + R) D⁻¹, Λ_ij = λ^{|age_i − age_j|/2}, that is, L is divided by √λ row by row at each
step ("back to the prior", Van Vaerenbergh, Lázaro-Gredilla & Santamaría, IEEE TNNLS 23, 2012).
"""

import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.distributions.forms import Moments
from cgp.gp.budget import Budget
from cgp.gp.buffers import (
    Sample,
    State,
    append_rows,
    as_matrices,
    padded,
    padded_chol,
    possible,
    put,
)
from cgp.gp.conditioning import Conditioned
from cgp.gp.data import Data
from cgp.gp.likelihood import Whitened, log_density
from cgp.gp.process import NoisyProcess
from cgp.linalg import cholesky, cholesky_update
from cgp.linalg.arguments import squared_modulus
from cgp.linalg.composite import as_complex, complex_dtype, real_as


class Outcome(NamedTuple):
    """A sample before and after its target was seen: complex and real tensors, `[B]`."""

    predicted: tuple[tf.Tensor, tf.Tensor, tf.Tensor]
    innovation: tf.Tensor
    filtered: tuple[tf.Tensor, tf.Tensor, tf.Tensor]


class Stream:
    """The recursion of a Gaussian process over samples.

    Args:
        process: The process, its data ordered by point.
        capacity: The number of points of the state.
        policy: "growing", "sliding" or "budget".
        forgetting: λ.
    """

    def __init__(self, process: NoisyProcess, capacity: int, policy: str, forgetting: float):
        self.process, self.capacity, self.forgetting = process, capacity, forgetting
        self.is_growing = policy == "growing"
        self.budget = Budget(process) if policy == "budget" else None

    def empty(self, streams: int, dimensions: int, real_dtype: str) -> State:
        """The state before any sample."""
        real, complex_ = tf.as_dtype(real_dtype), complex_dtype(real_dtype)
        working = complex_ if self.process.is_proper else real
        rows = self.capacity * self.process.form.multiplicity
        chol = tf.eye(rows, batch_shape=[streams], dtype=working)
        return State(
            size=tf.zeros([streams], tf.int32),
            x=tf.zeros([streams, self.capacity, dimensions], real),
            z=tf.zeros([streams, self.capacity], complex_),
            age=tf.zeros([streams, self.capacity], real),
            chol=chol,
            basis=() if self.budget is None else self.budget.empty(chol),
        )

    # --- what the hyperparameters of now say of a state ------------------------------------------

    def rounding(self, variance: tf.Tensor) -> tf.Tensor:
        """What is lost of a variance of the signal in factors of this size, real like `variance`.

        It counts as noise: points that are equal, or nearly, then leave a factor of full rank
        however small the noise variance.
        """
        real = variance.dtype.real_dtype
        eps = np.finfo(real.as_numpy_dtype).eps
        rows = self.capacity * self.process.form.multiplicity
        return tf.math.real(variance) * tf.constant(4.0 * (rows + 2) * eps, real)

    def _rounding_of_points(self, data: Data) -> tf.Tensor:
        """Diagonal of the working matrices, `[B, n]`; zero where no point is."""
        nugget = self.rounding(self.process.marginal(data.x).k)
        nugget = tf.where(data.present, nugget, tf.zeros_like(nugget))
        return tf.repeat(nugget, self.process.form.multiplicity, axis=-1)

    def _forgotten(self, state: State) -> tf.Tensor:
        """What a covariance is multiplied with for what has been forgotten, `[B, n, n]`.

        With D and Λ as above, (D⁻¹ Λ D⁻¹)_ij = λ^−min(age_i, age_j): the age of the pair.
        """
        pair = tf.minimum(state.age[:, :, None], state.age[:, None, :])
        weights = self.forgetting**-pair
        for axis in (1, 2):
            weights = tf.repeat(weights, self.process.form.multiplicity, axis=axis)
        return tf.cast(weights, state.chol.dtype)

    def covariance(self, state: State) -> tf.Tensor:
        """M at the present hyperparameters, `[B, n, n]`: a gradient reaches them."""
        data = state.data()
        noisy = self.budget is None
        gram = (self.process.covariance if noisy else self.process.signal_covariance)(data)
        nugget = real_as(self._rounding_of_points(data), gram.dtype)
        gram = tf.linalg.set_diag(gram, tf.linalg.diag_part(gram) + nugget)
        weights = None if self.forgetting == 1.0 else self._forgotten(state)
        if self.budget is not None:
            return self.budget.covariance(state, gram, weights)
        return gram if weights is None else gram * weights

    def factorized(self, state: State) -> State:
        """The state with the factors that belong to the present hyperparameters."""
        chol = cholesky(self.covariance(state))
        if self.budget is None:
            return state._replace(chol=chol)
        data = state.data()
        return state._replace(
            chol=chol, basis=self.budget.basis(data, self._rounding_of_points(data))
        )

    def conditioned(self, state: State, chol: tf.Tensor) -> Conditioned:
        """The state, ready for predictions; `chol` is its factor, or one that gradients pass."""
        white = tf.linalg.triangular_solve(chol, self.process.targets(state.data()))
        return Conditioned(self.process.form, chol, Whitened(white, None, None, None))

    # --- a step ----------------------------------------------------------------------------------

    def forget(self, state: State) -> State:
        """One step back to the prior."""
        if self.forgetting == 1.0:
            return state
        # What weighs less than the rounding of rounding is gone. It would overflow one day.
        m, real = self.process.form.multiplicity, state.x.dtype
        eps = np.finfo(real.as_numpy_dtype).eps
        power = tf.reduce_sum(squared_modulus(state.chol), axis=-1)
        power = tf.reduce_max(tf.reshape(power, [-1, self.capacity, m]), axis=-1)
        alone = tf.math.real(self.process.with_noise(self.process.marginal(state.x)).k)
        ages = state.in_use & (power < alone / eps**2)
        factor = tf.where(ages, tf.constant(self.forgetting**-0.5, real), tf.ones_like(power))
        rows = tf.cast(tf.repeat(factor, m, axis=-1), state.chol.dtype)
        function = self.process.plus_function(tf.zeros_like(state.z), state.x)
        return state._replace(
            chol=state.chol * rows[..., None],
            z=function + as_complex(factor) * (state.z - function),
            age=state.age + tf.cast(ages, real),
        )

    def predict(self, state: State, x: tf.Tensor) -> Sample:
        """The sample at x `[B, D]`, given the state."""
        form, x = self.process.form, x[:, None, :]
        data = state.data()
        cross = self.process.cross(data, x)
        white = tf.linalg.triangular_solve(
            state.chol, tf.concat([cross, self.process.targets(data)], axis=-1)
        )
        w, targets = white[..., :-1], white[..., -1:]
        mean = form.join(tf.linalg.matmul(w, targets, adjoint_a=True)[..., 0])
        prior, explained = self.process.marginal(x), form.marginal(w)
        k, c = prior.k - explained.k, None
        if explained.c is not None:
            c = (prior.c_or_zeros() - explained.c)[:, 0]
        prior = Moments(prior.k[:, 0], None if prior.c is None else prior.c[:, 0])
        signal = possible(Moments(k[:, 0], c))
        return Sample(
            cross=cross,
            white=w,
            mean=self.process.plus_function(mean, x)[:, 0],
            prior=prior,
            signal=signal,
            observed=self.process.with_noise(signal),
            rounding=self.rounding(prior.k),
        )

    def advance(self, state: State, x: tf.Tensor, z: tf.Tensor) -> tuple[State, Outcome]:
        """One step: forget, predict, and take the sample in unless it is missing.

        Args:
            state: Before the step.
            x: `[B, D]`.
            z: Complex, `[B]`; NaN where missing.

        Returns:
            The state after it, and what was known of the sample before and after.
        """
        state = self.forget(state)
        sample = self.predict(state, x)
        seen = ~tf.math.is_nan(tf.math.real(z) + tf.math.imag(z))
        nan = tf.constant(np.nan, z.dtype)
        outcome = Outcome(
            _result(sample.mean, sample.observed),
            tf.where(seen, z - sample.mean, nan),
            _result(sample.mean, sample.signal),
        )

        def take_in():
            after, given_all = self._take_in(state, sample, x, z, seen)
            return after, outcome._replace(filtered=given_all)

        return tf.cond(tf.reduce_any(seen), take_in, lambda: (state, outcome))

    def run(self, state: State, x: tf.Tensor, z: tf.Tensor) -> tuple[State, Outcome]:
        """T steps; x is `[B, T, D]`, z `[B, T]`, what is returned `[T, B]`."""
        steps = tf.shape(z)[1]
        real, complex_ = x.dtype, z.dtype
        moments = (complex_, real, complex_)
        arrays = tf.nest.map_structure(
            lambda dtype: tf.TensorArray(dtype, steps, element_shape=z.shape[:1]),
            Outcome(moments, complex_, moments),
        )

        def body(t, state, arrays):
            state, outcome = self.advance(state, x[:, t], z[:, t])
            write = functools.partial(_write, t)
            return t + 1, state, tf.nest.map_structure(write, arrays, outcome)

        _, state, arrays = tf.while_loop(
            lambda t, *_: t < steps, body, (0, state, arrays), parallel_iterations=1
        )
        return state, tf.nest.map_structure(lambda array: array.stack(), arrays)

    def log_predictive(self, state: State, chol: tf.Tensor, data: Data) -> tf.Tensor:
        """The log density of a block given the state before it, `[B]`, with gradients.

        By the chain rule the sum of the log densities of one-step predictions, each given the state
        and the samples of the block before it; no point leaves in between.

        Args:
            state: Before the block.
            chol: Its factor, from which gradients reach the hyperparameters.
            data: T samples of each stream, with inputs of its own, `[B, T, D]`.
        """
        process, real = self.process, data.x.dtype
        given = self.conditioned(state, chol)
        cross = process.arranged(process.cross(state.data(), data.x), axis=-1)
        v = tf.linalg.triangular_solve(chol, cross)
        covariance = process.covariance(data)
        if self.forgetting < 1.0:
            steps = tf.range(1, tf.shape(data.z)[-1] + 1)
            steps = tf.cast(tf.repeat(steps, process.form.multiplicity), real)
            weight = tf.constant(self.forgetting**0.5, real)
            v *= tf.cast(weight**steps, v.dtype)
            lags = tf.abs(steps[:, None] - steps)
            covariance *= tf.cast(weight**lags, v.dtype)
        v *= process.keep(data, v.dtype)[:, None, :]
        mean = tf.linalg.matmul(v, given.white.residual, adjoint_a=True)
        covariance -= tf.linalg.matmul(v, v, adjoint_a=True)
        rounding = real_as(self._rounding_of_points(data), v.dtype)
        covariance = tf.linalg.set_diag(covariance, tf.linalg.diag_part(covariance) + rounding)
        value = log_density(
            covariance,
            process.targets(data) - mean,
            None,
            cholesky(tf.stop_gradient(covariance)),
            process.form.scale,
        )
        return value[:, 0] - data.counts * process.form.log_normalizer

    # --- taking a sample in ----------------------------------------------------------------------

    def _take_in(self, state: State, sample: Sample, x, z, seen):
        """The state with the sample, where seen, and what it says of the signal there."""
        if self.is_growing:
            return self._append(state, sample, x, z, seen), self._updated(sample, z, seen)

        def replace():
            if self.budget is not None:
                after = self._prune(state, sample, x, z, seen, full)
                now = self.predict(after, x)
                return after, _result(now.mean, now.signal)
            after = self._slide(state, sample, x, z, full)
            if state.x.shape[0] > 1:  # some streams may have room yet
                rest = self._append(state, sample, x, z, seen & ~full)
                after = State(*(_where(full, a, b) for a, b in zip(after[:-1], rest, strict=False)))
            return after, self._updated(self._given_others(after, sample, z, full), z, seen)

        def append():
            return self._append(state, sample, x, z, seen), self._updated(sample, z, seen)

        full = seen & (state.size == self.capacity)
        return tf.cond(tf.reduce_any(full), replace, append)

    def _given_others(self, state: State, sample: Sample, z, full) -> Sample:
        """The sample, where it has become the last point of a full state, given those before it.

        The last row of a factor is [wᴴ √S], and the last of L⁻¹ y its innovation over √S.
        """
        form, m = self.process.form, self.process.form.multiplicity
        white = tf.linalg.triangular_solve(state.chol, self.process.targets(state.data()))
        pivot = state.chol[:, -m:, -m:]
        innovation = form.join(tf.linalg.matvec(pivot, white[:, -m:, 0]))[:, 0]
        variance = form.moments(tf.linalg.matmul(pivot, pivot, adjoint_b=True))
        noise = self.process.with_noise(Moments(as_complex(sample.rounding)))
        k = variance.k[:, 0, 0] - noise.k
        c = None if variance.c is None else variance.c[:, 0, 0] - noise.c_or_zeros()
        signal = possible(Moments(k, c))
        k = tf.where(full, signal.k, sample.signal.k)
        c = None if c is None else tf.where(full, signal.c, sample.signal.c)
        return sample._replace(
            mean=tf.where(full, z - innovation, sample.mean),
            signal=Moments(k, c),
            observed=self.process.with_noise(Moments(k, c)),
        )

    def _updated(self, sample: Sample, z, seen):
        """The signal given its own observation too: mean + G innovation, variance G R, G = Σ/S.

        A product, where the difference from the prior would lose what a small noise leaves.
        """
        form = self.process.form
        noise = self.process.with_noise(Moments(tf.zeros_like(sample.signal.k)))
        signal, noise, observed = (
            form.covariance(as_matrices(moments))
            for moments in (sample.signal, noise, sample.observed)
        )
        gain = tf.linalg.adjoint(tf.linalg.solve(observed, signal))
        innovation = tf.where(seen, z - sample.mean, tf.zeros_like(z))
        mean = form.join(tf.linalg.matvec(gain, form.split(innovation[:, None])))[:, 0]
        k, c = form.moments(tf.linalg.matmul(gain, noise))
        after = possible(Moments(k[:, 0, 0], None if c is None else c[:, 0, 0]))
        k = tf.where(seen, after.k, sample.signal.k)
        c = None if c is None else tf.where(seen, after.c, sample.signal.c)
        return _result(sample.mean + mean, Moments(k, c))

    def _pivot(self, sample: Sample) -> tf.Tensor:
        """√S, `[B, m, m]`; what rounding leaves undetermined counts as noise."""
        variance = Moments(sample.observed.k + as_complex(sample.rounding), sample.observed.c)
        return tf.linalg.cholesky(self.process.form.covariance(as_matrices(variance)))

    def _append(self, state: State, sample: Sample, x, z, seen) -> State:
        """The state with a point more, where seen; its buffers have room."""
        slot = tf.minimum(state.size, state.x.shape[1] - 1)
        basis = state.basis
        if self.budget is not None:
            basis = self.budget.append(basis, sample, slot, seen)
        return State(
            size=state.size + tf.cast(seen, tf.int32),
            x=put(state.x, slot, x, seen),
            z=put(state.z, slot, z, seen),
            age=put(state.age, slot, tf.zeros_like(state.age[:, 0]), seen),
            chol=append_rows(state.chol, sample.white, self._pivot(sample), slot, seen),
            basis=basis,
        )

    def _slide(self, state: State, sample: Sample, x, z, full) -> State:
        """The state with the sample in the place of the oldest point where full, else as it is."""
        m = self.process.form.multiplicity
        chol = tf.roll(state.chol, [-m, -m], axis=[1, 2])
        row = tf.concat([tf.linalg.adjoint(sample.white)[..., m:], self._pivot(sample)], axis=-1)
        last = tf.fill([state.x.shape[0]], state.x.shape[1] - 1)
        blocks = tf.reshape(chol, [-1, state.x.shape[1], m, chol.shape[-1]])
        chol = tf.reshape(put(blocks, last, row, tf.ones_like(full)), tf.shape(chol))
        # The columns of the oldest point, which the rest of the matrix gains.
        gone = [state.chol[:, m:, :m], tf.linalg.adjoint(sample.white[:, :m])]
        gone = tf.concat(gone, axis=1)
        for j in range(m):
            chol = cholesky_update(chol, gone[..., j])
        return State(
            size=state.size,
            x=tf.concat([state.x[:, 1:], x[:, None]], axis=1),
            z=tf.concat([state.z[:, 1:], z[:, None]], axis=1),
            age=tf.concat([state.age[:, 1:], tf.zeros_like(state.age[:, :1])], axis=1),
            chol=chol,
        )

    def _prune(self, state: State, sample: Sample, x, z, seen, full) -> State:
        """The state with a point more where seen, and one less where it was full."""
        budget, m = self.budget, self.process.form.multiplicity
        assert budget is not None
        wide = State(
            size=state.size,
            x=padded(state.x),
            z=padded(state.z),
            age=padded(state.age),
            chol=padded_chol(state.chol, m),
            basis=budget.padded(state.basis),
        )
        room = [[0, 0], [0, m], [0, 0]]
        sample = sample._replace(cross=tf.pad(sample.cross, room), white=tf.pad(sample.white, room))
        return budget.prune(self._append(wide, sample, x, z, seen), full)


def _where(full: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.reshape(full, [-1] + [1] * (a.shape.rank - 1)), a, b)


def _write(t, array: tf.TensorArray, value: tf.Tensor) -> tf.TensorArray:
    return array.write(t, value)


def _result(mean: tf.Tensor, moments: Moments) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    c = tf.zeros_like(mean) if moments.c is None else moments.c
    return mean, tf.math.real(moments.k), c
