"""The bound of inducing points and its gradients, against a reference and the exact likelihood."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.gp.sparse import bound
from cgp.kernels import RBF, Along, Matern12, Matern32, Rotation
from tests.gp.differences import assert_are_differences
from tests.gp.problems import NOISE, complex_normals, problems
from tests.long_cases import long_except
from tests.reference import sparse as reference

PROBLEMS = {problem.name: problem for problem in problems()}
INDUCING = np.array([[0.5], [2.6], [4.9], [7.3], [9.5]])
SHORT = ("proper", "all improper")  # the two forms, whose other cases are long where they take time


@pytest.fixture(params=PROBLEMS)
def problem(request):
    return PROBLEMS[request.param]


@pytest.fixture(params=SHORT)
def of_form(request):
    return PROBLEMS[request.param]


def data(seed=0, n=24):
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(0.0, 10.0, (n, 1)), complex_normals(rng, n)
    z[[3, 11]] = np.nan
    return x, z, rng.uniform(0.05, 0.4, n)


def sparse(problem, inducing=INDUCING, **arguments):
    pseudo = problem.noise_pseudo_variance
    return cgp.SparseGP(problem.kernel, NOISE, pseudo, inducing=inducing, **arguments)


def of_reference(problem, x, extra=0.0):
    """The pairs uu, uf, ff and the noise of `tests.reference.sparse`."""
    ones = np.ones(len(x))
    noise = NOISE * ones + extra, problem.noise_pseudo_variance * ones
    pair = problem.pair
    return pair(INDUCING, INDUCING), pair(INDUCING, x), pair(x, x), *noise


@pytest.mark.filterwarnings("ignore:the inducing points leave")
def test_is_the_bound_that_of_the_textbook(problem):
    x, z, known = data()
    gp = sparse(problem)
    for extra, arguments in ((0.0, {}), (known, {"noise_variance": known})):
        expected = reference.bound(z, *of_reference(problem, x, extra))
        value = gp.log_marginal_likelihood(x, z, **arguments)
        np.testing.assert_allclose(value, expected, rtol=1e-9)
        assert expected < problem.gp().log_marginal_likelihood(x, z, **arguments) - 1.0


def test_is_the_bound_the_likelihood_where_all_points_are_inducing(problem):
    x, z, _ = data()
    value = sparse(problem, inducing=100).log_marginal_likelihood(x, z)
    np.testing.assert_allclose(value, problem.gp().log_marginal_likelihood(x, z), atol=1e-6)


@pytest.mark.filterwarnings("ignore:the inducing points leave")
def test_is_the_posterior_that_of_the_textbook(problem):
    x, z, _ = data()
    x_new = np.linspace(-1.0, 12.0, 9)[:, None]
    gp = sparse(problem)
    gp.condition(x, z)
    uu, uf, _, *noise = of_reference(problem, x)
    at = problem.pair(INDUCING, x_new), problem.pair(x_new, x_new)
    mean, k, c = reference.posterior(z, uu, uf, *noise, *at)
    posterior = gp.posterior(x_new)
    np.testing.assert_allclose(posterior.mean(), mean, atol=1e-8)
    np.testing.assert_allclose(posterior.covariance(), k, atol=1e-8)
    np.testing.assert_allclose(posterior.pseudo_covariance(), c, atol=1e-8)
    moments = gp.predict(x_new, observed=True)
    np.testing.assert_allclose(moments["variance"], np.diag(k).real + NOISE, atol=1e-8)
    expected = np.diag(c) + problem.noise_pseudo_variance
    np.testing.assert_allclose(moments["pseudo_variance"], expected, atol=1e-8)


def test_is_the_posterior_the_exact_one_where_all_points_are_inducing(problem):
    x, z, known = data()
    x_new = np.linspace(-1.0, 12.0, 9)
    gp, exact = sparse(problem, inducing=100), problem.gp()
    for model in (gp, exact):
        model.condition(x, z, noise_variance=known)
    for part in (None, *problem.kernel.parts[:1]) if problem.name == "proper" else (None,):
        posterior, other = (model.posterior(x_new, part=part) for model in (gp, exact))
        np.testing.assert_allclose(posterior.mean(), other.mean(), atol=1e-6)
        np.testing.assert_allclose(posterior.covariance(), other.covariance(), atol=1e-6)
        pseudo = other.pseudo_covariance()
        np.testing.assert_allclose(posterior.pseudo_covariance(), pseudo, atol=1e-6)


# --- gradients and chunks --------------------------------------------------------------------


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(bound, "_CHUNK", 16)
    monkeypatch.setattr(bound, "_SMALLEST", 8)


def with_mean(problem):
    return sparse(problem, mean=cgp.means.Constant(0.3 - 0.2j), noise_scale=0.7)


GRADIENTS = [*((name, False) for name in PROBLEMS), *((name, True) for name in SHORT)]


@pytest.mark.parametrize(
    ("name", "graph"), long_except(GRADIENTS, *((name, False) for name in SHORT))
)
def test_is_the_gradient_in_chunks_that_of_central_differences(name, graph, small_chunks):
    x, z, known = data()
    gp = with_mean(PROBLEMS[name])
    variables = gp.trainable_variables
    assert any(v is gp.inducing.variable for v in variables)

    def objective():
        return gp.log_marginal_likelihood(x, z, noise_variance=known)

    def gradients():
        with tf.GradientTape() as tape:
            value = objective()
        return tape.gradient(value, [v.value for v in variables])

    gradient = tf.function(gradients)() if graph else gradients()
    assert_are_differences(
        objective, variables, gradient, 1e-5, each=not graph, rtol=1e-5, atol=1e-6
    )


def test_are_chunks_summed_up(of_form, monkeypatch):
    x, z, known = data()
    gp = with_mean(of_form)
    whole = gp.log_marginal_likelihood(x, z, noise_variance=known)
    monkeypatch.setattr(bound, "_CHUNK", 16)
    monkeypatch.setattr(bound, "_SMALLEST", 8)
    in_chunks = gp.log_marginal_likelihood(x, z, noise_variance=known)
    np.testing.assert_allclose(in_chunks, whole, rtol=1e-12)


def test_are_gradients_by_x_and_z_those_of_central_differences(of_form, small_chunks):
    x, z, _ = data()
    gp, rng = with_mean(of_form), np.random.default_rng(1)
    dx, dz = rng.normal(size=x.shape), complex_normals(rng, len(z))
    sources = tf.constant(x), tf.constant(z)
    with tf.GradientTape() as tape:
        tape.watch(sources)
        value = gp.log_marginal_likelihood(*sources)
    by_x, by_z = tape.gradient(value, sources)
    h = 1e-6
    for step_x, step_z, slope in (
        (h * dx, 0.0, np.sum(by_x * dx)),
        (0.0, h * dz, np.sum(np.conj(by_z) * dz).real),
    ):
        sides = [
            float(gp.log_marginal_likelihood(x + sign * step_x, z + sign * step_z))
            for sign in (1.0, -1.0)
        ]
        np.testing.assert_allclose(slope, (sides[0] - sides[1]) / (2 * h), rtol=1e-5)


@pytest.mark.filterwarnings("ignore:the inducing points leave")
def test_is_the_gradient_of_a_posterior_that_of_central_differences(of_form):
    x, z, _ = data()
    gp = with_mean(of_form)
    gp.condition(x, z)
    variables = gp.trainable_variables

    def objective():
        posterior = gp.posterior([1.3, 4.4, 8.1])
        weights = tf.constant([1.0 - 2j, 0.5j, -0.7], tf.complex128)
        square = tf.reduce_sum(posterior.variance() ** 2)
        return square + tf.math.real(tf.reduce_sum(posterior.mean() * weights))

    with tf.GradientTape() as tape:
        value = objective()
    gradients = tape.gradient(value, [v.value for v in variables])
    assert_are_differences(objective, variables, gradients, 1e-5, rtol=1e-5)


def test_a_second_derivative_is_an_error():
    x, z, _ = data()
    gp = sparse(PROBLEMS["proper"])
    variable = gp.noise_variance.variable.value
    with tf.GradientTape() as outer:
        with tf.GradientTape() as tape:
            value = gp.log_marginal_likelihood(x, z)
        gradient = tape.gradient(value, variable)
    with pytest.raises(tf.errors.InvalidArgumentError, match="first derivatives alone"):
        outer.gradient(gradient, variable)


@pytest.mark.parametrize("graph", [False, True])
def test_is_a_carrier_removed_without_an_effect(graph, small_chunks, monkeypatch):
    x, z, known = data()
    x, series = np.hstack([x + 1e5, x[::-1] ** 2 / 10.0 - 3e4]), np.stack([z, np.conj(z)])
    turning = RBF(1.3, [2.0, 3.0]) * Rotation([0.3, -0.2]) * Along(Matern32(1.0, 4.0), 1)
    gp = cgp.SparseGP(turning * Along(Rotation(-0.1), 1), NOISE, inducing=x[::4])

    def value_and_gradients():
        sources = [*(v.value for v in gp.trainable_variables), tf.constant(x), tf.constant(series)]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            values = gp.log_marginal_likelihood(*sources[-2:], noise_variance=known)
            value = tf.reduce_sum(values * [1.0, 0.4])
        return values, *tape.gradient(value, sources)

    assert gp.kernel.carrier_turns(tf.constant(x)) is not None
    without_carrier = (tf.function(value_and_gradients) if graph else value_and_gradients)()
    monkeypatch.setattr(type(gp.kernel), "carrier_turns", lambda *_: None)
    for a, b in zip(without_carrier, value_and_gradients(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9 * np.max(np.abs(b)))


def test_is_the_exact_process_that_of_dense_inducing_points_under_a_fast_carrier():
    # Over 2000 turns phases of K_uu are rounded by more than its least eigenvalues.
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(0.0, 20.0, 120))
    z = np.exp(200j * np.pi * x) * (np.cos(x) + 1j * np.sin(0.7 * x))
    z += 0.1 * complex_normals(rng, len(x))
    kernel = RBF(3.0, 2.3) * Rotation(100.0)
    exact, gp = cgp.ExactGP(kernel, 0.02), cgp.SparseGP(kernel, 0.02, inducing=x[:, None])
    assert float(gp.log_marginal_likelihood(x, z)) < float(exact.log_marginal_likelihood(x, z))

    gradients, moments = [], []
    for process in (exact, gp):
        variables = [
            v.value for v in (*kernel.trainable_variables, process.noise_variance.variable)
        ]
        with tf.GradientTape() as tape:
            value = process.log_marginal_likelihood(x, z)
        gradients.append([float(value), *map(float, tape.gradient(value, variables))])
        process.condition(x, z)
        moments.append(process.predict(np.linspace(-1.0, 21.0, 50)))
    np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-6)
    for name, moment in moments[0].items():
        np.testing.assert_allclose(moments[1][name], moment, atol=1e-8)


def test_keeps_single_precision_its_carrier():
    x = np.arange(0.0, 1e5, 500.0, np.float32)
    kernel = Matern12(1.0, 1500.0, dtype="float32") * Rotation(0.37, dtype="float32")
    gp = cgp.SparseGP(kernel, 0.01, inducing=x[:, None], dtype="float32")
    exact = cgp.ExactGP(kernel, 0.01, dtype="float32")
    z = exact.sample(x, 1, seed=0)[0]
    for process in (gp, exact):
        process.condition(x, z)
    np.testing.assert_allclose(gp.predict(x)["mean"], exact.predict(x)["mean"], atol=2e-3)


@pytest.mark.filterwarnings("ignore:the inducing points leave")
@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("shared", "proper"),
        ("gaps", "proper"),
        ("places", "all improper"),
        ("noise", "all improper"),
    ],
)
def test_are_several_series_like_each_alone(case, name, small_chunks):
    problem, (x, z, known) = PROBLEMS[name], data()
    series = np.stack([z, np.conj(z) + 0.5, 1j * z])
    noise = None
    if case == "gaps":
        series[1, 15:] = np.nan
    if case == "places":
        x = np.stack([x, x + 0.3, 0.5 * x])
    if case == "noise":
        noise = np.stack([known, 2.0 * known, 0.0 * known])
    gp = sparse(problem)
    values = gp.log_marginal_likelihood(x, series, noise_variance=noise)
    gp.condition(x, series, noise_variance=noise)
    at = [0.7, 5.5]
    moments = gp.predict(at)
    for i in range(3):
        arguments = {"noise_variance": None if noise is None else noise[i]}
        one = x[i] if case == "places" else x, series[i]
        value = gp.log_marginal_likelihood(*one, **arguments)
        np.testing.assert_allclose(values[i], value, rtol=1e-11)
        alone = sparse(problem)
        alone.condition(*one, **arguments)
        for name, moment in alone.predict(at).items():
            np.testing.assert_allclose(moments[name][i], moment, rtol=1e-9, atol=1e-11)
