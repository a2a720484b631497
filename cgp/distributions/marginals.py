"""What predictions say of each point by itself, in whatever form they come."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cgp.distributions.complex_normal import ComplexNormal


class Marginals(NamedTuple):
    """The moments of each component by itself, NumPy arrays `[..., n]`."""

    mean: np.ndarray
    """Complex."""
    variance: np.ndarray
    """Real."""
    pseudo_variance: np.ndarray
    """Complex."""


class Step(NamedTuple):
    """What an online filter says of one sample, or, stacked over time, of a block of them."""

    predicted: Marginals
    """Of the observation, before it was seen."""
    innovation: np.ndarray
    """The observation less the mean predicted of it, complex; NaN where missing."""
    filtered: Marginals
    """Of the signal, after the observation was seen."""


def innovation(z: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """`z − mean`; NaN, in both parts, where z is."""
    nothing = complex(np.nan, np.nan) if np.iscomplexobj(z) else np.nan
    return np.where(np.isnan(z), np.asarray(nothing, np.asarray(z).dtype), z - mean)


def marginals(prediction) -> Marginals:
    """The moments of each point from any of the forms in which predictions come.

    Args:
        prediction: A `ComplexNormal`; a dict with keys mean, variance, pseudo_variance, as
            `predict` returns; or a named tuple with such fields, as in the result of `step`.

    Raises:
        TypeError: None of these, or moments whose dtype is not that of a complex signal.
        ValueError: Keys that are missing, or shapes that differ.

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
        prediction = prediction._asdict()
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
    moments = Marginals(*(np.asarray(prediction[name]) for name in Marginals._fields))
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
