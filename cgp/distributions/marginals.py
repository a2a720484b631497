"""Marginal moments of predictions, from any of the forms in which cgp returns predictions."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self, TypeAlias, cast

import numpy as np

from cgp.distributions.complex_normal import ComplexNormal
from cgp.linalg.arguments import as_numbers


class Marginals(NamedTuple):
    """The marginal moments of each component, NumPy arrays `[..., n]`."""

    mean: np.ndarray
    """The mean, complex."""
    variance: np.ndarray
    """The variance `E|z−m|²`, real."""
    pseudo_variance: np.ndarray
    """The pseudo-variance `E[(z−m)²]`, complex."""

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> Self:
        """The result of a function of each array, such as the choice of one stream."""
        return type(self)(*(function(a) for a in self))


class Step(NamedTuple):
    """The result of an online filter for a sample, or, stacked over time, for a block."""

    predicted: Marginals
    """The one-step prediction of the observation, noise included."""
    innovation: np.ndarray
    """The observation minus its predicted mean, complex; NaN where missing."""
    filtered: Marginals
    """The posterior of the latent signal given the observations so far, this one included."""

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> Self:
        """The result of a function of each array, those of both distributions included."""
        predicted, filtered = self.predicted.map(function), self.filtered.map(function)
        return type(self)(predicted, function(self.innovation), filtered)


def innovation(z: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """The innovation `z − mean`; NaN in both parts where z is NaN."""
    deviation = np.asarray(z - mean)
    missing = np.isnan(z)
    if missing.any():
        deviation[missing] = complex(np.nan, np.nan) if np.iscomplexobj(z) else np.nan
    return deviation


Prediction: TypeAlias = ComplexNormal | Mapping[str, Any] | tuple[Any, ...]
"""A `ComplexNormal`, a dict of moments as from `predict`, or a named tuple of moments."""


def marginals(prediction: Prediction) -> Marginals:
    """The marginal moments of a prediction in any of its forms.

    Args:
        prediction: A `ComplexNormal`; a dict with keys mean, variance, pseudo_variance, as
            `predict` returns; or a named tuple with such fields, as in the result of `step`.

    Returns:
        `Marginals(mean, variance, pseudo_variance)`.

    Raises:
        TypeError: None of these, a real mean, or a complex variance.
        ValueError: Keys that are missing, masked elements, or shapes that differ.

    Example:
        >>> import numpy as np
        >>> import cgp
        >>> from cgp.distributions import marginals
        >>> normal = cgp.ComplexNormal(np.array([1.0j]), np.array([[2.0 + 0j]]))
        >>> marginals(normal).variance
        array([4.])
    """
    if isinstance(prediction, ComplexNormal):
        return Marginals(*(np.asarray(getattr(prediction, name)()) for name in Marginals._fields))
    if hasattr(prediction, "_asdict"):
        prediction = cast("NamedTuple", prediction)._asdict()
    if not isinstance(prediction, Mapping):
        raise TypeError(
            "a prediction must be a ComplexNormal, or a dict with keys mean, variance and "
            f"pseudo_variance, got {type(prediction).__name__}"
        )
    missing = [name for name in Marginals._fields if name not in prediction]
    if missing:
        raise ValueError(
            f"the prediction has no {', '.join(missing)}; it has {', '.join(prediction)}"
        )
    moments = Marginals(
        *(
            np.asarray(as_numbers(prediction[name], f"the {name} of a prediction"))
            for name in Marginals._fields
        )
    )
    if not np.iscomplexobj(moments.mean):
        raise TypeError(f"the mean of a prediction must be complex, got {moments.mean.dtype}")
    if np.iscomplexobj(moments.variance):
        raise TypeError(f"a variance must be real, got {moments.variance.dtype}")
    if not moments.mean.shape == moments.variance.shape == moments.pseudo_variance.shape:
        raise ValueError(
            "mean, variance and pseudo_variance of a prediction must have one shape, got "
            f"{', '.join(str(moment.shape) for moment in moments)}"
        )
    return moments
