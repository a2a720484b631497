"""What the filter of a whole series returns."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from cgp.linalg.arguments import real_diagonal


class _OfEachSeries:
    """A field of `Filtered` that series may share, `[1, T, n, n]`; it is spread when it is read.

    A thousand series of a hundred steps of eight states have factors of a hundred megabytes, and
    one hundred kilobytes that are not the same.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = name

    def __get__(self, result: Any, owner: type) -> Any:
        if result is None:
            raise AttributeError  # a field without a default
        value, batch = result.__dict__[self._key], result.predicted_means.shape[:-2]
        if value is None or (batch.is_fully_defined() and value.shape[:-3] == batch):
            return value
        shape = tf.concat([tf.shape(result.predicted_means)[:-2], tf.shape(value)[-3:]], axis=0)
        spread = tf.broadcast_to(value, shape)
        spread = tf.ensure_shape(spread, batch.concatenate(value.shape[-3:]))
        if tf.executing_eagerly():  # a tensor of a graph would not serve outside of it
            result.__dict__[self._key] = spread
        return spread

    def __set__(self, result: Any, value: Any) -> None:
        result.__dict__[self._key] = value


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Filtered:
    """Results of the filter: moments of the state before and after each observation.

    For a widely linear model the factors are those of the real composite, `[..., T, 2n, 2n]`, while
    means, innovations and their covariances are complex, of n and m components. Series that share
    covariances hold them once, until somebody reads them.
    """

    predicted_means: tf.Tensor
    """`E[x[t] | z[:t]]`, `[..., T, n]`."""
    predicted_chols: tf.Tensor = _OfEachSeries()
    """A factor of its covariance, `[..., T, n, n]`: lower triangular, the diagonal not negative."""
    filtered_means: tf.Tensor
    """`E[x[t] | z[:t+1]]`, `[..., T, n]`."""
    filtered_chols: tf.Tensor = _OfEachSeries()
    """A factor of its covariance, `[..., T, n, n]`."""
    innovations: tf.Tensor
    """Observations minus their predicted means, shaped like z; NaN where missing."""
    innovation_covariances: tf.Tensor = _OfEachSeries()
    """Their covariances, observation noise included, `[..., T, m, m]`; also where missing."""
    innovation_pseudo_covariances: tf.Tensor | None = _OfEachSeries()
    """`E[v vᵀ]`, `[..., T, m, m]`; None if the model is not widely linear, where it is zero."""
    log_likelihoods: tf.Tensor
    """`log p(z[t] | z[:t])` of the elements observed, real, `[..., T]`."""
    log_likelihood: tf.Tensor
    """Their sum, `[...]`."""

    @property
    def innovation_variances(self) -> tf.Tensor:
        """`E|v|²` of each innovation, real, shaped like z."""
        variances = real_diagonal(self.innovation_covariances)
        is_vector = self.innovations.shape.rank < variances.shape.rank
        return variances[..., 0] if is_vector else variances

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, field.name) for field in dataclasses.fields(self))

    # TensorFlow returns it from a `tf.function`, and finds its tensors, by these two.

    def __tf_flatten__(self) -> tuple[tuple[()], tuple[Any, ...]]:
        return (), tuple(self.__dict__[field.name] for field in dataclasses.fields(self))

    @classmethod
    def __tf_unflatten__(cls, metadata: tuple[()], components: tuple[Any, ...]) -> "Filtered":
        names = (field.name for field in dataclasses.fields(cls))
        return cls(**dict(zip(names, components, strict=True)))
