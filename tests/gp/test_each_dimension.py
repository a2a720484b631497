"""A lengthscale and a frequency that were left out are one for each dimension of x."""

import keras
import numpy as np
import pytest

import cgp
from cgp.kernels import RBF, Matern32, Rotation
from cgp.kernels.data_scales import DataScales
from tests.gp.problems import complex_normals, started
from tests.long_cases import eagerly_and_in_a_graph, eagerly_or_in_a_graph

F = np.array([0.1, 0.03])
GRID = np.stack(np.meshgrid(np.arange(14.0), np.arange(20.0), indexing="ij"), -1).reshape(-1, 2)
INPUTS = {
    "scattered": np.random.default_rng(0).uniform(0.0, 50.0, (120, 2)),
    "grid": GRID,
    "grid with gaps": GRID[np.random.default_rng(1).permutation(len(GRID))[:150]],
}
pytestmark = pytest.mark.filterwarnings("ignore:after this fit")


def noisy(z):
    return z + 0.1 * np.random.default_rng(2).normal(size=(*z.shape, 2)) @ [1, 1j]


def at_start(x, kernel):
    """A process of the hyperparameters that a fit starts from."""
    return started(cgp.ExactGP(kernel), x, noisy(np.exp(2j * np.pi * x @ F)))


def fitted(x, kernel, **kwargs):
    gp = cgp.ExactGP(kernel)
    gp.fit(x, noisy(np.exp(2j * np.pi * x @ F)), verbose=0, **kwargs)
    return gp


@pytest.mark.parametrize("name", INPUTS)
def test_does_a_frequency_start_at_a_tone_over_two_dimensions(name):
    found = at_start(INPUTS[name], Matern32() * Rotation()).parameters()
    np.testing.assert_allclose(found["rotation.frequency"], F, atol=5e-3)
    assert found["matern32.lengthscale"].shape == (2,)


@pytest.mark.long
@pytest.mark.parametrize("name", INPUTS)
def test_a_tone_over_two_dimensions_is_found_from_nothing(name):
    gp = fitted(INPUTS[name], Matern32() * Rotation())
    np.testing.assert_allclose(gp.parameters()["rotation.frequency"], F, atol=2e-3)
    assert gp.parameters()["matern32.lengthscale"].shape == (2,)
    new = np.array([[7.5, 3.3]])
    assert abs(gp.predict(new)["mean"][0] - np.exp(2j * np.pi * new @ F)[0]) < 0.1


@pytest.mark.long
def test_symbols_and_subcarriers_have_scales_of_their_own():
    """Milliseconds and hundreds of kilohertz; a delay of 1.5 µs and a Doppler shift of 150 Hz."""
    rng = np.random.default_rng(3)
    symbols, subcarriers = np.arange(14) / 14e3, 15e3 * np.arange(24)
    t, f = (a.ravel() for a in np.meshgrid(symbols, subcarriers, indexing="ij"))
    h = np.zeros(t.size, complex)
    for _ in range(40):
        delay, doppler = 1e-6 + rng.exponential(0.5e-6), 150 + 100 * rng.normal()
        h += np.exp(2j * np.pi * (doppler * t - delay * f)) * (rng.normal(size=2) @ [1, 1j])
    h /= np.sqrt(np.mean(np.abs(h) ** 2))
    x, z = np.stack([t, f], axis=-1), noisy(h)
    pilots = rng.permutation(len(x))[:100]
    gp = cgp.ExactGP(RBF() * Rotation())
    gp.fit(x[pilots], z[pilots], verbose=0)
    length, frequency = gp.parameters()["rbf.lengthscale"], gp.parameters()["rotation.frequency"]
    assert length[1] > 1e6 * length[0]
    assert gp.parameter_errors()["rotation.frequency"].shape == (2,)
    assert -3e-6 < frequency[1] < -0.5e-6
    assert np.mean(np.abs(gp.predict(x)["mean"] - h) ** 2) < 0.03


def test_does_a_frequency_start_at_many_cycles_over_a_dimension_of_three():
    rng = np.random.default_rng(0)
    frequencies = np.array([-12e-9, 0.01, 0.2])  # 24 cycles, and fractions of one
    x = rng.uniform([1e9, -20.0, 0.0], [3e9, 60.0, 5.0], (1500, 3))
    z = np.exp(2j * np.pi * x @ frequencies) + 0.3 * complex_normals(rng, 1500)
    tones, shares = DataScales(x, z[None]).tones_over_dimensions
    spans = np.ptp(x, axis=0)
    np.testing.assert_allclose(tones[0] * spans, frequencies * spans, atol=0.1)
    assert shares[0] > 0.8


def test_does_a_frequency_of_few_samples_of_a_lattice_start_below_its_aliases():
    rng = np.random.default_rng(0)
    x = np.stack([rng.integers(0, 14, 40) / 14e3, 15e3 * rng.integers(0, 24, 40)], axis=1)
    frequencies = np.array([3e3, -1e-5])
    tones, _ = DataScales(x, np.exp(2j * np.pi * x @ frequencies)[None]).tones_over_dimensions
    spans = np.ptp(x, axis=0)
    np.testing.assert_allclose(tones[0] * spans, frequencies * spans, atol=0.1)


def test_does_a_frequency_start_at_a_tone_of_a_grid_that_lacks_a_cell_of_each_row():
    t, r = np.meshgrid(np.arange(40.0), np.arange(8.0), indexing="ij")
    z = np.exp(0.3j * np.pi * t)
    z[np.arange(40), np.random.default_rng(0).integers(0, 8, 40)] = np.nan
    scales = DataScales(np.stack([t.ravel(), r.ravel()], axis=1), z.reshape(1, -1)).along(0)
    assert scales.tones[0][0] == pytest.approx(0.15, abs=1e-3)


@pytest.mark.long
def test_three_dimensions_and_restarts():
    x = np.random.default_rng(4).uniform(0.0, 10.0, (150, 3))
    z = noisy(np.exp(2j * np.pi * x @ [0.3, -0.2, 0.1]))
    gp = cgp.ExactGP(Matern32() * Rotation())
    history = gp.fit(x, z, restarts=2, epochs=60, verbose=0)
    assert len(history.optima) == 2
    np.testing.assert_allclose(gp.parameters()["rotation.frequency"], [0.3, -0.2, 0.1], atol=0.01)


def test_what_was_given_stays_one_number():
    gp = at_start(GRID[:40], RBF(lengthscale=3.0) * Rotation(frequency=0.05))
    assert gp.parameters()["rbf.lengthscale"].shape == ()
    assert gp.parameters()["rotation.frequency"].shape == ()


@pytest.fixture(scope="module")
def model():
    return at_start(INPUTS["scattered"], Matern32() * Rotation())


def test_it_is_saved_loaded_and_fitted_again(model, tmp_path):
    model.save(tmp_path / "gp.keras")
    model.save_weights(tmp_path / "gp.weights.h5")
    new = INPUTS["scattered"][:5] + 0.3
    expected = model.predict(new)["mean"]
    loaded = keras.models.load_model(tmp_path / "gp.keras")
    np.testing.assert_allclose(loaded.predict(new)["mean"], expected)
    fresh = cgp.ExactGP(Matern32() * Rotation())
    fresh.load_weights(tmp_path / "gp.weights.h5")
    np.testing.assert_allclose(fresh.predict(new)["mean"], expected)
    x = INPUTS["scattered"]
    for again in (model, loaded):
        again.fit(x, noisy(np.exp(2j * np.pi * x @ F)), verbose=0)


def test_a_copy_leaves_out_as_many_values(model):
    copy = cgp.ExactGP.from_config(model.get_config())
    assert all(np.isnan(copy.parameters()["matern32.lengthscale"]))
    assert not copy.kernel.is_markov
    copy.set_weights(model.get_weights())
    np.testing.assert_array_equal(
        copy.parameters()["rotation.frequency"], model.parameters()["rotation.frequency"]
    )


def test_holders_of_the_kernel_follow():
    kernel = RBF() * Rotation()
    tracker = cgp.RecursiveGP(kernel, noise_variance=0.02, capacity=16)
    other = cgp.ExactGP(kernel, noise_variance=0.02)
    at_start(INPUTS["scattered"], kernel)
    x = INPUTS["scattered"][:10]
    z = np.exp(2j * np.pi * x @ F)
    tracker.process(x, z)
    other.condition(x, z)
    new = x[:3] + 0.2
    np.testing.assert_allclose(tracker.predict(new)["mean"], other.predict(new)["mean"], rtol=1e-9)


@eagerly_or_in_a_graph
def test_a_stream_learns_from_its_dimensions(eagerly, tmp_path):
    x = INPUTS["scattered"]
    gp = cgp.RecursiveGP(RBF(), capacity=16)
    if eagerly:
        gp.compile(run_eagerly=True)
        x = x[:12]
    gp.fit(x, noisy(np.exp(0.02j * np.pi * x @ F)), verbose=0)
    assert gp.parameters()["rbf.lengthscale"].shape == (2,)
    gp.save(tmp_path / "gp.keras")
    loaded = keras.models.load_model(tmp_path / "gp.keras")
    np.testing.assert_allclose(loaded.predict(x[:3])["mean"], gp.predict(x[:3])["mean"])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")
@pytest.mark.parametrize("eagerly", [True, False])
def test_a_loaded_model_that_was_compiled_but_not_fitted_learns(eagerly, tmp_path):
    gp = cgp.ExactGP(RBF() * Rotation())
    gp.compile("adam", run_eagerly=eagerly)
    gp.save(tmp_path / "gp.keras")
    loaded = keras.models.load_model(tmp_path / "gp.keras")
    loaded.fit(GRID[:30], noisy(np.exp(2j * np.pi * GRID[:30] @ F)), verbose=0)
    assert loaded.parameters()["rbf.lengthscale"].shape == (2,)


KERNELS = {"left out": lambda: RBF() * Rotation(), "given": lambda: RBF(1.0, [9.0, 9.0])}


@eagerly_and_in_a_graph(("kernel",), KERNELS, ["given"], ["left out"])
def test_an_optimizer_goes_on_where_it_was(kernel, eagerly):
    gp = cgp.ExactGP(KERNELS[kernel]())
    gp.compile(keras.optimizers.Adam(0.05), run_eagerly=eagerly)
    z = noisy(np.exp(2j * np.pi * GRID[:30] @ F))
    gp.fit(GRID[:30], z, epochs=2, verbose=0)
    optimizer = gp.optimizer
    gp.fit(GRID[:30], z, epochs=3, verbose=0)
    assert gp.optimizer is optimizer
    assert int(optimizer.iterations) == 5


@eagerly_or_in_a_graph
def test_an_optimizer_of_another_holder_of_the_kernel_begins_anew(eagerly):
    kernel = RBF() * Rotation()
    first, second = cgp.ExactGP(kernel, 0.02), cgp.ExactGP(kernel, 0.02)
    second.compile(keras.optimizers.Adam(0.05), run_eagerly=eagerly)
    second.optimizer.build(second.trainable_variables)
    z = noisy(np.exp(2j * np.pi * GRID[:30] @ F))
    first.compile(keras.optimizers.Adam(0.05), run_eagerly=eagerly)
    first.fit(GRID[:30], z, epochs=1, verbose=0)
    second.fit(GRID[:30], z, epochs=2, verbose=0)
    assert int(second.optimizer.iterations) == 2


def test_a_process_over_a_line_that_was_given_two_dimensions_learns_from_one():
    gp = cgp.StateSpaceGP(Matern32() * Rotation())
    with pytest.raises(ValueError, match="one dimension"):
        gp.fit(GRID, np.exp(2j * np.pi * GRID @ F), verbose=0)
    assert gp.kernel.is_markov
    x = np.arange(30.0)
    gp.fit(x, noisy(np.exp(0.2j * np.pi * x)), epochs=20, verbose=0)
    assert gp.parameters()["rotation.frequency"] == pytest.approx(0.1, abs=0.01)


def test_a_fit_that_fails_leaves_one_number():
    gp = cgp.ExactGP(RBF() + cgp.kernels.RandomWalk(start=0.0))
    with pytest.raises(ValueError, match="one dimension"):
        gp.fit(GRID, np.exp(1j * GRID[:, 0]), verbose=0)
    assert np.shape(gp.parameters()["rbf.lengthscale"]) == ()
    gp.kernel.parts[0].lengthscale.assign(1.0)
