"""Is a StateSpaceGP the ExactGP of its kernel, in linear time?"""

import celerite2
import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import (
    RBF,
    Conjugate,
    Constant,
    Driven,
    IntegratedRandomWalk,
    MarkovApproximation,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RandomWalk,
    RationalQuadratic,
    Rotation,
    White,
    WidelyLinear,
)
from tests.long_cases import long_except

MOMENTS = ("mean", "variance", "pseudo_variance", "covariance", "pseudo_covariance")


def wobble():
    resonance = Matern12(1.5, 3.0, fixed="variance") * Rotation(0.4)
    return Driven(resonance, Matern12(1.0, 0.3) + Matern12(0.5, 0.6) * Rotation(-0.7))


# The kernel, and the pseudo-variance of the noise. Most have three complex states or four real
# ones, for which the filter is compiled once.
CASES = {
    "tone": (lambda: Matern32(1.0, 2.0) * Rotation(0.3) + White(0.3), 0.0),
    "improper noise": (
        lambda: Matern12(1.0, 2.0) + Conjugate(Matern12(0.5, 1.0) * Rotation(0.2)),
        0.1j,
    ),
    "rectilinear noise": (lambda: Matern32(1.0, 2.0) * Rotation(0.3), 0.19 * np.exp(0.7j)),
    "product": (lambda: Matern52(1.5, 2.0) * Matern12(2.0, 0.5) * Rotation(0.2), 0.0),
    "walk": (
        lambda: RandomWalk(0.3, -1.0) + Matern12(1.0, 2.0) * RandomWalk(0.2, -1.0) + Constant(2.0),
        0.0,
    ),
    "trend": (lambda: IntegratedRandomWalk(0.2, 0.1, -1.0) + Matern12(0.5, 0.3), 0.0),
    "driven": (wobble, 0.0),
    "ellipse": (lambda: WidelyLinear(Matern32(1.0, 1.0) * Rotation(0.3), 0.4 + 0.2j), 0.1j),
    "real times improper": (
        lambda: Matern32(1.0, 2.0) * WidelyLinear(Matern12(1.0, 2.0) * Rotation(0.2), 0.5j),
        0.0,
    ),
    "complex states of a real kernel": (
        lambda: MarkovApproximation(RBF(1.0, 1.5), 2) * WidelyLinear(Matern12(1.0, 2.0), 0.5),
        0.0,
    ),
    "approximations": (
        lambda: (
            MarkovApproximation(Periodic(1.0, 0.8, 0.4), 1)
            + MarkovApproximation(RBF(0.5, 0.7), 2) * Rotation(0.1)
        ),
        0.0,
    ),
}


def series(seed=0, count=30, shape=()):
    """Times in no order, two of them equal, and observations, one of them missing."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 10.0, count)
    x[5] = x[4]
    z = rng.normal(size=(*shape, count)) + 1j * rng.normal(size=(*shape, count))
    z[..., 7] = np.nan
    return x, z


def elsewhere(x):
    """Between the data, before, beyond, and at them."""
    return np.concatenate([np.random.default_rng(9).uniform(-0.5, 12.0, 6), x[[3, 4, 7]]])


def cases(long):
    return [
        pytest.param(name, marks=pytest.mark.long if name in long else ()) for name in sorted(CASES)
    ]


LONG = ["approximations", "complex states of a real kernel", "product", "trend"]


@pytest.fixture(scope="module", params=cases(long=LONG))
def siblings(request):
    make, pseudo = CASES[request.param]
    kernel = make()
    x, z = series()
    exact, fast = (cgp.ExactGP(kernel, 0.2, pseudo), cgp.StateSpaceGP(kernel, 0.2, pseudo))
    for gp in (exact, fast):
        gp.condition(x, z)
    return exact, fast, x, z


def test_is_the_likelihood_that_of_the_exact_process(siblings):
    exact, fast, x, z = siblings
    np.testing.assert_allclose(
        fast.log_marginal_likelihood(x, z), exact.log_marginal_likelihood(x, z), rtol=1e-11
    )


def test_is_the_posterior_that_of_the_exact_process(siblings):
    exact, fast, x, _ = siblings
    for observed in (False, True):
        expected, found = (gp.posterior(elsewhere(x), observed=observed) for gp in (exact, fast))
        for name in MOMENTS:
            np.testing.assert_allclose(
                getattr(found, name)(), getattr(expected, name)(), atol=1e-10, err_msg=name
            )


def test_is_the_log_likelihood_that_of_celerite2_where_the_model_is_the_same():
    rng = np.random.default_rng(21)
    x = np.sort(rng.uniform(0.0, 300.0, 1000))
    z = rng.normal(size=1000) + 1j * rng.normal(size=1000)
    kernel = (Matern12(1.5, 20.0) + Matern12(0.4, 1.5)) * Rotation(0.3)
    gp = cgp.StateSpaceGP(kernel, 0.2)

    # A rotation moves no probability: turned back, the parts are independent real processes.
    terms = celerite2.terms.RealTerm(a=0.75, c=0.05) + celerite2.terms.RealTerm(a=0.2, c=1 / 1.5)
    process = celerite2.GaussianProcess(terms)
    process.compute(x, diag=np.full(1000, 0.1))
    still = z * np.exp(-0.6j * np.pi * x)
    expected = process.log_likelihood(still.real) + process.log_likelihood(still.imag)
    np.testing.assert_allclose(gp.log_marginal_likelihood(x, z), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "siblings",
    [
        "tone",
        "improper noise",
        "walk",
        "driven",
        "ellipse",
        pytest.param("approximations", marks=pytest.mark.long),
    ],
    indirect=True,
)
def test_is_the_gradient_of_the_loss_that_of_the_exact_process(siblings):
    exact, fast, x, z = siblings
    gradients = []
    for gp in (exact, fast):
        variables = sorted(gp.trainable_variables, key=lambda v: v.path.split("/", 1)[-1])
        with tf.GradientTape() as tape:
            gp((x[:, None], z))
            loss = gp.losses[0]
        gradients.append(np.concatenate([np.ravel(g) for g in tape.gradient(loss, variables)]))
    np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "siblings",
    cases(long=[*LONG, "driven", "improper noise", "rectilinear noise", "tone", "walk"]),
    indirect=True,
)
def test_are_steps_those_of_a_growing_process(siblings):
    exact, fast, x, z = siblings
    pseudo = (
        complex(fast.get_config()["noise_pseudo_variance"][0])
        + 1j * (fast.get_config()["noise_pseudo_variance"][1])
    )
    one, other = (
        cgp.StateSpaceGP(fast.kernel, 0.2, pseudo),
        cgp.RecursiveGP(fast.kernel, 0.2, pseudo, capacity=64, policy="growing"),
    )
    order = np.argsort(x, kind="stable")[:12]
    for i in order:
        found, expected = one.step(x[i], z[i]), other.step(x[i], z[i])
        for name in ("predicted", "filtered"):
            for a, b in zip(getattr(found, name), getattr(expected, name), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(found.innovation, expected.innovation, rtol=1e-8, atol=1e-9)
    # What has been taken in is data like any other.
    exact = cgp.ExactGP(fast.kernel, 0.2, pseudo)
    exact.condition(x[order], z[order])
    new = elsewhere(x)
    np.testing.assert_allclose(one.predict(new)["mean"], exact.predict(new)["mean"], atol=1e-9)


def tone():
    return Matern32(1.0, 2.0) * Rotation(0.3)


@pytest.mark.long
def test_does_it_learn_what_the_exact_process_learns():
    x, noise = series(1, 60)
    z = np.exp(0.6j * np.pi * x) + 0.3 * noise
    losses, parameters, errors = [], [], []
    for kind in (cgp.ExactGP, cgp.StateSpaceGP):
        gp = kind(tone(), 0.5)
        gp.compile(cgp.optimizers.LBFGS())
        with pytest.warns(RuntimeWarning, match="lengthscale = .* is far above the span of x"):
            history = gp.fit(x, z, verbose=0)  # a tone that does not fade
        losses.append(history.history["loss"][-1])
        parameters.append(gp.parameters())
        errors.append(gp.parameter_errors(verbose=0))
    assert losses[1] == pytest.approx(losses[0], abs=1e-9)
    for name, value in parameters[0].items():
        assert parameters[1][name] == pytest.approx(value, rel=1e-3), name
        assert errors[1][name] == pytest.approx(errors[0][name], rel=1e-2), name


@pytest.mark.parametrize("own", [False, True], ids=["shared times", "own times"])
def test_are_batches_those_of_the_exact_process(own):
    x, z = series(2, 20, (3,))
    if own:
        x = np.random.default_rng(5).uniform(0.0, 10.0, (3, 20, 1))
    new = np.linspace(-1.0, 11.0, 5)
    new = np.tile(new[:, None], (3, 1, 1)) if own else new
    exact, fast = cgp.ExactGP(tone(), 0.2), cgp.StateSpaceGP(tone(), 0.2)
    for gp in (exact, fast):
        gp.condition(x, z)
    np.testing.assert_allclose(
        fast.log_marginal_likelihood(x, z), exact.log_marginal_likelihood(x, z), rtol=1e-11
    )
    found, expected = fast.predict(new), exact.predict(new)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-11)
    if not own:
        joint = fast.posterior(new).covariance().numpy()
        np.testing.assert_allclose(joint[1], exact.posterior(new).covariance()[1], atol=1e-11)


def test_is_a_mean_function_taken_away_and_added():
    x, z = series(3)
    mean = cgp.means.Polynomial(1, [1.0 + 2.0j, -0.3j])
    exact, fast = (kind(tone(), 0.2, mean=mean) for kind in (cgp.ExactGP, cgp.StateSpaceGP))
    for gp in (exact, fast):
        gp.condition(x, z)
    new = elsewhere(x)
    np.testing.assert_allclose(fast.predict(new)["mean"], exact.predict(new)["mean"], atol=1e-11)
    prediction = fast.predict(new)
    drawn = fast.sample(new, 400, seed=1).mean(axis=0)
    assert np.all(
        abs(drawn - prediction["mean"]) < 4.0 * np.sqrt(prediction["variance"] / 400) + 1e-9
    )
    a, b = (gp.step(13.0, 1j) for gp in (fast, fast))
    assert abs(a.predicted.mean - exact.predict([13.0])["mean"][0]) < 1e-9
    assert b.predicted.variance < a.predicted.variance


def test_before_any_data_it_is_the_prior():
    exact, fast = cgp.ExactGP(tone(), 0.2), cgp.StateSpaceGP(tone(), 0.2)
    new = np.linspace(0.0, 3.0, 4)
    np.testing.assert_allclose(
        fast.posterior(new).covariance(), exact.posterior(new).covariance(), rtol=1e-12
    )
    assert fast.sample(new, 2, seed=1).shape == (2, 4)
    batched = np.tile(new[:, None], (2, 3, 1, 1))
    drawn = fast.sample(batched, 500, seed=1)
    assert drawn.shape == (500, 2, 3, 4)
    np.testing.assert_allclose(np.mean(np.abs(drawn) ** 2, axis=0), np.ones((2, 3, 4)), atol=0.25)
    with pytest.raises(ValueError, match="count must be a whole number, at least 1, got 'a'"):
        fast.sample(new, "a")


def test_do_draws_have_the_moments_of_the_posterior():
    x, z = series(4)
    gp = cgp.StateSpaceGP(WidelyLinear(tone(), 0.4j), 0.2)
    gp.condition(x, z)
    new = elsewhere(x)
    count = 4000
    draws = gp.sample(new, count, seed=3)
    posterior = gp.posterior(new)
    deviations = draws - posterior.mean().numpy()
    k = np.einsum("sa,sb->ab", deviations, deviations.conj()) / count
    c = np.einsum("sa,sb->ab", deviations, deviations) / count
    scale = np.sqrt(np.outer(posterior.variance(), posterior.variance()))
    assert np.abs(k - posterior.covariance()).max() < 5.0 * np.max(scale) / np.sqrt(count)
    assert np.abs(c - posterior.pseudo_covariance()).max() < 7.0 * np.max(scale) / np.sqrt(count)
    np.testing.assert_array_equal(gp.sample(new, 3, seed=3), gp.sample(new, 3, seed=3))


def test_a_changed_hyperparameter_is_noticed_by_the_next_step():
    x, z = series(5)
    order = np.argsort(x)
    gp, other = (cgp.StateSpaceGP(tone(), 0.2) for _ in range(2))
    for i in order[:10]:
        gp.step(x[i], z[i])
    for g in (gp, other):
        g.noise_variance.assign(0.7)
    other.condition(x[order[:10]], z[order[:10]])
    last = order[10]
    found, expected = gp.step(x[last], z[last]), other.step(x[last], z[last])
    np.testing.assert_allclose(found.predicted.mean, expected.predicted.mean, atol=1e-12)
    np.testing.assert_allclose(found.filtered.variance, expected.filtered.variance, rtol=1e-11)


def test_a_saved_stream_goes_on_where_it_was(tmp_path):
    x, z = series(6)
    order = np.argsort(x)
    gp = cgp.StateSpaceGP(wobble(), 0.2)
    gp.condition(x[order[:8]], z[order[:8]])
    for i in order[8:15]:
        gp.step(x[i], z[i])
    gp.save(tmp_path / "gp.keras")
    resumed = keras.models.load_model(tmp_path / "gp.keras")
    for i in order[15:18]:
        one, other = gp.step(x[i], z[i]), resumed.step(x[i], z[i])
        np.testing.assert_allclose(other.predicted.mean, one.predicted.mean, atol=1e-12)
        np.testing.assert_allclose(other.filtered.variance, one.filtered.variance, rtol=1e-12)
    new = elsewhere(x)
    np.testing.assert_allclose(resumed.predict(new)["mean"], gp.predict(new)["mean"], atol=1e-12)


def test_streams_side_by_side_are_streams_alone():
    x, z = series(7, 8, (2,))
    order = np.argsort(x)
    both, alone = cgp.StateSpaceGP(tone(), 0.2), cgp.StateSpaceGP(tone(), 0.2)
    for i in order:
        found, expected = both.step(x[i], z[:, i]), alone.step(x[i], z[1, i])
        np.testing.assert_allclose(found.predicted.mean[1], expected.predicted.mean, atol=1e-13)
        assert found.filtered.variance.shape == (2,)


def test_a_step_that_does_not_fit_is_refused_and_changes_nothing():
    gp = cgp.StateSpaceGP(tone(), 0.2)
    gp.step(1.0, 1j)
    before = gp.predict([1.5])["mean"]
    for x, z, error in (
        (0.5, 1j, "x must not go back: got 0.5 after 1"),
        (np.nan, 1j, "must be finite"),
        (2.0, np.inf + 0j, "infinite"),
        (2.0, np.array([1j, 2j]), "batch axes of the data"),
        (2.0, np.zeros(0, complex), r"one number, or \[B\] of B streams, got shape \(0,\)"),
        ([2.0, 3.0], 1j, "one number"),
    ):
        with pytest.raises(ValueError, match=error):
            gp.step(x, z)
    with pytest.raises(TypeError, match="complex"):
        gp.step(2.0, 1.0)
    np.testing.assert_array_equal(gp.predict([1.5])["mean"], before)
    weight = gp.noise_variance.variable
    value = weight.numpy()
    weight.assign(np.nan)
    with pytest.raises(ValueError, match="elements that are NaN"):
        gp.step(2.0, 1j)
    weight.assign(value)
    np.testing.assert_array_equal(gp.predict([1.5])["mean"], before)


def test_of_a_missing_sample_there_is_no_innovation():
    gp = cgp.StateSpaceGP(tone(), 0.2)
    gp.step(1.0, 1j)
    for innovation in (
        gp.step(2.0, np.nan).innovation,
        gp.step(3.0, 1.0 + 1j, missing=True).innovation,
    ):
        assert np.isnan(innovation.real)
        assert np.isnan(innovation.imag)


def test_a_far_point_changes_nothing_near_the_data():
    x, z = series(11)
    gp = cgp.StateSpaceGP(wobble(), 0.2)
    gp.condition(x, z)
    near, far = gp.predict([3.3]), gp.predict([3.3, 1e12])
    np.testing.assert_allclose(far["mean"][0], near["mean"][0], rtol=1e-12)
    np.testing.assert_allclose(far["variance"][0], near["variance"][0], rtol=1e-12)
    np.testing.assert_allclose(far["mean"][1], 0.0, atol=1e-12)


@pytest.mark.parametrize("step", long_except([1e-15, 1e-7, 1e-3, 1e-1], 1e-15, 1e-1))
def test_do_long_cascades_survive_small_steps(step):
    resonance = Matern12(1.0, 20.0, fixed="variance") * Rotation(0.84)
    kernel = Driven(resonance, MarkovApproximation(RBF(1.0, 2.0), 6) * Matern52(1.0, 5.0))
    x = step * np.arange(8.0)
    found, expected = (
        kind(kernel, 0.1).log_marginal_likelihood(x, np.exp(1j * x))
        for kind in (cgp.StateSpaceGP, cgp.ExactGP)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_called_it_refuses_what_it_refuses_to_be_fitted_to():
    x, z = series(12)
    z[7] = 0.0
    with pytest.raises(ValueError, match="x must have one dimension, got 2"):
        cgp.StateSpaceGP(tone(), 0.2)((np.stack([x, 7 * x], axis=-1), z))
    with pytest.raises(ValueError, match=r"starts at 30\.0, but x goes back to"):
        cgp.StateSpaceGP(RandomWalk(1.0, start=30.0), 0.2)((x[:, None], z))


def test_does_it_learn_a_batch_by_gradient_steps():
    x, z = series(13, 20, (2,))
    gp = cgp.StateSpaceGP(tone(), 1.0)
    gp.compile(keras.optimizers.Adam(0.05), run_eagerly=True)
    losses = gp.fit(x, z, epochs=6, verbose=0).history["loss"]
    assert losses[-1] < losses[0] - 0.01
    drawn = gp.sample(elsewhere(x), 3, seed=1)
    assert drawn.shape == (3, 2, 9)
    spread = np.abs(drawn - gp.predict(elsewhere(x))["mean"])
    assert np.all(spread < 5.0 * np.sqrt(gp.predict(elsewhere(x))["variance"]) + 1e-9)


def test_what_it_cannot_be_made_of_says_why():
    with pytest.raises(ValueError, match=r"RationalQuadratic\(.*is not Markov"):
        cgp.StateSpaceGP(tone() + RationalQuadratic(1.0, 1.0, 1.0), 0.1)
    with pytest.raises(ValueError, match="IntegratedRandomWalk"):
        cgp.StateSpaceGP(tone(), 0.1, mean=cgp.means.Polynomial(1, marginalized=True))
    gp = cgp.StateSpaceGP(tone(), 0.1)
    with pytest.raises(ValueError, match="x must have one dimension, got 2"):
        gp.condition(np.ones((3, 2)), np.ones(3, complex))
    with pytest.raises(ValueError, match=r"starts at 0\.0, but x goes back to -1"):
        cgp.StateSpaceGP(RandomWalk(1.0), 0.1).condition([-1.0, 1.0], [1j, 2j])
    with pytest.raises(ValueError, match="no data"):
        gp.parameter_covariance()


def test_what_came_before_a_walk_is_not_known_for_certain():
    gp = cgp.StateSpaceGP(RandomWalk(1.0, start=0.0), 0.1)
    gp.condition([1.0, 2.0], [1j, 2j])
    for words in (gp.predict, gp.sample, gp.posterior):
        with pytest.raises(ValueError, match=r"starts at 0\.0, but x goes back to -5"):
            words([-5.0])
    with pytest.raises(ValueError, match=r"starts at 0\.0"):
        cgp.StateSpaceGP(RandomWalk(1.0, start=0.0), 0.1).step(-5.0, 1j)


@pytest.mark.long
def test_does_a_graph_see_the_samples_that_come_after_it(capfd):
    x, z = series(10, 8)
    order = np.argsort(x)
    gp = cgp.StateSpaceGP(tone(), 0.2)
    gp.condition(x[order[:3]], z[order[:3]])
    mean = tf.function(lambda q: gp.posterior(q).mean())
    new = np.array([1.5, 2.5])
    np.testing.assert_allclose(mean(tf.constant(new)), gp.predict(new)["mean"], atol=1e-13)
    for i in order[3:]:
        gp.step(x[i], z[i])
    np.testing.assert_allclose(mean(tf.constant(new)), gp.predict(new)["mean"], atol=1e-13)
    assert "Logging error" not in capfd.readouterr().err


def test_are_observed_draws_those_of_signal_and_noise():
    gp = cgp.StateSpaceGP(tone(), 0.2, 0.1j)
    new = np.linspace(0.0, 3.0, 3)
    draws = gp.sample(new, 20_000, seed=1, observed=True)
    posterior = gp.posterior(new, observed=True)
    bound = 5.0 * 1.2 / np.sqrt(20_000)
    k = np.einsum("sa,sb->ab", draws, draws.conj()) / 20_000
    c = np.einsum("sa,sb->ab", draws, draws) / 20_000
    assert np.abs(k - posterior.covariance()).max() < bound
    assert np.abs(c - posterior.pseudo_covariance()).max() < 1.5 * bound


def test_is_it_a_layer_among_layers():
    x, z = series(8)
    gp, fresh = cgp.StateSpaceGP(tone(), 0.2), cgp.StateSpaceGP(tone(), 0.2)
    found = gp((x[:, None], z))
    (loss,) = gp.losses
    expected = -fresh.log_marginal_likelihood(x, z) / 29
    np.testing.assert_allclose(loss, expected, rtol=1e-12)
    fresh.condition(x, z)
    np.testing.assert_allclose(found["mean"], fresh.predict(x)["mean"], atol=1e-12)
    copy = cgp.clone_model(gp)
    np.testing.assert_array_equal(list(copy.parameters().values()), list(gp.parameters().values()))


def test_is_single_precision_single():
    x, z = series(9)
    kernel = Matern32(1.0, 2.0, dtype="float32") * Rotation(0.3, dtype="float32")
    gp, exact = cgp.StateSpaceGP(kernel, 0.2), cgp.ExactGP(tone(), 0.2)
    gp.condition(x.astype("float32"), z.astype("complex64"))
    exact.condition(x, z)
    found = gp.predict(elsewhere(x).astype("float32"))
    assert found["mean"].dtype == np.complex64
    np.testing.assert_allclose(found["mean"], exact.predict(elsewhere(x))["mean"], atol=2e-4)
    step = gp.step(np.float32(11.0), np.complex64(1j))
    assert step.predicted.mean.dtype == np.complex64
    expected = exact.predict([11.0], observed=True)
    np.testing.assert_allclose(step.predicted.mean, expected["mean"][0], atol=2e-4)
    np.testing.assert_allclose(step.predicted.variance, expected["variance"][0], atol=2e-4)


@pytest.mark.slow
@pytest.mark.long
def test_do_many_irregular_samples_take_linear_memory_and_stay_right():
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0.0, 2e4, 100_000))
    z = np.exp(0.6j * np.pi * x) + 0.3 * (rng.normal(size=x.shape) + 1j * rng.normal(size=x.shape))
    gp = cgp.StateSpaceGP(Matern32(1.0, 200.0) * Rotation(0.3), 0.18)
    gp.condition(x, z)
    found = gp.predict(x[50_000:50_010])["mean"]
    near = slice(49_000, 51_000)
    exact = cgp.ExactGP(Matern32(1.0, 200.0) * Rotation(0.3), 0.18)
    exact.condition(x[near], z[near])
    np.testing.assert_allclose(found, exact.predict(x[50_000:50_010])["mean"], atol=1e-6)
