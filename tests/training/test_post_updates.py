"""State must never be silently stale."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.training import confirm, invalidate, post_updates, refresh, register_post_update
from cgp.training.keras_private import replace_value
from cgp.training.post_updates import HostVariable, PresentValues
from tests.long_cases import long_except
from tests.training import toys


class Square(keras.layers.Layer):
    """Keeps the square of a variable. An update of a negative variable raises half-way."""

    def __init__(self, root):
        super().__init__(dtype="float64")
        self.root = root
        self.square = self.add_weight(shape=(), initializer="zeros", trainable=False)
        self.runs = self.add_weight(shape=(), initializer="zeros", trainable=False)
        register_post_update(self, [root.value_], self._update)

    def _update(self):
        self.runs.assign_add(1.0)
        root = self.root.value_.value
        chol = cgp.linalg.cholesky(tf.reshape(root, [1, 1]))
        self.square.assign(chol[0, 0] ** 4)

    def call(self, x):
        refresh(self)
        return self.square * x


class Root(keras.layers.Layer):
    def __init__(self, dtype="float64"):
        super().__init__(dtype=dtype)
        self.value_ = self.add_weight(shape=(), initializer="ones")
        self.built = True


ONE = tf.constant(1.0, tf.float64)


def call_as(mode, layer):
    if mode == "eager":
        return layer
    return tf.function(layer, jit_compile=mode == "xla")


MODES = ["eager", "graph", "xla"]


@pytest.mark.parametrize("mode", MODES)
def test_an_assignment_is_noticed_once(mode):
    layer = Square(Root())
    call = call_as(mode, layer)
    for value, runs in [(1.0, 1), (3.0, 2), (3.0, 2), (2.0, 3)]:
        layer.root.value_.assign(value)
        for _ in range(2):
            assert float(call(ONE)) == pytest.approx(value**2, rel=1e-15)
        assert layer.runs.numpy() == runs


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_a_failed_update_leaves_the_state_stale(mode):
    layer = Square(Root())
    call = call_as(mode, layer)
    assert float(call(ONE)) == 1.0
    layer.root.value_.assign(-2.0)
    for runs in (2, 3):  # it fails again: the failure was not taken for current state
        with pytest.raises((cgp.NotPositiveDefiniteError, tf.errors.InvalidArgumentError)):
            call(ONE)
        assert layer.runs.numpy() <= runs
        assert layer.square.numpy() == 1.0
    layer.root.value_.assign(1.0)  # where the snapshot was before the failure
    ran = layer.runs.numpy()
    assert float(call(ONE)) == 1.0
    assert layer.runs.numpy() == ran + 1


def test_a_failed_update_before_a_loss_leaves_other_states_watched():
    first, second = Square(Root()), Square(Root())
    variables = [layer.root.value_ for layer in (first, second)]
    variables[0].assign(2.0)
    variables[1].assign(-1.0)
    fails = pytest.raises(cgp.NotPositiveDefiniteError)
    with fails, post_updates.all_refreshed(keras.Sequential([first, second]), variables):
        pass
    assert float(first(ONE)) == pytest.approx(4.0)
    variables[0].assign(3.0)
    assert float(first(ONE)) == pytest.approx(9.0)


def test_a_float32_variable_is_compared_exactly():
    layer = Square(Root(dtype="float32"))

    def update():
        layer.runs.assign_add(1.0)

    layer._post_updates.updates[0].update = update
    layer.root.value_.assign(0.1)
    for _ in range(3):
        layer(ONE)
    assert layer.runs.numpy() == 1


def test_invalidate_asks_for_a_new_computation():
    layer = Square(Root())
    layer(ONE)
    invalidate(layer)
    layer(ONE)
    layer(ONE)
    assert layer.runs.numpy() == 2


def test_confirm_keeps_what_the_layer_has_computed_itself():
    layer = Square(Root())
    layer.root.value_.assign(3.0)
    layer.square.assign(9.0)
    confirm(layer)
    assert float(layer(ONE)) == 9.0
    assert layer.runs.numpy() == 0
    layer.root.value_.assign(2.0)
    assert float(layer(ONE)) == pytest.approx(4.0, rel=1e-15)


def test_an_update_without_variables_runs_once():
    class Constant(keras.layers.Layer):
        def __init__(self):
            super().__init__(dtype="float64")
            self.runs = self.add_weight(shape=(), initializer="zeros", trainable=False)
            register_post_update(self, [], lambda: self.runs.assign_add(1.0))

        def call(self, x):
            refresh(self)
            return x

    layer = Constant()
    for _ in range(3):
        layer(ONE)
    assert layer.runs.numpy() == 1


def test_registration_refuses_what_it_could_not_watch():
    layer = keras.layers.Layer()
    with pytest.raises(TypeError, match="Keras variables"):
        register_post_update(layer, [tf.Variable(1.0)], lambda: None)
    pair = keras.Variable(tf.constant(1j, tf.complex128))
    with pytest.raises(TypeError, match="last axis of two"):
        register_post_update(layer, [pair], lambda: None)
    dense = keras.layers.Dense(1)
    dense.build((None, 1))
    with pytest.raises(ValueError, match="already built"):
        register_post_update(dense, dense.trainable_variables, lambda: None)


def test_registration_is_of_the_instance_and_adopts_no_foreign_variable():
    first, second = Square(Root()), Square(Root())
    assert first._post_updates is not second._post_updates
    assert not hasattr(Square, "_post_updates")

    class Watcher(keras.layers.Layer):
        def __init__(self, variable):
            super().__init__()
            register_post_update(self, [variable], lambda: None)

    foreign = Root().value_
    watcher = Watcher(foreign)
    assert all(v is not foreign for v in watcher.variables)


@pytest.mark.parametrize("compiled", long_except([True, False], False))
def test_gradients_pass_through_a_stale_and_a_current_state_alike(compiled):
    model, reference = toys.network(), toys.network(toys.FreshFeatures)
    toys.copy_trainables(model, reference)
    x = tf.constant(toys.series(10)[0])

    def gradient(model):
        def compute():
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x) ** 2)
            return tape.gradient(loss, model.trainable_variables)

        return (tf.function(compute) if compiled else compute)()

    expected = gradient(reference)
    for _ in range(2):  # stale at first
        for a, b in zip(gradient(model), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14)


def test_stateless_calls_use_the_variables_they_are_given():
    model, reference = toys.network(), toys.network(toys.FreshFeatures)
    toys.copy_trainables(model, reference)
    x = tf.constant(toys.series(10)[0])
    model(x)
    moved = [v.value + 0.1 for v in model.trainable_variables]
    fixed = [v.value for v in model.non_trainable_variables]
    result, _ = model.stateless_call(moved, fixed, x)
    for v, value in zip(reference.trainable_variables, moved, strict=True):
        v.assign(value)
    np.testing.assert_allclose(result, reference(x), rtol=1e-12)
    assert toys.staleness(model.get_layer("features")) < 1e-12  # and leave the model alone


@pytest.mark.long
def test_an_exported_model_predicts_the_same(tmp_path):
    model = toys.network()
    x = toys.series(10)[0]
    model.get_layer("features").kernel.log_variance.assign(0.4)
    expected = model.predict(x, verbose=0)
    model.export(tmp_path / "exported", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "exported"))
    np.testing.assert_allclose(served.serve(tf.constant(x)), expected, rtol=1e-12)


class PlainSquare(Square):
    """Keeps its state in a plain variable, which get_weights and set_weights pass by."""

    def __init__(self, root):
        keras.layers.Layer.__init__(self, dtype="float64")
        self.root = root
        self.square = tf.Variable(0.0, dtype=tf.float64, trainable=False)
        self.runs = tf.Variable(0.0, dtype=tf.float64, trainable=False)
        register_post_update(self, [root.value_], self._update, state_is_weights=False)

    def call(self, x):
        root = self.root.value_.value
        return super().call(x) + root - tf.stop_gradient(root)  # something to learn from


def plain_model():
    root = Root()
    x = keras.Input((), dtype="float64")
    model = cgp.Functional(x, PlainSquare(root)(x))
    model.compile(keras.optimizers.SGD(0.3), toys.mean_squared_error(), run_eagerly=True)
    model.root = root
    return model


def value_of(model):
    return float(model(tf.ones([1], tf.float64))[0])


def by_set_weights(model, weights, path):
    model.set_weights(weights)


def by_file(model, weights, path):
    other = plain_model()
    other.set_weights(weights)
    value_of(other)
    other.save_weights(path / "model.weights.h5")
    model.load_weights(path / "model.weights.h5")


def by_another_model(model, weights, path):
    other = plain_model()
    other.set_weights(weights)
    value_of(other)
    model.set_weights(other.get_weights())


@pytest.mark.parametrize("way", [by_set_weights, by_file, by_another_model])
def test_state_outside_the_weights_does_not_pass_for_current_when_they_are_restored(way, tmp_path):
    model = plain_model()
    assert value_of(model) == 1.0
    saved = model.get_weights()
    assert len(saved) == 1  # neither state nor snapshot
    model.root.value_.assign(3.0)
    assert value_of(model) == pytest.approx(9.0, rel=1e-15)
    way(model, saved, tmp_path)
    assert value_of(model) == 1.0


def test_state_outside_the_weights_follows_a_callback_that_restores_them():
    model = plain_model()
    x, y = np.ones(4), np.full(4, -2.0)
    model.optimizer.learning_rate.assign(-0.1)  # from bad to worse
    stop = keras.callbacks.EarlyStopping("loss", patience=2, restore_best_weights=True)
    model.fit(x, y, epochs=6, verbose=0, callbacks=[stop])
    root = float(model.root.value_.numpy())
    assert root == pytest.approx(1.6, rel=1e-7)  # that of the first epoch; the rate is float32
    assert value_of(model) == pytest.approx(root**2, rel=1e-15)


@pytest.mark.parametrize("mode", MODES)
def test_state_outside_the_weights_is_computed_once(mode):
    layer = PlainSquare(Root())
    call = call_as(mode, layer)
    for value, runs in [(1.0, 1), (3.0, 2), (2.0, 3)]:
        layer.root.value_.assign(value)
        for _ in range(2):
            assert float(call(ONE)) == pytest.approx(value**2, rel=1e-15)
        assert layer.runs.numpy() == runs
    invalidate(layer)
    call(ONE)
    assert layer.runs.numpy() == 4


def test_state_outside_the_weights_is_checkpointed_with_its_snapshot(tmp_path):
    model = plain_model()
    value_of(model)
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    model.root.value_.assign(3.0)
    value_of(model)
    tf.train.Checkpoint(model=model).read(path)
    assert value_of(model) == 1.0


def test_state_outside_the_weights_is_exported_with_its_snapshot(tmp_path):
    model = plain_model()
    model.root.value_.assign(3.0)
    model.export(tmp_path / "exported", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "exported"))
    for _ in range(2):
        assert float(served.serve(tf.ones([1], tf.float64))[0]) == pytest.approx(9.0, rel=1e-15)


def test_a_graph_in_which_nothing_was_computed_confirms_nothing():
    layer = Square(Root())
    update = layer._post_updates.updates[0]
    compute, update.update = update.update, lambda: None
    tf.function(lambda: refresh(layer))()
    update.update = compute
    assert float(layer(ONE)) == 1.0


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_is_state_current_in_mixed_precision(dtype):
    class Squared(keras.layers.Layer):
        def __init__(self):
            super().__init__(dtype=dtype)
            self.root = self.add_weight(shape=(), initializer="ones")
            self.square = self.add_weight(shape=(), initializer="zeros", trainable=False)
            cgp.register_post_update(self, [self.root], self._update)

        def _update(self):
            self.square.assign(self.root.value**2)

        def call(self, x):
            cgp.refresh(self)
            return self.square * x

    layer = Squared()
    for root in (3.0, 2.0):
        layer.root.assign(root)
        assert float(layer(tf.constant(2.0))) == 2.0 * root**2


WRITES = {
    "assign": lambda v, keras_v: keras_v.assign([0.25, 0.5]),
    "assign_add in place": lambda v, keras_v: v.assign_add([0.25, 0.0]),
    "a resource op": lambda v, keras_v: tf.raw_ops.AssignVariableOp(
        resource=v.handle, value=tf.constant([0.25, 0.5], v.dtype)
    ),
    "an op of an optimizer": lambda v, keras_v: tf.raw_ops.ResourceApplyGradientDescent(
        var=v.handle, alpha=tf.constant(0.5, v.dtype), delta=tf.ones(v.shape, v.dtype)
    ),
    "a graph": lambda v, keras_v: tf.function(lambda: v.assign(v + 0.25))(),
    "XLA": lambda v, keras_v: tf.function(lambda: v.assign(v + 0.25), jit_compile=True)(),
    "a scattered update": lambda v, keras_v: tf.raw_ops.ResourceScatterAdd(
        resource=v.handle, indices=[0], updates=tf.constant([0.25], v.dtype)
    ),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_is_a_write_noticed_whoever_makes_it(write):
    weights = [
        keras.Variable(1.0, dtype="float64"),
        keras.Variable([1.0, 2.0], dtype="float64"),
        keras.Variable([1.0, 2.0, 3.0], dtype="float32"),
    ]
    values = PresentValues(weights)
    kept = [weights[1].value.read_value()]  # which shares the memory of the variable
    before = values.read()
    expected = np.concatenate([np.ravel(v.numpy()).astype(float) for v in weights])
    np.testing.assert_array_equal(values.in_double(before), expected)
    write(weights[1].value, weights[1])
    after = values.read()
    assert after != before
    assert after == b"".join(v.numpy().tobytes() for v in weights)
    assert after == values.read()
    np.testing.assert_array_equal(kept[0], [1.0, 2.0])


def test_are_present_values_those_of_weights_that_change_their_shape_and_of_a_stateless_scope():
    weights = [keras.Variable(1.0, dtype="float64"), HostVariable((2,), "float64", "state")]
    plain, values = PresentValues(weights[:1]), PresentValues(weights)
    before = plain.read(), values.read()
    replace_value(weights[0], [3.0, 4.0])
    weights[1].host()[:] = 5.0
    weights[1].changed()
    assert plain.read() == np.array([3.0, 4.0]).tobytes() != before[0]
    assert values.read() == np.array([3.0, 4.0, 5.0, 5.0]).tobytes()
    with keras.StatelessScope(state_mapping=[(weights[0], tf.constant([6.0, 7.0], tf.float64))]):
        assert plain.read() == np.array([6.0, 7.0]).tobytes()
    assert PresentValues([]).read() == b""


def test_are_present_values_of_several_devices_read_one_by_one(monkeypatch):
    def refuse(*arguments):
        raise tf.errors.InvalidArgumentError(None, None, "variables of several devices")

    weights = [keras.Variable(float(i), dtype="float64") for i in range(3)]
    monkeypatch.setattr(post_updates, "execute_op", refuse)
    assert PresentValues(weights).read() == np.arange(3.0).tobytes()
