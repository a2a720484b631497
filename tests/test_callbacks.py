"""What callbacks write to TensorBoard, read from its files."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import RBF, Rotation, WidelyLinear
from tests.long_cases import eagerly_or_in_a_graph

X = np.arange(6.0)
Z = np.exp(0.4j * X)


def written(folder):
    """Values by tag and epoch, and the plugin of each tag."""
    (file,) = Path(folder).glob("events.*")
    values, plugins = {}, {}
    for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
        event = tf.compat.v1.Event.FromString(record)
        for value in event.summary.value:
            values[value.tag, event.step] = tf.make_ndarray(value.tensor)
            if value.metadata.plugin_data.plugin_name:
                plugins[value.tag] = value.metadata.plugin_data.plugin_name
    return values, plugins


OPTIMIZERS = {"Adam": lambda: keras.optimizers.Adam(0.1), "LBFGS": cgp.optimizers.LBFGS}


@eagerly_or_in_a_graph
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_are_hyperparameters_written_as_they_are_after_each_epoch(tmp_path, optimizer, eagerly):
    gp = cgp.ExactGP(WidelyLinear(RBF(1.0, [2.0]) * Rotation([0.1]), 0.2j), 0.1)
    gp.compile(OPTIMIZERS[optimizer](), run_eagerly=eagerly)
    seen = []
    look = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(gp.parameters())
    )
    callbacks = [cgp.callbacks.Parameters(tmp_path), look]
    gp.fit(X[:, None], Z, epochs=3, callbacks=callbacks, verbose=0)
    values, plugins = written(tmp_path)
    assert len(seen) == 3
    for epoch, parameters in enumerate(seen):
        for tag, expected in {
            "noise_variance": parameters["noise_variance"],
            "rbf.lengthscale[0]": parameters["rbf.lengthscale"][0],
            "widelylinear.coefficient/real": parameters["widelylinear.coefficient"].real,
            "widelylinear.coefficient/imaginary": parameters["widelylinear.coefficient"].imag,
        }.items():
            result = values[f"parameters/{tag}", epoch]
            assert result == pytest.approx(float(expected), rel=1e-6, abs=1e-8)
            assert plugins[f"parameters/{tag}"] == "scalars"
    assert seen[0]["noise_variance"] != seen[2]["noise_variance"]


@eagerly_or_in_a_graph
def test_is_a_picture_written_of_data_that_were_given(tmp_path, eagerly):
    pytest.importorskip("matplotlib")
    gp = cgp.ExactGP(RBF(1.0, 2.0), 0.1)
    gp.compile(keras.optimizers.Adam(0.1), run_eagerly=eagerly)
    shown = cgp.callbacks.Parameters(tmp_path, X, Z, picture_every=2)
    gp.fit(X, Z, epochs=4, callbacks=[shown], verbose=0)
    values, plugins = written(tmp_path)
    assert {epoch for tag, epoch in values if tag == "posterior"} == {0, 2, 3}
    assert plugins["posterior"] == "images"
    width, height, png = values["posterior", 3]
    assert (int(width), int(height)) == tuple(tf.io.decode_png(png).shape[1::-1])


def test_are_hyperparameters_of_layers_in_another_model_written(tmp_path):
    x, z = keras.Input((6, 1), dtype="float64"), keras.Input((6,), dtype="complex128")
    model = cgp.Functional([x, z], cgp.ExactGP(RBF(1.0, 2.0), 0.1)((x, z))["mean"])
    model.compile(keras.optimizers.Adam(0.1))
    shown = cgp.callbacks.Parameters(tmp_path)
    shown.set_model(model)
    shown.on_train_begin()
    shown.on_epoch_end(0)
    shown.on_train_end()
    values, _ = written(tmp_path)
    assert values["parameters/rbf.lengthscale", 0] == 2.0


def test_is_a_model_without_hyperparameters_refused(tmp_path):
    shown = cgp.callbacks.Parameters(tmp_path)
    shown.set_model(keras.Sequential([keras.layers.Dense(1)]))
    with pytest.raises(ValueError, match="Sequential has no hyperparameters"):
        shown.on_train_begin()
    with pytest.raises(ValueError, match="x and z belong together"):
        cgp.callbacks.Parameters(tmp_path, X)


REFUSED = {
    "two dimensions": (np.ones((6, 2)), Z, ValueError, r"x of pictures must be \[N\] or \[N, 1\]"),
    "several series": (X, np.stack([Z, Z]), ValueError, r"one series, \[6\] as x, got shape \(2,"),
    "fewer targets": (X, Z[:3], ValueError, r"\[6\] as x, got shape \(3,\)"),
    "real targets": (X, Z.real, TypeError, "z must be complex"),
    "no numbers": (["a"] * 6, Z, TypeError, "x must be real numbers"),
    "no points": (X[:0], Z[:0], ValueError, "x of pictures"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_are_data_that_make_no_picture_refused_at_once(case, tmp_path):
    pytest.importorskip("matplotlib")
    x, z, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        cgp.callbacks.Parameters(tmp_path, x, z)


def test_is_a_model_without_a_picture_refused_before_its_fit(tmp_path):
    pytest.importorskip("matplotlib")
    shown = cgp.callbacks.Parameters(tmp_path, X[:, None], Z)
    z = keras.Input((6,), dtype="complex128")
    layer = cgp.layers.GPInterpolator(RBF(1.0, 2.0), 0.1, X, X)
    shown.set_model(cgp.Functional(z, layer(z)["mean"]))
    with pytest.raises(ValueError, match="of a Gaussian process, not of a Functional"):
        shown.on_train_begin()
    gp = cgp.ExactGP(RBF(1.0, [2.0, 2.0]), 0.1)
    gp.compile(keras.optimizers.Adam(0.1))
    with pytest.raises(ValueError, match=r"along a line of x: x must have as many dimensions"):
        gp.fit(np.stack([X, X], axis=-1), Z, epochs=2, callbacks=[shown], verbose=0)
