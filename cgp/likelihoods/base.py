"""The base of likelihoods, which turn an observation into a normal one of the signal.

A *site* is a normal observation ỹ of the signal g, of precision Λ. Sites and the posterior q that
they give together with the prior of g are found in turns: q by the sites, the sites by q.
"""

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

LEAST = 1e-8
"""The least precision of a site in any direction, as a share of the precision of q: an observation
without information has a large variance."""


class Moments(NamedTuple):
    """Moments of a normal in real coordinates."""

    mean: tf.Tensor  # `[d, ...]`
    covariance: tf.Tensor  # `[d, d, ...]`


class Site(NamedTuple):
    """A normal observation of the signal, in real coordinates."""

    target: tf.Tensor  # ỹ, `[d, ...]`
    precision: tf.Tensor  # Λ, `[d, d, ...]`, positive

    @property
    def covariance(self) -> tf.Tensor:
        """Λ⁻¹, `[d, d, ...]`, the covariance of its noise."""
        return inverse(self.precision)


def between(last: Site, following: Site, step: tf.Tensor) -> Site:
    """The site at a fraction `step` of the way to the following one, in natural parameters.

    Targets enter by their difference, beside which they may be large.
    """
    precision = last.precision + step * (following.precision - last.precision)
    way = step * product(following.precision, following.target - last.target)
    return Site(last.target + product(inverse(precision), way), precision)


def distance(last: Site, following: Site, q: Moments) -> tf.Tensor:
    """The distance by which q moves when its site becomes the following one, `[...]`.

    In standard deviations of q, and in shares of its covariance.
    """
    precision = following.precision - last.precision
    linear = product(precision, following.target - q.mean)
    linear += product(last.precision, following.target - last.target)
    square = quadratic(q.covariance, linear)
    share = tf.einsum("ij...,jk...->ik...", precision, q.covariance)
    square += tf.add_n([tf.square(a) for row in elements(share) for a in row])
    return tf.sqrt(square)


def elements(a: tf.Tensor) -> list[list[tf.Tensor]]:
    """The elements `[...]` of matrices `[d, d, ...]`, row by row.

    A graph of indices `a[i, j]` has four operations for each.
    """
    return [tf.unstack(row) for row in tf.unstack(a)]


def symmetric(first: tf.Tensor, off: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """The matrices `[2, 2, ...]` of these elements `[...]`."""
    return tf.stack([tf.stack([first, off]), tf.stack([off, second])])


def inverse(a: tf.Tensor) -> tf.Tensor:
    """The inverse of symmetric matrices `[d, d, ...]`, d being 1 or 2."""
    if a.shape[0] == 1:
        return 1.0 / a
    (first, _), (off, second) = elements(a)
    scale = 1.0 / (first * second - off * off)
    return symmetric(second * scale, -off * scale, first * scale)


def log_determinant(a: tf.Tensor) -> tf.Tensor:
    """The log determinants of symmetric positive matrices `[d, d, ...]`, `[...]`."""
    if a.shape[0] == 1:
        return tf.math.log(a[0, 0])
    (first, _), (off, second) = elements(a)
    return tf.math.log(first * second - off * off)


def product(a: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """The products of matrices `[d, d, ...]` and vectors `[d, ...]`."""
    return tf.einsum("ij...,j...->i...", a, x)


def quadratic(a: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """The quadratic form xᵀ A x, `[...]`."""
    # A sum over the axis XLA cannot take back.
    return tf.add_n(tf.unstack(x * product(a, x)))


def trace(a: tf.Tensor) -> tf.Tensor:
    """The traces of matrices `[d, d, ...]`, `[...]`."""
    return tf.add_n([row[i] for i, row in enumerate(elements(a))])


def at_least(a: tf.Tensor, least: tf.Tensor) -> tf.Tensor:
    """Symmetric matrices `[d, d, ...]` with eigenvalues raised to at least `least`, `[...]`."""
    if a.shape[0] == 1:
        return tf.maximum(a, least)
    (first, _), (off, second) = elements(a)
    middle, half = 0.5 * (first + second), 0.5 * (first - second)
    square = half * half + off * off
    is_round = square <= 1e-24 * middle * middle  # where the eigenvectors are any
    radius = tf.sqrt(tf.where(is_round, tf.ones_like(square), square))
    high, low = tf.maximum(middle + radius, least), tf.maximum(middle - radius, least)
    # high P + low (1 − P), with P = ½ (1 + a'/radius) and a' = a less its half trace
    centre, slope = 0.5 * (high + low), 0.5 * (high - low) / radius
    round_one = tf.maximum(middle, least)
    first = tf.where(is_round, round_one, centre + slope * half)
    second = tf.where(is_round, round_one, centre - slope * half)
    return symmetric(first, tf.where(is_round, tf.zeros_like(half), slope * off), second)


class Likelihood(ABC):
    """The density of an observation z given the signal g, elementwise, in noise of variance σ².

    Filters and processes approximate the posterior of g by a normal one q, in which each
    observation is replaced by its *site*, a normal observation of g (`cgp.likelihoods.base`). The
    rules for sites are `Variational` and `MomentMatched`; a likelihood derives from one of them and
    adds one function. Numbers come in real coordinates along the first axis: one for a real signal,
    the real and the imaginary part for a complex one.

    A subclass is a frozen dataclass of numbers. A layer or a process with such a likelihood is
    saved and loaded where the class is registered with Keras, by
    `keras.saving.register_keras_serializable`.
    """

    is_circular: ClassVar[bool] = False
    """Whether the density depends on |z − g| alone, so that a proper signal stays proper."""
    is_of_real: ClassVar[bool] = True
    """Whether a real signal has such observations."""
    is_of_parts: ClassVar[bool] = False
    """Whether real and imaginary part are observations with a site each."""
    is_for_processes: ClassVar[bool] = True
    """Whether all data of a Gaussian process may be such observations."""

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, by name: the fields of a dataclass."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    def check(self, z: np.ndarray) -> None:
        """Raises a ValueError for observations that are impossible; NaN is missing, and passes."""
        del z  # all are possible

    def step(self, turn: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """The step of natural parameters towards new sites, in an iteration counted from zero.

        Whole steps may oscillate, the more so the smaller the noise; decreasing steps end this.
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
        """The log likelihood of the observation minus the log likelihood of its site, `[...]`.

        Args:
            z: Real coordinates, `[d, ...]`.
            q: The moments of g given all sites.
            site: The site of the observation.
            variance: Of the noise, `[...]`.
        """
