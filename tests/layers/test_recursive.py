"""Recurrent layers: series in pieces, whose state is kept or passed on."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.kernels import Matern12, Rotation, WidelyLinear
from cgp.layers import Recursive
from cgp.online import Sample
from tests.layers.models import STEPS, made
from tests.long_cases import eagerly_and_in_a_graph, long_except


@pytest.fixture(params=[STEPS // 2, pytest.param(6, marks=pytest.mark.long)])
def cut(request):
    """Where a series is cut: in pieces of one shape, of which one is traced, or of two."""
    return request.param


def kalman_filter(kind):
    model, z = made(kind)
    kf = cgp.KalmanFilter(model, learn=("Q", "R"))
    return kf, z, kf(z)


def window(kind):
    kernel = Matern12(1.0, 3.0) * Rotation(0.1)
    kernel = WidelyLinear(kernel, 0.3 + 0.2j) if kind == "improper" else kernel

    def make():
        return cgp.RecursiveGP(kernel, 0.1, capacity=4, forgetting=0.99)

    rng = np.random.default_rng(4)
    x = np.cumsum(rng.uniform(0.1, 1.0, (2, STEPS, 1)), axis=1)
    z = rng.normal(size=(2, STEPS)) + 1j * rng.normal(size=(2, STEPS))
    z[0, 3] = np.nan
    step = make().process(x, z)
    found = {"innovation": step.innovation}
    for name in ("predicted", "filtered"):
        for part, value in getattr(step, name)._asdict().items():
            found[f"{name}_{part}"] = value
    return make(), (x, z), found


ESTIMATORS = {
    "filter": (kalman_filter, "proper"),
    "widely linear filter": (kalman_filter, "improper"),
    "single": (kalman_filter, "single"),
    "window": (window, "proper"),
    "improper window": (window, "improper"),
}


def pieces(inputs, cut):
    def piece(part):
        return tf.nest.map_structure(lambda a: a[:, part], inputs)

    return piece(slice(None, cut)), piece(slice(cut, None))


def assert_same(first, second, whole, kind):
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if kind == "single" else {"atol": 1e-12}
    assert first.keys() == whole.keys()
    for name, value in whole.items():
        joined = np.concatenate([first[name], second[name]], axis=1)
        np.testing.assert_allclose(joined, value, **tolerance, err_msg=name)


BOTH_KINDS = ["widely linear filter", "improper window"]


@eagerly_and_in_a_graph(("name",), ESTIMATORS, BOTH_KINDS, BOTH_KINDS)
def test_are_pieces_the_whole_with_the_state_passed_on_or_kept(cut, name, eagerly):
    make, kind = ESTIMATORS[name]
    estimator, inputs, whole = make(kind)
    before, after = pieces(inputs, cut)
    layer = Recursive(estimator, return_state=True)
    first, *state = layer(before)
    second, *_ = layer(after, initial_state=state)
    assert_same(first, second, whole, kind)
    kept = Recursive(estimator, stateful=True)
    call = kept if eagerly else tf.function(kept, autograph=False)
    for _ in range(1 if make is window and eagerly else 2):
        assert_same(call(before), call(after), whole, kind)
        kept.reset_state()
    last = Recursive(estimator, return_sequences=False)(before)
    np.testing.assert_array_equal(last["filtered_mean"], first["filtered_mean"][:, -1])


def test_do_gradients_pass_through_the_state(cut):
    estimator, z, _ = kalman_filter("improper")
    z = np.nan_to_num(z)
    before, after = pieces(z, cut)
    layer = Recursive(estimator, return_state=True)

    def score(found, part=slice(None)):
        mean, variance = (found[f"filtered_{name}"][:, part] for name in ("mean", "variance"))
        return tf.reduce_sum(tf.abs(mean) ** 2) + tf.reduce_sum(variance)

    with tf.GradientTape(persistent=True) as tape:
        _, *state = layer(before)
        in_pieces = score(layer(after, initial_state=state)[0])
        at_once = score(estimator(z), slice(cut, None))
    variables = estimator.trainable_variables
    found, expected = (tape.gradient(value, variables) for value in (in_pieces, at_once))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        assert np.abs(b).max() > 1e-3


def test_is_the_loss_of_pieces_that_of_the_whole(cut):
    estimator, z, _ = kalman_filter("proper")
    z = np.nan_to_num(z)
    layer = Recursive(estimator, stateful=True)
    losses = []
    for piece in pieces(z, cut):
        layer(piece)
        losses.append(float(layer.losses[0]) * piece.shape[1])
    estimator(z)
    np.testing.assert_allclose(sum(losses) / STEPS, estimator.losses[0], rtol=1e-12)


def test_does_a_stateful_model_go_on_from_batch_to_batch_and_from_a_file(cut, tmp_path):
    estimator, z, whole = kalman_filter("proper")
    before, after = pieces(np.nan_to_num(z), cut)
    inputs = keras.Input(batch_shape=(len(z), None, 2), dtype="complex128")
    layer = Recursive(estimator, stateful=True)
    model = cgp.Functional(inputs, layer(inputs)["filtered_mean"])
    whole = estimator(np.nan_to_num(z))["filtered_mean"]
    np.testing.assert_allclose(model.predict(before, verbose=0), whole[:, :cut], atol=1e-12)
    model.save(tmp_path / "model.keras")
    loaded = cgp.load_model(tmp_path / "model.keras")
    for running in (model, loaded):
        found = running.predict(after, verbose=0)
        np.testing.assert_allclose(found, whole[:, cut:], atol=1e-12)


@pytest.mark.long
def test_does_a_stateful_model_learn(cut):
    estimator, z, _ = kalman_filter("proper")
    before, _ = pieces(np.nan_to_num(z), cut)
    inputs = keras.Input(batch_shape=(len(z), None, 2), dtype="complex128")
    layer = Recursive(estimator, stateful=True)
    model = cgp.Functional(inputs, layer(inputs)["filtered_mean"])
    model.compile(keras.optimizers.Adam(0.01))
    history = model.fit(before, epochs=3, batch_size=len(z), verbose=0).history["loss"]
    assert np.isfinite(history).all()


def over(count):
    shapes = ((count, None, 1), "float64"), ((count, None), "complex128")
    return tuple(keras.Input(batch_shape=shape, dtype=dtype) for shape, dtype in shapes)


@pytest.mark.parametrize(
    ("epochs", "steps", "eagerly"),
    long_except([(2, 3, True), (4, STEPS, False)], (2, 3, True)),
)
def test_does_a_window_learn_between_layers(epochs, steps, eagerly):
    gp, (x, z), _ = window("proper")
    inputs = over(2)
    layer = Recursive(gp, return_state=True, return_sequences=False)
    outputs, *state = layer(inputs)
    assert outputs["filtered_mean"].shape == (2,)
    assert [a.shape[0] for a in state] == [2] * len(state)
    model = cgp.Functional(inputs, outputs["filtered_mean"])
    model.compile(keras.optimizers.Adam(0.05), run_eagerly=eagerly)
    given = [x[:, :steps], np.nan_to_num(z)[:, :steps]]
    history = model.fit(given, batch_size=2, epochs=epochs, verbose=0).history["loss"]
    assert history[-1] < history[0]


def test_is_a_window_that_is_passed_on_current_at_other_hyperparameters(cut):
    gp, inputs, _ = window("proper")
    before, after = pieces(inputs, cut)
    layer = Recursive(gp, return_state=True)
    _, *state = layer(before)
    gp.noise_variance.assign(0.4)
    found, *_ = layer(after, initial_state=state)
    fresh = cgp.RecursiveGP(gp.kernel, 0.1, capacity=4, forgetting=0.99)
    fresh.process(*before)
    fresh.noise_variance.assign(0.4)
    expected = fresh.process(*after).filtered.mean
    np.testing.assert_allclose(found["filtered_mean"], expected, atol=1e-12)


def passed_on(series, state):
    """Calls a layer with a state for other series."""
    kf, z, _ = kalman_filter("proper")
    layer = Recursive(kf, return_state=True)
    _, *found = layer(z)
    return layer(z[:series], initial_state=state(found))


def test_are_series_of_another_batch_refused_before_a_state_moves(cut):
    """One series would move on those of all, and four states would answer for one series."""
    kf, z, _ = kalman_filter("proper")
    z = np.nan_to_num(z)
    before, after = pieces(z, cut)
    kept = Recursive(kf, stateful=True)
    kept(before)
    for others in (after[:1], np.concatenate([after, after])):
        with pytest.raises(ValueError, match="the state that is kept must have, for each series"):
            kept(others)
    np.testing.assert_allclose(
        kept(after)["filtered_mean"], kf(z)["filtered_mean"][:, cut:], atol=1e-12
    )


@pytest.mark.long
def test_are_series_of_another_batch_refused_in_a_graph(cut):
    kf, z, _ = kalman_filter("proper")
    before, _ = pieces(np.nan_to_num(z), cut)
    inputs = keras.Input(batch_shape=(2, cut, 2), dtype="complex128")
    model = cgp.Functional(inputs, Recursive(kf, stateful=True)(inputs))
    with pytest.raises(tf.errors.InvalidArgumentError, match="for each series of the batch"):
        model.predict(np.concatenate([before, before])[:3], batch_size=2, verbose=0)


def test_takes_a_growing_window_as_many_samples_as_it_has_room_for():
    def growing(capacity):
        kernel = Matern12(1.0, 3.0) * Rotation(0.1)
        return cgp.RecursiveGP(kernel, 0.1, capacity=capacity, policy="growing")

    x = np.arange(6.0)[None, :, None]
    z = np.random.default_rng(4).normal(size=(1, 6, 2)) @ [1.0, 1.0j]
    expected = growing(6).process(x[0], z[0]).predicted.mean
    for capacity in (6, 5):
        layer = Recursive(growing(capacity), return_state=True)
        _, *state = layer((x[:, :3], z[:, :3]))
        if capacity == 6:
            found, *_ = layer((x[:, 3:], z[:, 3:]), initial_state=state)
            np.testing.assert_allclose(found["predicted_mean"][0], expected[3:], atol=1e-12)
        else:
            with pytest.raises(tf.errors.InvalidArgumentError, match="capacity is 5"):
                layer((x[:, 3:], z[:, 3:]), initial_state=state)


VARYING = cgp.statespace.LinearGaussian(
    np.full((3, 1, 1), 0.9j), [[0.1]], [[1.0]], [[1.0]], [0.0], [[1.0]]
)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: passed_on(1, lambda state: state), ValueError, "initial_state must have"),
        (lambda: passed_on(2, lambda state: state[:1]), ValueError, "initial_state must have"),
        (lambda: passed_on(2, lambda state: state[::-1]), ValueError, "initial_state must have"),
        (
            lambda: Recursive(kalman_filter("proper")[0])(np.ones((4, 2)) + 0j),
            ValueError,
            r"series must be \[B, T, M\], got shape \(4, 2\)",
        ),
        (
            lambda: Recursive(cgp.KalmanFilter(VARYING))(np.ones((1, 3, 1)) + 0j),
            ValueError,
            "vary over time",
        ),
        (
            lambda: Recursive(window("proper")[0])(np.ones((2, 3)) + 0j),
            TypeError,
            r"called on the pair \(x, z\)",
        ),
        (lambda: Recursive(window("proper")[0])(np.ones((2, 3))), ValueError, "takes a pair"),
        (lambda: Recursive(3), TypeError, "a KalmanFilter, .* or a cgp.online.Cell, got int"),
        (
            lambda: Recursive(kalman_filter("proper")[0], stateful=True)(
                keras.Input((STEPS, 2), dtype="complex128")
            ),
            ValueError,
            "one batch size",
        ),
        (
            lambda: window("proper")[0].cell.initial_state(tf.constant(2), Sample(over(None)[1])),
            ValueError,
            "give the batch size",
        ),
    ],
)
def test_is_what_cannot_recur_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
