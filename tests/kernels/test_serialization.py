"""A kernel and its config: the same values, and the same sharing."""

import copy
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import cgp
from cgp.kernels import RBF, Kernel, Matern12, Product, Rotation, Sum, WidelyLinear
from cgp.training.parameters import named_parameters
from tests.kernels.expressions import EXPRESSIONS
from tests.long_cases import long_except

tfd = tfp.distributions


def by_config(kernel):
    return type(kernel).from_config(json.loads(json.dumps(kernel.get_config())))


def by_keras(kernel):
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(kernel)))
    return keras.saving.deserialize_keras_object(config)


ways = pytest.mark.parametrize("way", long_except([by_config, by_keras], by_keras))


@ways
@pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda e: e.name)
def test_a_config_makes_the_same_kernel(expression, way):
    kernel = expression.make("float64")
    revived = way(kernel)
    assert type(revived) is type(kernel)
    assert revived is not kernel
    assert repr(revived) == repr(kernel)
    assert list(revived.parameters()) == list(kernel.parameters())
    assert not {id(v) for v in revived.weights} & {id(v) for v in kernel.weights}
    x = expression.points(4, seed=6)
    np.testing.assert_array_equal(revived.covariance(x), kernel.covariance(x))
    np.testing.assert_array_equal(revived.pseudo_covariance(x), kernel.pseudo_covariance(x))


@ways
def test_names_dtypes_and_fixed_hyperparameters_come_back(way):
    kernel = 2.0 * Sum(
        [RBF(name="slow", dtype="float32"), Rotation(0.3, dtype="float32")], name="s"
    )
    kernel.parts[1].parts[0].trainable = True
    revived = way(kernel)
    assert revived.variable_dtype == "float32"
    assert list(revived.parameters()) == list(kernel.parameters())
    assert [p.fixed for p in named_parameters(revived.named_layers()).values()] == [
        True,
        False,
        False,
        False,
    ]
    assert revived.parts[1].name == "s"
    only = way(RBF(fixed=("variance", "lengthscale")))
    assert not only.trainable_variables


def test_complex_numbers_are_pairs_in_a_config():
    assert WidelyLinear(RBF(), 0.3 - 0.1j).get_config()["coefficient"] == [0.3, -0.1]
    assert WidelyLinear(RBF(), 0.3).get_config()["coefficient"] == [0.3, 0.0]


def test_a_config_holds_initial_values_and_does_not_follow_the_callers_array():
    lengthscale = np.array([1.0, 2.0])
    kernel = RBF(1.0, lengthscale)
    lengthscale[0] = 9.0
    assert kernel.get_config()["lengthscale"] == [1.0, 2.0]


@ways
def test_a_kernel_used_twice_in_an_expression_stays_one(way):
    k = Matern12(0.7)
    kernel = k * Rotation(0.4) + WidelyLinear(k * Rotation(-0.9), 0.2) + k
    revived = way(kernel)
    first, second, third = revived.parts
    assert first.parts[0] is second.kernel.parts[0] is third
    assert len(revived.trainable_variables) == len(kernel.trainable_variables) == 5
    third.variance.assign(1.4)
    np.testing.assert_allclose(
        revived.covariance([0.0, 0.3]), 2 * kernel.covariance([0.0, 0.3]), rtol=1e-14
    )


def test_kernels_that_share_a_part_share_it_again_inside_a_scope_and_only_there():
    k = RBF()
    configs = [keras.saving.serialize_keras_object(k * Rotation(f)) for f in (0.1, 0.2)]
    revive = keras.saving.deserialize_keras_object
    with cgp.sharing_scope():
        a, b = map(revive, configs)
    assert a.parts[0] is b.parts[0]
    a, b = map(revive, configs)
    assert a.parts[0] is not b.parts[0]
    assert a.parts[0].shared_id != k.shared_id


def test_two_equal_kernels_stay_two():
    revived = by_config(RBF() + RBF())
    assert revived.parts[0] is not revived.parts[1]
    assert len(revived.weights) == 4


def test_revived_from_one_config_twice_in_one_expression_are_two_kernels():
    config = RBF().get_config()
    revived = by_config(RBF.from_config(config) + RBF.from_config(config))
    assert revived.parts[0] is not revived.parts[1]


@pytest.mark.parametrize(
    "prior",
    [
        tfd.LogNormal(0.1, 1.5),
        tfd.Gamma(2.0, rate=np.float32(0.25)),
        tfd.HalfNormal(tf.constant(2.0)),
        tfd.Uniform(0.5, 4.0),
        tfd.InverseGamma(np.float64(3.0), 1),
        tfd.LogNormal([0.1, 0.2], 0.3),
        tfd.TruncatedNormal(1.0, 2.0, 0.0, 5.0),
    ],
    ids=lambda p: p.name,
)
@ways
def test_priors_come_back(prior, way):
    kernel = RBF(2.0, [1.0, 3.0], priors={"lengthscale": prior})
    revived = way(kernel)
    assert type(revived.lengthscale.prior) is type(prior)
    assert revived.variance.prior is None
    revived.lengthscale.assign([0.7, 2.5])
    kernel.lengthscale.assign([0.7, 2.5])
    expected = float(kernel.lengthscale.log_prior())
    assert float(revived.lengthscale.log_prior()) == pytest.approx(expected, rel=1e-15)
    assert by_config(revived).lengthscale.log_prior().dtype == tf.float64


def test_a_prior_that_cannot_be_saved_is_refused():
    mixture = tfd.Independent(tfd.Normal([0.0, 1.0], 1.0), 1)
    with pytest.raises(TypeError, match=r"numbers for parameters.*saved"):
        RBF(priors={"variance": mixture})


def test_a_copy_has_the_trained_values_and_its_own_variables():
    k = Matern12(0.7)
    kernel = k * Rotation(0.4) + k
    k.variance.assign(2.5)
    copied = copy.deepcopy(kernel)
    assert float(copied.parts[1].variance) == pytest.approx(2.5, rel=1e-15)
    assert copied.parts[0].parts[0] is copied.parts[1]
    np.testing.assert_array_equal(copied.covariance([0.0, 0.3]), kernel.covariance([0.0, 0.3]))
    k.variance.assign(1.0)
    assert float(copied.parts[1].variance) == pytest.approx(2.5, rel=1e-15)


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        (lambda: RBF(2.0, 3.0), RBF),
        (lambda: WidelyLinear(Matern12(2.0), 0.3j), lambda: WidelyLinear(Matern12(), 0.0)),
        (lambda: Rotation(0.5), lambda: Rotation(0.7)),
    ],
    ids=["RBF", "WidelyLinear", "Rotation"],
)
def test_weights_mean_the_same_in_a_kernel_that_was_started_elsewhere(saved, loaded):
    saved, loaded = saved(), loaded()
    loaded.set_weights(saved.get_weights())
    assert repr(loaded) == repr(saved)


@keras.saving.register_keras_serializable(package="tests")
class Evidence(keras.layers.Layer):
    """A consumer as a user would write it: adds the log determinant of K + I as a loss."""

    def __init__(self, kernel: Kernel, **kwargs):
        super().__init__(dtype="float64", **kwargs)
        self.kernel = kernel

    def call(self, x):
        k = self.kernel.covariance(x)
        return cgp.linalg.log_det(cgp.linalg.cholesky(k + tf.eye(tf.shape(k)[-1], dtype=k.dtype)))

    def get_config(self):
        kernel = keras.saving.serialize_keras_object(self.kernel)
        return {**keras.layers.Layer.get_config(self), "kernel": kernel}

    @classmethod
    def from_config(cls, config):
        kernel = keras.saving.deserialize_keras_object(config.pop("kernel"))
        config.pop("dtype")
        return cls(kernel=kernel, **config)


def test_a_layer_owns_the_hyperparameters_of_the_kernel_it_is_given():
    kernel = 2.0 * RBF(1.3) * Rotation(0.4)
    layer = Evidence(kernel)
    x = tf.constant([[0.0], [0.5], [0.9]], tf.float64)
    with tf.GradientTape() as tape:
        value = layer(x)
    assert len(layer.trainable_variables) == 3
    assert len(layer.non_trainable_variables) == 2  # the factor 2.0, the step of the frequency
    gradients = tape.gradient(value, layer.trainable_variables)
    assert all(g is not None and np.all(np.isfinite(g)) for g in gradients)
    revived = Evidence.from_config(layer.get_config())
    assert isinstance(revived.kernel, Product)
    np.testing.assert_array_equal(revived(x), value)
