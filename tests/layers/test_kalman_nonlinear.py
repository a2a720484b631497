"""The layer of a model that is not linear: what it learns, filters online and saves."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import statespace
from tests.layers.models import assert_gradients_along, flat
from tests.long_cases import eagerly_or_in_a_graph


@keras.saving.register_keras_serializable(package="tests")
class Amplitude(keras.layers.Layer):
    """a exp(iφ) of a phase, with a learned amplitude."""

    def __init__(self, amplitude=1.0, dtype="float64", **kwargs):
        super().__init__(dtype=dtype, **kwargs)
        start = keras.initializers.Constant(amplitude)
        self.amplitude = self.add_weight(shape=(), initializer=start, name="amplitude")

    def call(self, x):
        phase, a = x[..., :1], tf.convert_to_tensor(self.amplitude)
        return tf.complex(a * tf.cos(phase), a * tf.sin(phase))

    def get_config(self):
        return {**super().get_config(), "amplitude": float(self.amplitude)}


@keras.saving.register_keras_serializable(package="tests")
def advance(x):
    return tf.stack([x[..., 0] + x[..., 1], x[..., 1]], axis=-1)


def carrier(**changes):
    given = {
        "transition": advance,
        "observation": Amplitude(1.5),
        "Q": np.diag([1e-4, 1e-4]),
        "R": [[0.5]],
        "initial_mean": [0.0, 0.1],
        "initial_covariance": np.diag([1.0, 1e-2]),
        "jit_compile": False,
    }
    return statespace.NonlinearGaussian(**{**given, **changes})


def series(steps=300, seed=0):
    rng = np.random.default_rng(seed)
    phase = np.cumsum(0.1 + np.cumsum(3e-3 * rng.normal(size=steps)))
    noise = np.sqrt(0.1) * rng.normal(size=(steps, 2)).view(complex)
    return 2.0 * np.exp(1j * phase[:, None]) + noise


RULE = statespace.SigmaPoints("cubature")


@pytest.fixture(scope="module")
def fitted():
    kf = cgp.KalmanFilter(carrier(jit_compile=True), learn=("R",), rule=RULE)
    kf.compile()
    before = kf.evaluate(series(), verbose=0)
    history = kf.fit(series(), verbose=0)
    assert history.history["loss"][-1] < before - 0.1
    return kf


@pytest.fixture(
    scope="module", params=["as after a fit", pytest.param("after a fit", marks=pytest.mark.long)]
)
def given(request):
    """As it would be after a fit, which takes longer than what it does, or after one."""
    if request.param == "after a fit":
        return request.getfixturevalue("fitted")
    kf = cgp.KalmanFilter(carrier(observation=Amplitude(2.0)), learn=("R",), rule=RULE)
    kf.learned["R"].scale.assign([0.7])
    return kf


@pytest.mark.long
def test_are_a_function_and_its_noise_learned_together(fitted):
    amplitude = float(fitted.functions[0].amplitude)
    np.testing.assert_allclose(amplitude, 2.0, atol=0.1)
    assert fitted.R.dtype == complex  # proper, as the model is
    np.testing.assert_allclose(fitted.R, [[0.2]], atol=0.05)
    np.testing.assert_array_equal(fitted.Q, np.diag([1e-4, 1e-4]))
    with pytest.raises(AttributeError, match="the model is not linear, and has no H"):
        _ = fitted.H


@pytest.mark.usefixtures("eager_functions")
def test_is_a_step_of_a_fit_along_the_gradient_by_a_function_and_its_noise():
    z, rate = tf.constant(series(2)[None]), 2.0**-6  # exact in float32
    kf = cgp.KalmanFilter(carrier(), learn=("R",), rule=RULE)
    variables = kf.trainable_variables
    assert len(variables) == 2
    start = [v.numpy() for v in variables]
    kf.compile(keras.optimizers.SGD(rate), run_eagerly=True)
    history = kf.fit(tf.data.Dataset.from_tensors(z), verbose=0).history["loss"]
    gradients = [(was - v.numpy()) / rate for was, v in zip(start, variables, strict=True)]
    for variable, was in zip(variables, start, strict=True):
        variable.assign(was)

    def loss():
        kf(z)
        return kf.losses[0]

    np.testing.assert_allclose(history, [loss()], rtol=1e-12)
    assert np.abs(flat(gradients)).min() > 1e-2
    assert_gradients_along(2, variables, gradients, loss)


@pytest.fixture(scope="module")
def filtered(given):
    """A series and what the filter says of it, which is traced once."""
    z = series(40, seed=1)
    return z, statespace.filter(given.model, z, rule=RULE)


@eagerly_or_in_a_graph
def test_does_it_return_what_the_filter_does(given, filtered, eagerly):
    z, expected = filtered
    found = given(z[None]) if eagerly else given.predict(z)
    np.testing.assert_allclose(found["filtered_mean"][0], expected.filtered_means, atol=1e-9)
    np.testing.assert_allclose(found["innovation"][0], expected.innovations, atol=1e-9)
    spec = given.compute_output_spec(keras.KerasTensor((1, 40, 1), "complex128"))
    assert {name: (s.shape, s.dtype) for name, s in spec.items()} == {
        name: (a.shape, np.asarray(a).dtype.name) for name, a in found.items()
    }


def test_are_steps_and_blocks_those_of_the_filter_also_after_a_file(given, filtered, tmp_path):
    z, expected = filtered
    given.reset()
    for t in range(10):
        step = given.step(z[t])
        np.testing.assert_allclose(step.filtered.mean, expected.filtered_means[t], atol=1e-9)
        np.testing.assert_allclose(step.innovation, expected.innovations[t], atol=1e-9)
    block = given.process(z[10:20])
    np.testing.assert_allclose(block.filtered.mean, expected.filtered_means[10:20], atol=1e-9)
    np.testing.assert_allclose(given.state.mean, expected.predicted_means[20], atol=1e-9)
    np.testing.assert_allclose(given.state.chol, expected.predicted_chols[20], atol=1e-9)

    given.save(tmp_path / "carrier.keras")
    loaded = keras.models.load_model(tmp_path / "carrier.keras")
    assert loaded.rule == RULE
    np.testing.assert_array_equal(loaded.R, given.R)
    step = loaded.step(z[20])
    np.testing.assert_allclose(step.filtered.mean, expected.filtered_means[20], atol=1e-9)


def test_a_step_that_is_not_finite_leaves_the_state():
    model = statespace.NonlinearGaussian(
        lambda x: x, tf.math.log, [[1e-3]], [[1e-2]], [1.0], [[1e-2]]
    )
    kf = cgp.KalmanFilter(model)
    kf.step(0.0)
    before = kf.state
    kf.set_state(-before.mean, before.chol)
    with pytest.raises(ValueError, match="would not be finite"):
        kf.step(0.0)
    np.testing.assert_array_equal(kf.state.mean, -before.mean)
    np.testing.assert_array_equal(kf.state.chol, before.chol)


def test_is_a_block_taken_where_a_step_would_be():
    """Near the edge of a domain: what comes after the block is not observed."""
    model = statespace.NonlinearGaussian(
        lambda x: x, tf.math.log, [[1e-3]], [[1e-2]], [1.0], [[1e-2]]
    )
    one, other = cgp.KalmanFilter(model), cgp.KalmanFilter(model)
    step, block = one.step(-30.0), other.process([-30.0])
    np.testing.assert_allclose(block.filtered.mean[0], step.filtered.mean)
    np.testing.assert_allclose(other.state.mean, one.state.mean)
    assert step.filtered.mean < 0


@pytest.mark.parametrize("rule", [None, statespace.Iterated(statespace.Taylor(), 4, 0.1)])
def test_is_a_rule_kept_in_a_config(rule):
    kf = cgp.KalmanFilter(carrier(), rule=rule)
    assert cgp.KalmanFilter.from_config(kf.get_config()).rule == rule


def test_what_fit_would_not_learn_or_save_is_refused(tmp_path):
    gain = tf.Variable(1.0, dtype=tf.float64, name="gain")
    hidden = cgp.KalmanFilter(carrier(transition=lambda x: gain * advance(x)), learn=("R",))
    hidden.compile()
    with pytest.raises(ValueError, match=r"the transition of the model reads variables .* gain"):
        hidden.fit(series(20), verbose=0)
    with pytest.raises(ValueError, match="the transition of the model cannot be saved"):
        hidden.save(tmp_path / "hidden.keras")
    with pytest.raises(ValueError, match=r"learn names \['F'\]"):
        cgp.KalmanFilter(carrier(), learn=("F",))
    with pytest.raises(TypeError, match="rule must be a Taylor"):
        cgp.KalmanFilter(carrier(), rule="unscented")


def test_is_an_improper_covariance_learned_as_its_composite():
    model = carrier(pseudo_R=[[0.1j]])
    kf = cgp.KalmanFilter(model, learn=("R", "initial_mean"))
    np.testing.assert_allclose(kf.R, [[0.25, 0.05], [0.05, 0.25]])
    proper = cgp.KalmanFilter(carrier(), learn=("R",))
    kf.learned["R"].scale.assign([1.2, 0.9])
    covariance = kf.learned["R"].call().numpy()
    np.testing.assert_allclose(kf.model.noise.R, covariance)
    proper.learned["R"].scale.assign([1.2])
    np.testing.assert_allclose(proper.model.noise.R, 0.5 * 1.44 * 0.5 * np.eye(2), atol=1e-9)
