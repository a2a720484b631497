"""One sample of a process by inducing points, as a cell.

A sample with whitened covariances a = L⁻¹ k(u, x)/σ (see `cgp.gp.sparse.bound`) adds a rank-one
term to the precision of the whitened signal at the inducing points,

    Λ ← λ Λ + a aᴴ,    b ← λ b + a y/σ,

two real ones in the composite of an improper process. Nothing is ever subtracted, so that Λ stays
positive definite in any number of steps. Without forgetting, λ = 1, the state after N samples is
that of all of them at once.

With forgetting the prior, the identity in Λ, would fade with the data, and predictions where no
data come any more would lose all bounds. One coordinate i of m after the other gets

    Λ ← Λ + (1 − λᵐ) eᵢ eᵢᴴ,

once in m steps, over which the prior in it has fallen from 1 to λᵐ: regularisation by one
coordinate at a time. A missing sample, NaN, leaves the state as it is: it adds nothing, forgets
nothing and restores nothing.
"""

import copy
import ctypes
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from cgp import native
from cgp.distributions.forms import clipped
from cgp.distributions.marginals import Marginals, Step
from cgp.gp.data import Data
from cgp.gp.noise import SampleNoise
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.gp.sparse.bound import ConditionedSparse, white_samples
from cgp.gp.sparse.inducing_points import InducingPoints
from cgp.gp.stream_samples import GaussianProcessCell
from cgp.kernels.points import as_points
from cgp.linalg import cholesky_update
from cgp.linalg.arguments import complex_dtype, is_nan, nan, real_as
from cgp.linalg.gradients import without_gradient
from cgp.linalg.short_repr import short_repr
from cgp.online.cell import Compiled, Sample
from cgp.online.structure import structure_of
from cgp.statespace.online.online_step import check_state_factor


@short_repr
class SparseState(NamedTuple):
    """The whitened signal at the inducing points, given the samples so far, by its precision."""

    vector: Any
    """b, working, `[..., m]`, of an improper process of the composite, `[..., 2m]`."""
    chol: Any
    """The factor of Λ, `[..., m, m]` or `[..., 2m, 2m]`."""
    coordinate: Any
    """The coordinate whose prior is restored next, int32, `[...]`; 0 without forgetting."""


class SparseCell(GaussianProcessCell):
    """The signal at inducing points, and its update by a sample.

    Args:
        process: The signal and its noise.
        real_dtype: "float64" or "float32".
        check_inputs: As for `GaussianProcessCell`.
        inducing: The inducing points.
        weights: The variables that a state belongs to: those of kernel, noise and mean, and the
            inducing points.
        given_data: Returns the process given the data taken in by inducing points, from which
            streams begin; current where it is called eagerly.
        forgetting: λ.
    """

    State = SparseState
    unsound = (
        "the precision of the inducing points would not be finite any more, and is as it was: the "
        "sample or a hyperparameter is not finite, or too large"
    )

    def __init__(
        self,
        process: SignalPlusNoise,
        real_dtype: str,
        check_inputs: Callable[[np.ndarray], Any],
        inducing: InducingPoints,
        weights: Sequence[keras.Variable],
        given_data: Callable[[], ConditionedSparse],
        forgetting: float,
    ):
        super().__init__(process, real_dtype, check_inputs)
        self._inducing, self._weights, self.forgetting = inducing, [*weights], forgetting
        self._given_data = given_data

    @property
    def weights(self) -> list[keras.Variable]:
        """The variables of kernel, noise and mean, and the inducing points."""
        return self._weights

    def _check_chosen(self) -> None:
        if self._inducing.is_left_out:
            raise ValueError(
                "inducing points are not chosen yet: condition(x, z) on some data first, or give "
                "the points, as in inducing=x[::10]"
            )

    def of_inducing(self) -> "SparseCell":
        """The cell for places of as many dimensions as the inducing points have."""
        dimensions = self._inducing.variable.shape[-1]
        if dimensions == self.dimensions:
            return self
        cell = copy.copy(self)
        cell.dimensions = dimensions
        return cell

    def sized_for(self, samples: Sample) -> "SparseCell":
        """The cell for places of as many dimensions as the inducing points have."""
        self._check_chosen()
        cell = self.of_inducing()
        if samples.x.shape[-1] != cell.dimensions:
            raise ValueError(
                f"x must have as many dimensions as the inducing points, {cell.dimensions}, got "
                f"{samples.x.shape[-1]}"
            )
        return cell

    def sized_for_state(self, arrays: Mapping[str, Any]) -> "SparseCell":
        """The cell for places of as many dimensions as the inducing points have."""
        return self.of_inducing()

    def check_streams(self, streams: int | None) -> None:
        """Raises a ValueError for other numbers of streams than of series taken in."""
        self._check_chosen()
        series = self._given_data().vector.shape
        count = series[0] * series[2]
        if count not in (1, streams):
            raise ValueError(
                f"the data are {count} series, and the samples are of "
                f"{'one' if streams is None else streams}: z must be [{count}], a sample of each"
            )

    def check_keys(self) -> None:
        """Raises a ValueError for data of several series, as keys begin from one."""
        self.check_streams(None)

    def structure(self) -> dict[str, Any]:
        """Kernel, mean, the number of inducing points and the forgetting, as JSON values."""
        layers = {"kernel": self.process.kernel, "mean": self.process.mean}
        settings = {"inducing": list(self._inducing.variable.shape), "forgetting": self.forgetting}
        return {**{name: structure_of(a) for name, a in layers.items()}, **settings}

    # --- states ----------------------------------------------------------------------------------

    def initial_state(self, batch_size: Any, sample: Sample | None = None) -> SparseState:
        """The state given the data taken in; the prior before any."""
        self._check_chosen()
        factors = self._given_data()
        vector = tf.linalg.matrix_transpose(factors.vector)  # series in rows, not conjugated
        vector = tf.reshape(vector, [-1, tf.shape(vector)[-1]])
        return SparseState(
            tf.broadcast_to(vector, [batch_size, tf.shape(vector)[-1]]),
            tf.broadcast_to(
                factors.precision_chol,
                tf.concat([[batch_size], tf.shape(factors.precision_chol)[1:]], axis=0),
            ),
            tf.zeros([batch_size], tf.int32),
        )

    def blank_state(self, batch_size: int) -> SparseState:
        """NaN, for streams that have not begun."""
        size = self._inducing.variable.shape[0] * self.process.form.multiplicity
        real = tf.as_dtype(self.real_dtype)
        of_working_values = nan(complex_dtype(real) if self.process.is_proper else real)
        return SparseState(
            tf.fill([batch_size, size], of_working_values),
            tf.fill([batch_size, size, size], of_working_values),
            tf.zeros([batch_size], tf.int32),
        )

    def check_stored(self, arrays: Sequence[np.ndarray]) -> None:
        """Raises a ValueError for arrays of a file that are no state, begun or not."""
        super().check_stored(arrays)
        if np.isfinite(arrays[0]).all():
            check_state_factor(arrays[1], "the saved factor of the state")

    def compiled(self, streams: int | None) -> Compiled | None:
        """The steps by the compiled core, on arrays."""
        return CompiledSteps(
            self.process, self._inducing, lambda: self._given_data().chol, self.forgetting
        )

    # --- steps -----------------------------------------------------------------------------------

    def posterior_of(self, state: SparseState) -> ConditionedSparse:
        """The process given a state, `[B, ...]`, which has no gradient by hyperparameters."""
        factors = without_gradient(
            [self._given_data().chol, state.chol, state.vector[..., None]],
            [weight.value for weight in self._weights],
            "predictions given samples that were taken one at a time have no gradient by "
            "hyperparameters: learn from data, fit(x, z)",
        )
        return ConditionedSparse(self.process.form, *factors)

    def begun(self, state: SparseState) -> SparseState:
        """A state where it has begun, and else the initial one."""
        is_blank = is_nan(state.vector[:, 0])
        initial = self.initial_state(tf.shape(state.vector)[0])

        def chosen(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
            return tf.where(tf.reshape(is_blank, [-1] + [1] * (a.shape.rank - 1)), a, b)

        return SparseState(*map(chosen, initial, state))

    def _moments(
        self, factors: ConditionedSparse, x: tf.Tensor, noise: SampleNoise | None
    ) -> Marginals:
        """The moments at places `[B, M, D]` of the signal, or of observations with noise."""
        process, inducing = self.process, self._inducing.value[None]
        cross = process.form.covariance(process.kernel.moments_matrix(inducing, x))
        mean = process.form.join(factors.mean(cross, None)[..., 0])
        moments = clipped(factors.marginal(process.marginal(x), cross, None))
        if noise is not None:
            moments = process.with_noise(moments, noise)
        pseudo = moments.c_or_zeros() + tf.zeros_like(mean)
        return Marginals(process.plus_function(mean, x), tf.math.real(moments.k), pseudo)

    def step(self, state: SparseState, sample: Sample) -> tuple[SparseState, Step]:
        """Predicts a sample, then adds it to the precision of the inducing points."""
        x, z = sample.x[:, None], sample.z[:, None]
        noise = SampleNoise(sample.noise_variance, sample.group).map(lambda a: a[:, None])
        factors = self.posterior_of(state)
        predicted = self._moments(factors, x, noise)
        data = Data(x, z, tf.shape(z)[:1], noise)
        white = white_samples(self.process, data, self._inducing.value)
        a = tf.linalg.triangular_solve(factors.chol, white.cross)
        state = self._faded(state, ~is_nan(sample.z))
        chol = state.chol
        for number in range(self.process.form.multiplicity):
            chol = cholesky_update(chol, a[..., number])
        vector = state.vector + tf.linalg.matvec(a, white.targets[:, 0])
        state = state._replace(vector=vector, chol=chol)
        filtered = self._moments(self.posterior_of(state), x, None)
        predicted, filtered = (m.map(lambda a: a[:, 0]) for m in (predicted, filtered))
        deviation = tf.where(is_nan(sample.z), nan(z.dtype), sample.z - predicted.mean)
        return state, Step(predicted, deviation, filtered)

    def _faded(self, state: SparseState, present: tf.Tensor) -> SparseState:
        """The state after a step of forgetting, with the prior of a coordinate restored."""
        if self.forgetting == 1.0:
            return state
        dtype, size = state.chol.dtype, state.chol.shape[-1]
        factor = tf.where(present, tf.constant(self.forgetting, dtype.real_dtype), 1.0)
        restored = tf.one_hot(state.coordinate, size, dtype=dtype.real_dtype)
        restored *= tf.sqrt(1.0 - factor**size)[:, None]
        chol = state.chol * real_as(tf.sqrt(factor), dtype)[:, None, None]
        following = (state.coordinate + tf.cast(present, tf.int32)) % size
        return SparseState(
            state.vector * real_as(factor, dtype)[:, None],
            cholesky_update(chol, real_as(restored, dtype)),
            following,
        )

    def predict(self, state: SparseState, at: Sample) -> Marginals:
        """The signal at places `[B, M, D]` given the state."""
        state = SparseState(*map(tf.convert_to_tensor, state))
        return self._moments(self.posterior_of(state), tf.convert_to_tensor(at.x), None)

    def forecast(self, state: SparseState, ahead: Any, inputs: Any = None) -> Marginals:
        """The signal at any places x, `[M]`, `[M, D]` or `[B, M, D]`, given the state."""
        if inputs is not None:
            raise ValueError("a process has no known inputs")
        x = as_points(ahead, self.real_dtype)
        x = tf.broadcast_to(x, [len(state.chol), *x.shape[-2:]])
        return self.predict(state, Sample(None, x)).map(np.asarray)


class _Take(ctypes.Structure):  # as sparse_take.cpp declares it
    _sizes = ("streams", "inducing", "steps", "dimensions", "program_size")
    _arrays = ("x", "z", "mean", "noise_k", "noise_c", "points", "chol")
    _state = ("vector", "precision", "coordinate")
    _fields_ = [
        *((name, ctypes.c_int64) for name in _sizes),
        ("program", ctypes.c_void_p),
        ("forgetting", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in (*_arrays, *_state, "memory")),
        *((name, native.MomentArrays) for name in ("predicted", "filtered")),
    ]


class CompiledSteps:
    """The steps of a `SparseCell` as calls of a C function, on arrays.

    Args:
        process: The signal and its noise.
        inducing: The inducing points.
        chol: Returns their factor L, `[1, n, n]`, current.
        forgetting: λ.
    """

    def __init__(
        self,
        process: SignalPlusNoise,
        inducing: InducingPoints,
        chol: Callable[[], tf.Tensor],
        forgetting: float,
    ):
        self._signal, self._inducing, self._chol = process, inducing, chol
        self._arguments = _Take(forgetting=forgetting)
        self._reference = ctypes.byref(self._arguments)
        self._layer_weights = b""  # of the hyperparameters that these arrays belong to
        self._program: np.ndarray | None = None
        self._points, self._factor = np.zeros(0), np.zeros(0)
        self._learned, self._scale, self._circularity = np.zeros(1), 1.0, 0j
        self._state: list[np.ndarray] = []  # to whose arrays the structure points, and to these
        self._x, self._z, self._noise_k, self._noise_c = (np.zeros(0) for _ in range(4))
        self._mean, self._memory = np.zeros(0), np.zeros(0)
        self._moments: native.MomentRecord
        self._function: Callable[..., int]

    def serves(self, arrays: Sequence[np.ndarray], sample: Sample, layer_weights: bytes) -> bool:
        """Whether the core knows the kernel, and the streams have begun."""
        if native.core().library is None or np.isnan(arrays[0]).any():
            return False
        if layer_weights != self._layer_weights:
            self._renew()
            self._layer_weights = layer_weights
        return self._program is not None

    def _renew(self) -> None:
        process, arguments = self._signal, self._arguments
        self._program = process.kernel.program()
        if self._program is None:
            return
        self._points, self._factor = self._inducing.value.numpy(), self._chol()[0].numpy()
        arguments.inducing, arguments.dimensions = len(self._points), self._points.shape[-1]
        arguments.program_size = self._program.size
        arrays = {"program": self._program, "points": self._points, "chol": self._factor}
        for name, a in arrays.items():
            setattr(arguments, name, a.ctypes.data)
        self._learned = np.ravel(process.learned_noise_variance())
        self._scale = float(process.known_noise_variance(1.0))
        circularity = process.noise_circularity
        self._circularity = 0j if circularity is None else complex(circularity.numpy())
        self._state = []

    def __call__(self, arrays: Sequence[np.ndarray], sample: Sample) -> Step | None:
        """Takes a sample or a block, also of one stream without a batch axis."""
        z = np.asarray(sample.z)
        is_pointed = self._z.shape == z.shape and self._state
        if not is_pointed or not all(map(operator.is_, arrays, self._state)):
            self._point_to(arrays, np.shape(sample.x), z.shape)
        self._x[...], self._z[...] = sample.x, z
        if sample.noise_variance is not None or sample.group is not None:
            learned = self._learned[0 if sample.group is None else sample.group]
            stated = 0.0 if sample.noise_variance is None else sample.noise_variance
            self._noise_k[...] = learned + self._scale * stated
            self._noise_c[...] = learned * self._circularity
        if self._signal.mean is not None:
            points = tf.constant(self._x.reshape(len(arrays[0]), -1, self._x.shape[-1]))
            zeros = tf.zeros(points.shape[:-1], complex_dtype(points.dtype))
            self._mean = self._signal.plus_function(zeros, points).numpy()
            self._arguments.mean = self._mean.ctypes.data
        if self._function(self._reference):
            return None
        predicted, filtered = (Marginals(*moments) for moments in self._moments.moments())
        return Step(predicted, z - predicted.mean, filtered)

    def _point_to(
        self, state: Sequence[np.ndarray], of_x: tuple[int, ...], of_z: tuple[int, ...]
    ) -> None:
        """Makes the structure point to a state, and to new memory for samples of these shapes."""
        self._state, arguments, streams = list(state), self._arguments, len(state[0])
        real, of_numbers = self._points.dtype, complex_dtype(self._points.dtype).as_numpy_dtype
        self._x, self._z = np.empty(of_x, real), np.empty(of_z, of_numbers)
        self._noise_k = np.full(of_z, self._learned[0], real)
        self._noise_c = np.full(of_z, self._learned[0] * self._circularity, of_numbers)
        arguments.streams, arguments.steps = streams, self._z.size // streams
        shapes = {"predicted": of_z, "filtered": of_z}
        self._moments = native.MomentRecord(arguments, shapes, np.dtype(of_numbers), real)
        precision = state[1]
        if len(self._memory) != streams:
            self._memory = np.empty((streams, 2, *precision.shape[1:]), precision.dtype)
        arrays = {"x": self._x, "z": self._z, "noise_k": self._noise_k, "noise_c": self._noise_c}
        arrays |= {"memory": self._memory} | dict(zip(_Take._state, state, strict=True))
        for name, a in arrays.items():
            setattr(arguments, name, a.ctypes.data)
        self._function = native.function(f"cgp_sparse_take_{precision.dtype.name}")
