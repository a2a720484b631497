"""The filter without graphs and tapes: fewer factors are stored, moments are derived when read."""

import copy
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from cgp import statespace
from tests.linalg.problems import random

TIGHT = {"rtol": 1e-12, "atol": 1e-12}
STEPS = 300  # the covariances settle long before


def normal(seed, *shape):
    return random(np.random.default_rng(seed), shape, "complex128")


def model(kind):
    noise = {
        "F": [[0.8, 0.3j], [-0.2, 0.6j]],
        "Q": [[0.3, 0.1j], [-0.1j, 0.5]],
        "H": [[1.0, 0.5j]],
        "R": [[0.2]],
    }
    noise |= {"initial_mean": [1.0, 2j], "initial_covariance": np.eye(2)}
    if kind == "improper":
        return statespace.widely_linear(statespace.LinearGaussian(**noise), pseudo_R=[[0.1j]])
    if kind == "real":
        noise = {name: np.real(a) for name, a in noise.items()}
    if kind == "varying":
        noise["R"] = np.linspace(0.1, 0.9, STEPS)[:, None, None] + 0j
    return statespace.LinearGaussian(**noise)


def series(kind, *batch):
    z = normal(2, *batch, STEPS, 1)
    z = z.real if kind == "real" else z
    if kind == "holes":
        z[..., 5::7, :] = np.nan
    return z


def under_a_tape(model, z):
    with tf.GradientTape() as tape:
        tape.watch(model.R)
        result = statespace.filter(model, z)
    return result


KINDS = ["proper", "improper", "real", "varying", "holes"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_have_all_fields_the_values_that_they_have_under_a_tape(kind, batch):
    z = series(kind, *batch)
    fields, recorded = statespace.filter(model(kind), z), under_a_tape(model(kind), z)
    for field, expected in zip(fields, recorded, strict=True):
        assert (field is None) == (expected is None)
        if expected is not None:
            assert field.shape == expected.shape
            np.testing.assert_allclose(field, expected, **TIGHT)


def test_are_settled_factors_stored_once():
    result = statespace.filter(model("proper"), series("proper", 4))
    stored = vars(result)["filtered_chols"]
    assert stored.shape[-3] < STEPS / 2
    assert result.filtered_chols.shape == (4, STEPS, 2, 2)


@pytest.mark.parametrize("kind", ["varying", "holes"])
def test_are_factors_that_do_not_settle_stored_at_each_step(kind):
    result = statespace.filter(model(kind), series(kind, 4))
    assert vars(result)["filtered_chols"].shape[-3] == STEPS


def test_can_moments_be_read_in_a_graph_and_afterwards():
    result = statespace.filter(model("proper"), series("proper"))
    in_graph = tf.function(lambda: tf.reduce_sum(result.innovation_covariances))()
    np.testing.assert_allclose(in_graph, np.sum(result.innovation_covariances.numpy()), **TIGHT)


@pytest.mark.parametrize("copied", [lambda a: pickle.loads(pickle.dumps(a)), copy.deepcopy])
def test_are_copies_the_same_before_and_after_reading(copied):
    result = statespace.filter(model("improper"), series("improper", 2))
    for field, expected in zip(copied(result), result, strict=True):
        np.testing.assert_array_equal(field, expected)


def test_keep_moments_the_data_and_the_model_of_the_filter():
    z, constant = series("proper"), model("proper")
    result, expected = statespace.filter(constant, z), under_a_tape(constant, z.copy())
    z[...] = 0.0  # by its owner, before the innovations are read
    np.testing.assert_allclose(result.innovations, expected.innovations, **TIGHT)


def test_does_a_tape_that_is_open_later_change_nothing():
    z = series("proper")
    result = statespace.filter(model("proper"), z)
    with tf.GradientTape() as tape:
        scale = tf.constant(2.0 + 0j, tf.complex128)
        tape.watch(scale)
        total = tf.math.real(tf.reduce_sum(scale * result.innovations))
    expected = np.conj(np.sum(result.innovations.numpy()))  # ∂ Re(s v) / ∂ s̄, twice
    np.testing.assert_allclose(tape.gradient(total, scale), expected, **TIGHT)


def test_names_the_text_of_a_result_each_field():
    text = repr(statespace.filter(model("proper"), series("proper")))
    assert f"innovations=complex128[{STEPS}, 1]" in text
    assert "function" not in text


def test_can_threads_read_moments_at_once():
    results = [statespace.filter(model("proper"), series("proper")) for _ in range(50)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # between nearly any two instructions
    try:
        with ThreadPoolExecutor(4) as pool:
            for result in results:
                read = [pool.submit(getattr, result, "innovation_covariances") for _ in range(4)]
                for covariances in read:
                    np.testing.assert_array_equal(
                        covariances.result(), result.innovation_covariances
                    )
    finally:
        sys.setswitchinterval(interval)
