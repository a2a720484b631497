"""Models of Markov kernels at equal steps: those of `StateSpaceGP`."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import statespace
from cgp.kernels import (
    RBF,
    Coregionalized,
    IntegratedRandomWalk,
    Matern12,
    Matern32,
    Outputs,
    RandomWalk,
    Rotation,
    WidelyLinear,
)

START, SPACING = 2.0, 0.3
X = START + SPACING * np.arange(30)


def carrier():
    return Matern32(1.5, 2.0) * Rotation(0.3)


KERNELS = {
    "proper": lambda: carrier() + Matern12(0.3, 0.5),
    "improper": lambda: WidelyLinear(carrier(), 0.4j) + Matern12(0.3, 0.5),
    "walk": lambda: RandomWalk(0.5, start=START),
    "integrated walk": lambda: IntegratedRandomWalk(0.5, 2.0, start=START - 0.5),
    "outputs": lambda: Coregionalized(carrier(), 3, mixing=[1.0, 0.5j, -0.2]),
    "improper outputs": lambda: (
        Coregionalized(WidelyLinear(carrier(), 0.4j), 3, mixing=[1.0, 0.5j, -0.2])
        + Outputs([Matern12(0.3, 0.5)] * 3)
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_is_the_model_that_of_the_process(name):
    kernel = KERNELS[name]()
    noise = [0.1, 0.2, 0.3] if kernel.outputs else 0.1
    rng = np.random.default_rng(0)
    shape = (len(X), kernel.outputs or 1)
    z = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    z[rng.uniform(size=shape) < 0.2] = np.nan
    gp = cgp.StateSpaceGP(kernel, noise_variance=noise)
    gp.condition(X, z if kernel.outputs else z[:, 0])
    with tf.GradientTape() as tape:
        model = statespace.from_kernel(kernel, SPACING, noise, start=START)
        value = statespace.log_likelihood(model, z)
    np.testing.assert_allclose(value, gp.log_marginal_likelihood(), rtol=1e-11)
    with tf.GradientTape() as expected:
        of_process = gp.log_marginal_likelihood()
    variables = kernel.trainable_variables
    gradients = tape.gradient(value, variables), expected.gradient(of_process, variables)
    for a, b in zip(*gradients, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)
    smoothed = statespace.smooth(model, z)
    h, means = kernel.markov_form(), smoothed.smoothed_means.numpy()
    signal = means @ np.atleast_2d(h.h).T
    if h.h_conj is not None:
        signal = signal + means.conj() @ np.atleast_2d(h.h_conj).T
    np.testing.assert_allclose(signal, gp.predict(X)["mean"].reshape(shape), atol=1e-10)


def test_does_a_filter_learn_from_the_kernel_on():
    model = statespace.from_kernel(Matern12(1.0, 8.0) * Rotation(0.1), 1.0, 0.1)
    z = statespace.sample(model, 400, seed=1).observations
    kf = cgp.KalmanFilter(model, learn="F")
    kf.fit(z, verbose=0)
    start, learned = model.F.numpy()[0, 0], kf.F[0, 0]
    assert learned != start
    assert abs(learned - start) < 0.05


REFUSED = {
    "no kernel": (lambda: statespace.from_kernel(0.5, 1.0), TypeError, "kernel must be one of"),
    "not Markov": (lambda: statespace.from_kernel(RBF(1.0, 1.0), 1.0), ValueError, "not Markov"),
    "left out": (
        lambda: statespace.from_kernel(Matern12(1.0), 1.0), ValueError,
        r"lengthscale of Matern12.* left out: give values, or fit first"),
    "no step": (
        lambda: statespace.from_kernel(carrier(), 0.0), ValueError, "spacing must be a positive"),
    "noise of others": (
        lambda: statespace.from_kernel(carrier(), 1.0, [0.1, 0.2]), ValueError,
        r"noise_variance must be a number, or \[1\]"),
    "negative noise": (
        lambda: statespace.from_kernel(carrier(), 1.0, -0.1), ValueError, "not negative, got -0.1"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
