"""Gradients of predictions, through the stored factor, by hyperparameters and by inputs."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from tests.gp.differences import assert_are_differences
from tests.gp.problems import problems, series
from tests.long_cases import long_except

X_NEW = np.array([-0.5, 2.2, 9.0])
MEANS = {
    "zero": lambda: None,
    "fitted": lambda: cgp.means.Polynomial(1, [0.3, -0.2j], scale=5.0),
    "marginalised": lambda: cgp.means.Polynomial(1, marginalized=True, scale=5.0),
}
EVERY_PART = np.array([0.7, -1.3, 0.4])


def score(posterior):
    """A number that depends on every moment."""
    weights = tf.constant(EVERY_PART + 0.3j)
    matrix = tf.constant(np.outer(EVERY_PART, EVERY_PART[::-1]) + 0.1j)
    total = tf.reduce_sum(weights * posterior.mean())
    total += tf.reduce_sum(matrix * posterior.covariance())
    total += tf.reduce_sum(matrix * posterior.pseudo_covariance())
    total += tf.reduce_sum(weights * posterior.pseudo_variance())
    variance = tf.reduce_sum(tf.constant(EVERY_PART) * posterior.variance())
    return tf.math.real(total) + variance + posterior.log_prob(tf.constant(EVERY_PART - 0.2j))


PROBLEMS = {problem.name: problem for problem in problems()}
ALONG_A_DIRECTION = [("all improper", mean, False) for mean in ("fitted", "marginalised")]
BY_EACH_ELEMENT = [
    *(("all improper", mean, True) for mean in MEANS),
    ("proper", "zero", True),
    ("improper", "fitted", True),
    ("improper noise", "marginalised", True),
]


@pytest.mark.parametrize(
    ("name", "mean", "each"),
    long_except([*ALONG_A_DIRECTION, *BY_EACH_ELEMENT], *ALONG_A_DIRECTION),
)
def test_is_the_gradient_of_a_posterior_that_of_central_differences(name, mean, each):
    x, z = series(n=14, missing=[2])
    gp = PROBLEMS[name].gp(mean=MEANS[mean]())
    gp.condition(x, z)

    def value(x_new=X_NEW):
        return score(gp.posterior(x_new, observed=True))

    points = tf.constant(X_NEW)
    with tf.GradientTape() as tape:
        tape.watch(points)
        y = value(points)
    variables = gp.trainable_variables
    *gradients, by_x = tape.gradient(y, [*variables, points])
    h, tolerance = 1e-5, {"rtol": 1e-6, "atol": 2e-6}
    assert_are_differences(value, variables, gradients, h, each, **tolerance)
    for i in range(3):
        shift = h * np.eye(3)[i]
        slope = (value(X_NEW + shift) - value(X_NEW - shift)) / (2 * h)
        np.testing.assert_allclose(by_x[i], slope, **tolerance)


@pytest.mark.long
@pytest.mark.parametrize("mean", ["fitted", "marginalised"])
def test_are_predictions_and_gradients_of_a_graph_those_of_eager_mode(mean):
    gp = problems()[1].gp(mean=MEANS[mean]())
    gp.condition(*series(n=10))

    def both(x):
        with tf.GradientTape() as tape:
            found = gp(x)
            y = tf.math.real(tf.reduce_sum(found["mean"])) + tf.reduce_sum(found["variance"])
        return y, tape.gradient(y, gp.trainable_variables)

    graph = tf.function(both, autograph=False)
    for n in (10, 17):
        gp.condition(*series(n=n))
        expected, gradients = both(tf.constant(X_NEW))
        y, found = graph(tf.constant(X_NEW))
        np.testing.assert_allclose(y, expected, rtol=1e-11)
        for a, b in zip(found, gradients, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
