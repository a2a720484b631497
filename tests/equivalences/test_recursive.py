"""A recursive Gaussian process is an exact one, whatever the road."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import Kernel, WidelyLinear
from cgp.linalg.arguments import as_complex
from tests.gp.problems import NOISE, complex_normals
from tests.gp.recursive.streams import (
    CAPACITY,
    FORGETTING,
    assert_predictions,
    assert_steps,
    borrowed,
    exact,
    named,
    stepped,
    steps_at,
    stream,
    taken_eagerly,
    tracker,
)
from tests.long_cases import long_except
from tests.reference import recursive as reference

X_NEW = np.array([-1.0, 0.3, 2.2, 5.0, 11.0])

every_policy = pytest.mark.parametrize("policy", CAPACITY)
proper_or_not = pytest.mark.parametrize("name", ["proper", "all improper"])


@proper_or_not
def test_is_a_growing_gp_the_exact_gp_at_every_size(name):
    x, z = stream()
    gp, problem = borrowed(name, "growing"), named(name)
    for start in range(0, 40, 8):
        block = np.s_[start : start + 8]
        before = exact(gp, x[:start], z[:start]) if start else problem.gp()
        expected = before.predict(x[start : start + 1], observed=True)
        step = gp.process(x[block], z[block])
        for moment, value in expected.items():
            found = getattr(step.predicted, moment)[0]
            np.testing.assert_allclose(found, value[0], rtol=1e-8, atol=1e-8)
        other = exact(gp, x[: start + 8], z[: start + 8])
        assert_predictions(gp.predict(X_NEW), other.predict(X_NEW), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["proper", "improper", "all improper"])
def test_is_a_sliding_gp_the_exact_gp_of_the_last_whatever_came_before(name):
    """Two pasts, one window."""
    x, z = stream()
    gp = borrowed(name, "sliding")
    held = reference.last_seen(z, CAPACITY["sliding"])
    expected = exact(gp, x[held], z[held]).predict(X_NEW)
    gp.process(x, z)
    assert_predictions(gp.predict(X_NEW), expected, rtol=1e-8, atol=1e-8)
    gp.process(x[::-1], 100 * z[::-1])
    gp.process(x[held], z[held])
    assert_predictions(gp.predict(X_NEW), expected, rtol=1e-8, atol=1e-8)


@proper_or_not
def test_is_the_chain_rule_over_steps_the_marginal_likelihood(name):
    x, z = stream(missing=())
    steps = borrowed(name, "growing").process(x, z)
    found = -40 * cgp.metrics.negative_log_predictive_density(z, steps.predicted)
    np.testing.assert_allclose(found, named(name).gp().log_marginal_likelihood(x, z), rtol=1e-10)


class OverTime(Kernel):
    """A kernel over inputs `[..., D]` times `λ^{|n−n'|/2}` over the last coordinate, the step."""

    def __init__(self, kernel, forgetting):
        super().__init__(dtype=kernel.variable_dtype)
        self.kernel, self.forgetting = kernel, forgetting
        self.is_proper, self.is_real = kernel.is_proper, kernel.is_real
        self.declare_parameters({}, (), None)

    def moments(self, x1, x2):
        k, c = self.kernel.checked_moments(x1[..., :-1], x2[..., :-1])
        kept = self.forgetting ** (tf.abs(x1[..., -1] - x2[..., -1]) / 2)
        kept = as_complex(kept)
        return as_complex(k) * kept, None if c is None else as_complex(c) * kept


@pytest.mark.parametrize(("policy", "name"), [("growing", "proper"), ("sliding", "all improper")])
def test_is_a_gp_that_forgets_an_exact_gp_of_input_and_time(policy, name):
    x, z = stream()
    gp = borrowed(name, policy, 0.93)
    gp.process(x, z)
    held = reference.last_seen(z, CAPACITY[policy])
    problem = named(name)
    kernel = OverTime(problem.kernel, 0.93)
    other = cgp.ExactGP(kernel, NOISE, problem.noise_pseudo_variance)
    other.condition(np.stack([x, np.arange(40.0)], axis=-1)[held], z[held])
    now = np.stack([X_NEW, np.full(len(X_NEW), 39.0)], axis=-1)
    assert_predictions(gp.predict(X_NEW), other.predict(now), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(
        gp.posterior(X_NEW).covariance(), other.posterior(now).covariance(), rtol=1e-8, atol=1e-8
    )


def test_is_a_budget_that_is_not_used_up_growth():
    x, z = stream()
    budget = borrowed("proper", "budget", capacity=40)
    growing = borrowed("proper", "growing", 0.93)
    found, expected = budget.process(x, z), growing.process(x, z)
    assert_steps(found, expected, rtol=1e-8, atol=1e-8)
    assert_predictions(budget.predict(X_NEW), growing.predict(X_NEW), rtol=1e-8, atol=1e-8)


def test_does_a_budget_for_every_place_lose_nothing_but_its_nugget():
    """Data at nine places again and again: nothing is lost by keeping nine points."""
    rng = np.random.default_rng(0)
    places = np.linspace(0.0, 10.0, CAPACITY["budget"])
    x = np.concatenate([places, rng.choice(places, 31)])
    z = complex_normals(rng, 40)
    budget, growing = borrowed("proper", "budget", 1.0), borrowed("proper", "growing")
    found, expected = budget.process(x, z), growing.process(x, z)
    assert_steps(found, expected, rtol=2e-3, atol=2e-3)
    assert_predictions(budget.predict(X_NEW), growing.predict(X_NEW), rtol=2e-3, atol=2e-3)
    window = borrowed("proper", "sliding").process(x, z)
    assert np.abs(window.filtered.variance - expected.filtered.variance).max() > 0.02


@pytest.mark.parametrize("policy", ["budget"])
def test_is_an_improper_gp_without_pseudo_covariance_the_proper_one(policy):
    x, z = stream()
    kwargs = {"policy": policy, "capacity": CAPACITY[policy], "forgetting": FORGETTING[policy]}
    problem = named("proper")
    improper = cgp.RecursiveGP(WidelyLinear(problem.kernel, 0.0), NOISE, **kwargs)
    proper = borrowed("proper", policy)
    found, expected = improper.process(x, z), proper.process(x, z)
    assert_steps(found, expected, rtol=1e-8, atol=1e-8)
    assert_predictions(improper.predict(X_NEW), proper.predict(X_NEW), rtol=1e-8, atol=1e-8)


@every_policy
def test_does_a_proper_gp_turn_with_its_data(policy):
    """z → e^{iθ} z turns means and innovations, and no variance."""
    turn = np.exp(0.7j)
    x, z = stream()
    gp = borrowed("proper", policy)
    expected = rotated(gp.process(x, z), turn)
    gp.reset()
    assert_steps(gp.process(x, turn * z), expected, 1e-9, 1e-10)


@every_policy
def test_does_an_improper_gp_turn_with_its_data_and_pseudo_covariances(policy):
    """The kernel turns where the rotation is inside the widely linear one."""
    turn = np.exp(0.7j)
    x, z = stream()
    gp = borrowed("all improper", policy)
    expected = rotated(gp.process(x, z), turn)
    gp.reset()
    unturned = gp.process(x, turn * z)
    assert np.nanmax(np.abs(unturned.innovation - expected.innovation)) > 0.05
    gp.reset()
    for name in ("widelylinear.coefficient", "noise_circularity"):
        parameter = gp.named_hyperparameters()[name]
        parameter.assign(turn**2 * parameter.numpy())
    assert_steps(gp.process(x, turn * z), expected, 1e-9, 1e-9)


def rotated(steps, turn):
    def moments(m):
        return reference.Moments(turn * m.mean, m.variance, turn**2 * m.pseudo_variance)

    return reference.Steps(
        moments(steps.predicted), turn * steps.innovation, moments(steps.filtered)
    )


@pytest.mark.parametrize(("policy", "name"), [("sliding", "all improper")])
def test_does_a_conjugated_signal_have_conjugated_moments(policy, name):
    """Of the conjugate kernel: a missing conjugation would show here."""
    x, z = stream()
    problem = named(name)
    kwargs = {"policy": policy, "capacity": CAPACITY[policy], "forgetting": FORGETTING[policy]}
    gp = borrowed(name, policy)
    conjugate = cgp.RecursiveGP(
        cgp.kernels.Conjugate(problem.kernel),
        NOISE,
        np.conj(problem.noise_pseudo_variance),
        **kwargs,
    )
    steps = gp.process(x, z)
    expected = reference.Steps(
        reference.Moments(*map(np.conj, steps.predicted)),
        np.conj(steps.innovation),
        reference.Moments(*map(np.conj, steps.filtered)),
    )
    assert_steps(conjugate.process(x, np.conj(z)), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("policy", "name"), [("sliding", "proper")])
def test_is_a_batch_a_loop_over_its_series(policy, name):
    """Full at different times, and so in different branches."""
    rng = np.random.default_rng(1)
    x, z = rng.uniform(0.0, 10.0, (4, 30, 1)), complex_normals(rng, 4, 30)
    z[rng.uniform(size=z.shape) < 0.1] = np.nan
    z[0, :20] = z[2, 3:9] = np.nan
    together = tracker(named(name), policy=policy, capacity=CAPACITY[policy])
    found = together.process(x, z)
    for b in range(4):
        single = borrowed(name, policy)
        assert_steps(steps_at(found, b), single.process(x[b], z[b]), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("policy", long_except(CAPACITY, "sliding"))
@pytest.mark.parametrize("name", long_except(["proper", "all improper"], "all improper"))
def test_is_eager_the_same_as_compiled(policy, name, monkeypatch):
    x, z = stream(n=16)
    gp = borrowed(name, policy)
    expected = gp.process(x, z)
    gp.reset()
    monkeypatch.setattr(gp.stream, "_compiled", None)
    monkeypatch.setattr(gp.stream, "_take_traced", functools.partial(taken_eagerly, gp.stream))
    eager = stepped(gp, x, z)
    assert_steps(eager, expected, rtol=1e-10, atol=1e-10)
