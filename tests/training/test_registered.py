"""Rules and likelihoods of one's own: whether a model with one is saved, and as good as before."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import statespace
from cgp.likelihoods import Likelihood
from cgp.likelihoods.base import Site
from cgp.training.saving import from_registered_config, registered_config


@keras.saving.register_keras_serializable(package="tests")
@dataclasses.dataclass(frozen=True)
class Differences(statespace.Rule):
    """Central differences along each component of the state."""

    reach: float = 1.0

    def linearize(self, function, state):
        variances = tf.reduce_sum(tf.abs(state.chol) ** 2, axis=1)
        steps = tf.cast(self.reach * tf.sqrt(variances), state.mean.dtype)
        mean, eye = state.mean[:, None], tf.eye(state.mean.shape[0], dtype=state.mean.dtype)
        along = eye[..., None] * steps
        matrix = (function(mean + along) - function(mean - along)) / (2.0 * steps)
        offset = function(mean)[:, 0] - tf.einsum("mnb,nb->mb", matrix, state.mean)
        return statespace.Affine(matrix, offset, None)


@keras.saving.register_keras_serializable(package="tests")
@dataclasses.dataclass(frozen=True)
class Inflated(Likelihood):
    """Normal noise of a multiple of the variance."""

    factor: float = 2.0
    is_circular = True

    def site(self, z, q, last, variance):
        size = z.shape[0]
        eye = tf.eye(size, dtype=variance.dtype)[..., None, None]
        return Site(z, size * eye / (self.factor * variance))

    def correction(self, z, q, site, variance):
        return tf.zeros_like(variance)  # the site is the observation


@dataclasses.dataclass(frozen=True)
class Unregistered(Differences):
    """A rule that Keras does not know."""


@keras.saving.register_keras_serializable(package="tests")
def turn(x):
    return x * tf.exp(tf.constant(0.2j, x.dtype))


@keras.saving.register_keras_serializable(package="tests")
def square(x):
    return x + 0.1 * x**2


def nonlinear():
    return statespace.NonlinearGaussian(
        turn, square, [[0.05]], [[0.1]], [1.0 + 0j], [[0.3]], jit_compile=False
    )


def linear(R=0.1):
    return statespace.LinearGaussian([[0.9j]], [[0.2]], [[1.0]], [[R]], [0j], [[1.0]])


def series(steps=12):
    rng = np.random.default_rng(3)
    return np.exp(0.2j * np.arange(steps)) + 0.2 * rng.normal(size=(steps, 2)).view(complex)[:, 0]


@pytest.mark.parametrize("rule", [Differences(0.5), statespace.Iterated(Differences(0.5), 3)])
def test_is_a_filter_with_a_rule_of_ones_own_saved(rule, tmp_path):
    kf = cgp.KalmanFilter(nonlinear(), rule=rule)
    kf.save(tmp_path / "filter.keras")
    loaded = cgp.load_model(tmp_path / "filter.keras")
    assert loaded.rule == rule
    z = series()[None, :, None]
    for name, expected in kf(z).items():
        np.testing.assert_array_equal(loaded(z)[name], expected)


def test_do_all_verbs_take_a_rule_of_ones_own():
    """Of a function of degree two, central differences are its derivative."""
    model, z = nonlinear(), series()
    for rules in (
        (Differences(), statespace.Taylor()),
        (statespace.Iterated(Differences(), 5), statespace.Iterated(statespace.Taylor(), 5)),
    ):
        for verb, name in (
            (statespace.filter, "filtered_means"),
            (statespace.smooth, "smoothed_means"),
            (lambda *a, **k: statespace.step(a[0], None, a[1][:1], **k)[1].filtered, "mean"),
        ):
            by_differences, by_taylor = (getattr(verb(model, z, rule=r), name) for r in rules)
            np.testing.assert_allclose(by_differences, by_taylor, atol=1e-9)


@pytest.mark.parametrize("kind", ["filter", "exact", "state space"])
def test_is_a_likelihood_of_ones_own_saved(kind, tmp_path):
    likelihood, z = Inflated(3.0), series()
    if kind == "filter":
        estimator = cgp.KalmanFilter(linear(), likelihood=likelihood)
        result = statespace.filter(linear(), z, likelihood=likelihood)
        expected = statespace.filter(linear(0.3), z)
        np.testing.assert_allclose(result.filtered_means, expected.filtered_means, atol=1e-9)
        np.testing.assert_allclose(result.log_likelihood, expected.log_likelihood, atol=1e-8)
    else:
        kind = cgp.ExactGP if kind == "exact" else cgp.StateSpaceGP
        estimator = kind(cgp.kernels.Matern12(1.0, 5.0), 0.1, likelihood=likelihood)
        estimator.condition(np.arange(12.0), z)
    estimator.save(tmp_path / "estimator.keras")
    loaded = cgp.load_model(tmp_path / "estimator.keras")
    assert loaded.get_config()["likelihood"] == {"name": "tests>Inflated", "factor": 3.0}


def test_is_an_unregistered_class_refused_with_the_remedy(tmp_path):
    with pytest.raises(ValueError, match="a rule of type Unregistered cannot be saved: register"):
        cgp.KalmanFilter(nonlinear(), rule=Unregistered()).save(tmp_path / "filter.keras")
    with pytest.raises(ValueError, match="registered with Keras, got 'Unregistered'"):
        from_registered_config({"name": "Unregistered", "reach": 1.0})


def test_have_rules_and_likelihoods_of_cgp_their_short_names():
    rule = statespace.Iterated(statespace.SigmaPoints("gauss-hermite", order=4), 3, 0.1)
    points = {"name": "SigmaPoints", "kind": "gauss-hermite", "kappa": None, "order": 4}
    config = {"name": "Iterated", "rule": points, "iterations": 3, "damping": 0.1}
    assert registered_config(rule) == config
    assert from_registered_config(config) == rule
    assert registered_config(cgp.likelihoods.OneBit())["name"] == "OneBit"
