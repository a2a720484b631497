"""The budget policy: a full window prunes its least informative point, and keeps the information.

The kernel recursive least squares tracker (Van Vaerenbergh, Lázaro-Gredilla & Santamaría, IEEE
TNNLS 23, 2012) keeps the posterior of the signal at C basis points, whatever has been observed.
Here it is kept as the posterior given C observations with correlated noise: targets y and the
factor of M = K + R, so that with P = M⁻¹ the posterior has

    mean  k(x)ᴴ a,  a = P y,    covariance  k(x, x') − k(x)ᴴ P k(x'),

as under any other policy, and a sample is taken in likewise. A basis point is pruned by
projecting it on the others: with q = K'⁻¹ K'_i its weights, T = [I, q], a' = T a and P' = T P Tᴴ.
By the inverse of a partitioned matrix that is

    P' = M'⁻¹ + p v vᴴ,    a' = M'⁻¹ y' + v a_i,    v = q + P_i / p,

with the row of i taken out of M', y', P_i and p = P_ii: first the observation is dropped, then its
information on the others is put back as a Kalman update of (y', M'), a measurement of vᴴ y' with
value a_i/p and noise 1/p. Both keep the form of the factor, without a subtraction.

The point that is pruned is the one whose loss changes the posterior mean least in the norm of the
kernel, by |a_i|² / [K⁻¹]_ii, as in that paper. K has no noise, and so may well be singular; a small
part of the noise, the nugget ε, is therefore counted as signal at the basis, K_ε = K + ε I. The
same part of the information of a pruned point is lost.

When hyperparameters change, K is computed anew, and R stays unchanged in units of the noise. R is
computed as M − K, and so loses the digits by which it is smaller than K: half of them where the
noise variance is 1e-10 of the signal's, or 1e-3 in single precision.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.distributions import Marginals
from cgp.distributions.forms import SecondMoments, as_matrices, clipped
from cgp.gp.data import Data
from cgp.gp.noise import COMMON_NOISE, SampleNoise
from cgp.gp.recursive.window import (
    OneStepPrediction,
    Window,
    append_point,
    put_row,
    repeated,
    select_streams,
)
from cgp.gp.recursive.window_recursion import Policy, WindowRecursion
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.linalg import cholesky, cholesky_condition, cholesky_remove, inverse, solve
from cgp.linalg.arguments import as_complex, squared_modulus

# ε / σ², the part of the noise that counts as signal at the basis. A smaller one keeps more of the
# information of a pruned point, a larger one makes K_ε of nearly equal points better conditioned:
# for equal points it costs 5e-4 of the variance.
NUGGET = 1e-4


class BasisPrior(NamedTuple):
    """The prior of the signal at the basis points, and the noise that belongs to it."""

    prior_chol: tf.Tensor
    """The factor of K_ε, `[B, n, n]`."""
    prior_precision: tf.Tensor
    """The diagonal blocks of K_ε⁻¹, `[B, C, m, m]`."""
    noise: tf.Tensor
    """The covariance of the learned noise of one point when the factors were computed,
    `[B, m, m]`; in a model of several groups one for each, `[B, G, m, m]`."""


class Budget(Policy):
    """The policy of a window that prunes the least informative point; arguments as for `Policy`."""

    def __init__(self, process: SignalPlusNoise):
        super().__init__(process)
        self.m = process.form.multiplicity
        if process.noise_scale is not None:  # R is in units of the learned noise
            raise ValueError(
                'policy="budget" has no noise_scale: give noise variances times a scale, which an '
                "ExactGP or StateSpaceGP learns"
            )
        if process.noise_circularity is not None:
            variance = float(np.ravel(process.learned_noise_variance())[0])
            circularity = complex(process.noise_circularity)
            if abs(circularity) > 1.0 - 1e-6:
                raise ValueError(
                    'policy="budget" needs noise in all directions: noise_pseudo_variance must be '
                    f"below noise_variance in modulus, got {circularity * variance} and {variance}"
                )

    def empty(self, chol: tf.Tensor) -> BasisPrior:
        """The prior of a basis without points."""
        streams, n = chol.shape[:2]
        precision = tf.eye(self.m, batch_shape=[streams, n // self.m], dtype=chol.dtype)
        groups = list(self.process.noise_variance.variable.shape)
        noise = tf.eye(self.m, batch_shape=[streams, *groups], dtype=chol.dtype)
        return BasisPrior(chol, precision, noise)

    def gram(self, data: Data) -> tf.Tensor:
        """K, the covariance of the signal at the basis points, `[B, n, n]`."""
        return self.process.signal_covariance(data)

    def refactorized(self, data: Data, gram: tf.Tensor) -> BasisPrior:
        """The prior of the basis at the present hyperparameters."""
        noise = self._learned_noise(data.z.dtype)
        of_points = self._of_points(noise, data.noise)
        gram += self._nugget(of_points, data)
        diagonal = tf.linalg.diag_part(gram) + self._unused(data, gram.dtype)
        chol = cholesky(tf.linalg.set_diag(gram, diagonal))  # of K_ε; 1 in unused rows
        blocks = tf.reshape(inverse(chol), [-1, *[data.x.shape[1], self.m] * 2])
        of_streams = tf.repeat(noise[None], tf.shape(chol)[0], axis=0)
        return BasisPrior(chol, tf.einsum("bimin->bimn", blocks), of_streams)

    def covariance(self, window: Window, gram: tf.Tensor, weights: tf.Tensor | None) -> tf.Tensor:
        """M at the present hyperparameters; R, in units of the noise of one point, is unchanged.

        The factors of the window belong together, and may belong to other hyperparameters.
        """
        data, basis = window.data(), window.extra
        before = tf.linalg.matmul(basis.prior_chol, basis.prior_chol, adjoint_b=True)
        noise_then = self._of_points(basis.noise, data.noise, batch_dims=1)
        before -= self._nugget(noise_then, data)
        if weights is not None:
            before, gram = before * weights, gram * weights
        # This difference loses digits of R in proportion to K.
        noise_covariance = tf.linalg.matmul(window.chol, window.chol, adjoint_b=True) - before
        noise_covariance = 0.5 * (noise_covariance + tf.linalg.adjoint(noise_covariance))
        # A positive B maps the noise of then to the present noise, N = B N_then B, and R with it at
        # each point: B = S⁻¹ (S N S)^½ S⁻¹ with S = N_then^½.
        noise = self._of_points(self._learned_noise(data.z.dtype), data.noise)
        power, power_then = (tf.linalg.trace(a)[..., None, None] for a in (noise, noise_then))
        root = _square_root(noise_then / power_then)  # of unit power: no product overflows
        inner = tf.linalg.matmul(root, tf.linalg.matmul(noise / power, root))
        turn = tf.linalg.solve(root, _square_root(inner))
        turn = tf.linalg.adjoint(tf.linalg.solve(root, tf.linalg.adjoint(turn)))
        turn *= tf.sqrt(power / power_then)
        blocks = tf.reshape(noise_covariance, [-1, *[data.x.shape[1], self.m] * 2])
        blocks = tf.einsum("biac,bicjd,bjed->biaje", turn, blocks, tf.math.conj(turn))
        unused = self._unused(data, gram.dtype)
        keep = (1.0 - unused[:, :, None]) * (1.0 - unused[:, None, :])
        total = gram + keep * tf.reshape(blocks, tf.shape(gram))
        return tf.linalg.set_diag(total, tf.linalg.diag_part(total) + unused)

    def check_loaded(self, recursion: WindowRecursion, window: Window) -> bool:
        """Whether factors match their points; an error if not, as R cannot be recomputed."""
        # Without forgetting, R is at most the noise of one observation.
        variance = tf.math.real(tf.linalg.diag_part(recursion.gram(window)))
        noise = tf.math.real(tf.linalg.diag_part(recursion.process.covariance(window.data())))
        total = tf.reduce_sum(squared_modulus(window.chol), axis=-1)
        is_possible = tf.reduce_all(total > 0.999 * variance)
        if recursion.forgetting == 1.0:
            is_possible &= tf.reduce_all(total < 1.001 * noise)
        else:
            is_possible &= tf.reduce_all(self._may_be_pruned(recursion, window))
        if not is_possible or not recursion.is_factored(window):
            raise ValueError(
                "the saved window is damaged: its factors are not those of its points at the saved "
                "hyperparameters, and a budget cannot be recomputed from its points"
            )
        return True

    def _may_be_pruned(self, recursion: WindowRecursion, window: Window) -> tf.Tensor:
        """Whether a point has been pruned, or M is the covariance of all observations; bool, `[B]`.

        Pruning needs a full window, and leaves points of one age, which forgetting then increases
        equally as long as no point is beyond all rounding.
        """
        data, forgotten = window.data(), recursion.is_forgotten(window)
        one_age = tf.reduce_all(window.age == window.age[:, :1], axis=-1)
        pruned = (window.size == recursion.capacity) & one_age
        whole = super().gram(data)
        jitter = tf.cast(recursion.jitter_of_rows(data), whole.dtype)
        whole = tf.linalg.set_diag(whole, tf.linalg.diag_part(whole) + jitter)
        whole *= recursion.forgetting_weights(window)
        alike = recursion.are_factors_of(window, whole)
        return pruned | tf.reduce_any(forgotten, axis=-1) | alike

    def _learned_noise(self, dtype: tf.DType) -> tf.Tensor:
        """The working covariance of the learned noise of one point, `[m, m]`, or `[G, m, m]`.

        `dtype` is complex.
        """
        groups = self.process.noise_variance.variable.shape
        of_each = SampleNoise(None, tf.range(groups[0])) if len(groups) else COMMON_NOISE
        moments = self.process.with_noise(SecondMoments(tf.zeros([], dtype)), of_each)
        return self.process.form.covariance(as_matrices(moments))

    def _of_points(self, learned: tf.Tensor, noise: SampleNoise, batch_dims: int = 0) -> tf.Tensor:
        """The working covariances of the noise of points, `[..., m, m]`, known parts `[...]`.

        `learned` is the learned noise of one point, or of each group; `batch_dims` is 1 where each
        stream has a learned noise of its own, else 0.
        """
        if noise.group is not None:
            learned = tf.gather(learned, noise.group, batch_dims=batch_dims)
        elif batch_dims:
            learned = learned[:, None]
        circular = SecondMoments(as_complex(noise.variance), None)
        return learned + self.process.form.covariance(as_matrices(circular))

    def _nugget(self, noise: tf.Tensor, data: Data) -> tf.Tensor:
        """ε at each point, whose noise is `[B, C, m, m]`, and zero elsewhere, `[B, n, n]`."""
        each = tf.linalg.diag(tf.cast(data.present, noise.dtype))
        n = self.m * data.x.shape[1]
        blocks = NUGGET * each[:, :, None, :, None] * noise[:, :, :, None, :]
        return tf.reshape(blocks, [-1, n, n])

    def _unused(self, data: Data, dtype: tf.DType) -> tf.Tensor:
        """1 in rows without a point, else 0, `[B, n]`."""
        return repeated(tf.cast(~data.present, dtype), self.m)

    def appended(
        self, extra: BasisPrior, sample: OneStepPrediction, slot: tf.Tensor, where: tf.Tensor
    ) -> BasisPrior:
        """The prior of the basis with one more point."""
        form, m = self.process.form, self.m
        white = tf.linalg.triangular_solve(extra.prior_chol, sample.cross)
        conditional = sample.prior.map(lambda a, b: a - b[:, 0], form.marginal(white))
        nugget = NUGGET * self._of_points(self._learned_noise(sample.mean.dtype), sample.noise)
        conditional = form.covariance(as_matrices(clipped(conditional))) + nugget
        jitter = tf.cast(repeated(sample.jitter[:, None] / m, m), conditional.dtype)
        diagonal = tf.linalg.diag_part(conditional) + jitter
        pivot = tf.linalg.cholesky(tf.linalg.set_diag(conditional, diagonal))
        # The inverse of the larger matrix is K⁻¹ + g gᴴ, g = L⁻ᴴ w pivot⁻ᴴ, and beside it the new
        # block, pivot⁻ᴴ pivot⁻¹.
        g = tf.linalg.adjoint(tf.linalg.triangular_solve(extra.prior_chol, white, adjoint=True))
        g = tf.linalg.adjoint(tf.linalg.triangular_solve(pivot, g))
        g = tf.reshape(g, tf.shape(extra.prior_precision))
        g = select_streams(where, g, tf.zeros_like(g))
        precision = extra.prior_precision + tf.linalg.matmul(g, g, adjoint_b=True)
        root = tf.linalg.triangular_solve(pivot, tf.eye(m, dtype=pivot.dtype) + 0.0 * pivot)
        new = tf.linalg.matmul(root, root, adjoint_a=True)
        chol = append_point(extra.prior_chol, white, pivot, slot, where)
        precision = put_row(precision, slot, new, where)
        return BasisPrior(chol, precision, extra.noise)

    def replace(
        self,
        recursion: WindowRecursion,
        window: Window,
        sample: OneStepPrediction,
        z: tf.Tensor,
        is_observed: tf.Tensor,
        full: tf.Tensor,
    ) -> tuple[Window, Marginals]:
        """Appends the sample, and then prunes the least informative point."""
        room = [[0, 0], [0, self.m], [0, 0]]
        larger = sample._replace(cross=tf.pad(sample.cross, room), white=tf.pad(sample.white, room))
        larger_window = recursion.append(self._padded(window), larger, z, is_observed)
        after = self._prune(larger_window, recursion.targets(larger_window), full)
        return after, recursion.signal(after, sample)

    def _padded(self, window: Window) -> Window:
        """The window with room for one more point."""
        basis = window.extra
        unit = tf.eye(self.m, dtype=basis.noise.dtype) + tf.zeros_like(basis.prior_precision[:, :1])
        chol, prior_chol = (_padded_chol(a, self.m) for a in (window.chol, basis.prior_chol))
        precision = tf.concat([basis.prior_precision, unit], axis=1)
        basis = BasisPrior(prior_chol, precision, basis.noise)
        return window.map_points(_padded)._replace(chol=chol, extra=basis)

    def _prune(self, window: Window, targets: tf.Tensor, full: tf.Tensor) -> Window:
        """The window without its least informative point where full, else without its last row.

        The buffers have room for one point more than is to stay, and hold it where `full`; the
        targets are y, `[B, n, 1]`.
        """
        m, points = self.m, window.x.shape[1]
        basis = window.extra
        dual = tf.reshape(solve(window.chol, targets), [-1, points, m, 1])
        index = self._least_informative(window, dual, full)
        unit = tf.one_hot(index, points, dtype=targets.dtype)[:, :, None, None]
        unit = tf.reshape(unit * tf.eye(m, dtype=targets.dtype), [-1, points * m, m])

        def block(columns: tf.Tensor) -> tf.Tensor:  # rows i
            return tf.gather(tf.reshape(columns, [-1, points, m, m]), index, batch_dims=1)

        # With p = F Fᴴ, v p vᴴ is u uᴴ, u = v F, and F⁻¹ a_i measures uᴴ y with unit noise.
        column, prior = solve(window.chol, unit), solve(basis.prior_chol, unit)
        factor, prior_factor = tf.linalg.cholesky(block(column)), tf.linalg.cholesky(block(prior))
        # The inverse of K_ε loses w wᴴ with row and column i, so −q = w prior_factor⁻¹.
        w = tf.linalg.adjoint(tf.linalg.triangular_solve(prior_factor, tf.linalg.adjoint(prior)))
        u = tf.linalg.adjoint(tf.linalg.triangular_solve(factor, tf.linalg.adjoint(column)))
        u -= tf.linalg.matmul(w, tf.linalg.triangular_solve(prior_factor, factor))
        measurements = tf.linalg.triangular_solve(factor, tf.gather(dual, index, batch_dims=1))

        def without_point(columns: tf.Tensor) -> tf.Tensor:  # without rows i
            return _without(tf.reshape(columns, [-1, points, m, columns.shape[-1]]), index)

        factors = tf.concat([window.chol, basis.prior_chol], axis=0)
        for _ in range(m):
            factors = cholesky_remove(factors, tf.concat([m * index] * 2, axis=0))
        chol, prior_chol = tf.split(factors, 2)
        u, targets = (
            tf.reshape(without_point(a), [-1, (points - 1) * m, a.shape[-1]]) for a in (u, targets)
        )
        targets = targets[..., 0]
        for j in range(m):
            h = tf.math.conj(u[..., j])
            innovation = measurements[:, j, 0] - tf.reduce_sum(h * targets, axis=-1)
            chol, gain, _ = cholesky_condition(chol, h, 1.0)
            targets += gain * innovation[:, None]

        w, after = without_point(w), window.map_points(lambda a: _without(a, index))
        z = self.process.plus_function(self.process.complex_targets(targets), after.x)
        precision = _without(basis.prior_precision, index)
        precision -= tf.linalg.matmul(w, w, adjoint_b=True)
        return after._replace(
            size=window.size - tf.cast(full, tf.int32),
            z=select_streams(full, z, window.z[:, :-1]),
            # From now on the forgotten part of K is a part of R, and z is y.
            age=select_streams(full, tf.zeros_like(after.age), after.age),
            chol=chol,
            extra=BasisPrior(prior_chol, precision, basis.noise),
        )

    def _least_informative(self, window: Window, dual: tf.Tensor, full: tf.Tensor) -> tf.Tensor:
        """The point whose loss costs least; where not full, the last row of the buffers, `[B]`."""
        precision = window.extra.prior_precision
        solved = tf.linalg.solve(precision, dual)
        loss = tf.math.real(tf.reduce_sum(tf.math.conj(dual) * solved, axis=[2, 3]))
        least = tf.argmin(loss, axis=-1, output_type=tf.int32)
        return tf.where(full, least, window.x.shape[1] - 1)


def _padded(buffer: tf.Tensor) -> tf.Tensor:
    """A buffer `[B, C, ...]` with room for one more point."""
    return tf.pad(buffer, [[0, 0], [0, 1]] + [[0, 0]] * (buffer.shape.rank - 2))


def _padded_chol(chol: tf.Tensor, m: int) -> tf.Tensor:
    """A factor `[B, n, n]` with room for one more point, of m rows."""
    streams, n = chol.shape[:2]
    ones = np.array([[b, n + j, n + j] for b in range(streams) for j in range(m)])
    chol = tf.pad(chol, [[0, 0], [0, m], [0, m]])
    # In place, where setting the diagonal would copy all.
    return tf.tensor_scatter_nd_update(chol, ones, tf.ones(len(ones), chol.dtype))


def _without(buffer: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    """A buffer `[B, C, ...]` without the row `index`, `[B]`; later ones move up."""
    stays = tf.range(buffer.shape[1] - 1) < index[:, None]
    stays = tf.reshape(stays, [-1, buffer.shape[1] - 1] + [1] * (buffer.shape.rank - 2))
    return tf.where(stays, buffer[:, :-1], buffer[:, 1:])


def _square_root(a: tf.Tensor) -> tf.Tensor:
    """The positive square root of positive definite 1 x 1 or 2 x 2 matrices.

    In two dimensions (A + √|A| I) / √(tr A + 2 √|A|), by the Cayley-Hamilton theorem, which has a
    derivative also where eigenvalues are equal.
    """
    if a.shape[-1] == 1:
        return tf.sqrt(a)
    root = tf.sqrt(tf.linalg.det(a))[..., None, None]
    trace = tf.linalg.trace(a)[..., None, None]
    return (a + root * tf.eye(2, dtype=a.dtype)) / tf.sqrt(trace + 2.0 * root)
