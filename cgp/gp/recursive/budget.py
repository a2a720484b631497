"""The budget policy: a Gaussian process that keeps the points that tell most, and their posterior.

The kernel recursive least squares tracker (Van Vaerenbergh, Lázaro-Gredilla & Santamaría, IEEE
TNNLS 23, 2012) keeps the posterior of the signal at C basis points, whatever has been observed.
Here it is kept as that of C observations with correlated noise: targets y and the factor of
M = K + R, so that with P = M⁻¹ the posterior has

    mean  k(x)ᴴ a,  a = P y,    covariance  k(x, x') − k(x)ᴴ P k(x'),

as for any other policy, and a sample is taken in as for any other. A basis point is given up by
projecting it on the others: with q = K'⁻¹ K'_i its weights, T = [I, q], a' = T a and P' = T P Tᴴ.
By the inverse of a partitioned matrix that is

    P' = M'⁻¹ + p v vᴴ,    a' = M'⁻¹ y' + v a_i,    v = q + P_i / p,

with the row of i taken out of M', y', P_i and p = P_ii: first the observation is dropped, then what
it said of the others is put back as a Kalman update of (y', M'), a measurement of vᴴ y' with value
a_i/p and noise 1/p. Both keep the factor's form, without a subtraction.

Which point: the one whose loss changes the posterior mean least in the norm of the kernel, by
|a_i|² / [K⁻¹]_ii, as there. K has no noise, and so may well be singular; a small part of the noise
is therefore counted among the signal at the basis, K_ε = K + ε I. What is given up is the same part
of what a pruned point has said.

When hyperparameters change, K becomes that of the new ones, and R stays as it has become, in units
of the noise. It is found as M − K, and so loses the digits by which it is smaller than K: where the
noise variance is 1e-10 of the signal's, or 1e-3 in single precision, half of them.
"""

import tensorflow as tf

from cgp.distributions.forms import SecondMoments, as_matrices, clipped
from cgp.gp.data import Data
from cgp.gp.recursive.one_step_prediction import OneStepPrediction
from cgp.gp.recursive.window import (
    BudgetBasis,
    Window,
    append_rows,
    of_streams,
    padded_chol,
    put,
    without,
)
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.linalg import cholesky, cholesky_condition, cholesky_remove, inverse, solve

# The part of the noise that counts as signal at the basis, ε / σ². A smaller one keeps more of what
# a pruned point has said, a larger one K_ε of nearly equal points better conditioned: of equal
# points it costs 5e-4 of the variance.
NUGGET = 1e-4


class Budget:
    """How the basis of a process is kept, and which point is given up.

    Args:
        process: The process, its data ordered by point.
    """

    def __init__(self, process: SignalPlusNoise):
        self.process, self.m = process, process.form.multiplicity

    def empty(self, chol: tf.Tensor) -> BudgetBasis:
        """The basis of no points; `chol` is the factor of the empty state."""
        streams, n = chol.shape[:2]
        precision = tf.eye(self.m, batch_shape=[streams, n // self.m], dtype=chol.dtype)
        return BudgetBasis(chol, precision, tf.eye(self.m, dtype=chol.dtype))

    def padded(self, basis: BudgetBasis) -> BudgetBasis:
        """The basis with room for one point more."""
        unit = tf.eye(self.m, dtype=basis.noise.dtype) + tf.zeros_like(basis.precision[:, :1])
        return basis._replace(
            chol=padded_chol(basis.chol, self.m),
            precision=tf.concat([basis.precision, unit], axis=1),
        )

    # --- hyperparameters -------------------------------------------------------------------------

    def basis(self, data: Data, gram: tf.Tensor) -> BudgetBasis:
        """The basis of points at the present hyperparameters.

        Args:
            data: The points.
            gram: K, rounding included, `[B, n, n]`; zero where no point is.
        """
        gram += self._nugget(self._noise(data.z.dtype), data)
        unused = self._unused(data, gram.dtype)
        chol = cholesky(tf.linalg.set_diag(gram, tf.linalg.diag_part(gram) + unused))
        blocks = tf.reshape(inverse(chol), [-1, *[data.x.shape[1], self.m] * 2])
        return BudgetBasis(chol, tf.einsum("bimin->bimn", blocks), self._noise(data.z.dtype))

    def covariance(self, state: Window, gram: tf.Tensor, weights: tf.Tensor | None) -> tf.Tensor:
        """M at the present hyperparameters, `[B, n, n]`, with gradients.

        R, in units of the noise of one point, stays as it has become.

        Args:
            state: A state whose factors belong together, be it to other hyperparameters.
            gram: K at the present ones, `[B, n, n]`.
            weights: What K is multiplied with for what has been forgotten, `[B, n, n]`, or None.
        """
        data, basis = state.data(), state.basis
        before = tf.linalg.matmul(basis.chol, basis.chol, adjoint_b=True)
        before -= self._nugget(basis.noise, data)
        if weights is not None:
            before, gram = before * weights, gram * weights
        # What this difference loses of R is relative to K.
        rest = tf.linalg.matmul(state.chol, state.chol, adjoint_b=True) - before
        rest = 0.5 * (rest + tf.linalg.adjoint(rest))
        # B, positive, takes the noise of then to that of now, N = B N_then B, and R
        # with it at each point: B = S⁻¹ (S N S)^½ S⁻¹ with S = N_then^½.
        noise = self._noise(data.z.dtype)
        power, power_then = tf.linalg.trace(noise), tf.linalg.trace(basis.noise)
        root = _square_root(basis.noise / power_then)  # of unit power: no product overflows
        inner = tf.linalg.matmul(root, tf.linalg.matmul(noise / power, root))
        turn = tf.linalg.solve(root, _square_root(inner))
        turn = tf.linalg.adjoint(tf.linalg.solve(root, tf.linalg.adjoint(turn)))
        turn *= tf.sqrt(power / power_then)
        blocks = tf.reshape(tf.stop_gradient(rest), [-1, *[data.x.shape[1], self.m] * 2])
        blocks = tf.einsum("ac,bicjd,ed->biaje", turn, blocks, tf.math.conj(turn))
        unused = self._unused(data, gram.dtype)
        keep = (1.0 - unused[:, :, None]) * (1.0 - unused[:, None, :])
        total = gram + keep * tf.reshape(blocks, tf.shape(gram))
        return tf.linalg.set_diag(total, tf.linalg.diag_part(total) + unused)

    def _noise(self, dtype: tf.DType) -> tf.Tensor:
        """The working covariance of the noise of one point, `[m, m]`; `dtype` is complex."""
        moments = self.process.with_noise(SecondMoments(tf.zeros([], dtype)))
        return self.process.form.covariance(as_matrices(moments))

    def _nugget(self, noise: tf.Tensor, data: Data) -> tf.Tensor:
        """ε at each point and zero elsewhere, `[B, n, n]`."""
        each = tf.linalg.diag(tf.cast(data.present, noise.dtype))
        n = self.m * data.x.shape[1]
        return tf.reshape(NUGGET * each[:, :, None, :, None] * noise[:, None, :], [-1, n, n])

    def _unused(self, data: Data, dtype: tf.DType) -> tf.Tensor:
        """1 where no point is, else 0, `[B, n]`."""
        return tf.repeat(tf.cast(~data.present, dtype), self.m, axis=-1)

    # --- a point enters, a point leaves ----------------------------------------------------------

    def append(
        self, basis: BudgetBasis, sample: OneStepPrediction, slot: tf.Tensor, where: tf.Tensor
    ) -> BudgetBasis:
        """The basis with the point of a sample in the place `slot`, `[B]`, where bool `[B]`."""
        form, m = self.process.form, self.m
        white = tf.linalg.triangular_solve(basis.chol, sample.cross)
        rest = sample.prior.map(lambda a, b: a - b[:, 0], form.marginal(white))
        nugget = NUGGET * self._noise(sample.mean.dtype)
        rest = form.covariance(as_matrices(clipped(rest))) + nugget
        rounding = tf.cast(tf.repeat(sample.rounding[:, None] / m, m, axis=-1), rest.dtype)
        pivot = tf.linalg.cholesky(tf.linalg.set_diag(rest, tf.linalg.diag_part(rest) + rounding))
        # The inverse of the larger matrix is K⁻¹ + g gᴴ, g = L⁻ᴴ w pivot⁻ᴴ, and beside it the new
        # block, pivot⁻ᴴ pivot⁻¹.
        g = tf.linalg.adjoint(tf.linalg.triangular_solve(basis.chol, white, adjoint=True))
        g = tf.linalg.adjoint(tf.linalg.triangular_solve(pivot, g))
        g = tf.reshape(g, tf.shape(basis.precision))
        g = of_streams(where, g, tf.zeros_like(g))
        precision = basis.precision + tf.linalg.matmul(g, g, adjoint_b=True)
        root = tf.linalg.triangular_solve(pivot, tf.eye(m, dtype=pivot.dtype) + 0.0 * pivot)
        new = tf.linalg.matmul(root, root, adjoint_a=True)
        return basis._replace(
            chol=append_rows(basis.chol, white, pivot, slot, where),
            precision=put(precision, slot, new, where),
        )

    def prune(self, state: Window, targets: tf.Tensor, full: tf.Tensor) -> Window:
        """The state without the point whose loss costs least where full, else without its last row.

        Args:
            state: In buffers with room for a point more than they are to have.
            targets: Its y, `[B, n, 1]`.
            full: Whether that point is there, bool `[B]`.
        """
        m, points = self.m, state.x.shape[1]
        basis = state.basis
        dual = tf.reshape(solve(state.chol, targets), [-1, points, m, 1])
        index = self._least(state, dual, full)
        unit = tf.one_hot(index, points, dtype=targets.dtype)[:, :, None, None]
        unit = tf.reshape(unit * tf.eye(m, dtype=targets.dtype), [-1, points * m, m])

        def block(columns):  # rows i
            return tf.gather(tf.reshape(columns, [-1, points, m, m]), index, batch_dims=1)

        # With p = F Fᴴ, v p vᴴ is u uᴴ, u = v F, and F⁻¹ a_i measures uᴴ y with unit noise.
        column, prior = solve(state.chol, unit), solve(basis.chol, unit)
        factor, prior_factor = tf.linalg.cholesky(block(column)), tf.linalg.cholesky(block(prior))
        # w wᴴ is what the inverse of K_ε loses with row and column i, so −q = w prior_factor⁻¹.
        w = tf.linalg.adjoint(tf.linalg.triangular_solve(prior_factor, tf.linalg.adjoint(prior)))
        u = tf.linalg.adjoint(tf.linalg.triangular_solve(factor, tf.linalg.adjoint(column)))
        u -= tf.linalg.matmul(w, tf.linalg.triangular_solve(prior_factor, factor))
        values = tf.linalg.triangular_solve(factor, tf.gather(dual, index, batch_dims=1))

        def left(columns):  # without rows i
            return without(tf.reshape(columns, [-1, points, m, columns.shape[-1]]), index)

        chol, basis_chol = state.chol, basis.chol
        for _ in range(m):
            chol = cholesky_remove(chol, m * index)
            basis_chol = cholesky_remove(basis_chol, m * index)
        u, targets = (
            tf.reshape(left(a), [-1, (points - 1) * m, a.shape[-1]]) for a in (u, targets)
        )
        targets = targets[..., 0]
        for j in range(m):
            h = tf.math.conj(u[..., j])
            said = values[:, j, 0] - tf.reduce_sum(h * targets, axis=-1)
            chol, gain, _ = cholesky_condition(chol, h, 1.0)
            targets += gain * said[:, None]

        x, w = without(state.x, index), left(w)
        z = self.process.plus_function(self.process.complex_targets(targets), x)
        precision = without(basis.precision, index) - tf.linalg.matmul(w, w, adjoint_b=True)
        age = without(state.age, index)
        return Window(
            size=state.size - tf.cast(full, tf.int32),
            x=x,
            z=of_streams(full, z, state.z[:, :-1]),
            # From now on what had been forgotten of K is a part of R, and z is y.
            age=of_streams(full, tf.zeros_like(age), age),
            chol=chol,
            basis=BudgetBasis(basis_chol, precision, basis.noise),
        )

    def _least(self, state: Window, dual: tf.Tensor, full: tf.Tensor) -> tf.Tensor:
        """The point whose loss costs least; where not full, the last row of the buffers, `[B]`."""
        precision = state.basis.precision
        solved = tf.linalg.solve(precision, dual)
        loss = tf.math.real(tf.reduce_sum(tf.math.conj(dual) * solved, axis=[2, 3]))
        least = tf.argmin(loss, axis=-1, output_type=tf.int32)
        return tf.where(full, least, state.x.shape[1] - 1)


def _square_root(a: tf.Tensor) -> tf.Tensor:
    """The positive square root of a positive 1 x 1 or 2 x 2 matrix.

    By the theorem of Cayley and Hamilton (A + √|A| I) / √(tr A + 2 √|A|) in two dimensions, which
    may be differentiated where eigenvalues are equal.
    """
    if a.shape[-1] == 1:
        return tf.sqrt(a)
    root = tf.sqrt(tf.linalg.det(a))
    return (a + root * tf.eye(2, dtype=a.dtype)) / tf.sqrt(tf.linalg.trace(a) + 2.0 * root)
