"""Windows of several outputs: recursive = state space = exact, value by value."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from tests.gp.test_outputs import KERNELS, NEW, NOISES, T, Z, close, points, proper
from tests.reference import gaussian_process as dense


def arrays(step):
    return (*step.predicted, step.innovation, *step.filtered, *step.joint, step.nis)


@pytest.mark.parametrize(
    ("name", "noise"),
    [
        ("improper", NOISES),
        pytest.param("proper", 0.2, marks=pytest.mark.long),
        pytest.param("one source", NOISES, marks=pytest.mark.long),
        pytest.param("two sources", 0.2, marks=pytest.mark.long),
    ],
)
def test_is_a_window_of_all_values_the_exact_process(name, noise):
    gp = cgp.RecursiveGP(KERNELS[name](), noise, capacity=45)
    exact, siblings = cgp.ExactGP(KERNELS[name](), noise), cgp.StateSpaceGP(KERNELS[name](), noise)
    exact.condition(T, Z)
    loss = gp.evaluate(T, Z, verbose=0)
    np.testing.assert_allclose(loss, exact.evaluate(T, Z, verbose=0), rtol=1e-11)
    steps = [gp.step(t, z) for t, z in zip(T[:3], Z[:3], strict=True)]
    steps = [cgp.distributions.Step.stack(steps, axis=-2), gp.process(T[3:], Z[3:])]
    expected = siblings.process(T, Z)
    for actual, block in zip(steps, (slice(3), slice(3, None)), strict=True):
        for a, b in zip(arrays(actual), arrays(expected), strict=True):
            close(a, b[block], 1e-10)
    assert gp.size == np.sum(~np.isnan(Z))
    predicted, posterior = gp.predict(NEW, observed=True), exact.posterior(NEW)
    for moment, of_exact in exact.predict(NEW, observed=True).items():
        close(predicted[moment], of_exact, 1e-10)
    close(gp.posterior(NEW).output_covariance(), posterior.output_covariance(), 1e-10)


def test_does_a_full_window_hold_the_last_values():
    kernel, gp = proper(), cgp.RecursiveGP(proper(), NOISES, capacity=7)
    for t, z in zip(T, Z, strict=True):
        gp.step(t, z)
    last = np.flatnonzero(~np.isnan(Z.ravel()))[-7:]
    x, new = points(T)[last], points(NEW)
    close(gp.state.x, x)
    k = kernel.covariance(x).numpy() + np.diag(np.tile(NOISES, len(T))[last])
    cross, prior = kernel.covariance(new, x).numpy(), kernel.covariance(new).numpy()
    mean, covariance, _ = dense.posterior(
        Z.ravel()[last], k, 0 * k, cross, 0 * cross, prior, 0 * prior
    )
    close(gp.predict(NEW)["mean"], mean.reshape(-1, 3))
    close(gp.posterior(NEW).covariance(), covariance)


def test_is_a_filtered_variance_of_little_noise_right_in_single_precision():
    gains = np.array([1.0, 0.5j], np.complex64)
    kernel = cgp.kernels.Coregionalized(
        cgp.kernels.RBF(1.0, 1.0, dtype="float32"), 2, mixing=gains, dtype="float32"
    )
    gp = cgp.RecursiveGP(kernel, np.float32(1e-5), capacity=8, dtype="float32")
    z = np.array([0.3 + 0.1j, -0.05 + 0.15j], np.complex64)
    filtered = gp.step(np.float32(0.0), z).filtered
    information = 1.0 + np.sum(np.abs(gains) ** 2) / 1e-5  # of the source
    # The difference of prior and update would be wrong by a factor; jitter is some 5e-6 here.
    np.testing.assert_allclose(filtered.variance, np.abs(gains) ** 2 / information, rtol=0.03)


@pytest.mark.long
def test_do_hyperparameters_learn_from_blocks_of_several_streams():
    x = 0.2 * np.arange(30.0)
    z = cgp.ExactGP(proper(), NOISES).sample(x, 2, seed=1, observed=True)
    source = cgp.kernels.Coregionalized(cgp.kernels.Matern32(), 3)
    gp = cgp.RecursiveGP(source, [None] * 3, capacity=30)
    gp.compile(keras.optimizers.Adam(0.05))
    losses = gp.fit(x, z, batch_size=10, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0] - 0.02
    assert gp.parameters()["noise_variance"].shape == (3,)
    assert gp.size.tolist() == [30, 30]
    after = cgp.RecursiveGP(source, gp.parameters()["noise_variance"], capacity=30)
    after.process(x, z)
    close(gp.predict([7.0])["mean"], after.predict([7.0])["mean"], 1e-9)


@pytest.mark.long
def test_does_a_saved_window_go_on(tmp_path):
    gp = cgp.RecursiveGP(proper(), NOISES, capacity=20)
    gp.process(T[:4], Z[:4])
    gp.save(tmp_path / "window.keras")
    gp.export(tmp_path / "served")
    loaded = keras.models.load_model(tmp_path / "window.keras")
    served = tf.saved_model.load(tmp_path / "served")
    place = tf.constant(T[4], tf.float64)
    expected = gp.step(T[4], Z[4])
    for step in (loaded.step(T[4], Z[4]).filtered.mean, served.step(place, Z[4])["filtered_mean"]):
        close(step, expected.filtered.mean)
    close(served.predict(NEW[:, None])["mean"], gp.predict(NEW)["mean"])


@pytest.mark.long
def test_do_all_drivers_take_samples_of_outputs():
    gp = cgp.RecursiveGP(proper(), NOISES, capacity=12)
    steps = gp.process(T[:6], Z[:6])
    bank = cgp.Bank(cgp.RecursiveGP(proper(), NOISES, capacity=12))
    for n in range(6):
        of_keys = bank.update(["a", "b"], Z[[n, n]], T[[n, n]])
        close(of_keys.predicted.mean, steps.predicted.mean[[n, n]])
    layer = cgp.layers.Recursive(cgp.RecursiveGP(proper(), NOISES, capacity=45))
    outputs = layer((T[None, :, None], Z[None]))
    close(outputs["filtered_mean"][0, :4], steps.filtered.mean[:4], 1e-10)
    exact = cgp.ExactGP(proper(), NOISES).evaluate(T, Z, verbose=0)
    np.testing.assert_allclose(layer.losses[0], exact, rtol=1e-11)


def test_is_forgetting_of_outputs_refused_with_a_remedy():
    with pytest.raises(ValueError, match="multiply it by a Matern12 of variance 1"):
        cgp.RecursiveGP(proper(), NOISES, forgetting=0.9)
    with pytest.raises(ValueError, match="at least one for each of 3 outputs, got 2"):
        cgp.RecursiveGP(proper(), NOISES, capacity=2)
