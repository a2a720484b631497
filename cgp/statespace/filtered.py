"""What the filter of a whole series returns."""

import dataclasses

import tensorflow as tf

from cgp.linalg.arguments import real_diagonal
from cgp.statespace.series_result import OfEachSeries, SeriesResult, variances_of


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
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
    innovations: tf.Tensor
    """Observations minus their predicted means, shaped like z; NaN where missing."""
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
        is_vector = self.innovations.shape.rank < variances.shape.rank
        return variances[..., 0] if is_vector else variances
