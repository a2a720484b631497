"""A process over a grid: the same results as an ExactGP of its cells."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.gp.grid import grid_gp, process
from cgp.kernels import RBF, Along, Matern12, Matern32, Rotation, WidelyLinear

AXES = np.linspace(0.0, 3.0, 7), np.array([0.0, 0.4, 1.1, 1.3, 2.5]), np.arange(3.0)
NEW = np.array([0.25, 3.4]), np.array([0.4, 3.0]), np.array([0.0, 2.0])
KINDS = ("proper", "improper", "line")


def kernel(kind):
    if kind == "improper":
        along_time = WidelyLinear(Matern32(1.2, 1.5) * Rotation(0.3), 0.4 + 0.2j)
        return Along(RBF(0.8, 1.0), 1) * Along(along_time, 0) * Along(Matern12(1.0, 2.0), 2)
    along_time = RBF(1.2, 1.0) * Rotation(0.3)
    along_frequency = Matern32(1.0, 2.0) * Rotation(-0.2)
    product = Along(along_time, 0) * Along(along_frequency, 1) * Along(Matern12(0.8, 2.0), 2)
    return 1.5 * product


def points(axes):
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))


def targets(missing=0, batch=(), seed=0):
    rng = np.random.default_rng(seed)
    sizes = tuple(map(len, AXES))
    z = rng.normal(size=(*batch, *sizes)) + 1j * rng.normal(size=(*batch, *sizes))
    cells = rng.choice(np.prod(sizes), missing, replace=False)
    z.reshape(*batch, -1)[..., cells] = np.nan
    return z


@pytest.fixture(params=KINDS)
def kind(request, monkeypatch):
    if request.param == "line":
        monkeypatch.setattr(grid_gp, "_FEWEST", 4)
        monkeypatch.setattr(process, "_MOST_DIAGONALISED", 4)
    return request.param


def both(kind, z, mean=None, noise=1e-2):
    """The same process of the same cells as a grid and as points."""
    grid = cgp.GridGP(kernel(kind), noise, None if mean is None else mean())
    exact = cgp.ExactGP(kernel(kind), noise, mean=None if mean is None else mean())
    grid.condition(AXES, z)
    exact.condition(points(AXES), z.reshape(*z.shape[:-3], -1))
    is_line = grid.stored_data().grid.line is not None
    assert is_line == (kind == "line")
    return grid, exact


def gradients(gp):
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(gp.log_marginal_likelihood())
    variables = [v.value for v in gp.trainable_variables]
    return [value, *tape.gradient(value, variables)]


def close(results, wanted, tolerance):
    scale = max(np.abs(a).max() for a in wanted)
    for a, b in zip(results, wanted, strict=True):
        assert np.abs(np.asarray(a) - np.asarray(b)).max() <= tolerance * scale


class Plane(cgp.means.Mean):
    """A constant, and a slope along the first axis, with flat priors."""

    def basis(self, x):
        return tf.cast(tf.stack([tf.ones_like(x[..., 0]), x[..., 0]], axis=-1), tf.complex128)


@pytest.mark.parametrize("missing", [0, 39])  # of 105: 37 %
def test_are_likelihood_and_gradient_those_of_the_dense_covariance(kind, missing):
    grid, exact = both(kind, targets(missing, (2,)))
    close(gradients(grid)[:1], gradients(exact)[:1], 1e-12)
    close(gradients(grid)[1:], gradients(exact)[1:], 1e-10)


@pytest.mark.parametrize("missing", [0, 39])
def test_are_moments_those_of_the_dense_covariance(kind, missing):
    grid, exact = both(kind, targets(missing, (2,)))
    for observed in (False, True):
        a = grid.posterior(NEW, observed=observed)
        b = exact.posterior(points(NEW), observed=observed)
        for name in ("mean", "variance", "pseudo_variance"):
            wanted = getattr(b, name)().numpy()
            found = getattr(a, name)().numpy()
            assert found.shape[-3:] == (2, 2, 2)
            close([found.reshape(wanted.shape)], [wanted], 1e-10)
        close([a.covariance()], [b.covariance()], 1e-10)
        close([a.pseudo_covariance()], [b.pseudo_covariance()], 1e-10)


@pytest.mark.parametrize("missing", [0, 39])
def test_is_a_trend_that_of_the_dense_covariance(kind, missing):
    grid, exact = both(kind, targets(missing), Plane)
    close(gradients(grid), gradients(exact), 1e-10)
    a, b = grid.posterior(NEW), exact.posterior(points(NEW))
    for name in ("mean", "variance", "pseudo_variance"):
        wanted = getattr(b, name)().numpy()
        close([getattr(a, name)().numpy().ravel()], [wanted], 1e-9)
    close([a.covariance()], [b.covariance()], 1e-9)


def test_are_draws_those_of_the_posterior(kind):
    """Mean and second moments of many draws, within five standard errors."""
    grid, _ = both(kind, targets(20), Plane, noise=0.3)
    new = np.array([0.25, 1.0]), np.array([0.4, 3.0]), np.array([0.0])
    post, count = grid.posterior(new, observed=True), 4000
    draws = post.sample(count, seed=3).numpy().reshape(count, -1)
    mean, k = post.mean().numpy().ravel(), post.covariance().numpy()
    c, deviations = post.pseudo_covariance().numpy(), draws - post.mean().numpy().ravel()
    size = np.abs(k).max()
    assert np.abs(draws.mean(axis=0) - mean).max() < 5.0 * np.sqrt(size / count)
    assert np.abs(deviations.T @ deviations.conj() / count - k).max() < 5.0 * size / np.sqrt(count)
    assert np.abs(deviations.T @ deviations / count - c).max() < 8.0 * size / np.sqrt(count)


def test_are_draws_of_the_prior_those_of_its_moments(kind):
    grid, count = cgp.GridGP(kernel(kind), 0.1), 4000
    prior = grid.posterior(NEW)
    draws = grid.sample(NEW, count, seed=1).reshape(count, -1)
    k, c = prior.covariance().numpy(), prior.pseudo_covariance().numpy()
    size = np.abs(k).max()
    assert np.abs(draws.T @ draws.conj() / count - k).max() < 5.0 * size / np.sqrt(count)
    assert np.abs(draws.T @ draws / count - c).max() < 8.0 * size / np.sqrt(count)


@pytest.mark.parametrize("kind", ["proper", "improper"])
def test_are_coordinates_without_any_cell_left_out(kind):
    z = targets(10)
    z[2], z[:, 1] = np.nan, np.nan
    grid, exact = cgp.GridGP(kernel(kind), 1e-2), cgp.ExactGP(kernel(kind), 1e-2)
    grid.condition(AXES, z)
    exact.condition(points(AXES), z.ravel())
    assert grid.stored_data().grid.sizes == [6, 4, 3]
    close(gradients(grid), gradients(exact), 1e-10)
    prediction = grid.predict(AXES)
    assert prediction["mean"].shape == z.shape
    close([prediction["mean"].ravel()], [exact.predict(points(AXES))["mean"]], 1e-10)


def test_does_it_save_what_it_has_learned(kind, tmp_path):
    grid, _ = both(kind, targets(20, (2,)), lambda: cgp.means.Constant(0.3 + 0.1j))
    grid.save(tmp_path / "grid.keras")
    loaded = cgp.load_model(tmp_path / "grid.keras")
    assert loaded.stored_data().grid.sizes == [7, 5, 3]
    for name, a in grid.predict(NEW).items():
        assert np.abs(loaded.predict(NEW)[name] - a).max() < 1e-12
    assert loaded.log_marginal_likelihood().numpy() == pytest.approx(
        grid.log_marginal_likelihood().numpy(), rel=1e-12
    )


def test_does_it_export_what_it_predicts(kind, tmp_path):
    grid, _ = both(kind, targets(20))
    grid.export(str(tmp_path / "grid"))
    served = tf.saved_model.load(str(tmp_path / "grid"))
    result = served.predict(*map(tf.constant, NEW))
    for name, a in grid.predict(NEW).items():
        assert np.abs(result[name] - a).max() < 1e-10


def test_are_predictions_those_of_hyperparameters_assigned_later(kind):
    grid, exact = both(kind, targets(20))
    grid.predict(NEW)
    for gp in (grid, exact):
        gp.noise_variance.assign(0.2)
    wanted = exact.predict(points(NEW))
    for name, a in grid.predict(NEW).items():
        close([a.ravel()], [wanted[name]], 1e-10)


@pytest.mark.parametrize("optimizer", ["lbfgs", "adam"])
def test_does_a_fit_lead_where_that_of_the_dense_covariance_leads(kind, optimizer):
    truth = cgp.GridGP(kernel(kind), 0.1)
    z = truth.sample(AXES, 2, seed=2, observed=True)
    z[:, 2, 1, 1] = np.nan
    optima = []
    for gp, x, cells in (
        (cgp.GridGP(kernel(kind), 0.5), AXES, z),
        (cgp.ExactGP(kernel(kind), 0.5), points(AXES), z.reshape(2, -1)),
    ):
        is_adam = optimizer == "adam"
        gp.compile(keras.optimizers.Adam(0.05) if is_adam else cgp.optimizers.LBFGS())
        gp.fit(x, cells, epochs=5, verbose=0)
        optima.append(gp)
    grid, exact = optima
    for name, a in exact.parameters().items():
        assert np.abs(grid.parameters()[name] - a).max() < 1e-6 * max(1.0, np.abs(a).max())
    close([grid.predict(NEW)["mean"].reshape(2, -1)], [exact.predict(points(NEW))["mean"]], 1e-5)


def test_are_errors_of_hyperparameters_those_of_the_dense_covariance():
    def make():  # with one variance
        along_time = RBF(1.0, 1.0) * Rotation(0.3)
        return Along(along_time, 0) * Along(Matern12(1.0, 2.0, fixed="variance"), 1)

    axes = AXES[:2]
    z = cgp.GridGP(make(), 0.1).sample(axes, seed=2, observed=True)[0]
    grid, exact = cgp.GridGP(make(), 0.1), cgp.ExactGP(make(), 0.1)
    grid.fit(axes, z, verbose=0)
    exact.fit(points(axes), z.ravel(), verbose=0)
    a, b = (gp.parameter_covariance(verbose=0, name="noise_variance") for gp in (grid, exact))
    assert np.allclose(a, b, rtol=1e-4)


def test_is_it_a_layer(kind):
    z = targets(7)
    grid, exact = cgp.GridGP(kernel(kind), 0.1), cgp.ExactGP(kernel(kind), 0.1)
    with tf.GradientTape() as tape:
        cells = tf.constant(z)
        tape.watch(cells)
        result = grid((AXES, cells))
        loss = grid.losses[0]
    wanted = exact((tf.constant(points(AXES)), tf.constant(z.ravel())))
    close([tf.reshape(result["mean"], [-1])], [wanted["mean"]], 1e-10)
    assert loss.numpy() == pytest.approx(exact.losses[0].numpy(), rel=1e-12)
    assert np.isfinite(np.asarray(tape.gradient(loss, cells))[~np.isnan(z)]).all()


def test_are_frequencies_learned_along_axes_of_other_units():
    """Seconds and hertz, whose geometric mean is a scale of neither."""
    axes = 0.5e-3 * np.arange(30), 15e3 * np.arange(30)

    def make(is_true):
        values = ((1.0, 5e-3), 60.0, 1.5e5, -1e-6) if is_true else ((), None, None, None)
        along_time = Matern32(*values[0]) * Rotation(values[1])
        along_frequency = RBF(1.0, values[2], fixed="variance") * Rotation(values[3])
        return cgp.GridGP(Along(along_time, 0) * Along(along_frequency, 1), 0.05)

    truth = make(True)
    for seed in range(4):
        z = truth.sample(axes, seed=seed, observed=True)[0]
        gp, near = make(False), make(True)
        for model in (gp, near):
            model.fit(axes, z, verbose=0)
        assert gp.evaluate(axes, z, verbose=0) < near.evaluate(axes, z, verbose=0) + 1e-5
