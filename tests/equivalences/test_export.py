"""SavedModels of estimators, run by plain TensorFlow where neither cgp nor Keras can be had."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import statespace
from cgp.kernels import Matern12, Matern32, Rotation, WidelyLinear
from cgp.layers import RealImag
from tests.layers.models import made
from tests.long_cases import long_except

STEPS = 40
RNG = np.random.default_rng(11)
X = np.cumsum(RNG.uniform(0.1, 1.0, STEPS))
Z = RNG.normal(size=(2, STEPS)) + 1j * RNG.normal(size=(2, STEPS))
Z[0, 7] = np.nan
PAIRS = Z.T[:, None, :] * np.array([[1.0], [0.5j], [-1.0]])  # of three streams, two components
X_NEW = np.linspace(-1.0, X[-1] + 3.0, 9)
AFTER = X_NEW[X[-1] < X_NEW]

# Run in a process of its own: a script of plain TensorFlow, given a folder.
PLAIN = """
import sys
sys.modules["cgp"] = sys.modules["keras"] = None  # importing them is an error
import numpy as np, tensorflow as tf
folder = sys.argv[1]
given = np.load(folder + "/given.npz")
found = {}
for name in given["names"]:
    model = tf.saved_model.load(f"{folder}/{name}")
    if f"{name} series" in given:
        for key, value in model.predict(given[f"{name} series"]).items():
            found[f"{name} predict {key}"] = value
    for again in range(2):
        steps = [model.step(*sample) for sample in zip(*(given[f"{name} {a}"] for a in "xz" if f"{name} {a}" in given))]
        for key in steps[0] if steps else ():
            found[f"{name} step {key} {again}"] = np.stack([step[key] for step in steps])
        if f"{name} after" in given:
            for key, value in model.predict(given[f"{name} after"]).items():
                found[f"{name} after {key}"] = value
        if steps:
            model.reset()
np.savez(folder + "/found.npz", **found)
"""  # noqa: E501


def nonlinear():
    """A phase, observed as a phasor."""
    model = statespace.NonlinearGaussian(
        lambda x: x,
        lambda x: tf.exp(tf.complex(0.0 * x, x)),
        Q=[[0.1]],
        R=[[0.5]],
        initial_mean=[0.2],
        initial_covariance=[[1.0]],
    )
    return cgp.KalmanFilter(model)


def running(stream, *sample):
    """A stream after a first sample."""
    stream.step(*sample)
    return stream


def conditioned(gp, count):
    gp.condition(X[:count], Z[:, :count])
    return gp


def kernel():
    return Matern32(1.0, 3.0) * Rotation(0.1)


# An estimator, the arguments of `predict`, and those of its steps, by time.
ESTIMATORS = {
    "streams": (
        lambda: running(cgp.KalmanFilter(made("improper")[0], learn=("Q", "R")), PAIRS[0]),
        np.moveaxis(PAIRS, 0, 1),
        {"z": PAIRS[1:]},
    ),
    "one stream": (
        lambda: cgp.KalmanFilter(made("improper", n=1, m=1, series=1)[0], learn=("R",)),
        PAIRS[None, :6, 0, :1],
        {"z": PAIRS[:3, 0, :1]},
    ),
    "phase": (nonlinear, None, {"z": Z[0, :, None]}),
    "dense": (
        lambda: conditioned(
            cgp.ExactGP(
                WidelyLinear(kernel(), 0.3j), 0.1, mean=cgp.means.Polynomial(1, [0.2 + 0.1j, -0.1j])
            ),
            STEPS
        ),
        X_NEW,
        {},
    ),
    "prior": (lambda: cgp.ExactGP(Matern12(1.0, 2.0), 0.1), X_NEW, {}),
    "line": (
        lambda: conditioned(cgp.StateSpaceGP(kernel(), 0.1), 10),
        X_NEW,
        {"x": X[10:], "z": Z.T[10:]},
    ),
    "new line": (
        lambda: cgp.StateSpaceGP(WidelyLinear(Matern12(1.0, 3.0), 0.3), 0.1),
        X_NEW,
        {"x": X, "z": Z[0]},
    ),
    "window": (
        lambda: running(
            cgp.RecursiveGP(kernel(), 0.1, capacity=4, forgetting=0.99), X[:1, None], Z[:1, 0]
        ),
        X_NEW,
        {"x": X[1:, None, None], "z": Z.T[1:, :1]},
    ),
    "budget": (
        lambda: cgp.RecursiveGP(WidelyLinear(kernel(), 0.3), 0.1, capacity=4, policy="budget"),
        None,
        {"x": X, "z": Z[0]},
    ),
}  # fmt: skip


def live(model, series, steps):
    """What a model itself says, by the names of the script."""
    found = {}
    if series is not None:
        found |= {f"predict {name}": value for name, value in model.predict(series).items()}
    taken = [model.step(*sample) for sample in zip(*steps.values(), strict=True)]
    for kind in ("predicted", "filtered") if taken else ():
        for part in ("mean", "variance", "pseudo_variance"):
            moments = [getattr(getattr(step, kind), part) for step in taken]
            found[f"step {kind}_{part}"] = np.stack(moments)
    if taken:
        found["step innovation"] = np.stack([step.innovation for step in taken])
    if taken and hasattr(model, "kernel"):
        found |= {f"after {name}": value for name, value in model.predict(AFTER).items()}
    return found


# Run here, and by plain TensorFlow in two processes.
HERE = ["one stream", "dense", "window"]
PLAINLY = ["streams", "one stream", "dense", "line", "window"]
LONG_ESTIMATORS = ["prior", "new line", "budget", "phase"]


def test_is_every_estimator_run_by_plain_tensorflow():
    assert sorted(PLAINLY + LONG_ESTIMATORS) == sorted(ESTIMATORS)
    assert set(HERE) < set(PLAINLY)


def exported(names, folder):
    """What the loaded models say, and what the models themselves do."""
    given, expected = {"names": names}, {}
    for name in names:
        make, series, steps = ESTIMATORS[name]
        model = make()
        model.export(folder / name)
        is_process = hasattr(model, "kernel")
        if series is not None:
            given[f"{name} series"] = series[:, None] if is_process else series
        given |= {f"{name} {argument}": value for argument, value in steps.items()}
        if is_process and steps:
            given[f"{name} after"] = AFTER[:, None]
        expected |= {f"{name} {key}": value for key, value in live(model, series, steps).items()}
    np.savez(folder / "given.npz", **given)
    subprocess.run([sys.executable, "-c", PLAIN, str(folder)], check=True, timeout=300)
    with np.load(folder / "found.npz") as file:
        return dict(file), expected


@pytest.mark.parametrize("name", HERE)
def test_says_a_model_that_is_loaded_what_the_model_says(name, tmp_path):
    """Here, where cgp is at hand; a process more, with steps, is below."""
    make, series, steps = ESTIMATORS[name]
    model = make()
    model.export(tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    is_process = hasattr(model, "kernel")
    found = loaded.predict(series[:, None] if is_process else series)
    found = {f"predict {key}": value for key, value in found.items()}
    taken = [loaded.step(*sample) for sample in zip(*steps.values(), strict=True)]
    for key in taken[0] if taken else ():
        found[f"step {key}"] = np.stack([step[key] for step in taken])
    if is_process and steps:
        for key, value in loaded.predict(AFTER[:, None]).items():
            found[f"after {key}"] = value
    for key, value in live(model, series, steps).items():
        np.testing.assert_allclose(found[key], value, atol=1e-12, err_msg=key)
        assert np.shape(found[key]) == np.shape(value), key


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("names", "count"), [(PLAINLY, 60), (LONG_ESTIMATORS, 30)])
def test_does_plain_tensorflow_say_what_the_models_say(names, count, tmp_path):
    found, expected = exported(names, tmp_path)
    for key, value in expected.items():
        names = [f"{key} {again}" for again in range(2)] if " step " in key else [key]
        for name in names:  # the second time after a reset
            np.testing.assert_allclose(found[name], value, atol=1e-12, err_msg=name)
            assert np.shape(found[name]) == np.shape(value), name
    assert len(expected) > count


def test_what_an_exported_process_does_not_take_is_refused_and_changes_nothing(tmp_path):
    gp = cgp.StateSpaceGP(Matern12(1.0, 3.0) * Rotation(0.1), 0.1)
    gp.condition(X[:5], Z[0, :5])
    gp.export(tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    refused = {
        "must not go back": lambda: loaded.step(X[2], Z[0, 2]),
        "would not be finite": lambda: loaded.step(X[8], np.inf + 0j),
        "the state would not be finite": lambda: loaded.step(np.inf, Z[0, 5]),
    }
    for words, call in refused.items():
        with pytest.raises(tf.errors.InvalidArgumentError, match=words):
            call()
    np.testing.assert_allclose(
        loaded.step(X[5], Z[0, 5])["predicted_mean"],
        gp.step(X[5], Z[0, 5]).predicted.mean,
        rtol=1e-12,
    )
    ahead = loaded.predict(X[5:8, None])
    for name, value in gp.predict(X[5:8]).items():
        np.testing.assert_allclose(ahead[name], value, atol=1e-12, err_msg=name)
    with pytest.raises(tf.errors.InvalidArgumentError, match="before the last sample"):
        loaded.predict(X[:2, None])


def test_is_a_window_that_is_full_or_a_place_far_away_refused(tmp_path):
    gp = cgp.RecursiveGP(kernel(), 0.1, capacity=2, policy="growing")
    gp.step(X[0], Z[1, 0])
    gp.export(tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    with pytest.raises(tf.errors.InvalidArgumentError, match="x must be"):
        loaded.step(1e300, np.nan + 0j)
    loaded.step(x=X[1], z=Z[1, 1])
    with pytest.raises(tf.errors.InvalidArgumentError, match="capacity is 2"):
        loaded.step(X[2], Z[1, 2])
    gp.step(X[1], Z[1, 1])
    np.testing.assert_allclose(
        loaded.step(X[2], np.nan + 0j)["predicted_mean"],
        gp.step(X[2], np.nan).predicted.mean,
        rtol=1e-12,
    )


@pytest.mark.long
def test_is_an_observation_without_a_normal_posterior_refused(tmp_path):
    model = statespace.LinearGaussian([[0.9j]], [[0.1]], [[1.0]], [[1.0]])
    kf = cgp.KalmanFilter(model, likelihood=cgp.likelihoods.Magnitude())
    kf.export(tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    z = [-1.0 + 1j]  # whose phase nothing tells
    with pytest.raises(ValueError, match="no normal posterior"):
        kf.step(z)
    with pytest.raises(tf.errors.InvalidArgumentError, match="would not be finite"):
        loaded.step(z)


@pytest.mark.long
@pytest.mark.parametrize("eagerly", [True, False])
def test_does_a_filter_learn_after_it_was_exported(eagerly, tmp_path):
    """What is exported leaves no loss of its graph behind."""
    before, after = (cgp.KalmanFilter(made()[0], learn=("R",)) for _ in range(2))
    series = made()[1]
    losses = []
    for kf in (before, after):
        kf.compile(cgp.optimizers.LBFGS(), run_eagerly=eagerly)
        if kf is after:
            kf.export(tmp_path)
            assert kf.losses == []
        losses.append(kf.fit(series, epochs=2, verbose=0).history["loss"])
    np.testing.assert_array_equal(*losses)
    with pytest.raises(TypeError, match="input_signature: the functions of a KalmanFilter"):
        after.export(tmp_path, input_signature=[])


@pytest.mark.long
def test_is_a_model_with_estimators_inside_exported_by_keras(tmp_path):
    z = keras.Input((None, 2), dtype="complex128")
    tracked = cgp.KalmanFilter(made()[0], learn=("Q", "R"))(z)["filtered_mean"]
    model = cgp.Functional(z, keras.layers.Dense(1)(RealImag()(tracked)))
    series = np.nan_to_num(made()[1])
    model.export(tmp_path, verbose=False)
    loaded = tf.saved_model.load(tmp_path)
    np.testing.assert_allclose(loaded.serve(series), model.predict(series, verbose=0), rtol=1e-5)


def test_is_another_format_or_signature_refused(tmp_path):
    with pytest.raises(ValueError, match="no operations on complex128"):
        nonlinear().export(tmp_path, format="onnx")
    with pytest.raises(TypeError, match="input_signature: the functions of a KalmanFilter"):
        nonlinear().export(tmp_path, input_signature=[])


@pytest.mark.parametrize("kind", long_except([cgp.ExactGP, cgp.StateSpaceGP], cgp.ExactGP))
def test_is_a_model_with_a_process_inside_exported(kind, tmp_path):
    gp = kind(Matern12(1.0, 3.0), 0.1)
    gp.condition(X[:5], Z[0, :5])
    x = keras.Input((1,), dtype="float64")
    model = cgp.Functional(x, gp(x)["mean"])
    model.export(tmp_path, verbose=False)
    points = np.linspace(0.0, 6.0, 4)[:, None]
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_allclose(loaded.serve(points), gp.predict(points)["mean"], atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("kind", [cgp.ExactGP, cgp.StateSpaceGP])
def test_are_batches_of_points_of_one_series_refused_in_a_graph_too(kind):
    several = np.tile(X[:5], (2, 1))[..., None], np.stack([Z[0, :5], 1j * Z[0, :5]])
    models = []
    for data in ((X[:5], Z[0, :5]), several):
        gp = kind(Matern12(1.0, 3.0), 0.1)
        gp.condition(*data)
        x = keras.Input((None, 1), dtype="float64")
        models.append(cgp.Functional(x, gp(x)["mean"]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="batch axes of the data"):
        models[0].predict(np.zeros((2, 4, 1)), verbose=0)
    means = models[1].predict(np.zeros((2, 4, 1)), verbose=0)
    np.testing.assert_allclose(means[1], 1j * means[0], atol=1e-12)
