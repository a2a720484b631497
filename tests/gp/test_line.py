"""A regular line of a stationary process: the same results as by its dense covariance."""

import keras
import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf

import cgp
from cgp.gp import data as gp_data
from cgp.gp.fit_checks import left_out_residuals
from cgp.gp.means import Polynomial
from cgp.kernels import (
    RBF,
    Autoregressive,
    Conjugate,
    Constant,
    ExponentialDelays,
    Kernel,
    Matern,
    Matern32,
    Periodic,
    RandomWalk,
    Rotation,
    Szego,
    White,
    WidelyLinear,
)
from tests.reference import gaussian_process as reference

N = 60
X = np.linspace(3.0, 9.0, N)
NEW = np.array([3.05, 5.0, 9.3])


@pytest.fixture(autouse=True)
def short_lines(monkeypatch):
    monkeypatch.setattr(gp_data, "_FEWEST", 20)


def kernel():
    return RBF(1.5, 0.6) * Rotation(0.4) + 0.2 * Matern32(1.0, 0.2)


def targets(missing=0, series=()):
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(2, *series, N)) / np.sqrt(2.0)
    covariance = kernel().covariance(X).numpy() + 1e-2 * np.eye(N)
    z = (draws[0] + 1j * draws[1]) @ np.linalg.cholesky(covariance).T
    z[..., rng.choice(N, missing, replace=False)] = np.nan
    return z


def on_line(gp):
    return gp.stored_data().line is not None


def process(mean=None, noise=1e-2, of=kernel):
    return cgp.ExactGP(of(), noise_variance=noise, mean=mean)


def both(monkeypatch, make, *data):
    """The same process of the same data, by its Toeplitz and by its dense covariance."""
    toeplitz, dense = make(), make()
    toeplitz.condition(*data)
    monkeypatch.setattr(gp_data, "_FEWEST", 1000)
    dense.condition(*data)
    assert on_line(toeplitz)
    assert not on_line(dense)
    return toeplitz, dense


def gradients(gp, function):
    with tf.GradientTape() as tape:
        value = function(gp)
    return [np.asarray(g) for g in tape.gradient(value, [v.value for v in gp.trainable_variables])]


def close(found, wanted, tolerance=1e-9):
    scale = max(np.abs(w).max() for w in wanted)
    for a, b in zip(found, wanted, strict=True):
        assert np.abs(np.asarray(a) - b).max() <= tolerance * scale


@pytest.mark.parametrize("missing", [0, 7])
@pytest.mark.parametrize("trend", [None, 1])
def test_is_the_likelihood_that_of_the_definition(missing, trend):
    z = targets(missing)
    mean = None if trend is None else Polynomial(trend, marginalized=True)
    gp = process(mean)
    covariance = gp.kernel.covariance(X).numpy() + 1e-2 * np.eye(N)
    found = gp.log_marginal_likelihood(X, z).numpy()
    if trend is None:
        wanted = reference.log_marginal_likelihood(z, covariance, np.zeros_like(covariance))
    else:
        basis = gp.mean.basis(tf.constant(X[:, None])).numpy()
        wanted = reference.trend_log_likelihood(z, covariance, basis)
    assert found == pytest.approx(wanted, abs=1e-8)


@pytest.mark.parametrize("missing", [0, 7])
@pytest.mark.parametrize("degree", [None, 1])
def test_are_all_results_those_of_the_dense_covariance(missing, degree, monkeypatch):
    def make():
        return process(None if degree is None else Polynomial(degree, marginalized=True))

    z = targets(missing)
    toeplitz, dense = both(monkeypatch, make, X, z)

    def moments(gp):
        posterior = gp.posterior(NEW)
        return [posterior.mean(), posterior.variance(), posterior.covariance()]

    def loss(gp):
        return tf.reduce_sum(tf.math.real(gp.posterior(NEW).mean())) + tf.reduce_sum(
            gp.posterior(NEW).variance()
        )

    def likelihood(gp):
        return gp.log_marginal_likelihood()

    close([likelihood(toeplitz)], [likelihood(dense)])
    close(gradients(toeplitz, likelihood), gradients(dense, likelihood))
    close(moments(toeplitz), moments(dense))
    close(gradients(toeplitz, loss), gradients(dense, loss))
    present = ~np.isnan(z)
    found, wanted = toeplitz.loo(), dense.loo()
    assert np.isnan(found["mean"][~present]).all()
    close([found["mean"][present]], [wanted["mean"][present]])
    close([found["variance"][present]], [wanted["variance"][present]])
    close([toeplitz.sample(NEW, 2, seed=3)], [dense.sample(NEW, 2, seed=3)], 1e-6)


def test_passes_the_gradient_to_targets_and_by_each_series(monkeypatch):
    z = tf.constant(targets(series=(2,)))
    pair = both(monkeypatch, process, X, z)
    results = []
    for gp, fewest in zip(pair, (20, 1000), strict=True):
        monkeypatch.setattr(gp_data, "_FEWEST", fewest)
        with tf.GradientTape() as tape:
            tape.watch(z)
            value = gp.log_marginal_likelihood(X, z)
        results.append((value, tape.gradient(value, z), gp.posterior(NEW).mean()))
    for found, wanted in zip(*results, strict=True):
        close([found], [wanted])


@pytest.mark.parametrize("missing", [0, 7])
def test_are_left_out_residuals_and_errors_the_same(missing, monkeypatch):
    gp = cgp.ExactGP(RBF() * Rotation())
    gp.fit(X, targets(missing), verbose=0)
    found = left_out_residuals(gp, gp.stored_data()), gp.parameter_covariance(verbose=0)
    monkeypatch.setattr(gp_data, "_FEWEST", 1000)
    gp.condition(X, targets(missing))
    wanted = left_out_residuals(gp, gp.stored_data()), gp.parameter_covariance(verbose=0)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-8)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-3, atol=1e-5)


STATIONARY = [
    RBF(1.0, 1.0) * Rotation(0.3) + White(0.1),
    Constant(2.0) + Periodic(1.0, 1.0, 0.3),
    Matern(1.0, 1.0, 0.8),
    Conjugate(ExponentialDelays(1.0, 0.2)),
    Szego(1.0, 1.0),
    Autoregressive(1, 1.0, [0.5j], step=X[1] - X[0]),
]


@pytest.mark.parametrize("of", STATIONARY, ids=repr)
def test_are_covariances_of_differences_taken(of):
    K = of.covariance(X).numpy()
    np.testing.assert_allclose(K, scipy.linalg.toeplitz(K[:, 0]), atol=1e-12)
    gp = cgp.ExactGP(of, noise_variance=0.1)
    gp.condition(X, targets())
    assert on_line(gp)
    assert f"60 samples on a line of step {X[1] - X[0]:.6g}" in gp._repr_html_()


class Mine(RBF):
    """A kernel that depends on more than the difference."""

    def moments(self, x1, x2):
        k, _ = super().moments(x1, x2)
        return k * x1[..., 0] * x2[..., 0], None


OTHERS = [
    Szego(1.0, 1.0, real_response=True),
    RandomWalk(1.0) + RBF(1.0, 1.0),
    RandomWalk(1.0) * RBF(1.0, 1.0),
    WidelyLinear(RBF(1.0, 1.0), 0.3),
    Mine(1.0, 1.0),
]


@pytest.mark.parametrize("of", OTHERS, ids=repr)
def test_are_other_kernels_taken_as_they_are(of):
    gp = cgp.ExactGP(of, noise_variance=0.1)
    gp.condition(X, targets())
    assert not on_line(gp)


@pytest.mark.parametrize(
    ("x", "z", "arguments"),
    [
        (np.sort(np.random.default_rng(0).uniform(0, 6, N)), targets(), {}),
        (np.r_[X[:-1], 9.1], targets(), {}),
        (np.zeros(N), targets(), {}),
        (X[:19], targets()[:19], {}),
        (X, targets(16), {}),
        (X, targets(), {"noise_variance": 0.1}),
        (np.stack([X, X], axis=-1), targets(), {}),
        (X, np.stack([targets(), targets(3)]), {}),
        (X, targets(), {"widths": 0.01}),
    ],
    ids=["scattered", "bent", "one x", "few", "gaps", "noise", "plane", "unlike", "widths"],
)
def test_are_other_data_taken_as_they_are(x, z, arguments):
    gp = cgp.ExactGP(Matern32(1.0, 1.0), noise_variance=0.1)
    gp.condition(x, z, **arguments)
    assert not on_line(gp)


def test_is_a_kernel_that_is_wrongly_called_stationary_told():
    class Wrong(Kernel):
        is_stationary = is_real = True

        def moments(self, x1, x2):
            return tf.reduce_sum(x1 * x2, axis=-1), None

    with pytest.raises(ValueError, match="is_stationary = True, but"):
        cgp.ExactGP(Wrong(), noise_variance=0.1).condition(X, targets())


def test_is_a_stationary_kernel_not_refused_at_dates():
    class Fast(RBF):
        is_stationary = True

        def moments(self, x1, x2):
            k, c = super().moments(x1, x2)
            return k * tf.cos(3000.0 * (x1 - x2)[..., 0]), c

    Fast(1.0, 1.0).covariance(1.7e9 + 1e-3 * np.arange(9.0))  # which compares it with itself


@pytest.mark.parametrize("missing", [pytest.param(0, marks=pytest.mark.long), 7])
def test_is_a_process_on_a_line_saved_and_served(missing, tmp_path):
    gp = process(Polynomial(0, marginalized=True))
    gp.condition(X, targets(missing))
    wanted = gp.predict(NEW)
    gp.save(tmp_path / "gp.keras")
    again = keras.models.load_model(tmp_path / "gp.keras")
    assert on_line(again)
    gp.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "served"))
    for moments in (again.predict(NEW), served.predict(NEW[:, None])):
        for name, moment in wanted.items():
            np.testing.assert_allclose(moments[name], moment, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("missing", [pytest.param(0, marks=pytest.mark.long), 7])
def test_follow_graphs_the_data_and_gradient_steps(missing):
    gp = process()
    gp.condition(X, targets(missing))
    posterior = tf.function(lambda: gp.posterior(NEW).mean())
    layer = tf.function(lambda: gp(NEW)["variance"])
    likelihood = tf.function(lambda: gp.log_marginal_likelihood())
    gp.compile(keras.optimizers.Adam(0.01))
    before = likelihood()  # which is traced here, as the others are below
    gp.fit(X, targets(missing), epochs=3, verbose=0)
    assert likelihood() > before
    np.testing.assert_allclose(likelihood(), gp.log_marginal_likelihood(), rtol=1e-9)
    np.testing.assert_allclose(posterior(), gp.posterior(NEW).mean(), rtol=1e-9)
    np.testing.assert_allclose(layer(), gp.predict(NEW)["variance"], rtol=1e-9)
    gp.condition(X[:10], targets()[:10])  # a line no more
    for function in (posterior, layer):
        with pytest.raises(tf.errors.InvalidArgumentError, match="trace it again"):
            function()


def test_takes_a_graph_of_few_data_a_line_later():
    gp = process()
    gp.condition(X[:10], targets()[:10])

    @tf.function
    def layer():
        with tf.GradientTape() as tape:
            variance = gp(NEW)["variance"]
        return variance, tape.gradient(variance, gp.trainable_variables[0].value)

    layer()
    gp.condition(X, targets(3))
    weight = gp.trainable_variables[0].value
    with tf.GradientTape() as tape:
        variance = gp.posterior(NEW).variance()
    found = layer()
    np.testing.assert_allclose(found[0], variance, rtol=1e-9)
    np.testing.assert_allclose(found[1], tape.gradient(variance, weight), rtol=1e-8)


def test_is_single_precision_no_line():
    x, z = X.astype("float32"), targets().astype("complex64")
    gp = cgp.ExactGP(RBF(1.5, 0.6, dtype="float32"), noise_variance=0.1)
    gp.compile(keras.optimizers.Adam(0.01))
    gp.fit(x, z, epochs=1, verbose=0)  # a graph has no branch for lines either
    assert not on_line(gp)
    layer = tf.function(lambda: gp(NEW.astype("float32"))["mean"])
    np.testing.assert_allclose(layer(), gp.predict(NEW.astype("float32"))["mean"], rtol=1e-5)


def test_are_many_points_predicted_by_blocks(monkeypatch):
    gp = process()
    gp.condition(X, targets())
    at = np.linspace(0.0, 12.0, 25)
    wanted = gp.predict(at, observed=True, noise_variance=np.linspace(0.0, 1.0, 25))
    monkeypatch.setattr("cgp.gp.exact_gp._MOST_COVARIANCES", 4 * N)
    found = gp.predict(at, observed=True, noise_variance=np.linspace(0.0, 1.0, 25))
    for name, moment in wanted.items():
        np.testing.assert_allclose(found[name], moment, rtol=1e-10, atol=1e-15)
    with pytest.raises(ValueError, match=r"\[25\]"):
        gp.predict(at, observed=True, noise_variance=np.ones(24))


def test_a_fit_ends_where_the_dense_one_does(monkeypatch):
    fits = []
    for fewest in (20, 1000):
        monkeypatch.setattr(gp_data, "_FEWEST", fewest)
        gp = cgp.ExactGP(RBF() * Rotation())
        gp.fit(X, targets(5), verbose=0)
        fits.append(np.array([np.ravel(v)[0] for v in gp.parameters().values()]))
    np.testing.assert_allclose(*fits, rtol=1e-4)


@pytest.mark.parametrize("noise", [1e-8, 1e-10])
def test_is_a_gap_in_little_noise_as_uncertain_as_by_the_dense_covariance(noise, monkeypatch):
    rng, x = np.random.default_rng(0), 0.25 * np.arange(200)
    smooth = RBF(1.5, 3.0)
    powers, vectors = np.linalg.eigh(smooth.covariance(x).numpy())
    z = vectors @ (np.sqrt(np.maximum(powers, 0)) * (rng.normal(size=(200, 2)) @ [1, 1j]))
    z[70:110] = np.nan
    toeplitz, dense = both(monkeypatch, lambda: cgp.ExactGP(smooth, noise_variance=noise), x, z)
    at = np.linspace(-2.0, 52.0, 109)
    found, wanted = toeplitz.predict(at), dense.predict(at)
    np.testing.assert_allclose(found["variance"], wanted["variance"], rtol=1e-13 / noise)
    error = np.abs(found["mean"] - wanted["mean"]) / np.sqrt(wanted["variance"])
    assert error.max() < 1e-13 / noise


@pytest.mark.parametrize(
    ("first", "step", "is_line"), [(1.7e9, 1.0, True), (1.7e9, 1e-3, False), (0.0, -1.0, True)]
)
def test_are_dates_a_line_where_they_have_the_digits_of_their_steps(first, step, is_line):
    x = first + step * np.arange(N)
    gp = cgp.ExactGP(RBF(1.0, 5.0 * abs(step)), noise_variance=1e-8)
    gp.condition(x, targets())
    assert on_line(gp) == is_line
    if is_line:
        dense = cgp.ExactGP(RBF(1.0, 5.0), noise_variance=1e-8)
        dense.condition(tf.constant(np.arange(float(N))), targets())  # a tensor is no line
        assert not on_line(dense)
        at = np.array([3.5, 20.5])
        close([gp.predict(first + step * at)["mean"]], [dense.predict(at)["mean"]], 1e-5)


def test_are_derivatives_that_a_line_does_not_have_no_wrong_ones():
    x, gp = tf.constant(X), process()
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = gp.log_marginal_likelihood(x, targets())
    by_x = tape.gradient(value, x)
    step, ahead, behind = 1e-5, X.copy(), X.copy()
    ahead[30], behind[30] = X[30] + step, X[30] - step
    values = [gp.log_marginal_likelihood(at, targets()) for at in (ahead, behind)]
    wanted = float(values[0] - values[1]) / (2.0 * step)
    assert float(by_x[30]) == pytest.approx(wanted, rel=1e-5)
    gp.condition(X, targets())
    weight = gp.trainable_variables[0].value
    with tf.GradientTape() as outer, tf.GradientTape() as inner:
        gradient = inner.gradient(gp.log_marginal_likelihood(), weight)
    with pytest.raises(LookupError, match="first derivatives alone"):
        outer.gradient(gradient, weight)
