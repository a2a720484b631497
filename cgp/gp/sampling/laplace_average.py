"""Predictions averaged over the hyperparameters, by Laplace's approximation and a few points.

With few data the likelihood is wide, and predictions at its maximum are too sure. The posterior of
the unconstrained hyperparameters w, of which `log_density` and weak priors are the log (see
`cgp.gp.sampling.density`), is about normal, of mean c and covariance S Sᵀ (Laplace). The P + 1
corners of a regular simplex,

    w_i = c + √P S u_i,    Σ u_i = 0,    |u_i| = 1,

have its mean and its covariance with equal weights, the fewest points that do (the spherical
simplex of Julier, American Control Conference, 2003). Weights in proportion to the density at each
point, beside which that of the normal is the same at all, correct for its skewness. The predictions
at these points are averaged, as over draws.
"""

import copy
import hashlib
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from scipy.optimize import minimize

from cgp.distributions import ComplexNormal
from cgp.distributions.forms import SecondMoments, form_of
from cgp.distributions.marginals import Marginals, mixture
from cgp.gp.posterior import Posterior
from cgp.gp.sampling.density import weak_priors
from cgp.gp.sampling.moved_process import MovedProcess
from cgp.gp.sampling.nuts import Sampler
from cgp.kernels.base import Kernel
from cgp.linalg.arguments import ArrayLike
from cgp.training.laplace import hessian

_LEAST_CURVATURE = 0.05  # a deviation of 4.5, a factor of 90 of a positive hyperparameter


class WeightedPoints(NamedTuple):
    """Points of the hyperparameters and their weights, of sum 1."""

    points: np.ndarray
    """Unconstrained, `[P + 1, P]`."""
    weights: np.ndarray
    """`[P + 1]`."""


def simplex(dimensions: int) -> np.ndarray:
    """The corners of a regular simplex about zero, of length 1, `[P + 1, P]`."""
    corners = np.zeros((dimensions + 1, dimensions))
    for k in range(dimensions):
        remaining = dimensions - k
        corners[k, k] = np.sqrt(remaining * (remaining + 1.0)) / (remaining + 1.0)
        corners[k + 1 :, k] = -np.sqrt((remaining + 1.0) / remaining) / (remaining + 1.0)
    return corners / np.linalg.norm(corners, axis=1, keepdims=True)


def weighted_points(gp: Any, sampler: Sampler) -> WeightedPoints:
    """The points of a process that has data and is at a maximum of its likelihood.

    They are about the maximum of the density with weak priors to which that leads.
    """
    data, coordinates = gp.stored_data(), sampler.coordinates
    weak = weak_priors(gp, coordinates, data)
    priors = tuple(weak.get(name) for name in coordinates.parameters)

    def evaluated(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The log density at points `[..., P]`, and its gradient."""
        rows = tf.constant(np.reshape(points, [-1, coordinates.size]), coordinates.dtype)
        densities, gradients = sampler.density(data, priors, rows)
        return np.reshape(densities, np.shape(points)[:-1]), np.reshape(gradients, np.shape(points))

    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        density, gradient = evaluated(point)
        if not np.isfinite(density):
            return np.inf, np.zeros_like(point)
        return -float(density), -np.asarray(gradient, float)

    # The priors move the maximum, far where a likelihood rises as a variance goes to zero: there a
    # line search meets points without a value, and ends where it begins.
    start = coordinates.inside_bounds().astype(float)
    start = min(start, coordinates.near_priors(start, weak), key=lambda point: loss(point)[0])
    center = minimize(loss, start, jac=True, method="L-BFGS-B").x
    curvature = hessian(lambda point: -evaluated(point)[1], center)
    no_value = ValueError(
        "the likelihood has no value about the present hyperparameters: fit to convergence "
        "first, or give priors to those that the data do not determine"
    )
    if not np.isfinite(curvature).all():
        raise no_value
    eigenvalues, axes = np.linalg.eigh(curvature)
    factor = axes / np.sqrt(np.maximum(eigenvalues, _LEAST_CURVATURE))
    points = center + np.sqrt(coordinates.size) * simplex(coordinates.size) @ factor.T
    log_density = np.nan_to_num(evaluated(points)[0], nan=-np.inf)
    if not np.isfinite(log_density).any():
        raise no_value
    weights = np.exp(log_density - log_density.max())
    return WeightedPoints(points, weights / weights.sum())


class Averaging:
    """A copy of a process, and points of its hyperparameters to average its predictions over."""

    def __init__(self, gp: Any):
        self._process = MovedProcess(copy.deepcopy(gp))
        if self._process.coordinates.size == 0:
            raise ValueError("no trainable hyperparameters: there is nothing to average over")
        sampler = Sampler(self._process.gp, self._process.coordinates)
        self._points, self._weights = weighted_points(self._process.gp, sampler)

    def posterior(self, x: Any, observed: bool, **noise: Any) -> ComplexNormal:
        """The averaged posterior at x; arguments as for `posterior` of the process."""
        predictions = self._process.predict_at(self._points, x, observed, **noise)
        if self._process.gp.kernel.outputs is not None:  # side by side in one vector
            predictions = predictions.map(lambda a: a.reshape(*a.shape[:-2], -1))
        components = list(zip(self._weights, map(Marginals, *predictions), strict=True))
        mean, variance, pseudo_variance = mixture(components)
        apart = predictions.mean - mean
        # Means that differ in phase make the mixture of proper normals improper.
        form = form_of(is_proper=False)

        def joint() -> tf.Tensor:
            covariances, pseudo_covariances = self._covariances(x, observed, **noise)
            rows, columns = apart[..., :, None], apart[..., None, :]
            k = self._average(covariances + rows * columns.conj())
            c = self._average(pseudo_covariances + rows * columns)
            return form.covariance(SecondMoments(tf.constant(k), tf.constant(c)))

        marginal = SecondMoments(tf.constant(variance, mean.dtype), tf.constant(pseudo_variance))
        scale = tf.constant(variance.sum(axis=-1))
        posterior = Posterior(tf.constant(mean), marginal, joint, form, lambda: scale)
        return self._process.gp.of_outputs(posterior)

    def _average(self, a: np.ndarray) -> np.ndarray:
        return np.tensordot(self._weights, a, 1)

    def _covariances(self, x: Any, observed: bool, **noise: Any) -> tuple[np.ndarray, np.ndarray]:
        """The covariances of all values at x at each point of the hyperparameters."""
        covariances = []
        for point in self._points:
            self._process.move(point)
            posterior = self._process.gp.posterior(x, observed=observed, **noise)
            moments = posterior.covariance(), posterior.pseudo_covariance()
            covariances.append([moment.numpy() for moment in moments])
        k, c = (np.stack(arrays) for arrays in zip(*covariances, strict=True))
        return k, c


class Averages:
    """The averaging of a process at its present hyperparameters and data, made when needed."""

    def __init__(self) -> None:
        self._key: bytes | None = None
        self._averaging: Averaging | None = None

    def of(self, gp: Any) -> Averaging:
        """The averaging of the present hyperparameters and data."""
        data, mean = gp.stored_data(), gp.mean
        weights = [*gp.observation_model.weights, *([] if mean is None else mean.weights)]
        arrays = data.x, data.z, *data.noise, *data.functional, *(w.value for w in weights)
        rows = (b"" if a is None else np.asarray(a).tobytes() for a in arrays)
        key = hashlib.sha256(b"|".join(rows)).digest()
        if self._averaging is None or key != self._key:
            self._averaging, self._key = Averaging(gp), key
        return self._averaging

    def __deepcopy__(self, memo: dict) -> "Averages":
        """A copy of a process makes its own."""
        return Averages()


def averaged_posterior(
    gp: Any,
    x: Any,
    part: Kernel | None,
    observed: bool,
    noise_variance: ArrayLike | None,
    noise_groups: ArrayLike | None,
) -> ComplexNormal:
    """The posterior at x averaged over hyperparameters; `posterior` documents the arguments.

    Raises:
        RuntimeError: Inside of a `tf.function`.
        ValueError: A part; no data, or samples that a stream has dropped; no hyperparameter to
            average over, or a likelihood without a value about the present ones.
    """
    if not tf.executing_eagerly():
        raise RuntimeError("uncertain=True is outside of a tf.function, where it moves weights")
    if part is not None:
        raise ValueError("uncertain=True is of the whole signal: part must be None")
    averages: Averages | None = getattr(gp, "_averages", None)
    if averages is None:
        averages = gp._averages = Averages()
    noise = {"noise_variance": noise_variance, "noise_groups": noise_groups}
    noise = {name: argument for name, argument in noise.items() if argument is not None}
    return averages.of(gp).posterior(x, observed, **noise)
