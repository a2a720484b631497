"""ExactGP against the dense reference."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.distributions.forms import SecondMoments
from cgp.gp.noise import COMMON_NOISE
from cgp.gp.posterior import of_signal
from cgp.kernels import RBF, Matern32, Rotation, WidelyLinear
from tests.gp.problems import NOISE, complex_normals, problems, series
from tests.reference import gaussian_process as reference

TIGHT = {"rtol": 1e-9, "atol": 1e-9}
X_NEW = np.array([-1.0, 0.3, 2.2, 2.3, 5.0, 11.0])

every_problem = pytest.mark.parametrize("problem", problems(), ids=lambda p: p.name)
every_hole = pytest.mark.parametrize("missing", [(), (0, 3, 11)], ids=["whole", "holes"])


@every_problem
@every_hole
def test_is_the_likelihood_that_of_the_dense_reference(problem, missing):
    x, z = series(missing=missing)
    expected = reference.log_marginal_likelihood(z, *problem.observed(x[:, None]))
    np.testing.assert_allclose(problem.gp().log_marginal_likelihood(x, z), expected, **TIGHT)


@every_problem
@every_hole
@pytest.mark.parametrize("observed", [False, True])
def test_is_the_posterior_that_of_the_dense_reference(problem, missing, observed):
    x, z = series(missing=missing)
    mean, k, c = reference.posterior(
        z, *problem.observed(x[:, None]), *problem.at(x[:, None], X_NEW[:, None])
    )
    if observed:
        k = k + NOISE * np.eye(len(X_NEW))
        c = c + problem.noise_pseudo_variance * np.eye(len(X_NEW))
    gp = problem.gp()
    gp.condition(x, z)

    posterior = gp.posterior(X_NEW, observed=observed)
    np.testing.assert_allclose(posterior.mean(), mean, **TIGHT)
    np.testing.assert_allclose(posterior.covariance(), k, **TIGHT)
    np.testing.assert_allclose(posterior.pseudo_covariance(), c, **TIGHT)

    predicted = gp.predict(X_NEW, observed=observed)
    assert {type(v) for v in predicted.values()} == {np.ndarray}
    np.testing.assert_allclose(predicted["mean"], mean, **TIGHT)
    np.testing.assert_allclose(predicted["variance"], np.diag(k).real, **TIGHT)
    np.testing.assert_allclose(predicted["pseudo_variance"], np.diag(c), **TIGHT)


@every_problem
def test_is_the_posterior_before_data_the_prior(problem):
    posterior = problem.gp().posterior(X_NEW)
    k, c = problem.pair(X_NEW[:, None], X_NEW[:, None])
    np.testing.assert_array_equal(posterior.mean(), np.zeros(len(X_NEW)))
    np.testing.assert_allclose(posterior.covariance(), k, **TIGHT)
    np.testing.assert_allclose(posterior.pseudo_covariance(), c, **TIGHT)
    np.testing.assert_allclose(posterior.variance(), np.diag(k).real, **TIGHT)


@every_problem
@every_hole
def test_does_leave_one_out_equal_brute_force(problem, missing):
    x, z = series(missing=missing)
    gp = problem.gp()
    gp.condition(x, z)
    found = gp.loo()
    mean, variance, pseudo_variance = reference.leave_one_out(z, *problem.observed(x[:, None]))
    present = ~np.isnan(z)
    np.testing.assert_allclose(found["mean"][present], mean[present], **TIGHT)
    np.testing.assert_allclose(found["variance"][present], variance[present], **TIGHT)
    np.testing.assert_allclose(found["pseudo_variance"][present], pseudo_variance[present], **TIGHT)
    for values in found.values():
        assert np.isnan(values[~present]).all()


@pytest.mark.parametrize(
    ("problem", "layout"),
    [
        pytest.param(
            problem,
            layout,
            id=f"{layout}-{problem.name}",
            marks=pytest.mark.long
            if problem.name != "all improper" or layout == "shared inputs"
            else (),
        )
        for problem in problems()
        for layout in ("shared inputs", "own holes", "own inputs")
    ],
)
def test_is_a_batch_its_series_one_by_one(problem, layout):
    rng = np.random.default_rng(1)
    x, z = rng.uniform(0.0, 10.0, 12), complex_normals(rng, 2, 3, 12)
    z[..., 5] = np.nan
    if layout == "own holes":
        z[0, 1, 7:9] = np.nan
    xs = np.broadcast_to(x[:, None], (2, 3, 12, 1))
    if layout == "own inputs":
        xs = xs + rng.normal(size=(2, 3, 12, 1))
    gp, single = problem.gp(), problem.gp()
    gp.condition(xs if layout == "own inputs" else x, z)
    predicted, left_out = gp.predict(X_NEW), gp.loo()
    assert gp.posterior(X_NEW).sample(4, seed=1).shape == (4, 2, 3, len(X_NEW))
    likelihoods = gp.log_marginal_likelihood(xs if layout == "own inputs" else x, z)
    assert likelihoods.shape == (2, 3)
    for index in np.ndindex(2, 3):
        single.condition(xs[index], z[index])
        for name, value in single.predict(X_NEW).items():
            np.testing.assert_allclose(predicted[name][index], value, **TIGHT)
        for name, value in single.loo().items():
            np.testing.assert_allclose(left_out[name][index], value, **TIGHT)
        expected = single.log_marginal_likelihood(xs[index], z[index])
        np.testing.assert_allclose(likelihoods[index], expected, **TIGHT)


def test_may_each_series_have_new_inputs_of_its_own():
    rng = np.random.default_rng(2)
    x, z, x_new = rng.normal(size=(3, 8, 2)), complex_normals(rng, 3, 8), rng.normal(size=(3, 5, 2))
    gp, single = (cgp.ExactGP(RBF(1.0, 1.0), NOISE) for _ in range(2))
    gp.condition(x, z)
    predicted = gp.predict(x_new)
    for i in range(3):
        single.condition(x[i], z[i])
        for name, value in single.predict(x_new[i]).items():
            np.testing.assert_allclose(predicted[name][i], value, **TIGHT)


def test_are_elements_missing_by_the_argument_missing_by_nan():
    x, z = series()
    missing = np.zeros(len(x), bool)
    missing[[2, 4]] = True
    gp, other = (problems()[0].gp() for _ in range(2))
    gp.condition(x, z, missing=missing)
    other.condition(x, np.where(missing, np.nan, z))
    np.testing.assert_array_equal(gp.predict(X_NEW)["mean"], other.predict(X_NEW)["mean"])
    assert np.isfinite(z).all(), "the caller's array was changed"
    np.testing.assert_array_equal(
        gp.log_marginal_likelihood(x, z, missing),
        other.log_marginal_likelihood(x, np.where(missing, np.nan, z)),
    )


def test_is_what_a_mask_hides_missing():
    x, z = series()
    masked = np.ma.array(z, mask=np.arange(len(z)) == 3)
    masked.data[3] = 1e6
    gp, other = (problems()[0].gp() for _ in range(2))
    gp.condition(x, masked, missing=np.arange(len(z)) == 5)
    z[[3, 5]] = np.nan
    other.condition(x, z)
    np.testing.assert_array_equal(gp.predict(X_NEW)["mean"], other.predict(X_NEW)["mean"])
    with pytest.raises(ValueError, match="x must be known everywhere"):
        gp.condition(np.ma.array(x, mask=x > 5), z)


def test_does_a_rotation_of_the_data_leave_a_proper_likelihood_unchanged():
    x, z = series()
    gp = problems()[0].gp()
    turned = gp.log_marginal_likelihood(x, np.exp(0.7j) * z)
    np.testing.assert_allclose(turned, gp.log_marginal_likelihood(x, z), rtol=1e-13)


def test_does_an_improper_likelihood_turn_with_the_pseudo_covariance():
    x, z = series()
    gps = [
        cgp.ExactGP(WidelyLinear(RBF(1.0, 1.0), 0.5 * turn), NOISE, 0.1 * turn)
        for turn in (1, np.exp(1.4j))
    ]
    values = [
        gp.log_marginal_likelihood(x, angle * z)
        for gp, angle in zip(gps, (1, np.exp(0.7j)), strict=True)
    ]
    np.testing.assert_allclose(values[1], values[0], rtol=1e-12)
    unturned = gps[0].log_marginal_likelihood(x, np.exp(0.7j) * z)
    assert abs(unturned - values[0]) > 0.1


def test_is_an_improper_model_without_pseudo_covariance_the_proper_one():
    x, z = series(missing=[4])
    proper = cgp.ExactGP(Matern32(1.0, 1.0) * Rotation(0.4), NOISE)
    improper = cgp.ExactGP(WidelyLinear(Matern32(1.0, 1.0) * Rotation(0.4), 0.0), NOISE)
    proper.condition(x, z)
    improper.condition(x, z)
    for name, value in proper.predict(X_NEW).items():
        np.testing.assert_allclose(improper.predict(X_NEW)[name], value, **TIGHT)
    np.testing.assert_allclose(
        improper.log_marginal_likelihood(x, z), proper.log_marginal_likelihood(x, z), rtol=1e-12
    )


@every_problem
def test_do_samples_have_the_moments_of_the_posterior(problem):
    x, z = series()
    gp = problem.gp()
    gp.condition(x, z)
    x_new, count = np.array([0.3, 0.8, 12.0]), 40_000
    draws, posterior = gp.sample(x_new, count, seed=5), gp.posterior(x_new)
    assert draws.shape == (count, 3)
    deviation = draws - posterior.mean().numpy()
    scale = 4.0 / np.sqrt(count)
    np.testing.assert_allclose(deviation.mean(0), 0.0, atol=2 * scale)
    covariance = np.einsum("si,sj->ij", deviation, deviation.conj()) / count
    pseudo = np.einsum("si,sj->ij", deviation, deviation) / count
    np.testing.assert_allclose(covariance, posterior.covariance(), atol=3 * scale)
    np.testing.assert_allclose(pseudo, posterior.pseudo_covariance(), atol=3 * scale)
    np.testing.assert_array_equal(draws, gp.sample(x_new, count, seed=5))


@pytest.mark.parametrize("coefficient", [None, 0.4j])
def test_can_a_posterior_far_below_its_prior_be_sampled(coefficient):
    """Of a covariance whose rounding, that of the prior, is 1e-9 of it."""
    x, kernel = np.linspace(0.0, 9.0, 40), cgp.kernels.Matern52(1.0, 2.0)
    kernel = kernel if coefficient is None else cgp.kernels.WidelyLinear(kernel, coefficient)
    gp = cgp.ExactGP(kernel, noise_variance=1e-8)
    gp.condition(x, np.exp(1j * x))
    for count in (5, 7, 20):
        deviation = gp.sample(x[:count], 400, seed=0) - gp.predict(x[:count])["mean"]
        variance = gp.predict(x[:count])["variance"]
        np.testing.assert_allclose(np.mean(np.abs(deviation) ** 2, axis=0), variance, rtol=0.25)


@every_problem
def test_can_a_smooth_posterior_be_sampled_at_many_points(problem):
    x, _ = series()
    smooth = RBF(1.0, 5.0) if problem.kernel.is_proper else WidelyLinear(RBF(1.0, 5.0), 0.9)
    gp = cgp.ExactGP(smooth, 1e-6)
    gp.condition(x, np.exp(0.3j * x))
    draws = gp.sample(np.linspace(0.0, 10.0, 300), 3, seed=1)
    assert np.isfinite(draws).all()
    assert np.abs(draws - np.exp(0.3j * np.linspace(0.0, 10.0, 300))).max() < 0.05


def test_is_a_float32_model_close_to_its_float64_twin():
    x, z = series()
    single = cgp.ExactGP(
        Matern32(1.0, 1.0, dtype="float32") * Rotation(0.4, dtype="float32"), NOISE
    )
    double = cgp.ExactGP(Matern32(1.0, 1.0) * Rotation(0.4), NOISE)
    single.condition(x, z.astype(np.complex64))
    double.condition(x, z)
    predicted = single.predict(X_NEW)
    assert {k: v.dtype for k, v in predicted.items()} == {
        "mean": np.complex64,
        "variance": np.float32,
        "pseudo_variance": np.complex64,
    }
    for name, value in double.predict(X_NEW).items():
        np.testing.assert_allclose(predicted[name], value, atol=2e-5)


def test_does_conditioning_again_forget_the_data_before():
    gp, other = (problems()[0].gp() for _ in range(2))
    for seed, n in ((0, 25), (1, 25), (2, 14)):
        x, z = series(seed, n)
        gp.condition(x, z)
        other = problems()[0].gp()
        other.condition(x, z)
        np.testing.assert_array_equal(gp.predict(X_NEW)["mean"], other.predict(X_NEW)["mean"])


def test_do_predictions_follow_a_hyperparameter_that_is_assigned():
    x, z = series()
    gp = problems()[1].gp()
    gp.condition(x, z)
    before = gp.predict(X_NEW)["mean"]
    gp.noise_variance.assign(0.7)
    np.testing.assert_allclose(float(gp.noise_variance), 0.7, rtol=1e-14)
    fresh = cgp.ExactGP(gp.kernel, 0.7)
    fresh.condition(x, z)
    np.testing.assert_allclose(gp.predict(X_NEW)["mean"], fresh.predict(X_NEW)["mean"], **TIGHT)
    assert np.abs(gp.predict(X_NEW)["mean"] - before).max() > 1e-3


@pytest.mark.long
def test_does_a_graph_that_predicts_see_new_data_and_hyperparameters():
    gp = problems()[0].gp()
    gp.condition(*series(0, 20))
    predict = tf.function(lambda x: gp(x)["mean"])
    x_new = tf.constant(X_NEW)
    np.testing.assert_allclose(predict(x_new), gp.predict(X_NEW)["mean"], **TIGHT)
    gp.condition(*series(1, 13))
    np.testing.assert_allclose(predict(x_new), gp.predict(X_NEW)["mean"], **TIGHT)
    gp.noise_variance.assign(0.5)
    np.testing.assert_allclose(predict(x_new), gp.predict(X_NEW)["mean"], **TIGHT)


@pytest.mark.long
def test_is_a_graph_equal_to_eager_and_to_xla():
    x, z = series(n=9, missing=[2])
    gp = problems()[1].gp()
    eager = gp((tf.constant(x), tf.constant(z)))
    for jit in (False, True):
        compiled = tf.function(lambda x, z: gp((x, z)), jit_compile=jit, autograph=False)
        for name, value in compiled(tf.constant(x), tf.constant(z)).items():
            np.testing.assert_allclose(value, eager[name], **TIGHT)


def test_is_an_observation_never_surer_than_its_noise():
    """Of a variance far above the noise rounding may leave less than nothing, as here."""
    process = cgp.ExactGP(RBF(1.0, 1.0), noise_variance=1e-9)._process
    rounded = SecondMoments(tf.constant([-1e-7, 1e-7], tf.complex128))
    zeros = tf.zeros(2, tf.complex128)

    def variance(noise):
        found = of_signal(process, zeros, rounded, lambda: None, lambda: None, noise)
        return found.variance().numpy()

    np.testing.assert_allclose(variance(COMMON_NOISE), [1e-9, 1.01e-7])
    np.testing.assert_allclose(variance(None), [0.0, 1e-7])
