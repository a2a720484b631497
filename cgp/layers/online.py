"""The state of a Kalman filter that runs, in the weights of a layer, and the step that moves it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions.marginals import Marginals, Step, innovation
from cgp.linalg.arguments import squared_modulus
from cgp.linalg.batch_last import matmul, matvec
from cgp.statespace.filtering import moments, observation_moments
from cgp.statespace.forecasting import ahead
from cgp.statespace.forward_pass import State as FilterState
from cgp.statespace.forward_pass import advance, observe
from cgp.statespace.linear_gaussian import LinearGaussian, with_time
from cgp.statespace.series import Series


class State(NamedTuple):
    """What is known of a state, NumPy."""

    mean: np.ndarray
    """`[..., n]`."""
    chol: np.ndarray
    """A factor of its covariance, `[..., n, n]`; of a real composite `[..., 2n, 2n]`."""


class Online:
    """B streams, filtered one observation at a time.

    Args:
        layer: The layer whose weights the state is kept in; they are made here.
        present: Returns the model of the present matrices.
        streams: B, or None for one stream without a batch axis.
        jit: Whether the step may be compiled by XLA.
    """

    def __init__(
        self,
        layer: keras.layers.Layer,
        present: Callable[[], LinearGaussian],
        streams: int | None,
        jit: bool,
    ):
        self.streams, self._present = streams, present
        model = present()
        if model.steps is not None:
            raise ValueError(
                "the matrices of the model vary over time, and a stream has no end: filter a whole "
                "series, or make a model for each part of it"
            )
        count = streams or 1
        if model.batch_shape.rank and model.batch_shape.num_elements() not in (1, count):
            raise ValueError(
                f"the model is a batch of {model.batch_shape.num_elements()}, but there are "
                f"{count} streams"
            )
        self._dtype, self._is_proper, n = model.dtype, model.is_proper, model.F.shape[-1]
        parts = [2] if self._dtype.is_complex else []
        self.weights = [
            layer.add_weight(
                shape=(*shape, count, *parts),
                initializer="zeros",
                dtype=self._dtype.real_dtype.name,
                trainable=False,
                autocast=False,
                name=name,
            )
            for name, shape in (("state_mean", (n,)), ("state_chol", (n, n)))
        ]
        signature = [tf.TensorSpec([count, model.observation_size], model.series_dtype)]
        if model.B is not None:
            size = model.B.shape[-1] // model.form.multiplicity
            signature.append(tf.TensorSpec([count, size], model.series_dtype))
        # A function with a default for its argument would take three times as long to call.
        advance = (lambda z: self._advance(z, None)) if model.B is None else self._advance
        self._function = tf.function(
            advance, input_signature=signature, jit_compile=jit, autograph=False
        )
        self._concrete: Any = None
        self.reset()

    # --- the state -------------------------------------------------------------------------------

    def _read(self) -> FilterState:
        """The state predicted for the next observation, batch last."""
        values = [tf.convert_to_tensor(weight) for weight in self.weights]
        if self._dtype.is_complex:
            values = [tf.complex(value[..., 0], value[..., 1]) for value in values]
        return FilterState(*values)

    def _write(self, carry: FilterState) -> None:
        values = list(carry)
        if self._dtype.is_complex:
            values = [tf.stack([tf.math.real(a), tf.math.imag(a)], axis=-1) for a in values]
        for weight, value in zip(self.weights, values, strict=True):
            weight.assign(value)

    def state(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and factor, `[..., n]` and `[..., n, n]`, of working values."""
        mean, chol = (tf.experimental.numpy.moveaxis(a, -1, 0) for a in self._read())
        return (mean[0], chol[0]) if self.streams is None else (mean, chol)

    def keep(self, mean: tf.Tensor, chol: tf.Tensor) -> None:
        """Takes a state, as `state` returns one."""
        if self.streams is None:
            mean, chol = mean[None], chol[None]
        self._write(FilterState(*(tf.experimental.numpy.moveaxis(a, 0, -1) for a in (mean, chol))))

    def reset(self) -> None:
        """Back to before the first observation."""
        model = self._present()
        shape = [] if self.streams is None else [self.streams]
        mean, chol = model.initial_mean, model.initial_chol
        mean = tf.broadcast_to(tf.reshape(mean, _squeezed(mean, 1)), [*shape, *mean.shape[-1:]])
        chol = tf.broadcast_to(tf.reshape(chol, _squeezed(chol, 2)), [*shape, *chol.shape[-2:]])
        self.keep(mean, chol)

    # --- one observation -------------------------------------------------------------------------

    def _advance(self, z: tf.Tensor, inputs: tf.Tensor | None) -> tf.Tensor:
        """One step of all streams; what is known before and after, real numbers, `[k, B]`.

        The state is written only if it is finite, which the last row says.
        """
        model = self._present()
        inputs = None if inputs is None else inputs[:, None]
        series = Series(model, z[:, None], inputs=inputs)
        system, before = series.system(), self._read()
        after, _, _ = observe(system, 0, before)
        following = advance(system, 0, after)
        sound = tf.reduce_all(
            [tf.reduce_all(tf.math.is_finite(tf.abs(value))) for value in following]
        )
        self._write(
            FilterState(*(tf.where(sound, a, b) for a, b in zip(following, before, strict=True)))
        )

        H, R = (series.last(with_time(a), 3)[0] for a in (model.H, model.R))
        predicted = _packed(model, matvec(H, before.mean), matmul(H, before.chol), R)
        filtered = _packed(model, after.mean, after.chol, None)
        flag = tf.zeros_like(predicted[:1]) + tf.cast(sound, predicted.dtype)
        return tf.concat([predicted, filtered, flag], axis=0)

    def step(self, z: np.ndarray, inputs: np.ndarray | None) -> Step:
        """One step, of `[B, M]`, or of `[M]` of a single stream; NaN where missing."""
        arguments = [z] if inputs is None else [z, inputs]
        if self.streams is None:
            arguments = [a[None] for a in arguments]
        if self._concrete is None:  # which is called in half the time
            self._concrete = self._function.get_concrete_function()
        values = self._concrete(*map(tf.constant, arguments)).numpy()
        if not values[-1].all():
            raise ValueError(_UNSOUND)
        rows = len(_packing(self._is_proper, self._dtype)) * z.shape[-1]
        predicted, filtered = (
            _unpacked(part, self._is_proper, self._dtype, self.streams is None)
            for part in (values[:rows], values[rows:-1])
        )
        return Step(predicted, innovation(z, predicted.mean), filtered)

    # --- many observations -----------------------------------------------------------------------

    def run(self, z: np.ndarray, inputs: np.ndarray | None) -> Step:
        """A block, `[T, M]` or `[B, T, M]`; NaN where missing."""
        present = self._present()
        form = present.form
        model = present.starting_from(*self.state())
        series = Series(model, z, inputs=inputs)
        found = moments(series)
        observed = observation_moments(model, found)
        means = tf.linalg.matvec(model.H, found.predicted_means)
        predicted = _marginals(form.join(means), observed, model.dtype)
        filtered = _marginals(
            form.join(found.filtered_means), form.moments(found.filtered_covariances), model.dtype
        )
        last = None if series.inputs is None else series.inputs[..., -1, :]
        following = ahead(
            model, found.filtered_means[..., -1, :], found.filtered_chols[..., -1, :, :], last
        )
        if not all(np.isfinite(a).all() for a in following):
            raise ValueError(_UNSOUND)
        self.keep(*following)
        return Step(predicted, innovation(z, predicted.mean), filtered)


_UNSOUND = (
    "the state would not be finite any more, and is as it was: the matrices of the model are not "
    "finite, or far off"
)


def _packing(is_proper: bool, dtype: tf.DType) -> tuple[str, ...]:
    """The real numbers that say all of the moments of one component."""
    if not is_proper:
        return ("re", "im", "variance", "pseudo re", "pseudo im")
    return ("re", "im", "variance") if dtype.is_complex else ("re", "variance")


def _packed(model: LinearGaussian, mean: tf.Tensor, rows: tf.Tensor, noise) -> tf.Tensor:
    """Moments of components with factor `rows`, `[m, n, B]`, and noise, `[m, m, B]`, as numbers.

    One array comes out of the compiled step faster than six.
    """
    power = tf.reduce_sum(squared_modulus(rows), axis=1)
    if noise is not None:
        power += tf.math.real(tf.stack([noise[i, i] for i in range(noise.shape[0])]))
    if model.is_proper:
        parts = [tf.math.real(mean), tf.math.imag(mean)] if mean.dtype.is_complex else [mean]
        return tf.concat([*parts, power], axis=0)
    m = mean.shape[0] // 2
    cross = tf.reduce_sum(rows[:m] * rows[m:], axis=1)
    if noise is not None:
        cross += tf.stack([noise[i, i + m] for i in range(m)])
    return tf.concat([mean, power[:m] + power[m:], power[:m] - power[m:], 2.0 * cross], axis=0)


def _unpacked(values: np.ndarray, is_proper: bool, dtype: tf.DType, single: bool) -> Marginals:
    """Moments `[B, m]`, or `[m]`, of numbers that `_packed` has packed."""
    parts = values.reshape(len(_packing(is_proper, dtype)), -1, values.shape[-1])
    parts = parts[..., 0] if single else np.moveaxis(parts, 1, -1)
    if not dtype.is_complex and is_proper:
        mean, variance = parts
        return Marginals(mean, variance, variance)  # E(x − m)², of a real number
    mean, variance = parts[0] + 1j * parts[1], parts[2]
    pseudo = np.zeros_like(mean) if is_proper else parts[3] + 1j * parts[4]
    return Marginals(mean, variance, pseudo)


def _marginals(mean: tf.Tensor, covariances, dtype: tf.DType) -> Marginals:
    """The same of moments in matrices."""
    variance = tf.math.real(tf.linalg.diag_part(covariances.k)).numpy()
    if covariances.c is not None:
        pseudo = tf.linalg.diag_part(covariances.c).numpy()
    else:
        pseudo = np.zeros_like(mean.numpy()) if dtype.is_complex else variance
    return Marginals(mean.numpy(), variance, pseudo)


def _squeezed(a: tf.Tensor, own: int) -> list[int]:
    """The shape of an array of at most one batch axis that counts."""
    return [*([a.shape[:-own].num_elements()] if a.shape.rank > own else []), *a.shape[-own:]]
