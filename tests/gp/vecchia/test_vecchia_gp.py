"""Processes by neighbours: what they learn, predict, keep and refuse."""

import copy
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.gp.vecchia import vecchia_gp
from cgp.gp.vecchia.neighbours import half_distances
from cgp.kernels import RBF, Coregionalized, Rotation
from tests.gp.vecchia.fields import KINDS, process, scattered, simulated

X_NEW = np.random.default_rng(5).uniform(0.0, 3.0, (6, 2))


def field(**arguments):
    return cgp.VecchiaGP(RBF(1.0, 1.0) * Rotation([0.3, -0.2]), 0.05, **arguments)


def conditioned(kind="proper", **arguments):
    gp = process(kind, **{"neighbours": 3, **arguments})
    gp.condition(*scattered(40, missing=[3]))
    return gp


def assert_same(gp, other):
    for name, value in gp.parameters().items():
        np.testing.assert_array_equal(other.parameters()[name], value)
    for name, value in gp.predict(X_NEW).items():
        np.testing.assert_allclose(other.predict(X_NEW)[name], value, rtol=1e-10, atol=1e-12)


# --- learning ------------------------------------------------------------------------------------


def test_does_a_fit_recover_hyperparameters_and_find_neighbours_again(monkeypatch):
    """From wrong length scales, of which the first neighbours are."""
    metrics = []

    def search(kernel, x, *arguments):
        metrics.append(half_distances(kernel, x))
        return predecessors(kernel, x, *arguments)

    predecessors = vecchia_gp.predecessors
    monkeypatch.setattr(vecchia_gp, "predecessors", search)
    x, z = simulated(800, 9.0, 0.05)
    gp = cgp.VecchiaGP(RBF(0.5, [0.3, 3.0]) * Rotation([0.25, -0.2]), 0.1, neighbours=10)
    gp.fit(x, z, verbose=0)
    first, second = metrics
    assert first[1] / first[0] > 8.0
    np.testing.assert_allclose(second[1] / second[0], 1.0, atol=0.15)
    np.testing.assert_allclose(second, half_distances(gp.kernel, x), rtol=0.2)
    truth = {"noise_variance": 0.05, "rbf.variance": 1.0, "rbf.lengthscale": 1.0}
    truth["rotation.frequency"] = [0.3, -0.2]
    errors = gp.parameter_errors(verbose=0)
    for name, value in gp.parameters().items():
        deviation = np.abs(value - truth[name]) / errors[name]
        assert np.all(deviation < 3.5), (name, value, errors[name])


def test_are_errors_those_of_as_many_samples_as_are_learned_from(monkeypatch):
    x, z = simulated(400, 6.0, 0.05)
    gp = field(neighbours=5)
    gp.condition(x, z)
    of_all = gp.parameter_errors(verbose=0)["noise_variance"]
    monkeypatch.setattr(vecchia_gp, "_MOST_ROWS", 100)
    np.testing.assert_allclose(
        gp.parameter_errors(verbose=0)["noise_variance"], 2.0 * of_all, rtol=0.4
    )


def test_does_a_fit_learn_from_some_samples_and_keep_all(monkeypatch):
    monkeypatch.setattr(vecchia_gp, "_MOST_ROWS", 50)
    x, z = simulated(200, 5.0, 0.05)
    z[:20] = np.nan
    gp = field(neighbours=5)
    history = gp.fit(x, z, epochs=2, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0] + 1e-9
    assert gp.arranged(gp.stored_data()).predecessors.rows.shape == [50]
    np.testing.assert_array_equal(gp.stored_data().z[0], z)


def test_does_a_keras_optimizer_learn():
    gp = field(neighbours=5)
    gp.compile(keras.optimizers.Adam(0.05))
    history = gp.fit(*simulated(60, 3.0, 0.05), epochs=3, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0]


def test_are_left_out_hyperparameters_started_and_restarts_compared():
    gp = cgp.VecchiaGP(RBF() * Rotation([0.3, -0.2]), neighbours=5)
    x, z = simulated(150, 5.0, 0.05)
    validation = x[:20], z[:20]
    history = gp.fit(x, z, epochs=5, restarts=2, validation_data=validation, verbose=0)
    assert len(history.optima) >= 1
    assert np.isfinite(history.history["val_loss"]).all()
    loss = gp.evaluate(x, z, verbose=0)
    np.testing.assert_allclose(loss, history.history["loss"][-1], rtol=0.05)


@pytest.mark.long
def test_are_processes_compared():
    x, z = simulated(120, 4.0, 0.05)
    exact = cgp.ExactGP(RBF(1.0, 1.0) * Rotation([0.3, -0.2]), 0.05)
    table = cgp.compare({"near": field(neighbours=8), "exact": exact}, x, z, folds=2, verbose=0)
    assert abs(table["near"].cv_density - table["exact"].cv_density) < 0.3


# --- predictions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_is_the_log_density_that_of_each_point(kind):
    x, z = scattered(40)
    gp, exact = process(kind, neighbours=8), process(kind, cgp.ExactGP)
    gp.condition(x, z)
    exact.condition(x, z)
    values = scattered(6, seed=8)[1]
    densities = gp.posterior(X_NEW, observed=True).log_prob(values)
    for number in range(6):
        single = exact.posterior(X_NEW[number : number + 1], observed=True)
        expected = single.log_prob(values[number : number + 1])
        np.testing.assert_allclose(densities[number], expected, rtol=1e-9)


def test_is_the_posterior_before_data_the_prior():
    prior = process(neighbours=3).posterior(X_NEW)
    np.testing.assert_allclose(prior.variance(), 1.8)
    assert prior.covariance().shape == [6, 6]
    assert process(neighbours=3).sample(X_NEW, 2, seed=0).shape == (2, 6)


def test_do_predictions_follow_hyperparameters_and_data():
    gp, other = conditioned(), conditioned()
    gp.predict(X_NEW)
    gp.kernel.parts[0].parts[0].lengthscale.assign([2.0, 0.3])
    other.kernel.parts[0].parts[0].lengthscale.assign([2.0, 0.3])
    assert_same(other, gp)
    gp.condition(*scattered(40, 2, seed=3))
    assert gp.predict(X_NEW)["mean"].shape == (2, 6)
    assert gp.predict(X_NEW)["variance"].shape in ((6,), (2, 6))


def test_is_the_noise_of_a_point_added():
    gp = conditioned()
    signal, observed = gp.predict(X_NEW), gp.predict(X_NEW, observed=True, noise_variance=0.3)
    np.testing.assert_allclose(observed["variance"], signal["variance"] + 0.35)


def test_passes_a_gradient_to_new_points():
    gp, x = conditioned(), tf.Variable(X_NEW)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(gp.posterior(x).variance())
    gradient, step = tape.gradient(value, x).numpy(), np.zeros_like(X_NEW)
    step[2, 1] = 1e-6
    up, down = (np.sum(gp.predict(X_NEW + sign * step)["variance"]) for sign in (1.0, -1.0))
    np.testing.assert_allclose(gradient[2, 1], (up - down) / 2e-6, rtol=1e-5)


# --- saving and layers ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_does_it_save_its_data(kind, tmp_path):
    gp = conditioned(kind)
    gp.save(tmp_path / "gp.keras")
    loaded = cgp.load_model(tmp_path / "gp.keras")
    assert loaded.neighbours == 3
    assert_same(gp, loaded)
    gp.save_weights(tmp_path / "gp.weights.h5")
    fresh = process(kind, neighbours=3)
    fresh.load_weights(tmp_path / "gp.weights.h5")
    assert_same(gp, fresh)


def test_is_a_copy_the_same():
    gp = conditioned()
    for other in (copy.deepcopy(gp), pickle.loads(pickle.dumps(gp))):
        assert_same(gp, other)
    clone = cgp.clone_model(gp)
    clone.condition(*scattered(40, missing=[3]))
    assert_same(gp, clone)


def test_does_an_exported_model_predict_the_same(tmp_path):
    gp = conditioned()
    gp.export(tmp_path / "gp")
    served = tf.saved_model.load(str(tmp_path / "gp"))
    moments = served.predict(tf.constant(X_NEW))
    for name, value in gp.predict(X_NEW).items():
        np.testing.assert_allclose(moments[name], value, rtol=1e-9, atol=1e-12)


def test_does_a_layer_add_its_loss_and_train():
    x, z = simulated(30, 2.0, 0.05)
    gp = field(neighbours=4)
    inputs = keras.Input(batch_shape=(30, 2), dtype="float64")
    targets = keras.Input(batch_shape=(30,), dtype="complex128")
    model = cgp.Functional([inputs, targets], gp((inputs, targets))["mean"])
    model.compile(keras.optimizers.Adam(0.05))
    first = float(model.train_on_batch([x, z]))
    gp.condition(x, z)
    losses = [float(model.train_on_batch([x, z])) for _ in range(3)]
    assert losses[-1] < first
    expected = -float(field(neighbours=4).log_marginal_likelihood(x, z)) / 30
    np.testing.assert_allclose(first, expected, rtol=1e-9)


# --- refusals ------------------------------------------------------------------------------------

REFUSED = {
    "no neighbours": (lambda: field(neighbours=0), "neighbours"),
    "likelihood": (
        lambda: field(likelihood=cgp.likelihoods.StudentT(4.0)),
        "a VecchiaGP has no likelihood.*take ExactGP",
    ),
    "noise fraction": (lambda: field(noise_fraction=None), "a VecchiaGP has no noise_fraction"),
    "outputs": (
        lambda: cgp.VecchiaGP(Coregionalized(RBF(), outputs=2), 0.1),
        "a VecchiaGP is of one signal",
    ),
    "trend": (
        lambda: cgp.VecchiaGP(RBF(), 0.1, mean=cgp.means.Polynomial(0, marginalized=True)),
        "a marginalised trend is not of a VecchiaGP",
    ),
    "derivatives": (
        lambda: cgp.VecchiaGP(RBF(), 0.1).condition(
            np.arange(9.0), scattered(9)[1], observed="derivative"
        ),
        "derivatives and exposures are not taken",
    ),
    "a term": (
        lambda: (lambda gp: gp.posterior(X_NEW, part=gp.kernel.parts[0]))(conditioned()),
        "predicts the whole signal",
    ),
    "covariance": (
        lambda: conditioned().posterior(X_NEW).covariance(),
        "no covariance between them: take an ExactGP of the samples near.*or a SparseGP",
    ),
    "draws": (lambda: conditioned().sample(X_NEW), "no draws of them together"),
    "series with inputs": (
        lambda: field().condition(np.zeros((2, 9, 2)), scattered(9, 2)[1]),
        "series of a VecchiaGP share inputs",
    ),
    "series with other missing samples": (
        lambda: field().condition(
            scattered(9)[0], np.where(np.eye(2, 9) > 0, np.nan, scattered(9)[1])
        ),
        "the samples that are missing",
    ),
    "a list of series": (lambda: field().fit([scattered(9)], engine=map), "learns from one x"),
    "points of series": (lambda: conditioned().predict(X_NEW[None]), r"x must be \[M\]"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_it_cannot_is_refused_in_words(case):
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_is_a_graph_of_series_with_other_missing_samples_an_error():
    x, z = scattered(9, 2)
    z[0, 3] = np.nan
    gp = field(neighbours=2)
    evaluate = tf.function(lambda z: gp.log_marginal_likelihood(x, z))
    with pytest.raises(tf.errors.InvalidArgumentError, match="must miss the same samples"):
        evaluate(z)
