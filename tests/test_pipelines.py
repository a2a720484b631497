"""Every cell of the table of docs/pipelines.md: what works, and what is refused in clear words."""

import copy
import functools
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import Matern12
from cgp.layers import RealImag, Recursive
from cgp.statespace import LinearGaussian

PAGE = Path(__file__).parents[1] / "docs" / "pipelines.md"
RNG = np.random.default_rng(8)
X, Z = np.arange(6.0), RNG.normal(size=6) + 1j * RNG.normal(size=6)
NEW = np.array([1.5, 7.0])
KINDS = {"ExactGP": cgp.ExactGP, "StateSpaceGP": cgp.StateSpaceGP, "RecursiveGP": cgp.RecursiveGP}


def fresh(name):
    """An estimator."""
    if name != "KalmanFilter":
        return KINDS[name](Matern12(1.0, 3.0), 0.2)
    return cgp.KalmanFilter(LinearGaussian([[0.9j]], [[0.1]], [[1.0]], [[1.0]]), ("Q", "R"))


def made(name, optimizer=None, run_eagerly=True):
    """An estimator, compiled: eagerly, as to trace its steps takes longer than to take few."""
    found = fresh(name)
    found.compile(optimizer, run_eagerly=run_eagerly)
    return found


def data(name):
    return (Z[:, None],) if name == "KalmanFilter" else (X, Z)


def newly_fitted(name, eagerly=True):
    """An estimator after one step, and some data."""
    found = made(name, run_eagerly=eagerly)
    found.fit(*data(name), epochs=1, verbose=0)
    if name == "KalmanFilter":
        found.step(Z[:1])
    return found


FITTED = {}  # with all that was in them


def fitted(name, eagerly=True):
    """The same for all cells, none of which may change it."""
    if (name, eagerly) not in FITTED:
        found = newly_fitted(name, eagerly)
        FITTED[name, eagerly] = found, contents(found)
    return FITTED[name, eagerly][0]


def contents(estimator):
    """Arrays, of hyperparameters, of the optimizer, and of all that a file keeps; and losses."""
    of_file = {}
    estimator.save_own_variables(of_file)
    variables = [*estimator.weights, *estimator.optimizer.variables, *of_file.values()]
    return [np.array(v) for v in variables], copy.deepcopy(estimator.history.history)


@pytest.fixture(autouse=True)
def _no_cell_changes_what_all_share():
    yield
    for name, (estimator, (arrays, history)) in FITTED.items():
        for a, b in zip(contents(estimator)[0], arrays, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=str(name))
        assert estimator.history.history == history, name


def predicted(estimator):
    """Of data or, of a filter, of a series: an array."""
    if isinstance(estimator, cgp.KalmanFilter):
        return estimator.predict(Z[:, None])["filtered_mean"]
    return estimator.predict(NEW)["mean"]


def same(first, second):
    np.testing.assert_allclose(predicted(second), predicted(first), rtol=1e-12, atol=1e-14)


def series(name):
    """A dataset of two series of different lengths."""
    if name == "KalmanFilter":
        spec = (tf.TensorSpec([1, None, 1], tf.complex128),)
        return tf.data.Dataset.from_generator(
            lambda: ((z[None, :, None],) for z in (Z, Z[:4])), output_signature=spec
        )
    spec = tf.TensorSpec([None], tf.float64), tf.TensorSpec([None], tf.complex128)
    return tf.data.Dataset.from_generator(
        lambda: ((X[:n], Z[:n]) for n in (6, 4)), output_signature=spec
    )


def shards(name):
    return [tuple(a[:n] for a in data(name)) if name != "KalmanFilter" else Z[:n] for n in (6, 4)]


# --- the cells, called with the name of an estimator and a folder ---------------------------------


def fits(name, folder, eagerly=True):
    estimator = fitted(name, eagerly)
    assert np.isfinite(estimator.history.history["loss"]).all()


def fits_a_dataset(name, folder, eagerly=True):
    history = made(name, run_eagerly=eagerly).fit(series(name), epochs=2, verbose=0).history["loss"]
    assert history[-1] <= history[0]


def validates(name, folder, eagerly=True):
    given = data(name) if name != "KalmanFilter" else (Z[None, :, None],)
    estimator = made(name, run_eagerly=eagerly)
    history = estimator.fit(*data(name), epochs=1, validation_data=given, verbose=0).history
    assert np.isfinite(history["val_loss"]).all()


def fits_shards(name, folder, eagerly=True):
    estimator = made(name, run_eagerly=eagerly)
    history = estimator.fit(shards(name), engine=map, epochs=2, verbose=0).history["loss"]
    assert history[-1] <= history[0]


def replicates(name, folder):
    refusal = _refusals_of_two_replicas()[name]
    if refusal is not None:
        raise ValueError(refusal)


@functools.cache
def _refusals_of_two_replicas():
    """By estimator, from a process of its own: devices are made before TensorFlow starts."""
    script = "import tests.test_pipelines as t; t.on_two_replicas()"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    return json.loads(found.stdout.splitlines()[-1])


def on_two_replicas():
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    refusals = {}
    for name in (*KINDS, "KalmanFilter"):
        try:
            _fit_on_one_and_two(name)
            refusals[name] = None
        except ValueError as error:
            refusals[name] = str(error)
    print(json.dumps(refusals))


def _fit_on_one_and_two(name):
    losses, z = [], np.stack([Z, Z[::-1], 2 * Z, Z])[..., None]
    z[1, 2:] = np.nan  # missing data unequal between replicas
    for scope in (tf.distribute.get_strategy(), tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])):
        with scope.scope():
            estimator = made(name, keras.optimizers.Adam(0.05), run_eagerly=False)
        given = (z,) if name == "KalmanFilter" else data(name)
        arguments = {"batch_size": 4, "shuffle": False} if name == "KalmanFilter" else {}
        losses.append(estimator.fit(*given, epochs=3, verbose=0, **arguments).history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-10)


def trains_on_a_batch(name, folder):
    given = Z[None, :, None] if name == "KalmanFilter" else (X, Z)
    estimator = made(name, keras.optimizers.Adam(0.01), run_eagerly=False)
    before = float(estimator.test_on_batch(given))
    assert float(estimator.train_on_batch(given)) == pytest.approx(before, rel=1e-9)
    if name != "KalmanFilter":
        assert float(estimator.test_on_batch(X, Z)) < before
        assert np.isfinite(estimator.train_on_batch(X, Z))


def evaluates(name, folder, eagerly=True):
    assert np.isfinite(made(name, run_eagerly=eagerly).evaluate(*data(name), verbose=0))


def predicts(name, folder, eagerly=True):
    assert np.isfinite(predicted(fitted(name, eagerly))).all()


def steps(name, folder):
    estimator = made(name)
    sample = (Z[:1],) if name == "KalmanFilter" else (0.0, Z[0])
    assert np.isfinite(estimator.step(*sample).filtered.variance).all()


def exports(name, folder):
    estimator = newly_fitted(name)
    estimator.export(folder)
    loaded = tf.saved_model.load(folder)
    if name == "KalmanFilter":
        found = loaded.predict(Z[None, :, None])["filtered_mean"][0]
    else:
        found = loaded.predict(NEW[:, None])["mean"]
    np.testing.assert_allclose(np.ravel(found), np.ravel(predicted(estimator)), rtol=1e-12)


def saves(name, folder):
    estimator = fitted(name)
    estimator.save(folder / "model.keras")
    same(estimator, cgp.load_model(folder / "model.keras"))


def saves_weights(name, folder):
    estimator, other = fitted(name), fresh(name)
    estimator.save_weights(folder / "model.weights.h5")
    other.load_weights(folder / "model.weights.h5")
    same(estimator, other)


def clones(name, folder):
    estimator = fitted(name)
    clone = cgp.clone_model(estimator)
    assert type(clone) is type(estimator)
    assert len(clone.trainable_variables) == len(estimator.trainable_variables)


def copies(name, folder):
    estimator = fitted(name)
    same(estimator, pickle.loads(pickle.dumps(estimator)))
    same(estimator, copy.deepcopy(estimator))


def nests(name, folder):
    estimator = made(name)
    if name == "KalmanFilter":
        inputs = keras.Input((6, 1), dtype="complex128")
        mean, given = estimator(inputs)["filtered_mean"], Z[None, :, None]
    else:
        inputs = [keras.Input((6, 1), dtype="float64"), keras.Input((6,), dtype="complex128")]
        mean, given = estimator(inputs)["mean"], [X[None, :, None], Z[None]]
    outputs = keras.layers.Dense(1)(keras.layers.Flatten()(RealImag()(mean)))
    model = keras.Model(inputs, outputs)
    model.compile("adam", "mse")
    assert np.isfinite(model.train_on_batch(given, np.zeros((1, 1), "float32")))


def recurs(name, folder):
    given = Z[None, :, None] if name == "KalmanFilter" else (X[None, :, None], Z[None])
    assert np.isfinite(Recursive(made(name))(given)["filtered_variance"]).all()


def banks(name, folder):
    bank, z = cgp.Bank(made(name)), np.array([1j, 0.5, 0.2j])
    step = bank.update(["a", "b", "a"], z, *([] if name == "KalmanFilter" else [X[:3]]))
    assert np.isfinite(step.filtered.variance).all()


def is_stateless(name, folder):
    estimator = fitted(name)
    weights = estimator.trainable_variables, estimator.non_trainable_variables
    values = [[variable.value for variable in of_kind] for of_kind in weights]
    given = tf.constant(Z[None, :, None] if name == "KalmanFilter" else NEW[:, None])
    found, _ = estimator.stateless_call(*values, given)
    key = "filtered_mean" if name == "KalmanFilter" else "mean"
    np.testing.assert_allclose(np.ravel(found[key]), np.ravel(predicted(estimator)), rtol=1e-12)


def traces(name, folder):
    estimator = fitted(name)
    if name == "KalmanFilter":
        found = tf.function(lambda z: estimator(z)["filtered_mean"])(tf.constant(Z[None, :, None]))
    else:
        found = tf.function(lambda x: estimator.posterior(x).mean())(tf.constant(NEW))
    np.testing.assert_allclose(np.ravel(found), np.ravel(predicted(estimator)), rtol=1e-9)


def compiles_by_xla(name, folder):
    estimator = made(name)
    estimator.compile(keras.optimizers.Adam(), jit_compile=True)
    estimator.fit(Z[None, :, None], verbose=0)


# A cell for each line of the page, and the words of its refusals.
LINES = {
    "`fit` of arrays": fits,
    "`fit(dataset)`, many series": fits_a_dataset,
    "`fit(validation_data=)`": validates,
    "`fit(shards, engine=)`, many machines": fits_shards,
    "`fit` on two replicas (`MirroredStrategy`)": replicates,
    "`train_on_batch`": trains_on_a_batch,
    "`evaluate`": evaluates,
    "`predict`": predicts,
    "`step`, online": steps,
    "`export`, run without cgp": exports,
    "`save`, `cgp.load_model`": saves,
    "`save_weights` into a fresh object": saves_weights,
    "`cgp.clone_model`": clones,
    "pickle, `copy.deepcopy`": copies,
    "a layer in a `keras.Model`, beside a float32 loss": nests,
    "`cgp.layers.Recursive`, series in pieces": recurs,
    "`cgp.Bank`, many keys": banks,
    "`stateless_call`": is_stateless,
    "inside a `tf.function`": traces,
    "`compile(jit_compile=True)`": compiles_by_xla,
}
WORDS = {
    fits_a_dataset: "one stream, in its order",
    validates: "one stream, in its order",
    fits_shards: "one stream, in its order",
    replicates: "one replica",
    steps: "no attribute 'step'",
    recurs: "a KalmanFilter, a RecursiveGP",
    banks: "KalmanFilter",
    compiles_by_xla: "jit_compile must not be True",
}

# Eagerly, and when long in a graph. What evaluates is traced with what validates.
TRACED = (fits, fits_a_dataset, validates, fits_shards, predicts)
# Cells that take long, beside others of their line.
LONG_CELLS = {
    "`fit` of arrays": ["RecursiveGP"],
    "`fit(dataset)`, many series": ["ExactGP", "KalmanFilter"],
    "`fit(validation_data=)`": ["ExactGP", "KalmanFilter"],
    "`fit(shards, engine=)`, many machines": ["ExactGP", "KalmanFilter"],
    "`evaluate`": ["ExactGP", "RecursiveGP"],
    "`fit` on two replicas (`MirroredStrategy`)": [*KINDS, "KalmanFilter"],
    "`train_on_batch`": list(KINDS),
    "`export`, run without cgp": ["StateSpaceGP", "RecursiveGP", "KalmanFilter"],
    "a layer in a `keras.Model`, beside a float32 loss": [*KINDS, "KalmanFilter"],
    "inside a `tf.function`": ["StateSpaceGP", "KalmanFilter"],
    "pickle, `copy.deepcopy`": ["ExactGP", "StateSpaceGP"],
    "`compile(jit_compile=True)`": ["KalmanFilter"],
}


def cells():
    first_table = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    header, _, *lines = re.findall(r"^\|.*\|$", first_table, re.MULTILINE)
    _, *names = _columns(header)
    for line in lines:
        what, *marks = _columns(line)
        for name, mark in zip(names, marks, strict=True):
            is_long = name in LONG_CELLS.get(what, ())
            is_traced = LINES[what] in TRACED and mark == "yes"
            if not (is_long and is_traced):
                speed = pytest.mark.long if is_long else ()
                yield pytest.param(what, name, mark, {}, marks=speed, id=f"{what} {name}")
            if is_traced:
                how = {"eagerly": False}
                own_id = f"{what} {name}, in a graph"
                yield pytest.param(what, name, mark, how, marks=pytest.mark.long, id=own_id)


def _columns(line):
    return [column.strip() for column in line.strip("|").split("|")]


@pytest.mark.parametrize(("line", "name", "mark", "how"), [*cells()])
def test_does_each_cell_of_the_table_hold(line, name, mark, how, tmp_path):
    cell = LINES[line]
    if mark == "yes":
        cell(name, tmp_path, **how)
        return
    assert mark == "refused"
    refusals = (TypeError, ValueError, AttributeError, NotImplementedError)
    with pytest.raises(refusals, match=WORDS[cell]):
        cell(name, tmp_path)


ONE_REPLICA = {
    "ExactGP": lambda: made("ExactGP").fit(X, Z),
    "StateSpaceGP": lambda: made("StateSpaceGP").fit(X, Z),
    "RecursiveGP": lambda: made("RecursiveGP"),
    "many series": lambda: made("StateSpaceGP").fit(series("StateSpaceGP")),
    "a KalmanFilter by L-BFGS": lambda: made("KalmanFilter").fit(Z[:, None]),
    "a KalmanFilter online": lambda: made("KalmanFilter").step(Z[:1]),
}


@pytest.mark.parametrize("case", ONE_REPLICA)
def test_is_another_replica_refused(case, monkeypatch):
    """By the number of replicas alone, as for devices of its own a process has to begin anew."""
    strategy = type(tf.distribute.get_strategy())
    monkeypatch.setattr(strategy, "num_replicas_in_sync", property(lambda strategy: 2))
    with pytest.raises(ValueError, match="on one replica, not on 2: build the model outside"):
        ONE_REPLICA[case]()


def test_has_the_table_every_line():
    assert {parameters.values[0] for parameters in cells()} == set(LINES)


def test_are_the_long_cells_in_the_table():
    assert {parameters.values[:2] for parameters in cells()} >= {
        (line, name) for line, names in LONG_CELLS.items() for name in names
    }
