"""The posterior of a batch of series at new points, by one factor where they share their positions.

Series at the same positions share the covariance K of all N elements, though each may lack a few of
its own. Let P = K⁻¹, let S be the k elements that one series lacks and O the others. By the inverse
of a partitioned matrix (Rasmussen & Williams, 2006, eq. A.11-A.12), with zeros in S,

    K_OO⁻¹ = P − P_:S P_SS⁻¹ P_S:,    log|K_OO| = log|K| + log|P_SS|,

a correction of rank k. So a series costs a system of k equations and no factor of its own. With C =
P k(x, x*), the variance given O is the variance given all elements plus the diagonal of
C_Sᴴ P_SS⁻¹ C_S. The means agree once z_S is predicted from O, and so adds no information,

    (P z)_S = 0,    or    z_S ← z_S − P_SS⁻¹ (P z)_S    from any value of z_S.

One such step from zero, an outlier among its neighbours, loses the digits of z/noise. Two steps are
as accurate as a factor of O, and so is the variance, if the factor of P_SS is not computed from its
elements (see `_gram_factor`). Removing rows from the factor one after the other is as accurate
(`cgp.linalg.cholesky_remove`); but each series then has a factor and whitens the M new points with
it, in N²M operations instead of k²M.
"""

from typing import NamedTuple

import tensorflow as tf

from cgp.distributions.forms import SecondMoments, clipped
from cgp.gp.data import Data
from cgp.gp.posterior import condition, posterior
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.linalg import cholesky, log_det, solve
from cgp.linalg.arguments import real_as


class Interpolation(NamedTuple):
    """The posterior of the signal at M new points, given each series."""

    mean: tf.Tensor
    """Complex, `[B, M]`."""
    variance: tf.Tensor
    """Real, `[B, M]`."""
    pseudo_variance: tf.Tensor
    """Complex, `[B, M]`; zero if proper."""
    log_likelihood: tf.Tensor
    """The log marginal likelihood of each series, real, `[B]`."""


def interpolate(process: SignalPlusNoise, data: Data, x: tf.Tensor) -> Interpolation:
    """The signal of a process without a mean at new points, given each series.

    All N points of a series may be missing. Positions and noise that are shared have a static batch
    axis of 1; new points are `[1, M, D]`, or `[B, M, D]` where series have their own.
    """
    shared = [data.x, *(a for a in data.noise if a is not None)]
    if any(a.shape[0] != 1 for a in shared):
        return _by_factors(process, data, x)
    gaps = _gaps(data, process.form.multiplicity)
    # Up to here one factor is the faster way, by a factor of two where it is most of a series.
    few = 2 * gaps.largest_count <= tf.shape(data.z)[-1]
    if tf.executing_eagerly():
        return (_by_one_factor if bool(few) else _by_factors)(process, data, x, gaps)
    return tf.cond(
        few, lambda: _by_one_factor(process, data, x, gaps), lambda: _by_factors(process, data, x)
    )


def _by_factors(
    process: SignalPlusNoise, data: Data, x: tf.Tensor, gaps: "_Gaps | None" = None
) -> Interpolation:
    """Interpolates with a factor for each series, O(N³) each."""
    covariance = process.covariance(data)
    chol = cholesky(covariance)
    signal = posterior(process, data, condition(process, data, chol), x, None)
    size = tf.stack([tf.shape(data.z)[0], tf.shape(x)[-2]])
    moments = (signal.mean(), signal.variance(), signal.pseudo_variance())
    mean, variance, pseudo_variance = (tf.reshape(a, size) for a in moments)
    log_likelihood = process.log_likelihood(data, covariance, chol)
    return Interpolation(mean, variance, pseudo_variance, log_likelihood)


class _Gaps(NamedTuple):
    """Elements that a series lacks and others have, padded to the largest number of them."""

    missing: tf.Tensor
    """Where they are, bool, `[B, N]`."""
    largest_count: tf.Tensor
    """The largest number of them in a series."""
    index: tf.Tensor
    """Their working indices, `[B, k]`, k at least 1."""
    real: tf.Tensor
    """1 for elements and 0 for padding, float64, `[B, k]`."""


def _gaps(data: Data, multiplicity: int) -> _Gaps:
    present = data.present
    missing = tf.reduce_any(present, axis=0, keepdims=True) & ~present
    number = tf.cast(missing, tf.int32)
    largest_count = tf.reduce_max(tf.reduce_sum(number, axis=-1))
    is_real, index = tf.math.top_k(number, tf.maximum(largest_count, 1))
    size = tf.shape(missing)[-1]
    index = tf.concat([index + block * size for block in range(multiplicity)], axis=-1)
    real = tf.concat([tf.cast(is_real, data.x.dtype)] * multiplicity, axis=-1)
    return _Gaps(missing, largest_count, index, real)


def _by_one_factor(
    process: SignalPlusNoise, data: Data, x: tf.Tensor, gaps: _Gaps
) -> Interpolation:
    """Interpolates with one factor, of the covariance of all elements that any series has."""
    form, index = process.form, gaps.index
    whole = data._replace(z=tf.where(gaps.missing, tf.zeros_like(data.z), data.z))
    chol = cholesky(process.covariance(whole))  # [1, n, n]
    # Rows S of L⁻ᴴ, whose products are P_SS.
    unit = tf.eye(tf.shape(chol)[-1], dtype=chol.dtype)
    rows = tf.gather(tf.linalg.triangular_solve(chol[0], unit, adjoint=True), index)
    real = real_as(gaps.real, chol.dtype)
    block_chol = _gram_factor(rows * real[..., None], real)

    def dual(targets: tf.Tensor) -> tf.Tensor:
        return whole.vectors(solve(chol, whole.columns(targets)))

    targets = whole.vectors(process.targets(whole))
    series = tf.broadcast_to(tf.range(tf.shape(index)[0])[:, None], tf.shape(index))
    places = tf.stack([series, index], axis=-1)

    def corrected(filled: tf.Tensor) -> tf.Tensor:
        """The series with z_S replaced by its prediction from the other elements."""
        lost = (tf.gather(dual(filled), index, batch_dims=1) * real)[..., None]
        return tf.tensor_scatter_nd_sub(filled, places, solve(block_chol, lost)[..., 0])

    weights = dual(corrected(corrected(targets)))

    cross = process.cross(whole, x)  # [1 or B, n, m]
    v = tf.linalg.triangular_solve(chol, cross)
    c = tf.linalg.triangular_solve(chol, v, adjoint=True)
    if x.shape[0] == 1:
        mean = whole.vectors(tf.linalg.matmul(cross, whole.columns(weights), adjoint_a=True))
        c = tf.gather(c, index, axis=1)[0]
    else:
        mean = tf.linalg.matmul(cross, weights[..., None], adjoint_a=True)[..., 0]
        c = tf.gather(c, index, batch_dims=1)
    mean = form.join(mean)
    lost = form.marginal(tf.linalg.triangular_solve(block_chol, c * real[..., None]))
    prior, explained = process.marginal(x), form.marginal(v)
    k = prior.k - explained.k + lost.k
    pseudo = None if explained.c is None else prior.c_or_zeros() - explained.c + lost.c
    k, pseudo = clipped(SecondMoments(k, pseudo))

    # Targets are zero in S: this is zᴴ P z of the others.
    distance = tf.reduce_sum(tf.math.real(tf.math.conj(targets) * weights), axis=-1)
    log_density = -form.scale * (distance + log_det(chol) + log_det(block_chol))
    log_density -= data.counts * form.log_normalizer
    pseudo = tf.zeros_like(mean) if pseudo is None else pseudo
    return Interpolation(mean, tf.math.real(k), pseudo, log_density)


def _gram_factor(rows: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
    """The factor of `A Aᴴ` for rows A, `[B, k, n]`; rows of the identity where `real` is 0.

    The condition of the product is the square of that of A. Its factor makes the rows orthonormal
    but for rounding; a second factor, of the resulting rows, corrects it (Cholesky QR twice:
    Yamamoto, Nakatsukasa, Yanagisawa & Fukaya, ETNA 44, 2015).
    """

    def factor(rows: tf.Tensor) -> tf.Tensor:
        gram = tf.linalg.matmul(rows, rows, adjoint_b=True)
        return cholesky(tf.linalg.set_diag(gram, tf.linalg.diag_part(gram) + (1.0 - real)))

    first = factor(rows)
    second = factor(tf.linalg.triangular_solve(first, rows))
    return tf.linalg.matmul(first, second)
