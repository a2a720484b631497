"""Hyperparameters that change in mid-stream, and what a tracker then says."""

import numpy as np
import pytest

import cgp
from cgp.kernels import RBF, WidelyLinear
from tests.gp.recursive.streams import exact

X_NEW = np.linspace(-0.5, 3.0, 9)


def stream(count=12, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(2, count))
    return np.sort(rng.uniform(0.0, 3.0, count)), z[0] + 1j * z[1]


def assert_alike(one, other, tolerance=1e-10):
    for name, values in one.predict(X_NEW).items():
        np.testing.assert_allclose(values, other.predict(X_NEW)[name], rtol=0, atol=tolerance)


@pytest.mark.parametrize("forgetting", [1.0, 0.9])
@pytest.mark.parametrize(("policy", "capacity"), [("growing", 12), ("sliding", 5), ("budget", 12)])
def test_is_a_mean_that_changes_as_if_it_had_always_been(policy, capacity, forgetting):
    x, z = stream()
    z[4] = np.nan

    def tracker(value):
        mean = cgp.means.Constant(value)
        return cgp.RecursiveGP(
            RBF(), 0.1, mean=mean, policy=policy, capacity=capacity, forgetting=forgetting
        )

    changed, always = tracker(0.3), tracker(2.0 - 1.0j)
    changed.process(x, z)
    always.process(x, z)
    changed.mean.value.assign(2.0 - 1.0j)
    assert_alike(changed, always)


@pytest.mark.parametrize("policy", ["growing", "sliding", "budget"])
@pytest.mark.parametrize("circularity", [0.6, -0.2j, 0.9 * np.exp(2j)])
def test_is_noise_of_another_circularity_that_of_an_exact_process(policy, circularity):
    x, z = stream()
    gp = cgp.RecursiveGP(WidelyLinear(RBF(), 0.4), 0.2, 0.02 + 0.05j, policy=policy, capacity=12)
    gp.process(x, z)
    gp.noise_variance.assign(0.15)
    gp.noise_circularity.assign(circularity)
    assert_alike(gp, exact(gp, x, z))


def test_does_a_budget_turn_with_its_data_when_the_circularity_changes():
    x, z = stream(30)
    turn = np.exp(0.7j)
    gps = []
    for phase in (1.0, turn):
        kernel = WidelyLinear(RBF(), 0.4 * phase**2)
        gp = cgp.RecursiveGP(kernel, 0.2, 0.02 * phase**2, policy="budget", capacity=7)
        gp.process(x, phase * z)
        gp.noise_circularity.assign(0.7 * phase**2)
        gps.append(gp.predict(X_NEW))
    plain, turned = gps
    np.testing.assert_allclose(turned["mean"], turn * plain["mean"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(turned["variance"], plain["variance"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        turned["pseudo_variance"], turn**2 * plain["pseudo_variance"], rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("policy", ["growing", "sliding", "budget"])
@pytest.mark.parametrize("spell", [30, 1500])
def test_does_a_change_after_long_silences_find_a_covariance(policy, spell):
    gp = cgp.RecursiveGP(RBF(), 0.05, policy=policy, capacity=6, forgetting=0.93)
    for x in (0.0, 0.1, 0.2, 0.3):
        gp.step(x, 1.0 + 0.5j)
        gp.process(np.full(30, x), np.full(30, np.nan + 0j))
    gp.process(np.zeros(spell), np.full(spell, np.nan + 0j))
    for variance in (0.5, 0.01, 10.0):
        gp.kernel.variance.assign(variance)
        found = gp.predict(X_NEW)
        assert np.all((found["variance"] >= 0) & (found["variance"] <= variance * (1 + 1e-9)))
        if spell == 1500:  # all forgotten
            np.testing.assert_allclose(found["variance"], variance, rtol=1e-9)
            np.testing.assert_allclose(found["mean"], 0.0, atol=1e-9)
    assert np.isfinite(gp.step(0.4, 1j).filtered.mean)


def test_is_the_loss_of_blocks_the_mean_over_the_samples_that_were_seen():
    x, z = stream(30)
    gone = np.full(30, np.nan + 0j)

    def loss(z):
        gp = cgp.RecursiveGP(RBF(), 0.1, policy="growing", capacity=200, fixed=["noise_variance"])
        gp.compile("sgd")
        gp.optimizer.learning_rate = 0.0
        inputs = np.concatenate([x, x])[: z.shape[-1]]
        return gp, gp.fit(inputs, z, batch_size=20, verbose=0).history["loss"][0]

    gp, alone = loss(z)
    np.testing.assert_allclose(loss(np.concatenate([z, gone]))[1], alone, rtol=1e-6)
    np.testing.assert_allclose(loss(z[None])[1], alone, rtol=1e-6)
    gp.reset()
    steps = gp.process(x, z)
    variance = steps.predicted.variance
    one_step = np.log(np.pi * variance) + np.abs(steps.innovation) ** 2 / variance
    np.testing.assert_allclose(alone, np.mean(one_step), rtol=1e-6)


@pytest.mark.parametrize("policy", ["growing", "sliding", "budget"])
def test_is_a_signal_on_a_line_never_more_improper_than_it_varies(policy):
    kernel = WidelyLinear(RBF(), 1j)  # |coefficient| = 1: along a line
    gp = cgp.RecursiveGP(kernel, 1e-12, policy=policy, capacity=60)
    x = np.tile([0.0, 0.3, 0.0, 0.7], 15)
    steps = gp.process(x, np.exp(0.25j * np.pi) * np.cos(x))
    for k, c in (steps.predicted[1:], steps.filtered[1:]):
        assert np.all(k >= 0)
        assert np.all(np.abs(c) <= k * (1 + 1e-12))


def test_do_streams_that_are_refused_leave_the_shapes_open():
    x, z = stream(5)
    gp = cgp.RecursiveGP(RBF(), 0.1, policy="growing", capacity=3)
    with pytest.raises(ValueError, match="capacity is 3"):
        gp.process(x, np.stack([z, z]))
    gp.process(x[:3], z[:3])
    assert gp.size == 3


def test_is_one_sample_of_a_batch_of_one_taken_in():
    gp = cgp.RecursiveGP(RBF(), 0.1)
    gp.step(0.0, [1j], missing=[False])  # of shapes (1, 1) and (1, 1) inside: nothing to mistake
    gp.process([[1.0]], np.array([[1j]]))
    assert gp.size.tolist() == [2]
