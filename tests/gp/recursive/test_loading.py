"""Configurations and files that are damaged, or ask for too much: refused or put right."""

import keras
import numpy as np
import pytest

import cgp
from tests.gp.recursive.streams import (
    assert_predictions,
    by_core_or_eagerly,
    named,
    stream,
    tracker,
)

X_NEW = np.array([-1.0, 0.3, 5.0])
SAME = {"rtol": 1e-10, "atol": 1e-11}


CAPACITY = {"growing": 6, "sliding": 3, "budget": 3}


def weight(gp, ending):
    return next(w for w in gp.weights if w.name.endswith(ending))


def with_data(policy, forgetting=1.0, silent=0):
    """A tracker that has seen six samples, one of them missing, and then so many missing ones."""
    gp = tracker(
        named("all improper"), policy=policy, capacity=CAPACITY[policy], forgetting=forgetting
    )
    x, z = stream(missing=[1, *range(6, 40)])
    with by_core_or_eagerly(gp):
        for sample in zip(x[: 6 + silent], z, strict=False):
            gp.step(*sample)
    gp.predict(X_NEW)
    return gp


def saved(gp, path):
    gp.save(path / "gp.keras")
    return path / "gp.keras"


@pytest.mark.parametrize("changed", [{"capacity": 128}, {"policy": "budget"}, {"forgetting": 0.5}])
def test_are_arguments_that_the_window_was_made_for_settled(changed):
    gp = tracker(named("proper"), capacity=4)
    ((name, value),) = changed.items()
    before = getattr(gp, name)
    with pytest.raises(
        AttributeError, match=f"{name} of RecursiveGP cannot be changed.*make a new"
    ):
        setattr(gp, name, value)
    assert getattr(gp, name) == before


@pytest.mark.parametrize("capacity", [10**6, 10**9])
def test_is_a_capacity_beyond_the_memory_refused(capacity):
    gp = tracker(named("proper"), capacity=4)
    gp._make_window(None, 1)
    config = {**gp.get_config(), "capacity": capacity}
    with pytest.raises(ValueError, match=f"capacity {capacity} .*needs .* GB.*smaller capacity"):
        cgp.RecursiveGP.from_config(config)
    with pytest.raises(ValueError, match=r"needs .* GB"):
        tracker(named("proper"), capacity=capacity).step(0.0, 1j)


@pytest.mark.parametrize("shape", [[-1, 1], [None, 0], [2, 1.5], ["2", 1]])
def test_are_shapes_in_a_config_whole_numbers(shape):
    config = {**tracker(named("proper"), capacity=4).get_config(), "state": shape}
    with pytest.raises(ValueError, match="numbers of streams and dimensions must be whole"):
        cgp.RecursiveGP.from_config(config)


DAMAGE = {
    "a negative size": ("_size", lambda a: a - 100, "expected 0 to 3 points"),
    "a size beyond the capacity": ("_size", lambda a: a + 99, "expected 0 to 3 points"),
    "a point at infinity": ("_x", lambda a: a * np.inf, "not finite"),
    "a negative age": ("_age", lambda a: a - 3.0, "ages below 0"),
    "a negative factor": ("_chol", lambda a: -a, "real diagonal that is positive"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_is_a_window_that_is_none_refused_when_it_is_loaded(case, tmp_path):
    ending, damaged, message = DAMAGE[case]
    gp = with_data("sliding")
    before = gp.predict(X_NEW)
    w = weight(gp, ending)
    was = w.numpy()
    w.assign(damaged(was))
    path = saved(gp, tmp_path)
    gp.save_weights(tmp_path / "gp.weights.h5")
    w.assign(was)
    with pytest.raises(ValueError, match=message):
        keras.models.load_model(path)
    with pytest.raises(ValueError, match=message):
        gp.load_weights(tmp_path / "gp.weights.h5")
    assert_predictions(gp.predict(X_NEW), before, **SAME)  # and it is as it was


@pytest.mark.parametrize("policy", ["growing", "sliding"])
def test_is_a_factor_that_is_another_recomputed_from_the_points(policy, tmp_path):
    gp = with_data(policy)
    expected = gp.predict(X_NEW)
    w = weight(gp, "_chol")
    w.assign(10.0 * w.numpy())
    loaded = keras.models.load_model(saved(gp, tmp_path))
    assert_predictions(loaded.predict(X_NEW), expected, **SAME)


@pytest.mark.parametrize(
    ("ending", "scale", "forgetting"),
    [
        pytest.param("_prior_chol", 10.0, 1.0, marks=pytest.mark.long),
        ("_prior_chol", 0.1, 0.93),
        ("_chol", 10.0, 1.0),  # with forgetting, there may be so little left once it has pruned
        pytest.param("_chol", 0.1, 0.93, marks=pytest.mark.long),
    ],
)
def test_is_a_factor_of_a_budget_that_is_another_refused(ending, scale, forgetting, tmp_path):
    gp = with_data("budget", forgetting)
    w = weight(gp, ending)
    w.assign(scale * w.numpy())
    loaded = keras.models.load_model(saved(gp, tmp_path))
    for use in (lambda: loaded.predict(X_NEW), lambda: loaded.step(0.0, 1j)):
        with pytest.raises(ValueError, match="window is damaged: its factors"):
            use()


@pytest.mark.parametrize(
    ("capacity", "samples"), [pytest.param(5, 3, marks=pytest.mark.long), (5, 6)]
)  # of which one is missing
def test_is_a_budget_that_has_pruned_nothing_known_with_forgetting(capacity, samples, tmp_path):
    gp = tracker(named("all improper"), policy="budget", capacity=capacity, forgetting=0.93)
    x, z = stream(missing=[1])
    with by_core_or_eagerly(gp):
        for sample in zip(x[:samples], z[:samples], strict=True):
            gp.step(*sample)
    assert gp.size == samples - 1
    gp.noise_variance.assign(0.3)
    gp.predict(X_NEW)
    sound = keras.models.load_model(saved(gp, tmp_path))
    assert_predictions(sound.predict(X_NEW), gp.predict(X_NEW), **SAME)
    w = weight(gp, "_chol")
    w.assign(10.0 * w.numpy())
    loaded = keras.models.load_model(saved(gp, tmp_path))
    with pytest.raises(ValueError, match="window is damaged: its factors"):
        loaded.predict(X_NEW)


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param("growing", marks=pytest.mark.long),
        "sliding",
        pytest.param("budget", marks=pytest.mark.long),
    ],
)
def test_is_a_window_that_has_been_silent_for_long_sound(policy, tmp_path):
    """Points that are forgotten no longer age, and their factor is not that of their covariance."""
    gp = with_data(policy, forgetting=1e-6, silent=8)
    loaded = keras.models.load_model(saved(gp, tmp_path))
    assert_predictions(loaded.predict(X_NEW), gp.predict(X_NEW), **SAME)
