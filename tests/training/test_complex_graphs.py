"""What a `cgp.Functional` does with complex values: every layer and operation of Keras."""

import inspect
import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.layers import RealImag, ToComplex
from cgp.training.model import KEEPING_LAYERS, KEEPING_OPERATIONS

RNG = np.random.default_rng(5)
PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"


def values(*shape):
    return RNG.normal(size=shape) + 1j * RNG.normal(size=shape)


# --- layers ---------------------------------------------------------------------------------------

# The shape of a sample, arguments of the layer, and its answer by NumPy.
KEPT_LAYERS = {
    "Concatenate": ((4, 6), {}, lambda z: np.concatenate([z, z], -1)),
    "Cropping1D": ((4, 6), {}, lambda z: z[:, 1:-1]),
    "Cropping2D": ((4, 4, 2), {"cropping": 1}, lambda z: z[:, 1:-1, 1:-1]),
    "Cropping3D": ((3, 3, 3, 2), {}, lambda z: z[:, 1:-1, 1:-1, 1:-1]),
    "Flatten": ((4, 6), {}, lambda z: z.reshape(len(z), -1)),
    "Identity": ((4, 6), {}, lambda z: z),
    "Permute": ((4, 6), {"dims": (2, 1)}, lambda z: np.swapaxes(z, 1, 2)),
    "RepeatVector": ((6,), {"n": 3}, lambda z: np.repeat(z[:, None], 3, axis=1)),
    "Reshape": ((4, 6), {"target_shape": (8, 3)}, lambda z: z.reshape(-1, 8, 3)),
    "UpSampling1D": ((4, 6), {}, lambda z: np.repeat(z, 2, axis=1)),
    "UpSampling3D": (
        (2, 2, 2, 1),
        {},
        lambda z: z.repeat(2, axis=1).repeat(2, axis=2).repeat(2, axis=3),
    ),
    "ZeroPadding1D": ((4, 6), {}, lambda z: np.pad(z, [(0, 0), (1, 1), (0, 0)])),
    "ZeroPadding2D": ((4, 4, 2), {}, lambda z: np.pad(z, [(0, 0), (1, 1), (1, 1), (0, 0)])),
    "ZeroPadding3D": ((2, 2, 2, 1), {}, lambda z: np.pad(z, [(0, 0)] + [(1, 1)] * 3 + [(0, 0)])),
    "TimeDistributed": (
        (4, 6),
        {"layer": keras.layers.Reshape((3, 2))},
        lambda z: z.reshape(-1, 4, 3, 2),
    ),
    "Lambda": ((4, 6), {"function": lambda z: 2.0 * z, "dtype": "complex128"}, lambda z: 2.0 * z),
}
# What is needed to make the others; where nothing will do they are called on no tensor.
ARGUMENTS = {
    "units": 2,
    "rate": 0.5,
    "filters": 2,
    "kernel_size": 2,
    "scale": 2.0,
    "stddev": 1.0,
    "n": 2,
    "height": 2,
    "width": 2,
    "activation": "linear",
    "factor": 0.2,
    "pool_size": 2,
    "output_size": 2,
    "num_heads": 2,
    "key_dim": 2,
    "head_dim": 2,
    "num_query_heads": 2,
    "num_key_value_heads": 2,
    "input_dim": 4,
    "output_dim": 2,
    "axes": 1,
    "value_range": (0.0, 1.0),
    "height_factor": 0.2,
    "width_factor": 0.2,
    "max_number": 2,
    "bin_boundaries": [0.0, 1.0],
    "num_bins": 4,
    "equation": "abc,cd->abd",
    "output_shape": (None, 2),
    "layers": [],
}
PARTICULAR = {
    "Bidirectional": lambda: {"layer": keras.layers.LSTM(2)},
    "RNN": lambda: {"cell": keras.layers.LSTMCell(2)},
    "StackedRNNCells": lambda: {"cells": [keras.layers.LSTMCell(2)]},
    "SpectralNormalization": lambda: {"layer": keras.layers.Dense(2)},
    "Wrapper": lambda: {"layer": keras.layers.Dense(2)},
    "CategoryEncoding": lambda: {"num_tokens": 4},
    "Discretization": lambda: {"num_bins": 4},
    "Normalization": lambda: {"mean": 0.5, "variance": 2.0},
    "RandomPosterization": lambda: {"factor": 4},
}
MERGING = ["Add", "Average", "Concatenate", "Dot", "Maximum", "Minimum", "Multiply", "Subtract"]
# Abstract; of other backends; a file; called on something else than tensors.
NO_LAYER = ["FlaxLayer", "InputLayer", "JaxLayer", "Layer", "TFSMLayer", "TorchModuleWrapper"]
SHAPES = [(4,), (4, 6), (4, 4, 2), (4, 4, 4, 2)]


def layers():
    result = {}
    for name in dir(keras.layers):
        kind = getattr(keras.layers, name)
        if inspect.isclass(kind) and issubclass(kind, keras.layers.Layer):
            result[kind.__name__] = kind
    return {name: kind for name, kind in result.items() if name not in NO_LAYER}


def arguments_of(name, kind):
    if name in PARTICULAR:
        return PARTICULAR[name]()
    parameters = inspect.signature(kind).parameters.values()
    required = [p.name for p in parameters if p.default is p.empty and p.kind == 1]
    return {each: ARGUMENTS[each] for each in required}


def called(kind, arguments, shape, merges):
    """The tensors of a graph of one layer; None where Keras itself refuses to make it."""
    inputs = [keras.Input(shape, dtype="complex128") for _ in range(1 + merges)]
    layer = kind(**arguments)
    try:
        outputs = layer(inputs if merges else inputs[0])
    except Exception:
        return None
    return None if outputs is inputs[0] else (inputs, outputs)


def refuses(inputs, outputs):
    with pytest.raises(TypeError, match=r"rounds complex values.*RealImag\(\).*Lambda\("):
        cgp.Functional(inputs, outputs)
    return True


@pytest.mark.parametrize("name", layers())
def test_does_each_layer_of_keras_keep_complex_values_or_is_refused(name):
    kind, merges = layers()[name], name in MERGING
    if name in KEPT_LAYERS:
        shape, arguments, answer = KEPT_LAYERS[name]
        model = cgp.Functional(*called(kind, arguments, shape, merges))
        z = values(3, *shape)
        for training in (False, True):
            result = model([z] * (1 + merges), training=training)
            np.testing.assert_array_equal(result, answer(z), strict=True)
        return
    graphs = [called(kind, arguments_of(name, kind), shape, merges) for shape in SHAPES]
    assert all(refuses(*graph) for graph in graphs if graph is not None)


# --- operations -----------------------------------------------------------------------------------

KEPT_OPERATIONS = {
    "Absolute": (keras.ops.abs, np.abs),
    "Concatenate": (
        lambda z: keras.ops.concatenate([z, z], 1),
        lambda z: np.concatenate([z, z], 1),
    ),
    "Conjugate": (keras.ops.conj, np.conj),
    "Diagonal": (
        lambda z: keras.ops.diagonal(z, axis1=1, axis2=2),
        lambda z: np.diagonal(z, axis1=1, axis2=2),
    ),
    "ExpandDims": (lambda z: keras.ops.expand_dims(z, 1), lambda z: z[:, None]),
    "Flip": (lambda z: keras.ops.flip(z, 1), lambda z: np.flip(z, 1)),
    "GetItem": (lambda z: z[:, -1, ::2], lambda z: z[:, -1, ::2]),
    "Imag": (keras.ops.imag, np.imag),
    "Moveaxis": (lambda z: keras.ops.moveaxis(z, 1, 2), lambda z: np.moveaxis(z, 1, 2)),
    "Negative": (lambda z: -z, np.negative),
    "Pad": (
        lambda z: keras.ops.pad(z, ((0, 0), (1, 1), (0, 0))),
        lambda z: np.pad(z, ((0, 0), (1, 1), (0, 0))),
    ),
    "Ravel": (keras.ops.ravel, np.ravel),
    "Real": (keras.ops.real, np.real),
    "Repeat": (lambda z: keras.ops.repeat(z, 2, 1), lambda z: np.repeat(z, 2, 1)),
    "Reshape": (lambda z: keras.ops.reshape(z, (-1, 16)), lambda z: z.reshape(-1, 16)),
    "Roll": (lambda z: keras.ops.roll(z, 1, 1), lambda z: np.roll(z, 1, 1)),
    "Split": (lambda z: keras.ops.split(z, 2, 1)[1], lambda z: np.split(z, 2, 1)[1]),
    "Squeeze": (lambda z: keras.ops.squeeze(z[:, :1], 1), lambda z: z[:, 0]),
    "Stack": (lambda z: keras.ops.stack([z, z], 1), lambda z: np.stack([z, z], 1)),
    "StopGradient": (keras.ops.stop_gradient, lambda z: z),
    "Swapaxes": (lambda z: keras.ops.swapaxes(z, 1, 2), lambda z: np.swapaxes(z, 1, 2)),
    "Take": (lambda z: keras.ops.take(z, [2, 0], axis=1), lambda z: z[:, [2, 0]]),
    "Tile": (lambda z: keras.ops.tile(z, (1, 2, 1)), lambda z: np.tile(z, (1, 2, 1))),
    "Transpose": (
        lambda z: keras.ops.transpose(z, (0, 2, 1)),
        lambda z: np.transpose(z, (0, 2, 1)),
    ),
}


@pytest.mark.parametrize("name", KEPT_OPERATIONS)
def test_are_operations_that_keep_complex_values_exact(name):
    function, answer = KEPT_OPERATIONS[name]
    inputs, z = keras.Input((4, 4), dtype="complex128"), values(3, 4, 4)
    outputs = function(inputs)
    assert type(outputs._keras_history.operation).__name__ == name
    result = cgp.Functional(inputs, outputs)(z)
    if name == "Absolute":
        np.testing.assert_allclose(result, answer(z), rtol=4e-16, strict=True)
    else:
        np.testing.assert_array_equal(result, answer(z), strict=True)


def test_have_all_that_are_kept_an_answer():
    assert set(KEPT_OPERATIONS) == KEEPING_OPERATIONS
    trusted = {"Lambda", "TimeDistributed"}  # see the tests of what is inside
    assert set(KEPT_LAYERS) - trusted == KEEPING_LAYERS


SECOND = {"axis": 1, "axes": (0, 2, 1), "dtype": "complex128", "n": 2, "num": 2, "k": 2}
BY_SIGN = {
    "a + a": lambda z: z + z,
    "a - a": lambda z: z - z,
    "a * 1j": lambda z: z * 1j,
    "2 * a": lambda z: 2.0 * z,
    "a / 2": lambda z: z / 2.0,
    "a @ a": lambda z: z @ z,
    "a ** 2": lambda z: z**2,
    "einsum": lambda z: keras.ops.einsum("tij,tjk->tik", z, z),
    "where": lambda z: keras.ops.where(keras.ops.real(z) > 0.0, z, 0.0),
    "cast": lambda z: keras.ops.cast(z, "float64"),
    "real * 1j": lambda z: keras.ops.real(z) * 1j,
    "to complex": lambda z: keras.ops.cast(keras.ops.argmax(z[..., :0], axis=0), "complex64"),
}


def operations():
    """The functions of `keras.ops` that Keras calls on one or two complex tensors, or a list."""
    z = keras.Input((4, 4), dtype="complex128")
    for name in dir(keras.ops):
        function = getattr(keras.ops, name)
        if not inspect.isfunction(function):
            continue
        parameters = list(inspect.signature(function).parameters.values())[1:]
        required = [p.name for p in parameters if p.default is p.empty and p.kind == 1]
        for arguments in ([z], [z, z], [[z, z]]):
            named = {p: SECOND[p] for p in required[len(arguments) - 1 :] if p in SECOND}
            try:
                outputs = function(*arguments, **named)
            except Exception:
                continue
            if isinstance(keras.tree.flatten(outputs)[0], keras.KerasTensor):
                yield name, z, outputs


def test_is_every_other_operation_refused():
    refused, kept = set(), set()
    for name, z, outputs in operations():
        kind = type(keras.tree.flatten(outputs)[0]._keras_history.operation).__name__
        if kind in KEEPING_OPERATIONS:
            cgp.Functional(z, outputs)
            kept.add(name)
        else:
            assert refuses(z, outputs), name
            refused.add(name)
    assert len(refused) > 100
    assert {"reshape", "real", "stack", "conj", "transpose"} <= kept


@pytest.mark.parametrize("sign", BY_SIGN)
def test_are_signs_between_complex_tensors_refused(sign):
    z = keras.Input((4, 4), dtype="complex128")
    refuses(z, BY_SIGN[sign](z))


def test_are_complex_values_beside_real_ones_refused():
    z, x = keras.Input((4, 2), dtype="complex128"), keras.Input((4, 2), dtype="float64")
    for joined in (keras.layers.Concatenate()([z, x]), keras.ops.stack([z, x])):
        with pytest.raises(TypeError, match=r"beside real ones.*make all of them complex before"):
            cgp.Functional([z, x], joined)
    cast = {"dtype": "complex128", "arguments": {"dtype": "complex128"}}
    joined = keras.layers.Concatenate()([z, keras.layers.Lambda(tf.cast, **cast)(x)])
    given = [values(3, 4, 2), np.ones((3, 4, 2))]
    result = cgp.Functional([z, x], joined)(given)
    np.testing.assert_array_equal(result, np.concatenate(given, -1), strict=True)


# --- inside others, and behind others -------------------------------------------------------------


def inner(layer, dtype="complex128"):
    z = keras.Input((4, 2), dtype=dtype)
    return keras.Model(z, layer(z))


HIDDEN = {
    "a model": lambda: inner(keras.layers.Rescaling(2.0)),
    "a model in a model": lambda: inner(inner(keras.layers.Rescaling(2.0))),
    "a Sequential": lambda: keras.Sequential(
        [keras.Input((4, 2), dtype="complex128"), keras.layers.Rescaling(2.0)]
    ),
    "a wrapper": lambda: keras.layers.TimeDistributed(keras.layers.Rescaling(2.0)),
    "a wrapped model": lambda: keras.layers.TimeDistributed(
        keras.Sequential([keras.Input((2,), dtype="complex128"), keras.layers.Rescaling(2.0)])
    ),
    "behind a layer that keeps them": lambda: keras.Sequential(
        [keras.Input((4, 2), dtype="complex128"), keras.layers.Flatten(), keras.layers.Dense(2)]
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_is_a_layer_inside_another_refused(name):
    z = keras.Input((4, 2), dtype="complex128")
    refuses(z, HIDDEN[name]()(z))


def test_are_a_real_input_inside_and_a_sequential_without_one_refused():
    z = keras.Input((4, 2), dtype="complex128")
    without = keras.Sequential([keras.layers.Flatten()])
    for model in (inner(keras.layers.Flatten(), "float64"), without):
        with pytest.raises(TypeError, match=r'complex data: declare it with .*"complex128"'):
            cgp.Functional(z, model(z))
    sound = inner(keras.layers.Flatten())
    np.testing.assert_array_equal(cgp.Functional(z, sound(z))(np.ones((1, 4, 2)) * 1j), [[1j] * 8])


def test_is_a_layer_refused_whose_input_does_not_say_that_it_is_complex():
    z = keras.Input((4, 2), dtype="complex128")
    cropped = keras.layers.Cropping1D(1)(z)
    assert cropped.dtype == "float32"  # what Keras says of it
    refuses(z, keras.layers.Dense(2)(cropped))
    doubled = keras.layers.Lambda(lambda a: 2.0 * a)(z)  # nothing tells what this is
    model = cgp.Functional(z, keras.layers.Dense(2)(doubled))
    for run in (model, model.predict, tf.function(model)):
        with pytest.raises(TypeError, match="Dense of Keras, rounds complex values"):
            run(values(3, 4, 2))


def test_are_real_results_real_for_what_follows():
    z = keras.Input((4,), dtype="complex128")
    power = keras.ops.log(keras.ops.abs(z) ** 2)
    model = cgp.Functional(z, keras.layers.Dense(1, kernel_initializer="ones")(power))
    given = values(3, 4)
    expected = np.sum(np.log(np.abs(given) ** 2), -1, keepdims=True)
    np.testing.assert_allclose(model(given), expected, rtol=1e-5)


class Twice(keras.layers.Layer):
    def call(self, z):
        return 2.0 * z


def test_is_a_layer_of_the_user_trusted():
    z = keras.Input((4,), dtype="complex128")
    given = values(3, 4)
    result = cgp.Functional(z, Twice(dtype="complex128")(z))(given)
    np.testing.assert_array_equal(result, 2.0 * given, strict=True)


# --- remedies -------------------------------------------------------------------------------------


@keras.saving.register_keras_serializable(package="tests")
def added(pair):
    return pair[0] + pair[1]


def test_does_the_remedy_of_a_sum_work_and_is_it_saved(tmp_path):
    streams = [keras.Input((4, 2), dtype="complex128") for _ in range(2)]
    both = keras.layers.Lambda(added, dtype="complex128")(streams)
    model = cgp.Functional(streams, keras.layers.Dense(1)(RealImag()(both)))
    given = [values(3, 4, 2), values(3, 4, 2)]
    model.compile("sgd", "mse")
    model.fit(given, np.zeros((3, 4, 1)), verbose=0)
    model.save(tmp_path / "sum.keras")
    again = cgp.load_model(tmp_path / "sum.keras")
    np.testing.assert_array_equal(again.predict(given), model.predict(given))
    np.testing.assert_array_equal(cgp.Functional(streams, both)(given), sum(given), strict=True)


def test_does_the_remedy_of_parts_as_features_work():
    z, given = keras.Input((4, 2), dtype="complex128"), values(3, 4, 2)
    scaled = keras.layers.Rescaling(2.0, dtype="float64")(RealImag(dtype="float64")(z))
    model = cgp.Functional(z, ToComplex()(scaled))
    np.testing.assert_array_equal(model(given), 2.0 * given, strict=True)


def test_has_the_page_the_layers_and_operations_that_are_kept():
    text = PAGE.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^- kept, (layers|operations): (.*)$", text, re.MULTILINE))
    names = {row: set(re.findall(r"`(\w+)`", names)) for row, names in rows.items()}
    assert names["layers"] == KEEPING_LAYERS | {"TimeDistributed"}
    functions = {name.replace("_", "") for name in names["operations"] - {"keras.ops"}}
    others = {"Absolute": "abs", "Conjugate": "conj", "GetItem": None, "Negative": None}
    kept = {others.get(name, name.lower()) for name in KEEPING_OPERATIONS}
    assert functions == kept - {None}
