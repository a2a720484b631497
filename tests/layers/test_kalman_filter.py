"""Called as a layer: what the filter of its model says, and the loss it adds."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import statespace
from tests.layers.models import (
    KINDS,
    Rotation,
    assert_gradients,
    assert_gradients_along,
    assert_same,
    expected,
    filter_of,
    guess,
    made,
    normals,
    tolerances,
    two_modes,
)
from tests.long_cases import eagerly_and_in_a_graph, long_except
from tests.reference import kalman
from tests.statespace.problems import problem

every_kind = pytest.mark.parametrize("kind", KINDS)
_MADE = {}


def borrowed(kind):
    """A filter and its data, which no test may change: to trace it takes longer than most tests."""
    if kind not in _MADE:
        dtype = "float32" if kind == "single" else None
        _MADE[kind] = filter_of(kind, dtype=dtype)
    return _MADE[kind]


# --- what it says ---------------------------------------------------------------------------------


@every_kind
def test_is_a_call_the_filter_of_the_model(kind):
    kf, z = borrowed(kind)
    values, _ = expected(made(kind)[0], z)
    found = {name: value.numpy() for name, value in kf(z).items()}
    assert_same(found, values, **tolerances(z.dtype))
    for name, value in values.items():
        assert found[name].dtype == value.dtype, name
    assert ("filtered_pseudo_variance" in found) == (kind == "improper")
    assert np.isnan(found["innovation"]).sum() == np.isnan(z).sum() > 0


@pytest.mark.parametrize("kind", long_except(["proper", "improper"], "proper"))
def test_does_predict_return_what_a_call_returns(kind):
    kf, z = borrowed(kind)
    found = kf.predict(z, verbose=0, batch_size=2)
    assert_same(found, {name: value.numpy() for name, value in kf(z).items()}, rtol=1e-5, atol=1e-6)
    assert all(type(value) is np.ndarray for value in found.values())


@pytest.mark.parametrize("kind", ["proper", "improper"])
def test_does_missing_say_what_nan_says(kind):
    kf, z = borrowed(kind)
    missing = np.isnan(z)
    one = kf(np.where(missing, 7.0 - 3.0j, z), missing=missing)
    assert_same(one, {name: value.numpy() for name, value in kf(z).items()}, rtol=1e-13)
    seen = np.where(missing, 7.0 - 3.0j, z)
    values, _ = expected(made(kind)[0], seen)
    assert_same(kf(seen), values, rtol=1e-11, atol=1e-11)


@pytest.mark.long
def test_is_it_the_same_in_a_graph():
    kf, z = borrowed("proper")
    run = tf.function(kf)
    assert_same(run(tf.constant(z)), {k: v.numpy() for k, v in kf(z).items()}, rtol=1e-13)


def test_is_a_real_model_given_a_complex_series_refused():
    kf, z = borrowed("real")
    with pytest.raises(TypeError, match="real"):
        kf(z + 0j)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda z: z[..., :1], ValueError),
        (lambda z: np.concatenate([z, z], axis=-1), ValueError),
        (lambda z: z.real, TypeError),
        (lambda z: z[:, :0], ValueError),
    ],
)
def test_is_a_series_of_another_kind_refused(change, error):
    kf, z = borrowed("proper")
    with pytest.raises(error):
        kf(change(z))


# --- the loss it adds -----------------------------------------------------------------------------


def reference_log_likelihoods(z, n=2, m=2):
    p = problem(n, m, steps=z.shape[1], holes="own", batch=len(z))
    return p._replace(z=z).expected(kalman.filter).log_likelihoods.sum(axis=-1)


@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_is_the_loss_the_negative_log_likelihood_of_an_observed_element(weight):
    kf, z = filter_of(loss_weight=weight) if weight != 1.0 else borrowed("proper")
    kf(z)
    (loss,) = kf.losses
    likelihoods = reference_log_likelihoods(z)
    np.testing.assert_allclose(loss, -weight * likelihoods.sum() / (~np.isnan(z)).sum(), rtol=1e-11)
    assert loss.dtype == tf.float64


@every_kind
def test_is_the_loss_that_of_the_model_in_every_kind(kind):
    kf, z = borrowed(kind)
    _, likelihoods = expected(made(kind)[0], z)
    kf(z)
    expected_loss = -likelihoods.sum() / (~np.isnan(z)).sum()
    np.testing.assert_allclose(kf.losses[0], expected_loss, rtol=tolerances(z.dtype)["rtol"])


def test_is_there_no_loss_where_nothing_is_seen():
    kf, z = borrowed("proper")
    kf(np.full_like(z, np.nan))
    assert float(kf.losses[0]) == 0.0


# --- what is learned ------------------------------------------------------------------------------

NAMES = ("F", "H", "Q", "R", "initial_mean", "initial_covariance")


def numpy_of(model, name):
    return np.asarray(getattr(model, name))


def test_are_the_matrices_at_first_those_of_the_model():
    model, _ = made("proper")
    kf = cgp.KalmanFilter(model, learn=NAMES)
    for name in NAMES:
        found = getattr(kf, name)
        assert type(found) is np.ndarray
        np.testing.assert_allclose(found, numpy_of(model, name), rtol=1e-13, atol=1e-13)
        np.testing.assert_array_equal(numpy_of(kf.model, name), found)
    assert kf.B is None
    assert isinstance(kf.model, statespace.LinearGaussian)


@pytest.mark.parametrize("name", NAMES)
def test_is_what_is_named_learned_and_nothing_else(name):
    model, _ = made("proper")
    kf = cgp.KalmanFilter(model, learn=(name,))
    assert kf.trainable_variables
    before = {other: getattr(kf, other) for other in NAMES}
    for variable in kf.trainable_variables:
        variable.assign(np.asarray(variable) + 0.01)
    for other in NAMES:
        assert np.array_equal(before[other], getattr(kf, other)) == (other != name), other


def test_is_nothing_learned_unless_named():
    assert borrowed("proper")[0].trainable_variables == []


@eagerly_and_in_a_graph(
    ("kind", "m"),
    [("proper", 2), ("improper", 2), ("improper", 1)],
    [("improper", 1)],
    [("proper", 2), ("improper", 1)],
)
def test_do_gradients_by_all_that_is_learned_agree_with_central_differences(kind, m, eagerly):
    model, z = made(kind, n=2, m=m, series=2, steps=9)
    # Of the improper the matrices are those of the proper part, or they cannot be learned.
    kf = cgp.KalmanFilter(model, learn=NAMES)
    z = tf.constant(z)
    if eagerly:
        with tf.GradientTape() as tape:
            kf(z)
            loss = kf.losses[0]
        gradients = tape.gradient(loss, kf.trainable_variables)

        def value():
            kf(z)
            return kf.losses[0]

        differences = assert_gradients_along(2, kf.trainable_variables, gradients, value)
    else:
        differences = assert_gradients(kf, z, eagerly=False)
    assert np.abs(differences).max() > 0.1


def test_may_a_layer_of_ones_own_give_a_matrix():
    own = Rotation()
    kf = cgp.KalmanFilter(two_modes(), learn={"F": own, "R": cgp.layers.Covariance([[0.7 + 0j]])})
    np.testing.assert_allclose(kf.F, two_modes().F, rtol=1e-13)
    np.testing.assert_allclose(kf.R, [[0.7]], rtol=1e-13)  # the layer's, not the model's
    assert [v.name for v in kf.trainable_variables].count("angles") == 1
    own.angles.assign([0.5, 0.1])
    np.testing.assert_allclose(np.angle(np.diag(kf.F)), [0.5, 0.1], rtol=1e-13)
    z = normals(np.random.default_rng(0), 1, 30, 1)
    values, _ = expected(kf.model, z)
    assert_same(kf(z), values, rtol=1e-11, atol=1e-11)
    assert not np.allclose(expected(two_modes(), z)[0]["filtered_mean"], values["filtered_mean"])


def test_is_a_matrix_learned_as_it_is():
    layer = cgp.layers.Matrix([[1.0, 2.0j], [0.5 - 1j, 0.0]])
    np.testing.assert_allclose(layer.call(), [[1.0, 2.0j], [0.5 - 1j, 0.0]], rtol=1e-15)
    assert sum(np.size(v) for v in layer.trainable_variables) == 8


def test_does_a_learned_covariance_start_where_it_was_told_and_stay_one():
    rng = np.random.default_rng(0)
    a = normals(rng, 4, 4)
    value = a @ a.conj().T
    layer = cgp.layers.Covariance(value)
    np.testing.assert_allclose(layer.call(), value, rtol=1e-12, atol=1e-12)
    for variable in layer.trainable_variables:
        variable.assign(np.asarray(variable) + rng.normal(size=variable.shape))
    moved = np.asarray(layer.call())
    np.testing.assert_allclose(moved, moved.conj().T, atol=1e-13)
    assert np.linalg.eigvalsh(moved).min() > 0
    assert np.abs(moved - value).max() > 0.1
    assert sum(np.size(v) for v in layer.trainable_variables) >= 16


@pytest.mark.parametrize("rank", [1, 2])
def test_does_a_learned_singular_covariance_keep_its_range(rank):
    rng = np.random.default_rng(rank)
    root = normals(rng, 3, rank)
    value = root @ root.conj().T
    layer = cgp.layers.Covariance(value)
    np.testing.assert_allclose(layer.call(), value, rtol=1e-12, atol=1e-12)
    outside = np.eye(3) - root @ np.linalg.pinv(root)
    for scale in (0.3, 2.0):
        for variable in layer.trainable_variables:
            variable.assign(scale * rng.normal(size=variable.shape))
        moved = np.asarray(layer.call())
        size = np.abs(moved).max()
        assert np.abs(outside @ moved).max() < 1e-12 * size
        values = np.linalg.eigvalsh(moved)
        assert values.min() > -1e-12 * size
        assert np.sum(values > 1e-9 * size) <= rank


@pytest.mark.parametrize(
    "value", [np.zeros((2, 2)), [[1.0, 2.0], [2.0, 1.0]], [[1.0, 1j], [1j, 1.0]], [1.0], [[np.nan]]]
)
def test_is_what_is_no_covariance_refused(value):
    with pytest.raises(ValueError):
        cgp.layers.Covariance(value)


@pytest.mark.parametrize(("epochs", "eagerly"), long_except([(3, True), (10, False)], (3, True)))
def test_is_a_filter_with_a_singular_q_learned_without_leaving_its_range(epochs, eagerly):
    f = np.array([[1.6 * np.exp(0.3j), -0.7 * np.exp(0.6j)], [1.0, 0.0]])
    model = statespace.LinearGaussian(
        f, np.diag([0.2, 0.0]) + 0j, np.array([[1.0, 0.0j]]), np.array([[0.1 + 0j]])
    )
    kf = cgp.KalmanFilter(model, learn=("Q", "F"))
    kf.compile(keras.optimizers.Adam(0.02), run_eagerly=eagerly)
    z = normals(np.random.default_rng(0), 2, 40, 1)
    losses = kf.fit(z, epochs=epochs, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(kf.Q[[0, 1, 1], [1, 0, 1]], 0.0, atol=1e-13)
    assert kf.Q[0, 0].real > 0.2


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"learn": ("P",)}, ValueError, "P"),
        ({"learn": {"Z": None}}, ValueError, "Z"),
        ({"learn": {"Q": np.eye(2)}}, TypeError, "Q"),
        ({"learn": ("B",)}, ValueError, "B"),
        ({"learn": {"R": "Q"}}, TypeError, "R"),
    ],
)
def test_is_a_constructor_that_makes_no_sense_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        cgp.KalmanFilter(guess(), **arguments)


def test_is_what_is_no_model_refused():
    with pytest.raises(TypeError, match="LinearGaussian"):
        cgp.KalmanFilter(np.eye(2))


def test_is_a_layer_that_gives_another_shape_refused():
    with pytest.raises(ValueError, match="F"):
        cgp.KalmanFilter(guess(), learn={"F": cgp.layers.Matrix(np.eye(3) + 0j)})


def test_is_a_single_name_one_name():
    kf = cgp.KalmanFilter(guess(), learn="R")
    np.testing.assert_allclose(kf.R, 1.0)
    assert len(kf.trainable_variables) >= 1


def test_what_is_learned_fits_the_model_or_says_why():
    real = cgp.statespace.LinearGaussian([[0.5]], [[1.0]], [[1.0]], [[1.0]], [0.0], "diffuse")
    with pytest.raises(TypeError, match="F must be real, float64, got complex128"):
        cgp.KalmanFilter(real, learn={"F": cgp.layers.Matrix([[0.3 + 0.8j]])})
    with pytest.raises(ValueError, match=r"the layer of F must return \(1, 1\), got \(2, 2\)"):
        cgp.KalmanFilter(real, learn={"F": cgp.layers.Matrix(np.eye(2))})
    with pytest.raises(TypeError, match="learn must be names"):
        cgp.KalmanFilter(real, learn=3)
    with pytest.raises(ValueError, match="loss_weight"):
        cgp.KalmanFilter(real, loss_weight=-1.0)
    learning = cgp.KalmanFilter(real, learn="R")
    assert learning.model.initial == "diffuse"
    with pytest.raises(ValueError, match="diffuse"):
        learning.step(1e9)
