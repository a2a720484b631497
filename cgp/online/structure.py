"""The structure of a model as text, which tells it from others whatever its hyperparameters.

It is the same in another process, and for a copy, a clone or a file of the model.
"""

import collections
from collections.abc import Iterable, Mapping
from typing import Any

import keras

from cgp.training.keras_private import flatten_layers
from cgp.training.parameters import Parameterized

# The keys of a config that say nothing about the model, or are told by the dtypes of states.
_OTHER = {"name", "trainable", "dtype", "shared_id", "fixed", "priors", "complex"}


def structure_of(layer: keras.layers.Layer | None) -> str:
    """The classes and settings of a kernel or a mean, without names and hyperparameters.

    A layer whose class does not say how it is serialised is told by its class alone.
    """
    if layer is None:
        return "None"
    parameters: dict[str, set[str]] = collections.defaultdict(set)
    for sublayer in flatten_layers(layer):
        if isinstance(sublayer, Parameterized):
            parameters[type(sublayer).__name__] |= {p.name for p in sublayer.own_parameters}
    try:
        config = keras.saving.serialize_keras_object(layer)
    except NotImplementedError:
        return type(layer).__name__
    return _text(config, parameters, {})


def _text(config: Any, parameters: Mapping[str, set[str]], shared: dict[str, int]) -> str:
    """Part of a config as text.

    Args:
        config: The config that Keras makes of a layer, or a value in it.
        parameters: The names of hyperparameters by class.
        shared: The numbers of the layers before, by their `shared_id`.
    """

    def inside(items: Iterable[Any]) -> str:
        return ", ".join(_text(item, parameters, shared) for item in items)

    def settings(config: Mapping[str, Any], others: set[str]) -> str:
        names = sorted(set(config) - others)
        return ", ".join(f"{name}={inside([config[name]])}" for name in names)

    if isinstance(config, list | tuple):
        return f"[{inside(config)}]"
    if not isinstance(config, dict):
        return repr(config).removesuffix(".0")  # a setting of 2 and of 2.0 is one
    if "class_name" not in config:
        return f"{{{settings(config, set())}}}"
    kind, settings_of_layer = config["class_name"], config["config"]
    name = (config.get("registered_name") or kind).removeprefix("cgp.kernels>")
    if not isinstance(settings_of_layer, dict):
        return f"{name}({inside([settings_of_layer])})"
    if settings_of_layer.get("shared_id", "") in shared:
        return f"{name} as number {shared[settings_of_layer['shared_id']]}"
    if "shared_id" in settings_of_layer:
        shared[settings_of_layer["shared_id"]] = len(shared)
    return f"{name}({settings(settings_of_layer, _OTHER | parameters.get(kind, set()))})"


def in_declared_order(
    weights: Iterable[keras.Variable], model: keras.layers.Layer
) -> list[keras.Variable]:
    """Weights of a model by hyperparameter; Keras has those that are trained before others."""
    weights = list(weights)
    if not isinstance(model, keras.layers.Layer):  # a cell of a user's own
        return weights
    layers = (sublayer for sublayer in flatten_layers(model) if isinstance(sublayer, Parameterized))
    declared = (v for sublayer in layers for p in sublayer.own_parameters for v in p.variables)
    place = {id(v): i for i, v in enumerate(declared)}
    return sorted(weights, key=lambda v: place.get(id(v), len(place)))


def check_structure(came: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raises unless bytes are of a model of this structure.

    Args:
        came: The structure of the model in the bytes, by name.
        expected: The structure of the estimator.

    Raises:
        ValueError: They differ.
    """
    different = [name for name in expected if came.get(name) != expected[name]]
    if "estimator" in different:
        different = ["estimator"]
    if different:
        told = "; ".join(
            f"{name}: expected {expected[name]}, got {came.get(name)}" for name in different
        )
        raise ValueError(f"the bytes are of a bank of another model. {told}")
