"""Trainings that diverge: stopped, and brought back to the best parameters that they saw."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.training import POSITIVE, REAL, Parameterized

ONES = np.ones(4)


class Scale(cgp.Model):
    """A loss that ends where its variable is not positive, or NaN."""

    def __init__(self, matrix, scale=1.0):
        super().__init__()
        initial = keras.initializers.Constant(scale)
        self.scale = self.add_weight(shape=(), initializer=initial, name="scale")
        self.spare = self.add_weight(shape=(), initializer="ones", name="spare")
        self.matrix = matrix

    def call(self, x):
        chol = cgp.linalg.cholesky(tf.cast(self.scale.value, self.matrix.dtype) * self.matrix)
        self.add_loss(self.spare * tf.reduce_mean(x) * cgp.linalg.log_det(chol))
        return x


class Well(cgp.Model):
    """A loss with its minimum at 2, and no value where its variable is not positive."""

    def __init__(self, depth=3.0):
        super().__init__()
        initial = keras.initializers.Constant(depth)
        self.depth = self.add_weight(shape=(), initializer=initial, name="depth")

    def call(self, x):
        depth = self.depth.value
        self.add_loss(tf.reduce_mean(x) * (depth - 2.0) ** 2 + 1e-30 * tf.math.log(depth))
        return x


class Leap(keras.callbacks.Callback):
    """Raises the learning rate in one step, and keeps the variables of each start of an epoch."""

    def __init__(self, epoch, batch=0):
        super().__init__()
        self.when, self.starts, self.ended = (epoch, batch), [], False

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        self.starts.append(float(self.model.depth))

    def on_train_batch_begin(self, batch, logs=None):
        leaps = (self.epoch, batch) >= self.when
        self.model.optimizer.learning_rate = 1e6 if leaps else 0.1

    def on_train_end(self, logs=None):
        self.ended = True


def well(optimizer=keras.optimizers.SGD, depth=3.0, **kwargs):
    model = Well(depth)
    model.compile(optimizer(0.1, **kwargs), run_eagerly=True)
    return model


NAN = float("nan")


@pytest.mark.parametrize(("dtype", "run_eagerly"), [("complex128", False), ("float64", True)])
@pytest.mark.parametrize(
    ("rate", "said"),
    [(NAN, "scale = nan, .*spare = nan"), (50.0, r"scale = -99\., .*spare = 70\.3")],
)
def test_a_training_that_diverges_says_so_and_restores_the_parameters(
    dtype, rate, said, run_eagerly
):
    model = Scale(np.eye(2).astype(dtype) / 2)
    model.compile(keras.optimizers.SGD(rate), run_eagerly=run_eagerly)
    with pytest.warns(
        RuntimeWarning, match=rf"has diverged, to .*{said}.* start of epoch 0, whose"
    ):
        history = model.fit(ONES, epochs=3, verbose=0)
    assert (float(model.scale), float(model.spare)) == (1.0, 1.0)
    # Variables that are NaN are seen at once; others when their loss is evaluated.
    expected = [-2 * np.log(2), np.nan][: 1 if np.isnan(rate) else 2]
    np.testing.assert_allclose(history.history["loss"], expected)


def test_a_failure_of_the_first_evaluation_is_raised():
    model = Scale(np.eye(2), scale=-3.0)
    model.compile(keras.optimizers.SGD(0.1))
    with pytest.raises(cgp.NotPositiveDefiniteError, match=r"scale = -3\..*other parameters") as e:
        model.fit(ONES, epochs=3, verbose=0)
    assert isinstance(e.value.__cause__, tf.errors.InvalidArgumentError)
    assert float(model.scale) == -3.0


def test_a_step_that_has_failed_counts_for_nothing():
    """TensorFlow may add its weight to the mean loss before the loss itself fails."""

    class Early(Scale):
        def train_step(self, data):
            self.metrics[0].count.assign_add(4.0)
            return super().train_step(data)

    model = Early(np.eye(2), scale=-3.0)
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    with pytest.raises(cgp.NotPositiveDefiniteError, match=r"scale = -3\..*other parameters"):
        model.fit(ONES, epochs=3, verbose=0)


def test_a_loss_that_is_not_finite_at_the_start_leaves_the_parameters():
    model = well(depth=-1.0)
    with pytest.warns(RuntimeWarning, match=r"depth = -0\.4.*from before the training"):
        model.fit(ONES, epochs=3, verbose=0)
    assert float(model.depth) == -1.0


def test_a_model_built_by_its_first_step_has_nothing_to_restore():
    class Late(cgp.Model):
        def build(self, shape):
            self.slope = self.add_weight(shape=(), initializer="ones", name="slope")

        def call(self, x):
            self.add_loss(tf.reduce_mean(self.slope * x))
            return x

    model = Late()
    model.compile(keras.optimizers.SGD(float("nan")))
    with pytest.warns(RuntimeWarning, match="slope = nan.*built in its first step"):
        model.fit(ONES, epochs=3, verbose=0)


def test_the_best_parameters_are_those_of_the_lowest_loss():
    model, leap = well(), Leap(epoch=3)
    with pytest.warns(RuntimeWarning, match="start of epoch 3, whose loss"):
        history = model.fit(ONES, epochs=9, verbose=0, callbacks=[leap])
    assert len(history.history["loss"]) == 5
    assert float(model.depth) == leap.starts[3] < leap.starts[2]
    assert leap.ended


@pytest.mark.parametrize("depth", [1.0, 3.0])  # leaps to another finite loss, and to NaN
def test_an_epoch_that_begins_well_and_ends_badly_counts_for_its_first_batch(depth):
    model, leap = well(depth=depth), Leap(epoch=1, batch=2)
    with pytest.warns(RuntimeWarning, match="start of epoch 1, whose loss"):
        model.fit(ONES, epochs=9, batch_size=1, verbose=0, callbacks=[leap])
    assert float(model.depth) == leap.starts[1]


def test_a_callback_has_the_last_word_unless_it_is_a_bad_one():
    class Last(keras.callbacks.Callback):
        def on_train_end(self, logs=None):
            self.model.depth.assign(1.75)

    model = well()
    with pytest.warns(RuntimeWarning, match="has diverged"):
        model.fit(ONES, epochs=9, verbose=0, callbacks=[Leap(2), Last()])
    assert float(model.depth) == 1.75
    # This one would restore what the epoch of the best loss has made of its parameters.
    stop = keras.callbacks.EarlyStopping("loss", restore_best_weights=True)
    model, leap = well(), Leap(2)
    with pytest.warns(RuntimeWarning, match="has diverged"):
        model.fit(
            ONES, epochs=9, verbose=0, callbacks=[leap, stop, keras.callbacks.TerminateOnNaN()]
        )
    assert float(model.depth) == leap.starts[2]


def test_a_validation_sees_restored_parameters():
    model = Scale(np.eye(2) / 2)
    model.compile(keras.optimizers.SGD(float("nan")))
    with pytest.warns(RuntimeWarning, match="scale = nan"):
        history = model.fit(ONES, epochs=2, verbose=0, validation_data=(ONES,))
    np.testing.assert_allclose(history.history["val_loss"], [-2 * np.log(2)])
    assert float(model.scale) == 1.0


def test_averages_of_weights_do_not_replace_the_best_ones():
    model, leap = well(use_ema=True, ema_momentum=0.5), Leap(2)
    with pytest.warns(RuntimeWarning, match="has diverged"):
        model.fit(ONES, epochs=9, verbose=0, callbacks=[leap])
    assert float(model.depth) == leap.starts[2]


def test_a_training_goes_on_after_one_that_has_diverged():
    model = well(keras.optimizers.Adam)
    callbacks = keras.callbacks.CallbackList([Leap(2)], add_history=True, model=model)
    before = list(callbacks.callbacks)
    with pytest.warns(RuntimeWarning, match="has diverged"):
        model.fit(ONES, epochs=9, verbose=0, callbacks=callbacks)
    assert callbacks.callbacks == before
    best, step = float(model.depth), model.train_function
    assert model.optimizer.iterations == 0  # its moments were those of gradients that were NaN
    model.optimizer.learning_rate = 0.1
    model.fit(ONES, epochs=9, verbose=0)
    assert abs(float(model.depth) - 2.0) < abs(best - 2.0) < 1.0
    assert model.train_function is step


class Layer(Parameterized, keras.layers.Layer):
    """A layer whose loss is the weight behind a positive parameter: it has no minimum."""

    def __init__(self):
        super().__init__(dtype="float64")
        self.declare_parameters({"width": (1.0, POSITIVE)})

    def call(self, x):
        self.add_loss(self.width.variable.value)
        return x


@pytest.mark.parametrize(
    ("optimizer", "said"),
    [
        (lambda: keras.optimizers.SGD(400.0), r"diverged, to .*/width = 0\."),
        pytest.param(
            cgp.optimizers.LBFGS,
            r"stopped before convergence.* found are .*/width = 2\.\d*e-308",
            marks=pytest.mark.long,
        ),
    ],
    ids=["SGD", "LBFGS"],
)
def test_a_hyperparameter_stays_inside_its_constraint(optimizer, said):
    layer, x = Layer(), keras.Input((), dtype="float64")
    model = cgp.Functional(x, layer(x))
    model.compile(optimizer())
    with pytest.warns(RuntimeWarning, match=said):
        history = model.fit(ONES, epochs=200, verbose=0)
    assert 0.0 < float(layer.width) <= 1.0
    assert np.all(np.isfinite(history.history["loss"]))


def test_no_step_of_lbfgs_multiplies_a_hyperparameter_by_too_much():
    layer, x = Layer(), keras.Input((), dtype="float64")
    model, logs = cgp.Functional(x, layer(x)), [layer.width.variable.numpy()]
    model.compile(cgp.optimizers.LBFGS())
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: logs.append(layer.width.variable.numpy())
    )
    model.fit(ONES, epochs=8, verbose=0, callbacks=[note])
    steps = np.abs(np.diff(logs))
    assert np.all(steps <= 10.0)
    assert np.max(steps) > 2.0


class Weights(Parameterized, keras.layers.Layer):
    """A layer whose loss is least at real weights that are far from where they start."""

    def __init__(self):
        super().__init__(dtype="float64")
        self.declare_parameters({"weight": (np.ones(2), REAL)})

    def call(self, x):
        target = tf.constant([3e4, -2e4], tf.float64)
        self.add_loss(tf.reduce_sum((self.weight.value - target) ** 2))
        return x


def test_lbfgs_takes_long_steps_in_weights_that_are_no_logarithms():
    layer, x = Weights(), keras.Input((), dtype="float64")
    model = cgp.Functional(x, layer(x))
    model.compile(cgp.optimizers.LBFGS())
    model.fit(ONES, verbose=0)
    np.testing.assert_allclose(layer.weight.numpy(), [3e4, -2e4])
    assert model.optimizer.result.nfev < 20
