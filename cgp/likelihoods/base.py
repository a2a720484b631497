"""What a likelihood is: how an observation becomes a normal one of the signal."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import tensorflow as tf

from cgp.likelihoods.sites import Moments, Site


class Likelihood(ABC):
    """The density of an observation z given the signal g, elementwise, in noise of variance σ².

    Filters and processes approximate the posterior of g by a normal one q, in which each
    observation is replaced by its *site*, a normal observation of g (`cgp.likelihoods.sites`). How
    a site is found is told by `Variational` and by `MomentMatched`; a likelihood is one of both,
    and one function. Numbers come in real coordinates, the first axis: one of a real signal, the
    real and the imaginary part of a complex one.

    A subclass is a frozen dataclass of numbers.
    """

    is_circular: ClassVar[bool] = False
    """Whether the density is one of |z − g|, so that a proper signal stays proper."""
    is_of_real: ClassVar[bool] = True
    """Whether a real signal has such observations."""
    is_of_parts: ClassVar[bool] = False
    """Whether real and imaginary part are observations with a site each."""
    is_for_processes: ClassVar[bool] = True
    """Whether all data of a Gaussian process may be such observations."""

    def check(self, z: np.ndarray) -> None:
        """Raises a ValueError for observations that are impossible; NaN is missing, and passes."""
        del z  # all can be

    def step(self, turn: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """The step of natural parameters towards new sites, in an iteration counted from zero.

        Whole steps may swing, the more the smaller the noise; steps that fall end that.
        """
        return 0.7 / (1.0 + tf.cast(turn, dtype) / 30.0)

    @abstractmethod
    def site(self, z: tf.Tensor, q: Moments, last: Site, variance: tf.Tensor) -> Site:
        """The site of an observation.

        Args:
            z: Real coordinates, `[d, ...]`, d being 1 or 2.
            q: The moments of g given all sites.
            last: The site that q contains.
            variance: σ² = E|n|² of the noise, of all coordinates together, `[...]`.
        """

    @abstractmethod
    def correction(self, z: tf.Tensor, q: Moments, site: Site, variance: tf.Tensor) -> tf.Tensor:
        """The log likelihood of the observation minus that of its site, `[...]`.

        Args:
            z: Real coordinates, `[d, ...]`.
            q: The moments of g given all sites.
            site: That of the observation.
            variance: Of the noise, `[...]`.
        """
