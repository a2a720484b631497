"""Training with stored state equals training with a factorisation in each forward pass."""

import os
import pathlib
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from tests.long_cases import eagerly_or_in_a_graph, long_except
from tests.training import toys


def both(optimizer, **compile_arguments):
    """The model, and a plain Keras one that factorises anew, from the same initial weights."""
    stored, fresh = toys.network(), toys.network(toys.FreshFeatures, keras.Model)
    toys.copy_trainables(stored, fresh)
    stored.compile(optimizer(), toys.mean_squared_error(), **compile_arguments)
    fresh.compile(optimizer(), toys.mean_squared_error(), run_eagerly=True)
    return stored, fresh


def as_dataset(x, y, batch_size):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size)


def assert_same_training(stored, fresh, history=None, reference=None):
    assert toys.staleness(stored.get_layer("features")) < 1e-12
    if history is not None:
        np.testing.assert_allclose(
            # plain Keras tracks its loss in float32
            history.history["loss"],
            reference.history["loss"],
            rtol=1e-6,
        )
    for a, b in zip(stored.trainable_variables, fresh.trainable_variables, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-12, err_msg=a.path)


def adam(**arguments):
    return lambda: keras.optimizers.Adam(0.05, **arguments)


VARIANTS = {
    "plain": (adam(), {}),
    "plain, several epochs": (adam(), {}),
    "several steps an execution": (adam(), {"steps_per_execution": 3}),
    "accumulated gradients": (adam(gradient_accumulation_steps=3), {}),
    "averaged weights": (adam(use_ema=True, ema_momentum=0.9), {}),
    "averaged weights every three steps": (
        adam(use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3),
        {},
    ),
    "eager": (adam(), {"run_eagerly": True}),
    "clipped, decayed": (adam(clipnorm=0.1, weight_decay=0.01), {}),
}


@pytest.mark.parametrize("variant", long_except(VARIANTS, "plain"))
def test_fit_equals_the_plain_reference(variant):
    optimizer, arguments = VARIANTS[variant]
    stored, fresh = both(optimizer, **arguments)
    before = stored.get_layer("features").kernel.log_lengthscale.numpy()
    x, y = toys.series()
    epochs = 1 if variant == "plain" else 3
    history = stored.fit(x, y, batch_size=8, epochs=epochs, shuffle=False, verbose=0)
    reference = fresh.fit(as_dataset(x, y, 8), epochs=epochs, shuffle=False, verbose=0)
    assert_same_training(stored, fresh, history, reference)
    features = stored.get_layer("features")
    assert abs(features.kernel.log_lengthscale.numpy() - before) > 1e-3
    # The first use, and each of the steps that changes the variables, six in an epoch.
    steps = {"accumulated gradients": 2}.get(variant, 6) * epochs
    averages = variant.startswith("averaged")  # which change them once more
    assert averages or features.factorisations.numpy() == 1 + steps
    if variant.startswith("plain"):
        stored.predict(x, verbose=0)
        stored.evaluate(x, y, verbose=0)
        assert features.factorisations.numpy() == 1 + steps


# Of means of weights those that are written back at times are the harder ones.
@pytest.mark.parametrize(
    ("variant", "steps"),
    [("accumulated gradients", 1), ("averaged weights every three steps", 3)],
)
def test_an_eager_fit_equals_the_plain_reference(variant, steps):
    optimizer, _ = VARIANTS[variant]
    stored, fresh = both(optimizer, run_eagerly=True)
    x, y = toys.series(24)
    fits = [model.fit(as_dataset(x, y, 8), shuffle=False, verbose=0) for model in (stored, fresh)]
    assert_same_training(stored, fresh, *fits)
    averages = variant.startswith("averaged")  # which change the variables once more
    assert averages or stored.get_layer("features").factorisations.numpy() == 1 + steps


@pytest.mark.slow
@pytest.mark.long
def test_fit_under_xla_equals_the_plain_reference():
    stored, fresh = both(adam(), jit_compile=True)
    x, y = toys.series()
    history = stored.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0)
    reference = fresh.fit(as_dataset(x, y, 8), epochs=3, shuffle=False, verbose=0)
    assert_same_training(stored, fresh, history, reference)


@pytest.mark.parametrize("compiled", long_except([True, False], False))
def test_a_custom_loop_equals_the_plain_reference(compiled):
    stored, fresh = both(adam())
    x, y = (tf.constant(a) for a in toys.series())

    def make_step(model):
        optimizer = keras.optimizers.Adam(0.05)
        optimizer.build(model.trainable_variables)

        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            if model is stored:
                model.apply_post_updates()

        return tf.function(step) if compiled else step

    for model in (stored, fresh):
        step = make_step(model)
        for _ in range(4):
            step()
    assert_same_training(stored, fresh)
    assert stored.get_layer("features").factorisations.numpy() == 5  # the first use, four steps


@eagerly_or_in_a_graph
def test_train_on_batch_equals_the_plain_reference(eagerly):
    stored, fresh = both(adam(), run_eagerly=eagerly)
    x, y = toys.series(8)
    for _ in range(3):
        losses = [model.train_on_batch(x, y) for model in (stored, fresh)]
        np.testing.assert_allclose(*losses, rtol=1e-6)
        assert toys.staleness(stored.get_layer("features")) < 1e-12
    assert_same_training(stored, fresh)


@eagerly_or_in_a_graph
def test_a_nested_model_is_updated_too(eagerly):
    inner = toys.network()
    x = keras.Input((1,), dtype="float64")
    outer = toys.Functional(x, keras.layers.Dense(1, dtype="float64")(inner(x)))
    outer.compile(keras.optimizers.SGD(0.1), toys.mean_squared_error(), run_eagerly=eagerly)
    outer.fit(*toys.series(), verbose=0)
    features = inner.get_layer("features")
    assert toys.staleness(features) < 1e-12
    assert features.factorisations.numpy() == 1 + 2


@eagerly_or_in_a_graph
def test_a_subclassed_model_inside_a_functional_one_is_updated_too(eagerly):
    kernel = toys.Kernel()
    x, z = keras.Input((1,), dtype="float64"), keras.Input((), dtype="complex128")
    subclassed = toys.Subclassed(kernel)
    outer = toys.Functional((x, z), subclassed((x, z))["mean"])
    outer.compile(keras.optimizers.SGD(0.1), run_eagerly=eagerly)
    data, target = toys.series(16)
    before = kernel.log_variance.numpy()
    outer.fit((data, target[:, 0] * (1 + 2j)), verbose=0)
    assert kernel.log_variance.numpy() != before
    assert toys.staleness(subclassed.features) < 1e-12


@eagerly_or_in_a_graph
def test_frozen_hyperparameters_are_left_alone(eagerly):
    stored, _ = both(adam())
    stored.get_layer("features").kernel.trainable = False
    stored.compile(keras.optimizers.Adam(0.05), toys.mean_squared_error(), run_eagerly=eagerly)
    stored.fit(*toys.series(), epochs=2, verbose=0)
    assert stored.get_layer("features").factorisations.numpy() == 1


@eagerly_or_in_a_graph
def test_a_callback_that_restores_weights_leaves_the_state_current(eagerly):
    # Diverges: the first epoch is the best.
    stored, _ = both(lambda: keras.optimizers.SGD(2.0), run_eagerly=eagerly)
    stop = keras.callbacks.EarlyStopping("loss", patience=2, restore_best_weights=True)
    with warnings.catch_warnings():
        # From some initial weights it diverges altogether, and is restored with a warning.
        warnings.simplefilter("ignore", RuntimeWarning)
        stored.fit(*toys.series(), epochs=6, verbose=0, callbacks=[stop])
    assert toys.staleness(stored.get_layer("features")) < 1e-12


def test_another_failure_in_training_is_left_as_it_is():
    class Failing(cgp.Model):
        def __init__(self):
            super().__init__()
            self.weight = self.add_weight(shape=(), initializer="ones")

        def call(self, x):
            with tf.control_dependencies([tf.debugging.Assert(x[0] > 1.0, ["too small"])]):
                self.add_loss(self.weight * tf.reduce_mean(x))
            return x

    model = Failing()
    model.compile(keras.optimizers.SGD(0.1))
    with pytest.raises(tf.errors.InvalidArgumentError, match="too small"):
        model.fit(np.ones(1), verbose=0)


@pytest.mark.slow
@pytest.mark.long
def test_two_replicas_equal_one():
    root = pathlib.Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-m", "tests.training.two_replicas"],
        cwd=root,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
