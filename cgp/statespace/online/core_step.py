"""The step of a linear model by the compiled core, of any batch of streams, called eagerly."""

import math
import threading
import weakref

import numpy as np

from cgp import native
from cgp.statespace.engines.filter_step import leaves_no_exact_observation
from cgp.statespace.models.linear_gaussian import LinearGaussian, with_time
from cgp.statespace.native_step import (
    CompiledStep,
    StepMoments,
    correlated_noise_of,
    step_matrices,
)


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
    ) -> StepMoments | None:
        """Takes an observation of each stream, `[B, M]`, and replaces their states in place."""
        with self._mutex:
            if len(z) not in self._steps:
                self._steps[len(z)] = CompiledStep(self.matrices, len(z), self._is_composite)
            step = self._steps[len(z)]
            step.set(**matrices, drift=drift)
            try:
                return step(z, mean, chol)
            finally:
                step.set(**{name: getattr(self.matrices, name) for name in matrices})


_core_steps: weakref.WeakKeyDictionary[LinearGaussian, CoreStep] = weakref.WeakKeyDictionary()


def moments_by_core(
    model: LinearGaussian,
    mean: np.ndarray,
    chol: np.ndarray,
    z: np.ndarray,
    inputs: np.ndarray | None,
    matrices: dict[str, np.ndarray],
) -> tuple[np.ndarray, np.ndarray, StepMoments | None] | None:
    """A step of streams of a model; None where the core cannot take it.

    Args:
        model: The model, without an axis of time.
        mean: The mean of the state, working values, `[..., n]`.
        chol: The Cholesky factor of its covariance, `[..., n, n]`.
        z: The observations, `[..., M]`; NaN where missing.
        inputs: Known inputs, working values, `[..., k]`.
        matrices: Matrices of this step, `[..., rows, columns]`, by the names of `StepMatrices`.

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
    batch = np.broadcast_shapes(core.batch, *(a.shape[: a.ndim - rank] for a, rank in arrays))
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
    )

    def batch_first(a: np.ndarray) -> np.ndarray:
        return a.reshape(*batch, *a.shape[1:])

    next_mean, next_chol = (batch_first(np.moveaxis(a, -1, 0)) for a in (next_mean, next_chol))
    return next_mean, next_chol, None if moments is None else moments.map(batch_first)
