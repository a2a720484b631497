"""The noise of observations: its hyperparameters, and its known part sample by sample.

The noise variance of a sample is the learned one of its group plus its known part, or a learned
multiple of that, `noise_scale`. Both arguments,
`noise_variance` and `noise_groups`, come with the data, and stay with them when these are sorted,
joined, dropped, stored and saved. `NoiseArguments` has them as the user passed them, `SampleNoise`
as checked tensors. Noise that follows the signal adds `noise_fraction² E|f|²` (see
`cgp.gp.signal_power`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import ArrayLike, as_flag, is_nan
from cgp.training.hyperparameters import one_number
from cgp.training.parameters import POSITIVE, UNIT_DISK


class SampleNoise(NamedTuple):
    """The noise of samples, as far as it differs from sample to sample; fields are None otherwise.

    Variances and groups of new points are `[M]` or scalars.
    """

    variance: tf.Tensor | None = None
    """The known part of `E|n|²`, real, `[V, N]`: V is 1 where all series share it, else B."""
    group: tf.Tensor | None = None
    """The group whose learned noise variance applies, int32, `[V, N]`."""
    total_variance: tf.Tensor | None = None
    """All of `E|n|²`, in place of the learned and the known part, real, `[B, N]`, for the normal
    data that stand for data of another likelihood (see `cgp.gp.site_approximation`)."""
    total_pseudo_variance: tf.Tensor | None = None
    """All of `E[n²]`, complex, `[B, N]`, beside a total variance; None if zero."""
    signal_power: tf.Tensor | None = None
    """`E|f|²` of the signal at the sample, real, `[B, N]`, for noise that is a fraction of it."""

    @property
    def is_common(self) -> bool:
        """Whether all samples have the one learned noise variance, and no other."""
        return all(field is None for field in self)

    def map(self, function: Callable[[Any], Any]) -> "SampleNoise":
        """Applies a function to the fields that are not None."""
        return SampleNoise(*(None if field is None else function(field) for field in self))

    def at(self, t: int) -> "SampleNoise":
        """The noise of one sample of each series, `[V, 1]`."""
        return self if self.is_common else self.map(lambda a: a[:, t : t + 1])


COMMON_NOISE = SampleNoise()
"""The learned noise variance of a model without groups, and no known part."""


class NoiseArguments(NamedTuple):
    """The arguments `noise_variance` and `noise_groups` of a method, not checked yet."""

    variance: ArrayLike | None = None
    group: ArrayLike | None = None
    group_count: int | None = None
    """The number of groups that the model learns a noise variance for; None for no groups."""
    outputs: int | None = None
    """The number P of outputs, beside each other in samples `[..., N P]`; arguments are broadcast
    against `[..., N, P]`. None for one signal."""

    @property
    def are_left_out(self) -> bool:
        """Whether the noise is the one learned noise of a model without groups."""
        return self.variance is None and self.group is None and self.group_count is None

    def of_data(self, z: tf.Tensor, real_dtype: str) -> SampleNoise:
        """The noise of the samples z, `[..., N]`, complex, NaN where missing.

        Where a sample is missing, a known part that is NaN or no variance becomes zero. As many
        groups as outputs are the outputs, if none are given.

        Raises:
            TypeError: Noise variances that are not real, groups that are no integers.
            ValueError: Shapes that do not fit, variances that are negative or not finite where z is
                not missing, groups that are out of range, not needed, or not given.
        """
        self.check_groups()
        if self.variance is None and self.group is None and self.group_count is None:
            return COMMON_NOISE
        z = tf.convert_to_tensor(z)
        noise = self._as_tensors(real_dtype, z.shape[-1]).map(lambda a: _by_series(a, z))
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
        """The noise of a sample of each series, `[B]` or a number; as `of_data` for `[..., 1]`."""
        self.check_groups()
        variance, group = self._as_arrays()
        for name, array in (("noise_variance", variance), ("noise_groups", group)):
            if array is not None and array.shape not in ((), z.shape):
                shape = f"a number, or [{z.size}] as z has" if z.ndim else "a number, as z is"
                raise ValueError(f"{name} must be {shape}, got shape {array.shape}")
        noise = SampleNoise(variance, group).map(lambda a: a.reshape(-1, 1))
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

        M may be None, unknown. Errors as for `of_data`; a ValueError for noise of the signal.
        """
        if not as_flag(observed, "observed"):
            for name, argument in (("noise_variance", self.variance), ("noise_groups", self.group)):
                if argument is not None:
                    raise ValueError(
                        f"{name} is of observations, and the signal has no noise: give "
                        "observed=True too"
                    )
            return None
        self.check_groups()
        noise = self._as_tensors(real_dtype, points)
        for name, a in (("noise_variance", noise.variance), ("noise_groups", noise.group)):
            if a is not None and a.shape.rank and not a.shape.is_compatible_with([points]):
                raise ValueError(
                    f"{name} must be a number, or [{points or 'M'}] for as many new points, got "
                    f"shape {a.shape}"
                )
        if noise.variance is not None and tf.executing_eagerly():
            _check_variance(noise.variance, tf.ones_like(noise.variance, tf.bool))
        return noise

    def between(self, points: slice) -> "NoiseArguments":
        """The arguments of some of the points that they are of."""
        variance, group = (
            a if a is None or np.ndim(a) == 0 else np.asarray(a)[points]
            for a in (self.variance, self.group)
        )
        return self._replace(variance=variance, group=group)

    def check_groups(self) -> None:
        """Raises a ValueError for groups that are missing, or that the model does not have."""
        if self.group_count is None and self.group is not None:
            raise ValueError(
                "noise_groups were given, but the model has one noise variance: make it with "
                "noise_variance=[...], one for each group"
            )
        is_by_output = self.outputs is not None and self.group_count == self.outputs
        if is_by_output and self.group is not None:
            raise ValueError(
                f"noise_variance has a value for each of {self.outputs} outputs, which are the "
                "groups then: leave noise_groups out"
            )
        if self.group_count is not None and not is_by_output and self.group is None:
            of_outputs = f", or one for each of {self.outputs} outputs" if self.outputs else ""
            raise ValueError(
                f"the model has a noise variance for each of {self.group_count} groups: give "
                f"noise_groups, integers from 0 to {self.group_count - 1}, one for each sample"
                f"{of_outputs}"
            )

    def _as_arrays(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """The arguments as arrays of real numbers and integers, groups in range; or an error.

        Tensors of a graph become empty arrays of their dtypes.
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
        return variance, group

    def _as_tensors(self, real_dtype: str, samples: int | None) -> SampleNoise:
        variance, group = self._as_arrays()
        if variance is not None:
            variance = tf.cast(_tensor(self.variance, variance), real_dtype)
        if group is not None:
            group = tf.cast(_tensor(self.group, group), tf.int32)
        elif self.group_count is not None:
            group = tf.range(self.group_count)
        noise = SampleNoise(variance, group)
        return (
            noise if self.outputs is None else noise.map(lambda a: self._side_by_side(a, samples))
        )

    def _side_by_side(self, a: tf.Tensor, samples: int | None) -> tf.Tensor:
        """Values broadcast against `[..., N, P]`, as `[..., N P]`."""
        outputs = self.outputs or 1
        wide = tf.TensorShape([None if samples is None else samples // outputs, outputs])
        try:
            shape = tf.broadcast_static_shape(a.shape, wide)
        except ValueError:
            shape = None
        if shape is None or not shape[-2:].is_compatible_with(wide):
            name = "noise_groups" if a.dtype.is_integer else "noise_variance"
            raise ValueError(
                f"{name} must broadcast against z, [..., {wide[0] or 'N'}, {self.outputs}], got "
                f"shape {a.shape}"
            )
        a = tf.broadcast_to(a, shape)
        return tf.reshape(a, [*shape[:-2], -1])


def _numbers(a: ArrayLike, name: str) -> np.ndarray:
    """An argument as an array; for a tensor of a graph, an empty array of its dtype."""
    if isinstance(a, tf.Variable) or tf.is_tensor(a) or hasattr(a, "__tf_tensor__"):
        a = tf.convert_to_tensor(a)
        if not tf.executing_eagerly():
            return np.zeros(0, a.dtype.as_numpy_dtype)
    if np.ma.isMaskedArray(a):
        a = np.ma.filled(a.astype(float), np.nan)
    try:
        return np.asarray(a)
    except ValueError:
        raise ValueError(
            f"{name} must be numbers, with rows of one length, got a ragged sequence"
        ) from None


def _tensor(a: ArrayLike, numbers: np.ndarray) -> tf.Tensor:
    if tf.is_tensor(a) or hasattr(a, "__tf_tensor__"):
        return tf.convert_to_tensor(a)  # gradients pass
    return tf.constant(numbers)


def _by_series(a: tf.Tensor, z: tf.Tensor) -> tf.Tensor:
    """Variances or groups broadcast against z, `[..., N]`, as `[1, N]` or `[B, N]`."""
    try:
        shape = tf.broadcast_static_shape(a.shape, z.shape)
    except ValueError:
        shape = None
    if shape is None or not shape.is_compatible_with(z.shape):
        name = "noise_groups" if a.dtype.is_integer else "noise_variance"
        raise ValueError(
            f"{name} must be [N] or [..., N], broadcast against z of shape {z.shape}, got shape "
            f"{a.shape}"
        )
    if a.shape.rank <= 1 or a.shape[:-1].num_elements() == 1:
        a = tf.reshape(a, [1, -1])
        return a + tf.zeros([1, tf.shape(z)[-1]], a.dtype)
    a = tf.broadcast_to(a, tf.shape(z))
    return tf.reshape(a, tf.concat([[-1], tf.shape(z)[-1:]], axis=0))


def _check_variance(variance: tf.Tensor, present: tf.Tensor) -> None:
    """Raises for variances of present samples that no noise can have."""
    variance = np.asarray(variance)
    refused = variance[np.asarray(present) & ~((variance >= 0.0) & np.isfinite(variance))]
    if refused.size:
        raise ValueError(
            "noise_variance, the known part of the noise, must be finite and not negative, got "
            f"{refused.flat[0]:g}; of missing samples it may be NaN"
        )


def joined_noise(blocks: list[tuple[SampleNoise, int]], real_dtype: tf.DType) -> SampleNoise:
    """The noise of blocks of samples, each with its number of points, joined along their axis.

    All blocks have groups, or none has.
    """
    counts = [count for _, count in blocks]

    def join(arrays: list[Any], dtype: tf.DType) -> tf.Tensor | None:
        if all(a is None for a in arrays):
            return None
        pairs = zip(arrays, counts, strict=True)
        rows = [np.zeros([1, count]) if a is None else np.asarray(a) for a, count in pairs]
        series = max(map(len, rows))
        rows = [np.broadcast_to(a, [series, a.shape[1]]) for a in rows]
        return tf.constant(np.concatenate(rows, axis=1), dtype)

    variance = join([noise.variance for noise, _ in blocks], real_dtype)
    return SampleNoise(variance, join([noise.group for noise, _ in blocks], tf.int32))


def noise_parameters(
    variance: ArrayLike | None,
    pseudo_variance: complex,
    scale: float | None,
    fraction: float | None,
) -> dict:
    """Initial values and constraints of the hyperparameters of the noise, by name.

    The variance is None if it was left out, or has a value for each group; the pseudo-variance
    belongs to the first. A scale of 1 or a fraction of 0 is no hyperparameter, and None is one that
    was left out. Raises where no noise has both moments.
    """
    constraint = POSITIVE
    if variance is not None and np.ndim(variance) == 1 and is_left_out(variance):
        constraint = POSITIVE._replace(placeholder=np.ones(np.size(variance)))  # of each group
        variance = None
    if variance is not None and np.shape(variance) == (0,):
        raise ValueError("noise_variance must be a number, or one for each group, got none")
    if variance is not None and np.ndim(variance) != 1:
        one_number(variance, "noise_variance")
    parameters = {"noise_variance": (variance, constraint)}
    if scale is None or one_number(scale, "noise_scale") != 1.0:
        parameters["noise_scale"] = (scale, POSITIVE)
    if fraction is None or one_number(fraction, "noise_fraction") != 0.0:
        parameters["noise_fraction"] = (fraction, POSITIVE)
    if np.ndim(pseudo_variance) or np.asarray(pseudo_variance).dtype.kind not in "iufc":
        raise TypeError(f"noise_pseudo_variance must be a complex number, got {pseudo_variance!r}")
    if pseudo_variance != 0 and variance is None:
        raise ValueError(
            f"noise_pseudo_variance is {pseudo_variance} of a noise_variance that was left out: "
            "give both"
        )
    first = 0.0 if variance is None else np.ravel(variance)[0]
    if pseudo_variance != 0 and first > 0:
        quotient = complex(pseudo_variance) / first
        if not UNIT_DISK.contains(np.asarray(quotient)):
            raise ValueError(
                "noise_pseudo_variance must be at most noise_variance in modulus, got "
                f"{pseudo_variance} and {variance!r}"
            )
        parameters["noise_circularity"] = (quotient, UNIT_DISK)
    return parameters


def is_left_out(variance: ArrayLike | None) -> bool:
    """Whether the noise variance is None, or None for each group; raises where only some are."""
    left_out = [number is None for number in np.asarray(variance, object).ravel()]
    if any(left_out) and not all(left_out):
        raise ValueError(
            f"noise_variance must be given for every group or for none, got {variance!r}: "
            f"{[None] * len(left_out)} starts all of them from the data"
        )
    return any(left_out)
