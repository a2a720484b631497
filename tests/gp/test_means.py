"""Mean functions: fitted and marginalised trends."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import cgp
from cgp.kernels import Constant, Matern32, Zero
from tests.gp.problems import complex_normals, problems, series
from tests.reference import gaussian_process as reference

X_NEW = np.array([-1.0, 0.3, 5.0, 11.0])
TIGHT = {"rtol": 1e-9, "atol": 1e-9}
every_problem = pytest.mark.parametrize("problem", problems(), ids=lambda p: p.name)


@every_problem
@pytest.mark.parametrize("degree", [0, 1, 2])
def test_is_a_marginalised_trend_that_of_the_reference(problem, degree):
    x, z = series(missing=[1, 6])
    gp = problem.gp(mean=cgp.means.Polynomial(degree, marginalized=True))
    h = reference.polynomial(x, degree)
    k, c = problem.observed(x[:, None])
    if gp.kernel.is_proper and problem.noise_pseudo_variance == 0:
        expected = reference.trend_log_likelihood(z, k, h)
    else:
        expected = reference.improper_trend_log_likelihood(z, k, c, h)
    np.testing.assert_allclose(gp.log_marginal_likelihood(x, z), expected, **TIGHT)


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(
            p, id=p.name, marks=() if p.name in ("proper", "all improper") else pytest.mark.long
        )
        for p in problems()
    ],
)
def test_is_a_marginalised_constant_a_constant_kernel_of_huge_variance(problem):
    x, z = series(missing=[1, 6])
    trend = problem.gp(mean=cgp.means.Polynomial(0, marginalized=True))
    vague = cgp.ExactGP(problem.kernel + Constant(1e7), 0.2, problem.noise_pseudo_variance)
    trend.condition(x, z)
    vague.condition(x, z)
    for name, value in vague.predict(X_NEW).items():
        np.testing.assert_allclose(trend.predict(X_NEW)[name], value, atol=1e-5)
    for name, value in vague.loo().items():
        np.testing.assert_allclose(trend.loo()[name], value, atol=1e-5)
    np.testing.assert_allclose(
        trend.posterior(X_NEW).covariance(), vague.posterior(X_NEW).covariance(), atol=1e-5
    )


@every_problem
def test_does_a_marginalised_trend_leave_the_rest_to_the_process(problem):
    """Adding a polynomial to the data moves the posterior by it, and changes nothing else."""
    x, z = series()
    mean = cgp.means.Polynomial(2, marginalized=True, center=5.0, scale=5.0)
    gp, moved = problem.gp(mean=mean), problem.gp(mean=mean)

    def polynomial(x):
        return (3 - 1j) + (0.2 + 0.5j) * x - 0.1j * x**2

    gp.condition(x, z)
    moved.condition(x, z + polynomial(x))
    difference = moved.predict(X_NEW)["mean"] - gp.predict(X_NEW)["mean"]
    np.testing.assert_allclose(difference, polynomial(X_NEW), rtol=1e-9)
    np.testing.assert_allclose(
        moved.log_marginal_likelihood(x, z + polynomial(x)),
        gp.log_marginal_likelihood(x, z),
        rtol=1e-10,
    )


def test_does_a_trend_need_points_that_determine_it():
    def gp():
        return cgp.ExactGP(Matern32(1.0, 1.0), 0.1, mean=cgp.means.Polynomial(1, marginalized=True))

    for x in ([1.0], [1.0, 1.0, 1.0], [0.0, 0.0]):
        with pytest.raises(ValueError, match=r"trend of 2 coefficients is not .* it needs more"):
            gp().condition(x, np.ones(len(x), complex))
    for x in ([1.0, 2.0], [0.3, 0.3, 0.3, 1.7]):
        few = gp()
        few.condition(x, np.ones(len(x), complex))
        with pytest.raises(ValueError, match="not determined without the point at"):
            few.loo()


def test_has_a_trend_coefficients_whose_squares_would_underflow():
    t = np.arange(6.0, dtype="float32")
    mean = cgp.means.Polynomial(2, marginalized=True, dtype="float32")
    gp = cgp.ExactGP(Zero(dtype="float32"), 0.1, mean=mean)
    gp.condition(np.float32(1e-12) * t, (1j + t**2).astype("complex64"))
    np.testing.assert_allclose(gp.predict([8e-12])["mean"], [64 + 1j], rtol=1e-4)


def test_can_a_trend_be_sampled_far_from_its_data():
    x, z = series()
    gp = cgp.ExactGP(Matern32(1.0, 1.0), 0.1, mean=cgp.means.Polynomial(2, marginalized=True))
    gp.condition(x, z)
    assert np.isfinite(gp.sample(np.linspace(0.0, 1e4, 50), 2, seed=0)).all()


@every_problem
def test_is_a_fixed_mean_what_is_subtracted_and_added(problem):
    x, z = series()
    coefficients = np.array([1 + 2j, -0.3j, 0.05])
    gp = problem.gp(mean=cgp.means.Polynomial(2, coefficients, center=1.0, scale=2.0))
    plain = problem.gp()

    def mean(x):
        return np.polyval(coefficients[::-1], (x - 1.0) / 2.0)

    gp.condition(x, z)
    plain.condition(x, z - mean(x))
    expected = plain.predict(X_NEW)
    predicted = gp.predict(X_NEW)
    np.testing.assert_allclose(predicted["mean"], expected["mean"] + mean(X_NEW), **TIGHT)
    np.testing.assert_allclose(predicted["variance"], expected["variance"], **TIGHT)
    np.testing.assert_allclose(
        gp.log_marginal_likelihood(x, z), plain.log_marginal_likelihood(x, z - mean(x)), **TIGHT
    )
    prior = problem.gp(mean=cgp.means.Constant(2 - 1j)).predict(X_NEW)["mean"]
    np.testing.assert_array_equal(prior, np.full(len(X_NEW), 2 - 1j))


def test_is_a_fitted_mean_the_generalised_least_squares_estimate():
    x, z = series(5, 40)
    z = z + 3 - 2j
    gp = cgp.ExactGP(
        Matern32(0.5, 2.0, fixed=["variance", "lengthscale"]),
        0.2,
        mean=cgp.means.Constant(),
        fixed="noise_variance",
    )
    gp.compile(optimizer=cgp.optimizers.LBFGS())
    gp.fit(x, z, verbose=0)
    k = gp.kernel.covariance(x).numpy() + 0.2 * np.eye(40)
    one = np.ones(40)
    weights = np.linalg.solve(k, one)
    np.testing.assert_allclose(
        gp.parameters()["mean.value"], weights @ z / (weights @ one), rtol=1e-5
    )


@pytest.mark.parametrize(
    "mean",
    [
        cgp.means.Constant(1 + 2j, name="offset"),
        cgp.means.Polynomial(1, [1j, 2.0], center=3.0, scale=4.0, fixed="coefficients"),
        cgp.means.Polynomial(2, marginalized=True),
    ],
)
def test_does_a_mean_survive_its_config(mean):
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(mean))
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=8), complex_normals(rng, 8)
    gps = [cgp.ExactGP(Matern32(1.0, 1.0), 0.1, mean=m) for m in (mean, again)]
    values = [gp.log_marginal_likelihood(x, z) for gp in gps]
    np.testing.assert_array_equal(values[0], values[1])
    assert list(gps[0].parameters()) == list(gps[1].parameters())
    assert len(again.trainable_variables) == len(mean.trainable_variables)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: cgp.means.Constant([1, 2]), ValueError, r"value must be one number.*\(2,\)"),
        (lambda: cgp.means.Constant("1+1j"), TypeError, r"value must be a number, got '1\+1j'"),
        (lambda: cgp.means.Constant("1"), TypeError, "value must be a number, got '1'"),
        (lambda: cgp.means.Constant(np.inf), ValueError, "complex and finite, got inf"),
        (lambda: cgp.means.Constant(dtype="float16"), ValueError, "float32 or float64.*'float16'"),
        (lambda: cgp.means.Constant(fixed="mean"), ValueError, r"fixed names \['mean'\]"),
        (lambda: cgp.means.Polynomial("2"), ValueError, "degree must be a whole number.*got '2'"),
        (lambda: cgp.means.Polynomial(None), ValueError, "degree must be a whole number.*got None"),
        (lambda: cgp.means.Polynomial(np.nan), ValueError, "degree must be a whole number.*nan"),
        (lambda: cgp.means.Polynomial(np.inf), ValueError, "degree must be a whole number.*inf"),
        (lambda: cgp.means.Polynomial(-1), ValueError, "degree must be a whole number.*got -1"),
        (lambda: cgp.means.Polynomial(1, center=1j), TypeError, "center must be real, got 1j"),
        (lambda: cgp.means.Polynomial(1, scale="1"), TypeError, "scale must be a number, got '1'"),
        (lambda: cgp.means.Polynomial(1, scale=0.0), ValueError, "scale must be positive"),
        (lambda: cgp.means.Polynomial(1, ["1", "2"]), TypeError, "coefficients must be complex"),
        (lambda: cgp.means.Polynomial(1, [1.0, np.nan]), ValueError, "coefficients must be comp"),
        (
            lambda: cgp.means.Polynomial(1, marginalized=True, fixed=["nonsense"]),
            ValueError, r"fixed names \['nonsense'\], but the parameters of Polynomial are \[\]"),
        (
            lambda: cgp.means.Polynomial(1, marginalized=True, priors={"x": 3}),
            ValueError, r"priors names \['x'\], but the parameters of Polynomial are \[\]"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_by_name(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_mean_shows_its_values():
    assert repr(cgp.means.Constant(1 + 2j)) == "Constant(value=1.+2.j)"
    trend = cgp.means.Polynomial(1, [1j, 2.0], fixed="coefficients")
    assert repr(trend) == "Polynomial(1, coefficients=[0.+1.j, 2.+0.j] (fixed))"
    assert repr(cgp.means.Polynomial(2, marginalized=True)) == "Polynomial(2, marginalized)"


def test_a_prior_of_a_mean_moves_its_estimate_towards_it():
    """With a normal prior of each part the estimate is the ridge regression of the constant."""
    x, z = series(5, 40)
    prior = tfp.distributions.Normal([1.0, -2.0], 0.3)
    gp = cgp.ExactGP(
        Matern32(0.5, 2.0, fixed=["variance", "lengthscale"]),
        0.2,
        mean=cgp.means.Constant(priors={"value": prior}),
        fixed="noise_variance",
    )
    gp.compile(optimizer=cgp.optimizers.LBFGS())
    gp.fit(x, z, verbose=0)
    k = gp.kernel.covariance(x).numpy() + 0.2 * np.eye(40)
    weights = np.linalg.solve(k, np.ones(40))
    # exp(-wᴴ K⁻¹ w) has twice the weight of a real normal: E|z|² = 2 σ² of each part
    precision = 1 / (2 * 0.3**2)
    expected = (weights @ z + precision * (1 - 2j)) / (weights.sum() + precision)
    assert abs(expected - weights @ z / weights.sum()) > 0.05
    np.testing.assert_allclose(gp.parameters()["mean.value"], expected, rtol=1e-5)


@pytest.mark.parametrize("marginalized", [False, True])
def test_has_a_trend_a_gradient_at_its_center(marginalized):
    start = None if marginalized else [1j, 2.0]
    mean = cgp.means.Polynomial(1, start, marginalized=marginalized)
    gp = cgp.ExactGP(Matern32(1.0, 1.0), 0.1, mean=mean)
    gp.condition([0.0, 0.5, 1.0], np.array([1j, 2.0, 3.0]))
    x = tf.constant([0.0, 0.7], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.math.real(tf.reduce_sum(gp.posterior(x).mean()))
    found, h = tape.gradient(y, x).numpy(), 1e-6
    for i, step in enumerate(h * np.eye(2)):
        up, down = (gp.posterior(x.numpy() + s).mean().numpy().sum().real for s in (step, -step))
        np.testing.assert_allclose(found[i], (up - down) / (2 * h), rtol=1e-6, atol=1e-8)
