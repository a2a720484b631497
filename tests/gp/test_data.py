"""Data that a process holds: its likelihood without arguments, its parts that stay, its files."""

import json
import zipfile

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import Matern12, Rotation
from tests.gp.problems import complex_normals
from tests.long_cases import eagerly_or_in_a_graph

X = np.array([0.0, 0.4, 1.1, 2.0])
Z = complex_normals(np.random.default_rng(0), 4)
PROCESSES = {
    "ExactGP": cgp.ExactGP,
    "StateSpaceGP": cgp.StateSpaceGP,
    "RecursiveGP": lambda *args, **kwargs: cgp.RecursiveGP(*args, capacity=4, **kwargs),
}
holding_data = pytest.mark.parametrize("name", ["ExactGP", "StateSpaceGP"])


def model(name, **kwargs):
    return PROCESSES[name](Matern12(1.0, 2.0) * Rotation(0.3), 0.1, **kwargs)


@pytest.mark.parametrize("name", PROCESSES)
@pytest.mark.parametrize("attribute", ["kernel", "mean"])
def test_do_kernel_and_mean_stay_as_they_were_made(name, attribute):
    gp = model(name, mean=cgp.means.Constant(1.0))
    before, weights = getattr(gp, attribute), len(gp.weights)
    for other in (Matern12(), cgp.means.Constant(2.0), None):
        with pytest.raises(AttributeError, match=rf"{attribute} of {name} cannot.*make a new"):
            setattr(gp, attribute, other)
    assert getattr(gp, attribute) is before
    assert len(gp.weights) == weights


# --- likelihood -------------------------------------------------------------------------------


@holding_data
def test_is_the_likelihood_without_arguments_that_of_the_data_held(name):
    gp = model(name)
    with pytest.raises(ValueError, match="there are no data"):
        gp.log_marginal_likelihood()
    gp.condition(X, Z)
    expected = gp.log_marginal_likelihood(X, Z)
    np.testing.assert_allclose(gp.log_marginal_likelihood(), expected, rtol=1e-13)
    for arguments in ({"x": X}, {"z": Z}, {"missing": X > 1}):
        with pytest.raises(ValueError, match="x and z belong together"):
            gp.log_marginal_likelihood(**arguments)


@holding_data
@eagerly_or_in_a_graph
def test_is_a_likelihood_differentiable(name, eagerly):
    gp = model(name)
    gp.condition(X[:3], Z[:3])
    missing = np.array([False, True, False, False])

    def value_and_gradients(x, z):
        with tf.GradientTape() as tape:
            tape.watch(inputs := [z] if name == "StateSpaceGP" else [z, x])
            value = gp.log_marginal_likelihood(x, z, missing)
        gradients = tape.gradient(value, [*inputs, *gp.trainable_variables])
        return value, gp.log_marginal_likelihood(), gradients

    arguments = tf.constant(X), tf.constant(Z)
    *values, gradients = value_and_gradients(*arguments)
    if not eagerly:
        eager = *values, *gradients
        *values, gradients = tf.function(value_and_gradients, autograph=False)(*arguments)
        for found, expected in zip((*values, *gradients), eager, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    step = 1e-6 * np.array([0.0, 0.0, 1.0, 0.0])
    for part, shift in ((0, step), (0, 1j * step), (1, step)):
        if part and name == "StateSpaceGP":
            continue  # its inputs are sorted, without a gradient
        up, down = (list(arguments[::-1]) for _ in range(2))
        up[part], down[part] = up[part] + shift, down[part] - shift
        slope = (
            gp.log_marginal_likelihood(*up[::-1], missing)
            - gp.log_marginal_likelihood(*down[::-1], missing)
        ) / 2e-6
        found = np.sum(gradients[part].numpy().conj() * shift).real / 1e-6
        np.testing.assert_allclose(found, slope, rtol=1e-6)


def test_does_a_prediction_not_compute_the_covariance_of_the_data(monkeypatch):
    gp = model("ExactGP")
    gp.condition(X, Z)
    expected = gp.predict([0.5])
    with tf.GradientTape() as tape:
        mean = gp.posterior([0.5]).mean()
    gradients = tape.gradient(mean, gp.trainable_variables)

    def refused(data):
        raise AssertionError("the covariance of the data is computed")

    with monkeypatch.context() as patch:
        patch.setattr(gp.observation_model, "covariance", refused)
        found = gp.predict([0.5])
        gp.sample([0.5], seed=0)
        gp.loo()
        with tf.GradientTape() as tape:
            mean = gp.posterior([0.5]).mean()
    for moment, value in expected.items():
        np.testing.assert_array_equal(found[moment], value)
    # The gradient asks for it in the end.
    for again, before in zip(tape.gradient(mean, gp.trainable_variables), gradients, strict=True):
        np.testing.assert_array_equal(again, before)


def test_is_a_gradient_of_hyperparameters_that_have_changed_refused():
    gp = model("ExactGP")
    gp.condition(X, Z)
    with tf.GradientTape() as tape:
        mean = gp.posterior([0.5]).mean()
    gp.noise_variance.assign(0.3)
    with pytest.raises(RuntimeError, match="hyperparameters have changed since this posterior"):
        tape.gradient(mean, gp.trainable_variables)


@holding_data
def test_is_a_process_called_by_its_name_in_messages(name):
    gp = model(name)
    gp.compile()
    with pytest.raises(TypeError, match=f"^shuffle: {name} learns from all of x and z"):
        gp.fit(X, Z, shuffle=True)


# --- files ------------------------------------------------------------------------------------


def damage(path, **arrays):
    """Replaces arrays of the data in a saved model; None takes one away."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    weights = path.with_suffix(".h5")
    weights.write_bytes(parts["model.weights.h5"])
    with h5py.File(weights, "r+") as file:
        for key, value in arrays.items():
            del file[f"vars/{key}"]
            if value is not None:
                file[f"vars/{key}"] = value
    parts["model.weights.h5"] = weights.read_bytes()
    assert json.loads(parts["config.json"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


PAIRS = np.stack([Z.real, Z.imag], axis=-1)
DAMAGED = {
    "unlike lengths": ({"x": X[None, :3, None]}, r"as many points as x"),
    "NaN in x": ({"x": np.where(X > 1, np.nan, X)[None, :, None]}, "x must be finite"),
    "infinite z": ({"z": np.full((1, 4, 2), np.inf)}, "z has infinite elements"),
    "no complex pairs": ({"z": Z.real[None, :, None]}, r"z \[B, N, 2\]"),
    "rank of x": ({"x": X}, r"x must be \[X, N, D\].*"),
    "rank of z": ({"z": PAIRS}, r"z \[B, N, 2\]"),
    "batch axes": ({"batch": np.array([3])}, r"z has 1 series, but the batch axes are \[3\]"),
    "series of x": ({"x": np.zeros((3, 4, 1))}, "inputs of 1 or of 1 series"),
    "words": ({"x": np.full((1, 4, 1), b"a")}, "x must be real numbers"),
    "nothing": ({"x": None}, "no data of a Gaussian process"),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    for name in ("ExactGP", "StateSpaceGP"):
        gp = model(name)
        gp.condition(X, Z)
        gp.save(folder / f"{name}.keras")
    return folder


@holding_data
@pytest.mark.parametrize("how", DAMAGED)
def test_are_damaged_data_of_a_file_refused(saved, tmp_path, name, how):
    arrays, words = DAMAGED[how]
    path = tmp_path / "gp.keras"
    path.write_bytes((saved / f"{name}.keras").read_bytes())
    damage(path, **arrays)
    with pytest.raises(ValueError, match=words):
        keras.models.load_model(path)


def test_is_one_column_of_targets_told_from_many_series():
    with pytest.raises(
        ValueError, match=r"z must be \[..., N\] .* got shapes \(5, 1\) .* z\[:, 0\]"
    ):
        cgp.ExactGP(cgp.kernels.RBF(1.0, 1.0), 0.1).condition(
            np.arange(5.0), np.ones((5, 1), complex)
        )


@pytest.mark.parametrize(
    "shapes",
    [
        pytest.param(([None], [None, 10]), marks=pytest.mark.long),
        ([3], [3, None]),
        pytest.param(([None], [3, 10]), marks=pytest.mark.long),
    ],
)
def test_may_a_graph_not_know_how_many_targets_there_are(shapes):
    of_x, of_z = shapes
    count = of_x[0] or 10
    gp = cgp.ExactGP(Matern12(1.0, 1.0), 0.1)
    specs = [tf.TensorSpec(of_x, tf.float64), tf.TensorSpec(of_z, tf.complex128)]
    graph = tf.function(gp.log_marginal_likelihood, input_signature=specs)
    rng = np.random.default_rng(0)
    x, z = np.arange(float(count)), complex_normals(rng, 3, count)
    np.testing.assert_allclose(graph(x, z), gp.log_marginal_likelihood(x, z))


def test_do_series_of_a_state_space_process_share_their_places():
    gp = cgp.StateSpaceGP(cgp.kernels.Matern32(1.0, 1.0), 0.1)
    words = "all series of a StateSpaceGP go on together"
    with pytest.raises(ValueError, match=rf"x must be one number, got shape \(3,\): {words}"):
        gp.step(np.arange(3.0), np.ones(3, complex))
    with pytest.raises(ValueError, match=rf"x must be \[T\], got shape \(3, 4\): {words}"):
        gp.process(np.ones((3, 4)), np.ones((3, 4), complex))


def test_rows_of_pandas_with_another_index_are_refused():
    pandas = pytest.importorskip("pandas")
    x = np.arange(4.0)
    frame = pandas.DataFrame({"x": x, "z": np.exp(1j * x)}, index=[5, 6, 7, 8])
    gp = cgp.ExactGP(cgp.kernels.Matern32(1.0, 2.0), noise_variance=0.1)
    gp.condition(frame["x"], frame["z"])
    before = gp.predict(x)["mean"]
    with pytest.raises(ValueError, match=r"their labels differ.*align them, z\.loc"):
        gp.condition(frame["x"], frame["z"].sort_index(ascending=False))
    np.testing.assert_array_equal(gp.predict(x)["mean"], before)
    gp.condition(frame["x"], frame["z"].to_numpy())  # without labels: by position
    np.testing.assert_array_equal(gp.predict(x)["mean"], before)
