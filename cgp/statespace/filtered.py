"""What the filter of a whole series returns."""

import dataclasses

import tensorflow as tf

from cgp.distributions.forms import SecondMoments
from cgp.distributions.marginals import Marginals
from cgp.linalg.arguments import real_diagonal
from cgp.statespace.series_result import (
    OfEachSeries,
    SeriesResult,
    covariance_marginals,
    variances_of,
)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Filtered(SeriesResult):
    """Results of the filter: moments of the state before and after each observation.

    For a widely linear model the factors are those of the real composite, `[..., T, 2n, 2n]`, while
    means, innovations and their covariances are complex, of n and m components. Series that share
    covariances hold them once; each reading spreads them.
    """

    predicted_means: tf.Tensor
    """`E[x[t] | z[:t]]`, `[..., T, n]`."""
    predicted_chols: tf.Tensor = OfEachSeries()
    """A factor of its covariance, `[..., T, n, n]`: lower triangular, the diagonal not negative."""
    filtered_means: tf.Tensor
    """`E[x[t] | z[:t+1]]`, `[..., T, n]`."""
    filtered_chols: tf.Tensor = OfEachSeries()
    """A factor of its covariance, `[..., T, n, n]`."""
    observation_means: tf.Tensor
    """`E[z[t] | z[:t]]`, shaped like z; also where z is missing."""
    innovations: tf.Tensor
    """Observations minus these means, shaped like z; NaN where missing."""
    innovation_covariances: tf.Tensor = OfEachSeries()
    """Their covariances, observation noise included, `[..., T, m, m]`; also where missing."""
    innovation_pseudo_covariances: tf.Tensor | None = OfEachSeries()
    """`E[v vᵀ]`, `[..., T, m, m]`; None if the model is not widely linear, where it is zero."""
    log_likelihoods: tf.Tensor
    """`log p(z[t] | z[:t])` of the elements observed, real, `[..., T]`."""
    log_likelihood: tf.Tensor
    """Their sum, `[...]`."""

    @property
    def predicted_variances(self) -> tf.Tensor:
        """`E|x[t] − m|²` given z[:t], of each component, real, `[..., T, n]`."""
        return variances_of(self.predicted_means, self.predicted_chols)

    @property
    def filtered_variances(self) -> tf.Tensor:
        """`E|x[t] − m|²` given z[:t+1], of each component, real, `[..., T, n]`."""
        return variances_of(self.filtered_means, self.filtered_chols)

    @property
    def innovation_variances(self) -> tf.Tensor:
        """`E|v|²` of each innovation, real, shaped like z."""
        variances = real_diagonal(self.innovation_covariances)
        return variances[..., 0] if self._is_vector else variances

    def marginals(self) -> Marginals:
        """The predictions of the observations, each given those before it, noise included.

        By an `Iterated` rule or a likelihood they are of what stands for the observations, and
        forecasts only where those are missing: with `StudentT` the variance grows with the
        distance of an outlier, so that no squared innovation is large beside it. Of the
        states there are `filtered_means` and `filtered_variances`.

        Returns:
            NumPy arrays shaped like z.
        """
        means = self.observation_means[..., None] if self._is_vector else self.observation_means
        covariances = SecondMoments(self.innovation_covariances, self.innovation_pseudo_covariances)
        found = covariance_marginals(means, covariances)
        return found.map(lambda a: a[..., 0]) if self._is_vector else found

    @property
    def _is_vector(self) -> bool:
        """Whether z was given as `[T]`, without an axis of components."""
        return self.innovations.shape.rank < self.innovation_covariances.shape.rank - 1
