"""Levinson's recursion and its inverse, and Burg's estimate: autoregressions and their reflections.

An autoregression `z[t] = Σ a[k] z[t−k] + w[t]`, k = 1 … p, is stable where its reflection
coefficients (partial autocorrelations) κ[k] lie inside the unit circle, and any such numbers make
one (Kay, *Modern Spectral Estimation*, 1988, ch. 6 and 7).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import as_complex, squared_modulus


class Autoregression(NamedTuple):
    """An autoregression of order p and unit variance."""

    coefficients: tf.Tensor
    """a[1 … p], complex, `[p]`."""
    innovation: tf.Tensor
    """`E|w|²`, a real number from 0 to 1."""
    correlations: tf.Tensor
    """`E[z[t] conj(z[t−k])]`, k = 0 … p, complex, `[p + 1]`."""


def levinson(reflections: tf.Tensor) -> Autoregression:
    """The autoregression of reflection coefficients `[p]`, complex, of modulus at most 1."""
    innovation = tf.ones([], reflections.dtype.real_dtype)
    a = tf.zeros([0], reflections.dtype)
    r = tf.ones([1], reflections.dtype)
    for k in tf.unstack(reflections):
        new = k * as_complex(innovation) + tf.reduce_sum(a * tf.reverse(r[1:], [0]))
        r = tf.concat([r, new[None]], axis=0)
        a = tf.concat([a - k * tf.math.conj(tf.reverse(a, [0])), k[None]], axis=0)
        # Rounding may put the modulus of κ above 1.
        innovation = innovation * tf.maximum(1.0 - squared_modulus(k), 0.0)
    return Autoregression(a, innovation, r)


def reflections_of(coefficients: np.ndarray, name: str) -> np.ndarray:
    """The reflection coefficients `[p]` of an autoregression: Levinson's recursion backwards.

    Raises:
        ValueError: The polynomial `1 − Σ a[k] B^k` has a root on or inside the unit circle.
    """
    a = np.array(coefficients, complex)
    reflections = np.zeros_like(a)
    for k in reversed(range(len(a))):
        reflections[k] = a[k]
        if not abs(a[k]) < 1.0:
            raise ValueError(
                f"{name} must have all roots outside the unit circle (their reflection "
                f"coefficients then have moduli below 1), got {coefficients!r}"
            )
        a = (a[:k] + a[k] * np.conj(a[:k][::-1])) / (1.0 - abs(a[k]) ** 2)
    return reflections


def burg(runs: Sequence[np.ndarray], order: int) -> np.ndarray:
    """Reflection coefficients `[order]` estimated from runs of samples without gaps.

    Each minimises the mean square of forward and backward prediction errors of all runs (Burg's
    method for segments: de Waele & Broersen, IEEE Trans. Signal Process. 48, 2000).

    Raises:
        ValueError: No run is longer than the order.
    """
    if max(map(len, runs), default=0) <= order:
        raise ValueError(
            f"an autoregression of order {order} needs a run of more than {order} samples without "
            f"a gap, got {max(map(len, runs), default=0)}"
        )
    errors, reflections = [(run, run) for run in runs], np.zeros(order, complex)
    for k in range(order):
        errors = [(f[1:], b[:-1]) for f, b in errors if len(f) > 1]
        power = sum(np.vdot(f, f).real + np.vdot(b, b).real for f, b in errors)
        cross = sum(np.vdot(b, f) for f, b in errors)
        reflections[k] = 2.0 * cross / power if power > 0 else 0.0
        errors = [(f - reflections[k] * b, b - np.conj(reflections[k]) * f) for f, b in errors]
    return reflections
