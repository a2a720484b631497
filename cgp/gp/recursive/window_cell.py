"""The window of a Gaussian process, as a cell."""

import collections
import contextlib
import copy
import ctypes
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp import native
from cgp.distributions.marginals import Marginals, Step
from cgp.gp.data import Data, SampleNoise, arranged, as_inputs_and_targets, check_squares, flattened
from cgp.gp.posterior import posterior
from cgp.gp.recursive import native_scan
from cgp.gp.recursive.budget import NUGGET
from cgp.gp.recursive.window import Window
from cgp.gp.recursive.window_recursion import WindowRecursion, block_loss
from cgp.gp.stream_samples import GaussianProcessCell
from cgp.kernels.points import LARGEST, as_points, exactly
from cgp.linalg import NotPositiveDefiniteError, stored_cholesky
from cgp.linalg.arguments import complex_dtype, has_positive_diagonal, is_nan
from cgp.linalg.cholesky import check_factor
from cgp.linalg.short_repr import short_repr
from cgp.online.cell import Compiled, Outputs, Piece, Sample
from cgp.online.steps import step_outputs
from cgp.online.structure import structure_of
from cgp.training.parameters import Parameter, values_by_name
from cgp.training.saving import check_size

_ELEMENTS = 2**22  # of factors that are computed together
_CHUNK = 128  # samples between two looks at the clock


@short_repr
class WindowState(NamedTuple):
    """A window: the points that it holds, the oldest first, and their factor.

    Further fields are the arrays of a policy that keeps more than points, and then the noise of
    points, where samples have come with noise of their own: `noise_variance`, its known part, and
    for a model of several groups `noise_group`, each `[..., C]`.
    """

    size: np.ndarray
    """The number of points, `[...]`; rows after them are empty."""
    x: np.ndarray
    """Inputs, `[..., C, D]`."""
    z: np.ndarray
    """Observations, `[..., C]`."""
    age: np.ndarray
    """Steps of forgetting that each point has been through, `[..., C]`."""
    chol: np.ndarray
    """The factor of their covariance, `[..., C, C]`, or for an improper process of the real
    composite, `[..., 2C, 2C]`, two rows to a point."""


@functools.cache
def window_state(*further: str) -> type:
    """The named tuple of a window with further fields."""
    if not further:
        return WindowState
    names = (*WindowState._fields, *further)
    fields = collections.namedtuple("WindowState", names)  # type: ignore[misc]

    def reduced(state: tuple) -> tuple:
        return _unpickled, (further, tuple(state))

    members = {"__slots__": (), "__doc__": WindowState.__doc__, "__reduce__": reduced}
    return short_repr(type("WindowState", (fields,), members))


def _unpickled(further: tuple[str, ...], arrays: tuple) -> Any:
    return window_state(*further)(*arrays)


class WindowCell(GaussianProcessCell):
    """The points of a window and their factor, and their update by a sample.

    Factors belong to hyperparameters, and are computed again when these change. `parameters`
    returns them by name, for priors and errors; `settings`, by name, distinguish recursions.
    """

    variable_prefix = "window"
    coordinates_besides_place = 0
    """How many coordinates a point of the window has besides those of a place."""
    takes_any_batch = False
    traces_steps = False  # the op that scans a block is faster than a step
    unsound = "the window is not positive definite any more: it is as it was"

    def __init__(
        self,
        recursion: WindowRecursion,
        real_dtype: str,
        check_inputs: Callable[[np.ndarray], Any],
        parameters: Callable[[], dict[str, Parameter]],
        settings: Mapping[str, Any],
    ):
        super().__init__(recursion.process, real_dtype, check_inputs)
        self.recursion, self._parameters, self.settings = recursion, parameters, dict(settings)
        form = self.process.form
        dtype = complex_dtype(real_dtype) if self.process.is_proper else tf.as_dtype(real_dtype)
        with tf.init_scope():
            one_point = tf.eye(form.multiplicity, batch_shape=[1], dtype=dtype)
            self._extra = recursion.policy.empty(one_point)  # for its structure
        self._extra_fields = getattr(self._extra, "_fields", ())
        self.blank_is_current = not self._extra_fields
        group = ("noise_group",) if recursion.has_groups else ()
        self.State = window_state(*self._extra_fields, "noise_variance", *group)

    def sized_for(self, samples: Sample) -> "WindowCell":
        """The cell for the number of dimensions of places."""
        return self.of_dimensions(samples.x.shape[-1])

    def sized_for_state(self, arrays: Mapping[str, Any]) -> "WindowCell":
        """The cell for the number of dimensions of points."""
        if "x" not in arrays:
            return self
        return self.of_dimensions(np.shape(arrays["x"])[-1] - self.coordinates_besides_place)

    @property
    def coordinates(self) -> int:
        """The number of coordinates of a point of the window."""
        return (self.dimensions or 1) + self.coordinates_besides_place

    def of_dimensions(self, dimensions: int) -> "WindowCell":
        """The cell for places of D dimensions."""
        if dimensions == self.dimensions:
            return self
        cell = copy.copy(self)
        cell.dimensions = dimensions
        return cell

    def check_streams(self, streams: int | None) -> None:
        """Raises a ValueError for invalid numbers of streams, and windows beyond the memory."""
        count, dimensions = 1 if streams is None else streams, self.dimensions
        if not all(isinstance(n, int | np.integer) and n >= 1 for n in (count, dimensions)):
            raise ValueError(
                "the numbers of streams and dimensions must be whole numbers, at least 1, got "
                f"{count!r} and {dimensions!r}"
            )
        assert dimensions is not None
        capacity = self.recursion.capacity
        rows = capacity * self.process.form.multiplicity
        numbers = 2 if self.process.is_proper else 1  # of an element
        size = count * (numbers * rows**2 + capacity * (dimensions + 4))
        words = f"capacity {capacity} of {count} streams over {dimensions} dimensions"
        check_size(size, words, self.real_dtype, "take a smaller capacity")

    def structure(self) -> dict[str, Any]:
        """Kernel, mean and settings, as JSON values."""
        groups = {} if self.group_count is None else {"groups": self.group_count}
        layers = {"kernel": self.process.kernel, "mean": self.process.mean}
        return {**{k: structure_of(a) for k, a in layers.items()}, **self.settings, **groups}

    def window(self, state: Any) -> Window:
        """A state as the window of a recursion."""
        points, further = state[: len(WindowState._fields)], state[len(WindowState._fields) :]
        count = len(self._extra_fields)
        extra = type(self._extra)(*further[:count]) if count else ()
        return Window(*points)._replace(extra=extra, noise=tuple(further[count:]))

    def state(self, window: Window) -> Any:
        """The window of a recursion as a state."""
        return self.State(*tf.nest.flatten(window))

    def blank_state(self, batch_size: int) -> Any:
        """Empty windows."""
        return self.state(self.recursion.empty(batch_size, self.coordinates, self.real_dtype))

    def initial_state(self, batch_size: Any, sample: Sample | None = None) -> Any:
        """Empty windows at the present hyperparameters; the number of streams must be known."""
        if tf.is_tensor(batch_size):
            shape = None if sample is None else sample.z.shape
            batch_size = tf.get_static_value(batch_size) if shape is None else shape[0]
            if batch_size is None:
                raise ValueError(
                    "windows are of a number of series that is known: give the batch size, as in "
                    f"keras.Input(batch_shape=(4, None)), got z of shape {shape}"
                )
        state = self.blank_state(int(batch_size))
        return state if self.blank_is_current else self.renewed(state)

    def initial_arrays(self, batch_size: int, sample: Sample) -> Any:
        """Empty windows, which are alike: one for all, broadcast."""
        return tf.nest.map_structure(
            lambda a: np.broadcast_to(a, [batch_size, *a.shape[1:]]), self.initial_state(1)
        )

    @property
    def weights(self) -> list:
        """The hyperparameters that factors belong to."""
        return self.process.weights

    @property
    def variables(self) -> list:
        """The hyperparameters that factors belong to, and the coefficients of the mean."""
        mean = [] if self.process.mean is None else self.process.mean.variables
        return list({id(v): v for v in [*self.weights, *mean]}.values())

    def renewed(self, state: Any) -> Any:
        """Windows with the factors of the present hyperparameters.

        Raises:
            tf.errors.InvalidArgumentError: A factor has failed; no array of the state is returned.
        """
        with self.translated_errors():
            window = self.recursion.refactorized(self.window(state))
        sound = tf.reduce_all(has_positive_diagonal(window.chol))
        check = tf.debugging.Assert(sound, [self.unsound])
        # Eagerly, an assertion that holds returns None.
        with tf.control_dependencies([] if check is None else [check]):
            return tf.nest.map_structure(tf.identity, self.state(window))

    def belongs(self, state: Any) -> bool:
        """Whether loaded factors match their points."""
        return self.recursion.policy.check_loaded(self.recursion, self.window(state))

    def shown(self, state: Any) -> Any:
        """A state without the noise of points, where no sample has come with one."""
        if state._fields[-1] != "noise_variance" or np.any(state.noise_variance):
            return state
        return window_state(*self._extra_fields)(*state[:-1])

    def from_shown(self, state: Any) -> Any:
        """A state with the noise of points, which is zero where no sample has come with one."""
        fields = self.State._fields
        is_short = isinstance(state, tuple | list) and len(state) == len(fields) - 1
        if is_short and fields[-1] == "noise_variance":
            age = state[3]
            shape = tf.shape(age) if tf.is_tensor(age) else np.shape(age)
            return self.State(*state, tf.zeros(shape, self.real_dtype))
        return state

    def check_stored(self, arrays: Sequence[np.ndarray]) -> None:
        """Raises a ValueError for arrays of a file that are no windows."""
        state, capacity = self.State(*arrays), self.recursion.capacity
        if np.any((state.size < 0) | (state.size > capacity)):
            raise ValueError(
                f"the saved window is damaged: expected 0 to {capacity} points, got "
                f"{state.size.tolist()}"
            )
        if not all(np.isfinite(a).all() for a in arrays):
            raise ValueError("the saved window is damaged: it has elements that are not finite")
        if any(np.any(a < 0) for a in self.window(state).noise):
            raise ValueError("the saved window is damaged: noise variances or groups below 0")
        if np.any(state.age < 0):
            raise ValueError(f"the saved window is damaged: ages below 0, got {state.age.tolist()}")
        check_factor(state.chol, "the saved window is damaged: its factor")

    def checked_state(self, state: Any) -> tuple[Any, int | None]:
        """A state given by a user; its sizes are checked too."""
        points = len(WindowState._fields)
        if self.dimensions is None and isinstance(state, tuple | list) and len(state) >= points:
            coordinates = (np.shape(state[1])[-1:] or (1,))[0]
            dimensions = max(1, coordinates - self.coordinates_besides_place)
            return self.of_dimensions(dimensions).checked_state(state)
        state, streams = super().checked_state(state)
        if np.any((state.size < 0) | (state.size > self.recursion.capacity)):
            raise ValueError(
                f"a window has 0 to {self.recursion.capacity} points, got size {state.size}"
            )
        return state, streams

    def checked_field(self, name: str, a: Any, dtype: tf.DType) -> np.ndarray:
        """An array of a state; inputs may be of more precision if they are not rounded."""
        if name == "x":
            return exactly(np.asarray(a), np.dtype(self.real_dtype))
        return super().checked_field(name, a, dtype)

    def completed(self, state: Any) -> Any:
        """Windows that a user has given, with the factors of their points.

        A ValueError for windows that the process cannot have, and, under a policy that keeps more
        than points, for a factor that does not match the points.
        """
        state = tf.nest.map_structure(np.asarray, state)
        used = np.arange(self.recursion.capacity) < state.size[:, None]
        noise = self.window(state).noise
        if any(np.any(a[~used]) for a in (state.x, state.z, state.age, *noise)):
            raise ValueError(
                "x, z and age of a window must be zero in rows after its `size` points"
            )
        if np.any(state.age < 0.0):
            raise ValueError(f"age of a state must not be negative, got {state.age}")
        if any(np.any(a < 0) for a in noise) or np.any(noise[-1] >= (self.group_count or np.inf)):
            raise ValueError(
                "the noise of points of a state must be variances, and groups in range"
            )
        check_squares(state.z[used], self.real_dtype)
        if used.any():
            places = state.x[used]
            self.range.admit(places[None, :, : places.shape[-1] - self.coordinates_besides_place])
        if not self.blank_is_current:
            self.belongs(tf.nest.map_structure(tf.constant, state))
            return state
        return state._replace(chol=self._factors(state))

    def _factors(self, state: Any) -> np.ndarray:
        """The factors that follow from the points of windows, whatever factors these have."""
        rows = state.chol.shape[-1]
        width = max(1, _ELEMENTS // rows**2)
        chols = np.empty_like(state.chol)
        for begin in range(0, len(chols), width):
            block = slice(begin, begin + width)
            window = self.window(tf.nest.map_structure(lambda a: tf.constant(a[block]), state))  # noqa: B023
            eye = tf.eye(rows, batch_shape=[len(chols[block])], dtype=window.chol.dtype)
            window = window._replace(chol=eye)
            if self.recursion.forgetting < 1.0:
                # The diagonal of the covariance shows which points are forgotten, in any factor.
                variance = tf.linalg.diag_part(self.recursion.covariance(window))
                window = window._replace(chol=tf.linalg.diag(tf.sqrt(variance)))
            chols[block] = self.recursion.refactorized(window).chol
        return chols

    def check_against(self, state: Sequence[np.ndarray], sample: Sample) -> None:
        """Raises a ValueError for samples that windows have no room for."""
        if not self.recursion.policy.replaces:
            coming = np.reshape(~np.isnan(sample.z), [len(state[0]), -1]).sum(axis=-1)
            self.recursion.policy.check_room(self.recursion.capacity, state[0], coming)

    def assertions(self, state: Any, sample: Sample) -> list[tf.Operation]:
        """Asserts that places are in range, and that there is room."""
        largest = LARGEST[self.real_dtype]
        is_near = tf.reduce_all(tf.abs(sample.x) <= largest)  # false for NaN too
        observed = tf.cast(tf.logical_not(is_nan(sample.z)), tf.int32)
        coming = tf.reduce_sum(tf.reshape(observed, [tf.shape(observed)[0], -1]), axis=-1)
        check = tf.debugging.Assert(is_near, [f"x must be {largest:.2g} at most, got", sample.x])
        return [check, *self.recursion.policy.room(self.window(state), coming)]

    def values(self, samples: Sample) -> Data:
        """Samples `[B, T]` as data."""
        x, z = as_inputs_and_targets(samples.x, samples.z, None, self.real_dtype)
        return arranged(x, z, SampleNoise(samples.noise_variance, samples.group))

    def samples(self, values: Data) -> Sample:
        """Data as samples: the inverse of `values`."""
        return Sample(values.z, values.x, None, values.noise.variance, values.noise.group)

    def step(self, state: Any, sample: Sample) -> tuple[Any, Step]:
        """Predicts samples `[B]`, and takes them into the windows unless they are missing."""
        noise = SampleNoise(sample.noise_variance, sample.group)
        window, step = self.recursion.step(self.window(state), sample.x, sample.z, noise)
        return self.state(window), step

    def scan(self, state: Any, samples: Sample) -> tuple[Any, Step]:
        """`step` for each of T samples, by the compiled op where it serves."""
        if not native_scan.serves(self.recursion):
            return self.differentiable_scan(state, samples)
        x, z = map(tf.convert_to_tensor, (samples.x, samples.z))
        noise = SampleNoise(samples.noise_variance, samples.group)
        window, step = native_scan.scan(self.recursion, self.window(state), x, z, noise)
        return self.state(window), step

    def differentiable_scan(self, state: Any, samples: Sample) -> tuple[Any, Step]:
        """`scan` by TensorFlow, which has gradients."""
        x, z = map(tf.convert_to_tensor, (samples.x, samples.z))
        noise = SampleNoise(samples.noise_variance, samples.group)
        window, step = self.recursion.scan(self.window(state), x, z, noise)
        return self.state(window), step

    def follow(self, state: Any, samples: Sample) -> Piece:
        """The moments of a piece of series, its loss, and the windows after it.

        The windows are brought to the present hyperparameters first.
        """
        recursion, block = self.recursion, self.values(samples)
        before = self.window(state)
        coming = tf.reduce_sum(tf.cast(block.present, tf.int32), axis=-1)
        with tf.control_dependencies(recursion.policy.room(before, coming)):
            before = before._replace(x=tf.identity(before.x))
        window = recursion.refactorized(before)
        # From the window before: the window after has already moved with the hyperparameters.
        chol = stored_cholesky(window.chol, recursion.covariance(before))
        loss = block_loss(recursion, window, chol, block, self._parameters().values())
        after, step = self.differentiable_scan(self.state(window._replace(chol=chol)), samples)
        return Piece(after, step_outputs(step), loss)

    def output_spec(self, samples: Sample) -> Outputs:
        """The shapes and dtypes of the moments of a piece."""
        real, complex_ = tf.as_dtype(self.real_dtype), complex_dtype(self.real_dtype)
        moments = Marginals(complex_, real, complex_)
        dtypes = step_outputs(Step(moments, complex_, moments))
        return {name: tf.TensorSpec(samples.z.shape, dtype) for name, dtype in dtypes.items()}

    def predict(self, state: Any, at: Sample) -> Marginals:
        """The signal at places `[B, M, D]` given the windows."""
        window = self.window(tf.nest.map_structure(tf.convert_to_tensor, state))
        conditioned = self.recursion.conditioned(window, window.chol)
        x = flattened(tf.convert_to_tensor(at.x), 2)
        signal = posterior(self.process, window.data(), conditioned, x, None)
        return Marginals(signal.mean(), signal.variance(), signal.pseudo_variance())

    def forecast(self, state: Any, ahead: Any, inputs: Any = None) -> Marginals:
        """The signal at any places x, `[M]`, `[M, D]` or `[B, M, D]`, given the windows."""
        if inputs is not None:
            raise ValueError("a process has no known inputs")
        x = as_points(ahead, self.real_dtype)
        if self.dimensions is None:  # no sample yet
            cell = self.of_dimensions(x.shape[-1])
            return cell.forecast(cell.initial_state(1), ahead)
        streams = state.size.shape[0]
        x = tf.broadcast_to(x, [streams, *x.shape[-2:]])
        return self.predict(state, Sample(None, x)).map(np.asarray)

    def is_sound(self, state: Any, step: Step) -> tf.Tensor:
        """Whether factors have a positive diagonal."""
        return tf.reduce_all(has_positive_diagonal(state.chol))

    def refusal(self) -> NotPositiveDefiniteError:
        """The error of a factor that has failed."""
        parameters = values_by_name(self._parameters(), self.process.left_out())
        return NotPositiveDefiniteError(
            "the covariance of the points is not positive definite at these hyperparameters: "
            f"{parameters}. The window is as it was"
        )

    @contextlib.contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Raises `refusal` in place of an error of a factorisation."""
        failed = ("not positive definite", "the matrix of shape")
        try:
            yield
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            message = str(error)
            if "The window is as it was" in message or not any(text in message for text in failed):
                raise
            raise self.refusal() from error

    def compiled(self, streams: int | None) -> Compiled | None:
        """The recursion by the compiled core, on arrays."""
        return CompiledSteps(self)

    def chunks(self, samples: Sample) -> list[slice]:
        """The chunks of a block; samples of a chunk for the core have one noise."""
        length = np.shape(samples.z)[-1]
        starts = set(range(0, length, _CHUNK))
        noise = [a for a in (samples.noise_variance, samples.group) if a is not None]
        is_compiled = self.recursion.policy.is_compiled and native.core().library is not None
        if noise and is_compiled and self.process.kernel.program() is not None:
            rows = [np.reshape(a, [-1, length]) for a in noise]
            if all((a == a[:1]).all() for a in rows):
                for a in rows:
                    starts.update((np.flatnonzero(np.diff(a[0])) + 1).tolist())
        ends = [*sorted(starts), length]
        return list(map(slice, ends[:-1], ends[1:]))


class CompiledSteps:
    """Samples taken into windows by the compiled core, where all of them have one noise."""

    def __init__(self, cell: WindowCell):
        self._window = CompiledWindow(cell.recursion)
        self._policy = cell.recursion.policy
        self._noise_from = cell.State._fields.index("noise_variance")

    def serves(self, arrays: Sequence[np.ndarray], sample: Sample, values: bytes) -> bool:
        """Whether the core knows the kernel and the noise."""
        noise = _common_noise(sample)
        if noise is None or not self._window.serves(values):
            return False
        # For a budget it does not return which points are pruned, whose noise is to go too.
        return self._policy.is_compiled or not self._has_noise(arrays, noise)

    def _has_noise(self, arrays: Sequence[np.ndarray], noise: tuple[float, int]) -> bool:
        return any(noise) or any(map(np.count_nonzero, arrays[self._noise_from :]))

    def __call__(self, arrays: Sequence[np.ndarray], sample: Sample) -> Step | None:
        """Takes a sample or a block, also of one stream without a batch axis."""
        noise = _common_noise(sample)
        assert noise is not None  # see `serves`
        if not self._has_noise(arrays, noise):
            return self._window.take(sample.x, sample.z, arrays, *noise)
        size_before = arrays[0].copy()
        step = self._window.take(sample.x, sample.z, arrays, *noise)
        if step is not None:
            coming = np.sum(~np.isnan(np.reshape(sample.z, (len(size_before), -1))), axis=-1)
            _append_noise(arrays[self._noise_from :], size_before, coming, noise)
        return step


def completed_weights(store: Mapping[str, Any], variables: Sequence[Any]) -> dict[str, Any]:
    """The weights of a file by number, brought to the present format of variables.

    Older files have no noise of points, and one learned noise for all streams of a budget.
    """
    values, names = [store[str(i)] for i in range(len(store))], [v.name for v in variables]
    if "window_noise_variance" in names and len(values) == len(variables) - 1:
        at = names.index("window_noise_variance")
        values.insert(at, np.zeros(variables[at].shape, variables[at].dtype))
    for i, (variable, a) in enumerate(zip(variables, values, strict=False)):
        if variable.name == "window_noise" and np.ndim(a) == len(variable.shape) - 1:
            values[i] = np.broadcast_to(a, variable.shape)
    return {str(i): a for i, a in enumerate(values)}


def _common_noise(sample: Sample) -> tuple[float, int] | None:
    """The known part and the group of samples if they all have the same, else None."""
    if sample.noise_variance is None and sample.group is None:
        return 0.0, 0
    noise = [0 if a is None else np.asarray(a) for a in (sample.noise_variance, sample.group)]
    variance, group = (np.ravel(a)[0] for a in noise)
    if not (np.all(noise[0] == variance) and np.all(noise[1] == group)):
        return None
    return float(variance), int(group)


def _append_noise(
    buffers: Sequence[np.ndarray], sizes: np.ndarray, coming: np.ndarray, noise: tuple[float, int]
) -> None:
    """Adds the one noise of new points to buffers `[B, C]`, in place; the oldest points leave."""
    for rows, number in zip(buffers, noise, strict=False):
        for row, size, count in zip(rows, sizes, coming, strict=True):
            points = np.concatenate([row[:size], np.full(count, number, row.dtype)])[-row.size :]
            row[: points.size] = points


class _Take(ctypes.Structure):  # as window_take.cpp declares it
    _sizes = ("streams", "capacity", "steps", "dimensions", "program_size")
    _numbers = ("noise_variance", "noise_pseudo_re", "noise_pseudo_im", "forgetting", "nugget")
    _arrays = (
        *("x", "z", "mean", "held_mean"),
        *("size", "held_x", "held_z", "age", "chol", "prior_chol", "prior_precision", "memory"),
    )
    _fields_ = [
        *((name, ctypes.c_int64) for name in _sizes),
        ("program", ctypes.c_void_p),
        *((name, ctypes.c_double) for name in _numbers),
        *((name, ctypes.c_void_p) for name in _arrays),
        *((name, native.MomentArrays) for name in ("predicted", "filtered")),
    ]


class CompiledWindow:
    """The window recursion at the present hyperparameters, as arguments of the C function."""

    def __init__(self, recursion: WindowRecursion):
        self._recursion = recursion
        self._arguments = _Take(
            capacity=recursion.capacity, forgetting=recursion.forgetting, nugget=NUGGET
        )
        self._reference = ctypes.byref(self._arguments)
        self._window: list[np.ndarray] = []  # to whose arrays the structure points, and to these
        self._x, self._z, self._memory = (np.zeros(0) for _ in range(3))
        self._means: tuple[np.ndarray, ...] = ()
        self._moments: native.MomentRecord
        self._function: Callable[..., int]
        self._program: np.ndarray | None = None
        self._layer_weights = b""  # of the hyperparameters that the program belongs to
        self._noise_variances, self._circularity = np.zeros(1), 0.0 + 0.0j
        self._noise: tuple[float, int] | None = None  # known part and group, as in the structure

    def serves(self, layer_weights: bytes) -> bool:
        """Whether it knows the kernel; `layer_weights` are the present hyperparameters."""
        if native.core().library is None:
            return False
        if layer_weights != self._layer_weights:
            process, arguments = self._recursion.process, self._arguments
            self._program = process.kernel.program()
            if self._program is not None:
                arguments.program = self._program.ctypes.data
                arguments.program_size = self._program.size
            self._noise_variances = np.ravel(process.learned_noise_variance())
            circularity = process.noise_circularity
            self._circularity = 0.0 if circularity is None else complex(circularity.numpy())
            self._layer_weights, self._noise = layer_weights, None
        return self._program is not None

    def take(
        self,
        x: np.ndarray,
        z: np.ndarray,
        window: Sequence[np.ndarray],
        known_variance: float = 0.0,
        group: int = 0,
    ) -> Step | None:
        """Takes samples of one noise into windows.

        Args:
            x: Places, `[..., D]`.
            z: Observations, `[]`, `[T]`, `[B]` or `[B, T]`; NaN, in both parts, where missing.
            window: The fields of `Window` of B streams, `[B, ...]`, changed in place, except for
                the noise of points, which may be left out.
            known_variance: The known part of the noise variance of the samples.
            group: The group of their noise.

        Returns:
            A `Step` of NumPy arrays of the shape of z; or None, and the windows are unchanged,
            where a factor fails: TensorFlow then reports the error.
        """
        is_pointed = self._z.shape == z.shape and len(window) == len(self._window)
        if not is_pointed or not all(map(operator.is_, window, self._window)):
            self._point_to(window, x.shape, z.shape)
        self._x[...], self._z[...] = x, z
        arguments = self._arguments
        if self._recursion.process.mean is not None:
            places = self._x.reshape(arguments.streams, arguments.steps, arguments.dimensions)
            self._means = self._mean_function(places), self._mean_function(window[1])
            arguments.mean, arguments.held_mean = (a.ctypes.data for a in self._means)
        if self._noise != (known_variance, group):
            self._noise = known_variance, group
            learned = float(self._noise_variances[group])
            scaled = float(self._recursion.process.known_noise_variance(known_variance))
            arguments.noise_variance, pseudo = learned + scaled, learned * self._circularity
            arguments.noise_pseudo_re, arguments.noise_pseudo_im = pseudo.real, pseudo.imag
        if self._function(self._reference):
            return None
        predicted, filtered = (Marginals(*moments) for moments in self._moments.moments())
        return Step(predicted, z - predicted.mean, filtered)

    def _point_to(
        self, window: Sequence[np.ndarray], of_x: tuple[int, ...], of_z: tuple[int, ...]
    ) -> None:
        """Makes the structure point to a window, and to new memory for samples of these shapes."""
        size, held_x, held_z, age, chol, *basis = self._window = list(window)
        arguments, streams = self._arguments, len(size)
        self._x, self._z = np.empty(of_x, held_x.dtype), np.empty(of_z, held_z.dtype)
        arguments.streams, arguments.dimensions = streams, of_x[-1]
        arguments.steps = self._z.size // streams
        shapes = {"predicted": of_z, "filtered": of_z}
        self._moments = native.MomentRecord(arguments, shapes, held_z.dtype, held_x.dtype)
        has_basis = len(basis) > 2  # besides the noise of points, one or two arrays if any
        # Of each stream twice the factor with one point more, and as much for a budget.
        rows = chol.shape[-1] + chol.shape[-1] // self._recursion.capacity
        if len(self._memory) < streams:
            self._memory = np.empty((streams, 4 if has_basis else 2, rows, rows), chol.dtype)
        arrays = {"x": self._x, "z": self._z, "memory": self._memory}
        arrays |= {"size": size, "held_x": held_x, "held_z": held_z, "age": age, "chol": chol}
        if has_basis:
            arrays |= {"prior_chol": basis[0], "prior_precision": basis[1]}
        for name, a in arrays.items():
            setattr(arguments, name, a.ctypes.data)
        self._function = native.function(f"cgp_window_take_{chol.dtype.name}")

    def _mean_function(self, x: np.ndarray) -> np.ndarray:
        """The mean function at points `[B, N, D]`, complex, `[B, N]`."""
        points = tf.constant(x)
        zeros = tf.zeros(points.shape[:-1], complex_dtype(points.dtype))
        return self._recursion.process.plus_function(zeros, points).numpy()
