"""What a Gaussian process says of new points, given the factor of the covariance of its data.

All of it in whitened coordinates (see `cgp.gp.likelihood`) and in the working form, complex or real
composite (see `cgp.distributions.forms`). With k the covariances between data and new points,
V = L⁻¹ k, and h the basis of the trend at the new points,

    mean        kᴴ a + h β,
    covariance  k** − Vᴴ V + Uᴴ U,    U = R⁻ᴴ hᴴ − Qᴴ V,

where the last term is the uncertainty of the trend (Rasmussen & Williams, 2006, eq. 2.41-2.42).
"""

from typing import NamedTuple

import tensorflow as tf

from cgp.distributions.forms import Form, SecondMoments
from cgp.gp.likelihood import Whitened, dual, projected_precision


class Conditioned(NamedTuple):
    """Data taken in: a factor, and what it whitens."""

    form: Form
    chol: tf.Tensor
    """The factor of the covariance of the data, `[..., n, n]`."""
    white: Whitened

    def mean(self, cross: tf.Tensor, basis: tf.Tensor | None) -> tf.Tensor:
        """The posterior mean but for the mean function, `[..., m, S]`.

        Args:
            cross: Working covariance between data and new points, `[..., n, m]`.
            basis: Working basis at the new points, `[..., m, q]`, or None.
        """
        mean = tf.linalg.matmul(cross, dual(self.chol, self.white), adjoint_a=True)
        return mean if basis is None else mean + tf.linalg.matmul(basis, self.white.coefficients)

    def _explained(self, cross, basis) -> tuple[tf.Tensor, tf.Tensor | None]:
        """V and U, `[..., n, m]` and `[..., q, m]`."""
        v = tf.linalg.triangular_solve(self.chol, cross)
        if basis is None:
            return v, None
        # R is that of L⁻¹ H = Q R, so R⁻ᴴ (hᴴ − Hᴴ K⁻¹ k) = R⁻ᴴ hᴴ − Qᴴ V.
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
        return covariance if u is None else covariance + tf.linalg.matmul(u, u, adjoint_a=True)

    def leave_one_out(self) -> tuple[tf.Tensor, SecondMoments]:
        """How far each target lies from its prediction by the others, and the variances of that.

        The deviation is B⁻¹ a with covariance B⁻¹, B being the block of P that belongs to the point
        (Rasmussen & Williams, 2006, eq. 5.12, with P for K⁻¹).

        Returns:
            Complex deviation `[..., n, S]`, variance and pseudo-variance `[..., n]`.
        """
        precision = projected_precision(self.chol, self.white)
        return self.form.invert_blocks(precision, dual(self.chol, self.white))
