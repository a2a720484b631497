"""What the drivers of cells promise, whatever the cell: first samples, refusals, currency."""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import Matern12, Rotation
from cgp.layers import Recursive
from cgp.likelihoods import StudentT
from cgp.online import Cell, Online, Sample, step_of


class Last(NamedTuple):
    mean: tf.Tensor


class LastValue(Cell):
    """Predicts that a value stays; its state does not show that the one before was blank."""

    State = Last

    def sample_spec(self):
        return Sample(z=tf.TensorSpec([], tf.complex128, "z"))

    def initial_state(self, batch_size, sample=None):
        return Last(tf.zeros([batch_size], tf.complex128))

    def step(self, state, sample):
        return Last(sample.z), step_of(sample.z, state.mean, sample.z)


def process(kind=cgp.StateSpaceGP, **settings):
    return kind(Matern12(1.0, 3.0) * Rotation(0.1), 0.2, **settings)


def test_does_the_first_sample_find_the_initial_state():
    layer = Online(LastValue())
    assert layer.step(2j).predicted.mean == 0.0
    assert Online(LastValue()).process([2j, 1.0]).predicted.mean.tolist() == [0.0, 2j]
    assert layer.step(1j).predicted.mean == 2j


def test_has_a_round_of_a_bank_as_many_samples_as_there_are():
    """The cell does not know missing values: none fill a round up."""
    step = cgp.Bank(LastValue()).update(["a", "b", "a"], [1j, 2j, 3j])
    np.testing.assert_array_equal(step.predicted.mean, [0.0, 0.0, 1j])


def test_does_a_process_recover_from_hyperparameters_that_were_refused():
    x, z = np.arange(4.0), np.array([1.0, 1j, -1.0, -1j])
    gp, other = process(), process()
    for t in range(3):
        gp.step(x[t], z[t])
        other.step(x[t], z[t])
    gp.noise_variance.variable.assign(np.nan)
    with pytest.raises(ValueError, match="finite"):
        gp.step(x[3], z[3])
    gp.noise_variance.assign(0.2)
    step, expected = gp.step(x[3], z[3]), other.step(x[3], z[3])
    np.testing.assert_allclose(step.predicted.variance, expected.predicted.variance, rtol=1e-12)
    np.testing.assert_allclose(step.filtered.mean, expected.filtered.mean, rtol=1e-12)


def test_does_a_budget_recover_from_hyperparameters_that_were_refused():
    x, z = np.arange(6.0), np.exp(0.4j * np.arange(6.0))
    gp, other = (process(cgp.RecursiveGP, capacity=3, policy="budget") for _ in range(2))
    gp.process(x, z)
    other.process(x, z)
    gp.compile()
    gp.noise_variance.variable.assign(np.nan)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        gp.evaluate(x + 6.0, z, verbose=0)
    gp.noise_variance.assign(0.2)
    step, expected = gp.step(6.0, 1j), other.step(6.0, 1j)
    np.testing.assert_allclose(step.filtered.mean, expected.filtered.mean, rtol=1e-9)


@pytest.mark.parametrize("policy", ["sliding", "budget"])
def test_is_the_gradient_of_pieces_that_of_differences(policy):
    x, z = np.arange(8.0)[None, :, None], np.exp(0.4j * np.arange(8.0) ** 1.3)[None]
    gp = process(cgp.RecursiveGP, capacity=3, policy=policy)
    layer = Recursive(gp, return_state=True)
    variable = gp.noise_variance.variable

    def score():
        _, *state = layer((x[:, :6], z[:, :6]))
        return tf.reduce_sum(
            tf.abs(layer((x[:, 6:], z[:, 6:]), initial_state=state)[0]["filtered_mean"]) ** 2
        )

    with tf.GradientTape() as tape:
        value = score()
    gradient = tape.gradient(value, variable)
    start, h = float(variable), 1e-5
    values = []
    for step in (h, -h):
        variable.assign(start + step)
        values.append(float(score()))
    variable.assign(start)
    np.testing.assert_allclose(gradient, (values[0] - values[1]) / (2 * h), rtol=1e-5)
    assert abs(float(gradient)) > 1e-4


def test_is_a_process_of_another_likelihood_refused_sample_by_sample():
    gp = process(likelihood=StudentT(4.0))
    for call in (
        lambda: Recursive(gp)((np.ones((1, 2, 1)), np.ones((1, 2)) + 0j)),
        lambda: Online(gp.cell).step(1j, [0.0]),
        lambda: cgp.Bank(gp),
    ):
        with pytest.raises(ValueError, match="normal noise, got likelihood"):
            call()


@pytest.mark.parametrize("kind", [cgp.StateSpaceGP, cgp.RecursiveGP])
def test_may_a_call_or_a_forecast_of_a_bank_be_empty(kind, without_core):
    def run():
        bank = cgp.Bank(process(kind))
        empty = np.zeros(0)
        shapes = [bank.update([], empty + 0j, empty).innovation.shape]
        shapes += [bank.update([], empty + 0j, empty, likelihood=StudentT(4.0)).innovation.shape]
        return [*shapes, bank.forecast([1.0]).mean.shape]

    for shapes in (run(), without_core(run)):
        assert shapes == [(0,), (0,), (0, 1)]


@pytest.mark.parametrize("kind", [cgp.StateSpaceGP, cgp.RecursiveGP])
def test_is_an_outlier_of_an_improper_signal_met_as_in_the_real_composite(kind):
    """The weight and the posterior of the signal agree, in two real numbers."""
    kernel = cgp.kernels.WidelyLinear(Matern12(1.0, 3.0) * Rotation(0.1), 0.5 + 0.4j)
    gp, nu, noise, z = kind(kernel, 0.2), 4.0, 0.2, 3.0 - 2.5j
    gp.step(0.0, 0.3 + 0.8j)
    mean, v, c = (
        gp.predict([0.7], verbose=0)[n][0] for n in ("mean", "variance", "pseudo_variance")
    )
    K = 0.5 * np.array([[v + c.real, c.imag], [c.imag, v - c.real]])
    d, weight = np.array([(z - mean).real, (z - mean).imag]), 1.0
    for _ in range(500):
        gain = K @ np.linalg.inv(K + 0.5 * noise / weight * np.eye(2))
        residual, after = d - gain @ d, K - gain @ K
        square = residual @ residual + np.trace(after)
        weight = min((nu / 2 + 1) / (nu / 2 + square / noise), 1.0)
    step = gp.step(0.7, z, likelihood=StudentT(nu))
    assert abs(c) > 0.1
    assert weight < 0.9
    np.testing.assert_allclose(step.filtered.mean, mean + (gain @ d) @ [1.0, 1.0j], rtol=1e-7)
    np.testing.assert_allclose(step.filtered.variance, np.trace(after), rtol=1e-7)
