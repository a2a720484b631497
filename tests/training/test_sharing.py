"""One layer handed to several stays one layer."""

import copy
import json
import pickle
import re
import textwrap
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp.training import Shareable, clone_model, sharing_scope
from tests.long_cases import eagerly_and_in_a_graph, eagerly_or_in_a_graph, long_except
from tests.training import toys


def kernels(model):
    return [model.get_layer(name).kernel for name in ("features", "similarity")]


def trained(eagerly=True):
    model = toys.network()
    model.compile(keras.optimizers.Adam(0.05), toys.mean_squared_error(), run_eagerly=eagerly)
    model.fit(*toys.series(), verbose=0)
    return model


@pytest.fixture(
    scope="module", params=["eager", pytest.param("in a graph", marks=pytest.mark.long)]
)
def once_trained(request):
    """The same for several tests, which leave it as it is: to compile it takes seconds."""
    return trained(request.param == "eager")


def through_keras_file(model, path):
    model.save(path / "model.keras")
    return keras.saving.load_model(path / "model.keras")


def through_json_and_weights(model, path):
    model.save_weights(path / "model.weights.h5")
    copied = keras.models.model_from_json(model.to_json())
    copied.load_weights(path / "model.weights.h5")
    copied.compile(
        keras.optimizers.Adam(0.05), toys.mean_squared_error(), run_eagerly=model.run_eagerly
    )
    return copied


def through_pickle(model, path):
    return pickle.loads(pickle.dumps(model))


def through_deepcopy(model, path):
    return copy.deepcopy(model)


WAYS = [through_keras_file, through_json_and_weights, through_pickle, through_deepcopy]


@pytest.mark.parametrize("way", long_except(WAYS, through_keras_file, through_pickle))
def test_sharing_predictions_and_training_survive(way, once_trained, tmp_path):
    model = once_trained
    x, y = toys.series()
    copied = way(model, tmp_path)
    first, second = kernels(copied)
    assert first is second
    assert first is not kernels(model)[0]
    assert type(copied) is type(model)
    assert copied.dtype == "float64"
    names = [v.name for v in copied.trainable_variables]
    assert names == [v.name for v in model.trainable_variables]
    assert names.count("log_lengthscale") == 1

    features = copied.get_layer("features")
    ran = features.factorisations.numpy()
    np.testing.assert_array_equal(copied.predict(x, verbose=0), model.predict(x, verbose=0))
    assert features.factorisations.numpy() == ran  # state and snapshot came together
    first.log_variance.assign(first.log_variance + 0.1)
    copied.predict(x, verbose=0)
    assert features.factorisations.numpy() == ran + 1
    copied.fit(x, y, verbose=0)
    assert toys.staleness(features) < 1e-12


@eagerly_or_in_a_graph
def test_stale_state_is_saved_as_stale(eagerly, tmp_path):
    model = trained(eagerly)
    kernels(model)[0].log_variance.assign(0.7)
    x, _ = toys.series()
    copied = through_keras_file(model, tmp_path)
    np.testing.assert_allclose(copied.predict(x, verbose=0), model.predict(x, verbose=0))
    assert toys.staleness(copied.get_layer("features")) < 1e-12


def test_weights_loaded_into_a_used_model_bring_their_state(once_trained, tmp_path):
    model, other = once_trained, toys.network()
    other.run_eagerly = model.run_eagerly
    x, _ = toys.series()
    other.predict(x, verbose=0)
    model.save_weights(tmp_path / "model.weights.h5")
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(other.predict(x, verbose=0), model.predict(x, verbose=0))


def test_clones_share_and_start_afresh(once_trained):
    model = once_trained
    cloned = clone_model(model)
    first, second = kernels(cloned)
    assert first is second
    assert type(cloned) is type(model)
    assert first.log_variance.numpy() == pytest.approx(np.log(1.5), abs=1e-15)
    assert kernels(model)[0].log_variance.numpy() != first.log_variance.numpy()


@pytest.mark.parametrize("make", [keras.Model, keras.Sequential])
def test_clones_of_plain_keras_models_share_too(make):
    if make is keras.Sequential:
        kernel = toys.Kernel()
        model = keras.Sequential(
            [
                keras.Input((1,), dtype="float64"),
                toys.Features(kernel, name="features"),
                toys.Similarity(kernel, name="similarity"),
            ]
        )
    else:
        model = toys.network(model=keras.Model)
    first, second = kernels(clone_model(model))
    assert first is second
    assert first is not kernels(model)[0]


def test_a_plain_keras_model_loads_shared_inside_a_scope_only(tmp_path):
    model = toys.network(model=keras.Model)
    model.save(tmp_path / "model.keras")
    with sharing_scope():
        first, second = kernels(keras.saving.load_model(tmp_path / "model.keras"))
    assert first is second


def test_a_plain_keras_model_loaded_without_a_scope_says_what_to_do(tmp_path):
    model = toys.network(model=keras.Model)
    model.save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match=r"cgp\.load_model"):
        keras.saving.load_model(tmp_path / "model.keras")


@pytest.mark.parametrize("clone", [keras.models.clone_model, clone_model])
def test_a_functional_model_shares_whoever_clones_it(clone):
    model = toys.network()
    first, second = kernels(clone(model))
    assert first is second
    assert first is not kernels(model)[0]


def test_freezing_one_consumer_freezes_what_is_shared():
    model = toys.network()
    model.get_layer("similarity").trainable = False
    assert not any("log_variance" in v.path for v in model.trainable_variables)


def example(module):
    """The indented example of a module's docstring, executed."""
    blocks = re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", module.__doc__, re.MULTILINE)
    assert len(blocks) == 1
    names = {"cgp": cgp, "keras": keras, "np": np, "tf": tf}
    exec(textwrap.dedent(blocks[0]), names)
    return names


@keras.saving.register_keras_serializable(package="toys")
class RealPart(keras.layers.Layer):
    def call(self, z):
        return tf.math.real(z)


@eagerly_and_in_a_graph(("dimensions",), [1, 2], [2], [2])
def test_the_examples_in_the_documentation_train_and_survive_saving(dimensions, eagerly, tmp_path):
    shape = (2,) if dimensions == 2 else ()
    features_class = example(cgp.training.post_updates)["InducingFeatures"]
    consumer_class = example(cgp.training.sharing)["Consumer"]

    @keras.saving.register_keras_serializable(package="example")
    class Diagonal(consumer_class):
        def call(self, x):
            k, _ = self.kernel.moments_diagonal(x)
            return tf.math.real(k)[:, None]

    rng = np.random.default_rng(0)
    kernel = cgp.kernels.RBF(1.0, lengthscale=0.7) * cgp.kernels.Rotation(
        [0.3, -0.2] if shape else 0.3
    )
    points = rng.uniform(-2.0, 2.0, (5, *shape))
    x, y = rng.uniform(-2.0, 2.0, (12, *shape)), rng.normal(size=(12, 1))

    inputs = keras.Input(shape, dtype="float64")
    features = features_class(kernel, points, name="features")
    real = RealPart(dtype="float64")(features(inputs))
    diagonal = Diagonal(kernel, name="diagonal")(inputs)
    both = keras.layers.Concatenate(dtype="float64")([real, diagonal])
    model = cgp.Functional(inputs, keras.layers.Dense(1, dtype="float64")(both))
    model.compile(keras.optimizers.Adam(0.05), toys.mean_squared_error(), run_eagerly=eagerly)
    before = [v.numpy() for v in kernel.trainable_variables]
    model.fit(x, y, epochs=2, verbose=0)
    for old, v in zip(before, kernel.trainable_variables, strict=True):
        assert np.all(old != v.numpy()), v.path

    # Against the definition: L⁻¹ k(points, x), complex from end to end
    gram, cross = kernel.covariance(points).numpy(), kernel.covariance(points, x).numpy()
    expected = np.linalg.solve(np.linalg.cholesky(gram), cross).conj().T
    np.testing.assert_allclose(features(tf.constant(x)), expected, rtol=1e-8, atol=1e-10)

    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.get_layer("features").kernel is loaded.get_layer("diagonal").kernel
    assert loaded.get_layer("features").dtype == "float64"
    predictions = [m.predict(x, verbose=0) for m in (model, loaded)]
    np.testing.assert_array_equal(*predictions)
    losses = [
        m.fit(x, y, epochs=2, verbose=0, shuffle=False).history["loss"] for m in (model, loaded)
    ]
    np.testing.assert_allclose(*losses, rtol=1e-6)  # a loaded mean_squared_error is float32


@eagerly_and_in_a_graph(("shared",), [True, False], [True], [True])
def test_a_subclassed_model_with_its_own_from_config_shares(shared, eagerly, tmp_path):
    kernel = toys.Kernel()
    model = toys.Subclassed(kernel, None if shared else toys.Kernel())
    x, z = toys.series(16)
    data = (x, z[:, 0] * (1 + 2j))
    model.compile(keras.optimizers.Adam(0.05), run_eagerly=eagerly)
    model.fit(data, verbose=0)
    for copied in (through_keras_file(model, tmp_path), copy.deepcopy(model), clone_model(model)):
        assert (copied.similarity.kernel is copied.kernel) == shared
        assert len(copied.trainable_variables) == len(model.trainable_variables)
    copied = through_keras_file(model, tmp_path)
    predictions = [m.predict(data, verbose=0)["mean"] for m in (model, copied)]
    np.testing.assert_array_equal(*predictions)
    # Training goes on as if it had not been saved.
    losses = [m.fit(data, epochs=3, verbose=0).history["loss"] for m in (model, copied)]
    np.testing.assert_allclose(*losses, rtol=1e-12)


def test_a_nested_model_shares_with_what_is_around_it():
    kernel = toys.Kernel()
    x = keras.Input((1,), dtype="float64")
    inner = toys.Functional(x, toys.Similarity(kernel, name="inner_similarity")(x))
    outer_x = keras.Input((1,), dtype="float64")
    features = toys.Features(kernel, name="features")(outer_x)
    both = keras.layers.Concatenate(dtype="float64")([features, inner(outer_x)])
    copied = clone_model(toys.Functional(outer_x, both))
    nested = next(layer for layer in copied.layers if isinstance(layer, keras.Model))
    shared = nested.get_layer("inner_similarity").kernel
    assert shared is copied.get_layer("features").kernel


def test_live_layers_never_carry_the_same_identity():
    kernel = toys.Kernel()
    config = kernel.get_config()
    assert kernel.get_config() == config
    with sharing_scope():
        revived = toys.Kernel.from_config(config)
        with sharing_scope():
            assert toys.Kernel.from_config(config) is revived
        assert toys.Kernel.from_config(config) is revived
        assert toys.Kernel.from_config(revived.get_config()) is not revived
    outside = toys.Kernel.from_config(config)
    ids = {k.shared_id for k in (kernel, revived, outside, toys.Kernel.from_config(config))}
    assert len(ids) == 4
    assert "shared_id" in config  # the caller's config is left as it was
    json.dumps(config)


def test_a_failed_load_closes_its_scope():
    config = toys.Kernel().get_config()

    def load():
        with sharing_scope():
            toys.Kernel.from_config(config)
            raise RuntimeError("midway")

    with pytest.raises(RuntimeError, match="midway"):
        load()
    assert toys.Kernel.from_config(config) is not toys.Kernel.from_config(config)


def test_threads_have_scopes_of_their_own():
    config = toys.Kernel().get_config()
    result = []
    with sharing_scope():
        mine = toys.Kernel.from_config(config)
        thread = threading.Thread(target=lambda: result.append(toys.Kernel.from_config(config)))
        thread.start()
        thread.join()
    assert result[0] is not mine


def test_an_owner_made_of_owners_needs_no_care():
    class Sum(Shareable, keras.layers.Layer):
        def __init__(self, parts, **kwargs):
            super().__init__(**kwargs)
            self.parts = parts

        def get_config(self):
            parts = [keras.saving.serialize_keras_object(p) for p in self.parts]
            return {**super().get_config(), "parts": parts}

        @classmethod
        def from_config(cls, config):
            parts = [keras.saving.deserialize_keras_object(p) for p in config.pop("parts")]
            return cls(parts, **config)

    kernel = toys.Kernel()
    config = Sum([kernel, kernel, toys.Kernel()]).get_config()
    with sharing_scope():
        first, second = Sum.from_config(config), Sum.from_config(config)
    assert first is second
    assert first.parts[0] is first.parts[1]
    assert first.parts[0] is not first.parts[2]


def test_an_owner_without_get_config_keeps_its_arguments():
    class Plain(Shareable, keras.layers.Layer):
        def __init__(self, scale=1.0, **kwargs):
            super().__init__(**kwargs)
            self.scale = scale

    assert Plain.from_config(Plain(scale=3.0).get_config()).scale == 3.0


def test_one_identity_for_two_classes_is_an_error():
    class Other(toys.Kernel):
        pass

    config = toys.Kernel().get_config()
    with sharing_scope():
        toys.Kernel.from_config(config)
        with pytest.raises(ValueError, match="stands for a Kernel and for a Other"):
            Other.from_config(config)
