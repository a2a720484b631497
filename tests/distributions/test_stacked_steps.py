"""Steps of an online filter, stacked over time.

The tests of the filters compare the stacked results of `step` with those of `process`.
"""

import numpy as np
import pytest

import cgp
from cgp import metrics, plotting
from cgp.distributions import Marginals, Step


def step(seed=0, shape=(), states=None):
    """A step of arrays of a shape; the state may have one of its own."""
    rng = np.random.default_rng(seed)

    def moments(shape):
        mean, w = rng.normal(size=(2, *shape, 2)) @ [1.0, 1j]
        return Marginals(mean, 1.0 + np.abs(w), w)

    predicted = moments(shape)
    innovation = rng.normal(size=(*shape, 2)) @ [1.0, 1j]
    return Step(predicted, innovation, moments(shape if states is None else states))


def test_stacked_steps_are_what_process_returns():
    x, z = np.array([0.0, 0.3, 0.9, 1.0]), np.array([1.0 + 1j, np.nan, 0.2j, -0.5])
    gp = cgp.StateSpaceGP(cgp.kernels.Matern12(1.0, 1.0), noise_variance=0.5)
    for targets in (z, np.stack([z, 2j * z])):
        gp.reset()
        block = gp.process(x, targets)
        gp.reset()
        stacked = Step.stack(gp.step(x[t], targets[..., t]) for t in range(4))
        for whole, one_by_one in zip(block.predicted, stacked.predicted, strict=True):
            np.testing.assert_allclose(one_by_one, whole, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(stacked.innovation, block.innovation, rtol=1e-12)
        for whole, one_by_one in zip(block.filtered, stacked.filtered, strict=True):
            np.testing.assert_allclose(one_by_one, whole, rtol=1e-12, atol=1e-12)
        held = metrics.coverage(targets, stacked.predicted)
        assert held == metrics.coverage(targets, block.predicted) > 0.5
    upper, _ = plotting.series(x, z, stacked.map(lambda a: a[0]).predicted)
    np.testing.assert_array_equal(upper.lines[0].get_ydata(), stacked.predicted.mean[0].real)


@pytest.mark.parametrize(
    ("shape", "states", "axis", "expected"),
    [
        ((), (), -1, ((3,), (3,))),
        ((5,), (5,), -1, ((5, 3), (5, 3))),
        ((2,), (4,), -2, ((3, 2), (3, 4))),  # of a KalmanFilter
        ((5, 2), (5, 4), -2, ((5, 3, 2), (5, 3, 4))),
    ],
)
def test_time_is_where_process_has_it(shape, states, axis, expected):
    steps = [step(seed, shape, states) for seed in range(3)]
    stacked = Step.stack(steps, axis)
    assert (stacked.innovation.shape, stacked.filtered.mean.shape) == expected
    for t, one in enumerate(steps):
        at = stacked.map(lambda a, t=t: np.take(a, t, axis))
        for part, whole in zip(at.predicted, one.predicted, strict=True):
            np.testing.assert_array_equal(part, whole)
        for part, whole in zip(at.filtered, one.filtered, strict=True):
            np.testing.assert_array_equal(part, whole)


@pytest.mark.parametrize(
    ("stack", "error", "message"),
    [
        (lambda: Step.stack([]), ValueError, "no steps to stack"),
        (lambda: Step.stack(step()), TypeError, "must be a Step, got Marginals"),
        (
            lambda: Step.stack([step(), step(), step(shape=(2,))]),
            ValueError,
            r"step 0 has arrays of shape \(\), step 2 of shape \(2,\)",
        ),
        (
            lambda: Step.stack([step(shape=(2,)), step(shape=(2,), states=(3,))]),
            ValueError,
            r"shape \(2,\), step 1 of shape \(3,\)",
        ),
        (lambda: Step.stack([step()], axis=-2), ValueError, "along axis -2: expected −1"),
    ],
)
def test_what_cannot_be_stacked_is_named(stack, error, message):
    with pytest.raises(error, match=message):
        stack()
