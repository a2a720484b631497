"""The methods by which a `StateSpaceGP` takes samples one at a time."""

from typing import Any

import numpy as np

from cgp.distributions.marginals import Step
from cgp.gp.data import Data
from cgp.gp.noise import NoiseArguments
from cgp.gp.stream_samples import as_block, one_sample
from cgp.kernels.points import as_array
from cgp.linalg.arguments import ArrayLike
from cgp.statespace.online.stream_samples import StateArrays

_TOGETHER = "all series of a StateSpaceGP go on together, over a line"

# To mypy, a class whose attributes are all known to exist; in truth the model comes after it.
_Base: Any = object


class Online(_Base):
    """A mixin before a Gaussian process that has a `History`."""

    def step(
        self,
        x: ArrayLike,
        z: ArrayLike,
        missing: ArrayLike | None = None,
        *,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
    ) -> Step:
        """Predicts a sample, then updates the state with it, at constant cost.

        Args:
            x: Its place, a number, not before that of the sample before.
            z: The observation, a complex number, or `[B]` of B series; NaN where missing.
            missing: Bool, or `[B]`: True where missing.
            noise_variance: The known part of the noise of the observation, a number or `[B]`; as
                for `condition`.
            noise_groups: The group of the observation, a number or `[B]`; as for `condition`.

        Returns:
            `Step(predicted, innovation, filtered)` of NumPy numbers, or arrays `[B]`: `predicted`
            is the one-step prediction of z with its own noise, `innovation` z minus its predicted
            mean, `filtered` the signal at x after the update.

        Raises:
            TypeError: A real observation, a complex x, another precision.
            ValueError: A step back, shapes other than those of the data, an x that is not finite,
                an infinite observation. The state is then unchanged.
        """
        place = as_array(x, "x")
        if np.size(place) > 1:
            raise ValueError(f"x must be one number, got shape {place.shape}: {_TOGETHER}")
        self._check_normal("step")
        noise = NoiseArguments(noise_variance, noise_groups, self._group_count)
        sample = one_sample(place, z, missing, self.variable_dtype, self._recent, noise)
        place = self._admitted(sample)[0]
        stream = self._history.stream_at(place, tuple(sample.batch.tolist()))
        found = stream.step(place, sample.z[:, 0], sample.noise)
        self._history.after_samples(stream)
        return found.map(lambda a: a[0]) if sample.is_single else found

    def process(
        self,
        x: ArrayLike,
        z: ArrayLike,
        missing: ArrayLike | None = None,
        *,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
    ) -> Step:
        """Filters a block of samples: `step` for each, in one compiled loop.

        Args:
            x: Their places `[T]`, in order, the first not before that of the sample before.
            z: Observations, complex, `[T]`, or `[B, T]` of B series; NaN where missing.
            missing: Bool, broadcast against z: True where missing.
            noise_variance: The known part of the noise, broadcast against z; as for `condition`.
            noise_groups: The group of each observation, broadcast against z; as for `condition`.

        Returns:
            As `step`, stacked over time: arrays `[T]` or `[B, T]`.

        Raises:
            TypeError, ValueError: As for `step`. The state is then unchanged.
        """
        self._check_normal("process")
        shape = as_array(x, "x").shape
        if shape not in (shape[:1], (*shape[:1], 1)):
            raise ValueError(f"x must be [T], got shape {shape}: {_TOGETHER}")
        noise = NoiseArguments(noise_variance, noise_groups, self._group_count)
        block = as_block(x, z, missing, self.variable_dtype, recent=self._recent, noise=noise)
        places = self._admitted(block)
        stream = self._history.stream_at(places[0], tuple(block.batch.tolist()))
        found = stream.process(places, block.z, block.noise)
        self._history.after_samples(stream)
        return found.map(lambda a: a[0]) if block.is_single else found

    @property
    def state(self) -> StateArrays:
        """The state of the process at the last sample, given all of them: `(mean, chol)`, NumPy.

        `[n]` and `[n, n]`, or of B series `[B, n]` and `[B, n, n]`, in the coordinates of
        `kernel.markov_form()`; of an improper process the mean is complex and the factor that of
        the real composite, `[..., 2n, 2n]`.

        Raises:
            ValueError: No data yet.
        """
        state = self._history.last_state()
        if state is None:
            raise ValueError("there is no state yet: take data or a sample in first")
        found = StateArrays(self.form.join(state.mean).numpy(), state.chol.numpy())
        return StateArrays(*(a[0] for a in found)) if self._stored.data.is_single else found

    def _check_normal(self, what: str) -> None:
        """Raises for what is of data in normal noise alone."""
        if self._sites.are_needed:
            raise ValueError(
                f"{what} is of data in normal noise, and the likelihood is {self.likelihood!r}: "
                "cgp.statespace.step takes it, and RecursiveGP.step takes a StudentT"
            )

    def _admitted(self, samples: Data) -> np.ndarray:
        """The places `[T]` of samples, in order; an error if these do not fit those before."""
        places = samples.x[0, :, 0]
        if np.any(np.diff(places) < 0.0):
            raise ValueError("x must not go back: the places of a block must be in order")
        self._history.check_samples(places, tuple(samples.batch.tolist()))
        return places
