"""The effect of one sample on the state of an estimator.

A cell knows the state of a stream, the initial state, and one step. The use of cells is written
once, in drivers that know no estimator: `cgp.online.Online` runs a cell in a script, a
`cgp.layers.Recursive` in a model, `export` writes it as a SavedModel, and a `cgp.Bank` keeps a
state for each of many keys. Keras separates `LSTMCell` and `RNN` in the same way.
"""

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions.marginals import Marginals, Step
from cgp.linalg.arguments import ArrayLike, nan
from cgp.observations import as_observations, check_rounding
from cgp.online.steps import checked_initial, checked_result, step_outputs
from cgp.statespace.online.online_step import check_state_factor
from cgp.training.saving import Outputs

_MATRICES = ("F", "Q_factor", "H", "R")


class Sample(NamedTuple):
    """A sample of each of B streams, or a block of T samples of each: `[B, T, ...]`.

    A field that is not used is None. For a single stream the batch axis may be left out where a
    method says so.
    """

    z: Any
    """Observations, `[B]`, or `[B, M]` of M components; NaN where missing."""
    x: Any = None
    """The places of the observations, real, `[B, D]`."""
    inputs: Any = None
    """Known inputs of a state-space model, `[B, k]`."""
    noise_variance: Any = None
    """The known part of the noise variance, real, `[B]`."""
    group: Any = None
    """The group of the noise, int32, `[B]`."""
    arrived: Any = None
    """False for streams without a sample, whose state stays as it is; bool, `[B]`."""
    F: Any = None
    """The transition matrix from this sample to the next, working values, `[B, n, n]`."""
    Q_factor: Any = None
    """A factor of the covariance of the process noise on the way, `[B, n, q]`."""
    H: Any = None
    """The observation matrix of this sample, `[B, m, n]`."""
    R: Any = None
    """The covariance of its noise, `[B, m, m]`."""

    def map(self, function: Callable[[Any], Any]) -> "Sample":
        """The result of a function of each field that is used."""
        return Sample(*(None if a is None else function(a) for a in self))

    def matrices(self) -> dict[str, Any]:
        """The matrices of this sample by name, in place of those of a state-space model."""
        if self.F is self.Q_factor is self.H is self.R is None:  # at once, as of most samples
            return {}
        return {name: a for name, a in zip(_MATRICES, self[-4:], strict=True) if a is not None}


class RefusedSample(Exception):
    """An error: one of several samples cannot be taken.

    Args:
        index: Its place among them.
        message: The reason of the refusal.
        kind: The error that a driver raises, which names the sample.
    """

    def __init__(self, index: int, message: str, kind: type[ValueError] = ValueError):
        super().__init__(message)
        self.index, self.kind = int(index), kind


class Piece(NamedTuple):
    """The results of a cell for a piece of series, inside a model."""

    state: Any
    """The state after the piece."""
    outputs: Outputs
    """Moments by name, `[B, T, ...]`."""
    loss: tf.Tensor | None
    """The loss of the piece given the state before it, scalar; None for a cell without a loss."""


class Compiled(Protocol):
    """The step of a cell by a compiled function, which changes arrays in place."""

    def serves(self, arrays: Sequence[np.ndarray], sample: Sample, layer_weights: bytes) -> bool:
        """Whether the function can take a sample into a state.

        Args:
            arrays: The state, as for a call.
            sample: The sample, as for a call.
            layer_weights: The present values of `Cell.weights`, to compare with later ones.
        """

    def __call__(self, arrays: Sequence[np.ndarray], sample: Sample) -> Step | None:
        """Takes one sample of each stream, or a block.

        Args:
            arrays: The state as stored (see `Cell.as_stored`), with the axis of streams where
                `Cell.streams_axis` says.
            sample: The sample, as `Cell.check` returned it.

        Returns:
            A `Step` of NumPy arrays; or None, with the state unchanged, where the new state would
            not be sound.
        """


class Walk(Protocol):
    """Steps of many streams, sample after sample, by a compiled function."""

    def serves(self, layer_weights: bytes) -> bool:
        """Whether the function can be called at the present values of `Cell.weights`."""

    def __call__(self, rows: Sequence[np.ndarray], slots: np.ndarray, samples: Sample) -> Step:
        """Takes samples in their order, each into the state in its slot.

        Args:
            rows: The states as stored, `[S, ...]`; changed in place.
            slots: The row of each sample, int64, `[B]`; the same ones may come again.
            samples: The samples, `[B, ...]`.

        Returns:
            A `Step` of NumPy arrays, `[B, ...]`.

        Raises:
            RefusedSample: A sample that cannot be taken; states may have been changed.
        """


class Cell(abc.ABC):
    """The effect of one sample on the state of an estimator, as pure functions of tensors.

    A subclass gives `State`, `initial_state`, `step` and `sample_spec`; everything else has a
    default. The state is a named tuple `State` of tensors or arrays, not nested, all of which have
    the streams along their first axis, and the same shapes and dtypes after a step. Users see it
    as `state` of a stream and of a bank, and pass it from one driver to another. A field that is
    called `chol` is a lower Cholesky factor: it is checked where a user sets it, and its upper part
    is left out of bytes.

    Example:
        >>> import cgp, numpy as np, tensorflow as tf
        >>> from typing import NamedTuple
        >>> class Level(NamedTuple):
        ...     mean: tf.Tensor
        >>> class Smoothing(cgp.online.Cell):
        ...     State = Level
        ...     def initial_state(self, batch_size, sample=None):
        ...         return Level(tf.zeros([batch_size], tf.complex128))
        ...     def sample_spec(self):
        ...         return cgp.online.Sample(z=tf.TensorSpec([], tf.complex128))
        ...     def step(self, state, sample):
        ...         after = Level(0.9 * state.mean + 0.1 * sample.z)
        ...         return after, cgp.online.step_of(sample.z, state.mean, after.mean)
        >>> bool(cgp.online.Online(Smoothing()).step(2j).filtered.mean == 0.2j)
        True
    """

    State: Any
    """The named tuple of a state."""
    streams_axis = 0
    """The axis of streams in stored arrays: 0, or −1 where a compiled function wants it last."""

    # --- the state -------------------------------------------------------------------------------

    @abc.abstractmethod
    def initial_state(self, batch_size: Any, sample: Sample | None = None) -> Any:
        """The state of streams before any sample.

        Args:
            batch_size: The number of streams, B; in a graph maybe a tensor.
            sample: Their first sample, where it is known: a process begins at its place.
        """

    def initial_arrays(self, batch_size: int, sample: Sample) -> Any:
        """`initial_state` for streams that run eagerly, by a sample of arrays: no gradients."""
        return self.initial_state(batch_size, sample)

    def blank_state(self, batch_size: int) -> Any:
        """The state of streams that have not begun; NaN in its first floating-point array."""

        def blank(a: Any) -> tf.Tensor:
            zeros = tf.zeros_like(a)
            return zeros * np.nan if _is_inexact(zeros) else zeros

        state = checked_initial(self, self.initial_state(batch_size), batch_size)
        return tf.nest.map_structure(blank, state)

    blank_is_current = True
    """Whether the blank state is the same at all hyperparameters."""

    def shown(self, state: Any) -> Any:
        """A state of NumPy arrays as users see it, where a field that is not used is left out."""
        return state

    def from_shown(self, state: Any) -> Any:
        """The state of the form `State` from one that `shown` returned, or that a user gives."""
        return state

    def renewed(self, state: Any) -> Any:
        """A state brought to the present hyperparameters, the values of `weights`.

        By default the state goes on with them unchanged.

        Raises:
            ValueError: The state cannot be renewed.
        """
        return state

    @property
    def weights(self) -> list[keras.Variable]:
        """The variables that a stored state belongs to, and is renewed for when they change."""
        return []

    @property
    def variables(self) -> list[keras.Variable]:
        """The variables that a layer of this cell trains and saves; by default `weights`."""
        return self.weights

    def belongs(self, state: Any) -> bool:
        """Whether a state that was loaded belongs to the present hyperparameters.

        False for a state that is to be renewed.

        Raises:
            ValueError: The state does not belong to them, and cannot be renewed.
        """
        return True

    variable_prefix = "state"

    def stored_names(self) -> list[str]:
        """The names of the stored arrays."""
        return list(self.State._fields)

    def as_stored(self, state: Any) -> list[Any]:
        """A state as the arrays that are stored, of working values: real composites split."""
        return list(state)

    def from_stored(self, arrays: Sequence[Any]) -> Any:
        """`as_stored` undone."""
        return self.State(*arrays)

    def check_stored(self, arrays: Sequence[np.ndarray]) -> None:
        """Raises a ValueError for arrays of a file, `[B, ...]`, that are no state."""
        for name, a in zip(self.State._fields, arrays, strict=False):
            if not (np.isfinite(a).all() or np.isnan(a).all()):
                raise ValueError(f"the file is damaged: {name} of the state must be finite")

    def checked_state(self, state: Any) -> tuple[Any, int | None]:
        """A state given by a user, as arrays, with or without the axis of streams.

        Returns:
            The state; and the number of its streams, None without the axis.

        Raises:
            TypeError, ValueError: Arrays of other shapes or dtypes; values that are not finite.
        """
        initial, state = self.initial_state(1), self.from_shown(state)
        if not isinstance(state, tuple | list) or len(state) != len(initial):
            raise TypeError(
                f"a state must be a tuple ({', '.join(initial._fields)}), got {state!r}"
            )
        arrays, sizes = [], set()
        for name, a, like in zip(initial._fields, state, initial, strict=True):
            array, dtype = self.checked_field(name, a, like.dtype), like.dtype.as_numpy_dtype
            shape = tuple(like.shape[1:])
            if not np.can_cast(array.dtype, dtype, "same_kind"):
                raise TypeError(f"{name} of a state must be {like.dtype.name}, got {array.dtype}")
            if shape not in (array.shape, array.shape[1:]):
                raise ValueError(
                    f"{name} of a state must be {shape}, or {('B', *shape)} of B streams or keys, "
                    f"got shape {array.shape}"
                )
            array = array.astype(dtype)
            if not np.isfinite(array).all():
                raise ValueError(f"{name} of a state must be finite, got {a}")
            if name == "chol":
                check_state_factor(array, "the factor of a state")
            sizes |= {len(array)} if array.ndim > len(shape) else set()
            arrays.append(array)
        if len(sizes) > 1:
            raise ValueError(f"arrays of a state must have one batch axis, got {sorted(sizes)}")
        return self.State(*arrays), sizes.pop() if sizes else None

    def checked_field(self, name: str, a: Any, dtype: tf.DType) -> np.ndarray:
        """An array of a state given by a user, of no more precision than the state has."""
        like = dtype if np.iscomplexobj(a) and dtype.is_complex else dtype.real_dtype
        check_rounding(a, like, f"{name} of a state", name)
        return np.asarray(a)

    # --- samples ---------------------------------------------------------------------------------

    @abc.abstractmethod
    def sample_spec(self) -> Sample:
        """The `tf.TensorSpec` of each field that a sample of one stream may have."""

    def check(
        self, sample: Sample, missing: ArrayLike | None = None, along: int = 0
    ) -> tuple[Sample, int | None]:
        """Checks a sample of a user, and converts it.

        Args:
            sample: One sample, or with `along` a block; for a single stream without a batch axis.
            missing: Bool, broadcast against z: True where missing.
            along: The number of time axes, 0 or 1.

        Returns:
            The sample as NumPy arrays, z NaN where missing; and B, None without a batch axis.

        Raises:
            TypeError, ValueError: A sample that the estimator does not take; in the user's words.
        """
        spec = self.sample_spec()
        z = np.asarray(as_observations(sample.z, missing, spec.z.dtype, promote=True))
        batch = z.ndim - spec.z.shape.rank - along
        if along and batch in (0, 1) and not z.shape[batch]:
            raise ValueError(f"a block has at least one sample, got z of shape {z.shape}")
        if batch not in (0, 1) or z.shape[batch + along :] != tuple(spec.z.shape):
            expected = "".join(["T, "] * along + [f"{n}, " for n in spec.z.shape])[:-2]
            raise ValueError(
                f"z must be [{expected}], or [{', '.join(filter(None, ['B', expected]))}] of B "
                f"streams, got shape {z.shape}"
            )
        fields = {"z": z}
        for name, unchecked, of_one in zip(Sample._fields[1:], sample[1:], spec[1:], strict=True):
            if of_one is None or unchecked is None:
                if unchecked is not None:
                    raise ValueError(f"{name} is not taken here: a sample has {_fields_of(spec)}")
                if of_one is not None and name in ("x", "inputs"):
                    raise ValueError(f"{of_one.name} is missing: a sample has {_fields_of(spec)}")
                continue
            label = of_one.name or name
            check_rounding(unchecked, of_one.dtype, label, label)
            a, dtype = np.asarray(unchecked), of_one.dtype.as_numpy_dtype
            if not np.can_cast(a.dtype, dtype, "same_kind"):
                raise TypeError(f"{label} must be {of_one.dtype.name}, got {a.dtype}")
            a = a.astype(dtype)
            shape = (*z.shape[: batch + along], *of_one.shape)
            try:
                fields[name] = np.broadcast_to(a, shape)
            except ValueError:
                raise ValueError(
                    f"{label} must be {list(shape)} beside z, got shape {a.shape}"
                ) from None
            if a.dtype.kind in "fc" and not np.isfinite(a).all():
                raise ValueError(f"{label} must be finite, got {a}")
        return Sample(**fields), len(z) if batch else None

    def with_matrices(self, sample: Sample, matrices: Mapping[str, ArrayLike | None]) -> Sample:
        """A sample, as `check` returned it, with matrices in place of those of the model.

        Args:
            sample: The sample or block.
            matrices: F, Q, H and R by name; None for the model's.

        Raises:
            TypeError: A cell whose model has no matrices.
            ValueError: Matrices that do not fit.
        """
        raise TypeError(f"{type(self).__name__} has no matrices of a step")

    def check_streams(self, streams: int | None) -> None:
        """Raises a ValueError where there cannot be so many streams."""
        del streams

    def forget_samples(self) -> None:
        """Forgets what `check` remembers of earlier samples: the streams begin again."""
        del self

    def check_first(self, sample: Sample, along: int = 0) -> None:
        """Raises a ValueError for a sample, or a block, with which streams cannot begin."""
        del sample, along

    def check_against(self, state: Sequence[np.ndarray], sample: Sample) -> None:
        """Raises a ValueError for a sample that does not fit the state before it.

        Args:
            state: The state as stored, the axis of streams first.
            sample: The sample or block, as `check` returned it.
        """
        del state, sample

    def check_keys(self) -> None:
        """Raises a ValueError for a model that cannot have a state for each of many keys."""
        del self

    def for_streams(self) -> "Cell":
        """The cell for streams of another driver, which remembers no samples yet in `check`."""
        return self

    def for_keys(self) -> "Cell":
        """The cell for samples of many keys in turn, which remembers none of them in `check`."""
        return self

    def structure(self) -> dict[str, Any]:
        """The structure of the model, as JSON values: models of one structure share their states.

        Without the values of hyperparameters, and the same in other processes.
        """
        return {"cell": type(self).__name__}

    def completed(self, state: Any) -> Any:
        """A state that a user has given, `[B, ...]`, with what follows from the rest of it.

        Raises:
            ValueError: A state that the estimator cannot have.
        """
        return state

    def sized_for(self, samples: Sample) -> "Cell":
        """The cell for samples of these shapes; itself where sizes do not depend on data."""
        del samples
        return self

    def series(self, inputs: Any) -> Sample:
        """The series that a layer is called on, tensors or specifications, `[B, T, ...]`.

        Args:
            inputs: z alone, or a tuple (x, z, inputs) of the fields that a sample has.

        Raises:
            TypeError, ValueError: Series of other fields, axes or dtypes.
        """
        spec = self.sample_spec()
        names = [name for name in ("x", "z", "inputs") if getattr(spec, name) is not None]
        arrays = inputs if isinstance(inputs, tuple | list) else [inputs]
        if len(arrays) != len(names):
            raise ValueError(
                f"series of a {type(self).__name__} are ({', '.join(names)}), got {len(arrays)} "
                f"array{'s' * (len(arrays) != 1)}"
            )
        for name, a in zip(names, arrays, strict=True):
            expected, dtype = getattr(spec, name), tf.as_dtype(a.dtype)
            rank = tf.TensorShape(a.shape).rank
            if rank is None or rank < 2 or not expected.shape.is_compatible_with(a.shape[2:]):
                axes = ", ".join(["B", "T", *map(str, expected.shape)])
                raise ValueError(f"{name} of series must be [{axes}], got shape {a.shape}")
            if dtype != expected.dtype and not (dtype.is_integer and expected.dtype.is_integer):
                raise TypeError(
                    f"{name} of series must be {expected.dtype.name}, got {dtype.name}: convert it "
                    "before"
                )
        batches = {name: tf.TensorShape(a.shape[:2]) for name, a in zip(names, arrays, strict=True)}
        if not all(batch.is_compatible_with(batches["z"]) for batch in batches.values()):
            got = " and ".join(f"{name} {batch}" for name, batch in batches.items())
            raise ValueError(f"series must have the same axes [B, T], got {got}")
        return Sample(**dict(zip(names, arrays, strict=True)))

    def sized_for_state(self, arrays: Mapping[str, Any]) -> "Cell":
        """The cell whose states have the sizes of these arrays, by name; itself where none vary."""
        del arrays
        return self

    # --- steps -----------------------------------------------------------------------------------

    @abc.abstractmethod
    def step(self, state: Any, sample: Sample) -> tuple[Any, Step]:
        """Predicts a sample of each stream, then updates the state with it.

        Args:
            state: The state before the sample.
            sample: The sample, tensors `[B, ...]`; z is NaN where missing.

        Returns:
            The state after it, and a `Step` of tensors `[B, ...]` (see `step_of`).
        """

    def scan(self, state: Any, samples: Sample) -> tuple[Any, Step]:
        """`step` for each of T samples, `[B, T, ...]`; a `Step` of tensors `[B, T, ...]`."""
        count = tf.shape(samples.z)[1]
        state, first = advance(self, state, samples.map(lambda a: a[:, 0]))

        def begun(a: tf.Tensor) -> tf.TensorArray:
            return tf.TensorArray(a.dtype, count, element_shape=a.shape).write(0, a)

        def body(t: tf.Tensor, state: Any, arrays: Any) -> tuple:
            state, step = advance(self, state, samples.map(lambda a: a[:, t]))
            write = functools.partial(_write, t)
            return t + 1, state, tf.nest.map_structure(write, arrays, step)

        _, state, arrays = tf.while_loop(
            lambda t, *_: t < count,
            body,
            (1, state, tf.nest.map_structure(begun, first)),
            parallel_iterations=1,
        )
        return state, tf.nest.map_structure(_stacked, arrays)

    def robust_step(
        self, state: Any, sample: Sample, likelihood: Any, take: Callable[[Sample], Step]
    ) -> Step:
        """Takes a sample of each stream with as much noise as its likelihood says.

        Args:
            state: The state before the sample, `[B, ...]`.
            sample: The sample, as `check` returned it.
            likelihood: The likelihood of this sample.
            take: Takes a sample into the state.

        Raises:
            TypeError: Samples of this estimator have no likelihood of their own.
        """
        raise TypeError(
            f"likelihood is for single samples of a Gaussian process, got {likelihood!r}: give it "
            "to the estimator"
        )

    def predict(self, state: Any, at: Sample) -> Marginals:
        """The signal at places, or at the steps to come, given the state, which stays as it is.

        Args:
            state: The state.
            at: The places x, `[B, M, D]`, or the inputs of M steps, `[B, M, k]`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no prediction from a state")

    def forecast(self, state: Any, ahead: Any, inputs: Any = None) -> Any:
        """Forecasts from a state, which stays as it is.

        Args:
            state: The state, `[B, ...]`.
            ahead: The number of steps; for a process the places x, `[M]`, `[M, D]` or `[B, M, D]`.
            inputs: Known inputs of these steps, `[B, M, k]`.

        Returns:
            A named tuple of moments, `[B, M, ...]`.

        Raises:
            TypeError: A cell that has no forecast.
        """
        raise TypeError(f"{type(self).__name__} has no forecast from a state")

    def follow(self, state: Any, samples: Sample) -> Piece:
        """A piece of series inside a model: `scan`, with the loss of the piece."""
        state, step = self.scan(state, samples)
        return Piece(state, step_outputs(step), None)

    def output_spec(self, samples: Sample) -> Outputs:
        """The shapes and dtypes of the outputs of `follow`, by name.

        Args:
            samples: Specifications of series, `[B, T, ...]`, where B and T may be None.
        """

        def outputs(*fields: tf.Tensor) -> Outputs:
            series = Sample(**dict(zip(names, fields, strict=True)))
            first = series.map(lambda a: a[:, 0])
            return self.follow(self.initial_state(tf.shape(series.z)[0], first), series).outputs

        names = [name for name, a in samples._asdict().items() if a is not None]
        specs = [tf.TensorSpec(a.shape, a.dtype) for a in samples if a is not None]
        graph = tf.function(outputs, input_signature=specs, autograph=False)
        return graph.get_concrete_function().structured_outputs

    def is_sound(self, state: Any, step: Step) -> tf.Tensor:
        """Whether the state after a step may be kept, bool: by default if all of it is finite."""
        return all_finite(state)

    unsound = (
        "the state would not be finite any more, and is as it was: the sample, or a variable or an "
        "attribute of the estimator, is not finite, or too large"
    )
    """The error message where a state after a step is not sound."""

    def refusal(self) -> ValueError:
        """The error where a state after a step is not sound; the state is then unchanged."""
        return ValueError(self.unsound)

    def assertions(self, state: Any, sample: Sample) -> list[tf.Operation]:
        """Assertions, for graphs, that a sample fits the state before it."""
        return []

    # --- compiled --------------------------------------------------------------------------------

    def compiled(self, streams: int | None) -> Compiled | None:
        """A compiled function of the step of so many streams; None where there is none.

        It is asked for again when the values of `weights` have changed. The number of streams is
        None for one stream whose samples have no batch axis; and in a bank, where `streams_axis` is
        0 and the arrays of each call show how many there are.
        """
        return None

    def compiled_walk(self) -> Walk | None:
        """A compiled function of the steps of many streams; None where there is none."""
        return None

    takes_any_batch = True
    """Whether graphs take any number of series; False where it must be known when they are made."""
    jit_compile = False
    """Whether XLA may compile the traced step."""
    traces_steps = True
    """Whether `step` is traced for single samples; otherwise they are taken as blocks of one."""
    traces_blocks = True
    """Whether `scan` is traced for blocks of samples; otherwise it is called with NumPy arrays."""

    def chunks(self, samples: Sample) -> list[slice]:
        """The chunks in which a block is taken, between two looks at the clock."""
        length = samples.z.shape[-1 - self.sample_spec().z.shape.rank]
        ends = [*range(0, length, 128), length]
        return list(map(slice, ends[:-1], ends[1:]))


def all_finite(structure: Any) -> tf.Tensor:
    """Whether all floating-point numbers of a structure are finite, bool."""
    leaves = [a for a in tf.nest.flatten(structure) if _is_inexact(a)]
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(tf.abs(a))) for a in leaves])


def _is_inexact(a: Any) -> bool:
    dtype = tf.as_dtype(a.dtype)
    return dtype.is_floating or dtype.is_complex


def advance(cell: Cell, state: Any, sample: Sample) -> tuple[Any, Step]:
    """A step of the streams that a sample has arrived for; the state of others stays as it is."""
    result = cell.step(state, sample._replace(arrived=None))
    next_state, step = checked_result(cell, state, result)
    if sample.arrived is None:
        return next_state, step

    def chosen(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return tf.where(tf.reshape(sample.arrived, [-1] + [1] * (a.shape.rank - 1)), a, b)

    innovation = chosen(step.innovation, nan(step.innovation.dtype))
    return tf.nest.map_structure(chosen, next_state, state), step._replace(innovation=innovation)


def _fields_of(spec: Sample) -> str:
    return ", ".join(a.name or name for name, a in spec._asdict().items() if a is not None)


def _write(t: tf.Tensor, array: tf.TensorArray, a: tf.Tensor) -> tf.TensorArray:
    return array.write(t, a)


def _stacked(array: tf.TensorArray) -> tf.Tensor:
    """A stack along time, `[T, B, ...]`, with the axis of streams first."""
    return tf.experimental.numpy.swapaxes(array.stack(), 0, 1)
