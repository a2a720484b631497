"""A stationary kernel of two length scales."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.base import Kernel
from cgp.kernels.data_scales import StartRules
from cgp.kernels.markov import MarkovForm, Pair, direct_sum
from cgp.kernels.matern import matern_form
from cgp.kernels.points import one_or_each, optional_number, per_dimension
from cgp.kernels.program import Code, Instructions, instruction, joined
from cgp.kernels.spectrum import Spectrum, matern, spectra_added
from cgp.kernels.stationary import psd_kernels
from cgp.kernels.terms import Term, Terms
from cgp.linalg.arguments import ArrayLike
from cgp.training.parameters import FRACTION, POSITIVE, Parameter


@keras.saving.register_keras_serializable(package="cgp.kernels")
class TwoScale(Kernel):
    """A Matérn-5/2 kernel of two length scales: a smooth signal with finer structure on it.

        variance · ((1 − share) m(r) + share m(r/ratio)),   m(r) = (1 + √5 r + 5r²/3) e^{−√5 r}

    with r = |(x1 − x2)/lengthscale|. The long scale carries the signal across gaps, where the short
    one alone would return to the mean, and the short one follows what the long one would smooth
    away. As the ratio is below one, the two never change places. It is Markov, of six states, where
    the length scale is one number.

    Args:
        variance: `E|z|²` of both together, positive; in squared units of z.
        lengthscale: The long one, in units of x, positive; one number, or one for each dimension.
        ratio: The short length scale over the long one, between 0 and 1.
        share: The part of the variance that is of the short scale, between 0 and 1.
        fixed: Names of parameters that training leaves alone.
        priors: TFP distributions of parameters, by name.
        name: A name for its parameters.
        dtype: "float64" or "float32".

    Raises:
        ValueError: Parameters outside their ranges.

    Example:
        >>> from cgp.kernels import TwoScale
        >>> kernel = TwoScale(2.0, lengthscale=3.0, ratio=0.2, share=0.25)
        >>> kernel.covariance([0.0], [0.0, 0.6, 3.0]).numpy().real.round(4)
        array([[2.    , 1.714 , 0.7864]])
    """

    is_real = True
    variance: Parameter
    lengthscale: Parameter
    ratio: Parameter
    share: Parameter

    def __init__(
        self,
        variance: ArrayLike | None = None,
        lengthscale: ArrayLike | None = None,
        ratio: ArrayLike | None = None,
        share: ArrayLike | None = None,
        *,
        fixed: str | Iterable[str] = (),
        priors: Mapping[str, Any] | None = None,
        name: str | None = None,
        dtype: str = "float64",
        **kwargs: Any,
    ):
        super().__init__(name=name, dtype=dtype, **kwargs)
        values = {
            "variance": (optional_number(variance, "variance"), POSITIVE),
            "lengthscale": one_or_each(lengthscale, "lengthscale", POSITIVE),
            "ratio": (optional_number(ratio, "ratio"), FRACTION),
            "share": (optional_number(share, "share"), FRACTION),
        }
        self.declare_parameters(values, fixed, priors)
        self.is_markov = lengthscale is None or np.ndim(lengthscale) == 0

    def _parts(self) -> tuple[tuple[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
        """Variance and length scale of either part, the long one first."""
        variance, share, long = self.variance.value, self.share.value, self.lengthscale.value
        return ((1.0 - share) * variance, long), (share * variance, self.ratio.value * long)

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """See `Kernel.start_of`: a fifth each, of the long scale and of the variance."""
        if name in ("ratio", "share"):
            return min(rules.scattered(0.2, 1.2), 0.9)
        return super().start_of(name, rules)

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """See `Kernel.moments`."""
        per_dimension(self.lengthscale, x1)  # may refuse x
        correlation, difference = psd_kernels().MaternFiveHalves(), x1 - x2
        parts = [
            variance * correlation.apply(difference / scale, tf.zeros_like(difference))
            for variance, scale in self._parts()
        ]
        return tf.add_n(parts), None

    def instructions(self) -> Instructions | None:
        """See `Kernel.instructions`."""
        parts = [(instruction(Code.MATERN52, *numbers),) for numbers in self._parts()]
        return joined(Code.SUM, parts)

    def markov_form(self) -> MarkovForm:
        """See `Kernel.markov_form`: those of both parts."""
        if not self.is_markov:
            return super().markov_form()
        return direct_sum(
            [matern_form(2, variance, math.sqrt(5.0) / scale) for variance, scale in self._parts()]
        )

    def markov_terms(self) -> Terms | None:
        """See `Kernel.markov_terms`."""
        if not self.is_markov:
            return None
        return tuple(Term(2, v, math.sqrt(5.0) / scale) for v, scale in self._parts())

    def spectrum(self) -> Spectrum:
        """The spectrum, the sum of the spectra of both Matérn terms."""
        if not self.is_markov:
            return super().spectrum()
        return spectra_added([matern(float(v), float(scale), 2.5) for v, scale in self._parts()])

    def check_points(self, x: tf.Tensor) -> None:
        """See `Kernel.check_points`."""
        per_dimension(self.lengthscale, x)
