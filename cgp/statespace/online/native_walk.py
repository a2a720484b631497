"""Samples of many online filters in any order, by a plain C function, where the core is active.

It takes each sample, in order, into the state of its own filter: the step of
`cgp.statespace.online.native_step`, with the same result to the last bit.
"""

import ctypes
from collections.abc import Mapping

import numpy as np

from cgp import native
from cgp.distributions.marginals import Marginals
from cgp.statespace.online.native_step import MatrixArray


class _Walk(ctypes.Structure):  # as online_step.cpp declares it
    _sizes = ("n", "q", "m", "samples", "predicts_first", "is_composite")
    _matrices = ("F", "Q_factor", "H", "R", "drift")
    _fields_ = [
        *((name, ctypes.c_int64) for name in _sizes),
        *((name, MatrixArray) for name in _matrices),
        *((name, ctypes.c_void_p) for name in ("z", "slot", "mean", "chol")),
        *((name, native.MomentArrays) for name in ("predicted", "filtered")),
        ("refused", ctypes.c_int64),
    ]


class CompiledWalk:
    """Steps of many filters, sample after sample.

    Args:
        is_composite: Whether real working values are those of the composite of complex ones.
        predicts_first: As for `CompiledStep`.
    """

    def __init__(self, is_composite: bool, predicts_first: bool):
        self._is_composite, self._predicts_first = is_composite, predicts_first

    def __call__(
        self,
        matrices: Mapping[str, np.ndarray],
        z: np.ndarray,
        slots: np.ndarray,
        mean: np.ndarray,
        chol: np.ndarray,
    ) -> tuple[Marginals, Marginals] | int:
        """Takes samples in their order, and changes the states.

        Args:
            matrices: By name the transition F, `[n, n]`; `Q_factor`, G with `G Gᴴ` the covariance
                of the process noise, `[n, q]`; the observation matrix H, `[m, n]`; the covariance R
                of the observation noise, `[m, m]`; and `drift`, what is added to the state, `[n]`,
                zero if left out. Or one of each sample, with a first axis of B.
            z: Observations, `[B, M]`; NaN where missing.
            slots: Of each sample the row of its state, int64, `[B]`.
            mean: The means of all states, working values, `[S, n]`, contiguous; changed in place.
            chol: The factors of their covariances, `[S, n, n]`, contiguous; changed in place.

        Returns:
            The moments of the observations before they were seen, and of the signals or states
            after, `[B, k]`. Or, where a state or moment would not be finite, the number of that
            sample; samples before it have been taken in.
        """
        (m, n), dtype = matrices["H"].shape[-2:], chol.dtype
        if self._is_composite:
            z = np.concatenate([z.real, z.imag], axis=-1)
        matrices = {"drift": np.zeros(n, dtype), **matrices}
        arrays = {name: np.ascontiguousarray(a, dtype) for name, a in matrices.items()}
        z, slots = np.ascontiguousarray(z), np.ascontiguousarray(slots)
        q = arrays["Q_factor"].shape[-1]
        given = _Walk(n, q, m, len(z), self._predicts_first, self._is_composite)
        for name, a in arrays.items():
            rank = 1 if name == "drift" else 2
            setattr(given, name, MatrixArray(a.ctypes.data, len(a) if a.ndim > rank else 1))
        for name, a in (("z", z), ("slot", slots), ("mean", mean), ("chol", chol)):
            setattr(given, name, a.ctypes.data)
        predicted = self._moments(given.predicted, dtype, len(z), m)
        filtered = self._moments(given.filtered, dtype, len(z), m if self._predicts_first else n)
        outcome = native.function(f"cgp_online_walk_{dtype.name}")(ctypes.byref(given))
        if outcome == 1:
            return int(given.refused)
        if outcome:
            raise MemoryError("the steps of online filters need more memory than there is")
        return predicted, filtered

    def _moments(self, to: native.MomentArrays, dtype: np.dtype, samples: int, k: int) -> Marginals:
        """Arrays `[B, k]` for moments of k working components; the core is told where they are."""
        real = np.zeros(0, dtype).real.dtype
        shape = (samples, k // 2 if self._is_composite else k)
        is_complex = dtype.kind == "c" or self._is_composite
        of_mean = np.result_type(real, np.complex64) if is_complex else real
        mean, variance = np.empty(shape, of_mean), np.empty(shape, real)
        # E(x − m)² of a real number is its variance; of a proper one it is zero.
        pseudo = np.zeros(shape, of_mean) if is_complex else variance
        to.mean, to.variance, to.pseudo = (a.ctypes.data for a in (mean, variance, pseudo))
        return Marginals(mean, variance, pseudo)
