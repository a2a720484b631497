"""A weight worked on as an array: nobody sees an old value, and no value is lost."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from cgp.training.post_updates import HostVariable


@pytest.fixture
def ahead():
    """A variable of value 3, of which TensorFlow has not been told."""
    variable = HostVariable((2,), "float64", "state")
    variable.host()[...] = 3.0
    variable.changed()
    return variable


READERS = {
    "numpy": lambda v: v.numpy(),
    "array": np.asarray,
    "array of a dtype": lambda v: np.asarray(v, np.float32),
    "tensor": tf.convert_to_tensor,
    "value": lambda v: v.value.numpy(),
    "arithmetic": lambda v: v + 0.0,
    "keras": keras.ops.convert_to_numpy,
    "graph": lambda v: tf.function(lambda: v + 0.0)(),
}


@pytest.mark.parametrize("reader", READERS)
def test_does_every_reader_see_the_present_value(ahead, reader):
    np.testing.assert_array_equal(READERS[reader](ahead), [3.0, 3.0])
    ahead.host()[...] = 4.0
    ahead.changed()
    np.testing.assert_array_equal(READERS[reader](ahead), [4.0, 4.0])


def test_is_an_array_a_copy_as_numpy_asks_for_it(ahead):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(np.array(ahead, copy=True), [3.0, 3.0])
    with pytest.raises(ValueError, match="only given as a copy"):
        np.array(ahead, copy=False)


def test_does_a_variable_that_somebody_holds_stay_current(ahead):
    held, read = ahead.value, tf.function(lambda: ahead + 0.0)
    for value in (4.0, 5.0):
        ahead.host()[...] = value
        ahead.changed()
        np.testing.assert_array_equal(held.numpy(), [value, value])
        np.testing.assert_array_equal(read(), [value, value])
    held.assign([6.0, 7.0])
    np.testing.assert_array_equal(ahead.host(), [6.0, 7.0])
    np.testing.assert_array_equal(ahead.numpy(), [6.0, 7.0])


WRITERS = {
    "assign": lambda v: v.assign([5.0, 6.0]),
    "assign of a tensor": lambda v: v.assign(tf.constant([5.0, 6.0], tf.float64)),
    "add": lambda v: v.assign_add([2.0, 3.0]),
    "value": lambda v: v.value.assign([5.0, 6.0]),
    "graph": lambda v: tf.function(lambda: v.assign([5.0, 6.0]))(),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_does_every_writer_change_the_array(ahead, writer):
    WRITERS[writer](ahead)
    np.testing.assert_array_equal(ahead.host(), [5.0, 6.0])
    np.testing.assert_array_equal(ahead.numpy(), [5.0, 6.0])
    ahead.host()[0] = 1.0
    ahead.changed()
    np.testing.assert_array_equal(ahead.numpy(), [1.0, 6.0])


def test_does_a_refused_value_leave_the_array(ahead):
    with pytest.raises(ValueError):
        ahead.assign([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(ahead.numpy(), [3.0, 3.0])


def test_does_tracing_an_assignment_keep_the_value(ahead):
    tf.function(lambda: ahead.assign([5.0, 6.0])).get_concrete_function()
    np.testing.assert_array_equal(ahead.numpy(), [3.0, 3.0])


def test_are_numbers_read_before_a_change_left_alone(ahead):
    before = ahead.numpy()
    ahead.host()[...] = 4.0
    ahead.changed()
    np.testing.assert_array_equal(before, [3.0, 3.0])


class Holder(keras.layers.Layer):
    def __init__(self):
        super().__init__(dtype="float64")
        self.state = HostVariable((2,), "float64", "state")


def test_is_it_a_weight_of_a_layer():
    layer, other = Holder(), Holder()
    layer.state.host()[...] = 3.0
    layer.state.changed()
    assert layer.non_trainable_weights == [layer.state]
    assert not layer.trainable_weights
    other.set_weights(layer.get_weights())
    np.testing.assert_array_equal(other.state.host(), [3.0, 3.0])


def test_do_checkpoints_hold_it(tmp_path):
    layer, other = Holder(), Holder()
    for value in (3.0, 4.0):
        layer.state.host()[...] = value
        layer.state.changed()
        path = tf.train.Checkpoint(layer=layer).save(str(tmp_path / "checkpoint"))
        tf.train.Checkpoint(layer=other).restore(path).assert_consumed()
        np.testing.assert_array_equal(other.state.host(), [value, value])


def test_does_a_stateless_call_leave_it_alone(ahead):
    with keras.StatelessScope() as scope:
        ahead.assign([5.0, 6.0])
        np.testing.assert_array_equal(scope.get_current_value(ahead), [5.0, 6.0])
    np.testing.assert_array_equal(ahead.numpy(), [3.0, 3.0])


def test_does_a_stateless_scope_have_its_own_value(ahead):
    given = tf.constant([7.0, 8.0], tf.float64)
    with keras.StatelessScope(state_mapping=[(ahead, given)]):
        for reader in ("numpy", "array", "tensor", "arithmetic"):
            np.testing.assert_array_equal(READERS[reader](ahead), [7.0, 8.0])
        np.testing.assert_array_equal(ahead.host(), [7.0, 8.0])
    np.testing.assert_array_equal(ahead.numpy(), [3.0, 3.0])
    np.testing.assert_array_equal(ahead.value.numpy(), [3.0, 3.0])


def test_does_it_say_the_present_value(ahead):
    assert "3." in repr(ahead)
