"""No prediction rests on the placeholder of a value that was left out."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import RBF, Driven, Matern12, Matern32, Rotation

X = np.arange(20.0)
Z = np.exp(0.2j * np.pi * X)
Z += 0.1 * np.random.default_rng(0).normal(size=(20, 2)) @ [1, 1j]
WARNED = "ignore:after this fit"


def left_out():
    return Matern32() * Rotation()


def exact(kernel=None, **kwargs):
    return cgp.ExactGP(kernel or left_out(), noise_variance=0.02, **kwargs)


def state_space(kernel=None, **kwargs):
    return cgp.StateSpaceGP(kernel or left_out(), noise_variance=0.02, **kwargs)


def recursive(kernel=None):
    return cgp.RecursiveGP(kernel or left_out(), noise_variance=0.02, capacity=8)


def conditioned():
    gp = state_space()
    gp.condition(X, Z)
    return gp


def interpolator(kernel):
    return cgp.layers.GPInterpolator(kernel, noise_variance=0.02, x=X, x_new=[0.5])


DOORS = {
    "prior": lambda: exact().predict(X),
    "prior of a line": lambda: state_space().predict(X),
    "prior of a window": lambda: recursive().predict(X),
    "sample": lambda: exact().sample(X),
    "sample of a line": lambda: state_space().sample(X),
    "condition": lambda: exact().condition(X, Z),
    "predict": lambda: conditioned().predict([20.5]),
    "posterior": lambda: conditioned().posterior([20.5]),
    "sample given data": lambda: conditioned().sample([20.5]),
    "forecasts": lambda: conditioned().forecasts([1.0]),
    "likelihood": lambda: conditioned().log_marginal_likelihood(),
    "likelihood of data": lambda: exact().log_marginal_likelihood(X, Z),
    "Whittle": lambda: state_space(likelihood="whittle").log_marginal_likelihood(X, Z),
    "evaluate": lambda: exact().evaluate(X, Z, verbose=0),
    "errors": lambda: conditioned().parameter_errors(),
    "call": lambda: exact()((X, Z)),
    "step": lambda: recursive().step(0.0, 1j),
    "process": lambda: recursive().process(X, Z),
    "step of a line": lambda: state_space().step(0.0, 1j),
    "process of a line": lambda: state_space().process(X, Z),
    "bank": lambda: cgp.Bank(recursive()).update(["a"], Z[:1], x=X[:1]),
    "bank of a line": lambda: cgp.Bank(state_space()).update(["a"], Z[:1], x=X[:1]),
    "Recursive": lambda: cgp.layers.Recursive(recursive())((X[None, :, None], Z[None])),
    "interpolator": lambda: interpolator(left_out())(Z[None]),
    "interpolator in a graph": lambda: tf.function(interpolator(left_out()))(Z[None]),
    "export": lambda: conditioned().export("unused"),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_kernel_without_values_is_refused_at_every_door(door, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ValueError,
        match=r"left out, and not learned yet: matern32.variance, matern32.lengthscale, "
        r"rotation.frequency. The first fit\(x, z\).* fit first, or give values, as in "
        r"Matern32\(variance=..., lengthscale=...\)",
    ):
        DOORS[door]()


def test_all_that_is_missing_is_named_at_once():
    gp = cgp.ExactGP(RBF(), mean=cgp.means.Constant())
    with pytest.raises(
        ValueError, match=r"rbf.variance, rbf.lengthscale, mean.value, noise_variance\. The"
    ):
        gp.condition(X, Z)
    with pytest.raises(ValueError, match=r"mean.value\. .*give values, as in Constant\(value="):
        exact(RBF(1.0, 2.0), mean=cgp.means.Constant()).predict(X)


@pytest.mark.filterwarnings(WARNED)
def test_both_remedies_lead_to_the_right_prediction():
    truth = np.exp(0.2j * np.pi * 20.5)
    fitted = conditioned()
    fitted.fit(X, Z, verbose=0)
    valued = state_space(Matern32(variance=1.0, lengthscale=20.0) * Rotation(frequency=0.1))
    valued.condition(X, Z)
    for gp in (fitted, valued):
        found = gp.predict([20.5])
        assert abs(found["mean"][0] - truth) < 0.3


@pytest.mark.filterwarnings(WARNED)
def test_a_fit_elsewhere_gives_a_shared_kernel_its_values(tmp_path):
    kernel = left_out()
    tracker, layer = recursive(kernel), interpolator(kernel)
    gp = state_space(kernel)
    gp.fit(X, Z, verbose=0)
    assert np.isfinite(tracker.step(0.0, 1j).filtered.mean)
    assert np.isfinite(layer(Z[None])["mean"]).all()
    gp.save(tmp_path / "gp.keras")
    loaded = keras.models.load_model(tmp_path / "gp.keras")
    np.testing.assert_allclose(loaded.predict([20.5])["mean"], gp.predict([20.5])["mean"])


def test_values_that_were_assigned_are_values():
    kernel = left_out()
    for parameter, value in zip(
        (kernel.parts[0].variance, kernel.parts[0].lengthscale, kernel.parts[1].frequency),
        (1.0, 5.0, 0.1),
        strict=True,
    ):
        parameter.assign(value)
    assert np.isfinite(exact(kernel).predict(X)["mean"]).all()


@pytest.mark.parametrize(
    "kernel",
    [
        lambda: Matern32(variance=1.0, lengthscale=2.0) * Rotation(frequency=0.1),
        lambda: Matern32(variance=1.0, lengthscale=2.0) * RBF(lengthscale=3.0),
        lambda: RBF(lengthscale=3.0) * Matern32(variance=1.0, lengthscale=2.0),
        lambda: 2.0 * RBF(lengthscale=3.0),
        lambda: Driven(
            Matern12(lengthscale=2.0) * Rotation(0.1), Matern12(variance=1.0, lengthscale=1.0)
        ),
    ],
)
def test_one_variance_is_enough_for_a_product(kernel):
    gp = exact(kernel())
    gp.condition(X, Z)
    assert np.isfinite(gp.predict([20.5])["variance"])
    assert np.isfinite(list(gp.parameters().values())).all()


@pytest.mark.parametrize(
    ("kernel", "names"),
    [
        (
            lambda: Matern32(lengthscale=2.0) * RBF(lengthscale=3.0),
            "matern32.variance, rbf.variance.",
        ),
        (
            lambda: (Matern32(lengthscale=2.0) + RBF(lengthscale=3.0)) * RBF(1.0, 5.0),
            "matern32.variance, rbf.variance.",
        ),
        (lambda: RBF(1.0, 2.0) + RBF(lengthscale=3.0), "rbf_2.variance."),
    ],
)
def test_variances_that_nothing_else_carries_are_refused(kernel, names):
    with pytest.raises(ValueError, match=f"not learned yet: {names}"):
        exact(kernel()).predict(X)


@pytest.mark.filterwarnings(WARNED)
def test_what_is_not_learned_yet_is_shown_so():
    kernel = Matern32(lengthscale=3.0) * Rotation()
    gp = cgp.ExactGP(kernel)
    assert repr(gp) == (
        "ExactGP(Matern32(variance=to be learned, lengthscale=3.) * Rotation(frequency=to be "
        "learned), noise_variance=to be learned)"
    )
    assert gp._repr_html_().count(">to be learned<") == 3
    shown = gp.parameters()
    assert [name for name, value in shown.items() if np.isnan(value)] == [
        "noise_variance",
        "matern32.variance",
        "rotation.frequency",
    ]
    assert np.isnan(kernel.parameters()["rotation.frequency"])
    gp.compile("sgd", run_eagerly=True)
    gp.fit(X, Z, verbose=0)
    assert np.isfinite(list(gp.parameters().values())).all()
    assert "to be learned" not in repr(gp)
