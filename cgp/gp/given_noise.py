"""The arguments `noise_variance` and `noise_groups`: the noise of samples as it was measured.

The noise variance of a sample is the learned one of its group plus its known part. Both are given
with the data, and stay with them when they are sorted, joined, dropped, stored and saved.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.gp.data import COMMON_NOISE, SampleNoise
from cgp.linalg.arguments import ArrayLike, as_flag, is_nan


class GivenNoise(NamedTuple):
    """The arguments `noise_variance` and `noise_groups` of a method, not checked yet."""

    variance: ArrayLike | None = None
    group: ArrayLike | None = None
    group_count: int | None = None
    """The number of groups that the model learns a noise variance for; None for no groups."""

    def of_data(self, z: tf.Tensor, real_dtype: str) -> SampleNoise:
        """The noise of the samples z, `[..., N]`, complex, NaN where missing.

        Where a sample is missing, a known part that is NaN or no variance becomes zero.

        Raises:
            TypeError: Noise variances that are not real, groups that are no integers.
            ValueError: Shapes that do not fit, variances that are negative or not finite where z is
                not missing, groups that are out of range, not needed, or not given.
        """
        self._check_groups_are_given()
        if self.variance is None and self.group is None:
            return COMMON_NOISE
        z = tf.convert_to_tensor(z)
        noise = self._as_tensors(real_dtype).map(lambda a: _by_series(a, z))
        if noise.variance is not None:
            present = tf.reshape(~is_nan(z), tf.concat([[-1], tf.shape(z)[-1:]], axis=0))
            if noise.variance.shape[0] == 1:
                present = tf.reduce_any(present, axis=0, keepdims=True)
            if tf.executing_eagerly():
                _check_variance(noise.variance, present)
            is_variance = tf.math.is_finite(noise.variance) & (noise.variance >= 0.0)
            zero = tf.zeros([], noise.variance.dtype)
            noise = noise._replace(variance=tf.where(present | is_variance, noise.variance, zero))
        return noise

    def of_each(self, z: np.ndarray, real_dtype: str) -> SampleNoise:
        """The noise of one sample of each series, z, `[B]` or a number; as `of_data` of `[..., 1]`.

        Raises:
            TypeError, ValueError: As for `of_data`.
        """
        self._check_groups_are_given()
        arrays = self._as_arrays()
        for name, value in zip(_NAMES, arrays, strict=True):
            if value is not None and value.shape not in ((), z.shape):
                wanted = f"a number, or [{z.size}] as z has" if z.ndim else "a number, as z is"
                raise ValueError(f"{name} must be {wanted}, got shape {value.shape}")
        noise = SampleNoise(*arrays).map(lambda a: a.reshape(-1, 1))
        if noise.variance is not None:
            variance, present = noise.variance.astype(real_dtype), ~np.isnan(z).reshape(-1, 1)
            if len(variance) == 1:
                present = present.any(keepdims=True)
            _check_variance(variance, present)
            is_variance = np.isfinite(variance) & (variance >= 0.0)
            noise = noise._replace(variance=np.where(is_variance, variance, 0.0).astype(real_dtype))
        return noise

    def of_points(self, observed: bool, points: int | None, real_dtype: str) -> SampleNoise | None:
        """The noise of M new points, scalars or `[M]`; None for the signal, without noise.

        Args:
            observed: Whether predictions are of observations.
            points: M, where it is known.
            real_dtype: "float64" or "float32".

        Raises:
            TypeError, ValueError: As for `of_data`; noise of what is not observed.
        """
        if not as_flag(observed, "observed"):
            for name, value in (("noise_variance", self.variance), ("noise_groups", self.group)):
                if value is not None:
                    raise ValueError(
                        f"{name} is of observations, and the signal has no noise: give "
                        "observed=True too"
                    )
            return None
        self._check_groups_are_given()
        noise = self._as_tensors(real_dtype)
        for name, part in zip(_NAMES, noise, strict=True):
            if part is not None and not (
                part.shape.rank == 0
                or (part.shape.rank == 1 and part.shape.is_compatible_with([points]))
            ):
                raise ValueError(
                    f"{name} must be a number, or [{points or 'M'}] for as many new points, got "
                    f"shape {part.shape}"
                )
        if noise.variance is not None and tf.executing_eagerly():
            _check_variance(noise.variance, tf.ones_like(noise.variance, tf.bool))
        return noise

    def _check_groups_are_given(self) -> None:
        if self.group_count is None and self.group is not None:
            raise ValueError(
                "noise_groups were given, but the model has one noise variance: make it with "
                "noise_variance=[...], one for each group"
            )
        if self.group_count is not None and self.group is None:
            raise ValueError(
                f"the model has a noise variance for each of {self.group_count} groups: give "
                f"noise_groups, integers from 0 to {self.group_count - 1}, one for each sample"
            )

    def _as_arrays(self) -> SampleNoise:
        """The arguments as arrays of real numbers and integers, groups in range; or an error.

        In a graph the arrays have the dtypes alone.
        """
        variance = group = None
        if self.variance is not None:
            variance = _numbers(self.variance, "noise_variance")
            if variance.dtype.kind not in "iuf":
                raise TypeError(f"noise_variance must be real numbers, got {variance.dtype}")
        if self.group is not None:
            group = _numbers(self.group, "noise_groups")
            if group.dtype.kind not in "iu":
                raise TypeError(f"noise_groups must be integers, got {group.dtype}")
            count = self.group_count or 0
            out = group[(group < 0) | (group >= count)]
            if out.size:
                raise ValueError(
                    f"noise_groups must be from 0 to {count - 1}, as noise_variance has {count} "
                    f"values, got {out.flat[0]}"
                )
            group = group.astype(np.int32)
        return SampleNoise(variance, group)

    def _as_tensors(self, real_dtype: str) -> SampleNoise:
        variance, group = self._as_arrays()
        if variance is not None:
            variance = tf.cast(_tensor(self.variance, variance), real_dtype)
        if group is not None:
            group = tf.cast(_tensor(self.group, group), tf.int32)
        return SampleNoise(variance, group)


_NAMES = ("noise_variance", "noise_groups")


def _numbers(value: ArrayLike, name: str) -> np.ndarray:
    """An array of the dtype of the value, whose elements are those of the value outside graphs."""
    if isinstance(value, tf.Variable) or tf.is_tensor(value) or hasattr(value, "__tf_tensor__"):
        value = tf.convert_to_tensor(value)
        if not tf.executing_eagerly():
            return np.zeros(0, value.dtype.as_numpy_dtype)
    if np.ma.isMaskedArray(value):
        value = np.ma.filled(value.astype(float), np.nan)
    try:
        return np.asarray(value)
    except ValueError:
        raise ValueError(
            f"{name} must be numbers, with rows of one length, got a ragged sequence"
        ) from None


def _tensor(value: ArrayLike, numbers: np.ndarray) -> tf.Tensor:
    if tf.is_tensor(value) or hasattr(value, "__tf_tensor__"):
        return tf.convert_to_tensor(value)  # gradients pass
    return tf.constant(numbers)


def _by_series(values: tf.Tensor, z: tf.Tensor) -> tf.Tensor:
    """Values that are broadcast against z, `[..., N]`, as `[1, N]` or `[B, N]`."""
    name = _NAMES[values.dtype.is_integer]
    try:
        shape = tf.broadcast_static_shape(values.shape, z.shape)
    except ValueError:
        shape = None
    if shape is None or not shape.is_compatible_with(z.shape):
        raise ValueError(
            f"{name} must be [N] or [..., N], broadcast against z of shape {z.shape}, got shape "
            f"{values.shape}"
        )
    if values.shape.rank <= 1 or values.shape[:-1].num_elements() == 1:
        values = tf.reshape(values, [1, -1])
        return values + tf.zeros([1, tf.shape(z)[-1]], values.dtype)
    values = tf.broadcast_to(values, tf.shape(z))
    return tf.reshape(values, tf.concat([[-1], tf.shape(z)[-1:]], axis=0))


def _check_variance(variance: tf.Tensor, present: tf.Tensor) -> None:
    """Raises for variances of present samples that no noise can have."""
    values = np.asarray(variance)
    wrong = values[np.asarray(present) & ~((values >= 0.0) & np.isfinite(values))]
    if wrong.size:
        raise ValueError(
            "noise_variance, the known part of the noise, must be finite and not negative, got "
            f"{wrong.flat[0]:g}; of missing samples it may be NaN"
        )


def joined_noise(parts: list[tuple[SampleNoise, int]], real_dtype: tf.DType) -> SampleNoise:
    """The noise of samples that are joined along the axis of points.

    Args:
        parts: Noise and number of points of each part; with groups in all of them or in none.
        real_dtype: The dtype of variances.
    """

    def join(values: list[Any], counts: list[int], dtype: tf.DType) -> tf.Tensor | None:
        if all(value is None for value in values):
            return None
        found = [
            np.zeros([1, n]) if value is None else np.asarray(value)
            for value, n in zip(values, counts, strict=True)
        ]
        series = max(len(value) for value in found)
        rows = [np.broadcast_to(a, [series, a.shape[1]]) for a in found]
        return tf.constant(np.concatenate(rows, axis=1), dtype)

    noises, counts = zip(*parts, strict=True)
    return SampleNoise(
        join([noise.variance for noise in noises], list(counts), real_dtype),
        join([noise.group for noise in noises], list(counts), tf.int32),
    )
