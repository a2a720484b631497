"""No call leaves a scope of Keras open, in which all that is trained later would fail."""

import copy
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend.common import global_state

import cgp
from cgp.kernels import Matern12
from cgp.layers import GPInterpolator, RealImag, Recursive
from cgp.statespace import LinearGaussian
from tests.long_cases import eagerly_and_in_a_graph, long_except

RNG = np.random.default_rng(8)
X, Z = np.arange(6.0), RNG.normal(size=6) + 1j * RNG.normal(size=6)
SERIES, PAIR = tf.constant(Z[None, :, None]), (tf.constant(X[:, None]), tf.constant(Z))
BATCH = tf.constant(X[None, :, None]), tf.constant(Z[None])
OTHER = tf.constant(Z[None, :4])  # fits no positions
SCOPES = ["current_call_ctx", "stateless_scope", "symbolic_scope", "autocast_scope"]


def kernel():
    return Matern12(variance=1.0, lengthscale=3.0)


def kalman_filter():
    return cgp.KalmanFilter(LinearGaussian([[0.9j]], [[0.1]], [[1.0]], [[1.0]]), ("Q", "R"))


def in_a_model():
    z = keras.Input((6, 1), dtype="complex128")
    moments = kalman_filter()(z)
    return cgp.Functional(z, keras.layers.Dense(1)(RealImag()(moments["filtered_mean"])))


def layer_of(process):
    return lambda: process(kernel(), noise_variance=0.2)


# What makes a layer, what it is called on, and what it refuses.
LAYERS = {
    "ExactGP": (layer_of(cgp.ExactGP), PAIR, (PAIR[0], OTHER)),
    "StateSpaceGP": (layer_of(cgp.StateSpaceGP), PAIR, (PAIR[0], OTHER)),
    "RecursiveGP": (layer_of(cgp.RecursiveGP), PAIR, (PAIR[0], OTHER)),
    "KalmanFilter": (kalman_filter, SERIES, tf.math.real(SERIES)),
    "Recursive filter": (lambda: Recursive(kalman_filter()), SERIES, tf.math.real(SERIES)),
    "Recursive process": (
        lambda: Recursive(layer_of(cgp.RecursiveGP)()),
        BATCH,
        (BATCH[0], OTHER),
    ),
    "GPInterpolator": (
        lambda: GPInterpolator(kernel(), 0.2, loss_weight=1.0),
        (*BATCH, tf.constant([[0.5]], tf.float64)),
        (BATCH[0], OTHER, tf.constant([[0.5]], tf.float64)),
    ),
    "RealImag": (RealImag, SERIES, tf.math.real(SERIES)),
    "Functional": (in_a_model, SERIES, tf.repeat(SERIES, 2, axis=-1)),
}


def stateless(layer, *inputs, **kwargs):
    return layer.stateless_call(
        layer.trainable_variables, layer.non_trainable_variables, *inputs, **kwargs
    )


def as_inputs(given):
    return tf.nest.map_structure(
        lambda a: keras.Input(batch_shape=a.shape, dtype=a.dtype.name), given
    )


CALLS = {
    "call": lambda layer, given: layer(given),
    "its method": lambda layer, given: layer.call(given),
    "in a graph": lambda layer, given: tf.function(lambda: layer(given))(),
    "stateless": stateless,
    "stateless with losses": lambda layer, given: stateless(layer, given, return_losses=True),
    "stateless in a graph": lambda layer, given: tf.function(lambda: stateless(layer, given)[0])(),
    "symbolic": lambda layer, given: layer(as_inputs(given)),
}


def trains(eagerly):
    """A process learns from a dataset by an optimizer of Keras."""
    gp = layer_of(cgp.ExactGP)()
    gp.compile(keras.optimizers.Adam(0.01), run_eagerly=eagerly)
    gp.fit(tf.data.Dataset.from_tensors((X, Z)), epochs=2, verbose=0)
    assert np.isfinite(gp.history.history["loss"]).all()


def open_scopes():
    return {name: global_state.get_global_attribute(name) for name in SCOPES}


CLOSED = dict.fromkeys(SCOPES)


@pytest.mark.parametrize("name", long_except(LAYERS, "ExactGP", "RealImag"))
def test_does_a_call_that_is_made_or_refused_leave_no_scope(name):
    make, given, refused = LAYERS[name]
    layer = make()
    layer(given)
    for how, call in CALLS.items():
        call(layer, given)
        assert open_scopes() == CLOSED, how
        if how != "symbolic":  # whose shapes may be accepted
            with pytest.raises((TypeError, ValueError, tf.errors.InvalidArgumentError)):
                call(layer, refused)
        assert open_scopes() == CLOSED, f"{how}, refused"
    with pytest.raises(ValueError):
        layer.stateless_call([tf.zeros(1)] * 50, [], given)
    assert open_scopes() == CLOSED
    if name == "KalmanFilter":
        trains(eagerly=False)


def methods(name, folder, how):
    """Methods by name, each in a form that works and in one that is refused."""
    is_filter = name == "KalmanFilter"
    estimator = LAYERS[name][0]()
    estimator.compile(keras.optimizers.Adam(0.01), **how)
    data = (Z[None, :, None],) if is_filter else (X, Z)
    path, weights = folder / "a.keras", folder / "a.weights.h5"
    yield "fit", lambda: estimator.fit(*data, verbose=0), lambda: estimator.fit("no", verbose=0)
    yield "evaluate", lambda: estimator.evaluate(*data, verbose=0), lambda: estimator.evaluate("no")
    yield "predict", lambda: estimator.predict(data[0]), lambda: estimator.predict("no")
    yield (
        "train_on_batch",
        lambda: estimator.train_on_batch(*data),
        lambda: estimator.train_on_batch(np.ones((2, 3, 4, 5))),
    )
    if name != "ExactGP":
        sample, block = ((Z[:1],), (Z[:, None],)) if is_filter else ((9.0, Z[0]), (X + 10.0, Z))
        yield "step", lambda: estimator.step(*sample), lambda: estimator.step(*sample[:-1], "no")
        yield (
            "process",
            lambda: estimator.process(*block),
            lambda: estimator.process(*block[:-1], "no"),
        )
    yield "save", lambda: estimator.save(path), lambda: estimator.save(folder / "no" / "a.keras")
    yield "load", lambda: cgp.load_model(path), lambda: cgp.load_model(folder / "no.keras")
    yield (
        "weights",
        lambda: estimator.save_weights(weights),
        lambda: kalman_filter().load_weights(folder / "no.weights.h5"),
    )
    yield "deepcopy", lambda: copy.deepcopy(estimator), None
    yield "pickle", lambda: pickle.loads(pickle.dumps(estimator)), lambda: pickle.loads(b"no")
    yield "clone", lambda: cgp.clone_model(estimator), lambda: cgp.clone_model("no")
    yield "compile", lambda: estimator.compile(**how), lambda: estimator.compile("no", **how)
    yield "L-BFGS", lambda: estimator.fit(*data, epochs=1, verbose=0), lambda: estimator.fit()


@eagerly_and_in_a_graph(
    ("name",),
    ["ExactGP", "RecursiveGP", "KalmanFilter"],
    ["KalmanFilter"],
    ["RecursiveGP", "KalmanFilter"],
)
def test_does_a_method_that_is_done_or_refused_leave_no_scope(name, eagerly, tmp_path):
    for method, done, refused in methods(name, tmp_path, {"run_eagerly": eagerly}):
        done()
        assert open_scopes() == CLOSED, method
        if refused is not None:
            with pytest.raises(Exception):  # noqa: B017 of whatever kind
                refused()
            assert open_scopes() == CLOSED, f"{method}, refused"
    if name == "KalmanFilter":
        trains(eagerly)


def test_does_a_loss_beside_a_stateless_call_have_the_dtype_of_the_model_that_is_called():
    layer, model = kalman_filter(), in_a_model()
    _, _, losses = stateless(layer, SERIES, return_losses=True)
    assert [loss.dtype for loss in losses] == [tf.float64]
    model.compile("sgd", "mse")  # in float32
    assert np.isfinite(model.train_on_batch(SERIES, np.zeros((1, 6, 1))))
