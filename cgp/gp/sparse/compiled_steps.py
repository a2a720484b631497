"""Samples of a process by inducing points, taken in by the compiled core."""

import ctypes
import operator
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from cgp import native
from cgp.distributions.marginals import Marginals, Step
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.gp.sparse.inducing_points import InducingPoints
from cgp.linalg.arguments import complex_dtype
from cgp.online.cell import Sample


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
            known = 0.0 if sample.noise_variance is None else sample.noise_variance
            self._noise_k[...] = learned + self._scale * known
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
