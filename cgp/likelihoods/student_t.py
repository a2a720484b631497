"""Student's t: noise with outliers."""

import dataclasses
import math
import numbers
from typing import Any, ClassVar

import tensorflow as tf

from cgp.likelihoods.base import LEAST, Moments, Site, trace
from cgp.likelihoods.variational import Variational


@dataclasses.dataclass(frozen=True)
class StudentT(Variational):
    """A signal in noise of Student's t distribution, for data with outliers.

    The noise is normal of variance σ²/w, with σ² the noise variance of the model and w of mean 1
    from a gamma distribution, drawn for each sample: the fewer the degrees of freedom the more
    often it is large. For a complex signal it is the circular complex t (Ollila, Tyler, Koivunen &
    Poor, IEEE Trans. Signal Process. 60, 2012). σ² is then the scale of the noise: the variance of
    samples that are no outliers is a little larger, for all samples it is σ² ν / (ν − 2).

    The expected log density is replaced by Jensen's bound, as −log t is concave in |z − g|². The
    approximation is then the variational one of the weights w (Tipping & Lawrence, Neurocomputing
    69, 2005): a sample counts as one with normal noise of variance σ²/w̃, where
    w̃ = (ν + d) / (ν + d E|z − g|²/σ²), d being 2 for complex and 1 for real.

    Args:
        degrees_of_freedom: ν, positive. 4 is a choice for few outliers; 1 is Cauchy's distribution.

    Raises:
        ValueError: Degrees of freedom that are not positive and finite.

    Example:
        >>> import numpy as np, cgp
        >>> t = np.linspace(0.0, 4.0, 9)
        >>> z = np.exp(1j * np.pi * t)
        >>> z[4] += 10.0
        >>> kernel = cgp.kernels.RBF(1.0, 1.0) * cgp.kernels.Rotation(0.5)
        >>> gp = cgp.ExactGP(kernel, 1e-4, likelihood=cgp.likelihoods.StudentT(4.0))
        >>> gp.condition(t, z)
        >>> bool(abs(gp.predict([2.0])["mean"][0] - 1.0) < 0.1)
        True
    """

    degrees_of_freedom: float = 4.0
    is_circular: ClassVar[bool] = True

    def __post_init__(self) -> None:
        nu: Any = self.degrees_of_freedom
        is_number = isinstance(nu, numbers.Real) and not isinstance(nu, bool)
        if not is_number or not 0.0 < nu < math.inf:
            raise ValueError(f"degrees_of_freedom must be positive and finite, got {nu!r}")

    def step(self, turn: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """A whole step: that is expectation maximisation, which increases the likelihood."""
        return tf.ones_like(turn, dtype)

    def site(self, z: tf.Tensor, q: Moments, last: Site, variance: tf.Tensor) -> Site:
        """The site of the weight w̃, which is the observation in noise of variance σ²/w̃.

        It has the derivatives of the expected log density, as for any `Variational`: automatic
        differentiation takes five times as many operations.
        """
        del last
        d = z.shape[0]
        square = trace(q.covariance) + tf.add_n(tf.unstack(tf.square(z - q.mean)))
        # (ν + d) / (ν + d E|z − g|²/σ²) times the precision d/σ² of the noise
        precision = (self.degrees_of_freedom + d) / (
            self.degrees_of_freedom * variance / d + square
        )
        raised = tf.maximum(precision, LEAST * d / trace(q.covariance))
        eye = tf.eye(d, dtype=z.dtype)[(..., *[None] * precision.shape.rank)]
        # z itself where nothing is raised, to the last bit: turns end
        return Site(z + (1.0 - precision / raised) * (q.mean - z), raised * eye)

    def expected_log_density(
        self, z: tf.Tensor, mean: tf.Tensor, covariance: tf.Tensor, variance: tf.Tensor
    ) -> tf.Tensor:
        """Jensen's bound of the expected log density of Student's t."""
        from scipy.special import poch  # here: importing it takes long

        d = z.shape[0]
        half = 0.5 * self.degrees_of_freedom
        of_each = variance / d
        square = trace(covariance) + tf.add_n(tf.unstack(tf.square(z - mean)))
        # For many degrees of freedom log Γ(ν/2 + d/2) − log Γ(ν/2) − (d/2) log(ν/2) is a difference
        # of large numbers; SciPy's ratio avoids it.
        constant = math.log(poch(half, 0.5 * d)) - 0.5 * d * math.log(half)
        constant -= 0.5 * d * tf.math.log(2.0 * math.pi * of_each)
        return constant - (half + 0.5 * d) * tf.math.log1p(0.5 * square / (of_each * half))
