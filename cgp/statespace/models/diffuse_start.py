"""Diffuse initialisation: an unknown initial state, approximated by a prior of large variance."""

from typing import Any

import numpy as np
import tensorflow as tf

# The prior variance must exceed the variance of data and noise by this factor.
_WIDER = 1e4


def diffuse_variance(dtype: tf.DType) -> float:
    """The variance used as infinite: large, yet noise is not lost to rounding in the filter."""
    return 1e10 if dtype.real_dtype == tf.float64 else 1e6


def check_diffuse(model: Any, z: np.ndarray) -> None:
    """Checks that a diffuse prior is wide compared with the data, and does not swamp the noise.

    Args:
        model: A `LinearGaussian` with a diffuse initial state, in eager mode.
        z: Observations `[..., T, m]`, zero where missing. Only the first 2n are checked, enough
            to determine the state: later ones may be of any size.
    """
    variance, n = diffuse_variance(model.dtype), model.state_size
    H, R, Q = (np.asarray(a) for a in (model.H, model.R, model.Q))
    m = model.observation_size
    reach = np.sum(np.abs(H) ** 2, axis=-1) / model.form.multiplicity
    noise = np.abs(np.diagonal(R, axis1=-2, axis2=-1))
    if model.observation_form.multiplicity > 1:  # real and imaginary parts
        reach, noise = (a[..., :m] + a[..., m:] for a in (reach, noise))
    first = z[..., : 2 * n, :]
    largest = np.max(np.abs(first) ** 2, axis=tuple(range(first.ndim - 1)))
    is_measured = reach > 0
    if np.any(is_measured & (variance * reach < _WIDER * noise)) or np.any(
        np.any(is_measured, axis=tuple(range(is_measured.ndim - 1)))
        & (variance * np.max(reach, axis=tuple(range(reach.ndim - 1))) < _WIDER * largest)
    ):
        raise ValueError(
            f'initial_covariance="diffuse" stands for a variance of {variance:g} of the state, '
            f"which is not wide beside noise of {np.max(noise):.3g} or data of "
            f"{np.sqrt(np.max(largest)):.3g}: take other units, or give a matrix"
        )
    spreads = np.concatenate([np.ravel(np.diagonal(a, axis1=-2, axis2=-1).real) for a in (Q, R)])
    spreads = np.sqrt(spreads[spreads > 0])
    eps = np.finfo(model.dtype.real_dtype.as_numpy_dtype).eps
    if spreads.size and 4.0 * eps * np.sqrt(variance) > np.min(spreads):
        raise ValueError(
            f'initial_covariance="diffuse" stands for a variance of {variance:g} of the state, '
            f"beside which noise of standard deviation {np.min(spreads):.3g} is lost to rounding: "
            "take other units, or give a matrix"
        )
