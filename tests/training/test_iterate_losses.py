"""The loss of the iterates of a descent."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.training.divergence import Trained
from cgp.training.lbfgs import Descent
from cgp.training.objective import Objective
from tests.long_cases import long_except


class Cliffs:
    """A loss 7 + e^−x, one number for each point; all points are on a cliff but the first few.

    So rounding makes that of a covariance without noise, where no step is short enough.
    """

    epsilon = float(np.finfo(float).eps)

    def __init__(self, count, height):
        self.count, self.height, self.known = count, height, {}

    def __call__(self, point):
        x = float(point[0])
        height = 0.0 if len(self.known) < self.count else self.height
        return self.known.setdefault(x, (7.0 + np.exp(-x) + height, np.array([-np.exp(-x)])))

    def assign(self, point):
        pass


@pytest.mark.parametrize(("count", "height"), [(2, 1e7), (8, 1e7), (8, 1e-3), (12, 1e-3)])
def test_has_the_point_that_a_descent_ends_at_the_loss_that_it_names(count, height):
    """What stands in for the loss on a cliff is that of no point."""
    loss, variable = Cliffs(count, height), tf.Variable([0.0], dtype=tf.float64)
    descent = Descent(loss, [Trained("x", variable, None)], np.array([3.0]))
    result = descent.run(cgp.optimizers.LBFGS(gtol=0.0), None)
    value, gradient = loss(descent.point)
    assert (descent.value, descent.gradient) == (value, gradient)
    assert descent.value < 7.0 + np.exp(-3.0)
    assert result.fun == pytest.approx(value, abs=1e-9)


def test_begins_a_descent_again_where_it_is():
    loss, variable = Cliffs(1, 1e7), tf.Variable([0.0], dtype=tf.float64)
    descent = Descent(loss, [Trained("x", variable, None)], np.array([3.0]))
    before = descent.value
    for _ in range(2):
        descent._value_and_gradient(np.array([4.0]))
        assert descent._value_and_gradient(np.array([3.0])) == (0.0, descent.gradient)
    assert (descent.value, *descent.point) == (before, 3.0)


@pytest.mark.parametrize("kind", long_except([cgp.ExactGP, cgp.StateSpaceGP], cgp.StateSpaceGP))
def test_is_a_loss_a_function_of_its_point(kind):
    """To the last bit, where the covariance is far from round, and after other points."""
    x = np.linspace(0.0, 30.0, 40)
    z = np.exp(0.6j * x) + 1e4 * (1.0 + 1.0j)
    gp = kind(cgp.kernels.Matern52(1e8, 1e3), 1e-3, mean=cgp.means.Polynomial(0, [1e4]))
    gp.compile(cgp.optimizers.LBFGS())
    loss = Objective(gp, gp.training_batch(gp._validated(x, z, None, gp.noise_arguments())))
    first = loss(loss.start)
    for shift in (0.3, -0.7, 1e-12):
        loss(loss.start + shift)
        value, gradient = loss(loss.start)
        assert value == first[0]
        np.testing.assert_array_equal(gradient, first[1])
    gp.condition(x, z)  # a factor of these data is there now
    value, gradient = loss(loss.start)
    np.testing.assert_allclose(value, first[0], rtol=1e-7)
