"""The window recursion: a Gaussian process in a window of fixed size takes in a sample.

The window holds at most C points, with targets y and the Cholesky factor L of M = K + R, K being
the covariance of the points under the kernel and R that of their noise. With k the covariances
between the points and a new one, w = L⁻¹ k, and S = k(x, x) + σ² − wᴴ w the innovation variance,

    mean  wᴴ L⁻¹ y,    variance  S − σ² of the signal,    append  [L 0; wᴴ √S],

so one solve predicts a sample and takes it in. The policy of a window says what happens when it is
full. Real composites are ordered by point here, two rows to a point, so that a point is one block
of rows.

Forgetting, f ← √λ f + √(1−λ) f' with f' a fresh copy of the prior, correlates the past with the
present by λ^{age/2}: with D the diagonal of these weights the posterior follows from M' =
D⁻¹ (K ∘ Λ + R) D⁻¹, Λ_ij = λ^{|age_i − age_j|/2}, that is, L is divided by √λ row by row at each
step ("back to the prior", Van Vaerenbergh, Lázaro-Gredilla & Santamaría, IEEE TNNLS 23, 2012).
"""

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.distributions import Marginals, Step
from cgp.distributions.forms import SecondMoments, as_matrices, clipped
from cgp.gp.data import Data
from cgp.gp.noise import COMMON_NOISE, SampleNoise
from cgp.gp.outputs import by_outputs
from cgp.gp.posterior import Conditioned
from cgp.gp.recursive.window import OneStepPrediction, Window, append_point, put_row, repeated
from cgp.gp.signal_plus_noise import SignalPlusNoise, Whitened, log_density
from cgp.linalg import cholesky
from cgp.linalg.arguments import as_complex, complex_dtype, is_nan, nan, real_as, squared_modulus
from cgp.training.parameters import Parameter


class Policy:
    """The rule for a window that is full, and the arrays that the rule needs.

    A policy is a subclass, and one line in `RecursiveGP`. The defaults here are for a window that
    keeps its points with their targets and nothing else. The constructor of a subclass raises a
    `ValueError` for a process that it does not support.
    """

    replaces = True
    """Whether a sample can enter a full window, by `replace`."""
    is_compiled = False
    """Whether the compiled core runs the recursion with this policy."""

    def __init__(self, process: SignalPlusNoise):
        self.process = process

    def check_room(self, capacity: int, sizes: np.ndarray, coming: np.ndarray) -> None:
        """Raises a ValueError if windows of `sizes` points, `[B]`, lack room for `coming` more."""

    def room(self, window: Window, coming: tf.Tensor) -> list[tf.Operation]:
        """Assertions of a graph that windows have room for `coming` more points."""
        del window, coming
        return []

    def empty(self, chol: tf.Tensor) -> Any:
        """The arrays of the policy before any data: a named tuple of tensors, or ().

        Their first axis counts streams, as in `chol`, the factor of the empty window.
        """
        return ()

    def gram(self, data: Data) -> tf.Tensor:
        """The part of M that follows from points and hyperparameters, `[B, n, n]`."""
        return self.process.covariance(data)

    def covariance(self, window: Window, gram: tf.Tensor, weights: tf.Tensor | None) -> tf.Tensor:
        """M at the present hyperparameters, `[B, n, n]`; a gradient reaches them.

        `gram` is for the points, jitter included; the weights of forgetting are None for ones.
        """
        return gram if weights is None else gram * weights

    def refactorized(self, data: Data, gram: tf.Tensor) -> Any:
        """The arrays of the policy at present hyperparameters; arguments as for `covariance`."""
        return ()

    def check_loaded(self, recursion: "WindowRecursion", window: Window) -> bool:
        """Whether loaded factors match their points at these hyperparameters.

        False for factors that are to be recomputed; a ValueError for others that cannot be.
        """
        return recursion.is_factored(window)

    def appended(
        self, extra: Any, sample: OneStepPrediction, slot: tf.Tensor, where: tf.Tensor
    ) -> Any:
        """The arrays of the policy after a sample entered the streams `where` as point `slot`."""
        return extra

    def replace(
        self,
        recursion: "WindowRecursion",
        window: Window,
        sample: OneStepPrediction,
        z: tf.Tensor,
        is_observed: tf.Tensor,
        full: tf.Tensor,
    ) -> tuple[Window, Marginals]:
        """A sample enters, and a point leaves the windows that are full.

        `is_observed` are the streams where the sample is not missing, and `full`, at least one,
        those among them whose window is full. Returns the windows after the sample, and the signal
        at x given the sample too.
        """
        raise NotImplementedError


class Growing(Policy):
    """The policy of a window that keeps all its points, and takes no more when it is full."""

    replaces = False
    is_compiled = True

    def check_room(self, capacity: int, sizes: np.ndarray, coming: np.ndarray) -> None:
        """Raises a ValueError for observations beyond the capacity."""
        if np.any(sizes + coming > capacity):
            raise ValueError(
                f"capacity is {capacity}: a growing process that holds {np.max(sizes)} points "
                f"cannot take in {np.max(coming)} more. Make it with a larger capacity, or with "
                'policy="sliding" or policy="budget"'
            )

    def room(self, window: Window, coming: tf.Tensor) -> list[tf.Operation]:
        """Asserts that the capacity is enough."""
        capacity = window.x.shape[1]
        has_room = tf.reduce_all(window.size + coming <= capacity)
        message = f"capacity is {capacity}: a growing process takes in no more; points held, coming"
        return [tf.debugging.Assert(has_room, [message, window.size, coming])]


class WindowRecursion:
    """The recursion of a Gaussian process, its data ordered by point, over samples.

    The capacity is C, and forgetting is λ.
    """

    def __init__(self, process: SignalPlusNoise, capacity: int, policy: Policy, forgetting: float):
        self.process, self.capacity = process, capacity
        self.policy, self.forgetting = policy, forgetting

    @property
    def has_groups(self) -> bool:
        """Whether each point has a group, whose noise variance is learned."""
        return len(self.process.noise_variance.variable.shape) > 0

    def empty(self, streams: int, dimensions: int, real_dtype: str) -> Window:
        """The window of each stream before any sample."""
        real, complex_ = tf.as_dtype(real_dtype), complex_dtype(real_dtype)
        working = complex_ if self.process.is_proper else real
        rows = self.capacity * self.process.form.multiplicity
        chol = tf.eye(rows, batch_shape=[streams], dtype=working)
        dtypes_of_noise = [real, tf.int32] if self.has_groups else [real]
        return Window(
            size=tf.zeros([streams], tf.int32),
            x=tf.zeros([streams, self.capacity, dimensions], real),
            z=tf.zeros([streams, self.capacity], complex_),
            age=tf.zeros([streams, self.capacity], real),
            chol=chol,
            extra=self.policy.empty(chol),
            noise=tuple(tf.zeros([streams, self.capacity], dtype) for dtype in dtypes_of_noise),
        )

    def jitter(self, prior: SecondMoments, noise: SampleNoise = COMMON_NOISE) -> tf.Tensor:
        """The variance that rounding takes from observations at this capacity, real, `[B, N]`.

        It is added to the noise: points that are equal, or nearly, then leave a factor of full rank
        however small the noise variance. `prior` are the prior moments of the signal, `[B, N]`.
        """
        variance = tf.math.real(self.process.with_noise(prior, noise).k)
        rows = self.capacity * self.process.form.multiplicity
        # A factor of n rows loses n ε at most; twice that for a sum of n, and for good measure.
        eps = np.finfo(variance.dtype.as_numpy_dtype).eps
        return variance * tf.constant(4.0 * (rows + 2) * eps, variance.dtype)

    def jitter_of_rows(self, data: Data) -> tf.Tensor:
        """The jitter on the diagonal of working matrices, `[B, n]`; zero in unused rows."""
        m = self.process.form.multiplicity
        # A composite has a part of the variance in each row.
        jitter = self.jitter(self.process.marginal(data.x), data.noise) / m
        jitter = tf.where(data.present, jitter, tf.zeros_like(jitter))
        return repeated(jitter, m)

    def gram(self, window: Window) -> tf.Tensor:
        """The part of M that follows from points and hyperparameters, jitter included."""
        data = window.data()
        gram = self.policy.gram(data)
        jitter = real_as(self.jitter_of_rows(data), gram.dtype)
        return tf.linalg.set_diag(gram, tf.linalg.diag_part(gram) + jitter)

    def covariance(self, window: Window, gram: tf.Tensor | None = None) -> tf.Tensor:
        """M at the present hyperparameters, `[B, n, n]`: a gradient reaches them.

        `gram` is `self.gram(window)` where it is known.
        """
        gram = self.gram(window) if gram is None else gram
        if self.forgetting == 1.0:
            return self.policy.covariance(window, gram, None)
        total = self.policy.covariance(window, gram, self.forgetting_weights(window))
        # Points that have ceased to age would not fit the others: they are uncorrelated with them.
        ages = repeated(~self.is_forgotten(window), self.process.form.multiplicity)
        pair = ages[:, :, None] & ages[:, None, :]
        alone = tf.where(pair, total, tf.zeros_like(total))
        return tf.linalg.set_diag(alone, tf.linalg.diag_part(total))

    def forgetting_weights(self, window: Window) -> tf.Tensor:
        """The factors by which forgetting multiplies K, `[B, n, n]`.

        With D and Λ as above, (D⁻¹ Λ D⁻¹)_ij = λ^−min(age_i, age_j): the age of the pair.
        """
        pair = tf.minimum(window.age[:, :, None], window.age[:, None, :])
        weights = self.forgetting**-pair
        for axis in (1, 2):
            weights = repeated(weights, self.process.form.multiplicity, axis)
        return tf.cast(weights, window.chol.dtype)

    def is_forgotten(self, window: Window) -> tf.Tensor:
        """Whether a point weighs less than ε², beyond all rounding; bool, `[B, C]`."""
        eps = np.finfo(window.x.dtype.as_numpy_dtype).eps
        rows = tf.reshape(squared_modulus(window.chol), [*window.age.shape, -1])
        prior = self.process.marginal(window.x)
        prior = self.process.with_noise(prior, SampleNoise(*window.noise))
        return tf.reduce_sum(rows, axis=-1) >= tf.math.real(prior.k) / eps**2

    def targets(self, window: Window) -> tf.Tensor:
        """y, `[B, n, 1]`: targets less the mean function, times λ^{−age/2}."""
        targets = self.process.targets(window.data())
        if self.forgetting == 1.0:
            return targets
        factor = self.forgetting ** (-0.5 * window.age)
        factor = repeated(factor, self.process.form.multiplicity)
        return targets * tf.cast(factor, targets.dtype)[..., None]

    def refactorized(self, window: Window) -> Window:
        """The window with the factors that belong to the present hyperparameters."""
        gram = self.gram(window)
        chol = cholesky(self.covariance(window, gram))
        return window._replace(chol=chol, extra=self.policy.refactorized(window.data(), gram))

    def is_factored(self, window: Window) -> bool:
        """Whether, eagerly, the factor of a window matches M at the present hyperparameters."""
        return bool(tf.reduce_all(self.are_factors_of(window, self.covariance(window))))

    def are_factors_of(self, window: Window, expected: tf.Tensor) -> tf.Tensor:
        """Whether the factors of windows match covariances `[B, n, n]`; bool, `[B]`."""
        forgotten = self.is_forgotten(window)
        rows = repeated(forgotten, self.process.form.multiplicity)
        gap = tf.abs(tf.linalg.matmul(window.chol, window.chol, adjoint_b=True) - expected)
        deviation = tf.sqrt(tf.abs(tf.linalg.diag_part(expected)))
        gap /= deviation[:, :, None] * deviation[:, None, :]
        # Off the diagonal nothing depends on points that are forgotten.
        alone = (rows[:, :, None] | rows[:, None, :]) & ~tf.eye(rows.shape[-1], dtype=tf.bool)
        # Rounding grows with the steps that a factor has been through.
        tolerance = 100.0 * np.finfo(window.x.dtype.as_numpy_dtype).eps ** 0.5
        return tf.reduce_all(alone | (gap <= tolerance), axis=[1, 2])

    def conditioned(self, window: Window, chol: tf.Tensor) -> Conditioned:
        """The window, ready for predictions; `chol` is its factor, which may pass gradients."""
        white = tf.linalg.triangular_solve(chol, self.targets(window))
        return Conditioned(self.process.form, chol, Whitened(white, None, None, None))

    def step(
        self, window: Window, x: tf.Tensor, z: tf.Tensor, noise: SampleNoise = COMMON_NOISE
    ) -> tuple[Window, Step]:
        """Forgets, predicts a sample, and takes it in unless it is missing.

        Inputs are `[B, D]`, observations and noise `[B]`, and so are the tensors of the `Step`.
        """
        window = self._forget(window)
        sample = self.predict(window, x, noise)
        is_observed = ~is_nan(z)
        innovation = tf.where(is_observed, z - sample.mean, nan(z.dtype))
        signal = _marginals(sample.mean, sample.signal)
        step = Step(_marginals(sample.mean, sample.observed), innovation, signal)

        def take_in() -> tuple[Window, Step]:
            after, filtered = self._take_in(window, sample, z, is_observed)
            return after, step._replace(filtered=filtered)

        return tf.cond(tf.reduce_any(is_observed), take_in, lambda: (window, step))

    def scan(
        self, window: Window, x: tf.Tensor, z: tf.Tensor, noise: SampleNoise = COMMON_NOISE
    ) -> tuple[Window, Step]:
        """T steps; x is `[B, T, D]`, z and noise `[B, T]`, as are the tensors of the `Step`."""
        steps = tf.shape(z)[1]
        moments = Marginals(z.dtype, x.dtype, z.dtype)
        array = functools.partial(tf.TensorArray, size=steps, element_shape=z.shape[:1])
        arrays = tf.nest.map_structure(array, Step(moments, z.dtype, moments))

        def body(t: tf.Tensor, window: Window, arrays: Step) -> tuple[tf.Tensor, Window, Step]:
            of_sample = noise.map(lambda a: a[:, t])
            window, step = self.step(window, x[:, t], z[:, t], of_sample)
            arrays = tf.nest.map_structure(lambda array, a: array.write(t, a), arrays, step)
            return t + 1, window, arrays

        _, window, arrays = tf.while_loop(
            lambda t, *_: t < steps, body, (0, window, arrays), parallel_iterations=1
        )
        stacked = tf.nest.map_structure(lambda array: array.stack(), arrays)
        return window, tf.nest.map_structure(lambda a: tf.einsum("tb->bt", a), stacked)

    def _forget(self, window: Window) -> Window:
        """The window after one step back to the prior."""
        if self.forgetting == 1.0:
            return window
        ages = window.in_use & ~self.is_forgotten(window)  # it would overflow in the end
        factor = tf.where(ages, tf.constant(self.forgetting**-0.5, window.x.dtype), 1.0)
        rows = repeated(factor, self.process.form.multiplicity)[..., None]
        chol = window.chol * tf.cast(rows, window.chol.dtype)
        return window._replace(chol=chol, age=window.age + tf.cast(ages, window.age.dtype))

    def predict(self, window: Window, x: tf.Tensor, noise: SampleNoise) -> OneStepPrediction:
        """The sample at x `[B, D]` with noise `[B]`, given the window."""
        if noise.variance is None:
            noise = noise._replace(variance=tf.zeros_like(x[:, 0]))
        form, points = self.process.form, x[:, None, :]
        cross = self.process.cross(window.data(), points)
        white = tf.linalg.triangular_solve(
            window.chol, tf.concat([cross, self.targets(window)], axis=-1)
        )
        w, targets = white[..., :-1], white[..., -1:]
        mean = form.join(tf.linalg.matmul(w, targets, adjoint_a=True)[..., 0])
        prior = self.process.marginal(points)
        signal = clipped(prior.map(tf.subtract, form.marginal(w)).map(_only))
        jitter = self.jitter(prior, noise.map(lambda a: a[:, None]))[:, 0]
        return OneStepPrediction(
            x=x,
            cross=cross,
            white=w,
            mean=self.process.plus_function(mean, points)[:, 0],
            prior=prior.map(_only),
            signal=signal,
            observed=self.process.with_noise(signal, noise),
            jitter=jitter,
            pivot=self.pivot(signal, jitter, noise),
            noise=noise,
        )

    def pivot(self, signal: SecondMoments, jitter: tf.Tensor, noise: SampleNoise) -> tf.Tensor:
        """√S, `[B, m, m]`, of a signal with noise and jitter."""
        k, c = self.process.with_noise(signal, noise)
        variance = SecondMoments(k + as_complex(jitter), c)
        return tf.linalg.cholesky(self.process.form.covariance(as_matrices(variance)))

    def _take_in(
        self, window: Window, sample: OneStepPrediction, z: tf.Tensor, is_observed: tf.Tensor
    ) -> tuple[Window, Marginals]:
        """The window with the sample, where it is observed, and the signal at x given it too."""

        def append() -> tuple[Window, Marginals]:
            after = self.append(window, sample, z, is_observed)
            return after, self.filtered(sample, z, is_observed)

        if not self.policy.replaces:
            return append()
        full = is_observed & (window.size == self.capacity)

        def replace() -> tuple[Window, Marginals]:
            return self.policy.replace(self, window, sample, z, is_observed, full)

        return tf.cond(tf.reduce_any(full), replace, append)

    def append(
        self, window: Window, sample: OneStepPrediction, z: tf.Tensor, where: tf.Tensor
    ) -> Window:
        """The window with one more point in the streams `where`, bool `[B]`, which have room."""
        slot = tf.minimum(window.size, window.x.shape[1] - 1)
        row = (sample.x, z, tf.zeros_like(window.age[:, 0]), *sample.noise)
        after = window.map_points(lambda buffer, a: put_row(buffer, slot, a, where), row)
        return after._replace(
            size=window.size + tf.cast(where, tf.int32),
            chol=append_point(window.chol, sample.white, sample.pivot, slot, where),
            extra=self.policy.appended(window.extra, sample, slot, where),
        )

    def filtered(
        self, sample: OneStepPrediction, z: tf.Tensor, is_observed: tf.Tensor
    ) -> Marginals:
        """The signal given its own observation too: mean + G innovation, variance G R, G = Σ/S.

        A product, as the difference from the prior would lose the digits of a small noise.
        """
        form = self.process.form
        noise = self.process.with_noise(sample.signal.map(tf.zeros_like), sample.noise)
        signal, noise = (form.covariance(as_matrices(a)) for a in (sample.signal, noise))
        gain = tf.linalg.adjoint(tf.linalg.cholesky_solve(sample.pivot, signal))
        innovation = tf.where(is_observed, z - sample.mean, tf.zeros_like(z))
        mean = form.join(tf.linalg.matvec(gain, form.split(innovation[:, None])))[:, 0]
        after = form.moments(tf.linalg.matmul(gain, noise)).map(_only).map(_only)
        after = clipped(after).map(functools.partial(tf.where, is_observed), sample.signal)
        return _marginals(sample.mean + mean, after)

    def signal(self, window: Window, sample: OneStepPrediction) -> Marginals:
        """The signal at the place of a sample, given the window."""
        prediction = self.predict(window, sample.x, sample.noise)
        return _marginals(prediction.mean, prediction.signal)


def _only(a: tf.Tensor) -> tf.Tensor:
    """A tensor without its last axis, which has one element."""
    return a[..., 0]


def _marginals(mean: tf.Tensor, moments: SecondMoments) -> Marginals:
    return Marginals(mean, tf.math.real(moments.k), moments.c_or_zeros())


# --- blocks, and their predictive density given the window: the loss of a stream -----------------


def blocks_of(values: Data, size: int, outputs: int | None = None) -> tf.data.Dataset:
    """Blocks of `size` samples as `RecursiveGP.call` takes them; the last one may be shorter.

    Of P outputs a sample is P values.
    """
    x, z = (tf.constant(a[0] if values.is_single else a) for a in (values.x, values.z))
    noise, length = values.noise.map(tf.constant), size * (outputs or 1)

    def cut(first: tf.Tensor) -> tuple:
        of_noise = noise.map(lambda a: a[:, first : first + length])
        places, of_block = x[..., first : first + length, :], z[..., first : first + length]
        places = places if outputs is None else places[..., ::outputs, :-1]
        return ((places, by_outputs(of_block, outputs), of_noise),)

    return tf.data.Dataset.range(0, z.shape[-1], length).map(cut)


def of_each_stream(data: Data, streams: int, coordinates: int | None) -> Data:
    """A block with inputs for each stream, `[B, T, D]`; inputs that they share are repeated."""
    z = tf.ensure_shape(data.z, [streams, None])
    x = tf.broadcast_to(data.x, [streams, tf.shape(z)[1], tf.shape(data.x)[2]])
    noise = data.noise.map(lambda a: tf.broadcast_to(a, tf.shape(z)))
    return data._replace(x=tf.ensure_shape(x, [streams, None, coordinates]), z=z, noise=noise)


def block_loss(
    recursion: WindowRecursion,
    window: Window,
    chol: tf.Tensor,
    data: Data,
    parameters: Iterable[Parameter],
) -> tf.Tensor:
    """The negative log predictive density of a block per sample, less the log density of priors.

    A prior weighs as one sample among the samples of the block and of the windows before it.
    Gradients reach the hyperparameters from the factor of the windows, `chol`. Each stream has
    inputs of its own, `[B, T, D]`.
    """
    count = tf.maximum(tf.reduce_sum(data.counts), 1.0)
    loss = -tf.reduce_sum(log_predictive(recursion, window, chol, data)) / count
    points = tf.cast(tf.reduce_sum(window.size), loss.dtype)
    for parameter in parameters:
        if parameter.prior is not None:
            loss -= parameter.log_prior() / (count + points)
    return loss


def log_predictive(
    recursion: WindowRecursion, window: Window, chol: tf.Tensor, data: Data
) -> tf.Tensor:
    """The log density of a block given the windows before it, `[B]`, with gradients.

    By the chain rule it is the sum of the log densities of one-step predictions, each given the
    window and the samples of the block before it; no point leaves in between.
    """
    process, real = recursion.process, data.x.dtype
    conditioned = recursion.conditioned(window, chol)
    cross = process.in_data_order(process.cross(window.data(), data.x), axis=-1)
    v = tf.linalg.triangular_solve(chol, cross)
    covariance = process.covariance(data)
    if recursion.forgetting < 1.0:
        # The sample of step j is correlated with the window by λ^{j/2}, with the sample of step i
        # by λ^{|i−j|/2}.
        steps = tf.range(1, tf.shape(data.z)[-1] + 1)
        steps = tf.cast(repeated(steps, process.form.multiplicity), real)
        weight = tf.constant(recursion.forgetting**0.5, real)
        v *= tf.cast(weight**steps, v.dtype)
        covariance *= tf.cast(weight ** tf.abs(steps[:, None] - steps), v.dtype)
    v *= process.keep(data, v.dtype)[:, None, :]
    mean = tf.linalg.matmul(v, conditioned.white.residual, adjoint_a=True)
    covariance -= tf.linalg.matmul(v, v, adjoint_a=True)
    jitter = real_as(recursion.jitter_of_rows(data), v.dtype)
    covariance = tf.linalg.set_diag(covariance, tf.linalg.diag_part(covariance) + jitter)
    factor, residual = cholesky(tf.stop_gradient(covariance)), process.targets(data) - mean
    log_densities = log_density(covariance, residual, None, factor, process.form.scale)
    return log_densities[:, 0] - data.counts * process.form.log_normalizer
