"""Mean functions: fitted and marginalised trends."""

import keras
import numpy as np
import pytest

import cgp
from cgp.kernels import Constant, Matern32
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


@every_problem
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
    gps = [cgp.ExactGP(Matern32(), 0.1, mean=m) for m in (mean, again)]
    values = [gp.log_marginal_likelihood(x, z) for gp in gps]
    np.testing.assert_array_equal(values[0], values[1])
    assert list(gps[0].parameters()) == list(gps[1].parameters())
    assert len(again.trainable_variables) == len(mean.trainable_variables)
