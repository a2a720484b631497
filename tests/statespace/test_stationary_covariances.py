"""The stationary covariance of a linear model, eagerly by NumPy and in graphs."""

import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf

from cgp import statespace
from tests.linalg.problems import random
from tests.reference.kalman import adjoint
from tests.statespace.problems import random_transition

NILPOTENT = 1e4 * np.eye(4, k=-1)


def problem_of(case, dtype):
    rng = np.random.default_rng(7)
    batch, columns = {"batch": (3,), "rank one": ()}.get(case, ()), 1 if case == "rank one" else 4
    F = random_transition(rng, (*batch, *((1,) if batch else ())), 4, dtype, 0.999)
    factor = random(rng, (4, columns), dtype)
    if case == "nilpotent":
        F = NILPOTENT.astype(dtype)
    if case == "units":
        units = np.array([1e-5, 1.0, 1.0, 1e5])
        F, factor = F * units[:, None] / units, factor * units[:, None]
    return F, factor @ adjoint(factor)


def covariance(F, Q):
    one = np.ones((1, 4), Q.dtype.as_numpy_dtype)
    return statespace.LinearGaussian(F, Q, one, [[1.0]]).initial_covariance


CASES = ["plain", "batch", "rank one", "nilpotent", "units"]


@pytest.mark.parametrize("dtype", ["complex128", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_solves_lyapunovs_equation_eagerly_and_in_a_graph(case, dtype):
    F, Q = problem_of(case, dtype)
    tensors = tf.constant(F), tf.constant(Q)
    eager, in_graph = covariance(*tensors), tf.function(covariance)(*tensors)
    of_models = (np.reshape(a, (-1, 4, 4)) for a in (F, eager, in_graph))
    for transition, P, of_graph in zip(*of_models, strict=True):
        scale = np.sqrt(np.diagonal(P).real)
        size = np.outer(scale, scale)
        residual = transition @ P @ adjoint(transition) + Q - P
        assert np.max(np.abs(residual / size)) < 1e-12
        np.testing.assert_allclose(of_graph / size, P / size, atol=1e-11)
        if case not in ("nilpotent", "units"):  # whose equation is ill-conditioned for SciPy
            expected = scipy.linalg.solve_discrete_lyapunov(transition, Q)
            np.testing.assert_allclose(P / size, expected / size, atol=1e-9)


@pytest.mark.parametrize("case", ["plain", "batch"])
def test_has_one_gradient_eagerly_and_in_a_graph(case):
    tensors = [tf.constant(a) for a in problem_of(case, "complex128")]
    weights = random(np.random.default_rng(1), (4, 4), "complex128")

    def gradients(F, Q):
        with tf.GradientTape() as tape:
            tape.watch([F, Q])
            value = tf.math.real(tf.reduce_sum(weights * covariance(F, Q)))
        return value, *tape.gradient(value, [F, Q])

    value, *eager = gradients(*tensors)
    for a, b in zip((value, *eager), tf.function(gradients)(*tensors), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    direction = random(np.random.default_rng(2), tensors[0].shape, "complex128")
    moved = [gradients(tensors[0] + step * direction, tensors[1])[0] for step in (1e-7, -1e-7)]
    slope = (moved[0] - moved[1]) / 2e-7
    np.testing.assert_allclose(np.sum(eager[0].numpy().conj() * direction).real, slope, rtol=1e-4)
