"""Between layers of Keras, in any of its models, beside losses in single precision."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend.common.masking import set_keras_mask

import cgp
from cgp import native
from cgp.kernels import Matern12, Rotation
from cgp.layers import RealImag, ToComplex
from tests.layers.models import SERIES, STEPS, made
from tests.long_cases import eagerly_and_in_a_graph, eagerly_or_in_a_graph

TARGETS = np.random.default_rng(3).normal(size=(SERIES, STEPS, 1)).astype("float32")


def normals(*shape):
    return np.random.default_rng(4).normal(size=shape)


def learner():
    model, _ = made()
    return cgp.KalmanFilter(model, learn=("Q", "R"), name="tracker")


def read_out():
    return keras.layers.Dense(1, kernel_initializer="ones")


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.tracker, self.bridge, self.read_out = learner(), RealImag(), read_out()

    def call(self, z):
        return self.read_out(self.bridge(self.tracker(z)["filtered_mean"]))


def functional(kind):
    z = keras.Input((STEPS, 2), dtype="complex128")
    return kind(z, read_out()(RealImag()(learner()(z)["filtered_mean"])))


MODELS = {
    "keras.Model": lambda: functional(keras.Model),
    "subclass": Subclassed,
    "cgp.Functional": lambda: functional(cgp.Functional),
    "nested": lambda: keras.Sequential(
        [keras.Input((STEPS, 2), dtype="complex128"), functional(cgp.Functional)]
    ),
}


def series():
    return np.nan_to_num(made()[1])


@eagerly_and_in_a_graph(("kind",), MODELS, ["keras.Model"], ["keras.Model", "nested"])
def test_does_a_filter_train_beside_a_loss_in_single_precision(kind, eagerly):
    z, model = series(), MODELS[kind]()
    model.compile(keras.optimizers.SGD(0.01), "mse", run_eagerly=eagerly)
    loss = float(model.train_on_batch(z, TARGETS))  # that of before the step
    tracker = learner()
    mean = tracker(z)["filtered_mean"].numpy()
    with tf.GradientTape() as tape:
        mean = tracker(z)["filtered_mean"]
        likelihood = tracker.losses[0]
        parts = tf.concat([tf.math.real(mean), tf.math.imag(mean)], axis=-1)
        error = tf.reduce_mean((tf.reduce_sum(parts, axis=-1, keepdims=True) - TARGETS) ** 2)
        total = likelihood + error
    expected = [
        v.numpy() - 0.01 * g.numpy()
        for v, g in zip(
            tracker.trainable_variables,
            tape.gradient(total, tracker.trainable_variables),
            strict=True,
        )
    ]
    np.testing.assert_allclose(loss, total, rtol=1e-6)
    found = {v.path.split("tracker/")[-1]: v.numpy() for v in model.trainable_variables}
    for variable, value in zip(tracker.trainable_variables, expected, strict=True):
        # The part of the loss that passes the bridge has a gradient in float32.
        name = variable.path.split("tracker/")[-1]
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-9, err_msg=name)
        assert np.any(np.abs(value - variable.numpy()) > 1e-4)


def gradients_of_step(model, z):
    with tf.GradientTape() as tape:
        model(z, training=True)
        loss = model.losses[0]
    return tape.gradient(loss, model.trainable_variables[:2])


def ops_of_the_core(function, jit_compile=False):
    """The compiled ops in the graph of a function, and its result."""
    traced = tf.function(function, jit_compile=jit_compile, autograph=False)
    graph = traced.get_concrete_function().graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    return {node.op for node in nodes if node.op.startswith("Cgp")}, traced()


@pytest.mark.skipif(native.core().ops is None, reason="there is no compiled core")
def test_only_steps_of_a_keras_model_that_is_compiled_without_xla_have_ops_of_the_core(
    without_core,
):
    """XLA cannot compile them, and who loads an export may have none."""
    model, z = functional(keras.Model), series()
    step = functools.partial(gradients_of_step, model, z)
    others = [ops_of_the_core(step)]  # a loop of a user's own, which may be exported
    model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=True)
    others += [ops_of_the_core(step, jit_compile=True)]
    model.compile(keras.optimizers.SGD(0.01), "mse")
    ops, gradients = ops_of_the_core(step)
    assert {"CgpKalmanMoments", "CgpKalmanPullback"} <= ops
    others += [ops_of_the_core(step, jit_compile=True), without_core(ops_of_the_core, step)]
    for no_ops, expected in others:
        assert not no_ops
        for a, b in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9)
    assert not ops_of_the_core(lambda: model(z))[0]


@eagerly_or_in_a_graph
def test_does_a_process_train_beside_a_loss_in_single_precision(eagerly):
    x, z = np.broadcast_to(np.arange(5.0)[:, None], (2, 5, 1)), normals(2, 5) + 1j
    inputs = keras.Input((5, 1), dtype="float64"), keras.Input((5,), dtype="complex128")
    gp = cgp.ExactGP(Matern12(1.0, 3.0) * Rotation(0.1), 0.1)
    model = keras.Model(inputs, read_out()(RealImag()(gp(inputs)["mean"])))
    model.compile(keras.optimizers.SGD(0.01), "mse", run_eagerly=eagerly)
    before = gp.parameters()
    history = model.fit([x, z], np.zeros((2, 1)), epochs=2, verbose=0).history["loss"]
    assert history[1] < history[0]
    assert all(np.all(before[name] != value) for name, value in gp.parameters().items())


@eagerly_or_in_a_graph
def test_does_an_interpolator_train_beside_a_loss_in_single_precision(eagerly):
    z = normals(2, 5) + 1j
    inputs = keras.Input((5,), dtype="complex128")
    positions = {"x": np.arange(5.0), "x_new": np.arange(3.0) + 0.5, "loss_weight": 1.0}
    layer = cgp.layers.GPInterpolator(Matern12(1.0, 3.0) * Rotation(0.1), 0.1, **positions)
    model = keras.Model(inputs, read_out()(RealImag()(layer(inputs)["mean"])))
    model.compile(keras.optimizers.SGD(0.01), "mse", run_eagerly=eagerly)
    before = layer.parameters()
    assert np.isfinite(model.train_on_batch(z, np.zeros((2, 1))))
    assert all(np.all(before[name] != value) for name, value in layer.parameters().items())


def test_is_a_loss_alone_still_in_double_precision():
    z, tracker = series(), learner()
    model = keras.Sequential([keras.Input((STEPS, 2), dtype="complex128"), tracker])
    model(z)
    assert tracker.losses[0].dtype == tf.float64


def test_are_steps_that_a_keras_mask_calls_padding_missing():
    z = series()
    padded, valid = tf.constant(z), np.ones((SERIES, STEPS), bool)
    valid[:, 10:] = valid[1, 4] = False
    set_keras_mask(padded, tf.constant(valid))
    tracker = learner()
    found = tracker(padded)
    expected = tracker(np.where(valid[..., None], z, np.nan))
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
        np.testing.assert_array_equal(found[name]._keras_mask, valid)
    both = tracker(padded, missing=np.arange(STEPS)[:, None] == 2)["filtered_mean"]
    valid[:, 2] = False
    expected = tracker(np.where(valid[..., None], z, np.nan))["filtered_mean"]
    np.testing.assert_array_equal(both, expected)


# --- bridges --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_do_bridges_lead_there_and_back(dtype):
    z = normals(2, 3, 4, 2) @ [1.0, 1.0j]
    parts = RealImag(dtype=dtype)(z)
    assert parts.dtype == dtype
    np.testing.assert_array_equal(parts, np.concatenate([z.real, z.imag], -1).astype(dtype))
    back = ToComplex(dtype=dtype)(parts)
    assert back.dtype.real_dtype == dtype
    np.testing.assert_array_equal(back, z.astype(back.dtype.as_numpy_dtype))
    wide = ToComplex()(parts.numpy())  # float64 is not rounded on the way
    np.testing.assert_array_equal(np.real(wide), parts[..., :4])
    assert wide.dtype == tf.complex128


def test_is_a_model_with_bridges_saved_and_loaded(tmp_path):
    z = keras.Input((STEPS, 2), dtype="complex128")
    learned = ToComplex()(keras.layers.Dense(4)(RealImag()(z)))
    assert learned.shape == (None, STEPS, 2)
    model = cgp.Functional(z, learner()(learned)["filtered_mean"])
    model.save(tmp_path / "model.keras")
    again = cgp.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.predict(series()), model.predict(series()))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: RealImag()(np.ones((2, 3))), TypeError, "RealImag takes complex values, got"),
        (lambda: ToComplex()(np.ones((2, 4)) + 0j), TypeError, "real numbers, got complex128"),
        (lambda: ToComplex()(np.ones((2, 3))), ValueError, "an even number, got 3 features"),
        (lambda: ToComplex()(keras.Input((3,))), ValueError, "an even number, got 3 features"),
        (lambda: RealImag(dtype="float16"), ValueError, "must be float32 or float64"),
        (lambda: RealImag()(np.full(2, 1e300j)), ValueError, r"1e\+300 is beyond float32"),
        (lambda: ToComplex(dtype="float32")(np.full(2, 1e300)), ValueError, "is beyond float32"),
        (lambda: RealImag()(np.array(1j)), ValueError, "at least one axis"),
        (lambda: ToComplex()(np.array(1.0)), ValueError, "at least one axis"),
    ],
)
def test_are_values_that_a_bridge_cannot_lead_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_is_a_real_layer_of_keras_not_fed_with_complex_values():
    z = keras.Input((STEPS, 2), dtype="complex128")
    with pytest.raises(TypeError, match=r"'front', Dense of Keras, rounds.*RealImag\(\) before it"):
        cgp.Functional(z, keras.layers.Dense(2, name="front")(z))
    cgp.Functional(z, keras.layers.Reshape((2, STEPS))(z))  # which has no weights
    inner = cgp.Functional(z, keras.layers.Dense(2)(RealImag()(z)))
    cgp.Functional(z, inner(z))
