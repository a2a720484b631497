"""One sample after another: a Gaussian process as a state of fixed size, and how a sample moves it.

The state holds at most C points, with targets y and the factor L of M = K + R, K being the
covariance of the points under the kernel and R that of their noise. With k the covariances between
the points and a new one, w = L⁻¹ k, and the innovation variance S = k(x, x) + σ² − wᴴ w,

    mean  wᴴ L⁻¹ y,    variance  S − σ² of the signal,    append  [L 0; wᴴ √S],

so the solve that predicts a sample is the one that takes it in. What is over capacity leaves the
factor by a rank-one update, of the rows that are left by the column that goes. Real composites come
point after point here, two rows to a point, so that a point is one block of rows.

Forgetting, f ← √λ f + √(1−λ) f' with f' a fresh copy of the prior, keeps the past's correlation
with the present at λ^{age/2}: with D the diagonal of these weights the posterior is that of M' =
D⁻¹ (K ∘ Λ + R) D⁻¹, Λ_ij = λ^{|age_i − age_j|/2}, that is, L is divided by √λ row by row at each
step ("back to the prior", Van Vaerenbergh, Lázaro-Gredilla & Santamaría, IEEE TNNLS 23, 2012).
"""

import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.distributions.forms import SecondMoments, as_matrices, clipped
from cgp.gp.data import Data
from cgp.gp.posterior import Conditioned
from cgp.gp.recursive.budget import Budget
from cgp.gp.recursive.one_step_prediction import OneStepPrediction
from cgp.gp.recursive.window import Window, append_rows, of_streams, padded, padded_chol, put
from cgp.gp.signal_plus_noise import SignalPlusNoise, Whitened
from cgp.linalg import cholesky, cholesky_update
from cgp.linalg.arguments import is_nan, nan, squared_modulus
from cgp.linalg.composite import as_complex, complex_dtype, real_as


class StepTensors(NamedTuple):
    """A sample before and after its target was seen: complex and real tensors, `[B]`."""

    predicted: tuple[tf.Tensor, tf.Tensor, tf.Tensor]
    innovation: tf.Tensor
    filtered: tuple[tf.Tensor, tf.Tensor, tf.Tensor]


class WindowRecursion:
    """The recursion of a Gaussian process over samples.

    Args:
        process: The process, its data ordered by point.
        capacity: The number of points of the state.
        policy: "growing", "sliding" or "budget".
        forgetting: λ.
    """

    def __init__(self, process: SignalPlusNoise, capacity: int, policy: str, forgetting: float):
        self.process, self.capacity, self.forgetting = process, capacity, forgetting
        self.is_growing = policy == "growing"
        self.budget = Budget(process) if policy == "budget" else None

    def empty(self, streams: int, dimensions: int, real_dtype: str) -> Window:
        """The state before any sample."""
        real, complex_ = tf.as_dtype(real_dtype), complex_dtype(real_dtype)
        working = complex_ if self.process.is_proper else real
        rows = self.capacity * self.process.form.multiplicity
        chol = tf.eye(rows, batch_shape=[streams], dtype=working)
        return Window(
            size=tf.zeros([streams], tf.int32),
            x=tf.zeros([streams, self.capacity, dimensions], real),
            z=tf.zeros([streams, self.capacity], complex_),
            age=tf.zeros([streams, self.capacity], real),
            chol=chol,
            basis=() if self.budget is None else self.budget.empty(chol),
        )

    # --- what the hyperparameters of now say of a state ------------------------------------------

    def rounding(self, x: tf.Tensor) -> tf.Tensor:
        """What is lost of the variance of an observation in factors of this size, real, `[B, N]`.

        It counts as noise: points that are equal, or nearly, then leave a factor of full rank
        however small the noise variance.

        Args:
            x: Points, `[B, N, D]`.
        """
        variance = self._alone(x)
        rows = self.capacity * self.process.form.multiplicity
        # Of a factor of n rows n ε at most; twice that for a sum of as many, and for good measure.
        eps = np.finfo(variance.dtype.as_numpy_dtype).eps
        return variance * tf.constant(4.0 * (rows + 2) * eps, variance.dtype)

    def _alone(self, x: tf.Tensor) -> tf.Tensor:
        """The variance of an observation before any data, real, `[B, N]`."""
        return tf.math.real(self.process.with_noise(self.process.marginal(x)).k)

    def rounding_of_points(self, data: Data) -> tf.Tensor:
        """Diagonal of the working matrices, `[B, n]`; zero where no point is."""
        m = self.process.form.multiplicity
        nugget = self.rounding(data.x) / m  # a composite has a part of the variance in each row
        nugget = tf.where(data.present, nugget, tf.zeros_like(nugget))
        return tf.repeat(nugget, m, axis=-1)

    def _forgotten(self, state: Window) -> tf.Tensor:
        """What a covariance is multiplied with for what has been forgotten, `[B, n, n]`.

        With D and Λ as above, (D⁻¹ Λ D⁻¹)_ij = λ^−min(age_i, age_j): the age of the pair.
        """
        pair = tf.minimum(state.age[:, :, None], state.age[:, None, :])
        weights = self.forgetting**-pair
        for axis in (1, 2):
            weights = tf.repeat(weights, self.process.form.multiplicity, axis=axis)
        return tf.cast(weights, state.chol.dtype)

    def covariance(self, state: Window) -> tf.Tensor:
        """M at the present hyperparameters, `[B, n, n]`: a gradient reaches them."""
        return self._total(state, self._gram(state))

    def _gram(self, state: Window) -> tf.Tensor:
        """What hyperparameters say of M alone: K, and the noise unless the budget keeps its own."""
        data = state.data()
        noisy = self.budget is None
        gram = (self.process.covariance if noisy else self.process.signal_covariance)(data)
        nugget = real_as(self.rounding_of_points(data), gram.dtype)
        return tf.linalg.set_diag(gram, tf.linalg.diag_part(gram) + nugget)

    def _total(self, state: Window, gram: tf.Tensor) -> tf.Tensor:
        weights = None if self.forgetting == 1.0 else self._forgotten(state)
        if self.budget is not None:
            total = self.budget.covariance(state, gram, weights)
        else:
            total = gram if weights is None else gram * weights
        if weights is None:
            return total
        # Points that have ceased to age would not fit those that have not: they are by themselves.
        ages = tf.repeat(~self._gone(state), self.process.form.multiplicity, axis=-1)
        pair = ages[:, :, None] & ages[:, None, :]
        alone = tf.where(pair, total, tf.zeros_like(total))
        return tf.linalg.set_diag(alone, tf.linalg.diag_part(total))

    def _gone(self, state: Window) -> tf.Tensor:
        """Whether a point weighs less than the rounding of rounding, bool, `[B, C]`."""
        eps = np.finfo(state.x.dtype.as_numpy_dtype).eps
        rows = tf.reshape(squared_modulus(state.chol), [*state.age.shape, -1])
        return tf.reduce_sum(rows, axis=-1) >= self._alone(state.x) / eps**2

    def targets(self, state: Window) -> tf.Tensor:
        """y, `[B, n, 1]`: less the mean function, and as far from it as what has been forgotten."""
        targets = self.process.targets(state.data())
        if self.forgetting == 1.0:
            return targets
        factor = self.forgetting ** (-0.5 * state.age)
        factor = tf.repeat(factor, self.process.form.multiplicity, axis=-1)
        return targets * tf.cast(factor, targets.dtype)[..., None]

    def factorized(self, state: Window) -> Window:
        """The state with the factors that belong to the present hyperparameters."""
        gram = self._gram(state)
        chol = cholesky(self._total(state, gram))
        basis = () if self.budget is None else self.budget.basis(state.data(), gram)
        return state._replace(chol=chol, basis=basis)

    def conditioned(self, state: Window, chol: tf.Tensor) -> Conditioned:
        """The state, ready for predictions; `chol` is its factor, or one that gradients pass."""
        white = tf.linalg.triangular_solve(chol, self.targets(state))
        return Conditioned(self.process.form, chol, Whitened(white, None, None, None))

    # --- a step ----------------------------------------------------------------------------------

    def forget(self, state: Window) -> Window:
        """One step back to the prior."""
        if self.forgetting == 1.0:
            return state
        ages = state.in_use & ~self._gone(state)  # it would overflow one day
        factor = tf.where(ages, tf.constant(self.forgetting**-0.5, state.x.dtype), 1.0)
        rows = tf.repeat(factor, self.process.form.multiplicity, axis=-1)[..., None]
        return state._replace(
            chol=state.chol * tf.cast(rows, state.chol.dtype),
            age=state.age + tf.cast(ages, state.age.dtype),
        )

    def predict(self, state: Window, x: tf.Tensor) -> OneStepPrediction:
        """The sample at x `[B, D]`, given the state."""
        form, x = self.process.form, x[:, None, :]
        cross = self.process.cross(state.data(), x)
        white = tf.linalg.triangular_solve(
            state.chol, tf.concat([cross, self.targets(state)], axis=-1)
        )
        w, targets = white[..., :-1], white[..., -1:]
        mean = form.join(tf.linalg.matmul(w, targets, adjoint_a=True)[..., 0])
        prior = self.process.marginal(x)
        signal = clipped(prior.map(tf.subtract, form.marginal(w)).map(_only))
        prior = prior.map(_only)
        rounding = self.rounding(x)[:, 0]
        return OneStepPrediction(
            cross=cross,
            white=w,
            mean=self.process.plus_function(mean, x)[:, 0],
            prior=prior,
            signal=signal,
            observed=self.process.with_noise(signal),
            rounding=rounding,
            pivot=self._pivot(signal, rounding),
        )

    def _pivot(self, signal: SecondMoments, rounding: tf.Tensor) -> tf.Tensor:
        """√S, `[B, m, m]`, of a signal in noise; what rounding leaves open counts as noise."""
        k, c = self.process.with_noise(signal)
        variance = SecondMoments(k + as_complex(rounding), c)
        return tf.linalg.cholesky(self.process.form.covariance(as_matrices(variance)))

    def advance(self, state: Window, x: tf.Tensor, z: tf.Tensor) -> tuple[Window, StepTensors]:
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
        seen = ~is_nan(z)
        outcome = StepTensors(
            _result(sample.mean, sample.observed),
            tf.where(seen, z - sample.mean, nan(z.dtype)),
            _result(sample.mean, sample.signal),
        )

        def take_in():
            after, given_all = self._take_in(state, sample, x, z, seen)
            return after, outcome._replace(filtered=given_all)

        return tf.cond(tf.reduce_any(seen), take_in, lambda: (state, outcome))

    def run(self, state: Window, x: tf.Tensor, z: tf.Tensor) -> tuple[Window, StepTensors]:
        """T steps; x is `[B, T, D]`, z `[B, T]`, what is returned `[T, B]`."""
        steps = tf.shape(z)[1]
        real, complex_ = x.dtype, z.dtype
        moments = (complex_, real, complex_)
        arrays = tf.nest.map_structure(
            lambda dtype: tf.TensorArray(dtype, steps, element_shape=z.shape[:1]),
            StepTensors(moments, complex_, moments),
        )

        def body(t, state, arrays):
            state, outcome = self.advance(state, x[:, t], z[:, t])
            write = functools.partial(_write, t)
            return t + 1, state, tf.nest.map_structure(write, arrays, outcome)

        _, state, arrays = tf.while_loop(
            lambda t, *_: t < steps, body, (0, state, arrays), parallel_iterations=1
        )
        return state, tf.nest.map_structure(lambda array: array.stack(), arrays)

    # --- taking a sample in ----------------------------------------------------------------------

    def _take_in(self, state: Window, sample: OneStepPrediction, x, z, seen):
        """The state with the sample, where seen, and what it says of the signal there."""
        if self.is_growing:
            return self._append(state, sample, x, z, seen), self._updated(sample, z, seen)

        def replace():
            if self.budget is not None:
                after = self._prune(state, sample, x, z, seen, full)
                now = self.predict(after, x)
                return after, _result(now.mean, now.signal)
            after = self._slide(state, sample, x, z, full)
            if state.x.shape[0] > 1:

                def some_have_room():  # or nothing to take in
                    rest = self._append(state, sample, x, z, seen & ~full)
                    pairs = zip(after[:-1], rest[:-1], strict=True)
                    return Window(*(of_streams(full, a, b) for a, b in pairs))

                slid = after
                after = tf.cond(tf.reduce_all(full), lambda: slid, some_have_room)
            return after, self._updated(self._given_others(after, sample, z, full), z, seen)

        def append():
            return self._append(state, sample, x, z, seen), self._updated(sample, z, seen)

        full = seen & (state.size == self.capacity)
        return tf.cond(tf.reduce_any(full), replace, append)

    def _given_others(self, state: Window, sample: OneStepPrediction, z, full) -> OneStepPrediction:
        """The sample, where it has become the last point of a full state, given those before it.

        The last row of a factor is [wᴴ √S], and the last of L⁻¹ y its innovation over √S.
        """
        form, m = self.process.form, self.process.form.multiplicity
        white = tf.linalg.triangular_solve(state.chol, self.targets(state))
        pivot = state.chol[:, -m:, -m:]
        innovation = form.join(tf.linalg.matvec(pivot, white[:, -m:, 0]))[:, 0]
        variance = form.moments(tf.linalg.matmul(pivot, pivot, adjoint_b=True))
        noise = self.process.with_noise(sample.signal.map(tf.zeros_like))
        noise = SecondMoments(noise.k + as_complex(sample.rounding), noise.c)
        signal = clipped(variance.map(_only).map(_only).map(tf.subtract, noise))
        signal = signal.map(functools.partial(tf.where, full), sample.signal)
        return sample._replace(
            mean=tf.where(full, z - innovation, sample.mean),
            signal=signal,
            pivot=self._pivot(signal, sample.rounding),
        )

    def _updated(self, sample: OneStepPrediction, z, seen):
        """The signal given its own observation too: mean + G innovation, variance G R, G = Σ/S.

        A product, where the difference from the prior would lose what a small noise leaves.
        """
        form = self.process.form
        noise = self.process.with_noise(sample.signal.map(tf.zeros_like))
        signal, noise = (form.covariance(as_matrices(a)) for a in (sample.signal, noise))
        gain = tf.linalg.adjoint(tf.linalg.cholesky_solve(sample.pivot, signal))
        innovation = tf.where(seen, z - sample.mean, tf.zeros_like(z))
        mean = form.join(tf.linalg.matvec(gain, form.split(innovation[:, None])))[:, 0]
        after = form.moments(tf.linalg.matmul(gain, noise)).map(_only).map(_only)
        after = clipped(after).map(functools.partial(tf.where, seen), sample.signal)
        return _result(sample.mean + mean, after)

    def _append(self, state: Window, sample: OneStepPrediction, x, z, seen) -> Window:
        """The state with a point more, where seen; its buffers have room."""
        slot = tf.minimum(state.size, state.x.shape[1] - 1)
        basis = state.basis
        if self.budget is not None:
            basis = self.budget.append(basis, sample, slot, seen)
        return Window(
            size=state.size + tf.cast(seen, tf.int32),
            x=put(state.x, slot, x, seen),
            z=put(state.z, slot, z, seen),
            age=put(state.age, slot, tf.zeros_like(state.age[:, 0]), seen),
            chol=append_rows(state.chol, sample.white, sample.pivot, slot, seen),
            basis=basis,
        )

    def _slide(self, state: Window, sample: OneStepPrediction, x, z, full) -> Window:
        """The state with the sample in the place of the oldest point where full, else as it is."""
        m = self.process.form.multiplicity
        chol = tf.roll(state.chol, [-m, -m], axis=[1, 2])
        row = tf.concat([tf.linalg.adjoint(sample.white)[..., m:], sample.pivot], axis=-1)
        last = tf.fill([state.x.shape[0]], state.x.shape[1] - 1)
        blocks = tf.reshape(chol, [-1, state.x.shape[1], m, chol.shape[-1]])
        chol = tf.reshape(put(blocks, last, row, tf.ones_like(full)), tf.shape(chol))
        # The columns of the oldest point, which the rest of the matrix gains.
        gone = [state.chol[:, m:, :m], tf.linalg.adjoint(sample.white[:, :m])]
        gone = tf.concat(gone, axis=1)
        for j in range(m):
            chol = cholesky_update(chol, gone[..., j])
        return Window(
            size=state.size,
            x=tf.concat([state.x[:, 1:], x[:, None]], axis=1),
            z=tf.concat([state.z[:, 1:], z[:, None]], axis=1),
            age=tf.concat([state.age[:, 1:], tf.zeros_like(state.age[:, :1])], axis=1),
            chol=chol,
        )

    def _prune(self, state: Window, sample: OneStepPrediction, x, z, seen, full) -> Window:
        """The state with a point more where seen, and one less where it was full."""
        budget, m = self.budget, self.process.form.multiplicity
        assert budget is not None
        wide = Window(
            size=state.size,
            x=padded(state.x),
            z=padded(state.z),
            age=padded(state.age),
            chol=padded_chol(state.chol, m),
            basis=budget.padded(state.basis),
        )
        room = [[0, 0], [0, m], [0, 0]]
        sample = sample._replace(cross=tf.pad(sample.cross, room), white=tf.pad(sample.white, room))
        wide = self._append(wide, sample, x, z, seen)
        return budget.prune(wide, self.targets(wide), full)


def _only(a: tf.Tensor) -> tf.Tensor:
    """Without the last axis, which is of one element."""
    return a[..., 0]


def _write(t, array: tf.TensorArray, value: tf.Tensor) -> tf.TensorArray:
    return array.write(t, value)


def _result(mean: tf.Tensor, moments: SecondMoments) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    c = tf.zeros_like(mean) if moments.c is None else moments.c
    return mean, tf.math.real(moments.k), c
