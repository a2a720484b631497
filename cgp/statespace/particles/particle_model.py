"""The functions, noise and observations of a particle filter, arranged for its loop."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from cgp.statespace.engines.decorrelation import decorrelated
from cgp.statespace.linearization.linearized_model import AnyModel
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian
from cgp.statespace.series import Series


class Drawn(NamedTuple):
    """Noise and observations; time is the first axis, of 1 where nothing varies, then the batch."""

    mean: tf.Tensor
    """The mean of the initial state, `[B, n]`; B is 1 where all series share it."""
    chol: tf.Tensor
    """`[B, n, n]`."""
    Q_factor: tf.Tensor
    """`[T, B, n, q]`."""
    whitening: tf.Tensor
    """U⁻¹ with `R = U D Uᴴ` of the elements observed, `[T, B, m, m]`."""
    variances: tf.Tensor
    """The diagonal of D, real, `[T, B, m]`."""
    z: tf.Tensor
    """`U⁻¹ z`, `[T, B, m]`."""
    observed: tf.Tensor
    """Real, `[T, B, m]`: 1, or 0 where missing."""


class Functions(NamedTuple):
    """Transition and observation of particles, `(arguments of a step, [B, N, n]) -> [B, N, ·]`."""

    transition: Callable[[Any, tf.Tensor], tf.Tensor]
    observation: Callable[[Any, tf.Tensor], tf.Tensor]


class Matrices(NamedTuple):
    """The matrices of a linear model at each step, arranged as in `Drawn`."""

    F: tf.Tensor
    b: tf.Tensor
    H: tf.Tensor
    d: tf.Tensor


def drawn_from(series: Series) -> Drawn:
    """The noise of the model of a series, and its observations, their noise decorrelated."""
    noise = series.model

    def first(a: tf.Tensor) -> tf.Tensor:
        return tf.experimental.numpy.moveaxis(a, -1, 0)

    R = series.of_steps(noise.R)
    observed = series.last(tf.cast(series.observed, noise.dtype.real_dtype), 2)
    eye = tf.eye(R.shape[1], dtype=noise.dtype)[None, ..., None]
    whitening, variances, z = decorrelated(eye, R, series.by_series(series.z), observed)
    return Drawn(
        first(series.last(noise.initial_mean, 1)),
        first(series.last(noise.initial_chol, 2)),
        _by_step(series, noise.Q_factor),
        _batch_second(whitening),
        _batch_second(variances),
        tf.einsum("btm->tbm", z),
        _batch_second(observed),
    )


def functions_of(model: AnyModel) -> Functions:
    """The functions of a model; those of a linear one take its matrices."""
    if isinstance(model, NonlinearGaussian):
        return Functions(
            lambda inputs, x: model.working("transition", inputs)(x),
            lambda inputs, x: model.working("observation", inputs)(x),
        )
    return Functions(
        lambda matrices, x: each(matrices.F, x) + matrices.b[:, None],
        lambda matrices, x: each(matrices.H, x) + matrices.d[:, None],
    )


def arguments_of(model: AnyModel, series: Series) -> Any:
    """The arguments of the functions of a model: known inputs, `[T, B, k]`, or `Matrices`."""
    inputs = series.inputs
    if isinstance(model, NonlinearGaussian):
        if inputs is None:
            return tf.zeros([1, 1, 0], model.dtype)
        return tf.einsum("btk->tbk", series.by_series(inputs))

    def offset(a: tf.Tensor | None, size: int) -> tf.Tensor:
        if a is None:
            return tf.zeros([1, 1, size], model.dtype)
        return _batch_second(series.last(a, 2))

    rows, columns = model.H.shape[-2:]
    return Matrices(
        _by_step(series, model.F),
        offset(series.drift, columns),
        _by_step(series, model.H),
        offset(model.d, rows),
    )


def _by_step(series: Series, a: tf.Tensor) -> tf.Tensor:
    """A matrix of the model, `[T, B, rows, columns]`."""
    return _batch_second(series.of_steps(a))


def _batch_second(a: tf.Tensor) -> tf.Tensor:
    """`[T, …, B]` -> `[T, B, …]`."""
    return tf.experimental.numpy.moveaxis(a, -1, 1)


def each(matrix: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """A matrix `[B or 1, rows, n]` times each particle, `[B, N, n]`."""
    columns = tf.einsum("bij->bji", matrix)  # particles are rows: no conjugation is meant
    return tf.linalg.matmul(x, columns)
