"""Kernels of one's own: what they need, what they are held to, and that they come back."""

import copy
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import cgp
from cgp.kernels import RBF, Conjugate, Kernel, Rotation, WidelyLinear
from cgp.training import COMPLEX, POSITIVE, REAL

X = np.array([0.0, 0.4, 1.7])


@keras.saving.register_keras_serializable(package="tests")
class Line(Kernel):
    """z = a x of a random a: K = variance x x'."""

    is_real = True

    def __init__(self, variance=1.0, *, fixed=(), priors=None, **kwargs):
        super().__init__(**kwargs)
        self.declare_parameters({"variance": (variance, POSITIVE)}, fixed, priors)

    def moments(self, x1, x2):
        return self.variance.value * tf.reduce_sum(x1 * x2, axis=-1), None


@keras.saving.register_keras_serializable(package="tests")
class Slope(Kernel):
    """No `fixed` and no `priors`: the least that a kernel needs."""

    def __init__(self, slope=1.0, **kwargs):
        super().__init__(**kwargs)
        self.declare_parameters({"slope": (slope, REAL)})

    def moments(self, x1, x2):
        return self.slope.value**2 * tf.reduce_sum(x1 * x2, axis=-1), None


def returning(make, **flags):
    """A kernel whose moments are `make(K)` of K = x x'."""

    def moments(self, x1, x2):
        return make(tf.reduce_sum(x1 * x2, axis=-1))

    return type("Odd", (Kernel,), {"moments": moments, **flags})()


def test_it_needs_moments_and_parameters():
    kernel = Slope(2.0) * Rotation(0.25) + WidelyLinear(Slope(1.0, name="other"), 0.5)
    assert list(kernel.parameters()) == [
        "slope.slope",
        "rotation.frequency",
        "widelylinear.coefficient",
        "other.slope",
    ]
    k = kernel.covariance([1.0], [2.0]).numpy()[0, 0]
    assert k == pytest.approx(4 * 2 * -1j + 1.25 * 2, rel=1e-14)


@pytest.mark.parametrize("ways", [(Line, "variance"), (Slope, "slope")], ids=["Line", "Slope"])
def test_it_survives_its_config_and_a_copy(ways):
    cls, name = ways
    kernel = cls(2.0, name="trend", dtype="float32")
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(kernel)))
    revived = keras.saving.deserialize_keras_object(config)
    for other in (revived, copy.deepcopy(kernel), cls.from_config(kernel.get_config())):
        assert type(other) is cls
        assert other.parameters() == {f"trend.{name}": pytest.approx(2.0, rel=1e-6)}
        assert other.variable_dtype == "float32"


def test_what_is_fixed_and_its_priors_come_back():
    prior = tfp.distributions.LogNormal(0.1, 1.5)
    kernel = Line(2.0, fixed="variance", priors={"variance": prior})
    revived = Line.from_config(json.loads(json.dumps(kernel.get_config())))
    assert revived.variance.fixed
    assert not revived.trainable_variables
    expected = float(kernel.variance.log_prior())
    assert float(revived.variance.log_prior()) == pytest.approx(expected, rel=1e-15)


def test_a_model_of_it_is_fitted_saved_and_loaded(tmp_path):
    rng = np.random.default_rng(5)
    x = np.linspace(-2.0, 2.0, 20)
    z = (1.5 - 0.7j) * x + 0.1 * (rng.normal(size=20) + 1j * rng.normal(size=20))
    gp = cgp.ExactGP(Line() + RBF(0.1), 0.02)
    gp.compile(optimizer=cgp.optimizers.LBFGS(), run_eagerly=True)
    gp.fit(x, z, epochs=1, verbose=0)
    gp.save(tmp_path / "line.keras")
    loaded = keras.models.load_model(tmp_path / "line.keras")
    assert loaded.parameters() == gp.parameters()
    assert gp.parameters()["line.variance"] != 1.0
    np.testing.assert_array_equal(loaded.predict(x)["mean"], gp.predict(x)["mean"])


# Flags


def test_flags_are_cautious_until_they_are_set():
    assert (Kernel.is_real, Kernel.is_markov) == (False, False)
    assert (Slope().is_real, Line().is_real) == (False, True)
    assert not (Slope() * RBF()).is_real


def test_a_kernel_must_say_that_it_is_real_to_multiply_an_improper_one():
    improper = WidelyLinear(RBF(), 0.5)
    with pytest.raises(
        ValueError, match=r"Slope\(slope=1.\), whose is_real is False, cannot multi"
    ):
        improper * Slope()
    expected = improper.pseudo_covariance(X).numpy() * np.outer(X, X)
    np.testing.assert_allclose((improper * Line()).pseudo_covariance(X), expected, atol=1e-15)


UNTRUE = {
    "improper": (lambda k: (k, 0.5 * k), {}, "returns a pseudo-covariance.*is_proper = False"),
    "proper": (lambda k: (k, None), {"is_proper": False}, "no pseudo-covariance.*is_proper = True"),
    "complex": (lambda k: (tf.complex(k, k), None), {"is_real": True}, "is_real = False"),
    "no pair": (lambda k: k, {}, "must return .covariance, pseudo-covariance or None"),
}


@pytest.mark.parametrize("case", UNTRUE)
@pytest.mark.parametrize(
    "within",
    [
        lambda k: k,
        lambda k: k + RBF(),
        lambda k: k * RBF(),
        lambda k: RBF() * k + RBF(),
        Conjugate,
        lambda k: WidelyLinear(k, 0.5),
    ],
    ids=["alone", "sum", "product", "sum of product", "conjugate", "widely linear"],
)
def test_moments_that_are_not_what_the_flags_say_are_refused(case, within):
    make, flags, message = UNTRUE[case]
    kernel = within(returning(make, **flags))
    for use in (kernel.covariance, kernel.pseudo_covariance, kernel.moments_diagonal):
        with pytest.raises(TypeError, match=rf"moments of Odd\(\).*{message}"):
            use(X)


def test_an_improper_kernel_of_ones_own_is_taken_as_such():
    kernel = returning(lambda k: (k, 0.5 * k), is_proper=False)
    np.testing.assert_allclose(kernel.pseudo_covariance(X), 0.5 * np.outer(X, X), atol=1e-15)
    gp = cgp.ExactGP(kernel + RBF(1.0, 1.0), 0.1)
    found = gp.predict([2.0])
    np.testing.assert_allclose(found["variance"], [5.0], rtol=1e-14)
    np.testing.assert_allclose(found["pseudo_variance"], [2.0], rtol=1e-14)


def test_another_process_than_of_one_dimension_is_not_markov():
    for kernel in (cgp.kernels.Matern32(lengthscale=[1.0, 2.0]), Rotation([0.1, 0.2])):
        assert not kernel.is_markov
        assert not (2.0 * kernel).is_markov
    assert cgp.kernels.Matern32(lengthscale=2.0).is_markov
    assert Rotation(0.1).is_markov
    assert cgp.kernels.Matern32.is_markov


@keras.saving.register_keras_serializable(package="tests")
class Turned(Kernel):
    """z = s a x of a random a, s complex: a hyperparameter that is."""

    def __init__(self, slope=1j, **kwargs):
        super().__init__(**kwargs)
        self.declare_parameters({"slope": (slope, COMPLEX)})

    def moments(self, x1, x2):
        s = self.slope.value
        return tf.cast(tf.abs(s) ** 2, s.dtype) * tf.cast(tf.reduce_sum(x1 * x2, -1), s.dtype), None


def test_a_complex_hyperparameter_comes_back():
    kernel = Turned(1 + 2j)
    for again in (Turned.from_config(kernel.get_config()), copy.deepcopy(kernel)):
        assert again.parameters() == {"turned.slope": 1 + 2j}
        np.testing.assert_array_equal(again.covariance(X), kernel.covariance(X))


class Warp(Kernel):
    """A kernel of another, held as any attribute."""

    def __init__(self, inner, **kwargs):
        super().__init__(**kwargs)
        self.inner = inner

    def moments(self, x1, x2):
        return self.inner.moments(tf.sinh(x1), tf.sinh(x2))


def test_kernels_inside_are_found_in_whatever_holds_them():
    prior = tfp.distributions.LogNormal(0.0, 0.1)
    kernel = Warp(RBF(1.0, 2.0, priors={"lengthscale": prior}) + Slope())
    assert list(kernel.parameters()) == ["rbf.variance", "rbf.lengthscale", "slope.slope"]
    gp, plain = cgp.ExactGP(kernel, 0.1), cgp.ExactGP(Warp(RBF(1.0, 2.0) + Slope()), 0.1)
    z = np.array([1j, 2.0, 0.5])
    for model in (gp, plain):
        model.compile(run_eagerly=True)
    expected = tfp.distributions.LogNormal(np.float64(0.0), np.float64(0.1)).log_prob(2.0)
    difference = plain.evaluate(X, z, verbose=0) - gp.evaluate(X, z, verbose=0)
    np.testing.assert_allclose(difference, expected / 3, rtol=1e-6)
