"""Samples taken into windows by a plain C function of the compiled core, on arrays.

The kernel is evaluated there too, from its instructions: nothing is traced, and a step takes tens
of microseconds. `cgp.gp.recursive.window_recursion` says what is computed.
"""

import ctypes

import numpy as np
import tensorflow as tf

from cgp import native
from cgp.distributions import Marginals, Step
from cgp.distributions.marginals import innovation
from cgp.gp.recursive.budget import NUGGET
from cgp.gp.recursive.window_recursion import WindowRecursion
from cgp.linalg.arguments import complex_dtype


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
    """The window recursion at the present hyperparameters, as arguments of the C function.

    Args:
        recursion: The recursion.
    """

    def __init__(self, recursion: WindowRecursion):
        self._recursion = recursion
        self._arguments = _Take(
            capacity=recursion.capacity, forgetting=recursion.forgetting, nugget=NUGGET
        )
        self._memory: np.ndarray | None = None
        self._program: np.ndarray | None = None
        self._values = b""  # of the hyperparameters that the program belongs to
        self._noise_variances, self._circularity = np.zeros(1), 0.0 + 0.0j

    def serves(self, values: bytes) -> bool:
        """Whether it can take samples in: it knows the kernel.

        Args:
            values: The present values of the hyperparameters.
        """
        if native.core().library is None:
            return False
        if values != self._values:
            self._read_hyperparameters()
            self._values = values
        return self._program is not None

    def _read_hyperparameters(self) -> None:
        process, arguments = self._recursion.process, self._arguments
        self._program = process.kernel.program()
        if self._program is not None:
            arguments.program = self._program.ctypes.data
            arguments.program_size = self._program.size
        self._noise_variances = np.ravel(process.learned_noise_variance())
        circularity = process.noise_circularity
        self._circularity = 0.0 if circularity is None else complex(circularity.numpy())

    def take(
        self,
        x: np.ndarray,
        z: np.ndarray,
        window: list[np.ndarray],
        known_variance: float = 0.0,
        group: int = 0,
    ) -> Step | None:
        """Takes samples into windows, all of which have the same noise.

        Args:
            x: Inputs, `[B, T, D]`.
            z: Observations, complex, `[B, T]`; NaN where missing.
            window: The arrays of the fields of `Window`, changed in place; that of the noise of
                points, which may be left out, is not.
            known_variance: The known part of the noise of the samples.
            group: Their group.

        Returns:
            A `Step` of NumPy arrays, `[B, T]`; or None, and the windows are unchanged, where a
            factor fails: TensorFlow then says what is wrong.
        """
        _, held_x, held_z, _, chol, *basis = window
        has_basis = len(basis) > 2  # besides the noise of points, one or two arrays if any
        prior_chol, prior_precision = basis[:2] if has_basis else (None, None)
        x, z = np.ascontiguousarray(x, held_x.dtype), np.ascontiguousarray(z, held_z.dtype)
        mean = held_mean = None
        if self._recursion.process.mean is not None:
            mean, held_mean = self._mean_function(x), self._mean_function(held_x)
        arguments = self._arguments
        learned = float(self._noise_variances[group])
        arguments.noise_variance, pseudo = learned + known_variance, learned * self._circularity
        arguments.noise_pseudo_re, arguments.noise_pseudo_im = pseudo.real, pseudo.imag
        arguments.streams, arguments.steps, arguments.dimensions = x.shape
        arrays = (x, z, mean, held_mean, *window[:5], prior_chol, prior_precision)
        work = self._work(chol, 2 if has_basis else 1)
        for name, a in zip(_Take._arrays, (*arrays, work), strict=True):
            setattr(arguments, name, None if a is None else a.ctypes.data)
        results = []
        for to in (arguments.predicted, arguments.filtered):
            moments = Marginals(np.empty_like(z), np.empty(z.shape, x.dtype), np.empty_like(z))
            to.mean, to.variance, to.pseudo = (a.ctypes.data for a in moments)
            results.append(moments)
        if native.function(f"cgp_window_take_{chol.dtype.name}")(ctypes.byref(arguments)):
            return None
        predicted, filtered = results
        return Step(predicted, innovation(z, predicted.mean), filtered)

    def _mean_function(self, x: np.ndarray) -> np.ndarray:
        """The mean function at points `[B, N, D]`, complex, `[B, N]`."""
        points = tf.constant(x)
        zeros = tf.zeros(points.shape[:-1], complex_dtype(points.dtype))
        return self._recursion.process.plus_function(zeros, points).numpy()

    def _work(self, chol: np.ndarray, factors: int) -> np.ndarray:
        """Memory to work in, kept: twice the factors of each stream with one point more."""
        streams, rows, _ = chol.shape
        if self._memory is None or len(self._memory) < streams:
            rows += rows // self._recursion.capacity
            self._memory = np.empty((streams, 2 * factors, rows, rows), chol.dtype)
        return self._memory
