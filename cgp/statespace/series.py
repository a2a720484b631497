"""A series checked against a model, and arranged as the recursions need it."""

import math
from functools import cached_property, reduce
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.axes import as_code, remedy
from cgp.linalg.arguments import ArrayLike, as_numbers, is_finite, is_nan, nan
from cgp.linalg.batch_last import to_first, to_last
from cgp.observations import as_observations, check_same_labels
from cgp.statespace.engines.correlated_noise import Transition, conditional_transition
from cgp.statespace.engines.filter_step import KalmanSystem, decorrelated, with_covariances_of_each
from cgp.statespace.models.initial_states import check_diffuse
from cgp.statespace.models.linear_gaussian import LinearGaussian, check_model, with_time
from cgp.statespace.models.model_base import as_dtype


class Series:
    """Checked observations of a model, `[..., T, m]`, arranged; arguments as for `filter`."""

    def __init__(
        self,
        model: LinearGaussian,
        z: ArrayLike,
        missing: ArrayLike | None = None,
        inputs: ArrayLike | None = None,
    ):
        check_model(model)
        self.model = model
        check_labels(z, missing, inputs, along=1)
        z = _observations(model, z, missing)
        self.is_vector = z.shape.rank == 1
        if self.is_vector:
            z = z[:, None]
        self._check_length(z)
        # Where values are known to be whole, as most are, half of the operations are left out.
        self.is_whole = tf.executing_eagerly() and bool(np.isfinite(np.asarray(z)).all())
        self._present = None if self.is_whole else ~is_nan(z)
        if model.initial == "diffuse" and tf.executing_eagerly():
            check_diffuse(
                model, z if self.is_whole else np.where(np.asarray(self._present), z, 0.0)
            )
        finite = z if self.is_whole else tf.where(self._present, z, tf.zeros_like(z))
        self.z = model.observation_form.split(finite)
        self.inputs = known_inputs(model, inputs, self.z.shape[-2])

        shapes = [self.z.shape[:-2], model.batch_shape]
        if self.inputs is not None:
            shapes.append(self.inputs.shape[:-2])
        try:
            self.batch_shape = reduce(tf.broadcast_static_shape, shapes)
        except ValueError:
            raise ValueError(
                "the batch axes of series, model and inputs do not fit together: "
                f"{', '.join(map(str, shapes))}"
            ) from None

    @cached_property
    def observed(self) -> tf.Tensor:
        """Whether each working value is observed, bool, `[..., T, m]`."""
        if self._present is None:
            return tf.ones(self.z.shape, bool)
        working = [self._present] * self.model.observation_form.multiplicity
        return working[0] if len(working) == 1 else tf.concat(working, axis=-1)

    @property
    def observed_count(self) -> tf.Tensor:
        """The number of observed elements of all series, real, scalar."""
        working = tf.reduce_sum(tf.cast(self.observed, self.z.dtype.real_dtype))
        return working / self.model.observation_form.multiplicity

    @cached_property
    def nothing(self) -> tf.Tensor:
        """NaN, which marks missing values."""
        return nan(self.model.series_dtype)

    @cached_property
    def drift(self) -> tf.Tensor | None:
        """`B u + b`, the drift of the state from each step to the next, `[..., T, n]`."""
        b = self.model.b
        if self.inputs is None:
            return b
        driven = tf.linalg.matvec(with_time(self.model.B), self.inputs)
        return driven if b is None else b + driven

    @cached_property
    def _batch(self) -> tf.Tensor:
        """The batch axes as a tensor, also where they are not known statically."""
        if self.batch_shape.is_fully_defined():
            return tf.constant(self.batch_shape.as_list(), tf.int32)
        model = self.model
        matrices = (self.z, model.F, model.Q, model.H, model.R, model.B, model.S, self.inputs)
        ranked = [(a, 3 if a is not self.z and a is not self.inputs else 2) for a in matrices]
        ranked += [(model.initial_mean, 1), (model.initial_covariance, 2)]
        shapes = [
            tf.shape(a)[: a.shape.rank - axes]
            for a, axes in ranked
            if a is not None and a.shape.rank > axes
        ]
        return reduce(tf.broadcast_dynamic_shape, shapes)

    def _check_length(self, z: tf.Tensor) -> None:
        steps = z.shape[-2]
        if steps == 0 or (z.shape.is_fully_defined() and z.shape.num_elements() == 0):
            raise ValueError(f"the series is empty: got z of shape {z.shape}")
        varying = self.model.steps
        if None not in (steps, varying) and steps != varying:
            raise ValueError(f"z has {steps} steps, but the matrices of the model have {varying}")

    # --- arrangement -----------------------------------------------------------------------------

    def last(self, a: tf.Tensor, rank: int) -> tf.Tensor:
        """`[..., axes]` -> `[axes, B]`, with B = 1 where nothing varies over the batch."""
        shape = a.shape.as_list()
        if None not in shape[:-rank] and math.prod(shape[:-rank]) == 1:
            if None not in shape:
                return tf.reshape(a, [*shape[-rank:], 1])
            return tf.reshape(a, tf.concat([tf.shape(a)[-rank:], [1]], axis=0))
        return to_last(a, rank, self._batch)

    def matrix(self, a: tf.Tensor) -> tf.Tensor:
        """A matrix of the model as it is, or as `[T, rows, columns, B]` where it varies."""
        return a if a.shape.rank == 2 else self.last(with_time(a), 3)

    def of_steps(self, a: tf.Tensor) -> tf.Tensor:
        """A matrix of the model, `[T, rows, columns, B]`; T and B are 1 where nothing varies."""
        a = self.matrix(a)
        return a if a.shape.rank == 4 else a[None, ..., None]

    def by_series(self, a: tf.Tensor) -> tf.Tensor:
        """`[..., T, m]` -> `[B, T, m]`."""
        shape, batch = a.shape, self.batch_shape
        if batch.rank == 1 and batch.is_fully_defined() and shape[:-2] == batch:
            return a
        if batch.rank == 0:
            return tf.expand_dims(a, 0)
        axes = tf.shape(a)[-2:]
        a = tf.reshape(
            tf.broadcast_to(a, tf.concat([self._batch, axes], axis=0)),
            tf.concat([[-1], axes], axis=0),
        )
        return tf.ensure_shape(a, [batch.num_elements(), *shape[-2:]])

    def from_series(self, a: tf.Tensor) -> tf.Tensor:
        """`[B, axes]` -> `[..., axes]`, with the batch axes restored."""
        batch = self.batch_shape
        if batch.rank == 1 and (not batch.is_fully_defined() or a.shape[:1] == batch):
            return a
        if batch.is_fully_defined() and a.shape[1:].is_fully_defined():  # in one operation
            return tf.reshape(a, batch.concatenate(a.shape[1:]))
        shape = tf.concat([self._batch, tf.shape(a)[1:]], axis=0)
        return tf.ensure_shape(tf.reshape(a, shape), batch.concatenate(a.shape[1:]))

    def first(self, a: tf.Tensor) -> tf.Tensor:
        """`[axes, B]` -> `[..., axes]`, with the batch axes restored."""
        if tf.executing_eagerly():
            return to_first(a, self._batch)
        axes = a.shape[:-1]
        return tf.ensure_shape(to_first(a, self._batch), self.batch_shape.concatenate(axes))

    def first_or_shared(self, a: tf.Tensor) -> tf.Tensor:
        """Moves the batch first, into axes of 1 where all series share the values."""
        if a.shape[-1] != 1 or self.batch_shape.rank is None:
            return self.first(a)
        ones = [1] * self.batch_shape.rank
        if a.shape.is_fully_defined():  # in one operation
            return tf.reshape(a, [*ones, *a.shape.as_list()[:-1]])
        return tf.reshape(a, tf.concat([ones, tf.shape(a)[:-1]], axis=0))

    def of_each(self, a: tf.Tensor, rank: int) -> tf.Tensor:
        """`[..., axes]` of each series, where some or all may share the values."""
        if self.batch_shape.is_fully_defined() and a.shape[:-rank] == self.batch_shape:
            return a
        shape = tf.concat([self._batch, tf.shape(a)[-rank:]], axis=0)
        return tf.ensure_shape(
            tf.broadcast_to(a, shape), self.batch_shape.concatenate(a.shape[-rank:])
        )

    def observations(self) -> tf.Tensor:
        """The observations as given, `[..., T, M]`; NaN where missing."""
        z = self.model.observation_form.join(self.z)
        return tf.where(self.observed[..., : z.shape[-1]], z, nan(z.dtype))

    def innovations(self, means: tf.Tensor) -> tf.Tensor:
        """Observations less working means predicted, `[..., T, M]`; NaN where missing."""
        innovations = self.z - means
        if not self.is_whole:
            innovations = tf.where(self.observed, innovations, nan(innovations.dtype))
        return self.model.observation_form.join(innovations)

    def observation_axis(self, a: tf.Tensor) -> tf.Tensor:
        """Drops the last axis of `[..., T, M]` if z was given as `[T]`."""
        return a[..., 0] if self.is_vector else a

    # --- the system ------------------------------------------------------------------------------

    def arranged(self) -> KalmanSystem:
        """The model and the series, as compiled ops take them."""
        model = self.model
        matrices = (model.F, model.Q, model.Q_factor, model.H, model.R)
        F, Q, G, H, R = map(self.matrix, matrices)
        observed = self._pattern()
        z = self.z if model.d is None else self.z - model.d
        h, r, z = decorrelated(H, R, self.by_series(z), observed)
        drift = self.drift
        if drift is None:
            b = tf.constant(np.zeros(model.F.shape[-1], model.dtype.as_numpy_dtype))
        else:
            b = self.last(drift, 2)
        if model.joint_noise is not None:
            joint = (self.matrix(model.joint_noise.matrix), self.matrix(model.joint_noise.factor))
            F, Q, G, b = conditional_transition(
                Transition(F, Q, G, b), *joint, R, h, r, z, observed
            )
        initial = (model.initial_mean, model.initial_covariance, model.initial_chol)
        mean, covariance, chol = (
            a if a.shape.rank == rank else self.last(a, rank)
            for a, rank in zip(initial, (1, 2, 2), strict=True)
        )
        system = KalmanSystem(F, Q, G, h, r, b, z, observed, mean, covariance, chol)
        return with_covariances_of_each(system)

    def _pattern(self) -> tf.Tensor:
        """1 where observed, else 0, real, `[m]` where nothing is missing, else `[T, m, B or 1]`."""
        real = self.model.dtype.real_dtype
        if self.is_whole:
            return tf.constant(np.ones(self.z.shape[-1], real.as_numpy_dtype))
        observed = self.last(tf.cast(self.observed, real), 2)
        if tf.executing_eagerly() and bool(tf.reduce_all(observed == observed[..., :1])):
            return observed[..., :1]
        return observed


def known_inputs(model: LinearGaussian, inputs: Any, steps: int | None) -> tf.Tensor | None:
    """Checks known inputs and converts them to working values, `[..., T, k]`."""
    if inputs is None:
        if model.B is not None:
            raise ValueError(
                "the model has known inputs, by B or input_size: give inputs, of the axes of z, "
                "with k for M"
            )
        return None
    if model.B is None:
        raise ValueError("inputs were given, but the model has none: no B, no input_size")
    inputs = as_numbers(inputs, "inputs")
    if tf.as_dtype(inputs.dtype).is_complex and not model.state_dtype.is_complex:
        raise TypeError(
            f"inputs are complex ({inputs.dtype}), but the states of the model are real: give real "
            "and imaginary parts as inputs of their own"
        )
    inputs = as_dtype(inputs, model.state_dtype, "inputs")
    size = model.B.shape[-1] // model.form.multiplicity
    if inputs.shape.rank == 1 and size == 1:
        inputs = inputs[:, None]
    expected = f"[..., {steps or 'T'}, {size}]"
    fits = inputs.shape.rank >= 2 and inputs.shape[-1] == size
    if not fits or (steps is not None and inputs.shape[-2] not in (None, steps)):
        raise ValueError(f"inputs must be {expected}, got shape {inputs.shape}")
    if tf.executing_eagerly() and not is_finite(inputs):
        raise ValueError("inputs must be finite, but there are others")
    return model.form.split(inputs)


def check_labels(
    z: ArrayLike, missing: ArrayLike | None, inputs: ArrayLike | None, along: int
) -> None:
    """Raises where the labels of z with 0 or 1 time axes, missing values and inputs differ."""
    if missing is None and inputs is None:  # as in most steps of a stream: z is paired with nothing
        return
    check_same_labels(z=(z, 0), missing=(missing, 0))
    arrays = {"z": z, "missing": missing, "inputs": inputs}
    unpaired = {name: int(getattr(a, "ndim", 0) > along) for name, a in arrays.items()}
    check_same_labels(**{name: (a, unpaired[name]) for name, a in arrays.items()})


def _observations(model: LinearGaussian, z: ArrayLike, missing: ArrayLike | None) -> tf.Tensor:
    """The observations in the dtype of the model, `[T]` or `[..., T, m]`, NaN where missing."""
    original = z
    z = tf.convert_to_tensor(as_observations(z, missing, model.series_dtype, promote=True))
    m = model.observation_size
    if (z.shape.rank or 0) < (1 if m == 1 else 2) or (z.shape.rank > 1 and z.shape[-1] != m):
        hint = remedy(
            as_code("z", original), z.shape, lambda s: len(s) > 1 and s[-1] == m, samples=-2
        )
        raise ValueError(f"z must be [..., T, {m}], got shape {z.shape}{hint}")
    return z


def missing_series(model: LinearGaussian, steps: int | tf.Tensor) -> tf.Tensor:
    """A series of which every element is missing, `[T, m]`."""
    return as_dtype(tf.fill([steps, model.observation_size], float("nan")), model.series_dtype)
