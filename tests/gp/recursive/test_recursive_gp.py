"""RecursiveGP against a process refitted at each step, and against its own parts."""

import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf

import cgp
from cgp import native
from cgp.kernels import RBF, Matern32, Rotation, WidelyLinear
from tests.gp.problems import NOISE, complex_normals, problems
from tests.gp.recursive.streams import (
    CAPACITY,
    FORGETTING,
    assert_predictions,
    assert_steps,
    assert_valid,
    borrowed,
    by_core_or_eagerly,
    exact,
    named,
    noise,
    refitted,
    stepped,
    steps_at,
    stream,
    tracker,
)
from tests.long_cases import long_except
from tests.reference import kernels as reference_kernels
from tests.reference import recursive as reference
from tests.reference.complex_normal import log_prob

X_NEW = np.array([-1.0, 0.3, 2.2, 2.3, 5.0, 11.0])

every_policy = pytest.mark.parametrize("policy", CAPACITY)
proper_or_not = pytest.mark.parametrize("name", ["proper", "all improper"])
improper_by_default = pytest.mark.parametrize(
    "name", [pytest.param("proper", marks=pytest.mark.long), "all improper"]
)
# Those that forget, or do not, where their policy does the other thing in these tests.
OTHERWISE = [
    ("growing", "proper", 0.93),
    ("sliding", "all improper", 0.93),
    ("sliding", "improper", 1.0),
    ("budget", "proper", 1.0),
    ("sliding", "improper noise", 1.0),
]


def reference_of(problem, policy, forgetting):
    """(x, z) -> steps."""
    if policy == "budget":
        moments = reference.Tracker(problem.pair, noise(problem), CAPACITY[policy], forgetting)
        return lambda x, z: moments.process(x[:, None], z)
    window = CAPACITY[policy]
    return lambda x, z: refitted(problem, x, z, window=window, forgetting=forgetting)


# --- one sample after another -----------------------------------------------------------------


@every_policy
@improper_by_default
def test_are_steps_those_of_the_reference_and_a_block_its_steps(policy, name):
    x, z = stream()
    gp = borrowed(name, policy)
    expected = reference_of(named(name), policy, FORGETTING[policy])
    steps = stepped(gp, x, z)
    assert_steps(steps, expected(x, z))
    assert gp.size == min(CAPACITY[policy], (~np.isnan(z)).sum())
    predicted, size = gp.predict(X_NEW), gp.size
    gp.reset()
    first, second = gp.process(x[:23], z[:23]), gp.process(x[23:], z[23:])
    assert_steps(first, steps_at(steps, np.s_[:23]), rtol=1e-10, atol=1e-10)
    assert_steps(second, steps_at(steps, np.s_[23:]), rtol=1e-10, atol=1e-10)
    assert_predictions(gp.predict(X_NEW), predicted, rtol=1e-10, atol=1e-10)
    assert gp.size == size


@pytest.mark.parametrize(("policy", "name", "forgetting"), OTHERWISE)
def test_are_blocks_those_of_the_reference(policy, name, forgetting):
    x, z = stream()
    found = borrowed(name, policy, forgetting).process(x, z)
    expected = reference_of(named(name), policy, forgetting)(x, z)
    assert_steps(found, expected)


@improper_by_default
def test_does_a_budget_predict_by_the_moments_of_its_basis(name):
    problem = named(name)
    x, z = stream()
    other = reference.Tracker(problem.pair, noise(problem), CAPACITY["budget"], 0.93)
    other.process(x[:, None], z)
    gp = borrowed(name, "budget")
    gp.process(x, z)
    assert gp.size == other.size == CAPACITY["budget"]
    assert_predictions(gp.predict(X_NEW), other.predict(X_NEW[:, None]))


@pytest.mark.parametrize(
    ("name", "n"),
    long_except(
        [("proper", 500), ("all improper", 500), ("all improper", 60)], ("all improper", 60)
    ),
)
def test_do_many_steps_of_a_window_stay_those_of_brute_force(name, n):
    problem = named(name)
    x = 0.3 * np.arange(n)[:, None]
    # stationary: the covariance on a grid is known by its first row and column
    columns, rows = problem.pair(x, x[:1]), problem.pair(x[:1], x)
    k, c = (
        scipy.linalg.toeplitz(column[:, 0], row[0])
        for column, row in zip(columns, rows, strict=True)
    )
    z = complex_normals(np.random.default_rng(1), n)
    z[np.random.default_rng(2).uniform(size=n) < 0.05] = np.nan
    expected = reference.refitted(z, k, c, noise(problem), CAPACITY["sliding"])
    found = stepped(borrowed(name, "sliding"), x[:, 0], z)
    assert_steps(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("policy", long_except(CAPACITY, "sliding"))
def test_is_a_step_traced_once_however_long_the_stream(policy):
    """Of a tracker of its own, which no other test has traced."""
    gp = tracker(
        named("all improper"),
        policy=policy,
        capacity=CAPACITY[policy],
        forgetting=FORGETTING[policy],
    )
    x, z = 0.3 * np.arange(1000), complex_normals(np.random.default_rng(0), 1000)
    z[::7] = np.nan
    if policy == "growing":
        z[np.arange(1000) % 30 > 0] = np.nan
    counts = set()
    for sample in zip(x, z, strict=True):
        gp.step(*sample)
        counts.add(len(gp.stream._traced))
    gp.process(x[:400], np.full(400, np.nan + 0j))
    gp.process(x[:77], np.full(77, np.nan + 0j))
    traces = len(gp.stream._traced)
    assert counts == {traces}
    assert traces == (1 if native.core().ops is None else 0)


def test_is_a_step_made_of_numpy_numbers():
    gp = borrowed("all improper", "sliding")
    step = gp.step(0.5, 1.0 + 2.0j)
    assert step._fields[:3] == ("predicted", "innovation", "filtered")
    for moments in (step.predicted, step.filtered):
        assert moments._fields == ("mean", "variance", "pseudo_variance")
        assert [np.asarray(m).dtype for m in moments] == [complex, float, complex]
        assert all(np.shape(m) == () for m in moments)
    assert np.shape(step.innovation) == ()
    assert not any(tf.is_tensor(v) for v in (*step.predicted, step.innovation, *step.filtered))
    np.testing.assert_allclose(step.innovation, 1.0 + 2.0j, rtol=1e-15)
    expected = gp.kernel.covariance([0.5]).numpy()[0, 0].real + NOISE
    np.testing.assert_allclose(step.predicted.variance, expected, rtol=1e-12)


def test_may_a_sample_be_a_number_of_any_sort():
    x, z = stream(n=12, missing=())
    samples = list(zip(x, z, strict=True))
    gp = borrowed("proper", "sliding")
    expected = [gp.step(float(a), complex(b)) for a, b in samples]
    for same in (
        lambda a, b: (np.asarray(a), np.asarray(b)),
        lambda a, b: (np.array([a]), b),
        lambda a, b: (tf.constant(a), tf.constant(b)),
    ):
        gp.reset()
        found = [gp.step(*same(a, b)) for a, b in samples]
        assert_steps(reference.stacked(found), reference.stacked(expected), rtol=1e-15, atol=0)


# --- missing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", long_except(CAPACITY, "sliding", "budget"))
def test_is_what_is_said_to_be_missing_missing(policy):
    x, z = stream()
    known = np.where(np.isnan(z), 1e3, z)
    missing = np.isnan(z)
    gp = borrowed("proper", policy)
    expected = stepped(gp, x, z)
    gp.reset()
    one_by_one = [gp.step(*sample) for sample in zip(x, known, missing, strict=True)]
    assert_steps(reference.stacked(one_by_one), expected, rtol=1e-14, atol=1e-14)
    gp.reset()
    assert_steps(gp.process(x, known, missing=missing), expected, rtol=1e-10, atol=1e-10)
    gp.reset()
    masked = np.ma.array(known, mask=missing)
    assert_steps(gp.process(x, masked), expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(np.isnan(expected.innovation), missing)
    assert np.isfinite(known).all(), "the caller's array was changed"


@proper_or_not
def test_does_a_missing_sample_predict_and_change_nothing(name):
    x, z = stream(n=15, missing=())
    gp = borrowed(name, "sliding")
    gp.process(x, z)
    before = gp.predict(X_NEW)
    step = gp.step(3.3, np.nan)
    assert np.isnan(step.innovation)
    observed, signal = gp.predict([3.3], observed=True), gp.predict([3.3])
    for moment in ("mean", "variance", "pseudo_variance"):
        np.testing.assert_allclose(getattr(step.predicted, moment), observed[moment][0], rtol=1e-9)
        np.testing.assert_allclose(getattr(step.filtered, moment), signal[moment][0], rtol=1e-9)
    assert_predictions(gp.predict(X_NEW), before, rtol=1e-13, atol=1e-13)


# --- blocks -----------------------------------------------------------------------------------


def test_may_steps_and_blocks_alternate():
    x, z = stream()
    gp = borrowed("all improper", "sliding")
    found = [gp.process(x[:5], z[:5])]
    found.append(stepped(gp, x[5:9], z[5:9]))
    found.append(gp.process(x[9:30], z[9:30]))
    found.append(gp.process(x[30:31], z[30:31]))
    found.append(stepped(gp, x[31:], z[31:]))
    expected = refitted(named("all improper"), x, z, window=CAPACITY["sliding"])
    start = 0
    for steps in found:
        stop = start + len(steps.innovation)
        assert_steps(steps, steps_at(expected, np.s_[start:stop]))
        start = stop
    assert start == len(z)


def test_does_a_block_show_its_progress_when_asked(capsys):
    x, z = stream()
    gp = borrowed("proper", "sliding")
    gp.process(x, z, verbose=0)
    gp.process(x, z)  # which does not take long
    assert capsys.readouterr().out == ""
    gp.process(x, z, verbose=1)
    assert "40/40" in capsys.readouterr().out


# --- predictions ------------------------------------------------------------------------------


@improper_by_default
@pytest.mark.parametrize("policy", long_except(["growing", "sliding"], "sliding"))
def test_are_predictions_those_of_an_exact_gp_of_the_points_held(name, policy):
    x, z = stream()
    gp = borrowed(name, policy)
    gp.process(x, z)
    held = reference.last_seen(z, CAPACITY[policy])
    other = exact(gp, x[held], z[held])
    for observed in (False, True):
        found, expected = (m.predict(X_NEW, observed=observed) for m in (gp, other))
        assert_predictions(found, expected)
        found, expected = (m.posterior(X_NEW, observed=observed) for m in (gp, other))
        np.testing.assert_allclose(found.mean(), expected.mean(), atol=1e-9)
        np.testing.assert_allclose(found.covariance(), expected.covariance(), atol=1e-9)
        np.testing.assert_allclose(
            found.pseudo_covariance(), expected.pseudo_covariance(), atol=1e-9
        )
    draws = gp.sample(X_NEW, 3, seed=0)
    assert draws.shape == (3, len(X_NEW))
    assert np.isfinite(draws).all()


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(p, id=p.name, marks=() if p.name == "all improper" else pytest.mark.long)
        for p in problems()
    ],
)
def test_is_the_posterior_before_data_the_prior(problem):
    for gp in (tracker(problem), borrowed(problem.name, "sliding")):
        found, expected = gp.posterior(X_NEW), problem.gp().posterior(X_NEW)
        np.testing.assert_array_equal(found.mean(), np.zeros(len(X_NEW)))
        np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol=1e-12)
        np.testing.assert_allclose(
            found.pseudo_covariance(), expected.pseudo_covariance(), rtol=1e-12
        )
        assert_predictions(gp.predict(X_NEW), problem.gp().predict(X_NEW), rtol=1e-12)


@every_policy
@improper_by_default
def test_is_the_posterior_after_nothing_but_missing_samples_the_prior(policy, name):
    gp = borrowed(name, policy)
    gp.process([1.0, 1.0, 2.0], np.full(3, np.nan + 0j))
    assert gp.size == 0
    assert_predictions(gp.predict(X_NEW), named(name).gp().predict(X_NEW), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("policy", "name"),
    [("growing", "proper"), ("sliding", "all improper"), ("budget", "all improper")],
)
def test_do_predictions_remember_as_much_as_is_not_forgotten(policy, name):
    """After m missing steps the mean has shrunk by λ^{m/2}, what data had told by λ^m."""
    x, z = stream(n=20)
    gp = borrowed(name, policy, 0.93)
    gp.process(x, z)
    before, prior = gp.predict(X_NEW), named(name).gp().predict(X_NEW)
    gp.process([0.0, 1.0, 2.0], np.full(3, np.nan + 0j))
    after = gp.predict(X_NEW)
    np.testing.assert_allclose(after["mean"], 0.93**1.5 * before["mean"], rtol=1e-9)
    for moment in ("variance", "pseudo_variance"):
        told = prior[moment] - before[moment]
        np.testing.assert_allclose(prior[moment] - after[moment], 0.93**3 * told, atol=1e-9)


@pytest.mark.long
@every_policy
@proper_or_not
def test_is_the_signal_filtered_what_is_predicted_there_next(policy, name):
    x, z = stream(n=20)
    gp = borrowed(name, policy)
    for sample in zip(x, z, strict=True):
        filtered = gp.step(*sample).filtered
        found = gp.predict(sample[:1])
        for moment in ("mean", "variance", "pseudo_variance"):
            np.testing.assert_allclose(
                found[moment][0], getattr(filtered, moment), rtol=1e-9, atol=1e-11
            )


@proper_or_not
def test_does_a_layer_return_what_predict_returns(name):
    x, z = stream()
    gp = borrowed(name, "sliding")
    gp.process(x, z)
    found = {key: value.numpy() for key, value in gp(tf.constant(X_NEW)).items()}
    assert_predictions(found, gp.predict(X_NEW), rtol=1e-12, atol=1e-13)


# --- policies ---------------------------------------------------------------------------------


def test_may_a_window_hold_one_point():
    problem = named("proper")
    x, z = stream(n=16)
    gp = tracker(problem, capacity=1)
    with by_core_or_eagerly(gp):
        found = gp.process(x, z)
    assert gp.size == 1
    assert_steps(found, refitted(problem, x, z, window=1))


def test_may_a_budget_be_one_point():
    x, z = stream(n=16)
    gp = tracker(named("all improper"), capacity=1, policy="budget")
    with by_core_or_eagerly(gp):
        found = stepped(gp, x, z)
    assert_valid(found)
    other = reference.Tracker(named("all improper").pair, noise(named("all improper")), 1)
    assert_steps(found, other.process(x[:, None], z))


def test_is_a_full_growing_gp_refused_before_anything_changes():
    x, z = stream(n=50, missing=())
    gp = borrowed("proper", "growing")
    gp.process(x[:38], z[:38])
    before = gp.predict(X_NEW)
    with pytest.raises(ValueError, match=r"capacity.*(sliding|budget)"):
        gp.process(x[38:41], z[38:41])
    assert gp.size == 38
    assert_predictions(gp.predict(X_NEW), before, rtol=0, atol=0)
    gp.process(x[38:40], z[38:40])
    before = gp.predict(X_NEW)
    with pytest.raises(ValueError, match=r"capacity.*(sliding|budget)"):
        gp.process(x[40:41], z[40:41])
    assert gp.size == 40
    assert_predictions(gp.predict(X_NEW), before, rtol=0, atol=0)
    step = gp.process(x[40:41], [np.nan + 0j])  # which takes no place
    assert np.isfinite(step.predicted.mean)


def test_does_a_full_growing_gp_of_many_streams_count_each():
    gp = tracker(named("proper"), policy="growing", capacity=2)
    gp._make_window(2, 1)
    with by_core_or_eagerly(gp):
        gp.step(0.0, np.array([1j, np.nan]))
        gp.step(1.0, np.array([1j, 2j]))
        assert np.array_equal(gp.size, [2, 1])
        with pytest.raises(ValueError, match="capacity"):
            gp.step(2.0, np.array([1j, 2j]))
        assert np.array_equal(gp.size, [2, 1])
        gp.step(2.0, np.array([np.nan, 2j]))
    assert np.array_equal(gp.size, [2, 2])


@pytest.mark.parametrize("policy", long_except(CAPACITY, "sliding", "budget"))
def test_does_a_reset_forget_everything(policy):
    x, z = stream()
    gp = borrowed("all improper", policy)
    expected = gp.process(x, z)
    before = gp.predict(X_NEW)
    gp.reset()
    assert gp.size == 0
    prior = named("all improper").gp().predict(X_NEW)
    assert_predictions(gp.predict(X_NEW), prior, rtol=1e-12)
    gp.process(-x, 1e3 * z)
    gp.reset()
    assert_steps(gp.process(x, z), expected, rtol=0, atol=0)
    assert_predictions(gp.predict(X_NEW), before, rtol=0, atol=0)


def test_has_a_gp_the_attributes_it_was_made_with():
    gp = tracker(named("proper"), policy="budget", capacity=12, forgetting=0.9)
    assert (gp.capacity, gp.policy, gp.forgetting) == (12, "budget", 0.9)
    default = cgp.RecursiveGP(RBF(1.0, 1.0), 0.1)
    assert (default.capacity, default.policy, default.forgetting) == (64, "sliding", 1.0)
    assert default.size == 0


# --- many streams, many dimensions --------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "shared"),
    long_except(
        [(policy, shared) for policy in ("sliding", "budget") for shared in (True, False)],
        ("sliding", False),
    ),
)
def test_are_many_streams_each_by_itself(policy, shared):
    rng = np.random.default_rng(3)
    x, z = rng.uniform(0.0, 5.0, (3, 25, 1)), complex_normals(rng, 3, 25)
    z[0, 2] = z[1, 3] = z[1, 4] = np.nan  # holes of their own and in common
    z[:, 9] = np.nan
    if shared:
        x = x[0, :, 0]
    together = borrowed("all improper", policy, shape="three streams")
    first = together.process(x[:6] if shared else x[:, :6], z[:, :6])
    found = reference.stacked(
        [together.step(x[n] if shared else x[:, n], z[:, n]) for n in range(6, 25)]
    )
    assert found.innovation.shape == (19, 3)
    predicted = together.predict(X_NEW)
    own = X_NEW + np.arange(3)[:, None]
    predicted_at_own = together.predict(own[..., None])
    covariance = together.posterior(X_NEW, observed=True).covariance().numpy()
    assert predicted["mean"].shape == predicted_at_own["mean"].shape == (3, len(X_NEW))
    sizes = []
    for b in range(3):
        single = borrowed("all improper", policy)
        expected = single.process(x if shared else x[b], z[b])
        sizes.append(single.size)
        assert_steps(steps_at(first, b), steps_at(expected, np.s_[:6]))
        assert_steps(steps_at(found, np.s_[:, b]), steps_at(expected, np.s_[6:]))
        assert_predictions({k: v[b] for k, v in predicted.items()}, single.predict(X_NEW))
        assert_predictions({k: v[b] for k, v in predicted_at_own.items()}, single.predict(own[b]))
        expected_covariance = single.posterior(X_NEW, observed=True).covariance()
        np.testing.assert_allclose(covariance[b], expected_covariance, rtol=1e-8, atol=1e-9)
    np.testing.assert_array_equal(together.size, sizes)


LENGTHSCALES, FREQUENCIES = np.array([1.5, 3.0]), np.array([0.2, -0.1])


def plane(coefficient):
    """A kernel over two dimensions, and its reference."""
    kernel = Matern32(1.3, LENGTHSCALES) * Rotation(FREQUENCIES)

    def pair(x1, x2):
        k = reference_kernels.matern32(x1, x2, 1.3, LENGTHSCALES)
        k = k * reference_kernels.rotation(x1, x2, FREQUENCIES)
        return reference_kernels.widely_linear(k, 0 * k, coefficient)

    return (WidelyLinear(kernel, coefficient) if coefficient else kernel), pair


@pytest.mark.parametrize(
    ("coefficient", "policy"), [(0.0, "sliding"), (0.4 - 0.3j, "growing"), (0.4 - 0.3j, "budget")]
)
def test_may_inputs_have_several_dimensions(coefficient, policy):
    kernel, pair = plane(coefficient)
    gp = cgp.RecursiveGP(kernel, NOISE, capacity=CAPACITY[policy], policy=policy)
    rng = np.random.default_rng(4)
    x, z = rng.uniform(0.0, 4.0, (30, 2)), complex_normals(rng, 30)
    z[5] = np.nan
    found = stepped(gp, x, z) if policy == "sliding" else gp.process(x, z)
    if policy == "budget":
        other = reference.Tracker(pair, (NOISE, 0.0), CAPACITY[policy])
        assert_steps(found, other.process(x, z))
        return
    expected = reference.refitted(z, *pair(x, x), (NOISE, 0.0), CAPACITY[policy])
    assert_steps(found, expected)
    held = reference.last_seen(z, CAPACITY[policy])
    x_new = rng.uniform(0.0, 4.0, (5, 2))
    assert_predictions(gp.predict(x_new), exact(gp, x[held], z[held]).predict(x_new))


# --- means, precision -----------------------------------------------------------------------------


def test_is_a_mean_what_is_subtracted_and_added():
    policy, name = "budget", "all improper"
    coefficients = np.array([1 + 2j, -0.3j, 0.05])

    def mean(x):
        return np.polyval(coefficients[::-1], (x - 1.0) / 2.0)

    x, z = stream()
    trend = cgp.means.Polynomial(2, coefficients, center=1.0, scale=2.0)
    gp = tracker(named(name), policy=policy, capacity=CAPACITY[policy], forgetting=0.93, mean=trend)
    np.testing.assert_allclose(gp.predict(X_NEW)["mean"], mean(X_NEW), rtol=1e-12)
    plain = borrowed(name, policy)
    found, expected = gp.process(x, z), plain.process(x, z - mean(x))
    shifted = reference.Steps(
        expected.predicted._replace(mean=expected.predicted.mean + mean(x)),
        expected.innovation,
        expected.filtered._replace(mean=expected.filtered.mean + mean(x)),
    )
    assert_steps(found, shifted)
    predicted = plain.predict(X_NEW)
    predicted["mean"] = predicted["mean"] + mean(X_NEW)
    assert_predictions(gp.predict(X_NEW), predicted)


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        pytest.param("sliding", "proper", marks=pytest.mark.long),
        ("budget", "all improper"),
    ],
)
def test_is_a_float32_gp_close_to_its_float64_twin(policy, name):
    dtype = {"dtype": "float32"}
    kernel = Matern32(1.3, 2.0, **dtype) * Rotation(0.4, **dtype) + RBF(0.5, 1.5, **dtype)
    if name == "all improper":
        kernel = WidelyLinear(kernel, 0.4 - 0.3j)
    problem = named(name)._replace(kernel=kernel)
    capacity, forgetting = CAPACITY[policy], FORGETTING[policy]
    single = tracker(problem, capacity=capacity, policy=policy, forgetting=forgetting)
    x, z = stream()
    expected = borrowed(name, policy).process(x, z)
    found = single.process(x, z.astype(np.complex64))
    assert [m.dtype for m in found.predicted] == [np.complex64, np.float32, np.complex64]
    bound = 5e-5 if policy != "budget" else 3e-3
    assert_steps(found, expected, rtol=bound, atol=bound)
    assert single.predict(X_NEW)["mean"].dtype == np.complex64


def test_are_what_step_and_process_return_predictions_to_the_metrics():
    x, z = stream(missing=())
    steps = borrowed("all improper", "sliding").process(x, z)
    found = cgp.metrics.negative_log_predictive_density(z, steps.predicted)
    densities = [
        log_prob(z[n : n + 1], m, k[:, None], c[:, None])
        for n, (m, k, c) in enumerate(np.stack(steps.predicted, axis=-1)[..., None])
    ]
    np.testing.assert_allclose(found, -np.mean(densities), rtol=1e-10)
