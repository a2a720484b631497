"""The posterior of a Gaussian process at new points, given the factor of its data's covariance.

Everything is computed in whitened coordinates (see `cgp.gp.signal_plus_noise`) and in the working
form, complex or real composite (see `cgp.distributions.forms`). With k the covariances between data
and new points, V = L⁻¹ k, and h the basis of the trend at the new points,

    mean        kᴴ a + h β,
    covariance  k** − Vᴴ V + Uᴴ U,    U = R⁻ᴴ hᴴ − Qᴴ V,

where the last term is the uncertainty of the trend (Rasmussen & Williams, 2006, eq. 2.41-2.42).
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.distributions import ComplexNormal
from cgp.distributions.forms import Form, SecondMoments, clipped
from cgp.gp import line
from cgp.gp.data import Data
from cgp.gp.line import ConditionedLine
from cgp.gp.noise import SampleNoise
from cgp.gp.signal_plus_noise import SignalPlusNoise, Whitened, dual, projected_precision, whiten
from cgp.linalg import semidefinite_factor
from cgp.linalg.arguments import ArrayLike, as_numbers, squared_modulus


class Conditioned(NamedTuple):
    """A Gaussian process given data: the factor of their covariance, and whitened targets."""

    form: Form
    chol: tf.Tensor
    """The factor of the covariance of the data, `[..., n, n]`."""
    white: Whitened

    @property
    def total_variance(self) -> tf.Tensor:
        """The trace of the covariance of the data, real, `[...]`."""
        return tf.reduce_sum(squared_modulus(self.chol), axis=[-2, -1])

    def mean(self, cross: tf.Tensor, basis: tf.Tensor | None) -> tf.Tensor:
        """The posterior mean without the mean function, `[..., m, S]`.

        The working covariance of data and new points is `[..., n, m]`, the basis `[..., m, q]`.
        """
        mean = tf.linalg.matmul(cross, dual(self.chol, self.white), adjoint_a=True)
        return mean if basis is None else mean + tf.linalg.matmul(basis, self.white.coefficients)

    def _explained(
        self, cross: tf.Tensor, basis: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """V and U, `[..., n, m]` and `[..., q, m]`."""
        v = tf.linalg.triangular_solve(self.chol, cross)
        if self.white.q is None:
            return v, None
        if basis is None:  # a term of the kernel has no trend, but is less certain beside one
            return v, -tf.linalg.matmul(self.white.q, v, adjoint_a=True)
        # As L⁻¹ H = Q R, R⁻ᴴ (hᴴ − Hᴴ K⁻¹ k) = R⁻ᴴ hᴴ − Qᴴ V.
        u = tf.linalg.triangular_solve(
            self.white.r, tf.linalg.adjoint(basis), lower=False, adjoint=True
        )
        return v, u - tf.linalg.matmul(self.white.q, v, adjoint_a=True)

    def marginal(
        self, prior: SecondMoments, cross: tf.Tensor, basis: tf.Tensor | None
    ) -> SecondMoments:
        """Posterior variance and pseudo-variance of each new point, from the prior ones."""
        v, u = self._explained(cross, basis)
        explained = self.form.marginal(v)
        k = prior.k - explained.k
        c = None if explained.c is None else prior.c_or_zeros() - explained.c
        if u is not None:
            trend = self.form.marginal(u)
            k, c = k + trend.k, None if c is None else c + trend.c
        return SecondMoments(k, c)

    def joint(self, prior: tf.Tensor, cross: tf.Tensor, basis: tf.Tensor | None) -> tf.Tensor:
        """The posterior working covariance of the new points, `[..., m, m]`, from the prior one."""
        v, u = self._explained(cross, basis)
        covariance = prior - tf.linalg.matmul(v, v, adjoint_a=True)
        if u is not None:
            covariance = covariance + tf.linalg.matmul(u, u, adjoint_a=True)
        # Products are Hermitian up to the rounding of the prior, which may be far above the rest.
        return 0.5 * (covariance + tf.linalg.adjoint(covariance))

    def leave_one_out(self) -> tuple[tf.Tensor, SecondMoments]:
        """Leave-one-out residuals, targets less predictions by the others, and their variances.

        The residual is B⁻¹ a with covariance B⁻¹, B being the block of P that belongs to the point
        (Rasmussen & Williams, 2006, eq. 5.12, with P for K⁻¹): complex, `[..., n, S]`, and variance
        and pseudo-variance `[..., n]`.
        """
        precision = projected_precision(self.chol, self.white)
        return self.form.invert_blocks(precision, dual(self.chol, self.white))


class GivenData(Protocol):
    """A Gaussian process given data, as `Conditioned` is."""

    @property
    def total_variance(self) -> tf.Tensor:
        """The magnitude of the covariance of the data, real, `[...]`."""

    def mean(self, cross: tf.Tensor, basis: tf.Tensor | None) -> tf.Tensor:
        """The posterior mean without the mean function."""

    def marginal(
        self, prior: SecondMoments, cross: tf.Tensor, basis: tf.Tensor | None
    ) -> SecondMoments:
        """Posterior variance and pseudo-variance of each new point."""

    def joint(self, prior: tf.Tensor, cross: tf.Tensor, basis: tf.Tensor | None) -> tf.Tensor:
        """The posterior working covariance of the new points."""


class Posterior(ComplexNormal):
    """A `ComplexNormal` of given mean and variances, whose covariance is computed when needed.

    Means and variances at M points take O(N²M), their covariance and its factor O(M³) more. These
    are computed when a method (`covariance`, `sample`, `log_prob`, …) first needs them.

    Args:
        mean: Complex, `[..., M]`.
        marginal: Variance, complex with zero imaginary part, and pseudo-variance, None when proper;
            each `[..., M]`.
        joint: Function without arguments that returns the working covariance of the form.
        form: Complex or real composite.
        scale: Function that returns the magnitude, `[...]`, to which the rounding of the covariance
            is relative: a posterior covariance is the difference of much larger ones.
    """

    def __init__(
        self,
        mean: tf.Tensor,
        marginal: SecondMoments,
        joint: Callable[[], tf.Tensor],
        form: Form,
        scale: Callable[[], tf.Tensor],
    ):
        self._loc, self._marginal, self._form, self._scale = mean, marginal, form, scale
        # a tensor of a graph must not outlive it
        self._joint = functools.cache(joint) if tf.executing_eagerly() else joint

    @property
    def is_proper(self) -> bool:
        """Whether the pseudo-covariance is zero."""
        return self._marginal.c is None

    @as_it_stands
    def variance(self) -> tf.Tensor:
        """The variance of each point, real, `[..., M]`."""
        return self._to_batch(tf.math.real(self._marginal.k), 1)

    @as_it_stands
    def pseudo_variance(self) -> tf.Tensor:
        """The pseudo-variance of each point, complex, `[..., M]`; zero if proper."""
        if self._marginal.c is None:
            return tf.zeros_like(self.mean())
        return self._to_batch(self._marginal.c, 1)

    @as_it_stands
    def covariance(self) -> tf.Tensor:
        """The covariance of all points, `[..., M, M]`, computed at the first call."""
        return self._to_batch(self._form.moments(self._joint()).k, 2)

    @as_it_stands
    def pseudo_covariance(self) -> tf.Tensor:
        """The pseudo-covariance of all points, `[..., M, M]`, computed at the first call."""
        return self._to_batch(self._form.moments(self._joint()).c_or_zeros(), 2)

    def _to_batch(self, moment: tf.Tensor, event_rank: int) -> tf.Tensor:
        # In a graph with an unknown number of batch axes, `Data.spread` has added all of them.
        return moment if moment.shape.rank is None else super()._to_batch(moment, event_rank)

    @as_it_stands
    def _factor(self) -> tf.Tensor:
        return semidefinite_factor(self._joint(), self._scale())


class ShapedPosterior(ComplexNormal):
    """The posterior of M values in an array: a sample is `[..., *shape]`, and so are moments.

    The covariance and its factor are of all values in one vector, `[..., M, M]`, in C order.

    Args:
        vector: The posterior of the M values.
        shape: The shape of the array; −1 for an axis that follows from M.
    """

    def __init__(self, vector: ComplexNormal, shape: Sequence[int]):
        self.vector, self._event = vector, tuple(shape)

    def _shaped(self, a: tf.Tensor) -> tf.Tensor:
        return tf.reshape(a, tf.concat([tf.shape(a)[:-1], self._event], axis=0))

    @property
    def is_proper(self) -> bool:
        """Whether the pseudo-covariance is zero."""
        return self.vector.is_proper

    def mean(self) -> tf.Tensor:
        """The mean of each value, complex."""
        return self._shaped(self.vector.mean())

    def variance(self) -> tf.Tensor:
        """The variance of each value, real."""
        return self._shaped(self.vector.variance())

    def pseudo_variance(self) -> tf.Tensor:
        """The pseudo-variance of each value, complex; zero if proper."""
        return self._shaped(self.vector.pseudo_variance())

    def covariance(self) -> tf.Tensor:
        """The covariance of all values, `[..., M, M]`, computed at the first call."""
        return self.vector.covariance()

    def pseudo_covariance(self) -> tf.Tensor:
        """The pseudo-covariance of all values, `[..., M, M]`, computed at the first call."""
        return self.vector.pseudo_covariance()

    @property
    def chol(self) -> tf.Tensor:
        """The factor of the covariance of all values."""
        return self.vector.chol

    @property
    def batch_shape(self) -> tf.TensorShape:
        """The static batch shape."""
        return self.vector.batch_shape

    @property
    def event_shape(self) -> tf.TensorShape:
        """The static shape of a sample."""
        size = self.vector.event_shape[0]
        others = math.prod(axis for axis in self._event if axis != -1)
        first = None if size is None else size // others
        return tf.TensorShape([first if axis == -1 else axis for axis in self._event])

    def batch_shape_tensor(self) -> tf.Tensor:
        """The batch shape as a tensor, int32."""
        return self.vector.batch_shape_tensor()

    def event_shape_tensor(self) -> tf.Tensor:
        """The shape of a sample as a tensor, int32."""
        return tf.shape(self.mean())[-len(self._event) :]

    def log_prob(self, value: ArrayLike) -> tf.Tensor:
        """The log density of values `[..., *shape]`; errors as for a `ComplexNormal`."""
        value, axes = tf.convert_to_tensor(as_numbers(value, "value")), len(self._event)
        if not value.shape[-axes:].is_compatible_with(self.event_shape):
            shape = ", ".join(map(str, self.event_shape))
            raise ValueError(f"value must be [..., {shape}], got shape {value.shape}")
        return self.vector.log_prob(tf.reshape(value, [*value.shape[:-axes], -1]))

    def sample(self, sample_shape: ArrayLike = (), seed: ArrayLike | None = None) -> tf.Tensor:
        """Random samples, `sample_shape + [..., *shape]`; arguments as for a `ComplexNormal`."""
        return self._shaped(self.vector.sample(sample_shape, seed))

    def entropy(self) -> tf.Tensor:
        """The differential entropy, real, batch-shaped."""
        return self.vector.entropy()

    def kl_divergence(self, other: ComplexNormal) -> tf.Tensor:
        """The Kullback-Leibler divergence from another posterior of this shape, batch-shaped."""
        if not isinstance(other, ShapedPosterior):
            raise TypeError(f"other must be a {type(self).__name__}, got {type(other).__name__}")
        return self.vector.kl_divergence(other.vector)


class PosteriorOfOutputs(ShapedPosterior):
    """The posterior of P outputs at M points: a sample is `[..., M, P]`, and so are moments.

    The covariance and its factor are of all values in one vector, `[..., M P, M P]`, the outputs of
    a point side by side; `output_covariance` is of the outputs of each point.

    Args:
        vector: The posterior of the M P values.
        outputs: P.
    """

    def __init__(self, vector: ComplexNormal, outputs: int):
        super().__init__(vector, [-1, outputs])
        self.outputs = outputs

    def output_covariance(self) -> tf.Tensor:
        """The covariance of the outputs of each point, `[..., M, P, P]`."""
        return self._of_each_point(self.covariance())

    def output_pseudo_covariance(self) -> tf.Tensor:
        """The pseudo-covariance of the outputs of each point, `[..., M, P, P]`."""
        return self._of_each_point(self.pseudo_covariance())

    def _of_each_point(self, a: tf.Tensor) -> tf.Tensor:
        """The blocks `[..., M, P, P]` on the diagonal of `[..., M P, M P]`."""
        points = tf.shape(a)[-1] // self.outputs
        sides = [points, self.outputs]
        blocks = tf.reshape(a, tf.concat([tf.shape(a)[:-2], sides, sides], axis=0))
        return tf.einsum("...mpmq->...mpq", blocks)


def condition(
    process: SignalPlusNoise, data: Data, factor: tf.Tensor
) -> Conditioned | ConditionedLine:
    """The process given N points, by the factor of their covariance; gradients pass through it.

    Of a line the factor is the first column of the inverse, and gradients pass by the covariance.
    """
    if data.on_line is not None:
        return line.condition(process, data, factor[0, :, 0])
    white = whiten(factor, process.targets(data), process.data_basis(data))
    return Conditioned(process.form, factor, white)


def prior(process: SignalPlusNoise, x: tf.Tensor, noise: SampleNoise | None) -> Posterior:
    """The signal, or observations with noise, at points `[..., M, D]` before any data."""
    if process.basis(x) is not None:
        raise ValueError("a marginalised trend has no prior: condition on data first")
    marginal = process.marginal(x)
    mean = process.plus_function(tf.zeros_like(marginal.k), x)
    joint = functools.partial(_prior_covariance, process, x)
    return of_signal(process, mean, marginal, joint, lambda: _trace(marginal), noise)


def posterior(
    process: SignalPlusNoise,
    data: Data,
    conditioned: GivenData,
    x: tf.Tensor,
    noise: SampleNoise | None,
) -> Posterior:
    """The signal, or observations with noise, given data, under the batch axes of the data.

    New points are `[1, M, D]`, or `[B, M, D]` where series have inputs of their own; the noise is
    None for the signal.
    """
    if data.x.shape[-1] is None:  # known when a graph runs; it would broadcast silently
        same = tf.debugging.assert_equal(
            tf.shape(data.x)[-1], tf.shape(x)[-1], "x has another number of dimensions than data"
        )
        with tf.control_dependencies([same]):
            x = tf.identity(x)
    basis = process.basis(x)
    cross = process.cross(data, x)
    mean = process.form.join(data.vectors(conditioned.mean(cross, basis)))
    before = process.marginal(x)
    k, c = conditioned.marginal(before, cross, basis)

    def scale() -> tf.Tensor:
        """The magnitude of the terms whose difference the covariance is: prior, data, trend."""
        after = tf.reduce_sum(tf.math.real(k), axis=-1)
        return data.spread(_trace(before) + conditioned.total_variance + after)

    def joint() -> tf.Tensor:
        return data.spread(conditioned.joint(_prior_covariance(process, x), cross, basis))

    mean = data.unpacked(process.plus_function(mean, x))
    return of_signal(process, mean, SecondMoments(k, c).map(data.spread), joint, scale, noise)


def of_signal(
    process: SignalPlusNoise,
    mean: tf.Tensor,
    marginal: SecondMoments,
    joint: Callable[[], tf.Tensor],
    scale: Callable[[], tf.Tensor],
    noise: SampleNoise | None,
) -> Posterior:
    """The distribution of the signal, or of observations with noise, from moments of the signal.

    Arguments as for `Posterior`, and the noise to add, scalars or `[M]`, or None.
    """
    joint = process.while_unchanged(joint)
    # Where the data pin the signal down rounding may leave −1e-17, or more than a small noise.
    marginal = clipped(marginal)
    if noise is None:
        return Posterior(mean, marginal, joint, process.form, scale)
    noise = process.following(noise, mean, marginal)

    def observed_joint() -> tf.Tensor:
        moments = process.form.moments(joint())
        return process.form.covariance(process.matrix_with_noise(moments, noise))

    return Posterior(mean, process.with_noise(marginal, noise), observed_joint, process.form, scale)


def _prior_covariance(process: SignalPlusNoise, x: tf.Tensor) -> tf.Tensor:
    return process.form.covariance(process.kernel.moments_matrix(x))


def _trace(marginal: SecondMoments) -> tf.Tensor:
    return tf.reduce_sum(tf.math.real(marginal.k), axis=-1)
