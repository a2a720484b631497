import keras
import numpy as np
import pytest
import tensorflow as tf

from cgp import metrics
from cgp.distributions import ComplexNormal
from cgp.metrics import MeanSquaredModulus, NormalizedErrorDB
from tests.reference import complex_normal as reference


def complex_vector(rng, *shape):
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


def predicted(n, rng, proper=False):
    mean = complex_vector(rng, n)
    variance = rng.uniform(0.5, 2.0, size=n)
    pseudo = 0.9 * variance * rng.uniform(size=n) * np.exp(2j * np.pi * rng.uniform(size=n))
    pseudo *= not proper
    return {"mean": mean, "variance": variance, "pseudo_variance": pseudo}


@pytest.mark.parametrize("as_array", [np.asarray, tf.constant], ids=["numpy", "tensorflow"])
def test_errors_count_both_parts_and_skip_missing_targets(as_array):
    z = as_array(np.array([3 + 4j, np.nan, 1j, complex(np.nan, 0)]))
    m = as_array(np.array([1 + 1j, 5.0, 0, 7.0]))
    error = metrics.mean_squared_modulus(z, m)
    assert isinstance(error, float)
    assert error == pytest.approx((13 + 1) / 2, rel=1e-15)
    db = metrics.normalized_error_db(z, m)
    assert isinstance(db, float)
    assert db == pytest.approx(10 * np.log10(14 / 26), rel=1e-14)


def test_a_perfect_prediction_has_an_error_of_minus_infinity_decibels():
    z = np.array([1j, 2.0])
    assert metrics.normalized_error_db(z, z) == -np.inf
    assert metrics.mean_squared_modulus(z, z) == 0.0


@pytest.mark.parametrize("proper", [True, False], ids=["proper", "improper"])
def test_the_predictive_density_is_each_points_own_complex_normal(proper):
    rng = np.random.default_rng(1)
    prediction = predicted(6, rng, proper)
    z = complex_vector(rng, 6)
    z[2] = np.nan
    mean, variance, pseudo = prediction.values()
    expected = [
        -reference.log_prob(z[[i]], mean[[i]], variance[[i], None] + 0j, pseudo[[i], None])
        for i in range(6)
        if i != 2
    ]
    nlpd = metrics.negative_log_predictive_density(z, prediction)
    assert isinstance(nlpd, float)
    assert nlpd == pytest.approx(np.mean(expected), rel=1e-12)


def test_a_distribution_is_as_good_as_a_dict_or_a_named_tuple():
    rng = np.random.default_rng(2)
    k, c = reference.random_pair(5, rng)
    mean, z = complex_vector(rng, 2, 5)
    p = ComplexNormal.from_covariance(mean, k, c)
    moments = {"mean": mean, "variance": np.diag(k).real, "pseudo_variance": np.diag(c)}
    for metric in (metrics.negative_log_predictive_density, metrics.coverage):
        assert metric(z, p) == pytest.approx(metric(z, moments), rel=1e-12)
        from_tuple = metric(z, metrics.marginals(moments))
        assert from_tuple == metric(z, moments)


@pytest.mark.parametrize("probability", [0.5, 0.95])
@pytest.mark.parametrize("proper", [True, False], ids=["proper", "improper"])
def test_coverage_of_a_true_prediction_is_its_probability(proper, probability):
    rng = np.random.default_rng(3)
    n = 20_000
    prediction = predicted(n, rng, proper)
    mean, v, w = prediction.values()
    angle = 0.5 * np.angle(w)
    noise = np.sqrt((v + abs(w)) / 2) * rng.normal(size=n)
    noise = noise + 1j * np.sqrt((v - abs(w)) / 2) * rng.normal(size=n)
    z = mean + np.exp(1j * angle) * noise
    covered = metrics.coverage(z, prediction, probability)
    error = np.sqrt(probability * (1 - probability) / n)
    assert covered == pytest.approx(probability, abs=4 * error)
    # With the ellipses turned the wrong way it is another number, if they are ellipses.
    wrong = metrics.coverage(z, prediction | {"pseudo_variance": np.conj(w)}, probability)
    assert proper or wrong < probability - 8 * error


def test_coverage_is_decided_point_by_point():
    # Radii at 0.95, sqrt(5.99 λ): 2.448 along the imaginary axis with λ = 1, 0.774 with λ = 0.1.
    z = np.array([2.44j, 2.46j, 0.77, 0.78, np.nan, 0j])
    zero = np.zeros(6, complex)
    prediction = {
        "mean": zero, "variance": np.full(6, 1.1), "pseudo_variance": zero - 0.9,
    }  # fmt: skip
    assert metrics.coverage(z, prediction) == 3 / 5


def test_coverage_of_a_prediction_that_is_certain():
    zero = np.zeros(2, complex)
    prediction = {"mean": zero, "variance": np.zeros(2), "pseudo_variance": zero}
    assert metrics.coverage(np.array([0j, 1e-9]), prediction) == 0.5
    with pytest.raises(ValueError, match="2 of 2 points have no predictive density"):
        metrics.negative_log_predictive_density(zero, prediction)


def test_a_pseudo_variance_too_large_by_rounding_is_no_error():
    z = np.zeros(2, complex)
    moments = {"mean": z, "variance": np.array([0.0, 1.0]), "pseudo_variance": z + 1e-17}
    assert metrics.coverage(z, moments) == 1.0


# Keras.


@keras.saving.register_keras_serializable(package="cgp_tests")
class Turn(keras.layers.Layer):
    """Real features [B, 2, N] to a complex output [B, N]."""

    def __init__(self, dtype="float64", **kwargs):
        super().__init__(dtype=dtype, **kwargs)
        self.gain = self.add_weight(shape=(2,), initializer="ones", name="gain")

    def call(self, x):
        z = tf.complex(x[:, 0], x[:, 1])
        self.add_loss(tf.reduce_sum(self.gain**2))  # Keras evaluates no model without a loss
        return z * tf.complex(self.gain[0], self.gain[1])

    def compute_output_spec(self, x):
        return keras.KerasTensor((x.shape[0], x.shape[2]), dtype="complex128")


def complex_model():
    inputs = keras.Input([2, 7], dtype="float64")
    model = keras.Model(inputs, Turn()(inputs))
    model.compile(metrics=[MeanSquaredModulus(), NormalizedErrorDB()])
    return model


def signals():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(10, 2, 7))
    y = (1 + 1j) * (x[:, 0] + 1j * x[:, 1])
    z = y + 1e-3 * complex_vector(rng, 10, 7)
    z[3, 2] = np.nan
    return x, y, z


def check_scores(model):
    x, y, z = signals()
    dataset = tf.data.Dataset.from_tensor_slices((x, z)).batch(4)  # batches of 4, 4 and 2
    scores = model.evaluate(dataset, return_dict=True, verbose=0)
    assert scores["mean_squared_modulus"] == pytest.approx(
        metrics.mean_squared_modulus(z, y), rel=1e-12
    )
    assert scores["normalized_error_db"] == pytest.approx(
        metrics.normalized_error_db(z, y), rel=1e-12
    )


def test_metrics_of_a_complex_model_are_those_of_the_functions():
    check_scores(complex_model())


def test_metrics_survive_a_saved_model(tmp_path):
    model = complex_model()
    check_scores(model)
    model.optimizer.build(model.trainable_variables)  # or loading warns that it was not
    model.save(tmp_path / "model.keras")
    check_scores(keras.models.load_model(tmp_path / "model.keras"))


@pytest.mark.parametrize("metric_class", [MeanSquaredModulus, NormalizedErrorDB])
def test_a_metric_keeps_float64_and_its_config(metric_class):
    metric = metric_class()
    assert metric.dtype == "float64"
    assert {v.dtype for v in metric.variables} == {"float64"}
    z = np.array([1 + 1e-12j])
    metric.update_state(z, np.array([1.0 + 0j]))
    expected = 1e-24 if metric_class is MeanSquaredModulus else -240.0
    assert float(metric.result()) == pytest.approx(expected, rel=1e-12)
    config = keras.saving.serialize_keras_object(metric_class(name="error", dtype="float32"))
    assert config["registered_name"] == f"cgp>{metric_class.__name__}"
    restored = keras.saving.deserialize_keras_object(config)
    assert (restored.name, restored.dtype) == ("error", "float32")
    restored.update_state(np.array([1j]), np.array([0j]))
    assert restored.result().dtype == "float32"
    metric.reset_state()
    assert not np.any([v.numpy() for v in metric.variables])


def test_sample_weights_weigh_targets_or_whole_samples():
    z = np.array([[1.0, 2j], [3.0, np.nan]])
    metric = MeanSquaredModulus()
    metric.update_state(z, np.zeros([2, 2], complex), sample_weight=np.array([1.0, 3.0]))
    assert float(metric.result()) == pytest.approx((1 + 4 + 3 * 9) / 5)
    metric.reset_state()
    weights = np.array([[1.0, 0.0], [1.0, 1.0]])
    metric.update_state(z, np.zeros([2, 2], complex), sample_weight=weights)
    assert float(metric.result()) == pytest.approx((1 + 9) / 2)


@pytest.mark.parametrize("metric_class", [MeanSquaredModulus, NormalizedErrorDB])
def test_a_metric_of_no_target_is_nan_and_not_perfect(metric_class):
    metric = metric_class()
    assert np.isnan(metric.result())
    metric.update_state(np.nan * Z, Z)
    assert np.isnan(metric.result())


@pytest.mark.parametrize(
    ("weight", "error", "message"),
    [
        (-np.ones(3), ValueError, "finite and not negative"),
        (np.full(3, np.nan), ValueError, "finite and not negative"),
        (
            np.ones(2),
            ValueError,
            r"shape of the target, \(3,\), or of its leading axes, got \(2,\)",
        ),
        (np.ones((3, 1)), ValueError, r"got \(3, 1\)"),
        (1j * np.ones(3), TypeError, "sample_weight must be real, got complex128"),
        ("a", TypeError, "sample_weight must be numbers"),
    ],
)
def test_weights_that_are_none_are_refused(weight, error, message):
    with pytest.raises(error, match=message):
        MeanSquaredModulus().update_state(Z, Z, sample_weight=weight)


def test_metrics_work_in_a_compiled_graph():
    z = np.array([1j, 2j, np.nan])
    metric = NormalizedErrorDB()
    tf.function(metric.update_state, jit_compile=True)(tf.constant(z), tf.constant(0.9 * z))
    assert float(metric.result()) == pytest.approx(-20.0)


# Errors.

Z = np.ones(3, complex)
GOOD = {"mean": Z, "variance": np.ones(3), "pseudo_variance": 0 * Z}
nlpd = metrics.negative_log_predictive_density


@pytest.mark.parametrize(
    ("compute", "error", "message"),
    [
        (lambda: metrics.mean_squared_modulus(Z.real, Z), TypeError, "target must be complex, got"),
        (lambda: metrics.normalized_error_db(Z, Z.real), TypeError, "prediction must be complex"),
        (lambda: metrics.mean_squared_modulus(Z, Z[:2]), ValueError, r"one shape, got \(3,\) and"),
        (lambda: metrics.mean_squared_modulus(Z * np.nan, Z), ValueError, "every target is"),
        (lambda: metrics.normalized_error_db(0 * Z, Z), ValueError, "no power"),
        (
            lambda: metrics.mean_squared_modulus(Z.astype(np.clongdouble), Z),
            TypeError,
            "the target is clongdouble, .* round it to complex128",
        ),
        (
            lambda: metrics.coverage(np.ma.array(Z, mask=True), GOOD),
            ValueError,
            r"the target has masked elements: give NaN .*np.ma.filled\(z, np.nan\)",
        ),
        (lambda: MeanSquaredModulus().update_state(Z.real, Z), TypeError, "target must be complex"),
        (lambda: metrics.mean_squared_modulus(Z, GOOD), TypeError, r'give prediction\["mean"\]'),
        (lambda: nlpd(Z.real, GOOD), TypeError, "target must be complex"),
        (lambda: nlpd(Z[:2], GOOD), ValueError, "one shape"),
        (lambda: nlpd(np.nan * Z, GOOD), ValueError, "every target is missing"),
        (lambda: nlpd(Z, Z), TypeError, "must be a ComplexNormal, or a dict .* got ndarray"),
        (lambda: nlpd(Z, {"mean": Z}), ValueError, "no variance, pseudo_variance; it has mean"),
        (lambda: nlpd(Z, GOOD | {"mean": Z.real}), TypeError, "mean of a prediction must be comp"),
        (lambda: nlpd(Z, GOOD | {"variance": Z}), TypeError, "variance must be real"),
        (lambda: nlpd(Z, GOOD | {"variance": np.ones(2)}), ValueError, "must have one shape"),
        (lambda: nlpd(Z, GOOD | {"mean": np.nan * Z}), ValueError, "NaN or infinite"),
        (lambda: nlpd(Z, GOOD | {"variance": -np.ones(3)}), ValueError, "3 of 3 .* negative"),
        (lambda: metrics.coverage(Z, GOOD | {"pseudo_variance": 2j * Z}), ValueError, "3 of 3"),
        (lambda: metrics.coverage(Z, GOOD, 95), ValueError, "probability must lie between 0 and 1"),
    ],
)  # fmt: skip
def test_bad_input_is_named(compute, error, message):
    with pytest.raises(error, match=message):
        compute()
