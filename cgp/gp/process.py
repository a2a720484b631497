"""A complex Gaussian process observed in noise: kernel, mean and noise as linear algebra."""

import tensorflow as tf

from cgp.gp.conditioning import Conditioned
from cgp.gp.data import Data
from cgp.gp.forms import CompositeForm, Form, ProperForm
from cgp.gp.likelihood import log_density, whiten
from cgp.gp.means import Mean
from cgp.gp.posterior import Posterior
from cgp.kernels.base import Kernel, Moments, as_complex
from cgp.linalg import stored_cholesky
from cgp.training.parameters import Parameter


class NoisyProcess:
    """`z = f(x) + n`, `f ~ GP(mean, kernel)`, in the form that fits: complex, or real composite.

    Args:
        kernel: Second moments of f.
        mean: Mean of f, or None for zero.
        noise_variance: `E|n|²`.
        noise_circularity: `E[n²] / E|n|²`, or None for circular noise.
    """

    def __init__(
        self,
        kernel: Kernel,
        mean: Mean | None,
        noise_variance: Parameter,
        noise_circularity: Parameter | None,
    ):
        self.kernel, self.mean = kernel, mean
        self.noise_variance, self.noise_circularity = noise_variance, noise_circularity
        self.is_proper = kernel.is_proper and noise_circularity is None
        self.form: Form = ProperForm() if self.is_proper else CompositeForm()

    def with_noise(self, moments: Moments) -> Moments:
        """Variances of f, complex `[...]`, as those of z."""
        k, c = moments
        variance = as_complex(self.noise_variance.value)
        if self.noise_circularity is not None:
            pseudo = variance * self.noise_circularity.value
            c = pseudo if c is None else c + pseudo
        return k + variance, c

    def _matrix_with_noise(self, moments: Moments) -> Moments:
        """Covariances of f between points `[..., n, n]` as those of z."""
        k, c = moments
        diagonal = tf.linalg.diag_part(k), None if c is None else tf.linalg.diag_part(c)
        k_diagonal, c_diagonal = self.with_noise(diagonal)
        if c_diagonal is not None:
            c = tf.linalg.set_diag(
                tf.zeros_like(k) if c is None else c, tf.broadcast_to(c_diagonal, tf.shape(k)[:-1])
            )
        return tf.linalg.set_diag(k, k_diagonal), c

    def _keep(self, data: Data, dtype: tf.DType) -> tf.Tensor:
        """1 for data and 0 for what is missing, in the working form, `[..., n]`."""
        return tf.cast(tf.concat([data.keep] * self.form.multiplicity, axis=-1), dtype)

    def covariance(self, data: Data) -> tf.Tensor:
        """The working covariance of data; a missing one is a unit, independent of all others."""
        moments = self._matrix_with_noise(self.kernel.moments_matrix(data.x))
        gram = self.form.covariance(moments)
        keep = self._keep(data, gram.dtype)
        gram *= keep[..., :, None] * keep[..., None, :]
        return tf.linalg.set_diag(gram, tf.linalg.diag_part(gram) + (1.0 - keep))

    def _targets(self, data: Data) -> tf.Tensor:
        """The working targets less the mean function, zero where missing, `[..., n, S]`."""
        residual = data.z - self._plus_function(tf.zeros_like(data.z), data.x)
        residual = tf.where(data.present, residual, tf.zeros_like(residual))
        return data.columns(self.form.split(residual))

    def _basis(self, x: tf.Tensor) -> tf.Tensor | None:
        basis = None if self.mean is None else self.mean.basis(x)
        return None if basis is None else self.form.basis(basis)

    def _data_basis(self, data: Data) -> tf.Tensor | None:
        basis = self._basis(data.x)
        return None if basis is None else basis * self._keep(data, basis.dtype)[..., None]

    def marginalized(self, x: tf.Tensor) -> int:
        """The number of complex coefficients of a marginalised trend."""
        basis = self._basis(x)
        return 0 if basis is None else basis.shape[-1] // self.form.multiplicity

    def log_likelihood(self, data: Data, covariance: tf.Tensor, chol: tf.Tensor) -> tf.Tensor:
        """The log marginal likelihood of each series, real, `[...]`.

        Args:
            data: N points.
            covariance: `self.covariance(data)`: the gradient passes through it.
            chol: Its factor.
        """
        value = log_density(
            covariance, self._targets(data), self._data_basis(data), chol, self.form.scale
        )
        dimensions = data.counts - self.marginalized(data.x)
        return data.per_series(value) - dimensions * self.form.log_normalizer

    def condition(self, data: Data, covariance: tf.Tensor, chol: tf.Tensor) -> Conditioned:
        """Takes data in; arguments as for `log_likelihood`."""
        chol = stored_cholesky(chol, covariance)
        white = whiten(chol, self._targets(data), self._data_basis(data))
        return Conditioned(self.form, chol, white)

    def prior(self, x: tf.Tensor, observed: bool) -> Posterior:
        """f, or z if observed, at points `[..., M, D]` before any data."""
        if self._basis(x) is not None:
            raise ValueError("a marginalised trend has no prior: condition on data first")
        marginal = self._marginal(x)
        mean = self._plus_function(tf.zeros_like(marginal[0]), x)
        return self._distribution(
            mean, marginal, lambda: self._prior_covariance(x), _trace(marginal), observed
        )

    def posterior(self, data: Data, given: Conditioned, x: tf.Tensor, observed: bool) -> Posterior:
        """f, or z if observed, at points `[..., M, D]` given data."""
        basis = self._basis(x)
        cross = self.form.covariance(self.kernel.moments_matrix(data.x, x))
        cross *= self._keep(data, cross.dtype)[..., None]
        mean = self.form.join(data.vectors(given.mean(cross, basis)))
        prior = self._marginal(x)
        return self._distribution(
            self._plus_function(mean, x),
            given.marginal(prior, cross, basis),
            lambda: given.joint(self._prior_covariance(x), cross, basis),
            _trace(prior) + tf.reduce_sum(tf.abs(given.chol) ** 2, axis=[-2, -1]),
            observed,
        )

    def _prior_covariance(self, x: tf.Tensor) -> tf.Tensor:
        return self.form.covariance(self.kernel.moments_matrix(x))

    def _plus_function(self, mean: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        function = None if self.mean is None else self.mean.evaluate(x)
        return mean if function is None else mean + function

    def _marginal(self, x: tf.Tensor) -> Moments:
        """The prior variances of f, with a pseudo-variance unless the model is proper."""
        k, c = self.kernel.moments_diagonal(x)
        return k, tf.zeros_like(k) if c is None and not self.is_proper else c

    def _distribution(
        self, mean, marginal: Moments, joint, scale: tf.Tensor, observed: bool
    ) -> Posterior:
        if not observed:
            return Posterior(mean, marginal, joint, self.form, scale)

        def observed_joint():
            return self.form.covariance(self._matrix_with_noise(self.form.moments(joint())))

        return Posterior(mean, self.with_noise(marginal), observed_joint, self.form, scale)


def _trace(marginal: Moments) -> tf.Tensor:
    return tf.reduce_sum(tf.math.real(marginal[0]), axis=-1)
