"""Streams through a StateSpaceGP: blocks, states, memory, and what is not held any more."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.gp.state_space.history import History
from cgp.kernels import Matern32, Rotation, WidelyLinear
from tests.long_cases import long_except


def tone():
    return Matern32(1.0, 5.0) * Rotation(0.3)


def series(count, seed=0):
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.uniform(0.1, 0.5, count))
    noise = rng.normal(size=count) + 1j * rng.normal(size=count)
    return x, np.exp(0.6j * np.pi * x) + 0.2 * noise


@pytest.fixture
def short_memory(monkeypatch):
    monkeypatch.setattr(History, "kept", 16)


@pytest.mark.parametrize("improper", [False, True])
def test_is_a_block_its_steps(improper):
    x, z = series(12)
    z[[3, 7]] = np.nan
    kernel = WidelyLinear(tone(), 0.4j) if improper else tone()
    mean = cgp.means.Constant(0.5 - 1j)
    one, other = (cgp.StateSpaceGP(kernel, 0.1, mean=mean) for _ in range(2))
    block = one.process(x, z)
    for i in range(12):
        step = other.step(x[i], z[i])
        np.testing.assert_allclose(block.predicted.mean[i], step.predicted.mean, atol=1e-12)
        np.testing.assert_allclose(block.innovation[i], step.innovation, atol=1e-12)
        for name in ("mean", "variance", "pseudo_variance"):
            np.testing.assert_allclose(
                getattr(block.filtered, name)[i], getattr(step.filtered, name), atol=1e-12
            )
    for a, b in zip(one.state, other.state, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    with pytest.raises(ValueError, match="places of a block must be in order"):
        one.process(x[::-1] + 20.0, z)


def test_are_forecasts_and_smoothing_of_a_long_stream_those_of_all_samples(short_memory, tmp_path):
    x, z = series(90)
    gp, exact = cgp.StateSpaceGP(tone(), 0.2), cgp.ExactGP(tone(), 0.1)
    gp.noise_variance.assign(0.1)  # a file holds where it started, and its weights
    gp.condition(x[:20], z[:20])
    for i in range(20, 70):
        gp.step(x[i], z[i])
    gp.process(x[70:], z[70:])
    exact.condition(x, z)
    held = int(gp._stored.data.z.shape[1])
    assert held <= 2 * 16 + 20  # of 90
    recent = x[-held + 8 :] - 0.05
    gp.save(tmp_path / "gp.keras")
    for stream in (gp, keras.models.load_model(tmp_path / "gp.keras")):
        for new in (recent, x[-1] + np.array([3.0, 0.0, 1.0])):
            found, expected = stream.posterior(new), exact.posterior(new)
            np.testing.assert_allclose(found.mean(), expected.mean(), atol=1e-10)
            np.testing.assert_allclose(found.covariance(), expected.covariance(), atol=1e-10)
    assert gp.sample(x[-1:] + 1.0, 3, seed=1).shape == (3, 1)


def test_what_is_not_held_any_more_is_refused(short_memory):
    x, z = series(80)
    gp = cgp.StateSpaceGP(tone(), 0.1)
    gp.process(x, z)
    for verb in (gp.predict, gp.posterior, gp.sample):
        with pytest.raises(ValueError, match="before the samples that are still held"):
            verb(x[:1])
    for _ in range(2):
        with pytest.raises(ValueError, match="holds its latest samples alone"):
            gp.log_marginal_likelihood()
        gp.noise_variance.assign(0.2)


@pytest.mark.parametrize(("kept", "changes"), long_except([(2, 12), (8, 40), (16, 100)], (2, 12)))
def test_does_a_change_of_hyperparameters_take_what_is_held(kept, changes, monkeypatch):
    monkeypatch.setattr(History, "kept", kept)
    x, z = series(80)
    gp, other = cgp.StateSpaceGP(tone(), 0.1), cgp.StateSpaceGP(tone(), 0.1)
    gp.process(x, z)
    held = int(gp._stored.data.z.shape[1])
    for process in (gp, other):
        process.noise_variance.assign(0.5)
    other.condition(x[-held:], z[-held:])
    warns = pytest.warns(UserWarning, match=f"process of the {held} samples still held")
    with warns, pytest.raises(ValueError, match="before the samples that are still held"):
        gp.predict(x[:1])
    new = [x[-1] + 1.0]
    np.testing.assert_allclose(gp.predict(new)["mean"], other.predict(new)["mean"], atol=1e-12)
    found, expected = gp.step(x[-1] + 1.0, 1j), other.step(x[-1] + 1.0, 1j)
    np.testing.assert_allclose(found.filtered.mean, expected.filtered.mean, atol=1e-12)
    for i in range(changes):  # changes all the time do not make memory grow
        gp.noise_variance.assign(0.6 + 0.001 * i)
        with pytest.warns(UserWarning, match="samples still held"):
            gp.step(x[-1] + 2.0 + i, 1j)
    assert int(gp._stored.data.z.shape[1]) <= 6 * kept


def test_does_a_reset_forget_everything():
    x, z = series(10)
    gp = cgp.StateSpaceGP(tone(), 0.1)
    with pytest.raises(ValueError, match="there is no state yet"):
        _ = gp.state
    gp.condition(x, z)
    mean, chol = gp.state
    assert mean.shape == (2,)
    assert chol.shape == (2, 2)
    gp.step(x[-1] + 1.0, 1j)
    gp.reset()
    np.testing.assert_allclose(gp.predict([1.0])["variance"], [1.0], rtol=1e-13)
    first = gp.step(0.0, np.array([1j, 2j]))  # back in time, and of another batch
    np.testing.assert_allclose(first.predicted.variance, [1.1, 1.1], rtol=1e-13)


def test_do_batches_keep_their_axes_when_a_state_is_read_or_saved(tmp_path):
    x, z = series(6)
    z = np.stack([z, 2j * z])
    gp, alone = cgp.StateSpaceGP(tone(), 0.1), cgp.StateSpaceGP(tone(), 0.1)
    gp.step(0.0, 1j)  # one series, forgotten with the data of two
    gp.condition(x, z)
    alone.condition(x, z[1])
    assert gp.state.mean.shape == (2, 2)
    gp.save(tmp_path / "two.keras")
    loaded = keras.models.load_model(tmp_path / "two.keras")
    expected = alone.step(x[-1] + 1.0, 3j)
    for both in (gp, loaded):
        with pytest.raises(ValueError, match=r"batch axes of the data, \[2\], got \[\]"):
            both.step(x[-1] + 1.0, 3j)
        found = both.step(x[-1] + 1.0, np.array([1j, 3j]))
        np.testing.assert_allclose(found.filtered.mean[1], expected.filtered.mean, atol=1e-12)
        assert both.posterior(x[:3]).mean().shape == (2, 3)


@pytest.mark.parametrize("block", [False, True])
def test_does_a_first_sample_that_fails_leave_no_trace(block):
    gp = cgp.StateSpaceGP(tone(), 0.1)
    value = gp.noise_variance.variable.numpy()
    gp.noise_variance.variable.assign(np.nan)
    take_in = gp.process if block else gp.step
    x, z = ([100.0], np.ones([2, 1], complex)) if block else (100.0, np.ones(2, complex))
    with pytest.raises(ValueError, match="finite"):
        take_in(x, z)
    gp.noise_variance.variable.assign(value)
    first = gp.step(1.0, 1j)  # before, and of one series
    np.testing.assert_allclose(first.predicted.variance, 1.1, rtol=1e-13)


def test_does_the_graph_of_a_likelihood_refuse_what_is_not_held_any_more(short_memory):
    x, z = series(60)
    gp = cgp.StateSpaceGP(tone(), 0.1)
    gp.condition(x[:20], z[:20])
    likelihood = tf.function(gp.log_marginal_likelihood)
    np.testing.assert_allclose(likelihood(), gp.log_marginal_likelihood(), rtol=1e-12)
    for i in range(20, 60):
        gp.step(x[i], z[i])
    for change in (False, True):
        if change:
            gp.noise_variance.assign(0.2)
        with pytest.raises(tf.errors.InvalidArgumentError, match="holds its latest samples alone"):
            likelihood()


@pytest.mark.long
def test_does_the_graph_of_a_posterior_refuse_what_is_not_held_any_more(short_memory):
    x, z = series(60)
    gp = cgp.StateSpaceGP(tone(), 0.1)
    gp.condition(x[:20], z[:20])
    mean = tf.function(lambda x: gp.posterior(x).mean())
    for i in range(20, 60):
        gp.step(x[i], z[i])
    late = x[-1] + np.array([-0.1, 0.2])
    for change in (False, True):
        if change:
            gp.noise_variance.assign(0.2)
        with pytest.raises(tf.errors.InvalidArgumentError, match="before the samples"):
            mean(np.array([x[0], x[-1]]))
        with pytest.warns(UserWarning, match="still held") if change else contextlib.nullcontext():
            np.testing.assert_allclose(mean(late), gp.posterior(late).mean(), rtol=1e-10)


def test_may_no_points_be_asked_of_a_stream():
    gp = cgp.StateSpaceGP(tone(), 0.1)
    gp.step(0.0, 1j)
    assert gp.posterior(np.zeros(0)).mean().shape == (0,)


def learned(gp):
    """A new process with the hyperparameters that `gp` has now."""
    now = gp.parameters()
    kernel = Matern32(now["matern32.variance"], now["matern32.lengthscale"])
    return cgp.StateSpaceGP(kernel * Rotation(now["rotation.frequency"]), now["noise_variance"])


@pytest.mark.parametrize(
    ("verb", "dropped"),
    long_except(
        [(verb, dropped) for verb in ("condition", "fit") for dropped in (False, True)],
        ("condition", False),
        ("fit", True),
    ),
)
def test_do_other_data_replace_a_stream(verb, dropped, short_memory):
    """What came before is forgotten, and the stream goes on from the new data, back in time too."""
    x, z = series(50 if dropped else 10)
    other_x, other_z = series(14, seed=1)
    gp = cgp.StateSpaceGP(tone(), 0.1)
    gp.compile(keras.optimizers.Adam(0.05), run_eagerly=True)
    gp.process(x[:-2], z[:-2])
    for i in (-2, -1):
        gp.step(x[i], z[i])
    if verb == "condition":
        gp.condition(other_x[:9], other_z[:9])
        assert gp.parameters() == cgp.StateSpaceGP(tone(), 0.1).parameters()
    else:
        gp.fit(other_x[:9], other_z[:9], epochs=2, verbose=0)
        assert abs(gp.parameters()["noise_variance"] - 0.1) > 1e-3
    fresh = learned(gp)
    fresh.condition(other_x[:9], other_z[:9])
    for i in range(9, 14):
        found, expected = (process.step(other_x[i], other_z[i]) for process in (gp, fresh))
        for name in ("predicted", "filtered"):
            np.testing.assert_allclose(
                getattr(found, name), getattr(expected, name), rtol=1e-11, atol=1e-12
            )
    for a, b in zip(gp.state, fresh.state, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)
    new = np.linspace(other_x[0] - 1.0, other_x[-1] + 1.0, 6)
    for name, value in fresh.predict(new).items():
        np.testing.assert_allclose(gp.predict(new)[name], value, rtol=1e-10, atol=1e-12)
    exact = cgp.ExactGP(fresh.kernel, float(fresh.noise_variance))
    expected = exact.log_marginal_likelihood(other_x, other_z)
    np.testing.assert_allclose(gp.log_marginal_likelihood(), expected, rtol=1e-10)
