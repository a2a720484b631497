"""A file says what it needs: loaded where cgp is not imported, and of earlier versions."""

import copy
import json
import subprocess
import sys
import warnings
import zipfile

import keras
import numpy as np
import pytest

import cgp
from cgp.kernels import Matern12
from cgp.statespace import LinearGaussian

X, Z = np.arange(4.0), np.exp(0.4j * np.arange(4.0))


def process():
    gp = cgp.ExactGP(Matern12(variance=1.0, lengthscale=3.0), noise_variance=0.1)
    gp.condition(X, Z)
    return gp


def kalman_filter():
    kf = cgp.KalmanFilter(LinearGaussian([[0.9j]], [[0.1]], [[1.0]], [[1.0]]), ("Q", "R"))
    kf.step(Z[:1])
    return kf


@pytest.mark.long
def test_does_keras_without_cgp_say_what_to_import(tmp_path):
    process().save(tmp_path / "gp.keras")
    script = f"import keras; keras.models.load_model({str(tmp_path / 'gp.keras')!r})"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "Could not locate class 'ExactGP of the package cgp (import cgp before" in result.stderr
    assert "cgp.load_model" in result.stderr
    with zipfile.ZipFile(tmp_path / "gp.keras") as archive:
        assert "import cgp" in json.loads(archive.read("metadata.json"))["needs"]


def test_does_the_remedy_work_and_do_files_of_earlier_versions_load(tmp_path):
    gp, path, earlier = process(), tmp_path / "gp.keras", tmp_path / "earlier.keras"
    gp.save(path)
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(earlier, "w") as plain:
        for name in archive.namelist():
            content = archive.read(name)
            if name == "config.json":
                content = json.dumps(json.loads(content) | {"class_name": "ExactGP"})
            plain.writestr(name, content)
    for load in (keras.models.load_model, cgp.load_model):
        for file in (path, earlier):
            result = load(file).predict([0.5])["mean"]
            np.testing.assert_array_equal(result, gp.predict([0.5])["mean"])


@keras.saving.register_keras_serializable(package="tests")
class Own(cgp.Model):
    def build(self, shape):
        self.built = True

    def call(self, x):
        return x


def test_is_a_class_of_the_user_named_as_it_is(tmp_path):
    model = Own()
    model.build(None)
    model.save(tmp_path / "own.keras")
    with zipfile.ZipFile(tmp_path / "own.keras") as archive:
        assert json.loads(archive.read("config.json"))["class_name"] == "Own"


@pytest.mark.parametrize("made", [process, kalman_filter])
def test_is_a_model_saved_and_copied_where_warnings_are_errors(made, tmp_path):
    model = made()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.save(tmp_path / "model.keras")
        model.save_weights(tmp_path / "model.weights.h5")
        copy.deepcopy(model)
        model.load_weights(tmp_path / "model.weights.h5")
        cgp.load_model(tmp_path / "model.keras")
