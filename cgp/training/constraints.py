"""Constraints of hyperparameters, and bijectors to unconstrained real numbers."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf


class Constraint(NamedTuple):
    """A set of admissible values, and a bijector between it and unconstrained real numbers."""

    description: str
    """The set in words, for error messages."""
    contains: Callable[[np.ndarray], bool]
    forward: Callable[[tf.Tensor], tf.Tensor]
    """From an unconstrained tensor to the value; a complex value loses the last axis of size 2."""
    inverse: Callable[[np.ndarray], np.ndarray]
    is_complex: bool = False
    step: np.ndarray | float | None = None
    """The unit of the weight, in unconstrained numbers; see `in_steps_of`."""
    placeholder: np.ndarray | float = 0.0
    """The value of a hyperparameter that was left out, until a fit initialises it."""
    is_per_dimension: bool = False
    """Whether there is one number, or one for each dimension of x; if left out, one for each."""
    log_jacobian: Callable[[tf.Tensor], tf.Tensor] | None = None
    """The log of the Jacobian determinant of `forward`, for densities; None if it is not known."""


def _disk_from_plane(raw: tf.Tensor) -> tf.Tensor:
    # c = sin|w| w/|w| covers the closed disk: an optimum on the unit circle is a stationary point
    # in w, where a map onto the open disk would send w to infinity.
    re, im = tf.unstack(raw, axis=-1)
    square = re * re + im * im
    small = square < 1e-8  # sin r / r has no derivative by r² that TensorFlow can take at 0
    r = tf.sqrt(tf.where(small, tf.ones_like(square), square))
    ratio = tf.where(small, 1.0 - square / 6.0, tf.sin(r) / r)
    return tf.complex(ratio * re, ratio * im)


def _log_area_of_disk(raw: tf.Tensor) -> tf.Tensor:
    # In polar coordinates the area is cos(r) sin(r)/r of that of the plane. Beyond r = π/2 the
    # plane covers the disk once more, and that is no other value: its density is zero.
    square = tf.reduce_sum(tf.square(raw), axis=-1)
    small = square < 1e-8
    r = tf.sqrt(tf.where(small, tf.ones_like(square), square))
    inside = r < 0.5 * math.pi
    r = tf.where(inside, r, tf.ones_like(r))
    log_area = tf.math.log(tf.cos(r) * tf.sin(r) / r)
    log_area = tf.where(small, -2.0 / 3.0 * square, log_area)
    return tf.where(inside, log_area, tf.constant(-np.inf, raw.dtype))


def _plane_from_disk(point: np.ndarray) -> np.ndarray:
    modulus = np.minimum(np.abs(point), 1.0)
    ratio = np.divide(np.arcsin(modulus), modulus, out=np.ones_like(modulus), where=modulus > 0)
    return split(point * ratio)


def _join(raw: tf.Tensor) -> tf.Tensor:
    """Combines a last axis [re, im] into complex numbers."""
    return tf.complex(*tf.unstack(raw, axis=-1))


def split(z: np.ndarray) -> np.ndarray:
    """Splits complex numbers into their parts on a new last axis, [re, im]."""
    return np.stack([z.real, z.imag], axis=-1)


REAL = Constraint(
    "real",
    lambda v: True,
    tf.identity,
    np.asarray,
    placeholder=1.0,
    log_jacobian=tf.zeros_like,
)
POSITIVE = Constraint(
    "positive",
    # TensorFlow's exponential has no subnormal numbers: they would come back as zero.
    lambda v: bool(np.all(v > np.finfo(v.dtype).tiny)),
    tf.exp,
    np.log,
    placeholder=1.0,
    log_jacobian=tf.identity,
)
COMPLEX = Constraint(
    "complex",
    lambda v: True,
    _join,
    split,
    is_complex=True,
    log_jacobian=lambda raw: tf.zeros_like(raw[..., 0]),
)
UNIT_DISK = Constraint(
    "complex of modulus at most 1",
    # A value read from a float32 layer, or cos θ + i sin θ, may be outside by rounding.
    lambda v: bool(np.all(np.abs(v) <= 1 + 1e-6)),
    _disk_from_plane,
    _plane_from_disk,
    is_complex=True,
    log_jacobian=_log_area_of_disk,
)

FRACTION = Constraint(
    "between 0 and 1",
    # 1 − v must be positive too, in the precision of the kernel.
    lambda v: bool(np.all((v > np.finfo(v.dtype).tiny) & (v < 1))),
    tf.sigmoid,
    lambda v: np.log(v) - np.log1p(-v),
    placeholder=0.2,
    log_jacobian=lambda raw: tf.math.log_sigmoid(raw) + tf.math.log_sigmoid(-raw),
)


def in_steps_of(scale: np.ndarray | float, constraint: Constraint) -> Constraint:
    """Returns the constraint with its weights in units of `scale`.

    An optimizer such as Adam changes all weights by similar amounts. Data determine a frequency to
    a small fraction of its value, but a variance hardly to a factor of two, so that the two need
    weights in different units. The unit is a weight too: a saved weight keeps its meaning when it
    is loaded elsewhere.
    """
    return constraint._replace(step=scale)
