"""A cell of a user's own, that of the page about it, in every driver."""

import threading
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.layers import Recursive
from cgp.online import Online
from docs.code_blocks import BLOCK

PAGE = Path(__file__).resolve().parents[2] / "docs" / "writing_estimators.md"
BLOCKS = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
CODE = BLOCKS[0]
TAPS, STEPS = 3, 12


@pytest.fixture(scope="module")
def cell():
    names = {}
    exec(compile(CODE, str(PAGE), "exec"), names)
    return names["LeastMeanSquares"]


def series(streams=2):
    rng = np.random.default_rng(3)
    u = rng.normal(size=(streams, STEPS, TAPS, 2)) @ [1.0, 1.0j]
    d = rng.normal(size=(streams, STEPS, 2)) @ [1.0, 1.0j]
    d[0, 4] = np.nan
    return d, u


def reference(d, u, rate=0.5):
    """Predictions, innovations and weights, by loops."""
    predicted, innovation = np.empty_like(d), np.empty_like(d)
    weights = np.zeros((len(d), TAPS), complex)
    for b, t in np.ndindex(d.shape):
        predicted[b, t] = np.vdot(weights[b], u[b, t])
        innovation[b, t] = d[b, t] - predicted[b, t]
        if not np.isnan(d[b, t]):
            gain = rate * u[b, t] / (1e-9 + np.linalg.norm(u[b, t]) ** 2)
            weights[b] += gain * np.conj(innovation[b, t])
    return predicted, innovation, weights


def assert_same(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_has_the_code_of_the_page_fewer_than_sixty_lines():
    assert len(CODE.strip().splitlines()) < 60


def test_does_it_step_as_the_textbook_does(cell):
    d, u = series()
    predicted, innovation, weights = reference(d, u)
    layer = Online(cell(TAPS))
    for t in range(STEPS):
        step = layer.step(d[:, t], inputs=u[:, t])
        assert_same(step.predicted.mean, predicted[:, t])
        assert_same(step.innovation, innovation[:, t])
    assert_same(layer.state.weights, weights)
    single = Online(cell(TAPS))
    step = [single.step(d[1, t], inputs=u[1, t]) for t in range(STEPS)][-1]
    assert step.predicted.mean.shape == ()
    assert_same(single.state.weights, weights[1])


def test_is_a_block_its_samples_one_by_one_and_in_a_model(cell):
    d, u = series()
    predicted, _, weights = reference(d, u)
    layer = Online(cell(TAPS))
    step = layer.process(d, inputs=u)
    assert_same(step.predicted.mean, predicted)
    assert_same(layer.state.weights, weights)
    assert_same(layer((d, u))["predicted_mean"], predicted)


@pytest.mark.parametrize("cut", [5])
def test_are_pieces_in_a_recurrent_layer_the_whole(cell, cut):
    d, u = series()
    predicted, _, weights = reference(d, u)
    before, after = ((d[:, part], u[:, part]) for part in (slice(cut), slice(cut, None)))
    layer = Recursive(cell(TAPS), return_state=True)
    first, *state = layer(before)
    second, *state = layer(after, initial_state=state)
    joined = np.concatenate([first["predicted_mean"], second["predicted_mean"]], axis=1)
    assert_same(joined, predicted)
    assert_same(state[0], weights)
    stateful = Recursive(cell(TAPS), stateful=True, return_sequences=False)
    stateful(before)
    assert_same(stateful(after)["predicted_mean"], predicted[:, -1])


def test_does_a_recurrent_layer_of_it_stand_in_a_model(cell):
    d, u = series()
    shapes = (((None,), "z"), ((None, TAPS), "inputs"))
    inputs = tuple(keras.Input(shape, dtype="complex128", name=name) for shape, name in shapes)
    model = cgp.Functional(inputs, Recursive(cell(TAPS))(inputs)["predicted_mean"])
    assert_same(model((d, u)), reference(d, u)[0])


def test_does_a_saved_model_go_on(cell, tmp_path):
    d, u = series()
    predicted, _, weights = reference(d, u)
    layer = Online(cell(TAPS))
    layer.process(d[:, :5], inputs=u[:, :5])
    layer.export(tmp_path / "exported")
    loaded = tf.saved_model.load(str(tmp_path / "exported"))
    for t in range(5, STEPS):
        assert_same(loaded.step(d[:, t], u[:, t])["predicted_mean"], predicted[:, t])
    layer.save(tmp_path / "saved.keras")
    again = cgp.load_model(tmp_path / "saved.keras", custom_objects={"LeastMeanSquares": cell})
    again.process(d[:, 5:], inputs=u[:, 5:])
    assert_same(again.state.weights, weights)


def test_does_a_bank_have_a_state_for_each_key(cell):
    d, u = series()
    predicted, _, weights = reference(d, u)
    bank = cgp.Bank(cell(TAPS))
    keys = np.tile(["a", "b"], STEPS)
    flat = d.T.ravel(), np.swapaxes(u, 0, 1).reshape(-1, TAPS)
    step = bank.update(keys, flat[0], inputs=flat[1])
    assert_same(step.predicted.mean, predicted.T.ravel())
    assert_same(bank.state(["a", "b"]).weights, weights)
    again = cgp.Bank.from_bytes(bank.to_bytes(), cell(TAPS))
    assert_same(again.state("b").weights, weights[1])


def test_does_a_state_go_from_one_driver_to_another(cell):
    d, u = series()
    predicted = reference(d, u)[0]
    layer, bank = Online(cell(TAPS)), cgp.Bank(cell(TAPS))
    _, *state = Recursive(cell(TAPS), return_state=True)((d[:, :4], u[:, :4]))
    layer.set_state(state)
    assert_same(layer.step(d[:, 4], inputs=u[:, 4]).predicted.mean, predicted[:, 4])
    bank.set_state(["a", "b"], layer.state)
    step = bank.update(["b", "a"], d[::-1, 5], inputs=u[::-1, 5])
    assert_same(step.predicted.mean, predicted[::-1, 5])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda layer: layer.step(1.0, inputs=np.ones(TAPS)), TypeError, "complex"),
        (lambda layer: layer.step(1j), ValueError, "inputs is missing"),
        (lambda layer: layer.step(1j, inputs=np.ones(2)), ValueError, "inputs must be"),
        (lambda layer: layer.step([[1j]], inputs=np.ones(3)), ValueError, "z must be"),
        (lambda layer: layer.step(1j, 0.3, inputs=np.ones(3)), ValueError, "x is not taken"),
        (lambda layer: layer.step(1j, inputs=[np.nan] * 3), ValueError, "finite"),
        (lambda layer: layer.set_state(([1.0, 2.0],)), ValueError, "weights of a state"),
        (lambda layer: layer.set_state(3), TypeError, "tuple"),
    ],
)
def test_is_a_sample_refused_in_words(cell, call, error, message):
    with pytest.raises(error, match=message):
        call(Online(cell(TAPS)))


def test_is_something_else_refused():
    with pytest.raises(TypeError, match=r"must be a cgp\.online\.Cell, got int"):
        Online(3)


def test_stays_a_state_that_would_not_be_finite(cell):
    layer = Online(cell(TAPS, rate=1e300))
    layer.step(1j, inputs=np.ones(TAPS))
    before = layer.state.weights
    with pytest.raises(ValueError, match=r"would not be finite.* attribute of the estimator"):
        layer.step(1e10j, inputs=np.full(TAPS, 1e-9))
    np.testing.assert_array_equal(layer.state.weights, before)


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        (lambda d, u: d, ValueError, r"are \(z, inputs\), got 1 array"),
        (lambda d, u: (d, u[..., :2]), ValueError, r"inputs of series must be \[B, T, 3\]"),
        (lambda d, u: (d[0], u[0]), ValueError, r"z of series must be \[B, T\]"),
        (lambda d, u: (d.astype("complex64"), u), TypeError, "must be complex128, got complex64"),
        (lambda d, u: (d, u.real), TypeError, "inputs of series must be complex128"),
        (lambda d, u: (d, u[:, :4]), ValueError, "the same axes"),
        (lambda d, u: {"z": d, "inputs": u}, TypeError, "got a dict"),
    ],
)
@pytest.mark.parametrize("driver", [Recursive, Online])
def test_are_series_of_other_forms_refused_in_words(cell, driver, arrays, error, message):
    layer = driver(cell(TAPS))
    with pytest.raises(error, match=message):
        layer(arrays(*series()))


class Others(NamedTuple):
    weights: tf.Tensor


def with_result(change):
    """A fault of `step`: a function changes the state and the moments that it returns."""
    return lambda of: {"step": lambda self, *args: change(*of.step(self, *args))}


def with_start(make):
    """A fault of `initial_state`: a function of the named tuple, and of the number of streams."""
    return lambda of: {"initial_state": lambda self, count, sample=None: make(of.State, count)}


FAULTS = {
    "a step without moments": (
        with_result(lambda state, step: state),
        r"step must return a state and a Step .*got Weights\(weights: complex128",
    ),
    "a step with a mean for moments": (
        with_result(lambda state, step: (state, step.filtered.mean)),
        r"step must return a state and a Step .* and complex128 \[",
    ),
    "another type": (
        with_result(lambda state, step: ([state.weights], step)),
        r"step must return a state of the shapes and dtypes .* got a list",
    ),
    "another shape": (
        with_result(lambda state, step: (type(state)(state.weights[:, :1]), step)),
        r"step must return a state of the shapes and dtypes .* got Weights",
    ),
    "another dtype": (
        with_result(lambda state, step: (type(state)(tf.cast(state.weights, "complex64")), step)),
        r"step must return a state of the shapes and dtypes .* got Weights\(weights: complex64",
    ),
    "nothing for a tensor": (
        with_result(lambda state, step: (type(state)(None), step)),
        r"got Weights\(weights: a NoneType\)",
    ),
    "moments of no stream": (
        with_result(lambda state, step: (state, step.map(lambda a: a[0]))),
        r"step must return moments \[B, \.\.\.\] for the B = .* streams",
    ),
    "no innovation": (
        with_result(lambda state, step: (state, step._replace(innovation=None))),
        r"step must return moments .* got a NoneType",
    ),
    "no batch axis": (
        with_start(lambda State, count: State(tf.zeros([TAPS], "complex128"))),
        r"the initial state of a Faulty must have arrays \[B, \.\.\.\], here B = 1, got Weights",
    ),
    "a Python number": (
        with_start(lambda State, count: State(0.0)),
        r"must have arrays \[B, \.\.\.\], here B = 1, got Weights\(weights: float32 \[\]\)",
    ),
    "another named tuple": (
        with_start(lambda State, count: Others(tf.zeros([count, TAPS], "complex128"))),
        r"must be a named tuple of the type Faulty\.State, which is a Weights, got Others",
    ),
    "a tuple": (
        with_start(lambda State, count: (tf.zeros([count, TAPS], "complex128"),)),
        r"must be a named tuple of the type Faulty\.State, which is a Weights, got a tuple",
    ),
    "no State": (
        lambda of: {"State": None},
        r"Faulty\.State must be a class of named tuples, got None",
    ),
    "no State, and blank states of its own": (
        lambda of: {"State": None, "blank_state": lambda self, count: of.State(np.zeros(count))},
        r"Faulty\.State must be a class of named tuples, got None",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_name_all_drivers_the_fault_of_a_cell(cell, fault):
    methods, message = FAULTS[fault]
    faulty = type("Faulty", (cell,), methods(cell))
    d, u = series()
    for call in (
        lambda: Recursive(faulty(TAPS))((d[:1], u[:1])),
        lambda: Online(faulty(TAPS)).step(d[0, 0], inputs=u[0, 0]),
        lambda: cgp.Bank(faulty(TAPS)).update(["a"], d[:1, 0], inputs=u[:1, 0]),
    ):
        with pytest.raises(TypeError, match=message):
            call()


def with_check(cell, check):
    """A cell that checks samples against its state by a function of them."""
    method = lambda self, arrays, sample: check(sample)  # noqa: E731
    return type("Checking", (cell,), {"check_against": method})(TAPS)


def test_is_a_block_refused_as_a_whole_before_its_first_chunk_is_taken(cell):
    checked_lengths = []

    def check(sample):
        checked_lengths.append(sample.z.shape[1])
        if np.any(np.abs(sample.z) > 10.0):
            raise ValueError("an observation is too large")

    d, u = (np.repeat(a, 20, axis=1) for a in series())
    layer = Online(with_check(cell, check))
    layer.process(d, inputs=u)
    assert min(checked_lengths) < d.shape[1], "the block has one chunk"
    weights = layer.state.weights
    checked_lengths.clear()
    d[0, -1] = 11.0
    with pytest.raises(ValueError, match="too large"):
        layer.process(d, inputs=u)
    assert checked_lengths == [d.shape[1]]
    assert_same(layer.state.weights, weights)


def test_does_reset_wait_for_a_step_of_another_thread(cell):
    has_begun, goes_on = threading.Event(), threading.Event()

    def wait(sample):
        has_begun.set()
        assert goes_on.wait(60)

    d, u = series()
    layer = Online(with_check(cell, wait))
    layer.set_state(cell.State(np.ones([2, TAPS], complex)))
    step = threading.Thread(target=lambda: layer.step(d[:, 0], inputs=u[:, 0]))
    reset = threading.Thread(target=layer.reset)
    step.start()
    assert has_begun.wait(60)
    reset.start()
    reset.join(0.5)
    is_waiting = reset.is_alive()
    goes_on.set()
    step.join()
    reset.join()
    assert is_waiting
    assert_same(layer.state.weights, 0.0)


def test_may_arrays_of_a_cell_be_of_numpy(cell):
    d, u = series()
    arrays = {
        "initial_state": lambda self, n, sample=None: cell.State(np.zeros([n, TAPS], complex))
    }
    of_numpy = type("OfNumPy", (cell,), arrays)(TAPS)
    layer = Online(of_numpy)
    assert_same(layer.process(d, inputs=u).predicted.mean, reference(d, u)[0])
    assert_same(Recursive(of_numpy)((d, u))["predicted_mean"], reference(d, u)[0])
    samples = cgp.online.Sample(tf.constant(d), inputs=tf.constant(u))
    state, _ = of_numpy.scan(cell.State(np.zeros([2, TAPS], complex)), samples)
    assert_same(state.weights, reference(d, u)[2])


def test_is_a_model_of_a_cell_made_in_a_graph(cell):
    d, u = series()
    layers = []

    @tf.function
    def outputs():
        if not layers:
            layers.append(Recursive(cell(TAPS)))
        return layers[0]((d, u))["predicted_mean"]

    assert_same(outputs(), reference(d, u)[0])


def test_has_a_cell_without_places_no_x_in_a_bank(cell):
    d, u = series()
    with pytest.raises(ValueError, match="x is given, which samples of this estimator do not"):
        cgp.Bank(cell(TAPS)).update(["a"], d[:1, 0], np.ones(1), inputs=u[:1, 0])


@pytest.fixture(scope="module")
def learned_rate(cell):
    """The cell with a learned rate of the page, without what the page does with it."""
    code = next(block for block in BLOCKS if "class LearnedRate" in block)
    names = {"keras": keras, "LeastMeanSquares": cell}
    exec(compile(code[: code.index("\n\n\nlearned =")], str(PAGE), "exec"), names)
    return names["LearnedRate"]


def test_does_a_model_train_the_variables_of_a_cell(learned_rate):
    d, u = series()
    d = np.nan_to_num(d)

    def loss(rate):
        return np.mean(np.abs(reference(d, u, rate)[1]) ** 2)

    layer = Recursive(learned_rate(TAPS, 0.9))
    assert [v.name for v in layer.trainable_variables] == ["rate"]
    with tf.GradientTape() as tape:
        value = tf.reduce_mean(tf.abs(layer((d, u))["innovation"]) ** 2)
    gradient = tape.gradient(value, layer.trainable_variables[0].value)
    difference = (loss(0.9 + 1e-6) - loss(0.9 - 1e-6)) / 2e-6
    np.testing.assert_allclose(gradient, difference, rtol=1e-6)


def test_are_the_variables_of_a_cell_saved_with_its_layer(learned_rate, tmp_path):
    d, u = series()
    layer = Online(learned_rate(TAPS, 0.25))
    layer.cell.rate.assign(0.3)
    layer.process(d[:, :5], inputs=u[:, :5])
    layer.save(tmp_path / "saved.keras")
    again = cgp.load_model(tmp_path / "saved.keras", custom_objects={"LearnedRate": learned_rate})
    assert float(again.cell.rate.numpy()) == 0.3
    again.process(d[:, 5:], inputs=u[:, 5:])
    assert_same(again.state.weights, reference(d, u, 0.3)[2])
