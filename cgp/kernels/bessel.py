"""The Matérn correlation of any smoothness, by the integral for its Bessel function.

Modified Bessel functions of the second kind have no derivative by their order in closed form. The
integral that defines them can be differentiated under the integral sign,

    J[j](ν, c) = ∫ yʲ exp(νy − eʸ − c e⁻ʸ) dy = ∂ʲ/∂νʲ of 2 c^{ν/2} K_ν(2√c),
    ∂J[j]/∂ν = J[j + 1],    ∂J[j]/∂c = −J[j](ν − 1, c)

(DLMF 10.32.10 with t = eʸ). The trapezoidal rule converges geometrically, as the integrand is
analytic and decays at both ends (Trefethen & Weideman, SIAM Review 56, 2014). For many c it is
computed at nodes and interpolated by cubics in log c that match its slope as well, the same
integral at ν − 1.
"""

from typing import Any

import numpy as np
import tensorflow as tf

# Steps of the rule, for a relative error of 1e-11 where r > 1e-6: points nearly coincide there, and
# a larger error would exceed the variance of the difference of the signal between them.
_STEPS = 120
# Nodes in log c. Over 40 units of it, cubics are within 1e-12 of the largest fourth derivative.
_NODES = 8192
# The c at which a correlation of smoothness below 100 is zero in double precision.
_LARGEST = 2e5


def matern_correlation(smoothness: tf.Tensor, square: tf.Tensor) -> tf.Tensor:
    """The Matérn correlation `2^{1−ν}/Γ(ν) (√(2ν) r)^ν K_ν(√(2ν) r)` of r², `[...]`.

    It can be differentiated any number of times. The relative error is about 1e-11 for r > 1e-6
    and ν < 100; the correlation is 1 at r = 0.
    """
    is_zero = square <= 0.0
    square = tf.where(is_zero, tf.ones_like(square), square)
    scale = tf.math.lgamma(smoothness)
    fixed = tf.stop_gradient(scale)
    integral = _integral(0, smoothness, 0.5 * smoothness * square, fixed)
    correlation = integral * tf.exp(fixed - scale)
    return tf.where(is_zero, tf.ones_like(correlation), correlation)


def _integral(j: int, order: tf.Tensor, c: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """`exp(−scale) J[j](order, c)` of positive c."""

    @tf.custom_gradient
    def function(order: tf.Tensor, c: tf.Tensor, scale: tf.Tensor) -> tuple[tf.Tensor, Any]:
        def backward(bar: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, None]:
            by_order = tf.reduce_sum(bar * _integral(j + 1, order, c, scale))
            return by_order, -bar * _integral(j, order - 1.0, c, scale), None

        few = tf.size(c) <= _NODES
        integral = tf.cond(
            few, lambda: _trapezoidal(j, order, c, scale), lambda: _interpolated(j, order, c, scale)
        )
        return integral, backward

    return function(order, c, scale)


def _interpolated(j: int, order: tf.Tensor, c: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    places = tf.math.log(tf.minimum(c, tf.constant(_LARGEST, c.dtype)))
    low, high = tf.reduce_min(places), tf.reduce_max(places)
    width = tf.maximum(high - low, 1e-3) / (_NODES - 1)
    nodes = tf.exp(low + width * tf.range(_NODES, dtype=c.dtype))
    height = _trapezoidal(j, order, nodes, scale)
    slope = -width * nodes * _trapezoidal(j, order - 1.0, nodes, scale)
    # Hermite's cubics between neighbours.
    rise, before, after = height[1:] - height[:-1], slope[:-1], slope[1:]
    second, third = 3.0 * rise - 2.0 * before - after, before + after - 2.0 * rise
    t = (places - low) / width
    i = tf.clip_by_value(tf.cast(t, tf.int32), 0, _NODES - 2)
    t -= tf.cast(i, t.dtype)
    cubic = tf.zeros_like(t)
    for a in (third, second, before, height[:-1]):
        cubic = cubic * t + tf.gather(a, i)
    return cubic


def _trapezoidal(j: int, order: tf.Tensor, c: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    # The peak is where order − A + B = 0, with A = eʸ and B = c e⁻ʸ.
    root = tf.sqrt(order**2 + 4.0 * c)
    A = tf.where(order > 0.0, 0.5 * (root + order), 2.0 * c / (root - tf.minimum(order, 0.0)))
    B = c / A
    drop = -np.log(np.finfo(c.dtype.as_numpy_dtype).eps) + 1.0
    below = _reach(B, A, drop)
    step = (below + _reach(A, B, drop)) / _STEPS
    y, E = tf.math.log(A) - below, A * tf.exp(-below)
    grow, offset = tf.exp(step), scale
    total = tf.zeros_like(step)

    def add(i: tf.Tensor, y: tf.Tensor, E: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, ...]:
        term = tf.exp(order * y - E - c / E - offset)
        return i + 1, y + step, E * grow, total + (term if j == 0 else term * y**j)

    *_, total = tf.while_loop(lambda i, *_: i <= _STEPS, add, (tf.constant(0), y, E, total))
    return step * total


def _reach(A: tf.Tensor, B: tf.Tensor, drop: float) -> tf.Tensor:
    """A u > 0 with `A (eᵘ − 1 − u) + B (e⁻ᵘ − 1 + u) ≥ drop`, close to the smallest."""
    a, b = drop / A, drop / B
    by_growth = tf.minimum(tf.sqrt(2.0 * a), tf.math.log1p(a) + 2.0)
    return tf.minimum(by_growth, 0.5 * (b + tf.sqrt(b * (b + 8.0))))
