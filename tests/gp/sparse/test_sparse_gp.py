"""Processes by inducing points: what they choose, learn, keep and refuse."""

import copy
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.gp.sparse.inducing_points import pivots
from cgp.kernels import RBF, Constant, Coregionalized, Rotation, WidelyLinear
from tests.gp.problems import complex_normals
from tests.long_cases import eagerly_or_in_a_graph
from tests.reference import sparse as reference

X_NEW = np.random.default_rng(5).uniform(0.0, 3.0, (6, 2))


def kernel(**arguments):
    return RBF(0.8, 1.2, **arguments) * Rotation([0.5, 0.2], **arguments)


def plane(n=150, seed=0, noise=0.05):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 3.0, (n, 2))
    z = np.exp(2j * np.pi * x @ [0.5, 0.2]) * (1.0 + 0.3 * np.cos(2.0 * x[:, 0]))
    return x, z + noise * complex_normals(rng, n)


def conditioned(**arguments):
    gp = cgp.SparseGP(kernel(), 0.01, **{"inducing": 30, **arguments})
    gp.condition(*plane())
    return gp


def assert_same(gp, other):
    for name, value in gp.parameters().items():
        np.testing.assert_array_equal(other.parameters()[name], value)
    np.testing.assert_array_equal(other.inducing.numpy(), gp.inducing.numpy())
    moments = other.predict(X_NEW)
    for name, value in gp.predict(X_NEW).items():
        np.testing.assert_allclose(moments[name], value, rtol=1e-10, atol=1e-12)


# --- choice of inducing points -----------------------------------------------------------------


def test_are_points_those_of_largest_conditional_variance():
    x, of_kernel = np.random.default_rng(0).uniform(0.0, 3.0, (40, 2)), kernel() + Constant(0.1)
    expected = reference.greedy(of_kernel.covariance(x).numpy(), 15)
    np.testing.assert_array_equal(pivots(of_kernel, x, 15), expected)


def test_are_there_no_more_points_than_different_places():
    x, z = plane(12)
    gp = cgp.SparseGP(kernel(), 0.01, inducing=50)
    gp.condition(np.concatenate([x, x]), np.concatenate([z, z]))
    assert len(gp.inducing.numpy()) == 12
    assert sorted(map(tuple, gp.inducing.numpy())) == sorted(map(tuple, x))


def test_do_points_chosen_stay_with_later_data():
    gp = conditioned()
    before = gp.inducing.numpy()
    gp.condition(*plane(seed=1))
    np.testing.assert_array_equal(gp.inducing.numpy(), before)


def test_does_a_fit_choose_points_by_started_hyperparameters():
    x, z = plane()
    gp = cgp.SparseGP(RBF() * Rotation([0.5, 0.2]), inducing=30)
    gp.compile("sgd", run_eagerly=True)
    gp.optimizer.learning_rate = 0.0
    gp.fit(x, z, verbose=0)
    np.testing.assert_allclose(gp.inducing.numpy(), x[pivots(gp.kernel, x, 30)], rtol=1e-14)


def test_are_few_points_warned_of():
    gp = cgp.SparseGP(RBF(1.0, 0.1), 0.01, inducing=5)
    with pytest.warns(RuntimeWarning, match="leave 9.% of the variance of the signal"):
        gp.condition(*plane())


@pytest.mark.filterwarnings("ignore:after this fit .* leave")
def test_are_points_warned_of_that_are_too_few_for_the_length_scale():
    rng = np.random.default_rng(3)
    x, frequencies = rng.uniform(0.0, 40.0, 400), rng.normal(size=200) / (2.0 * np.pi)
    z = np.exp(2j * np.pi * x[:, None] * frequencies) @ complex_normals(rng, 200) / np.sqrt(200)
    z += 0.3 * complex_normals(rng, 400)  # an RBF kernel of length scale 1, in noise
    few = cgp.SparseGP(RBF(), inducing=12)
    with pytest.warns(RuntimeWarning, match="points are too few: .* inducing=24, or a VecchiaGP"):
        few.fit(x, z, epochs=15, verbose=0)
    before = few.parameters(), few.predict([1.0])["mean"]
    assert few.suspicions(few.stored_data())
    assert (few.parameters(), few.predict([1.0])["mean"]) == before  # values are put back
    enough = cgp.SparseGP(RBF(), inducing=60)
    enough.fit(x, z, epochs=15, verbose=0)  # without a warning
    assert enough.parameters()["rbf.lengthscale"] == pytest.approx(1.0, rel=0.25)
    assert few.parameters()["rbf.lengthscale"] > 1.5


# --- learning ------------------------------------------------------------------------------------


def fits(fixed=()):
    """The fits of a sparse process and of an exact one, and their losses."""
    x, z = plane(80)
    sparse = cgp.SparseGP(kernel(), 0.05, inducing=25, fixed=fixed)
    sparse.compile(cgp.optimizers.LBFGS())
    exact = cgp.ExactGP(kernel(), 0.05)
    losses = [gp.fit(x, z, epochs=25, verbose=0).history["loss"][-1] for gp in (sparse, exact)]
    return sparse, exact, losses


@pytest.mark.long
@pytest.mark.parametrize("fixed", [(), "inducing"])
def test_does_a_fit_come_near_the_exact_one(fixed):
    sparse, exact, losses = fits(fixed)
    assert losses[1] < losses[0] + 1e-6 < losses[1] + 0.02
    names = [*sparse.parameters()]
    assert names == [*exact.parameters()]
    assert not any("inducing" in name for name in names)
    for name, value in exact.parameters().items():
        np.testing.assert_allclose(sparse.parameters()[name], value, rtol=0.1, atol=0.02)
    assert any(v is sparse.inducing.variable for v in sparse.trainable_variables) != bool(fixed)
    np.testing.assert_allclose(
        sparse.predict(X_NEW)["mean"], exact.predict(X_NEW)["mean"], atol=0.02
    )


@pytest.mark.long
def test_are_errors_of_hyperparameters_near_the_exact_ones():
    sparse, exact, _ = fits()
    errors = sparse.parameter_errors(verbose=0)
    for name, error in exact.parameter_errors(verbose=0).items():
        np.testing.assert_allclose(errors[name], error, rtol=0.3)
    assert any(v is sparse.inducing.variable for v in sparse.trainable_variables)


@eagerly_or_in_a_graph
def test_does_a_keras_optimizer_learn_and_keep_the_state_current(eagerly):
    gp = cgp.SparseGP(kernel(), 0.1, inducing=20)
    gp.compile(keras.optimizers.Adam(0.05), run_eagerly=eagerly)
    history = gp.fit(*plane(), epochs=3, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0]
    fresh = cgp.SparseGP.from_config(gp.get_config())
    fresh.set_weights(gp.get_weights())
    fresh.condition(*plane())
    assert_same(gp, fresh)


def dataset():
    x, z = plane(60)
    pairs = [(x, z), (x[:40], 2.0 * z[:40])]
    specs = tf.TensorSpec([None, 2], tf.float64), tf.TensorSpec([None], tf.complex128)
    return tf.data.Dataset.from_generator(lambda: iter(pairs), output_signature=specs), pairs


WAYS_TO_LEARN = {
    "dataset": lambda gp: gp.fit(dataset()[0], epochs=3, verbose=0),
    "engine": lambda gp: gp.fit(dataset()[1], engine=map, epochs=3, verbose=0),
    "groups": lambda gp: gp.fit(
        *plane(60), noise_groups=np.arange(60) % 2, epochs=3, restarts=2, verbose=0
    ),
}


@pytest.mark.filterwarnings("ignore:.*the inducing points")
@pytest.mark.parametrize("way", [pytest.param(w, marks=pytest.mark.long) for w in WAYS_TO_LEARN])
def test_is_it_learned_in_all_ways_of_an_exact_process(way):
    noise = [0.05, 0.1] if way == "groups" else 0.05
    gp = cgp.SparseGP(kernel(), noise, inducing=plane(60)[0][::6])
    gp.compile(cgp.optimizers.LBFGS())
    losses = WAYS_TO_LEARN[way](gp).history["loss"]
    assert losses[-1] < losses[0]


def test_is_a_change_of_hyperparameters_noticed():
    gp = conditioned()
    gp.kernel.parts[0].lengthscale.assign(0.9)
    gp.inducing.assign(gp.inducing.numpy() + 0.01)
    fresh = cgp.SparseGP(RBF(0.8, 0.9) * Rotation([0.5, 0.2]), 0.01, inducing=gp.inducing.numpy())
    fresh.condition(*plane())
    np.testing.assert_allclose(gp.predict(X_NEW)["mean"], fresh.predict(X_NEW)["mean"], rtol=1e-9)


def of_two_hyperparameters():
    of_kernel = RBF(0.8, 1.2) * Rotation([0.5, 0.2], fixed="frequency")
    gp = cgp.SparseGP(of_kernel, 0.01, inducing=8, fixed="noise_variance")
    gp.condition(*plane(20))
    return gp


def test_holds_a_density_of_hyperparameters_the_points():
    gp = of_two_hyperparameters()
    variables = gp.variables_of_hyperparameters
    weights = [tf.constant(v.numpy()) for v in variables]
    with tf.GradientTape() as tape:
        tape.watch(weights)
        density = gp.log_density(weights)
    # The weights are logarithms, whose Jacobian is their sum; the priors are weak ones of a fit.
    gradients = tape.gradient(density, weights)
    with tf.GradientTape() as tape:
        value = gp.log_marginal_likelihood()
    of_bound = tape.gradient(value, [v.value for v in variables])
    np.testing.assert_allclose(gradients, np.array(of_bound) + 1.0, rtol=1e-9)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:of these draws")
def test_do_draws_of_hyperparameters_hold_the_points():
    gp = of_two_hyperparameters()
    before = gp.inducing.numpy()
    draws = gp.sample_parameters(chains=2, draws=4, warmup=4, seed=0, verbose=0)
    assert {*draws} == {"rbf.variance", "rbf.lengthscale"}
    np.testing.assert_array_equal(gp.inducing.numpy(), before)
    assert any(v is gp.inducing.variable for v in gp.trainable_variables)


@pytest.mark.long
@pytest.mark.long
def test_does_a_comparison_count_hyperparameters_alone():
    x, z = plane(30)
    gp = cgp.SparseGP(kernel(), 0.01, inducing=5)
    scores = cgp.compare({"sparse": gp}, x, z, folds=2)
    # A variance, a length scale, two frequencies and the noise variance, but no inducing points.
    assert scores["sparse"].parameters == 5


def test_do_weights_of_another_number_of_points_find_room():
    gp, other = conditioned(), conditioned(inducing=20)
    expected = other.predict(X_NEW)
    weights = other.get_weights()
    for process in (gp, other):
        process.set_weights(weights)
        process.condition(*plane())
        assert process.inducing.numpy().shape == (20, 2)
        for name, moment in process.predict(X_NEW).items():
            np.testing.assert_array_equal(moment, expected[name])
    with pytest.raises(ValueError, match="weight"):
        gp.set_weights(weights[:-1])


@pytest.mark.long
def test_does_a_comparison_take_fewer_data_than_inducing_points():
    x, z = plane(n=40)
    models = {"sparse": cgp.SparseGP(kernel(), fixed="inducing"), "exact": cgp.ExactGP(kernel())}
    result = cgp.compare(models, x, z, folds=2, restarts=1, verbose=0)
    errors = [scores.cv_error_db for scores in result.values()]
    assert errors[0] == pytest.approx(errors[1], abs=1.0)  # dB; its optima are less sharp
    assert models["sparse"].inducing.numpy().shape == (40, 2)


def test_is_the_loss_of_a_call_that_of_the_bound():
    x, z = plane(60)
    gp = conditioned()
    moments = gp((x, z))
    np.testing.assert_allclose(gp.losses[0], -gp.log_marginal_likelihood(x, z) / 60, rtol=1e-12)
    other = cgp.SparseGP(kernel(), 0.01, inducing=gp.inducing.numpy())
    other.condition(x, z)
    np.testing.assert_allclose(moments["mean"], other.predict(x)["mean"], atol=1e-10)


def test_is_a_graph_like_the_eager_model():
    gp = conditioned()
    expected = gp.predict(X_NEW)
    moments = tf.function(gp)(tf.constant(X_NEW))
    for name, value in expected.items():
        np.testing.assert_allclose(moments[name], value, rtol=1e-10, atol=1e-12)
    early = cgp.SparseGP(kernel(), 0.01, inducing=30)
    function = tf.function(lambda x: early(x)["variance"])
    np.testing.assert_allclose(function(tf.constant(X_NEW)), 0.8)
    early.condition(*plane())
    with pytest.raises(tf.errors.InvalidArgumentError, match="trace it again"):
        function(tf.constant(X_NEW))


def test_are_draws_those_of_the_posterior():
    gp = conditioned()
    draws = gp.sample(X_NEW[:2], 4000, seed=0)
    posterior = gp.posterior(X_NEW[:2])
    deviation = draws - posterior.mean().numpy()
    covariance = np.mean(deviation[:, :, None] * np.conj(deviation[:, None]), axis=0)
    scale = np.abs(posterior.covariance().numpy()).max()
    np.testing.assert_allclose(covariance, posterior.covariance(), atol=0.1 * scale)
    prior = cgp.SparseGP(kernel(), 0.01).sample(X_NEW, 3000, seed=0)
    np.testing.assert_allclose(np.mean(np.abs(prior) ** 2, axis=0), 0.8, rtol=0.1)


# --- files ---------------------------------------------------------------------------------------


WAYS = {"deepcopy": copy.deepcopy, "pickle": lambda gp: pickle.loads(pickle.dumps(gp))}


def fitted():
    gp = cgp.SparseGP(WidelyLinear(kernel(), 0.2j), 0.02, 0.01j, inducing=12)
    gp.compile(keras.optimizers.Adam(0.02), run_eagerly=True)
    gp.fit(*plane(60), epochs=2, verbose=0)
    return gp


@pytest.mark.filterwarnings("ignore:.*the inducing points")
def test_does_a_saved_model_predict_at_once_and_train_on(tmp_path):
    gp = fitted()
    gp.save(tmp_path / "gp.keras")
    loaded = cgp.load_model(tmp_path / "gp.keras")
    assert_same(gp, loaded)
    gp.save_weights(tmp_path / "gp.weights.h5")
    other = cgp.SparseGP(WidelyLinear(kernel(), 0.2j), 0.02, 0.01j, inducing=12)
    other.load_weights(tmp_path / "gp.weights.h5")
    assert_same(gp, other)
    for model in (gp, loaded):
        model.run_eagerly = True
        model.fit(*plane(60), epochs=2, verbose=0)
    np.testing.assert_allclose(loaded.inducing.numpy(), gp.inducing.numpy(), rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore:.*the inducing points")
def test_is_a_copy_like_the_model(way):
    gp = fitted()
    assert_same(gp, WAYS[way](gp))


@pytest.mark.filterwarnings("ignore:.*the inducing points")
def test_is_a_clone_fresh():
    gp = conditioned(inducing=12)
    clone = cgp.clone_model(gp)
    assert clone.inducing.is_left_out
    np.testing.assert_array_equal(clone.predict(X_NEW)["mean"], 0.0)
    clone.condition(*plane(100, seed=3))
    assert len(clone.inducing.numpy()) == 12


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*the inducing points")
def test_does_an_exported_model_predict(tmp_path):
    gp = fitted()
    gp.export(tmp_path / "gp", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "gp"))
    for name, value in gp.predict(X_NEW).items():
        np.testing.assert_allclose(served.predict(tf.constant(X_NEW))[name], value, atol=1e-10)


def test_does_single_precision_work():
    x, z = plane()
    gp = cgp.SparseGP(kernel(dtype="float32"), 0.01, inducing=15)
    gp.condition(x.astype("float32"), z.astype("complex64"))
    exact = conditioned(inducing=15)
    np.testing.assert_allclose(
        gp.predict(X_NEW.astype("float32"))["mean"], exact.predict(X_NEW)["mean"], atol=0.02
    )


# --- refusals ------------------------------------------------------------------------------------

REFUSED = {
    "outputs": (
        lambda: cgp.SparseGP(Coregionalized(kernel(), outputs=2), 0.1),
        ValueError, "a SparseGP is of one signal, and .* of 2: take ExactGP, or StateSpaceGP"),
    "a marginalised trend": (
        lambda: cgp.SparseGP(RBF(1.0, 1.0), 0.1, mean=cgp.means.Polynomial(0, marginalized=True)),
        ValueError, "a marginalised trend is not of a SparseGP: give Polynomial its coefficients"),
    "a mean that marginalises": (
        lambda: cgp.SparseGP(RBF(1.0, 1.0), 0.1, mean=cgp.means.Rational(0)).fit(
            np.arange(9.0), np.exp(1j * np.arange(9.0))),
        ValueError, "a marginalised trend is not of a SparseGP"),
    "derivatives": (
        lambda: cgp.SparseGP(RBF(1.0, 1.0), 0.1).condition(
            np.arange(3.0), np.ones(3) + 0j, observed="derivative"),
        ValueError, "derivatives and exposures are not taken by a SparseGP: ExactGP takes"),
    "inducing points that are complex": (
        lambda: cgp.SparseGP(kernel(), 0.1, inducing=[[1j, 0.0]]), TypeError,
        "inducing must be real"),
    "inducing points of other dimensions": (
        lambda: conditioned(inducing=[[1.0], [2.0]]), ValueError,
        "x has 2 dimensions, and the inducing points have 1"),
    "a graph before data": (
        lambda: tf.function(cgp.SparseGP(kernel(), 0.1))(tuple(map(tf.constant, plane()))),
        ValueError, r"inducing points are not chosen yet .* condition\(x, z\) or fit"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_is_what_it_cannot_do_refused(case):
    call, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        call()


def test_does_a_refused_fit_leave_no_points():
    x, z = plane()
    gp = cgp.SparseGP(RBF(1.0, 1.0), 0.1, inducing=10)
    with pytest.raises(ValueError, match="not taken by a SparseGP"):
        gp.fit(x[:, 0], z, observed="derivative", verbose=0)
    assert gp.inducing.is_left_out
    gp.kernel.lengthscale.variable.assign(np.nan)
    with pytest.raises(ValueError, match="NaN"):
        gp.condition(x, z)
    assert gp.inducing.is_left_out
