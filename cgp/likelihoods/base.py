"""What a likelihood is: one function of the moments of the signal."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import tensorflow as tf


class Likelihood(ABC):
    """The density of an observation z given the signal g, elementwise, in noise of variance σ².

    Filters and processes approximate the posterior of g by a normal q, the one that comes nearest
    in the sense of variational inference. All they need is the expected log density, E_q log p(z |
    g), and its derivatives by the moments of q (see `cgp.likelihoods.sites`), so that a likelihood
    is one function. Numbers come in real coordinates, the first axis: one of a real signal, the
    real and the imaginary part of a complex one.

    A subclass is a frozen dataclass of numbers.
    """

    is_circular: ClassVar[bool] = False
    """Whether the density is one of |z − g|, so that a proper signal stays proper."""
    is_of_real: ClassVar[bool] = True
    """Whether a real signal has such observations."""
    step: ClassVar[float] = 0.7
    """How far the natural parameters of sites go to new ones in a turn: whole steps may swing."""
    is_for_processes: ClassVar[bool] = True
    """Whether all data of a Gaussian process may be such observations."""

    def check(self, z: np.ndarray) -> None:
        """Raises a ValueError for observations that cannot be; NaN is missing, and passes."""
        del z  # all can be

    @abstractmethod
    def expected_log_density(
        self, z: tf.Tensor, mean: tf.Tensor, covariance: tf.Tensor, variance: tf.Tensor
    ) -> tf.Tensor:
        """E log p(z | g), or a lower bound of it, for g normal, real, `[...]`.

        Args:
            z: Observations, real coordinates, `[d, ...]`, d being 1 or 2.
            mean: Of g, `[d, ...]`.
            covariance: Of g, `[d, d, ...]`.
            variance: σ² = E|n|² of the noise, of all coordinates together, `[...]`.
        """
