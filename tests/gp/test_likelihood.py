"""The closed gradient of the likelihood, and the pieces it is made of."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.gp.signal_plus_noise import log_density
from cgp.kernels import RBF, Rotation, WidelyLinear
from tests.gp.problems import complex_normals, problems, series
from tests.long_cases import long_except


def hermitian(rng, n, dtype):
    a = complex_normals(rng, n, n)
    a = a if np.issubdtype(dtype, np.complexfloating) else a.real
    return (a @ a.conj().T + n * np.eye(n)).astype(dtype)


def direction(rng, shape, dtype):
    d = complex_normals(rng, *shape)
    return d if np.issubdtype(dtype, np.complexfloating) else d.real


@pytest.mark.parametrize("dtype", [np.complex128, np.float64])
@pytest.mark.parametrize("trend", [False, True])
@pytest.mark.parametrize("order", [1, 2])
def test_does_the_closed_gradient_agree_with_central_differences(dtype, trend, order):
    rng = np.random.default_rng(0)
    n, series_count = 7, 3
    weights = tf.constant(rng.uniform(0.5, 2.0, series_count))
    point = [hermitian(rng, n, dtype), direction(rng, (n, series_count), dtype)]
    point += [direction(rng, (n, 2), dtype)] if trend else []
    steps = [direction(rng, p.shape, dtype) for p in point]
    steps[0] = steps[0] + steps[0].conj().T

    def value(arguments):
        covariance, targets, *basis = arguments
        chol = tf.linalg.cholesky(covariance)
        scale = 1.0 if np.issubdtype(dtype, np.complexfloating) else 0.5
        found = log_density(covariance, targets, basis[0] if basis else None, chol, scale)
        return tf.reduce_sum(weights * found)

    def slope(arguments):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            y = value(arguments)
        return sum(
            tf.reduce_sum(tf.math.real(tf.math.conj(g) * s))
            for g, s in zip(tape.gradient(y, arguments), steps, strict=True)
        )

    function, derivative = (value, slope) if order == 1 else (slope, None)
    if derivative is None:

        def derivative(arguments):
            with tf.GradientTape() as tape:
                tape.watch(arguments)
                y = slope(arguments)
            return sum(
                tf.reduce_sum(tf.math.real(tf.math.conj(g) * s))
                for g, s in zip(tape.gradient(y, arguments), steps, strict=True)
            )

    def at(h):
        return [tf.constant(p + h * s) for p, s in zip(point, steps, strict=True)]

    h = 1e-5
    expected = (function(at(h)) - function(at(-h))) / (2 * h)
    np.testing.assert_allclose(derivative(at(0.0)), expected, rtol=1e-6)


MEANS = {
    "zero": None,
    "constant": cgp.means.Constant(0.3j),
    "marginalised": cgp.means.Polynomial(2, marginalized=True, scale=10.0),
}
PROBLEMS = {problem.name: problem for problem in problems()}
WITH_ALL = [("all improper", "constant"), ("all improper", "marginalised")]


@pytest.mark.parametrize(
    ("name", "mean"),
    long_except(
        [
            *WITH_ALL,
            ("proper", "zero"),
            ("improper", "constant"),
            ("improper noise", "marginalised"),
        ],
        *WITH_ALL,
    ),
)
def test_is_the_gradient_by_every_hyperparameter_that_of_central_differences(name, mean):
    x, z = series(missing=[2])
    gp = PROBLEMS[name].gp(mean=MEANS[mean])

    def value():
        return gp.log_marginal_likelihood(x, z)

    with tf.GradientTape() as tape:
        y = value()
    variables = gp.trainable_variables
    assert len(variables) == len(gp.parameters())
    for variable, gradient in zip(variables, tape.gradient(y, variables), strict=True):
        start = variable.numpy()
        for index in np.ndindex(*start.shape):
            shift = np.zeros_like(start)
            shift[index] = 1e-5
            variable.assign(start + shift)
            up = value()
            variable.assign(start - shift)
            slope = (up - value()) / 2e-5
            variable.assign(start)
            np.testing.assert_allclose(gradient.numpy()[index], slope, rtol=1e-6, atol=1e-6)


def test_do_gradients_reach_inputs_and_targets():
    rng = np.random.default_rng(3)
    gp = cgp.ExactGP(WidelyLinear(RBF(1.0, 1.0) * Rotation(0.3), 0.4j), 0.1)
    x, z = tf.constant(rng.normal(size=(6, 2))), tf.constant(complex_normals(rng, 6))

    def loss(x, z):
        gp((x, z))
        return gp.losses[-1]

    with tf.GradientTape() as tape:
        tape.watch([x, z])
        value = loss(x, z)
    gx, gz = tape.gradient(value, [x, z])
    dx, dz = rng.normal(size=x.shape), complex_normals(rng, 6)
    h = 1e-6
    expected = (loss(x + h * dx, z + h * dz) - loss(x - h * dx, z - h * dz)) / (2 * h)
    found = np.sum(gx.numpy() * dx) + np.sum((np.conj(gz.numpy()) * dz).real)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_is_the_gradient_right_where_the_inverse_is_worked_out_in_blocks():
    x, z = series(4, 300)
    envelope = RBF(1.0, 2.0)
    gp = cgp.ExactGP(envelope * Rotation(0.4), 0.2)
    variable = envelope.lengthscale.variable
    with tf.GradientTape() as tape:
        y = gp.log_marginal_likelihood(x, z)
    gradient = tape.gradient(y, variable)
    start = variable.numpy()
    variable.assign(start + 1e-5)
    up = gp.log_marginal_likelihood(x, z)
    variable.assign(start - 1e-5)
    slope = (up - gp.log_marginal_likelihood(x, z)) / 2e-5
    np.testing.assert_allclose(gradient, slope, rtol=1e-7)
