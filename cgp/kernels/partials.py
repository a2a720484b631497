"""Partial derivatives of the second moments of a process: the covariances of its derivative.

The derivative of a process that is differentiable in mean square has, with the process and with
itself, the covariances (Rasmussen & Williams, *Gaussian Processes for Machine Learning*, 2006,
§9.4)

    E[z'(x1) conj(z(x2))] = ∂K/∂x1,   E[z(x1) conj(z'(x2))] = ∂K/∂x2,
    E[z'(x1) conj(z'(x2))] = ∂²K/∂x1∂x2,

and likewise the pseudo-covariances with C, as x is real.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from cgp.kernels.markov import MarkovForm, Pair


class Partials(NamedTuple):
    """Second moments between points and their partial derivatives, elementwise `[...]`."""

    value: Pair
    """K and C."""
    by_first: Pair
    """∂/∂x1."""
    by_second: Pair
    """∂/∂x2."""
    by_both: Pair
    """∂²/∂x1∂x2."""


def partials_of_form(form: MarkovForm, x1: tf.Tensor, x2: tf.Tensor, is_real: bool) -> Partials:
    """The partial derivatives of the moments of a Markov process between points `[...]`.

    They are the covariances of the value `R s` and of the derivative `R A s` of the state s.
    """
    rows = tf.concat([form.emissions, form.derivative_emissions()], axis=0)
    covariance, m = form.covariance_of(x1, x2, rows), form.emissions.shape[0]

    def pair(i: int, j: int) -> Pair:
        k, c = form.second_moments(covariance[..., i : i + m, j : j + m])
        return (tf.math.real(k) if is_real else k), c

    return Partials(pair(0, 0), pair(m, 0), pair(0, m), pair(m, m))


def partials_of_function(
    moments: Callable[[tf.Tensor, tf.Tensor], Pair], x1: tf.Tensor, x2: tf.Tensor
) -> Partials:
    """The partial derivatives, by automatic differentiation, of moments that are smooth functions.

    Points are `[..., 1]`, and broadcast.
    """
    shape = tf.broadcast_dynamic_shape(tf.shape(x1), tf.shape(x2))
    x1, x2 = tf.broadcast_to(x1, shape), tf.broadcast_to(x2, shape)

    def differentiated(component: Callable[[], tf.Tensor]) -> list[tf.Tensor]:
        with tf.GradientTape() as outer:
            outer.watch(x1)
            with tf.GradientTape() as inner:
                inner.watch([x1, x2])
                value = component()
            first, second = inner.gradient(value, [x1, x2], None, tf.UnconnectedGradients.ZERO)
        both = outer.gradient(second, x1, None, tf.UnconnectedGradients.ZERO)
        return [value, *(a[..., 0] for a in (first, second, both))]

    def of_moment(index: int) -> list[tf.Tensor] | list[None]:
        moment = moments(x1, x2)[index]
        if moment is None:
            return [None] * 4
        re = differentiated(lambda: tf.math.real(moments(x1, x2)[index]))
        if not moment.dtype.is_complex:
            return re
        im = differentiated(lambda: tf.math.imag(moments(x1, x2)[index]))
        return [tf.complex(a, b) for a, b in zip(re, im, strict=True)]

    return Partials(*zip(of_moment(0), of_moment(1), strict=True))
