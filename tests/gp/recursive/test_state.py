"""The state of a stream: saved, copied, restored, and unharmed by what is refused."""

import copy
import json
import pickle

import keras
import numpy as np
import pytest

import cgp
from tests.gp.recursive.streams import (
    CAPACITY,
    FORGETTING,
    assert_predictions,
    assert_steps,
    borrowed,
    by_core_or_eagerly,
    exact,
    named,
    stepped,
    stream,
    tracker,
)
from tests.long_cases import eagerly_or_in_a_graph, long_except

X_NEW = np.array([-1.0, 0.3, 2.2, 5.0, 11.0])
SAME = {"rtol": 1e-12, "atol": 1e-13}

every_policy = pytest.mark.parametrize("policy", CAPACITY)
TWO = "two streams"


def make(policy="sliding", name="all improper", **kwargs):
    arguments = {"capacity": CAPACITY[policy], "forgetting": FORGETTING[policy], **kwargs}
    return tracker(named(name), policy=policy, **arguments)


def samples(series=None):
    x, z = stream()
    if series is not None:
        z = z * np.exp(1j * np.arange(series))[:, None]
        z[1, 20] = z[0, 25] = np.nan
    return x, z


def everything(gp):
    """All that can be seen of a model."""
    found = gp.predict(X_NEW)
    found["observed"] = gp.predict(X_NEW, observed=True)["variance"]
    found["covariance"] = gp.posterior(X_NEW).covariance().numpy()
    found["size"] = np.array(gp.size)
    return found | {name: np.array(value) for name, value in gp.parameters().items()}


def weights(gp):
    return [np.array(w) for w in gp.get_weights()]


def saved_and_loaded(gp, folder):
    gp.save(folder / "gp.keras")
    return keras.models.load_model(folder / "gp.keras")


COPIES = {
    "keras file": saved_and_loaded,
    "pickle": lambda gp, folder: pickle.loads(pickle.dumps(gp)),
    "deep copy": lambda gp, folder: copy.deepcopy(gp),
}


# --- saved mid-stream -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "name", "shape"),
    [
        ("growing", "all improper", None),
        ("sliding", "proper", None),
        ("sliding", "all improper", TWO),
        pytest.param("budget", "all improper", None, marks=pytest.mark.long),
    ],
)
def test_does_a_stream_that_was_saved_go_on_as_if_nothing_had_happened(
    policy, name, shape, tmp_path
):
    x, z = samples(2 if shape else None)
    gp = borrowed(name, policy, shape=shape)
    gp.process(x[:21], z[..., :21])
    loaded = saved_and_loaded(gp, tmp_path)
    assert type(loaded) is cgp.RecursiveGP
    assert np.array_equal(loaded.size, gp.size)
    assert (loaded.policy, loaded.capacity) == (policy, CAPACITY[policy])
    assert loaded.forgetting == FORGETTING[policy]
    assert_predictions(loaded.predict(X_NEW), gp.predict(X_NEW), **SAME)
    with by_core_or_eagerly(loaded):
        found = stepped(loaded, x[21:26], z[..., 21:26])
        assert_steps(found, stepped(gp, x[21:26], z[..., 21:26]), **SAME)
        found, expected = (m.process(x[26:], z[..., 26:]) for m in (loaded, gp))
        assert_steps(found, expected, **SAME)
    assert_predictions(loaded.predict(X_NEW), gp.predict(X_NEW), **SAME)
    other = 1j if shape else np.array([1j, 2j])
    with pytest.raises(ValueError, match="z"):  # what is loaded knows the shapes of its data
        loaded.step(0.5, other)


@pytest.mark.parametrize(
    ("policy", "way"),
    [
        ("sliding", "pickle"),
        ("budget", "keras file"),
        pytest.param("sliding", "deep copy", marks=pytest.mark.long),
        pytest.param("sliding", "keras file", marks=pytest.mark.long),
        pytest.param("budget", "pickle", marks=pytest.mark.long),
        pytest.param("budget", "deep copy", marks=pytest.mark.long),
    ],
)
def test_is_a_copy_the_same_and_independent(way, policy, tmp_path):
    x, z = samples()
    gp = borrowed("all improper", policy)
    gp.process(x[:21], z[:21])
    other = COPIES[way](gp, tmp_path)
    before = everything(gp)
    with by_core_or_eagerly(other):
        found = stepped(other, x[21:27], z[21:27])
    for key, value in everything(gp).items():
        np.testing.assert_array_equal(value, before[key], err_msg=key)
    assert_steps(found, stepped(gp, x[21:27], z[21:27]), **SAME)


@pytest.mark.parametrize("way", long_except(COPIES, "keras file"))
def test_does_a_gp_without_data_come_back_without(way, tmp_path):
    other = COPIES[way](make(), tmp_path)
    assert other.size == 0
    gp = borrowed("all improper", "sliding")
    assert_predictions(other.predict(X_NEW), gp.predict(X_NEW), **SAME)
    x, z = samples()
    with by_core_or_eagerly(other):
        found = stepped(other, x[:12], z[:12])
    assert_steps(found, stepped(gp, x[:12], z[:12]), **SAME)


@eagerly_or_in_a_graph
def test_does_a_trained_stream_come_back_with_its_optimizer(eagerly, tmp_path):
    x, z = samples()
    first, later, size = (
        (slice(1, 3), slice(21, 22), 2) if eagerly else (slice(20), slice(20, 30), 10)
    )
    epochs = 1 if eagerly else 2
    gp = make("sliding", "proper")
    gp.compile(optimizer=keras.optimizers.Adam(0.02), run_eagerly=eagerly)
    gp.fit(x[first], z[first], batch_size=size, epochs=epochs, verbose=0)
    loaded = saved_and_loaded(gp, tmp_path)
    for model in (gp, loaded):
        model.fit(x[later], z[later], batch_size=size, epochs=epochs, verbose=0)
    found = everything(loaded)
    for key, value in everything(gp).items():
        np.testing.assert_allclose(found[key], value, rtol=1e-9, atol=1e-10)


def test_does_a_hyperparameter_changed_after_saving_not_reach_the_saved(tmp_path):
    """And a hyperparameter assigned to the loaded one takes effect."""
    x, z = samples()
    gp = borrowed("all improper", "sliding")
    gp.process(x, z)
    before = gp.predict(X_NEW)
    loaded = saved_and_loaded(gp, tmp_path)
    gp.noise_variance.assign(0.7)
    assert_predictions(loaded.predict(X_NEW), before, **SAME)
    loaded.noise_variance.assign(0.7)
    assert_predictions(loaded.predict(X_NEW), gp.predict(X_NEW))
    assert np.abs(gp.predict(X_NEW)["mean"] - before["mean"]).max() > 1e-3


def test_does_a_hyperparameter_changed_before_saving_reach_the_saved(tmp_path):
    """Though nobody has asked for the factor that belongs to it."""
    x, z = samples()
    gp = borrowed("all improper", "sliding")
    gp.process(x, z)
    gp.noise_variance.assign(0.7)
    loaded = saved_and_loaded(gp, tmp_path)
    held = np.flatnonzero(~np.isnan(z))[-CAPACITY["sliding"] :]
    assert_predictions(loaded.predict(X_NEW), exact(gp, x[held], z[held]).predict(X_NEW))


# --- weights ------------------------------------------------------------------------------------


@every_policy
def test_do_weights_hold_the_stream(policy):
    x, z = samples()
    gp = borrowed("all improper", policy)
    gp.process(x[:15], z[:15])
    at_15, size_at_15 = weights(gp), gp.size
    assert all(w.dtype.kind in "fiub" for w in at_15)
    expected = gp.process(x[15:], z[15:])
    gp.set_weights(at_15)
    assert gp.size == size_at_15
    assert_steps(gp.process(x[15:], z[15:]), expected, **SAME)
    gp.reset()
    gp.process(-x[:3], z[:3])
    gp.set_weights(at_15)
    assert_steps(gp.process(x[15:], z[15:]), expected, **SAME)


@pytest.mark.parametrize("policy", ["sliding", pytest.param("budget", marks=pytest.mark.long)])
def test_do_weight_files_hold_the_stream(policy, tmp_path):
    x, z = samples()
    gp = borrowed("all improper", policy)
    gp.process(x[:21], z[:21])
    gp.save_weights(tmp_path / "gp.weights.h5")
    other = make(policy)
    with by_core_or_eagerly(other):
        other.step(x[0], z[0])  # its state is there from now on
        other.load_weights(tmp_path / "gp.weights.h5")
        found = stepped(other, x[21:27], z[21:27])
    assert_steps(found, stepped(gp, x[21:27], z[21:27]), **SAME)


def test_are_weights_of_state_not_trained():
    x, z = samples()
    gp = make()
    trainable = len(gp.trainable_variables)
    with by_core_or_eagerly(gp):
        gp.step(x[1], z[1])
    assert len(gp.trainable_variables) == trainable
    assert len(gp.get_weights()) > trainable


def test_is_a_clone_without_data():
    x, z = samples()
    gp = borrowed("all improper", "budget")
    gp.process(x, z)
    clone = cgp.clone_model(gp)
    assert clone.size == 0
    assert (clone.policy, clone.capacity, clone.forgetting) == ("budget", 9, 0.93)
    gp.reset()
    assert_predictions(clone.predict(X_NEW), gp.predict(X_NEW), **SAME)
    with by_core_or_eagerly(clone):
        found = stepped(clone, x[:12], z[:12])
    assert_steps(found, stepped(gp, x[:12], z[:12]), **SAME)


def test_does_a_config_rebuild_the_gp():
    gp = make("budget", mean=cgp.means.Constant(1 + 1j), fixed="noise_variance")
    config = json.loads(json.dumps(gp.get_config()))
    other = cgp.RecursiveGP.from_config(config)
    assert other.get_config().keys() == gp.get_config().keys()
    assert list(config["noise_pseudo_variance"]) == [0.1, -0.05]
    assert repr(other) == repr(gp)
    assert len(other.trainable_variables) == len(gp.trainable_variables)
    assert (other.policy, other.capacity, other.forgetting) == ("budget", 9, 0.93)


# --- what is refused changes nothing ------------------------------------------------------------


BAD_SAMPLES = {
    "real target": (0.5, 1.0, {}),
    "precision": (0.5, np.complex64(1j), {}),
    "infinite target": (0.5, complex(np.inf), {}),
    "NaN input": (np.nan, 1j, {}),
    "complex input": (0.5j, 1j, {}),
    "dimensions": (np.zeros(2), 1j, {}),
    "series": (0.5, np.array([1j, 2j, 3j]), {}),
    "missing": (0.5, 1j, {"missing": 1}),
}
BAD_BLOCKS = {
    "real targets": (np.zeros(3), np.ones(3), {}),
    "lengths": (np.zeros(2), np.ones(3) + 0j, {}),
    "precision": (np.zeros(3), np.ones(3, np.complex64), {}),
    "infinite target at the end": (np.zeros(3), np.array([1, 1, np.inf]) + 0j, {}),
    "NaN input at the end": (np.array([0, 0, np.nan]), np.ones(3) + 0j, {}),
    "complex inputs": (np.zeros(3) + 1j, np.ones(3) + 0j, {}),
    "dimensions": (np.zeros((3, 2)), np.ones(3) + 0j, {}),
    "series": (np.zeros(3), np.ones((3, 3)) + 0j, {}),
    "missing": (np.zeros(3), np.ones(3) + 0j, {"missing": np.array([True, False])}),
    "nothing": (np.zeros(0), np.zeros(0, complex), {}),
}


@pytest.fixture(
    scope="module",
    params=[None, pytest.param(TWO, marks=pytest.mark.long)],
    ids=["one stream", TWO],
)
def running(request):
    """A GP in mid-stream, which no refused input may change, and what it was."""
    series = 2 if request.param else None
    x, z = samples(series)
    gp = make()
    gp.compile(optimizer=keras.optimizers.SGD(0.1))
    gp.process(x, z)
    return gp, series, everything(gp), weights(gp)


def assert_refused(running, call):
    gp, _, before, before_weights = running
    with pytest.raises((ValueError, TypeError)):
        call()
    for key, value in everything(gp).items():
        np.testing.assert_array_equal(value, before[key], err_msg=key)
    for one, other in zip(weights(gp), before_weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("case", BAD_SAMPLES)
def test_does_a_refused_sample_change_nothing(running, case):
    gp, series, *_ = running
    x, z, arguments = BAD_SAMPLES[case]
    if series is not None and case != "series":
        z = np.stack([z] * series)
    assert_refused(running, lambda: gp.step(x, z, **arguments))


@pytest.mark.parametrize(
    ("case", "verb"),
    [
        *((case, "process") for case in BAD_BLOCKS),
        *((case, "fit") for case in ("lengths", "missing", "nothing")),
        *(
            pytest.param(case, "fit", marks=pytest.mark.long)
            for case in sorted(BAD_BLOCKS.keys() - {"lengths", "missing", "nothing"})
        ),
        *(pytest.param(case, "evaluate", marks=pytest.mark.long) for case in BAD_BLOCKS),
    ],
)
def test_does_a_refused_block_change_nothing(running, case, verb):
    gp, series, *_ = running
    x, z, arguments = BAD_BLOCKS[case]
    if series is not None and case != "series":
        z = np.stack([z] * series)
    verbose = {} if verb == "process" else {"verbose": 0}
    assert_refused(running, lambda: getattr(gp, verb)(x, z, **arguments, **verbose))


@pytest.mark.parametrize("x", [np.array([0.5j]), np.array([np.nan]), np.zeros((3, 2))])
def test_does_a_refused_prediction_change_nothing(running, x):
    gp, *_ = running
    assert_refused(running, lambda: gp.predict(x))


@pytest.mark.parametrize("case", sorted(BAD_SAMPLES.keys() - {"dimensions", "series"}))
def test_does_a_refused_first_sample_leave_shapes_open(case):
    """What data look like is not fixed by data that were refused."""
    x, z, arguments = BAD_SAMPLES[case]
    gp = cgp.RecursiveGP(cgp.kernels.RBF(1.0, 1.0), 0.1, capacity=4)
    with pytest.raises((ValueError, TypeError)):
        gp.step(x, z, **arguments)
    assert gp.stream is None
    assert gp.predict(np.zeros((3, 2)))["mean"].shape == (3,)


@every_policy
def test_do_predictions_follow_a_hyperparameter_and_its_way_back(policy):
    x, z = samples()
    gp = borrowed("all improper", policy)
    gp.process(x, z)
    before = gp.predict(X_NEW)
    gp.noise_variance.assign(0.9)
    assert np.abs(gp.predict(X_NEW)["mean"] - before["mean"]).max() > 1e-3
    gp.noise_variance.assign(0.2)
    assert_predictions(gp.predict(X_NEW), before, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    "verbs", long_except(["step, predict", "step, process, predict"], "step, predict")
)
def test_does_a_covariance_that_overflows_leave_the_stream_as_it_was(verbs):
    x, z = samples()
    gp = borrowed("all improper", "sliding")
    gp.process(x[:20], z[:20])
    before = gp.predict(X_NEW)
    expected = gp.process(x[20:], z[20:])
    gp.reset()
    gp.process(x[:20], z[:20])
    variance = gp.named_hyperparameters()["matern32.variance"]
    was = variance.numpy()
    variance.variable.assign(800.0)  # e^800
    uses = {
        "step": lambda: gp.step(x[20], z[20]),
        "process": lambda: gp.process(x[20:], z[20:]),
        "predict": lambda: gp.predict(X_NEW),
    }
    for verb in verbs.split(", "):
        with pytest.raises(ValueError, match=r"NaN|infinite|not positive definite"):
            uses[verb]()
    variance.assign(was)
    assert_predictions(gp.predict(X_NEW), before)
    assert_steps(gp.process(x[20:], z[20:]), expected)


def test_may_two_streams_share_a_kernel():
    problem = named("all improper")
    x, z = samples()
    first, second = (tracker(problem, capacity=CAPACITY["sliding"]) for _ in range(2))
    with by_core_or_eagerly(first), by_core_or_eagerly(second):
        for sample in zip(x[:12], z[:12], strict=True):
            first.step(*sample)
            second.step(sample[0], 1j * sample[1])
    problem.kernel.coefficient.assign(0.1)
    held = np.flatnonzero(~np.isnan(z[:12]))[-CAPACITY["sliding"] :]
    for gp, turn in ((first, 1), (second, 1j)):
        expected = exact(gp, x[held], turn * z[held]).predict(X_NEW)
        assert_predictions(gp.predict(X_NEW), expected)
