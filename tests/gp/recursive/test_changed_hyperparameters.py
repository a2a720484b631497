"""Hyperparameters that change in mid-stream, and what a tracker then says."""

import numpy as np
import pytest

import cgp
from cgp.kernels import RBF, WidelyLinear
from tests.gp.recursive.streams import as_new, exact

X_NEW = np.linspace(-0.5, 3.0, 9)


def stream(count=12, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(2, count))
    return np.sort(rng.uniform(0.0, 3.0, count)), z[0] + 1j * z[1]


def assert_alike(one, other, tolerance=1e-10):
    for name, values in one.predict(X_NEW).items():
        np.testing.assert_allclose(values, other.predict(X_NEW)[name], rtol=0, atol=tolerance)


every_policy = pytest.mark.parametrize("policy", ["growing", "sliding", "budget"])


def circular(policy, forgetting=1.0):
    """Of twelve points, or the last five."""

    def make():
        return cgp.RecursiveGP(
            RBF(1.0, 1.0),
            0.1,
            mean=cgp.means.Constant(0.3),
            policy=policy,
            capacity=5 if policy == "sliding" else 12,
            forgetting=forgetting,
        )

    return as_new(("circular", policy, forgetting), make)


def improper(policy):
    """Of twelve points."""

    def make():
        kernel = WidelyLinear(RBF(1.0, 1.0), 0.4)
        return cgp.RecursiveGP(kernel, 0.2, 0.02 + 0.05j, policy=policy, capacity=12)

    return as_new(("improper", policy), make)


@pytest.mark.parametrize("forgetting", [pytest.param(1.0, marks=pytest.mark.long), 0.93])
@every_policy
def test_is_a_mean_that_changes_as_if_it_had_always_been(policy, forgetting):
    x, z = stream()
    z[4] = np.nan
    gp = circular(policy, forgetting)
    gp.process(x, z)
    other_mean = gp.predict(X_NEW)
    gp.mean.value.assign(2.0 - 1.0j)
    changed = gp.predict(X_NEW)
    gp.reset()
    gp.process(x, z)
    always = gp.predict(X_NEW)
    for name, values in changed.items():
        np.testing.assert_allclose(values, always[name], rtol=0, atol=1e-10)
    assert np.abs(changed["mean"] - other_mean["mean"]).max() > 1e-2


@every_policy
@pytest.mark.parametrize(
    "circularity",
    [
        pytest.param(0.6, marks=pytest.mark.long),
        pytest.param(-0.2j, marks=pytest.mark.long),
        0.9 * np.exp(2j),
    ],
)
def test_is_noise_of_another_circularity_that_of_an_exact_process(policy, circularity):
    x, z = stream()
    gp = improper(policy)
    gp.process(x, z)
    gp.noise_variance.assign(0.15)
    gp.noise_circularity.assign(circularity)
    assert_alike(gp, exact(gp, x, z))


def test_does_a_budget_turn_with_its_data_when_the_circularity_changes():
    x, z = stream(30)
    turn = np.exp(0.7j)
    gps = []
    for phase in (1.0, turn):
        gp = improper("budget")
        gp.kernel.coefficient.assign(0.4 * phase**2)
        gp.noise_circularity.assign(0.1 * phase**2)
        gp.process(x, phase * z)
        assert gp.size == 12
        gp.noise_circularity.assign(0.7 * phase**2)
        gps.append(gp.predict(X_NEW))
    plain, turned = gps
    np.testing.assert_allclose(turned["mean"], turn * plain["mean"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(turned["variance"], plain["variance"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        turned["pseudo_variance"], turn**2 * plain["pseudo_variance"], rtol=0, atol=1e-9
    )


@every_policy
@pytest.mark.parametrize("spell", [30, pytest.param(1500, marks=pytest.mark.long)])
def test_does_a_change_after_long_silences_find_a_covariance(policy, spell):
    gp = circular(policy, 0.93)
    gp.mean.value.assign(0.0)
    gp.noise_variance.assign(0.05)
    for x in (0.0, 0.1, 0.2, 0.3):
        gp.process(np.full(31, x), np.append(1.0 + 0.5j, np.full(30, np.nan)))
    gp.process(np.zeros(spell), np.full(spell, np.nan + 0j))
    for variance in (0.5, 0.01, 10.0):
        gp.kernel.variance.assign(variance)
        found = gp.predict(X_NEW)
        assert np.all((found["variance"] >= 0) & (found["variance"] <= variance * (1 + 1e-9)))
        if spell == 1500:  # all forgotten
            np.testing.assert_allclose(found["variance"], variance, rtol=1e-9)
            np.testing.assert_allclose(found["mean"], 0.0, atol=1e-9)
    assert np.isfinite(gp.process([0.4], [1j]).filtered.mean)


def test_is_the_loss_of_blocks_the_mean_over_the_samples_that_were_seen():
    x, z = stream(30)
    gone = np.full(30, np.nan + 0j)

    def make():
        kernel = RBF(1.0, 1.0)
        gp = cgp.RecursiveGP(kernel, 0.1, policy="growing", capacity=60, fixed=["noise_variance"])
        gp.compile("sgd", run_eagerly=True)
        gp.optimizer.learning_rate = 0.0
        return gp

    def loss(z):
        gp = as_new(("blocks", z.ndim), make)
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


@every_policy
def test_is_a_signal_on_a_line_never_more_improper_than_it_varies(policy):
    gp = improper(policy)
    gp.kernel.coefficient.assign(1j)  # of modulus 1: along a line
    gp.noise_variance.assign(1e-12)
    gp.noise_circularity.assign(0.0)
    x = np.tile([0.0, 0.3, 0.0, 0.7], 3 if policy == "growing" else 15)
    steps = gp.process(x, np.exp(0.25j * np.pi) * np.cos(x))
    for k, c in (steps.predicted[1:], steps.filtered[1:]):
        assert np.all(k >= 0)
        assert np.all(np.abs(c) <= k * (1 + 1e-12))


def test_do_streams_that_are_refused_leave_the_shapes_open():
    x, z = stream(5)
    gp = cgp.RecursiveGP(RBF(1.0, 1.0), 0.1, policy="growing", capacity=3)
    with pytest.raises(ValueError, match="capacity is 3"):
        gp.process(x, np.stack([z, z]))
    gp.process(x[:3], z[:3])
    assert gp.size == 3


def test_is_one_sample_of_a_batch_of_one_taken_in():
    gp = cgp.RecursiveGP(RBF(1.0, 1.0), 0.1)
    gp.step(0.0, [1j], missing=[False])  # of shapes (1, 1) and (1, 1) inside: nothing to mistake
    gp.process([[1.0]], np.array([[1j]]))
    assert gp.size.tolist() == [2]
