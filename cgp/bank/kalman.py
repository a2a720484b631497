"""The states of a bank of a `KalmanFilter`."""

from typing import Any, cast

import numpy as np

from cgp import native
from cgp.bank.checks import of_samples
from cgp.bank.rounds import WIDTH, empty_step, in_rounds
from cgp.bank.states import Fields, Refused, Rows, of_parts, with_parts
from cgp.distributions.marginals import Step, innovation
from cgp.layers import KalmanFilter
from cgp.observations import as_observations
from cgp.statespace import LinearGaussian
from cgp.statespace.engines.decorrelation import leaves_no_exact_observation
from cgp.statespace.linearization.linearized_model import noise_of
from cgp.statespace.models.diffuse_start import check_diffuse
from cgp.statespace.online.native_step import NOT_FINITE, step_matrices
from cgp.statespace.online.native_walk import CompiledWalk
from cgp.statespace.online.online_step import step
from cgp.statespace.online.stream_samples import StateArrays


class KalmanStates:
    """States predicted for the next observation, each of its own stream.

    They go on with the present matrices, whatever those were before, as those of
    `KalmanFilter.step`.

    Args:
        layer: The filter.

    Raises:
        ValueError: A model that varies over time, a batch of models, or one with inputs.
    """

    dimensions = 0

    def __init__(self, layer: KalmanFilter):
        self._layer = layer
        model = noise_of(layer.model)
        if model.steps is not None or model.batch_shape.rank or model.B is not None:
            found = "inputs" if model.B is not None else "matrices of each time or series"
            raise ValueError(f"a Bank is of one model for all samples of all keys, got {found}")
        # The core does not tell an exact observation that contradicts the state.
        self._is_for_core = isinstance(layer.model, LinearGaussian) and layer.likelihood is None
        self._is_for_core &= leaves_no_exact_observation(model.R)
        self._noise, self._composite = model, model.form.multiplicity > 1
        self.shape = (model.observation_size,)
        self._dtype = np.dtype(model.dtype.as_numpy_dtype)
        self._walk: tuple[CompiledWalk, np.ndarray, np.ndarray] | None = None
        self._matrices = b""  # the values of the weights that it belongs to

    def fields(self, dimensions: int) -> Fields:
        """See `States.fields`."""
        n = self._noise.F.shape[-1]
        return {"mean": ((n,), self._dtype), "chol": ((n, n), self._dtype)}

    def structure(self) -> dict[str, Any]:
        """See `States.structure`."""
        model = self._noise
        sizes = {"states": model.state_size, "observations": model.observation_size}
        return {**sizes, "form": "widely linear" if self._composite else "linear"}

    def values(self) -> bytes:
        """See `States.values`."""
        return b""

    def checked(self, z: Any, x: np.ndarray | None) -> np.ndarray:
        """See `States.checked`."""
        z = np.asarray(as_observations(z, None, self._noise.series_dtype, promote=True))
        z = z.reshape(len(z), *self.shape)
        if self._layer.likelihood is not None:
            self._layer.likelihood.check(z)
        return z

    def begin(self, rows: Rows, slots: np.ndarray, z: np.ndarray, x: np.ndarray | None) -> None:
        """See `States.begin`."""
        model = noise_of(self._layer.model)
        if model.initial == "diffuse":
            first = np.nan_to_num(z[:, None])
            of_samples(lambda part: check_diffuse(model, first[part]), len(first))
        rows["mean"][slots], rows["chol"][slots] = map(
            np.asarray, (model.initial_mean, model.initial_chol)
        )

    def take(self, rows: Rows, slots: np.ndarray, z: np.ndarray, x: np.ndarray | None) -> Step:
        """See `States.take`."""
        if native.core().ops and self._is_for_core:
            walk, F, Q_factor = self._compiled()
            found = walk(F, Q_factor, z, slots, rows["mean"], rows["chol"])
            if isinstance(found, int):
                raise Refused(found, NOT_FINITE)
            return Step(found[0], innovation(z, found[0].mean), found[1])
        model = self._noise
        to = empty_step(z, np.empty((len(z), model.state_size), model.state_dtype.as_numpy_dtype))
        return in_rounds(self._step, rows, slots, z, None, to, width=WIDTH, fill=True)

    def _compiled(self) -> tuple[CompiledWalk, np.ndarray, np.ndarray]:
        """The steps of the present matrices, and the transition."""
        matrices = self._layer.learned_model.snapshot()
        if self._walk is None or matrices != self._matrices:
            model = cast("LinearGaussian", self._layer.model)  # others do not come here
            F, Q_factor, H, R = (a[..., 0] for a in step_matrices(model))
            self._walk = CompiledWalk(H, R, self._composite, predicts_first=False), F, Q_factor
            self._matrices = matrices
        return self._walk

    def _step(self, states: Rows, z: np.ndarray, x: np.ndarray | None) -> tuple[Rows, Step]:
        layer, state = self._layer, self.shown(states)
        after, found = step(layer.model, state, z, rule=layer.rule, likelihood=layer.likelihood)
        assert isinstance(found, Step)  # not of InteractingModels
        return self.working(after), found

    def renew(self, rows: Rows, slots: np.ndarray) -> None:
        """See `States.renew`."""

    def shown(self, rows: Rows) -> StateArrays:
        """See `States.shown`: as `KalmanFilter.state`."""
        mean = rows["mean"]
        return StateArrays(of_parts(mean) if self._composite else mean, rows["chol"])

    def working(self, state: tuple[np.ndarray, ...]) -> Rows:
        """See `States.working`."""
        mean, chol = state
        return {"mean": with_parts(mean) if self._composite else mean, "chol": chol}

    def completed(self, rows: Rows) -> Rows:
        """See `States.completed`."""
        return rows
