"""The base of the cells of Gaussian processes: checks of samples, steps that resist outliers.

One sample of each stream, or a block, becomes `Data` of NumPy arrays: x `[B, T, D]` in the dtype of
the model, z `[B, T]`, NaN where missing, with the batch axes given: none, or `[B]`.
"""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.axes import as_code, remedy
from cgp.distributions.forms import SecondMoments
from cgp.distributions.marginals import Marginals, Step
from cgp.gp.data import Data, as_data, check_labels, check_pair, check_squares, remedy_of_pair
from cgp.gp.noise import COMMON_NOISE, NoiseArguments, SampleNoise
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.kernels.points import LARGEST, RecentInputs, as_array, within
from cgp.likelihoods import Likelihood, StudentT
from cgp.linalg.arguments import ArrayLike, complex_dtype, is_nan
from cgp.observations import as_observations, components
from cgp.online.cell import Cell, Sample
from cgp.online.stream import Stream

_MOST_ITERATIONS = 2000  # between the weight of an outlier and its posterior
_WEIGHT_ACCURACY = 1e-12
_LARGEST = LARGEST["float64"]
_LARGEST_PART = 0.5 * _LARGEST  # of an observation: its square, a sum of two, does not overflow
_MOST_PLACES = 16  # that are predicted one by one, in less time than by a posterior of them all
_MISSING = np.complex128(complex(np.nan, np.nan))


def check_eager() -> None:
    """Raises inside a `tf.function`, where samples have no values yet."""
    if not tf.executing_eagerly():
        raise RuntimeError(
            "samples are taken in outside of a tf.function: process(x, z) runs compiled"
        )


def as_block(
    x: ArrayLike,
    z: ArrayLike,
    missing: ArrayLike | None,
    real_dtype: str,
    *,
    require_targets: bool = False,
    recent: RecentInputs | None = None,
    noise: NoiseArguments | None = None,
) -> Data:
    """A block of samples; arguments and errors as for `as_data`, with at most one batch axis.

    The block joins the inputs before it, `recent`, if they are given.
    """
    check_eager()
    check_labels(x, z, missing, noise)
    x_of_user, z_of_user = x, z
    x = as_array(x, "x")
    z = as_observations(z, missing, complex_dtype(real_dtype))
    if np.ndim(x) == 2 and np.shape(x) == np.shape(z) and np.size(x) > 1:
        shape = tf.TensorShape(z.shape)
        hint = remedy_of_pair(shape, shape, x_of_user, z_of_user)
        raise ValueError(f"z must be [T], or [B, T] of B streams, got {shape} for x too{hint}")
    data = None if require_targets else _on_a_line(x, z, real_dtype)
    if data is None:
        data = as_data(x_of_user, z_of_user, missing, real_dtype, require_targets=require_targets)
    of_samples = COMMON_NOISE
    if noise is not None and any(argument is not None for argument in noise):
        of_samples = noise.of_data(z, real_dtype).map(np.asarray)
    if recent is not None:
        recent.check_block(np.asarray(as_array(x, "x")), real_dtype)
    return checked_block(data._replace(noise=of_samples))


def checked_block(data: Data) -> Data:
    """Data of at most one batch axis as NumPy arrays, each series with inputs of its own."""
    x, z, batch = map(np.asarray, data[:3])
    if batch.size > 1:
        raise ValueError(f"z must be [T], or [B, T] of B streams, got batch axes {batch.tolist()}")
    x = np.broadcast_to(x, (len(z), *x.shape[1:]))
    return Data(x, z, batch, data.noise.map(np.asarray))


def _on_a_line(x: ArrayLike, z: np.ndarray, real_dtype: str) -> Data | None:
    """A series that needs no conversion, checked as by `as_data` but faster; None for others."""
    if type(x) is not np.ndarray or x.dtype != real_dtype or x.ndim != 1:
        return None
    if x.shape != np.shape(z) or x.size == 0 or not np.all(np.abs(x) <= LARGEST[real_dtype]):
        return None
    z = np.asarray(z)
    check_squares(z, real_dtype)
    return Data(x[None, :, None], z[None], np.zeros(0, np.int32))


def one_sample(
    x: ArrayLike,
    z: ArrayLike,
    missing: ArrayLike | None,
    real_dtype: str,
    recent: RecentInputs | None = None,
    noise: NoiseArguments | None = None,
) -> Data:
    """A sample of each stream; `missing`, noise and errors are as for `as_data`.

    x is a number or `[D]`, shared by all streams, or `[B, D]`, and joins the inputs before it,
    `recent`, if they are given; z is a complex number or `[B]`, NaN, a real one too, where missing.
    """
    check_eager()
    check_labels(x if components(x) else None, z, missing, noise)  # [D] is shared by all streams
    x, z_of_user = np.asarray(as_array(x, "x")), z
    z = np.asarray(as_observations(z, missing, complex_dtype(real_dtype)))
    if z.ndim > 1 or z.size == 0:
        hint = remedy(as_code("z", z_of_user), z.shape, lambda shape: len(shape) == 1, samples=None)
        raise ValueError(f"z must be one number, or [B] of B streams, got shape {z.shape}{hint}")
    if x.ndim > 1 + z.ndim or (x.ndim == 2 and x.shape[0] != z.shape[0]):
        expected = f"a number, [D] or [{z.shape[0]}, D]" if z.ndim else "a number or [D]"
        raise ValueError(f"x must be {expected} for z of shape {z.shape}, got shape {x.shape}")
    if x.ndim == 1 and x.shape == z.shape and x.size > 1:
        raise ValueError(
            f"x and z are both {x.shape}: give each stream a number of its own as x[:, None], or "
            f"all of them one of {x.size} dimensions as np.tile(x, ({x.size}, 1))"
        )
    of_samples = COMMON_NOISE
    if noise is not None and any(argument is not None for argument in noise):
        of_samples = noise.of_each(z, real_dtype)
    x = np.atleast_1d(x)[..., None, :]
    if np.all(np.abs(x) <= LARGEST[real_dtype]):  # the checks of `as_data`, but faster
        check_squares(z, real_dtype)
        of_each = np.broadcast_to(x.astype(real_dtype), (z.size, *x.shape[-2:]))
        samples = Data(of_each, z.reshape(-1, 1), np.array(z.shape, np.int32))
    else:
        samples = as_block(x, z[..., None], None, real_dtype)
    if recent is not None:
        recent.check(x, real_dtype)
    return samples._replace(noise=of_samples)


class CheckedRange:
    """The range of inputs in which a process has accepted the samples of a stream.

    A compiled step evaluates a kernel without its checks, and the checks take longer than a step.
    They are made where a sample lies beyond the range, and then for a range that reaches further
    by as much again: once each time its width doubles. Where a process accepts both ends of a
    range, it is taken to accept all inputs between them.

    `check` is a function of inputs `[2, D]` or `[B, T, D]` that raises a `ValueError` for inputs
    that the process refuses.
    """

    def __init__(self, check: Callable[[np.ndarray], Any]):
        self._check = check
        self._ends: tuple[np.ndarray, np.ndarray] | None = None
        self.interval = np.inf, -np.inf
        """The ends of a range of one dimension as numbers; an empty interval for others."""

    def admit(self, x: np.ndarray) -> None:
        """Raises for inputs `[B, T, D]` that the process refuses."""
        if not x.size:
            return
        if self.covers(x):
            return
        self._check(x)
        first, last = np.min(x, axis=(0, 1)), np.max(x, axis=(0, 1))
        if self._ends is None:
            self._reach(first, last)
            return
        low, high = self._ends
        first, last = np.minimum(low, first), np.maximum(high, last)
        width = last - first
        lowest = np.where(first < low, first - width, low)
        further = lowest, np.where(last > high, last + width, high)
        try:
            self._check(np.stack(further))
            self._reach(*further)
        except ValueError:  # near the end of what is accepted: sample by sample
            self._reach(first, last)

    def _reach(self, first: np.ndarray, last: np.ndarray) -> None:
        self._ends = first, last
        if first.size == 1:
            self.interval = float(first[0]), float(last[0])

    def covers(self, x: np.ndarray) -> bool:
        """Whether inputs `[..., D]` lie in the range accepted so far."""
        if self._ends is None or len(self._ends[0]) != x.shape[-1]:
            return False
        return bool((self._ends[0] <= x).all() and (x <= self._ends[1]).all())


class GaussianProcessCell(Cell):
    """The cell of a Gaussian process: its samples have places, and noise of several kinds.

    A subclass gives `initial_state`, `step` and `predict`. `check_inputs` is as for
    `CheckedRange`, and raises for inputs that the kernel or the mean refuses.

    Attributes:
        dimensions: The number of dimensions of inputs, D; None until the first data show it.
        recent: The last inputs of the streams, by which the rounding of the next is judged; None
            where samples of different streams follow one another, as in a bank.
        range: The range of inputs that the process has accepted.
        outputs: The number of components of a sample, P outputs; None for one signal, a number.
        group_count: The number of groups that have a noise variance each; None for no groups, and
            for one of each output.
    """

    dimensions: int | None = None

    def __init__(
        self, process: SignalPlusNoise, real_dtype: str, check_inputs: Callable[[np.ndarray], Any]
    ):
        self.process, self.real_dtype = process, real_dtype
        self.recent: RecentInputs | None = RecentInputs()
        self.check_inputs, self.range = check_inputs, CheckedRange(check_inputs)
        groups = tuple(process.noise_variance.variable.shape)
        self.outputs = process.outputs
        # Where each output has a group, the place in z tells it.
        self.group_count = groups[0] if groups and not process.noise_is_by_output else None

    def forget_samples(self) -> None:
        """Forgets the last inputs of the streams, which begin again."""
        if self.recent is not None:
            self.recent.clear()

    def renewed(self, state: Any) -> Any:
        """A blank state; no other can be brought to hyperparameters that have changed."""
        message = (
            "the hyperparameters have changed, and the states of a process belong to those before: "
            "reset the bank or the layer, which begins again, or make another"
        )
        first = state[0]  # NaN where it is blank
        is_blank = tf.reduce_all(is_nan(first))
        if tf.executing_eagerly():
            if not is_blank:
                raise ValueError(message)
            return state
        with tf.control_dependencies([tf.debugging.Assert(is_blank, [message])]):
            return type(state)(tf.identity(first), *state[1:])

    def sample_spec(self) -> Sample:
        """A complex observation at a place `[D]`, with its noise."""
        real = tf.as_dtype(self.real_dtype)
        has_groups = self.group_count is not None
        shape = [] if self.outputs is None else [self.outputs]
        return Sample(
            z=tf.TensorSpec(shape, complex_dtype(real), "z"),
            x=tf.TensorSpec([self.dimensions], real, "x"),
            noise_variance=tf.TensorSpec(shape, real, "noise_variance"),
            group=tf.TensorSpec(shape, tf.int32, "noise_groups") if has_groups else None,
        )

    def check(
        self, sample: Sample, missing: ArrayLike | None = None, along: int = 0
    ) -> tuple[Sample, int | None]:
        """Checks a sample of each stream, or a block if `along`, the number of time axes, is 1.

        z is a number or `[B]`, x a number, `[D]` or `[B, D]`; of a block z is `[T]` or `[B, T]`, x
        `[T]`, `[T, D]` or `[B, T, D]`. Of P outputs z has another axis, the last. Noise and
        `missing` are broadcast against z.

        Returns:
            The sample, NumPy, with the batch axis of z; and B, None without that axis.

        Raises:
            TypeError, ValueError: Values that the process does not take.
        """
        noise = NoiseArguments(sample.noise_variance, sample.group, self.group_count)
        if not along and missing is None and noise.are_left_out:
            plain = self._plain_sample(sample.x, sample.z)
            if plain is not None:
                return plain
        if self.outputs is not None:
            return self._check_outputs(sample, missing, along, self.outputs)
        arguments = (sample.x, sample.z, missing, self.real_dtype)
        as_samples = as_block if along else one_sample
        data = as_samples(*arguments, recent=self.recent, noise=noise)
        self.admit(data.x)
        streams = 0 if data.is_single else slice(None)
        axes = (streams, slice(None)) if along else (streams, 0)
        variance, group = (
            None if a is None else np.broadcast_to(a, data.z.shape)[axes] for a in data.noise[:2]
        )
        checked = Sample(data.z[axes], data.x[axes], noise_variance=variance, group=group)
        return checked, None if data.is_single else len(data.z)

    def _check_outputs(
        self, sample: Sample, missing: ArrayLike | None, along: int, outputs: int
    ) -> tuple[Sample, int | None]:
        """`check` of samples of P outputs, `[P]` or `[B, P]`, of a block `[T, P]` or `[B, T, P]`.

        They are checked as samples of P or B P streams of one signal.
        """
        z = np.asarray(as_observations(sample.z, missing, complex_dtype(self.real_dtype)))
        axes = "T, " * along + str(outputs)
        if z.ndim not in (along + 1, along + 2) or z.shape[-1] != outputs or not z.size:
            raise ValueError(
                f"z must be [{axes}], a value of each output, or [B, {axes}] of B streams, got "
                f"shape {z.shape}"
                + remedy(
                    as_code("z", sample.z),
                    z.shape,
                    lambda shape: len(shape) == along + 1 and shape[-1] == outputs,
                    samples=-2 if along else None,
                )
            )

        x = np.asarray(as_array(sample.x, "x"))
        if along and x.ndim in (1, 2) and x.shape[0] != z.shape[-2]:
            raise ValueError(
                f"z must be [{axes}], a row for each of the {len(x)} places of x, got shape "
                f"{z.shape}"
            )
        if self.process.noise_is_by_output and sample.group is not None:
            NoiseArguments(None, sample.group, outputs, outputs).check_groups()  # refuses them

        def in_streams(a: Any, name: str) -> Any:
            try:
                a = np.broadcast_to(np.asarray(a), z.shape)
            except ValueError:
                raise ValueError(
                    f"{name} must broadcast against z, {z.shape}, got shape {np.shape(a)}"
                ) from None
            return np.moveaxis(a, -1, z.ndim - 1 - along).reshape(
                -1, *z.shape[z.ndim - 1 - along : -1]
            )

        def in_outputs(a: np.ndarray) -> np.ndarray:
            a = a.reshape(*z.shape[: z.ndim - 1 - along], outputs, *a.shape[1:])
            return np.moveaxis(a, z.ndim - 1 - along, -1)

        noise = {
            name: None if a is None else in_streams(a, argument)
            for name, argument, a in (
                ("noise_variance", "noise_variance", sample.noise_variance),
                ("group", "noise_groups", sample.group),
            )
        }
        one_signal = copy.copy(self)
        one_signal.outputs = None
        x = np.repeat(x, outputs, axis=0) if x.ndim == along + 2 else x
        checked, _ = one_signal.check(Sample(in_streams(z, "z"), x, **noise), None, along)
        places = checked.x[::outputs]
        is_single = z.ndim == along + 1
        return Sample(
            in_outputs(checked.z),
            places[0] if is_single else places,
            noise_variance=None
            if noise["noise_variance"] is None
            else in_outputs(checked.noise_variance),
            group=None if noise["group"] is None else in_outputs(checked.group),
        ), None if is_single else len(z)

    def _plain_sample(self, x: Any, z: Any) -> tuple[Sample, int | None] | None:
        """A sample in double precision, at a place that is accepted already, as `check` returns it.

        The checks allocate nothing. None for any other sample, which `check` converts or refuses.
        """
        if self.real_dtype != "float64" or not tf.executing_eagerly():
            return None
        if type(z) is np.ndarray and z.ndim == 0:
            z = z[()]
        z_checked: Any
        if isinstance(z, complex) and self.outputs is None:
            z_checked, streams = _plain_number(z), None
        elif type(z) is np.ndarray and z.dtype == np.complex128 and z.ndim == 1 and z.size:
            if self.outputs not in (None, len(z)):
                return None
            z_checked, streams = _plain_numbers(z), len(z) if self.outputs is None else None
        else:
            return None
        if z_checked is None:
            return None
        if isinstance(x, float):
            low, high = self.range.interval
            if self.dimensions != 1 or not (low <= x <= high and abs(x) <= _LARGEST):
                return None
            place = np.array((x,))
            if streams is not None:  # one place for all, as by `np.broadcast_to`, but faster
                place = np.ndarray((streams, 1), place.dtype, place, strides=(0, 8))
            return Sample(z_checked, place), streams
        if type(x) is not np.ndarray or x.dtype != np.float64 or streams is None:
            return None
        if x.shape != (streams, self.dimensions) or not self.range.covers(x):
            return None
        return (Sample(z_checked, x.copy()), streams) if within(x, _LARGEST) else None

    def plain_places(self, x: Any) -> np.ndarray | None:
        """Places `[M, D]` in double precision that the process accepts; None for any other.

        Args:
            x: Places, `[M]` of one dimension, or `[M, D]`.
        """
        if self.real_dtype != "float64" or type(x) not in (list, np.ndarray):
            return None
        if type(x) is list and not all(isinstance(place, float) for place in x):
            return None
        places = np.asarray(x)
        places = places[:, None] if places.ndim == 1 else places
        if places.dtype != np.float64 or places.ndim != 2 or places.shape[1] != self.dimensions:
            return None
        if not within(places, _LARGEST):
            return None
        try:
            self.range.admit(places[None])
        except ValueError:
            return None
        return places

    def admit(self, x: np.ndarray) -> None:
        """Raises a ValueError for inputs `[B, T, D]` that the process refuses."""
        if self.dimensions not in (None, x.shape[-1]):
            raise ValueError(
                "x must have as many dimensions as its first data had, "
                f"{self.dimensions}, got {x.shape[-1]}"
            )
        self.range.admit(x)

    def for_streams(self) -> "GaussianProcessCell":
        """The cell for streams of another driver, with no inputs before them."""
        cell = copy.copy(self)
        cell.recent, cell.range = RecentInputs(), CheckedRange(self.check_inputs)
        cell.dimensions = type(self).dimensions
        return cell

    def for_keys(self) -> "GaussianProcessCell":
        """The cell for samples of many keys in turn, whose places are no series."""
        cell = self.for_streams()
        cell.recent = None
        return cell

    def series(self, inputs: Any) -> Sample:
        """The series of a layer: inputs `[B, T, D]` and observations `[B, T]`, or an error."""
        check_pair(inputs)
        arrays = inputs if isinstance(inputs, tuple | list) else [inputs]
        if [len(a.shape) for a in arrays] != [3, 2 if self.outputs is None else 3]:
            shapes = " and ".join(str(tf.TensorShape(a.shape)) for a in arrays)
            columns = "" if self.outputs is None else f", {self.outputs}"
            raise ValueError(
                f"a process takes a pair of inputs [B, T, D] and observations [B, T{columns}], got "
                f"{shapes}"
            )
        return Sample(x=arrays[0], z=arrays[1])

    def robust_step(
        self, state: Any, sample: Sample, likelihood: Likelihood, take: Callable[[Sample], Step]
    ) -> Step:
        """Takes a sample of each stream, as `check` returned it, with as much noise as its
        likelihood says.

        A sample of weight w has the noise variance σ²/w, at least σ²: it is never trusted more than
        its noise variance says. A TypeError for a likelihood that is no StudentT, a ValueError if
        the noise of the process is not circular.
        """
        if not isinstance(likelihood, StudentT):
            raise TypeError(
                f"likelihood must be a cgp.likelihoods.StudentT or None, got {likelihood!r}"
            )
        if self.outputs is not None:
            raise ValueError(
                "likelihood is of one signal: a sample of several outputs is skipped by a gate, "
                "step(x, z, gate=0.999), or as missing"
            )
        is_single = np.ndim(sample.z) == 0
        samples = sample.map(lambda a: np.asarray(a)[None]) if is_single else sample
        z, x, stated, group = samples.z, samples.x, samples.noise_variance, samples.group
        no_signal = SecondMoments(tf.zeros([], z.dtype), None)
        moments = self.process.with_noise(no_signal, SampleNoise(stated, group).map(tf.constant))
        if moments.c is not None:
            raise ValueError(
                f"noise_pseudo_variance must be 0 with {likelihood!r}, whose noise is circular"
            )
        noise = np.real(moments.k)
        at_sample = Sample(z[:, None], x[:, None])
        signal = self.predict(state, at_sample).map(lambda a: np.asarray(a)[:, 0])
        weight = _weight(signal, z, noise, likelihood.degrees_of_freedom)
        extra = noise * np.maximum(1.0 / weight - 1.0, 0.0)
        extra = (extra if stated is None else extra + stated).astype(self.real_dtype)
        step = take(sample._replace(noise_variance=extra[0] if is_single else extra))
        # The prediction was made before the sample was known to be an outlier.
        variance = signal.variance + noise
        predicted = step.predicted._replace(variance=variance[0] if is_single else variance)
        return step._replace(predicted=predicted)


def forecast_at(
    stream: Stream, x: Any, observed: bool, earliest: float = -np.inf
) -> Marginals | None:
    """The moments at a few places, by a step with a missing observation at each.

    Nothing passes through TensorFlow, and the stream stays as it is. It must not forget.

    Args:
        stream: The stream of a process.
        x: Places, `[M]` or `[M, D]`.
        observed: Whether to add the noise to the signal.
        earliest: The first place at which it can be predicted.

    Returns:
        NumPy arrays `[M]`, or `[B, M]`, with outputs as another axis, the last; None where the
        compiled core does not serve, or places need
        a conversion, are many, or are not accepted.
    """
    cell = stream.cell
    assert isinstance(cell, GaussianProcessCell)
    places = cell.plain_places(x)
    if places is None or not 0 < len(places) <= _MOST_PLACES or not (places >= earliest).all():
        return None
    axes = () if stream.streams is None else (stream.streams,)
    components = () if cell.outputs is None else (cell.outputs,)
    moments = []
    for place in places:
        at_place = np.broadcast_to(place, (*axes, *place.shape))
        step = stream.step_of_copy(Sample(np.full(axes + components, _MISSING)[()], at_place))
        if step is None:
            return None
        moments.append(step.predicted if observed else step.filtered)
    along = -1 - len(components)
    return Marginals(*(np.stack(arrays, axis=along) for arrays in zip(*moments, strict=True)))


def _plain_number(z: complex) -> np.complex128 | None:
    """An observation, NaN in both parts where missing; None where its square may overflow."""
    re, im = z.real, z.imag
    if abs(re) > _LARGEST_PART or abs(im) > _LARGEST_PART:
        return None
    return np.complex128(z) if re == re and im == im else _MISSING


def _plain_numbers(z: np.ndarray) -> np.ndarray | None:
    """`_plain_number` of an array `[B]`, which is copied."""
    z = z.copy()
    parts = z.view(np.float64)
    sizes = np.abs(parts)
    if not sizes.max(initial=0.0) <= _LARGEST_PART:  # some are missing, or large
        if (sizes > _LARGEST_PART).any():
            return None
        z[np.isnan(z)] = _MISSING
    return z


def _weight(signal: Marginals, z: np.ndarray, noise: np.ndarray, nu: float) -> np.ndarray:
    """The weights w of samples, which agree with the posterior of their signals, `[B]`.

    Given w, the signal has normal noise of variance s = σ²/w. With v the variance and c the
    pseudo-variance of the signal before, and d the deviation of the sample, the posterior has

        z − mean = s ((v + s) d − c d*) / D,    variance = s ((v + s) v − |c|²) / D,
        D = (v + s)² − |c|².
    """
    mean, v, c = signal
    size = np.abs(c)
    deviation = np.nan_to_num(z - mean)
    weight = np.ones(deviation.shape)
    for _ in range(_MOST_ITERATIONS):
        s = noise / weight
        scale = s / ((v + s - size) * (v + s + size))
        residual = scale * ((v + s) * deviation - c * np.conj(deviation))
        variance = scale * (v * s + (v - size) * (v + size))
        last = weight
        weight = (nu / 2 + 1.0) / (nu / 2 + (np.abs(residual) ** 2 + variance) / noise)
        if np.all(np.abs(weight - last) <= _WEIGHT_ACCURACY * weight):
            break
    return weight
