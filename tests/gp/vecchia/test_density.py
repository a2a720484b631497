"""The density by neighbours: dense with all of them, a loop of conditionals with few."""

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.gp.vecchia import density
from cgp.gp.vecchia.neighbours import half_distances, predecessors
from cgp.kernels import RBF, Rotation
from tests.gp.differences import assert_are_differences
from tests.gp.vecchia.fields import KINDS, kernel, process, scattered, simulated
from tests.reference import vecchia as reference

X_NEW = np.random.default_rng(5).uniform(0.0, 3.0, (5, 2))
NOISE = np.random.default_rng(6).uniform(0.0, 0.3, 40)


def both(kind):
    """A process with all samples before as neighbours, and the dense one."""
    data = scattered(40, 2, missing=[3, 17])
    pair = []
    for of in (cgp.VecchiaGP, cgp.ExactGP):
        arguments = {"neighbours": 39} if of is cgp.VecchiaGP else {}
        gp = process(kind, of, mean=cgp.means.Constant(0.3 + 0.1j), noise_scale=1.4, **arguments)
        gp.condition(*data, noise_variance=NOISE)
        pair.append(gp)
    return pair


def value_and_gradient(gp, variables=None):
    weights = tf.constant([1.0, 2.0], tf.float64)  # other cotangents for each series
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(weights * gp.log_marginal_likelihood())
    return value, tape.gradient(value, [v.value for v in gp.trainable_variables])


@pytest.fixture(params=[density._ENTRIES, 20_000])
def chunks(request, monkeypatch):
    monkeypatch.setattr(density, "_ENTRIES", request.param)


@pytest.mark.parametrize("kind", KINDS)
def test_are_value_and_gradient_of_all_neighbours_the_dense_ones(kind, chunks):
    gp, exact = both(kind)
    (value, gradients), (expected, dense) = map(value_and_gradient, (gp, exact))
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    for gradient, of_dense in zip(gradients, dense, strict=True):
        np.testing.assert_allclose(gradient, of_dense, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_are_predictions_by_all_samples_the_dense_ones(kind, observed, chunks):
    moments, expected = (gp.predict(X_NEW, observed=observed) for gp in both(kind))
    for name, moment in moments.items():
        np.testing.assert_allclose(moment, expected[name], rtol=1e-9, atol=1e-11)


def noisy(gp, x):
    k, c = gp.kernel.moments_matrix(x)
    noise = np.diag(0.05 + NOISE)
    c = 0.0 * k if c is None else c
    pseudo = 0.02j * np.eye(len(x)) if gp.observation_model.noise_circularity is not None else 0.0
    return k.numpy() + noise, np.asarray(c) + pseudo


def test_is_the_noise_of_groups_that_of_each_sample():
    x, z = scattered(25)
    groups = np.arange(25) % 2
    values = []
    for of in (cgp.VecchiaGP, cgp.ExactGP):
        arguments = {"neighbours": 24} if of is cgp.VecchiaGP else {}
        gp = of(kernel(), [0.05, 0.4], **arguments)
        gp.condition(x, z, noise_groups=groups)
        values.append((gp.log_marginal_likelihood(), gp.predict(X_NEW)["mean"]))
    for value, expected in zip(*values, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_is_the_density_of_few_neighbours_a_product_of_conditionals(kind):
    gp, (x, z) = process(kind, neighbours=5), scattered(40)
    rows, _ = predecessors(gp.kernel, x, np.ones(40, bool), 5)
    near = reference.predecessors(x, half_distances(gp.kernel, x), rows.numpy(), 5)
    expected = reference.log_likelihood(z, noisy(gp, x), near)
    value = gp.log_marginal_likelihood(x, z, noise_variance=NOISE)
    np.testing.assert_allclose(value, expected, rtol=1e-11)
    dense = gp.log_marginal_likelihood(x, z)
    assert abs(value - dense) > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_is_a_prediction_by_few_neighbours_the_dense_one_of_them(kind):
    gp, (x, z) = process(kind, neighbours=1), scattered(40)
    gp.condition(x, z, noise_variance=NOISE)
    moments, unit = gp.predict(X_NEW), half_distances(gp.kernel, x)
    for number, point in enumerate(X_NEW):
        near = np.argsort(np.sum(((x - point) / unit) ** 2, axis=-1))[:5]
        cross = [np.asarray(a)[:, 0] for a in moments_or_zeros(gp.kernel, x, point[None])]
        prior = [np.asarray(a)[0, 0] for a in moments_or_zeros(gp.kernel, point[None], point[None])]
        expected = reference.prediction(z, noisy(gp, x), cross, prior, near)
        for moment, reference_moment in zip(moments.values(), expected, strict=True):
            np.testing.assert_allclose(moment[number], reference_moment, rtol=1e-9, atol=1e-12)


def moments_or_zeros(of_kernel, x1, x2):
    k, c = of_kernel.moments_matrix(x1, x2)
    return k, tf.zeros_like(k) if c is None else c


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trains", [False, True])
def test_are_gradients_by_hyperparameters_differences(kind, trains):
    """Of a likelihood, and of the loss of a training step, which computes both at once."""
    gp, (x, z) = process(kind, neighbours=5, mean=cgp.means.Constant(0.3 + 0.1j)), scattered(40)
    data = gp.arranged(gp.data_of(x, z, noise=gp.noise_arguments(NOISE)))
    variables = gp.trainable_variables

    def evaluate():
        with tf.GradientTape() as tape:
            value = gp(data)["log_likelihood"] if trains else gp.data_log_likelihood(data)
            value = tf.reduce_sum(value)
        return value, tape.gradient(value, [v.value for v in variables])

    evaluate = tf.function(evaluate) if trains else evaluate
    value, gradients = evaluate()
    np.testing.assert_allclose(value, gp.log_marginal_likelihood(x, z, noise_variance=NOISE))
    assert_are_differences(lambda: evaluate()[0], variables, gradients, 1e-5, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_are_gradients_by_inputs_and_targets_differences(kind):
    gp, (x, z) = process(kind, neighbours=5), scattered(30)
    x, re, im = tf.Variable(x), tf.Variable(z.real), tf.Variable(z.imag)

    def loss():
        gp((x, tf.complex(re, im)))
        return gp.losses[0]

    with tf.GradientTape() as tape:
        value = loss()
    sources = [x, re, im]
    gradients = tape.gradient(value, sources)
    assert_are_differences(loss, sources, gradients, 1e-6, rtol=1e-6)


def test_does_a_wrong_conjugation_show():
    """Conjugated targets have another density: neighbours turn with their samples."""
    gp, (x, z) = process(neighbours=5), scattered(40)
    value, conjugated = (gp.log_marginal_likelihood(x, a) for a in (z, z.conj()))
    assert abs(value - conjugated) > 0.1


def test_is_a_second_derivative_an_error():
    gp = process(neighbours=3)
    gp.condition(*scattered(20))
    variable = gp.trainable_variables[0].value
    with tf.GradientTape() as outer:
        with tf.GradientTape() as tape:
            value = gp.log_marginal_likelihood()
        gradient = tape.gradient(value, variable)
    with pytest.raises(tf.errors.InvalidArgumentError, match="first derivatives alone"):
        outer.gradient(gradient, variable)


def test_are_some_rows_an_unbiased_estimate_of_all(monkeypatch):
    gp = cgp.VecchiaGP(RBF(1.0, 1.0) * Rotation([0.3, -0.2]), 0.05, neighbours=5)
    x, z = simulated(400, 9.0, 0.05)
    z[:50] = np.nan
    total = float(gp.log_marginal_likelihood(x, z))
    data, estimates = gp.data_of(x, z), []
    for seed in range(20):
        monkeypatch.setattr("cgp.gp.vecchia.neighbours._DRAW", seed + 1)
        held = predecessors(gp.kernel, x, ~np.isnan(z), 5, 100)
        estimates.append(float(gp.data_log_likelihood(data._replace(predecessors=held))[0]))
    error = np.std(estimates) / np.sqrt(20)
    assert abs(np.mean(estimates) - total) < 3.0 * error
    assert error < 20.0


def test_do_duplicates_have_a_density_and_predictions():
    x, z = scattered(30)
    gp = process(neighbours=8)
    gp.condition(np.concatenate([x, x, x]), np.concatenate([z, z, z]))
    assert np.isfinite(gp.log_marginal_likelihood())
    assert np.all(np.isfinite(gp.predict(x)["mean"]))
    gp.condition(np.zeros((30, 2)), z)
    np.testing.assert_allclose(
        gp.predict([[0.0, 0.0]])["mean"], 1.8 * np.sum(z) / (30 * 1.8 + 0.05), rtol=1e-9
    )


def test_is_the_kernel_of_a_graph_that_of_the_eager_function():
    gp, (x, z) = process("improper", neighbours=5), scattered(40, 2)
    compiled = tf.function(lambda x, z: gp.log_marginal_likelihood(x, z))
    np.testing.assert_allclose(compiled(x, z), gp.log_marginal_likelihood(x, z), rtol=1e-12)
    gp.condition(x, z)
    predict = tf.function(lambda x: gp.posterior(x).mean())
    np.testing.assert_allclose(predict(X_NEW), gp.predict(X_NEW)["mean"], rtol=1e-11)
    assert kernel().is_proper
