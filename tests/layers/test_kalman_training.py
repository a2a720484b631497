"""Learned: by likelihood alone, shared with other layers, and between layers of a network."""

import copy
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.optimize import minimize
from scipy.stats import chi2

import cgp
from cgp import statespace
from tests.layers.models import (
    Features,
    Gain,
    Rotation,
    assert_gradients_along,
    central_differences,
    flat,
    guess,
    made,
    normals,
    simulated,
    two_modes,
)
from tests.long_cases import eagerly_and_in_a_graph, eagerly_or_in_a_graph, long_except


def learner(optimizer, **kwargs):
    kf = cgp.KalmanFilter(guess(), learn=("Q", "R"))
    kf.compile(optimizer, **kwargs)
    return kf


def log_likelihood(z, q, r):
    true = guess()
    model = statespace.LinearGaussian(
        true.F, q, true.H, r, initial_covariance=true.initial_covariance
    )
    return statespace.log_likelihood(model, z)


# --- by likelihood alone --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def observed():
    return simulated(two_modes(), 2, 1500, seed=1)


@pytest.fixture(scope="module")
def fitted(observed):
    """A filter fitted by L-BFGS to the end, and what it was fitted to."""
    z = observed
    kf = learner(cgp.optimizers.LBFGS(ftol=1e-14, gtol=1e-9))
    history = kf.fit(z, verbose=0)
    return kf, z, history.history["loss"]


@pytest.fixture(scope="module")
def optimum(fitted):
    """The same by SciPy, over other parameters: a root of Q with a free diagonal, and log R."""
    _, z, _ = fitted
    z = tf.constant(z)

    @tf.function
    def value_and_gradient(theta):
        with tf.GradientTape() as tape:
            tape.watch(theta)
            root = tf.stack(
                [
                    tf.stack([tf.complex(theta[0], 0.0 * theta[0]), tf.zeros((), tf.complex128)]),
                    tf.stack(
                        [tf.complex(theta[1], theta[2]), tf.complex(theta[3], 0.0 * theta[3])]
                    ),
                ]
            )
            q = root @ tf.linalg.adjoint(root)
            r = tf.complex(tf.exp(theta[4]), 0.0 * theta[4])[None, None]
            loss = -tf.reduce_sum(log_likelihood(z, q, r)) / z.shape[0] / z.shape[1]
        return loss, tape.gradient(loss, theta), q, r

    def function(theta):
        loss, gradient, _, _ = value_and_gradient(tf.constant(theta))
        return loss.numpy(), gradient.numpy()

    start = np.array([1.0, 0.1, 0.1, 1.0, 0.0])
    found = minimize(function, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-15})
    _, _, q, r = value_and_gradient(tf.constant(found.x))
    return found.fun, q.numpy(), r.numpy()


@pytest.mark.long
def test_is_the_optimum_that_of_scipy(fitted, optimum):
    kf, _, losses = fitted
    loss, q, r = optimum
    assert min(losses) == pytest.approx(loss, abs=1e-8)
    np.testing.assert_allclose(kf.Q, q, atol=2e-4)
    np.testing.assert_allclose(kf.R, r, atol=2e-4)


@pytest.mark.long
def test_is_the_truth_as_likely_as_it_should_be(fitted):
    kf, z, _ = fitted
    true = two_modes()
    at_truth = np.sum(log_likelihood(z, true.Q, true.R))
    at_optimum = np.sum(log_likelihood(z, kf.Q, kf.R))
    # Wilks: twice the difference has, in the limit, a χ² distribution of as many degrees of
    # freedom as there are real parameters, four of Q and one of R.
    assert 0.0 < 2.0 * (at_optimum - at_truth) < chi2(5).ppf(0.9999)
    np.testing.assert_allclose(kf.R, true.R, rtol=0.15)
    np.testing.assert_allclose(np.diag(kf.Q).real, np.diag(true.Q).real, rtol=0.4)


@pytest.mark.long
def test_does_adam_come_to_the_same(fitted):
    by_lbfgs, z, losses = fitted
    kf = learner(keras.optimizers.Adam(0.05))
    history = kf.fit(z, epochs=150, verbose=0).history["loss"]
    assert history[-1] == pytest.approx(min(losses), abs=1e-4)
    np.testing.assert_allclose(kf.R, by_lbfgs.R, atol=0.02)


def test_do_fit_and_evaluate_take_what_keras_takes(observed):
    blocks = observed.reshape(20, 150, 1)
    kf = learner(keras.optimizers.Adam(0.05))
    epochs = []
    callback = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: epochs.append(logs))
    history = kf.fit(
        blocks, batch_size=8, epochs=3, callbacks=[callback], validation_split=0.2, verbose=0
    )
    assert isinstance(history, keras.callbacks.History)
    assert len(epochs) == 3
    assert history.history.keys() == {"loss", "val_loss"}
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert kf.optimizer.iterations == 6
    found = kf.evaluate(blocks[16:], verbose=0)
    assert found == pytest.approx(history.history["val_loss"][-1], rel=1e-12)
    expected = -np.sum(statespace.log_likelihood(kf.model, blocks[16:])) / blocks[16:].size
    assert found == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    "shapes", [[(60,)], pytest.param([(1, 60, 1), (60, 1), (60,)], marks=pytest.mark.long)]
)
def test_may_a_series_come_without_its_unit_axes(shapes, observed):
    z = observed[0, :60, 0]
    kf = learner(keras.optimizers.SGD(0.0))
    loss = -np.sum(statespace.log_likelihood(guess(), z)) / 60
    for shape in shapes:
        assert kf.evaluate(z.reshape(shape), verbose=0) == pytest.approx(loss, rel=1e-11)
        found = kf.predict(z.reshape(shape), verbose=0)
        assert found["filtered_mean"].shape == (1, 60, 2)
    assert kf.fit(z, verbose=0).history["loss"] == [pytest.approx(loss, rel=1e-11)]


def test_are_holes_left_out_of_what_is_learned(observed):
    """The same as the observed elements alone, whatever stands in the holes."""
    z = observed[:, :60].copy()
    missing = np.random.default_rng(0).random(z.shape) < 0.3
    z[missing] = np.nan
    kf = learner(keras.optimizers.SGD(0.1))
    loss = kf.fit(z, epochs=2, verbose=0).history["loss"]
    expected = -np.sum(statespace.log_likelihood(guess(), z)) / (~missing).sum()
    assert loss[0] == pytest.approx(expected, rel=1e-11)
    assert loss[1] < loss[0]
    assert np.isfinite(kf.Q).all()


def test_does_an_eager_filter_take_batches_of_arrays():
    kf = learner(keras.optimizers.SGD(1e-3), run_eagerly=True)
    z = simulated(two_modes(), 2, 6, seed=2)
    z[0, 2] = np.nan
    loss = -np.sum(statespace.log_likelihood(guess(), z)) / 11
    np.testing.assert_allclose(kf.test_on_batch(z), loss)
    np.testing.assert_allclose(kf.train_on_batch(z), loss)
    assert kf.test_on_batch(z) < loss


@pytest.mark.long
def test_is_a_gradient_step_the_same_with_and_without_xla_and_graph(fitted):
    z = fitted[1][:, :40]
    found = []
    for way in ({"jit_compile": True}, {"jit_compile": False}, {"run_eagerly": True}):
        kf = learner(keras.optimizers.SGD(0.5), **way)
        found.append((kf.fit(z, epochs=2, verbose=0).history["loss"], kf.Q, kf.R))
    for parts in zip(*found, strict=True):
        for part in parts[1:]:
            np.testing.assert_allclose(part, parts[0], rtol=1e-9, atol=1e-12)


# --- shared with other layers ---------------------------------------------------------------------


def pair():
    """Two filters of one noise, and of one transition, each of a series of its own."""
    noise, turn = cgp.layers.Covariance([[0.4 + 0j]], name="noise"), Rotation(name="turn")
    inputs = [keras.Input((None, 1), dtype="complex128") for _ in range(2)]
    models = [guess(), two_modes()]
    outputs = [
        cgp.KalmanFilter(model, learn={"R": noise, "F": turn}, name=name)(z)["filtered_variance"]
        for model, name, z in zip(models, ("first", "second"), inputs, strict=True)
    ]
    return cgp.Functional(inputs, outputs)


def filters(model):
    return [model.get_layer(name) for name in ("first", "second")]


def through_keras_file(model, folder):
    model.save(folder / "model.keras")
    return keras.models.load_model(folder / "model.keras")


def through_json(model, folder):
    model.save_weights(folder / "model.weights.h5")
    copied = keras.models.model_from_json(model.to_json())
    copied.load_weights(folder / "model.weights.h5")
    return copied


WAYS = {
    "keras file": through_keras_file,
    "json": through_json,
    "pickle": lambda model, folder: pickle.loads(pickle.dumps(model)),
    "deep copy": lambda model, folder: copy.deepcopy(model),
    "clone": lambda model, folder: cgp.clone_model(model),
    "clone of keras": lambda model, folder: keras.models.clone_model(model),
}


@pytest.fixture(
    scope="module", params=["eager", pytest.param("in a graph", marks=pytest.mark.long)]
)
def trained_pair(request):
    model = pair()
    data = [simulated(two_modes(), 2, 50, seed) for seed in (1, 2)]
    model.compile(keras.optimizers.Adam(0.05), run_eagerly=request.param == "eager")
    model.fit(data, epochs=3, verbose=0)
    return model, data


def test_is_what_is_shared_learned_once(trained_pair):
    model, _ = trained_pair
    first, second = filters(model)
    names = [v.name for v in model.trainable_variables]
    assert names.count("angles") == 1
    alone = len(cgp.layers.Covariance([[0.4 + 0j]]).trainable_variables)
    assert len(names) == alone + 1
    np.testing.assert_array_equal(first.R, second.R)
    assert not np.allclose(first.R, 0.4, rtol=1e-3)
    np.testing.assert_array_equal(first.F, second.F)
    assert not np.allclose(first.Q, second.Q)


@pytest.mark.parametrize("way", WAYS)
def test_does_sharing_survive(way, trained_pair, tmp_path):
    model, data = trained_pair
    copied = WAYS[way](model, tmp_path)
    assert [v.name for v in copied.trainable_variables] == [
        v.name for v in model.trainable_variables
    ]
    first, second = filters(copied)
    for variable in copied.trainable_variables:
        variable.assign(np.asarray(variable) + 0.1)
    np.testing.assert_array_equal(first.R, second.R)
    np.testing.assert_array_equal(first.F, second.F)
    assert not np.allclose(first.R, filters(model)[0].R, rtol=1e-3)  # a copy, not the same
    for variable in copied.trainable_variables:
        variable.assign(np.asarray(variable) - 0.1)
    if "clone" not in way:
        for found, expected in zip(copied(data), model(data), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12)


@eagerly_and_in_a_graph(("way",), ["keras file", "clone"], ["keras file"], ["keras file"])
def test_does_a_filter_by_itself_come_back(way, eagerly, tmp_path):
    noise = cgp.layers.Covariance([[0.4 + 0j]])
    kf = cgp.KalmanFilter(guess(), learn={"R": noise, "F": Rotation()}, loss_weight=0.5, name="kf")
    z = simulated(two_modes(), 2, 50, seed=0)
    kf.compile(keras.optimizers.Adam(0.05), run_eagerly=eagerly)
    kf.fit(z, epochs=2, verbose=0)
    other = WAYS[way](kf, tmp_path)
    assert (type(other), other.name, other.dtype) == (cgp.KalmanFilter, "kf", kf.dtype)
    if way == "clone":
        np.testing.assert_allclose(other.R, 0.4)
        return
    for name in ("F", "Q", "H", "R", "initial_mean", "initial_covariance"):
        np.testing.assert_array_equal(getattr(other, name), getattr(kf, name), err_msg=name)
    other.run_eagerly = eagerly
    losses = [m.fit(z, epochs=2, verbose=0).history["loss"] for m in (kf, other)]
    np.testing.assert_allclose(*losses, rtol=1e-12)  # the optimizer came too


def test_does_an_improper_filter_come_back(tmp_path):
    model, z = made("improper")
    kf = cgp.KalmanFilter(model)
    other = through_keras_file(kf, tmp_path)
    found, expected = other(z), kf(z)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


# --- between other layers -------------------------------------------------------------------------


def network():
    """A front end, a filter of two components, and a real target.

    What is missing is said apart: a product with NaN has a gradient that is NaN, not zero.
    """
    model, _ = made("proper", n=2, m=2)
    z = keras.Input((None, 2), dtype="complex128")
    missing = keras.Input((None, 2), dtype="bool")
    kf = cgp.KalmanFilter(model, learn=("F", "Q", "R"), loss_weight=0.3, name="kf")
    said = kf(Gain(name="gain")(z), missing=missing)
    start = keras.initializers.GlorotUniform(seed=0)
    target = keras.layers.Dense(1, dtype="float64", kernel_initializer=start, name="head")(
        Features(dtype="float64")(said)
    )
    return cgp.Functional([z, missing], target)


@pytest.fixture(scope="module")
def in_network():
    _, z = made("proper", n=2, m=2, steps=10)
    missing = np.isnan(z)
    z[missing] = 3.0j
    return network(), (z, missing), np.random.default_rng(0).normal(size=(*z.shape[:2], 1))


@eagerly_or_in_a_graph
def test_do_gradients_reach_both_sides(in_network, eagerly):
    model, (z, missing), y = in_network

    def value_and_gradients(z):
        with tf.GradientTape() as tape:
            tape.watch(z)
            loss = tf.reduce_mean((model([z, tf.constant(missing)]) - y) ** 2) + tf.add_n(
                model.losses
            )
        return loss, tape.gradient(loss, [z, *model.trainable_variables])

    if not eagerly:
        value_and_gradients = tf.function(value_and_gradients)
    assert {v.path.split("/")[0] for v in model.trainable_variables} >= {"gain", "head"}
    _, (by_z, *gradients) = value_and_gradients(tf.constant(z))

    def value():
        return value_and_gradients(tf.constant(z))[0]

    if eagerly:
        assert_gradients_along(2, model.trainable_variables, gradients, value)
    else:
        differences = central_differences(model.trainable_variables, value)
        np.testing.assert_allclose(flat(gradients), differences, rtol=1e-6, atol=1e-8)
    for gradient in gradients:
        assert np.abs(gradient).max() > 1e-4

    # By the data, in random complex directions: ∂L/∂Re + i ∂L/∂Im is what TensorFlow gives.
    rng, h = np.random.default_rng(1), 1e-5
    by_z = by_z.numpy()
    assert np.isfinite(by_z).all()
    assert (by_z[missing] == 0.0).all()
    for _ in range(3):
        direction = normals(rng, *z.shape)
        sides = [value_and_gradients(tf.constant(z + s * direction))[0] for s in (h, -h)]
        found = np.sum(np.conj(by_z) * direction).real
        assert found == pytest.approx(float(sides[0] - sides[1]) / (2 * h), rel=1e-6, abs=1e-8)


@pytest.mark.long
def test_is_a_network_trained_saved_and_trained_on(in_network, tmp_path):
    _, data, y = in_network
    model = network()
    assert model.output_shape == (None, None, 1)
    model.compile(keras.optimizers.Adam(0.02), keras.losses.MeanSquaredError(dtype="float64"))
    before = [np.asarray(v) for v in model.trainable_variables]
    losses = model.fit(data, y, epochs=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    for variable, value in zip(model.trainable_variables, before, strict=True):
        assert np.abs(np.asarray(variable) - value).max() > 1e-3, variable.path
    loaded = through_keras_file(model, tmp_path)
    found = [m.predict(data, verbose=0) for m in (model, loaded)]
    assert found[0].dtype == np.float64
    np.testing.assert_array_equal(*found)
    rest = [m.fit(data, y, epochs=2, verbose=0).history["loss"] for m in (model, loaded)]
    np.testing.assert_allclose(*rest, rtol=1e-6)  # a loaded MeanSquaredError is float32


def test_does_a_frozen_filter_pass_gradients_through(in_network):
    _, (z, missing), y = in_network
    model = network()
    model.get_layer("kf").trainable = False
    assert len(model.trainable_variables) == 3  # the gain, and weights and bias of the head
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model([tf.constant(z), tf.constant(missing)]) - y) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    assert all(np.abs(g).max() > 1e-6 for g in gradients)


@pytest.mark.parametrize("epochs", long_except([1, 4], 1))
def test_does_a_filter_whose_transition_becomes_unstable_go_back(epochs):
    """Whether a later loss is the first to notice, or nothing as the training is over."""
    z = np.exp(0.3j * np.arange(30.0))[None, :, None] * np.array([1.0, 2.0j])[:, None, None]
    model = statespace.LinearGaussian([[0.9 * np.exp(0.3j)]], [[0.1]], [[1.0]], [[0.5]])
    kf = cgp.KalmanFilter(model, learn=("F", "Q", "R"))
    kf.compile(keras.optimizers.Adam(0.2))
    with pytest.warns(RuntimeWarning, match=r"has diverged, to F/value = .* start of epoch 0"):
        history = kf.fit(z, epochs=epochs, verbose=0)
    assert history.diverged
    np.testing.assert_allclose(kf.F, [[0.9 * np.exp(0.3j)]], rtol=1e-12)
    assert np.isfinite(kf.predict(z)["filtered_mean"]).all()
