"""What a constructor took stays: whatever was made of it would not follow an attribute."""

import pytest

import cgp
from cgp import kernels, layers, means, statespace
from cgp.kernels import RBF

MODEL = statespace.LinearGaussian([[0.9j]], [[0.1]], [[1.0]], [[0.1]])

ARGUMENTS = [
    (lambda: kernels.RandomWalk(1.0, 0.0), "start"),
    (lambda: RBF(1.0, 1.0) + RBF(2.0, 1.0), "parts"),
    (lambda: kernels.WidelyLinear(RBF(1.0, 1.0), 0.5), "parts"),
    (lambda: kernels.Autoregressive(1, 1.0, [0.2], 1.0), "step"),
    (lambda: kernels.MarkovApproximation(RBF(1.0, 1.0), 3), "order"),
    (lambda: means.Polynomial(1, [1.0, 2.0]), "degree"),
    (lambda: means.Polynomial(1, [1.0, 2.0]), "center"),
    (lambda: layers.Recursive(cgp.KalmanFilter(MODEL)), "estimator"),
    (lambda: layers.Recursive(cgp.KalmanFilter(MODEL)), "return_sequences"),
    (lambda: layers.Recursive(cgp.KalmanFilter(MODEL)), "stateful"),
    (lambda: cgp.KalmanFilter(MODEL), "loss_weight"),
    (lambda: cgp.KalmanFilter(MODEL), "learn"),
    (lambda: cgp.ExactGP(RBF(1.0, 1.0), 0.1), "kernel"),
    (cgp.optimizers.LBFGS, "ftol"),
]


@pytest.mark.parametrize(("make", "name"), ARGUMENTS)
def test_arguments_are_not_assigned(make, name):
    layer = make()
    kind, before = type(layer).__name__, getattr(layer, name, None)
    with pytest.raises(AttributeError, match=f"{name} of {kind} cannot be changed: make a new"):
        setattr(layer, name, -1.0)
    assert getattr(layer, name, None) is before


@pytest.mark.parametrize("name", ["F", "Q", "H", "R", "B", "initial_mean", "initial_covariance"])
def test_matrices_of_a_filter_are_replaced_in_a_new_one(name):
    kf = cgp.KalmanFilter(MODEL)
    remedy = rf"a new KalmanFilter of kf.model.replace\({name}=...\)"
    with pytest.raises(AttributeError, match=remedy):
        setattr(kf, name, [[0.5 + 0j]])
    value = [0.5 + 0j] if name == "initial_mean" else [[0.5 + 0j]]
    changed = cgp.KalmanFilter(kf.model.replace(**{name: value}))
    assert getattr(changed, name).item() == pytest.approx(0.5)


def test_what_is_of_keras_or_of_a_subclass_is_assigned():
    class Named(RBF):
        def __init__(self, label, **kwargs):
            super().__init__(1.0, 1.0, **kwargs)
            self.label = label

    kernel = Named("first")
    kernel.label, kernel.trainable = "second", False
    assert (kernel.label, kernel.trainable) == ("second", False)
