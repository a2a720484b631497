"""The No-U-Turn sampler over unconstrained hyperparameters, with a metric that is learned.

TensorFlow Probability's sampler (Hoffman & Gelman, Journal of Machine Learning Research 15, 2014)
runs all chains side by side. It moves in coordinates y, w = c + L y, in which the posterior is
about a standard normal: L is first the factor of Laplace's covariance, then, in windows of the
warm-up, the factor of the covariance of the draws. The size of its steps follows from dual
averaging in each window.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp import native
from cgp.gp.data import Data
from cgp.gp.sampling.density import Coordinates, WeakPriors, attached, values_and_gradients
from cgp.statespace.compiled import graph_of
from cgp.training.laplace import hessian

_ACCEPTED = 0.75  # the share of proposals that dual averaging aims at
_WINDOWS = (0.15, 0.25, 0.6)  # shares of the warm-up
_SEGMENTS = 20  # of the draws, between which progress is shown
_ATTEMPTS = 20  # at a start where the density has a value


class Metric(NamedTuple):
    """The coordinates that the sampler moves in."""

    center: np.ndarray
    """c, `[P]`."""
    factor: np.ndarray
    """L, `[P, P]`, lower triangular."""

    def learned(self, draws: np.ndarray) -> "Metric":
        """The metric of draws `[n, P]` in the coordinates of this one."""
        n, size = draws.shape
        centered = draws - np.mean(draws, axis=0)
        # As if ten more draws had come from the standard normal that a perfect metric gives.
        covariance = (centered.T @ centered + 10.0 * np.eye(size)) / (n + 10.0)
        center = self.center + self.factor @ np.mean(draws, axis=0)
        return Metric(center, self.factor @ np.linalg.cholesky(covariance))

    def outside(self, y: np.ndarray) -> np.ndarray:
        """Points `[..., P]` in the coordinates of the hyperparameters."""
        return self.center + y @ self.factor.T

    def inside(self, points: np.ndarray) -> np.ndarray:
        """Points `[..., P]` in the coordinates of the sampler."""
        return np.linalg.solve(self.factor, (points - self.center)[..., None])[..., 0]


class Chains(NamedTuple):
    """The draws of the sampler after its warm-up, with their diagnostics."""

    points: np.ndarray
    """`[chains, draws, P]`, unconstrained."""
    log_density: np.ndarray
    """`[chains, draws]`, weak priors included."""
    diverged: np.ndarray
    """Whether the step to a draw ran out of bounds, `[chains, draws]`."""
    acceptance: np.ndarray
    """The mean acceptance probability along the step, `[chains, draws]`."""
    leapfrogs: np.ndarray
    """The number of gradients of the step, `[draws]`, in the chain that took most."""


class Sampler:
    """The compiled functions of a `MaximumLikelihoodGP`: its density, and segments of chains."""

    def __init__(self, gp: Any, coordinates: Coordinates):
        self._gp, self.coordinates = gp, coordinates
        self.density, self.segment = graph_of(self._density), graph_of(self._segment)

    def _density(
        self, data: Data, weak: WeakPriors, points: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        with native.own_graph():
            return values_and_gradients(self._gp, self.coordinates, data, points, weak)

    def _segment(
        self,
        data: Data,
        weak: WeakPriors,
        metric: tuple[tf.Tensor, tf.Tensor],
        y: tf.Tensor,
        step: tf.Tensor,
        count: tf.Tensor,
        adaptations: tf.Tensor,
        seed: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        """A segment of all chains, of `count` draws.

        Args:
            data: The data.
            weak: Weak priors, in the order of the hyperparameters.
            metric: c and L.
            y: The states of the chains, `[C, P]`.
            step: The step size.
            count: The number of draws.
            adaptations: The number of draws that adapt the step size; −1 for none.
            seed: Two integers.

        Returns:
            Draws of y `[count, C, P]`, the fields of `Chains` for each, and the step size after it.
        """
        import tensorflow_probability as tfp  # here: importing it takes as long as TensorFlow

        center, factor = metric
        kind = center.dtype

        def target(y: tf.Tensor) -> tf.Tensor:
            points = center + tf.linalg.matvec(factor, y)
            log_density, gradients = self.density(data, weak, tf.stop_gradient(points))
            # Where the likelihood has no value nothing is accepted, and the trajectory ends.
            sound = tf.math.is_finite(log_density)
            sound &= tf.reduce_all(tf.math.is_finite(gradients), axis=-1)
            log_density = tf.where(sound, log_density, tf.constant(-np.inf, kind))
            gradients = tf.where(sound[..., None], gradients, tf.zeros_like(gradients))
            return attached(points, log_density, gradients)

        def trace(_: tf.Tensor, results: Any) -> tuple[tf.Tensor, ...]:
            step = results.inner_results
            acceptance = tf.exp(tf.minimum(step.log_accept_ratio, tf.zeros([], kind)))
            of_step = (step.target_log_prob, step.has_divergence, acceptance, step.leapfrogs_taken)
            return (*of_step, results.new_step_size)

        kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
            tfp.mcmc.NoUTurnSampler(target, step_size=step),
            num_adaptation_steps=adaptations,
            target_accept_prob=tf.constant(_ACCEPTED, kind),
        )
        draws, traced = tfp.mcmc.sample_chain(
            count, y, kernel=kernel, trace_fn=trace, seed=seed, num_burnin_steps=0
        )
        return draws, *traced

    def run(
        self,
        data: Data,
        weak: WeakPriors,
        chains: int,
        draws: int,
        warmup: int,
        seed: int | None,
        progress: Callable[[int], object],
    ) -> Chains:
        """Draws from the posterior, after a warm-up that starts around the present values.

        `progress` is called with the number of draws that are done, the warm-up included. A
        ValueError if the density has no value at the present hyperparameters.
        """
        rng, kind = np.random.default_rng(seed), self.coordinates.dtype
        evaluate = functools.partial(self._evaluated, data, weak)
        metric = laplace_metric(evaluate, self.coordinates.inside_bounds())
        y = starts(evaluate, metric, chains, rng)
        step = 1.0

        def segment(count: int, adaptations: int) -> list[np.ndarray]:
            state = (tf.constant(y, kind), tf.constant(step, kind))
            counts = (tf.constant(count), tf.constant(adaptations))
            seed = tf.constant(rng.integers(2**31, size=2), tf.int32)
            coordinates = tuple(tf.constant(a, kind) for a in metric)
            arrays = self.segment(data, weak, coordinates, *state, *counts, seed)
            return [a.numpy() for a in arrays]

        done = 0
        for number, share in enumerate(_WINDOWS):
            count = warmup - done if number == len(_WINDOWS) - 1 else round(share * warmup)
            if count == 0:
                continue
            states, *_, step_sizes = segment(count, count)
            y, step, done = states[-1], float(step_sizes[-1]), done + count
            if number < len(_WINDOWS) - 1:
                last, late = metric, states[count // 3 :]
                metric = last.learned(late.reshape(-1, late.shape[-1]))
                y = metric.inside(last.outside(y))
            progress(done)
        segments, remaining = [], draws
        for number in range(_SEGMENTS):
            count = remaining // (_SEGMENTS - number)
            if count == 0:
                continue
            segments.append(segment(count, -1))
            y, remaining = segments[-1][0][-1], remaining - count
            progress(warmup + draws - remaining)
        inside, log_density, diverged, acceptance, leapfrogs, _ = (
            np.concatenate(arrays) for arrays in zip(*segments, strict=True)
        )
        by_draw = (metric.outside(inside), log_density, diverged, acceptance)
        points, log_density, diverged, acceptance = (np.swapaxes(a, 0, 1) for a in by_draw)
        return Chains(points, log_density, diverged, acceptance, leapfrogs)

    def _evaluated(
        self, data: Data, weak: WeakPriors, points: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The log densities at points `[B, P]` and their gradients, NumPy."""
        points = tf.constant(points, self.coordinates.dtype)
        return tuple(a.numpy() for a in self.density(data, weak, points))


Evaluate = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def laplace_metric(evaluate: Evaluate, point: np.ndarray) -> Metric:
    """The metric of Laplace's approximation at a point, whether it is a maximum or not.

    A ValueError if the density has no value there.
    """
    value, gradient = evaluate(point[None])
    if not (np.isfinite(value).all() and np.isfinite(gradient).all()):
        raise ValueError(
            "the density of the hyperparameters has no value at their present ones, from which "
            "chains would start: fit(x, z) first, or assign others"
        )

    def falling(at: np.ndarray) -> np.ndarray:
        gradient = -evaluate(at[None])[1][0].astype(float)
        return np.where(np.isfinite(gradient), gradient, 0.0)

    curvature = hessian(falling, point.astype(float))
    scale = np.sqrt(np.maximum(np.abs(np.diag(curvature)), 1e-2))
    eigenvalues, eigenvectors = np.linalg.eigh(curvature / np.outer(scale, scale))
    # Away from a maximum a curvature may have any sign: its size still tells a scale.
    root = eigenvectors / np.sqrt(np.maximum(np.abs(eigenvalues), 1e-3)) / scale[:, None]
    return Metric(point.astype(float), np.linalg.cholesky(root @ root.T))


def starts(evaluate: Evaluate, metric: Metric, chains: int, rng: np.random.Generator) -> np.ndarray:
    """Starts of chains, `[chains, P]` in the coordinates of the metric, standard normal.

    A start at which the density has no value is moved towards the center.
    """
    y = rng.normal(size=(chains, len(metric.center)))
    for _ in range(_ATTEMPTS):
        log_density, gradients = evaluate(metric.outside(y))
        bad = ~(np.isfinite(log_density) & np.isfinite(gradients).all(axis=-1))
        if not bad.any():
            break
        y[bad] *= 0.5
    else:
        y[bad] = 0.0
    return y
