"""The state of a window, as users read it and set it, and as layers and files pass it on."""

import pickle

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.layers import Recursive
from tests.gp.recursive.streams import assert_predictions, by_core_or_eagerly, named, tracker

FIELDS = ("size", "x", "z", "age", "chol")
POLICIES = ["sliding", "growing", "budget"]
EXACT = {"rtol": 1e-12, "atol": 1e-12}


def made(policy, **kwargs):
    return tracker(named("all improper"), policy=policy, capacity=4, **kwargs)


def taken(gp, count, first=0, **kwargs):
    """Steps of a tracker at places and observations that are those of their number."""
    with by_core_or_eagerly(gp):
        for i in range(first, first + count):
            step = gp.step(0.7 * i, np.exp(0.5j * i) + 0.1 * i, **kwargs)
    return step


def assert_same(a, b, tolerance):
    for left, right in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True):
        np.testing.assert_allclose(left, right, **tolerance)


@pytest.mark.parametrize("policy", POLICIES)
def test_goes_a_tracker_on_from_the_state_of_another(policy):
    """The factor is that of the points, whatever factor is given; but for a budget."""
    gp, other = made(policy), made(policy)
    count = 3 if policy == "growing" else 6
    taken(gp, count)
    state = gp.state
    assert state._fields[:5] == FIELDS
    assert (len(state) == 5) == (policy != "budget")
    assert state.x.shape == (4, 1)
    given = state if policy == "budget" else state._replace(chol=np.eye(8))
    other.set_state(given)
    assert other.size == gp.size == min(count, 4)
    assert_same(other.state, state, EXACT)
    assert_same(taken(other, 1, count), taken(gp, 1, count), EXACT)
    assert_same(pickle.loads(pickle.dumps(state)), state, {})


def test_is_the_state_before_data_an_empty_window():
    state = made("sliding").state
    assert state.size == 0
    assert state.x.shape == (4, 1)
    np.testing.assert_array_equal(state.chol, np.eye(8))


def test_has_a_state_the_noise_of_points_where_there_is_one():
    gp, other = made("sliding"), made("sliding")
    taken(gp, 3)
    assert gp.state._fields == FIELDS
    taken(gp, 1, 3, noise_variance=0.3)
    assert gp.state._fields == (*FIELDS, "noise_variance")
    np.testing.assert_array_equal(gp.state.noise_variance, [0.0, 0.0, 0.0, 0.3])
    other.set_state(gp.state)
    assert_predictions(other.predict([1.0]), gp.predict([1.0]), **EXACT)
    assert type(pickle.loads(pickle.dumps(gp.state))) is type(gp.state)


def test_has_a_state_the_groups_of_points():
    def grouped():
        return cgp.RecursiveGP(cgp.kernels.Matern32(1.0, 2.0), [0.1, 0.4], capacity=3)

    gp, other = grouped(), grouped()
    for i in range(4):
        gp.step(0.5 * i, 1j * i, noise_groups=i % 2)
    assert gp.state._fields == (*FIELDS, "noise_variance", "noise_group")
    np.testing.assert_array_equal(gp.state.noise_group, [1, 0, 1])
    other.set_state(gp.state)
    assert_predictions(other.predict([1.0]), gp.predict([1.0]), **EXACT)


def test_is_a_state_of_several_streams_that_of_each():
    gp, alone = made("sliding"), made("sliding")
    z = np.array([1.0 + 1j, np.nan])
    for i in range(5):
        gp.step(0.7 * i, z * np.exp(0.2j * i))
        alone.step(0.7 * i, (1.0 + 1j) * np.exp(0.2j * i))
    state = gp.state
    assert state.size.tolist() == [4, 0]
    assert_same([a[0] for a in state], alone.state, EXACT)
    other = made("sliding")
    other.set_state(state)
    assert_predictions(other.predict([1.0]), gp.predict([1.0]), **EXACT)


def test_does_a_state_that_is_set_belong_to_the_present_hyperparameters():
    gp, other = made("sliding"), made("sliding")
    taken(gp, 6)
    other.noise_variance.assign(0.7)
    other.set_state(gp.state)
    gp.noise_variance.assign(0.7)
    assert_predictions(other.predict([1.0]), gp.predict([1.0]), **EXACT)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"size": 5}, ValueError, "0 to 4 points, got size 5"),
        ({"size": 2}, ValueError, "must be zero in rows after its `size` points"),
        ({"age": -np.ones(4)}, ValueError, "age of a state must not be negative"),
        ({"z": np.full(4, np.inf + 0j)}, ValueError, "z of a state must be finite"),
        ({"z": np.ones(3)}, ValueError, r"z of a state must be \(4,\)"),
        ({"x": np.ones((4, 1)) * 1e200}, ValueError, "x must be finite, and at most"),
        ({"age": np.ones(4) * 1j}, TypeError, "age of a state"),
    ],
)
def test_is_a_state_refused_that_no_window_has(changed, error, message):
    gp, other = made("sliding"), made("sliding")
    taken(gp, 6)
    before = gp.state
    for tracked in (gp, other):
        with pytest.raises(error, match=message):
            tracked.set_state(before._replace(**changed))
    assert_same(gp.state, before, {})
    assert other.stream is None
    with pytest.raises(TypeError, match="a state must be a tuple"):
        gp.set_state(before[:3])
    with pytest.raises(ValueError, match="must have no batch axis"):
        gp.set_state([a[None] for a in before])


def test_is_a_factor_of_a_budget_that_is_another_refused():
    gp = made("budget")
    taken(gp, 6)
    before = gp.state
    with pytest.raises(ValueError, match="factors are not those of its points"):
        gp.set_state(before._replace(prior_chol=2.0 * before.prior_chol))
    assert_same(gp.state, before, {})


def series():
    rng = np.random.default_rng(4)
    x = np.cumsum(rng.uniform(0.1, 1.0, (2, 8, 1)), axis=1)
    z = rng.normal(size=(2, 8)) + 1j * rng.normal(size=(2, 8))
    z[0, 3] = np.nan
    return x, z


def test_is_a_budget_in_pieces_that_of_its_stream():
    x, z = series()
    expected = made("budget", forgetting=0.99).process(x, z)
    layer = Recursive(made("budget", forgetting=0.99), return_state=True)
    first, *state = layer((x[:, :5], z[:, :5]))
    second, *_ = layer((x[:, 5:], z[:, 5:]), initial_state=state)
    kept = Recursive(made("budget", forgetting=0.99), stateful=True)
    in_turn = [kept((x[:, at], z[:, at])) for at in (slice(5), slice(5, None))]
    for pieces in ((first, second), in_turn):
        for name in ("mean", "variance", "pseudo_variance"):
            joined = np.concatenate([a[f"predicted_{name}"] for a in pieces], axis=1)
            np.testing.assert_allclose(joined, getattr(expected.predicted, name), atol=1e-10)


def test_does_the_loss_of_a_piece_of_a_budget_reach_hyperparameters():
    gp = made("budget")
    x, z = series()
    layer = Recursive(gp, return_state=True)
    _, *state = layer((x[:, :5], z[:, :5]))
    state = [tf.stop_gradient(a) for a in state]

    def loss():
        layer((x[:, 5:], np.nan_to_num(z[:, 5:])), initial_state=state)
        return layer.losses[0]

    variables = gp.trainable_variables
    with tf.GradientTape() as tape:
        value = loss()
    gradients = tape.gradient(value, variables)
    assert all(np.any(gradient != 0.0) for gradient in gradients)
    rng, before = np.random.default_rng(0), [v.numpy() for v in variables]
    directions = [rng.normal(size=a.shape) for a in before]
    values = []
    for step in (1e-5, -1e-5):
        for variable, a, direction in zip(variables, before, directions, strict=True):
            variable.assign(a + step * direction)
        values.append(float(loss()))
    derivative = sum(np.sum(a * b) for a, b in zip(gradients, directions, strict=True))
    np.testing.assert_allclose(derivative, (values[0] - values[1]) / 2e-5, rtol=1e-5)


def test_takes_an_exported_step_the_group_of_a_sample(tmp_path):
    def grouped():
        return cgp.RecursiveGP(cgp.kernels.Matern32(1.0, 2.0), [0.1, 0.4], capacity=3)

    gp = grouped()
    gp.process(np.arange(4.0), 1j * np.arange(4.0), noise_groups=[0, 1, 0, 1])
    gp.export(tmp_path / "model", verbose=0)
    served = tf.saved_model.load(str(tmp_path / "model"))
    for i in (4, 5):
        found = served.step(
            x=tf.constant(float(i), tf.float64), z=tf.constant(1j * i), noise_groups=i % 2
        )
        expected = gp.step(float(i), 1j * i, noise_groups=i % 2)
        np.testing.assert_allclose(found["predicted_mean"], expected.predicted.mean, **EXACT)
        np.testing.assert_allclose(found["filtered_mean"], expected.filtered.mean, **EXACT)


def test_are_weights_of_a_budget_whose_streams_shared_a_noise_loaded(tmp_path):
    """As version 0.1.0 wrote them."""
    gp, other = made("budget"), made("budget")
    x, z = series()
    gp.process(x, z)
    store = {}
    gp.save_own_variables(store)
    index = [v.name for v in gp.variables].index("window_noise")
    shared = dict(store)
    (name,) = [n for n, a in store.items() if np.shape(a) == gp.variables[index].shape]
    shared[name] = np.asarray(store[name])[0]
    other.load_own_variables(shared)
    assert_predictions(other.predict([1.0]), gp.predict([1.0]), **EXACT)


@pytest.mark.parametrize("kind", ["budget", "groups"])
def test_has_a_bank_a_window_for_each_key(kind):
    def make():
        if kind == "budget":
            return made("budget", forgetting=0.99)
        return cgp.RecursiveGP(cgp.kernels.Matern32(1.0, 2.0), [0.1, 0.4], capacity=3)

    x, z = series()
    bank, alone = cgp.Bank(make()), [make(), make()]
    for t in range(8):
        given = {"noise_groups": t % 2} if kind == "groups" else {}
        found = bank.update(["a", "b"], z[:, t], x[:, t], **given)
        for b in range(2):
            expected = alone[b].step(x[b, t], z[b, t], **given)
            assert_same(found.map(lambda a, b=b: a[b]), expected, {"rtol": 1e-10, "atol": 1e-10})
    again = cgp.Bank.from_bytes(bank.to_bytes(), bank.estimator)
    assert_same(again.state("b"), alone[1].state, {"rtol": 1e-10, "atol": 1e-10})
