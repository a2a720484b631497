"""RecursiveGP on long streams, and on data that nobody would wish for."""

import numpy as np
import pytest

import cgp
from tests.gp.problems import complex_normals
from tests.gp.recursive.streams import (
    CAPACITY,
    assert_steps,
    assert_valid,
    assign,
    borrowed,
    named,
    noise,
    refitted,
    steps_at,
)
from tests.long_cases import long_except
from tests.reference import kernels as reference_kernels
from tests.reference import recursive as reference

X_NEW = np.array([-1.0, 0.3, 2.2, 5.0, 11.0])

few_policies_by_default = pytest.mark.parametrize(
    "policy", [pytest.param("growing", marks=pytest.mark.long), "sliding", "budget"]
)
improper_by_default = pytest.mark.parametrize(
    "name", [pytest.param("proper", marks=pytest.mark.long), "all improper"]
)
# The kernel is a rough one that turns and a smooth one: either may be left out.
ROUGH = {"rbf_variance": 1e-60}
SMOOTH = {"matern32_variance": 1e-60}


def assert_predictions_valid(gp, x_new=X_NEW):
    for observed in (False, True):
        predicted = gp.predict(x_new, observed=observed)
        assert all(np.isfinite(v).all() for v in predicted.values())
        variance = predicted["variance"]
        assert (variance >= 0).all()
        assert (np.abs(predicted["pseudo_variance"]) <= variance * (1 + 1e-9)).all()


def assert_held_up(gp, x, z):
    """The stream is taken in and every moment is one."""
    steps = gp.process(x, z)
    assert_valid(steps)
    assert np.isfinite(steps.innovation[~np.isnan(z)]).all()
    assert_predictions_valid(gp)
    return steps


# --- long streams ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.long
def test_do_100_000_steps_of_a_window_stay_those_of_brute_force():
    problem, total, window = named("proper"), 100_000, 32
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.exponential(0.3, total))
    z = complex_normals(rng, total)
    gp = cgp.RecursiveGP(problem.kernel, *noise(problem), capacity=window)
    block = 5_000
    for start in range(0, total, block):
        steps = gp.process(x[start : start + block], z[start : start + block], verbose=0)
        for last in (start + block // 2, start + block - 1):
            if last <= window:
                continue
            own = np.s_[last - window : last + 1]  # the window before it and itself
            expected = refitted(problem, x[own], z[own], window=window)
            for found, moments in (
                (steps.predicted, expected.predicted),
                (steps.filtered, expected.filtered),
            ):
                np.testing.assert_allclose(
                    [m[last - start] for m in found], [m[-1] for m in moments], rtol=1e-7, atol=1e-7
                )
    held = np.s_[-window:]
    other = cgp.ExactGP(problem.kernel, *noise(problem))
    other.condition(x[held], z[held])
    x_new = x[-1] + np.array([-3.0, 0.0, 0.1, 1.0])
    for key, value in other.predict(x_new).items():
        np.testing.assert_allclose(gp.predict(x_new)[key], value, rtol=1e-7, atol=1e-9)


@improper_by_default
def test_do_many_steps_of_an_ill_conditioned_window_stay_those_of_brute_force(name):
    """A smooth kernel under noise that hardly regularises it: condition 1e8."""
    n, window, variance = 2_000, CAPACITY["sliding"], 1e-7
    gp = assign(borrowed(name, "sliding"), noise_variance=variance, rbf_lengthscale=2.0, **SMOOTH)
    now = gp.parameters()
    x = 0.1 * np.arange(n)
    rng = np.random.default_rng(0)
    z = np.exp(0.4j * x) + 0.3 * np.sin(0.7 * x) + 1e-4 * complex_normals(rng, n)
    steps = gp.process(x, z, verbose=0)
    assert_valid(steps)
    pseudo_variance = now.get("noise_circularity", 0.0) * variance
    for last in range(100, n, 300):
        own = np.s_[last - window : last + 1]
        k = reference_kernels.rbf(x[own, None], x[own, None], now["rbf.variance"], 2.0)
        k, c = reference_kernels.widely_linear(k, 0 * k, now.get("widelylinear.coefficient", 0.0))
        expected = reference.refitted(z[own], k, c, (variance, pseudo_variance), window)
        found = steps_at(steps, np.s_[last : last + 1])
        assert_steps(found, steps_at(expected, np.s_[-1:]), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("policy", ["sliding", "budget"])
def test_does_a_budget_or_window_outlive_a_long_stream(policy):
    gp = borrowed("all improper", policy, 0.93)
    rng = np.random.default_rng(0)
    x, z = rng.uniform(0.0, 20.0, 3_000), complex_normals(rng, 3_000)
    assert_valid(gp.process(x, z, verbose=0))
    assert gp.size == CAPACITY[policy]
    assert_predictions_valid(gp)


# --- inputs ---------------------------------------------------------------------------------------


@few_policies_by_default
@pytest.mark.parametrize("name", ["proper", "all improper"])
def test_may_every_input_be_the_same(policy, name):
    """The posterior of one number from n measurements, under a window of the last."""
    n = 40
    gp = borrowed(name, policy)
    z = 2.0 + 0.1 * complex_normals(np.random.default_rng(0), n)
    found = assert_held_up(gp, np.full(n, 1.5), z).filtered.mean
    if policy != "budget" and name == "proper":
        held = CAPACITY[policy]
        counts = np.minimum(np.arange(1, n + 1), held)
        sums = [z[max(i + 1 - held, 0) : i + 1].sum() for i in range(n)]
        np.testing.assert_allclose(found, np.array(sums) / (counts + 0.2 / 1.8), rtol=1e-10)


@few_policies_by_default
@improper_by_default
@pytest.mark.parametrize("noise_variance", [pytest.param(0.2, marks=pytest.mark.long), 1e-9])
def test_may_inputs_come_twice(policy, name, noise_variance):
    rng = np.random.default_rng(0)
    x = np.repeat(rng.uniform(0.0, 5.0, 20), 2)
    gp = assign(borrowed(name, policy), noise_variance=noise_variance)
    assert_held_up(gp, x, complex_normals(rng, 40))


@few_policies_by_default
@improper_by_default
def test_may_gaps_be_long(policy, name):
    """After one, the signal is as it was before any data."""
    rng = np.random.default_rng(0)
    x = np.concatenate([np.linspace(0.0, 4.0, 20), 1e9 + np.linspace(0.0, 4.0, 20)])
    gp = borrowed(name, policy)
    prior = gp.predict([1e9], observed=True)["variance"][0]
    steps = assert_held_up(gp, x, complex_normals(rng, 40))
    assert steps.predicted.variance[19] < 0.9 * prior
    np.testing.assert_allclose(steps.predicted.mean[20], 0.0, atol=1e-12)
    np.testing.assert_allclose(steps.predicted.variance[20], prior, rtol=1e-12)


@pytest.mark.parametrize("scale", [pytest.param(1e-100, marks=pytest.mark.long), 1e100])
@few_policies_by_default
@improper_by_default
def test_may_inputs_be_of_any_scale(scale, policy, name):
    rng = np.random.default_rng(0)
    x, z = np.cumsum(rng.exponential(0.5, 30)), complex_normals(rng, 30)
    gp = borrowed(name, policy)
    expected = gp.process(x, z)
    gp.reset()
    assign(
        gp,
        matern32_lengthscale=2.0 * scale,
        rbf_lengthscale=1.5 * scale,
        rotation_frequency=0.4 / scale,
    )
    assert_steps(gp.process(scale * x, z), expected, rtol=1e-8, atol=1e-9)


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [pytest.param(1e-100, marks=pytest.mark.long), 1e100])
@few_policies_by_default
@improper_by_default
def test_may_a_signal_be_of_any_scale(scale, policy, name):
    """Everything is in proportion."""
    rng = np.random.default_rng(0)
    x, z = np.cumsum(rng.exponential(0.5, 30)), complex_normals(rng, 30)
    gp = borrowed(name, policy)
    expected, expected_later = gp.process(x, z), gp.predict(X_NEW)
    gp.reset()
    assign(
        gp,
        matern32_variance=1.3 * scale**2,
        rbf_variance=0.5 * scale**2,
        noise_variance=0.2 * scale**2,
    )
    found, found_later = gp.process(x, scale * z), gp.predict(X_NEW)

    def in_proportion(moments):
        powers = zip(moments, (1, 2, 2), strict=True)
        return reference.Moments(*(m / scale**power for m, power in powers))

    steps = reference.Steps(
        in_proportion(found.predicted), found.innovation / scale, in_proportion(found.filtered)
    )
    assert_steps(steps, expected, rtol=1e-8, atol=1e-8)
    later = in_proportion(found_later.values())
    np.testing.assert_allclose(later.mean, expected_later["mean"], atol=1e-8)
    np.testing.assert_allclose(later.variance, expected_later["variance"], atol=1e-8)


@pytest.mark.parametrize("scale", [pytest.param(1e-100, marks=pytest.mark.long), 1e100])
@few_policies_by_default
@improper_by_default
def test_may_a_signal_be_far_from_what_its_kernel_says(scale, policy, name):
    rng = np.random.default_rng(0)
    x, z = np.cumsum(rng.exponential(0.5, 30)), complex_normals(rng, 30)
    assert_held_up(borrowed(name, policy), x, scale * z)


@improper_by_default
def test_is_an_outlier_forgotten_with_its_window(name):
    problem, window = named(name), CAPACITY["sliding"]
    rng = np.random.default_rng(0)
    x, z = np.cumsum(rng.exponential(0.5, 60)), complex_normals(rng, 60)
    z[20] = 1e8 - 1e8j
    found = borrowed(name, "sliding").process(x, z)
    assert_valid(found)
    expected = refitted(problem, x, z, window=window)
    before, held, after = np.s_[:20], np.s_[20 : 21 + window], np.s_[21 + window :]
    assert_steps(steps_at(found, before), steps_at(expected, before))
    # while it is held, it is the scale of the rounding, and not after
    assert_steps(steps_at(found, held), steps_at(expected, held), rtol=1e-9, atol=1.0)
    assert_steps(steps_at(found, after), steps_at(expected, after), rtol=1e-8, atol=1e-8)


@few_policies_by_default
@improper_by_default
def test_is_an_outlier_survived(policy, name):
    rng = np.random.default_rng(0)
    x, z = np.cumsum(rng.exponential(0.5, 40)), complex_normals(rng, 40)
    z[12] = z[30] = 1e8j
    assert_held_up(borrowed(name, policy), x, z)


@few_policies_by_default
@improper_by_default
@pytest.mark.parametrize("value", [0.0, 3.0 - 1.0j])
def test_may_a_signal_be_constant(policy, name, value):
    x, z = 0.2 * np.arange(40), np.full(40, value, complex)
    gp = assign(borrowed(name, policy), rbf_variance=10.0, noise_variance=1e-3, **SMOOTH)
    steps = assert_held_up(gp, x, z)
    # what is forgotten at each step is missing from the mean
    bound = 0.02 if policy != "budget" else 0.3
    np.testing.assert_allclose(steps.filtered.mean[20:], value, atol=bound)


@few_policies_by_default
@improper_by_default
@pytest.mark.parametrize("left_out", [ROUGH, SMOOTH], ids=["rough", "smooth"])
@pytest.mark.parametrize("noise_variance", [1e-12, 1e-30])
def test_may_there_be_next_to_no_noise(policy, name, left_out, noise_variance):
    rng = np.random.default_rng(0)
    x = 0.1 * np.arange(40)
    x[5], x[6] = x[4], x[4] + 1e-9
    z = np.exp(0.7j * x) + 1e-3 * complex_normals(rng, 40)
    gp = assign(borrowed(name, policy), noise_variance=noise_variance, **left_out)
    assert_held_up(gp, x, z)


@pytest.mark.parametrize(
    ("policy", "name"),
    long_except(
        [("growing", "proper"), ("sliding", "all improper"), ("budget", "all improper")],
        ("sliding", "all improper"),
    ),
)
def test_may_long_spells_be_missing_while_all_is_forgotten(policy, name):
    """In the end the prior is back, and nothing has vanished or blown up on the way."""
    rng = np.random.default_rng(0)
    gp = borrowed(name, policy, 0.93)
    prior, first = gp.predict(X_NEW), gp.process([7.0], [1.0 + 1.0j])
    gp.reset()
    gp.process(0.3 * np.arange(20), complex_normals(rng, 20))
    spell = gp.process(6.0 + 1e-4 * np.arange(20_000), np.full(20_000, np.nan + 0j), verbose=0)
    assert_valid(spell)
    for key, value in prior.items():
        np.testing.assert_allclose(gp.predict(X_NEW)[key], value, rtol=1e-10, atol=1e-12)
    again = gp.process([7.0], [1.0 + 1.0j])
    assert_steps(again, first, rtol=1e-9, atol=1e-12)
    assert_held_up(gp, 7.0 + 0.3 * np.arange(15), complex_normals(rng, 15))


def test_may_one_stream_of_many_stay_silent():
    rng = np.random.default_rng(0)
    x, z = 0.3 * np.arange(30), complex_normals(rng, 3, 30)
    z[1] = np.nan
    for policy in ("sliding", "budget"):
        gp = borrowed("all improper", policy, shape="three streams")
        single = borrowed("all improper", policy)
        prior = single.predict(X_NEW)
        found, expected = gp.process(x, z), single.process(x, z[2])
        assert_valid(found)
        assert_steps(steps_at(found, 2), expected)
        assert gp.size[1] == 0
        for key, value in prior.items():
            np.testing.assert_allclose(gp.predict(X_NEW)[key][1], value, rtol=1e-12, atol=1e-14)
