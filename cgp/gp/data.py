"""The data of a Gaussian process: checked, arranged, and in variables."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.axes import refuse_grid, remedy_of_pair
from cgp.gp.measurements import Measurements
from cgp.gp.noise import COMMON_NOISE, NoiseArguments, SampleNoise
from cgp.gp.outputs import check_columns, points_of_outputs
from cgp.kernels.functionals import VALUES, Functional
from cgp.kernels.points import LARGEST, as_points, within
from cgp.linalg.arguments import ArrayLike, complex_dtype, is_complex, is_nan
from cgp.observations import as_observations, check_same_labels, components

# Lines of fewer samples are factorised sooner; missing samples take memory and a factor.
_FEWEST, _MOST_MISSING, _LARGEST_SHARE_MISSING = 256, 3000, 0.25
_MOST_DIMENSIONS = 3  # of x where z has the same shape: more are samples of series


class Line(NamedTuple):
    """A regular line of samples whose covariance is Toeplitz (see `cgp.gp.line`)."""

    step: tf.Tensor
    """The distance of neighbours, in units of x, real, `[1]`."""
    missing: tf.Tensor | None
    """The numbers of the samples that are missing, of all series, int32, `[k]`; None for none."""


class Grid(NamedTuple):
    """The cells of a grid, which samples are in C order (see `cgp.gp.grid`)."""

    axes: tuple[tf.Tensor, ...]
    """The coordinates of each axis, real, `[n_i]`."""
    steps: tuple[tf.Tensor | None, ...] = ()
    """The step of an axis whose matrix is taken as Toeplitz, real, scalar; None for the others."""
    missing: tf.Tensor | None = None
    """The numbers of the missing cells, int32, `[k]`; None for none."""

    @property
    def sizes(self) -> list[Any]:
        """The number of coordinates of each axis, a tensor where a graph does not know it."""
        return [length_of(a) for a in self.axes]

    @property
    def line(self) -> int | None:
        """The number of the axis whose matrix is taken as Toeplitz; None for none."""
        return next((axis for axis, step in enumerate(self.steps) if step is not None), None)


class Predecessors(NamedTuple):
    """Samples, and for each the nearest of those before it in some order (see `cgp.gp.vecchia`)."""

    rows: tf.Tensor
    """The numbers of the samples, int32, `[R]`; −1 for none."""
    neighbours: tf.Tensor
    """The numbers of the neighbours of each, int32, `[R, k]`; −1 where there are fewer."""


class Data(NamedTuple):
    """Inputs and targets of B series under one batch axis, whatever batch axes they came with.

    Series at the same inputs with the same elements missing and the same noise share one covariance
    and its factor: they are columns of targets beside it. Otherwise each series has its own. The
    number of covariances, G, follows from the data when they are used, so that a compiled function
    serves either case.
    """

    x: tf.Tensor
    """`[X, N, D]`: X is 1 for inputs that all series share, else B."""
    z: tf.Tensor
    """`[B, N]`, complex, NaN where missing."""
    batch: tf.Tensor
    """The batch axes that the data came with, int32, `[r]`; empty for a single series."""
    noise: SampleNoise = COMMON_NOISE
    """The noise of each sample."""
    functional: Functional = VALUES
    """What each sample measures of the signal."""
    line: Line | None = None
    """The line that the samples are on; None for other data."""
    grid: Grid | None = None
    """The grid whose cells the samples are; None for other data."""
    predecessors: Predecessors | None = None
    """The neighbours by which the samples are predicted, where these are held; else None."""

    @property
    def is_single(self) -> bool:
        """Whether the data came as one series, without a batch axis; not in graphs."""
        return self.batch.shape[0] == 0

    @property
    def is_of_values(self) -> bool:
        """Whether all samples measure the value of the signal."""
        return self.functional.derivative is None and self.functional.width is None

    @property
    def on_line(self) -> Line | None:
        """The line where the covariance of the data is Toeplitz, for which noise is common."""
        return self.line if self.noise.is_common and self.is_of_values else None

    def without(self, samples: np.ndarray) -> "Data":
        """The data with further samples missing in all series, bool `[N]`; not in graphs."""
        nothing = tf.constant(np.nan, self.z.dtype)
        data = self._replace(z=tf.where(samples[None], nothing, self.z))
        missing = tf.constant(data.missing_numbers())
        if data.line is not None:
            return data._replace(line=data.line._replace(missing=missing))
        if data.grid is not None:
            return data._replace(grid=data.grid._replace(missing=missing))
        return data

    def missing_numbers(self) -> np.ndarray:
        """The numbers of the samples that all series miss, if they miss the same, int32, `[k]`."""
        return np.flatnonzero(~self.keep.numpy()[0]).astype(np.int32)

    def in_words(self) -> str:
        """The numbers of series, of samples and of those that are missing, for notebooks."""
        series, samples = self.z.shape
        if not series * samples:
            return "none"
        missing = int(np.sum(~self.present.numpy()))
        words = f"{samples} samples" if self.is_single else f"{series} series of {samples} samples"
        words += "" if self.line is None else f" on a line of step {float(self.line.step[0]):.6g}"
        return words + (f", {missing} missing" if missing else "")

    @property
    def present(self) -> tf.Tensor:
        """True where there is a target, `[B, N]`."""
        return ~is_nan(self.z)

    @property
    def covariance_count(self) -> tf.Tensor:
        """G, the number of covariances: 1 or B, int32."""
        series = self.z.shape[0]
        shared = [a for a in (self.x, *self.noise, *self.functional) if a is not None]
        if series is not None and (series == 1 or any((a.shape[0] or 1) > 1 for a in shared)):
            return tf.constant(series)
        present = self.present
        alike = tf.reduce_all(present == present[:1])
        for a in shared:
            alike &= tf.shape(a)[0] == 1
        return tf.where(alike, 1, tf.shape(self.z)[0])

    @property
    def keep(self) -> tf.Tensor:
        """`present`, once for each covariance, `[G, N]`."""
        return self._grouped(self.present)[:, 0]

    @property
    def counts(self) -> tf.Tensor:
        """The number of targets of each series, real, `[B]`."""
        return tf.reduce_sum(tf.cast(self.present, self.z.dtype.real_dtype), axis=-1)

    def _grouped(self, vectors: tf.Tensor) -> tf.Tensor:
        """`[B, n]` -> `[G, S, n]`, S series to a covariance."""
        size = tf.shape(vectors)[-1] if vectors.shape[-1] is None else vectors.shape[-1]
        return tf.reshape(vectors, [self.covariance_count, -1, size])

    def between(self, first: int, last: int | None) -> "Data":
        """The data from the point `first` to before the point `last`, as in a slice."""
        noise = self.noise.map(lambda a: a[:, first:last])
        functional = self.functional.map(lambda a: a[:, first:last])
        if not any(np.any(a) for a in functional[:2] if a is not None):
            functional = VALUES
        data = Data(self.x[:, first:last], self.z[:, first:last], self.batch, noise)
        return data._replace(functional=functional)

    def of_values(self) -> "Data":
        """The data with samples of the derivative missing, which have another unit, if not all are.

        Exposures count as samples of their middle.
        """
        if self.functional.derivative is None:
            return self._replace(functional=VALUES)
        is_value = ~self.functional.derivative & self.present
        nothing = tf.constant(np.nan, self.z.dtype)
        z = tf.where(is_value | ~tf.reduce_any(is_value), self.z, nothing)
        return self._replace(z=z, functional=VALUES)

    def at(self, order: list[int]) -> "Data":
        """The points in another order, or some of them, by their numbers."""
        x, z = (tf.gather(a, order, axis=1) for a in (self.x, self.z))
        noise = self.noise.map(lambda a: tf.gather(a, order, axis=1))
        return Data(x, z, self.batch, noise, self.functional)

    def columns(self, vectors: tf.Tensor) -> tf.Tensor:
        """Arranges vectors of series, `[B, n]`, as columns beside a covariance, `[G, n, S]`."""
        return tf.linalg.matrix_transpose(self._grouped(vectors))  # rearranged, not conjugated

    def vectors(self, columns: tf.Tensor) -> tf.Tensor:
        """Rearranges columns, `[G, n, S]`, as vectors of series, `[B, n]`: undoes `columns`."""
        rows = tf.linalg.matrix_transpose(columns)
        return tf.reshape(rows, [-1, tf.shape(rows)[-1]])

    def unpacked(self, a: tf.Tensor) -> tf.Tensor:
        """Restores the batch axes that the data came with: `[B, ...]` -> `[..., ...]`."""
        batch, event = tf.get_static_value(self.batch), a.shape[1:]
        if batch is not None and event.is_fully_defined():  # in one operation
            return tf.reshape(a, [*batch, *event.as_list()])
        return tf.reshape(a, tf.concat([self.batch, tf.shape(a)[1:]], axis=0))

    def spread(self, a: tf.Tensor) -> tf.Tensor:
        """Repeats `[G, ...]` of each covariance for its series, under the batch axes of the data.

        Where all series are known to share one covariance the result has no batch axes, and
        broadcasts.
        """
        count = tf.get_static_value(self.covariance_count)
        if count == 1:
            return a[0]
        if count is None:
            a = tf.repeat(a, tf.shape(self.z)[0] // tf.shape(a)[0], axis=0)
        return self.unpacked(a)


def arranged(x: tf.Tensor, z: tf.Tensor, noise: SampleNoise = COMMON_NOISE) -> Data:
    """Arranges inputs `[N, D]` or `[..., N, D]` and targets `[..., N]` as `Data`."""
    axes = z.shape[:-1]
    is_static = axes.is_fully_defined()
    batch = tf.constant(axes.as_list(), tf.int32) if is_static else tf.shape(z)[:-1]
    return Data(flattened(x, 2), flattened(z, 1), batch, noise)


def as_line(data: Data) -> Data:
    """Data of a stationary process in double precision, on a line if they are one; eagerly.

    Positions are a line if they are equally spaced but for rounding, and if few samples are
    missing, the same of all series. The noise of all samples is the learned one.
    """
    count, dimensions = data.x.shape[1:]
    is_plain = data.noise.is_common and data.is_of_values and int(data.covariance_count) == 1
    if not (is_plain and dimensions == 1 and count >= _FEWEST):
        return data
    missing, step = data.missing_numbers(), step_of_line(data.x[0, :, 0].numpy())
    few = len(missing) <= min(_MOST_MISSING, _LARGEST_SHARE_MISSING * count)
    if step is None or not few:
        return data
    numbers = tf.constant(missing) if len(missing) else None
    return data._replace(line=Line(tf.constant([step], data.x.dtype), numbers))


def step_of_line(x: np.ndarray) -> float | None:
    """The step of positions `[n]` that are equally spaced but for rounding; None for others."""
    distances = x - x[0]  # of dates too large for their steps they show the rounding
    step = float(distances[-1] / (len(x) - 1))
    rounding = 1e-11 * abs(step) + 8.0 * np.finfo(x.dtype).eps * abs(distances[-1])
    is_regular = np.all(np.abs(distances - step * np.arange(len(x))) <= rounding)
    return step if is_regular and step != 0.0 else None


def length_of(a: tf.Tensor) -> Any:
    """The length of the first axis, a tensor where a graph does not know it."""
    return tf.shape(a)[0] if a.shape[0] is None else a.shape[0]


def flattened(a: tf.Tensor, event_rank: int) -> tf.Tensor:
    """Reshapes any number of batch axes to one, before the last `event_rank` axes."""
    event = a.shape[a.shape.rank - event_rank :]
    if event.is_fully_defined():
        return tf.reshape(a, [-1, *event.as_list()])
    event = tf.shape(a)[a.shape.rank - event_rank :]
    return tf.reshape(a, tf.concat([[-1], event], axis=0))


def as_data(
    x: ArrayLike,
    z: ArrayLike,
    missing: ArrayLike | None,
    real_dtype: str,
    *,
    require_targets: bool = True,
    noise: NoiseArguments | None = None,
    measurements: Measurements | None = None,
    outputs: int | None = None,
) -> Data:
    """Checks arrays or tensors and arranges them as `Data`.

    Samples of P outputs become N P points, whose last coordinate is the number of the output.

    Args:
        x: Inputs, `[N]`, `[N, D]` or `[..., N, D]`.
        z: Complex targets, `[..., N]`; NaN, or hidden by a mask, where missing.
        missing: Bool, broadcast against z: True where missing too. None for none.
        real_dtype: "float64" or "float32".
        require_targets: Whether each series must have a target, where values are known.
        noise: The noise of the samples; None for common noise.
        measurements: What the samples measure of the signal; None for its value.
        outputs: P, where z is `[..., N, P]`, and noise, `missing` and measurements are broadcast
            against it; None for one signal.

    Raises:
        TypeError: Real targets, complex inputs, or a precision that is not the model's.
        ValueError: Shapes that do not fit, a grid given as series, labels of pandas or xarray that
            differ, infinite targets, NaN inputs, no targets at all, or targets whose squares all
            underflow; noise that no sample can have, and measurements that are none.
    """
    check_labels(x, z, missing, noise, measurements, outputs)
    x, z = as_inputs_and_targets(x, z, missing, real_dtype, outputs)
    if require_targets and tf.executing_eagerly():
        _check_targets(np.asarray(z), real_dtype)
    data = arranged(x, z, COMMON_NOISE if noise is None else noise.of_data(z, real_dtype))
    if measurements is None or all(argument is None for argument in measurements):
        return data
    if outputs is not None:
        x, measurements = x[..., :-1], measurements.of_outputs(x.shape[-2] // outputs, outputs)
    return data._replace(functional=measurements.of_data(x, z))


def check_labels(
    x: Any,
    z: Any = None,
    missing: Any = None,
    noise: NoiseArguments | None = None,
    measurements: Measurements | None = None,
    outputs: int | None = None,
) -> None:
    """Raises where inputs, targets, missing and noise have different labels of pandas or xarray."""
    variance, group = (None, None) if noise is None else noise[:2]
    of_samples = {"z": z, "missing": missing, "noise_variance": variance, "noise_groups": group}
    if measurements is not None:
        of_samples |= measurements._asdict()
    unpaired = 0 if outputs is None else 1  # the axis of outputs
    pairs = {name: (a, unpaired) for name, a in of_samples.items()}
    check_same_labels(x=(x, components(x)), **pairs)
    if outputs is not None:
        check_same_labels(**{n: (a, 0) for n, a in of_samples.items() if components(a)})


def as_inputs_and_targets(
    x: ArrayLike,
    z: ArrayLike,
    missing: ArrayLike | None,
    real_dtype: str,
    outputs: int | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Inputs `[..., N, D]` and targets `[..., N]` as tensors; all else is as for `as_data`."""
    as_given = x, z
    x = as_points(x, real_dtype)
    z = as_observations(z, missing, complex_dtype(real_dtype), copy=False)
    z = tf.convert_to_tensor(z)  # a copy of an array
    if outputs is not None:
        check_columns(x.shape, z.shape, outputs, *as_given)
        x, z = points_of_outputs(x, outputs), tf.reshape(z, [*z.shape[:-2], -1])
    check_shapes(x.shape, z.shape, *as_given)
    if tf.executing_eagerly():
        if x.shape.rank > 2:
            refuse_grid(np.asarray(x), z.shape, *as_given)
        check_squares(np.asarray(z), real_dtype)
    return x, z


def check_squares(z: np.ndarray, real_dtype: str) -> None:
    """Raises for targets whose squares, which a density contains, overflow; NaN passes."""
    if z.flags.c_contiguous and within(z.reshape(-1).view(real_dtype), 0.5 * LARGEST[real_dtype]):
        return  # both parts are checked faster
    if np.any(np.abs(z) > LARGEST[real_dtype]):
        raise ValueError(
            f"z is too large, {np.nanmax(np.abs(z)):.3g}: at most {LARGEST[real_dtype]:.2g} in "
            f"modulus was expected, as squares overflow in {real_dtype}. Give z another unit"
        )


def _check_targets(z: np.ndarray, real_dtype: str) -> None:
    """Raises for a series without targets, and for nonzero targets whose squares all underflow."""
    # Usually the first target of each series is present.
    empty = np.argwhere(np.isnan(z).all(axis=-1)) if np.isnan(z[..., 0]).any() else np.zeros(0)
    smallest = float(np.sqrt(np.finfo(real_dtype).tiny))
    is_large = np.any(np.abs(z.reshape(-1)[:1]) >= smallest)  # usually the first target shows it
    largest = 0.0 if is_large else np.max(np.abs(z), initial=0.0, where=~np.isnan(z))
    if 0 < largest < smallest:
        raise ValueError(
            f"z is too small, at most {largest:.3g}: one of at least {smallest:.2g} in modulus was "
            f"expected, as squares underflow in {real_dtype}. Give z another unit"
        )
    if len(empty):
        of_series, remedy_of_series = "", ""
        if z.ndim != 1:
            of_series = f" of series {', '.join(map(str, empty[0]))}"
            of_series += f" and {len(empty) - 1} more" if len(empty) > 1 else ""
            remedy_of_series = ", so leave it out: z[~np.isnan(z).all(axis=-1)] has the others"
        raise ValueError(
            f"every target{of_series} is missing: there is nothing to learn from{remedy_of_series}"
        )


def check_shapes(
    x: tf.TensorShape, z: tf.TensorShape, x_given: Any = None, z_given: Any = None
) -> None:
    """Raises where the shapes of inputs `[..., N, D]` and targets `[..., N]` do not fit together.

    The remedy names the inputs and targets as they were given; None for arrays.
    """
    if z.rank == 0 or not x[-2:-1].is_compatible_with(z[-1:]):
        raise ValueError(
            f"z must be [..., N] with as many points as x, got shapes {z} and x {x}"
            f"{remedy_of_pair(x, z, x_given, z_given)}"
        )
    if x.rank > 2 and not x[:-2].is_compatible_with(z[:-1]):
        raise ValueError(
            f"the batch axes of x, {x[:-2]}, must be those of z, {z[:-1]}"
            f"{remedy_of_pair(x, z, x_given, z_given)}"
        )
    if x.rank == 2 and x.is_fully_defined() and x == z and x[1] > _MOST_DIMENSIONS:
        raise ValueError(
            f"x and z are both {x}, which would be {x[0]} points of {x[1]} dimensions"
            f"{remedy_of_pair(x, z, x_given, z_given)}"
        )
    if z.rank and z[-1] == 0:
        raise ValueError("x and z are empty: at least one point was expected")


def check_pair(inputs: Any) -> None:
    """Raises a TypeError for complex values in the place of positions, symbolic tensors included.

    The inputs are positions alone, or a tuple or list that begins with them.
    """
    is_pair = isinstance(inputs, tuple | list)
    x = inputs[0] if is_pair and len(inputs) else inputs
    if not is_complex(x):
        return
    came = f"{getattr(x.dtype, 'name', x.dtype)} of shape {tuple(x.shape)}"
    if is_pair:
        raise TypeError(
            f"the pair (x, z) begins with x, real positions, got {came}: a complex position is two "
            "real coordinates, np.stack([x.real, x.imag], axis=-1)"
        )
    raise TypeError(
        f"a process is called on the pair (x, z), positions and complex observations, or on real x "
        f"alone, got {came} alone: gp((x, z)). A model of such a layer has two inputs: "
        'cgp.Functional([x, z], gp((x, z))["mean"]) of x = keras.Input((N, D), dtype="float64") '
        'and z = keras.Input((N,), dtype="complex128"), not a Sequential'
    )


class StoredData(tf.Module):
    """Variables of any size for the data that a Gaussian process has taken in; empty at first.

    They are no Keras weights, whose shapes are fixed: a process is fitted again with other data.
    They stay the same variables, so that a compiled function reads the data present when it runs.
    `groups` is the number of groups of noise of the model, None for none; `has_signal_power` says
    whether its noise follows the signal.
    """

    def __init__(self, real_dtype: str, groups: int | None = None, has_signal_power: bool = False):
        super().__init__()
        self.x = empty_variable(3, real_dtype)
        self.z = empty_variable(2, complex_dtype(real_dtype))
        self.batch = empty_variable(1, tf.int32)
        # For samples without a known part of the noise, one zero, which broadcasts.
        no_variance = tf.zeros([1, 1], real_dtype)
        self._noise = SampleNoise(
            tf.Variable(no_variance, trainable=False, shape=[None, None]),
            None if groups is None else empty_variable(2, tf.int32),
            signal_power=empty_variable(2, real_dtype) if has_signal_power else None,
        )
        # Empty where no sample needs them.
        of_slots = empty_variable(3, real_dtype)
        # Empty unless the data are on a line, of which some may be missing.
        self._line = Line(empty_variable(1, real_dtype), empty_variable(1, tf.int32))
        self._functional = Functional(
            empty_variable(2, tf.bool), empty_variable(2, real_dtype), of_slots
        )

    @property
    def no_samples(self) -> SampleNoise:
        """The noise of no samples."""
        return self._noise._replace(variance=None).map(lambda v: tf.zeros([1, 0], v.dtype))

    @property
    def is_empty(self) -> tf.Tensor:
        """Whether no data have been taken in, scalar bool."""
        return tf.size(self.z) == 0

    @property
    def has_noise(self) -> bool:
        """Whether a sample has a known part of its noise; outside of graphs."""
        return bool(np.any(np.asarray(self._noise.variance)))

    @property
    def data(self) -> Data:
        """The data; no series if empty.

        In a graph the noise has a known part, possibly zero, and a line is in `graph_of_line`.
        """
        x, z, batch = (tf.convert_to_tensor(v) for v in (self.x, self.z, self.batch))
        is_plain = tf.executing_eagerly() and not self.has_noise
        noise = self._noise._replace(variance=None) if is_plain else self._noise
        fields = (x, z, batch, noise.map(tf.convert_to_tensor), self._stored_functional())
        is_line = tf.executing_eagerly() and bool(self.is_line)
        return Data(*fields, line=self._stored_line() if is_line else None)

    @property
    def is_line(self) -> tf.Tensor:
        """Whether the data are a line whose covariance is Toeplitz, scalar bool."""
        return tf.size(self._line.step) > 0

    def _stored_line(self) -> Line:
        step, missing = map(tf.convert_to_tensor, self._line)
        is_complete = tf.executing_eagerly() and int(tf.size(missing)) == 0
        return Line(step, None if is_complete else missing)

    def _stored_functional(self) -> Functional:
        """The functional of the stored samples; a graph has fields for what it was traced with.

        The graph fails where it runs with others.
        """
        with tf.init_scope():
            shapes = [tf.convert_to_tensor(v).shape for v in self._functional]
        is_empty = [shape.num_elements() == 0 for shape in shapes]
        if tf.executing_eagerly():
            pairs = zip(self._functional, is_empty, strict=True)
            return Functional(*(None if empty else tf.convert_to_tensor(v) for v, empty in pairs))
        fields = []
        for variable, shape, empty in zip(self._functional, shapes, is_empty, strict=True):
            field = tf.convert_to_tensor(variable)
            is_as_traced = tf.debugging.assert_equal(
                tf.size(field) == 0,
                empty,
                "the data measure something else of the signal than when this function was traced, "
                "values, derivatives or exposures: trace it again",
            )
            with tf.control_dependencies([is_as_traced]):
                traced = [shape[0], None, *shape[2:]]
                fields.append(None if empty else tf.ensure_shape(field, traced))
        return Functional(*fields)

    def data_of_graph(self) -> Data:
        """The data as a graph reads them, with as many batch axes as when it is traced.

        The graph fails where it runs without data.
        """
        with tf.init_scope():
            axes = int(tf.size(self.batch))
        data = self.data
        message = "there are no data: condition(x, z) first"
        has_data = tf.debugging.assert_equal(self.is_empty, False, message)
        with tf.control_dependencies([has_data]):
            data = data._replace(batch=tf.ensure_shape(data.batch, [axes]), x=tf.identity(data.x))
        return self.on_line_as_traced(data)

    def on_line_as_traced(self, data: Data) -> Data:
        """Data of a graph, on a line if they are when it is traced; it then fails with others."""
        with tf.init_scope():
            is_line = bool(self.is_line)
        if not is_line:
            return data
        message = "the data were on a regular line when this function was traced: trace it again"
        is_as_traced = tf.debugging.assert_equal(self.is_line, True, message)
        with tf.control_dependencies([is_as_traced]):
            return self.graph_of_line(data._replace(z=tf.identity(data.z)))

    def graph_of_line(self, data: Data) -> Data:
        """Data of a graph as samples on a line, which the stored data are."""
        return data._replace(x=data.x[:1], noise=COMMON_NOISE, line=self._stored_line())

    def as_traced(self, data: Data) -> Data:
        """Data of a graph, with as many series and dimensions as when it is traced.

        The graph also fails where it runs with a known part of the noise and was traced without.
        """
        with tf.init_scope():
            (inputs, _, dimensions), (series, _) = (
                tf.convert_to_tensor(v).shape for v in (self.x, self.z)
            )
            has_noise = self.has_noise
            rows = self._noise.map(lambda v: tf.convert_to_tensor(v).shape[0])
        noise = SampleNoise(
            *(
                None if a is None else tf.ensure_shape(a, [count, None])
                for a, count in zip(data.noise, rows, strict=True)
            )
        )
        if not has_noise and noise.variance is not None:
            message = (
                "the data have a known part of their noise, and had none when this function was "
                "traced: trace it again"
            )
            is_known = tf.reduce_any(noise.variance != 0.0)
            plain = tf.debugging.assert_equal(is_known, False, message)
            with tf.control_dependencies([plain]):
                data = data._replace(z=tf.identity(data.z))
            noise = noise._replace(variance=None)
        x = tf.ensure_shape(data.x, [inputs, None, dimensions])
        return data._replace(x=x, z=tf.ensure_shape(data.z, [series, None]), noise=noise)

    def replace(self, data: Data) -> None:
        """Stores other data in place of the present ones."""
        self.x.assign(data.x)
        self.z.assign(data.z)
        for variable, number in zip(self._line, data.line or (None, None), strict=True):
            variable.assign(tf.zeros([0], variable.dtype) if number is None else number)
        self.batch.assign(data.batch)
        for variable, field in zip(self._noise, self._with_variance(data), strict=True):
            if variable is not None:
                variable.assign(field)
        for variable, field in zip(self._functional, data.functional, strict=True):
            rank = variable.shape.rank
            variable.assign(tf.zeros([0] * rank, variable.dtype) if field is None else field)

    def _with_variance(self, data: Data) -> SampleNoise:
        """The noise of data; where it has no known part, that is one zero, which broadcasts."""
        if data.noise.variance is not None:
            return data.noise
        return data.noise._replace(variance=tf.zeros([1, 1], self.x.dtype))

    def holds(self, data: Data) -> tf.Tensor:
        """Whether `data` are the stored data, noise included; scalar bool."""
        stored = self.data
        is_equal = _equal(stored.x, data.x) & _equal(_comparable(stored.z), _comparable(data.z))
        for variable, field in zip(self._noise, self._with_variance(data), strict=True):
            if variable is not None:
                is_equal &= _equal(tf.convert_to_tensor(variable), field)
        # The stops of integrals follow from x and the widths.
        for field, stored_field in zip(data.functional[:2], stored.functional[:2], strict=True):
            if field is not None and stored_field is not None:
                is_equal &= _equal(field, stored_field)
            elif field is not None or stored_field is not None:
                return tf.constant(False)
        return is_equal


def empty_variable(rank: int, dtype: tf.DType | str) -> tf.Variable:
    """A variable without elements, which takes values of any shape of this rank."""
    return tf.Variable(tf.zeros([0] * rank, dtype), trainable=False, shape=[None] * rank)


def _comparable(z: tf.Tensor) -> tf.Tensor:
    """Targets with infinity, which equals itself, for NaN."""
    return tf.where(is_nan(z), tf.constant(float("inf"), z.dtype), z)


def _equal(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    # For any two shapes and without a branch: XLA compiles both branches, and needs shapes to fit.
    same_shape = tf.reduce_all(tf.shape(a) == tf.shape(b))
    size = tf.minimum(tf.size(a), tf.size(b))
    return same_shape & tf.reduce_all(tf.reshape(a, [-1])[:size] == tf.reshape(b, [-1])[:size])
