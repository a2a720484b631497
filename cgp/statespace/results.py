"""Results for many series, which may share covariances."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
import tensorflow as tf

from cgp.distributions.forms import SecondMoments, form_of
from cgp.distributions.marginals import JointMoments, Marginals
from cgp.linalg.arguments import real_diagonal, squared_modulus
from cgp.linalg.cholesky import stored_cholesky
from cgp.linalg.short_repr import short_repr
from cgp.tensorflow_private import is_recorded


def has_gradient() -> bool:
    """Whether gradients of what is computed now may be asked for: in a graph, or under a tape."""
    return not tf.executing_eagerly() or is_recorded()


def factors(chols: tf.Tensor, covariances: tf.Tensor) -> tf.Tensor:
    """Stored factors of covariances, with the gradient of a factorisation where there is any."""
    return stored_cholesky(chols, covariances) if has_gradient() else chols


def when_read(moments: Callable[[], Any]) -> Any:
    """What a `WhenRead` field is set to: a function of its value, or the value itself.

    Values in a graph, and those that a gradient tape may record, are computed at once: when they
    are read, the graph or the tape may have ended.
    """
    return moments() if has_gradient() else moments


class WhenRead:
    """A field of a `SeriesResult` that may be set to a function, which is called when it is read.

    Moments of observations that nobody reads take longer than the filter that they derive from.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = name

    def __get__(self, result: Any, owner: type) -> Any:
        if result is None:
            raise AttributeError(f"{self._key} is a field of results, and has no default")
        value = result.__dict__[self._key]
        if callable(value):  # two threads may both compute it, which does no harm
            with tf.init_scope():  # read in a graph, it is still an eager tensor
                value = result.__dict__[self._key] = value()
        return value

    def __set__(self, result: Any, a: Any) -> None:
        result.__dict__[self._key] = a


class OfEachSeries(WhenRead):
    """A field that series may share, `[1, T, n, n]`; it is spread when read.

    The factors of a thousand series of a hundred steps of eight states take a hundred megabytes, of
    which one hundred kilobytes differ. The spread array is not kept: it would have no gradient
    where it was read first without a tape.
    """

    def __get__(self, result: Any, owner: type) -> Any:
        a = super().__get__(result, owner)
        means = next(iter(result.__dict__.values()))
        batch = tf.TensorShape(means.shape[:-2])
        if a is None or (batch.is_fully_defined() and a.shape[:-3] == batch):
            return a
        shape = tf.concat([tf.shape(means)[:-2], tf.shape(a)[-3:]], axis=0)
        return tf.ensure_shape(tf.broadcast_to(a, shape), batch.concatenate(a.shape[-3:]))


class OfEachStep(OfEachSeries):
    """A field of which late steps may be left out, where the covariances of the state have settled.

    The last step that is stored stands for all later ones.
    """

    def __get__(self, result: Any, owner: type) -> Any:
        a = super().__get__(result, owner)
        steps = next(iter(result.__dict__.values())).shape[-2]
        if a is None or None in (steps, a.shape[-3]) or a.shape[-3] == steps:
            return a
        settled = tf.repeat(a[..., -1:, :, :], steps - a.shape[-3], axis=-3)
        return tf.concat([a, settled], axis=-3)


def variances_of(means: tf.Tensor, chols: tf.Tensor) -> tf.Tensor:
    """`E|x − m|²` of states, real, `[..., n]`, from a factor of their form, `[..., n or 2n, n]`."""
    power = tf.reduce_sum(squared_modulus(chols), axis=-1)
    if power.shape[-1] == means.shape[-1]:
        return power
    re, im = tf.split(power, 2, axis=-1)  # the real composite of a complex state
    return re + im


def factor_marginals(means: tf.Tensor, chols: tf.Tensor) -> Marginals:
    """The marginal moments of states, NumPy arrays `[..., n]`, from factors of their form."""
    form = form_of(is_proper=chols.shape[-2] == means.shape[-1])
    return _marginals(means, form.marginal(tf.linalg.adjoint(chols)))


def covariance_marginals(means: tf.Tensor, covariances: SecondMoments) -> Marginals:
    """The marginal moments, NumPy arrays, by the pair (K, C); batch axes are 1 where shared."""
    return _marginals(means, covariances.map(tf.linalg.diag_part))


def joint_moments(means: tf.Tensor, covariances: SecondMoments) -> JointMoments:
    """The pair (K, C) of each time of each series, NumPy; read-only where series share it."""
    shape = (*means.shape, means.shape[-1])
    covariance = np.broadcast_to(covariances.k.numpy(), shape)
    if covariances.c is not None:
        return JointMoments(covariance, np.broadcast_to(covariances.c.numpy(), shape))
    # E(x − m)² of a real number is its variance; of a proper one it is zero.
    pseudo = np.broadcast_to(np.zeros([], covariance.dtype), shape)
    return JointMoments(covariance, pseudo if means.dtype.is_complex else covariance)


def _marginals(means: tf.Tensor, variances: SecondMoments) -> Marginals:
    mean, variance = means.numpy(), tf.math.real(variances.k).numpy()
    if variances.c is not None:
        pseudo = variances.c.numpy()
    else:  # E(x − m)² of a real number is its variance
        pseudo = np.zeros_like(mean) if means.dtype.is_complex else variance

    def of_each(a: np.ndarray) -> np.ndarray:
        return a if a.shape == mean.shape else np.broadcast_to(a, mean.shape).copy()

    return Marginals(mean, of_each(variance), of_each(pseudo))


@short_repr
@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SeriesResult:
    """A dataclass of tensors whose first field, means `[..., T, n]`, has the batch axes of all.

    It is iterated over like a named tuple, and may go into and out of a `tf.function`.
    """

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, name) for name in self._names())

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in dataclasses.fields(cls))

    def map(self, function: Callable[[tf.Tensor], tf.Tensor]) -> Self:
        """Applies a function to each tensor of the result; returns a result of the values."""
        values = (None if a is None else function(a) for a in self)
        return self.__tf_unflatten__((), tuple(values))

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[tuple[()], tuple[Any, ...]]]:
        return self.__tf_unflatten__, self.__tf_flatten__()

    def __tf_flatten__(self) -> tuple[tuple[()], tuple[Any, ...]]:
        return (), tuple(self)

    @classmethod
    def __tf_unflatten__(cls, metadata: tuple[()], components: tuple[Any, ...]) -> Self:
        return cls(**dict(zip(cls._names(), components, strict=True)))


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Filtered(SeriesResult):
    """Results of the filter: moments of the state before and after each observation.

    For a widely linear model the factors are of the real composite, `[..., T, 2n, 2n]`, while
    means, innovations and their covariances are complex, of n and m components. Series that share
    covariances hold them once; each reading spreads them. Moments of observations are computed when
    they are first read, unless in a graph or under a gradient tape.
    """

    predicted_means: tf.Tensor
    """`E[x[t] | z[:t]]`, `[..., T, n]`."""
    predicted_chols: tf.Tensor = OfEachStep()
    """A factor of the covariance, `[..., T, n, n]`: lower triangular, diagonal not negative."""
    filtered_means: tf.Tensor
    """`E[x[t] | z[:t+1]]`, `[..., T, n]`."""
    filtered_chols: tf.Tensor = OfEachStep()
    """A factor of the covariance of the filtered state, `[..., T, n, n]`."""
    observation_means: tf.Tensor = WhenRead()
    """The mean of each observation given those before it, shaped like z, also where z is NaN."""
    innovations: tf.Tensor = WhenRead()
    """Observations minus their predicted means, shaped like z; NaN where missing."""
    innovation_covariances: tf.Tensor = OfEachStep()
    """Innovation covariances, observation noise included, `[..., T, m, m]`; also where missing."""
    innovation_pseudo_covariances: tf.Tensor | None = OfEachStep()
    """`E[v vᵀ]`, `[..., T, m, m]`; None if the model is not widely linear, where it is zero."""
    log_likelihoods: tf.Tensor
    """`log p(z[t] | z[:t])` of the elements observed, real, `[..., T]`."""
    log_likelihood: tf.Tensor
    """The sum over time, `[...]`."""

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

        With an `Iterated` rule or a likelihood they are of approximate observations in place of z,
        and forecasts only where z is missing: with `StudentT` the variance grows with the
        distance of an outlier, so that no squared innovation is large beside it. For the
        states see `filtered_means` and `filtered_variances`.

        Returns:
            NumPy arrays shaped like z.
        """
        means = self.observation_means[..., None] if self._is_vector else self.observation_means
        covariances = SecondMoments(self.innovation_covariances, self.innovation_pseudo_covariances)
        marginals = covariance_marginals(means, covariances)
        return marginals.map(lambda a: a[..., 0]) if self._is_vector else marginals

    @property
    def _is_vector(self) -> bool:
        """Whether z was given as `[T]`, without an axis of components."""
        return self.innovations.shape.rank < self.innovation_covariances.shape.rank - 1
