"""Models that are linear given the path of a part of their state."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from cgp.linalg.arguments import ArrayLike, check_finite
from cgp.statespace.models.linear_gaussian import LinearGaussian, check_model, check_uncorrelated
from cgp.statespace.models.model_base import FactoredCovariance, KeepsGraphs, of_one_dtype

REPLACED = ("F", "Q", "H", "R")


class ConditionallyLinear(KeepsGraphs):
    """A model of two parts of a state: u, and v, which is linear and Gaussian given the path of u.

        u[t+1] = g(u[t]) + e[t],          e[t] ~ N(0, Q)
        v[t+1] = F(u[t]) v[t] + w[t],     w[t] ~ N(0, Q(u[t]))
        z[t]   = H(u[t]) v[t] + n[t],     n[t] ~ N(0, R(u[t]))

    `cgp.statespace.particle_filter` draws particles of u alone, and runs a Kalman filter of v for
    each: fewer particles are needed than for both parts together. An amplitude that fades, on a
    carrier whose phase walks, is such a model: v is the amplitude, and `H(u) = exp(iu)`.

    Args:
        linear: The model of v: the matrices that do not depend on u, the initial moments, and B
            for known inputs. Matrices that depend on u need the right size here, and are not used.
        matrices: A function of u, `[..., k]`, that returns a dictionary of the matrices among F, Q,
            H and R that depend on it, each `[..., rows, columns]` in the dtype of `linear`; for a
            widely linear model, matrices of the real composite. A function of TensorFlow, for any
            batch axes.
        transition: g, of `[..., k]`, likewise.
        Q: The covariance of e, `[k, k]`; may be singular.
        initial_mean: The mean of u at the first observation, `[k]`; u is complex, and its noise
            proper, if this or a covariance is.
        initial_covariance: Its covariance, `[k, k]`.

    Attributes:
        linear, matrices, transition: As given.
        initial_mean: The initial mean of u, a tensor.
        Q, initial_covariance: The covariances with their factors, `FactoredCovariance`.

    Raises:
        TypeError: Not a `LinearGaussian`, not functions, not numbers; a function that returns
            another dtype than it should.
        ValueError: Shapes that do not fit; matrices of other names; values that are not finite.
        NotPositiveDefiniteError: A covariance that is indefinite.

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> from cgp import statespace
        >>> fading = statespace.LinearGaussian([[0.99 + 0j]], [[0.02]], [[1.0]], [[0.1]])
        >>> model = statespace.ConditionallyLinear(
        ...     fading,
        ...     lambda u: {"H": tf.complex(tf.cos(u), tf.sin(u))[..., None]},
        ...     lambda u: u,
        ...     Q=[[0.01]], initial_mean=[0.0], initial_covariance=[[0.01]],
        ... )
        >>> z = np.exp(0.05j * np.arange(50))
        >>> found = statespace.particle_filter(model, z, particles=200, seed=1)
        >>> found.filtered_means.shape, found.nonlinear_means.shape
        (TensorShape([50, 1]), TensorShape([50, 1]))
    """

    linear: LinearGaussian
    matrices: Callable[[tf.Tensor], Mapping[str, Any]]
    transition: Callable[[tf.Tensor], Any]
    initial_mean: tf.Tensor
    Q: FactoredCovariance
    initial_covariance: FactoredCovariance

    def __init__(
        self,
        linear: LinearGaussian,
        matrices: Callable[[tf.Tensor], Mapping[str, Any]],
        transition: Callable[[tf.Tensor], Any],
        Q: ArrayLike,
        initial_mean: ArrayLike,
        initial_covariance: ArrayLike,
    ):
        check_model(linear)
        check_uncorrelated(linear, "a ConditionallyLinear model")
        for name, function in (("matrices", matrices), ("transition", transition)):
            if not callable(function):
                raise TypeError(f"{name} must be a function, got {type(function).__name__}")
        moments = {"Q": Q, "initial_mean": initial_mean, "initial_covariance": initial_covariance}
        tensors = of_one_dtype(moments)
        mean = tensors["initial_mean"]
        if mean.dtype.real_dtype != linear.dtype.real_dtype:
            raise TypeError(
                f"u must be of the precision of linear, {linear.dtype.name}, got {mean.dtype.name}"
            )
        if mean.shape.rank != 1 or mean.shape[0] in (0, None):
            raise ValueError(f"initial_mean must be [k], got shape {mean.shape}")
        k = mean.shape[0]
        for name in ("Q", "initial_covariance"):
            if tensors[name].shape != [k, k]:
                raise ValueError(f"{name} must be [{k}, {k}], got shape {tensors[name].shape}")
        if tf.executing_eagerly():
            for name, a in tensors.items():
                check_finite(a, name)
        covariances = {
            name: FactoredCovariance.checked(tensors[name], name)
            for name in ("Q", "initial_covariance")
        }
        self._settle(linear=linear, matrices=matrices, transition=transition, _kept={})
        self._settle(initial_mean=mean, **covariances)
        points = mean[None, None]
        self.moved(points)
        at_start = self.matrices_at(points)
        for name in ("Q", "R"):
            if name in at_start:
                FactoredCovariance.checked(at_start[name], f"{name} of u at initial_mean")

    def moved(self, u: tf.Tensor) -> tf.Tensor:
        """The values g(u) of particles, `[B, N, k]`, checked."""
        following = tf.convert_to_tensor(self.transition(u))
        if following.dtype != u.dtype:
            raise TypeError(
                f"transition must return {u.dtype.name}, as u is, got {following.dtype.name}"
            )
        if following.shape.rank != 3 or following.shape[-1] != u.shape[-1]:
            raise ValueError(
                f"transition must return [..., {u.shape[-1]}], but for {u.shape} it returned "
                f"shape {following.shape}"
            )
        return following

    def matrices_at(self, u: tf.Tensor) -> dict[str, tf.Tensor]:
        """The matrices that depend on u, of particles, `[B, N, rows, columns]`, checked."""
        matrices, linear = self.matrices(u), self.linear
        if not isinstance(matrices, Mapping):
            raise TypeError(f"matrices must return a dictionary, got {type(matrices).__name__}")
        unknown = sorted(set(matrices) - set(REPLACED))
        if unknown:
            raise ValueError(
                f"matrices may return F, Q, H and R, but returned {', '.join(unknown)}"
            )
        tensors = {name: tf.convert_to_tensor(a) for name, a in matrices.items()}
        for name, a in tensors.items():
            axes = getattr(linear, name).shape[-2:]
            if a.dtype != linear.dtype:
                raise TypeError(f"{name} of u must be {linear.dtype.name}, got {a.dtype.name}")
            if a.shape.rank != 4 or a.shape[-2:] != axes:
                raise ValueError(
                    f"{name} of u must be [..., {axes[0]}, {axes[1]}], but for u of shape "
                    f"{u.shape} it has shape {a.shape}"
                )
        return tensors

    def __repr__(self) -> str:
        return f"ConditionallyLinear({self.initial_mean.shape[0]} nonlinear, {self.linear!r})"
