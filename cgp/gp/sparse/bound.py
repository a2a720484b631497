"""The collapsed bound of inducing points, and the posterior that belongs to it.

The values of the signal at m inducing points, u, stand for all of it: Q = K_fu K_uu⁻¹ K_uf is the
covariance of the signal that u explains. Titsias (AISTATS 2009, eq. 9) bounds the log marginal
likelihood from below, here for a complex signal with noise covariance Σ, diagonal but for the
pseudo-variances of improper noise,

    log p ≥ log N(y; 0, Q + Σ) − s tr(Σ⁻¹ (K − Q)),

s being 1 for a proper complex normal and ½ for the real composite. With L Lᴴ = K_uu everything is
computed from whitened covariances A = L⁻¹ K_uf Σ^−½ and targets y ← Σ^−½ y:

    Λ = I + A Aᴴ,    b = A y,
    bound = −s (yᴴ y − bᴴ Λ⁻¹ b + log|Λ| + log|Σ| + tr(Σ⁻¹ K) − tr(A Aᴴ)) + constant,

by the determinant lemma and the inverse of Woodbury, as tr(Σ⁻¹ Q) = tr(A Aᴴ). The posterior of the
signal is (Titsias, 2009), with V = L⁻¹ k(u, x),

    mean Vᴴ Λ⁻¹ b,    covariance k − Vᴴ V + Vᴴ Λ⁻¹ V.

Data enter through sums over samples alone. They are taken chunk by chunk, and so is their gradient,
which needs no intermediate of the first pass: with cotangents Ḡ of A Aᴴ, b̄ of b, and H = Ḡ + Ḡᴴ,

    Ā = H A + b̄ yᴴ,    cotangent of K_uf Σ^−½ = L⁻ᴴ Ā,    of L = −L⁻ᴴ (H A Aᴴ + b̄ bᴴ),

so that memory is that of a chunk, and the last of these needs no sum over samples.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.distributions.forms import Form, SecondMoments
from cgp.gp.data import Data
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.gp.sparse.inducing_points import carrier_at, inducing_factor, turned
from cgp.linalg import cholesky, log_det
from cgp.linalg.arguments import as_complex, real_as, squared_modulus
from cgp.linalg.gradients import of_first_order, without_tape

_UNEXPLAINED = 0.1  # of the variance of the signal at the data
_CHUNK, _SMALLEST = 1024, 64  # samples of all series together, and of each of many


class Sums(NamedTuple):
    """Sums over the samples of data, of G covariances and S series to each.

    Without the carrier of the kernel they are real, of 2S series.
    """

    gram: tf.Tensor
    """A Aᴴ, working, `[G, m, m]`."""
    vector: tf.Tensor
    """b, working, `[G, m, S]`."""
    power: tf.Tensor
    """yᴴ y, real, `[G, S]`."""
    log_det: tf.Tensor
    """log|Σ|, real, `[G]`."""
    signal: tf.Tensor
    """tr(Σ⁻¹ K), real, `[G]`."""


class WhiteSamples(NamedTuple):
    """Samples whose noise is whitened."""

    cross: tf.Tensor
    """K_uf Σ^−½, working, `[G, m, n]`; zero where missing."""
    targets: tf.Tensor
    """Σ^−½ y, working, `[G, S, n]`; zero where missing."""
    log_det: tf.Tensor
    """log|Σ|, real, `[G]`."""
    signal: tf.Tensor
    """tr(Σ⁻¹ K), real, `[G]`."""


def white_samples(
    process: SignalPlusNoise, data: Data, inducing: tf.Tensor, without_carrier: bool = False
) -> WhiteSamples:
    """The samples of data beside inducing points `[m, D]`.

    Without the carrier of the kernel they are real, with 2S targets: the real parts of all series,
    then the imaginary ones.
    """
    form, keep = process.form, data.keep
    no_variance = SecondMoments(as_complex(tf.zeros_like(data.x[:1, :, 0])))
    # Where there is no sample, the noise is 1 and its weight 0.
    k, c = process.with_noise(no_variance, data.noise)
    noise = SecondMoments(tf.where(keep, k, 1.0), None if c is None else tf.where(keep, c, 0.0))
    log_dets = form.log_det_of_points(noise)
    signals = form.trace_of_points(noise, process.marginal(data.x))
    # Rearranged, not conjugated.
    targets = tf.linalg.matrix_transpose(process.targets(data))
    carrier = carrier_at(process, data.x, inducing) if without_carrier else None
    if carrier is None:
        cross = form.covariance(process.kernel.moments_matrix(inducing[None], data.x))
    else:
        cross = process.kernel.envelope(inducing[:, None], data.x[:, None])
        targets *= tf.math.conj(carrier)[..., None, :]
        targets = tf.concat([tf.math.real(targets), tf.math.imag(targets)], axis=-2)
    cross *= process.keep(data, cross.dtype)[..., None, :]
    noise = noise.map(lambda a: a[..., None, :])
    return WhiteSamples(
        form.whiten_points(noise, cross),
        form.whiten_points(noise, targets),
        tf.reduce_sum(tf.where(keep, log_dets, 0.0), axis=-1),
        tf.reduce_sum(tf.where(keep, signals, 0.0), axis=-1),
    )


def sums_of(
    process: SignalPlusNoise,
    data: Data,
    inducing: tf.Tensor,
    chol: tf.Tensor,
    weights: Sequence[Any],
) -> Sums:
    """The sums over the samples of data, in chunks; differentiable once.

    Where the covariance is R, real, under a carrier e of modulus 1, K_uf = D_u R_uf D_fᴴ with the
    diagonal D of the carrier at points, and all that is multiplied is real:
    L = D_u L_R D_uᴴ, so that A Aᴴ = D_u A_R A_Rᵀ D_uᴴ and b = D_u A_R D_fᴴ y.

    Args:
        process: The signal and its noise.
        data: The data.
        inducing: The inducing points, `[m, D]`.
        chol: L, `[1, m, m]`.
        weights: The variables of kernel, noise and mean, or tensors in their place, which gradients
            reach beside inducing points, L, x and z.
    """
    # A chunk without missing samples must not share what the data do not share.
    groups = data.covariance_count // tf.shape(data.x)[0]
    data = data._replace(x=tf.repeat(data.x, groups, axis=0))
    carrier = carrier_at(process, inducing, inducing)
    if carrier is None:
        return _sums_by_chunks(process, data, inducing, chol, weights, False)
    chol = tf.math.real(turned(chol, tf.math.conj(carrier)))
    sums = _sums_by_chunks(process, data, inducing, chol, weights, True)
    return sums._replace(
        gram=turned(sums.gram, carrier),
        vector=carrier[:, None] * tf.complex(*tf.split(sums.vector, 2, axis=-1)),
        power=tf.add(*tf.split(sums.power, 2, axis=-1)),
    )


def _sums_by_chunks(
    process: SignalPlusNoise,
    data: Data,
    inducing: tf.Tensor,
    chol: tf.Tensor,
    weights: Sequence[Any],
    without_carrier: bool,
) -> Sums:
    """The sums; without the carrier, of L_R and of 2S series of real parts."""
    chunks = _Chunks(process, data, inducing, chol, without_carrier)
    with without_tape():
        values = chunks.sums()

    # The values come from outside: what is computed inside would be recorded by an eager tape.
    @tf.custom_gradient
    def of_sources(*_: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Callable]:
        def backward(*bars: tf.Tensor) -> list[tf.Tensor]:
            message = "the bound of inducing points has first derivatives alone"
            gradients = chunks.gradients(values, Sums(*bars), weights)
            return [of_first_order(gradient, message) for gradient in gradients]

        return tuple(map(tf.identity, map(tf.stop_gradient, values))), backward

    sources = (inducing, chol, data.x, data.z, *weights)
    return Sums(*of_sources(*map(tf.convert_to_tensor, sources)))


class _Chunks:
    """The chunks of data; arguments as for `_sums_by_chunks`."""

    def __init__(
        self,
        process: SignalPlusNoise,
        data: Data,
        inducing: tf.Tensor,
        chol: tf.Tensor,
        without_carrier: bool,
    ):
        self._process, self._count = process, tf.shape(data.z)[1]
        self._without_carrier = without_carrier
        self._inducing, self._chol = tf.stop_gradient(inducing), tf.stop_gradient(chol)
        # What all samples share is in a single column.
        of_each = data.noise.map(lambda a: tf.broadcast_to(a, [tf.shape(a)[0], self._count]))
        self._data = data._replace(noise=of_each)
        self._size = tf.maximum(_CHUNK // data.covariance_count, _SMALLEST)
        # The gradient evaluates the kernel once more.
        self._check_unchanged = process.while_unchanged(lambda: self._count)

    def _white(self, chunk: Data) -> WhiteSamples:
        return white_samples(self._process, chunk, self._inducing, self._without_carrier)

    def _chunk(self, first: tf.Tensor) -> Data:
        return self._data.between(first, tf.minimum(first + self._size, self._count))

    def _loop(self, add: Callable[..., Sequence[Any]], start: Sequence[Any]) -> Sequence[Any]:
        """Adds the chunks up, one after the other: `add(first, *values)` returns new values."""
        shapes = [
            None if isinstance(a, tf.TensorArray) else tf.TensorShape([None] * a.shape.rank)
            for a in start
        ]
        result: Sequence[Any] = tf.while_loop(
            lambda first, *_: first < self._count,
            lambda first, *values: (first + self._size, *add(first, *values)),
            (tf.constant(0), *start),
            shape_invariants=(tf.TensorShape([]), *(s or tf.TensorShape(None) for s in shapes)),
            parallel_iterations=1,  # memory of one chunk
        )
        return result[1:]

    def sums(self) -> Sums:
        """The sums over all samples."""
        groups, size = self._data.covariance_count, tf.shape(self._chol)[-1]
        series = tf.shape(self._data.z)[0] // groups
        series *= 2 if self._without_carrier else 1
        dtype, real = self._chol.dtype, self._chol.dtype.real_dtype

        def add(first: tf.Tensor, *values: tf.Tensor) -> Sequence[tf.Tensor]:
            white, sums = self._white(self._chunk(first)), Sums(*values)
            a = tf.linalg.triangular_solve(self._chol, white.cross)
            return Sums(
                sums.gram + tf.linalg.matmul(a, a, adjoint_b=True),
                sums.vector + tf.linalg.matmul(a, white.targets, transpose_b=True),
                sums.power + tf.reduce_sum(squared_modulus(white.targets), axis=-1),
                sums.log_det + white.log_det,
                sums.signal + white.signal,
            )

        start = Sums(
            tf.zeros([groups, size, size], dtype),
            tf.zeros([groups, size, series], dtype),
            tf.zeros([groups, series], real),
            *(tf.zeros([groups], real) for _ in range(2)),
        )
        return Sums(*self._loop(add, start))

    def gradients(self, sums: Sums, bars: Sums, weights: Sequence[Any]) -> list[tf.Tensor]:
        """The gradients by inducing points, L, x, z and weights, from cotangents of the sums."""
        self._check_unchanged()
        hermitian = bars.gram + tf.linalg.adjoint(bars.gram)
        by_product = tf.linalg.matmul(hermitian, sums.gram)
        by_product += tf.linalg.matmul(bars.vector, sums.vector, adjoint_b=True)
        by_product = tf.reduce_sum(by_product, axis=0, keepdims=True)
        chol_bar = -tf.linalg.triangular_solve(self._chol, by_product, adjoint=True)
        to_cross = tf.linalg.triangular_solve(self._chol, hermitian, adjoint=True)
        of_targets = tf.linalg.triangular_solve(self._chol, bars.vector, adjoint=True)

        def add(first: tf.Tensor, xs: Any, zs: Any, *totals: tf.Tensor) -> Sequence[Any]:
            chunk = self._chunk(first)
            sources = [self._inducing, *weights, chunk.x, chunk.z]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(sources)
                white = self._white(chunk)
            a = tf.linalg.triangular_solve(self._chol, white.cross)
            cross_bar = tf.linalg.matmul(to_cross, a)
            cross_bar += tf.linalg.matmul(of_targets, tf.math.conj(white.targets))
            # ȳ = Aᴴ b̄, as a row.
            targets_bar = tf.linalg.matmul(bars.vector, tf.math.conj(a), transpose_a=True)
            targets_bar += 2.0 * white.targets * real_as(bars.power, a.dtype)[..., None]
            cotangents = [cross_bar, targets_bar, bars.log_det, bars.signal]
            *added, of_x, of_z = tape.gradient(
                list(white), sources, cotangents, tf.UnconnectedGradients.ZERO
            )
            number = xs.size()
            # Samples first, to be joined: rearranged, not conjugated.
            xs = xs.write(number, tf.transpose(of_x, [1, 0, 2]))
            zs = zs.write(number, tf.transpose(of_z))
            return xs, zs, *(t + a for t, a in zip(totals, added, strict=True))

        arrays = (
            tf.TensorArray(a.dtype, 0, dynamic_size=True, infer_shape=False)
            for a in (self._data.x, self._data.z)
        )
        zeros = [tf.zeros_like(a) for a in (self._inducing, *weights)]
        xs, zs, of_inducing, *of_weights = self._loop(add, [*arrays, *zeros])
        of_x = tf.ensure_shape(tf.transpose(xs.concat(), [1, 0, 2]), self._data.x.shape)
        of_z = tf.ensure_shape(tf.transpose(zs.concat()), self._data.z.shape)
        return [of_inducing, tf.linalg.band_part(chol_bar, -1, 0), of_x, of_z, *of_weights]


class ConditionedSparse(NamedTuple):
    """A process given data by inducing points, with the methods of `cgp.gp.posterior.Conditioned`.

    Covariances with new points are of the inducing points.
    """

    form: Form
    chol: tf.Tensor
    """L, `[1, m, m]`."""
    precision_chol: tf.Tensor
    """The factor of Λ, `[G, m, m]`."""
    vector: tf.Tensor
    """b, `[G, m, S]`."""

    @property
    def total_variance(self) -> tf.Tensor:
        """The trace of the covariance of the inducing points, `[1]`."""
        return tf.reduce_sum(squared_modulus(self.chol), axis=[-2, -1])

    def _explained(self, cross: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """V, and the factor of Λ divided into it, `[..., m, M]`."""
        v = tf.linalg.triangular_solve(self.chol, cross)
        return v, tf.linalg.triangular_solve(self.precision_chol, v)

    def mean(self, cross: tf.Tensor, basis: tf.Tensor | None) -> tf.Tensor:
        """The posterior mean without the mean function; arguments as for `Conditioned`."""
        white = tf.linalg.triangular_solve(self.precision_chol, self.vector)
        return tf.linalg.matmul(self._explained(cross)[1], white, adjoint_a=True)

    def marginal(
        self, prior: SecondMoments, cross: tf.Tensor, basis: tf.Tensor | None
    ) -> SecondMoments:
        """Posterior variance and pseudo-variance of each new point, from the prior ones."""
        explained, uncertain = map(self.form.marginal, self._explained(cross))
        return prior.map(lambda p, e, u: p - e + u, explained, uncertain)

    def joint(self, prior: tf.Tensor, cross: tf.Tensor, basis: tf.Tensor | None) -> tf.Tensor:
        """The posterior covariance of the new points, `[..., M, M]`, from the prior one."""
        v, w = self._explained(cross)
        return (
            prior - tf.linalg.matmul(v, v, adjoint_a=True) + tf.linalg.matmul(w, w, adjoint_a=True)
        )


def conditioned(
    process: SignalPlusNoise, data: Data, inducing: tf.Tensor, weights: Sequence[Any]
) -> tuple[ConditionedSparse, Sums]:
    """The process given data, and the sums of these; arguments as for `sums_of`."""
    chol = inducing_factor(process, inducing)
    sums = sums_of(process, data, inducing, chol, weights)
    identity = tf.eye(tf.shape(chol)[-1], dtype=chol.dtype)
    precision_chol = cholesky(sums.gram + identity)
    return ConditionedSparse(process.form, chol, precision_chol, sums.vector), sums


def before_data(process: SignalPlusNoise, inducing: tf.Tensor) -> ConditionedSparse:
    """The process before any data, as one given the data of one series that tell nothing."""
    chol = inducing_factor(process, inducing)
    identity = tf.eye(tf.shape(chol)[-1], batch_shape=[1], dtype=chol.dtype)
    return ConditionedSparse(process.form, chol, identity, tf.zeros_like(chol[..., :1]))


def log_likelihood_bound(
    process: SignalPlusNoise, data: Data, factors: ConditionedSparse, sums: Sums
) -> tf.Tensor:
    """The bound of the log marginal likelihood of each series, real, `[B]`."""
    white = tf.linalg.triangular_solve(factors.precision_chol, sums.vector)
    unexplained = sums.power - tf.reduce_sum(squared_modulus(white), axis=-2)
    penalty = sums.log_det + sums.signal - tf.math.real(tf.linalg.trace(sums.gram))
    density = unexplained + (penalty + log_det(factors.precision_chol))[..., None]
    return process.normalized(-process.form.scale * density, data, None)


def unexplained_signal(sums: Sums) -> list[str]:
    """The suspicion that inducing points leave much of the signal at the data unexplained."""
    shares = 1.0 - np.real(np.trace(sums.gram, axis1=-2, axis2=-1)) / np.asarray(sums.signal)
    if not shares.max() > _UNEXPLAINED:
        return []
    return [
        f"the inducing points leave {shares.max():.0%} of the variance of the signal at the data "
        "unexplained, and predictions are that uncertain: take more, as in inducing=1000, or a "
        "kernel of longer length scales with its short part in the noise"
    ]
