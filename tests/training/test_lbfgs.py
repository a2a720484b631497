"""L-BFGS through compile and fit."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.training import Functional, Model, optimizers
from cgp.training.divergence import trained
from tests.long_cases import long_except
from tests.training import toys


@keras.saving.register_keras_serializable(package="toys")
class Objective(Model):
    """A function of two variables as the loss; the data scale it."""

    def __init__(self, function="rosenbrock", start=(-1.2, 1.0), dtype=None, **kwargs):
        super().__init__(dtype=dtype, **kwargs)
        self.function, self.start = function, list(start)
        initial = [keras.initializers.Constant(s) for s in start]
        self.a = self.add_weight(shape=(), initializer=initial[0], name="a")
        self.b = self.add_weight(shape=(1,), initializer=initial[1], name="b")
        self.evaluations = self.add_weight(
            shape=(), initializer="zeros", trainable=False, dtype="int64"
        )

    def call(self, x, training=False):
        self.evaluations.assign_add(1)
        a, b = self.a.value, self.b.value[0]
        self.add_loss(
            tf.reduce_mean(tf.cast(x, a.dtype)) * getattr(self, f"_{self.function}")(a, b)
        )
        return x

    def _rosenbrock(self, a, b):
        return 100.0 * (b - a**2) ** 2 + (1.0 - a) ** 2

    def _quadratic(self, a, b):
        return (a - 3.0) ** 2 + 10.0 * (b + 1.0) ** 2 + (a - 3.0) * (b + 1.0) - 2.0

    def _walled(self, a, b):  # has no value beyond a = 2
        return tf.where(a < 2.0, 1e3 * (a - 1.5) ** 2 + b**2, tf.cast(np.nan, a.dtype))

    def _asserting(self, a, b):
        chol = cgp.linalg.cholesky(tf.reshape(2.0 - a, [1, 1]))
        return 1e3 * (a - 1.5) ** 2 + b**2 + 1e-20 * chol[0, 0]

    def _overflowing(self, a, b):  # beyond a = 2.02
        chol = cgp.linalg.cholesky(tf.reshape(tf.exp(350.0 * a), [1, 1]))
        return 1e3 * (a - 1.5) ** 2 + b**2 + 1e-200 * chol[0, 0]

    def _steep(self, a, b):  # beyond a = 2, where it has a value all the same
        return 1e3 * (a - 1.5) ** 2 + b**2 + 1e70 * tf.nn.relu(a - 2.0)

    def _unbounded(self, a, b):
        return -a + b**2

    def _rising(self, a, b):  # wherever it goes, as by rounding
        value = (a - 1.0) ** 2 + b**2 + 1.0
        return value + tf.stop_gradient(tf.where(self.evaluations > 1, 1.0 / value, 0.0))

    def get_config(self):
        return {**super().get_config(), "function": self.function, "start": self.start}

    @property
    def point(self):
        return np.array([self.a.numpy(), self.b.numpy()[0]])


ONES = np.ones(3)


def objective(
    function="rosenbrock", optimizer=None, run_eagerly=False, jit_compile=False, **kwargs
):
    model = Objective(function, **kwargs)
    model.compile(optimizer or optimizers.LBFGS(), run_eagerly=run_eagerly, jit_compile=jit_compile)
    return model


HOW = long_except([{}, {"run_eagerly": True}, {"jit_compile": True}], {})


@pytest.mark.parametrize("mode", HOW)
@pytest.mark.parametrize(
    ("function", "minimum", "value"),
    [("rosenbrock", [1.0, 1.0], 0.0), ("quadratic", [3.0, -1.0], -2.0)],
)
def test_it_finds_the_minimum(function, minimum, value, mode):
    model = objective(function, **mode)
    history = model.fit(ONES, verbose=0)
    np.testing.assert_allclose(model.point, minimum, atol=1e-6)
    losses = history.history["loss"]
    assert losses[-1] == pytest.approx(value, abs=1e-11)
    assert all(np.diff(losses) <= 0.0)
    result = model.optimizer.result
    assert result.success
    assert "CONVERGENCE" in result.message
    assert len(losses) == result.nit
    assert history.epoch == list(range(result.nit))


def test_each_evaluation_is_one_call():
    model = objective()
    model.fit(ONES, verbose=0)
    assert model.evaluations.numpy() - 1 == model.optimizer.result.nfev  # one to build the model


def test_epochs_cap_the_iterations_without_a_warning():
    model = objective()
    history = model.fit(ONES, epochs=4, verbose=0)
    assert len(history.history["loss"]) == 4
    assert model.optimizer.result.nit == 4
    history = model.fit(ONES, epochs=7, initial_epoch=4, verbose=0)
    assert history.epoch == [4, 5, 6]
    with pytest.raises(ValueError, match="no iteration"):
        model.fit(ONES, epochs=0, verbose=0)


def test_a_fit_that_starts_at_the_optimum_has_one_epoch():
    model = objective("quadratic", start=(3.0, -1.0))
    assert model.fit(ONES, verbose=0).history["loss"] == [-2.0]
    np.testing.assert_array_equal(model.point, [3.0, -1.0])


class Recorder(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.events = []
        self.points = []

    def on_train_begin(self, logs=None):
        self.events.append("train begin")

    def on_train_end(self, logs=None):
        self.events.append("train end")
        self.last_logs = logs

    def on_epoch_begin(self, epoch, logs=None):
        self.events.append(f"epoch {epoch} begin")

    def on_epoch_end(self, epoch, logs=None):
        self.events.append(f"epoch {epoch} end")
        self.points.append((self.model.point, logs["loss"]))

    def on_train_batch_begin(self, batch, logs=None):
        self.events.append("batch begin")

    def on_train_batch_end(self, batch, logs=None):
        self.events.append("batch end")


def test_callbacks_are_called_as_keras_does_and_see_the_iterate():
    model, recorder = objective(), Recorder()
    model.fit(ONES, epochs=3, verbose=0, callbacks=[recorder])
    epoch = ["epoch {} begin", "batch begin", "batch end", "epoch {} end"]
    epochs = [event.format(k) for k in range(3) for event in epoch]
    assert recorder.events == ["train begin", *epochs, "train end"]
    for (a, b), loss in recorder.points:
        assert loss == pytest.approx(100 * (b - a**2) ** 2 + (1 - a) ** 2, rel=1e-12)
    assert recorder.last_logs == {"loss": recorder.points[-1][1]}
    np.testing.assert_array_equal(model.point, recorder.points[-1][0])


def test_stop_training_is_honoured():
    model = objective()
    stop = keras.callbacks.EarlyStopping(
        "loss", min_delta=1e9, patience=3, restore_best_weights=True
    )
    recorder = Recorder()
    history = model.fit(ONES, verbose=0, callbacks=[stop, recorder])
    assert len(history.history["loss"]) == 4
    np.testing.assert_array_equal(model.point, recorder.points[0][0])  # the callback's last word


@pytest.mark.parametrize("mode", HOW)
@pytest.mark.parametrize("function", ["walled", "asserting", "overflowing", "steep"])
def test_a_failed_evaluation_turns_the_line_search_back(function, mode):
    model = objective(function, start=(1.2, 0.5), **mode)  # the first step has a length of one
    failures = []

    def retreat(self, point, original=cgp.training.lbfgs.Descent._retreat):
        failures.append(point.copy())
        return original(self, point)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cgp.training.lbfgs.Descent, "_retreat", retreat)
        model.fit(ONES, verbose=0)
    assert failures, "the test must reach the wall"
    assert all(p[0] >= 2.0 for p in failures)
    np.testing.assert_allclose(model.point, [1.5, 0.0], atol=1e-6)


def test_a_rise_by_rounding_is_no_wall(monkeypatch):
    """Near an optimum a loss is rounded by more than the slope promises."""

    class Rounded:
        epsilon = 2.2e-16
        evaluations = 0

        def __call__(self, point):
            self.evaluations += 1
            return 1.0 + point @ point + 1e-15 * self.evaluations, 2.0 * point

    monkeypatch.setattr(cgp.training.lbfgs.Descent, "_retreat", None)
    loss = Rounded()
    run = cgp.training.lbfgs.Descent(loss, trained(objective()), np.full(2, 1e-12))
    result = run._value_and_gradient(np.full(2, -1e-12))
    assert loss.evaluations == 2
    np.testing.assert_allclose(result[0], 1e-15, atol=3e-16)
    np.testing.assert_array_equal(result[1], np.full(2, -2e-12))


@pytest.mark.parametrize(
    ("function", "error"), [("walled", ValueError), ("asserting", tf.errors.InvalidArgumentError)]
)
def test_a_failure_of_the_first_evaluation_is_raised(function, error):
    model = objective(function, start=(2.5, 0.5))
    if function == "asserting":
        model.a.assign(1.0)
        model(ONES)  # built where it has a value
        model.a.assign(2.5)
    with pytest.raises(error):
        model.fit(ONES, verbose=0)
    np.testing.assert_array_equal(model.point, [2.5, 0.5])


def test_an_interruption_leaves_the_best_point():
    class Interrupt(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 3:
                raise KeyboardInterrupt

    model, recorder = objective(), Recorder()
    with pytest.raises(KeyboardInterrupt):
        model.fit(ONES, verbose=0, callbacks=[recorder, Interrupt()])
    np.testing.assert_array_equal(model.point, recorder.points[-1][0])


def test_stopping_short_is_said(monkeypatch):
    monkeypatch.setattr(cgp.training.lbfgs, "_NO_CAP", 3)
    model = objective("rosenbrock")
    with pytest.warns(RuntimeWarning, match="stopped before convergence"):
        model.fit(ONES, verbose=0)


def test_a_loss_without_a_minimum_is_not_called_converged():
    model = objective("unbounded")
    with pytest.warns(RuntimeWarning, match="stopped before convergence"):
        history = model.fit(ONES, verbose=0)
    assert len(history.history["loss"]) < 1000


@pytest.mark.parametrize(("distance", "is_flat"), [(3e-5, True), (1e-3, False)])
def test_is_a_line_search_that_fails_convergence_where_the_slope_is_small(distance, is_flat):
    model = objective("rising", start=(1.0 + distance, 0.0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        model.fit(ONES, verbose=0)
    assert model.optimizer.result.status == 2  # ABNORMAL
    said = [str(warning.message) for warning in caught]
    if is_flat:
        assert not said
    else:
        assert "before convergence" in said[0]
        assert "no step along the descent was found" in said[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 2}, "batch_size=2"),
        ({"steps_per_epoch": 1}, "steps_per_epoch=1"),
        ({"shuffle": "batch"}, "shuffle='batch'"),
        ({"class_weight": {0: 1.0}}, "class_weight"),
        ({"x": tf.data.Dataset.from_tensor_slices(ONES).batch(2)}, "several"),
        ({"x": tf.data.Dataset.from_tensor_slices(ONES).batch(2).take(0)}, "none"),
        ({"x": tf.data.Dataset.from_tensors(ONES), "y": ONES}, "its own targets"),
    ],
)
def test_what_is_about_batches_is_an_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        objective().fit(**{"x": ONES, "verbose": 0, **arguments})


def test_a_generator_is_an_error():
    with pytest.raises(TypeError, match="one batch"):
        objective().fit((x for x in [ONES]), verbose=0)


@pytest.mark.parametrize("model_class", [Functional, keras.Model])
def test_single_steps_are_an_error(model_class):
    x = keras.Input((1,))
    model = model_class(x, keras.layers.Dense(1)(x))
    model.compile(optimizers.LBFGS(), "mse")
    with pytest.raises(NotImplementedError, match="fit of a cgp"):
        model.train_on_batch(np.ones((2, 1)), np.ones((2, 1)))


def test_a_constraint_is_an_error():
    x = keras.Input((1,))
    model = Functional(x, keras.layers.Dense(1, kernel_constraint="non_neg")(x))
    model.compile(optimizers.LBFGS(), "mse")
    with pytest.raises(ValueError, match="constraint"):
        model.fit(np.ones((2, 1)), np.ones((2, 1)), verbose=0)


def test_float32_variables_converge_without_a_warning():
    model = objective("quadratic", dtype="float32")
    model.fit(ONES, verbose=0)
    assert model.a.dtype == "float32"
    np.testing.assert_allclose(model.point, [3.0, -1.0], atol=1e-3)


def test_a_variable_that_the_loss_ignores_is_named():
    model = objective("quadratic")
    model.spare = model.add_weight(shape=(2,), initializer="ones", name="spare")
    with pytest.warns(UserWarning, match="spare"):
        model.fit(ONES, verbose=0)
    np.testing.assert_allclose(model.point, [3.0, -1.0], atol=1e-6)
    np.testing.assert_array_equal(model.spare.numpy(), [1.0, 1.0])


def test_validation_is_in_the_history():
    model = objective("quadratic")
    history = model.fit(ONES, validation_data=(2.0 * ONES,), verbose=0).history
    np.testing.assert_allclose(history["val_loss"], 2.0 * np.array(history["loss"]), rtol=1e-12)
    model = objective("quadratic")
    history = model.fit(np.array([1.0, 1.0, 3.0]), validation_split=0.3, verbose=0).history
    np.testing.assert_allclose(history["val_loss"], 3.0 * np.array(history["loss"]), rtol=1e-12)


@pytest.mark.parametrize("verbose", [1, 2, 0])
def test_progress_is_shown_as_asked(verbose, capsys):
    model = objective("quadratic")
    count = len(model.fit(ONES, verbose=verbose).history["loss"])
    shown = capsys.readouterr().out
    assert shown.count("\n") == {2: count, 0: 0}.get(verbose, 1)
    if verbose == 2:
        assert shown.splitlines()[-1].startswith(f"Iteration {count} - loss: -2")
    elif verbose:
        assert "Epoch" not in shown
        assert "loss: -2.0000" in shown.splitlines()[-1]
        assert f"{count}/{count}" in shown


def test_the_optimizer_survives_saving(tmp_path):
    model = objective("quadratic", optimizer=optimizers.LBFGS(maxcor=5, ftol=1e-10, gtol=1e-6))
    model.fit(ONES, epochs=1, verbose=0)
    model.save(tmp_path / "model.keras")
    with warnings.catch_warnings():
        loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(loaded.optimizer, optimizers.LBFGS)
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    assert loaded.optimizer.result is None
    loaded.fit(ONES, verbose=0)
    np.testing.assert_allclose(loaded.point, [3.0, -1.0], atol=1e-6)


class Chain(Model):
    """A quadratic of forty variables, each of which is known from the next to one in a thousand."""

    def __init__(self):
        super().__init__(dtype="float64")
        self.points = self.add_weight(shape=(40,), initializer="zeros", name="points")

    def call(self, x, training=False):
        steps = self.points.value[1:] - self.points.value[:-1]
        ends = self.points.value[0] ** 2 + (self.points.value[-1] - 1.0) ** 2
        self.add_loss(1e3 * tf.reduce_sum(tf.square(steps)) + ends)
        return x


def test_has_the_hessian_of_many_variables_a_pair_for_each():
    counts = {}
    for maxcor in (None, 10):
        model = Chain()
        model.compile(optimizer=optimizers.LBFGS(maxcor))
        counts[maxcor] = len(model.fit(ONES, verbose=0).history["loss"])
        # The minimum is a straight line, whose slope follows from the derivative being zero.
        slope = 1.0 / (39.0 + 2.0 * 1e3)
        expected = slope * (1e3 + np.arange(40.0))
        np.testing.assert_allclose(model.points.numpy(), expected, rtol=1e-5)
    assert counts[None] < 0.8 * counts[10]


@pytest.mark.parametrize(
    "arguments",
    [
        {"maxcor": 0},
        {"maxcor": 1.5},
        {"ftol": -1.0},
        {"ftol": np.nan},
        {"gtol": -1e-3},
    ],
)
def test_options_that_make_no_sense_are_errors(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        optimizers.LBFGS(**arguments)


@pytest.mark.parametrize("jit_compile", long_except([False, True], False))
def test_stored_state_is_updated_once_for_each_evaluation(jit_compile):
    stored, fresh = toys.network(), toys.network(toys.FreshFeatures)
    toys.copy_trainables(stored, fresh)
    histories = []
    for model in (stored, fresh):
        model.compile(optimizers.LBFGS(), toys.mean_squared_error(), jit_compile=jit_compile)
        histories.append(model.fit(*toys.series(), epochs=6, verbose=0).history["loss"])
    np.testing.assert_allclose(*histories, rtol=1e-9)
    features = stored.get_layer("features")
    assert toys.staleness(features) < 1e-12
    # The first evaluation finds current state, computed at the start of fit. The last iterate is
    # the point evaluated last.
    assert features.factorisations.numpy() == stored.optimizer.result.nfev


class Squared(keras.layers.Layer):
    """A layer that keeps the square of a weight."""

    def __init__(self, refreshes, **kwargs):
        super().__init__(dtype="float64", **kwargs)
        self.refreshes, self.traces = refreshes, 0
        self.root = self.add_weight(shape=(), initializer="ones")
        self.square = self.add_weight(shape=(), initializer="zeros", trainable=False)
        cgp.register_post_update(self, [self.root], self.update)

    def update(self):
        self.traces += 1
        self.square.assign(self.root.value**2)

    def call(self, x):
        if self.refreshes:
            cgp.refresh(self)
        return (self.root + self.square.value) * x


@pytest.mark.parametrize("refreshes", [True, False])
@pytest.mark.parametrize("run_eagerly", [True, False])
def test_is_a_loss_one_of_current_state_which_is_traced_once(refreshes, run_eagerly):
    layer = Squared(refreshes)
    x = keras.Input((), dtype="float64")
    model = Functional(x, layer(x))
    model.compile(loss="mse", run_eagerly=run_eagerly)
    objective = cgp.training.Objective(model, (np.ones(2), np.zeros(2), None))
    assert objective([3.0])[0] == 144.0
    assert layer.traces == 1
    layer.root.assign(2.0)
    np.testing.assert_array_equal(model(np.ones(2)), [6.0, 6.0] if refreshes else [11.0, 11.0])


def test_the_data_of_a_gaussian_process_reach_call():
    kernel = toys.Kernel()
    x, z = toys.series(16)
    z = z[:, 0] * (1 + 2j)
    dataset = tf.data.Dataset.from_tensors(((x, z),))
    for optimizer in (keras.optimizers.Adam(0.05), optimizers.LBFGS()):
        model = toys.Subclassed(kernel)
        model.compile(optimizer, run_eagerly=True)
        losses = model.fit(dataset, epochs=3, verbose=0).history["loss"]
        assert len(losses) == 3
        assert losses[-1] < losses[0]
        assert toys.staleness(model.features) < 1e-12


def test_a_second_fit_of_the_same_shape_compiles_nothing_again(monkeypatch):
    model = objective("quadratic")
    calls, call = [], Objective.call
    monkeypatch.setattr(Objective, "call", lambda *args, **kw: calls.append(1) or call(*args, **kw))

    def fit(x):
        del calls[:]
        return model.fit(x, verbose=0).history["loss"][-1], len(calls)

    loss, traces = fit(ONES)
    assert loss == pytest.approx(-2.0)
    assert traces > 0
    assert fit(3 * ONES) == (pytest.approx(-6.0), 0)  # with data of its own
    assert fit(np.ones(4)) == (pytest.approx(-2.0), traces - 1)  # built before
    model.compile(optimizers.LBFGS())
    assert fit(np.ones(4)) == (pytest.approx(-2.0), traces - 1)
    model.a.assign(2.0)
    model.a.trainable = False
    loss, traces = fit(np.ones(4))
    assert traces > 0
    np.testing.assert_allclose(model.point, [2.0, -0.95], atol=1e-6)
    assert len(model.weights) == 3


def test_what_is_no_objective_is_refused():
    with pytest.raises(TypeError, match=r"model must be a cgp\.Model or cgp\.Functional, got 3"):
        cgp.training.Objective(3, ())
    with pytest.raises(ValueError, match=r"batch must be \(x, y, sample_weight\), got 1 parts"):
        cgp.training.Objective(objective("quadratic"), (ONES,))
