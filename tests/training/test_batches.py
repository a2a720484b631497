"""Arrays reach the model in their own dtype, in the batches that Keras would make."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.training import Functional, Model
from tests.long_cases import long_except

NEAR_ONE = 1.0 + 1e-12
JULIAN = 2460676.123456789


class Echo(Model):
    """Returns its input, and keeps the batches it was trained and tested on."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.weight = self.add_weight(shape=(), initializer="zeros")
        self.seen = []

    def call(self, x, training=False):
        first = keras.tree.flatten(x)[0]
        tf.py_function(lambda t, a: self.seen.append((bool(t), a.numpy())), [training, first], [])
        real = tf.cast(tf.math.real(first), tf.float64)
        self.add_loss(tf.reduce_mean(real) + 0.0 * self.weight)
        return x


def echo(**arguments):
    model = Echo()
    model.compile(keras.optimizers.SGD(0.0), **arguments)
    return model


def batches(model, training):
    return [a for t, a in model.seen if t == training]


WRAPS = {
    "array": np.asarray,
    "tensor": tf.constant,
    "dictionary": lambda a: {"a": a},
    "tuple": lambda a: (a, a),
}
NEARLY_REAL = 1.0 + 1e-12j


@pytest.mark.parametrize(
    ("wrap", "value"),
    long_except(
        [
            ("array", JULIAN),
            ("array", NEARLY_REAL),
            ("tensor", NEAR_ONE),
            ("tensor", np.complex64(1 + 2j)),
            ("dictionary", NEARLY_REAL),
            ("tuple", JULIAN),
        ],
        ("array", JULIAN),
        ("dictionary", NEARLY_REAL),
    ),
)
def test_values_survive_fit_evaluate_and_predict(wrap, value):
    array = np.full(4, value)
    x = WRAPS[wrap](array)
    model = echo()
    history = model.fit(x, verbose=0)
    loss = model.evaluate(x, verbose=0)
    predicted = keras.tree.flatten(model.predict(x, verbose=0))[0]
    on_batch = keras.tree.flatten(model.predict_on_batch(x))[0]
    for result in (*(a for _, a in model.seen), predicted, on_batch):
        assert result.dtype == array.dtype
        np.testing.assert_array_equal(result, array)
    np.testing.assert_allclose(
        [history.history["loss"][0], loss, model.train_on_batch(x), model.test_on_batch(x)],
        array[0].real,
        rtol=1e-15,
    )


@pytest.mark.parametrize("method", ["dataset", "generator"])
def test_datasets_and_generators_pass_through(method):
    x = np.full((2, 3), JULIAN)
    model = echo()
    if method == "dataset":
        history = model.fit(tf.data.Dataset.from_tensor_slices((x,)), verbose=0)
    else:
        history = model.fit(((row,) for row in x), verbose=0, steps_per_epoch=2, shuffle=False)
    assert history.history["loss"] == [JULIAN]
    assert [a.shape for a in batches(model, True)] == [(3,), (3,)]


@pytest.mark.parametrize(
    ("n", "arguments", "sizes"),
    [
        (70, {}, [32, 32, 6]),
        (64, {}, [32, 32]),
        (10, {"batch_size": 4}, [4, 4, 2]),
        (10, {"steps_per_epoch": 3}, [4, 4, 2]),
    ],
)
def test_batches_have_keras_sizes(n, arguments, sizes):
    model = echo(run_eagerly=True)
    model.fit(np.arange(float(n)), shuffle=False, verbose=0, **arguments)
    assert [len(a) for a in batches(model, True)] == sizes
    np.testing.assert_array_equal(np.concatenate(batches(model, True)), np.arange(n))


def test_each_epoch_has_its_own_order():
    def orders():
        keras.utils.set_random_seed(0)
        model = echo(run_eagerly=True)
        model.fit(np.arange(20.0), batch_size=20, epochs=2, verbose=0)
        return batches(model, True)

    first, second = orders()
    np.testing.assert_array_equal(orders(), (first, second))  # the global seed is heeded
    assert not np.array_equal(first, np.arange(20.0))
    assert not np.array_equal(first, second)
    for order in (first, second):
        np.testing.assert_array_equal(np.sort(order), np.arange(20.0))


def test_shuffling_inside_batches_stays_inside():
    keras.utils.set_random_seed(0)
    model = echo(run_eagerly=True)
    model.fit(np.arange(20.0), batch_size=10, shuffle="batch", verbose=0)
    result = batches(model, True)
    assert not np.array_equal(result[0], np.arange(10.0))
    for start, order in zip((0.0, 10.0), result, strict=True):
        np.testing.assert_array_equal(np.sort(order), start + np.arange(10.0))


def test_validation_split_takes_the_end_before_shuffling():
    model = echo(run_eagerly=True)
    x = np.arange(10.0)
    history = model.fit(x, validation_split=0.3, batch_size=7, verbose=0)
    np.testing.assert_array_equal(np.sort(np.concatenate(batches(model, True))), x[:7])
    np.testing.assert_array_equal(np.concatenate(batches(model, False)), x[7:])
    assert history.history["val_loss"] == [8.0]
    with pytest.raises(ValueError, match="leaves nothing"):
        model.fit(x, validation_split=0.95, verbose=0)


def test_validation_data_survives():
    model = echo(run_eagerly=True)
    x = np.full(4, NEAR_ONE)
    assert model.fit(x, validation_data=(x,), epochs=2, verbose=0).history["val_loss"] == [
        NEAR_ONE,
        NEAR_ONE,
    ]


def regression():
    """Which runs eagerly: to trace its steps takes longest."""
    x = keras.Input((1,), dtype="float64")
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", dtype="float64")
    model = Functional(x, layer(x))
    loss = keras.losses.MeanSquaredError(dtype="float64", reduction="sum")
    model.compile(keras.optimizers.SGD(0.0), loss, run_eagerly=True)
    return model


def test_targets_and_sample_weights_reach_the_loss():
    model = regression()
    x, y = np.full((3, 1), 2.0), np.array([[2.0 + 1e-6], [3.0], [2.0]])
    weight = np.array([1.0, 1e-12, 5.0])
    expected = np.sum(weight * (y[:, 0] - 2.0) ** 2)
    assert model.evaluate(x, y, sample_weight=weight, verbose=0) == pytest.approx(
        expected, rel=1e-9
    )
    loss = model.fit(x, y, sample_weight=weight, verbose=0).history["loss"][0]
    assert loss == pytest.approx(expected, rel=1e-9)


def test_class_weights_reach_the_loss():
    model = regression()
    x, y = np.zeros((3, 1)), np.array([[0.0], [1.0], [2.0]])
    loss = model.fit(x, y, class_weight={0: 1.0, 1: 2.0, 2: 3.0}, verbose=0).history["loss"][0]
    assert loss == pytest.approx(2.0 * 1 + 3.0 * 4, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": np.zeros((3, 1))}, "same number of samples, got x: 4, y: 3"),
        ({"sample_weight": np.ones(4)}, "there is no y"),
        ({"y": np.float64(3.0)}, "each array must be"),
    ],
)
def test_data_that_does_not_fit_together_is_an_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        regression().fit(np.zeros((4, 1)), verbose=0, **arguments)


def test_complex_data_for_a_real_input_is_an_error():
    model = regression()
    with pytest.raises(TypeError, match="complex128"):
        model.predict(np.ones((2, 1)) + 1j, verbose=0)


def test_a_compiled_loss_of_complex_values_is_an_error():
    x = keras.Input((1,), dtype="complex128")
    model = Functional(x, keras.layers.Identity(dtype="complex128")(x))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    with pytest.raises(TypeError, match="add_loss"):
        model.evaluate(np.ones((2, 1)) * 1j, np.ones((2, 1)) * 1j, verbose=0)


def two_outputs(as_dict):
    """Passes on a complex and a real input."""
    a, b = keras.Input((1,), dtype="complex128"), keras.Input((1,), dtype="float64")
    outputs = {
        "a": keras.layers.Identity(dtype="complex128", name="a")(a),
        "b": keras.layers.Identity(dtype="float64", name="b")(b),
    }
    return Functional([a, b], outputs if as_dict else list(outputs.values()))


COMPLEX_ARRAY, REAL_ARRAY = np.full((2, 1), 1.0 + 2.0j), np.ones((2, 1))


@pytest.mark.parametrize("as_dict", [True, False])
@pytest.mark.parametrize("loss", ["mse", "a alone"])
def test_a_compiled_loss_of_one_complex_output_among_several_is_an_error(as_dict, loss):
    model = two_outputs(as_dict)
    alone = {"a": "mse"} if as_dict else ["mse", None]
    model.compile(keras.optimizers.SGD(0.1), alone if loss == "a alone" else loss)
    y = {"a": 0j * COMPLEX_ARRAY, "b": REAL_ARRAY}
    y = y if as_dict else list(y.values())
    with pytest.raises(TypeError, match="add_loss"):
        model.evaluate([COMPLEX_ARRAY, REAL_ARRAY], y, verbose=0)


def modulus_error(y, y_pred):
    return tf.abs(y_pred - y) ** 2


METRICS = {
    "mse": "mse",
    "mae": "mae",
    "an object": keras.metrics.MeanSquaredError(),
    "a function": keras.metrics.MeanMetricWrapper(keras.losses.mean_squared_error, name="mean"),
    "a class": keras.metrics.RootMeanSquaredError(),
}


@pytest.mark.parametrize(
    ("argument", "metric"),
    long_except(
        [(a, m) for a in ("metrics", "weighted_metrics") for m in METRICS],
        ("metrics", "mse"),
        ("metrics", "a class"),
        ("weighted_metrics", "a function"),
    ),
)
def test_a_metric_of_keras_on_complex_values_is_an_error(argument, metric):
    model = Echo()
    model.compile(keras.optimizers.SGD(0.0), **{argument: [METRICS[metric]]}, run_eagerly=True)
    for method in (model.fit, model.evaluate):
        with pytest.raises(TypeError, match=r"cgp\.metrics"):
            method(COMPLEX_ARRAY, 0j * COMPLEX_ARRAY, verbose=0)


def test_metrics_of_complex_values_are_right():
    model = Echo()
    model.compile(
        keras.optimizers.SGD(0.0),
        metrics=[
            cgp.metrics.MeanSquaredModulus(),
            cgp.metrics.NormalizedErrorDB(),
            modulus_error,
        ],
        run_eagerly=True,
    )
    result = model.evaluate(COMPLEX_ARRAY, 2.0 * COMPLEX_ARRAY, verbose=0, return_dict=True)
    assert result["mean_squared_modulus"] == pytest.approx(5.0, rel=1e-12)
    assert result["normalized_error_db"] == pytest.approx(-20.0 * np.log10(2.0), rel=1e-12)
    assert result["modulus_error"] == pytest.approx(5.0, rel=1e-6)
    history = model.fit(COMPLEX_ARRAY, 2.0 * COMPLEX_ARRAY, verbose=0).history
    assert history["mean_squared_modulus"] == pytest.approx([5.0], rel=1e-12)


@pytest.mark.parametrize("as_dict", [True, False])
def test_a_metric_of_keras_on_a_real_output_beside_a_complex_one_is_right(as_dict):
    model = two_outputs(as_dict)
    ours = cgp.metrics.MeanSquaredModulus()
    metrics = {"a": [ours], "b": ["mse"]} if as_dict else [[ours], ["mse"]]
    model.compile(keras.optimizers.SGD(0.1), metrics=metrics)
    y = {"a": 0j * COMPLEX_ARRAY, "b": 3.0 * REAL_ARRAY}
    y_pred = {"a": COMPLEX_ARRAY, "b": REAL_ARRAY}
    if not as_dict:
        y, y_pred = list(y.values()), list(y_pred.values())
    y, y_pred = (keras.tree.map_structure(tf.constant, part) for part in (y, y_pred))
    result = model.compute_metrics(None, y, y_pred)
    assert float(result["a_mean_squared_modulus"]) == pytest.approx(5.0, rel=1e-12)
    assert [float(v) for k, v in result.items() if k.startswith("b_")] == [4.0]


def test_compiling_again_forgets_the_loss_and_the_metrics():
    model = regression()
    x, y = np.full((3, 1), 2.0), np.zeros((3, 1))
    model.compile(keras.optimizers.SGD(0.0), "mse", metrics=["mae"], run_eagerly=True)
    model.evaluate(x, y, verbose=0)
    assert model.loss == "mse"
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    assert model.loss is None
    assert [metric.name for metric in model.metrics] == ["loss"]
    with pytest.raises(ValueError, match="No loss"):
        model.evaluate(x, y, verbose=0)


def test_float64_is_the_default_whatever_floatx():
    assert Echo().dtype == "float64"
    assert Echo(dtype="float32").dtype == "float32"
    assert regression().dtype == "float64"
    assert keras.config.floatx() == "float32"


def test_a_model_is_not_built_from_tensors():
    x = keras.Input((1,))
    for make in (lambda: Model(x, x), lambda: Model(inputs=x, outputs=x)):
        with pytest.raises(TypeError, match=r"cgp\.Functional"):
            make()

    class TwoArguments(Model):
        def __init__(self, first, second, name=None):
            super().__init__(name=name)
            self.first, self.second = first, second

        def call(self, x):
            return x

    assert TwoArguments(1, 2, name="two").second == 2
    y = keras.layers.Dense(1)(x)
    Functional(x, y)

    class Later(Functional):
        pass

    assert isinstance(Later(x, y), Functional)
