"""A complex Gaussian process observed in noise: kernel, mean and noise as linear algebra."""

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions.forms import SecondMoments, form_of
from cgp.gp.conditioning import Conditioned
from cgp.gp.data import Data
from cgp.gp.likelihood import log_density, whiten
from cgp.gp.means import Mean
from cgp.gp.posterior import Posterior
from cgp.kernels.base import Kernel
from cgp.linalg import stored_cholesky
from cgp.linalg.arguments import squared_modulus
from cgp.linalg.composite import as_complex, interleave
from cgp.training.parameters import Parameter


class SignalPlusNoise:
    """`z = f(x) + n`, `f ~ GP(mean, kernel)`, in the form that fits: complex, or real composite.

    Args:
        kernel: Second moments of f.
        mean: Mean of f, or None for zero.
        noise_variance: `E|n|²`.
        noise_circularity: `E[n²] / E|n|²`, or None for circular noise.
        by_point: Whether the working coordinates of data come point after point, for factors that
            gain and lose points at the end; the composite has all real parts first otherwise. New
            points that predictions speak of keep the order of the form.
    """

    def __init__(
        self,
        kernel: Kernel,
        mean: Mean | None,
        noise_variance: Parameter,
        noise_circularity: Parameter | None,
        by_point: bool = False,
    ):
        self.kernel, self.mean = kernel, mean
        self.noise_variance, self.noise_circularity = noise_variance, noise_circularity
        self.is_proper = kernel.is_proper and noise_circularity is None
        self.form = form_of(self.is_proper)
        self._by_point = by_point and self.form.multiplicity > 1

    @property
    def weights(self) -> list[keras.Variable]:
        """The weights that covariances of observations depend on: all but those of the mean."""
        noise = [p for p in (self.noise_variance, self.noise_circularity) if p is not None]
        return [*(v for p in noise for v in p.variables), *self.kernel.weights]

    def in_data_order(self, a: tf.Tensor, axis: int = -2) -> tf.Tensor:
        """An axis in the order of the form as one in the order of data."""
        return interleave(a, axis) if self._by_point else a

    def with_noise(self, moments: SecondMoments) -> SecondMoments:
        """Variances of f, complex `[...]`, as those of z."""
        k, c = moments
        variance = as_complex(self.noise_variance.value)
        if self.noise_circularity is not None:
            c = moments.c_or_zeros() + variance * self.noise_circularity.value
        return SecondMoments(k + variance, c)

    def _matrix_with_noise(self, moments: SecondMoments) -> SecondMoments:
        """Covariances of f between points `[..., n, n]` as those of z."""
        k, c = moments
        diagonal = SecondMoments(
            tf.linalg.diag_part(k), None if c is None else tf.linalg.diag_part(c)
        )
        noisy = self.with_noise(diagonal)
        if noisy.c is not None:
            c = tf.linalg.set_diag(moments.c_or_zeros(), noisy.c)
        return SecondMoments(tf.linalg.set_diag(k, noisy.k), c)

    def keep(self, data: Data, dtype: tf.DType) -> tf.Tensor:
        """1 for data and 0 for what is missing, in the working form, `[G, n]`."""
        keep = tf.concat([data.keep] * self.form.multiplicity, axis=-1)
        return tf.cast(self.in_data_order(keep, axis=-1), dtype)

    def covariance(self, data: Data) -> tf.Tensor:
        """The working covariance of data, `[G, n, n]`; a missing one is an independent unit."""
        gram = self._masked(data, self._matrix_with_noise(self.kernel.moments_matrix(data.x)))
        return tf.linalg.set_diag(
            gram, tf.linalg.diag_part(gram) + (1.0 - self.keep(data, gram.dtype))
        )

    def signal_covariance(self, data: Data) -> tf.Tensor:
        """The working covariance of f where there are data, `[G, n, n]`; zero where missing."""
        return self._masked(data, self.kernel.moments_matrix(data.x))

    def _masked(self, data: Data, moments: SecondMoments) -> tf.Tensor:
        gram = self.in_data_order(self.in_data_order(self.form.covariance(moments), axis=-1))
        keep = self.keep(data, gram.dtype)
        return gram * keep[..., :, None] * keep[..., None, :]

    def targets(self, data: Data) -> tf.Tensor:
        """The working targets less the mean function, zero where missing, `[G, n, S]`."""
        residual = data.z - self.plus_function(tf.zeros_like(data.z), data.x)
        residual = tf.where(data.present, residual, tf.zeros_like(residual))
        return self.in_data_order(data.columns(self.form.split(residual)))

    def complex_targets(self, targets: tf.Tensor) -> tf.Tensor:
        """Working vectors in the order of data, `[..., n]`, as the complex ones."""
        if self._by_point:
            re, im = tf.unstack(tf.reshape(targets, [*targets.shape[:-1], -1, 2]), axis=-1)
            return tf.complex(re, im)
        return self.form.join(targets)

    def cross(self, data: Data, x: tf.Tensor) -> tf.Tensor:
        """The working covariance between data and points `[..., M, D]`, zero where missing."""
        cross = self.in_data_order(self.form.covariance(self.kernel.moments_matrix(data.x, x)))
        return cross * self.keep(data, cross.dtype)[..., None]

    def _basis(self, x: tf.Tensor) -> tf.Tensor | None:
        basis = None if self.mean is None else self.mean.basis(x)
        return None if basis is None else self.form.basis(basis)

    def _data_basis(self, data: Data) -> tf.Tensor | None:
        basis = self._basis(data.x)
        if basis is None:
            return None
        return self.in_data_order(basis) * self.keep(data, basis.dtype)[..., None]

    def marginalized(self, x: tf.Tensor) -> int:
        """The number of complex coefficients of a marginalised trend."""
        basis = self._basis(x)
        return 0 if basis is None else basis.shape[-1] // self.form.multiplicity

    def check_trend(self, data: Data, leave_out: bool = False) -> None:
        """Raises where data do not determine a marginalised trend, or not without each of them."""
        basis = None if self.mean is None else self.mean.basis(data.x)
        if basis is None:
            return
        bases = np.broadcast_to(basis.numpy(), (int(data.groups), *basis.shape[1:]))
        for columns, keep in zip(bases, data.keep.numpy(), strict=True):
            columns = columns[keep] / np.maximum(np.abs(columns).max(axis=0), 1e-300)
            points, needed = columns.shape
            rank = np.linalg.matrix_rank(columns)
            if rank < needed:
                raise ValueError(
                    f"a trend of {needed} coefficients needs as many different x, got {rank} among "
                    f"{points} points"
                )
            # A point of leverage 1 is alone in determining some part of the trend.
            leverage = np.sum(np.abs(np.linalg.qr(columns)[0]) ** 2, axis=1)
            if leave_out and leverage.max() > 1.0 - 1e-9:
                raise ValueError(
                    f"a trend of {needed} coefficients is not determined without the point at "
                    f"position {int(leverage.argmax())} of those present: it cannot be left out"
                )

    def log_likelihood(self, data: Data, covariance: tf.Tensor, chol: tf.Tensor) -> tf.Tensor:
        """The log marginal likelihood of each series, real, `[B]`.

        Args:
            data: N points.
            covariance: `self.covariance(data)`: the gradient passes through it.
            chol: Its factor.
        """
        value = log_density(
            covariance, self.targets(data), self._data_basis(data), chol, self.form.scale
        )
        dimensions = data.counts - self.marginalized(data.x)
        return tf.reshape(value, [-1]) - dimensions * self.form.log_normalizer

    def condition(self, data: Data, covariance: tf.Tensor, chol: tf.Tensor) -> Conditioned:
        """Takes data in; arguments as for `log_likelihood`."""
        chol = stored_cholesky(chol, covariance)
        white = whiten(chol, self.targets(data), self._data_basis(data))
        return Conditioned(self.form, chol, white)

    def prior(self, x: tf.Tensor, observed: bool) -> Posterior:
        """f, or z if observed, at points `[..., M, D]` before any data."""
        if self._basis(x) is not None:
            raise ValueError("a marginalised trend has no prior: condition on data first")
        marginal = self.marginal(x)
        mean = self.plus_function(tf.zeros_like(marginal.k), x)
        return self.distribution(
            mean, marginal, lambda: self._prior_covariance(x), _trace(marginal), observed
        )

    def posterior(self, data: Data, given: Conditioned, x: tf.Tensor, observed: bool) -> Posterior:
        """f, or z if observed, given data, under the batch axes of the data.

        Args:
            data: N points.
            given: `condition` on them.
            x: M points, `[1, M, D]`, or `[B, M, D]` where series have inputs of their own.
            observed: Whether to add the noise.
        """
        if data.x.shape[-1] is None:  # known when a graph runs; it would broadcast silently
            same = tf.debugging.assert_equal(
                tf.shape(data.x)[-1],
                tf.shape(x)[-1],
                "x has another number of dimensions than data",
            )
            with tf.control_dependencies([same]):
                x = tf.identity(x)
        basis = self._basis(x)
        cross = self.cross(data, x)
        mean = self.form.join(data.vectors(given.mean(cross, basis)))
        prior = self.marginal(x)
        k, c = given.marginal(prior, cross, basis)
        return self.distribution(
            data.unpacked(self.plus_function(mean, x)),
            SecondMoments(data.spread(k), None if c is None else data.spread(c)),
            lambda: data.spread(given.joint(self._prior_covariance(x), cross, basis)),
            # what the covariance is the difference of: prior, data, and what the trend adds
            data.spread(
                _trace(prior)
                + tf.reduce_sum(squared_modulus(given.chol), axis=[-2, -1])
                + tf.reduce_sum(tf.math.real(k), axis=-1)
            ),
            observed,
        )

    def _prior_covariance(self, x: tf.Tensor) -> tf.Tensor:
        return self.form.covariance(self.kernel.moments_matrix(x))

    def plus_function(self, mean: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """Values at points `[..., M, D]` plus the mean function there."""
        function = None if self.mean is None else self.mean.evaluate(x)
        return mean if function is None else mean + function

    def marginal(self, x: tf.Tensor) -> SecondMoments:
        """The prior variances of f, with a pseudo-variance unless the model is proper."""
        moments = self.kernel.moments_diagonal(x)
        return moments if self.is_proper else SecondMoments(moments.k, moments.c_or_zeros())

    def distribution(
        self, mean, marginal: SecondMoments, joint, scale: tf.Tensor, observed: bool
    ) -> Posterior:
        """f, or z if observed, of moments of f.

        Args:
            mean: `[..., M]`.
            marginal: Of each point.
            joint: Function that computes the working covariance of all.
            scale: What its rounding is relative to.
            observed: Whether to add the noise.
        """
        joint = self._while_unchanged(joint)
        if not observed:
            return Posterior(mean, marginal, joint, self.form, scale)

        def observed_joint():
            return self.form.covariance(self._matrix_with_noise(self.form.moments(joint())))

        return Posterior(mean, self.with_noise(marginal), observed_joint, self.form, scale)

    def _while_unchanged(self, joint):
        """`joint`, which reads hyperparameters, or an error if they are no longer those of now."""
        if not tf.executing_eagerly():
            return joint
        weights = self.weights
        values = [w.numpy() for w in weights]

        def checked():
            if not all(np.array_equal(w, v) for w, v in zip(weights, values, strict=True)):
                raise RuntimeError(
                    "the hyperparameters have changed since this posterior was made, and its "
                    "covariance had not been asked for: make it again"
                )
            return joint()

        return checked


def _trace(marginal: SecondMoments) -> tf.Tensor:
    return tf.reduce_sum(tf.math.real(marginal.k), axis=-1)
