"""A state-space process as a cell: outliers, series in pieces, many keys, and an exported step."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import Matern12, Matern32, Rotation, WidelyLinear
from cgp.likelihoods import OneBit, StudentT
from cgp.online.cell import Sample


def tone():
    return Matern32(1.0, 5.0) * Rotation(0.3)


def series(count, batch=(), seed=0):
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.uniform(0.1, 0.5, (*batch, count)), axis=-1)
    noise = rng.normal(size=x.shape) + 1j * rng.normal(size=x.shape)
    return x, np.exp(0.6j * np.pi * x) + 0.2 * noise


# --- one sample with a likelihood -----------------------------------------------------------------


def test_does_a_process_weigh_an_outlier_as_a_window_does():
    x, z = series(8)
    z[5] += 8.0
    gp = cgp.StateSpaceGP(tone(), 0.1)
    window = cgp.RecursiveGP(tone(), 0.1, capacity=8)
    likelihood = StudentT(3.0)
    for i in range(8):
        result, expected = (
            process.step(x[i], z[i], likelihood=likelihood) for process in (gp, window)
        )
        for name in ("predicted", "filtered"):
            np.testing.assert_allclose(
                getattr(result, name), getattr(expected, name), rtol=1e-9, atol=1e-10
            )
    # The outlier stays one, for what is predicted before it too.
    np.testing.assert_allclose(
        gp.predict(x - 0.05)["mean"], window.predict(x - 0.05)["mean"], atol=1e-9
    )


def test_is_a_likelihood_of_single_samples_refused_where_it_is_none():
    gp = cgp.StateSpaceGP(tone(), 0.1)
    z = np.array([1j, 2.0])
    gp.step(1.0, z, likelihood=StudentT(3.0))
    before = gp.state
    with pytest.raises(TypeError, match=r"must be a cgp\.likelihoods\.StudentT or None"):
        gp.step(2.0, z, likelihood=OneBit())
    with pytest.raises(ValueError, match="x must not go back: got 0 after 1"):
        gp.step(0.0, z, likelihood=StudentT(3.0))
    np.testing.assert_array_equal(gp.state.mean, before.mean)
    improper = cgp.StateSpaceGP(tone(), 0.1, 0.05)
    with pytest.raises(ValueError, match="noise_pseudo_variance must be 0"):
        improper.step(0.0, 1j, likelihood=StudentT(3.0))


# --- series in pieces -----------------------------------------------------------------------------


@pytest.mark.parametrize("improper", [False, True])
def test_is_the_loss_of_pieces_that_of_whole_series(improper):
    """Values, gradients and moments; each series has places of its own, and a sample is missing."""
    x, z = series(7, (2,))
    z[0, 3] = np.nan
    kernel = WidelyLinear(Matern12(1.0, 5.0), 0.4j) if improper else Matern12(1.0, 5.0)
    gp = cgp.StateSpaceGP(kernel * Rotation(0.3) if not improper else kernel, 0.1)
    variables = [v.value for v in gp.trainable_variables]
    places, values = tf.constant(x[..., None]), tf.constant(z)

    def follow(cuts):
        state = gp.cell.initial_state(2, Sample(values[:, 0], places[:, 0]))
        total, outputs = 0.0, []
        for first, end in zip([0, *cuts], [*cuts, 7], strict=True):
            samples = Sample(values[:, first:end], places[:, first:end])
            state, moments, loss = gp.cell.follow(state, samples)
            total += loss * np.sum(~np.isnan(z[:, first:end]))
            outputs.append(moments["predicted_variance"])
        return total, tf.concat(outputs, axis=1)

    with tf.GradientTape() as tape:
        expected = -tf.reduce_sum(gp.log_marginal_likelihood(x[..., None], z))
    gradients = tape.gradient(expected, variables)
    alone = cgp.StateSpaceGP(gp.kernel, 0.1).process(x[0], z[0])
    for cuts in ((), (2, 5)):
        with tf.GradientTape() as tape:
            total, variance = follow(cuts)
        np.testing.assert_allclose(total, expected, rtol=1e-12)
        for a, b in zip(tape.gradient(total, variables), gradients, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(variance[0], alone.predicted.variance, rtol=1e-11)


def test_does_recursive_take_a_process_and_refuse_places_that_go_back():
    x, z = series(6, (2,))
    gp = cgp.StateSpaceGP(tone(), 0.1)
    layer = cgp.layers.Recursive(gp, stateful=True)
    pieces = [layer((x[:, i : i + 3, None], z[:, i : i + 3])) for i in (0, 3)]
    whole = cgp.layers.Recursive(gp)((x[..., None], z))
    for name, moments in whole.items():
        joined = np.concatenate([piece[name] for piece in pieces], axis=1)
        np.testing.assert_allclose(joined, moments, atol=1e-12, err_msg=name)
    with pytest.raises(tf.errors.InvalidArgumentError, match="x must not go back"):
        layer((x[:, :3, None], z[:, :3]))


# --- many keys, and a SavedModel ------------------------------------------------------------------


def test_are_groups_noise_and_likelihoods_of_keys_those_of_one_process_each():
    kernel, mean = WidelyLinear(tone(), 0.4j), cgp.means.Constant(1j)

    def process():
        return cgp.StateSpaceGP(kernel, [0.1, 0.3], mean=mean)

    bank, alone = cgp.Bank(process()), {key: process() for key in "ab"}
    keys, x, z = list("aabab"), np.array([0.0, 0.5, 0.7, 1.0, 2.0]), series(5)[1]
    groups, known = np.array([0, 1, 0, 1, 1]), np.array([0.0, 0.1, 0.0, 0.2, 0.0])
    for likelihood in (None, StudentT(3.0)):
        own = {} if likelihood is None else {"likelihood": likelihood}
        steps = bank.update(keys, z, x, noise_variance=known, noise_groups=groups, **own)
        for i, key in enumerate(keys):
            noise = {"noise_variance": known[i], "noise_groups": int(groups[i])}
            expected = alone[key].step(x[i], z[i], **noise, **own)
            for name in ("predicted", "filtered"):
                moments = [a[i] for a in getattr(steps, name)]
                np.testing.assert_allclose(moments, getattr(expected, name), atol=1e-12)
        x = x + 3.0
    places = [6.0, 7.5]
    forecast = bank.forecast(places, "a")
    for name, moments in alone["a"].predict(places).items():
        np.testing.assert_allclose(getattr(forecast, name), moments, atol=1e-12)
    with pytest.raises(ValueError, match="lies before the last sample"):
        bank.forecast([0.0], "a")


def test_does_an_exported_step_take_groups(tmp_path):
    gp = cgp.StateSpaceGP(Matern12(1.0, 3.0) * Rotation(0.1), [0.1, 0.5])
    gp.condition([0.0, 1.0], [1j, 2j], noise_groups=[0, 1])
    gp.export(tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    for x, z, group in ((1.5, 1j, 0), (2.0, 0.5 + 0j, 1)):
        result, expected = loaded.step(x, z, group), gp.step(x, z, noise_groups=group)
        for field in ("mean", "variance", "pseudo_variance"):
            for name in ("predicted", "filtered"):
                np.testing.assert_allclose(
                    result[f"{name}_{field}"], getattr(getattr(expected, name), field), atol=1e-12
                )
    ahead = loaded.predict(np.array([[3.0]]))
    np.testing.assert_allclose(ahead["mean"], gp.predict([3.0])["mean"], atol=1e-12)
