"""Results for many series, which may share covariances."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
import tensorflow as tf

from cgp.distributions.forms import SecondMoments, form_of
from cgp.distributions.marginals import Marginals
from cgp.linalg.arguments import squared_modulus
from cgp.linalg.short_repr import short_repr


class OfEachSeries:
    """A field of a `SeriesResult` that series may share, `[1, T, n, n]`; it is spread when read.

    A thousand series of a hundred steps of eight states have factors of a hundred megabytes, and
    one hundred kilobytes that are not the same. What was spread is not kept: it would have no
    gradient where it was read first without a tape.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = name

    def __get__(self, result: Any, owner: type) -> Any:
        if result is None:
            raise AttributeError(f"{self._key} is a field of results, and has no default")
        value, means = result.__dict__[self._key], next(iter(result.__dict__.values()))
        batch = tf.TensorShape(means.shape[:-2])
        if value is None or (batch.is_fully_defined() and value.shape[:-3] == batch):
            return value
        shape = tf.concat([tf.shape(means)[:-2], tf.shape(value)[-3:]], axis=0)
        return tf.ensure_shape(tf.broadcast_to(value, shape), batch.concatenate(value.shape[-3:]))

    def __set__(self, result: Any, value: Any) -> None:
        result.__dict__[self._key] = value


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
    """The marginal moments of each component, as NumPy arrays.

    Args:
        means: `[..., n]`.
        covariances: The pair (K, C), each `[..., n, n]`; batch axes are 1 where they are shared.
    """
    return _marginals(means, covariances.map(tf.linalg.diag_part))


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
        """The same result with a function applied to each tensor."""
        values = (None if value is None else function(value) for value in self)
        return self.__tf_unflatten__((), tuple(values))

    def __tf_flatten__(self) -> tuple[tuple[()], tuple[Any, ...]]:
        return (), tuple(self)

    @classmethod
    def __tf_unflatten__(cls, metadata: tuple[()], components: tuple[Any, ...]) -> Self:
        return cls(**dict(zip(cls._names(), components, strict=True)))
