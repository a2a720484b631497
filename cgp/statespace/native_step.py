"""Steps of online filters as plain C functions on arrays, where the core is active.

They compute what `update_and_predict` of `cgp.statespace.online.online_step` does in TensorFlow,
and take microseconds from the first call on, as nothing is traced: `CompiledStep` for one
observation of each of B streams, `CompiledWalk` for samples of many filters in any order, with the
same result to the last bit.
"""

import ctypes
import math
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cgp import native
from cgp.distributions.marginals import JointMoments, Marginals
from cgp.statespace.engines.correlated_noise import CorrelatedNoise
from cgp.statespace.engines.filter_step import leaves_no_exact_observation
from cgp.statespace.models.linear_gaussian import LinearGaussian, with_time

NOT_FINITE = (
    "the state would not be finite any more, and is as it was: the matrices of the model, or its "
    "functions at this state, are not finite, or far off, or its likelihood has no normal "
    "posterior; or the observation is impossible, as it differs from a prediction without "
    "uncertainty: give R or Q a variance then, or mark it missing"
)


class StepMatrices(NamedTuple):
    """The matrices of a step, batch last; the batch axis is 1 where streams share a matrix."""

    F: np.ndarray  # Transition, `[n, n, B]`
    Q_factor: np.ndarray  # G, with `G Gᴴ` the covariance of the process noise, `[n, q, B]`
    H: np.ndarray  # Observation matrix, `[m, n, B]`
    R: np.ndarray  # Covariance of the observation noise, `[m, m, B]`


def step_matrices(model: LinearGaussian) -> StepMatrices:
    """The matrices of a model that does not vary over time."""
    matrices = []
    for matrix in (model.F, model.Q_factor, model.H, model.R):
        a = np.moveaxis(np.reshape(matrix, [-1, *matrix.shape[-2:]]), 0, -1)
        matrices.append(np.ascontiguousarray(a, model.dtype.as_numpy_dtype))
    return StepMatrices(*matrices)


def correlated_noise_of(model: LinearGaussian) -> CorrelatedNoise | None:
    """The arrays of a step of a model that does not vary over time; None without an S."""
    if model.joint_noise is None:
        return None
    tensors = (model.F, model.H, model.R, model.S, model.joint_noise.factor)
    F, H, R, S, roots = (with_time(a).numpy()[..., 0, :, :] for a in tensors)
    m = H.shape[-2]
    return CorrelatedNoise(F, H, R, S, roots[..., :m, :], roots[..., m:, :])


class MatrixArray(ctypes.Structure):
    """A matrix that all streams share, with `batch` 1, or the matrices of each stream."""

    _fields_ = [("data", ctypes.c_void_p), ("batch", ctypes.c_int64)]


class _JointMomentArrays(native.MomentArrays):
    """With the covariance and pseudo-covariance of all components; null to leave them out."""

    _fields_: ClassVar = [(name, ctypes.c_void_p) for name in JointMoments._fields]


def _fields(count: str, *arrays: str) -> list[tuple[str, type]]:
    """The fields of both structures, as online_step.cpp declares them."""
    names = {
        ctypes.c_int64: ("n", "q", "m", count, "predicts_first", "is_composite"),
        MatrixArray: ("F", "Q_factor", "H", "R", "drift"),
        ctypes.c_void_p: arrays,
        _JointMomentArrays: ("predicted", "filtered"),
    }
    return [(name, kind) for kind in names for name in names[kind]]


class _Step(ctypes.Structure):
    _fields_ = _fields("streams", "z", "mean", "chol")


class _Walk(ctypes.Structure):
    _fields_ = [*_fields("samples", "z", "slot", "mean", "chol"), ("refused", ctypes.c_int64)]


def _moment_types(dtype: np.dtype, is_composite: bool) -> tuple[bool, np.dtype, np.dtype]:
    """Whether moments are complex, and the dtypes of variances and means."""
    is_complex = dtype.kind == "c" or is_composite
    real = np.zeros(0, dtype).real.dtype
    return is_complex, real, np.result_type(real, np.complex64) if is_complex else real


class StepMoments(NamedTuple):
    """The moments of a step."""

    predicted: Marginals  # Of the observation before it was observed
    filtered: Marginals  # Of the signal or state after it
    joint: (
        JointMoments | tuple[()]
    )  # Of the predicted observation; empty for the signal of a process of one output

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> "StepMoments":
        """Applies a function to each array."""
        joint = self.joint.map(function) if self.joint else ()
        return StepMoments(self.predicted.map(function), self.filtered.map(function), joint)


class NormalObservations(NamedTuple):
    """Normal observations of a step in place of those with a likelihood, working values."""

    z: np.ndarray  # `[m, B]`, NaN where missing
    R: np.ndarray  # The covariance of their noise, `[m, m, B]`; where missing that of the model


ObservationsOf = Callable[..., NormalObservations | None]
"""Of observations `[m, B]`, H, R, and mean and factor of the state before them, batch last; None
where no normal observations stand for these."""


class CompiledStep:
    """A step of B streams, whose matrices are the same from step to step unless they are set.

    Args:
        matrices: The matrices.
        streams: B, or None for one stream without a batch axis.
        is_composite: Whether real working values are the composite of complex values.
        predicts_first: Whether a step leads from the last observation to the present one, and
            returns the moments of the signal H x; otherwise from the present one to the next, and
            returns the moments of the state.
        is_scalar: Whether the signal is one number, whose moments have no axis of components.
    """

    def __init__(
        self,
        matrices: StepMatrices,
        streams: int | None,
        is_composite: bool = False,
        predicts_first: bool = False,
        is_scalar: bool = False,
    ):
        dtype = matrices.F.dtype
        self._function = native.function(f"cgp_online_step_{dtype.name}")
        self._is_composite, self._predicts_first = is_composite, predicts_first
        (m, n), count = matrices.H.shape[:2], streams or 1
        self._z = np.zeros((m, count), dtype)
        self._z_by_stream = np.moveaxis(self._z, -1, 0)
        self._kept: dict[str, np.ndarray] = {}  # the arrays that the C structure points to
        self._arguments = _Step(n, 0, m, count, predicts_first, is_composite)
        self._arguments.z = self._z.ctypes.data
        self.set(**matrices._asdict(), drift=np.zeros((n, 1), dtype))
        sizes = {"predicted": m, "filtered": m if predicts_first else n}
        axes = () if streams is None else (streams,)
        halves = 2 if is_composite else 1
        shapes = {
            name: axes if is_scalar else (*axes, size // halves) for name, size in sizes.items()
        }
        self._shape_of_z = (*axes, m // halves)
        components, (_, real, of_mean) = m // halves, _moment_types(dtype, is_composite)
        pairs = None
        if components > 1:
            pairs = (*axes, components, components)
        self._record = native.MomentRecord(self._arguments, shapes, of_mean, real, pairs)
        self._reference = ctypes.byref(self._arguments)

    def set(self, **matrices: np.ndarray) -> None:
        """Replaces matrices, by the names of `StepMatrices`, or `drift`, `[n, B]`: contiguous."""
        for name, a in matrices.items():
            if self._kept.get(name) is a:
                continue
            self._kept[name] = a
            matrix = getattr(self._arguments, name)
            matrix.data, matrix.batch = a.ctypes.data, a.shape[-1]
            if name == "Q_factor":
                self._arguments.q = a.shape[1]

    def working(self, z: np.ndarray) -> np.ndarray:
        """Working values `[m, B]` of observations `[M]` or `[B, M]`."""
        if self._is_composite:
            z = np.concatenate([z.real, z.imag], axis=-1)
        return np.ascontiguousarray(np.moveaxis(z.reshape(-1, z.shape[-1]), 0, -1))

    def as_observed(self, z: np.ndarray) -> np.ndarray:
        """Inverts `working`."""
        if self._is_composite:
            real, imaginary = np.split(z, 2)
            z = real + 1j * imaginary
        return np.moveaxis(z, -1, 0).reshape(self._shape_of_z)

    def __call__(self, z: np.ndarray, mean: np.ndarray, chol: np.ndarray) -> StepMoments | None:
        """Takes one observation of each stream, `[M]` or `[B, M]`, and replaces the state in place.

        Mean and factor are working values, `[n, B]` and `[n, n, B]`, contiguous.

        Returns:
            The moments; None, and the state is unchanged, where it or a moment would not be finite.
        """
        if self._is_composite:
            z = np.concatenate([z.real, z.imag], axis=-1)
        self._z_by_stream[...] = z
        if mean is not self._kept.get("mean") or chol is not self._kept.get("chol"):
            self._kept |= {"mean": mean, "chol": chol}
            self._arguments.mean, self._arguments.chol = mean.ctypes.data, chol.ctypes.data
        outcome = self._function(self._reference)
        if outcome == 1:
            return None
        if outcome:
            raise MemoryError("a step of an online filter needs more memory than there is")
        predicted, filtered, *joint = self._record.moments()
        marginals = Marginals(*predicted), Marginals(*filtered)
        if joint:
            return StepMoments(*marginals, JointMoments(*joint[0]))
        if self._predicts_first:
            return StepMoments(*marginals, ())
        return StepMoments(*marginals, _of_one_component(marginals[0]))


class CompiledWalk:
    """Steps of many filters, sample after sample; arguments as for `CompiledStep`."""

    def __init__(self, is_composite: bool, predicts_first: bool):
        self._is_composite, self._predicts_first = is_composite, predicts_first

    def __call__(
        self,
        matrices: Mapping[str, np.ndarray],
        z: np.ndarray,
        slots: np.ndarray,
        mean: np.ndarray,
        chol: np.ndarray,
    ) -> StepMoments | int:
        """Takes samples in their order, and changes the states.

        Args:
            matrices: The fields of `StepMatrices`, and `drift`, zero if left out, without a batch
                axis, or with one before the others.
            z: Observations, `[B, M]`; NaN where missing.
            slots: The row of the state of each sample, int64, `[B]`.
            mean: The means of all states, working values, `[S, n]`, contiguous; changed in place.
            chol: The factors of their covariances, `[S, n, n]`, contiguous; changed in place.

        Returns:
            The moments, `[B, k]`. Or, where a state or moment would not be finite, the number of
            that sample; samples before it have been taken in.
        """
        (m, n), dtype = matrices["H"].shape[-2:], chol.dtype
        if self._is_composite:
            z = np.concatenate([z.real, z.imag], axis=-1)
        matrices = {"drift": np.zeros(n, dtype), **matrices}
        arrays = {name: np.ascontiguousarray(a, dtype) for name, a in matrices.items()}
        z, slots = np.ascontiguousarray(z), np.ascontiguousarray(slots)
        q = arrays["Q_factor"].shape[-1]
        arguments = _Walk(n, q, m, len(z), self._predicts_first, self._is_composite)
        for name, a in arrays.items():
            rank = 1 if name == "drift" else 2
            setattr(arguments, name, MatrixArray(a.ctypes.data, len(a) if a.ndim > rank else 1))
        for name, a in (("z", z), ("slot", slots), ("mean", mean), ("chol", chol)):
            setattr(arguments, name, a.ctypes.data)
        predicted = self._moments(arguments.predicted, dtype, len(z), m)
        filtered = self._moments(
            arguments.filtered, dtype, len(z), m if self._predicts_first else n
        )
        components = predicted.mean.shape[-1]
        joint: JointMoments | tuple[()] = ()
        if components > 1:
            joint = self._joint(arguments.predicted, predicted)
        outcome = native.function(f"cgp_online_walk_{dtype.name}")(ctypes.byref(arguments))
        if outcome == 1:
            return int(arguments.refused)
        if outcome:
            raise MemoryError("the steps of online filters need more memory than there is")
        if (
            components == 1 and not self._predicts_first
        ):  # a copy of the variances, which are there now
            joint = _of_one_component(predicted)
        return StepMoments(predicted, filtered, joint)

    def _moments(self, to: _JointMomentArrays, dtype: np.dtype, samples: int, k: int) -> Marginals:
        """Arrays `[B, k]` for moments of k working components; the core is told where they are."""
        shape = (samples, k // 2 if self._is_composite else k)
        is_complex, real, of_mean = _moment_types(dtype, self._is_composite)
        mean, variance = np.empty(shape, of_mean), np.empty(shape, real)
        # E(x − m)² of a real number is its variance; of a proper one it is zero.
        pseudo = np.zeros(shape, of_mean) if is_complex else variance
        to.mean, to.variance, to.pseudo = (a.ctypes.data for a in (mean, variance, pseudo))
        return Marginals(mean, variance, pseudo)

    @staticmethod
    def _joint(to: _JointMomentArrays, predicted: Marginals) -> JointMoments:
        """Arrays `[B, k, k]` for the joint moments of predicted components."""
        samples, k = predicted.mean.shape
        covariance = np.empty((samples, k, k), predicted.mean.dtype)
        is_complex = np.iscomplexobj(covariance)
        pseudo = np.zeros_like(covariance) if is_complex else covariance
        to.covariance, to.pseudo_covariance = covariance.ctypes.data, pseudo.ctypes.data
        return JointMoments(covariance, pseudo)


def _of_one_component(predicted: Marginals) -> JointMoments:
    """The joint moments of observations of one component, `[..., 1]`, which are its variances."""
    covariance = predicted.variance.astype(predicted.mean.dtype)[..., None]
    return JointMoments(covariance, predicted.pseudo_variance[..., None])


def call_with(
    step: Any,
    matrices: dict[str, np.ndarray],
    usual: StepMatrices,
    *arguments: Any,
    observations_of: ObservationsOf | None = None,
) -> Any:
    """Calls a step with matrices in place of its usual ones, batch last, for this call alone.

    `observations_of` replaces observations that have a likelihood.
    """
    if observations_of is not None:
        return _call_with_likelihood(step, matrices, usual, observations_of, *arguments)
    if not matrices:
        return step(*arguments)
    step.set(**matrices)
    try:
        return step(*arguments)
    finally:
        step.set(**{name: getattr(usual, name) for name in matrices})


def _call_with_likelihood(
    step: CompiledStep,
    matrices: dict[str, np.ndarray],
    usual: StepMatrices,
    observations_of: ObservationsOf,
    z: np.ndarray,
    mean: np.ndarray,
    chol: np.ndarray,
) -> StepMoments | None:
    """`call_with` of observations that are replaced by normal ones."""
    H, R = (matrices.get(name, getattr(usual, name)) for name in ("H", "R"))
    normal = observations_of(step.working(z), H, R, mean, chol)
    if normal is None:
        return None
    observation = step.as_observed(normal.z)
    moments = call_with(step, matrices | {"R": normal.R}, usual, observation, mean, chol)
    if moments is None:
        return None
    # z is read as the observation that stands for it, so that innovations are of that.
    shift = np.where(np.isnan(z), 0.0, z - observation)
    predicted = moments.predicted._replace(mean=moments.predicted.mean + shift)
    return moments._replace(predicted=predicted)


# --- steps of any batch of streams, which keep no state ------------------------------------------


class CoreStep:
    """The compiled steps of a model, one for each number of streams, for use by all threads."""

    def __init__(self, model: LinearGaussian):
        self.matrices, self.correlated = step_matrices(model), correlated_noise_of(model)
        self.leaves_no_exact_observation = leaves_no_exact_observation(model.R)
        self.batch = tuple(model.batch_shape)
        self.B = None if model.B is None else with_time(model.B).numpy()[..., 0, :, :]
        self._is_composite = not model.is_proper
        self._steps: dict[int, CompiledStep] = {}
        self._mutex = threading.Lock()

    def __call__(
        self,
        matrices: dict[str, np.ndarray],
        drift: np.ndarray,
        z: np.ndarray,
        mean: np.ndarray,
        chol: np.ndarray,
        observations_of: ObservationsOf | None = None,
    ) -> StepMoments | None:
        """Takes an observation of each stream, `[B, M]`, and replaces their states in place."""
        with self._mutex:
            if len(z) not in self._steps:
                self._steps[len(z)] = CompiledStep(self.matrices, len(z), self._is_composite)
            step = self._steps[len(z)]
            step.set(drift=drift)
            return call_with(
                step, matrices, self.matrices, z, mean, chol, observations_of=observations_of
            )


_core_steps: weakref.WeakKeyDictionary[LinearGaussian, CoreStep] = weakref.WeakKeyDictionary()


def moments_by_core(
    model: LinearGaussian,
    mean: np.ndarray,
    chol: np.ndarray,
    z: np.ndarray,
    inputs: np.ndarray | None,
    matrices: dict[str, np.ndarray],
    observations_of: ObservationsOf | None = None,
) -> tuple[np.ndarray, np.ndarray, StepMoments | None] | None:
    """A step of streams of a model; None where the core cannot take it.

    Args:
        model: The model, without an axis of time.
        mean: The mean of the state, working values, `[..., n]`.
        chol: The Cholesky factor of its covariance, `[..., n, n]`.
        z: The observations, `[..., M]`; NaN where missing.
        inputs: Known inputs, working values, `[..., k]`.
        matrices: Matrices of this step, `[..., rows, columns]`, by the names of `StepMatrices`.
        observations_of: Replaces observations that have a likelihood; None in normal noise.

    Returns:
        Mean and factor of the state predicted next, and the moments of the step, with the batch
        axes; the moments are None where the state would not be finite.
    """
    if native.core().ops is None or model.b is not None or model.d is not None:
        return None
    if model not in _core_steps:
        _core_steps[model] = CoreStep(model)
    core = _core_steps[model]
    R = matrices.get("R")
    if not (core.leaves_no_exact_observation if R is None else leaves_no_exact_observation(R)):
        return None
    arrays = [(mean, 1), (chol, 2), (z, 1), *((a, 2) for a in matrices.values())]
    arrays += [] if inputs is None else [(inputs, 1)]
    try:
        batch = np.broadcast_shapes(core.batch, *(a.shape[: a.ndim - rank] for a, rank in arrays))
    except ValueError:  # the series of one step, in TensorFlow, tells which do not fit
        return None
    if math.prod(core.batch) not in (1, math.prod(batch)):
        return None

    def batch_last(a: np.ndarray, rank: int) -> np.ndarray:
        own_axes = a.shape[a.ndim - rank :]
        a = np.broadcast_to(a, (*batch, *own_axes)).reshape(-1, *own_axes)
        return np.array(np.moveaxis(a, 0, -1), order="C")  # a copy, which the step changes

    drift = np.zeros(mean.shape[-1], chol.dtype)
    if inputs is not None and core.B is not None:
        drift = (core.B @ inputs[..., None])[..., 0]
    if core.correlated is not None:
        working_z = z if model.is_proper else np.concatenate([z.real, z.imag], axis=-1)
        matrices = core.correlated.transition_after(working_z)
        drift = drift + matrices.pop("drift")
    next_mean, next_chol = batch_last(mean, 1), batch_last(chol, 2)
    moments = core(
        {name: batch_last(a, 2) for name, a in matrices.items()},
        batch_last(drift, 1),
        np.broadcast_to(z, (*batch, z.shape[-1])).reshape(-1, z.shape[-1]),
        next_mean,
        next_chol,
        observations_of,
    )

    def batch_first(a: np.ndarray) -> np.ndarray:
        return a.reshape(*batch, *a.shape[1:])

    next_mean, next_chol = (batch_first(np.moveaxis(a, -1, 0)) for a in (next_mean, next_chol))
    return next_mean, next_chol, None if moments is None else moments.map(batch_first)
